//! Each metric's verdicts and scores compared with labels.
//!
//! In: evaluated traces and their labels. Out: for each metric the confusion matrix of its failures ("failing" is
//! the positive class) and the agreement of its scores with the labelled scores.
//!
//! A case is a measurement. It should fail if a label in its reach names an error that the metric detects. The
//! reach of a model call is the call; of a tool call, that call and the model call that requested it, because
//! annotators mark either (001, appendix B.1). A metric of an agent's run reaches all spans beneath the agent,
//! one of an agent by itself that agent's spans, one of the whole trace every span
//! ([`verdict_eval::metrics::covers`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use verdict_eval::metrics::{self, BEST_SCORE, CHECKLIST};
use verdict_eval::metrics::{About, Measurement, Settings, Value};
use verdict_eval::trace::{Agent, AgentTrace, SpanView, Text};
use verdict_otlp::trace::{Idx, Kind};

use super::agreement::Agreement;
use super::bootstrap::{self, ShareIntervals};
use super::counts::{Confusion, PredictionTally};
use super::labels::{SpanLabel, TraceLabels};
use super::trail::Annotation;
use super::trail::placement::{self, Predicted};

/// A measurement with a value, without its trace.
#[derive(Clone, PartialEq, Debug)]
pub struct MetricResult {
    pub metric: &'static str,
    /// The span that the measurement is written on, in hex.
    pub span: String,
    /// The labelled spans that the measurement is about, in hex.
    pub reach: Vec<String>,
    pub passed: bool,
    /// `None` for labels and quantities.
    pub score: Option<f64>,
}

/// The parts of an evaluated trace that are compared with labels.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ScoredTrace {
    pub id: String,
    pub passed: Option<bool>,
    /// Whether the checklist of the outermost task is fulfilled.
    pub completed: Option<bool>,
    /// The outermost task and its final answer, of a trace with a labelled outcome; `None` if
    /// judges may not see them.
    pub task: Option<String>,
    pub answer: Option<String>,
    /// The services from which `task` and `answer` may come.
    pub services: Arc<[Text]>,
    /// Every measurement with a value.
    pub results: Vec<MetricResult>,
    /// The predicted findings as annotations.
    pub errors: Vec<Annotation>,
    /// Every model and tool call, in hex, with the score of its worst finding.
    pub calls: Vec<(String, Option<f64>)>,
}

impl ScoredTrace {
    pub fn new(
        trace: &AgentTrace,
        measurements: &[Measurement],
        passed: Option<bool>,
        labels: &TraceLabels,
        settings: &Settings,
        predicted: Predicted,
    ) -> ScoredTrace {
        let reach = Reach::new(trace, labels, settings);
        let hex = |i: Idx| trace.tree.spans.get(i).map(|span| span.id.to_string());
        let results = measurements.iter().filter_map(|m| {
            let measured = m.outcome.as_ref().ok()?;
            Some(MetricResult {
                metric: m.metric,
                span: hex(m.at)?,
                reach: reach.span_ids(m),
                passed: measured.passed,
                score: match measured.value {
                    Value::Score(score) => Some(score),
                    _ => None,
                },
            })
        });
        let all_findings = placement::located_findings(trace, measurements, Predicted::ALL);
        let predicted_findings = placement::located_findings(trace, measurements, predicted);
        let call = |(i, view): (Idx, &SpanView)| {
            let scores = all_findings.iter().filter(|f| f.at == i).map(|f| f.finding.score);
            matches!(view.kind, Kind::Llm | Kind::Tool).then(|| Some((hex(i)?, scores.reduce(f64::min))))?
        };
        let asker = &settings.asker;
        let is_shown = |agent: &&Agent| labels.expected.is_some() && !asker.withholds_run(trace, agent);
        let agent = trace.agents.first().filter(is_shown);
        let text = |text: &Option<Text>| text.as_ref().map(|text| text.to_string());
        let completed = measurements.iter().find(|m| m.metric == CHECKLIST && m.outcome.is_ok());
        ScoredTrace {
            id: trace.tree.id.to_string(),
            passed,
            completed: completed.and_then(|m| Some(m.outcome.as_ref().ok()?.passed)),
            task: agent.and_then(|agent| text(&agent.task)),
            answer: agent.and_then(|agent| text(&agent.answer)),
            services: agent.map_or_else(Arc::default, |_| verdict_eval::services(trace)),
            results: results.collect(),
            errors: predicted_findings.iter().map(|f| f.annotation(trace)).collect(),
            calls: trace.views.iter().enumerate().filter_map(call).collect(),
        }
    }
}

/// The labelled spans in the reach of measurements.
struct Reach<'a> {
    trace: &'a AgentTrace,
    settings: &'a Settings,
    /// The model call that requested each tool call.
    requester: BTreeMap<Idx, Idx>,
    labelled: Vec<(Idx, String)>,
}

