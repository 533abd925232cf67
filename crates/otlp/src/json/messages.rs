//! OTLP's messages as data. @generated from proto/otlp.proto by generate.rs.

use super::table::{FieldDescriptor, FieldKind, MessageDescriptor};

pub(crate) static EXPORT_TRACE_SERVICE_REQUEST: MessageDescriptor = MessageDescriptor {
    name: "ExportTraceServiceRequest",
    fields: &[
        FieldDescriptor { number: 1, json: "resourceSpans", snake: "resource_spans", repeated: true, oneof: false, kind: FieldKind::Message(&RESOURCE_SPANS) },
    ],
};

pub(crate) static EXPORT_LOGS_SERVICE_REQUEST: MessageDescriptor = MessageDescriptor {
    name: "ExportLogsServiceRequest",
    fields: &[
        FieldDescriptor { number: 1, json: "resourceLogs", snake: "resource_logs", repeated: true, oneof: false, kind: FieldKind::Message(&RESOURCE_LOGS) },
    ],
};

pub(crate) static EXPORT_METRICS_SERVICE_REQUEST: MessageDescriptor = MessageDescriptor {
    name: "ExportMetricsServiceRequest",
    fields: &[
        FieldDescriptor { number: 1, json: "resourceMetrics", snake: "resource_metrics", repeated: true, oneof: false, kind: FieldKind::Message(&RESOURCE_METRICS) },
    ],
};

pub(crate) static ANY_VALUE: MessageDescriptor = MessageDescriptor {
    name: "AnyValue",
    fields: &[
        FieldDescriptor { number: 1, json: "stringValue", snake: "string_value", repeated: false, oneof: true, kind: FieldKind::String },
        FieldDescriptor { number: 2, json: "boolValue", snake: "bool_value", repeated: false, oneof: true, kind: FieldKind::Bool },
        FieldDescriptor { number: 3, json: "intValue", snake: "int_value", repeated: false, oneof: true, kind: FieldKind::Int64 },
        FieldDescriptor { number: 4, json: "doubleValue", snake: "double_value", repeated: false, oneof: true, kind: FieldKind::Double },
        FieldDescriptor { number: 5, json: "arrayValue", snake: "array_value", repeated: false, oneof: true, kind: FieldKind::Message(&ARRAY_VALUE) },
        FieldDescriptor { number: 6, json: "kvlistValue", snake: "kvlist_value", repeated: false, oneof: true, kind: FieldKind::Message(&KEY_VALUE_LIST) },
        FieldDescriptor { number: 7, json: "bytesValue", snake: "bytes_value", repeated: false, oneof: true, kind: FieldKind::Bytes },
        FieldDescriptor { number: 8, json: "stringValueStrindex", snake: "string_value_strindex", repeated: false, oneof: true, kind: FieldKind::Int32 },
    ],
};

pub(crate) static ARRAY_VALUE: MessageDescriptor = MessageDescriptor {
    name: "ArrayValue",
    fields: &[
        FieldDescriptor { number: 1, json: "values", snake: "values", repeated: true, oneof: false, kind: FieldKind::Message(&ANY_VALUE) },
    ],
};

pub(crate) static KEY_VALUE_LIST: MessageDescriptor = MessageDescriptor {
    name: "KeyValueList",
    fields: &[
        FieldDescriptor { number: 1, json: "values", snake: "values", repeated: true, oneof: false, kind: FieldKind::Message(&KEY_VALUE) },
    ],
};

pub(crate) static KEY_VALUE: MessageDescriptor = MessageDescriptor {
    name: "KeyValue",
    fields: &[
        FieldDescriptor { number: 1, json: "key", snake: "key", repeated: false, oneof: false, kind: FieldKind::String },
        FieldDescriptor { number: 2, json: "value", snake: "value", repeated: false, oneof: false, kind: FieldKind::Message(&ANY_VALUE) },
        FieldDescriptor { number: 3, json: "keyStrindex", snake: "key_strindex", repeated: false, oneof: false, kind: FieldKind::Int32 },
    ],
};

