//! What a span costs in process, next to what it costs others: `cargo bench --bench hot_path`.
//!
//! In: the two corpora. Out: criterion's figures for every path, and a table of the same run: each path
//! in processes of its own, which take turns, so that what else the machine does and what another path
//! left behind meet them alike. Time per span, its ratio to full prost, with our allocator and with the
//! system's, which a program has if it does nothing about it, and instructions per span where valgrind
//! is installed. Nothing is asserted: machines differ; ratios of one run and instructions differ little.
#![allow(missing_docs, clippy::print_stdout, clippy::expect_used, clippy::panic)]

mod allocator;
mod apart;
// Each bench uses its part.
#[allow(dead_code)]
mod corpus;
mod paths;

use std::time::Duration;

use apart::Allocator;
use corpus::{Corpus, TRACES};
use criterion::{Criterion, Throughput};
use paths::PATHS;

#[global_allocator]
static ALLOCATOR: allocator::Chosen = allocator::Chosen;

/// The baseline of the other measurements.
const BASE: &str = "prost";
/// Paths that are timed with the system's allocator as well: those of others.
const OTHERS: [&str; 2] = ["prost codec", BASE];

/// Turns that every path has.
const TURNS: usize = 6;
/// How long a turn lasts, at least.
const TURN: Duration = Duration::from_millis(250);

/// What a path took.
struct Row {
    corpus: &'static str,
    path: &'static str,
    allocator: Allocator,
    /// The fastest round's, in which what other processes did meanwhile shows least.
    took: Duration,
}

fn main() {
    if apart::work() {
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
            let times = apart::times(row.allocator, row.corpus, row.path, TURN);
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
        let count = match apart::instructions(row.allocator, row.corpus, row.path) {
            Some(count) => format!("{count:.0}"),
            None => "no valgrind".to_owned(),
        };
        println!(
            "{:<7} {:<16} {:<9} {:>9.0} {:>10.2} {:>9.2} {count:>18}",
            row.corpus,
            row.path,
            row.allocator.name(),
            row.took.as_secs_f64() * 1e9 / apart::spans(row.corpus, TRACES) as f64,
            base(Allocator::Mimalloc),
            base(Allocator::System),
        );
    }
}
