//! "Nothing was found", although the lookup returned items.
//!
//! The model may have selected among them, so every name and number of the request must have been an argument
//! of the call, and the sentence must add no condition.

use super::exchange::{Exchange, ExchangeFindings};
use crate::measure::language::{Language, WordClasses, classes, names};
use crate::measure::numbers;
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
regex!(CONDITION, r" (?:under|over|least|cheaper|longer|without|with|that are|that have|which|left) ");

pub(super) fn check(exchange: &Exchange<'_>, outcome: &mut ExchangeFindings) {
    let Some(clause) = exchange.clauses.first().filter(|clause| clause.first && clause.negated) else {
        return;
    };
    let Some(last) = exchange.sources.structured.last() else { return };
    let Some(parsed) = &last.parsed.0 else { return };
    let (Some(list), true) = (parsed.lists.iter().find(|list| list.len > 0), NOTHING.is_match(&clause.words))
    else {
        return;
    };
    outcome.examined = true;
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
    if complete && (named || FOUND.is_match(&clause.words)) {
        let returned = format!("{} item(s) for the arguments {arguments}", list.len);
        outcome.contradicts(&returned, last.call, clause.sentence);
    }
}
