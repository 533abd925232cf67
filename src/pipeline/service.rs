//! The service: receivers, pipeline, exporters and the admin endpoint, with reload and graceful shutdown.
//! `run`, `demo` and the tests start the same service.
//!
//! | file | content |
//! |---|---|
//! | `listeners` | sockets, bound first and served last |
//! | `storage`, `spending` | the directory of the journal; the file of the judges' spending |
//! | `tasks`, `health` | tasks that end together; the state that probes report |

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::time::Instant;

use super::Pipeline;
use super::budget::Budget;
use super::components::{CurrentComponents, answerer, exporters, judges};
use super::error::Error;
use super::forwarding::ForwardingMode;
use super::meter::Meter;
use super::page::PageState;
use super::queried_runs::QueriedRuns;
use super::runtime_config::RuntimeConfig;
use super::shared::Shared;
use crate::admin::{self, Readiness};
use crate::config::Config;
use crate::export::{Exporter, Exporters};
use crate::extensions::Extensions;
use crate::outcome::{DropReason, Outcome};
use crate::page::history::{History, HistoryFeed};
use crate::page::server::PageSource;
use crate::receive::listen::Listener;
use crate::telemetry::{ExporterState, Telemetry};

mod health;
mod listeners;
mod spending;
mod storage;
mod tasks;
#[cfg(test)]
mod tests;

use health::ReadinessInputs;
use listeners::{ListenerAddresses, Listeners};
use storage::OpenStorage;
use tasks::Tasks;

/// Share of the shutdown timeout for requests in flight: most are answered in milliseconds, and a slow sender must not
/// use up the time that accepted spans need.
const RECEIVING_SHARE: f64 = 0.2;
/// Share of the remaining time for closing traces. The other part is for sending them.
const CLOSING_SHARE: f64 = 0.5;
/// Interval of checks for failures. A failed part refuses requests until the process ends.
const FAILURE_INTERVAL: Duration = Duration::from_millis(250);
/// Timeout of shutdown steps that normally end at once.
const FINAL_TIMEOUT: Duration = Duration::from_secs(2);

/// A running process.
#[derive(Debug)]
pub struct Service {
    /// The address of OTLP/gRPC.
    pub grpc: Option<SocketAddr>,
    /// The address of OTLP/HTTP.
    pub http: Option<SocketAddr>,
    /// The address of `/livez`, `/readyz` and `/metrics`.
    pub admin: Option<SocketAddr>,
    /// The address of `/v1/paths/next`.
    pub paths: Option<SocketAddr>,
    /// The address of the live page.
    pub page: Option<SocketAddr>,
    current: Arc<Mutex<CurrentComponents>>,
    extensions: Extensions,
    pipeline: Arc<Pipeline>,
    exporters: Arc<Exporters>,
    telemetry: Arc<Telemetry>,
    readiness: Arc<Readiness>,
    /// Listeners and receivers, which end first.
    receiver_tasks: Tasks,
    /// Tasks that end last, such as the admin endpoint.
    background: Tasks,
    /// The task that saves the spending of judges.
    spending_tasks: Tasks,
}

/// The effect of a new configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reloaded {
    /// The keys whose new values are applied.
    pub changed: Vec<String>,
    /// The keys whose new values need a restart.
    pub needs_restart: Vec<String>,
}

impl Service {
    /// Like [`Service::start_with`], with the built-in metrics, judges and exporters alone.
    ///
    /// # Errors
    /// Like [`Service::start_with`].
    pub async fn start(config: &Config) -> Result<Service, Error> {
        Service::start_with(config, Extensions::default()).await
    }

