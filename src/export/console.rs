//! The `console` exporter: annotated trees on standard output.
//!
//! In: annotated OTLP bytes. Out: text, by [`render`], which `eval --output tree` and `demo` use too.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use bytes::Bytes;
use tokio::task::spawn_blocking;
use verdict_otlp::trace::{Envelope, Kind};

use super::client::{ExportClient, ExportFuture};
use super::config::Color;
use super::pack::ExportRequest;
use super::response::{ExportResponse, ExportResult};

mod draw;
mod paint;
mod read;
mod style;
#[cfg(test)]
mod tests;

pub use style::Style;

/// The kind of a span, from its encoded bytes and envelope.
pub type KindOf = Arc<dyn Fn(&[u8], &Envelope) -> Kind + Send + Sync>;

/// Renders the traces in `pieces`: encoded `ExportTraceServiceRequest`s, annotated or not. Control
/// characters in spans do not reach the terminal.
pub fn render(pieces: &[Bytes], kind_of: &dyn Fn(&[u8], &Envelope) -> Kind, style: &Style) -> String {
    let mut out = String::new();
    for trace in read::traces(pieces, kind_of, &style.prefix) {
        if !out.is_empty() {
            out.push('\n');
        }
        draw::trace(&trace, style, &mut out);
    }
    out
}

/// Prints the traces of requests.
pub(super) struct ConsoleClient {
    kind_of: KindOf,
    style: Arc<Style>,
}

impl ConsoleClient {
    pub(super) fn new(kind_of: &KindOf, prefix: &str, color: Color) -> ConsoleClient {
        ConsoleClient { kind_of: Arc::clone(kind_of), style: Arc::new(Style::detect(color, prefix)) }
    }
}

impl fmt::Debug for ConsoleClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsoleClient").field("style", &self.style).finish_non_exhaustive()
    }
}

impl ExportClient for ConsoleClient {
    fn export<'a>(&'a self, request: &'a ExportRequest) -> ExportFuture<'a> {
        let (kind_of, style) = (Arc::clone(&self.kind_of), Arc::clone(&self.style));
        let pieces = request.chunks().to_vec();
        // On a blocking thread, since the reader of standard output may be slow.
        let printed = spawn_blocking(move || {
            let mut out = io::stdout().lock();
            writeln!(out, "{}", render(&pieces, &*kind_of, &style))?;
            out.flush()
        });
        Box::pin(async {
            let error = match printed.await {
                Ok(Ok(())) => return ExportResult::ACCEPTED.into(),
                Ok(Err(error)) => error.to_string(),
                Err(error) => error.to_string(),
            };
            ExportResponse { status: "io_error", result: ExportResult::Rejected(error) }
        })
    }
}
