//! A plan as paper 004, section 2, has it: numbered steps, each with a tool, an instruction and the
//! steps that it depends on.
//!
//! [`super::parse`] makes it from text; every check, metric and comparison works on it.

use serde_json::{Map, Value, json};

use super::placeholder;

/// Steps kept of one plan.
pub(crate) const MAX_STEPS: usize = 200;

/// How a step's tool and instruction were written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StepNotation {
    /// As a call: `T2S((1), "...")`. The position of placeholders matters.
    Call,
    /// As fields of their own: `{"tool": ..., "prompt": ...}`.
    Fields,
    #[default]
    Prose,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct PlanStep {
    /// Its number, by which placeholders and `depends_on` refer to it. From 1.
    pub number: usize,
    /// The tool that is to carry it out; `None` if the plan does not say. For prose the tool that
    /// it names.
    pub tool: Option<String>,
    /// The text before the prompt in a call: `(1)`, `[]`, `[(1), (2)]`; as written.
    pub inputs: String,
    /// The instruction to the tool.
    pub prompt: String,
    /// Numbers of the steps that must be finished before, in the order written.
    pub depends_on: Vec<usize>,
    /// How tool and prompt were written.
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

    /// Equality of steps regardless of order and brackets of inputs and dependencies.
    fn is_same(&self, other: &PlanStep) -> bool {
        let sorted = |step: &PlanStep| {
            let mut numbers = step.depends_on.clone();
            numbers.sort_unstable();
            numbers
        };
        let inputs = |step: &PlanStep| {
            let mut inputs: Vec<String> =
                placeholder::all(&step.inputs).iter().map(|p| format!("{p:?}")).collect();
            inputs.sort_unstable();
            inputs
        };
        self.number == other.number
            && self.tool == other.tool
            && self.prompt == other.prompt
            && inputs(self) == inputs(other)
            && sorted(self) == sorted(other)
    }
}

/// A plan with the issues found while parsing it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Plan {
    /// Steps in the order written.
    pub steps: Vec<PlanStep>,
    /// It has the paper's shape: steps with tools or dependencies, not just a list of things to do.
    pub structured: bool,
    /// Repairs and parts that were skipped.
    pub issues: Vec<PlanIssue>,
}

impl Plan {
    /// The position of the step with `number`.
    pub fn position(&self, number: usize) -> Option<usize> {
        // Nearly always numbered from 1 without gaps.
        let guess = number.wrapping_sub(1);
        if self.steps.get(guess).is_some_and(|s| s.number == number) {
            return Some(guess);
        }
        self.steps.iter().position(|s| s.number == number)
    }

    /// Both plans are equivalent: numbers, tools, inputs, prompts and dependencies agree. The
    /// notation does not count.
    pub fn same_as(&self, other: &Plan) -> bool {
        self.steps.len() == other.steps.len()
            && self.steps.iter().zip(&other.steps).all(|(a, b)| a.is_same(b))
    }

    /// The same plan with `change` made to the texts of its steps.
    pub fn map_texts(&self, change: impl Fn(&str) -> String) -> Plan {
        let mut plan = self.clone();
        for step in &mut plan.steps {
            step.prompt = change(&step.prompt);
            step.inputs = change(&step.inputs);
            step.tool = step.tool.as_deref().map(&change);
        }
        plan
    }

    /// No step could be parsed.
    pub fn is_unreadable(&self) -> bool {
        self.steps.is_empty()
    }

    /// The plan in the paper's form, as strict JSON.
    pub fn to_json(&self) -> Value {
        let steps = self.steps.iter().map(|step| {
            let body = json!({ "step": step.instruction(), "depends_on": step.depends_on });
            (step.number.to_string(), body)
        });
        Value::Object(steps.collect::<Map<_, _>>())
    }

    /// [`Plan::to_json`], a step a line, as prompts and people read it.
    pub fn to_text(&self) -> String {
        let mut out = String::from("{\n");
        for (n, step) in self.steps.iter().enumerate() {
            let body = json!({ "step": step.instruction(), "depends_on": step.depends_on });
            let comma = if n + 1 < self.steps.len() { "," } else { "" };
            out.push_str(&format!("\"{}\": {body}{comma}\n", step.number));
        }
        out.push('}');
        out
    }
}

/// Kinds of issues, grouped by the metric that they count against.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Fault {
    // Noted, counted nowhere.
    /// Words before or after the plan, or a code fence around it.
    Surrounded,
    /// More steps than are read.
    TooLong,

    // Format: the plan.
    /// Not one step could be read.
    Unreadable,
    /// It is no JSON, even with the paper's bare numbers and calls, and had to be repaired.
    Repaired,

    // Format: a step.
    /// Its number is missing, given twice, or not the next one.
    Numbering,
    /// Neither `step` nor `query`, or nothing in it.
    NoInstruction,
    /// The instruction is no call of a tool.
    NoCall,
    /// The prompt of a call is not in quotes, or they do not match.
    Quotes,
    /// `depends_on` is missing or no list of step numbers.
    DependsOn,

    // Format: placeholders of a step.
    /// It depends on a step and has no placeholder for its output.
    MissingPlaceholder,
    /// `(1, 2)`, `(step 1)` and the like.
    MalformedPlaceholder,
    /// A placeholder in the prompt of a tool that takes it before the prompt, or the reverse.
    MisplacedPlaceholder,
    /// It refers to the query and does not pass it on as `(query)`.
    MissingQuery,

    // Dependencies.
    /// Depends on a step that does not exist.
    UnknownStep,
    /// Depends on itself or on a later step, or in prose uses its result.
    NotEarlier,
    /// Is part of a cycle.
    Circular,
    /// A placeholder names a step that it does not depend on.
    Undeclared,
    /// The same dependency twice, or one that nothing uses and another one implies.
    Superfluous,

    // Redundancy.
    /// The last step does not depend on it.
    Ignored,
    /// Repeats a step that it depends on, or in prose an earlier one.
    RepeatedDetail,

    // Executability.
    /// More in one step than its tool does at once.
    TooComplex,

    // Alignment.
    /// No tool of that name is known, or the tool cannot do what it is asked.
    WrongTool,

    // Tool-usage completeness.
    /// The reference asks two tools the same question, the plan only one of them.
    SecondToolMissing,
}

/// An issue of a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanIssue {
    /// The number of the step; `None` for the plan as a whole.
    pub step: Option<usize>,
    pub fault: Fault,
    /// A description with the text that was found.
    pub message: String,
}

impl PlanIssue {
    /// Of the step called `number`.
    pub fn at(number: usize, fault: Fault, message: impl Into<String>) -> PlanIssue {
        PlanIssue { step: Some(number), fault, message: message.into() }
    }

    /// Of the whole plan.
    pub fn of_plan(fault: Fault, message: impl Into<String>) -> PlanIssue {
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
