//! The client of an exporter of type `webhook`.
//!
//! In: requests of evaluation events and alarms. Out: one POST per alert.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use ::http::header::CONTENT_TYPE;
use ::http::{HeaderMap, HeaderValue};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use prost::Message;
use reqwest::{Client, Url};
use serde_json::json;
use tokio::time::Instant;
use verdict_client::ClientError;
use verdict_telemetry::LogThrottle;

use super::alert::{Alert, alerts};
use super::recent::{OmittedAlerts, RecentAlerts};
use super::sign::SigningKey;
use super::slack;
use crate::clock::unix_nanos;
use crate::export::api;
use crate::export::client::{ExportClient, ExportFuture};
use crate::export::pack::ExportRequest;
use crate::export::response::{ExportResponse, ExportResult};
use crate::export::webhook_config::{AlertRule, Occasion, Template, WebhookConfig};

/// Maximum bytes of a response that are read, for the message in the log.
const MAX_RESPONSE_BYTES: usize = 1 << 20;

/// Sends alerts to one URL.
pub(in crate::export) struct WebhookClient {
    client: Client,
    url: Url,
    headers: HeaderMap,
    template: Template,
    signing_key: Option<SigningKey>,
    rules: Vec<AlertRule>,
    link: String,
    /// Prefix of the keys of verdict attributes (`verdict.`).
    prefix: String,
    recent: Arc<RecentAlerts>,
    throttle: LogThrottle,
}

impl fmt::Debug for WebhookClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookClient").field("template", &self.template).finish_non_exhaustive()
    }
}

impl WebhookClient {
    /// Reads the TLS files; connects with the first request.
    pub(in crate::export) fn new(
        config: &WebhookConfig,
        prefix: &str,
        recent: Arc<RecentAlerts>,
    ) -> Result<WebhookClient, ClientError> {
        let url = config.url().map_err(ClientError::Endpoint)?;
        let max_idle_connections = config.sending_queue.num_consumers;
        let client = verdict_client::client(&[&url], &config.tls, *config.timeout, max_idle_connections)?;
        let mut headers = verdict_client::headers(&config.headers)?;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let signing_key = config.secret.as_ref().map(SigningKey::new).transpose();
        let signing_key = signing_key.map_err(|error| ClientError::Endpoint(format!("secret: {error}")))?;
        Ok(WebhookClient {
            client,
            url,
            headers,
            template: config.template,
            signing_key,
            rules: config.rules.clone(),
            link: config.link.clone(),
            prefix: prefix.to_owned(),
            recent,
            throttle: LogThrottle::default(),
        })
    }

    /// Sends the alerts of a request that a rule selects, until one fails.
    async fn send_all(&self, request: &ExportRequest) -> ExportResponse {
        let request = match ExportLogsServiceRequest::decode(request.to_bytes()) {
            Ok(request) => request,
            Err(error) => return ExportResult::Rejected(format!("not a request of logs: {error}")).into(),
        };
        for alert in alerts(&request, &self.prefix) {
            if !self.rules.iter().any(|rule| rule.selects(&alert)) {
                continue;
            }
            let Some(omitted) = self.recent.admit(&alert, Instant::now().into_std()) else { continue };
            if omitted.limited > 0
                && let Some(suppressed) = self.throttle.allow("limited")
            {
                let limited = omitted.limited;
                tracing::warn!(limited, suppressed, "alerts were not sent, because of max_per_minute");
            }
            if let Err(response) = self.send(&alert, omitted).await {
                return response;
            }
            self.recent.note_sent(&alert, omitted);
        }
        ExportResult::ACCEPTED.into()
    }

    async fn send(&self, alert: &Alert, omitted: OmittedAlerts) -> Result<(), ExportResponse> {
        let body = self.body(alert, omitted);
        let (id, timestamp) = (alert.id.to_string(), unix_nanos() / 1_000_000_000);
        let mut request = self.client.post(self.url.clone()).headers(self.headers.clone());
        request = request.header("webhook-id", &id).header("webhook-timestamp", timestamp);
        if let Some(key) = &self.signing_key {
            request = request.header("webhook-signature", key.sign(&id, timestamp, &body));
        }
        api::send(request.body(body), MAX_RESPONSE_BYTES).await.map(drop).map_err(|refusal| refusal.response)
    }

    fn body(&self, alert: &Alert, omitted: OmittedAlerts) -> String {
        let link = (!self.link.is_empty())
            .then(|| self.link.replace("{trace_id}", &alert.trace_id).replace("{span_id}", &alert.span_id));
        if self.template == Template::Slack {
            return slack::message(alert, omitted, link.as_deref()).to_string();
        }
        let alert_type = match (alert.occasion, alert.state.as_deref()) {
            (Occasion::Fail, _) => "trace.fail",
            (Occasion::Pass, _) => "trace.pass",
            (Occasion::Unmeasured, _) => "trace.unmeasured",
            (Occasion::Budget, _) => "budget.spent",
            (Occasion::Alarm, Some("retracted")) => "alarm.retracted",
            (Occasion::Alarm, _) => "alarm.raised",
        };
        let time = UNIX_EPOCH + Duration::from_nanos(alert.unix_nanos);
        let mut body = json!({
            "type": alert_type,
            "timestamp": humantime::format_rfc3339_millis(time).to_string(),
            "data": alert,
        });
        body["data"]["id"] = alert.id.to_string().into();
        body["data"]["repeated"] = omitted.repeated.into();
        body["data"]["limited"] = omitted.limited.into();
        if let Some(link) = link {
            body["data"]["link"] = link.into();
        }
        body.to_string()
    }
}

impl ExportClient for WebhookClient {
    fn export<'a>(&'a self, request: &'a ExportRequest) -> ExportFuture<'a> {
        Box::pin(self.send_all(request))
    }
}
