//! Settings of the exporter `kafka`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict_client::Tls;
use verdict_config::{Period, Size, settings};
use verdict_otlp::Signal;

use super::queue_config::{RetryOnFailure, SendingQueue};
use crate::kafka::config::{KafkaAuth, KafkaConnection};

settings! {
    /// OTLP in messages of Kafka, keyed by trace id as the Collector does with `partition_traces_by_id`.
    pub struct KafkaConfig {
        /// The brokers to begin with, `host:port`. Required.
        brokers: Vec<String>,
        /// Default otel-verdict. The name of this client in the brokers' logs and quotas.
        client_id: String = "otel-verdict".to_owned(),
        /// The topic of spans. Default otlp_spans.
        traces: KafkaTopic = KafkaTopic { topic: "otlp_spans".to_owned() },
        /// The topic of logs. Default otlp_logs. With as many partitions as that of spans, logs and spans of a
        /// trace are in partitions of the same number.
        logs: KafkaTopic = KafkaTopic { topic: "otlp_logs".to_owned() },
        /// The topic of metrics. Default otlp_metrics.
        metrics: KafkaTopic = KafkaTopic { topic: "otlp_metrics".to_owned() },
        /// Size, compression and joining of messages.
        producer: Producer,
        /// TLS. Default: none; `tls: {}` uses TLS with the system's certificate authorities.
        #[serde(skip_serializing_if = "Option::is_none")]
        tls: Option<Tls>,
        /// Authentication at the brokers. Default: none.
        auth: KafkaAuth,
        /// The signals that are sent. Default: traces, logs and metrics.
        signals: Vec<Signal> = Signal::ALL.to_vec(),
        /// The bounded queue of this exporter.
        sending_queue: SendingQueue,
        /// Retries while the brokers are unavailable.
        retry_on_failure: RetryOnFailure,
        /// Time until the brokers have acknowledged a message, attempts of the client included. Default 30s: after
        /// that the request counts as failed and is retried, and consumers may read it twice.
        timeout: Period = Period::secs(30),
        /// With `true` (default) a full queue makes the whole pipeline refuse requests until there is
        /// space; with `false` requests that do not fit into the queue are dropped, counted and logged.
        required: bool = true,
    }

    /// A topic of Kafka.
    pub struct KafkaTopic {
        /// Its name.
        topic: String,
    }

    /// The producer of messages. It waits for all replicas in sync, and writes each message once.
    pub struct Producer {
        /// Largest message before compression. Default 1000000, as in the Collector, which brokers with their defaults
        /// accept. A larger trace is written as several messages with the same key. A larger span is refused: to
        /// allow it, raise this and the topic's `max.message.bytes`.
        max_message_bytes: Size = Size(1_000_000),
        /// `none`, `gzip`, `snappy`, `lz4` or `zstd` (default). Compression of batches.
        compression: KafkaCompression = KafkaCompression::Zstd,
        /// Time that a batch waits for more messages. Default 5ms.
        linger: Period = Period(std::time::Duration::from_millis(5)),
    }
}

/// Compression of batches of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KafkaCompression {
    None,
    Gzip,
    Snappy,
    Lz4,
    /// Every broker since Kafka 2.1 accepts it.
    #[default]
    Zstd,
}

impl KafkaConfig {
    pub(crate) fn connection(&self) -> KafkaConnection<'_> {
        let KafkaConfig { brokers, client_id, tls, auth, .. } = self;
        KafkaConnection { brokers, client_id, tls: tls.as_ref(), auth }
    }

    /// The topics by signal, each with its key.
    pub(crate) fn topics(&self) -> [(Signal, &'static str, &str); 3] {
        [
            (Signal::Traces, "traces.topic", &self.traces.topic),
            (Signal::Logs, "logs.topic", &self.logs.topic),
            (Signal::Metrics, "metrics.topic", &self.metrics.topic),
        ]
    }
}
