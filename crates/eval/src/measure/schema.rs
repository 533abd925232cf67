//! JSON Schema validation at a bounded cost: arguments of calls against the schemas in the trace, and answers of judges
//! against the requested schema.
//!
//! In: a schema, compiled once, and a value. Out: whether the value is valid, its problems, and the number of steps
//! taken. Schemas of traces are untrusted: remote references are not fetched, and a check that exceeds its limit of
//! steps ends as [`Validity::Indeterminate`], which is neither a pass nor a failure.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use check::{Checker, SchemaFit};
use foldhash::HashMap;
use serde_json::Value;
use verdict_otlp::work;

use super::memo::Memo;

mod check;
pub(crate) mod compile;
mod pattern;
pub(crate) mod problem;

pub(crate) use check::compare_numbers;
pub(crate) use compile::Schema;
pub(crate) use problem::SchemaProblem;

/// Maximum steps of one check, which take some tens of milliseconds. A list of ten thousand objects with ten members
/// takes half of them.
pub(crate) const MAX_STEPS: u64 = 1 << 20;

/// Whether a value is valid against a schema.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Validity {
    Valid,
    Invalid,
    /// Not decided: a part of the schema is malformed or refers to another document, or the check takes too many steps.
    Indeterminate,
}

/// The result of a check.
#[derive(Clone, PartialEq, Debug)]
pub struct Validation {
    pub validity: Validity,
    /// The problems of an invalid value, at most eight.
    pub problems: Vec<SchemaProblem>,
    /// The number of steps taken, a measure of time that does not depend on the machine.
    pub steps: u64,
}

impl Schema {
    /// Validates `value` in at most `MAX_STEPS` steps.
    pub fn check(&self, value: &Value) -> Validation {
        self.check_within(value, MAX_STEPS)
    }

    /// Validates `value` in at most `limit` steps.
    pub fn check_within(&self, value: &Value, limit: u64) -> Validation {
        let mut checker = Checker::new(self, limit);
        let (validity, problems) = match checker.check(value) {
            SchemaFit::Valid => (Validity::Valid, Vec::new()),
            SchemaFit::Invalid(_) => (Validity::Invalid, checker.problems),
            SchemaFit::Unclear => (Validity::Indeterminate, Vec::new()),
        };
        work::count(usize::try_from(checker.steps).unwrap_or(usize::MAX));
        Validation { validity, problems, steps: checker.steps }
    }
}

/// A schema with its compiled form.
type CachedSchema = (Arc<Value>, Rc<Schema>);

/// The compiled schemas of a trace's calls, by address. The schema is stored with its compiled form, so that its
/// address is not reused.
#[derive(Default)]
struct CompiledSchemas(RefCell<HashMap<usize, CachedSchema>>);

thread_local! {
    /// Compiled schemas of earlier traces, the most recently used first: the conventions' cache of tool definitions
    /// shares the schemas of a service that offers the same tools in every trace.
    static RECENT: RefCell<VecDeque<CachedSchema>> = const { RefCell::new(VecDeque::new()) };
}

/// Maximum schemas in [`RECENT`].
const MAX_RECENT: usize = 32;
/// Maximum nodes of a schema in [`RECENT`].
const MAX_RECENT_NODES: usize = 1000;

/// The compiled schema, from [`RECENT`] if it is there.
fn compiled(schema: &Arc<Value>) -> CachedSchema {
    RECENT.with_borrow_mut(|cache| {
        let index = cache.iter().position(|(cached, _)| Arc::ptr_eq(cached, schema));
        let entry = index.and_then(|index| cache.remove(index));
        let entry = entry.unwrap_or_else(|| (Arc::clone(schema), Rc::new(Schema::compile(schema))));
        if entry.1.nodes.len() <= MAX_RECENT_NODES {
            cache.truncate(MAX_RECENT - 1);
            cache.push_front(entry.clone());
        }
        entry
    })
}

/// The problems of `arguments`; none if the check is indeterminate. A check that ends at its limit of steps exceeds the
/// work budget of the metric.
pub(crate) fn problems(memo: &Memo, schema: &Arc<Value>, arguments: &Value) -> Vec<SchemaProblem> {
    let compiled = memo.trace(CompiledSchemas::default);
    let schema = {
        let compile = || {
            let new_entry = self::compiled(schema);
            memo.budget.spend(new_entry.1.nodes.len());
            new_entry
        };
        compiled.0.borrow_mut().entry(Arc::as_ptr(schema) as usize).or_insert_with(compile).1.clone()
    };
    let limit = memo.budget.share().min(MAX_STEPS);
    let validation = schema.check_within(arguments, limit);
    memo.budget.spend(usize::try_from(validation.steps).unwrap_or(usize::MAX));
    if validation.steps > limit {
        memo.budget.exceed();
    }
    validation.problems
}

/// The names in `arguments` that the schema does not list. Empty if the schema lists no names, or explicitly allows
/// others.
pub(crate) fn unlisted<'a>(schema: &Value, arguments: &'a Value) -> Vec<&'a str> {
    let listed = schema.get("properties").and_then(Value::as_object);
    let allows_others = !matches!(schema.get("additionalProperties"), None | Some(Value::Bool(false)));
    let Some(listed) = listed.filter(|listed| !listed.is_empty() && !allows_others) else {
        return Vec::new();
    };
    let names = arguments.as_object().into_iter().flat_map(|members| members.keys());
    names.filter(|name| !listed.contains_key(*name)).map(String::as_str).collect()
}

#[cfg(test)]
mod tests;
