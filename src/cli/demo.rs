//! `demo`: sender, processor and receiver in one process over OTLP/gRPC on loopback.
//!
//! In: shipped recordings of agent frameworks. Out: annotated trees. The processor starts as `run` starts
//! it and exports to a sink in the same process; the sink's spans are printed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use tokio_util::sync::CancellationToken;
use verdict_client::Tls;
use verdict_config::Period;
use verdict_eval::Emission;
use verdict_eval::annotation::RenderedTrace;
use verdict_eval::trace::Recogniser;
use verdict_otlp::Signal;
use verdict_otlp::request::{Group, Interner, split};
use verdict_otlp::trace::TraceId;
use verdict_otlp::write::{self, TelemetryItem};

use crate::cli::command::{CommandFailure, runtime, write_stderr, write_stdout};
use crate::config::Config;
use crate::export::config::{Color, ExporterConfig, OtlpGrpc};
use crate::export::console::{self, TreeStyle};
use crate::export::direct::DirectClient;
use crate::page::config::PageConfig;
use crate::pipeline::service::Service;
use crate::receive::config::Endpoint;
use crate::receive::{self, Accepted, Intake, Offer, OfferFuture, OtlpConfig};
use crate::telemetry::Telemetry;

pub(super) const LONG_ABOUT: &str = "\
Show what otel-verdict does, in one process and a few seconds.

Starts a sink and the processor on free loopback ports, sends recorded runs of real agent
frameworks to the processor over OTLP/gRPC, and prints the evaluated traces as the sink received
them. Opens nothing to the network and needs no configuration.

With --page the traces are shown in a browser as well: the live page is served on loopback until
the command is stopped (Ctrl-C).";

pub(super) const EXAMPLES: &str = "\
Examples:
  otel-verdict demo
  otel-verdict demo | less -R
  otel-verdict demo --page

Exit codes:
  0  every span arrived, evaluated
  1  something went wrong";

/// A recorded run of an agent.
struct RecordedRun {
    name: &'static str,
    description: &'static str,
    requests: &'static [(Signal, &'static [u8])],
}

macro_rules! captured {
    ($file:literal) => {
        include_bytes!(concat!("../../demo/", $file)).as_slice()
    };
}

/// The runs. All answer the same question, how much taller one mountain is than another according to a
/// web page. `truth.json` next to each recording lists its faults.
const RUNS: [RecordedRun; 7] = [
    RecordedRun {
        name: "Google ADK",
        description: "a correct run, whose content is in log records",
        requests: &[
            // Logs come first: on a busy machine the trace could close before its content arrives.
            (Signal::Logs, captured!("googleadk-logs-a/logs-001.pb")),
            (Signal::Traces, captured!("googleadk-logs-a/001.pb")),
        ],
    },
    RecordedRun {
        name: "Pydantic AI",
        description: "a page is not found and the agent finds another; 'existential', the default policy, \
                counts that, 'outcome_relevant' does not",
        requests: &[(Signal::Traces, captured!("pydanticai-b/001.pb"))],
    },
    RecordedRun {
        name: "OpenAI Agents",
        description: "the same, under an instrumentation that hides most content",
        requests: &[(Signal::Traces, captured!("openaiagents-openinference-responses-b/001.pb"))],
    },
    RecordedRun {
        name: "Strands",
        description: "the same wrong call four times; the tool returns its error as text, without an error status",
        requests: &[(Signal::Traces, captured!("strands-c/001.pb"))],
    },
    RecordedRun {
        name: "Vercel AI SDK",
        description: "planned steps skipped, and an unsupported number",
        requests: &[(Signal::Traces, captured!("vercelai-e/001.pb"))],
    },
    RecordedRun {
        name: "LangGraph",
        description: "the model writes a tool call that is cut off, and the run ends without an answer",
        requests: &[(Signal::Traces, captured!("langgraph-openinference-m/001.pb"))],
    },
    RecordedRun {
        name: "LangGraph",
        description: "the model's endpoint responds with HTTP 500",
        requests: &[(Signal::Traces, captured!("langgraph-openllmetry-x/001.pb"))],
    },
];

