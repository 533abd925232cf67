//! The day or time of an action: "your appointment is on 9 November", where the booking has 5 November.
//!
//! Principle: an answer that confirms an action gives its day and its time. If an action has one day (or one time), and
//! the answer has only another one, the answer contradicts the action. The answer confirms the action if it has a
//! number or code of the result. The stated moment is the requested one, or one that no action and no record outside a
//! list has, so that it does not belong to another thing. It must not follow from a number of a text, as the end of a
//! stay does, and neither the request nor the sentence may relate moments to each other ("an hour before").
//!
//! In: the last action before an answer with its result, and the days and times of the answer. Out: one contradiction,
//! in any language.

use super::exchange::{Exchange, ExchangeFindings};
use super::sources::ResultSource;
use crate::measure::language::{WordClasses, classes, classes_in};
use crate::measure::numbers::{self, has_digit};
use crate::measure::reasoning::answer::sentences;
use crate::measure::reasoning::dates_and_times::{Clock, Day, clocks, clocks_in, days, days_in, is_zoned};
use crate::measure::records::RecordField;
use crate::measure::tool_purpose::ToolPurpose;
use crate::pattern::contains_ignoring_case;

// The offset of a time from UTC.
regex!(OFFSET, r"\d[+-]\d{2}:?\d{2}\b");
/// Maximum bytes of the arguments of an action: longer ones are about several things.
const MAX_ARGUMENTS: usize = 1_000;
/// Minimum bytes of a code of a result.
const MIN_CODE: usize = 4;
/// Maximum days between both days: days further apart belong to different things.
const MAX_DAYS: i64 = 60;
const MINUTES_PER_HOUR: f64 = 60.0;
/// Classes of words that relate a moment to another one.
const RELATIONS: WordClasses =
    classes!(Before Bound Sequence Alternative Condition Negation Exception Increment Repetition Comparison);

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let is_action = |source: &&ResultSource<'_>| !ToolPurpose::new(&source.call.name, None).is_query();
    let Some(source) = exchange.sources.structured.iter().rev().find(is_action) else { return };
    let Some(fields) = confirmed_fields(exchange, source) else { return };
    if !exchange.spends_search() || !exchange.spends_numbers() {
        return;
    }
    findings.examined = true;
    // An answer in UTC has the moments of the results, whose offsets are assumed to be 0.
    let is_in_utc =
        exchange.answer.contains("UTC") && !exchange.sources.seen.iter().any(|text| OFFSET.is_match(text));
    let is_zoned = !is_in_utc && exchange.sources.seen.iter().any(|text| is_zoned(text));
    let is_english = exchange.is_english();
    let days = Moments {
        exchange,
        source,
        fields,
        read: &days_in,
        is_same: &|a: Day, b: Day| a.may_equal(b),
        // A zone may change the day by one.
        may_follow: &|a: Day, b: Day, numbers: &[f64]| {
            let distance = a.days_until(b).abs();
            distance > MAX_DAYS || distance == 1 && is_zoned || numbers.contains(&(distance as f64))
        },
    };
    let times = Moments {
        exchange,
        source,
        fields,
        read: &|text: &str| clocks_in(text, is_english),
        is_same: &|a: Clock, b: Clock| a.may_equal(b),
        may_follow: &|a: Clock, b: Clock, numbers: &[f64]| {
            let minutes = f64::from(a.time.abs_diff(b.time));
            is_zoned || numbers.iter().any(|n| *n == minutes || n * MINUTES_PER_HOUR == minutes)
        },
    };
    let wrong = days.contradiction().or_else(|| times.contradiction());
    if let Some((returned, line)) = wrong {
        findings.contradicts(&returned, source.call, line);
    }
}

/// The fields of the result of an action, if the answer has a code of the result.
fn confirmed_fields<'e>(exchange: &Exchange<'_>, source: &'e ResultSource<'_>) -> Option<&'e [RecordField]> {
    let arguments = source.call.arguments.as_deref().filter(|text| text.len() <= MAX_ARGUMENTS)?;
    let (_, record) = source.records().next().filter(|(_, record)| record.list.is_none())?;
    let is_code = |field: &&RecordField| {
        let shown = field.shown();
        shown.len() >= MIN_CODE && has_digit(shown) && days(shown).is_empty() && clocks(shown).is_empty()
    };
    let is_confirmed = |field: &RecordField| {
        exchange.answer.contains(field.shown())
            && !contains_ignoring_case(arguments, &field.shown().to_lowercase())
    };
    record.fields.iter().filter(is_code).any(is_confirmed).then_some(&record.fields)
}

