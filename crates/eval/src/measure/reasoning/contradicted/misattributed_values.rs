//! Values that belong to another row: "W-1001 arrives on 9 December", where the result has that date for W-1002.
//!
//! Principle: a statement that names one row of a result and gives a value of a column gives the value of that row.
//! The value may be in a list below the name ([`super::row_scope`]). It is a contradiction if only other rows have the
//! value in that column, the named row has a different one, which the answer does not give, and no other text that the
//! model read has the value. The rows are those of a list, or the results of one tool for several things
//! ([`super::named_rows`]).
//!
//! In: the clauses of an answer, and the tables of results. Out: one contradiction.

use super::exchange::{Exchange, ExchangeFindings};
use super::named_rows::{NamedRow, RowName, tables};
use super::predicates::follows_verb;
use super::row_scope::{Named, inherited_rows, is_value, may_be_about_other, measures};
use super::row_values::{RowStatement, has_value, is_enumerated, is_state};
use super::sources::{ResultSource, ResultSources};
use super::universal_claims::has_exception;
use crate::measure::language::Language;
use crate::measure::numbers;
use crate::measure::reasoning::answer::sentences;
use crate::measure::reasoning::arithmetic::{converts, pair_gives};
use crate::measure::reasoning::statements::{Clause, contains_words, words_of};
use crate::measure::reasoning::time_arithmetic::EvidenceMoments;
use crate::measure::records::RecordField;

/// Maximum bytes of a text that is only a question.
const MAX_QUESTION: usize = 400;
/// Beginnings of clauses that add a place or a time to the previous clause.
const ADDITIONS: [&str; 6] = [" on ", " at ", " in ", " for ", " with ", " by "];

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let may_state_value = |clause: &&Clause<'_>| {
        !clause.negated && !clause.modal && !has_exception(clause) && !measures(clause)
    };
    let stating_clauses: Vec<(usize, &Clause<'_>)> =
        exchange.clauses.iter().enumerate().filter(|(_, clause)| may_state_value(clause)).collect();
    if stating_clauses.is_empty() {
        return;
    }
    let answer_words = exchange.clauses.iter().map(|clause| clause.words.as_str()).collect::<String>();
    let Some(tables) = tables(exchange, &answer_words) else { return };
    for table in &tables {
        if !exchange.spends(exchange.clauses.len() * table.len()) {
            return;
        }
        let rows_with_names: Vec<(usize, &NamedRow<'_>)> =
            table.iter().enumerate().filter(|(_, row)| !row.names.is_empty()).collect();
        let named = exchange.clauses.iter().map(|clause| {
            let mut rows = rows_with_names.iter().filter(|(_, row)| row.is_named_in(clause));
            match (rows.next(), rows.next()) {
                (None, _) => Named::None,
                (Some((row, _)), None) => Named::One(*row),
                (Some(_), Some(_)) => Named::Several,
            }
        });
        let named: Vec<Named> = named.collect();
        if named.iter().all(|named| *named == Named::None) {
            continue;
        }
        let inherited = inherited_rows(exchange, &named);
        let comparison = Comparison { exchange, table, named, inherited };
        for &(nth, clause) in &stating_clauses {
            let row = match (comparison.named.get(nth), comparison.inherited.get(nth)) {
                (Some(Named::One(row)), _) | (_, Some(Some(row))) => row,
                _ => continue,
            };
            findings.examined = true;
            if !exchange.spends(table.len() * 2) {
                return;
            }
            if let Some((row_field, source)) = comparison.other_row_value(nth, clause, *row) {
                let returned = format!("{}: {} for it", row_field.name.join(" "), row_field.shown());
                findings.contradicts(&returned, source.call, clause.sentence);
                return;
            }
        }
    }
}

/// The clauses of an answer, compared with one table.
struct Comparison<'e, 'a> {
    exchange: &'e Exchange<'a>,
    table: &'e [NamedRow<'e>],
    /// The rows that each clause of the answer names.
    named: Vec<Named>,
    /// By clause, the row that a clause without a named row is about.
    inherited: Vec<Option<usize>>,
}

