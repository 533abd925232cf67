//! The configuration section `storage`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict_config::{Period, Problem, Size};

/// `storage:`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Storage {
    /// Default none: spans are held in memory alone, and a process that is killed loses those of
    /// open traces. With a folder, every request is written to a log there before its sender is
    /// acknowledged, and what has not been exported is taken up again at the next start. One
    /// process a folder; it is made if need be, readable by its owner only.
    pub directory: Option<PathBuf>,
    /// Default `interval`. When writes are fsynced; a killed process loses
    /// nothing with any of them.
    pub durability: Durability,
    /// Default 1s. With `durability: interval`, how often; so much can be lost with the machine.
    pub interval: Period,
    /// Default 10GiB. Bytes of the log. Requests that do not fit are refused with a time to
    /// retry until exporters have caught up. Dead letters may take as much again; what would be
    /// more is dropped, counted and logged.
    pub max_bytes: Size,
    /// Default 64MiB. Bytes after which a new file of the log is begun. Room for as many is set aside
    /// on the disk as it begins (on Linux). Space is given back by whole files: smaller ones give it
    /// back sooner, larger ones are fewer. Closed traces that are remembered over a restart may take
    /// an eighth of one.
    pub segment_bytes: Size,
    /// Default 30d. How long a file of dead letters is kept after something was last added to it: it
    /// holds what users said. 0s keeps it for ever.
    pub retention: Period,
}

/// `storage.durability`
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// Fsynced before the sender is acknowledged; one fsync for all that wait. Survives
    /// a power cut.
    Sync,
    /// Fsynced every `interval`. Survives a crash of the process.
    #[default]
    Interval,
    /// Left to the operating system.
    None,
}

impl Default for Storage {
    fn default() -> Storage {
        Storage {
            directory: None,
            durability: Durability::default(),
            interval: Period::secs(1),
            max_bytes: Size(10 << 30),
            segment_bytes: Size(64 << 20),
            retention: Period::secs(30 * 24 * 3600),
        }
    }
}

impl Storage {
    /// Invalid values, as (key below `storage`, message).
    pub fn problems(&self) -> Vec<Problem> {
        let checks = [
            (self.directory.as_ref().is_some_and(|d| d.as_os_str().is_empty()), "directory", "name a folder"),
            (self.interval.is_zero(), "interval", "must be above 0; durability: sync fsyncs every write"),
            (self.segment_bytes.0 < 64 << 10, "segment_bytes", "must be at least 64KiB"),
            (
                self.max_bytes.0 < self.segment_bytes.0.saturating_mul(4),
                "max_bytes",
                "must be at least four times segment_bytes",
            ),
        ];
        let faults = checks.into_iter().filter(|(is_fault, ..)| *is_fault);
        faults.map(|(_, key, message)| Problem::new(key, message)).collect()
    }
}
