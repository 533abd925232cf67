//! Cost per span of traces from 10 to 100,000 spans, with all rules: `cargo bench --bench growth`.
//!
//! `-- 10 1000` measures these sizes only, `-- calls` the shapes whose names contain the word. `-- judged` asks
//! judges too, about every metric and span: a provider in the process answers at once. Needs valgrind and Linux.
//!
//! The benchmark fails where the instructions per span grow by more than [`MOST_GROWTH`] from a size to a larger one
//! ([`GROWS_MORE`]: one shape may grow more), or where rules exceed the work budget; with judges, questions about many
//! spans exceed it. The test `work_of_each_rule_grows_linearly` of `verdict-eval` compares counted work on the same
//! shapes without valgrind.
//!
//! `-- open` measures many small traces that are open at the same time, and more shards.
//!
//! Each trace is evaluated in its own process; only evaluation and annotation are measured, and a trace of ten
//! spans is evaluated before, which initialises what is initialised once. Instructions are counted under callgrind,
//! unless that would take longer than `-- within=SECONDS` (120 by default, estimated from the CPU time without it);
//! the figure is then left out, and only the CPU time is given.
#![allow(clippy::print_stdout, clippy::expect_used, clippy::panic)]

use std::hint::black_box;
use std::process::{Command, Output};

// Each benchmark uses only a part of this module.
#[allow(dead_code)]
mod corpus;
mod open_traces;
mod shapes;

use serde_json::{Map, Value, json};
use shapes::{ALARMS, MANY_TASKS, RULE_SHAPES, SCHEMA_FOR_EACH, SHAPES, Shape, TASKS, closed};
use verdict_eval::alarms::AlarmState;
use verdict_eval::metrics::{TaskSet, Unmeasured};
use verdict_eval::questions::{Answer, Opinion, Usage};
use verdict_eval::{Config, Evaluator, JudgeResults};
use verdict_otlp::trace::ClosedTrace;

/// The allocator of the product.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Makes the program evaluate one trace.
const COMMAND: &str = "--work";
/// Makes the program receive and evaluate traces that are open at the same time.
const OPEN: &str = "--open";
const SIZES: [u64; 5] = [10, 100, 1_000, 10_000, 100_000];
/// CPU time is given from this size on: below it, other processes cost more than the work.
const TIMED: u64 = 1_000;
/// By how much callgrind slows down the work, at most.
const SLOWDOWN: f64 = 80.0;
/// Default of `within`.
const SECONDS: f64 = 120.0;

/// Most growth of the instructions per span.
const MOST_GROWTH: f64 = 1.5;
/// A shape that grows more, and how much at most. Each of its agents is a run of its own, and a trace of ten spans has
/// two of them.
const GROWS_MORE: (&str, f64) = ("agents of one parent", 2.0);

/// All shapes.
fn all() -> impl Iterator<Item = (&'static str, Shape)> {
    SHAPES.into_iter().chain(RULE_SHAPES.into_iter().map(|(name, _, shape)| (name, shape)))
}

/// Metrics that are off by default are on.
const METRICS: &str = "
plan: { enabled: true }
latency: { max_ms: { llm: 1 } }
tokens: { max: 1 }
checklist: { fixed: [{ items: [
  { question: 'Is it done?', check: { called: { tool: look_up } } },
  { question: 'Is it an answer?', check: { matches: { text: '[0-9]+ m' } } } ] }] }
path: { tasks: [look_up.yaml] }
";
const JUDGED: &str = "
judges: [rules, scripted]
";
const PATH: &str = "
task: look_up
alphabet: { look: look_up }
states:
  begin: { on: { look: seen } }
  seen: { final: true, on: { look: seen } }
";

/// A task with a rule of each kind.
const RULES: &str = "
task: rules
match: { agent: shop }
alphabet:
  verify: verify_customer
  refund: { function: issue_refund, arguments: { amount: { any: true } } }
  notify: notify_customer
