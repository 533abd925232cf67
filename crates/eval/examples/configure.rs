//! A configuration built from its types, and a task file given as a text.
//!
//! The same configuration can be read with `serde`, as `examples/embed.rs` does. `build` returns every invalid value.
//! Run with `cargo run -p verdict-eval --example configure`.

#![allow(clippy::print_stdout, clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::error::Error;

use verdict_eval::config::labels::{ErrorLabel, FailingErrors};
use verdict_eval::config::{Emit, Explanations, Labelled, Latency, MetricsConfig, Redact, Scored, Source};
use verdict_eval::metrics::{TaskSet, Value};
use verdict_eval::propagation::{Cause, Policies, Policy, Verdict};
use verdict_eval::trace::Kind;
use verdict_eval::{Config, Evaluator};

/// A task file: pages may be visited only after a search.
const TASK: &str = "
task: research
alphabet: { search: web_search, visit: visit_page }
policy:
  - { never: visit, before: search }
";

/// A configuration that limits model calls to `max_ms` milliseconds.
pub fn config(max_ms: f64) -> Config {
    let metrics = MetricsConfig {
        completeness: Scored { threshold: 3.0, ..Scored::default() },
        error_detection: Labelled {
            fail_labels: FailingErrors(vec![ErrorLabel::System]),
            ..Labelled::default()
        },
        latency: Latency { max_ms: BTreeMap::from([(Kind::Llm, max_ms)]), ..Latency::default() },
        ..MetricsConfig::default()
    };
    Config {
        emit: vec![Emit::Attributes],
        explanations: Explanations::All,
        propagation: Policies { default: Policy::OutcomeRelevant, ..Policies::default() },
        metrics,
        redact: Redact { patterns: vec!["ACME-[0-9]{6}".to_owned()], ..Redact::default() },
        ..Config::default()
    }
}

/// The path scores of the traces of an OTLP request, and the number of spans that fail by their own metrics.
pub fn run(request: &[u8], max_ms: f64) -> Result<Vec<String>, Box<dyn Error>> {
    let tasks = TaskSet::parse(&[Source { name: "research.yaml".to_owned(), text: TASK.to_owned() }])?;
    tasks.warnings().iter().for_each(|warning| println!("{warning}"));
    let evaluator = Evaluator::builder(&config(max_ms)).path_tasks(tasks).build()?;
    let mut lines = Vec::new();
    for closed in evaluator.traces([request])? {
        let evaluated = evaluator.evaluate(closed, 0, &mut |_| ());
        for m in &evaluated.measurements {
            if let (true, Ok(Value::Score(score))) =
                (m.metric.starts_with("path."), m.outcome.as_ref().map(|measured| &measured.value))
            {
                lines.push(format!("{} {score}", m.name()));
            }
        }
        let failing = |verdict: &&Verdict| matches!(verdict, Verdict::Fail(Cause::Own | Cause::Both));
        let failing = evaluated.verdicts.by_span.iter().flatten().filter(failing).count();
        lines.push(format!("{failing} spans fail"));
    }
    Ok(lines)
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../demo/pydanticai-b");
    let request = std::fs::read(format!("{folder}/001.pb"))?;
    for line in run(&request, 30_000.0)? {
        println!("{line}");
    }
    Ok(())
}
