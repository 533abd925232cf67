//! The data of the live page other than evaluated traces: open traces, and the state of the process.
//!
//! In: snapshots of the shards, on request, and the values of self-metrics. Out: lists of open traces, recognised
//! traces, and figures of the process.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use serde_json::{Value, json};
use tokio::sync::{Semaphore, oneshot};
use verdict_eval::EvaluatedTrace;
use verdict_otlp::trace::TraceId;

use super::Pipeline;
use super::budget::EVALUATED_FACTOR;
use super::components::CurrentComponents;
use super::queried_runs::Snapshot;
use super::shard::ShardMessage;
use crate::admin::Readiness;
use crate::clock::unix_nanos;
use crate::export::Exporters;
use crate::outcome::{DropReason, Outcome};
use crate::page::model::{TraceDetail, TraceRow};
use crate::page::server::{OpenTrace, PageSource, SourceFuture};
use crate::page::trace_view;
use crate::telemetry::{ExporterState as _, Telemetry};

/// Maximum number of listed open traces.
const MAX_LISTED: usize = 200;
/// Maximum number of open traces that are read at once.
const MAX_CONCURRENT_READS: usize = 1;

/// The parts of the process that the page reads.
#[derive(Debug)]
pub(super) struct PageState {
    pub pipeline: Arc<Pipeline>,
    pub exporters: Arc<Exporters>,
    pub telemetry: Arc<Telemetry>,
    pub readiness: Arc<Readiness>,
    pub current: Arc<Mutex<CurrentComponents>>,
    pub started: Instant,
    read_permits: Arc<Semaphore>,
}

impl PageState {
    pub(super) fn new(
        pipeline: Arc<Pipeline>,
        exporters: Arc<Exporters>,
        telemetry: Arc<Telemetry>,
        readiness: Arc<Readiness>,
        current: Arc<Mutex<CurrentComponents>>,
    ) -> PageState {
        let (started, read_permits) = (Instant::now(), Arc::new(Semaphore::new(MAX_CONCURRENT_READS)));
        PageState { pipeline, exporters, telemetry, readiness, current, started, read_permits }
    }

    fn judges(&self) -> Vec<Value> {
        let (judges, models): (_, Vec<(String, String)>) = {
            let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
            let models =
                current.config.judges.iter().map(|(name, judge)| (name.clone(), judge.model.clone()));
            (current.judges.clone(), models.collect())
        };
        let Some(judges) = judges else { return Vec::new() };
        let reports = judges.report();
        let judge_health = |(name, model): (String, String)| {
            let cells = self.telemetry.judge.cells_for(&name);
            let breaker =
                ["closed", "half_open", "open"].get(usize::try_from(cells.breaker.get()).unwrap_or(0));
            json!({
                "judge": name,
                "model": model,
                "breaker": breaker.unwrap_or(&"closed"),
                "in_flight": cells.in_flight.get(),
                "waiting": cells.waiting.get(),
                "report": reports.iter().find(|report| report.judge == name),
            })
        };
        models.into_iter().map(judge_health).collect()
    }

    fn exporters(&self) -> Vec<Value> {
        let exporter_health = |exporter: &Arc<crate::export::Exporter>| {
            let count = |outcome| exporter.ledger().count(outcome);
            let drops =
                DropReason::ALL.map(|reason| (reason.as_str().to_owned(), exporter.dropped(reason).into()));
            let drops: serde_json::Map<String, Value> =
                drops.into_iter().filter(|(_, count): &(_, Value)| count.as_u64() != Some(0)).collect();
            json!({
                "exporter": exporter.id(),
                "exported": count(Outcome::Exported),
                "dropped": count(Outcome::Dropped),
                "dead_lettered": count(Outcome::DeadLettered),
                "lost": count(Outcome::Lost),
                "why": drops,
                "retries": exporter.retries(),
                "queue_bytes": exporter.queued_bytes(),
                "queue_capacity": exporter.queue_capacity(),
            })
        };
        self.exporters.iter().map(exporter_health).collect()
    }

