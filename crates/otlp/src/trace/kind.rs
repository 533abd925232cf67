//! The kind of operation that a span describes.

/// The kind of a span, independent of the convention that wrote it (conventions, section 0).
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
    /// An evaluation by another tool; never judged.
    Evaluator,
    /// A prompt being rendered or fetched.
    Prompt,
    /// Memory read or written.
    Memory,
    /// An agent's planning step.
    Plan,
    /// Not part of an agent: stays in the tree, is never judged, and its children count as its
    /// parent's.
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
