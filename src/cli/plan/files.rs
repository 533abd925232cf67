//! Options and files of plans, as all plan commands read them.
//!
//! In: paths and configuration. Out: plans, queries, the configuration.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Value;
use verdict_eval::plan::{self, Plan};

use crate::cli::command::{CommandFailure, ConfigFiles, FiguresFormat, read_text};
use crate::cli::judge::options::JudgeOptions;
use crate::config::Config;

/// Options of every plan command.
#[derive(Args, Clone, Debug)]
pub(super) struct PlanOptions {
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub(super) output: FiguresFormat,
    /// Configuration with the tools that a plan may use, as in config/tools; same as --config
    #[arg(long, value_name = "FILE")]
    tools: Option<PathBuf>,
    #[command(flatten)]
    pub(super) judges: JudgeOptions,
    #[command(flatten)]
    config: ConfigFiles,
}

impl PlanOptions {
    /// Loads the configuration, the file of tools last.
    pub(super) fn load(&self) -> Result<Config, CommandFailure> {
        let mut files = self.config.clone();
        files.files.extend(self.tools.clone());
        files.load()
    }
}

/// A plan and the query in its file, if there is one.
pub(super) fn read_plan(path: &Path) -> Result<(Plan, Option<String>), CommandFailure> {
    let text = read_text(path)?;
    Ok((plan::parse_plan(&text), plan::query_of_file(&text)))
}

/// Like [`read_plan`]; a plan without any readable step is an error.
pub(super) fn readable_plan(path: &Path) -> Result<(Plan, Option<String>), CommandFailure> {
    let (plan, query) = read_plan(path)?;
    match plan.issues.first().filter(|_| plan.is_unreadable()) {
        Some(issue) => Err(CommandFailure::file(path, issue)),
        None => Ok((plan, query)),
    }
}

/// The query that a plan answers: `--query`, otherwise the query in the plan's file.
pub(super) fn required_query(
    option: Option<&String>,
    in_file: Option<String>,
) -> Result<String, CommandFailure> {
    let query = option.cloned().or(in_file).filter(|q| !q.trim().is_empty());
    query.ok_or_else(|| {
        CommandFailure::Usage("the plan's file contains no query: give it with --query".to_owned())
    })
}

/// The objects of a file, each with its location (`:` and the line): one object per line, or one object over many
/// lines, as 'plan improve' writes it, whose location is empty.
pub(super) fn parse_objects(text: &str) -> Result<Vec<(String, Value)>, String> {
    if let Ok(object @ Value::Object(_)) = serde_json::from_str(text) {
        return Ok(vec![(String::new(), object)]);
    }
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let parse = |(n, line)| match serde_json::from_str(line) {
        Ok(object) => Ok((format!(":{}", n + 1), object)),
        Err(error) => Err(format!("line {}: {error}", n + 1)),
    };
    lines.map(parse).collect()
}
