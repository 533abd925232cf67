//! Colour and width of rendered trees.

use std::io::{self, IsTerminal};

use crate::export::config::Color;

/// Settings of rendered trees.
#[derive(Clone, Debug)]
pub struct TreeStyle {
    /// Use ANSI colours.
    pub color: bool,
    /// Columns, at least 40; longer lines are cut.
    pub width: usize,
    /// Prefix of our attribute keys (`verdict.`).
    pub prefix: String,
}

impl TreeStyle {
    /// For standard output: the terminal's width, if it is one, and the configured colour.
    pub fn detect(color: Color, prefix: &str) -> TreeStyle {
        let terminal = io::stdout().is_terminal();
        let color = match color {
            Color::Always => true,
            Color::Never => false,
            // By convention, any non-empty value disables colour.
            Color::Auto => terminal && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()),
        };
        let width = match terminal_size::terminal_size() {
            Some((width, _)) if terminal => usize::from(width.0),
            _ => NOT_A_TERMINAL,
        };
        TreeStyle { color, width, prefix: prefix.to_owned() }
    }
}

/// Columns if standard output is not a terminal: wide, since log viewers scroll.
const NOT_A_TERMINAL: usize = 160;
