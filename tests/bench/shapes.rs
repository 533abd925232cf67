//! Traces for benchmarks. A shape makes traces of any size that contain many items of one type: calls, agents, levels,
//! message parts, tools, facts or services. It is deterministic: the same size gives the same trace.

use serde_json::{Value, json};
use verdict_otlp::trace::{CloseReason, ClosedTrace, Envelope, EnvelopeFields, Span, TraceId};
use verdict_otlp::value::{RESOURCE_ATTRIBUTES, SPAN_ATTRIBUTES};
use verdict_otlp::write::{self, Scalar};

#[path = "rule_shapes.rs"]
mod rule_shapes;
#[path = "shape_parts.rs"]
mod shape_parts;

pub use rule_shapes::RULE_SHAPES;
use shape_parts::*;

/// Makes the spans of a trace of size `n`: `n` spans, or a few spans with `n` parts, tools or other items.
pub type Shape = fn(u64) -> Vec<Span>;

pub const SHAPES: [(&str, Shape); 38] = [
    ("run of calls", |n| run(n, false)),
    ("run of failing calls", |n| run(n, true)),
    ("run in two services", two_services),
    ("children of one parent", |n| spans_below_root(n, |_| 1, failing_tool_call)),
    ("tools in a chain", |n| spans_below_root(n, |i| i - 1, failing_tool_call)),
    ("model calls in a chain", |n| {
        spans_below_root(
            n,
            |i| i - 1,
            |i, parent| model_call(i, parent, &[user_message(TASK)], &[answer_part(i)]),
        )
    }),
    ("agents in a chain", |n| {
        spans_below_root(n, |i| i - 1, |i, parent| agent_span(i, parent, &format!("agent {}", i % 7)))
    }),
    ("agents of one parent", agents),
    ("answers of one agent", answers),
    ("claims of calls", |n| {
        spans_below_root(
            n,
            |_| 1,
            |i, parent| model_call(i, parent, &[user_message(TASK)], &[text_part(CLAIMS)]),
        )
    }),
    ("calls of one message", calls_of_one_message),
    ("results in one prompt", results_in_one_prompt),
    ("texts of one message", |n| {
        vec![agent_span(1, 0, "a"), model_call(2, 1, &[user_message(TASK)], &json_array(n, answer_part))]
    }),
    ("tools of one agent", tools_of_one_agent),
    ("claims about many tools", claims_about_many_tools),
    ("steps of one plan", steps_of_one_plan),
    ("plans of one agent", plans_of_one_agent),
    ("undone calls", undone_calls),
    ("harmful calls", harmful_calls),
    (ALARMS, harmful_calls),
    ("calls under rules", calls_under_rules),
    (MANY_TASKS, runs_of_many_tasks),
    ("equal calls", |n| {
        spans_below_root(n, |_| 1, |i, parent| tool_call(i, parent, "look_up", 1, &height_result(i)))
    }),
    ("claims of one text", |n| {
        run_with_answer(&sentences(n, |i| format!("I verified mountain {i} with the look_up tool.")))
    }),
    ("figures of one text", |n| run_with_answer(&sentences(n, height_sentence))),
    ("words of one text", |n| run_with_answer(&sentences(n, |_| "the mountain is high ".to_owned()))),
    ("rules of one prompt", rules_of_one_prompt),
    ("turns of one prompt", turns_of_one_prompt),
    ("values of one call", |n| run_with_call(&Value::from(json_array(n, |i| json!({ "q": i }))))),
    ("depth of arguments", |n| {
        run_with_call(&Value::from(json_array(n.div_ceil(100), |_| nested_object(100))))
    }),
    ("schema of one tool", schema_of_one_tool),
    ("links of one span", |n| {
        vec![
            agent_span(1, 0, "finder"),
            with_links(model_call(2, 1, &[user_message(TASK)], &[answer_part(1)]), 0..n),
        ]
    }),
    ("links between spans", |n| {
        spans_below_root(n, |_| 1, |i, parent| with_links(failing_tool_call(i, parent), i - 1..i))
    }),
    ("attributes of one span", attributes_of_one_span),
    ("scopes of one resource", scopes_of_one_resource),
    ("types of one list", types_of_one_list),
    (SCHEMA_FOR_EACH, identifiers_for_one_schema),
    ("agents beneath one prompt", agents_beneath_one_prompt),
];

