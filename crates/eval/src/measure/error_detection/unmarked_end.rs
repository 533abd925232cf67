//! Answers that end within a sentence, by the marks of their other sentences.
//!
//! Principle: an author who ends all sentences with a mark ends the last one with a mark as well. An answer of at least
//! three such sentences whose last line ends with a word in lower case, without a mark, is cut off; so is a list whose
//! last item is empty. Offers and closing words are no sentences in this sense ("let me know if you need more"), nor
//! are links, names and values at the end of a line. Items of a list are compared with items, paragraphs with
//! paragraphs.
//!
//! In: an answer in any language. Out: whether it ends within a sentence or an item.

use crate::measure::Memo;
use crate::measure::language::{ReadText, SentenceKind};
use crate::measure::reasoning::answer::sentences;
use crate::measure::reasoning::statements::is_list_item;
use crate::measure::work_budget::BYTES_PER_STEP;

/// Minimum sentences that end with a mark.
const MIN_MARKED: usize = 3;
/// Minimum words of a line that is a sentence, and no heading or name.
const MIN_WORDS: usize = 4;

pub(super) fn ends_within_sentence(text: &str, memo: &Memo) -> bool {
    let mut lines = text.lines().rev().map(str::trim).filter(|line| !line.is_empty());
    let Some(last) = lines.next() else { return false };
    if is_empty_item(last) {
        return lines.next().is_some_and(|line| is_list_item(line) && !is_empty_item(line));
    }
    if !ends_with_word(last) || !memo.budget.spend(1 + text.len() / BYTES_PER_STEP) {
        return false;
    }
    let is_comparable =
        |line: &&str| is_list_item(line) == is_list_item(last) && (is_list_item(line) || is_sentence(line));
    let compared: Vec<&str> = lines.filter(is_comparable).collect();
    let is_marked = |line: &&str| !line.ends_with(char::is_alphanumeric);
    let marked: usize = compared.iter().chain([&last]).map(|line| marked_sentences(line)).sum();
    marked >= MIN_MARKED && compared.iter().all(is_marked) && !is_closing(last, text, memo)
}

/// Whether an item consists of its number or bullet.
fn is_empty_item(line: &str) -> bool {
    is_list_item(line) && !line.contains(' ') && !line.contains(char::is_alphabetic)
}

/// Whether a line is a sentence, and no heading, row of a table or name.
fn is_sentence(line: &str) -> bool {
    !line.starts_with(['#', '|']) && line.split_whitespace().nth(MIN_WORDS - 1).is_some()
        || has_wide_mark(line)
}

/// Whether a line has a mark of a language without spaces.
fn has_wide_mark(line: &str) -> bool {
    line.contains(['。', '！', '？'])
}

/// Whether the last sentence of a line ends with a word in lower case, or in letters without case.
fn ends_with_word(line: &str) -> bool {
    let is_letter = |c: char| c.is_alphabetic() || matches!(c, '-' | '\'' | '’');
    let before = line.trim_end_matches(is_letter);
    let word = line.get(before.len()..).unwrap_or_default();
    let is_word = word.chars().next().is_some_and(|first| first.is_alphabetic() && !first.is_uppercase());
    is_word
        && before.ends_with(|c: char| c.is_whitespace() || matches!(c, '，' | '、' | '。'))
        && last_sentence(line).is_some_and(is_sentence)
}

/// The number of sentences of a line that end with a mark.
fn marked_sentences(line: &str) -> usize {
    let is_marked = |&(start, end): &(usize, usize)| {
        line.get(start..end).is_some_and(|sentence| sentence.ends_with(['.', '!', '?']))
    };
    let is_number = |&&(start, end): &&(usize, usize)| line.get(start..end).is_some_and(is_empty_item);
    let all = sentences(line);
    all.iter().skip_while(is_number).filter(|range| is_marked(range)).count()
        + line.matches(['。', '！', '？']).count()
}

fn last_sentence(line: &str) -> Option<&str> {
    sentences(line).last().and_then(|&(start, end)| line.get(start..end))
}

/// Whether the last sentence of a line is an offer, thanks or another closing, or the language is not known.
fn is_closing(line: &str, text: &str, memo: &Memo) -> bool {
    let analysed = ReadText::new(text, None, memo);
    let part = analysed.part(line);
    let is_padding = |language| {
        part.classified(language, [SentenceKind::Padding]).last().is_none_or(|(_, padding)| padding.is_some())
    };
    part.languages().next().is_none() || part.languages().any(is_padding)
}
