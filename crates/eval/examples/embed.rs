//! Embeds the evaluator: OTLP bytes in; verdicts and the same spans, annotated, out.
//!
//! The evaluator performs no I/O. If metrics name judges, it returns questions and receives answers, and the
//! caller sends them: here an async function answers them itself. Any runtime can execute it. `main` uses none and
//! polls the function once, since its answers are ready immediately.
//! Run with `cargo run -p verdict-eval --example embed`.

#![allow(clippy::print_stdout, clippy::disallowed_methods)]

use std::error::Error;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use serde_json::json;
use verdict_eval::metrics::Unmeasured;
use verdict_eval::questions::{Answer, Ask, Opinion, Usage};
use verdict_eval::{Config, EvaluatedTrace, Evaluator, JudgeResults};

/// One metric asks the judge `main` in addition to the rules; the others are measured by rules.
const CONFIG: &str = "metrics: { completeness: { judges: [rules, main] } }";

/// Answers a question in place of a model: every answer is complete.
async fn answer(ask: &Ask) -> Answer {
    let value = json!({ "rationale": "Every part of the request is answered.", "score": 5, "findings": [] });
    let opinion = Opinion { value, weighted: None, judge: Arc::from("scripted/1") };
    Answer { key: ask.question.key.clone(), opinions: Ok(vec![opinion]), usage: Usage::default() }
}

/// Evaluates every trace of some OTLP requests, with answers from [`answer`].
pub async fn evaluate(
    evaluator: &Evaluator,
    requests: &[Vec<u8>],
) -> Result<Vec<EvaluatedTrace>, Box<dyn Error>> {
    let mut out = Vec::new();
    for closed in evaluator.traces(requests)? {
        let assessment = evaluator.assess(closed, &mut |_| ());
        let mut questions = evaluator.questions(&assessment);
        while let Some(ask) = questions.next_question() {
            let answer = answer(&ask).await;
            questions.answer(ask.id, answer);
        }
        let judged =
            JudgeResults { measurements: questions.finish(Unmeasured::Timeout), ..JudgeResults::default() };
        out.push(evaluator.decide(assessment, judged, 0));
    }
    Ok(out)
}

/// One line for each failed span and each trace.
pub fn lines(evaluator: &Evaluator, evaluated: &EvaluatedTrace) -> Vec<String> {
    let EvaluatedTrace { trace, measurements, verdicts, .. } = evaluated;
    let mut lines = Vec::new();
    for m in measurements {
        let (Ok(measured), Some(span)) = (&m.outcome, trace.tree.spans.get(m.at)) else { continue };
        if let Some(finding) = measured.findings.first().filter(|_| !measured.passed) {
            lines.push(format!("{} fails on {}: {}", m.metric, span.id, finding.rationale));
        }
    }
    let annotated = evaluator.annotate(evaluated);
    let bytes: usize = annotated.spans.iter().map(|request| request.bytes.len()).sum();
    let judged = measurements.iter().filter(|m| m.judge.starts_with("scripted")).count();
    let passed = verdicts.trace.passed;
    lines.push(format!(
        "trace {}: passes {passed:?}, {judged} judged, {bytes} bytes annotated",
        trace.tree.id
    ));
    lines
}

/// An evaluator with a judge for one metric.
pub fn evaluator() -> Result<Evaluator, Box<dyn Error>> {
    let config: Config = serde_saphyr::from_str(CONFIG)?;
    Ok(Evaluator::builder(&config).build()?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../demo/langgraph-openinference-m");
    let evaluator = evaluator()?;
    let requests = [std::fs::read(format!("{folder}/001.pb"))?];
    let evaluation = pin!(evaluate(&evaluator, &requests));
    let Poll::Ready(evaluated) = evaluation.poll(&mut Context::from_waker(Waker::noop())) else {
        return Err("an answer was not ready".into());
    };
    for evaluated in evaluated? {
        lines(&evaluator, &evaluated).iter().for_each(|line| println!("{line}"));
    }
    Ok(())
}
