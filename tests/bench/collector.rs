//! otel-verdict compared with a real OpenTelemetry Collector: `cargo bench --bench load -- collector`.
//!
//! `OTEL_VERDICT_COLLECTOR` names a Collector with the components of `deploy/collector/builder.yaml`. It receives the
//! same load over gRPC and groups it by trace (`groupbytrace`, with its batch processor behind it off and on, and
//! `tail_sampling` that keeps everything); otel-verdict runs without metrics, with all rules, and with a journal.
//! All send to the same destination, without compression. The processes are measured in turn, several times, and
//! medians are compared: resident bytes of an open span with its payload, beyond it, and after traces have waited for
//! some time (`-- collector memory` measures these alone), CPU seconds per million spans, and the latency that each
//! adds to a pass-through, which is measured in each turn as well (`-- collector time` measures these two alone). The
//! two processors of the Collector hold a trace for a fixed time, which their latency includes. otel-verdict closes a
//! trace with its root (`quiet: 0s`); it is measured without metrics also with the time of the Collector.

use super::*;

/// How often each process is measured.
const REPETITIONS: usize = 5;
/// How long the Collector holds a trace: the default of `groupbytrace`.
const HOLD_TIME: &str = "1s";
/// More than the time after which otel-verdict compresses traces without new spans.
pub const WAIT_TIME: Duration = Duration::from_secs(12);
/// Share of one core that the rules use while latency is measured.
const CORE_SHARE: f64 = 0.6;

#[derive(Clone, Copy, PartialEq, Eq)]
enum MeasuredProcess {
    GroupByTrace,
    GroupByTraceAndBatch,
    TailSampling,
    WithoutMetrics,
    /// Holds a trace as long as the Collector.
    WithoutMetricsHeld,
    AllRules,
    Journal,
}

impl MeasuredProcess {
    const ALL: [MeasuredProcess; 7] = [
        MeasuredProcess::GroupByTrace,
        MeasuredProcess::GroupByTraceAndBatch,
        MeasuredProcess::TailSampling,
        MeasuredProcess::WithoutMetrics,
        MeasuredProcess::WithoutMetricsHeld,
        MeasuredProcess::AllRules,
        MeasuredProcess::Journal,
    ];

