//! Groups spans by trace until the trace closes.
//!
//! In: spans, their log records, and the current time. Out: [`ClosedTrace`]s with their
//! [`CloseReason`]. Nothing here sleeps or reads a clock: `now` is a parameter, and
//! [`Assembler::next_deadline`] is the time of the next call of [`Assembler::poll`].
//!
//! An assembler owns the traces of one shard and is used by one task; the hash of the trace id
//! selects the shard.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use verdict_otlp::trace::{
    AttachedLog, ById, CloseReason, ClosedTrace, Envelope, PriorVerdict, Span, TraceId,
};

mod compressed;
mod config;
mod idle;
mod open;
#[cfg(test)]
mod tests;

pub use config::{Close, Override};
use idle::IdleTraces;
use open::{Added, BufferedTrace, listed_span};
pub(crate) use open::{SPAN_OVERHEAD, envelope_bytes};

/// Time without new spans before a preview: SDKs send batches that belong together closely.
const PREVIEW_QUIET: Duration = Duration::from_millis(200);

/// Open traces that [`Assembler::latest`] considers: a request of the live page must not delay the shard.
const MAX_EXAMINED: usize = 10_000;

/// The numbers of spans by their treatment in [`Assembler::add`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanTally {
    /// Added to an open trace, or forwarded as late.
    pub accepted: usize,
    /// Exact resends within an open trace, dropped.
    pub duplicates: usize,
    /// Accepted spans that arrived after their trace had closed.
    pub late: usize,
}

/// An open trace.
#[derive(Clone, Debug)]
pub struct OpenSummary<'a> {
    pub trace: TraceId,
    /// The beginning of the name of a root, or of the first span that arrived.
    pub name: String,
    /// Resource and scope of the same span.
    pub envelope: Option<&'a Envelope>,
    pub spans: usize,
    pub bytes: usize,
    /// Time since the first span arrived.
    pub age: Duration,
    /// Time since the latest span arrived.
    pub idle: Duration,
    /// Time until it closes if nothing arrives.
    pub closes_in: Duration,
    /// The reason for which it then closes.
    pub reason: CloseReason,
    /// Whether the root has not ended, or a parent is missing.
    pub incomplete: bool,
}

/// Open traces of one shard.
#[derive(Debug, Default)]
pub struct Assembler {
    close: Close,
    open: ById<TraceId, BufferedTrace>,
    /// Every open trace once, at a time not later than its deadline. When a deadline is extended, the entry
    /// is updated only when its time comes.
    deadlines: BTreeSet<(Instant, TraceId)>,
    /// Traces without new spans, which can be closed early or compressed.
    idle: IdleTraces,
    /// Traces that have grown since their last preview, each at a time not later than that of its latest
    /// spans. `None` without previews.
    grown: Option<BTreeSet<(Instant, TraceId)>>,
    /// Remembered closed traces.
    closed: ById<TraceId, PriorVerdict>,
    /// The same traces, oldest first: the order in which they are forgotten.
    closed_by_age: VecDeque<TraceId>,
    /// Closed traces that [`Assembler::poll`] returns next.
    ready: Vec<ClosedTrace>,
    bytes: usize,
    spans: usize,
}

impl Assembler {
    pub fn new(close: Close) -> Assembler {
        Assembler { close, ..Assembler::default() }
    }

    /// Enables [`Assembler::compress_idle`], which must then be called at each deadline.
    pub fn with_compression(mut self) -> Assembler {
        self.idle.enable_compression();
        self
    }

    /// Changes times and caps. Open traces keep the times with which they were opened; caps and
    /// `remember` apply to them too.
    pub fn set_close(&mut self, close: Close) {
        self.close = close;
    }

