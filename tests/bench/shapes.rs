//! Traces of any number of spans, each with much of one thing: calls, agents, depth, parts, tools, facts,
//! services. Equal numbers give equal traces.

use bytes::Bytes;
use serde_json::{Value, json};
use verdict_otlp::trace::{
    CloseReason, ClosedTrace, Envelope, EnvelopeFields, Span, SpanId, Status, TraceId,
};
use verdict_otlp::value::{RESOURCE_ATTRIBUTES, SPAN_ATTRIBUTES};
use verdict_otlp::write::{self, Scalar};

#[path = "rule_shapes.rs"]
mod rule_shapes;

pub use rule_shapes::RULE_SHAPES;

/// 2026-01-01, in nanoseconds since 1970.
const EPOCH: u64 = 1_767_225_600_000_000_000;
/// The field of a span with its links.
const SPAN_LINKS: u32 = 13;
/// The duration of a model or tool call.
const STEP: u64 = 1_000_000;

/// The spans of a shape by their number, or with as many parts or tools in a few spans.
pub type Shape = fn(u64) -> Vec<Span>;

pub const SHAPES: [(&str, Shape); 38] = [
    ("run of calls", |n| run(n, false)),
    ("run of failing calls", |n| run(n, true)),
    ("run in two services", two_services),
    ("children of one parent", |n| beneath(n, |_| 1, failing_tool)),
    ("tools in a chain", |n| beneath(n, |i| i - 1, failing_tool)),
    ("model calls in a chain", |n| beneath(n, |i| i - 1, |i, up| chat(i, up, &[user(TASK)], &[answer(i)]))),
    ("agents in a chain", |n| beneath(n, |i| i - 1, |i, up| agent(i, up, &format!("agent {}", i % 7)))),
    ("agents of one parent", agents),
    ("answers of one agent", answers),
    ("claims of calls", |n| beneath(n, |_| 1, |i, up| chat(i, up, &[user(TASK)], &[text(CLAIMS)]))),
    ("calls of one message", calls_of_one_message),
    ("results in one prompt", results_in_one_prompt),
    ("texts of one message", |n| vec![agent(1, 0, "a"), chat(2, 1, &[user(TASK)], &parts(n, answer))]),
    ("tools of one agent", tools_of_one_agent),
    ("claims about many tools", claims_about_many_tools),
    ("steps of one plan", steps_of_one_plan),
    ("plans of one agent", plans_of_one_agent),
    ("undone calls", undone_calls),
    ("harmful calls", harmful_calls),
    (ALARMS, harmful_calls),
    ("calls under rules", calls_under_rules),
    (MANY_TASKS, runs_of_many_tasks),
    ("equal calls", |n| beneath(n, |_| 1, |i, up| tool(i, up, "look_up", 1, &found(i)))),
    ("claims of one text", |n| {
        one_text(&sentences(n, |i| format!("I verified mountain {i} with the look_up tool.")))
    }),
    ("figures of one text", |n| one_text(&sentences(n, figure))),
    ("words of one text", |n| one_text(&sentences(n, |_| "the mountain is high ".to_owned()))),
    ("rules of one prompt", rules_of_one_prompt),
    ("turns of one prompt", turns_of_one_prompt),
    ("values of one call", |n| one_call(&Value::from(parts(n, |i| json!({ "q": i }))))),
    ("depth of arguments", |n| one_call(&Value::from(parts(n.div_ceil(100), |_| nested(100))))),
    ("schema of one tool", schema_of_one_tool),
    ("links of one span", |n| {
        vec![agent(1, 0, "finder"), with_links(chat(2, 1, &[user(TASK)], &[answer(1)]), 0..n)]
    }),
    ("links between spans", |n| beneath(n, |_| 1, |i, up| with_links(failing_tool(i, up), i - 1..i))),
    ("attributes of one span", attributes_of_one_span),
    ("scopes of one resource", scopes_of_one_resource),
    ("types of one list", types_of_one_list),
    (SCHEMA_FOR_EACH, identifiers_for_one_schema),
    ("agents beneath one prompt", agents_beneath_one_prompt),
];

