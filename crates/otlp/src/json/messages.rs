//! OTLP's messages as data. @generated from proto/otlp.proto; generate.rs says how.

use super::table::{Field, Kind, Message};

pub(crate) static EXPORT_TRACE_SERVICE_REQUEST: Message = Message {
    name: "ExportTraceServiceRequest",
    fields: &[
        Field { number: 1, json: "resourceSpans", snake: "resource_spans", repeated: true, oneof: false, kind: Kind::Message(&RESOURCE_SPANS) },
    ],
};

pub(crate) static EXPORT_LOGS_SERVICE_REQUEST: Message = Message {
    name: "ExportLogsServiceRequest",
    fields: &[
        Field { number: 1, json: "resourceLogs", snake: "resource_logs", repeated: true, oneof: false, kind: Kind::Message(&RESOURCE_LOGS) },
    ],
};

pub(crate) static EXPORT_METRICS_SERVICE_REQUEST: Message = Message {
    name: "ExportMetricsServiceRequest",
    fields: &[
        Field { number: 1, json: "resourceMetrics", snake: "resource_metrics", repeated: true, oneof: false, kind: Kind::Message(&RESOURCE_METRICS) },
    ],
};

pub(crate) static ANY_VALUE: Message = Message {
    name: "AnyValue",
    fields: &[
        Field { number: 1, json: "stringValue", snake: "string_value", repeated: false, oneof: true, kind: Kind::String },
        Field { number: 2, json: "boolValue", snake: "bool_value", repeated: false, oneof: true, kind: Kind::Bool },
        Field { number: 3, json: "intValue", snake: "int_value", repeated: false, oneof: true, kind: Kind::Int64 },
        Field { number: 4, json: "doubleValue", snake: "double_value", repeated: false, oneof: true, kind: Kind::Double },
        Field { number: 5, json: "arrayValue", snake: "array_value", repeated: false, oneof: true, kind: Kind::Message(&ARRAY_VALUE) },
        Field { number: 6, json: "kvlistValue", snake: "kvlist_value", repeated: false, oneof: true, kind: Kind::Message(&KEY_VALUE_LIST) },
        Field { number: 7, json: "bytesValue", snake: "bytes_value", repeated: false, oneof: true, kind: Kind::Bytes },
        Field { number: 8, json: "stringValueStrindex", snake: "string_value_strindex", repeated: false, oneof: true, kind: Kind::Int32 },
    ],
};

pub(crate) static ARRAY_VALUE: Message = Message {
    name: "ArrayValue",
    fields: &[
        Field { number: 1, json: "values", snake: "values", repeated: true, oneof: false, kind: Kind::Message(&ANY_VALUE) },
    ],
};

pub(crate) static KEY_VALUE_LIST: Message = Message {
    name: "KeyValueList",
    fields: &[
        Field { number: 1, json: "values", snake: "values", repeated: true, oneof: false, kind: Kind::Message(&KEY_VALUE) },
    ],
};

pub(crate) static KEY_VALUE: Message = Message {
    name: "KeyValue",
    fields: &[
        Field { number: 1, json: "key", snake: "key", repeated: false, oneof: false, kind: Kind::String },
        Field { number: 2, json: "value", snake: "value", repeated: false, oneof: false, kind: Kind::Message(&ANY_VALUE) },
        Field { number: 3, json: "keyStrindex", snake: "key_strindex", repeated: false, oneof: false, kind: Kind::Int32 },
    ],
};

pub(crate) static INSTRUMENTATION_SCOPE: Message = Message {
    name: "InstrumentationScope",
    fields: &[
        Field { number: 1, json: "name", snake: "name", repeated: false, oneof: false, kind: Kind::String },
        Field { number: 2, json: "version", snake: "version", repeated: false, oneof: false, kind: Kind::String },
        Field { number: 3, json: "attributes", snake: "attributes", repeated: true, oneof: false, kind: Kind::Message(&KEY_VALUE) },
        Field { number: 4, json: "droppedAttributesCount", snake: "dropped_attributes_count", repeated: false, oneof: false, kind: Kind::Uint32 },
    ],
};

