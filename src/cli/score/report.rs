//! `--report FILE`: the page's content, collected while traces are judged.
//!
//! In: evaluated traces with their labels, tables, rows of the heat map. Out: the page as a file.

use std::path::Path;

use verdict_eval::metrics::{Category, Settings};

use crate::cli::command::{CommandFailure, write_file};
use crate::pipeline::offline::EvaluatedRecording;
use crate::score::labels::TraceLabels;
use crate::score::metrics::{self, ScoredTrace};
use crate::score::report::ReportContent;
use crate::score::report::draw::{Curve, EvaluatorRow};
use crate::score::report::sample::{self, Explanation};
use crate::score::report::tree::TraceTree;
use crate::score::thresholds::ThresholdFit;
use crate::score::trail::placement::Predicted;
use crate::score::trail::{Annotation, Benchmark};

/// Evaluated traces with their labels, trees and explanations.
#[derive(Default)]
pub(super) struct LabelledTraces {
    trees: Vec<TraceTree>,
    explanations: Vec<Explanation>,
    pub(super) labelled: Vec<(ScoredTrace, TraceLabels)>,
}

impl LabelledTraces {
    /// Adds a trace with its labels; `annotations` are its annotated errors.
    pub(super) fn add(
        &mut self,
        evaluated: &EvaluatedRecording,
        labels: TraceLabels,
        annotations: &[Annotation],
        settings: &Settings,
        predicted: Predicted,
    ) {
        let evaluated_trace = &evaluated.trace;
        let passed = evaluated_trace.summary.passed;
        let trace = ScoredTrace::new(
            &evaluated_trace.trace,
            &evaluated_trace.measurements,
            passed,
            &labels,
            settings,
            predicted,
        );
        self.explanations.extend(sample::all(&evaluated_trace.trace, &evaluated_trace.measurements));
        self.trees.push(TraceTree::new(
            &evaluated_trace.trace,
            &evaluated_trace.measurements,
            &evaluated_trace.verdicts,
            annotations,
            predicted,
        ));
        self.labelled.push((trace, labels));
    }

    pub(super) fn pairs(&self) -> Vec<(&ScoredTrace, &TraceLabels)> {
        self.labelled.iter().map(|(trace, labels)| (trace, labels)).collect()
    }

    /// Writes the page; `title` names the reference data.
    pub(super) fn write(
        self,
        path: &Path,
        title: &str,
        tables: Vec<String>,
        rows: Vec<EvaluatorRow>,
    ) -> Result<(), CommandFailure> {
        let pairs = self.pairs();
        let any_metric = ("any metric: the worst finding at a call", metrics::call_measurements(&pairs));
        let by_metric = metrics::labelled_measurements(&pairs).into_iter();
        let curves = [any_metric].into_iter().chain(by_metric).filter_map(|(name, points)| {
            let fit = ThresholdFit::from_points(&points)?;
            let cuts = fit.curve.iter().map(|cut| (cut.tau, cut.counts)).collect();
            Some(Curve { name: name.to_owned(), cuts, configured: fit.configured })
        });
        let report = ReportContent {
            title: format!("otel-verdict: {title}"),
            tables,
            columns: Category::ALL.iter().map(|c| c.as_str()).collect(),
            rows,
            curves: curves.collect(),
            explanations: self.explanations,
            trees: self.trees,
        };
        write_file(path, &report.html())
    }
}

/// An evaluator's row of the heat map: F1 of each category's presence in a trace; `None` if neither the
/// annotators nor the evaluator named the category.
pub(super) fn row(name: &str, benchmark: &Benchmark) -> EvaluatorRow {
    let cell = |category: &Category| {
        benchmark.categories.iter().find(|row| row.category == *category).map(|row| row.traces.f1())
    };
    EvaluatorRow { name: name.to_owned(), cells: Category::ALL.iter().map(cell).collect() }
}
