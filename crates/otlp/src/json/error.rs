//! The error of parsing OTLP/JSON.

/// A JSON text is not an OTLP request.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}: {message}", if path.is_empty() { "request" } else { path })]
pub struct JsonError {
    /// Path of the invalid message, such as `resourceSpans[0].scopeSpans[0]`; empty for the request.
    pub path: String,
    /// The problem, with line and column.
    pub message: String,
}
