//! A JSON schema, read once into a flat table of nodes.
//!
//! In: a schema as JSON. Out: a [`Schema`] whose `$ref`s are indices into its own table. References
//! to anything but the document itself are never fetched. The meaning is that of draft 2020-12,
//! with the spellings of older drafts that tools still use. Compiling takes time linear in the
//! schema's size.

use std::borrow::Cow;
use std::sync::OnceLock;

use foldhash::HashMap;
use regex::Regex;
use serde_json::{Map, Value};

/// Schemas within a schema. More would be most of a mebibyte of text, the most that is read.
const MAX_NODES: usize = 1 << 16;
/// Bytes that one compiled `pattern` may take.
const MAX_PATTERN_BYTES: usize = 1 << 18;
/// The node of what cannot be checked.
pub(super) const UNCLEAR: u32 = 0;
/// The node of the document itself.
pub(super) const ROOT: u32 = 1;

/// A schema, ready to check values against.
#[derive(Debug)]
pub struct Schema {
    pub(super) nodes: Vec<Node>,
    flaw: Option<String>,
}

/// One schema or subschema.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) rules: Vec<Rule>,
    /// OpenAPI's way to say "or null", in use where schemas are made from signatures.
    pub(super) nullable: bool,
    /// A `$ref` points to it, so that a value may be checked against it more than once.
    pub(super) shared: bool,
}

/// What one keyword, or keywords that only mean something together, demand.
#[derive(Debug)]
pub(super) enum Rule {
    /// Cannot be checked: a malformed keyword, or a reference that leads out of the document.
    Unclear,
    /// The schema `false`.
    Never,
    Type(Vec<String>),
    /// `enum` and `const`.
    Choice(Vec<Value>),
    All(Vec<u32>),
    Any(Vec<u32>),
    One(Vec<u32>),
    Not(u32),
    /// `if`, `then`, `else`.
    If(u32, Option<u32>, Option<u32>),
    Required(Vec<String>),
    /// Where the member is there: these members, and this schema for the object.
    Dependent(Vec<(String, Vec<String>, Option<u32>)>),
    Members(Members),
    Names(u32),
    Items {
        first: Vec<u32>,
        rest: Option<u32>,
    },
    Contains {
        item: u32,
        least: u64,
        most: Option<u64>,
    },
    Unique,
    Size {
        of: Extent,
        most: bool,
        limit: u64,
    },
    Range {
        limit: Value,
        most: bool,
        exclusive: bool,
    },
    Multiple(f64),
    Pattern(Pattern),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Extent {
    Text,
    Items,
    Members,
}

#[derive(Debug)]
pub(super) struct Members {
    pub(super) named: HashMap<String, u32>,
    pub(super) matching: Vec<(Pattern, u32)>,
    pub(super) rest: Rest,
}

/// What holds for members that neither a name nor a pattern covers.
#[derive(Debug, PartialEq)]
pub(super) enum Rest {
    Open,
    Closed,
    Schema(u32),
}

/// Compiled when a text is first matched: a schema may have thousands that no value meets.
#[derive(Debug)]
pub(super) struct Pattern {
    pub(super) text: String,
    compiled: OnceLock<Option<Regex>>,
}

impl Pattern {
    fn new(text: &str) -> Pattern {
        Pattern { text: text.to_owned(), compiled: OnceLock::new() }
    }

    pub(super) fn is_compiled(&self) -> bool {
        self.compiled.get().is_some()
    }

    /// `None` where it is no pattern that runs in linear time.
    pub(super) fn regex(&self) -> Option<&Regex> {
        let compile = || {
            let mut builder = regex::RegexBuilder::new(&ascii_classes(&self.text));
            builder.size_limit(MAX_PATTERN_BYTES).build().ok()
        };
        self.compiled.get_or_init(compile).as_ref()
    }
}

/// Patterns of JSON schemas are JavaScript's, where `\d` and `\w` mean ASCII.
fn ascii_classes(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match (c, if c == '\\' { chars.next() } else { None }) {
            (_, Some('d')) => out.push_str("[0-9]"),
            (_, Some('D')) => out.push_str("[^0-9]"),
            (_, Some('w')) => out.push_str("[0-9A-Za-z_]"),
            (_, Some('W')) => out.push_str("[^0-9A-Za-z_]"),
            (_, escaped) => {
                out.push(c);
                out.extend(escaped);
            }
        }
    }
    out
}

