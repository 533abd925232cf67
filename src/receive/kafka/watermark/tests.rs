//! Owners of a partition that read, close, export, commit and end at any time, in any order.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::test_runner::Config;

use super::*;

/// Records of both streams: for each offset the traces in it.
type Topic = [Vec<Vec<u8>>; STREAMS];
/// A record of a trace: stream and offset.
type Place = (usize, i64);

const OF: [Stream; STREAMS] = [Stream::Spans, Stream::Logs];

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
}

/// What the broker and the destination have.
struct World {
    topic: Topic,
    committed: Commit,
    /// The position of the owner that committed it.
    read: [i64; STREAMS],
    /// The set has room for all traces.
    roomy: bool,
    /// Traces that some commit did not name, so that their next records open them again.
    forgotten: BTreeSet<u8>,
    /// Places that were exported and acknowledged.
    delivered: BTreeMap<u8, BTreeSet<Place>>,
}

impl Owner {
    fn assigned(world: &mut World) -> Owner {
        let forgotten = (0..12).filter(|trace| world.may_forget(*trace)).collect::<Vec<u8>>();
        world.forgotten.extend(forgotten);
        let Commit { offsets, exported } = &world.committed;
        Owner {
            state: Watermark::resume(*offsets, exported),
            position: offsets.map(|offset| offset.unwrap_or(0)),
            open: BTreeMap::new(),
            closed: BTreeSet::new(),
            exports: Vec::new(),
        }
    }

    fn read(&mut self, world: &World, stream: usize) {
        let offset = self.position[stream];
        let Some(traces) = world.topic[stream].get(offset as usize) else { return };
        self.position[stream] += 1;
        self.state.read(OF[stream], offset);
        for &trace in traces {
            match self.state.replay(OF[stream], offset, id(trace)) {
                Replay::Exported => {
                    let delivered = &world.delivered[&trace];
                    assert!(
                        delivered.contains(&(stream, offset)),
                        "a record was skipped that nobody exported"
                    );
                    continue;
                }
                Replay::Late(_) => drop(self.closed.insert(trace)),
                Replay::New => {}
            }
            self.state.hold(OF[stream], offset, Some(id(trace)));
            self.open.entry(trace).or_default().push((stream, offset));
        }
    }

    /// Closes a trace and begins its export. The first evaluation has every record of the trace so far.
    fn close(&mut self, world: &World, trace: u8) {
        let Some(places) = self.open.remove(&trace) else { return };
        if self.closed.insert(trace) {
            let all = (0..STREAMS).flat_map(|s| (0..self.position[s]).map(move |offset| (s, offset)));
            let of_trace = |(s, offset): &Place| world.topic[*s][*offset as usize].contains(&trace);
            let mut all: Vec<Place> = all.filter(of_trace).collect();
            let mut read = places.clone();
            all.sort_unstable();
            read.sort_unstable();
            assert!(
                read == all || world.forgotten.contains(&trace),
                "trace {trace} is evaluated in part, and not as late: {read:?} of {all:?}"
            );
        }
        self.state.close(id(trace));
        self.state.evaluated(id(trace), PriorVerdict { passed: Some(true), revision: 1 });
        self.exports.push(Export { trace, places });
    }

    fn acknowledge(&mut self, world: &mut World, which: usize) {
        if self.exports.is_empty() {
            return;
        }
        let Export { trace, places } = self.exports.remove(which % self.exports.len());
        for &(stream, offset) in &places {
            assert!(self.state.release(OF[stream], offset, Some(id(trace))));
            assert!(!self.state.release(OF[stream], offset, Some(id(trace))), "released twice");
        }
        self.state.acknowledged(id(trace));
        world.delivered.entry(trace).or_default().extend(places);
    }

    fn commit(&mut self, world: &mut World, budget: usize) {
        let Some(commit) = self.state.commit(budget) else { return };
        assert!(commit.exported.len() <= budget);
        for (s, offset) in commit.offsets.iter().enumerate() {
            let below = (0..offset.unwrap_or(0))
                .flat_map(|o| world.topic[s][o as usize].iter().map(move |&trace| (trace, (s, o))));
            for (trace, place) in below {
                assert!(world.delivered.get(&trace).is_some_and(|d| d.contains(&place)), "{trace} {place:?}");
            }
        }
        world.committed = commit;
        world.read = self.position;
    }
}

impl World {
    /// Whether the last commit need not name a trace: nothing of it was read that is read again.
    fn may_forget(&self, trace: u8) -> bool {
        let again = |s: usize| self.committed.offsets[s].unwrap_or(0)..self.read[s];
        let has = |(s, offset): Place| self.topic[s][offset as usize].contains(&trace);
        !self.roomy && !(0..STREAMS).any(|s| again(s).any(|offset| has((s, offset))))
    }
}

#[derive(Clone, Debug)]
enum Step {
    Read(usize),
    Close(u8),
    Acknowledge(usize),
    Commit,
    /// The owner dies.
    Kill,
    /// The partition is revoked: exports end, and what is reached is committed.
    Revoke,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..STREAMS).prop_map(Step::Read),
        5 => (0u8..12).prop_map(Step::Close),
        5 => any::<usize>().prop_map(Step::Acknowledge),
        3 => Just(Step::Commit),
        1 => Just(Step::Kill),
        1 => Just(Step::Revoke),
    ]
}

