//! `run`: the processor, until a signal stops it.
//!
//! In: configuration files and signals. Out: a running service; reloads; an exit code after shutdown.

use std::sync::Arc;

use clap::Args;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::watch::Watch;
use crate::cli::command::{CommandFailure, ConfigFiles, runtime};
use crate::config::Config;
use crate::logging as log;
use crate::own_telemetry::{MetricsPush, SelfSpans};
use crate::pipeline::service::Service;

pub(super) const LONG_ABOUT: &str = "\
Receive OTLP, judge, and send on, until SIGINT or SIGTERM.

Listens on the configured addresses (127.0.0.1:4317 for gRPC and 127.0.0.1:4318 for HTTP by
default) and serves /livez, /readyz and /metrics on 127.0.0.1:13133. After the first signal it
refuses new requests, closes and judges open traces, and sends queued data, for at most
service.shutdown_timeout; a second signal ends it immediately.

After SIGHUP, and when a configuration file has changed, the configuration is read again. A
configuration with problems is refused, and the current one stays in force. Changes under verdict
(except mode and prefix), of the log level and of the shutdown timeout apply immediately,
without losing a span; changes that need a restart are named in the log.";

pub(super) const EXAMPLES: &str = "\
Examples:
  otel-verdict run --config config/quickstart.yaml
  OTLP_TOKEN=... otel-verdict run --config base.yaml --config production.yaml

An agent's exporter is pointed at it with
  OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318

Exit codes:
  0  stopped by a signal, everything sent
  1  it could not start, had to drop something at shutdown, or a part of it failed
  2  wrong configuration or usage";

#[derive(Args, Debug)]
pub(super) struct RunArgs {
    #[command(flatten)]
    config: ConfigFiles,
}

pub(super) fn run(args: &RunArgs) -> Result<(), CommandFailure> {
    let config = args.config.load()?;
    let runtime = runtime()?;
    let telemetry = config.service.telemetry.as_ref().filter(|telemetry| telemetry.traces);
    let started = telemetry.map(|telemetry| SelfSpans::start(telemetry, runtime.handle())).transpose();
    let (spans, layer) = started.map_err(|e| CommandFailure::Run(format!("service.telemetry: {e}")))?.unzip();
    log::init_with(&config.service.log_level, config.service.log_format, layer)
        .map_err(|e| CommandFailure::Usage(e.to_string()))?;
    config.warnings().iter().for_each(|warning| tracing::warn!(%warning, "configuration"));
    let outcome = runtime.block_on(serve(&config, &args.config));
    if let Some(spans) = spans {
        spans.stop();
    }
    // After a second signal tasks still run. The runtime is not dropped, because that would drop the
    // tasks and count their unsent spans as lost. The tasks end with the process.
    std::mem::forget(runtime);
    outcome
}

async fn serve(config: &Config, files: &ConfigFiles) -> Result<(), CommandFailure> {
    // Registered before the service starts, so that no signal is missed.
    let (mut stop, mut hangup) = (StopSignals::new()?, listen(SignalKind::hangup())?);
    let certificates = config.exporters.0.values().flat_map(|exporter| exporter.files().cloned());
    let mut watch = Watch::new(files.files.clone(), certificates.collect());
    watch.mark_current().await;
    let service = tokio::select! {
        started = Service::start(config) => started.map_err(CommandFailure::run)?,
        // No request was acknowledged yet, and the journal keeps its records.
        name = stop.recv() => {
            tracing::info!(signal = name, "stopped before it had started");
            return Ok(());
        }
    };
    let push_settings = config.service.telemetry.as_ref().filter(|telemetry| telemetry.metrics);
    if push_settings.is_some() {
        service.telemetry().agents.count_scores();
    }
    let push = push_settings
        .map(|telemetry| MetricsPush::start(telemetry, Arc::clone(service.telemetry())))
        .transpose();
    let push = push.map_err(|e| CommandFailure::Run(format!("service.telemetry: {e}")))?;
    tracing::info!(version = env!("CARGO_PKG_VERSION"), exporters = ?config.service.exporters, "running");
    // A signal, or the part of the service that has failed.
    let cause = loop {
        let trigger = tokio::select! {
            name = stop.recv() => break Ok(name),
            part = service.failed() => break Err(part),
            _ = hangup.recv() => {
                service.reopen_files();
                "SIGHUP"
            }
            () = watch.changed() => "a file has changed",
        };
        if let Some(file) = watch.non_regular_file() {
            tracing::warn!(file = %file.display(), "not reloaded: the file can be read only once");
            continue;
        }
        let reloading = async {
            watch.mark_current().await;
            reload(&service, files, trigger).await;
        };
        // A blocking disk must not prevent the shutdown.
        tokio::select! {
            name = stop.recv() => break Ok(name),
            () = reloading => {}
        }
    };
    let timeout = *service.config().service.shutdown_timeout;
    match cause {
        Ok(name) => {
            tracing::info!(signal = name, within = ?timeout, "stopping; a second signal ends the process immediately");
        }
        Err(part) => tracing::error!(part, within = ?timeout, "stopping because of a failure"),
    }
    tokio::select! {
        dropped = service.stop(timeout) => {
            if let Some(push) = push {
                push.stop().await;
            }
            exit_result(cause.err(), dropped)
        }
        _ = stop.recv() => {
            let fate = if config.storage.directory.is_some() { "stays in the journal" } else { "is lost" };
            Err(CommandFailure::Run(format!("ended by a second signal; unsent data {fate}")))
        }
    }
}

