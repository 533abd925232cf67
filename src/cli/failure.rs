//! Why a command ends with an exit code other than 0.

use verdict_config::Invalid;

use super::input;

/// The command ran and failed.
const FAILED: u8 = 1;
/// Wrong usage, configuration or input. Also what clap exits with.
const WRONG: u8 = 2;

/// Why a command ends with something other than 0.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("the configuration cannot be used:\n{0}")]
    Config(Invalid),
    #[error("{0}")]
    Input(#[from] input::Unreadable),
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    Run(String),
    /// The condition of `--fail-on` was met; the output says so already.
    #[error("")]
    ThresholdMet,
    /// The reader of standard output closed it: no failure.
    #[error("")]
    ClosedPipe,
}

impl Failure {
    /// The process's exit code.
    pub(super) fn code(&self) -> u8 {
        match self {
            Failure::Config(_) | Failure::Input(_) | Failure::Usage(_) => WRONG,
            Failure::Run(_) | Failure::ThresholdMet => FAILED,
            Failure::ClosedPipe => 0,
        }
    }
}
