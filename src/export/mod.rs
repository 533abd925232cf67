//! OTLP out: what stages before it made goes to every exporter, each with its own bounded queue,
//! retries and ledger.
//!
//! In: [`Parcel`]s. Out: requests on the wire, lines in a file, trees on a console; and one
//! outcome per span and exporter.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use verdict_client::ClientError;
use verdict_journal::{DeadLetters, Delivery};
use verdict_otlp::Piece;
use verdict_otlp::Signal;
use verdict_otlp::trace::{Envelope, Kind, TraceId};

mod answer;
mod check;
pub mod config;
pub mod console;
pub mod direct;
mod exporter;
mod file;
mod grpc;
mod http;
mod otlp;
mod pack;
mod queue;
mod retry;
mod split;
#[cfg(test)]
mod tests;

pub use check::Problem;
pub use exporter::{Dropped, Exporter};

use config::{ExporterConfig, ExporterConfigs};

/// What one closed trace (or one passed-through request) gives an exporter.
///
/// Each piece is a legal `Export*ServiceRequest` by itself, and so is the concatenation of any
/// of them: OTLP's requests hold one repeated field, and protobuf joins those by appending.
/// Cloning is cheap: pieces are shared.
#[derive(Clone, Debug)]
pub struct Parcel {
    /// Which service it goes to.
    pub signal: Signal,
    /// Encoded pieces. One larger than the destination takes is split on its way there, at the
    /// price of a copy.
    pub pieces: Vec<Piece>,
    /// The trace, where it is one (console and file exporters keep it together).
    pub trace: Option<TraceId>,
}

impl Parcel {
    /// A request that passes through: counts what it holds, copies nothing.
    pub fn request(signal: Signal, bytes: Bytes) -> Parcel {
        let items = split::count(signal, &bytes);
        Parcel { signal, pieces: vec![Piece { bytes, items }], trace: None }
    }

    /// Bytes of all pieces: what a queue's `sizer: bytes` counts.
    pub fn size(&self) -> usize {
        self.pieces.iter().map(|p| p.bytes.len()).sum()
    }

    /// Items of all pieces.
    pub fn items(&self) -> u64 {
        self.pieces.iter().map(|p| p.items).sum()
    }
}

/// What a span is, from its encoded bytes and what stood around it.
pub type KindOf = Arc<dyn Fn(&[u8], &Envelope) -> Kind + Send + Sync>;

/// What the console exporter must know to read annotated spans.
#[derive(Clone)]
pub struct Look {
    /// Tells kinds.
    pub kind_of: KindOf,
    /// What begins the keys of our attributes (`verdict.`).
    pub prefix: String,
}

/// Is told of every request, for metrics. Called on the exporters' tasks: it must not block.
pub trait Watch: Send + Sync {
    /// A request ended. `status` is one of a fixed set of words: `ok`, a gRPC code in snake case,
    /// `http_503`, `timeout`, `connection`.
    fn request(&self, status: &'static str, took: Duration);
    /// A request is about to be sent once more.
    fn retry(&self);
}

/// An exporter that cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its endpoint, a header or TLS.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The file cannot be opened for appending.
    #[error("path: cannot open {path}: {why}")]
    File {
        /// The file.
        path: String,
        /// Why.
        why: std::io::Error,
    },
    /// `service.exporters` names one that `exporters` does not hold.
    #[error("there is no exporter '{0}'")]
    Unknown(String),
}

/// How long a sender is told to wait while a required exporter is full.
const PRESSURE_WAIT: Duration = Duration::from_secs(1);

