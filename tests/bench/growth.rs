//! Cost per span of traces from 10 to 100,000 spans, with all rules: `cargo bench --bench growth`.
//!
//! `-- 10 1000` measures these sizes only, `-- calls` the shapes whose names contain the word. `-- judged` asks
//! judges too, about every metric and span: a provider in the process answers at once. Needs valgrind and Linux.
//!
//! The benchmark fails where the instructions per span grow by more than [`MAX_GROWTH`] from a size to a larger one
//! ([`MAX_GROWTH_OF_SHAPE`]: one shape may grow more), or where rules exceed the work budget; with judges, questions
//! about many spans exceed it. The test `work_of_each_rule_grows_linearly` of `verdict-eval` compares counted work on
//! the same shapes without valgrind.
//!
//! `-- open` measures many small traces that are open at the same time, and more shards.
//!
//! Each trace is evaluated in its own process; only evaluation and annotation are measured, and a trace of ten
//! spans is evaluated before, which initialises statics. Instructions are counted under callgrind,
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
use shapes::{ALARMS, MANY_TASKS, RULE_SHAPES, SCHEMA_FOR_EACH, SHAPES, Shape, TASK_COUNT, closed_trace};
use verdict_eval::alarms::AlarmState;
use verdict_eval::metrics::{TaskSet, Unmeasured};
use verdict_eval::questions::{Answer, Opinion, Usage};
use verdict_eval::{Config, Evaluator, JudgeResults};
use verdict_otlp::trace::ClosedTrace;

/// The allocator of the product.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Argument with which the program evaluates one trace.
const EVALUATE_COMMAND: &str = "--work";
/// Argument with which the program receives and evaluates traces that are open at the same time.
const OPEN_TRACES_COMMAND: &str = "--open";
const SIZES: [u64; 5] = [10, 100, 1_000, 10_000, 100_000];
/// CPU time is given from this size on: below it, other processes cost more than the work.
const MIN_TIMED_SPANS: u64 = 1_000;
/// The highest ratio of the time under callgrind to the time without it.
const SLOWDOWN: f64 = 80.0;
/// Default of the argument `within`.
const DEFAULT_MAX_SECONDS: f64 = 120.0;

/// Maximum growth of the instructions per span.
const MAX_GROWTH: f64 = 1.5;
/// A shape whose growth has another limit. Each of its agents is a run of its own, and a trace of ten spans has two of
/// them.
const MAX_GROWTH_OF_SHAPE: (&str, f64) = ("agents of one parent", 2.0);

/// All shapes, also those of rules.
fn all_shapes() -> impl Iterator<Item = (&'static str, Shape)> {
    SHAPES.into_iter().chain(RULE_SHAPES.into_iter().map(|(name, _, shape)| (name, shape)))
}

/// Enables the metrics that are off by default.
const METRICS_SETTING: &str = "
plan: { enabled: true }
latency: { max_ms: { llm: 1 } }
tokens: { max: 1 }
checklist: { fixed: [{ items: [
  { question: 'Is it done?', check: { called: { tool: look_up } } },
  { question: 'Is it an answer?', check: { matches: { text: '[0-9]+ m' } } } ] }] }
path: { tasks: [look_up.yaml] }
";
const JUDGES_SETTING: &str = "
judges: [rules, scripted]
";
const LOOK_UP_TASK: &str = "
task: look_up
alphabet: { look: look_up }
states:
  begin: { on: { look: seen } }
  seen: { final: true, on: { look: seen } }
";

/// A task with a rule of each kind.
const POLICY_TASK: &str = "
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

/// The tasks with which the calls of a shape are compared.
fn tasks(shape: &str) -> TaskSet {
    let source = |name: &str, text: String| verdict_config::Source { name: name.into(), text };
    let mut sources =
        vec![source("look_up.yaml", LOOK_UP_TASK.into()), source("rules.yaml", POLICY_TASK.into())];
    let task_yaml = |i| {
        LOOK_UP_TASK
            .replace("task: look_up", &format!("task: task_{i}\nmatch: {{ prompt: '(?i)do task {i} ' }}"))
    };
    if shape == MANY_TASKS {
        sources = (0..TASK_COUNT).map(|i| source(&format!("{i}.yaml"), task_yaml(i))).collect();
    }
    TaskSet::parse(&sources).expect("valid tasks")
}

fn evaluator(shape: &str, judged: bool) -> Evaluator {
    let metrics =
        if judged { format!("{METRICS_SETTING}{JUDGES_SETTING}") } else { METRICS_SETTING.to_owned() };
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

/// The measured part: `instructions` passes the name of this function to callgrind.
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
            let value = passing_answer(&ask.question.form.schema);
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
    let retracted = evaluator.confirm_alarms(&mut evaluated, &alarms, &[]);
    assert!(retracted.is_empty(), "the closed trace confirms every alarm");
    let raised: Vec<_> = alarms.iter().map(|alarm| (alarm, AlarmState::Raised)).collect();
    black_box(evaluator.alarm_events(id, &raised, 0));
    let over_budget = evaluated.measurements.iter().filter(|m| m.outcome == Err(Unmeasured::Limit));
    work.beyond_budget = over_budget.count() as u64;
    black_box(evaluator.annotate(&evaluated));
    work
}