policy:
  - { never: refund, before: verify }
  - { at_most: 3, of: refund }
  - sum of refund.amount <= 1000 per run
  - refund only within 1h after verify
  - refund no sooner than 1ms after refund
  - notify within 5m after refund
";

/// The tasks with which a shape is compared.
fn tasks(shape: &str) -> TaskSet {
    let source = |name: &str, text: String| verdict_config::Source { name: name.into(), text };
    let mut sources = vec![source("look_up.yaml", PATH.into()), source("rules.yaml", RULES.into())];
    let task_yaml = |i| {
        PATH.replace("task: look_up", &format!("task: task_{i}\nmatch: {{ prompt: '(?i)do task {i} ' }}"))
    };
    if shape == MANY_TASKS {
        sources = (0..TASKS).map(|i| source(&format!("{i}.yaml"), task_yaml(i))).collect();
    }
    TaskSet::parse(&sources).expect("valid tasks")
}

fn evaluator(shape: &str, judged: bool) -> Evaluator {
    let metrics = if judged { format!("{METRICS}{JUDGED}") } else { METRICS.to_owned() };
    let metrics = serde_saphyr::from_str(&metrics).expect("valid settings");
    let config = Config { metrics, ..Config::default() };
    Evaluator::builder(&config).path_tasks(tasks(shape)).build().expect("valid settings")
}

/// Counts of the work, in addition to the measured cost.
#[derive(Clone, Copy, Default)]
struct Work {
    questions: u64,
    /// Results that are unmeasured since the work budget was exceeded.
    beyond_budget: u64,
}

/// The part that is measured. Its name is known to callgrind.
#[inline(never)]
fn measured(evaluator: &Evaluator, trace: ClosedTrace, open: bool, judged: bool) -> Work {
    evaluate(evaluator, trace, open, judged)
}

/// `open`: the trace is checked for alarms before it closes.
fn evaluate(evaluator: &Evaluator, trace: ClosedTrace, open: bool, judged: bool) -> Work {
    let mut work = Work::default();
    let id = trace.trace;
    let alarms = if open { evaluator.harmful(trace.clone()).alarms } else { Vec::new() };
    let mut evaluated = if judged {
        let assessment = evaluator.assess(trace, &mut |_| ());
        let mut questions = evaluator.questions(&assessment);
        while let Some(ask) = questions.next_question() {
            work.questions += 1;
            let value = scripted(&ask.question.form.schema);
            let opinion = Opinion { value, weighted: None, judge: "scripted/1".into() };
            let (key, usage) = (ask.question.key, Usage::default());
            questions.answer(ask.id, Answer { key, opinions: Ok(vec![opinion]), usage });
        }
        let measurements = questions.finish(Unmeasured::Timeout);
        let judged = JudgeResults { measurements, outcome: None, usage: Some(Usage::default()) };
        evaluator.decide(assessment, judged, 0)
    } else {
        evaluator.evaluate(trace, 0, &mut |_| ())
    };
    let wrong = evaluator.confirm_alarms(&mut evaluated, &alarms, &[]);
    assert!(wrong.is_empty(), "the closed trace confirms every alarm");
    let raised: Vec<_> = alarms.iter().map(|alarm| (alarm, AlarmState::Raised)).collect();
    black_box(evaluator.alarm_events(id, &raised, 0));
    let beyond = evaluated.measurements.iter().filter(|m| m.outcome == Err(Unmeasured::Limit));
    work.beyond_budget = beyond.count() as u64;
    black_box(evaluator.annotate(&evaluated));
    work
}

/// The least answer that a form accepts, with the best grade: no findings, and of an enumeration of numbers the
/// last value.
fn scripted(schema: &Value) -> Value {
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        let best = if values.iter().all(Value::is_number) { values.last() } else { values.first() };
        return best.cloned().unwrap_or_default();
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("object") => {
            let members = schema.get("properties").and_then(Value::as_object);
            let member = |(key, schema): (&String, &Value)| (key.clone(), scripted(schema));
            Value::Object(members.into_iter().flatten().map(member).collect::<Map<_, _>>())
        }
        Some("array") => json!([]),
        Some("integer" | "number") => json!(1),
        Some("boolean") => json!(true),
        _ => json!("as expected"),
    }
}

