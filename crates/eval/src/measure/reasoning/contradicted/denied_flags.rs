//! Statements in other languages than English that a false flag contradicts: "la confirmation vient d'être envoyée",
//! and the result has `confirmation_envoyee: false`.
//!
//! Principle: a statement with all words of a flag's name asserts the flag. The name must have at least two words,
//! which are compared without gender and number, and nothing may negate or limit the statement. Flags and states in
//! English are compared by `states`.
//!
//! In: the statements of an answer, and the flags of results. Out: one contradiction.

use super::exchange::{Exchange, ExchangeFindings};
use crate::measure::language::{WordClasses, classes};
use crate::measure::records::{FieldValue, RecordField};

/// Minimum bytes of the words in a flag's name: shorter words match by chance.
const MIN_WORD: usize = 4;
/// Maximum flags that are compared.
const MAX_FLAGS: usize = 200;
/// Classes of words by which a statement does not assert that something is the case now.
const LIMITATIONS: WordClasses = classes!(Negation Condition Modal Obligation Exception Restriction Sequence Alternative Probability Barrier);

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    if exchange.is_english() || exchange.clauses.is_empty() {
        return;
    }
    let has_compared_name =
        |field: &RecordField| field.name.len() > 1 && field.name.iter().all(|word| word.len() >= MIN_WORD);
    let records = exchange.sources.records();
    let fields =
        records.flat_map(|(source, _, record)| record.fields.iter().map(move |field| (source, field)));
    let flags = fields
        .filter(|(_, field)| matches!(field.value, FieldValue::Bool(_)) && has_compared_name(field))
        .take(MAX_FLAGS);
    let flags: Vec<_> = flags.collect();
    if flags.is_empty() || !exchange.spends(flags.len() * (1 + exchange.answer.len() / 8)) {
        return;
    }
    let statements =
        exchange.clauses.iter().filter(|clause| !clause.negated && !clause.classes.has_any(LIMITATIONS));
    let statements: Vec<(&str, Vec<String>)> = statements
        .map(|clause| (clause.sentence, clause.words.split_whitespace().map(stem).collect()))
        .collect();
    for (source, field) in &flags {
        let name: Vec<String> = field.name.iter().map(|word| stem(word)).collect();
        let assertion = statements.iter().find(|(_, words)| name.iter().all(|word| words.contains(word)));
        let Some((sentence, _)) = assertion else { continue };
        findings.examined = true;
        // The statement may be about another thing, whose flag is true.
        let is_true_elsewhere = |(_, other): &(_, &RecordField)| {
            other.name == field.name && other.value == FieldValue::Bool(true)
        };
        if field.value == FieldValue::Bool(false) && !flags.iter().any(is_true_elsewhere) {
            let returned = format!("{}: false", field.name.join(" "));
            findings.contradicts(&returned, source.call, sentence.trim());
            return;
        }
    }
}

/// A word without accents and without the endings of gender and number.
fn stem(word: &str) -> String {
    let plain: String = word.chars().map(without_accent).collect();
    let plain = plain.rsplit('\'').next().unwrap_or_default();
    plain.trim_end_matches(['e', 's', 'a', 'o', 'i', 'n', 't']).to_owned()
}

/// A letter without its accent.
fn without_accent(c: char) -> char {
    match c {
        'à' | 'á' | 'â' | 'ã' | 'ä' => 'a',
        'ç' => 'c',
        'è' | 'é' | 'ê' | 'ë' => 'e',
        'ì' | 'í' | 'î' | 'ï' => 'i',
        'ñ' => 'n',
        'ò' | 'ó' | 'ô' | 'õ' | 'ö' => 'o',
        'ù' | 'ú' | 'û' | 'ü' => 'u',
        c => c,
    }
}
