//! Decisions on proposed calls: with spans, without spans, and with calls whose spans have not arrived.

use serde_json::json;
use verdict_config::Source;

use super::*;
use crate::measure::testing::Script;

const REFUND: &str = r#"
task: refund
match: { agent: agent, prompt: 'refund order (?P<order>[A-Z0-9-]+)' }
alphabet:
  verify: verify_customer
  refund: { function: issue_refund, arguments: { order: { captured: order }, amount: { any: true } } }
  notify: notify_customer
policy:
  - { never: refund, before: verify }
  - sum of refund.amount <= 200 per run
"#;

fn tasks_of(text: &str) -> TaskSet {
    TaskSet::parse(&[Source { name: "t.yaml".into(), text: text.to_owned() }]).unwrap()
}

fn call(name: &str, arguments: Value, id: &str) -> ProposedCall {
    let id = (!id.is_empty()).then(|| id.to_owned());
    ProposedCall::new(name.to_owned(), arguments, id, 10)
}

fn refund(amount: u32, id: &str) -> ProposedCall {
    call("issue_refund", json!({ "order": "A-17", "amount": amount }), id)
}

fn next_symbols(task: &TaskDecision) -> Vec<&str> {
    task.next.iter().map(|next| next.symbol.as_str()).collect()
}

