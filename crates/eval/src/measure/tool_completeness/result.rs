//! Defects of a result that is not an error: empty or truncated.
//!
//! Principle: a result is complete, since its reader cannot distinguish cut content from missing content. A page of a
//! list that is marked as a page is complete, and an empty result is only noted.

use aho_corasick::AhoCorasick;
use serde::de::IgnoredAny;

use super::empty_lookup;
use crate::measure::calls::attempts::quoted;
use crate::measure::calls::empty_result::{is_void, says_nothing_found};
use crate::measure::conversation::runs_code;
use crate::measure::defects::{Defect, QUOTE_BYTES, clip};
use crate::measure::error_text::program_output;
use crate::measure::excerpt::{around, tail};
use crate::measure::language::Language;
use crate::measure::records::Structure;
use crate::measure::tool_purpose::{Purpose, purpose};
use crate::measure::work_budget::BYTES_PER_STEP;
use crate::measure::{Context, Finding, Memo, agent_index};
use crate::recognise::{Call, Text, action_text, python_repr, says_truncated};

/// The assessment of a result.
#[derive(Debug, PartialEq)]
pub(crate) enum ResultCheck {
    /// The result has no defect.
    Complete {
        /// Whether the result shows that the call succeeded: it is structured, or contains a term of the query.
        shows_outcome: bool,
    },
    /// The result is empty, and the tool may return nothing.
    Unclear,
    Defective(Box<Finding>),
}

/// Maximum bytes at the end of a result in which markers of truncation are searched.
const TAIL_BYTES: usize = 160;
/// Minimum bytes of a result that is compared with the terms of the query; a shorter one may be a number or a name.
const MIN_COMPARED_BYTES: usize = 600;
/// Minimum terms of a query that is compared with its result.
const MIN_TERMS: usize = 3;
/// Maximum terms of a query that are compared.
const MAX_TERMS: usize = 12;
/// Minimum bytes of a term.
const MIN_TERM_BYTES: usize = 4;
/// Maximum bytes of a term that are compared, so that different endings of a word have no effect.
const STEM_BYTES: usize = 5;
/// Keys of arguments with the query of a search.
const QUERY_KEYS: [&str; 8] =
    ["query", "q", "search_query", "question", "keywords", "search", "topic", "term"];
/// Maximum bytes of a result in which the terms are searched.
const SEARCH_BYTES: usize = 64 * 1024;

/// Checks a result that is not an error.
pub(crate) fn check(context: &Context<'_>, call: &Call, text: &Text) -> ResultCheck {
    let trimmed = text.trim();
    // On the span of the tool its name need not be repeated.
    let call_suffix = if call.tool.is_some() { String::new() } else { format!(" of {}", call.name.trim()) };
    if is_void(trimmed) {
        // An empty result cannot be quoted; the arguments are quoted instead.
        let quote = if trimmed.is_empty() { quoted(call) } else { trimmed };
        let rationale = format!("a result{call_suffix} was expected; nothing came back");
        return match purpose(context.trace, context.memo, call) {
            Purpose::Query => nothing_found(context, call, &rationale, quote),
            Purpose::Action | Purpose::Unknown => unclear_or_printed_nothing(context, call),
        };
    }
    if program_output(trimmed).is_empty() {
        return unclear_or_printed_nothing(context, call);
    }
    if says_nothing_found(trimmed) && purpose(context.trace, context.memo, call) != Purpose::Action {
        let rationale = format!("a result{call_suffix} was expected; the query found nothing");
        return nothing_found(context, call, &rationale, trimmed);
    }
    let end = tail(trimmed, TAIL_BYTES);
    if says_truncated(end) {
        let rationale = format!("the whole result{call_suffix} was expected; it is cut off");
        return defect(Defect::TruncatedResult, &rationale, end);
    }
    let task = call.agent.and_then(|agent| agent_index::task(context.trace, agent));
    let shows_outcome = is_structured(text, context.memo)
        || has_term_of_query(context, call, trimmed, task.map(|task| &**task));
    ResultCheck::Complete { shows_outcome }
}

