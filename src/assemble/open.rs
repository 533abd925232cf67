//! One open trace: its spans, its missing parents, and its deadline.

use std::collections::HashSet;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use verdict_otlp::Fields;
use verdict_otlp::trace::{AttachedLog, ById, CloseReason, Envelope, Span, SpanId};

use super::compressed::CompressedSpans;
use super::config::CloseTimes;

/// Memory of a buffered span in addition to its encoded bytes: its entries in the trace and in the index of ids.
/// Measured in `tests/bench` and rounded up.
pub(crate) const SPAN_OVERHEAD: usize = 256;

/// The initial capacity of a trace is this many times the number of spans in its first request.
const INITIAL_FACTOR: usize = 4;
/// Maximum initial capacity, in spans.
const MAX_INITIAL_CAPACITY: usize = 64;
/// A full vector grows by a quarter and this many spans.
const MIN_GROWTH: usize = 4;

/// Maximum bytes of the name of a trace in the list of open traces.
const MAX_NAME_BYTES: usize = 200;
/// The field number of `name` in the message `Span`.
const SPAN_NAME_FIELD: u32 = 5;

/// The state of a span id.
#[derive(Clone, Copy, Debug, PartialEq)]
enum IdState {
    /// Index of the first span with this id.
    Present(u32),
    /// The parent of a span that has arrived; its own span has not.
    Missing { remote: bool },
}

/// The collection of [`IdleTraces`](super::idle::IdleTraces) that contains a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    /// In no collection yet.
    New,
    /// In the collection of traces that received spans recently.
    Busy,
    /// In the collection of idle traces, sorted by this size in bytes.
    Idle(usize),
}

/// Counts the bytes of a trace's envelopes, each once, since a small span can have a large resource. Scopes of one
/// request share their resource.
#[derive(Debug, Default)]
struct EnvelopeBytes {
    /// Address of the latest envelope: consecutive spans usually share theirs.
    last_address: usize,
    /// Addresses of envelopes and of resources. The spans of the trace own them, so that no address is reused.
    counted_addresses: foldhash::HashSet<usize>,
}

impl EnvelopeBytes {
    /// Bytes of the parts of an envelope that have not been counted yet. The trace must own the envelope from now on.
    fn count(&mut self, envelope: &Arc<Envelope>) -> usize {
        let address = Arc::as_ptr(envelope).addr();
        if std::mem::replace(&mut self.last_address, address) == address
            || !self.counted_addresses.insert(address)
        {
            return 0;
        }
        let is_new = self.counted_addresses.insert(envelope.resource.as_ptr().addr());
        envelope.scope.len() + if is_new { envelope.resource.len() } else { 0 }
    }
}

/// Bytes of the envelopes of one trace's spans.
pub(crate) fn envelope_bytes(spans: &[Span]) -> usize {
    let mut envelopes = EnvelopeBytes::default();
    spans.iter().map(|span| envelopes.count(&span.envelope)).sum()
}

#[derive(Debug)]
pub(super) struct BufferedTrace {
    /// In order of arrival. The bytes of the first spans may be in `compressed`.
    pub spans: Vec<Span>,
    compressed: CompressedSpans,
    /// The name by which the trace is listed while its spans are compressed.
    name: Option<Box<str>>,
    pub logs: Vec<AttachedLog>,
    pub bytes: usize,
    pub first_arrival: Instant,
    /// Arrival of the latest span or log record.
    pub last_arrival: Instant,
    /// Number of spans at the last preview.
    pub previewed_spans: usize,
    /// The time of its entry in `Assembler::deadlines`.
    pub filed_deadline: Option<Instant>,
    /// The time of its entry in `Assembler::grown`.
    pub grown: Option<Instant>,
    pub activity: Activity,
    times: CloseTimes,
    ids: ById<SpanId, IdState>,
    /// Spans with the id of an earlier span. In a set, so that a search for duplicates is fast even if many spans share
    /// one id.
    same_id: HashSet<(Bytes, Arc<Envelope>)>,
    envelopes: EnvelopeBytes,
    /// The number of missing parents.
    missing_parents: usize,
    /// The number of missing parents in other processes.
    missing_remote_parents: usize,
    has_ended_root: bool,
}

/// The result of [`BufferedTrace::add`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    New,
    /// An exact resend.
    Duplicate,
}

impl BufferedTrace {
    /// An empty trace whose first request has `first_spans` spans.
    pub(super) fn new(now: Instant, times: CloseTimes, first_spans: usize) -> BufferedTrace {
        let capacity = first_spans.saturating_mul(INITIAL_FACTOR).min(MAX_INITIAL_CAPACITY);
        BufferedTrace {
            spans: Vec::with_capacity(capacity),
            compressed: CompressedSpans::default(),
            name: None,
            logs: Vec::new(),
            bytes: 0,
            first_arrival: now,
            last_arrival: now,
            previewed_spans: 0,
            filed_deadline: None,
            grown: None,
            activity: Activity::New,
            times,
            ids: ById::with_capacity_and_hasher(capacity, Default::default()),
            same_id: HashSet::new(),
            envelopes: EnvelopeBytes::default(),
            missing_parents: 0,
            missing_remote_parents: 0,
            has_ended_root: false,
        }
    }

