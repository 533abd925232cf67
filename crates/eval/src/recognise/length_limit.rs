//! Finds the length at which the attributes of a service were cut off when they were recorded.
//!
//! In: the texts in the attributes of a trace. Out: by resource, the [`LengthLimit`] of its SDK, if it has cut
//! any. SDKs cut silently (`OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT`). A limit is inferred if three conditions hold: no text
//! of the service is longer; texts of exactly this length end in the middle of JSON or of a sentence; and the length is
//! round, or several texts have it. A tool that cuts its own results does not meet the first condition, since the
//! prompts that repeat the results are longer.
//!
//! A trace is searched only if one of its texts can have been cut, which the ends of the texts show.

use foldhash::HashMap;
use verdict_otlp::trace::EnvelopeFields;
use verdict_otlp::{Attributes, Value};

use super::scan::{LONG_TEXT, SpanScan};
use super::truncated_text::{Ending, ellipsis, is_broken_json, is_json};

/// Shorter texts are not considered: names and labels often have the same length.
const MIN_LENGTH: usize = LONG_TEXT;
/// Maximum number of bytes of a character in UTF-8.
const MAX_CHAR: usize = 4;

/// The unit in which an SDK counts: code points (Python), UTF-16 (Java, JavaScript, .NET) or bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CountingUnit {
    Chars,
    Utf16,
    Bytes,
}

impl CountingUnit {
    const ALL: [CountingUnit; 3] = [CountingUnit::Chars, CountingUnit::Utf16, CountingUnit::Bytes];

    fn length(self, text: &str) -> usize {
        match self {
            CountingUnit::Chars => lengths(text).0,
            CountingUnit::Utf16 => lengths(text).1,
            CountingUnit::Bytes => text.len(),
        }
    }
}

/// The length of a text in code points and in UTF-16, where a character of four bytes is a pair.
fn lengths(text: &str) -> (usize, usize) {
    let bytes = text.as_bytes();
    let (mut continued, mut pairs) = (0, 0);
    // Parts fit a counter of one byte, so that the compiler counts many bytes at once, and are a multiple of the vector
    // size.
    const PART: usize = 192;
    for part in bytes.chunks(PART) {
        let (mut continued_here, mut pairs_here) = (0u8, 0u8);
        for byte in part {
            // Continuation bytes (0x80 to 0xBF) are the lowest signed values.
            continued_here += u8::from(byte.cast_signed() < -0x40);
            pairs_here += u8::from(*byte >= 0xf0);
        }
        continued += usize::from(continued_here);
        pairs += usize::from(pairs_here);
    }
    let chars = bytes.len() - continued;
    (chars, chars + pairs)
}

/// The length at which the texts of a service are cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LengthLimit {
    unit: CountingUnit,
    length: usize,
}

impl LengthLimit {
    /// Whether `text` has exactly the length of the limit.
    pub(super) fn is_reached_by(self, text: &str) -> bool {
        (self.length..=self.length.saturating_mul(MAX_CHAR)).contains(&text.len())
            && self.unit.length(text) == self.length
    }
}

/// The limits by resource.
pub(super) type LengthLimits = HashMap<EnvelopeFields, LengthLimit>;

/// Whether a text of the span can have been cut at a limit. The texts at the addresses `uncut_texts` were not cut.
pub(super) fn is_suspect(scan: &SpanScan<'_>, uncut_texts: &[*const u8]) -> bool {
    any_long_text(scan, |text| {
        !uncut_texts.contains(&text.as_ptr())
            && match Ending::detect(text) {
                Ending::InJson => true,
                Ending::InText => has_round_length(text),
                // A cut after a bracket is detected only by parsing, which is done only at a round length.
                Ending::ClosedJson => has_round_length(text) && !is_json(text),
                Ending::Closed => false,
            }
    })
}

/// The longest texts of each resource, collected span by span.
#[derive(Debug, Default)]
pub(super) struct LongestTexts<'a> {
    by_resource: HashMap<&'a EnvelopeFields, [Longest<'a>; CountingUnit::ALL.len()]>,
}

/// The longest texts in one unit.
#[derive(Clone, Copy, Debug, Default)]
struct Longest<'a> {
    length: usize,
    /// A text of this length that is cut off.
    cut_text: Option<&'a str>,
    /// Several different texts of this length are cut off.
    has_several_cut: bool,
    /// A text of this length is broken JSON.
    has_broken_json: bool,
}

impl<'a> LongestTexts<'a> {
    pub(super) fn add(&mut self, resource: &'a EnvelopeFields, scan: &SpanScan<'a>) {
        let longest_by_unit = self.by_resource.entry(resource).or_default();
        any_long_text(scan, |text| {
            for (unit, longest) in CountingUnit::ALL.into_iter().zip(&mut *longest_by_unit) {
                longest.add(unit.length(text), text);
            }
            false
        });
    }

    pub(super) fn limits(self) -> LengthLimits {
        let limit = |all: [Longest<'_>; CountingUnit::ALL.len()]| {
            let mut units = CountingUnit::ALL.into_iter().zip(all).filter(|(_, longest)| longest.is_limit());
            units.next().map(|(unit, longest)| LengthLimit { unit, length: longest.length })
        };
        self.by_resource
            .into_iter()
            .filter_map(|(resource, all)| Some((resource.clone(), limit(all)?)))
            .collect()
    }
}

