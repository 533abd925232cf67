//! Instructions a span: the program runs itself under callgrind, which counts only what happens
//! within [`measured`].

use std::process::Command;

use crate::corpus::Corpus;
use crate::paths::{PATHS, Path};

/// Makes the program do one path once.
pub const COMMAND: &str = "--work";
/// Enough for a steady count; callgrind is some 50 times slower than the machine.
const TRACES: u32 = 64;

/// What the program does under callgrind.
pub fn work(corpus: &str, path: &str) {
    let corpus = of(corpus);
    let path = PATHS.iter().find(|(name, _)| *name == path).expect("a path of that name").1;
    // Statics are made beforehand.
    path(&corpus.requests);
    measured(path, &corpus);
}

fn of(corpus: &str) -> Corpus {
    if corpus == "agent" { Corpus::agent(TRACES) } else { Corpus::small(TRACES) }
}

#[inline(never)]
fn measured(path: Path, corpus: &Corpus) {
    std::hint::black_box(path(&corpus.requests));
}

/// Instructions that a path takes for a span; `None` without valgrind.
pub fn per_span(corpus: &str, path: &str) -> Option<f64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=*measured*"])
        .arg(std::env::current_exe().ok()?)
        .args([COMMAND, corpus, path])
        .output()
        .ok()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let count: f64 = said.lines().find_map(|line| line.split_once("Collected : "))?.1.trim().parse().ok()?;
    Some(count / of(corpus).spans as f64)
}
