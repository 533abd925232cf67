//! `score rules`: the precision of each rule on labelled sets.
//!
//! In: labelled sets. Out: a table of rules by set, as text, JSON or the evaluator's table of confidences.

use clap::Args;

use super::sets::Sets;
use crate::cli::command::{CommandFailure, write_stdout};
use crate::cli::table::{TextTable, figure, optional_figure};
use crate::score::rules::{Firings, LabelledBy, LabelledSet, RuleTable};

pub(super) const LONG_ABOUT: &str = "\
Measure the precision of each rule on labelled sets.

Evaluates every labelled trace. A row for each rule: how often it was right and fired on each set,
and over all sets its precision with the 95 % interval (Wilson) and the confidence that its
findings carry: (right + 1) / (fired + 2), or (right + 2 p) / (fired + 2) for a rule that shares its
defect with others, whose confidence is p. On a set with labels of spans a firing is right if its
span is labelled as failing; on a set with labels of traces alone, if the trace failed. A set
whose traces all failed is not counted: every firing would be right.

'left out' is the mean confidence of a rule's firings where that of each set is estimated from the
other sets alone. The second table compares both kinds of confidence with the firings of each set:
their mean, and the mean squared difference (Brier score: 0 is perfect, 0.25 is that of 0.5).";

pub(super) const EXAMPLES: &str = "\
Examples:
  otel-verdict score rules --set mine recordings/ labels.json
  otel-verdict score rules --set gaia gaia/traces gaia/gold --set mine recordings/ labels.json
  otel-verdict score rules --set mine recordings/ labels.json --tsv   # the evaluator's table

Labels have the shape that 'otel-verdict help score labels' shows.";

#[derive(Args, Debug)]
pub(in crate::cli) struct RulesArgs {
    #[command(flatten)]
    sets: Sets,
    /// Print the counts as tab-separated values, in the form of the evaluator's table of confidences
    #[arg(long, conflicts_with = "output")]
    tsv: bool,
    /// Print a row for each rule and set that it fired on, with the precision on that set
    #[arg(long, conflicts_with_all = ["output", "tsv"])]
    by_set: bool,
}

pub(super) fn rules(args: &RulesArgs) -> Result<(), CommandFailure> {
    let mut sets: Vec<(String, LabelledSet)> =
        args.sets.names().map(|name| (name.to_owned(), LabelledSet::default())).collect();
    let run = args.sets.evaluate(|set, evaluated, labels| sets[set].1.add(&evaluated.trace, labels))?;
    let table = RuleTable::new(&sets);
    match args.tsv {
        true if run.is_dry() => run.finish(),
        true => write_stdout(table.tsv().as_bytes()).and_then(|()| run.finish()),
        false if args.by_set => run.print(args.sets.output, &table, || render_by_set(&table)),
        false => run.print(args.sets.output, &table, || render(&table)),
    }
}

fn render(table: &RuleTable) -> String {
    let mut text = String::new();
    for (name, labelled_by) in &table.sets {
        let description = match labelled_by {
            LabelledBy::Span => "labelled by span",
            LabelledBy::Run => "labelled by run",
            LabelledBy::Nothing => "not counted: its runs have one outcome or no label",
        };
        text.push_str(&format!("{name}: {description}\n"));
    }
    let names: Vec<&String> = table.sets.iter().map(|(name, _)| name).collect();
    let mut rows = TextTable::new(["rule"]);
    let head = ["at spans", "in runs", "precision", "confidence", "left out"].map(str::to_owned);
    rows.extend_head(names.iter().map(|name| (*name).clone()).chain(head));
    for (rule, row) in &table.rules {
        let by_set =
            names.iter().map(|name| right_of_fired(row.sets.get(*name).copied().unwrap_or_default()));
        let precision = figure(row.precision.unwrap_or_default(), row.interval);
        let confidences = [Some(row.confidence), row.left_out].map(two_digits);
        let sums = [right_of_fired(row.at_spans), right_of_fired(row.in_runs), precision];
        rows.add_row([rule.clone()].into_iter().chain(by_set).chain(sums).chain(confidences));
    }
    let mut sets = TextTable::new(["set", "right/fired", "confidence", "left out", "Brier", "left out"]);
    for row in table.calibration.iter().filter(|row| row.firings.fired > 0) {
        let predictions = [row.all_sets, row.left_out];
        let means = predictions.map(|prediction| two_digits(prediction.map(|p| p.mean_confidence)));
        let brier = predictions.map(|prediction| optional_figure(prediction.map(|p| p.brier)));
        sets.add_row([row.set.clone(), right_of_fired(row.firings)].into_iter().chain(means).chain(brier));
    }
    format!("{text}\nright/fired\n{}\n{}", rows.render(), sets.render())
}

fn render_by_set(table: &RuleTable) -> String {
    let mut rows = TextTable::new(["rule", "set", "right/fired", "precision"]);
    for (rule, row) in &table.rules {
        for (set, firings) in &row.sets {
            let precision = figure(firings.precision().unwrap_or_default(), firings.interval());
            rows.add_row([rule.clone(), set.clone(), right_of_fired(*firings), precision]);
        }
    }
    rows.render()
}

fn right_of_fired(firings: Firings) -> String {
    match firings.fired {
        0 => "-".to_owned(),
        fired => format!("{}/{fired}", firings.right),
    }
}

fn two_digits(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
}
