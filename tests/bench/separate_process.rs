//! A path in a separate process: under callgrind, which counts only the instructions of [`measured`], or
//! timed with the system's allocator, which a process selects at its start.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::allocator;
use crate::corpus::{Corpus, TRACES};
use crate::paths::{PATHS, Path};

/// Makes the program run one path.
const COMMAND: &str = "--work";
/// Traces of a corpus whose instructions are counted: enough for a stable count; callgrind is about 50 times slower than
/// the machine.
const COUNTED_TRACES: u32 = 64;

/// The allocator of a path's process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Allocator {
    /// The binary's.
    Mimalloc,
    /// The default of a Rust program.
    System,
}

impl Allocator {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Allocator::Mimalloc => "mimalloc",
            Allocator::System => "system",
        }
    }
}

/// Selects the process's allocator, before anything else is done. Then, if the program was started to
/// run one path, runs it and returns true.
pub fn run_requested_path() -> bool {
    let mut arguments = std::env::args().skip(1);
    let is_requested = arguments.next().as_deref() == Some(COMMAND);
    allocator::select(is_requested && arguments.next().as_deref() == Some(Allocator::System.name()));
    if !is_requested {
        return false;
    }
    let arguments: Vec<String> = arguments.collect();
    let [corpus, path, traces, min_time] = &arguments[..] else { panic!("unexpected arguments") };
    let corpus = named_corpus(corpus, traces.parse().expect("a number"));
    let path = PATHS.iter().find(|(name, _)| name == path).expect("a path of that name").1;
    // Statics are initialised before the measurement.
    path(&corpus.requests);
    let (started_at, min_time) = (Instant::now(), Duration::from_millis(min_time.parse().expect("a number")));
    loop {
        println!("{}", measured(path, &corpus).as_nanos());
        if started_at.elapsed() >= min_time {
            return true;
        }
    }
}

fn named_corpus(corpus: &str, traces: u32) -> Corpus {
    if corpus == "agent" { Corpus::agent(traces) } else { Corpus::small(traces) }
}

#[inline(never)]
fn measured(path: Path, corpus: &Corpus) -> Duration {
    let started_at = Instant::now();
    std::hint::black_box(path(&corpus.requests));
    started_at.elapsed()
}

/// Spans of a corpus.
pub fn spans(corpus: &str, traces: u32) -> usize {
    named_corpus(corpus, 1).spans * traces as usize
}

/// Configures this program to run one path for at least `min_time`.
fn command_for_path<'a>(
    command: &'a mut Command,
    allocator: Allocator,
    corpus: &str,
    path: &str,
    traces: u32,
    min_time: Duration,
) -> &'a mut Command {
    let (traces, min_time) = (traces.to_string(), min_time.as_millis().to_string());
    command.args([COMMAND, allocator.name(), corpus, path, &traces, &min_time])
}

/// Durations of the rounds of one turn, in a process with that allocator.
pub fn times(allocator: Allocator, corpus: &str, path: &str, min_time: Duration) -> Vec<Duration> {
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    let output = command_for_path(&mut command, allocator, corpus, path, TRACES, min_time)
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = String::from_utf8_lossy(&output.stdout);
    output.lines().map(|line| Duration::from_nanos(line.parse().expect("nanoseconds"))).collect()
}

/// Instructions that a path takes for a span; `None` without valgrind.
pub fn instructions(allocator: Allocator, corpus: &str, path: &str) -> Option<f64> {
    let mut command = Command::new("valgrind");
    command
        .args([
            "--tool=callgrind",
            "--callgrind-out-file=/dev/null",
            "--toggle-collect=*separate_process*measured*",
        ])
        .arg(std::env::current_exe().ok()?);
    let output = command_for_path(&mut command, allocator, corpus, path, COUNTED_TRACES, Duration::ZERO)
        .output()
        .ok()?;
    let output = String::from_utf8_lossy(&output.stderr);
    let count: f64 =
        output.lines().find_map(|line| line.split_once("Collected : "))?.1.trim().parse().ok()?;
    Some(count / spans(corpus, COUNTED_TRACES) as f64)
}
