//! Runs of agents that were not used to develop rules, with recorded answers of a model to the questions of two
//! metrics. The tests show that the prompts contain the content that a judge needs, and that the answers decide the
//! verdict where rules find nothing.
//!
//! `judged_runs.json` has runs as `value_runs.json`, with `answers` by metric, which a model wrote without knowing the
//! verdicts. They are validated as the answers of any judge: an answer that fails a run without a quotation of its
//! content is dropped.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::value_runs::{ValueRun, trace};
use crate::measure::question_rounds::{Ask, JudgeInputs, Questions};
use crate::measure::{Answer, Measurement, Opinion, Settings, Unmeasured, Usage, catalog};
use crate::propagate::{Policies, Policy, propagate};
use crate::recognise::AgentTrace;

/// Metrics whose prompts contain a whole run: whether it fulfilled its goal, and whether its statements are grounded.
const METRICS: [&str; 2] = ["gpa.goal_fulfillment", "gpa.logical_consistency"];

/// A run with recorded answers.
#[derive(Deserialize)]
struct JudgedRun {
    run: ValueRun,
    /// The answers by metric.
    answers: BTreeMap<String, Value>,
}

/// Settings in which `judge` answers the [`METRICS`].
fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.plan.enabled = false;
    for metric in METRICS {
        let name = serde_json::from_value(metric.trim_start_matches("gpa.").into()).unwrap();
        settings.gpa.by_metric.entry(name).or_default().judges = vec!["judge".to_owned()];
    }
    settings
}

/// The measurements of rules and judges of a run. Where `judge` has no answer, the metric is unmeasured.
fn measured(trace: &AgentTrace, mut judge: impl FnMut(&Ask) -> Option<Value>) -> Vec<Measurement> {
    let settings = settings();
    let rules = catalog::run(trace, &settings);
    let mut rounds =
        Questions::new(JudgeInputs { trace, settings: &settings, rule_measurements: &rules }, &[]);
    while let Some(ask) = rounds.next_question() {
        let opinion = |value| vec![Opinion { value, weighted: None, judge: "model/0".into() }];
        let opinions = judge(&ask).map(opinion).ok_or(Unmeasured::JudgeError);
        let key = ask.question.key.clone();
        rounds.answer(ask.id, Answer { key, opinions, usage: Usage::default() });
    }
    let judged = rounds.finish(Unmeasured::Timeout);
    rules.into_iter().filter(|m| !METRICS.contains(&m.metric)).chain(judged).collect()
}

/// Whether the trace fails by these measurements.
fn fails(trace: &AgentTrace, measurements: &[Measurement]) -> bool {
    let policies = Policies { default: Policy::OutcomeRelevant, ..Policies::default() };
    propagate(trace, measurements, &policies).trace.passed == Some(false)
}

/// Asserts that the verdicts by rules and recorded answers differ from the expected ones only for the
/// `known_differences`. Returns the number of failing runs, and how many of them the rules alone find.
fn compare(file: &str, known_differences: &[&str]) -> (usize, usize) {
    let runs: Vec<JudgedRun> = serde_json::from_str(file).unwrap();
    let (mut different, mut found_by_rules) = (Vec::new(), 0);
    for JudgedRun { run, answers } in &runs {
        let trace = trace(run);
        let judged = measured(&trace, |ask| Some(answers[ask.metric].clone()));
        let judge_measurements = judged.iter().filter(|m| METRICS.contains(&m.metric));
        assert!(judge_measurements.clone().count() == METRICS.len(), "{}: an answer is missing", run.name);
        assert!(
            judge_measurements.clone().all(|m| m.outcome.is_ok()),
            "{}: an answer was not usable",
            run.name
        );
        if fails(&trace, &judged) != run.fails {
            different.push(&*run.name);
        }
        let rules = measured(&trace, |_| None);
        found_by_rules += usize::from(run.fails && fails(&trace, &rules));
    }
    assert_eq!(different, known_differences);
    (runs.iter().filter(|judged_run| judged_run.run.fails).count(), found_by_rules)
}

#[test]
fn judges_find_what_rules_miss() {
    let (failing, found_by_rules) = compare(include_str!("judged_runs.json"), &[]);
    assert!(
        found_by_rules < 2 * failing / 3,
        "the number of runs that rules alone find in rules.md is outdated"
    );
}

/// The runs of the four blind sets, on which the rules were measured before anybody had read the runs.
#[test]
fn judges_find_what_rules_miss_in_blind_sets() {
    // In the first run the judge demands a second request for a page that failed; in the second one a rule does not
    // know the working days of a week.
    let known_differences = ["v-es-pisos-primera-pagina-ok", "w-leave-balance-halfdays"];
    let (failing, found_by_rules) = compare(include_str!("judged_blind_runs.json"), &known_differences);
    assert!(
        found_by_rules < 2 * failing / 3,
        "the number of runs that rules alone find in rules.md is outdated"
    );
}

/// Prints how many runs fail by the rules alone and with the recorded answers.
#[test]
#[ignore = "scores the runs and answers of the file RUNS, which has the form of judged_runs.json"]
fn score_judged_runs() {
    let runs: Vec<JudgedRun> =
        serde_json::from_str(&std::fs::read_to_string(std::env::var("RUNS").unwrap()).unwrap()).unwrap();
    for expected in [false, true] {
        let expected_runs: Vec<&JudgedRun> =
            runs.iter().filter(|judged_run| judged_run.run.fails == expected).collect();
        let failing = |with_judges: bool| {
            let fails = |judged_run: &&&JudgedRun| {
                let trace = trace(&judged_run.run);
                fails(
                    &trace,
                    &measured(&trace, |ask| with_judges.then(|| judged_run.answers[ask.metric].clone())),
                )
            };
            expected_runs.iter().filter(fails).map(|judged_run| &*judged_run.run.name).collect::<Vec<_>>()
        };
        let (rules, judged) = (failing(false), failing(true));
        let different: Vec<&str> = expected_runs
            .iter()
            .map(|judged_run| &*judged_run.run.name)
            .filter(|name| judged.contains(name) != expected)
            .collect();
        println!("{} runs that are expected to fail: {expected}", expected_runs.len());
        println!("  failed by rules {}, with judges {}; different {different:?}", rules.len(), judged.len());
    }
}

/// Writes the questions, so that a model's answers can be recorded.
#[test]
#[ignore = "writes the questions about the runs of the file RUNS to the folder QUESTIONS"]
fn write_questions() {
    let runs: Vec<ValueRun> =
        serde_json::from_str(&std::fs::read_to_string(std::env::var("RUNS").unwrap()).unwrap()).unwrap();
    let folder = std::env::var("QUESTIONS").unwrap();
    for (index, run) in runs.iter().enumerate() {
        measured(&trace(run), |ask| {
            let prompt = &ask.question.prompt;
            let file =
                |name: String, text: &str| std::fs::write(Path::new(&folder).join(name), text).unwrap();
            file(format!("{}.system.md", ask.metric), &prompt.system);
            file(format!("{index:03}.{}.md", ask.metric), &prompt.user);
            None
        });
    }
}
