//! Whether a number or a date follows from those of the evidence by simple arithmetic.
//!
//! In: a number or a day of an answer. Out: whether a few operations on numbers and dates of the evidence give it,
//! where the number of combinations is so small that a match is not accidental.

use super::evidence_dates::EvidenceDates;
use super::{Evidence, MAX_AGGREGATES, MAX_MODEL_NUMBERS, MAX_TERMS, MAX_TOTALLED};
use crate::measure::numbers;
use crate::measure::reasoning::arithmetic::{PRECISE, near, pair_gives, product_gives, triple_gives, within};
use crate::measure::reasoning::dates::{self, Date};
use crate::measure::reasoning::dates_and_times::WEEKDAYS;

/// Maximum numbers of which any two are combined.
const MAX_FOR_PAIRS: usize = 400;
/// Maximum expected number of accidental matches among the sums and differences of all numbers, of which there are
/// about n². Beyond this limit only numbers that the model used and results that are a single number are combined.
const MAX_CHANCE: f64 = 2.0;
/// Maximum numbers of which any three are added and subtracted.
const MAX_FOR_TRIPLES: usize = 40;
/// Maximum numbers of a record whose products with those of another are added up.
const MAX_WEIGHTS: usize = 4;
/// Work steps of one number that is combined with the others: a dozen binary searches.
pub(super) const STEPS_PER_OPERAND: usize = 12;