    fn journal(&self) -> Option<Value> {
        let limit = {
            let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
            current.config.storage.directory.as_ref()?;
            current.config.storage.max_bytes.0
        };
        let journal = &self.telemetry.journal;
        Some(json!({
            "bytes": journal.bytes.get(),
            "live_bytes": journal.live_bytes.get(),
            "max_bytes": limit,
            "refused_requests": journal.refused.get(),
            "errors": journal.errors.get(),
            "corrupt": journal.corrupt.get(),
            "dead_letter_bytes": journal.dead_letter_bytes.get(),
        }))
    }

    /// The recognised form of an open trace; `None` if it is not open or cannot be read.
    async fn read_open(&self, trace: TraceId) -> Option<(TraceRow, TraceDetail)> {
        let shared = &self.pipeline.shared;
        // The evaluation of a suspect may end the process.
        if shared.markers.is_suspect_or_quarantined(trace) {
            return None;
        }
        let permit = Arc::clone(&self.read_permits).acquire_owned().await.ok()?;
        let reply =
            self.pipeline.ask_shard(trace, |reply| ShardMessage::Snapshot(trace, permit, reply)).await;
        let Snapshot { trace: snapshot, permit, .. } = reply.ok().flatten()?;
        let reservation = shared.budget.reserve_trace(&snapshot, EVALUATED_FACTOR);
        let (config, markers) = (shared.config.load_full(), Arc::clone(&shared.markers));
        let now = unix_nanos();
        let read = tokio::task::spawn_blocking(move || {
            let _until_read = (permit, reservation);
            // The content is untrusted, so that reading it may panic.
            let read = AssertUnwindSafe(|| {
                let view: EvaluatedTrace = config.evaluator.view_open(snapshot, now);
                trace_view::trace(&view, &config.disclosure, true)
            });
            markers.run(trace, || catch_unwind(read).ok())
        });
        read.await.ok().flatten()
    }
}

impl PageSource for PageState {
    fn open_traces(&self) -> SourceFuture<'_, Vec<OpenTrace>> {
        Box::pin(async move {
            let mut replies = Vec::new();
            for inbox in self.pipeline.inboxes() {
                let (sender, reply) = oneshot::channel();
                // Spans are more urgent: the traces of a shard whose inbox is full are left out.
                if inbox.try_send(ShardMessage::List(sender)).is_ok() {
                    replies.push(reply);
                }
            }
            let mut all = Vec::new();
            for reply in replies {
                all.extend(reply.await.unwrap_or_default());
            }
            all.sort_by_key(|open| open.idle_ms);
            all.truncate(MAX_LISTED);
            let config = self.pipeline.shared.config.load_full();
            for open in &mut all {
                open.name = config.disclosure.redacted(&open.name).into_owned();
                let service = open.service.take();
                open.service = service.map(|service| config.disclosure.redacted(&service).into_owned());
            }
            all
        })
    }

    fn open_trace(&self, trace: TraceId) -> SourceFuture<'_, Option<(TraceRow, TraceDetail)>> {
        Box::pin(self.read_open(trace))
    }

    fn health(&self) -> Value {
        let Telemetry { receive, traces, .. } = &*self.telemetry;
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "uptime_s": self.started.elapsed().as_secs(),
            "obstacles": self.readiness.obstacles(),
            "spans": {
                "received": receive.spans_received.get(),
                "accepted": receive.spans_accepted.get(),
                "late": traces.late.get(),
            },
            "memory": {
                "open_traces": traces.open.get(),
                "buffered_spans": traces.buffered_spans.get(),
                "open_bytes": traces.buffered_bytes.get(),
                "in_transit_bytes": traces.in_transit_bytes.get(),
                "closed_bytes": traces.closed_bytes.get(),
                "reading_bytes": receive.held_bytes.get(),
                "budget_bytes": self.pipeline.shared.budget.limit(),
            },
            "judges": self.judges(),
            "exporters": self.exporters(),
            "journal": self.journal(),
        })
    }
}
