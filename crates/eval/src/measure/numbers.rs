//! Reads numbers of prose, tables and JSON.
//!
//! In: any text. Out: [`Number`]s with value, precision and position. Thousands separators, decimal commas and
//! magnitudes ("2.1 million", "10k") are read. Digits of identifiers ("GPT-4", "7f3a9", "v1.2") are marked, since they
//! are no quantities.

use verdict_otlp::work;

use crate::measure::work_budget::BYTES_PER_STEP;

/// Maximum numbers that are read from one text: enough for a table of measurements.
pub(crate) const MAX_NUMBERS: usize = 20_000;
/// Maximum digits of a fraction that are read.
const MAX_FRACTION_DIGITS: usize = 12;
/// Maximum bytes after a number that are searched for the rest of an identifier.
const MAX_SUFFIX_BYTES: usize = 24;

/// A number in a text.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Number {
    /// The absolute value: a minus sign cannot be distinguished from a dash.
    pub value: f64,
    /// The second reading of ambiguous digits ("1.234" as 1234).
    pub alternative: Option<f64>,
    /// The value without its magnitude, if it has one ("2.1" of "2.1 million").
    pub bare: Option<f64>,
    /// Half a unit of the last digit in the text, which is the largest difference to an exact value.
    pub tolerance: f64,
    /// The start of the byte range in the text.
    pub start: usize,
    /// The end of the byte range, after separators and before units.
    pub end: usize,
    /// Whether the digits are part of an identifier, version, ordinal or label, not a quantity.
    pub in_identifier: bool,
    /// Whether the text has digits after a decimal point.
    pub fractional: bool,
}

impl Number {
    /// Every reading of the digits.
    pub(crate) fn possible_values(&self) -> impl Iterator<Item = f64> + use<> {
        [Some(self.value), self.alternative, self.bare].into_iter().flatten()
    }
}

/// Calls `visit` with the numbers of `text`, in order, at most [`MAX_NUMBERS`].
pub(crate) fn scan(text: &str, mut visit: impl FnMut(Number)) {
    work::count(1 + text.len() / BYTES_PER_STEP);
    let bytes = text.as_bytes();
    let (mut position, mut count) = (0, 0);
    while let Some(digit) = next_digit(bytes, position) {
        // The digits of "GPT4" or "x86" are skipped.
        if digit > position
            && bytes.get(digit - 1).is_some_and(|&b| is_word_byte(b))
            && !is_version(bytes, digit)
        {
            let escape_end = end_of_escape(bytes, digit);
            if escape_end != Some(digit) {
                position = escape_end.unwrap_or_else(|| word_end(bytes, digit));
                continue;
            }
        }
        let mut number = read_number(bytes, digit);
        number.in_identifier |= is_version(bytes, digit);
        // In "5642m" or "3rd" the letters after the digits belong to the same word.
        position = word_end(bytes, number.end);
        if !number.value.is_finite() {
            continue; // Hundreds of digits are a key, not a quantity.
        }
        visit(number);
        count += 1;
        if count == MAX_NUMBERS {
            return;
        }
    }
}

/// The end of the JSON escape that contains the digit at `digit` or ends before it: a result may be JSON with texts in
/// which "\n148 passed" and "\u20ac120" are numbers after an escape.
fn end_of_escape(bytes: &[u8], digit: usize) -> Option<usize> {
    let escape = |length: usize| bytes.get(digit.checked_sub(length)?..)?.strip_prefix(b"\\");
    if escape(2).and_then(<[u8]>::first).is_some_and(|c| matches!(c, b'n' | b'r' | b't' | b'b' | b'f')) {
        return Some(digit);
    }
    let is_code = |code: &[u8]| code.len() == 4 && code.iter().all(u8::is_ascii_hexdigit);
    (2..=UNICODE_ESCAPE_BYTES).find_map(|length| {
        let code = escape(length)?.strip_prefix(b"u")?.get(..4)?;
        is_code(code).then_some(digit - length + UNICODE_ESCAPE_BYTES)
    })
}

