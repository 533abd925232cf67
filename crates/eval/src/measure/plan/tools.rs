//! The tools that a plan may use, with their limits (004, appendix on tools).
//!
//! In: `verdict.metrics.plan.tools` of the configuration, or the tool definitions of a trace. Out: a
//! [`Toolbox`], in which tools are looked up by name. `config/tools` contains the paper's three tools of
//! a contact centre.

use std::collections::BTreeMap;

use foldhash::HashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict_config::Problem;

use crate::recognise::ToolDefinition;

/// Maximum number of tools of a trace that are considered.
pub(super) const MAX_DEFINITIONS: usize = 256;

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
    /// Whether no other tools exist.
    is_complete: bool,
}

impl Toolbox {
    /// A toolbox of configured specs. If there are any, a plan may use no other tools.
    pub fn new(specs: &BTreeMap<String, ToolSpec>) -> Toolbox {
        Toolbox { tools: specs.clone(), is_complete: !specs.is_empty() }
    }

    /// A toolbox of configured specs and of the tool definitions of the planning agent. The definitions may be
    /// incomplete, since another agent may make the calls.
    pub fn with_definitions(specs: &BTreeMap<String, ToolSpec>, definitions: &[ToolDefinition]) -> Toolbox {
        let mut toolbox = Toolbox::new(specs);
        for tool in definitions.iter().take(MAX_DEFINITIONS) {
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
        let changed_spec = |(name, spec): (&String, &ToolSpec)| {
            (change(name), ToolSpec { description: change(&spec.description), ..spec.clone() })
        };
        Toolbox { tools: self.tools.iter().map(changed_spec).collect(), is_complete: self.is_complete }
    }

    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// Whether `name` is not among the tools, and no others exist.
    pub fn lacks(&self, name: &str) -> bool {
        self.is_complete && self.get(name).is_none()
    }

    /// The tool `name`, in any case of letters.
    pub fn get(&self, name: &str) -> Option<&ToolSpec> {
        self.tools.get(name).or_else(|| {
            self.tools
                .iter()
                .find(|(tool_name, _)| tool_name.eq_ignore_ascii_case(name))
                .map(|(_, spec)| spec)
        })
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &ToolSpec)> {
        self.tools.iter().map(|(name, spec)| (name.as_str(), spec))
    }
}

/// Minimum length in bytes of a name that is searched in steps: shorter names may be ordinary words.
pub(super) const MIN_NAME_BYTES: usize = 5;

/// Finds the tools that steps of a plan mention: by their names, or by the words of the names separated by spaces, in
/// any case of letters. The cost is linear in the length of a step, and independent of the number of names.
pub(crate) struct MentionFinder {
    /// The spellings of names with the index of each, by the word with which they begin.
    spellings: HashMap<String, Vec<(String, usize)>>,
}

impl MentionFinder {
    pub(crate) fn new<'n>(names: impl Iterator<Item = &'n str>) -> MentionFinder {
        let mut spellings: HashMap<String, Vec<(String, usize)>> = HashMap::default();
        for (i, name) in names.map(str::trim).enumerate().filter(|(_, name)| name.len() >= MIN_NAME_BYTES) {
            let lower = name.to_lowercase();
            let spaced = lower.replace(['_', '-'], " ");
            for spelling in
                [Some(spaced).filter(|spaced| *spaced != lower), Some(lower)].into_iter().flatten()
            {
                let first = leading_word(&spelling).to_owned();
                spellings.entry(first).or_default().push((spelling, i));
            }
        }
        MentionFinder { spellings }
    }

    /// The indexes of the names that `step` mentions, ascending.
    pub(crate) fn mentioned(&self, step: &str) -> Vec<usize> {
        let mut out = Vec::new();
        if self.spellings.is_empty() {
            return out;
        }
        let step = step.to_lowercase();
        let mut previous = None;
        for (start, c) in step.char_indices() {
            if !previous.replace(c).is_some_and(is_word_char) {
                let rest = step.get(start..).unwrap_or_default();
                let candidates = self.spellings.get(leading_word(rest)).map_or(&[][..], Vec::as_slice);
                let is_mentioned = |spelling: &str| {
                    rest.strip_prefix(spelling).is_some_and(|after| !after.starts_with(is_word_char))
                };
                out.extend(candidates.iter().filter(|(spelling, _)| is_mentioned(spelling)).map(|(_, i)| *i));
            }
        }
        out.sort_unstable();
        out.dedup();
        out
    }
}

/// Whether a character may be part of a word.
pub(super) fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The word at the beginning of `text`; empty if it begins with another character.
fn leading_word(text: &str) -> &str {
    text.split_once(|c: char| !is_word_char(c)).map_or(text, |(word, _)| word)
}

/// The invalid values of specs.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_names_match_whole_words() {
        let names = ["web_search", "visit_page", "search_agent", "run", "Find-row", "search", "@mail bot"];
        let finder = MentionFinder::new(names.into_iter());
        for (step, mentioned) in [
            ("Do a web search for it", &["web_search", "search"][..]),
            ("Call `visit_page`.", &["visit_page"]),
            ("research_agents everywhere", &[]),
            ("run it", &[]),
            ("FIND ROW, find-row", &["Find-row"]),
            ("Ask @Mail Bot; a search_agents is none", &["@mail bot"]),
            ("", &[]),
        ] {
            let found: Vec<&str> = finder.mentioned(step).into_iter().map(|i| names[i]).collect();
            assert_eq!(found, mentioned, "{step}");
        }
    }
}
