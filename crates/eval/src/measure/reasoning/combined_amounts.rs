//! Amounts that follow from several numbers of a request: 412 km at 0.30 and 24 more, 17.5 hours at 85 with 19 %.
//!
//! In: the numbers of a request and of the instructions. Out: the amounts that result from their combinations.

use crate::measure::numbers;
use crate::recognise::Text;

/// The largest denominator of a fraction in words.
const MAX_DENOMINATOR: u8 = 12;
/// Maximum numbers of a request that are combined.
const MAX_COMBINED: usize = 6;
/// Half of a cent, with a margin for rounding errors of floating-point sums.
const ROUNDING_TOLERANCE: f64 = 0.0051;

/// The positive numbers of texts outside identifiers, at most `max` of each text.
pub(super) fn combinable<'t>(texts: impl IntoIterator<Item = &'t Text>, max: usize) -> Vec<f64> {
    let positive_numbers = |text: &Text| {
        let numbers = numbers::all(text).into_iter().filter(|n| !n.in_identifier && n.value > 0.0);
        numbers.map(|n| n.value).take(max).collect::<Vec<f64>>()
    };
    texts.into_iter().flat_map(positive_numbers).collect()
}

/// Whether `shown` is `exact`, rounded to cents.
pub(super) fn is_rounded(exact: f64, shown: f64) -> bool {
    (exact - shown).abs() <= ROUNDING_TOLERANCE
}

/// Whether an amount is a fraction of a total, or the total without one: a twelfth of it, or two thirds of it.
pub(super) fn is_share(number: f64, total: f64) -> bool {
    let mut parts = (2..=MAX_DENOMINATOR).map(f64::from);
    parts.any(|n| is_rounded(total / n, number) || is_rounded(total - total / n, number))
}

/// The values that follow from up to three numbers of a request, of which one may be a rate of the instructions or a
/// half. Empty if the request has more than [`MAX_COMBINED`] numbers.
pub(super) fn combined(amounts: &[f64], rules: &[f64]) -> Vec<f64> {
    let mut out = Vec::new();
    if amounts.len() > MAX_COMBINED {
        return out;
    }
    // Adds an amount, and its combinations with each number of the request that it does not already contain.
    let mut add = |amount: f64, used: [&f64; 2]| {
        out.push(amount);
        for c in amounts.iter().filter(|c| !used.iter().any(|a| std::ptr::eq(*a, *c))) {
            out.extend([amount + c, amount - c, amount * c, amount * (1.0 + c / 100.0)]);
        }
    };
    for a in amounts {
        add(a / 2.0, [a, a]);
        for b in amounts.iter().chain(rules).filter(|b| !std::ptr::eq(*b, a)) {
            let products = [a * b, a * b / 100.0, a * (1.0 + b / 100.0), a * (1.0 - b / 100.0)];
            products.iter().for_each(|product| add(*product, [a, b]));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_follow_from_two_or_three_numbers() {
        let gives = |amounts: &[f64], rules: &[f64], amount: f64| {
            combined(amounts, rules).iter().any(|result| is_rounded(*result, amount))
        };
        assert!(gives(&[412.0, 24.0], &[0.30], 147.6));
        assert!(gives(&[17.5, 85.0, 19.0], &[], 1770.13));
        assert!(gives(&[850.0, 30.0], &[], 455.0));
        assert!(gives(&[3.0, 5.0], &[], 15.0));
        assert!(!gives(&[412.0, 24.0], &[0.30], 123.0) && !gives(&[850.0, 30.0], &[], 450.0));
        assert!(combined(&[1.0; 7], &[]).is_empty());
    }

    #[test]
    fn fractions_in_words_are_rounded_to_cents() {
        assert!(is_share(283.33, 3400.0) && is_share(59.93, 89.9) && is_share(75.0, 300.0));
        assert!(!is_share(340.0, 3400.5) && !is_share(284.0, 3400.0));
    }
}
