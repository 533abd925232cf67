//! The data model of a plan (004, section 2): numbered steps, each with a tool, an instruction and
//! the steps that it depends on.
//!
//! [`super::parse`] parses it from text; every check, metric and comparison uses it.

use serde_json::{Map, Value, json};

use super::placeholder;

/// Maximum number of steps of one plan; further steps are not read.
pub(crate) const MAX_STEPS: usize = 200;

/// The notation of a step's tool and instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StepNotation {
    /// As a call: `T2S((1), "...")`. The position of placeholders matters.
    Call,
    /// As fields of their own: `{"tool": ..., "prompt": ...}`.
    Fields,
    #[default]
    Prose,
}

/// A step of a plan.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PlanStep {
    /// The number of the step, by which placeholders and `depends_on` refer to it. From 1.
    pub number: usize,
    /// The tool that carries it out, if the plan names one.
    pub tool: Option<String>,
    /// The text before the prompt in a call, unchanged: `(1)`, `[]`, `[(1), (2)]`.
    pub inputs: String,
    /// The instruction to the tool.
    pub prompt: String,
    /// The numbers of the steps that must be finished before, in their order in the plan's text.
    pub depends_on: Vec<usize>,
    pub notation: StepNotation,
}

impl PlanStep {
    /// Tool, inputs and prompt as one line; prose unchanged.
    pub fn instruction(&self) -> String {
        let Some(tool) = self.tool.as_ref().filter(|_| self.notation != StepNotation::Prose) else {
            return self.prompt.clone();
        };
        let quoted = Value::from(self.prompt.as_str());
        match self.inputs.as_str() {
            "" => format!("{tool}({quoted})"),
            inputs => format!("{tool}({inputs}, {quoted})"),
        }
    }

    /// Whether both steps are equal, regardless of the order and brackets of inputs and dependencies.
    fn is_same(&self, other: &PlanStep) -> bool {
        let sorted = |step: &PlanStep| {
            let (mut inputs, mut numbers) = (placeholder::all(&step.inputs), step.depends_on.clone());
            inputs.sort_unstable();
            numbers.sort_unstable();
            (inputs, numbers)
        };
        let texts = |step: &PlanStep| (step.number, step.tool.clone(), step.prompt.clone());
        texts(self) == texts(other) && sorted(self) == sorted(other)
    }

    /// Whether both steps name the same tool, or neither names one.
    pub(crate) fn has_tool_of(&self, other: &PlanStep) -> bool {
        match (&self.tool, &other.tool) {
            (Some(name), Some(other)) => name.eq_ignore_ascii_case(other),
            (tool, other) => tool.is_none() && other.is_none(),
        }
    }

    /// The step with its dependencies in the paper's form.
    fn to_json(&self) -> Value {
        json!({ "step": self.instruction(), "depends_on": self.depends_on })
    }
}

/// A plan with the issues found while parsing it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Plan {
    /// The steps in the order of the text.
    pub steps: Vec<PlanStep>,
    /// Whether the steps have tools or dependencies, as in the paper; otherwise the plan is prose or a todo list.
    pub is_structured: bool,
    /// Issues found by the parser: repairs, and parts that were skipped.
    pub issues: Vec<PlanIssue>,
}

impl Plan {
    /// The position of the step with `number`.
    pub fn position(&self, number: usize) -> Option<usize> {
        // Fast path: most plans are numbered from 1 without gaps.
        let usual_position = number.wrapping_sub(1);
        if self.steps.get(usual_position).is_some_and(|s| s.number == number) {
            return Some(usual_position);
        }
        self.steps.iter().position(|s| s.number == number)
    }

    /// Whether numbers, tools, inputs, prompts and dependencies of both plans are equal; the
    /// notation may differ.
    pub fn same_as(&self, other: &Plan) -> bool {
        self.steps.len() == other.steps.len()
            && self.steps.iter().zip(&other.steps).all(|(a, b)| a.is_same(b))
    }