impl<'e> Comparison<'e, '_> {
    /// The field of the named row `at` with its source, if the clause with the index `nth` gives the value of another
    /// row in the column of the field.
    fn other_row_value(
        &self,
        nth: usize,
        clause: &Clause<'_>,
        at: usize,
    ) -> Option<(&'e RecordField, &'e ResultSource<'e>)> {
        let row = self.table.get(at)?;
        let words = self.with_fragment(clause);
        let statement = RowStatement::new(&words);
        let others = self.table.iter().enumerate().filter(|(other, _)| *other != at);
        let is_inherited = self.named.get(nth) == Some(&Named::None);
        let statement = &statement;
        let language = self.exchange.language;
        let stated = others.flat_map(|(_, other)| {
            let cells = other.cells.iter().filter(|cell| statement.gives(cell));
            cells.filter(move |cell| is_meant(clause, cell, row, language)).filter(move |cell| {
                !is_inherited || is_value(cell) && !may_be_about_other(clause, &other.cells, &row.cells, cell)
            })
        });
        for cell in stated {
            let Some(row_field) = row.column(cell).next() else { continue };
            let is_value_of_row = |field: &RecordField| statement.gives(field) || statement.has_day(field);
            if row.cells.iter().any(|row_cell| has_value(row_cell, cell))
                || row.column(cell).any(is_value_of_row)
            {
                continue;
            }
            if self.has_value_per_row(clause, &words, cell, is_inherited.then_some(at))
                && !self.answer_has_value_of_row(row, at, cell)
                && row.source.is_current(row.at)
            {
                if !self.exchange.spends_numbers() {
                    return None;
                }
                if self.is_in_one_column(cell, row) && !self.is_derived(cell, row) {
                    return Some((row_field, row.source));
                }
            }
        }
        None
    }

    /// The words of a clause, with those of the next clause if that only adds a place or a time: "W-1001 is next, on 9
    /// December".
    fn with_fragment(&self, clause: &Clause<'_>) -> String {
        let mut later_clauses = self
            .exchange
            .clauses
            .iter()
            .zip(&self.named)
            .skip_while(|(c, _)| !std::ptr::eq(*c, clause))
            .skip(1);
        let fragment = later_clauses.next().filter(|(next, named)| {
            let adds = ADDITIONS.iter().any(|word| next.words.starts_with(word));
            std::ptr::eq(next.sentence, clause.sentence)
                && **named == Named::None
                && adds
                && !next.modal
                && !next.negated
        });
        fragment.map_or_else(
            || clause.words.clone(),
            |(next, _)| format!("{}{}", clause.words, next.words.trim_start()),
        )
    }

    /// Whether each clause of the sentence that names a row names only one and gives a value of the column: not "A and
    /// B work in X and Y".
    fn has_value_per_row(
        &self,
        clause: &Clause<'_>,
        words: &str,
        cell: &RecordField,
        label: Option<usize>,
    ) -> bool {
        let clauses = self.exchange.clauses.iter().zip(&self.named);
        let sentence_clauses = clauses.filter(|(other, _)| std::ptr::eq(other.sentence, clause.sentence));
        // A clause that is only the label of the lines below has no value itself.
        let is_label = |named: &Named| label.is_some_and(|row| *named == Named::One(row));
        sentence_clauses.filter(|(_, named)| **named != Named::None && !is_label(named)).all(
            |(other, named)| {
                let statement =
                    RowStatement::new(if std::ptr::eq(other, clause) { words } else { &other.words });
                let gives_value =
                    || self.table.iter().flat_map(|row| row.column(cell)).any(|value| statement.gives(value));
                *named != Named::Several && gives_value()
            },
        )
    }

    /// Whether the answer gives the value of the named row in a clause that is not about another row.
    fn answer_has_value_of_row(&self, row: &NamedRow<'_>, at: usize, cell: &RecordField) -> bool {
        let named = self.named.iter().zip(&self.inherited);
        self.exchange.clauses.iter().zip(named).any(|(clause, (named, inherited))| {
            let is_other = |row: &usize| *row != at;
            let is_about_other_row = matches!(named, Named::One(other) if is_other(other))
                || inherited.as_ref().is_some_and(is_other);
            let statement = RowStatement::new(&clause.words);
            !is_about_other_row && row.column(cell).any(|value| statement.gives(value))
        })
    }

    /// Whether the value occurs only in its column of this table.
    fn is_in_one_column(&self, cell: &RecordField, row: &NamedRow<'_>) -> bool {
        let sources = &self.exchange.sources;
        let is_same = |field: &&RecordField| has_value(field, cell);
        let field_count = sources.records().flat_map(|(.., record)| &record.fields).filter(is_same).count();
        let occurrences =
            self.table.iter().flat_map(|row| row.column(cell)).filter(|field| has_value(field, cell));
        // Neither a question about a state nor a text about the possible states asserts the state of the row.
        let is_assertion = |text: &str| !text.contains('?') || text.len() > MAX_QUESTION;
        let gives = |text: &str| RowStatement::from_text(text).gives(cell);
        let names = |text: &str| row.names.iter().any(|name| contains_words(&words_of(text), &name.words));
        let asserts = |text: &str| match is_enumerated(cell) {
            true => {
                gives(text) && {
                    let parts = sentences(text);
                    let mut parts = parts.into_iter().filter_map(|(start, end)| text.get(start..end));
                    parts.any(|part| !part.contains('?') && names(part) && gives(part))
                }
            }
            false => (!is_state(cell) || is_assertion(text)) && gives(text),
        };
        field_count == occurrences.count() && !unstructured(sources).any(asserts)
    }

    /// Whether the value of a cell follows from the numbers, dates and times of the row and of the request.
    fn is_derived(&self, cell: &RecordField, row: &NamedRow<'_>) -> bool {
        let Some(value) = cell.number() else {
            let mut moments = EvidenceMoments::default();
            row.cells
                .iter()
                .map(|cell| cell.shown())
                .chain([self.exchange.task])
                .for_each(|t| moments.read(t));
            return moments.supports_text(cell.shown());
        };
        let request_numbers = numbers::all(self.exchange.task).into_iter().map(|n| n.value);
        let mut operands: Vec<f64> =
            row.cells.iter().filter_map(|cell| cell.number()).chain(request_numbers).collect();
        operands.sort_by(f64::total_cmp);
        let tolerance = value.abs() * 1e-6;
        converts(&operands, value, tolerance, None)
            || operands.iter().any(|a| pair_gives(&operands, *a, value, tolerance, true))
    }
}

