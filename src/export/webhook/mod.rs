//! Alerts about verdicts as HTTP requests: JSON, or messages of Slack, signed with HMAC-SHA256.
//!
//! In: evaluation events of closed traces, and alarms of open ones, that this process wrote. Out: one request per
//! alert that a rule selects. Failures of one signature are sent once in a while, and no more alerts than the
//! configured number a minute; the next request says how many were left out. A receiver can recognise a repeat
//! after an error by its id.

mod alert;
mod check;
mod client;
mod recent;
mod rules;
mod sign;
mod slack;

pub(super) use client::WebhookClient;
pub(super) use recent::RecentAlerts;
