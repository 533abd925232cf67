//! `run`: the processor, until it is told to stop.

use std::time::Duration;

use clap::Args;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::watch::Watch;
use crate::cli::config_files::ConfigFiles;
use crate::cli::failure::Failure;
use crate::config::Config;
use crate::logging as log;
use crate::pipeline::service::Service;

pub(super) const LONG: &str = "\
Receive OTLP, judge, and send on, until SIGINT or SIGTERM.

Listens where the configuration says (127.0.0.1:4317 for gRPC and 127.0.0.1:4318 for HTTP by
default) and serves /livez, /readyz and /metrics on 127.0.0.1:13133. At the first signal it takes no
more, closes and judges what is open, and sends what is queued, for at most
service.shutdown_timeout; a second signal ends it at once.

At SIGHUP, and when a configuration file has changed, the configuration is read again. With any
fault it is refused, and the one in force stays. What stands under verdict (but for mode and
prefix), the log level and the shutdown timeout are taken at once, without losing a span; what needs
a restart is named in the log.";

pub(super) const EXAMPLES: &str = "\
Examples:
  otel-verdict run --config config/quickstart.yaml
  OTLP_TOKEN=... otel-verdict run --config base.yaml --config production.yaml

An agent's exporter is pointed at it with
  OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318

Exit codes:
  0  stopped by a signal, everything sent
  1  it could not start, or had to drop something at shutdown
  2  wrong configuration or usage";

#[derive(Args, Debug)]
pub(super) struct Run {
    #[command(flatten)]
    config: ConfigFiles,
}

pub(super) fn run(args: &Run) -> Result<(), Failure> {
    let config = args.config.load()?;
    log::init(&config.service.log_level, config.service.log_format)
        .map_err(|e| Failure::Usage(e.to_string()))?;
    let runtime = runtime()?;
    let outcome = runtime.block_on(serve(&config, &args.config));
    // What still runs after a second signal is not waited for.
    runtime.shutdown_timeout(Duration::ZERO);
    outcome
}

/// One worker a core, and one to spare where there is but one: a disk that does not answer may hold one.
pub(super) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let workers = std::thread::available_parallelism().map_or(2, |cores| cores.get().max(2));
    let built = tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build();
    built.map_err(|e| Failure::Run(format!("cannot start the runtime: {e}")))
}

async fn serve(config: &Config, files: &ConfigFiles) -> Result<(), Failure> {
    // Before anything listens, so that no signal is missed.
    let mut signals = Signals::new()?;
    let mut watch = Watch::new(files.files.clone());
    watch.settle().await;
    let service = tokio::select! {
        started = Service::start(config) => started.map_err(|e| Failure::Run(e.to_string()))?,
        // Nothing was acknowledged yet; what the journal holds stays there.
        name = signals.next() => {
            tracing::info!(signal = name, "stopped before it had started");
            return Ok(());
        }
    };
    tracing::info!(version = env!("CARGO_PKG_VERSION"), exporters = ?config.service.exporters, "running");
    let name = loop {
        let why = tokio::select! {
            asked = signals.asked() => match asked {
                Asked::Stop(name) => break name,
                Asked::Reload => "SIGHUP",
            },
            () = watch.changed() => "a file has changed",
        };
        if let Some(file) = watch.gone() {
            tracing::warn!(file = %file.display(), "not reloaded: it can be read only once");
            continue;
        }
        let reloading = async {
            watch.settle().await;
            reload(&service, files, why).await;
        };
        // A disk that does not answer must not keep it from stopping.
        tokio::select! {
            name = signals.next() => break name,
            () = reloading => {}
        }
    };
    let within = *service.config().service.shutdown_timeout;
    tracing::info!(signal = name, within = ?within, "stopping; a second signal ends at once");
    tokio::select! {
        dropped = service.stop(within) => match dropped {
            0 => Ok(()),
            dropped => Err(Failure::Run(format!("{dropped} items could not be sent and were dropped"))),
        },
        _ = signals.next() => {
            let held = if config.storage.directory.is_some() { "stays in the journal" } else { "is lost" };
            Err(Failure::Run(format!("ended at once by a second signal; what was held {held}")))
        }
    }
}

/// Reads the configuration again and takes what can be taken; whatever goes wrong, what runs
/// keeps running.
async fn reload(service: &Service, files: &ConfigFiles, why: &'static str) {
    let files = files.clone();
    let loaded = match tokio::task::spawn_blocking(move || crate::config::load(&files.files)).await {
        Ok(loaded) => loaded,
        Err(error) => {
            tracing::error!(%error, "reading the configuration ended abnormally; this is a bug");
            return;
        }
    };
    let new = match loaded {
        Ok(new) => new,
        Err(invalid) => {
            service.telemetry().reloaded(false);
            for fault in invalid.lines() {
                tracing::error!(%fault, "the new configuration cannot be used");
            }
            let faults = invalid.lines().len();
            tracing::error!(why, faults, "the configuration was not reloaded; the one in force stays");
            return;
        }
    };
    let level = new.service.log_level.clone();
    match service.reload(&new) {
        Ok(reloaded) => {
            if let Err(error) = log::set_level(&level) {
                tracing::warn!(%error, "the log level stays");
            }
            tracing::info!(why, changed = %reloaded.changed.join(", "), "configuration reloaded");
            if !reloaded.waiting.is_empty() {
                let keys = reloaded.waiting.join(", ");
                tracing::warn!(%keys, "changes that need a restart were not taken");
            }
        }
        Err(error) => {
            tracing::error!(why, %error, "the configuration was not reloaded; the one in force stays")
        }
    }
}

enum Asked {
    Stop(&'static str),
    Reload,
}

struct Signals {
    interrupt: Signal,
    hangup: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> Result<Signals, Failure> {
        let listen = |kind| signal(kind).map_err(|e| Failure::Run(format!("cannot listen for signals: {e}")));
        Ok(Signals {
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    async fn asked(&mut self) -> Asked {
        tokio::select! {
            _ = self.interrupt.recv() => Asked::Stop("SIGINT"),
            _ = self.terminate.recv() => Asked::Stop("SIGTERM"),
            _ = self.hangup.recv() => Asked::Reload,
        }
    }

    /// One that ends; what else is asked for is too late.
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}
