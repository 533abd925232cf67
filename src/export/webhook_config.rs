//! Settings of exporters of type `webhook`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict_client::Tls;
use verdict_config::{Period, Secret, Size, settings};

use crate::export::queue_config::{RetryOnFailure, SendingQueue};

settings! {
    /// Alerts about verdicts, as HTTP requests with JSON.
    pub struct WebhookConfig {
        /// The URL that alerts are sent to with POST. No default. It is a secret, since the URLs of chat services
        /// contain their credentials. Proxies are taken from the environment, except for a loopback address;
        /// redirects are not followed.
        endpoint: Option<Secret>,
        /// `generic` (default): JSON, as in docs/alerts.md. `slack`: a message for a Slack webhook.
        template: Template = Template::Generic,
        /// The key of the signature in the header `webhook-signature` (Standard Webhooks), as text, or as base64 after
        /// `whsec_`. Default: none, requests are not signed.
        secret: Option<Secret>,
        /// An alert is sent if any of these selects it. Default: one rule, for failed traces, alarms and spent budgets.
        rules: Vec<AlertRule> = vec![AlertRule::default()],
        /// Alerts with the same signature are sent at most once in this time; the next alert contains the number of
        /// omitted alerts. Default 1h; 0 sends all.
        repeat: Period = Period::secs(3600),
        /// Maximum number of alerts a minute. Further alerts are counted; the next alert contains their number.
        /// Default 30.
        max_per_minute: u32 = 30,
        /// A URL in each alert, for example of the trace in a back end; `{trace_id}` and `{span_id}` are replaced by
        /// the ids. Default: empty, no URL.
        link: String,
        /// TLS; the URL decides whether it is used.
        tls: Tls,
        /// Headers of every request; values are secrets. Default: none.
        headers: BTreeMap<String, Secret>,
        /// The bounded queue of this exporter.
        sending_queue: SendingQueue,
        /// Retries while the destination is unavailable or overloaded.
        retry_on_failure: RetryOnFailure,
        /// Timeout of one request. Default 10s: after that it counts as failed and is retried.
        timeout: Period = Period::secs(10),
        /// Verdicts that are read together, in bytes of their events. Default 1MiB.
        max_request_size: Size = Size(1 << 20),
        /// With `false` (default) alerts that do not fit into the queue are dropped, counted and logged;
        /// with `true` a full queue makes the whole pipeline refuse requests.
        required: bool = false,
    }

    /// Selects the alerts that match every key that is set.
    pub struct AlertRule {
        /// Default: `[fail, alarm, budget]`.
        on: Vec<Occasion> = vec![Occasion::Fail, Occasion::Alarm, Occasion::Budget],
        /// The lowest severity of a failed trace, which is that of its worst finding. Default `low`: any.
        severity: AlertSeverity = AlertSeverity::Low,
        /// Failed traces with one of these values of `verdict.signature`. Default: any.
        signatures: Vec<String>,
        /// Failed traces in which one of these metrics fails. Default: any.
        metrics: Vec<String>,
        /// Only of these services, by `service.name`. Default: any.
        services: Vec<String>,
        /// Only of these agents. Default: any.
        agents: Vec<String>,
    }
}

/// The body of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Template {
    /// JSON, as in docs/alerts.md.
    #[default]
    Generic,
    /// A message for a Slack webhook.
    Slack,
}

verdict_otlp::labelled_enum! {
    /// The event that an alert reports.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum Occasion {
        /// The verdict of a trace is fail.
        Fail = "fail",
        /// No metric of a trace was measured.
        Unmeasured = "unmeasured",
        /// The verdict of a trace is pass.
        Pass = "pass",
        /// An open trace has a call that its task does not allow, a loop, or exceeds a limit of `verdict.alarms`.
        Alarm = "alarm",
        /// A judge was not asked because its budget is spent.
        Budget = "budget",
    }
}

verdict_otlp::labelled_enum! {
    /// As `verdict.severity`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum AlertSeverity {
        #[default]
        Low = "low",
        Medium = "medium",
        High = "high",
    }
}

impl AlertSeverity {
    pub(super) fn parse(text: &str) -> Option<AlertSeverity> {
        AlertSeverity::ALL.into_iter().find(|severity| severity.as_str() == text)
    }
}
