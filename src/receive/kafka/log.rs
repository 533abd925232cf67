//! The records of all partitions that this process owns, for the pipeline.
//!
//! In: assignments, records, and the pipeline's retain and release of records. Out: offsets to commit. In the pipeline
//! a record is a [`Seq`], like one of the journal, which contains the assignment and the offset:
//!
//! | bits | content |
//! |---|---|
//! | 63 | 1: a record of Kafka |
//! | 39-62 | the assignment, from 1 |
//! | 38 | the stream: spans or logs |
//! | 0-37 | the offset, relative to the first one that was read |
//!
//! An assignment is one partition from its assignment to its revocation. A partition that is assigned again has
//! another number, so that releases for the previous assignment have no effect. Assignment 0 is used for verdicts and
//! for requests of other receivers.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockWriteGuard};

use tokio_util::sync::CancellationToken;
use verdict_journal::{RetainReason, Seq};
use verdict_otlp::trace::{PriorVerdict, TraceId};

use super::stream::{Offsets, PartitionStream, STREAMS};
use super::trace::ReplayStatus;
use super::watermark::{Commit, Watermark};

const KAFKA_FLAG: Seq = 1 << 63;
const OFFSET_BITS: u32 = 38;
const ASSIGNMENT_BITS: u32 = 24;
/// The assignment of a verdict, and of a request that did not come from Kafka.
pub(crate) const NO_RECORD: Seq = KAFKA_FLAG;

/// Number of an assignment.
pub(crate) type AssignmentId = u32;

/// Whether a record came from Kafka, or is a verdict.
pub(crate) fn is_kafka(seq: Seq) -> bool {
    seq & KAFKA_FLAG != 0
}

/// The assignment of a record; `None` for a record of the journal, a verdict, and a request of another receiver.
pub(crate) fn assignment_of(seq: Seq) -> Option<AssignmentId> {
    let id = (seq & !KAFKA_FLAG) >> (OFFSET_BITS + 1);
    if is_kafka(seq) && id != 0 { AssignmentId::try_from(id).ok() } else { None }
}

/// One partition, from its assignment to its revocation.
#[derive(Debug)]
pub(crate) struct Assignment {
    pub(crate) id: AssignmentId,
    partition: i32,
    /// Cancelled when the partition is revoked: answers of judges are then no longer awaited.
    pub(crate) revoked: CancellationToken,
    /// Whether no export begins any more. Exports in flight are still acknowledged.
    has_lapsed: AtomicBool,
    /// The first offset that was read, by stream. Offsets in a [`Seq`] are relative to it.
    first_offsets: [OnceLock<i64>; STREAMS],
    state: Mutex<Watermark>,
}

impl Assignment {
    /// The record number of an offset.
    pub(crate) fn record(&self, stream: PartitionStream, offset: i64) -> Seq {
        let first_offset = self.first_offsets[stream as usize].get_or_init(|| offset);
        let relative = offset.wrapping_sub(*first_offset) as u64 & ((1 << OFFSET_BITS) - 1);
        KAFKA_FLAG | u64::from(self.id) << (OFFSET_BITS + 1) | (stream as u64) << OFFSET_BITS | relative
    }

    /// From now on no export of its traces begins. Acknowledgements count until the assignment ends.
    pub(crate) fn lapse(&self) {
        self.has_lapsed.store(true, Ordering::Release);
    }

    /// Like [`Watermark::note_read`].
    pub(crate) fn note_read(&self, stream: PartitionStream, offset: i64) {
        self.state().note_read(stream, offset);
    }

    /// Like [`Watermark::begin_record`].
    pub(crate) fn begin_record(&self, stream: PartitionStream, offset: i64) -> bool {
        self.state().begin_record(stream, offset)
    }

    /// Like [`Watermark::skips`].
    pub(crate) fn skips(&self, stream: PartitionStream, offset: i64) -> bool {
        self.state().skips(stream, offset)
    }

    /// The offset after the last record that was read, by stream.
    pub(crate) fn position(&self) -> Offsets {
        self.state().position()
    }

