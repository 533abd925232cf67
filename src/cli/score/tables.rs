//! The result of `score trail` as tables and as JSON.
//!
//! In: the figures of one run against the benchmark. Out: rendered tables; JSON by `Serialize`, unrounded.

use serde::{Serialize, Serializer};
use serde_json::json;

use super::table::{Table, figure, optional_figure, shares};
use crate::score::bootstrap::ShareIntervals;
use crate::score::counts::Confusion;
use crate::score::trail::Benchmark;
use crate::score::trail::annotation::RATINGS;
use crate::score::trail::ratings::RatingCorrelation;

/// The result of `score trail`.
#[derive(Serialize)]
pub(super) struct TrailScores {
    #[serde(flatten)]
    pub(super) figures: Benchmark,
    #[serde(rename = "trace_scores", serialize_with = "by_rating")]
    pub(super) ratings: [RatingCorrelation; 5],
    /// Root verdicts by policy; `None` for predictions of another tool, which contain no verdict.
    #[serde(rename = "root_verdict", serialize_with = "by_policy", skip_serializing_if = "Option::is_none")]
    pub(super) roots: Option<[(&'static str, Confusion); 2]>,
    /// Figures of other predictions, by name.
    #[serde(skip)]
    pub(super) others: Vec<(String, Benchmark)>,
}

fn by_rating<S: Serializer>(ratings: &[RatingCorrelation; 5], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(RATINGS.into_iter().zip(ratings))
}

fn by_policy<S: Serializer>(roots: &Option<[(&str, Confusion); 2]>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(roots.iter().flatten().map(|(policy, c)| {
        let figures = json!({
            "agreement": c.accuracy(), "kappa": c.kappa(), "both_pass": c.tp,
            "only_verdict_passes": c.fp, "only_annotators_pass": c.fn_, "both_fail": c.tn,
        });
        (policy, figures)
    }))
}

/// All tables of `score trail`.
pub(super) fn all(scores: &TrailScores) -> Vec<String> {
    let mut tables = benchmark(&scores.figures).to_vec();
    tables.push(ratings(&scores.ratings));
    tables.extend(scores.roots.as_ref().map(|by_policy| roots(by_policy)));
    tables.extend((!scores.others.is_empty()).then(|| comparison(scores)));
    tables
}

/// The benchmark's own tables.
pub(super) fn benchmark(b: &Benchmark) -> [String; 3] {
    [headline(b), categories(b), impacts(b)]
}

fn headline(b: &Benchmark) -> String {
    let mut t = Table::new(["", "precision", "recall", "F1", "predicted", "gold"]);
    let rows = [("location", &b.location, b.intervals.location), ("joint", &b.joint, b.intervals.joint)];
    for (name, tally, intervals) in rows {
        let counts = [tally.predicted, tally.gold].map(|n| n.to_string());
        t.row([name.to_owned()].into_iter().chain(shares(tally, intervals)).chain(counts));
    }
    format!(
        "{} traces; in brackets 95 % intervals, by resampling traces\n\n{}\n\
         category F1, weighted by support   {}\n\
         category F1, macro                 {:.3}\n\
         benchmark's means (recall a trace) location {:.4}, joint {:.4}\n",
        b.traces,
        t.render(),
        figure(b.category_f1, b.intervals.category_f1),
        b.macro_f1,
        b.location_mean,
        b.joint_mean,
    )
}

fn categories(b: &Benchmark) -> String {
    let mut t = Table::new([
        "category",
        "traces",
        "predicted",
        "P",
        "R",
        "F1",
        "| spans",
        "predicted",
        "P",
        "R",
        "F1",
    ]);
    for row in &b.categories {
        let figures = [row.traces, row.joint].into_iter().flat_map(|tally| {
            let counts = [tally.gold, tally.predicted].map(|n| n.to_string());
            counts.into_iter().chain(shares(&tally, ShareIntervals::default()))
        });
        t.row([row.category.as_str().to_owned()].into_iter().chain(figures));
    }
    t.render()
}

fn impacts(b: &Benchmark) -> String {
    let mut t = Table::new(["impact", "errors", "named", "located", "both"]);
    for row in &b.impacts {
        let shares = row.shares().map(|f| figure(f, None));
        t.row([row.impact.to_owned(), row.errors.to_string()].into_iter().chain(shares));
    }
    t.render()
}

fn ratings(correlated: &[RatingCorrelation; 5]) -> String {
    let mut t = Table::new(["trace score, ours : theirs", "traces", "Pearson", "Spearman"]);
    let mut notes = String::new();
    for (name, c) in RATINGS.into_iter().zip(correlated) {
        let figures = [c.pearson, c.spearman].map(optional_figure);
        t.row([name.to_owned(), c.traces.to_string()].into_iter().chain(figures));
        let why = match c {
            RatingCorrelation { constant: true, .. } => "the annotators' scores are all equal",
            RatingCorrelation { traces: 0, .. } => "no trace has both scores",
            RatingCorrelation { pearson: None, .. } => "our scores are all equal",
            _ => continue,
        };
        notes.push_str(&format!("{name}: undefined, {why}\n"));
    }
    t.render() + &notes
}

fn roots(by_policy: &[(&'static str, Confusion)]) -> String {
    let mut t =
        Table::new(["root verdict : overall >= 3.5", "traces", "agreement", "kappa", "predicted", "passing"]);
    for (policy, c) in by_policy {
        let tally = c.tally();
        let figures = [figure(c.accuracy(), None), optional_figure(c.kappa())];
        let counts = [tally.predicted, tally.gold].map(|n| n.to_string());
        t.row([(*policy).to_owned(), c.total().to_string()].into_iter().chain(figures).chain(counts));
    }
    t.render()
}

/// This run and the other predictions, one a row.
fn comparison(scores: &TrailScores) -> String {
    let mut t = Table::new(["predictions", "location P", "R", "F1", "joint P", "R", "F1", "category F1"]);
    let ours = ("this run", &scores.figures);
    for (name, b) in std::iter::once(ours).chain(scores.others.iter().map(|(name, b)| (name.as_str(), b))) {
        let figures = [b.location, b.joint].into_iter().flat_map(|t| t.shares()).chain([b.category_f1]);
        t.row([name.to_owned()].into_iter().chain(figures.map(|f| figure(f, None))));
    }
    t.render()
}
