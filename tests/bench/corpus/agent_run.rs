//! The agent runs of the corpus `agent`, in the conventions of OpenInference and of OTel GenAI.

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::{Value as Json, json};

use super::{Rng, SPANS, SpanFrame, attribute, int, span, text};

/// One turn of an agent: the model's text, its call, and the result of the call.
struct Turn {
    text: String,
    call: String,
    arguments: String,
    result: String,
}

/// The content of an agent run.
struct Run {
    trace: u32,
    /// Whether messages are flattened into attributes, as OpenInference records them.
    is_flat: bool,
    system: String,
    task: String,
    answer: String,
    turns: Vec<Turn>,
}

const MODEL_CALLS: usize = 8;
const TOOLS: [&str; 3] = ["find_order", "track_parcel", "quote_refund"];

/// A root, 4 steps of 2 model calls each, and a tool call after every model call but the last.
pub fn agent_trace(trace: u32) -> Vec<(usize, Span)> {
    let mut rng = Rng(0xa6e7 + u64::from(trace));
    let turns = (0..MODEL_CALLS - 1).map(|n| turn(&mut rng, n)).collect();
    let mut run = Run {
        trace,
        is_flat: trace.is_multiple_of(2),
        // A service has the same system prompt in every run.
        system: format!("You are a support agent of a shop. {}", Rng(0x5e11).prose(1_500)),
        task: format!("Where is order {}? {}", 10_000 + trace, rng.prose(220)),
        answer: String::new(),
        turns,
    };
    let parcel = run.turns.last().map_or("", |t| &t.arguments);
    run.answer = format!("I looked up {parcel}. {}", rng.prose(300));
    let scope = usize::from(!run.is_flat);
    let mut spans = Vec::with_capacity(SPANS);
    let mut clock = 10;
    for step in 0..4u64 {
        let chain = 2 + step * 5;
        let begin = clock;
        for call in 0..2u64 {
            let n = (step * 2 + call) as usize;
            let frame =
                SpanFrame { trace, id: chain + 1 + call * 2, parent: chain, start: clock, end: clock + 900 };
            spans.push((scope, run.llm(&frame, n)));
            clock += 910;
            if n < run.turns.len() {
                let frame = SpanFrame {
                    trace,
                    id: chain + 2 + call * 2,
                    parent: chain,
                    start: clock,
                    end: clock + 120,
                };
                spans.push((scope, run.tool(&frame, n)));
                clock += 130;
            }
        }
        let frame = SpanFrame { trace, id: chain, parent: 1, start: begin, end: clock };
        spans.push((scope, run.chain(&frame, step)));
    }
    let frame = SpanFrame { trace, id: 1, parent: 0, start: 0, end: clock + 10 };
    spans.push((scope, run.root(&frame)));
    spans
}

fn turn(rng: &mut Rng, n: usize) -> Turn {
    let order = 10_000 + rng.next_below(90_000);
    let call = TOOLS[n % TOOLS.len()];
    let result = json!({
        "order": order,
        "step": n,
        "items": (0..4).map(|_| json!({"sku": rng.next_below(1 << 40), "price": rng.next_below(10_000), "note": rng.prose(90)})).collect::<Vec<_>>(),
        "updated": format!("2026-01-{:02}T10:{:02}:00Z", 1 + rng.next_below(28), rng.next_below(60)),
        "note": rng.prose(300),
    });
    Turn {
        text: format!("I will call {call} to find out more. {}", rng.prose(190)),
        call: call.to_owned(),
        arguments: json!({"order": order, "detail": rng.prose(40)}).to_string(),
        result: result.to_string(),
    }
}

impl Run {
    fn llm(&self, frame: &SpanFrame, n: usize) -> Span {
        let attributes = if self.is_flat { self.llm_flat(n) } else { self.llm_json(n) };
        span(frame, if self.is_flat { "ChatOpenAI" } else { "chat gpt-5-mini" }, 3, attributes)
    }

