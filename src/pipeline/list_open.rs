//! The open traces of a shard, as the live page lists them.

use std::time::{Duration, Instant};

use verdict_otlp::Fields;
use verdict_otlp::trace::Span;

use super::select;
use crate::assemble::{Assembler, OpenSummary};
use crate::page::server::OpenTrace;

/// Open traces of one shard that are listed.
const LISTED: usize = 100;
/// Longest name in bytes.
const MAX_NAME: usize = 200;
/// The number of the name in `Span`.
const SPAN_NAME: u32 = 5;

/// The open traces of a shard with the latest spans.
pub(super) fn list_open(assembler: &Assembler, now: Instant) -> Vec<OpenTrace> {
    assembler.latest(LISTED, now).iter().map(listed).collect()
}

fn listed(open: &OpenSummary<'_>) -> OpenTrace {
    let root = open.spans.iter().find(|span| span.parent.is_zero()).or_else(|| open.spans.first());
    let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    OpenTrace {
        trace_id: open.trace.to_string(),
        name: root.map(name).unwrap_or_default(),
        service: root
            .and_then(|span| select::service(&span.envelope))
            .map(|service| clip(service).to_owned()),
        spans: open.spans.len(),
        bytes: open.bytes,
        age_ms: milliseconds(open.age),
        idle_ms: milliseconds(open.idle),
        closes_in_ms: milliseconds(open.closes_in),
        close_reason: open.reason.as_str(),
        incomplete: open.incomplete,
    }
}

fn name(span: &Span) -> String {
    let name = Fields::new(&span.bytes).contents(SPAN_NAME).last();
    let name = name.and_then(|name| std::str::from_utf8(name).ok()).unwrap_or_default();
    clip(name).chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn clip(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_NAME)).unwrap_or_default()
}
