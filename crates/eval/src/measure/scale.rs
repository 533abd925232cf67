//! Between what a metric's scores lie.

/// The worst and the best score: 1-5 for paper 001's metrics, 0-3 for GPA, 0-100 for `plan.score`,
/// and 0-1 for path and plan metrics.
pub fn scale(metric: &str) -> (f64, f64) {
    match metric {
        "plan.score" => (0.0, 100.0),
        m if m.starts_with("gpa.") => (0.0, 3.0),
        m if m.starts_with("path.") || m.starts_with("plan.") => (0.0, 1.0),
        _ => (1.0, 5.0),
    }
}

/// `(s - min) / (max - min)`, from 0 to 1.
pub fn normalised(metric: &str, score: f64) -> f64 {
    let (min, max) = scale(metric);
    ((score - min) / (max - min)).clamp(0.0, 1.0)
}