fn topic() -> impl Strategy<Value = Topic> {
    let record =
        || prop::collection::btree_set(0u8..12, 1..3).prop_map(|set| set.into_iter().collect::<Vec<u8>>());
    let stream = |most| prop::collection::vec(record(), 0..most);
    (stream(40), stream(15)).prop_map(|(spans, logs)| [spans, logs])
}

fn run(topic: Topic, steps: Vec<Step>, budget: usize) -> World {
    let committed = Commit { offsets: [None; STREAMS], exported: String::new() };
    let roomy = budget >= 4096;
    let mut world = World {
        topic,
        committed,
        read: [0; STREAMS],
        roomy,
        forgotten: BTreeSet::new(),
        delivered: BTreeMap::new(),
    };
    let mut owner = Owner::assigned(&mut world);
    for step in steps {
        match step {
            Step::Read(stream) => owner.read(&world, stream),
            Step::Close(trace) => owner.close(&world, trace),
            Step::Acknowledge(which) => owner.acknowledge(&mut world, which),
            Step::Commit => owner.commit(&mut world, budget),
            Step::Kill => owner = Owner::assigned(&mut world),
            Step::Revoke => {
                while owner.state.exporting() > 0 {
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
    while owner.state.exporting() > 0 {
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

#[test]
fn the_watermark_is_the_first_record_of_the_oldest_open_trace() {
    let mut state = Watermark::default();
    let spans = Stream::Spans;
    assert_eq!(state.commit(100).unwrap().offsets, [None; STREAMS]);
    for (offset, trace) in [(10, 1), (11, 2), (12, 1), (13, 3)] {
        state.read(spans, offset);
        state.hold(spans, offset, Some(id(trace)));
    }
    assert_eq!((state.commit(100).unwrap().offsets, state.uncommitted()), ([Some(10), None], 4));
    state.evaluated(id(1), PriorVerdict { passed: None, revision: 1 });
    for offset in [10, 12] {
        state.release(spans, offset, Some(id(1)));
    }
    state.acknowledged(id(1));
    assert_eq!(state.exporting(), 0);
    // Trace 1 has records on both sides of 11: it is in the set.
    let commit = state.commit(100).unwrap();
    assert_eq!(commit.offsets, [Some(11), None]);
    let mut next = Watermark::resume(commit.offsets, &commit.exported);
    let prior = PriorVerdict { passed: None, revision: 1 };
    let replays: Vec<Replay> = [(11, 2), (12, 1), (13, 3), (14, 1), (15, 1)]
        .map(|(offset, trace)| next.replay(spans, offset, id(trace)))
        .into();
    assert_eq!(replays, [Replay::New, Replay::Exported, Replay::New, Replay::Late(prior), Replay::New]);
}

#[test]
fn without_room_for_the_set_the_watermark_stays_before_the_traces_that_would_cross_it() {
    let mut state = Watermark::default();
    // Trace 0 stays open from record 50 on; 1 to 20 have one record before and one after.
    let records = (1..=20).chain([0]).chain(1..=20);
    for (offset, trace) in (30..).zip(records) {
        state.read(Stream::Spans, offset);
        state.hold(Stream::Spans, offset, Some(id(trace)));
    }
    for trace in 1..=20 {
        state.evaluated(id(trace), PriorVerdict { passed: Some(true), revision: 1 });
        for offset in [29 + i64::from(trace), 50 + i64::from(trace)] {
            assert!(state.release(Stream::Spans, offset, Some(id(trace))));
        }
    }
    assert_eq!(state.commit(4096).unwrap().offsets[0], Some(50));
    // Room for the checksum and some six traces.
    let small = state.commit(100).unwrap();
    assert!((30..=36).contains(&small.offsets[0].unwrap()), "{small:?}");
    let read = exported_set::decode(&small.exported, small.offsets).unwrap();
    assert!(read.len() <= 7, "{read:?}");
    // Without any room: before all of them.
    assert_eq!(state.commit(8).unwrap().offsets[0], Some(30));
    assert_eq!(state.commit(2), None);
}

#[test]
fn logs_of_a_trace_that_is_read_again_are_read_again() {
    let mut state = Watermark::default();
    // The logs of traces 1 to 20 come first; trace 0 is open.
    for trace in 1..=20u8 {
        let offset = i64::from(trace);
        state.read(Stream::Logs, offset);
        state.hold(Stream::Logs, offset, Some(id(trace)));
        state.read(Stream::Spans, offset);
        state.hold(Stream::Spans, offset, Some(id(if trace == 1 { 0 } else { trace })));
    }
    for trace in 2..=20u8 {
        state.evaluated(id(trace), PriorVerdict { passed: Some(true), revision: 1 });
        let offset = i64::from(trace);
        state.release(Stream::Logs, offset, Some(id(trace)));
        state.release(Stream::Spans, offset, Some(id(trace)));
    }
    assert!(state.release(Stream::Logs, 1, Some(id(1))), "it has no spans");
    // All logs are done, all spans wait for trace 0: the others are in the set, or their logs are not committed.
    assert_eq!(state.commit(4096).unwrap().offsets, [Some(1), Some(21)]);
    assert_eq!(state.commit(60), None);
}
