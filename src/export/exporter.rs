//! One running exporter: its signals, queue, ledger and counters.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use verdict_journal::{DeadLetters, ExporterAck};
use verdict_otlp::Signal;
use verdict_telemetry::LogThrottle;

use super::parcel::{Parcel, ParcelSource};
use super::queue::{Job, Queue, QueueError};
use super::response::ExportResult;
use super::webhook::RecentAlerts;
use crate::logging::join_error_reason;
use crate::outcome::{Acknowledge, AlertOutcome, DropReason, Ledger, Outcome, Receipt};
use crate::telemetry::{ExporterState, RequestObserver};

/// Interval of requests of a signal that the destination does not accept. They are necessary, since a proxy without a
/// route, for example during a rollout, responds as a destination without the signal. The interval is half of the
/// minute for which SDKs retry requests that are refused meanwhile.
const PROBE_INTERVAL: Duration = Duration::from_secs(30);

/// Maximum bytes of dead letters of a signal of which the destination has accepted no request: it is unknown whether a
/// route is missing for some time or the destination does not support the signal at all. Some 10,000 log records; more
/// would take space from other dead letters.
const MAX_UNCONFIRMED_BYTES: usize = 16 << 20;

impl Acknowledge for ExporterAck {
    fn retain(&self) {
        ExporterAck::retain(self);
    }
}

/// The result of [`Exporter::write_dead_letter`].
#[derive(Debug)]
pub(super) enum DeadLetterOutcome {
    Written,
    /// Dead letters are not configured, or not written for this reason.
    Disabled,
    /// The limit of dead letters is reached, or the request is too large.
    Full(String),
    /// The disk failed.
    Failed(String),
}

/// The condition and the delay after which an exporter sends the events of a trace.
#[derive(Clone, Debug)]
pub(super) struct HoldCondition {
    /// Id of the exporter that delivers the spans; `None` if it is unknown.
    pub after: Option<Arc<str>>,
    /// The delay after the delivery.
    pub delay: Duration,
}

/// The destination's support of a signal, by its responses since the start.
#[derive(Clone, Copy, Default)]
struct SignalSupport {
    /// Whether the destination has accepted a request, or refused one for its content.
    is_confirmed: bool,
    /// Bytes of dead letters that were written before the first such response.
    unconfirmed_bytes: usize,
    /// `Some` if the last response was that the signal is not supported: when the next request is sent.
    next_probe: Option<Instant>,
}

impl SignalSupport {
    /// Whether a request of the signal that was reported as unsupported becomes a dead letter.
    fn admits_dead_letter(&mut self, bytes: usize) -> bool {
        let unconfirmed = self.unconfirmed_bytes.saturating_add(bytes);
        if !self.is_confirmed && unconfirmed > MAX_UNCONFIRMED_BYTES {
            return false;
        }
        if !self.is_confirmed {
            self.unconfirmed_bytes = unconfirmed;
        }
        true
    }
}

/// One running exporter.
pub struct Exporter {
    pub(super) id: Arc<str>,
    /// Whether a full queue makes the pipeline refuse requests.
    pub(super) required: bool,
    signals: Vec<Signal>,
    /// Whether the exporter accepts only records that this process writes about traces, and no forwarded requests.
    pub(super) reads_verdicts: bool,
    /// `Some` if the exporter holds evaluation events back, and accepts no alarms.
    pub(super) hold: Option<HoldCondition>,
    /// The recent alerts of an exporter of type `webhook`.
    pub(super) alerts: Option<Arc<RecentAlerts>>,
    /// Whether other exporters hold events back until this one has delivered the spans.
    pub(super) is_followed: bool,
    /// The support of each signal, by `signal as usize`.
    support: Mutex<[SignalSupport; 3]>,
    pub(super) queue: Arc<Queue>,
    ledger: Arc<Ledger>,
    dropped: [AtomicU64; DropReason::ALL.len()],
    retries: AtomicU64,
    observer: OnceLock<Arc<dyn RequestObserver>>,
    dead_letters: OnceLock<Option<Arc<DeadLetters>>>,
    pub(super) throttle: LogThrottle,
}

impl std::fmt::Debug for Exporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exporter").field("id", &self.id).field("ledger", &self.ledger).finish_non_exhaustive()
    }
}

impl ExporterState for Exporter {
    fn id(&self) -> &str {
        &self.id
    }

    fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize].load(Ordering::Relaxed)
    }

    fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    fn queued_bytes(&self) -> u64 {
        self.queue.bytes()
    }

    fn queue_capacity(&self) -> u64 {
        self.queue.capacity()
    }

    fn alerts(&self, outcome: AlertOutcome) -> Option<u64> {
        Some(self.alerts.as_ref()?.count(outcome))
    }

    fn observe(&self, observer: Arc<dyn RequestObserver>) {
        let _ = self.observer.set(observer);
    }
}

