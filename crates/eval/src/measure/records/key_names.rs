//! The words of the keys of a trace's results, which often have the same keys.
//!
//! In: a key. Out: its words, which all values with the key share.

use std::cell::{Cell, RefCell};
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::rc::Rc;

use foldhash::HashMap;

use crate::measure::identifier::identifier_words;

/// Maximum keys that are cached.
const MAX_KEYS: usize = 10_000;

/// Keys of a trace for which memory is reserved.
const USUAL_KEYS: usize = 16;

/// The words of a key, which all values with the key share.
pub(crate) type KeyName = Rc<KeyWords>;

/// The words of a key, and the cached facts about them.
#[derive(Debug, Default)]
pub(crate) struct KeyWords {
    words: Vec<String>,
    /// Two bits for each [`KeyFact`]: whether it was computed, and whether it is true.
    facts: Cell<u32>,
}

/// A fact about the words of a key that rules need.
#[derive(Clone, Copy)]
pub(crate) enum KeyFact {
    /// The values are states.
    State,
    /// The values are the names of rows.
    RowName,
    /// The value may be the name of the record that contains it.
    ChildName,
    /// A word of the key is a year.
    Year,
    /// The value may be an amount that is paid back.
    Refund,
    /// A number under the key identifies something.
    Code,
    /// The value is the source of a movement.
    Origin,
    /// The value is the target of a movement.
    Target,
}

impl KeyWords {
    fn new(key: &str) -> KeyWords {
        KeyWords { words: identifier_words(key), facts: Cell::default() }
    }

    /// Whether a fact is true by `compute`, which must depend on the words alone and is called once.
    pub(crate) fn has_fact(&self, fact: KeyFact, compute: impl FnOnce(&[String]) -> bool) -> bool {
        let (computed_bit, true_bit) = (1 << (2 * fact as u32), 2 << (2 * fact as u32));
        if self.facts.get() & computed_bit == 0 {
            let result = if compute(&self.words) { true_bit } else { 0 };
            self.facts.set(self.facts.get() | computed_bit | result);
        }
        self.facts.get() & true_bit != 0
    }
}

impl Deref for KeyWords {
    type Target = [String];
    fn deref(&self) -> &[String] {
        &self.words
    }
}

impl PartialEq for KeyWords {
    fn eq(&self, other: &KeyWords) -> bool {
        self.words == other.words
    }
}

impl Eq for KeyWords {}

impl Hash for KeyWords {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.words.hash(state);
    }
}

/// The cache of the words of the keys of a trace's results.
#[derive(Default)]
pub(crate) struct KeyNames {
    names: RefCell<HashMap<String, KeyName>>,
    /// The last requested names of keys that are a single word in lower case, by [`slot`].
    recent: RefCell<[Option<KeyName>; SLOTS]>,
    /// A name without words.
    none: KeyName,
}

/// Slots of [`KeyNames::recent`].
const SLOTS: usize = 16;

/// The slot of a key.
fn slot(key: &str) -> usize {
    (key.len() + key.bytes().next_back().map_or(0, usize::from)) % SLOTS
}

impl KeyNames {
    /// The name of a value without a key.
    pub(crate) fn none(&self) -> &KeyName {
        &self.none
    }

    /// Whether no further keys are cached, so that equal keys may have different [`KeyName`]s.
    pub(super) fn is_full(&self) -> bool {
        self.names.borrow().len() >= MAX_KEYS
    }

    /// The words of `key`. Equal keys have the same [`KeyName`], unless the cache is full.
    pub(crate) fn name_for(&self, key: &str) -> KeyName {
        let mut recent = self.recent.borrow_mut();
        let recent = &mut recent[slot(key)];
        if let Some(name) = recent
            && matches!(name.words.as_slice(), [word] if word == key)
        {
            return Rc::clone(name);
        }
        let mut names = self.names.borrow_mut();
        if names.is_empty() {
            names.reserve(USUAL_KEYS);
        }
        let name = names.get(key).cloned().unwrap_or_else(|| {
            let name = Rc::new(KeyWords::new(key));
            if names.len() < MAX_KEYS {
                names.insert(key.to_owned(), Rc::clone(&name));
            }
            name
        });
        // Only a key that equals its single word is found by a comparison with the words: "Order" has the word "order".
        if matches!(name.words.as_slice(), [word] if word == key) {
            *recent = Some(Rc::clone(&name));
        }
        name
    }
}
