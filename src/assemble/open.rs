//! One open trace: its spans so far, what it still waits for, and when it should close.

use std::collections::HashSet;
use std::collections::hash_map::Entry;
use std::time::Instant;

use bytes::Bytes;

use super::Reason;
use super::config::Times;
use crate::trace::{Attached, ById, Span, SpanId};

/// What is known of a span id.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Seen {
    /// It is here: the index of the first span with this id.
    Here(u32),
    /// A child named it as its parent.
    Awaited { remote: bool },
}

#[derive(Debug)]
pub(super) struct Open {
    pub spans: Vec<Span>,
    pub logs: Vec<Attached>,
    pub bytes: usize,
    pub first: Instant,
    pub last: Instant,
    /// The deadline it is filed under; see `Assembler`.
    pub filed: Instant,
    times: Times,
    ids: ById<SpanId, Seen>,
    /// Spans beyond the first of their id; a set, so that a sender who repeats one id a hundred
    /// thousand times costs no more than one who does not.
    twins: HashSet<Bytes>,
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
    pub fn new(now: Instant, times: Times) -> Open {
        Open {
            spans: Vec::new(),
            logs: Vec::new(),
            bytes: 0,
            first: now,
            last: now,
            filed: now,
            times,
            ids: ById::default(),
            twins: HashSet::new(),
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
                    let first = self.spans.get(first as usize);
                    if first.is_some_and(|s| s.bytes == span.bytes) || !self.twins.insert(span.bytes.clone())
                    {
                        return Added::Duplicate;
                    }
                }
            },
        }
        if span.parent.is_zero() {
            self.ended_root |= span.end != 0;
        } else {
            let remote = span.remote_parent;
            self.ids.entry(span.parent).or_insert_with(|| {
                self.awaited += 1;
                self.awaited_remote += usize::from(remote);
                Seen::Awaited { remote }
            });
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
    pub fn deadline(&self) -> (Instant, Reason) {
        let (wait, reason) = if self.ended_root && self.awaited == 0 {
            (self.times.quiet, Reason::Complete)
        } else if self.awaited > 0 && self.awaited == self.awaited_remote {
            (self.times.remote_idle, Reason::RemoteIdle)
        } else {
            (self.times.idle, Reason::Idle)
        };
        let by_age = self.first + self.times.max_age;
        let by_wait = self.last + wait;
        if by_age < by_wait { (by_age, Reason::MaxAge) } else { (by_wait, reason) }
    }
}
