//! Totals of a part of a list: "you have 5 overdue invoices", where the result states that there are more.
//!
//! Principle: a result that is only a part of a list, by a flag, a next page or a larger total, has neither the number
//! nor the sum of all items. An answer to a request for all items that gives the number of the returned items, or the
//! sum of one of their columns, has to state that they are a part. If the tool was called again, the other parts may
//! have been read.
//!
//! In: the request, the clauses of an answer, and the lists of results. Out: one contradiction.

use foldhash::HashMap;
use verdict_otlp::trace::Idx;

use super::exchange::{Exchange, ExchangeFindings};
use super::sources::ResultSource;
use crate::measure::identifier::identifier_words;
use crate::measure::language::{Language, WordClass};
use crate::measure::numbers;
use crate::measure::records::{FieldValue, RecordField, Records};
use crate::measure::vocabulary::{self, WordMeaning};

/// Words by which a request asks for all items.
const ASKS_FOR_ALL: [WordMeaning; 2] = [WordMeaning::HowMany, WordMeaning::Total];
/// Words in keys, together with "next", for the next part of a list.
const POSITION_WORDS: [&str; 9] =
    ["page", "cursor", "token", "url", "link", "offset", "marker", "start", "key"];
/// Words in keys of the number of all items.
const TOTAL_WORDS: [&str; 3] = ["total", "count", "totalcount"];
/// Words in keys of the maximum number of items of a page.
const PAGE_SIZE_WORDS: [&str; 8] = ["limit", "size", "page", "top", "max", "results", "count", "rows"];
/// Maximum arguments of a call that are read.
const MAX_ARGUMENTS: usize = 40;

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    if exchange.clauses.is_empty() || !asks_for_all(exchange) {
        return;
    }
    for source in &exchange.sources.structured {
        let Some(parsed) = &source.parsed.0 else { continue };
        // Each list is compared with the fields of the outermost record and with all records.
        let root = parsed.records.first().map_or(0, |root| root.fields.len());
        let records = parsed.records.len();
        if !exchange.spends(1 + records / 8 + parsed.lists.len().saturating_mul(root + records) / 8) {
            return;
        }
        let Some((field, list)) = part_of_list(source, parsed) else { continue };
        findings.examined = true;
        if is_called_again(exchange, source) || mentions_part(exchange) {
            return;
        }
        let Some(shown) = parsed.lists.get(list).map(|list| list.len) else { continue };
        if !exchange.spends(parsed.records.iter().map(|record| record.fields.len()).sum::<usize>() / 8) {
            return;
        }
        if let Some(sentence) = stated_total(source.call.at, exchange, parsed, list, shown) {
            let returned = format!("{}: {}, with {shown} items", field.name.join(" "), field.shown());
            findings.contradicts(&returned, source.call, sentence);
            return;
        }
    }
}

/// The field by which a result is only a part of its only list, and the index of that list; `None` if it is not a part.
fn part_of_list<'e>(source: &ResultSource<'_>, parsed: &'e Records) -> Option<(&'e RecordField, usize)> {
    let is_top = |parent: Option<usize>| parent.is_none_or(|at| at == 0);
    // The outermost record has the fields about the list.
    let root = parsed.records.first().filter(|root| root.list.is_none())?;
    let mut item_lists = parsed.lists.iter().enumerate().filter(|(at, list)| {
        let has_items = || parsed.records.iter().any(|r| r.list == Some(*at) && is_top(r.parent));
        // A list of texts has no records; its texts are fields of the record around it.
        let has_texts = || root.fields.iter().filter(|f| f.name == list.name).count() == list.len;
        list.len > 1 && !list.is_numeric && (has_items() || has_texts())
    });
    let (list, len) =
        item_lists.next().filter(|_| item_lists.next().is_none()).map(|(at, list)| (at, list.len))?;
    let children = parsed.records.iter().filter(|record| record.list.is_none() && record.parent == Some(0));
    let envelope = || std::iter::once(root).chain(children.clone()).flat_map(|record| &record.fields);
    let has = |name: &[String], words: &[&str]| name.iter().any(|word| words.contains(&word.as_str()));
    let is_of_page =
        |name: &[String]| name.iter().any(|word| vocabulary::has_meaning(word, WordMeaning::Page));
    let is_flag =
        |field: &&RecordField| is_flag_of_more(&field.name) && matches!(field.value, FieldValue::Bool(_));
    let flag = envelope().find(is_flag);
    if let Some(flag) = flag {
        return (flag.value == FieldValue::Bool(true)).then_some((flag, list));
    }
    let is_next_position = |field: &&RecordField| {
        let may_be_position = match &field.value {
            FieldValue::Text(text) => !text.is_empty() && !text.contains(' '),
            FieldValue::Number(n) => *n > 1.0,
            FieldValue::Bool(_) => false,
        };
        may_be_position && has(&field.name, &["next", "continuation"]) && has(&field.name, &POSITION_WORDS)
    };
    // Whether the page has its maximum number of items.
    let is_full = || {
        let is_page_size = |field: &&RecordField| {
            (has(&field.name, &PAGE_SIZE_WORDS) || is_of_page(&field.name))
                && field.number() == Some(len as f64)
        };
        let arguments = source.call.parsed.as_deref().and_then(|arguments| arguments.as_object());
        let is_limit = |(key, value): (&String, &serde_json::Value)| {
            has(&identifier_words(key), &PAGE_SIZE_WORDS) && value.as_u64() == Some(len as u64)
        };
        envelope().any(|field| is_page_size(&field))
            || arguments.is_some_and(|map| map.iter().take(MAX_ARGUMENTS).any(is_limit))
    };
    let is_larger_total = |field: &&RecordField| {
        has(&field.name, &TOTAL_WORDS) && field.number().is_some_and(|n| n > len as f64 && n.fract() == 0.0)
    };
    // The number of a page and the count of pages, such as `page: 1` and `pages: 2`.
    let number = |words: &[&str]| {
        let is_named = |field: &&RecordField| {
            let name: Vec<&str> = field.name.iter().map(String::as_str).collect();
            words.iter().any(|word| name.join(" ") == *word) && field.number().is_some()
        };
        envelope().find(is_named)
    };
    let page = number(&["page", "current page", "page number"]).and_then(RecordField::number);
    let is_before_last_page =
        |field: &&RecordField| page.is_some_and(|page| field.number().is_some_and(|pages| page < pages));
    if let Some(pages) =
        number(&["pages", "total pages", "page count", "last page"]).filter(is_before_last_page)
    {
        return Some((pages, list));
    }
    let partial_field =
        envelope().find(is_next_position).or_else(|| envelope().find(is_larger_total).filter(|_| is_full()));
    partial_field.map(|field| (field, list))
}