/// Every exporter in use.
#[derive(Debug)]
pub struct Exporters {
    all: Vec<Arc<Exporter>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Exporters {
    /// Starts the exporters named by `ids`, each with its consumers, on the current runtime.
    /// Files (certificates, outputs) are opened here; connections are made when first needed.
    ///
    /// # Errors
    /// The first exporter that cannot be started, with its id. Nothing runs then.
    pub fn start(
        configs: &ExporterConfigs,
        ids: &[String],
        look: &Look,
    ) -> Result<Exporters, (String, StartError)> {
        let tasks = TaskTracker::new();
        let stop = CancellationToken::new();
        let mut all = Vec::with_capacity(ids.len());
        let mut starts = Vec::with_capacity(ids.len());
        for id in ids {
            let config = configs.0.get(id).ok_or_else(|| (id.clone(), StartError::Unknown(id.clone())))?;
            let (exporter, start) = prepare(id, config, look).map_err(|e| (id.clone(), e))?;
            all.push(exporter);
            starts.push(start);
        }
        starts.into_iter().for_each(|start| start(&tasks, &stop));
        Ok(Exporters { all, tasks, stop })
    }

    /// Gives a parcel to every exporter that takes its signal. Each gets it at once if it has
    /// room; where required ones have none, this waits until they have. An exporter that is not
    /// required and has none drops it, counted and logged.
    ///
    /// Returns how many exporters take the signal; with 0 the parcel went nowhere.
    pub async fn send(&self, parcel: Parcel) -> usize {
        self.send_record(parcel, None).await
    }

    /// As [`Exporters::send`], for a record of the journal: only to the exporters of the delivery, whose
    /// acknowledgements release the record.
    pub async fn send_record(&self, parcel: Parcel, delivery: Option<&Delivery>) -> usize {
        let mut takers = 0;
        let mut full = Vec::new();
        for exporter in self.all.iter().filter(|e| e.takes(parcel.signal)) {
            takers += 1;
            let ack = delivery.map(|delivery| delivery.ack(exporter.id()));
            // This exporter has delivered the record already.
            if matches!(ack, Some(None)) {
                continue;
            }
            if let Err((parcel, receipt)) = exporter.offer(parcel.clone(), ack.flatten()) {
                full.push((exporter, parcel, receipt));
            }
        }
        // Receipts of those that still wait must outlive a wait that is given up, so each waits
        // in a task of its own; what they wait for is bounded by whoever waits here.
        let waits = full.into_iter().map(|(exporter, parcel, receipt)| {
            let exporter = Arc::clone(exporter);
            self.tasks.spawn(async move { exporter.wait(parcel, receipt).await })
        });
        for wait in waits.collect::<Vec<_>>() {
            if let Err(error) = wait.await {
                tracing::error!(%error, "a parcel was lost on its way into a queue");
            }
        }
        takers
    }

    /// Whether any exporter is configured to take a signal.
    pub fn takes(&self, signal: Signal) -> bool {
        self.all.iter().any(|e| e.takes(signal))
    }

    /// As [`Exporters::takes`], without those whose destination has said that it does not.
    pub fn delivers(&self, signal: Signal) -> bool {
        self.all.iter().any(|e| e.takes(signal) && !e.unsupported(signal))
    }

    /// `Some` while a required exporter has no room: refuse new data, and try again then.
    pub fn pressure(&self) -> Option<Duration> {
        self.all.iter().any(|e| e.required() && e.queue.nearly_full()).then_some(PRESSURE_WAIT)
    }

    /// Bytes that wait for required exporters, or are being sent to them.
    pub fn required_bytes(&self) -> u64 {
        self.all.iter().filter(|e| e.required()).map(|e| e.queued_bytes()).sum()
    }

    /// Ids of those that take any of `signals`, and whether they are required; `but` are left out.
    pub fn takers(&self, signals: &[Signal], but: &[String]) -> Vec<(Arc<str>, bool)> {
        let takes =
            |e: &&Arc<Exporter>| signals.iter().any(|&s| e.takes(s)) && !but.iter().any(|id| id == e.id());
        self.all.iter().filter(takes).map(|e| (e.shared_id(), e.required())).collect()
    }

    /// Sets where exporters write what they cannot deliver.
    pub fn set_dead_letters(&self, dead_letters: &Arc<DeadLetters>) {
        self.all.iter().for_each(|exporter| exporter.set_dead_letters(Arc::clone(dead_letters)));
    }

    /// The exporters, for whoever reports on them.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Exporter>> {
        self.all.iter()
    }

