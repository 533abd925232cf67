//! The configuration: YAML in the Collector's shape, every error at once, every default stated.
//!
//! In: files and the environment. Out: a [`Config`] that every part of the program takes its own
//! section from; each section's struct lives with the part that it configures.
//!
//! | file | what it does |
//! |---|---|
//! | `node` | YAML to a tree with places; merging |
//! | `env` | `${env:NAME}` |
//! | `read` | tree to structs, collecting faults |
//! | `load` | the whole way, and what spans sections |
//! | `show` | `print-config`, secrets redacted; the JSON schema |
//! | `verdict`, `service` | sections that have no other home |
//! | `units` | durations, sizes, secrets |

mod env;
mod issue;
mod load;
mod node;
mod read;
mod service;
mod show;
pub mod units;
mod verdict;

#[cfg(test)]
mod tests;

pub use issue::Invalid;
pub use load::{Lookup, Source, from_sources, load};
pub use service::{Memory, Service};
pub use units::{Period, Secret, Size};
pub use verdict::{Emit, Existing, Explanations, Mode, Select, Verdict};

use load::Sections;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::receive::OtlpConfig;
use crate::telemetry::admin::AdminConfig;

/// Everything that can be configured.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields, default)]
pub struct Config {
    /// Where telemetry comes in.
    pub receivers: Receivers,
    /// What is measured, when, and what is written about it.
    pub verdict: Verdict,
    /// How much may be held.
    pub memory: Memory,
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

impl Config {
    fn read(sections: &mut Sections) -> Config {
        let config = Config {
            receivers: sections.section("receivers"),
            verdict: sections.section("verdict"),
            memory: sections.section("memory"),
            admin: sections.section("admin"),
            service: sections.section("service"),
        };
        sections.problems("verdict", config.verdict.problems());
        sections.problems("service", config.service.problems());
        config
    }
}
