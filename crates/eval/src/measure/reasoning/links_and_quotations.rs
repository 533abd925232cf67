//! Links and quotations of an answer, which the evidence must contain.
//!
//! Principle: a link or a quotation is copied from a text that the model read. A link that no text contains may lead
//! nowhere, and a quotation may attribute words to a person who did not write them. A link that the answer only
//! suggests to try is not compared.
//!
//! In: an answer. Out: its links and quotations, with the phrases of which the evidence has to contain one.

use std::ops::Range;

use serde::de::IgnoredAny;

use super::dates::Date;
use crate::measure::defects::Defect;
use crate::measure::excerpt::{around, clip_end};
use crate::measure::language::{Language, WordClasses, classes};

/// Maximum facts of one kind in one answer that are checked.
const MAX_FACTS: usize = 64;
/// Minimum words of a quotation: fewer words may be a title or a term.
const MIN_QUOTED_WORDS: usize = 6;
/// Maximum braces and brackets of an answer at which JSON is searched for.
const MAX_JSON_STARTS: usize = 64;
/// Number of consecutive words of a quotation that are searched for together.
const WINDOW_WORDS: usize = 5;

regex!(LINK, r#"https?://[^\s<>()\[\]"'`*]+"#);

/// Classes of words before a link that point to further reading, not to the source of a fact.
const SUGGESTION: WordClasses = classes!(Visit Modal Obligation Probability Advice);
/// Minimum bytes of the last segment of a path that identifies one thing without the other segments.
const MIN_IDENTIFYING_BYTES: usize = 4;
/// Bytes before a link that are searched for [`SUGGESTION`].
const MAX_BYTES_BEFORE: usize = 100;

/// A fact in words, which is supported if the evidence contains one of the phrases, or all of the parts.
pub(super) struct PhraseFact {
    /// Phrases of which each alone supports the fact.
    pub phrases: Vec<String>,
    /// Phrases that support the fact only together.
    pub parts: Vec<String>,
    /// The date, if the fact is one.
    pub date: Option<Date>,
    pub defect: Defect,
    pub kind: &'static str,
    pub shown: String,
    pub quote: String,
}

/// The links of an answer with a path, except those that the answer suggests to try.
pub(super) fn links(answer: &str, language: Language) -> Vec<PhraseFact> {
    let fact = |link: regex::Match<'_>| {
        let url = link.as_str().trim_end_matches(['.', ',', ';', ':', '!', '?']);
        let bare = url.split_once("://").map_or(url, |(_, address)| address);
        let bare = bare.strip_prefix("www.").unwrap_or(bare);
        let bare = bare.split(['#', '?']).next().unwrap_or(bare).trim_end_matches('/');
        let before = clip_end(answer.get(..link.start()).unwrap_or_default(), MAX_BYTES_BEFORE);
        let before = before.rsplit(['.', '!', '?', '。']).next().unwrap_or_default();
        // A host without a path is common knowledge. Escaped and non-ASCII paths have several spellings.
        (bare.contains('/')
            && bare.is_ascii()
            && !bare.contains('%')
            && !language.classes(before).has_any(SUGGESTION))
        .then(|| PhraseFact {
            phrases: vec![bare.to_ascii_lowercase()],
            parts: address_parts(bare).unwrap_or_default(),
            date: None,
            defect: Defect::UnsupportedUrl,
            kind: "address",
            shown: url.to_owned(),
            quote: around(answer, link.start(), link.end(), 60).to_owned(),
        })
    };
    LINK.find_iter(answer).take(MAX_FACTS).filter_map(fact).collect()
}

/// The host of a link and the last segment of its path, or all segments if the last one is short: a model may compose a
/// link from them ("the pull request 4214 of ..."). `None` if the last segment has no digit.
fn address_parts(bare: &str) -> Option<Vec<String>> {
    let (host, path) = bare.split_once('/')?;
    let last = path.rsplit('/').next().filter(|last| last.bytes().any(|b| b.is_ascii_digit()))?;
    let parts =
        [host].into_iter().chain(if last.len() >= MIN_IDENTIFYING_BYTES { last } else { path }.split('/'));
    Some(parts.map(str::to_ascii_lowercase).collect())
}

