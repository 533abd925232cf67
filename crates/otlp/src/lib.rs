//! OTLP bytes: splits and writes requests without decoding spans, and converts JSON.
//!
//! A span is never decoded as a whole. Incoming: [`request`] validates and splits (`check` is the
//! validation, `intern` shares resources and scopes), [`logs`] and [`metrics`] read requests that
//! pass through. On demand: [`fields`] and [`value`]. Outgoing: [`mod@write`] appends fields and
//! joins spans into requests. [`json`] converts OTLP/JSON to the same bytes and back. All readers
//! borrow, are bounded by their input, and panic on no input.

#![deny(unreachable_pub)]

mod check;
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
pub mod stated;
#[rustfmt::skip]
mod tags;
pub mod trace;
pub mod value;
pub mod write;

pub use fields::{Field, Fields, Payload};
pub use malformed::Malformed;
pub use request::{Interner, split};
pub use signal::{Piece, Signal, Transport};
pub use value::{Attributes, Value};

#[cfg(test)]
mod arbitrary;
#[cfg(test)]
mod tests;