pub(crate) static INSTRUMENTATION_SCOPE: MessageDescriptor = MessageDescriptor {
    name: "InstrumentationScope",
    fields: &[
        FieldDescriptor { number: 1, json: "name", snake: "name", repeated: false, oneof: false, kind: FieldKind::String },
        FieldDescriptor { number: 2, json: "version", snake: "version", repeated: false, oneof: false, kind: FieldKind::String },
        FieldDescriptor { number: 3, json: "attributes", snake: "attributes", repeated: true, oneof: false, kind: FieldKind::Message(&KEY_VALUE) },
        FieldDescriptor { number: 4, json: "droppedAttributesCount", snake: "dropped_attributes_count", repeated: false, oneof: false, kind: FieldKind::Uint32 },
    ],
};

pub(crate) static RESOURCE: MessageDescriptor = MessageDescriptor {
    name: "Resource",
    fields: &[
        FieldDescriptor { number: 1, json: "attributes", snake: "attributes", repeated: true, oneof: false, kind: FieldKind::Message(&KEY_VALUE) },
        FieldDescriptor { number: 2, json: "droppedAttributesCount", snake: "dropped_attributes_count", repeated: false, oneof: false, kind: FieldKind::Uint32 },
        FieldDescriptor { number: 3, json: "entityRefs", snake: "entity_refs", repeated: true, oneof: false, kind: FieldKind::Message(&ENTITY_REF) },
    ],
};

pub(crate) static ENTITY_REF: MessageDescriptor = MessageDescriptor {
    name: "EntityRef",
    fields: &[
        FieldDescriptor { number: 1, json: "schemaUrl", snake: "schema_url", repeated: false, oneof: false, kind: FieldKind::String },
        FieldDescriptor { number: 2, json: "type", snake: "type", repeated: false, oneof: false, kind: FieldKind::String },
        FieldDescriptor { number: 3, json: "idKeys", snake: "id_keys", repeated: true, oneof: false, kind: FieldKind::String },
        FieldDescriptor { number: 4, json: "descriptionKeys", snake: "description_keys", repeated: true, oneof: false, kind: FieldKind::String },
    ],
};

pub(crate) static RESOURCE_SPANS: MessageDescriptor = MessageDescriptor {
    name: "ResourceSpans",
    fields: &[
        FieldDescriptor { number: 1, json: "resource", snake: "resource", repeated: false, oneof: false, kind: FieldKind::Message(&RESOURCE) },
        FieldDescriptor { number: 2, json: "scopeSpans", snake: "scope_spans", repeated: true, oneof: false, kind: FieldKind::Message(&SCOPE_SPANS) },
        FieldDescriptor { number: 3, json: "schemaUrl", snake: "schema_url", repeated: false, oneof: false, kind: FieldKind::String },
    ],
};

pub(crate) static SCOPE_SPANS: MessageDescriptor = MessageDescriptor {
    name: "ScopeSpans",
    fields: &[
        FieldDescriptor { number: 1, json: "scope", snake: "scope", repeated: false, oneof: false, kind: FieldKind::Message(&INSTRUMENTATION_SCOPE) },
        FieldDescriptor { number: 2, json: "spans", snake: "spans", repeated: true, oneof: false, kind: FieldKind::Message(&SPAN) },
        FieldDescriptor { number: 3, json: "schemaUrl", snake: "schema_url", repeated: false, oneof: false, kind: FieldKind::String },
    ],
};

