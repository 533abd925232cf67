//! Compiles a JSON schema into a flat table of nodes.
//!
//! In: a schema as JSON. Out: a [`Schema`] whose `$ref`s are indices into its table. References to other documents are
//! not fetched. Keywords have the meaning of draft 2020-12; spellings of older drafts that tools still use are
//! accepted. Compiling takes time linear in the schema's size.

use foldhash::HashMap;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Number, Value};
use verdict_otlp::work;

use super::pattern::SchemaPattern;
use super::problem::{json_start, shown};
use crate::measure::defects::QUOTE_BYTES;
use crate::measure::excerpt::clip;

/// Maximum subschemas. More would need about a mebibyte of text, which is the limit for a schema.
const MAX_NODES: usize = 1 << 16;
/// The node of a schema that cannot be checked.
pub(super) const UNCLEAR: u32 = 0;
/// The node of the schema `false`, as for properties that are not allowed.
pub(super) const NEVER: u32 = 1;
/// The node of the document itself.
pub(super) const ROOT: u32 = 2;

/// A compiled schema.
#[derive(Debug)]
pub struct Schema {
    pub(super) nodes: Vec<SchemaNode>,
    problem: Option<String>,
}

/// One schema or subschema.
#[derive(Debug, Default)]
pub(super) struct SchemaNode {
    pub(super) rules: Vec<SchemaRule>,
    /// Whether the value may be null, by OpenAPI's keyword `nullable`, which generators of schemas use.
    pub(super) is_nullable: bool,
    /// Whether a `$ref` points to the node, so that a value may be checked against it more than once.
    pub(super) is_shared: bool,
}

/// The requirement of one keyword, or of several keywords together. A `u32` is the index of a node.
#[derive(Debug)]
pub(super) enum SchemaRule {
    /// A requirement that cannot be checked: a malformed keyword, or a reference to another document.
    Unclear,
    /// The schema `false`.
    Never,
    /// The names of the allowed types.
    Type(Vec<String>),
    /// `enum` and `const`.
    Choice(Vec<Value>),
    All(Vec<u32>),
    /// `anyOf`, or `oneOf` if `only_one`.
    Alternatives {
        branches: Vec<u32>,
        only_one: bool,
    },
    Not(u32),
    /// `if`, with `then` and `else`.
    If(u32, Option<u32>, Option<u32>),
    Required(Vec<String>),
    Members(ObjectMembers),
    /// `propertyNames`.
    Names(u32),
    Items {
        first: Vec<u32>,
        rest: Option<u32>,
    },
    Contains {
        item: u32,
        min_count: u64,
        max_count: Option<u64>,
    },
    Unique,
    Bound(QuantityBound),
    Multiple(f64),
    Pattern(SchemaPattern),
}

/// A bound on a quantity.
#[derive(Debug)]
pub(super) struct QuantityBound {
    pub(super) quantity: Quantity,
    pub(super) is_upper: bool,
    pub(super) is_exclusive: bool,
    pub(super) limit: Number,
}

/// The quantity of a value that is bounded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Quantity {
    Value,
    Characters,
    Items,
    Properties,
}

/// Keywords that bound a quantity: whether the bound is an upper one, and whether it is exclusive.
const BOUNDS: [(&str, Quantity, bool, bool); 10] = [
    ("minimum", Quantity::Value, false, false),
    ("maximum", Quantity::Value, true, false),
    ("exclusiveMinimum", Quantity::Value, false, true),
    ("exclusiveMaximum", Quantity::Value, true, true),
    ("minLength", Quantity::Characters, false, false),
    ("maxLength", Quantity::Characters, true, false),
    ("minItems", Quantity::Items, false, false),
    ("maxItems", Quantity::Items, true, false),
    ("minProperties", Quantity::Properties, false, false),
    ("maxProperties", Quantity::Properties, true, false),
];

/// Keywords from which [`SchemaCompiler::combined_rules`] makes a rule.
const COMBINED: [&str; 7] =
    ["properties", "patternProperties", "additionalProperties", "items", "prefixItems", "contains", "if"];

