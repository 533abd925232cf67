//! Whether a number or a date follows from those of the evidence by simple arithmetic.

use super::{Evidence, MAX_AGGREGATES, MAX_DATED, MAX_MODEL_NUMBERS, MAX_TERMS, MAX_TOTALLED};
use crate::measure::reasoning::arithmetic::{PRECISE, near, pair_gives, product_gives, triple_gives, within};
use crate::measure::reasoning::dates;
use crate::measure::work_budget::BYTES_PER_STEP;

/// Most numbers of which any two are combined.
const PAIRS_AMONG: usize = 400;
/// Most accidental matches among sums and differences. There are about n² of n numbers, so among many
/// numbers a match proves nothing. Beyond this limit only numbers that the model itself used and
/// results that are a single number are combined.
const CHANCE: f64 = 2.0;
/// Most numbers of which any three are added and subtracted.
const TRIPLES_AMONG: usize = 40;
/// Steps of one number that is combined with the others: a dozen binary searches.
pub(super) const STEPS_PER_OPERAND: usize = 12;

/// The dates of the first texts of an evidence.
#[derive(Default)]
pub(super) struct EvidenceDates {
    full_dates: Vec<dates::Date>,
    /// Months and days.
    without_year: Vec<(usize, usize)>,
    /// How many texts were read, and their bytes, at most [`MAX_DATED`].
    texts: usize,
    bytes: usize,
}