/// The shape with as many calls as their schema has values. A check is linear in the schema times the arguments, so
/// that its work grows, up to the work budget.
pub const SCHEMA_FOR_EACH: &str = "identifiers for one schema";
/// The shape that is also checked for alarms before it closes.
pub const ALARMS: &str = "alarms";
/// The shape whose runs belong to [`TASK_COUNT`] different tasks.
pub const MANY_TASKS: &str = "runs of many tasks";
/// Tasks of [`MANY_TASKS`].
pub const TASK_COUNT: u64 = 64;

const CLAIMS: &str =
    "I verified it with the look_up tool. I have searched the web. Next I will call look_up.";

/// The closed trace that consists of `spans`.
pub fn closed_trace(spans: Vec<Span>) -> ClosedTrace {
    ClosedTrace {
        trace: TraceId([1; 16]),
        bytes: spans.iter().map(|span| span.bytes.len()).sum(),
        spans,
        logs: Vec::new(),
        close_reason: CloseReason::Complete,
        incomplete: false,
        prior_verdict: None,
    }
}

/// A run with one call and `answer` as its final answer.
fn run_with_answer(answer: &str) -> Vec<Span> {
    vec![
        agent_span(1, 0, "finder"),
        model_call(2, 1, &[user_message(TASK)], &[call("look_up", 3)]),
        tool_call(3, 1, "look_up", 3, &height_result(3)),
        model_call(4, 1, &[user_message(TASK)], &[text_part(answer)]),
    ]
}

/// A run with `calls` (name, arguments, result) and `answer` as its final answer.
fn run_with_calls(calls: &[(&str, Value, String)], task: &Value, tools: &[&str], answer: &str) -> Vec<Span> {
    let tool_definition =
        |name: &&str| json!({ "type": "function", "name": name, "parameters": { "type": "object" } });
    let tools = Value::from(tools.iter().map(tool_definition).collect::<Vec<_>>()).to_string();
    let mut spans = vec![agent_span_with_prompt(
        1,
        0,
        "finder",
        task["parts"][0]["content"].as_str().unwrap_or_default(),
    )];
    for (i, (name, arguments, result)) in (1..).zip(calls) {
        let request = call_part_with_arguments(name, i, arguments);
        spans.push(model_call_with_tools(2 * i, 1, &tools, std::slice::from_ref(task), &[request]));
        spans.push(tool_call_with_arguments(2 * i + 1, 1, name, i, arguments, result));
    }
    let last = 2 * (calls.len() as u64 + 1);
    spans.push(model_call_with_tools(last, 1, &tools, std::slice::from_ref(task), &[text_part(answer)]));
    spans
}

/// A run with one call, whose arguments contain `arguments`.
fn run_with_call(arguments: &Value) -> Vec<Span> {
    let arguments = json!({ "q": "mountains", "all": arguments });
    let call = json!({ "type": "tool_call", "id": "3", "name": "look_up", "arguments": arguments });
    vec![
        agent_span(1, 0, "finder"),
        model_call(2, 1, &[user_message(TASK)], &[call]),
        tool_call_with_arguments(3, 1, "look_up", 3, &arguments, &height_result(3)),
        model_call(4, 1, &[user_message(TASK)], &[answer_part(3)]),
    ]
}

/// Alternating model and tool calls. A prompt contains the task and the latest result.
fn run(n: u64, failing: bool) -> Vec<Span> {
    let call_result =
        |i| if failing { "Error: the server is not reachable".to_owned() } else { height_result(i) };
    spans_below_root(
        n,
        |_| 1,
        |i, parent| match (i % 2, i + 1 >= n) {
            (0, true) => model_call(i, parent, &[user_message(TASK)], &[answer_part(i)]),
            (0, false) => {
                let response = json!({ "type": "tool_call_response", "id": (i - 1).to_string(), "response": call_result(i - 1) });
                let message = json!({ "role": "tool", "parts": [response] });
                model_call(i, parent, &[user_message(TASK), message], &[call("look_up", i + 1)])
            }
            _ => tool_call(i, parent, "look_up", i, &call_result(i)),
        },
    )
}

