//! The tools by which an agent controls its own run: they return the answer, record the plan or record a
//! thought. They neither retrieve information nor have side effects.

/// The names of control tools, from the built-in conventions and the configuration. Case is ignored.
#[derive(Clone, Debug, Default)]
pub struct ControlTools {
    pub(super) final_answer: Vec<String>,
    pub(super) planning: Vec<String>,
    pub(super) thinking: Vec<String>,
}

impl ControlTools {
    /// Whether a call of the tool ends the run, with the answer as its argument.
    pub fn is_final_answer(&self, name: &str) -> bool {
        contains(&self.final_answer, name.trim())
    }

    /// Whether the tool's arguments are the agent's plan.
    pub fn is_planning(&self, name: &str) -> bool {
        contains(&self.planning, name.trim())
    }

    /// Whether the tool returns the answer, records the plan, or only records a thought.
    pub fn is_control(&self, name: &str) -> bool {
        let name = name.trim();
        [&self.final_answer, &self.planning, &self.thinking].into_iter().any(|tools| contains(tools, name))
    }
}

fn contains(tools: &[String], name: &str) -> bool {
    tools.iter().any(|tool| tool.eq_ignore_ascii_case(name))
}