/// The schemas of the members of an object.
#[derive(Debug)]
pub(super) struct ObjectMembers {
    /// `properties`, by name.
    pub(super) named: HashMap<String, u32>,
    /// `patternProperties`.
    pub(super) matching: Vec<(SchemaPattern, u32)>,
    /// `additionalProperties`, for members that match neither a name nor a pattern.
    pub(super) additional: Option<u32>,
}

impl SchemaRule {
    /// The patterns of the rule.
    fn patterns(&self) -> Vec<&SchemaPattern> {
        match self {
            SchemaRule::Pattern(pattern) => vec![pattern],
            SchemaRule::Members(members) => members.matching.iter().map(|(pattern, _)| pattern).collect(),
            _ => Vec::new(),
        }
    }

    /// A description of the requirement, which follows "expected to be".
    pub(super) fn expectation(&self) -> String {
        match self {
            SchemaRule::Never => "absent".to_owned(),
            SchemaRule::Type(names) => names.join(" or "),
            SchemaRule::Choice(options) => {
                let max_bytes = QUOTE_BYTES / 2;
                let listed: Vec<String> =
                    options.iter().take(max_bytes).map(|o| json_start(o, max_bytes)).collect();
                format!("one of {}", clip(&format!("[{}]", listed.join(",")), max_bytes))
            }
            SchemaRule::Names(_) => "an object whose names are as the tool's schema says".to_owned(),
            SchemaRule::Contains { min_count, max_count, .. } => {
                let count =
                    max_count.map_or(format!("at least {min_count}"), |max| format!("{min_count} to {max}"));
                format!("a list with {count} items as the tool's schema says")
            }
            SchemaRule::Unique => "a list without equal items".to_owned(),
            SchemaRule::Bound(QuantityBound { quantity, is_upper, is_exclusive, limit }) => {
                let bound = match (is_upper, is_exclusive) {
                    (false, false) => "at least",
                    (false, true) => "more than",
                    (true, false) => "at most",
                    (true, true) => "less than",
                };
                match quantity {
                    Quantity::Value => format!("{bound} {limit}"),
                    Quantity::Characters => format!("{bound} {limit} characters long"),
                    Quantity::Items => format!("a list of {bound} {limit} items"),
                    Quantity::Properties => format!("an object of {bound} {limit} properties"),
                }
            }
            SchemaRule::Multiple(step) => format!("a multiple of {step}"),
            SchemaRule::Pattern(pattern) => {
                format!("text that matches '{}'", clip(&pattern.text, QUOTE_BYTES))
            }
            _ => "other than what 'not' in the tool's schema describes".to_owned(),
        }
    }
}

impl Schema {
    /// Compiles `document`. A part that is not supported makes results unclear, see [`Schema::problem`].
    pub fn compile(document: &Value) -> Schema {
        let mut compiler = SchemaCompiler {
            document,
            nodes: Vec::new(),
            pending: Vec::new(),
            node_by_address: HashMap::default(),
            problem: None,
            // Up to draft 7, other keywords next to a `$ref` are ignored.
            ignores_beside_ref: document
                .get("$schema")
                .and_then(Value::as_str)
                .is_some_and(|draft| draft.contains("/draft-0")),
        };
        compiler.add(vec![SchemaRule::Unclear]);
        compiler.add(vec![SchemaRule::Never]);
        compiler.node(document);
        while let Some((index, schema)) = compiler.pending.pop() {
            let (rules, is_nullable) = compiler.read(schema);
            if let Some(node) = compiler.nodes.get_mut(index as usize) {
                (node.rules, node.is_nullable) = (rules, is_nullable);
            }
        }
        Schema { nodes: compiler.nodes, problem: compiler.problem }
    }

    /// A description of the first part of the schema that cannot be used; `None` if all parts can. Compiles every
    /// pattern.
    pub fn problem(&self) -> Option<String> {
        let mut patterns = self.nodes.iter().flat_map(|node| &node.rules).flat_map(SchemaRule::patterns);
        let mut unusable_pattern = || patterns.find(|pattern| pattern.regex().is_none());
        self.problem
            .clone()
            .or_else(|| Some(format!("the pattern '{}' cannot be used", unusable_pattern()?.text)))
    }
}

