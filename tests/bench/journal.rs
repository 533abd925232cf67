//! The cost of the journal: `cargo bench --bench journal`. Linux only: CPU is read from `/proc`.
//!
//! First: bytes a second that the journal accepts from 64 concurrent senders, each of which waits until it may
//! acknowledge, compared with a raw append of the same bytes to a file in the same directory under the same
//! policy: by one thread that appends one request at a time, by one thread that appends the requests of all
//! senders with one write, and by one thread for each sender. Second: spans a second through the whole process,
//! over loopback gRPC, with the journal at each policy and without one. The variants alternate in rounds, so that
//! other load on the machine affects all of them; the median is printed. `OTEL_VERDICT_BENCH_FOLDER` selects the
//! disk, `-- alone` or `-- whole` one half, `-- small` or `-- agent` one corpus.
#![allow(clippy::print_stdout, clippy::expect_used, clippy::unwrap_used, clippy::panic)]

// Each bench uses some of their items.
#[allow(dead_code)]
mod corpus;
#[allow(dead_code)]
mod relay;

use std::fs::{File, OpenOptions};
use std::io::{IoSlice, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use corpus::{Corpus, TRACE_ID_PREFIX};
use otel_verdict::telemetry::Telemetry;
use relay::Client;
use tempfile::TempDir;
use verdict_config::Size;
use verdict_journal::{Durability, Journal, RetainReason, Storage};
use verdict_otlp::Signal;
use verdict_otlp::trace::TraceId;

/// The same allocator as the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Concurrent senders.
const SENDERS: usize = 64;
/// Rounds of each variant.
const ROUNDS: u32 = 9;
/// Traces in one request.
const TRACES_PER_REQUEST: u64 = 16;

#[tokio::main]
async fn main() {
    if !cfg!(target_os = "linux") {
        return println!("skipped: CPU is read from /proc, which this system does not have");
    }
    let arguments: Vec<String> = std::env::args().collect();
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    let mut corpora = vec![Corpus::agent(500), Corpus::small(10_000)];
    if corpora.iter().any(|corpus| has(corpus.name)) {
        corpora.retain(|corpus| has(corpus.name));
    }
    let parts = (has("alone"), has("whole"));
    for corpus in corpora.iter().filter(|_| parts != (false, true)) {
        compare_journal(corpus).await;
    }
    for corpus in corpora.iter().filter(|_| parts != (true, false)) {
        compare_process(corpus).await;
    }
}

/// A folder on the disk that is measured.
fn folder() -> TempDir {
    match std::env::var_os("OTEL_VERDICT_BENCH_FOLDER") {
        Some(path) => tempfile::tempdir_in(path).unwrap(),
        None => tempfile::tempdir().unwrap(),
    }
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// The journal alone compared with a raw append.
async fn compare_journal(corpus: &Corpus) {
    let bytes: usize = corpus.requests.iter().map(Bytes::len).sum();
    let each = bytes / corpus.requests.len();
    println!("\n{}: requests of {each} bytes from {SENDERS} senders", corpus.name);
    println!(
        "{:<10} {:>12} {:>9} {:>6} {:>12} {:>6} {:>9} {:>6}",
        "", "journal MB/s", "raw", "ratio", "raw, at once", "ratio", "raw, each", "ratio"
    );
    for durability in [Durability::Sync, Durability::Interval, Durability::None] {
        let mut rates: [Vec<f64>; 4] = Default::default();
        for round in 0..ROUNDS as usize {
            // Each variant is first in some round.
            for turn in 0..rates.len() {
                let (folder, variant) = (folder(), (round + turn) % rates.len());
                let (requests, path) = (corpus.requests.clone(), folder.path().join("raw"));
                let elapsed = match variant {
                    0 => time_journal(folder.path(), &corpus.requests, durability).await,
                    1 => {
                        time_on_file(path, durability, move |file| append(file, &requests, 1, durability))
                            .await
                    }
                    2 => {
                        time_on_file(path, durability, move |file| {
                            append(file, &requests, SENDERS, durability)
                        })
                        .await
                    }
                    _ => {
                        time_on_file(path, durability, move |file| append_each(file, &requests, durability))
                            .await
                    }
                };
                rates[variant].push(bytes as f64 / elapsed.as_secs_f64() / 1e6);
            }
        }
        let [journal, single, batched, concurrent] = rates.map(median);
        println!(
            "{:<10} {journal:>12.0} {single:>9.0} {:>6.2} {batched:>12.0} {:>6.2} {concurrent:>9.0} {:>6.2}",
            name(durability),
            journal / single,
            journal / batched,
            journal / concurrent
        );
    }
}

fn name(durability: Durability) -> &'static str {
    match durability {
        Durability::Sync => "sync",
        Durability::Interval => "interval",
        Durability::None => "none",
    }
}

/// The duration of `work` on a new file, which is fsynced concurrently with `interval`.
async fn time_on_file(
    path: PathBuf,
    durability: Durability,
    work: impl FnOnce(&File) + Send + 'static,
) -> Duration {
    let measured = move || {
        let file = Arc::new(OpenOptions::new().create_new(true).append(true).open(path).unwrap());
        let stop = Arc::new(AtomicBool::new(false));
        let syncing = (durability == Durability::Interval).then(|| {
            let (file, stop) = (Arc::clone(&file), Arc::clone(&stop));
            std::thread::spawn(move || sync_every_second(&file, &stop))
        });
        let started_at = Instant::now();
        work(&file);
        let elapsed = started_at.elapsed();
        stop.store(true, Ordering::Relaxed);
        if let Some(thread) = syncing {
            thread.join().unwrap();
        }
        elapsed
    };
    tokio::task::spawn_blocking(measured).await.unwrap()
}

/// Appends `at_once` requests with each write, and fsyncs with `sync`. With one request of each sender this is the
/// upper limit of the disk.
fn append(mut file: &File, requests: &[Bytes], at_once: usize, durability: Durability) {
    for batch in requests.chunks(at_once) {
        let mut slices: Vec<IoSlice<'_>> = batch.iter().map(|body| IoSlice::new(body)).collect();
        let mut unwritten = &mut slices[..];
        while !unwritten.is_empty() {
            let written = file.write_vectored(unwritten).unwrap();
            IoSlice::advance_slices(&mut unwritten, written);
        }
        if durability == Durability::Sync {
            file.sync_data().unwrap();
        }
    }
}

/// One thread for each sender appends and, with `sync`, fsyncs one request at a time.
fn append_each(file: &File, requests: &[Bytes], durability: Durability) {
    let next = AtomicUsize::new(0);
    let sender = || {
        let mut file = file;
        while let Some(body) = requests.get(next.fetch_add(1, Ordering::Relaxed)) {
            file.write_all(body).unwrap();
            if durability == Durability::Sync {
                file.sync_data().unwrap();
            }
        }
    };
    std::thread::scope(|scope| (0..SENDERS).for_each(|_| drop(scope.spawn(sender))));
}

fn sync_every_second(file: &File, stop: &AtomicBool) {
    let mut last = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(5));
        if last.elapsed() >= Duration::from_secs(1) {
            file.sync_data().unwrap();
            last = Instant::now();
        }
    }
}

