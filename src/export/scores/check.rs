//! Checks the settings of exporters of type `scores`, and finds the exporter whose spans each of them follows.

use reqwest::Url;
use verdict_config::Problem;
use verdict_otlp::Signal;

use crate::export::config::{ExporterConfig, ExporterConfigs, Flavor, ScoresConfig};

impl ScoresConfig {
    /// The base URL, with a path that ends in a slash.
    pub(super) fn base(&self) -> Result<Url, String> {
        let text = &self.endpoint;
        if text.is_empty() {
            return Err("required, for example http://127.0.0.1:6006".to_owned());
        }
        let mut url = verdict_client::http_url(text)?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err("contains credentials; configure them as api_key or headers".to_owned());
        }
        if !url.path().ends_with('/') {
            verdict_client::append_path(&mut url, "/");
        }
        Ok(url)
    }

    pub(in crate::export) fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if self.flavor.is_none() {
            problems
                .push(Problem::new("flavor", "required: phoenix, langfuse, mlflow, datadog or langsmith"));
        }
        if let Err(message) = self.base() {
            problems.push(Problem::new("endpoint", message));
        }
        let is_langfuse = self.flavor == Some(Flavor::Langfuse);
        if !self.public_key.is_empty() && (!is_langfuse || self.api_key.is_none()) {
            problems.push(Problem::new("public_key", "is for flavor: langfuse, together with api_key"));
        }
        if is_langfuse && self.api_key.is_some() && self.public_key.is_empty() {
            problems.push(Problem::new("public_key", "required for flavor: langfuse with api_key"));
        }
        if !self.project.is_empty() && self.flavor != Some(Flavor::Langsmith) {
            problems.push(Problem::new("project", "is for flavor: langsmith"));
        }
        if self.flavor.is_some() && super::http::headers(self).is_err() {
            problems.push(Problem::new("api_key", "cannot be sent in an HTTP header"));
        }
        problems
    }
}

impl ExporterConfigs {
    /// The exporter in `used` that sends the spans of the scores that exporter `id` sends; `None` if `id` is not of
    /// type `scores`, or if no exporter in use sends spans to a server.
    ///
    /// # Errors
    /// A problem of `after` if it names no such exporter, or if it is not set and several exporters send spans.
    pub fn followed_exporter(&self, id: &str, used: &[String]) -> Result<Option<String>, Problem> {
        let Some(ExporterConfig::Scores(scores)) = self.0.get(id) else { return Ok(None) };
        let sends_spans = |id: &&String| {
            let is_server = match self.0.get(*id) {
                Some(ExporterConfig::Grpc(c)) => c.signals.contains(&Signal::Traces),
                Some(ExporterConfig::Http(c)) => c.signals.contains(&Signal::Traces),
                Some(ExporterConfig::Custom(c)) => c.signals.contains(&Signal::Traces),
                Some(ExporterConfig::Kafka(c)) => c.signals.contains(&Signal::Traces),
                _ => false,
            };
            is_server || **id == scores.after && matches!(self.0.get(*id), Some(ExporterConfig::File(_)))
        };
        let problem = |message: String| Err(Problem::new("after", message));
        let senders: Vec<&String> = used.iter().filter(sends_spans).collect();
        if !scores.after.is_empty() {
            return match senders.contains(&&scores.after) {
                true => Ok(Some(scores.after.clone())),
                false => problem(format!("'{}' is no exporter in use that sends traces", scores.after)),
            };
        }
        match senders[..] {
            [] => Ok(None),
            [sender] => Ok(Some(sender.clone())),
            _ => {
                problem("several exporters send traces; name the one that sends them to this back end".into())
            }
        }
    }
}
