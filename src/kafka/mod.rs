//! The connection of Kafka clients, for the receiver and the exporter.
//!
//! With the cargo feature `kafka` clients are those of librdkafka, which is C and built from the source that
//! `rdkafka-sys` contains, with OpenSSL for TLS and SCRAM. Kerberos (`gssapi`) is left out, since it needs Cyrus
//! SASL and Kerberos, two more libraries in C, of which PLAIN and SCRAM need none. The configuration is the same
//! without the feature, and a process that uses Kafka then does not start.

#[cfg(feature = "kafka")]
pub(crate) mod client;
pub mod config;

/// The error of a binary without the feature.
pub(crate) const MISSING: &str =
    "this binary was built without Kafka: build it with `--features kafka`, or use a release image";
