//! Amounts that follow from several numbers of a request: 412 km at 0.30 and 24 more, 17.5 hours at 85 with 19 %.
//!
//! In: the numbers of a request, and those of the instructions. Out: their combinations, and whether an amount is one.

use crate::measure::numbers;
use crate::recognise::Text;

/// The largest denominator of a fraction in words.
const MAX_FRACTION: u8 = 12;
/// Most numbers of a request that are combined.
const MAX_COMBINED: usize = 6;
/// Half of a cent, and what a sum in binary numbers is away from it.
const CENT: f64 = 0.0051;

/// The numbers of texts that may be combined, at most `max` of each text.
pub(super) fn combinable<'t>(texts: impl IntoIterator<Item = &'t Text>, max: usize) -> Vec<f64> {
    let positive_numbers = |text: &Text| {
        let numbers = numbers::all(text).into_iter().filter(|n| !n.in_identifier && n.value > 0.0);
        numbers.map(|n| n.value).take(max).collect::<Vec<f64>>()
    };
    texts.into_iter().flat_map(positive_numbers).collect()
}

/// Whether an amount is another one, rounded to cents.
pub(super) fn is_rounded(exact: f64, shown: f64) -> bool {
    (exact - shown).abs() <= CENT
}

/// Whether an amount is a fraction of another one, or what a fraction leaves: a twelfth, less a third.
pub(super) fn is_share(number: f64, total: f64) -> bool {
    let mut parts = (2..=MAX_FRACTION).map(f64::from);
    parts.any(|n| is_rounded(total / n, number) || is_rounded(total - total / n, number))
}

/// The values that follow from up to three numbers of a request, of which one may be a rate of the instructions, or a
/// half. Empty if the request has many numbers.
pub(super) fn combined(amounts: &[f64], rules: &[f64]) -> Vec<f64> {
    let mut out = Vec::new();
    if amounts.len() > MAX_COMBINED {
        return out;
    }
    // An amount, and what it gives with another number.
    let mut add = |amount: f64, not: [&f64; 2]| {
        out.push(amount);
        for c in amounts.iter().filter(|c| !not.iter().any(|a| std::ptr::eq(*a, *c))) {
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