impl Schema {
    /// What cannot be understood in it makes the answer of that part unclear, see [`Schema::flaw`].
    pub fn compile(document: &Value) -> Schema {
        let mut compiler = Compiler {
            document,
            nodes: vec![Node { rules: vec![Rule::Unclear], ..Node::default() }],
            todo: Vec::new(),
            known: HashMap::default(),
            flaw: None,
            // Until draft 7 keywords beside a `$ref` had no meaning.
            ref_alone: document
                .get("$schema")
                .and_then(Value::as_str)
                .is_some_and(|draft| draft.contains("/draft-0")),
        };
        compiler.node(document);
        while let Some((at, schema)) = compiler.todo.pop() {
            let (rules, nullable) = compiler.read(schema);
            if let Some(node) = compiler.nodes.get_mut(at) {
                (node.rules, node.nullable) = (rules, nullable);
            }
        }
        Schema { nodes: compiler.nodes, flaw: compiler.flaw }
    }

    /// A part of it that cannot be used. Compiles every pattern.
    pub fn flaw(&self) -> Option<String> {
        let broken =
            |p: &Pattern| p.regex().is_none().then(|| format!("the pattern '{}' cannot be used", p.text));
        self.flaw.clone().or_else(|| {
            self.nodes.iter().flat_map(|node| &node.rules).find_map(|rule| match rule {
                Rule::Pattern(pattern) => broken(pattern),
                Rule::Members(members) => members.matching.iter().find_map(|(pattern, _)| broken(pattern)),
                _ => None,
            })
        })
    }
}

struct Compiler<'d> {
    document: &'d Value,
    nodes: Vec<Node>,
    todo: Vec<(usize, &'d Value)>,
    /// By the address of the value in the document.
    known: HashMap<*const Value, u32>,
    flaw: Option<String>,
    ref_alone: bool,
}

impl<'d> Compiler<'d> {
    fn flawed(&mut self, flaw: impl FnOnce() -> String) {
        self.flaw.get_or_insert_with(flaw);
    }

    /// The index of the node for `schema`, which is read later.
    fn node(&mut self, schema: &'d Value) -> u32 {
        let at = self.nodes.len();
        let index = u32::try_from(at).unwrap_or(UNCLEAR);
        if let Some(&known) = self.known.get(&std::ptr::from_ref(schema)) {
            return known;
        }
        if at >= MAX_NODES {
            self.flawed(|| format!("it has more than {MAX_NODES} subschemas"));
            return UNCLEAR;
        }
        self.nodes.push(Node::default());
        self.todo.push((at, schema));
        self.known.insert(schema, index);
        index
    }

    fn target(&mut self, reference: &Value) -> u32 {
        let document = self.document;
        let pointer = reference.as_str().and_then(|r| r.strip_prefix('#')).map(decoded);
        match pointer.and_then(|pointer| document.pointer(&pointer)) {
            Some(schema) => {
                let index = self.node(schema);
                if let Some(node) = self.nodes.get_mut(index as usize) {
                    node.shared = true;
                }
                index
            }
            None => {
                self.flawed(|| format!("the reference {reference} leads to nothing in it"));
                UNCLEAR
            }
        }
    }

    fn read(&mut self, schema: &'d Value) -> (Vec<Rule>, bool) {
        match schema {
            Value::Bool(true) => (Vec::new(), false),
            Value::Bool(false) => (vec![Rule::Never], false),
            Value::Object(map) => {
                let alone = map.get("$ref").filter(|_| self.ref_alone);
                let rules = match alone {
                    Some(reference) => vec![Rule::All(vec![self.target(reference)])],
                    None => self.rules(map),
                };
                (rules, map.get("nullable") == Some(&Value::Bool(true)))
            }
            other => {
                self.flawed(|| format!("{} is no schema", super::shown(other)));
                (vec![Rule::Unclear], false)
            }
        }
    }

