//! Descriptions of the problems of values that do not match a schema.
//!
//! In: a path within the value, the requirement, and the actual value. Out: a [`SchemaProblem`].

use std::fmt::{self, Write as _};

use serde::de::IgnoredAny;
use serde_json::Value;
use verdict_config::Step;

use crate::measure::defects::{Defect, QUOTE_BYTES};
use crate::measure::excerpt::{clip, head};

/// Maximum problems that are reported for one value.
pub(crate) const MAX_PROBLEMS: usize = 8;
/// Maximum bytes of a value that are shown.
pub(super) const SHOWN_BYTES: usize = 80;

/// One step of a path from a value to a part of it.
#[derive(Clone, Copy, Debug)]
pub(super) enum PathStep<'v> {
    Member(&'v str),
    Item(usize),
}

/// One mismatch of a value and a schema.
#[derive(Clone, Debug, PartialEq)]
pub struct SchemaProblem {
    /// Missing, unknown, or ill-typed.
    pub defect: Defect,
    /// The requirement and the actual value.
    pub rationale: String,
    /// The requirement and the path to its part, without the actual value.
    pub fault: String,
    /// The name of the parameter, without the path to it.
    pub name: String,
    /// Whether the value can be converted to another type (`"5"` to 5), as many frameworks do.
    pub is_coercible: bool,
}

impl SchemaProblem {
    /// The problem of a required member that is missing.
    pub(super) fn missing(path: &[PathStep<'_>], name: &str) -> SchemaProblem {
        let path = [path, &[PathStep::Member(name)]].concat();
        let rationale = format!(
            "the required parameter '{}' was expected; it is missing",
            clip(&dotted(&path), QUOTE_BYTES)
        );
        SchemaProblem::new(&path, Defect::MissingParameter, rationale, "a value was expected; it is missing")
    }

    /// The problem of a member that the schema does not allow.
    pub(super) fn unknown(path: &[PathStep<'_>], name: &str, value: &Value) -> SchemaProblem {
        let path = [path, &[PathStep::Member(name)]].concat();
        let rationale = format!(
            "parameters of the tool's schema were expected; it has no '{}' (here {})",
            clip(&dotted(&path), QUOTE_BYTES),
            shown(value)
        );
        let fault = "nothing was expected; the schema has no such property";
        SchemaProblem::new(&path, Defect::UnknownParameter, rationale, fault)
    }

    /// The problem of a value that does not meet a requirement.
    pub(super) fn ill_typed(path: &[PathStep<'_>], expected: &str, value: &Value) -> SchemaProblem {
        let subject = match dotted(path) {
            path if path.is_empty() => "the arguments".to_owned(),
            path => format!("'{}'", clip(&path, QUOTE_BYTES)),
        };
        let rationale = format!("{subject} was expected to be {expected}; it is {}", shown(value));
        let fault = format!("the value was expected to be {expected}");
        let problem = SchemaProblem::new(path, Defect::IllTypedParameter, rationale, &fault);
        SchemaProblem { is_coercible: may_be_converted(value), ..problem }
    }

    fn new(path: &[PathStep<'_>], defect: Defect, rationale: String, fault: &str) -> SchemaProblem {
        let pointer: String = path.iter().map(pointer_token).collect();
        let name = path.iter().rev().find_map(|step| match step {
            PathStep::Member(name) => Some(clip(name, QUOTE_BYTES).to_owned()),
            PathStep::Item(_) => None,
        });
        let fault = format!("at '{pointer}', {fault}");
        SchemaProblem { defect, rationale, fault, name: name.unwrap_or_default(), is_coercible: false }
    }
}

/// A step of a path as a token of a JSON pointer.
fn pointer_token(step: &PathStep<'_>) -> String {
    match step {
        PathStep::Member(name) => format!("/{}", name.replace('~', "~0").replace('/', "~1")),
        PathStep::Item(i) => format!("/{i}"),
    }
}

/// A path in the form `a.b[0]`.
fn dotted(path: &[PathStep<'_>]) -> String {
    let steps: Vec<Step> = path
        .iter()
        .map(|step| match step {
            PathStep::Member(name) => Step::Key((*name).to_owned()),
            PathStep::Item(i) => Step::Item(*i),
        })
        .collect();
    verdict_config::dotted(&steps)
}

/// The beginning of a value as JSON, at most [`SHOWN_BYTES`].
pub(super) fn shown(value: &Value) -> String {
    head(&json_start(value, SHOWN_BYTES), SHOWN_BYTES).to_owned()
}

/// The beginning of a value as JSON, at most `max` bytes and a few more: a value may have megabytes.
pub(super) fn json_start(value: &Value, max: usize) -> String {
    struct Start(String, usize);
    impl fmt::Write for Start {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.push_str(clip(text, self.1 - self.0.len()));
            if self.0.len() + 4 > self.1 { Err(fmt::Error) } else { Ok(()) }
        }
    }
    // A few bytes more than `max`, so that the caller can see that the text was cut.
    let mut start = Start(String::new(), max + 8);
    // The only error is the one that ends the writing.
    let _ = write!(start, "{value}");
    start.0
}

/// Whether frameworks may convert the value: `null`, which stands for an absent optional value, a scalar that may be
/// written as a string, or a string that contains a scalar.
fn may_be_converted(value: &Value) -> bool {
    match value {
        Value::Null | Value::Number(_) | Value::Bool(_) => true,
        Value::String(text) => {
            let text = text.trim();
            !text.starts_with('"') && serde_json::from_str::<IgnoredAny>(text).is_ok()
        }
        _ => false,
    }
}
