//! The recent history: evaluated traces, bounded by number and bytes, and a timeline of the last day.
//!
//! In: evaluated traces, from the shards, through a bounded queue. Out: rows, trees, and an update for each trace. The
//! shards only count a trace and put it into the queue; one task builds rows and trees on blocking threads, for at most
//! a twentieth of the time of one core. While it is behind, traces that do not fit into the queue are counted and left
//! out.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::{broadcast, mpsc};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;
use verdict_eval::metrics::Severity;
use verdict_eval::{Disclosure, EvaluatedTrace};
use verdict_otlp::trace::CloseReason;

use super::config::PageConfig;
use super::model::{SpanNode, TraceDetail, TraceRow};
use super::trace_view::{self, MAX_ITEMS, MAX_SPANS};
use crate::logging::join_error_reason;
use crate::reservation::{ByteLimit, Reservation};
use crate::telemetry::{PageMetrics, ResultLabel};

/// Maximum number of traces in the queue.
const MAX_QUEUED_TRACES: usize = 256;
/// Maximum number of bytes charged for the traces in the queue: their spans with resources, and the recognised traces.
const MAX_QUEUED_BYTES: u64 = 32 << 20;
/// After each trace the task pauses for this multiple of its processing time, if the queue is not empty.
const PAUSE_FACTOR: u32 = 19;
/// Maximum number of minutes in the timeline. Minutes without an evaluation are not stored, so it may cover more than a
/// day.
const MAX_MINUTES: usize = 24 * 60;
/// Maximum number of updates that a slow stream has not received. It loses older updates, and is notified of the loss.
const MAX_PENDING_UPDATES: usize = 256;
/// The approximate size of a row without its texts.
const ROW_BYTES: usize = 512;
/// The approximate size of a [`UsageCount`](super::model::UsageCount) without its name.
const USAGE_BYTES: usize = 64;
/// The tree of one trace takes at most the memory divided by this, so that it does not displace the trees of all
/// others.
const DETAIL_DIVISOR: usize = 4;

/// A trace in the history.
#[derive(Debug)]
pub(crate) struct HistoryEntry {
    pub row: TraceRow,
    /// [`TraceDetail`] as JSON.
    pub detail: Bytes,
    bytes: usize,
}

/// Counts of the traces that were evaluated in one interval, which in the live page is a minute.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct VerdictCounts {
    pub pass: u64,
    pub fail: u64,
    pub unmeasured: u64,
    /// Failing traces by failure category.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub categories: BTreeMap<&'static str, u64>,
}

impl VerdictCounts {
    pub(crate) fn count(&mut self, result: ResultLabel, categories: &[&'static str]) {
        match result {
            ResultLabel::Pass => self.pass += 1,
            ResultLabel::Fail => self.fail += 1,
            ResultLabel::Unmeasured => self.unmeasured += 1,
        }
        for &category in categories {
            *self.categories.entry(category).or_default() += 1;
        }
    }
}

#[derive(Debug, Default)]
struct HistoryState {
    /// The entries, the oldest first.
    entries: VecDeque<Arc<HistoryEntry>>,
    bytes: usize,
    seq: u64,
}

/// Evaluated traces. Shared by the pipeline and the page.
#[derive(Debug)]
pub(crate) struct History {
    state: Mutex<HistoryState>,
    /// The counts of each minute, by minutes since 1970.
    timeline: Mutex<BTreeMap<u64, VerdictCounts>>,
    max_traces: usize,
    max_bytes: usize,
    updates: broadcast::Sender<Bytes>,
    metrics: PageMetrics,
}

/// A trace that was evaluated and waits to be added to the history.
#[derive(Debug)]
pub(crate) struct QueuedTrace {
    trace: Box<EvaluatedTrace>,
    disclosure: Disclosure,
    /// Reservations in the queue and in the memory budget.
    _reserved: [Reservation; 2],
}

/// The part of the history that shards use: it counts traces and puts them into the queue.
#[derive(Clone, Debug)]
pub(crate) struct HistoryFeed {
    history: Arc<History>,
    queue: mpsc::Sender<QueuedTrace>,
    queued: ByteLimit,
}

impl HistoryFeed {
    pub(crate) fn new(history: Arc<History>) -> (HistoryFeed, mpsc::Receiver<QueuedTrace>) {
        let (queue, traces) = mpsc::channel(MAX_QUEUED_TRACES);
        (HistoryFeed { history, queue, queued: ByteLimit::new(MAX_QUEUED_BYTES) }, traces)
    }

