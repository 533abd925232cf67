//! Creates clients of librdkafka from the configuration, and logs their reports.

use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;
use verdict_config::Secret;
use verdict_telemetry::LogThrottle;

use super::config::{KafkaConnection, Mechanism};

/// The properties of a connection. The result contains the password and must not be printed.
pub(crate) fn client_config(connection: KafkaConnection<'_>) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", connection.brokers.join(","));
    config.set("client.id", connection.client_id);
    let tls = connection.tls.filter(|tls| !tls.insecure);
    let sasl = connection.auth.sasl.as_ref();
    config.set(
        "security.protocol",
        match (tls.is_some(), sasl.is_some()) {
            (false, false) => "PLAINTEXT",
            (true, false) => "SSL",
            (false, true) => "SASL_PLAINTEXT",
            (true, true) => "SASL_SSL",
        },
    );
    if let Some(tls) = tls {
        let to_text =
            |path: &Option<std::path::PathBuf>| path.as_ref().map(|path| path.display().to_string());
        // The built-in OpenSSL has no certificate authorities: `probe` searches for those of the system.
        config.set("ssl.ca.location", to_text(&tls.ca_file).unwrap_or_else(|| "probe".to_owned()));
        if let (Some(cert), Some(key)) = (to_text(&tls.cert_file), to_text(&tls.key_file)) {
            config.set("ssl.certificate.location", cert).set("ssl.key.location", key);
        }
        if tls.insecure_skip_verify {
            tracing::warn!("the brokers' certificates are not verified (insecure_skip_verify: true)");
        }
        config.set("enable.ssl.certificate.verification", (!tls.insecure_skip_verify).to_string());
    }
    if let Some(sasl) = sasl {
        let mechanism = match sasl.mechanism {
            Mechanism::Plain => "PLAIN",
            Mechanism::ScramSha256 => "SCRAM-SHA-256",
            Mechanism::ScramSha512 => "SCRAM-SHA-512",
        };
        config.set("sasl.mechanism", mechanism).set("sasl.username", &sasl.username);
        config.set("sasl.password", sasl.password.as_ref().map_or("", Secret::expose));
    }
    config
}

/// Logs the reports of librdkafka, at most one log record and one error within the throttle's interval.
#[derive(Debug)]
pub(crate) struct ClientLog {
    /// The component that the client belongs to: `receivers.kafka`, or an exporter.
    pub(crate) owner: String,
    pub(crate) throttle: LogThrottle,
}

impl ClientLog {
    pub(crate) fn new(owner: &str) -> ClientLog {
        ClientLog { owner: owner.to_owned(), throttle: LogThrottle::default() }
    }
}

impl ClientContext for ClientLog {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        let owner = &self.owner;
        if (level as i32) <= RDKafkaLogLevel::Warning as i32 {
            if let Some(suppressed) = self.throttle.allow("kafka_log") {
                tracing::warn!(owner, facility, message, suppressed, "Kafka client");
            }
        } else {
            tracing::debug!(owner, facility, message, "Kafka client");
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let owner = &self.owner;
        if let Some(suppressed) = self.throttle.allow("kafka_error") {
            tracing::warn!(owner, %error, reason, suppressed, "Kafka client error; the client retries");
        }
    }
}
