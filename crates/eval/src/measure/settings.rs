//! `verdict.metrics`: the spans on which each metric is measured, its threshold, and its judges.
//!
//! In: the configuration's YAML. Out: whether a metric is enabled on a span, its threshold, its failing
//! labels, its judges. The default threshold is 4 of 1 to 5, because paper 001 counts 3.0 as a failure.
//! The name of an unknown metric is an error of the configuration.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict_config::{Problem, matches};
use verdict_otlp::trace::{Idx, Kind};

use super::ask::asker::Asker;
use super::checklist::settings::ChecklistSettings;
use super::path::settings::{PathSettings, TaskSet};
use super::plan::settings::PlanSettings;
use super::table::{MetricSpec, SectionKey, rows_of, spec};
use crate::measure::gpa::Gpa;
use crate::measure::sections::*;
use crate::recognise::AgentTrace;

/// Expands the sections of the table to the struct of the configuration.
macro_rules! settings {
    ($(
        $(#[doc = $doc:literal])*
        $section:ident: $settings:ty = $(
            $name:expr => $base:ident { $($data:tt)* } $(by { $($implementation:tt)* })?
        ),+;
    )*) => {
        /// All metrics of this version, as `verdict.metrics` configures them.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, default)]
        #[schemars(rename = "Settings")]
        pub struct MetricsConfig {
            /// Default `[rules]`. Who answers where a metric does not say: `rules`, and the names of
            /// `judges`. With both, a rule's fact is final, elsewhere the judge leads; several judges give
            /// the median.
            pub judges: Vec<String>,
            $( $(#[doc = $doc])* pub $section: $settings, )*
            /// The effect of a trace's failures on its outcome.
            pub outcome: OutcomeSettings,
        }

        impl Default for MetricsConfig {
            fn default() -> MetricsConfig {
                let judges = vec![RULES_NAME.to_owned()];
                MetricsConfig {
                    judges,
                    $( $section: <$settings>::default(), )*
                    outcome: OutcomeSettings::default(),
                }
            }
        }

        impl MetricsConfig {
            /// The sections, by key.
            fn sections(&self) -> Vec<(SectionKey, &dyn Section)> {
                vec![$( (SectionKey::$section, &self.$section), )*]
            }

            /// The section with this key.
pub(super) fn section(&self, key: SectionKey) -> &dyn Section {
                match key {
                    $( SectionKey::$section => &self.$section, )*
                }
            }
        }
    };
}
metric_table!(settings);

/// `verdict.metrics`, together with values from other sections of the configuration and from its files.
#[derive(Clone, Debug, Default)]
#[cfg_attr(test, derive(Deserialize), serde(from = "MetricsConfig"))]
pub struct Settings {
    pub(crate) config: MetricsConfig,
    /// The settings for asking judges, from `verdict.ask`, `verdict.rubrics`, `verdict.instructions` and
    /// `verdict.redact`.
    pub asker: Arc<Asker>,
    /// The tasks of `verdict.metrics.path`.
    pub(crate) path_tasks: TaskSet,
    /// The settings of custom metrics.
    pub(crate) custom: Vec<CustomSettings>,
}

impl From<MetricsConfig> for Settings {
    fn from(config: MetricsConfig) -> Settings {
        Settings { config, ..Settings::default() }
    }
}

impl Deref for Settings {
    type Target = MetricsConfig;
    fn deref(&self) -> &MetricsConfig {
        &self.config
    }
}

#[cfg(test)]
impl std::ops::DerefMut for Settings {
    fn deref_mut(&mut self) -> &mut MetricsConfig {
        &mut self.config
    }
}

impl Settings {
    /// The settings of the metric of `row`.
    pub(super) fn metric_settings(&self, row: &MetricSpec) -> MetricSettings<'_> {
        match row.section {
            Some(SectionKey::path) if self.path_tasks.is_empty() => MetricSettings::OFF,
            Some(key) => self.section(key).settings_for(row.name),
            None => {
                let custom = self.custom.iter().find(|custom| custom.row.name == row.name);
                custom.map_or(MetricSettings::OFF, |custom| custom.settings.settings_for(row.name))
            }
        }
    }

    /// Whether the rules measure the metric of `row`: if they are among its judges, and always if LLM judges do not
    /// answer it by a rubric.
    pub(super) fn is_measured_by_rules(&self, row: &MetricSpec) -> bool {
        let is_always_measured = row.rubric.is_none() && row.section.is_some();
        is_always_measured || self.all_judges(row).iter().any(|judge| judge == RULES_NAME)
    }

    /// The LLM judges of the metric of `row`, by name.
    pub(crate) fn judges(&self, row: &MetricSpec) -> Vec<String> {
        self.all_judges(row).iter().filter(|judge| *judge != RULES_NAME).cloned().collect()
    }

    /// The judges of the metric of `row`, including the rules: its own, or else those of all metrics.
    fn all_judges(&self, row: &MetricSpec) -> &[String] {
        match self.metric_settings(row).judges {
            [] => &self.judges,
            judges => judges,
        }
    }

    /// The threshold of the metric of `row` on the span `span_index`; a score below it fails. 0 for a metric without
    /// scores.
    pub(crate) fn threshold(&self, row: &MetricSpec, trace: &AgentTrace, span_index: Idx) -> f64 {
        let settings = self.metric_settings(row);
        let mut overrides = settings.overrides.iter().filter(|o| o.threshold.is_some());
        let overriding = overrides.find(|o| o.matches(trace, span_index)).and_then(|o| o.threshold);
        overriding.or(settings.threshold).unwrap_or_default()
    }

    /// Whether a label of the metric of `row` fails.
    pub(crate) fn fails(&self, row: &MetricSpec, label: &str) -> bool {
        match row.section {
            Some(key) => self.section(key).fails(row, label),
            None => row.fail_labels.contains(&label),
        }
    }
}

impl MetricsConfig {
    /// Whether a checklist has questions that only judges answer, and its judges are the rules alone.
    #[cfg(feature = "internals")]
    pub fn has_checklist_without_judge(&self) -> bool {
        let checklist = &self.checklist;
        let has_unchecked_item =
            || checklist.fixed.iter().flat_map(|fixed| &fixed.items).any(|item| item.check.is_none());
        let judges = if checklist.judges.is_empty() { &self.judges } else { &checklist.judges };
        checklist.enabled
            && (checklist.generate || has_unchecked_item())
            && judges.iter().all(|judge| judge == RULES_NAME)
    }

    /// The judges of the question about the outcome; empty if it is not asked.
    pub(crate) fn outcome_judges(&self) -> Vec<String> {
        let all = if self.outcome.judges.is_empty() { &self.judges } else { &self.outcome.judges };
        let judges = all.iter().filter(|judge| self.outcome.enabled && *judge != RULES_NAME);
        judges.cloned().collect()
    }

    /// The names of LLM judges, each after its key in `verdict.metrics`.
    pub(crate) fn named_judges(&self) -> impl Iterator<Item = (String, &str)> {
        let sections = self.sections().into_iter().flat_map(|(section, settings)| {
            let judges = settings.named_judges().into_iter();
            judges.map(move |(key, judge)| (format!("{}.{key}", section.as_str()), judge))
        });
        let others = with_key("outcome.judges", &self.outcome.judges);
        let all = with_key("judges", &self.judges).into_iter().chain(sections).chain(others);
        all.filter(|(_, judge)| *judge != RULES_NAME)
    }

    /// The limit on the duration of the span `span_index` in milliseconds, if one is set.
    pub(super) fn max_ms(&self, trace: &AgentTrace, span_index: Idx) -> Option<f64> {
        let view = trace.views.get(span_index)?;
        let limits = &self.latency;
        let agent_limit = agent_name(trace, span_index)
            .and_then(|name| by_pattern(&limits.by_agent, name))
            .and_then(|kinds| kinds.get(&view.kind));
        let model_limit = || match (view.kind, &view.model) {
            (Kind::Llm, Some(model)) => by_pattern(&limits.by_model, model),
            _ => None,
        };
        agent_limit.or_else(model_limit).or_else(|| limits.max_ms.get(&view.kind)).copied()
    }

    /// The limit on the tokens of the span `span_index`, if one is set.
    pub(super) fn max_tokens(&self, trace: &AgentTrace, span_index: Idx) -> Option<u64> {
        let limits = &self.tokens;
        let agent_limit = agent_name(trace, span_index).and_then(|name| by_pattern(&limits.by_agent, name));
        let model = trace.views.get(span_index).and_then(|r| r.model.as_deref());
        let model_limit = || model.and_then(|name| by_pattern(&limits.by_model, name));
        agent_limit.or_else(model_limit).copied().or(limits.max)
    }

    /// The problems of invalid values.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let section_problems = |(section, settings): (SectionKey, &dyn Section)| {
            let problems = rows_of(section).next().map(|row| settings.problems(row)).unwrap_or_default();
            problems.into_iter().map(move |problem| problem.in_section(section.as_str()))
        };
        self.sections().into_iter().flat_map(section_problems).collect()
    }
}

