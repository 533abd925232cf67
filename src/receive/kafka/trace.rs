//! The state of one trace in an assignment of a partition.

use std::collections::BTreeSet;

use verdict_otlp::trace::PriorVerdict;

use super::handover::ExportedTrace;
use super::stream::{Offsets, STREAMS};

/// Whether a previous owner has exported a trace that a record contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReplayStatus {
    /// The trace was not exported, or is unknown.
    New,
    /// The trace was exported with this record.
    Exported,
    /// The trace was exported without this record: the spans are late.
    Late(PriorVerdict),
}

/// The exported records of a trace.
#[derive(Default, Debug)]
pub(super) struct ExportedRecords {
    /// The first exported record.
    pub first: Offsets,
    /// The last exported record before the first record that is retained for the trace.
    pub last: Offsets,
    /// The last exported record, which may be after retained records.
    pub highest: Offsets,
}

/// The state of one trace.
#[derive(Default, Debug)]
pub(super) struct KafkaTrace {
    /// Records that are retained for the trace.
    pub retained_offsets: [BTreeSet<i64>; STREAMS],
    pub exported: Option<ExportedRecords>,
    /// The latest verdict, from its evaluation on.
    pub verdict: Option<PriorVerdict>,
    /// The number of verdicts whose export is not acknowledged.
    pub unacknowledged_verdicts: u32,
    /// The number of exported records that a next owner would read again: another trace needs them, or they were not
    /// read here yet.
    pub pins: usize,
    /// Whether the trace closed in this assignment.
    pub is_closed: bool,
    /// Whether a previous owner exported the trace.
    pub is_inherited: bool,
    /// Whether the trace is in `Watermark::remembered`.
    pub is_remembered: bool,
}

impl KafkaTrace {
    pub(super) fn is_retained(&self) -> bool {
        self.retained_offsets.iter().any(|offsets| !offsets.is_empty())
    }

    /// Records that the trace was exported with a record, which is not retained for the trace any more.
    pub(super) fn note_exported(&mut self, s: usize, offset: i64) {
        let exported = self.exported.get_or_insert_default();
        exported.first[s] = Some(exported.first[s].map_or(offset, |first| first.min(offset)));
        exported.highest[s] = exported.highest[s].max(Some(offset));
        if self.retained_offsets[s].first().is_none_or(|lowest| Some(*lowest) > exported.highest[s]) {
            exported.last[s] = exported.highest[s];
        }
    }

    /// Whether an exported record of the trace is not below `next`.
    pub(super) fn has_exported_from(&self, next: Offsets) -> bool {
        let highest = self.exported.as_ref().map_or([None; STREAMS], |exported| exported.highest);
        (0..STREAMS).any(|s| highest[s].is_some() && highest[s] >= next[s])
    }

    /// Whether the trace was exported with records on both sides of `next`.
    pub(super) fn is_exported_across(&self, next: Offsets) -> bool {
        let begins_below =
            |e: &ExportedRecords| (0..STREAMS).any(|s| e.first[s].is_some() && e.first[s] < next[s]);
        self.exported.as_ref().is_some_and(begins_below) && self.has_exported_from(next)
    }

    /// The entry of the handover; `None` if the trace was not exported.
    pub(super) fn handover_entry(&self, id: u64) -> Option<ExportedTrace> {
        Some(ExportedTrace { trace: id, verdict: self.verdict?, last: self.exported.as_ref()?.last })
    }
}
