//! The settings of a connection to Kafka, with the Collector's key names.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict_client::Tls;
use verdict_config::{Problem, Secret, settings};

settings! {
    /// Authentication at the brokers.
    pub struct KafkaAuth {
        /// SASL. Default: none.
        sasl: Option<Sasl>,
    }

    /// SASL with a user's name and password.
    pub struct Sasl {
        /// The user's name. Required.
        username: String,
        /// The password, as `${env:NAME}` or `${file:PATH}`. Required.
        password: Option<Secret>,
        /// `PLAIN` (default: the password is sent, so that TLS is required), `SCRAM-SHA-256` or `SCRAM-SHA-512`.
        mechanism: Mechanism = Mechanism::Plain,
    }
}

/// A mechanism of SASL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mechanism {
    /// The password is sent.
    #[default]
    #[serde(rename = "PLAIN")]
    Plain,
    /// A proof of the password is sent.
    #[serde(rename = "SCRAM-SHA-256")]
    ScramSha256,
    /// A proof of the password is sent.
    #[serde(rename = "SCRAM-SHA-512")]
    ScramSha512,
}

/// The connection settings that the receiver and the exporter have in common.
#[derive(Clone, Copy, Debug)]
pub struct KafkaConnection<'a> {
    pub brokers: &'a [String],
    pub client_id: &'a str,
    pub tls: Option<&'a Tls>,
    pub auth: &'a KafkaAuth,
}

/// Maximum length of a topic's name, which Kafka defines.
const MAX_TOPIC_LENGTH: usize = 249;

impl KafkaConnection<'_> {
    /// The problems of invalid values.
    pub fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut add = |key: &str, message: &str| problems.push(Problem::new(key, message));
        if self.brokers.is_empty() {
            add("brokers", "required: one host:port or more");
        }
        let is_address = |broker: &String| {
            let port =
                broker.rsplit_once(':').map(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
            port == Some(true) && !broker.contains(['/', ','])
        };
        if !self.brokers.iter().all(is_address) {
            add("brokers", "must be a list of host:port, such as [\"kafka:9092\"]");
        }
        if let Some(tls) = self.tls {
            if tls.server_name_override.is_some() {
                add(
                    "tls.server_name_override",
                    "not supported for Kafka, whose brokers have names of their own",
                );
            }
            if tls.cert_file.is_some() != tls.key_file.is_some() {
                add("tls", "cert_file and key_file must be given together");
            }
        }
        if let Some(sasl) = &self.auth.sasl {
            if sasl.username.is_empty() {
                add("auth.sasl.username", "required");
            }
            if sasl.password.is_none() {
                add("auth.sasl.password", "required");
            }
            if sasl.mechanism == Mechanism::Plain && self.tls.is_none_or(|tls| tls.insecure) {
                add(
                    "auth.sasl.mechanism",
                    "PLAIN sends the password, and `tls` is not set: use SCRAM-SHA-512, or TLS",
                );
            }
        }
        problems
    }
}

/// The problem of a topic's name; `None` if the name is valid.
pub fn topic_problem(key: &str, topic: &str) -> Option<Problem> {
    let may_contain = |c: char| c.is_ascii_alphanumeric() || ['.', '_', '-'].contains(&c);
    let is_valid = !topic.is_empty()
        && topic.len() <= MAX_TOPIC_LENGTH
        && topic.chars().all(may_contain)
        && topic != "."
        && topic != "..";
    let message = "must be the name of a topic: letters, digits, '.', '_' and '-'";
    (!is_valid).then(|| Problem::new(key, message))
}