    /// Binds the listeners, serves the admin endpoint, recovers the journal, starts every stage and serves
    /// the receivers. `extensions` apply until the service stops, even after [`Service::reload`].
    ///
    /// # Errors
    /// An address cannot be bound, an exporter or the journal cannot be opened, or the configuration or an
    /// extension cannot be used. No part of the service runs then.
    pub async fn start_with(config: &Config, extensions: Extensions) -> Result<Service, Error> {
        if cfg!(not(feature = "kafka")) && config.receivers.kafka.is_some() {
            return Err(Error::NoKafka);
        }
        let telemetry = Telemetry::new();
        telemetry.agents.set_limit(config.admin.agent_series as usize);
        let budget = Budget::new(config.memory.budget, &telemetry.traces);
        telemetry.memory_budget.set(i64::try_from(budget.limit()).unwrap_or(i64::MAX));
        let listeners = Listeners::bind(config, budget.for_reading()).await?;
        let admin = Listener::bind("admin", &config.admin.endpoint).await?;
        let judges = judges(config, &extensions, None, &telemetry.judge)?;
        let runtime_config = RuntimeConfig::new(&config.verdict, &extensions, answerer(&judges))?;
        let runtime_config = Arc::new(ArcSwap::from_pointee(runtime_config));
        let exporters = Arc::new(exporters(config, &extensions, &budget, &runtime_config)?);
        telemetry.export.register_exporters(exporters.states());
        let phase = if config.storage.directory.is_some() { "recovering the journal" } else { "starting" };
        let readiness = Arc::new(Readiness::new(phase));
        let mut background = Tasks::default();
        let (admin_addr, stop) = (Some(admin.addr), background.stop.clone());
        // The admin endpoint comes first, since recovery may take minutes and a process that answers no probe is
        // killed.
        background.spawn(admin::serve(admin, Arc::clone(&telemetry), Arc::clone(&readiness), stop));
        let storage = storage::open(config, &telemetry, &exporters).await?;
        // The spending is restored before the journal is recovered, since judges are asked about recovered traces.
        spending::restore(config, &judges);
        let current = Arc::new(Mutex::new(CurrentComponents { config: config.clone(), judges }));
        let spending_tasks = spending::save_periodically(config, &current);
        let meter = Meter::new(Arc::clone(&telemetry), runtime_config.load().evaluator.added_rows());
        let forwarding = ForwardingMode(config.verdict.mode);
        let mut shared = Shared::new(runtime_config, Arc::clone(&exporters), forwarding, meter, budget);
        shared.queried_runs = listeners.paths.is_some().then(QueriedRuns::new);
        let ListenerAddresses { grpc, http, paths, page } = listeners.addresses();
        let (pipeline, history) = start_pipeline(config, shared, &storage, &listeners, &mut background);
        let mut service = Service {
            grpc,
            http,
            admin: admin_addr,
            paths,
            page,
            current,
            extensions,
            pipeline,
            exporters,
            telemetry,
            readiness,
            receiver_tasks: Tasks::default(),
            background,
            spending_tasks,
        };
        service.serve(config, listeners, storage, history).await;
        Ok(service)
    }

    /// Recovers the journal, then serves the receivers.
    async fn serve(
        &mut self,
        config: &Config,
        listeners: Listeners,
        storage: Option<OpenStorage>,
        history: Option<Arc<History>>,
    ) {
        self.readiness.set_health(ReadinessInputs {
            pipeline: Arc::clone(&self.pipeline),
            requests_in_flight: listeners.receivers.in_flight(&self.telemetry),
            tasks: [&self.receiver_tasks, &self.background, &self.spending_tasks]
                .map(|tasks| Arc::clone(&tasks.failed)),
        });
        if let Some(OpenStorage { journal, recovered, dead_letters, .. }) = storage {
            self.pipeline.recover(&journal, recovered).await;
            let stop = self.background.stop.clone();
            self.background.spawn(dead_letters.expire_loop(*config.storage.retention, stop));
        }
        let page = history.map(|history| {
            let state = PageState::new(
                Arc::clone(&self.pipeline),
                Arc::clone(&self.exporters),
                Arc::clone(&self.telemetry),
                Arc::clone(&self.readiness),
                Arc::clone(&self.current),
            );
            (history, Arc::new(state) as Arc<dyn PageSource>)
        });
        listeners.serve(config, &self.pipeline, &self.telemetry, page, &mut self.receiver_tasks);
        self.readiness.set_serving();
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
    /// used. The service then continues unchanged.
    pub fn reload(&self, new: &Config) -> Result<Reloaded, Error> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let applicable = current.config.with_reloadable(new);
        // Judges come last, since their creation applies the new limits of shared budgets and caches.
        let applied =
            RuntimeConfig::new(&applicable.verdict, &self.extensions, None).and_then(|mut runtime| {
                let judges =
                    judges(&applicable, &self.extensions, current.judges.as_ref(), &self.telemetry.judge)?;
                if current.judges.is_none() {
                    spending::restore(&applicable, &judges);
                }
                runtime.answerer = answerer(&judges);
                self.pipeline.shared.meter.add_metrics(runtime.evaluator.added_rows());
                self.pipeline.shared.config.store(Arc::new(runtime));
                Ok(judges)
            });
        self.telemetry.count_reload(applied.is_ok());
        current.judges = applied?;
        self.exporters.renew(&current.config.exporters, &applicable.exporters);
        let reloaded = Reloaded {
            changed: current.config.differences(&applicable),
            needs_restart: applicable.differences(new),
        };
        current.config = applicable;
        Ok(reloaded)
    }

    /// Opens the files that exporters write again, after log rotation has renamed them.
    pub fn reopen_files(&self) {
        self.exporters.reopen();
    }