fn storage(durability: Durability) -> Storage {
    Storage { durability, max_bytes: Size(64 << 30), ..Storage::default() }
}

/// Appends every request to the journal, and releases each one once it may be acknowledged.
async fn time_journal(folder: &Path, requests: &[Bytes], durability: Durability) -> Duration {
    let telemetry = Telemetry::new();
    let (journal, _) = Journal::open(folder, &storage(durability), 0, &telemetry.journal).unwrap();
    let requests = Arc::new(requests.to_vec());
    let next = Arc::new(AtomicUsize::new(0));
    let started_at = Instant::now();
    let senders: Vec<_> = (0..SENDERS)
        .map(|_| {
            let (journal, requests, next) = (Arc::clone(&journal), Arc::clone(&requests), Arc::clone(&next));
            tokio::spawn(async move {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    let Some(body) = requests.get(n) else { return };
                    let trace = |t: u64| RetainReason::Trace(TraceId(u128::from(n as u64 + t).to_be_bytes()));
                    let reasons: Vec<RetainReason> = (0..TRACES_PER_REQUEST).map(trace).collect();
                    let appended =
                        journal.append_request(Signal::Traces, reasons.clone(), false, body.clone()).await;
                    let seq = appended.expect("the journal has room").accept();
                    journal.release(reasons.into_iter().map(|reason| (seq, reason)).collect());
                }
            })
        })
        .collect();
    for sender in senders {
        sender.await.unwrap();
    }
    let elapsed = started_at.elapsed();
    journal.close().await;
    elapsed
}

