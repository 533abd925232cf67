//! Kinds, errors, calls, agents and plans: spans written for one convention or edge case each.

use super::*;

/// The kind of one span with these attributes.
fn kind_of(attributes: Value) -> Kind {
    kind_of_named("span", "", attributes)
}

#[test]
fn attributes_of_every_convention_determine_the_kind() {
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
        (json!({ "gen_ai.step.name": "draft" }), Kind::Chain),
        (json!({ "gen_ai.step.name": "draft", "gen_ai.request.model": "m" }), Kind::Llm),
        (json!({ "gen_ai.step.name": "draft", "gen_ai.tool.name": "search" }), Kind::Tool),
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
fn span_name_determines_the_kind_without_attributes() {
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
        assert_eq!(kind_of_named(name, scope, json!({})), kind, "{name} in {scope}");
    }
}

#[test]
fn outer_span_with_another_model_is_no_wrapper() {
    let chat = |id: u64, parent: Value, model: &str| json!({ "id": id, "parent": parent, "name": "chat", "attributes": { "gen_ai.operation.name": "chat", "gen_ai.request.model": model, "gen_ai.usage.input_tokens": 1 } });
    let trace = trace_of(json!([
        chat(1, Value::Null, "large"),
        chat(2, json!(1), "small"),
        chat(3, Value::Null, "openai/gpt-x"),
        chat(4, json!(3), "gpt-x-2026-01-01")
    ]));
    assert_eq!(trace.views.iter().map(|r| r.wrapper).collect::<Vec<_>>(), [false, false, true, false]);
}

#[test]
fn spans_below_an_evaluator_have_its_kind_and_belong_to_no_agent() {
    let trace = trace_of(json!([
        { "id": 1, "name": "agent", "attributes": { "openinference.span.kind": "AGENT" } },
        { "id": 2, "parent": 1, "name": "eval", "attributes": { "openinference.span.kind": "EVALUATOR", "ai.observability.eval.metric_name": "tone", "ai.observability.eval.score": 1 } },
        { "id": 3, "parent": 2, "name": "http", "attributes": {} },
        { "id": 4, "parent": 3, "name": "judge", "attributes": { "openinference.span.kind": "LLM" } },
        { "id": 5, "parent": 1, "name": "call", "attributes": { "openinference.span.kind": "LLM", "evaluations.0.evaluation.name": "help", "evaluations.0.evaluation.score": 0.25, "evaluations.0.evaluation.label": "poor" } },
    ]));
    assert_eq!(kinds(&trace), [Kind::Agent, Kind::Evaluator, Kind::Evaluator, Kind::Evaluator, Kind::Llm]);
    assert_eq!(trace.agents[0].llms, [4]);
    assert_eq!(trace.views[1].evaluations[0].score, Some(1.0));
    assert_eq!(trace.views[4].evaluations[0].label.as_deref(), Some("poor"));
}

#[test]
fn error_that_repeats_the_error_of_a_child_is_inherited() {
    let failed = |id: u64, parent: Value, kind: &str, status: &str, class: &str, message: &str| {
        json!({ "id": id, "parent": parent, "name": "x", "status": status, "attributes": { "openinference.span.kind": kind },
            "events": [{ "name": "exception", "attributes": { "exception.type": class, "exception.message": message } }] })
    };
    let trace = trace_of(json!([
        failed(1, Value::Null, "AGENT", "AgentError('404 Not Found')Traceback", "m.AgentError", "while running: 404 Not Found"),
        { "id": 2, "parent": 1, "name": "x", "status": "", "attributes": { "openinference.span.kind": "CHAIN" } },
        failed(3, json!(2), "TOOL", "404 Not Found", "NotFound", "404 Not Found"),
        failed(4, Value::Null, "CHAIN", "no money left", "Budget", "no money left"),
        failed(5, json!(4), "TOOL", "500 oops", "ServerError", "500 oops"),
    ]));
    let has_errors: Vec<bool> = trace.views.iter().map(|r| !r.errors.is_empty()).collect();
    assert_eq!(has_errors, [false, false, true, true, true]);
    assert_eq!(trace.views[0].inherited_errors.len(), 2);
}

