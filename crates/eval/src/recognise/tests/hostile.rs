//! Hostile input: any bytes, any formats, deep and wide trees. Reading does not panic, and its cost is linear.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::recognise::message::COMPARED;

fn span_of(bytes: Vec<u8>, id: u8, parent: u8) -> verdict_otlp::trace::Span {
    verdict_otlp::trace::Span {
        id: SpanId([id; 8]),
        parent: SpanId([parent; 8]),
        start: u64::from(id),
        end: 0,
        status: verdict_otlp::trace::Status::Unset,
        remote_parent: false,
        has_verdict: false,
        forwarded: false,
        skew: 0,
        bytes: Bytes::from(bytes),
        envelope: Default::default(),
    }
}

proptest! {
    #[test]
    fn reading_any_bytes_does_not_panic(a in prop::collection::vec(any::<u8>(), 0..200), b in prop::collection::vec(any::<u8>(), 0..200)) {
        let tree = Tree::new(TraceId([1; 16]), vec![span_of(a, 1, 0), span_of(b.clone(), 2, 1)]);
        let logs = [AttachedLog { span: SpanId([2; 8]), record: Bytes::from(b) }];
        let trace = recogniser().trace(tree, &logs, true);
        prop_assert_eq!(trace.views.len(), 2);
        let _ = trace.outline();
    }

    #[test]
    fn reading_any_content_does_not_panic(value in any_content(), kind in prop::sample::select(vec!["chat", "execute_tool", "invoke_agent", "retrieval"])) {
        let mut attributes = json!({ "gen_ai.operation.name": kind });
        for key in ["gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.tool.definitions", "gen_ai.tool.call.arguments", "gen_ai.tool.call.result", "pydantic_ai.all_messages", "gen_ai.system_instructions", "plan", "gen_ai.response.finish_reasons"] {
            attributes[key] = value.clone();
        }
        let trace = trace_of(json!([{ "id": 1, "name": "x", "attributes": attributes, "events": [{ "name": "gen_ai.choice", "attributes": { "message": value } }] }]));
        prop_assert_eq!(trace.views.len(), 1);
    }
}

#[test]
fn prompts_above_thousands_of_agents_are_read_once() {
    const MODEL_CALLS: u64 = 10;
    const AGENTS: u64 = 1_000;
    let part = json!({ "type": "text", "content": "x" });
    let prompt = json!([{ "role": "system", "parts": vec![part; 500] }]);
    let mut spans: Vec<serde_json::Value> = Vec::new();
    for n in 1..=MODEL_CALLS + AGENTS {
        let attributes = match n <= MODEL_CALLS {
            true => json!({ "gen_ai.operation.name": "chat", "gen_ai.input.messages": prompt }),
            false => json!({ "gen_ai.operation.name": "invoke_agent" }),
        };
        let mut span = json!({ "id": n, "name": "x", "attributes": attributes });
        if n > 1 {
            span["parent"] = (n - 1).min(MODEL_CALLS).into();
        }
        spans.push(span);
    }
    let spans = json!(spans);
    let before = verdict_otlp::work::counted();
    let trace = trace_of(spans);
    let work = verdict_otlp::work::counted() - before;
    assert!(trace.agents.len() as u64 >= AGENTS && trace.views[0].input[0].parts.len() == 500);
    assert!(work <= 100 * AGENTS, "{work} spans visited and parts read");
}

/// JSON made of the keys and words by which formats are distinguished.
fn any_content() -> impl Strategy<Value = serde_json::Value> {
    let words = [
        "user",
        "tool",
        "text",
        "tool_call",
        "function_call_output",
        "{\"a\": [",
        "[[\"ai\", \"x\"]]",
        "é\u{10ffff}",
        "",
        "1. a\n2. b",
        "Plan:\n- é\n- b",
    ];
    let keys = [
        "role",
        "type",
        "content",
        "parts",
        "messages",
        "kwargs",
        "id",
        "data",
        "name",
        "arguments",
        "args",
        "toolResult",
        "function",
        "tool_calls",
        "input_str",
        "output",
        "text",
        "result",
        "steps",
    ];
    let leaf = prop_oneof![
        prop::sample::select(words.to_vec()).prop_map(|w| json!(w)),
        any::<i64>().prop_map(|n| json!(n)),
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(|b| json!(b)),
    ];
    leaf.prop_recursive(6, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(serde_json::Value::Array),
            prop::collection::vec((prop::sample::select(keys.to_vec()), inner.clone()), 0..5).prop_map(
                |entries| entries
                    .into_iter()
                    .map(|(k, v)| (k.to_owned(), v))
                    .collect::<serde_json::Map<_, _>>()
                    .into()
            ),
            inner.prop_map(|v| json!(v.to_string())),
        ]
    })
}

