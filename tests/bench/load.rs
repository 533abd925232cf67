//! The whole processor under load, over loopback gRPC: `cargo bench --bench load`.
//!
//! This process generates the load and is the destination. Between them runs a process: a raw pass-through, a
//! relay that decodes and encodes with opentelemetry-proto, with our allocator and with the system's, or the
//! `otel-verdict` binary, without metrics and with all rules. Printed for each: spans a second, CPU seconds per
//! million spans, latency from the request that completes a trace until the trace is at the sink, and resident
//! bytes of buffered spans. `cargo bench --bench load -- memory` measures memory only, `-- small` or `-- agent`
//! one corpus. `-- features` compares the page, alarms and telemetry of the process on and off, in alternation;
//! with `OTEL_VERDICT_BEFORE` set to another binary also with that one. `-- collector` compares with a Collector
//! (`collector.rs`). Linux only: CPU and memory are read from `/proc`.
#![allow(clippy::print_stdout, clippy::expect_used, clippy::unwrap_used, clippy::panic)]

mod allocator;
mod collector;
// Each bench uses some of their items.
#[allow(dead_code)]
mod corpus;
mod relay;

use std::collections::{BTreeSet, HashMap};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use corpus::{Corpus, TRACE_ID_PREFIX, TRACES};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message;
use relay::Client;
use tokio::net::TcpListener;

#[global_allocator]
static ALLOCATOR: allocator::SelectableAllocator = allocator::SelectableAllocator;

/// Requests in flight at once.
const MAX_IN_FLIGHT: usize = 8;
/// The load at which the latency of a processor is measured, as a share of its throughput.
const LATENCY_LOAD_SHARE: f64 = 0.2;
/// Time for which latency is measured.
const LATENCY_TIME: Duration = Duration::from_secs(10);

fn main() {
    let role = std::env::args().nth(1);
    allocator::select(role.as_deref() == Some(ProcessKind::ProstCodecOfSystem.name()));
    run();
}

#[tokio::main]
async fn run() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, role, from, to] = &arguments[..]
        && let Some(kind) = ProcessKind::ALL.into_iter().find(|kind| kind.name() == role)
        && let Some(work) = kind.relay_function()
    {
        return relay::relay(from.parse().unwrap(), to.parse().unwrap(), work).await;
    }
    if !cfg!(target_os = "linux") {
        return println!("skipped: CPU and memory are read from /proc, which this system does not have");
    }
    let sink = Sink::start().await;
    let is_memory_only = arguments.iter().any(|argument| argument == "memory");
    let corpora = [(Corpus::agent(TRACES), 8), (Corpus::small(TRACES), 40)];
    let is_corpus_named = corpora.iter().any(|(corpus, _)| arguments.iter().any(|a| a == corpus.name));
    for (corpus, rounds) in corpora {
        if is_corpus_named && arguments.iter().all(|argument| argument != corpus.name) {
            continue;
        }
        println!("\n{}: {} spans of {} bytes", corpus.name, corpus.spans, corpus.payload / corpus.spans);
        if arguments.iter().any(|argument| argument == "features") {
            compare_features(&sink, &corpus, rounds / 4).await;
            continue;
        }
        if arguments.iter().any(|argument| argument == "collector") {
            let is_time_only = arguments.iter().any(|argument| argument == "time");
            collector::compare(&sink, &corpus, rounds / 4, !is_time_only, !is_memory_only).await;
            continue;
        }
        if !is_memory_only {
            compare_speed(&sink, &corpus, rounds).await;
        }
        memory(&sink, &corpus).await;
    }
}

/// Number of measurements of each configuration in [`compare_features`].
const REPETITIONS: usize = 6;

