//! The outline of a part of a trace, within a number of bytes.
//!
//! In: a trace, the part that is evaluated, and the size of a request. Out: the request, and the spans in it. Every
//! text is redacted, cleaned and withheld as for judges. A text occurs once: model calls repeat the conversation before
//! them. If the request is too large, texts are cut in the middle, the longest first; then spans in the middle of the
//! run are left out.

use std::collections::HashSet;

use serde_json::json;
use verdict_otlp::trace::{Idx, Kind, SpanId};

use super::protocol::{
    AgentOutline, ContentOutline, ContentType, EvaluatedSubject, EvaluationRequest, RequestedScale,
    SpanOutline, SubjectType, VERSION,
};
use super::subject::SubjectPart;
use crate::measure::ask::content::{
    ContentPiece, PieceKind, TraceContent, input_pieces, output_pieces, render_tools,
};
use crate::measure::ask::stable_hash::text_hash;
use crate::measure::ask::transcript::{RunScope, in_scope, spans_in_scope};
use crate::measure::evaluated_spans::EvaluatedSpans;
use crate::measure::{Context, Prompt, Shows, Unmeasured};
use crate::recognise::{Agent, SpanView};

/// Estimated bytes of a span without its texts.
const SPAN_BYTES: usize = 420;
/// Estimated bytes of a text's JSON keys and its type, in addition to the text itself.
const TEXT_BYTES: usize = 40;
/// Smallest number of bytes to which a text is cut.
const MIN_TEXT_BYTES: usize = 80;
/// Number of texts of each span that are kept even if the run has very many texts.
const MIN_TEXTS: usize = 2;
/// Largest number of agents in a request.
const MAX_AGENTS: usize = 64;
/// Attempts to make a request small enough. Characters that JSON escapes take up to six bytes, so that an estimate
/// can be wrong by this factor; each attempt takes two thirds of the space.
const ATTEMPTS: usize = 8;

/// A request, and the spans in it.
pub(crate) struct Outline {
    pub request: EvaluationRequest,
    /// The spans of the request, in its order.
    pub spans: Vec<(Idx, SpanId)>,
    text: String,
}

/// A text of a span before it is cleaned.
struct RawText<'a> {
    r#type: ContentType,
    piece: ContentPiece<'a>,
}

/// A span with its texts before they are cleaned.
struct RawSpan<'a> {
    at: Idx,
    view: &'a SpanView,
    texts: Vec<RawText<'a>>,
    repeated: u64,
    omitted: u64,
}

impl Outline {
    /// # Errors
    /// No content of the part was recorded, or the request cannot be made small enough.
    pub(super) fn new(
        max_bytes: usize,
        context: &Context<'_>,
        part: SubjectPart,
    ) -> Result<Outline, Unmeasured> {
        let builder = OutlineBuilder { context, part };
        let spans = builder.spans();
        let mut target_bytes = max_bytes;
        for _ in 0..ATTEMPTS {
            let outline = builder.build(&spans, target_bytes)?;
            if outline.text.len() <= max_bytes {
                return Ok(outline);
            }
            target_bytes = target_bytes / 3 * 2;
        }
        Err(Unmeasured::Limit)
    }

    /// The question's text. A request about a run may show content of any span; a request about a step shows the span
    /// of the step, and the spans whose content it repeats.
    pub(super) fn prompt(&self, context: &Context<'_>, part: SubjectPart) -> Prompt {
        let prompt = Prompt::new("", self.text.as_str());
        match part {
            SubjectPart::Step(span_index) => {
                let (content, span_shows) = (context.content(), Shows::span(context.trace, span_index));
                let texts = context.trace.views.get(span_index).map(texts).unwrap_or_default();
                prompt.showing(
                    texts
                        .iter()
                        .fold(span_shows, |shows, text| shows.union(&content.shows(span_index, &text.piece))),
                )
            }
            SubjectPart::Run(_) => prompt,
        }
    }
}

struct OutlineBuilder<'a> {
    context: &'a Context<'a>,
    part: SubjectPart,
}

impl<'a> OutlineBuilder<'a> {
    /// The spans of the part, without wrapper spans and without spans of kind `unknown`.
    fn spans(&self) -> Vec<Idx> {
        let Context { trace, memo, .. } = self.context;
        let scope = match self.part {
            SubjectPart::Step(span_index) => return vec![span_index],
            SubjectPart::Run(scope) => scope,
        };
        let evaluated = EvaluatedSpans::cached(trace, memo);
        let shows = |span_index: &Idx| {
            let view = trace.views.get(*span_index);
            evaluated.get(*span_index).copied().unwrap_or(false)
                && view.is_some_and(|view| !view.wrapper && view.kind != Kind::Unknown)
        };
        spans_in_scope(trace, memo, scope).into_iter().filter(shows).collect()
    }

