//! Reads evaluations that other programs recorded.

use super::event;
use super::interpret::{Interpreter, Lookup};
use super::node::Node;
use super::overrides::{EventRule, Field, LeafKind};
use super::scan::{FlatAttribute, SpanScan};
use super::span_view::{RecordedEvaluation, SpanView};

impl Interpreter<'_> {
    /// Fills in the evaluations of a span.
    pub(super) fn evaluations(&mut self, scan: &SpanScan<'_>, view: &mut SpanView) {
        if let Some(name) = self.text(scan, Field::EvaluationName) {
            let score = match self.value(scan, Field::EvaluationScore) {
                Lookup::Found((_, value)) => Node::of(value).number(),
                _ => None,
            };
            let label = self.text(scan, Field::EvaluationLabel);
            let explanation = self.text(scan, Field::EvaluationExplanation);
            view.evaluations.push(RecordedEvaluation::result(name, score, label, explanation));
        }
        let same_entry =
            |a: &FlatAttribute<'_>, b: &FlatAttribute<'_>| (a.order, a.leaf.index) == (b.order, b.leaf.index);
        for leaves in scan.leaves(Field::Evaluations).chunk_by(same_entry) {
            let of = |kind: LeafKind| leaves.iter().find(|f| f.leaf.kind == kind).map(|f| Node::of(f.value));
            let mut text = |kind: LeafKind| of(kind).and_then(|n| self.texts.some(&n.text()));
            let Some(name) = text(LeafKind::Name) else { continue };
            let (label, explanation) = (text(LeafKind::Label), text(LeafKind::Explanation));
            let score = of(LeafKind::Score).and_then(|n| n.number());
            view.evaluations.push(RecordedEvaluation::result(name, score, label, explanation));
        }
        for event in scan.events.iter().filter(|e| e.rule == EventRule::Evaluation) {
            let node = event::node(event);
            let Some(name) = node.str_at("gen_ai.evaluation.name") else { continue };
            // Pydantic evals and OpenInference wrote the second names.
            let mut any = |keys: &[&str]| self.texts.option(keys.iter().find_map(|key| node.str_at(key)));
            view.evaluations.push(RecordedEvaluation {
                error: any(&["error.type"]),
                evaluator: any(&[
                    "gen_ai.evaluation.evaluator.id",
                    "gen_ai.evaluation.evaluator.source",
                    "gen_ai.evaluation.evaluator_source",
                    "identifier",
                ]),
                evaluator_type: any(&["gen_ai.evaluation.evaluator.type", "annotator_kind"]),
                target: any(&["gen_ai.evaluation.target", "gen_ai.evaluation.target_span_id"]),
                name: self.texts.intern(name),
                score: node.get("gen_ai.evaluation.score.value").and_then(Node::number),
                label: self.texts.option(node.str_at("gen_ai.evaluation.score.label")),
                explanation: self.texts.option(node.str_at("gen_ai.evaluation.explanation")),
            });
        }
    }
}
