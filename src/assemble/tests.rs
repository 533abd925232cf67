//! Scenario tests of closing. Time is a parameter, so none of them waits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use verdict_config::{Period, Size};
use verdict_otlp::trace::{AttachedLog, Envelope, EnvelopeFields, SpanId, Status};
use verdict_otlp::work;

use super::*;

/// The trace of a [`Bench`].
const T: TraceId = TraceId([7; 16]);

pub(super) fn span(id: u8, parent: u8) -> Span {
    let span_id = |n: u8| if n == 0 { SpanId::default() } else { SpanId([n; 8]) };
    Span {
        id: span_id(id),
        parent: span_id(parent),
        start: u64::from(id),
        end: 100,
        status: Status::Unset,
        remote_parent: false,
        has_verdict: false,
        forwarded: false,
        skew: 0,
        bytes: Bytes::from(vec![id, parent]),
        envelope: Arc::new(Envelope::default()),
    }
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// An assembler, and a clock in seconds from `start`.
struct Bench {
    assembler: Assembler,
    start: Instant,
}

impl Bench {
    fn new(close: Close) -> Bench {
        Bench { assembler: Assembler::new(close), start: Instant::now() }
    }

    fn add(&mut self, at: u64, spans: impl IntoIterator<Item = Span>) -> SpanTally {
        let spans: Vec<Span> = spans.into_iter().collect();
        let size = spans.iter().map(|s| s.bytes.len()).sum();
        self.assembler.add(T, spans, size, |_| Some("shop".to_owned()), self.start + secs(at))
    }

    fn poll(&mut self, at: u64) -> Vec<(CloseReason, usize, bool)> {
        let closed = self.assembler.poll(self.start + secs(at));
        closed.iter().map(|c| (c.close_reason, c.spans.len(), c.incomplete)).collect()
    }
}

#[test]
fn complete_trace_closes_after_quiet_time() {
    let mut bench = Bench::new(Close::default());
    bench.add(0, [span(2, 1)]);
    assert_eq!(bench.poll(60), []);
    bench.add(61, [span(1, 0)]);
    assert_eq!(bench.poll(70), []);
    assert_eq!(bench.poll(71), [(CloseReason::Complete, 2, false)]);
    assert_eq!((bench.assembler.bytes(), bench.assembler.spans(), bench.assembler.traces()), (0, 0, 0));
}

#[test]
fn a_second_batch_within_quiet_is_not_late() {
    let mut bench = Bench::new(Close::default());
    bench.add(0, [span(1, 0)]);
    assert_eq!(bench.add(5, [span(2, 1)]), SpanTally { accepted: 1, duplicates: 0, late: 0 });
    assert_eq!(bench.poll(10), []);
    assert_eq!(bench.poll(15), [(CloseReason::Complete, 2, false)]);
}

#[test]
fn log_record_extends_the_quiet_time() {
    let mut bench = Bench::new(Close::default());
    bench.add(0, [span(1, 0)]);
    let log = AttachedLog { span: SpanId([1; 8]), record: Bytes::from_static(b"log") };
    bench.assembler.attach(T, log, bench.start + secs(9));
    assert_eq!(bench.poll(11), []);
    assert_eq!(bench.poll(19), [(CloseReason::Complete, 1, false)]);
}

#[test]
fn trace_without_root_closes_when_idle_as_incomplete() {
    let mut bench = Bench::new(Close::default());
    bench.add(0, [span(3, 2), span(2, 1)]);
    assert_eq!(bench.poll(299), []);
    assert_eq!(bench.poll(300), [(CloseReason::Idle, 2, true)]);
}

#[test]
fn missing_remote_parent_uses_remote_idle() {
    let mut bench = Bench::new(Close::default());
    let mut agent = span(2, 1);
    agent.remote_parent = true;
    bench.add(0, [agent, span(3, 2)]);
    assert_eq!(bench.poll(29), []);
    assert_eq!(bench.poll(30), [(CloseReason::RemoteIdle, 2, true)]);
}

#[test]
fn root_without_end_time_keeps_the_trace_open() {
    let mut bench = Bench::new(Close::default());
    let mut root = span(1, 0);
    root.end = 0;
    bench.add(0, [root]);
    assert_eq!(bench.poll(299), []);
    assert_eq!(bench.poll(300), [(CloseReason::Idle, 1, true)]);
}

#[test]
fn max_age_closes_a_busy_trace() {
    let mut bench = Bench::new(Close::default());
    for minute in 0..60 {
        bench.add(minute * 60, [span(minute as u8 + 2, 1)]);
        assert_eq!(bench.poll(minute * 60), []);
    }
    assert_eq!(bench.poll(3600), [(CloseReason::MaxAge, 60, true)]);
}

#[test]
fn caps_close_at_once() {
    let mut bench = Bench::new(Close { max_spans: 2, ..Close::default() });
    bench.add(0, [span(2, 1), span(3, 1)]);
    assert_eq!(bench.poll(0), [(CloseReason::MaxSpans, 2, true)]);
    let mut bench = Bench::new(Close { max_bytes: Size(4), ..Close::default() });
    bench.add(0, [span(2, 1), span(3, 1)]);
    assert_eq!(bench.poll(0), [(CloseReason::MaxBytes, 2, true)]);
}

#[test]
fn exact_resends_are_dropped_and_spans_with_equal_ids_are_kept() {
    let mut bench = Bench::new(Close::default());
    let mut twin = span(2, 1);
    twin.bytes = Bytes::from_static(b"other");
    assert_eq!(bench.add(0, [span(2, 1), span(2, 1)]), SpanTally { accepted: 1, duplicates: 1, late: 0 });
    assert_eq!(bench.add(1, [twin.clone(), twin]), SpanTally { accepted: 1, duplicates: 1, late: 0 });
    bench.add(2, [span(1, 0)]);
    assert_eq!(bench.poll(12), [(CloseReason::Complete, 3, false)]);
}

#[test]
fn late_spans_are_forwarded_with_the_previous_verdict() {
    let mut bench = Bench::new(Close::default());
    bench.add(0, [span(1, 0)]);
    assert_eq!(bench.poll(10).len(), 1);
    let verdict = PriorVerdict { passed: Some(true), revision: 1 };
    bench.assembler.remember(T, verdict);
    assert_eq!(bench.add(11, [span(2, 1)]), SpanTally { accepted: 1, duplicates: 0, late: 1 });
    let closed = bench.assembler.poll(bench.start + secs(11));
    assert_eq!((closed[0].close_reason, closed[0].prior_verdict), (CloseReason::Late, Some(verdict)));
}

#[test]
fn closed_traces_are_forgotten_oldest_first() {
    let mut assembler = Assembler::new(Close { remember: 2, ..Close::default() });
    for n in 1..=3 {
        assembler.remember(TraceId([n; 16]), PriorVerdict::default());
    }
    assert_eq!((assembler.closed.len(), assembler.closed_by_age.len()), (2, 2));
    assert!(!assembler.closed.contains_key(&TraceId([1; 16])));
}

#[test]
fn by_service_overrides_apply() {
    let service_override = Override { quiet: Some(Period::secs(1)), ..Override::default() };
    let close = Close { by_service: [("shop".to_owned(), service_override)].into(), ..Close::default() };
    let mut bench = Bench::new(close);
    bench.add(0, [span(1, 0)]);
    assert_eq!(bench.poll(1), [(CloseReason::Complete, 1, false)]);
}

#[test]
fn shutdown_closes_all_in_order_of_age() {
    let mut assembler = Assembler::new(Close::default());
    let now = Instant::now();
    for n in [3u8, 1, 2] {
        assembler.add(TraceId([n; 16]), [span(1, 0)], 2, |_| None, now + secs(u64::from(n)));
    }
    let ids: Vec<TraceId> = assembler.close_all(CloseReason::Shutdown).iter().map(|c| c.trace).collect();
    assert_eq!(ids, [TraceId([1; 16]), TraceId([2; 16]), TraceId([3; 16])]);
    assert_eq!(assembler.next_deadline(), None);
}

#[test]
fn logs_without_spans_expire() {
    let mut bench = Bench::new(Close::default());
    let log = AttachedLog { span: SpanId([1; 8]), record: Bytes::from_static(b"log") };
    bench.assembler.attach(T, log, bench.start);
    assert_eq!(bench.poll(300), []);
    assert_eq!((bench.assembler.bytes(), bench.assembler.traces()), (0, 0));
}

#[test]
fn memory_pressure_closes_the_largest_idle_traces_first() {
    let mut assembler = Assembler::new(Close::default());
    let now = Instant::now();
    for (n, size) in [(1u8, 10), (2, 500), (3, 100), (4, 9000)] {
        let at = if n == 4 { now + secs(60) } else { now };
        assembler.add(TraceId([n; 16]), [span(2, 1)], size, |_| None, at);
    }
    let closed = assembler.close_early(500 + SPAN_OVERHEAD + 50, now + secs(60));
    let ids: Vec<(TraceId, CloseReason)> = closed.iter().map(|c| (c.trace, c.close_reason)).collect();
    // The fourth is the largest, but spans of it are still arriving.
    assert_eq!(ids, [(TraceId([2; 16]), CloseReason::Pressure), (TraceId([3; 16]), CloseReason::Pressure)]);
    assert_eq!((assembler.traces(), assembler.bytes()), (2, 9010));
}

#[test]
fn early_closing_examines_closed_traces_and_not_all_open_ones() {
    const OPEN: usize = 20_000;
    let mut assembler = Assembler::new(Close::default());
    let start = Instant::now();
    let id = |n: usize| TraceId((n as u128 + 1).to_be_bytes());
    for n in 0..OPEN {
        assembler.add(id(n), [span(2, 1)], 1 + n % 997, |_| None, start);
    }
    idle::EXAMINED.set(0);
    let mut closed = Vec::new();
    for turn in 0..1_000 {
        // A busy trace is no candidate, and is not examined in each turn.
        assembler.add(id(OPEN + 1), [span(2, 1)], 100_000, |_| None, start + secs(1));
        closed.extend(assembler.close_early(1, start + secs(1) + Duration::from_millis(turn / 2)));
    }
    assert_eq!(closed.len(), 1_000);
    let sizes: Vec<usize> = closed.iter().map(|closed| closed.bytes).collect();
    assert!(sizes.is_sorted_by(|a, b| a >= b) && sizes[0] == 997, "the largest first: {sizes:?}");
    assert!(idle::EXAMINED.get() <= OPEN + 2 * 1_000, "{} of {OPEN}", idle::EXAMINED.get());
    // A trace with new spans is no candidate until it is idle again.
    let next = (0..OPEN).find(|n| assembler.is_open(id(*n)) && n % 997 == 500).unwrap();
    let now = start + secs(3);
    assembler.add(id(next), [span(3, 1)], 5_000, |_| None, now);
    assert!(!assembler.close_early(1, now).iter().any(|closed| closed.trace == id(next)));
    let closed: Vec<TraceId> =
        assembler.close_early(100_000, now + secs(2)).iter().map(|c| c.trace).collect();
    assert_eq!(closed[..1], [id(next)]);
}

#[test]
fn shared_allocation_is_charged_completely() {
    let mut assembler = Assembler::new(Close::default());
    let now = Instant::now();
    let add = |assembler: &mut Assembler, spans: Vec<Span>| assembler.add(T, spans, 1000, |_| None, now);
    add(&mut assembler, vec![span(2, 1)]);
    assert_eq!(assembler.bytes(), 1000);
    // A request of resends alone is not charged; one with a new span is charged completely.
    add(&mut assembler, vec![span(2, 1)]);
    assert_eq!(assembler.bytes(), 1000);
    add(&mut assembler, vec![span(2, 1), span(3, 1)]);
    assert_eq!(assembler.bytes(), 2000);
}

#[test]
fn envelope_bytes_are_counted_once_per_trace() {
    let mut bench = Bench::new(Close::default());
    let huge = Arc::new(Envelope { resource: vec![0; 1000].into(), ..Envelope::default() });
    let under = |id| Span { envelope: Arc::clone(&huge), ..span(id, 1) };
    bench.add(0, [under(2), under(3)]);
    assert_eq!(bench.assembler.bytes(), 1000 + 2 * 2);
    bench.poll(3600);
    assert_eq!(bench.assembler.bytes(), 0);
}

#[test]
fn closed_trace_reports_its_charged_bytes() {
    let mut bench = Bench::new(Close::default());
    let huge = Arc::new(Envelope { resource: vec![0; 1000].into(), ..Envelope::default() });
    let under = |id| Span { envelope: Arc::clone(&huge), ..span(id, 1) };
    let (start, size) = (bench.start, 500);
    bench.assembler.add(T, [under(2), under(3)], size, |_| None, start);
    let log = AttachedLog { span: SpanId([2; 8]), record: Bytes::from(vec![0; 10_000]) };
    bench.assembler.attach(T, log, start);
    let open = bench.assembler.bytes();
    assert_eq!(open, 500 + 1000 + 10_000);
    let snapshot = bench.assembler.snapshot(T).map(|snapshot| snapshot.bytes);
    let closed: Vec<usize> = bench.assembler.poll(start + secs(300)).iter().map(|c| c.bytes).collect();
    assert_eq!((snapshot, closed), (Some(open), vec![open]));
    // Late spans are charged with their shared allocation and their envelopes.
    bench.assembler.add(T, [under(4)], size, |_| None, start + secs(301));
    let late: Vec<usize> = bench.assembler.poll(start + secs(301)).iter().map(|c| c.bytes).collect();
    assert_eq!((late, bench.assembler.bytes()), (vec![500 + 1000], 0));
}

#[test]
fn early_closing_counts_span_overhead() {
    let mut assembler = Assembler::new(Close::default());
    let now = Instant::now();
    assembler.add(TraceId([1; 16]), (2..52).map(|id| span(id, 1)), 100, |_| None, now);
    assembler.add(TraceId([2; 16]), [span(2, 1)], 1000, |_| None, now);
    let closed = assembler.close_early(5000, now + secs(60));
    let ids: Vec<TraceId> = closed.iter().map(|c| c.trace).collect();
    assert_eq!(ids, [TraceId([1; 16])], "many small spans take more than one large one");
}

#[test]
fn equal_bytes_under_another_resource_are_another_span() {
    let mut bench = Bench::new(Close::default());
    let other = Arc::new(Envelope { resource: b"other".to_vec().into(), ..Envelope::default() });
    let span_with_other_resource = Span { envelope: other, ..span(1, 0) };
    let sent = [span(1, 0), span_with_other_resource.clone(), span(1, 0), span_with_other_resource];
    assert_eq!(bench.add(0, sent), SpanTally { accepted: 2, duplicates: 2, late: 0 });
}

#[test]
fn large_resource_of_many_scopes_is_charged_once_and_not_compared_by_content() {
    const SCOPES: u32 = 2_000;
    let mut bench = Bench::new(Close::default());
    let resource = EnvelopeFields::from(vec![1; 1 << 20]);
    let before = work::counted();
    let spans: Vec<Span> = (0..SCOPES)
        .map(|n| {
            let scope = EnvelopeFields::from(n.to_be_bytes().to_vec());
            Span { envelope: Arc::new(Envelope { resource: resource.clone(), scope }), ..span(1, 0) }
        })
        .collect();
    // The same spans again, from a request with a copy of the resource.
    let copy = EnvelopeFields::from(vec![1; 1 << 20]);
    let copies = spans.iter().map(|span| {
        let scope = span.envelope.scope.clone();
        Span { envelope: Arc::new(Envelope { resource: copy.clone(), scope }), ..span.clone() }
    });
    let sent: Vec<Span> = spans.iter().cloned().chain(copies).collect();
    assert_eq!(
        bench.add(0, sent),
        SpanTally { accepted: SCOPES as usize, duplicates: SCOPES as usize, late: 0 }
    );
    let work = work::counted() - before;
    assert!(work <= (1 << 20) + 64 * u64::from(SCOPES), "{work} bytes hashed or compared");
    assert_eq!(bench.assembler.bytes(), (1 << 20) + SCOPES as usize * (4 + 2 * 2));
}

#[test]
fn parent_is_local_if_any_child_is_local() {
    for local_first in [true, false] {
        let mut bench = Bench::new(Close::default());
        let remote = Span { remote_parent: true, ..span(3, 9) };
        let mut both = [remote, span(2, 9)];
        if local_first {
            both.reverse();
        }
        bench.add(0, both);
        assert_eq!(bench.poll(31), []);
        assert_eq!(bench.poll(300), [(CloseReason::Idle, 2, true)]);
    }
}

#[test]
fn unlimited_waits_do_not_overflow() {
    let mut bench = Bench::new(Close { max_age: Period(Duration::MAX), ..Close::default() });
    bench.add(0, [span(1, 0)]);
    assert_eq!(bench.poll(10), [(CloseReason::Complete, 1, false)]);
}

#[test]
fn preview_of_a_grown_and_quiet_trace_leaves_it_open() {
    let mut bench = Bench::new(Close::default());
    let grown = |bench: &mut Bench, at: u64| -> Vec<usize> {
        let now = bench.start + secs(at);
        bench.assembler.traces_to_preview(now, 10).iter().map(|c| c.spans.len()).collect()
    };
    bench.add(0, (2..10).map(|id| span(id, 1)));
    assert_eq!(grown(&mut bench, 0), [] as [usize; 0], "more may follow at once");
    assert_eq!(grown(&mut bench, 1), [8]);
    assert_eq!(grown(&mut bench, 2), [] as [usize; 0], "nothing is new");
    bench.add(3, [span(10, 1), span(11, 1)]);
    assert_eq!(grown(&mut bench, 4), [] as [usize; 0], "two more of eight are less than a quarter");
    bench.add(5, [span(1, 0)]);
    assert_eq!(grown(&mut bench, 6), [11]);
    assert_eq!(grown(&mut bench, 7), [] as [usize; 0]);
    bench.assembler.end_previews();
    bench.add(8, (12..30).map(|id| span(id, 1)));
    assert_eq!(grown(&mut bench, 9), [29], "a trace that has grown while there were no previews");
    assert_eq!(bench.poll(60), [(CloseReason::Complete, 29, false)]);
}

#[test]
fn previews_take_a_few_of_many_traces_and_none_twice() {
    let mut assembler = Assembler::new(Close::default());
    let start = Instant::now();
    assert_eq!(assembler.traces_to_preview(start, 1).len(), 0);
    let id = |n: u8| TraceId([n; 16]);
    (1..=9).for_each(|n| _ = assembler.add(id(n), [span(2, 1)], 10, |_| None, start));
    let mut previewed = BTreeSet::new();
    for n in 1..=4 {
        // The first has new spans all the time.
        assembler.add(id(1), [span(2 + n, 1)], 10, |_| None, start + secs(1));
        let previews = assembler.traces_to_preview(start + secs(1), 2);
        assert_eq!(previews.len(), 2);
        previewed.extend(previews.iter().map(|closed| closed.trace));
    }
    assert_eq!((previewed.len(), previewed.contains(&id(1))), (8, false));
    assert_eq!(assembler.traces_to_preview(start + secs(2), 9).len(), 1);
    let closed = assembler.close_all(CloseReason::Shutdown);
    assert_eq!((closed.len(), assembler.traces_to_preview(start + secs(9), 9).len()), (9, 0));
}

/// A trace without its root whose two spans contain the same conversation, its bytes, and the time in seconds from
/// which it is compressed.
fn idle_trace(close: Close) -> (Bench, Vec<Bytes>, u64) {
    let mut bench = Bench { assembler: Assembler::new(close).with_compression(), start: Instant::now() };
    let name = b"\x2a\x04chat";
    let conversation: Vec<u8> = (0..10_000u32).flat_map(u32::to_le_bytes).collect();
    let spans = [2, 3].map(|id| {
        let bytes = Bytes::from([&name[..], &[0x32, 0xc0, 0xb8, 0x02], &conversation, &[id]].concat());
        Span { bytes, ..span(id, 1) }
    });
    let bytes = spans.iter().map(|span| span.bytes.clone()).collect();
    bench.add(0, spans);
    bench.poll(2);
    (bench, bytes, compressed::IDLE_TIME.as_secs() + 1)
}

impl Bench {
    fn compress(&mut self, at: u64) -> usize {
        self.assembler.compress_idle(1 << 20, self.start + secs(at));
        self.uncompressed_bytes()
    }

    /// Bytes of the open trace's spans that are not compressed.
    fn uncompressed_bytes(&self) -> usize {
        self.assembler
            .open
            .get(&T)
            .into_iter()
            .flat_map(|open| &open.spans)
            .map(|span| span.bytes.len())
            .sum()
    }
}

#[test]
fn an_idle_trace_is_compressed_and_closes_with_the_same_bytes() {
    let (mut bench, expected, at) = idle_trace(Close::default());
    let (charged, span_bytes) =
        (bench.assembler.bytes(), |spans: Vec<Span>| spans.into_iter().map(|s| s.bytes).collect());
    let all: usize = expected.iter().map(Bytes::len).sum();
    assert_eq!(bench.compress(at - 2), all);
    assert_eq!(bench.compress(at), 0);
    assert_eq!(bench.assembler.bytes(), charged);
    let listed = bench.assembler.latest(1, bench.start + secs(at));
    assert_eq!((listed[0].name.as_str(), listed[0].spans), ("chat", 2));
    let snapshot: Vec<Bytes> = span_bytes(bench.assembler.snapshot(T).unwrap().spans);
    assert_eq!(snapshot, expected);
    assert_eq!(bench.uncompressed_bytes(), 0);
    bench.add(at, [span(1, 0)]);
    let closed: Vec<Bytes> = span_bytes(bench.assembler.poll(bench.start + secs(at + 10)).remove(0).spans);
    assert_eq!(closed[..2], expected[..]);
    assert_eq!((closed[2].as_ref(), bench.assembler.bytes()), (&[1, 0][..], 0));
}

#[test]
fn a_resend_of_a_compressed_span_is_dropped() {
    let (mut bench, expected, at) = idle_trace(Close::default());
    bench.compress(at);
    let resent = Span { bytes: expected[1].clone(), ..span(3, 1) };
    assert_eq!(bench.add(at, [resent]).duplicates, 1);
    assert_eq!(bench.add(at, [span(3, 1)]).accepted, 1);
    assert_eq!(
        bench.assembler.snapshot(T).unwrap().spans.iter().map(|s| s.bytes.clone()).collect::<Vec<_>>()[..2],
        expected[..]
    );
}

#[test]
fn a_trace_that_closes_soon_or_is_busy_is_not_compressed() {
    let (mut bench, expected, at) = idle_trace(Close { idle: Period::secs(15), ..Close::default() });
    let all: usize = expected.iter().map(Bytes::len).sum();
    assert_eq!(bench.compress(at), all);
    let (mut bench, _, at) = idle_trace(Close::default());
    bench.add(at - 3, [span(4, 1)]);
    bench.poll(at);
    assert_eq!(bench.compress(at), all + 2);
    bench.poll(at + 8);
    assert_eq!(bench.compress(at + 8), 0);
}

#[test]
fn compression_continues_with_the_next_poll_and_is_due_until_it_is_complete() {
    let (mut bench, expected, at) = idle_trace(Close::default());
    let now = bench.start + secs(at);
    assert!(bench.assembler.next_deadline() < Some(now));
    bench.assembler.compress_idle(1, now);
    assert_eq!((bench.uncompressed_bytes(), bench.assembler.next_deadline()), (0, Some(now)));
    bench.assembler.compress_idle(1, now);
    assert!(bench.assembler.next_deadline() > Some(now));
    assert_eq!(bench.assembler.close_all(CloseReason::Shutdown)[0].spans[1].bytes, expected[1]);
}