/// Whether a flag of this name states that there are more items: `has_more`, `hasNextPage`, `truncated`.
fn is_flag_of_more(name: &[String]) -> bool {
    let words: Vec<&str> = name.iter().map(String::as_str).collect();
    matches!(words.as_slice(), ["more"] | ["truncated"] | ["is", "truncated"] | ["has", "more" | "next", ..])
}

/// Whether the tool was called again, so that the other pages may have been read.
fn is_called_again(exchange: &Exchange<'_>, source: &ResultSource<'_>) -> bool {
    exchange.sources.calls.iter().filter(|call| call.name == source.call.name).count() > 1
}

/// Whether the request is about all items.
fn asks_for_all(exchange: &Exchange<'_>) -> bool {
    let has_quantifier =
        |language: Language| language.places(exchange.task, exchange.memo).all().has(WordClass::Quantifier);
    !vocabulary::find(exchange.task, &ASKS_FOR_ALL).is_empty()
        || exchange.language.is_some_and(has_quantifier)
}

/// Whether the request or the answer mentions a part of the items.
pub(super) fn mentions_part(exchange: &Exchange<'_>) -> bool {
    [exchange.task, &exchange.prose].into_iter().any(|text| vocabulary::has(text, WordMeaning::Part))
}

/// The sentence that gives the number of the returned items, or the sum of one of their columns.
fn stated_total<'a>(
    at: Idx,
    exchange: &Exchange<'a>,
    parsed: &Records,
    list: usize,
    shown: usize,
) -> Option<&'a str> {
    let rows = || parsed.records.iter().filter(|record| record.list == Some(list));
    let columns = rows().next().into_iter().flat_map(|row| &row.fields).filter(|f| f.number().is_some());
    let mut sums_by_column: HashMap<&[String], f64> = columns.map(|column| (&column.name[..], 0.0)).collect();
    for field in rows().flat_map(|row| &row.fields) {
        if let (Some(sum), Some(number)) = (sums_by_column.get_mut(&field.name[..]), field.number()) {
            *sum += number;
        }
    }
    let sums: Vec<f64> = sums_by_column.into_values().collect();
    let task_numbers = numbers::all(exchange.task);
    let is_in_request = |value: f64| task_numbers.iter().any(|number| number.value == value);
    // There is no finding if the request has the number, or the answer gives the number of all items.
    let prose_numbers = numbers::all(&exchange.prose);
    let is_stated_total = |field: &RecordField| {
        let is_count = field.name.iter().any(|word| TOTAL_WORDS.contains(&word.as_str()));
        is_count
            && field
                .number()
                .is_some_and(|n| n > shown as f64 && prose_numbers.iter().any(|number| number.value == n))
    };
    let mut envelope =
        parsed.records.iter().filter(|record| record.list.is_none()).flat_map(|record| &record.fields);
    if is_in_request(shown as f64) || envelope.any(is_stated_total) {
        return None;
    }
    // The number may be from another result.
    let mut other_numbers = exchange.sources.structured.iter().filter(|other| other.call.at != at);
    let other_numbers: Vec<f64> = other_numbers
        .by_ref()
        .filter_map(|other| other.parsed.0.as_ref())
        .flat_map(|result| {
            let fields =
                result.records.iter().flat_map(|record| &record.fields).filter_map(RecordField::number);
            fields.chain(result.lists.iter().map(|list| list.len as f64))
        })
        .collect();
    let is_known = |value: f64| other_numbers.contains(&value);
    let is_total = |n: &numbers::Number| {
        let is_count = n.value == shown as f64 && !n.fractional;
        let is_sum =
            sums.iter().any(|sum: &f64| sum.abs() > 20.0 && (sum.abs() - n.value).abs() <= n.tolerance);
        !n.in_identifier && (is_count || is_sum) && !is_in_request(n.value) && !is_known(n.value)
    };
    let mut stated = exchange.clauses.iter().filter(|clause| !clause.modal && !clause.negated);
    stated.find(|clause| numbers::all(&clause.words).iter().any(is_total)).map(|clause| clause.sentence)
}
