//! The conventions, compiled so that one hash lookup of a key yields all of its meanings.
//!
//! In: the built-in tables (`convention/*.yaml`) and the user's [`Overrides`]. Out: [`ConventionTable`].

mod markers;

use std::collections::{BTreeMap, HashMap};
use std::iter::repeat;
use std::sync::{Arc, LazyLock};

use aho_corasick::packed::Searcher;
use aho_corasick::{AhoCorasick, AhoCorasickKind};
use memchr::memmem::Finder;
use verdict_otlp::work::{self, BYTES_PER_STEP};

use super::control_tools::ControlTools;
use super::kind_rules::{FieldPrecedence, KindRule, KindStatement, SpanNameRule};
use super::overrides::{EventRule, Field, LeafKind, Meaning, Overrides, PlanMarker};
use super::tool;
use crate::pattern::contains_ignoring_case;

macro_rules! built_in {
    ($($name:literal),+ $(,)?) => {
        [$(($name, include_str!(concat!("convention/", $name, ".yaml")))),+]
    };
}

/// Most plan markers contain this word, and few texts do: a text without it is not searched for markers.
const PLAN: &str = "plan";
static PLAN_FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(PLAN));

/// The built-in conventions in their order of precedence for fields.
const BUILT_IN: [(&str, &str); 13] = built_in![
    "otel_genai",
    "openinference",
    "vercel_ai",
    "openllmetry",
    "google_adk",
    "langfuse",
    "mlflow",
    "pydantic_ai",
    "trulens",
    "langsmith",
    "traceai",
    "others",
    "generic",
];

/// Why the conventions could not be compiled. The built-in ones are tested, so the cause is in the
/// configuration.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    #[error("there is no built-in convention '{name}' for 'precedence'; the names are: {known}")]
    UnknownConvention { name: String, known: String },
    #[error("field {field:?} reads the list '{key}', but 'flattened' does not define its leaves")]
    UnknownList { field: Field, key: String },
    #[error("the built-in convention '{name}' cannot be parsed: {error}")]
    BuiltIn { name: &'static str, error: String },
}

#[derive(serde::Deserialize)]
struct ConventionFile {
    table: Overrides,
}

type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// Values by the bytes of a key or of a part of it.
type ByKey<V> = Map<Box<[u8]>, V>;

/// Every meaning of one key.
#[derive(Debug, Default)]
pub(crate) struct KeyMeaning {
    pub(crate) fields: Vec<(Field, FieldPrecedence)>,
    pub(super) kinds: Vec<KindRule>,
    pub(super) flags: Vec<(Meaning, Vec<String>)>,
    /// Values are statements about the span as a whole: its kind, a flag, or that tokens were used.
    pub(super) is_statement: bool,
    /// The key is that of a token count.
    pub(super) is_usage: bool,
}

/// Every meaning of the keys of one flattened list.
#[derive(Debug, Default)]
pub(crate) struct FlattenedList {
    pub(crate) entry: KeyMeaning,
    /// By the part of the key after the index.
    leaves: ByKey<LeafKind>,
    /// By the part of the key up to the index of a nested list, then by the part after that index.
    nested: ByKey<ByKey<LeafKind>>,
}

/// One leaf of a flattened list: its indexes and its meaning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaf {
    pub(crate) index: u32,
    pub(crate) inner_index: u32,
    pub(crate) kind: LeafKind,
}

/// The compiled conventions. Keys are looked up as bytes, without UTF-8 validation.
#[derive(Debug, Default)]
pub(crate) struct ConventionTable {
    exact: ByKey<KeyMeaning>,
    lists: ByKey<FlattenedList>,
    /// A key of `exact` has the form of a key of a list.
    has_exact_leaves: bool,
    /// The prefixes of flattened maps.
    maps: Vec<(Box<str>, Field, FieldPrecedence)>,
    /// Rules for span names, by precedence.
    names: Vec<SpanNameRule>,
    /// By the first byte of a name, the rules that can match it, in order; the last list is for empty names.
    names_by_first: Vec<Vec<usize>>,
    pub(crate) events: Map<Box<str>, EventRule>,
    /// The values that mean "not recorded", by convention: `{}` is a value in one and means "not recorded" in another.
    absent: Vec<Vec<String>>,
    /// The first bytes of these values.
    absent_begins: ByteSet,
    /// Markers that replace removed content.
    redacted: Vec<String>,
    /// The first bytes and the second bytes of these markers.
    redacted_begins: [ByteSet; 2],
    /// Finds these markers at the beginning of a JSON string; `None` if there are too many of them.
    redacted_strings: Option<Searcher>,
    /// Markers at the end of a text that was cut off.
    truncated: Vec<String>,
    /// The last bytes and the last but one bytes of these markers.
    truncated_ends: [ByteSet; 2],
    pub(crate) control_tools: Arc<ControlTools>,
    pub(crate) plan_markers: Vec<PlanMarker>,
    /// Finds any plan marker; most texts contain none.
    plan_finder: Option<AhoCorasick>,
    /// Some marker does not contain [`PLAN`].
    has_other_markers: bool,
    pub(crate) plan_prompts: Vec<String>,
    pub(crate) not_failures: Vec<String>,
    pub(crate) plan_heuristic: bool,
    /// Part of the table, so that all traces share it.
    pub(crate) definitions: tool::DefinitionCache,
}