/// A run whose tools belong to a service with a clock that is ahead.
fn two_services(n: u64) -> Vec<Span> {
    let mut resource = Vec::new();
    write::attribute(&mut resource, RESOURCE_ATTRIBUTES, "service.name", Scalar::Str("tools"));
    let mut field = Vec::new();
    write::bytes(&mut field, 1, &resource);
    let other = std::sync::Arc::new(Envelope { resource: field.into(), ..Envelope::default() });
    let mut spans = run(n, false);
    for span in spans.iter_mut().skip(2).step_by(2) {
        (span.start, span.end) = (span.start + 3 * CALL_NANOS, span.end + 3 * CALL_NANOS);
        span.envelope = other.clone();
    }
    spans
}

/// Agents below one agent, each with a tool call and two model calls.
fn agents(n: u64) -> Vec<Span> {
    spans_below_root(
        n,
        |i| match i % 4 {
            2 => 1,
            k => i - (k + 2) % 4,
        },
        |i, parent| match i % 4 {
            2 => agent_span(i, parent, &format!("agent {}", i / 4)),
            3 => model_call(i, parent, &[user_message(TASK)], &[call("look_up", i)]),
            0 => tool_call(i, parent, "look_up", i - 1, &height_result(i)),
            _ => model_call(i, parent, &[user_message(TASK)], &[answer_part(i - 1)]),
        },
    )
}

/// Turns of a conversation, each with a call and an answer.
fn answers(n: u64) -> Vec<Span> {
    spans_below_root(
        n,
        |_| 1,
        |i, parent| match i % 2 {
            0 => tool_call(i, parent, "look_up", i, &height_result(i)),
            _ => model_call(i, parent, &[user_message(&format!("{TASK} Mountain {i}?"))], &[answer_part(i)]),
        },
    )
}

fn calls_of_one_message(n: u64) -> Vec<Span> {
    let all = json_array(n, |i| call("look_up", i));
    vec![
        agent_span(1, 0, "finder"),
        model_call(2, 1, &[user_message(TASK)], &all),
        model_call(3, 1, &[user_message(TASK)], &[answer_part(1)]),
    ]
}

fn results_in_one_prompt(n: u64) -> Vec<Span> {
    let call_message = json!({ "role": "assistant", "parts": json_array(n, |i| call("look_up", i)) });
    let tool_message = json!({ "role": "tool", "parts": json_array(n, result_part) });
    vec![
        agent_span(1, 0, "finder"),
        model_call(2, 1, &[user_message(TASK), call_message, tool_message], &[answer_part(1)]),
    ]
}

/// `n` tools are defined; model calls claim to have called them and announce to call them.
fn claims_about_many_tools(n: u64) -> Vec<Span> {
    let all = Value::from(json_array(n, |i| json!({ "type": "function", "name": format!("tool_{i}") })))
        .to_string();
    let claim = |i: u64| format!("I verified it with the tool_{i} tool. Next I will call tool_{}.", i + 1);
    let mut spans = vec![
        agent_span(1, 0, "finder"),
        model_call_with_tools(2, 1, &all, &[user_message(TASK)], &[text_part("Yes.")]),
    ];
    spans.extend(
        (3..=n).map(|i| model_call_with_tools(i, 1, "[]", &[user_message(TASK)], &[text_part(&claim(i))])),
    );
    spans
}

/// A plan of `n` steps, every second one with a call.
fn steps_of_one_plan(n: u64) -> Vec<Span> {
    let plan: String = (1..=n).map(|i| format!("{i}. Call tool_{i} for mountain {i}.\n")).collect();
    let tools = Value::from(json_array(n, |i| json!({ "type": "function", "name": format!("tool_{i}") })))
        .to_string();
    let plan = text_part(&format!("Here is my plan:\n{plan}"));
    let mut spans =
        vec![agent_span(1, 0, "finder"), model_call_with_tools(2, 1, &tools, &[user_message(TASK)], &[plan])];
    spans.extend((3..=n).step_by(2).map(|i| tool_call(i, 1, &format!("tool_{i}"), i, &height_result(i))));
    spans
}

