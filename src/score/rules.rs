//! The precision of each rule on labelled sets.
//!
//! In: evaluated traces with their labels, by set. Out: for each rule and set how often it fired and how often
//! it was right, with intervals. Only findings of failing measurements count, because only these are reported to a
//! user. A rule fires once at a span, however many findings it has there.
//!
//! A set with labels of spans is labelled by span: a firing is right if the span that it is on, the span in
//! which it originated, or the model call that requested the tool call is labelled as failing; on an agent's
//! span also if a span that it cites is, or, where the finding cites none, any span below it. Another set is labelled
//! by run: a firing is right if the run failed. In a set of failed runs only, every firing would be right, so such a
//! set is not counted.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use verdict_eval::EvaluatedTrace;
use verdict_eval::metrics::Measurement;
use verdict_eval::metrics::{estimate, estimate_from};
use verdict_eval::trace::{AgentTrace, Kind};
use verdict_otlp::trace::{Idx, SpanId};

use super::bootstrap::Interval;
use super::labels::{Expected, TraceLabels};

/// Counts of a rule's firings: all of them, and those that were right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Firings {
    pub right: u32,
    pub fired: u32,
}

impl Firings {
    fn add(&mut self, right: bool) {
        self.right += u32::from(right);
        self.fired += 1;
    }

    pub fn precision(self) -> Option<f64> {
        (self.fired > 0).then(|| f64::from(self.right) / f64::from(self.fired))
    }

    /// The 95 % Wilson score interval of the precision.
    pub fn interval(self) -> Option<Interval> {
        let (p, n) = (self.precision()?, f64::from(self.fired));
        // The 97.5 % quantile of the normal distribution.
        let z = 1.96;
        let centre = p + z * z / (2.0 * n);
        let half = z * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
        let scale = 1.0 + z * z / n;
        Some(Interval { low: ((centre - half) / scale).max(0.0), high: ((centre + half) / scale).min(1.0) })
    }
}

/// The subject of the labels of a set: spans, or whole runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LabelledBy {
    Span,
    Run,
    /// The runs have one outcome, or no label at all.
    #[default]
    Nothing,
}

/// The firings on one set, collected trace by trace.
#[derive(Debug, Default)]
pub struct LabelledSet {
    spans: BTreeMap<String, Firings>,
    runs: BTreeMap<String, Firings>,
    has_span_labels: bool,
    outcomes: BTreeSet<bool>,
}

impl LabelledSet {
    pub fn add(&mut self, evaluated: &EvaluatedTrace, labels: &TraceLabels) {
        let EvaluatedTrace { trace, measurements, .. } = evaluated;
        self.has_span_labels |= !labels.spans.is_empty();
        let failed = labels.expected.map(|expected| expected == Expected::Fail);
        self.outcomes.extend(failed);
        for (rule, fault_places) in firings(trace, measurements) {
            if let Some(right) = is_right(trace, labels, &fault_places) {
                self.spans.entry(rule.clone()).or_default().add(right);
            }
            if let Some(failed) = failed {
                self.runs.entry(rule).or_default().add(failed);
            }
        }
    }

    pub fn labelled_by(&self) -> LabelledBy {
        match (self.has_span_labels, self.outcomes.len()) {
            (true, _) => LabelledBy::Span,
            (false, 2) => LabelledBy::Run,
            _ => LabelledBy::Nothing,
        }
    }

    pub fn firings(&self) -> &BTreeMap<String, Firings> {
        const NO_FIRINGS: &BTreeMap<String, Firings> = &BTreeMap::new();
        match self.labelled_by() {
            LabelledBy::Span => &self.spans,
            LabelledBy::Run => &self.runs,
            LabelledBy::Nothing => NO_FIRINGS,
        }
    }

    /// The firings of a rule, or of a defect without the firings of its rules, which have rows of their own.
    fn without_rules(&self, rule: &str) -> Firings {
        let firings = self.firings();
        let is_rule_of_defect =
            |name: &str| name.strip_prefix(rule).is_some_and(|rest| rest.starts_with('.'));
        let total = firings.get(rule).copied().unwrap_or_default();
        firings.iter().filter(|(name, _)| is_rule_of_defect(name)).fold(total, |sum, (_, firings)| {
            let fired = sum.fired.saturating_sub(firings.fired);
            Firings { right: sum.right.saturating_sub(firings.right).min(fired), fired }
        })
    }
}

