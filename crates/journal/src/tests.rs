//! Tests of the log against a model, and with truncated and damaged segments. `failing` tests the whole journal on
//! failing disks, `syncing` the effects of fsync, `directory` the directory, `handover` the writer's hand-over.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use verdict_config::{Period, Size};
use verdict_otlp::trace::{PriorVerdict, TraceId};

use super::disk::Disk;
use super::*;

mod failing;
mod handover;
mod directory;
mod syncing;

fn metrics() -> JournalMetrics {
    JournalMetrics::register(&mut prometheus_client::registry::Registry::default())
}

const SEGMENT: u64 = 2048;
/// Number of remembered closed traces: fewer than fit into an eighth of a segment.
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

fn limits() -> LogLimits {
    LogLimits { segment_bytes: SEGMENT, max_bytes: u64::MAX, sync: false, max_closed: REMEMBER }
}

fn open(folder: &Path) -> (Log<Directory>, Recovered, Seq) {
    Log::open(Directory::open(folder).unwrap(), limits()).unwrap()
}

/// The records that must be retained: by record, the reasons, and the exporters that have acknowledged it.
type Model = BTreeMap<Seq, (Vec<RetainReason>, Vec<String>)>;

#[derive(Clone, Debug)]
enum Op {
    Request {
        traces: Vec<u8>,
        is_forwarded: bool,
        size: usize,
    },
    /// Closes a trace that has no verdict yet.
    Verdict(prop::sample::Index),
    Acked(prop::sample::Index),
    /// Releases a reason of some record, or a verdict and its requests.
    Done(prop::sample::Index),
    Reclaim,
    Restart,
}

fn op() -> impl Strategy<Value = Op> {
    let traces = prop::collection::btree_set(0u8..12, 1..4).prop_map(|t| t.into_iter().collect());
    prop_oneof![
        4 => (traces, any::<bool>(), 0usize..300)
            .prop_map(|(traces, is_forwarded, size)| Op::Request { traces, is_forwarded, size }),
        2 => any::<prop::sample::Index>().prop_map(Op::Verdict),
        1 => any::<prop::sample::Index>().prop_map(Op::Acked),
        4 => any::<prop::sample::Index>().prop_map(Op::Done),
        2 => Just(Op::Reclaim),
        1 => Just(Op::Restart),
    ]
}

/// Whether the request's spans are exported on arrival: by this record, or, for every other size, by other records.
fn has_forwarded_spans(is_forwarded: bool, size: usize) -> bool {
    is_forwarded || size.is_multiple_of(2)
}

/// A log and its model, driven by the same operations.
struct Driven {
    log: Option<Log<Directory>>,
    folder: tempfile::TempDir,
    next: Seq,
    model: Model,
    verdicts: BTreeMap<Seq, (TraceId, Vec<Seq>)>,
    closed: Vec<(TraceId, PriorVerdict)>,
    bodies: BTreeMap<Seq, (Vec<u8>, usize, bool)>,
}

impl Driven {
    fn new() -> Driven {
        let folder = tempfile::tempdir().unwrap();
        let (log, recovered, next) = open(folder.path());
        assert_eq!(recovered, Recovered::default());
        let (model, verdicts, closed, bodies) = Default::default();
        Driven { log: Some(log), folder, next, model, verdicts, closed, bodies }
    }

    fn write(&mut self, frame: &Frame, reasons: Option<Vec<RetainReason>>) {
        let log = self.log.as_mut().unwrap();
        let position = log.append(std::iter::once(frame)).unwrap()[0];
        if let Some(reasons) = reasons {
            log.insert(frame.seq, position, frame.size() as u64, RetainReasons::new(reasons.clone()));
            self.model.insert(frame.seq, (reasons, Vec::new()));
        }
    }

    fn release(&mut self, seq: Seq, reason: RetainReason) {
        let mut unwritten = Vec::new();
        self.log.as_mut().unwrap().release(&[(seq, reason)], &mut unwritten);
        self.write(&Frame::released(&unwritten), None);
    }

    fn name(&mut self) -> Seq {
        self.next += 1;
        self.next - 1
    }

