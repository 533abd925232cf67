//! Sends OTLP to every exporter, each with its own bounded queue, retries and ledger.
//!
//! In: [`Parcel`]s. Out: requests to destinations, lines in a file, trees on a console, and one outcome per span and
//! exporter.
//!
//! | file | content |
//! |---|---|
//! | `config`, `kafka_config`, `queue_config`, `webhook_config`, `check` | the section `exporters`, and its validation |
//! | `exporter`, `queue`, `parcel` | one running exporter: its queue of parcels |
//! | `consumer`, `pack`, `split`, `retry` | requests of queued parcels; requests that are too large; delays between attempts |
//! | `held_events` | evaluation events that wait for their spans |
//! | `client`, `response`, `error` | the interface of a destination, the result of a request, errors at start |
//! | `grpc`, `http` | OTLP |
//! | `kafka`, `file`, `console` | a topic, a file, a terminal |
//! | `scores`, `webhook`, `api` | scores of observability back ends; alerts; HTTP requests for both |
//! | `direct` | a client without a queue, for `replay` |

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

mod api;
mod check;
mod client;
pub mod config;
pub mod console;
mod consumer;
pub mod direct;
mod error;
mod exporter;
mod file;
mod grpc;
mod held_events;
mod http;
#[cfg(feature = "kafka")]
mod kafka;
mod kafka_config;
mod pack;
mod parcel;
mod queue;
mod response;
mod retry;
mod scores;
mod queue_config;
mod split;
#[cfg(test)]
mod tests;
mod webhook;
mod webhook_config;

pub use client::{ExportClient, ExportClients, ExportFuture};
pub use error::StartError;
pub use exporter::Exporter;
pub use pack::ExportRequest;
pub use parcel::{Parcel, ParcelSource};
pub use response::{ExportResponse, ExportResult};
pub use scores::Normalize;

use client::ReloadableClient;
use config::{ExporterConfig, ExporterConfigs, Packing, RetryOnFailure};
use console::{ConsoleClient, RecogniseTree};
use consumer::{Consumer, RequestGrouping};
use exporter::HoldCondition;
use file::FileClient;
use grpc::GrpcClient;
use held_events::{Holders, SpanDeliveries};
use http::HttpClient;
use scores::ScoresClient;
use webhook::{RecentAlerts, WebhookClient};

/// Retry delay for senders while the queue of a required exporter is full.
const PRESSURE_RETRY: Duration = Duration::from_secs(1);

/// The parts of the process that exporters use.
pub struct ExportContext {
    /// Recognises traces, for the console.
    pub recognise: RecogniseTree,
    /// Prefix of the keys of verdict attributes (`verdict.`).
    pub prefix: String,
    /// Clients of exporters of type `custom`.
    pub clients: ExportClients,
    /// Scales the scores of metrics, for exporters of type `scores`.
    pub normalize: Normalize,
    /// Largest queue of an exporter that is not required, in bytes.
    pub max_best_effort: u64,
}

impl ExportContext {
    /// A context without clients of the embedding program, and without a limit on queues.
    pub fn new(recognise: RecogniseTree, prefix: &str) -> ExportContext {
        let clients = ExportClients::new();
        let normalize: Normalize = Arc::new(|_, _| None);
        ExportContext { recognise, prefix: prefix.to_owned(), clients, normalize, max_best_effort: u64::MAX }
    }

    /// A context that recognises nothing in a trace.
    #[cfg(test)]
    pub(crate) fn for_test() -> ExportContext {
        let recognise = |tree| verdict_eval::annotation::RenderedTrace { tree, ..Default::default() };
        ExportContext::new(Arc::new(recognise), "verdict.")
    }
}

/// All exporters in use.
pub struct Exporters {
    all: Vec<Arc<Exporter>>,
    /// In the order of `all`.
    clients: Vec<Arc<ReloadableClient>>,
    /// As in [`ExportContext`], for clients that a reload creates again.
    prefix: String,
    normalize: Normalize,
    tasks: TaskTracker,
    holders: Holders,
    stop: CancellationToken,
}

impl std::fmt::Debug for Exporters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exporters").field("all", &self.all).finish_non_exhaustive()
    }
}