pub(crate) static SPAN: MessageDescriptor = MessageDescriptor {
    name: "Span",
    fields: &[
        FieldDescriptor { number: 1, json: "traceId", snake: "trace_id", repeated: false, oneof: false, kind: FieldKind::Id(16) },
        FieldDescriptor { number: 2, json: "spanId", snake: "span_id", repeated: false, oneof: false, kind: FieldKind::Id(8) },
        FieldDescriptor { number: 3, json: "traceState", snake: "trace_state", repeated: false, oneof: false, kind: FieldKind::String },
        FieldDescriptor { number: 4, json: "parentSpanId", snake: "parent_span_id", repeated: false, oneof: false, kind: FieldKind::Id(8) },
        FieldDescriptor { number: 5, json: "name", snake: "name", repeated: false, oneof: false, kind: FieldKind::String },
        FieldDescriptor { number: 6, json: "kind", snake: "kind", repeated: false, oneof: false, kind: FieldKind::Enum(&[("SPAN_KIND_UNSPECIFIED", 0), ("SPAN_KIND_INTERNAL", 1), ("SPAN_KIND_SERVER", 2), ("SPAN_KIND_CLIENT", 3), ("SPAN_KIND_PRODUCER", 4), ("SPAN_KIND_CONSUMER", 5)]) },
        FieldDescriptor { number: 7, json: "startTimeUnixNano", snake: "start_time_unix_nano", repeated: false, oneof: false, kind: FieldKind::Fixed64 },
        FieldDescriptor { number: 8, json: "endTimeUnixNano", snake: "end_time_unix_nano", repeated: false, oneof: false, kind: FieldKind::Fixed64 },
        FieldDescriptor { number: 9, json: "attributes", snake: "attributes", repeated: true, oneof: false, kind: FieldKind::Message(&KEY_VALUE) },
        FieldDescriptor { number: 10, json: "droppedAttributesCount", snake: "dropped_attributes_count", repeated: false, oneof: false, kind: FieldKind::Uint32 },
        FieldDescriptor { number: 11, json: "events", snake: "events", repeated: true, oneof: false, kind: FieldKind::Message(&SPAN_EVENT) },
        FieldDescriptor { number: 12, json: "droppedEventsCount", snake: "dropped_events_count", repeated: false, oneof: false, kind: FieldKind::Uint32 },
        FieldDescriptor { number: 13, json: "links", snake: "links", repeated: true, oneof: false, kind: FieldKind::Message(&SPAN_LINK) },
        FieldDescriptor { number: 14, json: "droppedLinksCount", snake: "dropped_links_count", repeated: false, oneof: false, kind: FieldKind::Uint32 },
        FieldDescriptor { number: 15, json: "status", snake: "status", repeated: false, oneof: false, kind: FieldKind::Message(&STATUS) },
        FieldDescriptor { number: 16, json: "flags", snake: "flags", repeated: false, oneof: false, kind: FieldKind::Fixed32 },
    ],
};

pub(crate) static SPAN_LINK: MessageDescriptor = MessageDescriptor {
    name: "Span.Link",
    fields: &[
        FieldDescriptor { number: 1, json: "traceId", snake: "trace_id", repeated: false, oneof: false, kind: FieldKind::Id(16) },
        FieldDescriptor { number: 2, json: "spanId", snake: "span_id", repeated: false, oneof: false, kind: FieldKind::Id(8) },
        FieldDescriptor { number: 3, json: "traceState", snake: "trace_state", repeated: false, oneof: false, kind: FieldKind::String },
        FieldDescriptor { number: 4, json: "attributes", snake: "attributes", repeated: true, oneof: false, kind: FieldKind::Message(&KEY_VALUE) },
        FieldDescriptor { number: 5, json: "droppedAttributesCount", snake: "dropped_attributes_count", repeated: false, oneof: false, kind: FieldKind::Uint32 },
        FieldDescriptor { number: 6, json: "flags", snake: "flags", repeated: false, oneof: false, kind: FieldKind::Fixed32 },
    ],
};

pub(crate) static SPAN_EVENT: MessageDescriptor = MessageDescriptor {
    name: "Span.Event",
    fields: &[
        FieldDescriptor { number: 1, json: "timeUnixNano", snake: "time_unix_nano", repeated: false, oneof: false, kind: FieldKind::Fixed64 },
        FieldDescriptor { number: 2, json: "name", snake: "name", repeated: false, oneof: false, kind: FieldKind::String },
        FieldDescriptor { number: 3, json: "attributes", snake: "attributes", repeated: true, oneof: false, kind: FieldKind::Message(&KEY_VALUE) },
        FieldDescriptor { number: 4, json: "droppedAttributesCount", snake: "dropped_attributes_count", repeated: false, oneof: false, kind: FieldKind::Uint32 },
    ],
};

