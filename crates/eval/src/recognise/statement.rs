//! Statements of a span's attributes about its kind.

use verdict_otlp::Value;

use super::kind_rules::KindStatement;
use super::overrides::Rank;
use super::table::KeyMeaning;

/// The statement that an attribute's value, or the attributes of a span together, make about the span, without flags.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AttributeStatement {
    /// The strongest statement about the kind, except for `model_key`.
    pub(super) kind: Option<KindStatement>,
    /// The strongest statement of rank [`Rank::ModelKey`].
    pub(super) model_key: Option<KindStatement>,
    /// A token count is above 0.
    pub(super) used_tokens: bool,
}

impl AttributeStatement {
    pub(super) fn read(entry: &KeyMeaning, value: Value<'_>) -> AttributeStatement {
        let mut stated = AttributeStatement::default();
        if !entry.kinds.is_empty() {
            entry.kinds(keyword(value)).for_each(|statement| stated.add_kind(statement));
        }
        stated.used_tokens = entry.is_usage
            && match value {
                Value::Int(n) => n > 0,
                Value::Double(n) => n > 0.0,
                Value::Str(s) => !matches!(s, "" | "0"),
                _ => false,
            };
        stated
    }

    #[inline]
    pub(super) fn add(&mut self, other: &AttributeStatement) {
        other.kind.into_iter().chain(other.model_key).for_each(|statement| self.add_kind(statement));
        self.used_tokens |= other.used_tokens;
    }

    #[inline]
    pub(super) fn add_kind(&mut self, statement: KindStatement) {
        let strongest = match statement.rank {
            Rank::ModelKey => &mut self.model_key,
            _ => &mut self.kind,
        };
        if statement.outranks(*strongest) {
            *strongest = Some(statement);
        }
    }
}

/// A value as text, to compare with the values of kinds and flags.
pub(super) fn keyword(value: Value<'_>) -> &str {
    match value {
        Value::Str(s) => s,
        Value::Bool(true) => "true",
        Value::Bool(false) => "false",
        Value::Empty => "",
        Value::Int(0) => "0",
        _ => "...",
    }
}
