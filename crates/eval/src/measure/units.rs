//! Units of quantities by their symbols and names.
//!
//! In: a word. Out: the unit that the word denotes, with its quantity. Currencies are the units of amounts of money.

use std::sync::LazyLock;

use foldhash::HashMap;

use super::currency;

const UNITS: &str = include_str!("language/data/units.txt");

static NAMES: LazyLock<HashMap<&'static str, Unit>> = LazyLock::new(names);

/// A unit of a quantity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unit {
    pub quantity: &'static str,
    /// The symbol or code of the unit.
    pub symbol: &'static str,
    /// The unit as a power of ten of a reference unit of the quantity; `None` for units that are no such power.
    pub power: Option<i32>,
}

/// Reads the data file: the units by their symbols and names.
fn names() -> HashMap<&'static str, Unit> {
    let mut names = HashMap::default();
    for line in UNITS.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split(' ');
        let quantity = words.next().unwrap_or_default();
        let (quantity, power) = quantity.split_once(':').unwrap_or((quantity, ""));
        let power = power.parse().ok();
        let mut words = words.peekable();
        let symbol = words.peek().copied().unwrap_or_default();
        names.extend(words.map(|name| (name, Unit { quantity, symbol, power })));
    }
    names
}

/// The unit whose symbol or name is this word, which is in lower case; else `None`.
pub(crate) fn unit_for_word(word: &str) -> Option<Unit> {
    let money =
        || currency::code_for_word(word).map(|symbol| Unit { quantity: "money", symbol, power: None });
    NAMES.get(word).copied().or_else(money)
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
        let power = |word: &str| unit_for_word(word).and_then(|unit| unit.power);
        assert_eq!(["m³", "litre", "ml", "gallon"].map(power), [Some(3), Some(0), Some(-3), None]);
        let words = UNITS.lines().filter(|line| !line.starts_with('#')).flat_map(|l| l.split(' ').skip(1));
        assert_eq!(words.count(), NAMES.len(), "a name is in two lines");
    }
}
