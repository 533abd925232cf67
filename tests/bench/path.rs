//! The cost of scoring a path, by its length and by the number of golden paths; and a 20-call
//! run compared with compiling one regex of its task's patterns.
//!
//! Golden paths: as many diamonds in a row as double their number, then a plain chain; all are as
//! long as the run. The run follows one of them with a harmful call in every eighth place.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use regex::Regex;
use verdict_eval::path::{Automaton, Draft, Parameters, PathScores, PathToken, Walk, check};

/// A pattern as task files have them.
const PATTERN: &str = r"(?i)water plant (?P<plant>[A-C]) with (?P<litres>[0-9.]+) lit(re|er)s";

/// An automaton whose golden paths are all `length` long.
fn automaton(length: usize, golden: usize) -> Automaton {
    let diamonds = golden.ilog2() as usize;
    let symbols = (0..length).flat_map(|i| [format!("a{i}"), format!("b{i}")]);
    let mut draft = Draft::new(symbols.chain(["read".to_owned()]));
    for i in 0..length {
        let (a, b) = (format!("a{i}"), format!("b{i}"));
        let both = [a.as_str(), b.as_str()];
        let edge_symbols = if i < diamonds { &both[..] } else { &both[..1] };
        draft = draft.state(&i.to_string(), false).edge(edge_symbols, &(i + 1).to_string());
        draft = draft.edge(&["read"], &i.to_string());
    }
    let automaton = check(&draft.state(&length.to_string(), true)).unwrap().automaton;
    assert_eq!(automaton.golden_path_count(), golden as u64);
    automaton
}

/// The tokens of a run of `length` calls.
fn run(automaton: &Automaton, length: usize) -> Vec<PathToken> {
    let mut tokens = Vec::with_capacity(length);
    for i in 0.. {
        if tokens.len() >= length {
            break;
        }
        if i % 8 == 7 {
            tokens.push(PathToken::Foreign(i));
        }
        match automaton.symbol(&format!("a{i}")) {
            Some(symbol) if tokens.len() < length => tokens.push(PathToken::Symbol(symbol)),
            _ => {}
        }
    }
    tokens
}

fn score(automaton: &Automaton, tokens: &[PathToken]) -> PathScores {
    let mut walk = Walk::new(automaton);
    for token in tokens {
        walk.push(automaton, *token);
    }
    PathScores::compute(automaton, &walk, Parameters::default())
}

fn scoring(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("path");
    group.sample_size(10).warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_secs(1));
    for length in [10, 20, 100, 1_000, 10_000] {
        for golden in [1, 4, 64] {
            let automaton = automaton(length, golden);
            let tokens = run(&automaton, length);
            let id = BenchmarkId::new(format!("{golden} golden"), length);
            group.bench_function(id, |b| b.iter(|| score(black_box(&automaton), black_box(&tokens))));
        }
    }
    group.finish();
}

/// The median of many runs.
fn median(mut action: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..401)
        .map(|_| {
            let started_at = Instant::now();
            action();
            started_at.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

fn compared_with_a_regex(_: &mut Criterion) {
    let regex = median(|| drop(black_box(Regex::new(black_box(PATTERN)).unwrap())));
    println!("\none regex compiled: {regex:?}");
    for golden in [1, 2, 4] {
        let automaton = automaton(20, golden);
        let tokens = run(&automaton, 20);
        let scored = median(|| {
            black_box(score(black_box(&automaton), black_box(&tokens)));
        });
        let ratio = scored.as_secs_f64() / regex.as_secs_f64();
        println!("20 calls against {golden} golden paths: {scored:?}, {ratio:.3} of it");
    }
}

criterion_group!(benches, scoring, compared_with_a_regex);
criterion_main!(benches);
