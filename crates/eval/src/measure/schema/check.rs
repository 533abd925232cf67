//! A value checked against a compiled schema, in counted steps.
//!
//! In: a node of a [`Schema`] and a value. Out: a [`Fit`], in three values: what cannot be checked
//! is unclear, and so is what follows from it. A node that several references share is checked once
//! for each value, so that the steps are at most linear in schema times value, however references
//! fan out; beyond the limit of steps everything is unclear.

use std::cmp::Ordering;

use foldhash::{HashMap, HashSet};
use serde_json::{Number, Value};

use super::compile::{Extent, Members, Pattern, ROOT, Rest, Rule, Schema, UNCLEAR};
use super::{MAX_PROBLEMS, Outcome, Problem};

/// Schemas are applied within schemas so deep: a level takes some kilobytes of a thread's stack in a
/// debug build. Honest schemas and values take a few dozen levels.
const MAX_DEPTH: usize = 128;
/// What a mismatch weighs where the nearest of several alternatives is looked for: another type
/// of value, and another constant, which is how alternatives are told apart.
pub(super) const OTHER_TYPE: u32 = 1 << 12;
const OTHER_CHOICE: u32 = 1 << 6;
/// Steps for each byte of a text that is matched against a pattern with a counted repetition, which
/// may make a program of thousands of states.
const REPEATED: u64 = 64;
/// Steps for compiling a pattern: for each of its bytes, and for a counted repetition.
const COMPILING: (u64, u64) = (256, 1 << 15);

/// How a value fits a schema.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fit {
    Valid,
    Unclear,
    /// By how much it does not.
    Invalid(u32),
}

impl Fit {
    fn and(self, other: Fit) -> Fit {
        match (self, other) {
            // A value of another type is as far off as can be; many small faults never are.
            (Fit::Invalid(a), Fit::Invalid(b)) if a.max(b) < OTHER_TYPE => {
                Fit::Invalid((a + b).min(OTHER_TYPE - 1))
            }
            (Fit::Invalid(a), Fit::Invalid(b)) => Fit::Invalid(a.max(b)),
            (Fit::Invalid(a), _) | (_, Fit::Invalid(a)) => Fit::Invalid(a),
            (Fit::Unclear, _) | (_, Fit::Unclear) => Fit::Unclear,
            _ => Fit::Valid,
        }
    }

    fn of(holds: Option<bool>, weight: u32) -> Fit {
        match holds {
            Some(true) => Fit::Valid,
            Some(false) => Fit::Invalid(weight),
            None => Fit::Unclear,
        }
    }

    pub(super) fn is_invalid(self) -> bool {
        matches!(self, Fit::Invalid(_))
    }
}

/// Where a part of a value is, seen from the value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place<'v> {
    Here,
    Member(&'v str),
    Item(usize),
}

/// What a rule demands of one part of a value.
pub(super) enum Part<'s, 'v> {
    Fit(Place<'v>, u32, &'v Value),
    Missing(&'s str),
    Unknown(&'v str, &'v Value),
}

/// Told of each part, until it returns false.
type Visit<'a, 's, 'v> = &'a mut dyn FnMut(&mut Checker<'s, 'v>, Part<'s, 'v>) -> bool;

/// One check of one value.
pub(super) struct Checker<'s, 'v> {
    pub(super) schema: &'s Schema,
    pub(super) steps: u64,
    pub(super) limit: u64,
    depth: usize,
    /// By node and the value's address. Of nodes that are shared; the others are met once.
    fits: HashMap<(u32, usize), Fit>,
    /// As `fits`: what was explained.
    pub(super) explained: HashSet<(u32, usize)>,
    pub(super) path: Vec<Place<'v>>,
    pub(super) found: Vec<Problem>,
}

impl<'s, 'v> Checker<'s, 'v> {
    pub(super) fn new(schema: &'s Schema, limit: u64) -> Checker<'s, 'v> {
        Checker {
            schema,
            steps: 0,
            limit,
            depth: 0,
            fits: HashMap::default(),
            explained: HashSet::default(),
            path: Vec::new(),
            found: Vec::new(),
        }
    }

    /// Explains, too, where the value does not fit.
    pub(super) fn outcome(&mut self, value: &'v Value) -> Outcome {
        let fit = self.fit(ROOT, value);
        if fit.is_invalid() {
            self.explain(ROOT, value);
        }
        match fit {
            Fit::Valid if self.within() => Outcome::Valid,
            Fit::Invalid(_) if self.within() => Outcome::Invalid,
            _ => Outcome::Indeterminate,
        }
    }