pub(crate) static RESOURCE: Message = Message {
    name: "Resource",
    fields: &[
        Field { number: 1, json: "attributes", snake: "attributes", repeated: true, oneof: false, kind: Kind::Message(&KEY_VALUE) },
        Field { number: 2, json: "droppedAttributesCount", snake: "dropped_attributes_count", repeated: false, oneof: false, kind: Kind::Uint32 },
        Field { number: 3, json: "entityRefs", snake: "entity_refs", repeated: true, oneof: false, kind: Kind::Message(&ENTITY_REF) },
    ],
};

pub(crate) static ENTITY_REF: Message = Message {
    name: "EntityRef",
    fields: &[
        Field { number: 1, json: "schemaUrl", snake: "schema_url", repeated: false, oneof: false, kind: Kind::String },
        Field { number: 2, json: "type", snake: "type", repeated: false, oneof: false, kind: Kind::String },
        Field { number: 3, json: "idKeys", snake: "id_keys", repeated: true, oneof: false, kind: Kind::String },
        Field { number: 4, json: "descriptionKeys", snake: "description_keys", repeated: true, oneof: false, kind: Kind::String },
    ],
};

pub(crate) static RESOURCE_SPANS: Message = Message {
    name: "ResourceSpans",
    fields: &[
        Field { number: 1, json: "resource", snake: "resource", repeated: false, oneof: false, kind: Kind::Message(&RESOURCE) },
        Field { number: 2, json: "scopeSpans", snake: "scope_spans", repeated: true, oneof: false, kind: Kind::Message(&SCOPE_SPANS) },
        Field { number: 3, json: "schemaUrl", snake: "schema_url", repeated: false, oneof: false, kind: Kind::String },
    ],
};

pub(crate) static SCOPE_SPANS: Message = Message {
    name: "ScopeSpans",
    fields: &[
        Field { number: 1, json: "scope", snake: "scope", repeated: false, oneof: false, kind: Kind::Message(&INSTRUMENTATION_SCOPE) },
        Field { number: 2, json: "spans", snake: "spans", repeated: true, oneof: false, kind: Kind::Message(&SPAN) },
        Field { number: 3, json: "schemaUrl", snake: "schema_url", repeated: false, oneof: false, kind: Kind::String },
    ],
};

pub(crate) static SPAN: Message = Message {
    name: "Span",
    fields: &[
        Field { number: 1, json: "traceId", snake: "trace_id", repeated: false, oneof: false, kind: Kind::Id(16) },
        Field { number: 2, json: "spanId", snake: "span_id", repeated: false, oneof: false, kind: Kind::Id(8) },
        Field { number: 3, json: "traceState", snake: "trace_state", repeated: false, oneof: false, kind: Kind::String },
        Field { number: 4, json: "parentSpanId", snake: "parent_span_id", repeated: false, oneof: false, kind: Kind::Id(8) },
        Field { number: 5, json: "name", snake: "name", repeated: false, oneof: false, kind: Kind::String },
        Field { number: 6, json: "kind", snake: "kind", repeated: false, oneof: false, kind: Kind::Enum(&[("SPAN_KIND_UNSPECIFIED", 0), ("SPAN_KIND_INTERNAL", 1), ("SPAN_KIND_SERVER", 2), ("SPAN_KIND_CLIENT", 3), ("SPAN_KIND_PRODUCER", 4), ("SPAN_KIND_CONSUMER", 5)]) },
        Field { number: 7, json: "startTimeUnixNano", snake: "start_time_unix_nano", repeated: false, oneof: false, kind: Kind::Fixed64 },
        Field { number: 8, json: "endTimeUnixNano", snake: "end_time_unix_nano", repeated: false, oneof: false, kind: Kind::Fixed64 },
        Field { number: 9, json: "attributes", snake: "attributes", repeated: true, oneof: false, kind: Kind::Message(&KEY_VALUE) },
        Field { number: 10, json: "droppedAttributesCount", snake: "dropped_attributes_count", repeated: false, oneof: false, kind: Kind::Uint32 },
        Field { number: 11, json: "events", snake: "events", repeated: true, oneof: false, kind: Kind::Message(&SPAN_EVENT) },
        Field { number: 12, json: "droppedEventsCount", snake: "dropped_events_count", repeated: false, oneof: false, kind: Kind::Uint32 },
        Field { number: 13, json: "links", snake: "links", repeated: true, oneof: false, kind: Kind::Message(&SPAN_LINK) },
        Field { number: 14, json: "droppedLinksCount", snake: "dropped_links_count", repeated: false, oneof: false, kind: Kind::Uint32 },
        Field { number: 15, json: "status", snake: "status", repeated: false, oneof: false, kind: Kind::Message(&STATUS) },
        Field { number: 16, json: "flags", snake: "flags", repeated: false, oneof: false, kind: Kind::Fixed32 },
    ],
};

