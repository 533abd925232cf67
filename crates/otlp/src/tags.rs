//! Tags of OTLP's fields. @generated from proto/otlp.proto by json/generate.rs.
//!
//! A tag is a field's number and wire type as they are encoded; bit `n` of `DEFINED` is set for
//! field `n` of the message.

// Only some of the messages are read.
#![allow(dead_code)]

pub(crate) mod export_trace_service_request {
    pub(crate) const DEFINED: u32 = 0b10;
    pub(crate) const RESOURCE_SPANS: u32 = 0x0a;
}

pub(crate) mod export_logs_service_request {
    pub(crate) const DEFINED: u32 = 0b10;
    pub(crate) const RESOURCE_LOGS: u32 = 0x0a;
}

pub(crate) mod export_metrics_service_request {
    pub(crate) const DEFINED: u32 = 0b10;
    pub(crate) const RESOURCE_METRICS: u32 = 0x0a;
}

pub(crate) mod any_value {
    pub(crate) const DEFINED: u32 = 0b111111110;
    pub(crate) const STRING_VALUE: u32 = 0x0a;
    pub(crate) const BOOL_VALUE: u32 = 0x10;
    pub(crate) const INT_VALUE: u32 = 0x18;
    pub(crate) const DOUBLE_VALUE: u32 = 0x21;
    pub(crate) const ARRAY_VALUE: u32 = 0x2a;
    pub(crate) const KVLIST_VALUE: u32 = 0x32;
    pub(crate) const BYTES_VALUE: u32 = 0x3a;
    pub(crate) const STRING_VALUE_STRINDEX: u32 = 0x40;
}

pub(crate) mod array_value {
    pub(crate) const DEFINED: u32 = 0b10;
    pub(crate) const VALUES: u32 = 0x0a;
}

pub(crate) mod key_value_list {
    pub(crate) const DEFINED: u32 = 0b10;
    pub(crate) const VALUES: u32 = 0x0a;
}

pub(crate) mod key_value {
    pub(crate) const DEFINED: u32 = 0b1110;
    pub(crate) const KEY: u32 = 0x0a;
    pub(crate) const VALUE: u32 = 0x12;
    pub(crate) const KEY_STRINDEX: u32 = 0x18;
}

pub(crate) mod instrumentation_scope {
    pub(crate) const DEFINED: u32 = 0b11110;
    pub(crate) const NAME: u32 = 0x0a;
    pub(crate) const VERSION: u32 = 0x12;
    pub(crate) const ATTRIBUTES: u32 = 0x1a;
    pub(crate) const DROPPED_ATTRIBUTES_COUNT: u32 = 0x20;
}

pub(crate) mod resource {
    pub(crate) const DEFINED: u32 = 0b1110;
    pub(crate) const ATTRIBUTES: u32 = 0x0a;
    pub(crate) const DROPPED_ATTRIBUTES_COUNT: u32 = 0x10;
    pub(crate) const ENTITY_REFS: u32 = 0x1a;
}

pub(crate) mod entity_ref {
    pub(crate) const DEFINED: u32 = 0b11110;
    pub(crate) const SCHEMA_URL: u32 = 0x0a;
    pub(crate) const TYPE: u32 = 0x12;
    pub(crate) const ID_KEYS: u32 = 0x1a;
    pub(crate) const DESCRIPTION_KEYS: u32 = 0x22;
}

pub(crate) mod resource_spans {
    pub(crate) const DEFINED: u32 = 0b1110;
    pub(crate) const RESOURCE: u32 = 0x0a;
    pub(crate) const SCOPE_SPANS: u32 = 0x12;
    pub(crate) const SCHEMA_URL: u32 = 0x1a;
}

pub(crate) mod scope_spans {
    pub(crate) const DEFINED: u32 = 0b1110;
    pub(crate) const SCOPE: u32 = 0x0a;
    pub(crate) const SPANS: u32 = 0x12;
    pub(crate) const SCHEMA_URL: u32 = 0x1a;
}

pub(crate) mod span {
    pub(crate) const DEFINED: u32 = 0b11111111111111110;
    pub(crate) const TRACE_ID: u32 = 0x0a;
    pub(crate) const SPAN_ID: u32 = 0x12;
    pub(crate) const TRACE_STATE: u32 = 0x1a;
    pub(crate) const PARENT_SPAN_ID: u32 = 0x22;
    pub(crate) const NAME: u32 = 0x2a;
    pub(crate) const KIND: u32 = 0x30;
    pub(crate) const START_TIME_UNIX_NANO: u32 = 0x39;
    pub(crate) const END_TIME_UNIX_NANO: u32 = 0x41;
    pub(crate) const ATTRIBUTES: u32 = 0x4a;
    pub(crate) const DROPPED_ATTRIBUTES_COUNT: u32 = 0x50;
    pub(crate) const EVENTS: u32 = 0x5a;
    pub(crate) const DROPPED_EVENTS_COUNT: u32 = 0x60;
    pub(crate) const LINKS: u32 = 0x6a;
    pub(crate) const DROPPED_LINKS_COUNT: u32 = 0x70;
    pub(crate) const STATUS: u32 = 0x7a;
    pub(crate) const FLAGS: u32 = 0x85;
}

