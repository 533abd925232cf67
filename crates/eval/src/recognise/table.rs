//! The conventions compiled for one pass: each key leads to what it says in one hash lookup.
//!
//! In: the built-in tables (`convention/*.yaml`) and the user's [`Overrides`]. Out: [`Table`].

use std::collections::HashMap;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use verdict_otlp::trace::Kind;

use super::control_tools::ControlTools;
use super::overrides::{EventRule, Field, LeafKind, Meaning, NameRule, Overrides, PlanMarker, Rank};
use super::tool;

/// The built-in conventions in their order of precedence for fields (conventions, sections 1-5).
const BUILT_IN: [(&str, &str); 13] = [
    ("otel_genai", include_str!("convention/otel_genai.yaml")),
    ("openinference", include_str!("convention/openinference.yaml")),
    ("vercel_ai", include_str!("convention/vercel_ai.yaml")),
    ("openllmetry", include_str!("convention/openllmetry.yaml")),
    ("google_adk", include_str!("convention/google_adk.yaml")),
    ("langfuse", include_str!("convention/langfuse.yaml")),
    ("mlflow", include_str!("convention/mlflow.yaml")),
    ("pydantic_ai", include_str!("convention/pydantic_ai.yaml")),
    ("trulens", include_str!("convention/trulens.yaml")),
    ("langsmith", include_str!("convention/langsmith.yaml")),
    ("traceai", include_str!("convention/traceai.yaml")),
    ("others", include_str!("convention/others.yaml")),
    ("generic", include_str!("convention/generic.yaml")),
];

/// Why the tables could not be compiled. Built-in tables are tested, so it is the user's.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TableError {
    /// A name in `precedence` is no built-in convention.
    #[error("no convention is called '{name}'; there are: {known}")]
    UnknownConvention {
        name: String,
        /// The built-in names.
        known: String,
    },
    /// A flattened list without its leaves.
    #[error("field {field:?} reads '{key}', but 'flattened' does not say what its leaves hold")]
    UnknownList { field: Field, key: String },
    /// A built-in table does not parse.
    #[error("built-in convention '{name}': {why}")]
    BuiltIn {
        name: &'static str,
        /// The parser's message.
        why: String,
    },
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ConventionFile {
    convention: String,
    #[serde(rename = "version")]
    _version: String,
    table: Overrides,
}

type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// By a key, or a part of one, as its bytes.
type ByKey<V> = Map<Box<[u8]>, V>;

/// How a candidate for a field ranks: lower is asked first.
pub(crate) type Order = u16;

/// A statement about a kind.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct KindStatement {
    pub(crate) rank: Rank,
    pub(crate) order: Order,
    pub(crate) kind: Kind,
    pub(crate) lifecycle: bool,
}

impl KindStatement {
    /// Counts more than `other`.
    pub(crate) fn outranks(&self, other: Option<KindStatement>) -> bool {
        other.is_none_or(|other| (self.rank, self.order) < (other.rank, other.order))
    }
}

/// A statement about span names.
#[derive(Debug)]
struct SpanNameRule {
    scope: Box<str>,
    begins: Box<str>,
    /// `None` where the name has to be `begins` exactly.
    ends: Option<Box<str>>,
    statement: KindStatement,
}

impl SpanNameRule {
    fn new(rule: &NameRule, order: Order) -> SpanNameRule {
        let (begins, ends) = match rule.name.split_once('*') {
            Some((begins, ends)) => (begins, Some(ends.into())),
            None => (rule.name.as_str(), None),
        };
        let statement = KindStatement { rank: rule.rank, order, kind: rule.kind, lifecycle: false };
        SpanNameRule { scope: rule.scope.as_str().into(), begins: begins.into(), ends, statement }
    }

    fn matches(&self, scope: &str, name: &str) -> bool {
        let named = match &self.ends {
            None => *self.begins == *name,
            Some(ends) => {
                name.len() >= self.begins.len() + ends.len()
                    && name.starts_with(self.begins.as_ref())
                    && name.ends_with(ends.as_ref())
            }
        };
        named && scope.starts_with(self.scope.as_ref())
    }
}