#[test]
fn error_signs_of_every_convention_are_found() {
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
        assert_eq!(view_of(attributes.clone()).errors.len(), 1, "{attributes}");
    }
    let succeeded = view_of(
        json!({ "gen_ai.operation.name": "execute_tool", "gen_ai.tool.status": "success", "gen_ai.tool.execution.success": true, "langfuse.observation.level": "DEFAULT", "error.type": "" }),
    );
    assert_eq!(succeeded.errors, []);
}

#[test]
fn retries_are_marked_and_cancellations_are_no_errors() {
    let trace = trace_of(json!([
        { "id": 1, "name": "t", "status": "x", "attributes": { "gen_ai.operation.name": "execute_tool", "pydantic_ai.tool.retry.cause": "model_retry" } },
        { "id": 2, "name": "t", "status": "x", "attributes": { "gen_ai.operation.name": "execute_tool", "strands.cancellation.type": "user" } },
        { "id": 3, "name": "t", "status": "x", "attributes": { "gen_ai.operation.name": "execute_tool" }, "events": [{ "name": "exception", "attributes": { "exception.type": "asyncio.exceptions.CancelledError" } }] },
    ]));
    assert_eq!(trace.views[0].errors[0].source, ErrorSource::Retry);
    assert!(trace.views[1].cancelled && trace.views[1].errors.is_empty());
    assert!(trace.views[2].cancelled && trace.views[2].errors.is_empty());
}

#[test]
fn link_from_a_retry_marks_the_errors_of_the_earlier_attempt() {
    let error_sources = |links: Value| {
        let tool = |id: u64, status: Value, links: Value| json!({ "id": id, "name": "t", "status": status, "links": links, "attributes": { "gen_ai.operation.name": "execute_tool" } });
        let trace = trace_of(json!([tool(1, json!("x"), json!([])), tool(2, json!("y"), links)]));
        trace.views.iter().map(|view| view.errors[0].source).collect::<Vec<_>>()
    };
    let link =
        |to: u64, kind: &str| json!({ "to": to, "attributes": { "gen_ai.attribution.link_type": kind } });
    let (first, last) = (ErrorSource::Retry, ErrorSource::Status);
    assert_eq!(
        error_sources(json!([link(1, "RETRY_OF")])),
        [first, last],
        "the last attempt failed for good"
    );
    assert_eq!(error_sources(json!([link(1, "INFORMED_BY"), link(1, "RETRY_OF")])), [first, last]);
    for other in
        [json!([link(1, "CAUSED_BY_GENERATION")]), json!([link(9, "RETRY_OF")]), json!([{ "to": 1 }])]
    {
        assert_eq!(error_sources(other.clone()), [last, last], "{other}");
    }
}

#[test]
fn remote_agents_and_hand_offs_have_kinds_and_failed_tasks_are_errors() {
    let call_view =
        |method: &str, state: &str| view_of(json!({ "a2a.method.name": method, "a2a.task.state": state }));
    for (method, kind) in [
        ("SendMessage", Kind::Agent),
        ("SendStreamingMessage", Kind::Agent),
        ("message/send", Kind::Agent),
        ("GetTask", Kind::Chain),
    ] {
        assert_eq!(call_view(method, "TASK_STATE_COMPLETED").kind, kind, "{method}");
    }
    for (state, errors) in [
        ("TASK_STATE_FAILED", 1),
        ("rejected", 1),
        ("TASK_STATE_COMPLETED", 0),
        ("TASK_STATE_INPUT_REQUIRED", 0),
        ("canceled", 0),
    ] {
        assert_eq!(call_view("SendMessage", state).errors.len(), errors, "{state}");
    }
    let operation = json!({ "gen_ai.operation.name": "invoke_agent", "a2a.method.name": "GetTask" });
    assert_eq!(view_of(operation).kind, Kind::Agent);
    let handoff = json!({ "gen_ai.agent.handoff.source.name": "triage", "gen_ai.agent.handoff.target.name": "billing" });
    let handoff = view_of(handoff);
    assert_eq!((handoff.kind, handoff.agent.as_deref()), (Kind::Tool, Some("triage")));
    assert_eq!(kind_of_named("create_agent planner", "", json!({ "gen_ai.agent.id": "1" })), Kind::Chain);
    assert_eq!(kind_of_named("chat m", "", json!({ "gen_ai.step.name": "draft" })), Kind::Llm);
}