impl Exporter {
    pub(super) fn new(id: &str, required: bool, signals: &[Signal], capacity: u64) -> Exporter {
        Exporter {
            id: id.into(),
            required,
            signals: signals.to_vec(),
            reads_verdicts: false,
            hold: None,
            alerts: None,
            is_followed: false,
            support: Mutex::default(),
            queue: Queue::new(capacity),
            ledger: Arc::default(),
            dropped: Default::default(),
            retries: AtomicU64::default(),
            observer: OnceLock::default(),
            dead_letters: OnceLock::default(),
            throttle: LogThrottle::default(),
        }
    }

    /// Whether the exporter is configured for all requests of a signal.
    pub fn accepts(&self, signal: Signal) -> bool {
        self.signals.contains(&signal) && !self.reads_verdicts
    }

    /// Whether the exporter is configured for a parcel.
    pub(super) fn accepts_parcel(&self, parcel: &Parcel) -> bool {
        let accepts_source = match parcel.source {
            ParcelSource::Sender => !self.reads_verdicts,
            ParcelSource::Trace => true,
            ParcelSource::Alarm => self.hold.is_none(),
        };
        self.signals.contains(&parcel.signal) && accepts_source
    }

    pub(super) fn count_request(&self, status: &'static str, started: Instant) {
        if let Some(observer) = self.observer.get() {
            observer.request_ended(status, started.elapsed());
        }
    }

