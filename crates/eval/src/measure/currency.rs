//! Currencies by their codes, signs and names.
//!
//! In: a word. Out: the code of the currency that the word denotes.

use std::ops::Range;
use std::sync::LazyLock;

use foldhash::HashMap;

use super::excerpt::lowercase;

const CURRENCIES: &str = include_str!("language/data/currencies.txt");

static NAMES: LazyLock<HashMap<&'static str, &'static str>> = LazyLock::new(names);

/// Reads the data file: the codes of currencies by their names and symbols.
fn names() -> HashMap<&'static str, &'static str> {
    let lines = CURRENCIES.lines().filter(|line| !line.starts_with('#'));
    let names_in_line = |line: &'static str| {
        let code = line.split(' ').next().unwrap_or_default();
        line.split(' ').map(move |name| (name, code))
    };
    lines.flat_map(names_in_line).collect()
}

/// The code of the currency whose code, sign or name is this word, which is in lower case; else `None`.
pub(crate) fn code_for_word(word: &str) -> Option<&'static str> {
    NAMES.get(word).copied()
}

/// Whether a word, which is in lower case, is the code of a currency.
pub(crate) fn is_code(word: &str) -> bool {
    code_for_word(word) == Some(word)
}

/// Whether a code, a sign or a name of a currency is next to the number at the byte range `number` of a text.
pub(crate) fn is_beside(text: &str, number: Range<usize>) -> bool {
    let (before, after) =
        (text.get(..number.start).unwrap_or_default(), text.get(number.end..).unwrap_or_default());
    let adjacent = [before.split_whitespace().next_back(), after.split_whitespace().next()];
    let is_sign = |c: char| c.is_ascii_punctuation() && c != '$';
    adjacent.into_iter().flatten().any(|word| code_for_word(&lowercase(word.trim_matches(is_sign))).is_some())
}

/// All codes, signs and names.
pub(crate) fn all() -> impl Iterator<Item = &'static str> {
    NAMES.keys().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_and_sign_denotes_one_currency() {
        let codes = ["€", "euros", "us$", "pounds", "円", "gbp"].map(code_for_word);
        assert_eq!(codes, [Some("eur"), Some("eur"), Some("usd"), Some("gbp"), Some("jpy"), Some("gbp")]);
        assert!(code_for_word("table").is_none() && is_code("chf") && !is_code("francs"));
        let words = CURRENCIES.lines().filter(|line| !line.starts_with('#')).flat_map(|line| line.split(' '));
        assert_eq!(words.count(), NAMES.len(), "a name is in two lines");
    }
}
