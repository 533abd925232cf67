//! Times of day with the wrong time zone: "14:30 CET" where a result has 14:30 UTC.
//!
//! Principle: a time with a zone is the instant in the result, converted to the zone. It is a contradiction if a
//! result has the same time with another offset, and no text that the model read gives the stated instant. A time
//! without a zone is taken to be in the only offset that the instructions or the user name, if all results are in UTC.
//! A zone that is named by a place ("Berlin time") may have two offsets, in winter and in summer; a time that is
//! correct with either is correct.
//!
//! In: the times of an answer and of all texts. Out: one contradiction.

use super::exchange::{Exchange, ExchangeFindings};
use crate::measure::defects::Defect;
use crate::measure::language::Language;
use crate::measure::language::names::month_pattern;
use crate::measure::records::RecordField;

/// Minutes of a day.
const MINUTES_PER_DAY: i32 = 24 * 60;
/// Maximum times of one answer, and of the results.
const MAX_TIMES: usize = 200;
/// Maximum bytes of a text that is searched for times; of longer results only the fields are read.
const MAX_TEXT: usize = 4_000;

/// Abbreviations that mean one offset from UTC, in minutes.
const ZONES: [(&str, i32); 25] = [
    ("UTC", 0),
    ("GMT", 0),
    ("WET", 0),
    ("WEST", 60),
    ("CET", 60),
    ("MEZ", 60),
    ("CEST", 120),
    ("MESZ", 120),
    ("EET", 120),
    ("EEST", 180),
    ("MSK", 180),
    ("SGT", 480),
    ("HKT", 480),
    ("AWST", 480),
    ("JST", 540),
    ("KST", 540),
    ("AEST", 600),
    ("AEDT", 660),
    ("NZST", 720),
    ("NZDT", 780),
    ("EST", -300),
    ("EDT", -240),
    ("MDT", -360),
    ("PST", -480),
    ("PDT", -420),
];

/// Places by which zones are named, with the offset in winter, and the offset in summer if it differs.
const PLACES: [(&[&str], i32, Option<i32>); 12] = [
    (
        &[
            "Berlin",
            "Munich",
            "Vienna",
            "Wien",
            "Zurich",
            "Paris",
            "Madrid",
            "Barcelona",
            "Rome",
            "Roma",
            "Milan",
            "Amsterdam",
            "Brussels",
            "Copenhagen",
            "Stockholm",
            "Oslo",
            "Prague",
            "Warsaw",
            "Budapest",
            "Central European",
        ],
        60,
        Some(120),
    ),
    (&["London", "Dublin", "Lisbon", "British", "UK"], 0, Some(60)),
    (&["Helsinki", "Athens", "Bucharest", "Sofia", "Eastern European"], 120, Some(180)),
    (&["New York", "Boston", "Washington", "Toronto", "Miami", "Atlanta", "Eastern"], -300, Some(-240)),
    (&["Chicago", "Dallas", "Houston", "Central"], -360, Some(-300)),
    (&["Denver", "Mountain"], -420, Some(-360)),
    (&["Los Angeles", "San Francisco", "Seattle", "Vancouver", "Pacific"], -480, Some(-420)),
    (&["Tokyo", "Tokio", "Japan", "Seoul", "Korea"], 540, None),
    (&["Singapore", "Hong Kong", "Beijing", "Shanghai", "China"], 480, None),
    (&["India", "Mumbai", "Delhi", "Bangalore"], 330, None),
    (&["Dubai"], 240, None),
    (&["Sydney", "Melbourne"], 600, Some(660)),
];

