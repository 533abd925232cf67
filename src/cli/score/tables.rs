//! `score trail`'s result: as tables for people, as JSON for programs.

use serde_json::{Value, json};

use super::scored::Scored;
use super::table::{Table, figure, maybe};
use crate::score::bootstrap::Interval;
use crate::score::counts::{Confusion, Tally};
use crate::score::trail::Benchmark;
use crate::score::trail::annotation::RATINGS;
use crate::score::trail::benchmark::{IMPACTS, ImpactRow, Intervals};
use crate::score::trail::ratings::Correlated;

/// Everything as tables.
pub(super) fn all(s: &Scored) -> Vec<String> {
    let mut parts = figures(&s.figures, &s.intervals);
    parts.push(ratings(&s.ratings));
    parts.extend(s.roots.as_ref().map(|by_policy| roots(by_policy)));
    parts.extend((!s.beside.is_empty()).then(|| beside(s)));
    parts
}

/// The benchmark's own tables.
pub(super) fn figures(b: &Benchmark, i: &Intervals) -> Vec<String> {
    vec![headline(b, i), categories(b), impacts(b)]
}

fn headline(b: &Benchmark, i: &Intervals) -> String {
    let mut t = Table::new(["", "precision", "recall", "F1", "predicted", "gold"]);
    for (name, of, [p, r, f]) in [("location", &b.location, i.location), ("joint", &b.joint, i.joint)] {
        let figures = [figure(of.precision(), p), figure(of.recall(), r), figure(of.f1(), f)];
        let counts = [of.predicted.to_string(), of.gold.to_string()];
        t.row([name.to_owned()].into_iter().chain(figures).chain(counts));
    }
    format!(
        "{} traces; in brackets 95 % intervals, traces drawn again\n\n{}\n\
         category F1, weighted by support   {}\n\
         category F1, macro                 {:.3}\n\
         benchmark's means (recall a trace) location {:.4}, joint {:.4}\n",
        b.traces,
        t.render(),
        figure(b.category_f1, i.category_f1),
        b.macro_f1,
        b.location_mean,
        b.joint_mean,
    )
}

fn categories(b: &Benchmark) -> String {
    let mut t = Table::new(["category", "traces", "said", "P", "R", "F1", "| spans", "said", "P", "R", "F1"]);
    for row in &b.categories {
        let of = |x: &Tally| {
            let counts = [x.gold, x.predicted].map(|n| n.to_string());
            let shares = [x.precision(), x.recall(), x.f1()].map(|f| figure(f, None));
            counts.into_iter().chain(shares)
        };
        t.row([row.category.as_str().to_owned()].into_iter().chain(of(&row.traces)).chain(of(&row.joint)));
    }
    t.render()
}

fn impacts(b: &Benchmark) -> String {
    let mut t = Table::new(["impact", "errors", "named", "located", "both"]);
    for (name, row) in rows(b) {
        let shares = row.shares().map(|f| figure(f, None));
        t.row([name.to_owned(), row.errors.to_string()].into_iter().chain(shares));
    }
    t.render()
}

fn rows(b: &Benchmark) -> impl Iterator<Item = (&'static str, &ImpactRow)> {
    IMPACTS.into_iter().chain(["other"]).zip(&b.impacts).filter(|(_, row)| row.errors > 0)
}

fn ratings(correlated: &[Correlated; 5]) -> String {
    let mut t = Table::new(["trace score, ours : theirs", "traces", "Pearson", "Spearman"]);
    let mut notes = String::new();
    for (name, c) in RATINGS.into_iter().zip(correlated) {
        t.row([name.to_owned(), c.traces.to_string(), maybe(c.pearson), maybe(c.spearman)]);
        let why = match c {
            Correlated { constant: true, .. } => "the annotators gave every trace the same",
            Correlated { traces: 0, .. } => "not scored by both",
            Correlated { pearson: None, .. } => "ours is the same for every trace",
            _ => continue,
        };
        notes.push_str(&format!("{name}: undefined, {why}\n"));
    }
    t.render() + &notes
}