    pub(super) fn add(&mut self, span: Span, now: Instant) -> Added {
        self.last_arrival = now;
        let present = IdState::Present(self.spans.len() as u32);
        match self.ids.entry(span.id) {
            Entry::Vacant(id_entry) => {
                id_entry.insert(present);
            }
            Entry::Occupied(mut id_entry) => match *id_entry.get() {
                IdState::Missing { remote } => {
                    self.missing_parents -= 1;
                    self.missing_remote_parents -= usize::from(remote);
                    id_entry.insert(present);
                }
                IdState::Present(first) => {
                    if self.compressed.contains(first as usize) {
                        self.compressed.expand(&mut self.spans);
                    }
                    let is_duplicate = |s: &Span| s.bytes == span.bytes && s.envelope == span.envelope;
                    let entry = || (span.bytes.clone(), Arc::clone(&span.envelope));
                    if self.spans.get(first as usize).is_some_and(is_duplicate)
                        || !self.same_id.insert(entry())
                    {
                        return Added::Duplicate;
                    }
                }
            },
        }
        if span.parent.is_zero() {
            self.has_ended_root |= span.end != 0;
        } else {
            let remote = span.remote_parent;
            let parent = self.ids.entry(span.parent).or_insert_with(|| {
                self.missing_parents += 1;
                self.missing_remote_parents += usize::from(remote);
                IdState::Missing { remote }
            });
            // A single local child shows that the parent belongs to a traced process.
            if *parent == (IdState::Missing { remote: true }) && !remote {
                *parent = IdState::Missing { remote: false };
                self.missing_remote_parents -= 1;
            }
        }
        self.bytes += self.envelopes.count(&span.envelope);
        if self.spans.len() == self.spans.capacity() {
            // By default a vector doubles, which would waste up to half of a long trace's memory.
            self.spans.reserve_exact(self.spans.len() / 4 + MIN_GROWTH);
        }
        self.spans.push(span);
        Added::New
    }

    pub(super) fn attach(&mut self, log: AttachedLog, now: Instant) {
        self.last_arrival = now;
        self.bytes += log.record.len();
        self.logs.push(log);
    }

    /// Compresses about `target_bytes` bytes of spans, and returns the number of bytes that were compressed.
    pub(super) fn compress(&mut self, target_bytes: usize) -> usize {
        if let Some(name) = listed_span(&self.spans).filter(|span| !span.bytes.is_empty()).map(name_of) {
            self.name = Some(name.into());
        }
        self.compressed.compress(&mut self.spans, target_bytes)
    }

    /// The name of the span by which the trace is listed.
    pub(super) fn name(&self) -> String {
        let span = listed_span(&self.spans).filter(|span| !span.bytes.is_empty());
        span.map(name_of).or_else(|| self.name.as_deref().map(str::to_owned)).unwrap_or_default()
    }

    /// The spans with their bytes, in order of arrival.
    pub(super) fn read_spans(&self) -> Vec<Span> {
        self.compressed.restore(self.spans.clone())
    }

    /// The spans with their bytes, and the log records.
    pub(super) fn into_parts(self) -> (Vec<Span>, Vec<AttachedLog>) {
        (self.compressed.restore(self.spans), self.logs)
    }

    /// Whether the number of spans has grown by a quarter since the last preview.
    pub(super) fn has_grown(&self) -> bool {
        self.spans.len() > self.previewed_spans + self.previewed_spans / 4
    }

    /// Whether the root has not ended or a parent is missing.
    pub(super) fn is_incomplete(&self) -> bool {
        !self.has_ended_root || self.missing_parents > 0
    }

    /// The time at which the trace closes if nothing more arrives, and the reason.
    pub(super) fn deadline(&self) -> (Instant, CloseReason) {
        let (wait, reason) = if self.has_ended_root && self.missing_parents == 0 {
            (self.times.quiet, CloseReason::Complete)
        } else if self.missing_parents > 0 && self.missing_parents == self.missing_remote_parents {
            (self.times.remote_idle, CloseReason::RemoteIdle)
        } else {
            (self.times.idle, CloseReason::Idle)
        };
        let by_age = saturating_deadline(self.first_arrival, self.times.max_age);
        let by_wait = saturating_deadline(self.last_arrival, wait);
        if by_age < by_wait { (by_age, CloseReason::MaxAge) } else { (by_wait, reason) }
    }
}

/// The span whose name represents the trace in a list: a root, or the span that arrived first.
pub(super) fn listed_span(spans: &[Span]) -> Option<&Span> {
    spans.iter().find(|span| span.parent.is_zero()).or_else(|| spans.first())
}

/// The beginning of a span's name, without control characters.
fn name_of(span: &Span) -> String {
    let name = Fields::new(&span.bytes).contents(SPAN_NAME_FIELD).last();
    let name = name.and_then(|name| std::str::from_utf8(name).ok()).unwrap_or_default();
    let name = name.get(..name.floor_char_boundary(MAX_NAME_BYTES)).unwrap_or_default();
    name.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// `from` plus `wait`, or plus a year if an [`Instant`] cannot represent the sum.
fn saturating_deadline(from: Instant, wait: Duration) -> Instant {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
    from.checked_add(wait).unwrap_or(from + YEAR)
}