    /// The current configuration.
    pub fn config(&self) -> Config {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).config.clone()
    }

    /// Waits until a part of the service has failed permanently, and returns its description. The process should then
    /// stop the service and end: the next process recovers the records of the journal.
    pub async fn failed(&self) -> &'static str {
        loop {
            match self.readiness.failures().first() {
                Some(part) => return part,
                None => tokio::time::sleep(FAILURE_INTERVAL).await,
            }
        }
    }

    /// Closes every open trace now, and returns when all are in the exporters' queues.
    pub async fn flush(&self) {
        self.pipeline.flush().await;
    }

    /// Stops accepting requests, closes and exports open traces, and ends. Items that could not be sent
    /// within this time are dropped, counted and logged; their number is returned. With a journal, open
    /// traces and unsent items stay there for the next start.
    pub async fn stop(mut self, within: Duration) -> u64 {
        let unsent_before = unsent(&self.exporters);
        let deadline = Instant::now() + within;
        self.readiness.set_stopping();
        self.pipeline.shared.markers.close();
        let time_left = || deadline.saturating_duration_since(Instant::now());
        if !self.receiver_tasks.end(time_left().mul_f64(RECEIVING_SHARE)).await {
            tracing::warn!("requests in flight were aborted at shutdown; their senders have to retry");
        }
        // A Kafka receiver that was aborted still has its assignments, whose open traces would be exported in part.
        let store = &self.pipeline.shared.store;
        store.end_received();
        if !self.pipeline.shutdown(time_left().mul_f64(CLOSING_SHARE)).await {
            tracing::warn!(
                "closing open traces takes longer than its share of the shutdown time; the exporters are stopped meanwhile"
            );
        }
        self.exporters.drain(deadline).await;
        // Parcels that waited for space in a queue are dropped and counted by now.
        let mut lost = 0;
        let has_ended = self.pipeline.shards_end(FINAL_TIMEOUT).await;
        if !has_ended || (!store.keeps_unfinished_traces() && !self.pipeline.failures().is_empty()) {
            lost = u64::try_from(self.telemetry.traces.buffered_spans.get()).unwrap_or(0);
            if lost > 0 {
                tracing::error!(spans = lost, "spans of open traces were dropped at shutdown");
            }
        }
        // The spending is saved before the journal closes, while its lock excludes other processes.
        self.spending_tasks.end(FINAL_TIMEOUT).await;
        let judges = self.current.lock().unwrap_or_else(PoisonError::into_inner).judges.clone();
        if let Some(judges) = judges {
            // If the disk does not respond, answers not yet written are lost.
            let _ = tokio::time::timeout(FINAL_TIMEOUT, judges.cache_written()).await;
        }
        if store.keeps_unfinished_traces() {
            lost = 0;
        }
        // A disk that does not respond must not keep the process running.
        let limit = deadline.max(Instant::now() + FINAL_TIMEOUT);
        if tokio::time::timeout_at(limit, store.end()).await.is_err() {
            tracing::error!(
                "the journal could not be closed in time; the next start recovers the records that were written"
            );
        }
        self.background.end(FINAL_TIMEOUT).await;
        unsent(&self.exporters) - unsent_before + lost
    }
}

/// Starts the pipeline with the storage. Returns it with the history of the live page, if that is enabled.
fn start_pipeline(
    config: &Config,
    mut shared: Shared,
    storage: &Option<OpenStorage>,
    listeners: &Listeners,
    background: &mut Tasks,
) -> (Arc<Pipeline>, Option<Arc<History>>) {
    if let Some(OpenStorage { journal, markers, .. }) = storage {
        (shared.store, shared.markers) = (Box::new(Arc::clone(journal)), Arc::clone(markers));
    }
    listeners.wrap_store(&mut shared.store);
    let page_metrics = shared.meter.telemetry.page.clone();
    let history = config.page.as_ref().map(|config| Arc::new(History::new(config, page_metrics)));
    if let Some(history) = &history {
        let (feed, evaluated) = HistoryFeed::new(Arc::clone(history));
        shared.page = Some(feed);
        background.spawn(Arc::clone(history).fill(evaluated, background.stop.clone()));
    }
    (Pipeline::start(shared, &config.verdict.evaluation.prefix), history)
}

/// The number of items that the exporters dropped or lost, except those of a signal that the destination does not
/// support: these are logged once, and the delivery of spans does not depend on them.
fn unsent(exporters: &Exporters) -> u64 {
    let unsent_of = |exporter: &Arc<Exporter>| {
        let count = |outcome| exporter.ledger().count(outcome);
        (count(Outcome::Dropped) + count(Outcome::Lost))
            .saturating_sub(exporter.dropped(DropReason::Unsupported))
    };
    exporters.iter().map(unsent_of).sum()
}
