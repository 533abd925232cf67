//! Identifiers of one thing: an order, and the payment that its record names.
//!
//! In: an identifier, and a predicate for the known identifiers. Out: whether a result has the identifier together with
//! a known identifier of another shape, in one record or in a record and the record that contains it. The arguments of
//! a lookup identify the one record that it returns. Identifiers of the same shape name things of one kind, so that two
//! of them in a record are two things.

use crate::measure::Memo;
use crate::measure::numbers::next_digit;
use crate::measure::records::{Record, RecordField, Structure};
use crate::pattern::contains_ignoring_case;
use crate::recognise::Call;

/// Maximum identifiers of one record.
const MAX_IDENTIFIERS: usize = 64;
/// Length of an identifier in a text, in bytes.
const IDENTIFIER_BYTES: std::ops::RangeInclusive<usize> = 5..=64;
/// Minimum digits of an identifier in a text.
const MIN_DIGITS: usize = 2;
/// Length of a field's value that is a code, in bytes: "pay_88123".
const CODE_BYTES: std::ops::RangeInclusive<usize> = 4..=64;

/// Whether a result of `calls` names `id` (in lower case) for the same thing as a known code.
pub(super) fn is_known_otherwise<'c>(
    calls: impl Iterator<Item = &'c Call>,
    id: &str,
    is_known: impl Fn(&str) -> bool,
    memo: &Memo,
) -> bool {
    let id_shape = shape(id);
    let links = |names: &[String]| {
        names.iter().any(|name| name == id)
            && names.iter().any(|name| shape(name) != id_shape && is_known(name))
    };
    calls.filter(|call| !call.failed).any(|call| {
        let Some(result) = &call.result else { return false };
        let arguments = call.arguments.as_deref().unwrap_or_default();
        if !memo.budget.spend(1 + (result.len() + arguments.len()) / 16) {
            return false;
        }
        if !contains_ignoring_case(result, id) && !contains_ignoring_case(arguments, id) {
            return false;
        }
        let Some(structure) = Structure::cached(result, memo) else { return false };
        let Some(parsed) = &structure.0 else { return false };
        let is_one_record = parsed.records.first().is_some_and(|first| first.list.is_none());
        let passed = identifiers(if is_one_record { arguments } else { "" });
        let passed: Vec<String> = passed.take(MAX_IDENTIFIERS).collect();
        parsed.records.iter().any(|record| {
            let outer_record = record.parent.and_then(|parent| parsed.records.get(parent));
            let record_codes = outer_record.into_iter().chain([record]).flat_map(codes);
            let is_outermost = record.parent.is_none() && record.list.is_none();
            let passed = passed.iter().filter(|_| is_outermost).cloned();
            links(&record_codes.take(MAX_IDENTIFIERS).chain(passed).collect::<Vec<_>>())
        })
    })
}

/// The codes in the fields of a record, in lower case.
fn codes(record: &Record) -> impl Iterator<Item = String> + '_ {
    let is_code = |value: &&str| {
        let count = |predicate: fn(&u8) -> bool| value.bytes().filter(predicate).count();
        let is_plain = value.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'#'));
        CODE_BYTES.contains(&value.len())
            && is_plain
            && count(u8::is_ascii_digit) > 1
            && count(u8::is_ascii_alphabetic) > 0
    };
    // A number is a code where its key ends in "id" or "number".
    let is_number = |field: &RecordField| {
        let is_id = field.name.last().is_some_and(|word| word == "id" || word == "number");
        is_id
            && field.shown().len() >= *CODE_BYTES.start()
            && field.shown().bytes().all(|b| b.is_ascii_digit())
    };
    let values = record.fields.iter().filter(move |field| is_code(&field.shown()) || is_number(field));
    values.map(|field| field.shown().trim_matches('#').to_lowercase())
}

/// The identifiers of a text, in lower case: words of letters and digits ("BK-2291") that are not measures or ordinals
/// ("10am", "20th").
pub(super) fn identifiers(text: &str) -> impl Iterator<Item = String> + '_ {
    let is_joint = |byte: &u8| matches!(byte, b'-' | b'_');
    let is_part = move |byte: &u8| byte.is_ascii_alphanumeric() || is_joint(byte);
    let mut remaining = text.as_bytes();
    std::iter::from_fn(move || {
        // Most words have no digits.
        while let Some(digit) = next_digit(remaining, 0) {
            let (before, after) = remaining.split_at_checked(digit)?;
            let start = before.iter().rposition(|byte| !is_part(byte)).map_or(0, |at| at + 1);
            let len = after.iter().take_while(|byte| is_part(byte)).count();
            let word = remaining.get(start..digit + len).unwrap_or_default();
            remaining = after.get(len + 1..).unwrap_or_default();
            let start = word.iter().position(|byte| !is_joint(byte)).unwrap_or_default();
            let end = word.iter().rposition(|byte| !is_joint(byte)).map_or(start, |last| last + 1);
            if let Some(word) = word.get(start..end).filter(|word| is_identifier(word)) {
                return String::from_utf8(word.to_ascii_lowercase()).ok();
            }
        }
        None
    })
}

fn is_identifier(word: &[u8]) -> bool {
    let count = |predicate: fn(&u8) -> bool| word.iter().filter(|byte| predicate(byte)).count();
    let digits = if IDENTIFIER_BYTES.contains(&word.len()) { count(u8::is_ascii_digit) } else { 0 };
    if digits < MIN_DIGITS || digits == word.len() {
        return false;
    }
    let letters = count(u8::is_ascii_alphabetic);
    let leading_digits = word.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let is_measure = word.len() - leading_digits == letters && letters <= 3;
    let has_plain_word = word.split(|byte| !byte.is_ascii_lowercase()).any(|run| run.len() > 2);
    letters > 0 && !is_measure && !has_plain_word
}

/// An identifier with `0` for each digit and `a` for each letter: identifiers of one shape name things of one kind.
pub(super) fn shape(id: &str) -> String {
    id.chars()
        .map(|c| {
            if c.is_ascii_digit() {
                '0'
            } else if c.is_alphabetic() {
                'a'
            } else {
                c
            }
        })
        .collect()
}
