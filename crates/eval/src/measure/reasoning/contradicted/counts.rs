//! Wrong counts: the answer counts more items than a list of the results has, or more items than have a flag.
//!
//! Principle: an answer does not count more things than the results have. A smaller count may be a selection and is not
//! compared. A number that a text has, or that is the sum of several lists, is not a contradiction.
//!
//! In: the clauses of an answer with a count, and the lists of results. Out: contradictions.

use std::collections::BTreeMap;

use foldhash::HashSet;

use super::exchange::{Exchange, ExchangeFindings};
use super::predicates::{assertion, has_state_key, opposite_words};
use super::sources::ResultSource;
use crate::measure::identifier::identifier_words;
use crate::measure::language::WordClass;
use crate::measure::numbers;
use crate::measure::reasoning::arithmetic::is_unit;
use crate::measure::reasoning::statements::{Clause, contains_words, words_of};
use crate::measure::records::{FieldValue, Record, RecordField, RecordList};
use crate::pattern::contains_ignoring_case;

/// Keys of lists that do not describe their items.
const GENERIC_LIST_KEYS: [&str; 12] = [
    "items", "results", "data", "records", "hits", "rows", "entries", "list", "content", "values", "matches",
    "value",
];
/// Words in keys by which a result states that there are more items than it lists.
const MORE_ITEMS_KEYS: [&str; 6] = ["more", "next", "truncated", "page", "cursor", "offset"];
/// The largest count that is compared.
const MAX_COUNT: usize = 1000;
/// Maximum aggregates of which pairs are combined.
const MAX_SUMS: usize = 64;
/// Minimum items of one list or object whose flags are counted.
const MIN_ITEMS: usize = 2;
/// Minimum bytes of a word between a count and a state, which is a noun or an adjective.
const MIN_NOUN: usize = 4;
/// Maximum words after "how many" that name the counted things.
const MAX_ASKED_WORDS: usize = 3;
/// Maximum words from a count to the flag that belongs to it.
const MAX_TO_FLAG: usize = 4;

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let stated = exchange.clauses.iter().filter(|clause| !clause.modal && !clause.negated);
    // Most answers count nothing.
    if !stated.flat_map(|clause| clause.words.split_whitespace()).any(|word| count_of(word).is_some()) {
        return;
    }
    check_flagged(exchange, findings);
    check_lists(exchange, findings);
}

/// The items of one list or object, with one of their flags.
struct FlaggedItems<'a> {
    /// The word for the flag, or a word for its opposite: "offline" for `online: false`.
    word: &'a str,
    key: &'a str,
    /// The value of the flag that the word means.
    holds: bool,
    /// The number of items with that value; of a state, those that do not have the opposite one.
    count: usize,
    /// Whether `count` is an upper limit, since "open" may include pending items.
    is_maximum: bool,
    source: &'a ResultSource<'a>,
    /// The indices of the items among the records of the source.
    items: Vec<usize>,
}

impl FlaggedItems<'_> {
    /// Whether the number distinguishes one item from the others: "Rooms 204 and 205 are free".
    fn is_label(&self, number: f64) -> bool {
        let records = self.source.parsed.0.as_ref().map(|parsed| &parsed.records);
        let fields = || self.items.iter().filter_map(|at| records?.get(*at)).flat_map(|item| &item.fields);
        let distinct_values = |field: &RecordField| {
            let column = fields().filter(|other| other.name == field.name);
            let values: HashSet<u64> = column.filter_map(RecordField::number).map(f64::to_bits).collect();
            values.len()
        };
        let mut matching_fields = fields().filter(|field| field.number() == Some(number));
        matching_fields.any(|field| distinct_values(field) == self.items.len())
    }
}

/// The grammatical number of an auxiliary verb.
fn number_of_verb(word: &str) -> Option<usize> {
    match word {
        "is" | "was" | "has" | "isn't" | "wasn't" | "hasn't" => Some(1),
        "are" | "were" | "have" | "aren't" | "weren't" | "haven't" => Some(2),
        _ => None,
    }
}

