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
pub(crate) struct Texts {
    /// By hash, so that each text is hashed once. If two texts have the same hash, the second one is
    /// not interned.
    by_hash: HashMap<u64, Arc<str>>,
    hasher: RandomState,
}

impl Texts {
    pub(crate) fn new() -> Texts {
        Texts { by_hash: HashMap::with_capacity(CAPACITY), hasher: RandomState::default() }
    }

    /// The trace's only allocation of `text`.
    pub(crate) fn intern(&mut self, text: &str) -> Text {
        Text(match self.by_hash.entry(self.hasher.hash_one(text)) {
            Entry::Occupied(known) if **known.get() == *text => known.get().clone(),
            Entry::Occupied(_) => Arc::from(text),
            Entry::Vacant(place) => place.insert(Arc::from(text)).clone(),
        })
    }

    /// As [`Texts::intern`]; `None` for an empty text.
    pub(crate) fn some(&mut self, text: &str) -> Option<Text> {
        (!text.is_empty()).then(|| self.intern(text))
    }

    /// As [`Texts::some`], of a text that may be missing.
    pub(crate) fn option(&mut self, text: Option<&str>) -> Option<Text> {
        self.some(text?)
    }
}