pub(crate) static SPAN_LINK: Message = Message {
    name: "Span.Link",
    fields: &[
        Field { number: 1, json: "traceId", snake: "trace_id", repeated: false, oneof: false, kind: Kind::Id(16) },
        Field { number: 2, json: "spanId", snake: "span_id", repeated: false, oneof: false, kind: Kind::Id(8) },
        Field { number: 3, json: "traceState", snake: "trace_state", repeated: false, oneof: false, kind: Kind::String },
        Field { number: 4, json: "attributes", snake: "attributes", repeated: true, oneof: false, kind: Kind::Message(&KEY_VALUE) },
        Field { number: 5, json: "droppedAttributesCount", snake: "dropped_attributes_count", repeated: false, oneof: false, kind: Kind::Uint32 },
        Field { number: 6, json: "flags", snake: "flags", repeated: false, oneof: false, kind: Kind::Fixed32 },
    ],
};

pub(crate) static SPAN_EVENT: Message = Message {
    name: "Span.Event",
    fields: &[
        Field { number: 1, json: "timeUnixNano", snake: "time_unix_nano", repeated: false, oneof: false, kind: Kind::Fixed64 },
        Field { number: 2, json: "name", snake: "name", repeated: false, oneof: false, kind: Kind::String },
        Field { number: 3, json: "attributes", snake: "attributes", repeated: true, oneof: false, kind: Kind::Message(&KEY_VALUE) },
        Field { number: 4, json: "droppedAttributesCount", snake: "dropped_attributes_count", repeated: false, oneof: false, kind: Kind::Uint32 },
    ],
};

pub(crate) static STATUS: Message = Message {
    name: "Status",
    fields: &[
        Field { number: 2, json: "message", snake: "message", repeated: false, oneof: false, kind: Kind::String },
        Field { number: 3, json: "code", snake: "code", repeated: false, oneof: false, kind: Kind::Enum(&[("STATUS_CODE_UNSET", 0), ("STATUS_CODE_OK", 1), ("STATUS_CODE_ERROR", 2)]) },
    ],
};

pub(crate) static RESOURCE_LOGS: Message = Message {
    name: "ResourceLogs",
    fields: &[
        Field { number: 1, json: "resource", snake: "resource", repeated: false, oneof: false, kind: Kind::Message(&RESOURCE) },
        Field { number: 2, json: "scopeLogs", snake: "scope_logs", repeated: true, oneof: false, kind: Kind::Message(&SCOPE_LOGS) },
        Field { number: 3, json: "schemaUrl", snake: "schema_url", repeated: false, oneof: false, kind: Kind::String },
    ],
};

pub(crate) static SCOPE_LOGS: Message = Message {
    name: "ScopeLogs",
    fields: &[
        Field { number: 1, json: "scope", snake: "scope", repeated: false, oneof: false, kind: Kind::Message(&INSTRUMENTATION_SCOPE) },
        Field { number: 2, json: "logRecords", snake: "log_records", repeated: true, oneof: false, kind: Kind::Message(&LOG_RECORD) },
        Field { number: 3, json: "schemaUrl", snake: "schema_url", repeated: false, oneof: false, kind: Kind::String },
    ],
};

