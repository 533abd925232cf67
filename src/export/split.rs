//! Splits requests that are too large for the destination at item boundaries.
//!
//! In: an encoded `Export*ServiceRequest` of any signal: all three nest the same way (resource
//! groups in field 1, scope groups in their field 2, items in field 2 of those). Out: valid requests
//! up to a size, with the items unchanged, in order, under their resource and scope. An item above
//! that size is sent alone.

use bytes::{Bytes, BytesMut};
use verdict_otlp::{Fields, Payload, Piece, Signal, metrics};

/// Field of a request that holds resource groups.
const GROUPS: u32 = 1;
/// Field of a resource group that holds scope groups, and of a scope group that holds items.
const CHILDREN: u32 = 2;
/// Tag and longest length (a `u32`) of a nested message.
const NESTING: usize = 6;

/// Splits `request` into pieces of at most `max` bytes. An invalid request is returned unchanged; the
/// destination decides about it.
pub(super) fn split(signal: Signal, request: &Bytes, max: usize) -> Vec<Piece> {
    let mut splitter = Splitter { signal, max, open: Vec::new(), size: 0, filled: false, pieces: Vec::new() };
    match splitter.request(request) {
        Some(()) => {
            splitter.flush();
            splitter.pieces
        }
        None => vec![Piece { bytes: request.clone(), items: count(signal, request) }],
    }
}

/// Number of items in an encoded request: spans, log records or data points.
pub(super) fn count(signal: Signal, request: &[u8]) -> u64 {
    let groups = nested(request, GROUPS);
    let scopes = groups.flat_map(|group| nested(group, CHILDREN));
    scopes.flat_map(|scope| nested(scope, CHILDREN)).map(|item| item_count(signal, item)).sum()
}

fn nested(message: &[u8], number: u32) -> impl Iterator<Item = &[u8]> {
    Fields::new(message).map_while(Result::ok).filter_map(move |field| match field.payload {
        Payload::Bytes(bytes) if field.number == number => Some(bytes),
        _ => None,
    })
}

/// A metric counts as its data points.
fn item_count(signal: Signal, item: &[u8]) -> u64 {
    if signal == Signal::Metrics { metrics::points(item).unwrap_or(0) } else { 1 }
}

/// A resource group of the current piece.
struct Group<'a> {
    envelope: Vec<&'a [u8]>,
    scopes: Vec<Scope<'a>>,
}

struct Scope<'a> {
    envelope: Vec<&'a [u8]>,
    /// Whole fields, tags included.
    items: Vec<&'a [u8]>,
    count: u64,
}

struct Splitter<'a> {
    signal: Signal,
    max: usize,
    open: Vec<Group<'a>>,
    size: usize,
    /// Whether the current piece holds an item.
    filled: bool,
    pieces: Vec<Piece>,
}

fn len(fields: &[&[u8]]) -> usize {
    fields.iter().map(|f| f.len()).sum()
}

/// The fields of a message except `number`, each with its tag, and the contents of field `number`.
fn separate(message: &[u8], number: u32) -> Option<(Vec<&[u8]>, Vec<Nested<'_>>)> {
    let mut envelope = Vec::new();
    let mut inner = Vec::new();
    for field in Fields::new(message) {
        let field = field.ok()?;
        let whole = message.get(field.start..field.end)?;
        match field.payload {
            Payload::Bytes(bytes) if field.number == number => inner.push(Nested { whole, bytes }),
            _ => envelope.push(whole),
        }
    }
    Some((envelope, inner))
}

struct Nested<'a> {
    whole: &'a [u8],
    bytes: &'a [u8],
}

impl<'a> Splitter<'a> {
    fn request(&mut self, request: &'a [u8]) -> Option<()> {
        for group in separate(request, GROUPS)?.1 {
            let (resource, scopes) = separate(group.bytes, CHILDREN)?;
            self.open_group(&resource);
            for scope in scopes {
                let (scope, items) = separate(scope.bytes, CHILDREN)?;
                self.open_scope(&resource, &scope);
                for item in items {
                    self.item(&resource, &scope, &item);
                }
            }
        }
        Some(())
    }

