//! Splits requests that are too large for the destination at item boundaries.
//!
//! In: an encoded `Export*ServiceRequest` of any signal. All three have the same structure: resource groups in field 1,
//! scope groups in field 2 of these, items in field 2 of those. Out: valid requests up to a size, with the items
//! unchanged, in order, under their resource and scope. An item above that size is sent alone, and items of a large
//! resource or scope are sent together ([`request_limit`]).

#[cfg(feature = "kafka")]
use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
#[cfg(feature = "kafka")]
use verdict_otlp::trace::TraceId;
use verdict_otlp::write::request_limit;
use verdict_otlp::{Fields, Payload, Piece, Signal, metrics};

/// Number of the field of a request that contains resource groups.
const GROUPS_FIELD: u32 = 1;
/// Number of the field of a resource group that contains scope groups, and of a scope group that contains items.
const CHILDREN_FIELD: u32 = 2;
/// Maximum bytes of the tag and the length (a `u32`) of a nested message.
const MAX_NESTING_BYTES: usize = 6;

/// Maximum total of the pieces of one request that is split by trace, since a large resource is copied for each trace.
/// Above it the request is not split by trace. Batches with resources of usual size are far below it.
#[cfg(feature = "kafka")]
const MAX_TOTAL_BY_TRACE: usize = 128 << 20;

/// Splits `request` into pieces of at most `max_bytes`. An invalid request, or one without items, is returned
/// unchanged, so that the destination accepts or refuses it.
pub(super) fn split(signal: Signal, request: &Bytes, max_bytes: usize) -> Vec<Piece> {
    let Some(parsed) = ParsedRequest::read(signal, request).filter(|parsed| !parsed.items.is_empty()) else {
        return vec![Piece { bytes: request.clone(), items: count(signal, request) }];
    };
    parsed.pieces(&parsed.items, max_bytes)
}

/// Splits `request` into pieces of one trace each, of at most `max_bytes`. Data points, and items without a trace id,
/// are in pieces without a trace. A small request of one trace is not copied.
#[cfg(feature = "kafka")]
pub(super) fn split_by_trace(
    signal: Signal,
    request: &Bytes,
    max_bytes: usize,
) -> Vec<(Option<TraceId>, Piece)> {
    let trace_id_field = match signal {
        Signal::Traces => 1,
        Signal::Logs => 9,
        Signal::Metrics => 0,
    };
    let trace_of = |item: &EncodedItem<'_>| {
        let id = Fields::new(item.content).contents(trace_id_field).last().and_then(|id| id.try_into().ok());
        id.map(TraceId).filter(|id| !id.is_zero())
    };
    let parsed = ParsedRequest::read(signal, request).unwrap_or_default();
    let first = parsed.items.first().and_then(trace_of);
    if request.len() <= max_bytes && parsed.items.iter().all(|item| trace_of(item) == first) {
        return vec![(first, Piece { bytes: request.clone(), items: count(signal, request) })];
    }
    let mut by_trace: BTreeMap<Option<TraceId>, Vec<EncodedItem<'_>>> = BTreeMap::new();
    let mut total = 0;
    for item in parsed.items.iter() {
        let trace_items = by_trace.entry(trace_of(item)).or_default();
        total += parsed.added(trace_items.last(), item);
        trace_items.push(*item);
    }
    if total > MAX_TOTAL_BY_TRACE.max(request.len()) {
        return parsed.pieces(&parsed.items, max_bytes).into_iter().map(|piece| (None, piece)).collect();
    }
    let pieces = |(trace, items): (Option<TraceId>, Vec<EncodedItem<'_>>)| {
        parsed.pieces(&items, max_bytes).into_iter().map(move |piece| (trace, piece)).collect::<Vec<_>>()
    };
    by_trace.into_iter().flat_map(pieces).collect()
}