    /// Reasons of traces without a verdict.
    fn open_reasons(&self) -> Vec<(Seq, TraceId)> {
        let has_verdict = |seq: Seq, t: TraceId| {
            self.verdicts.values().any(|(tt, requests)| *tt == t && requests.contains(&seq))
        };
        let reasons =
            self.model.iter().flat_map(|(&seq, (reasons, _))| reasons.iter().map(move |&c| (seq, c)));
        reasons
            .filter_map(|(seq, c)| match c {
                RetainReason::Trace(t) if !has_verdict(seq, t) => Some((seq, t)),
                _ => None,
            })
            .collect()
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Request { traces, is_forwarded, size } => {
                let seq = self.name();
                let mut reasons: Vec<RetainReason> =
                    traces.iter().map(|&t| RetainReason::Trace(trace(t))).collect();
                reasons.extend(is_forwarded.then_some(RetainReason::Forwarded));
                let forwarded = has_forwarded_spans(*is_forwarded, *size);
                let frame = Frame::request(seq, Signal::Traces, &reasons, forwarded, body(traces, *size));
                self.bodies.insert(seq, (traces.clone(), *size, forwarded));
                self.write(&frame, Some(reasons));
            }
            Op::Verdict(selector) => {
                let open = self.open_reasons();
                if open.is_empty() {
                    return;
                }
                let picked_trace = open[selector.index(open.len())].1;
                let requests: Vec<Seq> =
                    open.iter().filter(|(_, t)| *t == picked_trace).map(|(seq, _)| *seq).collect();
                let seq = self.name();
                let revision = seq as u32;
                let verdict = VerdictRecord {
                    trace: picked_trace,
                    requests: requests.clone(),
                    revision,
                    ..VerdictRecord::default()
                };
                self.verdicts.insert(seq, (picked_trace, requests));
                self.write(&Frame::verdict(seq, &verdict, false), Some(vec![RetainReason::Verdict]));
                self.log.as_mut().unwrap().remember(picked_trace, verdict.prior_verdict());
                self.closed.push((picked_trace, verdict.prior_verdict()));
            }
            Op::Acked(selector) => {
                let waiting = |(_, (reasons, _)): &(&Seq, &(Vec<RetainReason>, _))| {
                    reasons.iter().any(|c| matches!(c, RetainReason::Verdict | RetainReason::Forwarded))
                };
                let all: Vec<Seq> = self.model.iter().filter(waiting).map(|(seq, _)| *seq).collect();
                if all.is_empty() {
                    return;
                }
                let seq = all[selector.index(all.len())];
                if self.model[&seq].1.is_empty() {
                    self.write(&Frame::acked(seq, "a/b"), None);
                    self.log.as_mut().unwrap().note_acked(seq, "a/b");
                    self.model.get_mut(&seq).unwrap().1.push("a/b".to_owned());
                }
            }
            Op::Done(selector) => {
                let mut ends: Vec<Vec<(Seq, RetainReason)>> = self
                    .open_reasons()
                    .into_iter()
                    .map(|(seq, t)| vec![(seq, RetainReason::Trace(t))])
                    .collect();
                for (seq, (reasons, _)) in &self.model {
                    if reasons.contains(&RetainReason::Forwarded) {
                        ends.push(vec![(*seq, RetainReason::Forwarded)]);
                    }
                    if let Some((t, requests)) = self.verdicts.get(seq) {
                        let releases = requests.iter().map(|&seq| (seq, RetainReason::Trace(*t)));
                        ends.push(releases.chain([(*seq, RetainReason::Verdict)]).collect());
                    }
                }
                if ends.is_empty() {
                    return;
                }
                let ends = ends.swap_remove(selector.index(ends.len()));
                let mut unwritten = Vec::new();
                for (seq, reason) in ends {
                    self.log.as_mut().unwrap().release(&[(seq, reason)], &mut unwritten);
                    self.verdicts.remove(&seq);
                    let reasons = &mut self.model.get_mut(&seq).unwrap().0;
                    reasons.retain(|c| *c != reason);
                    if reasons.is_empty() {
                        self.model.remove(&seq);
                    }
                }
                self.write(&Frame::released(&unwritten), None);
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
        for (seq, t) in self.open_reasons() {
            out.open.entry(seq).or_default().push(t);
        }
        out.open.values_mut().for_each(|traces| traces.sort());
        for (&seq, (reasons, acked)) in &self.model {
            if reasons.contains(&RetainReason::Forwarded) {
                out.forwarded.insert(seq, acked.clone());
            }
            if reasons.contains(&RetainReason::Verdict) {
                out.verdicts.insert(seq, acked.clone());
            }
        }
        out
    }

    /// Every needed span can be read.
    fn check_bodies(&mut self) {
        let log = self.log.as_mut().unwrap();
        for (seq, (reasons, _)) in &self.model {
            let Some(JournalRecord::Request { body: stored, forwarded, .. }) = log.read(*seq).unwrap() else {
                continue;
            };
            let (traces, size, was_forwarded) = &self.bodies[seq];
            assert_eq!(forwarded, *was_forwarded, "{seq}");
            if reasons.contains(&RetainReason::Forwarded) {
                assert_eq!(stored, body(traces, *size));
            }
            let groups = verdict_otlp::split(&stored, "verdict.", &Default::default()).unwrap().groups;
            for reason in reasons {
                let RetainReason::Trace(t) = reason else { continue };
                assert!(groups.iter().any(|g| g.trace == *t), "{t} is not in {seq}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// For every sequence of writes, acknowledgements, releases, rewrites and restarts, recovery returns
    /// the records that were written and not released.
    #[test]
    fn recovery_returns_the_records_that_were_written_and_not_released(ops in prop::collection::vec(op(), 1..120)) {
        let mut driven = Driven::new();
        for op in &ops {
            driven.apply(op);
        }
        driven.check_bodies();
        driven.apply(&Op::Restart);
        driven.check_bodies();
        let log = driven.log.as_mut().unwrap();
        // Repeated until nothing is left to reclaim. The module header of `log` states the bound that is checked.
        for _ in 0..200 {
            log.reclaim(false).unwrap();
        }
        let max_bytes = 2 * log.live() + 3 * SEGMENT;
        prop_assert!(log.bytes() <= max_bytes, "{} bytes for {} live", log.bytes(), log.live());
        driven.apply(&Op::Restart);
    }

    /// Recovery after the process or the machine failed at any byte of the writes.
    #[test]
    fn truncated_at_any_byte_every_complete_record_is_recovered(
        ops in prop::collection::vec(op().prop_filter("stays in one segment", |op| {
            !matches!(op, Op::Reclaim | Op::Restart)
        }), 1..12),
    ) {
        let mut driven = Driven::new();
        driven.log = Some(Log::open(
            { driven.log = None; Directory::open(driven.folder.path()).unwrap() },
            LogLimits { segment_bytes: u64::MAX, ..limits() },
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
            let truncated_bytes = cut as u64 - expected.0.max(if cut < disk::HEADER_SIZE { 0 } else { disk::HEADER_SIZE as u64 });
            prop_assert_eq!(&Recovered { truncated_bytes, ..expected.1.clone() }, &recovered, "cut at {}", cut);
            drop(log);
            // The partial record was truncated, so another start finds the same.
            let (_, reopened, _) = open(folder.path());
            prop_assert_eq!(reopened, expected.1.clone());
        }
    }
}

#[test]
fn a_flipped_bit_loses_the_record_that_contains_it_and_no_other() {
    let mut driven = Driven::new();
    for n in 0..3u8 {
        driven.apply(&Op::Request { traces: vec![n], is_forwarded: false, size: 20 });
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
        let changed = recovered.open.iter().filter(|(seq, t)| expected.open.get(seq) != Some(t)).count();
        assert_eq!(changed, 0, "bit {bit}");
        assert_eq!(lost, usize::from(bit / 8 >= disk::HEADER_SIZE), "bit {bit}");
        assert!(recovered.corrupt == 1 || recovered.truncated_bytes > 0, "bit {bit}: {recovered:?}");
        std::fs::write(&path, &whole).unwrap();
    }
}

#[test]
fn a_body_cannot_pass_for_a_record() {
    let mut driven = Driven::new();
    driven.apply(&Op::Request { traces: vec![1], is_forwarded: false, size: 20 });
    let mut forged = Vec::new();
    Frame::released(&[(1, Some(RetainReason::Trace(trace(1))))]).write(&mut forged, *b"mark");
    let frame = Frame::request(9, Signal::Logs, &[RetainReason::Forwarded], true, forged.into());
    driven.write(&frame, Some(vec![RetainReason::Forwarded]));
    driven.apply(&Op::Request { traces: vec![2], is_forwarded: false, size: 20 });
    driven.log = None;
    let path = std::fs::read_dir(driven.folder.path()).unwrap().map(|e| e.unwrap().path());
    let path = path.into_iter().find(|p| p.extension().is_some()).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    // The frame around the forged one is damaged, so that recovery searches its body for the next frame.
    let at = memchr::memmem::find(&bytes, b"mark").unwrap();
    bytes[at - 20] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let (_, recovered, _) = open(driven.folder.path());
    assert_eq!(recovered.open.len(), 2);
    assert_eq!(recovered.corrupt, 1);
}

#[test]
fn a_trace_that_stays_open_retains_only_its_own_bytes() {
    let mut driven = Driven::new();
    driven.apply(&Op::Request { traces: vec![0, 1, 2, 3], is_forwarded: false, size: 300 });
    for t in 1..4 {
        driven.release(1, RetainReason::Trace(trace(t)));
    }
    for _ in 0..200 {
        let seq = driven.name();
        let reasons = [RetainReason::Trace(trace(5))];
        let frame = Frame::request(seq, Signal::Traces, &reasons, false, body(&[5], 300));
        driven.write(&frame, Some(reasons.to_vec()));
        driven.release(seq, reasons[0]);
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
fn heads_and_acknowledgements_cause_no_rewrite() {
    let folder = tempfile::tempdir().unwrap();
    let total = 128 * SEGMENT;
    let limits = LogLimits { max_bytes: total, ..limits() };
    let (mut log, ..) = Log::open(Directory::open(folder.path()).unwrap(), limits).unwrap();
    (0..REMEMBER as u8).for_each(|t| log.remember(trace(t), PriorVerdict::default()));
    // Near the cap, with every record retained; the rest are heads and acknowledgements.
    for seq in 1.. {
        let frame = Frame::request(seq, Signal::Logs, &[RetainReason::Forwarded], true, vec![7; 60].into());
        let acked = Frame::acked(seq, "otlp_grpc/side");
        let places = log.append([&frame, &acked].into_iter()).unwrap();
        log.insert(seq, places[0], frame.size() as u64, RetainReasons::new(vec![RetainReason::Forwarded]));
        log.note_acked(seq, "otlp_grpc/side");
        if log.bytes() > total / 8 * 7 {
            break;
        }
    }
    let before = (log.segments(), log.bytes());
    (0..10).for_each(|_| log.reclaim(false).unwrap());
    assert_eq!((log.segments(), log.bytes()), before);
    // Released records do cause rewrites.
    for seq in 1..200 {
        log.release(&[(seq * 10, RetainReason::Forwarded)], &mut Vec::new());
    }
    (0..200).for_each(|_| log.reclaim(false).unwrap());
    assert!(log.bytes() < before.1 - total / 32, "{} of {before:?}", log.bytes());
}

#[test]
fn a_segment_is_deleted_once_the_releases_of_its_records_are_synced() {
    for failing in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let limits = LogLimits { sync: true, ..limits() };
        let (mut log, ..) = Log::open(Directory::open(folder.path()).unwrap(), limits).unwrap();
        for seq in 1..3 {
            let body = vec![7; SEGMENT as usize].into();
            let frame = Frame::request(seq, Signal::Logs, &[RetainReason::Forwarded], true, body);
            let places = log.append(std::iter::once(&frame)).unwrap();
            log.insert(
                seq,
                places[0],
                frame.size() as u64,
                RetainReasons::new(vec![RetainReason::Forwarded]),
            );
        }
        log.sync().unwrap();
        let mut unwritten = Vec::new();
        log.release(&[(1, RetainReason::Forwarded)], &mut unwritten);
        log.append(std::iter::once(&Frame::released(&unwritten))).unwrap();
        assert!(log.deletion_waits_for_sync());
        log.reclaim(failing).unwrap();
        let deleted = usize::from(failing);
        assert_eq!(log.segments(), 3 - deleted, "a full disk has no other room");
        log.sync().unwrap();
        log.reclaim(false).unwrap();
        assert_eq!(log.segments(), 2);
    }
}

#[test]
fn an_inline_sync_counts_once_the_syncs_begun_before_it_have_completed() {
    let folder = tempfile::tempdir().unwrap();
    let limits = LogLimits { sync: true, ..limits() };
    let (mut log, ..) = Log::open(Directory::open(folder.path()).unwrap(), limits).unwrap();
    for seq in 1..3 {
        let frame = Frame::request(
            seq,
            Signal::Logs,
            &[RetainReason::Forwarded],
            true,
            vec![7; SEGMENT as usize].into(),
        );
        let places = log.append(std::iter::once(&frame)).unwrap();
        log.insert(seq, places[0], frame.size() as u64, RetainReasons::new(vec![RetainReason::Forwarded]));
    }
    let (_, up_to) = log.begin_sync().unwrap();
    let mut unwritten = Vec::new();
    log.release(&[(1, RetainReason::Forwarded)], &mut unwritten);
    log.append(std::iter::once(&Frame::released(&unwritten))).unwrap();
    log.sync().unwrap();
    log.reclaim(false).unwrap();
    assert_eq!(log.segments(), 3, "the sync begun before has not completed");
    // Nothing is left to sync.
    assert!(log.begin_sync().unwrap().0.is_empty());
    log.sync_completed(up_to);
    log.reclaim(false).unwrap();
    assert_eq!(log.segments(), 2);
}
