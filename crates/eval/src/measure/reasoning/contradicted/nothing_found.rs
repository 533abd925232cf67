//! Denials such as "nothing was found" although the lookup returned items.
//!
//! Principle: if a lookup for exactly the requested things returned items, an answer does not deny that there are any.
//! The model may have selected among the items, so that every name and number of the request must have been an
//! argument of the call, and the sentence must add no condition. A word next to the noun that neither the
//! arguments nor the items have is such a condition: "no late orders" is about some of the orders.
//!
//! In: the first clause of an answer, and the last result. Out: one contradiction.

use super::exchange::{Exchange, ExchangeFindings};
use crate::measure::language::{Language, WordClasses, classes, names};
use crate::measure::numbers;
use crate::measure::reasoning::statements::{contains_words, words_of};
use crate::measure::records::{KeyName, Record};
use crate::measure::tool_purpose::stems;
use crate::measure::work_budget::BYTES_PER_STEP;
use crate::pattern::contains_ignoring_case;

// The beginning of a clause that denies results.
regex!(
    DENIAL,
    r"^ (?:(?:sorry|unfortunately|i'm sorry|i am sorry|i'm afraid) )?(?:there (?:are|is|were|was) (?:no|zero) |no |nothing |i (?:found|could find) (?:no|nothing) |i (?:could not|couldn't|did not|didn't) find any )"
);
// A word for the existence of results, or a common noun for them.
regex!(
    EXISTENCE,
    r" (?:found|available|exist|exists|match|matches|matched|listed|recorded|returned|items?|results?|entries|records?|orders?|tickets?|trains?|flights?|events?|products?|appointments?|bookings?|messages?|invoices?) "
);
/// Classes of words for a condition on the items. [`CONDITION`] has further words.
const CONDITION_CLASSES: WordClasses =
    classes!(Bound Comparison Exception Increment Neighbour New Restriction Sequence);
/// Words next to the noun that are not a condition.
const NOT_LIMITING: [&str; 6] = ["matching", "corresponding", "relevant", "such", "more", "at"];
// English words for a condition on the items.
regex!(CONDITION, r" (?:under|over|least|cheaper|longer|without|with|that are|that have|which|left) ");

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let Some(clause) = exchange.clauses.first().filter(|clause| clause.first && clause.negated) else {
        return;
    };
    let Some(lookup) = exchange.sources.structured.last() else { return };
    let Some(parsed) = &lookup.parsed.0 else { return };
    let Some(list_index) = parsed.lists.iter().position(|list| list.len > 0) else { return };
    let (Some(list), Some(denial)) = (parsed.lists.get(list_index), DENIAL.find(&clause.words)) else {
        return;
    };
    findings.examined = true;
    let is_named =
        list.name.last().is_some_and(|name| clause.has(name) || clause.has(name.trim_end_matches('s')));
    let classes = |words: &str| Language::English.classes(words);
    let has_condition = |words: &str| CONDITION.is_match(words) || classes(words).has_any(CONDITION_CLASSES);
    // The first word of a question is not a condition.
    let request_words = exchange.task_words().trim_start().split_once(' ').map_or("", |(_, rest)| rest);
    let arguments = lookup.call.arguments.as_deref().unwrap_or_default();
    let is_passed = |word: &str| contains_ignoring_case(arguments, &word.to_lowercase());
    let passed_numbers = numbers::all(arguments);
    let request_numbers = numbers::all(exchange.task);
    // Each number and each word of the request is searched for in the arguments.
    let words = exchange.task.len() / 4;
    if !exchange.spends(
        request_numbers.len() * passed_numbers.len() / 8 + words * (arguments.len() / (4 * BYTES_PER_STEP)),
    ) {
        return;
    }
    let are_numbers_passed =
        request_numbers.iter().all(|n| passed_numbers.iter().any(|passed| passed.value == n.value));
    let words =
        exchange.task.split_whitespace().map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()));
    // A call may pass dates as numbers.
    let is_date = |word: &&str| {
        let word = word.to_lowercase();
        names::month_of(&word).is_some() || names::weekday_of(word.trim_end_matches('s')).is_some()
    };
    let is_name = |word: &&str| word.len() > 2 && word.starts_with(char::is_uppercase) && !is_date(word);
    let mut names = words.skip(1).filter(is_name);
    let is_only_result = exchange.sources.structured.len() == 1 && exchange.sources.prose.is_empty();
    let is_complete = is_only_result
        && are_numbers_passed
        && names.all(is_passed)
        && !has_condition(request_words)
        && !has_condition(&clause.words);
    let rows = || parsed.records.iter().filter(|record| record.list == Some(list_index));
    let is_known = |word: &str| is_passed(word) || is_value(rows(), word);
    let is_about_part = || {
        let words = clause.words.get(denial.end()..).unwrap_or_default();
        exchange.spends(parsed.records.len()) && limits_noun(words, &list.name, is_known)
    };
    if is_complete && (is_named || EXISTENCE.is_match(&clause.words)) && !is_about_part() {
        let returned = format!("{} item(s) for the arguments {arguments}", list.len);
        findings.contradicts(&returned, lookup.call, clause.sentence);
    }
}

/// Whether a word before the noun of "no ..." or directly after it limits the noun to a part of the list: a content
/// word other than "found" and the like that neither the arguments nor the items have.
fn limits_noun(words: &str, list: &KeyName, is_known: impl Fn(&str) -> bool) -> bool {
    let is_same_noun = |word: &str, other: &str| word.trim_end_matches('s') == other.trim_end_matches('s');
    let is_noun = |word: &&str| list.iter().any(|name| is_same_noun(word, name));
    let is_existence_word = |word: &str| EXISTENCE.is_match(&format!(" {word} "));
    let words: Vec<&str> = words.split_whitespace().collect();
    let noun_position = words.iter().position(is_noun);
    let noun_position = noun_position.or_else(|| words.iter().position(|word| is_existence_word(word)));
    let Some(noun) = noun_position else { return false };
    let is_condition = |word: &&str| {
        let is_content = stems(word).next().is_some() && !Language::English.content_words(word).is_empty();
        is_content && !NOT_LIMITING.contains(word) && !is_known(word)
    };
    let before = words.get(..noun).unwrap_or_default();
    let after = words.get(noun + 1).filter(|word| !is_existence_word(word));
    before.iter().chain(after).any(is_condition)
}

/// Whether a text field of the items has the word.
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
    fn word_next_to_the_noun_limits_the_noun() {
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
