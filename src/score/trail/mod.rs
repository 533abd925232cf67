//! The TRAIL benchmark: its files, its taxonomy, its figures (paper 001, section 4).
//!
//! In: judged traces and what people annotated. Out: predictions in the benchmark's own shape, and
//! how right they are. [`annotation`] reads and writes files' contents, [`label`] spells categories
//! as the gold does, [`mapper`] has a judge name what rules leave without one, [`find`] turns
//! findings into predictions, [`benchmark`] counts, [`ratings`] makes the trace scores.

pub mod annotation;
pub mod benchmark;
pub mod find;
pub mod label;
pub mod mapper;
pub mod ratings;

pub use annotation::{Annotation, Annotations, Ratings, impact};
pub use benchmark::{Benchmark, TraceMarks};
pub use label::Label;
