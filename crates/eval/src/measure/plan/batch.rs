//! Tables over many plans (004, tables 1 and 4 to 22, 25).
//!
//! In: rated plans, before and after the improvement loop if both ratings are known, and labels by people. Out: shares
//! of the tiers, for all plans and by steps and hops of the reference, by kind of query and by planner; means of the
//! metrics; agreement with people on tiers and on tags of steps.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::improve::Tag;
use super::part::PartValues;
use super::reference::Rating;
use super::shape::Shape;
use crate::measure::metric_names::PlanPart;

/// One plan of a batch.
#[derive(Clone, Debug, Default)]
pub struct BatchPlan {
    /// The kinds of the query, such as `simple` or `objective`.
    pub kinds: Vec<String>,
    /// The name of the planner.
    pub planner: Option<String>,
    /// The shape of the reference plan, if there is one.
    pub reference: Option<Shape>,
    /// The tier of the plan before it was improved.
    pub before: Option<Rating>,
    /// The tier of the plan.
    pub rating: Option<Rating>,
    /// The number of pairs of steps for which it is undecided whether they ask for the same.
    pub unsure: usize,
    pub values: PartValues,
    pub score: Option<f64>,
    /// The tier that people gave the plan.
    pub people: Option<Rating>,
    /// Tags of steps, by people and by the judge.
    pub tags: Vec<StepTags>,
}

/// The tags of one step.
#[derive(Clone, Debug, Default)]
pub struct StepTags {
    pub people: BTreeSet<Tag>,
    pub judge: BTreeSet<Tag>,
}

/// The tables over a batch of plans.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct BatchReport {
    /// The number of plans.
    pub plans: usize,
    /// The number of plans without a tier, since they have no reference.
    pub unrated: usize,
    /// The number of plans with pairs of steps for which it is undecided whether they ask for the same.
    pub unsure: usize,
    /// All plans first, then the groups.
    pub tiers: Vec<TierGroup>,
    /// The mean of each metric and of `score` (0 to 100).
    pub means: Vec<MetricMean>,
    /// Agreement with people on tiers.
    pub rating_agreement: Option<LabelAgreement>,
    /// Agreement with people on tags of steps.
    pub tag_agreement: Option<LabelAgreement>,
}

/// The tiers of the plans of a group.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TierGroup {
    /// `all`, `steps`, `hops`, `kind` or `planner`.
    pub by: &'static str,
    pub group: String,
    /// The tiers before the improvement loop, of the plans whose earlier tier is known.
    pub before: Option<Tiers>,
    pub after: Tiers,
}

/// The numbers of plans in each tier, and shares from 0 to 1.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Tiers {
    pub plans: usize,
    pub counts: BTreeMap<Rating, usize>,
    /// Extremely or very good.
    pub a_plus: f64,
    /// Good or better.
    pub a: f64,
    /// Acceptable or better.
    pub b: f64,
}

/// The mean of a metric over the plans that have a value.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct MetricMean {
    pub metric: &'static str,
    /// The number of plans that have a value.
    pub plans: usize,
    pub mean: Option<f64>,
}

/// Agreement on labels; an item has one or several of them.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LabelAgreement {
    pub items: usize,
    pub labels: Vec<LabelRow>,
    /// Macro average over the labels for which the value is defined.
    pub precision: Option<f64>,
    pub recall: Option<f64>,
    pub f1: Option<f64>,
}

/// Agreement on one label.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LabelRow {
    pub label: &'static str,
    /// The number of items to which people gave the label.
    pub people: usize,
    /// The number of items to which the judge gave the label.
    pub judge: usize,
    /// The number of items to which both gave the label.
    pub overlap: usize,
    pub precision: Option<f64>,
    pub recall: Option<f64>,
    pub f1: Option<f64>,
}

impl LabelRow {
    fn new(label: &'static str, people: usize, judge: usize, overlap: usize) -> LabelRow {
        let share = |total: usize| (total > 0).then(|| overlap as f64 / total as f64);
        // 2 PR / (P + R); 0 for a label that only people or only the judge gave.
        let f1 = (people + judge > 0).then(|| 2.0 * overlap as f64 / (people + judge) as f64);
        LabelRow { label, people, judge, overlap, precision: share(judge), recall: share(people), f1 }
    }
}

impl LabelAgreement {
    fn from_rows(items: usize, labels: Vec<LabelRow>) -> Option<LabelAgreement> {
        let mean = |value: fn(&LabelRow) -> Option<f64>| mean(labels.iter().filter_map(value)).1;
        let (precision, recall, f1) = (mean(|l| l.precision), mean(|l| l.recall), mean(|l| l.f1));
        (items > 0).then_some(LabelAgreement { items, labels, precision, recall, f1 })
    }
}

