//! Figures as tables for people and as JSON for programs.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::score::bootstrap::Interval;
use crate::score::counts::Tally;
use crate::score::trail::Benchmark;
use crate::score::trail::benchmark::{IMPACTS, ImpactRow, Intervals};

/// The benchmark's figures as text.
pub(super) fn benchmark(b: &Benchmark, i: &Intervals) -> String {
    let mut out = String::new();
    let t = &mut out;
    line(
        t,
        format_args!(
            "traces {}   predicted spans {}   gold spans {}",
            b.traces, b.location.predicted, b.location.gold
        ),
    );
    line(t, format_args!(""));
    line(t, format_args!("{:<10}{:>22}{:>22}{:>22}", "", "precision", "recall", "F1"));
    for (name, tally, intervals) in [("location", &b.location, &i.location), ("joint", &b.joint, &i.joint)] {
        let [p, r, f] = [tally.precision(), tally.recall(), tally.f1()]
            .into_iter()
            .zip(intervals)
            .map(|(figure, interval)| with_interval(figure, *interval))
            .collect::<Vec<_>>()
            .try_into()
            .unwrap_or_default();
        line(t, format_args!("{name:<10}{p:>22}{r:>22}{f:>22}"));
    }
    line(t, format_args!(""));
    line(
        t,
        format_args!("category F1, weighted by support  {}", with_interval(b.category_f1, i.category_f1)),
    );
    line(t, format_args!("category F1, macro                {:.3}", b.macro_f1));
    line(
        t,
        format_args!(
            "benchmark's means over traces: location {:.4} (recall), joint {:.4} (recall)",
            b.location_mean, b.joint_mean
        ),
    );
    line(t, format_args!("in brackets: 95 % intervals, traces drawn again"));
    categories(t, b);
    impacts(t, b);
    out
}

fn categories(t: &mut String, b: &Benchmark) {
    line(t, format_args!(""));
    line(t, format_args!("{:<34}{:^33}{:^33}", "", "traces that have it", "spans that have it"));
    let head = format!("{:>6}{:>6}{:>7}{:>7}{:>7}", "gold", "pred", "P", "R", "F1");
    line(t, format_args!("{:<34}{head}{head}", "category"));
    for row in &b.categories {
        let of = |x: &Tally| {
            format!("{:>6}{:>6}{:>7.3}{:>7.3}{:>7.3}", x.gold, x.predicted, x.precision(), x.recall(), x.f1())
        };
        line(t, format_args!("{:<34}{}{}", row.category.as_str(), of(&row.traces), of(&row.joint)));
    }
}

fn impacts(t: &mut String, b: &Benchmark) {
    line(t, format_args!(""));
    line(t, format_args!("{:<10}{:>8}{:>10}{:>10}{:>10}", "impact", "errors", "named", "located", "both"));
    for (name, row) in rows(b) {
        let [named, located, joint] = row.shares();
        line(t, format_args!("{name:<10}{:>8}{named:>10.3}{located:>10.3}{joint:>10.3}", row.errors));
    }
}

fn rows(b: &Benchmark) -> impl Iterator<Item = (&'static str, &ImpactRow)> {
    IMPACTS.into_iter().chain(["other"]).zip(&b.impacts).filter(|(_, row)| row.errors > 0)
}

fn line(t: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(t, "{text}");
}

fn with_interval(figure: f64, interval: Option<Interval>) -> String {
    match interval {
        Some(Interval { low, high }) => format!("{figure:.3} [{low:.3} {high:.3}]"),
        None => format!("{figure:.3}"),
    }
}

/// The same as JSON, unrounded.
pub(super) fn benchmark_json(b: &Benchmark, i: &Intervals) -> Value {
    let categories: Vec<Value> = b
        .categories
        .iter()
        .map(|row| json!({ "category": row.category.as_str(), "traces": tally(&row.traces), "spans": tally(&row.joint) }))
        .collect();
    let impacts: Vec<Value> = rows(b)
        .map(|(name, row)| json!({ "impact": name, "errors": row.errors, "named": row.named, "located": row.located, "both": row.joint }))
        .collect();
    let ends = |list: &[Option<Interval>; 3]| -> Value {
        let [p, r, f] = list.map(interval);
        json!({ "precision": p, "recall": r, "f1": f })
    };
    json!({
        "traces": b.traces,
        "location": tally(&b.location),
        "joint": tally(&b.joint),
        "category_f1_weighted": b.category_f1,
        "category_f1_macro": b.macro_f1,
        "benchmark_location_mean": b.location_mean,
        "benchmark_joint_mean": b.joint_mean,
        "intervals_95": { "location": ends(&i.location), "joint": ends(&i.joint), "category_f1_weighted": interval(i.category_f1) },
        "categories": categories,
        "impacts": impacts,
    })
}

fn tally(t: &Tally) -> Value {
    json!({
        "hits": t.hits, "predicted": t.predicted, "gold": t.gold,
        "precision": t.precision(), "recall": t.recall(), "f1": t.f1(),
    })
}

fn interval(i: Option<Interval>) -> Value {
    i.map_or(Value::Null, |i| json!([i.low, i.high]))
}
