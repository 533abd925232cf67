//! The tools by which an agent controls its own run: they hand over the answer, write the plan or note a
//! thought, and find out or change nothing.

/// The names of those tools, of the built-in conventions and of the configuration. Compared without case.
#[derive(Clone, Debug, Default)]
pub struct ControlTools {
    pub(super) final_answer: Vec<String>,
    pub(super) planning: Vec<String>,
    pub(super) thinking: Vec<String>,
}

impl ControlTools {
    /// A call to the tool ends the run; its argument is the answer.
    pub fn is_final_answer(&self, name: &str) -> bool {
        contains(&self.final_answer, name)
    }

    /// The tool's arguments are the agent's plan.
    pub fn is_planning(&self, name: &str) -> bool {
        contains(&self.planning, name)
    }

    /// The tool is one of either, or one by which the model only notes a thought.
    pub fn is_control(&self, name: &str) -> bool {
        self.is_final_answer(name) || self.is_planning(name) || contains(&self.thinking, name)
    }
}

fn contains(tools: &[String], name: &str) -> bool {
    tools.iter().any(|tool| tool.eq_ignore_ascii_case(name.trim()))
}
