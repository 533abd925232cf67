//! Interning: each distinct text of a scene is one allocation.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::{HashSet, HashSetExt};

use super::message::{Text, ToolDefinition};

/// What a scene under construction shares: texts, and tool definitions by the text they came in.
#[derive(Debug)]
pub(crate) struct Texts {
    set: HashSet<Arc<str>>,
    pub(crate) definitions: HashMap<Arc<str>, Arc<[ToolDefinition]>, foldhash::fast::RandomState>,
}

impl Texts {
    pub(crate) fn new() -> Texts {
        Texts { set: HashSet::new(), definitions: HashMap::default() }
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