/// CPU time of this process in seconds.
fn cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("Linux");
    let nanoseconds = text.split_whitespace().next().and_then(|n| n.parse::<f64>().ok());
    nanoseconds.expect("the time on a CPU") / 1e9
}

fn work(shape: &str, spans: u64, judged: bool) {
    let make = all().find(|(name, _)| *name == shape).expect("a shape of that name").1;
    let (evaluator, open) = (evaluator(shape, judged), shape == ALARMS);
    evaluate(&evaluator, closed(make(10)), open, judged);
    let trace = closed(make(spans));
    let before = cpu();
    let Work { questions, beyond_budget } = measured(&evaluator, trace, open, judged);
    println!("{} {questions} {beyond_budget}", cpu() - before);
}

/// Evaluates a trace in a process of its own, started by `program`.
fn run(program: &str, arguments: &[&str], shape: &str, spans: u64, judged: bool) -> Option<Output> {
    let executable = std::env::current_exe().ok()?;
    let executable = executable.to_str()?;
    let (program, first) = if program.is_empty() { (executable, None) } else { (program, Some(executable)) };
    let output = Command::new(program)
        .args(arguments)
        .args(first)
        .args([COMMAND, shape, &spans.to_string(), if judged { "judged" } else { "rules" }])
        .output()
        .ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(output)
}

/// CPU time in seconds, and what was done.
fn timed(shape: &str, spans: u64, judged: bool) -> (f64, Work) {
    let output = run("", &[], shape, spans, judged).expect("this program");
    let text = String::from_utf8_lossy(&output.stdout);
    let figures: Vec<f64> = text.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    let [seconds, questions, beyond_budget] = figures[..] else { panic!("three figures: {text}") };
    (seconds, Work { questions: questions as u64, beyond_budget: beyond_budget as u64 })
}

/// Instructions of evaluating the trace; `None` without valgrind.
fn instructions(shape: &str, spans: u64, judged: bool) -> Option<u64> {
    let callgrind =
        ["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=*growth*measured*"];
    let output = run("valgrind", &callgrind, shape, spans, judged)?;
    let output = String::from_utf8_lossy(&output.stderr);
    let count = output.lines().find_map(|line| line.split_once("Collected : "))?.1.trim().parse().ok()?;
    assert!(count > 0, "the profile has no symbols: use `cargo bench`");
    Some(count)
}

/// A row: instructions per span, how much they grow at most from a size to a larger one, CPU time per span, and what
/// was done. Small traces have the cost of a trace on few spans. False if they grow, or exceed the work budget.
fn row(shape: &str, sizes: &[u64], judged: bool, within: f64) -> bool {
    print!("{shape:<34}");
    let (mut counted, mut times, mut last) = (Vec::new(), Vec::new(), Work::default());
    for &spans in sizes {
        let (seconds, work) = timed(shape, spans, judged);
        (last, times) = (work, [times, vec![seconds * 1e6 / spans as f64]].concat());
        let affordable = seconds * SLOWDOWN < within;
        match affordable.then(|| instructions(shape, spans, judged)).flatten() {
            Some(count) => {
                counted.push(count as f64 / spans as f64);
                print!("{:>10.0}", counted[counted.len() - 1]);
            }
            None => print!("{:>10}", "-"),
        }
    }
    let (mut least, mut growth) = (f64::NAN, f64::NAN);
    for count in &counted {
        least = least.min(*count);
        growth = growth.max(count / least);
    }
    print!("{growth:>8.2}");
    let timed = || sizes.iter().zip(&times).filter(|(spans, _)| **spans >= TIMED);
    timed().for_each(|(_, us)| print!("{us:>9.0}"));
    if judged {
        print!("{:>11.2}", last.questions as f64 / sizes.last().map_or(f64::NAN, |n| *n as f64));
    }
    println!(
        "{}",
        if last.beyond_budget > 0 {
            format!("  {} beyond the budget", last.beyond_budget)
        } else {
            String::new()
        }
    );
    let max_growth = if shape == GROWS_MORE.0 { GROWS_MORE.1 } else { MOST_GROWTH };
    judged || shape == SCHEMA_FOR_EACH || last.beyond_budget == 0 && (growth.is_nan() || growth <= max_growth)
}

