//! `consistency`: agreement of judges with themselves (paper 000, section 4.1.4).
//!
//! In: traces, a configuration whose metrics name judges. Out: for each metric alpha, the spread between
//! runs, and the similarity of the rationales.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::score::table::{Table, figure, optional_figure};
use crate::cli::command::{ConfigFiles, Failure, Output};
use crate::cli::eval;
use crate::score::consistency::{self, Consistency, Rating, SpanKey};

pub(super) const LONG: &str = "\
Ask judges repeatedly and measure how much they agree with themselves.

Judges every trace several times; the runs share no cached answers. For each metric that a judge
answered: Krippendorff's alpha over scores (by distance, with a 95 % interval, and by rank), the
mean standard deviation between runs with the half-width of its 95 % interval, both on scores
scaled to 0..1, and how alike the rationales of findings are by their words (TF-IDF cosine:
lexical, synonyms are different words). Alpha is undefined ('-') if all scores are equal.

Every run asks all questions again: the cost grows with the number of runs.";

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
    let mut runs: Vec<BTreeMap<(String, SpanKey), Rating>> = vec![BTreeMap::new(); args.runs as usize];
    eval::repeat(&config, &args.paths, args.runs, |run, judged| {
        if let Some(own) = runs.get_mut(run as usize) {
            own.extend(consistency::ratings(&judged.trace, &judged.measurements));
        }
    })?;
    let figures = consistency::of_runs(&runs);
    if figures.is_empty() {
        return Err(Failure::Run("no judge measured anything in the input".to_owned()));
    }
    args.output.print(&json!({ "runs": args.runs, "metrics": figures }), || table(&figures, args.runs))
}

fn table(figures: &Figures, runs: u32) -> String {
    let head =
        ["metric", "places", "ratings", "alpha interval", "alpha ordinal", "mean sd", "+-", "likeness"];
    let mut t = Table::new(head);
    for (metric, figures) in figures {
        let Some(c) = figures else {
            t.row([metric.clone(), "no span was rated twice".to_owned()]);
            continue;
        };
        let alpha =
            c.alpha_interval.map_or_else(|| optional_figure(None), |alpha| figure(alpha, c.alpha_range));
        let rest = [c.alpha_ordinal, Some(c.mean_deviation), c.half_width, c.similarity].map(optional_figure);
        let counts = [c.places, c.ratings].map(|n| n.to_string());
        t.row([metric.clone()].into_iter().chain(counts).chain([alpha]).chain(rest));
    }
    format!("{runs} runs; likeness of rationales is lexical\n\n{}", t.render())
}