    /// Adds one trace's spans of one request. `size` is the size of the allocations that they share, which is
    /// charged completely, since a single span keeps its whole allocation in memory. `service` is called once,
    /// when the trace is opened.
    pub fn add(
        &mut self,
        trace: TraceId,
        spans: impl IntoIterator<Item = Span>,
        size: usize,
        service: impl FnOnce(&Span) -> Option<String>,
        now: Instant,
    ) -> SpanTally {
        let mut spans = spans.into_iter().peekable();
        let count = spans.size_hint().0;
        let Some(first) = spans.peek() else { return SpanTally::default() };
        if let Some(&prior_verdict) = self.closed.get(&trace) {
            return self.add_late(trace, spans.collect(), size, prior_verdict);
        }
        let mut tally = SpanTally::default();
        let close = &self.close;
        let open = self.open.entry(trace).or_insert_with(|| {
            // Most configurations have no override, and reading a resource costs more than adding a span.
            let service = if close.by_service.is_empty() { None } else { service(first) };
            BufferedTrace::new(now, close.times(service.as_deref()), count)
        });
        let bytes_before = open.bytes;
        for span in spans {
            match open.add(span, now) {
                Added::New => tally.accepted += 1,
                Added::Duplicate => tally.duplicates += 1,
            }
        }
        if tally.accepted > 0 {
            open.bytes += size;
            self.bytes += open.bytes - bytes_before;
            self.spans += tally.accepted;
            if let Some(grown) = self.grown.as_mut().filter(|_| open.grown.is_none() && open.has_grown()) {
                open.grown = Some(now);
                grown.insert((now, trace));
            }
        }
        self.update_deadline(trace);
        tally
    }

    /// Adds a log record that belongs to a span. A record of a closed trace is ignored: it was
    /// forwarded to the exporters, and the verdict does not change.
    pub fn attach(&mut self, trace: TraceId, log: AttachedLog, now: Instant) {
        if self.closed.contains_key(&trace) {
            return;
        }
        let open =
            self.open.entry(trace).or_insert_with(|| BufferedTrace::new(now, self.close.times(None), 0));
        self.bytes += log.record.len();
        open.attach(log, now);
        self.update_deadline(trace);
    }

    /// The traces that have closed by time or by a cap. Must be called after [`Assembler::add`] too.
    pub fn poll(&mut self, now: Instant) -> Vec<ClosedTrace> {
        self.idle.update(&mut self.open, now);
        while let Some(&(time, trace)) = self.deadlines.first() {
            if time > now {
                break;
            }
            self.deadlines.pop_first();
            let Some(open) = self.open.get_mut(&trace) else { continue };
            let (deadline, reason) = open.deadline();
            if deadline <= now {
                self.close_trace(trace, reason);
            } else {
                open.filed_deadline = Some(deadline);
                self.deadlines.insert((deadline, trace));
            }
        }
        std::mem::take(&mut self.ready)
    }

    /// Snapshots of at most `max_traces` open traces that have grown by a quarter since their last preview and
    /// had no new spans for `PREVIEW_QUIET`.
    pub fn traces_to_preview(&mut self, now: Instant, max_traces: usize) -> Vec<ClosedTrace> {
        let open = &mut self.open;
        let grown = self.grown.get_or_insert_with(|| {
            let grown = open.iter_mut().filter(|(_, open)| open.has_grown());
            grown.map(|(&trace, open)| (*open.grown.insert(open.last_arrival), trace)).collect()
        });
        let is_quiet = |last: Instant| now.saturating_duration_since(last) >= PREVIEW_QUIET;
        let mut out = Vec::new();
        while out.len() < max_traces
            && let Some(&(time, trace)) = grown.first().filter(|(time, _)| is_quiet(*time))
        {
            grown.remove(&(time, trace));
            let Some(open) = open.get_mut(&trace) else { continue };
            if is_quiet(open.last_arrival) {
                open.grown = None;
                open.previewed_spans = open.spans.len();
                out.push(snapshot_of(trace, open));
            } else {
                open.grown = Some(open.last_arrival);
                grown.insert((open.last_arrival, trace));
            }
        }
        out
    }

    /// Stops tracking the traces that have grown, until the next [`Assembler::traces_to_preview`].
    pub fn end_previews(&mut self) {
        if self.grown.take().is_some() {
            self.open.values_mut().for_each(|open| open.grown = None);
        }
    }

    /// An open trace as if it closed now, `None` if it is not open. It stays open.
    pub fn snapshot(&self, trace: TraceId) -> Option<ClosedTrace> {
        self.open.get(&trace).map(|open| snapshot_of(trace, open))
    }

