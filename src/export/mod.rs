//! Sends OTLP to every exporter, each with its own bounded queue, retries and ledger.
//!
//! In: [`Parcel`]s. Out: requests on the wire, lines in a file, trees on a console; and one
//! outcome per span and exporter.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use verdict_journal::{DeadLetters, Delivery};
use verdict_otlp::Signal;

use crate::outcome::DropReason;
use crate::telemetry::ExporterState;

mod check;
pub mod config;
pub mod console;
pub mod direct;
mod error;
mod exporter;
mod file;
mod grpc;
mod http;
mod otlp;
mod pack;
mod parcel;
mod queue;
mod response;
mod retry;
mod split;
#[cfg(test)]
mod tests;

pub use console::RenderContext;
pub use error::StartError;
pub use exporter::Exporter;
pub use parcel::Parcel;

use config::{ExporterConfig, ExporterConfigs};

/// Retry delay for senders while the queue of a required exporter is full.
const PRESSURE_RETRY: Duration = Duration::from_secs(1);

/// All exporters in use.
#[derive(Debug)]
pub struct Exporters {
    all: Vec<Arc<Exporter>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Exporters {
    /// Starts the exporters named by `ids` with their consumers on the current runtime. Opens files
    /// (certificates, outputs); connections are made with the first request.
    ///
    /// # Errors
    /// The id of the first exporter that cannot be started; none runs then.
    pub fn start(
        configs: &ExporterConfigs,
        ids: &[String],
        context: &RenderContext,
    ) -> Result<Exporters, (String, StartError)> {
        let tasks = TaskTracker::new();
        let stop = CancellationToken::new();
        let mut all = Vec::with_capacity(ids.len());
        let mut starts = Vec::with_capacity(ids.len());
        for id in ids {
            let config = configs.0.get(id).ok_or_else(|| (id.clone(), StartError::Unknown(id.clone())))?;
            let (exporter, start) = prepare(id, config, context).map_err(|e| (id.clone(), e))?;
            all.push(exporter);
            starts.push(start);
        }
        starts.into_iter().for_each(|start| start(&tasks, &stop));
        Ok(Exporters { all, tasks, stop })
    }

    /// Queues a parcel at every exporter configured for its signal. The future waits for space in the
    /// queues of required exporters; dropping it loses nothing. An exporter that is not required drops the
    /// parcel if its queue is full, counted and logged.
    ///
    /// Returns the number of exporters configured for the signal; with 0 the parcel is discarded.
    pub fn send(&self, parcel: Parcel) -> impl Future<Output = usize> + use<> {
        self.send_record(parcel, None)
    }

    /// As [`Exporters::send`], for a record of the journal: only to the exporters of the delivery, whose
    /// acknowledgements release the record.
    pub fn send_record(
        &self,
        parcel: Parcel,
        delivery: Option<&Delivery>,
    ) -> impl Future<Output = usize> + use<> {
        let mut takers = 0;
        let mut waits = Vec::new();
        for exporter in self.all.iter().filter(|e| e.takes(parcel.signal)) {
            takers += 1;
            let ack = delivery.map(|delivery| delivery.ack(exporter.id()));
            // This exporter has delivered the record already.
            if matches!(ack, Some(None)) {
                continue;
            }
            if let Err((parcel, receipt)) = exporter.offer(parcel.clone(), ack.flatten()) {
                // The caller may stop waiting, but receipts must not be dropped unresolved, so each parcel
                // waits in its own task. Their number is bounded by the callers.
                let exporter = Arc::clone(exporter);
                waits.push(self.tasks.spawn(async move { exporter.wait(parcel, receipt).await }));
            }
        }
        async move {
            for wait in waits {
                if let Err(error) = wait.await {
                    tracing::error!(%error, "a task that queues a parcel failed");
                }
            }
            takers
        }
    }

    /// Whether any exporter is configured for a signal.
    pub fn takes(&self, signal: Signal) -> bool {
        self.all.iter().any(|e| e.takes(signal))
    }

    /// As [`Exporters::takes`], except exporters whose destination does not accept the signal.
    pub fn delivers(&self, signal: Signal) -> bool {
        self.all.iter().any(|e| e.takes(signal) && !e.unsupported(signal))
    }

    /// `Some(retry delay)` while the queue of a required exporter is full.
    pub fn pressure(&self) -> Option<Duration> {
        self.all.iter().any(|e| e.required() && e.queue.nearly_full()).then_some(PRESSURE_RETRY)
    }

    /// Bytes queued for or being sent to required exporters.
    pub fn required_bytes(&self) -> u64 {
        self.all.iter().filter(|e| e.required()).map(|e| e.queued_bytes()).sum()
    }

    /// Ids of the exporters for any of `signals`, except `excluded`, and whether they are required.
    pub fn takers(&self, signals: &[Signal], excluded: &[String]) -> Vec<(Arc<str>, bool)> {
        let takes = |e: &&Arc<Exporter>| {
            signals.iter().any(|&s| e.takes(s)) && !excluded.iter().any(|id| id == e.id())
        };
        self.all.iter().filter(takes).map(|e| (e.shared_id(), e.required())).collect()
    }

    /// Sets where exporters write what they cannot deliver.
    pub fn set_dead_letters(&self, dead_letters: &Arc<DeadLetters>) {
        self.all.iter().for_each(|exporter| exporter.set_dead_letters(Arc::clone(dead_letters)));
    }

    /// The exporters as telemetry reads them.
    pub fn states(&self) -> impl Iterator<Item = Arc<dyn ExporterState>> {
        self.all.iter().map(|exporter| Arc::clone(exporter) as Arc<dyn ExporterState>)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Exporter>> {
        self.all.iter()
    }

    /// Closes the queues, sends queued parcels until `deadline`, and drops the rest, counted and
    /// logged. Afterwards every item has an outcome.
    pub async fn drain(&self, deadline: Instant) {
        self.all.iter().for_each(|exporter| exporter.queue.close());
        self.tasks.close();
        if tokio::time::timeout_at(deadline, self.tasks.wait()).await.is_err() {
            self.stop.cancel();
            self.tasks.wait().await;
        }
        for exporter in &self.all {
            for job in exporter.queue.purge() {
                exporter.drop_items(
                    job.receipt,
                    DropReason::Shutdown,
                    "not sent before the shutdown deadline",
                );
            }
        }
    }
}

type Start = Box<dyn FnOnce(&TaskTracker, &CancellationToken)>;

/// Opens the files of an exporter; `Start` spawns its consumers.
fn prepare(
    id: &str,
    config: &ExporterConfig,
    context: &RenderContext,
) -> Result<(Arc<Exporter>, Start), StartError> {
    let capacity = |queue: &config::SendingQueue| if queue.enabled { queue.queue_size.0 } else { 0 };
    // The two configurations have these fields in common, but no type.
    macro_rules! otlp {
        ($config:expr, $client:expr) => {{
            let c = $config;
            let exporter = Exporter::new(id, c.required, &c.signals, capacity(&c.sending_queue));
            let otlp = otlp::OtlpConsumer {
                exporter: Arc::clone(&exporter),
                client: $client,
                packing: pack::Packing { compression: c.compression, level: c.compression_params.level },
                max_request: usize::try_from(c.max_request_size.0).unwrap_or(usize::MAX),
                retry: c.retry_on_failure.clone(),
            };
            Ok((exporter, consumers(otlp, c.sending_queue.num_consumers)))
        }};
    }
    match config {
        ExporterConfig::Grpc(c) => otlp!(c, otlp::Client::Grpc(Box::new(grpc::GrpcClient::new(c)?))),
        ExporterConfig::Http(c) => otlp!(c, otlp::Client::Http(Box::new(http::HttpClient::new(c)?))),
        ExporterConfig::File(c) => {
            let exporter = Exporter::new(id, c.required, &c.signals, capacity(&c.sending_queue));
            let lines = file::LineWriter::open(&c.path)
                .map_err(|why| StartError::File { path: c.path.display().to_string(), why })?;
            let (this, retry) = (Arc::clone(&exporter), c.retry_on_failure.clone());
            let start: Start = Box::new(move |tasks, stop| {
                tasks.spawn(file::consume(this, lines, retry, stop.clone()));
            });
            Ok((exporter, start))
        }
        ExporterConfig::Console(c) => {
            let exporter = Exporter::new(id, c.required, &[Signal::Traces], capacity(&c.sending_queue));
            let (this, context, color) = (Arc::clone(&exporter), context.clone(), c.color);
            let start: Start = Box::new(move |tasks, stop| {
                tasks.spawn(console::consume(this, context, color, stop.clone()));
            });
            Ok((exporter, start))
        }
    }
}

fn consumers(otlp: otlp::OtlpConsumer, number: usize) -> Start {
    Box::new(move |tasks, stop| {
        let otlp = Arc::new(otlp);
        for _ in 0..number.max(1) {
            tasks.spawn(Arc::clone(&otlp).consume(stop.clone()));
        }
    })
}
