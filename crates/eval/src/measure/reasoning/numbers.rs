//! Numbers as they stand in prose, tables and JSON, made comparable.
//!
//! In: any text. Out: [`Number`]s with their value, their precision and their place. Thousands
//! separators, decimal commas, magnitudes ("2.1 million", "10k") and percent signs are read;
//! identifiers ("GPT-4", "a1b2c3", "v1.2") are marked as bound, not taken for quantities.

/// Most numbers read from one text: a table of measurements, not a data file.
pub(crate) const MAX_NUMBERS: usize = 20_000;

/// A number in a text.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Number {
    /// Its absolute value: signs are too often dashes.
    pub value: f64,
    /// Another reading of the same digits ("1.234" as 1234), where there is one.
    pub other: Option<f64>,
    /// The number without its magnitude word, where it has one.
    pub bare: Option<f64>,
    /// Half a unit of the last digit shown: how far a source may lie from it.
    pub tolerance: f64,
    /// Byte range in the text, separators included, units not.
    pub start: usize,
    pub end: usize,
    /// Part of an identifier, version, ordinal or label, not a quantity.
    pub in_identifier: bool,
    /// Shown with a fraction.
    pub fractional: bool,
}

impl Number {
    /// Every value that the digits may mean.
    pub(crate) fn possible_values(&self) -> impl Iterator<Item = f64> + use<> {
        [Some(self.value), self.other, self.bare].into_iter().flatten()
    }
}

/// Calls `found` with every number of `text`, in order, [`MAX_NUMBERS`] at most.
pub(crate) fn scan(text: &str, mut found: impl FnMut(Number)) {
    let bytes = text.as_bytes();
    let (mut at, mut count) = (0, 0);
    while let Some(digit) = next_digit(bytes, at) {
        // The digits of "GPT4" or "x86" are no number.
        if digit > at && bytes.get(digit - 1).is_some_and(|&b| is_word(b)) {
            at = digit + bytes.iter().skip(digit).take_while(|b| is_word(**b)).count();
            continue;
        }
        let (number, end) = read(bytes, digit);
        at = end;
        if !number.value.is_finite() {
            continue; // hundreds of digits: a key, not a quantity
        }
        found(number);
        count += 1;
        if count == MAX_NUMBERS {
            return;
        }
    }
}

/// Where the next digit stands. Most text has none: whole blocks of it are passed over at once.
fn next_digit(bytes: &[u8], from: usize) -> Option<usize> {
    const BLOCK: usize = 32;
    let without = |block: &&[u8]| !block.iter().fold(false, |any, b| any | b.is_ascii_digit());
    let at = from + BLOCK * bytes.get(from..)?.chunks_exact(BLOCK).take_while(without).count();
    Some(at + bytes.get(at..)?.iter().position(u8::is_ascii_digit)?)
}

/// All numbers of `text`.
pub(crate) fn all(text: &str) -> Vec<Number> {
    let mut out = Vec::new();
    scan(text, |n| out.push(n));
    out
}

fn is_word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_' || b >= 0xC3
}

/// Reads the number whose first digit is at `start`; returns it and where to go on.
fn read(bytes: &[u8], start: usize) -> (Number, usize) {
    let digits = |from: usize| bytes.iter().skip(from).take_while(|b| b.is_ascii_digit()).count();
    let mut value = 0f64;
    let mut push = |from: usize, n: usize| {
        for b in bytes.iter().skip(from).take(n) {
            value = value * 10.0 + f64::from(b - b'0');
        }
    };
    let lead = digits(start);
    push(start, lead);
    let mut end = start + lead;
    let mut groups = 0;
    let mut dotted = false;
    if lead <= 3 {
        while let Some(width) = separator(bytes, end) {
            // A dot groups only when it does so twice, or after another group: "1.234.567".
            let dot = bytes.get(end) == Some(&b'.');
            if digits(end + width) != 3 || (dot && groups == 0 && bytes.get(end + 4) != Some(&b'.')) {
                break;
            }
            dotted |= dot;
            push(end + width, 3);
            end += width + 3;
            groups += 1;
        }
    }
    let whole = value;
    let (mut fraction, mut places) = (0f64, 0);
    let point = bytes.get(end).copied().filter(|b| *b == b'.' || (*b == b',' && (dotted || groups == 0)));
    if point.is_some() && !(dotted && point == Some(b'.')) {
        places = digits(end + 1).min(12);
        for b in bytes.iter().skip(end + 1).take(places) {
            fraction = fraction * 10.0 + f64::from(b - b'0');
        }
    }
    let mut number = Number {
        value: whole,
        other: None,
        bare: None,
        tolerance: 0.5,
        start,
        end,
        in_identifier: false,
        fractional: places > 0,
    };
    if places > 0 {
        let unit = 10f64.powi(-(places as i32));
        end += 1 + digits(end + 1);
        number.value = whole + fraction * unit;
        number.tolerance = 0.5 * unit;
        // "1.234" may be 1234; "3,5" may be two numbers, of which the first is then seen here.
        if places == 3 && groups == 0 && lead <= 3 {
            number.other = Some(whole * 1000.0 + fraction);
        } else if point == Some(b',') {
            number.other = Some(whole);
        }
    }
    number.end = end;
    number.in_identifier = is_in_identifier(bytes, start, end);
    scale(bytes, &mut number);
    (number, resume(bytes, number.end))
}

