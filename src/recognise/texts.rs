//! Interning: each distinct text of a scene is one allocation.

use std::sync::Arc;

use foldhash::{HashSet, HashSetExt};

use super::message::Text;

/// Distinct texts for which there is room from the start: a short run has as many, and making room
/// hashes all that is there again.
const USUAL: usize = 64;

/// The texts of a scene under construction.
#[derive(Debug)]
pub(crate) struct Texts {
    set: HashSet<Arc<str>>,
}

impl Texts {
    pub(crate) fn new() -> Texts {
        Texts { set: HashSet::with_capacity(USUAL) }
    }

    /// The one allocation of `text`.
    pub(crate) fn intern(&mut self, text: &str) -> Text {
        if let Some(known) = self.set.get(text) {
            return Text(known.clone());
        }
        let new: Arc<str> = Arc::from(text);
        self.set.insert(new.clone());
        Text(new)
    }

    /// As [`Texts::intern`]; nothing for an empty text, which says nothing.
    pub(crate) fn some(&mut self, text: &str) -> Option<Text> {
        if text.is_empty() { None } else { Some(self.intern(text)) }
    }
}
