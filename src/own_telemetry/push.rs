//! Pushes the self-metrics at an interval, and once more at shutdown.

use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use prost::Message as _;
use reqwest::Url;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::config::TelemetryConfig;
use super::metrics::{DataPointTimes, export_request};
use super::resource_attributes;
use super::sender::TelemetrySender;
use crate::clock::unix_nanos;
use crate::telemetry::{Telemetry, TextFormat};

/// The task that pushes the metrics.
#[derive(Debug)]
pub(crate) struct MetricsPush {
    stop: CancellationToken,
    task: AbortOnDropHandle<()>,
}

impl MetricsPush {
    /// Starts to push on the current runtime.
    ///
    /// # Errors
    /// The destination cannot be used as it is configured.
    pub(crate) fn start(config: &TelemetryConfig, telemetry: Arc<Telemetry>) -> Result<MetricsPush, String> {
        let url = config.url("/v1/metrics")?;
        let sender = TelemetrySender::new(config, tokio::runtime::Handle::current())
            .map_err(|error| error.to_string())?;
        let (stop, start, interval) = (CancellationToken::new(), unix_nanos(), *config.interval);
        let stop_signal = stop.clone();
        let task = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(interval);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                let is_last = tokio::select! {
                    _ = ticks.tick() => false,
                    () = stop_signal.cancelled() => true,
                };
                push(&sender, &url, &telemetry, start).await;
                if is_last {
                    return;
                }
            }
        });
        Ok(MetricsPush { stop, task: AbortOnDropHandle::new(task) })
    }

    /// Pushes once more, and ends the task.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        let _ = self.task.await;
    }
}

async fn push(sender: &TelemetrySender, url: &Url, telemetry: &Telemetry, start: u64) {
    let page = telemetry.render(TextFormat::OpenMetrics);
    let body = export_request(&page, resource_attributes(), DataPointTimes { start, now: unix_nanos() })
        .encode_to_vec();
    let request = http::Request::post(url.as_str())
        .header(CONTENT_TYPE, "application/x-protobuf")
        .body(Bytes::from(body));
    if let Ok(request) = request {
        // A failure is logged; the next push has the same counters.
        let _ = sender.send(request).await;
    }
}
