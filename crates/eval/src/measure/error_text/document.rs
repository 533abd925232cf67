//! Documents that begin like an error report: an article about a status code, a story of an error, a page of a manual.
//!
//! In: a text, and the words at its beginning that an error report may begin with. Out: whether the text is a document.
//! An error report is short, or has a structure or a trace; a document goes on in sentences. It names its subject
//! again.

use super::{headline, uncaught};
use crate::measure::defects::clip;

/// Maximum bytes of a text that a sentence such as "Failed to open the page" makes an error report; a longer
/// text that begins with it is prose.
pub(super) const SHORT_BYTES: usize = 600;
/// Bytes of a text that are read.
const READ_BYTES: usize = 4 << 10;
/// Least sentences of a document, and words of each.
const MIN_SENTENCES: usize = 3;
const MIN_WORDS: usize = 7;
/// Least further times that a document names its subject.
const MIN_NAMED: usize = 2;
/// Least lines of a text that describes the end of a run.
const MIN_LINES: usize = 4;
/// Most bytes of a title.
const MAX_TITLE: usize = 120;

// A status of HTTP, or the name of an exception: what an article may be about.
regex!(
    SUBJECT,
    r"^\W*(?:(?:(?i:http|status|error|code)[\W\d]*?)*([45]\d\d)\b|((?:\w+\.)*[A-Z]\w+?(?:Error|Exception|Fault|Failure|Timeout|NotFound|Refused|Denied|Exceeded))\b)"
);
// A story may begin so, and so may a report.
regex!(STORY, r"(?i)^(?:an?|some|the following|there was an?)\s");

/// Whether `text`, which begins with the words `found`, is a document about what they name.
pub(super) fn is_about(text: &str, found: &str) -> bool {
    if text.len() <= SHORT_BYTES {
        return false;
    }
    if STORY.is_match(found) {
        return has_sentences(text);
    }
    let subject = SUBJECT
        .captures(found)
        .and_then(|captures| captures.get(1).or(captures.get(2)))
        .map(|subject| subject.as_str());
    let is_named = |subject: &str| {
        let rest = clip(text, READ_BYTES).get(found.len()..).unwrap_or_default();
        rest.matches(subject).nth(MIN_NAMED - 1).is_some()
    };
    match subject {
        Some(subject) => is_named(subject) && has_sentences(text),
        // After a colon is the message of the error.
        None => title(text).is_some_and(|title| !title.contains(": ") && !found.contains(':')),
    }
}

/// Whether what reads as an error is a part of a document: its title, the end of what it quotes or logs, or the end of
/// a run that it describes. For a tool that returns documents.
pub(super) fn has_it_within(text: &str) -> bool {
    let before_end = || {
        let at = uncaught::at_end(text)?.as_ptr().addr() - text.as_ptr().addr();
        text.get(..at).map(|before| !before.trim().is_empty())
    };
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    match headline::find(text) {
        Some(headline) => lines.next() != Some(headline.line) && lines.nth(MIN_LINES - 2).is_some(),
        None => text.len() > SHORT_BYTES && title(text).is_some() || before_end() == Some(true),
    }
}

/// The first line, if it is a title with sentences below an empty line.
fn title(text: &str) -> Option<&str> {
    let (title, body) = text.trim_start().split_once("\n\n")?;
    (title.len() <= MAX_TITLE && !title.contains('\n') && has_sentences(body)).then_some(title)
}

/// Whether most of the text is sentences of words.
fn has_sentences(text: &str) -> bool {
    let read = clip(text, READ_BYTES);
    let is_word =
        |word: &&str| word.trim_matches(|c: char| !c.is_alphanumeric()).chars().all(char::is_alphabetic);
    let (mut sentences, mut bytes) = (0, 0);
    for sentence in read.split(". ").flat_map(str::lines) {
        let words = sentence.split_whitespace().count();
        if words >= MIN_WORDS && sentence.split_whitespace().filter(is_word).count() * 5 >= words * 4 {
            sentences += 1;
            bytes += sentence.len();
        }
    }
    sentences >= MIN_SENTENCES && bytes * 2 > read.len()
}
