//! `score thresholds`: each metric's threshold, fitted to labels.
//!
//! In: traces and labels. Out: for each metric the best threshold, what it gives, what it gives on
//! traces it was not fitted to, and the whole curve.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::labels::{Against, confusion};
use super::table::{Table, figure};
use crate::cli::failure::Failure;
use crate::cli::format::Output;
use crate::cli::terminal::write_stdout;
use crate::score::metrics;
use crate::score::thresholds::{Cut, Fit};

pub(super) const LONG: &str = "\
Fit each metric's threshold to labels.

For every metric with scores: what each threshold would give, which one has the best F1, and how
that choice does on traces that it was not fitted to (each trace by the threshold that the others
give). Trust the held-out figures; with few labelled traces a fit is luck. The result goes into
'verdict.metrics.<metric>.threshold'.";

pub(super) const EXAMPLES: &str = "\
Examples:
  otel-verdict score thresholds --traces recordings/ --labels labels.json
  otel-verdict score thresholds --traces gaia/traces --labels gaia/gold --output json

Labels have the shape that 'otel-verdict help score labels' shows.";

pub(super) fn thresholds(args: &Against) -> Result<(), Failure> {
    let gathered = args.judge()?;
    let fits: BTreeMap<&str, Option<Fit>> = metrics::points(&gathered.pairs())
        .into_iter()
        .map(|(metric, points)| (metric, Fit::of(&points)))
        .collect();
    let text = table(&fits);
    args.report(gathered, vec![text.clone()], Vec::new())?;
    match args.output {
        Output::Table => write_stdout(text.as_bytes()),
        Output::Json => write_stdout(format!("{:#}\n", json(&fits)).as_bytes()),
    }
}

fn table(fits: &BTreeMap<&str, Option<Fit>>) -> String {
    let head = ["metric", "points", "best tau", "F1", "held-out F1", "F1 now"];
    let mut best = Table::new(head);
    let mut curves = Table::new(["metric", "tau", "P", "R", "F1", "fails"]);
    for (metric, fit) in fits {
        let Some(fit) = fit else {
            best.row([(*metric).to_owned(), "nothing to fit".to_owned()]);
            continue;
        };
        let f1 = |c: &crate::score::counts::Confusion| figure(c.tally().f1(), None);
        let held_out = fit.held_out.as_ref().map_or_else(|| "-".to_owned(), f1);
        let tau = format!("{:.2}", fit.best.tau);
        best.row([
            (*metric).to_owned(),
            fit.points.to_string(),
            tau,
            f1(&fit.best.counts),
            held_out,
            f1(&fit.now),
        ]);
        for cut in &fit.curve {
            let t = cut.counts.tally();
            let shares = [t.precision(), t.recall(), t.f1()].map(|f| figure(f, None));
            let place = [(*metric).to_owned(), format!("{:.2}", cut.tau)];
            curves.row(place.into_iter().chain(shares).chain([t.predicted.to_string()]));
        }
    }
    format!("{}\n{}", best.render(), curves.render())
}

fn json(fits: &BTreeMap<&str, Option<Fit>>) -> Value {
    let cut = |cut: &Cut| {
        let mut figures = confusion(&cut.counts);
        figures["tau"] = json!(cut.tau);
        figures
    };
    let of = |fit: &Fit| {
        json!({
            "points": fit.points,
            "best": cut(&fit.best),
            "held_out": fit.held_out.as_ref().map(confusion),
            "now": confusion(&fit.now),
            "curve": fit.curve.iter().map(cut).collect::<Vec<_>>(),
        })
    };
    Value::Object(
        fits.iter()
            .map(|(metric, fit)| ((*metric).to_owned(), fit.as_ref().map_or(Value::Null, of)))
            .collect(),
    )
}
