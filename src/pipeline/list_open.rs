//! The open traces of a shard, as the live page lists them.

use std::time::{Duration, Instant};

use super::select;
use crate::assemble::{Assembler, OpenSummary};
use crate::page::server::OpenTrace;

/// Open traces of one shard that are listed.
const LISTED: usize = 100;
/// Longest name of a service in bytes.
const MAX_NAME: usize = 200;

/// The open traces of a shard with the latest spans.
pub(super) fn list_open(assembler: &Assembler, now: Instant) -> Vec<OpenTrace> {
    assembler.latest(LISTED, now).iter().map(listed).collect()
}

fn listed(open: &OpenSummary<'_>) -> OpenTrace {
    let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    OpenTrace {
        trace_id: open.trace.to_string(),
        name: open.name.clone(),
        service: open.envelope.and_then(select::service).map(|service| clip(service).to_owned()),
        spans: open.spans,
        bytes: open.bytes,
        age_ms: milliseconds(open.age),
        idle_ms: milliseconds(open.idle),
        closes_in_ms: milliseconds(open.closes_in),
        close_reason: open.reason.as_str(),
        incomplete: open.incomplete,
    }
}

fn clip(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_NAME)).unwrap_or_default()
}
