//! The predictions of this run: by metrics and their judges, or by a judge that reads whole traces.
//!
//! In: traces, the annotations, the judges of the options. Out: [`Predictions`], by the name of the
//! gold file, and the omitted traces and findings, by reason.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use verdict_eval::config::MetricsConfig;
use verdict_eval::metrics::{Measurement, Settings};
use verdict_eval::trace::Text;
use verdict_eval::{baseline, services};

use super::files::AnnotationFiles;
use super::report::LabelledTraces;
use crate::cli::command::CommandFailure;
use crate::cli::judge::run::JudgeRun;
use crate::cli::judge::session::JudgeSession;
use crate::cli::recording::{self, OtherFiles};
use crate::config::Config;
use crate::pipeline::offline::EvaluatedRecording;
use crate::score::coverage::Coverage;
use crate::score::labels::TraceLabels;
use crate::score::trail::adjudicate::{self, ErrorQuestion};
use crate::score::trail::baseline::read_prediction;
use crate::score::trail::caught::{ErrorCase, ErrorClaim, by_rules, claims};
use crate::score::trail::mapper::MapperCounts;
use crate::score::trail::placement::Predicted;
use crate::score::trail::ratings::{self, RootVerdicts};
use crate::score::trail::{Annotations, mapper, placement};

/// Predictions and root verdicts by the gold file's name.
#[derive(Default)]
pub(super) struct Predictions {
    pub(super) predicted: AnnotationFiles,
    pub(super) roots: BTreeMap<String, RootVerdicts>,
    pub(super) traces: LabelledTraces,
    pub(super) coverage: Coverage,
    pub(super) notes: Notes,
    /// The annotated errors with the metrics that caught them.
    pub(super) errors: Vec<ErrorCase>,
    /// The metrics that measured something.
    pub(super) measured: BTreeSet<&'static str>,
}

/// Predictions that were left out or decided by rules, with reasons.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes {
    /// Traces in the input without annotations.
    pub(super) not_annotated: usize,
    pub(super) mapper: Option<MapperCounts>,
    pub(super) baseline: Option<BaselineCounts>,
    pub(super) adjudicator: Option<AdjudicatorCounts>,
}

/// Results of a judge that reads whole traces, by trace.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub(super) struct BaselineCounts {
    pub(super) answered: usize,
    /// Names of the traces that do not fit the judge's context window; they are not scored.
    pub(super) excluded: BTreeSet<String>,
    /// Traces without an answer for another reason; scored as empty predictions.
    pub(super) unanswered: usize,
    /// Reported errors at spans that are not in the trace.
    pub(super) unknown_spans: usize,
}

/// Results of the questions about the findings that identify an error.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub(super) struct AdjudicatorCounts {
    pub(super) answered: usize,
    /// Errors without an answer, which the rules decided.
    pub(super) unanswered: usize,
    /// Findings that were not shown with an error: too many in one trace.
    #[serde(rename = "left")]
    pub(super) omitted: usize,
}

/// The settings and judges by which predictions are made.
pub(super) struct Predictor<'a> {
    pub(super) judges: &'a JudgeRun,
    pub(super) config: &'a Config,
    pub(super) gold: &'a AnnotationFiles,
    pub(super) predicted: Predicted,
    pub(super) mapper: Option<JudgeSession>,
    pub(super) adjudicator: Option<JudgeSession>,
    /// Whether trees for a report are collected.
    pub(super) report: bool,
}

