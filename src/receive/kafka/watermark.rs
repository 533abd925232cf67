//! The records of one assigned partition that are still needed, and the offset that may be committed.
//!
//! In: records with the traces that they contain, verdicts, and releases by trace. Out: per stream (spans,
//! logs) the offset from which the next owner of the partition has to read, and the [`Handover`] that names to it which
//! records and traces it must not evaluate again.
//!
//! The watermark `w` of a stream is the lowest offset of a retained record: it contains spans or logs of an open
//! trace, or of one whose export is not acknowledged. Without any, it is the position after the last record. With it
//! the retained records between `w` and a position `next` are committed: the next owner skips the others there. A
//! committed state has these invariants, which a property test checks:
//!
//! - a record below `w`, or below `next` and not retained, is needed by no trace, and
//! - an exported trace with a record that is read again, and one that is not, is in the handover.
//!
//! So the next owner reads each trace that it does not skip completely, and with `next` at the last record it evaluates
//! none again that was exported. The handover has a bounded size, since it is stored with the offsets. If it does not
//! fit, `next` is an earlier position; if it does not fit for any, nothing is committed.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use verdict_otlp::trace::{PriorVerdict, TraceId};

use super::handover::{self, ExportedTrace, Handover, OffsetRange};
use super::stream::{Offsets, PartitionStream, STREAMS};
use super::trace::{Exported, KafkaTrace};

/// Exported traces that are remembered per partition, so that their late spans are known as such after the
/// partition has moved. Those with records that are still retained are remembered in any case.
const MAX_REMEMBERED: usize = if cfg!(test) { 8 } else { 10_000 };
/// Memory of a trace, and of a retained record with its places in both maps. Measured and rounded up.
const TRACE_BYTES: usize = 400;
const RECORD_BYTES: usize = 100;

/// Whether the previous owner has exported a trace of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReplayStatus {
    /// The trace was not exported, or is unknown.
    New,
    /// The trace was exported with this record.
    Exported,
    /// The trace was exported without this record: the spans are late.
    Late(PriorVerdict),
}

/// Offsets with their metadata, as they are committed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Commit {
    pub offsets: Offsets,
    /// The encoded handover, stored with the offset of spans.
    pub metadata: String,
    /// Exported traces that the next owner evaluates again, since the handover has no space for them.
    pub reevaluated_traces: u64,
}

#[cfg(test)]
impl Commit {
    /// The record after those whose forwarded part was acknowledged, by stream; 0 without any.
    pub(crate) fn passed_up_to(&self) -> [i64; STREAMS] {
        let read = Handover::decode(&self.metadata, self.offsets).unwrap_or_default();
        read.passed.map(Option::unwrap_or_default)
    }
}

/// The state of one assignment of a partition.
#[derive(Default, Debug)]
pub(crate) struct Watermark {
    /// Whether spans are exported on arrival.
    forwards: bool,
    /// After the last record that was read here, ...
    position: Offsets,
    /// ... here or by the previous owner, ...
    next: Offsets,
    /// ... and by this process in an earlier assignment.
    seen: Offsets,
    /// Records that the previous owner retained and that were not read yet.
    unread: [VecDeque<OffsetRange>; STREAMS],
    /// The forwarded parts of records before this offset were acknowledged to the previous owner.
    passed: Offsets,
    /// Records that are needed, and for how many reasons, ...
    retain_counts: [BTreeMap<i64, u32>; STREAMS],
    /// ... and those of them that are not passed through.
    passing: [BTreeMap<i64, u32>; STREAMS],
    traces: HashMap<u64, KafkaTrace>,
    /// Exported traces, oldest first, each once.
    order: VecDeque<u64>,
    /// Exported traces with records that are read again.
    pinned: BTreeSet<u64>,
    /// By record: those of them that are pinned by it.
    pins: [BTreeMap<i64, Vec<u64>>; STREAMS],
    /// The last exported record of a trace that was forgotten.
    forgotten: Offsets,
    exporting: u64,
}