/// The spans at which a fault may be labelled.
#[derive(Default)]
struct FaultPlaces {
    spans: BTreeSet<Idx>,
    /// Whether the label may be on any span beneath these: a finding on an agent that cites no span.
    any_descendant: bool,
}

/// For each rule and span with failing findings, the spans at which the fault may be labelled. The defect of rules that
/// share it has entries of its own.
fn firings(trace: &AgentTrace, measurements: &[Measurement]) -> Vec<(String, FaultPlaces)> {
    let mut requested_by: BTreeMap<Idx, Idx> = BTreeMap::new();
    requested_by.extend(trace.calls.iter().filter_map(|call| Some((call.tool?, call.llm?))));
    let mut out: BTreeMap<(String, Idx), FaultPlaces> = BTreeMap::new();
    let index = |id: &SpanId| trace.tree.spans.iter().position(|span| span.id == *id);
    for m in measurements {
        let Some(failing) = m.outcome.as_ref().ok().filter(|measured| !measured.passed) else { continue };
        for finding in &failing.findings {
            let Some(rule) = finding.rule_name().filter(|_| !finding.is_note()) else { continue };
            let is_agent = trace.views.get(m.at).is_some_and(|view| view.kind == Kind::Agent);
            let cited = finding.cited.iter().filter_map(index).filter(|at| *at != m.at);
            let cited_or_origin: Vec<Idx> = match finding.origin.filter(|at| *at != m.at) {
                None if is_agent => cited.collect(),
                origin => origin.into_iter().collect(),
            };
            let defect = rule.split_once('.').map(|(defect, _)| defect.to_owned());
            for name in defect.into_iter().chain([rule]) {
                let fault_places = out.entry((name, m.at)).or_default();
                fault_places.any_descendant |= is_agent && cited_or_origin.is_empty();
                fault_places.spans.extend([m.at].into_iter().chain(cited_or_origin.iter().copied()));
                fault_places.spans.extend(requested_by.get(&m.at));
            }
        }
    }
    out.into_iter().map(|((rule, _), fault_places)| (rule, fault_places)).collect()
}

/// Whether one of the spans is labelled as failing; `None` if no span was examined.
fn is_right(trace: &AgentTrace, labels: &TraceLabels, fault_places: &FaultPlaces) -> Option<bool> {
    let mut examined = !labels.partial;
    let mut stack: Vec<Idx> = fault_places.spans.iter().copied().collect();
    while let Some(i) = stack.pop() {
        let id = trace.tree.spans.get(i).map(|span| span.id.to_string()).unwrap_or_default();
        match labels.spans.iter().find(|label| label.span_id == id).map(|label| label.expected) {
            Some(Expected::Fail) => return Some(true),
            Some(Expected::Pass) => examined = true,
            None => {}
        }
        if fault_places.any_descendant {
            stack.extend(trace.tree.children(i));
        }
    }
    examined.then_some(false)
}

/// The table of rules over several sets.
#[derive(Debug, Serialize)]
pub struct RuleTable {
    pub sets: Vec<(String, LabelledBy)>,
    pub rules: BTreeMap<String, RuleRow>,
    /// How well confidences predict the firings of each set.
    pub calibration: Vec<Calibration>,
}

/// The figures of one rule.
#[derive(Debug, Default, Serialize)]
pub struct RuleRow {
    /// The firings on each set.
    pub sets: BTreeMap<String, Firings>,
    pub at_spans: Firings,
    pub in_runs: Firings,
    pub precision: Option<f64>,
    pub interval: Option<Interval>,
    /// The confidence that findings of the rule carry.
    pub confidence: f64,
    /// The mean confidence of the rule's firings, where the confidence on each set is estimated from the other sets.
    pub left_out: Option<f64>,
}

impl RuleRow {
    /// The firings on all sets.
    fn all(&self) -> Firings {
        Firings {
            right: self.at_spans.right + self.in_runs.right,
            fired: self.at_spans.fired + self.in_runs.fired,
        }
    }
}

/// How well confidences predict whether the firings of a set are right.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Calibration {
    pub set: String,
    pub firings: Firings,
    /// With confidences estimated from all sets.
    pub all_sets: Option<Prediction>,
    /// With confidences estimated from the other sets.
    pub left_out: Option<Prediction>,
}