    /// The plan with `change` applied to the texts of its steps.
    pub fn map_texts(&self, change: impl Fn(&str) -> String) -> Plan {
        let mut plan = self.clone();
        for step in &mut plan.steps {
            step.prompt = change(&step.prompt);
            step.inputs = change(&step.inputs);
            step.tool = step.tool.as_deref().map(&change);
        }
        plan
    }

    /// Whether no step could be parsed.
    pub fn is_unreadable(&self) -> bool {
        self.steps.is_empty()
    }

    /// The plan in the paper's form, as strict JSON.
    pub fn to_json(&self) -> Value {
        let steps = self.steps.iter().map(|step| (step.number.to_string(), step.to_json()));
        Value::Object(steps.collect::<Map<_, _>>())
    }

    /// [`Plan::to_json`], one line per step.
    pub fn to_text(&self) -> String {
        let lines = self.steps.iter().map(|step| format!("\"{}\": {}", step.number, step.to_json()));
        format!("{{\n{}\n}}", lines.collect::<Vec<_>>().join(",\n"))
    }
}

/// Kinds of issues, grouped by the metric that they count against.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Fault {
    // Without effect on any metric.
    /// Text before or after the plan, or a code fence around it.
    Surrounded,
    /// More than `MAX_STEPS` steps.
    TooLong,

    // Format: the plan.
    /// No step could be parsed.
    Unreadable,
    /// The plan is not JSON, even with the paper's bare numbers and calls, and had to be repaired.
    Repaired,

    // Format: a step.
    /// The number of a step is missing, a duplicate, or not the next number.
    Numbering,
    /// The step has neither `step` nor `query`, or an empty one.
    NoInstruction,
    /// The instruction is not a call of a tool.
    NoCall,
    /// The prompt of a call is not in quotes, or they do not match.
    Quotes,
    /// `depends_on` is missing or not a list of step numbers.
    DependsOn,

    // Format: placeholders of a step.
    /// The step depends on another one and has no placeholder for its output.
    MissingPlaceholder,
    /// `(1, 2)`, `(step 1)` and the like.
    MalformedPlaceholder,
    /// A placeholder in the prompt of a tool that takes it before the prompt, or the reverse.
    MisplacedPlaceholder,
    /// The step refers to the query and does not pass it on as `(query)`.
    MissingQuery,

    // Dependencies.
    /// The step depends on a step that does not exist.
    UnknownStep,
    /// The step depends on itself or on a later step; in prose, it uses the result of itself or of a later step.
    NotEarlier,
    /// The step is part of a cycle.
    Circular,
    /// A placeholder refers to a step that is not a dependency.
    Undeclared,
    /// A duplicate dependency, or a dependency that the step does not use and another dependency implies.
    Superfluous,

    // Redundancy.
    /// The last step does not depend on the step.
    Ignored,
    /// The step repeats a detail of a step that it depends on; in prose, it repeats an earlier step.
    RepeatedDetail,

    // Executability.
    /// The step exceeds a limit of its tool.
    TooComplex,

    // Alignment.
    /// No tool has that name, or the tool cannot carry out the prompt.
    WrongTool,

    // Tool-usage completeness.
    /// The reference has the same prompt for two tools, the plan for only one of them.
    SecondToolMissing,
}

/// An issue of a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanIssue {
    /// The number of the step; `None` for the plan as a whole.
    pub step: Option<usize>,
    pub fault: Fault,
    /// A description that quotes the text.
    pub message: String,
}

impl PlanIssue {
    /// An issue of the step `number`.
    pub fn for_step(number: usize, fault: Fault, message: impl Into<String>) -> PlanIssue {
        PlanIssue { step: Some(number), fault, message: message.into() }
    }

    /// An issue of the whole plan.
    pub fn for_plan(fault: Fault, message: impl Into<String>) -> PlanIssue {
        PlanIssue { step: None, fault, message: message.into() }
    }
}

impl std::fmt::Display for PlanIssue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.step {
            Some(number) => write!(f, "step {number}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}
