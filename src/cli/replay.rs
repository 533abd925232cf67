//! `replay`: sends recorded requests unchanged.
//!
//! In: files, folders, standard input. Out: OTLP requests to an endpoint, counts on standard error.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use tokio::time::Instant;
use verdict_client::Tls;
use verdict_config::{Period, Secret};

use super::input::{self, RecordedRequest};
use crate::cli::command::{CommandFailure, runtime, write_stderr};
use crate::export::config::{OtlpGrpc, OtlpHttp};
use crate::export::direct::{DirectClient, SendError};

pub(super) const LONG_ABOUT: &str = "\
Send recorded requests unchanged to an OTLP endpoint.

Reads the same input as 'eval'. Each recorded request is sent as one request, unchanged (JSON is
encoded as protobuf), in the order of the paths, one after the other. A request that the
endpoint refuses with a retryable status is sent again, up to five times.";

pub(super) const EXAMPLES: &str = "\
Examples:
  otel-verdict replay recordings/ --endpoint 127.0.0.1:4317
  otel-verdict replay run.jsonl --endpoint http://127.0.0.1:4318 --rate 10
  otel-verdict replay run.pb --endpoint https://otlp.example.test:443 --header authorization=\"$TOKEN\"

Exit codes:
  0  the endpoint accepted everything
  1  the endpoint did not accept everything
  2  unreadable input or wrong usage";

/// Retries of one request.
const RETRIES: u32 = 5;
/// First delay before a retry if the endpoint names none; doubled after each retry.
const FIRST_DELAY: Duration = Duration::from_millis(200);
/// Upper bound of a delay that the endpoint requests: the command runs interactively.
const MAX_DELAY: Duration = Duration::from_secs(30);

#[derive(Args, Debug)]
pub(super) struct ReplayArgs {
    /// Files and folders to read; '-' is standard input
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Destination: host:port or URL; https:// means TLS
    #[arg(short, long, value_name = "URL")]
    endpoint: String,
    /// Protocol of the requests; by default http for port 4318 and URLs with a path of OTLP/HTTP, else grpc
    #[arg(short, long, value_enum)]
    protocol: Option<Protocol>,
    /// Requests per second; unlimited if not given
    #[arg(short, long, value_name = "N", value_parser = parse_rate)]
    rate: Option<f64>,
    /// A header to send with every request; may be given several times
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = parse_header)]
    headers: Vec<(String, Secret)>,
    /// Timeout of one request
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    timeout: Period,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Debug)]
enum Protocol {
    /// OTLP/gRPC
    Grpc,
    /// OTLP/HTTP with protobuf; /v1/traces and so on are appended to the URL
    Http,
}

/// The paths of OTLP/HTTP.
const OTLP_HTTP_PATHS: [&str; 3] = ["/v1/traces", "/v1/logs", "/v1/metrics"];

impl ReplayArgs {
    /// The protocol, by the registered port of OTLP/HTTP and its paths if none is given.
    fn protocol(&self) -> Protocol {
        let bare = self.endpoint.trim_end_matches('/');
        let is_http = bare.ends_with(":4318") || OTLP_HTTP_PATHS.iter().any(|path| bare.ends_with(path));
        self.protocol.unwrap_or(if is_http { Protocol::Http } else { Protocol::Grpc })
    }
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    // The upper bound keeps the pause above the clock's resolution.
    if (0.001..=1_000_000.0).contains(&rate) {
        Ok(rate)
    } else {
        Err("not between 0.001 and 1000000".to_owned())
    }
}

fn parse_header(text: &str) -> Result<(String, Secret), String> {
    let (name, value) = text.split_once('=').ok_or("give NAME=VALUE")?;
    Ok((name.trim().to_owned(), Secret::new(value)))
}

pub(super) fn replay(args: &ReplayArgs) -> Result<(), CommandFailure> {
    let inputs = input::files(&args.paths)?;
    let runtime = runtime()?;
    // Clients spawn tasks on the runtime.
    let _guard = runtime.enter();
    let client = client(args).map_err(|e| CommandFailure::Usage(e.to_string()))?;
    let mut sender = ReplaySender {
        client,
        is_grpc: args.protocol() == Protocol::Grpc,
        pause: args.rate.map(|r| Duration::from_secs_f64(1.0 / r)),
        next_send: Instant::now(),
        requests: 0,
        refused: 0,
        rejected: 0,
    };
    for input in inputs {
        input::read(&input, &ProgressBar::hidden(), &mut |recorded| {
            runtime.block_on(sender.send(&recorded));
            Ok(())
        })?;
    }
    let ReplaySender { requests, refused, rejected, .. } = sender;
    write_stderr(&format!("{requests} requests sent, {refused} refused, {rejected} items rejected"));
    if refused > 0 || rejected > 0 {
        return Err(CommandFailure::Run("the endpoint did not accept everything".to_owned()));
    }
    Ok(())
}

fn client(args: &ReplayArgs) -> Result<DirectClient, crate::export::StartError> {
    let headers = args.headers.iter().cloned().collect();
    let insecure = !args.endpoint.starts_with("https://");
    match args.protocol() {
        Protocol::Grpc => DirectClient::grpc(&OtlpGrpc {
            endpoint: args.endpoint.clone(),
            tls: Tls { insecure, ..Tls::default() },
            headers,
            timeout: args.timeout,
            ..OtlpGrpc::default()
        }),
        Protocol::Http => {
            let scheme = if args.endpoint.contains("://") { "" } else { "http://" };
            // Other tools expect the full URL of one service; the base URL is its start.
            let base = OTLP_HTTP_PATHS
                .iter()
                .find_map(|path| args.endpoint.strip_suffix(path))
                .unwrap_or(&args.endpoint);
            DirectClient::http(&OtlpHttp {
                endpoint: format!("{scheme}{base}"),
                headers,
                timeout: args.timeout,
                ..OtlpHttp::default()
            })
        }
    }
}

struct ReplaySender {
    client: DirectClient,
    is_grpc: bool,
    pause: Option<Duration>,
    next_send: Instant,
    requests: u64,
    refused: u64,
    /// Items that the endpoint rejected in requests that it accepted.
    rejected: u64,
}

impl ReplaySender {
    async fn send(&mut self, recorded: &RecordedRequest) {
        if let Some(pause) = self.pause {
            tokio::time::sleep_until(self.next_send).await;
            self.next_send += pause;
        }
        self.requests += 1;
        let mut wait = FIRST_DELAY;
        for attempt in 0..=RETRIES {
            match self.client.send(recorded.offer.signal, &recorded.offer.body).await {
                Ok((0, message)) if message.is_empty() => return,
                Ok((rejected, message)) => {
                    self.rejected += rejected;
                    write_stderr(&format!("{}: {rejected} items rejected: {message}", recorded.location));
                    return;
                }
                Err(SendError { retry: Some(after), .. }) if attempt < RETRIES => {
                    tokio::time::sleep(after.unwrap_or(wait).min(MAX_DELAY)).await;
                    wait *= 2;
                }
                Err(error) => {
                    self.refused += 1;
                    let message = error.to_string();
                    // A gRPC client reports the answer of an HTTP server with this status.
                    let is_http_server = self.is_grpc && message.contains("HTTP status 404");
                    let hint = if is_http_server {
                        "; is this an endpoint of OTLP/HTTP? Use --protocol http"
                    } else {
                        ""
                    };
                    write_stderr(&format!("{}: {message}{hint}", recorded.location));
                    return;
                }
            }
        }
    }
}