#[derive(Debug)]
struct KindRule {
    rank: Rank,
    order: Order,
    values: Map<Box<str>, (Kind, bool)>,
    beginnings: Vec<(Box<str>, Kind)>,
    otherwise: Option<Kind>,
}

/// All that one key can say.
#[derive(Debug, Default)]
pub(crate) struct KeyMeaning {
    pub(crate) fields: Vec<(Field, Order)>,
    kinds: Vec<KindRule>,
    flags: Vec<(Meaning, Vec<String>)>,
}

/// All that the keys of one flattened list can say.
#[derive(Debug, Default)]
pub(crate) struct FlattenedList {
    pub(crate) entry: KeyMeaning,
    leaves: ByKey<LeafKind>,
    nested: ByKey<ByKey<LeafKind>>,
}

/// One leaf of a flattened key: indexes and what it holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaf {
    pub(crate) index: u32,
    pub(crate) inner_index: u32,
    pub(crate) kind: LeafKind,
}

/// The compiled tables. Keys are looked up as the bytes that they came as.
#[derive(Debug, Default)]
pub(crate) struct Table {
    exact: ByKey<KeyMeaning>,
    groups: ByKey<FlattenedList>,
    open: Vec<(Box<str>, Field, Order)>,
    names: Vec<SpanNameRule>,
    pub(crate) events: Map<Box<str>, EventRule>,
    /// By convention, since `{}` is a value in one and nothing in another.
    absent: Vec<Vec<String>>,
    redacted: Vec<String>,
    pub(crate) control_tools: Arc<ControlTools>,
    pub(crate) plan_markers: Vec<PlanMarker>,
    /// Finds any marker at all: most texts hold none.
    plan_finder: Option<AhoCorasick>,
    pub(crate) plan_prompts: Vec<String>,
    pub(crate) not_failures: Vec<String>,
    pub(crate) plan_heuristic: bool,
    /// Not of the tables, but known as long as they are.
    pub(crate) definitions: tool::DefinitionCache,
}

/// Candidates that one convention can have for one field.
const PER_CONVENTION: Order = 64;

impl Table {
    pub(crate) fn new(user: &Overrides) -> Result<Table, TableError> {
        let mut built_in = Vec::new();
        for (name, text) in BUILT_IN {
            let file: ConventionFile =
                serde_saphyr::from_str(text).map_err(|e| TableError::BuiltIn { name, why: e.to_string() })?;
            built_in.push((file.convention, file.table));
        }
        for name in &user.precedence {
            if !built_in.iter().any(|(n, _)| n == name) {
                let known: Vec<_> = BUILT_IN.iter().map(|(n, _)| *n).collect();
                return Err(TableError::UnknownConvention { name: name.clone(), known: known.join(", ") });
            }
        }
        let place = |name: &String| user.precedence.iter().position(|p| p == name).unwrap_or(usize::MAX);
        built_in.sort_by_key(|(name, _)| place(name));
        let mut table = Table { plan_heuristic: user.plan_heuristic, ..Table::default() };
        table.add(0, user);
        for (i, (_, built_in)) in built_in.iter().enumerate() {
            table.add(i as Order + 1, built_in);
        }
        table.check()?;
        let markers = table.plan_markers.iter().map(|m| m.begins.as_str());
        // Every output is searched: a full automaton takes more memory and half the time.
        let finder = AhoCorasick::builder()
            .kind(Some(AhoCorasickKind::DFA))
            .ascii_case_insensitive(true)
            .build(markers);
        table.plan_finder = finder.ok();
        Ok(table)
    }

    /// False where no plan marker stands in `text`; true where one may.
    pub(crate) fn may_hold_plan(&self, text: &str) -> bool {
        self.plan_finder.as_ref().is_none_or(|finder| finder.is_match(text))
    }

