//! What a span costs in process, next to what it costs others: `cargo bench --bench hot_path`.
//!
//! In: the two corpora. Out: criterion's figures for every path, and a table of this very run: time
//! per span, its ratio to full prost, with our allocator and with the system's, which a program has
//! if it does nothing about it, and instructions per span where valgrind is installed. Nothing is
//! asserted: machines differ; ratios of one run and instructions differ little.
#![allow(missing_docs, clippy::print_stdout, clippy::expect_used, clippy::panic)]

mod allocator;
mod apart;
// Each bench uses its part.
#[allow(dead_code)]
mod corpus;
mod paths;

use std::time::{Duration, Instant};

use apart::Allocator;
use corpus::{Corpus, TRACES};
use criterion::{Criterion, Throughput};
use paths::{PATHS, Path};

#[global_allocator]
static ALLOCATOR: allocator::Chosen = allocator::Chosen;

/// What the others are held against.
const BASE: &str = "prost";
/// Paths that are timed with the system's allocator as well: others' ways.
const OTHERS: [&str; 2] = ["prost codec", BASE];

/// What a path took.
struct Row {
    corpus: &'static str,
    path: &'static str,
    allocator: Allocator,
    /// A span; the fastest round's, in which what other processes did meanwhile shows least.
    ns: f64,
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
        let mut bench = |name: String, path, allocator, times: &dyn Fn(u64) -> Vec<Duration>| {
            let mut best = Duration::MAX;
            group.bench_function(name, |bencher| {
                bencher.iter_custom(|rounds| {
                    let all = times(rounds);
                    best = all.iter().copied().fold(best, Duration::min);
                    all.into_iter().sum()
                });
            });
            // A path that was not asked for took nothing.
            if best < Duration::MAX {
                let ns = best.as_secs_f64() * 1e9 / corpus.spans as f64;
                rows.push(Row { corpus: corpus.name, path, allocator, ns });
            }
        };
        for (name, path) in PATHS {
            bench(name.to_owned(), name, Allocator::Mimalloc, &|rounds| times(path, &corpus, rounds));
            if OTHERS.contains(&name) {
                let times = |rounds| apart::times(Allocator::System, corpus.name, name, rounds);
                bench(format!("{name}, system's malloc"), name, Allocator::System, &times);
            }
        }
        group.finish();
    }
    print(&rows);
}

fn times(path: Path, corpus: &Corpus, rounds: u64) -> Vec<Duration> {
    let time = |_| {
        let began = Instant::now();
        path(&corpus.requests);
        began.elapsed()
    };
    (0..rounds).map(time).collect()
}

fn print(rows: &[Row]) {
    println!("\n{:<50}x {BASE}", "");
    println!("corpus  path             allocator   ns/span   mimalloc  system's  instructions/span");
    for row in rows {
        let base = |allocator| {
            let of = |other: &&Row| {
                other.corpus == row.corpus && other.path == BASE && other.allocator == allocator
            };
            rows.iter().find(of).map_or(f64::NAN, |base| row.ns / base.ns)
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
            row.ns,
            base(Allocator::Mimalloc),
            base(Allocator::System),
        );
    }
}
