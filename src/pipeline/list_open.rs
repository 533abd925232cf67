//! The list of a shard's open traces for the live page.

use std::time::{Duration, Instant};

use super::select;
use crate::assemble::{Assembler, OpenSummary};
use crate::page::server::OpenTrace;

/// Maximum number of listed open traces of one shard.
const MAX_LISTED: usize = 100;
/// Maximum bytes of the name of a service.
const MAX_NAME_BYTES: usize = 200;

/// The open traces of a shard, those with the latest spans first.
pub(super) fn list_open(assembler: &Assembler, now: Instant) -> Vec<OpenTrace> {
    assembler.latest(MAX_LISTED, now).iter().map(to_open_trace).collect()
}

fn to_open_trace(open: &OpenSummary<'_>) -> OpenTrace {
    let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    OpenTrace {
        trace_id: open.trace.to_string(),
        name: open.name.clone(),
        service: open.envelope.and_then(select::service).map(|service| truncated(service).to_owned()),
        spans: open.spans,
        bytes: open.bytes,
        age_ms: milliseconds(open.age),
        idle_ms: milliseconds(open.idle),
        closes_in_ms: milliseconds(open.closes_in),
        close_reason: open.reason.as_str(),
        incomplete: open.incomplete,
    }
}

fn truncated(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_NAME_BYTES)).unwrap_or_default()
}
