//! OTLP bytes: partial reads, validation, appended fields, JSON.
//!
//! A span is never decoded whole. [`fields`] walks one message; [`value`] reads an `AnyValue`
//! where it is asked for. Everything here borrows; nothing panics on any bytes.

mod check;
pub mod fields;
mod intern;
pub mod json;
pub mod logs;
pub mod messages;
pub mod metrics;
pub mod request;
pub mod value;
pub mod write;

pub use fields::{Field, Fields, Malformed, Payload};
pub use request::{Interner, split};
pub use value::{Attributes, Value};

#[cfg(test)]
mod arbitrary;
#[cfg(test)]
mod tests;
