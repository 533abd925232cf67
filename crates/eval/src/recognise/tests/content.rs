//! Messages, calls, results and missing content in every convention.

use super::*;

fn texts(messages: &[Message]) -> Vec<(Role, String)> {
    messages.iter().map(|m| (m.role, plain(std::slice::from_ref(m)).into_owned())).collect()
}

#[test]
fn messages_of_every_provider_are_read_as_the_same_message() {
    let question = "How high?";
    let formats = [
        json!([{ "role": "user", "parts": [{ "type": "text", "content": question }] }]),
        json!([{ "role": "user", "content": question }]),
        json!([{ "role": "user", "content": [{ "type": "text", "text": question }] }]),
        json!([{ "role": "user", "content": [{ "text": question }] }]),
        json!([["user", question]]),
        json!({ "messages": [["human", question]] }),
        json!({ "messages": [[{ "lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "HumanMessage"], "kwargs": { "content": question, "type": "human" } }]] }),
        json!([{ "type": "human", "data": { "content": question } }]),
        json!([{ "type": "human", "content": question }]),
        json!({ "contents": [{ "role": "user", "parts": [{ "text": question }] }] }),
        json!({ "input": [{ "role": "user", "content": [{ "type": "input_text", "text": question }] }] }),
        json!({ "model": "m", "messages": [{ "role": "user", "content": question }] }),
        json!({ "inputs": { "messages": [["user", question]] }, "tags": [], "kwargs": { "name": "x" } }),
        json!({ "prompt": question }),
        json!({ "question": question }),
        json!({ "task": question, "stream": false }),
    ];
    for format in formats {
        for value in [format.clone(), json!(format.to_string()), json!(json!(format.to_string()).to_string())]
        {
            let view = view_of(json!({ "gen_ai.operation.name": "chat", "gen_ai.input.messages": value }));
            assert_eq!(texts(&view.input), [(Role::User, question.into())], "{format}");
            assert_eq!(view.input_content, Content::Present);
        }
    }
}

#[test]
fn tool_calls_and_results_of_every_provider_are_read_as_the_same_parts() {
    let arguments = json!({ "q": "x" });
    let formats = [
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
    for format in formats {
        let view =
            view_of(json!({ "gen_ai.operation.name": "chat", "gen_ai.input.messages": format.to_string() }));
        let [
            Message { role: Role::Assistant, parts: request_parts },
            Message { role: Role::Tool, parts: result_parts },
        ] = view.input.as_slice()
        else {
            panic!("{format}: {:?}", view.input);
        };
        let [Part::Call(call)] = request_parts.as_slice() else { panic!("{format}: {request_parts:?}") };
        assert_eq!((call.id.as_deref(), &*call.name), (Some("c1"), "find"), "{format}");
        assert_eq!(call.arguments.as_deref(), Some(r#"{"q":"x"}"#), "{format}");
        let [Part::Result { id, content, failed: false, .. }] = result_parts.as_slice() else {
            panic!("{format}: {result_parts:?}")
        };
        assert_eq!((id.as_deref(), &**content), (Some("c1"), "found"), "{format}");
    }
}

#[test]
fn failed_tool_message_is_marked_in_every_format() {
    for message in [
        json!({ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "c", "is_error": true, "content": "no" }] }),
        json!({ "role": "user", "content": [{ "toolResult": { "toolUseId": "c", "status": "error", "content": [{ "text": "no" }] } }] }),
        json!({ "role": "tool", "content": [{ "type": "tool-result", "toolCallId": "c", "toolName": "t", "output": { "type": "error-text", "value": "no" } }] }),
        json!({ "type": "tool", "data": { "content": "no", "tool_call_id": "c", "status": "error" } }),
    ] {
        let view = view_of(
            json!({ "gen_ai.operation.name": "chat", "gen_ai.input.messages": json!([message]).to_string() }),
        );
        let part = &view.input[0].parts[0];
        assert!(
            matches!(part, Part::Result { failed: true, content, .. } if &**content == "no"),
            "{message}: {part:?}"
        );
    }
}

#[test]
fn flattened_indexes_are_sorted_as_numbers_and_may_have_gaps() {
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
    let view = view_of(Value::Object(attributes));
    let input_texts: Vec<_> = texts(&view.input).into_iter().map(|(_, t)| t).collect();
    assert_eq!(input_texts, ["0", "2", "9", "10"]);
    let calls: Vec<_> =
        view.requests().map(|c| (c.name.to_string(), c.id.clone().unwrap().to_string())).collect();
    assert_eq!(calls, [("t3".into(), "c3".into()), ("t11".into(), "c11".into())]);
}

#[test]
fn openllmetry_is_read_in_its_old_and_new_format() {
    let old = view_of(json!({
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
    let tool = view_of(json!({
        "traceloop.span.kind": "tool", "traceloop.entity.name": "find",
        "traceloop.entity.input": "{\"input_str\": \"{'q': 'it''s'}\", \"tags\": [], \"inputs\": null, \"kwargs\": {}}",
        "traceloop.entity.output": "{\"output\": {\"lc\": 1, \"id\": [\"x\", \"ToolMessage\"], \"kwargs\": {\"content\": \"no\", \"status\": \"error\"}}, \"kwargs\": {}}",
    }));
    assert_eq!(&*tool.call.as_ref().unwrap().name, "find");
    assert_eq!(tool.result.as_deref(), Some("no"));
    assert_eq!(tool.errors[0].source, ErrorSource::Flag);
    let tool = view_of(json!({
        "traceloop.span.kind": "tool", "gen_ai.tool.name": "find",
        "gen_ai.tool.call.arguments": "{\"input_str\": \"{'q': 'x', 'n': None}\", \"tags\": [], \"kwargs\": {}}",
    }));
    assert_eq!(tool.call.unwrap().arguments.as_deref(), Some(r#"{"q":"x","n":null}"#));
    let decorated = view_of(
        json!({ "traceloop.span.kind": "tool", "traceloop.entity.input": "{\"args\": [], \"kwargs\": {\"q\": 1}}" }),
    );
    assert_eq!(decorated.call.unwrap().arguments.as_deref(), Some(r#"{"q":1}"#));
}

#[test]
fn google_adk_v1_is_read_from_its_request_and_response() {
    let request = json!({
        "model": "gemini", "config": { "system_instruction": "Be brief.", "tools": [{ "function_declarations": [{ "name": "find", "parameters": { "type": "OBJECT", "properties": { "q": { "type": "STRING" } } } }] }] },
        "contents": [{ "role": "user", "parts": [{ "text": "Hi" }] }, { "role": "model", "parts": [{ "function_call": { "name": "find", "args": { "q": "x" } } }] }, { "role": "user", "parts": [{ "function_response": { "name": "find", "response": { "result": "found" } } }] }]
    });
    let response =
        json!({ "content": { "role": "model", "parts": [{ "text": "Done" }] }, "finish_reason": "STOP" });
    let trace = trace_of(json!([
        { "id": 1, "name": "invoke_agent a", "scope": "gcp.vertex.agent", "attributes": {} },
        { "id": 2, "parent": 1, "name": "call_llm", "scope": "gcp.vertex.agent", "attributes": { "gcp.vertex.agent.llm_request": request.to_string(), "gcp.vertex.agent.llm_response": response.to_string(), "gen_ai.request.model": "gemini" } },
        { "id": 3, "parent": 2, "name": "generate_content gemini", "scope": "gcp.vertex.agent", "attributes": { "gen_ai.request.model": "gemini", "gen_ai.usage.input_tokens": 5 } },
        { "id": 4, "parent": 2, "name": "execute_tool find", "scope": "gcp.vertex.agent", "attributes": { "gen_ai.tool.name": "find", "gen_ai.tool.call.id": "<not specified>", "gcp.vertex.agent.tool_call_args": "{\"q\": \"x\"}", "gcp.vertex.agent.tool_response": "{\"result\": \"found\"}", "gcp.vertex.agent.llm_request": "{}" } },
        { "id": 5, "parent": 1, "name": "call_llm", "scope": "gcp.vertex.agent", "attributes": { "gcp.vertex.agent.llm_request": "{}", "gcp.vertex.agent.llm_response": "{}", "gen_ai.request.model": "gemini" } },
    ]));
    assert!(trace.views[1].wrapper && !trace.views[2].wrapper);
    // The inner span is measured, so the fields that only the wrapper recorded are copied to it.
    assert_eq!(
        texts(&trace.views[2].input)[..2],
        [(Role::System, "Be brief.".into()), (Role::User, "Hi".into())]
    );
    assert_eq!(texts(&trace.views[2].output), [(Role::Assistant, "Done".into())]);
    assert_eq!(&*trace.views[2].tools[0].name, "find");
    let tool = &trace.views[3];
    assert_eq!((tool.call.as_ref().unwrap().id.clone(), tool.result.as_deref()), (None, Some("found")));
    assert_eq!(trace.views[4].input_content, Content::Absent);
    assert_eq!(trace.views[4].output_content, Content::Absent);
}

#[test]
fn absent_redacted_and_empty_content_are_distinguished() {
    let absent = view_of(json!({ "gen_ai.operation.name": "chat" }));
    assert_eq!((absent.input_content, absent.output_content), (Content::Absent, Content::Absent));
    let redacted = view_of(json!({
        "openinference.span.kind": "LLM", "input.value": "__REDACTED__", "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": "__REDACTED__",
    }));
    assert_eq!((redacted.input_content, redacted.output_content), (Content::Redacted, Content::Redacted));
    let tool = view_of(
        json!({ "openinference.span.kind": "TOOL", "tool.name": "t", "input.value": "[Scrubbed due to 'secret']" }),
    );
    assert_eq!((tool.input_content, tool.output_content), (Content::Redacted, Content::Absent));
    let empty = view_of(
        json!({ "gen_ai.operation.name": "chat", "gen_ai.output.messages": "[{\"role\":\"assistant\",\"parts\":[]}]" }),
    );
    assert_eq!(empty.output_content, Content::Present);
    let result = view_of(json!({ "gen_ai.operation.name": "execute_tool", "gen_ai.tool.call.result": "" }));
    assert_eq!(result.result, None);
}

#[test]
fn content_in_log_records_is_joined_to_its_span() {
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
    let trace = trace_with(&Overrides::default(), spans.clone(), logs);
    let view = &trace.views[0];
    assert_eq!(texts(&view.input)[..2], [(Role::System, "Be brief.".into()), (Role::User, "Hi".into())]);
    assert!(matches!(&view.input[2].parts[0], Part::Result { id: Some(id), .. } if &**id == "c1"));
    assert_eq!(texts(&view.output), [(Role::Assistant, "Hello".into())]);
    assert_eq!(&*view.finish[0], "stop");
    assert_eq!((&*view.evaluations[0].name, view.evaluations[0].score), ("tone", Some(0.5)));
    assert_eq!(view.errors[0].message.as_deref(), Some("too slow"));
    let logs = json!([{ "span": 1, "event": "gen_ai.client.inference.operation.details", "attributes": {
        "gen_ai.input.messages": [{ "role": "user", "parts": [{ "type": "text", "content": "Hi" }] }],
        "gen_ai.system_instructions": [{ "type": "text", "content": "Be brief." }] } }]);
    let trace = trace_with(&Overrides::default(), spans, logs);
    assert_eq!(texts(&trace.views[0].input), [(Role::System, "Be brief.".into()), (Role::User, "Hi".into())]);
}

#[test]
fn vercel_output_is_combined_and_its_outer_span_is_the_agent() {
    let trace = trace_of(json!([
        { "id": 1, "name": "ai.generateText", "scope": "ai", "attributes": { "ai.operationId": "ai.generateText", "ai.prompt": "{\"system\":\"Be brief.\",\"prompt\":\"Hi\"}", "ai.response.text": "Hello", "ai.model.id": "m" } },
        { "id": 2, "parent": 1, "name": "ai.generateText.doGenerate", "scope": "ai", "attributes": { "ai.operationId": "ai.generateText.doGenerate", "ai.model.id": "m",
            "ai.response.text": "One moment", "ai.response.reasoning": "hm", "ai.response.toolCalls": "[{\"toolCallId\":\"c1\",\"toolName\":\"find\",\"input\":\"{}\"}]" } },
    ]));
    assert_eq!(kinds(&trace), [Kind::Agent, Kind::Llm]);
    let parts = &trace.views[1].output[0].parts;
    assert!(matches!(parts.as_slice(), [Part::Text(_), Part::Reasoning(_), Part::Call(_)]), "{parts:?}");
    assert_eq!(trace.agents[0].task.as_deref(), Some("Hi"));
    assert_eq!(trace.calls.len(), 1);
    assert!(trace.calls[0].tool.is_none());
}

#[test]
fn repeated_text_is_one_allocation() {
    let chat = |id: u64| json!({ "id": id, "name": "chat", "attributes": { "gen_ai.operation.name": "chat", "gen_ai.input.messages": "[{\"role\":\"user\",\"content\":\"Hi\"}]" } });
    let trace = trace_of(json!([chat(1), chat(2)]));
    let text = |i: usize| match &trace.views[i].input[0].parts[0] {
        Part::Text(text) => text.clone(),
        other => panic!("{other:?}"),
    };
    assert!(text(0).ptr_eq(&text(1)));
    assert_eq!(trace.views[0].service.as_deref(), Some("shop"));
    assert_eq!(trace.views[0].duration_ms, Some(0.5));
}

#[test]
fn llama_index_tool_output_is_the_text_of_its_blocks() {
    let tool = |failed: bool| {
        let output = json!({
            "blocks": [{ "text": "Error: no scheme" }], "tool_name": "visit", "raw_output": "Error: no scheme",
            "raw_input": { "args": [], "kwargs": { "url": "x" } }, "is_error": failed,
        });
        view_of(json!({
            "openinference.span.kind": "TOOL", "tool.name": "visit",
            "input.value": "{\"kwargs\": {\"url\": \"x\"}}", "output.value": output.to_string(),
        }))
    };
    assert_eq!(tool(false).result.as_deref(), Some("Error: no scheme"));
    assert!(tool(false).errors.is_empty() && !tool(true).errors.is_empty());
    let helper = "OpenAI._prepare_chat_with_tools";
    let marked = json!({ "openinference.span.kind": "LLM", "llm.model_name": "m" });
    assert_eq!(kind_of_named(helper, "openinference.instrumentation.llama_index", marked), Kind::Chain);
}

#[test]
fn task_is_the_question_and_not_the_settings_that_contain_it() {
    let task_with = |prompt: Value| {
        let settings = json!({ "agent": { "role": "researcher" }, "context": "How high?", "steps": 3 });
        let spans = json!([
            { "id": 1, "name": "run", "attributes": { "openinference.span.kind": "AGENT", "input.value": settings.to_string() } },
            { "id": 2, "parent": 1, "name": "model", "attributes": prompt },
        ]);
        trace_of(spans).agents[0].task.clone().unwrap().to_string()
    };
    let task = task_with(json!({
        "openinference.span.kind": "LLM",
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": "Current task: How high?",
    }));
    assert_eq!(task, "Current task: How high?");
    assert!(task_with(json!({ "openinference.span.kind": "LLM" })).starts_with("{\"agent\""));
}

#[test]
fn messages_recorded_without_content_count_as_redacted() {
    let span = |input: Value, output: Value| {
        view_of(json!({
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": input.to_string(),
            "gen_ai.output.messages": output.to_string(),
        }))
    };
    let prompt_without_text = json!([{ "role": "user", "parts": [{ "type": "text" }] }]);
    let calls_without_arguments =
        json!([{ "role": "assistant", "parts": [{ "type": "tool_call", "id": "c1", "name": "search" }] }]);
    let without_content = span(prompt_without_text, calls_without_arguments);
    assert_eq!(
        (without_content.input_content, without_content.output_content),
        (Content::Redacted, Content::Redacted)
    );
    assert_eq!(without_content.requests().map(|r| r.name.to_string()).collect::<Vec<_>>(), ["search"]);
    let part = json!({ "type": "generic", "generic_type": "chart", "stripped_reason": "size_exceeded", "byte_size": 9 });
    let with_omitted_part = span(json!([{ "role": "user", "parts": [part] }]), json!([]));
    assert_eq!(
        (with_omitted_part.input_content, with_omitted_part.input.iter().flat_map(|m| &m.parts).count()),
        (Content::Redacted, 0)
    );
    // References to content that is recorded in another place.
    let contents_with = |more: Value| {
        let mut span = json!({ "gen_ai.operation.name": "chat" });
        span.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let view = view_of(span);
        (view.input_content, view.output_content)
    };
    assert_eq!(
        contents_with(
            json!({ "gen_ai.input.messages_ref": "s3://b/i", "gen_ai.output.messages_ref": "s3://b/o" })
        ),
        (Content::Redacted, Content::Redacted)
    );
    let prompt = json!([{ "role": "user", "parts": [{ "type": "text", "content": "Hi" }] }]).to_string();
    assert_eq!(
        contents_with(json!({ "gen_ai.input.messages": prompt, "gen_ai.input.messages_ref": "s3://b/i" })),
        (Content::Present, Content::Absent)
    );
    assert_eq!(
        contents_with(
            json!({ "gen_ai.input.messages": prompt, "gen_ai.system_instructions_ref": "s3://b/s" })
        ),
        (Content::Redacted, Content::Absent)
    );
    assert_eq!(contents_with(json!({})), (Content::Absent, Content::Absent));
    // An answer that is empty, and not redacted, was recorded.
    let prompt = json!([{ "role": "user", "parts": [{ "type": "text", "content": "Hi" }] }]);
    let empty = span(prompt, json!([{ "role": "assistant", "parts": [{ "type": "text", "content": "" }] }]));
    assert_eq!((empty.input_content, empty.output_content), (Content::Present, Content::Present));
}

#[test]
fn operations_and_usage_of_later_conventions_are_read() {
    let kind = |operation: &str| view_of(json!({ "gen_ai.operation.name": operation })).kind;
    for (operation, expected) in [
        ("generate_live_content", Kind::Llm),
        ("realtime_inference", Kind::Llm),
        ("handle_conversation_turn", Kind::Agent),
        ("run_step", Kind::Chain),
        ("run_guardrail", Kind::Guardrail),
        ("apply_guardrail", Kind::Guardrail),
        ("user_speech", Kind::Prompt),
        ("load_skill", Kind::Tool),
        ("read_skill_resource", Kind::Tool),
    ] {
        assert_eq!(kind(operation), expected, "{operation}");
    }
    let usage_view = view_of(json!({
        "gen_ai.operation.name": "chat", "gen_ai.usage.cache_write.input_tokens": 7,
        "gen_ai.usage.cost.amount": 0.25, "gen_ai.usage.cost.currency": "USD",
    }));
    assert_eq!((usage_view.tokens.cache_write, usage_view.cost), (Some(7), Some(0.25)));
    let older_key = json!({ "gen_ai.operation.name": "chat", "gen_ai.usage.cache_creation.input_tokens": 8 });
    assert_eq!(view_of(older_key).tokens.cache_write, Some(8));
    let is_cancelled = |decision: &str| {
        view_of(json!({ "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "rm", "gen_ai.tool.call.decision": decision })).cancelled
    };
    assert_eq!(
        [is_cancelled("deny"), is_cancelled("allow")],
        [true, false],
        "a denied call is cancelled, not failed"
    );
    let workflow =
        view_of(json!({ "gen_ai.operation.name": "invoke_workflow", "gen_ai.workflow.name": "refunds" }));
    assert_eq!(workflow.agent.as_deref(), Some("refunds"));
    let euros = json!({
        "gen_ai.operation.name": "chat", "gen_ai.usage.cost.amount": 1, "gen_ai.usage.cost.currency": "EUR",
    });
    assert_eq!(view_of(euros).cost, None);
}

#[test]
fn names_users_and_endings_of_other_conventions_are_read() {
    let kind_by_name =
        |name: &str| trace_of(json!([{ "id": 1, "name": name, "attributes": {} }])).views[0].kind;
    assert_eq!(
        (kind_by_name("retrieval docs"), kind_by_name("run_guardrail pii")),
        (Kind::Retriever, Kind::Guardrail)
    );
    for key in
        ["user.id", "langfuse.user.id", "traceloop.association.properties.user_id", "mlflow.trace.user"]
    {
        let view = view_of(json!({ "gen_ai.operation.name": "chat", key: "u-1" }));
        assert_eq!(view.user.as_deref(), Some("u-1"), "{key}");
    }
    let openinference = view_of(json!({ "openinference.span.kind": "LLM", "user.id": "u-1" }));
    assert_eq!(openinference.user.as_deref(), Some("u-1"));
    let main = view_of(json!({ "gen_ai.operation.name": "invoke_agent", "gen_ai.main_agent.name": "boss" }));
    assert_eq!(main.agent.as_deref(), Some("boss"));
    let live = view_of(json!({ "gen_ai.operation.name": "chat", "gen_ai.live_session.id": "s-1" }));
    assert_eq!(live.session.as_deref(), Some("s-1"));
    let errors_by_exit_code = |code: i64| {
        view_of(json!({ "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "sh", "process.exit.code": code }))
            .errors
            .len()
    };
    assert_eq!([errors_by_exit_code(0), errors_by_exit_code(2)], [0, 1]);
    for (key, error, cancelled) in [
        ("gen_ai.agent.invocation.status", "failed", "cancelled"),
        ("gen_ai.agent.finish_reason", "tool_failure", "cancelled"),
        ("gen_ai.agent.invocation.end_reason", "error", "interrupted"),
    ] {
        let state_after = |value: &str| {
            let view = view_of(json!({ "gen_ai.operation.name": "invoke_agent", key: value }));
            (view.errors.len(), view.cancelled)
        };
        assert_eq!(
            [state_after("completed"), state_after(error), state_after(cancelled)],
            [(0, false), (1, false), (0, true)],
            "{key}"
        );
    }
    let delta = json!([{ "role": "user", "parts": [{ "type": "text", "content": "Hi" }] }]);
    let delta = view_of(json!({ "gen_ai.operation.name": "chat", "gen_ai.input.messages_delta": delta }));
    assert_eq!(texts(&delta.input), [(Role::User, "Hi".into())]);
}

#[test]
fn prompt_whose_flattened_form_lacks_content_is_read_from_its_json() {
    // openinference-instrumentation-langchain 4.1.1 (JavaScript) flattens no lists of blocks.
    let message = |class: &str, content: Value| json!({ "lc": 1, "id": ["messages", class], "kwargs": { "content": content } });
    let prompt = json!({ "messages": [[
        message("SystemMessage", json!([{ "type": "text", "text": "You search." }])),
        message("HumanMessage", json!("How high?")),
    ]] });
    let view = view_of(json!({
        "openinference.span.kind": "LLM", "input.value": prompt.to_string(),
        "llm.input_messages.0.message.role": "system",
        "llm.input_messages.1.message.role": "user", "llm.input_messages.1.message.content": "How high?",
    }));
    let texts: Vec<_> =
        view.input.iter().map(|m| (m.role, plain(std::slice::from_ref(m)).into_owned())).collect();
    assert_eq!(texts, [(Role::System, "You search.".into()), (Role::User, "How high?".into())]);
}

#[test]
fn answer_has_no_instructions_and_calls_the_id_that_their_results_name() {
    let output = json!({ "object": "response", "instructions": "You search.", "output": [
        { "type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "search", "arguments": "{}" }] });
    let view = view_of(json!({ "openinference.span.kind": "LLM", "output.value": output.to_string() }));
    assert_eq!(view.output.len(), 1);
    assert_eq!(view.requests().next().unwrap().id.as_deref(), Some("call_1"));
}
