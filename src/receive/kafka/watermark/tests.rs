//! Owners of a partition that read, close, export, commit and end at any time, in any order.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::test_runner::Config;

use super::*;

/// Records of both streams: for each offset the traces in it.
type Topic = [Vec<Vec<u8>>; STREAMS];
/// A record: index of the stream, and offset.
type RecordPosition = (usize, i64);

/// The streams by their index.
const PARTITION_STREAMS: [PartitionStream; STREAMS] = [PartitionStream::Spans, PartitionStream::Logs];

fn id(trace: u8) -> TraceId {
    TraceId([trace; 16])
}

/// A verdict whose export is not acknowledged.
struct Export {
    trace: u8,
    records: Vec<RecordPosition>,
}

/// A model of a consumer and its pipeline.
struct Owner {
    state: Watermark,
    position: [i64; STREAMS],
    open: BTreeMap<u8, Vec<RecordPosition>>,
    /// Traces that closed here or were exported by a previous owner: further records are late.
    closed: BTreeSet<u8>,
    exports: Vec<Export>,
    /// Records whose forwarded part is not acknowledged.
    forwarding: Vec<RecordPosition>,
    /// The acknowledgements that reached the owner.
    acknowledged: Acknowledged,
}

/// Records that no later owner may export with a trace, or forward, again.
#[derive(Clone, Default)]
struct Acknowledged {
    exported: BTreeSet<(u8, RecordPosition)>,
    forwarded: BTreeSet<RecordPosition>,
}

/// The state of the broker and of the destination.
struct World {
    topic: Topic,
    committed: Commit,
    /// The position of the owner that committed `committed`.
    read: [i64; STREAMS],
    /// Traces that a commit did not contain, so that their next records open them again.
    forgotten: BTreeSet<u8>,
    /// By trace: the records with which it was exported.
    exported: BTreeMap<u8, BTreeSet<RecordPosition>>,
    /// Records whose forwarded part was exported.
    forwarded: BTreeSet<RecordPosition>,
    /// The acknowledgements that the last commit contains.
    acknowledged: Acknowledged,
}

impl Owner {
    fn assigned(world: &mut World) -> Owner {
        let forgotten = (0..12).filter(|trace| world.may_forget(*trace)).collect::<Vec<u8>>();
        world.forgotten.extend(forgotten);
        let state = world.resume();
        let position = world.committed.offsets.map(|offset| offset.unwrap_or(0));
        Owner {
            state,
            position,
            open: BTreeMap::new(),
            closed: BTreeSet::new(),
            exports: Vec::new(),
            forwarding: Vec::new(),
            acknowledged: world.acknowledged.clone(),
        }
    }

    fn read(&mut self, world: &World, stream: usize) {
        let offset = self.position[stream];
        let Some(traces) = world.topic[stream].get(offset as usize) else { return };
        let (partition_stream, record) = (PARTITION_STREAMS[stream], (stream, offset));
        self.position[stream] += 1;
        assert!(self.state.begin_record(partition_stream, offset));
        let is_exported =
            |trace: &u8| world.exported.get(trace).is_some_and(|exported| exported.contains(&record));
        if self.state.skips(partition_stream, offset) {
            assert!(traces.iter().all(is_exported), "a record was skipped that nobody exported");
            assert!(world.forwarded.contains(&record), "a record was skipped that nobody forwarded");
            return self.state.note_read(partition_stream, offset);
        }
        for &trace in traces {
            match self.state.replay_status(partition_stream, offset, id(trace)) {
                ReplayStatus::Exported => {
                    assert!(is_exported(&trace), "a record was skipped that nobody exported");
                    continue;
                }
                ReplayStatus::Late(_) => drop(self.closed.insert(trace)),
                ReplayStatus::New => {}
            }
            assert!(
                !world.acknowledged.exported.contains(&(trace, record)),
                "{trace} is evaluated again with {record:?}"
            );
            self.state.retain(partition_stream, offset, Some(id(trace)));
            self.open.entry(trace).or_default().push(record);
        }
        if self.state.was_forwarded(partition_stream, offset) {
            assert!(world.forwarded.contains(&record));
        } else {
            assert!(!world.acknowledged.forwarded.contains(&record), "{record:?} is forwarded again");
            self.state.retain(partition_stream, offset, None);
            self.forwarding.push(record);
        }
        self.state.note_read(partition_stream, offset);
    }