#[test]
fn call_is_decided_at_the_position_of_the_recorded_run() {
    let tasks = tasks_of(REFUND);
    let hints = RunHints::default();
    let unverified =
        PathPositions::new(&Script::new("Please refund order A-17.").says("").build(), &tasks, &Memo::new());
    let answer = unverified.decide(&tasks, &hints, &[], &refund(50, ""));
    assert_eq!(answer.decision, PathDecision::Denied);
    assert_eq!(
        (answer.tasks[0].reason, next_symbols(&answer.tasks[0])),
        (Some("not_allowed_here"), vec!["verify", "notify"])
    );
    let verified = Script::new("Please refund order A-17.")
        .calls("", &[("verify_customer", "{}")])
        .returns("ok")
        .calls("", &[("issue_refund", r#"{"order": "A-17", "amount": 150}"#)])
        .returns("paid");
    let positions = PathPositions::new(&verified.build(), &tasks, &Memo::new());
    let decide = |call: ProposedCall| positions.decide(&tasks, &hints, &[], &call);
    let answer = decide(refund(50, ""));
    assert_eq!((answer.decision, answer.tasks[0].others), (PathDecision::Allowed, true));
    assert_eq!(
        answer.tasks[0].next[1].remaining_amounts,
        json!({ "amount": 50.0 }).as_object().unwrap().clone()
    );
    let answer = decide(refund(51, ""));
    assert_eq!(answer.tasks[0].reason, Some("over_limit"));
    assert_eq!(answer.tasks[0].rule.as_deref(), Some("sum of refund.amount <= 200 per run"));
    assert_eq!(
        decide(call("issue_refund", json!({ "order": "B", "amount": 1 }), "")).decision,
        PathDecision::Denied
    );
    assert_eq!(
        decide(call("issue_refund", json!({ "order": "A-17", "amount": "?" }), "")).decision,
        PathDecision::Unknown
    );
    assert_eq!(
        decide(call("search", json!({}), "")).decision,
        PathDecision::Allowed,
        "the policy ignores it"
    );
}

#[test]
fn allowed_call_counts_as_made_until_its_span_arrives() {
    let tasks = tasks_of(REFUND);
    let hints = RunHints { agent: Some("agent".into()), ..RunHints::default() };
    let script =
        || Script::new("Please refund order A-17.").calls("", &[("verify_customer", "{}")]).returns("ok");
    let before = PathPositions::new(&script().build(), &tasks, &Memo::new());
    let mut pending = Vec::new();
    let proposed = refund(150, "");
    assert_eq!(before.decide(&tasks, &hints, &pending, &proposed).decision, PathDecision::Allowed);
    pending.push(before.pending(&tasks, &hints, &pending, proposed));
    before.remove_arrived(&hints, &mut pending);
    assert_eq!(pending.len(), 1, "its span has not arrived");
    let second = refund(150, "");
    assert_eq!(before.decide(&tasks, &hints, &pending, &second).decision, PathDecision::Denied);
    let arrived =
        script().calls("", &[("issue_refund", r#"{"amount": 150.0, "order": "A-17"}"#)]).returns("paid");
    let after = PathPositions::new(&arrived.build(), &tasks, &Memo::new());
    after.remove_arrived(&hints, &mut pending);
    assert!(pending.is_empty(), "its span has arrived, with the keys in another order");
    assert_eq!(after.decide(&tasks, &hints, &pending, &refund(50, "")).decision, PathDecision::Allowed);
    assert_eq!(after.decide(&tasks, &hints, &pending, &refund(51, "")).decision, PathDecision::Denied);
}

#[test]
fn requested_call_without_a_span_is_not_made_and_a_repeated_question_is_one_call() {
    let tasks = tasks_of(REFUND);
    let hints = RunHints::default();
    let mut trace = Script::new("Please refund order A-17.")
        .calls("", &[("verify_customer", "{}")])
        .returns("ok")
        .calls("", &[("issue_refund", r#"{"order": "A-17", "amount": 150}"#)])
        .returns("")
        .build();
    // The model's span has arrived, that of the tool has not.
    (trace.calls[1].tool, trace.calls[1].result) = (None, None);
    let positions = PathPositions::new(&trace, &tasks, &Memo::new());
    let proposed = refund(150, "call_1");
    let mut pending = vec![];
    assert_eq!(positions.decide(&tasks, &hints, &pending, &proposed).decision, PathDecision::Allowed);
    pending.push(positions.pending(&tasks, &hints, &pending, proposed.clone()));
    assert!(pending[0].repeats_call(&proposed));
    assert_eq!(
        positions.decide(&tasks, &hints, &pending, &proposed).decision,
        PathDecision::Allowed,
        "asked again"
    );
    assert_eq!(
        positions.decide(&tasks, &hints, &pending, &refund(150, "call_2")).decision,
        PathDecision::Denied
    );
}

#[test]
fn before_any_span_the_task_follows_from_the_hints_of_the_caller() {
    let tasks = tasks_of(REFUND);
    let no_spans = PathPositions::default();
    let decide = |hints: &RunHints, call: ProposedCall| no_spans.decide(&tasks, hints, &[], &call);
    let nothing = decide(&RunHints::default(), refund(1, ""));
    assert_eq!((nothing.decision, nothing.tasks.len()), (PathDecision::Unknown, 0));
    let prompt = RunHints {
        agent: Some("agent".into()),
        prompt: Some("Please refund order A-17.".into()),
        ..RunHints::default()
    };
    assert_eq!(decide(&prompt, refund(1, "")).decision, PathDecision::Denied, "not verified");
    assert_eq!(decide(&prompt, call("verify_customer", json!({}), "")).decision, PathDecision::Allowed);
    let named = RunHints { task: Some("refund".into()), ..RunHints::default() };
    let pending = [no_spans.pending(&tasks, &named, &[], call("verify_customer", json!({}), ""))];
    let any_order = call("issue_refund", json!({ "order": "Z", "amount": 1 }), "");
    assert_eq!(no_spans.decide(&tasks, &named, &pending, &any_order).decision, PathDecision::Allowed);
    let other = RunHints { task: Some("other".into()), ..RunHints::default() };
    assert_eq!(decide(&other, refund(1, "")).decision, PathDecision::Unknown);
}

#[test]
fn pending_call_keeps_its_arguments_only_if_a_task_reads_them() {
    let tasks = tasks_of(REFUND);
    let (no_spans, hints) = (PathPositions::default(), RunHints::default());
    let large = json!({ "order": "A-17", "amount": 1, "note": "x".repeat(100_000) });
    let bytes = |name: &str| no_spans.pending(&tasks, &hints, &[], call(name, large.clone(), "id")).bytes();
    assert!(bytes("issue_refund") > 100_000);
    for name in ["verify_customer", "not_in_the_alphabet"] {
        assert!(bytes(name) < 1_000, "{name}: {}", bytes(name));
    }
    // A task of a reloaded configuration that reads arguments which were not kept does not read them as an empty
    // object.
    let named = RunHints { task: Some("t".into()), ..RunHints::default() };
    let pending = [no_spans.pending(&tasks, &named, &[], call("verify_customer", json!({ "id": 2 }), ""))];
    let reloaded = tasks_of(
        "task: t\nmatch: { agent: a }\nalphabet: { v: { function: verify_customer, arguments: { id: 2 } }, w: w }\n\
         policy: [{ never: w, before: v }]\n",
    );
    let answer = no_spans.decide(&reloaded, &named, &pending, &call("w", json!({}), ""));
    assert_eq!((answer.decision, answer.tasks[0].reason), (PathDecision::Unknown, Some("no_content")));
}

#[test]
fn memory_of_a_position_grows_with_different_calls_and_not_with_their_texts() {
    let tasks = tasks_of(REFUND);
    let bytes = |calls: usize, text: usize| {
        let mut script = Script::new("Please refund order A-17.");
        for n in 0..calls {
            let arguments = json!({ "n": n, "text": "x".repeat(text) }).to_string();
            script = script.calls("", &[("verify_customer", &arguments)]).returns("ok");
        }
        PathPositions::new(&script.build(), &tasks, &Memo::new()).bytes()
    };
    assert_eq!(bytes(10, 10_000), bytes(10, 1));
    let (few, many) = (bytes(1, 1), bytes(101, 1));
    assert!(many - few <= 100 * 64, "{few} {many}");
}

#[test]
fn answer_that_depends_on_the_difference_of_clocks_is_unknown() {
    const SECOND: u64 = 1_000_000_000;
    let tasks = tasks_of(
        "task: t\nmatch: { agent: agent }\nalphabet: { verify: verify, refund: refund, again: again }\n\
         policy: [refund only within 1m after verify, again no sooner than 1m after verify]\n",
    );
    let mut trace = Script::new("?").calls("", &[("verify", "{}")]).returns("ok").build();
    let verified = 1_000 * SECOND;
    for call in &mut trace.calls {
        call.start = verified;
    }
    for span in &mut trace.tree.spans {
        (span.start, span.end) = (verified, verified);
    }
    let positions = PathPositions::new(&trace, &tasks, &Memo::new());
    let hints = RunHints::default();
    let decide = |name: &str, seconds: u64| {
        let proposed = ProposedCall::new(name.to_owned(), json!({}), None, verified + seconds * SECOND);
        let mut answer = positions.decide(&tasks, &hints, &[], &proposed);
        let task = answer.tasks.remove(0);
        (answer.decision, task.reason, task.rule.is_some())
    };
    use PathDecision::{Allowed, Denied, Unknown};
    let clocks = (Unknown, Some("clocks"), true);
    for (seconds, refund, second_answer) in [
        (54, (Allowed, None, false), (Denied, Some("too_soon"), true)),
        (56, clocks, clocks),
        (64, clocks, clocks),
        (66, (Denied, Some("too_late"), true), (Allowed, None, false)),
    ] {
        assert_eq!(decide("refund", seconds), refund, "refund after {seconds} s");
        assert_eq!(decide("again", seconds), second_answer, "again after {seconds} s");
    }
}
