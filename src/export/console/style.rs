//! Colour and width of rendered traces.

use std::io::{self, IsTerminal};

use crate::export::config::Color;

/// Settings of rendered traces.
#[derive(Clone, Debug)]
pub struct TreeStyle {
    /// Use ANSI colours.
    pub color: bool,
    /// Columns, at least 40; longer lines are cut.
    pub width: usize,
    /// The prefix of annotations in the keys of attributes (`verdict.`).
    pub prefix: String,
}

impl TreeStyle {
    /// The style for standard output: the width of the terminal, or a fixed one if it is not a terminal, and the
    /// configured colour.
    pub fn detect(color: Color, prefix: &str) -> TreeStyle {
        let is_terminal = io::stdout().is_terminal();
        let color = match color {
            Color::Always => true,
            Color::Never => false,
            // By convention, any non-empty value disables colour.
            Color::Auto => is_terminal && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()),
        };
        let width = match terminal_size::terminal_size() {
            Some((width, _)) if is_terminal => usize::from(width.0),
            _ => DEFAULT_WIDTH,
        };
        TreeStyle { color, width, prefix: prefix.to_owned() }
    }
}

/// The width if standard output is not a terminal: large, since log viewers scroll.
const DEFAULT_WIDTH: usize = 160;