impl Watermark {
    /// The state that the previous owner committed. `seen`: what this process has read in an earlier assignment.
    pub(crate) fn resume(offsets: Offsets, metadata: &str, forwards: bool, seen: Offsets) -> Watermark {
        let empty = || Handover { next: offsets, passed: offsets, ..Handover::default() };
        let Handover { forwards: before, next, passed, retained_ranges, exported, late } =
            Handover::decode(metadata, offsets).unwrap_or_else(empty);
        // After a change of the mode, other parts of a record are forwarded.
        let passed = if before == forwards { passed } else { [None; STREAMS] };
        let unread = retained_ranges.map(VecDeque::from);
        // Of traces that have no room in the metadata, records up to there were exported.
        let forgotten =
            std::array::from_fn(|s| next[s].filter(|_| next[s] > offsets[s]).map(|next| next - 1));
        let position = offsets;
        let mut state =
            Watermark { forwards, position, next, seen, unread, passed, forgotten, ..Watermark::default() };
        let late = late.into_iter().rev().map(|entry| (entry, false));
        // Oldest first, as they were exported.
        for (entry, is_read_again) in late.chain(exported.into_iter().rev().map(|entry| (entry, true))) {
            let ExportedTrace { trace: id, verdict, last } = entry;
            let exported = Some(Exported { first: [Some(i64::MIN); STREAMS], last, beyond: last });
            let trace =
                KafkaTrace { exported, verdict: Some(verdict), inherited: true, ..KafkaTrace::default() };
            state.traces.insert(id, trace);
            state.remember(id);
            for s in (0..STREAMS).filter(|_| is_read_again) {
                let until = last[s].max(state.unread[s].back().map(|(_, end)| end - 1));
                if let Some(until) = until.filter(|until| Some(*until) >= offsets[s]) {
                    state.pin(s, until, id);
                }
            }
        }
        state
    }

    /// Whether the previous owner has read a record that no trace needs, so that it is not read again.
    pub(crate) fn skips(&self, stream: PartitionStream, offset: i64) -> bool {
        let s = stream as usize;
        let mut runs = self.unread[s].iter().take_while(|(start, _)| *start <= offset);
        Some(offset) < self.next[s] && !runs.any(|(_, end)| offset < *end)
    }

    /// Whether what is forwarded of a record was acknowledged to the previous owner.
    pub(crate) fn has_passed(&self, stream: PartitionStream, offset: i64) -> bool {
        Some(offset) < self.passed[stream as usize]
    }

    /// To be called first for each record. `false` if it is before those that were read: the topic was created again,
    /// or the log was truncated. What is known of its records is then forgotten.
    pub(crate) fn follows(&mut self, stream: PartitionStream, offset: i64) -> bool {
        let s = stream as usize;
        if Some(offset) >= self.position[s] {
            return true;
        }
        (self.position[s], self.next[s], self.passed[s], self.seen[s]) =
            (Some(offset), Some(offset), None, None);
        self.unread[s].clear();
        self.order.clear();
        self.pinned.clear();
        self.pins = Default::default();
        self.forgotten = [None; STREAMS];
        for trace in self.traces.values_mut() {
            (trace.exported, trace.inherited, trace.remembered, trace.pins) = (None, false, false, 0);
        }
        self.traces.retain(|_, trace| trace.exporting > 0 || trace.is_retained());
        false
    }

    /// Notes that a record was read: it is retained, or not needed.
    pub(crate) fn read(&mut self, stream: PartitionStream, offset: i64) {
        let s = stream as usize;
        let after = Some(offset.saturating_add(1));
        let before = std::mem::replace(&mut self.position[s], after).unwrap_or(i64::MIN).min(offset);
        self.next[s] = self.next[s].max(after);
        let unread = &mut self.unread[s];
        while let Some(run) = unread.front_mut().filter(|run| run.0 <= offset) {
            run.0 = offset + 1;
            if run.0 >= run.1 {
                unread.pop_front();
            }
        }
        let read = self.pins[s].range(before..=offset).map(|(at, _)| *at);
        let done: Vec<i64> = read.filter(|at| !self.retain_counts[s].contains_key(at)).collect();
        done.into_iter().for_each(|at| self.unpin(s, at));
    }

    /// Whether a trace of a record is to be evaluated. To be called before [`Watermark::retain`].
    pub(crate) fn replay(&mut self, stream: PartitionStream, offset: i64, trace: TraceId) -> ReplayStatus {
        let (s, id) = (stream as usize, handover::hash(trace));
        let Some(trace) = self.traces.get(&id).filter(|trace| trace.inherited) else {
            return ReplayStatus::New;
        };
        if trace.exported.as_ref().is_some_and(|exported| exported.last[s] >= Some(offset)) {
            self.pin(s, offset, id);
            return ReplayStatus::Exported;
        }
        trace.verdict.map_or(ReplayStatus::New, ReplayStatus::Late)
    }

    /// Retains a record for a trace, or until it is passed through.
    pub(crate) fn retain(&mut self, stream: PartitionStream, offset: i64, trace: Option<TraceId>) {
        let s = stream as usize;
        if let Some(id) = trace.map(handover::hash) {
            if !self.traces.entry(id).or_default().retained_offsets[s].insert(offset) {
                return;
            }
            self.release_if_unused(id);
        } else {
            *self.passing[s].entry(offset).or_default() += 1;
        }
        *self.retain_counts[s].entry(offset).or_default() += 1;
    }

