//! Recognises spans of any convention: a [`SpanView`] of each span, an [`AgentTrace`] of each trace.
//!
//! In: a [`Tree`] of encoded spans and their log records. Out: kinds, messages, tool calls, agents,
//! plans and errors. After this stage no code reads a vendor's attribute key. The conventions are data
//! (`convention/*.yaml`, compiled by `table`), which the configuration can extend ([`Overrides`]).
//!
//! The path of a span: `scan` looks up every attribute once, `interpret` chooses the value of each
//! field, and `message_reader`, `part` and `tool` unwrap the formats of providers. The path of a trace:
//! `length_limit` finds content that was cut off, `wrappers` spans that record one call twice, `framing` chains that
//! frame the run of an agent, `errors` the error signs that only repeat another span's, `agents` the agents,
//! `clocks` the differences between the clocks of services, and `calls` the tool calls. `action_text` has the marks
//! of actions, code and answers that a model writes as text.
//!
//! | file | content |
//! |---|---|
//! | `table`, `kind_rules`, `overrides` | the conventions, compiled; the kinds that they imply; their format |
//! | `scan`, `earlier_spans` | the attributes of a span; those of the spans before it |
//! | `flat_attribute`, `statement` | an attribute of an element of a list; what attributes state about the kind |
//! | `interpret`, `span_view` | the value of each field of a span; the result |
//! | `node`, `json_keys`, `python_repr` | content as a tree; keys of JSON without parsing; objects as Python prints them |
//! | `message`, `part`, `tool` | messages, their parts, and the arguments, results and definitions of tools |
//! | `message_reader`, `genai_message` | messages of any format; those of the GenAI semantic conventions |
//! | `message_cache`, `flat_message` | messages of earlier prompts; those of flattened prompts |
//! | `conversation`, `event`, `tool_span`, `evaluations` | the fields of a span that have a conversation, an event, a tool call or an evaluation |
//! | `build`, `agent_trace`, `texts` | a trace from its spans; the result; interned texts |
//! | `agents`, `framing`, `open_runs` | agents, chains that frame a run, runs whose own span has not arrived |
//! | `calls`, `tool_lookup`, `control_tools` | tool calls; tools by name; tools by which an agent controls its own run |
//! | `errors`, `wrappers`, `clocks` | repeated error signs, repeated spans, differences between clocks |
//! | `plans`, `action_text` | plans; marks of actions in texts, and labels of results |
//! | `framework_errors`, `finish_reason` | the wording of frameworks' errors; why a model stopped |
//! | `length_limit`, `truncated_text`, `recorded_elsewhere` | content that is cut off, or recorded in another place |

pub(crate) mod action_text;
mod agents;
mod build;
mod calls;
mod clocks;
pub(crate) mod control_tools;
mod conversation;
mod truncated_text;
mod errors;
mod evaluations;
mod earlier_spans;
mod event;
mod flat_attribute;
mod flat_message;
mod finish_reason;
pub(crate) mod framework_errors;
mod framing;
mod genai_message;
mod tool_span;
mod interpret;
mod kind_rules;
mod length_limit;
pub(crate) mod json_keys;
pub(crate) mod message;
mod node;
mod open_runs;
#[cfg(test)]
mod outline;
pub(crate) mod overrides;
mod part;
mod plans;
mod scan;
mod statement;
pub(crate) mod span_view;
pub(crate) mod python_repr;
mod recorded_elsewhere;
pub(crate) mod agent_trace;
mod message_cache;
mod message_reader;
pub(crate) mod table;
mod texts;
mod tool;
mod tool_lookup;
mod wrappers;

use agent_trace::Phase;
pub(crate) use agent_trace::{Agent, AgentTrace, Call};
pub(crate) use control_tools::ControlTools;
pub(crate) use finish_reason::FinishReason;
pub(crate) use message::{Message, Part, Role, Text, ToolDefinition, ToolRequest, plain};
pub(crate) use node::ContentNode;
pub(crate) use overrides::Overrides;
pub(crate) use plans::list_items as plan_steps;
pub(crate) use span_view::{Content, ErrorSign, ErrorSource, RecordedPlan, SpanView};
pub(crate) use table::TableError;
pub(crate) use tool_lookup::ToolLookup;
pub(crate) use truncated_text::{is_broken_json, says_truncated};
pub(crate) use verdict_otlp::trace::AttachedLog;
use verdict_otlp::trace::{Envelope, Kind, Tree};

/// The compiled conventions. Compilation is expensive: create one per configuration and share it.
#[derive(Debug)]
pub struct Recogniser {
    table: table::ConventionTable,
}

impl Recogniser {
    /// Compiles the built-in conventions and those of the configuration.
    ///
    /// # Errors
    /// The configuration names an unknown convention, or a flattened list without leaves.
    pub fn new(overrides: &Overrides) -> Result<Recogniser, TableError> {
        Ok(Recogniser { table: table::ConventionTable::new(overrides)? })
    }

    /// The kind of an encoded span, without reading its content.
    pub fn kind(&self, span: &[u8], envelope: &Envelope) -> Kind {
        let scan = scan::SpanScan::span(&self.table, span);
        scan.kind(&self.table, build::scope(envelope)).kind
    }

    /// Recognises a closed trace. Log records of unknown spans are ignored. `incomplete` is true if the root is missing
    /// or the trace was closed early.
    pub fn trace(&self, tree: Tree, logs: &[AttachedLog], incomplete: bool) -> AgentTrace {
        build::trace(&self.table, tree, logs, Phase::Closed { incomplete })
    }

    /// Recognises a trace of which further spans are expected. Agents are inferred from their model and tool spans,
    /// since SDKs send the span of an agent last.
    pub fn open_trace(&self, tree: Tree, logs: &[AttachedLog]) -> AgentTrace {
        build::trace(&self.table, tree, logs, Phase::Open)
    }
}

#[cfg(test)]
pub(crate) mod recorded_cases;
#[cfg(test)]
mod tests;
