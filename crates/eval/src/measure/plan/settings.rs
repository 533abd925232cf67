//! The configuration section `verdict.metrics.plan`.
//!
//! In: YAML. Out: thresholds, weights, tools, reference plans. Default thresholds correspond to paper
//! 001's 4 on a scale of 1 to 5, which is 0.75 of its range; an F1 above 0.75 is rated `good`.

use std::collections::BTreeMap;

use verdict_config::{Problem, settings};

use super::pair_questions::Matching;
use super::parse;
use super::part::PlanWeights;
use super::reference::Rating;
use super::schema::Plan;
use super::tools::{self, ToolSpec};
use crate::measure::sections::{MetricSettings, Section, threshold_problem, with_key};
use crate::measure::table::{MetricSpec, PLAN, PLAN_RATING, PLAN_SCORE, spec};

settings! {
    /// The section.
    pub struct PlanSettings {
        /// Default false. Measures every plan that an agent writes, on the span that wrote it: seven
        /// metrics such as `plan.format` (0-1), `plan.score` (0-100), `plan.rating`. Todo lists and prose
        /// have no format; their dependencies are measured if steps mention one another, and metrics about
        /// tools on the steps that name one.
        enabled: bool,
        /// Default as `verdict.metrics.judges`. The judges of tool-prompt alignment, executability and
        /// adherence to the query; rules measure the rest.
        judges: Vec<String>,
        /// Default 0.75. Each of the seven metrics fails below it.
        threshold: f64 = PLAN.default_threshold(),
        /// Default 75. `plan.score` fails below it.
        score_threshold: f64 = spec(PLAN_SCORE).map(MetricSpec::default_threshold).unwrap_or_default(),
        /// Default `good`. `plan.rating` fails below it.
        least_rating: Rating = Rating::Good,
        /// The weight of each metric in `plan.score`; `otel-verdict plan learn-weights` fits weights to
        /// ranked plans.
        weights: PlanWeights,
        /// Default none. The tools that plans may use, by name; `config/tools` has an example. Without
        /// them, judges are shown the trace's tool definitions, and limits are not checked.
        tools: BTreeMap<String, ToolSpec>,
        /// Default none. The best plans for known queries. Tool-usage completeness and the rating are
        /// measured only for these.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        references: Vec<Reference>,
        /// How steps are matched with those of a reference where rules cannot tell.
        matching: Matching,
    }

    /// The best plan for a query.
    pub struct Reference {
        /// The agent's task; case and white space are ignored.
        query: String,
        /// The plan, in any supported form; `${file:PATH}` reads it from a file.
        plan: String,
    }
}

/// A query in lower case with single spaces.
fn normalized_query(query: &str) -> String {
    query.split_whitespace().map(str::to_lowercase).collect::<Vec<_>>().join(" ")
}

impl Plan {
    /// The configured reference plan for `query`.
    pub fn reference(settings: &PlanSettings, query: &str) -> Option<Plan> {
        let query = normalized_query(query);
        let reference = settings.references.iter().find(|r| normalized_query(&r.query) == query)?;
        Some(parse::parse_plan(&reference.plan)).filter(|plan| !plan.is_unreadable())
    }
}

impl Section for PlanSettings {
    fn settings_for(&self, metric: &str) -> MetricSettings<'_> {
        let threshold = match metric {
            PLAN_SCORE => Some(self.score_threshold),
            PLAN_RATING => None,
            _ => Some(self.threshold),
        };
        MetricSettings { enabled: self.enabled, threshold, judges: &self.judges, ..MetricSettings::OFF }
    }

    fn problems(&self, row: &MetricSpec) -> Vec<Problem> {
        let score = spec(PLAN_SCORE).unwrap_or(row);
        let thresholds =
            [("threshold", self.threshold, row), ("score_threshold", self.score_threshold, score)];
        let problems =
            thresholds.map(|(key, value, row)| threshold_problem(row.scale, key.to_owned(), value));
        let mut out: Vec<Problem> = problems.into_iter().flatten().collect();
        out.extend(self.matching.problems().into_iter().map(|p| p.in_section("matching")));
        out.extend(self.weights.problems().into_iter().map(|p| p.in_section("weights")));
        out.extend(tools::problems(&self.tools).into_iter().map(|p| p.in_section("tools")));
        for (i, reference) in self.references.iter().enumerate() {
            if reference.query.trim().is_empty() {
                out.push(Problem::new(
                    format!("references[{i}].query"),
                    "the query of the reference plan is missing",
                ));
            }
            let plan = parse::parse_plan(&reference.plan);
            if let Some(issue) = plan.issues.first().filter(|_| plan.is_unreadable()) {
                out.push(Problem::new(format!("references[{i}].plan"), issue.to_string()));
            }
        }
        out
    }

    fn named_judges(&self) -> Vec<(String, &str)> {
        let embeddings = with_key("matching.embeddings", self.matching.embeddings.as_slice());
        with_key("judges", &self.judges).into_iter().chain(embeddings).collect()
    }
}
