//! Amounts for each of several things: "150 EUR per night", "98 €/night", "每晚150元".
//!
//! In: a number of a text, and the language of the text. Out: whether the number is an amount per unit. In Chinese and
//! Japanese the word for "per" precedes the number.

use crate::measure::excerpt::{clip, clip_end, lowercase};
use crate::measure::language::{Language, WordClass};
use crate::measure::numbers::Number;

/// Maximum bytes after a number that are searched for a word for "per".
const MAX_BYTES_AFTER: usize = 48;
/// Maximum bytes before a number that are searched, in Chinese and Japanese.
const MAX_BYTES_BEFORE: usize = 24;
/// Characters at which a clause ends.
const CLAUSE_ENDS: [char; 12] = ['.', ',', ';', ':', '!', '?', '\n', '。', '，', '、', '；', '：'];

/// Whether an amount is per unit. In a text of an unknown language, any word after the number is taken for "per".
pub(super) fn is_for_each(text: &str, n: &Number, language: Option<Language>) -> bool {
    let after = clip(text.get(n.end..).unwrap_or_default(), MAX_BYTES_AFTER);
    let after = after.split(CLAUSE_ENDS).next().unwrap_or_default();
    let (first_word, after_first) = split_word(after);
    if after_first
        .trim_start()
        .strip_prefix('/')
        .is_some_and(|thing| thing.trim_start().starts_with(char::is_alphabetic))
    {
        return true;
    }
    let Some(language) = language else { return !first_word.is_empty() };
    let table = language.table();
    if !language.is_spaced() {
        let before = clip_end(text.get(..n.start).unwrap_or_default(), MAX_BYTES_BEFORE);
        let before = before.rsplit(CLAUSE_ENDS).next().unwrap_or_default();
        return table.places(before).all().has(WordClass::Per);
    }
    let is_per = |word: &str| table.name(&lowercase(word)).0.has(WordClass::Per);
    let (second_word, after_second) = split_word(after_first);
    // "200 EUR am 3. Mai" is a date.
    let is_date = |after: &str| after.trim_start().starts_with(|c: char| c.is_ascii_digit());
    is_per(first_word) && !is_date(after_first) || is_per(second_word) && !is_date(after_second)
}

/// The first word of a text and the text after it; spaces and symbols such as "€" before the word are skipped.
fn split_word(text: &str) -> (&str, &str) {
    let text = text.trim_start_matches(|c: char| !c.is_alphanumeric() && c != '/');
    let end = text.find(|c: char| !c.is_alphanumeric()).unwrap_or(text.len());
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::numbers;

    #[test]
    fn amounts_per_unit_are_distinguished_from_other_amounts() {
        use Language::*;
        for (language, text, expected) in [
            (English, "The lodge takes 150 EUR per night", true),
            (English, "98 €/night", true),
            (English, "Refunds above 200 EUR. A manager decides", false),
            (German, "Parken kostet 4 Euro am Tag", true),
            (German, "Wir zahlen 200 Euro am 3. Mai", false),
            (French, "Le gîte prend 150 euros par nuit", true),
            (French, "Il a payé 150 euros, par erreur", false),
            (Spanish, "El espacio cuesta 5 euros al mes", true),
            (Spanish, "Pagó 5 euros ayer", false),
            (Portuguese, "O espaço custa 5 euros ao mês", true),
            (Portuguese, "Pagou 5 euros ontem", false),
            (Italian, "Lo spazio costa 5 euro al mese", true),
            (Italian, "Ha pagato 5 euro ieri", false),
            (Chinese, "山屋每晚150元", true),
            (Chinese, "每晚都有人，总共150元", false),
            (Japanese, "山小屋は一泊あたり150ユーロ", true),
            (Japanese, "合計は150ユーロ", false),
        ] {
            let number = numbers::all(text).first().copied().expect("a number");
            assert_eq!(is_for_each(text, &number, Some(language)), expected, "{text}");
        }
    }
}