/// The whole process with and without a journal.
async fn compare_process(corpus: &Corpus) {
    let sink = Sink::start().await;
    let policies = ["off", "none", "interval", "sync"];
    let mut targets = Vec::new();
    for policy in policies {
        targets.push(Target::start(policy, sink.addr).await);
    }
    let mut rates = vec![Vec::new(); policies.len()];
    let mut cpu = vec![Vec::new(); policies.len()];
    for round in 0..=ROUNDS {
        for (n, target) in targets.iter().enumerate() {
            let with_new_trace_ids = corpus.with_new_trace_ids(round * 10 + n as u32);
            let (before, cpu_before, started_at) = (sink.count(), target.cpu(), Instant::now());
            target.send(&with_new_trace_ids.requests).await;
            sink.wait_for(before + corpus.spans).await;
            let elapsed = started_at.elapsed().as_secs_f64();
            if round > 0 {
                rates[n].push(corpus.spans as f64 / elapsed);
                cpu[n].push((target.cpu() - cpu_before) / corpus.spans as f64 * 1e6);
            }
        }
    }
    println!("\n{}: the whole process, {SENDERS} requests in flight", corpus.name);
    println!("{:<10} {:>9} {:>6} {:>14} {:>6}", "", "spans/s", "ratio", "CPU s/million", "ratio");
    let rates: Vec<f64> = rates.into_iter().map(median).collect();
    let cpu: Vec<f64> = cpu.into_iter().map(median).collect();
    for (n, policy) in policies.iter().enumerate() {
        let (rate, cost) = (rates[n], cpu[n]);
        println!("{policy:<10} {rate:>9.0} {:>6.2} {cost:>14.2} {:>6.2}", rate / rates[0], cost / cpu[0]);
    }
}

/// A running process, killed when dropped.
struct Target {
    child: Child,
    client: Client,
    /// Its configuration and its journal.
    _folder: TempDir,
}

impl Drop for Target {
    fn drop(&mut self) {
        // The process may have ended already; then the measurement fails.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Target {
    async fn start(policy: &str, sink: SocketAddr) -> Target {
        let folder = folder();
        let ports: [SocketAddr; 3] = std::array::from_fn(|_| {
            std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
        });
        let [grpc, http, admin] = ports;
        let storage = match policy {
            "off" => String::new(),
            policy => {
                let journal = folder.path().join("journal");
                format!("storage: {{ directory: '{}', durability: {policy} }}", journal.display())
            }
        };
        let text = format!(
            r#"
receivers: {{ otlp: {{ protocols: {{ grpc: {{ endpoint: "{grpc}" }}, http: {{ endpoint: "{http}" }} }} }} }}
verdict: {{ close: {{ quiet: 0s }} }}
exporters: {{ otlp_grpc: {{ endpoint: "{sink}", tls: {{ insecure: true }} }} }}
admin: {{ endpoint: "{admin}" }}
service: {{ exporters: [otlp_grpc], log_level: warn }}
{storage}
"#
        );
        let file = folder.path().join("config.yaml");
        std::fs::write(&file, text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_otel-verdict"));
        let child = command.arg("run").arg("--config").arg(file).stdout(Stdio::null()).spawn().unwrap();
        Target { child, client: Client::connect(grpc).await, _folder: folder }
    }

    /// CPU seconds that the process has used.
    fn cpu(&self) -> f64 {
        relay::cpu(self.child.id())
    }

    /// Sends everything, [`SENDERS`] requests at a time.
    async fn send(&self, requests: &[Bytes]) {
        self.client.send(requests, SENDERS).await;
    }
}

/// The destination. It counts spans by the mark at the beginning of their trace ids.
struct Sink {
    addr: SocketAddr,
    spans: Arc<AtomicUsize>,
}

impl Sink {
    async fn start() -> Sink {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let spans = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&spans);
        tokio::spawn(relay::serve(listener, move |path, message| {
            if path == relay::TRACES {
                count.fetch_add(
                    memchr::memmem::find_iter(&message, &TRACE_ID_PREFIX).count(),
                    Ordering::Relaxed,
                );
            }
            std::future::ready(Bytes::new())
        }));
        Sink { addr, spans }
    }

    fn count(&self) -> usize {
        self.spans.load(Ordering::Relaxed)
    }

    /// Waits until this many spans have arrived.
    async fn wait_for(&self, spans: usize) {
        for _ in 0..60_000 {
            if self.count() >= spans {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("{} of {spans} spans arrived", self.count());
    }
}