    pub(super) fn within(&self) -> bool {
        self.steps <= self.limit
    }

    /// Counts steps; false beyond the limit.
    pub(super) fn charge(&mut self, steps: usize) -> bool {
        self.steps = self.steps.saturating_add(steps as u64);
        self.within()
    }

    /// Runs `work` one level deeper; `None` where that is too deep.
    pub(super) fn deeper<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.depth >= MAX_DEPTH {
            return None;
        }
        self.depth += 1;
        let done = work(self);
        self.depth -= 1;
        Some(done)
    }

    pub(super) fn fit(&mut self, index: u32, value: &'v Value) -> Fit {
        let Some(node) = self.schema.nodes.get(index as usize).filter(|_| self.charge(1)) else {
            return Fit::Unclear;
        };
        if node.nullable && value.is_null() {
            return Fit::Valid;
        }
        let key = (index, std::ptr::from_ref(value) as usize);
        if node.shared {
            if let Some(known) = self.fits.get(&key) {
                return *known;
            }
            // A reference that comes back to the same value says nothing about it.
            self.fits.insert(key, Fit::Unclear);
        }
        let fit = self.deeper(|checker| checker.rules(&node.rules, value)).unwrap_or(Fit::Unclear);
        if node.shared {
            self.fits.insert(key, fit);
        }
        fit
    }

    fn rules(&mut self, rules: &'s [Rule], value: &'v Value) -> Fit {
        let mut all = Fit::Valid;
        for rule in rules {
            let fit = self.rule(rule, value);
            if matches!((rule, fit), (Rule::Type(_), Fit::Invalid(_))) {
                return fit;
            }
            all = all.and(fit);
        }
        all
    }

    pub(super) fn rule(&mut self, rule: &'s Rule, value: &'v Value) -> Fit {
        if !self.charge(1) {
            return Fit::Unclear;
        }
        match rule {
            Rule::Unclear => Fit::Unclear,
            Rule::Never => Fit::Invalid(1),
            Rule::Any(branches) | Rule::One(branches) => {
                self.choice(branches, matches!(rule, Rule::One(_)), value)
            }
            Rule::Not(schema) => match self.fit(*schema, value) {
                Fit::Valid => Fit::Invalid(1),
                Fit::Unclear => Fit::Unclear,
                Fit::Invalid(_) => Fit::Valid,
            },
            Rule::Names(schema) => self.names(*schema, value),
            Rule::Contains { item, least, most } => self.contains(*item, *least, *most, value),
            Rule::Type(names) => Fit::of(Some(names.iter().any(|name| is_a(name, value))), OTHER_TYPE),
            Rule::Choice(options) => {
                let any = options.iter().any(|option| self.same(option, value));
                Fit::of(Some(any), OTHER_CHOICE)
            }
            Rule::All(_)
            | Rule::If(..)
            | Rule::Required(_)
            | Rule::Dependent(_)
            | Rule::Members(_)
            | Rule::Items { .. } => self.parts(rule, value),
            simple => Fit::of(self.simple(simple, value), 1),
        }
    }

    /// All parts that `rule` speaks of; no more failing ones than could be explained.
    fn parts(&mut self, rule: &'s Rule, value: &'v Value) -> Fit {
        let (mut all, mut failing) = (Fit::Valid, 0);
        self.each(rule, value, &mut |checker, part| {
            let fit = match part {
                Part::Fit(place, schema, value) => match (place, checker.fit(schema, value)) {
                    (Place::Here, fit) => fit,
                    (_, Fit::Invalid(OTHER_TYPE..)) => Fit::Invalid(4),
                    (_, Fit::Invalid(by)) => Fit::Invalid((by / 2).max(1)),
                    (_, fit) => fit,
                },
                Part::Missing(_) | Part::Unknown(..) => Fit::Invalid(1),
            };
            all = all.and(fit);
            failing += usize::from(fit.is_invalid());
            failing < MAX_PROBLEMS && checker.within()
        });
        all
    }