    /// The memory of the state of the assignment, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.state().bytes()
    }

    /// The stream and offset of a record number.
    fn stream_and_offset(&self, seq: Seq) -> (PartitionStream, i64) {
        let stream = if seq >> OFFSET_BITS & 1 == 0 { PartitionStream::Spans } else { PartitionStream::Logs };
        let first_offset = self.first_offsets[stream as usize].get().copied().unwrap_or_default();
        // The relative offset is signed: offsets before the first one occur if the broker resets the position.
        let shift = 64 - OFFSET_BITS;
        (stream, first_offset.wrapping_add((seq << shift) as i64 >> shift))
    }

    /// The state to commit, with metadata of at most `budget` bytes.
    pub(crate) fn commit(&self, budget: usize) -> Option<Commit> {
        self.state().commit(budget)
    }

    /// The number of verdicts whose export is not acknowledged.
    pub(crate) fn unacknowledged_verdicts(&self) -> u64 {
        self.state().unacknowledged_verdicts()
    }

    /// The number of records that were read and are not below the watermark.
    pub(crate) fn uncommitted(&self) -> u64 {
        self.state().uncommitted()
    }

    fn state(&self) -> MutexGuard<'_, Watermark> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All assignments of this process.
#[derive(Default, Debug)]
pub(crate) struct KafkaLog {
    /// Whether spans are exported on arrival.
    forwards: bool,
    assignments: RwLock<Assignments>,
}

#[derive(Default, Debug)]
struct Assignments {
    current: HashMap<AssignmentId, Arc<Assignment>>,
    last: AssignmentId,
    /// For each partition, the offset after the last record that was read in earlier assignments.
    earlier_positions: HashMap<i32, Offsets>,
}

impl KafkaLog {
    pub(crate) fn new(forwards: bool) -> KafkaLog {
        KafkaLog { forwards, ..KafkaLog::default() }
    }

    fn assignments(&self) -> RwLockWriteGuard<'_, Assignments> {
        self.assignments.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new assignment of a partition, with the state that the previous owner committed.
    pub(crate) fn assign(&self, partition: i32, offsets: Offsets, metadata: &str) -> Arc<Assignment> {
        let assignments = &mut *self.assignments();
        // Numbers repeat after 16 million assignments.
        loop {
            assignments.last = (assignments.last + 1) & ((1 << ASSIGNMENT_BITS) - 1);
            if assignments.last != 0 && !assignments.current.contains_key(&assignments.last) {
                break;
            }
        }
        let earlier_position = assignments.earlier_positions.get(&partition).copied().unwrap_or_default();
        let assignment = Arc::new(Assignment {
            id: assignments.last,
            partition,
            revoked: CancellationToken::new(),
            has_lapsed: AtomicBool::new(false),
            first_offsets: Default::default(),
            state: Mutex::new(Watermark::resume(offsets, metadata, self.forwards, earlier_position)),
        });
        assignments.current.insert(assignments.last, Arc::clone(&assignment));
        assignment
    }

    /// Ends an assignment: from now on, calls for its records have no effect.
    pub(crate) fn end(&self, id: AssignmentId) {
        let assignments = &mut *self.assignments();
        if let Some(ended) = assignments.current.remove(&id) {
            let position = assignments.earlier_positions.entry(ended.partition).or_default();
            *position = std::array::from_fn(|s| position[s].max(ended.position()[s]));
            ended.revoked.cancel();
        }
    }

    /// Ends all assignments.
    pub(crate) fn end_all(&self) {
        let ids: Vec<AssignmentId> = self.assignments().current.keys().copied().collect();
        ids.into_iter().for_each(|id| self.end(id));
    }

    fn assignment(&self, seq: Seq) -> Option<Arc<Assignment>> {
        let id = assignment_of(seq)?;
        self.assignments.read().unwrap_or_else(PoisonError::into_inner).current.get(&id).cloned()
    }

    /// Retains a record for these reasons. `false` if its assignment has ended.
    pub(crate) fn retain(&self, seq: Seq, reasons: &[RetainReason]) -> bool {
        let Some(assignment) = self.assignment(seq) else { return false };
        let (stream, offset) = assignment.stream_and_offset(seq);
        let mut state = assignment.state();
        for reason in reasons {
            match reason {
                RetainReason::Trace(trace) => state.retain(stream, offset, Some(*trace)),
                RetainReason::Forwarded => state.retain(stream, offset, None),
                RetainReason::Verdict => {}
            }
        }
        true
    }