impl Evidence<'_> {
    /// Whether the value follows from the operands and from the `stated` numbers by simple arithmetic. False beyond
    /// the work budget.
    pub(super) fn derives(&self, value: f64, tolerance: f64, stated: &[f64]) -> bool {
        let n = self.operands.len();
        let chance = (n * n) as f64 * 2.0 * tolerance / value.max(1.0);
        let mut operands: Vec<f64> = stated.to_vec();
        if n <= MAX_FOR_PAIRS && chance <= MAX_CHANCE {
            operands.extend_from_slice(&self.operands);
        } else {
            operands.extend(self.single_numbers.iter().rev().take(MAX_FOR_PAIRS).map(|(v, _)| *v));
            operands.extend(
                self.model_numbers.iter().rev().take(MAX_MODEL_NUMBERS).filter(|v| self.contains(**v, 0.0)),
            );
        }
        operands.sort_by(f64::total_cmp);
        operands.dedup();
        let operands = operands.as_slice();
        if !self.spend(STEPS_PER_OPERAND * (operands.len() + stated.len())) {
            return false;
        }
        if self.adds_to_aggregate(value, tolerance)
            || self.is_growth(value, tolerance)
            || self.follows_from_row(value, tolerance)
            || self.is_complement(value, tolerance)
            || self.is_weighted_sum(value, tolerance)
        {
            return true;
        }
        // A coarse ratio is used only among few numbers: n numbers have n² ratios, and one of them is near any
        // two-digit number. Ratios of the numbers of the answer itself are always used.
        let may_use_ratios = tolerance / value <= PRECISE
            || (operands.len() * operands.len()) as f64 * tolerance / value <= 0.5;
        if operands.iter().any(|a| pair_gives(operands, *a, value, tolerance, may_use_ratios)) {
            return true;
        }
        let mut amounts = stated.to_vec();
        amounts.sort_by(f64::total_cmp);
        if amounts.iter().any(|a| pair_gives(&amounts, *a, value, tolerance, true)) {
            return true;
        }
        if self.is_rate_of_total(value, tolerance, &amounts) {
            return true;
        }
        let sum: f64 = stated.iter().sum();
        let totals = [sum, sum / stated.len() as f64];
        if stated.len() > 2 && totals.iter().any(|total| near(*total, value, tolerance)) {
            return true;
        }
        let is_small = operands.len() <= MAX_FOR_TRIPLES;
        if is_small
            && self.spend(4 * operands.len() * operands.len())
            && product_gives(operands, value, tolerance)
        {
            return true;
        }
        let operands: Vec<f64> =
            operands.iter().copied().filter(|v| *v >= 10.0 || v.fract() != 0.0).collect();
        operands.len() <= MAX_FOR_TRIPLES
            && self.spend(2 * operands.len() * operands.len())
            && triple_gives(&operands, value, tolerance)
    }

    /// Whether the value follows from two numbers of one record: a price per square metre, the share of reached
    /// points. Only numbers of the same record are combined, so that there are few pairs; among many pairs, the match
    /// must be exact.
    fn follows_from_row(&self, value: f64, tolerance: f64) -> bool {
        const MAX_ROW_CHANCE: f64 = 0.5;
        const SUM_ERROR: f64 = 1e-9;
        let pairs: usize = self.rows.iter().map(|row| row.len() * row.len()).sum();
        let matches = pairs as f64 * 2.0 * tolerance / value.max(1.0);
        let tolerance = if matches > MAX_ROW_CHANCE { value * SUM_ERROR } else { tolerance };
        self.spend(pairs)
            && self.rows.iter().any(|row| row.iter().any(|a| pair_gives(row, *a, value, tolerance, true)))
    }

    /// Whether a date follows from a date of the texts: it is at most a day away from that date, or as many days,
    /// weeks, months or years as a text states, or a weekday near that date that a text names; or it is the first or
    /// the last day of a year that a text has. A date that follows is added to the dates, since other dates may follow
    /// from it. True beyond the work budget.
    pub(in crate::measure::reasoning) fn derives_date(&mut self, date: &Date) -> bool {
        self.merge_new_values();
        let steps = self.dates.read(&self.texts);
        if !self.spend(steps) {
            return true;
        }
        let day = date.day;
        let follows = self.is_near_known_date(day)
            || self.is_end_of_year(day)
            || !self.read_moments()
            || self.is_end_of_term(day)
            || self.is_named_weekday(day);
        if follows {
            self.dates.full_dates.push(date.clone());
        }
        follows
    }

    /// Whether a day is a known distance away from a date of the texts, or a Monday or Friday next to the end of such a
    /// distance at a weekend.
    fn is_near_known_date(&self, day: i64) -> bool {
        const MONDAY: usize = 0;
        const FRIDAY: usize = 4;
        let EvidenceDates { full_dates, without_year, .. } = &self.dates;
        let has = |n: i64| within(&self.operands, n as f64, n as f64);
        let is_known = |day: i64, is_term: bool| {
            let is_days_away = |from: i64| {
                let distance = (day - from).abs();
                match distance {
                    0 | 1 => !is_term,
                    _ => has(distance) || !is_term && distance % 7 == 0 && has(distance / 7),
                }
            };
            // A date without a year may be in an adjacent year.
            let year = dates::year_of_day(day);
            let has_matching_year = |(month, day_of_month): &(usize, usize)| {
                (year - 1..=year + 1).any(|year| is_days_away(dates::day_number(year, *month, *day_of_month)))
            };
            full_dates.iter().any(|date| is_days_away(date.day)) || without_year.iter().any(has_matching_year)
        };
        is_known(day, false)
            || match dates::weekday(day) {
                MONDAY => is_known(day - 1, true) || is_known(day - 2, true),
                FRIDAY => is_known(day + 1, true) || is_known(day + 2, true),
                _ => false,
            }
    }

    /// Whether a day is the first or the last one of a year that a text has: "in 2026" is from 1 January to 31
    /// December.
    fn is_end_of_year(&self, day: i64) -> bool {
        let year = dates::year_of_day(day);
        (year - 1..=year + 1).any(|year| {
            within(&self.operands, year as f64, year as f64)
                && [dates::day_number(year, 1, 1), dates::day_number(year, 12, 31)].contains(&day)
        })
    }

    /// The lengths in months of terms that a text contains in words: "six months".
    fn spelled_terms(&mut self) -> Vec<i64> {
        let terms = (1..=12).filter_map(|n: i64| Some((n, numbers::spelled(n as f64)? + " month")));
        let (terms, phrases): (Vec<i64>, Vec<String>) = terms.unzip();
        let phrases: Vec<&str> = phrases.iter().map(String::as_str).collect();
        let is_mentioned = self.mentions(&phrases).into_iter();
        terms
            .into_iter()
            .zip(is_mentioned)
            .filter_map(|(n, is_mentioned)| is_mentioned.then_some(n))
            .collect()
    }

    /// Whether a text names the weekday of the day, which is at most two weeks away from one of the dates: "on Friday",
    /// "Sunday last", "the Tuesday after".
    fn is_named_weekday(&mut self, day: i64) -> bool {
        const MAX_DAYS: i64 = 14;
        let Some(name) = WEEKDAYS.get(dates::weekday(day)) else { return false };
        let is_near = self.dates.full_dates.iter().any(|date| (date.day - day).abs() <= MAX_DAYS);
        is_near && self.mentions(&[&format!("{name}day")]).contains(&true)
    }

    /// Whether the day is a known term of months or years after or before one of the dates, or one day earlier, as the
    /// last day of a term.
    fn is_end_of_term(&mut self, day: i64) -> bool {
        let spelled_terms = self.spelled_terms();
        let EvidenceDates { full_dates, without_year, .. } = &self.dates;
        // A date without a year may be in the year of the day, or in one next to it.
        let year = dates::year_of_day(day);
        let in_years = |(month, day_of_month): &(usize, usize)| {
            let (month, day_of_month) = (*month as i64 - 1, *day_of_month);
            (year - 1..=year + 1).map(move |year| (year * 12 + month, day_of_month))
        };
        let full_dates = full_dates.iter().map(|date| (date.months(), date.day_of_month));
        let terms = self.moments.0.terms().chain(spelled_terms.iter().copied());
        let pairs = (self.dates.full_dates.len() + 3 * without_year.len()) * terms.clone().count();
        pairs <= MAX_TERMS
            && self.spend(pairs)
            && full_dates.chain(without_year.iter().flat_map(in_years)).any(|(from, day_of_month)| {
                let mut terms = terms.clone().flat_map(|n| [n, n * 12, -n, -n * 12]);
                terms.any(|n| (0..=1).contains(&(dates::day_in_month(from + n, day_of_month) - day)))
            })
    }

    /// Whether the value is the sum of two stated amounts times a rate of the texts (0.19), or increased by that rate.
    fn is_rate_of_total(&self, value: f64, tolerance: f64, stated: &[f64]) -> bool {
        let mut rates = self.operands.iter().filter(|rate| **rate > 0.0 && **rate < 1.0);
        if stated.len() > MAX_TOTALLED || rates.clone().take(MAX_TOTALLED + 1).count() > MAX_TOTALLED {
            return false;
        }
        rates.any(|rate| {
            let totals =
                stated.iter().enumerate().flat_map(|(i, a)| stated.iter().skip(i + 1).map(move |b| a + b));
            let mut totals = totals.flat_map(|total| [total * rate, total * (1.0 + rate)]);
            totals.any(|total| near(total, value, tolerance))
        })
    }

    /// Whether the value is a sum of two products of the numbers of one record with those of another, alone or with a
    /// third number of one of them: the use by day and by night at two rates, with a monthly fee. Among many records a
    /// match may be accidental.
    fn is_weighted_sum(&self, value: f64, tolerance: f64) -> bool {
        const MAX_SUM_CHANCE: f64 = 0.5;
        const MAX_WEIGHTED_ROWS: usize = 8;
        let rows: Vec<&Vec<f64>> =
            self.rows.iter().filter(|row| row.len() <= MAX_WEIGHTS).take(MAX_WEIGHTED_ROWS).collect();
        let pairs =
            || rows.iter().enumerate().flat_map(|(i, a)| rows.iter().skip(i + 1).map(move |b| (a, b)));
        // Two of the products, with each of the numbers or none.
        let sums: usize =
            pairs().map(|(a, b)| (a.len() * b.len()).pow(2) / 2 * (1 + a.len() + b.len())).sum();
        if sums as f64 * 2.0 * tolerance > MAX_SUM_CHANCE * value || !self.spend(2 * sums) {
            return false;
        }
        let is_sum = |amounts: &[f64], rates: &[f64]| {
            let products =
                || amounts.iter().flat_map(|a| rates.iter().map(move |rate| (*a, *rate, a * rate)));
            let mut sums = products().flat_map(|(a, rate, product)| {
                let others = products().filter(move |(b, other, _)| *b != a && *other != rate);
                others.map(move |(.., other)| product + other)
            });
            sums.any(|sum| {
                let mut fees = amounts.iter().chain(rates);
                near(sum, value, tolerance) || fees.any(|fee| near(sum + fee, value, tolerance))
            })
        };
        pairs().any(|(a, b)| is_sum(a, b))
    }

    /// Whether the value and a number of the texts add up to 100 %, where the numbers are so few that a match is not
    /// accidental.
    fn is_complement(&self, value: f64, tolerance: f64) -> bool {
        const MAX_COMPLEMENT_CHANCE: f64 = 0.5;
        let complement = 100.0 - value;
        let chance = self.operands.len() as f64 * 2.0 * tolerance / 100.0;
        complement > 0.0
            && chance <= MAX_COMPLEMENT_CHANCE
            && within(&self.operands, complement - tolerance, complement + tolerance)
    }

    /// Whether the value is a growth factor: 1.05 for a rate of 0.05 or 5 %.
    fn is_growth(&self, value: f64, tolerance: f64) -> bool {
        let rate = (value - 1.0).abs();
        let has = |rate: f64, tolerance: f64| within(&self.operands, rate - tolerance, rate + tolerance);
        (0.5..2.0).contains(&value)
            && rate > tolerance
            && (has(rate, tolerance) || has(rate * 100.0, tolerance * 100.0))
    }

    /// Whether a sum or mean of a result gives the value by adding or subtracting one number: a total with shipping.
    fn adds_to_aggregate(&self, value: f64, tolerance: f64) -> bool {
        let pairs = self.aggregates.len() * self.operands.len();
        let may_be_chance = pairs as f64 * 4.0 * tolerance > value.max(1.0);
        if may_be_chance || self.aggregates.len() > MAX_AGGREGATES || !self.spend(4 * self.aggregates.len()) {
            return false;
        }
        let has = |other: f64| other > 0.0 && within(&self.operands, other - tolerance, other + tolerance);
        self.aggregates.iter().any(|sum| has(value - sum) || has(sum - value))
    }
}
