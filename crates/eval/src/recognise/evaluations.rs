//! Evaluations that somebody else wrote: read, never judged again (conventions, section 3).

use super::event;
use super::interpret::{Interpreter, Seen};
use super::node::Node;
use super::overrides::{EventRule, Field, Piece};
use super::read::Found;
use super::span_view::{Evaluation, SpanView};

impl Interpreter<'_> {
    pub(super) fn evaluations(&mut self, found: &Found<'_>, view: &mut SpanView) {
        if let Some(name) = self.text(found, Field::EvaluationName) {
            let score = match self.value(found, Field::EvaluationScore) {
                Seen::Read((_, value)) => Node::of(value).number(),
                _ => None,
            };
            let label = self.text(found, Field::EvaluationLabel);
            let explanation = self.text(found, Field::EvaluationExplanation);
            view.evaluations.push(Evaluation { name, score, label, explanation });
        }
        for leaves in
            found.leaves(Field::Evaluations).chunk_by(|a, b| (a.order, a.leaf.n) == (b.order, b.leaf.n))
        {
            let of = |piece: Piece| leaves.iter().find(|f| f.leaf.piece == piece).map(|f| Node::of(f.value));
            let mut text = |piece: Piece| of(piece).and_then(|n| self.texts.some(&n.text()));
            let Some(name) = text(Piece::Name) else { continue };
            let (label, explanation) = (text(Piece::Label), text(Piece::Explanation));
            let score = of(Piece::Score).and_then(|n| n.number());
            view.evaluations.push(Evaluation { name, score, label, explanation });
        }
        for event in found.events.iter().filter(|e| e.rule == EventRule::Evaluation) {
            let node = event::node(event);
            let Some(name) = node.str_at("gen_ai.evaluation.name") else { continue };
            view.evaluations.push(Evaluation {
                name: self.texts.intern(name),
                score: node.get("gen_ai.evaluation.score.value").and_then(Node::number),
                label: node.str_at("gen_ai.evaluation.score.label").and_then(|s| self.texts.some(s)),
                explanation: node.str_at("gen_ai.evaluation.explanation").and_then(|s| self.texts.some(s)),
            });
        }
    }
}
