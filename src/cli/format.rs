//! The `--output` option of commands that print figures.

use clap::ValueEnum;

/// How a command prints its result.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Output {
    /// A table for people
    #[default]
    Table,
    /// One JSON object
    Json,
}
