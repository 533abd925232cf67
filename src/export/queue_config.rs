//! Settings of the queue and the retries, which all exporters have.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict_config::{Period, Size, settings};

settings! {
    /// The bounded queue of an exporter: parcels that wait or are being sent.
    pub struct SendingQueue {
        /// With `false` the exporter accepts a trace only after it has sent the previous one.
        /// Default true.
        enabled: bool = true,
        /// Unit of `queue_size`. Only `bytes`: a number of traces does not bound memory.
        sizer: Sizer = Sizer::Bytes,
        /// Size of the queue. Default 256MiB. When it is full, `required` decides. For a required
        /// exporter it counts against `memory.budget`, for another it is at most an eighth of that.
        queue_size: Size = Size(256 << 20),
        /// Requests in flight at the same time, those that wait for a retry included. Default 4.
        num_consumers: usize = 4,
    }

    /// Exponential backoff, with jitter.
    pub struct RetryOnFailure {
        /// Default true. With `false` the first failure drops the spans, counted and logged.
        enabled: bool = true,
        /// The first delay. Default 5s.
        initial_interval: Period = Period::secs(5),
        /// Each delay is changed at random by up to this part of it (0-1). Default 0.5.
        randomization_factor: f64 = 0.5,
        /// Each delay is this many times the previous one. Default 1.5.
        multiplier: f64 = 1.5,
        /// The longest delay. Default 30s. A delay that the destination requests may be longer.
        max_interval: Period = Period::secs(30),
        /// Time after which retries end and the spans are dropped, counted and logged. Default 300s; 0
        /// means never, so that a destination that is unavailable for long fills the queue instead.
        max_elapsed_time: Period = Period::secs(300),
    }
}

/// Unit of a queue's size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Sizer {
    /// Bytes of encoded spans.
    #[default]
    Bytes,
}