/// The smallest answer that matches `schema` and passes: no findings, and the last value of an enumeration of numbers.
fn passing_answer(schema: &Value) -> Value {
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        let best = if values.iter().all(Value::is_number) { values.last() } else { values.first() };
        return best.cloned().unwrap_or_default();
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("object") => {
            let members = schema.get("properties").and_then(Value::as_object);
            let member = |(key, schema): (&String, &Value)| (key.clone(), passing_answer(schema));
            Value::Object(members.into_iter().flatten().map(member).collect::<Map<_, _>>())
        }
        Some("array") => json!([]),
        Some("integer" | "number") => json!(1),
        Some("boolean") => json!(true),
        _ => json!("as expected"),
    }
}

/// CPU time of this process in seconds.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("Linux");
    let nanoseconds = text.split_whitespace().next().and_then(|n| n.parse::<f64>().ok());
    nanoseconds.expect("the time on a CPU") / 1e9
}

fn evaluate_shape(shape: &str, spans: u64, judged: bool) {
    let make = all_shapes().find(|(name, _)| *name == shape).expect("a shape of that name").1;
    let (evaluator, open) = (evaluator(shape, judged), shape == ALARMS);
    evaluate(&evaluator, closed_trace(make(10)), open, judged);
    let trace = closed_trace(make(spans));
    let before = cpu_seconds();
    let Work { questions, beyond_budget } = measured(&evaluator, trace, open, judged);
    println!("{} {questions} {beyond_budget}", cpu_seconds() - before);
}

/// Evaluates a trace in a process of its own, started by `program`.
fn run_in_process(
    program: &str,
    arguments: &[&str],
    shape: &str,
    spans: u64,
    judged: bool,
) -> Option<Output> {
    let executable = std::env::current_exe().ok()?;
    let executable = executable.to_str()?;
    let (program, first) = if program.is_empty() { (executable, None) } else { (program, Some(executable)) };
    let output = Command::new(program)
        .args(arguments)
        .args(first)
        .args([EVALUATE_COMMAND, shape, &spans.to_string(), if judged { "judged" } else { "rules" }])
        .output()
        .ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(output)
}

/// CPU time of the evaluation in seconds, and its counts.
fn timed_evaluation(shape: &str, spans: u64, judged: bool) -> (f64, Work) {
    let output = run_in_process("", &[], shape, spans, judged).expect("this program");
    let text = String::from_utf8_lossy(&output.stdout);
    let figures: Vec<f64> = text.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    let [seconds, questions, beyond_budget] = figures[..] else { panic!("three figures: {text}") };
    (seconds, Work { questions: questions as u64, beyond_budget: beyond_budget as u64 })
}

/// Instructions of evaluating the trace; `None` without valgrind.
fn instructions(shape: &str, spans: u64, judged: bool) -> Option<u64> {
    let callgrind =
        ["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=*growth*measured*"];
    let output = run_in_process("valgrind", &callgrind, shape, spans, judged)?;
    let output = String::from_utf8_lossy(&output.stderr);
    let count = output.lines().find_map(|line| line.split_once("Collected : "))?.1.trim().parse().ok()?;
    assert!(count > 0, "the profile has no symbols: use `cargo bench`");
    Some(count)
}

/// Prints the row of a shape: instructions per span, their largest growth from a size to a larger one, CPU time per
/// span, and counts. Returns `false` if the growth or the work budget is exceeded. The cost per span of a small trace
/// includes the cost of a trace, so growth is measured from the smallest value before.
fn print_row(shape: &str, sizes: &[u64], judged: bool, max_seconds: f64) -> bool {
    print!("{shape:<34}");
    let (mut instructions_per_span, mut times, mut largest) = (Vec::new(), Vec::new(), Work::default());
    for &spans in sizes {
        let (seconds, work) = timed_evaluation(shape, spans, judged);
        (largest, times) = (work, [times, vec![seconds * 1e6 / spans as f64]].concat());
        let affordable = seconds * SLOWDOWN < max_seconds;
        match affordable.then(|| instructions(shape, spans, judged)).flatten() {
            Some(count) => {
                instructions_per_span.push(count as f64 / spans as f64);
                print!("{:>10.0}", instructions_per_span[instructions_per_span.len() - 1]);
            }
            None => print!("{:>10}", "-"),
        }
    }
    let (mut smallest, mut growth) = (f64::NAN, f64::NAN);
    for count in &instructions_per_span {
        smallest = smallest.min(*count);
        growth = growth.max(count / smallest);
    }
    print!("{growth:>8.2}");
    let timed_sizes = || sizes.iter().zip(&times).filter(|(spans, _)| **spans >= MIN_TIMED_SPANS);
    timed_sizes().for_each(|(_, us)| print!("{us:>9.0}"));
    if judged {
        print!("{:>11.2}", largest.questions as f64 / sizes.last().map_or(f64::NAN, |n| *n as f64));
    }
    println!(
        "{}",
        if largest.beyond_budget > 0 {
            format!("  {} beyond the budget", largest.beyond_budget)
        } else {
            String::new()
        }
    );
    let max_growth = if shape == MAX_GROWTH_OF_SHAPE.0 { MAX_GROWTH_OF_SHAPE.1 } else { MAX_GROWTH };
    judged
        || shape == SCHEMA_FOR_EACH
        || largest.beyond_budget == 0 && (growth.is_nan() || growth <= max_growth)
}

