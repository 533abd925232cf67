//! Other members of a closed set: `carrier: DHL` and "your UPS parcel", `priority: low` and "priority is high".
//!
//! Principle: the value of a field with a closed set of values is reported as it was returned. It is a contradiction
//! if the answer names another member of the set, which no text that the model read has, and not the returned one.
//! Words such as "high" are compared only next to the name of the field.
//!
//! In: the clauses of an answer, and the text values of results. Out: one contradiction.

use std::sync::LazyLock;

use foldhash::HashMap;

use super::exchange::{Exchange, ExchangeFindings};
use super::sources::ResultSource;
use crate::measure::reasoning::statements::{Clause, contains_words, words_of};
use crate::measure::records::{FieldValue, RecordField};
use crate::pattern::contains_ignoring_case;

/// Names that exclude each other in every context.
static EXCLUSIVE_NAMES: [ValueSet; 3] = [
    &[
        &["dhl"],
        &["ups"],
        &["fedex"],
        &["gls"],
        &["usps"],
        &["dpd"],
        &["hermes"],
        &["tnt"],
        &["evri"],
        &["royal mail"],
        &["la poste"],
        &["colissimo"],
        &["correos"],
        &["poste italiane"],
        &["yamato"],
        &["postnl"],
    ],
    &[
        &["eur", "€", "euro", "euros"],
        &["usd", "$", "us$", "dollar", "dollars"],
        &["gbp", "£", "pound", "pounds"],
        &["jpy", "¥", "yen"],
        &["chf", "francs"],
        &["inr", "₹", "rupees"],
        &["sek"],
        &["pln", "zloty"],
        &["brl"],
    ],
    &[
        &["visa"],
        &["mastercard"],
        &["american express", "amex"],
        &["paypal"],
        &["apple pay"],
        &["google pay"],
    ],
];
/// Words in keys of weights.
const WEIGHT_WORDS: [&str; 5] = ["weight", "mass", "lb", "lbs", "pounds"];
/// Words that exclude each other next to the name of a field.
static LEVELS: [ValueSet; 4] = [
    &[&["low"], &["medium", "normal", "moderate"], &["high"], &["critical", "urgent"]],
    &[&["economy"], &["premium economy"], &["business"], &["first"]],
    &[&["small"], &["medium"], &["large"], &["extra large"]],
    &[
        &["red"],
        &["blue"],
        &["green"],
        &["black"],
        &["white"],
        &["yellow"],
        &["orange"],
        &["purple"],
        &["pink"],
        &["brown"],
        &["grey", "gray"],
        &["silver"],
        &["gold"],
    ],
];

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    check_question(exchange, findings);
    for (source, _, record) in exchange.sources.records() {
        for field in &record.fields {
            let FieldValue::Text(value) = &field.value else { continue };
            // Skip long values early; the text in lower case may have another length.
            let shown = field.shown();
            let is_long = |shown: &str| shown.len() > MAX_FORM && shown.is_ascii();
            if shown.len() > 3 * MAX_FORM || is_long(shown) || value.len() > MAX_FORM {
                continue;
            }
            let statement =
                other_name(exchange, value).or_else(|| other_level(exchange, field, value, findings));
            if let Some((sentence, _)) = statement.filter(|_| findings.entries.is_empty()) {
                let returned = format!("{}: {}", field.name.join(" "), field.shown());
                findings.examined = true;
                findings.contradicts(&returned, source.call, sentence);
            }
        }
    }
}