// A time with a place, possibly after its day: "14:30 Berlin time", "14:30 Uhr Berliner Zeit", "14:30, hora de Madrid",
// "2:30 pm on Sunday, 19 April Berlin time".
regex!(
    PLACED,
    &format!(
        r"(?:^|[^\d:.])(?P<h>\d{{1,2}})(?:[:.](?P<m>\d{{2}}))?(?: ?(?P<ap>[AaPp])\.?[Mm]\b\.?)?(?: Uhr| h)?(?:,?(?: on)?(?: \w+day,?)? (?:the )?(?:\d{{1,2}}(?:st|nd|rd|th)?(?: of)? (?i:{month})|(?i:{month}) \d{{1,2}}(?:st|nd|rd|th)?)(?:,? \d{{4}})?)?,? \(?(?:(?P<en>[A-Z]\w+(?: [A-Z]\w+){{0,2}})(?: local)? [Tt]ime|(?P<de>[A-Z]\w+(?: [A-Z]\w+)?)er Zeit|(?:hora (?:de|do)|heure de|ora di) (?P<r>[A-Z]\w+(?: [A-Z]\w+)?))\b",
        month = month_pattern(&[Language::English])
    )
);
// A time or a range of times with the abbreviation of a zone: "14:30 CET", "2–4 pm EST".
regex!(
    LABELLED,
    r"(?:^|[^\d:.])(?P<h>\d{1,2})(?:[:.](?P<m>\d{2}))?(?: ?(?P<ap>[AaPp])\.?[Mm]\b\.?)?(?: Uhr| h)?(?: ?(?:–|—|-|to|bis) ?\d{1,2}(?:[:.]\d{2})?(?: ?(?P<ap2>[AaPp])\.?[Mm]\b\.?)?(?: Uhr| h)?)? ?\(?(?P<zone>[A-Z]{3,4})(?P<shift>[+−-]\d{1,2}(?::?\d{2})?)?\b"
);
// A time without a zone.
regex!(
    PLAIN,
    r"(?:^|[^\d:.])(?P<h>\d{1,2})[:.](?P<m>\d{2})(?: ?(?P<ap>[AaPp])\.?[Mm]\b)?|\b(?P<h2>\d{1,2}) ?(?P<ap2>[AaPp])\.?[Mm]\b"
);
// A timestamp in ISO 8601 with an offset.
regex!(
    TIMESTAMP,
    r"\d{4}-\d{2}-\d{2}[T ](?P<h>\d{2}):(?P<m>\d{2})(?::\d{2}(?:\.\d+)?)?(?P<o>Z|[+-]\d{2}:?\d{2})"
);
// An offset from UTC.
regex!(OFFSET, r"\b(?:UTC|GMT) ?(?P<o>[+−-] ?\d{1,2}(?::?\d{2})?)");

/// A time of day.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Time {
    /// The time as it is written, in minutes of the day.
    shown: i32,
    /// The offset from UTC, in minutes.
    offset: i32,
    /// The offset in summer, if the zone is named by a place with daylight saving time.
    summer_offset: Option<i32>,
    /// The byte position in the text.
    start: usize,
}

impl Time {
    /// The time in UTC, for each of its offsets.
    fn in_utc(self) -> impl Iterator<Item = i32> {
        self.offsets().map(move |offset| (self.shown - offset).rem_euclid(MINUTES_PER_DAY))
    }

    /// The possible offsets from UTC, in minutes.
    fn offsets(self) -> impl Iterator<Item = i32> {
        [Some(self.offset), self.summer_offset].into_iter().flatten()
    }

    /// Whether both may be the same time in UTC.
    fn may_equal(self, other: Time) -> bool {
        self.in_utc().any(|time| other.in_utc().any(|other| time == other))
    }

    /// Whether both may have the same offset.
    fn shares_offset(self, other: Time) -> bool {
        self.offsets().any(|offset| other.offsets().any(|other| offset == other))
    }
}

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let prose = &**exchange.prose;
    let stated = zoned_times(prose);
    let is_in_utc = || {
        ["UTC", "GMT", "Zulu"]
            .iter()
            .any(|zone_name| prose.contains(zone_name) || exchange.task.contains(zone_name))
    };
    let plain = if stated.is_empty() && !is_in_utc() { times_without_zone(prose) } else { Vec::new() };
    if stated.is_empty() && plain.is_empty() || !exchange.spends(exchange.sources.field_count()) {
        return;
    }
    let fields = exchange.sources.records().flat_map(|(.., record)| &record.fields);
    let mut known_times: Vec<Time> =
        fields.filter(|field| field.is_text()).map(RecordField::shown).flat_map(timestamps).collect();
    let short_texts = || exchange.sources.seen.iter().filter(|text| text.len() <= MAX_TEXT);
    if !exchange.spends_numbers() {
        return;
    }
    known_times.extend(short_texts().flat_map(|text| timestamps(text).into_iter().chain(zoned_times(text))));
    known_times.truncate(MAX_TIMES);
    if known_times.is_empty() {
        return;
    }
    let mismatch = match stated.is_empty() {
        false => unconverted(&stated, &known_times),
        true => {
            let mut offsets: Vec<i32> = short_texts().flat_map(|text| offsets(text)).collect();
            offsets.dedup();
            let only = offsets.first().filter(|_| {
                offsets.len() == 1
                    && known_times.iter().all(|time| time.offset == 0 && time.summer_offset.is_none())
            });
            only.and_then(|offset| unconverted_to_offset(&plain, *offset, &known_times))
        }
    };
    findings.examined = true;
    let Some((claimed, original)) = mismatch else { return };
    let in_utc = original.in_utc().next().unwrap_or_default();
    let expected = |offset: i32| {
        format!("{} at {}", clock((in_utc + offset).rem_euclid(MINUTES_PER_DAY)), zone_name(offset))
    };
    let expected: Vec<String> = claimed.offsets().map(expected).collect();
    let rationale = format!(
        "a time in its own zone was expected: {} at {} is {}; the answer gives the time of the one for the other",
        clock(original.shown),
        zone_name(original.offset),
        expected.join(" or ")
    );
    let sentence = exchange.sentence_at(claimed.start);
    findings.entries.push((Defect::ContradictsResult.finding(rationale, sentence), None));
}

