//! Spans written for one convention or edge case each (conventions, sections 1-5).

use serde_json::json;

use super::*;

fn kinds(scene: &Scene) -> Vec<Kind> {
    scene.readings.iter().map(|r| r.kind).collect()
}

/// The kind of one span with these attributes.
fn kind_of(attributes: Value) -> Kind {
    named("span", "", attributes)
}

fn named(name: &str, scope: &str, attributes: Value) -> Kind {
    kinds(&scene_of(json!([{ "id": 1, "name": name, "scope": scope, "attributes": attributes }])))[0]
}

/// One span as read.
fn one(attributes: Value) -> Reading {
    scene_of(json!([{ "id": 1, "name": "span", "attributes": attributes }])).readings.remove(0)
}

fn texts(messages: &[Message]) -> Vec<(Role, String)> {
    messages.iter().map(|m| (m.role, plain(std::slice::from_ref(m)))).collect()
}

#[test]
fn every_convention_says_its_kinds() {
    for (attributes, kind) in [
        (json!({ "gen_ai.operation.name": "CHAT" }), Kind::Llm),
        (json!({ "gen_ai.operation.name": "memory_search" }), Kind::Memory),
        (json!({ "gen_ai.operation.name": "plan" }), Kind::Plan),
        (json!({ "mcp.method.name": "tools/call" }), Kind::Tool),
        (json!({ "mcp.method.name": "tools/list" }), Kind::Chain),
        (json!({ "openinference.span.kind": "RERANKER" }), Kind::Reranker),
        (json!({ "traceloop.span.kind": "task" }), Kind::Chain),
        (json!({ "llm.request.type": "chat" }), Kind::Llm),
        (
            json!({ "langsmith.span.kind": "retriever", "gen_ai.operation.name": "embeddings" }),
            Kind::Retriever,
        ),
        (json!({ "ai.operationId": "ai.streamText.doStream" }), Kind::Llm),
        (json!({ "ai.operationId": "ai.streamText" }), Kind::Agent),
        (json!({ "langfuse.observation.type": "generation" }), Kind::Llm),
        (json!({ "langfuse.observation.type": "span", "openinference.span.kind": "TOOL" }), Kind::Tool),
        (
            json!({ "langfuse.observation.type": "span", "langfuse.observation.usage_details": "{}" }),
            Kind::Llm,
        ),
        (json!({ "langfuse.observation.type": "event" }), Kind::Unknown),
        (json!({ "mlflow.spanType": "\"CHAT_MODEL\"" }), Kind::Llm),
        (json!({ "ai.observability.span_type": "record_root" }), Kind::Agent),
        (json!({ "fi.span.kind": "A2A_CLIENT" }), Kind::Tool),
        (json!({ "confident.span.type": "retriever" }), Kind::Retriever),
        (json!({ "genkit:metadata:subtype": "tool.v2" }), Kind::Tool),
        (json!({ "lmnr.span.type": "EXECUTOR" }), Kind::Agent),
        (json!({ "span.type": "llm_request" }), Kind::Llm),
        (json!({ "gen_ai.tool.name": "search" }), Kind::Tool),
        (json!({ "gen_ai.request.model": "m" }), Kind::Llm),
        (json!({ "retrieval.documents.0.document.content": "d" }), Kind::Retriever),
        (json!({ "gen_ai.operation.name": "something_new" }), Kind::Unknown),
        (json!({ "gen_ai.operation.name": "something_new", "gen_ai.request.model": "m" }), Kind::Llm),
        (json!({ "gen_ai.request.model": "m", "gen_ai.agent.name": "a" }), Kind::Unknown),
        (
            json!({ "openinference.span.kind": "UNKNOWN", "gen_ai.operation.name": "execute_tool" }),
            Kind::Tool,
        ),
        (json!({ "traceloop.span.kind": "workflow", "gen_ai.operation.name": "invoke_agent" }), Kind::Chain),
        (json!({ "http.request.method": "POST" }), Kind::Unknown),
        (json!({ "gen_ai.operation.name": "chat", "logfire.span_type": "pending_span" }), Kind::Unknown),
        (
            json!({ "gen_ai.tool.name": "(merged tools)", "gen_ai.operation.name": "execute_tool" }),
            Kind::Chain,
        ),
    ] {
        assert_eq!(kind_of(attributes.clone()), kind, "{attributes}");
    }
}

#[test]
fn span_names_say_the_kind_where_keys_do_not() {
    for (name, scope, kind) in [
        ("invocation", "gcp.vertex.agent", Kind::Chain),
        ("agent_run [x]", "gcp.vertex.agent", Kind::Agent),
        ("call_llm", "gcp.vertex.agent", Kind::Llm),
        ("execute_tool (merged)", "gcp.vertex.agent", Kind::Chain),
        ("agent run", "pydantic-ai", Kind::Agent),
        ("running tool: search", "pydantic-ai", Kind::Tool),
        ("executor.process", "agent_framework", Kind::Chain),
        ("function_tool", "livekit-agents", Kind::Tool),
        ("claude_code.tool", "", Kind::Tool),
        ("execute_tool search", "", Kind::Tool),
        ("chat gpt-x", "", Kind::Llm),
        ("chatter", "", Kind::Unknown),
        ("agent run", "", Kind::Unknown),
    ] {
        assert_eq!(named(name, scope, json!({})), kind, "{name} in {scope}");
    }
}

