//! What a span costs in process, next to what it costs others: `cargo bench --bench hot_path`.
//!
//! In: the two corpora. Out: criterion's figures for every path, and a table of this very run:
//! time per span, its ratio to full prost, and instructions per span where valgrind is installed.
//! Nothing is asserted: machines differ; ratios of one run and instructions differ little.
#![allow(missing_docs, clippy::print_stdout, clippy::expect_used)]

// Each bench uses its part.
#[allow(dead_code)]
mod corpus;
mod instructions;
mod paths;

use std::time::{Duration, Instant};

use corpus::{Corpus, TRACES};
use criterion::{Criterion, Throughput};
use paths::{PATHS, Path};

/// The binary's, for every path alike.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What the others are held against.
const BASE: &str = "prost";

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, command, corpus, path] = &arguments[..]
        && command == instructions::COMMAND
    {
        return instructions::work(corpus, path);
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
        for (name, path) in PATHS {
            let mut best = f64::INFINITY;
            group.bench_function(name, |bencher| bencher.iter_custom(|n| time(path, &corpus, n, &mut best)));
            rows.push((corpus.name, name, best * 1e9 / corpus.spans as f64));
        }
        group.finish();
    }
    println!("\ncorpus  path              ns/span   x {BASE}   instructions/span");
    for (corpus, name, ns) in rows.iter().filter(|(_, _, ns)| ns.is_finite()) {
        let base = rows.iter().find(|row| row.0 == *corpus && row.1 == BASE).map_or(f64::NAN, |row| row.2);
        let count = match instructions::per_span(corpus, name) {
            Some(count) => format!("{count:.0}"),
            None => "no valgrind".to_owned(),
        };
        println!("{corpus:<7} {name:<15} {ns:>9.0} {:>9.2} {count:>19}", ns / base);
    }
}

/// Time of so many rounds. `best` becomes the seconds of the fastest: what other processes did
/// meanwhile shows least in it.
fn time(path: Path, corpus: &Corpus, rounds: u64, best: &mut f64) -> Duration {
    let mut total = Duration::ZERO;
    for _ in 0..rounds {
        let began = Instant::now();
        path(&corpus.requests);
        let took = began.elapsed();
        *best = best.min(took.as_secs_f64());
        total += took;
    }
    total
}
