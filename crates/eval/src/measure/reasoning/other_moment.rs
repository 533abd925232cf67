//! Calls for another day, time or direction than the request names: "on 12 December", and `date: 2025-12-13`.
//!
//! Principle: where the request names one day, one time or one day of the week, what is booked or looked up has it. A
//! call has another one if it has only one, no text contains that, and no call of the run has the one of the request.
//! A request that counts days or sets a limit ("before", "by", "three days") can mean others. In a dialogue all that the
//! user said is the request, and what the agent proposed before an answer may be meant. The two ends of a
//! movement are not swapped: "from savings to checking".
//!
//! In: the request and the calls of an agent. Out: one finding for each agent, on the model span that wrote the call.

use serde_json::Value;
use verdict_otlp::trace::Idx;

use super::dates::day_number;
use super::missing_announced_call::instructions;
use super::statements::words_of;
use crate::measure::agent::agent_index;
use crate::measure::agent::attempts::{CallAttempts, quoted};
use crate::measure::defects::Defect;
use crate::measure::dialogue::Replies;
use crate::measure::identifier::identifier_words;
use crate::measure::language::{Action, is_english};
use crate::measure::tool_purpose::ToolPurpose;
use crate::measure::{Finding, Memo};
use crate::recognise::{Agent, AgentTrace, Call};

/// Most bytes of a request: a longer one names several things.
const MAX_TASK: usize = 400;
/// Most calls of an agent that are compared, and bytes of the arguments of one.
const MAX_CALLS: usize = 40;
const MAX_ARGUMENTS: usize = 2_000;

regex!(
    DAY,
    r"\b(?:(?P<y>\d{4})-(?P<m>\d{2})-(?P<d>\d{2})|(?P<d1>\d{1,2})(?:st|nd|rd|th)?\.? (?:of )?(?P<m1>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)(?:uary|ruary|ch|il|e|y|ust|t|tember|ober|ember)?(?:,? (?P<y1>\d{4}))?|(?P<m2>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)(?:uary|ruary|ch|il|e|y|ust|t|tember|ober|ember)?\.? (?P<d2>\d{1,2})(?:st|nd|rd|th)?)(?:T|\b)"
);
regex!(
    TIME,
    r"(?:^|[^\d:.-])(?P<h>\d{1,2}):(?P<m>\d{2})(?::\d{2})?(?: ?(?P<ap>[AaPp])\.?[Mm]\b)?|\b(?P<h2>\d{1,2}) ?(?P<ap2>[AaPp])\.?[Mm]\b"
);
regex!(WEEKDAY, r"(?i)\b(mon|tues|wednes|thurs|fri|satur|sun)days?\b");
// A moment with its offset from UTC, which may be on another day.
regex!(ZONED, r"\d(?:Z|[+-]\d{2}:?\d{2})\b|(?i)\b(?:utc|gmt|time ?zone|timezone)\b");
regex!(
    RELATIVE,
    r"(?i)\b(?:before|after|prior|earlier|later|eve|following|until|till|since|by|ago|or|if|instead|except|every|each|not|around|about|between|days?|weeks?|months?|hours?|minutes?|nights?|early|late|deadline|due|previous|again|moved?|reschedul\w+|postpon\w+|chang\w+|was|remind\w*)\b|n't\b"
);
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const WEEKDAYS: [&str; 7] = ["mon", "tues", "wednes", "thurs", "fri", "satur", "sun"];
/// Keys of the two ends of a movement, in the languages below.
const SOURCES: [&str; 11] = [
    "from",
    "source",
    "origin",
    "sender",
    "departure",
    "von",
    "quelle",
    "origen",
    "origine",
    "origem",
    "mittente",
];
const TARGETS: [&str; 13] = [
    "to",
    "target",
    "destination",
    "recipient",
    "receiver",
    "arrival",
    "nach",
    "ziel",
    "destino",
    "destinatario",
    "destinazione",
    "destinataire",
    "empfänger",
];
/// Words before the two ends: English, German, Spanish and Italian, French, Portuguese.
const WAYS: [(&str, &str); 8] = [
    (" from ", " to "),
    (" von ", " nach "),
    (" von ", " auf "),
    (" de ", " a "),
    (" da ", " a "),
    (" de ", " à "),
    (" de ", " para "),
    (" du ", " au "),
];

/// A day of a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Day {
    year: Option<i64>,
    month: usize,
    day: usize,
}

impl Day {
    /// Whether both may be the same day.
    pub(super) fn is(self, other: Day) -> bool {
        let same_year = self.year.zip(other.year).is_none_or(|(a, b)| a == b);
        (self.month, self.day) == (other.month, other.day) && same_year
    }

