//! Learnt tasks accept the runs that they were learnt from and reject others.

use proptest::prelude::*;
use serde_json::{Value, json};
use verdict_config::Source;

use super::*;
use crate::measure::path::alphabet::ObservedCall;
use crate::measure::path::load::load;
use crate::measure::path::prompt_pattern::PromptCaptures;
use crate::measure::path::task::Task;
use crate::measure::path::walk::{PathToken, Walk};

fn recorded_call(name: &str, arguments: Value) -> RecordedCall {
    RecordedCall { name: name.to_owned(), arguments: arguments.as_object().cloned(), failed: false }
}

fn task(yaml: &str) -> Task {
    let source = Source { name: "learnt.yaml".into(), text: yaml.to_owned() };
    load(&[source]).unwrap_or_else(|e| panic!("{e}\n{yaml}")).tasks.remove(0)
}

fn run(task: &Task, calls: &[RecordedCall]) -> (usize, bool) {
    let mut walk = Walk::new(&task.automaton);
    for call in calls {
        let arguments = call.arguments.clone().map(Value::Object);
        let seen = task.alphabet.classify(&call.name, arguments.as_ref(), &PromptCaptures::default());
        let token = match seen {
            ObservedCall::Symbol(symbol) => PathToken::Symbol(symbol),
            _ => PathToken::Foreign(0),
        };
        walk.push(&task.automaton, token);
    }
    (walk.harmful_count(), task.automaton.is_final(walk.state()))
}

fn refund_runs() -> Vec<Vec<RecordedCall>> {
    let refund_run = |order: &str, amount: f64, looks: usize, notify_first: bool| {
        let mut calls = vec![recorded_call("get_order", json!({"id": order}))];
        calls.extend((1..looks).map(|_| recorded_call("get_order", json!({"id": order}))));
        calls.push(recorded_call("move_to", json!({"place": "desk"})));
        let pay = recorded_call("issue_refund", json!({"id": order, "amount": amount, "currency": "EUR"}));
        let notify = recorded_call("notify", json!({"channel": if amount > 10.0 { "mail" } else { "sms" }}));
        calls.extend(if notify_first { [notify, pay] } else { [pay, notify] });
        calls.push(recorded_call("move_to", json!({"place": "base"})));
        calls
    };
    vec![
        refund_run("A1", 5.0, 1, false),
        refund_run("A2", 20.0, 3, true),
        refund_run("A3", 7.5, 2, false),
        refund_run("A4", 12.0, 1, true),
    ]
}

#[test]
fn learnt_task_accepts_its_runs() {
    let runs = refund_runs();
    let identity = TaskIdentity { task: "refund".into(), agent: Some("clerk".into()), service: None };
    let learnt = learn(&runs, &identity).unwrap();
    let task = task(&learnt.yaml);
    for calls in &runs {
        assert_eq!(run(&task, calls), (0, true), "{}", learnt.yaml);
    }
    // Rejected: a run without the first call, a larger amount, and another order of calls.
    let order = recorded_call("get_order", json!({"id": "A9"}));
    let base = recorded_call("move_to", json!({"place": "base"}));
    assert_eq!(run(&task, &runs[0][1..]).0, 4, "{}", learnt.yaml);
    let mut large = runs[0].clone();
    large[2].arguments = json!({"id": "A1", "amount": 500, "currency": "EUR"}).as_object().cloned();
    assert_eq!(run(&task, &large), (3, false));
    assert_eq!(run(&task, &[order.clone(), base]).0, 1, "the first call is missing");
    let mut looked = runs[0].clone();
    looked.insert(4, order);
    assert_eq!(run(&task, &looked), (0, true), "reads are allowed at any time afterwards");
    let shown = format!("{}\n{}", learnt.yaml, learnt.notes.join("\n"));
    for part in [
        "match: { agent: \"clerk\" }",
        "\"amount\": { min: 5, max: 20 }",
        "\"currency\": { one_of: [\"EUR\"] }",
        "\"move_to_1\":    # in 4 of 4 runs",
        "'get_order' reads and is in every run",
    ] {
        assert!(shown.contains(part), "no {part} in\n{shown}");
    }
}

#[test]
fn notes_for_the_reviewer_are_written() {
    let calls = vec![
        recorded_call("create_user", json!({"name": "x"})),
        recorded_call("send", json!({"to": "a"})),
        recorded_call("send", json!({"to": "a"})),
        recorded_call("delete_user", json!({"name": "x"})),
        RecordedCall { failed: true, ..recorded_call("explode", json!({})) },
    ];
    let learnt = learn(&[calls], &TaskIdentity { task: "t".into(), ..TaskIdentity::default() }).unwrap();
    assert!(!learnt.yaml.contains("explode"));
    let notes = learnt.notes.join("\n");
    for part in ["only 1 runs", "'delete_user' undoes 'create_user'", "'send' is called twice"] {
        assert!(notes.contains(part), "no {part} in\n{notes}");
    }
    assert!(learn(&[vec![]], &TaskIdentity::default()).is_none());
}

proptest! {
    #[test]
    fn learnt_task_accepts_arbitrary_runs(
        runs in prop::collection::vec(
            prop::collection::vec((0usize..5, 0u8..3), 1..8), 1..8)
    ) {
        const NAMES: [&str; 5] = ["get_a", "put", "move", "list_b", "drop /\"x"];
        let runs: Vec<Vec<RecordedCall>> = runs
            .iter()
            .map(|run| run.iter().map(|(n, v)| recorded_call(NAMES[*n], json!({"v": v, "/w~": "s"}))).collect())
            .collect();
        let learnt = learn(&runs, &TaskIdentity { task: "t".into(), ..TaskIdentity::default() }).unwrap();
        let task = task(&learnt.yaml);
        for calls in &runs {
            prop_assert_eq!(run(&task, calls), (0, true), "{}", learnt.yaml);
        }
    }
}