#[test]
fn version_is_that_of_the_agent_or_of_its_service() {
    let version = |attributes: Value| {
        let trace = trace_of(json!([{ "id": 1, "name": "run", "attributes": attributes }]));
        trace.version(0).map(str::to_owned)
    };
    assert_eq!(version(json!({ "gen_ai.agent.version": "2.1" })).as_deref(), Some("2.1"));
    assert_eq!(version(json!({})).as_deref(), Some("0.9"), "of the resource");
}

#[test]
fn calls_without_tool_spans_are_read_from_messages() {
    let first = json!([{ "role": "assistant", "content": "", "tool_calls": [
        { "id": "b", "function": { "name": "find", "arguments": "{\"q\":1}" } }, { "id": "a", "function": { "name": "find", "arguments": "{\"q\":2}" } }] }]);
    let second = json!([{ "role": "user", "content": "Hi" }, first[0], { "role": "tool", "tool_call_id": "a", "content": "two" }, { "role": "tool", "tool_call_id": "b", "content": "one" }]);
    let trace = trace_of(json!([
        { "id": 1, "name": "POST /chat", "attributes": { "http.request.method": "POST" } },
        { "id": 2, "parent": 1, "name": "chat", "attributes": { "gen_ai.operation.name": "chat", "gen_ai.output.messages": first.to_string(), "gen_ai.tool.definitions": "[{\"name\":\"find\",\"parameters\":{\"type\":\"object\",\"properties\":{\"q\":{}}}}]" } },
        { "id": 3, "parent": 1, "name": "chat", "attributes": { "gen_ai.operation.name": "chat", "gen_ai.input.messages": second.to_string(), "gen_ai.output.messages": "[{\"role\":\"assistant\",\"content\":\"3\"}]" } },
    ]));
    let calls: Vec<_> = trace
        .calls
        .iter()
        .map(|c| (c.id.as_deref().unwrap(), c.result.as_deref(), c.llm, c.tool, c.definition.is_some()))
        .collect();
    assert_eq!(calls, [("b", Some("one"), Some(1), None, true), ("a", Some("two"), Some(1), None, true)]);
    // Without an AGENT span, the topmost span above the calls is the agent.
    assert_eq!((trace.agents.len(), trace.agents[0].at), (1, 0));
    assert_eq!((trace.agents[0].task.as_deref(), trace.agents[0].answer.as_deref()), (Some("Hi"), Some("3")));
    assert_eq!(trace.agents[0].calls, [0, 1]);
}

#[test]
fn result_with_a_reused_id_belongs_to_the_request_that_it_follows() {
    let call =
        |q: &str| json!({ "type": "tool_call", "id": "call_0", "name": "find", "arguments": { "q": q } });
    let request = |q: &str| json!({ "role": "assistant", "parts": [call(q)] });
    let result = |r: &str| json!({ "role": "tool", "parts": [{ "type": "tool_call_response", "id": "call_0", "response": r }] });
    let user = json!({ "role": "user", "parts": [{ "type": "text", "content": "Go." }] });
    let span = |id: u64, input: Value, output: Value| {
        json!({ "id": id, "parent": 1, "name": "chat", "attributes": {
            "gen_ai.operation.name": "chat", "gen_ai.input.messages": input, "gen_ai.output.messages": output } })
    };
    let root = json!({ "id": 1, "name": "run", "attributes": { "gen_ai.operation.name": "invoke_agent" } });
    let final_output = json!([{ "role": "assistant", "parts": [{ "type": "text", "content": "Done." }] }]);
    let results = |spans: Value| -> Vec<Option<String>> {
        trace_of(spans).calls.iter().map(|c| c.result.as_deref().map(str::to_owned)).collect()
    };
    let full_history = json!([
        root,
        span(2, json!([user, request("old"), result("of an earlier run")]), json!([request("a")])),
        span(
            3,
            json!([user, request("old"), result("of an earlier run"), request("a"), result("1")]),
            json!([request("b")])
        ),
        span(4, json!([user, request("a"), result("1"), request("b"), result("2")]), json!([request("c")])),
        span(
            5,
            json!([user, request("a"), result("1"), request("b"), result("2"), request("c")]),
            final_output.clone()
        ),
    ]);
    assert_eq!(results(full_history), [Some("1".into()), Some("2".into()), None]);
    let shortened_history = json!([
        root,
        span(2, json!([user]), json!([request("a")])),
        span(3, json!([user, request("a"), result("1")]), json!([request("b")])),
        span(4, json!([user, request("b"), result("2")]), final_output),
    ]);
    assert_eq!(results(shortened_history), [Some("1".into()), Some("2".into())]);
}

