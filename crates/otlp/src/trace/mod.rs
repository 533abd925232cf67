//! A trace as pure data: what one buffered span is, and the arena tree a closed trace becomes.
//!
//! In: spans in any order, with duplicates, orphans, several roots, even cycles. Out: [`Tree`],
//! whose indexes every later stage uses. Order of arrival never shows: spans are sorted by start
//! time, then id, before they are linked.

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;

mod closed;
mod tree;
pub use closed::{CloseReason, ClosedTrace, PriorVerdict};
pub use tree::Tree;

/// Position of a span in its [`Tree`].
pub type Idx = usize;

/// 16 bytes, never all zero once a span has been accepted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct TraceId(pub [u8; 16]);

/// 8 bytes; all zero means "none" (a root's parent).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct SpanId(pub [u8; 8]);

/// A map by trace or span id. Every span is looked up several times, so its hash is a fast one;
/// its seed is random, since ids come from outside.
pub type ById<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

// As one number: derived, an array is hashed with its length and byte by byte.
impl Hash for TraceId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u128(u128::from_ne_bytes(self.0));
    }
}

impl Hash for SpanId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(u64::from_ne_bytes(self.0));
    }
}

impl TraceId {
    /// True for the all-zero id, which OTLP calls invalid.
    pub fn is_zero(self) -> bool {
        self.0 == [0; 16]
    }
}

impl SpanId {
    /// True for the all-zero id: invalid as an id, "no parent" as a parent.
    pub fn is_zero(self) -> bool {
        self.0 == [0; 8]
    }
}

/// Written at once: ids stand in every finding, and formatting byte by byte costs ten times as much.
fn hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let digits = bytes.iter().flat_map(|b| [DIGITS[usize::from(b >> 4)], DIGITS[usize::from(b & 15)]]);
    let mut text = [0u8; 32];
    text.iter_mut().zip(digits).for_each(|(at, digit)| *at = digit as u8);
    f.write_str(std::str::from_utf8(&text[..bytes.len() * 2]).unwrap_or_default())
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

/// `Status.code` of a span.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Status {
    /// The sender said nothing.
    #[default]
    Unset,
    /// The sender said it went well.
    Ok,
    /// The sender said it failed.
    Error,
}

/// One buffered span: the few fields that assembling needs, and the bytes it came in.
#[derive(Clone, Debug)]
pub struct Span {
    /// Its id within the trace.
    pub id: SpanId,
    /// Its parent's id; zero for a root.
    pub parent: SpanId,
    /// `start_time_unix_nano`.
    pub start: u64,
    /// `end_time_unix_nano`; 0 when the sender never set it.
    pub end: u64,
    /// `Status.code`.
    pub status: Status,
    /// The parent is in another process (`Span.flags`, bits 8 and 9).
    pub remote_parent: bool,
    /// Carries `verdict.*` attributes from before us: to be replaced or kept, never doubled.
    pub has_verdict: bool,
    /// The encoded `Span` message, exactly as it came.
    pub bytes: Bytes,
    /// The resource and scope it came under.
    pub envelope: Arc<Envelope>,
}

/// What stood around a span in its request, kept as bytes so that unknown fields survive.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Envelope {
    /// Every field of `ResourceSpans` but its `scope_spans`, encoded.
    pub resource: Bytes,
    /// Every field of `ScopeSpans` but its `spans`, encoded.
    pub scope: Bytes,
}

/// A log record that belongs to a span of the trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Attached {
    /// The span it belongs to; it may come before or after the record.
    pub span: SpanId,
    /// The encoded `LogRecord`.
    pub record: Bytes,
}

/// What a span is, whatever convention wrote it (conventions, section 0).
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Debug,
    PartialOrd,
    Ord,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
    Default,
)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// One model invocation.
    Llm,
    /// One tool invocation.
    Tool,
    /// One run of an agent.
    Agent,
    /// A workflow, task or step.
    Chain,
    /// A search in a store of documents.
    Retriever,
    /// Text to vector.
    Embedding,
    /// Documents put in order.
    Reranker,
    /// A check of input or output.
    Guardrail,
    /// Somebody's evaluation; never judged.
    Evaluator,
    /// A prompt being rendered or fetched.
    Prompt,
    /// Memory read or written.
    Memory,
    /// An agent's planning step.
    Plan,
    /// Not an agent's span: stays in the tree, is never judged, hoists its children.
    #[default]
    Unknown,
}

impl Kind {
    /// The name as configuration and console write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Llm => "llm",
            Kind::Tool => "tool",
            Kind::Agent => "agent",
            Kind::Chain => "chain",
            Kind::Retriever => "retriever",
            Kind::Embedding => "embedding",
            Kind::Reranker => "reranker",
            Kind::Guardrail => "guardrail",
            Kind::Evaluator => "evaluator",
            Kind::Prompt => "prompt",
            Kind::Memory => "memory",
            Kind::Plan => "plan",
            Kind::Unknown => "unknown",
        }
    }
}
