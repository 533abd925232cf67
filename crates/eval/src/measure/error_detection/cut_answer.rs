//! Answers that are cut off at a length limit.
//!
//! Principle: a final text that ends at a limit is incomplete, and its reader does not know what is missing. A text
//! that a later model call may continue is not reported.
//!
//! In: a model call. Out: a finding if the call is the last one of its run and ended at the limit without a tool call.
//! Where no limit is reported, two signs together show that an answer is cut off: each item of its list names a thing
//! and describes it, except that the last item only has a name; and this name ends within a word of a result, of
//! which more letters are missing than an inflection has. Or the lines before the last one end with a mark, and the
//! last one repeats words of a result up to a short word, after which each such sentence of the result goes on. A text
//! is also cut off if it ends within the row of a table, within code, at a word that ends no sentence ("until the")
//! after complete sentences, or without the mark that its other sentences have ([`unmarked_end`]).

use verdict_otlp::trace::Kind;

use super::unmarked_end;
use crate::measure::defects::Defect;
use crate::measure::excerpt::{QUOTE_BYTES, tail};
use crate::measure::language::{GrammarGroup, Language, WordClass, WordClasses, classes};
use crate::measure::work_budget::BYTES_PER_STEP;
use crate::measure::{Context, Finding};
use crate::recognise::{FinishReason, SpanView};

/// Minimum missing letters of the last word: inflected forms of a word differ in fewer.
const MIN_MISSING_LETTERS: usize = 3;
/// Minimum complete items before the one that is cut off.
const MIN_ITEMS: usize = 2;
/// Words at the end of an answer that a result has: fewer are a phrase of the language.
const REPEATED_WORDS: usize = 5;
/// Maximum letters of a last word that hardly ends a sentence, such as an article or a preposition.
const MAX_SHORT_WORD: usize = 3;

/// The finding about an output that is cut off; `None` if it is complete or the run continues.
pub(super) fn find(context: &Context<'_>, view: &SpanView) -> Option<Finding> {
    let has_whole_output = !view.wrapper && !view.output_content.is_partial();
    if view.kind != Kind::Llm || !has_whole_output || view.requests().next().is_some() {
        return None;
    }
    let reason = view.finished_by(FinishReason::Length);
    let text = view.output_text();
    let text = text.trim_end();
    let is_cut = || {
        is_cut_in_row(text)
            || is_cut_in_code(text)
            || ends_within_sentence(context, text)
            || unmarked_end::ends_within_sentence(text, context.memo)
            || cut_word(context, text).is_some()
            || is_cut_in_sentence(context, text)
    };
    if reason.is_none() && !is_cut() || !is_last_model_call(context) {
        return None;
    }
    let reason = reason.map_or("", |reason| reason.trim());
    let rationale = match reason {
        "" => "a whole answer was expected; it ends within a word, a sentence, a row or code".to_owned(),
        reason => format!("a whole answer was expected; it was cut off at a limit of length ('{reason}')"),
    };
    let end = tail(text, QUOTE_BYTES);
    Some(Defect::CutAnswer.finding(rationale, if end.is_empty() { reason } else { end }))
}

/// Whether the last line is a row of a table without its last cells, where the rows before it are closed.
fn is_cut_in_row(text: &str) -> bool {
    let mut lines = text.lines().rev().map(str::trim);
    let is_open = |line: &str| line.starts_with('|') && !line.ends_with('|');
    let (Some(last), Some(before)) = (lines.next(), lines.next()) else { return false };
    let cells = |line: &str| line.matches('|').count();
    is_open(last) && before.starts_with('|') && before.ends_with('|') && cells(last) < cells(before)
}

/// Whether the text ends within a block of code.
fn is_cut_in_code(text: &str) -> bool {
    text.lines().filter(|line| line.trim_start().starts_with("```")).count() % 2 == 1
}

/// Signs after which a sentence goes on.
const OPEN_SIGNS: [char; 5] = [',', ';', '(', '，', '、'];
/// Maximum words of a line that ends with a comma and is complete: "Kind regards,".
const MAX_CLOSING_WORDS: usize = 4;
/// Maximum letters of an article or a preposition of the class `Per`.
const MAX_PER_LETTERS: usize = 3;
/// English words that may end a sentence, of the groups by which [`ends_within_sentence`] finds an end within one.
const FINAL_WORDS: [&str; 15] = [
    "this", "that", "these", "those", "in", "on", "with", "for", "at", "about", "by", "to", "through",
    "under", "within",
];
/// Classes of words that end no sentence.
const INNER: WordClasses = classes!(Conjunction Alternative Reason Condition Modal);

