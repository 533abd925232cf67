//! Temperatures that are converted wrongly: "14 °F, about -26 °C".
//!
//! Principle: a temperature in one unit has one value in the other. A sentence that gives a known temperature in one
//! unit, and one in the other unit that no text has and that is no conversion of a temperature of the answer, has a
//! wrong conversion. Rounding of the shown digits is allowed.
//!
//! In: the sentences of an answer with temperatures in both units. Out: one contradiction, in any language.

use super::exchange::{Exchange, ExchangeFindings};
use crate::measure::numbers::{self, Number};
use crate::measure::reasoning::answer::sentences;

/// The difference of a rounded conversion, also of a value in words such as "about 20 °C".
const TOLERANCE: f64 = 1.0;
/// Maximum temperatures of an answer.
const MAX_TEMPERATURES: usize = 40;

/// A temperature of the answer.
#[derive(Clone, Copy)]
struct Temperature {
    /// The value with its sign.
    value: f64,
    number: Number,
    is_celsius: bool,
}

impl Temperature {
    /// The value in the other unit.
    fn converted(self) -> f64 {
        if self.is_celsius { self.value * 1.8 + 32.0 } else { (self.value - 32.0) / 1.8 }
    }

    fn is_conversion_of(self, other: Temperature) -> bool {
        self.is_celsius != other.is_celsius
            && (other.converted() - self.value).abs() <= TOLERANCE + self.number.tolerance
    }
}

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let answer = exchange.answer;
    let Some(source) = exchange.sources.structured.last().filter(|_| answer.contains(['°', '℃', '℉']))
    else {
        return;
    };
    let all = temperatures(answer);
    if !all.iter().any(|t| t.is_celsius) || all.iter().all(|t| t.is_celsius) || !exchange.spends_numbers() {
        return;
    }
    findings.examined = true;
    let is_known = |t: &Temperature| {
        let is_same = |n: &Number| n.possible_values().any(|value| value == t.number.value);
        exchange.sources.seen.iter().any(|text| numbers::all(text).iter().any(is_same))
    };
    for (start, end) in sentences(answer) {
        let within: Vec<Temperature> =
            all.iter().copied().filter(|t| (start..end).contains(&t.number.start)).collect();
        let wrong = within.iter().find(|stated| {
            let mut others = within.iter().filter(|other| other.is_celsius != stated.is_celsius);
            let known = others.next().filter(|other| others.next().is_none() && is_known(other));
            known.is_some() && !is_known(stated) && !all.iter().any(|other| stated.is_conversion_of(*other))
        });
        if let Some(stated) = wrong {
            let known = within.iter().find(|other| other.is_celsius != stated.is_celsius);
            let converted = known.map(|known| known.converted().round()).unwrap_or_default();
            let returned = format!("a temperature that is {converted} in the unit of {}", stated.value);
            findings.contradicts(&returned, source.call, answer.get(start..end).unwrap_or_default().trim());
            return;
        }
    }
}

/// The temperatures of a text, each with the sign and the letter of its unit.
fn temperatures(text: &str) -> Vec<Temperature> {
    let read = |n: Number| {
        let after = text.get(n.end..)?.trim_start_matches([' ', '\u{a0}', '\u{202f}']);
        let unit = match after.chars().next()? {
            '℃' => 'c',
            '℉' => 'f',
            '°' => after.chars().skip(1).find(|c| *c != ' ')?.to_ascii_lowercase(),
            _ => return None,
        };
        let is_negative = text.get(..n.start)?.ends_with(['-', '−', '–']);
        let value = if is_negative { -n.value } else { n.value };
        matches!(unit, 'c' | 'f').then_some(Temperature { value, number: n, is_celsius: unit == 'c' })
    };
    numbers::all(text).into_iter().filter_map(read).take(MAX_TEMPERATURES).collect()
}