/// The shape with as many calls as their schema has values. A check is linear in the schema times the arguments, so
/// that its work grows, up to the work budget.
pub const SCHEMA_FOR_EACH: &str = "identifiers for one schema";
/// The shape about which is asked while it is open, too.
pub const ALARMS: &str = "alarms";
/// The shape with a task for each number below [`TASKS`].
pub const MANY_TASKS: &str = "runs of many tasks";
/// Tasks of [`MANY_TASKS`].
pub const TASKS: u64 = 64;

const TASK: &str = "Use look_up to find how high each mountain is, and answer with a source.";
const CLAIMS: &str =
    "I verified it with the look_up tool. I have searched the web. Next I will call look_up.";

/// The trace of some spans.
pub fn closed(spans: Vec<Span>) -> ClosedTrace {
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

fn span(i: u64, parent: u64, attributes: &[(&str, &str)]) -> Span {
    let id = |i: u64| SpanId(i.to_be_bytes());
    let mut bytes = Vec::new();
    attributes.iter().for_each(|(key, value)| {
        write::attribute(&mut bytes, SPAN_ATTRIBUTES, key, Scalar::Str(value));
    });
    Span {
        id: id(i),
        parent: id(parent),
        start: EPOCH + i * STEP,
        end: EPOCH + (i + 1) * STEP,
        status: Status::Unset,
        remote_parent: false,
        has_verdict: false,
        forwarded: false,
        skew: 0,
        bytes: Bytes::from(bytes),
        envelope: Envelope::default().into(),
    }
}

fn agent(i: u64, parent: u64, name: &str) -> Span {
    agent_with(i, parent, name, TASK)
}

fn agent_with(i: u64, parent: u64, name: &str, prompt: &str) -> Span {
    let input = json!([user(prompt)]).to_string();
    let attributes = [
        ("gen_ai.operation.name", "invoke_agent"),
        ("gen_ai.agent.name", name),
        ("gen_ai.input.messages", input.as_str()),
    ];
    span(i, parent, &attributes)
}

fn chat(i: u64, parent: u64, input: &[Value], output: &[Value]) -> Span {
    chat_with(i, parent, &definition("look_up"), input, output)
}

fn chat_with(i: u64, parent: u64, definitions: &str, input: &[Value], output: &[Value]) -> Span {
    let input = Value::from(input).to_string();
    let output = json!([{ "role": "assistant", "parts": output, "finish_reason": "stop" }]).to_string();
    let attributes = [
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.request.model", "m"),
        ("gen_ai.tool.definitions", definitions),
        ("gen_ai.input.messages", input.as_str()),
        ("gen_ai.output.messages", output.as_str()),
    ];
    span(i, parent, &attributes)
}

fn tool(i: u64, parent: u64, name: &str, id: u64, result: &str) -> Span {
    tool_with(i, parent, name, id, &json!({ "q": format!("mountain {id}") }), result)
}

fn tool_with(i: u64, parent: u64, name: &str, id: u64, arguments: &Value, result: &str) -> Span {
    let (arguments, id) = (arguments.to_string(), id.to_string());
    let attributes = [
        ("gen_ai.operation.name", "execute_tool"),
        ("gen_ai.tool.name", name),
        ("gen_ai.tool.call.id", id.as_str()),
        ("gen_ai.tool.call.arguments", arguments.as_str()),
        ("gen_ai.tool.call.result", result),
    ];
    span(i, parent, &attributes)
}

fn failing_tool(i: u64, parent: u64) -> Span {
    tool(i, parent, "look_up", i / 2, "Error: not found")
}

fn definition(name: &str) -> String {
    let parameters =
        json!({ "type": "object", "properties": { "q": { "type": "string" } }, "required": ["q"] });
    json!([{ "type": "function", "name": name, "parameters": parameters }]).to_string()
}

fn user(content: &str) -> Value {
    json!({ "role": "user", "parts": [text(content)] })
}

fn text(content: &str) -> Value {
    json!({ "type": "text", "content": content })
}

/// Half of these figures are in no result.
fn answer(i: u64) -> Value {
    text(&figure(i))
}

fn figure(i: u64) -> String {
    format!("Mountain {i} is {} m high, as of 2025-03-02, in {}.", 1_000 + 2 * i, 3_000 + i)
}

fn sentences(n: u64, sentence: impl Fn(u64) -> String) -> String {
    (0..n).map(|i| sentence(i) + " ").collect()
}

/// A run with one call and this answer.
fn one_text(answer: &str) -> Vec<Span> {
    vec![
        agent(1, 0, "finder"),
        chat(2, 1, &[user(TASK)], &[call("look_up", 3)]),
        tool(3, 1, "look_up", 3, &found(3)),
        chat(4, 1, &[user(TASK)], &[text(answer)]),
    ]
}

/// A run with these calls, given by name, arguments and result, and this answer.
fn one_run(calls: &[(&str, Value, String)], task: &Value, tools: &[&str], answer: &str) -> Vec<Span> {
    let tool_definition =
        |name: &&str| json!({ "type": "function", "name": name, "parameters": { "type": "object" } });
    let tools = Value::from(tools.iter().map(tool_definition).collect::<Vec<_>>()).to_string();
    let mut spans =
        vec![agent_with(1, 0, "finder", task["parts"][0]["content"].as_str().unwrap_or_default())];
    for (i, (name, arguments, result)) in (1..).zip(calls) {
        let request = call_with(name, i, arguments);
        spans.push(chat_with(2 * i, 1, &tools, std::slice::from_ref(task), &[request]));
        spans.push(tool_with(2 * i + 1, 1, name, i, arguments, result));
    }
    let last = 2 * (calls.len() as u64 + 1);
    spans.push(chat_with(last, 1, &tools, std::slice::from_ref(task), &[text(answer)]));
    spans
}

/// A run with one call with these arguments.
fn one_call(arguments: &Value) -> Vec<Span> {
    let arguments = json!({ "q": "mountains", "all": arguments });
    let call = json!({ "type": "tool_call", "id": "3", "name": "look_up", "arguments": arguments });
    vec![
        agent(1, 0, "finder"),
        chat(2, 1, &[user(TASK)], &[call]),
        tool_with(3, 1, "look_up", 3, &arguments, &found(3)),
        chat(4, 1, &[user(TASK)], &[answer(3)]),
    ]
}

fn nested(depth: u64) -> Value {
    (0..depth).fold(json!("x"), |below, _| json!({ "a": below }))
}

fn call(name: &str, id: u64) -> Value {
    call_with(name, id, &json!({ "q": format!("mountain {id}") }))
}

fn call_with(name: &str, id: u64, arguments: &Value) -> Value {
    json!({ "type": "tool_call", "id": id.to_string(), "name": name, "arguments": arguments })
}

fn result(id: u64) -> Value {
    json!({ "type": "tool_call_response", "id": id.to_string(), "response": found(id) })
}

fn found(i: u64) -> String {
    format!("Mountain {i}: {} m above the sea.", 1_000 + 2 * i)
}

fn parts(n: u64, part: impl Fn(u64) -> Value) -> Vec<Value> {
    (0..n).map(part).collect()
}

/// A root, and further spans, each beneath `parent`.
fn beneath(n: u64, parent: impl Fn(u64) -> u64, make_span: impl Fn(u64, u64) -> Span) -> Vec<Span> {
    let mut spans = vec![agent(1, 0, "finder")];
    spans.extend((2..=n).map(|i| make_span(i, parent(i))));
    spans
}

/// Model and tool calls in turn. A prompt has the task and the latest result.
fn run(n: u64, failing: bool) -> Vec<Span> {
    let found = |i| if failing { "Error: the server is not reachable".to_owned() } else { found(i) };
    beneath(
        n,
        |_| 1,
        |i, up| match (i % 2, i + 1 >= n) {
            (0, true) => chat(i, up, &[user(TASK)], &[answer(i)]),
            (0, false) => {
                let response = json!({ "type": "tool_call_response", "id": (i - 1).to_string(), "response": found(i - 1) });
                let message = json!({ "role": "tool", "parts": [response] });
                chat(i, up, &[user(TASK), message], &[call("look_up", i + 1)])
            }
            _ => tool(i, up, "look_up", i, &found(i)),
        },
    )
}

/// A run whose tools have a clock that is ahead.
fn two_services(n: u64) -> Vec<Span> {
    let mut resource = Vec::new();
    write::attribute(&mut resource, RESOURCE_ATTRIBUTES, "service.name", Scalar::Str("tools"));
    let mut field = Vec::new();
    write::bytes(&mut field, 1, &resource);
    let other = std::sync::Arc::new(Envelope { resource: field.into(), ..Envelope::default() });
    let mut spans = run(n, false);
    for span in spans.iter_mut().skip(2).step_by(2) {
        (span.start, span.end) = (span.start + 3 * STEP, span.end + 3 * STEP);
        span.envelope = other.clone();
    }
    spans
}

/// Agents beneath one, each with a model and a tool call.
fn agents(n: u64) -> Vec<Span> {
    beneath(
        n,
        |i| match i % 4 {
            2 => 1,
            k => i - (k + 2) % 4,
        },
        |i, up| match i % 4 {
            2 => agent(i, up, &format!("agent {}", i / 4)),
            3 => chat(i, up, &[user(TASK)], &[call("look_up", i)]),
            0 => tool(i, up, "look_up", i - 1, &found(i)),
            _ => chat(i, up, &[user(TASK)], &[answer(i - 1)]),
        },
    )
}

/// Turns of a conversation, each with a call and an answer.
fn answers(n: u64) -> Vec<Span> {
    beneath(
        n,
        |_| 1,
        |i, up| match i % 2 {
            0 => tool(i, up, "look_up", i, &found(i)),
            _ => chat(i, up, &[user(&format!("{TASK} Mountain {i}?"))], &[answer(i)]),
        },
    )
}

fn calls_of_one_message(n: u64) -> Vec<Span> {
    let all = parts(n, |i| call("look_up", i));
    vec![agent(1, 0, "finder"), chat(2, 1, &[user(TASK)], &all), chat(3, 1, &[user(TASK)], &[answer(1)])]
}

fn results_in_one_prompt(n: u64) -> Vec<Span> {
    let asked = json!({ "role": "assistant", "parts": parts(n, |i| call("look_up", i)) });
    let tool_message = json!({ "role": "tool", "parts": parts(n, result) });
    vec![agent(1, 0, "finder"), chat(2, 1, &[user(TASK), asked, tool_message], &[answer(1)])]
}

/// A model is offered as many tools as it announces and claims to have called.
fn claims_about_many_tools(n: u64) -> Vec<Span> {
    let all =
        Value::from(parts(n, |i| json!({ "type": "function", "name": format!("tool_{i}") }))).to_string();
    let claim = |i: u64| format!("I verified it with the tool_{i} tool. Next I will call tool_{}.", i + 1);
    let mut spans = vec![agent(1, 0, "finder"), chat_with(2, 1, &all, &[user(TASK)], &[text("Yes.")])];
    spans.extend((3..=n).map(|i| chat_with(i, 1, "[]", &[user(TASK)], &[text(&claim(i))])));
    spans
}

/// A plan of as many steps, every other one with a call.
fn steps_of_one_plan(n: u64) -> Vec<Span> {
    let plan: String = (1..=n).map(|i| format!("{i}. Call tool_{i} for mountain {i}.\n")).collect();
    let tools =
        Value::from(parts(n, |i| json!({ "type": "function", "name": format!("tool_{i}") }))).to_string();
    let plan = text(&format!("Here is my plan:\n{plan}"));
    let mut spans = vec![agent(1, 0, "finder"), chat_with(2, 1, &tools, &[user(TASK)], &[plan])];
    spans.extend((3..=n).step_by(2).map(|i| tool(i, 1, &format!("tool_{i}"), i, &found(i))));
    spans
}

/// Every model call writes a plan.
fn plans_of_one_agent(n: u64) -> Vec<Span> {
    let plan = |i: u64| {
        text(&format!(
            "Here is my plan:\n1. Call look_up for mountain {i}.\n2. Compare the heights.\n3. Answer."
        ))
    };
    beneath(n, |_| 1, |i, up| chat(i, up, &[user(TASK)], &[plan(i), call("look_up", i)]))
}

/// Writes, each undone or repeated later: names with opposite words, and the same arguments again.
fn undone_calls(n: u64) -> Vec<Span> {
    let name = |i: u64| if i <= n / 2 { "lock_gate" } else { "unlock_gate" };
    beneath(n, |_| 1, |i, up| tool(i, up, name(i), i % (n / 2 + 1), "done"))
}

/// As many tools are defined and called, each once.
fn tools_of_one_agent(n: u64) -> Vec<Span> {
    let name = |i: u64| format!("tool_{i}");
    let all: Vec<Value> = parts(n, |i| {
        let parameters = json!({ "type": "object", "properties": { "q": { "type": "string" } } });
        json!({ "type": "function", "name": name(i), "parameters": parameters })
    });
    let definitions = Value::from(all).to_string();
    let calls = parts(n, |i| call(&name(i), i));
    let mut spans = vec![agent(1, 0, "finder"), chat_with(2, 1, &definitions, &[user(TASK)], &calls)];
    spans.extend((0..n).map(|i| tool(3 + i, 1, &name(i), i, &found(i))));
    spans.push(chat(3 + n, 1, &[user(TASK)], &[answer(1)]));
    spans
}

/// Calls that the task does not have, in a state in which others are allowed.
fn harmful_calls(n: u64) -> Vec<Span> {
    let name = |i: u64| if i == 2 { "look_up".to_owned() } else { format!("tool_{}", i % 8) };
    beneath(n, |_| 1, |i, up| tool(i, up, &name(i), i, &found(i)))
}

/// Calls of a task that is a policy with limits on numbers, sums and times.
fn calls_under_rules(n: u64) -> Vec<Span> {
    let name = |i: u64| ["verify_customer", "issue_refund", "notify_customer"][i as usize % 3];
    let call = |i, up| tool_with(i, up, name(i), i, &json!({ "amount": i % 10 }), "done");
    let mut spans = beneath(n, |_| 1, call);
    spans[0] = agent(1, 0, "shop");
    spans
}

/// Runs of one call, each of the task that its prompt names.
fn runs_of_many_tasks(n: u64) -> Vec<Span> {
    beneath(
        n,
        |i| if i % 2 == 0 { 1 } else { i - 1 },
        |i, up| match i % 2 {
            0 => agent_with(i, up, "worker", &format!("Do task {} for mountain {i}.", i / 2 % TASKS)),
            _ => tool(i, up, "look_up", i, &found(i)),
        },
    )
}

/// A prompt of as many instructions.
fn rules_of_one_prompt(n: u64) -> Vec<Span> {
    let rules = sentences(n, |i| format!("Never mention mountain {i}. Answer in at most {} words.", 100 + i));
    vec![agent(1, 0, "finder"), chat(2, 1, &[user(&rules)], &[answer(1)])]
}

/// A conversation in one prompt.
fn turns_of_one_prompt(n: u64) -> Vec<Span> {
    let turn = |i: u64| match i % 2 {
        0 => user(&format!("How high is mountain {i}?")),
        _ => json!({ "role": "assistant", "parts": [answer(i)] }),
    };
    vec![agent(1, 0, "finder"), chat(2, 1, &parts(n, turn), &[answer(1)])]
}

/// A tool with as many parameters, all given in a call.
fn schema_of_one_tool(n: u64) -> Vec<Span> {
    let members = |value: &dyn Fn(u64) -> Value| -> Value {
        Value::Object((0..n).map(|i| (format!("p{i}"), value(i))).collect())
    };
    let parameters = json!({ "type": "object", "properties": members(&|_| json!({ "type": "integer" })) });
    let definitions =
        json!([{ "type": "function", "name": "look_up", "parameters": parameters }]).to_string();
    let call =
        json!({ "type": "tool_call", "id": "3", "name": "look_up", "arguments": members(&|i| json!(i)) });
    vec![agent(1, 0, "finder"), chat_with(2, 1, &definitions, &[user(TASK)], &[call])]
}

/// A run whose spans have scopes of their own, and a resource that is as large as all of them.
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

/// A list of types that repeats one of them, and as many values.
fn types_of_one_list(n: u64) -> Vec<Span> {
    let types: Vec<Value> = parts(n, |_| json!("null")).into_iter().chain([json!("integer")]).collect();
    let all = json!({ "type": "array", "items": { "type": types } });
    let parameters = json!({ "type": "object", "properties": { "all": all } });
    let definitions =
        json!([{ "type": "function", "name": "look_up", "parameters": parameters }]).to_string();
    let arguments = json!({ "all": parts(n, |i| json!(i)) });
    let call = json!({ "type": "tool_call", "id": "3", "name": "look_up", "arguments": arguments });
    vec![agent(1, 0, "finder"), chat_with(2, 1, &definitions, &[user(TASK)], &[call])]
}

/// Calls with identifiers that no text has, and a schema with as many values.
fn identifiers_for_one_schema(n: u64) -> Vec<Span> {
    let listed: Vec<Value> = parts(n, |i| json!(format!("K-{i}00")));
    let lists: Vec<Value> = listed.chunks(30).map(|listed| json!({ "enum": listed })).collect();
    let parameters = json!({ "type": "object", "anyOf": lists });
    let definitions =
        json!([{ "type": "function", "name": "look_up", "parameters": parameters }]).to_string();
    let call = |i: u64| {
        let arguments = json!({ "id": format!("X-{i}77") });
        json!({ "type": "tool_call", "id": i.to_string(), "name": "look_up", "arguments": arguments })
    };
    vec![agent(1, 0, "finder"), chat_with(2, 1, &definitions, &[user(TASK)], &parts(n, call))]
}

/// Agents below model calls that were shown a long prompt without a request.
fn agents_beneath_one_prompt(n: u64) -> Vec<Span> {
    let texts = parts(n, |i| json!({ "type": "text", "content": format!("Rule {i}.") }));
    let prompt = json!({ "role": "system", "parts": texts });
    let models = n.clamp(1, 10);
    let mut spans: Vec<Span> =
        (1..=models).map(|i| chat(i, i - 1, std::slice::from_ref(&prompt), &[answer(i)])).collect();
    let attributes = [("gen_ai.operation.name", "invoke_agent"), ("gen_ai.agent.name", "finder")];
    spans.extend((models + 1..=n).map(|i| span(i, models, &attributes)));
    spans
}

/// The span with links to these spans.
fn with_links(mut span: Span, to: std::ops::Range<u64>) -> Span {
    let mut bytes = span.bytes.to_vec();
    for i in to {
        let mut link = Vec::new();
        write::bytes(&mut link, 1, &[1; 16]);
        write::bytes(&mut link, 2, &i.to_be_bytes());
        write::bytes(&mut bytes, SPAN_LINKS, &link);
    }
    span.bytes = bytes.into();
    span
}

fn attributes_of_one_span(n: u64) -> Vec<Span> {
    let mut bytes = Vec::new();
    (0..n).for_each(|i| {
        write::attribute(&mut bytes, SPAN_ATTRIBUTES, &format!("app.key_{i}"), Scalar::Str("value"));
    });
    let mut called = chat(2, 1, &[user(TASK)], &[answer(1)]);
    called.bytes = [&called.bytes[..], &bytes].concat().into();
    vec![agent(1, 0, "finder"), called]
}
