//! Values of another row: "W-1001 arrives on 9 December", where the result has that date for W-1002.
//!
//! Principle: a statement that names one row of a result and gives a value of one of its columns gives the value of that
//! row; what it says of the row may stand in the list below it ([`super::row_scope`]). It is another one's if only other rows have the value in that column, the named row has a different one, which
//! the answer does not give, and nothing else that the model had seen has the value. The rows are those of a list, or
//! the results of one tool for several things.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::all::excepts;
use super::exchange::{Exchange, Outcome};
use super::predicates::{assertion, follows_verb};
use super::row_scope::{Named, inherited, is_value, measures, mentions};
use super::row_values::{Statement, has_value, is_clock, is_state};
use super::sources::{Source, Sources};
use crate::measure::reasoning::arithmetic::{converts, pair_gives};
use crate::measure::reasoning::dates;
use crate::measure::reasoning::moments::Moments;
use crate::measure::reasoning::numbers::{self, has_digit};
use crate::measure::reasoning::records::{Field, Name, Record, Records, Scalar};
use crate::measure::reasoning::statements::{Clause, contains_words, words_of};

/// Most tables of the results of one run, rows of each, and cells of a row.
const MAX_TABLES: usize = 32;
const MAX_ROWS: usize = 100;
const MAX_CELLS: usize = 24;
/// Longest request that only asks.
const MAX_QUESTION: usize = 400;
/// Levels of records above one that are searched for rows.
const MAX_LEVELS: usize = 8;
/// Longer words are not looked up.
const LONGEST_WORD: usize = 32;
/// Shorter values name no row.
const MIN_NAME: usize = 3;
/// Beginnings of clauses that add a place or a time to the one before.
const ADDS: [&str; 6] = [" on ", " at ", " in ", " for ", " with ", " by "];

/// Whether the values of such a key name a row.
fn is_name_key(word: &str) -> bool {
    matches!(
        word,
        "id" | "name" | "title" | "number" | "code" | "sku" | "ref" | "reference" | "key" | "label"
    )
}

/// A name of a row.
pub(super) struct RowName {
    /// In lower case.
    pub(super) words: String,
    /// A word without figures is a name only as it is written: "Build", and not the build.
    written: Option<String>,
}

impl RowName {
    /// Whether a text has the name, given as written and by its words.
    pub(super) fn is_in(&self, written: &str, words: &str) -> bool {
        let is_written =
            |word: &String| written.contains(word.as_str()) && word.starts_with(char::is_uppercase);
        let has_genitive = || words.contains("'s ") && contains_words(words, &format!("{}'s", self.words));
        (contains_words(words, &self.words) || has_genitive()) && self.written.as_ref().is_none_or(is_written)
    }
}

/// One row of a table.
pub(super) struct Row<'a> {
    pub(super) source: &'a Source<'a>,
    /// Its index among the records of the source.
    pub(super) at: usize,
    record: &'a Record,
    /// Those that the words may have for which the table was made.
    pub(super) names: Vec<RowName>,
    /// Its fields, and those of what it contains.
    pub(super) cells: Vec<&'a Field>,
}

impl<'a> Row<'a> {
    fn new(source: &'a Source<'a>, at: usize, record: &'a Record) -> Row<'a> {
        Row { source, at, record, names: Vec::new(), cells: Vec::new() }
    }

    fn add(&mut self, fields: &'a [Field]) {
        self.cells.extend(fields.iter().take(MAX_CELLS - self.cells.len().min(MAX_CELLS)));
    }

    /// The fields of what it contains that may name it.
    fn child_names(&self) -> impl Iterator<Item = &'a Field> {
        let own = self.record.fields.len().min(MAX_CELLS);
        self.cells.iter().copied().skip(own).filter(|field| is_child_name(field))
    }

    pub(super) fn is_named_in(&self, clause: &Clause<'_>) -> bool {
        self.names.iter().any(|name| name.is_in(clause.sentence, &clause.words))
    }

    /// The cells of the column of `cell`.
    pub(super) fn column(&self, cell: &Field) -> impl Iterator<Item = &'a Field> {
        self.cells.iter().copied().filter(|own| own.name == cell.name)
    }
}

