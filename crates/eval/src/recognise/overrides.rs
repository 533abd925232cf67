//! The format of a convention: of the built-in ones in `convention/*.yaml`, and of `verdict.recognise` in
//! the configuration, which adds names to them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict_otlp::trace::Kind;

/// Attribute names and values that take precedence over every built-in convention.
///
/// Default: none. The built-in conventions (OpenTelemetry GenAI, OpenInference, OpenLLMetry, Vercel AI
/// SDK and some twenty more) need no configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Overrides {
    /// Built-in conventions that are tried first, in this order, on spans that carry several. The others
    /// follow in the built-in order. Default: empty.
    pub precedence: Vec<String>,
    /// Read the first model output with two or more numbered steps, before any tool call, as a plan, even
    /// if it is not called one. Default: false, since lists are not always plans.
    pub plan_heuristic: bool,
    /// Attributes whose value determines the kind of a span. They take precedence over built-in ones.
    pub kinds: Vec<KindKey>,
    /// Span names that determine the kind of a span.
    pub names: Vec<NameRule>,
    /// For each field, the attributes that it is read from; the first that has a value is used. A name
    /// that ends in `.#` is a flattened list (see `flattened`), one that ends in `.*` a flattened map.
    pub fields: BTreeMap<Field, Vec<String>>,
    /// For each flattened list `prefix.#`: the meaning of the rest of the key. A second `#` is the index
    /// of a nested list.
    pub flattened: BTreeMap<String, BTreeMap<String, LeafKind>>,
    /// Attributes that indicate an error, a retry or a cancellation.
    pub flags: Vec<Flag>,
    /// Span events and log events by name.
    pub events: BTreeMap<String, EventRule>,
    /// Values that mean "not recorded".
    pub absent: Vec<String>,
    /// Values, or their beginnings, that replace removed content.
    pub redacted: Vec<String>,
    /// Endings that instrumentations write where they cut a text off. They count at the end of broken JSON, and
    /// if they are the whole text; at the end of other texts a tool may have written them.
    pub truncated: Vec<String>,
    /// Tools whose arguments are the agent's plan. No rule counts calls to them as work.
    pub planning_tools: Vec<String>,
    /// Beginnings of a line after which a plan is written in a model's output.
    pub plan_markers: Vec<PlanMarker>,
    /// Phrases of a framework in a prompt that asks for a plan: the output is then the plan.
    pub plan_prompts: Vec<String>,
    /// Tools whose argument is the agent's final answer. No rule counts calls to them as work.
    pub final_answer_tools: Vec<String>,
    /// Tools by which a model only records a thought. No rule counts calls to them as work.
    pub thinking_tools: Vec<String>,
    /// Exception types that are no failures: cancellations and interrupts.
    pub not_failures: Vec<String>,
}

impl Field {
    /// Whether the field is input or output of a model or tool, in place of which a hash may be recorded.
    pub(crate) fn is_content(self) -> bool {
        use Field::{
            Arguments, Conversation, Input, Output, OutputCalls, OutputReasoning, PackedEvents, Result,
            System,
        };
        matches!(
            self,
            Input
                | Output
                | OutputCalls
                | OutputReasoning
                | System
                | Conversation
                | PackedEvents
                | Arguments
                | Result
        )
    }
}

/// An attribute whose value determines the kind of a span.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KindKey {
    /// The attribute.
    pub key: String,
    /// The precedence. Default: `user`, above every built-in rule.
    #[serde(default)]
    pub rank: Rank,
    /// The kind of each value. Case is ignored; a trailing `*` matches any ending.
    #[serde(default)]
    pub values: BTreeMap<String, Kind>,
    /// The kind of any other value. Default: other values do not determine the kind.
    #[serde(default)]
    pub otherwise: Option<Kind>,
    /// Values of spans that create an agent and do not run it. Such spans are not evaluated. Default: none.
    #[serde(default)]
    pub lifecycle: Vec<String>,
}

/// A span name that determines the kind of a span.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NameRule {
    /// Required beginning of the instrumentation scope's name. Default: any scope.
    #[serde(default)]
    pub scope: String,
    /// The span's name; one `*` in it matches anything.
    pub name: String,
    /// The kind of the span.
    pub kind: Kind,
    /// The precedence. Default: `user`.
    #[serde(default)]
    pub rank: Rank,
}

/// The precedence of statements about a span's kind, highest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Rank {
    /// The configuration.
    #[default]
    User,
    /// An attribute for the kind of a span, of one vendor.
    Vendor,
    /// `gen_ai.operation.name`.
    Operation,
    /// An attribute of one framework that implies the kind.
    Framework,
    /// An attribute of tools.
    ToolKey,
    /// Retrieved documents.
    Documents,
    /// A model's name and tokens, without an attribute of agents.
    ModelKey,
    /// The span's name.
    Name,
}

