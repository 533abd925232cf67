//! The service: receivers, pipeline, exporters and the admin endpoint, with reload and graceful shutdown.
//! `run`, `demo` and the tests start the same service.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::FutureExt as _;
use futures_util::future::OptionFuture;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use verdict_eval::annotation::RenderedTrace;
use verdict_journal::{self as journal, Attempts, DeadLetters, Journal, Recovered};
use verdict_judge::Judges;
use verdict_otlp::Signal;
use verdict_otlp::trace::TraceId;
use verdict_telemetry::{JudgeMetrics, LogThrottle};

use super::Pipeline;
use super::ask_judges::Panel;
use super::budget::Budget;
use super::delivery::DeliveryMode;
use super::error::Error;
use super::meter::Meter;
use super::page::PageState;
use super::queried_runs::QueriedRuns;
use super::runtime_config::RuntimeConfig;
use super::shared::Shared;
use crate::admin::{self, Health, Readiness};
use crate::config::Config;
use crate::export::{ExportContext, Exporter, Exporters};
use crate::extensions::Extensions;
use crate::outcome::{DropReason, Outcome};
use crate::page::history::{History, HistoryFeed};
use crate::page::server::{BoundPage, PageSource};
use crate::receive::listen::Listener;
use crate::receive::paths::{BoundPaths, PathDecider};
use crate::receive::{self, Intake};
use crate::reservation::ByteLimit;
use crate::telemetry::{ExporterState, Telemetry};

/// Share of the shutdown time for requests in flight: most are answered in milliseconds, and a slow sender
/// must not use up the time that accepted spans need.
const RECEIVING_SHARE: f64 = 0.2;
/// Share of the remaining time for closing traces; the rest is for sending them.
const CLOSING_SHARE: f64 = 0.5;
/// How often [`Service::failed`] looks for a failure: senders are refused meanwhile.
const FAILURE_INTERVAL: Duration = Duration::from_millis(250);
/// How often what judges have spent is written, if it has changed: a crash forgets the spending since then.
const SPENDING_INTERVAL: Duration = Duration::from_secs(2);
/// The timeout of steps that normally end at once.
const LAST_STEPS: Duration = Duration::from_secs(2);

/// A running process.
#[derive(Debug)]
pub struct Service {
    /// Where OTLP/gRPC is received.
    pub grpc: Option<SocketAddr>,
    /// Where OTLP/HTTP is received.
    pub http: Option<SocketAddr>,
    /// Where `/livez`, `/readyz` and `/metrics` are served.
    pub admin: Option<SocketAddr>,
    /// Where `/v1/paths/next` is answered.
    pub paths: Option<SocketAddr>,
    /// Where the live page is served.
    pub page: Option<SocketAddr>,
    /// The current configuration and its judges.
    current: Arc<Mutex<(Config, Option<Judges>)>>,
    extensions: Extensions,
    pipeline: Arc<Pipeline>,
    exporters: Arc<Exporters>,
    journal: Option<Arc<Journal>>,
    telemetry: Arc<Telemetry>,
    readiness: Arc<Readiness>,
    receiving: Tasks,
    background: Tasks,
    /// Writes what judges have spent.
    spending: Tasks,
}

/// The effect of a new configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reloaded {
    /// Keys whose new value is applied.
    pub changed: Vec<String>,
    /// Keys whose new value needs a restart.
    pub waiting: Vec<String>,
}

/// Tasks that end when `stop` is cancelled.
#[derive(Debug, Default)]
struct Tasks {
    stop: CancellationToken,
    tasks: JoinSet<()>,
    /// One of them panicked: the process must end.
    failed: Arc<AtomicBool>,
}

impl Tasks {
    fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        let failed = Arc::clone(&self.failed);
        self.tasks.spawn(async move {
            if AssertUnwindSafe(task).catch_unwind().await.is_err() {
                tracing::error!("a task of the service panicked, and the process ends. This is a bug");
                failed.store(true, Ordering::Relaxed);
            }
        });
    }

    /// Cancels them, and aborts those that have not ended after `within`. False if there were any.
    async fn end(&mut self, within: Duration) -> bool {
        self.stop.cancel();
        let all_ended = async { while self.tasks.join_next().await.is_some() {} };
        let ended = tokio::time::timeout(within, all_ended).await.is_ok();
        self.tasks.abort_all();
        ended
    }
}

