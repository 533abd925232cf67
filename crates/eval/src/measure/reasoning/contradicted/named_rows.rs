//! The rows of results that an answer or a request may name.
//!
//! In: the results before an answer, and the words of a text. Out: the lists of results, and the results of one tool
//! for several things, each as a table of rows with the names that the text may contain. Most texts name no row of most
//! tables, so a cheap test of the words excludes these tables.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::exchange::Exchange;
use super::predicates::assertion;
use super::row_values::is_clock;
use super::sources::ResultSource;
use crate::measure::language::names::names_identifier;
use crate::measure::numbers::has_digit;
use crate::measure::reasoning::dates;
use crate::measure::reasoning::statements::{Clause, contains_words, words_of};
use crate::measure::records::{KeyFact, KeyName, Record, RecordField, Records};

/// Maximum tables of the results of one run.
const MAX_TABLES: usize = 32;
/// Maximum rows of a table.
const MAX_ROWS: usize = 100;
/// Maximum cells of a row.
const MAX_CELLS: usize = 24;
/// Maximum levels of outer records that are searched for rows.
const MAX_LEVELS: usize = 8;
/// Maximum bytes of a word that is looked up; longer words are assumed to occur.
const MAX_WORD: usize = 32;
/// Approximate bytes of a word with the space after it.
const BYTES_PER_WORD: usize = 6;
/// Minimum bytes of a common word in the request that names a row.
const MIN_COMMON_NAME: usize = 4;
/// Minimum characters of a value that names a row.
const MIN_NAME: usize = 3;

/// Whether a key that ends in this word has names of rows as its values.
fn is_name_key(word: &str) -> bool {
    matches!(word, "name" | "title" | "label") || names_identifier(word)
}

/// A name of a row.
pub(super) struct RowName {
    /// The name in lower case.
    pub(super) words: String,
    /// The original spelling of a name that is a single word without digits. A text must have this spelling, since the
    /// word may be a common one: "Build", but not "the build".
    spelling: Option<String>,
}

impl RowName {
    /// Whether a text, given unchanged and as words in lower case, has the name.
    pub(super) fn is_in(&self, text: &str, words: &str) -> bool {
        let has_spelling =
            |word: &String| text.contains(word.as_str()) && word.starts_with(char::is_uppercase);
        let has_genitive = || words.contains("'s ") && contains_words(words, &format!("{}'s", self.words));
        (contains_words(words, &self.words) || has_genitive())
            && self.spelling.as_ref().is_none_or(has_spelling)
    }
}

/// One row of a table.
pub(super) struct NamedRow<'a> {
    pub(super) source: &'a ResultSource<'a>,
    /// The index of the row among the records of the source.
    pub(super) at: usize,
    pub(super) record: &'a Record,
    /// The names of the row that may be in the words for which the table was built.
    pub(super) names: Vec<RowName>,
    /// The fields of the row and of the records in it.
    pub(super) cells: Vec<&'a RecordField>,
}

impl<'a> NamedRow<'a> {
    /// A row without names and cells.
    fn new(source: &'a ResultSource<'a>, at: usize, record: &'a Record) -> NamedRow<'a> {
        NamedRow { source, at, record, names: Vec::new(), cells: Vec::new() }
    }

    /// Adds fields up to the maximum number of cells.
    fn add_cells(&mut self, fields: &'a [RecordField]) {
        self.cells.extend(fields.iter().take(MAX_CELLS - self.cells.len().min(MAX_CELLS)));
    }

    /// The fields of the records in the row that may name the row.
    fn child_names(&self) -> impl Iterator<Item = &'a RecordField> {
        let row_field_count = self.record.fields.len().min(MAX_CELLS);
        self.cells.iter().copied().skip(row_field_count).filter(|field| is_child_name(field))
    }

    /// Accepts a name in any spelling if the request has it: "what does the lamp cost?"
    fn accept_names_of_request(&mut self, task_words: &str) {
        for name in &mut self.names {
            if name.words.len() >= MIN_COMMON_NAME && contains_words(task_words, &name.words) {
                name.spelling = None;
            }
        }
    }

    /// Whether the sentence of a clause has one of the names, as in the words of the clause.
    pub(super) fn is_named_in(&self, clause: &Clause<'_>) -> bool {
        self.has_name_in(clause.sentence, &clause.words)
    }

    /// Whether a text, given unchanged and as words in lower case, has one of the names.
    pub(super) fn has_name_in(&self, text: &str, words: &str) -> bool {
        self.names.iter().any(|name| name.is_in(text, words))
    }

    /// The cells of the column of `cell`.
    pub(super) fn column(&self, cell: &RecordField) -> impl Iterator<Item = &'a RecordField> {
        self.cells.iter().copied().filter(|field| field.name == cell.name)
    }
}

