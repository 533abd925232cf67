//! Calls for another day, time or direction than the request names: "on 12 December", and `date: 2025-12-13`.
//!
//! Principle: where the request names one day, one time or one weekday, the booking or lookup has it. With the date of
//! today in the instructions, "tomorrow" is a day as well. There is a finding if a call passes only one day or time, no
//! text contains it, and no call of the run passes the requested one.
//!
//! Not compared: a request that counts days or sets a limit ("before", "by", "three days ago"), since it may mean
//! another day; a day or time of another thing than the booked one ("a taxi for my 9:15 train"); and an interval,
//! which may contain the requested day. In a dialogue, all messages of the user are the request, and a day that the
//! agent proposed may be meant. The rule also finds swapped ends of a movement, see `swapped_source_target`.
//!
//! In: the request and the calls of an agent. Out: one finding for each agent, on the model span that requested the
//! call.

use std::ops::Range;

use serde_json::Value;
use verdict_otlp::trace::Idx;

use super::conduct::Conduct;
use super::dates_and_times::{
    Clock, Day, Located, WEEKDAYS, begins_with_zone, clocks, days_of_request, located_clocks,
    may_name_moment, today, weekdays, without_lengths,
};
pub(super) use super::dates_and_times::{days, is_relative, is_zoned, times};
use super::missing_announced_call::instructions;
use super::swapped_source_target;
use crate::measure::defects::Defect;
use crate::measure::dialogue::Replies;
use crate::measure::identifier::identifier_words;
use crate::measure::language::{Action, Language, WordClass, WordClasses, classes};
use crate::measure::provenance::{KnownText, KnownTexts, Origin, have_value};
use crate::measure::tool_purpose::{ToolObjects, ToolPurpose, stems};
use crate::measure::work_budget::BYTES_PER_STEP;
use crate::measure::{Finding, Memo};
use crate::recognise::{Agent, AgentTrace, Call};

/// Maximum bytes of a request: a longer one names several things.
const MAX_TASK: usize = 400;
/// Maximum calls of an agent that are compared.
const MAX_CALLS: usize = 40;
/// Maximum bytes of the arguments of a call.
const MAX_ARGUMENTS: usize = 2_000;
/// Maximum days between the requested and the passed day: a day further away, such as a date of birth, has another
/// meaning.
const MAX_DAYS: i64 = 366;
const MINUTES_PER_DAY: i64 = 24 * 60;
/// Maximum bytes between a day and its weekday: "Friday, the 12th of December".
const MAX_GAP: usize = 8;

/// Classes of words by which a request may mean another day than the weekday that it names.
const OTHER_DAY: WordClasses = classes!(
    RelativeDay Sequence Before Bound Alternative Condition Repetition Comparison Month Exception Quantifier
);
/// Articles before a thing with a time: "the 22:30 flight".
const ARTICLES: [&str; 4] = ["a", "an", "the", "this"];
/// Words that introduce another thing with its own time: "my train at 9:15".
const OTHER_THING_WORDS: [&str; 15] = [
    "my", "our", "your", "his", "her", "their", "its", "i", "we", "he", "she", "they", "it", "which", "that",
];
/// Words of keys for the beginning of an interval.
const INTERVAL_STARTS: [&str; 8] = ["from", "since", "start", "begin", "after", "min", "week", "month"];
/// Words of keys for the end of an interval.
const INTERVAL_ENDS: [&str; 6] = ["until", "to", "end", "before", "max", "by"];

/// A call, the requested day or time, and the passed one.
type MomentMismatch<'a> = (&'a Call, String, String);

