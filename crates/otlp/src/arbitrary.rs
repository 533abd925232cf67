//! Generators for tests: arbitrary trace requests, built with opentelemetry-proto, and unknown fields that
//! are inserted at any level of a message.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, EntityRef, InstrumentationScope, KeyValue, KeyValueList,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{Event, Link};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use proptest::collection::vec;
use proptest::prelude::*;

use super::{Fields, Payload, write};

/// Any value, nested a few levels. No NaN: it would not equal itself.
pub(crate) fn any_value() -> impl Strategy<Value = AnyValue> {
    let leaf = prop_oneof![
        1 => Just(None),
        4 => ".{0,40}".prop_map(|s| Some(Value::StringValue(s))),
        1 => any::<bool>().prop_map(|b| Some(Value::BoolValue(b))),
        2 => any::<i64>().prop_map(|i| Some(Value::IntValue(i))),
        2 => (proptest::num::f64::NORMAL | proptest::num::f64::ZERO | proptest::num::f64::INFINITE)
            .prop_map(|d| Some(Value::DoubleValue(d))),
        1 => vec(any::<u8>(), 0..20).prop_map(|b| Some(Value::BytesValue(b))),
    ]
    .prop_map(|value| AnyValue { value });
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(|values| Value::ArrayValue(ArrayValue { values })),
            vec(key_value(inner), 0..4).prop_map(|values| Value::KvlistValue(KeyValueList { values })),
        ]
        .prop_map(|value| AnyValue { value: Some(value) })
    })
}

fn key_value(value: impl Strategy<Value = AnyValue>) -> impl Strategy<Value = KeyValue> {
    ("(gen_ai|verdict|input)\\.[a-z]{1,8}|.{0,8}", proptest::option::of(value))
        .prop_map(|(key, value)| KeyValue { key, value, key_strindex: 0 })
}

pub(crate) fn attributes() -> impl Strategy<Value = Vec<KeyValue>> {
    vec(key_value(any_value()), 0..5)
}

fn id<const N: usize>() -> impl Strategy<Value = Vec<u8>> {
    any::<[u8; N]>()
        .prop_map(|id| id.to_vec())
        .prop_filter("zero ids are invalid", |id| id.iter().any(|&b| b > 0))
}

fn event() -> impl Strategy<Value = Event> {
    (any::<u64>(), ".{0,12}", attributes(), any::<u32>()).prop_map(
        |(time_unix_nano, name, attributes, dropped_attributes_count)| Event {
            time_unix_nano,
            name,
            attributes,
            dropped_attributes_count,
        },
    )
}

fn link() -> impl Strategy<Value = Link> {
    (id::<16>(), id::<8>(), ".{0,8}", attributes(), any::<u32>(), any::<u32>()).prop_map(
        |(trace_id, span_id, trace_state, attributes, dropped_attributes_count, flags)| Link {
            trace_id,
            span_id,
            trace_state,
            attributes,
            dropped_attributes_count,
            flags,
        },
    )
}

/// A span of one of five traces, so that several spans of a request belong to the same trace.
pub(crate) fn span() -> impl Strategy<Value = Span> {
    let ids = (0..5u8, id::<8>(), proptest::option::of(id::<8>()), ".{0,8}", any::<u32>());
    let name_to_attributes = (".{0,20}", 0..9i32, any::<u64>(), any::<u64>(), attributes());
    let status = proptest::option::of((".{0,12}", -1..4i32));
    let dropped_to_status = (any::<[u32; 3]>(), vec(event(), 0..3), vec(link(), 0..3), status);
    (ids, name_to_attributes, dropped_to_status).prop_map(
        |(ids, fields, (dropped, events, links, status))| Span {
            trace_id: vec![ids.0 + 1; 16],
            span_id: ids.1,
            parent_span_id: ids.2.unwrap_or_default(),
            trace_state: ids.3,
            flags: ids.4,
            name: fields.0,
            kind: fields.1,
            start_time_unix_nano: fields.2,
            end_time_unix_nano: fields.3,
            attributes: fields.4,
            dropped_attributes_count: dropped[0],
            events,
            dropped_events_count: dropped[1],
            links,
            dropped_links_count: dropped[2],
            status: status.map(|(message, code)| Status { message, code }),
        },
    )
}

fn scope_spans() -> impl Strategy<Value = ScopeSpans> {
    let scope = (".{0,8}", "[0-9.]{0,4}", attributes(), any::<u32>()).prop_map(
        |(name, version, attributes, dropped_attributes_count)| InstrumentationScope {
            name,
            version,
            attributes,
            dropped_attributes_count,
        },
    );
    (proptest::option::of(scope), vec(span(), 0..5), ".{0,8}")
        .prop_map(|(scope, spans, schema_url)| ScopeSpans { scope, spans, schema_url })
}

