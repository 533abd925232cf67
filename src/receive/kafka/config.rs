//! `receivers.kafka`. Keys that the Collector's Kafka receiver has too have the same names.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict_client::Tls;
use verdict_config::{Period, Problem, Size, settings};

use crate::kafka::config::{KafkaAuth, KafkaConnection, topic_problem};

settings! {
    /// Receives spans, and logs, from Kafka.
    pub struct KafkaReceiver {
        /// The brokers to begin with, `host:port`. Required.
        brokers: Vec<String>,
        /// Default otel-verdict. The name of this client in the brokers' logs and quotas.
        client_id: String = "otel-verdict".to_owned(),
        /// Default otel-verdict. The consumer group: its members share the partitions. Another group reads and
        /// evaluates everything again.
        group_id: String = "otel-verdict".to_owned(),
        /// Default none. A name of this member that stays the same after a restart, unique in the group: a restart
        /// within `session_timeout` then moves no partition.
        group_instance_id: String,
        /// The topic of spans.
        traces: TracesTopic,
        /// Default none: no logs are read. The topic of logs, which join the spans of their trace. It must have as
        /// many partitions as that of spans, and the same keys.
        logs: Option<LogsTopic>,
        /// `earliest` (default) or `latest`. The position at which a group without a committed offset begins to read.
        initial_offset: InitialOffset = InitialOffset::Earliest,
        /// Default 10s. A member without a heartbeat for this time loses its partitions to the others. After a crash,
        /// a short time lets others take over soon; a long one tolerates pauses.
        session_timeout: Period = Period::secs(10),
        /// Default 3s. Interval of heartbeats; at most a third of `session_timeout`.
        heartbeat_interval: Period = Period::secs(3),
        /// Default 1s. Interval of commits. After a crash the next owner reads records again that were exported since
        /// the last commit.
        commit_interval: Period = Period::secs(1),
        /// Default 5s. Maximum time to wait for exports in flight when a partition is revoked. If an export takes
        /// longer, the next owner evaluates and exports its traces again.
        revoke_grace: Period = Period::secs(5),
        /// Default 4096, the brokers' `offset.metadata.max.bytes`. Limit on the metadata that is committed with an
        /// offset: the ranges of later records that are still needed, at one or two bytes each, and exported traces,
        /// at some 14 bytes each, so that their late spans are recognised. If the ranges do not fit, a new owner
        /// evaluates the latest traces again.
        offset_metadata_max_bytes: u32 = 4096,
        /// Default 1000000. Limit on the records of a partition from the first that is needed to the last that was
        /// read. Above it the partition is paused until traces close. It bounds the records that a new owner reads.
        max_uncommitted_records: u64 = 1_000_000,
        /// Default 16MiB. Size of the messages that are fetched ahead, in addition to `memory.budget`. One fetch takes
        /// at least 1 MB.
        prefetch: Size = Size(16 << 20),
        /// Default 64MiB. Largest message. A larger message is counted and skipped. A response of a broker may have 1
        /// MiB more than this size or `prefetch`, whichever is larger; a larger batch of messages stops the partition,
        /// which is logged.
        max_message_size: Size = Size(64 << 20),
        /// Default none: connections are not encrypted. `tls: {}` uses TLS with the system's authorities.
        #[serde(skip_serializing_if = "Option::is_none")]
        tls: Option<Tls>,
        /// Authentication at the brokers. Default: none.
        auth: KafkaAuth,
    }

    /// The topic of spans.
    pub struct TracesTopic {
        /// Default otlp_spans, as in the Collector.
        topic: String = "otlp_spans".to_owned(),
    }

    /// The topic of logs.
    pub struct LogsTopic {
        /// Default otlp_logs, as in the Collector.
        topic: String = "otlp_logs".to_owned(),
    }
}

/// The position at which a group without a committed offset begins to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InitialOffset {
    /// The oldest message, so that no message is skipped.
    #[default]
    Earliest,
    /// The end of the topic: only messages that are written from now on are read.
    Latest,
}