/// Whether the digits are a group of an account number: "DE89 3704 0044".
fn is_in_account_number(bytes: &[u8], start: usize, end: usize) -> bool {
    /// Bytes of a group and the space after it.
    const GROUP_BYTES: usize = 5;
    /// Maximum groups before the digits.
    const MAX_GROUPS: usize = 8;
    let mut group_end = start;
    for _ in 0..MAX_GROUPS {
        let Some(group_start) = group_end.checked_sub(GROUP_BYTES).filter(|_| end - start < GROUP_BYTES)
        else {
            return false;
        };
        match bytes.get(group_start..group_end) {
            Some([a, b, c, d, b' ']) if [a, b].iter().all(|byte| byte.is_ascii_uppercase()) => {
                let is_first = group_start
                    .checked_sub(1)
                    .and_then(|i| bytes.get(i))
                    .is_none_or(|byte| !is_word_byte(*byte));
                return is_first && c.is_ascii_digit() && d.is_ascii_digit();
            }
            Some([group @ .., b' '])
                if group.iter().all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase()) =>
            {
                group_end = group_start;
            }
            _ => return false,
        }
    }
    false
}

/// Whether the digits at `start` are those of a version: "v2.0". They are read, unlike other digits within a word,
/// since another text may contain the version without the letter.
fn is_version(bytes: &[u8], start: usize) -> bool {
    let Some(before) = start.checked_sub(1) else { return false };
    matches!(bytes.get(before), Some(b'v' | b'V'))
        && before.checked_sub(1).and_then(|i| bytes.get(i)).is_none_or(|b| !is_word_byte(*b))
}

/// The text with the space in "1 284,00" replaced by a thousands separator of the same length.
pub(super) fn with_joined_groups(text: &str) -> String {
    let bytes = text.as_bytes();
    let are_digits = |range: Option<&[u8]>| range.is_some_and(|part| part.iter().all(u8::is_ascii_digit));
    let joins_groups = |space: usize| {
        let digits_before = bytes.iter().take(space).rev().take_while(|b| b.is_ascii_digit()).count();
        let is_end = bytes.get(space + 4).is_none_or(|b| !b.is_ascii_digit());
        (1..=3).contains(&digits_before) && are_digits(bytes.get(space + 1..space + 4)) && is_end
    };
    text.char_indices().map(|(i, c)| if c == ' ' && joins_groups(i) { '\'' } else { c }).collect()
}

/// The text with an apostrophe in place of each space between groups of digits, if it has any.
pub(super) fn with_spaced_groups(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut position = 0;
    while let Some(start) = next_digit(bytes, position) {
        position = start + digits(bytes, start).len();
        let is_group = bytes.get(position) == Some(&b' ') && digits(bytes, position + 1).len() == 3;
        if is_group && position - start <= 3 {
            return Some(with_joined_groups(text));
        }
    }
    None
}

/// The position of the next digit from `from` on. Blocks without a digit, which are most of a text, are skipped whole.
pub(crate) fn next_digit(bytes: &[u8], from: usize) -> Option<usize> {
    const BLOCK: usize = 32;
    let has_no_digit = |block: &&[u8]| !block.iter().fold(false, |any, b| any | b.is_ascii_digit());
    let start = from + BLOCK * bytes.get(from..)?.chunks_exact(BLOCK).take_while(has_no_digit).count();
    Some(start + bytes.get(start..)?.iter().position(u8::is_ascii_digit)?)
}

/// Whether the text has a digit.
pub(crate) fn has_digit(text: &str) -> bool {
    next_digit(text.as_bytes(), 0).is_some()
}

/// The numbers of a text, as [`scan`] reads them.
pub(crate) fn all(text: &str) -> Vec<Number> {
    let mut out = Vec::new();
    scan(text, |n| out.push(n));
    out
}

/// Bytes of an escape such as "\u20ac" in JSON.
const UNICODE_ESCAPE_BYTES: usize = 6;
/// The escapes of spaces and of the apostrophe between groups of digits in JSON.
const SEPARATOR_ESCAPES: [&[u8; UNICODE_ESCAPE_BYTES]; 4] = [br"\u00a0", br"\u202f", br"\u2009", br"\u2019"];
/// Maximum digits after a power of ten thousand.
const MAX_LOWER_DIGITS: usize = 4;

/// Whether a byte belongs to a word. Bytes from 0xC3 on begin letters of other scripts.
fn is_word_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_' || b >= 0xC3
}

/// The end of the word that continues at `from`.
fn word_end(bytes: &[u8], from: usize) -> usize {
    from + bytes.iter().skip(from).take_while(|b| is_word_byte(**b)).count()
}

