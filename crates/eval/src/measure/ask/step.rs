//! A metric of one model or tool call, with the context of the call.
//!
//! In: the span, its surroundings, and the findings of the rules. Out: one question; from its answer, one
//! measurement.

use verdict_otlp::trace::{Idx, Kind};

use super::asker::Asker;
use super::content::{ContentPiece, PieceKind, input_pieces, output_pieces, render_tools, step_title};
use super::form;
use super::opinion::{ShownContent, read_opinion};
use super::parts::{HEADING_BYTES, block_bytes};
use super::prompt_page::{PromptBlock, PromptPage};
use super::surroundings::{Surroundings, definition_block, own_definition};
use super::verdict::{ParsedOpinion, combine_replies};
use crate::measure::table::{About, MetricSpec, Requires};
use crate::measure::{
    Answer, Context, Measurement, MetricProgress, Need, Opinion, Prompt, Question, Shows, Unmeasured, Value,
};
use crate::recognise::{Content, SpanView};

/// Maximum number of findings shown of one measurement by rules.
const MAX_EVIDENCE: usize = 12;

/// The next step of a metric of one model or tool call, which judges answer by a rubric.
pub(crate) fn step(context: &Context<'_>, answers: &[Answer]) -> MetricProgress {
    let Some(view) = context.trace.views.get(context.at) else { return MetricProgress::Done(Vec::new()) };
    let asker = &context.settings.asker;
    // The input and output parts are rendered, compared with those of surrounding spans, and cleaned.
    let parts = view.input.iter().chain(&view.output).map(|message| message.parts.len());
    if !context.memo.budget.spend(parts.sum()) {
        return MetricProgress::Done(vec![context.unmeasured(Unmeasured::Limit)]);
    }
    let system = asker.system_prompt(context.row, context.trace, context.at);
    let page = page(context, view, asker.max_bytes(&system));
    match answers.first() {
        None => MetricProgress::Ask(vec![page_question(
            context.row,
            asker,
            "span",
            page.prompt_of_blocks(system),
            &page,
        )]),
        Some(answer) => MetricProgress::Done(vec![measured(context, &page, answer)]),
    }
}

/// Whether the metric applies to the span of the context; an error if not, with the reason if it is unmeasured.
pub(crate) fn applicability(context: &Context<'_>) -> Result<(), Option<Unmeasured>> {
    let view =
        context.trace.views.get(context.at).filter(|view| applies_to_kind(context.row.about, view.kind));
    match is_readable(context, view.ok_or(None)?) {
        true => Ok(()),
        false => Err(Some(Unmeasured::NoContent)),
    }
}

/// The question about a page, whose findings may be on the spans of its blocks.
pub(super) fn page_question(
    row: &MetricSpec,
    asker: &Asker,
    key: &str,
    prompt: Prompt,
    page: &PromptPage,
) -> Question {
    let ids: Vec<_> = page.spans().into_iter().map(|(_, id)| id).collect();
    let form = form::with_findings(row, &ids, asker.ask.categories);
    Question { key: key.to_owned(), prompt, form, judges: Vec::new() }
}

fn measured(context: &Context<'_>, page: &PromptPage, answer: &Answer) -> Measurement {
    match &answer.opinions {
        Err(reason) => context.unmeasured(*reason),
        Ok(opinions) => combine_replies(context, read_replies(context.row, page, opinions)),
    }
}

/// The replies of judges that were shown `page`.
pub(super) fn read_replies(row: &MetricSpec, page: &PromptPage, opinions: &[Opinion]) -> Vec<ParsedOpinion> {
    let shown = ShownContent::from_page(page);
    let read = |opinion: &Opinion| ParsedOpinion {
        judge: opinion.judge.clone(),
        opinion: read_opinion(row, &shown, opinion),
    };
    opinions.iter().map(read).collect()
}

/// Whether a metric about single steps applies to spans of this kind.
fn applies_to_kind(about: About, kind: Kind) -> bool {
    match about {
        About::Model => kind == Kind::Llm,
        About::Tool => kind == Kind::Tool,
        _ => matches!(kind, Kind::Llm | Kind::Tool),
    }
}

