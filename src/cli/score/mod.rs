//! `score`: what was found, held against what people found.
//!
//! In: recorded traces, and what people say of them. Out: tables, JSON and an HTML report. The
//! reading and printing is here; every figure is made in [`crate::score`].

mod files;
mod labels;
mod report;
mod scored;
pub(super) mod table;
mod tables;
mod thresholds;
mod trail;

use clap::{Args, Subcommand};

use crate::cli::failure::Failure;

pub(super) const LONG: &str = "\
Hold the verdicts against what people found.

Judges recorded traces as 'eval' would and compares: with the annotations of the TRAIL benchmark, or
with labels of your own. Nothing of a gold file is ever shown to a rule.";

pub(super) const EXAMPLES: &str = "\
Examples:
  otel-verdict score trail --traces gaia/traces --gold gaia/gold
  otel-verdict score trail --traces gaia/traces --gold gaia/gold --predictions out/
  otel-verdict score labels --traces recordings/ --labels labels.json
  otel-verdict score thresholds --traces recordings/ --labels labels.json

Exit codes:
  0  scored
  2  unreadable input, wrong configuration or usage";

#[derive(Args, Debug)]
pub(super) struct Score {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Against the annotations of the TRAIL benchmark
    #[command(long_about = trail::LONG, after_long_help = trail::EXAMPLES)]
    Trail(trail::Trail),
    /// Against labels of your own
    #[command(long_about = labels::LONG, after_long_help = labels::examples())]
    Labels(labels::Against),
    /// Fit each metric's threshold to labels
    #[command(long_about = thresholds::LONG, after_long_help = thresholds::EXAMPLES)]
    Thresholds(labels::Against),
}

pub(super) fn score(args: &Score) -> Result<(), Failure> {
    match &args.what {
        What::Trail(args) => trail::trail(args),
        What::Labels(args) => labels::labels(args),
        What::Thresholds(args) => thresholds::thresholds(args),
    }
}
