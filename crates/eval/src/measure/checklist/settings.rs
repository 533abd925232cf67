//! The configuration section `verdict.metrics.checklist`.
//!
//! In: YAML. Out: fixed checklists, whether other tasks get a generated one, the judges by class of
//! question, and assets.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict_config::{Problem, admits, settings};

use super::check::Check;
use super::compiled::CompiledPattern;
use crate::measure::sections::{MetricSettings, Section, with_key};
use crate::measure::table::MetricSpec;
use crate::pattern::unicode_regex;
use crate::recognise::{Agent, AgentTrace};

settings! {
    /// The section.
    pub struct ChecklistSettings {
        /// Default true. If false, no checklist is evaluated.
        enabled: bool = true,
        /// Default as `verdict.metrics.judges`. The judges that generate checklists and answer their
        /// questions; questions with a check need none. Of several judges or samples the first to answer
        /// generates the checklist and finds the passages; an answer needs more than half of them.
        judges: Vec<String>,
        /// Default false. Generate a checklist for tasks without a fixed one: about ten questions to
        /// judges for each trace.
        generate: bool,
        /// Default `root`. The agents whose tasks are judged.
        #[serde(rename = "of")]
        judged_agents: JudgedAgents,
        /// Default none. Checklists of your own; the first whose `match` matches applies.
        fixed: Vec<Fixed>,
        /// Default none. Judges for a class of question, instead of `judges`.
        by_class: BTreeMap<Class, Vec<String>>,
        /// Default none. A judge whose model searches by itself, for factual questions. Without it, and
        /// without a matching asset, they are unmeasured: a model's memory does not count as a proof.
        search: Option<String>,
        /// Default none. A judge of dialect `rerank` that ranks the passages found for a question.
        rerank: Option<String>,
        /// Default none. A judge of dialect `evaluator` that runs programs, for questions of class `coding`: the judge
        /// that answers may write a program and sees what it prints. Run it in a container: what is asked for depends
        /// on the content of traces.
        run_code: Option<String>,
        /// Default false. A judge summarises the pieces of the log, ten in one question, and pieces are found
        /// by their summaries as well. It finds pieces of data and code that share no words with a question; it
        /// costs questions for every trace, which no cache answers.
        summaries: bool,
        /// Default none. Texts known beforehand: reference answers, procedures, tables.
        assets: Vec<Asset>,
        /// Default 12. Most questions of one checklist.
        max_questions: usize = 12,
        /// Default 300. Tokens of one piece of the log from which proofs are taken.
        chunk_tokens: usize = 300,
        /// Default 5. Pieces shown for one question; twice as many if these are not sufficient.
        keep: usize = 5,
        /// Default 0.5. Share of the best piece's score that other pieces must exceed.
        threshold: f64 = 0.5,
    }

    /// The tasks that a checklist or an asset applies to. Every key that is given must match.
    pub struct Match {
        /// `service.name`; `*` at the end matches any rest.
        #[serde(skip_serializing_if = "Option::is_none")]
        service: Option<String>,
        /// The agent's name; `*` at the end matches any rest.
        #[serde(skip_serializing_if = "Option::is_none")]
        agent: Option<String>,
        /// A regular expression that must match anywhere in the task's text.
        #[serde(skip_serializing_if = "Option::is_none")]
        task: Option<String>,
        /// No key of the configuration; compiled at its first use.
        #[serde(skip)]
        #[schemars(skip)]
        compiled: CompiledPattern,
    }

    /// A configured checklist.
    pub struct Fixed {
        /// Default all tasks.
        #[serde(rename = "match")]
        tasks: Match,
        /// The questions.
        items: Vec<Item>,
    }

    /// A question that is answered with yes or no.
    pub struct Item {
        /// The question; the expected answer is yes.
        question: String,
        /// How the rules answer it; without a check, judges are asked.
        #[serde(skip_serializing_if = "Option::is_none")]
        check: Option<Check>,
    }

    /// A text known beforehand.
    pub struct Asset {
        /// Its name in prompts: "reference answer", "refund procedure".
        name: String,
        /// Default all tasks.
        #[serde(rename = "match")]
        tasks: Match,
        /// The text.
        text: String,
    }
}