/// The texts of [`ResultSources::unstructured`].
pub(super) fn unstructured<'s>(sources: &'s ResultSources<'_>) -> impl Iterator<Item = &'s str> {
    sources.unstructured().iter().map(|text| &***text)
}

/// Whether a clause with the value of a cell means that value. A common word means it only with the name of its column,
/// as a state after a verb or shortly before the name of the row, or as a name with a capital.
fn is_meant(clause: &Clause<'_>, cell: &RecordField, row: &NamedRow<'_>, language: Option<Language>) -> bool {
    let shown = cell.shown();
    let is_word = cell.is_text() && shown.chars().all(char::is_alphabetic);
    let is_name = || {
        shown.starts_with(char::is_uppercase) && clause.sentence.split(' ').skip(1).any(|w| w.contains(shown))
    };
    !is_word
        || cell.name.iter().all(|word| clause.has(word))
        || match is_state(cell) || is_enumerated(cell) {
            true => is_predicate(clause, cell.text().unwrap_or_default(), row, language),
            false => is_name(),
        }
}

/// Whether a clause asserts a state of a row: "W-1001 is open", "the open order W-1001", or a cell of a table with the
/// state.
fn is_predicate(clause: &Clause<'_>, state: &str, row: &NamedRow<'_>, language: Option<Language>) -> bool {
    /// Maximum number of words from the state to the name of the row.
    const MAX_DISTANCE: usize = 2;
    let is_close = |name: &RowName| {
        let before = clause.words.split_once(name.words.as_str()).map_or("", |(before, _)| before);
        before.split_whitespace().rev().take(MAX_DISTANCE).any(|word| word == state)
    };
    let is_cell = || {
        let mut cells = clause.sentence.split('|').skip(1);
        cells.any(|cell| words_of(cell).trim() == state)
    };
    let is_after_verb = || language.is_some_and(|language| follows_verb(clause, state, language));
    clause.words.trim() == state || is_cell() || is_after_verb() || row.names.iter().any(is_close)
}