fn resource() -> impl Strategy<Value = Resource> {
    let entity = (".{0,8}", ".{0,8}", vec(".{0,8}", 0..3), vec(".{0,8}", 0..3)).prop_map(
        |(schema_url, r#type, id_keys, description_keys)| EntityRef {
            schema_url,
            r#type,
            id_keys,
            description_keys,
        },
    );
    (attributes(), any::<u32>(), vec(entity, 0..2)).prop_map(
        |(attributes, dropped_attributes_count, entity_refs)| Resource {
            attributes,
            dropped_attributes_count,
            entity_refs,
        },
    )
}

/// A request with several resources and scopes.
pub(crate) fn request() -> impl Strategy<Value = ExportTraceServiceRequest> {
    let resource_spans = (proptest::option::of(resource()), vec(scope_spans(), 0..3), ".{0,8}")
        .prop_map(|(resource, scope_spans, schema_url)| ResourceSpans { resource, scope_spans, schema_url });
    vec(resource_spans, 0..4).prop_map(|resource_spans| ExportTraceServiceRequest { resource_spans })
}

/// A pseudorandom number generator: one seed determines all choices of a test.
pub(crate) struct SplitMix64(pub(crate) u64);

impl SplitMix64 {
    /// A number below `bound`.
    pub(crate) fn next_below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % bound
    }
}

/// The message types of a trace request.
#[derive(Clone, Copy)]
pub(crate) enum MessageType {
    Request,
    ResourceSpans,
    Resource,
    ScopeSpans,
    Scope,
    Span,
    Event,
    Link,
    Status,
    KeyValue,
    AnyValue,
    Array,
    Map,
    Entity,
}

impl MessageType {
    /// The type of the messages in field `number`; `None` if it contains no messages.
    fn nested(self, number: u32) -> Option<MessageType> {
        Some(match (self, number) {
            (MessageType::Request, 1) => MessageType::ResourceSpans,
            (MessageType::ResourceSpans, 1) => MessageType::Resource,
            (MessageType::ResourceSpans, 2) => MessageType::ScopeSpans,
            (MessageType::ScopeSpans, 1) => MessageType::Scope,
            (MessageType::ScopeSpans, 2) => MessageType::Span,
            (MessageType::Resource, 3) => MessageType::Entity,
            (MessageType::Span, 11) => MessageType::Event,
            (MessageType::Span, 13) => MessageType::Link,
            (MessageType::Span, 15) => MessageType::Status,
            (MessageType::Resource, 1)
            | (MessageType::Scope | MessageType::Event, 3)
            | (MessageType::Span, 9) => MessageType::KeyValue,
            (MessageType::Link, 4) | (MessageType::Map, 1) => MessageType::KeyValue,
            (MessageType::KeyValue, 2) | (MessageType::Array, 1) => MessageType::AnyValue,
            (MessageType::AnyValue, 5) => MessageType::Array,
            (MessageType::AnyValue, 6) => MessageType::Map,
            _ => return None,
        })
    }
}

/// Copies a message and inserts fields that OTLP does not define between its fields, at every level except
/// the request itself.
pub(crate) fn with_unknown_fields(
    encoded: &[u8],
    message_type: MessageType,
    rng: &mut SplitMix64,
) -> Vec<u8> {
    let mut out = Vec::new();
    for field in Fields::new(encoded) {
        let field = field.unwrap();
        unknown_field(message_type, rng, &mut out);
        match (message_type.nested(field.number), field.payload) {
            (Some(nested), Payload::Bytes(b)) => {
                write::bytes(&mut out, field.number, &with_unknown_fields(b, nested, rng));
            }
            _ => out.extend_from_slice(&encoded[field.start..field.end]),
        }
    }
    unknown_field(message_type, rng, &mut out);
    out
}

pub(crate) fn fixed32(out: &mut Vec<u8>, number: u32, value: u32) {
    write::varint(out, u64::from(number) << 3 | 5);
    out.extend_from_slice(&value.to_le_bytes());
}

fn unknown_field(message_type: MessageType, rng: &mut SplitMix64, out: &mut Vec<u8>) {
    if matches!(message_type, MessageType::Request) || rng.next_below(4) > 0 {
        return;
    }
    let number = [17, 31, 32, 100, 5_000, 0x1fff_ffff][rng.next_below(6) as usize];
    match rng.next_below(4) {
        0 => write::integer(out, number, rng.next_below(u64::MAX)),
        1 => write::fixed64(out, number, rng.next_below(u64::MAX)),
        2 => fixed32(out, number, rng.next_below(1 << 32) as u32),
        _ => write::bytes(out, number, &vec![0xff; rng.next_below(300) as usize]),
    }
}