impl Exporters {
    /// Starts the exporters named by `ids` with their consumers on the current runtime. Opens files
    /// (certificates, outputs). Clients connect with the first request.
    ///
    /// # Errors
    /// The id of the first exporter that cannot be started, and the reason. No exporter runs then.
    pub fn start(
        configs: &ExporterConfigs,
        ids: &[String],
        context: &ExportContext,
    ) -> Result<Exporters, (String, StartError)> {
        let followed: Vec<Option<String>> =
            ids.iter().map(|id| configs.followed_exporter(id, ids).ok().flatten()).collect();
        let prepare = |(id, after): (&String, &Option<String>)| {
            let config = configs.0.get(id).ok_or_else(|| StartError::Unknown(id.clone()));
            let is_followed = followed.iter().flatten().any(|followed| followed == id);
            let order = DeliveryOrder { after: after.as_deref().map(Into::into), is_followed };
            config.and_then(|config| prepare(id, config, order, context)).map_err(|error| (id.clone(), error))
        };
        let prepared = ids.iter().zip(&followed).map(prepare).collect::<Result<Vec<_>, _>>()?;
        Ok(Exporters::run(prepared, context))
    }

    /// Spawns the consumers.
    fn run(prepared: Vec<(Consumer, usize)>, context: &ExportContext) -> Exporters {
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let (prefix, normalize) = (context.prefix.clone(), Arc::clone(&context.normalize));
        let spawn = |(consumer, task_count): (Consumer, usize)| {
            let consumer = Arc::new(consumer);
            for _ in 0..task_count {
                tasks.spawn(Arc::clone(&consumer).consume(stop.clone()));
            }
            (Arc::clone(&consumer.exporter), Arc::clone(&consumer.client))
        };
        let (all, clients) = prepared.into_iter().map(spawn).unzip();
        Exporters { all, clients, prefix, normalize, tasks, holders: Holders::default(), stop }
    }

    /// Creates new clients for the exporters whose headers or passwords differ between two configurations, or whose
    /// certificates are in files, which may have changed. After an error the current client stays in use.
    pub fn renew(&self, old: &ExporterConfigs, new: &ExporterConfigs) {
        for (exporter, client) in self.all.iter().zip(&self.clients) {
            let (old, new) = (old.0.get(exporter.id()), new.0.get(exporter.id()));
            let renewed = match new.filter(|new| old != Some(new) || new.files().next().is_some()) {
                Some(ExporterConfig::Grpc(c)) => {
                    GrpcClient::new(c).map(|c| Arc::new(c) as Arc<dyn ExportClient>)
                }
                Some(ExporterConfig::Http(c)) => HttpClient::new(c).map(|c| Arc::new(c) as _),
                Some(ExporterConfig::Scores(c)) => {
                    ScoresClient::new(c, &self.prefix, &self.normalize).map(|c| Arc::new(c) as _)
                }
                #[cfg(feature = "kafka")]
                Some(ExporterConfig::Kafka(c)) => {
                    kafka::KafkaClient::new(exporter.id(), c).map(|c| Arc::new(c) as _)
                }
                Some(ExporterConfig::Webhook(c)) => {
                    let Some(recent) = &exporter.alerts else { continue };
                    let client = WebhookClient::new(c, &self.prefix, Arc::clone(recent));
                    client.map(|c| Arc::new(c) as _).map_err(StartError::from)
                }
                _ => continue,
            };
            match renewed {
                Ok(renewed) => client.replace(renewed),
                Err(error) => {
                    let exporter = exporter.id();
                    tracing::error!(exporter, %error, "cannot renew the client; the current one stays in use");
                }
            }
        }
    }

    /// Opens the files of exporters again, since log rotation may have renamed them.
    pub fn reopen(&self) {
        self.clients.iter().for_each(|client| client.reopen());
    }

    /// Queues a parcel at every exporter configured for its signal. The future waits for space in the
    /// queues of required exporters; dropping it loses no item. An exporter that is not required drops the
    /// parcel if its queue is full, counted and logged.
    ///
    /// Returns the number of exporters configured for the signal; with 0 the parcel is discarded.
    ///
    /// A stored record has a `delivery`: the parcel is sent only to the exporters of the delivery, whose
    /// acknowledgements release the record.
    pub fn send_record(
        &self,
        parcel: Parcel,
        delivery: Option<&Delivery>,
    ) -> impl Future<Output = usize> + use<> {
        self.send(parcel, delivery, &mut SpanDeliveries::default())
    }

    /// Like [`Exporters::send_record`], for the spans of a trace and then its evaluation events.
    pub fn send_trace(
        &self,
        parcels: [Option<Parcel>; 2],
        delivery: Option<&Delivery>,
    ) -> impl Future<Output = ()> + use<> {
        let mut spans = SpanDeliveries::default();
        let waits = parcels.map(|parcel| Some(self.send(parcel?, delivery, &mut spans)));
        async move {
            for wait in waits.into_iter().flatten() {
                wait.await;
            }
        }
    }