/// The finding on an agent.
pub(super) fn check(conduct: &Conduct<'_>) -> Option<(Idx, Finding)> {
    let Conduct { trace, memo, agent, .. } = *conduct;
    let task = conduct.task(MAX_TASK)?;
    let calls = conduct.succeeded(MAX_CALLS).map(|(_, call)| call);
    let calls: Vec<&Call> = calls.filter(|call| call.llm.is_some()).collect();
    let is_short = |call: &&Call| call.arguments.as_deref().is_some_and(|text| text.len() <= MAX_ARGUMENTS);
    let replies = Replies::cached(trace, memo);
    let argument_bytes: usize =
        calls.iter().filter_map(|call| call.arguments.as_ref()).map(|text| text.len()).sum();
    if calls.is_empty()
        || !calls.iter().all(is_short)
        || !memo.budget.spend(task.len() / 4 + argument_bytes / 4)
    {
        return None;
    }
    let replies_of_user = agent.llms.iter().take(MAX_CALLS).filter_map(|at| replies.to(*at));
    let messages = replies_of_user.fold(String::from(&**task), |messages, reply| messages + "\n" + reply);
    let language = Language::detected(task, None, memo);
    let task = messages.as_str();
    if task.len() > 2 * MAX_TASK {
        return None;
    }
    let request = DateRequest { trace, memo, agent, task, calls };
    let other_moment = || match language? {
        Language::English => request.other_moment(),
        language => request.only_other_weekday(language),
    };
    let (call, expected, passed) =
        swapped_source_target::find(task, &request.calls, memo).or_else(other_moment)?;
    let rationale =
        format!("{expected} was expected, since the request says so; {} has {passed}", call.name.trim());
    conduct.finding(Defect::ContradictsRequest, rationale, call)
}

/// A request with the calls that are compared with its days and times.
struct DateRequest<'a> {
    trace: &'a AgentTrace,
    memo: &'a Memo,
    agent: &'a Agent,
    task: &'a str,
    /// The calls that succeeded.
    calls: Vec<&'a Call>,
}

/// The day or weekday that a request names.
enum RequestedDay {
    Day(Day),
    Weekday(usize),
}

impl RequestedDay {
    /// Whether a passed day may be the requested day or falls on the requested weekday.
    fn matches(&self, passed: Day) -> bool {
        match self {
            RequestedDay::Day(day) => passed.may_equal(*day),
            RequestedDay::Weekday(weekday) => passed.weekday().is_none_or(|other| other == *weekday),
        }
    }

    /// Whether a call with another day may be correct: the day is far from the requested one, or it is the end of a
    /// period with one of these lengths, in minutes.
    fn allows(&self, passed: Day, lengths: &[i64]) -> bool {
        let RequestedDay::Day(day) = self else { return false };
        let distance = day.days_until(passed);
        let is_end = |minutes: &i64| {
            (minutes / MINUTES_PER_DAY - 1..=minutes / MINUTES_PER_DAY).contains(&distance) && distance > 0
        };
        distance.abs() > MAX_DAYS && (day.month, day.day) != (passed.month, passed.day)
            || lengths.iter().any(is_end)
    }
}

