//! Agreement of a judge with itself over repeated runs (paper 000, section 4.1.4).
//!
//! In: for each metric the ratings of several independent runs over the same spans. Out: for each
//! metric Krippendorff's alpha, the spread between runs and the similarity of the rationales.
//!
//! Ratings ([`ratings`]) are the measurements of judges; those of rules are equal in every run and are left
//! out. Scores are scaled to 0..1; a label is 1 if it passes and 0 if it fails; quantities are not ratings.
//! The rationale is the judge's, followed by those of its findings. Spans with fewer than two ratings are left
//! out. The spread is the sample standard deviation of a span's ratings (runs are a sample of the judge's
//! possible answers), its mean over spans, and the half-width of that mean's 95 % interval, 1.96 s / sqrt(n).

use std::collections::BTreeMap;

use serde::Serialize;
use verdict_eval::metrics::{self, RULES_JUDGE};
use verdict_eval::metrics::{Measurement, Value};
use verdict_eval::trace::AgentTrace;
use verdict_otlp::trace::{SpanId, TraceId};

use super::alpha::{Level, alpha};
use super::bootstrap::{self, Interval};
use super::similarity::{cosine, vectors};

/// One run's rating of one span.
#[derive(Clone, PartialEq, Debug)]
pub struct SpanRating {
    /// The score, scaled to 0..1.
    pub score: f64,
    /// Empty if the judge gave no reason.
    pub rationale: String,
}

/// One metric's figures.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Consistency {
    /// Spans with at least two ratings.
    #[serde(rename = "places")]
    pub spans: usize,
    /// The number of ratings.
    pub ratings: usize,
    /// Agreement by distance; `None` if all ratings are equal.
    pub alpha_interval: Option<f64>,
    /// The 95 % interval of alpha, by resampling spans.
    #[serde(rename = "alpha_interval_95")]
    pub alpha_range: Option<Interval>,
    /// Agreement by rank.
    pub alpha_ordinal: Option<f64>,
    /// Mean over spans of the standard deviation between runs.
    #[serde(rename = "mean_standard_deviation")]
    pub mean_deviation: f64,
    /// Half the width of the 95 % interval of `mean_deviation`; `None` for a single span.
    #[serde(rename = "half_width_95")]
    pub half_width: Option<f64>,
    /// Mean lexical similarity of the rationales of two runs for one span; `None` without rationales.
    #[serde(rename = "rationale_similarity_lexical")]
    pub similarity: Option<f64>,
    /// As `similarity`, by the cosine of embeddings ([`super::likeness`]); `None` without an embedding endpoint.
    #[serde(rename = "rationale_similarity_embedding", skip_serializing_if = "Option::is_none")]
    pub embedding_similarity: Option<f64>,
}

impl Consistency {
    /// The consistency of spans, each with the ratings of its runs; `None` if no span has two.
    pub fn from_ratings(spans: &[Vec<SpanRating>]) -> Option<Consistency> {
        let rated: Vec<&Vec<SpanRating>> = spans.iter().filter(|runs| runs.len() > 1).collect();
        if rated.is_empty() {
            return None;
        }
        let units: Vec<Vec<f64>> = rated.iter().map(|runs| runs.iter().map(|r| r.score).collect()).collect();
        let deviations: Vec<f64> = units.iter().map(|unit| deviation(unit)).collect();
        let [alpha_range] = bootstrap::intervals(units.len(), |choice| {
            let drawn: Vec<Vec<f64>> = choice.iter().filter_map(|&i| units.get(i)).cloned().collect();
            [alpha(&drawn, Level::Interval).unwrap_or(f64::NAN)]
        });
        let n = rated.len() as f64;
        Some(Consistency {
            spans: rated.len(),
            ratings: units.iter().map(Vec::len).sum(),
            alpha_interval: alpha(&units, Level::Interval),
            alpha_range,
            alpha_ordinal: alpha(&units, Level::Ordinal),
            mean_deviation: deviations.iter().sum::<f64>() / n,
            half_width: (rated.len() > 1).then(|| 1.96 * deviation(&deviations) / n.sqrt()),
            similarity: rationale_similarity(&rated),
            embedding_similarity: None,
        })
    }
}

/// A judge's ratings of a trace, by metric and span.
pub fn ratings(trace: &AgentTrace, measurements: &[Measurement]) -> BTreeMap<(String, SpanKey), SpanRating> {
    let judge_measurements = measurements.iter().filter(|m| m.judge != RULES_JUDGE);
    judge_measurements
        .filter_map(|m| {
            let measured = m.outcome.as_ref().ok()?;
            let score = match measured.value {
                Value::Score(score) => metrics::spec(m.metric)?.scale.normalized(score)?,
                Value::Label(_) => f64::from(u8::from(measured.passed)),
                Value::Number(_) => return None,
            };
            let findings = measured.findings.iter().map(|f| f.rationale.as_str());
            let texts: Vec<&str> = m.rationale.as_deref().into_iter().chain(findings).collect();
            let key = (trace.tree.id, trace.tree.spans.get(m.at)?.id);
            Some(((m.metric.to_owned(), key), SpanRating { score, rationale: texts.join(" ") }))
        })
        .collect()
}

