//! Holds evaluation events back until their spans were delivered.
//!
//! In: parcels with reserved space in the queue of their exporter, and the delivery of the spans by another exporter.
//! Out: the same parcels in the queue, a delay after the delivery. The size of the queue bounds their number.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use verdict_otlp::Signal;

use super::consumer::NOT_SENT;
use super::exporter::Exporter;
use super::parcel::Parcel;
use super::queue::Job;
use crate::outcome::{DropReason, Outcome, ParcelDelivery, Receipt};

/// The deliveries of a trace's spans, by the exporter, while the parcels of the trace are queued.
#[derive(Debug, Default)]
pub(super) struct SpanDeliveries(Vec<(Arc<str>, ParcelDelivery)>);

impl SpanDeliveries {
    /// Observes the delivery of spans by `exporter` if other exporters follow it.
    pub(super) fn observe(&mut self, exporter: &Exporter, parcel: &Parcel, receipt: Receipt) -> Receipt {
        if !exporter.is_followed || parcel.signal != Signal::Traces {
            return receipt;
        }
        let delivery = ParcelDelivery::default();
        let receipt = receipt.observed_by(delivery.observer());
        self.0.push((Arc::clone(&exporter.id), delivery));
        receipt
    }

    fn delivery_by(&self, exporter: &str) -> Option<ParcelDelivery> {
        self.0.iter().find(|(id, _)| **id == *exporter).map(|(_, delivery)| delivery.clone())
    }

    /// The delivery that an exporter must wait for; `None` if the spans are not delivered now, because they were sent
    /// on arrival or before a restart.
    pub(super) fn followed_by(&self, exporter: &Exporter) -> Option<ParcelDelivery> {
        self.delivery_by(exporter.hold.as_ref()?.after.as_deref()?)
    }
}

/// The tasks that hold parcels.
#[derive(Debug, Default)]
pub(super) struct Holders {
    pub(super) tasks: TaskTracker,
    /// Cancelled when shutdown begins, which ends delays.
    pub(super) shutdown: CancellationToken,
}

impl Holders {
    /// Queues a job of `exporter` after the delivery of the spans and the delay.
    pub(super) fn hold(
        &self,
        exporter: &Arc<Exporter>,
        job: Job,
        spans: Option<ParcelDelivery>,
        stop: &CancellationToken,
    ) {
        let (exporter, shutdown, stop) = (Arc::clone(exporter), self.shutdown.clone(), stop.clone());
        self.tasks.spawn(async move { exporter.enqueue_after(job, spans, &shutdown, &stop).await });
    }

    /// Like [`Holders::hold`], for a parcel that first waits for space in the queue.
    pub(super) fn hold_when_admitted(
        &self,
        exporter: &Arc<Exporter>,
        (parcel, receipt): (Parcel, Receipt),
        spans: Option<ParcelDelivery>,
        stop: &CancellationToken,
    ) -> tokio::task::JoinHandle<()> {
        let (exporter, shutdown, stop) = (Arc::clone(exporter), self.shutdown.clone(), stop.clone());
        let tasks = self.tasks.clone();
        self.tasks.spawn(async move {
            if let Some(job) = exporter.admit_when_free(parcel, receipt).await {
                let job_exporter = Arc::clone(&exporter);
                tasks.spawn(async move { job_exporter.enqueue_after(job, spans, &shutdown, &stop).await });
            }
        })
    }
}

impl Exporter {
    /// Queues a job after the delivery of the spans and the delay. Events of undelivered spans are not sent: they
    /// become dead letters, or are dropped, as their spans.
    async fn enqueue_after(
        &self,
        job: Job,
        spans: Option<ParcelDelivery>,
        shutdown: &CancellationToken,
        stop: &CancellationToken,
    ) {
        let delivery_outcome = async {
            match &spans {
                Some(delivery) => delivery.outcome().await,
                None => Outcome::Exported,
            }
        };
        let outcome = tokio::select! {
            biased;
            () = stop.cancelled() => Outcome::Stored,
            outcome = delivery_outcome => outcome,
        };
        match outcome {
            Outcome::Exported => {
                let delay = self.hold.as_ref().map_or(Duration::ZERO, |hold| hold.delay);
                tokio::select! {
                    biased;
                    () = shutdown.cancelled() => {}
                    () = tokio::time::sleep(delay) => {}
                }
                self.enqueue(job);
            }
            Outcome::Stored => self.drop_items(job.receipt, DropReason::Shutdown, NOT_SENT),
            Outcome::DeadLettered => self.dead_letter(job).await,
            Outcome::Dropped | Outcome::Lost => {
                self.drop_items(job.receipt, DropReason::SpansUndelivered, "the spans were not delivered");
            }
        }
    }

    /// Writes the pieces of a job to the dead letters.
    async fn dead_letter(&self, job: Job) {
        let Job { parcel, mut receipt, space } = job;
        let (drop_reason, reason) = (DropReason::SpansUndelivered, "the spans are dead letters");
        for piece in parcel.pieces {
            let receipt = receipt.split(piece.items);
            let outcome = self.write_dead_letter(parcel.signal, piece.bytes, drop_reason).await;
            self.give_up(receipt, drop_reason, reason, &outcome);
        }
        receipt.resolve(Outcome::Exported);
        drop(space);
    }
}