pub(crate) static STATUS: MessageDescriptor = MessageDescriptor {
    name: "Status",
    fields: &[
        FieldDescriptor { number: 2, json: "message", snake: "message", repeated: false, oneof: false, kind: FieldKind::String },
        FieldDescriptor { number: 3, json: "code", snake: "code", repeated: false, oneof: false, kind: FieldKind::Enum(&[("STATUS_CODE_UNSET", 0), ("STATUS_CODE_OK", 1), ("STATUS_CODE_ERROR", 2)]) },
    ],
};

pub(crate) static RESOURCE_LOGS: MessageDescriptor = MessageDescriptor {
    name: "ResourceLogs",
    fields: &[
        FieldDescriptor { number: 1, json: "resource", snake: "resource", repeated: false, oneof: false, kind: FieldKind::Message(&RESOURCE) },
        FieldDescriptor { number: 2, json: "scopeLogs", snake: "scope_logs", repeated: true, oneof: false, kind: FieldKind::Message(&SCOPE_LOGS) },
        FieldDescriptor { number: 3, json: "schemaUrl", snake: "schema_url", repeated: false, oneof: false, kind: FieldKind::String },
    ],
};

pub(crate) static SCOPE_LOGS: MessageDescriptor = MessageDescriptor {
    name: "ScopeLogs",
    fields: &[
        FieldDescriptor { number: 1, json: "scope", snake: "scope", repeated: false, oneof: false, kind: FieldKind::Message(&INSTRUMENTATION_SCOPE) },
        FieldDescriptor { number: 2, json: "logRecords", snake: "log_records", repeated: true, oneof: false, kind: FieldKind::Message(&LOG_RECORD) },
        FieldDescriptor { number: 3, json: "schemaUrl", snake: "schema_url", repeated: false, oneof: false, kind: FieldKind::String },
    ],
};

pub(crate) static LOG_RECORD: MessageDescriptor = MessageDescriptor {
    name: "LogRecord",
    fields: &[
        FieldDescriptor { number: 1, json: "timeUnixNano", snake: "time_unix_nano", repeated: false, oneof: false, kind: FieldKind::Fixed64 },
        FieldDescriptor { number: 2, json: "severityNumber", snake: "severity_number", repeated: false, oneof: false, kind: FieldKind::Enum(&[("SEVERITY_NUMBER_UNSPECIFIED", 0), ("SEVERITY_NUMBER_TRACE", 1), ("SEVERITY_NUMBER_TRACE2", 2), ("SEVERITY_NUMBER_TRACE3", 3), ("SEVERITY_NUMBER_TRACE4", 4), ("SEVERITY_NUMBER_DEBUG", 5), ("SEVERITY_NUMBER_DEBUG2", 6), ("SEVERITY_NUMBER_DEBUG3", 7), ("SEVERITY_NUMBER_DEBUG4", 8), ("SEVERITY_NUMBER_INFO", 9), ("SEVERITY_NUMBER_INFO2", 10), ("SEVERITY_NUMBER_INFO3", 11), ("SEVERITY_NUMBER_INFO4", 12), ("SEVERITY_NUMBER_WARN", 13), ("SEVERITY_NUMBER_WARN2", 14), ("SEVERITY_NUMBER_WARN3", 15), ("SEVERITY_NUMBER_WARN4", 16), ("SEVERITY_NUMBER_ERROR", 17), ("SEVERITY_NUMBER_ERROR2", 18), ("SEVERITY_NUMBER_ERROR3", 19), ("SEVERITY_NUMBER_ERROR4", 20), ("SEVERITY_NUMBER_FATAL", 21), ("SEVERITY_NUMBER_FATAL2", 22), ("SEVERITY_NUMBER_FATAL3", 23), ("SEVERITY_NUMBER_FATAL4", 24)]) },
        FieldDescriptor { number: 3, json: "severityText", snake: "severity_text", repeated: false, oneof: false, kind: FieldKind::String },
        FieldDescriptor { number: 5, json: "body", snake: "body", repeated: false, oneof: false, kind: FieldKind::Message(&ANY_VALUE) },
        FieldDescriptor { number: 6, json: "attributes", snake: "attributes", repeated: true, oneof: false, kind: FieldKind::Message(&KEY_VALUE) },
        FieldDescriptor { number: 7, json: "droppedAttributesCount", snake: "dropped_attributes_count", repeated: false, oneof: false, kind: FieldKind::Uint32 },
        FieldDescriptor { number: 8, json: "flags", snake: "flags", repeated: false, oneof: false, kind: FieldKind::Fixed32 },
        FieldDescriptor { number: 9, json: "traceId", snake: "trace_id", repeated: false, oneof: false, kind: FieldKind::Id(16) },
        FieldDescriptor { number: 10, json: "spanId", snake: "span_id", repeated: false, oneof: false, kind: FieldKind::Id(8) },
        FieldDescriptor { number: 11, json: "observedTimeUnixNano", snake: "observed_time_unix_nano", repeated: false, oneof: false, kind: FieldKind::Fixed64 },
        FieldDescriptor { number: 12, json: "eventName", snake: "event_name", repeated: false, oneof: false, kind: FieldKind::String },
    ],
};

