//! What a tool brought back, where it is no error: nothing, a part, or something beside the point.

use aho_corasick::AhoCorasick;
use serde_json::Value;

use crate::measure::agent::attempts::quoted;
use crate::measure::defects::{Defect, clip};
use crate::measure::excerpt::tail;
use crate::measure::identifier::identifier_words;
use crate::measure::{Context, Finding};
use crate::recognise::{Call, Text};

/// What a result amounts to.
#[derive(Debug, PartialEq)]
pub(crate) enum ResultCheck {
    /// Something came back, and nothing speaks against it.
    Complete,
    /// Nothing came back from a tool that may well return nothing.
    Unclear,
    /// A defect, with its evidence.
    Defective(Box<Finding>),
}

/// A longer text holds more than the news that nothing was found.
const SHORT_BYTES: usize = 400;
/// Markers of truncation stand within this of the end.
const TAIL_BYTES: usize = 160;
/// A shorter result may be a bare number or name that repeats no word of the query.
const SUBSTANTIAL_BYTES: usize = 600;
/// So many terms of a query must all be missing before a result counts as beside the point.
const MIN_TERMS: usize = 3;
/// Terms are compared by this many letters, so that endings do not matter.
const STEM_BYTES: usize = 5;
/// A result longer than this is searched only so far.
const SEARCH_BYTES: usize = 64 * 1024;

