//! The evidence for an answer: every text that the model read or that tools returned.
//!
//! In: texts in time order, each with its source; a repeated interned text costs nothing. Out: whether a number is in
//! the evidence, is a rounding or conversion of a number there, or follows from such numbers by simple arithmetic; and
//! which phrases the texts contain.

mod derived;
mod evidence_dates;
mod number_reader;

use std::borrow::Cow;

use foldhash::{HashMap, HashSet};
use memchr::memmem;

use self::evidence_dates::EvidenceDates;
use super::arithmetic::{converts, named_factors, near, tolerance_of, within};
use super::dates;
use super::time_arithmetic::{self, EvidenceMoments};
use crate::measure::Memo;
use crate::measure::excerpt::without_json_escapes;
use crate::measure::numbers::{self, Number};
use crate::measure::records::KeyName;
use crate::measure::work_budget::{BYTES_PER_STEP, WorkBudget};
use crate::pattern::contains_ignoring_case;
use crate::recognise::Text;

/// Maximum distinct numbers. If there are more, no number is reported as unsupported.
const MAX_VALUES: usize = 50_000;
/// Maximum numbers used by the model that are kept, the latest ones.
const MAX_MODEL_NUMBERS: usize = 400;
/// Maximum stated amounts that are added up in pairs, rates that are applied to them, and columns of a list that are
/// totalled.
const MAX_TOTALLED: usize = 8;
/// Maximum sums and means that are combined with another number: among more, a match may be accidental.
const MAX_AGGREGATES: usize = 64;
/// Maximum pairs of a date and a duration, such as the term of a contract, that are added up.
const MAX_TERMS: usize = 400;
/// Maximum bytes of texts whose dates and times are read.
const MAX_TIMED: usize = 1 << 18;
/// Maximum codes of all texts that are compared with an answer.
const MAX_CODES: usize = 64;
// A value of two to four capitals in JSON.
regex!(CODE, r#"[:\[,] ?"([A-Z]{2,4})""#);
/// Initial capacity for texts, so that the collections are seldom reallocated.
const INITIAL_TEXTS: usize = 32;
/// A byte that never occurs in UTF-8, so that no phrase matches across two texts.
const TEXT_SEPARATOR: u8 = 0xff;
/// Number of phrases whose searches count as one in the work budget, since a search is fast.
const PHRASES_PER_SEARCH: usize = 16;

/// The origin of a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TextSource {
    /// The result of a tool that is not an agent, or a retrieved document.
    Tool,
    /// A message of the user or the caller, or one of unknown origin.
    Conversation,
    /// Instructions. Their numbers support an answer, but are not used in arithmetic.
    Instructions,
}

/// How an answer's number follows from the evidence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Support {
    /// The evidence contains the number in digits or words, possibly rounded or converted.
    Present,
    /// The number follows by simple arithmetic.
    Derived,
    /// The evidence was too large to decide.
    Unknown,
    /// The number does not follow.
    None,
}