    /// The outline of the spans, of about `target_bytes` bytes.
    fn build(&self, all: &[Idx], target_bytes: usize) -> Result<Outline, Unmeasured> {
        // Metadata take at most half of the request.
        let max_spans = (target_bytes / 2 / SPAN_BYTES).max(1);
        let shown = first_and_last(all.to_vec(), max_spans);
        let raw = self.raw_spans(&shown, target_bytes / 2 / (MIN_TEXT_BYTES + TEXT_BYTES));
        let agents = self.agents();
        let lengths: Vec<usize> = raw
            .iter()
            .flat_map(|span| span.texts.iter().map(|text| text.piece.text.len()))
            .chain(agents.iter().flat_map(|agent| [&agent.task, &agent.answer]).flatten().map(|t| t.len()))
            .collect();
        if raw.iter().all(|span| span.texts.is_empty()) {
            return Err(Unmeasured::NoContent);
        }
        let text_bytes = target_bytes.saturating_sub(SPAN_BYTES * (shown.len() + agents.len() + 2));
        let max_text_bytes = text_limit(lengths, text_bytes);
        // The work of building the request is proportional to its size.
        self.context.memo.budget.spend(target_bytes / 64 + all.len());
        let trace = self.context.trace;
        let (subject, span_index) = match self.part {
            SubjectPart::Step(span_index) => (SubjectType::Span, span_index),
            SubjectPart::Run(RunScope::Trace) => (SubjectType::Trace, self.context.at),
            SubjectPart::Run(_) => (SubjectType::Agent, self.context.at),
        };
        let shown_set: HashSet<Idx> = shown.iter().copied().collect();
        let request = EvaluationRequest {
            version: VERSION,
            model: None,
            metric: self.context.row.name.to_owned(),
            scale: RequestedScale::new(self.context.row.scale),
            subject: EvaluatedSubject { r#type: subject, span_id: self.id(span_index) },
            trace_id: trace.tree.id.to_string(),
            incomplete: trace.incomplete,
            agents: agents.into_iter().map(|agent| self.agent(agent, max_text_bytes)).collect(),
            spans: raw.into_iter().map(|span| self.span(span, &shown_set, max_text_bytes)).collect(),
            omitted_spans: (all.len() - shown.len()) as u64,
            code: None,
            correction: None,
        };
        let text = json!(request).to_string();
        let spans = shown
            .into_iter()
            .filter_map(|span_index| Some((span_index, trace.tree.spans.get(span_index)?.id)))
            .collect();
        Ok(Outline { request, spans, text })
    }

    /// The spans with their texts, each text at its first occurrence; of more than `max_texts` texts those in the
    /// middle of each span are left out.
    fn raw_spans(&self, shown: &[Idx], max_texts: usize) -> Vec<RawSpan<'a>> {
        let mut shown_hashes: HashSet<u64> = HashSet::new();
        let mut raw = Vec::new();
        for &span_index in shown {
            let Some(view) = self.context.trace.views.get(span_index) else { continue };
            let mut texts = texts(view);
            let text_count = texts.len();
            // Content that a span produced is shown even if another span produced the same.
            texts.retain(|text| shown_hashes.insert(text_hash(&text.piece.text)) || text.r#type.is_new());
            let repeated = (text_count - texts.len()) as u64;
            raw.push(RawSpan { at: span_index, view, texts, repeated, omitted: 0 });
        }
        let total: usize = raw.iter().map(|span| span.texts.len()).sum();
        if total > max_texts {
            let max_texts_of_span = (max_texts / raw.len().max(1)).max(MIN_TEXTS);
            for span in &mut raw {
                let texts = std::mem::take(&mut span.texts);
                span.omitted = texts.len().saturating_sub(max_texts_of_span) as u64;
                span.texts = first_and_last(texts, max_texts_of_span);
            }
        }
        raw
    }

    /// The agents of a run.
    fn agents(&self) -> Vec<&'a Agent> {
        let trace = self.context.trace;
        let SubjectPart::Run(scope) = self.part else { return Vec::new() };
        trace.agents.iter().filter(|agent| in_scope(trace, scope, agent.at)).take(MAX_AGENTS).collect()
    }

    /// The outline of an agent.
    fn agent(&self, agent: &Agent, max_text_bytes: usize) -> AgentOutline {
        let content @ TraceContent { trace, asker, .. } = self.context.content();
        let parent = agent.parent.and_then(|i| trace.agents.get(i));
        let task = |text: &str| content.text(agent.task_at.unwrap_or(agent.at), text, max_text_bytes);
        let answer = |text: &str| content.answer(agent, text, max_text_bytes);
        AgentOutline {
            span_id: self.id(agent.at),
            name: asker.agent_name(agent),
            parent_span_id: parent.map(|parent| self.id(parent.at)),
            task: agent.task.as_deref().map(task),
            answer: agent.answer.as_deref().map(answer),
        }
    }