impl<'a> Reach<'a> {
    fn new(trace: &'a AgentTrace, labels: &TraceLabels, settings: &'a Settings) -> Reach<'a> {
        let names: BTreeSet<&str> = labels.spans.iter().map(|label| label.span_id.as_str()).collect();
        let ids = trace.tree.spans.iter().map(|span| span.id.to_string()).enumerate();
        Reach {
            trace,
            settings,
            requester: trace.calls.iter().filter_map(|call| Some((call.tool?, call.llm?))).collect(),
            labelled: ids.filter(|(_, id)| names.contains(id.as_str())).collect(),
        }
    }

    fn span_ids(&self, m: &Measurement) -> Vec<String> {
        let kind = self.trace.views.get(m.at).map(|view| view.kind);
        let run_subjects = [About::Agent, About::Run, About::Plans, About::Segments];
        let is_about_run = metrics::spec(m.metric).is_some_and(|row| run_subjects.contains(&row.about));
        let is_in_reach = |other: Idx| match kind {
            Some(Kind::Llm) if !is_about_run => other == m.at,
            Some(Kind::Tool) if !is_about_run => other == m.at || self.requester.get(&m.at) == Some(&other),
            _ => metrics::covers(self.trace, self.settings, m.metric, m.at, other),
        };
        self.labelled.iter().filter(|(i, _)| is_in_reach(*i)).map(|(_, id)| id.clone()).collect()
    }
}

/// A measurement with the labelled result.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LabelledMeasurement {
    /// Index of the trace; intervals resample whole traces.
    pub trace: usize,
    pub failed: bool,
    /// `None` for labels and quantities.
    pub score: Option<f64>,
    /// Whether the measurement should fail, by the labels.
    pub should_fail: bool,
}

/// The labelled measurements of each metric, over all traces; a threshold is fitted to these points.
pub fn labelled_measurements(
    pairs: &[(&ScoredTrace, &TraceLabels)],
) -> BTreeMap<&'static str, Vec<LabelledMeasurement>> {
    let mut out: BTreeMap<&'static str, Vec<LabelledMeasurement>> = BTreeMap::new();
    for (trace, (judged, labels)) in pairs.iter().enumerate() {
        for result in &judged.results {
            let reach = result.reach.iter().map(String::as_str);
            let Some(should_fail) = labels.fails(result.metric, reach) else { continue };
            let point =
                LabelledMeasurement { trace, failed: !result.passed, score: result.score, should_fail };
            out.entry(result.metric).or_default().push(point);
        }
    }
    out
}

/// Every model and tool call as one measurement with the score of its worst finding of any metric.
pub fn call_measurements(pairs: &[(&ScoredTrace, &TraceLabels)]) -> Vec<LabelledMeasurement> {
    let mut out = Vec::new();
    for (trace, (judged, labels)) in pairs.iter().enumerate() {
        let failing_spans: BTreeSet<String> =
            labels.annotations().into_iter().map(|annotation| annotation.location).collect();
        for (span, score) in judged.calls.iter().filter(|_| !labels.partial) {
            let (failed, score) = (score.is_some(), Some(score.unwrap_or(BEST_SCORE)));
            out.push(LabelledMeasurement { trace, failed, score, should_fail: failing_spans.contains(span) });
        }
    }
    out
}

/// The confusion matrix of `points`.
pub fn confusion<'a>(points: impl IntoIterator<Item = &'a LabelledMeasurement>) -> Confusion {
    let mut confusion = Confusion::default();
    points.into_iter().for_each(|p| confusion.count(p.failed, p.should_fail));
    confusion
}

/// 95 % intervals of precision, recall and F1 of `points`, by resampling traces.
pub fn intervals(points: &[LabelledMeasurement]) -> ShareIntervals {
    let mut by_trace: BTreeMap<usize, Vec<LabelledMeasurement>> = BTreeMap::new();
    points.iter().for_each(|p| by_trace.entry(p.trace).or_default().push(*p));
    let counted: Vec<PredictionTally> = by_trace.values().map(|points| confusion(points).tally()).collect();
    bootstrap::intervals(counted.len(), |choice| {
        choice.iter().filter_map(|&i| counted.get(i).copied()).sum::<PredictionTally>().shares()
    })
    .into()
}

/// Agreement of each metric's scores with the labelled scores. A score of the whole trace is compared with
/// the metric's measurement nearest to the root.
pub fn agreements<'a>(pairs: &[(&'a ScoredTrace, &'a TraceLabels)]) -> BTreeMap<String, Agreement> {
    let mut scored: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for (judged, labels) in pairs {
        let trace_scores = labels.scores.iter().map(|(metric, theirs)| (metric, None, *theirs));
        let span_score =
            |label: &'a SpanLabel| Some((label.metric.as_ref()?, Some(&label.span_id), label.score?));
        for (metric, span, theirs) in trace_scores.chain(labels.spans.iter().filter_map(span_score)) {
            let is_match = |s: &&MetricResult| s.metric == metric && span.is_none_or(|id| s.span == *id);
            let ours = judged.results.iter().find(is_match).and_then(|s| s.score);
            scored.entry(metric.clone()).or_default().extend(ours.map(|ours| (ours, theirs)));
        }
    }
    let metric_agreement = |(metric, pairs): (String, Vec<(f64, f64)>)| {
        Agreement::from_pairs(&pairs, metrics::spec(&metric)?.scale.range()?)
            .map(|agreement| (metric, agreement))
    };
    scored.into_iter().filter_map(metric_agreement).collect()
}