/// The tables of the results with rows that the words may name; `None` beyond the work budget.
pub(super) fn tables<'e>(exchange: &'e Exchange<'_>, words: &str) -> Option<Vec<Vec<NamedRow<'e>>>> {
    let words = &WordSet::new(words);
    let mut tables: Vec<Vec<NamedRow<'e>>> = Vec::new();
    let mut by_tool: BTreeMap<&str, Vec<(&ResultSource<'_>, &Records)>> = BTreeMap::new();
    for source in &exchange.sources.structured {
        let Some(parsed) = &source.parsed.0 else { continue };
        exchange.spends(1 + parsed.records.len() / 4).then_some(())?;
        tables.extend(named_lists(source, parsed, words));
        if parsed.records.first().is_some_and(|first| first.list.is_none()) {
            by_tool.entry(source.call.name.trim()).or_default().push((source, parsed));
        }
    }
    for rows in &mut tables {
        add_names(rows, words, is_named_by_position);
        add_child_names(rows, words);
    }
    tables.extend(by_tool.into_values().filter_map(|results| tool_result_rows(&results, words)));
    tables.iter_mut().flatten().for_each(|row| row.accept_names_of_request(exchange.task_words()));
    tables.retain(|rows| rows.len() > 1 && rows.iter().any(|row| !row.names.is_empty()));
    tables.truncate(MAX_TABLES);
    Some(tables)
}

/// The lists of a result with a row that the words may name.
fn named_lists<'e>(
    source: &'e ResultSource<'_>,
    parsed: &'e Records,
    words: &WordSet<'_>,
) -> Vec<Vec<NamedRow<'e>>> {
    let mut named = vec![false; parsed.lists.len()];
    let has_child_names = parsed.may_have_key(names_child);
    for record in &parsed.records {
        if let Some(is_named) = record.list.and_then(|list| named.get_mut(list)) {
            *is_named = *is_named || may_be_named(record, words);
        }
        if has_child_names
            && record.parent.is_some()
            && record.fields.iter().any(|f| is_child_name(f) && may_be_in(f, words))
        {
            let ancestors =
                std::iter::successors(record.parent.and_then(|at| parsed.records.get(at)), |ancestor| {
                    ancestor.parent.and_then(|at| parsed.records.get(at))
                });
            let lists = ancestors.take(MAX_LEVELS).filter_map(|ancestor| ancestor.list);
            lists.for_each(|list| named.get_mut(list).into_iter().for_each(|is_named| *is_named = true));
        }
    }
    if !named.contains(&true) {
        return Vec::new();
    }
    // By list, its rows by their index among the records.
    let mut lists: BTreeMap<usize, BTreeMap<usize, NamedRow<'e>>> = BTreeMap::new();
    for (at, record) in parsed.records.iter().enumerate() {
        let mut current = Some(at);
        for _ in 0..MAX_LEVELS {
            let Some((index, ancestor)) = current.and_then(|i| Some((i, parsed.records.get(i)?))) else {
                break;
            };
            let list = ancestor.list.filter(|list| named.get(*list) == Some(&true));
            if let Some(rows) = list.map(|list| lists.entry(list).or_default())
                && (rows.len() < MAX_ROWS || rows.contains_key(&index))
            {
                rows.entry(index)
                    .or_insert_with(|| NamedRow::new(source, index, ancestor))
                    .add_cells(&record.fields);
            }
            current = ancestor.parent;
        }
    }
    lists.into_values().map(|rows| rows.into_values().collect()).collect()
}

/// The results of one tool as rows, if the words may name one of them; of several results on one thing, only the
/// latest.
fn tool_result_rows<'e>(
    results: &[(&'e ResultSource<'_>, &'e Records)],
    words: &WordSet<'_>,
) -> Option<Vec<NamedRow<'e>>> {
    let first = |(_, parsed): &(&'e ResultSource<'_>, &'e Records)| parsed.records.first();
    let may_be_named = |result| first(result).is_some_and(|record| may_be_named(record, words));
    if results.len() < 2 || !results.iter().any(may_be_named) {
        return None;
    }
    let rows = results.iter().filter_map(|(source, parsed)| {
        let mut row = NamedRow::new(source, 0, parsed.records.first()?);
        parsed.records.iter().for_each(|record| row.add_cells(&record.fields));
        Some(row)
    });
    let mut rows: Vec<NamedRow<'e>> = rows.collect();
    let passed = passed_keys(rows.first()?);
    let is_key = |at: usize, field: &RecordField| is_named_by_key(at, field) || passed.contains(&field.name);
    add_names(&mut rows, words, is_key);
    let mut latest: Vec<NamedRow<'e>> = Vec::with_capacity(rows.len());
    for row in rows.into_iter().rev() {
        if latest.iter().all(|later| !is_same_thing(later.record, row.record, is_key)) {
            latest.push(row);
        }
    }
    Some(latest)
}

/// The keys of those texts of a result that the call also passed as arguments: they name the thing that the result is
/// about.
fn passed_keys(row: &NamedRow<'_>) -> Vec<KeyName> {
    let arguments = row.source.call.parsed.as_deref().and_then(serde_json::Value::as_object);
    let is_passed = |field: &&RecordField| {
        let mut values = arguments.into_iter().flat_map(|map| map.values()).take(MAX_CELLS);
        field.is_text() && values.any(|v| v.as_str() == Some(field.shown()))
    };
    row.record.fields.iter().take(MAX_CELLS).filter(is_passed).map(|field| field.name.clone()).collect()
}

/// Whether two records have the same values in the columns that name rows by their keys.
fn is_same_thing(record: &Record, other: &Record, is_key: impl Fn(usize, &RecordField) -> bool) -> bool {
    let keys = |record: &'_ Record| -> Vec<RecordField> {
        record.fields.iter().filter(|field| is_key(0, field)).cloned().collect()
    };
    keys(record) == keys(other)
}

