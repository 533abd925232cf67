//! Reads the numbers of the texts of the evidence.
//!
//! In: the texts that were added since the last reading, in order. Out: their numbers, each with whether arithmetic may
//! use it; and the sums of the columns and the numbers of the records of results.

use super::{
    Evidence, MAX_AGGREGATES, MAX_MODEL_NUMBERS, MAX_TOTALLED, MAX_VALUES, Support, TextSource, Unread,
};
use crate::measure::Memo;
use crate::measure::numbers::{self, Number};
use crate::measure::reasoning::arithmetic::within;
use crate::measure::records::{Record, Records, Structure};
use crate::recognise::Text;

/// Maximum records of results whose numbers are combined with each other.
const MAX_ROWS: usize = 200;
/// Maximum numbers of such a record.
const MAX_ROW_NUMBERS: usize = 8;
/// Maximum rounds over the numbers of a proposal, since some may follow from others.
const MAX_PROPOSAL_ROUNDS: usize = 3;
/// Maximum numbers of a proposal that are compared with the evidence before it.
const MAX_PROPOSED: usize = 64;
/// Maximum bytes of a message whose numbers in words are read: "two of us", "for three nights".
const MAX_SPELLED: usize = 1_000;
/// Maximum bytes of a result that is a single number with a unit or a label.
const MAX_SINGLE_NUMBER_TEXT: usize = 48;
/// The largest number in words that is read.
const LARGEST_SPELLED: usize = 12;

impl<'a> Evidence<'a> {
    /// Reads the numbers of the texts that were added.
    pub(super) fn read_numbers(&mut self) {
        for unread in std::mem::take(&mut self.unread) {
            match unread {
                Unread::Text(text, source) => self.read_text(text, source),
                Unread::Columns(result, memo) => self.read_columns(result, memo),
                Unread::Model(text) => self.read_model_text(text),
                Unread::Proposal(text) => self.read_proposal(text),
            }
        }
    }

    /// Adds the numbers of a proposal that follow from the evidence before it; all of its numbers if most of them do,
    /// since a single unsupported number among others is not reported in an answer either.
    fn read_proposal(&mut self, text: &str) {
        let joined = numbers::with_spaced_groups(text);
        let mut unsupported = numbers::all(joined.as_deref().unwrap_or(text));
        unsupported.retain(|number| !number.in_identifier);
        unsupported.truncate(MAX_PROPOSED);
        let mut supported: Vec<f64> = Vec::new();
        for _ in 0..MAX_PROPOSAL_ROUNDS {
            let before = supported.len();
            unsupported.retain(|number| {
                let is_supported = self.supports(number, false, &supported) != Support::None;
                supported.extend(is_supported.then_some(number.value));
                !is_supported
            });
            if supported.len() == before {
                break;
            }
        }
        if unsupported.len() < supported.len() {
            supported.extend(unsupported.iter().map(|number| number.value));
        }
        self.new_values.extend(supported.into_iter().map(|value| (value, true)));
    }

    /// Adds the numbers of a text of another source than the model.
    fn read_text(&mut self, text: &'a str, source: TextSource) {
        if self.values.len() + self.new_values.len() > MAX_VALUES {
            self.is_full = true;
            return;
        }
        if source == TextSource::Conversation && text.len() <= MAX_SPELLED {
            let words = text.split(|c: char| !c.is_alphabetic());
            let spelled = |word: &str| (2..=LARGEST_SPELLED).find(|n| numbers::is_spelled(*n, word));
            self.new_values.extend(words.filter_map(spelled).map(|n| (n as f64, true)));
        }
        let (new_values, tainted) = (&mut self.new_values, &self.tainted);
        let mut first_number = None;
        // The second year in "1952/53".
        let second_year = |n: &Number| {
            let after = text.get(n.end..)?.strip_prefix(['/', '–', '-'])?;
            let digits = after.bytes().take_while(u8::is_ascii_digit).count();
            let year = after.get(..digits).filter(|_| digits == 2)?.parse::<f64>().ok()?;
            let year = (n.value / 100.0).floor() * 100.0 + year;
            ((1000.0..2200.0).contains(&n.value) && year > n.value).then_some(year)
        };
        let mut add = |text: &str, n: Number| {
            new_values.extend(second_year(&n).map(|year| (year, true)));
            for value in n.possible_values() {
                let is_tainted = source != TextSource::Tool && within(tainted, value - 1e-9, value + 1e-9);
                if !is_tainted {
                    let is_operand = source != TextSource::Instructions || is_rate_or_year(text, &n);
                    new_values.push((value, is_operand));
                }
            }
        };
        numbers::scan(text, |n| {
            first_number.get_or_insert(n);
            add(text, n);
        });
        if let Some(joined) = numbers::with_spaced_groups(text) {
            numbers::scan(&joined, |n| add(&joined, n));
        }
        if let (TextSource::Tool, Some(n)) = (source, first_number)
            && is_single_number(text, &n)
        {
            self.single_numbers.push((n.value, text));
        }
    }

