//! Which alerts are sent.

use super::alert::Alert;
use crate::export::webhook_config::{AlertRule, AlertSeverity, Occasion};

impl AlertRule {
    /// Whether the alert has all of what the rule names.
    pub(super) fn selects(&self, alert: &Alert) -> bool {
        let named = |names: &[String], value: Option<&str>| {
            names.is_empty() || value.is_some_and(|value| names.iter().any(|name| name == value))
        };
        let matches_failure = || {
            let is_known =
                |signature: &str| self.signatures.iter().any(|s| s.eq_ignore_ascii_case(signature));
            let metric = |name: &String| alert.failed_metrics.contains(name);
            alert.severity.unwrap_or(AlertSeverity::Medium) >= self.severity
                && (self.signatures.is_empty() || alert.signature.as_deref().is_some_and(is_known))
                && (self.metrics.is_empty() || self.metrics.iter().any(metric))
        };
        self.on.contains(&alert.occasion)
            && (alert.occasion != Occasion::Fail || matches_failure())
            && named(&self.services, alert.service.as_deref())
            && named(&self.agents, alert.agent.as_deref())
    }
}
