//! The log against a model, and against disks that cut and flip; the whole journal on disks that fail
//! is in `failing`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;

use super::disk::Disk;
use super::*;
use verdict_config::{Period, Size};
use verdict_otlp::trace::PriorVerdict;
use verdict_otlp::trace::TraceId;

mod failing;
mod folder;
mod forcing;

fn cells() -> JournalMetrics {
    JournalMetrics::register(&mut prometheus_client::registry::Registry::default())
}

const SEGMENT: u64 = 2048;
/// Fewer than an eighth of a segment holds.
const REMEMBER: usize = 5;

fn trace(n: u8) -> TraceId {
    TraceId([n + 1; 16])
}

/// A request of one span for each trace.
fn body(traces: &[u8], size: usize) -> Bytes {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
    use prost::Message;
    let spans = traces.iter().map(|&t| Span {
        trace_id: trace(t).0.to_vec(),
        span_id: vec![t + 1; 8],
        name: "n".repeat(size),
        ..Span::default()
    });
    let scope_spans = vec![ScopeSpans { spans: spans.collect(), ..ScopeSpans::default() }];
    let resource_spans = vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }];
    ExportTraceServiceRequest { resource_spans }.encode_to_vec().into()
}

fn limits() -> Limits {
    Limits { segment: SEGMENT, total: u64::MAX, sync: false, remember: REMEMBER }
}

fn open(folder: &Path) -> (Log<Folder>, Recovered, Seq) {
    Log::open(Folder::open(folder).unwrap(), limits()).unwrap()
}

/// What must be held: claims by record, and exporters that have it.
type Model = BTreeMap<Seq, (Vec<Claim>, Vec<String>)>;

#[derive(Clone, Debug)]
enum Op {
    Request {
        traces: Vec<u8>,
        pass: bool,
        size: usize,
    },
    /// Closes the trace of some open claim.
    Verdict(prop::sample::Index),
    Acked(prop::sample::Index),
    /// Ends some record's claim, or a verdict with all that it is of.
    Done(prop::sample::Index),
    Reclaim,
    Restart,
}

fn op() -> impl Strategy<Value = Op> {
    let traces = prop::collection::btree_set(0u8..12, 1..4).prop_map(|t| t.into_iter().collect());
    prop_oneof![
        4 => (traces, any::<bool>(), 0usize..300)
            .prop_map(|(traces, pass, size)| Op::Request { traces, pass, size }),
        2 => any::<prop::sample::Index>().prop_map(Op::Verdict),
        1 => any::<prop::sample::Index>().prop_map(Op::Acked),
        4 => any::<prop::sample::Index>().prop_map(Op::Done),
        2 => Just(Op::Reclaim),
        1 => Just(Op::Restart),
    ]
}

/// A log and what it must hold, driven by the same operations.
struct Driven {
    log: Option<Log<Folder>>,
    folder: tempfile::TempDir,
    next: Seq,
    model: Model,
    verdicts: BTreeMap<Seq, (TraceId, Vec<Seq>)>,
    closed: Vec<(TraceId, PriorVerdict)>,
    bodies: BTreeMap<Seq, (Vec<u8>, usize)>,
}

impl Driven {
    fn new() -> Driven {
        let folder = tempfile::tempdir().unwrap();
        let (log, recovered, next) = open(folder.path());
        assert_eq!(recovered, Recovered::default());
        let (model, verdicts, closed, bodies) = Default::default();
        Driven { log: Some(log), folder, next, model, verdicts, closed, bodies }
    }

    fn write(&mut self, frame: &Frame, claims: Option<Vec<Claim>>) {
        let log = self.log.as_mut().unwrap();
        let place = log.append(std::iter::once(frame)).unwrap()[0];
        if let Some(claims) = claims {
            log.keep(frame.seq, place, frame.size() as u64, Claims::new(claims.clone()));
            self.model.insert(frame.seq, (claims, Vec::new()));
        }
    }