/// A field of a recognised span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Field {
    /// The input of a model, an agent or a step: messages in any format, or a text.
    Input,
    /// The output, likewise.
    Output,
    /// Tool calls of the output that are recorded apart from its text.
    OutputCalls,
    /// Reasoning of the output that is recorded apart from its text.
    OutputReasoning,
    /// System instructions that are recorded apart from the messages.
    System,
    /// A whole conversation, input and output in one attribute.
    Conversation,
    /// The index of the first message of this run in `conversation`.
    ConversationStart,
    /// Message events packed into one attribute.
    PackedEvents,
    /// The tool's name.
    ToolName,
    /// The id of the call.
    CallId,
    /// The arguments of the call.
    Arguments,
    /// The result of the tool.
    Result,
    /// The tools offered to a model or declared by an agent.
    ToolDefinitions,
    /// The parameter schema of the tool that the span executes.
    ToolSchema,
    /// The description of that tool.
    ToolDescription,
    /// The model.
    Model,
    /// The provider of the model.
    Provider,
    /// The id of the response.
    ResponseId,
    /// The name of the agent.
    AgentName,
    /// The conversation or session.
    Session,
    /// The user of the session.
    User,
    /// Prompt tokens.
    TokensInput,
    /// Completion tokens.
    TokensOutput,
    /// All tokens.
    TokensTotal,
    /// Prompt tokens read from a cache.
    TokensCached,
    /// Prompt tokens written to a cache.
    TokensCacheWrite,
    /// Completion tokens spent on reasoning.
    TokensReasoning,
    /// A map of token counts.
    Usage,
    /// Cost in USD.
    Cost,
    /// The currency of that cost, if it is another one.
    CostCurrency,
    /// A map of costs in USD.
    CostMap,
    /// Finish reasons.
    Finish,
    /// The type of the error.
    ErrorType,
    /// The message of the error.
    ErrorMessage,
    /// A plan.
    Plan,
    /// Steps or nodes that were declared before the run.
    PlanGraph,
    /// The name of an evaluation by another program.
    EvaluationName,
    /// The score of that evaluation.
    EvaluationScore,
    /// The label of that evaluation.
    EvaluationLabel,
    /// The rationale of that evaluation.
    EvaluationExplanation,
    /// Whether that evaluation passed.
    EvaluationPassed,
    /// Who made that evaluation.
    EvaluationEvaluator,
    /// The version of the evaluator.
    EvaluationEvaluatorVersion,
    /// Whether the evaluator is a human, a model or code.
    EvaluationEvaluatorType,
    /// The subject of the evaluation: an agent, a service, or a span.
    EvaluationTarget,
    /// A flattened list of evaluations.
    Evaluations,
}

/// The meaning of a leaf of a flattened list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LeafKind {
    /// The role of a message.
    Role,
    /// The text of a message, or the whole entry.
    Text,
    /// The name of the author: of a tool message, the tool.
    Name,
    /// The id of the call whose result a tool message is.
    CallId,
    /// The text of one part.
    PartText,
    /// An image or file among the parts.
    PartMedia,
    /// The reasoning in one part.
    PartReasoning,
    /// The id of a tool call.
    RequestId,
    /// The name of the tool of a tool call.
    RequestName,
    /// The arguments of a tool call.
    RequestArguments,
    /// A finish reason.
    Finish,
    /// A tool definition as JSON.
    Definition,
    /// The description in a tool definition.
    Description,
    /// The parameter schema in a tool definition.
    Parameters,
    /// The score of an evaluation.
    Score,
    /// The label of an evaluation.
    Label,
    /// The rationale of an evaluation.
    Explanation,
    /// Who made an evaluation.
    Evaluator,
    /// Whether the evaluator is a human, a model or code.
    EvaluatorType,
}

/// An attribute that indicates an error or another condition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Flag {
    /// The attribute.
    pub key: String,
    /// The values that count; case is ignored. Default: any value except an empty one, 0 and `false`.
    #[serde(default)]
    pub values: Vec<String>,
    /// The meaning. Default: `error`.
    #[serde(default)]
    pub means: Meaning,
}

/// The meaning of a flag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Meaning {
    /// The span failed.
    #[default]
    Error,
    /// The framework retries, so a later attempt may succeed.
    Retry,
    /// The span was cancelled, which is not a failure.
    Cancelled,
    /// The span is a placeholder of a span that follows; it has no kind.
    Placeholder,
    /// The span is an agent's, even if a model is named on it.
    Agent,
    /// The input is recorded in another place, which the value names.
    InputElsewhere,
    /// The output is, likewise.
    OutputElsewhere,
    /// The system instructions are, likewise.
    SystemElsewhere,
}

/// The content of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventRule {
    /// A system message.
    System,
    /// A user message.
    User,
    /// An earlier message of the model.
    Assistant,
    /// A tool message.
    Tool,
    /// A message of the output.
    Choice,
    /// Attributes that are read as attributes of the span.
    Attributes,
    /// An exception.
    Exception,
    /// An evaluation result.
    Evaluation,
    /// A finding of a guardrail or a security scanner. It is read as an evaluation without a verdict on the run.
    Finding,
}

/// A marker of a plan in a model's output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanMarker {
    /// The text before the plan; case is ignored.
    pub begins: String,
    /// The texts after the plan. Default: the plan extends to the end of the message.
    #[serde(default)]
    pub ends: Vec<String>,
    /// The marker must be a line of its own or the beginning of one, such as a heading. Default: false.
    #[serde(default)]
    pub line: bool,
    /// The plan replaces an earlier one. Default: false.
    #[serde(default)]
    pub replan: bool,
}
