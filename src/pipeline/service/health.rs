//! The state that liveness and readiness depend on.
//!
//! In: the pipeline, the memory for requests, and the tasks of the service. Out: the parts that have failed
//! permanently, and the causes of an overload.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::admin::Health;
use crate::pipeline::Pipeline;
use crate::reservation::ByteLimit;

/// How long the service remains not ready after a request was refused although its sender had used little memory:
/// longer than the usual interval of probes.
const OVERLOAD_HOLD: Duration = Duration::from_secs(10);

/// The state that readiness depends on.
#[derive(Debug)]
pub(super) struct ReadinessInputs {
    pub pipeline: Arc<Pipeline>,
    /// The limit on bytes of requests in flight.
    pub requests_in_flight: ByteLimit,
    /// For each group of tasks, whether one of them has failed.
    pub tasks: [Arc<AtomicBool>; 3],
}

impl Health for ReadinessInputs {
    fn failures(&self) -> Vec<&'static str> {
        let has_failed = self.tasks.iter().any(|failed| failed.load(Ordering::Relaxed));
        let task_failure = has_failed.then_some("a listener or another task of the service has failed");
        self.pipeline.failures().into_iter().chain(task_failure).collect()
    }

    fn overloads(&self) -> Vec<&'static str> {
        // A single sender that has used up its own share is no overload.
        let in_flight_overload = self
            .requests_in_flight
            .was_exhausted(OVERLOAD_HOLD)
            .then_some("overloaded: the memory for requests in flight is used up");
        self.pipeline.overloads().map(|(_, cause)| cause).chain(in_flight_overload).collect()
    }
}
