//! Wrong amounts of a refund: an answer of 399, where the result of the refund has `refund_fen: 34900`.
//!
//! Principle: if the results have only one refunded amount, the amount of a refund in the answer is that amount. It is
//! a contradiction if the answer nowhere has the amount of the results, and the stated amount does not follow from it
//! by a number of the same result, of the user or of the instructions. A count of refunded things is compared in the
//! same way, if a list has that length.
//!
//! In: the sentences of an answer, and the fields about refunds. Out: one contradiction.

use super::exchange::{Exchange, ExchangeFindings};
use super::misattributed_values::unstructured;
use super::other_unit::unit_of_number;
use super::sources::ResultSource;
use crate::measure::currency;
use crate::measure::identifier::identifier_words;
use crate::measure::language::{WordClass, WordClasses, classes};
use crate::measure::numbers::{self, Number};
use crate::measure::reasoning::answer::sentences;
use crate::measure::reasoning::statements::Clause;
use crate::measure::records::{KeyFact, KeyName, Record, RecordField};
use crate::measure::vocabulary::{self, WordMeaning};

/// The number of percent in a whole, and of hundredths in a currency unit.
const HUNDRED: f64 = 100.0;
/// Maximum bytes between the word for the amount and the amount.
const MAX_GAP: usize = 14;
/// Maximum count of refunded things, and of shares of a refund.
const MAX_COUNT: usize = 12;
/// Maximum numbers by which a stated amount may follow from the refund.
const MAX_KNOWN: usize = 200;
/// Classes of words in sentences that do not state the refunded amount.
const NOT_STATED: WordClasses = classes!(Negation Condition Exception Bound Share Comparison Alternative);

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    // The answer is read only if a result has a key of a refund.
    let has_key = |source: &ResultSource<'_>| source.may_have_key(may_be_of_refund);
    if exchange.spends(exchange.sources.field_count()) && exchange.sources.structured.iter().any(has_key) {
        check_amount(exchange, findings);
        if findings.entries.is_empty() {
            check_count(exchange, findings);
        }
    }
}

/// Whether a key has a word for a refund or for an amount.
fn may_be_of_refund(name: &KeyName) -> bool {
    let is_of = |word: &String| {
        [WordMeaning::Refund, WordMeaning::Amount]
            .iter()
            .any(|meaning| vocabulary::has_meaning(word, *meaning))
    };
    name.has_fact(KeyFact::Refund, |words| words.iter().any(is_of))
}

/// The fields with a key as by [`may_be_of_refund`] in records outside lists, each with its source and record.
fn refund_fields<'e>(
    exchange: &'e Exchange<'_>,
) -> impl Iterator<Item = (&'e ResultSource<'e>, &'e Record, &'e RecordField)> {
    let sources = exchange.sources.structured.iter().filter(|source| source.may_have_key(may_be_of_refund));
    let records = sources.flat_map(|source| source.records().map(move |(_, record)| (source, record)));
    let fields = records
        .filter(|(_, record)| record.list.is_none())
        .flat_map(|(source, record)| record.fields.iter().map(move |field| (source, record, field)));
    fields.filter(|(.., field)| may_be_of_refund(&field.name))
}

/// Whether the name of the tool of a result has a word for a refund.
fn is_of_refund_tool(source: &ResultSource<'_>) -> bool {
    identifier_words(&source.call.name).iter().any(|word| vocabulary::has_meaning(word, WordMeaning::Refund))
}

/// Whether a key is that of a refunded amount: `refund_amount`, but not `refund_fee` or `refundable`.
fn is_amount_key(field: &RecordField, source: &ResultSource<'_>) -> bool {
    let is_refund = |word: &str| vocabulary::has_meaning(word, WordMeaning::Refund) && word != "refundable";
    let is_amount = |word: &str| vocabulary::has_meaning(word, WordMeaning::Amount);
    let is_unit =
        |word: &str| vocabulary::has_meaning(word, WordMeaning::Hundredth) || currency::is_code(word);
    let has_refund_word = field.name.iter().any(|word| is_refund(word))
        || field.name.iter().any(|word| is_amount(word)) && is_of_refund_tool(source);
    let is_count = matches!(&**field.name, [word] if word.ends_with("ed"));
    let is_plain = |word: &String| is_refund(word) || is_amount(word) || is_unit(word) || word == "total";
    has_refund_word
        && field.name.iter().all(is_plain)
        && (!is_count || field.number().is_some_and(|n| n.fract() != 0.0))
}

