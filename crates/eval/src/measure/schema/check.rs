//! Validation of a value against a compiled schema, in counted steps.
//!
//! In: a node of a [`Schema`] and a value. Out: a [`SchemaFit`]: valid, invalid, or unclear where a part
//! cannot be checked. On request the same walk reports the problems of an invalid value. A node that
//! several references share is checked once for each value, so the number of steps is at most linear
//! in schema times value, however references fan out; beyond the limit of steps every result is
//! unclear.

use std::cmp::Ordering;

use foldhash::{HashMap, HashSet};
use serde_json::{Map, Number, Value};

use super::compile::{
    NEVER, ObjectMembers, Quantity, QuantityBound, ROOT, Schema, SchemaRule, UNCLEAR, is_type,
};
use super::pattern::SchemaPattern;
use super::problem::{MAX_PROBLEMS, PathStep, SchemaProblem};

/// Most schemas that are applied within each other: a level takes some kilobytes of stack in a
/// debug build. Usual schemas and values take a few dozen levels.
const MAX_DEPTH: usize = 128;
/// Most alternatives named in one problem, and most references followed to name one.
const MAX_NAMED: usize = 8;
/// Weights of mismatches in the search for the nearest of several alternatives: another type of
/// value, and another constant, which usually distinguishes alternatives.
const OTHER_TYPE: u32 = 1 << 12;
const OTHER_CHOICE: u32 = 1 << 6;
/// Steps for each byte of a text that is matched against a pattern with a counted repetition, which
/// may make a program of thousands of states.
const REPEATED: u64 = 64;
/// Steps for compiling a pattern: for each of its bytes, and for a counted repetition.
const COMPILING: (u64, u64) = (256, 1 << 15);

/// Whether a value fits a schema.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum SchemaFit {
    Valid,
    Unclear,
    /// With the weight of the mismatch.
    Invalid(u32),
}

impl SchemaFit {
    fn and(self, other: SchemaFit) -> SchemaFit {
        match (self, other) {
            // A value of another type has the largest weight; many small mismatches stay below it.
            (SchemaFit::Invalid(a), SchemaFit::Invalid(b)) if a.max(b) < OTHER_TYPE => {
                SchemaFit::Invalid((a + b).min(OTHER_TYPE - 1))
            }
            (SchemaFit::Invalid(a), SchemaFit::Invalid(b)) => SchemaFit::Invalid(a.max(b)),
            (SchemaFit::Invalid(a), _) | (_, SchemaFit::Invalid(a)) => SchemaFit::Invalid(a),
            (SchemaFit::Unclear, _) | (_, SchemaFit::Unclear) => SchemaFit::Unclear,
            _ => SchemaFit::Valid,
        }
    }

    fn from_validity(valid: Option<bool>, weight: u32) -> SchemaFit {
        match valid {
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
    /// Results of shared nodes, by node and the value's address; the others are checked once.
    fits: HashMap<(u32, usize), SchemaFit>,
    /// The mismatches of shared nodes that were reported.
    reported: HashSet<(u32, usize)>,
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

    fn fit(&mut self, index: u32, value: &'v Value, report: bool) -> SchemaFit {
        let Some(node) = self.schema.nodes.get(index as usize).filter(|_| self.charge(1)) else {
            return SchemaFit::Unclear;
        };
        if node.nullable && value.is_null() {
            return SchemaFit::Valid;
        }
        let key = (index, std::ptr::from_ref(value) as usize);
        let cached_fit = self.fits.get(&key).filter(|_| node.shared).copied();
        if let Some(fit) = cached_fit
            && !(report && fit.is_invalid() && self.reported.insert(key))
        {
            return fit;
        }
        if self.depth >= MAX_DEPTH || report && self.problems.len() >= MAX_PROBLEMS {
            return SchemaFit::Unclear;
        }
        if node.shared && cached_fit.is_none() {
            // A reference that leads back to the same value decides nothing.
            self.fits.insert(key, SchemaFit::Unclear);
        }
        self.depth += 1;
        let fit = self.rules(&node.rules, value, report);
        self.depth -= 1;
        if node.shared && cached_fit.is_none() {
            self.fits.insert(key, fit);
        }
        fit
    }

    fn rules(&mut self, rules: &'s [SchemaRule], value: &'v Value, report: bool) -> SchemaFit {
        let mut all = SchemaFit::Valid;
        for rule in rules {
            let fit = self.rule(rule, value, report);
            if matches!((rule, fit), (SchemaRule::Type(_), SchemaFit::Invalid(_))) {
                return fit;
            }
            all = all.and(fit);
        }
        all
    }

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
            (SchemaRule::Required(names), Value::Object(given)) => {
                self.charge(names.len());
                self.all(names.iter().filter(|name| !given.contains_key(*name)), |checker, name| {
                    checker.report(report, |path| SchemaProblem::missing(path, name));
                    SchemaFit::Invalid(1)
                })
            }
            (SchemaRule::Members(members), Value::Object(given)) => {
                self.all(given, |checker, (name, value)| checker.member(members, name, value, report))
            }
            (SchemaRule::Items { first, rest }, Value::Array(items)) => {
                let schemas = first.iter().copied().chain(rest.iter().copied().cycle());
                self.all(items.iter().zip(schemas).enumerate(), |checker, (i, (item, schema))| {
                    checker.part(PathStep::Item(i), schema, item, report)
                })
            }
            _ => {
                let fit = self.simple(rule, value);
                if fit.is_invalid() {
                    self.report(report, |path| SchemaProblem::ill_typed(path, &rule.expectation(), value));
                }
                fit
            }
        }
    }

