//! The cost of a span in process, compared with other implementations: `cargo bench --bench hot_path`.
//!
//! In: the two corpora. Out: criterion's figures for every path, and a table of the same run. Paths run
//! alternately, each in its own process, so that other load affects all of them equally. The table has the time
//! per span, its ratio to full prost with mimalloc and with the system's allocator (the default of a Rust
//! program), and instructions per span where valgrind is installed. Nothing is asserted: times differ between
//! machines; ratios within one run and instruction counts are stable.
#![allow(clippy::print_stdout, clippy::expect_used, clippy::panic)]

mod allocator;

// Each benchmark uses only a part of this module.
#[allow(dead_code)]
mod corpus;
mod paths;
mod separate_process;

use std::time::Duration;

use corpus::{Corpus, TRACES};
use criterion::{Criterion, Throughput};
use paths::PATHS;
use separate_process::Allocator;

#[global_allocator]
static ALLOCATOR: allocator::SelectableAllocator = allocator::SelectableAllocator;

/// The baseline of the other measurements.
const BASE: &str = "prost";
/// Paths that are timed with the system's allocator as well: the other implementations.
const BASELINES: [&str; 2] = ["prost codec", BASE];

/// Rounds of every path.
const ROUNDS: usize = 6;
/// The least duration of a round.
const MIN_ROUND_TIME: Duration = Duration::from_millis(250);

/// The result of a path.
struct Row {
    corpus: &'static str,
    path: &'static str,
    allocator: Allocator,
    /// The time of the fastest round, which other processes affected least.
    fastest: Duration,
}

fn main() {
    if separate_process::run_requested_path() {
        return;
    }
    let mut criterion = Criterion::default().configure_from_args();
    let mut rows = Vec::new();
    for corpus in [Corpus::agent(TRACES), Corpus::small(TRACES)] {
        let span_bytes = corpus.payload / corpus.spans;
        println!(
            "{}: {} spans of {span_bytes} bytes in {} requests",
            corpus.name,
            corpus.spans,
            corpus.requests.len()
        );
        let mut group = criterion.benchmark_group(corpus.name);
        group.sample_size(10).warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(3));
        group.throughput(Throughput::Elements(corpus.spans as u64));
        for (path, work) in PATHS {
            let mut selected = false;
            group.bench_function(path, |bencher| {
                selected = true;
                bencher.iter(|| work(&corpus.requests));
            });
            let allocators = [Allocator::Mimalloc, Allocator::System];
            for allocator in allocators.into_iter().take(1 + usize::from(BASELINES.contains(&path))) {
                let row = Row { corpus: corpus.name, path, allocator, fastest: Duration::MAX };
                rows.extend(selected.then_some(row));
            }
        }
        group.finish();
    }
    for _ in 0..ROUNDS {
        for row in &mut rows {
            let times = separate_process::times(row.allocator, row.corpus, row.path, MIN_ROUND_TIME);
            row.fastest = times.into_iter().fold(row.fastest, Duration::min);
        }
    }
    print(&rows);
}

fn print(rows: &[Row]) {
    println!("\n{:<50}x {BASE}", "");
    println!("corpus  path             allocator   ns/span   mimalloc  system's  instructions/span");
    for row in rows {
        let base = |allocator| {
            let is_base = |other: &&Row| {
                other.corpus == row.corpus && other.path == BASE && other.allocator == allocator
            };
            rows.iter().find(is_base).map_or(f64::NAN, |base| row.fastest.div_duration_f64(base.fastest))
        };
        let count = match separate_process::instructions(row.allocator, row.corpus, row.path) {
            Some(count) => format!("{count:.0}"),
            None => "no valgrind".to_owned(),
        };
        println!(
            "{:<7} {:<16} {:<9} {:>9.0} {:>10.2} {:>9.2} {count:>18}",
            row.corpus,
            row.path,
            row.allocator.name(),
            row.fastest.as_secs_f64() * 1e9 / separate_process::spans(row.corpus, TRACES) as f64,
            base(Allocator::Mimalloc),
            base(Allocator::System),
        );
    }
}