pub(crate) static LOG_RECORD: Message = Message {
    name: "LogRecord",
    fields: &[
        Field { number: 1, json: "timeUnixNano", snake: "time_unix_nano", repeated: false, oneof: false, kind: Kind::Fixed64 },
        Field { number: 2, json: "severityNumber", snake: "severity_number", repeated: false, oneof: false, kind: Kind::Enum(&[("SEVERITY_NUMBER_UNSPECIFIED", 0), ("SEVERITY_NUMBER_TRACE", 1), ("SEVERITY_NUMBER_TRACE2", 2), ("SEVERITY_NUMBER_TRACE3", 3), ("SEVERITY_NUMBER_TRACE4", 4), ("SEVERITY_NUMBER_DEBUG", 5), ("SEVERITY_NUMBER_DEBUG2", 6), ("SEVERITY_NUMBER_DEBUG3", 7), ("SEVERITY_NUMBER_DEBUG4", 8), ("SEVERITY_NUMBER_INFO", 9), ("SEVERITY_NUMBER_INFO2", 10), ("SEVERITY_NUMBER_INFO3", 11), ("SEVERITY_NUMBER_INFO4", 12), ("SEVERITY_NUMBER_WARN", 13), ("SEVERITY_NUMBER_WARN2", 14), ("SEVERITY_NUMBER_WARN3", 15), ("SEVERITY_NUMBER_WARN4", 16), ("SEVERITY_NUMBER_ERROR", 17), ("SEVERITY_NUMBER_ERROR2", 18), ("SEVERITY_NUMBER_ERROR3", 19), ("SEVERITY_NUMBER_ERROR4", 20), ("SEVERITY_NUMBER_FATAL", 21), ("SEVERITY_NUMBER_FATAL2", 22), ("SEVERITY_NUMBER_FATAL3", 23), ("SEVERITY_NUMBER_FATAL4", 24)]) },
        Field { number: 3, json: "severityText", snake: "severity_text", repeated: false, oneof: false, kind: Kind::String },
        Field { number: 5, json: "body", snake: "body", repeated: false, oneof: false, kind: Kind::Message(&ANY_VALUE) },
        Field { number: 6, json: "attributes", snake: "attributes", repeated: true, oneof: false, kind: Kind::Message(&KEY_VALUE) },
        Field { number: 7, json: "droppedAttributesCount", snake: "dropped_attributes_count", repeated: false, oneof: false, kind: Kind::Uint32 },
        Field { number: 8, json: "flags", snake: "flags", repeated: false, oneof: false, kind: Kind::Fixed32 },
        Field { number: 9, json: "traceId", snake: "trace_id", repeated: false, oneof: false, kind: Kind::Id(16) },
        Field { number: 10, json: "spanId", snake: "span_id", repeated: false, oneof: false, kind: Kind::Id(8) },
        Field { number: 11, json: "observedTimeUnixNano", snake: "observed_time_unix_nano", repeated: false, oneof: false, kind: Kind::Fixed64 },
        Field { number: 12, json: "eventName", snake: "event_name", repeated: false, oneof: false, kind: Kind::String },
    ],
};

pub(crate) static RESOURCE_METRICS: Message = Message {
    name: "ResourceMetrics",
    fields: &[
        Field { number: 1, json: "resource", snake: "resource", repeated: false, oneof: false, kind: Kind::Message(&RESOURCE) },
        Field { number: 2, json: "scopeMetrics", snake: "scope_metrics", repeated: true, oneof: false, kind: Kind::Message(&SCOPE_METRICS) },
        Field { number: 3, json: "schemaUrl", snake: "schema_url", repeated: false, oneof: false, kind: Kind::String },
    ],
};

pub(crate) static SCOPE_METRICS: Message = Message {
    name: "ScopeMetrics",
    fields: &[
        Field { number: 1, json: "scope", snake: "scope", repeated: false, oneof: false, kind: Kind::Message(&INSTRUMENTATION_SCOPE) },
        Field { number: 2, json: "metrics", snake: "metrics", repeated: true, oneof: false, kind: Kind::Message(&METRIC) },
        Field { number: 3, json: "schemaUrl", snake: "schema_url", repeated: false, oneof: false, kind: Kind::String },
    ],
};

