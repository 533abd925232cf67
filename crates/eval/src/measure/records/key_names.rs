//! The words of the keys of a trace's results, which often have the same ones.
//!
//! In: a key. Out: its words, shared by all values that have it.

use std::cell::RefCell;
use std::rc::Rc;

use foldhash::HashMap;

use crate::measure::identifier::identifier_words;

/// Most keys that are kept.
const MAX_KEYS: usize = 10_000;

/// The words of a key, shared by all values that have it.
pub(crate) type Name = Rc<[String]>;

/// The words of the keys of a trace's results, which often have the same ones.
#[derive(Default)]
pub(crate) struct KeyNames {
    known: RefCell<HashMap<String, Name>>,
    /// Names of one word that were asked for last, see [`slot`].
    recent: RefCell<[Option<Name>; SLOTS]>,
    /// Without words.
    none: Name,
}

/// Places of [`KeyNames::recent`].
const SLOTS: usize = 16;

fn slot(key: &str) -> usize {
    (key.len() + key.bytes().next_back().map_or(0, usize::from)) % SLOTS
}

impl KeyNames {
    /// Of what has no key.
    pub(crate) fn none(&self) -> &Name {
        &self.none
    }

    /// The words of `key`.
    pub(crate) fn of(&self, key: &str) -> Name {
        let is_same = |name: &&Name| matches!(&***name, [word] if word == key);
        if let Some(name) = self.recent.borrow()[slot(key)].as_ref().filter(is_same) {
            return Rc::clone(name);
        }
        let mut known = self.known.borrow_mut();
        let name = known.get(key).cloned().unwrap_or_else(|| {
            let name: Name = identifier_words(key).into();
            if known.len() < MAX_KEYS {
                known.insert(key.to_owned(), Rc::clone(&name));
            }
            name
        });
        self.recent.borrow_mut()[slot(key)] = Some(Rc::clone(&name));
        name
    }
}
