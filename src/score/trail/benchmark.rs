//! The benchmark's figures (paper 001, section 4.1), by the definitions of its reference script.
//!
//! In: for each trace the annotated and the predicted errors. Out: [`Benchmark`].
//!
//! - *Location* counts distinct (trace, span) pairs, *joint* distinct (trace, span, category) triples, over all
//!   traces together (micro), and as the mean of the traces' shares. The benchmark's script calls the mean recall
//!   accuracy, paper 001 precision: "the fraction of predicted error spans whose span ID matches". Predicting
//!   an error for every span nearly maximizes the first, predicting only certain errors the second. A trace
//!   without predictions has precision 0, as one without annotations has recall 0 in the script.
//! - *Category* F1 counts the presence of a category in a trace, weighted by the number of traces that contain
//!   it. *Macro* is the unweighted mean over categories that are annotated or predicted.
//! - *Impact* counts every annotated error, as paper 000's tables 2 and 5 do: named (its category is predicted
//!   somewhere in the trace), located (its span is predicted), both in one prediction.

use std::collections::BTreeSet;

use serde::{Serialize, Serializer};
use verdict_eval::metrics::Category;

use super::{Annotation, CategoryLabel};
use crate::score::bootstrap::{self, Interval, ShareIntervals};
use crate::score::counts::{PredictionTally, share};

/// Impacts in the annotations; `other` is every other text.
pub const IMPACTS: [&str; 4] = ["LOW", "MEDIUM", "HIGH", "other"];

/// The index of an annotation's impact in [`IMPACTS`].
pub(super) fn impact_index(impact: &str) -> usize {
    IMPACTS.iter().position(|candidate| *candidate == impact).unwrap_or(IMPACTS.len() - 1)
}

/// The span of an error, as its id in hex, and the category of the error.
type Joint = (String, CategoryLabel);

/// Annotated and predicted errors of one trace, prepared for repeated counting.
#[derive(Clone, Debug, Default)]
pub struct TraceErrors {
    gold: BTreeSet<Joint>,
    predicted: BTreeSet<Joint>,
    location: PredictionTally,
    joint: PredictionTally,
    gold_categories: BTreeSet<Category>,
    predicted_categories: BTreeSet<Category>,
    /// Every annotated error, duplicates included.
    errors: Vec<(Joint, String)>,
}

impl TraceErrors {
    /// Of a trace without a prediction, `predicted` is empty.
    pub fn new(gold: &[Annotation], predicted: &[Annotation]) -> TraceErrors {
        let pairs = |list: &[Annotation]| -> BTreeSet<Joint> { list.iter().map(pair).collect() };
        let spans = |pairs: &BTreeSet<Joint>| -> BTreeSet<String> {
            pairs.iter().map(|(span, _)| span.clone()).collect()
        };
        let categories = |pairs: &BTreeSet<Joint>| pairs.iter().filter_map(|(_, l)| l.category()).collect();
        let errors = gold.iter().map(|error| (pair(error), error.impact.clone())).collect();
        let (gold, predicted) = (pairs(gold), pairs(predicted));
        TraceErrors {
            location: tally(&spans(&gold), &spans(&predicted)),
            joint: tally(&gold, &predicted),
            gold_categories: categories(&gold),
            predicted_categories: categories(&predicted),
            errors,
            gold,
            predicted,
        }
    }
}

fn pair(error: &Annotation) -> Joint {
    (error.location.clone(), error.label())
}

fn tally<T: Ord>(gold: &BTreeSet<T>, predicted: &BTreeSet<T>) -> PredictionTally {
    PredictionTally {
        hits: gold.intersection(predicted).count(),
        predicted: predicted.len(),
        gold: gold.len(),
    }
}

/// One category over all traces.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct CategoryRow {
    #[serde(serialize_with = "by_name")]
    pub category: Category,
    /// Traces that contain the category.
    pub traces: PredictionTally,
    /// (trace, span) pairs of this category.
    #[serde(rename = "spans")]
    pub joint: PredictionTally,
}

fn by_name<S: Serializer>(category: &Category, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(category.as_str())
}

/// Annotated errors of one impact, and how many of them were predicted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ImpactRow {
    pub impact: &'static str,
    pub errors: usize,
    /// The category is predicted somewhere in the trace.
    pub named: usize,
    /// The span is predicted under some category.
    pub located: usize,
    /// Category and location are right in one prediction.
    #[serde(rename = "both")]
    pub joint: usize,
}

