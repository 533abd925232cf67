//! One open trace: its spans so far, what it still waits for, and when it should close.

use std::collections::HashSet;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::config::Times;
use verdict_otlp::trace::CloseReason;
use verdict_otlp::trace::{Attached, ById, Envelope, Span, SpanId};

/// Envelopes of a trace that are counted once. Few traces have more; what stands around their
/// further spans is counted with each.
const ENVELOPES: usize = 8;

/// A trace is expected to have this many times the spans of its first request, ...
const EXPECTED: usize = 4;
/// ... up to so many: room for more is made when they come.
const AT_FIRST: usize = 64;
/// ... a quarter of what there is, and so many.
const AT_LEAST: usize = 4;

/// What is known of a span id.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Seen {
    /// It is here: the index of the first span with this id.
    Here(u32),
    /// A child named it as its parent.
    Awaited { remote: bool },
}

/// What stands around a trace's spans, each counted once: a huge resource around a tiny span is held
/// as well.
#[derive(Debug, Default)]
struct Around {
    /// The first ones met.
    known: Vec<Arc<Envelope>>,
}

impl Around {
    /// Bytes of an envelope that has not been counted yet, else 0.
    fn fresh(&mut self, envelope: &Arc<Envelope>) -> usize {
        if self.known.iter().rev().any(|known| Arc::ptr_eq(known, envelope)) {
            return 0;
        }
        if self.known.len() < ENVELOPES {
            self.known.push(Arc::clone(envelope));
        }
        envelope.resource.len() + envelope.scope.len()
    }
}

/// Bytes of what stands around spans of one trace.
pub(crate) fn around(spans: &[Span]) -> usize {
    let mut around = Around::default();
    spans.iter().map(|span| around.fresh(&span.envelope)).sum()
}

#[derive(Debug)]
pub(super) struct Open {
    pub spans: Vec<Span>,
    pub logs: Vec<Attached>,
    pub bytes: usize,
    pub first: Instant,
    pub last: Instant,
    /// Spans that it had when it was last looked at while open.
    pub looked_at: usize,
    /// The deadline it is filed under, once it is; see `Assembler`.
    pub filed: Option<Instant>,
    times: Times,
    ids: ById<SpanId, Seen>,
    /// Spans beyond the first of their id; a set, so that a sender who repeats one id a hundred
    /// thousand times costs no more than one who does not.
    twins: HashSet<(Bytes, Arc<Envelope>)>,
    around: Around,
    awaited: usize,
    awaited_remote: usize,
    ended_root: bool,
}

/// What became of a span that was offered to an open trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// Kept.
    New,
    /// The very same bytes are here already: a resend.
    Duplicate,
}

impl Open {
    /// With nothing in it; its first request brings `first` spans.
    pub fn new(now: Instant, times: Times, first: usize) -> Open {
        let room = first.saturating_mul(EXPECTED).min(AT_FIRST);
        Open {
            spans: Vec::with_capacity(room),
            logs: Vec::new(),
            bytes: 0,
            first: now,
            last: now,
            looked_at: 0,
            filed: None,
            times,
            ids: ById::with_capacity_and_hasher(room, Default::default()),
            twins: HashSet::new(),
            around: Around::default(),
            awaited: 0,
            awaited_remote: 0,
            ended_root: false,
        }
    }

    pub fn add(&mut self, span: Span, now: Instant) -> Added {
        self.last = now;
        let here = Seen::Here(self.spans.len() as u32);
        match self.ids.entry(span.id) {
            Entry::Vacant(new) => {
                new.insert(here);
            }
            Entry::Occupied(mut known) => match *known.get() {
                Seen::Awaited { remote } => {
                    self.awaited -= 1;
                    self.awaited_remote -= usize::from(remote);
                    known.insert(here);
                }
                Seen::Here(first) => {
                    let same = |s: &Span| s.bytes == span.bytes && s.envelope == span.envelope;
                    let twin = || (span.bytes.clone(), Arc::clone(&span.envelope));
                    if self.spans.get(first as usize).is_some_and(same) || !self.twins.insert(twin()) {
                        return Added::Duplicate;
                    }
                }
            },
        }
        if span.parent.is_zero() {
            self.ended_root |= span.end != 0;
        } else {
            let remote = span.remote_parent;
            let parent = self.ids.entry(span.parent).or_insert_with(|| {
                self.awaited += 1;
                self.awaited_remote += usize::from(remote);
                Seen::Awaited { remote }
            });
            // One child in the parent's own process is enough to know that it is traced here.
            if *parent == (Seen::Awaited { remote: true }) && !remote {
                *parent = Seen::Awaited { remote: false };
                self.awaited_remote -= 1;
            }
        }
        self.bytes += self.around.fresh(&span.envelope);
        if self.spans.len() == self.spans.capacity() {
            // A vector by itself doubles, and a long trace would hold up to as much again as it needs.
            self.spans.reserve_exact(self.spans.len() / 4 + AT_LEAST);
        }
        self.spans.push(span);
        Added::New
    }

    pub fn attach(&mut self, log: Attached, now: Instant) {
        self.last = now;
        self.bytes += log.record.len();
        self.logs.push(log);
    }

    /// Whether the root, or every parent that is named, is still to come.
    pub fn incomplete(&self) -> bool {
        !self.ended_root || self.awaited > 0
    }

    /// When it closes if nothing more comes, and why.
    pub fn deadline(&self) -> (Instant, CloseReason) {
        let (wait, reason) = if self.ended_root && self.awaited == 0 {
            (self.times.quiet, CloseReason::Complete)
        } else if self.awaited > 0 && self.awaited == self.awaited_remote {
            (self.times.remote_idle, CloseReason::RemoteIdle)
        } else {
            (self.times.idle, CloseReason::Idle)
        };
        let by_age = after(self.first, self.times.max_age);
        let by_wait = after(self.last, wait);
        if by_age < by_wait { (by_age, CloseReason::MaxAge) } else { (by_wait, reason) }
    }
}

/// A time so much later; for a wait of more years than an [`Instant`] holds, a year.
fn after(from: Instant, wait: Duration) -> Instant {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
    from.checked_add(wait).unwrap_or(from + YEAR)
}
