//! Every self-metric, declared once: name, kind, unit, labels, description.
//!
//! Metrics are registered from their declarations, and a test compares [`ALL`] with the table in
//! `docs/self-metrics.md`. Names follow the Prometheus conventions (base units, `_total` on
//! counters) under the prefix [`PREFIX`].

use std::fmt;

use prometheus_client::encoding::EncodeMetric;
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::{Metric, Registry, Unit};

/// The namespace of all names on a shared Prometheus server.
pub const PREFIX: &str = "otel_verdict";

verdict_otlp::labelled_enum! {
    /// The type of a metric, with the word that the exposition format uses.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum MetricKind {
        /// Never decreases; its exposed name ends in `_total`.
        Counter = "counter",
        Gauge = "gauge",
        /// Buckets, a sum and a count.
        Histogram = "histogram",
    }
}

/// The declaration of one self-metric.
#[derive(Clone, Copy, Debug)]
pub struct Declared {
    /// The name without prefix, unit and `_total`.
    pub name: &'static str,
    pub kind: MetricKind,
    /// The base unit (`bytes`, `seconds`); none for counts.
    pub unit: Option<&'static str>,
    /// Names of the labels, in the order that [`Declared::label_pairs`] expects.
    pub labels: &'static [&'static str],
    /// The description, without a full stop (the exposition format adds one).
    pub help: &'static str,
}

impl Declared {
    /// The name in a scrape.
    pub fn exposed(&self) -> String {
        let total = if self.kind == MetricKind::Counter { "_total" } else { "" };
        let unit = self.unit.map(|unit| format!("_{unit}")).unwrap_or_default();
        format!("{PREFIX}_{}{unit}{total}", self.name)
    }

