//! Reads evaluations that other programs recorded.

use verdict_otlp::trace::Kind;

use super::event;
use super::flat_attribute::FlatAttribute;
use super::interpret::{FieldLookup, Interpreter};
use super::node::ContentNode;
use super::overrides::{EventRule, Field, LeafKind};
use super::scan::SpanScan;
use super::span_view::{RecordedEvaluation, SpanView};

impl Interpreter<'_> {
    /// Fills in the evaluations of a span.
    pub(super) fn fill_evaluations(&mut self, scan: &SpanScan<'_>, view: &mut SpanView) {
        if let Some(name) = self.text(scan, Field::EvaluationName) {
            let score = match self.value(scan, Field::EvaluationScore) {
                FieldLookup::Found((_, value)) => ContentNode::from_value(value).number(),
                _ => None,
            };
            let passed = match self.value(scan, Field::EvaluationPassed) {
                FieldLookup::Found((_, value)) => truth_value(&ContentNode::from_value(value)),
                _ => None,
            };
            // On a span of another kind, the error type does not concern the evaluation.
            let is_evaluator = view.kind == Kind::Evaluator;
            view.evaluations.push(RecordedEvaluation {
                name,
                score,
                label: self.text(scan, Field::EvaluationLabel),
                explanation: self.text(scan, Field::EvaluationExplanation),
                passed,
                error: is_evaluator.then(|| self.text(scan, Field::ErrorType)).flatten(),
                evaluator: self.text(scan, Field::EvaluationEvaluator),
                evaluator_version: self.text(scan, Field::EvaluationEvaluatorVersion),
                evaluator_type: self.text(scan, Field::EvaluationEvaluatorType),
                target: self.text(scan, Field::EvaluationTarget),
            });
        }
        let is_same_entry =
            |a: &FlatAttribute<'_>, b: &FlatAttribute<'_>| (a.order, a.leaf.index) == (b.order, b.leaf.index);
        for leaves in scan.leaves(Field::Evaluations).chunk_by(is_same_entry) {
            let leaf_node = |kind: LeafKind| {
                leaves.iter().find(|f| f.leaf.kind == kind).map(|f| ContentNode::from_value(f.value))
            };
            let mut text = |kind: LeafKind| leaf_node(kind).and_then(|n| self.texts.non_empty(&n.text()));
            let Some(name) = text(LeafKind::Name) else { continue };
            view.evaluations.push(RecordedEvaluation {
                name,
                score: leaf_node(LeafKind::Score).and_then(|n| n.number()),
                label: text(LeafKind::Label),
                explanation: text(LeafKind::Explanation),
                passed: None,
                error: None,
                evaluator: text(LeafKind::Evaluator),
                evaluator_version: None,
                evaluator_type: text(LeafKind::EvaluatorType),
                target: None,
            });
        }
        for event in scan.events.iter().filter(|e| e.rule == EventRule::Evaluation) {
            let node = event::node(event);
            let Some(name) = node.str_at("gen_ai.evaluation.name") else { continue };
            // The first names are those of the GenAI semantic conventions; Pydantic Evals and OpenInference use others.
            let mut first_text =
                |keys: &[&str]| self.texts.option(keys.iter().find_map(|key| node.str_at(key)));
            view.evaluations.push(RecordedEvaluation {
                passed: node.get("gen_ai.evaluation.passed").and_then(truth_value),
                error: first_text(&["error.type"]),
                evaluator: first_text(&[
                    "gen_ai.evaluation.evaluator.id",
                    "gen_ai.evaluation.evaluator.source",
                    "gen_ai.evaluation.evaluator_source",
                    "identifier",
                ]),
                evaluator_version: first_text(&[
                    "gen_ai.evaluation.evaluator.version",
                    "gen_ai.evaluation.evaluator_version",
                ]),
                evaluator_type: first_text(&["gen_ai.evaluation.evaluator.type", "annotator_kind"]),
                target: first_text(&["gen_ai.evaluation.target", "gen_ai.evaluation.target_span_id"]),
                name: self.texts.intern(name),
                score: node.get("gen_ai.evaluation.score.value").and_then(ContentNode::number),
                label: self.texts.option(node.str_at("gen_ai.evaluation.score.label")),
                explanation: self.texts.option(node.str_at("gen_ai.evaluation.explanation")),
            });
        }
        for event in scan.events.iter().filter(|e| e.rule == EventRule::Finding) {
            let node = event::node(event);
            let mut first_text =
                |keys: &[&str]| self.texts.option(keys.iter().find_map(|key| node.str_at(key)));
            let name = first_text(&[
                "gen_ai.guardrail.risk.category",
                "gen_ai.security.risk.category",
                "gen_ai.security.risk.finding",
                "gen_ai.guardrail.policy.rule.id",
                "gen_ai.security.policy.rule.id",
                "agent.threat.detection.rule_id",
            ]);
            let score_keys = ["gen_ai.guardrail.risk.score", "gen_ai.security.risk.score"];
            view.evaluations.push(RecordedEvaluation {
                // An enforced policy or a security finding is no verdict on the run.
                passed: None,
                error: first_text(&["error.type"]),
                evaluator: first_text(&[
                    "gen_ai.guardrail.component.name",
                    "gen_ai.security.guardrail.name",
                    "gen_ai.guardian.name",
                    "agent.threat.detection.ruleset",
                ]),
                evaluator_version: first_text(&[
                    "gen_ai.guardrail.policy.version",
                    "gen_ai.security.guardrail.version",
                ]),
                evaluator_type: None,
                target: first_text(&["gen_ai.guardrail.source", "gen_ai.security.target.type"]),
                label: first_text(&[
                    "gen_ai.guardrail.result.value",
                    "gen_ai.security.verdict.type",
                    "gen_ai.security.decision.type",
                    "agent.threat.detection.action",
                ]),
                explanation: first_text(&[
                    "gen_ai.guardrail.result.reason",
                    "gen_ai.security.verdict.reason",
                    "gen_ai.security.decision.reason",
                ]),
                name: name.unwrap_or_else(|| self.texts.intern("guardrail")),
                score: score_keys.iter().find_map(|key| node.get(key)).and_then(ContentNode::number),
            });
        }
    }
}

/// A boolean, or a text that contains one.
fn truth_value(node: &ContentNode<'_>) -> Option<bool> {
    match &*node.text() {
        "true" | "True" => Some(true),
        "false" | "False" => Some(false),
        _ => None,
    }
}