    /// Releases records. If a verdict is among them, the others are the records of its trace, whose export every
    /// required exporter has acknowledged.
    pub(crate) fn release(&self, releases: &[(Seq, RetainReason)]) {
        let exported = releases.iter().any(|(_, reason)| *reason == RetainReason::Verdict);
        let mut acknowledged: BTreeMap<AssignmentId, TraceId> = BTreeMap::new();
        // The records of a trace are usually of one assignment, which is locked once.
        for assignment_releases in releases.chunk_by(|(a, _), (b, _)| assignment_of(*a) == assignment_of(*b))
        {
            let Some(assignment) = assignment_releases.first().and_then(|(seq, _)| self.assignment(*seq))
            else {
                continue;
            };
            let mut state = assignment.state();
            for (seq, reason) in assignment_releases {
                let (stream, offset) = assignment.stream_and_offset(*seq);
                match reason {
                    RetainReason::Trace(trace) => {
                        state.release(stream, offset, Some(*trace), exported);
                        if exported && acknowledged.insert(assignment.id, *trace).is_none() {
                            state.note_acknowledged(*trace);
                        }
                    }
                    RetainReason::Forwarded => drop(state.release(stream, offset, None, false)),
                    RetainReason::Verdict => {}
                }
            }
        }
    }

    /// Like [`Watermark::was_forwarded`].
    pub(crate) fn was_forwarded(&self, seq: Seq) -> bool {
        self.assignment(seq).is_some_and(|assignment| {
            let (stream, offset) = assignment.stream_and_offset(seq);
            assignment.state().was_forwarded(stream, offset)
        })
    }

    /// Whether a trace of a record has to be evaluated.
    pub(crate) fn replay_status(&self, seq: Seq, trace: TraceId) -> ReplayStatus {
        let Some(assignment) = self.assignment(seq) else { return ReplayStatus::New };
        let (stream, offset) = assignment.stream_and_offset(seq);
        assignment.state().replay_status(stream, offset, trace)
    }

    /// Records that a trace of these records closed.
    pub(crate) fn note_closed(&self, trace: TraceId, records: &[Seq]) {
        self.for_each_assignment(records, |state| state.note_closed(trace));
    }

    /// Records the verdict of a trace of these records, whose export begins.
    pub(crate) fn note_evaluated(&self, trace: TraceId, records: &[Seq], verdict: PriorVerdict) {
        self.for_each_assignment(records, |state| state.note_evaluated(trace, verdict));
    }

    /// Like [`Watermark::is_late`].
    pub(crate) fn is_late(&self, seq: Seq, trace: TraceId) -> bool {
        self.assignment(seq).is_none_or(|assignment| {
            let (stream, offset) = assignment.stream_and_offset(seq);
            assignment.state().is_late(stream, offset, trace)
        })
    }

    /// Whether all of these records belong to assignments that have lapsed or ended; `false` without records.
    pub(crate) fn has_lapsed(&self, records: &[Seq]) -> bool {
        let has_lapsed = |assignment: Arc<Assignment>| assignment.has_lapsed.load(Ordering::Acquire);
        let is_of_lapsed =
            |seq: &Seq| assignment_of(*seq).is_some() && self.assignment(*seq).is_none_or(has_lapsed);
        !records.is_empty() && records.iter().all(is_of_lapsed)
    }

    /// A token that is cancelled when the partition of these records is revoked; `None` if the records do not belong to
    /// one assignment.
    pub(crate) fn revocation_token(&self, records: &[Seq]) -> Option<CancellationToken> {
        let first = *records.first()?;
        let id = assignment_of(first)?;
        let is_one_assignment = records.iter().all(|seq| assignment_of(*seq) == Some(id));
        let ended = || {
            let token = CancellationToken::new();
            token.cancel();
            token
        };
        is_one_assignment
            .then(|| self.assignment(first).map_or_else(ended, |assignment| assignment.revoked.clone()))
    }

