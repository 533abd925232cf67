//! The throughput of `otel-verdict eval` per core: `cargo bench --bench eval`.
//!
//! The corpora are written as OTLP protobuf (the frames of the Collector's file exporter) and as OTLP/JSON lines. The
//! binary evaluates each file without metrics and with all rules, and its CPU time (user and system, all threads) is
//! read when it has ended, so that other processes affect the figures little. In the same run, processes of this
//! program read the file alone, and read and decode it with opentelemetry-proto. The commands run in
//! turns; the turn with the least CPU time counts. `-- agent` or `-- small` measures one corpus, `-- 3` sets the number
//! of turns; with `OTEL_VERDICT_BEFORE` set to another binary also that one. Linux only: CPU time is read from `/proc`.
#![allow(clippy::print_stdout, clippy::expect_used, clippy::unwrap_used, clippy::panic)]

// Each bench uses some of their items.
#[allow(dead_code)]
mod corpus;

use std::fs::File;
use std::hint::black_box;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use corpus::{Corpus, TRACES};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message;
use verdict_otlp::{Signal, json};

/// The allocator of the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Turns of every command, if the command line gives no number.
const TURNS: usize = 3;
/// Bytes of a file, approximately: a second of reading.
const FILE_BYTES: usize = 256 << 20;

/// A format of files.
#[derive(Clone, Copy, PartialEq)]
enum Format {
    Protobuf,
    Json,
}

impl Format {
    fn name(self) -> &'static str {
        match self {
            Format::Protobuf => "protobuf",
            Format::Json => "JSON",
        }
    }
}

/// A command that reads a file, with its measurements.
struct MeasuredCommand {
    name: String,
    /// The program and its arguments.
    arguments: Vec<String>,
    /// The least CPU time, and the least time, in seconds.
    cpu: f64,
    duration: f64,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [option, format, file] = &arguments[..]
        && option.starts_with("--")
    {
        return baseline(option, format, Path::new(file));
    }
    if !cfg!(target_os = "linux") {
        return println!("skipped: CPU time is read from /proc, which this system does not have");
    }
    let turns = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(TURNS);
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("off.yaml");
    std::fs::write(&config, without_metrics()).unwrap();
    println!("corpus  format    way                    MB/s of CPU    x read   x decode    MB/s");
    for (name, make) in [("agent", Corpus::agent as fn(u32) -> Corpus), ("small", Corpus::small)] {
        if arguments.iter().any(|other| ["agent", "small"].contains(&other.as_str()) && other != name) {
            continue;
        }
        let corpus = make(TRACES);
        for format in [Format::Protobuf, Format::Json] {
            let file = write(&corpus, format, folder.path());
            measure(name, format, &file, &config, turns);
            std::fs::remove_file(file).unwrap();
        }
    }
}

/// A configuration without metrics.
fn without_metrics() -> String {
    // One key disables a family of metrics: `plan` disables `plan.score`.
    let family = |name: &str| name.split('.').next().unwrap().to_owned();
    let all: std::collections::BTreeSet<String> = verdict_eval::metrics::names().map(family).collect();
    let disabled: Vec<String> = all.iter().map(|name| format!("{name}: {{ enabled: false }}")).collect();
    format!("verdict: {{ metrics: {{ {} }} }}\n", disabled.join(", "))
}

/// Rounds of the corpus, each with other trace ids.
fn write(corpus: &Corpus, format: Format, folder: &Path) -> PathBuf {
    let path = folder.join(format!("{}.{}", corpus.name, format.name()));
    let mut file = BufWriter::new(File::create(&path).unwrap());
    let mut written = 0;
    for round in 0.. {
        if written >= FILE_BYTES {
            break;
        }
        for request in &corpus.with_new_trace_ids(round).requests {
            match format {
                Format::Protobuf => {
                    file.write_all(&u32::try_from(request.len()).unwrap().to_be_bytes()).unwrap();
                    file.write_all(request).unwrap();
                    written += 4 + request.len();
                }
                Format::Json => {
                    let line = json::encode(Signal::Traces, request).unwrap();
                    file.write_all(&line).unwrap();
                    file.write_all(b"\n").unwrap();
                    written += line.len() + 1;
                }
            }
        }
    }
    file.flush().unwrap();
    path
}

fn measure(corpus: &str, format: Format, file: &Path, config: &Path, turns: usize) {
    let program = std::env::current_exe().unwrap().display().to_string();
    let path = file.display().to_string();
    let new_command = |name: &str, arguments: &[&str]| MeasuredCommand {
        name: name.to_owned(),
        arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
        cpu: f64::MAX,
        duration: f64::MAX,
    };
    let mut commands = vec![
        new_command("read", &[&program, "--read", format.name(), &path]),
        new_command("read and decode", &[&program, "--decode", format.name(), &path]),
    ];
    let before = std::env::var("OTEL_VERDICT_BEFORE").ok();
    let config = config.display().to_string();
    for (binary, name) in [(Some(env!("CARGO_BIN_EXE_otel-verdict")), ""), (before.as_deref(), ", before")] {
        let Some(binary) = binary else { continue };
        // Failing traces as JSON, as a CI job prints them.
        let eval = [binary, "eval", &path, "--output", "json", "--only", "fail"];
        commands
            .push(new_command(&format!("without metrics{name}"), &[&eval[..], &["-c", &config]].concat()));
        commands.push(new_command(&format!("all rules{name}"), &eval));
    }
    for _ in 0..turns {
        for command in &mut commands {
            let (cpu_before, started_at) = (cpu_of_children(), Instant::now());
            let output = Command::new(&command.arguments[0])
                .args(&command.arguments[1..])
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .output()
                .unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            command.duration = command.duration.min(started_at.elapsed().as_secs_f64());
            command.cpu = command.cpu.min(cpu_of_children() - cpu_before);
        }
    }
    let megabytes = std::fs::metadata(file).unwrap().len() as f64 / 1e6;
    for command in &commands {
        println!(
            "{corpus:<7} {:<9} {:<22} {:>11.0} {:>9.2} {:>10.2} {:>7.0}",
            format.name(),
            command.name,
            megabytes / command.cpu,
            command.cpu / commands[0].cpu,
            command.cpu / commands[1].cpu,
            megabytes / command.duration,
        );
    }
}

/// CPU seconds of all children that have ended.
fn cpu_of_children() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // The name in parentheses may contain spaces; user and system time of children are fields 16 and 17.
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks = |field: usize| fields[field - 3].parse::<f64>().unwrap();
    (ticks(16) + ticks(17)) / rustix::param::clock_ticks_per_second() as f64
}

/// The work of other programs on the same file.
fn baseline(option: &str, format: &str, file: &Path) {
    let mut reader = BufReader::with_capacity(256 << 10, File::open(file).unwrap());
    let decodes = option == "--decode";
    let mut buffer = Vec::new();
    if format == Format::Json.name() {
        while reader.read_until(b'\n', &mut buffer).unwrap() > 0 {
            if decodes {
                let request: ExportTraceServiceRequest = serde_json::from_slice(&buffer).unwrap();
                black_box(request);
            }
            buffer.clear();
        }
        return;
    }
    let mut length = [0; 4];
    while reader.read_exact(&mut length).is_ok() {
        buffer.resize(u32::from_be_bytes(length) as usize, 0);
        reader.read_exact(&mut buffer).unwrap();
        if decodes {
            black_box(ExportTraceServiceRequest::decode(buffer.as_slice()).unwrap());
        }
    }
    black_box(buffer);
}
