//! JSON Schema validation at a bounded cost: arguments of calls against the schemas in the trace,
//! answers of judges against the requested schema.
//!
//! In: a schema, compiled once, and a value. Out: whether the value is valid, its problems, and the
//! number of steps taken. Schemas come with traces and are untrusted: nothing is fetched, and a
//! check that exceeds its limit of steps ends as [`Validity::Indeterminate`], which neither passes
//! nor fails anything.

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

/// Most steps of one check, some tens of milliseconds: a list of ten thousand objects of ten
/// members takes half of them.
pub(crate) const MAX_STEPS: u64 = 1 << 20;

/// Whether a value is valid against a schema.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Validity {
    Valid,
    Invalid,
    /// A part of the schema is malformed or refers to another document, or the check would take too
    /// many steps.
    Indeterminate,
}

/// The result of a check.
#[derive(Clone, PartialEq, Debug)]
pub struct Validation {
    pub validity: Validity,
    /// The problems of an invalid value, at most eight.
    pub problems: Vec<SchemaProblem>,
    /// Steps taken: a measure of time that does not depend on the machine.
    pub steps: u64,
}

impl Schema {
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

/// A schema, compiled.
type CachedSchema = (Arc<Value>, Rc<Schema>);

/// The compiled schemas of a trace's calls, by address. Each schema is kept, so that its address is not
/// reused.
#[derive(Default)]
struct CompiledSchemas(RefCell<HashMap<usize, CachedSchema>>);

thread_local! {
    /// Schemas of earlier traces, the latest first: the conventions' cache of tool definitions shares the schemas of
    /// a service that offers the same tools in every trace.
    static EARLIER: RefCell<VecDeque<CachedSchema>> = const { RefCell::new(VecDeque::new()) };
}

/// Most schemas of earlier traces.
const MAX_EARLIER: usize = 32;
/// Most parts of one of them.
const MAX_EARLIER_NODES: usize = 1000;

/// The schema, compiled.
fn compiled(schema: &Arc<Value>) -> CachedSchema {
    EARLIER.with_borrow_mut(|cache| {
        let at = cache.iter().position(|(cached, _)| Arc::ptr_eq(cached, schema));
        let entry = at.and_then(|at| cache.remove(at));
        let entry = entry.unwrap_or_else(|| (Arc::clone(schema), Rc::new(Schema::compile(schema))));
        if entry.1.nodes.len() <= MAX_EARLIER_NODES {
            cache.truncate(MAX_EARLIER - 1);
            cache.push_front(entry.clone());
        }
        entry
    })
}

/// The problems of `arguments`; none if the check is indeterminate. A check that ends at its limit of steps
/// exceeds the work budget.
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
    let checked = schema.check_within(arguments, limit);
    memo.budget.spend(usize::try_from(checked.steps).unwrap_or(usize::MAX));
    if checked.steps > limit {
        memo.budget.exceed();
    }
    checked.problems
}

/// Names in `arguments` that the schema does not list. None if the schema lists no names, or allows
/// other ones expressly.
pub(crate) fn unlisted<'a>(schema: &Value, arguments: &'a Value) -> Vec<&'a str> {
    let listed = schema.get("properties").and_then(Value::as_object);
    let is_open = !matches!(schema.get("additionalProperties"), None | Some(Value::Bool(false)));
    let Some(listed) = listed.filter(|listed| !listed.is_empty() && !is_open) else { return Vec::new() };
    let given = arguments.as_object().into_iter().flat_map(|given| given.keys());
    given.filter(|name| !listed.contains_key(*name)).map(String::as_str).collect()
}

#[cfg(test)]
mod tests;
