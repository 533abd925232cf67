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
const TIMES: u64 = 10;
/// Spans of the smaller traces of shapes that belong to no rule.
const SMALL_TRACE_SPANS: u64 = 60;

/// The steps and the counted work of a trace.
fn work_of(shape: &str, spans: Vec<Span>) -> u64 {
    let trace = recogniser().trace(Tree::new(TraceId([1; 16]), spans), &[], false);
    let before = work::counted() + COMPARED.get();
    let (measurements, steps) = measure(&trace, DEFAULT_STEPS);
    assert!(!measurements.iter().any(|m| m.outcome == Err(Unmeasured::Limit)), "{shape}: beyond the budget");
    steps + work::counted() + COMPARED.get() - before
}

/// A line of the report, if the work of the shape per span, sentence or row more than doubles.
fn growing(shape: &str, few: u64, make: shapes::Shape) -> Option<String> {
    let [less, more] = [few, few * TIMES].map(|n| work_of(shape, make(n)));
    let growth = more as f64 / (TIMES * less) as f64;
    let line = format!("{growth:.2} {shape}: {less} of {few}, {more} of {}", few * TIMES);
    println!("{line}");
    (growth > 2.0).then_some(line)
}

#[test]
fn work_of_each_rule_grows_linearly() {
    let all = shapes::RULE_SHAPES.into_iter();
    let growing: Vec<String> = all.filter_map(|(shape, few, make)| growing(shape, few, make)).collect();
    assert_eq!(growing, Vec::<String>::new());
}

#[test]
fn work_on_each_shape_grows_linearly() {
    let all = shapes::SHAPES.into_iter().filter(|(shape, _)| *shape != shapes::SCHEMA_FOR_EACH);
    let growing: Vec<String> =
        all.filter_map(|(shape, make)| growing(shape, SMALL_TRACE_SPANS, make)).collect();
    assert_eq!(growing, Vec::<String>::new());
}
