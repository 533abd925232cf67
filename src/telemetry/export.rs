//! What exporters count. Outcomes are not counted twice: a scrape reads each exporter's
//! [`Ledger`].

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::declared as d;
use super::traces::{Buckets, latency_family};
use crate::outcome::{Ledger, Outcome};

type Text = Cow<'static, str>;
type Labels<const N: usize> = [(&'static str, Text); N];

const OUTCOMES: [(Outcome, &str); 4] = [
    (Outcome::Exported, "exported"),
    (Outcome::Dropped, "dropped"),
    (Outcome::DeadLettered, "dead_lettered"),
    (Outcome::Lost, "lost"),
];

/// One exporter's cells.
#[derive(Clone, Debug)]
pub struct Exporting {
    id: String,
    /// Bytes waiting in its queue.
    pub queue_bytes: Gauge,
    /// Bytes that its queue may hold.
    pub queue_capacity: Gauge,
    /// Requests sent once more.
    pub retries: Counter,
    requests: Family<Labels<2>, Counter>,
    duration: Histogram,
}

impl Exporting {
    /// A request ended; `status` is one of the protocol's names (`ok`, `unavailable`, `http_503`,
    /// `connect_error`, ...). Not for text from the peer: every new word is a new time series.
    pub fn request(&self, status: &'static str, time: Duration) {
        let labels = d::EXPORT_REQUESTS.with([Cow::Owned(self.id.clone()), Cow::Borrowed(status)]);
        self.requests.get_or_create(&labels).inc();
        self.duration.observe(time.as_secs_f64());
    }
}

/// Where exporters get their cells.
#[derive(Debug)]
pub struct Exporters {
    ledgers: Ledgers,
    requests: Family<Labels<2>, Counter>,
    retries: Family<Labels<1>, Counter>,
    durations: Family<Labels<1>, Histogram, Buckets>,
    queue_bytes: Family<Labels<1>, Gauge>,
    queue_capacity: Family<Labels<1>, Gauge>,
}

impl Exporters {
    pub(super) fn register(registry: &mut Registry) -> Exporters {
        let cells = Exporters {
            ledgers: Ledgers::default(),
            requests: Family::default(),
            retries: Family::default(),
            durations: latency_family(),
            queue_bytes: Family::default(),
            queue_capacity: Family::default(),
        };
        registry.register_collector(Box::new(cells.ledgers.clone()));
        d::EXPORT_REQUESTS.register(registry, cells.requests.clone());
        d::EXPORT_RETRIES.register(registry, cells.retries.clone());
        d::EXPORT_DURATION.register(registry, cells.durations.clone());
        d::QUEUE_BYTES.register(registry, cells.queue_bytes.clone());
        d::QUEUE_CAPACITY.register(registry, cells.queue_capacity.clone());
        cells
    }

    /// The cells of the exporter with this id (`otlp_grpc/archive`), whose outcomes are read from
    /// `ledger` at each scrape. Once per exporter.
    pub fn exporter(&self, id: &str, ledger: Arc<Ledger>, queue_capacity: u64) -> Exporting {
        let own = || Text::Owned(id.to_owned());
        let cells = Exporting {
            id: id.to_owned(),
            queue_bytes: self.queue_bytes.get_or_create_owned(&d::QUEUE_BYTES.with([own()])),
            queue_capacity: self.queue_capacity.get_or_create_owned(&d::QUEUE_CAPACITY.with([own()])),
            retries: self.retries.get_or_create_owned(&d::EXPORT_RETRIES.with([own()])),
            requests: self.requests.clone(),
            duration: self.durations.get_or_create_owned(&d::EXPORT_DURATION.with([own()])),
        };
        cells.queue_capacity.set(i64::try_from(queue_capacity).unwrap_or(i64::MAX));
        self.ledgers.0.write().unwrap_or_else(PoisonError::into_inner).push((id.to_owned(), ledger));
        cells
    }
}

type Books = Vec<(String, Arc<Ledger>)>;

/// Every exporter's ledger, read when somebody scrapes.
#[derive(Clone, Debug, Default)]
struct Ledgers(Arc<RwLock<Books>>);

impl Collector for Ledgers {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let item = d::EXPORT_ITEMS;
        let mut family = encoder.encode_descriptor(item.name, item.help, None, MetricType::Counter)?;
        let ledgers = self.0.read().unwrap_or_else(PoisonError::into_inner);
        for (id, ledger) in ledgers.iter() {
            for (outcome, word) in OUTCOMES {
                let labels = item.with([id.as_str(), word]);
                ConstCounter::new(ledger.count(outcome)).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
