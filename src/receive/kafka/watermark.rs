//! The records of one assigned partition that are still needed, and the offset that may be committed.
//!
//! In: records with the traces that they contain, verdicts, and releases by trace. Out: per stream (spans,
//! logs) the offset from which the next owner of the partition has to read, and the [`Handover`] with the
//! records and traces that it must not evaluate again.
//!
//! The watermark `w` of a stream is the lowest offset of a retained record: a record with spans or logs of an open
//! trace, or of a trace whose export is not acknowledged. Without retained records it is the position after the last
//! record. The list of retained records between `w` and a position `next` is committed with it: the next owner skips
//! all other records below `next`. A committed state has these invariants, which a property test checks:
//!
//! - a record below `w`, or below `next` and not retained, is needed by no trace, and
//! - an exported trace of whose records some are read again and some are not is in the handover.
//!
//! Therefore the next owner reads every record of each trace that it evaluates, and if `next` is the position after the
//! last record, it evaluates no exported trace again. The handover has a bounded size, since it is stored with the
//! offsets. If it is too large, `next` is an earlier position; if it is too large for each position, nothing is
//! committed.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use verdict_otlp::trace::{PriorVerdict, TraceId};

use super::handover::{self, ExportedTrace, Handover, OffsetRange};
use super::stream::{Offsets, PartitionStream, STREAMS};
use super::trace::{ExportedRecords, KafkaTrace, ReplayStatus};

/// Exported traces that are remembered per partition, so that the next owner recognises their late spans. Traces with
/// records that are still retained are remembered in any case.
const MAX_REMEMBERED: usize = if cfg!(test) { 8 } else { 10_000 };
/// Memory of a trace; measured and rounded up.
const TRACE_BYTES: usize = 400;
/// Memory of a retained record with its entries in both maps; measured and rounded up.
const RECORD_BYTES: usize = 100;

/// Offsets with their metadata, as they are committed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Commit {
    pub offsets: Offsets,
    /// The encoded handover, stored with the offset of spans.
    pub metadata: String,
    /// The number of exported traces that the next owner evaluates again, since the handover has no space for them.
    pub reevaluated_traces: u64,
}

#[cfg(test)]
impl Commit {
    /// The offset after the records whose forwarded part was acknowledged, by stream; 0 without any.
    pub(crate) fn forwarded_up_to(&self) -> [i64; STREAMS] {
        let handover = Handover::decode(&self.metadata, self.offsets).unwrap_or_default();
        handover.forwarded.map(Option::unwrap_or_default)
    }
}

/// The state of one assignment of a partition.
#[derive(Default, Debug)]
pub(crate) struct Watermark {
    /// Whether spans are exported on arrival.
    forwards: bool,
    /// The offset after the last record that was read in this assignment.
    position: Offsets,
    /// The offset after the last record that was read in this assignment or by the previous owner.
    next: Offsets,
    /// The offset after the last record that this process read in an earlier assignment.
    earlier_position: Offsets,
    /// Records that the previous owner retained and that were not read yet.
    unread: [VecDeque<OffsetRange>; STREAMS],
    /// The forwarded parts of records before this offset were acknowledged to the previous owner.
    forwarded: Offsets,
    /// For each retained record: the number of reasons for which it is retained.
    retain_counts: [BTreeMap<i64, u32>; STREAMS],
    /// For each retained record: the number of forwarded parts among these reasons, whose export is not acknowledged.
    forwarding_counts: [BTreeMap<i64, u32>; STREAMS],
    /// The state of each trace, by [`handover::hash`] of the trace id.
    traces: HashMap<u64, KafkaTrace>,
    /// Exported traces, oldest first, each once; at most [`MAX_REMEMBERED`].
    remembered: VecDeque<u64>,
    /// Exported traces with records that a next owner reads again. Their state must be in the handover.
    pinned: BTreeSet<u64>,
    /// For each record that a next owner reads again: the exported traces in it.
    pins: [BTreeMap<i64, Vec<u64>>; STREAMS],
    /// The last exported record of all traces whose state was removed.
    forgotten: Offsets,
    /// The number of verdicts whose export is not acknowledged.
    unacknowledged_verdicts: u64,
}

