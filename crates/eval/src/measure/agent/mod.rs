//! Metrics of an agent's run as a whole (001, section 3.2 and table 2).
//!
//! In: the agents of a trace with their calls, plans, tasks and answers. Out: `tool_abuse`,
//! `tool_coverage`, `plan_efficiency` and `completeness`, each 1-5, on the agent's span. Findings
//! cite the spans of the calls that they are based on.

pub(crate) mod completeness;
pub(crate) mod plan_efficiency;
pub(crate) mod tool_abuse;
pub(crate) mod tool_coverage;