/// Adds a finding for a wrong "yes" or "no": "Is its colour red?" answered with "no" although the result has red, or
/// with "yes" although it has another colour.
fn check_question(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let Some((is_affirmative, sentence)) = exchange.yes_or_no() else { return };
    let asked = words_of(&exchange.task.replace(['=', ':', '/', '_', '?', '"', '\''], " "));
    let mut candidate: Option<(&ResultSource<'_>, &RecordField, bool)> = None;
    for (source, _, record) in exchange.sources.records() {
        for field in record.fields.iter().filter(|field| field.text().is_some_and(|text| !text.is_empty())) {
            let name = format!(" {} ", field.name.join(" "));
            let Some(asked_value) =
                asked.split_once(&name).map(|(_, asked_value)| asked_value.trim_start_matches("is "))
            else {
                continue;
            };
            let value = words_of(&field.shown().replace(['/', '_'], " "));
            let is_same = format!(" {asked_value}").starts_with(&value);
            if !is_same && !is_value_of(exchange, field, asked_value.trim()) {
                continue;
            }
            match candidate {
                // The question may be about any of several records with different values.
                Some((_, previous_field, _)) if previous_field.shown() != field.shown() => return,
                _ => candidate = Some((source, field, is_same)),
            }
        }
    }
    let Some((source, field, is_same)) = candidate else { return };
    findings.examined = true;
    if is_same != is_affirmative {
        let returned = format!("{}: {}", field.name.join(" "), field.shown());
        findings.contradicts(&returned, source.call, sentence);
    }
}

/// Whether a word is a possible value of the field: the value of another record, or a member of the same closed set.
/// Another word may be a property of the thing, such as "shipped" in "is my order shipped".
fn is_value_of(exchange: &Exchange<'_>, field: &RecordField, word: &str) -> bool {
    let is_asked_value = |value: &str| value.split([' ', '/', '_']).eq(word.split(' '));
    let is_same_field =
        |other: &RecordField| other.name == field.name && other.text().is_some_and(is_asked_value);
    let sets = [&*NAMES_BY_VALUE, &*LEVELS_BY_VALUE].map(|sets| sets.get(field.text().unwrap_or_default()));
    sets.into_iter().flatten().any(|(set, _)| set.iter().any(|forms| forms.contains(&word)))
        || exchange.sources.records().flat_map(|(.., record)| &record.fields).any(is_same_field)
}

/// Values that exclude each other, each with its forms.
type ValueSet = &'static [&'static [&'static str]];
/// By form of a value, the first set with the form, and all forms of the value.
type SetMembers = HashMap<&'static str, (ValueSet, &'static [&'static str])>;

static NAMES_BY_VALUE: LazyLock<SetMembers> = LazyLock::new(|| members(&EXCLUSIVE_NAMES));
static LEVELS_BY_VALUE: LazyLock<SetMembers> = LazyLock::new(|| members(&LEVELS));

/// The sets by each form of their values.
fn members(sets: &'static [ValueSet]) -> SetMembers {
    let set_entries = |set: &'static ValueSet| {
        set.iter().rev().flat_map(|forms| forms.iter().map(|form| (*form, (*set, *forms))))
    };
    sets.iter().rev().flat_map(set_entries).collect()
}

/// Maximum bytes of a form of a value.
const MAX_FORM: usize = 16;

/// The sentence that names another member of the set of `value`, if no text has that member, and the member.
fn other_name<'a>(exchange: &Exchange<'a>, value: &str) -> Option<(&'a str, &'static str)> {
    let (set, returned_forms) = *NAMES_BY_VALUE.get(value)?;
    exchange.spends(exchange.clauses.len()).then_some(())?;
    let find_clause =
        |forms: &[&str]| exchange.clauses.iter().find(|c| forms.iter().any(|form| has_form(&c.words, form)));
    if find_clause(returned_forms).is_some() {
        return None;
    }
    // "Pound" may be a weight.
    let may_be_weight = |forms: &[&str]| {
        let mut names =
            exchange.sources.records().flat_map(|(.., record)| &record.fields).flat_map(|f| &**f.name);
        forms.contains(&"pound") && names.any(|word| WEIGHT_WORDS.contains(&word.as_str()))
    };
    set.iter().filter(|forms| **forms != returned_forms && !may_be_weight(forms)).find_map(|forms| {
        let clause = find_clause(forms).filter(|clause| !clause.negated && !clause.modal)?;
        let is_unknown = !forms.iter().any(|form| exchange.sources.any_contains(form));
        is_unknown.then(|| forms.first().map(|form| (clause.sentence, *form))).flatten()
    })
}

/// Whether the words have this form as a word, or as a sign directly next to a number.
fn has_form(words: &str, form: &str) -> bool {
    match form.chars().all(char::is_alphanumeric) || form.contains(' ') {
        true => contains_words(words, form),
        // Letters before a sign make another sign: "R$".
        false => words.split(' ').any(|word| {
            word.strip_suffix(form).or_else(|| word.split_once(form).map(|(before, _)| before)).is_some_and(
                |before| !before.ends_with(char::is_alphabetic) || form.starts_with(char::is_alphabetic),
            )
        }),
    }
}

/// The sentence that gives another level for the same field, and that level.
fn other_level<'a>(
    exchange: &Exchange<'a>,
    field: &RecordField,
    value: &str,
    findings: &mut ExchangeFindings,
) -> Option<(&'a str, &'static str)> {
    let (set, returned_forms) = *LEVELS_BY_VALUE.get(value)?;
    let name = field.name.last().filter(|name| name.len() >= 4)?;
    let fields = exchange.sources.field_count();
    exchange.spends(fields / 8 + exchange.clauses.len()).then_some(())?;
    let is_beside_name = |words: &str, form: &str| {
        [format!("{form} {name}"), format!("{name} {form}")]
            .iter()
            .any(|phrase| contains_words(words, phrase))
            || ["is", "of", "was", "to"]
                .iter()
                .any(|join| contains_words(words, &format!("{name} {join} {form}")))
    };
    let same_name = |f: &&RecordField| f.name.last() == Some(name);
    let values: Vec<&str> = exchange
        .sources
        .records()
        .flat_map(|(_, _, record)| &record.fields)
        .filter(same_name)
        .filter_map(RecordField::text)
        .collect();
    let gives_returned_level =
        |clause: &Clause<'_>| returned_forms.iter().any(|form| is_beside_name(&clause.words, form));
    // If the answer gives the level of the field, another level is about another thing.
    if exchange.clauses.iter().any(gives_returned_level) {
        findings.examined = true;
        return None;
    }
    for clause in exchange.clauses.iter().filter(|clause| !clause.modal && !clause.negated) {
        let other = set.iter().filter(|forms| **forms != returned_forms).flat_map(|forms| forms.iter()).find(
            |form| {
                let texts = exchange.sources.from_user.iter().chain(&exchange.sources.passed);
                let is_elsewhere =
                    values.contains(form) || texts.into_iter().any(|text| contains_ignoring_case(text, form));
                !is_elsewhere && is_beside_name(&clause.words, form)
            },
        );
        if let Some(other) = other {
            return Some((clause.sentence, other));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maximum_bytes_are_those_of_the_longest_form() {
        let longest = NAMES_BY_VALUE.keys().chain(LEVELS_BY_VALUE.keys()).map(|value| value.len()).max();
        assert_eq!(longest, Some(MAX_FORM));
    }
}
