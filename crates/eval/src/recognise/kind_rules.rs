//! The rules of a convention by which an attribute or a name implies the kind of a span.

use std::collections::HashMap;

use verdict_otlp::trace::Kind;

use super::overrides::{KindKey, NameRule, Rank};

/// The precedence of a candidate for a field: lower comes first.
pub(crate) type FieldPrecedence = u16;

/// The kind that one attribute or name implies.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct KindStatement {
    pub(crate) rank: Rank,
    pub(crate) order: FieldPrecedence,
    pub(crate) kind: Kind,
    /// The span only creates an agent.
    pub(crate) lifecycle: bool,
}

impl KindStatement {
    /// Whether this statement takes precedence over `other`.
    #[inline]
    pub(crate) fn outranks(&self, other: Option<KindStatement>) -> bool {
        let precedence =
            |statement: &KindStatement| u32::from(statement.rank as u8) << 16 | u32::from(statement.order);
        other.is_none_or(|other| precedence(self) < precedence(&other))
    }
}

/// The kind that span names of one form imply.
#[derive(Debug)]
pub(super) struct SpanNameRule {
    scope: Box<str>,
    pub(super) begins: Box<str>,
    /// `None` if the name must equal `begins`.
    ends: Option<Box<str>>,
    pub(super) statement: KindStatement,
}

impl SpanNameRule {
    pub(super) fn new(rule: &NameRule, order: FieldPrecedence) -> SpanNameRule {
        let (begins, ends) = match rule.name.split_once('*') {
            Some((begins, ends)) => (begins, Some(ends.into())),
            None => (rule.name.as_str(), None),
        };
        let statement = KindStatement { rank: rule.rank, order, kind: rule.kind, lifecycle: false };
        SpanNameRule { scope: rule.scope.as_str().into(), begins: begins.into(), ends, statement }
    }

    pub(super) fn matches(&self, scope: &str, name: &str) -> bool {
        let name_matches = match &self.ends {
            None => *self.begins == *name,
            Some(ends) => {
                name.len() >= self.begins.len() + ends.len()
                    && name.starts_with(self.begins.as_ref())
                    && name.ends_with(ends.as_ref())
            }
        };
        name_matches && scope.starts_with(self.scope.as_ref())
    }
}

/// The kinds that the values of one attribute imply.
#[derive(Debug)]
pub(super) struct KindRule {
    rank: Rank,
    order: FieldPrecedence,
    /// Kinds by value in lower case, and whether a span with the value only creates an agent.
    values: HashMap<Box<[u8]>, (Kind, bool), foldhash::fast::RandomState>,
    /// Kinds by the beginning of a value.
    prefixes: Vec<(Box<[u8]>, Kind)>,
    /// The kind of any other value.
    otherwise: Option<Kind>,
}

impl KindRule {
    pub(super) fn new(key: &KindKey, order: FieldPrecedence) -> KindRule {
        let KindKey { rank, otherwise, .. } = *key;
        let mut rule = KindRule { rank, order, values: HashMap::default(), prefixes: Vec::new(), otherwise };
        for (value, &kind) in &key.values {
            let value = value.to_ascii_lowercase();
            let lifecycle = key.lifecycle.iter().any(|l| l.eq_ignore_ascii_case(&value));
            match value.strip_suffix('*') {
                Some(prefix) => rule.prefixes.push((prefix.as_bytes().into(), kind)),
                None => {
                    rule.values.insert(value.as_bytes().into(), (kind, lifecycle));
                }
            }
        }
        rule
    }

    /// The statement about spans with this value.
    pub(super) fn statement(&self, value: &str) -> Option<KindStatement> {
        let mut lower = [0u8; 64];
        // Most values have no quotation marks or spaces around them.
        let is_word_byte = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        let is_trimmed = is_word_byte(value.as_bytes().first()) && is_word_byte(value.as_bytes().last());
        let value = if is_trimmed { value } else { value.trim_matches('"').trim() };
        // Many rules have only the kind of any value.
        let depends_on_value = !self.values.is_empty() || !self.prefixes.is_empty();
        let by_value = lower.get_mut(..value.len()).filter(|_| depends_on_value).and_then(|buffer| {
            buffer.copy_from_slice(value.as_bytes());
            buffer.make_ascii_lowercase();
            let value = &*buffer;
            let prefixed = || self.prefixes.iter().find(|(prefix, _)| value.starts_with(prefix.as_ref()));
            self.values.get(value).copied().or_else(|| prefixed().map(|(_, kind)| (*kind, false)))
        });
        let otherwise = || self.otherwise.filter(|_| !value.is_empty()).map(|kind| (kind, false));
        let (kind, lifecycle) = by_value.or_else(otherwise)?;
        Some(KindStatement { rank: self.rank, order: self.order, kind, lifecycle })
    }
}
