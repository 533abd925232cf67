//! Why a JSON text is not an OTLP request.

use std::fmt;

/// The text is not an OTLP request in JSON.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub struct JsonError {
    /// Path of the faulty message, such as `resourceSpans[0].scopeSpans[0]`; empty for the request.
    pub path: String,
    /// The fault, with line and column.
    pub message: String,
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "request" } else { &self.path };
        write!(f, "{path}: {}", self.message)
    }
}