/// A stated time that no known time equals in UTC, with the known time that has the same hour and minute in another
/// zone.
fn unconverted(stated: &[Time], known_times: &[Time]) -> Option<(Time, Time)> {
    stated.iter().filter(|time| known_times.iter().all(|other| !other.may_equal(**time))).find_map(|time| {
        let original =
            known_times.iter().find(|other| other.shown == time.shown && !other.shares_offset(*time))?;
        Some((*time, *original))
    })
}

/// A time that the answer repeats unchanged from a known time in UTC, although the reader is at `offset`, with the
/// known time; `None` if the answer has a converted time.
fn unconverted_to_offset(plain: &[Time], offset: i32, known_times: &[Time]) -> Option<(Time, Time)> {
    let converts = |other: &Time| {
        plain.iter().any(|time| time.shown == (other.shown + offset).rem_euclid(MINUTES_PER_DAY))
    };
    if offset == 0 || known_times.iter().any(converts) {
        return None;
    }
    plain.iter().find_map(|time| {
        let original = known_times.iter().find(|other| other.shown == time.shown)?;
        Some((Time { offset, summer_offset: None, ..*time }, *original))
    })
}

/// Minutes of the day as "14:30".
fn clock(minutes: i32) -> String {
    format!("{:02}:{:02}", minutes / 60, minutes % 60)
}

/// An offset in minutes as "UTC+01:00".
fn zone_name(offset: i32) -> String {
    let sign = if offset < 0 { '-' } else { '+' };
    format!("UTC{sign}{}", clock(offset.abs()))
}

/// The minutes of the day of a time as it is written; `day_half` is "a" or "p" of "am" and "pm".
fn minutes(hour: &str, minute: Option<&str>, day_half: Option<&str>) -> Option<i32> {
    let (hour, minute): (i32, i32) = (hour.parse().ok()?, minute.map_or(Some(0), |m| m.parse().ok())?);
    let hour = match day_half {
        Some(day_half) if day_half.eq_ignore_ascii_case("p") => hour % 12 + 12,
        Some(_) => hour % 12,
        None => hour,
    };
    (hour < 24 && minute < 60).then_some(hour * 60 + minute)
}

/// The minutes of an offset such as "+5:30", "-0800" or "+1"; `None` if it is not valid.
fn utc_offset(text: &str) -> Option<i32> {
    let text: String = text.replace(' ', "").replace('−', "-");
    let (sign, rest) = (text.strip_prefix('-').map_or(1, |_| -1), text.trim_start_matches(['+', '-']));
    let (hours, minutes) = match rest.split_once(':') {
        Some((hours, minutes)) => (hours, minutes),
        None if rest.len() == 4 => rest.split_at_checked(2)?,
        None => (rest, "0"),
    };
    let (hours, minutes): (i32, i32) = (hours.parse().ok()?, minutes.parse().ok()?);
    (hours <= 14 && minutes < 60).then_some(sign * (hours * 60 + minutes))
}

/// The times of a text that have a zone, by its abbreviation or by a place.
fn zoned_times(text: &str) -> Vec<Time> {
    let read_time = |captures: regex::Captures<'_>| {
        let group = |name: &str| captures.name(name).map(|group| group.as_str());
        let day_half = group("ap").or_else(|| group("ap2"));
        // Without minutes or "am" and "pm", it is not a time: "5 EST patients".
        group("m").or(day_half)?;
        let base = ZONES.iter().find(|(zone_name, _)| Some(*zone_name) == group("zone"))?.1;
        let offset = base + group("shift").map_or(Some(0), utc_offset)?;
        let shown = minutes(group("h")?, group("m"), day_half)?;
        Some(Time { shown, offset, summer_offset: None, start: captures.name("h")?.start() })
    };
    let mut out: Vec<Time> = LABELLED.captures_iter(text).filter_map(read_time).take(MAX_TIMES).collect();
    out.extend(times_with_place(text));
    out
}

/// The times of a text whose zone is named by a place.
fn times_with_place(text: &str) -> Vec<Time> {
    if !["ime", "Zeit", "hora", "heure", "ora"].iter().any(|word| text.contains(word)) {
        return Vec::new();
    }
    let read_time = |captures: regex::Captures<'_>| {
        let group = |name: &str| captures.name(name).map(|group| group.as_str());
        let day_half = group("ap");
        group("m").or(day_half)?;
        let place = ["en", "de", "r"].into_iter().find_map(group)?;
        let without_season =
            [" Standard", " Daylight", " Summer"].iter().find_map(|word| place.strip_suffix(word));
        let place = without_season.unwrap_or(place);
        let (_, offset, summer) = PLACES.iter().find(|(names, ..)| names.contains(&place))?;
        let shown = minutes(group("h")?, group("m"), day_half)?;
        Some(Time { shown, offset: *offset, summer_offset: *summer, start: captures.name("h")?.start() })
    };
    PLACED.captures_iter(text).filter_map(read_time).take(MAX_TIMES).collect()
}

