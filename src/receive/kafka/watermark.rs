//! The records of one assigned partition that are still needed, and the offset that may be committed.
//!
//! In: records with the traces that they contain, verdicts, and releases by trace. Out: per stream (spans,
//! logs) the offset from which the next owner of the partition has to read, and the traces that it must not
//! evaluate again.
//!
//! The watermark of a stream is the lowest offset of a record that contains spans or logs of an open trace, or
//! of one whose export is not acknowledged; without any, the position after the last record. A committed state
//! (the offsets `w` and a set of exported traces) holds the invariant, which a property test checks:
//!
//! - a record below `w` is needed by no trace, and
//! - a trace with records on both sides of `w` is in the set, with the last record of it that was exported.
//!
//! So the next owner reads each trace that it does not skip completely. The set has a bounded size, since it is
//! stored with the offsets. If the traces across `w` do not fit, an earlier `w` is chosen that fewer traces
//! cross; if there is none, nothing is committed, and the next owner reads more.

use std::collections::{BTreeMap, HashMap, VecDeque};

use verdict_otlp::trace::{PriorVerdict, TraceId};

use super::exported_set::{self, Entry};
use super::stream::{Offsets, STREAMS, Stream};

/// Exported traces that are remembered per partition, so that their late spans are known as such after the
/// partition has moved. Those across the watermark are kept in any case.
const MAX_REMEMBERED: usize = 10_000;

/// Earlier watermarks that are tried if the exported set is too large.
const CANDIDATES: usize = 16;

/// Whether the previous owner has exported a trace of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Replay {
    /// It has not, or this was reported before.
    New,
    /// It has, with this record.
    Exported,
    /// It has, without this record: the spans are late.
    Late(PriorVerdict),
}

/// What is committed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Commit {
    pub offsets: Offsets,
    /// The encoded set, stored with the offset of spans.
    pub exported: String,
}

#[derive(Default, Debug)]
struct Exported {
    /// The first and the last exported record. No record between is held.
    first: Offsets,
    last: Offsets,
    /// An exported record after one that is held.
    beyond: Offsets,
}

#[derive(Default, Debug)]
struct Trace {
    /// Records that are not released, in order.
    held: [Vec<i64>; STREAMS],
    exported: Option<Exported>,
    /// The latest verdict, from its evaluation on.
    verdict: Option<PriorVerdict>,
    /// Verdicts whose export is not acknowledged.
    exporting: u32,
    /// It closed in this assignment.
    closed: bool,
    /// Exported by a previous owner; `Some(true)` when the pipeline knows that.
    inherited: Option<bool>,
}

/// The state of one assignment of a partition.
#[derive(Default, Debug)]
pub(crate) struct Watermark {
    /// After the last record.
    next: Offsets,
    /// Records that are needed, and for how many reasons.
    held: [BTreeMap<i64, u32>; STREAMS],
    traces: HashMap<u64, Trace>,
    /// Exported traces, oldest first; one may be there several times.
    order: VecDeque<u64>,
    exporting: u64,
}

impl Watermark {
    /// The state that the previous owner committed.
    pub(crate) fn resume(offsets: Offsets, exported: &str) -> Watermark {
        let mut state = Watermark { next: offsets, ..Watermark::default() };
        for entry in exported_set::decode(exported, offsets).unwrap_or_default() {
            let exported = Exported { first: [Some(i64::MIN); STREAMS], last: entry.last, beyond: [None; 2] };
            let trace = Trace {
                exported: Some(exported),
                verdict: Some(entry.verdict),
                inherited: Some(false),
                ..Trace::default()
            };
            state.traces.insert(entry.trace, trace);
            state.order.push_back(entry.trace);
        }
        state
    }

    /// Notes that a record was read.
    pub(crate) fn read(&mut self, stream: Stream, offset: i64) {
        let next = &mut self.next[stream as usize];
        *next = (*next).max(Some(offset.saturating_add(1)));
    }