/// All figures over a set of traces.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Benchmark {
    pub traces: usize,
    /// Distinct (trace, span) pairs.
    pub location: PredictionTally,
    /// Distinct (trace, span, category) triples.
    pub joint: PredictionTally,
    /// Presence F1 weighted by support.
    #[serde(rename = "category_f1_weighted")]
    pub category_f1: f64,
    /// Presence F1, unweighted mean over categories that are annotated or predicted.
    #[serde(rename = "category_f1_macro")]
    pub macro_f1: f64,
    /// Mean over traces of the recall of spans: the benchmark's "localization accuracy".
    #[serde(rename = "benchmark_location_mean")]
    pub location_mean: f64,
    /// Mean over traces of the recall of (span, category) pairs: its "joint accuracy".
    #[serde(rename = "benchmark_joint_mean")]
    pub joint_mean: f64,
    /// Mean over traces of the precision of spans.
    pub location_precision_mean: f64,
    /// Mean over traces of the precision of (span, category) pairs.
    pub joint_precision_mean: f64,
    #[serde(rename = "intervals_95")]
    pub intervals: Intervals,
    /// Every category that is annotated or predicted, in the taxonomy's order.
    pub categories: Vec<CategoryRow>,
    /// Every impact that occurs, from low to high.
    pub impacts: Vec<ImpactRow>,
}

impl Benchmark {
    /// The figures of `cases`.
    pub fn from_cases(cases: &[TraceErrors]) -> Benchmark {
        let mut impacts = IMPACTS.map(|impact| ImpactRow { impact, ..ImpactRow::default() });
        cases.iter().for_each(|case| count_impacts(case, &mut impacts));
        let (location, joint) = totals(cases.iter());
        let presence = presence(cases);
        let (category_f1, macro_f1) = category_f1_scores(&presence);
        let rows = Category::ALL.into_iter().zip(presence).filter(|(_, t)| t.gold + t.predicted > 0);
        let row = |(category, traces)| CategoryRow { category, traces, joint: joint_tally(cases, category) };
        let mean_of = |share: fn(&TraceErrors) -> f64| mean(cases.iter().map(share).sum(), cases.len());
        Benchmark {
            traces: cases.len(),
            location,
            joint,
            category_f1,
            macro_f1,
            location_mean: mean_of(|case| case.location.recall()),
            joint_mean: mean_of(|case| case.joint.recall()),
            location_precision_mean: mean_of(|case| case.location.precision()),
            joint_precision_mean: mean_of(|case| case.joint.precision()),
            intervals: Intervals::from_cases(cases),
            categories: rows.map(row).collect(),
            impacts: impacts.into_iter().filter(|row| row.errors > 0).collect(),
        }
    }
}

fn mean(sum: f64, count: usize) -> f64 {
    sum / count.max(1) as f64
}

/// Tallies of spans, and of spans with categories.
fn totals<'a>(cases: impl Iterator<Item = &'a TraceErrors> + Clone) -> (PredictionTally, PredictionTally) {
    (cases.clone().map(|case| case.location).sum(), cases.map(|case| case.joint).sum())
}

/// For each category, the traces that contain it.
fn presence<'a>(cases: impl IntoIterator<Item = &'a TraceErrors>) -> [PredictionTally; Category::ALL.len()] {
    let mut tallies = [PredictionTally::default(); Category::ALL.len()];
    for case in cases {
        for (tally, category) in tallies.iter_mut().zip(Category::ALL) {
            let (gold, predicted) =
                (case.gold_categories.contains(&category), case.predicted_categories.contains(&category));
            tally.hits += usize::from(gold && predicted);
            tally.predicted += usize::from(predicted);
            tally.gold += usize::from(gold);
        }
    }
    tallies
}

/// Weighted and macro F1.
fn category_f1_scores(presence: &[PredictionTally]) -> (f64, f64) {
    let support: usize = presence.iter().map(|t| t.gold).sum();
    let weighted: f64 = presence.iter().map(|t| t.gold as f64 * t.f1()).sum();
    let f1_scores: Vec<f64> =
        presence.iter().filter(|t| t.gold + t.predicted > 0).map(PredictionTally::f1).collect();
    (weighted / support.max(1) as f64, mean(f1_scores.iter().sum(), f1_scores.len()))
}

/// The (trace, span) pairs of a category.
fn joint_tally<'a>(cases: impl IntoIterator<Item = &'a TraceErrors>, category: Category) -> PredictionTally {
    let label = CategoryLabel::Known(category);
    let with_label = |pairs: &BTreeSet<Joint>| pairs.iter().filter(|(_, l)| *l == label).cloned().collect();
    let counted = cases.into_iter().map(|case| {
        let (gold, predicted): (BTreeSet<Joint>, BTreeSet<Joint>) =
            (with_label(&case.gold), with_label(&case.predicted));
        tally(&gold, &predicted)
    });
    counted.sum()
}

