//! What is told about exporters. Nothing is counted twice: a scrape reads each exporter's
//! [`crate::outcome::Ledger`], queue and counts; only requests are told to us as they end.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::export::{Dropped, Exporter, Exporters, Watch};
use crate::outcome::Outcome;
use verdict_telemetry::declared::{self as d, Declared};
use verdict_telemetry::histogram::{Buckets, latency_family};

type Labels<const N: usize> = [(&'static str, Cow<'static, str>); N];

const OUTCOMES: [(Outcome, &str); 5] = [
    (Outcome::Exported, "exported"),
    (Outcome::Dropped, "dropped"),
    (Outcome::DeadLettered, "dead_lettered"),
    (Outcome::Stored, "stored"),
    (Outcome::Lost, "lost"),
];

/// Follows exporters.
#[derive(Debug)]
pub struct Exporting {
    followed: Followed,
    requests: Family<Labels<2>, Counter>,
    durations: Family<Labels<1>, Histogram, Buckets>,
}

impl Exporting {
    pub(super) fn register(registry: &mut Registry) -> Exporting {
        let cells = Exporting {
            followed: Followed::default(),
            requests: Family::default(),
            durations: latency_family(),
        };
        registry.register_collector(Box::new(cells.followed.clone()));
        d::EXPORT_REQUESTS.register(registry, cells.requests.clone());
        d::EXPORT_DURATION.register(registry, cells.durations.clone());
        cells
    }

    /// Shows these exporters in every scrape from here on. Once, after they were started.
    pub fn follow(&self, exporters: &Exporters) {
        for exporter in exporters.iter() {
            let id = || Cow::Owned(exporter.id().to_owned());
            exporter.watch(Arc::new(Requests {
                exporter: exporter.id().to_owned(),
                requests: self.requests.clone(),
                duration: self.durations.get_or_create_owned(&d::EXPORT_DURATION.with([id()])),
            }));
            self.followed.0.write().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(exporter));
        }
    }
}

/// Is told of one exporter's requests. They are far fewer than spans: a look-up each is cheap.
struct Requests {
    exporter: String,
    requests: Family<Labels<2>, Counter>,
    duration: Histogram,
}

impl Watch for Requests {
    fn request(&self, status: &'static str, took: Duration) {
        let labels = [Cow::Owned(self.exporter.clone()), Cow::Borrowed(status)];
        self.requests.get_or_create(&d::EXPORT_REQUESTS.with(labels)).inc();
        self.duration.observe(took.as_secs_f64());
    }

    /// The exporter counts these itself.
    fn retry(&self) {}
}

#[derive(Clone, Debug, Default)]
struct Followed(Arc<RwLock<Vec<Arc<Exporter>>>>);

impl Collector for Followed {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut items = Vec::new();
        let mut dropped = Vec::new();
        for exporter in all.iter() {
            let counted = OUTCOMES.map(|(outcome, word)| {
                (d::EXPORT_ITEMS.with([exporter.id(), word]), exporter.ledger().count(outcome))
            });
            items.extend(counted);
            let counted = Dropped::ALL.map(|reason| {
                (d::EXPORT_DROPPED.with([exporter.id(), reason.as_str()]), exporter.dropped(reason))
            });
            dropped.extend(counted);
        }
        counters(&mut encoder, &d::EXPORT_ITEMS, items)?;
        counters(&mut encoder, &d::EXPORT_DROPPED, dropped)?;
        let own = |e: &'_ Arc<Exporter>| e.id().to_owned();
        let retries = all.iter().map(|e| (d::EXPORT_RETRIES.with([own(e)]), e.retries()));
        counters(&mut encoder, &d::EXPORT_RETRIES, retries)?;
        let queued = all.iter().map(|e| (d::QUEUE_BYTES.with([own(e)]), e.queued_bytes()));
        gauges(&mut encoder, &d::QUEUE_BYTES, queued)?;
        let capacity = all.iter().map(|e| (d::QUEUE_CAPACITY.with([own(e)]), e.queue_capacity()));
        gauges(&mut encoder, &d::QUEUE_CAPACITY, capacity)
    }
}

fn counters<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    metric: &Declared,
    values: impl IntoIterator<Item = (L, u64)>,
) -> Result<(), fmt::Error> {
    let unit = metric.unit();
    let mut family =
        encoder.encode_descriptor(metric.name, metric.help, unit.as_ref(), MetricType::Counter)?;
    for (labels, value) in values {
        ConstCounter::new(value).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

fn gauges<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    metric: &Declared,
    values: impl IntoIterator<Item = (L, u64)>,
) -> Result<(), fmt::Error> {
    let unit = metric.unit();
    let mut family = encoder.encode_descriptor(metric.name, metric.help, unit.as_ref(), MetricType::Gauge)?;
    for (labels, value) in values {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}
