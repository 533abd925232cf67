//! Tests of the rounds, with metrics that ask in several rounds.

use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::measure::Settings;
use crate::measure::question::{AnswerForm, Opinion, Prompt};
use crate::measure::sample::{SampleTrace, llm};
use crate::measure::{Measured, Metric, Usage, Value};
use crate::recognise::AgentTrace;

/// Asks two questions, then a third, and passes when all are answered. It is unmeasured if one has no answer.
struct AsksThreeTimes;

fn question(key: &str) -> Question {
    let form = AnswerForm { name: "any", schema: json!({"type": "object"}), score: None };
    let prompt = Prompt::new("judge", key);
    Question { key: key.to_owned(), prompt, form: Arc::new(form), judges: Vec::new() }
}

impl Metric for AsksThreeTimes {
    fn step(&self, context: &Context<'_>, answers: &[Answer]) -> MetricProgress {
        let keys: Vec<&str> = answers.iter().map(|a| a.key.as_str()).collect();
        let failed = answers.iter().find_map(|answer| answer.opinions.as_ref().err());
        match keys[..] {
            ["a", "b"] | ["a", "b", "c"] if failed.is_some() => {
                MetricProgress::Done(vec![defects::unmeasured(context.at, "latency", *failed.unwrap())])
            }
            [] => MetricProgress::Ask(vec![question("b"), question("a")]),
            ["a", "b"] => MetricProgress::Ask(vec![question("c")]),
            ["a", "b", "c"] => {
                let measured = Measured { value: Value::Score(5.0), passed: true, findings: Vec::new() };
                MetricProgress::Done(vec![defects::measured(context.at, "latency", measured)])
            }
            _ => panic!("answers in order, none missing: {keys:?}"),
        }
    }
}

/// Asks in every round.
struct AsksInEveryRound;

impl Metric for AsksInEveryRound {
    fn step(&self, _: &Context<'_>, answers: &[Answer]) -> MetricProgress {
        MetricProgress::Ask(vec![question(&format!("{:03}", answers.len()))])
    }
}

fn answer(ask: &Ask) -> Answer {
    let opinion = Opinion { value: json!({}), weighted: None, judge: Arc::from("m/1") };
    Answer { key: ask.question.key.clone(), opinions: Ok(vec![opinion]), usage: Usage::default() }
}