    /// Counts a trace and puts it into the queue, if there is space. It is `charged` to the memory budget until it is
    /// added.
    pub(crate) fn offer(&self, trace: EvaluatedTrace, disclosure: &Disclosure, charged: Reservation) {
        let summary = &trace.summary;
        if summary.close_reason != CloseReason::Late {
            self.history.count(summary.now, summary.passed.into(), &trace);
        }
        let has_room = self.queued.reserved() + charged.bytes() as u64 <= MAX_QUEUED_BYTES;
        let Some(permit) = self.queue.try_reserve().ok().filter(|_| has_room) else {
            self.history.metrics.skipped.inc();
            return;
        };
        let reserved = [self.queued.reserve(charged.bytes()), charged];
        let (trace, disclosure) = (Box::new(trace), disclosure.clone());
        permit.send(QueuedTrace { trace, disclosure, _reserved: reserved });
    }
}

impl History {
    pub(crate) fn new(config: &PageConfig, metrics: PageMetrics) -> History {
        History {
            state: Mutex::default(),
            timeline: Mutex::default(),
            max_traces: config.max_traces as usize,
            max_bytes: usize::try_from(config.max_memory.0).unwrap_or(usize::MAX),
            updates: broadcast::Sender::new(MAX_PENDING_UPDATES),
            metrics,
        }
    }

    /// Adds the queued traces until `stop` is cancelled.
    pub(crate) async fn fill(
        self: Arc<History>,
        mut traces: mpsc::Receiver<QueuedTrace>,
        stop: CancellationToken,
    ) {
        while let Some(Some(queued)) = stop.run_until_cancelled(traces.recv()).await {
            let started = Instant::now();
            let history = Arc::clone(&self);
            // Content is untrusted: if the conversion panics, the trace is not added.
            let added = spawn_blocking(move || history.add(&queued.trace, &queued.disclosure)).await;
            if let Err(error) = added {
                tracing::error!(
                    error = join_error_reason(&error),
                    "an evaluated trace cannot be shown on the page. This is a bug"
                );
                self.metrics.skipped.inc();
            }
            if !traces.is_empty() {
                stop.run_until_cancelled(tokio::time::sleep(started.elapsed() * PAUSE_FACTOR)).await;
            }
        }
    }

    fn count(&self, now: u64, result: ResultLabel, trace: &EvaluatedTrace) {
        let categories = match result {
            ResultLabel::Fail => trace_view::categories(&trace.measurements),
            _ => Vec::new(),
        };
        self.count_at(now / 60_000_000_000, result, &categories);
    }