/// Compiles a document node by node.
struct SchemaCompiler<'d> {
    document: &'d Value,
    nodes: Vec<SchemaNode>,
    /// Nodes whose schemas have not been read.
    pending: Vec<(u32, &'d Value)>,
    /// By the address of a schema in the document, its node.
    node_by_address: HashMap<*const Value, u32>,
    problem: Option<String>,
    /// Whether other keywords next to a `$ref` are ignored.
    ignores_beside_ref: bool,
}

impl<'d> SchemaCompiler<'d> {
    /// The rule of a part that cannot be used. The first problem is recorded.
    fn unusable(&mut self, problem: impl FnOnce() -> String) -> SchemaRule {
        self.problem.get_or_insert_with(problem);
        SchemaRule::Unclear
    }

    /// Adds a node and returns its index; [`UNCLEAR`] if there are too many.
    fn add(&mut self, rules: Vec<SchemaRule>) -> u32 {
        if self.nodes.len() >= MAX_NODES {
            self.unusable(|| format!("it has more than {MAX_NODES} subschemas"));
            return UNCLEAR;
        }
        self.nodes.push(SchemaNode { rules, ..SchemaNode::default() });
        self.nodes.len() as u32 - 1
    }

    /// The index of the node for `schema`, which is read later.
    fn node(&mut self, schema: &'d Value) -> u32 {
        if let Some(&index) = self.node_by_address.get(&std::ptr::from_ref(schema)) {
            return index;
        }
        let index = self.add(Vec::new());
        if index != UNCLEAR {
            self.pending.push((index, schema));
            self.node_by_address.insert(schema, index);
        }
        index
    }

    /// The node to which a `$ref` points.
    fn target(&mut self, reference: &Value) -> u32 {
        let document = self.document;
        let pointer = reference.as_str().and_then(|r| r.strip_prefix('#'));
        let pointer = pointer.map(|pointer| percent_decode_str(pointer).decode_utf8_lossy());
        let Some(schema) = pointer.and_then(|pointer| document.pointer(&pointer)) else {
            self.unusable(|| format!("the reference {reference} leads to nothing in it"));
            return UNCLEAR;
        };
        let index = self.node(schema);
        if let Some(node) = self.nodes.get_mut(index as usize) {
            node.is_shared = true;
        }
        index
    }

    /// The rules of a schema, and whether it is nullable.
    fn read(&mut self, schema: &'d Value) -> (Vec<SchemaRule>, bool) {
        match schema {
            Value::Bool(true) => (Vec::new(), false),
            Value::Bool(false) => (vec![SchemaRule::Never], false),
            Value::Object(map) => {
                let only_reference = map.get("$ref").filter(|_| self.ignores_beside_ref);
                let rules = match only_reference {
                    Some(reference) => vec![SchemaRule::All(vec![self.target(reference)])],
                    None => self.rules(map),
                };
                (rules, map.get("nullable") == Some(&Value::Bool(true)))
            }
            other => (vec![self.unusable(|| format!("{} is no schema", shown(other)))], false),
        }
    }

    /// The rules of the keywords of a schema.
    fn rules(&mut self, map: &'d Map<String, Value>) -> Vec<SchemaRule> {
        let mut rules = Vec::new();
        for (key, value) in map {
            if let Some(rule) = self.rule(key, value, map) {
                rules.push(rule.unwrap_or_else(|| self.malformed(key)));
            }
        }
        self.combined_rules(map, &mut rules);
        // This is the order of the reported problems. After a mismatch of type the other rules are skipped.
        rules.sort_by_key(|rule| match rule {
            SchemaRule::Type(_) => 0,
            SchemaRule::Choice(_) => 1,
            SchemaRule::Required(_) => 3,
            SchemaRule::Members(_) => 4,
            SchemaRule::Items { .. } => 5,
            _ => 2,
        });
        rules
    }

    fn malformed(&mut self, keyword: &str) -> SchemaRule {
        self.unusable(|| format!("'{keyword}' in it cannot be used"))
    }