/// Whether the words may have a name of the record.
fn may_be_named(record: &Record, words: &WordSet<'_>) -> bool {
    columns(record, is_named_by_position).any(|field| may_be_in(field, words))
}

/// The words of a text in lower case, with a filter that quickly excludes most other words. A run is a sequence of
/// letters and digits, see [`runs`].
struct WordSet<'t> {
    text: &'t str,
    /// The runs of the text, computed when a word is not excluded by `has_hash`.
    runs: OnceCell<HashSet<&'t [u8], foldhash::fast::RandomState>>,
    /// By byte, whether a run begins with the byte.
    is_first_byte: [bool; 256],
    /// By [`hash`], whether a run with the hash occurs.
    has_hash: [bool; 256],
}

/// A hash of the first byte, the last byte and the length of a run.
fn hash(run: &[u8]) -> usize {
    let lowercase_byte = |end: Option<&u8>| end.map_or(0, u8::to_ascii_lowercase);
    let ends =
        lowercase_byte(run.first()).wrapping_mul(9).wrapping_add(lowercase_byte(run.last()).wrapping_mul(37));
    usize::from(ends.wrapping_add(run.len() as u8))
}

/// The ASCII characters that are neither letters nor digits.
const IS_SEPARATOR: [bool; 256] = {
    let mut is_separator = [false; 256];
    let mut byte = 0u8;
    while byte.is_ascii() {
        is_separator[byte as usize] = !byte.is_ascii_alphanumeric();
        byte += 1;
    }
    is_separator
};

/// The runs of bytes in a text between ASCII characters that are neither letters nor digits.
fn runs(text: &str) -> impl Iterator<Item = &[u8]> {
    let runs = text.as_bytes().split(|byte| IS_SEPARATOR[usize::from(*byte)]);
    runs.filter(|run| !run.is_empty())
}