/// The value of the exact name, or else of the longest matching pattern.
fn by_pattern<'a, V>(map: &'a BTreeMap<String, V>, name: &str) -> Option<&'a V> {
    map.get(name).or_else(|| {
        let matching = map.iter().filter(|(pattern, _)| matches(pattern, name));
        matching.max_by_key(|(pattern, _)| pattern.len()).map(|(_, value)| value)
    })
}

/// The settings of a custom metric.
#[derive(Clone, Debug)]
pub(crate) struct CustomSettings {
    pub row: &'static MetricSpec,
    pub settings: Scored,
}

impl MetricSpec {
    /// The default settings of the metric.
    pub fn defaults(&self) -> Scored {
        Scored { threshold: self.default_threshold(), ..Scored::default() }
    }

    /// The reason why a custom metric of this row cannot be added with these settings; `None` if it can.
    pub(crate) fn problem(&self, settings: &Scored) -> Option<String> {
        let is_name_char = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let is_word = |word: &str| !word.is_empty() && word.chars().all(is_name_char);
        if !self.name.split('.').all(is_word) || self.name.split('.').next() == Some("trace") {
            return Some(
                "a name is lower-case words separated by dots, and does not begin with 'trace'".into(),
            );
        }
        if spec(self.name).is_some() {
            return Some("there is a metric of this name".into());
        }
        let problems = threshold_problems(self.scale, settings.threshold, &settings.overrides);
        problems.into_iter().next().map(|problem| problem.message)
    }
}

#[cfg(test)]
mod tests;
