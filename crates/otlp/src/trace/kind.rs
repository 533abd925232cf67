//! The kind of operation that a span describes.

crate::labelled_enum! {
    /// The kind of a span, independent of its convention.
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
        /// Sorting of documents by relevance.
        Reranker = "reranker",
        /// A validation of input or output.
        Guardrail = "guardrail",
        /// An evaluation by another tool; never evaluated.
        Evaluator = "evaluator",
        /// Rendering or fetching of a prompt.
        Prompt = "prompt",
        /// A read or write of an agent's memory.
        Memory = "memory",
        /// An agent's planning step.
        Plan = "plan",
        /// Not part of an agent: remains in the tree and is never evaluated; its children count as those of
        /// its parent.
        #[default]
        Unknown = "unknown",
    }
}