impl Service {
    /// As [`Service::start_with`], with the built-in metrics, judges and exporters alone.
    ///
    /// # Errors
    /// As [`Service::start_with`].
    pub async fn start(config: &Config) -> Result<Service, Error> {
        Service::start_with(config, Extensions::default()).await
    }

    /// Binds the listeners, serves the admin endpoint, recovers the journal, starts every stage and serves
    /// the receivers. `extensions` apply until the service stops, also after [`Service::reload`].
    ///
    /// # Errors
    /// An address cannot be bound, an exporter or the journal cannot be opened, or the configuration or an
    /// extension cannot be used. Nothing runs then.
    pub async fn start_with(config: &Config, extensions: Extensions) -> Result<Service, Error> {
        let telemetry = Telemetry::new();
        telemetry.agents.limit(config.admin.agent_series as usize);
        let budget = Budget::new(config.memory.budget, &telemetry.traces);
        telemetry.memory_budget.set(i64::try_from(budget.limit()).unwrap_or(i64::MAX));
        let bound = receive::bind(&config.receivers.otlp).await?.with_in_flight_limit(budget.for_reading());
        let admin = Listener::bind(&config.admin.endpoint).await?;
        let paths = config.verdict.paths_api.as_ref().map(BoundPaths::bind);
        let paths = OptionFuture::from(paths).await.transpose()?;
        let page = OptionFuture::from(config.page.as_ref().map(BoundPage::bind)).await.transpose()?;
        let judges = judges(config, &extensions, None, &telemetry.judge)?;
        let runtime_config = RuntimeConfig::new(&config.verdict, &extensions, panel(&judges))?;
        let runtime_config = Arc::new(ArcSwap::from_pointee(runtime_config));
        let exporters = Arc::new(exporters(config, &extensions, &budget, &runtime_config)?);
        telemetry.export.register_exporters(exporters.states());
        let phase = if config.storage.directory.is_some() { "recovering the journal" } else { "starting" };
        let readiness = Arc::new(Readiness::new(phase));
        let (mut receiving, mut background) = (Tasks::default(), Tasks::default());
        let stop = background.stop.clone();
        let admin_addr = Some(admin.addr);
        // First, since recovery may take minutes: a process that answers no probe is killed.
        let probes = admin::serve(admin, Arc::clone(&telemetry), Arc::clone(&readiness), stop.clone());
        background.spawn(probes);
        let opened = open_journal(config, &telemetry).await?;
        restore_spending(config, &judges);
        // Before the journal is recovered, since judges are asked about recovered traces.
        let current = Arc::new(Mutex::new((config.clone(), judges)));
        let mut spending = Tasks::default();
        if let Some(file) = spending_file(config) {
            spending.spawn(save_spending(Arc::clone(&current), file, spending.stop.clone()));
        }
        let dead_letters = open_dead_letters(config, &telemetry, &exporters)?;
        let meter = Meter::new(Arc::clone(&telemetry), runtime_config.load().evaluator.added_rows());
        let delivery = DeliveryMode(config.verdict.mode);
        let mut shared = Shared::new(runtime_config, Arc::clone(&exporters), delivery, meter, budget);
        if let Some((journal, attempts, _)) = &opened {
            (shared.store, shared.attempts) = (Box::new(Arc::clone(journal)), Arc::clone(attempts));
        }
        shared.queried_runs = paths.is_some().then(QueriedRuns::new);
        let history = config.page.as_ref().map(|page| Arc::new(History::new(page, telemetry.page.clone())));
        if let Some(history) = &history {
            let (feed, judged) = HistoryFeed::new(Arc::clone(history));
            shared.page = Some(feed);
            background.spawn(Arc::clone(history).fill(judged, stop.clone()));
        }
        let pipeline = Pipeline::start(shared, &config.verdict.evaluation.prefix);
        readiness.watch(Parts {
            pipeline: Arc::clone(&pipeline),
            reading: bound.in_flight(&telemetry),
            tasks: [&receiving, &background, &spending].map(|tasks| Arc::clone(&tasks.failed)),
        });
        let mut journal = None;
        if let Some((opened, _, recovered)) = opened {
            pipeline.recover(&opened, recovered).await;
            journal = Some(opened);
        }
        let (grpc, http) = (bound.grpc_addr(), bound.http_addr());
        let intake: Arc<dyn Intake> = Arc::clone(&pipeline) as Arc<dyn Intake>;
        let grace = *config.service.shutdown_timeout;
        receiving.spawn(bound.serve(intake, Arc::clone(&telemetry), receiving.stop.clone(), grace));
        let paths_addr = paths.as_ref().map(BoundPaths::addr);
        if let Some(paths) = paths {
            if !pipeline.shared.config.load().evaluator.has_tasks() {
                tracing::warn!(
                    "verdict.paths_api answers nothing until metrics.path.tasks names a task file"
                );
            }
            let decider: Arc<dyn PathDecider> = Arc::clone(&pipeline) as Arc<dyn PathDecider>;
            receiving.spawn(paths.serve(decider, receiving.stop.clone(), grace));
        }
        let page_addr = page.as_ref().map(BoundPage::addr);
        if let Some((page, history)) = page.zip(history) {
            let state = PageState::new(
                Arc::clone(&pipeline),
                Arc::clone(&exporters),
                Arc::clone(&telemetry),
                Arc::clone(&readiness),
                Arc::clone(&current),
            );
            let source: Arc<dyn PageSource> = Arc::new(state);
            receiving.spawn(page.serve(history, source, receiving.stop.clone(), grace));
        }
        if let Some(dead_letters) = dead_letters {
            background.spawn(dead_letters.expire_loop(*config.storage.retention, stop));
        }
        readiness.serving();
        Ok(Service {
            grpc,
            http,
            admin: admin_addr,
            paths: paths_addr,
            page: page_addr,
            current,
            extensions,
            pipeline,
            exporters,
            journal,
            telemetry,
            readiness,
            receiving,
            background,
            spending,
        })
    }