    fn send(
        &self,
        parcel: Parcel,
        delivery: Option<&Delivery>,
        spans: &mut SpanDeliveries,
    ) -> impl Future<Output = usize> + use<> {
        let mut accepting = 0;
        let mut waits = Vec::new();
        for exporter in self.all.iter().filter(|e| e.accepts_parcel(&parcel)) {
            accepting += 1;
            let ack = delivery.map(|delivery| delivery.ack(exporter.id()));
            // The exporter has delivered the record already.
            if matches!(ack, Some(None)) {
                continue;
            }
            let receipt = spans.observe(exporter, &parcel, exporter.receipt(&parcel, ack.flatten()));
            let followed = spans.followed_by(exporter);
            match exporter.admit(parcel.clone(), receipt) {
                Ok(None) => {}
                Ok(Some(job)) if exporter.hold.is_some() => {
                    self.holders.hold(exporter, job, followed, &self.stop);
                }
                Ok(Some(job)) => exporter.enqueue(job),
                // The caller may stop waiting, but a receipt must not be dropped unresolved, so that each parcel waits
                // in a task of its own. The callers bound the number of these tasks.
                Err(waiting) if exporter.hold.is_some() => {
                    waits.push(self.holders.hold_when_admitted(exporter, waiting, followed, &self.stop));
                }
                Err((parcel, receipt)) => {
                    let exporter = Arc::clone(exporter);
                    let wait = async move {
                        if let Some(job) = exporter.admit_when_free(parcel, receipt).await {
                            exporter.enqueue(job);
                        }
                    };
                    waits.push(self.tasks.spawn(wait));
                }
            }
        }
        async move {
            for wait in waits {
                if let Err(error) = wait.await {
                    tracing::error!(%error, "a task that queues a parcel failed");
                }
            }
            accepting
        }
    }

    /// Whether any exporter is configured for a signal.
    pub fn accepts(&self, signal: Signal) -> bool {
        self.all.iter().any(|e| e.accepts(signal))
    }

    /// Like [`Exporters::accepts`], except exporters whose destination does not accept the signal at present.
    pub fn delivers(&self, signal: Signal) -> bool {
        self.all.iter().any(|e| e.accepts(signal) && !e.is_unsupported(signal))
    }

    /// `Some(retry delay)` while the queue of a required exporter is full.
    pub fn pressure(&self) -> Option<Duration> {
        self.all.iter().any(|e| e.required && e.queue.is_nearly_full()).then_some(PRESSURE_RETRY)
    }

    /// Bytes queued for or being sent to required exporters.
    pub fn required_bytes(&self) -> u64 {
        self.all.iter().filter(|e| e.required).map(|e| e.queued_bytes()).sum()
    }

    /// Ids of the exporters for any of `parcels`, except `excluded`, and whether they are required.
    pub fn exporters_for<'p>(
        &self,
        parcels: impl IntoIterator<Item = &'p Parcel> + Clone,
        excluded: &[String],
    ) -> Vec<(Arc<str>, bool)> {
        let accepts = |e: &&Arc<Exporter>| {
            parcels.clone().into_iter().any(|parcel| e.accepts_parcel(parcel))
                && !excluded.iter().any(|id| id == e.id())
        };
        self.all.iter().filter(accepts).map(|e| (Arc::clone(&e.id), e.required)).collect()
    }

    /// Sets where exporters write requests that they cannot deliver.
    pub fn set_dead_letters(&self, dead_letters: &Arc<DeadLetters>) {
        self.all.iter().for_each(|exporter| exporter.set_dead_letters(Some(Arc::clone(dead_letters))));
    }

    /// The exporters as telemetry reads them.
    pub fn states(&self) -> impl Iterator<Item = Arc<dyn ExporterState>> {
        self.all.iter().map(|exporter| Arc::clone(exporter) as Arc<dyn ExporterState>)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Exporter>> {
        self.all.iter()
    }

    /// Closes the queues, sends queued parcels until `deadline`, and drops the remaining ones, counted and logged.
    /// Afterwards every item has an outcome.
    pub async fn drain(&self, deadline: Instant) {
        // Queues of exporters that hold events back close after the held events are queued.
        let close = |holds_events: bool| {
            let exporters = self.all.iter().filter(move |exporter| exporter.hold.is_some() == holds_events);
            exporters.for_each(|exporter| exporter.queue.close());
        };
        close(false);
        self.holders.shutdown.cancel();
        self.holders.tasks.close();
        let sent = async {
            self.holders.tasks.wait().await;
            close(true);
            self.tasks.close();
            self.tasks.wait().await;
        };
        if tokio::time::timeout_at(deadline, sent).await.is_err() {
            self.stop.cancel();
            close(true);
            self.tasks.close();
            self.holders.tasks.wait().await;
            self.tasks.wait().await;
        }
        for exporter in &self.all {
            for job in exporter.queue.purge() {
                exporter.drop_items(job.receipt, DropReason::Shutdown, consumer::NOT_SENT);
            }
        }
    }
}

