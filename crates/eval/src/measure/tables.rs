//! Reads tables and lines of `key: value`.
//!
//! In: a text. Out: its rows, each as pairs of a key and a cell. A table has a first line of column names:
//! cells are between `|`, tabs, semicolons or commas, or in columns that are two spaces apart.

/// The cells of a row with their column names.
pub(super) type CellRow<'t> = Vec<(&'t str, &'t str)>;

/// Most lines that are read.
const MAX_LINES: usize = 2000;
/// Most columns of a table.
const MAX_COLUMNS: usize = 40;
/// Longest key.
const MAX_KEY: usize = 32;

/// The rows of a text; `None` if it has neither form. Lines of keys are one row each time that a key
/// recurs.
pub(super) fn read(text: &str) -> Option<Vec<CellRow<'_>>> {
    if memchr::memchr(b'\n', text.as_bytes()).is_none() || text.lines().count() > MAX_LINES {
        return None;
    }
    let lines: Vec<&str> =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !is_rule(line)).collect();
    key_lines(&lines).or_else(|| {
        [pipes, tabs, columns, semicolons, commas].into_iter().find_map(|cells| table(&lines, cells))
    })
}

/// Whether these rows are items of a list rather than one record.
pub(super) fn is_list(rows: &[CellRow<'_>]) -> bool {
    rows.len() > 1
}

/// Whether a line only separates others.
fn is_rule(line: &str) -> bool {
    line.chars().all(|c| matches!(c, '-' | '|' | ':' | '+' | '=' | ' ' | '`'))
}

fn pipes(line: &str) -> Vec<&str> {
    if !line.contains('|') {
        return Vec::new();
    }
    line.trim_matches('|').split('|').map(str::trim).collect()
}

fn tabs(line: &str) -> Vec<&str> {
    line.split('\t').map(str::trim).collect()
}

fn columns(line: &str) -> Vec<&str> {
    line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

/// As spreadsheets export where the comma is the decimal point. A sentence has a space after its sign; the last cell
/// may be empty.
fn semicolons(line: &str) -> Vec<&str> {
    match line.contains("; ") {
        true => Vec::new(),
        false => line.split(';').map(str::trim).collect(),
    }
}

fn commas(line: &str) -> Vec<&str> {
    match line.contains(", ") {
        true => Vec::new(), // a sentence
        false => line.split(',').map(str::trim).collect(),
    }
}

fn is_key(cell: &str) -> bool {
    let plain = |c: char| c.is_alphanumeric() || " _-.%()#".contains(c);
    (1..=MAX_KEY).contains(&cell.len()) && cell.starts_with(char::is_alphabetic) && cell.chars().all(plain)
}

/// A table of at least two columns, all of whose lines have as many cells as the first.
fn table<'t>(lines: &[&'t str], cells: fn(&'t str) -> Vec<&'t str>) -> Option<Vec<CellRow<'t>>> {
    let (first, rows) = lines.split_first()?;
    let names = cells(first);
    let are_names = (2..=MAX_COLUMNS).contains(&names.len()) && names.iter().all(|name| is_key(name));
    if !are_names || rows.is_empty() {
        return None;
    }
    let row = |line: &&'t str| {
        let cells = cells(line);
        (cells.len() == names.len()).then(|| names.iter().copied().zip(cells).collect())
    };
    rows.iter().map(row).collect()
}

/// Lines of `key: value`, of which there are at least two and nothing else.
fn key_lines<'t>(lines: &[&'t str]) -> Option<Vec<CellRow<'t>>> {
    let mut rows: Vec<CellRow<'t>> = vec![CellRow::new()];
    for line in lines {
        let line = line.trim_start_matches(['-', '*', '•']).trim_start();
        let (key, value) = line.split_once(": ").or_else(|| line.split_once(" = "))?;
        let key = key.trim_matches('*');
        if !is_key(key) || value.trim().is_empty() {
            return None;
        }
        let row = rows.last_mut()?;
        match row.iter().any(|(other_key, _)| *other_key == key) {
            true => rows.push(vec![(key, value.trim())]),
            false => row.push((key, value.trim())),
        }
    }
    (lines.len() > 1).then_some(rows)
}
