//! `plan learn-weights` and `plan stats`: what many plans teach.
//!
//! In: files of ordered plans, or lineages as `plan improve` writes them. Out: weights and how well
//! they agree; statistics.

use std::path::PathBuf;

use clap::Args;
use serde_json::Value;

use super::files::{self, Given};
use crate::cli::failure::Failure;
use crate::cli::format::Output;
use crate::cli::terminal::write_stdout;
use verdict_eval::measure::plan::examine::Examined;
use verdict_eval::measure::plan::improve::Lineage;
use verdict_eval::measure::plan::learn;
use verdict_eval::measure::plan::learn::{Learnt, Ranked};
use verdict_eval::measure::plan::lineage;
use verdict_eval::measure::plan::part::Part;
use verdict_eval::measure::plan::read;
use verdict_eval::measure::plan::tools::Toolbox;

pub(super) const LONG: &str = "\
Fit the score's weights to plans that people have put in order.

FILE has one JSON object a line: {\"plans\": [worst, ..., best]}, or a lineage from 'plan improve'. A plan
is {\"metrics\": {\"format\": 0.5, ...}} with values from 0 to 1, as 'plan score --output json' prints them,
or {\"plan\": ...}, which is then measured by rules with the last one as reference; \"planner\" may name who
made it. Of each line the last three plans count. Effectiveness keeps 70 points, efficiency 30.

Printed are the weights, the share of ordered pairs that they get right, and how the ranking changes
under other weights: all equal, and ten random draws with the same budgets (Spearman's correlation).";

pub(super) const STATS: &str = "\
Count what lineages of improved plans have in common: distinct plans, passes, revisions in each pass,
steps and hops of the last plans, tags that led to a change, and why the loops ended.";

/// Plans of each line that count: best, last but one, last but two.
const RANKED: usize = 3;

#[derive(Args, Debug)]
pub(super) struct Learn {
    /// Ordered plans, one JSON object a line; '-' is standard input
    file: PathBuf,
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    given: Given,
}

#[derive(Args, Debug)]
pub(super) struct Stats {
    /// Lineages, as 'plan improve --lineage' writes them
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

pub(super) fn learn(args: &Learn) -> Result<(), Failure> {
    let config = args.given.load()?;
    let tools = Toolbox::new(&config.verdict.evaluation.metrics.plan.tools);
    let text = files::text(&args.file)?;
    let mut groups = Vec::new();
    for (n, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let fault = |why: String| Failure::Usage(format!("{}:{}: {why}", args.file.display(), n + 1));
        let object: Value = serde_json::from_str(line).map_err(|e| fault(e.to_string()))?;
        groups.push(group(&object, &tools).map_err(fault)?);
    }
    let learnt = learn::learn(&groups)
        .ok_or_else(|| Failure::Usage(format!("{}: no two plans in order", args.file.display())))?;
    let text = match args.output {
        Output::Json => {
            serde_json::to_string_pretty(&learnt).map_err(|e| Failure::Run(e.to_string()))? + "\n"
        }
        Output::Table => table(&learnt),
    };
    write_stdout(text.as_bytes())
}

/// The last plans of one line, worst first.
fn group(object: &Value, tools: &Toolbox) -> Result<Vec<Ranked>, String> {
    let plans = object.get("plans").or_else(|| object.get("revisions")).and_then(Value::as_array);
    let plans = plans.ok_or("there is neither \"plans\" nor \"revisions\" in it")?;
    let last = plans.get(plans.len().saturating_sub(RANKED)..).unwrap_or(&[]);
    let text = |plan: &Value| plan.as_str().map_or_else(|| plan.to_string(), str::to_owned);
    let best = last.last().and_then(|p| p.get("plan")).map(|p| read::read(&text(p)));
    let mut group = Vec::new();
    for entry in last {
        let planner = entry.get("planner").and_then(Value::as_str).map(str::to_owned);
        let metrics = match (entry.get("metrics"), entry.get("plan")) {
            (Some(metrics), _) => {
                serde_json::from_value(metrics.clone()).map_err(|e| format!("metrics: {e}"))?
            }
            (None, Some(plan)) => {
                let examined = Examined::new(read::read(&text(plan)), tools.clone(), best.clone());
                Part::ALL.iter().map(|p| (p.name().to_owned(), examined.value(*p))).collect()
            }
            (None, None) => return Err("a plan has neither \"metrics\" nor \"plan\"".to_owned()),
        };
        group.push(Ranked { metrics, planner });
    }
    Ok(group)
}

fn table(learnt: &Learnt) -> String {
    let mut out = String::from("verdict:\n  metrics:\n    plan:\n      weights:\n");
    for (part, weight) in Part::ALL.iter().zip(learnt.weights.to_array()) {
        out.push_str(&format!("        {}: {weight:.2}\n", part.name()));
    }
    let shown = |rho: Option<f64>| rho.map_or("undefined".to_owned(), |r| format!("{r:.3}"));
    let draws: Vec<String> = learnt.sensitivity.draws.iter().map(|d| shown(*d)).collect();
    out.push_str(&format!(
        "# {} of {} ordered pairs in {} groups right: {:.1} %; with the nominal weights {:.1} %\n\
         # ranking of {} beside equal weights: {}; beside random ones: median {}, {}\n",
        (learnt.agreement * learnt.pairs as f64).round(),
        learnt.pairs,
        learnt.groups,
        100.0 * learnt.agreement,
        100.0 * learnt.nominal_agreement,
        learnt.sensitivity.ranked,
        shown(learnt.sensitivity.equal),
        shown(learnt.sensitivity.median),
        draws.join(" "),
    ));
    out
}

pub(super) fn stats(args: &Stats) -> Result<(), Failure> {
    let mut lineages = Vec::new();
    for path in &args.files {
        let lineage: Lineage = serde_json::from_str(&files::text(path)?)
            .map_err(|e| Failure::Usage(format!("{}: not a lineage: {e}", path.display())))?;
        lineages.push(lineage);
    }
    let found = lineage::statistics(&lineages);
    let text = serde_json::to_string_pretty(&found).map_err(|e| Failure::Run(e.to_string()))?;
    write_stdout(format!("{text}\n").as_bytes())
}