impl<'a> Longest<'a> {
    fn add(&mut self, length: usize, text: &'a str) {
        if length < self.length {
            return;
        }
        if length > self.length {
            *self = Longest { length, ..Longest::default() };
        }
        let in_json = is_broken_json(text);
        if !in_json && Ending::detect(text) != Ending::InText {
            return;
        }
        self.has_broken_json |= in_json;
        // The same prompt on several spans is one text.
        self.has_several_cut |= self.cut_text.is_some_and(|earlier| earlier != text);
        self.cut_text = Some(text);
    }

    fn is_limit(&self) -> bool {
        let Some(cut_text) = self.cut_text else { return false };
        is_round(self.length) || ellipsis(cut_text).is_some_and(|n| is_round(self.length - n)) || {
            // Results of one template have equal lengths, too, but are not broken JSON.
            self.has_several_cut && self.has_broken_json
        }
    }
}

fn has_round_length(text: &str) -> bool {
    let is_round = |length| is_round(length) || ellipsis(text).is_some_and(|n| is_round(length - n));
    is_round(text.len())
        || !text.is_ascii() && {
            let (chars, utf16) = lengths(text);
            is_round(chars) || is_round(utf16)
        }
}

/// Whether a person may have configured this length as a limit: a round number, or one below a power of two.
fn is_round(length: usize) -> bool {
    length >= MIN_LENGTH
        && (length.is_power_of_two()
            || (length + 1).is_power_of_two()
            || length.is_multiple_of(500)
            || length.is_multiple_of(1024)
            || length < 1000 && length.is_multiple_of(100)
            || length == 32_766)
}

/// Whether `is_match` is true for a long text in the attributes of a span, its events and log records. Texts that
/// repeat those of earlier spans are skipped, as are bodies of log records, which SDKs do not cut.
fn any_long_text<'a>(scan: &SpanScan<'a>, mut is_match: impl FnMut(&'a str) -> bool) -> bool {
    let mut is_new = |value: Value<'a>| {
        let long = value.as_str().filter(|text| text.len() >= MIN_LENGTH);
        long.is_some_and(|text| !scan.repeated_texts.contains(&text.as_ptr()) && is_match(text))
    };
    scan.fields.iter().any(|(_, _, value)| is_new(*value))
        || scan.flat.iter().any(|leaf| !leaf.is_repeated && is_new(leaf.value))
        || scan.map_entries.iter().any(|(_, _, _, value)| is_new(*value))
        || {
            let mut event_attributes =
                scan.events.iter().flat_map(|e| Attributes::new(e.message, e.attributes));
            event_attributes.any(|(_, value)| is_new(value))
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(texts: &[&str]) -> Option<LengthLimit> {
        let mut longest = CountingUnit::ALL.map(|_| Longest::default());
        for text in texts {
            for (unit, longest) in CountingUnit::ALL.into_iter().zip(&mut longest) {
                longest.add(unit.length(text), text);
            }
        }
        let resource = EnvelopeFields::default();
        let texts = LongestTexts { by_resource: HashMap::from_iter([(&resource, longest)]) };
        texts.limits().get(&resource).copied()
    }

    #[test]
    fn text_cut_at_a_round_length_shows_the_limit() {
        let prose = "The quick brown fox jumps over the lazy dog near the river bank ".repeat(9);
        let json = format!("[{{\"role\":\"user\",\"content\":\"{prose}\"}}]");
        for length in [128, 255, 256, 300, 500, 512] {
            let cut = &json[..length];
            let length_limit = limit(&[cut, "a short one"]).unwrap();
            assert!(
                length_limit.is_reached_by(cut) && !length_limit.is_reached_by(&json[..length - 1]),
                "{length}"
            );
        }
        assert!(limit(&[&prose[..256]]).is_some(), "in a word");
        assert!(limit(&[&format!("{}...", &prose[..256])]).is_some(), "the ellipsis is added");
    }

    #[test]
    fn length_is_no_limit_if_a_text_is_longer_or_none_is_broken_off() {
        let prose = "The quick brown fox jumps over the lazy dog near the river bank ".repeat(9);
        let cut = &prose[..256];
        assert_eq!(limit(&[cut, &prose]), None, "a longer text");
        assert_eq!(limit(&[&prose[..263]]), None, "no round length");
        assert_eq!(limit(&[&format!("{}.", &prose[..255])]), None, "a whole sentence");
        let json = format!("{{\"text\":\"{}\"}}", &prose[..245]);
        assert_eq!((json.len(), limit(&[&json])), (256, None), "whole JSON");
    }

    #[test]
    fn several_broken_texts_of_one_length_show_a_limit_that_is_not_round() {
        let json = |word: &str| format!("[{{\"content\":\"{}", word.repeat(40));
        let (one, two) = (json("abcde "), json("fghij "));
        assert_eq!(limit(&[&one, &one]), None, "the same text twice");
        assert!(limit(&[&one, &two]).is_some());
        let template = |n: u32| format!("{} {n}", "Item with a long description in the catalogue".repeat(3));
        assert_eq!(limit(&[&template(1), &template(2)]), None, "texts of one template");
    }

    #[test]
    fn limits_are_counted_in_characters_of_utf_16_and_in_bytes() {
        let prose = "Les élèves étudient la géographie à l’université près de la forêt 😀 ".repeat(9);
        let chars: String = prose.chars().take(256).collect();
        assert_eq!(limit(&[&chars]).map(|l| l.unit), Some(CountingUnit::Chars));
        let units: Vec<u16> = prose.encode_utf16().take(256).collect();
        assert!(limit(&[&String::from_utf16_lossy(&units)]).is_some_and(|l| l.unit == CountingUnit::Utf16));
    }
}