    /// Releases a record for one of the reasons for which it is retained. `false` if it was not retained for it.
    /// `exported`: the trace was, with this record.
    pub(crate) fn release(
        &mut self,
        stream: PartitionStream,
        offset: i64,
        trace: Option<TraceId>,
        exported: bool,
    ) -> bool {
        let s = stream as usize;
        let Some(id) = trace.map(handover::hash) else {
            return take_one(&mut self.passing[s], offset) && {
                self.unhold(s, offset);
                true
            };
        };
        let Some(trace) = self.traces.get_mut(&id) else { return false };
        if !trace.retained_offsets[s].remove(&offset) {
            return false;
        }
        let exported = exported || trace.exported.is_some();
        if exported {
            trace.export(s, offset);
        }
        if exported || trace.closed {
            self.remember(id);
        }
        self.unhold(s, offset);
        if exported && self.retain_counts[s].contains_key(&offset) {
            self.pin(s, offset, id);
        }
        self.release_if_unused(id);
        true
    }

    /// Notes that a trace closed.
    pub(crate) fn close(&mut self, trace: TraceId) {
        if let Some(trace) = self.traces.get_mut(&handover::hash(trace)) {
            trace.closed = true;
        }
    }

    /// Whether a trace that closed before is that of a record, which is therefore late. Else the record was read in an
    /// earlier assignment, and the trace is assembled again.
    pub(crate) fn is_late(&self, stream: PartitionStream, offset: i64, trace: TraceId) -> bool {
        let trace = self.traces.get(&handover::hash(trace));
        // Until both streams are beyond what was read, other records of the trace may be read again.
        let is_beyond = Some(offset) >= self.seen[stream as usize]
            && (0..STREAMS).all(|s| s == stream as usize || self.position[s] >= self.seen[s]);
        is_beyond || trace.is_some_and(|trace| trace.closed || trace.inherited)
    }

    /// Notes the verdict of a trace, whose export begins.
    pub(crate) fn evaluated(&mut self, trace: TraceId, verdict: PriorVerdict) {
        let id = handover::hash(trace);
        let trace = self.traces.entry(id).or_default();
        trace.verdict = Some(verdict);
        trace.exporting += 1;
        self.exporting += 1;
        // Its first verdict was forgotten here.
        if verdict.revision > 1 && trace.exported.is_none() {
            trace.exported = Some(Exported { first: [Some(i64::MIN); STREAMS], ..Exported::default() });
            self.remember(id);
            self.release_if_unused(id);
        }
    }

    /// Notes that every required exporter has acknowledged a verdict of a trace.
    pub(crate) fn acknowledged(&mut self, trace: TraceId) {
        let id = handover::hash(trace);
        if let Some(trace) = self.traces.get_mut(&id).filter(|trace| trace.exporting > 0) {
            trace.exporting -= 1;
            self.exporting -= 1;
            self.release_if_unused(id);
        }
    }

    /// Verdicts whose export is not acknowledged.
    pub(crate) fn exporting(&self) -> u64 {
        self.exporting
    }

    /// After the last record that was read, by stream.
    pub(crate) fn position(&self) -> Offsets {
        self.position
    }

    /// Records that were read here and are not below the watermark.
    pub(crate) fn uncommitted(&self) -> u64 {
        let low = self.low();
        let distance = |s: usize| u64::try_from(self.position[s]? - low[s]?).ok();
        (0..STREAMS).filter_map(distance).sum()
    }