    fn add(&mut self, convention: Order, from: &Overrides) {
        let base = convention * PER_CONVENTION;
        for (list, leaves) in &from.flattened {
            let group = self.groups.entry(prefix(list)).or_default();
            for (tail, piece) in leaves {
                match tail.split_once("#.") {
                    Some((head, rest)) => {
                        let nested = group.nested.entry(head.as_bytes().into()).or_default();
                        nested.insert(rest.as_bytes().into(), *piece);
                    }
                    None => {
                        group.leaves.insert(tail.as_bytes().into(), *piece);
                    }
                }
            }
        }
        for (field, keys) in &from.fields {
            for (i, key) in keys.iter().enumerate() {
                let order = base + (i as Order).min(PER_CONVENTION - 1);
                match key.strip_suffix('*') {
                    Some(open) => self.open.push((open.into(), *field, order)),
                    None => self.entry(key).fields.push((*field, order)),
                }
            }
        }
        for kind in &from.kinds {
            let mut rule = KindRule {
                rank: kind.rank,
                order: base,
                values: Map::default(),
                beginnings: Vec::new(),
                otherwise: kind.otherwise,
            };
            for (value, says) in &kind.values {
                let value = value.to_ascii_lowercase();
                let lifecycle = kind.lifecycle.iter().any(|l| l.eq_ignore_ascii_case(&value));
                match value.strip_suffix('*') {
                    Some(begin) => rule.beginnings.push((begin.into(), *says)),
                    None => {
                        rule.values.insert(value.into(), (*says, lifecycle));
                    }
                }
            }
            self.entry(&kind.key).kinds.push(rule);
        }
        for flag in &from.flags {
            self.entry(&flag.key).flags.push((flag.means, flag.values.clone()));
        }
        self.names.extend(from.names.iter().map(|rule| SpanNameRule::new(rule, base)));
        for (name, rule) in &from.events {
            self.events.entry(name.as_str().into()).or_insert(*rule);
        }
        self.absent.push(from.absent.clone());
        self.redacted.extend(from.redacted.iter().cloned());
        let tools = Arc::make_mut(&mut self.control_tools);
        tools.final_answer.extend(from.final_answer_tools.iter().cloned());
        tools.planning.extend(from.planning_tools.iter().cloned());
        tools.thinking.extend(from.thinking_tools.iter().cloned());
        self.plan_markers.extend(
            from.plan_markers.iter().map(|m| PlanMarker { begins: m.begins.to_lowercase(), ..m.clone() }),
        );
        self.plan_prompts.extend(from.plan_prompts.iter().cloned());
        self.not_failures.extend(from.not_failures.iter().cloned());
    }

    fn entry(&mut self, key: &str) -> &mut KeyMeaning {
        match key.ends_with(".#") {
            true => &mut self.groups.entry(prefix(key)).or_default().entry,
            false => self.exact.entry(key.as_bytes().into()).or_default(),
        }
    }

    fn check(&self) -> Result<(), TableError> {
        for (key, group) in &self.groups {
            if let Some((field, _)) = group.entry.fields.first()
                && group.leaves.is_empty()
                && group.nested.is_empty()
            {
                let key = format!("{}#", String::from_utf8_lossy(key));
                return Err(TableError::UnknownList { field: *field, key });
            }
        }
        Ok(())
    }

    /// What `key` says as a whole.
    pub(crate) fn exact(&self, key: &[u8]) -> Option<&KeyMeaning> {
        self.exact.get(key)
    }

    /// The flattened list that `key` belongs to, and what remains of the key after the prefix.
    pub(crate) fn group<'t, 'k>(&'t self, key: &'k [u8]) -> Option<(&'t FlattenedList, &'k [u8])> {
        let at = first_index(key)?;
        let (head, tail) = key.split_at_checked(at)?;
        self.groups.get(head).map(|g| (g, tail))
    }