    /// The day of the week, from 0 for Monday, if the year is known.
    fn weekday(self) -> Option<usize> {
        let of_a_monday = day_number(2024, 1, 1);
        let days = day_number(self.year?, self.month, self.day) - of_a_monday;
        usize::try_from(days.rem_euclid(7)).ok()
    }
}

/// The days that a text names.
pub(super) fn days(text: &str) -> Vec<Day> {
    let of = |found: regex::Captures<'_>| {
        let group =
            |names: [&str; 3]| names.iter().find_map(|name| found.name(name)).map(|group| group.as_str());
        let month = group(["m", "m1", "m2"])?;
        let named = || MONTHS.iter().position(|name| *name == month).map(|at| at + 1);
        let month = month.parse().ok().or_else(named).filter(|month| (1..=12).contains(month))?;
        let day = group(["d", "d1", "d2"])?.parse().ok().filter(|day| (1..=31).contains(day))?;
        let year = group(["y", "y1", "y"]).and_then(|year| year.parse().ok());
        Some(Day { year, month, day })
    };
    distinct(DAY.captures_iter(text).filter_map(of))
}

/// The times of day that a text names, in minutes.
pub(super) fn times(text: &str) -> Vec<u32> {
    let of = |found: regex::Captures<'_>| {
        let hour: u32 = found.name("h").or_else(|| found.name("h2"))?.as_str().parse().ok()?;
        let minute: u32 = found.name("m").map_or(Some(0), |minute| minute.as_str().parse().ok())?;
        let half = found.name("ap").or_else(|| found.name("ap2")).map(|half| half.as_str());
        let hour = match half {
            Some("p" | "P") => hour % 12 + 12,
            Some(_) => hour % 12,
            None => hour,
        };
        (hour < 24 && minute < 60).then_some(hour * 60 + minute)
    };
    distinct(TIME.captures_iter(text).filter_map(of))
}

/// The days of the week that a text names, from 0 for Monday.
fn weekdays(text: &str) -> Vec<usize> {
    let of = |found: regex::Captures<'_>| {
        let name = found.get(1)?.as_str().to_ascii_lowercase();
        WEEKDAYS.iter().position(|known| *known == name)
    };
    distinct(WEEKDAY.captures_iter(text).filter_map(of))
}

fn distinct<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    items.fold(Vec::new(), |mut known, item| {
        if !known.contains(&item) {
            known.push(item);
        }
        known
    })
}

/// Whether a text counts from a day or a time, sets a limit, or has a zone.
pub(super) fn is_relative(text: &str) -> bool {
    RELATIVE.is_match(text) || ZONED.is_match(text)
}

/// Whether a text has moments with their offset from UTC.
pub(super) fn is_zoned(text: &str) -> bool {
    ZONED.is_match(text)
}

/// Findings by model span.
pub(crate) fn find(trace: &AgentTrace, memo: &Memo, attempts: &CallAttempts) -> Vec<(Idx, Finding)> {
    let agents = trace.agents.iter().enumerate().filter(|(_, agent)| !agent.calls.is_empty());
    agents.filter_map(|(i, agent)| of_agent(trace, memo, attempts, i, agent)).collect()
}

fn of_agent(
    trace: &AgentTrace,
    memo: &Memo,
    attempts: &CallAttempts,
    i: usize,
    agent: &Agent,
) -> Option<(Idx, Finding)> {
    let task = agent_index::task(trace, i).filter(|task| task.len() <= MAX_TASK)?;
    let calls = agent
        .calls
        .iter()
        .take(MAX_CALLS)
        .filter(|i| attempts.has_succeeded(**i))
        .filter_map(|i| trace.calls.get(*i));
    let calls: Vec<&Call> = calls.filter(|call| call.llm.is_some()).collect();
    let is_short = |call: &&Call| call.arguments.as_deref().is_some_and(|text| text.len() <= MAX_ARGUMENTS);
    let replies = Replies::of(trace, memo);
    let passed: usize = calls.iter().filter_map(|call| call.arguments.as_ref()).map(|text| text.len()).sum();
    if calls.is_empty() || !calls.iter().all(is_short) || !memo.budget.spend(task.len() / 4 + passed / 4) {
        return None;
    }
    // What else the user said, and the texts that they answered.
    let (mut said, mut proposed) = (String::from(&**task), Vec::new());
    for at in agent.llms.iter().take(MAX_CALLS) {
        if let (Some(reply), Some(view)) = (replies.to(*at), trace.views.get(*at)) {
            said = said + "\n" + reply;
            proposed.push(view.output_text().into_owned());
        }
    }
    let is_english = is_english(task, None, memo);
    let task = said.as_str();
    if task.len() > 2 * MAX_TASK {
        return None;
    }
    let request = Request { trace, memo, agent, task, proposed, calls };
    let in_english = || is_english.then(|| request.of_another_moment()).flatten();
    let (call, meant, passed) = request.swapped().or_else(in_english)?;
    let rationale =
        format!("{meant} was expected, since the request says so; {} has {passed}", call.name.trim());
    let finding = Defect::ContradictsRequest.finding(rationale, quoted(call)).citing_at(trace, call.at);
    Some((call.llm?, finding))
}