impl<'a> DateRequest<'a> {
    /// A call with another day, weekday or time than the only one of a request in English.
    fn other_moment(&self) -> Option<MomentMismatch<'a>> {
        if !may_name_moment(self.task) {
            return None;
        }
        // The length of the requested thing is not another time.
        let (task, lengths) = without_lengths(self.task);
        if is_relative(&task) {
            return None;
        }
        let (days, weekdays) = (days_of_request(self.task, || self.today())?, weekdays(self.task));
        let requested = match (days.as_slice(), weekdays.as_slice()) {
            ([(day, at)], []) => Some((RequestedDay::Day(*day), at)),
            ([(day, at)], [(weekday, weekday_at)]) => {
                let gap = at.start.max(weekday_at.start).saturating_sub(at.end.min(weekday_at.end));
                let is_same = day.weekday().map_or(gap <= MAX_GAP, |other| other == *weekday);
                is_same.then_some((RequestedDay::Day(*day), at))
            }
            ([], [(weekday, at)]) => Some((RequestedDay::Weekday(*weekday), at)),
            _ => None,
        };
        let day_mismatch = || requested.and_then(|(requested, at)| self.other_day(&requested, at, &lengths));
        let weekday_mismatch = || match (days.as_slice(), weekdays.as_slice()) {
            ([], [(one, _), (other, _)]) if one != other => self.other_weekday([*one, *other]),
            _ => None,
        };
        day_mismatch().or_else(weekday_mismatch).or_else(|| self.other_time(&lengths))
    }

    /// A call with one day only, which has another weekday than the only one of a request. The request is not in
    /// English and names no other day.
    fn only_other_weekday(&self, language: Language) -> Option<MomentMismatch<'a>> {
        let places = language.places(self.task, self.memo);
        if !places.all().has(WordClass::Weekday)
            || places.all().has_any(OTHER_DAY)
            || !days(self.task).is_empty()
        {
            return None;
        }
        let mut weekday_places = places.iter().filter(|place| place.classes.has(WordClass::Weekday));
        let (place, None) = (weekday_places.next()?, weekday_places.next()) else { return None };
        let weekday = usize::from(place.value).checked_sub(1)?;
        // An answer that names another weekday reports the change: "el miércoles, para que esté el viernes".
        let answer = language.places(self.agent.answer.as_deref()?, self.memo);
        let mut answer_weekdays =
            answer.iter().filter(|other| other.classes.has(WordClass::Weekday)).peekable();
        answer_weekdays.peek()?;
        if answer_weekdays.any(|other| other.value != place.value) {
            return None;
        }
        self.other_day(&RequestedDay::Weekday(weekday), &place.at, &[])
    }

    /// A call with two days, if only one of them falls on one of the two weekdays of the request: for "from Friday to
    /// Monday", the 23rd, a Friday, and the 25th, a Sunday.
    fn other_weekday(&self, requested: [usize; 2]) -> Option<MomentMismatch<'a>> {
        let days_in = |call: &Call| days(call.arguments.as_deref().unwrap_or_default());
        let falls_on = |day: &Day, weekday: usize| day.weekday() == Some(weekday);
        self.calls.iter().filter(|call| self.has_moment(call)).find_map(|call| {
            let call_days = days_in(call);
            let [one, two] = call_days.as_slice() else { return None };
            let has = |weekday: &usize| falls_on(one, *weekday) || falls_on(two, *weekday);
            let missing = *requested.iter().find(|weekday| !has(weekday))?;
            let present = *requested.iter().find(|weekday| has(weekday))?;
            let other =
                [one, two].into_iter().find(|day| !falls_on(day, present) && day.weekday().is_some())?;
            let in_another = |call: &&Call| days_in(call).iter().any(|day| falls_on(day, missing));
            if self.calls.iter().any(in_another) || self.is_told_day(call, *other) {
                return None;
            }
            Some((*call, format!("a {}day", WEEKDAYS.get(missing)?), other.shown()))
        })
    }

    /// The date of today in the instructions of the model call that requested the first call; `None` beyond the work
    /// budget.
    fn today(&self) -> Option<Day> {
        let view = self.trace.views.get(self.calls.first()?.llm?)?;
        let bytes: usize = instructions(view).map(str::len).sum();
        self.memo.budget.spend(1 + bytes / BYTES_PER_STEP).then(|| today(instructions(view))).flatten()
    }

    /// A call with one day only, which is not the requested one.
    fn other_day(
        &self,
        requested: &RequestedDay,
        at: &Range<usize>,
        lengths: &[i64],
    ) -> Option<MomentMismatch<'a>> {
        let days_in = |call: &Call| days(call.arguments.as_deref().unwrap_or_default());
        if self.calls.iter().any(|call| days_in(call).into_iter().any(|day| requested.matches(day))) {
            return None;
        }
        self.calls.iter().filter(|call| self.has_moment(call) && self.is_for_call(call, at)).find_map(
            |call| {
                let call_days = days_in(call);
                let [day] = call_days.as_slice() else { return None };
                if requested.allows(*day, lengths)
                    || self.may_contain(call, requested, *day)
                    || self.is_told_day(call, *day)
                    || self.has_result(call, |text| days(text).into_iter().any(|day| requested.matches(day)))
                {
                    return None;
                }
                let expected = match requested {
                    RequestedDay::Day(day) => day.shown(),
                    RequestedDay::Weekday(weekday) => format!("a {}day", WEEKDAYS.get(*weekday)?),
                };
                Some((*call, expected, day.shown()))
            },
        )
    }

    /// A call with one time only, which is not the only time of the request.
    fn other_time(&self, lengths: &[i64]) -> Option<MomentMismatch<'a>> {
        let requested_clocks: Vec<Located<Clock>> = located_clocks(self.task);
        let ((requested, at), others) = requested_clocks.split_first()?;
        if others.iter().any(|(other, _)| other != requested)
            || begins_with_zone(self.task.get(at.end..).unwrap_or_default())
        {
            return None;
        }
        let clocks_in = |call: &Call| clocks(call.arguments.as_deref().unwrap_or_default());
        // The half of the day is not compared: "at 3" may be in the afternoon.
        let is_requested = |time: &Clock| time.time % 720 == requested.time % 720;
        if self.calls.iter().any(|call| clocks_in(call).iter().any(is_requested)) {
            return None;
        }
        self.calls.iter().filter(|call| self.has_moment(call) && self.is_for_call(call, at)).find_map(
            |call| {
                let call_clocks = clocks_in(call);
                let [time] = call_clocks.as_slice() else { return None };
                let distance = (i64::from(time.time) - i64::from(requested.time)).rem_euclid(720);
                let is_end = lengths.iter().any(|minutes| minutes % 720 == distance);
                let is_in_result = || self.has_result(call, |text| clocks(text).iter().any(is_requested));
                let shown = |clock: &Clock| format!("{:02}:{:02}", clock.time / 60, clock.time % 60);
                (!is_end && !self.is_told_time(call, time.time) && !is_in_result())
                    .then(|| (*call, shown(requested), shown(time)))
            },
        )
    }

    /// Whether the day or time at these bytes of the request belongs to the thing that a call books or looks up, and
    /// not to another thing in the request.
    fn is_for_call(&self, call: &Call, at: &Range<usize>) -> bool {
        let purpose = ToolPurpose::for_call(self.trace, self.memo, call);
        // The latest data may be of an earlier day than today: the last price of a market.
        if purpose.is_query()
            && self.task.get(at.clone()).is_some_and(|day| day.eq_ignore_ascii_case("today"))
        {
            return false;
        }
        let objects = ToolObjects::for_call(self.trace, self.memo, call);
        let is_object = |word: &str| stems(word).any(|stem| objects.0.contains(&stem));
        let (before, after) =
            (self.task.get(..at.start).unwrap_or_default(), self.task.get(at.end..).unwrap_or_default());
        let words = before.split_whitespace().map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()));
        let words: Vec<String> = words.map(str::to_lowercase).collect();
        let introduces_other_thing = |word: &str| {
            OTHER_THING_WORDS.contains(&word)
                || word.ends_with("'s")
                || word.ends_with("’s")
                || word.starts_with("i'")
        };
        let last = words.last().map(String::as_str).unwrap_or_default();
        if ARTICLES.contains(&last) || introduces_other_thing(last) {
            // "My 9:15 train": the thing is directly after the time.
            let noun = after.strip_prefix(' ').and_then(|after| after.split_whitespace().next());
            if noun.is_some_and(|noun| stems(noun).next().is_some() && !is_object(noun)) {
                return false;
            }
        }
        let object = words.iter().rposition(|word| is_object(word));
        if object.is_none() && purpose.is_query() {
            return true;
        }
        // "We leave on Friday. Book a hotel": the thing is in another sentence.
        let mut words_after = after.split_inclusive(char::is_whitespace);
        let ends = |word: &str| word.trim_end().ends_with(['.', ':', ';', '!', '?']);
        let first_end = words_after.clone().position(ends);
        let is_after_end = |end: usize| words_after.position(is_object).is_some_and(|at| at > end);
        if object.is_none() && first_end.is_some_and(is_after_end) {
            return false;
        }
        let words_between = words.get(object.map_or(0, |at| at + 1)..).unwrap_or_default();
        !words_between.iter().any(|word| introduces_other_thing(word))
    }

    /// Whether a query is for an interval that may contain the requested day.
    fn may_contain(&self, call: &Call, requested: &RequestedDay, passed: Day) -> bool {
        if !ToolPurpose::for_call(self.trace, self.memo, call).is_query() {
            return false;
        }
        let arguments = call.parsed.as_deref().and_then(Value::as_object);
        let keys = arguments.into_iter().flat_map(|map| map.keys()).map(|key| identifier_words(key));
        let mut words = keys.flatten();
        let has = |keywords: &[&str], word: &String| keywords.contains(&word.as_str());
        words.any(|word| match requested {
            // A period that begins after the day does not contain it.
            RequestedDay::Day(day) if has(&INTERVAL_STARTS, &word) => day.days_until(passed) <= 0,
            _ => has(&INTERVAL_STARTS, &word) || has(&INTERVAL_ENDS, &word),
        })
    }

    /// Whether the result of a call satisfies a predicate. True beyond the work budget.
    fn has_result(&self, call: &Call, contains: impl Fn(&str) -> bool) -> bool {
        let result = call.result.as_deref().unwrap_or_default();
        !self.memo.budget.spend(1 + result.len() / BYTES_PER_STEP) || contains(result)
    }

    /// Whether a call is for a day or a time without a zone: it books, or it creates or looks up something for a date.
    fn has_moment(&self, call: &Call) -> bool {
        let purpose = ToolPurpose::for_call(self.trace, self.memo, call);
        let is_booked =
            purpose.actions.iter().any(|a| matches!(a, Action::Book | Action::Schedule | Action::Order));
        let keys = call.parsed.as_deref().and_then(Value::as_object).into_iter().flat_map(|map| map.keys());
        let mut keys = keys.map(|key| identifier_words(key));
        let is_of_day =
            |words: Vec<String>| matches!(words.last().map(String::as_str), Some("date" | "day" | "time"));
        let is_zoned = call.arguments.as_deref().is_none_or(is_zoned);
        // A thing that is created for a date: `create_reservation`. A key such as "birth date" means another date.
        let creates = matches!(purpose.actions.first(), Some(Action::Create | Action::Add));
        let is_single_word = |words: Vec<String>| words.len() == 1 && is_of_day(words);
        !is_zoned
            && (is_booked || purpose.is_query() && keys.any(is_of_day) || creates && keys.any(is_single_word))
    }

    /// Whether the instructions, an earlier result or an earlier text of a model has a day or time. `read` reads the
    /// days or times of a text, which are cached for the text, and `has` tests them. True beyond the work budget.
    fn is_told<T: 'static>(&self, call: &Call, read: impl Fn(&str) -> T, has: impl Fn(&T) -> bool) -> bool {
        let known = KnownTexts::cached(self.trace, self.memo);
        // The messages of the user are the request.
        let is_other_text = |known: &&KnownText| known.origin != Origin::User;
        known
            .before(self.trace, call)
            .is_none_or(|texts| have_value(texts.iter().filter(is_other_text), self.memo, read, has))
    }

    /// As [`Self::is_told`], for a day.
    fn is_told_day(&self, call: &Call, passed: Day) -> bool {
        let has_day = |known: &KnownDays| known.0.iter().any(|day| day.may_equal(passed));
        self.is_told(call, |text| KnownDays(days(text)), has_day)
    }

    /// As [`Self::is_told`], for a time in minutes of the day.
    fn is_told_time(&self, call: &Call, time: u32) -> bool {
        let read = |text: &str| KnownTimes { times: times(text), is_zoned: is_zoned(text) };
        // A text with time zones may give the time in another zone.
        self.is_told(call, read, |known| known.is_zoned || known.times.contains(&time))
    }
}

