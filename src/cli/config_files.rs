//! The `--config` option of every command.

use std::path::PathBuf;

use clap::Args;

use super::failure::Failure;
use crate::config::Config;

/// The configuration of a command: `--config`, the same for every command.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct ConfigFiles {
    /// Configuration file (YAML); may be given several times
    ///
    /// Later files override earlier ones key by key: maps merge, lists and scalars replace.
    /// Without any, the defaults hold. `config/reference.yaml` shows every key.
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,
}

impl ConfigFiles {
    pub(super) fn load(&self) -> Result<Config, Failure> {
        crate::config::load(&self.files).map_err(Failure::Config)
    }
}