/// Compares throughput and CPU time with optional features on and off. `agent_series: 0` disables a feature that is on
/// by default; every other configuration enables one feature. The binary of `OTEL_VERDICT_BEFORE` is another version.
/// The speed of the machine changes over minutes, so each configuration is measured several times, in turn, and medians
/// are compared.
async fn compare_features(sink: &Sink, corpus: &Corpus, rounds: u32) {
    let ours = env!("CARGO_BIN_EXE_otel-verdict").to_owned();
    let before = std::env::var("OTEL_VERDICT_BEFORE").ok();
    let [page, ..] = free_ports();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let telemetry_addr = listener.local_addr().unwrap();
    let accepting_router = axum::Router::new().fallback(async |_: Bytes| ());
    tokio::spawn(axum::serve(listener, accepting_router).into_future());
    let mut all: Vec<(&str, String, String)> =
        before.map(|b| ("before", b, String::new())).into_iter().collect();
    for (name, extra_settings) in [
        ("default", String::new()),
        ("agent_series: 0", "agent_series: 0".to_owned()),
        ("page", format!("page: {{ endpoint: '{page}' }}")),
        ("alarms", "alarms".to_owned()),
        ("telemetry", format!("  telemetry: {{ endpoint: 'http://{telemetry_addr}', interval: 1s }}")),
    ] {
        all.push((name, ours.clone(), extra_settings));
    }
    let mut measured: Vec<Vec<(f64, f64)>> = vec![Vec::new(); all.len()];
    for _ in 0..REPETITIONS {
        for ((_, binary, extra_settings), figures) in all.iter().zip(&mut measured) {
            let target = Target::process(binary, ProcessKind::AllRules, extra_settings, sink, "0s").await;
            figures.push(throughput(&target, sink, corpus, rounds).await);
        }
    }
    let median = |figures: &[(f64, f64)], figure: fn(&(f64, f64)) -> f64| {
        let mut all: Vec<f64> = figures.iter().map(figure).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let base = all.iter().position(|(name, ..)| *name == "default").unwrap();
    let baseline = (median(&measured[base], |f| f.0), median(&measured[base], |f| f.1));
    println!("{:<16} {:>9} {:>7} {:>14} {:>7}", "", "spans/s", "", "CPU s/million", "");
    for ((name, ..), figures) in all.iter().zip(&measured) {
        let (rate, cpu) = (median(figures, |f| f.0), median(figures, |f| f.1));
        let (rate_ratio, cpu_ratio) = (rate / baseline.0, cpu / baseline.1);
        println!("{name:<16} {rate:>9.0} {rate_ratio:>6.3}x {cpu:>14.2} {cpu_ratio:>6.3}x");
    }
}

/// Throughput, CPU time and latency of every kind of process.
async fn compare_speed(sink: &Sink, corpus: &Corpus, rounds: u32) {
    println!(
        "{:<16} {:>9} {:>14} {:>6} {:>9} {:>9} {:>9} {:>9}",
        "", "spans/s", "CPU s/million", "x", "paced/s", "p50 ms", "p99 ms", "of all"
    );
    let mut rates = Vec::new();
    for kind in ProcessKind::ALL {
        let target = Target::start(kind, sink, "0s").await;
        rates.push(throughput(&target, sink, corpus, rounds).await);
    }
    let base = rates[0].1;
    let ours = ProcessKind::ALL
        .iter()
        .zip(&rates)
        .find(|(kind, _)| **kind == ProcessKind::WithoutMetrics)
        .unwrap()
        .1
        .0;
    for (kind, &(rate, cpu)) in ProcessKind::ALL.into_iter().zip(&rates) {
        // The relays' latency is compared with ours, so it is measured at the same rate.
        let pace = LATENCY_LOAD_SHARE * if kind.relay_function().is_some() { ours } else { rate };
        let target = Target::start(kind, sink, "0s").await;
        let Latency { p50, p99, p99_of_a_second } = latency(&target, sink, corpus, pace).await;
        let x = cpu / base;
        println!(
            "{:<16} {rate:>9.0} {cpu:>14.2} {x:>6.2} {pace:>9.0} {p50:>9.2} {p99_of_a_second:>9.2} {p99:>9.2}",
            kind.name()
        );
    }
}

/// The process between generator and sink.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ProcessKind {
    PassThrough,
    ProstCodec,
    ProstCodecOfSystem,
    WithoutMetrics,
    AllRules,
}

impl ProcessKind {
    const ALL: [ProcessKind; 5] = [
        ProcessKind::PassThrough,
        ProcessKind::ProstCodec,
        ProcessKind::ProstCodecOfSystem,
        ProcessKind::WithoutMetrics,
        ProcessKind::AllRules,
    ];