pub(crate) mod span_link {
    pub(crate) const DEFINED: u32 = 0b1111110;
    pub(crate) const TRACE_ID: u32 = 0x0a;
    pub(crate) const SPAN_ID: u32 = 0x12;
    pub(crate) const TRACE_STATE: u32 = 0x1a;
    pub(crate) const ATTRIBUTES: u32 = 0x22;
    pub(crate) const DROPPED_ATTRIBUTES_COUNT: u32 = 0x28;
    pub(crate) const FLAGS: u32 = 0x35;
}

pub(crate) mod span_event {
    pub(crate) const DEFINED: u32 = 0b11110;
    pub(crate) const TIME_UNIX_NANO: u32 = 0x09;
    pub(crate) const NAME: u32 = 0x12;
    pub(crate) const ATTRIBUTES: u32 = 0x1a;
    pub(crate) const DROPPED_ATTRIBUTES_COUNT: u32 = 0x20;
}

pub(crate) mod status {
    pub(crate) const DEFINED: u32 = 0b1100;
    pub(crate) const MESSAGE: u32 = 0x12;
    pub(crate) const CODE: u32 = 0x18;
}

pub(crate) mod resource_logs {
    pub(crate) const DEFINED: u32 = 0b1110;
    pub(crate) const RESOURCE: u32 = 0x0a;
    pub(crate) const SCOPE_LOGS: u32 = 0x12;
    pub(crate) const SCHEMA_URL: u32 = 0x1a;
}

pub(crate) mod scope_logs {
    pub(crate) const DEFINED: u32 = 0b1110;
    pub(crate) const SCOPE: u32 = 0x0a;
    pub(crate) const LOG_RECORDS: u32 = 0x12;
    pub(crate) const SCHEMA_URL: u32 = 0x1a;
}

pub(crate) mod log_record {
    pub(crate) const DEFINED: u32 = 0b1111111101110;
    pub(crate) const TIME_UNIX_NANO: u32 = 0x09;
    pub(crate) const SEVERITY_NUMBER: u32 = 0x10;
    pub(crate) const SEVERITY_TEXT: u32 = 0x1a;
    pub(crate) const BODY: u32 = 0x2a;
    pub(crate) const ATTRIBUTES: u32 = 0x32;
    pub(crate) const DROPPED_ATTRIBUTES_COUNT: u32 = 0x38;
    pub(crate) const FLAGS: u32 = 0x45;
    pub(crate) const TRACE_ID: u32 = 0x4a;
    pub(crate) const SPAN_ID: u32 = 0x52;
    pub(crate) const OBSERVED_TIME_UNIX_NANO: u32 = 0x59;
    pub(crate) const EVENT_NAME: u32 = 0x62;
}

pub(crate) mod resource_metrics {
    pub(crate) const DEFINED: u32 = 0b1110;
    pub(crate) const RESOURCE: u32 = 0x0a;
    pub(crate) const SCOPE_METRICS: u32 = 0x12;
    pub(crate) const SCHEMA_URL: u32 = 0x1a;
}

pub(crate) mod scope_metrics {
    pub(crate) const DEFINED: u32 = 0b1110;
    pub(crate) const SCOPE: u32 = 0x0a;
    pub(crate) const METRICS: u32 = 0x12;
    pub(crate) const SCHEMA_URL: u32 = 0x1a;
}

pub(crate) mod metric {
    pub(crate) const DEFINED: u32 = 0b1111010101110;
    pub(crate) const NAME: u32 = 0x0a;
    pub(crate) const DESCRIPTION: u32 = 0x12;
    pub(crate) const UNIT: u32 = 0x1a;
    pub(crate) const GAUGE: u32 = 0x2a;
    pub(crate) const SUM: u32 = 0x3a;
    pub(crate) const HISTOGRAM: u32 = 0x4a;
    pub(crate) const EXPONENTIAL_HISTOGRAM: u32 = 0x52;
    pub(crate) const SUMMARY: u32 = 0x5a;
    pub(crate) const METADATA: u32 = 0x62;
}

pub(crate) mod gauge {
    pub(crate) const DEFINED: u32 = 0b10;
    pub(crate) const DATA_POINTS: u32 = 0x0a;
}

pub(crate) mod sum {
    pub(crate) const DEFINED: u32 = 0b1110;
    pub(crate) const DATA_POINTS: u32 = 0x0a;
    pub(crate) const AGGREGATION_TEMPORALITY: u32 = 0x10;
    pub(crate) const IS_MONOTONIC: u32 = 0x18;
}

