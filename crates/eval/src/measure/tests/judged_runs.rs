//! Runs of agents that no rule was made on, with the answers of a model to the questions of two metrics: the questions
//! show what a judge needs, and its answers decide the verdict where rules find nothing.
//!
//! `judged_runs.json` has runs as `value_runs.json`, with `answers` by metric: the answers that a model gave to these
//! questions without knowing which of the runs were right. They pass through the validator as the answers of any judge:
//! one that fails a run without a quotation of the record is dropped.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::value_runs::{ValueRun, trace};
use crate::measure::question_rounds::{Ask, JudgeInputs, Questions};
use crate::measure::{Answer, Measurement, Opinion, Settings, Unmeasured, Usage, catalog};
use crate::propagate::{Policies, Policy, propagate};
use crate::recognise::AgentTrace;

/// The metrics whose judges see a whole run and decide whether it did its job, and whether its claims have grounds.
const METRICS: [&str; 2] = ["gpa.goal_fulfillment", "gpa.logical_consistency"];

#[derive(Deserialize)]
struct JudgedRun {
    run: ValueRun,
    /// By metric.
    answers: BTreeMap<String, Value>,
}

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

fn fails(trace: &AgentTrace, measurements: &[Measurement]) -> bool {
    let policies = Policies { default: Policy::OutcomeRelevant, ..Policies::default() };
    propagate(trace, measurements, &policies).trace.passed == Some(false)
}

/// Verdicts of rules and recorded answers, which may differ from those of the people who wrote the runs for
/// `known_differences` ones only. Returns how many wrong runs there are, and how many of them the rules alone find.
fn compare(file: &str, known_differences: &[&str]) -> (usize, usize) {
    let runs: Vec<JudgedRun> = serde_json::from_str(file).unwrap();
    let (mut differ, mut found_by_rules) = (Vec::new(), 0);
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
            differ.push(&*run.name);
        }
        let rules = measured(&trace, |_| None);
        found_by_rules += usize::from(run.fails && fails(&trace, &rules));
    }
    assert_eq!(differ, known_differences);
    (runs.iter().filter(|judged_run| judged_run.run.fails).count(), found_by_rules)
}

#[test]
fn judges_find_what_rules_miss() {
    let (wrong, found_by_rules) = compare(include_str!("judged_runs.json"), &[]);
    assert!(found_by_rules < 2 * wrong / 3, "then the figure in rules.md of rules alone is to be changed");
}

/// The runs of the four blind sets, whose rules were measured before anybody read them.
#[test]
fn judges_find_what_rules_miss_in_blind_sets() {
    // The judge wanted a page that failed to be requested again; a rule does not know the working days of a week.
    let known_differences = ["v-es-pisos-primera-pagina-ok", "w-leave-balance-halfdays"];
    let (wrong, found_by_rules) = compare(include_str!("judged_blind_runs.json"), &known_differences);
    assert!(found_by_rules < 2 * wrong / 3, "then the figure in rules.md of rules alone is to be changed");
}

/// Prints how many runs fail by the rules alone and with the recorded answers.
#[test]
#[ignore = "scores the runs and answers of the file RUNS, which has the form of judged_runs.json"]
fn score_judged_runs() {
    let runs: Vec<JudgedRun> =
        serde_json::from_str(&std::fs::read_to_string(std::env::var("RUNS").unwrap()).unwrap()).unwrap();
    for kind in [false, true] {
        let runs_of_kind: Vec<&JudgedRun> =
            runs.iter().filter(|judged_run| judged_run.run.fails == kind).collect();
        let failing = |with_judges: bool| {
            let fails = |judged_run: &&&JudgedRun| {
                let trace = trace(&judged_run.run);
                fails(
                    &trace,
                    &measured(&trace, |ask| with_judges.then(|| judged_run.answers[ask.metric].clone())),
                )
            };
            runs_of_kind.iter().filter(fails).map(|judged_run| &*judged_run.run.name).collect::<Vec<_>>()
        };
        let (rules, judged) = (failing(false), failing(true));
        let others: Vec<&str> = runs_of_kind
            .iter()
            .map(|judged_run| &*judged_run.run.name)
            .filter(|name| judged.contains(name) != kind)
            .collect();
        println!("{} runs that fail: {kind}", runs_of_kind.len());
        println!("  failed by rules {}, with judges {}; otherwise {others:?}", rules.len(), judged.len());
    }
}

/// Writes the questions, for which a model's answers can be recorded.
#[test]
#[ignore = "writes the questions about the runs of the file RUNS to the folder QUESTIONS"]
fn write_questions() {
    let runs: Vec<ValueRun> =
        serde_json::from_str(&std::fs::read_to_string(std::env::var("RUNS").unwrap()).unwrap()).unwrap();
    let folder = std::env::var("QUESTIONS").unwrap();
    for (at, run) in runs.iter().enumerate() {
        measured(&trace(run), |ask| {
            let prompt = &ask.question.prompt;
            let file =
                |name: String, text: &str| std::fs::write(Path::new(&folder).join(name), text).unwrap();
            file(format!("{}.system.md", ask.metric), &prompt.system);
            file(format!("{at:03}.{}.md", ask.metric), &prompt.user);
            None
        });
    }
}