pub(super) fn check(exchange: &Exchange<'_>, outcome: &mut Outcome) {
    let states =
        |clause: &&Clause<'_>| !clause.negated && !clause.modal && !excepts(clause) && !measures(clause);
    let stating: Vec<(usize, &Clause<'_>)> =
        exchange.clauses.iter().enumerate().filter(|(_, clause)| states(clause)).collect();
    if stating.is_empty() {
        return;
    }
    let said = exchange.clauses.iter().map(|clause| clause.words.as_str()).collect::<String>();
    let Some(tables) = tables(exchange, &said) else { return };
    for table in &tables {
        if !exchange.spends(exchange.clauses.len() * table.len()) {
            return;
        }
        let with_names: Vec<(usize, &Row<'_>)> =
            table.iter().enumerate().filter(|(_, row)| !row.names.is_empty()).collect();
        let named = exchange.clauses.iter().map(|clause| {
            let mut rows = with_names.iter().filter(|(_, row)| row.is_named_in(clause));
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
        let inherited = inherited(exchange, &named);
        let comparison = Comparison { exchange, table, named, inherited };
        for &(nth, clause) in &stating {
            let row = match (comparison.named.get(nth), comparison.inherited.get(nth)) {
                (Some(Named::One(row)), _) | (_, Some(Some(row))) => row,
                _ => continue,
            };
            outcome.examined = true;
            if !exchange.spends(table.len() * 2) {
                return;
            }
            if let Some((own, call)) = comparison.of_another(nth, clause, *row) {
                let returned = format!("{}: {} for it", own.name.join(" "), own.shown());
                outcome.contradicts(&returned, call.call.name.trim(), Some(call.call.at), clause.sentence);
                return;
            }
        }
    }
}

struct Comparison<'e, 'a> {
    exchange: &'e Exchange<'a>,
    table: &'e [Row<'e>],
    /// By clause of the answer.
    named: Vec<Named>,
    /// By clause that names no row, the one that it speaks of.
    inherited: Vec<Option<usize>>,
}

impl<'e> Comparison<'e, '_> {
    /// The value of the named row in the column of which the clause gives a value of another row.
    fn of_another(&self, nth: usize, clause: &Clause<'_>, at: usize) -> Option<(&'e Field, &'e Source<'e>)> {
        let row = self.table.get(at)?;
        let words = self.with_fragment(clause);
        let said = Statement::of(&words);
        let others = self.table.iter().enumerate().filter(|(other, _)| *other != at);
        let is_inherited = self.named.get(nth) == Some(&Named::None);
        let said = &said;
        let stated = others.flat_map(|(_, other)| {
            let cells = other.cells.iter().filter(|cell| said.gives(cell));
            cells.filter(move |cell| is_meant(clause, cell, row)).filter(move |cell| {
                !is_inherited || is_value(cell) && !mentions(clause, &other.cells, &row.cells, cell)
            })
        });
        for cell in stated {
            let Some(own) = row.column(cell).next() else { continue };
            let is_own = |own: &Field| said.gives(own) || said.has_day(own);
            if row.cells.iter().any(|known| has_value(known, cell)) || row.column(cell).any(is_own) {
                continue;
            }
            if self.is_listed(clause, &words, cell, is_inherited.then_some(at))
                && !self.gives_own(row, at, cell)
                && row.source.is_current(row.at)
            {
                if !self.exchange.spends_numbers() {
                    return None;
                }
                if self.is_only_here(cell) && !self.is_derived(cell, row) {
                    return Some((own, row.source));
                }
            }
        }
        None
    }

    /// The words of a clause, and of one behind it that only adds a place or a time: "W-1001 is next, on 9 December".
    fn with_fragment(&self, clause: &Clause<'_>) -> String {
        let mut behind = self
            .exchange
            .clauses
            .iter()
            .zip(&self.named)
            .skip_while(|(c, _)| !std::ptr::eq(*c, clause))
            .skip(1);
        let fragment = behind.next().filter(|(next, named)| {
            let adds = ADDS.iter().any(|word| next.words.starts_with(word));
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

    /// Whether each clause of the sentence that names a row gives it a value of the column: "A and B work in X and Y"
    /// does not.
    fn is_listed(&self, clause: &Clause<'_>, words: &str, cell: &Field, label: Option<usize>) -> bool {
        let clauses = self.exchange.clauses.iter().zip(&self.named);
        let beside = clauses.filter(|(other, _)| std::ptr::eq(other.sentence, clause.sentence));
        // The label of what is inherited has no value itself.
        let is_label = |named: &Named| label.is_some_and(|row| *named == Named::One(row));
        beside.filter(|(_, named)| **named != Named::None && !is_label(named)).all(|(other, named)| {
            let said = Statement::of(if std::ptr::eq(other, clause) { words } else { &other.words });
            let given = || self.table.iter().flat_map(|row| row.column(cell)).any(|value| said.gives(value));
            *named != Named::Several && given()
        })
    }

    /// Whether the answer gives the row's own value, other than to another row.
    fn gives_own(&self, row: &Row<'_>, at: usize, cell: &Field) -> bool {
        let named = self.named.iter().zip(&self.inherited);
        self.exchange.clauses.iter().zip(named).any(|(clause, (named, inherited))| {
            let is_other = |row: &usize| *row != at;
            let to_another = matches!(named, Named::One(other) if is_other(other))
                || inherited.as_ref().is_some_and(is_other);
            let said = Statement::of(&clause.words);
            !to_another && row.column(cell).any(|own| said.gives(own))
        })
    }

    /// Whether the value is nowhere but in its column of this table.
    fn is_only_here(&self, cell: &Field) -> bool {
        let sources = &self.exchange.sources;
        let is_same = |field: &&Field| has_value(field, cell);
        let all = sources.records().flat_map(|(.., record)| &record.fields).filter(is_same).count();
        let here = self.table.iter().flat_map(|row| row.column(cell)).filter(|field| has_value(field, cell));
        // A question whether something is in a state does not say so.
        let tells = |text: &&str| !is_state(cell) || !text.contains('?') || text.len() > MAX_QUESTION;
        all == here.count()
            && !told(sources).filter(tells).any(|text| Statement::of(&words_of(text)).gives(cell))
    }

    /// Whether a number, a date or a time follows from those of the row and of the request.
    fn is_derived(&self, cell: &Field, row: &Row<'_>) -> bool {
        let Some(value) = cell.number() else {
            let mut moments = Moments::default();
            row.cells
                .iter()
                .map(|cell| cell.shown())
                .chain([self.exchange.task])
                .for_each(|t| moments.read(t));
            return moments.give_text(cell.shown());
        };
        let of_request = numbers::all(self.exchange.task).into_iter().map(|n| n.value);
        let mut pool: Vec<f64> =
            row.cells.iter().filter_map(|cell| cell.number()).chain(of_request).collect();
        pool.sort_by(f64::total_cmp);
        let tolerance = value.abs() * 1e-6;
        converts(&pool, value, tolerance, None)
            || pool.iter().any(|a| pair_gives(&pool, *a, value, tolerance, true))
    }
}

/// See [`Sources::told`].
pub(super) fn told<'s>(sources: &'s Sources<'_>) -> impl Iterator<Item = &'s str> {
    sources.told().iter().map(|text| &***text)
}

/// Whether a clause that has the value means it. A common word may be said of anything: it is meant beside the name of its
/// column, as a state behind a verb or close before the name of the row, or as a name with its capital.
fn is_meant(clause: &Clause<'_>, cell: &Field, row: &Row<'_>) -> bool {
    let shown = cell.shown();
    let is_word = cell.text().is_some() && shown.chars().all(char::is_alphabetic);
    let is_name = || {
        shown.starts_with(char::is_uppercase) && clause.sentence.split(' ').skip(1).any(|w| w.contains(shown))
    };
    !is_word
        || cell.name.iter().all(|word| clause.has(word))
        || if is_state(cell) { is_predicate(clause, cell.text().unwrap_or_default(), row) } else { is_name() }
}

/// Whether a clause says a state of a row: "W-1001 is open", "the open order W-1001".
fn is_predicate(clause: &Clause<'_>, state: &str, row: &Row<'_>) -> bool {
    const BETWEEN: usize = 2;
    let is_close = |name: &RowName| {
        let before = clause.words.split_once(name.words.as_str()).map_or("", |(before, _)| before);
        before.split_whitespace().rev().take(BETWEEN).any(|word| word == state)
    };
    clause.words.trim() == state || follows_verb(clause, state) || row.names.iter().any(is_close)
}

/// The tables of the results of which the words may name rows; `None` beyond the work budget.
pub(super) fn tables<'e>(exchange: &'e Exchange<'_>, said: &str) -> Option<Vec<Vec<Row<'e>>>> {
    let said = &Said::new(said);
    let mut tables: Vec<Vec<Row<'e>>> = Vec::new();
    let mut by_tool: BTreeMap<&str, Vec<(&Source<'_>, &Records)>> = BTreeMap::new();
    for source in &exchange.sources.structured {
        let Some(parsed) = &source.parsed.0 else { continue };
        exchange.spends(1 + parsed.records.len() / 4).then_some(())?;
        tables.extend(lists(source, parsed, said));
        if parsed.records.first().is_some_and(|first| first.list.is_none()) {
            by_tool.entry(source.call.name.trim()).or_default().push((source, parsed));
        }
    }
    for rows in &mut tables {
        name(rows, said, is_named_by_place);
        name_by_children(rows, said);
    }
    tables.extend(by_tool.into_values().filter_map(|results| of_tool(&results, said)));
    tables.retain(|rows| rows.len() > 1 && rows.iter().any(|row| !row.names.is_empty()));
    tables.truncate(MAX_TABLES);
    Some(tables)
}

/// The lists of a result with a row that may be named. Most answers name no row of most lists, whose rows are then not
/// read.
fn lists<'e>(source: &'e Source<'_>, parsed: &'e Records, said: &Said<'_>) -> Vec<Vec<Row<'e>>> {
    let mut named = vec![false; parsed.lists.len()];
    for record in &parsed.records {
        if let Some(is_named) = record.list.and_then(|list| named.get_mut(list)) {
            *is_named = *is_named || may_be_named(record, said);
        }
        if record.parent.is_some() && record.fields.iter().any(|f| is_child_name(f) && is_said(f, said)) {
            let above =
                std::iter::successors(record.parent.and_then(|at| parsed.records.get(at)), |holder| {
                    holder.parent.and_then(|at| parsed.records.get(at))
                });
            let lists = above.take(MAX_LEVELS).filter_map(|holder| holder.list);
            lists.for_each(|list| named.get_mut(list).into_iter().for_each(|is_named| *is_named = true));
        }
    }
    if !named.contains(&true) {
        return Vec::new();
    }
    // By list, its rows by their place among the records.
    let mut lists: BTreeMap<usize, BTreeMap<usize, Row<'e>>> = BTreeMap::new();
    for (at, record) in parsed.records.iter().enumerate() {
        let mut above = Some(at);
        for _ in 0..MAX_LEVELS {
            let Some((place, holder)) = above.and_then(|i| Some((i, parsed.records.get(i)?))) else {
                break;
            };
            let list = holder.list.filter(|list| named.get(*list) == Some(&true));
            if let Some(rows) = list.map(|list| lists.entry(list).or_default())
                && (rows.len() < MAX_ROWS || rows.contains_key(&place))
            {
                rows.entry(place).or_insert_with(|| Row::new(source, place, holder)).add(&record.fields);
            }
            above = holder.parent;
        }
    }
    lists.into_values().map(|rows| rows.into_values().collect()).collect()
}

/// The results of one tool for several things, if one of them may be named: the latest result on each thing counts.
fn of_tool<'e>(results: &[(&'e Source<'_>, &'e Records)], said: &Said<'_>) -> Option<Vec<Row<'e>>> {
    let first = |(_, parsed): &(&'e Source<'_>, &'e Records)| parsed.records.first();
    let may_be_named = |result| first(result).is_some_and(|record| may_be_named(record, said));
    if results.len() < 2 || !results.iter().any(may_be_named) {
        return None;
    }
    let rows = results.iter().filter_map(|(source, parsed)| {
        let mut row = Row::new(source, 0, parsed.records.first()?);
        parsed.records.iter().for_each(|record| row.add(&record.fields));
        Some(row)
    });
    let mut rows: Vec<Row<'e>> = rows.collect();
    name(&mut rows, said, is_named_by_key);
    let mut latest: Vec<Row<'e>> = Vec::with_capacity(rows.len());
    for row in rows.into_iter().rev() {
        if latest.iter().all(|later| !is_same_thing(later.record, row.record)) {
            latest.push(row);
        }
    }
    Some(latest)
}

/// Whether two records have the same values in the columns that name rows by their keys.
fn is_same_thing(record: &Record, other: &Record) -> bool {
    fn keys(record: &Record) -> impl Iterator<Item = &Field> {
        record.fields.iter().filter(|field| is_named_by_key(0, field))
    }
    keys(record).eq(keys(other))
}

/// Whether the words may have a name of the record.
fn may_be_named(record: &Record, said: &Said<'_>) -> bool {
    columns(record, is_named_by_place).any(|field| is_said(field, said))
}

/// The words of an answer or a request, in lower case.
struct Said<'t> {
    text: &'t str,
    words: HashSet<&'t [u8], foldhash::fast::RandomState>,
}

impl<'t> Said<'t> {
    fn new(text: &'t str) -> Said<'t> {
        let words = text.as_bytes().split(|byte| !byte.is_ascii_alphanumeric());
        Said { text, words: words.filter(|word| !word.is_empty()).collect() }
    }

    /// Whether they may have a name: most rows are not named.
    fn may_have(&self, name: &RowName) -> bool {
        contains_words(self.text, &name.words) || self.text.contains("'s ")
    }
}

/// Whether the words may have the value: they have the longest word of it.
fn is_said(field: &Field, said: &Said<'_>) -> bool {
    let shown = field.shown();
    let words = shown.as_bytes().split(|byte| !byte.is_ascii_alphanumeric());
    let Some(longest) = words.max_by_key(|word| word.len()).filter(|_| shown.is_ascii()) else { return true };
    let mut lower = [0; LONGEST_WORD];
    match lower.get_mut(..longest.len()) {
        Some(lower) => {
            lower.copy_from_slice(longest);
            lower.make_ascii_lowercase();
            said.words.contains(&*lower)
        }
        None => true,
    }
}

/// Whether a field of what a row contains may name the row: the `friendly_name` among its attributes, the names of ordered
/// items.
fn is_child_name(field: &Field) -> bool {
    let key = field.name.last().map(String::as_str);
    matches!(key, Some("name" | "title" | "label")) && matches!(field.value, Scalar::Text(_))
}

/// Gives rows the names of what they contain.
fn name_by_children(rows: &mut [Row<'_>], said: &Said<'_>) {
    let Some(first) = rows.first() else { return };
    let columns: BTreeSet<&Name> = first.child_names().map(|field| &field.name).collect();
    for column in columns {
        let of = |row: &Row<'_>| row.child_names().any(|field| field.name == *column && is_name(field));
        // What several rows contain names none of them.
        let of_column = rows.iter().flat_map(Row::child_names).filter(|field| field.name == *column);
        let all: Vec<&str> = of_column.map(Field::shown).collect();
        if !rows.iter().all(of) || all.iter().collect::<HashSet<_>>().len() < all.len() {
            continue;
        }
        for row in rows.iter_mut() {
            let named = row.child_names().filter(|field| field.name == *column && is_name(field));
            let names = named.filter(|field| is_said(field, said)).map(name_of);
            let names: Vec<RowName> = names.filter(|name| said.may_have(name)).collect();
            row.names.extend(names);
        }
    }
}

fn is_named_by_key(_: usize, field: &Field) -> bool {
    field.name.last().is_some_and(|word| is_name_key(word))
}

/// As by its key, or because it is the first column of texts.
fn is_named_by_place(text: usize, field: &Field) -> bool {
    text == 1 && matches!(field.value, Scalar::Text(_)) || is_named_by_key(text, field)
}

/// The fields of a record that may name it, from how many columns of texts there are up to each.
fn columns(record: &Record, is_column: impl Fn(usize, &Field) -> bool) -> impl Iterator<Item = &Field> {
    let mut texts = 0;
    record.fields.iter().filter(move |field| {
        texts += usize::from(matches!(field.value, Scalar::Text(_)));
        is_column(texts, field)
    })
}

/// The field of a record in the column of `column`.
fn cell<'r>(record: &'r Record, column: &Field) -> Option<&'r Field> {
    record.fields.iter().find(|field| field.name == column.name)
}

/// Gives the rows that the words may name the names that tell them apart.
fn name(rows: &mut [Row<'_>], said: &Said<'_>, is_column: impl Fn(usize, &Field) -> bool) {
    let Some(first) = rows.first().map(|row| row.record) else { return };
    for column in columns(first, is_column) {
        let cells: Vec<&Field> = rows.iter().filter_map(|row| cell(row.record, column)).collect();
        let tells_apart = cells.len() == rows.len() && cells.iter().any(|cell| cell.value != column.value);
        if tells_apart
            && cells.iter().any(|cell| is_said(cell, said))
            && cells.iter().all(|cell| is_name(cell))
        {
            for (row, cell) in rows.iter_mut().zip(&cells) {
                let name = is_said(cell, said).then(|| name_of(cell));
                row.names.extend(name.filter(|name| said.may_have(name)));
            }
        }
    }
}

/// Whether the value may be a name: it is no time, no state, and not short.
fn is_name(field: &Field) -> bool {
    let shown = field.shown();
    let is_short = || shown.trim_matches(|c: char| !c.is_alphanumeric()).len() < MIN_NAME;
    let is_moment = || is_clock(shown) || has_digit(shown) && dates::all(shown).next().is_some();
    let is_state = || field.text().is_some_and(|text| assertion(text).is_some());
    let is_column = matches!(field.value, Scalar::Text(_)) || is_named_by_key(0, field);
    is_column && !is_short() && !is_moment() && !is_state()
}

fn name_of(field: &Field) -> RowName {
    let name = words_of(field.shown()).trim().to_owned();
    let is_word = !name.contains(|c: char| c == ' ' || c.is_ascii_digit());
    RowName { words: name, written: is_word.then(|| field.shown().to_owned()) }
}