/// The span of a rating.
pub type SpanKey = (TraceId, SpanId);

/// The ratings of every run for each metric and span; `runs[r][(metric, span)]` is that of run `r`.
pub fn group_by_metric<P: Ord + Clone>(
    runs: &[BTreeMap<(String, P), SpanRating>],
) -> BTreeMap<String, Vec<Vec<SpanRating>>> {
    let mut by_metric: BTreeMap<String, BTreeMap<P, Vec<SpanRating>>> = BTreeMap::new();
    for ((metric, span), rating) in runs.iter().flatten() {
        let ratings_by_span = by_metric.entry(metric.clone()).or_default();
        ratings_by_span.entry(span.clone()).or_default().push(rating.clone());
    }
    by_metric.into_iter().map(|(metric, spans)| (metric, spans.into_values().collect())).collect()
}

/// Sample standard deviation, of at least two values.
fn deviation(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    (values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / (n - 1.0)).sqrt()
}

/// The mean lexical similarity of the rationales of each span; `None` without two rationales of a span. Words are
/// weighted over all rationales of the metric, because rationales of one span resemble each other.
fn rationale_similarity(spans: &[&Vec<SpanRating>]) -> Option<f64> {
    let mut vectors =
        vectors(spans.iter().flat_map(|runs| runs.iter().map(|r| r.rationale.as_str()))).into_iter();
    let mut means = Vec::new();
    for runs in spans {
        let run_vectors: Vec<_> = vectors.by_ref().take(runs.len()).collect();
        let pairs = (0..run_vectors.len()).flat_map(|i| (0..i).map(move |j| (i, j)));
        let similarities: Vec<f64> =
            pairs.filter_map(|(i, j)| cosine(&run_vectors[i], &run_vectors[j])).collect();
        if !similarities.is_empty() {
            means.push(similarities.iter().sum::<f64>() / similarities.len() as f64);
        }
    }
    (!means.is_empty()).then(|| means.iter().sum::<f64>() / means.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratings_of_span(scores: &[f64], rationale: &str) -> Vec<SpanRating> {
        scores.iter().map(|&score| SpanRating { score, rationale: rationale.to_owned() }).collect()
    }

    #[test]
    fn figures_of_a_small_case() {
        let spans = [
            ratings_of_span(&[0.0, 1.0], "same words"),
            ratings_of_span(&[0.5, 0.5], "same words"),
            ratings_of_span(&[1.0], "alone"),
        ];
        let c = Consistency::from_ratings(&spans).unwrap();
        assert_eq!((c.spans, c.ratings), (2, 4));
        // Deviations are sqrt(1/2) and 0; their own deviation is 0.5, over two spans.
        assert!((c.mean_deviation - 0.5f64.sqrt() / 2.0).abs() < 1e-12);
        assert!((c.half_width.unwrap() - 1.96 * 0.5 / 2f64.sqrt()).abs() < 1e-12);
        assert!((c.similarity.unwrap() - 1.0).abs() < 1e-12);
        // Do = (2 * 1 / 1) / 4 = 0.5, De = (2 * (1 + 4 * 0.25)) / (4 * 3) = 1/3.
        assert!((c.alpha_interval.unwrap() + 0.5).abs() < 1e-12, "{c:?}");
    }

    #[test]
    fn runs_are_joined_by_metric_and_span() {
        let run = |a: f64| {
            let rating = |score: f64| SpanRating { score, rationale: String::new() };
            BTreeMap::from([(("m".to_owned(), 1), rating(a)), (("m".to_owned(), 2), rating(1.0))])
        };
        let spans = group_by_metric(&[run(0.0), run(0.0), run(0.5)]);
        let m = Consistency::from_ratings(&spans["m"]).unwrap();
        assert_eq!((m.spans, m.ratings, m.similarity), (2, 6, None));
        assert!(m.alpha_interval.unwrap() > 0.5 && m.alpha_ordinal.unwrap() > 0.5);
    }

    #[test]
    fn one_run_has_no_figures() {
        assert_eq!(Consistency::from_ratings(&[ratings_of_span(&[1.0], "x")]), None);
        let steady =
            Consistency::from_ratings(&[ratings_of_span(&[0.5, 0.5], ""), ratings_of_span(&[0.5, 0.5], "")])
                .unwrap();
        assert_eq!((steady.alpha_interval, steady.mean_deviation, steady.similarity), (None, 0.0, None));
    }
}