    /// A claim holds no more.
    fn end(&mut self, seq: Seq, claim: Claim) {
        let mut over = Vec::new();
        self.log.as_mut().unwrap().done(&[(seq, claim)], &mut over);
        self.write(&Frame::done(&over), None);
    }

    fn name(&mut self) -> Seq {
        self.next += 1;
        self.next - 1
    }

    /// Claims on traces that no verdict has taken.
    fn open_claims(&self) -> Vec<(Seq, TraceId)> {
        let taken =
            |seq: Seq, t: TraceId| self.verdicts.values().any(|(tt, of)| *tt == t && of.contains(&seq));
        let claims = self.model.iter().flat_map(|(&seq, (claims, _))| claims.iter().map(move |&c| (seq, c)));
        claims
            .filter_map(|(seq, c)| match c {
                Claim::Trace(t) if !taken(seq, t) => Some((seq, t)),
                _ => None,
            })
            .collect()
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Request { traces, pass, size } => {
                let seq = self.name();
                let mut claims: Vec<Claim> = traces.iter().map(|&t| Claim::Trace(trace(t))).collect();
                claims.extend(pass.then_some(Claim::Pass));
                let frame = Frame::request(seq, Signal::Traces, &claims, body(traces, *size));
                self.bodies.insert(seq, (traces.clone(), *size));
                self.write(&frame, Some(claims));
            }
            Op::Verdict(pick) => {
                let open = self.open_claims();
                if open.is_empty() {
                    return;
                }
                let of_trace = open[pick.index(open.len())].1;
                let of: Vec<Seq> = open.iter().filter(|(_, t)| *t == of_trace).map(|(seq, _)| *seq).collect();
                let seq = self.name();
                let revision = seq as u32;
                let sealed = Sealed { trace: of_trace, of: of.clone(), revision, ..Sealed::default() };
                self.verdicts.insert(seq, (of_trace, of));
                self.write(&Frame::verdict(seq, &sealed), Some(vec![Claim::Verdict]));
                self.log.as_mut().unwrap().remember(of_trace, sealed.remembered());
                self.closed.push((of_trace, sealed.remembered()));
            }
            Op::Acked(pick) => {
                let waiting = |(_, (claims, _)): &(&Seq, &(Vec<Claim>, _))| {
                    claims.iter().any(|c| matches!(c, Claim::Verdict | Claim::Pass))
                };
                let all: Vec<Seq> = self.model.iter().filter(waiting).map(|(seq, _)| *seq).collect();
                if all.is_empty() {
                    return;
                }
                let seq = all[pick.index(all.len())];
                if self.model[&seq].1.is_empty() {
                    self.write(&Frame::acked(seq, "a/b"), None);
                    self.log.as_mut().unwrap().acked(seq, "a/b");
                    self.model.get_mut(&seq).unwrap().1.push("a/b".to_owned());
                }
            }
            Op::Done(pick) => {
                let mut ends: Vec<Vec<(Seq, Claim)>> =
                    self.open_claims().into_iter().map(|(seq, t)| vec![(seq, Claim::Trace(t))]).collect();
                for (seq, (claims, _)) in &self.model {
                    if claims.contains(&Claim::Pass) {
                        ends.push(vec![(*seq, Claim::Pass)]);
                    }
                    if let Some((t, of)) = self.verdicts.get(seq) {
                        let of = of.iter().map(|&seq| (seq, Claim::Trace(*t)));
                        ends.push(of.chain([(*seq, Claim::Verdict)]).collect());
                    }
                }
                if ends.is_empty() {
                    return;
                }
                let ends = ends.swap_remove(pick.index(ends.len()));
                let mut over = Vec::new();
                for (seq, claim) in ends {
                    self.log.as_mut().unwrap().done(&[(seq, claim)], &mut over);
                    self.verdicts.remove(&seq);
                    let claims = &mut self.model.get_mut(&seq).unwrap().0;
                    claims.retain(|c| *c != claim);
                    if claims.is_empty() {
                        self.model.remove(&seq);
                    }
                }
                self.write(&Frame::done(&over), None);
            }
            Op::Reclaim => self.log.as_mut().unwrap().reclaim(false).unwrap(),
            Op::Restart => {
                self.log = None;
                let (log, recovered, next) = open(self.folder.path());
                assert_eq!(recovered, self.expected());
                self.log = Some(log);
                self.next = self.next.max(next);
            }
        }
    }

    fn expected(&self) -> Recovered {
        let newest = self.closed.len().saturating_sub(REMEMBER);
        let mut out = Recovered { closed: self.closed[newest..].to_vec(), ..Recovered::default() };
        for (seq, t) in self.open_claims() {
            out.open.entry(seq).or_default().push(t);
        }
        out.open.values_mut().for_each(|traces| traces.sort());
        for (&seq, (claims, acked)) in &self.model {
            if claims.contains(&Claim::Pass) {
                out.passes.insert(seq, acked.clone());
            }
            if claims.contains(&Claim::Verdict) {
                out.verdicts.insert(seq, acked.clone());
            }
        }
        out
    }

    /// Every span that is needed can be read.
    fn check_bodies(&mut self) {
        let log = self.log.as_mut().unwrap();
        for (seq, (claims, _)) in &self.model {
            let Some(Record::Request { body: kept, .. }) = log.read(*seq).unwrap() else { continue };
            let (traces, size) = &self.bodies[seq];
            if claims.contains(&Claim::Pass) {
                assert_eq!(kept, body(traces, *size));
            }
            let groups = verdict_otlp::split(&kept, "verdict.", &Default::default()).unwrap().groups;
            for claim in claims {
                let Claim::Trace(t) = claim else { continue };
                assert!(groups.iter().any(|g| g.trace == *t), "{t} is not in {seq}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever is written, acknowledged, ended and rewritten, in whatever order, and however often
    /// the process dies in between: what is recovered is what was acknowledged and is not done.
    #[test]
    fn what_is_recovered_is_what_was_kept_and_is_not_done(ops in prop::collection::vec(op(), 1..120)) {
        let mut driven = Driven::new();
        for op in &ops {
            driven.apply(op);
        }
        driven.check_bodies();
        driven.apply(&Op::Restart);
        driven.check_bodies();
        let log = driven.log.as_mut().unwrap();
        // Enough rounds to come to rest: space does not grow beyond what the header promises.
        for _ in 0..200 {
            log.reclaim(false).unwrap();
        }
        let most = 2 * log.live() + 3 * SEGMENT;
        prop_assert!(log.bytes() <= most, "{} bytes for {} live", log.bytes(), log.live());
        driven.apply(&Op::Restart);
    }

    /// The process, or the machine, dies with any byte being the last that was written.
    #[test]
    fn cut_at_any_byte_all_that_was_whole_before_it_is_there(
        ops in prop::collection::vec(op().prop_filter("stays in one segment", |op| {
            !matches!(op, Op::Reclaim | Op::Restart)
        }), 1..12),
    ) {
        let mut driven = Driven::new();
        driven.log = Some(Log::open(
            { driven.log = None; Folder::open(driven.folder.path()).unwrap() },
            Limits { segment: u64::MAX, ..limits() },
        ).unwrap().0);
        let mut states = vec![(0, Recovered::default())];
        for op in &ops {
            driven.apply(op);
            states.push((driven.log.as_ref().unwrap().bytes(), driven.expected()));
        }
        driven.log = None;
        let path = std::fs::read_dir(driven.folder.path()).unwrap().map(|e| e.unwrap().path());
        let path = path.into_iter().find(|p| p.extension().is_some());
        let Some(path) = path else { return Ok(()) };
        let whole = std::fs::read(&path).unwrap();
        let folder = tempfile::tempdir().unwrap();
        for cut in 0..=whole.len() {
            for old in std::fs::read_dir(folder.path()).unwrap() {
                std::fs::remove_file(old.unwrap().path()).unwrap();
            }
            std::fs::write(folder.path().join(path.file_name().unwrap()), &whole[..cut]).unwrap();
            let (log, recovered, _) = open(folder.path());
            let expected = states.iter().rev().find(|(end, _)| *end <= cut as u64).unwrap();
            let torn = cut as u64 - expected.0.max(if cut < disk::HEADER { 0 } else { disk::HEADER as u64 });
            prop_assert_eq!(&Recovered { torn, ..expected.1.clone() }, &recovered, "cut at {}", cut);
            drop(log);
            // And it stays so: what was torn was cut off.
            let (_, again, _) = open(folder.path());
            prop_assert_eq!(again, expected.1.clone());
        }
    }
}

#[test]
fn a_flipped_bit_costs_the_record_that_it_is_in_and_no_other() {
    let mut driven = Driven::new();
    for n in 0..3u8 {
        driven.apply(&Op::Request { traces: vec![n], pass: false, size: 20 });
    }
    let expected = driven.expected();
    driven.log = None;
    let path = std::fs::read_dir(driven.folder.path()).unwrap().map(|e| e.unwrap().path());
    let path = path.into_iter().find(|p| p.extension().is_some()).unwrap();
    let whole = std::fs::read(&path).unwrap();
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, &bytes).unwrap();
        let (_, recovered, _) = open(driven.folder.path());
        let lost = expected.open.keys().filter(|seq| !recovered.open.contains_key(seq)).count();
        let strange = recovered.open.iter().filter(|(seq, t)| expected.open.get(seq) != Some(t)).count();
        assert_eq!(strange, 0, "bit {bit}");
        assert_eq!(lost, usize::from(bit / 8 >= disk::HEADER), "bit {bit}");
        assert!(recovered.corrupt == 1 || recovered.torn > 0, "bit {bit}: {recovered:?}");
        std::fs::write(&path, &whole).unwrap();
    }
}

#[test]
fn what_a_sender_wrote_cannot_pass_for_a_record() {
    let mut driven = Driven::new();
    driven.apply(&Op::Request { traces: vec![1], pass: false, size: 20 });
    let mut forged = Vec::new();
    Frame::done(&[(1, Some(Claim::Trace(trace(1))))]).write(&mut forged, *b"mark");
    let frame = Frame::request(9, Signal::Logs, &[Claim::Pass], forged.into());
    driven.write(&frame, Some(vec![Claim::Pass]));
    driven.apply(&Op::Request { traces: vec![2], pass: false, size: 20 });
    driven.log = None;
    let path = std::fs::read_dir(driven.folder.path()).unwrap().map(|e| e.unwrap().path());
    let path = path.into_iter().find(|p| p.extension().is_some()).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    // The frame around the forged one is damaged, so that its body is searched for the next one.
    let at = memchr::memmem::find(&bytes, b"mark").unwrap();
    bytes[at - 20] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let (_, recovered, _) = open(driven.folder.path());
    assert_eq!(recovered.open.len(), 2);
    assert_eq!(recovered.corrupt, 1);
}

#[test]
fn a_trace_that_stays_open_does_not_hold_what_came_with_and_after_it() {
    let mut driven = Driven::new();
    driven.apply(&Op::Request { traces: vec![0, 1, 2, 3], pass: false, size: 300 });
    for t in 1..4 {
        driven.end(1, Claim::Trace(trace(t)));
    }
    for _ in 0..200 {
        let seq = driven.name();
        let claims = [Claim::Trace(trace(5))];
        let frame = Frame::request(seq, Signal::Traces, &claims, body(&[5], 300));
        driven.write(&frame, Some(claims.to_vec()));
        driven.end(seq, claims[0]);
        driven.log.as_mut().unwrap().reclaim(false).unwrap();
    }
    let log = driven.log.as_mut().unwrap();
    assert!(log.bytes() < 4 * SEGMENT, "{} bytes", log.bytes());
    assert!(log.live() < 500, "{} bytes of one span and its frame", log.live());
    drop(driven.log.take());
    let (_, recovered, _) = open(driven.folder.path());
    assert_eq!(recovered.open, [(1, vec![trace(0)])].into());
}

#[test]
fn what_is_written_around_records_that_are_held_is_no_reason_to_write_them_anew() {
    let folder = tempfile::tempdir().unwrap();
    let total = 128 * SEGMENT;
    let limits = Limits { total, ..limits() };
    let (mut log, ..) = Log::open(Folder::open(folder.path()).unwrap(), limits).unwrap();
    (0..REMEMBER as u8).for_each(|t| log.remember(trace(t), PriorVerdict::default()));
    // Near the cap, and all of it is held: heads tell of closed traces, and one exporter has it.
    for seq in 1.. {
        let frame = Frame::request(seq, Signal::Logs, &[Claim::Pass], vec![7; 60].into());
        let acked = Frame::acked(seq, "otlp_grpc/side");
        let places = log.append([&frame, &acked].into_iter()).unwrap();
        log.keep(seq, places[0], frame.size() as u64, Claims::new(vec![Claim::Pass]));
        log.acked(seq, "otlp_grpc/side");
        if log.bytes() > total / 8 * 7 {
            break;
        }
    }
    let before = (log.segments(), log.bytes());
    (0..10).for_each(|_| log.reclaim(false).unwrap());
    assert_eq!((log.segments(), log.bytes()), before);
    // Space that is gained by it is.
    for seq in 1..200 {
        log.done(&[(seq * 10, Claim::Pass)], &mut Vec::new());
    }
    (0..200).for_each(|_| log.reclaim(false).unwrap());
    assert!(log.bytes() < before.1 - total / 32, "{} of {before:?}", log.bytes());
}

#[test]
fn a_segment_is_deleted_when_what_says_that_nothing_holds_it_is_on_the_disk() {
    for desperate in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let limits = Limits { sync: true, ..limits() };
        let (mut log, ..) = Log::open(Folder::open(folder.path()).unwrap(), limits).unwrap();
        for seq in 1..3 {
            let body = vec![7; SEGMENT as usize].into();
            let frame = Frame::request(seq, Signal::Logs, &[Claim::Pass], body);
            let places = log.append(std::iter::once(&frame)).unwrap();
            log.keep(seq, places[0], frame.size() as u64, Claims::new(vec![Claim::Pass]));
        }
        log.sync().unwrap();
        let mut over = Vec::new();
        log.done(&[(1, Claim::Pass)], &mut over);
        log.append(std::iter::once(&Frame::done(&over))).unwrap();
        assert!(log.waits_to_be_forced());
        log.reclaim(desperate).unwrap();
        let deleted = usize::from(desperate);
        assert_eq!(log.segments(), 3 - deleted, "a full disk has no other room");
        log.sync().unwrap();
        log.reclaim(false).unwrap();
        assert_eq!(log.segments(), 2);
    }
}

#[test]
fn what_was_forced_here_counts_once_what_was_given_out_before_it_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits { sync: true, ..limits() };
    let (mut log, ..) = Log::open(Folder::open(folder.path()).unwrap(), limits).unwrap();
    for seq in 1..3 {
        let frame = Frame::request(seq, Signal::Logs, &[Claim::Pass], vec![7; SEGMENT as usize].into());
        let places = log.append(std::iter::once(&frame)).unwrap();
        log.keep(seq, places[0], frame.size() as u64, Claims::new(vec![Claim::Pass]));
    }
    let (_, upto) = log.give_out().unwrap();
    let mut over = Vec::new();
    log.done(&[(1, Claim::Pass)], &mut over);
    log.append(std::iter::once(&Frame::done(&over))).unwrap();
    log.sync().unwrap();
    log.reclaim(false).unwrap();
    assert_eq!(log.segments(), 3, "the force before it is on its way");
    // There is nothing more to give out, and nothing to wait for.
    assert!(log.give_out().unwrap().0.is_empty());
    log.forced(upto);
    log.reclaim(false).unwrap();
    assert_eq!(log.segments(), 2);
}