    /// Whether a trace of a record is to be evaluated. To be called before [`Watermark::hold`].
    pub(crate) fn replay(&mut self, stream: Stream, offset: i64, trace: TraceId) -> Replay {
        let Some(trace) = self.traces.get_mut(&exported_set::hash(trace)) else { return Replay::New };
        let (Some(known), Some(exported)) = (&mut trace.inherited, &trace.exported) else {
            return Replay::New;
        };
        if exported.last[stream as usize].is_some_and(|last| offset <= last) {
            return Replay::Exported;
        }
        match (std::mem::replace(known, true), trace.verdict) {
            (false, Some(verdict)) => Replay::Late(verdict),
            _ => Replay::New,
        }
    }

    /// Holds a record for a trace, or until it is passed through.
    pub(crate) fn hold(&mut self, stream: Stream, offset: i64, trace: Option<TraceId>) {
        let stream = stream as usize;
        if let Some(trace) = trace {
            let held = &mut self.traces.entry(exported_set::hash(trace)).or_default().held[stream];
            match held.binary_search(&offset) {
                Ok(_) => return,
                Err(at) => held.insert(at, offset),
            }
        }
        *self.held[stream].entry(offset).or_default() += 1;
    }

    /// Releases a record for one of the reasons for which it is held. `false` if it was not held for it.
    pub(crate) fn release(&mut self, stream: Stream, offset: i64, trace: Option<TraceId>) -> bool {
        let stream = stream as usize;
        if let Some(id) = trace.map(exported_set::hash) {
            let Some(trace) = self.traces.get_mut(&id) else { return false };
            let Ok(at) = trace.held[stream].binary_search(&offset) else { return false };
            trace.held[stream].remove(at);
            if trace.verdict.is_some() {
                if trace.exported.is_none() {
                    self.order.push_back(id);
                }
                let exported = trace.exported.get_or_insert_default();
                let first = &mut exported.first[stream];
                *first = Some(first.map_or(offset, |first| first.min(offset)));
                exported.beyond[stream] = exported.beyond[stream].max(Some(offset));
                if trace.held[stream].first().is_none_or(|held| Some(*held) > exported.beyond[stream]) {
                    exported.last[stream] = exported.last[stream].max(exported.beyond[stream]);
                }
            } else if trace.held.iter().all(Vec::is_empty) && !trace.closed {
                self.traces.remove(&id);
            }
        }
        let Some(reasons) = self.held[stream].get_mut(&offset) else { return false };
        *reasons -= 1;
        if *reasons == 0 {
            self.held[stream].remove(&offset);
        }
        true
    }

    /// Notes that a trace closed.
    pub(crate) fn close(&mut self, trace: TraceId) {
        if let Some(trace) = self.traces.get_mut(&exported_set::hash(trace)) {
            trace.closed = true;
        }
    }

    /// Whether a trace closed in this assignment, or was exported by the previous owner.
    pub(crate) fn has_closed(&self, trace: TraceId) -> bool {
        let trace = self.traces.get(&exported_set::hash(trace));
        trace.is_some_and(|trace| trace.closed || trace.inherited.is_some())
    }

    /// Notes the verdict of a trace, whose export begins.
    pub(crate) fn evaluated(&mut self, trace: TraceId, verdict: PriorVerdict) {
        let trace = self.traces.entry(exported_set::hash(trace)).or_default();
        trace.verdict = Some(verdict);
        trace.exporting += 1;
        self.exporting += 1;
    }

    /// Notes that every required exporter has acknowledged a verdict of a trace.
    pub(crate) fn acknowledged(&mut self, trace: TraceId) {
        if let Some(trace) = self.traces.get_mut(&exported_set::hash(trace))
            && trace.exporting > 0
        {
            trace.exporting -= 1;
            self.exporting -= 1;
        }
    }

    /// Verdicts whose export is not acknowledged.
    pub(crate) fn exporting(&self) -> u64 {
        self.exporting
    }

    /// Records that were read and are not below the watermark.
    pub(crate) fn uncommitted(&self) -> u64 {
        let low = self.low();
        let of = |s: usize| u64::try_from(self.next[s]? - low[s]?).ok();
        (0..STREAMS).filter_map(of).sum()
    }