/// Maximum number of candidates of one convention for one field that have different precedences.
const PER_CONVENTION: FieldPrecedence = 64;

impl ConventionTable {
    pub(crate) fn new(user: &Overrides) -> Result<ConventionTable, TableError> {
        let mut built_in = Vec::with_capacity(BUILT_IN.len());
        for (name, text) in BUILT_IN {
            let file: ConventionFile = serde_saphyr::from_str(text)
                .map_err(|error| TableError::BuiltIn { name, error: error.to_string() })?;
            built_in.push((name, file.table));
        }
        if let Some(name) = user.precedence.iter().find(|name| BUILT_IN.iter().all(|(n, _)| n != name)) {
            let known = BUILT_IN.map(|(name, _)| name).join(", ");
            return Err(TableError::UnknownConvention { name: name.clone(), known });
        }
        let position = |name: &str| user.precedence.iter().position(|p| p == name).unwrap_or(usize::MAX);
        built_in.sort_by_key(|(name, _)| position(name));
        let mut table = ConventionTable { plan_heuristic: user.plan_heuristic, ..ConventionTable::default() };
        for (i, convention) in std::iter::once(user).chain(built_in.iter().map(|(_, c)| c)).enumerate() {
            table.add(convention, i as FieldPrecedence * PER_CONVENTION);
        }
        table.check_lists()?;
        let lists = table.lists.values_mut().map(|list| &mut list.entry);
        for entry in table.exact.values_mut().chain(lists) {
            let counts = [Field::TokensInput, Field::TokensOutput, Field::Usage];
            entry.is_usage = entry.fields.iter().any(|(field, _)| counts.contains(field));
            entry.is_statement = !entry.kinds.is_empty() || !entry.flags.is_empty() || entry.is_usage;
        }
        table.has_exact_leaves = table.exact.keys().any(|key| table.list(key).is_some());
        // Every output is searched: a DFA takes half the time of an NFA, for more memory.
        let finder = AhoCorasick::builder()
            .kind(Some(AhoCorasickKind::DFA))
            .ascii_case_insensitive(true)
            .build(table.plan_markers.iter().map(|marker| &marker.begins));
        table.plan_finder = finder.ok();
        table.has_other_markers =
            table.plan_markers.iter().any(|marker| !contains_ignoring_case(&marker.begins, PLAN));
        table.names.sort_by_key(|rule| (rule.statement.rank, rule.statement.order));
        let may_match = |first: Option<u8>| {
            let begins =
                |rule: &SpanNameRule| rule.begins.bytes().next().is_none_or(|byte| Some(byte) == first);
            table.names.iter().enumerate().filter(|(_, rule)| begins(rule)).map(|(nth, _)| nth).collect()
        };
        table.names_by_first = (0..=u8::MAX).map(Some).chain([None]).map(may_match).collect();
        for word in table.absent.iter().flatten() {
            add_bytes_by_position(std::slice::from_mut(&mut table.absent_begins), word.bytes());
        }
        for word in &table.redacted {
            add_bytes_by_position(&mut table.redacted_begins, word.bytes());
        }
        for marker in &table.truncated {
            add_bytes_by_position(&mut table.truncated_ends, marker.bytes().rev());
        }
        table.redacted_strings = Searcher::new(table.redacted.iter().map(|word| format!("\"{word}")));
        Ok(table)
    }

    /// False if `text` contains no plan marker.
    pub(crate) fn may_contain_plan(&self, text: &str) -> bool {
        (self.has_other_markers || mentions_plan(text))
            && self.plan_finder.as_ref().is_none_or(|finder| finder.is_match(text))
    }

