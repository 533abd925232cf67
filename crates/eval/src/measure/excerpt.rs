//! Excerpts of a text as evidence: verbatim, bounded, and cut between words.
//!
//! In: a text of the trace. Out: a slice of it. A quote has no ellipsis where it was cut, so that a search for the
//! quote finds it in the span. Scripts and data without word borders are cut between characters.

use std::borrow::Cow;

use regex::Captures;

/// Maximum bytes of a quote: a line or two, so that a span with many findings stays small.
pub(crate) const QUOTE_BYTES: usize = 240;
/// Maximum bytes by which a cut is moved to a word border: longer runs are identifiers, hashes or data.
const MAX_SHIFT_BYTES: usize = 32;

/// The beginning of `text`, at most `max` bytes, cut between words.
pub(crate) fn head(text: &str, max: usize) -> &str {
    let cut = clip(text, max);
    cut.get(..border_before(text, cut.len())).filter(|whole| !whole.is_empty()).unwrap_or(cut)
}

/// The end of `text`, at most `max` bytes, cut between words.
pub(crate) fn tail(text: &str, max: usize) -> &str {
    let cut = clip_end(text, max);
    text.get(border_after(text, text.len() - cut.len())..).filter(|whole| !whole.is_empty()).unwrap_or(cut)
}

/// The part of `text` around the bytes `start..end`, with some `margin` bytes on both sides; words
/// at the ends are whole.
pub(crate) fn around(text: &str, start: usize, end: usize, margin: usize) -> &str {
    let from = text.floor_char_boundary(start.saturating_sub(margin));
    let to = text.ceil_char_boundary(end.saturating_add(margin)).max(from);
    text.get(border_before(text, from)..border_after(text, to)).unwrap_or(text)
}

/// As [`str::to_lowercase`]; faster where most of a text is ASCII.
pub(crate) fn lowercase(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    // The lower case of the Greek letter sigma depends on its position in the word.
    if text.contains('\u{3a3}') {
        return text.to_lowercase();
    }
    let mut out = String::with_capacity(text.len());
    push_lowercase(&mut out, text);
    out
}

/// Whether a text has no other characters than white space. Most texts begin with another one.
pub(crate) fn is_blank(text: &str) -> bool {
    text.chars().all(char::is_whitespace)
}

/// Appends the characters of `text` in lower case.
pub(crate) fn push_lowercase(out: &mut String, text: &str) {
    let push_ascii = |out: &mut String, ascii: &str| {
        let from = out.len();
        out.push_str(ascii);
        out.get_mut(from..).into_iter().for_each(str::make_ascii_lowercase);
    };
    // Most texts are ASCII as a whole.
    if text.is_ascii() {
        return push_ascii(out, text);
    }
    let mut rest = text;
    while let Some(ascii) = rest.bytes().position(|byte| !byte.is_ascii()) {
        push_ascii(out, rest.get(..ascii).unwrap_or_default());
        let mut others = rest.get(ascii..).unwrap_or_default().chars();
        others.next().into_iter().flat_map(char::to_lowercase).for_each(|c| out.push(c));
        rest = others.as_str();
    }
    push_ascii(out, rest);
}

/// The first `max` bytes of `text` at most, cut between characters.
pub(crate) fn clip(text: &str, max: usize) -> &str {
    text.get(..text.floor_char_boundary(max)).unwrap_or(text)
}

/// The last `max` bytes of `text` at most, cut between characters.
pub(crate) fn clip_end(text: &str, max: usize) -> &str {
    text.get(text.ceil_char_boundary(text.len().saturating_sub(max))..).unwrap_or(text)
}

/// The nearest border at or before `position`; `position` itself if there is none within [`MAX_SHIFT_BYTES`].
fn border_before(text: &str, position: usize) -> usize {
    let before = text.get(..position).unwrap_or_default();
    let nearby = before.char_indices().rev().map(|(i, _)| i).take_while(|i| position - i <= MAX_SHIFT_BYTES);
    std::iter::once(position).chain(nearby).find(|i| is_border(text, *i)).unwrap_or(position)
}

/// The nearest border at or after `position`; `position` itself if there is none within [`MAX_SHIFT_BYTES`].
fn border_after(text: &str, position: usize) -> usize {
    let after = text.get(position..).unwrap_or_default();
    let nearby = after
        .char_indices()
        .map(|(i, c)| position + i + c.len_utf8())
        .take_while(|i| i - position <= MAX_SHIFT_BYTES);
    std::iter::once(position).chain(nearby).find(|i| is_border(text, *i)).unwrap_or(position)
}

