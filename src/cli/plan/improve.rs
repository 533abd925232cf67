//! `plan improve`: the evaluator and optimizer loop with a judge.

use std::path::PathBuf;

use clap::Args;

use super::super::judge::JudgeSession;
use super::files::{self, Given};
use crate::cli::failure::Failure;
use crate::cli::format::Output;
use crate::cli::terminal::{write_stderr, write_stdout};
use verdict_eval::measure::plan::improve::{Improve, MAX_PASSES};
use verdict_eval::measure::plan::tools::Toolbox;
use verdict_eval::measure::{Answer, Unmeasured};

pub(super) const LONG: &str = "\
Improve a plan with a judge, step by step, without carrying it out.

Each pass visits each step once. The judge tags what is wrong with it (incorrect prompt, complex prompt,
incorrect tool, repeated detail, multi-tool prompt, or no change), then rewrites the plan accordingly.
The loop ends when a pass changes nothing, after the last pass, or when a plan comes that was there
before. What is printed is the last plan, or with -o json its lineage: every distinct plan, and why it
came. Of several judges or samples a tag counts that more than half of them gave, and the rewritten
plan that most of them wrote.

What 'verdict.redact' of the configuration takes out, no judge reads: it is missing from the better plan
as well, which is told.";

#[derive(Args, Debug)]
pub(super) struct Loop {
    /// The plan; '-' is standard input
    file: PathBuf,
    /// What the plan is to answer, where its file does not say
    #[arg(long, value_name = "TEXT")]
    query: Option<String>,
    /// Who is asked, by its name under 'judges' of the configuration; may be given several times
    #[arg(long, value_name = "NAME", required = true)]
    judge: Vec<String>,
    /// Passes over all steps at most
    #[arg(long, value_name = "N", default_value_t = MAX_PASSES)]
    max_passes: usize,
    /// Write the lineage here
    #[arg(long, value_name = "FILE")]
    lineage: Option<PathBuf>,
    /// What to print: the last plan, or the lineage as JSON
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    given: Given,
}

pub(super) fn improve(args: &Loop) -> Result<(), Failure> {
    let config = args.given.load()?;
    let (plan, beside) = files::plan(&args.file)?;
    if let Some(issue) = plan.issues.first().filter(|_| plan.is_unreadable()) {
        return Err(Failure::Usage(format!("{}: {issue}", args.file.display())));
    }
    let query = files::query(args.query.as_ref(), beside)?;
    let judges = JudgeSession::new(&config, &args.judge)?;
    let tools = Toolbox::new(&config.verdict.evaluation.metrics.plan.tools);
    // The loop works on what the judge may read, or every plan that comes back would differ from
    // the one sent by what was taken out of it.
    let clean = |text: &str| judges.clean(text);
    let shown = plan.map_texts(clean);
    if !shown.same_as(&plan) {
        write_stderr(
            "note: verdict.redact took something out of the plan, which the better one does not have either",
        );
    }
    let mut improve = Improve::new(&clean(&query), shown, tools.map_texts(clean), args.max_passes);
    while let Some(question) = improve.question() {
        let answer = judges.ask("plan.improve", vec![question]).pop();
        improve.answer(values(answer));
    }
    let text = improve.plan().to_text();
    let lineage = improve.finish();
    write_stderr(&format!(
        "{} distinct plans in {} passes; {:?}; {} questions not answered, {} answers that were no plan",
        lineage.revisions.len(),
        lineage.passes,
        lineage.end,
        lineage.unanswered,
        lineage.invalid
    ));
    let json = serde_json::to_string_pretty(&lineage).map_err(|e| Failure::Run(e.to_string()))? + "\n";
    if let Some(path) = &args.lineage {
        std::fs::write(path, &json).map_err(|e| Failure::Run(format!("{}: {e}", path.display())))?;
    }
    match args.output {
        Output::Json => write_stdout(json.as_bytes()),
        Output::Table => write_stdout(format!("{text}\n").as_bytes()),
    }
}

/// What each judge and sample said.
fn values(answer: Option<Answer>) -> Result<Vec<serde_json::Value>, Unmeasured> {
    let opinions = answer.map_or(Err(Unmeasured::JudgeError), |a| a.opinions)?;
    Ok(opinions.into_iter().map(|opinion| opinion.value).collect())
}