pub(crate) static METRIC: Message = Message {
    name: "Metric",
    fields: &[
        Field { number: 1, json: "name", snake: "name", repeated: false, oneof: false, kind: Kind::String },
        Field { number: 2, json: "description", snake: "description", repeated: false, oneof: false, kind: Kind::String },
        Field { number: 3, json: "unit", snake: "unit", repeated: false, oneof: false, kind: Kind::String },
        Field { number: 5, json: "gauge", snake: "gauge", repeated: false, oneof: true, kind: Kind::Message(&GAUGE) },
        Field { number: 7, json: "sum", snake: "sum", repeated: false, oneof: true, kind: Kind::Message(&SUM) },
        Field { number: 9, json: "histogram", snake: "histogram", repeated: false, oneof: true, kind: Kind::Message(&HISTOGRAM) },
        Field { number: 10, json: "exponentialHistogram", snake: "exponential_histogram", repeated: false, oneof: true, kind: Kind::Message(&EXPONENTIAL_HISTOGRAM) },
        Field { number: 11, json: "summary", snake: "summary", repeated: false, oneof: true, kind: Kind::Message(&SUMMARY) },
        Field { number: 12, json: "metadata", snake: "metadata", repeated: true, oneof: false, kind: Kind::Message(&KEY_VALUE) },
    ],
};

pub(crate) static GAUGE: Message = Message {
    name: "Gauge",
    fields: &[
        Field { number: 1, json: "dataPoints", snake: "data_points", repeated: true, oneof: false, kind: Kind::Message(&NUMBER_DATA_POINT) },
    ],
};

pub(crate) static SUM: Message = Message {
    name: "Sum",
    fields: &[
        Field { number: 1, json: "dataPoints", snake: "data_points", repeated: true, oneof: false, kind: Kind::Message(&NUMBER_DATA_POINT) },
        Field { number: 2, json: "aggregationTemporality", snake: "aggregation_temporality", repeated: false, oneof: false, kind: Kind::Enum(&[("AGGREGATION_TEMPORALITY_UNSPECIFIED", 0), ("AGGREGATION_TEMPORALITY_DELTA", 1), ("AGGREGATION_TEMPORALITY_CUMULATIVE", 2)]) },
        Field { number: 3, json: "isMonotonic", snake: "is_monotonic", repeated: false, oneof: false, kind: Kind::Bool },
    ],
};

pub(crate) static HISTOGRAM: Message = Message {
    name: "Histogram",
    fields: &[
        Field { number: 1, json: "dataPoints", snake: "data_points", repeated: true, oneof: false, kind: Kind::Message(&HISTOGRAM_DATA_POINT) },
        Field { number: 2, json: "aggregationTemporality", snake: "aggregation_temporality", repeated: false, oneof: false, kind: Kind::Enum(&[("AGGREGATION_TEMPORALITY_UNSPECIFIED", 0), ("AGGREGATION_TEMPORALITY_DELTA", 1), ("AGGREGATION_TEMPORALITY_CUMULATIVE", 2)]) },
    ],
};

pub(crate) static EXPONENTIAL_HISTOGRAM: Message = Message {
    name: "ExponentialHistogram",
    fields: &[
        Field { number: 1, json: "dataPoints", snake: "data_points", repeated: true, oneof: false, kind: Kind::Message(&EXPONENTIAL_HISTOGRAM_DATA_POINT) },
        Field { number: 2, json: "aggregationTemporality", snake: "aggregation_temporality", repeated: false, oneof: false, kind: Kind::Enum(&[("AGGREGATION_TEMPORALITY_UNSPECIFIED", 0), ("AGGREGATION_TEMPORALITY_DELTA", 1), ("AGGREGATION_TEMPORALITY_CUMULATIVE", 2)]) },
    ],
};