/// Fails if a part of the service failed or items were dropped: systemd's `Restart=on-failure` and Kubernetes then
/// start the process again and report the exit code. A process that kept running would refuse a part of the traces for
/// ever.
fn exit_result(failed_part: Option<&str>, dropped: u64) -> Result<(), CommandFailure> {
    let dropped = (dropped > 0).then(|| format!("{dropped} items could not be sent and were dropped"));
    let reasons: Vec<String> = failed_part.map(str::to_owned).into_iter().chain(dropped).collect();
    if reasons.is_empty() { Ok(()) } else { Err(CommandFailure::Run(reasons.join("; "))) }
}

const NOT_RELOADED: &str = "the configuration was not reloaded; the current one stays in force";

/// Reads the configuration again and applies the reloadable part. After any error the service continues
/// with the current configuration.
async fn reload(service: &Service, files: &ConfigFiles, trigger: &'static str) {
    let files = files.clone();
    let new = match tokio::task::spawn_blocking(move || crate::config::load(&files.files)).await {
        Ok(Ok(new)) => new,
        Ok(Err(invalid)) => {
            service.telemetry().count_reload(false);
            let problems = invalid.lines();
            problems
                .iter()
                .for_each(|problem| tracing::error!(%problem, "the new configuration cannot be used"));
            tracing::error!(trigger, problems = problems.len(), "{NOT_RELOADED}");
            return;
        }
        Err(error) => {
            tracing::error!(%error, "reading the configuration ended abnormally; this is a bug");
            return;
        }
    };
    let reloaded = match service.reload(&new) {
        Ok(reloaded) => reloaded,
        Err(error) => {
            tracing::error!(trigger, %error, "{NOT_RELOADED}");
            return;
        }
    };
    if let Err(error) = log::set_level(&new.service.log_level) {
        tracing::warn!(%error, "the log level was not changed");
    }
    match reloaded.changed.is_empty() {
        true => tracing::info!(
            trigger,
            "the configuration was read again; nothing that can change while running has changed"
        ),
        false => tracing::info!(trigger, changed = %reloaded.changed.join(", "), "configuration reloaded"),
    }
    if !reloaded.needs_restart.is_empty() {
        let keys = reloaded.needs_restart.join(", ");
        tracing::warn!(%keys, "changes that need a restart were not applied");
    }
}

/// Signals that stop the process.
struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

fn listen(kind: SignalKind) -> Result<Signal, CommandFailure> {
    signal(kind).map_err(|e| CommandFailure::Run(format!("cannot listen for signals: {e}")))
}

impl StopSignals {
    fn new() -> Result<StopSignals, CommandFailure> {
        let (interrupt, terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
        Ok(StopSignals { interrupt, terminate })
    }

    /// The name of the next signal.
    async fn recv(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_signal_with_everything_sent_is_a_success() {
        assert!(exit_result(None, 0).is_ok());
        for (failed, dropped) in [(None, 2), (Some("a shard"), 0), (Some("a shard"), 2)] {
            assert_eq!(exit_result(failed, dropped).unwrap_err().exit_code(), 1);
        }
    }
}