    /// Adds the numbers that a structured result has by its columns, records and lists.
    fn read_columns(&mut self, result: &Text, memo: &Memo) {
        let structure = Structure::cached(result, memo);
        let Some(Structure(Some(records))) = structure.as_deref() else { return };
        if self.values.len() + self.new_values.len() <= MAX_VALUES {
            // In a table, "37,412" may be two cells, which are read as one number above.
            if !result.trim_start().starts_with(['{', '[']) {
                let cells = records.records.iter().flat_map(|record| &record.fields);
                self.new_values.extend(cells.filter_map(|cell| Some((cell.number()?.abs(), true))));
            }
            self.add_page_sums(records);
            self.add_rows(records);
            let aggregates = records.aggregates();
            self.new_values.extend(aggregates.iter().map(|value| (value.abs(), false)));
            self.new_values.extend(records.lengths().map(|length| (length as f64, false)));
            if self.aggregates.len() < MAX_AGGREGATES {
                self.aggregates.extend(aggregates.iter().map(|value| value.abs()));
            }
        }
    }

    /// Adds the numbers of each record, with those of the record that contains it, unless it is a row of a list.
    fn add_rows(&mut self, records: &Records) {
        let numbers_of = |record: &Record| -> Vec<f64> {
            let numbers = record.fields.iter().filter_map(|field| Some(field.number()?.abs()));
            numbers.take(MAX_ROW_NUMBERS).collect()
        };
        for record in &records.records {
            let mut numbers = numbers_of(record);
            let parent = record.parent.filter(|_| record.list.is_none());
            numbers.extend(parent.and_then(|at| records.records.get(at)).into_iter().flat_map(numbers_of));
            if numbers.len() > 1 && self.rows.len() < MAX_ROWS {
                numbers.sort_by(f64::total_cmp);
                self.rows.push(numbers);
            }
        }
    }

    /// Adds the sums of columns over several results whose lists have the same columns, since they may be pages of one
    /// list.
    fn add_page_sums(&mut self, records: &Records) {
        let Some(first) = records.records.iter().find(|record| record.list.is_some()) else { return };
        let rows = || records.records.iter().filter(|record| record.list == first.list);
        for column in first.fields.iter().filter(|field| field.number().is_some()).take(MAX_TOTALLED) {
            let number_in =
                |row: &Record| row.fields.iter().find(|field| field.name == column.name)?.number();
            let sum: f64 = rows().filter_map(number_in).sum();
            let total = self.column_sums.entry(column.name.clone()).or_default();
            let is_later_page = *total != 0.0;
            *total += sum.abs();
            if is_later_page && self.aggregates.len() < MAX_AGGREGATES {
                self.new_values.push((*total, false));
                self.aggregates.push(*total);
            }
        }
    }

    /// Adds the numbers of a text of the model, and drops the oldest ones.
    fn read_model_text(&mut self, text: &str) {
        let model_numbers = &mut self.model_numbers;
        numbers::scan(text, |n| model_numbers.push(n.value));
        if model_numbers.len() > 2 * MAX_MODEL_NUMBERS {
            model_numbers.drain(..model_numbers.len() - MAX_MODEL_NUMBERS);
        }
    }
}

/// Whether a number of instructions may be used in arithmetic: a percentage, or a year as in the date of today.
fn is_rate_or_year(text: &str, number: &Number) -> bool {
    const YEARS: std::ops::Range<f64> = 1990.0..2100.0;
    text.get(number.end..).is_some_and(|after| after.trim_start().starts_with('%'))
        || YEARS.contains(&number.value) && number.value.fract() == 0.0
}

/// Whether the text is short and has only the number `n`, with a unit, a label or brackets.
fn is_single_number(text: &str, n: &Number) -> bool {
    text.len() <= MAX_SINGLE_NUMBER_TEXT && numbers::all(text).len() == 1 && !n.in_identifier
}
