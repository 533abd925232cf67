//! The `console` exporter: annotated trees on standard output.
//!
//! In: annotated OTLP bytes. Out: text, by [`render`], which `eval --output tree` and `demo` use too.

use std::io::{self, Write};
use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use verdict_otlp::trace::{Envelope, Kind};

use super::config::Color;
use super::exporter::Exporter;
use super::queue::Job;
use crate::outcome::{DropReason, Outcome};

mod draw;
mod paint;
mod read;
mod style;
#[cfg(test)]
mod tests;

pub use style::Style;

/// The kind of a span, from its encoded bytes and envelope.
pub type KindOf = Arc<dyn Fn(&[u8], &Envelope) -> Kind + Send + Sync>;

/// What rendering needs to know about annotated spans.
#[derive(Clone)]
pub struct RenderContext {
    pub kind_of: KindOf,
    /// Prefix of our attribute keys (`verdict.`).
    pub prefix: String,
}

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

/// Largest size of one write, in bytes.
const MAX_WRITE: usize = 1 << 20;

/// Prints until the queue is closed and empty, or `stop` is cancelled.
pub(super) async fn consume(
    exporter: Arc<Exporter>,
    context: RenderContext,
    color: Color,
    stop: CancellationToken,
) {
    let style = Arc::new(Style::detect(color, &context.prefix));
    loop {
        let batch = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            batch = exporter.queue.take(MAX_WRITE) => batch,
        };
        let Some(batch) = batch else { return };
        let pieces: Vec<Vec<Bytes>> = batch
            .jobs
            .iter()
            .map(|job| job.parcel.pieces.iter().map(|piece| piece.bytes.clone()).collect())
            .collect();
        let (kind_of, style) = (Arc::clone(&context.kind_of), Arc::clone(&style));
        let started = Instant::now();
        // On a blocking thread, since the reader of standard output may be slow.
        let print = tokio::task::spawn_blocking(move || {
            let mut out = io::stdout().lock();
            for pieces in &pieces {
                writeln!(out, "{}", render(pieces, &*kind_of, &style))?;
            }
            out.flush()
        });
        let printed = tokio::select! {
            biased;
            () = stop.cancelled() => Err((DropReason::Shutdown, "not printed before the shutdown deadline".to_owned())),
            printed = print => match printed {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error)) => Err((DropReason::Refused, error.to_string())),
                Err(error) => Err((DropReason::Refused, error.to_string())),
            },
        };
        exporter.count_request(if printed.is_ok() { "ok" } else { "io_error" }, started);
        for Job { receipt, space: _space, .. } in batch.jobs {
            match &printed {
                Ok(()) => receipt.resolve(Outcome::Exported),
                Err((reason, why)) => exporter.drop_items(receipt, *reason, why),
            }
        }
    }
}