/// Upper bound of the whole demo on a slow machine.
const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Args, Debug)]
pub(super) struct DemoArgs {
    /// Also serve the live page with the traces, on loopback, until Ctrl-C
    #[arg(long)]
    page: bool,
}

pub(super) fn demo(args: &DemoArgs) -> Result<(), CommandFailure> {
    runtime()?.block_on(async {
        let (service, config) = match tokio::time::timeout(TIMEOUT, Box::pin(send_and_print(args.page))).await
        {
            Ok(shown) => shown?,
            Err(_) => return Err(CommandFailure::Run(format!("the demo did not end within {TIMEOUT:?}"))),
        };
        if let Some(page) = service.page {
            write_stderr(&format!("The live page is at http://{page}/ until you press Ctrl-C."));
            tokio::signal::ctrl_c().await.map_err(CommandFailure::run)?;
        }
        match service.stop(*config.service.shutdown_timeout).await {
            0 => Ok(()),
            dropped => Err(CommandFailure::Run(format!("{dropped} items were dropped"))),
        }
    })
}

/// Starts the service. If that fails and the live page is configured, retries with a free port for the page,
/// because its default port may be in use.
async fn start(mut config: Config) -> Result<(Service, Config), CommandFailure> {
    match Service::start(&config).await {
        Ok(service) => Ok((service, config)),
        Err(error) => {
            let Some(page) = &mut config.page else { return Err(CommandFailure::run(error)) };
            page.endpoint = Endpoint::loopback(0);
            let service = Service::start(&config).await.map_err(CommandFailure::run)?;
            Ok((service, config))
        }
    }
}