/// The times of a text without zones, with an offset of 0.
fn times_without_zone(text: &str) -> Vec<Time> {
    let read_time = |captures: regex::Captures<'_>| {
        let group = |name: &str| captures.name(name).map(|group| group.as_str());
        let hour = captures.name("h").or_else(|| captures.name("h2"))?;
        let shown = minutes(hour.as_str(), group("m"), group("ap").or_else(|| group("ap2")))?;
        Some(Time { shown, offset: 0, summer_offset: None, start: hour.start() })
    };
    PLAIN.captures_iter(text).filter_map(read_time).take(MAX_TIMES).collect()
}

/// The times of the timestamps of a text.
fn timestamps(text: &str) -> Vec<Time> {
    if !text.contains(':') {
        return Vec::new();
    }
    let read_time = |captures: regex::Captures<'_>| {
        let offset = match captures.name("o")?.as_str() {
            "Z" => 0,
            offset => utc_offset(offset)?,
        };
        let shown = minutes(captures.name("h")?.as_str(), Some(captures.name("m")?.as_str()), None)?;
        Some(Time { shown, offset, summer_offset: None, start: captures.get(0)?.start() })
    };
    TIMESTAMP.captures_iter(text).filter_map(read_time).take(MAX_TIMES).collect()
}

/// The offsets from UTC that a text names, in minutes.
fn offsets(text: &str) -> Vec<i32> {
    OFFSET.captures_iter(text).filter_map(|captures| utc_offset(captures.name("o")?.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_zones() {
        for (text, expected) in [
            ("It starts at 15:30 CET.", (930, 60)),
            ("15:30–16:30 CET", (930, 60)),
            ("at 2:30-3:30 pm EDT", (870, -240)),
            ("9 am (JST)", (540, 540)),
            ("um 8.45 Uhr MEZ", (525, 60)),
            ("07:30 UTC+9", (450, 540)),
            ("18:05 GMT-3:30", (1085, -210)),
        ] {
            let findings: Vec<_> = zoned_times(text).into_iter().map(|t| (t.shown, t.offset)).collect();
            assert_eq!(findings, [expected], "{text}");
        }
        for text in ["5 EST patients", "at 15:30 in Paris", "Gate 12 ABC", "3.5 GMT"] {
            assert!(zoned_times(text).is_empty(), "{text}");
        }
        let stamp: Vec<_> =
            timestamps("2025-12-02T14:30:00.5+01:00").into_iter().map(|t| (t.shown, t.offset)).collect();
        assert_eq!(stamp, [(870, 60)]);
        assert_eq!(offsets("She is in Tokyo (UTC+9), he at GMT -03:30"), [540, -210]);
    }

    #[test]
    fn only_an_unconverted_time_is_found() {
        let known_times = timestamps("2025-12-02T14:30:00Z");
        let stated = |text: &str| unconverted(&zoned_times(text), &known_times).is_some();
        assert!(stated("14:30 CET"));
        assert!(!stated("15:30 CET") && !stated("14:30 UTC") && !stated("9:30 EST") && !stated("16:00 CET"));
        assert!(stated("14:30 Berlin time") && stated("2:30 pm Pacific Standard Time"));
        assert!(stated("um 14:30 Uhr Berliner Zeit") && stated("a las 14:30, hora de Madrid"));
        assert!(
            stated("2:30 pm on Tuesday, 2 December Singapore time")
                && stated("14:30 on Tuesday, December 2, Tokyo local time")
                && !stated("14:30 UTC, that is 10 pm Singapore time")
                && !stated("10:30 pm on Tuesday, 2 December Singapore time")
                && !stated("2:30 pm on Tuesday, 2 December London time")
        );
        assert!(
            !stated("15:30 Berlin time") && !stated("16:30 (Berlin time)") && !stated("14:30 London time")
        );
        assert!(!stated("14:30 Mill time") && !stated("14:30 the next time"));
        let local =
            |text: &str| unconverted_to_offset(&times_without_zone(text), 540, &known_times).is_some();
        assert!(local("It is at 14:30.") && local("It is at 2:30 pm."));
        assert!(
            !local("It is at 23:30.")
                && !local("It is at 11:30 pm, that is 14:30 there.")
                && !local("At 9:00.")
        );
    }
}
