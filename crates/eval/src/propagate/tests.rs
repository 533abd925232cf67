//! Each policy on small trees.

use std::sync::Arc;

use bytes::Bytes;
use verdict_otlp::trace::{Envelope, Kind, Span, SpanId, Status, TraceId, Tree};

use super::outcome_model::{OutcomeModel, Term};
use super::policy::SeverityWeights;
use super::*;
use crate::measure::testing::Script;
use crate::measure::{Finding, Measured, Measurement};
use crate::recognise::{Agent, AgentTrace, Call, Content, SpanView, Text, ToolDefinition, ToolRequest};

/// A trace of spans with these kinds and parents. The start time of a span is its index, so the order is kept.
fn trace(nodes: &[(Kind, Option<usize>)]) -> AgentTrace {
    let id = |i: usize| SpanId((i as u64 + 1).to_be_bytes());
    let spans = nodes.iter().enumerate().map(|(i, (_, parent))| Span {
        id: id(i),
        parent: parent.map(id).unwrap_or_default(),
        start: i as u64,
        end: i as u64 + 1,
        status: Status::Unset,
        remote_parent: false,
        has_verdict: false,
        forwarded: false,
        skew: 0,
        bytes: Bytes::from(vec![i as u8]),
        envelope: Arc::new(Envelope::default()),
    });
    let views = nodes.iter().map(|&(kind, _)| SpanView { kind, ..SpanView::default() }).collect();
    let tree = Tree::new(TraceId([1; 16]), spans.collect());
    AgentTrace { owner: vec![None; tree.len()], tree, views, ..AgentTrace::default() }
}

fn measured(index: usize, metric: &'static str, score: f64) -> Measurement {
    let passed = score >= 4.0;
    let finding = Finding {
        rationale: "because".to_owned(),
        quote: String::new(),
        seen_in: None,
        cited: Vec::new(),
        category: None,
        severity: Severity::from_score(score),
        score,
        origin: None,
        fact: false,
        defect: None,
        rule: None,
        confidence: None,
    };
    let findings = if passed { vec![] } else { vec![finding] };
    let outcome = Ok(Measured { value: Value::Score(score), passed, findings });
    Measurement::new(index, metric, "rules/1", outcome)
}

fn policies(policy: Policy) -> Policies {
    Policies { default: policy, ..Policies::default() }
}

use Kind::{Agent as A, Chain as C, Llm as L, Tool as T, Unknown as U};

#[test]
fn existential_fails_the_root_for_one_failing_leaf_and_the_chain_leads_to_it() {
    let trace = trace(&[(A, None), (C, Some(0)), (L, Some(1)), (T, Some(1))]);
    let ms = [measured(2, "avoidance", 5.0), measured(3, "tool_completeness", 1.0)];
    let verdicts = propagate(&trace, &ms, &Policies::default());
    let fail = |cause| Some(Verdict::Fail(cause));
    let expected = [fail(Cause::Children), fail(Cause::Children), Some(Verdict::Pass), fail(Cause::Own)];
    assert_eq!(verdicts.by_span, expected);
    assert_eq!(verdicts.trace.passed, Some(false));
    assert_eq!(verdicts.trace.failed_spans, [3]);
    assert_eq!(verdicts.trace.failure_chain, [0, 1, 3]);
    assert_eq!(verdicts.trace.failed_metrics, ["tool_completeness"]);
    assert_eq!((verdicts.trace.measured, verdicts.trace.unmeasured), (2, 0));
}

#[test]
fn trace_without_measurements_has_no_verdict() {
    let verdicts = propagate(&trace(&[(A, None), (L, Some(0))]), &[], &Policies::default());
    assert_eq!((verdicts.by_span, verdicts.trace.passed), (vec![None, None], None));
}