    fn low(&self) -> Offsets {
        std::array::from_fn(|s| self.held[s].keys().next().copied().or(self.next[s]))
    }

    /// The state to commit, with an encoded set of at most `budget` bytes; `None` if there is none.
    pub(crate) fn commit(&mut self, budget: usize) -> Option<Commit> {
        let low = self.low();
        self.forget(low);
        for offsets in self.candidates(low) {
            let mut entries: Vec<Entry> = Vec::new();
            let crossing = self.traces.iter().filter(|(_, trace)| trace.crosses(offsets));
            entries.extend(crossing.filter_map(|(id, trace)| trace.entry(*id)));
            let Some(encoded) = exported_set::encode(&entries, offsets, budget) else { continue };
            let others = self.order.iter().rev().filter_map(|id| Some((id, self.traces.get(id)?)));
            let others = others.filter(|(_, trace)| !trace.crosses(offsets));
            let room = exported_set::room(&encoded, budget);
            entries.extend(others.filter_map(|(id, trace)| trace.entry(*id)).take(room));
            let exported = exported_set::encode(&entries, offsets, budget).unwrap_or(encoded);
            return Some(Commit { offsets, exported });
        }
        None
    }

    /// The watermark, and earlier ones at the first records of traces that cross it.
    fn candidates(&self, low: Offsets) -> impl Iterator<Item = Offsets> {
        let [spans, logs] = [Stream::Spans as usize, Stream::Logs as usize];
        let crossing = self.traces.values().filter(|trace| trace.crosses(low));
        let mut firsts: Vec<i64> = crossing
            .filter_map(|trace| trace.exported.as_ref()?.first[spans])
            .filter(|first| *first > i64::MIN && Some(*first) < low[spans])
            .collect();
        firsts.sort_unstable_by(|a, b| b.cmp(a));
        let step = firsts.len().div_ceil(CANDIDATES).max(1);
        let lowest = firsts.last().copied();
        let earlier = firsts.into_iter().step_by(step).chain(lowest).map(move |first| {
            // Logs of the traces that are then read completely.
            let whole = self.traces.values().filter_map(|trace| trace.exported.as_ref());
            let whole = whole.filter(|e| e.first[spans].is_some_and(|own| own >= first));
            let of_logs = whole.filter_map(|e| e.first[logs]).min();
            let mut offsets = low;
            offsets[spans] = Some(first);
            offsets[logs] = low[logs].map(|low| of_logs.map_or(low, |first| low.min(first)));
            offsets
        });
        std::iter::once(low).chain(earlier)
    }

    /// Forgets the oldest exported traces, except those that a commit may need.
    fn forget(&mut self, low: Offsets) {
        for _ in 0..self.order.len().saturating_sub(MAX_REMEMBERED) {
            let Some(id) = self.order.pop_front() else { return };
            match self.traces.get(&id) {
                Some(trace) if trace.reaches(low) => self.order.push_back(id),
                _ => drop(self.traces.remove(&id)),
            }
        }
    }
}

impl Trace {
    /// Whether a record of it is not below `offsets`.
    fn reaches(&self, offsets: Offsets) -> bool {
        (0..STREAMS).any(|s| {
            let last = self.exported.as_ref().and_then(|e| e.beyond[s].max(e.last[s]));
            let last = last.max(self.held[s].last().copied());
            last.is_some() && last >= offsets[s]
        })
    }

    /// Whether it was exported, and has records on both sides of `offsets`.
    fn crosses(&self, offsets: Offsets) -> bool {
        let below = |e: &Exported| (0..STREAMS).any(|s| e.first[s].is_some() && e.first[s] < offsets[s]);
        self.exported.as_ref().is_some_and(below) && self.reaches(offsets)
    }

    fn entry(&self, id: u64) -> Option<Entry> {
        Some(Entry { trace: id, verdict: self.verdict?, last: self.exported.as_ref()?.last })
    }
}

#[cfg(test)]
mod tests;
