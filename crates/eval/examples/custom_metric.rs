//! A custom metric: how short an agent's final answer is, from 0 to 1.
//!
//! Its row contains its name and its scale. Like a built-in metric it can be disabled, has a threshold and
//! overrides, propagates to the trace's verdict, and is written as attributes of the span.
//! Run with `cargo run -p verdict-eval --example custom_metric`.

#![allow(clippy::print_stdout, clippy::disallowed_methods)]

use std::error::Error;

use verdict_eval::metrics::{
    Context, Finding, Measured, Measurement, Metric, MetricProgress, MetricSpec, Scale, Scored, Value,
};
use verdict_eval::questions::Answer;
use verdict_eval::{Config, Evaluator};

/// Words of an answer with the best score.
const WORDS: usize = 3;

static BREVITY: MetricSpec = MetricSpec::custom("style.brevity", Scale::UNIT, Some(0.5));

struct Brevity;

impl Metric for Brevity {
    fn step(&self, context: &Context<'_>, _: &[Answer]) -> MetricProgress {
        // Measured on the spans of agents with a recorded answer.
        let agent = context.trace.agents.iter().find(|agent| agent.at == context.at);
        let Some(answer) = agent.and_then(|agent| agent.answer.as_deref()) else {
            return MetricProgress::Done(Vec::new());
        };
        let words = answer.split_whitespace().count().max(1);
        let score = (WORDS as f64 / words as f64).min(1.0);
        let passed = score >= context.threshold();
        let finding = || {
            Finding::new(format!("at most {WORDS} words were expected; the answer has {words}"), answer, 3.0)
        };
        let findings = if passed { Vec::new() } else { vec![finding()] };
        let measured = Measured { value: Value::Score(score), passed, findings };
        MetricProgress::Done(vec![Measurement::new(context.at, BREVITY.name, "brevity/1", Ok(measured))])
    }
}

/// The measurements of the traces of an OTLP request, with this threshold.
pub fn run(request: &[u8], threshold: f64) -> Result<Vec<String>, Box<dyn Error>> {
    let settings = Scored { threshold, ..BREVITY.defaults() };
    let config = Config::default();
    let evaluator = Evaluator::builder(&config).metric(&BREVITY, settings, Brevity).build()?;
    let mut lines = Vec::new();
    for closed in evaluator.traces([request])? {
        let evaluated = evaluator.evaluate(closed, 0, &mut |_| ());
        for m in evaluated.measurements.iter().filter(|m| m.metric == BREVITY.name) {
            let Ok(measured) = &m.outcome else { continue };
            let rationale = measured.findings.first().map_or("", |finding| finding.rationale.as_str());
            lines.push(format!("{} {:?} {} {rationale}", m.metric, measured.value, measured.passed));
        }
        lines.push(format!("trace passes: {:?}", evaluated.verdicts.trace.passed));
    }
    Ok(lines)
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../demo/pydanticai-b");
    let request = std::fs::read(format!("{folder}/001.pb"))?;
    for line in run(&request, 0.5)? {
        println!("{line}");
    }
    Ok(())
}
