//! The names of metrics that code distinguishes, as the rows of [`table`](super::table) have them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict_otlp::labelled_enum;

labelled_enum! {
    /// The seven metrics of paper 000.
    // Labels are names of metrics.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum GpaMetric {
        GoalFulfillment = "gpa.goal_fulfillment",
        LogicalConsistency = "gpa.logical_consistency",
        ExecutionEfficiency = "gpa.execution_efficiency",
        PlanQuality = "gpa.plan_quality",
        PlanAdherence = "gpa.plan_adherence",
        ToolSelection = "gpa.tool_selection",
        ToolCalling = "gpa.tool_calling",
    }
}

labelled_enum! {
    /// A metric of `path` (002). A metric that `fail_on` lists fails its span.
    // Labels are names of metrics.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    #[schemars(rename = "FailCondition")]
    pub enum PathMetric {
        /// A harmful call fails its own span.
        HarmfulCall = "path.harmful_call",
        /// The run did not end in a final state.
        Accepting = "path.accepting",
        /// PC below its threshold.
        Correctness = "path.correctness",
        /// PC-KTC below its threshold.
        PcKtc = "path.pc_ktc",
        /// Prefix criticality below its threshold.
        PrefixCriticality = "path.prefix_criticality",
        /// The rate of harmful calls above its threshold.
        HarmRate = "path.harm_rate",
        /// Efficiency below its threshold.
        Efficiency = "path.efficiency",
        /// PC+HLR below its threshold.
        PcHlr = "path.pc_hlr",
        /// The weighted mean below its threshold.
        Weighted = "path.weighted",
    }
}

labelled_enum! {
    /// One of the seven plan metrics (004). Labels are attribute keys.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
    pub enum PlanPart {
        /// The tool of a step can do what the prompt asks.
        ToolPromptAlignment = "plan.tool_prompt_alignment",
        /// The plan can be parsed, and its placeholders are correct.
        Format = "plan.format",
        /// Each step is one operation of its tool.
        StepExecutability = "plan.step_executability",
        /// The plan, carried out perfectly, would answer the query: 0, 0.5 or 1.
        QueryAdherence = "plan.query_adherence",
        /// The dependencies of the steps are correct, and none is superfluous.
        Dependencies = "plan.dependencies",
        /// No step or detail is repeated or unused.
        Redundancy = "plan.redundancy",
        /// Where the reference plan asks two tools the same question, the plan does so as well.
        ToolUsageCompleteness = "plan.tool_usage_completeness",
    }
}