const HOSTILE_SPANS: u64 = 20_000;

/// `HOSTILE_SPANS` spans of one kind with equal names, each with a different error and a different tool call.
fn hostile_spans(kind: &str, is_deep: bool) -> Vec<verdict_otlp::trace::Span> {
    use verdict_otlp::write::{Scalar, attribute, bytes, integer, open};
    let id = |i: u64| SpanId(i.to_be_bytes());
    (1..=HOSTILE_SPANS)
        .map(|i| {
            let mut span = Vec::new();
            let arguments = format!("{{\"q\": {i}}}");
            for (key, value) in [
                ("openinference.span.kind", kind),
                ("tool.name", "same"),
                ("input.value", &arguments),
                ("llm.output_messages.0.message.tool_calls.0.tool_call.function.name", "same"),
            ] {
                attribute(&mut span, 9, key, Scalar::Str(value));
            }
            let mut status = Vec::new();
            bytes(&mut status, 2, format!("error number {i}").as_bytes());
            integer(&mut status, 3, 2);
            open(&mut span, 15, status.len());
            span.extend(status);
            let parent = if is_deep { i - 1 } else { u64::from(i > 1) };
            verdict_otlp::trace::Span { id: id(i), parent: id(parent), start: i, ..span_of(span, 0, 0) }
        })
        .collect()
}

#[test]
fn deep_and_wide_trees_are_read_without_recursion_and_compared_in_linear_time() {
    for kind in ["LLM", "TOOL", "AGENT", "CHAIN", "EVALUATOR"] {
        for is_deep in [true, false] {
            let spans = hostile_spans(kind, is_deep);
            let before = COMPARED.get();
            let trace = recogniser().trace(Tree::new(TraceId([1; 16]), spans), &[], false);
            assert_eq!(trace.views.len() as u64, HOSTILE_SPANS);
            let compared = COMPARED.get() - before;
            assert!(compared <= 20 * HOSTILE_SPANS, "{kind}, deep: {is_deep}: {compared} comparisons");
        }
    }
}

/// A model call with these messages as its output.
fn trace_with_output(messages: serde_json::Value) -> AgentTrace {
    trace_of(json!([{ "id": 1, "name": "chat", "attributes": {
        "gen_ai.operation.name": "chat",
        "gen_ai.output.messages": messages.to_string(),
    } }]))
}

#[test]
fn calls_of_one_message_are_compared_in_linear_time() {
    let compared = |calls: u64| {
        let calls: Vec<_> = (0..calls).map(|i| json!({ "name": format!("t{i}") })).collect();
        let before = COMPARED.get();
        let trace = trace_with_output(json!([{ "role": "assistant", "content": "x", "tool_calls": calls }]));
        assert_eq!(trace.calls.len(), calls.len());
        COMPARED.get() - before
    };
    let (few, many) = (compared(200), compared(2_000));
    assert!(many <= 11 * few.max(200), "{few} comparisons for 200 calls, {many} for 2,000");
}

#[test]
fn calls_are_joined_with_the_definitions_of_many_tools_in_linear_time() {
    let compared = |n: usize| {
        let names: Vec<String> = (0..n).map(|i| format!("tool_{i}")).collect();
        let tools: Vec<_> = names.iter().map(|name| json!({ "type": "function", "name": name })).collect();
        let calls: Vec<_> = names.iter().map(|name| json!({ "id": name, "name": name })).collect();
        let before = COMPARED.get();
        let trace = trace_of(json!([{ "id": 1, "name": "chat", "attributes": {
            "gen_ai.operation.name": "chat",
            "gen_ai.tool.definitions": json!(tools).to_string(),
            "gen_ai.output.messages": json!([{ "role": "assistant", "tool_calls": calls }]).to_string(),
        } }]));
        assert!(trace.calls.len() == n && trace.calls.iter().all(|call| call.definition.is_some()));
        COMPARED.get() - before
    };
    let (few, many) = (compared(100), compared(1_000));
    assert!(many <= 11 * few.max(100), "{few} comparisons for 100 tools, {many} for 1,000");
}