impl Watermark {
    /// The state that the previous owner committed. `earlier_position` is the offset after the last record that this
    /// process has read in an earlier assignment.
    pub(crate) fn resume(
        offsets: Offsets,
        metadata: &str,
        forwards: bool,
        earlier_position: Offsets,
    ) -> Watermark {
        let empty = || Handover { next: offsets, forwarded: offsets, ..Handover::default() };
        let Handover { forwards: previous_forwards, next, forwarded, retained_ranges, exported, late } =
            Handover::decode(metadata, offsets).unwrap_or_else(empty);
        // After a change of the mode, other parts of a record are forwarded.
        let forwarded = if previous_forwards == forwards { forwarded } else { [None; STREAMS] };
        let unread = retained_ranges.map(VecDeque::from);
        // Traces that do not fit into the metadata may have exported records up to `next`.
        let forgotten =
            std::array::from_fn(|s| next[s].filter(|_| next[s] > offsets[s]).map(|next| next - 1));
        let position = offsets;
        let mut state = Watermark { forwards, position, next, earlier_position, ..Watermark::default() };
        (state.unread, state.forwarded, state.forgotten) = (unread, forwarded, forgotten);
        let late = late.into_iter().rev().map(|entry| (entry, false));
        // Oldest first, as they were exported.
        for (entry, is_read_again) in late.chain(exported.into_iter().rev().map(|entry| (entry, true))) {
            let ExportedTrace { trace: id, verdict, last } = entry;
            let exported = Some(ExportedRecords { first: [Some(i64::MIN); STREAMS], last, highest: last });
            let trace =
                KafkaTrace { exported, verdict: Some(verdict), is_inherited: true, ..KafkaTrace::default() };
            state.traces.insert(id, trace);
            state.remember(id);
            for s in (0..STREAMS).filter(|_| is_read_again) {
                let last_reread = last[s].max(state.unread[s].back().map(|(_, end)| end - 1));
                if let Some(last_reread) = last_reread.filter(|offset| Some(*offset) >= offsets[s]) {
                    state.pin(s, last_reread, id);
                }
            }
        }
        state
    }

    /// Whether the previous owner has read a record and did not retain it, so that it is skipped.
    pub(crate) fn skips(&self, stream: PartitionStream, offset: i64) -> bool {
        let s = stream as usize;
        let mut ranges = self.unread[s].iter().take_while(|(start, _)| *start <= offset);
        Some(offset) < self.next[s] && !ranges.any(|(_, end)| offset < *end)
    }

    /// Whether the export of the forwarded part of a record was acknowledged to the previous owner.
    pub(crate) fn was_forwarded(&self, stream: PartitionStream, offset: i64) -> bool {
        Some(offset) < self.forwarded[stream as usize]
    }

    /// Must be called first for each record. Returns `false` if its offset is below that of an earlier record: the
    /// topic was created again, or its log was truncated. The state of records that were read is then discarded.
    pub(crate) fn begin_record(&mut self, stream: PartitionStream, offset: i64) -> bool {
        let s = stream as usize;
        if Some(offset) >= self.position[s] {
            return true;
        }
        (self.position[s], self.next[s], self.forwarded[s], self.earlier_position[s]) =
            (Some(offset), Some(offset), None, None);
        self.unread[s].clear();
        self.remembered.clear();
        self.pinned.clear();
        self.pins = Default::default();
        self.forgotten = [None; STREAMS];
        for trace in self.traces.values_mut() {
            (trace.exported, trace.is_inherited, trace.is_remembered, trace.pins) = (None, false, false, 0);
        }
        self.traces.retain(|_, trace| trace.unacknowledged_verdicts > 0 || trace.is_retained());
        false
    }

    /// Records that a record was read. A record that is needed must have been retained before.
    pub(crate) fn note_read(&mut self, stream: PartitionStream, offset: i64) {
        let s = stream as usize;
        let after = Some(offset.saturating_add(1));
        let position_before = std::mem::replace(&mut self.position[s], after).unwrap_or(i64::MIN).min(offset);
        self.next[s] = self.next[s].max(after);
        let unread = &mut self.unread[s];
        while let Some(range) = unread.front_mut().filter(|range| range.0 <= offset) {
            range.0 = offset + 1;
            if range.0 >= range.1 {
                unread.pop_front();
            }
        }
        let read_pins = self.pins[s].range(position_before..=offset).map(|(offset, _)| *offset);
        let unneeded: Vec<i64> =
            read_pins.filter(|offset| !self.retain_counts[s].contains_key(offset)).collect();
        unneeded.into_iter().for_each(|offset| self.unpin(s, offset));
    }