/// Adds a finding for a wrong count of items with a flag: "11 available options", where 10 of the items have
/// `available: true`. A smaller count is a contradiction only if the request asks how many and names no other property
/// of the items.
fn check_flagged(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let groups: Vec<FlaggedItems<'_>> = exchange.sources.structured.iter().flat_map(flagged_items).collect();
    for clause in exchange.clauses.iter().filter(|clause| !clause.modal && !clause.negated) {
        let words: Vec<&str> = clause.words.split_whitespace().collect();
        let stated_count = words.iter().enumerate().find_map(|(at, word)| {
            let count = count_of(word)?;
            exchange.spends(1 + groups.len()).then_some(())?;
            // In "three of the five devices", three is the count, and not five.
            let is_after_of = |at: usize| {
                let before = words.get(..at).unwrap_or_default();
                matches!(before, [.., "of"] | [.., "of", "the" | "all" | "your" | "these"])
            };
            // A number before a verb in the singular names one thing: "Room 204 is free", "the 10 am slot is free".
            let mut following_words = words.iter().skip(at + 1);
            let is_one = count > 1 && following_words.find_map(|word| number_of_verb(word)) == Some(1);
            let is_part = words.get(at + 1) == Some(&"of");
            let max_words = if is_part { 2 * MAX_TO_FLAG } else { MAX_TO_FLAG };
            let nearby_words = words.get(at + 1..).filter(|_| !is_after_of(at))?.iter().take(max_words);
            let is_meant = |group: &&FlaggedItems<'_>| {
                let flag_position = nearby_words.clone().position(|word| *word == group.word);
                // In "six lines in open orders", the count is about lines and not about orders.
                let mut before = nearby_words.clone().take(flag_position.unwrap_or_default());
                flag_position.is_some() && (!group.is_maximum || before.all(|word| word.len() >= MIN_NOUN))
            };
            let group = groups.iter().filter(|_| !is_one).find(is_meant)?;
            if !exchange.spends(group.items.len()) || group.is_label(count as f64) {
                return None;
            }
            Some((count, group.word, words.get(at + 1).copied().unwrap_or_default()))
        });
        let Some((count, flag, thing)) = stated_count else { continue };
        if !exchange.spends(groups.len()) || !exchange.spends_numbers() {
            return;
        }
        findings.examined = true;
        let flag_groups = || groups.iter().filter(|group| group.word == flag);
        let total: usize = flag_groups().map(|group| group.count).sum();
        let largest = flag_groups().map(|group| group.count).max().unwrap_or_default();
        let is_maximum = flag_groups().any(|group| group.is_maximum);
        let asks_how_many = contains_words(exchange.task_words(), "how many")
            && !is_maximum
            && !flag_groups().any(|group| names_property(exchange, group));
        let differs = count > if is_maximum { total } else { largest }
            || asks_how_many && flag_groups().all(|group| group.count != count);
        // A list may be a page of more things, which a total in the result counts.
        let is_total = || {
            let mut fields = exchange.sources.records().flat_map(|(.., record)| &record.fields);
            fields.any(|field| field.number() == Some(count as f64))
        };
        if is_maximum && is_total() {
            continue;
        }
        // The user may have stated the count of the same things.
        let is_user_stated = exchange.sources.from_user.iter().any(|text| counts_things(text, count, thing));
        if let Some(group) =
            flag_groups().max_by_key(|g| g.count).filter(|_| differs && count != total && !is_user_stated)
        {
            let returned =
                format!("{largest} of {} items with {}: {}", group.items.len(), group.key, group.holds);
            let call = group.source.call;
            findings.contradicts(&returned, call, clause.sentence);
            return;
        }
    }
}

/// The list of a record, and the index of the record that contains it.
type RecordPosition = (Option<usize>, Option<usize>);

/// The flags of the items in a result's lists, and in its objects with one item for each key.
fn flagged_items<'a>(source: &'a ResultSource<'a>) -> Vec<FlaggedItems<'a>> {
    let Some(parsed) = &source.parsed.0 else { return Vec::new() };
    let mut groups: BTreeMap<RecordPosition, Vec<(usize, &Record)>> = BTreeMap::new();
    for (at, record) in parsed.records.iter().enumerate() {
        groups.entry((record.list, record.parent)).or_default().push((at, record));
    }
    let mut out = Vec::new();
    for items in groups.into_values().filter(|items| items.len() >= MIN_ITEMS) {
        let Some((_, first)) = items.first() else { continue };
        let flags = first.fields.iter().filter(|f| matches!(f.value, FieldValue::Bool(_)));
        for word in flags.filter_map(|flag| flag.name.last()).filter(|word| word.len() >= 4) {
            let value = |item: &Record| {
                let has =
                    |f: &&RecordField| f.name.last() == Some(word) && matches!(f.value, FieldValue::Bool(_));
                item.fields.iter().find(has).map(|f| f.value == FieldValue::Bool(true))
            };
            let values: Vec<bool> = items.iter().filter_map(|(_, item)| value(item)).collect();
            if values.len() == items.len() {
                let opposites =
                    assertion(word).into_iter().flat_map(opposite_words).map(|form| (form, false));
                for (form, holds) in opposites.chain([(word.as_str(), true)]) {
                    let count = values.iter().filter(|state| **state == holds).count();
                    let items = items.iter().map(|(at, _)| *at).collect();
                    let is_maximum = false;
                    out.push(FlaggedItems { word: form, key: word, holds, count, is_maximum, source, items });
                }
            }
        }
        out.extend(items_by_state(source, &items));
    }
    out
}

