//! Reads configurations. In: YAML texts. Out: structs of any `Deserialize` type, or all problems, each with
//! its file, line, key and a suggestion.
//!
//! | file | content |
//! |---|---|
//! | `source` | texts with the names of their files |
//! | `node` | YAML to a tree with positions; merging |
//! | `read` | tree to structs, collecting problems |
//! | `settings` | structs with their defaults |
//! | `issue` | problems, by key and with position; all of them as one error |
//! | `place` | positions in files, paths of keys |
//! | `pattern` | names with a `*` at the end |
//! | `units` | durations, sizes, secrets |
//!
//! The structs of the sections are in the components that they configure; the product combines them.

#![deny(unreachable_pub)]

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
pub use source::Source;
pub use units::{MemoryBudget, Period, REDACTED, Secret, Size, UnitError};
