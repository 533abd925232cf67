//! OTLP/JSON to encoded protobuf and back (OTLP specification, "JSON Protobuf Encoding").
//!
//! In: a request as JSON text, or as protobuf bytes. Out: the other. Driven by a table made from
//! `proto/`, so that all signals are read and written by the same few functions, straight into the
//! output: no tree of values is built in between.
//!
//! Read leniently where the protocol asks for it: camelCase or snake_case names, unknown fields,
//! `null` as absent, 64-bit integers as strings or numbers, enums as numbers or names, `NaN` and
//! infinities as strings. Ids are hex in any case; base64, which protobuf's own JSON mapping would
//! write, is understood for ids of the right size (22 or 24 characters for a trace id, 11 or 12
//! for a span id: hex of such a length would be no valid id). Never read as empty what was not
//! understood: see [`decode`].

use std::fmt;

use bytes::Bytes;

use super::fields::Malformed;
use crate::Signal;

mod decode;
mod encode;
#[rustfmt::skip]
mod messages;
mod scalar;
mod table;

/// The text is not an OTLP request in JSON.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub struct JsonError {
    /// Where, as in `resourceSpans[0].scopeSpans[0]`; empty for the request itself.
    pub path: String,
    /// What is wrong there, with line and column.
    pub message: String,
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "request" } else { &self.path };
        write!(f, "{path}: {}", self.message)
    }
}

fn request_of(signal: Signal) -> &'static table::Message {
    match signal {
        Signal::Traces => &messages::EXPORT_TRACE_SERVICE_REQUEST,
        Signal::Logs => &messages::EXPORT_LOGS_SERVICE_REQUEST,
        Signal::Metrics => &messages::EXPORT_METRICS_SERVICE_REQUEST,
    }
}

/// Encodes a JSON request of `signal` as protobuf.
///
/// `{}` and an empty array are legal empty requests. A request is an error where it holds unknown
/// fields but not the one that would hold its content (a logs request sent as traces, bare spans,
/// fields of OTLP before 0.15), at any level down to spans; so is a span, record, metric or value
/// that has fields of which none is known.
///
/// The output is at most four times as large as the text (arrays of one-digit bucket counts).
///
/// # Errors
/// Not JSON, not such a request, or nested too deep (128 levels of JSON).
pub fn decode(signal: Signal, json: &[u8]) -> Result<Bytes, JsonError> {
    decode::decode(request_of(signal), json).map(Bytes::from)
}

/// Writes an encoded request of `signal` as JSON on one line: ids in hex, enums as numbers, 64-bit
/// integers as strings. Fields that OTLP does not define have no name and are left out.
///
/// # Errors
/// The bytes are no such request.
pub fn encode(signal: Signal, encoded: &[u8]) -> Result<Vec<u8>, Malformed> {
    encode::encode(request_of(signal), encoded)
}

#[cfg(test)]
mod generate;
#[cfg(test)]
mod tests;
