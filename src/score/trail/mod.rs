//! The TRAIL benchmark: its files, its taxonomy, its figures (paper 001, section 4).
//!
//! In: evaluated traces and their annotations. Out: predictions in the benchmark's own shape, and their figures.
//!
//! | file | content |
//! |---|---|
//! | [`annotation`] | reads and writes the benchmark's files |
//! | [`label`] | reads the spellings of categories |
//! | [`mapper`] | lets a judge assign a category to each flagged span |
//! | [`placement`] | the findings that are predictions, and their spans |
//! | [`baseline`] | a judge that reads whole traces |
//! | [`caught`] | errors that each metric caught and localised |
//! | [`adjudicate`] | lets a judge decide which findings identify an error |
//! | [`benchmark`] | counts |
//! | [`ratings`] | scores of traces |

pub mod adjudicate;
pub mod annotation;
pub mod baseline;
pub mod benchmark;
pub mod caught;
pub mod label;
pub mod mapper;
pub mod placement;
pub mod ratings;

pub use annotation::{Annotation, Annotations, Ratings, impact};
pub use benchmark::{Benchmark, TraceErrors};
pub use label::CategoryLabel;