    /// The outline of a span.
    fn span(&self, raw: RawSpan<'_>, shown_set: &HashSet<Idx>, max_text_bytes: usize) -> SpanOutline {
        let content @ TraceContent { trace, asker, .. } = self.context.content();
        let RawSpan { at: span_index, view, texts, repeated, omitted } = raw;
        let name = |text: &str| Some(asker.name(text)).filter(|name| !name.is_empty());
        let called_tool = view.call.as_ref().map(|call| &*call.name);
        let agent = trace.owner.get(span_index).copied().flatten().and_then(|i| trace.agents.get(i));
        let texts = texts.into_iter().map(|text| {
            let shown = content.piece(span_index, &text.piece, max_text_bytes);
            ContentOutline { r#type: text.r#type, text: shown }
        });
        SpanOutline {
            span_id: self.id(span_index),
            parent_span_id: trace
                .tree
                .ancestors(span_index)
                .skip(1)
                .find(|ancestor| shown_set.contains(ancestor))
                .map(|ancestor| self.id(ancestor)),
            kind: view.kind,
            name: called_tool.or(view.name.as_deref()).and_then(name),
            service: view.service.as_deref().and_then(name),
            agent_span_id: agent.map(|agent| self.id(agent.at)),
            model: view.model.as_deref().and_then(name),
            start_time_unix_nano: trace
                .tree
                .spans
                .get(span_index)
                .map(|span| span.start)
                .unwrap_or_default()
                .to_string(),
            duration_ms: view.duration_ms,
            tokens: view.tokens.total,
            failed: !view.errors.is_empty(),
            input: view.input_content.as_str().to_owned(),
            output: view.output_content.as_str().to_owned(),
            content: texts.collect(),
            repeated,
            omitted_texts: omitted,
        }
    }

    fn id(&self, span_index: Idx) -> String {
        self.context.trace.tree.spans.get(span_index).map(|span| span.id).unwrap_or_default().to_string()
    }
}

impl ContentType {
    fn from_kind(kind: PieceKind) -> ContentType {
        match kind {
            PieceKind::System => ContentType::System,
            PieceKind::User => ContentType::User,
            PieceKind::Assistant => ContentType::Assistant,
            PieceKind::ToolMessage => ContentType::ToolMessage,
            PieceKind::Output => ContentType::Output,
            PieceKind::Thinking => ContentType::Thinking,
            PieceKind::Call => ContentType::ToolCall,
            PieceKind::Arguments => ContentType::Arguments,
            PieceKind::Result => ContentType::Result,
            PieceKind::Error => ContentType::Error,
        }
    }

    /// Whether the content was produced by the span, or is the input of this call alone.
    fn is_new(self) -> bool {
        use ContentType::{Assistant, System, ToolMessage, Tools, User};
        !matches!(self, Tools | System | User | Assistant | ToolMessage)
    }

    /// Whether the content instructs the agent, so that a finding about an omission may quote it.
    pub(super) fn is_binding(self) -> bool {
        matches!(self, ContentType::Tools | ContentType::System | ContentType::User)
    }
}

/// The texts of a span, apart from blank ones.
fn texts(view: &SpanView) -> Vec<RawText<'_>> {
    let tools = || ContentPiece::new(PieceKind::System, render_tools(&view.tools));
    let offered = (!view.tools.is_empty()).then(|| RawText { r#type: ContentType::Tools, piece: tools() });
    let pieces = input_pieces(view).into_iter().chain(output_pieces(view));
    let pieces = pieces.map(|piece| RawText { r#type: ContentType::from_kind(piece.kind), piece });
    offered.into_iter().chain(pieces).filter(|text| !text.piece.text.trim().is_empty()).collect()
}

/// At most `max_items` entries: as many of the beginning as of the end.
fn first_and_last<T>(mut all: Vec<T>, max_items: usize) -> Vec<T> {
    if all.len() > max_items {
        let last = all.split_off(all.len() - max_items / 2);
        all.truncate(max_items.div_ceil(2));
        all.extend(last);
    }
    all
}

/// The length to which texts of these lengths are cut, so that together they take about `max_bytes` bytes.
fn text_limit(mut lengths: Vec<usize>, max_bytes: usize) -> usize {
    lengths.sort_unstable();
    let mut remaining_bytes = max_bytes;
    for (i, &length) in lengths.iter().enumerate() {
        let share = (remaining_bytes / (lengths.len() - i)).saturating_sub(TEXT_BYTES);
        if length > share {
            return share.max(MIN_TEXT_BYTES);
        }
        remaining_bytes = remaining_bytes.saturating_sub(length + TEXT_BYTES);
    }
    usize::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_texts_are_cut_first() {
        assert_eq!(text_limit(vec![10, 20, 30], 1_000), usize::MAX);
        let max_text_bytes = text_limit(vec![100, 5_000, 9_000, 100], 5_000);
        assert!((2_000..2_500).contains(&max_text_bytes), "{max_text_bytes}");
        assert_eq!(text_limit(vec![500; 100], 100), MIN_TEXT_BYTES);
        assert_eq!(text_limit(Vec::new(), 0), usize::MAX);
    }

    #[test]
    fn both_ends_of_a_run_are_kept() {
        assert_eq!(first_and_last(vec![0, 1, 2, 3, 4], 3), [0, 1, 4]);
        assert_eq!(first_and_last(vec![0, 1, 2, 3, 4], 1), [0]);
        assert_eq!(first_and_last(vec![0, 1], 3), [0, 1]);
    }
}
