//! Writes OTLP to Kafka as the Collector's exporter does with `partition_traces_by_id`: one message per trace, with
//! its id as 32 hexadecimal characters as key, and the partitioner of Sarama, FNV-1a. Logs are keyed likewise, so
//! that they are in the partition of the same number as the spans; metrics, and logs without a trace, have no key.
//!
//! In: an [`ExportRequest`]. Out: an [`ExportResponse`] when the brokers have acknowledged every message.

use std::time::Duration;

use futures_util::future::join_all;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{FutureProducer, FutureRecord};
use verdict_otlp::Signal;

use super::client::{ExportClient, ExportFuture};
use super::config::{KafkaCompression, KafkaConfig};
use super::error::StartError;
use super::pack::ExportRequest;
use super::response::{ExportResponse, ExportResult};
use super::split::split_by_trace;
use crate::kafka::client::{ClientLog, client_config};

/// Bytes of a message besides its body: the key, the lengths, and the header of a batch.
const OVERHEAD: u64 = 1 << 10;

/// A producer, and the topics by signal.
pub(super) struct KafkaClient {
    producer: FutureProducer<ClientLog>,
    topics: [String; 3],
    max_message: usize,
}

impl std::fmt::Debug for KafkaClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaClient").field("topics", &self.topics).finish_non_exhaustive()
    }
}

impl KafkaClient {
    /// Connections are made by librdkafka, on its threads.
    pub(super) fn new(id: &str, config: &KafkaConfig) -> Result<KafkaClient, StartError> {
        let mut client = client_config(config.connection());
        let producer = &config.producer;
        client
            .set("partitioner", "fnv1a_random")
            .set("enable.idempotence", "true")
            .set("compression.type", producer.compression.name())
            .set("message.max.bytes", producer.max_message_bytes.0.to_string())
            .set("linger.ms", producer.linger.0.as_millis().to_string())
            // Attempts within a request; after that the queue of the exporter retries.
            .set("message.timeout.ms", config.timeout.0.as_millis().to_string());
        let created = client.create_with_context(ClientLog::new(&format!("exporters.{id}")));
        let topics = [&config.traces.topic, &config.logs.topic, &config.metrics.topic].map(Clone::clone);
        let max_message =
            usize::try_from(producer.max_message_bytes.0.saturating_sub(OVERHEAD)).unwrap_or(usize::MAX);
        Ok(KafkaClient {
            producer: created.map_err(|error| StartError::Kafka(error.to_string()))?,
            topics,
            max_message,
        })
    }

    fn topic(&self, signal: Signal) -> &str {
        let [traces, logs, metrics] = &self.topics;
        match signal {
            Signal::Traces => traces,
            Signal::Logs => logs,
            Signal::Metrics => metrics,
        }
    }

    async fn produce(&self, request: &ExportRequest) -> ExportResult {
        let topic = self.topic(request.signal());
        let chunks = request.chunks().iter();
        let messages: Vec<_> =
            chunks.flat_map(|chunk| split_by_trace(request.signal(), chunk, self.max_message)).collect();
        let sent = messages.iter().map(|(trace, piece)| {
            let key = trace.map(|trace| trace.to_string());
            async move {
                let record = FutureRecord::<String, [u8]>::to(topic).payload(&piece.bytes[..]);
                let record = if let Some(key) = &key { record.key(key) } else { record };
                // Waits while the queue of the producer is full.
                self.producer.send(record, Duration::from_secs(3600)).await
            }
        });
        let failed = join_all(sent).await.into_iter().filter_map(|sent| sent.err().map(|(error, _)| error));
        // One that would fail again decides.
        let results = failed.map(|error| result_of(&error));
        results
            .max_by_key(|result| !matches!(result, ExportResult::Retry { .. }))
            .unwrap_or(ExportResult::ACCEPTED)
    }
}

fn result_of(error: &KafkaError) -> ExportResult {
    use RDKafkaErrorCode as Code;
    let reason = error.to_string();
    match error.rdkafka_error_code() {
        Some(Code::MessageSizeTooLarge | Code::InvalidMessageSize) => ExportResult::TooLarge(reason),
        Some(
            Code::TopicAuthorizationFailed
            | Code::ClusterAuthorizationFailed
            | Code::SaslAuthenticationFailed,
        ) => ExportResult::Unauthorized(reason),
        Some(Code::InvalidRecord | Code::InvalidMessage | Code::PolicyViolation) => {
            ExportResult::Invalid(reason)
        }
        _ => ExportResult::Retry { after: None, reason },
    }
}

impl KafkaCompression {
    fn name(self) -> &'static str {
        match self {
            KafkaCompression::None => "none",
            KafkaCompression::Gzip => "gzip",
            KafkaCompression::Snappy => "snappy",
            KafkaCompression::Lz4 => "lz4",
            KafkaCompression::Zstd => "zstd",
        }
    }
}

impl ExportClient for KafkaClient {
    fn export<'a>(&'a self, request: &'a ExportRequest) -> ExportFuture<'a> {
        Box::pin(async move { ExportResponse::from(self.produce(request).await) })
    }
}
