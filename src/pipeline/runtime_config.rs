//! The part of the configuration that may change while the process runs: how traces are evaluated, when
//! they close, and which spans are evaluated at all.
//!
//! All shards share one value, which is replaced as a whole. It is loaded once per request and once per closing trace,
//! so that a trace is evaluated and annotated by one configuration.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use verdict_config::Source;
use verdict_eval::config::PathSettings;
use verdict_eval::metrics::TaskSet;
use verdict_eval::{BuildError, Disclosure, Evaluator, Stop};
use verdict_otlp::trace::CloseReason;

use super::ask_judges::QuestionAnswerer;
use super::error::Error;
use crate::assemble::Close;
use crate::bounded_file::read_bounded;
use crate::config::{Select, VerdictConfig};
use crate::extensions::Extensions;

/// Maximum bytes of a task file: enough for thousands of tasks.
const MAX_TASK_FILE_BYTES: u64 = 64 << 20;

/// Maximum time of the rules for one trace. The work budget usually bounds it to a few seconds; this bound applies on a
/// very slow machine.
const MAX_EVALUATION_TIME: Duration = Duration::from_secs(30);

/// The number of shards: one per core.
pub(super) fn shard_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The reloadable configuration in the form that the stages use.
#[derive(Debug)]
pub(super) struct RuntimeConfig {
    pub evaluator: Evaluator,
    /// The texts that the live page may show.
    pub disclosure: Disclosure,
    /// The times and limits at which the traces of a shard close.
    pub close: Close,
    /// The spans that are evaluated; `None` for all.
    pub select: Option<Select>,
    /// The judges, if any are configured.
    pub answerer: Option<Arc<dyn QuestionAnswerer>>,
    /// How long a closed trace waits for judges.
    pub max_wait: Duration,
}

impl RuntimeConfig {
    /// # Errors
    /// The conventions in `recognise` contradict each other, or a task file or an added metric cannot be
    /// used.
    pub(super) fn new(
        verdict: &VerdictConfig,
        extensions: &Extensions,
        answerer: Option<Arc<dyn QuestionAnswerer>>,
    ) -> Result<RuntimeConfig, Error> {
        Ok(RuntimeConfig {
            evaluator: Evaluator::builder(&verdict.evaluation)
                .path_tasks(read_tasks(&verdict.evaluation.metrics.path)?)
                .metrics(extensions.metrics.iter().cloned())
                .stop(deadline)
                .build()?,
            disclosure: Disclosure::new(&verdict.evaluation).map_err(BuildError::from)?,
            // The configured number is that of all shards together.
            close: Close {
                remember: verdict.close.remember.div_ceil(shard_count()),
                ..verdict.close.clone()
            },
            select: (!verdict.select.is_everything()).then(|| verdict.select.clone()),
            answerer,
            max_wait: *verdict.max_wait,
        })
    }

    /// The judges to ask about a trace that closed for this reason.
    pub(super) fn answerer_for(&self, reason: CloseReason) -> Option<&Arc<dyn QuestionAnswerer>> {
        self.answerer.as_ref().filter(|_| self.evaluator.asks(reason))
    }
}

/// Ends the rules on a trace [`MAX_EVALUATION_TIME`] from now.
fn deadline() -> Stop {
    let end = Instant::now() + MAX_EVALUATION_TIME;
    Box::new(move || Instant::now() >= end)
}

/// The tasks of the files in `settings`; none if the metric is disabled.
fn read_tasks(settings: &PathSettings) -> Result<TaskSet, Error> {
    if !settings.enabled {
        return Ok(TaskSet::default());
    }
    let read = |path: &Path| {
        let name = path.display().to_string();
        match read_bounded(path, MAX_TASK_FILE_BYTES) {
            Ok(text) => Ok(Source { name, text }),
            Err(source) => Err(Error::TaskFile { file: name, source }),
        }
    };
    let sources: Vec<Source> = settings.tasks.iter().map(|path| read(path)).collect::<Result<_, _>>()?;
    let tasks = TaskSet::parse(&sources)?;
    for warning in tasks.warnings() {
        tracing::warn!(%warning, "a task file contains a probable mistake; it is used as it is");
    }
    Ok(tasks)
}

#[cfg(test)]
mod tests {
    use verdict_otlp::trace::{PriorVerdict, TraceId};

    use super::*;
    use crate::assemble::Assembler;
    use crate::config::Config;

    #[test]
    fn all_shards_together_remember_the_configured_number_of_closed_traces() {
        let mut verdict = Config::default().verdict;
        for (remember, max_remembered) in [(0, 0), (100, 100 + shard_count() - 1)] {
            verdict.close.remember = remember;
            let config = RuntimeConfig::new(&verdict, &Extensions::default(), None).unwrap();
            let mut all: Vec<Assembler> =
                (0..shard_count()).map(|_| Assembler::new(config.close.clone())).collect();
            let id = |n: usize| TraceId((n as u128 + 1).to_be_bytes());
            let shard = |n: usize| n % shard_count();
            (0..1000 * shard_count()).for_each(|n| all[shard(n)].remember(id(n), PriorVerdict::default()));
            let remembered =
                (0..1000 * shard_count()).filter(|&n| all[shard(n)].remembered(id(n)).is_some()).count();
            assert!((remember..=max_remembered).contains(&remembered), "{remembered} of {remember}");
        }
    }
}
