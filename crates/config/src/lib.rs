//! What configurations are read with. In: YAML texts. Out: structs of any `Deserialize` type, or
//! every fault at once, each with its file, line, key and a suggestion.
//!
//! | file | what it does |
//! |---|---|
//! | `source` | names and texts of files, read within a limit |
//! | `node` | YAML to a tree with places; merging |
//! | `env` | `${env:NAME}`, `${file:PATH}` |
//! | `read` | tree to structs, collecting faults |
//! | `issue` | a fault with its place; all of them as one error |
//! | `pattern` | names with a `*` at the end |
//! | `units` | durations, sizes, secrets |
//!
//! Which sections there are is not known here: each section's struct belongs to the component that
//! it configures, and the product's root joins them.

pub mod env;
mod issue;
mod node;
mod pattern;
mod read;
mod source;
mod units;

pub use issue::{Invalid, Issue, Problem, dotted, nearest};
pub use node::{Key, Mark, Node, Place, Step, Style, Value, parse, parse_within};
pub use pattern::{admits, matches};
pub use read::{read, read_joined, read_or_skip};
pub use source::{Source, read_bounded};
pub use units::{MemoryBudget, Period, REDACTED, Secret, Size};
