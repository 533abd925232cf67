//! `demo`: everything in one process over real OTLP/gRPC on loopback, on shipped traces.
//!
//! Recorded runs of real agent frameworks are sent to a processor started as `run` starts it; it
//! sends what it judged to a sink in the same process; the sink's spans are printed as trees.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::{Failure, put, run, tell};
use crate::config::{Config, Period};
use crate::export::config::{Color, ExporterConfig, OtlpGrpc, Tls};
use crate::export::console::{self, Style};
use crate::export::direct::Direct;
use crate::pipeline::service::Service;
use crate::receive::config::Endpoint;
use crate::receive::{self, Accepted, Answer, Intake, Offer, OtlpConfig, Signal};
use crate::recognise::Recogniser;
use crate::telemetry::Telemetry;
use crate::trace::Envelope;

pub(super) const LONG: &str = "\
Show what otel-verdict does, in one process and a few seconds.

Starts a sink and the processor on free loopback ports, sends recorded runs of real agent frameworks
to the processor over OTLP/gRPC, and prints the judged traces as the sink received them. Opens
nothing to the network and needs no configuration.";

pub(super) const EXAMPLES: &str = "\
Examples:
  otel-verdict demo
  otel-verdict demo | less -R

Exit codes:
  0  every span arrived, judged
  1  something went wrong";

/// A recorded request: its folder, its service, its bytes.
struct Capture {
    run: &'static str,
    signal: Signal,
    body: &'static [u8],
}

macro_rules! capture {
    ($signal:ident, $run:literal, $file:literal) => {
        Capture {
            run: $run,
            signal: Signal::$signal,
            body: include_bytes!(concat!("../../tests/data/frameworks/", $run, "/", $file)),
        }
    };
}

/// The runs shown, each with what is known to be wrong with it (`truth.json` beside it).
const CAPTURES: [Capture; 8] = [
    capture!(Traces, "googleadk-logs-a", "001.pb"),
    capture!(Logs, "googleadk-logs-a", "logs-001.pb"),
    capture!(Traces, "pydanticai-b", "001.pb"),
    capture!(Traces, "strands-c", "001.pb"),
    capture!(Traces, "vercelai-e", "001.pb"),
    capture!(Traces, "langgraph-openinference-m", "001.pb"),
    capture!(Traces, "langgraph-openllmetry-x", "001.pb"),
    capture!(Traces, "openaiagents-openinference-responses-b", "001.pb"),
];

/// Longer than any of this takes on a slow machine; a demo that hangs must end.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) fn demo() -> Result<(), Failure> {
    run::runtime()?.block_on(async {
        match tokio::time::timeout(PATIENCE, show()).await {
            Ok(shown) => shown,
            Err(_) => Err(Failure::Run(format!("the demo did not end within {PATIENCE:?}"))),
        }
    })
}

async fn show() -> Result<(), Failure> {
    let sink = Sink::start().await?;
    let config = config(sink.endpoint.clone())?;
    let service = Service::start(&config).await.map_err(|e| Failure::Run(e.to_string()))?;
    let Some(grpc) = service.grpc else { return Err(Failure::Run("nothing listens for gRPC".to_owned())) };
    tell(&format!("processor on {grpc}, sink on {}", sink.endpoint));

    let client = OtlpGrpc {
        endpoint: grpc.to_string(),
        tls: Tls { insecure: true, ..Tls::default() },
        ..OtlpGrpc::default()
    };
    let client = Direct::grpc(&client).map_err(|e| Failure::Run(e.to_string()))?;
    for capture in CAPTURES {
        let sent = client.send(capture.signal, &Bytes::from_static(capture.body)).await;
        let (rejected, why) = sent.map_err(|e| Failure::Run(format!("{}: {e}", capture.run)))?;
        if rejected > 0 {
            return Err(Failure::Run(format!("{}: {rejected} items rejected: {why}", capture.run)));
        }
    }
    // The recordings are whole, so there is nothing to wait for: what is open closes now.
    service.flush().await;
    let dropped = service.stop(*config.service.shutdown_timeout).await;
    if dropped > 0 {
        return Err(Failure::Run(format!("{dropped} items were dropped on the way to the sink")));
    }
    print(sink.take().await, &config)
}

fn config(sink: String) -> Result<Config, Failure> {
    let free = || Endpoint::new("127.0.0.1:0").map_err(Failure::Run);
    let mut config = Config::default();
    let protocols = &mut config.receivers.otlp.protocols;
    protocols.http = None;
    if let Some(grpc) = &mut protocols.grpc {
        grpc.endpoint = free()?;
    }
    config.admin.endpoint = free()?;
    for exporter in config.exporters.0.values_mut() {
        if let ExporterConfig::Grpc(grpc) = exporter {
            grpc.endpoint.clone_from(&sink);
        }
    }
    config.service.shutdown_timeout = Period::secs(10);
    Ok(config)
}

fn print(pieces: Vec<Bytes>, config: &Config) -> Result<(), Failure> {
    let recogniser = Recogniser::new(&config.verdict.recognise).map_err(|e| Failure::Run(e.to_string()))?;
    let kind_of = |span: &[u8], envelope: &Envelope| recogniser.kind(span, envelope);
    let trees = console::render(&pieces, &kind_of, &Style::detect(Color::Auto, &config.verdict.prefix));
    if trees.is_empty() {
        return Err(Failure::Run("nothing arrived at the sink".to_owned()));
    }
    put(trees.as_bytes())?;
    tell("\nThese spans went through OTLP/gRPC twice; their verdict.* attributes are what you just read.");
    tell("Next: otel-verdict run --config config/quickstart.yaml");
    Ok(())
}

/// Whatever is sent here is kept, as a back end would.
struct Sink {
    endpoint: String,
    kept: Arc<Kept>,
    stop: CancellationToken,
    serving: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct Kept {
    spans: Mutex<Vec<Bytes>>,
}

impl Intake for Kept {
    fn pressure(&self) -> Option<Duration> {
        None
    }

    fn offer(&self, offer: Offer) -> Answer<'_> {
        if offer.signal == Signal::Traces {
            self.spans.lock().unwrap_or_else(PoisonError::into_inner).push(offer.body);
        }
        Box::pin(std::future::ready(Ok(Accepted::default())))
    }
}

impl Sink {
    async fn start() -> Result<Sink, Failure> {
        let mut config = OtlpConfig::default();
        config.protocols.http = None;
        if let Some(grpc) = &mut config.protocols.grpc {
            grpc.endpoint = Endpoint::new("127.0.0.1:0").map_err(Failure::Run)?;
        }
        let bound = receive::bind(&config).await.map_err(|e| Failure::Run(e.to_string()))?;
        let endpoint = bound.grpc_addr().map(|addr| addr.to_string()).unwrap_or_default();
        let kept = Arc::new(Kept::default());
        let stop = CancellationToken::new();
        let intake: Arc<dyn Intake> = Arc::clone(&kept) as Arc<dyn Intake>;
        let serving =
            tokio::spawn(bound.serve(intake, Telemetry::new(), stop.clone(), Duration::from_secs(1)));
        Ok(Sink { endpoint, kept, stop, serving })
    }

    async fn take(self) -> Vec<Bytes> {
        self.stop.cancel();
        let _ = self.serving.await;
        std::mem::take(&mut *self.kept.spans.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
