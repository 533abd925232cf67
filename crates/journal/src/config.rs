//! The configuration section `storage`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict_config::{Period, Problem, Size, settings};

settings! {
    /// `storage:`
    pub struct Storage {
        /// Default none: spans are stored in memory only, and a killed process loses the spans of open traces. With a
        /// directory, every request is written to a log in it before its sender is acknowledged. Requests that have not
        /// been exported are recovered at the next start. Each process needs its own directory, which is created if it
        /// does not exist, readable by its owner only.
        directory: Option<PathBuf>,
        /// Default `interval`. When writes are fsynced. A killed process loses nothing with any value.
        durability: Durability,
        /// Default 1s. The time between fsyncs with `durability: interval`. If the machine fails, the writes since the
        /// last fsync can be lost.
        interval: Period = Period::secs(1),
        /// Default 10GiB. Maximum size of the log. Requests that do not fit are refused with a retry delay until
        /// exporters have freed space. Dead letters have a limit of the same size; beyond it they are dropped, counted
        /// and logged.
        max_bytes: Size = Size(10 << 30),
        /// Default 64MiB. Size at which a new segment of the log is created. Its space is preallocated (on Linux).
        /// Space is freed by whole segments: small segments free it earlier, large segments need fewer files. The
        /// closed traces that are remembered over a restart may take an eighth of a segment. At most 1GiB, since
        /// recovery reads a whole segment into memory.
        segment_bytes: Size = Size(64 << 20),
        /// Default 30d. A file of dead letters is deleted this long after its last write, because it contains texts of
        /// users. 0s: never.
        retention: Period = Period::secs(30 * 24 * 3600),
    }
}

/// `storage.durability`
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// Writes are fsynced before the sender is acknowledged, with one fsync for all requests that wait. Acknowledged
    /// requests survive a power cut.
    Sync,
    /// Writes are fsynced every `interval`. Acknowledged requests survive a crash of the process.
    #[default]
    Interval,
    /// Writes are not fsynced; the operating system decides when they reach the disk.
    None,
}

/// Largest `segment_bytes`.
const MAX_SEGMENT: u64 = 1 << 30;

impl Storage {
    /// The invalid values, with keys relative to `storage`.
    pub fn problems(&self) -> Vec<Problem> {
        let checks = [
            (self.directory.as_ref().is_some_and(|d| d.as_os_str().is_empty()), "directory", "name a folder"),
            (self.interval.is_zero(), "interval", "must be above 0; durability: sync fsyncs every write"),
            (self.segment_bytes.0 < 64 << 10, "segment_bytes", "must be at least 64KiB"),
            (
                self.segment_bytes.0 > MAX_SEGMENT,
                "segment_bytes",
                "must be at most 1GiB; recovery reads a whole segment into memory",
            ),
            (
                self.max_bytes.0 < self.segment_bytes.0.saturating_mul(4),
                "max_bytes",
                "must be at least four times segment_bytes",
            ),
        ];
        let problems = checks.into_iter().filter(|(is_problem, ..)| *is_problem);
        problems.map(|(_, key, message)| Problem::new(key, message)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_is_neither_too_small_nor_too_large_to_be_read_into_memory() {
        let faulty = |bytes| {
            let storage =
                Storage { segment_bytes: Size(bytes), max_bytes: Size(1 << 40), ..Storage::default() };
            !storage.problems().is_empty()
        };
        let sizes = [(64 << 10) - 1, 64 << 10, MAX_SEGMENT, MAX_SEGMENT + 1];
        assert_eq!(sizes.map(faulty), [true, false, false, true]);
    }
}