/// The moments of one kind, days or times, of an action and of the texts around it.
struct Moments<'c, 'a, T> {
    exchange: &'c Exchange<'a>,
    source: &'c ResultSource<'a>,
    fields: &'c [RecordField],
    read: &'c dyn Fn(&str) -> Vec<T>,
    is_same: &'c dyn Fn(T, T) -> bool,
    /// Whether one moment may follow from the other one by one of these numbers.
    may_follow: &'c dyn Fn(T, T, &[f64]) -> bool,
}

impl<'a, T: Copy> Moments<'_, 'a, T> {
    /// The value of the action, and the line of the answer with another one.
    fn contradiction(&self) -> Option<(String, &'a str)> {
        let exchange = self.exchange;
        let stated = (self.read)(exchange.answer);
        let [stated] = stated.as_slice() else { return None };
        let (value, moment) = self.moment_of_action()?;
        let has =
            |text: &str, moment: T| (self.read)(text).into_iter().any(|other| (self.is_same)(other, moment));
        if (self.is_same)(*stated, moment) || !self.may_be_of_action(*stated, moment, &has) {
            return None;
        }
        let parts =
            sentences(exchange.answer).into_iter().filter_map(|(start, end)| exchange.answer.get(start..end));
        let line = parts.chain(exchange.answer.lines()).find(|line| has(line, *stated))?.trim();
        let relates =
            |text: &str| classes_in(text, None, exchange.memo).is_none_or(|all| all.has_any(RELATIONS));
        // A moment that no text has cannot be in the relation that the request names.
        let is_related = exchange.language?.classes(line).has_any(RELATIONS)
            || exchange.sources.from_user.iter().any(|text| has(text, *stated)) && relates(exchange.task);
        let from_user = exchange.sources.from_user.iter().map(|text| &***text);
        let mut numbers: Vec<f64> = from_user.flat_map(numbers::all).map(|n| n.value).collect();
        numbers.extend(
            exchange
                .sources
                .records()
                .flat_map(|(.., record)| &record.fields)
                .filter_map(RecordField::number),
        );
        (!is_related && !(self.may_follow)(*stated, moment, &numbers)).then_some((value, line))
    }

    /// The only moment of the action, with its text: one of its result that an earlier text or an argument has, and
    /// thus no time of a record, or else one of its arguments.
    fn moment_of_action(&self) -> Option<(String, T)> {
        let arguments = self.source.call.arguments.as_deref().unwrap_or_default();
        let is_earlier = |other: &&ResultSource<'_>| other.call.start < self.source.call.start;
        let earlier = self.exchange.sources.structured.iter().filter(is_earlier);
        let known: Vec<T> = earlier
            .filter_map(|source| source.call.result.as_deref())
            .chain([arguments])
            .flat_map(|text| (self.read)(text))
            .collect();
        let is_known = |moment: &T| known.iter().any(|other| (self.is_same)(*other, *moment));
        let field_moments = self.fields.iter().filter(|field| field.is_text()).flat_map(|field| {
            let shown = || format!("{}: {}", field.name.join(" "), field.shown());
            (self.read)(field.shown()).into_iter().filter(is_known).map(move |moment| (shown(), moment))
        });
        let mut all: Vec<(String, T)> = field_moments.collect();
        if all.is_empty() {
            all.extend((self.read)(arguments).into_iter().map(|moment| (arguments.to_owned(), moment)));
        }
        let (_, first) = all.first()?;
        let is_only = all.iter().all(|(_, moment)| (self.is_same)(*moment, *first));
        all.into_iter().next().filter(|_| is_only)
    }

    /// Whether the stated moment is meant for the action: it is the only one of the request, and nothing of the user
    /// has the one of the action, or else nothing but rows of lists has it.
    fn may_be_of_action(&self, stated: T, moment: T, has: &dyn Fn(&str, T) -> bool) -> bool {
        let sources = &self.exchange.sources;
        let is_of_user = |moment: T| sources.from_user.iter().any(|text| has(text, moment));
        if is_of_user(stated) {
            let requested = (self.read)(self.exchange.task);
            return matches!(requested.as_slice(), [only] if (self.is_same)(*only, stated))
                && !is_of_user(moment);
        }
        let mut records = sources.records().filter(|(.., record)| record.list.is_none());
        let is_in_record =
            records.any(|(.., record)| record.fields.iter().any(|field| has(field.shown(), stated)));
        !is_in_record && !sources.unstructured().iter().any(|text| has(text, stated))
    }
}