fn roots(by_policy: &[(&'static str, Confusion)]) -> String {
    let mut t =
        Table::new(["root verdict : overall >= 3.5", "traces", "agrees", "kappa", "said pass", "is pass"]);
    for (policy, c) in by_policy {
        let (said, is) = (c.tp + c.fp, c.tp + c.fn_);
        let figures = [figure(c.accuracy(), None), maybe(c.kappa()), said.to_string(), is.to_string()];
        t.row([(*policy).to_owned(), c.total().to_string()].into_iter().chain(figures));
    }
    t.render()
}

fn beside(s: &Scored) -> String {
    let mut t = Table::new(["beside", "location P", "R", "F1", "joint P", "R", "F1", "category F1"]);
    let ours = ("this run", &s.figures);
    for (name, b) in std::iter::once(ours).chain(s.beside.iter().map(|(name, b)| (name.as_str(), b))) {
        let of = |x: &Tally| [x.precision(), x.recall(), x.f1()];
        let figures = of(&b.location).into_iter().chain(of(&b.joint)).chain([b.category_f1]);
        t.row([name.to_owned()].into_iter().chain(figures.map(|f| figure(f, None))));
    }
    t.render()
}

/// Everything as JSON, unrounded.
pub(super) fn json(s: &Scored) -> Value {
    let mut out = benchmark_json(&s.figures, &s.intervals);
    let ratings = RATINGS.into_iter().zip(&s.ratings).map(|(name, c)| {
        let figures = json!({
            "traces": c.traces, "pearson": c.pearson, "spearman": c.spearman,
            "annotators_constant": c.constant,
        });
        (name.to_owned(), figures)
    });
    out["trace_scores"] = Value::Object(ratings.collect());
    if let Some(by_policy) = &s.roots {
        let roots = by_policy.iter().map(|(policy, c)| {
            let figures = json!({
                "agreement": c.accuracy(), "kappa": c.kappa(), "both_pass": c.tp,
                "only_verdict_passes": c.fp, "only_annotators_pass": c.fn_, "both_fail": c.tn,
            });
            ((*policy).to_owned(), figures)
        });
        out["root_verdict"] = Value::Object(roots.collect());
    }
    out
}

/// The same as JSON.
pub(super) fn benchmark_json(b: &Benchmark, i: &Intervals) -> Value {
    let categories = b.categories.iter().map(|row| {
        let (traces, spans) = (tally(&row.traces), tally(&row.joint));
        json!({ "category": row.category.as_str(), "traces": traces, "spans": spans })
    });
    let impacts = rows(b).map(|(name, row)| {
        let ImpactRow { errors, named, located, joint } = row;
        json!({ "impact": name, "errors": errors, "named": named, "located": located, "both": joint })
    });
    let ends = |list: &[Option<Interval>; 3]| {
        let [precision, recall, f1] = list.map(interval);
        json!({ "precision": precision, "recall": recall, "f1": f1 })
    };
    json!({
        "traces": b.traces,
        "location": tally(&b.location),
        "joint": tally(&b.joint),
        "category_f1_weighted": b.category_f1,
        "category_f1_macro": b.macro_f1,
        "benchmark_location_mean": b.location_mean,
        "benchmark_joint_mean": b.joint_mean,
        "intervals_95": {
            "location": ends(&i.location),
            "joint": ends(&i.joint),
            "category_f1_weighted": interval(i.category_f1),
        },
        "categories": categories.collect::<Vec<_>>(),
        "impacts": impacts.collect::<Vec<_>>(),
    })
}

fn tally(t: &Tally) -> Value {
    json!({
        "hits": t.hits, "predicted": t.predicted, "gold": t.gold,
        "precision": t.precision(), "recall": t.recall(), "f1": t.f1(),
    })
}

pub(super) fn interval(i: Option<Interval>) -> Value {
    i.map_or(Value::Null, |i| json!([i.low, i.high]))
}
