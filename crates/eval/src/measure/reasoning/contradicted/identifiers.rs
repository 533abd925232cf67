//! Altered identifiers: T-9155 where the result has T-5519.
//!
//! Principle: an identifier is copied character by character; an altered one belongs to another thing. An identifier
//! of the answer is a contradiction if a result has an identifier of the same shape, and no text that the model read
//! has the stated one. Shapes distinguish the kinds of characters, so that model numbers, units and dates are not
//! compared with identifiers.
//!
//! In: the sentences of an answer, and the results. Out: one contradiction.

use super::exchange::{Exchange, ExchangeFindings};
use crate::measure::currency;
use crate::measure::defects::Defect;
use crate::measure::language::Language;
use crate::measure::language::names::names_identifier;
use crate::measure::reasoning::answer::sentences;
use crate::measure::reasoning::statements::asserts_nothing;
use crate::measure::records::Records;

/// Minimum digits of an identifier.
const MIN_DIGITS: usize = 3;
/// Minimum digits of an identifier without letters.
const MIN_PLAIN_DIGITS: usize = 6;
/// Maximum bytes of an identifier.
const MAX_LENGTH: usize = 40;
/// Maximum identifiers of an answer, and of a result, that are compared.
const MAX_IDENTIFIERS: usize = 64;

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let prose = &*exchange.prose;
    let stated = sentences(prose).into_iter().filter_map(|(start, end)| prose.get(start..end));
    // Every identifier has at least `MIN_DIGITS - 1` digits.
    let has_digits = |text: &&str| text.bytes().filter(u8::is_ascii_digit).nth(MIN_DIGITS - 2).is_some();
    let stated = stated.filter(has_digits);
    // Identifiers are compared in any language. In an unknown language, English words decide whether a sentence asserts
    // something.
    let language = exchange.language.unwrap_or(Language::English);
    let stated = stated.filter(|sentence| !asserts_nothing(sentence, language));
    let stated_ids: Vec<(&str, &str)> = stated
        .flat_map(|sentence| tokens(sentence).map(move |token| (token, sentence)))
        .take(MAX_IDENTIFIERS)
        .collect();
    if stated_ids.is_empty() {
        return;
    }
    let parsed = exchange.sources.structured.iter().filter_map(|s| Some((s, s.parsed.0.as_ref()?)));
    for (source, records) in parsed {
        let result_ids = identifiers(records);
        for (token, sentence) in &stated_ids {
            let shape = shape(token);
            let Some(similar) = result_ids.iter().find(|id| self::shape(id) == shape) else { continue };
            findings.examined = true;
            if !findings.entries.is_empty() || !exchange.spends_search() {
                break;
            }
            if exchange.sources.any_contains(token) || is_derived(exchange, token) {
                continue;
            }
            let rationale = format!(
                "an identifier of the request or of a result was expected, such as {similar} of {}; the answer names \
                 {token}, which is in neither",
                source.call.name.trim()
            );
            let finding = Defect::ContradictsResult.finding(rationale, sentence.trim());
            findings.entries.push((finding, Some(source.call.at)));
        }
    }
}

/// The words of a sentence that may be identifiers.
fn tokens(sentence: &str) -> impl Iterator<Item = &str> {
    // The scripts from this code point on have no spaces between words.
    const UNSPACED: char = '\u{2e80}';
    let is_identifier_char =
        |c: char| c.is_alphanumeric() && c < UNSPACED || matches!(c, '-' | '_' | '/' | '#');
    sentence
        .split(move |c: char| {
            !is_identifier_char(c) && !matches!(c, '.' | ',' | '@' | ':' | '\'' | '’' | '%' | '+')
        })
        .map(|token| token.trim_matches(|c: char| !c.is_alphanumeric()))
        .filter(|token| is_identifier(token))
}

