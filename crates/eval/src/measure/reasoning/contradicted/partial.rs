//! Totals of a part: "you have 5 overdue invoices", where the result says that there are more.
//!
//! Principle: a result that says that it is a part of a list (there is another page, more items than it shows) gives
//! neither the number nor the sum of all items. An answer to a request for them that gives the number of items shown,
//! or the sum of one of their columns, has to say that they are a part. Where the tool was called again, the rest may
//! have been read.

use super::exchange::{Exchange, Outcome};
use super::sources::Source;
use crate::measure::reasoning::numbers;
use crate::measure::reasoning::records::{Field, Records, Scalar};
use crate::measure::reasoning::statements::contains_words;

/// Words by which requests ask for all.
const ASKS: [&str; 12] = [
    "how many",
    "how much",
    "total",
    "in total",
    "all",
    "every",
    "sum",
    "number of",
    "altogether",
    "overall",
    "count",
    "add up",
];
/// Words by which an answer says that it read a part, or a request that it wants one.
const PART: [&str; 24] = [
    "first",
    "page",
    "pages",
    "more",
    "at least",
    "further",
    "remaining",
    "rest",
    "shown",
    "showing",
    "listed",
    "so far",
    "top",
    "latest",
    "last",
    "recent",
    "partial",
    "sample",
    "limit",
    "limited",
    "loaded",
    "retrieved",
    "only",
    "others",
];
/// Keys of flags for another page, and of what leads to it.
const MORE: [&str; 3] = ["more", "truncated", "incomplete"];
const NEXT: [&str; 3] = ["next", "cursor", "continuation"];
/// Keys of the number of all items.
const ALL: [&str; 3] = ["total", "count", "totalcount"];

pub(super) fn check(exchange: &Exchange<'_>, outcome: &mut Outcome) {
    let asked = exchange.asked();
    if !exchange.has_digits
        || exchange.clauses.is_empty()
        || !ASKS.iter().any(|word| contains_words(asked, word))
    {
        return;
    }
    for source in &exchange.sources.structured {
        let Some(parsed) = &source.parsed.0 else { continue };
        if !exchange.spends(1 + parsed.records.len() / 8) {
            return;
        }
        let Some((field, list)) = part(parsed) else { continue };
        outcome.examined = true;
        if is_read_on(exchange, source) || says_part(exchange) {
            return;
        }
        let Some(shown) = parsed.lists.get(list).map(|list| list.len) else { continue };
        if let Some(sentence) = totals(exchange, parsed, list, shown) {
            let returned = format!("{}: {}, with {shown} items", field.name.join(" "), field.shown());
            outcome.contradicts(&returned, source.call.name.trim(), Some(source.call.at), sentence);
            return;
        }
    }
}

/// The field that says that a result has a part of its only list, and that list.
fn part(parsed: &Records) -> Option<(&Field, usize)> {
    let mut of_things = parsed.lists.iter().enumerate().filter(|(at, list)| {
        list.len > 1
            && !list.of_numbers
            && parsed.records.iter().any(|r| r.list == Some(*at) && r.parent.is_none_or(|p| p == 0))
    });
    let (list, len) =
        of_things.next().filter(|_| of_things.next().is_none()).map(|(at, list)| (at, list.len))?;
    let is_envelope = |at: usize| parsed.records.get(at).is_some_and(|record| record.list.is_none());
    let envelope =
        parsed.records.iter().enumerate().filter(|(at, _)| is_envelope(*at)).map(|(_, record)| record);
    let says_part = |field: &&Field| {
        let has = |words: &[&str]| field.name.iter().any(|word| words.contains(&word.as_str()));
        match &field.value {
            Scalar::Bool(is) => *is && has(&MORE),
            Scalar::Text(text) => has(&NEXT) && !text.is_empty(),
            Scalar::Number(n) => {
                has(&NEXT) && *n > 1.0 || has(&ALL) && field.name.len() <= 2 && *n > len as f64
            }
        }
    };
    envelope.flat_map(|record| &record.fields).find(says_part).map(|field| (field, list))
}

/// Whether the tool was called again, so that the other pages may have been read.
fn is_read_on(exchange: &Exchange<'_>, source: &Source<'_>) -> bool {
    exchange.sources.calls.iter().filter(|call| call.name == source.call.name).count() > 1
}

/// Whether the request or the answer is about a part.
pub(super) fn says_part(exchange: &Exchange<'_>) -> bool {
    let asked = exchange.asked();
    let is_said = |word: &&str| exchange.clauses.iter().any(|clause| clause.has(word));
    PART.iter().any(|word| contains_words(asked, word) || is_said(word))
}

/// The sentence that gives the number of the items shown, or a sum of one of their columns.
fn totals<'a>(exchange: &Exchange<'a>, parsed: &Records, list: usize, shown: usize) -> Option<&'a str> {
    let rows = || parsed.records.iter().filter(|record| record.list == Some(list));
    let columns = rows().next()?.fields.iter().filter(|field| field.number().is_some());
    let sums: Vec<f64> = columns
        .map(|column| {
            rows()
                .flat_map(|row| &row.fields)
                .filter(|f| f.name == column.name)
                .filter_map(Field::number)
                .sum()
        })
        .collect();
    let given = numbers::all(exchange.task);
    let is_given = |value: f64| given.iter().any(|of| of.value == value);
    // "The five invoices of the list": what the request limits, and what tells the number of all.
    let told = numbers::all(&exchange.prose);
    let is_all = |field: &Field| {
        let is_count = field.name.iter().any(|word| ALL.contains(&word.as_str()));
        is_count && field.number().is_some_and(|n| n > shown as f64 && told.iter().any(|of| of.value == n))
    };
    let mut envelope =
        parsed.records.iter().filter(|record| record.list.is_none()).flat_map(|record| &record.fields);
    if is_given(shown as f64) || envelope.any(is_all) {
        return None;
    }
    let is_total = |n: &numbers::Number| {
        let is_count = n.value == shown as f64 && !n.fractional;
        let is_sum =
            sums.iter().any(|sum: &f64| sum.abs() > 20.0 && (sum.abs() - n.value).abs() <= n.tolerance);
        !n.in_identifier && (is_count || is_sum) && !is_given(n.value)
    };
    let mut stated = exchange.clauses.iter().filter(|clause| !clause.modal && !clause.negated);
    stated.find(|clause| numbers::all(&clause.words).iter().any(is_total)).map(|clause| clause.sentence)
}
