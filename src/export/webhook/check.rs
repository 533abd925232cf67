//! Checks the settings of exporters of type `webhook`. No message contains a part of the URL.

use reqwest::Url;
use verdict_config::{Problem, REDACTED, Secret};

use super::sign::SigningKey;
use crate::export::webhook_config::WebhookConfig;

/// Maximum number of rules: each alert is compared with all of them.
const MAX_RULES: usize = 100;

impl WebhookConfig {
    /// The URL that alerts are sent to.
    ///
    /// # Errors
    /// The text that follows the key `endpoint` in a problem.
    pub(super) fn url(&self) -> Result<Url, String> {
        let text = self.endpoint.as_ref().map_or("", |secret| secret.expose());
        if text.is_empty() {
            return Err("required, for example ${env:WEBHOOK_URL}".to_owned());
        }
        let url = Url::parse(text).map_err(|error| format!("not a URL: {error}"))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err("must begin with http:// or https:// and name a host".to_owned());
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("contains a user or password; configure them as headers".to_owned());
        }
        Ok(url)
    }

    pub(in crate::export) fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut add = |key: &str, message: &str| problems.push(Problem::new(key, message));
        // `print-config` replaces secrets by REDACTED, and its output must be a valid configuration.
        let is_checked = |secret: &&Secret| secret.expose() != REDACTED;
        if let Err(message) = self.url()
            && self.endpoint.as_ref().is_none_or(|endpoint| is_checked(&endpoint))
        {
            add("endpoint", &message);
        }
        if self.secret.as_ref().filter(is_checked).is_some_and(|secret| SigningKey::new(secret).is_err()) {
            add("secret", "must be at least 24 bytes, as text or as base64 after whsec_");
        }
        if !(1..=6000).contains(&self.max_per_minute) {
            add("max_per_minute", "must be between 1 and 6000");
        }
        if self.rules.is_empty() || self.rules.len() > MAX_RULES {
            add("rules", "must have 1 to 100 rules");
        }
        for (n, rule) in self.rules.iter().enumerate() {
            if rule.on.is_empty() {
                add(&format!("rules[{n}].on"), "must name an occasion");
            }
            let is_hex = |text: &String| text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
            if !rule.signatures.iter().all(is_hex) {
                add(&format!("rules[{n}].signatures"), "must be 16 hex digits each, as in verdict.signature");
            }
        }
        if !self.link.is_empty() && !self.link.starts_with("http://") && !self.link.starts_with("https://") {
            add("link", "must begin with http:// or https://");
        }
        problems
    }
}