    /// Whether a trace of a record has to be evaluated. Must be called before [`Watermark::retain`].
    pub(crate) fn replay_status(
        &mut self,
        stream: PartitionStream,
        offset: i64,
        trace: TraceId,
    ) -> ReplayStatus {
        let (s, id) = (stream as usize, handover::hash(trace));
        let Some(trace) = self.traces.get(&id).filter(|trace| trace.is_inherited) else {
            return ReplayStatus::New;
        };
        if trace.exported.as_ref().is_some_and(|exported| exported.last[s] >= Some(offset)) {
            self.pin(s, offset, id);
            return ReplayStatus::Exported;
        }
        trace.verdict.map_or(ReplayStatus::New, ReplayStatus::Late)
    }

    /// Retains a record for a trace, or without a trace until its forwarded part is released.
    pub(crate) fn retain(&mut self, stream: PartitionStream, offset: i64, trace: Option<TraceId>) {
        let s = stream as usize;
        if let Some(id) = trace.map(handover::hash) {
            if !self.traces.entry(id).or_default().retained_offsets[s].insert(offset) {
                return;
            }
            self.release_if_unused(id);
        } else {
            *self.forwarding_counts[s].entry(offset).or_default() += 1;
        }
        *self.retain_counts[s].entry(offset).or_default() += 1;
    }

    /// Releases a record for a trace, or without a trace for its forwarded part. `false` if it was not retained for
    /// that reason. `exported`: the trace was exported with this record.
    pub(crate) fn release(
        &mut self,
        stream: PartitionStream,
        offset: i64,
        trace: Option<TraceId>,
        exported: bool,
    ) -> bool {
        let s = stream as usize;
        let Some(id) = trace.map(handover::hash) else {
            return decrement(&mut self.forwarding_counts[s], offset) && {
                self.release_one(s, offset);
                true
            };
        };
        let Some(trace) = self.traces.get_mut(&id) else { return false };
        if !trace.retained_offsets[s].remove(&offset) {
            return false;
        }
        let exported = exported || trace.exported.is_some();
        if exported {
            trace.note_exported(s, offset);
        }
        if exported || trace.is_closed {
            self.remember(id);
        }
        self.release_one(s, offset);
        if exported && self.retain_counts[s].contains_key(&offset) {
            self.pin(s, offset, id);
        }
        self.release_if_unused(id);
        true
    }

    /// Records that a trace closed.
    pub(crate) fn note_closed(&mut self, trace: TraceId) {
        if let Some(trace) = self.traces.get_mut(&handover::hash(trace)) {
            trace.is_closed = true;
        }
    }

    /// Whether a record is late for its trace, which this process has closed before. Otherwise the record was already
    /// read in an earlier assignment, and the trace is assembled again.
    pub(crate) fn is_late(&self, stream: PartitionStream, offset: i64, trace: TraceId) -> bool {
        let trace = self.traces.get(&handover::hash(trace));
        // Until both streams are beyond their earlier positions, other records of the trace may be read again.
        let is_beyond = Some(offset) >= self.earlier_position[stream as usize]
            && (0..STREAMS).all(|s| s == stream as usize || self.position[s] >= self.earlier_position[s]);
        is_beyond || trace.is_some_and(|trace| trace.is_closed || trace.is_inherited)
    }

    /// Records the verdict of a trace, whose export begins.
    pub(crate) fn note_evaluated(&mut self, trace: TraceId, verdict: PriorVerdict) {
        let id = handover::hash(trace);
        let trace = self.traces.entry(id).or_default();
        trace.verdict = Some(verdict);
        trace.unacknowledged_verdicts += 1;
        self.unacknowledged_verdicts += 1;
        // A later revision of a trace whose earlier verdict was forgotten.
        if verdict.revision > 1 && trace.exported.is_none() {
            trace.exported =
                Some(ExportedRecords { first: [Some(i64::MIN); STREAMS], ..ExportedRecords::default() });
            self.remember(id);
            self.release_if_unused(id);
        }
    }