    /// The rule of a keyword that does not depend on others: `None` for a keyword without a requirement, `Some(None)`
    /// for a malformed one.
    fn rule(&mut self, key: &str, value: &'d Value, map: &Map<String, Value>) -> Option<Option<SchemaRule>> {
        match (key, value) {
            ("uniqueItems", Value::Bool(false)) => return None,
            ("unevaluatedProperties" | "unevaluatedItems", Value::Bool(true)) => return None,
            // In draft 4 these keywords are flags, see `bound`.
            ("exclusiveMinimum" | "exclusiveMaximum", Value::Bool(_)) => return None,
            _ => {}
        }
        Some(match key {
            "type" => match value {
                Value::String(name) => distinct_types(vec![name.clone()]),
                value => texts(value).and_then(distinct_types),
            }
            .map(SchemaRule::Type),
            "enum" => value.as_array().cloned().map(SchemaRule::Choice),
            "const" => Some(SchemaRule::Choice(vec![value.clone()])),
            "$ref" => Some(SchemaRule::All(vec![self.target(value)])),
            "allOf" => self.list(value).map(SchemaRule::All),
            "anyOf" | "oneOf" => {
                let branches = self.list(value).filter(|list| !list.is_empty());
                branches.map(|branches| SchemaRule::Alternatives { branches, only_one: key == "oneOf" })
            }
            "not" => Some(SchemaRule::Not(self.node(value))),
            "required" => texts(value).map(SchemaRule::Required),
            "dependentRequired" | "dependentSchemas" | "dependencies" => self.dependent(value),
            "propertyNames" => Some(SchemaRule::Names(self.node(value))),
            "uniqueItems" => value.is_boolean().then_some(SchemaRule::Unique),
            "multipleOf" => value.as_f64().filter(|step| *step > 0.0).map(SchemaRule::Multiple),
            "pattern" => value.as_str().map(|text| SchemaRule::Pattern(SchemaPattern::new(text))),
            // These keywords are not supported, and may exclude values.
            "unevaluatedProperties" | "unevaluatedItems" | "$dynamicRef" | "$recursiveRef" => None,
            _ => bound(BOUNDS.iter().find(|(name, ..)| *name == key)?, value, map),
        })
    }

    /// Adds the rules of keywords that depend on each other.
    fn combined_rules(&mut self, map: &'d Map<String, Value>, rules: &mut Vec<SchemaRule>) {
        // Most subschemas have none of these keywords, and each lookup below computes a hash.
        if !map.keys().any(|key| COMBINED.contains(&key.as_str())) {
            return;
        }
        let has_any = |keys: &[&str]| keys.iter().any(|key| map.contains_key(*key));
        if has_any(&["properties", "patternProperties", "additionalProperties"]) {
            let members = self.members(map).map(SchemaRule::Members);
            rules.push(members.unwrap_or_else(|| self.malformed("properties")));
        }
        if has_any(&["items", "prefixItems"]) {
            // A list in `items` is the older spelling of `prefixItems`.
            let (first, rest) = match map.get("items") {
                list @ Some(Value::Array(_)) => (list, map.get("additionalItems")),
                rest => (map.get("prefixItems"), rest),
            };
            rules.push(match first.map_or(Some(Vec::new()), |list| self.list(list)) {
                Some(first) => SchemaRule::Items { first, rest: rest.map(|rest| self.node(rest)) },
                None => self.malformed("prefixItems"),
            });
        }
        if let Some(item) = map.get("contains") {
            let min_count = map.get("minContains").and_then(whole_number).unwrap_or(1);
            let max_count = map.get("maxContains").and_then(whole_number);
            rules.push(SchemaRule::Contains { item: self.node(item), min_count, max_count });
        }
        if let Some(condition) = map.get("if") {
            let [then, otherwise] = ["then", "else"].map(|key| map.get(key).map(|schema| self.node(schema)));
            rules.push(SchemaRule::If(self.node(condition), then, otherwise));
        }
    }