#[test]
fn threshold_fails_above_alpha_of_the_children_with_a_verdict() {
    let trace = trace(&[(A, None), (T, Some(0)), (T, Some(0)), (T, Some(0))]);
    let half = policies(Policy::Threshold { alpha: 0.5 });
    let one_of_two = [measured(1, "m", 1.0), measured(2, "m", 5.0)];
    assert_eq!(propagate(&trace, &one_of_two, &half).trace.passed, Some(true));
    let two_of_three = [measured(1, "m", 1.0), measured(2, "m", 5.0), measured(3, "m", 1.0)];
    assert_eq!(propagate(&trace, &two_of_three, &half).trace.passed, Some(false));
}

#[test]
fn type_filtered_fails_by_the_kind_in_which_the_failure_originated() {
    let trace = trace(&[(A, None), (C, Some(0)), (T, Some(1)), (C, Some(0)), (L, Some(3))]);
    let filter = policies(Policy::TypeFiltered { kinds: [L].into() });
    let by_tool = [measured(2, "m", 1.0), measured(4, "m", 5.0)];
    assert_eq!(propagate(&trace, &by_tool, &filter).trace.passed, Some(true));
    let mixed =
        Policies { by_kind: [(A, Policy::TypeFiltered { kinds: [L].into() })].into(), ..Policies::default() };
    let both = [measured(2, "m", 1.0), measured(4, "m", 1.0)];
    let verdicts = propagate(&trace, &both, &mixed);
    assert_eq!((verdicts.trace.passed, verdicts.trace.failed_spans), (Some(false), vec![4]));
}

#[test]
fn conjunctive_fails_if_all_children_with_a_verdict_fail() {
    let trace = trace(&[(A, None), (T, Some(0)), (T, Some(0))]);
    let all = policies(Policy::Conjunctive);
    let one = [measured(1, "m", 1.0), measured(2, "m", 5.0)];
    assert_eq!(propagate(&trace, &one, &all).trace.passed, Some(true));
    let both = [measured(1, "m", 1.0), measured(2, "m", 1.0)];
    assert_eq!(propagate(&trace, &both, &all).trace.passed, Some(false));
    assert_eq!(propagate(&trace, &both[..1], &all).trace.passed, Some(false));
}

#[test]
fn severity_weighted_passes_below_the_limit_and_keeps_verdicts_of_spans() {
    let nodes: Vec<(Kind, Option<usize>)> =
        std::iter::once((A, None)).chain((0..10).map(|_| (L, Some(0)))).collect();
    let trace = trace(&nodes);
    let weighted = policies(Policy::SeverityWeighted(SeverityWeights::default()));
    let minor: Vec<Measurement> = (1..10).map(|i| measured(i, "instruction_following", 3.0)).collect();
    let verdicts = propagate(&trace, &minor, &weighted);
    assert_eq!((verdicts.by_span[1], verdicts.trace.passed), (Some(Verdict::Fail(Cause::Own)), Some(true)));
    let ten: Vec<Measurement> = (1..11).map(|i| measured(i, "instruction_following", 3.0)).collect();
    assert_eq!(propagate(&trace, &ten, &weighted).trace.passed, Some(false));
    assert_eq!(propagate(&trace, &[measured(1, "m", 1.0)], &weighted).trace.passed, Some(false));
    // A minor failure of the root itself has the same weight.
    assert_eq!(
        propagate(&trace, &[measured(0, "tool_abuse", 3.0)], &weighted).by_span[0],
        Some(Verdict::Pass)
    );
}

/// An agent that calls a tool twice; the second call may succeed.
fn retried_call() -> AgentTrace {
    let mut trace = trace(&[(A, None), (L, Some(0)), (T, Some(0)), (L, Some(0)), (T, Some(0)), (L, Some(0))]);
    let call = |name: &str| ToolRequest { id: None, name: Text::from(name), arguments: None };
    trace.views[2].call = Some(call("visit"));
    trace.views[4].call = Some(call("visit"));
    trace.owner = vec![Some(0); 6];
    trace.agents = vec![Agent {
        at: 0,
        name: None,
        parent: None,
        task: None,
        task_content: Content::Absent,
        task_at: None,
        answer: None,
        answer_at: Some(5),
        answer_content: Content::Present,
        llms: vec![1, 3, 5],
        calls: vec![],
        plans: vec![],
        tools: vec![],
    }];
    trace.calls = Vec::<Call>::new();
    trace
}

