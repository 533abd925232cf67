//! Metrics that ask judges, with a scripted judge.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::config::{AskConfig, Instruction};
use super::*;
use crate::measure::question_rounds::{Ask, JudgeInputs, Questions};
use crate::measure::testing::Script;
use crate::measure::{Measurement, Opinion, Settings, Unmeasured, Usage, Value, catalog};
use crate::recognise::AgentTrace;
use crate::redact::Redact;

mod attacks;
mod golden;
mod growth;
mod outcome;
mod repeated;
mod steps;
mod surroundings;
mod whole;

/// The answer of the scripted judge: opinions, or the reason why there is none.
type Answers = Result<Vec<Json>, Unmeasured>;

/// Settings by which the judge `j` is asked about `metrics` only.
fn settings(metrics: &[&str]) -> Settings {
    let mut settings = Settings::default();
    settings.plan.enabled = false;
    let judges = || vec!["rules".to_owned(), "j".to_owned()];
    for metric in metrics {
        match *metric {
            "error_detection" => settings.error_detection.judges = judges(),
            "avoidance" => settings.avoidance.judges = judges(),
            "instruction_following" => settings.instruction_following.judges = judges(),
            "reasoning_integrity" => settings.reasoning_integrity.judges = judges(),
            "tool_completeness" => settings.tool_completeness.judges = judges(),
            "plan_efficiency" => settings.plan_efficiency.judges = judges(),
            "tool_coverage" => settings.tool_coverage.judges = judges(),
            "tool_abuse" => settings.tool_abuse.judges = judges(),
            "completeness" => settings.completeness.judges = judges(),
            gpa_metric => {
                let name = serde_json::json!(gpa_metric.trim_start_matches("gpa."));
                let judgement = serde_json::from_value(name).expect("a metric");
                settings.gpa.by_metric.entry(judgement).or_default().judges = judges();
            }
        }
    }
    settings
}

/// The settings with a changed `verdict.ask`.
fn asked_with(mut settings: Settings, change: impl FnOnce(&mut AskConfig)) -> Settings {
    let mut ask = AskConfig::default();
    change(&mut ask);
    let asker = Asker::new(ask, BTreeMap::new(), Vec::new(), &Redact::default());
    settings.asker = Arc::new(asker.expect("no patterns"));
    settings
}

/// Passes every question to `judge`, and returns the measurements and the questions.
fn judged(
    trace: &AgentTrace,
    settings: &Settings,
    judge: impl Fn(&Ask) -> Answers,
) -> (Vec<Measurement>, Vec<Ask>) {
    let rules = catalog::run(trace, settings);
    let inputs = JudgeInputs { trace, settings, rule_measurements: &rules };
    let mut rounds = Questions::new(inputs, &[]);
    let mut asked = Vec::new();
    while let Some(ask) = rounds.next_question() {
        let opinions = judge(&ask).map(|values| {
            let opinion = |value| Opinion { value, weighted: None, judge: "m/0".into() };
            values.into_iter().map(opinion).collect()
        });
        let key = ask.question.key.clone();
        rounds.answer(ask.id, Answer { key, opinions, usage: Usage::default() });
        asked.push(ask);
    }
    (rounds.finish(Unmeasured::Timeout), asked)
}

/// The questions alone.
fn questions(trace: &AgentTrace, settings: &Settings) -> Vec<Ask> {
    judged(trace, settings, |_| Err(Unmeasured::JudgeError)).1
}

/// A finding on the span `span_index`.
fn finding(trace: &AgentTrace, span_index: usize, quote: &str, severity: &str) -> Json {
    let id = trace.tree.spans[span_index].id.to_string();
    json!({ "problem": "it is wrong", "span_id": id, "quote": quote,
        "category": "Goal Deviation", "severity": severity })
}

fn reply_with(score: u8, findings: &[Json]) -> Json {
    json!({ "rationale": "because", "score": score, "findings": findings })
}

fn score(m: &Measurement) -> Option<f64> {
    match m.outcome.as_ref().ok()?.value {
        Value::Score(score) => Some(score),
        _ => None,
    }
}

/// A search, and an answer that contradicts its result.
fn bridge() -> AgentTrace {
    Script::new("When was the Kirchenfeld bridge in Bern opened?")
        .system("Answer with the year alone.")
        .tools(&["search"])
        .calls("I look it up.", &[("search", r#"{"q":"Kirchenfeld bridge"}"#)])
        .returns("The Kirchenfeld bridge was opened on 24 September 1883.")
        .answers("It was opened in 1884, I think.")
        .build()
}

/// The estimated tokens of a question.
fn tokens_of(ask: &Ask) -> usize {
    let prompt = &ask.question.prompt;
    [&*prompt.system, &*prompt.user, &ask.question.form.schema.to_string()]
        .map(prompt_page::tokens)
        .iter()
        .sum()
}
