//! Whether a number follows from other numbers by rounding, a change of units, or one or two operations.

use std::sync::LazyLock;

use foldhash::HashSet;

use crate::measure::excerpt::lowercase;
use crate::measure::numbers::Number;
use crate::measure::units::{self, possible_unit};

/// Factors between units of one quantity: decimal and binary prefixes, units of time, dozens.
const FACTORS: [f64; 17] = [
    10.0,
    100.0,
    1e3,
    1e6,
    1e9,
    60.0,
    3600.0,
    24.0,
    86_400.0,
    7.0,
    12.0,
    52.0,
    365.0,
    365.25,
    1024.0,
    1_048_576.0,
    1_073_741_824.0,
];

/// The largest factor between two units of which one is converted to the other.
const MAX_FACTOR: f64 = 32.0;

/// A factor between two units of one quantity.
struct UnitFactor {
    factor: f64,
    symbols: [&'static str; 2],
}

/// Factors between units of different systems. The factors within a system are whole numbers.
static UNIT_FACTORS: LazyLock<Vec<UnitFactor>> = LazyLock::new(|| {
    let pairs = units::all().flat_map(|large| units::all().map(move |small| (large, small)));
    let factors = pairs.filter_map(|(large, small)| {
        let factor = large.in_units(&small).filter(|factor| (1.0..MAX_FACTOR).contains(factor))?;
        let is_whole = (factor - factor.round()).abs() < 1e-9;
        (!is_whole).then_some(UnitFactor { factor, symbols: [large.symbol, small.symbol] })
    });
    factors.collect()
});

/// The factors between units of which the text names at least one, as an answer that converts does.
pub(super) fn named_factors(text: &str) -> Vec<f64> {
    let words = text.split(|c: char| !c.is_alphabetic() && c != '²').chain(text.split_whitespace());
    let symbols = words.filter_map(|word| possible_unit(&lowercase(word))).map(|unit| unit.symbol);
    let symbols: HashSet<&str> = symbols.collect();
    let is_named = |factor: &&UnitFactor| factor.symbols.iter().any(|symbol| symbols.contains(symbol));
    UNIT_FACTORS.iter().filter(is_named).map(|factor| factor.factor).collect()
}

/// Whether a word is a unit of an amount or of time.
pub(super) fn is_unit(word: &str) -> bool {
    possible_unit(word).is_some()
}

/// The relative tolerance (three digits) up to which a ratio of two numbers is not accidental.
pub(super) const PRECISE: f64 = 1e-3;
/// The relative tolerance above which a number has at most two digits.
const COARSE: f64 = 5e-3;
/// The number of decimal prefixes at the start of [`FACTORS`].
const PREFIX_COUNT: usize = 5;
/// Maximum numbers to which conversions other than prefixes are applied: among more numbers they match by chance.
const MAX_CONVERTED: usize = 60;
const PERCENT: f64 = 100.0;
/// 0 °C in kelvin.
const KELVIN: f64 = 273.15;

/// Whether a value may be a temperature in kelvin, of the air or of a device.
fn may_be_kelvin(value: f64) -> bool {
    (200.0..400.0).contains(&value)
}

/// Whether the value is one of the sorted `operands` in another unit, by one of these factors between units; if the
/// factors are not known, by any.
pub(super) fn converts(operands: &[f64], value: f64, tolerance: f64, units: Option<&[f64]>) -> bool {
    let rough = tolerance.max(value * 5e-4);
    let (low, high) = (value - rough, value + rough);
    let has = |low: f64, high: f64| within(operands, low, high);
    let is_many = operands.len() > MAX_CONVERTED;
    let factors = if is_many { FACTORS.get(..PREFIX_COUNT).unwrap_or_default() } else { &FACTORS };
    let gives = |f: f64| has(low / f, high / f) || has(low * f, high * f);
    let converts_units = || match units {
        Some(units) => units.iter().any(|f| gives(*f)),
        None => UNIT_FACTORS.iter().any(|unit| gives(unit.factor)),
    };
    factors.iter().any(|f| gives(*f))
        || !is_many && converts_units()
        || !is_many
            && (has((low - 32.0) / 1.8, (high - 32.0) / 1.8) || has(low * 1.8 + 32.0, high * 1.8 + 32.0))
        || !is_many && may_be_kelvin(high + KELVIN) && has(low + KELVIN, high + KELVIN)
        || !is_many && may_be_kelvin(low) && has(low - KELVIN, high - KELVIN)
}

/// Whether two numbers differ by at most `tolerance`, with a margin for floating-point errors.
pub(super) fn near(a: f64, b: f64, tolerance: f64) -> bool {
    (a - b).abs() <= tolerance * (1.0 + 1e-9) + a.abs().max(b.abs()) * 1e-12
}

/// The tolerance of a shown number: half a unit of its last significant digit; if the number is hedged, up to a tenth
/// of the number for trailing zeros.
pub(super) fn tolerance_of(n: &Number, value: f64, hedged: bool) -> f64 {
    let is_bare = n.bare == Some(value);
    let shown = if is_bare { n.tolerance * value / n.value.max(f64::MIN_POSITIVE) } else { n.tolerance };
    if n.fractional || value == 0.0 || value.fract() != 0.0 {
        return shown;
    }
    // Trailing zeros: 2,100,000 may be a rounding of 2,102,650.
    let mut unit = 1.0;
    while value % (unit * 10.0) == 0.0 && unit < value {
        unit *= 10.0;
    }
    let max_ratio = if hedged { 0.1 } else { 0.005 };
    shown.max((unit / 2.0).min(value * max_ratio))
}

/// Whether a sorted list has a number in this range.
pub(super) fn within(sorted: &[f64], low: f64, high: f64) -> bool {
    let slack = high.abs() * 1e-12;
    let from = sorted.partition_point(|v| *v < low - slack);
    sorted.get(from).is_some_and(|v| *v <= high + slack)
}

/// Whether `a` and another number of `pool` give `value` by one operation.
pub(super) fn pair_gives(pool: &[f64], a: f64, value: f64, tolerance: f64, ratios: bool) -> bool {
    let (low, high) = (value - tolerance, value + tolerance);
    let has = |low: f64, high: f64| within(pool, low, high);
    if has(low - a, high - a) || has(a - high, a - low) || has(a + low, a + high) {
        return true;
    }
    if a == 0.0 || value == 0.0 || !ratios {
        return false;
    }
    // A product with 0 or 1, or a quotient by them, is not evidence.
    let is_product = a != 1.0 && !near(a, value, tolerance) && has(low / a, high / a);
    // b % of a, or a with b % more or less.
    let share = |low: f64, high: f64| low > 0.0 && high < a && has(low * PERCENT / a, high * PERCENT / a);
    // a increased or reduced by a rate b, such as 0.25.
    let rate = |low: f64, high: f64| low > 0.0 && high < 1.0 && has(low, high);
    let is_share = share(low, high) || share(low - a, high - a) || share(a - high, a - low);
    let is_share = is_share || rate(low / a - 1.0, high / a - 1.0) || rate(1.0 - high / a, 1.0 - low / a);
    let is_quotient = has(low * a, high * a) || has(a / high, a / low);
    // a / b or (a - b) / b as a percentage.
    let is_percentage = has(a * PERCENT / high, a * PERCENT / low)
        || has(a / (1.0 + high / PERCENT), a / (1.0 + low / PERCENT))
        || (value < PERCENT && has(a / (1.0 - low / PERCENT), a / (1.0 - high / PERCENT)))
        || near(PERCENT - a, value, tolerance);
    is_product || is_share || is_quotient || is_percentage
}

/// The largest rounding error of a floating-point sum.
const SUM_ERROR: f64 = 1e-9;

/// Whether three numbers of `pool` give `value` by addition and subtraction. A value with at most two digits is near
/// some difference of three numbers, so that it has to be their sum, or to be met exactly.
pub(super) fn triple_gives(pool: &[f64], value: f64, tolerance: f64) -> bool {
    let is_coarse = tolerance > value * COARSE;
    pool.iter().enumerate().any(|(i, a)| {
        pool.iter().skip(i).any(|b| {
            let is_in_pool = |third: f64| within(pool, third - tolerance, third + tolerance);
            // A number with a fraction does not match exactly by chance.
            let exact =
                |third: f64| value.fract() != 0.0 && within(pool, third - SUM_ERROR, third + SUM_ERROR);
            let is_match = |third: f64| if is_coarse { exact(third) } else { is_in_pool(third) };
            is_in_pool(value - a - b)
                || is_match(a + b - value)
                || is_match(value + a - b)
                || is_match(value - a + b)
        })
    })
}

/// Whether the product of two numbers of `pool` gives `value` together with a third one, by multiplication, addition or
/// subtraction: a price for each of several things, with a fee. False among so many numbers that a match is likely by
/// chance.
pub(super) fn product_gives(pool: &[f64], value: f64, tolerance: f64) -> bool {
    // Maximum expected number of accidental matches.
    const MAX_CHANCE: f64 = 0.5;
    let n = pool.len() as f64;
    if n * n * n * 2.0 * tolerance > MAX_CHANCE * value {
        return false;
    }
    let factors = || pool.iter().filter(|v| **v != 0.0 && **v != 1.0);
    factors().enumerate().any(|(i, a)| {
        factors().skip(i).any(|b| {
            let (product, is_in_pool) = (a * b, |low: f64, high: f64| within(pool, low, high));
            is_in_pool(value - tolerance - product, value + tolerance - product)
                || is_in_pool(product - value - tolerance, product - value + tolerance)
                || is_in_pool((value - tolerance) / product, (value + tolerance) / product)
        })
    })
}