/// The metric as the only implementation, in the row with this name.
fn only(name: &str, metric: impl Metric + 'static) -> Vec<JudgedRow<'static>> {
    vec![(crate::measure::table::spec(name).expect("a row"), Box::new(metric))]
}

fn two_spans() -> AgentTrace {
    let mut sample = SampleTrace::new();
    let root = sample.span(None, llm(Vec::new(), "one"));
    sample.span(Some(root), llm(Vec::new(), "two"));
    sample.trace()
}

fn all_asked(rounds: &mut Questions<'_>) -> Vec<Ask> {
    std::iter::from_fn(|| rounds.next_question()).collect()
}

#[test]
fn next_round_starts_when_all_answers_of_the_previous_have_arrived() {
    let (trace, settings) = (two_spans(), Settings::default());
    let inputs = JudgeInputs { trace: &trace, settings: &settings, rule_measurements: &[] };
    let mut rounds = Questions::with_metrics(
        only("latency", AsksThreeTimes),
        inputs,
        AskConditions::closed(&[]),
        |_, span_index| span_index == 0,
    );
    let first = all_asked(&mut rounds);
    assert_eq!(first.len(), 2);
    rounds.answer(first[0].id, answer(&first[0]));
    assert!(rounds.next_question().is_none());
    rounds.answer(first[1].id, answer(&first[1]));
    let second = all_asked(&mut rounds);
    assert_eq!(second.len(), 1);
    rounds.answer(second[0].id, answer(&second[0]));
    let done = rounds.finish(Unmeasured::Timeout);
    assert!(matches!(&done[..], [m] if m.outcome.as_ref().is_ok_and(|m| m.passed)));
}

#[test]
fn unanswered_questions_are_unmeasured_with_the_given_reason() {
    let (trace, settings) = (two_spans(), Settings::default());
    let inputs = JudgeInputs { trace: &trace, settings: &settings, rule_measurements: &[] };
    let mut rounds = Questions::with_metrics(
        only("latency", AsksThreeTimes),
        inputs,
        AskConditions::closed(&[]),
        |_, _| true,
    );
    let ask = rounds.next_question().unwrap();
    rounds.answer(ask.id, answer(&ask));
    let done = rounds.finish(Unmeasured::Timeout);
    let reasons: Vec<_> = done.iter().map(|m| (m.at, m.outcome.clone())).collect();
    assert_eq!(reasons, [(0, Err(Unmeasured::Timeout)), (1, Err(Unmeasured::Timeout))]);
}

/// Applies only to the first span, and passes with any answer.
struct AppliesToFirstSpan;

impl Metric for AppliesToFirstSpan {
    fn step(&self, context: &Context<'_>, answers: &[Answer]) -> MetricProgress {
        match (context.at, answers) {
            (0, []) => MetricProgress::Ask(vec![question("a"), question("b")]),
            (0, answers) => {
                let passed = answers.iter().any(|answer| answer.opinions.is_ok());
                let measured = Measured { value: Value::Score(5.0), passed, findings: Vec::new() };
                MetricProgress::Done(vec![defects::measured(0, "latency", measured)])
            }
            _ => MetricProgress::Done(Vec::new()),
        }
    }

    fn early_step(&self, context: &Context<'_>, answers: &[Answer]) -> MetricProgress {
        match (context.at, answers) {
            (0, []) => MetricProgress::Ask(vec![question("a")]),
            _ => MetricProgress::Done(Vec::new()),
        }
    }
}

#[test]
fn answers_before_the_timeout_are_used() {
    let (trace, settings) = (two_spans(), Settings::default());
    let inputs = JudgeInputs { trace: &trace, settings: &settings, rule_measurements: &[] };
    let mut rounds = Questions::with_metrics(
        only("latency", AppliesToFirstSpan),
        inputs,
        AskConditions::closed(&[]),
        |_, _| true,
    );
    let ask = rounds.next_question().unwrap();
    rounds.answer(ask.id, answer(&ask));
    let done = rounds.finish(Unmeasured::Timeout);
    assert!(matches!(&done[..], [m] if m.outcome.as_ref().is_ok_and(|m| m.passed)), "{done:?}");
}

#[test]
fn excluded_questions_leave_no_measurement_where_the_metric_does_not_apply() {
    let trace = two_spans();
    let measurement_count = |sample: &str| {
        let settings: Settings = serde_saphyr::from_str("judges: [main]").unwrap();
        let ask = serde_saphyr::from_str(&format!("sample: {{ rate: {sample} }}")).unwrap();
        let asker = crate::measure::ask::Asker::new(ask, Default::default(), Vec::new(), &Default::default());
        let settings = Settings { asker: Arc::new(asker.unwrap()), ..settings };
        let inputs = JudgeInputs { trace: &trace, settings: &settings, rule_measurements: &[] };
        let metrics = only("checklist.verdict", AppliesToFirstSpan);
        let mut rounds = Questions::with_metrics(metrics, inputs, AskConditions::closed(&[]), |_, _| true);
        assert_eq!(all_asked(&mut rounds).len(), if sample == "0" { 0 } else { 2 });
        rounds.finish(Unmeasured::Timeout).len()
    };
    assert_eq!((measurement_count("0"), measurement_count("1")), (1, 1), "one span of two");
}

#[test]
fn metric_is_stopped_after_the_maximum_number_of_rounds() {
    let (trace, settings) = (two_spans(), Settings::default());
    let inputs = JudgeInputs { trace: &trace, settings: &settings, rule_measurements: &[] };
    let mut rounds = Questions::with_metrics(
        only("tokens", AsksInEveryRound),
        inputs,
        AskConditions::closed(&[]),
        |_, span_index| span_index == 0,
    );
    let mut asked = 0;
    while let Some(ask) = rounds.next_question() {
        asked += 1;
        rounds.answer(ask.id, answer(&ask));
    }
    assert_eq!(asked, MAX_ROUNDS);
    let done = rounds.finish(Unmeasured::Timeout);
    assert!(matches!(&done[..], [m] if m.outcome == Err(Unmeasured::JudgeError)));
}

#[test]
fn questions_beyond_the_work_budget_are_not_asked() {
    let (trace, settings) = (two_spans(), Settings::default());
    let inputs = JudgeInputs { trace: &trace, settings: &settings, rule_measurements: &[] };
    let rounds = |steps| {
        let questions = Questions::with_metrics(
            only("latency", AsksThreeTimes),
            inputs,
            AskConditions::closed(&[]),
            |_, _| true,
        );
        let mut rounds = questions.within(steps, None);
        let mut asked = all_asked(&mut rounds);
        let mut asked_count = asked.len();
        while !asked.is_empty() {
            asked.iter().for_each(|ask| rounds.answer(ask.id, answer(ask)));
            asked = all_asked(&mut rounds);
            asked_count += asked.len();
        }
        let steps_left = rounds.remaining_steps;
        let done = rounds.finish(Unmeasured::Timeout);
        (asked_count, steps_left, done.into_iter().map(|m| m.outcome.map(|m| m.passed)).collect::<Vec<_>>())
    };
    let (asked, left, outcomes) = rounds(1_000);
    assert_eq!((asked, outcomes), (6, vec![Ok(true), Ok(true)]));
    assert_eq!(left, 1_000 - 4, "each step that asks about a span is one, with its few bytes");
    let (asked, left, outcomes) = rounds(4);
    assert_eq!((asked, left, outcomes), (5, 0, vec![Ok(true), Err(Unmeasured::Limit)]));
    assert_eq!(rounds(0), (0, 0, vec![Err(Unmeasured::Limit); 2]));
}

/// Asks with a prompt of a megabyte.
struct AsksWithLongPrompt;

impl Metric for AsksWithLongPrompt {
    fn step(&self, _: &Context<'_>, _: &[Answer]) -> MetricProgress {
        let prompt = Prompt::new("judge", "x".repeat(1 << 20));
        MetricProgress::Ask(vec![Question { prompt, ..question("long") }])
    }
}

#[test]
fn prompts_count_as_work_and_the_clock_ends_the_work() {
    let (trace, settings) = (two_spans(), Settings::default());
    let inputs = JudgeInputs { trace: &trace, settings: &settings, rule_measurements: &[] };
    let rounds = |stop| {
        let questions = Questions::with_metrics(
            only("latency", AsksWithLongPrompt),
            inputs,
            AskConditions::closed(&[]),
            |_, _| true,
        );
        let mut rounds = questions.within(DEFAULT_STEPS, stop);
        (all_asked(&mut rounds).len(), DEFAULT_STEPS - rounds.remaining_steps)
    };
    assert_eq!(rounds(None), (2, 2 * ((1 << 16) + 1)));
    assert_eq!(rounds(Some(|| Box::new(|| true))), (0, DEFAULT_STEPS));
}