impl<'t> WordSet<'t> {
    fn new(text: &'t str) -> WordSet<'t> {
        let mut set =
            WordSet { text, runs: OnceCell::new(), is_first_byte: [false; 256], has_hash: [false; 256] };
        for run in runs(text) {
            set.has_hash[hash(run)] = true;
            run.first().into_iter().for_each(|first| set.is_first_byte[usize::from(*first)] = true);
        }
        set
    }

    /// Whether a run in lower case occurs.
    fn has_run(&self, run: &[u8]) -> bool {
        let run_set = self.runs.get_or_init(|| {
            let words = self.text.len() / BYTES_PER_WORD;
            let mut run_set =
                HashSet::with_capacity_and_hasher(words, foldhash::fast::RandomState::default());
            run_set.extend(runs(self.text));
            run_set
        });
        run_set.contains(run)
    }

    /// Whether the words may have a name, possibly as a genitive.
    fn may_have(&self, name: &RowName) -> bool {
        contains_words(self.text, &name.words) || self.text.contains("'s ")
    }
}

/// Whether the words may have the value of a field: they have each run of ASCII letters and digits in it.
fn may_be_in(field: &RecordField, words: &WordSet<'_>) -> bool {
    let runs = || runs(field.shown()).filter(|run| run.is_ascii());
    let occurs = |run: &[u8]| {
        let mut lower = [0; MAX_WORD];
        let Some(lower) = lower.get_mut(..run.len()) else { return true };
        lower.copy_from_slice(run);
        lower.make_ascii_lowercase();
        words.has_run(lower)
    };
    // The first byte excludes most short values.
    let shown = field.shown();
    let first = shown.as_bytes().first().filter(|first| first.is_ascii_alphanumeric());
    let may_begin = first.is_none_or(|first| words.is_first_byte[usize::from(first.to_ascii_lowercase())]);
    let may_occur = may_begin || shown.len() > MAX_WORD || !shown.is_ascii();
    may_occur && runs().all(|run| words.has_hash[hash(run)]) && runs().all(occurs)
}

/// Whether a field of a record in a row may name the row, such as the `friendly_name` among its attributes or the
/// names of ordered items.
fn is_child_name(field: &RecordField) -> bool {
    field.is_text() && names_child(&field.name)
}

/// Whether a key ends in a word for a name.
fn names_child(name: &KeyName) -> bool {
    let ends_in_name =
        |words: &[String]| matches!(words.last().map(String::as_str), Some("name" | "title" | "label"));
    name.has_fact(KeyFact::ChildName, ends_in_name)
}

/// Adds the names of the records in each row to the row.
fn add_child_names(rows: &mut [NamedRow<'_>], words: &WordSet<'_>) {
    let Some(first) = rows.first() else { return };
    let columns: BTreeSet<&[String]> = first.child_names().map(|field| &**field.name).collect();
    for column in columns {
        let has_name =
            |row: &NamedRow<'_>| row.child_names().any(|field| **field.name == *column && is_name(field));
        // A value that several rows have names none of them.
        let column_fields =
            rows.iter().flat_map(NamedRow::child_names).filter(|field| **field.name == *column);
        let values: Vec<&str> = column_fields.map(RecordField::shown).collect();
        if !rows.iter().all(has_name) || values.iter().collect::<HashSet<_>>().len() < values.len() {
            continue;
        }
        for row in rows.iter_mut() {
            let named = row.child_names().filter(|field| **field.name == *column && is_name(field));
            let names = named.filter(|field| may_be_in(field, words)).map(name_of);
            let names: Vec<RowName> = names.filter(|name| words.may_have(name)).collect();
            row.names.extend(names);
        }
    }
}

/// Whether the key of a field is one for names of rows.
fn is_named_by_key(_: usize, field: &RecordField) -> bool {
    field.name.has_fact(KeyFact::RowName, |words| words.last().is_some_and(|word| is_name_key(word)))
}

/// Whether a field names its row: by its key, or because it is the first text of the record.
/// `text_count` is the number of texts up to the field.
fn is_named_by_position(text_count: usize, field: &RecordField) -> bool {
    text_count == 1 && field.is_text() || is_named_by_key(text_count, field)
}

/// The fields of a record that satisfy `is_column`, which is called with the number of texts up to the field.
fn columns(
    record: &Record,
    is_column: impl Fn(usize, &RecordField) -> bool,
) -> impl Iterator<Item = &RecordField> {
    let mut texts = 0;
    record.fields.iter().filter(move |field| {
        texts += usize::from(field.is_text());
        is_column(texts, field)
    })
}

/// The field of a record in the column of `column`.
fn cell<'r>(record: &'r Record, column: &RecordField) -> Option<&'r RecordField> {
    record.fields.iter().find(|field| field.name == column.name)
}

/// Adds to each row its names that the words may have, from the columns by which the rows can be distinguished.
fn add_names(
    rows: &mut [NamedRow<'_>],
    words: &WordSet<'_>,
    is_column: impl Fn(usize, &RecordField) -> bool,
) {
    let Some(first) = rows.first().map(|row| row.record) else { return };
    for column in columns(first, is_column) {
        let cells: Vec<&RecordField> = rows.iter().filter_map(|row| cell(row.record, column)).collect();
        let is_distinguishing =
            cells.len() == rows.len() && cells.iter().any(|cell| cell.value != column.value);
        if is_distinguishing
            && cells.iter().any(|cell| may_be_in(cell, words))
            && cells.iter().all(|cell| is_name(cell))
        {
            for (row, cell) in rows.iter_mut().zip(&cells) {
                let name = may_be_in(cell, words).then(|| name_of(cell));
                row.names.extend(name.filter(|name| words.may_have(name)));
            }
        }
    }
}

/// Whether the value of a field may be a name: it is not a time or a state, and not short.
fn is_name(field: &RecordField) -> bool {
    let shown = field.shown();
    let is_short = || shown.trim_matches(|c: char| !c.is_alphanumeric()).len() < MIN_NAME;
    let is_date_or_time = || is_clock(shown) || has_digit(shown) && dates::all(shown).next().is_some();
    let is_state = || field.text().is_some_and(|text| assertion(text).is_some());
    let is_column = field.is_text() || is_named_by_key(0, field);
    is_column && !is_short() && !is_date_or_time() && !is_state()
}

/// The name that a field gives its row.
fn name_of(field: &RecordField) -> RowName {
    let name = words_of(field.shown()).trim().to_owned();
    let is_word = !name.contains(|c: char| c == ' ' || c.is_ascii_digit());
    RowName { words: name, spelling: is_word.then(|| field.shown().to_owned()) }
}