/// Judges a result that is no error.
pub(crate) fn check(context: &Context<'_>, call: &Call, text: &Text) -> ResultCheck {
    let plain = text.trim();
    // On the tool's own span its name is plain.
    let of = if call.tool.is_some() { String::new() } else { format!(" of {}", call.name.trim()) };
    if is_void(plain) {
        // Of nothing there is nothing to quote: what was asked stands for it.
        let quote = if plain.is_empty() { quoted(call) } else { plain };
        let rationale = format!("a result{of} was expected; nothing came back");
        return match purpose(context, call) {
            Purpose::Query => defect(Defect::EmptyResult, &rationale, quote),
            Purpose::Action | Purpose::Unknown => ResultCheck::Unclear,
        };
    }
    if plain.len() <= SHORT_BYTES && says_nothing_found(plain) && purpose(context, call) != Purpose::Action {
        let rationale = format!("a result{of} was expected; the query found nothing");
        return defect(Defect::EmptyResult, &rationale, plain);
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

/// `""`, `[]`, `null` and the like, also inside the objects that frameworks wrap results in.
fn is_void(text: &str) -> bool {
    /// Larger JSON holds something.
    const VOID_BYTES: usize = 120;
    match text {
        "" | "[]" | "{}" | "null" | "None" | "\"\"" | "()" | "undefined" | "[{}]" => true,
        _ if text.len() <= VOID_BYTES && text.starts_with(['{', '[', '"']) => {
            serde_json::from_str(text).is_ok_and(|value| is_hollow(&value, 0))
        }
        _ => false,
    }
}

fn is_hollow(value: &Value, depth: usize) -> bool {
    const WRAPPERS: [&str; 8] =
        ["result", "results", "output", "content", "data", "items", "text", "documents"];
    const BESIDE: [&str; 9] =
        ["type", "count", "total", "status", "ok", "success", "isError", "query", "annotations"];
    match value {
        Value::Null => true,
        Value::String(text) => matches!(text.trim(), "" | "[]" | "{}" | "null" | "None"),
        Value::Array(items) => depth < 4 && items.iter().all(|item| is_hollow(item, depth + 1)),
        Value::Object(map) => {
            let mut wrapped = false;
            map.is_empty()
                || depth < 4
                    && map.iter().all(|(key, value)| {
                        let wraps = WRAPPERS.contains(&key.as_str());
                        wrapped |= wraps;
                        wraps && is_hollow(value, depth + 1) || BESIDE.contains(&key.as_str())
                    })
                    && wrapped
        }
        _ => false,
    }
}

regex!(
    NOTHING,
    concat!(
        r"(?i)^[\W]*(?:(?:sorry|unfortunately)\W+)?(?:",
        r"(?:there (?:are|were|is|was) )?no (?:\w+ ){0,3}?(?:results?|match(?:es|ing)?|documents?|records?|entr(?:y|ies)|items?|hits?|data|files?|pages?|rows?|information|articles?)\b[^.\n]*?(?:\bfound|\bavailable|\breturned|\bmatch(?:ed|ing)?|\bfor\b|\bexists?\b|\.|!|$)",
        r"|nothing (?:was )?found|0 (?:results|matches|hits|rows|documents)\b|(?:could not|couldn't|did not|didn't) find (?:any|a|the)?\b|not found\W*$",
        r"|(?:your |the |this )?(?:search|query)\b[^.\n]*?(?:returned no|returned 0|did not (?:match|return)|found no|yielded no|has no results|had no results)",
        r"|\(?(?:empty|no output|no content|no results?)\)?\W*$)",
    )
);

/// The text's whole message is that there was nothing.
fn says_nothing_found(text: &str) -> bool {
    let body = text.trim_start_matches(['{', '[', '"', '\'']);
    // A list of findings that opens with "No data ..." goes on; the news that there is none does not.
    text.lines().filter(|line| !line.trim().is_empty()).count() <= 3
        && (NOTHING.is_match(text) || NOTHING.is_match(after_key(body)))
}

/// Skips one JSON key (`result": "`), as wrappers put it before the message.
fn after_key(text: &str) -> &str {
    const KEYS: [&str; 7] = ["result", "output", "message", "content", "text", "response", "answer"];
    for key in KEYS {
        if let Some(rest) = text.strip_prefix(key) {
            return rest.trim_start_matches(['"', '\'', ':', ' ', '[', '{']);
        }
    }
    text
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

/// An explicit marker at the end that the tool (not the instrumentation) left something out.
fn cut_off(text: &str) -> Option<&str> {
    let end = tail(text, TAIL_BYTES);
    MARKER.is_match(end).then_some(end)
}

/// The query's terms, where it has enough of them and a substantial result holds none.
fn missing_query_terms(call: &Call, text: &str) -> Option<String> {
    if text.len() < SUBSTANTIAL_BYTES || !is_search(&call.name) {
        return None;
    }
    let arguments = call.parsed.as_ref()?.as_object()?;
    let query = ["query", "q", "search_query", "question", "keywords", "search", "topic", "term"]
        .iter()
        .find_map(|key| arguments.get(*key)?.as_str())?;
    // Another script or language than the result's would share no term and still be right.
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
    // Mostly digits, another script, or encoded data: no words to compare.
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

/// What a tool is for, by the verbs in its name, else by the first word of its description.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    /// It brings something back; nothing is no answer.
    Query,
    /// It does something; nothing may be all it has to say.
    Action,
    /// The name does not tell.
    Unknown,
}

fn purpose(context: &Context<'_>, call: &Call) -> Purpose {
    let by_name = identifier_words(&call.name).iter().find_map(|word| purpose_of(word));
    let described = || {
        let own = call.definition.as_ref().and_then(|d| d.description.as_deref());
        let text = own.or_else(|| {
            let agent = context.trace.agents.get(call.agent?)?;
            agent.tools.iter().find(|t| t.name == call.name)?.description.as_deref()
        })?;
        identifier_words(text.split_whitespace().next()?)
            .iter()
            .find_map(|word| purpose_of(word.trim_end_matches('s')))
    };
    by_name.or_else(described).unwrap_or(Purpose::Unknown)
}

fn purpose_of(verb: &str) -> Option<Purpose> {
    const QUERIES: [&str; 34] = [
        "search",
        "find",
        "get",
        "fetch",
        "read",
        "list",
        "lookup",
        "query",
        "retrieve",
        "load",
        "visit",
        "open",
        "browse",
        "view",
        "describe",
        "calculate",
        "compute",
        "calculator",
        "inspect",
        "scrape",
        "extract",
        "count",
        "select",
        "grep",
        "glob",
        "ls",
        "translate",
        "summarize",
        "ask",
        "recall",
        "geocode",
        "convert",
        "analyze",
        "return",
    ];
    const ACTIONS: [&str; 44] = [
        "write", "create", "update", "delete", "send", "set", "save", "post", "put", "add", "remove",
        "insert", "move", "click", "type", "wait", "sleep", "print", "notify", "log", "store", "transfer",
        "handoff", "finish", "submit", "exit", "mkdir", "touch", "edit", "append", "close", "cancel",
        "schedule", "publish", "upload", "run", "execute", "exec", "bash", "shell", "python", "terminal",
        "reset", "final",
    ];
    match verb {
        _ if QUERIES.contains(&verb) => Some(Purpose::Query),
        _ if ACTIONS.contains(&verb) => Some(Purpose::Action),
        _ => None,
    }
}
