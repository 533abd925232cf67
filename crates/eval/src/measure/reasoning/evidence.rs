//! The evidence for an answer: every text that the model was given or that tools returned.
//!
//! In: texts in time order, each with its source; a repeated interned text costs nothing. Out:
//! whether a number is among them, is a rounding or conversion of one, or follows from them by simple
//! arithmetic; and which phrases they contain.

mod derived;

use foldhash::{HashMap, HashSet};
use memchr::memmem;

use self::derived::EvidenceDates;
use super::arithmetic::{converts, named_factors, near, tolerance_of, within};
use super::time_arithmetic::{self, EvidenceMoments};
use crate::measure::Memo;
use crate::measure::numbers::{self, Number};
use crate::measure::records::{KeyName, Record, Records, Structure};
use crate::measure::work_budget::{BYTES_PER_STEP, WorkBudget};
use crate::pattern::contains_ignoring_case;
use crate::recognise::Text;

/// Most distinct numbers. Beyond them the index is full, and no number is called unsupported.
const MAX_VALUES: usize = 50_000;
/// Most numbers used by the model that are kept, the latest ones.
const MAX_MODEL_NUMBERS: usize = 400;
/// Most stated amounts of which two are added up, and rates of them.
const MAX_TOTALLED: usize = 8;
/// Most records of results whose numbers are combined with each other, and most numbers of each.
const MAX_ROWS: usize = 200;
const MAX_ROW_NUMBERS: usize = 8;
/// Most sums and means that are combined with a further number: among more a match proves nothing.
const MAX_AGGREGATES: usize = 64;
/// Most bytes of texts whose dates are read.
const MAX_DATED: usize = 1 << 20;
/// Most pairs of a date and a number that may be a term.
const MAX_TERMS: usize = 400;
/// Most bytes of texts whose times are read.
const MAX_TIMED: usize = 1 << 18;
/// Most bytes of a message whose numbers in words are read: "two of us", "for three nights".
const MAX_SPELLED: usize = 1_000;
const SPELLED: usize = 12;
/// Most codes of all texts.
const MAX_CODES: usize = 64;
regex!(CODE, r#"[:\[,] ?"([A-Z]{2,4})""#);
/// Texts for which there is room at first: collections that grow by steps are copied several times.
const TEXTS: usize = 32;
/// Separates texts: a byte that is in no UTF-8.
const TEXT_SEPARATOR: u8 = 0xff;
/// Phrases whose searches count as one in the work budget: a search is fast.
const AT_ONCE: usize = 16;

/// The origin of a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TextSource {
    /// The result of a tool that is no agent, or a retrieved document.
    Tool,
    /// A message of the user or the caller, or one of unknown origin.
    Conversation,
    /// Instructions: their numbers support an answer, but are no operands.
    Instructions,
}

/// How an answer's number follows from the evidence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Support {
    /// The evidence contains it, as digits, rounded, converted or in words.
    Present,
    /// The number follows by simple arithmetic.
    Derived,
    /// The evidence was too large to decide.
    Unknown,
    /// The number does not follow.
    None,
}

