//! Interning: each distinct text of a trace is one allocation.

use std::collections::hash_map::Entry;
use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::RandomState;
use foldhash::{HashMap, HashMapExt};

use super::message::Text;

/// Initial capacity: the number of distinct texts in a short run.
const CAPACITY: usize = 64;

/// The texts of a trace under construction.
#[derive(Debug)]
pub(crate) struct TextInterner {
    /// By hash, so that each text is hashed once. If two texts have the same hash, the second one is
    /// not interned.
    by_hash: HashMap<u64, Arc<str>>,
    hasher: RandomState,
    /// The last text of each [`slot`]: most texts are names that every span repeats.
    last: Vec<Option<Text>>,
}

/// Number of texts in [`TextInterner::last`].
const SLOTS: usize = 64;

/// The index of a text in [`TextInterner::last`].
fn slot(text: &str) -> usize {
    let bytes = text.as_bytes();
    let byte = |position: usize| bytes.get(position).copied().map_or(0, usize::from);
    (bytes.len() + byte(bytes.len() / 2) + 3 * byte(bytes.len().wrapping_sub(1))) % SLOTS
}

impl TextInterner {
    pub(crate) fn new() -> TextInterner {
        let by_hash = HashMap::with_capacity(CAPACITY);
        TextInterner { by_hash, hasher: RandomState::default(), last: vec![None; SLOTS] }
    }

    /// The trace's only allocation of `text`.
    pub(crate) fn intern(&mut self, text: &str) -> Text {
        let last = &mut self.last[slot(text)];
        if let Some(cached) = last
            && **cached == *text
        {
            return cached.clone();
        }
        let text = Text(match self.by_hash.entry(self.hasher.hash_one(text)) {
            Entry::Occupied(entry) if **entry.get() == *text => entry.get().clone(),
            Entry::Occupied(_) => return Text(Arc::from(text)),
            Entry::Vacant(entry) => entry.insert(Arc::from(text)).clone(),
        });
        *last = Some(text.clone());
        text
    }

    /// As [`TextInterner::intern`]; `None` for an empty text.
    pub(crate) fn non_empty(&mut self, text: &str) -> Option<Text> {
        (!text.is_empty()).then(|| self.intern(text))
    }

    /// As [`TextInterner::non_empty`], of a text that may be missing.
    pub(crate) fn option(&mut self, text: Option<&str>) -> Option<Text> {
        self.non_empty(text?)
    }
}
