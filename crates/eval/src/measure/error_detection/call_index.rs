//! The calls of a trace by the span that made or carried them out.

use std::collections::BTreeSet;
use std::rc::Rc;

use foldhash::HashMap;
use verdict_otlp::trace::Idx;

use crate::measure::memo::Memo;
use crate::recognise::{AgentTrace, Text};

/// Where the calls of a trace are, by the span that made or carried them out.
#[derive(Default)]
pub(crate) struct CallIndex {
    /// Calls that an LLM span wrote, in order.
    pub by_llm: HashMap<Idx, Vec<usize>>,
    /// The call that a TOOL span carried out.
    pub by_tool: HashMap<Idx, usize>,
    /// The tools that were called, each once.
    pub names: BTreeSet<Text>,
}

impl CallIndex {
    /// For the trace of `memo`.
    pub(crate) fn of(trace: &AgentTrace, memo: &Memo) -> Rc<CallIndex> {
        memo.trace(|| {
            let mut at = CallIndex::default();
            for (i, call) in trace.calls.iter().enumerate() {
                at.names.insert(call.name.clone());
                if let Some(llm) = call.llm {
                    at.by_llm.entry(llm).or_default().push(i);
                }
                if let Some(tool) = call.tool {
                    at.by_tool.entry(tool).or_insert(i);
                }
            }
            at
        })
    }
}
