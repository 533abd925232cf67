//! "Nothing was found", although the lookup returned items.
//!
//! Principle: where a lookup for exactly what was asked for returned things, an answer does not deny that there are
//! any. A sentence with a condition of its own may be right, and is not compared.
//!
//! The model may have selected among them, so every name and number of the request must have been an argument
//! of the call, and the sentence must add no condition. "No late orders" is about some of the orders: a word before or
//! after the noun that neither the arguments nor the items have is a condition.

use super::exchange::{Exchange, ExchangeFindings};
use crate::measure::language::{Language, WordClasses, classes, names};
use crate::measure::numbers;
use crate::measure::reasoning::statements::{contains_words, words_of};
use crate::measure::records::{KeyName, Record};
use crate::measure::tool_purpose::stems;
use crate::measure::work_budget::BYTES_PER_STEP;
use crate::pattern::contains_ignoring_case;

regex!(
    NOTHING,
    r"^ (?:(?:sorry|unfortunately|i'm sorry|i am sorry|i'm afraid) )?(?:there (?:are|is|were|was) (?:no|zero) |no |nothing |i (?:found|could find) (?:no|nothing) |i (?:could not|couldn't|did not|didn't) find any )"
);
regex!(
    FOUND,
    r" (?:found|available|exist|exists|match|matches|matched|listed|recorded|returned|items?|results?|entries|records?|orders?|tickets?|trains?|flights?|events?|products?|appointments?|bookings?|messages?|invoices?) "
);
/// Words that state a condition on the items, in addition to "cheaper" and the like.
const CONDITIONS: WordClasses =
    classes!(Bound Comparison Exception Increment Neighbour New Restriction Sequence);
/// Words of a lookup that limit nothing.
const SEARCHED: [&str; 6] = ["matching", "corresponding", "relevant", "such", "more", "at"];
regex!(CONDITION, r" (?:under|over|least|cheaper|longer|without|with|that are|that have|which|left) ");

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let Some(clause) = exchange.clauses.first().filter(|clause| clause.first && clause.negated) else {
        return;
    };
    let Some(last) = exchange.sources.structured.last() else { return };
    let Some(parsed) = &last.parsed.0 else { return };
    let Some(at) = parsed.lists.iter().position(|list| list.len > 0) else { return };
    let (Some(list), Some(denial)) = (parsed.lists.get(at), NOTHING.find(&clause.words)) else { return };
    findings.examined = true;
    let named =
        list.name.last().is_some_and(|name| clause.has(name) || clause.has(name.trim_end_matches('s')));
    let classes = |words: &str| Language::English.classes(words);
    let conditions = |words: &str| CONDITION.is_match(words) || classes(words).has_any(CONDITIONS);
    // The first word of a question is no condition.
    let asked = exchange.asked().trim_start().split_once(' ').map_or("", |(_, rest)| rest);
    let arguments = last.call.arguments.as_deref().unwrap_or_default();
    let passed = |word: &str| contains_ignoring_case(arguments, &word.to_lowercase());
    let given = numbers::all(arguments);
    let wanted = numbers::all(exchange.task);
    // Each number and each word of the request is looked for in the arguments.
    let words = exchange.task.len() / 4;
    if !exchange.spends(wanted.len() * given.len() / 8 + words * (arguments.len() / (4 * BYTES_PER_STEP))) {
        return;
    }
    let numbers = wanted.iter().all(|n| given.iter().any(|passed| passed.value == n.value));
    let words =
        exchange.task.split_whitespace().map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()));
    // A call may pass dates as numbers.
    let is_date = |word: &&str| {
        let word = word.to_lowercase();
        names::month_of(&word).is_some() || names::weekday_of(word.trim_end_matches('s')).is_some()
    };
    let is_name = |word: &&str| word.len() > 2 && word.starts_with(char::is_uppercase) && !is_date(word);
    let mut names = words.skip(1).filter(is_name);
    let single = exchange.sources.structured.len() == 1 && exchange.sources.prose.is_empty();
    let complete = single && numbers && names.all(passed) && !conditions(asked) && !conditions(&clause.words);
    let rows = || parsed.records.iter().filter(|record| record.list == Some(at));
    let is_known = |word: &str| passed(word) || is_value(rows(), word);
    let counts_part = || {
        let words = clause.words.get(denial.end()..).unwrap_or_default();
        exchange.spends(parsed.records.len()) && limits_noun(words, &list.name, is_known)
    };
    if complete && (named || FOUND.is_match(&clause.words)) && !counts_part() {
        let returned = format!("{} item(s) for the arguments {arguments}", list.len);
        findings.contradicts(&returned, last.call, clause.sentence);
    }
}

/// Whether a word directly before or after the noun of "no ..." limits it to a part of the list: it is neither a
/// function word, nor one by which things are found, nor known from the lookup.
fn limits_noun(words: &str, list: &KeyName, is_known: impl Fn(&str) -> bool) -> bool {
    let same = |word: &str, other: &str| word.trim_end_matches('s') == other.trim_end_matches('s');
    let is_noun = |word: &&str| list.iter().any(|name| same(word, name));
    let is_found = |word: &str| FOUND.is_match(&format!(" {word} "));
    let words: Vec<&str> = words.split_whitespace().collect();
    let place = words.iter().position(is_noun);
    let place = place.or_else(|| words.iter().position(|word| is_found(word)));
    let Some(noun) = place else { return false };
    let is_condition = |word: &&str| {
        let is_content = stems(word).next().is_some() && !Language::English.content_words(word).is_empty();
        is_content && !SEARCHED.contains(word) && !is_known(word)
    };
    let before = words.get(..noun).unwrap_or_default();
    let after = words.get(noun + 1).filter(|word| !is_found(word));
    before.iter().chain(after).any(is_condition)
}

/// Whether a text in the fields of the items has the word.
fn is_value<'r>(mut rows: impl Iterator<Item = &'r Record>, word: &str) -> bool {
    rows.any(|row| {
        let mut texts = row.fields.iter().filter_map(|field| field.text());
        texts.any(|text| contains_ignoring_case(text, word) && contains_words(&words_of(text), word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::records::KeyNames;

    #[test]
    fn a_word_next_to_the_noun_limits_it() {
        let names = KeyNames::default();
        let limits = |words: &str, list: &str| {
            limits_noun(words, &names.name_for(list), |word| ["evening", "unpaid"].contains(&word))
        };
        assert!(limits("vegetarian dishes on the menu today ", "dishes"));
        assert!(limits("backups failed last night ", "backups"));
        assert!(!limits("trains to ghent this evening ", "trains"));
        assert!(!limits("unpaid invoices of bramley ", "invoices"));
        assert!(!limits("matching flights found ", "flights"));
        assert!(!limits("trains are available ", "results"));
    }
}
