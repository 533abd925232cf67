//! `score fit`: the weights of the root policy `expected_outcome`, fitted to labelled runs.
//!
//! In: labelled sets. Out: weights as configuration, with their figures and those of the shipped weights.

use verdict_eval::propagation::outcome_terms;

use super::sets::Sets;
use crate::cli::command::CommandFailure;
use crate::cli::table::{TextTable, optional_figure};
use crate::score::fit::{LabelledRun, OutcomeFit, RunSet};
use crate::score::labels::Expected;

pub(super) const LONG: &str = "\
Fit the root policy 'expected_outcome' to labelled runs.

Needs labels of whole traces ('expected'), of both outcomes. Prints the weights as configuration,
and for each set the area under the ROC curve (AUC: 0.5 is chance) with these weights, with
weights fitted to the other sets, and with the shipped ones. Rely on the held-out column; with
few runs a fit is chance.";

pub(super) const EXAMPLES: &str = "\
Examples:
  otel-verdict score fit --set mine recordings/ labels.json
  otel-verdict score fit --set shop shop/ shop.json --set bank bank/ bank.json

Labels have the shape that 'otel-verdict help score labels' shows.";

pub(super) fn fit(args: &Sets) -> Result<(), CommandFailure> {
    let mut sets: Vec<RunSet> =
        args.names().map(|name| RunSet { name: name.to_owned(), ..RunSet::default() }).collect();
    let run = args.evaluate(|set, evaluated, labels| {
        if let Some(expected) = labels.expected {
            let terms = outcome_terms(&evaluated.trace.trace, &evaluated.trace.measurements);
            sets[set].runs.push(LabelledRun { terms, failed: expected == Expected::Fail });
        }
    })?;
    if run.is_dry() {
        return run.finish();
    }
    let Some(fit) = OutcomeFit::from_sets(&sets) else {
        return Err(CommandFailure::Usage(
            "expected a set with passed and failed runs ('expected' in its labels)".into(),
        ));
    };
    run.print(args.output, &fit, || render(&fit))
}

fn render(fit: &OutcomeFit) -> String {
    let head = ["set", "runs", "failed", "AUC", "held out", "shipped", "log loss", "shipped"];
    let mut table = TextTable::new(head);
    for set in &fit.sets {
        let counts = [set.set.clone(), set.runs.to_string(), set.failed.to_string()];
        let areas = [set.auc, set.auc_held_out, set.auc_shipped].map(optional_figure);
        let losses = [set.log_loss, set.log_loss_shipped].map(|loss| format!("{loss:.3}"));
        table.row(counts.into_iter().chain(areas).chain(losses));
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
    format!("{}\nverdict:\n  propagation:\n    root:\n      expected_outcome:\n{weights}", table.render())
}