    /// The schemas of an object's members; `None` if a keyword is malformed.
    fn members(&mut self, map: &'d Map<String, Value>) -> Option<ObjectMembers> {
        let optional_object =
            |key: &str| map.get(key).map_or(Some(None), |value| value.as_object().map(Some));
        let (named, matching) = (optional_object("properties")?, optional_object("patternProperties")?);
        let named = named.into_iter().flatten().map(|(name, s)| (name.clone(), self.node(s))).collect();
        let matching = matching
            .into_iter()
            .flatten()
            .map(|(text, s)| (SchemaPattern::new(text), self.node(s)))
            .collect();
        let additional = match map.get("additionalProperties") {
            None | Some(Value::Bool(true)) => None,
            Some(Value::Bool(false)) => Some(NEVER),
            Some(schema) => Some(self.node(schema)),
        };
        Some(ObjectMembers { named, matching, additional })
    }

    /// Each dependency as a condition: an object with the member must meet the requirement. `None` if it is malformed.
    fn dependent(&mut self, value: &'d Value) -> Option<SchemaRule> {
        let mut conditions = Vec::new();
        for (name, requirement) in value.as_object()? {
            let then = match requirement {
                Value::Array(_) => {
                    let names = texts(requirement)?;
                    self.add(vec![SchemaRule::Required(names)])
                }
                schema => self.node(schema),
            };
            let object = SchemaRule::Type(vec!["object".to_owned()]);
            let has_member = self.add(vec![object, SchemaRule::Required(vec![name.clone()])]);
            conditions.push(self.add(vec![SchemaRule::If(has_member, Some(then), None)]));
        }
        Some(SchemaRule::All(conditions))
    }

    /// The nodes of a list of schemas.
    fn list(&mut self, value: &'d Value) -> Option<Vec<u32>> {
        value.as_array().map(|list| list.iter().map(|schema| self.node(schema)).collect())
    }
}

/// The rule of a keyword of [`BOUNDS`]; `None` if its value is malformed.
fn bound(
    &(_, quantity, is_upper, is_exclusive): &(&str, Quantity, bool, bool),
    value: &Value,
    map: &Map<String, Value>,
) -> Option<SchemaRule> {
    let limit = match quantity {
        Quantity::Value => value.as_number()?.clone(),
        _ => whole_number(value)?.into(),
    };
    let flag = if is_upper { "exclusiveMaximum" } else { "exclusiveMinimum" };
    let is_exclusive =
        is_exclusive || quantity == Quantity::Value && map.get(flag) == Some(&Value::Bool(true));
    Some(SchemaRule::Bound(QuantityBound { quantity, is_upper, is_exclusive, limit }))
}

/// The texts of a list; `None` for any other value.
fn texts(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|text| text.as_str().map(str::to_owned)).collect()
}

/// The value, if it is a whole number that is not negative.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn whole_number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_f64().filter(|f| *f >= 0.0 && f.fract() == 0.0).map(|f| f as u64))
}

/// The names of a list without repeated types, so that a check costs at most one test per type; `None` if a name is
/// unknown.
fn distinct_types(mut names: Vec<String>) -> Option<Vec<String>> {
    let mut is_listed = [false; TYPES.len()];
    let mut are_all_known = true;
    names.retain(|name| {
        let type_index = TYPES.iter().position(|(type_name, _)| name.eq_ignore_ascii_case(type_name));
        are_all_known &= type_index.is_some();
        type_index.and_then(|i| is_listed.get_mut(i)).is_some_and(|listed| !std::mem::replace(listed, true))
    });
    are_all_known.then_some(names)
}

/// Tests the type of a value.
type TypeTest = fn(&Value) -> bool;

/// The tests of types by name, in any case: schemas of Google have capital letters. Python tools use `any`.
const TYPES: [(&str, TypeTest); 8] = [
    ("any", |_| true),
    ("null", Value::is_null),
    ("boolean", Value::is_boolean),
    ("string", Value::is_string),
    ("array", Value::is_array),
    ("object", Value::is_object),
    ("number", Value::is_number),
    ("integer", |value| value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|f| f.fract() == 0.0)),
];

/// The test of the type with this name.
fn type_test(name: &str) -> Option<TypeTest> {
    TYPES
        .iter()
        .find(|(type_name, _)| name.eq_ignore_ascii_case(type_name))
        .map(|(_, is_of_type)| *is_of_type)
}

/// Whether a value is of the type with this name.
pub(super) fn is_type(name: &str, value: &Value) -> bool {
    work::count(1);
    type_test(name).is_some_and(|is_of_type| is_of_type(value))
}
