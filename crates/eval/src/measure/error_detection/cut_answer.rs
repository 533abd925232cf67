//! An answer that a limit of length cut off.
//!
//! Principle: a final text that ends at a limit, in the middle of what it says, is no whole answer, and its reader
//! does not know what is missing. A step that goes on afterwards may be cut.
//!
//! In: a model call. Out: a finding if it is the last of its run and ended at the limit without a call. An
//! earlier call that is cut off may be continued. Where no limit is reported, two signs together show that an answer is
//! cut off. The items of a list have one form: where each before the last one names a thing and says something of it,
//! the last one only names a thing. And a name is copied whole: this one ends in the beginning of a word that results
//! have only with more letters than those of an inflected form.

use verdict_otlp::trace::Kind;

use crate::measure::defects::Defect;
use crate::measure::excerpt::{QUOTE_BYTES, tail};
use crate::measure::work_budget::BYTES_PER_STEP;
use crate::measure::{Context, Finding};
use crate::recognise::{FinishReason, SpanView};

/// Fewest letters that an answer lacks of its last word: forms of a word differ in fewer.
const MIN_LACKING: usize = 3;
/// Fewest whole items before the one that is cut off.
const MIN_ITEMS: usize = 2;

pub(super) fn find(context: &Context<'_>, view: &SpanView) -> Option<Finding> {
    let is_whole = !view.wrapper && !view.output_content.is_partial();
    if view.kind != Kind::Llm || !is_whole || view.requests().next().is_some() {
        return None;
    }
    let reason = view.finished_by(FinishReason::Length);
    let text = view.output_text();
    let word = || breaks_off(context, text.trim_end());
    if reason.is_none() && word().is_none() || !is_last(context) {
        return None;
    }
    let reason = reason.map_or("", |reason| reason.trim());
    let rationale = match reason {
        "" => "a whole answer was expected; it ends within a word of its list".to_owned(),
        reason => format!("a whole answer was expected; it was cut off at a limit of length ('{reason}')"),
    };
    let end = tail(text.trim_end(), QUOTE_BYTES);
    Some(Defect::CutAnswer.finding(rationale, if end.is_empty() { reason } else { end }))
}

/// The beginning of a word with which the last item of a list ends that has another form than those before it.
fn breaks_off<'t>(context: &Context<'_>, text: &'t str) -> Option<&'t str> {
    let mut lines = text.lines().map(str::trim_start).rev();
    let last = lines.next()?;
    let mark = last.chars().next().filter(|mark| matches!(mark, '-' | '*' | '•'))?;
    let word = last.rsplit(|c: char| !c.is_alphanumeric()).next().filter(|word| word.len() > 1)?;
    // The statement after the name of a thing is a figure, or begins with a colon or a dash.
    let says_more = |item: &str| item.contains(|c: char| c.is_ascii_digit() || matches!(c, ':' | '–' | '—'));
    let items: Vec<&str> = lines.filter(|line| line.starts_with(mark)).take(MIN_ITEMS).collect();
    let is_broken = items.len() == MIN_ITEMS && items.iter().all(|item| says_more(item)) && !says_more(last);
    if !is_broken || !word.chars().all(char::is_alphabetic) {
        return None;
    }
    let results = context.trace.calls.iter().filter_map(|call| call.result.as_deref());
    let mut is_begun = false;
    for result in results {
        if !context.memo.budget.spend(1 + result.len() / BYTES_PER_STEP) {
            return None;
        }
        for (at, _) in result.match_indices(word) {
            let before = result.get(..at).and_then(|text| text.chars().next_back());
            let rest = result.get(at + word.len()..).unwrap_or_default();
            let lacking = rest.chars().take_while(|c| c.is_alphabetic()).take(MIN_LACKING).count();
            match (before.is_some_and(char::is_alphanumeric), lacking) {
                (true, _) | (false, 1 | 2) => {}
                (false, 0) => return None,
                (false, _) => is_begun = true,
            }
        }
    }
    is_begun.then_some(word)
}

/// Whether no model call of the agent, or of a trace without agents, follows.
fn is_last(context: &Context<'_>) -> bool {
    let trace = context.trace;
    let owner = trace.owner.get(context.at).copied().flatten().and_then(|a| trace.agents.get(a));
    match owner {
        Some(agent) => agent.llms.last() == Some(&context.at),
        None => {
            let mut later =
                trace.views.iter().skip(context.at + 1).take_while(|_| context.memo.budget.spend(1));
            !trace.incomplete && !later.any(|v| v.kind == Kind::Llm && !v.wrapper)
        }
    }
}