    /// The memory of the watermark, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.traces.len() * TRACE_BYTES
            + self.retain_counts.iter().map(BTreeMap::len).sum::<usize>() * RECORD_BYTES
    }

    fn low(&self) -> Offsets {
        std::array::from_fn(|s| {
            let unread = self.unread[s].front().map(|(start, _)| *start);
            let low = self.retain_counts[s].keys().next().copied().or(unread);
            low.map_or(self.next[s], |low| self.next[s].map(|next| low.min(next)))
        })
    }

    /// The state to commit, with metadata of at most `budget` bytes; `None` if there is none.
    pub(crate) fn commit(&self, budget: usize) -> Option<Commit> {
        let offsets = self.low();
        let runs: [Vec<OffsetRange>; STREAMS] = std::array::from_fn(|s| self.runs(s, budget));
        // From all runs to none: how many sixteenths are left out.
        [0, 1, 2, 4, 8, 12, 16].into_iter().find_map(|left_out| {
            let (mut retained_ranges, mut next, mut is_cut) = (runs.clone(), self.next, false);
            for s in 0..STREAMS {
                let listed =
                    (retained_ranges[s].len() - retained_ranges[s].len() * left_out / 16).min(budget);
                if let Some((start, _)) = retained_ranges[s].get(listed) {
                    (next[s], is_cut) = (Some(*start), true);
                    // Records of a trace that was forgotten are not read again.
                    if Some(*start) <= self.forgotten[s] {
                        return None;
                    }
                }
                retained_ranges[s].truncate(listed);
            }
            self.commit_up_to(
                Handover { next, retained_ranges, ..Handover::default() },
                is_cut,
                offsets,
                budget,
            )
        })
    }

    /// `is_cut`: records from `next` on were exported, and are read again.
    fn commit_up_to(
        &self,
        mut handover: Handover,
        is_cut: bool,
        offsets: Offsets,
        budget: usize,
    ) -> Option<Commit> {
        let next = handover.next;
        handover.forwards = self.forwards;
        handover.passed = std::array::from_fn(|s| {
            self.passing[s].keys().next().copied().or(self.passed[s].max(self.position[s]))
        });
        let mut mandatory = self.pinned.clone();
        if is_cut {
            mandatory.extend(self.traces.iter().filter(|(_, trace)| trace.crosses(next)).map(|(id, _)| *id));
        }
        let entry = |id: &u64| Some((self.traces.get(id)?.entry(*id)?, self.traces.get(id)?.reaches(next)));
        handover.exported.extend(mandatory.iter().filter_map(entry).map(|(entry, _)| entry));
        let metadata = handover.encode(offsets, budget)?;
        let newest = self.order.iter().rev().filter(|id| !mandatory.contains(id)).filter_map(entry);
        // Without a cut no record of another trace is read again, and what does not fit is not counted.
        let max_entries = if is_cut { usize::MAX } else { budget };
        let reevaluated_traces = handover.fill(
            &metadata,
            budget,
            newest.map(|(e, reaches)| (e, is_cut && reaches)).take(max_entries),
        );
        let metadata = handover.encode(offsets, budget).unwrap_or(metadata);
        Some(Commit { offsets, metadata, reevaluated_traces })
    }

    /// The runs of retained records, at most one more than `max_runs`.
    fn runs(&self, s: usize, max_runs: usize) -> Vec<OffsetRange> {
        let mut runs: Vec<OffsetRange> = Vec::new();
        let ranges = self.retain_counts[s].keys().map(|offset| (*offset, offset + 1));
        let before = ranges.take_while(|(_, end)| Some(*end) <= self.next[s]);
        for (start, end) in before.chain(self.unread[s].iter().copied()) {
            count_examined();
            let is_full = runs.len() > max_runs;
            match runs.last_mut() {
                Some(last) if last.1 == start => last.1 = end,
                _ if is_full => break,
                _ => runs.push((start, end)),
            }
        }
        runs
    }

    fn unhold(&mut self, s: usize, offset: i64) {
        take_one(&mut self.retain_counts[s], offset);
        if !self.retain_counts[s].contains_key(&offset) {
            self.unpin(s, offset);
        }
    }

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

    /// Remembers an exported trace, and forgets the oldest one.
    fn remember(&mut self, id: u64) {
        let Some(trace) = self.traces.get_mut(&id) else { return };
        if !std::mem::replace(&mut trace.remembered, true) {
            self.order.push_back(id);
        }
        while self.order.len() > MAX_REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            if let Some(trace) = self.traces.get_mut(&oldest) {
                trace.remembered = false;
            }
            self.release_if_unused(oldest);
        }
    }

    /// Updates `pinned`, and removes the trace if nothing needs its state.
    fn release_if_unused(&mut self, id: u64) {
        let Some(trace) = self.traces.get(&id) else { return };
        let is_needed = trace.pins > 0 || trace.is_retained();
        if is_needed && trace.exported.is_some() {
            self.pinned.insert(id);
        } else {
            self.pinned.remove(&id);
        }
        if is_needed || trace.exporting > 0 || trace.remembered {
            return;
        }
        if let Some(exported) = &trace.exported {
            for (forgotten, beyond) in self.forgotten.iter_mut().zip(exported.beyond) {
                *forgotten = (*forgotten).max(beyond);
            }
        }
        self.traces.remove(&id);
    }
}

/// Counts one less. `false` if there was none.
fn take_one(counts: &mut BTreeMap<i64, u32>, offset: i64) -> bool {
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
