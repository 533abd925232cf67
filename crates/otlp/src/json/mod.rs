//! OTLP/JSON to encoded protobuf and back (OTLP specification, "JSON Protobuf Encoding").
//!
//! In: a request as JSON text, or as protobuf bytes. Out: the other form. A table generated from
//! `proto/` describes the messages for both directions, so the same functions serve all signals. They
//! write directly to the output, without an intermediate tree of values.
//!
//! Accepted, as the protocol requires: camelCase or snake_case names, unknown fields, `null` for an
//! absent field, 64-bit integers as strings or numbers, enums as numbers or names, `NaN` and
//! infinities as strings. Ids are hex in upper or lower case; base64, the encoding of protobuf's own
//! JSON mapping, is accepted for ids of the right length (22 or 24 characters for a trace id, 11 or 12
//! for a span id, lengths that no hex id has). An object with only unknown fields is an error, not an
//! empty message: see [`decode`].

use bytes::Bytes;

use super::malformed::Malformed;
use super::signal::Signal;
use super::trace::TraceId;

mod decode;
mod encode;
mod error;
#[rustfmt::skip]
pub(crate) mod messages;
mod scalar;
pub(crate) mod table;

pub use error::JsonError;

fn request_of(signal: Signal) -> &'static table::MessageDescriptor {
    match signal {
        Signal::Traces => &messages::EXPORT_TRACE_SERVICE_REQUEST,
        Signal::Logs => &messages::EXPORT_LOGS_SERVICE_REQUEST,
        Signal::Metrics => &messages::EXPORT_METRICS_SERVICE_REQUEST,
    }
}

/// Encodes a JSON request of `signal` as protobuf.
///
/// `{}` and an empty array are valid empty requests. A message between request and span that has
/// unknown fields but lacks its content field is an error (a logs request sent as traces, spans without
/// a request, fields of OTLP before 0.15), and so is a span, record, metric or value with unknown fields
/// only.
///
/// The output is at most four times as large as the text (arrays of one-digit bucket counts).
///
/// # Errors
/// The text is not JSON, not such a request, or nested deeper than 128 levels of JSON.
pub fn decode(signal: Signal, json: &[u8]) -> Result<Bytes, JsonError> {
    decode::decode(request_of(signal), json).map(Bytes::from)
}

/// The trace id in the value of a field, in any form that [`decode`] reads, and with the dashes of a UUID.
pub(crate) fn trace_id(text: &str) -> Option<TraceId> {
    let id = scalar::id(text, 16).or_else(|| scalar::id(&text.replace('-', ""), 16))?;
    id.try_into().ok().map(TraceId)
}

/// Writes an encoded request of `signal` as JSON on one line: ids in hex, enums as numbers, 64-bit
/// integers as strings. Fields unknown to OTLP have no name and are omitted.
///
/// # Errors
/// The bytes are not such a request.
pub fn encode(signal: Signal, encoded: &[u8]) -> Result<Vec<u8>, Malformed> {
    encode::encode(request_of(signal), encoded)
}

#[cfg(test)]
mod generate;
#[cfg(test)]
mod tests;
