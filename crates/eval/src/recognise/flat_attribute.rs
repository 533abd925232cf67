//! Attributes of flattened lists, whose keys contain an index: `llm.input_messages.0.message.role`.

use verdict_otlp::Value;

use super::kind_rules::FieldPrecedence;
use super::overrides::{Field, LeafKind};
use super::table::Leaf;

/// A leaf of a flattened list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlatAttribute<'a> {
    pub(crate) field: Field,
    pub(crate) order: FieldPrecedence,
    pub(crate) leaf: Leaf,
    pub(crate) value: Value<'a>,
    /// The value is that of the previous span.
    pub(crate) is_repeated: bool,
}

impl FlatAttribute<'_> {
    /// The key by which the leaves of a scan are sorted: field, precedence and index, as one number.
    #[inline]
    pub(super) fn sort_key(&self) -> u128 {
        let Leaf { index, inner_index, kind } = self.leaf;
        let list = u64::from(self.field as u16) << 48 | u64::from(self.order) << 32 | u64::from(index);
        let item = u64::from(nested_rank(kind)) << 32 | u64::from(inner_index);
        u128::from(list) << 64 | u128::from(item)
    }
}

/// Groups the leaves of one nested list: message, then parts, then calls.
fn nested_rank(kind: LeafKind) -> u8 {
    match kind {
        LeafKind::PartText | LeafKind::PartMedia | LeafKind::PartReasoning => 1,
        LeafKind::RequestId | LeafKind::RequestName | LeafKind::RequestArguments => 2,
        _ => 0,
    }
}
