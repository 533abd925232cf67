//! The state that liveness and readiness depend on.
//!
//! In: the pipeline, the memory for requests, and the tasks of the service. Out: the parts that have failed for good,
//! and the causes of an overload.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::admin::Health;
use crate::pipeline::Pipeline;
use crate::reservation::ByteLimit;

/// How long the service is not ready after a request was refused although its sender had used little memory:
/// longer than the usual interval of probes.
const OVERLOADED: Duration = Duration::from_secs(10);

/// The state that readiness depends on.
#[derive(Debug)]
pub(super) struct ReadinessInputs {
    pub pipeline: Arc<Pipeline>,
    /// Requests that are being read.
    pub reading: ByteLimit,
    /// Whether a listener or another task of the service has panicked.
    pub tasks: [Arc<AtomicBool>; 3],
}

impl Health for ReadinessInputs {
    fn failures(&self) -> Vec<&'static str> {
        let tasks = self.tasks.iter().any(|failed| failed.load(Ordering::Relaxed));
        let tasks = tasks.then_some("a listener or another task of the service has failed");
        self.pipeline.failures().into_iter().chain(tasks).collect()
    }

    fn overloads(&self) -> Vec<&'static str> {
        // One sender alone can use up its own share, and is refused then.
        let reading = "overloaded: the memory for requests in flight is used up";
        let reading = self.reading.was_exhausted(OVERLOADED).then_some(reading);
        self.pipeline.overloads().map(|(_, cause)| cause).chain(reading).collect()
    }
}
