//! Spans are gathered by trace until the trace closes; then the trace goes on as one.
//!
//! In: spans and the log records that belong to them, and what time it is. Out: [`ClosedTrace`]s,
//! each a whole trace (or what came of it) with the [`CloseReason`] why it closed. Nothing here sleeps
//! or reads a clock: `now` is a parameter, and [`Assembler::next_deadline`] says when to call
//! [`Assembler::poll`] next.
//!
//! An assembler owns the traces of one shard and is used by one task; the hash of the trace id
//! chooses the shard.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use verdict_otlp::trace::{Attached, ById, CloseReason, ClosedTrace, PriorVerdict, Span, TraceId};

mod config;
mod open;
#[cfg(test)]
mod tests;

pub use config::{Close, Override};
pub(crate) use open::around;
use open::{Added, Open};

/// A trace that had something new within this time is being written: closing it early would make
/// its next spans late, and free little.
const BUSY: Duration = Duration::from_secs(1);

/// SDKs send what ends together in one batch, or in few that follow closely; between them looking
/// would be too soon.
const LULL: Duration = Duration::from_millis(200);

/// What [`Assembler::add`] did with the spans it was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Kept in an open trace, or sent on as late.
    pub kept: usize,
    /// Exact resends within an open trace, left out.
    pub duplicates: usize,
    /// Of those kept, how many came after their trace had closed.
    pub late: usize,
}

/// Open traces of one shard.
#[derive(Debug)]
pub struct Assembler {
    close: Close,
    open: ById<TraceId, Open>,
    /// Every open trace once, under a time not later than its deadline. A deadline that moves
    /// back leaves the entry: it is looked at again when that time comes.
    filed: BTreeSet<(Instant, TraceId)>,
    closed: ById<TraceId, PriorVerdict>,
    /// Closed traces, oldest first: what is forgotten next.
    oldest: VecDeque<TraceId>,
    ready: Vec<ClosedTrace>,
    bytes: usize,
    spans: usize,
}

impl Assembler {
    /// With nothing open.
    pub fn new(close: Close) -> Assembler {
        Assembler {
            close,
            open: ById::default(),
            filed: BTreeSet::new(),
            closed: ById::default(),
            oldest: VecDeque::new(),
            ready: Vec::new(),
            bytes: 0,
            spans: 0,
        }
    }

    /// Other times and caps. Traces that are open keep the times that they opened with; caps, and
    /// how much is remembered, hold for them too.
    pub fn set_close(&mut self, close: Close) {
        self.close = close;
    }

    /// Takes one trace's spans out of one request. `held` is the size of the allocations that they
    /// share: it is charged whole, since one span keeps all of its own. `service` is asked once, when
    /// the trace opens.
    pub fn add(
        &mut self,
        trace: TraceId,
        spans: impl IntoIterator<Item = Span>,
        held: usize,
        service: impl FnOnce(&Span) -> Option<String>,
        now: Instant,
    ) -> Tally {
        let mut spans = spans.into_iter().peekable();
        let count = spans.size_hint().0;
        let Some(first) = spans.peek() else { return Tally::default() };
        if let Some(&before) = self.closed.get(&trace) {
            return self.late(trace, spans.collect(), held, before);
        }
        let mut tally = Tally::default();
        let close = &self.close;
        let open = self.open.entry(trace).or_insert_with(|| {
            // Most traces need no override, and reading a resource costs more than adding a span.
            let service = if close.by_service.is_empty() { None } else { service(first) };
            Open::new(now, close.times(service.as_deref()), count)
        });
        let before = open.bytes;
        for span in spans {
            match open.add(span, now) {
                Added::New => tally.kept += 1,
                Added::Duplicate => tally.duplicates += 1,
            }
        }
        if tally.kept > 0 {
            open.bytes += held;
            self.bytes += open.bytes - before;
            self.spans += tally.kept;
        }
        self.refile(trace);
        tally
    }

    /// Takes a log record that belongs to a span. One whose trace has closed is left out: the
    /// record itself has gone on to the exporters, and the verdict stands.
    pub fn attach(&mut self, trace: TraceId, log: Attached, now: Instant) {
        if self.closed.contains_key(&trace) {
            return;
        }
        let open = self.open.entry(trace).or_insert_with(|| Open::new(now, self.close.times(None), 0));
        self.bytes += log.record.len();
        open.attach(log, now);
        self.refile(trace);
    }

    /// Every trace whose time has come, or that a cap has closed. Call it after [`Assembler::add`] too.
    pub fn poll(&mut self, now: Instant) -> Vec<ClosedTrace> {
        while let Some(&(at, trace)) = self.filed.first() {
            if at > now {
                break;
            }
            self.filed.pop_first();
            let Some(open) = self.open.get_mut(&trace) else { continue };
            let (deadline, reason) = open.deadline();
            if deadline <= now {
                self.shut(trace, reason);
            } else {
                open.filed = Some(deadline);
                self.filed.insert((deadline, trace));
            }
        }
        std::mem::take(&mut self.ready)
    }

    /// Open traces, at most `most`, that have grown by a quarter since they were last named here
    /// and had nothing new for a moment; each as if it closed now. They stay open.
    pub fn grown(&mut self, now: Instant, most: usize) -> Vec<ClosedTrace> {
        let quiet = |open: &Open| now.saturating_duration_since(open.last) >= LULL;
        let grown = |open: &Open| open.spans.len() > open.looked_at + open.looked_at / 4;
        let fresh = self.open.iter_mut().filter(|(_, open)| grown(open) && quiet(open)).take(most);
        fresh
            .map(|(&trace, open)| {
                open.looked_at = open.spans.len();
                as_if_closed(trace, open)
            })
            .collect()
    }

