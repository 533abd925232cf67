//! A trace as data: buffered spans, and the tree of a closed trace.
//!
//! In: spans in any order, possibly with duplicates, missing parents, several roots, or cycles. Out: a
//! [`Tree`], whose indexes all later stages use. The result does not depend on the order of arrival: spans
//! are sorted by start time, then id, before they are linked.

mod closed;
mod envelope;
mod id;
mod kind;
mod span;
mod tree;

pub use closed::{CloseReason, ClosedTrace, PriorVerdict};
pub use envelope::{Envelope, EnvelopeFields};
pub(crate) use id::hex;
pub use id::{ById, InvalidId, SpanId, TraceId};
pub use kind::Kind;
pub use span::{AttachedLog, Idx, Span, Status};
pub use tree::Tree;