    fn name(self) -> &'static str {
        match self {
            MeasuredProcess::GroupByTrace => "groupbytrace",
            MeasuredProcess::GroupByTraceAndBatch => "groupbytrace, batch",
            MeasuredProcess::TailSampling => "tail_sampling",
            MeasuredProcess::WithoutMetrics => "without metrics",
            MeasuredProcess::WithoutMetricsHeld => "without metrics, 1 s",
            MeasuredProcess::AllRules => "all rules",
            MeasuredProcess::Journal => "all rules, journal",
        }
    }

    /// The processors of the Collector: name and settings. None for otel-verdict.
    fn processors(self, hold: &str) -> Option<Vec<(&'static str, String)>> {
        let group = || ("groupbytrace", format!("{{ wait_duration: {hold}, num_traces: 2000000 }}"));
        let sample = format!(
            "{{ decision_wait: {hold}, num_traces: 2000000, policies: [{{ name: all, type: always_sample }}] }}"
        );
        match self {
            MeasuredProcess::GroupByTrace => Some(vec![group()]),
            MeasuredProcess::GroupByTraceAndBatch => Some(vec![group(), ("batch", "{}".to_owned())]),
            MeasuredProcess::TailSampling => Some(vec![("tail_sampling", sample)]),
            _ => None,
        }
    }

    /// A process that holds traces for `hold` (the Collector), or until `hold` after their root (otel-verdict).
    async fn start(self, collector: &str, sink: &Sink, hold: &str) -> Target {
        let Some(processors) = self.processors(hold) else {
            let ours = env!("CARGO_BIN_EXE_otel-verdict");
            let folder = tempfile::tempdir().unwrap();
            let (kind, extra_settings) = match self {
                MeasuredProcess::WithoutMetrics | MeasuredProcess::WithoutMetricsHeld => {
                    (ProcessKind::WithoutMetrics, String::new())
                }
                MeasuredProcess::AllRules => (ProcessKind::AllRules, String::new()),
                _ => (
                    ProcessKind::AllRules,
                    format!("storage: {{ directory: '{}' }}", folder.path().display()),
                ),
            };
            let closes_at_once = hold == HOLD_TIME && self != MeasuredProcess::WithoutMetricsHeld;
            let quiet = if closes_at_once { "0s" } else { hold };
            let mut target = Target::process(ours, kind, &extra_settings, sink, quiet).await;
            target.journal = Some(folder);
            return target;
        };
        let [grpc, ..] = free_ports();
        let processor_settings: Vec<String> =
            processors.iter().map(|(name, settings)| format!("{name}: {settings}")).collect();
        let order: Vec<&str> = processors.iter().map(|(name, _)| *name).collect();
        let text = format!(
            r#"
receivers: {{ otlp: {{ protocols: {{ grpc: {{ endpoint: "{grpc}" }} }} }} }}
processors: {{ {} }}
exporters: {{ otlp_grpc: {{ endpoint: "{}", tls: {{ insecure: true }}, compression: none, sending_queue: {{ queue_size: 1000000 }} }} }}
service:
  telemetry: {{ metrics: {{ level: none }}, logs: {{ level: error }} }}
  pipelines: {{ traces: {{ receivers: [otlp], processors: [{}], exporters: [otlp_grpc] }} }}
"#,
            processor_settings.join(", "),
            sink.addr,
            order.join(", ")
        );
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("collector.yaml");
        std::fs::write(&file, text).unwrap();
        let mut command = Command::new(collector);
        command.arg("--config").arg(file);
        Target::spawn(command, grpc, folder).await
    }
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Prints the figures of one corpus.
pub async fn compare(sink: &Sink, corpus: &Corpus, rounds: u32, memory: bool, time: bool) {
    let collector = std::env::var("OTEL_VERDICT_COLLECTOR");
    let collector = collector.expect("OTEL_VERDICT_COLLECTOR must name a Collector");
    if memory {
        compare_memory(sink, corpus, &collector).await;
    }
    if time {
        let rules = compare_time(sink, corpus, &collector, rounds).await;
        compare_latency(sink, corpus, &collector, CORE_SHARE * 1e6 / rules).await;
    }
}

/// Compares the resident bytes of an open span: soon after its arrival, and after traces have waited.
async fn compare_memory(sink: &Sink, corpus: &Corpus, collector: &str) {
    let mut bytes: Vec<[Vec<f64>; 2]> = vec![Default::default(); MeasuredProcess::ALL.len()];
    for _ in 0..REPETITIONS {
        for (measured, bytes) in MeasuredProcess::ALL.into_iter().zip(&mut bytes) {
            let target = measured.start(collector, sink, "1h").await;
            let resident = resident_bytes_per_open_span(&target, corpus).await;
            bytes.iter_mut().zip(resident).for_each(|(bytes, resident)| bytes.push(resident));
        }
    }
    let payload = corpus.payload as f64 / corpus.spans as f64;
    println!(
        "{:<20} {:>12} {:>14} {:>15} {:>14} {:>14}",
        "", "B/open span", "groupbytrace/x", "without payload", "after waiting", "groupbytrace/x"
    );
    let all: Vec<[f64; 2]> = bytes.into_iter().map(|samples| samples.map(median)).collect();
    let [base_soon, base_waited] = all[0];
    for (measured, [soon, waited]) in MeasuredProcess::ALL.into_iter().zip(all) {
        println!(
            "{:<20} {soon:>12.0} {:>14.2} {:>15.2} {waited:>14.0} {:>14.2}",
            measured.name(),
            base_soon / soon,
            (base_soon - payload) / (soon - payload),
            base_waited / waited
        );
    }
}