#[test]
fn outcome_relevant_ignores_a_failure_that_was_recovered() {
    let trace = retried_call();
    let relevant = policies(Policy::OutcomeRelevant);
    let recovered = [measured(2, "error_detection", 1.0), measured(4, "error_detection", 5.0)];
    let verdicts = propagate(&trace, &recovered, &relevant);
    assert_eq!((verdicts.by_span[2], verdicts.trace.passed), (Some(Verdict::Fail(Cause::Own)), Some(true)));
    // Under the existential policy the same failure fails the trace.
    assert_eq!(propagate(&trace, &recovered, &Policies::default()).trace.passed, Some(false));
}

#[test]
fn outcome_relevant_treats_numbered_steps_as_one_operation() {
    let mut trace = retried_call();
    for (i, name) in [(2, "Step 1"), (4, "Step 2")] {
        trace.views[i].kind = Kind::Chain;
        trace.views[i].call = None;
        trace.views[i].name = Some(Text::from(name));
    }
    let steps = [measured(2, "error_detection", 1.0), measured(4, "error_detection", 5.0)];
    let relevant = policies(Policy::OutcomeRelevant);
    assert_eq!(propagate(&trace, &steps, &relevant).trace.passed, Some(true));
    trace.views[4].name = Some(Text::from("Clean up"));
    assert_eq!(propagate(&trace, &steps, &relevant).trace.passed, Some(false));
}

#[test]
fn outcome_relevant_ignores_a_call_of_an_unknown_tool_after_another_tool_succeeded() {
    let mut trace = retried_call();
    if let Some(call) = &mut trace.views[2].call {
        call.name = Text::from("fetch");
    }
    let relevant = policies(Policy::OutcomeRelevant);
    let undefined = [measured(2, "error_detection", 1.0), measured(4, "error_detection", 5.0)];
    // Without a list of tools, `fetch` may exist.
    assert_eq!(propagate(&trace, &undefined, &relevant).trace.passed, Some(false));
    trace.agents[0].tools =
        vec![ToolDefinition { name: Text::from("visit"), description: None, parameters: None }];
    assert_eq!(propagate(&trace, &undefined, &relevant).trace.passed, Some(true));
    let no_call_succeeded = [measured(2, "error_detection", 1.0), measured(4, "error_detection", 1.0)];
    assert_eq!(propagate(&trace, &no_call_succeeded, &relevant).trace.passed, Some(false));
}

#[test]
fn outcome_relevant_fails_for_a_failing_answer_or_a_failed_retry() {
    let trace = retried_call();
    let relevant = policies(Policy::OutcomeRelevant);
    let failed_again = [measured(2, "error_detection", 1.0), measured(4, "error_detection", 1.0)];
    assert_eq!(propagate(&trace, &failed_again, &relevant).trace.passed, Some(false));
    let bad_answer = [measured(2, "error_detection", 1.0), measured(4, "m", 5.0), measured(5, "m", 2.0)];
    let verdicts = propagate(&trace, &bad_answer, &relevant);
    assert_eq!((verdicts.trace.passed, verdicts.trace.failed_spans), (Some(false), vec![2, 5]));
}

#[test]
fn later_statement_of_the_model_does_not_recover_a_wrong_one() {
    let mut trace = retried_call();
    let relevant = policies(Policy::OutcomeRelevant);
    let passed = |trace: &AgentTrace, metric: &'static str| {
        let measurements =
            [measured(1, metric, 2.0), measured(4, "error_detection", 5.0), measured(5, "m", 5.0)];
        propagate(trace, &measurements, &relevant).trace.passed
    };
    assert_eq!(passed(&trace, "reasoning_integrity"), Some(false));
    // A wrong call, after which a call succeeded, and a model call that failed and was repeated.
    assert_eq!(passed(&trace, "tool_completeness"), Some(true));
    let source = crate::recognise::ErrorSource::Status;
    trace.views[1].errors = vec![crate::recognise::ErrorSign { source, error_type: None, message: None }];
    assert_eq!(passed(&trace, "error_detection"), Some(true));
}

