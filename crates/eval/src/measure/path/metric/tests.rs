//! Path metrics on small traces: measurements, their spans, and unmeasured runs.

use verdict_config::Source;

use super::*;
use crate::measure::path::settings::TaskSet;
use crate::measure::table::HARMFUL_CALL;
use crate::measure::testing::Script;
use crate::measure::work_budget::WorkBudget;
use crate::measure::{Settings as MetricSettings, catalog};

const REFUND: &str = r#"
task: refund
match: { agent: agent, prompt: 'refund order (?P<order>[A-Z0-9-]+)' }
alphabet:
  look: { function: get_order, arguments: { id: { captured: order } } }
  check: check_policy
  pay: { function: issue_refund, arguments: { id: { captured: order }, amount: { min: 0, max: 100 } } }
states:
  begin: { on: { look: seen } }
  seen: { on: { check: allowed }, reads: [look] }
  allowed: { on: { pay: paid }, reads: [look, check] }
  paid: { final: true, reads: [look] }
ignore: ["final_answer"]
"#;

const REQUEST: &str = "Please refund order A-17.";

fn settings(extra: &str) -> MetricSettings {
    with_tasks(&[&format!("{REFUND}{extra}")])
}

fn with_tasks(texts: &[&str]) -> MetricSettings {
    let source = |text: &&str| Source { name: "t.yaml".into(), text: (*text).to_owned() };
    let sources: Vec<Source> = texts.iter().map(source).collect();
    let path_tasks = TaskSet::parse(&sources).unwrap_or_else(|e| panic!("{e}"));
    MetricSettings { path_tasks, ..MetricSettings::default() }
}

fn run(trace: &AgentTrace, settings: &MetricSettings) -> Vec<Measurement> {
    catalog::run(trace, settings).into_iter().filter(|m| m.metric.starts_with("path.")).collect()
}

fn find_measurement<'m>(all: &'m [Measurement], metric: &str) -> &'m Measurement {
    all.iter().find(|m| m.metric == metric).unwrap_or_else(|| panic!("{metric} is not measured"))
}

fn score(all: &[Measurement], metric: &str) -> f64 {
    match find_measurement(all, metric).outcome.as_ref().unwrap().value {
        Value::Score(value) | Value::Number(value) => value,
        Value::Label(label) => panic!("{label}"),
    }
}

fn harmful_count(all: &[Measurement]) -> DetailValue {
    find_measurement(all, "path.harm_rate").details[0].value.clone()
}

fn with_calls(script: Script, calls: &[(&str, &str)]) -> Script {
    calls.iter().fold(script, |script, call| script.calls("", &[*call]).returns("{\"ok\": true}"))
}

