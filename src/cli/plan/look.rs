//! `plan check` and `plan score`: one plan looked at.

use std::path::PathBuf;

use clap::Args;

use super::super::Failure;
use super::files::{self, Given};
use super::{Output, show};
use crate::measure::plan::examine::Examined;
use crate::measure::plan::part::Part;
use crate::measure::plan::tools::Toolbox;

pub(super) const CHECK: &str = "\
Say what is wrong with a plan, and how it is laid out.

By rules alone: whether it can be parsed and what had to be mended, placeholders, dependencies, steps
that nothing rests on, limits of the tools where their specs carry any, and with a reference what it
asks of one tool only. Hops are the edges of the longest chain of dependencies, width is how many
steps run side by side.";

pub(super) const SCORE: &str = "\
Measure a plan: seven metrics from 0 to 1, and a score from 0 to 100.

Effectiveness (tool-prompt alignment, format, step executability, query adherence) makes 70 points of
the score, efficiency (dependencies, redundancy, tool-usage completeness) 30. What is not measured
gives its weight to the rest of its group, and is named. With a reference the plan is also rated, by
how many of its steps match.";

#[derive(Args, Debug)]
pub(super) struct Look {
    /// The plan; '-' is standard input
    file: PathBuf,
    /// The best plan for the same query
    #[arg(long, value_name = "FILE")]
    reference: Option<PathBuf>,
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    given: Given,
}

#[derive(Args, Debug)]
pub(super) struct Score {
    #[command(flatten)]
    look: Look,
    /// What the plan is to answer, where its file does not say
    #[arg(long, value_name = "TEXT")]
    query: Option<String>,
}

fn examined(args: &Look, query: Option<&str>) -> Result<(Examined, crate::config::Config), Failure> {
    let config = args.given.load()?;
    let (plan, beside) = files::plan(&args.file)?;
    let settings = &config.verdict.metrics.plan;
    let reference = match &args.reference {
        Some(path) => Some(files::reference(path)?),
        None => query.or(beside.as_deref()).and_then(|query| settings.reference(query)),
    };
    Ok((Examined::new(plan, Toolbox::new(&settings.tools), reference), config))
}

pub(super) fn check(args: &Look) -> Result<(), Failure> {
    let (examined, config) = examined(args, None)?;
    show::plan(&examined, &config.verdict.metrics.plan.weights, args.output, false)?;
    let wrong = examined.issues.iter().any(|i| Part::of(i.fault).is_some());
    if wrong { Err(Failure::Met) } else { Ok(()) }
}

pub(super) fn score(args: &Score) -> Result<(), Failure> {
    let (examined, config) = examined(&args.look, args.query.as_deref())?;
    show::plan(&examined, &config.verdict.metrics.plan.weights, args.look.output, true)
}