/// Compares the CPU seconds per million spans. Returns those of all rules.
async fn compare_time(sink: &Sink, corpus: &Corpus, collector: &str, rounds: u32) -> f64 {
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); MeasuredProcess::ALL.len()];
    for _ in 0..REPETITIONS {
        for (measured, times) in MeasuredProcess::ALL.into_iter().zip(&mut times) {
            let target = measured.start(collector, sink, HOLD_TIME).await;
            times.push(throughput(&target, sink, corpus, rounds).await.1);
        }
    }
    let all: Vec<(MeasuredProcess, f64)> =
        MeasuredProcess::ALL.into_iter().zip(times.into_iter().map(median)).collect();
    println!("\n{:<20} {:>14} {:>14}", "", "CPU s/million", "groupbytrace/x");
    for (measured, time) in &all {
        println!("{:<20} {time:>14.2} {:>14.2}", measured.name(), all[0].1 / time);
    }
    all.iter().find(|(measured, _)| *measured == MeasuredProcess::AllRules).unwrap().1
}

/// Compares the latency at `pace` spans a second.
async fn compare_latency(sink: &Sink, corpus: &Corpus, collector: &str, pace: f64) {
    println!("\nat {pace:.0} spans/s, where all rules use {CORE_SHARE} of a core");
    // The first entry is the pass-through, with which the others are compared in each turn.
    let mut latencies: Vec<Vec<Latency>> = Vec::new();
    latencies.resize_with(1 + MeasuredProcess::ALL.len(), Vec::new);
    for _ in 0..REPETITIONS {
        let through = Target::start(ProcessKind::PassThrough, sink, "0s").await;
        latencies[0].push(latency(&through, sink, corpus, pace).await);
        drop(through);
        for (measured, latencies) in MeasuredProcess::ALL.into_iter().zip(&mut latencies[1..]) {
            let target = measured.start(collector, sink, HOLD_TIME).await;
            latencies.push(latency(&target, sink, corpus, pace).await);
        }
    }
    println!(
        "{:<20} {:>9} {:>9} {:>9} {:>14} {:>14} {:>14}",
        "", "p50 ms", "p99 ms", "over", "pass-through x", "p99 of seconds", "over"
    );
    let names = std::iter::once("pass-through").chain(MeasuredProcess::ALL.map(MeasuredProcess::name));
    for (name, samples) in names.zip(&latencies) {
        let each = |figure: fn(&Latency) -> f64| median(samples.iter().map(figure).collect());
        let compared = |figure: fn(&Latency) -> f64, combine: fn(f64, f64) -> f64| {
            let turns = samples.iter().zip(&latencies[0]);
            median(turns.map(|(measured, through)| combine(figure(measured), figure(through))).collect())
        };
        println!(
            "{name:<20} {:>9.2} {:>9.2} {:>9.2} {:>14.2} {:>14.2} {:>14.2}",
            each(|l| l.p50),
            each(|l| l.p99),
            compared(|l| l.p99, |measured, through| measured - through),
            compared(|l| l.p99, |measured, through| measured / through),
            each(|l| l.p99_of_a_second),
            compared(|l| l.p99_of_a_second, |measured, through| measured - through)
        );
    }
}

/// Resident bytes of an open span, with its payload: five seconds after the last span was sent, and after traces have
/// waited for [`WAIT_TIME`].
async fn resident_bytes_per_open_span(target: &Target, corpus: &Corpus) -> [f64; 2] {
    target.send(&Corpus::agent(20).with_new_trace_ids(u32::MAX).requests).await;
    let rounds: u32 = if corpus.payload / corpus.spans > 1_000 { 4 } else { 20 };
    let before = target.resident();
    for round in 0..rounds {
        target.send(&corpus.with_new_trace_ids(round).requests).await;
    }
    let resident = || (target.resident() - before) / (rounds as usize * corpus.spans) as f64;
    // After this time a garbage collector has run again.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let soon = resident();
    tokio::time::sleep(WAIT_TIME).await;
    [soon, resident()]
}
