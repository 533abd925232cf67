//! Units of quantities by their symbols and names.
//!
//! In: a word. Out: the unit that the word denotes, with its quantity. Currencies are the units of amounts of money.

use std::sync::LazyLock;

use foldhash::HashMap;

use super::currency;

const UNITS: &str = include_str!("language/data/units.txt");

static NAMES: LazyLock<HashMap<&'static str, NamedUnit>> = LazyLock::new(names);

/// A unit of a quantity.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Unit {
    pub quantity: &'static str,
    /// The symbol or code of the unit.
    pub symbol: &'static str,
    /// The size of the unit in a reference unit of the quantity; `None` for units without a constant size.
    pub size: Option<f64>,
}

impl Unit {
    /// The number of units `other` in one unit; `None` if they are of two quantities, or one has no constant size.
    pub(crate) fn in_units(&self, other: &Unit) -> Option<f64> {
        (self.quantity == other.quantity).then(|| Some(self.size? / other.size?)).flatten()
    }

    /// The power of ten that the unit is of another one; `None` if it is no such power.
    pub(crate) fn power_of(&self, other: &Unit) -> Option<i32> {
        let power = self.in_units(other)?.log10();
        ((power - power.round()).abs() < 1e-9).then_some(power.round() as i32)
    }
}

/// A unit with whether the name is also another word or unit.
struct NamedUnit {
    unit: Unit,
    is_ambiguous: bool,
}

/// The unit of each line of the data file, with the words of the line.
fn units() -> impl Iterator<Item = (Unit, std::str::Split<'static, char>)> {
    UNITS.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let (quantity, words) = line.split_once(' ')?;
        let (quantity, size) = quantity.split_once(':').unwrap_or((quantity, ""));
        let words = words.split(' ');
        let symbol = words.clone().next()?.trim_start_matches('?');
        Some((Unit { quantity, symbol, size: size.parse().ok() }, words))
    })
}

/// The units by their symbols and names.
fn names() -> HashMap<&'static str, NamedUnit> {
    let named = units().flat_map(|(unit, words)| words.map(move |word| (unit, word)));
    let named = named.map(|(unit, word)| {
        let name = word.trim_start_matches('?');
        (name, NamedUnit { unit, is_ambiguous: name != word })
    });
    named.collect()
}

/// All units of the data file.
pub(crate) fn all() -> impl Iterator<Item = Unit> {
    units().map(|(unit, _)| unit)
}

/// The unit whose symbol or name is this word, which is in lower case; else `None`.
pub(crate) fn unit_for_word(word: &str) -> Option<Unit> {
    let money = || currency::code_for_word(word).map(|symbol| Unit { quantity: "money", symbol, size: None });
    NAMES.get(word).filter(|named| !named.is_ambiguous).map(|named| named.unit).or_else(money)
}

/// As [`unit_for_word`], also for words that have other meanings as well ("m", "in"), and without currencies.
pub(crate) fn possible_unit(word: &str) -> Option<Unit> {
    NAMES.get(word).map(|named| named.unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_denotes_one_unit() {
        let symbols =
            ["kg", "pounds", "megabytes", "€", "minutos"].map(|word| unit_for_word(word).map(|u| u.symbol));
        assert_eq!(symbols, [Some("kg"), Some("lb"), Some("mb"), Some("eur"), Some("min")]);
        assert_eq!(unit_for_word("table"), None);
        assert_eq!((unit_for_word("m"), possible_unit("m").map(|u| u.quantity)), (None, Some("length")));
        let in_ml = |word: &str| unit_for_word(word)?.power_of(&unit_for_word("ml")?);
        assert_eq!(["m³", "litre", "ml", "gallon", "kg"].map(in_ml), [Some(6), Some(3), Some(0), None, None]);
        let words = UNITS.lines().filter(|line| !line.starts_with('#')).flat_map(|l| l.split(' ').skip(1));
        assert_eq!(words.count(), NAMES.len(), "a name is in two lines");
    }
}
