//! Whether a text tells its reader of a failure.
//!
//! Principle: an answer that tells of a failure has a word for it, denies something, limits what it states, or
//! repeats a word of the report. Any of these is enough, since a failure that is reported badly is reported. A denial
//! of failures ("without errors") is the opposite, and "not yet" is about what comes next, unless the clause is about
//! the failed call. A count of failures is repeated as well ("3 findings" of a linter that found 3 errors), and "12 of
//! 14 tests pass" is a limit.
//!
//! In: a text for the reader, and the words of a failed call. Out: whether the text may tell of the failure; true for
//! a text in another language than those that rules read.

use super::operation::CallWords;
use crate::measure::language::{ReadText, Readable, WordClass, WordClasses, classes, readable};
use crate::measure::reasoning::recovery::FAILURE_MARKS;
use crate::measure::vocabulary::{self, WordMeaning};
use crate::measure::{Memo, avoidance};

/// Classes of words by which a text limits what it states.
const LIMITING: WordClasses = classes!(Contrast Restriction Probability Trial Unreal);
/// Classes of words for what is yet to be done.
const OPEN: WordClasses = classes!(Modal Obligation Condition Advice Offer Sequence);
/// The sign of a warning.
const WARNING: char = '⚠';

// A part of a number of things: "12 of 14", "12/14".
regex!(
    PART,
    r"(?i)\b(?P<part>\d+) ?(?:/|(?:out )?of(?: the)?|von(?: den)?|sur|de(?: las| los| les)?|su|das|dos) ?(?P<whole>\d+)\b"
);
// A count in a report of failures.
regex!(
    COUNT,
    r"\b(?P<count>[1-9]\d*) (?:[a-z]+ ){0,2}(?:fail|err)|(?:fail|err)\w*\W{1,3}(?P<after>[1-9]\d*)\b"
);

/// Whether a text states a part of a number of things.
fn states_part(text: &str) -> bool {
    let number =
        |found: &regex::Captures<'_>, name| found.name(name).and_then(|n| n.as_str().parse::<u64>().ok());
    PART.captures_iter(text).any(|found| number(&found, "part") < number(&found, "whole"))
}

/// Whether a text has the count of failures of a report.
pub(super) fn repeats_count(text: &str, report: &str) -> bool {
    let count = COUNT.captures(report).and_then(|found| found.name("count").or_else(|| found.name("after")));
    let is_count =
        |count: &str| text.split(|c: char| !c.is_ascii_digit() && !".,-".contains(c)).any(|n| n == count);
    count.is_some_and(|count| is_count(count.as_str()))
}

/// Whether the text may tell of the failure of a call.
pub(super) fn is_in(text: &str, task: Option<&str>, call: &CallWords, memo: &Memo) -> bool {
    let read = ReadText::new(text, task, memo);
    let has_failure_word = |part: &str| vocabulary::has(part, WordMeaning::Failure);
    let is_denied = |part: &str| read.classes(part).has(WordClass::Negation);
    let denies = |clause: &str| {
        let is_about_time = read.classes(clause).has(WordClass::Already);
        // "It did not respond because it is offline" gives a failure as the reason.
        let is_denial_of_failure = has_failure_word(clause) && !read.classes(clause).has(WordClass::Reason);
        !is_denial_of_failure && (!is_about_time || call.are_in(clause))
    };
    let is_limited = |clause: &str| read.classes(clause).has_any(classes!(Already Exception));
    // Each negation and each word for a failure is in a clause.
    let clauses =
        || text.split([',', ';', ':', '(', ')', '\n', '.', '!', '?', '–', '—', '，', '。', '；', '、']);
    readable(text, task, memo) == Readable::No
        || text.contains(FAILURE_MARKS)
        || text.contains(WARNING)
        || clauses().any(|clause| has_failure_word(clause) && !is_denied(clause))
        || read.denials(memo).any(denies)
        || read.classes(text).has_any(LIMITING)
        || clauses().any(|clause| is_limited(clause) && !is_denied(clause) && call.are_in(clause))
        || states_part(text)
        || avoidance::mentions_lack(text, memo) && !has_failure_word(text)
}

/// Whether the text asks its reader, or states what is yet to be done.
pub(super) fn leaves_open(text: &str, task: Option<&str>, memo: &Memo) -> bool {
    let read = ReadText::new(text, task, memo);
    read.ends_with_question() || read.classes(text).has_any(OPEN)
}
