//! What was computed of a text or a trace, kept while that trace is measured.
//!
//! Every call of a run repeats the system prompt, and every later one the history. Texts are
//! interned, so that an address identifies a text.

use std::any::{Any, TypeId};
use std::cell::RefCell;
use std::rc::Rc;

use foldhash::HashMap;

use crate::recognise::Text;

/// What was computed, by its type and the address and length of its text. The text is kept, so
/// that no other can get its address.
type OfText = HashMap<(TypeId, usize, usize), (Text, Rc<dyn Any>)>;

/// Keyed by the type that was computed and the text's address.
#[derive(Default)]
pub struct Memo {
    of_text: RefCell<OfText>,
    of_trace: RefCell<HashMap<TypeId, Rc<dyn Any>>>,
}

impl Memo {
    pub fn new() -> Memo {
        Memo::default()
    }

    /// `T` for this very text: computed once. Each use has a type of its own.
    pub fn of<T: 'static>(&self, text: &Text, work: impl FnOnce(&str) -> T) -> Rc<T> {
        let key = (TypeId::of::<T>(), text.as_ptr() as usize, text.len());
        let known = self.of_text.borrow().get(&key).map(|(_, known)| known.clone());
        if let Some(known) = known.and_then(|any| any.downcast::<T>().ok()) {
            return known;
        }
        let made = Rc::new(work(text));
        self.of_text.borrow_mut().insert(key, (text.clone(), made.clone()));
        made
    }

    /// `T` for the whole trace: computed once. Each use has a type of its own.
    pub fn trace<T: 'static>(&self, work: impl FnOnce() -> T) -> Rc<T> {
        let key = TypeId::of::<T>();
        let known = self.of_trace.borrow().get(&key).cloned();
        if let Some(known) = known.and_then(|any| any.downcast::<T>().ok()) {
            return known;
        }
        let made = Rc::new(work());
        self.of_trace.borrow_mut().insert(key, made.clone());
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Words(usize);

    #[test]
    fn a_text_seen_before_is_not_read_again() {
        let memo = Memo::new();
        let text = Text::from("one two three");
        let mut reads = 0;
        for _ in 0..3 {
            let words = memo.of(&text.clone(), |t| {
                reads += 1;
                Words(t.split(' ').count())
            });
            assert_eq!(words.0, 3);
        }
        assert_eq!(reads, 1);
        assert_eq!(memo.of(&Text::from("one"), |t| Words(t.split(' ').count())).0, 1);
        // A text that nobody else keeps: its address stays taken.
        let lone = Text::from("lone");
        let address = lone.as_ptr();
        memo.of(&lone, |_| Words(1));
        drop(lone);
        assert!((0..64).all(|_| Text::from("next").as_ptr() != address));
        assert_eq!(memo.trace(|| Words(7)).0, 7);
        assert_eq!(memo.trace(|| Words(8)).0, 7);
    }
}
