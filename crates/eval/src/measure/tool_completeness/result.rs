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
use crate::measure::identifier::identifier_words;
use crate::measure::language::is_english;
use crate::measure::records::Structure;
use crate::measure::tool_purpose::{Purpose, purpose};
use crate::measure::work_budget::BYTES_PER_STEP;
use crate::measure::{Context, Finding, Memo, agent_index};
use crate::pattern::WordSearcher;
use crate::recognise::{Call, Text, python_repr};

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
/// Maximum bytes of a term that are compared, so that different endings of a word have no effect.
const STEM_BYTES: usize = 5;
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
    if let Some(marker) = truncation_marker(trimmed) {
        let rationale = format!("the whole result{call_suffix} was expected; it is cut off");
        return defect(Defect::TruncatedResult, &rationale, marker);
    }
    let task = call.agent.and_then(|agent| agent_index::task(context.trace, agent));
    let shows_outcome = is_structured(text, context.memo)
        || has_term_of_query(call, trimmed, task.map(|task| &**task), context.memo);
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
    match PRINTS.find(code) {
        Some(print_statement) => {
            let rationale = format!(
                "{} ran code that prints; an output was expected, and nothing came",
                call.name.trim()
            );
            let quote = around(code, print_statement.start(), print_statement.end(), QUOTE_BYTES / 3);
            // The program may have had nothing to print, as a lookup may find nothing.
            nothing_found(context, call, &rationale, quote)
        }
        None => ResultCheck::Unclear,
    }
}

// Statements that print, in languages that agents write.
regex!(
    PRINTS,
    r"(?:\bprint(?:ln|f)?!?\s*\(|\bconsole\.log\s*\(|\bSystem\.out\.|\bfmt\.Print|\bstd::cout\b|\bputs\s|\bWrite-Output\b|\bConsole\.Write)"
);

/// The assessment of a result of a lookup that found nothing.
fn nothing_found(context: &Context<'_>, call: &Call, rationale: &str, quote: &str) -> ResultCheck {
    ResultCheck::Defective(Box::new(empty_lookup::finding(context, call, rationale, quote)))
}

/// Markers by which tools indicate truncation.
const MARKERS: [&str; 16] = [
    "[truncated",
    "(truncated",
    "<truncated",
    "...truncated",
    "... truncated",
    "\u{2026}truncated",
    "\u{2026} truncated",
    "output truncated",
    "result truncated",
    "results truncated",
    "response truncated",
    "content truncated",
    "has been truncated",
    "was truncated",
    "[content cut",
    "[output cut",
];
checked_static!(MARKER: AhoCorasick = AhoCorasick::builder().ascii_case_insensitive(true).build(MARKERS));

/// Every marker contains one of these words.
const CUT_WORDS: [&str; 2] = ["truncated", "cut"];
checked_static!(CUT_WORD: WordSearcher = WordSearcher::new(&CUT_WORDS));

/// The end of a text with an explicit marker that the tool (not the instrumentation) truncated it.
fn truncation_marker(text: &str) -> Option<&str> {
    let end = tail(text, TAIL_BYTES);
    // Every result is searched, and few texts contain one of the words that all markers contain.
    let may_match = CUT_WORD.find(&end.to_ascii_lowercase()).is_some();
    (may_match && MARKER.is_match(end)).then_some(end)
}

/// Whether the long result of a search contains a term of its query. The absence of terms is no defect: the query may
/// be code, or the result may use other words.
fn has_term_of_query(call: &Call, text: &str, task: Option<&str>, memo: &Memo) -> bool {
    text.len() >= MIN_COMPARED_BYTES
        && is_search(&call.name)
        && term_of_query(call, text, task, memo) == Some(true)
}

/// Whether the result contains a term of its query; `None` if they cannot be compared.
fn term_of_query(call: &Call, text: &str, task: Option<&str>, memo: &Memo) -> Option<bool> {
    let arguments = call.parsed.as_ref()?.as_object()?;
    let query = ["query", "q", "search_query", "question", "keywords", "search", "topic", "term"]
        .iter()
        .find_map(|key| arguments.get(*key)?.as_str())?;
    // A relevant result in another script shares no terms with its query.
    if !query.is_ascii() {
        return None;
    }
    let terms: Vec<&str> = query
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| word.len() >= 4 && !STOP_WORDS.contains(&word.to_ascii_lowercase().as_str()))
        .take(12)
        .collect();
    if terms.len() < MIN_TERMS {
        return None;
    }
    let stems: Vec<&str> = terms.iter().map(|term| clip(term, STEM_BYTES)).collect();
    let automaton = AhoCorasick::builder().ascii_case_insensitive(true).build(&stems).ok()?;
    let body = clip(text, SEARCH_BYTES);
    // Texts in different languages share no terms.
    if !is_english(body, None, memo) || !is_english(query, task, memo) {
        return None;
    }
    let letters = body.bytes().filter(u8::is_ascii_alphabetic).count();
    // A text of digits, another script, or encoded data has no words to compare.
    if letters * 2 < body.len() {
        return None;
    }
    Some(automaton.is_match(body))
}

/// Words of queries that are no terms.
const STOP_WORDS: [&str; 24] = [
    "what", "when", "where", "which", "does", "with", "from", "that", "this", "many", "much", "have",
    "there", "their", "about", "into", "than", "then", "they", "list", "find", "search", "show", "give",
];

/// Whether a tool of this name searches.
fn is_search(name: &str) -> bool {
    identifier_words(name)
        .iter()
        .any(|word| matches!(word.as_str(), "search" | "lookup" | "retrieve" | "query" | "find"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_marker_has_a_word_that_is_searched_first() {
        for marker in MARKERS {
            assert!(CUT_WORDS.iter().any(|word| marker.contains(word)), "{marker}");
        }
    }
}
