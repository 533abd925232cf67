//! Tests of the budget, and of the steps that traces use.

mod growth;

use bytes::Bytes;
use verdict_otlp::trace::{Span, SpanId, TraceId, Tree};
use verdict_otlp::write::{Scalar, attribute};

use super::*;
use crate::measure::catalog::run_each;
use crate::measure::{Measurement, Memo, Settings, Unmeasured};
use crate::recognise::AgentTrace;
use crate::recognise::message::COMPARED;
use crate::recognise::recorded_cases::{recogniser, recorded_cases};

#[test]
fn each_metric_may_use_half_of_the_remaining_steps() {
    let budget = WorkBudget::new(1_000, None);
    budget.begin();
    assert!(budget.spend(500) && !budget.spend(1) && budget.is_exceeded());
    assert!(!budget.spend(0), "the budget remains exceeded");
    budget.begin();
    assert!(!budget.is_exceeded() && budget.share() == 249 && budget.spend(249));
    assert!(!budget.spend(1_000_000));
    budget.begin();
    assert!(budget.left() == 0 && budget.spend(0) && !budget.spend(1));
}

#[test]
fn stop_ends_the_work() {
    let budget = WorkBudget::new(DEFAULT_STEPS, Some(Box::new(|| true)));
    budget.begin();
    assert!(budget.spend((POLL_STEPS - BEGIN_STEPS) as usize), "`stop` was not called yet");
    assert!(!budget.spend(1) && budget.left() == 0);
}

#[test]
fn stop_is_called_although_metrics_count_no_steps() {
    let budget = WorkBudget::new(DEFAULT_STEPS, Some(Box::new(|| true)));
    let spans = POLL_STEPS / BEGIN_STEPS;
    (0..=spans).for_each(|_| budget.begin());
    assert!(budget.left() == 0 && !budget.spend(1));
}

#[test]
fn optional_part_of_a_metric_can_be_skipped() {
    let budget = WorkBudget::new(1_000, None);
    budget.begin();
    assert!(budget.spend_if_left(400) && !budget.spend_if_left(101) && !budget.is_exceeded());
    assert!((budget.left(), budget.share()) == (600, 100) && budget.spend(100) && !budget.spend(1));
}

#[test]
fn attempt_is_void_when_a_metric_reaches_its_limit() {
    let attempt = |work: &dyn Fn(&WorkBudget)| {
        let budget = WorkBudget::attempt(1_000, None);
        budget.begin();
        work(&budget);
        (budget.is_void(), budget.left())
    };
    let left = DEFAULT_STEPS - 1_000;
    assert_eq!(
        attempt(&|budget| assert!(budget.spend(1_000))),
        (false, left),
        "one metric may use all steps"
    );
    assert_eq!(attempt(&|budget| assert!(!budget.spend(1_001))), (true, left));
    assert_eq!(attempt(&|budget| assert!(!budget.spend_if_left(1_001))), (true, left));
    assert_eq!(attempt(&WorkBudget::exceed), (true, left));
    let next = |budget: &WorkBudget| {
        budget.exceed();
        budget.begin();
        assert!(!budget.spend(1), "no later metric continues");
    };
    assert_eq!(attempt(&next), (true, left));
    let whole = WorkBudget::new(1_000, None);
    whole.begin();
    whole.exceed();
    assert!(!whole.is_void());
}

/// The measurements of a trace with this budget, and the steps used.
fn measure(trace: &AgentTrace, steps: u64) -> (Vec<Measurement>, u64) {
    let (measurements, budget) = measure_within(trace, WorkBudget::new(steps, None));
    (measurements, steps - budget.left())
}

fn measure_within(trace: &AgentTrace, budget: WorkBudget) -> (Vec<Measurement>, WorkBudget) {
    let memo = Memo::within(budget);
    let measurements = run_each(trace, &Settings::default(), &[], &memo, &mut |_| ());
    (measurements, memo.budget)
}