/// The evidence of a trace up to a moment. Every answer may search all of it, so searches count as work.
#[derive(Default)]
pub(crate) struct Evidence<'a> {
    /// The trace's work budget.
    budget: Option<&'a WorkBudget>,
    known_texts: HashSet<(usize, usize)>,
    texts: Vec<&'a str>,
    /// Texts whose numbers are not read yet. Many answers state no number, and need none of them.
    unread: Vec<Unread<'a>>,
    /// The `texts` in lower case, converted when phrases are first searched: each with a byte behind it that is in no
    /// text, so that one search for a phrase reads all of them.
    lowered: Vec<u8>,
    /// How many of the `texts` are in `lowered`.
    lowered_texts: usize,
    /// The first values in capitals of the `texts` ("JFK"), and how many of the texts were searched for them.
    codes: (Vec<&'a str>, usize),
    /// All numbers, sorted.
    values: Vec<f64>,
    /// The numbers that arithmetic may use, sorted.
    operands: Vec<f64>,
    /// Sums and means of results, which one further step may use.
    aggregates: Vec<f64>,
    /// The sums of columns so far, by their names.
    pages: HashMap<KeyName, f64>,
    /// The numbers of each record of results that has several, sorted.
    rows: Vec<Vec<f64>>,
    /// The arguments of the model's calls, which an answer may quote.
    arguments: Vec<&'a str>,
    /// Numbers that are not in `values` yet, and whether they are operands.
    new_values: Vec<(f64, bool)>,
    /// Numbers whose only origin is an unsupported answer, sorted.
    tainted: Vec<f64>,
    /// Numbers in the model's outputs and calls.
    model_numbers: Vec<f64>,
    /// Results that are a single number ("836"), with their texts.
    single_numbers: Vec<(f64, &'a str)>,
    /// The conversions that the answer may use, if its words are read.
    units: Option<Vec<f64>>,
    full: bool,
    dates: EvidenceDates,
    /// The dates and times of the texts, and how many of these were read.
    moments: (EvidenceMoments, usize),
}

/// Whether a number of instructions is one to calculate with: a rate of tax, the year of today's date.
fn is_rate_or_year(text: &str, number: &Number) -> bool {
    const YEARS: std::ops::Range<f64> = 1990.0..2100.0;
    text.get(number.end..).is_some_and(|rest| rest.trim_start().starts_with('%'))
        || YEARS.contains(&number.value) && number.value.fract() == 0.0
}

/// A text whose numbers are to be read.
enum Unread<'a> {
    Text(&'a str, TextSource),
    /// A result whose columns support an answer by their sums and means.
    Columns(&'a Text, &'a Memo),
    /// A text of the model itself.
    Model(&'a str),
}

impl<'a> Evidence<'a> {
    pub(crate) fn within(budget: &'a WorkBudget) -> Evidence<'a> {
        let mut evidence = Evidence { budget: Some(budget), ..Evidence::default() };
        evidence.known_texts.reserve(TEXTS);
        evidence.texts.reserve(TEXTS);
        evidence.unread.reserve(TEXTS);
        evidence
    }

    /// Counts steps; false if the work budget is exceeded.
    fn spend(&self, steps: usize) -> bool {
        self.budget.is_none_or(|budget| budget.spend(steps))
    }

    /// Adds a text once.
    pub(crate) fn add(&mut self, text: &'a Text, source: TextSource) {
        if !self.known_texts.insert((text.as_ptr() as usize, text.len())) || text.is_empty() {
            return;
        }
        self.texts.push(text);
        self.unread.push(Unread::Text(text, source));
    }

    /// Adds sums and means of a result's columns, if it has any. They support an answer, but are no operands.
    pub(crate) fn add_columns(&mut self, result: &'a Text, memo: &'a Memo) {
        self.unread.push(Unread::Columns(result, memo));
    }

    /// Adds a number that the model knows from elsewhere, such as the year of the run.
    pub(crate) fn know(&mut self, value: f64) {
        self.new_values.push((value, true));
    }

    /// Conversions count only between units that `answer` names; without one, all of them.
    pub(crate) fn convert_for(&mut self, answer: Option<&str>) {
        self.units = answer.map(named_factors);
    }

    /// Notes the numbers of the model's own outputs and calls. They are no evidence; those that the
    /// evidence contains are the operands of the model's arithmetic.
    pub(crate) fn note_model_text(&mut self, text: &'a str) {
        self.unread.push(Unread::Model(text));
    }

    /// Notes the arguments of a call of the model: their numbers, and what an answer may quote of them.
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

    /// Reads the numbers of the texts that were added.
    fn read_numbers(&mut self) {
        for unread in std::mem::take(&mut self.unread) {
            match unread {
                Unread::Text(text, source) => self.read_text(text, source),
                Unread::Columns(result, memo) => self.read_columns(result, memo),
                Unread::Model(text) => self.read_model_text(text),
            }
        }
    }

    fn read_text(&mut self, text: &'a str, source: TextSource) {
        if self.values.len() + self.new_values.len() > MAX_VALUES {
            self.full = true;
            return;
        }
        if source == TextSource::Conversation && text.len() <= MAX_SPELLED {
            let words = text.split(|c: char| !c.is_alphabetic());
            let spelled = |word: &str| (2..=SPELLED).find(|n| numbers::is_spelled(*n, word));
            self.new_values.extend(words.filter_map(spelled).map(|n| (n as f64, true)));
        }
        let (new_values, tainted) = (&mut self.new_values, &self.tainted);
        let mut first = None;
        // The second year of "1952/53".
        let second_year = |n: &Number| {
            let rest = text.get(n.end..)?.strip_prefix(['/', '–', '-'])?;
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let year = rest.get(..digits).filter(|_| digits == 2)?.parse::<f64>().ok()?;
            let year = (n.value / 100.0).floor() * 100.0 + year;
            ((1000.0..2200.0).contains(&n.value) && year > n.value).then_some(year)
        };
        numbers::scan(text, |n| {
            first.get_or_insert(n);
            new_values.extend(second_year(&n).map(|year| (year, true)));
            for value in n.possible_values() {
                let secondhand = source != TextSource::Tool && within(tainted, value - 1e-9, value + 1e-9);
                if !secondhand {
                    let is_operand = source != TextSource::Instructions || is_rate_or_year(text, &n);
                    new_values.push((value, is_operand));
                }
            }
        });
        if let (TextSource::Tool, Some(n)) = (source, first)
            && is_single_number(text, &n)
        {
            self.single_numbers.push((n.value, text));
        }
    }

    fn read_columns(&mut self, result: &Text, memo: &Memo) {
        let structure = Structure::cached(result, memo);
        let Some(Structure(Some(records))) = structure.as_deref() else { return };
        if self.values.len() + self.new_values.len() <= MAX_VALUES {
            // The cells of a table whose commas are between numbers: "37,412".
            if !result.trim_start().starts_with(['{', '[']) {
                let cells = records.records.iter().flat_map(|record| &record.fields);
                self.new_values.extend(cells.filter_map(|cell| Some((cell.number()?.abs(), true))));
            }
            self.add_pages(records);
            self.add_rows(records);
            let aggregates = records.aggregates();
            self.new_values.extend(aggregates.iter().map(|value| (value.abs(), false)));
            self.new_values.extend(records.lengths().map(|length| (length as f64, false)));
            if self.aggregates.len() < MAX_AGGREGATES {
                self.aggregates.extend(aggregates.iter().map(|value| value.abs()));
            }
        }
    }

    fn add_rows(&mut self, records: &Records) {
        for record in &records.records {
            let numbers = record.fields.iter().filter_map(|field| Some(field.number()?.abs()));
            let mut numbers: Vec<f64> = numbers.take(MAX_ROW_NUMBERS).collect();
            if numbers.len() > 1 && self.rows.len() < MAX_ROWS {
                numbers.sort_by(f64::total_cmp);
                self.rows.push(numbers);
            }
        }
    }

    /// The sums of columns over several results whose lists have the same columns: pages of one list.
    fn add_pages(&mut self, records: &Records) {
        let Some(first) = records.records.iter().find(|record| record.list.is_some()) else { return };
        let rows = || records.records.iter().filter(|record| record.list == first.list);
        for column in first.fields.iter().filter(|field| field.number().is_some()).take(MAX_TOTALLED) {
            let number_in =
                |row: &Record| row.fields.iter().find(|field| field.name == column.name)?.number();
            let sum: f64 = rows().filter_map(number_in).sum();
            let pages = self.pages.entry(column.name.clone()).or_default();
            let is_next = *pages != 0.0;
            *pages += sum.abs();
            if is_next && self.aggregates.len() < MAX_AGGREGATES {
                self.new_values.push((*pages, false));
                self.aggregates.push(*pages);
            }
        }
    }

    fn read_model_text(&mut self, text: &str) {
        let model_numbers = &mut self.model_numbers;
        numbers::scan(text, |n| model_numbers.push(n.value));
        if model_numbers.len() > 2 * MAX_MODEL_NUMBERS {
            model_numbers.drain(..model_numbers.len() - MAX_MODEL_NUMBERS);
        }
    }

    /// Marks a number whose origin is an unsupported answer: an agent's report that repeats it is no
    /// evidence.
    pub(crate) fn taint(&mut self, value: f64) {
        // A number that was added before has another origin.
        self.read_numbers();
        if self.tainted.len() < MAX_VALUES && self.spend(1 + self.tainted.len() / BYTES_PER_STEP) {
            let at = self.tainted.partition_point(|other| *other < value);
            self.tainted.insert(at, value);
        }
    }

    /// Whether the number's origin is an unsupported answer.
    pub(crate) fn is_tainted(&self, value: f64) -> bool {
        within(&self.tainted, value - 1e-9, value + 1e-9)
    }

    /// Results that are a single number, newest last, as far as numbers were looked for.
    pub(crate) fn single_numbers(&self) -> &[(f64, &'a str)] {
        &self.single_numbers
    }

    fn merge_new_values(&mut self) {
        self.read_numbers();
        if self.new_values.is_empty() || !self.spend(self.values.len() + self.new_values.len()) {
            return;
        }
        let operands = self.new_values.iter().filter(|(_, is_operand)| *is_operand).map(|(value, _)| *value);
        merge_sorted(&mut self.operands, operands.collect());
        merge_sorted(&mut self.values, self.new_values.drain(..).map(|(value, _)| value).collect());
        self.full |= self.values.len() > MAX_VALUES;
    }

    /// How `n` follows from the evidence and from the numbers `stated`, which the answer states and
    /// which are supported. `hedged` allows a rounding to the leading digits ("about 800" for 836).
    pub(crate) fn supports(&mut self, n: &Number, hedged: bool, stated: &[f64]) -> Support {
        self.merge_new_values();
        let is_present = |value: f64| {
            let tolerance = tolerance_of(n, value, hedged);
            self.contains(value, tolerance)
                || stated.iter().any(|v| near(*v, value, tolerance))
                || self.is_total_in_other_unit(value, tolerance)
                // A hedge widens the tolerance of roundings only.
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
        match self.full {
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
        // An amount per month as an amount per year.
        let by_year = |total: &f64| near(total * MONTHS, value, tolerance);
        let gives_value =
            |total: &f64| by_year(total) || UNITS.iter().any(|unit| near(total / unit, value, tolerance));
        value > 0.0 && totals.into_iter().any(gives_value)
    }

    /// Whether a text has the number as it is.
    pub(crate) fn has_number(&mut self, value: f64) -> bool {
        self.merge_new_values();
        self.contains(value, 0.0)
    }

    fn contains(&self, value: f64, tolerance: f64) -> bool {
        within(&self.values, value - tolerance, value + tolerance)
    }

    /// Reads the dates and times of the texts; false if the work budget is exceeded.
    fn read_moments(&mut self) -> bool {
        let mut left = MAX_TIMED;
        let (moments, read) = &mut self.moments;
        for text in self.texts.iter().skip(*read).filter(|text| numbers::has_digit(text)) {
            let Some(rest) = left.checked_sub(text.len()) else { continue };
            left = rest;
            moments.read(text);
        }
        *read = self.texts.len();
        self.spend((MAX_TIMED - left) / BYTES_PER_STEP)
    }

    /// Whether a number of a sentence follows from the dates and times of the texts, as a duration, an age or a time
    /// of day.
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
            || moments.give(sentence, n)
    }

    /// Whether a number of a sentence whose words are not read is a difference of the moments of the texts.
    pub(crate) fn gives_difference(&mut self, sentence: &str, n: &Number) -> bool {
        !self.read_moments() || self.moments.0.give_difference(sentence, n)
    }

    /// For each lower-case phrase whether some text contains it, ignoring case; true for all when the
    /// work budget is exceeded.
    pub(crate) fn mentions(&mut self, phrases: &[&str]) -> Vec<bool> {
        let bytes: usize = self.texts.iter().map(|t| t.len()).sum();
        let steps = (bytes / BYTES_PER_STEP + self.texts.len()).saturating_mul(1 + phrases.len() / AT_ONCE);
        if !self.spend(steps) {
            return vec![true; phrases.len()];
        }
        // Converted once per trace, so that searches need not ignore case.
        let (from, new) = (self.lowered.len(), self.texts.get(self.lowered_texts..).unwrap_or_default());
        self.lowered.reserve(new.iter().map(|text| text.len() + 1).sum());
        for text in new {
            self.lowered.extend_from_slice(text.as_bytes());
            self.lowered.push(TEXT_SEPARATOR);
        }
        self.lowered_texts = self.texts.len();
        self.lowered.get_mut(from..).into_iter().for_each(<[u8]>::make_ascii_lowercase);
        phrases.iter().map(|phrase| memmem::find(&self.lowered, phrase.as_bytes()).is_some()).collect()
    }

    /// Whether a structured text has a value in capitals ("JFK", "GB") that the answer does not give alone: it gives it
    /// next to a name, or not at all.
    pub(crate) fn has_codes(&mut self, answer: &str) -> bool {
        // Each text is searched once per trace.
        let (codes, searched) = &mut self.codes;
        let new = self.texts.get(*searched..).unwrap_or_default();
        let bytes: usize = new.iter().map(|text| text.len()).sum();
        if self.budget.is_some_and(|budget| !budget.spend(1 + bytes / BYTES_PER_STEP)) {
            return true;
        }
        let found = new.iter().flat_map(|text| CODE.captures_iter(text)).filter_map(|code| code.get(1));
        codes.extend(found.take(MAX_CODES - codes.len()).map(|code| code.as_str()));
        *searched = self.texts.len();
        let is_told = |code: &str| answer.contains(code) && !answer.contains(&format!("({code})"));
        codes.iter().any(|code| !is_told(code))
    }

    /// The texts so far, newest last.
    #[cfg(test)]
    pub(crate) fn texts(&self) -> &[&'a str] {
        &self.texts
    }
}

/// Adds numbers to a sorted list without repeats, which is long where traces have many agents: it is not sorted again.
fn merge_sorted(list: &mut Vec<f64>, mut new: Vec<f64>) {
    new.sort_unstable_by(f64::total_cmp);
    let (Some(first), Some(last)) = (new.first().copied(), new.last().copied()) else { return };
    let from = list.partition_point(|value| value.total_cmp(&first).is_lt());
    let to = list.partition_point(|value| value.total_cmp(&last).is_le());
    new.extend_from_slice(list.get(from..to).unwrap_or_default());
    // Two runs that are sorted: the stable sort merges them.
    new.sort_by(f64::total_cmp);
    new.dedup();
    list.splice(from..to, new);
}

/// Whether the text is a single number, with at most a unit, a label or brackets.
fn is_single_number(text: &str, n: &Number) -> bool {
    text.len() <= 48 && numbers::all(text).len() == 1 && !n.in_identifier
}

#[cfg(test)]
mod tests;
