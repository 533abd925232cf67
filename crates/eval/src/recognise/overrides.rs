//! What a convention says, as data: the shape of the built-in tables in `convention/*.yaml`, and
//! of `verdict.recognise` in the configuration, where a user teaches names of their own.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict_otlp::trace::Kind;

/// Attribute names and values of the user's own, read before every built-in convention.
///
/// Default: nothing; the built-in conventions (OpenTelemetry GenAI, OpenInference, OpenLLMetry,
/// Vercel AI SDK and some twenty more) are always there and need no configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Overrides {
    /// Built-in conventions to be asked first, in this order, where one span carries several.
    /// Those not named follow in the built-in order. Default: empty.
    pub precedence: Vec<String>,
    /// Take the first model output with two or more numbered steps, before any tool call, as a
    /// plan even if it is not called one. Default: false, since lists are not always plans.
    pub plan_heuristic: bool,
    /// Attributes whose value says what a span is. They win over built-in ones.
    pub kinds: Vec<KindKey>,
    /// Span names that say what a span is.
    pub names: Vec<NameRule>,
    /// For each field, the attributes to read it from, most telling first. A name that ends in
    /// `.#` is a flattened list (see `flattened`), one that ends in `.*` a flattened map.
    pub fields: BTreeMap<Field, Vec<String>>,
    /// For each flattened list `prefix.#`: what the rest of the key holds. A second `#` stands for
    /// a second index.
    pub flattened: BTreeMap<String, BTreeMap<String, LeafKind>>,
    /// Attributes whose value is a sign of error, of a retry, or of a cancellation.
    pub flags: Vec<Flag>,
    /// Span events and log events by name.
    pub events: BTreeMap<String, EventRule>,
    /// Values that mean "not recorded".
    pub absent: Vec<String>,
    /// Values, or their beginnings, that stand in place of content that was taken out.
    pub redacted: Vec<String>,
    /// Tools whose arguments are the agent's plan. No rule counts them as work.
    pub planning_tools: Vec<String>,
    /// Beginnings of a line after which a plan is written in a model's output.
    pub plan_markers: Vec<PlanMarker>,
    /// Words of a framework's own in a prompt that asks for a plan: what comes out is the plan.
    pub plan_prompts: Vec<String>,
    /// Tools whose argument is the agent's final answer. No rule counts them as work.
    pub final_answer_tools: Vec<String>,
    /// Tools by which a model only notes a thought. No rule counts them as work.
    pub thinking_tools: Vec<String>,
    /// Exception types that end a run on purpose: cancellations and interrupts, not failures.
    pub not_failures: Vec<String>,
}

/// An attribute whose value says what a span is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KindKey {
    /// The attribute.
    pub key: String,
    /// How much it counts. Default: `user`, above every built-in one.
    #[serde(default)]
    pub rank: Rank,
    /// Values, compared without case, to kinds. A trailing `*` matches any ending.
    #[serde(default)]
    pub values: BTreeMap<String, Kind>,
    /// The kind where the value is none of these. Default: the attribute says nothing then.
    #[serde(default)]
    pub otherwise: Option<Kind>,
    /// Values that say an agent is being made, not run: such a span is not judged. Default: none.
    #[serde(default)]
    pub lifecycle: Vec<String>,
}

/// A span name that says what a span is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NameRule {
    /// The instrumentation scope's name must begin so. Default: any scope.
    #[serde(default)]
    pub scope: String,
    /// The span's name; `*` at the end, or at the beginning, matches anything.
    pub name: String,
    /// The kind.
    pub kind: Kind,
    /// How much it counts. Default: `user`.
    #[serde(default)]
    pub rank: Rank,
}

/// How much a statement about a kind counts, strongest first (conventions, section 5.7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Rank {
    /// The configuration says so.
    #[default]
    User,
    /// A key made for the purpose, by one vendor.
    Vendor,
    /// `gen_ai.operation.name`.
    Operation,
    /// One framework's habit.
    Framework,
    /// A tool's own key stands on the span.
    ToolKey,
    /// Documents stand on the span.
    Documents,
    /// A model's name and tokens stand on the span, and nothing says that it is an agent.
    ModelKey,
    /// The span's name looks like it.
    Name,
}