/// The run of digits at `from`.
fn digits(bytes: &[u8], from: usize) -> &[u8] {
    let rest = bytes.get(from..).unwrap_or_default();
    let end = rest.iter().position(|b| !b.is_ascii_digit()).unwrap_or(rest.len());
    rest.get(..end).unwrap_or_default()
}

/// `value` with further decimal digits at its end.
fn append_digits(value: f64, digits: &[u8]) -> f64 {
    digits.iter().fold(value, |value, digit| value * 10.0 + f64::from(digit - b'0'))
}

/// Reads the number whose first digit is at `start`.
fn read_number(bytes: &[u8], start: usize) -> Number {
    // A bracket or a comma before the number indicates a list, in which a comma is no separator: "[180,210]".
    let is_listed = start.checked_sub(1).and_then(|i| bytes.get(i)).is_some_and(|b| matches!(b, b'[' | b','));
    let whole = read_whole(bytes, start, is_listed);
    let fraction = read_fraction(bytes, &whole).filter(|fraction| !(is_listed && fraction.is_comma));
    let unit = fraction.as_ref().map_or(1.0, |fraction| 10f64.powi(-(fraction.digit_count as i32)));
    let end = fraction.as_ref().map_or(whole.end, |fraction| fraction.end);
    let mut number = Number {
        value: whole.value + fraction.as_ref().map_or(0.0, |fraction| fraction.digits * unit),
        alternative: fraction.as_ref().and_then(|fraction| alternative_reading(&whole, fraction)),
        bare: None,
        tolerance: 0.5 * unit,
        start,
        end,
        in_identifier: false,
        fractional: fraction.is_some(),
    };
    scale_by_myriads(bytes, &mut number);
    number.in_identifier = is_in_identifier(bytes, start, number.end);
    scale_by_magnitude(bytes, &mut number);
    number
}

/// Multiplies by a power of ten thousand of Chinese and Japanese numbers, and adds the digits after it: "12万5000".
fn scale_by_myriads(bytes: &[u8], number: &mut Number) {
    const POWERS: [(&str, f64); 4] = [("万", 1e4), ("萬", 1e4), ("亿", 1e8), ("億", 1e8)];
    let rest = bytes.get(number.end..).unwrap_or_default();
    let Some((sign, factor)) = POWERS.iter().find(|(sign, _)| rest.starts_with(sign.as_bytes())) else {
        return;
    };
    let after_sign = number.end + sign.len();
    let lower = digits(bytes, after_sign);
    number.bare = Some(number.value);
    number.value *= factor;
    number.alternative = number.alternative.map(|value| value * factor);
    number.tolerance *= factor;
    number.end = after_sign;
    if !lower.is_empty() && lower.len() <= MAX_LOWER_DIGITS {
        const UNITS: [(&str, f64); 2] = [("千", 1e3), ("百", 1e2)];
        let end = after_sign + lower.len();
        let rest = bytes.get(end..).unwrap_or_default();
        let unit = UNITS.iter().find(|(sign, _)| rest.starts_with(sign.as_bytes()));
        number.bare = None;
        number.value += append_digits(0.0, lower) * unit.map_or(1.0, |(_, unit)| *unit);
        number.tolerance = 0.5;
        number.end = end + unit.map_or(0, |(sign, _)| sign.len());
    }
}

/// The digits before the decimal point.
struct WholeDigits {
    value: f64,
    /// The number of digits before the first thousands separator.
    leading: usize,
    /// The number of groups of three digits after a thousands separator.
    groups: usize,
    /// Whether a dot is a thousands separator.
    has_dots: bool,
    /// Whether a comma is a thousands separator.
    has_commas: bool,
    end: usize,
}

/// Reads the digits before the decimal point. In a list (`is_listed`), a comma is no thousands separator.
fn read_whole(bytes: &[u8], start: usize, is_listed: bool) -> WholeDigits {
    let leading = digits(bytes, start);
    let mut whole = WholeDigits {
        value: append_digits(0.0, leading),
        leading: leading.len(),
        groups: 0,
        has_dots: false,
        has_commas: false,
        end: start + leading.len(),
    };
    if !is_listed {
        add_indian_groups(bytes, &mut whole);
    }
    while whole.leading <= 3
        && let Some(width) = separator(bytes, whole.end)
        && !(is_listed && bytes.get(whole.end) == Some(&b','))
    {
        let group = digits(bytes, whole.end + width);
        let is_dot = bytes.get(whole.end) == Some(&b'.');
        // The first dot is a thousands separator only if another one or a decimal comma follows: "1.234.567",
        // "1.234,50".
        let next = bytes.get(whole.end + 4);
        let has_comma = next == Some(&b',') && bytes.get(whole.end + 5).is_some_and(u8::is_ascii_digit);
        let is_point = is_dot && whole.groups == 0 && next != Some(&b'.') && !has_comma;
        if group.len() != 3 || is_point {
            break;
        }
        whole.value = append_digits(whole.value, group);
        whole.groups += 1;
        whole.has_dots |= is_dot;
        whole.has_commas |= bytes.get(whole.end) == Some(&b',');
        whole.end += width + 3;
    }
    whole
}