    /// Shows `visit` what an applicable `rule` demands of the parts of `value`.
    pub(super) fn each(&mut self, rule: &'s Rule, value: &'v Value, visit: Visit<'_, 's, 'v>) {
        match (rule, value) {
            (Rule::All(schemas), _) => {
                schemas.iter().all(|schema| visit(self, Part::Fit(Place::Here, *schema, value)));
            }
            (Rule::If(condition, then, otherwise), _) => {
                let next = match self.fit(*condition, value) {
                    Fit::Valid => *then,
                    Fit::Unclear => Some(UNCLEAR),
                    Fit::Invalid(_) => *otherwise,
                };
                if let Some(schema) = next {
                    visit(self, Part::Fit(Place::Here, schema, value));
                }
            }
            (Rule::Required(names), Value::Object(given)) => {
                let mut missing = names.iter().filter(|name| !given.contains_key(*name));
                self.charge(names.len());
                missing.all(|name| visit(self, Part::Missing(name)));
            }
            (Rule::Dependent(all), Value::Object(given)) => {
                self.charge(all.len());
                for (_, names, schema) in all.iter().filter(|(name, ..)| given.contains_key(name)) {
                    self.charge(names.len());
                    let mut missing = names.iter().filter(|name| !given.contains_key(*name));
                    let on = missing.all(|name| visit(self, Part::Missing(name)));
                    if !on || schema.is_some_and(|s| !visit(self, Part::Fit(Place::Here, s, value))) {
                        return;
                    }
                }
            }
            (Rule::Members(members), Value::Object(given)) => {
                given.iter().all(|(name, value)| self.member(members, name, value, visit));
            }
            (Rule::Items { first, rest }, Value::Array(items)) => {
                let schemas = first.iter().copied().map(Some).chain(std::iter::repeat(*rest));
                let mut items =
                    items.iter().zip(schemas).enumerate().map_while(|(i, (v, s))| Some((i, v, s?)));
                items.all(|(i, item, schema)| visit(self, Part::Fit(Place::Item(i), schema, item)));
            }
            _ => {}
        }
    }

    fn member(
        &mut self,
        members: &'s Members,
        name: &'v str,
        value: &'v Value,
        visit: Visit<'_, 's, 'v>,
    ) -> bool {
        let (mut covered, place) = (false, Place::Member(name));
        if !self.charge(1 + members.matching.len()) {
            return false;
        }
        if let Some(schema) = members.named.get(name) {
            covered = true;
            if !visit(self, Part::Fit(place, *schema, value)) {
                return false;
            }
        }
        for (pattern, schema) in &members.matching {
            let schema = match self.matches(pattern, name) {
                Some(false) => continue,
                Some(true) => *schema,
                None => UNCLEAR,
            };
            covered = true;
            if !visit(self, Part::Fit(place, schema, value)) {
                return false;
            }
        }
        match members.rest {
            Rest::Closed if !covered => visit(self, Part::Unknown(name, value)),
            Rest::Schema(schema) if !covered => visit(self, Part::Fit(place, schema, value)),
            _ => true,
        }
    }

    /// `anyOf`, and `oneOf` where `only`. What fits none is as far off as from the nearest.
    fn choice(&mut self, branches: &'s [u32], only: bool, value: &'v Value) -> Fit {
        let (mut valid, mut unclear, mut nearest) = (0, false, OTHER_TYPE);
        for branch in branches {
            match self.fit(*branch, value) {
                Fit::Valid => valid += 1,
                Fit::Unclear => unclear = true,
                Fit::Invalid(by) => nearest = nearest.min(by),
            }
            if !self.within() || valid > usize::from(only) {
                break;
            }
        }
        match valid {
            2.. => Fit::Invalid(1),
            1 if !only => Fit::Valid,
            _ if unclear => Fit::Unclear,
            1 => Fit::Valid,
            0 => Fit::Invalid(nearest),
        }
    }

    /// Names are texts of their own, whose addresses mean nothing later.
    fn names(&mut self, schema: u32, value: &Value) -> Fit {
        let mut all = Fit::Valid;
        for name in value.as_object().into_iter().flat_map(|given| given.keys()) {
            let name = Value::String(name.clone());
            let mut checker = Checker::new(self.schema, self.limit.saturating_sub(self.steps));
            checker.depth = self.depth;
            all = all.and(checker.fit(schema, &name));
            self.steps = self.steps.saturating_add(checker.steps);
            if !self.within() || all.is_invalid() {
                break;
            }
        }
        all
    }