/// Whether the last line ends with a sign or a word after which its sentence goes on, and a sentence before it is
/// complete.
fn ends_within_sentence(context: &Context<'_>, text: &str) -> bool {
    let line = text.lines().next_back().unwrap_or_default().trim();
    let word = line.rsplit(char::is_whitespace).next().unwrap_or_default();
    let is_open_sign = word.ends_with(OPEN_SIGNS) && line.split_whitespace().count() > MAX_CLOSING_WORDS;
    let is_lowercase = !word.is_empty() && word.chars().all(char::is_lowercase);
    let ends_sentence = |(at, _): (usize, &str)| {
        text.get(at + 1..)
            .is_some_and(|rest| rest.starts_with(char::is_whitespace) && !rest.trim().is_empty())
    };
    if !is_open_sign && !is_lowercase || !text.match_indices(['.', '!', '?']).any(ends_sentence) {
        return false;
    }
    if is_open_sign {
        return true;
    }
    let Some(language) = Language::detected(text, None, context.memo) else { return false };
    let is_in = |group| language == Language::English && language.is_in_group(word, group);
    let is_per =
        || word.chars().count() <= MAX_PER_LETTERS && language.table().name(word).0.has(WordClass::Per);
    language.classes(word).has_any(INNER)
        || is_per()
        || (is_in(GrammarGroup::Definite) || is_in(GrammarGroup::Preposition)) && !FINAL_WORDS.contains(&word)
}

/// The beginning of a word of a result with which the last item of a list ends, if the item has no description and
/// the items before it have one; else `None`.
fn cut_word<'t>(context: &Context<'_>, text: &'t str) -> Option<&'t str> {
    let mut lines = text.lines().map(str::trim_start).rev();
    let last_item = lines.next()?;
    let bullet = last_item.chars().next().filter(|bullet| matches!(bullet, '-' | '*' | '•'))?;
    let word = last_item.rsplit(|c: char| !c.is_alphanumeric()).next().filter(|word| word.len() > 1)?;
    // The description after a name contains a number, or begins with a colon or a dash.
    let has_description =
        |item: &str| item.contains(|c: char| c.is_ascii_digit() || matches!(c, ':' | '–' | '—'));
    let items: Vec<&str> = lines.filter(|line| line.starts_with(bullet)).take(MIN_ITEMS).collect();
    let is_incomplete = items.len() == MIN_ITEMS
        && items.iter().all(|item| has_description(item))
        && !has_description(last_item);
    if !is_incomplete || !word.chars().all(char::is_alphabetic) {
        return None;
    }
    let results = context.trace.calls.iter().filter_map(|call| call.result.as_deref());
    let mut is_cut = false;
    for result in results {
        if !context.memo.budget.spend(1 + result.len() / BYTES_PER_STEP) {
            return None;
        }
        for (start, _) in result.match_indices(word) {
            let before = result.get(..start).and_then(|text| text.chars().next_back());
            let after = result.get(start + word.len()..).unwrap_or_default();
            let missing_letters =
                after.chars().take_while(|c| c.is_alphabetic()).take(MIN_MISSING_LETTERS).count();
            match (before.is_some_and(char::is_alphanumeric), missing_letters) {
                (true, _) | (false, 1 | 2) => {}
                (false, 0) => return None,
                (false, _) => is_cut = true,
            }
        }
    }
    is_cut.then_some(word)
}

/// Whether the last line ends at a short word within a sentence of a result, and the lines before it end with a mark.
fn is_cut_in_sentence(context: &Context<'_>, text: &str) -> bool {
    let last_word = text.rsplit(char::is_whitespace).next().unwrap_or_default();
    if last_word.chars().count() > MAX_SHORT_WORD || !last_word.chars().all(char::is_lowercase) {
        return false;
    }
    let mut lines = text.lines().rev().map(str::trim_end).filter(|line| !line.is_empty());
    let last = lines.next().unwrap_or_default();
    let marked = lines.take(MIN_ITEMS).filter(|line| line.ends_with(['.', '!', '?'])).count();
    let words = last.rmatch_indices(' ').nth(REPEATED_WORDS - 1);
    let Some(end) = words.and_then(|(at, _)| last.get(at..)).filter(|_| marked == MIN_ITEMS) else {
        return false;
    };
    let mut is_cut = false;
    for result in context.trace.calls.iter().filter_map(|call| call.result.as_deref()) {
        if !context.memo.budget.spend(1 + result.len() / BYTES_PER_STEP) {
            return false;
        }
        for (at, _) in result.match_indices(end) {
            let after = result.get(at + end.len()..).and_then(|after| after.strip_prefix(' '));
            if !after.is_some_and(|after| after.starts_with(char::is_alphanumeric)) {
                return false;
            }
            is_cut = true;
        }
    }
    is_cut
}

/// Whether no further model call of the agent follows, or none of the trace if the span has no agent.
fn is_last_model_call(context: &Context<'_>) -> bool {
    let trace = context.trace;
    let owner = trace.owner.get(context.at).copied().flatten().and_then(|agent| trace.agents.get(agent));
    match owner {
        Some(agent) => agent.llms.last() == Some(&context.at),
        None => {
            let mut later =
                trace.views.iter().skip(context.at + 1).take_while(|_| context.memo.budget.spend(1));
            !trace.incomplete && !later.any(|v| v.kind == Kind::Llm && !v.wrapper)
        }
    }
}
