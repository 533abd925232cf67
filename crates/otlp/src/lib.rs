//! OTLP bytes: requests taken apart and put together without decoding spans, and JSON.
//!
//! A span is never decoded whole. On the way in [`request`] validates and splits (`check` is the
//! validation, `intern` shares resources and scopes), [`logs`] and [`metrics`] look into what
//! passes through; in between [`fields`] and [`value`] read where asked; on the way out [`mod@write`]
//! appends fields and joins spans into requests. [`json`] turns OTLP/JSON into the same bytes and
//! back. Everything here borrows where it can, is bounded by its input, and panics on no bytes.

mod check;
pub mod fields;
mod intern;
pub mod json;
pub mod logs;
pub mod metrics;
pub mod request;
mod signal;
pub mod stated;
pub mod trace;
pub mod value;
pub mod write;

pub use fields::{Field, Fields, Malformed, Payload};
pub use request::{Interner, split};
pub use signal::{Piece, Signal, Transport};
pub use value::{Attributes, Value};

#[cfg(test)]
mod arbitrary;
#[cfg(test)]
mod tests;
