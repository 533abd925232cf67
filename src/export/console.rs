//! The `console` exporter: annotated trees on standard output.
//!
//! In: annotated OTLP bytes. Out: text. [`render`] also serves `eval --output tree` and `demo`.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use bytes::Bytes;
use tokio::task::spawn_blocking;
use verdict_eval::annotation::RenderedTrace;
use verdict_otlp::trace::Tree;

use super::client::{ExportClient, ExportFuture};
use super::config::{ConsoleConfig, TraceResult};
use super::pack::ExportRequest;
use super::response::{ExportResponse, ExportResult};
use crate::logging::join_error_reason;

mod draw;
mod paint;
mod read;
mod style;
#[cfg(test)]
mod tests;

pub use style::TreeStyle;

/// Recognises a trace for rendering.
pub type RecogniseTree = Arc<dyn Fn(Tree) -> RenderedTrace + Send + Sync>;

/// Renders the traces in `pieces`: encoded `ExportTraceServiceRequest`s, annotated or not. Control
/// characters in spans do not reach the terminal.
pub fn render(pieces: &[Bytes], recognise: &dyn Fn(Tree) -> RenderedTrace, style: &TreeStyle) -> String {
    render_only(&[], pieces, recognise, style)
}

/// Like [`render`], for traces with these results alone; an empty list selects all.
fn render_only(
    only: &[TraceResult],
    pieces: &[Bytes],
    recognise: &dyn Fn(Tree) -> RenderedTrace,
    style: &TreeStyle,
) -> String {
    let mut out = String::new();
    for trace in read::traces(pieces, recognise, &style.prefix) {
        let result = TraceResult::from(trace.summary.as_ref().and_then(|summary| summary.passed));
        if !only.is_empty() && !only.contains(&result) {
            continue;
        }
        if !out.is_empty() {
            out.push('\n');
        }
        draw::trace(&trace, style, &mut out);
    }
    out
}

/// Prints the traces of requests.
pub(super) struct ConsoleClient {
    recognise: RecogniseTree,
    style: Arc<TreeStyle>,
    only: Vec<TraceResult>,
}

impl ConsoleClient {
    pub(super) fn new(recognise: &RecogniseTree, prefix: &str, config: &ConsoleConfig) -> ConsoleClient {
        ConsoleClient {
            recognise: Arc::clone(recognise),
            style: Arc::new(TreeStyle::detect(config.color, prefix)),
            only: config.only.clone(),
        }
    }
}

impl fmt::Debug for ConsoleClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsoleClient").field("style", &self.style).finish_non_exhaustive()
    }
}

impl ExportClient for ConsoleClient {
    fn export<'a>(&'a self, request: &'a ExportRequest) -> ExportFuture<'a> {
        let (recognise, style) = (Arc::clone(&self.recognise), Arc::clone(&self.style));
        let (pieces, only) = (request.chunks().to_vec(), self.only.clone());
        // Written on a blocking thread, since the reader of standard output may be slow.
        let written = spawn_blocking(move || {
            let mut out = io::stdout().lock();
            let text = render_only(&only, &pieces, &*recognise, &style);
            if text.is_empty() {
                return Ok(());
            }
            writeln!(out, "{text}")?;
            out.flush()
        });
        Box::pin(async {
            let error = match written.await {
                Ok(Ok(())) => return ExportResult::ACCEPTED.into(),
                Ok(Err(error)) => error.to_string(),
                Err(error) => join_error_reason(&error).to_owned(),
            };
            ExportResponse { status: "io_error", result: ExportResult::Rejected(error) }
        })
    }
}
