//! The client of an exporter of type `scores`.
//!
//! In: requests of evaluation events. Out: requests to the API of its back end.

use std::fmt;
use std::sync::Arc;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use prost::Message;

use super::http::Api;
use super::pending_scores::PendingScores;
use super::read::{self, Normalize};
use super::{datadog, langfuse, langsmith, mlflow, phoenix};
use crate::export::client::{ExportClient, ExportFuture};
use crate::export::config::{Flavor, Include, ScoresConfig};
use crate::export::error::StartError;
use crate::export::pack::ExportRequest;
use crate::export::response::{ExportResponse, ExportResult};

/// Sends scores to one back end.
pub(in crate::export) struct ScoresClient {
    api: Api,
    back_end: BackEnd,
    include: Include,
    /// Prefix of the keys of verdict attributes (`verdict.`).
    prefix: String,
    normalize: Normalize,
}

#[derive(Debug)]
enum BackEnd {
    Phoenix,
    Langfuse,
    Mlflow(Box<mlflow::TraceLocks>),
    Datadog,
    Langsmith(langsmith::Project, langsmith::RootlessRuns),
}

impl fmt::Debug for ScoresClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScoresClient").field("back_end", &self.back_end).finish_non_exhaustive()
    }
}

impl ScoresClient {
    /// Reads the TLS files; connects with the first request.
    pub(in crate::export) fn new(
        config: &ScoresConfig,
        prefix: &str,
        normalize: &Normalize,
    ) -> Result<ScoresClient, StartError> {
        let back_end = match config.flavor.ok_or(StartError::NoFlavor)? {
            Flavor::Phoenix => BackEnd::Phoenix,
            Flavor::Langfuse => BackEnd::Langfuse,
            Flavor::Mlflow => BackEnd::Mlflow(Box::default()),
            Flavor::Datadog => BackEnd::Datadog,
            Flavor::Langsmith => BackEnd::Langsmith(
                langsmith::Project::new(&config.project),
                langsmith::RootlessRuns::default(),
            ),
        };
        let (api, normalize) = (Api::new(config)?, Arc::clone(normalize));
        Ok(ScoresClient { api, back_end, include: config.include, prefix: prefix.to_owned(), normalize })
    }

    async fn send(&self, request: &ExportRequest) -> ExportResponse {
        let decoded = request.chunks().iter().map(|chunk| ExportLogsServiceRequest::decode(chunk.clone()));
        let all = match decoded.collect::<Result<Vec<_>, _>>() {
            Ok(requests) => read::scores(&requests, self.include, &self.prefix, &self.normalize),
            Err(error) => return ExportResult::Rejected(format!("not a request of logs: {error}")).into(),
        };
        let scores = PendingScores::new(request, all);
        let result = match &self.back_end {
            BackEnd::Phoenix => phoenix::send(&self.api, &scores).await,
            BackEnd::Langfuse => langfuse::send(&self.api, &scores).await,
            BackEnd::Mlflow(locks) => mlflow::send(&self.api, locks, &scores).await,
            BackEnd::Datadog => datadog::send(&self.api, &scores).await,
            BackEnd::Langsmith(project, rootless_runs) => {
                langsmith::send(&self.api, project, rootless_runs, &scores).await
            }
        };
        let delivered = scores.end_attempt();
        match result {
            Ok(()) => {
                let rejected = delivered.refused.len() as u64;
                ExportResult::Accepted { rejected, message: delivered.reason.clone() }.into()
            }
            Err(response) => response,
        }
    }
}

impl ExportClient for ScoresClient {
    fn export<'a>(&'a self, request: &'a ExportRequest) -> ExportFuture<'a> {
        Box::pin(self.send(request))
    }
}
