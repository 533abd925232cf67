//! Messages of a flattened prompt, which the next prompt repeats.

use super::flat_attribute::FlatAttribute;
use super::message::Message;
use super::overrides::LeafKind;

/// A message of a flattened prompt, and the leaves that it was read from. The next prompt repeats most of them.
pub(super) struct FlatMessage {
    leaves: Vec<LeafAddress>,
    pub(super) message: Message,
    pub(super) is_hidden: bool,
    pub(super) is_cut: bool,
}

/// The meaning of a leaf, and the address of its text in the trace.
type LeafAddress = (LeafKind, u32, *const u8, usize);

/// The address of a leaf; `None` for a value that is no text, and for a finish reason, which is no part of the message.
fn address(leaf: &FlatAttribute<'_>) -> Option<LeafAddress> {
    let text = leaf.value.as_str().filter(|_| leaf.leaf.kind != LeafKind::Finish)?;
    Some((leaf.leaf.kind, leaf.leaf.inner_index, text.as_ptr(), text.len()))
}

impl FlatMessage {
    /// `None` if a leaf has no address, so that the message cannot be recognised again.
    pub(super) fn new(
        leaves: &[FlatAttribute<'_>],
        message: &Message,
        is_hidden: bool,
        is_cut: bool,
    ) -> Option<FlatMessage> {
        let mut addresses = Vec::with_capacity(leaves.len());
        for leaf in leaves {
            addresses.push(address(leaf)?);
        }
        Some(FlatMessage { leaves: addresses, message: message.clone(), is_hidden, is_cut })
    }

    /// Whether the message was read from equal leaves: they have the same addresses.
    pub(super) fn was_read_from(&self, leaves: &[FlatAttribute<'_>]) -> bool {
        self.leaves.len() == leaves.len()
            && self.leaves.iter().zip(leaves).all(|(expected, leaf)| address(leaf) == Some(*expected))
    }
}
