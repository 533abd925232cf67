//! The configuration: YAML with the Collector's key names; all problems are reported at once.
//!
//! In: files and the environment. Out: a [`Config`]. Each section's struct belongs to the component that it
//! configures; this module joins the sections.
//!
//! | file | content |
//! |---|---|
//! | `root` | all sections, and their defaults |
//! | `load` | from files to a configuration; checks across sections |
//! | `env` | `${env:NAME}`, `${file:PATH}` and defaults in values |
//! | `sections` | the merged YAML, read section by section |
//! | `warnings` | settings that are valid and probably unintended |
//! | `change` | what a running process can take from a new configuration |
//! | `show` | `print-config`, secrets redacted; the JSON schema |
//! | `verdict`, `service` | sections that belong to no single component |

mod change;
mod env;
mod load;
mod root;
mod sections;
mod service;
mod show;
mod verdict;
mod warnings;

#[cfg(test)]
mod tests;

pub use load::{EnvironmentLookup, check, from_sources, load, load_with};
pub use root::{Config, Receivers};
pub use service::{Memory, Service};
pub use verdict::{Mode, Select, VerdictConfig};