/// Minimum of `offset_metadata_max_bytes`: space for some hundred ranges of records.
const MIN_METADATA_BYTES: u32 = 256;

impl KafkaReceiver {
    pub(crate) fn connection(&self) -> KafkaConnection<'_> {
        let KafkaReceiver { brokers, client_id, tls, auth, .. } = self;
        KafkaConnection { brokers, client_id, tls: tls.as_ref(), auth }
    }

    /// The topics, spans first.
    pub(crate) fn topics(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.traces.topic.as_str()).chain(self.logs.iter().map(|logs| logs.topic.as_str()))
    }

    /// The problems of invalid values.
    pub fn problems(&self) -> Vec<Problem> {
        let mut problems = self.connection().problems();
        problems.extend(topic_problem("traces.topic", &self.traces.topic));
        if let Some(logs) = &self.logs {
            problems.extend(topic_problem("logs.topic", &logs.topic));
            if logs.topic == self.traces.topic {
                problems
                    .push(Problem::new("logs.topic", "is the topic of spans; logs need one of their own"));
            }
        }
        let mut add_if = |key: &str, is_invalid: bool, message: &str| {
            if is_invalid {
                problems.push(Problem::new(key, message));
            }
        };
        let millis = |period: Period| period.0.as_millis();
        add_if("group_id", self.group_id.is_empty(), "required: members of a group share the partitions");
        let session = millis(self.session_timeout);
        add_if("session_timeout", !(1000..=1_800_000).contains(&session), "must be from 1s to 30m");
        let heartbeat = millis(self.heartbeat_interval);
        add_if(
            "heartbeat_interval",
            heartbeat == 0 || heartbeat * 3 > session,
            "must be above 0 and at most a third of session_timeout",
        );
        let commit = millis(self.commit_interval);
        add_if("commit_interval", !(10..=600_000).contains(&commit), "must be from 10ms to 10m");
        add_if(
            "revoke_grace",
            millis(self.revoke_grace) > 120_000,
            "must be at most 2m: the group waits for it",
        );
        add_if(
            "offset_metadata_max_bytes",
            self.offset_metadata_max_bytes < MIN_METADATA_BYTES,
            "must be at least 256",
        );
        add_if("max_uncommitted_records", self.max_uncommitted_records == 0, "must be at least 1");
        add_if("prefetch", !(1 << 10..=1 << 30).contains(&self.prefetch.0), "must be from 1KiB to 1GiB");
        add_if(
            "max_message_size",
            !(1 << 10..=500 << 20).contains(&self.max_message_size.0),
            "must be from 1KiB to 500MiB",
        );
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(yaml: &str) -> Vec<String> {
        let config: KafkaReceiver = serde_saphyr::from_str(yaml).unwrap();
        config.problems().into_iter().map(|problem| problem.key).collect()
    }

    #[test]
    fn defaults_with_brokers_are_valid() {
        assert!(keys("brokers: ['kafka:9092']").is_empty());
        assert!(
            keys("brokers: ['kafka:9092']\nlogs: {}\ntls: {}\nauth: { sasl: { username: u, password: p } }")
                .is_empty()
        );
    }

    #[test]
    fn invalid_values_are_problems_named_by_key() {
        assert_eq!(keys("{}"), ["brokers"]);
        assert_eq!(keys("brokers: ['http://kafka:9092']"), ["brokers"]);
        let yaml = "brokers: ['kafka:9092']\ntraces: { topic: 'a b' }\nlogs: { topic: 'a b' }\n\
                    session_timeout: 2s\nprefetch: 1\nauth: { sasl: { username: me } }";
        let expected = [
            "auth.sasl.password",
            "auth.sasl.mechanism",
            "traces.topic",
            "logs.topic",
            "logs.topic",
            "heartbeat_interval",
            "prefetch",
        ];
        assert_eq!(keys(yaml), expected);
    }
}