/// A field of the one vocabulary that attributes are read into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Field {
    /// What went into a model, an agent or a step: messages in any shape, or a text.
    Input,
    /// What came out.
    Output,
    /// Tool calls that came out, where they stand apart from the text.
    OutputCalls,
    /// Visible thinking that came out, where it stands apart.
    OutputReasoning,
    /// System instructions, where they stand apart from the messages.
    System,
    /// A whole conversation, input and output in one.
    Conversation,
    /// Index of the first message of this run in `conversation`.
    ConversationStart,
    /// Message events packed into one attribute.
    PackedEvents,
    /// The tool's name.
    ToolName,
    /// The call's id.
    CallId,
    /// The call's arguments.
    Arguments,
    /// What the tool returned.
    Result,
    /// Tools offered to a model, or declared by an agent.
    ToolDefinitions,
    /// The parameter schema of the tool that this span runs.
    ToolSchema,
    /// What that tool says of itself.
    ToolDescription,
    /// The model.
    Model,
    /// The provider of the model.
    Provider,
    /// The response's id.
    ResponseId,
    /// The agent's name.
    AgentName,
    /// Conversation or session.
    Session,
    /// Prompt tokens.
    TokensInput,
    /// Completion tokens.
    TokensOutput,
    /// All tokens.
    TokensTotal,
    /// Prompt tokens read from a cache.
    TokensCached,
    /// Completion tokens spent on reasoning.
    TokensReasoning,
    /// A map of token counts.
    Usage,
    /// Cost in USD.
    Cost,
    /// A map of costs in USD.
    CostMap,
    /// Finish reasons.
    Finish,
    /// The kind of error.
    ErrorType,
    /// What the error says.
    ErrorMessage,
    /// A plan.
    Plan,
    /// Steps or nodes that were declared before the run.
    PlanGraph,
    /// Somebody's evaluation: its name.
    EvaluationName,
    /// Its score.
    EvaluationScore,
    /// Its label.
    EvaluationLabel,
    /// Its rationale.
    EvaluationExplanation,
    /// A flattened list of evaluations.
    Evaluations,
}

/// What the rest of a flattened key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LeafKind {
    /// A message's role.
    Role,
    /// A message's text, or the whole entry.
    Text,
    /// The name of who speaks: the tool's, on a tool message.
    Name,
    /// The id of the call that a tool message answers.
    CallId,
    /// The text of one part.
    PartText,
    /// An image or file among the parts.
    PartMedia,
    /// The visible thinking in one part.
    PartReasoning,
    /// A tool call's id.
    RequestId,
    /// A tool call's name.
    RequestName,
    /// A tool call's arguments.
    RequestArguments,
    /// Why the model stopped.
    Finish,
    /// A tool definition as JSON.
    Definition,
    /// A tool definition's description.
    Description,
    /// A tool definition's parameter schema.
    Parameters,
    /// An evaluation's score.
    Score,
    /// An evaluation's label.
    Label,
    /// An evaluation's rationale.
    Explanation,
}

/// An attribute that flags something.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Flag {
    /// The attribute.
    pub key: String,
    /// The values that count, compared without case. Default: any value but an empty one.
    #[serde(default)]
    pub values: Vec<String>,
    /// What it means. Default: `error`.
    #[serde(default)]
    pub means: Meaning,
}

/// What a flag means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Meaning {
    /// The span failed.
    #[default]
    Error,
    /// The framework will try again: what failed here may be made good.
    Retry,
    /// Ended on purpose.
    Cancelled,
    /// A placeholder span: not to be read.
    Placeholder,
    /// An agent's span, whatever model is named on it.
    Agent,
}

/// What an event by some name holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventRule {
    /// One message of the system.
    System,
    /// One message of the user.
    User,
    /// One earlier message of the model.
    Assistant,
    /// One tool message.
    Tool,
    /// One message that came out.
    Choice,
    /// Attributes, read as if they stood on the span.
    Attributes,
    /// An exception.
    Exception,
    /// An evaluation result.
    Evaluation,
}

/// A marker of a plan in a model's output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanMarker {
    /// The text that opens the plan; compared without case.
    pub begins: String,
    /// The texts that end it. Default: it goes on to the end of the message.
    #[serde(default)]
    pub ends: Vec<String>,
    /// The marker must stand alone at the beginning of a line, perhaps as a heading. Default: false.
    #[serde(default)]
    pub line: bool,
    /// It opens a changed plan. Default: false.
    #[serde(default)]
    pub replan: bool,
}