    /// Takes no more, sends what is queued until `deadline`, and drops the rest, counted and
    /// logged. Every item has its outcome afterwards.
    pub async fn drain(&self, deadline: Instant) {
        self.all.iter().for_each(|exporter| exporter.queue.close());
        self.tasks.close();
        if tokio::time::timeout_at(deadline, self.tasks.wait()).await.is_err() {
            self.stop.cancel();
            self.tasks.wait().await;
        }
        for exporter in &self.all {
            for job in exporter.queue.purge() {
                exporter.drop_items(job.receipt, Dropped::Shutdown, "no time left to send them");
            }
        }
    }
}

type Start = Box<dyn FnOnce(&TaskTracker, &CancellationToken)>;

/// Opens what an exporter needs; `Start` sets its consumers going.
fn prepare(id: &str, config: &ExporterConfig, look: &Look) -> Result<(Arc<Exporter>, Start), StartError> {
    let room = |queue: &config::SendingQueue| if queue.enabled { queue.queue_size.0 } else { 0 };
    match config {
        ExporterConfig::Grpc(c) => {
            let exporter = Exporter::new(id, c.required, &c.signals, room(&c.sending_queue));
            let otlp = otlp::Otlp {
                exporter: Arc::clone(&exporter),
                client: otlp::Client::Grpc(Box::new(grpc::GrpcClient::new(c)?)),
                packing: pack::Packing { compression: c.compression, level: c.compression_params.level },
                max_request: usize::try_from(c.max_request_size.0).unwrap_or(usize::MAX),
                retry: c.retry_on_failure.clone(),
            };
            Ok((exporter, consumers(otlp, c.sending_queue.num_consumers)))
        }
        ExporterConfig::Http(c) => {
            let exporter = Exporter::new(id, c.required, &c.signals, room(&c.sending_queue));
            let otlp = otlp::Otlp {
                exporter: Arc::clone(&exporter),
                client: otlp::Client::Http(Box::new(http::HttpClient::new(c)?)),
                packing: pack::Packing { compression: c.compression, level: c.compression_params.level },
                max_request: usize::try_from(c.max_request_size.0).unwrap_or(usize::MAX),
                retry: c.retry_on_failure.clone(),
            };
            Ok((exporter, consumers(otlp, c.sending_queue.num_consumers)))
        }
        ExporterConfig::File(c) => {
            let exporter = Exporter::new(id, c.required, &c.signals, room(&c.sending_queue));
            let lines = file::Lines::open(&c.path)
                .map_err(|why| StartError::File { path: c.path.display().to_string(), why })?;
            let (this, retry) = (Arc::clone(&exporter), c.retry_on_failure.clone());
            let start: Start = Box::new(move |tasks, stop| {
                tasks.spawn(file::consume(this, lines, retry, stop.clone()));
            });
            Ok((exporter, start))
        }
        ExporterConfig::Console(c) => {
            let exporter = Exporter::new(id, c.required, &[Signal::Traces], room(&c.sending_queue));
            let (this, look, color) = (Arc::clone(&exporter), look.clone(), c.color);
            let start: Start = Box::new(move |tasks, stop| {
                tasks.spawn(console::consume(this, look, color, stop.clone()));
            });
            Ok((exporter, start))
        }
    }
}

fn consumers(otlp: otlp::Otlp, number: usize) -> Start {
    Box::new(move |tasks, stop| {
        let otlp = Arc::new(otlp);
        for _ in 0..number.max(1) {
            tasks.spawn(Arc::clone(&otlp).consume(stop.clone()));
        }
    })
}

/// Where a signal's things stand in arrays of three.
fn slot(signal: Signal) -> usize {
    match signal {
        Signal::Traces => 0,
        Signal::Logs => 1,
        Signal::Metrics => 2,
    }
}