pub(crate) static RESOURCE_METRICS: MessageDescriptor = MessageDescriptor {
    name: "ResourceMetrics",
    fields: &[
        FieldDescriptor { number: 1, json: "resource", snake: "resource", repeated: false, oneof: false, kind: FieldKind::Message(&RESOURCE) },
        FieldDescriptor { number: 2, json: "scopeMetrics", snake: "scope_metrics", repeated: true, oneof: false, kind: FieldKind::Message(&SCOPE_METRICS) },
        FieldDescriptor { number: 3, json: "schemaUrl", snake: "schema_url", repeated: false, oneof: false, kind: FieldKind::String },
    ],
};

pub(crate) static SCOPE_METRICS: MessageDescriptor = MessageDescriptor {
    name: "ScopeMetrics",
    fields: &[
        FieldDescriptor { number: 1, json: "scope", snake: "scope", repeated: false, oneof: false, kind: FieldKind::Message(&INSTRUMENTATION_SCOPE) },
        FieldDescriptor { number: 2, json: "metrics", snake: "metrics", repeated: true, oneof: false, kind: FieldKind::Message(&METRIC) },
        FieldDescriptor { number: 3, json: "schemaUrl", snake: "schema_url", repeated: false, oneof: false, kind: FieldKind::String },
    ],
};

pub(crate) static METRIC: MessageDescriptor = MessageDescriptor {
    name: "Metric",
    fields: &[
        FieldDescriptor { number: 1, json: "name", snake: "name", repeated: false, oneof: false, kind: FieldKind::String },
        FieldDescriptor { number: 2, json: "description", snake: "description", repeated: false, oneof: false, kind: FieldKind::String },
        FieldDescriptor { number: 3, json: "unit", snake: "unit", repeated: false, oneof: false, kind: FieldKind::String },
        FieldDescriptor { number: 5, json: "gauge", snake: "gauge", repeated: false, oneof: true, kind: FieldKind::Message(&GAUGE) },
        FieldDescriptor { number: 7, json: "sum", snake: "sum", repeated: false, oneof: true, kind: FieldKind::Message(&SUM) },
        FieldDescriptor { number: 9, json: "histogram", snake: "histogram", repeated: false, oneof: true, kind: FieldKind::Message(&HISTOGRAM) },
        FieldDescriptor { number: 10, json: "exponentialHistogram", snake: "exponential_histogram", repeated: false, oneof: true, kind: FieldKind::Message(&EXPONENTIAL_HISTOGRAM) },
        FieldDescriptor { number: 11, json: "summary", snake: "summary", repeated: false, oneof: true, kind: FieldKind::Message(&SUMMARY) },
        FieldDescriptor { number: 12, json: "metadata", snake: "metadata", repeated: true, oneof: false, kind: FieldKind::Message(&KEY_VALUE) },
    ],
};

