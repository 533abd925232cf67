//! Reads structured results once into records of named values.
//!
//! In: the text of a result: JSON, which may be inside strings and wrappers, a table, or lines of `key: value`. Out:
//! [`Records`]: each object or row with its fields, each list with its length; none for prose.

mod data;
mod key_names;
mod reader;

use std::rc::Rc;

pub(crate) use data::{FieldValue, Record, RecordField, RecordList, Records};
pub(crate) use key_names::{KeyFact, KeyName, KeyNames};

use crate::measure::Memo;
use crate::recognise::Text;
use reader::RecordReader;

/// Maximum bytes of a text that is read.
const MAX_BYTES: usize = 256 * 1024;

/// The records of a text; `None` for a text without structure.
pub(crate) struct Structure(pub(crate) Option<Records>);

impl Structure {
    /// The structure of a result, read once per trace; `None` if the work budget is exceeded.
    pub(crate) fn cached(text: &Text, memo: &Memo) -> Option<Rc<Structure>> {
        let read = |text: &str| Structure(read(text, &memo.shared::<KeyNames>()));
        memo.budget.spend(text.len() / 16).then(|| memo.for_text(text, read))
    }
}

/// The records of a text; `None` if it has no structure or is too long.
fn read(text: &str, names: &KeyNames) -> Option<Records> {
    (text.len() <= MAX_BYTES).then(|| RecordReader::read(text, names)).flatten()
}

#[cfg(test)]
mod tests;