    /// Records that every required exporter has acknowledged a verdict of a trace.
    pub(crate) fn note_acknowledged(&mut self, trace: TraceId) {
        let id = handover::hash(trace);
        if let Some(trace) = self.traces.get_mut(&id).filter(|trace| trace.unacknowledged_verdicts > 0) {
            trace.unacknowledged_verdicts -= 1;
            self.unacknowledged_verdicts -= 1;
            self.release_if_unused(id);
        }
    }

    /// The number of verdicts whose export is not acknowledged.
    pub(crate) fn unacknowledged_verdicts(&self) -> u64 {
        self.unacknowledged_verdicts
    }

    /// The offset after the last record that was read, by stream.
    pub(crate) fn position(&self) -> Offsets {
        self.position
    }

    /// The number of records that were read here and are not below the watermark.
    pub(crate) fn uncommitted(&self) -> u64 {
        let lowest_needed = self.lowest_needed();
        let distance = |s: usize| u64::try_from(self.position[s]? - lowest_needed[s]?).ok();
        (0..STREAMS).filter_map(distance).sum()
    }

    /// The memory of the watermark, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.traces.len() * TRACE_BYTES
            + self.retain_counts.iter().map(BTreeMap::len).sum::<usize>() * RECORD_BYTES
    }

    /// The watermark of each stream.
    fn lowest_needed(&self) -> Offsets {
        std::array::from_fn(|s| {
            let unread = self.unread[s].front().map(|(start, _)| *start);
            let lowest = self.retain_counts[s].keys().next().copied().or(unread);
            lowest.map_or(self.next[s], |lowest| self.next[s].map(|next| lowest.min(next)))
        })
    }

    /// The state to commit, with metadata of at most `budget` bytes; `None` if it does not fit for any `next`.
    pub(crate) fn commit(&self, budget: usize) -> Option<Commit> {
        let offsets = self.lowest_needed();
        let all_ranges: [Vec<OffsetRange>; STREAMS] =
            std::array::from_fn(|s| self.retained_ranges(s, budget));
        // The sixteenths of the ranges that do not become part of the handover: first none, at last all.
        [0, 1, 2, 4, 8, 12, 16].into_iter().find_map(|sixteenths| {
            let (mut retained_ranges, mut next, mut is_next_lowered) = (all_ranges.clone(), self.next, false);
            for s in 0..STREAMS {
                let range_count =
                    (retained_ranges[s].len() - retained_ranges[s].len() * sixteenths / 16).min(budget);
                if let Some((start, _)) = retained_ranges[s].get(range_count) {
                    (next[s], is_next_lowered) = (Some(*start), true);
                    // A record of a forgotten trace must not be read again: the trace would be evaluated in part.
                    if Some(*start) <= self.forgotten[s] {
                        return None;
                    }
                }
                retained_ranges[s].truncate(range_count);
            }
            self.commit_up_to(
                Handover { next, retained_ranges, ..Handover::default() },
                is_next_lowered,
                offsets,
                budget,
            )
        })
    }

    /// The state to commit for the `next` of `handover`; `None` if it does not fit. `is_next_lowered`: exported records
    /// from `next` on are read again.
    fn commit_up_to(
        &self,
        mut handover: Handover,
        is_next_lowered: bool,
        offsets: Offsets,
        budget: usize,
    ) -> Option<Commit> {
        let next = handover.next;
        handover.forwards = self.forwards;
        handover.forwarded = std::array::from_fn(|s| {
            self.forwarding_counts[s].keys().next().copied().or(self.forwarded[s].max(self.position[s]))
        });
        let mut required_traces = self.pinned.clone();
        if is_next_lowered {
            required_traces.extend(
                self.traces.iter().filter(|(_, trace)| trace.is_exported_across(next)).map(|(id, _)| *id),
            );
        }
        let entry = |id: &u64| {
            Some((self.traces.get(id)?.handover_entry(*id)?, self.traces.get(id)?.has_exported_from(next)))
        };
        handover.exported.extend(required_traces.iter().filter_map(entry).map(|(entry, _)| entry));
        let metadata = handover.encode(offsets, budget)?;
        let newest =
            self.remembered.iter().rev().filter(|id| !required_traces.contains(id)).filter_map(entry);
        // Unless `next` was lowered, no record of the remaining traces is read again, so those that do not fit are not
        // counted.
        let max_entries = if is_next_lowered { usize::MAX } else { budget };
        let reevaluated_traces = handover.add_traces(
            &metadata,
            budget,
            newest
                .map(|(entry, has_exported_from)| (entry, is_next_lowered && has_exported_from))
                .take(max_entries),
        );
        let metadata = handover.encode(offsets, budget).unwrap_or(metadata);
        Some(Commit { offsets, metadata, reevaluated_traces })
    }

    /// The ranges of retained records, at most one more than `max_ranges`.
    fn retained_ranges(&self, s: usize, max_ranges: usize) -> Vec<OffsetRange> {
        let mut ranges: Vec<OffsetRange> = Vec::new();
        let retained = self.retain_counts[s].keys().map(|offset| (*offset, offset + 1));
        let retained = retained.take_while(|(_, end)| Some(*end) <= self.next[s]);
        for (start, end) in retained.chain(self.unread[s].iter().copied()) {
            count_examined();
            let is_full = ranges.len() > max_ranges;
            match ranges.last_mut() {
                Some(last) if last.1 == start => last.1 = end,
                _ if is_full => break,
                _ => ranges.push((start, end)),
            }
        }
        ranges
    }

    /// Decrements the number of reasons for which a record is retained.
    fn release_one(&mut self, s: usize, offset: i64) {
        decrement(&mut self.retain_counts[s], offset);
        if !self.retain_counts[s].contains_key(&offset) {
            self.unpin(s, offset);
        }
    }

    /// Keeps the state of an exported trace in the handover while a next owner would read this record again.
    fn pin(&mut self, s: usize, offset: i64, id: u64) {
        let pinned = self.pins[s].entry(offset).or_default();
        if !pinned.contains(&id)
            && let Some(trace) = self.traces.get_mut(&id)
        {
            pinned.push(id);
            trace.pins += 1;
            self.release_if_unused(id);
        }
    }

    fn unpin(&mut self, s: usize, offset: i64) {
        for id in self.pins[s].remove(&offset).unwrap_or_default() {
            if let Some(trace) = self.traces.get_mut(&id) {
                trace.pins -= 1;
                self.release_if_unused(id);
            }
        }
    }

    /// Remembers an exported trace, and forgets the oldest one above [`MAX_REMEMBERED`].
    fn remember(&mut self, id: u64) {
        let Some(trace) = self.traces.get_mut(&id) else { return };
        if !std::mem::replace(&mut trace.is_remembered, true) {
            self.remembered.push_back(id);
        }
        while self.remembered.len() > MAX_REMEMBERED
            && let Some(oldest) = self.remembered.pop_front()
        {
            if let Some(trace) = self.traces.get_mut(&oldest) {
                trace.is_remembered = false;
            }
            self.release_if_unused(oldest);
        }
    }

    /// Updates `pinned`, and removes a trace whose state is not needed.
    fn release_if_unused(&mut self, id: u64) {
        let Some(trace) = self.traces.get(&id) else { return };
        let is_needed = trace.pins > 0 || trace.is_retained();
        if is_needed && trace.exported.is_some() {
            self.pinned.insert(id);
        } else {
            self.pinned.remove(&id);
        }
        if is_needed || trace.unacknowledged_verdicts > 0 || trace.is_remembered {
            return;
        }
        if let Some(exported) = &trace.exported {
            for (forgotten, highest) in self.forgotten.iter_mut().zip(exported.highest) {
                *forgotten = (*forgotten).max(highest);
            }
        }
        self.traces.remove(&id);
    }
}

/// Decrements the count of an offset. `false` if it has none.
fn decrement(counts: &mut BTreeMap<i64, u32>, offset: i64) -> bool {
    let Some(count) = counts.get_mut(&offset) else { return false };
    *count -= 1;
    if *count == 0 {
        counts.remove(&offset);
    }
    true
}

#[cfg(test)]
thread_local! {
    /// Retained records examined by this thread.
    static EXAMINED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

fn count_examined() {
    #[cfg(test)]
    EXAMINED.set(EXAMINED.get() + 1);
}

#[cfg(test)]
mod tests;