    /// Checks a rule whose mismatch is one problem of the value itself.
    fn simple(&mut self, rule: &'s SchemaRule, value: &'v Value) -> SchemaFit {
        match (rule, value) {
            (SchemaRule::Unclear, _) => SchemaFit::Unclear,
            (SchemaRule::Never, _) => SchemaFit::Invalid(1),
            (SchemaRule::Not(schema), _) => match self.fit(*schema, value, false) {
                SchemaFit::Valid => SchemaFit::Invalid(1),
                SchemaFit::Unclear => SchemaFit::Unclear,
                SchemaFit::Invalid(_) => SchemaFit::Valid,
            },
            (SchemaRule::Type(names), _) => {
                SchemaFit::from_validity(Some(names.iter().any(|name| is_type(name, value))), OTHER_TYPE)
            }
            (SchemaRule::Choice(options), _) => SchemaFit::from_validity(
                Some(options.iter().any(|option| self.are_equal(option, value))),
                OTHER_CHOICE,
            ),
            (SchemaRule::Names(schema), Value::Object(given)) => self.names(*schema, given),
            (SchemaRule::Contains { item, min_count, max_count }, Value::Array(items)) => {
                self.contains(*item, *min_count, *max_count, items)
            }
            (SchemaRule::Bound(bound), _) => SchemaFit::from_validity(self.is_within(bound, value), 1),
            (SchemaRule::Multiple(step), Value::Number(number)) => {
                let times = number.as_f64().map(|number| number / step);
                // Quotients of decimals such as 19.99 / 0.01 are whole up to a rounding error.
                let whole = |t: f64| !t.is_finite() || (t - t.round()).abs() <= 1e-9 * t.abs().max(1.0);
                SchemaFit::from_validity(times.map(whole), 1)
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

    fn report(&mut self, report: bool, problem: impl FnOnce(&[PathStep<'v>]) -> SchemaProblem) {
        if report && self.problems.len() < MAX_PROBLEMS && self.charge(1) {
            let problem = problem(&self.path);
            // Several parts of a schema may have the same requirement.
            if !self.problems.contains(&problem) {
                self.problems.push(problem);
            }
        }
    }

    /// Checks all `parts`, up to as many mismatches as can be reported.
    fn all<T>(
        &mut self,
        parts: impl IntoIterator<Item = T>,
        mut check: impl FnMut(&mut Self, T) -> SchemaFit,
    ) -> SchemaFit {
        let (mut all, mut invalid) = (SchemaFit::Valid, 0);
        for part in parts {
            if invalid >= MAX_PROBLEMS || !self.is_within_limit() {
                break;
            }
            let fit = check(self, part);
            all = all.and(fit);
            invalid += usize::from(fit.is_invalid());
        }
        all
    }

    /// Checks a part of a value, whose mismatch weighs less than one of the value itself.
    fn part(&mut self, place: PathStep<'v>, schema: u32, value: &'v Value, report: bool) -> SchemaFit {
        self.path.push(place);
        let fit = self.fit(schema, value, report);
        self.path.pop();
        match fit {
            SchemaFit::Invalid(OTHER_TYPE..) => SchemaFit::Invalid(4),
            SchemaFit::Invalid(weight) => SchemaFit::Invalid((weight / 2).max(1)),
            fit => fit,
        }
    }

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
        let place = PathStep::Member(name);
        let named = members.named.get(name).copied();
        let mut covered = named.is_some();
        let mut all = named.map_or(SchemaFit::Valid, |schema| self.part(place, schema, value, report));
        for (pattern, schema) in &members.matching {
            let schema = match self.matches(pattern, name) {
                Some(false) => continue,
                Some(true) => *schema,
                None => UNCLEAR,
            };
            covered = true;
            all = all.and(self.part(place, schema, value, report));
        }
        match members.rest.filter(|_| !covered) {
            Some(NEVER) => {
                self.report(report, |path| SchemaProblem::unknown(path, name, value));
                SchemaFit::Invalid(1)
            }
            Some(schema) => self.part(place, schema, value, report),
            None => all,
        }
    }

    /// Checks `anyOf`, or `oneOf` if `only_one`. The mismatch of the nearest alternative counts and is
    /// reported.
    fn alternatives(
        &mut self,
        branches: &'s [u32],
        only_one: bool,
        value: &'v Value,
        report: bool,
    ) -> SchemaFit {
        let (mut valid, mut unclear, mut least, mut nearest) = (0, false, OTHER_TYPE, None);
        for branch in branches {
            match self.fit(*branch, value, false) {
                SchemaFit::Valid => valid += 1,
                SchemaFit::Unclear => unclear = true,
                SchemaFit::Invalid(weight) if weight < least => (least, nearest) = (weight, Some(*branch)),
                SchemaFit::Invalid(weight) if weight == least => nearest = None,
                SchemaFit::Invalid(_) => {}
            }
            if !self.is_within_limit() || valid > usize::from(only_one) {
                break;
            }
        }
        match valid {
            2.. => {
                let expected = "valid by only one of the alternatives in the tool's schema";
                self.report(report, |path| SchemaProblem::ill_typed(path, expected, value));
                return SchemaFit::Invalid(1);
            }
            // Another branch, which is unclear, may be valid too.
            1 if only_one && unclear => return SchemaFit::Unclear,
            1 => return SchemaFit::Valid,
            0 if unclear => return SchemaFit::Unclear,
            0 if !report => return SchemaFit::Invalid(least),
            0 => {}
        }
        if let Some(branch) = nearest {
            return self.fit(branch, value, true);
        }
        let mut named: Vec<String> = Vec::new();
        for branch in branches {
            let name = self.type_of(*branch);
            if named.len() < MAX_NAMED && !named.contains(&name) {
                named.push(name);
            }
        }
        self.report(true, |path| SchemaProblem::ill_typed(path, &named.join(" or "), value));
        SchemaFit::Invalid(least)
    }

    /// The types that a node requires, through references.
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

    /// Checks `propertyNames`. Each name is a temporary value with a checker of its own, since its
    /// address may be reused.
    fn names(&mut self, schema: u32, given: &Map<String, Value>) -> SchemaFit {
        self.all(given.keys(), |checker, name| {
            let name = Value::String(name.clone());
            let mut alone = Checker::new(checker.schema, checker.limit.saturating_sub(checker.steps));
            alone.depth = checker.depth;
            let fit = alone.fit(schema, &name, false);
            checker.steps = checker.steps.saturating_add(alone.steps);
            fit
        })
    }

    fn contains(
        &mut self,
        schema: u32,
        min_count: u64,
        max_count: Option<u64>,
        items: &'v [Value],
    ) -> SchemaFit {
        let (mut fitting, mut unclear) = (0, false);
        for item in items {
            let fit = self.fit(schema, item, false);
            fitting += u64::from(fit == SchemaFit::Valid);
            unclear |= fit == SchemaFit::Unclear;
            if !self.is_within_limit() {
                return SchemaFit::Unclear;
            }
        }
        SchemaFit::from_validity(
            (!unclear).then(|| fitting >= min_count && max_count.is_none_or(|max| fitting <= max)),
            1,
        )
    }

    /// `None` if the numbers cannot be compared.
    fn is_within(&mut self, bound: &QuantityBound, value: &Value) -> Option<bool> {
        let size = match (bound.quantity, value) {
            (Quantity::Value, Value::Number(number)) => number.clone(),
            (Quantity::Characters, Value::String(text)) => {
                self.charge(text.len() / 16);
                text.chars().count().into()
            }
            (Quantity::Items, Value::Array(items)) => items.len().into(),
            (Quantity::Properties, Value::Object(given)) => given.len().into(),
            _ => return Some(true),
        };
        let order = compare_numbers(&size, &bound.limit)?;
        let order = if bound.is_upper { order.reverse() } else { order };
        Some(order.is_gt() || order.is_eq() && !bound.exclusive)
    }

    /// `None` if the pattern is not supported, or costs too much.
    fn matches(&mut self, pattern: &SchemaPattern, text: &str) -> Option<bool> {
        let repeats = pattern.text.contains('{');
        if !pattern.is_compiled() {
            let (byte, repetition) = COMPILING;
            self.steps += byte * pattern.text.len() as u64 + if repeats { repetition } else { 0 };
        }
        self.steps += text.len() as u64 * if repeats { REPEATED } else { 1 };
        pattern.regex().filter(|_| self.is_within_limit()).map(|regex| regex.is_match(text))
    }

    /// Whether the JSON values are equal: 1 equals 1.0, the order of members is ignored. False beyond
    /// the limit of steps.
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

pub(crate) fn compare_numbers(a: &Number, b: &Number) -> Option<Ordering> {
    match (a.as_i128(), b.as_i128()) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        _ => a.as_f64()?.partial_cmp(&b.as_f64()?),
    }
}