fn count_impacts(case: &TraceErrors, impacts: &mut [ImpactRow; 4]) {
    for ((span, label), impact) in &case.errors {
        let row = &mut impacts[impact_index(impact)];
        row.errors += 1;
        row.named += usize::from(case.predicted.iter().any(|(_, l)| l == label));
        row.located += usize::from(case.predicted.iter().any(|(s, _)| s == span));
        row.joint += usize::from(case.predicted.contains(&(span.clone(), label.clone())));
    }
}

impl ImpactRow {
    /// Shares of the errors that were named, located, and both.
    pub fn shares(&self) -> [f64; 3] {
        [self.named, self.located, self.joint].map(|predicted| share(predicted, self.errors))
    }
}

/// 95 % intervals of the main figures, by resampling traces.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Intervals {
    pub location: ShareIntervals,
    pub joint: ShareIntervals,
    #[serde(rename = "category_f1_weighted")]
    pub category_f1: Option<Interval>,
}

impl Intervals {
    fn from_cases(cases: &[TraceErrors]) -> Intervals {
        let [lp, lr, lf, jp, jr, jf, category_f1] = bootstrap::intervals(cases.len(), |indexes| {
            let sample = indexes.iter().filter_map(|&i| cases.get(i));
            let (location, joint) = totals(sample.clone());
            let [l, j] = [location, joint].map(|t| t.shares());
            [l[0], l[1], l[2], j[0], j[1], j[2], category_f1_scores(&presence(sample)).0]
        });
        Intervals { location: [lp, lr, lf].into(), joint: [jp, jr, jf].into(), category_f1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(category: &str, location: &str, impact: &str) -> Annotation {
        Annotation {
            category: category.to_owned(),
            location: location.to_owned(),
            impact: impact.to_owned(),
            ..Annotation::default()
        }
    }

    /// Two traces by hand: one with three marks on two spans, one with one mark and no prediction.
    fn two_traces() -> Vec<TraceErrors> {
        let gold = [
            error("Formatting Errors", "a", "LOW"),
            error("Goal Deviation", "a", "HIGH"),
            error("Goal Deviation", "b", "HIGH"),
        ];
        let predicted = [
            error("formatting", "a", ""),
            error("Formatting Errors", "a", ""),
            error("Goal Deviation", "c", ""),
            error("Hallucination", "b", ""),
        ];
        vec![
            TraceErrors::new(&gold, &predicted),
            TraceErrors::new(&[error("Timeout Issues", "z", "odd")], &[]),
        ]
    }

    #[test]
    fn two_traces_counted_by_hand() {
        let cases = two_traces();
        let b = Benchmark::from_cases(&cases);
        assert_eq!(b.traces, 2);
        assert_eq!(b.location, PredictionTally { hits: 2, predicted: 3, gold: 3 });
        assert_eq!(b.joint, PredictionTally { hits: 1, predicted: 3, gold: 4 });
        assert_eq!(b.location_mean, 0.5);
        assert!((b.joint_mean - 1.0 / 6.0).abs() < 1e-12);
        // Two of three spans and one of three pairs in the one trace, none in the other.
        assert!((b.location_precision_mean - 1.0 / 3.0).abs() < 1e-12);
        assert!((b.joint_precision_mean - 1.0 / 6.0).abs() < 1e-12);
        // Formatting and goal deviation are predicted in the one trace with each, the timeout is not.
        assert!((b.category_f1 - 2.0 / 3.0).abs() < 1e-12);
        assert!((b.macro_f1 - 2.0 / 3.0).abs() < 1e-12);
        let goal = b.categories.iter().find(|r| r.category == Category::GoalDeviation).unwrap();
        assert_eq!(goal.joint, PredictionTally { hits: 0, predicted: 1, gold: 2 });
        let row = |impact, [errors, named, located, joint]: [usize; 4]| ImpactRow {
            impact,
            errors,
            named,
            located,
            joint,
        };
        let rows = [row("LOW", [1, 1, 1, 1]), row("HIGH", [2, 2, 2, 0]), row("other", [1, 0, 0, 0])];
        assert_eq!(b.impacts, rows);
    }

    #[test]
    fn figures_of_no_trace_are_zero() {
        let b = Benchmark::from_cases(&[]);
        assert_eq!((b.traces, b.location_mean, b.category_f1, b.macro_f1), (0, 0.0, 0.0, 0.0));
        assert_eq!(b.intervals.category_f1, None);
    }

    #[test]
    fn intervals_contain_the_figure() {
        let cases: Vec<TraceErrors> = (0..10).flat_map(|_| two_traces()).collect();
        let b = Benchmark::from_cases(&cases);
        let Interval { low, high } = b.intervals.location.f1.unwrap();
        assert!(low < b.location.f1() && b.location.f1() < high, "{low} {} {high}", b.location.f1());
    }
}