    fn rules(&mut self, map: &'d Map<String, Value>) -> Vec<Rule> {
        let mut rules = Vec::new();
        for (key, says) in map {
            if let Some(rule) = self.rule(key, says, map) {
                rules.push(rule.unwrap_or_else(|| self.malformed(key)));
            }
        }
        self.joint(map, &mut rules);
        // In the order in which a reader wants to hear of them; nothing else holds of a wrong type.
        rules.sort_by_key(|rule| match rule {
            Rule::Type(_) => 0,
            Rule::Choice(_) => 1,
            Rule::Required(_) => 3,
            Rule::Members(_) => 4,
            Rule::Items { .. } => 5,
            _ => 2,
        });
        rules
    }

    fn malformed(&mut self, keyword: &str) -> Rule {
        self.flawed(|| format!("'{keyword}' in it cannot be used"));
        Rule::Unclear
    }

    /// The rule of a keyword that stands for itself; outer `None` of one that demands nothing,
    /// inner `None` where what it says is malformed.
    fn rule(&mut self, key: &str, says: &'d Value, map: &Map<String, Value>) -> Option<Option<Rule>> {
        let size = |of, most| whole(says).map(|limit| Rule::Size { of, most, limit });
        let range = |most, exclusive| {
            // Draft 4 said so with a flag beside the bound.
            let flag = if most { "exclusiveMaximum" } else { "exclusiveMinimum" };
            let exclusive = exclusive || map.get(flag) == Some(&Value::Bool(true));
            says.is_number().then(|| Rule::Range { limit: says.clone(), most, exclusive })
        };
        Some(match key {
            "type" => match says {
                Value::String(name) => Some(Rule::Type(vec![name.clone()])),
                says => texts(says).map(Rule::Type),
            }
            .filter(
                |rule| matches!(rule, Rule::Type(names) if names.iter().all(|n| super::check::is_type(n))),
            ),
            "uniqueItems" | "exclusiveMinimum" | "exclusiveMaximum" if says == &Value::Bool(false) => {
                return None;
            }
            "exclusiveMinimum" | "exclusiveMaximum" | "unevaluatedProperties" | "unevaluatedItems"
                if says == &Value::Bool(true) =>
            {
                return None;
            }
            "enum" => says.as_array().cloned().map(Rule::Choice),
            "const" => Some(Rule::Choice(vec![says.clone()])),
            "$ref" => Some(Rule::All(vec![self.target(says)])),
            "allOf" => self.list(says).map(Rule::All),
            "anyOf" => self.list(says).filter(|l| !l.is_empty()).map(Rule::Any),
            "oneOf" => self.list(says).filter(|l| !l.is_empty()).map(Rule::One),
            "not" => Some(Rule::Not(self.node(says))),
            "required" => texts(says).map(Rule::Required),
            "dependentRequired" | "dependentSchemas" | "dependencies" => self.dependent(says),
            "propertyNames" => Some(Rule::Names(self.node(says))),
            "uniqueItems" => says.is_boolean().then_some(Rule::Unique),
            "minLength" => size(Extent::Text, false),
            "maxLength" => size(Extent::Text, true),
            "minItems" => size(Extent::Items, false),
            "maxItems" => size(Extent::Items, true),
            "minProperties" => size(Extent::Members, false),
            "maxProperties" => size(Extent::Members, true),
            "minimum" => range(false, false),
            "maximum" => range(true, false),
            "exclusiveMinimum" => range(false, true),
            "exclusiveMaximum" => range(true, true),
            "multipleOf" => says.as_f64().filter(|step| *step > 0.0).map(Rule::Multiple),
            "pattern" => says.as_str().map(|text| Rule::Pattern(Pattern::new(text))),
            // Keywords of which we only know that they may exclude values.
            "unevaluatedProperties" | "unevaluatedItems" | "$dynamicRef" | "$recursiveRef" => None,
            _ => return None,
        })
    }

