//! Small runs in pairs, each with the verdict of its user: a correct run, which must not fail, and a run that differs
//! in the subject of a rule, which must fail (`value_runs.json`).
//!
//! A run has a request, optional instructions and tools, steps (calls with arguments and result, retrieved passages,
//! turns of the dialogue) and an answer. If `RUNS` is the path of another file, its runs are read instead.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

use crate::measure::catalog;
use crate::measure::defect::Defect;
use crate::measure::testing::Script;
use crate::measure::{Finding, Settings};
use crate::propagate::{Policies, Policy, propagate};
use crate::recognise::AgentTrace;

/// A run with its expected verdict.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ValueRun {
    pub(super) name: String,
    task: String,
    #[serde(default)]
    system: Option<String>,
    #[serde(default)]
    tools: Vec<String>,
    steps: Vec<RunStep>,
    answer: String,
    pub(super) fails: bool,
    #[serde(default, rename = "why")]
    #[allow(dead_code)]
    reason: String,
    /// The start of the run in nanoseconds since 1970.
    #[serde(default)]
    time: u64,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RunStep {
    /// A call: the name of a tool, its arguments and its result.
    Call(String, Value, Value),
    Turn(RunTurn),
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum RunTurn {
    User(String),
    Says(String),
    Retrieves(String),
}

fn script(run: &ValueRun) -> Script {
    let tools: Vec<&str> = run.tools.iter().map(String::as_str).collect();
    let asked = Script::new(&run.task).tools(&tools);
    let asked = run.system.iter().fold(asked, |script, text| script.system(text));
    let conversation = run.steps.iter().fold(asked, |script, step| match step {
        RunStep::Call(name, arguments, Value::String(result)) => {
            script.calls("", &[(name, &arguments.to_string())]).returns(result)
        }
        RunStep::Call(name, arguments, result) => {
            script.calls("", &[(name, &arguments.to_string())]).returns(&result.to_string())
        }
        RunStep::Turn(RunTurn::User(text)) => script.user(text),
        RunStep::Turn(RunTurn::Says(text)) => script.says(text),
        RunStep::Turn(RunTurn::Retrieves(text)) => script.retrieves(text),
    });
    conversation.answers(&run.answer)
}

/// The trace of a run.
pub(super) fn trace(run: &ValueRun) -> AgentTrace {
    let mut trace = script(run).build();
    for span in &mut trace.tree.spans {
        (span.start, span.end) = (span.start + run.time, span.end + run.time);
    }
    trace.calls.iter_mut().for_each(|call| call.start += run.time);
    trace
}

#[test]
fn runs_have_the_verdicts_of_their_users() {
    let file = std::env::var("RUNS").ok().map(|f| std::fs::read_to_string(f).unwrap());
    let runs: Vec<ValueRun> =
        serde_json::from_str(file.as_deref().unwrap_or(include_str!("value_runs.json"))).unwrap();
    let policies = Policies { default: Policy::OutcomeRelevant, ..Policies::default() };
    let mut wrong = Vec::new();
    for run in &runs {
        let trace = trace(run);
        let measurements = catalog::run(&trace, &Settings::default());
        let fails = propagate(&trace, &measurements, &policies).trace.passed == Some(false);
        if fails != run.fails {
            let failed_metrics =
                measurements.iter().filter_map(|m| Some((m.metric, super::failure_reason(m)?)));
            let reasons: Vec<String> =
                failed_metrics.map(|(metric, reason)| format!("    {metric}: {reason}")).collect();
            let verdict = if fails { "fails" } else { "does not fail" };
            wrong.push(format!("{} {verdict}: {}\n{}", run.name, run.answer, reasons.join("\n")));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), runs.len(), wrong.join("\n"));
}

/// Runs that a rule finds, and similar runs that it must not find.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleRuns {
    rule: String,
    finds: Vec<ValueRun>,
    passes: Vec<ValueRun>,
}

/// The rules with a failing finding on a run.
fn rules_on(run: &ValueRun) -> BTreeSet<String> {
    let measurements = catalog::run(&trace(run), &Settings::default());
    let failing = measurements.iter().filter_map(|m| m.outcome.as_ref().ok()).filter(|m| !m.passed);
    failing.flat_map(|m| &m.findings).filter(|f| !f.is_note()).filter_map(Finding::rule_name).collect()
}

/// Each rule finds at least two runs and does not find two similar ones. A rule that shares its defect with others has
/// a name, by which it is distinguished.
#[test]
fn each_rule_finds_its_own_runs() {
    let runs: Vec<ValueRun> = serde_json::from_str(include_str!("value_runs.json")).unwrap();
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.fails) {
        rules_on(run).into_iter().for_each(|rule| *found.entry(rule).or_default() += 1);
    }
    let file = std::env::var("RULE_RUNS").ok().map(|f| std::fs::read_to_string(f).unwrap());
    let by_rule: Vec<RuleRuns> =
        serde_json::from_str(file.as_deref().unwrap_or(include_str!("rule_runs.json"))).unwrap();
    let mut differences = Vec::new();
    for RuleRuns { rule, finds, passes } in &by_rule {
        for (run, expected) in
            finds.iter().map(|run| (run, true)).chain(passes.iter().map(|run| (run, false)))
        {
            let rules = rules_on(run);
            if rules.contains(rule) != expected {
                differences.push(format!("{rule}: {} has {rules:?}", run.name));
            }
        }
        if passes.len() < 2 {
            differences.push(format!("{rule}: {} runs that it does not find", passes.len()));
        }
        *found.entry(rule.clone()).or_default() += finds.len();
    }
    for (defect, name) in found.keys().filter_map(|rule| rule.split_once('.')) {
        let defect = Defect::ALL.iter().find(|known| known.name() == defect).unwrap();
        assert!(defect.rules().contains(&name), "{name} is no rule of {defect:?}");
    }
    // `AnswerUnsupported` has the rules of other defects.
    for defect in Defect::ALL.iter().filter(|defect| **defect != Defect::AnswerUnsupported) {
        for rule in defect.rules().iter().map(|name| format!("{}.{name}", defect.name())) {
            let count = found.get(&rule).copied().unwrap_or_default();
            // The runs have no plans; the tests of `plan_efficiency` have.
            if count < 2 && rule != "StepSkipped.plan" {
                differences.push(format!("{rule} finds {count} runs"));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