/// The measured part of [`open_traces`].
#[inline(never)]
fn measured_open(work: &mut open_traces::PreparedInput) {
    work.run();
}

/// Prints instructions per span and CPU time in microseconds per span, with this number of open traces and shards.
fn print_open_row(traces: u32, shards: usize, max_seconds: f64) {
    let (traces, shards) = (traces.to_string(), shards.to_string());
    let executable = std::env::current_exe().expect("this program has a path");
    let work = [OPEN_TRACES_COMMAND, &traces, &shards];
    let output = Command::new(&executable).args(work).output().expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let seconds: f64 = String::from_utf8_lossy(&output.stdout).trim().parse().expect("seconds");
    let spans = 2.0 * traces.parse::<f64>().expect("a number");
    let callgrind =
        ["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=*growth*measured_open*"];
    let instructions_per_span = (seconds * SLOWDOWN < max_seconds).then(|| {
        let output = Command::new("valgrind").args(callgrind).arg(&executable).args(work).output().ok()?;
        let output = String::from_utf8_lossy(&output.stderr).into_owned();
        output.lines().find_map(|line| line.split_once("Collected : "))?.1.trim().parse::<f64>().ok()
    });
    let instructions_per_span =
        instructions_per_span.flatten().map_or("-".to_owned(), |count| format!("{:.0}", count / spans));
    println!("{traces:>11} {shards:>7} {instructions_per_span:>18} {:>10.2}", seconds * 1e6 / spans);
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    if let [command, shape, spans, judged] = &arguments[..]
        && command == EVALUATE_COMMAND
    {
        return evaluate_shape(shape, spans.parse().expect("a number"), judged == "judged");
    }
    if let [command, traces, shards] = &arguments[..]
        && command == OPEN_TRACES_COMMAND
    {
        let number = "a number";
        let mut work =
            open_traces::PreparedInput::new(traces.parse().expect(number), shards.parse().expect(number));
        let before = cpu_seconds();
        measured_open(&mut work);
        return println!("{}", cpu_seconds() - before);
    }
    let mut sizes: Vec<u64> = arguments.iter().filter_map(|a| a.parse().ok()).collect();
    if sizes.is_empty() {
        sizes = SIZES.to_vec();
    }
    let max_seconds =
        arguments.iter().find_map(|a| a.strip_prefix("within=")?.parse().ok()).unwrap_or(DEFAULT_MAX_SECONDS);
    if arguments.iter().any(|a| a == "open") {
        println!("open traces  shards  instructions/span    us/span");
        return open_traces::ROWS
            .iter()
            .for_each(|&(traces, shards)| print_open_row(traces, shards, max_seconds));
    }
    let judged = arguments.iter().any(|a| a == "judged");
    let is_name_filter =
        |a: &&String| a.parse::<u64>().is_err() && *a != "judged" && !a.starts_with("within=");
    let name_filters: Vec<&String> = arguments.iter().filter(is_name_filter).collect();
    print!("{:<34}", if judged { "judged: instructions/span" } else { "instructions/span" });
    sizes.iter().for_each(|n| print!("{n:>10}"));
    print!("{:>8}", "growth");
    sizes
        .iter()
        .filter(|n| **n >= MIN_TIMED_SPANS)
        .for_each(|n| print!("{:>9}", format!("us {}k", n / 1_000)));
    println!("{}", if judged { "  questions" } else { "" });
    let selected_shapes =
        all_shapes().filter(|(name, _)| name_filters.iter().all(|word| name.contains(word.as_str())));
    let failing_shapes: Vec<&str> = selected_shapes
        .map(|(shape, _)| shape)
        .filter(|shape| !print_row(shape, &sizes, judged, max_seconds))
        .collect();
    assert!(
        failing_shapes.is_empty(),
        "shapes that grow too much or exceed the work budget: {failing_shapes:?}"
    );
}