/// The days that a text names, as they are cached.
struct KnownDays(Vec<Day>);

/// The times that a text names, and whether it names a time zone.
struct KnownTimes {
    times: Vec<u32>,
    is_zoned: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::reasoning::conduct::findings_of;
    use crate::measure::testing::Script;

    fn rationales(task: &str, tool: &str, calls: &[&str]) -> Vec<String> {
        let script = Script::new(task).system("You help guests. Today is 2025-12-01.");
        let call = |s: Script, a: &&str| s.calls("", &[(tool, a)]).returns(r#"{"ok":true}"#);
        let trace = calls.iter().fold(script, call).answers("Done.").build();
        let findings = findings_of(check, &trace);
        findings.into_iter().map(|(_, finding)| finding.rationale).collect()
    }

    #[test]
    fn day_or_time_that_differs_from_the_only_one_of_the_request_is_found() {
        for (task, tool, arguments) in [
            (
                "Book a table on 12 December at 15:00.",
                "book_table",
                r#"{"date":"2025-12-13","time":"15:00"}"#,
            ),
            (
                "Book a table on 12 December at 15:00.",
                "book_table",
                r#"{"date":"2025-12-12","time":"13:00"}"#,
            ),
            (
                "Reserve the court for December 12th at 3pm.",
                "reserve_court",
                r#"{"start":"2025-12-12 17:00"}"#,
            ),
            ("Schedule a call with Ana this Friday.", "schedule_call", r#"{"date":"2025-12-04"}"#),
            ("What will the weather be on 2025-12-12?", "get_weather", r#"{"date":"2025-12-21"}"#),
            (
                "Book a table on 12 December at 15:00 for 2 hours.",
                "book_table",
                r#"{"date":"2025-12-12","time":"18:00"}"#,
            ),
            ("Book a table for tomorrow at 15:00.", "book_table", r#"{"date":"2025-12-03","time":"15:00"}"#),
            ("Book the 22:30 flight.", "book_flight", r#"{"departure":"20:30"}"#),
            ("List my meetings on 12 December.", "list_meetings", r#"{"start_date":"2025-12-13"}"#),
        ] {
            assert_eq!(rationales(task, tool, &[arguments]).len(), 1, "{task} {arguments}");
        }
    }

    #[test]
    fn weekdays_are_read_in_every_language() {
        let run = |task: &str, answer: &str, date: &str| {
            let arguments = format!(r#"{{"date":"{date}","time":"20:30"}}"#);
            let script = Script::new(task).tools(&["create_reservation"]);
            let script = script.calls("", &[("create_reservation", &arguments)]).returns(r#"{"ok":true}"#);
            findings_of(check, &script.answers(answer).build()).len()
        };
        for (task, answer) in [
            ("Buenas, mesa para 4 este viernes a las 20:30, a nombre de Iker.", "Mesa para 4 este viernes."),
            (
                "Einen Tisch für vier Personen am Freitag um 20:30 Uhr, bitte.",
                "Der Tisch ist am Freitag für Sie da.",
            ),
            (
                "Bonjour, une table pour quatre personnes vendredi à 20h30.",
                "La table est réservée pour vendredi.",
            ),
            (
                "Buonasera, un tavolo per quattro persone venerdì alle 20:30.",
                "Il tavolo è prenotato per venerdì.",
            ),
            ("Olá, uma mesa para quatro pessoas na sexta-feira às 20h30.", "A mesa é para sexta-feira."),
        ] {
            assert_eq!(run(task, answer, "2026-05-16"), 1, "{task}");
            assert_eq!(run(task, answer, "2026-05-15"), 0, "{task}");
        }
        let early = "El lote tiene que estar en Lyon el viernes; crea el envío.";
        assert_eq!(run(early, "Sale el miércoles y está en Lyon el viernes.", "2026-05-13"), 0);
        for task in [
            "Buenas, mesa para 4 el viernes o el sábado a las 20:30, a nombre de Iker Zubia.",
            "Einen Tisch für vier am Tag nach dem Freitag, bitte, oder später, auf den Namen Brandt.",
            "Bonjour, une table pour quatre personnes, si vendredi est complet un autre jour.",
        ] {
            assert_eq!(run(task, "Viernes. Freitag. Vendredi.", "2026-05-16"), 0, "{task}");
        }
    }

    #[test]
    fn day_that_is_meant_derived_or_told_is_not_reported() {
        for (task, tool, arguments) in [
            ("Book a table on 12 December at 3 pm.", "book_table", r#"{"date":"2025-12-12","time":"15:00"}"#),
            ("Book a table the day before 12 December.", "book_table", r#"{"date":"2025-12-11"}"#),
            (
                "Order flowers so that they arrive by 12 December.",
                "order_flowers",
                r#"{"date":"2025-12-10"}"#,
            ),
            (
                "Book a room on 12 December.",
                "book_room",
                r#"{"arrival":"2025-12-12","departure":"2025-12-13"}"#,
            ),
            ("Schedule a call this Friday.", "schedule_call", r#"{"date":"2025-12-05"}"#),
            ("Book a table on 12 December.", "book_table", r#"{"date":"2025-12-12","ordered":"2025-12-01"}"#),
            ("Book a table on 12 December.", "book_table", r#"{"ordered":"2025-12-01"}"#),
            ("Book the 22:30 flight on 12 December.", "book_flight", r#"{"departs":"2025-12-13T04:30:00Z"}"#),
            ("Remind me of the party on 12 December.", "create_reminder", r#"{"date":"2025-12-11"}"#),
            ("Book me a taxi for my 9:15 train.", "book_taxi", r#"{"pickup_time":"08:30"}"#),
            ("I land at 14:00, book a taxi.", "book_taxi", r#"{"pickup_time":"14:45"}"#),
            ("Book a taxi to Ana's appointment at 10:00.", "book_taxi", r#"{"pickup_time":"09:30"}"#),
            ("Order lunch for the 12:00 meeting.", "order_lunch", r#"{"delivery_time":"11:45"}"#),
            ("Book a flight for my meeting on 12 December.", "book_flight", r#"{"date":"2025-12-11"}"#),
            ("I was born on 3 May 1990, book a check-up.", "book_checkup", r#"{"date":"2025-12-05"}"#),
            ("Born 3 May 1990; book a check-up tomorrow.", "book_checkup", r#"{"date":"2025-12-02"}"#),
            ("Who is on call on 12 December?", "get_rota", r#"{"week_start_date":"2025-12-08"}"#),
            ("Book a room on 12 December for 3 nights.", "book_room", r#"{"departure":"2025-12-15"}"#),
            ("Book a court at 15:00 for 2 hours.", "book_court", r#"{"end":"17:00"}"#),
            ("Schedule a call at 3 pm Berlin time.", "schedule_call", r#"{"time":"14:00"}"#),
            ("What is the exchange rate today?", "get_rate", r#"{"date":"2025-11-28"}"#),
            ("Book a taxi tomorrow at midnight.", "book_taxi", r#"{"date":"2025-12-03"}"#),
            ("Leaving today: I need a hotel, book one in Graz.", "book_hotel", r#"{"date":"2025-12-02"}"#),
            ("Book a table for tonight at 19:00.", "book_table", r#"{"date":"2025-12-01","time":"19:00"}"#),
        ] {
            assert_eq!(rationales(task, tool, &[arguments]), Vec::<String>::new(), "{task} {arguments}");
        }
        let both = [r#"{"date":"2025-12-13"}"#, r#"{"date":"2025-12-12"}"#];
        assert!(rationales("Book a table on 12 December.", "book_table", &both).is_empty(), "corrected");
    }
}