/// Adds a finding for a wrong amount of a refund.
fn check_amount(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let mut amounts: Vec<(&ResultSource<'_>, &Record, &RecordField, f64)> = Vec::new();
    // The answer may give the sum of several refunds.
    let mut sum = 0.0;
    for (source, record, field) in refund_fields(exchange) {
        let value = field.number().filter(|value| *value > 0.0 && is_amount_key(field, source));
        if let Some(value) = value {
            let is_in_hundredths =
                field.name.iter().any(|word| vocabulary::has_meaning(word, WordMeaning::Hundredth));
            let value = if is_in_hundredths { value / HUNDRED } else { value };
            sum += value;
            if !amounts.iter().any(|(.., other)| *other == value) {
                amounts.push((source, record, field, value));
            }
        }
    }
    let [(source, record, field, value)] = amounts.as_slice() else { return };
    if !vocabulary::has(&exchange.prose, WordMeaning::Refund) {
        return;
    }
    let prose = &*exchange.grouped();
    let has_amount = |n: &Number, value: f64| {
        n.possible_values()
            .any(|v| (v - value).abs() <= n.tolerance * 1.01 || (v * HUNDRED - value).abs() < 0.5)
    };
    let expected_values = [*value, *value / HUNDRED, sum];
    let gives_expected =
        numbers::all(prose).iter().any(|n| expected_values.iter().any(|value| has_amount(n, *value)));
    if gives_expected {
        findings.examined = true;
        return;
    }
    for (start, end) in sentences(prose) {
        let Some(sentence) = prose.get(start..end) else { continue };
        if !vocabulary::has(sentence, WordMeaning::Refund) || sentence.trim_end().ends_with(['?', '？']) {
            continue;
        }
        let Some(stated) = stated_refund(exchange, sentence) else { continue };
        let unit = |text: Option<&str>| text.and_then(currency::code_for_word);
        let result_symbol = unit(
            record
                .fields
                .iter()
                .find(|f| vocabulary::has_meaning(&f.name.join(" "), WordMeaning::Unit))
                .and_then(RecordField::text),
        );
        let stated_symbol = unit_of_number(sentence, &stated).map(|unit| unit.symbol);
        findings.examined = true;
        if result_symbol.zip(stated_symbol).is_some_and(|(expected, actual)| expected != actual)
            || !exchange.spends_numbers()
        {
            continue;
        }
        if !follows_from_refund(exchange, record, *value, &stated) {
            let returned = format!("{}: {}", field.name.join(" "), field.shown());
            let quote = exchange.answer.get(start..end).unwrap_or(sentence).trim();
            findings.contradicts(&returned, source.call, quote);
            return;
        }
    }
}

/// The amount of a refund that a sentence states: its only amount of money, if that follows a word for an amount or a
/// refund.
fn stated_refund(exchange: &Exchange<'_>, sentence: &str) -> Option<Number> {
    let places = exchange.language?.table().places(sentence);
    if places.all().has_any(NOT_STATED) {
        return None;
    }
    let is_money = |n: &Number| {
        let is_beside = unit_of_number(sentence, n).is_some_and(|unit| unit.quantity == "money");
        !n.in_identifier && (is_beside || currency::is_beside(sentence, n.start..n.end))
    };
    let sentence_numbers = numbers::all(sentence);
    let mut amounts = sentence_numbers.iter().filter(|n| is_money(n));
    let (amount, None) = (amounts.next()?, amounts.next()) else { return None };
    let amount_words = vocabulary::find(sentence, &[WordMeaning::Amount, WordMeaning::Refund]);
    let is_linked = |end: usize| {
        let gap = sentence.get(end..amount.start)?;
        // The gap has the end of the word and at most a preposition or a verb: "refunded", "of", "is".
        let between = gap.trim_start_matches(char::is_alphabetic);
        let is_link = vocabulary::has_only(between, &[WordMeaning::Of, WordMeaning::Copula]);
        (between.len() <= MAX_GAP && is_link).then_some(())?;
        Some(end)
    };
    amount_words.into_iter().any(|(_, at)| is_linked(at.end).is_some()).then_some(*amount)
}

/// Whether a stated amount is a number of the result, of the user or of the instructions, or follows from the refund by
/// such a number, as a fee or a share.
fn follows_from_refund(exchange: &Exchange<'_>, record: &Record, value: f64, stated: &Number) -> bool {
    let is_passed = |text: &str| exchange.sources.passed.iter().any(|passed| &***passed == text);
    let text_numbers = unstructured(&exchange.sources).filter(|text| !is_passed(text)).flat_map(numbers::all);
    let text_values = text_numbers.filter(|n| !n.in_identifier).map(|n| n.value);
    let is_near = |value: f64| (value - stated.value).abs() <= stated.tolerance.min(0.5) * 1.01;
    let is_number_or_difference =
        |amount: f64| is_near(amount) || is_near(value - amount) || is_near(value + amount);
    let is_share = |percentage: f64| {
        is_near(value * percentage / HUNDRED) || is_near(value * (1.0 - percentage / HUNDRED))
    };
    let record_values = record.fields.iter().filter_map(RecordField::number);
    // The amount may be for one of several things: "19.00 each".
    let is_part_for_one_thing = (2..=MAX_COUNT).any(|count| is_near(value / count as f64));
    is_part_for_one_thing
        || record_values
            .chain(text_values)
            .take(MAX_KNOWN)
            .any(|operand| operand > 0.0 && (is_number_or_difference(operand) || is_share(operand)))
}

/// Adds a finding for a smaller count than that of the result: "The two tickets are refunded", where the result has
/// `refunded: 4`, and a list has four rows.
fn check_count(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let is_list = |count: usize| {
        let mut parsed = exchange.sources.structured.iter().filter_map(|source| source.parsed.0.as_ref());
        parsed.any(|parsed| parsed.lists.iter().any(|list| list.len == count))
    };
    let is_count = |field: &RecordField| matches!(&**field.name, [word] if word.ends_with("ed") && vocabulary::has_meaning(word, WordMeaning::Refund));
    let mut counts = refund_fields(exchange).filter_map(|(source, _, field)| {
        let is_small = |n: &f64| n.fract() == 0.0 && (2.0..=MAX_COUNT as f64).contains(n);
        let n = field.number().filter(is_small).filter(|_| is_count(field) && is_of_refund_tool(source))?;
        Some((source, field, n as usize)).filter(|_| is_list(n as usize))
    });
    let (Some((source, field, count)), None) = (counts.next(), counts.next()) else { return };
    if !vocabulary::has(&exchange.prose, WordMeaning::Refund) {
        return;
    }
    let counts_by_clause: Vec<(&Clause<'_>, Vec<usize>)> =
        exchange.clauses.iter().map(|clause| (clause, counts_of(exchange, clause))).collect();
    if counts_by_clause.iter().any(|(_, counts)| counts.contains(&count)) {
        return;
    }
    let is_about_refund = |clause: &Clause<'_>| {
        !clause.negated && !clause.modal && vocabulary::has(&clause.words, WordMeaning::Refund)
    };
    let refund_clauses = counts_by_clause
        .iter()
        .filter(|(clause, _)| is_about_refund(clause) && !clause.classes.has_any(NOT_STATED));
    for (clause, counts) in refund_clauses {
        findings.examined = true;
        if matches!(counts.as_slice(), [n] if *n < count) {
            let returned = format!("{}: {}", field.name.join(" "), field.shown());
            findings.contradicts(&returned, source.call, clause.sentence);
            return;
        }
    }
}

/// The whole numbers of a clause, in digits and in words.
fn counts_of(exchange: &Exchange<'_>, clause: &Clause<'_>) -> Vec<usize> {
    let figures = numbers::all(&clause.words).into_iter().filter(|n| !n.in_identifier && !n.fractional);
    let places = exchange.language.map(|language| language.table().places(&clause.words));
    let spelled_counts =
        places.iter().flat_map(|places| places.iter()).filter(|place| place.classes.has(WordClass::Number));
    let mut out: Vec<usize> = figures.map(|n| n.value as usize).collect();
    out.extend(spelled_counts.map(|place| usize::from(place.value)));
    out
}