/// After "5642m" or "3rd" go on behind the letters; what follows belongs to an identifier.
fn resume(bytes: &[u8], end: usize) -> usize {
    end + bytes.iter().skip(end).take_while(|b| is_word(**b)).count()
}

/// The width of a thousands separator at `at`: comma, dot, apostrophe, underscore, thin or
/// no-break space. A plain space separates too, as the caller sees three digits after it.
fn separator(bytes: &[u8], at: usize) -> Option<usize> {
    match bytes.get(at)? {
        b',' | b'.' | b'\'' | b'_' => Some(1),
        0xC2 if bytes.get(at + 1) == Some(&0xA0) => Some(2),
        0xE2 if bytes.get(at + 1) == Some(&0x80) && matches!(bytes.get(at + 2), Some(0xAF | 0x89 | 0x99)) => {
            Some(3)
        }
        _ => None,
    }
}

fn is_in_identifier(bytes: &[u8], start: usize, end: usize) -> bool {
    let before = |back: usize| start.checked_sub(back).and_then(|i| bytes.get(i)).copied();
    let joined = match before(1) {
        Some(b'-' | b'.' | b'/' | b':' | b'+') => before(2).is_some_and(|b| b.is_ascii_alphabetic()),
        Some(b'#' | b'@' | b'=' | b'%' | b'&' | b'\\') => true,
        _ => false,
    };
    let suffix = bytes.iter().skip(end).take_while(|b| is_word(**b)).take(24);
    let (mut letters, mut digits) = (0, 0);
    for b in suffix {
        if b.is_ascii_digit() || *b == b'_' {
            digits += 1;
        } else {
            letters += 1;
        }
    }
    let tail = bytes.get(end..end + letters).unwrap_or_default();
    let ordinal = matches!(tail, b"st" | b"nd" | b"rd" | b"th");
    // "192.168.0.1", "1.2.3": a further dotted part.
    let versioned = bytes.get(end) == Some(&b'.') && bytes.get(end + 1).is_some_and(u8::is_ascii_digit);
    joined || digits > 0 || ordinal || versioned
}

fn scale(bytes: &[u8], number: &mut Number) {
    let rest = bytes.get(number.end..).unwrap_or_default();
    let gap = usize::from(matches!(rest.first(), Some(b' ' | b'-')));
    let word_len = rest.iter().skip(gap).take(9).take_while(|b| b.is_ascii_alphabetic()).count();
    let word = rest.get(gap..gap + word_len).unwrap_or_default();
    let factor = match word {
        b"k" | b"K" if gap == 0 => 1e3,
        b"M" | b"m" if gap == 0 && word == b"M" => 1e6,
        b"B" | b"G" if gap == 0 => 1e9,
        _ if word.eq_ignore_ascii_case(b"hundred") => 1e2,
        _ if word.eq_ignore_ascii_case(b"thousand") => 1e3,
        _ if word.eq_ignore_ascii_case(b"million") || word == b"mn" || word == b"mio" => 1e6,
        _ if word.eq_ignore_ascii_case(b"billion") || word == b"bn" => 1e9,
        _ if word.eq_ignore_ascii_case(b"trillion") => 1e12,
        _ => return,
    };
    number.bare = Some(number.value);
    number.value *= factor;
    number.tolerance *= factor;
    number.other = number.other.map(|o| o * factor);
}