#[test]
fn tool_spans_are_matched_by_id_then_arguments_then_name() {
    let requests = json!([{ "role": "assistant", "tool_calls": [
        { "id": "c1", "function": { "name": "find", "arguments": "{\"q\":1}" } },
        { "id": "c2", "function": { "name": "find", "arguments": "{\"q\":2}" } },
        { "id": "c3", "function": { "name": "read", "arguments": "{\"page\":\"x\"}" } }] }]);
    let tool =
        |id: u64, attributes: Value| json!({ "id": id, "parent": 1, "name": "t", "attributes": attributes });
    let trace = trace_of(json!([
        { "id": 1, "name": "a", "attributes": { "openinference.span.kind": "AGENT" } },
        { "id": 2, "parent": 1, "name": "m", "attributes": { "openinference.span.kind": "LLM", "gen_ai.output.messages": requests.to_string(),
            "llm.tools.0.tool.json_schema": "{\"name\":\"read\",\"parameters\":{\"type\":\"object\",\"properties\":{\"page\":{\"type\":\"string\"}}}}" } },
        tool(3, json!({ "openinference.span.kind": "TOOL", "tool.name": "find", "input.value": "{\"q\": 2}" })),
        tool(4, json!({ "openinference.span.kind": "TOOL", "tool.name": "find", "input.value": "{\"q\": 9}", "tool_call.id": "c1" })),
        tool(5, json!({ "openinference.span.kind": "TOOL", "tool.name": "read", "input.value": "x" })),
    ]));
    let calls: Vec<_> =
        trace.calls.iter().map(|c| (c.tool, c.id.as_deref(), c.parsed.as_deref().cloned())).collect();
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
fn agent_below_a_tool_is_a_sub_agent_and_a_final_answer_tool_contains_the_answer() {
    let trace = trace_of(json!([
        { "id": 1, "name": "Manager.run", "attributes": { "openinference.span.kind": "AGENT", "input.value": "{\"task\": \"How high?\", \"stream\": false}" } },
        { "id": 2, "parent": 1, "name": "m", "attributes": { "openinference.span.kind": "LLM", "llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": "Plan:\n1. Ask the searcher\n2. Answer" } },
        { "id": 3, "parent": 1, "name": "search_agent", "attributes": { "openinference.span.kind": "TOOL", "tool.name": "search_agent", "input.value": "{\"args\": [\"heights\"], \"kwargs\": {}}", "tool.parameters": "{\"task\": {\"type\": \"string\"}}" } },
        { "id": 4, "parent": 3, "name": "search_agent.run", "attributes": { "openinference.span.kind": "AGENT", "output.value": "5642 m" } },
        { "id": 5, "parent": 4, "name": "m", "attributes": { "openinference.span.kind": "LLM" } },
        { "id": 6, "parent": 1, "name": "FinalAnswerTool", "attributes": { "openinference.span.kind": "TOOL", "tool.name": "final_answer", "tool.parameters": "{\"answer\": {\"type\": \"any\"}}", "input.value": "{\"args\": [5642], \"kwargs\": {}}" } },
    ]));
    let [manager, searcher] = trace.agents.as_slice() else { panic!("{:?}", trace.agents) };
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
    assert_eq!(trace.calls[0].parsed.as_deref(), Some(&json!({ "task": "heights" })));
    assert_eq!(trace.owner, [Some(0), Some(0), Some(0), Some(1), Some(1), Some(0)]);
}

#[test]
fn later_calls_of_a_planning_tool_are_replans() {
    let todo_call = |items: &[&str]| {
        json!([{ "role": "assistant", "tool_calls": [{ "id": "c", "function": { "name": "TodoWrite", "arguments":
        json!({ "todos": items.iter().map(|i| json!({ "content": i })).collect::<Vec<_>>() }).to_string() } }] }]).to_string()
    };
    let chat = |id: u64, output: String| json!({ "id": id, "parent": 1, "name": "chat", "attributes": { "gen_ai.operation.name": "chat", "gen_ai.output.messages": output } });
    let trace = trace_of(json!([
        { "id": 1, "name": "a", "attributes": { "gen_ai.operation.name": "invoke_agent" } },
        chat(2, todo_call(&["look", "read"])), chat(3, todo_call(&["look", "ask", "read"])),
    ]));
    let plans: Vec<_> =
        trace.agents[0].plans.iter().map(|(span, p)| (*span, p.replan, p.steps.len())).collect();
    assert_eq!(plans, [(1, false, 2), (2, true, 3)]);
}

#[test]
fn list_is_a_plan_if_the_prompt_asks_for_one_or_the_heuristic_is_enabled() {
    let spans = |prompt: &str| {
        json!([
            { "id": 1, "name": "a", "attributes": { "gen_ai.operation.name": "invoke_agent" } },
            { "id": 2, "parent": 1, "name": "chat", "attributes": { "gen_ai.operation.name": "chat",
                "gen_ai.input.messages": json!([{ "role": "user", "content": prompt }]).to_string(),
                "gen_ai.output.messages": "[{\"role\":\"assistant\",\"content\":\"1. look\\n2. read<end_plan>\\n3. no\"}]" } },
        ])
    };
    let steps = |trace: AgentTrace| trace.agents[0].plans.first().map(|(_, p)| p.steps.len());
    assert_eq!(steps(trace_of(spans("Write a plan. After it, write the '<end_plan>' tag."))), Some(2));
    assert_eq!(steps(trace_of(spans("Which are the largest?"))), None);
    let overrides = Overrides { plan_heuristic: true, ..Overrides::default() };
    assert_eq!(steps(trace_with(&overrides, spans("Which are the largest?"), json!([]))), Some(3));
}

#[test]
fn plans_are_read_from_plan_spans_and_state_but_not_from_declared_graphs() {
    let trace = trace_of(json!([
        { "id": 1, "name": "invoke_agent a", "attributes": { "gen_ai.operation.name": "invoke_agent", "gen_ai.workflow.nodes": ["model", "tools"],
            "output.value": "{\"plan\": [\"look\", \"read\"], \"answer\": \"x\"}" } },
        { "id": 2, "parent": 1, "name": "plan a", "attributes": { "gen_ai.operation.name": "plan" } },
        { "id": 3, "parent": 2, "name": "chat", "attributes": { "gen_ai.operation.name": "chat", "gen_ai.output.messages": "[{\"role\":\"assistant\",\"content\":\"1. think\\n2. act\\n3. rest\"}]" } },
    ]));
    let plans: Vec<_> = trace.agents[0].plans.iter().map(|(span, p)| (*span, p.steps.len())).collect();
    assert_eq!(plans, [(0, 2), (1, 3)]);
    assert_eq!(trace.views[0].graph.as_ref().map(|g| g.steps.len()), Some(2));
}

#[test]
fn orphans_with_the_same_missing_parent_belong_to_one_agent() {
    let trace = trace_of(json!([
        { "id": 2, "parent": 1, "name": "chat", "attributes": { "gen_ai.operation.name": "chat" } },
        { "id": 3, "parent": 1, "name": "t", "attributes": { "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "t" } },
        { "id": 4, "parent": 9, "name": "chat", "attributes": { "gen_ai.operation.name": "chat" } },
    ]));
    assert_eq!(trace.agents.len(), 1);
    assert_eq!(trace.owner, [Some(0), Some(0), None]);
}

#[test]
fn configured_names_are_recognised() {
    let overrides: Overrides = serde_json::from_value(json!({
        "kinds": [{ "key": "step.type", "values": { "think": "llm", "act*": "tool", "crew": "agent" }, "lifecycle": ["crew_made"] }],
        "fields": { "input": ["step.saw"], "output": ["step.said"], "tool_name": ["step.tool"], "arguments": ["step.args.*"], "result": ["step.got"], "agent_name": ["crew.member"], "tokens_input": ["step.cost.in"] },
        "flags": [{ "key": "step.ok", "values": ["no"] }],
        "planning_tools": ["sketch"],
    })).unwrap();
    let trace = trace_with(
        &overrides,
        json!([
            { "id": 1, "name": "x", "attributes": { "step.type": "crew", "crew.member": "Ann", "gen_ai.operation.name": "chat" } },
            { "id": 2, "parent": 1, "name": "x", "attributes": { "step.type": "THINK", "step.saw": "How high?", "step.said": "Let me see", "step.cost.in": "17" } },
            { "id": 3, "parent": 1, "name": "x", "attributes": { "step.type": "acting", "step.tool": "look", "step.args.q": "height", "step.args.n": 2, "step.got": "nothing", "step.ok": "no" } },
        ]),
        json!([]),
    );
    assert_eq!(kinds(&trace), [Kind::Agent, Kind::Llm, Kind::Tool]);
    assert_eq!(trace.agents[0].name.as_deref(), Some("Ann"));
    assert_eq!(trace.agents[0].task.as_deref(), Some("How high?"));
    assert_eq!(trace.views[1].tokens.input, Some(17));
    assert_eq!(trace.calls[0].parsed.as_deref(), Some(&json!({ "q": "height", "n": 2 })));
    assert!(trace.calls[0].failed);
}

#[test]
fn precedence_selects_the_convention_and_unknown_names_are_errors() {
    let spans = json!([{ "id": 1, "name": "x", "attributes": { "openinference.span.kind": "LLM", "llm.model_name": "theirs", "gen_ai.request.model": "ours" } }]);
    assert_eq!(trace_of(spans.clone()).views[0].model.as_deref(), Some("ours"));
    let overrides = Overrides { precedence: vec!["openinference".into()], ..Overrides::default() };
    assert_eq!(trace_with(&overrides, spans, json!([])).views[0].model.as_deref(), Some("theirs"));
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
fn span_above_several_model_calls_is_an_agent_even_if_it_names_a_model() {
    let chat = |id: u64| json!({ "id": id, "parent": 1, "name": "chat", "attributes": { "gen_ai.operation.name": "chat", "gen_ai.request.model": "m" } });
    let trace = trace_of(json!([
        { "id": 1, "name": "run", "attributes": { "gen_ai.request.model": "m", "gen_ai.agent.name": "a", "gen_ai.usage.input_tokens": 10 } },
        chat(2), chat(3),
    ]));
    assert_eq!(kinds(&trace), [Kind::Agent, Kind::Llm, Kind::Llm]);
}

#[test]
fn graph_node_named_agent_is_a_turn_of_the_agent_around_it() {
    let span = |id: u8, parent: Option<u8>, name: &str, attributes: Value| json!({ "id": id, "parent": parent, "name": name, "attributes": attributes });
    let kind = |kind: &str| json!({ "openinference.span.kind": kind });
    let requesting_model = json!({
        "openinference.span.kind": "LLM",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "search",
    });
    let answering_model = json!({
        "openinference.span.kind": "LLM",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": "836",
    });
    let search_tool = json!({ "openinference.span.kind": "TOOL", "tool.name": "search" });
    let trace = trace_of(json!([
        span(1, None, "research", kind("CHAIN")),
        span(2, Some(1), "agent", kind("AGENT")),
        span(3, Some(2), "model", requesting_model.clone()),
        span(4, Some(1), "search", search_tool.clone()),
        span(5, Some(1), "agent", kind("AGENT")),
        span(6, Some(5), "model", answering_model.clone()),
    ]));
    assert_eq!(kinds(&trace)[..2], [Kind::Agent, Kind::Chain]);
    assert_eq!((trace.agents.len(), trace.agents[0].answer.as_deref()), (1, Some("836")));
    assert_eq!((trace.agents[0].llms.len(), trace.calls[0].llm.is_some()), (2, true));

    // A node with tool calls of its own is an agent.
    let trace = trace_of(json!([
        span(1, None, "research", kind("AGENT")),
        span(2, Some(1), "agent", kind("AGENT")),
        span(3, Some(2), "model", requesting_model),
        span(4, Some(2), "search", search_tool),
        span(5, Some(2), "model", answering_model),
    ]));
    assert_eq!(trace.agents.iter().filter(|a| a.name.as_deref() == Some("agent")).count(), 1);
}
