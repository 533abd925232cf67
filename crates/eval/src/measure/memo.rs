//! A cache of values that are computed from a text or a trace, while the trace is measured.
//!
//! Each model call of a run repeats the system prompt and the history before it. Texts are interned, so that an
//! address identifies a text.

use std::any::{Any, TypeId};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;

use super::recurring::RecurringValues;
use super::work_budget::WorkBudget;
use crate::recognise::Text;

/// Values by their type and the address and length of their text. The text is stored with the value, so that its
/// address is not reused.
type TextValues = HashMap<(TypeId, usize, usize), (Text, Rc<dyn Any>), BuildHasherDefault<KeyHasher>>;

/// A fast hash of types and addresses. It need not resist attacks, since senders do not choose them.
#[derive(Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn finish(&self) -> u64 {
        // The highest bits depend on all others.
        self.0.rotate_left(32)
    }
}

/// Values by their type and the hash of the text that they belong to, with the text.
type ContentValues = foldhash::HashMap<(TypeId, u64), (Rc<str>, Rc<dyn Any>)>;

/// The capacity after the first growth of a map: growing in smaller steps would insert its entries several times.
const GROWN_CAPACITY: usize = 64;

/// Reserves [`GROWN_CAPACITY`] entries before the first growth of a map that is not empty.
fn reserve_at_first_growth<K: Eq + Hash, V, S: BuildHasher>(map: &mut HashMap<K, V, S>) {
    if map.len() == map.capacity() && (1..GROWN_CAPACITY).contains(&map.len()) {
        map.reserve(GROWN_CAPACITY);
    }
}

/// The last requested values, by [`slot`]. Most texts are requested several times in a row, and a comparison of two
/// texts costs less than a hash.
type RecentContent = Vec<Option<(TypeId, Rc<str>, Rc<dyn Any>)>>;
/// Slots of the last requested values.
const SLOTS: usize = 32;

/// The slot of a value of this type in [`RecentContent`]. Many texts of a run have the same length.
fn slot(type_id: TypeId, text: &str) -> usize {
    let middle = text.as_bytes().get(text.len() / 2).copied().map_or(0, usize::from);
    (type_slot(type_id) + text.len() + 5 * middle) % SLOTS
}

/// The slot of a value of the trace in [`RecentTraceValues`].
fn type_slot(type_id: TypeId) -> usize {
    BuildHasherDefault::<KeyHasher>::default().hash_one(type_id) as usize % SLOTS
}

/// Maximum bytes of the texts of [`ContentValues`]; the values of further texts are computed at each use.
const MAX_CONTENT_BYTES: usize = 2 << 20;

/// Values by their type, each with whether its computation exceeded the budget.
type TypedValues = HashMap<TypeId, (Rc<dyn Any>, bool), BuildHasherDefault<KeyHasher>>;

/// The last requested values of the trace, by [`type_slot`].
type RecentTraceValues = [Option<(TypeId, Rc<dyn Any>)>; SLOTS];

/// Values of the trace by their type, which the successive memos of one trace share.
pub(crate) type SharedValues = foldhash::HashMap<TypeId, Arc<dyn Any + Send + Sync>>;

/// The cache of one trace, and the trace's work budget.
#[derive(Default)]
pub(crate) struct Memo {
    text_values: RefCell<TextValues>,
    content_values: RefCell<ContentValues>,
    recent_content: RefCell<RecentContent>,
    content_bytes: Cell<usize>,
    trace_values: RefCell<TypedValues>,
    /// The last requested values that are complete: a rule requests the same values for each span.
    recent_trace_values: RefCell<RecentTraceValues>,
    shared_values: RefCell<SharedValues>,
    pub(crate) budget: WorkBudget,
    /// The cache of values of texts that recur in other traces.
    recurring: Option<Arc<RecurringValues>>,
}

impl Memo {
    pub(crate) fn new() -> Memo {
        Memo::default()
    }

