//! `--report FILE`: what goes onto the page, gathered while traces are judged.

use std::path::{Path, PathBuf};

use super::files;
use super::scored::Scored;
use crate::cli::failure::Failure;
use crate::pipeline::offline::Evaluated;
use crate::score::labels::TraceLabels;
use crate::score::metrics;
use crate::score::metrics::Trace;
use crate::score::report::Report;
use crate::score::report::draw::{Curve, Row};
use crate::score::report::sample;
use crate::score::report::sample::Explained;
use crate::score::report::tree::Drawn;
use crate::score::thresholds::Fit;
use crate::score::trail::{Annotation, Benchmark};
use verdict_eval::measure::Category;

/// Traces on their way to the page.
#[derive(Default)]
pub(super) struct Gathered {
    trees: Vec<Drawn>,
    explained: Vec<Explained>,
    pub(super) judged: Vec<(Trace, TraceLabels)>,
}

impl Gathered {
    /// One more trace, and what people say of it.
    pub(super) fn add(&mut self, evaluated: &Evaluated, labels: TraceLabels, marks: &[Annotation]) {
        let of = &evaluated.judged;
        let trace = Trace::of(&of.trace, &of.measurements, of.note.passed);
        self.explained.extend(sample::all(&of.trace, &of.measurements));
        self.trees.push(Drawn::new(&of.trace, &of.measurements, &of.verdicts, marks));
        self.judged.push((trace, labels));
    }

    /// Traces beside what people say of them.
    pub(super) fn pairs(&self) -> Vec<(&Trace, &TraceLabels)> {
        self.judged.iter().map(|(trace, labels)| (trace, labels)).collect()
    }

    /// The page.
    pub(super) fn report(self, title: String, tables: Vec<String>, rows: Vec<Row>) -> Report {
        let pairs = self.pairs();
        let anywhere = ("any metric: the worst finding at a call", metrics::located(&pairs));
        let each = metrics::points(&pairs).into_iter();
        let curves = [anywhere].into_iter().chain(each).filter_map(|(name, points)| {
            let fit = Fit::of(&points)?;
            let cuts = fit.curve.iter().map(|cut| (cut.tau, cut.counts)).collect();
            Some(Curve { name: name.to_owned(), cuts, now: fit.now })
        });
        Report {
            title,
            tables,
            columns: Category::ALL.iter().map(|c| c.as_str()).collect(),
            rows,
            curves: curves.collect(),
            explained: self.explained,
            trees: self.trees,
        }
    }
}

/// An evaluator's row of the heat map: F1 of each category's presence in a trace; nothing where
/// neither people nor it ever named the category.
pub(super) fn row(name: &str, of: &Benchmark) -> Row {
    let cell = |category: &Category| {
        of.categories.iter().find(|row| row.category == *category).map(|row| row.traces.f1())
    };
    Row { name: name.to_owned(), cells: Category::ALL.iter().map(cell).collect() }
}

/// The page of `score trail`.
pub(super) fn trail(gathered: Gathered, scored: &Scored, tables: Vec<String>) -> Report {
    let ours = row("this run", &scored.figures);
    let rows = std::iter::once(ours).chain(scored.beside.iter().map(|(name, of)| row(name, of)));
    gathered.report("otel-verdict: TRAIL".to_owned(), tables, rows.collect())
}

/// Writes the page.
pub(super) fn write(path: &Path, report: &Report) -> Result<(), Failure> {
    std::fs::write(path, report.html()).map_err(|e| Failure::Run(format!("{}: {e}", path.display())))
}

/// Others' predictions, by the name of their folder.
pub(super) fn beside(folders: &[PathBuf]) -> Result<Vec<(String, files::Folder)>, Failure> {
    let name = |path: &Path| path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    folders.iter().map(|folder| files::read(folder).map(|read| (name(folder), read))).collect()
}