    fn contains(&mut self, schema: u32, least: u64, most: Option<u64>, value: &'v Value) -> Fit {
        let Value::Array(items) = value else { return Fit::Valid };
        let (mut fitting, mut unclear) = (0, 0);
        for item in items {
            match self.fit(schema, item) {
                Fit::Valid => fitting += 1,
                Fit::Unclear => unclear += 1,
                Fit::Invalid(_) => {}
            }
            if !self.within() {
                return Fit::Unclear;
            }
        }
        let holds = |fitting: u64| fitting >= least && most.is_none_or(|most| fitting <= most);
        Fit::of((unclear == 0).then(|| holds(fitting)), 1)
    }

    /// Keywords that hold of values of one type, each by itself; `None` where that cannot be told.
    fn simple(&mut self, rule: &Rule, value: &Value) -> Option<bool> {
        match (rule, value) {
            (Rule::Size { of, most, limit }, value) => {
                let size = match (of, value) {
                    (Extent::Text, Value::String(text)) => {
                        self.charge(text.len() / 16);
                        text.chars().count()
                    }
                    (Extent::Items, Value::Array(items)) => items.len(),
                    (Extent::Members, Value::Object(given)) => given.len(),
                    _ => return Some(true),
                };
                Some(if *most { size as u64 <= *limit } else { size as u64 >= *limit })
            }
            (Rule::Range { limit: Value::Number(limit), most, exclusive }, Value::Number(number)) => {
                let order = compare(number, limit);
                let order = if *most { order.map(Ordering::reverse) } else { order };
                order.map(|order| order.is_gt() || order.is_eq() && !exclusive)
            }
            (Rule::Multiple(step), Value::Number(number)) => {
                let times = number.as_f64()? / step;
                // A quotient without digits behind the point, or decimals that binary cannot write.
                Some(!times.is_finite() || (times - times.round()).abs() <= 1e-9 * times.abs().max(1.0))
            }
            (Rule::Pattern(pattern), Value::String(text)) => self.matches(pattern, text),
            (Rule::Unique, Value::Array(items)) => {
                let repeated =
                    |(i, item): (usize, &Value)| items.iter().take(i).any(|other| self.same(other, item));
                Some(!items.iter().enumerate().any(repeated))
            }
            _ => Some(true),
        }
    }

    /// `None` where the pattern is none of ours, or too dear.
    fn matches(&mut self, pattern: &Pattern, text: &str) -> Option<bool> {
        let repeats = pattern.text.contains('{');
        if !pattern.is_compiled() {
            let (byte, repetition) = COMPILING;
            self.steps += byte * pattern.text.len() as u64 + if repeats { repetition } else { 0 };
        }
        self.steps += text.len() as u64 * if repeats { REPEATED } else { 1 };
        if !self.within() {
            return None;
        }
        pattern.regex().map(|regex| regex.is_match(text))
    }

    /// Equal as JSON is: 1 is 1.0, and the order of members means nothing. False out of steps.
    fn same(&mut self, a: &Value, b: &Value) -> bool {
        self.charge(1)
            && match (a, b) {
                (Value::Number(a), Value::Number(b)) => compare(a, b) == Some(Ordering::Equal),
                (Value::String(a), Value::String(b)) => {
                    a.len() == b.len() && self.charge(a.len() / 64) && a == b
                }
                (Value::Array(a), Value::Array(b)) => {
                    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| self.same(a, b))
                }
                (Value::Object(a), Value::Object(b)) => {
                    let mut members = a.iter();
                    a.len() == b.len()
                        && members.all(|(name, a)| b.get(name).is_some_and(|b| self.same(a, b)))
                }
                (a, b) => a == b,
            }
    }
}

#[allow(clippy::cast_possible_truncation)]
fn compare(a: &Number, b: &Number) -> Option<Ordering> {
    match (a.as_i128(), b.as_i128()) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        _ => a.as_f64()?.partial_cmp(&b.as_f64()?),
    }
}

pub(super) fn is_type(name: &str) -> bool {
    matches!(
        name.to_ascii_lowercase().as_str(),
        "string" | "object" | "array" | "boolean" | "null" | "number" | "integer" | "any"
    )
}

/// Google writes types in capitals; Python tools say `any`.
fn is_a(name: &str, value: &Value) -> bool {
    let is = |one: &str| name.eq_ignore_ascii_case(one);
    match value {
        _ if is("any") => true,
        Value::Null => is("null"),
        Value::Bool(_) => is("boolean"),
        Value::String(_) => is("string"),
        Value::Array(_) => is("array"),
        Value::Object(_) => is("object"),
        Value::Number(number) => {
            is("number")
                || is("integer") && (!number.is_f64() || number.as_f64().is_some_and(|f| f.fract() == 0.0))
        }
    }
}
