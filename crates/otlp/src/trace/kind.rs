//! The kind of operation that a span describes.

crate::labelled_enum! {
    /// The kind of a span, independent of the convention that wrote it (conventions, section 0).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
    #[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum Kind {
        /// One model invocation.
        Llm = "llm",
        /// One tool invocation.
        Tool = "tool",
        /// One run of an agent.
        Agent = "agent",
        /// A workflow, task or step.
        Chain = "chain",
        /// A search in a store of documents.
        Retriever = "retriever",
        /// Text to vector.
        Embedding = "embedding",
        /// Documents put in order.
        Reranker = "reranker",
        /// A check of input or output.
        Guardrail = "guardrail",
        /// An evaluation by another tool; never judged.
        Evaluator = "evaluator",
        /// A prompt being rendered or fetched.
        Prompt = "prompt",
        /// Memory read or written.
        Memory = "memory",
        /// An agent's planning step.
        Plan = "plan",
        /// Not part of an agent: stays in the tree, is never judged, and its children count as its
        /// parent's.
        #[default]
        Unknown = "unknown",
    }
}
