//! The calls of a trace by their spans.

use std::rc::Rc;

use foldhash::HashMap;
use verdict_otlp::trace::Idx;

use crate::measure::memo::Memo;
use crate::recognise::{AgentTrace, Text};

/// Indexes of the calls of a trace, by the span that requested or carried them out.
#[derive(Default)]
pub(crate) struct CallIndex {
    /// The calls that a span of kind `llm` requested, in order.
    pub by_llm: HashMap<Idx, Vec<usize>>,
    /// The call that a span of kind `tool` carried out.
    pub by_tool: HashMap<Idx, usize>,
    /// The names of the called tools, with the start of the first call.
    pub first_start: HashMap<Text, u64>,
}

impl CallIndex {
    /// The index of the trace, computed once.
    pub(crate) fn cached(trace: &AgentTrace, memo: &Memo) -> Rc<CallIndex> {
        memo.trace(|| {
            let mut index = CallIndex::default();
            index.by_llm.reserve(trace.calls.len());
            index.by_tool.reserve(trace.calls.len());
            for (i, call) in trace.calls.iter().enumerate() {
                index.first_start.entry(call.name.clone()).or_insert(call.start);
                if let Some(llm) = call.llm {
                    index.by_llm.entry(llm).or_default().push(i);
                }
                if let Some(tool) = call.tool {
                    index.by_tool.entry(tool).or_insert(i);
                }
            }
            index
        })
    }
}
