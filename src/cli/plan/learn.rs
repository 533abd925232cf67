//! `plan learn-weights` and `plan stats`: weights and statistics from many plans.
//!
//! In: files of ranked plans, or lineages as `plan improve` writes them. Out: weights and their agreement
//! with the ranks; statistics.

use std::path::PathBuf;

use clap::Args;
use serde_json::Value;
use verdict_eval::plan::{self, LearntWeights, Lineage, PlanAssessment, PlanPart, RankedPlan, Toolbox};

use super::files::{self, PlanOptions};
use crate::cli::command::{CommandFailure, read_text, to_json, write_stdout};

pub(super) const LONG_ABOUT: &str = "\
Fit the score's weights to plans that people have ranked.

FILE has one JSON object a line: {\"plans\": [worst, ..., best]}, or is a lineage that 'plan
improve --lineage' has written. A plan is {\"metrics\": {\"format\": 0.5, ...}} with values from 0 to 1, as 'plan score
--output json' prints them, or {\"plan\": ...}, which is then measured by rules with the last one
as reference; \"planner\" may name who made it. Of each object the last three plans count.
Effectiveness keeps 70 points, efficiency 30.

The output is the weights, the share of ordered pairs that they get right, how the ranking
changes under other weights (all equal, and ten random draws with the same budgets; Spearman's
correlation), and for each metric the share of pairs in which the better plan has no lower value.";

pub(super) const STATS_LONG_ABOUT: &str = "\
Count what lineages of improved plans have in common: distinct plans, passes, revisions in each
pass, steps and hops of the last plans, tags that led to a change, and why the loops ended.";

/// Number of plans of each line that count, from the end.
const MAX_RANKED_PLANS: usize = 3;

#[derive(Args, Debug)]
pub(in crate::cli) struct PlanLearnArgs {
    /// Ordered plans, one JSON object a line, or a lineage; '-' is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    options: PlanOptions,
}

#[derive(Args, Debug)]
pub(in crate::cli) struct PlanStatsArgs {
    /// Lineages, as 'plan improve --lineage' writes them
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

pub(super) fn learn(args: &PlanLearnArgs) -> Result<(), CommandFailure> {
    let config = args.options.load()?;
    let tools = Toolbox::new(&config.verdict.evaluation.metrics.plan.tools);
    let mut groups = Vec::new();
    for path in &args.files {
        let text = read_text(path)?;
        for (location, object) in
            files::parse_objects(&text).map_err(|message| CommandFailure::file(path, message))?
        {
            let problem =
                |message: String| CommandFailure::Usage(format!("{}{location}: {message}", path.display()));
            groups.push(ranked_plans(&object, &tools).map_err(problem)?);
        }
    }
    let learnt = plan::learn_weights(&groups)
        .ok_or_else(|| CommandFailure::Usage("the files contain no two plans in order".to_owned()))?;
    args.options.output.print(&learnt, || table(&learnt))
}

/// The last plans of one object, worst first.
fn ranked_plans(object: &Value, tools: &Toolbox) -> Result<Vec<RankedPlan>, String> {
    let plans = object.get("plans").or_else(|| object.get("revisions")).and_then(Value::as_array);
    let plans = plans.ok_or("the object has neither \"plans\" nor \"revisions\"")?;
    let last = plans.get(plans.len().saturating_sub(MAX_RANKED_PLANS)..).unwrap_or(&[]);
    let text = |plan: &Value| plan.as_str().map_or_else(|| plan.to_string(), str::to_owned);
    let best = last.last().and_then(|p| p.get("plan")).map(|p| plan::parse_plan(&text(p)));
    let mut group = Vec::new();
    for entry in last {
        let planner = entry.get("planner").and_then(Value::as_str).map(str::to_owned);
        let metrics = match (entry.get("metrics"), entry.get("plan")) {
            (Some(metrics), _) => {
                serde_json::from_value(metrics.clone()).map_err(|e| format!("metrics: {e}"))?
            }
            (None, Some(plan)) => {
                let assessment =
                    PlanAssessment::new(plan::parse_plan(&text(plan)), tools.clone(), best.clone());
                PlanPart::ALL.iter().map(|p| (p.name().to_owned(), assessment.value(*p))).collect()
            }
            (None, None) => return Err("a plan has neither \"metrics\" nor \"plan\"".to_owned()),
        };
        group.push(RankedPlan { metrics, planner });
    }
    Ok(group)
}

fn table(learnt: &LearntWeights) -> String {
    let mut out = String::from("verdict:\n  metrics:\n    plan:\n      weights:\n");
    for part in PlanPart::ALL {
        let weight = part.weight(&learnt.weights);
        out.push_str(&format!("        {}: {weight:.2}\n", part.name()));
    }
    let shown = |rho: Option<f64>| rho.map_or("undefined".to_owned(), |r| format!("{r:.3}"));
    let draws: Vec<String> = learnt.sensitivity.draws.iter().map(|d| shown(*d)).collect();
    out.push_str(&format!(
        "# {} of {} ordered pairs in {} groups right: {:.1} %; with the nominal weights {:.1} %\n\
         # correlation of the ranking of {} with equal weights: {}; with random ones: median {}, {}\n",
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
    let percent = |share: Option<f64>| share.map_or("-".to_owned(), |s| format!("{:.1} %", 100.0 * s));
    for metric in &learnt.metrics {
        out.push_str(&format!(
            "# {:<24} {:>4} pairs: not lower in {:>8}, higher in {:>8}\n",
            metric.metric,
            metric.pairs,
            percent(metric.relaxed),
            percent(metric.strict)
        ));
    }
    out
}

pub(super) fn stats(args: &PlanStatsArgs) -> Result<(), CommandFailure> {
    let mut lineages: Vec<Lineage> = Vec::new();
    for path in &args.files {
        let lineage = serde_json::from_str(&read_text(path)?);
        lineages.push(lineage.map_err(|e| CommandFailure::file(path, format!("not a lineage: {e}")))?);
    }
    write_stdout(to_json(&plan::lineage_statistics(&lineages))?.as_bytes())
}
