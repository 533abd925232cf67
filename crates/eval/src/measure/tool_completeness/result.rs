//! Defects of a result that is not an error: empty, truncated or irrelevant.

use aho_corasick::AhoCorasick;

use super::nothing::{is_void, says_nothing_found};
use super::vain;
use crate::measure::agent::attempts::quoted;
use crate::measure::defects::{Defect, clip};
use crate::measure::excerpt::tail;
use crate::measure::identifier::identifier_words;
use crate::measure::tool_purpose::{Purpose, purpose};
use crate::measure::{Context, Finding};
use crate::recognise::{Call, Text};

/// The assessment of a result.
#[derive(Debug, PartialEq)]
pub(crate) enum ResultCheck {
    /// Without a defect.
    Complete,
    /// Empty, of a tool that may return nothing.
    Unclear,
    Defective(Box<Finding>),
}

/// Bytes at the end in which markers of truncation are searched.
const TAIL_BYTES: usize = 160;
/// Minimum bytes of a result that is expected to contain a term of the query; a shorter one may be a number
/// or name.
const SUBSTANTIAL_BYTES: usize = 600;
/// Minimum terms of a query whose absence makes a result irrelevant.
const MIN_TERMS: usize = 3;
/// Letters by which terms are compared, so that endings are ignored.
const STEM_BYTES: usize = 5;
/// Maximum bytes of a result that are searched.
const SEARCH_BYTES: usize = 64 * 1024;

/// Checks a result that is not an error.
pub(crate) fn check(context: &Context<'_>, call: &Call, text: &Text) -> ResultCheck {
    let plain = text.trim();
    // On the tool's own span its name is not repeated.
    let of = if call.tool.is_some() { String::new() } else { format!(" of {}", call.name.trim()) };
    if is_void(plain) {
        // The request is quoted if the result is empty.
        let quote = if plain.is_empty() { quoted(call) } else { plain };
        let rationale = format!("a result{of} was expected; nothing came back");
        return match purpose(context.trace, call) {
            Purpose::Query => nothing_found(context, call, &rationale, quote),
            Purpose::Action | Purpose::Unknown => ResultCheck::Unclear,
        };
    }
    if says_nothing_found(plain) && purpose(context.trace, call) != Purpose::Action {
        let rationale = format!("a result{of} was expected; the query found nothing");
        return nothing_found(context, call, &rationale, plain);
    }
    if let Some(marker) = cut_off(plain) {
        let rationale = format!("the whole result{of} was expected; it is cut off");
        return defect(Defect::TruncatedResult, &rationale, marker);
    }
    if let Some(terms) = missing_query_terms(call, plain) {
        let rationale = format!(
            "a result{of} about the query was expected; none of the query's terms ({terms}) occurs in it"
        );
        return defect(Defect::IrrelevantResult, &rationale, plain);
    }
    ResultCheck::Complete
}

fn defect(defect: Defect, rationale: &str, quote: &str) -> ResultCheck {
    ResultCheck::Defective(Box::new(defect.finding(rationale, quote)))
}

fn nothing_found(context: &Context<'_>, call: &Call, rationale: &str, quote: &str) -> ResultCheck {
    ResultCheck::Defective(Box::new(vain::finding(context, call, rationale, quote)))
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
regex!(MARKER: AhoCorasick = AhoCorasick::builder().ascii_case_insensitive(true).build(MARKERS));

/// The end of a text with an explicit marker that the tool (not the instrumentation) truncated it.
fn cut_off(text: &str) -> Option<&str> {
    let end = tail(text, TAIL_BYTES);
    MARKER.is_match(end).then_some(end)
}

/// The query's terms, if it has enough of them and a long result contains none.
fn missing_query_terms(call: &Call, text: &str) -> Option<String> {
    if text.len() < SUBSTANTIAL_BYTES || !is_search(&call.name) {
        return None;
    }
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
    let letters = body.bytes().filter(u8::is_ascii_alphabetic).count();
    // Mostly digits, another script, or encoded data has no words to compare.
    if letters * 2 < body.len() || automaton.is_match(body) {
        return None;
    }
    Some(terms.join(", "))
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
