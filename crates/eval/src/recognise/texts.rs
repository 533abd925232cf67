//! Interning: each distinct text of a trace is one allocation.

use std::collections::hash_map::Entry;
use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::RandomState;
use foldhash::{HashMap, HashMapExt};

use super::message::Text;

/// Distinct texts for which there is room from the start: a short run has as many.
const USUAL: usize = 64;

/// The texts of a trace under construction.
#[derive(Debug)]
pub(crate) struct Texts {
    /// By their hash, so that a text is hashed once. Of two that had the same, which the seed
    /// leaves to chance, the second would be an allocation of its own.
    by_hash: HashMap<u64, Arc<str>>,
    hasher: RandomState,
}

impl Texts {
    pub(crate) fn new() -> Texts {
        Texts { by_hash: HashMap::with_capacity(USUAL), hasher: RandomState::default() }
    }

    /// The one allocation of `text`.
    pub(crate) fn intern(&mut self, text: &str) -> Text {
        Text(match self.by_hash.entry(self.hasher.hash_one(text)) {
            Entry::Occupied(known) if **known.get() == *text => known.get().clone(),
            Entry::Occupied(_) => Arc::from(text),
            Entry::Vacant(place) => place.insert(Arc::from(text)).clone(),
        })
    }

    /// As [`Texts::intern`]; nothing for an empty text, which says nothing.
    pub(crate) fn some(&mut self, text: &str) -> Option<Text> {
        if text.is_empty() { None } else { Some(self.intern(text)) }
    }
}
