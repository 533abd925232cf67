//! The benchmark's tables: locations, categories, impacts.
//!
//! In: the figures of a set of traces. Out: rendered tables.

use crate::cli::table::{TextTable, figure, shares};
use crate::score::bootstrap::ShareIntervals;
use crate::score::trail::Benchmark;

/// The benchmark's own tables.
pub(super) fn benchmark(b: &Benchmark) -> [String; 3] {
    [headline(b), categories(b), impacts(b)]
}

fn headline(b: &Benchmark) -> String {
    let mut t = TextTable::new(["", "precision", "recall", "F1", "predicted", "gold"]);
    let means = [b.location_precision_mean, b.location_mean];
    let rows = [
        ("location", &b.location, b.intervals.location, means),
        ("joint", &b.joint, b.intervals.joint, [b.joint_precision_mean, b.joint_mean]),
    ];
    for (name, tally, intervals, means) in rows {
        let counts = [tally.predicted, tally.gold].map(|n| n.to_string());
        t.add_row([format!("{name}, micro")].into_iter().chain(shares(tally, intervals)).chain(counts));
        t.add_row([format!("{name}, mean of traces")].into_iter().chain(means.map(|f| figure(f, None))));
    }
    format!(
        "{} traces; in brackets 95 % intervals, by resampling traces\n\n{}\n\
         Paper 001 calls precision \"accuracy\", the benchmark's script the mean recall of the traces.\n\n\
         category F1, weighted by support   {}\n\
         category F1, macro                 {:.3}\n",
        b.traces,
        t.render(),
        figure(b.category_f1, b.intervals.category_f1),
        b.macro_f1,
    )
}

fn categories(b: &Benchmark) -> String {
    let mut t = TextTable::new([
        "category",
        "traces",
        "predicted",
        "P",
        "R",
        "F1",
        "| spans",
        "predicted",
        "P",
        "R",
        "F1",
    ]);
    for row in &b.categories {
        let figures = [row.traces, row.joint].into_iter().flat_map(|tally| {
            let counts = [tally.gold, tally.predicted].map(|n| n.to_string());
            counts.into_iter().chain(shares(&tally, ShareIntervals::default()))
        });
        t.add_row([row.category.as_str().to_owned()].into_iter().chain(figures));
    }
    t.render()
}

fn impacts(b: &Benchmark) -> String {
    let mut t = TextTable::new(["impact", "errors", "named", "located", "both"]);
    for row in &b.impacts {
        let shares = row.shares().map(|f| figure(f, None));
        t.add_row([row.impact.to_owned(), row.errors.to_string()].into_iter().chain(shares));
    }
    t.render()
}