/// Whether the content that the metric needs was recorded and is not withheld.
fn is_readable(context: &Context<'_>, view: &SpanView) -> bool {
    let output = view.output_content == Content::Present;
    let input = view.input_content == Content::Present;
    let is_recorded = match context.row.requires {
        Requires::OutputOrError => output || !view.errors.is_empty(),
        Requires::Output => output,
        Requires::InputAndOutput => input && output,
        Requires::Nothing | Requires::Answer => true,
    };
    is_recorded && !context.content().withholds(context.at)
}

/// The prompt page: the context of the span first, then the span itself, its output last.
fn page(context: &Context<'_>, view: &SpanView, max_bytes: usize) -> PromptPage {
    let asker = &context.settings.asker;
    // A metric that needs the span alone is asked about before the surrounding spans have arrived.
    let surroundings = (context.row.need >= Need::Agent).then(|| Surroundings::new(context, view));
    let mut blocks = Vec::new();
    if let Some(surroundings) = &surroundings {
        blocks.extend(surroundings.task(max_bytes / 12));
        blocks.extend(surroundings.parent_request(max_bytes / 12));
        blocks.extend(surroundings.earlier_steps(max_bytes / 6));
        blocks.extend(surroundings.request(max_bytes / 8));
    }
    blocks.extend(tools_block(context, view, surroundings.as_ref(), max_bytes / 8));
    // Rules may quote withheld content.
    let evidence = rule_findings(context, max_bytes / 12).filter(|_| !context.content().withholds_any());
    let output_blocks = output_blocks(context, view, max_bytes / 4);
    let later = surroundings
        .filter(|_| context.row.shows_later)
        .map(|surroundings| surroundings.later_steps(max_bytes / 12))
        .unwrap_or_default();
    let used_bytes: usize =
        blocks.iter().chain(&output_blocks).chain(&later).chain(&evidence).map(block_bytes).sum();
    let heading = step_title(asker, context.trace, context.at);
    let heading =
        PromptBlock::without_span(format!("the span to be judged: {heading}"), "its content follows", false);
    blocks.push(heading.showing(Shows::span(context.trace, context.at)));
    blocks.extend(conversation(context, view, max_bytes.saturating_sub(used_bytes)));
    if output_blocks.is_empty() {
        blocks.push(own_block(context, &ContentPiece::new(PieceKind::Output, ""), 0));
    }
    blocks.extend(output_blocks);
    blocks.extend(later);
    blocks.extend(evidence);
    let id = context.trace.tree.spans.get(context.at).map(|span| span.id).unwrap_or_default();
    PromptPage {
        intro: format!("Judge {} of span {id}. What stands beside it is context.", context.row.name),
        blocks,
        question: format!(
            "Now judge {} of span {id} alone, by the rubric. Other spans may explain it; their own \
             mistakes are not its.",
            context.row.name
        ),
    }
}

/// The tools that a model was offered, or the definition of the called tool.
fn tools_block(
    context: &Context<'_>,
    view: &SpanView,
    surroundings: Option<&Surroundings<'_, '_>>,
    max_bytes: usize,
) -> Option<PromptBlock> {
    if view.kind != Kind::Llm {
        let span_definition =
            || own_definition(view).map(|tool| definition_block(context, context.at, tool, max_bytes));
        return surroundings.map_or_else(span_definition, |surroundings| surroundings.definition(max_bytes));
    }
    let text = || context.content().text(context.at, &render_tools(&view.tools), max_bytes);
    let shows = || Shows::span(context.trace, context.at);
    (!view.tools.is_empty())
        .then(|| PromptBlock::without_span("tools offered", text(), true).showing(shows()))
}

/// A piece of the judged span, at most `max_bytes` bytes of it.
fn own_block(context: &Context<'_>, piece: &ContentPiece<'_>, max_bytes: usize) -> PromptBlock {
    let label = piece.kind.as_str().to_owned();
    context.content().block(context.at, piece, label, max_bytes)
}

