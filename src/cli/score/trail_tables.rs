//! The result of `score trail` as tables and as JSON.
//!
//! In: the figures of one run against the benchmark. Out: rendered tables; JSON by `Serialize`, unrounded.

use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::predict::Notes;
use super::tables::benchmark;
use crate::cli::table::{TextTable, figure, optional_figure};
use crate::score::counts::{Confusion, share};
use crate::score::coverage::Coverage;
use crate::score::trail::Benchmark;
use crate::score::trail::annotation::RATINGS;
use crate::score::trail::benchmark::IMPACTS;
use crate::score::trail::caught::{ALL, CaughtErrors, MetricErrors};
use crate::score::trail::ratings::RatingCorrelation;

/// The result of `score trail`.
#[derive(Serialize)]
pub(super) struct TrailScores {
    #[serde(flatten)]
    pub(super) figures: Benchmark,
    /// The definition of a prediction, in words.
    pub(super) predictions: String,
    #[serde(rename = "trace_scores", serialize_with = "by_rating")]
    pub(super) ratings: [RatingCorrelation; 5],
    /// Root verdicts by policy; none for predictions of another tool, which contain no verdict.
    #[serde(rename = "root_verdict", serialize_with = "by_policy", skip_serializing_if = "Vec::is_empty")]
    pub(super) roots: Vec<(&'static str, Confusion)>,
    /// Measured and unmeasured, by metric; only of this run's metrics.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) coverage: Option<Coverage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) caught: Option<Caught>,
    #[serde(flatten)]
    pub(super) notes: Notes,
    /// Figures of other predictions, by name.
    #[serde(skip)]
    pub(super) others: Vec<(String, Benchmark)>,
}

/// Caught and localised errors, and the adjudicator that decided.
#[derive(Serialize)]
pub(super) struct Caught {
    pub(super) adjudicator: String,
    #[serde(flatten)]
    pub(super) tables: CaughtErrors,
}

fn by_rating<S: Serializer>(ratings: &[RatingCorrelation; 5], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(RATINGS.into_iter().zip(ratings))
}

fn by_policy<S: Serializer>(roots: &[(&str, Confusion)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(roots.iter().map(|(policy, c)| {
        let figures = json!({
            "agreement": c.accuracy(), "kappa": c.kappa(), "both_pass": c.tp,
            "only_verdict_passes": c.fp, "only_annotators_pass": c.fn_, "both_fail": c.tn,
        });
        (policy, figures)
    }))
}

impl Serialize for Notes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut notes = Map::new();
        let mut note = |key: &str, value: Option<Value>| {
            notes.extend(value.map(|value| (key.to_owned(), value)));
        };
        note("mapper", self.mapper.as_ref().map(|counts| json!(counts)));
        note("adjudicator", self.adjudicator.as_ref().map(|counts| json!(counts)));
        note("monolithic", self.baseline.as_ref().map(|counts| json!(counts)));
        note("excluded_share", self.excluded_share().map(|share| json!(share)));
        notes.serialize(to)
    }
}

impl Notes {
    /// The share of traces that did not fit the window of a judge of whole traces.
    fn excluded_share(&self) -> Option<f64> {
        let baseline = self.baseline.as_ref()?;
        let excluded = baseline.excluded.len();
        Some(share(excluded, excluded + baseline.answered + baseline.unanswered))
    }

    /// The omissions, one sentence a line.
    fn lines(&self) -> String {
        let mut out = String::new();
        if let Some(m) = &self.mapper {
            out.push_str(&format!(
                "mapper: {} flagged spans mapped, {} fit no category, {} without an answer, {} not asked\n",
                m.mapped, m.no_category, m.unanswered, m.omitted
            ));
        }
        if let (Some(b), Some(share)) = (&self.baseline, self.excluded_share()) {
            out.push_str(&format!(
                "whole traces: {} answered, {} without an answer (empty predictions), {} excluded because they do \
                 not fit the context window ({:.1} % of the traces, Excl. in tables), {} errors at unknown spans left out\n",
                b.answered,
                b.unanswered,
                b.excluded.len(),
                100.0 * share,
                b.unknown_spans
            ));
        }
        if let Some(a) = &self.adjudicator {
            out.push_str(&format!(
                "adjudicator: {} errors decided, {} without an answer (decided by rules), {} findings not shown\n",
                a.answered, a.unanswered, a.omitted
            ));
        }
        out
    }
}

/// All tables of `score trail`.
pub(super) fn all(scores: &TrailScores) -> Vec<String> {
    let mut tables = vec![format!("predictions: {}\n{}", scores.predictions, scores.notes.lines())];
    tables.extend(benchmark(&scores.figures));
    tables.extend(scores.caught.iter().flat_map(caught));
    tables.push(ratings(&scores.ratings));
    tables.extend((!scores.roots.is_empty()).then(|| roots(&scores.roots)));
    tables.extend(scores.coverage.as_ref().and_then(coverage));
    tables.extend((!scores.others.is_empty()).then(|| comparison(scores)));
    tables
}