/// The number of items in an encoded request: spans, log records or data points.
pub(super) fn count(signal: Signal, request: &[u8]) -> u64 {
    let children = |message| Fields::new(message).contents(CHILDREN_FIELD);
    let groups = Fields::new(request).contents(GROUPS_FIELD);
    groups.flat_map(children).flat_map(children).map(|item| item_count(signal, item)).sum()
}

/// The number of items for which a child of a scope group counts: a metric counts as its data points.
fn item_count(signal: Signal, item: &[u8]) -> u64 {
    if signal == Signal::Metrics { metrics::points(item).unwrap_or(0) } else { 1 }
}

/// Whole fields, tags included.
type RawFields<'a> = Vec<&'a [u8]>;

/// A nested message: the whole field, and its content.
type Nested<'a> = (&'a [u8], &'a [u8]);

/// The items of a request in order, and the fields of their resource and scope groups.
#[derive(Default)]
struct ParsedRequest<'a> {
    items: Vec<EncodedItem<'a>>,
    /// The fields of each resource group except its scope groups.
    groups: Vec<RawFields<'a>>,
    /// The fields of each scope group except its items.
    scopes: Vec<RawFields<'a>>,
}

/// One span, log record or metric.
#[derive(Clone, Copy)]
struct EncodedItem<'a> {
    /// Index in [`ParsedRequest::groups`].
    group: usize,
    /// Index in [`ParsedRequest::scopes`].
    scope: usize,
    /// The whole field, tag included.
    field: &'a [u8],
    #[cfg(feature = "kafka")]
    content: &'a [u8],
    count: u64,
}

/// The bytes of some fields.
fn total_len(fields: &[&[u8]]) -> usize {
    fields.iter().map(|f| f.len()).sum()
}

/// The fields of a message without those of `number`, and the nested messages of that number; `None` if the message is
/// invalid.
fn separate(message: &[u8], number: u32) -> Option<(RawFields<'_>, Vec<Nested<'_>>)> {
    let mut others = Vec::new();
    let mut nested = Vec::new();
    for field in Fields::new(message) {
        let field = field.ok()?;
        let whole = message.get(field.start..field.end)?;
        match field.payload {
            Payload::Bytes(bytes) if field.number == number => nested.push((whole, bytes)),
            _ => others.push(whole),
        }
    }
    Some((others, nested))
}