    /// Pairs the declared label names with `values`.
    pub fn label_pairs<V, const N: usize>(&self, values: [V; N]) -> [(&'static str, V); N] {
        debug_assert_eq!(self.labels.len(), N, "{} has other labels", self.name);
        let mut names = self.labels.iter();
        values.map(|value| (names.next().copied().unwrap_or_default(), value))
    }

    /// The unit as a type of the registry.
    pub fn unit(&self) -> Option<Unit> {
        self.unit.map(|unit| match unit {
            "bytes" => Unit::Bytes,
            "seconds" => Unit::Seconds,
            other => Unit::Other(other.to_owned()),
        })
    }

    /// Registers a new family with one label, and returns its cells for these values of the label.
    pub fn register_cells<M, const N: usize>(
        &self,
        registry: &mut Registry,
        values: [&'static str; N],
    ) -> [M; N]
    where
        M: EncodeMetric + TypedMetric + Clone + Default + fmt::Debug + Send + Sync + 'static,
    {
        let family: Family<[(&'static str, &'static str); 1], M> = self.register_new(registry);
        values.map(|value| family.get_or_create_owned(&self.label_pairs([value])))
    }

    /// Registers `metric` under this declaration, and returns it.
    pub fn register<M: Metric + Clone>(&self, registry: &mut Registry, metric: M) -> M {
        match self.unit() {
            Some(unit) => registry.register_with_unit(self.name, self.help, unit, metric.clone()),
            None => registry.register(self.name, self.help, metric.clone()),
        }
        metric
    }

    /// Registers a new metric, and returns it.
    pub fn register_new<M: Metric + Clone + Default>(&self, registry: &mut Registry) -> M {
        self.register(registry, M::default())
    }
}

macro_rules! declare {
    ($($id:ident = $name:literal, $kind:ident, $unit:expr, [$($label:literal),*], $help:literal;)*) => {
        $(
            #[doc = $help]
            pub const $id: Declared = Declared {
                name: $name, kind: MetricKind::$kind, unit: $unit, labels: &[$($label),*], help: $help,
            };
        )*
        /// All declarations, in the order of the data path.
        pub const ALL: &[Declared] = &[$($id),*];
    };
}

const COUNT: Option<&str> = None;
const BYTES: Option<&str> = Some("bytes");
const SECONDS: Option<&str> = Some("seconds");

declare! {
    BUILD = "build_info", Gauge, COUNT, ["version"],
        "Always 1; the running version is its label";
    START_TIME = "process_start_time", Gauge, SECONDS, [],
        "When the process started, in Unix time";
    RELOADS = "config_reloads", Counter, COUNT, ["result"],
        "Reloads of the configuration; result is taken, or refused when the previous configuration stays in use";

    MEMORY_BUDGET = "memory_budget", Gauge, BYTES, [],
        "The configured memory.budget";

    REQUESTS = "receive_requests", Counter, COUNT, ["transport", "signal", "outcome"],
        "OTLP requests answered; outcome is accepted, partial, or why the request was refused";
    BODY_BYTES = "receive_body", Counter, BYTES, ["transport", "signal"],
        "Bytes of request messages passed to the pipeline, after decompression";
    CONNECTIONS = "receive_connections", Gauge, COUNT, ["transport"],
        "Open connections";
    HANDSHAKES_FAILED = "receive_failed_handshakes", Counter, COUNT, ["transport"],
        "TLS handshakes that failed, for example without a client certificate, or took too long";
    HELD_BYTES = "receive_held", Gauge, BYTES, [],
        "Bytes of requests that are being received or wait for their acknowledgement";
    SPANS_RECEIVED = "spans_received", Counter, COUNT, [],
        "Spans in requests that were decoded";
    SPANS_ACCEPTED = "spans_accepted", Counter, COUNT, [],
        "Spans accepted and acknowledged to their sender";
    SPANS_REFUSED = "spans_refused", Counter, COUNT, ["reason"],
        "Spans refused with an error to their sender";
    ITEMS_REJECTED = "receive_rejected_items", Counter, COUNT, ["transport", "signal"],
        "Spans, log records or data points rejected in a partial success";

    KAFKA_RECORDS = "receive_kafka_records", Counter, COUNT, ["signal", "outcome"],
        "Messages of Kafka; outcome is accepted, partial (items are malformed), malformed, undeliverable (no exporter takes it), too_large (above max_message_size), or skipped (the previous owner of the partition has exported it)";
    KAFKA_BYTES = "receive_kafka", Counter, BYTES, ["signal"],
        "Bytes of messages of Kafka";
    KAFKA_ASSIGNED = "receive_kafka_partitions", Gauge, COUNT, [],
        "Partitions that this member of the consumer group owns";
    KAFKA_PAUSED = "receive_kafka_paused_partitions", Gauge, COUNT, [],
        "Partitions that are paused: by memory, a full queue, or max_uncommitted_records";
    KAFKA_UNCOMMITTED = "receive_kafka_uncommitted_records", Gauge, COUNT, [],
        "Messages after the committed offsets: a new owner reads them again, and skips those that were exported";
    KAFKA_COMMITS = "receive_kafka_commits", Counter, COUNT, ["result"],
        "Commits of offsets; result is committed, failed, or deferred when what belongs to an offset is larger than offset_metadata_max_bytes";
    KAFKA_REPLAYED = "receive_kafka_replayed_traces", Counter, COUNT, [],
        "Traces of revoked partitions that the next owner evaluates again: their export was not acknowledged, or what belongs to the offset had no room for them";

    JOURNAL_BYTES = "journal", Gauge, BYTES, [],
        "Bytes of the journal's files";
    JOURNAL_MAX_BYTES = "journal_max", Gauge, BYTES, [],
        "The configured storage.max_bytes; 0 without a journal";
    JOURNAL_LIVE_BYTES = "journal_live", Gauge, BYTES, [],
        "Bytes of the records that the journal retains for traces and exporters";
    JOURNAL_SEGMENTS = "journal_segments", Gauge, COUNT, [],
        "Files of the journal";
    JOURNAL_WRITTEN = "journal_written", Counter, BYTES, [],
        "Bytes written to the journal, without rewriting";
    JOURNAL_REFUSED = "journal_refused_requests", Counter, COUNT, [],
        "Requests refused because the journal had reached its size";
    JOURNAL_ERRORS = "journal_errors", Counter, COUNT, [],
        "Writes, fsyncs and deletions of the journal that failed";
    JOURNAL_CORRUPT = "journal_corrupt_records", Counter, COUNT, [],
        "Damaged parts of the journal that were skipped at start";
    JOURNAL_RECOVERED = "journal_recovered_records", Counter, COUNT, [],
        "Requests and verdicts that were recovered from the journal at start";
    JOURNAL_SYNC_DURATION = "journal_sync_duration", Histogram, SECONDS, [],
        "Duration of an fsync of the journal";
    DEAD_LETTER_BYTES = "dead_letter", Gauge, BYTES, [],
        "Bytes of dead-letter files";

    TRACES_OPEN = "traces_open", Gauge, COUNT, [],
        "Traces that are being assembled";
    BUFFERED_SPANS = "buffered_spans", Gauge, COUNT, [],
        "Spans buffered in open traces";
    BUFFERED_BYTES = "buffered", Gauge, BYTES, [],
        "Bytes of spans buffered in open traces";
    IN_TRANSIT_BYTES = "in_transit", Gauge, BYTES, [],
        "Bytes of accepted spans that wait to be added to their traces";
    CLOSED_BYTES = "closed_traces", Gauge, BYTES, [],
        "Bytes of closed traces that are not delivered yet, and of their questions to judges";
    TRACES_CLOSED = "traces_closed", Counter, COUNT, ["reason"],
        "Traces closed, by close reason";
    SPANS_LATE = "spans_late", Counter, COUNT, [],
        "Spans that arrived after their trace had closed; they are evaluated and forwarded";
    SPANS_DUPLICATE = "spans_duplicate", Counter, COUNT, [],
        "Exact resends of a span within an open trace; forwarded once";
    SPANS_PASSED = "spans_passed_through", Counter, COUNT, [],
        "Spans forwarded without being evaluated, because the configuration does not select them";
    ATTRIBUTES_REPLACED = "verdict_attributes_replaced", Counter, COUNT, [],
        "Spans that arrived with verdict attributes, which were removed before new ones were written";
    TRACES_UNJUDGED = "traces_unjudged", Counter, COUNT, [],
        "Traces forwarded without being evaluated: evaluation failed, or shutdown left no time";
    TRACES_QUARANTINED = "traces_quarantined", Counter, COUNT, [],
        "Traces forwarded without being evaluated because the process died twice while it evaluated them; included in traces_unjudged";
    HARMFUL_CALLS_OPEN = "harmful_calls_open", Counter, COUNT, [],
        "Harmful calls reported while their trace was open, by the spans that had arrived";
    HARMFUL_CALLS_RETRACTED = "harmful_calls_retracted", Counter, COUNT, [],
        "Harmful calls reported while their trace was open that later spans showed to be allowed; included in harmful_calls_open";
    ALARMS_OPEN = "alarms_open", Counter, COUNT, ["cause"],
        "Loops and exceeded limits, reported once per trace, at the latest when it closes; cause is loop, tokens or cost";
    ALARM_CHECKS_SKIPPED = "alarm_checks_skipped", Counter, COUNT, [],
        "Checks for alarms that a trace did not get before it closed, because other traces came first or it grew too little; limits and loops are then checked when it closes";
    PATH_DECISIONS = "path_decisions", Counter, COUNT, ["decision"],
        "Answers of the paths API; decision is allowed, unknown or denied";

    PAGE_TRACES = "page_traces", Gauge, COUNT, [],
        "Evaluated traces that the live page shows";
    PAGE_BYTES = "page_history", Gauge, BYTES, [],
        "Bytes of the evaluated traces that the live page shows";
    PAGE_SKIPPED = "page_traces_skipped", Counter, COUNT, [],
        "Evaluated traces that the live page does not show because too many closed at once";
    PAGE_CLIENTS = "page_clients", Gauge, COUNT, [],
        "Open streams of updates of the live page";
    PAGE_SLOW = "page_clients_slow", Counter, COUNT, [],
        "Streams of updates that were closed because their client read too slowly";
    PAGE_REFUSED = "page_requests_refused", Counter, COUNT, ["reason"],
        "Requests to the live page that were refused; reason is credentials (missing or unknown), host (not one of page.hosts) or clients (too many streams)";

    MEASUREMENTS = "measurements", Counter, COUNT, ["metric", "result"],
        "Measurements by metric; result is pass, fail or unmeasured";
    MEASUREMENTS_LIMITED = "measurements_limited", Counter, COUNT, ["metric"],
        "Measurements of a metric that exceeded the work budget of their trace; included in measurements";
    MEASUREMENTS_UNMEASURED = "measurements_unmeasured", Counter, COUNT, ["reason"],
        "Measurements without a value, by the reason of the attribute; included in measurements";
    METRIC_DURATION = "metric_duration", Histogram, SECONDS, ["metric"],
        "Time that a metric took on all spans of one trace, including waiting for judges";
    TRACE_VERDICTS = "trace_verdicts", Counter, COUNT, ["result"],
        "Verdicts on whole traces; result is pass, fail or unmeasured";
    AGENT_TRACES = "agent_traces", Counter, COUNT, ["service", "agent", "model", "result"],
        "Verdicts on whole traces by service, outermost agent and its model; result is pass, fail or unmeasured";
    AGENT_VERSIONS = "agent_versions", Counter, COUNT, ["service", "agent", "version", "result"],
        "Verdicts on whole traces by service, outermost agent and its version, or that of the service; result is pass, fail or unmeasured";
    AGENT_MEASUREMENTS = "agent_measurements", Counter, COUNT, ["service", "agent", "model", "metric", "result"],
        "Measurements by the agent that owns the span; result is pass, fail or unmeasured";
    AGENT_SCORES = "agent_scores", Histogram, COUNT, ["agent", "model", "metric"],
        "Scores of built-in metrics from 0 to 1 by agent and model, at most admin.agent_series of them; with service.telemetry only";
    AGENT_FINDINGS = "agent_findings", Counter, COUNT, ["service", "agent", "metric", "category", "severity"],
        "Findings of failing measurements";
    AGENT_TOKENS = "agent_tokens", Counter, COUNT, ["service", "agent", "model", "kind"],
        "Tokens of agents' model calls as recorded; kind is input, output, cached (part of input), cache_write (part of input), reasoning (part of output) or unspecified (of calls that record only a total)";
    AGENT_COST = "agent_cost", Counter, Some("usd"), ["service", "agent", "model"],
        "Cost of agents' model calls as recorded";
    AGENT_TOOL_CALLS = "agent_tool_calls", Counter, COUNT, ["service", "agent", "tool", "result"],
        "Tool spans by the verdict on them; result is pass, fail or unmeasured";
    AGENT_FAILURES = "agent_failures", Counter, COUNT, ["service", "agent", "signature"],
        "Failing traces by the signature of their worst failure";
    CLOSE_TO_EXPORT = "close_to_export", Histogram, SECONDS, [],
        "Time from a trace's close until its annotated spans are in every exporter's queue";

    JUDGE_QUESTIONS = "judge_questions", Counter, COUNT, ["judge", "outcome"],
        "Questions to a judge, one per sample, by outcome: answered, cached, shared with a pending one, replayed, budget, timeout, failed, withheld";
    JUDGE_REQUESTS = "judge_requests", Counter, COUNT, ["judge", "status"],
        "Requests to a judge by final status, including retries and hedges";
    JUDGE_UNUSABLE = "judge_unusable_answers", Counter, COUNT, ["judge", "fault"],
        "Answers of a judge that were cut off, refused, or without the requested object, and questions longer than its context window";
    JUDGE_TOKENS = "judge_tokens", Counter, COUNT, ["judge", "kind"],
        "Tokens spent on a judge: input, cached (part of the prompt that the server had cached), output";
    JUDGE_COST = "judge_cost", Counter, Some("usd"), ["judge"],
        "Cost of a judge's tokens by its configured prices";
    JUDGE_IN_FLIGHT = "judge_requests_in_flight", Gauge, COUNT, ["judge"],
        "Requests to a judge that are in flight";
    JUDGE_WAITING = "judge_questions_waiting", Gauge, COUNT, ["judge"],
        "Questions that wait for a judge's concurrency limit, its rate limit, or the end of a pause that it requested";
    JUDGE_BREAKER = "judge_breaker_state", Gauge, COUNT, ["judge"],
        "State of a judge's circuit breaker: 0 closed (requests are sent), 1 half open (one request is sent as a probe), 2 open (no requests are sent)";
    JUDGE_DURATION = "judge_request_duration", Histogram, SECONDS, ["judge"],
        "Time until a request to a judge was answered or failed";
    JUDGE_DISK_ERRORS = "judge_disk_errors", Counter, COUNT, [],
        "Reads and writes of cached and recorded answers that failed, and damaged ones that were skipped";

    CASCADE_QUESTIONS = "judge_cascade_questions", Counter, COUNT, ["cascade", "result"],
        "Questions to a cascade of judges: kept (the first judge's answer applies), or why the second was asked: stakes, disagreement (with the rules), unsure, no_answer";
    CASCADE_COMPARED = "judge_cascade_comparisons", Counter, COUNT, ["cascade", "result"],
        "Questions that both judges of a cascade answered with pass or fail: agreed or differed";
    CASCADE_AVOIDED_TOKENS = "judge_cascade_avoided_tokens", Counter, COUNT, ["cascade"],
        "Estimated tokens of the second judge for answers of the first that were kept";
    CASCADE_AVOIDED_COST = "judge_cascade_avoided_cost", Counter, Some("usd"), ["cascade"],
        "Estimated cost of the second judge for answers of the first that were kept";

    EXPORT_ITEMS = "exporter_items", Counter, COUNT, ["exporter", "outcome"],
        "Spans, log records and data points by their outcome at an exporter; lost is a bug";
    EXPORT_DROPPED = "exporter_dropped_items", Counter, COUNT, ["exporter", "reason"],
        "Items that an exporter dropped, by reason; exporter_items counts them with outcome dropped";
    EXPORT_REQUESTS = "exporter_requests", Counter, COUNT, ["exporter", "status"],
        "Export requests by final status, including retries";
    EXPORT_RETRIES = "exporter_retries", Counter, COUNT, ["exporter"],
        "Export requests sent again after a retryable failure";
    EXPORT_DURATION = "exporter_request_duration", Histogram, SECONDS, ["exporter"],
        "Time until an export request was answered";
    QUEUE_BYTES = "exporter_queue", Gauge, BYTES, ["exporter"],
        "Bytes waiting in an exporter's queue";
    QUEUE_CAPACITY = "exporter_queue_capacity", Gauge, BYTES, ["exporter"],
        "Bytes that an exporter's queue may hold";
    EXPORT_ALERTS = "exporter_alerts", Counter, COUNT, ["exporter", "outcome"],
        "Alerts of a webhook exporter that a rule selected; outcome is sent, repeated (one with the same signature was sent) or limited (max_per_minute)";
}
