//! Whether a model's output may say what rules on prose look for: one pass over it for several of
//! them, since most outputs say none of it.

use std::cell::Cell;
use std::rc::Rc;

use super::answer::{MAX_ANSWER, masked};
use super::{adrift, claims};
use crate::measure::Memo;
use crate::recognise::Scene;
use verdict_otlp::trace::Idx;

regex!(
    ANY,
    &[claims::BY_TOOL_WORDS, claims::BY_SELF_WORDS, adrift::ANOTHER_WAY_WORDS]
        .map(|words| format!("(?:{words})"))
        .join("|")
);

/// What is known of the outputs of a trace, by span.
pub struct Signs(Vec<Cell<Option<bool>>>);

impl Signs {
    /// Of this scene.
    pub fn of(scene: &Scene, memo: &Memo) -> Rc<Signs> {
        memo.scene(|| Signs(vec![Cell::new(None); scene.readings.len()]))
    }

    /// False where the output of the span at `at` claims no work and speaks of no other way to go about
    /// it.
    pub fn any(&self, scene: &Scene, at: Idx) -> bool {
        let (Some(known), Some(reading)) = (self.0.get(at), scene.readings.get(at)) else { return true };
        if let Some(any) = known.get() {
            return any;
        }
        let text = reading.output_text();
        // Of a longer one the beginning is judged by itself, where other marks may be left open.
        let any = text.len() > MAX_ANSWER || ANY.is_match(&masked(&text));
        known.set(Some(any));
        any
    }
}