    fn name(self) -> &'static str {
        match self {
            ProcessKind::PassThrough => "pass-through",
            ProcessKind::ProstCodec => "prost codec",
            ProcessKind::ProstCodecOfSystem => "prost, malloc",
            ProcessKind::WithoutMetrics => "without metrics",
            ProcessKind::AllRules => "all rules",
        }
    }

    /// The function that a relay applies to a request; `None` for the processor.
    fn relay_function(self) -> Option<fn(Bytes) -> Bytes> {
        match self {
            ProcessKind::PassThrough => Some(std::convert::identity),
            ProcessKind::ProstCodec | ProcessKind::ProstCodecOfSystem => Some(|request| {
                let decoded = ExportTraceServiceRequest::decode(request).expect("the corpus decodes");
                decoded.encode_to_vec().into()
            }),
            ProcessKind::WithoutMetrics | ProcessKind::AllRules => None,
        }
    }
}

/// A running process, killed when dropped.
struct Target {
    child: Child,
    client: Client,
    /// Contains the configuration; deleted after the process.
    _folder: tempfile::TempDir,
    /// Contains the journal, if there is one.
    journal: Option<tempfile::TempDir>,
}

impl Drop for Target {
    fn drop(&mut self) {
        // The process may have ended already; then the measurement fails.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Target {
    async fn start(kind: ProcessKind, sink: &Sink, quiet: &str) -> Target {
        if kind.relay_function().is_none() {
            return Target::process(env!("CARGO_BIN_EXE_otel-verdict"), kind, "", sink, quiet).await;
        }
        let [grpc, ..] = free_ports();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([kind.name().to_owned(), grpc.to_string(), sink.addr.to_string()]);
        Target::spawn(command, grpc, tempfile::tempdir().unwrap()).await
    }

    /// The processor, with a section `page`, an entry of `service`, or `alarms` in addition.
    async fn process(
        binary: &str,
        kind: ProcessKind,
        extra_settings: &str,
        sink: &Sink,
        quiet: &str,
    ) -> Target {
        let folder = tempfile::tempdir().unwrap();
        let [grpc, http, admin] = free_ports();
        let mut text = configuration(kind, [grpc, http, admin], sink.addr, quiet);
        match extra_settings {
            "alarms" => {
                text = text.replace(
                    "metrics: {} }",
                    "metrics: {}, alarms: { loops: true, max_tokens: 1000000000 } }",
                )
            }
            "agent_series: 0" => {
                text = text.replace(
                    &format!("admin: {{ endpoint: \"{admin}\" }}"),
                    &format!("admin: {{ endpoint: \"{admin}\", agent_series: 0 }}"),
                );
                assert!(text.contains("agent_series"), "the section of the admin port has changed");
            }
            service if service.starts_with(' ') => {
                let service = service.trim();
                text = text.replace("log_level: warn }", &format!("log_level: error, {service} }}"));
            }
            section => text.push_str(section),
        }
        let file = folder.path().join("config.yaml");
        std::fs::write(&file, text).unwrap();
        let mut command = Command::new(binary);
        command.arg("run").arg("--config").arg(file);
        Target::spawn(command, grpc, folder).await
    }

    async fn spawn(mut command: Command, grpc: SocketAddr, folder: tempfile::TempDir) -> Target {
        let child = command.stdout(Stdio::null()).spawn().expect("the process starts");
        Target { child, client: Client::connect(grpc).await, _folder: folder, journal: None }
    }

    /// CPU seconds that the process has used.
    fn cpu(&self) -> f64 {
        relay::cpu(self.child.id())
    }

    /// Resident bytes of the process.
    fn resident(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() * 1024.0
    }

    /// Sends everything, [`MAX_IN_FLIGHT`] requests at a time.
    async fn send(&self, requests: &[Bytes]) {
        self.client.send(requests, MAX_IN_FLIGHT).await;
    }
}

fn free_ports() -> [SocketAddr; 3] {
    let listen = || std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let all = [listen(), listen(), listen()];
    all.map(|listener| listener.local_addr().unwrap())
}

fn configuration(
    kind: ProcessKind,
    [grpc, http, admin]: [SocketAddr; 3],
    sink: SocketAddr,
    quiet: &str,
) -> String {
    let metrics = match kind {
        ProcessKind::WithoutMetrics => {
            // One key disables a family of metrics: `plan` disables `plan.score`.
            let family = |name: &'static str| name.split('.').next().unwrap_or(name);
            let all: BTreeSet<&str> = verdict_eval::metrics::names().map(family).collect();
            let disabled: Vec<String> =
                all.iter().map(|name| format!("{name}: {{ enabled: false }}")).collect();
            format!("emit: [attributes], metrics: {{ {} }}", disabled.join(", "))
        }
        _ => "metrics: {}".to_owned(),
    };
    format!(
        r#"
receivers: {{ otlp: {{ protocols: {{ grpc: {{ endpoint: "{grpc}" }}, http: {{ endpoint: "{http}" }} }} }} }}
verdict: {{ close: {{ quiet: {quiet} }}, {metrics} }}
exporters: {{ otlp_grpc: {{ endpoint: "{sink}", tls: {{ insecure: true }} }} }}
admin: {{ endpoint: "{admin}" }}
service: {{ exporters: [otlp_grpc], log_level: warn }}
"#
    )
}

/// The destination. It recognises spans by the mark at the beginning of their trace ids.
struct Sink {
    addr: SocketAddr,
    spans: Arc<AtomicUsize>,
    /// The arrival of the last span of each trace; `None` while latency is not measured.
    last_arrivals: Arc<Mutex<Option<HashMap<TraceSuffix, Instant>>>>,
}

/// The second half of a trace id: round and number.
type TraceSuffix = [u8; 8];

impl Sink {
    async fn start() -> Sink {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let spans = Arc::new(AtomicUsize::new(0));
        let last_arrivals = Arc::new(Mutex::new(None));
        let (count, times) = (spans.clone(), last_arrivals.clone());
        tokio::spawn(relay::serve(listener, move |path, message| {
            let now = Instant::now();
            if path == relay::TRACES {
                let mut times: std::sync::MutexGuard<'_, Option<HashMap<TraceSuffix, Instant>>> =
                    times.lock().unwrap();
                for trace in traces(&message) {
                    count.fetch_add(1, Ordering::Relaxed);
                    if let Some(times) = &mut *times {
                        times.insert(trace, now);
                    }
                }
            }
            std::future::ready(Bytes::new())
        }));
        Sink { addr, spans, last_arrivals }
    }