/// The quotations of an answer, without strings in JSON, which are data.
pub(super) fn quotations(answer: &str) -> Vec<PhraseFact> {
    let mut data = None;
    let fact = |(start, end): (usize, usize)| {
        let inner = answer.get(start..end)?;
        let words: Vec<&str> = inner.split(' ').filter(|w| !w.is_empty()).collect();
        let lowercase_words = words.iter().filter(|w| w.starts_with(char::is_lowercase)).count();
        // A text with mostly capitals is a title or an attribution.
        if words.len() < MIN_QUOTED_WORDS || lowercase_words * 2 <= words.len() {
            return None;
        }
        if data.get_or_insert_with(|| json_ranges(answer)).iter().any(|data| data.contains(&start)) {
            return None;
        }
        // One sequence of words suffices, since quotations may be shortened and differ in their punctuation.
        let phrases = words
            .windows(WINDOW_WORDS)
            .map(|w| w.join(" ").to_ascii_lowercase())
            .map(|p| p.trim_matches(|c: char| !c.is_alphanumeric()).to_owned())
            .filter(|p| p.is_ascii() && !p.is_empty());
        Some(PhraseFact {
            phrases: phrases.take(MAX_FACTS).collect(),
            parts: Vec::new(),
            date: None,
            defect: Defect::UnsupportedQuote,
            kind: "quotation",
            shown: inner.to_owned(),
            quote: around(answer, start, end, 40).to_owned(),
        })
    };
    quoted_ranges(answer).into_iter().take(MAX_FACTS).filter_map(fact).collect()
}

/// The byte ranges of objects and lists of JSON in a text.
fn json_ranges(text: &str) -> Vec<Range<usize>> {
    let mut out = Vec::new();
    let mut from = 0;
    for _ in 0..MAX_JSON_STARTS {
        let Some(at) = text.get(from..).and_then(|rest| rest.find(['{', '['])) else { break };
        let start = from + at;
        let rest = text.get(start..).unwrap_or_default();
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<IgnoredAny>();
        from = match values.next() {
            Some(Ok(_)) => {
                let end = start + values.byte_offset();
                out.push(start..end);
                end
            }
            _ => start + 1,
        };
    }
    out
}

/// The byte ranges between quotation marks. Straight marks are paired within a line; a line with an
/// odd number of them is ignored.
fn quoted_ranges(answer: &str) -> Vec<(usize, usize)> {
    let mut out = Vec::new();
    let mut from = 0;
    for line in answer.split_inclusive('\n') {
        let straight: Vec<usize> = line.match_indices('"').map(|(at, _)| from + at).collect();
        if straight.len().is_multiple_of(2) {
            out.extend(straight.chunks_exact(2).filter_map(|pair| Some((pair.first()? + 1, *pair.get(1)?))));
        }
        let mut open = None;
        // The first byte of both marks.
        for at in memchr::memchr_iter(0xe2, line.as_bytes()) {
            match (line.get(at..).and_then(|rest| rest.chars().next()), open) {
                (Some('“'), _) => open = Some(from + at + '“'.len_utf8()),
                (Some('”'), Some(start)) => {
                    out.push((start, from + at));
                    open = None;
                }
                _ => {}
            }
        }
        from += line.len();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_try_are_no_facts() {
        for text in [
            "The page seems to be: `https://mill.example/prices/2024`.",
            "Please refer to the archive at https://mill.example/prices/2024.",
            "Let's fetch the prices from https://mill.example/prices/2024.",
        ] {
            assert!(links(text, Language::English).is_empty(), "{text}");
        }
        let findings = links(
            "I found the prices on the page of the mill. Source: https://mill.example/prices/2024",
            Language::English,
        );
        assert_eq!(findings.len(), 1);
    }

    #[test]
    fn links_to_try_are_recognised_in_all_languages() {
        for (language, to_try, stated) in [
            (
                Language::German,
                "Schauen Sie auf https://m.example/a/1.",
                "Die Preise stehen auf https://m.example/a/1.",
            ),
            (
                Language::French,
                "Consultez https://m.example/a/1.",
                "Les prix figurent sur https://m.example/a/1.",
            ),
            (
                Language::Spanish,
                "Vamos a abrir https://m.example/a/1.",
                "Los precios: https://m.example/a/1.",
            ),
            (Language::Chinese, "请访问 https://m.example/a/1", "价格来自 https://m.example/a/1"),
        ] {
            assert_eq!(links(to_try, language).len(), 0, "{to_try}");
            assert_eq!(links(stated, language).len(), 1, "{stated}");
        }
    }

    #[test]
    fn strings_of_json_are_no_quotations() {
        let sentence = "the gate closes ten minutes before every departure";
        let quoted = |text: &str| quotations(text).len();
        for text in [
            format!("I called it with {{\"id\": 7, \"note\": \"{sentence}\"}}."),
            format!("[\"{sentence}\", {{\"x\": [1]}}]"),
            format!("a [b] {{c}} {{\"note\":\"{sentence}\"}}"),
        ] {
            assert_eq!(quoted(&text), 0, "{text}");
        }
        for text in [
            format!("The notice says \"{sentence}\"."),
            format!("See [1] and {{2}}: \"{sentence}\", as {{\"id\": 7}} shows."),
            format!("{{The notice: \"{sentence}\"}}"),
        ] {
            assert_eq!(quoted(&text), 1, "{text}");
        }
        assert_eq!(quoted(&format!("{} \"{sentence}\"", "[".repeat(100_000))), 1);
    }
}