    /// Self-metrics of this process.
    pub fn telemetry(&self) -> &Arc<Telemetry> {
        &self.telemetry
    }

    /// Applies the settings of `new` that a running service can apply. Buffered spans stay buffered: traces
    /// that close from now on are evaluated by the new settings, and traces that open from now on close by
    /// them.
    ///
    /// # Errors
    /// The conventions in `verdict.recognise` contradict each other, or a task file or a judge cannot be
    /// used. Nothing changes then.
    pub fn reload(&self, new: &Config) -> Result<Reloaded, Error> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let (config, before) = &mut *current;
        let taken = config.taking(new);
        // Judges come last: with them, the new limits of shared budgets and caches apply.
        let applied = RuntimeConfig::new(&taken.verdict, &self.extensions, None).and_then(|mut new| {
            let judges = judges(&taken, &self.extensions, before.as_ref(), &self.telemetry.judge)?;
            if before.is_none() {
                restore_spending(&taken, &judges);
            }
            new.panel = panel(&judges);
            self.pipeline.shared.meter.add(new.evaluator.added_rows());
            self.pipeline.shared.config.store(Arc::new(new));
            Ok(judges)
        });
        self.telemetry.reloaded(applied.is_ok());
        *before = applied?;
        self.exporters.renew(&config.exporters, &taken.exporters);
        let reloaded = Reloaded { changed: config.differences(&taken), waiting: taken.differences(new) };
        *config = taken;
        Ok(reloaded)
    }

    /// Opens the files that exporters write again, after log rotation has renamed them.
    pub fn reopen_files(&self) {
        self.exporters.reopen();
    }

    /// The current configuration.
    pub fn config(&self) -> Config {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// Waits until a part of the service has failed for good, and returns which. The process should stop the
    /// service then and end: a new process recovers what the journal holds.
    pub async fn failed(&self) -> &'static str {
        loop {
            match self.readiness.failures().first() {
                Some(part) => return part,
                None => tokio::time::sleep(FAILURE_INTERVAL).await,
            }
        }
    }

    /// Closes every open trace now, and returns when it is in the exporters' queues.
    pub async fn flush(&self) {
        self.pipeline.flush().await;
    }

    /// Stops accepting requests, closes and exports open traces, and ends. Items that could not be sent
    /// within this time are dropped, counted and logged; their number is returned. With a journal, open
    /// traces and unsent items stay there for the next start.
    pub async fn stop(mut self, within: Duration) -> u64 {
        let before = unsent(&self.exporters);
        let deadline = Instant::now() + within;
        self.readiness.stopping();
        self.pipeline.shared.attempts.close();
        let left = || deadline.saturating_duration_since(Instant::now());
        if !self.receiving.end(left().mul_f64(RECEIVING_SHARE)).await {
            tracing::warn!("requests in flight were aborted at shutdown; their senders have to retry");
        }
        if !self.pipeline.shutdown(left().mul_f64(CLOSING_SHARE)).await {
            tracing::warn!(
                "closing open traces takes longer than its share of the shutdown time; the exporters are stopped meanwhile"
            );
        }
        self.exporters.drain(deadline).await;
        // Parcels that waited for room in a queue are dropped and counted by now.
        let mut lost = 0;
        let ended = self.pipeline.ended(LAST_STEPS).await;
        if !ended || (self.journal.is_none() && !self.pipeline.failures().is_empty()) {
            lost = u64::try_from(self.telemetry.traces.buffered_spans.get()).unwrap_or(0);
            if lost > 0 {
                tracing::error!(spans = lost, "spans of open traces were dropped at shutdown");
            }
        }
        // While the journal's lock keeps other processes out of the directory.
        self.spending.end(LAST_STEPS).await;
        if let Some(journal) = &self.journal {
            // Open traces are in the journal.
            lost = 0;
            // A disk that does not respond must not keep the process running.
            let limit = deadline.max(Instant::now() + LAST_STEPS);
            if tokio::time::timeout_at(limit, journal.close()).await.is_err() {
                tracing::error!(
                    "the journal could not be closed in time; the next start recovers the records that were written"
                );
            }
        }
        self.background.end(LAST_STEPS).await;
        unsent(&self.exporters) - before + lost
    }
}

