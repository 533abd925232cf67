//! Traces of hostile shapes, up to the cap of 100,000 spans: evaluated in a bounded number of steps per span,
//! however deep or wide, and no span is lost. Tool schemas of hostile shapes are checked in few steps. What is
//! not counted in steps is measured by `tests/bench/growth.rs`.

use std::io::Read as _;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use otel_verdict::config::Config;
use otel_verdict::pipeline::offline::RecordingEvaluation;
use otel_verdict::receive::Offer;
use prost::Message as _;
use serde_json::{Map, Value, json};
use verdict_config::Source;
use verdict_eval::Evaluator;
use verdict_eval::metrics::{TaskSet, Unmeasured};
use verdict_eval::schema::{Schema, Validation, Validity};
use verdict_eval::testing::{MAX_PROBLEMS, MAX_STEPS};
use verdict_otlp::{Signal, work};

use crate::support::text_attribute;

const SPANS: u64 = 100_000;

/// Steps of the work budget for each span. Anything quadratic takes more.
const MAX_STEPS_PER_SPAN: u64 = 64;

/// Spans visited, comparisons and bytes searched for each span, whether a budget counts them or not.
const MAX_WORK_PER_SPAN: u64 = 512;

/// Span `n`, a child of span `parent`, of `operation` and with status `code`.
fn span(n: u64, parent: u64, operation: &str, code: i32) -> Span {
    let id = |n: u64| if n == 0 { Vec::new() } else { n.to_be_bytes().to_vec() };
    Span {
        trace_id: vec![1; 16],
        span_id: id(n),
        parent_span_id: id(parent),
        name: operation.to_owned(),
        start_time_unix_nano: n,
        end_time_unix_nano: 2 * SPANS - n,
        attributes: vec![
            text_attribute("gen_ai.operation.name", operation),
            text_attribute("gen_ai.agent.name", "planner"),
            text_attribute("gen_ai.tool.name", "search"),
            text_attribute("gen_ai.tool.call.arguments", r#"{"q":"x"}"#),
            text_attribute("gen_ai.tool.call.result", "Error: not found"),
        ],
        status: Some(Status { code, ..Status::default() }),
        ..Span::default()
    }
}

/// Evaluates the spans, each under a resource of its own if `has_own_resource` is set.
fn evaluate(name: &str, spans: Vec<Span>, has_own_resource: bool) {
    let total = spans.len() as u64;
    let group = |(n, spans): (usize, Vec<Span>)| ResourceSpans {
        resource: Some(Resource {
            attributes: vec![text_attribute("host", &n.to_string())],
            ..Resource::default()
        }),
        scope_spans: vec![ScopeSpans { spans, ..ScopeSpans::default() }],
        ..ResourceSpans::default()
    };
    let groups: Vec<Vec<Span>> =
        if has_own_resource { spans.into_iter().map(|span| vec![span]).collect() } else { vec![spans] };
    let request =
        ExportTraceServiceRequest { resource_spans: groups.into_iter().enumerate().map(group).collect() };
    let evaluator = Evaluator::builder(&verdict_eval::Config::default()).build().unwrap();
    let before = work::counted();
    let mut traces = evaluator.traces([request.encode_to_vec()]).unwrap();
    let assessment = evaluator.assess(traces.pop().unwrap(), &mut |_| ());
    let steps = assessment.steps();
    println!("{name}: {steps} steps");
    assert!(steps <= MAX_STEPS_PER_SPAN * total, "{name}: {steps} steps");
    let limited = assessment.rule_measurements.iter().find(|m| m.outcome == Err(Unmeasured::Limit));
    assert_eq!(limited, None, "{name}");
    let evaluated = evaluator.decide(assessment, verdict_eval::JudgeResults::default(), 0);
    let out: u64 = evaluator.annotate(&evaluated).spans.iter().map(|piece| piece.items).sum();
    assert_eq!(out, total, "{name}: every span comes out");
    let work = work::counted() - before;
    println!("{name}: {work} units of work");
    assert!(work <= MAX_WORK_PER_SPAN * total, "{name}: {work} units of work");
}

fn linked_spans(
    spans: u64,
    parent: impl Fn(u64) -> u64,
    operation: impl Fn(u64) -> &'static str,
) -> Vec<Span> {
    (1..=spans).map(|n| span(n, parent(n), operation(n), 2)).collect()
}

#[test]
fn thousands_of_failing_tools_under_one_agent_each_under_its_own_resource() {
    let operation = |n| if n == 1 { "invoke_agent" } else { "execute_tool" };
    evaluate("flat", linked_spans(SPANS, |n| u64::from(n > 1), operation), true);
}

#[test]
fn thousands_of_agents_under_one() {
    evaluate("flat agents", linked_spans(SPANS, |n| u64::from(n > 1), |_| "invoke_agent"), false);
}

#[test]
fn agents_that_call_agents_a_hundred_thousand_deep() {
    evaluate("deep agents", linked_spans(SPANS, |n| n - 1, |_| "invoke_agent"), false);
}

#[test]
fn tools_beneath_tools_a_hundred_thousand_deep() {
    evaluate("deep tools", linked_spans(SPANS, |n| n - 1, |_| "execute_tool"), false);
}

#[test]
fn model_calls_beneath_model_calls_a_hundred_thousand_deep() {
    evaluate("deep models", linked_spans(SPANS, |n| n - 1, |_| "chat"), false);
}

#[test]
fn steps_of_unknown_kind_a_hundred_thousand_deep_with_a_tool_at_the_end() {
    let operation = |n| if n == SPANS { "execute_tool" } else { "step" };
    evaluate("deep unknown", linked_spans(SPANS, |n| n - 1, operation), false);
}

#[test]
fn conversations_below_a_thousand_nested_steps() {
    const NESTED: u64 = 1_000;
    const ALL: u64 = 20_000;
    // An agent, nested steps, and chains beneath the last of them, each with two model calls and a tool.
    let first_chain = NESTED + 2;
    let position_in_chain = |n: u64| (n - first_chain) % 4;
    let parent = |n: u64| match n {
        n if n < first_chain => n - 1,
        n if position_in_chain(n) == 0 => first_chain - 1,
        n => n - position_in_chain(n),
    };
    let spans = (1..=ALL).map(|n| {
        let chain = n - if n < first_chain { 0 } else { position_in_chain(n) };
        let messages = |turns: usize| {
            let system =
                json!({ "role": "system", "parts": [{ "type": "text", "content": chain.to_string() }] });
            let user = json!({ "role": "user", "parts": [{ "type": "text", "content": "Go on." }] });
            let all: Vec<Value> = std::iter::once(system).chain(vec![user; turns]).collect();
            Value::from(all).to_string()
        };
        match n {
            1 => span(n, 0, "invoke_agent", 0),
            n if n < first_chain => Span { attributes: Vec::new(), ..span(n, n - 1, "step", 0) },
            n => {
                let mut span = span(n, parent(n), "step", 0);
                span.attributes = match position_in_chain(n) {
                    0 => vec![text_attribute("openinference.span.kind", "CHAIN")],
                    2 => vec![text_attribute("gen_ai.operation.name", "execute_tool")],
                    turns => vec![
                        text_attribute("gen_ai.operation.name", "chat"),
                        text_attribute("gen_ai.input.messages", &messages(turns as usize)),
                    ],
                };
                span
            }
        }
    });
    evaluate("chains below steps", spans.collect(), false);
}

/// Spans in scopes of their own, under one resource of megabytes.
fn under_a_large_resource(spans: Vec<Span>, attributes: usize, value: usize) -> ExportTraceServiceRequest {
    let attributes = (0..attributes).map(|n| text_attribute(&format!("k{n}"), &"v".repeat(value))).collect();
    let scope = |span| ScopeSpans { spans: vec![span], ..ScopeSpans::default() };
    let group = ResourceSpans {
        resource: Some(Resource { attributes, ..Resource::default() }),
        scope_spans: spans.into_iter().map(scope).collect(),
        ..ResourceSpans::default()
    };
    ExportTraceServiceRequest { resource_spans: vec![group] }
}

#[test]
fn thousands_of_scopes_under_a_resource_of_megabytes() {
    const ALL: u64 = 2_000;
    // Many attributes are read again and again; a long value is copied again and again.
    for (attributes, value) in [(100_000, 40), (2, 2 << 20), (2, 2_600 << 10)] {
        let operation = |n| if n == 1 { "invoke_agent" } else { "execute_tool" };
        let request =
            under_a_large_resource(linked_spans(ALL, |n| u64::from(n > 1), operation), attributes, value);
        let body = request.encode_to_vec();
        let evaluator = Evaluator::builder(&verdict_eval::Config::default()).build().unwrap();
        let before = work::counted();
        let closed = evaluator.traces([&body]).unwrap().pop().unwrap();
        let evaluated = evaluator.evaluate(closed, 0, &mut |_| ());
        let annotated = evaluator.annotate(&evaluated);
        let work = work::counted() - before;
        println!("{work} units of work for {} bytes", body.len());
        assert!(
            work <= MAX_WORK_PER_SPAN * ALL + 4 * body.len() as u64,
            "{work} units of work for {} bytes",
            body.len()
        );
        let written: usize = annotated.spans.iter().map(|piece| piece.bytes.len()).sum();
        let span_bytes: usize = evaluated.trace.tree.spans.iter().map(|span| span.bytes.len()).sum();
        println!("{written} bytes written for {}", body.len());
        assert!(written <= 2 * body.len() + 16 * span_bytes, "{written} bytes written for {}", body.len());
        assert_eq!(annotated.spans.iter().map(|piece| piece.items).sum::<u64>(), ALL);
    }
}

#[test]
fn a_thousand_identifiers_and_long_lists_of_types_in_one_schema() {
    const CALLS: u64 = 1_000;
    let mut types = vec!["null"; 10_000];
    types.push("string");
    let lists: Vec<Value> = (0..30)
        .map(|n| json!({ "enum": (0..30).map(|m| format!("K-{n}00{m}")).collect::<Vec<_>>() }))
        .collect();
    let schema = json!({ "type": "object", "properties": { "id": { "type": types } }, "x-listed": lists });
    let tools = json!([{ "type": "function", "name": "t", "description": "x", "parameters": schema }]);
    let call = |n: u64| json!({ "type": "tool_call", "id": n.to_string(), "name": "t", "arguments": { "id": format!("X-{n}77") } });
    let calls: Vec<Value> = (0..CALLS).map(call).collect();
    let output = json!([{ "role": "assistant", "parts": calls, "finish_reason": "tool_call" }]);
    let mut spans = linked_spans(2, |n| n - 1, |n| if n == 1 { "invoke_agent" } else { "chat" });
    spans[1].attributes = vec![
        text_attribute("gen_ai.operation.name", "chat"),
        text_attribute("gen_ai.tool.definitions", &tools.to_string()),
        text_attribute("gen_ai.output.messages", &output.to_string()),
    ];
    let scope = ScopeSpans { spans, ..ScopeSpans::default() };
    let group = ResourceSpans { scope_spans: vec![scope], ..ResourceSpans::default() };
    let request = ExportTraceServiceRequest { resource_spans: vec![group] };
    let evaluator = Evaluator::builder(&verdict_eval::Config::default()).build().unwrap();
    let closed = evaluator.traces([request.encode_to_vec()]).unwrap().pop().unwrap();
    let before = work::counted();
    let assessment = evaluator.assess(closed, &mut |_| ());
    let work = work::counted() - before;
    println!("{work} units of work, {} steps", assessment.steps());
    assert!(work <= MAX_WORK_PER_SPAN * CALLS, "{work} units of work");
    assert!(!assessment.rule_measurements.iter().any(|m| m.outcome == Err(Unmeasured::Limit)));
}

const PATH: &str = "
task: search
alphabet: { look: look_up }
states:
  begin: { on: { look: seen } }
  seen: { final: true, on: { look: seen } }
";

#[test]
fn thousands_of_harmful_calls_in_an_open_trace() {
    const ALL: u64 = 10_000;
    let task = Source { name: "task.yaml".into(), text: PATH.into() };
    let tasks = TaskSet::parse(&[task]).unwrap();
    let metrics = serde_saphyr::from_str("path: { tasks: [task.yaml] }").unwrap();
    let config = verdict_eval::Config { metrics, ..verdict_eval::Config::default() };
    let evaluator = Evaluator::builder(&config).path_tasks(tasks).build().unwrap();
    // A model that requests all calls, and their spans: none is part of the task.
    let call =
        |n: u64| json!({ "type": "tool_call", "id": n.to_string(), "name": "search", "arguments": {} });
    let calls: Vec<Value> = (3..=ALL).map(call).collect();
    let output = json!([{ "role": "assistant", "parts": calls, "finish_reason": "tool_call" }]).to_string();
    let mut spans = vec![span(1, 0, "invoke_agent", 0), span(2, 1, "chat", 0)];
    spans[1].attributes = vec![
        text_attribute("gen_ai.operation.name", "chat"),
        text_attribute("gen_ai.output.messages", &output),
    ];
    spans.extend((3..=ALL).map(|n| {
        let mut tool = span(n, 1, "execute_tool", 0);
        tool.attributes.push(text_attribute("gen_ai.tool.call.id", &n.to_string()));
        tool
    }));
    let scope = ScopeSpans { spans, ..ScopeSpans::default() };
    let group = ResourceSpans { scope_spans: vec![scope], ..ResourceSpans::default() };
    let request = ExportTraceServiceRequest { resource_spans: vec![group] };
    let closed = evaluator.traces([request.encode_to_vec()]).unwrap().pop().unwrap();
    let counted = |name: &str, before: u64| {
        let work = work::counted() - before;
        println!("{name}: {work} units of work");
        assert!(work <= MAX_WORK_PER_SPAN * ALL, "{name}: {work} units of work");
    };
    let before = work::counted();
    let open_alarms = evaluator.harmful(closed.clone());
    assert_eq!(open_alarms.alarms.len() as u64, ALL - 2);
    counted("alarms", before);
    let before = work::counted();
    let positions = evaluator.path_positions(closed.clone());
    counted("positions", before);
    drop(positions);
    let mut evaluated = evaluator.evaluate(closed, 0, &mut |_| ());
    let before = work::counted();
    assert!(evaluator.confirm_alarms(&mut evaluated, &open_alarms.alarms, &[]).is_empty());
    counted("confirmed alarms", before);
    assert_eq!(evaluated.alarms.len() as u64, ALL - 2);
}

/// Model call `n`, which calls a tool of this schema.
fn chat(n: u64, schema: &Value, arguments: &Value) -> Span {
    let tools = json!([{ "type": "function", "name": "t", "description": "x", "parameters": schema }]);
    let call = json!({ "type": "tool_call", "id": "c1", "name": "t", "arguments": arguments });
    let output = json!([{ "role": "assistant", "parts": [call], "finish_reason": "tool_call" }]);
    let mut span = span(n, 0, "chat", 0);
    span.attributes = vec![
        text_attribute("gen_ai.operation.name", "chat"),
        text_attribute("gen_ai.request.model", "m"),
        text_attribute("gen_ai.tool.definitions", &tools.to_string()),
        text_attribute("gen_ai.output.messages", &output.to_string()),
    ];
    span
}

/// Checks the arguments by themselves and in a trace, where the next span must be measured as well.
fn check(schema: &Value, arguments: &Value) -> Validation {
    let plain = json!({ "type": "object", "required": ["q"] });
    let scope = ScopeSpans {
        spans: vec![chat(1, schema, arguments), chat(2, &plain, &json!({}))],
        ..ScopeSpans::default()
    };
    let group = ResourceSpans { scope_spans: vec![scope], ..ResourceSpans::default() };
    let request = ExportTraceServiceRequest { resource_spans: vec![group] };
    let mut evaluation = RecordingEvaluation::new(&Config::default(), 1).unwrap();
    evaluation.add(&Offer { signal: Signal::Traces, body: request.encode_to_vec().into() }).unwrap();
    let mut finding_counts = Vec::new();
    crate::support::finish(&mut evaluation, |trace| {
        assert_eq!(trace.annotated.spans.iter().map(|piece| piece.items).sum::<u64>(), 2);
        for measurement in trace.trace.measurements.iter().filter(|m| m.metric == "tool_completeness") {
            let span = trace.trace.trace.tree.spans[measurement.at].id;
            let findings = measurement.outcome.as_ref().map_or(0, |measured| measured.findings.len());
            finding_counts.push((u64::from_be_bytes(span.0), findings));
        }
    });
    assert!(finding_counts.contains(&(2, 1)), "the next span is measured: {finding_counts:?}");
    let checked = Schema::compile(schema).check(arguments);
    let in_trace = finding_counts.iter().find(|(span, _)| *span == 1).map_or(0, |(_, findings)| *findings);
    assert_eq!(in_trace, checked.problems.len(), "{finding_counts:?}");
    checked
}

#[test]
fn attempt_at_a_small_trace_that_needs_many_steps_ends_at_its_limit() {
    const ATTEMPT: u64 = 1 << 16;
    // Each of 1,000 items matches the last of 400 alternatives.
    let mut branches = vec![json!({ "type": "null" }); 400];
    branches.push(json!({ "type": "integer" }));
    let items = json!({ "type": "array", "items": { "anyOf": branches } });
    let schema = json!({ "type": "object", "properties": { "a": items } });
    let spans = vec![chat(1, &schema, &json!({ "a": vec![1; 1_000] }))];
    let scope = ScopeSpans { spans, ..ScopeSpans::default() };
    let group = ResourceSpans { scope_spans: vec![scope], ..ResourceSpans::default() };
    let request = ExportTraceServiceRequest { resource_spans: vec![group] };
    let evaluator = Evaluator::builder(&verdict_eval::Config::default()).build().unwrap();
    let closed = evaluator.traces([request.encode_to_vec()]).unwrap().pop().unwrap();
    assert!(closed.bytes < 64 << 10, "{} bytes", closed.bytes);
    let before = work::counted();
    assert!(evaluator.assess_within(ATTEMPT, closed.clone(), &mut |_| ()).is_none());
    let attempt = work::counted() - before;
    let whole = evaluator.assess(closed.clone(), &mut |_| ());
    println!("{attempt} units of work in the attempt, {} steps in the whole", whole.steps());
    assert!(attempt < 2 * ATTEMPT && whole.steps() > 4 * ATTEMPT, "{attempt}, {}", whole.steps());
    assert!(!whole.rule_measurements.iter().any(|m| m.outcome == Err(Unmeasured::Limit)));
    let enough =
        evaluator.assess_within(whole.steps(), closed, &mut |_| ()).expect("as many steps as are needed");
    assert_eq!((enough.steps(), enough.rule_measurements), (whole.steps(), whole.rule_measurements));
}

/// 40 definitions, each of which is `keyword` over two references to the previous one: 2^40 paths to the first.
fn nested_definitions(keyword: &str, first: &Value) -> Map<String, Value> {
    let mut defs = Map::new();
    defs.insert("d0".to_owned(), first.clone());
    for i in 1..=40 {
        let reference = json!({ "$ref": format!("#/$defs/d{}", i - 1) });
        defs.insert(format!("d{i}"), json!({ keyword: [reference, reference] }));
    }
    defs
}

#[test]
fn a_schema_whose_references_fan_out() {
    let missing = json!({ "required": ["nope"] });
    for keyword in ["anyOf", "oneOf", "allOf"] {
        let schema = json!({ "type": "object", "$defs": nested_definitions(keyword, &missing), "$ref": "#/$defs/d40" });
        let checked = check(&schema, &json!({ "a": 1 }));
        assert_eq!((checked.validity, checked.problems.len()), (Validity::Invalid, 1), "{keyword}");
        assert!(checked.steps < 2_000, "{keyword}: {} steps", checked.steps);
    }
}

#[test]
fn a_schema_whose_references_fan_out_over_a_scalar() {
    let text = json!({ "type": "string" });
    for keyword in ["anyOf", "oneOf", "allOf"] {
        let defs = nested_definitions(keyword, &text);
        let schema =
            json!({ "type": "object", "$defs": defs, "properties": { "a": { "$ref": "#/$defs/d40" } } });
        let checked = check(&schema, &json!({ "a": 1 }));
        assert_eq!((checked.validity, checked.problems.len()), (Validity::Invalid, 1), "{keyword}");
        assert!(checked.steps < 2_000, "{keyword}: {} steps", checked.steps);
    }
}

#[test]
fn thousands_of_alternatives_for_each_of_fifty_thousand_items() {
    let mut branches = vec![json!({ "type": "null" }); 4_000];
    let schema = |branches: &[Value]| {
        let items = json!({ "anyOf": branches });
        json!({ "type": "object", "properties": { "a": { "type": "array", "items": items } } })
    };
    // More than 65,536 values are not parsed in so small a trace.
    let arguments = json!({ "a": vec![1; 50_000] });
    // No alternative matches: the first few problems are reported.
    let checked = check(&schema(&branches), &arguments);
    assert_eq!((checked.validity, checked.problems.len()), (Validity::Invalid, MAX_PROBLEMS));
    assert!(checked.steps < MAX_STEPS, "{} steps", checked.steps);
    // Every item matches the last alternative: the step limit is reached and nothing is reported.
    branches.push(json!({ "type": "integer" }));
    let checked = check(&schema(&branches), &arguments);
    assert_eq!((checked.validity, checked.problems.len()), (Validity::Indeterminate, 0));
    assert!(checked.steps < MAX_STEPS + 1_000, "{} steps", checked.steps);
}

#[test]
fn small_runs_take_less_than_a_hundredth_of_the_budget() {
    // As `DEFAULT_STEPS` of the work budget.
    const MAX_STEPS_OF_SMALL_RUN: u64 = (1 << 26) / 100;
    let evaluator = Evaluator::builder(&verdict_eval::Config::default()).build().unwrap();
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/small");
    let mut runs = 0;
    for set in ["first", "second", "third"] {
        let mut text = String::new();
        let file = std::fs::File::open(folder.join(format!("{set}.jsonl.gz"))).unwrap();
        flate2::read::MultiGzDecoder::new(file).read_to_string(&mut text).unwrap();
        let requests =
            text.lines().map(|line| serde_json::from_str::<ExportTraceServiceRequest>(line).unwrap());
        let requests: Vec<Vec<u8>> = requests.map(|request| request.encode_to_vec()).collect();
        for trace in evaluator.traces(requests).unwrap() {
            let id = trace.trace;
            let assessment = evaluator.assess(trace, &mut |_| ());
            assert!(assessment.steps() < MAX_STEPS_OF_SMALL_RUN, "{set} {id}: {}", assessment.steps());
            assert!(
                !assessment.rule_measurements.iter().any(|m| m.outcome == Err(Unmeasured::Limit)),
                "{set} {id}"
            );
            runs += 1;
        }
    }
    assert!(runs > 100, "{runs}");
}
