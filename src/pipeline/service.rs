//! The whole process joined: sockets bound early, the pipeline between receivers and exporters,
//! and an orderly end. `run`, `demo` and the tests start the same thing.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Pipeline;
use super::memory::Budget;
use crate::admin;
use crate::admin::Readiness;
use crate::config::Config;
use crate::export::{Exporter, Exporters, RenderContext, StartError};
use crate::outcome::{DropReason, Outcome};
use crate::receive;
use crate::receive::{BindError, Intake};
use crate::telemetry::{ExporterState, Telemetry};
use verdict_eval::recognise::Recogniser;
use verdict_journal::{self as journal, Attempts, DeadLetters, Journal, Recovered};
use verdict_judge::{JudgeError, Judges};
use verdict_otlp::Signal;
use verdict_otlp::trace::TraceId;

/// Share of the time at shutdown for requests in flight: most are answered in milliseconds, and a
/// sender that dawdles must not use up the time of what was taken from others.
const RECEIVING_SHARE: f64 = 0.2;
/// Share of the time left then that may go into closing traces; the rest is for sending them.
const CLOSING_SHARE: f64 = 0.5;
/// For what takes no time by then; beyond it something hangs.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The process cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A listener's address.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// An exporter.
    #[error("exporters.{id}.{source}")]
    Exporter {
        /// Its id.
        id: String,
        /// What is wrong.
        source: StartError,
    },
    /// `verdict.recognise`, or a task file that `verdict.metrics.path.tasks` names.
    #[error("verdict.{0}")]
    Verdict(String),
    /// `storage.directory`.
    #[error(transparent)]
    Journal(#[from] journal::OpenError),
    /// `judges` or `judging`.
    #[error(transparent)]
    Judges(#[from] JudgeError),
    /// Spans would come in and go nowhere.
    #[error("service.exporters: none of the exporters takes traces")]
    NoTraces,
}

/// A running process.
#[derive(Debug)]
pub struct Service {
    /// Where OTLP/gRPC is received.
    pub grpc: Option<SocketAddr>,
    /// Where OTLP/HTTP is received.
    pub http: Option<SocketAddr>,
    /// Where `/livez`, `/readyz` and `/metrics` are served.
    pub admin: Option<SocketAddr>,
    /// In force.
    config: Mutex<Config>,
    judges: Mutex<Option<Judges>>,
    pipeline: Arc<Pipeline>,
    exporters: Arc<Exporters>,
    journal: Option<Arc<Journal>>,
    telemetry: Arc<Telemetry>,
    readiness: Arc<Readiness>,
    receiving: Tasks,
    background: Tasks,
}

/// What a new configuration came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reloaded {
    /// Keys that have another value now.
    pub changed: Vec<String>,
    /// Keys whose new value would need a restart.
    pub waiting: Vec<String>,
}

/// Tasks that end when told to.
#[derive(Debug)]
struct Tasks {
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

impl Tasks {
    /// Tells them to end, and ends those that have not after `within`. False if there were such.
    async fn end(&mut self, within: Duration) -> bool {
        self.stop.cancel();
        let deadline = Instant::now() + within;
        let mut all = true;
        for task in &mut self.tasks {
            match tokio::time::timeout_at(deadline, &mut *task).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::error!(%error, "a task ended abnormally; this is a bug"),
                Err(_) => {
                    task.abort();
                    all = false;
                }
            }
        }
        all
    }
}

impl Service {
    /// Binds, opens and starts everything, in the order in which a fault is cheapest.
    ///
    /// # Errors
    /// An address that cannot be bound, an exporter that cannot be opened, a map of conventions
    /// that does not fit together. Nothing runs then.
    pub async fn start(config: &Config) -> Result<Service, Error> {
        let budget = Budget::new(config.memory.budget);
        let bound = receive::bind(&config.receivers.otlp).await?.with_in_flight_limit(budget.for_reading());
        let admin = admin::bind(&config.admin).await?;
        let exporters = Arc::new(exporters(config, &budget)?);
        let telemetry = Telemetry::new();
        telemetry.export.register_exporters(exporters.states());
        let opened = open_journal(config, &telemetry).await?;
        let (journal, recovered) = opened.map(|(j, attempts, r)| ((j, attempts), r)).unzip();
        let dead_letters = open_dead_letters(config, &telemetry, &exporters)?;
        let judges = judges(config, None, &telemetry)?;
        let pipeline = Pipeline::start(
            config,
            budget,
            Arc::clone(&telemetry),
            Arc::clone(&exporters),
            journal.clone(),
            judges.clone(),
        )
        .map_err(Error::Verdict)?;
        let journal = journal.map(|(journal, _)| journal);
        if let Some((journal, recovered)) = journal.as_ref().zip(recovered) {
            pipeline.take_up(journal, recovered).await;
        }
        let asked = Arc::clone(&pipeline);
        let readiness = Arc::new(Readiness::new(move || asked.pressure().is_some()));
        let (grpc, http, admin_addr) = (bound.grpc_addr(), bound.http_addr(), Some(admin.addr()));

        let receiving = CancellationToken::new();
        let background = CancellationToken::new();
        let intake: Arc<dyn Intake> = Arc::clone(&pipeline) as Arc<dyn Intake>;
        let grace = *config.service.shutdown_timeout;
        let serve = tokio::spawn(bound.serve(intake, Arc::clone(&telemetry), receiving.clone(), grace));
        let probes =
            tokio::spawn(admin.serve(Arc::clone(&telemetry), Arc::clone(&readiness), background.clone()));
        let mut tasks = vec![probes];
        if let Some(dead_letters) = dead_letters {
            tasks.push(tokio::spawn(dead_letters.expire_loop(*config.storage.retention, background.clone())));
        }
        readiness.serving();
        Ok(Service {
            grpc,
            http,
            admin: admin_addr,
            config: Mutex::new(config.clone()),
            judges: Mutex::new(judges),
            pipeline,
            exporters,
            journal,
            telemetry,
            readiness,
            receiving: Tasks { stop: receiving, tasks: vec![serve] },
            background: Tasks { stop: background, tasks },
        })
    }