pub(crate) mod histogram {
    pub(crate) const DEFINED: u32 = 0b110;
    pub(crate) const DATA_POINTS: u32 = 0x0a;
    pub(crate) const AGGREGATION_TEMPORALITY: u32 = 0x10;
}

pub(crate) mod exponential_histogram {
    pub(crate) const DEFINED: u32 = 0b110;
    pub(crate) const DATA_POINTS: u32 = 0x0a;
    pub(crate) const AGGREGATION_TEMPORALITY: u32 = 0x10;
}

pub(crate) mod summary {
    pub(crate) const DEFINED: u32 = 0b10;
    pub(crate) const DATA_POINTS: u32 = 0x0a;
}

pub(crate) mod number_data_point {
    pub(crate) const DEFINED: u32 = 0b111111100;
    pub(crate) const START_TIME_UNIX_NANO: u32 = 0x11;
    pub(crate) const TIME_UNIX_NANO: u32 = 0x19;
    pub(crate) const AS_DOUBLE: u32 = 0x21;
    pub(crate) const AS_INT: u32 = 0x31;
    pub(crate) const EXEMPLARS: u32 = 0x2a;
    pub(crate) const ATTRIBUTES: u32 = 0x3a;
    pub(crate) const FLAGS: u32 = 0x40;
}

pub(crate) mod histogram_data_point {
    pub(crate) const DEFINED: u32 = 0b1111111111100;
    pub(crate) const START_TIME_UNIX_NANO: u32 = 0x11;
    pub(crate) const TIME_UNIX_NANO: u32 = 0x19;
    pub(crate) const COUNT: u32 = 0x21;
    pub(crate) const SUM: u32 = 0x29;
    pub(crate) const BUCKET_COUNTS: u32 = 0x32;
    pub(crate) const EXPLICIT_BOUNDS: u32 = 0x3a;
    pub(crate) const EXEMPLARS: u32 = 0x42;
    pub(crate) const ATTRIBUTES: u32 = 0x4a;
    pub(crate) const FLAGS: u32 = 0x50;
    pub(crate) const MIN: u32 = 0x59;
    pub(crate) const MAX: u32 = 0x61;
}

pub(crate) mod exponential_histogram_data_point {
    pub(crate) const DEFINED: u32 = 0b111111111111110;
    pub(crate) const ATTRIBUTES: u32 = 0x0a;
    pub(crate) const START_TIME_UNIX_NANO: u32 = 0x11;
    pub(crate) const TIME_UNIX_NANO: u32 = 0x19;
    pub(crate) const COUNT: u32 = 0x21;
    pub(crate) const SUM: u32 = 0x29;
    pub(crate) const SCALE: u32 = 0x30;
    pub(crate) const ZERO_COUNT: u32 = 0x39;
    pub(crate) const POSITIVE: u32 = 0x42;
    pub(crate) const NEGATIVE: u32 = 0x4a;
    pub(crate) const FLAGS: u32 = 0x50;
    pub(crate) const EXEMPLARS: u32 = 0x5a;
    pub(crate) const MIN: u32 = 0x61;
    pub(crate) const MAX: u32 = 0x69;
    pub(crate) const ZERO_THRESHOLD: u32 = 0x71;
}

pub(crate) mod exponential_histogram_data_point_buckets {
    pub(crate) const DEFINED: u32 = 0b110;
    pub(crate) const OFFSET: u32 = 0x08;
    pub(crate) const BUCKET_COUNTS: u32 = 0x12;
}

pub(crate) mod summary_data_point {
    pub(crate) const DEFINED: u32 = 0b111111100;
    pub(crate) const START_TIME_UNIX_NANO: u32 = 0x11;
    pub(crate) const TIME_UNIX_NANO: u32 = 0x19;
    pub(crate) const COUNT: u32 = 0x21;
    pub(crate) const SUM: u32 = 0x29;
    pub(crate) const QUANTILE_VALUES: u32 = 0x32;
    pub(crate) const ATTRIBUTES: u32 = 0x3a;
    pub(crate) const FLAGS: u32 = 0x40;
}

pub(crate) mod summary_data_point_value_at_quantile {
    pub(crate) const DEFINED: u32 = 0b110;
    pub(crate) const QUANTILE: u32 = 0x09;
    pub(crate) const VALUE: u32 = 0x11;
}

pub(crate) mod exemplar {
    pub(crate) const DEFINED: u32 = 0b11111100;
    pub(crate) const TIME_UNIX_NANO: u32 = 0x11;
    pub(crate) const AS_DOUBLE: u32 = 0x19;
    pub(crate) const AS_INT: u32 = 0x31;
    pub(crate) const SPAN_ID: u32 = 0x22;
    pub(crate) const TRACE_ID: u32 = 0x2a;
    pub(crate) const FILTERED_ATTRIBUTES: u32 = 0x3a;
}
