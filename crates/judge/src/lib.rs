//! Who answers: LLM judges behind HTTP endpoints, dependable and affordable.
//!
//! In: an [`Ask`] of a metric, and the trace that it is about. Out: an [`Answer`] whose opinions fit
//! the question's form, or the reason why there is none. Nothing here knows what is asked, and no
//! metric knows who answers.
//!
//! | file | what it does |
//! |---|---|
//! | `config`, `check` | `judges:` and `judging:`, and what may be wrong with them |
//! | `seat` | one judge: reserve, wait, send, retry, read, ask again |
//! | `dialect`, `openai`, `anthropic`, `rerank` | questions to JSON, and back |
//! | `transport` | one HTTP request; kinds of failure |
//! | `gate`, `breaker` | how many at once and a minute; when to leave a judge alone |
//! | `budget` | tokens and money, by trace, hour and day |
//! | `answer`, `weigh` | texts held against forms; scores by probabilities |
//! | `kept`, `folder`, `line` | each question is paid for once; answers on disk |
//! | `recording` | whole runs repeated offline |
//! | `named` | hashes: of questions, of rubrics |
//!
//! Requests to judges carry no trace context and make no spans, so that they are never judged.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;

use verdict_client::ClientError;
use verdict_eval::measure::question_rounds::Ask;
use verdict_eval::measure::{Answer, Opinion, Unmeasured, Usage};
use verdict_otlp::trace::TraceId;
use verdict_telemetry::{Fate, JudgeMetrics};

mod answer;
mod anthropic;
mod breaker;
mod budget;
mod check;
pub mod config;
mod dialect;
mod folder;
mod gate;
mod kept;
mod line;
mod named;
mod openai;
mod recording;
mod rerank;
mod seat;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod transport;
mod weigh;

pub use answer::{Fault, Mould};
pub use check::problems;
pub use config::{JudgeConfig, JudgeConfigs, JudgingConfig};
pub use folder::FolderError;

use budget::Spending;
use kept::{Kept, Outcome, Said};
use recording::{Recorder, Recording};
use seat::{Posed, Seat};