/// Every model call writes a plan.
fn plans_of_one_agent(n: u64) -> Vec<Span> {
    let plan = |i: u64| {
        text_part(&format!(
            "Here is my plan:\n1. Call look_up for mountain {i}.\n2. Compare the heights.\n3. Answer."
        ))
    };
    spans_below_root(
        n,
        |_| 1,
        |i, parent| model_call(i, parent, &[user_message(TASK)], &[plan(i), call("look_up", i)]),
    )
}

/// Writing calls that a later call undoes: the names have opposite words, the arguments are equal.
fn undone_calls(n: u64) -> Vec<Span> {
    let name = |i: u64| if i <= n / 2 { "lock_gate" } else { "unlock_gate" };
    spans_below_root(n, |_| 1, |i, parent| tool_call(i, parent, name(i), i % (n / 2 + 1), "done"))
}

/// `n` tools are defined, and each is called once.
fn tools_of_one_agent(n: u64) -> Vec<Span> {
    let name = |i: u64| format!("tool_{i}");
    let all: Vec<Value> = json_array(n, |i| {
        let parameters = json!({ "type": "object", "properties": { "q": { "type": "string" } } });
        json!({ "type": "function", "name": name(i), "parameters": parameters })
    });
    let definitions = Value::from(all).to_string();
    let calls = json_array(n, |i| call(&name(i), i));
    let mut spans = vec![
        agent_span(1, 0, "finder"),
        model_call_with_tools(2, 1, &definitions, &[user_message(TASK)], &calls),
    ];
    spans.extend((0..n).map(|i| tool_call(3 + i, 1, &name(i), i, &height_result(i))));
    spans.push(model_call(3 + n, 1, &[user_message(TASK)], &[answer_part(1)]));
    spans
}

/// Calls outside the alphabet of the task, in a state in which calls of the alphabet are allowed.
fn harmful_calls(n: u64) -> Vec<Span> {
    let name = |i: u64| if i == 2 { "look_up".to_owned() } else { format!("tool_{}", i % 8) };
    spans_below_root(n, |_| 1, |i, parent| tool_call(i, parent, &name(i), i, &height_result(i)))
}

/// Calls of a task that is a policy with limits on numbers, sums and times.
fn calls_under_rules(n: u64) -> Vec<Span> {
    let name = |i: u64| ["verify_customer", "issue_refund", "notify_customer"][i as usize % 3];
    let call =
        |i, parent| tool_call_with_arguments(i, parent, name(i), i, &json!({ "amount": i % 10 }), "done");
    let mut spans = spans_below_root(n, |_| 1, call);
    spans[0] = agent_span(1, 0, "shop");
    spans
}

/// Runs of one call, each of the task that its prompt names.
fn runs_of_many_tasks(n: u64) -> Vec<Span> {
    spans_below_root(
        n,
        |i| if i % 2 == 0 { 1 } else { i - 1 },
        |i, parent| match i % 2 {
            0 => agent_span_with_prompt(
                i,
                parent,
                "worker",
                &format!("Do task {} for mountain {i}.", i / 2 % TASK_COUNT),
            ),
            _ => tool_call(i, parent, "look_up", i, &height_result(i)),
        },
    )
}

/// A prompt of `n` pairs of instructions.
fn rules_of_one_prompt(n: u64) -> Vec<Span> {
    let rules = sentences(n, |i| format!("Never mention mountain {i}. Answer in at most {} words.", 100 + i));
    vec![agent_span(1, 0, "finder"), model_call(2, 1, &[user_message(&rules)], &[answer_part(1)])]
}

/// A conversation in one prompt.
fn turns_of_one_prompt(n: u64) -> Vec<Span> {
    let turn = |i: u64| match i % 2 {
        0 => user_message(&format!("How high is mountain {i}?")),
        _ => json!({ "role": "assistant", "parts": [answer_part(i)] }),
    };
    vec![agent_span(1, 0, "finder"), model_call(2, 1, &json_array(n, turn), &[answer_part(1)])]
}

/// A tool with `n` parameters, and a call with all of them.
fn schema_of_one_tool(n: u64) -> Vec<Span> {
    let members = |value: &dyn Fn(u64) -> Value| -> Value {
        Value::Object((0..n).map(|i| (format!("p{i}"), value(i))).collect())
    };
    let parameters = json!({ "type": "object", "properties": members(&|_| json!({ "type": "integer" })) });
    let definitions =
        json!([{ "type": "function", "name": "look_up", "parameters": parameters }]).to_string();
    let call =
        json!({ "type": "tool_call", "id": "3", "name": "look_up", "arguments": members(&|i| json!(i)) });
    vec![
        agent_span(1, 0, "finder"),
        model_call_with_tools(2, 1, &definitions, &[user_message(TASK)], &[call]),
    ]
}