/// The items of a list by their state, if each has one. The count of a state is an upper limit: all items that do not
/// have the opposite state.
fn items_by_state<'a>(source: &'a ResultSource<'a>, items: &[(usize, &'a Record)]) -> Vec<FlaggedItems<'a>> {
    let states: Option<Vec<&RecordField>> = items
        .iter()
        .map(|(_, item)| item.fields.iter().find(|field| has_state_key(&field.name) && field.is_text()))
        .collect();
    let states = states.unwrap_or_default();
    let mut out: Vec<FlaggedItems<'a>> = Vec::new();
    for state in &states {
        let (Some(word), Some(key)) = (state.text(), state.name.last()) else { continue };
        let Some((predicate, holds)) =
            assertion(word).filter(|_| !out.iter().any(|group| group.word == word))
        else {
            continue;
        };
        let is_opposite = |other: &&&RecordField| {
            let asserted = other.text().and_then(assertion);
            asserted.is_some_and(|(other, other_holds)| other == predicate && other_holds != holds)
        };
        let count = states.len() - states.iter().filter(is_opposite).count();
        let items = items.iter().map(|(at, _)| *at).collect();
        out.push(FlaggedItems { word, key, holds, count, is_maximum: true, source, items });
    }
    out
}

/// Whether the request names a value of the items or of the records in them.
fn names_property(exchange: &Exchange<'_>, group: &FlaggedItems<'_>) -> bool {
    let Some(parsed) = &group.source.parsed.0 else { return true };
    let is_within_items = |mut at: usize| {
        while let Some(parent) = parsed.records.get(at).and_then(|record| record.parent).filter(|p| *p < at) {
            if group.items.contains(&at) {
                return true;
            }
            at = parent;
        }
        group.items.contains(&at)
    };
    let item_records =
        parsed.records.iter().enumerate().filter(|(at, _)| is_within_items(*at)).map(|(_, record)| record);
    let mut values = item_records.flat_map(|record| &record.fields).filter_map(RecordField::text);
    values.any(|text| text.len() > 1 && contains_words(exchange.task_words(), text))
}

/// Adds a finding for a count of items that is larger than the longest list.
fn check_lists(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let lists: Vec<(&RecordList, usize)> = exchange
        .sources
        .structured
        .iter()
        .enumerate()
        .flat_map(|(at, source)| {
            source
                .parsed
                .0
                .iter()
                .flat_map(|p| &p.lists)
                .filter(|l| !l.is_numeric)
                .map(move |list| (list, at))
        })
        .collect();
    let (Some(longest_len), all) =
        (lists.iter().map(|(l, _)| l.len).max(), lists.iter().map(|(l, _)| l.len).sum::<usize>())
    else {
        return;
    };
    let has_more_items = exchange.sources.records().flat_map(|(_, _, record)| &record.fields).any(|field| {
        field.name.iter().any(|word| MORE_ITEMS_KEYS.contains(&word.as_str()))
            && field.value != FieldValue::Bool(false)
    });
    if has_more_items || !exchange.sources.prose.is_empty() {
        return;
    }
    for (nth, clause) in
        exchange.clauses.iter().enumerate().filter(|(_, clause)| !clause.modal && !clause.negated)
    {
        let asks_how_many = nth == 0
            && contains_words(exchange.task_words(), "how many")
            && !asks_for_units(exchange.task_words())
            && !asks_for_field(exchange);
        let Some((count, list)) = counted_list(exchange, clause, &lists, asks_how_many) else { continue };
        if !exchange.spends_numbers() {
            return;
        }
        findings.examined = true;
        let has_count = |text: &str| {
            numbers::all(text).iter().any(|n| n.value == count as f64) || has_count_in_words(text, count)
        };
        let request_words = exchange.language.map(|language| language.places(exchange.task, exchange.memo));
        let is_in_request = request_words
            .iter()
            .flat_map(|words| words.iter())
            .any(|place| place.classes.has(WordClass::Number) && usize::from(place.value) == count);
        // A selection of the things in several lists of one tool, such as pages.
        let tool_of = |at: usize| exchange.sources.structured.get(at).map(|source| source.call.name.trim());
        let tool_lengths = lists.iter().filter(|(_, at)| tool_of(*at) == tool_of(list)).map(|(l, _)| l.len);
        let is_known = count <= longest_len.max(tool_lengths.sum())
            || count == all
            || is_in_request
            || exchange.sources.seen.iter().any(|text| has_count(text));
        let derived = || {
            exchange
                .sources
                .structured
                .iter()
                .filter_map(|s| s.parsed.0.as_ref())
                .any(|parsed| follows_from_sums(parsed.aggregates(), count as f64))
        };
        if let Some(source) = exchange.sources.structured.get(list).filter(|_| !is_known && !derived()) {
            let returned = format!("{longest_len} {}", if longest_len == 1 { "item" } else { "items" });
            findings.contradicts(&returned, source.call, clause.sentence);
            return;
        }
    }
}