#[test]
fn calls_that_repeat_a_call_of_their_message_are_read_once() {
    let call = |id: Option<&str>, name: &str, arguments: &str| json!({ "id": id, "name": name, "arguments": arguments });
    let calls = [
        (call(Some("1"), "a", "{}"), true),
        (call(Some("1"), "a", "{ }"), false),
        (call(Some("1"), "b", "{}"), true),
        (call(Some("2"), "a", "{}"), true),
        (call(None, "a", "{}"), false),
        (call(None, "a", "[]"), true),
        (call(None, "a", "[]"), false),
        (call(None, "c", ""), true),
    ];
    let written: Vec<_> = calls.iter().map(|(call, _)| call).collect();
    let trace = trace_with_output(json!([{ "role": "assistant", "content": "x", "tool_calls": written }]));
    assert_eq!(trace.calls.len(), calls.iter().filter(|(_, is_new)| *is_new).count());
}

/// The number of values in `value`, itself included.
fn value_count(value: &serde_json::Value) -> usize {
    use serde_json::Value;
    1 + match value {
        Value::Array(items) => items.iter().map(value_count).sum(),
        Value::Object(map) => map.values().map(value_count).sum(),
        _ => 0,
    }
}

#[test]
fn arguments_are_parsed_up_to_a_number_of_values() {
    let call = |id: usize, values: usize| {
        let arguments = format!("{{\"a\":[{}1]}}", "1,".repeat(values));
        json!({ "id": id.to_string(), "name": "t", "arguments": arguments })
    };
    for (calls, values_per_call) in [(1, 300_000), (40, 20_000)] {
        let calls: Vec<_> = (0..calls).map(|i| call(i, values_per_call)).chain([call(calls, 1)]).collect();
        let bytes = json!(calls).to_string().len();
        let trace = trace_with_output(json!([{ "role": "assistant", "content": "x", "tool_calls": calls }]));
        assert_eq!(trace.calls.len(), calls.len());
        let values: usize = trace.calls.iter().filter_map(|c| c.parsed.as_deref()).map(value_count).sum();
        let max_values = 200_000 + bytes / 32;
        assert!(values <= max_values, "{values} values are parsed of {bytes} bytes, more than {max_values}");
        assert!(trace.calls.iter().any(|call| call.too_large && call.parsed.is_none()));
        assert!(trace.calls.last().unwrap().parsed.is_some(), "a small call is parsed all the same");
    }
}

/// An agent, `depth` nested spans, and below the last of them chains with conversations of their own, each with a tool
/// call between two model calls.
fn chains_below(nested: &[(&str, &str)], depth: u64, chains: u64) -> Vec<verdict_otlp::trace::Span> {
    use verdict_otlp::write::{Scalar, attribute};
    let span = |i: u64, parent: u64, attributes: &[(&str, &str)]| {
        let mut bytes = Vec::new();
        attributes.iter().for_each(|(key, value)| attribute(&mut bytes, 9, key, Scalar::Str(value)));
        let id = |i: u64| SpanId(i.to_be_bytes());
        verdict_otlp::trace::Span { id: id(i), parent: id(parent), start: i, ..span_of(bytes, 0, 0) }
    };
    let chain = [("openinference.span.kind", "CHAIN")];
    let mut spans = vec![span(1, 0, &[("gen_ai.operation.name", "invoke_agent")])];
    spans.extend((2..2 + depth).map(|i| span(i, i - 1, nested)));
    for n in 0..chains {
        let first = 2 + depth + 4 * n;
        spans.push(span(first, 1 + depth, &chain));
        for (i, turns) in [(1, 1), (3, 2)] {
            let mut prompt = vec![json!({ "role": "system", "content": format!("You are helper {n}.") })];
            prompt.extend((0..turns).map(|t| json!({ "role": "user", "content": format!("Question {t}") })));
            let prompt = json!(prompt).to_string();
            let attributes = [("gen_ai.operation.name", "chat"), ("gen_ai.input.messages", prompt.as_str())];
            spans.push(span(first + i, first, &attributes));
        }
        spans.push(span(first + 2, first, &[("gen_ai.operation.name", "execute_tool")]));
    }
    spans
}

#[test]
fn conversations_below_nested_spans_are_found_in_linear_time() {
    let visits = |nested: &[(&str, &str)], depth: u64, chains: u64| {
        let spans = chains_below(nested, depth, chains);
        let total = spans.len() as u64;
        let before = verdict_otlp::work::counted();
        let trace = recogniser().trace(Tree::new(TraceId([1; 16]), spans), &[], false);
        let visits = verdict_otlp::work::counted() - before;
        println!("{visits} visits of {total} spans");
        assert!(visits <= 64 * total, "{visits} visits of {total} spans");
        trace.agents.len() as u64
    };
    assert_eq!(visits(&[], 1_000, 1_000), 1 + 1_000);
    // Chains that contain each other are searched a bounded number of times.
    visits(&[("openinference.span.kind", "CHAIN")], 5_000, 1);
}
