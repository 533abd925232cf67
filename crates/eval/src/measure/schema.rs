//! Values held against JSON schemas, at a bounded cost: a call's arguments against the schema that
//! the trace shows, answers of judges against the schema that was asked for.
//!
//! In: a schema, compiled once, and a value. Out: whether it fits, where it does not, and how many
//! steps that took. Schemas come with traces and are hostile until shown otherwise: nothing is
//! fetched, and a check that would take more than its steps ends as [`Outcome::Indeterminate`],
//! which neither passes nor fails anything.

use std::cell::{Cell, RefCell};
use std::fmt::{self, Write as _};
use std::rc::Rc;
use std::sync::Arc;

use foldhash::HashMap;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::defects::{Defect, QUOTE_BYTES, clip};
use super::excerpt::head;
use super::memo::Memo;
use check::{Checker, Place};

mod check;
mod compile;
mod explain;

pub use compile::Schema;

/// Disagreements reported for one value.
pub const MAX_PROBLEMS: usize = 8;
/// Steps of one check, some tens of milliseconds: a list of ten thousand objects of ten members
/// takes half of them.
pub const MAX_STEPS: u64 = 1 << 20;
/// Steps of all calls of one trace together, half a second.
const SCENE_STEPS: u64 = 1 << 24;
/// Steps that each call of a trace may take in any case: the usual call takes a tenth.
const CALL_STEPS: u64 = 1 << 10;
/// Bytes of a value that are shown.
const SHOWN_BYTES: usize = 80;

/// Whether a value fits a schema.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It does.
    Valid,
    /// It does not.
    Invalid,
    /// That cannot be told: a part of the schema is malformed, refers to another document, or the
    /// check would take too many steps.
    Indeterminate,
}

/// What came of a check.
#[derive(Clone, PartialEq, Debug)]
pub struct Checked {
    /// Whether the value fits.
    pub outcome: Outcome,
    /// Where it does not; at most [`MAX_PROBLEMS`], and none unless it is invalid.
    pub problems: Vec<Problem>,
    /// Steps taken, a measure of time that does not depend on the machine.
    pub steps: u64,
}

/// One disagreement.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// Missing, unknown, or ill-typed.
    pub defect: Defect,
    /// What was expected and what was seen.
    pub rationale: String,
    /// What was expected and where, without the value that was seen.
    pub fault: String,
    /// The parameter in question, without the path to it.
    pub name: String,
    /// The value says the same in another type (`"5"` for 5), as many frameworks accept.
    pub coercible: bool,
}

impl Schema {
    /// Holds `value` against it.
    pub fn check(&self, value: &Value) -> Checked {
        self.check_within(value, MAX_STEPS)
    }

    /// As [`Schema::check`], in at most some `limit` steps.
    pub fn check_within(&self, value: &Value, limit: u64) -> Checked {
        let mut checker = Checker::new(self, limit);
        let outcome = checker.outcome(value);
        let problems = if outcome == Outcome::Invalid { checker.found } else { Vec::new() };
        Checked { outcome, problems, steps: checker.steps }
    }
}

/// A schema with the value it was read from, which is kept so that its address stays its own.
type Read = (Arc<Value>, Rc<Schema>);

/// The schemas that calls of a trace were held against, by their address, and the steps that took.
#[derive(Default)]
struct Compiled {
    schemas: RefCell<HashMap<usize, Read>>,
    steps: Cell<u64>,
}

/// Where `arguments` and `schema` disagree, as far as that can be told.
pub fn problems(memo: &Memo, schema: &Arc<Value>, arguments: &Value) -> Vec<Problem> {
    let compiled = memo.trace(Compiled::default);
    let schema = {
        let mut schemas = compiled.schemas.borrow_mut();
        let made = || (schema.clone(), Rc::new(Schema::compile(schema)));
        schemas.entry(Arc::as_ptr(schema) as usize).or_insert_with(made).1.clone()
    };
    let left = SCENE_STEPS.saturating_sub(compiled.steps.get());
    let checked = schema.check_within(arguments, left.clamp(CALL_STEPS, MAX_STEPS));
    compiled.steps.set(compiled.steps.get().saturating_add(checked.steps));
    checked.problems
}

