//! The time at which a run began, as a judge reads it: requests and answers contain words such as "today" and "next
//! Friday".

/// 2001-01-01 in seconds since 1970. An earlier time comes from a clock that was not set.
const MIN_SECONDS: u64 = 978_307_200;
const SECONDS_PER_DAY: u64 = 86_400;
/// The days of the week, beginning with that of 1970-01-01.
const WEEKDAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

/// A time in nanoseconds since 1970: `Friday, 2026-04-17 09:05 UTC`; `None` if the clock was not set.
pub(super) fn format_utc(nanos: u64) -> Option<String> {
    let seconds = Some(nanos / 1_000_000_000).filter(|seconds| *seconds >= MIN_SECONDS)?;
    let (days, minutes) = (seconds / SECONDS_PER_DAY, seconds % SECONDS_PER_DAY / 60);
    let (year, month, day) = date_of(days);
    let weekday = WEEKDAYS.get(usize::try_from(days % 7).ok()?)?;
    Some(format!("{weekday}, {year}-{month:02}-{day:02} {:02}:{:02} UTC", minutes / 60, minutes % 60))
}

/// Year, month and day in the Gregorian calendar of a day, which is counted from 1970-01-01.
fn date_of(days: u64) -> (u64, u64, u64) {
    const MONTH_LENGTHS: [u64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let (mut year, mut days_left) = (1970, days);
    while days_left >= 365 + u64::from(is_leap(year)) {
        days_left -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    for (month, length) in (1..).zip(MONTH_LENGTHS) {
        let length = length + u64::from(month == 2 && is_leap(year));
        if days_left < length {
            return (year, month, days_left + 1);
        }
        days_left -= length;
    }
    (year, 12, 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_of_the_calendar() {
        let format_seconds = |seconds: u64| format_utc(seconds * 1_000_000_000);
        for (seconds, time) in [
            (1_776_416_700, "Friday, 2026-04-17 09:05 UTC"),
            (1_709_164_799, "Wednesday, 2024-02-28 23:59 UTC"),
            (1_709_164_800, "Thursday, 2024-02-29 00:00 UTC"),
            (1_735_689_599, "Tuesday, 2024-12-31 23:59 UTC"),
            (4_107_542_400, "Monday, 2100-03-01 00:00 UTC"),
        ] {
            assert_eq!(format_seconds(seconds).as_deref(), Some(time));
        }
        assert_eq!((format_seconds(0), format_seconds(3_600)), (None, None));
        assert!(format_utc(u64::MAX).is_some());
    }
}