    /// Self-metrics of this process.
    pub fn telemetry(&self) -> &Arc<Telemetry> {
        &self.telemetry
    }

    /// Takes what of `new` can be taken while running, and says what changed and what would need
    /// a restart; the rest stays as it was. Spans that are held stay held: traces that close from
    /// now on are judged by the new settings, and those that open now close by them.
    ///
    /// # Errors
    /// `verdict.recognise` does not fit together, or a task file or a judge cannot be used; nothing
    /// changes then.
    pub fn reload(&self, new: &Config) -> Result<Reloaded, Error> {
        let mut config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = config.taking(new);
        let mut judges = self.judges.lock().unwrap_or_else(PoisonError::into_inner);
        let taking = self.take(&taken, judges.as_ref());
        self.telemetry.reloaded(taking.is_ok());
        *judges = taking?;
        let reloaded = Reloaded { changed: config.differences(&taken), waiting: taken.differences(new) };
        *config = taken;
        Ok(reloaded)
    }

    fn take(&self, taken: &Config, before: Option<&Judges>) -> Result<Option<Judges>, Error> {
        let judges = judges(taken, before, &self.telemetry)?;
        self.pipeline.take(&taken.verdict, judges.clone()).map_err(Error::Verdict)?;
        Ok(judges)
    }

    /// The configuration in force.
    pub fn config(&self) -> Config {
        self.config.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Closes every open trace now and hands it to the exporters.
    pub async fn flush(&self) {
        self.pipeline.flush().await;
    }

    /// Stops accepting, closes and exports what is open, and ends. What could not be sent within
    /// `within` is dropped, counted and logged; the number of such items is returned. With a journal
    /// open traces and what could not be sent stay there.
    pub async fn stop(mut self, within: Duration) -> u64 {
        let before = unsent(&self.exporters);
        let deadline = Instant::now() + within;
        self.readiness.stopping();
        self.pipeline.shared.attempts.close();
        let left = || deadline.saturating_duration_since(Instant::now());
        if !self.receiving.end(left().mul_f64(RECEIVING_SHARE)).await {
            tracing::warn!("requests in flight were cut off at shutdown");
        }
        if !self.pipeline.shutdown(left().mul_f64(CLOSING_SHARE)).await {
            tracing::warn!("open traces could not all be closed in time");
        }
        self.exporters.drain(deadline).await;
        // Whatever waited for room in a queue has been turned away by now and is counted.
        let mut lost = 0;
        if !self.pipeline.ended(LAST_WORDS).await {
            lost = u64::try_from(self.telemetry.traces.buffered_spans.get()).unwrap_or(0);
            tracing::error!(spans = lost, "open traces were left behind at shutdown");
        }
        if let Some(journal) = &self.journal {
            // What is open is there.
            lost = 0;
            // A disk that does not answer must not keep the process.
            if tokio::time::timeout_at(deadline.max(Instant::now() + LAST_WORDS), journal.close())
                .await
                .is_err()
            {
                tracing::error!("the journal could not be closed in time; it holds what was written");
            }
        }
        self.background.end(LAST_WORDS).await;
        unsent(&self.exporters) - before + lost
    }
}

/// Items that the exporters gave up. Not those of a signal that its destination does not have: it
/// was told once, and a span's fate does not depend on logs.
fn unsent(exporters: &Exporters) -> u64 {
    let of = |exporter: &Arc<Exporter>| {
        let count = |outcome| exporter.ledger().count(outcome);
        (count(Outcome::Dropped) + count(Outcome::Lost))
            .saturating_sub(exporter.dropped(DropReason::Unsupported))
    };
    exporters.iter().map(of).sum()
}

/// The judges, where any metric names one. Those of another configuration remember what `before`
/// spent and what it was told.
fn judges(
    config: &Config,
    before: Option<&Judges>,
    telemetry: &Telemetry,
) -> Result<Option<Judges>, JudgeError> {
    if config.verdict.evaluation.metrics.named_judges().next().is_none() {
        return Ok(None);
    }
    match before {
        Some(before) => before.renewed(&config.judges, &config.judging),
        None => Judges::new(&config.judges, &config.judging, &telemetry.judge),
    }
    .map(Some)
}

/// The journal, what was being judged when the process before ended, and what it held; `None` where no folder is configured. A long one takes its time to
/// be read, on another thread, so that the process can be told to stop meanwhile.
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

/// The dead letters in the same folder, for what exporters give up; its lock is held by then.
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

fn exporters(config: &Config, budget: &Budget) -> Result<Exporters, Error> {
    let recogniser = Recogniser::new(&config.verdict.evaluation.recognise)
        .map_err(|e| Error::Verdict(format!("recognise: {e}")))?;
    let look = RenderContext {
        kind_of: Arc::new(move |span, envelope| recogniser.kind(span, envelope)),
        prefix: config.verdict.evaluation.prefix.clone(),
    };
    let configs = config.exporters.with_best_effort_within(budget.for_best_effort());
    let exporters = Exporters::start(&configs, &config.service.exporters, &look)
        .map_err(|(id, source)| Error::Exporter { id, source })?;
    if exporters.takes(Signal::Traces) { Ok(exporters) } else { Err(Error::NoTraces) }
}
