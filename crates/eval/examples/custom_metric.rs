//! A custom metric: how short a model's answer to a user is, from 0 to 1.
//!
//! Its row contains its name, its scale and the spans that it is written on. Like a built-in metric it can be disabled,
//! has a threshold and overrides, propagates to the trace's verdict, and is written as attributes of the span.
//! Run with `cargo run -p verdict-eval --example custom_metric`.

#![allow(clippy::print_stdout, clippy::disallowed_methods)]

use std::error::Error;

use verdict_eval::metrics::{
    About, Category, Context, Finding, Measured, Measurement, Metric, MetricProgress, MetricSpec, Scale,
    Scored, Unmeasured, Value,
};
use verdict_eval::questions::Answer;
use verdict_eval::trace::{Content, Kind, Part, Role, SpanView};
use verdict_eval::{Config, Evaluator};

/// Maximum number of words of an answer with the best score.
const MAX_WORDS: usize = 3;

static BREVITY: MetricSpec = MetricSpec::custom("style.brevity", Scale::UNIT, Some(0.5))
    .with_about(About::Model)
    .with_categories(&[Category::InstructionNonCompliance]);

struct Brevity;

/// The text that the model wrote to the user; `None` if the model requested calls, or the prompt has no user message.
fn answer(view: &SpanView) -> Option<String> {
    let is_asked = view.input.iter().any(|message| message.role == Role::User);
    if !is_asked || view.requests().next().is_some() {
        return None;
    }
    let written = view.output.iter().filter(|message| message.role == Role::Assistant);
    let texts = written.flat_map(|message| &message.parts).filter_map(|part| match part {
        Part::Text(text) => Some(&**text),
        _ => None,
    });
    Some(texts.collect::<Vec<_>>().join("\n"))
}

impl Metric for Brevity {
    fn step(&self, context: &Context<'_>, _: &[Answer]) -> MetricProgress {
        let Some(view) = context.trace.views.get(context.at).filter(|view| view.kind == Kind::Llm) else {
            return MetricProgress::Done(Vec::new());
        };
        let outcome = match (view.output_content, answer(view)) {
            (Content::Present, None) => return MetricProgress::Done(Vec::new()),
            (Content::Present, Some(answer)) => {
                let words = answer.split_whitespace().count().max(1);
                let score = (MAX_WORDS as f64 / words as f64).min(1.0);
                let passed = score >= context.threshold();
                let rationale = format!("at most {MAX_WORDS} words were expected; the answer has {words}");
                let findings = if passed { Vec::new() } else { vec![Finding::new(rationale, answer, 3.0)] };
                Ok(Measured { value: Value::Score(score), passed, findings })
            }
            (gap, _) => Err(Unmeasured::from(gap)),
        };
        MetricProgress::Done(vec![Measurement::new(context.at, BREVITY.name, "brevity/1", outcome)])
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
