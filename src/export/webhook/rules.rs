//! The selection of the alerts that are sent.

use super::alert::Alert;
use crate::export::webhook_config::{AlertRule, AlertSeverity, Occasion};

impl AlertRule {
    /// Whether the alert matches every condition of the rule.
    pub(super) fn selects(&self, alert: &Alert) -> bool {
        let matches_any = |names: &[String], value: Option<&str>| {
            names.is_empty() || value.is_some_and(|value| names.iter().any(|name| name == value))
        };
        let matches_failure = || {
            let is_listed =
                |signature: &str| self.signatures.iter().any(|s| s.eq_ignore_ascii_case(signature));
            let has_failed = |name: &String| alert.failed_metrics.contains(name);
            alert.severity.unwrap_or(AlertSeverity::Medium) >= self.severity
                && (self.signatures.is_empty() || alert.signature.as_deref().is_some_and(is_listed))
                && (self.metrics.is_empty() || self.metrics.iter().any(has_failed))
        };
        self.on.contains(&alert.occasion)
            && (alert.occasion != Occasion::Fail || matches_failure())
            && matches_any(&self.services, alert.service.as_deref())
            && matches_any(&self.agents, alert.agent.as_deref())
    }
}
