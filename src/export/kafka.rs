//! Writes OTLP to Kafka as the Collector's exporter with `partition_traces_by_id`: one message per trace, whose key is
//! the trace id as 32 hexadecimal characters, and the partitioner of Sarama, FNV-1a. Logs have the same keys, so that
//! they are in the partition with the same number as their spans. Metrics, and logs without a trace, have no key.
//!
//! In: an [`ExportRequest`]. Out: an [`ExportResponse`] when the brokers have acknowledged every message.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use futures_util::future::join_all;
use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{FutureProducer, FutureRecord};
use verdict_otlp::Signal;
use verdict_telemetry::LogThrottle;

use super::client::{ExportClient, ExportFuture};
use super::config::{KafkaCompression, KafkaConfig};
use super::error::StartError;
use super::pack::ExportRequest;
use super::response::{ExportResponse, ExportResult};
use super::split::split_by_trace;
use crate::kafka::client::{ClientLog, client_config};

/// Maximum bytes of a message in addition to its body: the key, the lengths, and the header of a batch.
const MESSAGE_OVERHEAD: u64 = 1 << 10;

/// A producer, and the topics by signal.
pub(super) struct KafkaClient {
    producer: ArcSwap<FutureProducer<ClientLog>>,
    /// Contains the password, and must not be printed.
    client_config: ClientConfig,
    /// The section of the configuration.
    owner: String,
    throttle: LogThrottle,
    topics: [String; 3],
    max_message_bytes: usize,
}

impl std::fmt::Debug for KafkaClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaClient").field("topics", &self.topics).finish_non_exhaustive()
    }
}

impl KafkaClient {
    /// Creates the producer. librdkafka connects on its own threads.
    pub(super) fn new(id: &str, config: &KafkaConfig) -> Result<KafkaClient, StartError> {
        let mut client_config = client_config(config.connection());
        let producer = &config.producer;
        client_config
            .set("partitioner", "fnv1a_random")
            .set("enable.idempotence", "true")
            .set("compression.type", producer.compression.name())
            .set("message.max.bytes", producer.max_message_bytes.0.to_string())
            .set("linger.ms", producer.linger.0.as_millis().to_string())
            // librdkafka retries within this time; after that the exporter retries.
            .set("message.timeout.ms", config.timeout.0.as_millis().to_string());
        let owner = format!("exporters.{id}");
        let created = client_config.create_with_context(ClientLog::new(&owner));
        let topics = [&config.traces.topic, &config.logs.topic, &config.metrics.topic].map(Clone::clone);
        let max_message_bytes =
            usize::try_from(producer.max_message_bytes.0.saturating_sub(MESSAGE_OVERHEAD))
                .unwrap_or(usize::MAX);
        Ok(KafkaClient {
            producer: ArcSwap::from_pointee(created.map_err(|error| StartError::Kafka(error.to_string()))?),
            client_config,
            owner,
            throttle: LogThrottle::default(),
            topics,
            max_message_bytes,
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

    /// Writes a request as one message per trace, and waits for the acknowledgement of all of them.
    async fn produce(&self, request: &ExportRequest) -> ExportResult {
        let signal = request.signal();
        let topic = self.topic(signal);
        let pieces_of_chunk = |(chunk, bytes): (usize, &Bytes)| {
            let pieces = split_by_trace(signal, bytes, self.max_message_bytes).into_iter();
            pieces.map(move |(trace, piece)| (chunk, trace, piece))
        };
        let messages: Vec<_> = request.chunks().iter().enumerate().flat_map(pieces_of_chunk).collect();
        // Checked before any message is sent, since all of them are sent again when the request is split.
        let largest = messages.iter().map(|(.., piece)| piece.bytes.len()).max();
        if let Some(bytes) = largest.filter(|bytes| *bytes > self.max_message_bytes && messages.len() > 1) {
            return ExportResult::TooLarge(format!("{bytes} bytes are more than producer.max_message_bytes"));
        }
        if signal == Signal::Traces
            && messages.iter().any(|(_, trace, _)| trace.is_none())
            && let Some(suppressed) = self.throttle.allow("without_key")
        {
            tracing::warn!(
                topic,
                suppressed,
                "spans of several traces share a resource that is too large to be copied for each; they are written without a key"
            );
        }
        let producer = self.producer.load_full();
        let delivered_before = request.delivered().messages.clone();
        let remaining = messages.iter().enumerate().filter(|(number, _)| !delivered_before.contains(number));
        let deliveries = remaining.map(|(number, (_, trace, piece))| {
            let (key, producer) = (trace.map(|trace| trace.to_string()), &producer);
            async move {
                let record = FutureRecord::<String, [u8]>::to(topic).payload(&piece.bytes[..]);
                let record = if let Some(key) = &key { record.key(key) } else { record };
                // The timeout is that of waiting while the queue of the producer is full.
                (number, producer.send(record, Duration::from_secs(3600)).await)
            }
        });
        let mut failures = Vec::new();
        let deliveries = join_all(deliveries).await;
        let mut delivered = request.delivered();
        delivered.chunks = (0..request.chunks().len()).map(|chunk| (chunk, 0)).collect();
        for (number, delivery) in deliveries {
            match delivery {
                Ok(_) => _ = delivered.messages.insert(number),
                Err((error, _)) => {
                    if error.rdkafka_error_code() == Some(RDKafkaErrorCode::Fatal) {
                        self.replace_producer(&producer);
                    }
                    delivered.chunks.remove(&messages[number].0);
                    failures.push(result_of(&error));
                }
            }
        }
        // A temporary failure takes precedence: permanent ones decide when no other message is left.
        let is_permanent = |result: &ExportResult| !matches!(result, ExportResult::Retry { .. });
        failures.into_iter().min_by_key(is_permanent).unwrap_or(ExportResult::ACCEPTED)
    }

    /// Replaces a producer that has failed permanently, as an idempotent producer does if it cannot preserve the order
    /// of messages. Has no effect if another request has replaced it already.
    fn replace_producer(&self, failed: &Arc<FutureProducer<ClientLog>>) {
        if !Arc::ptr_eq(&self.producer.load(), failed) {
            return;
        }
        match self.client_config.create_with_context(ClientLog::new(&self.owner)) {
            Ok(producer) => self.producer.store(Arc::new(producer)),
            Err(error) => tracing::error!(%error, "cannot create the Kafka producer again"),
        }
    }
}

/// The result of a message that was not written.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_producer_that_has_failed_permanently_is_replaced_once() {
        let config = KafkaConfig { brokers: vec!["127.0.0.1:1".to_owned()], ..KafkaConfig::default() };
        let client = KafkaClient::new("kafka", &config).unwrap();
        let failed = client.producer.load_full();
        client.replace_producer(&failed);
        let renewed = client.producer.load_full();
        assert!(!Arc::ptr_eq(&failed, &renewed));
        // Another request that failed with the first producer.
        client.replace_producer(&failed);
        assert!(Arc::ptr_eq(&client.producer.load_full(), &renewed));
    }
}