pub(crate) static GAUGE: MessageDescriptor = MessageDescriptor {
    name: "Gauge",
    fields: &[
        FieldDescriptor { number: 1, json: "dataPoints", snake: "data_points", repeated: true, oneof: false, kind: FieldKind::Message(&NUMBER_DATA_POINT) },
    ],
};

pub(crate) static SUM: MessageDescriptor = MessageDescriptor {
    name: "Sum",
    fields: &[
        FieldDescriptor { number: 1, json: "dataPoints", snake: "data_points", repeated: true, oneof: false, kind: FieldKind::Message(&NUMBER_DATA_POINT) },
        FieldDescriptor { number: 2, json: "aggregationTemporality", snake: "aggregation_temporality", repeated: false, oneof: false, kind: FieldKind::Enum(&[("AGGREGATION_TEMPORALITY_UNSPECIFIED", 0), ("AGGREGATION_TEMPORALITY_DELTA", 1), ("AGGREGATION_TEMPORALITY_CUMULATIVE", 2)]) },
        FieldDescriptor { number: 3, json: "isMonotonic", snake: "is_monotonic", repeated: false, oneof: false, kind: FieldKind::Bool },
    ],
};

pub(crate) static HISTOGRAM: MessageDescriptor = MessageDescriptor {
    name: "Histogram",
    fields: &[
        FieldDescriptor { number: 1, json: "dataPoints", snake: "data_points", repeated: true, oneof: false, kind: FieldKind::Message(&HISTOGRAM_DATA_POINT) },
        FieldDescriptor { number: 2, json: "aggregationTemporality", snake: "aggregation_temporality", repeated: false, oneof: false, kind: FieldKind::Enum(&[("AGGREGATION_TEMPORALITY_UNSPECIFIED", 0), ("AGGREGATION_TEMPORALITY_DELTA", 1), ("AGGREGATION_TEMPORALITY_CUMULATIVE", 2)]) },
    ],
};

pub(crate) static EXPONENTIAL_HISTOGRAM: MessageDescriptor = MessageDescriptor {
    name: "ExponentialHistogram",
    fields: &[
        FieldDescriptor { number: 1, json: "dataPoints", snake: "data_points", repeated: true, oneof: false, kind: FieldKind::Message(&EXPONENTIAL_HISTOGRAM_DATA_POINT) },
        FieldDescriptor { number: 2, json: "aggregationTemporality", snake: "aggregation_temporality", repeated: false, oneof: false, kind: FieldKind::Enum(&[("AGGREGATION_TEMPORALITY_UNSPECIFIED", 0), ("AGGREGATION_TEMPORALITY_DELTA", 1), ("AGGREGATION_TEMPORALITY_CUMULATIVE", 2)]) },
    ],
};

pub(crate) static SUMMARY: MessageDescriptor = MessageDescriptor {
    name: "Summary",
    fields: &[
        FieldDescriptor { number: 1, json: "dataPoints", snake: "data_points", repeated: true, oneof: false, kind: FieldKind::Message(&SUMMARY_DATA_POINT) },
    ],
};

pub(crate) static NUMBER_DATA_POINT: MessageDescriptor = MessageDescriptor {
    name: "NumberDataPoint",
    fields: &[
        FieldDescriptor { number: 2, json: "startTimeUnixNano", snake: "start_time_unix_nano", repeated: false, oneof: false, kind: FieldKind::Fixed64 },
        FieldDescriptor { number: 3, json: "timeUnixNano", snake: "time_unix_nano", repeated: false, oneof: false, kind: FieldKind::Fixed64 },
        FieldDescriptor { number: 4, json: "asDouble", snake: "as_double", repeated: false, oneof: true, kind: FieldKind::Double },
        FieldDescriptor { number: 6, json: "asInt", snake: "as_int", repeated: false, oneof: true, kind: FieldKind::Sfixed64 },
        FieldDescriptor { number: 5, json: "exemplars", snake: "exemplars", repeated: true, oneof: false, kind: FieldKind::Message(&EXEMPLAR) },
        FieldDescriptor { number: 7, json: "attributes", snake: "attributes", repeated: true, oneof: false, kind: FieldKind::Message(&KEY_VALUE) },
        FieldDescriptor { number: 8, json: "flags", snake: "flags", repeated: false, oneof: false, kind: FieldKind::Uint32 },
    ],
};

