//! The values of a row's cells in a clause or a text.
//!
//! In: a clause or a text, and a field. Out: whether the text has the value of the field, in one of the forms in which
//! answers write it.

use std::borrow::Cow;

use super::predicates::is_state_key;
use crate::measure::numbers::{self, Number};
use crate::measure::reasoning::dates;
use crate::measure::reasoning::dates_and_times::times;
use crate::measure::reasoning::statements::{contains_words, words_of};
use crate::measure::records::{FieldValue, RecordField};

/// Minimum bytes of a text that is compared.
const MIN_TEXT: usize = 3;
/// Minimum bytes of a code that consists mostly of digits, such as the number of a parcel.
const MIN_CODE_LENGTH: usize = 8;
/// Maximum words of a text that is a value.
const MAX_WORDS: usize = 4;
/// Whole numbers up to this one are common, and are compared only if the text has the name of their column.
const MAX_COMMON_NUMBER: f64 = 20.0;
const PERCENT: f64 = 100.0;

/// Whether two fields have the same value, or the first one contains the text of the other.
pub(super) fn has_value(field: &RecordField, other: &RecordField) -> bool {
    match (field.text(), other.text()) {
        // Only whole words are compared: "unlocked" does not contain "locked".
        (Some(text), Some(part)) => text == part || text.len() > part.len() && has_words(text, part),
        _ => field.value == other.value,
    }
}

/// Whether a text contains `part`, and not inside of a longer word or number.
fn has_words(text: &str, part: &str) -> bool {
    // A digit next to a letter ends a word: "2025-11-09T08:00" contains the date.
    let is_same_word = |c: char, next: char| {
        c.is_alphabetic() && next.is_alphabetic() || c.is_numeric() && next.is_numeric()
    };
    let (first, last) = (part.chars().next(), part.chars().next_back());
    let is_inside_word = |a: Option<char>, b: Option<char>| a.zip(b).is_some_and(|(a, b)| is_same_word(a, b));
    text.match_indices(part).any(|(at, _)| {
        let (before, after) =
            (text.get(..at).unwrap_or_default(), text.get(at + part.len()..).unwrap_or_default());
        !is_inside_word(before.chars().next_back(), first) && !is_inside_word(last, after.chars().next())
    })
}

/// A clause or a text as words in lower case, with its numbers.
pub(super) struct RowStatement<'w> {
    words: Cow<'w, str>,
    pub(super) numbers: Vec<Number>,
}

impl<'w> RowStatement<'w> {
    /// Reads a clause that is given by its words in lower case.
    pub(super) fn new(words: &'w str) -> RowStatement<'w> {
        RowStatement { words: Cow::Borrowed(words), numbers: numbers::all(words) }
    }

    /// Reads a text in any spelling.
    pub(super) fn from_text(text: &str) -> RowStatement<'static> {
        let words = words_of(text);
        RowStatement { numbers: numbers::all(&words), words: Cow::Owned(words) }
    }

    /// Whether the text gives the value of a field. False for flags.
    pub(super) fn gives(&self, field: &RecordField) -> bool {
        match &field.value {
            FieldValue::Bool(_) => false,
            FieldValue::Number(value) => self.numbers.iter().any(|n| self.states_value(n, *value, field)),
            FieldValue::Text(text) => self.gives_text(field.shown(), text, field),
        }
    }

    /// Whether a number of the text is the value of a field, and not part of a date or a time.
    fn states_value(&self, number: &Number, value: f64, field: &RecordField) -> bool {
        let is_day = || dates::begins_with_month(self.words.get(number.end..));
        let is_common = value <= MAX_COMMON_NUMBER && value.fract() == 0.0;
        let is_named = || field.name.iter().all(|word| contains_words(&self.words, word));
        // A fraction may be shown in percent: 0.448 as "44.8 %".
        let is_percent = || {
            let after = self.words.get(number.end..).unwrap_or_default().trim_start();
            value > 0.0
                && value < 1.0
                && after.starts_with('%')
                && (number.value - value * PERCENT).abs() <= number.tolerance * 1.01
        };
        (number.value == value || is_percent())
            && !number.in_identifier
            && !is_day()
            && !self.is_in_time(number)
            && (!is_common || is_named())
    }

    /// Whether the number is a part of a time of day or of a duration: "08:30".
    fn is_in_time(&self, number: &Number) -> bool {
        let before = self.words.get(..number.start).and_then(|before| before.strip_suffix(':'));
        let after = self.words.get(number.end..).and_then(|after| after.strip_prefix(':'));
        before.is_some_and(|before| before.ends_with(|c: char| c.is_ascii_digit()))
            || after.is_some_and(|after| after.starts_with(|c: char| c.is_ascii_digit()))
    }

    /// Whether the text gives the value of a text field: a date, a time, a code, a state or a name.
    fn gives_text(&self, shown: &str, lowercase_text: &str, field: &RecordField) -> bool {
        if let Some(date) = dates::all(shown).next().filter(|date| date.at.start == 0) {
            let date_forms =
                date.forms_without_year().into_iter().filter(|form| form.contains(char::is_alphabetic));
            let written_date = shown.get(date.at).map(str::to_owned);
            // The day before the name of the month, in languages without a dot after the day: "6 septembre".
            let is_day_of_month = |n: &Number| {
                n.value == date.day_of_month as f64
                    && dates::month_after(self.words.get(n.end..)) == Some(date.month)
            };
            return date_forms.chain(written_date).any(|form| contains_words(&self.words, &form))
                || self.numbers.iter().any(is_day_of_month);
        }
        let digits = lowercase_text.bytes().filter(u8::is_ascii_digit).count();
        if lowercase_text.len() < MIN_TEXT
            || lowercase_text.split(' ').count() > MAX_WORDS
            || digits * 2 > lowercase_text.len()
                && !is_clock(lowercase_text)
                && lowercase_text.len() < MIN_CODE_LENGTH
        {
            return false;
        }
        // A common word is compared only as a state, or together with the name of its column.
        let is_name = shown.starts_with(char::is_uppercase) && lowercase_text.len() > MIN_TEXT;
        let is_named = || field.name.iter().all(|word| contains_words(&self.words, word));
        if is_clock(lowercase_text) {
            let time = times(lowercase_text);
            return times(&self.words).iter().any(|stated_time| time.contains(stated_time));
        }
        let is_code = digits * 2 > lowercase_text.len();
        let is_value = is_name || is_code || is_state(field) || is_named();
        is_value && contains_words(&self.words, &lowercase_text.replace('_', " "))
    }

    /// Whether the text has the day of the month of a date, as in "5 to 9 December".
    pub(super) fn has_day(&self, field: &RecordField) -> bool {
        let date = field.text().and_then(|_| dates::all(field.shown()).next());
        date.is_some_and(|date| self.numbers.iter().any(|n| n.value == date.day_of_month as f64))
    }
}

/// Whether the text is a time of day: "17:15".
pub(super) fn is_clock(text: &str) -> bool {
    let is_number = |part: &str| (1..=2).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    text.split_once(':').is_some_and(|(hour, minute)| is_number(hour) && is_number(minute))
}

/// Whether the value is a word of a closed set, which results write in capitals: "QUARANTINE".
pub(super) fn is_enumerated(field: &RecordField) -> bool {
    let shown = field.shown();
    field.is_text()
        && shown.len() > MIN_TEXT
        && shown.bytes().all(|byte| byte.is_ascii_uppercase() || matches!(byte, b'_' | b'-' | b' '))
}

/// Whether the field is a state.
pub(super) fn is_state(field: &RecordField) -> bool {
    field.name.last().is_some_and(|word| is_state_key(word))
}
