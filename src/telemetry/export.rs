//! Metrics of exporters. Nothing is counted twice: a scrape reads each exporter's [`Ledger`], queue
//! and counters ([`ExporterState`]); only requests are reported when they end ([`RequestObserver`]).

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use verdict_telemetry::declared::{self as d, Declared};
use verdict_telemetry::histogram::{Buckets, latency_family};

use crate::outcome::{AlertOutcome, DropReason, Ledger, Outcome};

type Labels<const N: usize> = [(&'static str, Cow<'static, str>); N];

/// The state of one exporter that a scrape reads.
pub trait ExporterState: fmt::Debug + Send + Sync {
    /// `type` or `type/name`.
    fn id(&self) -> &str;
    /// Counts of outcomes.
    fn ledger(&self) -> &Arc<Ledger>;
    /// Items dropped for one reason.
    fn dropped(&self, reason: DropReason) -> u64;
    /// The number of repeated requests.
    fn retries(&self) -> u64;
    /// The number of bytes queued or being sent.
    fn queued_bytes(&self) -> u64;
    /// Maximum number of queued bytes.
    fn queue_capacity(&self) -> u64;
    /// Alerts with one outcome; `None` if the exporter sends none.
    fn alerts(&self, _outcome: AlertOutcome) -> Option<u64> {
        None
    }
    /// Notifies `observer` of every request from now on. Only the first call has an effect.
    fn observe(&self, observer: Arc<dyn RequestObserver>);
}

/// Is notified of every request. Called on the exporters' tasks, so it must not block.
pub trait RequestObserver: Send + Sync {
    /// A request ended. `status` is one of a fixed set: `ok`, a gRPC code in snake case, `http_503`,
    /// `timeout`, `connection`.
    fn request_ended(&self, status: &'static str, duration: Duration);
}

/// Counters of all exporters.
#[derive(Debug)]
pub struct ExportMetrics {
    exporters: RegisteredExporters,
    requests: Family<Labels<2>, Counter>,
    durations: Family<Labels<1>, Histogram, Buckets>,
}

impl ExportMetrics {
    pub(super) fn register(registry: &mut Registry) -> ExportMetrics {
        let exporters = RegisteredExporters::default();
        registry.register_collector(Box::new(exporters.clone()));
        let durations = d::EXPORT_DURATION.register(registry, latency_family());
        ExportMetrics { exporters, requests: d::EXPORT_REQUESTS.register_new(registry), durations }
    }

    /// Includes `exporters` in every scrape from now on. Called once, after they were started.
    pub fn register_exporters(&self, exporters: impl IntoIterator<Item = Arc<dyn ExporterState>>) {
        for exporter in exporters {
            let id = || Cow::Owned(exporter.id().to_owned());
            exporter.observe(Arc::new(RequestMetrics {
                exporter: exporter.id().to_owned(),
                requests: self.requests.clone(),
                duration: self.durations.get_or_create_owned(&d::EXPORT_DURATION.label_pairs([id()])),
            }));
            self.exporters.0.write().unwrap_or_else(PoisonError::into_inner).push(exporter);
        }
    }
}

/// Counts one exporter's requests. They are far fewer than spans, so a lookup for each is cheap.
struct RequestMetrics {
    exporter: String,
    requests: Family<Labels<2>, Counter>,
    duration: Histogram,
}

impl RequestObserver for RequestMetrics {
    fn request_ended(&self, status: &'static str, duration: Duration) {
        let labels = [Cow::Owned(self.exporter.clone()), Cow::Borrowed(status)];
        self.requests.get_or_create(&d::EXPORT_REQUESTS.label_pairs(labels)).inc();
        self.duration.observe(duration.as_secs_f64());
    }
}

#[derive(Clone, Debug, Default)]
struct RegisteredExporters(Arc<RwLock<Vec<Arc<dyn ExporterState>>>>);

impl Collector for RegisteredExporters {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let items = all.iter().flat_map(|e| {
            Outcome::ALL.map(|outcome| {
                let labels = d::EXPORT_ITEMS.label_pairs([e.id(), outcome.as_str()]);
                (labels, ConstCounter::new(e.ledger().count(outcome)))
            })
        });
        encode(&mut encoder, &d::EXPORT_ITEMS, items)?;
        let dropped = all.iter().flat_map(|e| {
            DropReason::ALL.map(|reason| {
                let labels = d::EXPORT_DROPPED.label_pairs([e.id(), reason.as_str()]);
                (labels, ConstCounter::new(e.dropped(reason)))
            })
        });
        encode(&mut encoder, &d::EXPORT_DROPPED, dropped)?;
        let retries =
            all.iter().map(|e| (d::EXPORT_RETRIES.label_pairs([e.id()]), ConstCounter::new(e.retries())));
        encode(&mut encoder, &d::EXPORT_RETRIES, retries)?;
        let gauge = |bytes: u64| ConstGauge::new(i64::try_from(bytes).unwrap_or(i64::MAX));
        let queued = all.iter().map(|e| (d::QUEUE_BYTES.label_pairs([e.id()]), gauge(e.queued_bytes())));
        encode(&mut encoder, &d::QUEUE_BYTES, queued)?;
        let capacity =
            all.iter().map(|e| (d::QUEUE_CAPACITY.label_pairs([e.id()]), gauge(e.queue_capacity())));
        encode(&mut encoder, &d::QUEUE_CAPACITY, capacity)?;
        let alerts = all.iter().flat_map(|e| {
            AlertOutcome::ALL.into_iter().filter_map(|outcome| {
                let labels = d::EXPORT_ALERTS.label_pairs([e.id(), outcome.as_str()]);
                Some((labels, ConstCounter::new(e.alerts(outcome)?)))
            })
        });
        encode(&mut encoder, &d::EXPORT_ALERTS, alerts)
    }
}

fn encode<'e, M: EncodeMetric + TypedMetric, const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    metric: &Declared,
    values: impl Iterator<Item = ([(&'static str, &'e str); N], M)>,
) -> Result<(), fmt::Error> {
    let unit = metric.unit();
    let mut family = encoder.encode_descriptor(metric.name, metric.help, unit.as_ref(), M::TYPE)?;
    for (labels, value) in values {
        value.encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}