/// Confidences compared with the firings that carry them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Prediction {
    pub mean_confidence: f64,
    /// The mean squared difference of confidence and outcome (Brier score): 0 is perfect; a constant confidence of 0.5
    /// has 0.25.
    pub brier: f64,
}

/// Sums over firings.
#[derive(Clone, Copy, Default)]
struct PredictionSum {
    fired: f64,
    confidence: f64,
    squares: f64,
}

impl PredictionSum {
    fn add(&mut self, confidence: f64, Firings { right, fired }: Firings) {
        let (right, wrong) = (f64::from(right), f64::from(fired - right));
        self.fired += right + wrong;
        self.confidence += (right + wrong) * confidence;
        self.squares += right * (1.0 - confidence).powi(2) + wrong * confidence.powi(2);
    }

    fn mean(self) -> Option<Prediction> {
        (self.fired > 0.0).then(|| Prediction {
            mean_confidence: self.confidence / self.fired,
            brier: self.squares / self.fired,
        })
    }
}

impl RuleTable {
    pub fn new(sets: &[(String, LabelledSet)]) -> RuleTable {
        let mut table = RuleTable::estimated(sets.iter());
        let mut by_rule: BTreeMap<String, PredictionSum> = BTreeMap::new();
        for (name, set) in sets {
            let others = RuleTable::without(sets, name);
            let [mut all_sets, mut left_out] = [PredictionSum::default(); 2];
            let mut sum = Firings::default();
            for (rule, firings) in set.firings() {
                let confidence = others.confidence(rule);
                by_rule.entry(rule.clone()).or_default().add(confidence, *firings);
                let own_firings = set.without_rules(rule);
                all_sets.add(table.confidence(rule), own_firings);
                left_out.add(confidence, own_firings);
                sum.right += own_firings.right;
                sum.fired += own_firings.fired;
            }
            table.calibration.push(Calibration {
                set: name.clone(),
                firings: sum,
                all_sets: all_sets.mean(),
                left_out: left_out.mean(),
            });
        }
        for (rule, row) in &mut table.rules {
            let mean = by_rule.get(rule).and_then(|sum| sum.mean());
            row.left_out = mean.map(|prediction| prediction.mean_confidence);
        }
        table
    }

    /// The estimates from all sets but one.
    pub fn without(sets: &[(String, LabelledSet)], left_out: &str) -> RuleTable {
        RuleTable::estimated(sets.iter().filter(|(name, _)| name != left_out))
    }

    /// The confidence of a rule's findings; if the rule never fired, the confidence of its defect.
    pub fn confidence(&self, rule: &str) -> f64 {
        let confidence = |name: &str| self.rules.get(name).map(|row| row.confidence);
        let shared_confidence = || rule.split_once('.').and_then(|(defect, _)| confidence(defect));
        confidence(rule).or_else(shared_confidence).unwrap_or_else(|| estimate(0, 0))
    }