    /// Calls `apply` once for each assignment of the records.
    fn for_each_assignment(&self, records: &[Seq], mut apply: impl FnMut(&mut Watermark)) {
        let mut applied: Vec<AssignmentId> = Vec::new();
        for seq in records {
            let Some(id) = assignment_of(*seq).filter(|id| !applied.contains(id)) else { continue };
            applied.push(id);
            if let Some(assignment) = self.assignment(*seq) {
                apply(&mut assignment.state());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: TraceId = TraceId([3; 16]);

    #[test]
    fn records_carry_their_assignment_stream_and_offset() {
        let log = KafkaLog::default();
        for (first, offsets) in [(0, [0, 1, 5]), (1 << 50, [1 << 50, (1 << 50) + (1 << 36), (1 << 50) - 7])] {
            let assignment = log.assign(0, [None; 2], "");
            for stream in [PartitionStream::Spans, PartitionStream::Logs] {
                assignment.record(stream, first);
                for offset in offsets {
                    let seq = assignment.record(stream, offset);
                    assert!(is_kafka(seq));
                    assert_eq!(assignment_of(seq), Some(assignment.id));
                    assert_eq!(assignment.stream_and_offset(seq), (stream, offset));
                }
            }
        }
        assert!(is_kafka(NO_RECORD) && !is_kafka(17));
        assert_eq!((assignment_of(NO_RECORD + 5), assignment_of(17)), (None, None));
    }

    #[test]
    fn releases_for_an_ended_assignment_have_no_effect() {
        let log = KafkaLog::default();
        let before = log.assign(0, [Some(4), None], "");
        let old = before.record(PartitionStream::Spans, 4);
        before.note_read(PartitionStream::Spans, 4);
        let (reasons, verdict) = ([RetainReason::Trace(TRACE)], PriorVerdict { passed: None, revision: 1 });
        assert!(log.retain(old, &reasons));
        assert!(!log.has_lapsed(&[old]) && !log.revocation_token(&[old]).unwrap().is_cancelled());
        log.end(before.id);
        // The partition comes back at once, with the same record.
        let after = log.assign(0, [Some(4), None], "");
        let new = after.record(PartitionStream::Spans, 4);
        after.note_read(PartitionStream::Spans, 4);
        assert!(log.retain(new, &reasons) && !log.retain(old, &reasons));
        assert!(log.has_lapsed(&[old]) && log.revocation_token(&[old]).unwrap().is_cancelled());
        assert!(!log.has_lapsed(&[old, new]) && !log.has_lapsed(&[new]) && !log.has_lapsed(&[]));
        assert!(
            !log.has_lapsed(&[NO_RECORD]) && !log.has_lapsed(&[old, NO_RECORD]) && !log.has_lapsed(&[17])
        );
        assert!(log.revocation_token(&[old, new]).is_none() && log.revocation_token(&[17]).is_none());
        log.note_evaluated(TRACE, &[old], verdict);
        log.release(&[(old, RetainReason::Trace(TRACE)), (NO_RECORD, RetainReason::Verdict)]);
        assert_eq!(
            (after.unacknowledged_verdicts(), after.commit(100).unwrap().offsets),
            (0, [Some(4), None])
        );
        log.note_evaluated(TRACE, &[new, new], verdict);
        assert_eq!(after.unacknowledged_verdicts(), 1);
        log.release(&[(new, RetainReason::Trace(TRACE)), (NO_RECORD, RetainReason::Verdict)]);
        assert_eq!(
            (after.unacknowledged_verdicts(), after.commit(100).unwrap().offsets),
            (0, [Some(5), None])
        );
    }

    #[test]
    fn acknowledgements_count_after_an_assignment_has_lapsed_until_it_ends() {
        let log = KafkaLog::default();
        let assignment = log.assign(0, [None; 2], "");
        let records = [4, 5].map(|offset| {
            let record = assignment.record(PartitionStream::Spans, offset);
            assignment.note_read(PartitionStream::Spans, offset);
            let trace = TraceId([offset as u8; 16]);
            assert!(log.retain(record, &[RetainReason::Trace(trace)]));
            log.note_evaluated(trace, &[record], PriorVerdict { passed: None, revision: 1 });
            (record, trace)
        });
        let acknowledge = |(record, trace)| {
            log.release(&[(record, RetainReason::Trace(trace)), (NO_RECORD, RetainReason::Verdict)]);
        };
        assignment.lapse();
        assert!(log.has_lapsed(&[records[0].0]) && !log.has_lapsed(&[records[0].0, NO_RECORD]));
        acknowledge(records[0]);
        assert_eq!(
            (assignment.unacknowledged_verdicts(), assignment.commit(100).unwrap().offsets[0]),
            (1, Some(5))
        );
        log.end(assignment.id);
        acknowledge(records[1]);
        assert_eq!(
            (assignment.unacknowledged_verdicts(), assignment.commit(100).unwrap().offsets[0]),
            (1, Some(5))
        );
    }

    #[test]
    fn a_record_is_retained_until_each_of_its_parts_is_released() {
        let log = KafkaLog::default();
        let assignment = log.assign(0, [None; 2], "");
        let seq = assignment.record(PartitionStream::Logs, 7);
        assignment.note_read(PartitionStream::Logs, 7);
        log.retain(seq, &[RetainReason::Forwarded]);
        log.retain(seq, &[RetainReason::Forwarded, RetainReason::Trace(TRACE)]);
        let position = || assignment.commit(100).unwrap().offsets[1];
        for reason in [RetainReason::Forwarded, RetainReason::Trace(TRACE), RetainReason::Forwarded] {
            assert_eq!((position(), assignment.uncommitted()), (Some(7), 1));
            log.release(&[(seq, reason)]);
        }
        assert_eq!((position(), assignment.uncommitted()), (Some(8), 0));
    }
}
