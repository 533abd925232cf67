//! The tools that a plan may use, with their limits (004, appendix on tools).
//!
//! In: `verdict.metrics.plan.tools` of the configuration, or the tool definitions of a trace. Out: a
//! [`Toolbox`], in which tools are looked up by name. `config/tools` contains the paper's three tools of
//! a contact centre.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict_config::Problem;

use crate::recognise::ToolDefinition;

/// Most tools of a trace that are considered.
pub(super) const MAX_SHOWN: usize = 256;

/// Where a tool takes the outputs of earlier steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// Before the prompt: `T2S((1), "...")`.
    Outside,
    /// In the prompt: `LLM("... (1) ...")`.
    Inside,
    /// In either place.
    #[default]
    Anywhere,
}

/// One tool, as plans use it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ToolSpec {
    /// Default none. What the tool can and cannot do, as shown to judges.
    pub description: String,
    /// Default `anywhere`. Where the tool takes outputs of earlier steps: `outside` the prompt, `inside`
    /// it, or `anywhere`. Placeholders in another place lower `plan.format`.
    pub placeholders: Placement,
    /// Default none. Phrases, each of which requires a separate lookup; see `max_phrases`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phrases: Vec<String>,
    /// Default none. Largest number of `phrases` in the prompt of one step; more lower
    /// `plan.step_executability`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_phrases: Option<usize>,
    /// Default none. Largest number of questions in the prompt of one step; more lower
    /// `plan.step_executability`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_questions: Option<usize>,
    /// Default false. If true, no prompt is too complex, as for a model that combines results.
    pub any_complexity: bool,
    /// Default false. If true, details that an earlier step has handled cost this tool work (more
    /// joins, for example), and repeating them lowers `plan.redundancy`.
    pub repeats_cost: bool,
}

/// The tools that a plan may use.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Toolbox {
    tools: BTreeMap<String, ToolSpec>,
    /// No other tools exist.
    complete: bool,
}

impl Toolbox {
    /// A toolbox of configured specs. If there are any, a plan may use no other tools.
    pub fn new(specs: &BTreeMap<String, ToolSpec>) -> Toolbox {
        Toolbox { tools: specs.clone(), complete: !specs.is_empty() }
    }

    /// A toolbox of configured specs and of the tool definitions of the planning agent. These may be
    /// incomplete, since another agent may make the calls.
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

    /// The same tools with `change` applied to their names and descriptions.
    pub fn map_texts(&self, change: impl Fn(&str) -> String) -> Toolbox {
        let changed = |(name, spec): (&String, &ToolSpec)| {
            (change(name), ToolSpec { description: change(&spec.description), ..spec.clone() })
        };
        Toolbox { tools: self.tools.iter().map(changed).collect(), complete: self.complete }
    }

    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// Whether `name` is not among the tools, and no others exist.
    pub fn lacks(&self, name: &str) -> bool {
        self.complete && self.get(name).is_none()
    }

    /// The tool `name`, in any case of letters.
    pub fn get(&self, name: &str) -> Option<&ToolSpec> {
        self.tools.get(name).or_else(|| {
            self.tools.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, spec)| spec)
        })
    }

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

/// Invalid specs.
pub(crate) fn problems(specs: &BTreeMap<String, ToolSpec>) -> Vec<Problem> {
    let mut out = Vec::new();
    for (name, spec) in specs {
        if spec.max_phrases.is_some() == spec.phrases.is_empty() {
            let message = "phrases and max_phrases require each other";
            out.push(Problem::new(format!("{name}.max_phrases"), message));
        }
        if spec.phrases.iter().any(|p| p.trim().is_empty()) {
            out.push(Problem::new(format!("{name}.phrases"), "an empty phrase occurs in every prompt"));
        }
    }
    out
}
