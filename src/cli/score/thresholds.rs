//! `score thresholds`: each metric's threshold, fitted to labels.
//!
//! In: traces and labels. Out: for each metric the best threshold, its figures, its figures on traces that it
//! was not fitted to, and the whole curve.

use std::collections::BTreeMap;

use super::labels::ScoreLabelsArgs;
use crate::cli::command::CommandFailure;
use crate::cli::table::{TextTable, figure, shares};
use crate::score::bootstrap::ShareIntervals;
use crate::score::counts::Confusion;
use crate::score::metrics;
use crate::score::thresholds::ThresholdFit;
use crate::score::trail::placement::Predicted;

pub(super) const LONG_ABOUT: &str = "\
Fit each metric's threshold to labels.

For every metric with scores: the figures of each threshold, the threshold with the best F1, and
its figures on traces that it was not fitted to (each trace with the threshold fitted to the
others). Rely on the held-out figures; with few labelled traces a fit is chance. Set the result
as 'verdict.metrics.<metric>.threshold'.";

pub(super) const EXAMPLES: &str = "\
Examples:
  otel-verdict score thresholds --traces recordings/ --labels labels.json
  otel-verdict score thresholds --traces gaia/traces --labels gaia/gold --output json

Labels have the shape that 'otel-verdict help score labels' shows.";

pub(super) fn thresholds(args: &ScoreLabelsArgs) -> Result<(), CommandFailure> {
    let (judged, run) = args.judge(Predicted::ALL, false)?;
    if run.is_dry() {
        return run.finish();
    }
    let fits: BTreeMap<&str, Option<ThresholdFit>> = metrics::labelled_measurements(&judged.pairs())
        .into_iter()
        .map(|(metric, points)| (metric, ThresholdFit::from_points(&points)))
        .collect();
    let text = if fits.values().any(Option::is_some) { table(&fits) } else { no_fit_message(&fits) };
    args.report(judged, vec![text.clone()], Vec::new())?;
    run.print(args.output, &fits, || text)
}

fn no_fit_message(fits: &BTreeMap<&str, Option<ThresholdFit>>) -> String {
    let reason = match fits.is_empty() {
        true => "no label names a span that a metric measured".to_owned(),
        false => {
            let n = fits.len();
            format!("none of the {n} labelled metrics has a failing and a passing case with different scores")
        }
    };
    format!("nothing to fit: {reason}\n")
}

fn table(fits: &BTreeMap<&str, Option<ThresholdFit>>) -> String {
    let mut best = TextTable::new(["metric", "points", "best tau", "F1", "held-out F1", "F1 now"]);
    let mut curves = TextTable::new(["metric", "tau", "P", "R", "F1", "fails"]);
    for (metric, fit) in fits {
        let Some(fit) = fit else {
            best.add_row([(*metric).to_owned(), "nothing to fit".to_owned()]);
            continue;
        };
        let f1 = |counts: &Confusion| figure(counts.tally().f1(), None);
        let held_out = fit.held_out.as_ref().map_or_else(|| "-".to_owned(), f1);
        let fitted = [fit.points.to_string(), format!("{:.2}", fit.best.tau), f1(&fit.best.counts)];
        best.add_row([(*metric).to_owned()].into_iter().chain(fitted).chain([held_out, f1(&fit.configured)]));
        for cut in &fit.curve {
            let t = cut.counts.tally();
            let cut = [(*metric).to_owned(), format!("{:.2}", cut.tau)];
            let shares = shares(&t, ShareIntervals::default());
            curves.add_row(cut.into_iter().chain(shares).chain([t.predicted.to_string()]));
        }
    }
    format!("{}\n{}", best.render(), curves.render())
}
