//! Defects of a result that is not an error: empty or truncated.
//!
//! Principle: a result is returned whole, since what was cut off cannot be told from what does not exist. A page of a
//! list that says so is whole, and an empty result is only noted.

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
    /// Without a defect.
    Complete {
        /// The result shows whether the call succeeded: it is structured, or contains terms of the query.
        shows_outcome: bool,
    },
    /// Empty, of a tool that may return nothing.
    Unclear,
    Defective(Box<Finding>),
}

/// Bytes at the end in which markers of truncation are searched.
const TAIL_BYTES: usize = 160;
/// Minimum bytes of a result that is expected to contain a term of the query; a shorter one may be a number
/// or name.
const SUBSTANTIAL_BYTES: usize = 600;
/// Minimum terms of a query by which its result is recognised.
const MIN_TERMS: usize = 3;
/// Letters by which terms are compared, so that endings are ignored.
const STEM_BYTES: usize = 5;
/// Maximum bytes of a result that are searched.
const SEARCH_BYTES: usize = 64 * 1024;

/// Checks a result that is not an error.
pub(crate) fn check(context: &Context<'_>, call: &Call, text: &Text) -> ResultCheck {
    let plain = text.trim();
    // On the tool's own span its name is not repeated.
    let call_suffix = if call.tool.is_some() { String::new() } else { format!(" of {}", call.name.trim()) };
    if is_void(plain) {
        // The request is quoted if the result is empty.
        let quote = if plain.is_empty() { quoted(call) } else { plain };
        let rationale = format!("a result{call_suffix} was expected; nothing came back");
        return match purpose(context.trace, context.memo, call) {
            Purpose::Query => nothing_found(context, call, &rationale, quote),
            Purpose::Action | Purpose::Unknown => unclear_or_printed_nothing(context, call),
        };
    }
    if program_output(plain).is_empty() {
        return unclear_or_printed_nothing(context, call);
    }
    if says_nothing_found(plain) && purpose(context.trace, context.memo, call) != Purpose::Action {
        let rationale = format!("a result{call_suffix} was expected; the query found nothing");
        return nothing_found(context, call, &rationale, plain);
    }
    if let Some(marker) = cut_off(plain) {
        let rationale = format!("the whole result{call_suffix} was expected; it is cut off");
        return defect(Defect::TruncatedResult, &rationale, marker);
    }
    let task = call.agent.and_then(|agent| agent_index::task(context.trace, agent));
    let shows_outcome = is_structured(text, context.memo)
        || has_term_of_query(call, plain, task.map(|task| &**task), context.memo);
    ResultCheck::Complete { shows_outcome }
}

/// Whether a text is an object or array, or several: as JSON, or as Python prints one. It is parsed, since prose may
/// begin and end with brackets, too ("[1] the opening hours [2]"), and has no fields that say how the call ended.
fn is_structured(text: &Text, memo: &Memo) -> bool {
    let plain = text.trim();
    let has_brackets =
        plain.starts_with('{') && plain.ends_with('}') || plain.starts_with('[') && plain.ends_with(']');
    // The records are read for other rules as well: a second parse would cost as much as this whole metric.
    let has_records = || Structure::cached(text, memo).is_some_and(|structure| structure.0.is_some());
    let parses = || is_json(plain) || python_repr::parse(plain).is_some();
    has_brackets && (has_records() || memo.budget.spend(1 + plain.len() / BYTES_PER_STEP) && parses())
}

/// Whether a text is one JSON value or several, as in files of lines.
fn is_json(text: &str) -> bool {
    serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>().all(|value| value.is_ok())
}

fn defect(defect: Defect, rationale: &str, quote: &str) -> ResultCheck {
    ResultCheck::Defective(Box::new(defect.finding(rationale, quote)))
}

/// Code that is written to print something and prints nothing shows nothing; other actions may be silent.
fn unclear_or_printed_nothing(context: &Context<'_>, call: &Call) -> ResultCheck {
    let code = call.arguments.as_deref().filter(|_| runs_code(&call.name)).unwrap_or_default();
    match PRINTS.find(code) {
        Some(print) => {
            let rationale = format!(
                "{} ran code that prints; an output was expected, and nothing came",
                call.name.trim()
            );
            let quote = around(code, print.start(), print.end(), QUOTE_BYTES / 3);
            // A program that prints may have had nothing to print, as a lookup may find nothing.
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

fn nothing_found(context: &Context<'_>, call: &Call, rationale: &str, quote: &str) -> ResultCheck {
    ResultCheck::Defective(Box::new(empty_lookup::finding(context, call, rationale, quote)))
}

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

/// Every marker has one of these.
const CUT_WORDS: [&str; 2] = ["truncated", "cut"];
checked_static!(CUT_WORD: WordSearcher = WordSearcher::new(&CUT_WORDS));

/// The end of a text with an explicit marker that the tool (not the instrumentation) truncated it.
fn cut_off(text: &str) -> Option<&str> {
    let end = tail(text, TAIL_BYTES);
    // Every result is searched. All markers have one of these words, and few texts.
    let may_match = CUT_WORD.find(&end.to_ascii_lowercase()).is_some();
    (may_match && MARKER.is_match(end)).then_some(end)
}

/// Whether a long result contains a term of its query. That it has none means nothing: a query may be code, or its
/// result in other words.
fn has_term_of_query(call: &Call, text: &str, task: Option<&str>, memo: &Memo) -> bool {
    text.len() >= SUBSTANTIAL_BYTES
        && is_search(&call.name)
        && term_of_query(call, text, task, memo) == Some(true)
}

fn term_of_query(call: &Call, text: &str, task: Option<&str>, memo: &Memo) -> Option<bool> {
    let arguments = call.parsed.as_ref()?.as_object()?;
    let query = ["query", "q", "search_query", "question", "keywords", "search", "topic", "term"]
        .iter()
        .find_map(|key| arguments.get(*key)?.as_str())?;
    // A relevant result in another script or language would share no term.
    if !query.is_ascii() {
        return None;
    }
    let terms: Vec<&str> = query
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| word.len() >= 4 && !STOP.contains(&word.to_ascii_lowercase().as_str()))
        .take(12)
        .collect();
    if terms.len() < MIN_TERMS {
        return None;
    }
    let stems: Vec<&str> = terms.iter().map(|term| clip(term, STEM_BYTES)).collect();
    let automaton = AhoCorasick::builder().ascii_case_insensitive(true).build(&stems).ok()?;
    let body = clip(text, SEARCH_BYTES);
    // Texts in two languages share no terms.
    if !is_english(body, None, memo) || !is_english(query, task, memo) {
        return None;
    }
    let letters = body.bytes().filter(u8::is_ascii_alphabetic).count();
    // Mostly digits, another script, or encoded data has no words to compare.
    if letters * 2 < body.len() {
        return None;
    }
    Some(automaton.is_match(body))
}

const STOP: [&str; 24] = [
    "what", "when", "where", "which", "does", "with", "from", "that", "this", "many", "much", "have",
    "there", "their", "about", "into", "than", "then", "they", "list", "find", "search", "show", "give",
];

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
