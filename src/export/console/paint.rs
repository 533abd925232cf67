//! Text for a terminal: replaces control characters, cuts, wraps and pads by display columns, and adds colours.

use std::fmt::Write;

use unicode_width::UnicodeWidthChar;

/// The meaning of a text, shown by its colour.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Paint {
    Plain,
    Good,
    Bad,
    Warn,
    Faint,
    Strong,
}

impl Paint {
    /// The parameters of the ANSI escape sequence; empty for no colour.
    fn code(self) -> &'static str {
        match self {
            Paint::Plain => "",
            Paint::Good => "32",
            Paint::Bad => "1;31",
            Paint::Warn => "33",
            Paint::Faint => "2",
            Paint::Strong => "1",
        }
    }
}

/// A line with a limit on its width.
pub(super) struct ConsoleLine {
    text: String,
    width: usize,
    remaining: usize,
    color: bool,
}

impl ConsoleLine {
    pub(super) fn new(width: usize, color: bool) -> ConsoleLine {
        ConsoleLine { text: String::new(), width, remaining: width, color }
    }

    /// Appends untrusted text, cut to the remaining columns.
    pub(super) fn write(&mut self, text: &str, paint: Paint) -> &mut ConsoleLine {
        let fitted = fit(text, self.remaining);
        self.paint(&fitted, paint)
    }

    /// Appends layout characters if they fit.
    pub(super) fn layout(&mut self, glyphs: &str, paint: Paint) -> &mut ConsoleLine {
        if width(glyphs) <= self.remaining { self.paint(glyphs, paint) } else { self }
    }

    fn paint(&mut self, fitted: &str, paint: Paint) -> &mut ConsoleLine {
        self.remaining -= width(fitted).min(self.remaining);
        if self.color && paint != Paint::Plain && !fitted.is_empty() {
            let _ = write!(self.text, "\x1b[{}m{fitted}\x1b[0m", paint.code());
        } else {
            self.text.push_str(fitted);
        }
        self
    }

    /// The columns up to the maximum width.
    pub(super) fn remaining(&self) -> usize {
        self.remaining
    }

    /// Appends spaces up to `column`.
    pub(super) fn pad_to(&mut self, column: usize) -> &mut ConsoleLine {
        let spaces = column.saturating_sub(self.width - self.remaining).min(self.remaining);
        self.text.extend(std::iter::repeat_n(' ', spaces));
        self.remaining -= spaces;
        self
    }

    /// Appends the line to `out`, without spaces at its end.
    pub(super) fn finish(self, out: &mut String) {
        out.push_str(self.text.trim_end());
        out.push('\n');
    }
}

/// The number of columns that `text` takes.
pub(super) fn width(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// Replaces characters that would move the cursor, change colours, end the line or change the direction of the
/// text.
fn replace_control(c: char) -> char {
    match c {
        '\t' | '\n' | '\r' | '\u{2028}' | '\u{2029}' => ' ',
        // Bidirectional controls, and characters without width.
        '\u{200b}'..='\u{200f}'
        | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{61c}' => '\u{fffd}',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}

/// `text` on one line of at most `columns`, with runs of spaces collapsed, and with an ellipsis if it is cut. Text
/// after the cut is not read.
pub(super) fn fit(text: &str, columns: usize) -> String {
    // Combining marks have no width, so the number of characters is limited as well.
    let max_chars = columns.saturating_mul(4);
    let mut out = String::new();
    // `cut_at` is the length of the output that leaves a column for the ellipsis.
    let (mut used_columns, mut char_count, mut cut_at) = (0, 0, 0);
    let mut after_space = true;
    for c in text.chars().map(replace_control) {
        if std::mem::replace(&mut after_space, c == ' ') && c == ' ' {
            continue;
        }
        let char_width = c.width().unwrap_or(0);
        char_count += 1;
        if used_columns + char_width > columns || char_count > max_chars {
            out.truncate(cut_at);
            if columns > 0 {
                out.push('…');
            }
            return out;
        }
        used_columns += char_width;
        out.push(c);
        if used_columns < columns {
            cut_at = out.len();
        }
    }
    out
}

/// Wraps `text`, between words if possible, to at most `lines` lines: the first of `first_width` columns, the others
/// of `other_width`. The last line is cut with an ellipsis if text remains.
pub(super) fn wrap(text: &str, first_width: usize, other_width: usize, lines: usize) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let mut text = text.trim_start();
    while out.len() < lines && !text.is_empty() {
        let columns = if out.is_empty() { first_width } else { other_width };
        let end = if out.len() + 1 == lines { text.len() } else { line_end(text, columns) };
        let (line, remainder) = text.split_at(end);
        out.push(fit(line.trim_end(), columns));
        text = remainder.trim_start();
    }
    out
}

/// The byte position at which a line of `columns` ends: the end of the text if it fits, else the last space that
/// fits, else, in a word longer than the line, the end of the last character that fits (at least one).
fn line_end(text: &str, columns: usize) -> usize {
    let (mut used_columns, mut last_space) = (0, None);
    for (position, c) in text.char_indices() {
        if c.is_whitespace() {
            last_space = Some(position);
        }
        used_columns += replace_control(c).width().unwrap_or(0);
        if used_columns > columns {
            let forced_break = if position == 0 { c.len_utf8() } else { position };
            return last_space.filter(|&position| position > 0).unwrap_or(forced_break);
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_is_cut_by_columns_not_bytes() {
        assert_eq!(fit("abc", 3), "abc");
        assert_eq!(fit("abcd", 3), "ab…");
        assert_eq!(fit("日本語", 5), "日本…");
        assert_eq!(fit("日本語", 4), "日…");
        assert_eq!(fit("  a \n\t b ", 9), "a b ");
        assert_eq!(fit("abc", 0), "");
    }

    #[test]
    fn text_is_wrapped_between_words_and_cut_at_the_end() {
        assert_eq!(wrap("one two three four", 8, 6, 9), ["one two", "three", "four"]);
        assert_eq!(wrap("one two three four", 8, 6, 2), ["one two", "three…"]);
        assert_eq!(wrap("incomprehensible", 4, 6, 9), ["inco", "mprehe", "nsible"]);
        assert_eq!(wrap("日本語日本語", 5, 5, 9), ["日本", "語日", "本語"]);
        assert_eq!(wrap("   ", 5, 5, 9), Vec::<String>::new());
        assert_eq!(wrap("ab", 0, 0, 9), ["", ""]);
    }

    proptest! {
        #[test]
        fn wrapped_lines_fit_and_are_limited(text in any::<String>(), first in 0usize..30, rest in 0usize..30, lines in 0usize..5) {
            let wrapped = wrap(&text, first, rest, lines);
            prop_assert!(wrapped.len() <= lines);
            for (i, line) in wrapped.iter().enumerate() {
                let columns = if i == 0 { first } else { rest };
                prop_assert!(width(line) <= columns);
            }
        }

        #[test]
        fn output_has_no_control_characters_and_fits_the_width(text in any::<String>(), columns in 0usize..60) {
            let fitted = fit(&text, columns);
            prop_assert!(width(&fitted) <= columns);
            let is_control = |c: char| c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c);
            prop_assert!(!fitted.chars().any(is_control));
        }
    }
}