/// The evidence of a trace up to a point in time. Every answer may search all of it, so that searches count as work.
#[derive(Default)]
pub(crate) struct Evidence<'a> {
    /// The trace's work budget.
    budget: Option<&'a WorkBudget>,
    /// The addresses and lengths of the texts.
    known_texts: HashSet<(usize, usize)>,
    texts: Vec<&'a str>,
    /// Texts whose numbers are not read yet: they are read only for answers with numbers.
    unread: Vec<Unread<'a>>,
    /// The `texts` in lower case, each followed by [`TEXT_SEPARATOR`], so that one search for a phrase covers all of
    /// them. They are converted when phrases are first searched.
    lowercase_bytes: Vec<u8>,
    /// The number of `texts` that are in `lowercase_bytes`.
    lowercase_text_count: usize,
    /// The first codes in capitals ("JFK") in the texts, with the number of texts that were searched.
    codes: (Vec<&'a str>, usize),
    /// All numbers, sorted.
    values: Vec<f64>,
    /// The numbers that arithmetic may use, sorted.
    operands: Vec<f64>,
    /// Sums and means of results, which may be combined with one more number.
    aggregates: Vec<f64>,
    /// By the name of a column, its sum over the results so far.
    column_sums: HashMap<KeyName, f64>,
    /// The sorted numbers of each record of results that has several.
    rows: Vec<Vec<f64>>,
    /// The arguments of the model's calls, which an answer may quote.
    arguments: Vec<&'a str>,
    /// The days in `arguments`, with the number of arguments that were read.
    passed_days: (HashSet<i64>, usize),
    /// Numbers that are not in `values` yet, each with whether it is an operand.
    new_values: Vec<(f64, bool)>,
    /// Numbers whose only source is an unsupported answer, sorted.
    tainted: Vec<f64>,
    /// The numbers in the model's outputs and calls.
    model_numbers: Vec<f64>,
    /// Results that are a single number ("836"), with their texts.
    single_numbers: Vec<(f64, &'a str)>,
    /// The factors between units that the answer names; `None` if all conversions are allowed.
    units: Option<Vec<f64>>,
    /// Whether there are more than [`MAX_VALUES`] numbers.
    is_full: bool,
    dates: EvidenceDates,
    /// The dates and times of the texts, with the number of texts that were read.
    moments: (EvidenceMoments, usize),
}

/// A text whose numbers are to be read.
enum Unread<'a> {
    Text(&'a str, TextSource),
    /// A result whose sums and means of columns are read.
    Columns(&'a Text, &'a Memo),
    /// A text of the model itself.
    Model(&'a str),
    /// A text of the model to which its user replied, and whose facts were not checked.
    Proposal(&'a Text),
}

impl<'a> Evidence<'a> {
    /// Empty evidence, whose searches count in a work budget.
    pub(crate) fn within(budget: &'a WorkBudget) -> Evidence<'a> {
        let mut evidence = Evidence { budget: Some(budget), ..Evidence::default() };
        evidence.known_texts.reserve(INITIAL_TEXTS);
        evidence.texts.reserve(INITIAL_TEXTS);
        evidence.unread.reserve(INITIAL_TEXTS);
        evidence
    }

    /// Counts work steps; false if the work budget is exceeded.
    fn spend(&self, steps: usize) -> bool {
        self.budget.is_none_or(|budget| budget.spend(steps))
    }

    /// Adds a text, unless the same interned text was added before.
    pub(crate) fn add(&mut self, text: &'a Text, source: TextSource) {
        if !self.known_texts.insert((text.as_ptr() as usize, text.len())) || text.is_empty() {
            return;
        }
        self.texts.push(text);
        self.unread.push(Unread::Text(text, source));
    }

    /// Adds sums and means of the columns of a result, if it has any. They support an answer, but are not used in
    /// arithmetic with several steps.
    pub(crate) fn add_columns(&mut self, result: &'a Text, memo: &'a Memo) {
        self.unread.push(Unread::Columns(result, memo));
    }

    /// Adds a number that the model may know without a text, such as the year of the run.
    pub(crate) fn add_number(&mut self, value: f64) {
        self.new_values.push((value, true));
    }

    /// Restricts conversions to the units that `answer` names; with `None`, all conversions are allowed.
    pub(crate) fn restrict_units(&mut self, answer: Option<&str>) {
        self.units = answer.map(named_factors);
    }

    /// Adds the numbers of a model's output or call. They are not evidence, but those that the evidence contains as
    /// well are likely operands of the model's arithmetic.
    pub(crate) fn note_model_text(&mut self, text: &'a str) {
        self.unread.push(Unread::Model(text));
    }

    /// Adds the numbers of an answer to which its user replied, and whose facts were checked.
    pub(crate) fn add_answer(&mut self, text: &'a Text) {
        self.unread.push(Unread::Text(text, TextSource::Conversation));
    }

    /// Adds a text of the model to which its user replied, and whose facts were not checked: the text asked for a
    /// decision, so that the user knows its numbers. The numbers that follow from the evidence are operands of the
    /// answers after it.
    pub(crate) fn add_proposal(&mut self, text: &'a Text) {
        self.unread.push(Unread::Proposal(text));
    }

    /// Adds the arguments of a model's call: their numbers, and their text, which an answer may quote.
    pub(crate) fn note_arguments(&mut self, arguments: &'a str) {
        self.note_model_text(arguments);
        self.arguments.push(arguments);
    }

    /// Whether the model passed one of these lower-case phrases to a call; true when the work budget is exceeded.
    pub(crate) fn was_passed(&self, phrases: &[String]) -> bool {
        self.arguments.iter().any(|arguments| {
            let is_read = self.spend(1 + arguments.len() / BYTES_PER_STEP);
            !is_read || phrases.iter().any(|phrase| contains_ignoring_case(arguments, phrase))
        })
    }

    /// Whether the model passed a day to a call that satisfies the predicate, for example the first day of "last week";
    /// true when the work budget is exceeded.
    pub(crate) fn was_day_passed(&mut self, is_wanted: impl Fn(i64) -> bool) -> bool {
        // The arguments of each call are read once per trace.
        let (days, read) = &mut self.passed_days;
        let new_arguments = self.arguments.get(*read..).unwrap_or_default();
        let bytes: usize = new_arguments.iter().map(|arguments| arguments.len()).sum();
        *read = self.arguments.len();
        days.extend(new_arguments.iter().flat_map(|arguments| dates::all(arguments)).map(|date| date.day));
        days.iter().any(|day| is_wanted(*day)) || !self.spend(1 + bytes / BYTES_PER_STEP)
    }

    /// Marks a number whose source is an unsupported answer, so that a report of an agent that repeats it is not
    /// evidence.
    pub(crate) fn taint(&mut self, value: f64) {
        // A number that was added before has another source.
        self.read_numbers();
        if self.tainted.len() < MAX_VALUES && self.spend(1 + self.tainted.len() / BYTES_PER_STEP) {
            let at = self.tainted.partition_point(|other| *other < value);
            self.tainted.insert(at, value);
        }
    }

    /// Whether the source of the number is an unsupported answer.
    pub(crate) fn is_tainted(&self, value: f64) -> bool {
        within(&self.tainted, value - 1e-9, value + 1e-9)
    }

    /// Results that are a single number, newest last, among the texts whose numbers were read.
    pub(crate) fn single_numbers(&self) -> &[(f64, &'a str)] {
        &self.single_numbers
    }

    /// Reads the added texts and merges their numbers into the sorted lists.
    fn merge_new_values(&mut self) {
        self.read_numbers();
        if self.new_values.is_empty() || !self.spend(self.values.len() + self.new_values.len()) {
            return;
        }
        let operands = self.new_values.iter().filter(|(_, is_operand)| *is_operand).map(|(value, _)| *value);
        merge_sorted(&mut self.operands, operands.collect());
        merge_sorted(&mut self.values, self.new_values.drain(..).map(|(value, _)| value).collect());
        self.is_full |= self.values.len() > MAX_VALUES;
    }

    /// How `n` follows from the evidence and from the supported numbers `stated` of the answer. `hedged` allows a
    /// rounding to the leading digits ("about 800" for 836).
    pub(crate) fn supports(&mut self, n: &Number, hedged: bool, stated: &[f64]) -> Support {
        self.merge_new_values();
        let is_present = |value: f64| {
            let tolerance = tolerance_of(n, value, hedged);
            self.contains(value, tolerance)
                || stated.iter().any(|v| near(*v, value, tolerance))
                || self.is_total_in_other_unit(value, tolerance)
                // A hedge does not widen the tolerance of conversions.
                || converts(&self.operands, value, tolerance_of(n, value, false), self.units.as_deref())
        };
        if n.possible_values().any(is_present) {
            return Support::Present;
        }
        let spelled = numbers::spelled(n.value);
        if spelled.is_some_and(|words| self.mentions(&[words.as_str()]).first() == Some(&true)) {
            return Support::Present;
        }
        let is_derived = |value: f64| self.derives(value, tolerance_of(n, value, false), stated);
        match self.is_full {
            true => Support::Unknown,
            false if n.possible_values().any(is_derived) => Support::Derived,
            false if self.budget.is_some_and(WorkBudget::is_exceeded) => Support::Unknown,
            false => Support::None,
        }
    }

    /// Whether the value is a sum or mean of results in another unit: metres as kilometres, seconds as minutes.
    fn is_total_in_other_unit(&self, value: f64, tolerance: f64) -> bool {
        const MONTHS: f64 = 12.0;
        const UNITS: [f64; 4] = [60.0, 100.0, 1e3, 3600.0];
        let totals = self.aggregates.iter().take(MAX_AGGREGATES);
        // An amount per month may be stated per year.
        let is_per_year = |total: &f64| near(total * MONTHS, value, tolerance);
        let gives_value =
            |total: &f64| is_per_year(total) || UNITS.iter().any(|unit| near(total / unit, value, tolerance));
        value > 0.0 && totals.into_iter().any(gives_value)
    }

    /// Whether a text has exactly this number.
    pub(crate) fn has_number(&mut self, value: f64) -> bool {
        self.merge_new_values();
        self.contains(value, 0.0)
    }

    /// Whether a text has a number in this range.
    pub(crate) fn has_number_within(&mut self, low: f64, high: f64) -> bool {
        self.merge_new_values();
        within(&self.values, low, high)
    }

    /// Whether the number is a known one divided by `factor`, or multiplied by it.
    pub(crate) fn gives_with_factor(&mut self, n: &Number, factor: f64) -> bool {
        self.merge_new_values();
        self.contains(n.value * factor, n.tolerance * factor)
            || self.contains(n.value / factor, n.tolerance / factor)
    }

    /// Whether a number of the evidence is at most `tolerance` away from the value.
    fn contains(&self, value: f64, tolerance: f64) -> bool {
        within(&self.values, value - tolerance, value + tolerance)
    }

    /// Reads the dates and times of the texts; false if the work budget is exceeded.
    fn read_moments(&mut self) -> bool {
        let mut remaining = MAX_TIMED;
        let (moments, read) = &mut self.moments;
        for text in self.texts.iter().skip(*read).filter(|text| numbers::has_digit(text)) {
            let Some(after) = remaining.checked_sub(text.len()) else { continue };
            remaining = after;
            moments.read(text);
        }
        *read = self.texts.len();
        self.spend((MAX_TIMED - remaining) / BYTES_PER_STEP)
    }

    /// Whether a number of a sentence follows from the dates and times of the texts, as a duration, an age or a time of
    /// day. True beyond the work budget.
    pub(crate) fn gives_time(&mut self, sentence: &str, n: &Number) -> bool {
        self.merge_new_values();
        if !self.read_moments() {
            return true;
        }
        if let Some(total) = time_arithmetic::durations(sentence).find(|d| d.has(n)).and_then(|d| d.total(n))
            && self.supports(&total, false, &[]) != Support::None
        {
            return true;
        }
        let moments = &self.moments.0;
        time_arithmetic::clock_at(sentence, n).is_some() && moments.are_too_many()
            || moments.supports(sentence, n)
    }

    /// Whether a number of a sentence in an unsupported language is a difference of dates or times of the texts. True
    /// beyond the work budget.
    pub(crate) fn gives_difference(&mut self, sentence: &str, n: &Number) -> bool {
        !self.read_moments() || self.moments.0.supports_difference(sentence, n)
    }

    /// For each lower-case phrase whether some text contains it, ignoring case; true for all when the
    /// work budget is exceeded.
    pub(crate) fn mentions(&mut self, phrases: &[&str]) -> Vec<bool> {
        let bytes: usize = self.texts.iter().map(|t| t.len()).sum();
        let steps = (bytes / BYTES_PER_STEP + self.texts.len())
            .saturating_mul(1 + phrases.len() / PHRASES_PER_SEARCH);
        if !self.spend(steps) {
            return vec![true; phrases.len()];
        }
        // Each text is converted once, so that searches need not ignore case.
        let (from, new) =
            (self.lowercase_bytes.len(), self.texts.get(self.lowercase_text_count..).unwrap_or_default());
        self.lowercase_bytes.reserve(new.iter().map(|text| text.len() + 1).sum());
        for text in new {
            self.lowercase_bytes.extend_from_slice(text.as_bytes());
            self.lowercase_bytes.push(TEXT_SEPARATOR);
            // "https:\/\/example.com" in JSON is the link of an answer.
            if let Cow::Owned(text) = without_json_escapes(text) {
                self.lowercase_bytes.extend_from_slice(text.as_bytes());
                self.lowercase_bytes.push(TEXT_SEPARATOR);
            }
        }
        self.lowercase_text_count = self.texts.len();
        self.lowercase_bytes.get_mut(from..).into_iter().for_each(<[u8]>::make_ascii_lowercase);
        phrases
            .iter()
            .map(|phrase| memmem::find(&self.lowercase_bytes, phrase.as_bytes()).is_some())
            .collect()
    }

    /// Whether a text has a code in capitals ("JFK", "GB") that the answer contains only in brackets or not at all, so
    /// that the answer may give the name for the code. True beyond the work budget.
    pub(crate) fn has_codes(&mut self, answer: &str) -> bool {
        // Each text is searched once per trace.
        let (codes, searched) = &mut self.codes;
        let new_texts = self.texts.get(*searched..).unwrap_or_default();
        let bytes: usize = new_texts.iter().map(|text| text.len()).sum();
        if self.budget.is_some_and(|budget| !budget.spend(1 + bytes / BYTES_PER_STEP)) {
            return true;
        }
        let matches =
            new_texts.iter().flat_map(|text| CODE.captures_iter(text)).filter_map(|code| code.get(1));
        codes.extend(matches.take(MAX_CODES - codes.len()).map(|code| code.as_str()));
        *searched = self.texts.len();
        let is_in_answer = |code: &str| answer.contains(code) && !answer.contains(&format!("({code})"));
        codes.iter().any(|code| !is_in_answer(code))
    }

    /// The texts so far, newest last.
    #[cfg(test)]
    pub(crate) fn texts(&self) -> &[&'a str] {
        &self.texts
    }
}

/// Adds numbers to a sorted list without duplicates. The list is long in traces with many agents, so only the part
/// with the range of the new numbers is sorted.
fn merge_sorted(list: &mut Vec<f64>, mut new: Vec<f64>) {
    new.sort_unstable_by(f64::total_cmp);
    let (Some(first), Some(last)) = (new.first().copied(), new.last().copied()) else { return };
    let from = list.partition_point(|value| value.total_cmp(&first).is_lt());
    let to = list.partition_point(|value| value.total_cmp(&last).is_le());
    new.extend_from_slice(list.get(from..to).unwrap_or_default());
    // Both parts are sorted, which makes the stable sort a merge.
    new.sort_by(f64::total_cmp);
    new.dedup();
    list.splice(from..to, new);
}

#[cfg(test)]
mod tests;
