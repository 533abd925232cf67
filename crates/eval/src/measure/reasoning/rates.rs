//! Amounts for each of several things: "150 EUR per night", "98 €/night", "每晚150元".
//!
//! In: a number of a text, and the language of the text. Out: whether the number is for one of something. In Chinese
//! and Japanese the word for it stands before the number.

use crate::measure::excerpt::{clip, clip_end, lowercase};
use crate::measure::language::{Language, WordClass};
use crate::measure::numbers::Number;

/// Most bytes behind and before a number in which the word stands.
const BEHIND: usize = 48;
const BEFORE: usize = 24;
/// Signs at which a clause ends.
const ENDS: [char; 12] = ['.', ',', ';', ':', '!', '?', '\n', '。', '，', '、', '；', '：'];

pub(super) fn is_for_each(text: &str, n: &Number, language: Option<Language>) -> bool {
    let behind = clip(text.get(n.end..).unwrap_or_default(), BEHIND);
    let behind = behind.split(ENDS).next().unwrap_or_default();
    let (unit, rest) = split_word(behind);
    if rest
        .trim_start()
        .strip_prefix('/')
        .is_some_and(|thing| thing.trim_start().starts_with(char::is_alphabetic))
    {
        return true;
    }
    // In a language that cannot be told any word may say it.
    let Some(language) = language else { return !unit.is_empty() };
    let table = language.table();
    if !language.is_spaced() {
        let before = clip_end(text.get(..n.start).unwrap_or_default(), BEFORE);
        let before = before.rsplit(ENDS).next().unwrap_or_default();
        return table.places(before).all().has(WordClass::Per);
    }
    let is_per = |word: &str| table.name(&lowercase(word)).0.has(WordClass::Per);
    let (next, thing) = split_word(rest);
    // "200 EUR am 3. Mai" is a date.
    let has_thing = |thing: &str| !thing.trim_start().starts_with(|c: char| c.is_ascii_digit());
    is_per(unit) && has_thing(rest) || is_per(next) && has_thing(thing)
}

/// The first word of a text, behind at most signs of a currency and spaces, and the rest of the text.
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
    fn amounts_for_each_are_told_from_others() {
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