/// Adds the groups of two digits between the first ones and the last three, as in India: "1,96,000", "12,34,56,789".
fn add_indian_groups(bytes: &[u8], whole: &mut WholeDigits) {
    let group = |from: usize| match bytes.get(from) {
        Some(b',') => digits(bytes, from + 1),
        _ => &[],
    };
    let (mut end, mut value, mut groups) = (whole.end, whole.value, 0);
    while group(end).len() == 2 {
        value = append_digits(value, group(end));
        (end, groups) = (end + 3, groups + 1);
    }
    if groups > 0 && whole.leading <= 2 && group(end).len() == 3 {
        (whole.value, whole.end, whole.groups, whole.has_commas) = (value, end, groups, true);
    }
}

/// The digits after the decimal point.
struct Fraction {
    /// The digits as an integer.
    digits: f64,
    /// The number of digits.
    digit_count: usize,
    is_comma: bool,
    end: usize,
}

/// Reads the digits after a decimal point or comma; `None` if there are none.
fn read_fraction(bytes: &[u8], whole: &WholeDigits) -> Option<Fraction> {
    // A thousands separator is no decimal point.
    let is_comma = match bytes.get(whole.end)? {
        b'.' if !whole.has_dots => false,
        b',' if !whole.has_commas => true,
        _ => return None,
    };
    let all_digits = digits(bytes, whole.end + 1);
    let read = all_digits.get(..all_digits.len().min(MAX_FRACTION_DIGITS)).filter(|read| !read.is_empty())?;
    let (digits, digit_count) = (append_digits(0.0, read), read.len());
    Some(Fraction { digits, digit_count, is_comma, end: whole.end + 1 + all_digits.len() })
}

/// The second reading: "1.234" may be 1234, and "3,5" may be two numbers, of which 3 is the first.
fn alternative_reading(whole: &WholeDigits, fraction: &Fraction) -> Option<f64> {
    if fraction.digit_count == 3 && whole.groups == 0 && whole.leading <= 3 {
        return Some(whole.value * 1000.0 + fraction.digits);
    }
    fraction.is_comma.then_some(whole.value)
}

/// The number of bytes of the thousands separator at `start`: a comma, dot, apostrophe, underscore, thin or no-break
/// space, or the JSON escape of one; `None` for another byte.
fn separator(bytes: &[u8], start: usize) -> Option<usize> {
    match bytes.get(start)? {
        b',' | b'.' | b'\'' | b'_' => Some(1),
        0xC2 if bytes.get(start + 1) == Some(&0xA0) => Some(2),
        0xE2 if bytes.get(start + 1) == Some(&0x80)
            && matches!(bytes.get(start + 2), Some(0xAF | 0x89 | 0x99)) =>
        {
            Some(3)
        }
        b'\\' => {
            let escape = bytes.get(start..start + UNICODE_ESCAPE_BYTES)?;
            SEPARATOR_ESCAPES
                .iter()
                .any(|other| escape.eq_ignore_ascii_case(&other[..]))
                .then_some(escape.len())
        }
        _ => None,
    }
}

/// Whether the digits are part of an identifier, version, ordinal or label, by the bytes around them.
fn is_in_identifier(bytes: &[u8], start: usize, end: usize) -> bool {
    if is_in_account_number(bytes, start, end) {
        return true;
    }
    let before = |back: usize| start.checked_sub(back).and_then(|i| bytes.get(i)).copied();
    let has_joining_prefix = match before(1) {
        Some(b'-' | b'.' | b'/' | b':' | b'+') => before(2).is_some_and(|b| b.is_ascii_alphabetic()),
        Some(b'#' | b'@' | b'=' | b'%' | b'&' | b'\\') => true,
        _ => false,
    };
    let length = bytes.iter().skip(end).take(MAX_SUFFIX_BYTES).take_while(|b| is_word_byte(**b)).count();
    let suffix = bytes.get(end..end + length).unwrap_or_default();
    let is_ordinal = matches!(suffix, b"st" | b"nd" | b"rd" | b"th");
    let has_digits = suffix.iter().any(|b| b.is_ascii_digit() || *b == b'_');
    // Another part follows a dot: "192.168.0.1", "1.2.3".
    let has_further_part =
        bytes.get(end) == Some(&b'.') && bytes.get(end + 1).is_some_and(u8::is_ascii_digit);
    has_joining_prefix || has_digits || is_ordinal || has_further_part
}