    /// The rules of keywords that mean something together only.
    fn joint(&mut self, map: &'d Map<String, Value>, rules: &mut Vec<Rule>) {
        let any = |keys: &[&str]| keys.iter().any(|key| map.contains_key(*key));
        if any(&["properties", "patternProperties", "additionalProperties"]) {
            rules.push(match self.members(map) {
                Some(made) => Rule::Members(made),
                None => self.malformed("properties"),
            });
        }
        if any(&["items", "prefixItems"]) {
            // As a list `items` is what `prefixItems` was called before.
            let (first, rest) = match map.get("items") {
                list @ Some(Value::Array(_)) => (list, map.get("additionalItems")),
                rest => (map.get("prefixItems"), rest),
            };
            rules.push(match first.map_or(Some(Vec::new()), |list| self.list(list)) {
                Some(first) => Rule::Items { first, rest: rest.map(|rest| self.node(rest)) },
                None => self.malformed("prefixItems"),
            });
        }
        if let Some(item) = map.get("contains") {
            let least = map.get("minContains").and_then(whole).unwrap_or(1);
            let most = map.get("maxContains").and_then(whole);
            rules.push(Rule::Contains { item: self.node(item), least, most });
        }
        if let Some(condition) = map.get("if") {
            let [then, otherwise] = ["then", "else"].map(|key| map.get(key).map(|schema| self.node(schema)));
            rules.push(Rule::If(self.node(condition), then, otherwise));
        }
    }

    fn members(&mut self, map: &'d Map<String, Value>) -> Option<Members> {
        let of = |key: &str| map.get(key).map_or(Some(None), |says| says.as_object().map(Some));
        let (named, matching) = (of("properties")?, of("patternProperties")?);
        let named = named.into_iter().flatten().map(|(name, s)| (name.clone(), self.node(s))).collect();
        let matching =
            matching.into_iter().flatten().map(|(text, s)| (Pattern::new(text), self.node(s))).collect();
        let rest = match map.get("additionalProperties") {
            None | Some(Value::Bool(true)) => Rest::Open,
            Some(Value::Bool(false)) => Rest::Closed,
            Some(schema) => Rest::Schema(self.node(schema)),
        };
        Some(Members { named, matching, rest })
    }

    fn dependent(&mut self, says: &'d Value) -> Option<Rule> {
        let each = says.as_object()?.iter().map(|(name, needs)| match needs {
            Value::Array(_) => Some((name.clone(), texts(needs)?, None)),
            schema => Some((name.clone(), Vec::new(), Some(self.node(schema)))),
        });
        each.collect::<Option<Vec<_>>>().map(Rule::Dependent)
    }

    fn list(&mut self, says: &'d Value) -> Option<Vec<u32>> {
        says.as_array().map(|list| list.iter().map(|schema| self.node(schema)).collect())
    }
}

fn texts(says: &Value) -> Option<Vec<String>> {
    says.as_array()?.iter().map(|text| text.as_str().map(str::to_owned)).collect()
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn whole(says: &Value) -> Option<u64> {
    says.as_u64().or_else(|| says.as_f64().filter(|f| *f >= 0.0 && f.fract() == 0.0).map(|f| f as u64))
}

/// The pointer of a reference, where characters may be percent-encoded.
fn decoded(pointer: &str) -> Cow<'_, str> {
    if !pointer.contains('%') {
        return Cow::Borrowed(pointer);
    }
    let mut bytes = Vec::with_capacity(pointer.len());
    let mut rest = pointer.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = tail.get(..2).filter(|_| *first == b'%').and_then(|hex| std::str::from_utf8(hex).ok());
        let code = code.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(code.unwrap_or(*first));
        rest = tail.get(if code.is_some() { 2 } else { 0 }..).unwrap_or_default();
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}
