//! OTLP bytes: splits and writes requests without decoding spans, converts JSON, and builds the trace tree.
//!
//! A span is never decoded as a whole. Incoming requests: [`request`] validates and splits them (`check`
//! validates, `intern` shares resources and scopes), [`logs`] and [`metrics`] read those that are forwarded,
//! [`trace_ids`] finds ids alone.
//! On demand: [`fields`] and [`value`] read single fields. Outgoing requests: [`mod@write`] appends fields and
//! joins spans. [`json`] converts OTLP/JSON to protobuf and back. All readers borrow, are bounded by their
//! input, and never panic.
//!
//! | file | content |
//! |---|---|
//! | `scan`, `fields`, `value`, `malformed` | cursors over encoded messages, decoding on demand, and the error of both |
//! | `attribute_values` | attributes of a span or its resource as text |
//! | `request`, `check`, `intern` | requests of spans: split, validated, with shared resources and scopes |
//! | `logs`, `metrics`, `trace_ids` | requests of logs and metrics; trace ids alone |
//! | `trace` | a trace as data: spans, ids, the tree |
//! | `write`, `field_numbers`, `tags` | writing; numbers and tags of fields |
//! | `json` | OTLP/JSON |
//! | `signal`, `label` | signals and transports; enums with labels |
//! | `work` | a count of work, for tests |

#![deny(unreachable_pub)]
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod attribute_values;
mod check;
pub mod field_numbers;
pub mod fields;
mod intern;
pub mod json;
mod label;
pub mod logs;
mod malformed;
pub mod metrics;
pub mod request;
mod scan;
mod signal;
#[rustfmt::skip]
mod tags;
pub mod trace;
pub mod trace_ids;
pub mod value;
pub mod work;
pub mod write;

pub use fields::{ByteFields, Field, Fields, Payload, byte_fields};
pub use malformed::Malformed;
pub use request::{Interner, split};
pub use signal::{Piece, Signal, Transport};
pub use value::{Attributes, Value};

#[cfg(test)]
mod arbitrary;
#[cfg(test)]
mod tests;