/// A number from 0 to 999 in English words, to look for where digits are not found.
pub(crate) fn spelled(value: f64) -> Option<String> {
    const ONES: [&str; 20] = [
        "zero",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
        "thirteen",
        "fourteen",
        "fifteen",
        "sixteen",
        "seventeen",
        "eighteen",
        "nineteen",
    ];
    const TENS: [&str; 10] =
        ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"];
    if value.fract() != 0.0 || !(0.0..1000.0).contains(&value) {
        return None;
    }
    let n = value as usize;
    let below_hundred = |n: usize| -> Option<String> {
        if n < 20 {
            return ONES.get(n).map(|s| (*s).to_owned());
        }
        let tens = TENS.get(n / 10)?;
        Some(match n % 10 {
            0 => (*tens).to_owned(),
            one => format!("{tens}-{}", ONES.get(one)?),
        })
    };
    if n < 100 {
        return below_hundred(n);
    }
    let hundreds = ONES.get(n / 100)?;
    Some(match n % 100 {
        0 => format!("{hundreds} hundred"),
        rest => format!("{hundreds} hundred and {}", below_hundred(rest)?),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values(text: &str) -> Vec<f64> {
        all(text).iter().map(|n| n.value).collect()
    }

    #[test]
    fn quantities_are_read_with_any_digit_separator() {
        assert_eq!(values("5642 m, 5,642 m, 5'642 m, 5\u{a0}642 m, 5\u{202f}642 m"), vec![5642.0; 5]);
        assert_eq!(values("1,234,567 and 1.234.567"), vec![1_234_567.0; 2]);
        assert_eq!(values("2.1 million, 2.1M, 10k"), vec![2_100_000.0, 2_100_000.0, 10_000.0]);
        assert_eq!(values("3.25 (83.6%)"), vec![3.25, 83.6]);
        assert_eq!(values("5642-4806"), vec![5642.0, 4806.0]);
        assert_eq!(values("2025-03-02"), vec![2025.0, 3.0, 2.0]);
        assert_eq!(values("It is 836."), vec![836.0]);
    }

    #[test]
    fn ambiguous_digits_keep_both_readings() {
        assert_eq!(all("1.234")[0].other, Some(1234.0));
        assert_eq!(all("3,5")[0].value, 3.5);
        assert_eq!(all("3,5")[0].other, Some(3.0));
        assert_eq!(values("[1, 2, 30]"), vec![1.0, 2.0, 30.0]);
    }

    #[test]
    fn digits_in_identifiers_are_marked() {
        assert!(values("GPT4 x86 call_12 utf8").is_empty());
        for text in ["GPT-4", "v.2", "3rd", "7f3a9", "192.168.0.1", "#42", "1.2.3"] {
            assert!(all(text)[0].in_identifier, "{text}");
        }
        for text in ["5642m", "836 metres", "$40", "-40", "(836)"] {
            assert!(!all(text)[0].in_identifier, "{text}");
        }
    }

    #[test]
    fn tolerance_follows_the_last_digit_shown() {
        assert_eq!(all("836")[0].tolerance, 0.5);
        assert!((all("2.10")[0].tolerance - 0.005).abs() < 1e-12);
        assert_eq!(all("2 million")[0].tolerance, 500_000.0);
    }

    #[test]
    fn numbers_below_1000_are_spelled() {
        assert_eq!(spelled(17.0).as_deref(), Some("seventeen"));
        assert_eq!(spelled(56.0).as_deref(), Some("fifty-six"));
        assert_eq!(spelled(836.0).as_deref(), Some("eight hundred and thirty-six"));
        assert_eq!(spelled(1000.0), None);
        assert_eq!(spelled(0.5), None);
    }

    proptest! {
        #[test]
        fn any_text_is_scanned_without_panic_and_in_order(text in "\\PC{0,80}") {
            let mut last = 0;
            for n in all(&text) {
                prop_assert!(n.start >= last && n.end > n.start && n.end <= text.len());
                prop_assert!(text.is_char_boundary(n.start) && text.is_char_boundary(n.end));
                prop_assert!(n.value.is_finite());
                last = n.end;
            }
        }

        #[test]
        fn written_integer_is_read_back(n in 0u32..2_000_000_000) {
            prop_assert_eq!(values(&format!("x {n} y")), vec![f64::from(n)]);
        }
    }
}