    /// The flattened map that `key` belongs to: field, order, and the entry's own key.
    pub(crate) fn open<'k>(&self, key: &'k [u8]) -> Option<(Field, Order, &'k [u8])> {
        self.open
            .iter()
            .find_map(|(begin, field, order)| Some((*field, *order, key.strip_prefix(begin.as_bytes())?)))
    }

    /// What the span's name says of its kind, where that counts more than `known`.
    pub(crate) fn by_name(
        &self,
        scope: &str,
        name: &str,
        known: Option<KindStatement>,
    ) -> Option<KindStatement> {
        let mut best = known;
        for rule in &self.names {
            if rule.statement.outranks(best) && rule.matches(scope, name) {
                best = Some(rule.statement);
            }
        }
        best
    }

    /// The value is one that its convention writes for "not recorded".
    pub(crate) fn is_absent(&self, order: Order, value: &str) -> bool {
        value.is_empty()
            || self
                .absent
                .get(usize::from(order % EVENT_ORDER / PER_CONVENTION))
                .is_some_and(|words| words.iter().any(|w| w == value))
            || self.absent.first().is_some_and(|words| words.iter().any(|w| w == value))
    }

    /// The value stands in place of content that was taken out.
    pub(crate) fn is_redacted(&self, value: &str) -> bool {
        // Asked of every text, of which hardly any begins like one of the words.
        let quoted = value.starts_with('"') || value.ends_with('"');
        let value = if quoted { value.trim_matches('"') } else { value };
        let first = value.as_bytes().first();
        self.redacted.iter().filter(|word| word.as_bytes().first() == first).any(|word| {
            match word.ends_with([']', '>', '_']) {
                true => value == word,
                false => value.starts_with(word.as_str()),
            }
        })
    }
}

/// Attributes of events rank after those of the span: this is added to their order.
pub(crate) const EVENT_ORDER: Order = 1 << 14;

impl KeyMeaning {
    /// What `value` says of the kind.
    pub(crate) fn kinds(&self, value: &str) -> impl Iterator<Item = KindStatement> {
        self.kinds.iter().filter_map(move |rule| {
            let mut lower = [0u8; 64];
            let value = value.trim_matches('"').trim();
            let found = lower.get_mut(..value.len()).and_then(|buffer| {
                buffer.copy_from_slice(value.as_bytes());
                buffer.make_ascii_lowercase();
                let value = std::str::from_utf8(buffer).ok()?;
                rule.values.get(value).copied().or_else(|| {
                    rule.beginnings
                        .iter()
                        .find(|(b, _)| value.starts_with(b.as_ref()))
                        .map(|(_, k)| (*k, false))
                })
            });
            let (kind, lifecycle) =
                found.or(rule.otherwise.filter(|_| !value.is_empty()).map(|k| (k, false)))?;
            Some(KindStatement { rank: rule.rank, order: rule.order, kind, lifecycle })
        })
    }

    pub(crate) fn has_kind_rules(&self) -> bool {
        !self.kinds.is_empty()
    }

    /// What `value` flags.
    pub(crate) fn flags<'e>(&'e self, value: &'e str) -> impl Iterator<Item = Meaning> + 'e {
        self.flags
            .iter()
            .filter(move |(_, values)| match values.is_empty() {
                true => !value.is_empty() && value != "false",
                false => values.iter().any(|v| v.eq_ignore_ascii_case(value.trim_matches('"'))),
            })
            .map(|(means, _)| *means)
    }

    pub(crate) fn has_flags(&self) -> bool {
        !self.flags.is_empty()
    }
}

impl FlattenedList {
    /// The indexes in `tail` (what follows the prefix) and what the leaf holds.
    pub(crate) fn leaf(&self, tail: &[u8]) -> Option<Leaf> {
        let (index, tail) = parse_index(tail)?;
        let tail = tail.strip_prefix(b".").unwrap_or(tail);
        if let Some(kind) = self.leaves.get(tail) {
            return Some(Leaf { index, inner_index: 0, kind: *kind });
        }
        let at = first_index(tail)?;
        let (head, rest) = tail.split_at_checked(at)?;
        let (inner_index, rest) = parse_index(rest)?;
        let kind = self.nested.get(head)?.get(rest.strip_prefix(b".")?)?;
        Some(Leaf { index, inner_index, kind: *kind })
    }
}

fn prefix(list: &str) -> Box<[u8]> {
    list.strip_suffix('#').unwrap_or(list).as_bytes().into()
}

/// Where the first index stands: after a dot, before digits.
fn first_index(key: &[u8]) -> Option<usize> {
    key.windows(2).position(|w| matches!(w, [b'.', b'0'..=b'9'])).map(|at| at + 1)
}

fn parse_index(text: &[u8]) -> Option<(u32, &[u8])> {
    let end = text.iter().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at_checked(end)?;
    let add = |n: u32, digit: &u8| n.checked_mul(10)?.checked_add(u32::from(digit - b'0'));
    let n = digits.iter().try_fold(0, add).filter(|_| !digits.is_empty())?;
    Some((n, rest))
}