    /// Closes a trace and begins its export. Its first evaluation must contain every record of the trace so far.
    fn close(&mut self, world: &World, trace: u8) {
        let Some(records) = self.open.remove(&trace) else { return };
        let is_first = self.closed.insert(trace);
        if is_first {
            let all = (0..STREAMS).flat_map(|s| (0..self.position[s]).map(move |offset| (s, offset)));
            let has_trace = |(s, offset): &RecordPosition| world.topic[*s][*offset as usize].contains(&trace);
            let mut all: Vec<RecordPosition> = all.filter(has_trace).collect();
            let mut read = records.clone();
            all.sort_unstable();
            read.sort_unstable();
            assert!(
                read == all || world.forgotten.contains(&trace),
                "trace {trace} is evaluated in part, and not as late: {read:?} of {all:?}"
            );
        }
        self.state.note_closed(id(trace));
        let revision = if is_first { 1 } else { 2 };
        self.state.note_evaluated(id(trace), PriorVerdict { passed: Some(true), revision });
        self.exports.push(Export { trace, records });
    }

    /// Acknowledges the forwarded part of a record, and the export of a trace.
    fn acknowledge(&mut self, world: &mut World, index: usize) {
        if !self.forwarding.is_empty() {
            let record = self.forwarding.remove(index % self.forwarding.len());
            assert!(self.state.release(PARTITION_STREAMS[record.0], record.1, None, false));
            world.forwarded.insert(record);
            self.acknowledged.forwarded.insert(record);
        }
        if self.exports.is_empty() {
            return;
        }
        let Export { trace, records } = self.exports.remove(index % self.exports.len());
        for &(stream, offset) in &records {
            assert!(self.state.release(PARTITION_STREAMS[stream], offset, Some(id(trace)), true));
            assert!(
                !self.state.release(PARTITION_STREAMS[stream], offset, Some(id(trace)), true),
                "released twice"
            );
        }
        self.state.note_acknowledged(id(trace));
        self.acknowledged.exported.extend(records.iter().map(|record| (trace, *record)));
        world.exported.entry(trace).or_default().extend(records);
    }

    fn commit(&mut self, world: &mut World, budget: usize) {
        let Some(commit) = self.state.commit(budget) else { return };
        assert!(commit.metadata.len() <= budget);
        for (s, offset) in commit.offsets.iter().enumerate() {
            let below = (0..offset.unwrap_or(0))
                .flat_map(|o| world.topic[s][o as usize].iter().map(move |&trace| (trace, (s, o))));
            for (trace, record) in below {
                let is_exported = world.exported.get(&trace).is_some_and(|records| records.contains(&record));
                assert!(is_exported, "{trace} {record:?}");
            }
        }
        world.acknowledged = Acknowledged::default();
        for (s, records) in world.topic.iter().enumerate() {
            let read = self.position[s].max(self.state.next[s].unwrap_or(0)) as usize;
            let (mut incomplete_traces, mut all_forwarded) = (BTreeSet::new(), true);
            for (offset, traces) in records.iter().enumerate().take(read) {
                let record = (s, offset as i64);
                all_forwarded &= self.acknowledged.forwarded.contains(&record);
                if all_forwarded {
                    world.acknowledged.forwarded.insert(record);
                }
                for &trace in traces {
                    let is_exported = self.acknowledged.exported.contains(&(trace, record));
                    // A record that was exported after a record of the same trace that was not exported may be
                    // evaluated again as a late one.
                    if !is_exported {
                        incomplete_traces.insert(trace);
                    } else if !incomplete_traces.contains(&trace) && commit.reevaluated_traces == 0 {
                        world.acknowledged.exported.insert((trace, record));
                    }
                }
            }
        }
        world.committed = commit;
        world.read = self.position;
    }
}

impl World {
    fn resume(&self) -> Watermark {
        Watermark::resume(self.committed.offsets, &self.committed.metadata, false, [None; STREAMS])
    }

    /// Whether the last commit does not contain a trace and need not, since none of its records is read again.
    fn may_forget(&self, trace: u8) -> bool {
        let state = self.resume();
        let reread_offsets = |s: usize| self.committed.offsets[s].unwrap_or(0)..self.read[s];
        let is_reread = |(s, offset): RecordPosition| {
            self.topic[s][offset as usize].contains(&trace) && !state.skips(PARTITION_STREAMS[s], offset)
        };
        !state.traces.contains_key(&handover::hash(id(trace)))
            && !(0..STREAMS).any(|s| reread_offsets(s).any(|offset| is_reread((s, offset))))
    }
}

