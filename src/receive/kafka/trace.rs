//! The state of one trace in an assignment of a partition.

use std::collections::BTreeSet;

use verdict_otlp::trace::PriorVerdict;

use super::handover::ExportedTrace;
use super::stream::{Offsets, STREAMS};

#[derive(Default, Debug)]
pub(super) struct Exported {
    pub first: Offsets,
    /// The last exported record before those that are retained for the trace.
    pub last: Offsets,
    /// The last exported record.
    pub beyond: Offsets,
}

#[derive(Default, Debug)]
pub(super) struct KafkaTrace {
    /// Records that are not released.
    pub retained_offsets: [BTreeSet<i64>; STREAMS],
    pub exported: Option<Exported>,
    /// The latest verdict, from its evaluation on.
    pub verdict: Option<PriorVerdict>,
    /// Verdicts whose export is not acknowledged.
    pub exporting: u32,
    /// Exported records that are read again, since another trace needs them or they were not read yet.
    pub pins: usize,
    /// The trace closed in this assignment.
    pub closed: bool,
    /// Exported by a previous owner.
    pub inherited: bool,
    /// The trace is in `order`.
    pub remembered: bool,
}

impl KafkaTrace {
    pub(super) fn is_retained(&self) -> bool {
        self.retained_offsets.iter().any(|offsets| !offsets.is_empty())
    }

    /// Notes that it was exported with a record, which is not retained for it any more.
    pub(super) fn export(&mut self, s: usize, offset: i64) {
        let exported = self.exported.get_or_insert_default();
        exported.first[s] = Some(exported.first[s].map_or(offset, |first| first.min(offset)));
        exported.beyond[s] = exported.beyond[s].max(Some(offset));
        if self.retained_offsets[s].first().is_none_or(|lowest| Some(*lowest) > exported.beyond[s]) {
            exported.last[s] = exported.beyond[s];
        }
    }

    /// Whether an exported record of it is not below `next`.
    pub(super) fn reaches(&self, next: Offsets) -> bool {
        let beyond = self.exported.as_ref().map_or([None; STREAMS], |exported| exported.beyond);
        (0..STREAMS).any(|s| beyond[s].is_some() && beyond[s] >= next[s])
    }

    /// Whether it was exported with records on both sides of `next`.
    pub(super) fn crosses(&self, next: Offsets) -> bool {
        let below = |e: &Exported| (0..STREAMS).any(|s| e.first[s].is_some() && e.first[s] < next[s]);
        self.exported.as_ref().is_some_and(below) && self.reaches(next)
    }

    pub(super) fn entry(&self, id: u64) -> Option<ExportedTrace> {
        Some(ExportedTrace { trace: id, verdict: self.verdict?, last: self.exported.as_ref()?.last })
    }
}
