//! All sections of the configuration, and their defaults.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict_client::Tls;
use verdict_journal::Storage;
use verdict_judge::{JudgeConfigs, JudgingConfig};

use super::service::{Memory, Service};
use super::verdict::VerdictConfig;
use crate::admin::AdminConfig;
use crate::export::config::{ExporterConfig, ExporterConfigs, OtlpGrpc};
use crate::page::config::PageConfig;
use crate::receive::OtlpConfig;
use crate::receive::kafka::config::KafkaReceiver;

/// Everything that can be configured.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields, default)]
pub struct Config {
    /// Where telemetry is received.
    pub receivers: Receivers,
    /// Which spans are evaluated, when, and how verdicts are written.
    pub verdict: VerdictConfig,
    /// LLM judges, by name. Default: none; rules need no judge.
    pub judges: JudgeConfigs,
    /// Settings for all judges together.
    pub judging: JudgingConfig,
    /// Storage on disk.
    pub storage: Storage,
    /// Bounds on memory.
    pub memory: Memory,
    /// Where telemetry is exported, by id. Default: `otlp_grpc` to 127.0.0.1:14317 without TLS, which does not
    /// exist if any exporter is configured.
    pub exporters: ExporterConfigs,
    /// Health, readiness and metrics of this process.
    pub admin: AdminConfig,
    /// Default none: no page. Open and recent traces with their verdicts, for browsers; `page: {}` serves it on
    /// 127.0.0.1:4321.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page: Option<PageConfig>,
    /// Settings of the process as a whole.
    pub service: Service,
}

/// `receivers:`
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Receivers {
    /// OTLP over gRPC and HTTP.
    pub otlp: OtlpConfig,
    /// Default none. OTLP from Kafka, as a member of a consumer group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kafka: Option<KafkaReceiver>,
}

/// The port of the Collector's own receiver, moved up by 10000, so that both fit on one machine.
const DESTINATION: &str = "127.0.0.1:14317";

impl Default for Config {
    fn default() -> Config {
        let local = OtlpGrpc {
            endpoint: DESTINATION.to_owned(),
            tls: Tls { insecure: true, ..Tls::default() },
            ..OtlpGrpc::default()
        };
        let exporters = ExporterConfigs([("otlp_grpc".to_owned(), ExporterConfig::Grpc(local))].into());
        let service = Service { exporters: exporters.0.keys().cloned().collect(), ..Service::default() };
        Config {
            receivers: Receivers::default(),
            verdict: VerdictConfig::default(),
            judges: JudgeConfigs::default(),
            judging: JudgingConfig::default(),
            storage: Storage::default(),
            memory: Memory::default(),
            exporters,
            admin: AdminConfig::default(),
            page: None,
            service,
        }
    }
}
