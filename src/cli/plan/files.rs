//! Files of plans, as all plan commands read them.
//!
//! In: paths and configuration. Out: texts, plans, tools.

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::cli::config_files::ConfigFiles;
use crate::cli::failure::Failure;
use crate::config::Config;
use verdict_eval::measure::plan::read;
use verdict_eval::measure::plan::schema::Plan;

/// Bytes of a file that are read: a thousand times any plan.
const MAX_BYTES: u64 = 64 << 20;

/// What the commands share.
#[derive(Args, Clone, Debug)]
pub(super) struct Given {
    /// Configuration with the tools that a plan may use, as in config/tools; same as --config
    #[arg(long, value_name = "FILE")]
    tools: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigFiles,
}

impl Given {
    /// The configuration, the tools' file last.
    pub(super) fn load(&self) -> Result<Config, Failure> {
        let mut files = self.config.clone();
        files.files.extend(self.tools.clone());
        files.load()
    }
}

/// The text of a file; `-` is standard input.
pub(in crate::cli) fn text(path: &Path) -> Result<String, Failure> {
    let fault = |e: std::io::Error| Failure::Usage(format!("{}: {e}", path.display()));
    let mut bytes = Vec::new();
    if path.as_os_str() == "-" {
        std::io::stdin().lock().take(MAX_BYTES).read_to_end(&mut bytes).map_err(fault)?;
    } else {
        std::fs::File::open(path).and_then(|f| f.take(MAX_BYTES).read_to_end(&mut bytes)).map_err(fault)?;
    }
    String::from_utf8(bytes).map_err(|_| Failure::Usage(format!("{}: not UTF-8 text", path.display())))
}

/// A plan with the query beside it in its file, where there is one.
pub(super) fn plan(path: &Path) -> Result<(Plan, Option<String>), Failure> {
    let text = text(path)?;
    Ok((read::read(&text), read::query_beside(&text)))
}

/// A plan that something is held against: it must be readable.
pub(super) fn reference(path: &Path) -> Result<Plan, Failure> {
    let (plan, _) = plan(path)?;
    match plan.issues.first().filter(|_| plan.is_unreadable()) {
        Some(issue) => Err(Failure::Usage(format!("{}: {issue}", path.display()))),
        None => Ok(plan),
    }
}

/// The query that a plan answers: `--query`, else the one in its file.
pub(in crate::cli) fn query(given: Option<&String>, beside: Option<String>) -> Result<String, Failure> {
    let query = given.cloned().or(beside).filter(|q| !q.trim().is_empty());
    query.ok_or_else(|| Failure::Usage("what is the plan to answer? Give it with --query".to_owned()))
}
