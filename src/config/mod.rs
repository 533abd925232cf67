//! The configuration: YAML in the Collector's shape, every error at once, every default stated.

pub mod units;

pub use units::{Period, Secret, Size};