#[test]
fn outcome_relevant_ignores_minor_and_process_failures_of_a_run_that_ends_well() {
    let trace = retried_call();
    let relevant = policies(Policy::OutcomeRelevant);
    let minor =
        [measured(1, "instruction_following", 3.0), measured(0, "tool_abuse", 2.0), measured(5, "m", 5.0)];
    assert_eq!(propagate(&trace, &minor, &relevant).trace.passed, Some(true));
    let answer = [measured(5, "instruction_following", 3.0)];
    assert_eq!(propagate(&trace, &answer, &relevant).trace.passed, Some(false));
}

#[test]
fn children_of_an_unknown_span_count_for_its_parent() {
    let trace = trace(&[(A, None), (U, Some(0)), (T, Some(1)), (T, Some(1)), (T, Some(0))]);
    let half = policies(Policy::Threshold { alpha: 0.5 });
    // One of three fails, since each child of the unknown span counts.
    let ms = [measured(2, "m", 1.0), measured(3, "m", 5.0), measured(4, "m", 5.0)];
    let verdicts = propagate(&trace, &ms, &half);
    assert_eq!(verdicts.trace.passed, Some(true));
    let verdicts = propagate(&trace, &ms, &Policies::default());
    assert_eq!(
        (verdicts.by_span[1], verdicts.trace.failure_chain),
        (Some(Verdict::Fail(Cause::Children)), vec![0, 1, 2])
    );
}

#[test]
fn failure_with_its_origin_in_another_failed_span_is_left_out() {
    let trace = trace(&[(A, None), (L, Some(0)), (T, Some(0))]);
    let mut tool_failure = measured(2, "tool_completeness", 3.0);
    tool_failure.outcome.as_mut().unwrap().findings[0].origin = Some(1);
    let verdicts =
        propagate(&trace, &[measured(1, "tool_completeness", 3.0), tool_failure], &Policies::default());
    assert_eq!(verdicts.by_span[2], Some(Verdict::Fail(Cause::Own)));
    assert_eq!(verdicts.trace.failed_spans, [1]);
}

#[test]
fn failure_chain_leads_to_the_earliest_of_equal_failures_below_others() {
    let trace = trace(&[(A, None), (A, Some(0)), (L, Some(1)), (A, Some(0)), (L, Some(3))]);
    let ms = [0, 1, 2, 4].map(|index| measured(index, "m", 1.0));
    assert_eq!(propagate(&trace, &ms, &Policies::default()).trace.failure_chain, [0, 1, 2]);
    // A worse failure of an ancestor takes precedence.
    let ms = [measured(0, "m", 1.0), measured(2, "m", 3.0)];
    assert_eq!(propagate(&trace, &ms, &Policies::default()).trace.failure_chain, [0]);
}

#[test]
fn trace_with_several_roots_applies_the_default_policy_to_them() {
    let trace = trace(&[(A, None), (L, Some(0)), (A, None), (L, Some(2))]);
    let verdicts = propagate(&trace, &[measured(1, "m", 5.0), measured(3, "m", 1.0)], &Policies::default());
    assert_eq!((verdicts.trace.passed, verdicts.trace.failure_chain), (Some(false), vec![2, 3]));
}

#[test]
fn most_specific_policy_applies() {
    let policies = Policies {
        by_kind: [(A, Policy::Conjunctive)].into(),
        by_service: [("shop".to_owned(), Policy::OutcomeRelevant)].into(),
        by_name: [("run".to_owned(), Policy::Threshold { alpha: 0.1 })].into(),
        ..Policies::default()
    };
    assert_eq!(policies.for_span(Some("run"), Some("shop"), A), &Policy::Threshold { alpha: 0.1 });
    assert_eq!(policies.for_span(None, Some("shop"), A), &Policy::OutcomeRelevant);
    assert_eq!(policies.for_span(None, None, A), &Policy::Conjunctive);
    assert_eq!(policies.for_span(None, None, L), &Policy::Existential);
}

