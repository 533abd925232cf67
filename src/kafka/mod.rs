//! The connection of Kafka clients, for the receiver and the exporter.
//!
//! With the cargo feature `kafka` the clients are those of librdkafka, a C library that is built from the source in
//! `rdkafka-sys`, with OpenSSL for TLS and SCRAM. Kerberos (`gssapi`) is left out: it needs Cyrus SASL and a Kerberos
//! library, two more C libraries, and PLAIN and SCRAM need neither. The configuration is the same without the
//! feature, but a process whose configuration uses Kafka does not start.

#[cfg(feature = "kafka")]
pub(crate) mod client;
pub mod config;

/// The error of a binary without the feature.
pub(crate) const FEATURE_MISSING: &str =
    "this binary was built without Kafka: build it with `--features kafka`, or use a release image";
