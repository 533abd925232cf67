//! `score fit`: the weights of the root policy `expected_outcome`, fitted to labelled runs.
//!
//! In: labelled sets. Out: weights as configuration, with their figures and those of the shipped weights.

use clap::Args;
use verdict_eval::propagation::OutcomeEvidence;

use super::sets::Sets;
use crate::cli::command::CommandFailure;
use crate::cli::table::{TextTable, optional_figure};
use crate::score::fit::{FOLDS, LabelledRun, OutcomeFit, RunSet};
use crate::score::labels::Expected;
use crate::score::rules::{LabelledSet, RuleTable};

pub(super) const LONG_ABOUT: &str = "\
FitArgs the root policy 'expected_outcome' to labelled runs.

Needs labels of whole traces ('expected'), of both outcomes. Prints the weights as configuration,
and for each set the area under the ROC curve (AUC: 0.5 is chance) with these weights, with
weights fitted to the other sets (held out), and with the shipped ones. With one set, the held-out
weights for each fifth of its runs are fitted to the other four fifths. Rely on the held-out
column; with few runs a fit is chance.

Findings have the shipped confidences. For sets from which these were estimated, as for the
figures in tests/bench/rules.md, use --estimate-confidences.";

pub(super) const EXAMPLES: &str = "\
Examples:
  otel-verdict score fit --set mine recordings/ labels.json
  otel-verdict score fit --set shop shop/ shop.json --set bank bank/ bank.json

Labels have the shape that 'otel-verdict help score labels' shows.";

#[derive(Args, Debug)]
pub(in crate::cli) struct FitArgs {
    #[command(flatten)]
    sets: Sets,
    /// For held-out figures, estimate the confidences of rules from the labels of the other sets as well
    #[arg(long)]
    estimate_confidences: bool,
}

pub(super) fn fit(args: &FitArgs) -> Result<(), CommandFailure> {
    let names = || args.sets.names().map(str::to_owned);
    let mut firings: Vec<(String, LabelledSet)> =
        names().map(|name| (name, LabelledSet::default())).collect();
    let mut evidence: Vec<Vec<(OutcomeEvidence, bool)>> = names().map(|_| Vec::new()).collect();
    let run = args.sets.evaluate(|set, evaluated, labels| {
        firings[set].1.add(&evaluated.trace, labels);
        if let Some(expected) = labels.expected {
            let terms = OutcomeEvidence::new(&evaluated.trace.trace, &evaluated.trace.measurements);
            evidence[set].push((terms, expected == Expected::Fail));
        }
    })?;
    if run.is_dry() {
        return run.finish();
    }
    let tables: Vec<RuleTable> = match args.estimate_confidences {
        true => names().map(|name| RuleTable::without(&firings, &name)).collect(),
        false => Vec::new(),
    };
    let labelled_run = |(evidence, failed): (OutcomeEvidence, bool)| LabelledRun {
        terms: evidence.terms,
        terms_without: tables.iter().map(|t| evidence.terms_with(|rule| t.confidence(rule))).collect(),
        failed,
    };
    let sets: Vec<RunSet> = names()
        .zip(evidence)
        .map(|(name, runs)| RunSet { name, runs: runs.into_iter().map(labelled_run).collect() })
        .collect();
    let Some(fit) = OutcomeFit::from_sets(&sets) else {
        return Err(CommandFailure::Usage(
            "expected a set with passed and failed runs ('expected' in its labels)".into(),
        ));
    };
    run.print(args.sets.output, &fit, || render(&fit))
}

fn render(fit: &OutcomeFit) -> String {
    let head = ["set", "runs", "failed", "AUC", "held out", "shipped", "log loss", "shipped"];
    let mut table = TextTable::new(head);
    for set in &fit.sets {
        let counts = [set.set.clone(), set.runs.to_string(), set.failed.to_string()];
        let areas = [set.auc, set.auc_held_out, set.auc_shipped].map(optional_figure);
        let losses = [set.log_loss, set.log_loss_shipped].map(|loss| format!("{loss:.3}"));
        table.add_row(counts.into_iter().chain(areas).chain(losses));
    }
    let model = &fit.model;
    let weights = [
        ("intercept", model.intercept),
        ("answer", model.answer),
        ("lasting", model.lasting),
        ("recovered", model.recovered),
        ("process", model.process),
        ("changes", model.changes),
        ("limit", model.limit),
    ];
    let weights: String = weights.iter().map(|(key, value)| format!("        {key}: {value:.2}\n")).collect();
    let gain = match fit.gain {
        Some(gain) => format!(
            "Held out, the fitted weights have an AUC {:.3} {} that of the shipped ones (mean of sets).",
            gain.abs(),
            if gain < 0.0 { "below" } else { "above" }
        ),
        None => format!("Too few runs for held-out figures: at least {FOLDS} of each outcome are needed."),
    };
    let table = table.render();
    format!("{table}\n{gain}\n\nverdict:\n  propagation:\n    root:\n      expected_outcome:\n{weights}")
}