#[test]
fn policy_is_parsed_from_a_word_or_a_map() {
    let read = |text: &str| serde_json::from_str::<Policy>(text);
    assert_eq!(read("\"outcome_relevant\"").unwrap(), Policy::OutcomeRelevant);
    assert_eq!(read("{\"threshold\":{\"alpha\":0.5}}").unwrap(), Policy::Threshold { alpha: 0.5 });
    assert_eq!(read("\"severity_weighted\"").unwrap(), Policy::SeverityWeighted(SeverityWeights::default()));
    for bad in
        ["\"threshold\"", "\"most\"", "{\"threshold\":{\"alpha\":2}}", "{\"conjunctive\":{}}", "{}", "3"]
    {
        assert!(read(bad).is_err(), "{bad}");
    }
    let all = [
        Policy::Existential,
        Policy::Threshold { alpha: 0.25 },
        Policy::TypeFiltered { kinds: [L, T].into() },
        Policy::Conjunctive,
        Policy::SeverityWeighted(SeverityWeights::default()),
        Policy::OutcomeRelevant,
    ];
    for policy in all {
        assert_eq!(read(&serde_json::to_string(&policy).unwrap()).unwrap(), policy);
    }
}

/// A failing measurement whose finding has this confidence.
fn with_confidence(index: usize, metric: &'static str, confidence: f64) -> Measurement {
    let mut m = measured(index, metric, 1.0);
    m.outcome.as_mut().unwrap().findings[0].confidence = Some(confidence);
    m
}

#[test]
fn failures_below_the_least_confidence_do_not_count_and_those_without_one_do() {
    let trace = trace(&[(A, None), (L, Some(0)), (T, Some(0))]);
    let policies = Policies { min_confidence: 0.5, ..Policies::default() };
    let verdicts = propagate(&trace, &[with_confidence(1, "m", 0.4)], &policies);
    assert_eq!((verdicts.trace.passed, verdicts.by_span[1]), (Some(true), Some(Verdict::Pass)));
    let verdicts =
        propagate(&trace, &[with_confidence(1, "m", 0.4), with_confidence(2, "m", 0.5)], &policies);
    assert_eq!(verdicts.trace.failed_spans, [2]);
    let verdicts = propagate(&trace, &[measured(1, "m", 1.0)], &policies);
    assert_eq!(verdicts.trace.passed, Some(false));
}

#[test]
fn expected_outcome_writes_a_probability_that_no_further_finding_lowers() {
    let trace = trace(&[(A, None), (L, Some(0)), (T, Some(0))]);
    let policies = |root| Policies { root, ..Policies::default() };
    let model = OutcomeModel { intercept: -2.0, lasting: 3.0, process: 1.0, ..OutcomeModel::default() };
    let root = policies(RootPolicy::ExpectedOutcome(model));
    let verdicts_for = |ms: &[Measurement]| propagate(&trace, ms, &root);
    let failure = |verdicts: &Verdicts| verdicts.trace.failure.clone().unwrap();

    let clean = verdicts_for(&[measured(1, "m", 5.0)]);
    assert_eq!(clean.trace.passed, Some(true));
    assert!((failure(&clean).probability - 0.119).abs() < 1e-3);
    assert_eq!(failure(&clean).contributions, []);

    // Below the limit: the failing span keeps its verdict, the trace passes.
    let doubtful = verdicts_for(&[with_confidence(1, "m", 0.5)]);
    assert_eq!((doubtful.trace.passed, doubtful.by_span[0]), (Some(true), Some(Verdict::Pass)));
    assert_eq!(doubtful.by_span[1], Some(Verdict::Fail(Cause::Own)));
    assert_eq!(failure(&doubtful).contributions, [("lasting", 1.5)]);

    // 1 - 0.5 * 0.2: two findings are as one of confidence 0.9.
    let both = verdicts_for(&[with_confidence(1, "m", 0.5), with_confidence(2, "m", 0.8)]);
    assert_eq!((both.trace.passed, both.by_span[0]), (Some(false), Some(Verdict::Fail(Cause::Children))));
    assert!((failure(&both).contributions[0].1 - 2.7).abs() < 1e-9);
    assert_eq!(both.trace.failed_spans, [1, 2]);

    let with_process = verdicts_for(&[
        with_confidence(1, "m", 0.5),
        with_confidence(2, "m", 0.8),
        with_confidence(2, "tool_abuse", 0.5),
    ]);
    let probabilities = [&clean, &doubtful, &both, &with_process].map(|v| failure(v).probability);
    assert!(probabilities.is_sorted(), "{probabilities:?}");

    // Nothing measured: no verdict and no probability.
    assert_eq!((verdicts_for(&[]).trace.passed, verdicts_for(&[]).trace.failure), (None, None));
    assert_eq!(propagate(&trace, &[measured(1, "m", 1.0)], &Policies::default()).trace.failure, None);
}

