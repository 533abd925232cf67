//! Tests of the growth of the work on traces with the shapes of `tests/bench/growth.rs`, including work that no budget
//! counts.

use verdict_otlp::trace::{Span, TraceId, Tree};
use verdict_otlp::work;

use super::{DEFAULT_STEPS, measure};
use crate::measure::Unmeasured;
use crate::recognise::message::COMPARED;
use crate::recognise::recorded_cases::recogniser;

// The benchmark uses the other items of the module.
#[allow(dead_code, unreachable_pub)]
#[path = "../../../../../../tests/bench/shapes.rs"]
mod shapes;

/// The factor of spans, sentences or rows between the smaller and the larger trace.
const SIZE_RATIO: u64 = 10;
/// Spans of the smaller traces of shapes that belong to no rule.
const SMALL_TRACE_SPANS: u64 = 60;

/// Maximum factor by which the work per span, sentence or row may grow.
const MAX_GROWTH: f64 = 2.0;
/// The shape of a dialogue of which each answer is checked. In a short one the numbers of the first answers support
/// those of the others; in a long one there are so many numbers that a match with them may be accidental.
const ANSWERS: &str = "answers of one agent";
const MAX_GROWTH_OF_ANSWERS: f64 = 3.0;

/// The steps and the counted work of a trace.
fn work_of(shape: &str, spans: Vec<Span>) -> u64 {
    let trace = recogniser().trace(Tree::new(TraceId([1; 16]), spans), &[], false);
    let before = work::counted() + COMPARED.get();
    let (measurements, steps) = measure(&trace, DEFAULT_STEPS);
    assert!(!measurements.iter().any(|m| m.outcome == Err(Unmeasured::Limit)), "{shape}: beyond the budget");
    steps + work::counted() + COMPARED.get() - before
}

/// A line of the report, if the work of the shape per span, sentence or row more than doubles.
fn excessive_growth(shape: &str, small_size: u64, make: shapes::Shape) -> Option<String> {
    let [small_work, large_work] = [small_size, small_size * SIZE_RATIO].map(|n| work_of(shape, make(n)));
    let growth = large_work as f64 / (SIZE_RATIO * small_work) as f64;
    let line = format!(
        "{growth:.2} {shape}: {small_work} of {small_size}, {large_work} of {}",
        small_size * SIZE_RATIO
    );
    println!("{line}");
    let max_growth = if shape == ANSWERS { MAX_GROWTH_OF_ANSWERS } else { MAX_GROWTH };
    (growth > max_growth).then_some(line)
}

#[test]
fn work_of_each_rule_grows_linearly() {
    let all = shapes::RULE_SHAPES.into_iter();
    let excessive_growth: Vec<String> =
        all.filter_map(|(shape, small_size, make)| excessive_growth(shape, small_size, make)).collect();
    assert_eq!(excessive_growth, Vec::<String>::new());
}

#[test]
fn work_on_each_shape_grows_linearly() {
    let all = shapes::SHAPES.into_iter().filter(|(shape, _)| *shape != shapes::SCHEMA_FOR_EACH);
    let excessive_growth: Vec<String> =
        all.filter_map(|(shape, make)| excessive_growth(shape, SMALL_TRACE_SPANS, make)).collect();
    assert_eq!(excessive_growth, Vec::<String>::new());
}
