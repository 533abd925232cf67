//! Agents that are labelled as chains.

use super::*;

/// Messages of a prompt: `system`, `user`, then `results` results.
fn prompt(system: &str, user: &str, results: usize) -> String {
    let mut messages =
        vec![json!({ "role": "system", "content": system }), json!({ "role": "user", "content": user })];
    for n in 0..results {
        messages.push(json!({ "role": "assistant", "tool_calls": [{ "id": format!("c{n}"), "function": { "name": "search", "arguments": "{}" } }] }));
        messages.push(json!({ "role": "tool", "tool_call_id": format!("c{n}"), "content": "a page" }));
    }
    serde_json::Value::from(messages).to_string()
}

fn llm(id: u64, parent: u64, system: &str, user: &str, results: usize, output: &str) -> Value {
    json!({ "id": id, "parent": parent, "name": "chat", "attributes": { "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": prompt(system, user, results),
        "gen_ai.output.messages": json!([{ "role": "assistant", "content": output }]).to_string() } })
}

fn tool(id: u64, parent: u64) -> Value {
    json!({ "id": id, "parent": parent, "name": "search", "attributes": { "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search" } })
}

fn frame(id: u64, parent: Option<u64>, kind: &str, attributes: Value) -> Value {
    let mut span = json!({ "id": id, "name": format!("frame {id}"), "attributes": attributes });
    span["attributes"]["openinference.span.kind"] = json!(kind);
    if let Some(parent) = parent {
        span["parent"] = json!(parent);
    }
    span
}

/// The agents as spans, with their parents, tasks and answers.
fn agents(trace: &AgentTrace) -> Vec<(usize, Option<usize>, &str, &str)> {
    let text = |text: &Option<Text>| text.as_deref().unwrap_or("-").to_owned().leak() as &str;
    trace.agents.iter().map(|a| (a.at, a.parent, text(&a.task), text(&a.answer))).collect()
}

#[test]
fn chain_with_a_conversation_of_its_own_is_an_agent() {
    let run = |root: &str, helper: &str| {
        trace_of(json!([
            frame(1, None, root, json!({})),
            llm(2, 1, "You manage.", "How high?", 0, ""),
            frame(3, Some(1), helper, json!({})),
            frame(4, Some(3), "CHAIN", json!({})),
            llm(5, 4, "You search.", "heights", 0, ""),
            tool(6, 4),
            frame(7, Some(3), "CHAIN", json!({})),
            llm(8, 7, "You search.", "heights", 1, "5642 m"),
            llm(9, 1, "You manage.", "How high?", 1, "It is 5642 m high."),
        ]))
    };
    let expected = [(0, None, "How high?", "It is 5642 m high."), (2, Some(0), "heights", "5642 m")];
    for (root, helper) in [("AGENT", "AGENT"), ("AGENT", "CHAIN"), ("CHAIN", "AGENT"), ("CHAIN", "CHAIN")] {
        assert_eq!(agents(&run(root, helper)), expected, "{root} {helper}");
    }
}

#[test]
fn chain_around_the_call_of_an_agent_as_a_tool_belongs_to_the_caller() {
    // LangGraph: the node of the tools, the tool, the graph of the agent that the tool runs.
    let trace = trace_of(json!([
        frame(1, None, "CHAIN", json!({})),
        llm(2, 1, "You delegate.", "How high?", 0, ""),
        frame(3, Some(1), "CHAIN", json!({})),
        tool(4, 3),
        frame(5, Some(4), "CHAIN", json!({})),
        llm(6, 5, "You search.", "heights", 0, ""),
        tool(7, 5),
        llm(8, 5, "You search.", "heights", 1, "5642 m"),
        llm(9, 1, "You delegate.", "How high?", 1, "It is 5642 m high."),
    ]));
    let expected = [(0, None, "How high?", "It is 5642 m high."), (4, Some(0), "heights", "5642 m")];
    assert_eq!(agents(&trace), expected);
}

#[test]
fn steps_and_single_calls_are_no_agents() {
    let trace = trace_of(json!([
        frame(1, None, "CHAIN", json!({})),
        // A node with a prompt of its own, without a tool.
        frame(2, Some(1), "CHAIN", json!({})),
        llm(3, 2, "You plan.", "How high?", 0, "Search."),
        // A step of the conversation.
        frame(4, Some(1), "CHAIN", json!({})),
        llm(5, 4, "You answer.", "How high?", 0, ""),
        tool(6, 4),
        llm(7, 4, "You answer.", "How high?", 1, ""),
        llm(8, 1, "You answer.", "How high?", 2, "5642 m"),
    ]));
    assert_eq!(agents(&trace), [(0, None, "How high?", "5642 m")]);
}

#[test]
fn run_that_leaves_the_work_to_agents_has_their_task_and_answer() {
    let run = |root: &str, attributes: Value| {
        trace_of(json!([
            frame(1, None, root, attributes),
            llm(2, 1, "You route.", "How high?", 0, "To the searcher."),
            frame(3, Some(1), "AGENT", json!({})),
            llm(4, 3, "You search.", "How high?", 0, ""),
            tool(5, 3),
            llm(6, 3, "You search.", "How high?", 1, "5642 m"),
        ]))
    };
    for root in ["AGENT", "CHAIN"] {
        let trace = run(root, json!({}));
        assert_eq!(trace.agents[0].answer.as_deref(), Some("5642 m"), "{root}");
        let trace = run(root, json!({ "output.value": "It is 5642 m high." }));
        assert_eq!(trace.agents[0].answer.as_deref(), Some("It is 5642 m high."), "{root}");
        assert_eq!(trace.agents[1].answer.as_deref(), Some("5642 m"), "{root}");
    }
}
