//! `score`: verdicts compared with annotations and labels.
//!
//! In: recorded traces, and annotations or labels of them. Out: tables, JSON and an HTML report. This folder
//! reads and prints; [`crate::score`] computes the figures.

mod baseline;
mod files;
mod fit;
mod labels;
mod predict;
mod report;
mod rules;
mod select;
mod sets;
mod tables;
mod thresholds;
mod trail;
mod trail_tables;

use clap::Subcommand;

use crate::cli::command::CommandFailure;

pub(super) const LONG_ABOUT: &str = "\
Compare verdicts with annotations and labels.

Judges recorded traces as 'eval' does and compares the verdicts with the annotations of the TRAIL
benchmark or with your labels. Rules never read a gold file.";

pub(super) const EXAMPLES: &str = "\
Examples:
  otel-verdict score trail --traces gaia/traces --gold gaia/gold
  otel-verdict score trail --traces gaia/traces --gold gaia/gold --predictions out/
  otel-verdict score labels --traces recordings/ --labels labels.json
  otel-verdict score thresholds --traces recordings/ --labels labels.json
  otel-verdict score rules --set mine recordings/ labels.json
  otel-verdict score fit --set mine recordings/ labels.json

Exit codes:
  0  scored
  1  less was judged than --require-judged demands
  2  unreadable input, wrong configuration or usage";

#[derive(Subcommand, Debug)]
pub(super) enum ScoreCommand {
    /// Against the annotations of the TRAIL benchmark
    #[command(long_about = trail::LONG_ABOUT, after_long_help = trail::EXAMPLES)]
    Trail(trail::TrailArgs),
    /// Against your labels
    #[command(long_about = labels::LONG_ABOUT, after_long_help = labels::examples())]
    Labels(labels::LabelsArgs),
    /// Fit each metric's threshold to labels
    #[command(long_about = thresholds::LONG_ABOUT, after_long_help = thresholds::EXAMPLES)]
    Thresholds(labels::ScoreLabelsArgs),
    /// Measure the precision of each rule
    #[command(long_about = rules::LONG_ABOUT, after_long_help = rules::EXAMPLES)]
    Rules(rules::RulesArgs),
    /// Fit the root policy expected_outcome to labelled runs
    #[command(long_about = fit::LONG_ABOUT, after_long_help = fit::EXAMPLES)]
    Fit(fit::FitArgs),
}

pub(super) fn score(command: &ScoreCommand) -> Result<(), CommandFailure> {
    match command {
        ScoreCommand::Trail(args) => trail::trail(args),
        ScoreCommand::Labels(args) => labels::labels(args),
        ScoreCommand::Thresholds(args) => thresholds::thresholds(args),
        ScoreCommand::Rules(args) => rules::rules(args),
        ScoreCommand::Fit(args) => fit::fit(args),
    }
}
