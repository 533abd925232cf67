//! What `verdict.metrics.checklist` says.
//!
//! In: the configuration's YAML. Out: which tasks have a fixed checklist, whether others get one
//! made, who answers which class of question, and what is known beforehand.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict_config::{Problem, admits};

use super::check::Check;
use crate::measure::settings::sections::{MetricSettings, Section, below};
use crate::recognise::{Agent, AgentTrace};

/// The section.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Default true. When false no checklist is judged at all.
    pub enabled: bool,
    /// Default as `verdict.metrics.judges`. Who makes checklists and answers their questions;
    /// questions that name a check need nobody. Of several judges or samples the first that answers
    /// makes the checklist and finds the passages; of their answers more than half must agree.
    pub judges: Vec<String>,
    /// Default false. Have a judge make a checklist for tasks that have no fixed one: some ten
    /// questions to judges for each trace.
    pub generate: bool,
    /// Default `root`. Whose task is judged.
    pub of: Of,
    /// Default none. Checklists of the operator's, the first that fits holds.
    pub fixed: Vec<Fixed>,
    /// Default none. Who answers a class of question, where it is not `judges`.
    pub by_class: BTreeMap<Class, Vec<String>>,
    /// Default none. A judge whose model searches by itself, for factual questions. Without one,
    /// and without an asset that fits, those are unmeasured: a model's memory is no proof.
    pub search: Option<String>,
    /// Default none. A judge of dialect `rerank` that orders what was found for a question anew.
    pub rerank: Option<String>,
    /// Default none. What is known beforehand: reference answers, procedures, tables.
    pub assets: Vec<Asset>,
    /// Default 12. Questions of one checklist at most.
    pub max_questions: usize,
    /// Default 300. Tokens of one piece of the log that proofs are looked for in.
    pub chunk_tokens: usize,
    /// Default 5. Pieces shown for one question; twice as many when that was not enough.
    pub keep: usize,
    /// Default 0.5. Share of the best piece's score that others must exceed.
    pub threshold: f64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            enabled: true,
            judges: Vec::new(),
            generate: false,
            of: Of::default(),
            fixed: Vec::new(),
            by_class: BTreeMap::new(),
            search: None,
            rerank: None,
            assets: Vec::new(),
            max_questions: 12,
            chunk_tokens: 300,
            keep: 5,
            threshold: 0.5,
        }
    }
}

/// Whose task a checklist is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Of {
    /// The outermost agent's.
    #[default]
    Root,
    /// Every agent's.
    Agents,
}

/// What answering a question takes (003, figure 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Knowledge of the world, beyond the run's record.
    Factual,
    /// Inference from the record.
    Reasoning,
    /// Reading or computing with code and data.
    Coding,
}

impl Class {
    /// As in a decision path.
    pub fn path(self) -> &'static [&'static str] {
        match self {
            Class::Factual => &["factual"],
            Class::Reasoning => &["logical", "reasoning"],
            Class::Coding => &["logical", "coding"],
        }
    }
}

/// What a checklist or an asset is for. Every key that is given must match.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Match {
    /// `service.name`; `*` at the end stands for any rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// The agent's name, in the same way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// A regular expression that the task's text must match somewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
}

impl Match {
    /// Whether the checklist or asset is for the task of `agent`.
    pub fn fits(&self, trace: &AgentTrace, agent: &Agent) -> bool {
        let view = trace.views.get(agent.at);
        let task = match (&self.task, agent.task.as_deref()) {
            (None, _) => true,
            // A pattern that does not compile is refused with the configuration.
            (Some(pattern), Some(task)) => regex::Regex::new(pattern).is_ok_and(|p| p.is_match(task)),
            (Some(_), None) => false,
        };
        task && admits(self.service.as_deref(), view.and_then(|r| r.service.as_deref()))
            && admits(self.agent.as_deref(), agent.name.as_deref())
    }
}

/// A checklist of the operator's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Fixed {
    /// Default all tasks.
    #[serde(rename = "match")]
    pub of: Match,
    /// The questions.
    pub items: Vec<Item>,
}

/// A question that is answered with yes or no.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Item {
    /// In words. Yes is what should be.
    pub question: String,
    /// How the rules answer it; without a check it goes to the judges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<Check>,
}

/// Something known beforehand.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Asset {
    /// What it is, as the judge is told: "reference answer", "refund procedure".
    pub name: String,
    /// Default all tasks.
    #[serde(rename = "match")]
    pub of: Match,
    /// The text.
    pub text: String,
}

impl Section for Settings {
    fn of(&self, _: &str) -> MetricSettings<'_> {
        MetricSettings { enabled: self.enabled, judges: &self.judges, ..MetricSettings::OFF }
    }

    fn problems(&self) -> Vec<Problem> {
        let mut out = Vec::new();
        for (i, fixed) in self.fixed.iter().enumerate() {
            pattern(&format!("fixed[{i}].match.task"), fixed.of.task.as_deref(), &mut out);
            if fixed.items.is_empty() {
                out.push(Problem::new(format!("fixed[{i}].items"), "a checklist needs questions"));
            }
            for (j, item) in fixed.items.iter().enumerate() {
                let key = format!("fixed[{i}].items[{j}]");
                if item.question.trim().is_empty() {
                    out.push(Problem::new(format!("{key}.question"), "the question is missing"));
                }
                if let Some(fault) = item.check.as_ref().and_then(Check::problem) {
                    out.push(Problem::new(format!("{key}.check"), fault));
                }
            }
        }
        for (i, asset) in self.assets.iter().enumerate() {
            pattern(&format!("assets[{i}].match.task"), asset.of.task.as_deref(), &mut out);
        }
        for (key, value) in
            [("max_questions", self.max_questions), ("chunk_tokens", self.chunk_tokens), ("keep", self.keep)]
        {
            if value == 0 {
                out.push(Problem::new(key, "must be at least 1"));
            }
        }
        if !(0.0..=1.0).contains(&self.threshold) {
            out.push(Problem::new("threshold", format!("{} is no share from 0 to 1", self.threshold)));
        }
        out
    }

    fn named_judges(&self) -> Vec<(String, &str)> {
        let by_class = self.by_class.values().flat_map(|judges| below("by_class", judges));
        let search = below("search", self.search.as_slice());
        let rerank = below("rerank", self.rerank.as_slice());
        below("judges", &self.judges).into_iter().chain(by_class).chain(search).chain(rerank).collect()
    }
}

fn pattern(key: &str, pattern: Option<&str>, out: &mut Vec<Problem>) {
    if let Some(Err(error)) = pattern.map(regex::Regex::new) {
        out.push(Problem::new(key, format!("is no regular expression: {error}")));
    }
}