/// The agents whose tasks are judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Of")]
pub enum JudgedAgents {
    /// The outermost agent.
    #[default]
    Root,
    /// Every agent.
    Agents,
}

/// The kind of evidence that a question needs (003, figure 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Knowledge of the world that the run's record does not contain.
    Factual,
    /// Inference from the record.
    Reasoning,
    /// Reading code and data, or computing with them.
    Coding,
}

impl Class {
    /// The steps of a decision path.
    pub(crate) fn path(self) -> &'static [&'static str] {
        match self {
            Class::Factual => &["factual"],
            Class::Reasoning => &["logical", "reasoning"],
            Class::Coding => &["logical", "coding"],
        }
    }
}

impl Match {
    /// Whether the checklist or asset applies to the task of `agent`.
    pub(crate) fn fits(&self, trace: &AgentTrace, agent: &Agent) -> bool {
        let view = trace.views.get(agent.at);
        let task = match (&self.task, agent.task.as_deref()) {
            (None, _) => true,
            // The configuration is rejected if a pattern does not compile.
            (Some(pattern), Some(task)) => self.compiled.get(pattern).is_some_and(|p| p.is_match(task)),
            (Some(_), None) => false,
        };
        task && admits(self.service.as_deref(), view.and_then(|r| r.service.as_deref()))
            && admits(self.agent.as_deref(), agent.name.as_deref())
    }
}

impl Section for ChecklistSettings {
    fn settings_for(&self, _: &str) -> MetricSettings<'_> {
        MetricSettings { enabled: self.enabled, judges: &self.judges, ..MetricSettings::OFF }
    }

    fn problems(&self, _: &MetricSpec) -> Vec<Problem> {
        let mut out = Vec::new();
        for (i, fixed) in self.fixed.iter().enumerate() {
            check_pattern(&format!("fixed[{i}].match.task"), fixed.tasks.task.as_deref(), &mut out);
            if fixed.items.is_empty() {
                out.push(Problem::new(format!("fixed[{i}].items"), "expected at least one question"));
            }
            for (j, item) in fixed.items.iter().enumerate() {
                let key = format!("fixed[{i}].items[{j}]");
                if item.question.trim().is_empty() {
                    out.push(Problem::new(format!("{key}.question"), "the question is missing"));
                }
                if let Some(problem) = item.check.as_ref().and_then(Check::problem) {
                    out.push(Problem::new(format!("{key}.check"), problem));
                }
            }
        }
        for (i, asset) in self.assets.iter().enumerate() {
            check_pattern(&format!("assets[{i}].match.task"), asset.tasks.task.as_deref(), &mut out);
        }
        for (key, value) in
            [("max_questions", self.max_questions), ("chunk_tokens", self.chunk_tokens), ("keep", self.keep)]
        {
            if value == 0 {
                out.push(Problem::new(key, "must be at least 1"));
            }
        }
        if !(0.0..=1.0).contains(&self.threshold) {
            out.push(Problem::new(
                "threshold",
                format!("expected a share from 0 to 1, found {}", self.threshold),
            ));
        }
        out
    }

    fn named_judges(&self) -> Vec<(String, &str)> {
        let by_class = self.by_class.values().flat_map(|judges| with_key("by_class", judges));
        let search = with_key("search", self.search.as_slice());
        let rerank = with_key("rerank", self.rerank.as_slice());
        let run_code = with_key("run_code", self.run_code.as_slice());
        let named = with_key("judges", &self.judges).into_iter().chain(by_class).chain(search);
        named.chain(rerank).chain(run_code).collect()
    }
}

/// Appends a problem if the pattern is not a regular expression.
fn check_pattern(key: &str, pattern: Option<&str>, out: &mut Vec<Problem>) {
    if let Some(Err(error)) = pattern.map(unicode_regex) {
        out.push(Problem::new(key, format!("is not a regular expression: {error}")));
    }
}
