//! Validation of a value against a compiled schema, in counted steps.
//!
//! In: a node of a [`Schema`] and a value. Out: a [`SchemaFit`]: valid, invalid, or unclear where a part cannot be
//! checked. On request the same traversal reports the problems of an invalid value. A node to which several references
//! point is checked once for each value, so that the number of steps is at most linear in the size of the schema times
//! the size of the value. Beyond the limit of steps every result is unclear.

use std::cmp::Ordering;

use foldhash::{HashMap, HashSet};
use serde_json::{Map, Number, Value};

use super::compile::{
    NEVER, ObjectMembers, Quantity, QuantityBound, ROOT, Schema, SchemaRule, UNCLEAR, is_type,
};
use super::pattern::SchemaPattern;
use super::problem::{MAX_PROBLEMS, PathStep, SchemaProblem};

/// Maximum depth of nested schemas: a level takes some kilobytes of stack in a debug build. Usual schemas and values
/// have a few dozen levels.
const MAX_DEPTH: usize = 128;
/// Maximum alternatives that one problem names, and maximum references that are followed to name one.
const MAX_NAMED: usize = 8;
/// The weight of a mismatch of type in the search for the nearest of several alternatives.
const TYPE_WEIGHT: u32 = 1 << 12;
/// The weight of a mismatch of a constant or enumeration, which usually distinguishes alternatives.
const CHOICE_WEIGHT: u32 = 1 << 6;
/// Steps for each byte of a text that is matched against a pattern with a counted repetition, whose automaton may have
/// thousands of states.
const REPETITION_STEPS_PER_BYTE: u64 = 64;
/// Steps for compiling a pattern: for each of its bytes, and in addition if it has counted repetitions.
const COMPILE_STEPS: (u64, u64) = (256, 1 << 15);

/// The result of checking a value against a schema.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum SchemaFit {
    Valid,
    Unclear,
    /// The value does not match, by this weight.
    Invalid(u32),
}

impl SchemaFit {
    /// The result of two requirements together.
    fn and(self, other: SchemaFit) -> SchemaFit {
        match (self, other) {
            // A mismatch of type has the largest weight, which many small mismatches together do not reach.
            (SchemaFit::Invalid(a), SchemaFit::Invalid(b)) if a.max(b) < TYPE_WEIGHT => {
                SchemaFit::Invalid((a + b).min(TYPE_WEIGHT - 1))
            }
            (SchemaFit::Invalid(a), SchemaFit::Invalid(b)) => SchemaFit::Invalid(a.max(b)),
            (SchemaFit::Invalid(a), _) | (_, SchemaFit::Invalid(a)) => SchemaFit::Invalid(a),
            (SchemaFit::Unclear, _) | (_, SchemaFit::Unclear) => SchemaFit::Unclear,
            _ => SchemaFit::Valid,
        }
    }

    /// The result of a requirement: `None` is unclear.
    fn from_validity(is_valid: Option<bool>, weight: u32) -> SchemaFit {
        match is_valid {
            Some(true) => SchemaFit::Valid,
            Some(false) => SchemaFit::Invalid(weight),
            None => SchemaFit::Unclear,
        }
    }

    pub(super) fn is_invalid(self) -> bool {
        matches!(self, SchemaFit::Invalid(_))
    }
}

/// One validation of one value.
pub(super) struct Checker<'s, 'v> {
    schema: &'s Schema,
    pub(super) steps: u64,
    limit: u64,
    depth: usize,
    /// Cached results of shared nodes, by node and address of the value. Other nodes are checked once.
    fits: HashMap<(u32, usize), SchemaFit>,
    /// The shared nodes and values whose mismatches were reported.
    reported: HashSet<(u32, usize)>,
    /// The path from the document to the current value.
    path: Vec<PathStep<'v>>,
    pub(super) problems: Vec<SchemaProblem>,
}