    fn estimated<'s>(sets: impl Iterator<Item = &'s (String, LabelledSet)>) -> RuleTable {
        let mut rules: BTreeMap<String, RuleRow> = BTreeMap::new();
        let mut names = Vec::new();
        for (name, set) in sets {
            names.push((name.clone(), set.labelled_by()));
            for (rule, firings) in set.firings() {
                let row = rules.entry(rule.clone()).or_default();
                row.sets.insert(name.clone(), *firings);
                let sum = match set.labelled_by() {
                    LabelledBy::Span => &mut row.at_spans,
                    _ => &mut row.in_runs,
                };
                sum.right += firings.right;
                sum.fired += firings.fired;
            }
        }
        for row in rules.values_mut() {
            let all = row.all();
            (row.precision, row.interval) = (all.precision(), all.interval());
            row.confidence = estimate(all.right, all.fired);
        }
        let by_defect: BTreeMap<String, f64> =
            rules.iter().map(|(rule, row)| (rule.clone(), row.confidence)).collect();
        for (rule, row) in &mut rules {
            let defect = rule.split_once('.').and_then(|(defect, _)| by_defect.get(defect));
            if let Some(prior) = defect {
                let all = row.all();
                row.confidence = estimate_from(*prior, all.right, all.fired);
            }
        }
        RuleTable { sets: names, rules, calibration: Vec::new() }
    }

    /// The counts in the form of the evaluator's `confidence.tsv`.
    pub fn tsv(&self) -> String {
        let mut out = "rule\tright_at_spans\tfired_at_spans\tright_in_runs\tfired_in_runs\n".to_owned();
        for (rule, RuleRow { at_spans, in_runs, .. }) in &self.rules {
            let counts = [at_spans.right, at_spans.fired, in_runs.right, in_runs.fired];
            let counts: Vec<String> = counts.iter().map(u32::to_string).collect();
            out.push_str(&format!("{rule}\t{}\n", counts.join("\t")));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_is_wilsons() {
        // Wilson (1927): 8 of 10 is 0.490 to 0.943.
        let Interval { low, high } = Firings { right: 8, fired: 10 }.interval().unwrap();
        assert!((low - 0.490).abs() < 1e-3 && (high - 0.943).abs() < 1e-3, "{low} {high}");
        assert_eq!(Firings::default().interval(), None);
    }

    #[test]
    fn sets_labelled_by_span_and_by_run_are_summed_apart() {
        let set = |spans: Option<Firings>, runs: Option<Firings>| LabelledSet {
            has_span_labels: spans.is_some(),
            spans: spans.map(|firings| ("GiveUp".to_owned(), firings)).into_iter().collect(),
            runs: runs.map(|firings| ("GiveUp".to_owned(), firings)).into_iter().collect(),
            outcomes: BTreeSet::from([true, false]),
        };
        let by_span = set(Some(Firings { right: 1, fired: 2 }), Some(Firings { right: 9, fired: 9 }));
        let by_run = set(None, Some(Firings { right: 3, fired: 4 }));
        let failed_only = LabelledSet {
            outcomes: BTreeSet::from([true]),
            ..set(None, Some(Firings { right: 7, fired: 7 }))
        };
        let named = [("a", by_span), ("b", by_run), ("c", failed_only)].map(|(n, set)| (n.to_owned(), set));
        let table = RuleTable::new(&named);
        let row = &table.rules["GiveUp"];
        assert_eq!(
            (row.at_spans, row.in_runs),
            (Firings { right: 1, fired: 2 }, Firings { right: 3, fired: 4 })
        );
        assert_eq!(row.precision, Some(4.0 / 6.0));
        assert_eq!(row.confidence, 5.0 / 8.0);
        assert_eq!(table.tsv().lines().last(), Some("GiveUp\t1\t2\t3\t4"));
        assert_eq!(table.sets[2].1, LabelledBy::Nothing);
    }

    #[test]
    fn confidence_of_a_set_that_is_left_out_is_that_of_the_others() {
        let set = |name: &str, firings: &[(&str, u32, u32)]| {
            let firings = firings
                .iter()
                .map(|(rule, right, fired)| ((*rule).to_owned(), Firings { right: *right, fired: *fired }));
            let set =
                LabelledSet { has_span_labels: true, spans: firings.collect(), ..LabelledSet::default() };
            (name.to_owned(), set)
        };
        let sets = [
            set("a", &[("GiveUp", 8, 8)]),
            set("b", &[("GiveUp", 0, 2), ("Refusal", 2, 2), ("Refusal.polite", 2, 2)]),
        ];
        let table = RuleTable::new(&sets);
        // From `b` alone 1/4, for eight firings of `a`; from `a` alone 9/10, for two of `b`.
        let give_up = &table.rules["GiveUp"];
        assert!((give_up.left_out.unwrap() - (8.0 * 0.25 + 2.0 * 0.9) / 10.0).abs() < 1e-9);
        let Calibration { firings, all_sets, left_out, .. } = &table.calibration[0];
        assert_eq!(*firings, Firings { right: 8, fired: 8 });
        assert!((all_sets.unwrap().brier - 0.25_f64.powi(2)).abs() < 1e-9, "9 of 12");
        assert!((left_out.unwrap().brier - 0.75_f64.powi(2)).abs() < 1e-9);
        // The rule and its defect fired together: counted once.
        assert_eq!(table.calibration[1].firings, Firings { right: 2, fired: 4 });
        let others = RuleTable::without(&sets, "b");
        assert_eq!((others.confidence("Refusal.polite"), others.confidence("GiveUp.late")), (0.5, 0.9));
    }
}