impl Predictor<'_> {
    /// Evaluates every annotated trace.
    pub(super) fn evaluate(&self, traces: &[PathBuf]) -> Result<Predictions, CommandFailure> {
        let settings = settings(self.config)?;
        let mut predictions = Predictions::default();
        predictions.notes.mapper = self.mapper.as_ref().map(|_| MapperCounts::default());
        predictions.notes.adjudicator = self.adjudicator.as_ref().map(|_| AdjudicatorCounts::default());
        for_each_annotated_trace(
            (self.config, self.judges),
            self.gold,
            traces,
            &mut predictions,
            |predictions, name, evaluated| {
                self.add_trace(predictions, name, evaluated, &settings);
            },
        )?;
        Ok(predictions)
    }

    fn add_trace(
        &self,
        predictions: &mut Predictions,
        name: &str,
        evaluated: &EvaluatedRecording,
        settings: &Settings,
    ) {
        let evaluated_trace = &evaluated.trace;
        let (trace, measurements) = (&evaluated_trace.trace, &evaluated_trace.measurements);
        let services = services(trace);
        let mapped = self.mapper.as_ref().map(|judge| {
            let (mapped, counts) = map_categories(judge, &services, measurements);
            *predictions.notes.mapper.get_or_insert_default() += counts;
            mapped
        });
        let located =
            placement::located_findings(trace, mapped.as_deref().unwrap_or(measurements), self.predicted);
        let prediction = Annotations {
            trace: Some(trace.tree.id.to_string()),
            errors: located.iter().map(|f| f.annotation(trace)).collect(),
            ratings: ratings::rate(trace, measurements, &located),
        };
        predictions.predicted.insert(name.to_owned(), prediction);
        predictions.roots.insert(
            name.to_owned(),
            RootVerdicts::from_measurements(trace, measurements, evaluated_trace.summary.passed),
        );
        predictions.coverage.add(measurements);
        predictions.measured.extend(measurements.iter().filter(|m| m.outcome.is_ok()).map(|m| m.metric));
        let Some(gold) = self.gold.get(name) else { return };
        let claims = claims(trace, measurements, self.predicted);
        predictions.errors.extend(self.decide_errors(gold, &claims, &services, &mut predictions.notes));
        if self.report {
            let labels = TraceLabels::from_trail(&trace.tree.id.to_string(), gold);
            predictions.traces.add(evaluated, labels, &gold.errors, settings, self.predicted);
        }
    }

    /// The annotated errors of a trace with the metrics that caught them.
    fn decide_errors(
        &self,
        gold: &Annotations,
        claims: &[ErrorClaim],
        services: &Arc<[Text]>,
        notes: &mut Notes,
    ) -> Vec<ErrorCase> {
        let Some(judge) = &self.adjudicator else {
            let by_rules = |error| ErrorCase::new(error, claims, &by_rules(error, claims));
            return gold.errors.iter().map(by_rules).collect();
        };
        let clean = |text: &str| judge.clean(text);
        let error_questions: Vec<Option<ErrorQuestion>> =
            gold.errors.iter().enumerate().map(|(n, e)| adjudicate::question(n, e, claims, clean)).collect();
        let questions =
            error_questions.iter().flatten().map(|error_question| error_question.question.clone()).collect();
        let mut answers = judge.ask_about(services, "score.adjudicate", questions).into_iter();
        let counts = notes.adjudicator.get_or_insert_default();
        let decided = gold.errors.iter().zip(&error_questions).map(|(error, error_question)| {
            // Without findings nothing identifies the error.
            let Some(error_question) = error_question else { return ErrorCase::new(error, claims, &[]) };
            counts.omitted += error_question.omitted_claims;
            let identified = answers.next().and_then(|answer| error_question.read(&answer));
            match &identified {
                Some(_) => counts.answered += 1,
                None => counts.unanswered += 1,
            }
            ErrorCase::new(error, claims, &identified.unwrap_or_else(|| by_rules(error, claims)))
        });
        decided.collect()
    }
}

/// One question about each whole trace to `judge`; no metric is measured.
pub(super) fn ask_whole_traces(
    config: &Config,
    gold: &AnnotationFiles,
    traces: &[PathBuf],
    judges: &JudgeRun,
    (judge, control_flow): (&JudgeSession, bool),
) -> Result<Predictions, CommandFailure> {
    let mut unjudged = config.clone();
    unjudged.verdict.evaluation.metrics = MetricsConfig::default();
    let (mut predictions, mut counts) = (Predictions::default(), BaselineCounts::default());
    for_each_annotated_trace(
        (&unjudged, judges),
        gold,
        traces,
        &mut predictions,
        |predictions, name, evaluated| {
            let trace = &evaluated.trace.trace;
            let question = baseline::question(&judge.asker, trace, control_flow);
            if !judge.fits(&question) {
                counts.excluded.insert(name.to_owned());
                return;
            }
            let answers = judge.ask_about(&services(trace), "score.monolithic", vec![question]);
            let prediction = answers.first().and_then(|answer| read_prediction(trace, answer));
            let (prediction, unknown) = prediction.unwrap_or_else(|| {
                counts.unanswered += 1;
                Default::default()
            });
            counts.unknown_spans += unknown;
            predictions.predicted.insert(name.to_owned(), prediction);
        },
    )?;
    counts.answered = predictions.predicted.len() - counts.unanswered;
    predictions.notes.baseline = Some(counts);
    Ok(predictions)
}

/// The metrics' settings of a configuration.
pub(super) fn settings(config: &Config) -> Result<Settings, CommandFailure> {
    Settings::new(&config.verdict.evaluation).map_err(|e| CommandFailure::Usage(e.to_string()))
}

/// Calls `on_trace` with every annotated trace of the input and the name of its gold file.
fn for_each_annotated_trace(
    (config, judges): (&Config, &JudgeRun),
    gold: &AnnotationFiles,
    traces: &[PathBuf],
    predictions: &mut Predictions,
    mut on_trace: impl FnMut(&mut Predictions, &str, &EvaluatedRecording),
) -> Result<(), CommandFailure> {
    // A gold file is named after its trace or contains the trace id.
    let mut by_trace: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, annotations) in gold {
        by_trace.extend(annotations.trace.as_deref().map(|trace| (trace, name.as_str())));
        by_trace.insert(name, name);
    }
    recording::evaluate_at_end(config, traces, OtherFiles::Refuse, judges, |evaluated| {
        match by_trace.get(evaluated.trace.trace.tree.id.to_string().as_str()) {
            Some(name) => on_trace(predictions, name, &evaluated),
            None => predictions.notes.not_annotated += 1,
        }
    })
}

fn map_categories(
    judge: &JudgeSession,
    services: &Arc<[Text]>,
    measurements: &[Measurement],
) -> (Vec<Measurement>, MapperCounts) {
    let mut trace_questions = mapper::questions(measurements, |text| judge.clean(text));
    let questions = std::mem::take(&mut trace_questions.questions);
    let answers = judge.ask_about(services, "score.category", questions);
    mapper::map(measurements, &trace_questions, &answers)
}