/// The part that is measured of [`open_traces`].
#[inline(never)]
fn measured_open(work: &mut open_traces::Work) {
    work.run();
}

/// Instructions per span with so many open traces and shards; CPU time in microseconds per span.
fn open_row(traces: u32, shards: usize, within: f64) {
    let (traces, shards) = (traces.to_string(), shards.to_string());
    let executable = std::env::current_exe().expect("this program has a path");
    let work = [OPEN, &traces, &shards];
    let output = Command::new(&executable).args(work).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let seconds: f64 = String::from_utf8_lossy(&output.stdout).trim().parse().expect("seconds");
    let spans = 2.0 * traces.parse::<f64>().expect("a number");
    let callgrind =
        ["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=*growth*measured_open*"];
    let counted = (seconds * SLOWDOWN < within).then(|| {
        let output = Command::new("valgrind").args(callgrind).arg(&executable).args(work).output().ok()?;
        let output = String::from_utf8_lossy(&output.stderr).into_owned();
        output.lines().find_map(|line| line.split_once("Collected : "))?.1.trim().parse::<f64>().ok()
    });
    let counted = counted.flatten().map_or("-".to_owned(), |count| format!("{:.0}", count / spans));
    println!("{traces:>11} {shards:>7} {counted:>18} {:>10.2}", seconds * 1e6 / spans);
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    if let [command, shape, spans, judged] = &arguments[..]
        && command == COMMAND
    {
        return work(shape, spans.parse().expect("a number"), judged == "judged");
    }
    if let [command, traces, shards] = &arguments[..]
        && command == OPEN
    {
        let number = "a number";
        let mut work = open_traces::Work::new(traces.parse().expect(number), shards.parse().expect(number));
        let before = cpu();
        measured_open(&mut work);
        return println!("{}", cpu() - before);
    }
    let mut sizes: Vec<u64> = arguments.iter().filter_map(|a| a.parse().ok()).collect();
    if sizes.is_empty() {
        sizes = SIZES.to_vec();
    }
    let within = arguments.iter().find_map(|a| a.strip_prefix("within=")?.parse().ok()).unwrap_or(SECONDS);
    if arguments.iter().any(|a| a == "open") {
        println!("open traces  shards  instructions/span    us/span");
        return open_traces::ROWS.iter().for_each(|&(traces, shards)| open_row(traces, shards, within));
    }
    let judged = arguments.iter().any(|a| a == "judged");
    let options = |a: &&String| a.parse::<u64>().is_err() && *a != "judged" && !a.starts_with("within=");
    let words: Vec<&String> = arguments.iter().filter(options).collect();
    print!("{:<34}", if judged { "judged: instructions/span" } else { "instructions/span" });
    sizes.iter().for_each(|n| print!("{n:>10}"));
    print!("{:>8}", "growth");
    sizes.iter().filter(|n| **n >= TIMED).for_each(|n| print!("{:>9}", format!("us {}k", n / 1_000)));
    println!("{}", if judged { "  questions" } else { "" });
    let wanted = all().filter(|(name, _)| words.iter().all(|word| name.contains(word.as_str())));
    let growing: Vec<&str> =
        wanted.map(|(shape, _)| shape).filter(|shape| !row(shape, &sizes, judged, within)).collect();
    assert!(growing.is_empty(), "they grow, or exceed the work budget: {growing:?}");
}