/// How long the service is not ready after a request was refused although its sender had used little memory:
/// longer than the usual interval of probes.
const OVERLOADED: Duration = Duration::from_secs(10);

/// The state that readiness depends on.
#[derive(Debug)]
struct Parts {
    pipeline: Arc<Pipeline>,
    /// Requests that are being read.
    reading: ByteLimit,
    /// Whether a listener or another task of the service has panicked.
    tasks: [Arc<AtomicBool>; 3],
}

impl Health for Parts {
    fn failures(&self) -> Vec<&'static str> {
        let tasks = self.tasks.iter().any(|failed| failed.load(Ordering::Relaxed));
        let tasks = tasks.then_some("a listener or another task of the service has failed");
        self.pipeline.failures().into_iter().chain(tasks).collect()
    }

    fn overloads(&self) -> Vec<&'static str> {
        // One sender alone can use up its own share, and is refused then.
        let reading = "overloaded: the memory for requests in flight is used up";
        let reading = self.reading.was_exhausted(OVERLOADED).then_some(reading);
        self.pipeline.overloads().map(|(_, cause)| cause).chain(reading).collect()
    }
}

/// Items that the exporters dropped or lost, except those of a signal that the destination does not
/// support: these are logged once, and the delivery of spans does not depend on them.
fn unsent(exporters: &Exporters) -> u64 {
    let of = |exporter: &Arc<Exporter>| {
        let count = |outcome| exporter.ledger().count(outcome);
        (count(Outcome::Dropped) + count(Outcome::Lost))
            .saturating_sub(exporter.dropped(DropReason::Unsupported))
    };
    exporters.iter().map(of).sum()
}