/// Names in `arguments` that the schema does not list, where it lists any and does not forbid
/// others outright.
pub fn unlisted<'a>(schema: &Value, arguments: &'a Value) -> Vec<&'a str> {
    let listed = schema.get("properties").and_then(Value::as_object);
    let open = !matches!(schema.get("additionalProperties"), None | Some(Value::Bool(false)));
    match (listed, arguments.as_object()) {
        (Some(listed), Some(given)) if !listed.is_empty() && !open => {
            given.keys().filter(|name| !listed.contains_key(*name)).map(String::as_str).collect()
        }
        _ => Vec::new(),
    }
}

impl Problem {
    fn missing(path: &[Place<'_>], name: &str) -> Problem {
        let path = [path, &[Place::Member(name)]].concat();
        let what = format!("the required parameter '{}'", clip(&dotted(&path), QUOTE_BYTES));
        Problem {
            defect: Defect::MissingParameter,
            rationale: format!("{what} was expected; it is missing"),
            fault: format!("at '{}', a value was expected; it is missing", pointer(&path)),
            name: last(&path),
            coercible: false,
        }
    }

    fn unknown(path: &[Place<'_>], name: &str, value: &Value) -> Problem {
        let path = [path, &[Place::Member(name)]].concat();
        Problem {
            defect: Defect::UnknownParameter,
            rationale: format!(
                "parameters of the tool's schema were expected; it has no '{}' (here {})",
                clip(&dotted(&path), QUOTE_BYTES),
                shown(value)
            ),
            fault: format!("at '{}', nothing was expected; the schema has no such property", pointer(&path)),
            name: last(&path),
            coercible: false,
        }
    }

    fn ill_typed(path: &[Place<'_>], wanted: &str, value: &Value) -> Problem {
        let place = match dotted(path) {
            path if path.is_empty() => "the arguments".to_owned(),
            path => format!("'{}'", clip(&path, QUOTE_BYTES)),
        };
        Problem {
            defect: Defect::IllTypedParameter,
            rationale: format!("{place} was expected to be {wanted}; it is {}", shown(value)),
            fault: format!("at '{}', the value was expected to be {wanted}", pointer(path)),
            name: last(path),
            coercible: coercible(value),
        }
    }
}

fn dotted(path: &[Place<'_>]) -> String {
    let mut out = String::new();
    for place in path {
        match place {
            Place::Here => {}
            Place::Member(name) if out.is_empty() => out.push_str(name),
            Place::Member(name) => out.extend([".", name]),
            Place::Item(i) => out.push_str(&format!("[{i}]")),
        }
    }
    out
}

fn pointer(path: &[Place<'_>]) -> String {
    let mut out = String::new();
    for place in path {
        match place {
            Place::Here => {}
            Place::Member(name) => out.extend(["/", &name.replace('~', "~0").replace('/', "~1")]),
            Place::Item(i) => out.push_str(&format!("/{i}")),
        }
    }
    out
}

/// The name at the end of a path.
fn last(path: &[Place<'_>]) -> String {
    let name = path.iter().rev().find_map(|place| match place {
        Place::Member(name) => Some(*name),
        Place::Here | Place::Item(_) => None,
    });
    clip(name.unwrap_or_default(), QUOTE_BYTES).to_owned()
}

/// The beginning of a value.
fn shown(value: &Value) -> String {
    head(&written(value, SHOWN_BYTES), SHOWN_BYTES).to_owned()
}

/// A value as JSON, broken off where it is longer than `max`: it may have megabytes.
fn written(value: &Value, max: usize) -> String {
    struct Beginning(String, usize);
    impl fmt::Write for Beginning {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.push_str(clip(text, self.1 - self.0.len()));
            if self.0.len() + 4 > self.1 { Err(fmt::Error) } else { Ok(()) }
        }
    }
    // Room for whole characters after the cut, by which a caller sees that there is one.
    let mut beginning = Beginning(String::new(), max + 8);
    // Breaking off is no failure, and there is no other.
    let _ = write!(beginning, "{value}");
    beginning.0
}

/// `null` for an optional value, or a scalar written as a string or the other way round.
fn coercible(value: &Value) -> bool {
    match value {
        Value::Null | Value::Number(_) | Value::Bool(_) => true,
        Value::String(text) => {
            let text = text.trim();
            !text.starts_with('"') && serde_json::from_str::<IgnoredAny>(text).is_ok()
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