/// Whether no word extends across `position`. In Chinese, Japanese, Thai and related scripts, which have no spaces,
/// every position is a border.
fn is_border(text: &str, position: usize) -> bool {
    let is_unspaced =
        |c| matches!(c, '\u{e00}'..='\u{fff}' | '\u{2e80}'..='\u{9fff}' | '\u{20000}'..='\u{3ffff}');
    let is_word_char = |c: char| c == '_' || c.is_alphanumeric() && !is_unspaced(c);
    let before = text.get(..position).and_then(|t| t.chars().next_back());
    let after = text.get(position..).and_then(|t| t.chars().next());
    !(before.is_some_and(is_word_char) && after.is_some_and(is_word_char))
}

/// Maximum levels of JSON in strings of JSON whose escapes are replaced.
const MAX_ESCAPE_LEVELS: usize = 3;

// An escape of JSON; consecutive code units are one match, since two of them may be one character.
regex!(ESCAPE, r#"\\[nrt"/\\]|(?:\\u[0-9A-Fa-f]{4})+"#);

/// The text with the characters for its JSON escapes, also for those of JSON in strings; borrowed if it has none. The
/// text need not be JSON: other backslashes stay.
pub(crate) fn without_json_escapes(text: &str) -> Cow<'_, str> {
    if memchr::memchr(b'\\', text.as_bytes()).is_none() {
        return Cow::Borrowed(text);
    }
    let mut unescaped = Cow::Borrowed(text);
    for _ in 0..MAX_ESCAPE_LEVELS {
        let Cow::Owned(next) = ESCAPE.replace_all(&unescaped, |escape: &Captures<'_>| decoded(&escape[0]))
        else {
            break;
        };
        unescaped = Cow::Owned(next);
    }
    unescaped
}

/// The characters of one match of [`ESCAPE`].
fn decoded(escape: &str) -> String {
    match escape.get(1..2).unwrap_or_default() {
        "n" => "\n".to_owned(),
        "r" => "\r".to_owned(),
        "t" => "\t".to_owned(),
        "u" => {
            let code_units = escape.split("\\u").filter_map(|digits| u16::from_str_radix(digits, 16).ok());
            char::decode_utf16(code_units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
        }
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn excerpts_are_cut_between_words() {
        let text = "the almanac gives 5642 metres";
        assert_eq!(head(text, 14), "the almanac ");
        assert_eq!(tail(text, 8), " metres");
        assert_eq!(around(text, 12, 17, 3), "almanac gives 5642");
        assert_eq!(around(text, 4, 11, 2), "the almanac gives");
        assert_eq!((head(text, 2), tail(text, 3)), ("th", "res"), "a part of a word is better than nothing");
        assert_eq!((head(text, 99), tail(text, 99)), (text, text));
    }

    #[test]
    fn text_without_words_is_cut_between_characters() {
        let data = "a".repeat(100);
        assert_eq!((head(&data, 50).len(), tail(&data, 50).len()), (50, 50));
        assert_eq!(head("山山山山", 7), "山山");
    }

    #[test]
    fn json_escapes_are_replaced_at_every_level() {
        let unescaped = |text| without_json_escapes(text).into_owned();
        assert_eq!(unescaped(r"https:\/\/mill.example\/prices"), "https://mill.example/prices");
        assert_eq!(unescaped(r"Stra\u00dfe\n\ud83d\ude00 \ud83d!"), "Straße\n😀 \u{fffd}!");
        assert_eq!(
            unescaped(r#"{"body": "{\"note\": \"M\\u00fcller\"}"}"#),
            r#"{"body": "{"note": "Müller"}"}"#
        );
        assert_eq!(unescaped(r"\d+ \x41 \u12 C:\"), r"\d+ \x41 \u12 C:\");
        assert!(matches!(without_json_escapes("no backslash"), Cow::Borrowed(_)));
    }

    proptest! {
        #[test]
        fn excerpts_are_verbatim_and_bounded(text in ".{0,80}", max in 0usize..100, start in 0usize..100) {
            prop_assert!(text.starts_with(head(&text, max)) && head(&text, max).len() <= max);
            prop_assert!(text.ends_with(tail(&text, max)) && tail(&text, max).len() <= max);
            let part = around(&text, start, start + 3, 5);
            prop_assert!(text.contains(part) && part.len() <= 3 + 2 * (5 + MAX_SHIFT_BYTES + 4));
        }

        #[test]
        fn clipping_never_splits_a_character(text in ".{0,40}", max in 0usize..60) {
            prop_assert!(clip(&text, max).len() <= max);
            prop_assert!(clip_end(&text, max).len() <= max);
            prop_assert!(text.starts_with(clip(&text, max)) && text.ends_with(clip_end(&text, max)));
        }
    }
}
