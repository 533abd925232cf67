//! What is known of the tools that a plan may use (004, appendix on tools; decisions: the specs carry
//! the limits).
//!
//! In: `verdict.metrics.plan.tools` of the configuration, or the definitions that a trace shows. Out:
//! a [`Toolbox`] to look tools up in. The contact-centre triad of the paper is one such set, in
//! `config/tools`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict_config::Problem;

use crate::recognise::ToolDefinition;

/// Tools of a trace that are taken in.
const MAX_SHOWN: usize = 256;

/// Where a tool takes the outputs of earlier steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// Before the prompt: `T2S((1), "...")`.
    Outside,
    /// In the prompt: `LLM("... (1) ...")`.
    Inside,
    /// Wherever.
    #[default]
    Anywhere,
}

/// One tool, as plans use it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ToolSpec {
    /// Default none. What it can do and what not, in words for a judge.
    pub description: String,
    /// Default `anywhere`. Where it takes the outputs of earlier steps: `outside` the prompt,
    /// `inside` it, or `anywhere`. Elsewhere counts against `plan.format`.
    pub placeholders: Placement,
    /// Default none. Phrases each of which is one more thing to look up; see `max_phrases`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phrases: Vec<String>,
    /// Default none. More of `phrases` than this in one prompt are too many for one step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_phrases: Option<usize>,
    /// Default none. More questions than this in one prompt are too many for one step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_questions: Option<usize>,
    /// Default false. Any prompt is one step, as for a model that puts results together.
    pub any_complexity: bool,
    /// Default false. A detail that a step before has already seen to costs this tool work (more
    /// joins, for example), so that repeating it counts against `plan.redundancy`.
    pub repeats_cost: bool,
}

/// The tools that a plan may use.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Toolbox {
    tools: BTreeMap<String, ToolSpec>,
    /// There are no others.
    complete: bool,
}

impl Toolbox {
    /// Of configured specs. Where there are any, they are all that a plan may use.
    pub fn new(specs: &BTreeMap<String, ToolSpec>) -> Toolbox {
        Toolbox { tools: specs.clone(), complete: !specs.is_empty() }
    }

    /// Of configured specs, and of what the trace's agent was shown. The agent that plans is often
    /// not the one that calls: what it was shown need not be all.
    pub fn with_definitions(specs: &BTreeMap<String, ToolSpec>, shown: &[ToolDefinition]) -> Toolbox {
        let mut toolbox = Toolbox::new(specs);
        for tool in shown.iter().take(MAX_SHOWN) {
            let name = tool.name.trim();
            if toolbox.get(name).is_none() {
                let description = tool.description.as_deref().unwrap_or_default().to_owned();
                toolbox.tools.insert(name.to_owned(), ToolSpec { description, ..ToolSpec::default() });
            }
        }
        toolbox
    }

    /// The same tools with `change` made to their names and descriptions.
    pub fn map_texts(&self, change: impl Fn(&str) -> String) -> Toolbox {
        let changed = |(name, spec): (&String, &ToolSpec)| {
            (change(name), ToolSpec { description: change(&spec.description), ..spec.clone() })
        };
        Toolbox { tools: self.tools.iter().map(changed).collect(), complete: self.complete }
    }

    /// Nothing is known of any tool.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// Whether there is certainly no tool called `name`.
    pub fn lacks(&self, name: &str) -> bool {
        self.complete && self.get(name).is_none()
    }

    /// The tool called `name`, whatever the case of its letters.
    pub fn get(&self, name: &str) -> Option<&ToolSpec> {
        self.tools.get(name).or_else(|| {
            self.tools.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, spec)| spec)
        })
    }

    /// All tools by name, for a prompt.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &ToolSpec)> {
        self.tools.iter().map(|(name, spec)| (name.as_str(), spec))
    }
}

/// Whether `step` names the tool `name`: as it is written, or its words with spaces between.
pub(crate) fn names_tool(step: &str, name: &str) -> bool {
    let name = name.trim();
    if name.len() < 5 {
        return false;
    }
    let step = step.to_lowercase();
    let written = name.to_lowercase();
    let spaced = written.replace(['_', '-'], " ");
    [written, spaced].iter().any(|n| {
        step.match_indices(n.as_str()).any(|(at, found)| {
            let before = step.get(..at).and_then(|s| s.chars().next_back());
            let after = step.get(at + found.len()..).and_then(|s| s.chars().next());
            let edge = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && c != '_');
            edge(before) && edge(after)
        })
    })
}

/// What is wrong with specs.
pub(crate) fn problems(specs: &BTreeMap<String, ToolSpec>) -> Vec<Problem> {
    let mut out = Vec::new();
    for (name, spec) in specs {
        if spec.max_phrases.is_some() == spec.phrases.is_empty() {
            let message = "phrases and max_phrases mean something only together";
            out.push(Problem::new(format!("{name}.max_phrases"), message));
        }
        if spec.phrases.iter().any(|p| p.trim().is_empty()) {
            out.push(Problem::new(format!("{name}.phrases"), "an empty phrase is in every prompt"));
        }
    }
    out
}