    /// An open trace as if it closed now. It stays open.
    pub fn glimpse(&self, trace: TraceId) -> Option<ClosedTrace> {
        self.open.get(&trace).map(|open| as_if_closed(trace, open))
    }

    /// Spans of an open trace so far.
    pub fn spans_of(&self, trace: TraceId) -> usize {
        self.open.get(&trace).map_or(0, |open| open.spans.len())
    }

    /// What was kept of a closed trace.
    pub fn remembered(&self, trace: TraceId) -> Option<PriorVerdict> {
        self.closed.get(&trace).copied()
    }

    /// When time alone can next close a trace, at the earliest.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.filed.first().map(|&(at, _)| at)
    }

    /// Closes everything: at shutdown, or when offline input has ended.
    pub fn close_all(&mut self, reason: CloseReason) -> Vec<ClosedTrace> {
        let mut traces: Vec<TraceId> = self.open.keys().copied().collect();
        traces.sort_by_key(|t| self.open.get(t).map(|o| (o.first, *t)));
        for trace in traces {
            self.shut(trace, reason);
        }
        self.filed.clear();
        std::mem::take(&mut self.ready)
    }

    /// Closes traces early to free about `bytes`, where each span takes `overhead` beside its own: the
    /// largest first, among those that had nothing new since `BUSY`.
    pub fn relieve(&mut self, bytes: usize, overhead: usize, now: Instant) -> Vec<ClosedTrace> {
        let idle = |open: &Open| now.saturating_duration_since(open.last) >= BUSY;
        let size = |open: &Open| open.bytes + open.spans.len() * overhead;
        let mut largest: Vec<(usize, TraceId)> =
            self.open.iter().filter(|(_, open)| idle(open)).map(|(&id, open)| (size(open), id)).collect();
        largest.sort_unstable_by(|a, b| b.cmp(a));
        let mut freed = 0;
        for (size, trace) in largest {
            if freed >= bytes {
                break;
            }
            freed += size;
            self.shut(trace, CloseReason::Pressure);
        }
        std::mem::take(&mut self.ready)
    }

    /// Remembers a closed trace's verdict for spans that come late.
    pub fn remember(&mut self, trace: TraceId, verdict: PriorVerdict) {
        if self.close.remember == 0 {
            return;
        }
        if self.closed.insert(trace, verdict).is_none() {
            self.oldest.push_back(trace);
        }
        while self.oldest.len() > self.close.remember {
            if let Some(old) = self.oldest.pop_front() {
                self.closed.remove(&old);
            }
        }
    }

    /// Whether a trace is open.
    pub fn is_open(&self, trace: TraceId) -> bool {
        self.open.contains_key(&trace)
    }

    /// Bytes of the spans and logs of open traces, and of what stands around the spans.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Spans of open traces.
    pub fn spans(&self) -> usize {
        self.spans
    }

    /// Open traces.
    pub fn traces(&self) -> usize {
        self.open.len()
    }

    fn late(&mut self, trace: TraceId, spans: Vec<Span>, held: usize, before: PriorVerdict) -> Tally {
        let kept = spans.len();
        let bytes = held + around(&spans);
        self.ready.push(ClosedTrace {
            trace,
            spans,
            logs: Vec::new(),
            bytes,
            reason: CloseReason::Late,
            incomplete: true,
            before: Some(before),
        });
        Tally { kept, duplicates: 0, late: kept }
    }

    /// Closes a trace that has reached a cap; else files it under its deadline where that is
    /// sooner than where it is filed now.
    fn refile(&mut self, trace: TraceId) {
        let Some(open) = self.open.get_mut(&trace) else { return };
        if open.spans.len() >= self.close.max_spans {
            return self.shut(trace, CloseReason::MaxSpans);
        }
        if open.bytes as u64 >= self.close.max_bytes.0 {
            return self.shut(trace, CloseReason::MaxBytes);
        }
        let (deadline, _) = open.deadline();
        if open.filed.is_some_and(|filed| filed <= deadline) {
            return;
        }
        if let Some(filed) = open.filed.replace(deadline) {
            self.filed.remove(&(filed, trace));
        }
        self.filed.insert((deadline, trace));
    }

    fn shut(&mut self, trace: TraceId, reason: CloseReason) {
        let Some(open) = self.open.remove(&trace) else { return };
        if let Some(filed) = open.filed {
            self.filed.remove(&(filed, trace));
        }
        self.bytes -= open.bytes;
        self.spans -= open.spans.len();
        if open.spans.is_empty() {
            // Log records whose spans never came: nothing to annotate.
            return;
        }
        let incomplete = open.incomplete();
        self.remember(trace, PriorVerdict::default());
        self.ready.push(ClosedTrace {
            trace,
            spans: open.spans,
            logs: open.logs,
            bytes: open.bytes,
            reason,
            incomplete,
            before: None,
        });
    }
}

fn as_if_closed(trace: TraceId, open: &Open) -> ClosedTrace {
    let (spans, logs) = (open.spans.clone(), open.logs.clone());
    let (_, reason) = open.deadline();
    ClosedTrace { trace, spans, logs, bytes: open.bytes, reason, incomplete: open.incomplete(), before: None }
}
