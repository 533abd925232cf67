//! When a trace counts as complete: `verdict.close`.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict_config::{Period, Size};

/// `verdict.close`: a trace closes at the first of these.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Close {
    /// After the root has ended and every parent seen is here, how long without a new span or log
    /// of the trace. Default 10s: longer than the 5 s for which SDKs batch, so that a second batch
    /// of the same trace is not late. Shorter means verdicts sooner and more late spans.
    pub quiet: Period,
    /// How long without a new span while the root has not come. Default 5m: agents wait for slow
    /// models and for people. Longer holds more memory for runs that were killed.
    pub idle: Period,
    /// As `idle`, where all that is missing is a parent in another process that may be traced
    /// elsewhere. Default 30s.
    pub remote_idle: Period,
    /// How long after its first span, whatever comes. Default 1h. Bounds how long a span is held.
    pub max_age: Period,
    /// Spans after which a trace is closed early. Default 100000.
    pub max_spans: usize,
    /// Bytes of spans and logs after which a trace is closed early. Default 64MiB.
    pub max_bytes: Size,
    /// How many closed traces are remembered, so that late spans are known as late and change the
    /// verdict where they must. Default 100000, about 100 bytes each. 0 treats a late span as a
    /// new trace.
    pub remember: usize,
    /// Other times for some services, by `service.name` of the span that came first.
    pub by_service: BTreeMap<String, Override>,
}

/// What one service changes about [`Close`]; what is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Override {
    /// Instead of `close.quiet`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quiet: Option<Period>,
    /// Instead of `close.idle`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<Period>,
    /// Instead of `close.remote_idle`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_idle: Option<Period>,
    /// Instead of `close.max_age`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_age: Option<Period>,
}

impl Default for Close {
    fn default() -> Close {
        Close {
            quiet: Period::secs(10),
            idle: Period::secs(300),
            remote_idle: Period::secs(30),
            max_age: Period::secs(3600),
            max_spans: 100_000,
            max_bytes: Size(64 << 20),
            remember: 100_000,
            by_service: BTreeMap::new(),
        }
    }
}

/// The four times in force for one trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Times {
    pub quiet: Duration,
    pub idle: Duration,
    pub remote_idle: Duration,
    pub max_age: Duration,
}

impl Close {
    pub(super) fn times(&self, service: Option<&str>) -> Times {
        let over = service.and_then(|s| self.by_service.get(s));
        let pick = |of: fn(&Override) -> Option<Period>, base: Period| *over.and_then(of).unwrap_or(base);
        Times {
            quiet: pick(|o| o.quiet, self.quiet),
            idle: pick(|o| o.idle, self.idle),
            remote_idle: pick(|o| o.remote_idle, self.remote_idle),
            max_age: pick(|o| o.max_age, self.max_age),
        }
    }
}