pub(crate) static SUMMARY: Message = Message {
    name: "Summary",
    fields: &[
        Field { number: 1, json: "dataPoints", snake: "data_points", repeated: true, oneof: false, kind: Kind::Message(&SUMMARY_DATA_POINT) },
    ],
};

pub(crate) static NUMBER_DATA_POINT: Message = Message {
    name: "NumberDataPoint",
    fields: &[
        Field { number: 2, json: "startTimeUnixNano", snake: "start_time_unix_nano", repeated: false, oneof: false, kind: Kind::Fixed64 },
        Field { number: 3, json: "timeUnixNano", snake: "time_unix_nano", repeated: false, oneof: false, kind: Kind::Fixed64 },
        Field { number: 4, json: "asDouble", snake: "as_double", repeated: false, oneof: true, kind: Kind::Double },
        Field { number: 6, json: "asInt", snake: "as_int", repeated: false, oneof: true, kind: Kind::Sfixed64 },
        Field { number: 5, json: "exemplars", snake: "exemplars", repeated: true, oneof: false, kind: Kind::Message(&EXEMPLAR) },
        Field { number: 7, json: "attributes", snake: "attributes", repeated: true, oneof: false, kind: Kind::Message(&KEY_VALUE) },
        Field { number: 8, json: "flags", snake: "flags", repeated: false, oneof: false, kind: Kind::Uint32 },
    ],
};

pub(crate) static HISTOGRAM_DATA_POINT: Message = Message {
    name: "HistogramDataPoint",
    fields: &[
        Field { number: 2, json: "startTimeUnixNano", snake: "start_time_unix_nano", repeated: false, oneof: false, kind: Kind::Fixed64 },
        Field { number: 3, json: "timeUnixNano", snake: "time_unix_nano", repeated: false, oneof: false, kind: Kind::Fixed64 },
        Field { number: 4, json: "count", snake: "count", repeated: false, oneof: false, kind: Kind::Fixed64 },
        Field { number: 5, json: "sum", snake: "sum", repeated: false, oneof: false, kind: Kind::Double },
        Field { number: 6, json: "bucketCounts", snake: "bucket_counts", repeated: true, oneof: false, kind: Kind::Fixed64 },
        Field { number: 7, json: "explicitBounds", snake: "explicit_bounds", repeated: true, oneof: false, kind: Kind::Double },
        Field { number: 8, json: "exemplars", snake: "exemplars", repeated: true, oneof: false, kind: Kind::Message(&EXEMPLAR) },
        Field { number: 9, json: "attributes", snake: "attributes", repeated: true, oneof: false, kind: Kind::Message(&KEY_VALUE) },
        Field { number: 10, json: "flags", snake: "flags", repeated: false, oneof: false, kind: Kind::Uint32 },
        Field { number: 11, json: "min", snake: "min", repeated: false, oneof: false, kind: Kind::Double },
        Field { number: 12, json: "max", snake: "max", repeated: false, oneof: false, kind: Kind::Double },
    ],
};

pub(crate) static EXPONENTIAL_HISTOGRAM_DATA_POINT: Message = Message {
    name: "ExponentialHistogramDataPoint",
    fields: &[
        Field { number: 1, json: "attributes", snake: "attributes", repeated: true, oneof: false, kind: Kind::Message(&KEY_VALUE) },
        Field { number: 2, json: "startTimeUnixNano", snake: "start_time_unix_nano", repeated: false, oneof: false, kind: Kind::Fixed64 },
        Field { number: 3, json: "timeUnixNano", snake: "time_unix_nano", repeated: false, oneof: false, kind: Kind::Fixed64 },
        Field { number: 4, json: "count", snake: "count", repeated: false, oneof: false, kind: Kind::Fixed64 },
        Field { number: 5, json: "sum", snake: "sum", repeated: false, oneof: false, kind: Kind::Double },
        Field { number: 6, json: "scale", snake: "scale", repeated: false, oneof: false, kind: Kind::Sint32 },
        Field { number: 7, json: "zeroCount", snake: "zero_count", repeated: false, oneof: false, kind: Kind::Fixed64 },
        Field { number: 8, json: "positive", snake: "positive", repeated: false, oneof: false, kind: Kind::Message(&EXPONENTIAL_HISTOGRAM_DATA_POINT_BUCKETS) },
        Field { number: 9, json: "negative", snake: "negative", repeated: false, oneof: false, kind: Kind::Message(&EXPONENTIAL_HISTOGRAM_DATA_POINT_BUCKETS) },
        Field { number: 10, json: "flags", snake: "flags", repeated: false, oneof: false, kind: Kind::Uint32 },
        Field { number: 11, json: "exemplars", snake: "exemplars", repeated: true, oneof: false, kind: Kind::Message(&EXEMPLAR) },
        Field { number: 12, json: "min", snake: "min", repeated: false, oneof: false, kind: Kind::Double },
        Field { number: 13, json: "max", snake: "max", repeated: false, oneof: false, kind: Kind::Double },
        Field { number: 14, json: "zeroThreshold", snake: "zero_threshold", repeated: false, oneof: false, kind: Kind::Double },
    ],
};