impl<'a> ParsedRequest<'a> {
    /// `None` if the request is not valid.
    fn read(signal: Signal, request: &'a [u8]) -> Option<ParsedRequest<'a>> {
        let mut out = ParsedRequest::default();
        for (_, group) in separate(request, GROUPS_FIELD)?.1 {
            let (resource, scopes) = separate(group, CHILDREN_FIELD)?;
            for (_, scope) in scopes {
                let (scope, items) = separate(scope, CHILDREN_FIELD)?;
                let (group, index) = (out.groups.len(), out.scopes.len());
                out.items.extend(items.into_iter().map(|(field, item)| EncodedItem {
                    group,
                    scope: index,
                    field,
                    #[cfg(feature = "kafka")]
                    content: item,
                    count: item_count(signal, item),
                }));
                out.scopes.push(scope);
            }
            out.groups.push(resource);
        }
        Some(out)
    }

    /// Requests of at most `max_bytes` with these items.
    fn pieces(&self, items: &[EncodedItem<'_>], max_bytes: usize) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let (mut start, mut size) = (0, 0);
        let limit_from =
            |item: &EncodedItem<'_>| request_limit(self.added(None, item) - item.field.len(), max_bytes);
        let mut limit = items.first().map_or(max_bytes, limit_from);
        for (i, item) in items.iter().enumerate() {
            let added = self.added(items[start..i].last(), item);
            if i > start && size + added > limit {
                pieces.push(self.piece(&items[start..i], size));
                (start, size) = (i, self.added(None, item));
                limit = limit_from(item);
            } else {
                size += added;
            }
        }
        pieces.push(self.piece(&items[start..], size));
        pieces
    }

    /// The maximum number of bytes that `item` adds to a piece after `previous`.
    fn added(&self, previous: Option<&EncodedItem<'_>>, item: &EncodedItem<'_>) -> usize {
        let envelope_bytes = |fields: &[&[u8]], is_shared: bool| {
            if is_shared { 0 } else { total_len(fields) + MAX_NESTING_BYTES }
        };
        envelope_bytes(&self.groups[item.group], previous.is_some_and(|p| p.group == item.group))
            + envelope_bytes(&self.scopes[item.scope], previous.is_some_and(|p| p.scope == item.scope))
            + item.field.len()
    }

    /// A request with these items under their resources and scopes.
    fn piece(&self, items: &[EncodedItem<'_>], capacity: usize) -> Piece {
        let scope_len = |scope: &[EncodedItem<'_>]| {
            total_len(&self.scopes[scope[0].scope]) + scope.iter().map(|item| item.field.len()).sum::<usize>()
        };
        let mut out = BytesMut::with_capacity(capacity);
        for group in items.chunk_by(|a, b| a.group == b.group) {
            let scopes = || group.chunk_by(|a, b| a.scope == b.scope);
            let resource = &self.groups[group[0].group];
            let scopes_len: usize = scopes().map(|scope| nested_len(scope_len(scope))).sum();
            push_nested_header(&mut out, GROUPS_FIELD, total_len(resource) + scopes_len);
            resource.iter().for_each(|field| out.extend_from_slice(field));
            for scope in scopes() {
                push_nested_header(&mut out, CHILDREN_FIELD, scope_len(scope));
                let fields = self.scopes[scope[0].scope].iter().copied();
                fields
                    .chain(scope.iter().map(|item| item.field))
                    .for_each(|field| out.extend_from_slice(field));
            }
        }
        Piece { bytes: out.freeze(), items: items.iter().map(|item| item.count).sum() }
    }
}

/// Size of a nested message of `len` bytes, tag and length included.
fn nested_len(len: usize) -> usize {
    1 + prost::encoding::encoded_len_varint(len as u64) + len
}

/// Appends the tag and the length of a nested message.
fn push_nested_header(out: &mut BytesMut, number: u32, len: usize) {
    prost::encoding::encode_key(number, prost::encoding::WireType::LengthDelimited, out);
    prost::encoding::encode_varint(len as u64, out);
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
    use opentelemetry_proto::tonic::resource::v1::Resource;
    use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
    use proptest::prelude::*;
    use prost::Message;

    use super::*;

    /// The resource, the scope and the length of the name of every span, in order.
    type SpanPlan = Vec<(u8, u8, usize)>;

    fn request(plan: &SpanPlan) -> ExportTraceServiceRequest {
        let mut request = ExportTraceServiceRequest::default();
        for (i, (resource, scope, name)) in plan.iter().enumerate() {
            let value = Some(AnyValue { value: Some(any_value::Value::IntValue((*resource).into())) });
            let attributes = vec![KeyValue { key: "r".into(), value, ..Default::default() }];
            let planned_resource = Some(Resource { attributes, ..Default::default() });
            if request.resource_spans.last().is_none_or(|r| r.resource != planned_resource) {
                let schema_url = format!("https://schema/{resource}");
                request.resource_spans.push(ResourceSpans {
                    resource: planned_resource,
                    schema_url,
                    scope_spans: vec![],
                });
            }
            let group = &mut request.resource_spans.last_mut().unwrap().scope_spans;
            let planned_scope =
                Some(InstrumentationScope { name: format!("s{scope}"), ..Default::default() });
            if group.last().is_none_or(|s| s.scope != planned_scope) {
                let schema_url = format!("https://scope/{scope}");
                group.push(ScopeSpans { scope: planned_scope, schema_url, spans: vec![] });
            }
            let span = Span {
                span_id: (i as u64).to_be_bytes().into(),
                name: "n".repeat(*name),
                ..Default::default()
            };
            group.last_mut().unwrap().spans.push(span);
        }
        request
    }

    /// Every span with its resource and scope, in order.
    fn flattened(request: &ExportTraceServiceRequest) -> Vec<(Option<Resource>, String, String, Span)> {
        let mut all = Vec::new();
        for r in &request.resource_spans {
            for s in &r.scope_spans {
                let scope_text = format!("{} {:?}", s.schema_url, s.scope);
                all.extend(s.spans.iter().map(|span| {
                    (r.resource.clone(), r.schema_url.clone(), scope_text.clone(), span.clone())
                }));
            }
        }
        all
    }

    proptest! {
        #[test]
        fn split_preserves_every_span_within_the_size_limit(
            plan in proptest::collection::vec((0u8..3, 0u8..3, 0usize..300), 1..60),
            max in 1usize..2000,
        ) {
            let whole = request(&plan);
            let bytes = Bytes::from(whole.encode_to_vec());
            let pieces = split(Signal::Traces, &bytes, max);
            let mut split_spans = Vec::new();
            for piece in &pieces {
                let decoded = ExportTraceServiceRequest::decode(piece.bytes.clone()).unwrap();
                let spans = flattened(&decoded);
                prop_assert_eq!(spans.len() as u64, piece.items);
                prop_assert_eq!(piece.items, count(Signal::Traces, &piece.bytes));
                prop_assert!(piece.bytes.len() <= max || spans.len() == 1);
                prop_assert!(!spans.is_empty());
                split_spans.extend(spans);
            }
            prop_assert_eq!(split_spans, flattened(&whole));
        }

        #[test]
        fn arbitrary_bytes_split_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), max in 1usize..64) {
            let bytes = Bytes::from(bytes);
            for signal in [Signal::Traces, Signal::Logs, Signal::Metrics] {
                let _ = (split(signal, &bytes, max), count(signal, &bytes));
            }
        }
    }

    #[test]
    fn half_the_size_always_separates_two_spans() {
        let bytes = Bytes::from(request(&vec![(0, 0, 10), (0, 0, 2)]).encode_to_vec());
        assert_eq!(split(Signal::Traces, &bytes, bytes.len() / 2).len(), 2);
        let alone = Bytes::from(request(&vec![(0, 0, 10)]).encode_to_vec());
        assert_eq!(split(Signal::Traces, &alone, 1).len(), 1);
    }

    #[test]
    fn large_resource_is_copied_for_a_bounded_share_of_the_items() {
        use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
        let attribute = |len: usize| KeyValue {
            key: "r".into(),
            value: Some(AnyValue { value: Some(any_value::Value::StringValue("r".repeat(len))) }),
            ..Default::default()
        };
        for (resource, records) in [(5 << 20, 10_000), (3_900 << 10, 500_000)] {
            let scope = ScopeLogs { log_records: vec![LogRecord::default(); records], ..Default::default() };
            let resource = Resource { attributes: vec![attribute(resource)], ..Default::default() };
            let group =
                ResourceLogs { resource: Some(resource), scope_logs: vec![scope], ..Default::default() };
            let logs = ExportLogsServiceRequest { resource_logs: vec![group] };
            let bytes = Bytes::from(logs.encode_to_vec());
            let check = |pieces: Vec<Piece>, factor: usize| {
                let written: usize = pieces.iter().map(|piece| piece.bytes.len()).sum();
                println!("{written} bytes written of {}", bytes.len());
                assert!(written <= factor * bytes.len(), "{written} bytes written of {}", bytes.len());
                assert_eq!(pieces.iter().map(|piece| piece.items).sum::<u64>(), records as u64);
            };
            check(split(Signal::Logs, &bytes, 4 << 20), 3);
            // After a refusal of the whole request, each record is not sent with its own copy of the resource.
            check(split(Signal::Logs, &bytes, bytes.len() / 2), 3);
            #[cfg(feature = "kafka")]
            {
                let mut logs = logs.clone();
                let all = &mut logs.resource_logs[0].scope_logs[0].log_records;
                all.truncate(10_000);
                for (n, record) in all.iter_mut().enumerate() {
                    record.trace_id = (n as u128 + 1).to_be_bytes().into();
                }
                let bytes = Bytes::from(logs.encode_to_vec());
                let pieces = split_by_trace(Signal::Logs, &bytes, 1 << 20);
                let written: usize = pieces.iter().map(|(_, piece)| piece.bytes.len()).sum();
                assert!(written <= MAX_TOTAL_BY_TRACE, "{written} bytes");
                assert_eq!(pieces.iter().map(|(_, piece)| piece.items).sum::<u64>(), 10_000);
            }
        }
    }

    #[test]
    fn log_records_and_data_points_are_counted() {
        use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
        use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
        use opentelemetry_proto::tonic::metrics::v1::{
            Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, metric::Data,
        };
        let scope = ScopeLogs { log_records: vec![LogRecord::default(); 3], ..Default::default() };
        let group = ResourceLogs { scope_logs: vec![scope], ..Default::default() };
        let logs = ExportLogsServiceRequest { resource_logs: vec![group] };
        assert_eq!(count(Signal::Logs, &logs.encode_to_vec()), 3);

        let gauge = Gauge { data_points: vec![NumberDataPoint::default(); 4] };
        let metric = Metric { data: Some(Data::Gauge(gauge)), ..Default::default() };
        let scope = ScopeMetrics { metrics: vec![metric.clone(), metric], ..Default::default() };
        let group = ResourceMetrics { scope_metrics: vec![scope], ..Default::default() };
        let metrics = ExportMetricsServiceRequest { resource_metrics: vec![group] }.encode_to_vec();
        assert_eq!(count(Signal::Metrics, &metrics), 8);
        let pieces = split(Signal::Metrics, &Bytes::from(metrics), 1);
        assert_eq!(pieces.iter().map(|p| p.items).collect::<Vec<_>>(), [4, 4]);
    }

    #[cfg(feature = "kafka")]
    #[test]
    fn items_are_split_by_trace_and_none_is_changed() {
        let mut all = request(&(0..40).map(|i| (i / 9, i / 4, usize::from(i) * 3)).collect());
        let spans = all.resource_spans.iter_mut().flat_map(|r| &mut r.scope_spans).flat_map(|s| &mut s.spans);
        for (i, span) in spans.enumerate() {
            span.trace_id = if i % 7 == 0 { Vec::new() } else { vec![1 + i as u8 % 3; 16] };
        }
        let bytes: Bytes = all.encode_to_vec().into();
        for max in [1, 300, usize::MAX] {
            let mut split_spans = Vec::new();
            for (trace, piece) in split_by_trace(Signal::Traces, &bytes, max) {
                let request = ExportTraceServiceRequest::decode(piece.bytes).unwrap();
                let spans: Vec<Span> = request
                    .resource_spans
                    .into_iter()
                    .flat_map(|r| r.scope_spans)
                    .flat_map(|s| s.spans)
                    .collect();
                assert_eq!(spans.len() as u64, piece.items);
                let expected_id = trace.map(|trace| trace.0.to_vec()).unwrap_or_default();
                assert!(spans.iter().all(|span| span.trace_id == expected_id));
                split_spans.extend(spans);
            }
            split_spans.sort_by(|a, b| a.span_id.cmp(&b.span_id));
            let sent = all.resource_spans.iter().flat_map(|r| &r.scope_spans).flat_map(|s| s.spans.clone());
            assert_eq!(split_spans, sent.collect::<Vec<_>>(), "{max}");
        }
        // A request of one trace is not copied.
        let one = split_by_trace(Signal::Traces, &bytes, 1).remove(1).1.bytes;
        assert_eq!(split_by_trace(Signal::Traces, &one, 1000)[0].1.bytes.as_ptr(), one.as_ptr());
    }
}