    /// Waits until this many spans have arrived since `before`.
    async fn wait_for(&self, before: usize, spans: usize) {
        for _ in 0..6_000 {
            if self.spans.load(Ordering::Relaxed) - before >= spans {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{} of {spans} spans arrived", self.spans.load(Ordering::Relaxed) - before);
    }
}

/// The trace ids in a request, one a span.
fn traces(message: &[u8]) -> impl Iterator<Item = TraceSuffix> + '_ {
    memchr::memmem::find_iter(message, &TRACE_ID_PREFIX)
        .filter_map(|offset| message.get(offset + 8..offset + 16)?.try_into().ok())
}

/// Spans a second, and CPU seconds per million spans, at full load.
async fn throughput(target: &Target, sink: &Sink, corpus: &Corpus, rounds: u32) -> (f64, f64) {
    let warm_up = corpus.with_new_trace_ids(u32::MAX);
    let before = sink.spans.load(Ordering::Relaxed);
    target.send(&warm_up.requests).await;
    sink.wait_for(before, corpus.spans).await;
    let before = sink.spans.load(Ordering::Relaxed);
    let (cpu, mut elapsed) = (target.cpu(), Duration::ZERO);
    for round in 0..rounds {
        let corpus = corpus.with_new_trace_ids(round);
        let start = Instant::now();
        target.send(&corpus.requests).await;
        sink.wait_for(before, corpus.spans * (round as usize + 1)).await;
        elapsed += start.elapsed();
    }
    let spans = f64::from(rounds) * corpus.spans as f64;
    (spans / elapsed.as_secs_f64(), (target.cpu() - cpu) / spans * 1e6)
}

/// Milliseconds from sending the request with a trace's root until the whole trace is at the sink.
struct Latency {
    p50: f64,
    p99: f64,
    /// The median of the 99th percentiles of all seconds, which a short stall of the machine does not affect.
    p99_of_a_second: f64,
}

/// Sends `pace` spans a second.
async fn latency(target: &Target, sink: &Sink, corpus: &Corpus, pace: f64) -> Latency {
    *sink.last_arrivals.lock().unwrap() = Some(HashMap::new());
    let mut sent: HashMap<TraceSuffix, Instant> = HashMap::new();
    let start = Instant::now();
    let before = sink.spans.load(Ordering::Relaxed);
    let mut sent_spans = 0;
    let mut answers = tokio::task::JoinSet::new();
    for round in 1_000_000.. {
        for request in &corpus.requests {
            // One request at a time: renewing the whole corpus takes longer than the interval of requests.
            let request = corpus::with_new_trace_ids(request, round);
            let send_at = start + Duration::from_secs_f64(sent_spans as f64 / pace);
            tokio::time::sleep_until(send_at.into()).await;
            let now = Instant::now();
            for trace in traces(&request) {
                sent_spans += 1;
                // The root comes last, so that the last request with a trace is the one that closes it.
                sent.insert(trace, now);
            }
            let client = target.client.clone();
            answers.spawn(async move { client.export(relay::TRACES, request).await });
        }
        if start.elapsed() > LATENCY_TIME {
            break;
        }
    }
    answers.join_all().await;
    sink.wait_for(before, sent_spans).await;
    let arrived = sink.last_arrivals.lock().unwrap().take().unwrap();
    let mut seconds: Vec<Vec<f64>> = vec![Vec::new(); LATENCY_TIME.as_secs() as usize];
    for (trace, sent) in &sent {
        let second = sent.duration_since(start).as_secs() as usize;
        let elapsed = arrived[trace].duration_since(*sent).as_secs_f64() * 1e3;
        seconds.get_mut(second).into_iter().for_each(|all| all.push(elapsed));
    }
    seconds.retain(|second| !second.is_empty());
    let percentile = |all: &mut Vec<f64>, percent: usize| {
        all.sort_by(f64::total_cmp);
        all[all.len() * percent / 100]
    };
    let mut all = seconds.concat();
    let mut tails: Vec<f64> = seconds.iter_mut().map(|second| percentile(second, 99)).collect();
    Latency {
        p50: percentile(&mut all, 50),
        p99: percentile(&mut all, 99),
        p99_of_a_second: percentile(&mut tails, 50),
    }
}

/// Resident bytes of a buffered span: with every trace open, soon and after waiting, and with 1 in 16 open.
async fn memory(sink: &Sink, corpus: &Corpus) {
    let payload = corpus.payload as f64 / corpus.spans as f64;
    let row = |name: &str, resident: f64, spans: f64| {
        let each = resident / spans;
        println!(
            "{name:<28} {each:>6.0} B/span resident, payload {payload:.0} B: +{:.0} B, {:.2} x",
            each - payload,
            each / payload
        );
    };
    let target = Target::start(ProcessKind::WithoutMetrics, sink, "1h").await;
    target.send(&Corpus::agent(20).with_new_trace_ids(u32::MAX).requests).await;
    let before = target.resident();
    let rounds = if payload > 1_000.0 { 2 } else { 20 };
    for round in 0..rounds {
        target.send(&corpus.with_new_trace_ids(round).requests).await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    row("all open", target.resident() - before, (rounds as usize * corpus.spans) as f64);
    tokio::time::sleep(collector::WAIT_TIME).await;
    row("all open, after waiting", target.resident() - before, (rounds as usize * corpus.spans) as f64);
    drop(target);

    let target = Target::start(ProcessKind::WithoutMetrics, sink, "0s").await;
    let (warm_up, before_spans) = (Corpus::agent(20), sink.spans.load(Ordering::Relaxed));
    target.send(&warm_up.requests).await;
    sink.wait_for(before_spans, warm_up.spans).await;
    // Memory that the allocator retains is included and divided among the open spans.
    let before = target.resident();
    let before_spans = sink.spans.load(Ordering::Relaxed);
    let rounds = rounds * 4;
    let partly_open = corpus.with_open_traces();
    for round in 0..rounds {
        // One request at a time, so that no spans wait for export.
        target.client.send(&partly_open.with_new_trace_ids(round).requests, 1).await;
        sink.wait_for(before_spans, (round as usize + 1) * (partly_open.spans - partly_open.open_spans))
            .await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    row("1 trace in 16 open", target.resident() - before, (rounds as usize * partly_open.open_spans) as f64);
}
