//! The spans to whose content a text belongs.
//!
//! In: a trace and a text of a span. Out: the spans to whose content it belongs, as far as they are known. Prompts
//! repeat outputs of tools and models, and a tool may return the answer of an agent of another service, so that the
//! service of a span is not the service of all its content. A text whose origin is not known counts as content of every
//! span.

use foldhash::HashMap;
use verdict_config::matches;
use verdict_otlp::trace::{Idx, Kind};

use super::stable_hash::text_hash;
use crate::measure::Shows;
use crate::measure::content_piece::{ContentPiece, MEDIA, NO_DETAIL, PieceKind, output_pieces};
use crate::measure::work_budget::{BYTES_PER_STEP, WorkBudget};
use crate::recognise::AgentTrace;

/// The origins of the texts of a trace, computed once.
pub(crate) struct Origins {
    /// By hash of a text: the spans that produced it, one of each service. Empty if the trace has one service.
    produced: HashMap<u64, Shows>,
    /// By span: whether it is not a model call and contains spans of other services, so that it may return their output
    /// in other words.
    contains_other_services: Vec<bool>,
    /// By span: whether its content is withheld.
    withheld: Vec<bool>,
    pub(super) withholds_any: bool,
}

impl Origins {
    pub(super) fn new(withhold: &[String], trace: &AgentTrace, budget: &WorkBudget) -> Origins {
        let withheld = withheld(withhold, trace);
        let service = |span_index: Idx| trace.views.get(span_index).and_then(|view| view.service.as_ref());
        let is_mixed =
            (1..trace.views.len()).any(|span_index| service(span_index) != service(span_index - 1));
        let mut contains_other_services = mark_ancestors(trace, |span_index| {
            trace.tree.parent(span_index).is_some_and(|parent| service(parent) != service(span_index))
        });
        let mut produced: HashMap<u64, Shows> = HashMap::default();
        let mut add = |text: &str, span_index: Idx| {
            // These placeholders do not identify a span.
            if !text.trim().is_empty() && !matches!(text, NO_DETAIL | MEDIA) {
                budget.spend(1 + text.len() / BYTES_PER_STEP);
                produced.entry(text_hash(text)).or_insert_with(Shows::nothing).add(trace, span_index);
            }
        };
        for ((span_index, view), contains_others) in
            trace.views.iter().enumerate().zip(&mut contains_other_services)
        {
            *contains_others &= view.kind != Kind::Llm;
            if is_mixed && !*contains_others {
                output_pieces(view).iter().for_each(|piece| add(&piece.text, span_index));
            }
        }
        // The arguments on the span of a tool were written by the model that requested the call.
        for call in trace.calls.iter().filter(|_| is_mixed) {
            let arguments =
                call.tool.and_then(|tool| trace.views.get(tool)?.call.as_ref()?.arguments.as_ref());
            arguments.zip(call.llm).into_iter().for_each(|(arguments, llm)| add(arguments, llm));
        }
        let withholds_any = withheld.contains(&true);
        Origins { produced, contains_other_services, withheld, withholds_any }
    }

    /// The spans to whose content a piece of the span `span_index` belongs.
    pub(super) fn spans_of_piece(&self, span_index: Idx, piece: &ContentPiece<'_>) -> Shows {
        let own_span = Shows::only(span_index);
        let is_output = piece.kind.is_new() && piece.kind != PieceKind::Arguments;
        let may_be_of_other_spans =
            piece.is_repeated || is_output && self.contains_other_services.get(span_index) == Some(&true);
        match self.produced.get(&text_hash(&piece.text)) {
            Some(producers) => own_span.union(producers),
            None if may_be_of_other_spans => Shows::default(),
            None => own_span,
        }
    }

    /// Whether content of any of these spans is withheld.
    pub(super) fn withholds(&self, shows: &Shows) -> bool {
        self.withholds_any && shows.may_show(|span_index| self.withheld.get(span_index) == Some(&true))
    }
}

/// By span: whether its content is withheld. In a trace with a withheld service, this includes spans without a service,
/// whose content may be of any service, and plan spans above a withheld span, whose text may be copied from it.
pub(super) fn withheld(withhold: &[String], trace: &AgentTrace) -> Vec<bool> {
    let is_listed = |service: &str| withhold.iter().any(|pattern| matches(pattern, service));
    let services = trace.views.iter().map(|view| view.service.as_deref());
    let mut out: Vec<bool> = services.clone().map(|service| is_listed(service.unwrap_or_default())).collect();
    if out.contains(&true) {
        out.iter_mut().zip(services).for_each(|(is_withheld, service)| *is_withheld |= service.is_none());
        let withheld_beneath = mark_ancestors(trace, |span_index| out.get(span_index) == Some(&true));
        let plans = trace.views.iter().map(|view| view.kind == Kind::Plan).zip(withheld_beneath);
        out.iter_mut()
            .zip(plans)
            .for_each(|(is_withheld, (is_plan, has_withheld))| *is_withheld |= is_plan && has_withheld);
    }
    out
}

/// By span: whether a descendant meets `is_match`.
fn mark_ancestors(trace: &AgentTrace, is_match: impl Fn(Idx) -> bool) -> Vec<bool> {
    let mut out = vec![false; trace.views.len()];
    for span_index in (0..trace.views.len()).filter(|&span_index| is_match(span_index)) {
        let ancestors = trace.tree.ancestors(span_index).skip(1);
        // The ancestors of a marked span are marked already.
        ancestors
            .take_while(|&ancestor| {
                out.get_mut(ancestor).is_some_and(|is_marked| !std::mem::replace(is_marked, true))
            })
            .count();
    }
    out
}
