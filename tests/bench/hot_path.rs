//! The cost of a span in process, compared with other implementations: `cargo bench --bench hot_path`.
//!
//! In: the two corpora. Out: criterion's figures for every path, and a table of the same run. Paths run
//! alternately, each in its own process, so that other load affects all of them equally. The table has the time
//! per span, its ratio to full prost with mimalloc and with the system's allocator (the default of a Rust
//! program), and instructions per span where valgrind is installed. Nothing is asserted: times differ between
//! machines; ratios within one run and instruction counts are stable.
#![allow(clippy::print_stdout, clippy::expect_used, clippy::panic)]

mod allocator;

// Each bench uses its part.
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
static ALLOCATOR: allocator::Chosen = allocator::Chosen;

/// The baseline of the other measurements.
const BASE: &str = "prost";
/// Paths that are timed with the system's allocator as well: the other implementations.
const OTHERS: [&str; 2] = ["prost codec", BASE];

/// Turns of every path.
const TURNS: usize = 6;
/// The least duration of a turn.
const TURN: Duration = Duration::from_millis(250);

/// The result of a path.
struct Row {
    corpus: &'static str,
    path: &'static str,
    allocator: Allocator,
    /// The time of the fastest round, which other processes affected least.
    took: Duration,
}

fn main() {
    if separate_process::work() {
        return;
    }
    let mut criterion = Criterion::default().configure_from_args();
    let mut rows = Vec::new();
    for corpus in [Corpus::agent(TRACES), Corpus::small(TRACES)] {
        let each = corpus.payload / corpus.spans;
        println!(
            "{}: {} spans of {each} bytes in {} requests",
            corpus.name,
            corpus.spans,
            corpus.requests.len()
        );
        let mut group = criterion.benchmark_group(corpus.name);
        group.sample_size(10).warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(3));
        group.throughput(Throughput::Elements(corpus.spans as u64));
        for (path, work) in PATHS {
            let mut asked_for = false;
            group.bench_function(path, |bencher| {
                asked_for = true;
                bencher.iter(|| work(&corpus.requests));
            });
            let allocators = [Allocator::Mimalloc, Allocator::System];
            for allocator in allocators.into_iter().take(1 + usize::from(OTHERS.contains(&path))) {
                let row = Row { corpus: corpus.name, path, allocator, took: Duration::MAX };
                rows.extend(asked_for.then_some(row));
            }
        }
        group.finish();
    }
    for _ in 0..TURNS {
        for row in &mut rows {
            let times = separate_process::times(row.allocator, row.corpus, row.path, TURN);
            row.took = times.into_iter().fold(row.took, Duration::min);
        }
    }
    print(&rows);
}

fn print(rows: &[Row]) {
    println!("\n{:<50}x {BASE}", "");
    println!("corpus  path             allocator   ns/span   mimalloc  system's  instructions/span");
    for row in rows {
        let base = |allocator| {
            let of = |other: &&Row| {
                other.corpus == row.corpus && other.path == BASE && other.allocator == allocator
            };
            rows.iter().find(of).map_or(f64::NAN, |base| row.took.div_duration_f64(base.took))
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
            row.took.as_secs_f64() * 1e9 / separate_process::spans(row.corpus, TRACES) as f64,
            base(Allocator::Mimalloc),
            base(Allocator::System),
        );
    }
}
