//! Small runs in pairs, each with the verdict that its user would give: right runs must not fail, and wrong ones that
//! differ from them in what a rule is about must fail (`value_runs.json`).
//!
//! A run has a request, perhaps instructions and tools, its steps (calls with arguments and result, passages that were
//! retrieved, turns of the dialogue) and the answer. With the path of another file in `RUNS`, its runs are read
//! instead.

use serde::Deserialize;
use serde_json::Value;

use crate::measure::Settings;
use crate::measure::catalog;
use crate::measure::testing::Script;
use crate::propagate::{Policies, Policy, propagate};
use crate::recognise::AgentTrace;

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
    /// Nanoseconds since 1970 at its beginning.
    #[serde(default)]
    time: u64,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RunStep {
    /// The name of a tool, its arguments and its result.
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
            let failed_metrics = measurements.iter().filter_map(|m| Some((m.metric, super::failed(m)?)));
            let reasons: Vec<String> =
                failed_metrics.map(|(metric, reason)| format!("    {metric}: {reason}")).collect();
            let verdict = if fails { "fails" } else { "does not fail" };
            wrong.push(format!("{} {verdict}: {}\n{}", run.name, run.answer, reasons.join("\n")));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), runs.len(), wrong.join("\n"));
}
