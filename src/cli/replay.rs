//! `replay`: recorded requests sent as they came.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tokio::time::Instant;

use super::input::{self, Recorded};
use crate::cli::failure::Failure;
use crate::cli::run;
use crate::cli::terminal::write_stderr;
use crate::export::config::{OtlpGrpc, OtlpHttp};
use crate::export::direct::{DirectClient, SendError};
use verdict_client::Tls;
use verdict_config::{Period, Secret};

pub(super) const LONG: &str = "\
Send recorded requests to an OTLP endpoint, as they came.

Reads what 'eval' reads. Each recorded request is sent as one request, unchanged (JSON as the
protobuf of the same meaning), in the order of the paths, one after the other. What the endpoint
asks to be sent again is sent again, up to five times.";

pub(super) const EXAMPLES: &str = "\
Examples:
  otel-verdict replay recordings/ --endpoint 127.0.0.1:4317
  otel-verdict replay run.jsonl --endpoint http://127.0.0.1:4318 --protocol http --rate 10
  otel-verdict replay run.pb --endpoint https://otlp.example.test:443 --header authorization=\"$TOKEN\"

Exit codes:
  0  everything was taken
  1  the endpoint did not take everything
  2  unreadable input or wrong usage";

/// How often a request is sent again before it is given up.
const AGAIN: u32 = 5;
/// The first wait before sending again, where the endpoint names none; doubled each time.
const WAIT: Duration = Duration::from_millis(200);
/// Nobody at a terminal waits longer for one request, whatever the endpoint asks for.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

#[derive(Args, Debug)]
pub(super) struct Replay {
    /// Files and folders to read; '-' is standard input
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Where to send: host:port or URL; https:// means TLS
    #[arg(short, long, value_name = "URL")]
    endpoint: String,
    /// How to send
    #[arg(short, long, value_enum, default_value_t)]
    protocol: Protocol,
    /// Requests per second; as fast as they are taken if not given
    #[arg(short, long, value_name = "N", value_parser = rate)]
    rate: Option<f64>,
    /// A header to send with every request; may be given several times
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = header)]
    headers: Vec<(String, Secret)>,
    /// How long one request may take
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    timeout: Period,
}

#[derive(ValueEnum, Clone, Copy, Debug, Default)]
enum Protocol {
    /// OTLP/gRPC
    #[default]
    Grpc,
    /// OTLP/HTTP with protobuf; /v1/traces and so on are appended to the URL
    Http,
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    // The upper bound keeps the pause above the clock's grain.
    if (0.001..=1_000_000.0).contains(&rate) {
        Ok(rate)
    } else {
        Err("not between 0.001 and 1000000".to_owned())
    }
}

fn header(text: &str) -> Result<(String, Secret), String> {
    let (name, value) = text.split_once('=').ok_or("give NAME=VALUE")?;
    Ok((name.trim().to_owned(), Secret::new(value)))
}

pub(super) fn replay(args: &Replay) -> Result<(), Failure> {
    let origins = input::find(&args.paths)?;
    let runtime = run::runtime()?;
    // Clients start tasks of their own.
    let _inside = runtime.enter();
    let client = client(args).map_err(|e| Failure::Usage(e.to_string()))?;
    let mut sender = Sender {
        client,
        pause: args.rate.map(|r| Duration::from_secs_f64(1.0 / r)),
        next: Instant::now(),
        tally: Tally::default(),
    };
    for origin in origins {
        input::read(&origin, &mut |recorded| runtime.block_on(sender.send(&recorded)))?;
    }
    let Tally { requests, refused, rejected } = sender.tally;
    write_stderr(&format!("{requests} requests sent, {refused} refused, {rejected} items rejected"));
    if refused > 0 || rejected > 0 {
        return Err(Failure::Run("the endpoint did not take everything".to_owned()));
    }
    Ok(())
}

fn client(args: &Replay) -> Result<DirectClient, crate::export::StartError> {
    let headers = args.headers.iter().cloned().collect();
    let insecure = !args.endpoint.starts_with("https://");
    match args.protocol {
        Protocol::Grpc => DirectClient::grpc(&OtlpGrpc {
            endpoint: args.endpoint.clone(),
            tls: Tls { insecure, ..Tls::default() },
            headers,
            timeout: args.timeout,
            ..OtlpGrpc::default()
        }),
        Protocol::Http => {
            let scheme = if args.endpoint.contains("://") { "" } else { "http://" };
            // A full URL of one service is what other tools ask for.
            let base = ["/v1/traces", "/v1/logs", "/v1/metrics"]
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

#[derive(Default)]
struct Tally {
    requests: u64,
    refused: u64,
    rejected: u64,
}

struct Sender {
    client: DirectClient,
    pause: Option<Duration>,
    next: Instant,
    tally: Tally,
}

impl Sender {
    async fn send(&mut self, recorded: &Recorded) {
        if let Some(pause) = self.pause {
            tokio::time::sleep_until(self.next).await;
            self.next += pause;
        }
        self.tally.requests += 1;
        let mut wait = WAIT;
        for attempt in 0..=AGAIN {
            match self.client.send(recorded.offer.signal, &recorded.offer.body).await {
                Ok((0, message)) if message.is_empty() => return,
                Ok((rejected, message)) => {
                    self.tally.rejected += rejected;
                    write_stderr(&format!("{}: {rejected} items rejected: {message}", recorded.origin));
                    return;
                }
                Err(SendError { retry: Some(after), .. }) if attempt < AGAIN => {
                    tokio::time::sleep(after.unwrap_or(wait).min(LONGEST_WAIT)).await;
                    wait *= 2;
                }
                Err(error) => {
                    self.tally.refused += 1;
                    write_stderr(&format!("{}: {error}", recorded.origin));
                    return;
                }
            }
        }
    }
}