/// Starts the sink and the service, sends the recordings and prints the evaluated traces. Returns the running
/// service with its configuration.
async fn send_and_print(with_page: bool) -> Result<(Service, Config), CommandFailure> {
    let sink = Sink::start().await?;
    let config = Config { page: with_page.then(PageConfig::default), ..config(sink.endpoint.clone())? };
    let (service, config) = Box::pin(start(config)).await?;
    let Some(grpc) = service.grpc else {
        return Err(CommandFailure::Run("nothing listens for gRPC".to_owned()));
    };
    write_stderr(&format!("processor on {grpc}, sink on {}", sink.endpoint));

    let client = OtlpGrpc {
        endpoint: grpc.to_string(),
        tls: Tls { insecure: true, ..Tls::default() },
        timeout: Period(TIMEOUT),
        ..OtlpGrpc::default()
    };
    let client = DirectClient::grpc(&client).map_err(CommandFailure::run)?;
    let mut expected = 0;
    for (signal, body) in RUNS.iter().flat_map(|run| run.requests) {
        let sent = client.send(*signal, &Bytes::from_static(body)).await;
        let (rejected, message) = sent.map_err(CommandFailure::run)?;
        if rejected > 0 {
            return Err(CommandFailure::Run(format!("{rejected} items rejected: {message}")));
        }
        if *signal == Signal::Traces {
            expected += groups(body).iter().map(|group| group.spans.len()).sum::<usize>();
        }
    }
    // Traces close after the quiet time of the configuration.
    while sink.stored.count() < expected {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    service.flush().await;
    let received = std::mem::take(&mut *sink.stored.lock());
    let arrived = received.iter().map(|group| group.spans.len()).sum::<usize>();
    if arrived != expected {
        return Err(CommandFailure::Run(format!("{expected} spans were sent, {arrived} arrived")));
    }
    print(&received, &config)?;
    write_stderr(&format!(
        "{arrived} spans went over OTLP/gRPC twice; what you read are their verdict.* attributes.\n\
         Next: otel-verdict run --config config/quickstart.yaml"
    ));
    Ok((service, config))
}

/// The spans of a request, by trace.
fn groups(body: &[u8]) -> Vec<Group> {
    split(body, "verdict.", &Interner::default()).map(|split| split.groups).unwrap_or_default()
}

fn config(sink: String) -> Result<Config, CommandFailure> {
    let free_port = || Endpoint::new("127.0.0.1:0").map_err(CommandFailure::run);
    let mut config = Config::default();
    let protocols = &mut config.receivers.otlp.protocols;
    protocols.http = None;
    if let Some(grpc) = &mut protocols.grpc {
        grpc.endpoint = free_port()?;
    }
    config.admin.endpoint = free_port()?;
    // The recordings are complete and arrive at once; short times suffice.
    config.verdict.close.quiet = Period::millis(300);
    config.verdict.close.idle = Period::secs(1);
    config.verdict.close.remote_idle = Period::millis(500);
    for exporter in config.exporters.0.values_mut() {
        if let ExporterConfig::Grpc(grpc) = exporter {
            grpc.endpoint.clone_from(&sink);
            grpc.timeout = Period(TIMEOUT);
        }
    }
    config.service.shutdown_timeout = Period::secs(10);
    Ok(config)
}

fn print(received: &[Group], config: &Config) -> Result<(), CommandFailure> {
    let recogniser = Recogniser::new(&config.verdict.evaluation.recognise).map_err(CommandFailure::run)?;
    let emission = Emission::new(&config.verdict.evaluation);
    let recognise = |tree| RenderedTrace::new(&recogniser, tree, &emission);
    let style = TreeStyle::detect(Color::Auto, &config.verdict.evaluation.prefix);
    let mut out = String::new();
    for run in &RUNS {
        out.push_str(&format!("== {}: {}\n\n", run.name, run.description));
        let trace_requests = run.requests.iter().filter(|(signal, _)| *signal == Signal::Traces);
        let traces: Vec<TraceId> =
            trace_requests.flat_map(|(_, body)| groups(body)).map(|group| group.trace).collect();
        let spans = received.iter().filter(|group| traces.contains(&group.trace)).flat_map(|g| &g.spans);
        let items: Vec<TelemetryItem<'_>> = spans
            .map(|span| TelemetryItem { envelope: &span.envelope, bytes: &span.bytes, appended: &[] })
            .collect();
        let pieces: Vec<Bytes> = write::requests(&items, usize::MAX).into_iter().map(|p| p.bytes).collect();
        out.push_str(&console::render(&pieces, &recognise, &style));
        out.push('\n');
    }
    write_stdout(out.as_bytes())
}

/// A receiver that stores every span.
struct Sink {
    endpoint: String,
    stored: Arc<StoredSpans>,
}

#[derive(Default)]
struct StoredSpans {
    groups: Mutex<Vec<Group>>,
}

impl StoredSpans {
    fn lock(&self) -> MutexGuard<'_, Vec<Group>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self) -> usize {
        self.lock().iter().map(|group| group.spans.len()).sum()
    }
}

impl Intake for StoredSpans {
    fn pressure(&self) -> Option<Duration> {
        None
    }

    fn offer(&self, offer: Offer) -> OfferFuture<'_> {
        if offer.signal == Signal::Traces {
            self.lock().extend(groups(&offer.body));
        }
        Box::pin(std::future::ready(Ok(Accepted::default())))
    }
}

impl Sink {
    async fn start() -> Result<Sink, CommandFailure> {
        let mut config = OtlpConfig::default();
        config.protocols.http = None;
        if let Some(grpc) = &mut config.protocols.grpc {
            grpc.endpoint = Endpoint::new("127.0.0.1:0").map_err(CommandFailure::run)?;
        }
        let bound = receive::bind(&config).await.map_err(CommandFailure::run)?;
        let endpoint = bound.grpc_addr().map(|addr| addr.to_string()).unwrap_or_default();
        let stored = Arc::new(StoredSpans::default());
        let intake: Arc<dyn Intake> = Arc::clone(&stored) as Arc<dyn Intake>;
        // Serves until the runtime of the demo ends.
        let never_cancelled = CancellationToken::new();
        tokio::spawn(bound.serve(intake, Telemetry::new(), never_cancelled, Duration::ZERO));
        Ok(Sink { endpoint, stored })
    }
}