/// The judges, if any metric names one. A reload keeps the budgets spent and the caches of `before`.
pub(super) fn judges(
    config: &Config,
    extensions: &Extensions,
    before: Option<&Judges>,
    metrics: &JudgeMetrics,
) -> Result<Option<Judges>, Error> {
    let mut asked = config.verdict.evaluation.named_judges().next().is_some();
    for metric in &extensions.metrics {
        for judge in metric.named_judges() {
            asked = true;
            if !config.has_judge(judge) && !extensions.judges.provides(judge) {
                return Err(Error::UnknownJudge { metric: metric.row.name, judge: judge.to_owned() });
            }
        }
    }
    if !asked {
        return Ok(None);
    }
    let judges = match before {
        Some(before) => before.renewed(&config.judges, &config.judging),
        None => Judges::new(&config.judges, &config.judging, metrics, &extensions.judges),
    };
    Ok(Some(judges?))
}

/// The journal, the traces that the previous process was evaluating when it ended, and the recovered
/// records; `None` without a directory. The journal is read on a blocking thread, since that may take long
/// and the process must react to signals meanwhile.
async fn open_journal(
    config: &Config,
    telemetry: &Arc<Telemetry>,
) -> Result<Option<(Arc<Journal>, Arc<Attempts>, Recovered)>, Error> {
    let Some(folder) = config.storage.directory.clone() else { return Ok(None) };
    let (storage, remember) = (config.storage.clone(), config.verdict.close.remember);
    let (path, telemetry) = (folder.clone(), Arc::clone(telemetry));
    let open = move || {
        let (journal, recovered) = Journal::open(&path, &storage, remember, &telemetry.journal)?;
        let open: HashSet<TraceId> = recovered.open.values().flatten().copied().collect();
        let attempts = Arc::new(Attempts::open(&path, |trace| open.contains(&trace)));
        Ok((journal, attempts, recovered))
    };
    let opened = tokio::task::spawn_blocking(open).await;
    let ended = |why| journal::OpenError::new(&folder, std::io::Error::other(why));
    Ok(Some(opened.map_err(ended).flatten()?))
}

/// The dead letters of exporters, in the directory of the journal, whose lock is held by then.
fn open_dead_letters(
    config: &Config,
    telemetry: &Telemetry,
    exporters: &Exporters,
) -> Result<Option<Arc<DeadLetters>>, Error> {
    let Some(folder) = &config.storage.directory else { return Ok(None) };
    let gauge = telemetry.journal.dead_letter_bytes.clone();
    let dead_letters = Arc::new(DeadLetters::open(folder, config.storage.max_bytes.0, gauge)?);
    exporters.set_dead_letters(&dead_letters);
    Ok(Some(dead_letters))
}

/// The file of what judges have spent, in the directory of the journal.
fn spending_file(config: &Config) -> Option<PathBuf> {
    config.storage.directory.as_ref().map(|folder| folder.join("judge-spending"))
}

fn restore_spending(config: &Config, judges: &Option<Judges>) {
    if let (Some(judges), Some(file)) = (judges, spending_file(config)) {
        judges.restore_spending(&file);
    }
}

/// Writes what the current judges have spent, until `stop` and once more then.
async fn save_spending(
    current: Arc<Mutex<(Config, Option<Judges>)>>,
    file: PathBuf,
    stop: CancellationToken,
) {
    let throttle = LogThrottle::default();
    loop {
        let stopped = tokio::time::timeout(SPENDING_INTERVAL, stop.cancelled()).await.is_ok();
        let judges = current.lock().unwrap_or_else(PoisonError::into_inner).1.clone();
        if let Some(judges) = judges {
            let own = file.clone();
            let saved = tokio::task::spawn_blocking(move || judges.save_spending(&own)).await;
            if let Err(error) = saved.map_err(std::io::Error::other).flatten()
                && let Some(suppressed) = throttle.allow("spending")
            {
                tracing::warn!(%error, suppressed, "cannot write what judges have spent; after a restart their budgets start at zero");
            }
        }
        if stopped {
            return;
        }
    }
}

fn panel(judges: &Option<Judges>) -> Option<Arc<dyn Panel>> {
    judges.clone().map(|judges| Arc::new(judges) as Arc<dyn Panel>)
}