impl Tiers {
    fn from_ratings(ratings: impl Iterator<Item = Rating>) -> Option<Tiers> {
        let mut counts: BTreeMap<Rating, usize> = Rating::ALL.iter().map(|rating| (*rating, 0)).collect();
        ratings.for_each(|rating| *counts.entry(rating).or_default() += 1);
        let plans: usize = counts.values().sum();
        let share_from = |lowest: Rating| {
            counts.range(lowest..).map(|(_, count)| count).sum::<usize>() as f64 / plans as f64
        };
        let (a_plus, a, b) =
            (share_from(Rating::VeryGood), share_from(Rating::Good), share_from(Rating::Acceptable));
        (plans > 0).then_some(Tiers { plans, counts, a_plus, a, b })
    }
}

/// The number of values and their mean.
fn mean(values: impl Iterator<Item = f64>) -> (usize, Option<f64>) {
    let (count, sum) = values.fold((0usize, 0.0), |(count, sum), value| (count + 1, sum + value));
    (count, (count > 0).then(|| sum / count as f64))
}

/// The paper's class of the number of steps.
fn step_class(shape: &Shape) -> String {
    match shape.steps {
        ..=4 => "1-4",
        5..=15 => "5-15",
        _ => "16+",
    }
    .to_owned()
}

/// The paper's class of the number of hops.
fn hop_class(shape: &Shape) -> String {
    if shape.hops < 3 { shape.hops.to_string() } else { "3+".to_owned() }
}

/// The tables over `plans`.
pub fn report(plans: &[BatchPlan]) -> BatchReport {
    let mut groups: BTreeMap<(usize, String), Vec<&BatchPlan>> = BTreeMap::new();
    let names = ["all", "steps", "hops", "kind", "planner"];
    for plan in plans {
        let mut add =
            |grouping: usize, group: String| groups.entry((grouping, group)).or_default().push(plan);
        add(0, "all".to_owned());
        if let Some(reference) = &plan.reference {
            add(1, step_class(reference));
            add(2, hop_class(reference));
        }
        plan.kinds.iter().for_each(|kind| add(3, kind.clone()));
        plan.planner.iter().for_each(|planner| add(4, planner.clone()));
    }
    let tiers = groups.into_iter().filter_map(|((grouping, group), plans)| {
        let after = Tiers::from_ratings(plans.iter().filter_map(|plan| plan.rating))?;
        let before = Tiers::from_ratings(plans.iter().filter_map(|plan| plan.before));
        Some(TierGroup { by: names[grouping], group, before, after })
    });
    let metric = |part: PlanPart| {
        let (count, mean) = mean(plans.iter().filter_map(|plan| plan.values[part as usize]));
        MetricMean { metric: part.name(), plans: count, mean }
    };
    let (scored, score) = mean(plans.iter().filter_map(|plan| plan.score));
    let score = MetricMean { metric: "score", plans: scored, mean: score };
    BatchReport {
        plans: plans.len(),
        unrated: plans.iter().filter(|plan| plan.rating.is_none()).count(),
        unsure: plans.iter().filter(|plan| plan.unsure > 0).count(),
        tiers: tiers.collect(),
        means: PlanPart::ALL.into_iter().map(metric).chain([score]).collect(),
        rating_agreement: rating_agreement(plans),
        tag_agreement: tag_agreement(plans),
    }
}

/// The agreement of people and judge on the ratings of plans.
fn rating_agreement(plans: &[BatchPlan]) -> Option<LabelAgreement> {
    let both: Vec<(Rating, Rating)> = plans.iter().filter_map(|plan| plan.people.zip(plan.rating)).collect();
    let row = |rating: &Rating| {
        let count = |predicate: &dyn Fn(&(Rating, Rating)) -> bool| {
            both.iter().filter(|pair| predicate(pair)).count()
        };
        let (people, judge) = (count(&|p| p.0 == *rating), count(&|p| p.1 == *rating));
        LabelRow::new(rating.as_str(), people, judge, count(&|p| p.0 == *rating && p.1 == *rating))
    };
    LabelAgreement::from_rows(both.len(), Rating::ALL.iter().map(row).collect())
}

