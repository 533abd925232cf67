//! The configuration: YAML in the Collector's shape, every error at once, every default stated.
//!
//! In: files and the environment. Out: a [`Config`] that every part of the program takes its own
//! section from; each section's struct lives with the part that it configures.
//!
//! | file | what it does |
//! |---|---|
//! | `load` | the whole way, and what spans sections |
//! | `change` | what of a new one can be taken while running |
//! | `show` | `print-config`, secrets redacted; the JSON schema |
//! | `verdict`, `service` | sections that have no other home |
//!
//! What configurations are read with (places, faults, durations, secrets) is `verdict-config`.

mod change;
mod load;
mod service;
mod show;
mod verdict;

#[cfg(test)]
mod tests;

pub use load::{Lookup, check, from_sources, load};
pub use service::{Memory, Service};
pub use verdict::{Mode, Select, Verdict};

use load::Sections;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::admin::AdminConfig;
use crate::export::config::{ExporterConfig, ExporterConfigs, OtlpGrpc};
use crate::receive::OtlpConfig;
use verdict_client::Tls;
use verdict_config::{Problem, Step, nearest};
use verdict_journal::Storage;
use verdict_judge::{self as judge, JudgeConfigs, JudgingConfig};

/// Everything that can be configured.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields, default)]
pub struct Config {
    /// Where telemetry comes in.
    pub receivers: Receivers,
    /// What is measured, when, and what is written about it.
    pub verdict: Verdict,
    /// LLM judges, by name. Default: none; the built-in rules judge without any.
    pub judges: JudgeConfigs,
    /// What holds for all judges together.
    pub judging: JudgingConfig,
    /// What is held on disk.
    pub storage: Storage,
    /// How much may be held.
    pub memory: Memory,
    /// Where telemetry goes, by id. Default: `otlp_grpc` to 127.0.0.1:14317 without TLS. Given
    /// any, that one is not there unless it is written.
    pub exporters: ExporterConfigs,
    /// Health, readiness and metrics of this process.
    pub admin: AdminConfig,
    /// What holds for the process as a whole.
    pub service: Service,
}

/// `receivers:`
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Receivers {
    /// OTLP over gRPC and HTTP.
    pub otlp: OtlpConfig,
}

/// Where the Collector's own receiver would stand, moved up by 10000, so that both fit on a machine.
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
            verdict: Verdict::default(),
            judges: JudgeConfigs::default(),
            judging: JudgingConfig::default(),
            storage: Storage::default(),
            memory: Memory::default(),
            exporters,
            admin: AdminConfig::default(),
            service,
        }
    }
}

impl Config {
    fn read(sections: &mut Sections) -> Config {
        let default = Config::default();
        let mut config = Config {
            receivers: sections.section("receivers"),
            verdict: sections.verdict(),
            judges: sections.section("judges"),
            judging: sections.section("judging"),
            storage: sections.section("storage"),
            memory: sections.section("memory"),
            exporters: sections.section_or("exporters", default.exporters),
            admin: sections.section("admin"),
            service: sections.section("service"),
        };
        if config.service.exporters.is_empty() {
            config.service.exporters = config.exporters.0.keys().cloned().collect();
        }
        let of = |found: Vec<(String, String)>| found.into_iter().map(|(k, m)| Problem::new(k, m)).collect();
        sections.problems("receivers.otlp", of(config.receivers.otlp.problems()));
        for protocol in config.receivers.otlp.protocols.guarded().map(|(protocol, _)| protocol) {
            for secret in ["bearer_token", "basic.password"] {
                let key = format!("receivers.otlp.protocols.{protocol}.auth.{secret}");
                sections.must_come_from_outside(&load::undotted(&key));
            }
        }
        sections.problems("verdict", of(config.verdict.problems()));
        sections.problems("storage", of(config.storage.problems()));
        sections.problems("service", of(config.service.problems()));
        let of_exporters = config.exporters.problems().into_iter().map(|p| Problem::new(p.key, p.message));
        sections.problems("exporters", of_exporters.collect());
        let (of_judges, of_judging) = judge::problems(&config.judges, &config.judging);
        sections.problems("judges", of_judges);
        sections.problems("judging", of_judging);
        for (name, judge) in &config.judges {
            let of_judge = [load::key("judges"), load::key(name)];
            sections.must_come_from_outside(&[&of_judge[..], &[load::key("api_key")]].concat());
            sections.headers_come_from_outside(&of_judge, judge.headers.keys());
        }
        for (id, exporter) in &config.exporters.0 {
            sections.headers_come_from_outside(&[load::key("exporters"), load::key(id)], exporter.headers());
        }
        config.exporters_are_there(sections);
        config.judges_are_there(sections);
        config
    }

    fn judges_are_there(&self, sections: &mut Sections) {
        for (below, name) in self.verdict.evaluation.metrics.named_judges() {
            let path = load::undotted(&format!("verdict.metrics.{below}"));
            if !self.judges.contains_key(name)
                && !sections.is_broken(&[load::key("judges"), load::key(name)])
                && !sections.is_broken(&path)
            {
                let hint = nearest(name, self.judges.keys().map(String::as_str));
                sections.fault(&path, format!("'{name}' is not defined under judges"), hint);
            }
        }
    }

    fn exporters_are_there(&self, sections: &mut Sections) {
        let defined = || self.exporters.0.keys().map(String::as_str);
        if self.service.exporters.is_empty() {
            let message = "no exporter is defined, so that telemetry would go nowhere".to_owned();
            sections.fault(&[load::key("exporters")], message, None);
        }
        for (i, id) in self.service.exporters.iter().enumerate() {
            let path = [load::key("service"), load::key("exporters"), Step::Item(i)];
            if !self.exporters.0.contains_key(id)
                && !sections.is_broken(&[load::key("exporters"), load::key(id)])
            {
                let message = format!("'{id}' is not defined under exporters");
                sections.fault(&path, message, nearest(id, defined()));
            } else if self.service.exporters.iter().take(i).any(|before| before == id) {
                sections.fault(&path, format!("'{id}' is named twice"), None);
            }
        }
    }
}