    pub(super) fn count_retry(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    /// Resolves a receipt as dropped, counted and logged; as stored if shutdown has begun and the items are in the
    /// journal.
    pub(super) fn drop_items(&self, receipt: Receipt, drop_reason: DropReason, reason: &str) {
        let items = receipt.items();
        if drop_reason == DropReason::Shutdown && receipt.is_stored() {
            return receipt.resolve(Outcome::Stored);
        }
        self.dropped[drop_reason as usize].fetch_add(items, Ordering::Relaxed);
        receipt.resolve(Outcome::Dropped);
        // An unsupported signal was logged when the destination refused it.
        if items > 0
            && drop_reason != DropReason::Unsupported
            && let Some(suppressed) = self.throttle.allow(drop_reason.as_str())
        {
            let (exporter, cause) = (self.id(), drop_reason.as_str());
            tracing::error!(exporter, items, cause, reason, suppressed, "dropped");
        }
    }

    fn support(&self) -> MutexGuard<'_, [SignalSupport; 3]> {
        self.support.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the destination has reported a signal as unsupported, and the next request is not due yet.
    pub fn is_unsupported(&self, signal: Signal) -> bool {
        self.support()[signal as usize].next_probe.is_some_and(|due| Instant::now() < due)
    }

    /// Whether a request of a signal may be sent. If the signal is unsupported and a request is due, the next one is
    /// due after [`PROBE_INTERVAL`].
    pub(super) fn may_send(&self, signal: Signal) -> bool {
        let now = Instant::now();
        match &mut self.support()[signal as usize].next_probe {
            Some(due) if now < *due => return false,
            Some(due) => *due = now + PROBE_INTERVAL,
            None => {}
        }
        true
    }

    /// Sets where dead letters are written, if at all. Only the first call has an effect.
    pub(super) fn set_dead_letters(&self, dead_letters: Option<Arc<DeadLetters>>) {
        let _ = self.dead_letters.set(dead_letters);
    }

    /// Writes a request that will not be delivered to the dead letters.
    pub(super) async fn write_dead_letter(
        &self,
        signal: Signal,
        request: Bytes,
        drop_reason: DropReason,
    ) -> DeadLetterOutcome {
        let dead_letters = self.dead_letters.get().cloned().flatten();
        let is_dead_letter = match drop_reason {
            DropReason::Refused | DropReason::RetriesEnded | DropReason::SpansUndelivered => true,
            DropReason::Unsupported => self.support()[signal as usize].admits_dead_letter(request.len()),
            _ => false,
        };
        let Some(dead_letters) = dead_letters.filter(|_| is_dead_letter) else {
            return DeadLetterOutcome::Disabled;
        };
        match tokio::task::spawn_blocking(move || dead_letters.append(signal, &request)).await {
            Ok(Ok(())) => DeadLetterOutcome::Written,
            Ok(Err(error)) if error.is_transient() => DeadLetterOutcome::Failed(error.to_string()),
            Ok(Err(error)) => DeadLetterOutcome::Full(error.to_string()),
            Err(error) => DeadLetterOutcome::Failed(join_error_reason(&error).to_owned()),
        }
    }

    /// Resolves the receipt of a request that will not be delivered, by the result of
    /// [`Exporter::write_dead_letter`].
    pub(super) fn give_up(
        &self,
        receipt: Receipt,
        drop_reason: DropReason,
        reason: &str,
        outcome: &DeadLetterOutcome,
    ) {
        let items = receipt.items();
        let (exporter, cause) = (self.id(), drop_reason.as_str());
        match outcome {
            DeadLetterOutcome::Disabled => self.drop_items(receipt, drop_reason, reason),
            DeadLetterOutcome::Written => {
                receipt.resolve(Outcome::DeadLettered);
                if let Some(suppressed) = self.throttle.allow("dead_letter") {
                    tracing::error!(exporter, items, cause, reason, suppressed, "dead-lettered");
                }
            }
            // The journal retains a record until every required exporter has delivered it: the next start sends it.
            DeadLetterOutcome::Failed(error) if self.required && receipt.is_stored() => {
                receipt.resolve(Outcome::Stored);
                if let Some(suppressed) = self.throttle.allow("no_dead_letter") {
                    tracing::error!(
                        exporter,
                        items,
                        cause,
                        reason,
                        error,
                        suppressed,
                        "cannot write a dead letter; the items stay in the journal for the next start"
                    );
                }
            }
            // At the limit the items are dropped: if they stayed in the journal, the requests that one destination
            // refuses would fill it, until requests for the other destinations were refused as well.
            DeadLetterOutcome::Full(error) | DeadLetterOutcome::Failed(error) => {
                self.drop_items(receipt, drop_reason, &format!("{reason}; and no dead letter: {error}"));
            }
        }
    }

    /// Records whether the destination accepts a signal; logs a change.
    pub(super) fn note_result(&self, signal: Signal, result: &ExportResult) {
        let reason = match result {
            ExportResult::Unsupported(reason) if signal != Signal::Traces => Some(reason),
            _ => None,
        };
        let next_probe = reason.map(|_| Instant::now() + PROBE_INTERVAL);
        let previous_probe = {
            let support = &mut self.support()[signal as usize];
            // The other results may be those of a proxy.
            support.is_confirmed |=
                matches!(result, ExportResult::Accepted { .. } | ExportResult::Invalid(_));
            std::mem::replace(&mut support.next_probe, next_probe)
        };
        let (exporter, name) = (self.id(), signal.as_str());
        match reason {
            Some(reason) if previous_probe.is_none() => {
                let supported = self.signals.iter().filter(|&&s| s != signal).map(|s| s.as_str());
                let supported = supported.collect::<Vec<_>>().join(", ");
                tracing::warn!(
                    exporter,
                    "destination does not accept {name} ({reason}); one request of {name} is sent to it every \
                     {PROBE_INTERVAL:?}, and others are not delivered. Set `signals: [{supported}]` if it never \
                     accepts {name}."
                );
            }
            None if previous_probe.is_some() => {
                tracing::info!(exporter, "{name} are sent to the destination again")
            }
            _ => {}
        }
    }

    /// A receipt for a parcel. `ack` acknowledges the stored record that contains it.
    pub(super) fn receipt(&self, parcel: &Parcel, ack: Option<Arc<ExporterAck>>) -> Receipt {
        Receipt::new(parcel.items(), Arc::clone(&self.ledger))
            .with_ack(ack.map(|ack| ack as Arc<dyn Acknowledge>))
    }

    /// Reserves space for a parcel without waiting. `Ok(None)` if the parcel was dropped; the error is the parcel, if
    /// the queue of a required exporter is full.
    pub(super) fn admit(&self, parcel: Parcel, receipt: Receipt) -> Result<Option<Job>, (Parcel, Receipt)> {
        match self.queue.try_reserve(parcel.size()) {
            Ok(space) => return Ok(Some(Job { parcel, receipt, space })),
            Err(QueueError::Closed) => self.drop_items(receipt, DropReason::Shutdown, "shutting down"),
            Err(QueueError::Full) if self.required => return Err((parcel, receipt)),
            Err(QueueError::Full) => self.drop_items(receipt, DropReason::QueueFull, "sending_queue is full"),
        }
        Ok(None)
    }

    /// Waits for space for a parcel; `None` if shutdown has begun, and the parcel was dropped.
    pub(super) async fn admit_when_free(&self, parcel: Parcel, receipt: Receipt) -> Option<Job> {
        match self.queue.reserve(parcel.size()).await {
            Ok(space) => Some(Job { parcel, receipt, space }),
            Err(_) => {
                self.drop_items(receipt, DropReason::Shutdown, "shutting down");
                None
            }
        }
    }

    /// Queues a job; drops it if shutdown has begun.
    pub(super) fn enqueue(&self, job: Job) {
        if let Err(job) = self.queue.enqueue(job) {
            self.drop_items(job.receipt, DropReason::Shutdown, "shutting down");
        }
    }
}