    fn open_group(&mut self, resource: &[&'a [u8]]) {
        let size = len(resource) + NESTING;
        if !self.open.is_empty() && self.size + size > self.max {
            self.flush();
        }
        self.size += size;
        self.open.push(Group { envelope: resource.to_vec(), scopes: Vec::new() });
    }

    fn open_scope(&mut self, resource: &[&'a [u8]], scope: &[&'a [u8]]) {
        let size = len(scope) + NESTING;
        if self.filled && self.size + size > self.max {
            self.drop_empty();
            self.flush();
            self.open_group(resource);
        }
        self.size += size;
        if let Some(group) = self.open.last_mut() {
            group.scopes.push(Scope { envelope: scope.to_vec(), items: Vec::new(), count: 0 });
        }
    }

    fn item(&mut self, resource: &[&'a [u8]], scope: &[&'a [u8]], item: &Nested<'a>) {
        if self.filled && self.size + item.whole.len() > self.max {
            self.drop_empty();
            self.flush();
            self.open_group(resource);
            self.open_scope(resource, scope);
        }
        self.size += item.whole.len();
        self.filled = true;
        if let Some(open) = self.open.last_mut().and_then(|group| group.scopes.last_mut()) {
            open.items.push(item.whole);
            open.count += item_count(self.signal, item.bytes);
        }
    }

    /// Drops the last groups if they are empty: the next piece opens them again.
    fn drop_empty(&mut self) {
        if let Some(group) = self.open.last_mut() {
            group.scopes.pop_if(|scope| scope.items.is_empty());
        }
        self.open.pop_if(|group| group.scopes.is_empty());
    }

    fn flush(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let mut out = BytesMut::with_capacity(self.size);
        let mut items = 0;
        for group in self.open.drain(..) {
            let scope_len = |scope: &Scope<'_>| len(&scope.envelope) + len(&scope.items);
            let inner: usize = group.scopes.iter().map(|s| nested_len(scope_len(s))).sum();
            open(&mut out, GROUPS, len(&group.envelope) + inner);
            group.envelope.iter().for_each(|field| out.extend_from_slice(field));
            for scope in &group.scopes {
                open(&mut out, CHILDREN, scope_len(scope));
                scope.envelope.iter().chain(&scope.items).for_each(|field| out.extend_from_slice(field));
                items += scope.count;
            }
        }
        self.size = 0;
        self.filled = false;
        self.pieces.push(Piece { bytes: out.freeze(), items });
    }
}

/// Size of a nested message of `len` bytes, tag and length included.
fn nested_len(len: usize) -> usize {
    1 + prost::encoding::encoded_len_varint(len as u64) + len
}

fn open(out: &mut BytesMut, number: u32, len: usize) {
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

    /// (resource, scope, name length) of every span, in order.
    type Plan = Vec<(u8, u8, usize)>;

    fn request(plan: &Plan) -> ExportTraceServiceRequest {
        let mut request = ExportTraceServiceRequest::default();
        for (i, (resource, scope, name)) in plan.iter().enumerate() {
            let value = Some(AnyValue { value: Some(any_value::Value::IntValue((*resource).into())) });
            let attributes = vec![KeyValue { key: "r".into(), value, ..Default::default() }];
            let wanted = Some(Resource { attributes, ..Default::default() });
            if request.resource_spans.last().is_none_or(|r| r.resource != wanted) {
                let schema_url = format!("https://schema/{resource}");
                request.resource_spans.push(ResourceSpans {
                    resource: wanted,
                    schema_url,
                    scope_spans: vec![],
                });
            }
            let group = &mut request.resource_spans.last_mut().unwrap().scope_spans;
            let wanted = Some(InstrumentationScope { name: format!("s{scope}"), ..Default::default() });
            if group.last().is_none_or(|s| s.scope != wanted) {
                let schema_url = format!("https://scope/{scope}");
                group.push(ScopeSpans { scope: wanted, schema_url, spans: vec![] });
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
    fn flat(request: &ExportTraceServiceRequest) -> Vec<(Option<Resource>, String, String, Span)> {
        let mut all = Vec::new();
        for r in &request.resource_spans {
            for s in &r.scope_spans {
                let around = format!("{} {:?}", s.schema_url, s.scope);
                all.extend(
                    s.spans
                        .iter()
                        .map(|span| (r.resource.clone(), r.schema_url.clone(), around.clone(), span.clone())),
                );
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
            let mut seen = Vec::new();
            for piece in &pieces {
                let decoded = ExportTraceServiceRequest::decode(piece.bytes.clone()).unwrap();
                let spans = flat(&decoded);
                prop_assert_eq!(spans.len() as u64, piece.items);
                prop_assert_eq!(piece.items, count(Signal::Traces, &piece.bytes));
                prop_assert!(piece.bytes.len() <= max || spans.len() == 1);
                prop_assert!(!spans.is_empty());
                seen.extend(spans);
            }
            prop_assert_eq!(seen, flat(&whole));
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
}