/// The order of an exporter's deliveries and those of others.
struct DeliveryOrder {
    /// The exporter whose delivery of the spans comes first.
    after: Option<Arc<str>>,
    /// Whether other exporters wait for the deliveries of this one.
    is_followed: bool,
}

/// Creates an exporter, and opens its files. Returns the shared state and the number of its consumers.
fn prepare(
    id: &str,
    config: &ExporterConfig,
    order: DeliveryOrder,
    context: &ExportContext,
) -> Result<(Consumer, usize), StartError> {
    let mut alerts = None;
    let client: Arc<dyn ExportClient> = match config {
        ExporterConfig::Grpc(c) => Arc::new(GrpcClient::new(c)?),
        ExporterConfig::Http(c) => Arc::new(HttpClient::new(c)?),
        ExporterConfig::File(c) => {
            let opened = FileClient::open(c);
            Arc::new(opened.map_err(|error| StartError::File { path: c.path.display().to_string(), error })?)
        }
        ExporterConfig::Console(c) => Arc::new(ConsoleClient::new(&context.recognise, &context.prefix, c)),
        ExporterConfig::Scores(c) => Arc::new(ScoresClient::new(c, &context.prefix, &context.normalize)?),
        #[cfg(feature = "kafka")]
        ExporterConfig::Kafka(c) => Arc::new(kafka::KafkaClient::new(id, c)?),
        #[cfg(not(feature = "kafka"))]
        ExporterConfig::Kafka(_) => {
            return Err(StartError::Kafka(crate::kafka::FEATURE_MISSING.to_owned()));
        }
        ExporterConfig::Webhook(c) => {
            let recent = alerts.insert(Arc::new(RecentAlerts::new(*c.repeat, c.max_per_minute)));
            Arc::new(WebhookClient::new(c, &context.prefix, Arc::clone(recent))?)
        }
        ExporterConfig::Custom(_) => Arc::clone(context.clients.get(id).ok_or(StartError::Unregistered)?),
    };
    let (required, queue) = config.queue();
    let mut capacity = if queue.enabled { queue.queue_size.0 } else { 0 };
    if !required && capacity > context.max_best_effort {
        capacity = context.max_best_effort;
        tracing::info!(
            exporter = id,
            bytes = capacity,
            "sending_queue is limited to an eighth of memory.budget, since the exporter is not required"
        );
    }
    let (signals, retry) = match config.sending() {
        Some((signals, retry)) => (signals, retry.clone()),
        None => (&[Signal::Traces][..], RetryOnFailure { enabled: false, ..RetryOnFailure::default() }),
    };
    let mut exporter = Exporter::new(id, required, signals, capacity);
    exporter.is_followed = order.is_followed;
    if let ExporterConfig::Scores(c) = config {
        exporter.hold = Some(HoldCondition { after: order.after, delay: *c.delay });
    }
    exporter.reads_verdicts = exporter.hold.is_some() || alerts.is_some();
    exporter.alerts = alerts;
    let exporter = Arc::new(exporter);
    if let ExporterConfig::Console(_) = config {
        // Traces that cannot be printed do not become dead letters.
        exporter.set_dead_letters(None);
    }
    let (timeout, grouping, consumers) = match config.limits() {
        // The client has a timeout of its own. Pieces are not joined, since most of them are a message of their own.
        _ if matches!(config, ExporterConfig::Kafka(_)) => {
            (Duration::MAX, RequestGrouping::PerBatch, queue.num_consumers.max(1))
        }
        Some((timeout, max_size)) => {
            let max_bytes = usize::try_from(max_size.0).unwrap_or(usize::MAX);
            let grouping = match config {
                ExporterConfig::Scores(_) => RequestGrouping::PiecesUpTo(max_bytes),
                _ => RequestGrouping::UpTo(max_bytes),
            };
            (*timeout, grouping, queue.num_consumers.max(1))
        }
        // One consumer preserves the order of lines. One fsync serves all waiting parcels.
        None => (Duration::MAX, RequestGrouping::PerBatch, 1),
    };
    let packing = config.connection().map_or(Packing::UNCOMPRESSED, |(.., packing)| packing);
    // A request of `scores` or `webhook` is sent as several HTTP requests, each with the timeout.
    let timeout = if exporter.reads_verdicts { Duration::MAX } else { timeout };
    let client = ReloadableClient::new(client, timeout);
    Ok((Consumer { exporter, client, packing, grouping, retry }, consumers))
}
