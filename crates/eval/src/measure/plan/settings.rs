//! `verdict.metrics.plan`: whether plans are measured, by what tools and references, and what passes.
//!
//! In: the configuration. Out: thresholds, weights, tools, reference plans. Thresholds follow paper
//! 001's 4 of 5, which is three quarters of the way up a scale; the paper's tier for an F1 above 0.75
//! is `good`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict_config::Problem;

use super::parse;
use super::part::{RATING, SCORE, Weights};
use super::reference::Rating;
use super::schema::Plan;
use super::tools::{self, ToolSpec};
use crate::measure::settings::sections::{MetricSettings, Section};

/// The section.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Default false. Measures every plan that an agent writes, on the span that wrote it:
    /// `plan.format` and its like (0-1), `plan.score` (0-100), `plan.rating`. Of todo lists and prose
    /// what words have: no format, dependencies where steps speak of one another, the rest over the
    /// steps that name a tool.
    pub enabled: bool,
    /// Default as `verdict.metrics.judges`. Who answers tool-prompt alignment, executability and
    /// adherence to the query; the rest is always by rules.
    pub judges: Vec<String>,
    /// Default 0.75. One of the seven metrics below it fails.
    pub threshold: f64,
    /// Default 75. A `plan.score` below it fails.
    pub score_threshold: f64,
    /// Default `good`. A `plan.rating` below it fails.
    pub least_rating: Rating,
    /// How much each metric weighs in `plan.score`; `otel-verdict plan learn-weights` finds others.
    pub weights: Weights,
    /// Default none. The tools that plans may use, by name; `config/tools` has an example. Without,
    /// the trace's own tool definitions are shown to judges, and limits are not checked.
    pub tools: BTreeMap<String, ToolSpec>,
    /// Default none. The best plans for known queries: they make tool-usage completeness and rating
    /// measurable.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub references: Vec<Reference>,
}

/// The best plan for a query.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Reference {
    /// The query, as the agent is asked it; case and blanks do not matter.
    pub query: String,
    /// The plan, in any form that is read; `${file:PATH}` takes it from a file.
    pub plan: String,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            enabled: false,
            judges: Vec::new(),
            threshold: 0.75,
            score_threshold: 75.0,
            least_rating: Rating::Good,
            weights: Weights::default(),
            tools: BTreeMap::new(),
            references: Vec::new(),
        }
    }
}

fn normalised_query(query: &str) -> String {
    query.split_whitespace().map(str::to_lowercase).collect::<Vec<_>>().join(" ")
}

impl Settings {
    /// The registered best plan for `query`.
    pub fn reference(&self, query: &str) -> Option<Plan> {
        let query = normalised_query(query);
        let found = self.references.iter().find(|r| normalised_query(&r.query) == query)?;
        Some(parse::parse_plan(&found.plan)).filter(|plan| !plan.is_unreadable())
    }
}

impl Section for Settings {
    fn of(&self, metric: &str) -> MetricSettings<'_> {
        let threshold = match metric {
            SCORE => Some(self.score_threshold),
            RATING => None,
            _ => Some(self.threshold),
        };
        MetricSettings { enabled: self.enabled, threshold, judges: &self.judges, ..MetricSettings::OFF }
    }

    fn problems(&self) -> Vec<Problem> {
        let mut out = Vec::new();
        let scales = [("threshold", self.threshold, 1.0), ("score_threshold", self.score_threshold, 100.0)];
        for (key, value, top) in scales {
            if !(0.0..=top).contains(&value) {
                out.push(Problem::new(key, format!("{value} is outside the scale 0 to {top}")));
            }
        }
        out.extend(self.weights.problems().into_iter().map(|p| p.below("weights")));
        out.extend(tools::problems(&self.tools).into_iter().map(|p| p.below("tools")));
        for (i, reference) in self.references.iter().enumerate() {
            if reference.query.trim().is_empty() {
                out.push(Problem::new(format!("references[{i}].query"), "which query is the plan for?"));
            }
            let plan = parse::parse_plan(&reference.plan);
            if let Some(issue) = plan.issues.first().filter(|_| plan.is_unreadable()) {
                out.push(Problem::new(format!("references[{i}].plan"), issue.to_string()));
            }
        }
        out
    }
}
