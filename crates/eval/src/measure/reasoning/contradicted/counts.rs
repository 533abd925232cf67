//! Counts: the answer counts more items than the results list.
//!
//! Fewer are no contradiction, since the model may have selected some. A number that the model has seen, or
//! that adds up several lists, is no contradiction either.

use super::exchange::{Exchange, Outcome};
use crate::measure::reasoning::numbers;
use crate::measure::reasoning::records::{List, Scalar};
use crate::measure::reasoning::statements::{Clause, contains_words};

/// Keys of lists that say nothing of their items.
const GENERIC: [&str; 12] = [
    "items", "results", "data", "records", "hits", "rows", "entries", "list", "content", "values", "matches",
    "value",
];
/// Keys that say that there are more items than are listed.
const MORE: [&str; 6] = ["more", "next", "truncated", "page", "cursor", "offset"];
const MAX_COUNT: usize = 1000;

pub(super) fn check(exchange: &Exchange<'_>, outcome: &mut Outcome) {
    let lists: Vec<(&List, usize)> = exchange
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
                .filter(|l| !l.of_numbers)
                .map(move |list| (list, at))
        })
        .collect();
    let (Some(longest), all) =
        (lists.iter().map(|(l, _)| l.len).max(), lists.iter().map(|(l, _)| l.len).sum::<usize>())
    else {
        return;
    };
    let pages = exchange.sources.records().flat_map(|(_, _, record)| &record.fields).any(|field| {
        field.name.iter().any(|word| MORE.contains(&word.as_str())) && field.value != Scalar::Bool(false)
    });
    if pages || !exchange.sources.prose.is_empty() {
        return;
    }
    for (nth, clause) in
        exchange.clauses.iter().enumerate().filter(|(_, clause)| !clause.modal && !clause.negated)
    {
        let asked = nth == 0 && contains_words(&exchange.asked, "how many");
        let Some((count, list)) = counted(clause, &lists, asked) else { continue };
        outcome.examined = true;
        let seen =
            |text: &str| numbers::all(text).iter().any(|n| n.value == count as f64) || spells(text, count);
        let known = count <= longest || count == all || exchange.sources.seen.iter().any(|text| seen(text));
        let derived = || {
            exchange
                .sources
                .structured
                .iter()
                .filter_map(|s| s.parsed.0.as_ref())
                .any(|parsed| parsed.aggregates.contains(&(count as f64)))
        };
        if let Some(source) = exchange.sources.structured.get(list).filter(|_| !known && !derived()) {
            let returned = format!("{longest} {}", if longest == 1 { "item" } else { "items" });
            outcome.contradicts(&returned, source.call.name.trim(), Some(source.call.at), clause.sentence);
            return;
        }
    }
}

fn spells(text: &str, count: usize) -> bool {
    numbers::spelled(count as f64)
        .is_some_and(|word| super::sources::contains_ignoring_case(text, &format!(" {word} ")))
}

/// The number that a clause gives of the items of a list, and the source of the list.
fn counted(clause: &Clause<'_>, lists: &[(&List, usize)], asked: bool) -> Option<(usize, usize)> {
    let words: Vec<&str> = clause.words.split_whitespace().collect();
    words.iter().enumerate().find_map(|(at, word)| {
        let count = count_of(word)?;
        let noun = |list: &List| {
            let name = list.name.last().map(String::as_str).unwrap_or_default();
            let is_plain = !name.is_empty() && !GENERIC.contains(&name);
            is_plain && words.iter().skip(at + 1).take(3).any(|word| *word == name)
        };
        let named = lists.iter().find(|(list, _)| noun(list));
        let only = || lists.first().filter(|_| asked && lists.len() == 1 && words.len() > at);
        named.or_else(only).map(|(_, source)| (count, *source))
    })
}

/// A count as digits or as a word.
fn count_of(word: &str) -> Option<usize> {
    let digits = || word.parse::<usize>().ok();
    let spelled = || (2..=20).find(|n| numbers::spelled(*n as f64).as_deref() == Some(word));
    digits().or_else(spelled).filter(|count| (1..=MAX_COUNT).contains(count))
}