/// The agreement of people and judge on the tags of steps.
fn tag_agreement(plans: &[BatchPlan]) -> Option<LabelAgreement> {
    let steps: Vec<&StepTags> = plans.iter().flat_map(|plan| &plan.tags).collect();
    let row = |tag: &Tag| {
        let count =
            |predicate: &dyn Fn(&StepTags) -> bool| steps.iter().filter(|step| predicate(step)).count();
        let (people, judge) = (count(&|s| s.people.contains(tag)), count(&|s| s.judge.contains(tag)));
        let overlap = count(&|s| s.people.contains(tag) && s.judge.contains(tag));
        LabelRow::new(tag.as_str(), people, judge, overlap)
    };
    LabelAgreement::from_rows(steps.len(), Tag::ALL.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounded(value: Option<f64>) -> f64 {
        (value.unwrap() * 100.0).round() / 100.0
    }

    #[test]
    fn agreement_on_labels_reproduces_table_22() {
        let counts = [(9, 9, 9), (7, 6, 6), (16, 15, 14), (19, 17, 16), (9, 9, 9), (12, 14, 11), (8, 10, 8)];
        let rows: Vec<LabelRow> = Rating::ALL
            .iter()
            .zip(counts)
            .map(|(rating, (people, judge, overlap))| LabelRow::new(rating.as_str(), people, judge, overlap))
            .collect();
        let f1: Vec<f64> = rows.iter().map(|row| rounded(row.f1)).collect();
        assert_eq!(f1, [1.0, 0.92, 0.90, 0.89, 1.0, 0.85, 0.89]);
        let all = LabelAgreement::from_rows(80, rows).unwrap();
        assert_eq!([all.precision, all.recall, all.f1].map(rounded), [0.92, 0.93, 0.92]);
    }

    #[test]
    fn tiers_are_counted_before_and_after_by_group() {
        let plan = |steps: usize, hops: usize, before: Option<Rating>, after: Rating, kind: &str| BatchPlan {
            kinds: vec![kind.to_owned()],
            reference: Some(Shape { steps, hops, width: 1 }),
            before,
            rating: Some(after),
            people: Some(Rating::Good),
            ..BatchPlan::default()
        };
        let plans = [
            plan(4, 1, Some(Rating::Bad), Rating::Good, "simple"),
            plan(5, 3, Some(Rating::Good), Rating::ExtremelyGood, "compound"),
            plan(2, 5, None, Rating::Acceptable, "simple"),
            BatchPlan::default(),
        ];
        let report = report(&plans);
        assert_eq!((report.plans, report.unrated), (4, 1));
        let group = |grouping: &str, name: &str| {
            report.tiers.iter().find(|g| g.by == grouping && g.group == name).unwrap()
        };
        let all = group("all", "all");
        assert_eq!((all.after.plans, all.after.a_plus, all.after.b), (3, 1.0 / 3.0, 1.0));
        let before = all.before.as_ref().unwrap();
        assert_eq!((before.plans, before.a, before.counts[&Rating::Bad]), (2, 0.5, 1));
        assert_eq!((group("steps", "1-4").after.plans, group("steps", "5-15").after.plans), (2, 1));
        assert_eq!((group("hops", "1").after.plans, group("hops", "3+").after.plans), (1, 2));
        assert_eq!((group("kind", "simple").after.plans, group("kind", "compound").after.a_plus), (2, 1.0));
        let agreement = report.rating_agreement.unwrap();
        let good = agreement.labels.iter().find(|row| row.label == "good").unwrap();
        assert_eq!((agreement.items, good.people, good.judge, good.overlap), (3, 3, 1, 1));
        assert_eq!((good.precision, good.recall, good.f1), (Some(1.0), Some(1.0 / 3.0), Some(0.5)));
        assert_eq!(report.tag_agreement, None);
    }

    #[test]
    fn tags_are_compared_by_step() {
        let step = |people: &[Tag], judge: &[Tag]| StepTags {
            people: people.iter().copied().collect(),
            judge: judge.iter().copied().collect(),
        };
        let tags = vec![
            step(&[Tag::NoChange], &[Tag::NoChange]),
            step(&[Tag::ComplexPrompt, Tag::IncorrectTool], &[Tag::ComplexPrompt]),
        ];
        let found = report(&[BatchPlan { tags, ..BatchPlan::default() }]).tag_agreement.unwrap();
        let row = |label: &str| found.labels.iter().find(|row| row.label == label).unwrap();
        assert_eq!(
            (found.items, row("COMPLEX_PROMPT").f1, row("INCORRECT_TOOL").f1),
            (2, Some(1.0), Some(0.0))
        );
        assert_eq!(row("REPEATED_DETAIL").f1, None, "nobody gave it");
        assert_eq!((found.precision, found.recall), (Some(1.0), Some(2.0 / 3.0)));
    }
}
