//! The `console` exporter: annotated trees for people, on standard output.
//!
//! In: annotated OTLP bytes, read as any other consumer would read them. Out: text, by
//! [`render`], which `eval --output tree` and `demo` use too.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Look;
use super::config::Color;
use super::exporter::{Dropped, Exporter};
use super::queue::Job;
use crate::outcome::Outcome;
use verdict_otlp::trace::{Envelope, Kind};

mod draw;
mod paint;
mod read;
#[cfg(test)]
mod tests;

/// How trees are drawn.
#[derive(Clone, Debug)]
pub struct Style {
    /// With ANSI colours.
    pub color: bool,
    /// Columns; longer lines are cut. Below 40 it counts as 40.
    pub width: usize,
    /// What begins the keys of our attributes (`verdict.`).
    pub prefix: String,
}

impl Style {
    /// For standard output as it is: its width where it is a terminal, colour as asked for.
    pub fn detect(color: Color, prefix: &str) -> Style {
        let terminal = io::stdout().is_terminal();
        let color = match color {
            Color::Always => true,
            Color::Never => false,
            // The convention: set and not empty means no colour.
            Color::Auto => terminal && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()),
        };
        let width = match terminal_size::terminal_size() {
            Some((width, _)) if terminal => usize::from(width.0),
            _ => NOT_A_TERMINAL,
        };
        Style { color, width, prefix: prefix.to_owned() }
    }
}

/// Columns where nobody says how wide: a log viewer scrolls, and a rationale is worth reading.
const NOT_A_TERMINAL: usize = 160;

/// Draws the traces that `pieces` hold: encoded `ExportTraceServiceRequest`s, annotated or not.
/// `kind_of` tells what a span is. Text of spans cannot steer the terminal.
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

/// Parcels are gathered up to this size for one write.
const WRITE: usize = 1 << 20;

/// Prints until the queue is closed and empty, or `stop` is called.
pub(super) async fn consume(exporter: Arc<Exporter>, look: Look, color: Color, stop: CancellationToken) {
    let style = Arc::new(Style::detect(color, &look.prefix));
    loop {
        let load = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            load = exporter.queue.take(WRITE) => load,
        };
        let Some(load) = load else { return };
        let pieces: Vec<Vec<Bytes>> = load
            .jobs
            .iter()
            .map(|job| job.parcel.pieces.iter().map(|piece| piece.bytes.clone()).collect())
            .collect();
        let (kind_of, style) = (Arc::clone(&look.kind_of), Arc::clone(&style));
        let started = Instant::now();
        // On a thread of its own: whoever reads the other end may be slow.
        let print = tokio::task::spawn_blocking(move || {
            let mut out = io::stdout().lock();
            for pieces in &pieces {
                writeln!(out, "{}", render(pieces, &*kind_of, &style))?;
            }
            out.flush()
        });
        let printed = tokio::select! {
            biased;
            () = stop.cancelled() => Err((Dropped::Shutdown, "no time left to print them".to_owned())),
            printed = print => match printed {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error)) => Err((Dropped::Refused, error.to_string())),
                Err(error) => Err((Dropped::Refused, error.to_string())),
            },
        };
        exporter.count_request(if printed.is_ok() { "ok" } else { "io_error" }, started);
        for Job { receipt, hold: _hold, .. } in load.jobs {
            match &printed {
                Ok(()) => receipt.resolve(Outcome::Exported),
                Err((reason, why)) => exporter.drop_items(receipt, *reason, why),
            }
        }
    }
}
