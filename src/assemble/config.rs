//! `verdict.close`: when a trace closes.

use std::collections::BTreeMap;
use std::time::Duration;

use verdict_config::{Period, Size, settings};

settings! {
    /// `verdict.close`. A trace closes at the first of these times and limits.
    pub struct Close {
        /// Default 10s. Time without a new span or log record after the root has ended and no parent is missing.
        /// Longer than the 5 s for which SDKs batch, so that a second batch of the trace is not late. A shorter
        /// time gives earlier verdicts and more late spans.
        quiet: Period = Period::secs(10),
        /// Default 5m. Time without a new span while the root or a parent is missing. Agents wait for slow models
        /// and for people. A longer time takes more memory for runs that were killed.
        idle: Period = Period::secs(300),
        /// Default 30s. Replaces `idle` if only parents in other processes are missing, which may be traced
        /// elsewhere.
        remote_idle: Period = Period::secs(30),
        /// Default 1h. Time after the first span. Bounds how long a span is buffered.
        max_age: Period = Period::secs(3600),
        /// Default 100000. Number of spans at which a trace closes early.
        max_spans: usize = 100_000,
        /// Default 64MiB. Bytes of spans and logs at which a trace closes early.
        max_bytes: Size = Size(64 << 20),
        /// Default 100000. Number of closed traces that are remembered, so that late spans are recognised and can
        /// revise the verdict; about 100 bytes each. With 0 a late span opens a new trace.
        remember: usize = 100_000,
        /// Default none. Other times for some services, by `service.name` of the first span.
        by_service: BTreeMap<String, Override>,
    }

    /// Times of one service, each in place of that of [`Close`].
    pub struct Override {
        /// In place of `close.quiet`.
        #[serde(skip_serializing_if = "Option::is_none")]
        quiet: Option<Period>,
        /// In place of `close.idle`.
        #[serde(skip_serializing_if = "Option::is_none")]
        idle: Option<Period>,
        /// In place of `close.remote_idle`.
        #[serde(skip_serializing_if = "Option::is_none")]
        remote_idle: Option<Period>,
        /// In place of `close.max_age`.
        #[serde(skip_serializing_if = "Option::is_none")]
        max_age: Option<Period>,
    }
}

/// The times of one trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CloseTimes {
    pub quiet: Duration,
    pub idle: Duration,
    pub remote_idle: Duration,
    pub max_age: Duration,
}

impl Close {
    pub(super) fn times(&self, service: Option<&str>) -> CloseTimes {
        let service_override = service.and_then(|s| self.by_service.get(s));
        let pick = |field: fn(&Override) -> Option<Period>, base: Period| {
            *service_override.and_then(field).unwrap_or(base)
        };
        CloseTimes {
            quiet: pick(|o| o.quiet, self.quiet),
            idle: pick(|o| o.idle, self.idle),
            remote_idle: pick(|o| o.remote_idle, self.remote_idle),
            max_age: pick(|o| o.max_age, self.max_age),
        }
    }
}