#[derive(Clone, Debug)]
enum ConsumerStep {
    Read(usize),
    Close(u8),
    Acknowledge(usize),
    Commit,
    /// The process of the owner is killed.
    Kill,
    /// The partition is revoked: exports end, and the reached state is committed.
    Revoke,
}

fn step() -> impl Strategy<Value = ConsumerStep> {
    prop_oneof![
        12 => (0..STREAMS).prop_map(ConsumerStep::Read),
        5 => (0u8..12).prop_map(ConsumerStep::Close),
        5 => any::<usize>().prop_map(ConsumerStep::Acknowledge),
        3 => Just(ConsumerStep::Commit),
        1 => Just(ConsumerStep::Kill),
        1 => Just(ConsumerStep::Revoke),
    ]
}

fn topic() -> impl Strategy<Value = Topic> {
    let record =
        || prop::collection::btree_set(0u8..12, 1..3).prop_map(|set| set.into_iter().collect::<Vec<u8>>());
    let stream = |max_len| prop::collection::vec(record(), 0..max_len);
    (stream(40), stream(15)).prop_map(|(spans, logs)| [spans, logs])
}

fn run(topic: Topic, steps: Vec<ConsumerStep>, budget: usize) -> World {
    let committed = Commit { offsets: [None; STREAMS], metadata: String::new(), reevaluated_traces: 0 };
    let mut world = World {
        topic,
        committed,
        read: [0; STREAMS],
        forgotten: BTreeSet::new(),
        exported: BTreeMap::new(),
        forwarded: BTreeSet::new(),
        acknowledged: Acknowledged::default(),
    };
    let mut owner = Owner::assigned(&mut world);
    for step in steps {
        match step {
            ConsumerStep::Read(stream) => owner.read(&world, stream),
            ConsumerStep::Close(trace) => owner.close(&world, trace),
            ConsumerStep::Acknowledge(index) => owner.acknowledge(&mut world, index),
            ConsumerStep::Commit => owner.commit(&mut world, budget),
            ConsumerStep::Kill => owner = Owner::assigned(&mut world),
            ConsumerStep::Revoke => {
                while owner.state.unacknowledged_verdicts() > 0 || !owner.forwarding.is_empty() {
                    owner.acknowledge(&mut world, 0);
                }
                assert!(owner.exports.is_empty());
                owner.commit(&mut world, budget);
                owner = Owner::assigned(&mut world);
            }
        }
    }
    // The last owner reads to the end, and everything closes.
    for stream in 0..STREAMS {
        for _ in 0..world.topic[stream].len() {
            owner.read(&world, stream);
        }
    }
    for trace in 0..12 {
        owner.close(&world, trace);
    }
    while owner.state.unacknowledged_verdicts() > 0 || !owner.forwarding.is_empty() {
        owner.acknowledge(&mut world, 0);
    }
    owner.commit(&mut world, 1 << 20);
    world
}

proptest! {
    #![proptest_config(Config { cases: 2000, ..Config::default() })]

    #[test]
    fn no_record_is_lost_and_no_trace_is_evaluated_in_part(
        topic in topic(),
        steps in prop::collection::vec(step(), 0..160),
        budget in prop_oneof![Just(4096usize), 12usize..120],
    ) {
        let world = run(topic, steps, budget);
        for (s, records) in world.topic.iter().enumerate() {
            for (offset, traces) in records.iter().enumerate() {
                for trace in traces {
                    let exported = world.exported.get(trace);
                    prop_assert!(exported.is_some_and(|records| records.contains(&(s, offset as i64))), "{trace} {s} {offset}");
                }
            }
            // Everything is exported, so everything is committed.
            let end = (!records.is_empty()).then_some(records.len() as i64);
            prop_assert!(world.committed.offsets[s] == end || records.is_empty());
        }
    }
}

/// Reads records of these traces from an offset on, each a message of spans.
fn read(state: &mut Watermark, first: i64, traces: impl IntoIterator<Item = u16>) {
    for (offset, trace) in (first..).zip(traces) {
        assert!(state.begin_record(PartitionStream::Spans, offset));
        state.retain(PartitionStream::Spans, offset, Some(numbered(trace)));
        state.note_read(PartitionStream::Spans, offset);
    }
}

fn numbered(trace: u16) -> TraceId {
    let mut id = [1; 16];
    id[..2].copy_from_slice(&trace.to_be_bytes());
    TraceId(id)
}

