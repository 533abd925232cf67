//! The words of the keys of a trace's results, which often have the same ones.
//!
//! In: a key. Out: its words, shared by all values that have it.

use std::cell::{Cell, RefCell};
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::rc::Rc;

use foldhash::HashMap;

use crate::measure::identifier::identifier_words;

/// Most keys that are kept.
const MAX_KEYS: usize = 10_000;

/// The words of a key, shared by all values that have it.
pub(crate) type KeyName = Rc<KeyWords>;

/// The words of a key, and what rules have asked of them: many values have the same key.
#[derive(Debug, Default)]
pub(crate) struct KeyWords {
    words: Vec<String>,
    /// Two bits for each [`KeyFact`]: whether it was asked for, and whether it holds.
    facts: Cell<u32>,
}

/// A fact about the words of a key that rules ask for.
#[derive(Clone, Copy)]
pub(crate) enum KeyFact {
    /// The values are states.
    State,
    /// The values name rows.
    RowName,
    /// The value may name what contains it.
    ChildName,
    /// One word is a year.
    Year,
    /// The value may be an amount that is paid back.
    Refund,
    /// A number under the key identifies something.
    Code,
    /// The value is one end of a movement.
    Origin,
    Target,
}

impl KeyWords {
    fn new(key: &str) -> KeyWords {
        KeyWords { words: identifier_words(key), facts: Cell::default() }
    }

    /// Whether a fact holds, which depends on the words alone and is computed once.
    pub(crate) fn has_fact(&self, fact: KeyFact, holds: impl FnOnce(&[String]) -> bool) -> bool {
        let (computed_bit, holds_bit) = (1 << (2 * fact as u32), 2 << (2 * fact as u32));
        if self.facts.get() & computed_bit == 0 {
            let found = if holds(&self.words) { holds_bit } else { 0 };
            self.facts.set(self.facts.get() | computed_bit | found);
        }
        self.facts.get() & holds_bit != 0
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

/// The words of the keys of a trace's results, which often have the same ones.
#[derive(Default)]
pub(crate) struct KeyNames {
    names: RefCell<HashMap<String, KeyName>>,
    /// Names of one word that were asked for last, see [`slot`].
    recent: RefCell<[Option<KeyName>; SLOTS]>,
    /// Without words.
    none: KeyName,
}

/// Places of [`KeyNames::recent`].
const SLOTS: usize = 16;

fn slot(key: &str) -> usize {
    (key.len() + key.bytes().next_back().map_or(0, usize::from)) % SLOTS
}

impl KeyNames {
    /// Of what has no key.
    pub(crate) fn none(&self) -> &KeyName {
        &self.none
    }

    /// Whether equal keys may have different names.
    pub(super) fn is_full(&self) -> bool {
        self.names.borrow().len() >= MAX_KEYS
    }

    /// The words of `key`. Equal keys have the same name, unless there are too many.
    pub(crate) fn name_for(&self, key: &str) -> KeyName {
        let mut recent = self.recent.borrow_mut();
        let recent = &mut recent[slot(key)];
        if let Some(name) = recent
            && matches!(name.words.as_slice(), [word] if word == key)
        {
            return Rc::clone(name);
        }
        let mut names = self.names.borrow_mut();
        let name = names.get(key).cloned().unwrap_or_else(|| {
            let name = Rc::new(KeyWords::new(key));
            if names.len() < MAX_KEYS {
                names.insert(key.to_owned(), Rc::clone(&name));
            }
            name
        });
        // Other keys have names of the same words.
        if matches!(name.words.as_slice(), [word] if word == key) {
            *recent = Some(Rc::clone(&name));
        }
        name
    }
}
