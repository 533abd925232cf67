//! `compare`: two or three answers to one query, judged in one question.
//!
//! In: a query, files of answers, a judge. Out: scores and a decision by the rules of paper 004,
//! table 34 ([`verdict_eval::plan::comparison`]).

use std::path::{Path, PathBuf};

use clap::Args;
use serde::{Deserialize, Serialize};
use verdict_eval::metrics::Unmeasured;
use verdict_eval::plan::comparison::{self, NAMES, ResponseComparison, WinRates};
use verdict_eval::questions::Answer;

use super::judge::options::JudgeOptions;
use super::judge::run::JudgeRun;
use super::judge::session::JudgeSession;
use crate::cli::command::{CommandFailure, ConfigFiles, FiguresFormat, read_text};

pub(super) const LONG_ABOUT: &str = "\
CompareArgs two or three answers to one query, or to many.

A judge scores each for validity and consistency (0 or 1), completeness and freedom from
redundancy (1 to 7). The decision follows from the scores: answers that are refusals, errors or
off topic are excluded; the others are compared by completeness, then by redundancy; equal
answers share the rank. The decision is 'Neither' if every answer is excluded and 'All' if three
are equal. Figures in the answers are not verified, because no reference exists.

Each comparison is asked in the order given and in the opposite one, since judges prefer a
position; several judges, samples and both orders count by the median of each score, of an even
number by the lower one. --one-order halves the cost.

With --queries, each line of the file is {\"query\": ..., \"answers\": [R1, R2]}, with two or three
answers in every line. The output is the share of queries that each answer wins, alone and
including ties, the share of ties, and how often both orders lead to the same decision. Judges do
not receive text that 'verdict.redact' of the configuration removes.";

pub(super) const EXAMPLES: &str = "\
Examples:
  otel-verdict compare --query 'How many calls were escalated?' r1.txt r2.txt --judge main -c judges.yaml
  otel-verdict compare --query \"$QUERY\" without.txt best.txt with.txt --judge main -c judges.yaml -o json
  otel-verdict compare --queries answers.jsonl --judge main -c judges.yaml

Exit codes:
  0  compared
  1  the judge did not answer, or less than --require-judged demands
  2  unreadable input, wrong configuration or usage";

/// Queries that are asked at once.
const MAX_CONCURRENT_QUERIES: usize = 32;

#[derive(Args, Debug)]
pub(super) struct CompareArgs {
    /// The query that the answers are for
    #[arg(long, value_name = "TEXT", required_unless_present = "queries")]
    query: Option<String>,
    /// Files of answers, R1 to R3; '-' is standard input
    #[arg(num_args = 2..=3, value_name = "FILE", required_unless_present = "queries")]
    answers: Vec<PathBuf>,
    /// Queries with their answers, one JSON object a line; '-' is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["query", "answers"])]
    queries: Option<PathBuf>,
    /// Ask in the order given only
    #[arg(long)]
    one_order: bool,
    /// Judge to ask, by its name under 'judges' of the configuration; may be given several times
    #[arg(long, value_name = "NAME", required = true)]
    judge: Vec<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: FiguresFormat,
    #[command(flatten)]
    judges: JudgeOptions,
    #[command(flatten)]
    config: ConfigFiles,
}

/// A query with its answers.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ComparedQuery {
    query: String,
    answers: Vec<String>,
}

/// A comparison, and whether both orders lead to the same decision.
#[derive(Serialize)]
struct QueryComparison {
    #[serde(flatten)]
    comparison: ResponseComparison,
    #[serde(skip_serializing_if = "Option::is_none")]
    consistent: Option<bool>,
}

/// Win rates with the comparison of each query; `None` where the judge did not answer.
#[derive(Serialize)]
struct WinRatesReport {
    #[serde(flatten)]
    rates: WinRates,
    comparisons: Vec<Option<QueryComparison>>,
}

