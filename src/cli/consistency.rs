//! `consistency`: how much judges agree with themselves (paper 000, section 4.1.4).
//!
//! In: traces, a configuration whose metrics name judges. Out: for each metric alpha, the standard deviation
//! between runs, and the similarity of rationales.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::score::table::{Table, figure, maybe};
use crate::cli::config_files::ConfigFiles;
use crate::cli::failure::Failure;
use crate::cli::format::Output;
use crate::cli::terminal::write_stdout;
use crate::cli::{eval, input};
use crate::score::consistency;
use crate::score::consistency::{Consistency, Place, Rating};

pub(super) const LONG: &str = "\
Judge traces several times, and report how much the judges agree with themselves.

Cached answers of one run are not used in another. For each metric that a judge answered: Krippendorff's
alpha over scores (by distance, with a 95 % interval, and by rank), the mean standard deviation between
runs with the half-width of its 95 % interval, both on scores scaled to 0..1, and the similarity of the
findings' rationales by their words (TF-IDF cosine; synonyms count as different). Alpha is undefined
('-') if all scores are equal.

Every run asks all questions, so the cost is that of one run times the number of runs.";

pub(super) const EXAMPLES: &str = "\
Examples:
  otel-verdict consistency recordings/ --config judges.yaml
  otel-verdict consistency trace.json --config judges.yaml --runs 10 --output json";

#[derive(Args, Debug)]
pub(super) struct Repeat {
    /// Files and folders to read; '-' is standard input
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Number of times that each trace is judged
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(2..=100))]
    runs: u32,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    config: ConfigFiles,
}

type Figures = BTreeMap<String, Option<Consistency>>;

pub(super) fn consistency(args: &Repeat) -> Result<(), Failure> {
    let config = args.config.load()?;
    if config.verdict.evaluation.metrics.named_judges().next().is_none() {
        let why =
            "no metric names a judge (verdict.metrics.judges): rules give the same answers in every run";
        return Err(Failure::Usage(why.to_owned()));
    }
    let mut runs: Vec<BTreeMap<(String, Place), Rating>> = vec![BTreeMap::new(); args.runs as usize];
    eval::repeat(&config, &input::find(&args.paths)?, args.runs, |run, judged| {
        if let Some(own) = runs.get_mut(run as usize) {
            own.extend(consistency::ratings(&judged.trace, &judged.measurements));
        }
    })?;
    let figures = consistency::of_runs(&runs);
    if figures.is_empty() {
        return Err(Failure::Run("no judge measured anything in the input".to_owned()));
    }
    match args.output {
        Output::Table => write_stdout(table(&figures, args.runs).as_bytes()),
        Output::Json => write_stdout(format!("{:#}\n", json(&figures, args.runs)).as_bytes()),
    }
}

fn table(figures: &Figures, runs: u32) -> String {
    let head =
        ["metric", "places", "ratings", "alpha interval", "alpha ordinal", "mean sd", "+-", "likeness"];
    let mut t = Table::new(head);
    for (metric, figures) in figures {
        let Some(c) = figures else {
            t.row([metric.clone(), "no place was rated twice".to_owned()]);
            continue;
        };
        let alpha = c.alpha_interval.map_or_else(|| maybe(None), |alpha| figure(alpha, c.alpha_range));
        let rest = [c.alpha_ordinal, Some(c.mean_deviation), c.half_width, c.similarity].map(maybe);
        let counts = [c.places, c.ratings].map(|n| n.to_string());
        t.row([metric.clone()].into_iter().chain(counts).chain([alpha]).chain(rest));
    }
    format!("{runs} runs; likeness of rationales is lexical\n\n{}", t.render())
}

fn json(figures: &Figures, runs: u32) -> Value {
    let of = |c: &Consistency| {
        json!({
            "places": c.places, "ratings": c.ratings,
            "alpha_interval": c.alpha_interval,
            "alpha_interval_95": c.alpha_range.map(|i| [i.low, i.high]),
            "alpha_ordinal": c.alpha_ordinal,
            "mean_standard_deviation": c.mean_deviation, "half_width_95": c.half_width,
            "rationale_similarity_lexical": c.similarity,
        })
    };
    let metrics = figures.iter().map(|(metric, c)| (metric.clone(), c.as_ref().map_or(Value::Null, of)));
    json!({ "runs": runs, "metrics": Value::Object(metrics.collect()) })
}
