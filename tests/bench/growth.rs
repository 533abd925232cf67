//! Instructions per span of traces from 10 to 100,000 spans, with all rules: `cargo bench --bench growth`.
//! `-- 10 1000` measures these sizes only, `-- calls` the shapes whose names contain the word. Needs
//! valgrind. Each trace is evaluated in its own process, under callgrind; only evaluation and annotation are
//! counted, and a trace of ten spans is evaluated before, which initialises what is initialised once.
#![allow(clippy::print_stdout, clippy::expect_used, clippy::panic)]

use std::hint::black_box;
use std::process::Command;

mod shapes;

use shapes::{SHAPES, closed};
use verdict_eval::path::{TaskSet, load};
use verdict_eval::{Config, Evaluator};
use verdict_otlp::trace::ClosedTrace;

/// The allocator of the product.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Makes the program evaluate one trace.
const COMMAND: &str = "--work";
const SIZES: [u64; 5] = [10, 100, 1_000, 10_000, 100_000];

/// What is off by default is on.
const METRICS: &str = "
plan: { enabled: true }
latency: { max_ms: { llm: 1 } }
tokens: { max: 1 }
checklist: { fixed: [{ items: [{ question: 'Is it done?', check: { called: { tool: look_up } } }] }] }
path: { tasks: [look_up.yaml] }
";
const PATH: &str = "
task: look_up
alphabet: { look: look_up }
states:
  begin: { on: { look: seen } }
  seen: { final: true, on: { look: seen } }
";

fn evaluator() -> Evaluator {
    let metrics = serde_saphyr::from_str(METRICS).expect("valid settings");
    let task = verdict_config::Source { name: "look_up.yaml".into(), text: PATH.into() };
    let tasks = TaskSet::new(load(&[task]).expect("a valid task").tasks);
    let config = Config { metrics, ..Config::default() };
    Evaluator::builder(&config).path_tasks(tasks).build().expect("valid settings")
}

#[inline(never)]
fn measured(evaluator: &Evaluator, trace: ClosedTrace) {
    let evaluated = evaluator.evaluate(trace, 0, &mut |_| ());
    black_box(evaluator.annotate(&evaluated));
}

fn work(shape: &str, spans: u64) {
    let make = SHAPES.iter().find(|(name, _)| *name == shape).expect("a shape of that name").1;
    let evaluator = evaluator();
    let evaluate = |spans: u64| {
        let trace = closed(make(spans));
        let evaluated = evaluator.evaluate(trace, 0, &mut |_| ());
        black_box(evaluator.annotate(&evaluated));
    };
    evaluate(10);
    measured(&evaluator, closed(make(spans)));
}

/// Instructions of evaluating the trace; `None` without valgrind.
fn instructions(shape: &str, spans: u64) -> Option<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=*growth*measured*"])
        .arg(std::env::current_exe().ok()?)
        .args([COMMAND, shape, &spans.to_string()])
        .output()
        .ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = String::from_utf8_lossy(&output.stderr);
    output.lines().find_map(|line| line.split_once("Collected : "))?.1.trim().parse().ok()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    if let [command, shape, spans] = &arguments[..]
        && command == COMMAND
    {
        return work(shape, spans.parse().expect("a number"));
    }
    let mut sizes: Vec<u64> = arguments.iter().filter_map(|a| a.parse().ok()).collect();
    if sizes.is_empty() {
        sizes = SIZES.to_vec();
    }
    let words: Vec<&String> = arguments.iter().filter(|a| a.parse::<u64>().is_err()).collect();
    print!("instructions per span   ");
    sizes.iter().for_each(|n| print!("{n:>10}"));
    println!("  last to first");
    for (shape, _) in SHAPES.iter().filter(|(name, _)| words.iter().all(|word| name.contains(word.as_str())))
    {
        print!("{shape:<24}");
        let mut figures = Vec::new();
        for &spans in &sizes {
            let Some(count) = instructions(shape, spans) else { return println!("no valgrind") };
            figures.push(count as f64 / spans as f64);
            print!("{:>10.0}", figures[figures.len() - 1]);
        }
        println!("{:>15.2}", figures[figures.len() - 1] / figures[0]);
    }
}
