//! A cache of values that are computed from texts which recur in many traces, such as the system prompt of a service.
//!
//! In: a text and a computation. Out: the value, from the cache if it was computed before. The cache belongs to an
//! evaluator, whose threads share it. A value must depend on its text alone, and the caller must count the work as if
//! it were done each time, so that the result for a trace does not depend on earlier traces.

use std::any::{Any, TypeId};
use std::fmt;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, PoisonError};

use foldhash::quality::RandomState;

/// The number of slots. A text is stored in the slot of its hash, and replaces the text in it.
const SLOTS: usize = 64;
/// Maximum bytes of a text that is stored.
const MAX_BYTES: usize = 32 << 10;

/// A cached value with its text.
struct RecurringEntry {
    value_type: TypeId,
    text: Box<str>,
    value: Arc<dyn Any + Send + Sync>,
}

/// Values by their type and their text.
pub(crate) struct RecurringValues {
    hash_state: RandomState,
    slots: [Mutex<Option<RecurringEntry>>; SLOTS],
}

impl RecurringValues {
    /// The value of type `T` for the text, computed by `compute` if it is not cached. Each use has its own type.
    pub(crate) fn get<T: Send + Sync + 'static>(&self, text: &str, compute: impl FnOnce() -> T) -> Arc<T> {
        let hash = self.hash_state.hash_one((TypeId::of::<T>(), text));
        let slot = self.slots.get(hash as usize % SLOTS).filter(|_| text.len() <= MAX_BYTES);
        let Some(slot) = slot else { return Arc::new(compute()) };
        let lock_slot = || slot.lock().unwrap_or_else(PoisonError::into_inner);
        let is_of_text =
            |entry: &&RecurringEntry| entry.value_type == TypeId::of::<T>() && *entry.text == *text;
        let cached = lock_slot().as_ref().filter(is_of_text).map(|entry| entry.value.clone());
        if let Some(value) = cached.and_then(|any| any.downcast::<T>().ok()) {
            return value;
        }
        let value = Arc::new(compute());
        *lock_slot() =
            Some(RecurringEntry { value_type: TypeId::of::<T>(), text: text.into(), value: value.clone() });
        value
    }
}

impl Default for RecurringValues {
    fn default() -> RecurringValues {
        RecurringValues {
            hash_state: RandomState::default(),
            slots: std::array::from_fn(|_| Mutex::default()),
        }
    }
}

impl fmt::Debug for RecurringValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecurringValues").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_of_a_text_is_computed_once_unless_another_text_took_its_slot() {
        let recurring = RecurringValues::default();
        let mut reads = 0;
        let mut length = |text: &str| {
            *recurring.get(text, || {
                reads += 1;
                text.len()
            })
        };
        assert_eq!((length("one"), length("one")), (3, 3));
        assert_eq!(reads, 1);
        for nth in 0..100 * SLOTS {
            let text = "x".repeat(nth % 1000);
            assert_eq!(*recurring.get(&text, || text.len()), text.len());
        }
        assert_eq!(*recurring.get("one", || 9_u8), 9, "of another type");
        let long = "y".repeat(MAX_BYTES + 1);
        assert_eq!((*recurring.get(&long, || 1), *recurring.get(&long, || 2)), (1, 2), "not kept");
    }
}
