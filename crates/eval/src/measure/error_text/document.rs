//! Documents that begin like an error report: an article about a status code, a story of an error, a page of a manual.
//!
//! In: a text, and its beginning that matched the pattern of an error report. Out: whether the text is a document.
//! An error report is short, or has a structure or a stack trace. A document consists of sentences, and repeats the
//! name of its subject.

use super::{headline, uncaught};
use crate::measure::defects::clip;

/// Maximum bytes of a text that a sentence such as "Failed to open the page" makes an error report; a longer
/// text that begins with it is prose.
pub(super) const MAX_SENTENCE_REPORT_BYTES: usize = 600;
/// Maximum bytes of a text that are read.
const READ_BYTES: usize = 4 << 10;
/// Minimum sentences of a document.
const MIN_SENTENCES: usize = 3;
/// Minimum words of a sentence.
const MIN_WORDS: usize = 7;
/// Minimum repetitions of the subject in a document.
const MIN_REPETITIONS: usize = 2;
/// Minimum lines of a text that describes the end of a run.
const MIN_LINES: usize = 4;
/// Maximum bytes of a title.
const MAX_TITLE_BYTES: usize = 120;

// An HTTP status code or the name of an exception, which may be the subject of an article.
regex!(
    SUBJECT,
    r"^\W*(?:(?:(?i:http|status|error|code)[\W\d]*?)*([45]\d\d)\b|((?:\w+\.)*[A-Z]\w+?(?:Error|Exception|Fault|Failure|Timeout|NotFound|Refused|Denied|Exceeded))\b)"
);
// The beginning of a story, or of an error report.
regex!(STORY, r"(?i)^(?:an?|some|the following|there was an?)\s");

/// Whether `text`, whose beginning `matched` the pattern of an error report, is a document about the error.
pub(super) fn is_about(text: &str, matched: &str) -> bool {
    if text.len() <= MAX_SENTENCE_REPORT_BYTES {
        return false;
    }
    if STORY.is_match(matched) {
        return has_sentences(text);
    }
    let subject = SUBJECT
        .captures(matched)
        .and_then(|captures| captures.get(1).or(captures.get(2)))
        .map(|subject| subject.as_str());
    let is_repeated = |subject: &str| {
        let rest = clip(text, READ_BYTES).get(matched.len()..).unwrap_or_default();
        rest.matches(subject).nth(MIN_REPETITIONS - 1).is_some()
    };
    match subject {
        Some(subject) => is_repeated(subject) && has_sentences(text),
        // A colon precedes the message of an error.
        None => title(text).is_some_and(|title| !title.contains(": ") && !matched.contains(':')),
    }
}

/// Whether an error text is a part of a document: its title, the end of a quotation or log, or the end of a run that
/// it describes. For results of tools that return documents.
pub(super) fn contains_error(text: &str) -> bool {
    let has_text_before = || {
        let start = uncaught::at_end(text)?.as_ptr().addr() - text.as_ptr().addr();
        text.get(..start).map(|before| !before.trim().is_empty())
    };
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    match headline::find(text) {
        Some(headline) => lines.next() != Some(headline.line) && lines.nth(MIN_LINES - 2).is_some(),
        None => {
            text.len() > MAX_SENTENCE_REPORT_BYTES && title(text).is_some() || has_text_before() == Some(true)
        }
    }
}

/// The first line, if it is a title: an empty line and sentences follow it.
fn title(text: &str) -> Option<&str> {
    let (title, body) = text.trim_start().split_once("\n\n")?;
    (title.len() <= MAX_TITLE_BYTES && !title.contains('\n') && has_sentences(body)).then_some(title)
}

/// Whether more than half of the text consists of sentences of words.
fn has_sentences(text: &str) -> bool {
    let head = clip(text, READ_BYTES);
    let is_word =
        |word: &&str| word.trim_matches(|c: char| !c.is_alphanumeric()).chars().all(char::is_alphabetic);
    let (mut sentences, mut bytes) = (0, 0);
    for sentence in head.split(". ").flat_map(str::lines) {
        let words = sentence.split_whitespace().count();
        if words >= MIN_WORDS && sentence.split_whitespace().filter(is_word).count() * 5 >= words * 4 {
            sentences += 1;
            bytes += sentence.len();
        }
    }
    sentences >= MIN_SENTENCES && bytes * 2 > head.len()
}