#[test]
fn messages_of_every_provider_read_alike() {
    let asked = "How high?";
    let shapes = [
        json!([{ "role": "user", "parts": [{ "type": "text", "content": asked }] }]),
        json!([{ "role": "user", "content": asked }]),
        json!([{ "role": "user", "content": [{ "type": "text", "text": asked }] }]),
        json!([{ "role": "user", "content": [{ "text": asked }] }]),
        json!([["user", asked]]),
        json!({ "messages": [["human", asked]] }),
        json!({ "messages": [[{ "lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "HumanMessage"], "kwargs": { "content": asked, "type": "human" } }]] }),
        json!([{ "type": "human", "data": { "content": asked } }]),
        json!([{ "type": "human", "content": asked }]),
        json!({ "contents": [{ "role": "user", "parts": [{ "text": asked }] }] }),
        json!({ "input": [{ "role": "user", "content": [{ "type": "input_text", "text": asked }] }] }),
        json!({ "model": "m", "messages": [{ "role": "user", "content": asked }] }),
        json!({ "inputs": { "messages": [["user", asked]] }, "tags": [], "kwargs": { "name": "x" } }),
        json!({ "prompt": asked }),
        json!({ "question": asked }),
        json!({ "task": asked, "stream": false }),
    ];
    for shape in shapes {
        for value in [shape.clone(), json!(shape.to_string()), json!(json!(shape.to_string()).to_string())] {
            let reading = one(json!({ "gen_ai.operation.name": "chat", "gen_ai.input.messages": value }));
            assert_eq!(texts(&reading.input), [(Role::User, asked.into())], "{shape}");
            assert_eq!(reading.input_content, Content::Present);
        }
    }
}

#[test]
fn tool_calls_and_results_of_every_provider_read_alike() {
    let arguments = json!({ "q": "x" });
    let shapes = [
        json!([{ "role": "assistant", "parts": [{ "type": "tool_call", "id": "c1", "name": "find", "arguments": arguments }] },
            { "role": "tool", "parts": [{ "type": "tool_call_response", "id": "c1", "response": "found" }] }]),
        json!([{ "role": "assistant", "parts": [{ "type": "tool_call", "id": "c1", "name": "find", "arguments": arguments }] },
            { "role": "user", "parts": [{ "type": "tool_call_response", "id": "c1", "name": "find", "result": "found" }] }]),
        json!([{ "role": "assistant", "content": null, "tool_calls": [{ "id": "c1", "type": "function", "function": { "name": "find", "arguments": arguments.to_string() } }] },
            { "role": "tool", "tool_call_id": "c1", "content": "found" }]),
        json!([{ "role": "assistant", "content": [{ "type": "tool_use", "id": "c1", "name": "find", "input": arguments }] },
            { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "c1", "content": [{ "type": "text", "text": "found" }] }] }]),
        json!([{ "role": "assistant", "content": [{ "toolUse": { "toolUseId": "c1", "name": "find", "input": arguments } }] },
            { "role": "user", "content": [{ "toolResult": { "toolUseId": "c1", "status": "success", "content": [{ "text": "found" }] } }] }]),
        json!([{ "role": "model", "parts": [{ "functionCall": { "id": "c1", "name": "find", "args": arguments } }] },
            { "role": "user", "parts": [{ "functionResponse": { "id": "c1", "name": "find", "response": { "result": "found" } } }] }]),
        json!([{ "type": "function_call", "call_id": "c1", "name": "find", "arguments": arguments.to_string() },
            { "type": "function_call_output", "call_id": "c1", "output": "found" }]),
        json!([{ "role": "assistant", "content": [{ "type": "tool-call", "toolCallId": "c1", "toolName": "find", "input": arguments }] },
            { "role": "tool", "content": [{ "type": "tool-result", "toolCallId": "c1", "toolName": "find", "output": { "type": "text", "value": "found" } }] }]),
        json!([{ "lc": 1, "id": ["AIMessage"], "kwargs": { "content": "", "tool_calls": [{ "name": "find", "args": arguments, "id": "c1", "type": "tool_call" }] } },
            { "lc": 1, "id": ["ToolMessage"], "kwargs": { "content": "found", "tool_call_id": "c1", "status": "success" } }]),
    ];
    for shape in shapes {
        let reading =
            one(json!({ "gen_ai.operation.name": "chat", "gen_ai.input.messages": shape.to_string() }));
        let [Message { role: Role::Assistant, parts: asked }, Message { role: Role::Tool, parts: answered }] =
            reading.input.as_slice()
        else {
            panic!("{shape}: {:?}", reading.input);
        };
        let [Part::Call(call)] = asked.as_slice() else { panic!("{shape}: {asked:?}") };
        assert_eq!((call.id.as_deref(), &*call.name), (Some("c1"), "find"), "{shape}");
        assert_eq!(call.arguments.as_deref(), Some(r#"{"q":"x"}"#), "{shape}");
        let [Part::Result { id, content, failed: false, .. }] = answered.as_slice() else {
            panic!("{shape}: {answered:?}")
        };
        assert_eq!((id.as_deref(), &**content), (Some("c1"), "found"), "{shape}");
    }
}

#[test]
fn a_failed_tool_message_is_marked_in_every_form() {
    for message in [
        json!({ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "c", "is_error": true, "content": "no" }] }),
        json!({ "role": "user", "content": [{ "toolResult": { "toolUseId": "c", "status": "error", "content": [{ "text": "no" }] } }] }),
        json!({ "role": "tool", "content": [{ "type": "tool-result", "toolCallId": "c", "toolName": "t", "output": { "type": "error-text", "value": "no" } }] }),
        json!({ "type": "tool", "data": { "content": "no", "tool_call_id": "c", "status": "error" } }),
    ] {
        let reading = one(
            json!({ "gen_ai.operation.name": "chat", "gen_ai.input.messages": json!([message]).to_string() }),
        );
        let part = &reading.input[0].parts[0];
        assert!(
            matches!(part, Part::Result { failed: true, content, .. } if &**content == "no"),
            "{message}: {part:?}"
        );
    }
}

#[test]
fn flattened_indexes_sort_by_number_and_tolerate_gaps() {
    let mut attributes = serde_json::Map::new();
    attributes.insert("openinference.span.kind".into(), json!("LLM"));
    for n in [10, 9, 2, 0] {
        attributes.insert(format!("llm.input_messages.{n}.message.role"), json!("user"));
        attributes.insert(format!("llm.input_messages.{n}.message.content"), json!(n.to_string()));
    }
    for m in [11, 3] {
        let call = format!("llm.output_messages.0.message.tool_calls.{m}.tool_call");
        attributes.insert(format!("{call}.function.name"), json!(format!("t{m}")));
        attributes.insert(format!("{call}.id"), json!(format!("c{m}")));
    }
    let reading = one(Value::Object(attributes));
    let said: Vec<_> = texts(&reading.input).into_iter().map(|(_, t)| t).collect();
    assert_eq!(said, ["0", "2", "9", "10"]);
    let calls: Vec<_> =
        reading.requests().map(|c| (c.name.to_string(), c.id.clone().unwrap().to_string())).collect();
    assert_eq!(calls, [("t3".into(), "c3".into()), ("t11".into(), "c11".into())]);
}

#[test]
fn openllmetry_before_and_after_its_change_read_alike() {
    let old = one(json!({
        "llm.request.type": "chat",
        "gen_ai.prompt.0.role": "system", "gen_ai.prompt.0.content": "Be brief.",
        "gen_ai.prompt.1.role": "user", "gen_ai.prompt.1.content": "Hi",
        "gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.finish_reason": "tool_calls",
        "gen_ai.completion.0.tool_calls.0.id": "c1", "gen_ai.completion.0.tool_calls.0.name": "find",
        "gen_ai.completion.0.tool_calls.0.arguments": "{\"q\":1}",
        "llm.request.functions.0.name": "find", "llm.request.functions.0.parameters": "{\"type\":\"object\",\"properties\":{\"q\":{}}}",
        "gen_ai.usage.prompt_tokens": "12", "gen_ai.usage.completion_tokens": 3,
    }));
    assert_eq!(texts(&old.input), [(Role::System, "Be brief.".into()), (Role::User, "Hi".into())]);
    assert_eq!(old.requests().next().unwrap().arguments.as_deref(), Some("{\"q\":1}"));
    assert_eq!(old.tools[0].parameters.as_ref().unwrap()["properties"], json!({ "q": {} }));
    assert_eq!((old.tokens.input, old.tokens.output, old.tokens.total), (Some(12), Some(3), Some(15)));
    assert_eq!(&*old.finish[0], "tool_calls");
    let tool = one(json!({
        "traceloop.span.kind": "tool", "traceloop.entity.name": "find",
        "traceloop.entity.input": "{\"input_str\": \"{'q': 'it''s'}\", \"tags\": [], \"inputs\": null, \"kwargs\": {}}",
        "traceloop.entity.output": "{\"output\": {\"lc\": 1, \"id\": [\"x\", \"ToolMessage\"], \"kwargs\": {\"content\": \"no\", \"status\": \"error\"}}, \"kwargs\": {}}",
    }));
    assert_eq!(&*tool.call.as_ref().unwrap().name, "find");
    assert_eq!(tool.result.as_deref(), Some("no"));
    assert_eq!(tool.errors[0].source, ErrorSource::Flag);
    let tool = one(json!({
        "traceloop.span.kind": "tool", "gen_ai.tool.name": "find",
        "gen_ai.tool.call.arguments": "{\"input_str\": \"{'q': 'x', 'n': None}\", \"tags\": [], \"kwargs\": {}}",
    }));
    assert_eq!(tool.call.unwrap().arguments.as_deref(), Some(r#"{"q":"x","n":null}"#));
    let decorated = one(
        json!({ "traceloop.span.kind": "tool", "traceloop.entity.input": "{\"args\": [], \"kwargs\": {\"q\": 1}}" }),
    );
    assert_eq!(decorated.call.unwrap().arguments.as_deref(), Some(r#"{"q":1}"#));
}

#[test]
fn google_adk_v1_reads_from_its_request_and_response() {
    let request = json!({
        "model": "gemini", "config": { "system_instruction": "Be brief.", "tools": [{ "function_declarations": [{ "name": "find", "parameters": { "type": "OBJECT", "properties": { "q": { "type": "STRING" } } } }] }] },
        "contents": [{ "role": "user", "parts": [{ "text": "Hi" }] }, { "role": "model", "parts": [{ "function_call": { "name": "find", "args": { "q": "x" } } }] }, { "role": "user", "parts": [{ "function_response": { "name": "find", "response": { "result": "found" } } }] }]
    });
    let response =
        json!({ "content": { "role": "model", "parts": [{ "text": "Done" }] }, "finish_reason": "STOP" });
    let scene = scene_of(json!([
        { "id": 1, "name": "invoke_agent a", "scope": "gcp.vertex.agent", "attributes": {} },
        { "id": 2, "parent": 1, "name": "call_llm", "scope": "gcp.vertex.agent", "attributes": { "gcp.vertex.agent.llm_request": request.to_string(), "gcp.vertex.agent.llm_response": response.to_string(), "gen_ai.request.model": "gemini" } },
        { "id": 3, "parent": 2, "name": "generate_content gemini", "scope": "gcp.vertex.agent", "attributes": { "gen_ai.request.model": "gemini", "gen_ai.usage.input_tokens": 5 } },
        { "id": 4, "parent": 2, "name": "execute_tool find", "scope": "gcp.vertex.agent", "attributes": { "gen_ai.tool.name": "find", "gen_ai.tool.call.id": "<not specified>", "gcp.vertex.agent.tool_call_args": "{\"q\": \"x\"}", "gcp.vertex.agent.tool_response": "{\"result\": \"found\"}", "gcp.vertex.agent.llm_request": "{}" } },
        { "id": 5, "parent": 1, "name": "call_llm", "scope": "gcp.vertex.agent", "attributes": { "gcp.vertex.agent.llm_request": "{}", "gcp.vertex.agent.llm_response": "{}", "gen_ai.request.model": "gemini" } },
    ]));
    assert!(scene.readings[1].wrapper && !scene.readings[2].wrapper);
    // The inner span is the one that is measured, so it gets what only the wrapper recorded.
    assert_eq!(
        texts(&scene.readings[2].input)[..2],
        [(Role::System, "Be brief.".into()), (Role::User, "Hi".into())]
    );
    assert_eq!(texts(&scene.readings[2].output), [(Role::Assistant, "Done".into())]);
    assert_eq!(&*scene.readings[2].tools[0].name, "find");
    let tool = &scene.readings[3];
    assert_eq!((tool.call.as_ref().unwrap().id.clone(), tool.result.as_deref()), (None, Some("found")));
    assert_eq!(scene.readings[4].input_content, Content::Absent);
    assert_eq!(scene.readings[4].output_content, Content::Absent);
}

#[test]
fn absent_and_redacted_content_are_told_apart_from_each_other_and_from_empty() {
    let absent = one(json!({ "gen_ai.operation.name": "chat" }));
    assert_eq!((absent.input_content, absent.output_content), (Content::Absent, Content::Absent));
    let redacted = one(json!({
        "openinference.span.kind": "LLM", "input.value": "__REDACTED__", "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": "__REDACTED__",
    }));
    assert_eq!((redacted.input_content, redacted.output_content), (Content::Redacted, Content::Redacted));
    let tool = one(
        json!({ "openinference.span.kind": "TOOL", "tool.name": "t", "input.value": "[Scrubbed due to 'secret']" }),
    );
    assert_eq!((tool.input_content, tool.output_content), (Content::Redacted, Content::Absent));
    let empty = one(
        json!({ "gen_ai.operation.name": "chat", "gen_ai.output.messages": "[{\"role\":\"assistant\",\"parts\":[]}]" }),
    );
    assert_eq!(empty.output_content, Content::Present);
    let result = one(json!({ "gen_ai.operation.name": "execute_tool", "gen_ai.tool.call.result": "" }));
    assert_eq!(result.result, None);
}

#[test]
fn content_in_logs_is_joined_to_its_span() {
    let spans = json!([{ "id": 1, "name": "chat m", "attributes": { "gen_ai.operation.name": "chat" } }]);
    let logs = json!([
        { "span": 1, "event": "gen_ai.system.message", "body": { "content": "Be brief." } },
        { "span": 1, "event": "gen_ai.user.message", "body": { "content": "Hi" } },
        { "span": 1, "event": "gen_ai.tool.message", "body": { "id": "c1", "content": "found" } },
        { "span": 1, "event": "gen_ai.choice", "body": { "index": 0, "finish_reason": "stop", "message": { "content": "Hello" } } },
        { "span": 1, "event": "gen_ai.evaluation.result", "attributes": { "gen_ai.evaluation.name": "tone", "gen_ai.evaluation.score.value": 0.5, "gen_ai.evaluation.score.label": "ok" } },
        { "span": 1, "event": "gen_ai.client.operation.exception", "attributes": { "exception.type": "Timeout", "exception.message": "too slow" } },
        { "span": 9, "event": "gen_ai.choice", "body": { "message": { "content": "not ours" } } },
    ]);
    let scene = scene_with(&Overrides::default(), spans.clone(), logs);
    let reading = &scene.readings[0];
    assert_eq!(texts(&reading.input)[..2], [(Role::System, "Be brief.".into()), (Role::User, "Hi".into())]);
    assert!(matches!(&reading.input[2].parts[0], Part::Result { id: Some(id), .. } if &**id == "c1"));
    assert_eq!(texts(&reading.output), [(Role::Assistant, "Hello".into())]);
    assert_eq!(&*reading.finish[0], "stop");
    assert_eq!((&*reading.evaluations[0].name, reading.evaluations[0].score), ("tone", Some(0.5)));
    assert_eq!(reading.errors[0].message.as_deref(), Some("too slow"));
    let logs = json!([{ "span": 1, "event": "gen_ai.client.inference.operation.details", "attributes": {
        "gen_ai.input.messages": [{ "role": "user", "parts": [{ "type": "text", "content": "Hi" }] }],
        "gen_ai.system_instructions": [{ "type": "text", "content": "Be brief." }] } }]);
    let scene = scene_with(&Overrides::default(), spans, logs);
    assert_eq!(
        texts(&scene.readings[0].input),
        [(Role::System, "Be brief.".into()), (Role::User, "Hi".into())]
    );
}

#[test]
fn vercel_output_is_put_together_and_its_outer_span_is_the_agent() {
    let scene = scene_of(json!([
        { "id": 1, "name": "ai.generateText", "scope": "ai", "attributes": { "ai.operationId": "ai.generateText", "ai.prompt": "{\"system\":\"Be brief.\",\"prompt\":\"Hi\"}", "ai.response.text": "Hello", "ai.model.id": "m" } },
        { "id": 2, "parent": 1, "name": "ai.generateText.doGenerate", "scope": "ai", "attributes": { "ai.operationId": "ai.generateText.doGenerate", "ai.model.id": "m",
            "ai.response.text": "One moment", "ai.response.reasoning": "hm", "ai.response.toolCalls": "[{\"toolCallId\":\"c1\",\"toolName\":\"find\",\"input\":\"{}\"}]" } },
    ]));
    assert_eq!(kinds(&scene), [Kind::Agent, Kind::Llm]);
    let parts = &scene.readings[1].output[0].parts;
    assert!(matches!(parts.as_slice(), [Part::Text(_), Part::Reasoning(_), Part::Call(_)]), "{parts:?}");
    assert_eq!(scene.agents[0].task.as_deref(), Some("Hi"));
    assert_eq!(scene.calls.len(), 1);
    assert!(scene.calls[0].tool.is_none());
}

#[test]
fn a_wrapper_of_another_model_is_a_call_of_its_own() {
    let chat = |id: u64, parent: Value, model: &str| json!({ "id": id, "parent": parent, "name": "chat", "attributes": { "gen_ai.operation.name": "chat", "gen_ai.request.model": model, "gen_ai.usage.input_tokens": 1 } });
    let scene = scene_of(json!([
        chat(1, Value::Null, "large"),
        chat(2, json!(1), "small"),
        chat(3, Value::Null, "openai/gpt-x"),
        chat(4, json!(3), "gpt-x-2026-01-01")
    ]));
    assert_eq!(scene.readings.iter().map(|r| r.wrapper).collect::<Vec<_>>(), [false, false, true, false]);
}

#[test]
fn what_an_evaluator_does_is_never_judged() {
    let scene = scene_of(json!([
        { "id": 1, "name": "agent", "attributes": { "openinference.span.kind": "AGENT" } },
        { "id": 2, "parent": 1, "name": "eval", "attributes": { "openinference.span.kind": "EVALUATOR", "ai.observability.eval.metric_name": "tone", "ai.observability.eval.score": 1 } },
        { "id": 3, "parent": 2, "name": "http", "attributes": {} },
        { "id": 4, "parent": 3, "name": "judge", "attributes": { "openinference.span.kind": "LLM" } },
        { "id": 5, "parent": 1, "name": "call", "attributes": { "openinference.span.kind": "LLM", "evaluations.0.evaluation.name": "help", "evaluations.0.evaluation.score": 0.25, "evaluations.0.evaluation.label": "poor" } },
    ]));
    assert_eq!(kinds(&scene), [Kind::Agent, Kind::Evaluator, Kind::Evaluator, Kind::Evaluator, Kind::Llm]);
    assert_eq!(scene.agents[0].llms, [4]);
    assert_eq!(scene.readings[1].evaluations[0].score, Some(1.0));
    assert_eq!(scene.readings[4].evaluations[0].label.as_deref(), Some("poor"));
}

#[test]
fn a_parents_error_that_repeats_a_childs_is_not_its_own() {
    let failed = |id: u64, parent: Value, kind: &str, status: &str, class: &str, message: &str| {
        json!({ "id": id, "parent": parent, "name": "x", "status": status, "attributes": { "openinference.span.kind": kind },
            "events": [{ "name": "exception", "attributes": { "exception.type": class, "exception.message": message } }] })
    };
    let scene = scene_of(json!([
        failed(1, Value::Null, "AGENT", "AgentError('404 Not Found')Traceback", "m.AgentError", "while running: 404 Not Found"),
        { "id": 2, "parent": 1, "name": "x", "status": "", "attributes": { "openinference.span.kind": "CHAIN" } },
        failed(3, json!(2), "TOOL", "404 Not Found", "NotFound", "404 Not Found"),
        failed(4, Value::Null, "CHAIN", "no money left", "Budget", "no money left"),
        failed(5, json!(4), "TOOL", "500 oops", "ServerError", "500 oops"),
    ]));
    let own: Vec<bool> = scene.readings.iter().map(|r| !r.errors.is_empty()).collect();
    assert_eq!(own, [false, false, true, true, true]);
    assert_eq!(scene.readings[0].inherited_errors.len(), 2);
}

#[test]
fn error_signs_of_every_convention_are_seen() {
    for attributes in [
        json!({ "error.type": "timeout" }),
        json!({ "langfuse.observation.level": "ERROR", "langfuse.observation.status_message": "boom" }),
        json!({ "gen_ai.tool.status": "error" }),
        json!({ "gen_ai.tool.execution.success": false }),
        json!({ "gen_ai.task.status": "failure" }),
        json!({ "ai.observability.mcp.output_is_error": true }),
        json!({ "gen_ai.tool.call.result": { "isError": true, "content": [{ "type": "text", "text": "no such file" }] } }),
        json!({ "ai.response.finishReason": "error" }),
    ] {
        let mut attributes = attributes;
        attributes["gen_ai.operation.name"] = json!("execute_tool");
        assert_eq!(one(attributes.clone()).errors.len(), 1, "{attributes}");
    }
    let fine = one(
        json!({ "gen_ai.operation.name": "execute_tool", "gen_ai.tool.status": "success", "gen_ai.tool.execution.success": true, "langfuse.observation.level": "DEFAULT", "error.type": "" }),
    );
    assert_eq!(fine.errors, []);
}

#[test]
fn retries_and_cancellations_are_no_plain_failures() {
    let scene = scene_of(json!([
        { "id": 1, "name": "t", "status": "x", "attributes": { "gen_ai.operation.name": "execute_tool", "pydantic_ai.tool.retry.cause": "model_retry" } },
        { "id": 2, "name": "t", "status": "x", "attributes": { "gen_ai.operation.name": "execute_tool", "strands.cancellation.type": "user" } },
        { "id": 3, "name": "t", "status": "x", "attributes": { "gen_ai.operation.name": "execute_tool" }, "events": [{ "name": "exception", "attributes": { "exception.type": "asyncio.exceptions.CancelledError" } }] },
    ]));
    assert_eq!(scene.readings[0].errors[0].source, ErrorSource::Retry);
    assert!(scene.readings[1].cancelled && scene.readings[1].errors.is_empty());
    assert!(scene.readings[2].cancelled && scene.readings[2].errors.is_empty());
}

#[test]
fn calls_without_spans_are_made_of_messages() {
    let first = json!([{ "role": "assistant", "content": "", "tool_calls": [
        { "id": "b", "function": { "name": "find", "arguments": "{\"q\":1}" } }, { "id": "a", "function": { "name": "find", "arguments": "{\"q\":2}" } }] }]);
    let second = json!([{ "role": "user", "content": "Hi" }, first[0], { "role": "tool", "tool_call_id": "a", "content": "two" }, { "role": "tool", "tool_call_id": "b", "content": "one" }]);
    let scene = scene_of(json!([
        { "id": 1, "name": "POST /chat", "attributes": { "http.request.method": "POST" } },
        { "id": 2, "parent": 1, "name": "chat", "attributes": { "gen_ai.operation.name": "chat", "gen_ai.output.messages": first.to_string(), "gen_ai.tool.definitions": "[{\"name\":\"find\",\"parameters\":{\"type\":\"object\",\"properties\":{\"q\":{}}}}]" } },
        { "id": 3, "parent": 1, "name": "chat", "attributes": { "gen_ai.operation.name": "chat", "gen_ai.input.messages": second.to_string(), "gen_ai.output.messages": "[{\"role\":\"assistant\",\"content\":\"3\"}]" } },
    ]));
    let calls: Vec<_> = scene
        .calls
        .iter()
        .map(|c| (c.id.as_deref().unwrap(), c.result.as_deref(), c.llm, c.tool, c.definition.is_some()))
        .collect();
    assert_eq!(calls, [("b", Some("one"), Some(1), None, true), ("a", Some("two"), Some(1), None, true)]);
    // No AGENT span: the topmost span above the calls is the agent.
    assert_eq!((scene.agents.len(), scene.agents[0].at), (1, 0));
    assert_eq!((scene.agents[0].task.as_deref(), scene.agents[0].answer.as_deref()), (Some("Hi"), Some("3")));
    assert_eq!(scene.agents[0].calls, [0, 1]);
}

#[test]
fn tool_spans_are_linked_by_id_then_arguments_then_name() {
    let asks = json!([{ "role": "assistant", "tool_calls": [
        { "id": "c1", "function": { "name": "find", "arguments": "{\"q\":1}" } },
        { "id": "c2", "function": { "name": "find", "arguments": "{\"q\":2}" } },
        { "id": "c3", "function": { "name": "read", "arguments": "{\"page\":\"x\"}" } }] }]);
    let tool =
        |id: u64, attributes: Value| json!({ "id": id, "parent": 1, "name": "t", "attributes": attributes });
    let scene = scene_of(json!([
        { "id": 1, "name": "a", "attributes": { "openinference.span.kind": "AGENT" } },
        { "id": 2, "parent": 1, "name": "m", "attributes": { "openinference.span.kind": "LLM", "gen_ai.output.messages": asks.to_string(),
            "llm.tools.0.tool.json_schema": "{\"name\":\"read\",\"parameters\":{\"type\":\"object\",\"properties\":{\"page\":{\"type\":\"string\"}}}}" } },
        tool(3, json!({ "openinference.span.kind": "TOOL", "tool.name": "find", "input.value": "{\"q\": 2}" })),
        tool(4, json!({ "openinference.span.kind": "TOOL", "tool.name": "find", "input.value": "{\"q\": 9}", "tool_call.id": "c1" })),
        tool(5, json!({ "openinference.span.kind": "TOOL", "tool.name": "read", "input.value": "x" })),
    ]));
    let calls: Vec<_> =
        scene.calls.iter().map(|c| (c.tool, c.id.as_deref(), c.parsed.as_deref().cloned())).collect();
    assert_eq!(
        calls,
        [
            (Some(2), Some("c2"), Some(json!({ "q": 2 }))),
            (Some(3), Some("c1"), Some(json!({ "q": 9 }))),
            (Some(4), Some("c3"), Some(json!({ "page": "x" }))),
        ]
    );
}

#[test]
fn agents_under_tools_are_sub_agents_and_final_answer_tools_answer() {
    let scene = scene_of(json!([
        { "id": 1, "name": "Manager.run", "attributes": { "openinference.span.kind": "AGENT", "input.value": "{\"task\": \"How high?\", \"stream\": false}" } },
        { "id": 2, "parent": 1, "name": "m", "attributes": { "openinference.span.kind": "LLM", "llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": "Plan:\n1. Ask the searcher\n2. Answer" } },
        { "id": 3, "parent": 1, "name": "search_agent", "attributes": { "openinference.span.kind": "TOOL", "tool.name": "search_agent", "input.value": "{\"args\": [\"heights\"], \"kwargs\": {}}", "tool.parameters": "{\"task\": {\"type\": \"string\"}}" } },
        { "id": 4, "parent": 3, "name": "search_agent.run", "attributes": { "openinference.span.kind": "AGENT", "output.value": "5642 m" } },
        { "id": 5, "parent": 4, "name": "m", "attributes": { "openinference.span.kind": "LLM" } },
        { "id": 6, "parent": 1, "name": "FinalAnswerTool", "attributes": { "openinference.span.kind": "TOOL", "tool.name": "final_answer", "tool.parameters": "{\"answer\": {\"type\": \"any\"}}", "input.value": "{\"args\": [5642], \"kwargs\": {}}" } },
    ]));
    let [manager, searcher] = scene.agents.as_slice() else { panic!("{:?}", scene.agents) };
    assert_eq!(
        (manager.name.as_deref(), manager.task.as_deref(), manager.answer.as_deref()),
        (Some("Manager"), Some("How high?"), Some("5642"))
    );
    assert_eq!(manager.answer_at, Some(5));
    assert_eq!(
        (searcher.parent, searcher.answer.as_deref(), searcher.llms.as_slice()),
        (Some(0), Some("5642 m"), [4].as_slice())
    );
    assert_eq!(
        manager.plans[0].1.steps.iter().map(|s| &**s).collect::<Vec<_>>(),
        ["Ask the searcher", "Answer"]
    );
    assert_eq!(scene.calls[0].parsed.as_deref(), Some(&json!({ "task": "heights" })));
    assert_eq!(scene.owner, [Some(0), Some(0), Some(0), Some(1), Some(1), Some(0)]);
}

#[test]
fn later_calls_of_a_planning_tool_are_replans() {
    let todo = |items: &[&str]| {
        json!([{ "role": "assistant", "tool_calls": [{ "id": "c", "function": { "name": "TodoWrite", "arguments":
        json!({ "todos": items.iter().map(|i| json!({ "content": i })).collect::<Vec<_>>() }).to_string() } }] }]).to_string()
    };
    let chat = |id: u64, output: String| json!({ "id": id, "parent": 1, "name": "chat", "attributes": { "gen_ai.operation.name": "chat", "gen_ai.output.messages": output } });
    let scene = scene_of(json!([
        { "id": 1, "name": "a", "attributes": { "gen_ai.operation.name": "invoke_agent" } },
        chat(2, todo(&["look", "read"])), chat(3, todo(&["look", "ask", "read"])),
    ]));
    let plans: Vec<_> = scene.agents[0].plans.iter().map(|(at, p)| (*at, p.replan, p.steps.len())).collect();
    assert_eq!(plans, [(1, false, 2), (2, true, 3)]);
}

#[test]
fn what_answers_a_prompt_for_a_plan_is_a_plan_and_other_lists_are_only_on_request() {
    let spans = |prompt: &str| {
        json!([
            { "id": 1, "name": "a", "attributes": { "gen_ai.operation.name": "invoke_agent" } },
            { "id": 2, "parent": 1, "name": "chat", "attributes": { "gen_ai.operation.name": "chat",
                "gen_ai.input.messages": json!([{ "role": "user", "content": prompt }]).to_string(),
                "gen_ai.output.messages": "[{\"role\":\"assistant\",\"content\":\"1. look\\n2. read<end_plan>\\n3. no\"}]" } },
        ])
    };
    let steps = |scene: Scene| scene.agents[0].plans.first().map(|(_, p)| p.steps.len());
    assert_eq!(steps(scene_of(spans("Write a plan. After it, write the '<end_plan>' tag."))), Some(2));
    assert_eq!(steps(scene_of(spans("Which are the largest?"))), None);
    let overrides = Overrides { plan_heuristic: true, ..Overrides::default() };
    assert_eq!(steps(scene_with(&overrides, spans("Which are the largest?"), json!([]))), Some(3));
}

#[test]
fn a_plan_span_and_a_plan_in_the_state_are_plans_and_a_declared_graph_is_not() {
    let scene = scene_of(json!([
        { "id": 1, "name": "invoke_agent a", "attributes": { "gen_ai.operation.name": "invoke_agent", "gen_ai.workflow.nodes": ["model", "tools"],
            "output.value": "{\"plan\": [\"look\", \"read\"], \"answer\": \"x\"}" } },
        { "id": 2, "parent": 1, "name": "plan a", "attributes": { "gen_ai.operation.name": "plan" } },
        { "id": 3, "parent": 2, "name": "chat", "attributes": { "gen_ai.operation.name": "chat", "gen_ai.output.messages": "[{\"role\":\"assistant\",\"content\":\"1. think\\n2. act\\n3. rest\"}]" } },
    ]));
    let plans: Vec<_> = scene.agents[0].plans.iter().map(|(at, p)| (*at, p.steps.len())).collect();
    assert_eq!(plans, [(0, 2), (1, 3)]);
    assert_eq!(scene.readings[0].graph.as_ref().map(|g| g.steps.len()), Some(2));
}

#[test]
fn orphans_of_one_missing_parent_are_one_agents() {
    let scene = scene_of(json!([
        { "id": 2, "parent": 1, "name": "chat", "attributes": { "gen_ai.operation.name": "chat" } },
        { "id": 3, "parent": 1, "name": "t", "attributes": { "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "t" } },
        { "id": 4, "parent": 9, "name": "chat", "attributes": { "gen_ai.operation.name": "chat" } },
    ]));
    assert_eq!(scene.agents.len(), 1);
    assert_eq!(scene.owner, [Some(0), Some(0), None]);
}

#[test]
fn a_text_said_ten_times_is_one_allocation() {
    let chat = |id: u64| json!({ "id": id, "name": "chat", "attributes": { "gen_ai.operation.name": "chat", "gen_ai.input.messages": "[{\"role\":\"user\",\"content\":\"Hi\"}]" } });
    let scene = scene_of(json!([chat(1), chat(2)]));
    let text = |i: usize| match &scene.readings[i].input[0].parts[0] {
        Part::Text(text) => text.clone(),
        other => panic!("{other:?}"),
    };
    assert!(text(0).same(&text(1)));
    assert_eq!(scene.readings[0].service.as_deref(), Some("shop"));
    assert_eq!(scene.readings[0].duration_ms, Some(0.5));
}

#[test]
fn users_teach_their_own_names() {
    let overrides: Overrides = serde_json::from_value(json!({
        "kinds": [{ "key": "step.type", "values": { "think": "llm", "act*": "tool", "crew": "agent" }, "lifecycle": ["crew_made"] }],
        "fields": { "input": ["step.saw"], "output": ["step.said"], "tool_name": ["step.tool"], "arguments": ["step.args.*"], "result": ["step.got"], "agent_name": ["crew.member"], "tokens_input": ["step.cost.in"] },
        "flags": [{ "key": "step.ok", "values": ["no"] }],
        "planning_tools": ["sketch"],
    })).unwrap();
    let scene = scene_with(
        &overrides,
        json!([
            { "id": 1, "name": "x", "attributes": { "step.type": "crew", "crew.member": "Ann", "gen_ai.operation.name": "chat" } },
            { "id": 2, "parent": 1, "name": "x", "attributes": { "step.type": "THINK", "step.saw": "How high?", "step.said": "Let me see", "step.cost.in": "17" } },
            { "id": 3, "parent": 1, "name": "x", "attributes": { "step.type": "acting", "step.tool": "look", "step.args.q": "height", "step.args.n": 2, "step.got": "nothing", "step.ok": "no" } },
        ]),
        json!([]),
    );
    assert_eq!(kinds(&scene), [Kind::Agent, Kind::Llm, Kind::Tool]);
    assert_eq!(scene.agents[0].name.as_deref(), Some("Ann"));
    assert_eq!(scene.agents[0].task.as_deref(), Some("How high?"));
    assert_eq!(scene.readings[1].tokens.input, Some(17));
    assert_eq!(scene.calls[0].parsed.as_deref(), Some(&json!({ "q": "height", "n": 2 })));
    assert!(scene.calls[0].failed);
}

#[test]
fn precedence_chooses_between_conventions_and_typos_are_told() {
    let both = json!([{ "id": 1, "name": "x", "attributes": { "openinference.span.kind": "LLM", "llm.model_name": "theirs", "gen_ai.request.model": "ours" } }]);
    assert_eq!(scene_of(both.clone()).readings[0].model.as_deref(), Some("ours"));
    let overrides = Overrides { precedence: vec!["openinference".into()], ..Overrides::default() };
    assert_eq!(scene_with(&overrides, both, json!([])).readings[0].model.as_deref(), Some("theirs"));
    let overrides = Overrides { precedence: vec!["openinfrence".into()], ..Overrides::default() };
    let error = Recogniser::new(&overrides).unwrap_err();
    assert!(error.to_string().contains("openinference"), "{error}");
    let typo: Result<Overrides, _> = serde_json::from_value(json!({ "field": {} }));
    assert!(typo.is_err());
    let list: Overrides =
        serde_json::from_value(json!({ "fields": { "input": ["my.messages.#"] } })).unwrap();
    assert!(matches!(Recogniser::new(&list), Err(TableError::UnknownList { .. })));
}

#[test]
fn an_agents_span_that_names_a_model_is_no_model_call() {
    let chat = |id: u64| json!({ "id": id, "parent": 1, "name": "chat", "attributes": { "gen_ai.operation.name": "chat", "gen_ai.request.model": "m" } });
    let scene = scene_of(json!([
        { "id": 1, "name": "run", "attributes": { "gen_ai.request.model": "m", "gen_ai.agent.name": "a", "gen_ai.usage.input_tokens": 10 } },
        chat(2), chat(3),
    ]));
    assert_eq!(kinds(&scene), [Kind::Agent, Kind::Llm, Kind::Llm]);
}

#[test]
fn a_graph_node_called_agent_is_a_turn_of_the_agent_around_it() {
    let span = |id: u8, parent: Option<u8>, name: &str, attributes: Value| json!({ "id": id, "parent": parent, "name": name, "attributes": attributes });
    let kind = |kind: &str| json!({ "openinference.span.kind": kind });
    let asks = json!({
        "openinference.span.kind": "LLM",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "search",
    });
    let says = json!({
        "openinference.span.kind": "LLM",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": "836",
    });
    let searches = json!({ "openinference.span.kind": "TOOL", "tool.name": "search" });
    let scene = scene_of(json!([
        span(1, None, "research", kind("CHAIN")),
        span(2, Some(1), "agent", kind("AGENT")),
        span(3, Some(2), "model", asks.clone()),
        span(4, Some(1), "search", searches.clone()),
        span(5, Some(1), "agent", kind("AGENT")),
        span(6, Some(5), "model", says.clone()),
    ]));
    assert_eq!(kinds(&scene)[..2], [Kind::Agent, Kind::Chain]);
    assert_eq!((scene.agents.len(), scene.agents[0].answer.as_deref()), (1, Some("836")));
    assert_eq!((scene.agents[0].llms.len(), scene.calls[0].llm.is_some()), (2, true));

    // One that does its own work is an agent.
    let scene = scene_of(json!([
        span(1, None, "research", kind("AGENT")),
        span(2, Some(1), "agent", kind("AGENT")),
        span(3, Some(2), "model", asks),
        span(4, Some(2), "search", searches),
        span(5, Some(2), "model", says),
    ]));
    assert_eq!(scene.agents.iter().filter(|a| a.name.as_deref() == Some("agent")).count(), 1);
}

#[test]
fn llama_index_tool_outputs_are_what_their_blocks_say() {
    let tool = |failed: bool| {
        let output = json!({
            "blocks": [{ "text": "Error: no scheme" }], "tool_name": "visit", "raw_output": "Error: no scheme",
            "raw_input": { "args": [], "kwargs": { "url": "x" } }, "is_error": failed,
        });
        one(json!({
            "openinference.span.kind": "TOOL", "tool.name": "visit",
            "input.value": "{\"kwargs\": {\"url\": \"x\"}}", "output.value": output.to_string(),
        }))
    };
    assert_eq!(tool(false).result.as_deref(), Some("Error: no scheme"));
    assert!(tool(false).errors.is_empty() && !tool(true).errors.is_empty());
    let helper = "OpenAI._prepare_chat_with_tools";
    let marked = json!({ "openinference.span.kind": "LLM", "llm.model_name": "m" });
    assert_eq!(named(helper, "openinference.instrumentation.llama_index", marked), Kind::Chain);
}

#[test]
fn a_task_is_a_question_rather_than_the_settings_that_hold_it() {
    let run = |prompt: Value| {
        let settings = json!({ "agent": { "role": "researcher" }, "context": "How high?", "steps": 3 });
        let spans = json!([
            { "id": 1, "name": "run", "attributes": { "openinference.span.kind": "AGENT", "input.value": settings.to_string() } },
            { "id": 2, "parent": 1, "name": "model", "attributes": prompt },
        ]);
        scene_of(spans).agents[0].task.clone().unwrap().to_string()
    };
    let asked = run(json!({
        "openinference.span.kind": "LLM",
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": "Current task: How high?",
    }));
    assert_eq!(asked, "Current task: How high?");
    assert!(run(json!({ "openinference.span.kind": "LLM" })).starts_with("{\"agent\""));
}

#[test]
fn messages_of_which_only_the_frame_was_recorded_are_withheld_content() {
    let span = |input: Value, output: Value| {
        one(json!({
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": input.to_string(),
            "gen_ai.output.messages": output.to_string(),
        }))
    };
    let asked = json!([{ "role": "user", "parts": [{ "type": "text" }] }]);
    let calls =
        json!([{ "role": "assistant", "parts": [{ "type": "tool_call", "id": "c1", "name": "search" }] }]);
    let stripped = span(asked, calls);
    assert_eq!((stripped.input_content, stripped.output_content), (Content::Redacted, Content::Redacted));
    assert_eq!(stripped.requests().map(|r| r.name.to_string()).collect::<Vec<_>>(), ["search"]);
    // An empty answer is an answer that says nothing; it was not taken out.
    let said = json!([{ "role": "user", "parts": [{ "type": "text", "content": "Hi" }] }]);
    let empty = span(said, json!([{ "role": "assistant", "parts": [{ "type": "text", "content": "" }] }]));
    assert_eq!((empty.input_content, empty.output_content), (Content::Present, Content::Present));
}
