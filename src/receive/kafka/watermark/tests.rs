//! Owners of a partition that read, close, export, commit and end at any time, in any order.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::test_runner::Config;

use super::*;

/// Records of both streams: for each offset the traces in it.
type Topic = [Vec<Vec<u8>>; STREAMS];
/// A record of a trace: stream and offset.
type Place = (usize, i64);

const OF: [PartitionStream; STREAMS] = [PartitionStream::Spans, PartitionStream::Logs];

fn id(trace: u8) -> TraceId {
    TraceId([trace; 16])
}

/// An evaluation whose export is not acknowledged.
struct Export {
    trace: u8,
    places: Vec<Place>,
}

/// A consumer with the pipeline behind it, as far as the watermark is concerned.
struct Owner {
    state: Watermark,
    position: [i64; STREAMS],
    open: BTreeMap<u8, Vec<Place>>,
    /// Closed here, or known to be exported: further records are late.
    closed: BTreeSet<u8>,
    exports: Vec<Export>,
    /// Records whose forwarded part is not acknowledged.
    passing: Vec<Place>,
    /// The deliveries that the owner knows of: places of traces, and forwarded parts.
    settled: (BTreeSet<(u8, Place)>, BTreeSet<Place>),
}

/// The state of the broker and of the destination.
struct World {
    topic: Topic,
    committed: Commit,
    /// The position of the owner that committed it.
    read: [i64; STREAMS],
    /// Traces that some commit did not name, so that their next records open them again.
    forgotten: BTreeSet<u8>,
    /// Places that were exported and acknowledged, ...
    delivered: BTreeMap<u8, BTreeSet<Place>>,
    /// ... records whose forwarded part was, ...
    passed: BTreeSet<Place>,
    /// ... and those of both that no later owner may export or forward again.
    settled: (BTreeSet<(u8, Place)>, BTreeSet<Place>),
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
            passing: Vec::new(),
            settled: world.settled.clone(),
        }
    }

    fn read(&mut self, world: &World, stream: usize) {
        let offset = self.position[stream];
        let Some(traces) = world.topic[stream].get(offset as usize) else { return };
        let (signal, place) = (OF[stream], (stream, offset));
        self.position[stream] += 1;
        assert!(self.state.follows(signal, offset));
        let is_delivered =
            |trace: &u8| world.delivered.get(trace).is_some_and(|delivered| delivered.contains(&place));
        if self.state.skips(signal, offset) {
            assert!(traces.iter().all(is_delivered), "a record was skipped that nobody exported");
            assert!(world.passed.contains(&place), "a record was skipped that nobody forwarded");
            return self.state.read(signal, offset);
        }
        for &trace in traces {
            match self.state.replay(signal, offset, id(trace)) {
                ReplayStatus::Exported => {
                    assert!(is_delivered(&trace), "a record was skipped that nobody exported");
                    continue;
                }
                ReplayStatus::Late(_) => drop(self.closed.insert(trace)),
                ReplayStatus::New => {}
            }
            assert!(!world.settled.0.contains(&(trace, place)), "{trace} is evaluated again with {place:?}");
            self.state.retain(signal, offset, Some(id(trace)));
            self.open.entry(trace).or_default().push(place);
        }
        if self.state.has_passed(signal, offset) {
            assert!(world.passed.contains(&place));
        } else {
            assert!(!world.settled.1.contains(&place), "{place:?} is forwarded again");
            self.state.retain(signal, offset, None);
            self.passing.push(place);
        }
        self.state.read(signal, offset);
    }

    /// Closes a trace and begins its export. The first evaluation has every record of the trace so far.
    fn close(&mut self, world: &World, trace: u8) {
        let Some(places) = self.open.remove(&trace) else { return };
        let is_first = self.closed.insert(trace);
        if is_first {
            let all = (0..STREAMS).flat_map(|s| (0..self.position[s]).map(move |offset| (s, offset)));
            let has_trace = |(s, offset): &Place| world.topic[*s][*offset as usize].contains(&trace);
            let mut all: Vec<Place> = all.filter(has_trace).collect();
            let mut read = places.clone();
            all.sort_unstable();
            read.sort_unstable();
            assert!(
                read == all || world.forgotten.contains(&trace),
                "trace {trace} is evaluated in part, and not as late: {read:?} of {all:?}"
            );
        }
        self.state.close(id(trace));
        let revision = if is_first { 1 } else { 2 };
        self.state.evaluated(id(trace), PriorVerdict { passed: Some(true), revision });
        self.exports.push(Export { trace, places });
    }

    fn acknowledge(&mut self, world: &mut World, which: usize) {
        if !self.passing.is_empty() {
            let place = self.passing.remove(which % self.passing.len());
            assert!(self.state.release(OF[place.0], place.1, None, false));
            world.passed.insert(place);
            self.settled.1.insert(place);
        }
        if self.exports.is_empty() {
            return;
        }
        let Export { trace, places } = self.exports.remove(which % self.exports.len());
        for &(stream, offset) in &places {
            assert!(self.state.release(OF[stream], offset, Some(id(trace)), true));
            assert!(!self.state.release(OF[stream], offset, Some(id(trace)), true), "released twice");
        }
        self.state.acknowledged(id(trace));
        self.settled.0.extend(places.iter().map(|place| (trace, *place)));
        world.delivered.entry(trace).or_default().extend(places);
    }

    fn commit(&mut self, world: &mut World, budget: usize) {
        let Some(commit) = self.state.commit(budget) else { return };
        assert!(commit.metadata.len() <= budget);
        for (s, offset) in commit.offsets.iter().enumerate() {
            let below = (0..offset.unwrap_or(0))
                .flat_map(|o| world.topic[s][o as usize].iter().map(move |&trace| (trace, (s, o))));
            for (trace, place) in below {
                assert!(world.delivered.get(&trace).is_some_and(|d| d.contains(&place)), "{trace} {place:?}");
            }
        }
        world.settled = Default::default();
        for (s, records) in world.topic.iter().enumerate() {
            let read = self.position[s].max(self.state.next[s].unwrap_or(0)) as usize;
            let (mut missing, mut passes) = (BTreeSet::new(), true);
            for (offset, traces) in records.iter().enumerate().take(read) {
                let place = (s, offset as i64);
                passes &= self.settled.1.contains(&place);
                if passes {
                    world.settled.1.insert(place);
                }
                for &trace in traces {
                    let is_delivered = self.settled.0.contains(&(trace, place));
                    // A record that was exported after records of the same trace that were not is late once more.
                    if !is_delivered {
                        missing.insert(trace);
                    } else if !missing.contains(&trace) && commit.reevaluated_traces == 0 {
                        world.settled.0.insert((trace, place));
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

    /// Whether the last commit does not name a trace, and need not: nothing of it was read that is read again.
    fn may_forget(&self, trace: u8) -> bool {
        let state = self.resume();
        let reread_offsets = |s: usize| self.committed.offsets[s].unwrap_or(0)..self.read[s];
        let has = |(s, offset): Place| {
            self.topic[s][offset as usize].contains(&trace) && !state.skips(OF[s], offset)
        };
        !state.traces.contains_key(&handover::hash(id(trace)))
            && !(0..STREAMS).any(|s| reread_offsets(s).any(|offset| has((s, offset))))
    }
}

#[derive(Clone, Debug)]
enum ConsumerStep {
    Read(usize),
    Close(u8),
    Acknowledge(usize),
    Commit,
    /// The owner dies.
    Kill,
    /// The partition is revoked: exports end, and what is reached is committed.
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
        delivered: BTreeMap::new(),
        passed: BTreeSet::new(),
        settled: Default::default(),
    };
    let mut owner = Owner::assigned(&mut world);
    for step in steps {
        match step {
            ConsumerStep::Read(stream) => owner.read(&world, stream),
            ConsumerStep::Close(trace) => owner.close(&world, trace),
            ConsumerStep::Acknowledge(which) => owner.acknowledge(&mut world, which),
            ConsumerStep::Commit => owner.commit(&mut world, budget),
            ConsumerStep::Kill => owner = Owner::assigned(&mut world),
            ConsumerStep::Revoke => {
                while owner.state.exporting() > 0 || !owner.passing.is_empty() {
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
    while owner.state.exporting() > 0 || !owner.passing.is_empty() {
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
                    let delivered = world.delivered.get(trace);
                    prop_assert!(delivered.is_some_and(|d| d.contains(&(s, offset as i64))), "{trace} {s} {offset}");
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
        assert!(state.follows(PartitionStream::Spans, offset));
        state.retain(PartitionStream::Spans, offset, Some(numbered(trace)));
        state.read(PartitionStream::Spans, offset);
    }
}

fn numbered(trace: u16) -> TraceId {
    let mut id = [1; 16];
    id[..2].copy_from_slice(&trace.to_be_bytes());
    TraceId(id)
}

/// Exports a trace with these records.
fn export(state: &mut Watermark, trace: u16, records: impl IntoIterator<Item = i64>) {
    state.evaluated(numbered(trace), PriorVerdict { passed: Some(true), revision: 1 });
    for offset in records {
        assert!(state.release(PartitionStream::Spans, offset, Some(numbered(trace)), true));
    }
    state.acknowledged(numbered(trace));
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
    assert_eq!(state.exporting(), 0);
    let commit = state.commit(100).unwrap();
    assert_eq!((commit.offsets, commit.reevaluated_traces), ([Some(11), None], 0));
    let mut next = resume(&commit);
    assert_eq!([11, 12, 13, 14].map(|offset| next.skips(spans, offset)), [false, true, false, false]);
    let prior = PriorVerdict { passed: Some(true), revision: 1 };
    // Until its late spans are accepted, they may be offered any number of times.
    let replays: Vec<ReplayStatus> = [(11, 2), (13, 3), (14, 1), (14, 1)]
        .map(|(offset, trace)| next.replay(spans, offset, numbered(trace)))
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
        next.read(PartitionStream::Spans, offset);
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
            let skipped = records(trace).filter(|at| next.skips(PartitionStream::Spans, *at)).count();
            let id = numbered(u16::try_from(trace).unwrap());
            let is_known = next.traces.contains_key(&handover::hash(id));
            assert!(skipped == 0 || skipped == 25 || is_known, "{trace} is read in part");
            evaluated_again += u64::from(skipped == 0 && !is_known);
        }
        assert_eq!(commit.reevaluated_traces, evaluated_again);
        reevaluated_counts.push(commit.reevaluated_traces);
        assert!((0..400).step_by(2).all(|offset| !next.skips(PartitionStream::Spans, offset)));
        next.retain(PartitionStream::Spans, 0, Some(numbered(1000)));
        next.read(PartitionStream::Spans, 0);
        assert_eq!(next.uncommitted(), 1, "what was not read here pauses nothing");
    }
    assert!(
        reevaluated_counts.is_sorted_by(|a, b| a >= b)
            && reevaluated_counts[0] > 5
            && reevaluated_counts[4] == 0,
        "{reevaluated_counts:?}"
    );
}

#[test]
fn spans_of_a_trace_that_this_process_knows_are_late_unless_it_is_read_again() {
    let mut state = Watermark::resume([Some(5), None], "", false, [Some(8), None]);
    read(&mut state, 5, [1]);
    let is_late = |state: &Watermark, offset| state.is_late(PartitionStream::Spans, offset, numbered(1));
    // 5 to 7 were read by an earlier assignment of this process, perhaps with a verdict that was not acknowledged.
    assert_eq!([5, 7, 8].map(|offset| is_late(&state, offset)), [false, false, true]);
    state.close(numbered(1));
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
    state.close(numbered(1));
    state.evaluated(numbered(1), PriorVerdict { passed: Some(true), revision: 1 });
    state.retain(PartitionStream::Logs, 3, Some(numbered(1)));
    state.read(PartitionStream::Logs, 3);
    assert!(state.release(PartitionStream::Logs, 3, Some(numbered(1)), false));
    let mut next = resume(&state.commit(4096).unwrap());
    assert_eq!(next.replay(PartitionStream::Spans, 5, numbered(1)), ReplayStatus::New);
}

#[test]
fn what_is_known_is_forgotten_when_offsets_go_back() {
    let mut state = Watermark::default();
    read(&mut state, 100, [1, 2]);
    export(&mut state, 2, [101]);
    let mut next = resume(&state.commit(4096).unwrap());
    assert!(next.skips(PartitionStream::Spans, 101));
    // The topic was created again.
    assert!(!next.follows(PartitionStream::Spans, 0) && next.follows(PartitionStream::Spans, 0));
    assert!(!next.skips(PartitionStream::Spans, 101));
    assert_eq!(next.replay(PartitionStream::Spans, 0, numbered(2)), ReplayStatus::New);
    next.read(PartitionStream::Spans, 0);
    assert_eq!(next.commit(4096).unwrap().offsets, [Some(1), None]);
}

#[test]
fn what_was_forwarded_in_another_mode_is_not_taken_for_forwarded() {
    let mut state = Watermark::default();
    for offset in [3, 4] {
        state.retain(PartitionStream::Logs, offset, Some(id(1)));
        state.retain(PartitionStream::Logs, offset, None);
        state.read(PartitionStream::Logs, offset);
    }
    assert!(state.release(PartitionStream::Logs, 3, None, false));
    let commit = state.commit(4096).unwrap();
    assert_eq!(commit.offsets, [None, Some(3)]);
    let passed = |forwards| {
        let next = Watermark::resume(commit.offsets, &commit.metadata, forwards, [None; STREAMS]);
        [3, 4].map(|offset| next.has_passed(PartitionStream::Logs, offset))
    };
    assert_eq!((passed(false), passed(true)), ([true, false], [false, false]));
}