/// Exports a trace with these records.
fn export(state: &mut Watermark, trace: u16, records: impl IntoIterator<Item = i64>) {
    state.note_evaluated(numbered(trace), PriorVerdict { passed: Some(true), revision: 1 });
    for offset in records {
        assert!(state.release(PartitionStream::Spans, offset, Some(numbered(trace)), true));
    }
    state.note_acknowledged(numbered(trace));
}

fn resume(commit: &Commit) -> Watermark {
    Watermark::resume(commit.offsets, &commit.metadata, false, [None; STREAMS])
}

#[test]
fn the_watermark_is_the_first_record_of_the_oldest_open_trace() {
    let (mut state, spans) = (Watermark::default(), PartitionStream::Spans);
    assert_eq!(state.commit(100).unwrap().offsets, [None; STREAMS]);
    read(&mut state, 10, [1, 2, 1, 3]);
    assert_eq!((state.commit(100).unwrap().offsets, state.uncommitted()), ([Some(10), None], 4));
    export(&mut state, 1, [10, 12]);
    assert_eq!(state.unacknowledged_verdicts(), 0);
    let commit = state.commit(100).unwrap();
    assert_eq!((commit.offsets, commit.reevaluated_traces), ([Some(11), None], 0));
    let mut next = resume(&commit);
    assert_eq!([11, 12, 13, 14].map(|offset| next.skips(spans, offset)), [false, true, false, false]);
    let prior = PriorVerdict { passed: Some(true), revision: 1 };
    // Until its late spans are accepted, they may be offered any number of times.
    let replays: Vec<ReplayStatus> = [(11, 2), (13, 3), (14, 1), (14, 1)]
        .map(|(offset, trace)| next.replay_status(spans, offset, numbered(trace)))
        .into();
    assert_eq!(
        replays,
        [ReplayStatus::New, ReplayStatus::New, ReplayStatus::Late(prior), ReplayStatus::Late(prior)]
    );
}

#[test]
fn while_a_trace_is_open_for_long_nothing_else_is_evaluated_again_and_its_state_does_not_grow() {
    let mut state = Watermark::default();
    read(&mut state, 0, [0]);
    for n in 0..6000u16 {
        let first = 1 + 2 * i64::from(n);
        read(&mut state, first, [n + 1, n + 1]);
        export(&mut state, n + 1, [first, first + 1]);
        let before = EXAMINED.get();
        let commit = state.commit(4096).unwrap();
        assert_eq!((commit.offsets[0], commit.reevaluated_traces), (Some(0), 0));
        assert!(EXAMINED.get() - before <= 1 && state.traces.len() <= MAX_REMEMBERED + 1);
    }
    // The next owners read the open trace, and nothing else, also if they read in part.
    let mut next = resume(&state.commit(4096).unwrap());
    for offset in 0..7000 {
        assert_eq!(next.skips(PartitionStream::Spans, offset), offset > 0);
        if offset == 0 {
            next.retain(PartitionStream::Spans, 0, Some(numbered(0)));
        }
        next.note_read(PartitionStream::Spans, offset);
    }
    let last = resume(&next.commit(4096).unwrap());
    assert!(
        !last.skips(PartitionStream::Spans, 0)
            && (1..=12_000).all(|offset| last.skips(PartitionStream::Spans, offset))
    );
    assert!(!last.skips(PartitionStream::Spans, 12_001));
}

