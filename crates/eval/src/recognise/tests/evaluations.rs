//! Recorded evaluations in every convention.

use super::*;

#[test]
fn findings_of_guardrails_and_scanners_are_recorded_and_are_no_failure() {
    let spans = json!([{ "id": 1, "name": "chat m", "attributes": { "gen_ai.operation.name": "chat" } }]);
    let logs = json!([
        { "span": 1, "event": "gen_ai.guardrail.result", "attributes": {
            "gen_ai.guardrail.component.name": "content safety", "gen_ai.guardrail.risk.category": "violence",
            "gen_ai.guardrail.result.value": "blocked", "gen_ai.guardrail.result.reason": "category threshold",
            "gen_ai.guardrail.risk.score": 6 } },
        { "span": 1, "event": "gen_ai.security.finding", "attributes": {
            "gen_ai.security.verdict.type": "deny", "gen_ai.security.policy.rule.id": "pii-7" } },
        { "span": 1, "event": "agent.threat.detection", "attributes": {
            "agent.threat.detection.rule_id": "ATR-1", "agent.threat.detection.action": "block" } },
    ]);
    let trace = trace_with(&Overrides::default(), spans, logs);
    let view = &trace.views[0];
    let names_and_labels: Vec<(&str, Option<&str>)> =
        view.evaluations.iter().map(|e| (&*e.name, e.label.as_deref())).collect();
    assert_eq!(
        names_and_labels,
        [("violence", Some("blocked")), ("pii-7", Some("deny")), ("ATR-1", Some("block"))]
    );
    let first = &view.evaluations[0];
    assert_eq!((first.score, first.passed), (Some(6.0), None));
    assert_eq!(
        (first.evaluator.as_deref(), first.explanation.as_deref()),
        (Some("content safety"), Some("category threshold"))
    );
    assert!(view.errors.is_empty());
}

#[test]
fn recorded_evaluations_have_their_evaluators_and_errors() {
    let spans = json!([{ "id": 1, "name": "chat m", "attributes": { "gen_ai.operation.name": "chat" } }]);
    let logs = json!([
        { "span": 1, "event": "gen_ai.evaluation.result", "attributes": {
            "gen_ai.evaluation.name": "tone", "error.type": "timeout", "gen_ai.evaluation.evaluator.id": "tone-judge",
            "gen_ai.evaluation.evaluator.type": "llm", "gen_ai.evaluation.target": "planner" } },
        { "span": 1, "event": "gen_ai.evaluation.result", "attributes": {
            "gen_ai.evaluation.name": "thumb", "gen_ai.evaluation.score.value": 1, "identifier": "ann",
            "annotator_kind": "HUMAN" } },
    ]);
    let trace = trace_with(&Overrides::default(), spans, logs);
    let [failed, human] = &trace.views[0].evaluations[..] else { panic!("two evaluations") };
    assert_eq!((failed.error.as_deref(), failed.score), (Some("timeout"), None));
    assert_eq!(failed.evaluator.as_deref(), Some("tone-judge"));
    assert_eq!((failed.evaluator_type.as_deref(), failed.target.as_deref()), (Some("llm"), Some("planner")));
    assert_eq!((human.evaluator.as_deref(), human.evaluator_type.as_deref()), (Some("ann"), Some("HUMAN")));
    assert_eq!((human.error.as_deref(), human.score), (None, Some(1.0)));
    let first_evaluation = |name: &str, attributes: Value| {
        let spans = json!([{ "id": 1, "name": name, "attributes": attributes }]);
        trace_of(spans).views.remove(0).evaluations.remove(0)
    };
    let attributes = json!({
        "gen_ai.operation.name": "evaluation", "gen_ai.evaluation.name": "tone", "gen_ai.evaluation.passed": false,
        "gen_ai.evaluation.evaluator.source": "suite", "gen_ai.evaluation.evaluator.version": "3",
        "gen_ai.evaluation.evaluator.type": "llm", "gen_ai.evaluation.target": "planner", "error.type": "timeout",
    });
    let evaluation = first_evaluation("evaluation", attributes);
    assert_eq!(
        (evaluation.passed, evaluation.error.as_deref(), evaluation.score),
        (Some(false), Some("timeout"), None)
    );
    assert_eq!(
        (evaluation.evaluator.as_deref(), evaluation.evaluator_version.as_deref()),
        (Some("suite"), Some("3"))
    );
    assert_eq!(
        (evaluation.evaluator_type.as_deref(), evaluation.target.as_deref()),
        (Some("llm"), Some("planner"))
    );
    let annotated = json!({
        "openinference.span.kind": "LLM", "evaluations.0.evaluation.name": "thumb",
        "evaluations.0.evaluation.score": 1, "evaluations.0.evaluation.annotator_kind": "HUMAN",
        "evaluations.0.evaluation.identifier": "ann",
    });
    let annotated = first_evaluation("call", annotated);
    assert_eq!((annotated.evaluator.as_deref(), annotated.score), (Some("ann"), Some(1.0)));
    assert_eq!(annotated.evaluator_type.as_deref(), Some("HUMAN"));
}
