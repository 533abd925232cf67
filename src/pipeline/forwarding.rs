//! The forwarding mode: which spans are exported on arrival, and which with the verdicts of their trace.
//!
//! The mode in which a span arrived applies to it until it is exported, even after a restart with the other mode
//! ([`Span::forwarded`]).

use verdict_eval::MAX_REQUEST;
use verdict_otlp::Piece;
use verdict_otlp::request::Group;
use verdict_otlp::trace::Span;
use verdict_otlp::write::{self, TelemetryItem};

use crate::config::Mode;

/// `verdict.mode`, which is fixed at start. Evaluation does not depend on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ForwardingMode(pub Mode);

impl ForwardingMode {
    /// Whether the spans that are evaluated are exported on arrival.
    pub(super) fn forwards(self) -> bool {
        self.0 == Mode::Shadow
    }

    /// The spans of a request that are exported on arrival: `true` for its whole body, or else encoded requests.
    /// `selected` are the spans that are evaluated, `omitted` is the number of spans of the body in neither list.
    pub(super) fn on_arrival(
        self,
        selected: &[Group],
        unselected: &[Group],
        omitted: u64,
    ) -> (bool, Vec<Piece>) {
        match self.0 {
            Mode::Annotate => (false, encode(unselected, MAX_REQUEST)),
            // The body contains the forwarded spans and no others.
            Mode::Shadow if unselected.is_empty() && omitted == 0 => (true, Vec::new()),
            Mode::Shadow => (false, encode(selected.iter().chain(unselected), MAX_REQUEST)),
        }
    }
}

/// The unchanged spans of a closed trace that cannot be annotated, without those that were exported on arrival.
pub(super) fn unforwarded_spans(spans: &[Span]) -> Vec<Piece> {
    encode_spans(spans.iter().filter(|span| !span.forwarded), MAX_REQUEST)
}

/// Marks spans as exported on arrival.
pub(super) fn set_forwarded(groups: &mut [Group]) {
    groups.iter_mut().flat_map(|group| &mut group.spans).for_each(|span| span.forwarded = true);
}

/// Encodes the unchanged spans of some groups as requests.
pub(super) fn encode<'a>(groups: impl IntoIterator<Item = &'a Group>, max_size: usize) -> Vec<Piece> {
    encode_spans(groups.into_iter().flat_map(|group| &group.spans), max_size)
}

fn encode_spans<'a>(spans: impl IntoIterator<Item = &'a Span>, max_size: usize) -> Vec<Piece> {
    let item = |span: &'a Span| TelemetryItem { envelope: &span.envelope, bytes: &span.bytes, appended: &[] };
    write::requests(&spans.into_iter().map(item).collect::<Vec<_>>(), max_size)
}
