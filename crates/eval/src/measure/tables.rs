//! Reads tables and lines of `key: value`.
//!
//! In: a text. Out: its rows, each as pairs of a key and a cell. A table has a header as its first line. Cells are
//! separated by `|`, tabs, semicolons, commas, or at least two spaces.

/// The cells of a row with their column names.
pub(super) type CellRow<'t> = Vec<(&'t str, &'t str)>;

/// Maximum lines of a text that is read.
const MAX_LINES: usize = 2000;
/// Maximum columns of a table.
const MAX_COLUMNS: usize = 40;
/// Maximum bytes of a key.
const MAX_KEY_BYTES: usize = 32;

/// The rows of a text; `None` if it is neither a table nor lines of `key: value`. Among such lines, a recurring key
/// begins a new row.
pub(super) fn read(text: &str) -> Option<Vec<CellRow<'_>>> {
    if memchr::memchr(b'\n', text.as_bytes()).is_none() || text.lines().count() > MAX_LINES {
        return None;
    }
    let lines: Vec<&str> =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !is_separator_line(line)).collect();
    key_lines(&lines).or_else(|| {
        let splitters =
            [cells_by_pipes, cells_by_tabs, cells_by_spaces, cells_by_semicolons, cells_by_commas];
        splitters.into_iter().find_map(|cells| table(&lines, cells))
    })
}

/// Whether these rows are items of a list rather than one record.
pub(super) fn is_list(rows: &[CellRow<'_>]) -> bool {
    rows.len() > 1
}

/// Whether a line consists of signs that separate other lines.
fn is_separator_line(line: &str) -> bool {
    line.chars().all(|c| matches!(c, '-' | '|' | ':' | '+' | '=' | ' ' | '`'))
}

fn cells_by_pipes(line: &str) -> Vec<&str> {
    if !line.contains('|') {
        return Vec::new();
    }
    line.trim_matches('|').split('|').map(str::trim).collect()
}

fn cells_by_tabs(line: &str) -> Vec<&str> {
    line.split('\t').map(str::trim).collect()
}

fn cells_by_spaces(line: &str) -> Vec<&str> {
    line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

/// The cells of a line as spreadsheets export it where the comma is the decimal point. A semicolon before a space
/// belongs to a sentence. The last cell may be empty.
fn cells_by_semicolons(line: &str) -> Vec<&str> {
    match line.contains("; ") {
        true => Vec::new(),
        false => line.split(';').map(str::trim).collect(),
    }
}

fn cells_by_commas(line: &str) -> Vec<&str> {
    match line.contains(", ") {
        // A comma before a space belongs to a sentence.
        true => Vec::new(),
        false => line.split(',').map(str::trim).collect(),
    }
}

/// Whether a cell may be a key or a column name.
fn is_key(cell: &str) -> bool {
    let is_key_char = |c: char| c.is_alphanumeric() || " _-.%()#".contains(c);
    (1..=MAX_KEY_BYTES).contains(&cell.len())
        && cell.starts_with(char::is_alphabetic)
        && cell.chars().all(is_key_char)
}

/// The rows of a table of at least two columns, all of whose lines have as many cells as the header; else `None`.
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

/// The rows of lines of `key: value`; `None` if there are fewer than two lines or a line has another form.
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
