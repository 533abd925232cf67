//! JSON schema validation at a bounded cost: a call's arguments against the schema that the trace
//! shows, answers of judges against the schema that was asked for.
//!
//! In: a schema, compiled once, and a value. Out: whether it fits, where it does not, and how many
//! steps that took. Schemas come with traces and are hostile until shown otherwise: nothing is
//! fetched, and a check that would take more than its steps ends as [`Validity::Indeterminate`],
//! which neither passes nor fails anything.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use check::{Checker, Fit};
use foldhash::HashMap;
use serde_json::Value;

use super::memo::Memo;

mod check;
pub(crate) mod compile;
pub(crate) mod problem;

pub(crate) use compile::Schema;
pub(crate) use problem::Problem;

/// Steps of one check, some tens of milliseconds: a list of ten thousand objects of ten members
/// takes half of them.
pub const MAX_STEPS: u64 = 1 << 20;
/// Steps of all calls of one trace together, half a second.
const TRACE_STEPS: u64 = 1 << 24;
/// Steps that each call of a trace may take in any case: the usual call takes a tenth.
const CALL_STEPS: u64 = 1 << 10;

/// Whether a value fits a schema.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Validity {
    /// It does.
    Valid,
    /// It does not.
    Invalid,
    /// That cannot be told: a part of the schema is malformed, refers to another document, or the
    /// check would take too many steps.
    Indeterminate,
}

/// The result of a check.
#[derive(Clone, PartialEq, Debug)]
pub struct Validation {
    /// Whether the value fits.
    pub validity: Validity,
    /// Where it does not; at most [`problem::MAX_PROBLEMS`], and none unless it is invalid.
    pub problems: Vec<Problem>,
    /// Steps taken, a measure of time that does not depend on the machine.
    pub steps: u64,
}

impl Schema {
    /// Validates `value`.
    pub fn check(&self, value: &Value) -> Validation {
        self.check_within(value, MAX_STEPS)
    }

    /// As [`Schema::check`], in at most some `limit` steps.
    pub fn check_within(&self, value: &Value, limit: u64) -> Validation {
        let mut checker = Checker::new(self, limit);
        let (validity, problems) = match checker.check(value) {
            Fit::Valid => (Validity::Valid, Vec::new()),
            Fit::Invalid(_) => (Validity::Invalid, checker.problems),
            Fit::Unclear => (Validity::Indeterminate, Vec::new()),
        };
        Validation { validity, problems, steps: checker.steps }
    }
}

/// A compiled schema, with the value whose address is its key: an address is not used again while it is held.
type Entry = (Arc<Value>, Rc<Schema>);

/// The compiled schemas of a trace's calls, by the address of the schema, which is kept so that no
/// other can get its address; and the steps that their checks took.
#[derive(Default)]
struct Compiled {
    schemas: RefCell<HashMap<usize, Entry>>,
    steps: Cell<u64>,
}

/// Where `arguments` do not fit `schema`, as far as that can be told.
pub(crate) fn problems(memo: &Memo, schema: &Arc<Value>, arguments: &Value) -> Vec<Problem> {
    let compiled = memo.trace(Compiled::default);
    let schema = {
        let mut schemas = compiled.schemas.borrow_mut();
        let made = || (schema.clone(), Rc::new(Schema::compile(schema)));
        schemas.entry(Arc::as_ptr(schema) as usize).or_insert_with(made).1.clone()
    };
    let left = TRACE_STEPS.saturating_sub(compiled.steps.get());
    let checked = schema.check_within(arguments, left.clamp(CALL_STEPS, MAX_STEPS));
    compiled.steps.set(compiled.steps.get().saturating_add(checked.steps));
    checked.problems
}

/// Names in `arguments` that the schema does not list, where it lists any and does not forbid
/// others outright.
pub(crate) fn unlisted<'a>(schema: &Value, arguments: &'a Value) -> Vec<&'a str> {
    let listed = schema.get("properties").and_then(Value::as_object);
    let open = !matches!(schema.get("additionalProperties"), None | Some(Value::Bool(false)));
    match (listed, arguments.as_object()) {
        (Some(listed), Some(given)) if !listed.is_empty() && !open => {
            given.keys().filter(|name| !listed.contains_key(*name)).map(String::as_str).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
