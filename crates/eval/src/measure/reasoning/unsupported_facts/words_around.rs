//! Words next to a number of an answer that make the number an approximation, a limit or a label.
//!
//! In: the position of a number, and the words of closed classes of its text. Out: whether the number is hedged ("about
//! 800"), and whether it is a label ("page 31").

use std::ops::Range;

use crate::measure::language::{ClassifiedWord, ClassifiedWords, WordClass, WordClasses, classes};
use crate::measure::numbers::Number;

/// Maximum bytes before or after a number that are read.
const MAX_AROUND: usize = 32;
/// Classes of words that make the number after them an approximation or a limit.
const HEDGES: WordClasses = classes!(Approximation Bound Restriction);
/// Values of the words of class `Bound`.
const AT_MOST: u8 = 1;
const ABOVE: u8 = 2;
/// The largest ratio of a limit and a value that it is named for.
const MAX_LIMIT_RATIO: f64 = 1.5;
/// Signs before a number with the same meaning.
const HEDGE_SIGNS: [char; 4] = ['~', '≈', '<', '>'];
/// Classes of words that make the number after them a label.
const LABELS: WordClasses = classes!(Label Identifier);

/// The words of closed classes next to a number.
pub(super) struct WordsAround<'a> {
    pub text: &'a str,
    pub words: &'a ClassifiedWords,
    /// The bytes of the number.
    pub at: Range<usize>,
}

impl WordsAround<'_> {
    /// The classes of the word before the number, and the text between them.
    fn before(&self) -> Option<(WordClasses, &str)> {
        let from = self.at.start.saturating_sub(MAX_AROUND);
        let word = self.words.within(from..self.at.start).last()?;
        Some((word.classes, self.text.get(word.at.end..self.at.start)?))
    }

    /// Whether the number is an approximation or a limit: "about 800", "800 metres or so".
    pub(super) fn is_hedged(&self) -> bool {
        let text_before = self.text.get(..self.at.start).unwrap_or_default();
        let has_word_before = self.before().is_some_and(|(classes, gap)| {
            classes.has_any(HEDGES) && !gap.contains(|c: char| c.is_alphanumeric())
        });
        let has_word_after = || {
            let word = self.words.within(self.at.end..self.at.end + MAX_AROUND).first()?;
            let gap = self.text.get(self.at.end..word.at.start)?;
            let is_unit = gap.split_whitespace().count() < 2 && !gap.contains([',', '.', ';', '\n']);
            Some(is_unit && word.classes.has(WordClass::Approximation))
        };
        has_word_before
            || text_before.trim_end_matches([' ', '$', '€', '£']).ends_with(HEDGE_SIGNS)
            || has_word_after().unwrap_or_default()
    }

    /// The values that the number limits: "over 300" is true of 340. They are at most by half larger or smaller than
    /// the number, since a limit is named for a value near it. `None` without a word for a limit next to the number.
    pub(super) fn limited_values(&self, number: f64) -> Option<Range<f64>> {
        let is_next = |gap: &str| gap.split_whitespace().count() < 2 && !gap.contains([',', '.', ';', '\n']);
        let is_bound = |word: &&ClassifiedWord| word.classes.has(WordClass::Bound);
        let from = self.at.start.saturating_sub(MAX_AROUND);
        let before = self.words.within(from..self.at.start).last().filter(is_bound);
        let before = before.filter(|word| self.text.get(word.at.end..self.at.start).is_some_and(is_next));
        let after = self.words.within(self.at.end..self.at.end + MAX_AROUND).first().filter(is_bound);
        let after = after.filter(|word| self.text.get(self.at.end..word.at.start).is_some_and(is_next));
        let (smallest, largest) = (number / MAX_LIMIT_RATIO, number * MAX_LIMIT_RATIO);
        Some(match before.or(after)?.value {
            AT_MOST => smallest..number,
            ABOVE => number..largest,
            _ => smallest..largest,
        })
    }

    /// Whether the number is a label and not a quantity: "page 31".
    pub(super) fn is_label(&self) -> bool {
        self.before().is_some_and(|(classes, gap)| {
            classes.has_any(LABELS) && gap.chars().all(|c| c.is_whitespace() || "#:.".contains(c))
        })
    }
}

/// Whether a number at the start of a line is the label of the text after it: "12.", "12)" and "2024:".
pub(super) fn is_list_label(sentence: &str, n: &Number) -> bool {
    let line = sentence.get(..n.start).and_then(|before| before.rsplit('\n').next()).unwrap_or_default();
    let after = sentence.get(n.end..).unwrap_or_default();
    !line.contains(|c: char| c.is_alphanumeric())
        && (n.value < 100.0 && after.starts_with(['.', ')'])
            || after.trim_start_matches('*').starts_with(':'))
}