impl Evidence<'_> {
    /// Whether the value follows from the operands and from the `stated` numbers by simple arithmetic.
    pub(super) fn derives(&self, value: f64, tolerance: f64, stated: &[f64]) -> bool {
        let n = self.operands.len();
        let chance = (n * n) as f64 * 2.0 * tolerance / value.max(1.0);
        let mut pool: Vec<f64> = stated.to_vec();
        if n <= PAIRS_AMONG && chance <= CHANCE {
            pool.extend_from_slice(&self.operands);
        } else {
            pool.extend(self.single_numbers.iter().rev().take(PAIRS_AMONG).map(|(v, _)| *v));
            pool.extend(
                self.model_numbers.iter().rev().take(MAX_MODEL_NUMBERS).filter(|v| self.contains(**v, 0.0)),
            );
        }
        pool.sort_by(f64::total_cmp);
        pool.dedup();
        let pool = pool.as_slice();
        if !self.spend(STEPS_PER_OPERAND * (pool.len() + stated.len())) {
            return false;
        }
        if self.adds_to_aggregate(value, tolerance)
            || self.is_growth(value, tolerance)
            || self.follows_from_row(value, tolerance)
        {
            return true;
        }
        // A coarse ratio is evidence only among few numbers: of n numbers there are n² ratios, and one of
        // them is near any two-digit number. Ratios of the answer's own numbers always count.
        let precise =
            tolerance / value <= PRECISE || (pool.len() * pool.len()) as f64 * tolerance / value <= 0.5;
        if pool.iter().any(|a| pair_gives(pool, *a, value, tolerance, precise)) {
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
        let is_small = pool.len() <= TRIPLES_AMONG;
        if is_small && self.spend(4 * pool.len() * pool.len()) && product_gives(pool, value, tolerance) {
            return true;
        }
        let pool: Vec<f64> = pool.iter().copied().filter(|v| *v >= 10.0 || v.fract() != 0.0).collect();
        pool.len() <= TRIPLES_AMONG
            && self.spend(2 * pool.len() * pool.len())
            && triple_gives(&pool, value, tolerance)
    }

    /// Whether the value follows from two numbers of one record: a price per square metre, the share of points reached.
    /// Numbers of a record belong together, so that there are few pairs; among many only an exact match counts.
    fn follows_from_row(&self, value: f64, tolerance: f64) -> bool {
        const FEW_MATCHES: f64 = 0.5;
        const EXACT: f64 = 1e-9;
        let pairs: usize = self.rows.iter().map(|row| row.len() * row.len()).sum();
        let matches = pairs as f64 * 2.0 * tolerance / value.max(1.0);
        let tolerance = if matches > FEW_MATCHES { value * EXACT } else { tolerance };
        self.spend(pairs)
            && self.rows.iter().any(|row| row.iter().any(|a| pair_gives(row, *a, value, tolerance, true)))
    }

    /// Whether a date follows from one of the texts: it is the day before or after one, or a number of days, weeks,
    /// months or years of the texts away; a term of months may end the day before.
    pub(crate) fn derives_date(&mut self, day: i64) -> bool {
        self.merge_new_values();
        if !self.read_dates() {
            return true;
        }
        let EvidenceDates { full_dates, without_year, .. } = &self.dates;
        let has = |n: i64| within(&self.operands, n as f64, n as f64);
        let is_days_away = |from: i64| {
            let distance = (day - from).abs();
            distance <= 1 || has(distance) || distance % 7 == 0 && has(distance / 7)
        };
        // A day without a year is one of a year near that of the date.
        let year = dates::year_of_day(day);
        let has_matching_year = |(month, day_of_month): &(usize, usize)| {
            (year - 1..=year + 1).any(|year| is_days_away(dates::day_number(year, *month, *day_of_month)))
        };
        let is_known = full_dates.iter().any(|date| is_days_away(date.day))
            || without_year.iter().any(has_matching_year);
        is_known || !self.read_moments() || self.is_end_of_term(day)
    }

    /// Reads the dates of the texts, of each once per trace; false if the work budget is exceeded.
    fn read_dates(&mut self) -> bool {
        let EvidenceDates { full_dates, without_year, texts, bytes } = &mut self.dates;
        let bytes_before = *bytes;
        for text in self.texts.iter().skip(*texts) {
            if *bytes + text.len() >= MAX_DATED {
                break;
            }
            *bytes += text.len();
            *texts += 1;
            full_dates.extend(dates::all(text));
            without_year.extend(dates::without_year(text));
        }
        let (read, compared) = (*bytes - bytes_before, full_dates.len() + without_year.len());
        self.spend(read / BYTES_PER_STEP + compared)
    }

    /// Whether the day is a term of months or years after or before one of the dates, or the last day of it.
    fn is_end_of_term(&self, day: i64) -> bool {
        let full_dates = &self.dates.full_dates;
        let terms = self.moments.0.terms();
        let pairs = full_dates.len() * terms.clone().count();
        pairs <= MAX_TERMS
            && self.spend(pairs)
            && full_dates.iter().any(|date| {
                let mut terms = terms.clone().flat_map(|n| [n, n * 12, -n, -n * 12]);
                terms.any(|months| (0..=1).contains(&(dates::months_later(date, months) - day)))
            })
    }

    /// Whether the value is a rate of the texts (0.19) of two stated amounts together, or with it on top.
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

    /// Whether the value is a factor of growth: 1.05 for a rate of 0.05 or 5 %.
    fn is_growth(&self, value: f64, tolerance: f64) -> bool {
        let rate = (value - 1.0).abs();
        let has = |rate: f64, tolerance: f64| within(&self.operands, rate - tolerance, rate + tolerance);
        (0.5..2.0).contains(&value)
            && rate > tolerance
            && (has(rate, tolerance) || has(rate * 100.0, tolerance * 100.0))
    }

    /// Whether a sum or mean of a result, and one number more or less, give the value: a total with shipping.
    fn adds_to_aggregate(&self, value: f64, tolerance: f64) -> bool {
        let among = self.aggregates.len() * self.operands.len();
        let is_chance = among as f64 * 4.0 * tolerance > value.max(1.0);
        if is_chance || self.aggregates.len() > MAX_AGGREGATES || !self.spend(4 * self.aggregates.len()) {
            return false;
        }
        let has = |other: f64| other > 0.0 && within(&self.operands, other - tolerance, other + tolerance);
        self.aggregates.iter().any(|sum| has(value - sum) || has(sum - value))
    }
}