fn exporters(
    config: &Config,
    extensions: &Extensions,
    budget: &Budget,
    runtime_config: &Arc<ArcSwap<RuntimeConfig>>,
) -> Result<Exporters, Error> {
    let context = ExportContext {
        clients: extensions.exporters.clone(),
        max_best_effort: budget.for_best_effort(),
        ..export_context(runtime_config, &config.verdict.evaluation.prefix)
    };
    let exporters = Exporters::start(&config.exporters, &config.service.exporters, &context)
        .map_err(|(id, source)| Error::Exporter { id, source })?;
    if exporters.takes(Signal::Traces) { Ok(exporters) } else { Err(Error::NoTraces) }
}

/// The console exporter recognises spans by the conventions of the current configuration.
fn export_context(runtime_config: &Arc<ArcSwap<RuntimeConfig>>, prefix: &str) -> ExportContext {
    let (config, scales) = (Arc::clone(runtime_config), Arc::clone(runtime_config));
    let recognise = move |tree| {
        let config = config.load();
        RenderedTrace::new(config.evaluator.recogniser(), tree, config.evaluator.emission())
    };
    let normalize = move |name: &str, score| scales.load().evaluator.emission().normalized(name, score);
    ExportContext { normalize: Arc::new(normalize), ..ExportContext::new(Arc::new(recognise), prefix) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::from_sources;
    use verdict_config::Source;
    use verdict_otlp::trace::{Envelope, Kind, Span, SpanId, Status, TraceId, Tree};
    use verdict_otlp::value::SPAN_ATTRIBUTES;
    use verdict_otlp::write::{self, Scalar};

    #[test]
    fn console_exporter_uses_the_conventions_of_a_reload() {
        let of = |recognise: &str| {
            let text = format!("verdict: {{ recognise: {{ {recognise} }} }}");
            let config = from_sources(&[Source { name: "test".to_owned(), text }], &|_| None).unwrap();
            RuntimeConfig::new(&config.verdict, &Extensions::default(), None).unwrap()
        };
        let config = Arc::new(ArcSwap::from_pointee(of("")));
        let context = export_context(&config, "verdict.");
        let mut bytes = Vec::new();
        write::attribute(&mut bytes, SPAN_ATTRIBUTES, "acme.type", Scalar::Str("step"));
        let span = Span {
            id: SpanId([1; 8]),
            parent: SpanId::default(),
            start: 1,
            end: 2,
            status: Status::Unset,
            remote_parent: false,
            has_verdict: false,
            forwarded: false,
            skew: 0,
            bytes: bytes.into(),
            envelope: Envelope::default().into(),
        };
        let kind = || (context.recognise)(Tree::new(TraceId([1; 16]), vec![span.clone()])).kinds;
        assert_eq!(kind(), [Kind::Unknown]);
        config.store(Arc::new(of("kinds: [{ key: acme.type, values: { step: tool } }]")));
        assert_eq!(kind(), [Kind::Tool]);
    }

    #[tokio::test]
    async fn failed_shard_is_reported_by_the_service() {
        let text = "receivers: { otlp: { protocols: { grpc: { endpoint: '127.0.0.1:0' }, http: { endpoint: '127.0.0.1:0' } } } }\n\
                    exporters: { console: {} }\nservice: { exporters: [console] }\nadmin: { endpoint: '127.0.0.1:0' }";
        let source = Source { name: "test".to_owned(), text: text.to_owned() };
        let service = Service::start(&from_sources(&[source], &|_| None).unwrap()).await.unwrap();
        let soon = Duration::from_millis(600);
        assert!(tokio::time::timeout(soon, service.failed()).await.is_err(), "nothing has failed");
        service.pipeline.shared.shard_failed.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(tokio::time::timeout(soon, service.failed()).await, Ok("a shard has failed"));
        assert_eq!(service.readiness.obstacles(), ["a shard has failed"]);
        assert_eq!(service.stop(Duration::from_secs(5)).await, 0);
    }

    #[tokio::test]
    async fn panic_in_a_task_of_the_service_is_reported() {
        let text = "receivers: { otlp: { protocols: { grpc: { endpoint: '127.0.0.1:0' } } } }\n\
                    exporters: { console: {} }\nservice: { exporters: [console] }\nadmin: { endpoint: '127.0.0.1:0' }";
        let source = Source { name: "test".to_owned(), text: text.to_owned() };
        let mut service = Service::start(&from_sources(&[source], &|_| None).unwrap()).await.unwrap();
        assert_eq!(service.readiness.failures(), [""; 0]);
        service.receiving.spawn(async { panic!("as the test requires") });
        assert_eq!(service.failed().await, "a listener or another task of the service has failed");
        assert_eq!(service.stop(Duration::from_secs(5)).await, 0);
    }

    /// The status and the body of a response of the admin endpoint.
    async fn probe(admin: &str, path: &str) -> (String, String) {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let mut socket = tokio::net::TcpStream::connect(admin).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        socket.read_to_string(&mut response).await.unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        (head[9..12].to_owned(), body.to_owned())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn probes_are_answered_while_the_journal_is_recovered() {
        let folder = tempfile::tempdir().unwrap();
        // Reading the only segment waits until the other end of the pipe is opened.
        let segment = folder.path().join(format!("{:016x}.log", 1));
        assert!(std::process::Command::new("mkfifo").arg(&segment).status().unwrap().success());
        let admin = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let text = format!(
            "receivers: {{ otlp: {{ protocols: {{ grpc: {{ endpoint: '127.0.0.1:0' }} }} }} }}\n\
             exporters: {{ console: {{}} }}\nservice: {{ exporters: [console] }}\n\
             admin: {{ endpoint: '{admin}' }}\nstorage: {{ directory: {:?} }}",
            folder.path()
        );
        let config = from_sources(&[Source { name: "test".to_owned(), text }], &|_| None).unwrap();
        let starting = tokio::spawn(async move { Service::start(&config).await });
        let probes = async {
            while tokio::net::TcpStream::connect(&admin).await.is_err() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            [probe(&admin, "/livez").await, probe(&admin, "/readyz").await]
        };
        let answered = tokio::time::timeout(Duration::from_secs(20), probes).await;
        let recovering = !starting.is_finished();
        // Lets recovery end, also if the assertions below fail.
        let opened =
            tokio::task::spawn_blocking(move || std::fs::OpenOptions::new().write(true).open(segment));
        drop(opened.await.unwrap().unwrap());
        let [live, ready] = answered.expect("no probe was answered");
        assert!(recovering, "there was nothing to wait for");
        assert_eq!(live, ("200".to_owned(), "live".to_owned()));
        assert_eq!(ready, ("503".to_owned(), "recovering the journal".to_owned()));
        let service = starting.await.unwrap().unwrap();
        assert_eq!(probe(&admin, "/readyz").await, ("200".to_owned(), "ready".to_owned()));
        assert_eq!(service.stop(Duration::from_secs(5)).await, 0);
    }

    #[tokio::test]
    async fn every_cause_of_overload_is_named() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let text = "receivers: { otlp: { protocols: { http: { endpoint: '127.0.0.1:0' } } } }\n\
                    exporters: { console: {} }\nservice: { exporters: [console] }\nadmin: { endpoint: '127.0.0.1:0' }\n\
                    memory: { budget: 1MiB }";
        let source = Source { name: "test".to_owned(), text: text.to_owned() };
        let service = Service::start(&from_sources(&[source], &|_| None).unwrap()).await.unwrap();
        assert_eq!(service.readiness.obstacles(), [""; 0]);
        // One sender has taken three quarters; then others have taken the rest.
        service.telemetry.receive.held_bytes.set(200 << 10);
        assert_eq!(service.readiness.obstacles(), [""; 0]);
        service.telemetry.receive.held_bytes.set(256 << 10);
        let mut peer = tokio::net::TcpStream::connect(service.http.unwrap()).await.unwrap();
        let head = "POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\n";
        peer.write_all(format!("{head}content-length: 1\r\n\r\nx").as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        peer.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 503");
        let budget = service.pipeline.shared.budget.reserve(1 << 20);
        let causes = service.readiness.obstacles();
        let [memory, reading] = causes[..] else { panic!("{causes:?}") };
        assert!(memory.contains("memory.budget") && reading.contains("requests in flight"), "{causes:?}");
        service.telemetry.receive.held_bytes.set(0);
        drop(budget);
        assert_eq!(service.stop(Duration::from_secs(5)).await, 0);
    }
}
