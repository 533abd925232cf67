//! Holds evaluation events back until the spans that they are about were delivered.
//!
//! In: parcels with space in the queue of their exporter, and the delivery of the spans by another exporter.
//! Out: the same parcels in the queue, some time after the delivery. They are bounded by the queue's size.

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
    /// Observes the delivery of spans by `exporter` if others follow it.
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

    /// The delivery to wait for. `None` if it does not go through this process now: the spans were sent on
    /// arrival, or before a restart.
    pub(super) fn followed_by(&self, exporter: &Exporter) -> Option<ParcelDelivery> {
        self.delivery_by(exporter.hold.as_ref()?.after.as_deref()?)
    }
}

/// The tasks that hold parcels.
#[derive(Debug, Default)]
pub(super) struct Holders {
    pub(super) tasks: TaskTracker,
    /// Shutdown has begun: delays end.
    pub(super) shutdown: CancellationToken,
}

impl Holders {
    /// Queues a job of `exporter` when the spans were delivered and the delay is over.
    pub(super) fn hold(
        &self,
        exporter: &Arc<Exporter>,
        job: Job,
        spans: Option<ParcelDelivery>,
        stop: &CancellationToken,
    ) {
        let (exporter, shutdown, stop) = (Arc::clone(exporter), self.shutdown.clone(), stop.clone());
        self.tasks.spawn(async move { exporter.release(job, spans, &shutdown, &stop).await });
    }

    /// As [`Holders::hold`], for a parcel that waits for space first.
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
            if let Some(job) = exporter.wait(parcel, receipt).await {
                let job_exporter = Arc::clone(&exporter);
                tasks.spawn(async move { job_exporter.release(job, spans, &shutdown, &stop).await });
            }
        })
    }
}

impl Exporter {
    /// Queues a job when the spans were delivered and the delay is over. Events of spans that were not
    /// delivered are not sent either: they become dead letters with the spans, or are dropped with them.
    async fn release(
        &self,
        job: Job,
        spans: Option<ParcelDelivery>,
        shutdown: &CancellationToken,
        stop: &CancellationToken,
    ) {
        let delivered = async {
            match &spans {
                Some(delivery) => delivery.outcome().await,
                None => Outcome::Exported,
            }
        };
        let outcome = tokio::select! {
            biased;
            () = stop.cancelled() => Outcome::Stored,
            outcome = delivered => outcome,
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