struct Request<'a> {
    trace: &'a AgentTrace,
    memo: &'a Memo,
    agent: &'a Agent,
    task: &'a str,
    /// The texts of the agent that the user answered.
    proposed: Vec<String>,
    /// Those that succeeded.
    calls: Vec<&'a Call>,
}

/// A call, what was meant, and what it has.
type Found<'a> = (&'a Call, String, String);

impl<'a> Request<'a> {
    fn of_another_moment(&self) -> Option<Found<'a>> {
        if !self.task.contains(|c: char| c.is_ascii_digit()) && !WEEKDAY.is_match(self.task)
            || is_relative(self.task)
        {
            return None;
        }
        let (days, weekdays) = (days(self.task), weekdays(self.task));
        match (days.as_slice(), weekdays.as_slice()) {
            ([day], _) => self
                .other_day(|passed| passed.is(*day), &format!("{} {}", day.day, MONTHS.get(day.month - 1)?)),
            ([], [weekday]) => {
                let is = |passed: Day| passed.weekday().is_none_or(|of| of == *weekday);
                self.other_day(is, &format!("a {}day", WEEKDAYS.get(*weekday)?))
            }
            _ => None,
        }
        .or_else(|| self.other_time())
    }

    /// A call with one day only, which is not the one that is meant.
    fn other_day(&self, is_meant: impl Fn(Day) -> bool, meant: &str) -> Option<Found<'a>> {
        let of = |call: &Call| days(call.arguments.as_deref().unwrap_or_default());
        if self.calls.iter().any(|call| of(call).into_iter().any(&is_meant)) {
            return None;
        }
        self.calls.iter().filter(|call| self.has_moment(call)).find_map(|call| {
            let of_call = of(call);
            let [day] = of_call.as_slice() else { return None };
            let is_told = self.is_told(call, |text| days(text).into_iter().any(|known| known.is(*day)));
            (!is_told).then(|| {
                (*call, meant.to_owned(), format!("{} {}", day.day, MONTHS.get(day.month - 1).unwrap_or(&"")))
            })
        })
    }

    /// A call with one time only, which is not the only one of the request.
    fn other_time(&self) -> Option<Found<'a>> {
        let wanted = times(self.task);
        let [meant] = wanted.as_slice() else { return None };
        let of = |call: &Call| times(call.arguments.as_deref().unwrap_or_default());
        // "At 3" may be in the afternoon.
        let is_meant = |time: &u32| time % 720 == meant % 720;
        if self.calls.iter().any(|call| of(call).iter().any(is_meant)) {
            return None;
        }
        self.calls.iter().filter(|call| self.has_moment(call)).find_map(|call| {
            let of_call = of(call);
            let [time] = of_call.as_slice() else { return None };
            let is_told = self.is_told(call, |text| times(text).contains(time) || ZONED.is_match(text));
            let shown = |time: u32| format!("{:02}:{:02}", time / 60, time % 60);
            (!is_told).then(|| (*call, shown(*meant), shown(*time)))
        })
    }

    /// Whether a call is for a day or a time: it books something, or looks something up for a date.
    fn has_moment(&self, call: &Call) -> bool {
        let purpose = ToolPurpose::of_call(self.trace, self.memo, call);
        let is_booked =
            purpose.actions.iter().any(|a| matches!(a, Action::Book | Action::Schedule | Action::Order));
        let keys = call.parsed.as_deref().and_then(Value::as_object).into_iter().flat_map(|map| map.keys());
        let mut keys = keys.map(|key| identifier_words(key));
        let is_of_day =
            |words: Vec<String>| matches!(words.last().map(String::as_str), Some("date" | "day" | "time"));
        let is_zoned = call.arguments.as_deref().is_none_or(|text| ZONED.is_match(text));
        !is_zoned && (is_booked || purpose.is_query() && keys.any(is_of_day))
    }

    /// Whether the instructions or an earlier result say something; true beyond the work budget.
    fn is_told(&self, call: &Call, says: impl Fn(&str) -> bool) -> bool {
        let prompt = call.llm.and_then(|llm| self.trace.views.get(llm)).into_iter().flat_map(instructions);
        let earlier = self.agent.calls.iter().filter_map(|i| self.trace.calls.get(*i));
        let earlier =
            earlier.filter(|other| other.start < call.start).filter_map(|other| other.result.as_deref());
        let proposed = self.proposed.iter().map(String::as_str);
        let texts: Vec<&str> = prompt.chain(earlier).chain(proposed).collect();
        let bytes: usize = texts.iter().map(|text| text.len()).sum();
        !self.memo.budget.spend(bytes) || texts.into_iter().any(says)
    }

    /// A call with the two ends of a movement swapped.
    fn swapped(&self) -> Option<Found<'a>> {
        if !WAYS.iter().any(|(before, between)| self.task.contains(before) && self.task.contains(between)) {
            return None;
        }
        let asked = words_of(self.task);
        WAYS.iter().find_map(|(before, between)| {
            let (from, to) = asked.split_once(before)?.1.split_once(between)?;
            self.is_swapped(from, to)
        })
    }

    /// A call whose source is only in the words of the target, and the other way round.
    fn is_swapped(&self, from: &str, to: &str) -> Option<Found<'a>> {
        let has = |text: &str, value: &str| format!(" {text} ").contains(words_of(value).as_str());
        let ends = |call: &'a Call| {
            let map = call.parsed.as_deref()?.as_object()?;
            let end = |known: &[&str]| {
                let is_end =
                    |key: &str| identifier_words(key).iter().any(|word| known.contains(&word.as_str()));
                let mut found =
                    map.iter().filter(|(key, _)| is_end(key)).filter_map(|(_, value)| value.as_str());
                found.next().filter(|value| value.len() > 2 && found.next().is_none())
            };
            Some((end(&SOURCES)?, end(&TARGETS)?))
        };
        let made: Vec<(&Call, (&str, &str))> =
            self.calls.iter().filter_map(|call| Some((*call, ends(call)?))).collect();
        let is_swapped = |source: &str, target: &str| {
            has(from, target) && has(to, source) && !has(from, source) && !has(to, target)
        };
        let (call, (source, target)) =
            made.iter().find(|(_, (source, target))| is_swapped(source, target))?;
        let is_way = |(_, other): &(&Call, (&str, &str))| *other == (*target, *source);
        let meant = format!("from {target} to {source}");
        (!made.iter().any(is_way)).then(|| (*call, meant, format!("from {source} to {target}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::Script;

    fn found(task: &str, tool: &str, calls: &[&str]) -> Vec<String> {
        let script = Script::new(task).system("You help guests. Today is 2025-12-01.");
        let call = |s: Script, a: &&str| s.calls("", &[(tool, a)]).returns(r#"{"ok":true}"#);
        let trace = calls.iter().fold(script, call).answers("Done.").build();
        let memo = Memo::new();
        let found = find(&trace, &memo, &CallAttempts::get(&trace, &memo));
        found.into_iter().map(|(_, finding)| finding.rationale).collect()
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
        ] {
            assert_eq!(found(task, tool, &[arguments]).len(), 1, "{task} {arguments}");
        }
    }

    #[test]
    fn day_that_is_meant_derived_or_told_is_none() {
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
        ] {
            assert_eq!(found(task, tool, &[arguments]), Vec::<String>::new(), "{task} {arguments}");
        }
        let both = [r#"{"date":"2025-12-13"}"#, r#"{"date":"2025-12-12"}"#];
        assert!(found("Book a table on 12 December.", "book_table", &both).is_empty(), "corrected");
    }

    #[test]
    fn swapped_ends_are_found() {
        let task = "Transfer 50 EUR from savings to checking.";
        assert_eq!(found(task, "transfer", &[r#"{"from":"checking","to":"savings","amount":50}"#]).len(), 1);
        assert!(found(task, "transfer", &[r#"{"from":"savings","to":"checking"}"#]).is_empty());
        assert!(found(task, "transfer", &[r#"{"from_account":"A-1","to_account":"A-2"}"#]).is_empty());
        let spanish = "Transfiere 250 euros de C-100 a C-200.";
        assert_eq!(found(spanish, "transferir", &[r#"{"origen":"C-200","destino":"C-100"}"#]).len(), 1);
        assert!(found(spanish, "transferir", &[r#"{"origen":"C-100","destino":"C-200"}"#]).is_empty());
        let trip = "Find trains from Graz to Linz and back.";
        let ways = [r#"{"origin":"Graz","destination":"Linz"}"#, r#"{"origin":"Linz","destination":"Graz"}"#];
        assert!(found(trip, "find_trains", &ways).is_empty());
        assert_eq!(found(trip, "find_trains", &ways[1..]).len(), 1);
    }
}