/// The output, each piece shortened to its share of the bytes; of very many pieces only the first are shown.
fn output_blocks(context: &Context<'_>, view: &SpanView, max_bytes: usize) -> Vec<PromptBlock> {
    /// Minimum bytes shown of a piece.
    const MIN_BYTES: usize = 60;
    let pieces = output_pieces(view);
    let max_pieces = (max_bytes / (MIN_BYTES + HEADING_BYTES)).max(1);
    let share =
        (max_bytes / pieces.len().min(max_pieces).max(1)).saturating_sub(HEADING_BYTES).max(MIN_BYTES);
    let shown = pieces.iter().take(max_pieces);
    let mut out: Vec<PromptBlock> = shown.map(|piece| own_block(context, piece, share)).collect();
    if pieces.len() > max_pieces {
        let label = format!("{} more pieces of output", pieces.len() - max_pieces);
        out.push(PromptBlock::without_span(label, "(left out)", false).showing(Shows::nothing()));
    }
    out
}

/// The input of the span: instructions and task first, then the latest messages that fit.
fn conversation(context: &Context<'_>, view: &SpanView, max_bytes: usize) -> Vec<PromptBlock> {
    let mut pieces = input_pieces(view);
    pieces.retain(|piece| !piece.text.trim().is_empty());
    let first_user = pieces.iter().position(|piece| piece.kind == PieceKind::User);
    let mut shares: Vec<usize> = vec![0; pieces.len()];
    let mut remaining = max_bytes;
    let mut allocate = |i: usize, limit: usize| {
        let length = pieces.get(i).map_or(0, |piece| piece.text.len());
        let share = length.min(limit).min(remaining.saturating_sub(HEADING_BYTES));
        remaining = remaining.saturating_sub(share + HEADING_BYTES);
        if let Some(slot) = shares.get_mut(i) {
            *slot = share;
        }
    };
    let system_pieces: Vec<usize> =
        (0..pieces.len()).filter(|&i| pieces[i].kind == PieceKind::System).collect();
    system_pieces.iter().for_each(|&i| allocate(i, max_bytes / 3 / system_pieces.len()));
    first_user.into_iter().for_each(|i| allocate(i, max_bytes / 4));
    let is_other = |i: &usize| pieces[*i].kind != PieceKind::System && Some(*i) != first_user;
    let others = (0..pieces.len()).rev().filter(is_other);
    others.for_each(|i| allocate(i, max_bytes / 2));
    let mut out = Vec::new();
    let mut skipped = 0;
    for (piece, share) in pieces.iter().zip(shares) {
        if share == 0 {
            skipped += 1;
            continue;
        }
        if skipped > 0 {
            let label = format!("{skipped} earlier messages left out");
            out.push(PromptBlock::without_span(label, "(left out)", false).showing(Shows::nothing()));
            skipped = 0;
        }
        out.push(own_block(context, piece, share));
    }
    out
}

/// The findings of the rules on this span.
pub(super) fn rule_findings(context: &Context<'_>, max_bytes: usize) -> Option<PromptBlock> {
    let mut text = String::new();
    for m in measurements_at(context.rule_measurements, context.at) {
        let Ok(measured) = &m.outcome else { continue };
        if measured.findings.is_empty() {
            continue;
        }
        let value = match measured.value {
            Value::Score(score) => format!("score {score}"),
            Value::Label(label) => label.to_owned(),
            Value::Number(number) => number.to_string(),
        };
        for finding in measured.findings.iter().take(MAX_EVIDENCE) {
            let certainty_suffix = if finding.fact { ", certain" } else { "" };
            text.push_str(&format!("{} ({value}{certainty_suffix}): {}", m.metric, finding.rationale));
            if !finding.quote.is_empty() {
                text.push_str(&format!(" Seen: {}", finding.quote));
            }
            text.push('\n');
        }
    }
    let shown = context.content().text(context.at, &text, max_bytes);
    let label = "what built-in rules found in it; unless certain they may be wrong";
    (!text.is_empty()).then(|| PromptBlock::without_span(label, shown, false))
}

/// The measurements by rules on a span; `rules` is sorted by span.
pub(crate) fn measurements_at(rules: &[Measurement], span_index: Idx) -> &[Measurement] {
    let first = rules.partition_point(|m| m.at < span_index);
    let rest = rules.get(first..).unwrap_or_default();
    rest.get(..rest.partition_point(|m| m.at == span_index)).unwrap_or_default()
}
