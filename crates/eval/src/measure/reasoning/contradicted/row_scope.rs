//! The row that a clause without a named row is about.
//!
//! Principle: list items and labelled lines below a heading or a sentence that names one row are about that row, and
//! so are the clauses after the label of an item that names one. A sentence that names several rows, or compares them,
//! is not about a single row.
//!
//! In: the lines of an answer, and the rows that its clauses name. Out: by clause, the row that it inherits.

use super::exchange::Exchange;
use super::predicates::assertion;
use super::row_values::is_state;
use super::universal_claims::has_exception;
use crate::measure::language::{WordClass, WordClasses, classes};
use crate::measure::reasoning::dates;
use crate::measure::reasoning::dates_and_times::times;
use crate::measure::reasoning::statements::{Clause, contains_words, words_of};
use crate::measure::records::RecordField;

/// Maximum bytes of the label of a line.
const MAX_LABEL: usize = 40;
/// Minimum bytes of a word of another row that is compared.
const MIN_WORD: usize = 4;

/// Classes of words in clauses with a limit or a difference.
const BOUNDS: WordClasses = classes!(Bound Increment);

/// The rows of a table that a clause names.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Named {
    None,
    One(usize),
    Several,
}

/// Whether a clause compares a row with others, or gives a range of times.
pub(super) fn compares(clause: &Clause<'_>) -> bool {
    let is_span = || clause.has("from") && clause.has("to") && !times(&clause.words).is_empty();
    clause.classes.has(WordClass::Comparison) || is_span()
}

/// Whether a clause gives a limit of a value or a difference to another one, or compares a row with others.
pub(super) fn measures(clause: &Clause<'_>) -> bool {
    clause.classes.has_any(BOUNDS) || compares(clause)
}

/// A line of the answer.
#[derive(Clone, Copy, PartialEq)]
struct AnswerLine {
    /// The byte position in the answer.
    start: usize,
    /// The number of bytes of white space at the beginning.
    indent: usize,
    /// Whether the line is an item of a list, a row of a table, or a label with a value.
    is_item: bool,
}

/// A line and the row that it names.
type LineWithRow = (AnswerLine, usize);

/// By clause, the row of the line or list to which a clause without a named row belongs.
pub(super) fn inherited_rows(exchange: &Exchange<'_>, named: &[Named]) -> Vec<Option<usize>> {
    let clauses = &exchange.clauses;
    let mut out = vec![None; clauses.len()];
    // The row of the sentence above the list, and of the item above, each with its line.
    let (mut heading_row, mut item): (Option<LineWithRow>, Option<LineWithRow>) = (None, None);
    let mut from = 0;
    while let Some(first) = clauses.get(from) {
        let is_same = |clause: &&Clause<'_>| std::ptr::eq(clause.sentence, first.sentence);
        let to = from + clauses.iter().skip(from).take_while(is_same).count();
        let Some(line) = line_of(exchange.answer, first.sentence) else { return out };
        let rows = named.get(from..to).unwrap_or_default();
        let is_comparison =
            clauses.iter().take(to).skip(from).any(|clause| compares(clause) || has_exception(clause));
        match (only_row(rows), rows.iter().all(|named| *named == Named::None)) {
            // An item that names a row; if it begins with the name as a label, the other clauses are about the row.
            (Some(row), _) if line.is_item && !is_comparison => {
                let is_label = rows.first() == Some(&Named::One(row));
                let later_clauses = out.get_mut(from + 1..to).unwrap_or_default();
                later_clauses.iter_mut().zip(rows.iter().skip(1)).for_each(|(slot, named)| {
                    *slot = (is_label && *named == Named::None).then_some(row);
                });
                item = Some((line, row));
            }
            (Some(row), _) if !is_comparison => (heading_row, item) = (Some((line, row)), None),
            (None, true) if line.is_item && !is_comparison => {
                let is_within = |(item_line, _): &LineWithRow| {
                    line.start == item_line.start || line.indent > item_line.indent
                };
                let row = item.filter(is_within).or(heading_row).map(|(_, row)| row);
                out.get_mut(from..to).into_iter().flatten().for_each(|slot| *slot = row);
            }
            _ if line.is_item => item = None,
            _ => (heading_row, item) = (None, None),
        }
        from = to;
    }
    out
}

/// The only row that the clauses name; `None` if they name several.
fn only_row(named: &[Named]) -> Option<usize> {
    let mut rows = named.iter().filter(|named| **named != Named::None);
    let first = rows.next()?;
    match first {
        Named::One(row) if rows.all(|other| other == first) => Some(*row),
        _ => None,
    }
}

/// The line in which a part of the answer begins.
fn line_of(answer: &str, part: &str) -> Option<AnswerLine> {
    let at = part.as_ptr().addr().checked_sub(answer.as_ptr().addr())?;
    let start = answer.get(..at)?.rfind('\n').map_or(0, |end| end + 1);
    let line = answer.get(start..)?.lines().next()?;
    let text = line.trim_start();
    let number = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_numbered = number.len() < text.len() && number.starts_with(['.', ')']);
    let is_bulleted = text.starts_with(['•', '|', '–']) || text.starts_with("- ") || text.starts_with("* ");
    let labelled_value = text
        .split_once(':')
        .filter(|(label, value)| label.len() <= MAX_LABEL && value.chars().any(char::is_alphanumeric));
    let is_item = is_numbered || is_bulleted || labelled_value.is_some();
    Some(AnswerLine { start, indent: line.len() - text.len(), is_item })
}

/// Whether a cell has a value of its row and not a name: a number, a date, a code or a state.
pub(super) fn is_value(cell: &RecordField) -> bool {
    cell.text().is_none_or(|text| text.contains(|c: char| c.is_ascii_digit())) || is_state(cell)
}

/// Whether the sentence of a clause may be about another row: it has a word of that row that this row does not have.
pub(super) fn may_be_about_other(
    clause: &Clause<'_>,
    other: &[&RecordField],
    row: &[&RecordField],
    cell: &RecordField,
) -> bool {
    let sentence_words = words_of(clause.sentence);
    let is_told = |field: &&&RecordField| {
        field.value != cell.value
            && field.text().is_some_and(|text| assertion(text).is_none())
            && !is_state(field)
    };
    let is_date = |field: &&RecordField| dates::all(field.shown()).next().is_some();
    let words = other.iter().filter(is_told).filter(|field| !is_date(field));
    let words = words.flat_map(|field| field.shown().split(|c: char| !c.is_alphanumeric()));
    let row_has = |word: &str| row.iter().filter_map(|field| field.text()).any(|text| text.contains(word));
    words.filter(|word| word.len() >= MIN_WORD && word.starts_with(char::is_alphabetic)).any(|word| {
        let word = word.to_lowercase();
        contains_words(&sentence_words, &word) && !row_has(&word)
    })
}