/// Whether a text consists of objects or arrays, in JSON or as Python prints them. The text is parsed, since prose may
/// also begin and end with brackets ("[1] the opening hours [2]").
fn is_structured(text: &Text, memo: &Memo) -> bool {
    let trimmed = text.trim();
    let has_brackets = trimmed.starts_with('{') && trimmed.ends_with('}')
        || trimmed.starts_with('[') && trimmed.ends_with(']');
    // Other rules use the cached records as well, and a parse costs as much as the rest of this metric.
    let has_records = || Structure::cached(text, memo).is_some_and(|structure| structure.0.is_some());
    let parses = || is_json(trimmed) || python_repr::parse(trimmed).is_some();
    has_brackets && (has_records() || memo.budget.spend(1 + trimmed.len() / BYTES_PER_STEP) && parses())
}

/// Whether a text is one JSON value or several, as in a file of JSON lines.
fn is_json(text: &str) -> bool {
    serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>().all(|value| value.is_ok())
}

fn defect(defect: Defect, rationale: &str, quote: &str) -> ResultCheck {
    ResultCheck::Defective(Box::new(defect.finding(rationale, quote)))
}

/// The assessment of an empty result of an action: a finding if the call runs code that prints, else unclear, since
/// other actions may return nothing.
fn unclear_or_printed_nothing(context: &Context<'_>, call: &Call) -> ResultCheck {
    let code = call.arguments.as_deref().filter(|_| runs_code(&call.name)).unwrap_or_default();
    match action_text::print_statement(code) {
        Some(print_statement) => {
            let rationale = format!(
                "{} ran code that prints; an output was expected, and nothing came",
                call.name.trim()
            );
            let quote = around(code, print_statement.start, print_statement.end, QUOTE_BYTES / 3);
            // The program may have had nothing to print, as a lookup may find nothing.
            nothing_found(context, call, &rationale, quote)
        }
        None => ResultCheck::Unclear,
    }
}

/// The assessment of a result of a lookup that found nothing.
fn nothing_found(context: &Context<'_>, call: &Call, rationale: &str, quote: &str) -> ResultCheck {
    ResultCheck::Defective(Box::new(empty_lookup::finding(context, call, rationale, quote)))
}

/// Whether the long result of a search contains a term of its query. The absence of terms is no defect: the query may
/// be code, or the result may use other words.
fn has_term_of_query(context: &Context<'_>, call: &Call, text: &str, task: Option<&str>) -> bool {
    let memo = context.memo;
    if text.len() < MIN_COMPARED_BYTES || purpose(context.trace, memo, call) != Purpose::Query {
        return false;
    }
    let arguments = call.parsed.as_ref().and_then(|arguments| arguments.as_object());
    let Some(query) =
        arguments.and_then(|arguments| QUERY_KEYS.iter().find_map(|key| arguments.get(*key)?.as_str()))
    else {
        return false;
    };
    let body = clip(text, SEARCH_BYTES);
    let letters = body.chars().filter(|c| c.is_alphabetic()).map(char::len_utf8).sum::<usize>();
    // A text of digits or encoded data has no words to compare.
    if letters * 2 < body.len() {
        return false;
    }
    // Texts in different languages share no terms.
    let language = Language::detected(query, task, memo);
    let Some(language) = language.filter(|_| Language::detected(body, None, memo) == language) else {
        return false;
    };
    let words = language.content_words(query).into_iter();
    let terms: Vec<String> = words.filter(|word| word.len() >= MIN_TERM_BYTES).take(MAX_TERMS).collect();
    if terms.len() < MIN_TERMS {
        return false;
    }
    let stems = terms.iter().map(|term| clip(term, STEM_BYTES));
    let automaton = AhoCorasick::builder().ascii_case_insensitive(true).build(stems);
    automaton.is_ok_and(|automaton| automaton.is_match(body))
}
