//! `compare`: two or three answers to one query, judged in one question.
//!
//! In: a query, files of answers, a judge. Out: scores and a decision by the rules of paper 004,
//! table 34 ([`verdict_eval::plan::comparison`]).

use std::path::PathBuf;

use clap::Args;
use verdict_eval::plan::comparison::{self, NAMES, ResponseComparison};

use super::judge::options::JudgeOptions;
use super::judge::run::JudgeRun;
use super::judge::session::JudgeSession;
use crate::cli::command::{ConfigFiles, Failure, Output, read_text};

pub(super) const LONG: &str = "\
Compare two or three answers to one query.

A judge scores each for validity and consistency (0 or 1), completeness and freedom from
redundancy (1 to 7). The decision follows from the scores: answers that are refusals, errors or
off topic are excluded; the others are compared by completeness, then by redundancy; equal
answers share the rank. The decision is 'Neither' if every answer is excluded and 'All' if three
are equal. Figures in the answers are not verified, because no reference exists. Several judges
or samples count by the median of each score, of two by the lower one. Judges do not receive
text that 'verdict.redact' of the configuration removes.";

pub(super) const EXAMPLES: &str = "\
Examples:
  otel-verdict compare --query 'How many calls were escalated?' r1.txt r2.txt --judge main -c judges.yaml
  otel-verdict compare --query \"$QUERY\" without.txt best.txt with.txt --judge main -c judges.yaml -o json

Exit codes:
  0  compared
  1  the judge did not answer
  2  unreadable input, wrong configuration or usage";

#[derive(Args, Debug)]
pub(super) struct Compare {
    /// The query that the answers are for
    #[arg(long, value_name = "TEXT")]
    query: String,
    /// Files of answers, R1 to R3; '-' is standard input
    #[arg(required = true, num_args = 2..=3, value_name = "FILE")]
    answers: Vec<PathBuf>,
    /// Judge to ask, by its name under 'judges' of the configuration; may be given several times
    #[arg(long, value_name = "NAME", required = true)]
    judge: Vec<String>,
    /// What to print
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    judges: JudgeOptions,
    #[command(flatten)]
    config: ConfigFiles,
}

pub(super) fn compare(args: &Compare) -> Result<(), Failure> {
    let config = args.config.load()?;
    let answers: Vec<String> = args.answers.iter().map(|path| read_text(path)).collect::<Result<_, _>>()?;
    let run = JudgeRun::start(&args.judges, &config, true)?;
    let judge = JudgeSession::new(&run, &config, &args.judge)?;
    let shown: Vec<String> = answers.iter().map(|answer| judge.clean(answer)).collect();
    let question = comparison::question(&judge.clean(&args.query), &shown)
        .ok_or_else(|| Failure::Usage("two or three answers are compared".to_owned()))?;
    let answer = judge.ask("compare", vec![question]).pop();
    if run.is_dry() {
        return run.finish();
    }
    let opinions = answer.ok_or_else(|| Failure::Run("the judge was not asked".to_owned()))?.opinions;
    let opinions = match opinions {
        Ok(opinions) => opinions,
        Err(why) => {
            run.finish()?;
            return Err(Failure::Run(format!("the judge did not answer: {}", why.as_str())));
        }
    };
    let read = opinions.iter().filter_map(|opinion| comparison::read(answers.len(), &opinion.value));
    let compared = comparison::combine(read.collect())
        .ok_or_else(|| Failure::Run("the judge's answer does not have its form".to_owned()))?;
    run.print(args.output, &compared, || table(&compared))
}

fn table(compared: &ResponseComparison) -> String {
    let mut out = String::from("    validity  consistency  completeness  redundancy\n");
    for (name, s) in NAMES.iter().zip(&compared.scores) {
        out.push_str(&format!(
            "{name}  {:>8}  {:>11}  {:>12}  {:>10}\n",
            s.validity, s.consistency, s.completeness, s.redundancy
        ));
    }
    out.push_str(&format!("{}\n{}\n", compared.decision, compared.rationale));
    out
}
