//! The output of `eval`: one rendering per trace, selected by result, and totals.
//!
//! In: evaluated traces. Out: text on standard output in one of the forms of [`EvalFormat`]. JUnit and Markdown begin
//! with totals, so the printer stores one entry per trace until the input ends; the other forms are written trace by
//! trace. Late spans are written as a trace of their own with the revised verdict; in JUnit and Markdown they are part
//! of its entry. Totals count a trace once.

use std::collections::hash_map as map;
use std::io::{self, BufWriter, StdoutLock, Write};

use bytes::Bytes;
use clap::ValueEnum;
use verdict_eval::annotation::RenderedTrace;
use verdict_eval::trace::Recogniser;
use verdict_eval::{Disclosure, Emission, EvaluatedTrace};
use verdict_otlp::trace::{ById, TraceId};
use verdict_otlp::{Signal, json};

use super::command::CommandFailure;
use super::report;
use crate::config::Config;
use crate::export::config::Color;
use crate::export::console::{self, TreeStyle};
use crate::page::file::PageFile;
use crate::pipeline::offline::EvaluatedRecording;
use crate::telemetry::ResultLabel;

mod entry;
mod junit;
mod markdown;
mod totals;

use entry::ReportEntry;
pub(super) use totals::Totals;

/// Bytes of one write.
const BUFFER_BYTES: usize = 64 << 10;

#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum EvalFormat {
    /// Annotated trees, for people
    #[default]
    Tree,
    /// One JSON object a trace
    Json,
    /// One annotated ExportTraceServiceRequest a trace, as JSON
    Otlp,
    /// One JUnit XML document: a test case a trace
    Junit,
    /// One HTML file with every trace
    Html,
    /// Totals and failing traces as Markdown, for the summary of a CI job
    Markdown,
}

impl EvalFormat {
    /// Whether it is written from annotated spans.
    pub(super) fn shows_spans(self) -> bool {
        matches!(self, EvalFormat::Tree | EvalFormat::Otlp)
    }
}

/// Writes traces to standard output, and counts them.
pub(super) struct Printer {
    output: EvalFormat,
    /// Results that are written; all if empty.
    only: Vec<ResultLabel>,
    pub(super) totals: Totals,
    out: BufWriter<StdoutLock<'static>>,
    page: PageFile,
    recogniser: Recogniser,
    emission: Emission,
    style: TreeStyle,
    is_first: bool,
    entries: Vec<ReportEntry>,
    /// Indexes of the entries: late spans revise that of their trace.
    entry_indexes: ById<TraceId, usize>,
    error: Option<io::Error>,
}

impl Printer {
    pub(super) fn new(
        output: EvalFormat,
        only: Vec<ResultLabel>,
        config: &Config,
    ) -> Result<Printer, CommandFailure> {
        let recogniser = Recogniser::new(&config.verdict.evaluation.recognise)
            .map_err(|e| CommandFailure::Usage(e.to_string()))?;
        let disclosure =
            Disclosure::new(&config.verdict.evaluation).map_err(|e| CommandFailure::Usage(e.to_string()))?;
        Ok(Printer {
            output,
            only,
            totals: Totals::default(),
            out: BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock()),
            page: PageFile::new(disclosure),
            recogniser,
            emission: Emission::new(&config.verdict.evaluation),
            style: TreeStyle::detect(Color::Auto, &config.verdict.evaluation.prefix),
            is_first: true,
            entries: Vec::new(),
            entry_indexes: ById::default(),
            error: None,
        })
    }

    /// Counts a trace, and writes it if its result is selected. After a write has failed it only counts.
    pub(super) fn print(&mut self, evaluated: &EvaluatedRecording) {
        let result = ResultLabel::from(evaluated.trace.summary.passed);
        if let Some(prior) = evaluated.prior_verdict {
            self.totals.remove(prior.passed.into());
        }
        self.totals.add(result);
        if self.error.is_none() && (self.only.is_empty() || self.only.contains(&result)) {
            self.error = self.write(&evaluated.trace, &evaluated.annotated.spans).err();
        }
    }

    fn write(&mut self, trace: &EvaluatedTrace, spans: &[verdict_otlp::Piece]) -> io::Result<()> {
        match self.output {
            EvalFormat::Tree => {
                let pieces: Vec<Bytes> = spans.iter().map(|piece| piece.bytes.clone()).collect();
                let recognise = |tree| RenderedTrace::new(&self.recogniser, tree, &self.emission);
                if !std::mem::take(&mut self.is_first) {
                    self.out.write_all(b"\n")?;
                }
                self.out.write_all(console::render(&pieces, &recognise, &self.style).as_bytes())
            }
            EvalFormat::Json => {
                serde_json::to_writer(&mut self.out, &report::trace(trace, &self.emission))?;
                self.out.write_all(b"\n")
            }
            EvalFormat::Otlp => {
                // Concatenated requests of one repeated field are one request.
                let request: Vec<u8> = spans.iter().flat_map(|p| p.bytes.iter().copied()).collect();
                let line = json::encode(Signal::Traces, &request).map_err(io::Error::other)?;
                self.out.write_all(&line)?;
                self.out.write_all(b"\n")
            }
            EvalFormat::Html => self.page.add(trace, &mut self.out),
            EvalFormat::Junit | EvalFormat::Markdown => {
                let entry = ReportEntry::new(trace, &self.emission);
                match self.entry_indexes.entry(trace.trace.tree.id) {
                    map::Entry::Occupied(index) => self.entries[*index.get()].revise(entry),
                    map::Entry::Vacant(vacant) => {
                        vacant.insert(self.entries.len());
                        self.entries.push(entry);
                    }
                }
                Ok(())
            }
        }
    }

    /// Writes the part of the output that needs all traces, and flushes.
    pub(super) fn finish(&mut self) -> Result<(), CommandFailure> {
        let document = match self.output {
            EvalFormat::Junit => junit::document(&self.entries),
            EvalFormat::Markdown => markdown::document(self.totals, &self.entries),
            EvalFormat::Tree | EvalFormat::Json | EvalFormat::Otlp | EvalFormat::Html => String::new(),
        };
        let written = match self.error.take() {
            Some(error) => Err(error),
            None => self.end(&document),
        };
        written.map_err(|error| CommandFailure::stdout(&error))
    }

    fn end(&mut self, document: &str) -> io::Result<()> {
        if self.output == EvalFormat::Html {
            self.page.finish(&mut self.out)?;
            if let Some(omission) = self.page.omission() {
                super::command::write_stderr(&format!("warning: {omission}"));
            }
        }
        self.out.write_all(document.as_bytes())?;
        self.out.flush()
    }
}