/// Whether a token may be an identifier: a long number, or letters and digits that are no quantity, date or amount.
fn is_identifier(token: &str) -> bool {
    let has_identifier_chars =
        token.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'/' | b'#'));
    let digits = token.bytes().filter(u8::is_ascii_digit).count();
    let letters = token.bytes().filter(u8::is_ascii_alphabetic).count();
    // "120kWh" and "35km/h" are quantities, "2025-06-02T14" is a date.
    let first_letter = token.bytes().position(|b| b.is_ascii_alphabetic()).unwrap_or(token.len());
    let is_quantity = first_letter > 0 && token.bytes().skip(first_letter).all(|b| !b.is_ascii_digit());
    let is_date = token.as_bytes().get(4) == Some(&b'-') && token.bytes().take(4).all(|b| b.is_ascii_digit());
    let is_quantity = is_quantity || has_hours(token);
    let is_number = letters == 0 && digits == token.len() && digits >= MIN_PLAIN_DIGITS;
    // A prefix such as in "ch_7Kq2" marks an identifier.
    let min_digits = if token.contains('_') { MIN_DIGITS - 1 } else { MIN_DIGITS };
    let is_mixed =
        letters > 0 && digits >= min_digits && !is_quantity && !is_date && !is_amount_or_year(token);
    has_identifier_chars && token.len() <= MAX_LENGTH && (is_number || is_mixed)
}

/// Whether a token is a time of day or a duration with an "h" between its digits: "6h36", "1h48m".
fn has_hours(token: &str) -> bool {
    let Some((hours, minutes)) = token.split_once(['h', 'H']) else { return false };
    let is_number = |part: &str| (1..=2).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    is_number(hours) && is_number(minutes.trim_end_matches("min").trim_end_matches(['m', 'M']))
}

/// Whether a token is an amount with its currency, or a year with a word: "EUR1000", "FY2025".
fn is_amount_or_year(token: &str) -> bool {
    let (letters, digits): (Vec<u8>, Vec<u8>) = token.bytes().partition(u8::is_ascii_alphabetic);
    let is_year = digits.len() == 4 && (digits.starts_with(b"19") || digits.starts_with(b"20"));
    let code = String::from_utf8(letters).unwrap_or_default().to_ascii_lowercase();
    currency::is_code(&code) || is_year && !token.contains('-')
}

/// A token with `0` for each digit, and `a` or `A` for each letter. Hexadecimal digests of one length have one shape.
fn shape(token: &str) -> String {
    let hex = token.len() >= 7 && token.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if hex && token.bytes().any(|b| b.is_ascii_alphabetic()) {
        return format!("hex {}", token.len());
    }
    let character_class = |c: char| match c {
        '0'..='9' => '0',
        'a'..='z' => 'a',
        'A'..='Z' => 'A',
        other => other,
    };
    token.chars().map(character_class).collect()
}

/// The identifiers of a result. A number counts if its key names an identifier, or if the value is a text.
fn identifiers(records: &Records) -> Vec<&str> {
    let fields = records.records.iter().flat_map(|record| &record.fields);
    let is_named = |name: &[String]| name.iter().any(|word| names_identifier(word));
    let identifying = fields.filter(|field| {
        let letters = field.shown().bytes().any(|b| b.is_ascii_alphabetic());
        is_identifier(field.shown()) && (letters || is_named(&field.name) || field.is_text())
    });
    identifying.map(|field| field.shown()).take(MAX_IDENTIFIERS).collect()
}

/// Whether a token is a number that a text has with separators, or that is an aggregate of a result. True beyond the
/// work budget.
fn is_derived(exchange: &Exchange<'_>, token: &str) -> bool {
    let Ok(value) = token.parse::<f64>() else { return false };
    if !exchange.spends_numbers() {
        return true;
    }
    let is_in = |text: &str| {
        let mut has_value = false;
        crate::measure::numbers::scan(text, |n| has_value |= n.possible_values().any(|v| v == value));
        has_value
    };
    exchange.sources.seen.iter().any(|text| is_in(text))
        || exchange
            .sources
            .structured
            .iter()
            .filter_map(|s| s.parsed.0.as_ref())
            .any(|p| p.aggregates().contains(&value))
}