pub(crate) static HISTOGRAM_DATA_POINT: MessageDescriptor = MessageDescriptor {
    name: "HistogramDataPoint",
    fields: &[
        FieldDescriptor { number: 2, json: "startTimeUnixNano", snake: "start_time_unix_nano", repeated: false, oneof: false, kind: FieldKind::Fixed64 },
        FieldDescriptor { number: 3, json: "timeUnixNano", snake: "time_unix_nano", repeated: false, oneof: false, kind: FieldKind::Fixed64 },
        FieldDescriptor { number: 4, json: "count", snake: "count", repeated: false, oneof: false, kind: FieldKind::Fixed64 },
        FieldDescriptor { number: 5, json: "sum", snake: "sum", repeated: false, oneof: false, kind: FieldKind::Double },
        FieldDescriptor { number: 6, json: "bucketCounts", snake: "bucket_counts", repeated: true, oneof: false, kind: FieldKind::Fixed64 },
        FieldDescriptor { number: 7, json: "explicitBounds", snake: "explicit_bounds", repeated: true, oneof: false, kind: FieldKind::Double },
        FieldDescriptor { number: 8, json: "exemplars", snake: "exemplars", repeated: true, oneof: false, kind: FieldKind::Message(&EXEMPLAR) },
        FieldDescriptor { number: 9, json: "attributes", snake: "attributes", repeated: true, oneof: false, kind: FieldKind::Message(&KEY_VALUE) },
        FieldDescriptor { number: 10, json: "flags", snake: "flags", repeated: false, oneof: false, kind: FieldKind::Uint32 },
        FieldDescriptor { number: 11, json: "min", snake: "min", repeated: false, oneof: false, kind: FieldKind::Double },
        FieldDescriptor { number: 12, json: "max", snake: "max", repeated: false, oneof: false, kind: FieldKind::Double },
    ],
};

pub(crate) static EXPONENTIAL_HISTOGRAM_DATA_POINT: MessageDescriptor = MessageDescriptor {
    name: "ExponentialHistogramDataPoint",
    fields: &[
        FieldDescriptor { number: 1, json: "attributes", snake: "attributes", repeated: true, oneof: false, kind: FieldKind::Message(&KEY_VALUE) },
        FieldDescriptor { number: 2, json: "startTimeUnixNano", snake: "start_time_unix_nano", repeated: false, oneof: false, kind: FieldKind::Fixed64 },
        FieldDescriptor { number: 3, json: "timeUnixNano", snake: "time_unix_nano", repeated: false, oneof: false, kind: FieldKind::Fixed64 },
        FieldDescriptor { number: 4, json: "count", snake: "count", repeated: false, oneof: false, kind: FieldKind::Fixed64 },
        FieldDescriptor { number: 5, json: "sum", snake: "sum", repeated: false, oneof: false, kind: FieldKind::Double },
        FieldDescriptor { number: 6, json: "scale", snake: "scale", repeated: false, oneof: false, kind: FieldKind::Sint32 },
        FieldDescriptor { number: 7, json: "zeroCount", snake: "zero_count", repeated: false, oneof: false, kind: FieldKind::Fixed64 },
        FieldDescriptor { number: 8, json: "positive", snake: "positive", repeated: false, oneof: false, kind: FieldKind::Message(&EXPONENTIAL_HISTOGRAM_DATA_POINT_BUCKETS) },
        FieldDescriptor { number: 9, json: "negative", snake: "negative", repeated: false, oneof: false, kind: FieldKind::Message(&EXPONENTIAL_HISTOGRAM_DATA_POINT_BUCKETS) },
        FieldDescriptor { number: 10, json: "flags", snake: "flags", repeated: false, oneof: false, kind: FieldKind::Uint32 },
        FieldDescriptor { number: 11, json: "exemplars", snake: "exemplars", repeated: true, oneof: false, kind: FieldKind::Message(&EXEMPLAR) },
        FieldDescriptor { number: 12, json: "min", snake: "min", repeated: false, oneof: false, kind: FieldKind::Double },
        FieldDescriptor { number: 13, json: "max", snake: "max", repeated: false, oneof: false, kind: FieldKind::Double },
        FieldDescriptor { number: 14, json: "zeroThreshold", snake: "zero_threshold", repeated: false, oneof: false, kind: FieldKind::Double },
    ],
};

