//! Defects of a result that is not an error: empty, truncated or irrelevant.

use aho_corasick::AhoCorasick;
use serde_json::Value;

use crate::measure::agent::attempts::quoted;
use crate::measure::defects::{Defect, clip};
use crate::measure::excerpt::tail;
use crate::measure::identifier::identifier_words;
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

/// Maximum bytes of a message that nothing was found.
const SHORT_BYTES: usize = 400;
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
    /// Maximum bytes of JSON without content.
    const VOID_BYTES: usize = 120;
    match text {
        "" | "[]" | "{}" | "null" | "None" | "\"\"" | "()" | "undefined" | "[{}]" => true,
        _ if text.len() <= VOID_BYTES && text.starts_with(['{', '[', '"']) => {
            serde_json::from_str(text).is_ok_and(|value| is_empty_value(&value, 0))
        }
        _ => false,
    }
}

fn is_empty_value(value: &Value, depth: usize) -> bool {
    const WRAPPERS: [&str; 8] =
        ["result", "results", "output", "content", "data", "items", "text", "documents"];
    const METADATA_KEYS: [&str; 9] =
        ["type", "count", "total", "status", "ok", "success", "isError", "query", "annotations"];
    match value {
        Value::Null => true,
        Value::String(text) => matches!(text.trim(), "" | "[]" | "{}" | "null" | "None"),
        Value::Array(items) => depth < 4 && items.iter().all(|item| is_empty_value(item, depth + 1)),
        Value::Object(map) => {
            let mut wrapped = false;
            map.is_empty()
                || depth < 4
                    && map.iter().all(|(key, value)| {
                        let wraps = WRAPPERS.contains(&key.as_str());
                        wrapped |= wraps;
                        wraps && is_empty_value(value, depth + 1) || METADATA_KEYS.contains(&key.as_str())
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

/// Whether the text only says that nothing was found.
fn says_nothing_found(text: &str) -> bool {
    let body = text.trim_start_matches(['{', '[', '"', '\'']);
    // A longer text that begins with "No data ..." contains results.
    text.lines().filter(|line| !line.trim().is_empty()).count() <= 3
        && (NOTHING.is_match(text) || NOTHING.is_match(after_key(body)))
}

/// Skips one JSON key (`result": "`), as wrappers put it before the message.
fn after_key(text: &str) -> &str {
    const KEYS: [&str; 7] = ["result", "output", "message", "content", "text", "response", "answer"];
    let rest = KEYS.iter().find_map(|key| text.strip_prefix(key));
    rest.map_or(text, |rest| rest.trim_start_matches(['"', '\'', ':', ' ', '[', '{']))
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

/// The purpose of a tool, by the verbs in its name, else by the first word of its description.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    /// To return information: an empty result is a defect.
    Query,
    /// To change a state: the result may be empty.
    Action,
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
