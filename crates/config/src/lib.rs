//! Reads configurations. In: YAML texts. Out: structs of any `Deserialize` type, or every problem at once,
//! each with its file, line, key and a suggestion.
//!
//! | file | what it does |
//! |---|---|
//! | `source` | files, read within a limit |
//! | `node` | YAML to a tree with positions; merging |
//! | `env` | `${env:NAME}`, `${file:PATH}` |
//! | `read` | tree to structs, collecting problems |
//! | `settings` | structs with their defaults |
//! | `issue` | problems, by key and with position; all of them as one error |
//! | `place` | positions in files, paths of keys |
//! | `pattern` | names with a `*` at the end |
//! | `units` | durations, sizes, secrets |
//!
//! Sections are not known here: each section's struct belongs to the component that it configures, and the
//! product joins them.

#![deny(unreachable_pub)]

pub mod env;
mod issue;
mod node;
mod pattern;
mod place;
mod read;
mod settings;
mod source;
mod units;

pub use issue::{Invalid, Issue, Problem, nearest};
pub use node::{Key, Node, Style, Value, parse, parse_within};
pub use pattern::{admits, matches};
pub use place::{Mark, Step, dotted, undotted};
pub use read::{read, read_joined};
pub use source::{Source, read_bounded};
pub use units::{MemoryBudget, Period, REDACTED, Secret, Size, UnitError};