/// A run in which each span has its own scope, and one resource of `n` attributes.
fn scopes_of_one_resource(n: u64) -> Vec<Span> {
    let mut resource = Vec::new();
    for i in 0..n {
        write::attribute(&mut resource, RESOURCE_ATTRIBUTES, &format!("attribute {i}"), Scalar::Int(1));
    }
    let mut field = Vec::new();
    write::bytes(&mut field, 1, &resource);
    let resource = EnvelopeFields::from(field);
    let mut spans = run(n, false);
    for (i, span) in spans.iter_mut().enumerate() {
        let mut scope = Vec::new();
        write::bytes(&mut scope, 3, format!("https://schema/{i}").as_bytes());
        span.envelope = Envelope { resource: resource.clone(), scope: scope.into() }.into();
    }
    spans
}

/// A schema with a list of types that repeats one type `n` times, and a call with `n` values.
fn types_of_one_list(n: u64) -> Vec<Span> {
    let types: Vec<Value> = json_array(n, |_| json!("null")).into_iter().chain([json!("integer")]).collect();
    let all = json!({ "type": "array", "items": { "type": types } });
    let parameters = json!({ "type": "object", "properties": { "all": all } });
    let definitions =
        json!([{ "type": "function", "name": "look_up", "parameters": parameters }]).to_string();
    let arguments = json!({ "all": json_array(n, |i| json!(i)) });
    let call = json!({ "type": "tool_call", "id": "3", "name": "look_up", "arguments": arguments });
    vec![
        agent_span(1, 0, "finder"),
        model_call_with_tools(2, 1, &definitions, &[user_message(TASK)], &[call]),
    ]
}

/// `n` calls with identifiers that no text contains, and a schema that lists `n` values.
fn identifiers_for_one_schema(n: u64) -> Vec<Span> {
    let listed: Vec<Value> = json_array(n, |i| json!(format!("K-{i}00")));
    let lists: Vec<Value> = listed.chunks(30).map(|listed| json!({ "enum": listed })).collect();
    let parameters = json!({ "type": "object", "anyOf": lists });
    let definitions =
        json!([{ "type": "function", "name": "look_up", "parameters": parameters }]).to_string();
    let call = |i: u64| {
        let arguments = json!({ "id": format!("X-{i}77") });
        json!({ "type": "tool_call", "id": i.to_string(), "name": "look_up", "arguments": arguments })
    };
    vec![
        agent_span(1, 0, "finder"),
        model_call_with_tools(2, 1, &definitions, &[user_message(TASK)], &json_array(n, call)),
    ]
}

/// Agents below model calls whose long prompt contains only a system message.
fn agents_beneath_one_prompt(n: u64) -> Vec<Span> {
    let texts = json_array(n, |i| json!({ "type": "text", "content": format!("Rule {i}.") }));
    let prompt = json!({ "role": "system", "parts": texts });
    let models = n.clamp(1, 10);
    let mut spans: Vec<Span> = (1..=models)
        .map(|i| model_call(i, i - 1, std::slice::from_ref(&prompt), &[answer_part(i)]))
        .collect();
    let attributes = [("gen_ai.operation.name", "invoke_agent"), ("gen_ai.agent.name", "finder")];
    spans.extend((models + 1..=n).map(|i| span(i, models, &attributes)));
    spans
}

fn attributes_of_one_span(n: u64) -> Vec<Span> {
    let mut bytes = Vec::new();
    (0..n).for_each(|i| {
        write::attribute(&mut bytes, SPAN_ATTRIBUTES, &format!("app.key_{i}"), Scalar::Str("value"));
    });
    let mut model_call = model_call(2, 1, &[user_message(TASK)], &[answer_part(1)]);
    model_call.bytes = [&model_call.bytes[..], &bytes].concat().into();
    vec![agent_span(1, 0, "finder"), model_call]
}
