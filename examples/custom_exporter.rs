//! A custom exporter: annotated spans go to another task of this process, over a bounded channel.
//!
//! The service runs as `otel-verdict run` runs it. The exporter is in its configuration like a built-in
//! one, with its own queue, retries and, with a journal, dead letters and acknowledgements.
//! Run with `cargo run --example custom_exporter`.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use otel_verdict::config::from_sources;
use otel_verdict::export::config::OtlpGrpc;
use otel_verdict::export::direct::DirectClient;
use otel_verdict::export::{ExportClient, ExportFuture, ExportRequest, ExportResult};
use otel_verdict::extensions::Extensions;
use otel_verdict::pipeline::service::Service;
use tokio::sync::mpsc::{self, error::TrySendError};
use verdict_client::Tls;
use verdict_config::Source;
use verdict_otlp::{Signal, json};

const CONFIG: &str = "
receivers: { otlp: { protocols: { grpc: { endpoint: '127.0.0.1:0' } } } }
admin: { endpoint: '127.0.0.1:0' }
verdict: { close: { quiet: 50ms } }
exporters: { custom/channel: { signals: [traces], retry_on_failure: { initial_interval: 10ms } } }
";

/// Delay before a request is sent again if the channel is full.
const RETRY: Duration = Duration::from_millis(10);

/// The sending half of the channel.
#[derive(Debug)]
struct ChannelClient(mpsc::Sender<Bytes>);

impl ExportClient for ChannelClient {
    fn export<'a>(&'a self, request: &'a ExportRequest) -> ExportFuture<'a> {
        let result = match self.0.try_send(request.to_bytes()) {
            Ok(()) => ExportResult::ACCEPTED,
            Err(TrySendError::Full(_)) => {
                ExportResult::Retry { after: Some(RETRY), reason: "the channel is full".to_owned() }
            }
            Err(TrySendError::Closed(_)) => ExportResult::Rejected("the channel is closed".to_owned()),
        };
        Box::pin(ready(result.into()))
    }
}

/// Sends `requests` to a service; returns one line per request that its exporter delivers.
pub async fn run(requests: Vec<Vec<u8>>) -> Result<Vec<String>, Box<dyn Error>> {
    let (sender, mut receiver) = mpsc::channel(1);
    let exporters = [("custom/channel".to_owned(), Arc::new(ChannelClient(sender)) as _)].into();
    let source = Source { name: "example".to_owned(), text: CONFIG.to_owned() };
    let config = from_sources(&[source], &|_| None)?;
    let service = Service::start_with(&config, Extensions { exporters, ..Extensions::default() }).await?;

    let endpoint = service.grpc.ok_or("no gRPC listener")?.to_string();
    let tls = Tls { insecure: true, ..Tls::default() };
    let client = DirectClient::grpc(&OtlpGrpc { endpoint, tls, ..OtlpGrpc::default() })?;
    for request in requests {
        client.send(Signal::Traces, &request.into()).await?;
    }

    // Open traces are evaluated and exported while the service stops.
    let mut lines = Vec::new();
    let stopping = service.stop(Duration::from_secs(60));
    tokio::pin!(stopping);
    loop {
        tokio::select! {
            biased;
            Some(request) = receiver.recv() => {
                let text = String::from_utf8(json::encode(Signal::Traces, &request)?)?;
                let count = |part: &str| text.matches(part).count();
                lines.push(format!("{} spans, {} with a result", count("\"spanId\""), count("\"verdict.result\"")));
            }
            dropped = &mut stopping => {
                lines.push(format!("{dropped} dropped"));
                return Ok(lines);
            }
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let request = |run: &str| std::fs::read(format!("{}/demo/{run}/001.pb", env!("CARGO_MANIFEST_DIR")));
    for line in run(vec![request("pydanticai-b")?, request("strands-c")?]).await? {
        println!("{line}");
    }
    Ok(())
}