pub(crate) static EXPONENTIAL_HISTOGRAM_DATA_POINT_BUCKETS: MessageDescriptor = MessageDescriptor {
    name: "ExponentialHistogramDataPoint.Buckets",
    fields: &[
        FieldDescriptor { number: 1, json: "offset", snake: "offset", repeated: false, oneof: false, kind: FieldKind::Sint32 },
        FieldDescriptor { number: 2, json: "bucketCounts", snake: "bucket_counts", repeated: true, oneof: false, kind: FieldKind::Uint64 },
    ],
};

pub(crate) static SUMMARY_DATA_POINT: MessageDescriptor = MessageDescriptor {
    name: "SummaryDataPoint",
    fields: &[
        FieldDescriptor { number: 2, json: "startTimeUnixNano", snake: "start_time_unix_nano", repeated: false, oneof: false, kind: FieldKind::Fixed64 },
        FieldDescriptor { number: 3, json: "timeUnixNano", snake: "time_unix_nano", repeated: false, oneof: false, kind: FieldKind::Fixed64 },
        FieldDescriptor { number: 4, json: "count", snake: "count", repeated: false, oneof: false, kind: FieldKind::Fixed64 },
        FieldDescriptor { number: 5, json: "sum", snake: "sum", repeated: false, oneof: false, kind: FieldKind::Double },
        FieldDescriptor { number: 6, json: "quantileValues", snake: "quantile_values", repeated: true, oneof: false, kind: FieldKind::Message(&SUMMARY_DATA_POINT_VALUE_AT_QUANTILE) },
        FieldDescriptor { number: 7, json: "attributes", snake: "attributes", repeated: true, oneof: false, kind: FieldKind::Message(&KEY_VALUE) },
        FieldDescriptor { number: 8, json: "flags", snake: "flags", repeated: false, oneof: false, kind: FieldKind::Uint32 },
    ],
};

pub(crate) static SUMMARY_DATA_POINT_VALUE_AT_QUANTILE: MessageDescriptor = MessageDescriptor {
    name: "SummaryDataPoint.ValueAtQuantile",
    fields: &[
        FieldDescriptor { number: 1, json: "quantile", snake: "quantile", repeated: false, oneof: false, kind: FieldKind::Double },
        FieldDescriptor { number: 2, json: "value", snake: "value", repeated: false, oneof: false, kind: FieldKind::Double },
    ],
};

pub(crate) static EXEMPLAR: MessageDescriptor = MessageDescriptor {
    name: "Exemplar",
    fields: &[
        FieldDescriptor { number: 2, json: "timeUnixNano", snake: "time_unix_nano", repeated: false, oneof: false, kind: FieldKind::Fixed64 },
        FieldDescriptor { number: 3, json: "asDouble", snake: "as_double", repeated: false, oneof: true, kind: FieldKind::Double },
        FieldDescriptor { number: 6, json: "asInt", snake: "as_int", repeated: false, oneof: true, kind: FieldKind::Sfixed64 },
        FieldDescriptor { number: 4, json: "spanId", snake: "span_id", repeated: false, oneof: false, kind: FieldKind::Id(8) },
        FieldDescriptor { number: 5, json: "traceId", snake: "trace_id", repeated: false, oneof: false, kind: FieldKind::Id(16) },
        FieldDescriptor { number: 7, json: "filteredAttributes", snake: "filtered_attributes", repeated: true, oneof: false, kind: FieldKind::Message(&KEY_VALUE) },
    ],
};