#[test]
fn changes_of_a_run_are_a_term_of_the_expected_outcome() {
    let run = |tools: &[&str]| {
        let called =
            tools.iter().fold(Script::new("Please help."), |s, t| s.calls("", &[(t, "{}")]).returns("ok"));
        OutcomeEvidence::new(&called.answers("Done.").build(), &[]).terms[Term::Changes as usize]
    };
    assert_eq!(run(&["get_order", "search_rooms", "frobnicate", "transfer_to_human"]), 0.0);
    assert!((run(&["cancel_order"]) - 1.0 / 3.0).abs() < 1e-9);
    assert!((run(&["cancel_order", "get_order", "book_room"]) - 0.5).abs() < 1e-9);
}

#[test]
fn root_policy_is_parsed_from_a_word_or_weights_and_checked() {
    let read = |text: &str| serde_json::from_str::<Policies>(text);
    let root = |text: &str| read(&format!("{{\"root\":{text}}}")).map(|policies| policies.root);
    let shipped = RootPolicy::ExpectedOutcome(OutcomeModel::default());
    assert_eq!(root("\"expected_outcome\"").unwrap(), shipped);
    assert_eq!(root("{\"expected_outcome\":{}}").unwrap(), shipped);
    assert_eq!(root("\"inherit\"").unwrap(), RootPolicy::Inherit);
    for bad in ["\"outcome\"", "{}", "{\"inherit\":{}}", "{\"expected_outcome\":{\"weight\":1}}", "2"] {
        assert!(root(bad).is_err(), "{bad}");
    }
    let wrong =
        read("{\"min_confidence\":2,\"root\":{\"expected_outcome\":{\"answer\":-1,\"limit\":3}}}").unwrap();
    let keys: Vec<String> = wrong.problems().iter().map(|problem| problem.key.clone()).collect();
    assert_eq!(keys, ["root.expected_outcome.answer", "root.expected_outcome.limit", "min_confidence"]);
    for policies in [Policies { root: shipped, ..Policies::default() }, Policies::default()] {
        assert_eq!(read(&serde_json::to_string(&policies).unwrap()).unwrap(), policies);
    }
}

#[test]
fn trace_whose_answer_is_not_recorded_passes_only_by_a_metric_about_the_result() {
    let mut trace = retried_call();
    let tool_worked = measured(2, "error_detection", 5.0);
    let passed =
        |trace: &AgentTrace, m: &[Measurement]| propagate(trace, m, &Policies::default()).trace.passed;
    assert_eq!(passed(&trace, std::slice::from_ref(&tool_worked)), Some(true));
    trace.agents[0].answer_content = Content::Truncated;
    let unknown = propagate(&trace, std::slice::from_ref(&tool_worked), &Policies::default()).trace;
    assert_eq!(
        (unknown.passed, unknown.unmeasured_reason),
        (None, Some(crate::measure::Unmeasured::Truncated))
    );
    assert_eq!(passed(&trace, &[tool_worked.clone(), measured(0, "tool_abuse", 5.0)]), None);
    assert_eq!(passed(&trace, &[tool_worked.clone(), measured(0, "completeness", 5.0)]), Some(true));
    assert_eq!(passed(&trace, &[tool_worked, measured(4, "error_detection", 1.0)]), Some(false));
}

mod judged;
mod repeats;