    /// Adds a convention whose candidates rank from `base`.
    fn add(&mut self, convention: &Overrides, base: FieldPrecedence) {
        for (list, leaves) in &convention.flattened {
            self.add_list(list, leaves);
        }
        for (field, keys) in &convention.fields {
            self.add_field(*field, keys, base);
        }
        for kind in &convention.kinds {
            self.entry(&kind.key).kinds.push(KindRule::new(kind, base));
        }
        for flag in &convention.flags {
            self.entry(&flag.key).flags.push((flag.means, flag.values.clone()));
        }
        self.names.extend(convention.names.iter().map(|rule| SpanNameRule::new(rule, base)));
        for (name, rule) in &convention.events {
            self.events.entry(name.as_str().into()).or_insert(*rule);
        }
        self.absent.push(convention.absent.clone());
        self.redacted.extend_from_slice(&convention.redacted);
        self.truncated.extend(convention.truncated.iter().map(|marker| marker.to_ascii_lowercase()));
        let tools = Arc::make_mut(&mut self.control_tools);
        tools.final_answer.extend_from_slice(&convention.final_answer_tools);
        tools.planning.extend_from_slice(&convention.planning_tools);
        tools.thinking.extend_from_slice(&convention.thinking_tools);
        self.plan_markers.extend(
            convention
                .plan_markers
                .iter()
                .map(|m| PlanMarker { begins: m.begins.to_lowercase(), ..m.clone() }),
        );
        self.plan_prompts.extend_from_slice(&convention.plan_prompts);
        self.not_failures.extend_from_slice(&convention.not_failures);
    }

    /// Adds the leaves of a flattened list. A second `#` in a leaf's key is the index of a nested list.
    fn add_list(&mut self, list: &str, leaves: &BTreeMap<String, LeafKind>) {
        let list = self.lists.entry(list_prefix(list)).or_default();
        for (key, kind) in leaves {
            let (leaves, key) = match key.split_once("#.") {
                Some((head, rest)) => (list.nested.entry(head.as_bytes().into()).or_default(), rest),
                None => (&mut list.leaves, key.as_str()),
            };
            leaves.insert(key.as_bytes().into(), *kind);
        }
    }

    /// Adds the keys of a field in order of precedence.
    fn add_field(&mut self, field: Field, keys: &[String], base: FieldPrecedence) {
        for (key, order) in keys.iter().zip((0..PER_CONVENTION).chain(repeat(PER_CONVENTION - 1))) {
            match key.strip_suffix('*') {
                Some(prefix) => self.maps.push((prefix.into(), field, base + order)),
                None => self.entry(key).fields.push((field, base + order)),
            }
        }
    }

    fn entry(&mut self, key: &str) -> &mut KeyMeaning {
        match key.ends_with(".#") {
            true => &mut self.lists.entry(list_prefix(key)).or_default().entry,
            false => self.exact.entry(key.as_bytes().into()).or_default(),
        }
    }

    fn check_lists(&self) -> Result<(), TableError> {
        for (key, list) in self.lists.iter().filter(|(_, l)| l.leaves.is_empty() && l.nested.is_empty()) {
            if let Some((field, _)) = list.entry.fields.first() {
                let key = format!("{}#", String::from_utf8_lossy(key));
                return Err(TableError::UnknownList { field: *field, key });
            }
        }
        Ok(())
    }

    /// The meanings of `key`, unless it belongs to a flattened list or map.
    pub(crate) fn exact(&self, key: &[u8]) -> Option<&KeyMeaning> {
        self.exact.get(key)
    }

    /// The flattened list that `key` belongs to, and the part of the key before the index.
    pub(crate) fn list<'t, 'k>(&'t self, key: &'k [u8]) -> Option<(&'t FlattenedList, &'k [u8])> {
        let head = key.get(..first_index(key)?)?;
        self.lists.get(head).map(|list| (list, head))
    }

    /// Whether `key` belongs to the same flattened list as a key that begins with `head`.
    pub(crate) fn is_in_list(&self, key: &[u8], head: &[u8]) -> bool {
        !self.has_exact_leaves
            && key.strip_prefix(head).is_some_and(|tail| tail.first().is_some_and(u8::is_ascii_digit))
    }

    /// The field of the flattened map that `key` belongs to, its precedence, and the key of the entry.
    pub(crate) fn map_entry<'k>(&self, key: &'k [u8]) -> Option<(Field, FieldPrecedence, &'k [u8])> {
        let mut maps = self.maps.iter();
        maps.find_map(|(prefix, field, order)| Some((*field, *order, key.strip_prefix(prefix.as_bytes())?)))
    }

    /// The statement of the span's name about its kind, or `statement` if that takes precedence.
    pub(crate) fn kind_statement(
        &self,
        scope: &str,
        name: &str,
        statement: Option<KindStatement>,
    ) -> Option<KindStatement> {
        let first = name.bytes().next().map_or(usize::from(u8::MAX) + 1, usize::from);
        let rules = self.names_by_first.get(first).into_iter().flatten();
        let rules = rules.filter_map(|nth| self.names.get(*nth));
        let mut outranking = rules.take_while(|rule| rule.statement.outranks(statement));
        outranking.find(|rule| rule.matches(scope, name)).map(|rule| rule.statement).or(statement)
    }

    /// Whether the value is empty or means "not recorded" in its convention.
    pub(crate) fn is_absent(&self, order: FieldPrecedence, value: &str) -> bool {
        let Some(first) = value.bytes().next() else { return true };
        self.absent_begins.contains(first) && self.means_not_recorded(order, value)
    }

    fn means_not_recorded(&self, order: FieldPrecedence, value: &str) -> bool {
        let convention = usize::from(order % EVENT_ORDER / PER_CONVENTION);
        // The words of the configuration come first and apply to every convention.
        let mut words = [convention, 0].into_iter().filter_map(|i| self.absent.get(i)).flatten();
        words.any(|word| word == value)
    }
}