#[test]
fn without_room_for_all_retained_records_the_last_ones_are_read_again() {
    let mut state = Watermark::default();
    // Each second record is of an open trace; the others are of 8 traces, one after the other.
    (0..200u16).for_each(|n| read(&mut state, 2 * i64::from(n), [1000 + n, n / 25]));
    let records = |trace: i64| (25 * trace..25 * (trace + 1)).map(|n| 2 * n + 1);
    (0..8u16).for_each(|trace| export(&mut state, trace, records(trace.into())));
    assert_eq!(state.commit(8), None);
    let mut reevaluated_counts = Vec::new();
    for budget in [20, 100, 200, 300, 4096] {
        let commit = state.commit(budget).unwrap();
        assert!(commit.metadata.len() <= budget && commit.offsets[0] == Some(0));
        let mut next = resume(&commit);
        let mut evaluated_again = 0;
        for trace in 0..8 {
            let skipped = records(trace).filter(|offset| next.skips(PartitionStream::Spans, *offset)).count();
            let id = numbered(u16::try_from(trace).unwrap());
            let is_known = next.traces.contains_key(&handover::hash(id));
            assert!(skipped == 0 || skipped == 25 || is_known, "{trace} is read in part");
            evaluated_again += u64::from(skipped == 0 && !is_known);
        }
        assert_eq!(commit.reevaluated_traces, evaluated_again);
        reevaluated_counts.push(commit.reevaluated_traces);
        assert!((0..400).step_by(2).all(|offset| !next.skips(PartitionStream::Spans, offset)));
        next.retain(PartitionStream::Spans, 0, Some(numbered(1000)));
        next.note_read(PartitionStream::Spans, 0);
        assert_eq!(next.uncommitted(), 1, "records that were not read here are not counted");
    }
    assert!(
        reevaluated_counts.is_sorted_by(|a, b| a >= b)
            && reevaluated_counts[0] > 5
            && reevaluated_counts[4] == 0,
        "{reevaluated_counts:?}"
    );
}

#[test]
fn spans_of_a_closed_trace_are_late_unless_their_record_was_read_before() {
    let mut state = Watermark::resume([Some(5), None], "", false, [Some(8), None]);
    read(&mut state, 5, [1]);
    let is_late = |state: &Watermark, offset| state.is_late(PartitionStream::Spans, offset, numbered(1));
    // 5 to 7 were read by an earlier assignment of this process, perhaps with a verdict that was not acknowledged.
    assert_eq!([5, 7, 8].map(|offset| is_late(&state, offset)), [false, false, true]);
    state.note_closed(numbered(1));
    assert!(is_late(&state, 6));
    // Its spans may be read again after its logs.
    let mut state = Watermark::resume([Some(5), Some(3)], "", false, [Some(8), Some(4)]);
    assert!(!state.is_late(PartitionStream::Logs, 4, numbered(1)));
    read(&mut state, 5, [2, 2, 2]);
    assert!(state.is_late(PartitionStream::Logs, 4, numbered(1)));
}

#[test]
fn a_log_of_an_evaluated_trace_that_is_not_acknowledged_does_not_make_it_exported() {
    let mut state = Watermark::default();
    read(&mut state, 5, [1]);
    state.note_closed(numbered(1));
    state.note_evaluated(numbered(1), PriorVerdict { passed: Some(true), revision: 1 });
    state.retain(PartitionStream::Logs, 3, Some(numbered(1)));
    state.note_read(PartitionStream::Logs, 3);
    assert!(state.release(PartitionStream::Logs, 3, Some(numbered(1)), false));
    let mut next = resume(&state.commit(4096).unwrap());
    assert_eq!(next.replay_status(PartitionStream::Spans, 5, numbered(1)), ReplayStatus::New);
}

#[test]
fn the_state_is_discarded_when_offsets_go_back() {
    let mut state = Watermark::default();
    read(&mut state, 100, [1, 2]);
    export(&mut state, 2, [101]);
    let mut next = resume(&state.commit(4096).unwrap());
    assert!(next.skips(PartitionStream::Spans, 101));
    // The topic was created again.
    assert!(!next.begin_record(PartitionStream::Spans, 0) && next.begin_record(PartitionStream::Spans, 0));
    assert!(!next.skips(PartitionStream::Spans, 101));
    assert_eq!(next.replay_status(PartitionStream::Spans, 0, numbered(2)), ReplayStatus::New);
    next.note_read(PartitionStream::Spans, 0);
    assert_eq!(next.commit(4096).unwrap().offsets, [Some(1), None]);
}

#[test]
fn forwarded_parts_of_another_mode_do_not_count_as_forwarded() {
    let mut state = Watermark::default();
    for offset in [3, 4] {
        state.retain(PartitionStream::Logs, offset, Some(id(1)));
        state.retain(PartitionStream::Logs, offset, None);
        state.note_read(PartitionStream::Logs, offset);
    }
    assert!(state.release(PartitionStream::Logs, 3, None, false));
    let commit = state.commit(4096).unwrap();
    assert_eq!(commit.offsets, [None, Some(3)]);
    let forwarded = |forwards| {
        let next = Watermark::resume(commit.offsets, &commit.metadata, forwards, [None; STREAMS]);
        [3, 4].map(|offset| next.was_forwarded(PartitionStream::Logs, offset))
    };
    assert_eq!((forwarded(false), forwarded(true)), ([true, false], [false, false]));
}