/// Errors that each metric caught, then those that it localised: its recall of the errors that it is designed for, by
/// impact, and its figures over all errors.
fn caught(caught: &Caught) -> [String; 2] {
    let table =
        |verb: &str, field: fn(&MetricErrors) -> &std::collections::BTreeMap<&'static str, Confusion>| {
            let mut head = vec![format!("errors {verb}, by {}", caught.adjudicator), "mapped".to_owned()];
            head.extend(IMPACTS.iter().chain([&ALL]).map(|impact| (*impact).to_lowercase()));
            head.extend(["P", "R", "F1", "F2", "accuracy"].map(str::to_owned));
            let mut t = TextTable::with_head(head);
            for (metric, errors) in &caught.tables.metrics {
                let by_impact = field(errors);
                let all = by_impact.get(ALL).copied().unwrap_or_default();
                let recall = |impact: &&str| {
                    let counts = by_impact.get(*impact).filter(|c| c.tally().gold > 0);
                    optional_figure(counts.map(|c| c.tally().recall()))
                };
                let tally = all.tally();
                let [p, r, f1] = tally.shares();
                let shares = [p, r, f1, tally.f(2.0), all.accuracy()].map(|f| figure(f, None));
                let cells = [(*metric).to_owned(), tally.gold.to_string()].into_iter();
                t.add_row(cells.chain(IMPACTS.iter().chain([&ALL]).map(recall)).chain(shares));
            }
            t
        };
    let any_metric_row = |count: fn(&crate::score::trail::caught::AnyMetric) -> usize| {
        let by_impact = &caught.tables.any_metric;
        let errors = by_impact.get(ALL).map_or(0, |any| any.errors).to_string();
        let share_of_errors = move |impact: &&str| {
            let any = by_impact.get(*impact);
            optional_figure(any.map(|any| share(count(any), any.errors)))
        };
        ["any metric".to_owned(), errors].into_iter().chain(IMPACTS.iter().chain([&ALL]).map(share_of_errors))
    };
    let (mut caught_table, mut localised_table) =
        (table("caught", |e| &e.caught), table("localised", |e| &e.localised));
    caught_table.add_row(any_metric_row(|any| any.caught));
    localised_table.add_row(any_metric_row(|any| any.localised));
    [caught_table.render(), localised_table.render()]
}

/// Metrics with unmeasured spans; `None` if there are none.
fn coverage(coverage: &Coverage) -> Option<String> {
    let mut t = TextTable::new(["metric: unmeasured", "measured", "unmeasured", "share", "reasons"]);
    let incomplete = coverage.0.iter().filter(|(_, metric_coverage)| metric_coverage.missing() > 0);
    let mut rows = 0;
    for (metric, metric_coverage) in incomplete {
        rows += 1;
        let counts = [metric_coverage.measured, metric_coverage.missing()].map(|n| n.to_string());
        let reasons: Vec<String> =
            metric_coverage.unmeasured.iter().map(|(reason, n)| format!("{reason} {n}")).collect();
        let last = [figure(metric_coverage.unmeasured_share(), None), reasons.join(", ")];
        t.add_row([(*metric).to_owned()].into_iter().chain(counts).chain(last));
    }
    (rows > 0).then(|| t.render())
}

fn ratings(correlated: &[RatingCorrelation; 5]) -> String {
    let mut t = TextTable::new(["trace score, ours : theirs", "traces", "Pearson", "Spearman"]);
    let mut notes = String::new();
    for (name, c) in RATINGS.into_iter().zip(correlated) {
        let figures = [c.pearson, c.spearman].map(optional_figure);
        t.add_row([name.to_owned(), c.traces.to_string()].into_iter().chain(figures));
        let reason = match c {
            RatingCorrelation { constant: true, .. } => "the annotators' scores are all equal",
            RatingCorrelation { traces: 0, .. } => "no trace has both scores",
            RatingCorrelation { pearson: None, .. } => "our scores are all equal",
            _ => continue,
        };
        notes.push_str(&format!("{name}: undefined, {reason}\n"));
    }
    t.render() + &notes
}

fn roots(by_policy: &[(&'static str, Confusion)]) -> String {
    let mut t = TextTable::new([
        "root verdict : overall >= 3.5",
        "traces",
        "agreement",
        "kappa",
        "predicted",
        "passing",
    ]);
    for (policy, c) in by_policy {
        let tally = c.tally();
        let figures = [figure(c.accuracy(), None), optional_figure(c.kappa())];
        let counts = [tally.predicted, tally.gold].map(|n| n.to_string());
        t.add_row([(*policy).to_owned(), c.total().to_string()].into_iter().chain(figures).chain(counts));
    }
    t.render()
}

/// A table of this run and the other predictions, one a row.
fn comparison(scores: &TrailScores) -> String {
    let mut t = TextTable::new([
        "predictions",
        "Excl. (%)",
        "location P",
        "R",
        "F1",
        "joint P",
        "R",
        "F1",
        "category F1",
    ]);
    let excluded = scores.notes.excluded_share().unwrap_or(0.0);
    let ours = ("this run", Some(excluded), &scores.figures);
    let others = scores.others.iter().map(|(name, b)| (name.as_str(), None, b));
    for (name, excluded, b) in std::iter::once(ours).chain(others) {
        let excluded = excluded.map_or_else(|| "-".to_owned(), |share| format!("{:.1}", 100.0 * share));
        let figures = [b.location, b.joint].into_iter().flat_map(|t| t.shares()).chain([b.category_f1]);
        t.add_row([name.to_owned(), excluded].into_iter().chain(figures.map(|f| figure(f, None))));
    }
    t.render()
}