/// Added to the order of an event's attributes, so that they rank after those of the span.
pub(crate) const EVENT_ORDER: FieldPrecedence = 1 << 14;

impl KeyMeaning {
    /// The kind that `value` implies.
    pub(crate) fn kinds(&self, value: &str) -> impl Iterator<Item = KindStatement> {
        self.kinds.iter().filter_map(move |rule| rule.statement(value))
    }

    /// The meanings of `value` as a flag.
    pub(crate) fn flags<'e>(&'e self, value: &'e str) -> impl Iterator<Item = Meaning> + 'e {
        self.flags
            .iter()
            .filter(move |(_, values)| match values.is_empty() {
                true => !matches!(value, "" | "false" | "0"),
                false => values.iter().any(|v| v.eq_ignore_ascii_case(value.trim_matches('"'))),
            })
            .map(|(means, _)| *means)
    }
}

/// A set of bytes, one bit for each.
#[derive(Clone, Copy, Debug, Default)]
struct ByteSet([u64; 4]);

impl ByteSet {
    #[inline]
    fn contains(&self, byte: u8) -> bool {
        self.0[usize::from(byte / 64)] >> (byte % 64) & 1 == 1
    }
}

/// Adds the n-th byte of a word to the n-th set. A set beyond the end of the word gets all bytes, since any byte may
/// follow.
fn add_bytes_by_position(sets: &mut [ByteSet], mut word: impl Iterator<Item = u8>) {
    for set in sets {
        match word.next() {
            Some(byte) => set.0[usize::from(byte / 64)] |= 1 << (byte % 64),
            None => set.0 = [u64::MAX; 4],
        }
    }
}

impl FlattenedList {
    /// The inner index and the meaning of the leaf whose key is `tail` after the index.
    pub(crate) fn leaf(&self, tail: &[u8]) -> Option<(u32, LeafKind)> {
        let tail = tail.strip_prefix(b".").unwrap_or(tail);
        if let Some(kind) = self.leaves.get(tail) {
            return Some((0, *kind));
        }
        let index_start = first_index(tail)?;
        let (head, rest) = tail.split_at_checked(index_start)?;
        let (inner_index, rest) = parse_index(rest)?;
        let kind = self.nested.get(head)?.get(rest.strip_prefix(b".")?)?;
        Some((inner_index, *kind))
    }
}

/// Whether the text contains [`PLAN`] in any case.
fn mentions_plan(text: &str) -> bool {
    work::count(1 + text.len() / BYTES_PER_STEP);
    // Converting a part to lower case is cheaper than searching a frequent letter in both cases.
    const PART: usize = 256;
    let mut lower = [0; PART];
    let mut parts =
        (0..text.len()).step_by(PART + 1 - PLAN.len()).filter_map(|start| text.as_bytes().get(start..));
    parts.any(|rest| {
        let part = rest.get(..PART).unwrap_or(rest);
        let lower = &mut lower[..part.len()];
        lower.copy_from_slice(part);
        lower.make_ascii_lowercase();
        PLAN_FINDER.find(lower).is_some()
    })
}

fn list_prefix(list: &str) -> Box<[u8]> {
    list.strip_suffix('#').unwrap_or(list).as_bytes().into()
}

/// The position of the first index: the digit after a dot.
fn first_index(key: &[u8]) -> Option<usize> {
    key.windows(2).position(|w| matches!(w, [b'.', b'0'..=b'9'])).map(|dot| dot + 1)
}

/// The number at the beginning of `text`, and the rest.
pub(super) fn parse_index(text: &[u8]) -> Option<(u32, &[u8])> {
    let end = text.iter().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at_checked(end)?;
    let add = |n: u32, digit: &u8| n.checked_mul(10)?.checked_add(u32::from(digit - b'0'));
    let n = digits.iter().try_fold(0, add).filter(|_| !digits.is_empty())?;
    Some((n, rest))
}

#[cfg(test)]
mod tests {
    use super::mentions_plan;

    #[test]
    fn plan_is_found_at_any_place_and_in_any_case() {
        for before in (0..20).chain(240..270).chain(500..520) {
            let text = format!("{}pLan of é", "p".repeat(before));
            assert!(mentions_plan(&text) && !mentions_plan(&text.replace("pLan", "pLa n")), "{before}");
        }
        assert!(!mentions_plan(""));
    }
}
