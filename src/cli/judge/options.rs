//! Options of every command that asks judges.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

/// The default of `--patience`: the time in which a server loads a large model.
const PATIENCE: &str = "5m";

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Judges")]
pub(in crate::cli) struct JudgeOptions {
    /// Exit with 1 if a smaller share than this (0 to 1) of the judged metrics, or of the questions to
    /// any judge, has a judge's answer
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    pub(in crate::cli) require_judged: Option<f64>,
    /// How long a judge that is unreachable or overloaded is waited for; 0s: not beyond its retries
    #[arg(long, value_name = "DURATION", default_value = PATIENCE, value_parser = humantime::parse_duration)]
    pub(in crate::cli) patience: Duration,
    /// Keep answers in this folder and use those that are there: an interrupted command resumes where
    /// it was. Same as judging.cache.directory
    #[arg(long, value_name = "DIR")]
    pub(in crate::cli) resume: Option<PathBuf>,
    /// Count the questions, their tokens and their cost, and ask none
    #[arg(long)]
    pub(in crate::cli) dry_run: bool,
    /// Write the report about judges here as JSON
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) judge_report: Option<PathBuf>,
}

impl Default for JudgeOptions {
    fn default() -> JudgeOptions {
        JudgeOptions {
            require_judged: None,
            patience: humantime::parse_duration(PATIENCE).unwrap_or_default(),
            resume: None,
            dry_run: false,
            judge_report: None,
        }
    }
}

fn parse_share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| "expected a number from 0 to 1".to_owned())?;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err("expected a number from 0 to 1".to_owned()) }
}