/// Span `i` of a trace, with these attributes.
fn span(i: u64, parent: u64, attributes: &[(&str, &str)]) -> Span {
    let id = |i: u64| SpanId(i.to_be_bytes());
    let mut bytes = Vec::new();
    for (key, value) in attributes {
        attribute(&mut bytes, 9, key, Scalar::Str(value));
    }
    Span {
        id: id(i),
        parent: id(parent),
        start: i,
        end: i + 1,
        status: verdict_otlp::trace::Status::Unset,
        remote_parent: false,
        has_verdict: false,
        forwarded: false,
        skew: 0,
        bytes: Bytes::from(bytes),
        envelope: Default::default(),
    }
}

const DEFINITIONS: &str = r#"[{"type":"function","name":"look_up","parameters":{"type":"object",
    "properties":{"q":{"type":"string"}},"required":["q"]}}]"#;
const PROMPT: &str =
    r#"[{"role":"user","parts":[{"type":"text","content":"Use look_up: how high is Mount Elbrus?"}]}]"#;

fn output(parts: &str) -> String {
    format!(r#"[{{"role":"assistant","parts":[{parts}]}}]"#)
}

fn chat(i: u64, parent: u64, output: &str) -> Span {
    let attributes = [
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.tool.definitions", DEFINITIONS),
        ("gen_ai.input.messages", PROMPT),
        ("gen_ai.output.messages", output),
    ];
    span(i, parent, &attributes)
}

fn tool(i: u64, parent: u64, result: &str) -> Span {
    let arguments = format!(r#"{{"q":"{i}"}}"#);
    let attributes = [
        ("gen_ai.operation.name", "execute_tool"),
        ("gen_ai.tool.name", "look_up"),
        ("gen_ai.tool.call.arguments", arguments.as_str()),
        ("gen_ai.tool.call.result", result),
    ];
    span(i, parent, &attributes)
}

fn agent(i: u64, parent: u64) -> Span {
    span(i, parent, &[("gen_ai.operation.name", "invoke_agent"), ("gen_ai.agent.name", "finder")])
}

/// Traces of `n` spans, each with many spans of one kind.
fn shapes(n: u64) -> Vec<(&'static str, Vec<Span>)> {
    let claims = output(
        r#"{"type":"text","content":"I verified it with the look_up tool. I have searched the web."}"#,
    );
    let gives_up = output(r#"{"type":"text","content":"I could not find it."}"#);
    let announces = output(r#"{"type":"text","content":"I will call look_up. Code: ```x```"}"#);
    let calls: Vec<String> = (0..n)
        .map(|i| {
            format!(r#"{{"type":"tool_call","id":"{i}","name":"look_up","arguments":{{"q":"{i}","z":1}}}}"#)
        })
        .collect();
    let beneath_one_agent = |make_span: &dyn Fn(u64) -> Span| {
        let mut spans = vec![agent(1, 0)];
        spans.extend((2..=n).map(make_span));
        spans
    };
    vec![
        (
            "failed calls and claims",
            beneath_one_agent(&|i| {
                if i % 2 == 0 { tool(i, 1, "Error: not found") } else { chat(i, 1, &claims) }
            }),
        ),
        (
            "failed calls and admissions",
            beneath_one_agent(&|i| {
                if i % 2 == 0 { tool(i, 1, "Error: not found") } else { chat(i, 1, &gives_up) }
            }),
        ),
        (
            "calls and announcements",
            beneath_one_agent(&|i| if i % 2 == 0 { tool(i, 1, "5,642 m") } else { chat(i, 1, &announces) }),
        ),
        ("calls of one message", vec![agent(1, 0), chat(2, 1, &output(&calls.join(",")))]),
        (
            "agents beneath agents",
            (1..=n).map(|i| if i % 3 == 1 { agent(i, i - 1) } else { tool(i, i - 1, "5,642 m") }).collect(),
        ),
        (
            "tools beneath one model call",
            (1..=n).map(|i| if i == 1 { chat(1, 0, &claims) } else { tool(i, 1, "") }).collect(),
        ),
    ]
}

#[test]
fn steps_and_comparisons_grow_linearly_with_the_spans() {
    const SMALL_TRACE_SPANS: u64 = 150;
    const GROWTH: u64 = 10;
    for ((shape, small_trace_steps), (_, large_trace_steps)) in
        shapes(SMALL_TRACE_SPANS).into_iter().zip(shapes(SMALL_TRACE_SPANS * GROWTH))
    {
        let [small_trace_steps, large_trace_steps] = [small_trace_steps, large_trace_steps].map(|spans| {
            let before = COMPARED.get();
            let trace = recogniser().trace(Tree::new(TraceId([1; 16]), spans), &[], false);
            let (measurements, steps) = measure(&trace, DEFAULT_STEPS);
            assert!(!measurements.iter().any(|m| m.outcome == Err(Unmeasured::Limit)), "{shape}");
            steps + COMPARED.get() - before
        });
        println!("{shape}: {small_trace_steps}, {large_trace_steps}");
        assert!(
            large_trace_steps <= 2 * GROWTH * small_trace_steps.max(SMALL_TRACE_SPANS),
            "{shape}: {small_trace_steps} of {SMALL_TRACE_SPANS}, {large_trace_steps} of {GROWTH} times as many spans"
        );
    }
}

#[test]
fn recorded_runs_take_less_than_a_hundredth_of_the_budget() {
    for case in recorded_cases() {
        for trace in &case.traces {
            let (measurements, steps) = measure(trace, DEFAULT_STEPS);
            println!("{}: {steps} steps", case.name);
            assert!(steps < DEFAULT_STEPS / 100, "{}: {steps}", case.name);
            assert!(!measurements.iter().any(|m| m.outcome == Err(Unmeasured::Limit)), "{}", case.name);
        }
    }
}

#[test]
fn attempt_has_the_result_of_the_whole_budget_or_is_void() {
    for case in recorded_cases() {
        for trace in &case.traces {
            let (whole, steps) = measure(trace, DEFAULT_STEPS);
            for limit in [steps / 2, steps.saturating_sub(1), steps, 1 << 16] {
                let (attempted, budget) = measure_within(trace, WorkBudget::attempt(limit, None));
                assert_eq!(budget.is_void(), limit < steps, "{}: {limit} of {steps} steps", case.name);
                if !budget.is_void() {
                    assert_eq!(
                        (attempted, budget.left()),
                        (whole.clone(), DEFAULT_STEPS - steps),
                        "{}",
                        case.name
                    );
                }
            }
        }
    }
}

#[test]
fn metrics_beyond_the_budget_are_unmeasured_and_others_are_measured() {
    let schema = |trace: &AgentTrace| {
        trace.calls.iter().find_map(|call| call.definition.as_ref()?.parameters.clone()).is_some()
    };
    let trace = recogniser().trace(
        Tree::new(
            TraceId([1; 16]),
            vec![
                agent(1, 0),
                chat(2, 1, &output(r#"{"type":"tool_call","id":"a","name":"look_up","arguments":{"z":1}}"#)),
                chat(3, 1, &output(r#"{"type":"text","content":"5,642 m"}"#)),
            ],
        ),
        &[],
        false,
    );
    assert!(schema(&trace));
    let outcomes_for = |all: &[Measurement], metric: &str| -> Vec<_> {
        all.iter().filter(|m| m.metric == metric).map(|m| (m.at, m.outcome.clone())).collect()
    };
    let (whole, _) = measure(&trace, DEFAULT_STEPS);
    let (limited, _) = measure(&trace, 4);
    assert_eq!(outcomes_for(&limited, "tool_completeness")[0], (1, Err(Unmeasured::Limit)));
    assert!(outcomes_for(&whole, "tool_completeness")[0].1.as_ref().is_ok_and(|m| !m.passed));
    for metric in ["error_detection", "avoidance", "latency"] {
        assert_eq!(outcomes_for(&limited, metric), outcomes_for(&whole, metric), "{metric}");
    }
}
