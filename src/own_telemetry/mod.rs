//! Telemetry of this process as OTLP: `service.telemetry`.
//!
//! In: spans that the stages open under [`verdict_telemetry::SELF_TARGET`], and the registry of self-metrics. Out: OTLP
//! over HTTP to one destination. Off by default; each of those spans then costs one comparison. Spans of the scope
//! [`verdict_telemetry::SELF_SCOPE`] are never evaluated, and a received request that contains only such spans has no
//! span of its own: where the destination is this process, or another otel-verdict, telemetry would otherwise cause
//! more telemetry without end.

mod config;
mod metrics;
mod push;
mod sender;
mod spans;

pub(crate) use config::TelemetryConfig;
pub(crate) use push::MetricsPush;
pub(crate) use spans::SelfSpans;

use opentelemetry_proto::tonic::common::v1::KeyValue;

/// The name of this service in its own telemetry.
const SERVICE: &str = "otel-verdict";

/// The attributes of this process.
fn resource() -> Vec<(&'static str, String)> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    vec![
        ("service.name", SERVICE.to_owned()),
        ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
        ("service.instance.id", format!("{host}:{}", std::process::id())),
    ]
}

/// The same as OTLP attributes.
fn resource_attributes() -> Vec<KeyValue> {
    resource().iter().map(|(key, value)| metrics::attribute(key, value)).collect()
}