    /// An empty memo with this budget.
    pub(crate) fn within(budget: WorkBudget) -> Memo {
        Memo { budget, ..Memo::default() }
    }

    /// Sets the shared values to those of an earlier memo of the same trace.
    pub(crate) fn with_shared_values(self, shared_values: SharedValues) -> Memo {
        Memo { shared_values: RefCell::new(shared_values), ..self }
    }

    /// Sets the cache of the evaluator.
    pub(crate) fn with_recurring(self, recurring: Arc<RecurringValues>) -> Memo {
        Memo { recurring: Some(recurring), ..self }
    }

    /// As [`RecurringValues::get`]: the value must depend on the text alone. Without a cache the value is computed.
    pub(crate) fn recurring<T: Send + Sync + 'static>(
        &self,
        text: &str,
        compute: impl FnOnce() -> T,
    ) -> Arc<T> {
        match &self.recurring {
            Some(recurring) => recurring.get(text, compute),
            None => Arc::new(compute()),
        }
    }

    pub(crate) fn into_shared_values(self) -> SharedValues {
        self.shared_values.into_inner()
    }

    /// The value of type `T` for the trace and its settings, computed once for all successive memos of the trace: each
    /// round of questions has its own memo. Each use has its own type.
    pub(crate) fn shared_value<T: Send + Sync + 'static>(&self, compute: impl FnOnce() -> T) -> Arc<T> {
        let cached = self.shared_values.borrow().get(&TypeId::of::<T>()).cloned();
        if let Some(value) = cached.and_then(|any| any.downcast::<T>().ok()) {
            return value;
        }
        let computed = Arc::new(compute());
        self.shared_values.borrow_mut().insert(TypeId::of::<T>(), computed.clone());
        computed
    }

    /// The value of type `T` for the text, computed once. Each use has its own type.
    pub(crate) fn for_text<T: 'static>(&self, text: &Text, compute: impl FnOnce(&str) -> T) -> Rc<T> {
        let key = (TypeId::of::<T>(), text.as_ptr() as usize, text.len());
        let cached = self.text_values.borrow().get(&key).map(|(_, value)| value.clone());
        if let Some(value) = cached.and_then(|any| any.downcast::<T>().ok()) {
            return value;
        }
        let computed = Rc::new(compute(text));
        let mut values = self.text_values.borrow_mut();
        reserve_at_first_growth(&mut values);
        values.insert(key, (text.clone(), computed.clone()));
        computed
    }

    /// The value of type `T` for any text with this content, computed once. It serves texts that are not interned, such
    /// as parts of other texts.
    pub(crate) fn for_content<T: 'static>(&self, text: &str, compute: impl FnOnce() -> T) -> Rc<T> {
        let type_id = TypeId::of::<T>();
        if let Some(Some((recent_type, recent_text, value))) =
            self.recent_content.borrow().get(slot(type_id, text))
            && *recent_type == type_id
            && **recent_text == *text
            && let Ok(value) = value.clone().downcast::<T>()
        {
            return value;
        }
        let values = self.content_values.borrow();
        let key = (type_id, values.hasher().hash_one(text));
        if let Some((cached_text, value)) = values.get(&key)
            && **cached_text == *text
            && let Ok(cached) = value.clone().downcast::<T>()
        {
            self.set_recent(type_id, cached_text.clone(), value.clone());
            return cached;
        }
        drop(values);
        let computed = Rc::new(compute());
        let bytes = self.content_bytes.get() + text.len();
        if bytes <= MAX_CONTENT_BYTES {
            self.content_bytes.set(bytes);
            let owned_text: Rc<str> = text.into();
            self.set_recent(type_id, owned_text.clone(), computed.clone());
            let mut values = self.content_values.borrow_mut();
            reserve_at_first_growth(&mut values);
            values.insert(key, (owned_text, computed.clone()));
        }
        computed
    }

    /// Stores the value of a text in its slot.
    fn set_recent(&self, type_id: TypeId, text: Rc<str>, value: Rc<dyn Any>) {
        let mut recent = self.recent_content.borrow_mut();
        // Many traces have no such texts, so that the slots are allocated at their first use.
        if recent.is_empty() {
            recent.resize_with(SLOTS, || None);
        }
        if let Some(entry) = recent.get_mut(slot(type_id, &text)) {
            *entry = Some((type_id, text, value));
        }
    }

    /// The value of type `T` for the trace, computed once. Each use has its own type. A value whose computation
    /// exceeded the budget is incomplete, so that every later use of it exceeds the budget of its metric, too.
    pub(crate) fn trace<T: 'static>(&self, compute: impl FnOnce() -> T) -> Rc<T> {
        let key = TypeId::of::<T>();
        let slot = type_slot(key);
        if let Some(Some((type_id, recent))) = self.recent_trace_values.borrow().get(slot)
            && *type_id == key
            && let Ok(value) = recent.clone().downcast::<T>()
        {
            return value;
        }
        let cached = self.trace_values.borrow().get(&key).cloned();
        if let Some((value, incomplete)) = cached
            && let Ok(value) = value.downcast::<T>()
        {
            match incomplete {
                true => self.budget.exceed(),
                false => {
                    let mut recent = self.recent_trace_values.borrow_mut();
                    recent.get_mut(slot).into_iter().for_each(|entry| *entry = Some((key, value.clone())));
                }
            }
            return value;
        }
        let computed = Rc::new(compute());
        let mut values = self.trace_values.borrow_mut();
        reserve_at_first_growth(&mut values);
        values.insert(key, (computed.clone(), self.budget.is_exceeded()));
        computed
    }

    /// The value of type `T` for the trace, which is empty at first and which its users fill. Each use has its own
    /// type.
    pub(crate) fn shared<T: Default + 'static>(&self) -> Rc<T> {
        let mut values = self.trace_values.borrow_mut();
        let (value, _) = values.entry(TypeId::of::<T>()).or_insert_with(|| (Rc::new(T::default()), false));
        value.clone().downcast::<T>().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct WordCount(usize);

    #[test]
    fn value_is_computed_once_per_text() {
        let memo = Memo::new();
        let text = Text::from("one two three");
        let mut reads = 0;
        for _ in 0..3 {
            let words = memo.for_text(&text.clone(), |t| {
                reads += 1;
                WordCount(t.split(' ').count())
            });
            assert_eq!(words.0, 3);
        }
        assert_eq!(reads, 1);
        assert_eq!(memo.for_text(&Text::from("one"), |t| WordCount(t.split(' ').count())).0, 1);
        // The memo stores the text, so that its address is not reused.
        let lone = Text::from("lone");
        let address = lone.as_ptr();
        memo.for_text(&lone, |_| WordCount(1));
        drop(lone);
        assert!((0..64).all(|_| Text::from("next").as_ptr() != address));
        let part = |memo: &Memo, count| memo.for_content(&"one two"[..3], || WordCount(count)).0;
        assert_eq!((part(&memo, 1), part(&memo, 2)), (1, 1));
        let long = "x".repeat(MAX_CONTENT_BYTES);
        assert_eq!(memo.for_content(&long, || WordCount(1)).0, 1);
        assert_eq!(memo.for_content(&long, || WordCount(2)).0, 2, "texts beyond the limit are not stored");
        assert_eq!(memo.trace(|| WordCount(7)).0, 7);
        assert_eq!(memo.trace(|| WordCount(8)).0, 7);
        assert_eq!(memo.shared_value(|| WordCount(9)).0, 9);
        let next = Memo::new().with_shared_values(memo.into_shared_values());
        assert_eq!((next.shared_value(|| WordCount(10)).0, next.trace(|| WordCount(10)).0), (9, 10));
    }
}
