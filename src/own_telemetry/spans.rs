//! Spans of this process: opened with `tracing` under [`SELF_TARGET`], recorded by the SDK of OpenTelemetry, and
//! exported in batches by its own thread, whose queue is bounded.

use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use tokio::runtime::Handle;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::Layer;
use verdict_telemetry::{SELF_SCOPE, SELF_TARGET};

use super::config::TelemetryConfig;
use super::resource;
use super::sender::TelemetrySender;
use crate::logging::BoxedLayer;

/// Timeout of the last batch at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// The SDK that records and exports spans.
#[derive(Debug)]
pub(crate) struct SelfSpans(SdkTracerProvider);

impl SelfSpans {
    /// Starts the SDK, and returns the layer that opens its spans.
    ///
    /// # Errors
    /// The destination cannot be used as it is configured.
    pub(crate) fn start(
        config: &TelemetryConfig,
        runtime: &Handle,
    ) -> Result<(SelfSpans, BoxedLayer), String> {
        let sender = TelemetrySender::new(config, runtime.clone()).map_err(|error| error.to_string())?;
        let exporter = SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(config.url("/v1/traces")?)
            .with_timeout(*config.timeout)
            .with_http_client(sender)
            .build()
            .map_err(|error| error.to_string())?;
        let attributes = resource().into_iter().map(|(key, value)| KeyValue::new(key, value));
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(config.sampling_ratio))))
            .with_resource(Resource::builder_empty().with_attributes(attributes).build())
            .build();
        let layer = tracing_opentelemetry::layer()
            .with_tracer(provider.tracer(SELF_SCOPE))
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            .with_filter(filter_fn(|metadata| metadata.is_span() && metadata.target() == SELF_TARGET));
        Ok((SelfSpans(provider), layer.boxed()))
    }

    /// Exports the remaining spans. It blocks, so it must not be called on a thread of the runtime that sends them.
    pub(crate) fn stop(self) {
        if let Err(error) = self.0.shutdown_with_timeout(SHUTDOWN_TIMEOUT) {
            tracing::warn!(%error, "the last spans of this process were not exported");
        }
    }
}
