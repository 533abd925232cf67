//! `plan improve`: the evaluator and optimizer loop with a judge.
//!
//! In: a plan, its query, tools, judges. Out: the last plan or its lineage.

use std::path::PathBuf;

use clap::Args;
use verdict_eval::metrics::Unmeasured;
use verdict_eval::plan::{ImprovementLoop, MAX_PASSES, Toolbox};
use verdict_eval::questions::Answer;

use super::files::{self, PlanOptions};
use crate::cli::command::{CommandFailure, to_json, write_file, write_stderr};
use crate::cli::judge::run::JudgeRun;
use crate::cli::judge::session::JudgeSession;

pub(super) const LONG_ABOUT: &str = "\
Improve a plan with a judge, step by step, without carrying it out.

Each pass visits each step once. The judge tags the fault of the step (incorrect prompt, complex
prompt, incorrect tool, repeated detail, multi-tool prompt, or no change), then rewrites the
plan accordingly. The loop ends when a pass changes nothing, after the last pass, or when an
earlier plan recurs. The output is the last plan, or with -o json its lineage: every distinct
plan and the reason for it. With several judges or samples, a tag counts if more than half of
them give it, and the rewritten plan that most of them write is used.

Judges do not receive text that 'verdict.redact' of the configuration removes; the improved plan
lacks it as well, and a note on standard error says so.";

#[derive(Args, Debug)]
pub(in crate::cli) struct ImproveArgs {
    /// The plan; '-' is standard input
    file: PathBuf,
    /// The query that the plan answers, if its file does not contain it
    #[arg(long, value_name = "TEXT")]
    query: Option<String>,
    /// Judge to ask, by its name under 'judges' of the configuration; may be given several times
    #[arg(long, value_name = "NAME", required = true)]
    judge: Vec<String>,
    /// Passes over all steps at most
    #[arg(long, value_name = "N", default_value_t = MAX_PASSES)]
    max_passes: usize,
    /// Write the lineage here
    #[arg(long, value_name = "FILE")]
    lineage: Option<PathBuf>,
    #[command(flatten)]
    options: PlanOptions,
}

pub(super) fn improve(args: &ImproveArgs) -> Result<(), CommandFailure> {
    let config = args.options.load()?;
    let (plan, query) = files::readable_plan(&args.file)?;
    let query = files::required_query(args.query.as_ref(), query)?;
    let run = JudgeRun::start(&args.options.judges, &config, true)?;
    let judge = JudgeSession::new(&run, &config, &args.judge)?;
    let tools = Toolbox::new(&config.verdict.evaluation.metrics.plan.tools);
    // The loop works on redacted texts; otherwise every returned plan would differ from the sent one.
    let clean = |text: &str| judge.clean(text);
    let shown = plan.map_texts(clean);
    if !shown.same_as(&plan) {
        write_stderr(
            "note: verdict.redact removed text from the plan; the improved plan does not contain it either",
        );
    }
    let mut improvement =
        ImprovementLoop::new(&clean(&query), shown, tools.map_texts(clean), args.max_passes);
    while let Some(question) = improvement.question() {
        let answer = judge.ask("plan.improve", vec![question]).pop();
        if run.is_dry() {
            // The further questions depend on the answer.
            return run.finish();
        }
        improvement.answer(values(answer));
    }
    let text = improvement.plan().to_text();
    let lineage = improvement.finish();
    write_stderr(&format!(
        "{} distinct plans in {} passes; {:?}; {} questions not answered, {} answers without a plan",
        lineage.revisions.len(),
        lineage.passes,
        lineage.end,
        lineage.unanswered,
        lineage.invalid
    ));
    if let Some(path) = &args.lineage {
        write_file(path, &to_json(&lineage)?)?;
    }
    run.print(args.options.output, &lineage, || text + "\n")
}

/// The answer of each judge and sample.
fn values(answer: Option<Answer>) -> Result<Vec<serde_json::Value>, Unmeasured> {
    let opinions = answer.map_or(Err(Unmeasured::JudgeError), |a| a.opinions)?;
    Ok(opinions.into_iter().map(|opinion| opinion.value).collect())
}
