//! What judges are asked about: one row a metric.
//!
//! Names and scales are those of paper 001 (tables 1 and 2) and paper 000 (section 3); names become
//! attribute keys. A row's rubric is a file of its own beside this one.

use crate::measure::Need;

/// What an answer may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// 1 to 5 (001).
    Five,
    /// 0 to 3 (000).
    Three,
    /// A label, from good to bad.
    Labels(&'static [&'static str]),
}

/// Which spans a metric is about, and what of the trace it looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum About {
    /// A model call.
    Model,
    /// A tool call.
    Tool,
    /// Either.
    Step,
    /// An agent with all beneath it.
    Agent,
    /// An agent by itself, and the trace as a whole.
    Run,
    /// The same, its plans alone and what led to each.
    Plans,
    /// The same, each plan with what was done until the next.
    Segments,
}

/// A row of the table.
#[derive(PartialEq, Eq, Debug)]
pub struct Topic {
    /// The metric.
    pub name: &'static str,
    /// Names the schema of its answers.
    pub form: &'static str,
    /// What an answer may be.
    pub scale: Scale,
    /// Which spans it is about.
    pub about: About,
    /// What it must see before it can be asked.
    pub need: Need,
    /// How it is judged.
    pub rubric: &'static str,
}

/// Labels of `avoidance`, from good to bad.
const AVOIDANCE: Scale = Scale::Labels(&["valid", "policy_restriction", "missing_knowledge", "other"]);
/// Labels of `error_detection`, from good to bad.
const ERRORS: Scale = Scale::Labels(&["valid", "api_error", "tool_error", "system_error"]);

macro_rules! topic {
    ($name:literal, $form:literal, $scale:expr, $about:ident, $need:ident) => {
        Topic {
            name: $name,
            form: $form,
            scale: $scale,
            about: About::$about,
            need: Need::$need,
            rubric: include_str!(concat!("rubric/", $form, ".md")),
        }
    };
}

/// Every metric that judges answer. The order is that of the measurements on a span.
pub static TOPICS: [Topic; 16] = [
    topic!("error_detection", "error_detection", ERRORS, Step, Span),
    topic!("avoidance", "avoidance", AVOIDANCE, Model, Parent),
    topic!("instruction_following", "instruction_following", Scale::Five, Model, Span),
    topic!("reasoning_integrity", "reasoning_integrity", Scale::Five, Model, Parent),
    topic!("tool_completeness", "tool_completeness", Scale::Five, Tool, Parent),
    topic!("plan_efficiency", "plan_efficiency", Scale::Five, Agent, Subtree),
    topic!("tool_coverage", "tool_coverage", Scale::Five, Agent, Subtree),
    topic!("tool_abuse", "tool_abuse", Scale::Five, Agent, Subtree),
    topic!("completeness", "completeness", Scale::Five, Agent, Subtree),
    topic!("gpa.goal_fulfillment", "gpa_goal_fulfillment", Scale::Three, Run, Trace),
    topic!("gpa.logical_consistency", "gpa_logical_consistency", Scale::Three, Run, Trace),
    topic!("gpa.execution_efficiency", "gpa_execution_efficiency", Scale::Three, Run, Trace),
    topic!("gpa.plan_quality", "gpa_plan_quality", Scale::Three, Plans, Trace),
    topic!("gpa.plan_adherence", "gpa_plan_adherence", Scale::Three, Segments, Trace),
    topic!("gpa.tool_selection", "gpa_tool_selection", Scale::Three, Run, Trace),
    topic!("gpa.tool_calling", "gpa_tool_calling", Scale::Three, Run, Trace),
];

/// The row of a metric.
pub fn topic(name: &str) -> Option<&'static Topic> {
    TOPICS.iter().find(|topic| topic.name == name)
}

impl Scale {
    /// The scores, lowest first; none for labels.
    pub fn scores(self) -> Vec<u8> {
        match self {
            Scale::Five => (1..=5).collect(),
            Scale::Three => (0..=3).collect(),
            Scale::Labels(_) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rubric_says_what_it_is_about_and_anchors_its_scale() {
        for topic in &TOPICS {
            let text = topic.rubric;
            assert!(text.starts_with("<!-- version "), "{}", topic.name);
            for part in ["## What is judged", "## What is not", "## Scale", "## Findings"] {
                assert!(text.contains(part), "{} lacks {part}", topic.name);
            }
            let anchors: Vec<String> = match topic.scale {
                Scale::Labels(labels) => labels.iter().map(|l| format!("\n- `{l}`: ")).collect(),
                scale => scale.scores().iter().map(|s| format!("\n- {s}: ")).collect(),
            };
            for anchor in anchors {
                assert_eq!(text.matches(&anchor).count(), 1, "{}: {anchor}", topic.name);
            }
        }
    }

    #[test]
    fn names_are_told_apart() {
        let names: std::collections::BTreeSet<_> = TOPICS.iter().map(|t| t.name).collect();
        assert_eq!(names.len(), TOPICS.len());
        assert!(TOPICS.iter().all(|t| t.form == t.name.replace('.', "_")));
    }
}