/// Multiplies by a magnitude after the number: "2.1 million", "10k".
fn scale_by_magnitude(bytes: &[u8], number: &mut Number) {
    let rest = bytes.get(number.end..).unwrap_or_default();
    let gap = usize::from(matches!(rest.first(), Some(b' ' | b'-')));
    let word_len = rest.iter().skip(gap).take(9).take_while(|b| b.is_ascii_alphabetic()).count();
    let word = rest.get(gap..gap + word_len).unwrap_or_default();
    let is_either = |word: &[u8], singular: &[u8], plural: &[u8]| {
        word.eq_ignore_ascii_case(singular) || word.eq_ignore_ascii_case(plural)
    };
    let factor = match word {
        b"k" | b"K" if gap == 0 => 1e3,
        b"M" if gap == 0 => 1e6,
        b"B" | b"G" if gap == 0 => 1e9,
        _ if word.eq_ignore_ascii_case(b"hundred") => 1e2,
        _ if word.eq_ignore_ascii_case(b"thousand") => 1e3,
        _ if word.eq_ignore_ascii_case(b"million") || word == b"mn" || word == b"mio" => 1e6,
        _ if word.eq_ignore_ascii_case(b"billion") || word == b"bn" => 1e9,
        _ if word.eq_ignore_ascii_case(b"trillion") => 1e12,
        _ if is_either(word, b"lakh", b"lakhs") => 1e5,
        _ if is_either(word, b"crore", b"crores") => 1e7,
        _ => return,
    };
    number.bare = Some(number.value);
    number.value *= factor;
    number.tolerance *= factor;
    number.alternative = number.alternative.map(|value| value * factor);
}

/// The English words for the numbers from 0 to 19.
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
/// The English words for multiples of ten, by the number of tens.
const TENS: [&str; 10] =
    ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"];

/// The number from 2 to 20 that an English word in lower case names.
pub(crate) fn from_word(word: &str) -> Option<usize> {
    // Other words are excluded by their length or first letter.
    let may_be = (3..=9).contains(&word.len()) && word.starts_with(['t', 'f', 's', 'e', 'n']);
    may_be.then(|| (2..=20).find(|n| is_spelled(*n, word))).flatten()
}

/// The number that an English word in any case names: from 0 to 20, or a multiple of ten up to 90.
pub(crate) fn from_any_word(word: &str) -> Option<f64> {
    if !(3..=9).contains(&word.len()) {
        return None;
    }
    let index_in = |names: &[&str]| names.iter().position(|name| name.eq_ignore_ascii_case(word));
    index_in(&ONES).or_else(|| Some(10 * index_in(&TENS)?)).map(|number| number as f64)
}

/// Whether an English word in lower case names this number from 0 to 19, or a multiple of ten.
pub(crate) fn is_spelled(number: usize, word: &str) -> bool {
    let (ones, tens) = (ONES.get(number), TENS.get(number / 10).filter(|_| number.is_multiple_of(10)));
    ones.or(tens) == Some(&word)
}

/// The English words for a whole number from 0 to 999; `None` for other numbers.
pub(crate) fn spelled(value: f64) -> Option<String> {
    if value.fract() != 0.0 || !(0.0..1000.0).contains(&value) {
        return None;
    }
    let n = value as usize;
    Some(match n {
        0..20 => (*ONES.get(n)?).to_owned(),
        20..100 if n.is_multiple_of(10) => (*TENS.get(n / 10)?).to_owned(),
        20..100 => format!("{}-{}", TENS.get(n / 10)?, ONES.get(n % 10)?),
        _ if n.is_multiple_of(100) => format!("{} hundred", ONES.get(n / 100)?),
        _ => format!("{} hundred and {}", ONES.get(n / 100)?, spelled((n % 100) as f64)?),
    })
}

#[cfg(test)]
mod tests;