impl<'s, 'v> Checker<'s, 'v> {
    pub(super) fn new(schema: &'s Schema, limit: u64) -> Checker<'s, 'v> {
        Checker {
            schema,
            steps: 0,
            limit,
            depth: 0,
            fits: HashMap::default(),
            reported: HashSet::default(),
            path: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// Checks `value` against the whole document and collects the problems of an invalid value.
    pub(super) fn check(&mut self, value: &'v Value) -> SchemaFit {
        let fit = self.fit(ROOT, value, false);
        if fit.is_invalid() {
            self.fit(ROOT, value, true);
        }
        if self.is_within_limit() { fit } else { SchemaFit::Unclear }
    }

    fn is_within_limit(&self) -> bool {
        self.steps <= self.limit
    }

    /// Counts steps; returns false beyond the limit.
    fn charge(&mut self, steps: usize) -> bool {
        self.steps = self.steps.saturating_add(steps as u64);
        self.is_within_limit()
    }

    /// Checks a value against a node. If `report`, also collects the problems.
    fn fit(&mut self, index: u32, value: &'v Value, report: bool) -> SchemaFit {
        let Some(node) = self.schema.nodes.get(index as usize).filter(|_| self.charge(1)) else {
            return SchemaFit::Unclear;
        };
        if node.is_nullable && value.is_null() {
            return SchemaFit::Valid;
        }
        let key = (index, std::ptr::from_ref(value) as usize);
        let cached_fit = self.fits.get(&key).filter(|_| node.is_shared).copied();
        if let Some(fit) = cached_fit
            && !(report && fit.is_invalid() && self.reported.insert(key))
        {
            return fit;
        }
        if self.depth >= MAX_DEPTH || report && self.problems.len() >= MAX_PROBLEMS {
            return SchemaFit::Unclear;
        }
        if node.is_shared && cached_fit.is_none() {
            // A reference that leads back to the same node and value is unclear.
            self.fits.insert(key, SchemaFit::Unclear);
        }
        self.depth += 1;
        let fit = self.rules(&node.rules, value, report);
        self.depth -= 1;
        if node.is_shared && cached_fit.is_none() {
            self.fits.insert(key, fit);
        }
        fit
    }

    /// Checks the rules of a node. After a mismatch of type, the other rules are skipped.
    fn rules(&mut self, rules: &'s [SchemaRule], value: &'v Value, report: bool) -> SchemaFit {
        let mut combined_fit = SchemaFit::Valid;
        for rule in rules {
            let fit = self.rule(rule, value, report);
            if matches!((rule, fit), (SchemaRule::Type(_), SchemaFit::Invalid(_))) {
                return fit;
            }
            combined_fit = combined_fit.and(fit);
        }
        combined_fit
    }

    /// Checks one rule of a node. If `report`, also collects the problems.
    fn rule(&mut self, rule: &'s SchemaRule, value: &'v Value, report: bool) -> SchemaFit {
        if !self.charge(1) {
            return SchemaFit::Unclear;
        }
        match (rule, value) {
            (SchemaRule::All(schemas), _) => {
                self.all(schemas, |checker, schema| checker.fit(*schema, value, report))
            }
            (SchemaRule::Alternatives { branches, only_one }, _) => {
                self.alternatives(branches, *only_one, value, report)
            }
            (SchemaRule::If(condition, then, otherwise), _) => {
                let branch = match self.fit(*condition, value, false) {
                    SchemaFit::Valid => *then,
                    SchemaFit::Unclear => Some(UNCLEAR),
                    SchemaFit::Invalid(_) => *otherwise,
                };
                branch.map_or(SchemaFit::Valid, |schema| self.fit(schema, value, report))
            }
            (SchemaRule::Required(names), Value::Object(members)) => {
                self.charge(names.len());
                self.all(names.iter().filter(|name| !members.contains_key(*name)), |checker, name| {
                    checker.report(report, |path| SchemaProblem::missing(path, name));
                    SchemaFit::Invalid(1)
                })
            }
            (SchemaRule::Members(schemas), Value::Object(members)) => {
                self.all(members, |checker, (name, value)| checker.member(schemas, name, value, report))
            }
            (SchemaRule::Items { first, rest }, Value::Array(items)) => {
                let schemas = first.iter().copied().chain(rest.iter().copied().cycle());
                self.all(items.iter().zip(schemas).enumerate(), |checker, (i, (item, schema))| {
                    checker.part(PathStep::Item(i), schema, item, report)
                })
            }
            _ => {
                let fit = self.value_rule(rule, value);
                if fit.is_invalid() {
                    self.report(report, |path| SchemaProblem::ill_typed(path, &rule.expectation(), value));
                }
                fit
            }
        }
    }

    /// Checks a rule whose mismatch is a single problem of the value itself.
    fn value_rule(&mut self, rule: &'s SchemaRule, value: &'v Value) -> SchemaFit {
        match (rule, value) {
            (SchemaRule::Unclear, _) => SchemaFit::Unclear,
            (SchemaRule::Never, _) => SchemaFit::Invalid(1),
            (SchemaRule::Not(schema), _) => match self.fit(*schema, value, false) {
                SchemaFit::Valid => SchemaFit::Invalid(1),
                SchemaFit::Unclear => SchemaFit::Unclear,
                SchemaFit::Invalid(_) => SchemaFit::Valid,
            },
            (SchemaRule::Type(names), _) => {
                SchemaFit::from_validity(Some(names.iter().any(|name| is_type(name, value))), TYPE_WEIGHT)
            }
            (SchemaRule::Choice(options), _) => SchemaFit::from_validity(
                Some(options.iter().any(|option| self.are_equal(option, value))),
                CHOICE_WEIGHT,
            ),
            (SchemaRule::Names(schema), Value::Object(members)) => self.names(*schema, members),
            (SchemaRule::Contains { item, min_count, max_count }, Value::Array(items)) => {
                self.contains(*item, *min_count, *max_count, items)
            }
            (SchemaRule::Bound(bound), _) => SchemaFit::from_validity(self.is_within(bound, value), 1),
            (SchemaRule::Multiple(step), Value::Number(number)) => {
                let quotient = number.as_f64().map(|number| number / step);
                // Quotients of decimals such as 19.99 / 0.01 are whole numbers up to a rounding error.
                let is_whole = |q: f64| !q.is_finite() || (q - q.round()).abs() <= 1e-9 * q.abs().max(1.0);
                SchemaFit::from_validity(quotient.map(is_whole), 1)
            }
            (SchemaRule::Pattern(pattern), Value::String(text)) => {
                SchemaFit::from_validity(self.matches(pattern, text), 1)
            }
            (SchemaRule::Unique, Value::Array(items)) => {
                let mut pairs =
                    items.iter().enumerate().flat_map(|(i, a)| items.iter().take(i).map(move |b| (a, b)));
                SchemaFit::from_validity(Some(!pairs.any(|(a, b)| self.are_equal(a, b))), 1)
            }
            _ => SchemaFit::Valid,
        }
    }

    /// Adds a problem if `report` is set and there are not too many.
    fn report(&mut self, report: bool, problem: impl FnOnce(&[PathStep<'v>]) -> SchemaProblem) {
        if report && self.problems.len() < MAX_PROBLEMS && self.charge(1) {
            let problem = problem(&self.path);
            // Several parts of a schema may have the same requirement.
            if !self.problems.contains(&problem) {
                self.problems.push(problem);
            }
        }
    }

    /// Checks all `parts`, until there are as many mismatches as can be reported.
    fn all<T>(
        &mut self,
        parts: impl IntoIterator<Item = T>,
        mut check: impl FnMut(&mut Self, T) -> SchemaFit,
    ) -> SchemaFit {
        let (mut all, mut invalid_count) = (SchemaFit::Valid, 0);
        for part in parts {
            if invalid_count >= MAX_PROBLEMS || !self.is_within_limit() {
                break;
            }
            let fit = check(self, part);
            all = all.and(fit);
            invalid_count += usize::from(fit.is_invalid());
        }
        all
    }

    /// Checks a part of a value. Its mismatch has a lower weight than a mismatch of the value itself.
    fn part(&mut self, step: PathStep<'v>, schema: u32, value: &'v Value, report: bool) -> SchemaFit {
        self.path.push(step);
        let fit = self.fit(schema, value, report);
        self.path.pop();
        match fit {
            SchemaFit::Invalid(TYPE_WEIGHT..) => SchemaFit::Invalid(4),
            SchemaFit::Invalid(weight) => SchemaFit::Invalid((weight / 2).max(1)),
            fit => fit,
        }
    }

    /// Checks a member of an object by its name, by the patterns that match it, or else as an additional one.
    fn member(
        &mut self,
        members: &'s ObjectMembers,
        name: &'v str,
        value: &'v Value,
        report: bool,
    ) -> SchemaFit {
        if !self.charge(1 + members.matching.len()) {
            return SchemaFit::Unclear;
        }
        let step = PathStep::Member(name);
        let named_schema = members.named.get(name).copied();
        let mut is_covered = named_schema.is_some();
        let mut all = named_schema.map_or(SchemaFit::Valid, |schema| self.part(step, schema, value, report));
        for (pattern, schema) in &members.matching {
            let schema = match self.matches(pattern, name) {
                Some(false) => continue,
                Some(true) => *schema,
                None => UNCLEAR,
            };
            is_covered = true;
            all = all.and(self.part(step, schema, value, report));
        }
        match members.additional.filter(|_| !is_covered) {
            Some(NEVER) => {
                self.report(report, |path| SchemaProblem::unknown(path, name, value));
                SchemaFit::Invalid(1)
            }
            Some(schema) => self.part(step, schema, value, report),
            None => all,
        }
    }

    /// Checks `anyOf`, or `oneOf` if `only_one`. The result and the problems of a mismatch are those of the nearest
    /// alternative.
    fn alternatives(
        &mut self,
        branches: &'s [u32],
        only_one: bool,
        value: &'v Value,
        report: bool,
    ) -> SchemaFit {
        let (mut valid_count, mut has_unclear, mut least_weight, mut nearest) = (0, false, TYPE_WEIGHT, None);
        for branch in branches {
            match self.fit(*branch, value, false) {
                SchemaFit::Valid => valid_count += 1,
                SchemaFit::Unclear => has_unclear = true,
                SchemaFit::Invalid(weight) if weight < least_weight => {
                    (least_weight, nearest) = (weight, Some(*branch))
                }
                SchemaFit::Invalid(weight) if weight == least_weight => nearest = None,
                SchemaFit::Invalid(_) => {}
            }
            if !self.is_within_limit() || valid_count > usize::from(only_one) {
                break;
            }
        }
        match valid_count {
            2.. => {
                let expected = "valid by only one of the alternatives in the tool's schema";
                self.report(report, |path| SchemaProblem::ill_typed(path, expected, value));
                return SchemaFit::Invalid(1);
            }
            // An unclear branch may also be valid.
            1 if only_one && has_unclear => return SchemaFit::Unclear,
            1 => return SchemaFit::Valid,
            0 if has_unclear => return SchemaFit::Unclear,
            0 if !report => return SchemaFit::Invalid(least_weight),
            0 => {}
        }
        if let Some(branch) = nearest {
            return self.fit(branch, value, true);
        }
        let mut types: Vec<String> = Vec::new();
        for branch in branches {
            let name = self.type_of(*branch);
            if types.len() < MAX_NAMED && !types.contains(&name) {
                types.push(name);
            }
        }
        self.report(true, |path| SchemaProblem::ill_typed(path, &types.join(" or "), value));
        SchemaFit::Invalid(least_weight)
    }

    /// The types that a node requires, directly or by references.
    fn type_of(&mut self, mut index: u32) -> String {
        self.charge(1);
        for _ in 0..MAX_NAMED {
            match self.schema.nodes.get(index as usize).map(|node| node.rules.as_slice()) {
                Some([SchemaRule::Type(names), ..]) => return names.join(" or "),
                Some([SchemaRule::All(schemas), ..]) if schemas.len() == 1 => index = schemas[0],
                _ => break,
            }
        }
        "another shape".to_owned()
    }

    /// Checks `propertyNames`. Each name is a temporary value with a separate checker, since its address may be reused.
    fn names(&mut self, schema: u32, members: &Map<String, Value>) -> SchemaFit {
        self.all(members.keys(), |checker, name| {
            let name = Value::String(name.clone());
            let mut name_checker = Checker::new(checker.schema, checker.limit.saturating_sub(checker.steps));
            name_checker.depth = checker.depth;
            let fit = name_checker.fit(schema, &name, false);
            checker.steps = checker.steps.saturating_add(name_checker.steps);
            fit
        })
    }

    /// Checks `contains` with the bounds on the number of matching items.
    fn contains(
        &mut self,
        schema: u32,
        min_count: u64,
        max_count: Option<u64>,
        items: &'v [Value],
    ) -> SchemaFit {
        let (mut valid_count, mut has_unclear) = (0, false);
        for item in items {
            let fit = self.fit(schema, item, false);
            valid_count += u64::from(fit == SchemaFit::Valid);
            has_unclear |= fit == SchemaFit::Unclear;
            if !self.is_within_limit() {
                return SchemaFit::Unclear;
            }
        }
        SchemaFit::from_validity(
            (!has_unclear)
                .then(|| valid_count >= min_count && max_count.is_none_or(|max| valid_count <= max)),
            1,
        )
    }

    /// Whether the quantity of a value is within a bound; `None` if the numbers cannot be compared.
    fn is_within(&mut self, bound: &QuantityBound, value: &Value) -> Option<bool> {
        let size = match (bound.quantity, value) {
            (Quantity::Value, Value::Number(number)) => number.clone(),
            (Quantity::Characters, Value::String(text)) => {
                self.charge(text.len() / 16);
                text.chars().count().into()
            }
            (Quantity::Items, Value::Array(items)) => items.len().into(),
            (Quantity::Properties, Value::Object(members)) => members.len().into(),
            _ => return Some(true),
        };
        let order = compare_numbers(&size, &bound.limit)?;
        let order = if bound.is_upper { order.reverse() } else { order };
        Some(order.is_gt() || order.is_eq() && !bound.is_exclusive)
    }

    /// Whether the text matches; `None` if the pattern is not supported, or if the limit of steps is exceeded.
    fn matches(&mut self, pattern: &SchemaPattern, text: &str) -> Option<bool> {
        let has_repetition = pattern.text.contains('{');
        if !pattern.is_compiled() {
            let (byte, repetition) = COMPILE_STEPS;
            self.steps += byte * pattern.text.len() as u64 + if has_repetition { repetition } else { 0 };
        }
        self.steps += text.len() as u64 * if has_repetition { REPETITION_STEPS_PER_BYTE } else { 1 };
        pattern.regex().filter(|_| self.is_within_limit()).map(|regex| regex.is_match(text))
    }

    /// Whether JSON values are equal: 1 equals 1.0, and the order of members is ignored. False beyond the limit of
    /// steps.
    fn are_equal(&mut self, a: &Value, b: &Value) -> bool {
        self.charge(1)
            && match (a, b) {
                (Value::Number(a), Value::Number(b)) => compare_numbers(a, b) == Some(Ordering::Equal),
                (Value::String(a), Value::String(b)) => {
                    a.len() == b.len() && self.charge(a.len() / 64) && a == b
                }
                (Value::Array(a), Value::Array(b)) => {
                    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| self.are_equal(a, b))
                }
                (Value::Object(a), Value::Object(b)) => {
                    let mut members = a.iter();
                    a.len() == b.len()
                        && members.all(|(name, a)| b.get(name).is_some_and(|b| self.are_equal(a, b)))
                }
                (a, b) => a == b,
            }
    }
}

/// Compares two numbers, integers exactly; `None` if they cannot be compared.
pub(crate) fn compare_numbers(a: &Number, b: &Number) -> Option<Ordering> {
    match (a.as_i128(), b.as_i128()) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        _ => a.as_f64()?.partial_cmp(&b.as_f64()?),
    }
}