pub(crate) static EXPONENTIAL_HISTOGRAM_DATA_POINT_BUCKETS: Message = Message {
    name: "ExponentialHistogramDataPoint.Buckets",
    fields: &[
        Field { number: 1, json: "offset", snake: "offset", repeated: false, oneof: false, kind: Kind::Sint32 },
        Field { number: 2, json: "bucketCounts", snake: "bucket_counts", repeated: true, oneof: false, kind: Kind::Uint64 },
    ],
};

pub(crate) static SUMMARY_DATA_POINT: Message = Message {
    name: "SummaryDataPoint",
    fields: &[
        Field { number: 2, json: "startTimeUnixNano", snake: "start_time_unix_nano", repeated: false, oneof: false, kind: Kind::Fixed64 },
        Field { number: 3, json: "timeUnixNano", snake: "time_unix_nano", repeated: false, oneof: false, kind: Kind::Fixed64 },
        Field { number: 4, json: "count", snake: "count", repeated: false, oneof: false, kind: Kind::Fixed64 },
        Field { number: 5, json: "sum", snake: "sum", repeated: false, oneof: false, kind: Kind::Double },
        Field { number: 6, json: "quantileValues", snake: "quantile_values", repeated: true, oneof: false, kind: Kind::Message(&SUMMARY_DATA_POINT_VALUE_AT_QUANTILE) },
        Field { number: 7, json: "attributes", snake: "attributes", repeated: true, oneof: false, kind: Kind::Message(&KEY_VALUE) },
        Field { number: 8, json: "flags", snake: "flags", repeated: false, oneof: false, kind: Kind::Uint32 },
    ],
};

pub(crate) static SUMMARY_DATA_POINT_VALUE_AT_QUANTILE: Message = Message {
    name: "SummaryDataPoint.ValueAtQuantile",
    fields: &[
        Field { number: 1, json: "quantile", snake: "quantile", repeated: false, oneof: false, kind: Kind::Double },
        Field { number: 2, json: "value", snake: "value", repeated: false, oneof: false, kind: Kind::Double },
    ],
};

pub(crate) static EXEMPLAR: Message = Message {
    name: "Exemplar",
    fields: &[
        Field { number: 2, json: "timeUnixNano", snake: "time_unix_nano", repeated: false, oneof: false, kind: Kind::Fixed64 },
        Field { number: 3, json: "asDouble", snake: "as_double", repeated: false, oneof: true, kind: Kind::Double },
        Field { number: 6, json: "asInt", snake: "as_int", repeated: false, oneof: true, kind: Kind::Sfixed64 },
        Field { number: 4, json: "spanId", snake: "span_id", repeated: false, oneof: false, kind: Kind::Id(8) },
        Field { number: 5, json: "traceId", snake: "trace_id", repeated: false, oneof: false, kind: Kind::Id(16) },
        Field { number: 7, json: "filteredAttributes", snake: "filtered_attributes", repeated: true, oneof: false, kind: Kind::Message(&KEY_VALUE) },
    ],
};