pub(super) fn compare(args: &CompareArgs) -> Result<(), CommandFailure> {
    let config = args.config.load()?;
    let queries = match &args.queries {
        Some(path) => read_queries(path)?,
        None => {
            let answers = args.answers.iter().map(|path| read_text(path)).collect::<Result<_, _>>()?;
            vec![ComparedQuery { query: args.query.clone().unwrap_or_default(), answers }]
        }
    };
    let count = queries.first().map_or(0, |query| query.answers.len());
    let run = JudgeRun::start(&args.judges, &config, true)?;
    let judge = JudgeSession::new(&run, &config, &args.judge)?;
    let mut compared = Vec::new();
    for chunk in queries.chunks(MAX_CONCURRENT_QUERIES) {
        compared.extend(ask(chunk, &judge, args.one_order));
    }
    if run.is_dry() {
        return run.finish();
    }
    if args.queries.is_some() {
        let rates: Vec<_> = compared
            .iter()
            .map(|result| result.as_ref().ok().map(|c| (c.comparison.clone(), c.consistent)))
            .collect();
        let rates = comparison::win_rates(count, &rates);
        if rates.unanswered == rates.queries {
            run.finish()?;
            return Err(CommandFailure::Run("the judge answered no query".to_owned()));
        }
        let report = WinRatesReport { rates, comparisons: compared.into_iter().map(Result::ok).collect() };
        return run.print(args.output, &report, || rates_table(&report.rates));
    }
    match compared.pop() {
        Some(Ok(compared)) => run.print(args.output, &compared, || {
            let note = compared
                .consistent
                .filter(|is_consistent| !is_consistent)
                .map_or("", |_| "the orders lead to different decisions\n");
            table(&compared.comparison) + note
        }),
        Some(Err(reason)) => {
            run.finish()?;
            Err(CommandFailure::Run(format!("the judge did not answer: {}", reason.as_str())))
        }
        None => Err(CommandFailure::Usage("nothing is to be compared".to_owned())),
    }
}

/// The queries of a file, all with the same number of answers.
fn read_queries(path: &Path) -> Result<Vec<ComparedQuery>, CommandFailure> {
    let text = read_text(path)?;
    let mut queries: Vec<ComparedQuery> = Vec::new();
    for (n, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let problem =
            |reason: String| CommandFailure::Usage(format!("{}:{}: {reason}", path.display(), n + 1));
        let query: ComparedQuery = serde_json::from_str(line).map_err(|e| problem(e.to_string()))?;
        let count = queries.first().map_or(query.answers.len(), |first| first.answers.len());
        if !(2..=NAMES.len()).contains(&query.answers.len()) || query.answers.len() != count {
            return Err(problem("expected two or three answers, as many in every line".to_owned()));
        }
        queries.push(query);
    }
    if queries.is_empty() {
        return Err(CommandFailure::file(path, "the file has no queries"));
    }
    Ok(queries)
}

/// Asks about all `queries` at once.
fn ask(
    queries: &[ComparedQuery],
    judge: &JudgeSession,
    one_order: bool,
) -> Vec<Result<QueryComparison, Unmeasured>> {
    let orders = if one_order { 1 } else { 2 };
    let questions = queries.iter().flat_map(|query| {
        let cleaned: Vec<String> = query.answers.iter().map(|answer| judge.clean(answer)).collect();
        comparison::questions(&judge.clean(&query.query), &cleaned).into_iter().take(orders)
    });
    let answers = judge.ask("compare", questions.collect());
    queries
        .iter()
        .zip(answers.chunks(orders))
        .map(|(query, answers)| combine_answers(query.answers.len(), answers))
        .collect()
}

/// The comparison of one query from the answers in each order.
fn combine_answers(count: usize, answers: &[Answer]) -> Result<QueryComparison, Unmeasured> {
    let comparisons_of_answer = |answer: &Answer| -> Vec<ResponseComparison> {
        let opinions = answer.opinions.as_deref().unwrap_or_default();
        opinions.iter().filter_map(|o| comparison::read_keyed(&answer.key, count, &o.value)).collect()
    };
    let orders: Vec<Vec<ResponseComparison>> = answers.iter().map(comparisons_of_answer).collect();
    let decisions: Vec<String> =
        orders.iter().filter_map(|all| Some(comparison::combine(all.clone())?.decision)).collect();
    let consistent =
        (decisions.len() > 1).then(|| decisions.iter().all(|decision| *decision == decisions[0]));
    match comparison::combine(orders.concat()) {
        Some(comparison) => Ok(QueryComparison { comparison, consistent }),
        None => Err(answers
            .iter()
            .find_map(|a| a.opinions.as_ref().err().copied())
            .unwrap_or(Unmeasured::JudgeError)),
    }
}

fn rates_table(rates: &WinRates) -> String {
    let percent = |share: f64| format!("{:>6.1} %", 100.0 * share);
    let mut out = format!("{} queries", rates.queries);
    if rates.unanswered > 0 {
        out.push_str(&format!(", {} not answered", rates.unanswered));
    }
    out.push_str("\n          wins  best or tied\n");
    for (name, (wins, best)) in NAMES.iter().zip(rates.wins.iter().zip(&rates.best)) {
        out.push_str(&format!("{name:<6} {} {}\n", percent(*wins), percent(*best)));
    }
    for (name, share) in [("ties", rates.ties), ("all", rates.all), ("neither", rates.neither)] {
        out.push_str(&format!("{name:<8} {}\n", percent(share)));
    }
    if let Some(consistent) = rates.consistent {
        out.push_str(&format!("both orders lead to the same decision in {}\n", percent(consistent).trim()));
    }
    out
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
