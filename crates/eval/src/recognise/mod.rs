//! From spans in any convention to one vocabulary: [`SpanView`] of a span, [`AgentTrace`] of a trace.
//!
//! In: a [`Tree`] of bytes and the log records that belong to its spans. Out: kinds, messages,
//! tool calls, agents, plans, errors. After this stage nothing reads a vendor's key. The map of
//! conventions is data (`convention/*.yaml`), versioned, overridable from the configuration
//! ([`Overrides`]).
//!
//! The path of one span: `scan` dispatches every attribute once through the compiled
//! tables, `interpret` chooses each field on its own, `message_reader`, `part` and `tool` undo the wrappings
//! of providers. The path of a trace: `wrappers` finds spans that record one call twice, `errors`
//! signs that only repeat another span's, `agents` the agents, `calls` their tool calls.

mod agents;
mod build;
mod calls;
mod control_tools;
mod conversation;
mod errors;
mod evaluations;
mod event;
mod tool_span;
mod interpret;
pub(crate) mod json_keys;
pub(crate) mod message;
mod node;
mod outline;
mod overrides;
mod part;
mod plans;
mod scan;
pub(crate) mod span_view;
mod python_repr;
pub(crate) mod agent_trace;
mod message_cache;
mod message_reader;
mod table;
mod texts;
mod tool;
mod wrappers;

pub(crate) use agent_trace::{Agent, AgentTrace, Call};
pub(crate) use control_tools::ControlTools;
pub(crate) use message::{Message, Part, Role, Text, ToolDefinition, ToolRequest, plain};
pub(crate) use overrides::Overrides;
pub(crate) use plans::lines as plan_steps;
pub(crate) use span_view::{Content, ErrorSign, ErrorSource, Plan, SpanView};
pub(crate) use table::TableError;
pub(crate) use verdict_otlp::trace::Attached;
use verdict_otlp::trace::{Envelope, Kind, Tree};

/// The conventions, ready to read spans. Cheap to share, costly to make: make one a process.
#[derive(Debug)]
pub struct Recogniser {
    table: table::Table,
}

impl Recogniser {
    /// Compiles the built-in conventions and the user's own.
    ///
    /// # Errors
    /// When the user's part names a convention or list that is not there.
    pub fn new(overrides: &Overrides) -> Result<Recogniser, TableError> {
        Ok(Recogniser { table: table::Table::new(overrides)? })
    }

    /// What an encoded span is, without reading its content.
    pub fn kind(&self, span: &[u8], envelope: &Envelope) -> Kind {
        let scan = scan::SpanScan::span(&self.table, span);
        scan.kind(&self.table, build::scope(envelope)).kind
    }

    /// The whole trace. `logs` may come in any order; those of unknown spans are left out.
    /// `incomplete` is carried through: the root has not come, or the trace was closed early.
    pub fn trace(&self, tree: Tree, logs: &[Attached], incomplete: bool) -> AgentTrace {
        build::trace(&self.table, tree, logs, incomplete)
    }
}

#[cfg(test)]
mod tests;