    /// At most `max_traces` open traces, those with the latest spans first. Of more than `MAX_EXAMINED` open traces
    /// only as many are considered.
    pub fn latest(&self, max_traces: usize, now: Instant) -> Vec<OpenSummary<'_>> {
        let mut latest: Vec<(Instant, TraceId, &BufferedTrace)> = self
            .open
            .iter()
            .take(MAX_EXAMINED)
            .map(|(trace, open)| (open.last_arrival, *trace, open))
            .collect();
        latest.sort_by_key(|(last, trace, _)| (std::cmp::Reverse(*last), *trace));
        latest.truncate(max_traces);
        let mut out = Vec::with_capacity(latest.len());
        for (last, trace, open) in latest {
            let (deadline, reason) = open.deadline();
            out.push(OpenSummary {
                trace,
                name: open.name(),
                envelope: listed_span(&open.spans).map(|span| &*span.envelope),
                spans: open.spans.len(),
                bytes: open.bytes,
                age: now.saturating_duration_since(open.first_arrival),
                idle: now.saturating_duration_since(last),
                closes_in: deadline.saturating_duration_since(now),
                reason,
                incomplete: open.is_incomplete(),
            });
        }
        out
    }

    /// The numbers of spans and log records of a trace; `None` if it is not open.
    pub fn counts_of(&self, trace: TraceId) -> Option<(usize, usize)> {
        self.open.get(&trace).map(|open| (open.spans.len(), open.logs.len()))
    }

    /// The number of spans of a trace; 0 if it is not open.
    pub fn span_count_of(&self, trace: TraceId) -> usize {
        self.open.get(&trace).map_or(0, |open| open.spans.len())
    }

    /// The remembered verdict of a closed trace.
    pub fn remembered(&self, trace: TraceId) -> Option<PriorVerdict> {
        self.closed.get(&trace).copied()
    }

    /// The earliest time at which a trace may close, or be compressed.
    pub fn next_deadline(&self) -> Option<Instant> {
        let next_close = self.deadlines.first().map(|&(time, _)| time);
        next_close.into_iter().chain(self.idle.next_compression()).min()
    }

    /// Closes all traces: at shutdown, or at the end of offline input.
    pub fn close_all(&mut self, reason: CloseReason) -> Vec<ClosedTrace> {
        let mut traces: Vec<TraceId> = self.open.keys().copied().collect();
        traces.sort_by_key(|t| self.open.get(t).map(|open| (open.first_arrival, *t)));
        for trace in traces {
            self.close_trace(trace, reason);
        }
        self.deadlines.clear();
        std::mem::take(&mut self.ready)
    }

    /// Closes these traces, which are known to be complete, if they are open. [`Assembler::poll`] returns them.
    pub fn close_ended(&mut self, traces: impl IntoIterator<Item = TraceId>) {
        traces.into_iter().for_each(|trace| self.close_trace(trace, CloseReason::EndOfInput));
    }

    /// Closes idle traces early to free about `bytes`, the largest first.
    pub fn close_early(&mut self, bytes: usize, now: Instant) -> Vec<ClosedTrace> {
        self.idle.update(&mut self.open, now);
        let mut freed = 0;
        while freed < bytes
            && let Some((size, trace)) = self.idle.largest()
        {
            freed += size;
            self.close_trace(trace, CloseReason::Pressure);
        }
        std::mem::take(&mut self.ready)
    }

    /// Compresses about `target_bytes` bytes of spans of traces that have been idle for some time and do not close
    /// soon. [`Assembler::next_deadline`] is `now` if more are left.
    pub fn compress_idle(&mut self, target_bytes: usize, now: Instant) {
        let mut compressed_bytes = 0;
        while let Some(trace) = self.idle.next_to_compress(&self.open, now) {
            let Some(open) = self.open.get_mut(&trace) else { continue };
            if open.deadline().0.saturating_duration_since(now) <= compressed::MIN_REMAINING_TIME {
                continue;
            }
            compressed_bytes += open.compress(target_bytes.saturating_sub(compressed_bytes));
            if compressed_bytes >= target_bytes {
                // The trace may have more spans to compress.
                return self.idle.compress_again(trace, now);
            }
        }
    }

    /// Remembers a closed trace's verdict for late spans.
    pub fn remember(&mut self, trace: TraceId, verdict: PriorVerdict) {
        if self.close.remember == 0 {
            return;
        }
        if self.closed.insert(trace, verdict).is_none() {
            self.closed_by_age.push_back(trace);
        }
        while self.closed_by_age.len() > self.close.remember {
            if let Some(old) = self.closed_by_age.pop_front() {
                self.closed.remove(&old);
            }
        }
    }

    /// Forgets a closed trace: its next spans open it again. If it closes once more, it keeps its earlier place in the
    /// order of forgetting.
    pub fn forget(&mut self, trace: TraceId) {
        self.closed.remove(&trace);
    }

    /// Drops an open trace: another process assembles it.
    pub fn discard(&mut self, trace: TraceId) {
        self.remove(trace);
    }

    pub fn is_open(&self, trace: TraceId) -> bool {
        self.open.contains_key(&trace)
    }

    /// Bytes of the spans and logs of open traces, and of their envelopes.
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

    /// Late spans close at once, as a trace of their own with the verdict of the earlier one.
    fn add_late(
        &mut self,
        trace: TraceId,
        spans: Vec<Span>,
        size: usize,
        prior_verdict: PriorVerdict,
    ) -> SpanTally {
        let accepted = spans.len();
        let bytes = size + envelope_bytes(&spans);
        self.ready.push(ClosedTrace {
            trace,
            spans,
            logs: Vec::new(),
            bytes,
            close_reason: CloseReason::Late,
            incomplete: true,
            prior_verdict: Some(prior_verdict),
        });
        SpanTally { accepted, duplicates: 0, late: accepted }
    }

    /// Closes a trace that has reached a cap; otherwise updates its entry in `deadlines` if its deadline is
    /// now earlier.
    fn update_deadline(&mut self, trace: TraceId) {
        let Some(open) = self.open.get_mut(&trace) else { return };
        if open.spans.len() >= self.close.max_spans {
            return self.close_trace(trace, CloseReason::MaxSpans);
        }
        if open.bytes as u64 >= self.close.max_bytes.0 {
            return self.close_trace(trace, CloseReason::MaxBytes);
        }
        self.idle.note_spans(trace, open);
        let (deadline, _) = open.deadline();
        if open.filed_deadline.is_some_and(|filed_deadline| filed_deadline <= deadline) {
            return;
        }
        if let Some(filed_deadline) = open.filed_deadline.replace(deadline) {
            self.deadlines.remove(&(filed_deadline, trace));
        }
        self.deadlines.insert((deadline, trace));
    }

    fn remove(&mut self, trace: TraceId) -> Option<BufferedTrace> {
        let open = self.open.remove(&trace)?;
        if let Some(filed_deadline) = open.filed_deadline {
            self.deadlines.remove(&(filed_deadline, trace));
        }
        self.idle.remove(trace, &open);
        if let Some((grown, time)) = self.grown.as_mut().zip(open.grown) {
            grown.remove(&(time, trace));
        }
        self.bytes -= open.bytes;
        self.spans -= open.spans.len();
        Some(open)
    }

    fn close_trace(&mut self, trace: TraceId, reason: CloseReason) {
        let Some(open) = self.remove(trace) else { return };
        if open.spans.is_empty() {
            // Log records without spans: nothing to annotate.
            return;
        }
        let incomplete = open.is_incomplete();
        self.remember(trace, PriorVerdict::default());
        let bytes = open.bytes;
        let (spans, logs) = open.into_parts();
        self.ready.push(ClosedTrace {
            trace,
            spans,
            logs,
            bytes,
            close_reason: reason,
            incomplete,
            prior_verdict: None,
        });
    }
}

fn snapshot_of(trace: TraceId, open: &BufferedTrace) -> ClosedTrace {
    let (spans, logs) = (open.read_spans(), open.logs.clone());
    let (_, reason) = open.deadline();
    ClosedTrace {
        trace,
        spans,
        logs,
        bytes: open.bytes,
        close_reason: reason,
        incomplete: open.is_incomplete(),
        prior_verdict: None,
    }
}