    /// The number of minutes is limited instead of their age: after a jump of the clock, a limit on age would remove
    /// all other minutes.
    fn count_at(&self, minute: u64, result: ResultLabel, categories: &[&'static str]) {
        let mut timeline = lock(&self.timeline);
        timeline.entry(minute).or_default().count(result, categories);
        while timeline.len() > MAX_MINUTES {
            timeline.pop_first();
        }
    }

    /// Adds a trace, or late spans to one.
    pub(crate) fn add(&self, trace: &EvaluatedTrace, disclosure: &Disclosure) {
        let detail_limit = self.max_bytes / DETAIL_DIVISOR;
        let (mut row, detail, detail_json) = trace_view::trace_within(trace, disclosure, detail_limit);
        let is_late = trace.summary.close_reason == CloseReason::Late;
        // Joining parses the whole trace. The lock is not held meanwhile, because request handlers wait for it. No
        // other task adds traces.
        let before = self.get(&row.trace_id);
        let detail = match &before {
            Some(before) if is_late => {
                let delay_ms = row.start as f64 - before.row.start as f64;
                row = with_late(&before.row, row);
                join_late_spans(&before.detail, detail, delay_ms, detail_limit)
            }
            _ => Bytes::from(detail_json),
        };
        let mut state = lock(&self.state);
        let index = state.entries.iter().rposition(|entry| entry.row.trace_id == row.trace_id);
        if let Some(before) = index.and_then(|index| state.entries.remove(index)) {
            state.bytes -= before.bytes;
        }
        state.seq += 1;
        row.seq = state.seq;
        let bytes = detail.len() + ROW_BYTES + text_bytes(&row);
        let entry = Arc::new(HistoryEntry { row, detail, bytes });
        state.bytes += bytes;
        state.entries.push_back(Arc::clone(&entry));
        while state.entries.len() > self.max_traces || state.bytes > self.max_bytes {
            let Some(oldest) = state.entries.pop_front() else { break };
            state.bytes -= oldest.bytes;
        }
        self.metrics.traces.set(i64::try_from(state.entries.len()).unwrap_or(i64::MAX));
        self.metrics.bytes.set(i64::try_from(state.bytes).unwrap_or(i64::MAX));
        drop(state);
        self.publish(&entry.row);
    }

    /// Sends a row to the streams of updates.
    pub(super) fn publish(&self, row: &TraceRow) {
        if self.updates.receiver_count() > 0
            && let Ok(row) = serde_json::to_string(row)
        {
            // The last stream may have closed meanwhile.
            let _ = self.updates.send(format!("event: trace\ndata: {row}\n\n").into());
        }
    }

    /// Every trace, the latest verdict first.
    pub(crate) fn all(&self) -> Vec<Arc<HistoryEntry>> {
        lock(&self.state).entries.iter().rev().cloned().collect()
    }

    pub(crate) fn get(&self, trace_id: &str) -> Option<Arc<HistoryEntry>> {
        let state = lock(&self.state);
        state.entries.iter().rev().find(|entry| entry.row.trace_id == trace_id).cloned()
    }

    /// The counts of each minute with an evaluation, by minutes since 1970.
    pub(crate) fn timeline(&self) -> Vec<(u64, VerdictCounts)> {
        lock(&self.timeline).iter().map(|(minute, counts)| (*minute, counts.clone())).collect()
    }

    /// The rows that are added from now on, as server-sent events.
    pub(crate) fn updates(&self) -> broadcast::Receiver<Bytes> {
        self.updates.subscribe()
    }

    pub(crate) fn metrics(&self) -> &PageMetrics {
        &self.metrics
    }

    pub(crate) fn max_bytes(&self) -> usize {
        self.max_bytes
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Approximate bytes of the texts of a row.
fn text_bytes(row: &TraceRow) -> usize {
    let optional = [&row.service, &row.agent, &row.session, &row.user, &row.task, &row.signature];
    let listed = row.models.iter().chain(&row.failed_metrics).map(String::len).sum::<usize>();
    let usages =
        row.agents.iter().chain(&row.tools).map(|usage| usage.name.len() + USAGE_BYTES).sum::<usize>();
    row.name.len() + optional.into_iter().flatten().map(String::len).sum::<usize>() + listed + usages
}

/// The row of a trace after its late spans, whose verdict is that of the whole trace.
pub(super) fn with_late(before: &TraceRow, late: TraceRow) -> TraceRow {
    let mut row = before.clone();
    (row.result, row.reason, row.revision, row.judged_at) =
        (late.result, late.reason, late.revision, late.judged_at);
    row.spans += late.spans;
    row.failed_spans += late.failed_spans;
    for metric in late.failed_metrics {
        if !row.failed_metrics.contains(&metric) {
            row.failed_metrics.push(metric);
        }
    }
    for category in late.categories {
        if !row.categories.contains(&category) {
            row.categories.push(category);
        }
    }
    let worst = Severity::ALL.into_iter().rev().map(Severity::as_str);
    row.severity = worst.into_iter().find(|severity| [row.severity, late.severity].contains(&Some(severity)));
    row.signature = row.signature.or(late.signature);
    let end = (before.start as f64 + before.duration_ms).max(late.start as f64 + late.duration_ms);
    row.duration_ms = end - before.start as f64;
    row
}

/// The tree of a trace with its late spans, which begin `delay_ms` after its first span. Spans that would make it
/// larger than `max_bytes` are counted as left out.
fn join_late_spans(before: &Bytes, late: TraceDetail, delay_ms: f64, max_bytes: usize) -> Bytes {
    let Ok(mut joined) = serde_json::from_slice::<Value>(before) else { return before.clone() };
    let Value::Object(fields) = &mut joined else { return before.clone() };
    let mut omitted = late.omitted;
    if let Some(Value::Array(spans)) = fields.get_mut("spans") {
        let span_count = spans.len();
        let mut remaining = max_bytes.saturating_sub(before.len());
        let index_of =
            |id: &String| spans.iter().position(|span| span.get("id").and_then(Value::as_str) == Some(id));
        let linked = late.spans.into_iter().map(|mut span| {
            span.up = span.up.map(|up| up + span_count).or_else(|| span.parent.as_ref().and_then(index_of));
            span.offset_ms += delay_ms;
            span
        });
        let mut linked: Vec<SpanNode> = linked.collect();
        // The first spans are added, because later spans may be their descendants.
        let fitting = linked.iter().take(MAX_SPANS.saturating_sub(span_count)).take_while(|span| {
            let bytes = serde_json::to_vec(span).map_or(usize::MAX, |json| json.len() + 1);
            let fits = bytes <= remaining;
            remaining = remaining.saturating_sub(bytes);
            fits
        });
        let fitting_count = fitting.count();
        omitted += linked.len() - fitting_count;
        linked.truncate(fitting_count);
        spans.extend(linked.into_iter().filter_map(|span| serde_json::to_value(span).ok()));
    }
    for (key, late_ids) in [("failed_spans", late.failed_spans), ("failure_chain", late.failure_chain)] {
        if let Some(Value::Array(ids)) = fields.get_mut(key)
            // A trace that had failed without its late spans keeps its failure chain.
            && (key != "failure_chain" || ids.is_empty())
        {
            ids.extend(late_ids.into_iter().map(Value::String));
            ids.truncate(MAX_ITEMS);
        }
    }
    for (key, late_count) in
        [("measured", late.measured), ("unmeasured", late.unmeasured), ("omitted", omitted)]
    {
        let count = fields.get(key).and_then(Value::as_u64).unwrap_or(0);
        fields.insert(key.to_owned(), (count + late_count as u64).into());
    }
    if let (None, Some(cause)) = (fields.get("root_cause"), late.root_cause) {
        fields.insert("root_cause".to_owned(), cause.into());
    }
    serde_json::to_vec(&joined).map_or_else(|_| before.clone(), Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_jumps_ahead_does_not_empty_the_timeline() {
        let history = History::new(&PageConfig::default(), PageMetrics::default());
        let day = 28_000_000;
        for minute in [day, day + 1, day + 1_000_000, day + 2] {
            history.count_at(minute, ResultLabel::Fail, &["tool_error"]);
        }
        let minutes: Vec<u64> = history.timeline().into_iter().map(|(minute, _)| minute).collect();
        assert_eq!(minutes, [day, day + 1, day + 2, day + 1_000_000]);
        (0..2_000).for_each(|n| history.count_at(day + n, ResultLabel::Pass, &[]));
        assert_eq!(history.timeline().len(), MAX_MINUTES);
    }

    #[test]
    fn queue_does_not_exceed_its_bytes() {
        let config = verdict_eval::Config::default();
        let evaluator = verdict_eval::Evaluator::builder(&config).build().unwrap();
        let closed = || verdict_otlp::trace::ClosedTrace {
            trace: verdict_otlp::trace::TraceId([1; 16]),
            spans: Vec::new(),
            logs: Vec::new(),
            bytes: 0,
            close_reason: CloseReason::Idle,
            incomplete: true,
            prior_verdict: None,
        };
        let metrics = PageMetrics::default();
        let history = Arc::new(History::new(&PageConfig::default(), metrics.clone()));
        let (feed, queue) = HistoryFeed::new(history);
        let budget = ByteLimit::new(u64::MAX);
        let half = usize::try_from(MAX_QUEUED_BYTES / 2).unwrap();
        for bytes in [half, half, 1] {
            let evaluated = evaluator.evaluate(closed(), 0, &mut |_| ());
            feed.offer(evaluated, &Disclosure::new(&config).unwrap(), budget.reserve(bytes));
        }
        assert_eq!((budget.reserved(), feed.queued.reserved()), (MAX_QUEUED_BYTES, MAX_QUEUED_BYTES));
        assert_eq!(metrics.skipped.get(), 1);
        drop(queue);
        assert_eq!((budget.reserved(), feed.queued.reserved()), (0, 0));
    }
}
