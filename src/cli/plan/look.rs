//! `plan check` and `plan score`: one plan looked at.

use std::path::PathBuf;

use clap::Args;

use super::super::judge::JudgeSession;
use super::files::{self, Given};
use super::show;
use crate::cli::failure::Failure;
use crate::cli::format::Output;
use crate::cli::terminal::write_stderr;
use crate::config::Config;
use verdict_eval::measure::Unmeasured;
use verdict_eval::measure::plan::examine::Examined;
use verdict_eval::measure::plan::judged;
use verdict_eval::measure::plan::judged::ASKED;
use verdict_eval::measure::plan::part::Part;
use verdict_eval::measure::plan::tools::Toolbox;

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
gives its weight to the rest of its group, and is named. Alignment and adherence are a judge's to tell:
name one with --judge; of several judges or samples the value in the middle counts. With a reference
the plan is also rated, by how many of its steps match. Of a plan in words only what words have is
measured: no format, dependencies where steps speak of one another, what is about tools over the steps
that name one, and the rating beside words alone.";

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
    /// Who is asked what rules cannot tell, by its name under 'judges' of the configuration; may be
    /// given several times
    #[arg(long, value_name = "NAME")]
    judge: Vec<String>,
}

/// The plan as rules see it, the query that it is to answer, and the configuration.
fn examined(args: &Look, query: Option<&str>) -> Result<(Examined, Option<String>, Config), Failure> {
    let config = args.given.load()?;
    let (plan, beside) = files::plan(&args.file)?;
    let query = query.map(str::to_owned).or(beside);
    let settings = &config.verdict.evaluation.metrics.plan;
    let reference = match &args.reference {
        Some(path) => Some(files::reference(path)?),
        None => query.as_deref().and_then(|query| settings.reference(query)),
    };
    Ok((Examined::new(plan, Toolbox::new(&settings.tools), reference), query, config))
}

pub(super) fn check(args: &Look) -> Result<(), Failure> {
    let (examined, _, config) = examined(args, None)?;
    show::plan(&examined, &config.verdict.evaluation.metrics.plan.weights, args.output, false)?;
    let wrong = examined.issues.iter().any(|i| Part::of(i.fault).is_some());
    if wrong { Err(Failure::ThresholdMet) } else { Ok(()) }
}

pub(super) fn score(args: &Score) -> Result<(), Failure> {
    let (mut examined, query, config) = examined(&args.look, args.query.as_deref())?;
    if !args.judge.is_empty() && !examined.is_settled() {
        ask(&mut examined, &files::query(None, query)?, &JudgeSession::new(&config, &args.judge)?);
    }
    show::plan(&examined, &config.verdict.evaluation.metrics.plan.weights, args.look.output, true)
}

/// Asks the judges; a question without an answer leaves its metric unmeasured, and is told.
fn ask(examined: &mut Examined, query: &str, judges: &JudgeSession) {
    let clean = |text: &str| judges.clean(text);
    for answer in judges.ask("plan.score", judged::questions(&clean(query), &examined.shown(clean))) {
        let Some(part) = ASKED.into_iter().find(|part| part.metric() == answer.key) else { continue };
        let said = answer.opinions.and_then(|opinions| {
            judged::middle(part, &examined.plan, &opinions).ok_or(Unmeasured::JudgeError)
        });
        match said {
            Ok((judged, _)) => drop(examined.take(part, &judged)),
            Err(why) => write_stderr(&format!("{}: the judge did not answer: {}", part.name(), why.as_str())),
        }
    }
}
