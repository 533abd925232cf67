//! Alerts about verdicts as HTTP requests: JSON, or messages of Slack, which can be signed with HMAC-SHA256.
//!
//! In: evaluation events of closed traces and alarms of open traces, written by this process. Out: one request per
//! alert that a rule selects. Alerts with the same key are sent once in the configured time, and at most the configured
//! number of alerts is sent per minute; the next request contains the number of those that were left out. By the id of
//! an alert a receiver can recognise a repeated request after an error.

mod alert;
mod check;
mod client;
mod recent;
mod rules;
mod sign;
mod slack;

pub(super) use client::WebhookClient;
pub(super) use recent::RecentAlerts;