const LOOK: (&str, &str) = ("get_order", r#"{"id": "A-17"}"#);
const CHECK: (&str, &str) = ("check_policy", r#"{"region": "eu"}"#);
const PAY: (&str, &str) = ("issue_refund", r#"{"id": "A-17", "amount": 20.0}"#);

#[test]
fn run_without_calls_is_not_accepted_and_has_no_score_of_harm() {
    let all = run(&Script::new(REQUEST).answers("Done.").build(), &settings(""));
    for metric in ["path.harm_rate", "path.prefix_criticality"] {
        let measurement = find_measurement(&all, metric);
        assert_eq!((&measurement.outcome, measurement.examined), (&Err(Unmeasured::NotApplicable), 0));
    }
    let accepting = find_measurement(&all, "path.accepting");
    assert_eq!(accepting.outcome.as_ref().unwrap().value, Value::Label("not_accepting"));
    assert_eq!((score(&all, "path.correctness"), accepting.examined), (0.0, 1));
}

#[test]
fn run_along_a_golden_path_scores_one() {
    let trace = with_calls(Script::new(REQUEST), &[LOOK, CHECK, LOOK, PAY, ("final_answer", "{}")])
        .answers("Done.")
        .build();
    let all = run(&trace, &settings(""));
    for metric in ["path.correctness", "path.pc_ktc", "path.prefix_criticality", "path.pc_hlr"] {
        assert_eq!(score(&all, metric), 1.0, "{metric}");
    }
    assert_eq!((score(&all, "path.harm_rate"), harmful_count(&all)), (0.0, DetailValue::Count(0)));
    assert_eq!(find_measurement(&all, "path.accepting").details[0].value, DetailValue::Text("paid".into()));
    assert_eq!(score(&all, "path.efficiency"), 0.75);
    assert_eq!(
        find_measurement(&all, "path.accepting").outcome.as_ref().unwrap().value,
        Value::Label("accepting")
    );
    assert!(all.iter().all(|m| m.at == trace.agents[0].at && m.outcome.as_ref().unwrap().passed));
    assert_eq!(all.len(), 7, "no harmful call, and no weights");
    assert_eq!(all[0].judge, "task/refund");
}

#[test]
fn harmful_call_is_written_on_its_span_with_state_and_reason() {
    let trace = with_calls(
        Script::new(REQUEST),
        &[LOOK, PAY, CHECK, PAY, ("issue_refund", r#"{"id": "B-1", "amount": 5}"#), ("delete_order", "{}")],
    )
    .answers("Done.")
    .build();
    let all = run(&trace, &settings("fail_on: [harmful_call, harm_rate, correctness]\n"));
    let harmful: Vec<&Measurement> = all.iter().filter(|m| m.metric == HARMFUL_CALL).collect();
    let reported_calls: Vec<(Idx, &Value, bool)> = harmful
        .iter()
        .map(|m| {
            let measured = m.outcome.as_ref().unwrap();
            (m.at, &measured.value, measured.passed)
        })
        .collect();
    assert_eq!(
        reported_calls,
        [
            (trace.calls[1].at, &Value::Label("not_allowed_here"), false),
            (trace.calls[4].at, &Value::Label("other_arguments"), false),
            (trace.calls[5].at, &Value::Label("other_function"), false),
        ]
    );
    assert_eq!(harmful[0].details[0].value, DetailValue::Text("seen".into()));
    let finding = &harmful[0].outcome.as_ref().unwrap().findings[0];
    assert_eq!(
        finding.rationale,
        "look, check was expected in state 'seen' of the task 'refund'; issue_refund is not allowed in this state"
    );
    assert_eq!(finding.quote, r#"{"id": "A-17", "amount": 20.0}"#);
    assert_eq!(
        find_measurement(&all, "path.accepting").details[1],
        Detail {
            key: "path.repeated",
            value: DetailValue::Texts(vec!["issue_refund, again issue_refund".into()])
        }
    );
    let refund = settings("");
    let reported = harmful_calls(&trace, (&refund.path, &refund.path_tasks), &Memo::new());
    assert_eq!(reported.len(), 3, "as for an open trace");
    let rate = find_measurement(&all, "path.harm_rate").outcome.as_ref().unwrap();
    assert_eq!((rate.value.clone(), rate.passed), (Value::Score(0.5), false));
    assert_eq!(rate.findings[0].quote, "look pay! check pay issue_refund! delete_order!");
    assert_eq!(rate.findings[0].cited.len(), 3);
    assert!(!find_measurement(&all, "path.correctness").outcome.as_ref().unwrap().passed);
    assert!(
        find_measurement(&all, "path.pc_hlr").outcome.as_ref().unwrap().passed,
        "it does not fail the trace"
    );
}

#[test]
fn failed_call_keeps_the_state_unless_configured_to_advance() {
    let failed = || with_calls(Script::new(REQUEST), &[LOOK]).calls("", &[CHECK]).raises("timeout");
    let trace = with_calls(failed(), &[CHECK, PAY]).answers("Done.").build();
    let all = run(&trace, &settings(""));
    assert_eq!((score(&all, "path.correctness"), score(&all, "path.efficiency")), (1.0, 0.75));
    let all = run(&with_calls(failed(), &[PAY]).answers("Done.").build(), &settings(""));
    assert_eq!(harmful_count(&all), DetailValue::Count(1));
    let all =
        run(&with_calls(failed(), &[PAY]).answers("Done.").build(), &settings("failed_calls: advance\n"));
    assert_eq!((harmful_count(&all), score(&all, "path.correctness")), (DetailValue::Count(0), 1.0));
}

#[test]
fn agent_without_a_matching_task_is_not_measured() {
    let other = with_calls(Script::new("Tell me a joke."), &[PAY]).answers("Ha.").build();
    assert!(run(&other, &settings("")).is_empty());
    let trace = with_calls(Script::new(REQUEST), &[PAY]).answers("Done.").build();
    assert!(run(&trace, &MetricSettings::default()).is_empty());
    let mut disabled = settings("");
    disabled.path.enabled = false;
    assert!(run(&trace, &disabled).is_empty());
}

#[test]
fn run_with_unrecorded_calls_is_unmeasured() {
    let script = || with_calls(Script::new(REQUEST), &[LOOK, PAY]);
    let mut trace = script().answers("Done.").build();
    trace.calls[1].arguments = None;
    trace.calls[1].parsed = None;
    let all = run(&trace, &settings(""));
    assert_eq!(find_measurement(&all, "path.correctness").outcome, Err(Unmeasured::NoContent));
    assert_eq!(find_measurement(&all, "path.harm_rate").outcome, Err(Unmeasured::NoContent));
    assert!(all.iter().all(|m| m.metric != HARMFUL_CALL));
    // In an unfinished run missing calls may follow; harmful calls are final.
    let all = run(&script().incomplete().build(), &settings(""));
    assert_eq!(find_measurement(&all, "path.correctness").outcome, Err(Unmeasured::NotApplicable));
    assert_eq!(score(&all, "path.harm_rate"), 0.5);
    assert_eq!(find_measurement(&all, HARMFUL_CALL).at, trace.calls[1].at);
    // A run that is shorter than every golden path has no efficiency.
    let all = run(&script().answers("Done.").build(), &settings(""));
    assert_eq!(find_measurement(&all, "path.efficiency").outcome, Err(Unmeasured::NotApplicable));
    assert!(score(&all, "path.correctness") < 1.0);
}

#[test]
fn weights_add_a_weighted_score_and_configuration_supplies_defaults() {
    let trace = with_calls(Script::new(REQUEST), &[LOOK]).answers("Done.").build();
    let mut settings = settings("weights: { correctness: 1, harm_free: 1 }\n");
    settings.path.fail_on = vec![PathMetric::Weighted, PathMetric::Accepting];
    settings.path.thresholds.weighted = Some(0.6);
    let all = run(&trace, &settings);
    // PC of one call of three is 1/3, and none was harmful.
    assert!((score(&all, "path.weighted") - 2.0 / 3.0).abs() < 1e-12);
    assert!(find_measurement(&all, "path.weighted").outcome.as_ref().unwrap().passed);
    settings.path.thresholds.weighted = Some(0.9);
    assert!(!find_measurement(&run(&trace, &settings), "path.weighted").outcome.as_ref().unwrap().passed);
    let accepting = find_measurement(&all, "path.accepting").outcome.as_ref().unwrap();
    assert!(!accepting.passed);
    assert!(accepting.findings[0].rationale.ends_with("calls allowed next: check"));
}

#[test]
fn trace_scope_gives_one_path_per_trace() {
    let trace = Script::new(REQUEST)
        .calls("", &[("helper", "{}")])
        .enter("look at A-17")
        .calls("", &[LOOK])
        .returns("{}")
        .answers("seen")
        .leave();
    let trace = with_calls(trace, &[CHECK, PAY]).answers("Done.").build();
    let all = run(&trace, &settings("scope: trace\n"));
    assert_eq!(harmful_count(&all), DetailValue::Count(1), "the call of the helper itself");
    let all = run(&trace, &settings("scope: trace\nunknown_calls: ignore\n"));
    assert_eq!(score(&all, "path.correctness"), 1.0);
    let all = run(&trace, &settings("unknown_calls: ignore\n"));
    assert!(score(&all, "path.correctness") < 1.0, "the agent's own calls begin with the check");
}

#[test]
fn calls_of_one_message_are_walked_in_its_order() {
    let run_of = |swap: bool| {
        let script = with_calls(Script::new(REQUEST), &[LOOK]).calls("", &[CHECK, PAY]);
        let mut trace = script.returns("{}").returns("{}").answers("Done.").build();
        if swap {
            // A thread pool started the second call first.
            let (a, b) = (trace.calls[1].start, trace.calls[2].start);
            (trace.calls[1].start, trace.calls[2].start) = (b, a);
            trace.calls.swap(1, 2);
        }
        run(&trace, &settings(""))
    };
    for swap in [false, true] {
        let all = run_of(swap);
        assert_eq!(
            (harmful_count(&all), score(&all, "path.correctness")),
            (DetailValue::Count(0), 1.0),
            "{swap}"
        );
    }
}

#[test]
fn call_with_an_error_as_its_result_does_not_advance_the_run() {
    let script = with_calls(Script::new(REQUEST), &[LOOK])
        .calls("", &[CHECK])
        .returns("Error: policy service not found");
    let trace = with_calls(script, &[PAY]).answers("Done.").build();
    let all = run(&trace, &settings(""));
    assert_eq!(harmful_count(&all), DetailValue::Count(1), "the refund without a check");
    assert_eq!(find_measurement(&all, HARMFUL_CALL).at, trace.calls[2].at);
    let all = run(&trace, &settings("failed_calls: advance\n"));
    assert_eq!(harmful_count(&all), DetailValue::Count(0));
}

#[test]
fn arguments_that_were_cut_make_the_run_indeterminate() {
    let cut = ("issue_refund", r#"{"id": "A-17", "amount": 2"#);
    let trace = with_calls(Script::new(REQUEST), &[LOOK, cut]).answers("Done.").build();
    let all = run(&trace, &settings(""));
    assert_eq!(find_measurement(&all, "path.harm_rate").outcome, Err(Unmeasured::Truncated));
    assert!(all.iter().all(|m| m.metric != HARMFUL_CALL), "it is not known to be harmful");
    // A bare value is recorded completely.
    let bare = ("issue_refund", "A-17");
    let trace = with_calls(Script::new(REQUEST), &[LOOK, bare]).answers("Done.").build();
    assert_eq!(harmful_count(&run(&trace, &settings(""))), DetailValue::Count(1));
}

const LIMITS: &str = r#"
task: amounts
match: { agent: agent }
alphabet:
  check: check_policy
  pay: { function: issue_refund, other_arguments: true, arguments: { amount: { any: true, optional: true } } }
policy:
  - { at_most: 3, of: pay }
  - sum of pay.amount <= 50 per run
"#;

#[test]
fn every_matching_task_is_scored_and_can_fail() {
    let trace = with_calls(Script::new(REQUEST), &[LOOK, CHECK, PAY]).answers("Done.").build();
    let strict = "task: strict\nmatch: { agent: agent }\nalphabet: { notify: notify_customer }\n\
                  policy: [{ must: notify }]\nfail_on: [accepting]\n";
    let all = run(&trace, &with_tasks(&[REFUND, strict]));
    let accepting: Vec<&Measurement> = all.iter().filter(|m| m.metric == "path.accepting").collect();
    let names: Vec<_> = accepting.iter().map(|m| m.name().into_owned()).collect();
    assert_eq!(names, ["path.accepting", "path.strict.accepting"]);
    let passed: Vec<bool> = accepting.iter().map(|m| m.outcome.as_ref().unwrap().passed).collect();
    assert_eq!(passed, [true, false]);
    assert_eq!(accepting[1].judge, "task/strict");
    assert_eq!(accepting[1].with_task("path.final_state"), "path.strict.final_state");
}

#[test]
fn efficiency_is_unmeasured_where_no_call_is_needed() {
    let trace = with_calls(Script::new(REQUEST), &[CHECK, PAY]).answers("Done.").build();
    let all = run(&trace, &with_tasks(&[LIMITS]));
    assert_eq!(find_measurement(&all, "path.efficiency").outcome, Err(Unmeasured::NotApplicable));
    assert_eq!(score(&all, "path.correctness"), 1.0);
}

#[test]
fn sum_of_amounts_is_limited_per_run() {
    let refund_call = |amount: &str| ("issue_refund", format!(r#"{{"amount": {amount}}}"#));
    let run_of = |amounts: &[&str]| {
        let script = amounts.iter().fold(Script::new(REQUEST), |script, amount| {
            let (name, arguments) = refund_call(amount);
            script.calls("", &[(name, &arguments)]).returns("paid")
        });
        run(&script.answers("Done.").build(), &with_tasks(&[LIMITS]))
    };
    assert_eq!(harmful_count(&run_of(&["20", "29.9", "0.1"])), DetailValue::Count(0));
    let all = run_of(&["20", "30.01", "30"]);
    assert_eq!(harmful_count(&all), DetailValue::Count(1), "the refused amount is not counted");
    let harm = find_measurement(&all, HARMFUL_CALL).outcome.as_ref().unwrap();
    assert_eq!(harm.value, Value::Label("over_limit"));
    assert_eq!(
        harm.findings[0].rationale,
        "the rule 'sum of pay.amount <= 50 per run' of the task 'amounts' does not allow issue_refund here"
    );
    let all = run_of(&["20", "\"some\""]);
    assert_eq!(
        find_measurement(&all, "path.harm_rate").outcome,
        Err(Unmeasured::NoContent),
        "the amount is not known"
    );
}

#[test]
fn calls_are_bound_to_times_and_required_in_time() {
    const TIMES: &str = "task: times\nmatch: { agent: agent }\n\
        alphabet: { check: check_policy, pay: issue_refund, notify: notify_customer }\n\
        policy:\n  - notify within 5ms after pay\n  - pay no sooner than 1ms after check\n  \
        - pay only within 1s after check\n";
    let notify = ("notify_customer", "{}");
    let run_of = |call_list: &[(&str, &str)], later: u64| {
        let mut trace = with_calls(Script::new(REQUEST), call_list).answers("Done.").build();
        if let Some(call) = trace.calls.iter_mut().rfind(|call| &*call.name == "notify_customer") {
            call.start += later;
        }
        run(&trace, &with_tasks(&[TIMES]))
    };
    let good = run_of(&[CHECK, PAY, notify], 0);
    assert_eq!(harmful_count(&good), DetailValue::Count(0));
    assert_eq!(
        find_measurement(&good, "path.accepting").outcome.as_ref().unwrap().value,
        Value::Label("accepting")
    );
    let late = run_of(&[CHECK, PAY, notify], 10_000_000);
    assert_eq!(
        find_measurement(&late, HARMFUL_CALL).outcome.as_ref().unwrap().value,
        Value::Label("too_late")
    );
    let never = run_of(&[CHECK, PAY], 0);
    assert_eq!(
        find_measurement(&never, "path.accepting").outcome.as_ref().unwrap().value,
        Value::Label("not_accepting")
    );
    assert_eq!(harmful_count(&never), DetailValue::Count(0));
    let unchecked = run_of(&[PAY, notify], 0);
    assert_eq!(
        find_measurement(&unchecked, HARMFUL_CALL).outcome.as_ref().unwrap().value,
        Value::Label("not_allowed_here")
    );
}

#[test]
fn lists_of_calls_have_a_bounded_length_for_any_names_of_functions() {
    let name = "\u{e4}".repeat(50_000);
    let mut script = Script::new(REQUEST);
    for _ in 0..30 {
        script = script.calls("", &[(&name, "{}")]).returns("ok");
    }
    let all = run(&script.build(), &settings("fail_on: [correctness, accepting]\nunknown_calls: harmful\n"));
    let texts = |m: &Measurement| {
        let quotes = m.outcome.iter().flat_map(|o| &o.findings).map(|f| f.quote.to_string());
        let details = m.details.iter().map(|d| format!("{:?}", d.value));
        quotes.chain(details).collect::<Vec<_>>()
    };
    let lists: Vec<String> = all.iter().filter(|m| m.metric != "path.harmful_call").flat_map(texts).collect();
    assert!(lists.iter().any(|text| text.contains("\u{e4}")), "{lists:?}");
    for text in lists {
        assert!(text.len() < 24 * (64 + 20), "{} bytes", text.len());
    }
}

/// A task of a first call, seven in any order, and a last one: 5,040 golden paths.
fn in_any_order() -> String {
    let mut text = "task: chores\nalphabet: { open: open, close: close,".to_owned();
    text.extend((0..7).map(|i| format!(" s{i}: chore_{i},")));
    text.push_str(" }\nstates:\n  begin: { on: { open: m0 } }\n  end: { final: true }\n");
    for done in 0..1 << 7 {
        let open = (0..7).filter(|i| done >> i & 1 == 0);
        let edges: Vec<String> = open.map(|i| format!("s{i}: m{}", done | 1 << i)).collect();
        let edges = if edges.is_empty() { "close: end".to_owned() } else { edges.join(", ") };
        text.push_str(&format!("  m{done}: {{ on: {{ {edges} }} }}\n"));
    }
    text
}

#[test]
fn work_on_scores_is_counted_and_hides_no_harmful_call() {
    let settings = with_tasks(&[&in_any_order()]);
    // The last call comes first, so no golden path has its order, and all are compared.
    let chores: Vec<String> = (0..7).map(|i| format!("chore_{i}")).collect();
    let mut chore_calls = vec![("close", "{}"), ("open", "{}")];
    chore_calls.extend(chores.iter().map(|name| (name.as_str(), "{}")));
    chore_calls.push(("delete", "{}"));
    let trace = with_calls(Script::new("Do the chores."), &chore_calls).answers("Done.").build();
    let measure = |steps: u64| {
        let memo = Memo::within(WorkBudget::new(steps, None));
        let all = catalog::run_each(&trace, &settings, &[], &memo, &mut |_| ());
        let harmful = all.iter().filter(|m| m.metric == HARMFUL_CALL && m.outcome.is_ok()).count();
        (find_measurement(&all, "path.pc_ktc").outcome.is_ok(), harmful, steps - memo.budget.left())
    };
    let (is_measured, harmful, steps) = measure(1 << 26);
    assert_eq!((is_measured, harmful), (true, 2));
    assert!(steps > 5_040 * 19, "each golden path is compared, in {steps} steps");
    // Half of the budget is for this metric.
    let (is_measured, harmful, steps) = measure(20_000);
    assert_eq!((is_measured, harmful), (false, 2), "{steps} steps");
    assert!(steps <= 20_000);
}

#[test]
fn runs_beyond_the_budget_are_unmeasured() {
    let trace = with_calls(Script::new(REQUEST), &[LOOK, CHECK, PAY]).answers("Done.").build();
    let memo = Memo::within(WorkBudget::new(4, None));
    let all = catalog::run_each(&trace, &settings(""), &[], &memo, &mut |_| ());
    let path = all.iter().find(|m| m.metric.starts_with("path")).unwrap();
    assert_eq!(path.outcome, Err(Unmeasured::Limit));
}