/// Whether "how many" asks for an amount of a unit, such as minutes or kilometres, and not for items.
fn asks_for_units(request_words: &str) -> bool {
    // The unit may be the second word: "how many hours", "how many vacation days".
    let mut nouns =
        request_words.split_once(" how many ").into_iter().flat_map(|(_, rest)| rest.split(' ').take(2));
    nouns.any(is_unit)
}

/// Whether "how many" asks for a number that a field has ("how many conversions"), or for a difference ("how many
/// more"), and not for items.
fn asks_for_field(exchange: &Exchange<'_>) -> bool {
    let words_after =
        exchange.task_words().split_once(" how many ").map_or("", |(_, words_after)| words_after);
    let nouns: Vec<&str> = words_after.split(' ').take(MAX_ASKED_WORDS).collect();
    let is_asked = |field: &RecordField| {
        field.number().is_some() && field.name.last().is_some_and(|key| nouns.contains(&key.as_str()))
    };
    let is_difference =
        exchange.language.is_none_or(|language| language.classes(&nouns.join(" ")).has(WordClass::Increment));
    is_difference || exchange.sources.records().flat_map(|(.., record)| &record.fields).any(is_asked)
}

/// Whether a value is one of the sums, or the sum or the difference of two: the stock less the reserved items.
fn follows_from_sums(sums: &[f64], value: f64) -> bool {
    let first = sums.get(..MAX_SUMS).unwrap_or(sums);
    sums.contains(&value)
        || first.iter().enumerate().any(|(at, a)| {
            let mut others = first.iter().skip(at + 1);
            others.any(|b| a + b == value || (a - b).abs() == value)
        })
}

/// Whether a text of the user has the count directly before the word `thing`.
fn counts_things(text: &str, count: usize, thing: &str) -> bool {
    let words = words_of(text);
    let mut pairs = words.split_whitespace().zip(words.split_whitespace().skip(1));
    pairs.any(|(number, next)| count_of(number) == Some(count) && next == thing)
}

/// Whether a text has the count as a word.
fn has_count_in_words(text: &str, count: usize) -> bool {
    numbers::spelled(count as f64).is_some_and(|word| contains_ignoring_case(text, &format!(" {word} ")))
}

/// The count of a list's items that a clause states, and the index of the list's source.
fn counted_list(
    exchange: &Exchange<'_>,
    clause: &Clause<'_>,
    lists: &[(&RecordList, usize)],
    asks_how_many: bool,
) -> Option<(usize, usize)> {
    let words: Vec<&str> = clause.words.split_whitespace().collect();
    words.iter().enumerate().find_map(|(at, word)| {
        let count = count_of(word)?;
        exchange.spends(1 + lists.len()).then_some(())?;
        // "72 minutes of downtime" is an amount, and counts no results of `downtime_log`.
        let unit = words.get(at + 1).filter(|next| is_unit(next));
        let noun = |(list, source): &&(&RecordList, usize)| {
            let name = list.name.last().map(String::as_str).unwrap_or_default();
            // The key of amounts ends in their unit: `intake_ml`.
            if is_unit(name) {
                return false;
            }
            let is_plain = !name.is_empty() && !GENERIC_LIST_KEYS.contains(&name);
            let follows_number = |name: &str| words.iter().skip(at + 1).take(3).any(|word| *word == name);
            // A list without a specific name has the things that its tool is named for.
            let tool = exchange.sources.structured.get(*source).map(|source| &source.call.name);
            let matches_tool =
                || tool.is_some_and(|tool| identifier_words(tool).iter().any(|noun| follows_number(noun)));
            match is_plain {
                true => follows_number(name) && unit.is_none_or(|unit| *unit == name),
                false => unit.is_none() && lists.len() == 1 && matches_tool(),
            }
        };
        let named = lists.iter().find(noun);
        let only = || lists.first().filter(|_| asks_how_many && lists.len() == 1 && words.len() > at);
        named.or_else(only).map(|(_, source)| (count, *source))
    })
}

/// A count as digits or as a word.
fn count_of(word: &str) -> Option<usize> {
    let count = match word.bytes().next() {
        Some(b'0'..=b'9' | b'+') => word.parse::<usize>().ok(),
        _ => numbers::from_word(word),
    };
    count.filter(|count| (1..=MAX_COUNT).contains(count))
}