/// Judges cannot be used as they are configured.
#[derive(Debug, thiserror::Error)]
pub enum JudgeError {
    /// Its endpoint, a header or TLS.
    #[error("judges.{judge}.{source}")]
    Endpoint {
        /// Its name.
        judge: String,
        /// What is wrong.
        source: ClientError,
    },
    /// A file of recorded answers.
    #[error("judges.{judge}.{key}: {why}")]
    Recording {
        /// The judge's name.
        judge: String,
        /// `replay` or `record`.
        key: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The folder of kept answers.
    #[error("judging.cache.directory: {0}")]
    Cache(#[from] FolderError),
}

/// A judge, and the files it answers from or into.
#[derive(Debug)]
struct Judge {
    seat: Seat,
    replay: Option<Recording>,
    record: Option<Recorder>,
}

#[derive(Debug)]
struct Inner {
    judges: BTreeMap<String, Arc<Judge>>,
    judging: JudgingConfig,
    spending: Arc<Spending>,
    kept: Kept,
    telemetry: JudgeMetrics,
}

/// All judges. Cheap to clone; clones share everything.
#[derive(Clone, Debug)]
pub struct Judges {
    inner: Arc<Inner>,
    run: u32,
}

impl Judges {
    /// Reads files (TLS, kept and recorded answers); connects with the first question.
    ///
    /// # Errors
    /// A file or folder that cannot be used, an endpoint that is none; says which key.
    pub fn new(
        config: &JudgeConfigs,
        judging: &JudgingConfig,
        telemetry: &JudgeMetrics,
    ) -> Result<Judges, JudgeError> {
        Judges::build(config, judging, telemetry, None)
    }

    /// Judges of another configuration. What was spent stays spent, what is kept stays known, and
    /// what these are being asked they still answer.
    ///
    /// # Errors
    /// As [`Judges::new`].
    pub fn renewed(&self, config: &JudgeConfigs, judging: &JudgingConfig) -> Result<Judges, JudgeError> {
        Judges::build(config, judging, &self.inner.telemetry, Some(&self.inner))
    }

    /// The same judges, whose answers are independent of those of other runs.
    #[must_use]
    pub fn of_run(&self, run: u32) -> Judges {
        Judges { inner: Arc::clone(&self.inner), run }
    }

    fn build(
        config: &JudgeConfigs,
        judging: &JudgingConfig,
        telemetry: &JudgeMetrics,
        before: Option<&Inner>,
    ) -> Result<Judges, JudgeError> {
        let kept = Kept::open(&judging.cache, before.map(|inner| &inner.kept), &telemetry.disk_errors)?;
        let mut judges = BTreeMap::new();
        for (name, config) in config {
            // One that has not changed goes on as it is, with what it knows of its endpoint.
            let same = before.and_then(|inner| inner.judges.get(name)).filter(|j| j.seat.config == *config);
            let judge = match same {
                Some(judge) => Arc::clone(judge),
                None => Arc::new(judge(name, config, telemetry)?),
            };
            judges.insert(name.clone(), judge);
        }
        let spending = before.map_or_else(Arc::default, |inner| Arc::clone(&inner.spending));
        spending.limit(budget::ALL, judging.budget);
        for (name, config) in config {
            spending.limit(name, config.budget);
        }
        let (judging, telemetry) = (judging.clone(), telemetry.clone());
        let inner = Inner { judges, judging, spending, kept, telemetry };
        Ok(Judges { inner: Arc::new(inner), run: 0 })
    }

    /// Answers a question about a trace, by which spending is counted. Never fails: what goes wrong is the answer's [`Unmeasured`]. Dropping the
    /// future gives back what it holds; what others wait for as well they then ask themselves.
    pub async fn ask(&self, trace: TraceId, ask: &Ask) -> Answer {
        let question = &ask.question;
        let answer = |opinions, usage| Answer { key: question.key.clone(), opinions, usage };
        let mould = match Mould::new(&question.form) {
            Ok(mould) => mould,
            Err(why) => {
                tracing::error!(metric = ask.metric, %why, "a metric asks for an answer of no shape; this is a bug");
                return answer(Err(Unmeasured::JudgeError), Usage::default());
            }
        };
        let posed =
            Posed { question, mould, rubric: named::rubric(question), trace, services: &ask.services };
        let asked = ask.judges.iter().filter_map(|name| self.inner.judges.get(name));
        let each = asked.flat_map(|judge| {
            let samples = judge.seat.config.samples.max(1);
            let first = self.run.saturating_mul(samples);
            let posed = &posed;
            (0..samples).map(move |i| Box::pin(self.one(judge, posed, first.saturating_add(i))))
        });
        let outcomes = join_all(each).await;
        let mut usage = Usage::default();
        outcomes.iter().for_each(|outcome| usage += outcome.usage);
        answer(united(outcomes), usage)
    }

    /// One judge, one sample.
    async fn one(&self, judge: &Judge, posed: &Posed<'_>, sample: u32) -> Outcome {
        let Judge { seat, replay, record } = judge;
        let outcome = if !seat.may_see(posed.services, &self.inner.judging) {
            // The operator has said that the question does not arise there.
            Outcome { said: Err(Unmeasured::NotApplicable), fate: Fate::Withheld, usage: Usage::default() }
        } else if let Some(recording) = replay {
            replayed(recording, posed, sample)
        } else {
            let body = seat.body(&posed.question.prompt, &posed.question.form, None);
            let key = named::cached(seat.url(), &body, sample);
            let fits = |said: &Said| posed.mould.fit(said.value.clone()).is_ok();
            self.inner.kept.of(key, fits, seat.answer(posed, body, &self.inner.spending)).await
        };
        if let (Some(recorder), Ok(said)) = (record, &outcome.said) {
            recorder.record(&named::recorded(posed.question, sample), said);
        }
        seat.cells.question(outcome.fate);
        outcome
    }
}

/// The discard port of this machine.
const NOWHERE: &str = "http://127.0.0.1:9/v1";

fn judge(name: &str, config: &JudgeConfig, telemetry: &JudgeMetrics) -> Result<Judge, JudgeError> {
    // One that only replays may be nowhere, and is never asked there.
    let nowhere = config.endpoint.is_empty() && config.replay.is_some();
    let endpoint = if nowhere { NOWHERE.to_owned() } else { config.endpoint.clone() };
    let placed = JudgeConfig { endpoint, ..config.clone() };
    let seat = Seat::new(name, &placed, telemetry.of(name));
    let seat = seat.map_err(|source| JudgeError::Endpoint { judge: name.to_owned(), source })?;
    let wrong = |key, why| JudgeError::Recording { judge: name.to_owned(), key, why };
    let at = |path: &std::path::Path, why: String| format!("{}: {why}", path.display());
    let replay = config.replay.as_deref().map(|path| Recording::read(path).map_err(|why| at(path, why)));
    let record = config
        .record
        .as_deref()
        .map(|path| Recorder::open(path, telemetry.disk_errors.clone()).map_err(|why| at(path, why)));
    Ok(Judge {
        seat,
        replay: replay.transpose().map_err(|why| wrong("replay", why))?,
        record: record.transpose().map_err(|why| wrong("record", why))?,
    })
}

/// A recording is made for a question; one that does not fit it was edited.
fn replayed(recording: &Recording, posed: &Posed<'_>, sample: u32) -> Outcome {
    let said = recording.get(&named::recorded(posed.question, sample));
    match said.filter(|said| posed.mould.fit(said.value.clone()).is_ok()) {
        // What it took is part of the run that is repeated.
        Some(said) => Outcome { usage: said.usage, said: Ok(said), fate: Fate::Replayed },
        None => Outcome { said: Err(Unmeasured::JudgeError), fate: Fate::Failed, usage: Usage::default() },
    }
}

/// The opinions there are, in order; where there are none, the reason that says most: a failure
/// before slowness, before a spent budget, before judges that may not be asked.
fn united(outcomes: Vec<Outcome>) -> Result<Vec<Opinion>, Unmeasured> {
    let weight = |reason: &Unmeasured| match reason {
        Unmeasured::JudgeError => 3,
        Unmeasured::Timeout => 2,
        Unmeasured::Budget => 1,
        _ => 0,
    };
    let mut why: Option<Unmeasured> = None;
    let mut opinions = Vec::new();
    for outcome in outcomes {
        match outcome.said {
            Ok(said) => opinions.push(Opinion {
                value: said.value.clone(),
                weighted: said.weighted,
                judge: Arc::clone(&said.judge),
            }),
            Err(reason) => {
                why = Some(why.map_or(reason, |w| if weight(&reason) > weight(&w) { reason } else { w }))
            }
        }
    }
    // Without any judge of that name nobody could answer.
    if opinions.is_empty() { Err(why.unwrap_or(Unmeasured::JudgeError)) } else { Ok(opinions) }
}