    fn llm_flat(&self, n: usize) -> Vec<KeyValue> {
        let mut out = vec![
            text("openinference.span.kind", "LLM"),
            text("llm.model_name", "gpt-5-mini"),
            text("llm.provider", "openai"),
            text("llm.invocation_parameters", r#"{"temperature": 0.2, "max_tokens": 1024}"#),
            int("llm.token_count.prompt", 900 + 400 * n as i64),
            int("llm.token_count.completion", 120),
            int("llm.token_count.total", 1_020 + 400 * n as i64),
            text("session.id", format!("session-{}", self.trace)),
        ];
        let mut messages = vec![("system", &self.system, None), ("user", &self.task, None)];
        for turn in &self.turns[..n] {
            messages.push(("assistant", &turn.text, Some(turn)));
            messages.push(("tool", &turn.result, None));
        }
        for (i, (role, content, call)) in messages.into_iter().enumerate() {
            flat_message(&mut out, &format!("llm.input_messages.{i}.message"), role, content, call);
        }
        match self.turns.get(n) {
            Some(turn) => {
                flat_message(&mut out, "llm.output_messages.0.message", "assistant", &turn.text, Some(turn));
            }
            None => flat_message(&mut out, "llm.output_messages.0.message", "assistant", &self.answer, None),
        }
        for (i, tool) in TOOLS.iter().enumerate() {
            out.push(text(format!("llm.tools.{i}.tool.json_schema"), definition(tool, true).to_string()));
        }
        out
    }

    fn llm_json(&self, n: usize) -> Vec<KeyValue> {
        let mut messages = vec![json!({"role": "user", "parts": [{"type": "text", "content": self.task}]})];
        for (i, turn) in self.turns[..n].iter().enumerate() {
            messages.push(assistant_message(i, turn));
            messages.push(json!({"role": "tool", "parts": [
                {"type": "tool_call_response", "id": format!("call_{i}"), "response": turn.result}]}));
        }
        let output = match self.turns.get(n) {
            Some(turn) => assistant_message(n, turn),
            None => json!({"role": "assistant", "finish_reason": "stop",
                "parts": [{"type": "text", "content": self.answer}]}),
        };
        let definitions: Vec<Json> = TOOLS.iter().map(|tool| definition(tool, false)).collect();
        let finish = if n < self.turns.len() { "tool_calls" } else { "stop" };
        let finish = AnyValue { value: Some(Value::StringValue(finish.into())) };
        vec![
            text("gen_ai.operation.name", "chat"),
            text("gen_ai.provider.name", "openai"),
            text("gen_ai.request.model", "gpt-5-mini"),
            text("gen_ai.response.model", "gpt-5-mini-2026-01-09"),
            text("gen_ai.response.id", format!("chatcmpl-{}-{n}", self.trace)),
            attribute(
                "gen_ai.response.finish_reasons",
                Value::ArrayValue(ArrayValue { values: vec![finish] }),
            ),
            text("gen_ai.conversation.id", format!("session-{}", self.trace)),
            attribute("gen_ai.request.temperature", Value::DoubleValue(0.2)),
            int("gen_ai.request.max_tokens", 1_024),
            int("gen_ai.usage.input_tokens", 900 + 400 * n as i64),
            int("gen_ai.usage.output_tokens", 120),
            text("server.address", "api.openai.com"),
            text("gen_ai.system_instructions", json!([{"type": "text", "content": self.system}]).to_string()),
            text("gen_ai.input.messages", Json::Array(messages).to_string()),
            text("gen_ai.output.messages", Json::Array(vec![output]).to_string()),
            text("gen_ai.tool.definitions", Json::Array(definitions).to_string()),
        ]
    }

    fn tool(&self, frame: &SpanFrame, n: usize) -> Span {
        let turn = &self.turns[n];
        let attributes = if self.is_flat {
            vec![
                text("openinference.span.kind", "TOOL"),
                text("tool.name", &turn.call),
                text("tool.description", "Looks it up in the shop's records."),
                text("input.value", &turn.arguments),
                text("input.mime_type", "application/json"),
                text("output.value", &turn.result),
                text("output.mime_type", "application/json"),
            ]
        } else {
            vec![
                text("gen_ai.operation.name", "execute_tool"),
                text("gen_ai.tool.name", &turn.call),
                text("gen_ai.tool.type", "function"),
                text("gen_ai.tool.call.id", format!("call_{n}")),
                text("gen_ai.tool.call.arguments", &turn.arguments),
                text("gen_ai.tool.call.result", &turn.result),
            ]
        };
        let name = if self.is_flat { turn.call.clone() } else { format!("execute_tool {}", turn.call) };
        span(frame, name, 1, attributes)
    }

    fn chain(&self, frame: &SpanFrame, step: u64) -> Span {
        let attributes = if self.is_flat {
            vec![
                text("openinference.span.kind", "CHAIN"),
                text("input.value", json!({"step": step, "messages": 2 + 4 * step}).to_string()),
                text("input.mime_type", "application/json"),
                text(
                    "metadata",
                    json!({"thread": self.trace, "langgraph_step": step, "langgraph_node": "agent"})
                        .to_string(),
                ),
            ]
        } else {
            vec![
                text("gen_ai.operation.name", "invoke_workflow"),
                text("gen_ai.workflow.name", "support-loop"),
                text("gen_ai.conversation.id", format!("session-{}", self.trace)),
                text("app.loop.state", json!({"step": step, "messages": 2 + 4 * step}).to_string()),
                int("app.loop.step", step as i64),
            ]
        };
        span(frame, "agent_step", 1, attributes)
    }

    fn root(&self, frame: &SpanFrame) -> Span {
        let attributes = if self.is_flat {
            vec![
                text("openinference.span.kind", "AGENT"),
                text("agent.name", "support"),
                text("input.value", &self.task),
                text("output.value", &self.answer),
                text("session.id", format!("session-{}", self.trace)),
            ]
        } else {
            let message = |role: &str, content: &str| {
                json!([{"role": role, "parts": [{"type": "text", "content": content}]}]).to_string()
            };
            vec![
                text("gen_ai.operation.name", "invoke_agent"),
                text("gen_ai.agent.name", "support"),
                text("gen_ai.conversation.id", format!("session-{}", self.trace)),
                text("gen_ai.input.messages", message("user", &self.task)),
                text("gen_ai.output.messages", message("assistant", &self.answer)),
            ]
        };
        span(frame, "invoke_agent support", 1, attributes)
    }
}

fn assistant_message(n: usize, turn: &Turn) -> Json {
    let arguments: Json = serde_json::from_str(&turn.arguments).unwrap_or_default();
    json!({"role": "assistant", "finish_reason": "tool_call", "parts": [
        {"type": "text", "content": turn.text},
        {"type": "tool_call", "id": format!("call_{n}"), "name": turn.call, "arguments": arguments}]})
}

fn flat_message(out: &mut Vec<KeyValue>, prefix: &str, role: &str, content: &str, call: Option<&Turn>) {
    out.push(text(format!("{prefix}.role"), role));
    out.push(text(format!("{prefix}.content"), content));
    if let Some(turn) = call {
        let function = format!("{prefix}.tool_calls.0.tool_call.function");
        out.push(text(format!("{function}.name"), &turn.call));
        out.push(text(format!("{function}.arguments"), &turn.arguments));
    }
}

fn definition(name: &str, nested: bool) -> Json {
    let parameters = json!({
        "type": "object",
        "properties": {
            "order": {"type": "integer", "description": "The order's number as the customer knows it."},
            "detail": {"type": "string", "description": "What exactly to look up."},
        },
        "required": ["order"],
    });
    let description = "Looks it up in the shop's records and returns what is known about it.";
    let body = json!({"name": name, "description": description, "parameters": parameters});
    match (nested, body) {
        (true, body) => json!({"type": "function", "function": body}),
        (false, mut body) => {
            body["type"] = "function".into();
            body
        }
    }
}
