//! The sockets of the service: bound before any other part starts, so that an address in use fails early, and served
//! when the pipeline has started.
//!
//! In: the configuration, and later the pipeline. Out: the addresses, and one task for each listener.

use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::future::OptionFuture;

use super::tasks::Tasks;
use crate::config::Config;
use crate::page::history::History;
use crate::page::server::{BoundPage, PageSource};
use crate::pipeline::Pipeline;
use crate::pipeline::error::Error;
#[cfg(feature = "kafka")]
use crate::pipeline::forwarding::ForwardingMode;
#[cfg(feature = "kafka")]
use crate::pipeline::kafka_store::KafkaStore;
#[cfg(feature = "kafka")]
use crate::pipeline::store::NoStore;
use crate::pipeline::store::Store;
use crate::receive::paths::{BoundPaths, PathDecider};
use crate::receive::{self, BoundReceiver, Intake};
use crate::telemetry::Telemetry;

/// Bound sockets, and the Kafka receiver.
pub(super) struct Listeners {
    pub receivers: BoundReceiver,
    pub paths: Option<BoundPaths>,
    page: Option<BoundPage>,
    #[cfg(feature = "kafka")]
    kafka: Option<crate::receive::kafka::Receiver>,
}

/// The addresses of the listeners.
pub(super) struct ListenerAddresses {
    pub grpc: Option<SocketAddr>,
    pub http: Option<SocketAddr>,
    pub paths: Option<SocketAddr>,
    pub page: Option<SocketAddr>,
}

impl Listeners {
    /// Binds the sockets. `max_in_flight` limits the bytes of all OTLP requests in memory.
    pub(super) async fn bind(config: &Config, max_in_flight: u64) -> Result<Listeners, Error> {
        let receivers = receive::bind(&config.receivers.otlp).await?.with_in_flight_limit(max_in_flight);
        let paths = config.verdict.paths_api.as_ref().map(BoundPaths::bind);
        let paths = OptionFuture::from(paths).await.transpose()?;
        let page = OptionFuture::from(config.page.as_ref().map(BoundPage::bind)).await.transpose()?;
        Ok(Listeners {
            receivers,
            paths,
            page,
            #[cfg(feature = "kafka")]
            kafka: config.receivers.kafka.clone().map(|kafka| {
                let forwards = ForwardingMode(config.verdict.mode).forwards();
                crate::receive::kafka::Receiver::new(kafka, *config.verdict.close.quiet, forwards)
            }),
        })
    }

    /// With a Kafka receiver, replaces the store by one that retains records of Kafka in the receiver, and uses the
    /// given one for all other requests.
    pub(super) fn wrap_store(&self, store: &mut Box<dyn Store>) {
        #[cfg(feature = "kafka")]
        if let Some(kafka) = &self.kafka {
            let other = std::mem::replace(store, Box::new(NoStore));
            *store = Box::new(KafkaStore::new(Arc::clone(&kafka.log), other));
        }
        #[cfg(not(feature = "kafka"))]
        let _ = store;
    }

    pub(super) fn addresses(&self) -> ListenerAddresses {
        ListenerAddresses {
            grpc: self.receivers.grpc_addr(),
            http: self.receivers.http_addr(),
            paths: self.paths.as_ref().map(BoundPaths::addr),
            page: self.page.as_ref().map(BoundPage::addr),
        }
    }

    /// Serves all listeners as tasks of `receiver_tasks`. `page` is the data of the live page.
    pub(super) fn serve(
        self,
        config: &Config,
        pipeline: &Arc<Pipeline>,
        telemetry: &Arc<Telemetry>,
        page: Option<(Arc<History>, Arc<dyn PageSource>)>,
        receiver_tasks: &mut Tasks,
    ) {
        let (grace, stop) = (*config.service.shutdown_timeout, receiver_tasks.stop.clone());
        let intake: Arc<dyn Intake> = Arc::clone(pipeline) as Arc<dyn Intake>;
        #[cfg(feature = "kafka")]
        if let Some(kafka) = self.kafka {
            receiver_tasks.spawn_fallible(kafka.serve(
                Arc::clone(&intake),
                Arc::clone(telemetry),
                stop.clone(),
                grace,
            ));
        }
        receiver_tasks.spawn(self.receivers.serve(intake, Arc::clone(telemetry), stop.clone(), grace));
        if let Some(paths) = self.paths {
            if !pipeline.shared.config.load().evaluator.has_tasks() {
                tracing::warn!(
                    "verdict.paths_api answers nothing until metrics.path.tasks names a task file"
                );
            }
            let decider: Arc<dyn PathDecider> = Arc::clone(pipeline) as Arc<dyn PathDecider>;
            receiver_tasks.spawn(paths.serve(decider, stop.clone(), grace));
        }
        if let Some((listener, (history, source))) = self.page.zip(page) {
            receiver_tasks.spawn(listener.serve(history, source, stop, grace));
        }
    }
}
