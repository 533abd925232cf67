//! A trace's questions carried to judges, and their answers back, until all are answered or its time
//! is up.
//!
//! In: a weighed trace and what answers a question. Out: what the judges measured. Rendering and
//! reading run on content that a stranger wrote: should they panic, the rules' word stands.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;

use tokio::task::JoinSet;

use verdict_eval::evaluate::{Engine, Weighed};
use verdict_eval::measure::question_rounds::{Ask, Rounds};
use verdict_eval::measure::{Answer, Measurement, Unmeasured, Usage};
use verdict_judge::Judges;
use verdict_otlp::trace::TraceId;

/// Questions of one trace on their way at once. More than any judge's default concurrency, so that
/// one trace alone can keep it busy; few enough that their prompts stay a few megabytes.
const IN_FLIGHT: usize = 64;

/// Who answers: the configured judges, or a test's.
pub(super) trait Panel: Send + Sync + std::fmt::Debug {
    /// Answers one question. Never fails: what goes wrong is the answer's reason.
    fn ask(self: Arc<Self>, trace: TraceId, ask: Ask) -> Pin<Box<dyn Future<Output = Answer> + Send>>;
}

impl Panel for Judges {
    fn ask(self: Arc<Self>, trace: TraceId, ask: Ask) -> Pin<Box<dyn Future<Output = Answer> + Send>> {
        Box::pin(async move { Judges::ask(&self, trace, &ask).await })
    }
}

/// What judges measured in a trace.
pub(super) struct Said {
    pub measurements: Vec<Measurement>,
    pub usage: Usage,
    /// Every question was answered, if only with a reason.
    pub whole: bool,
}

/// Asks everything that is to be asked of a trace, until `until`; what is not answered then is
/// unmeasured: timeout. Dropping the future ends what is on its way.
pub(super) async fn ask_all<F>(
    engine: &Engine,
    weighed: &Weighed,
    ask: impl Fn(Ask) -> F,
    until: impl Future<Output = ()>,
) -> Said
where
    F: Future<Output = Answer> + Send + 'static,
{
    let sight = engine.sight(weighed);
    let mut spent = Usage::default();
    let Some(mut rounds) = guarded(|| Rounds::new(sight)) else {
        return Said { measurements: Vec::new(), usage: spent, whole: true };
    };
    let mut flying: JoinSet<(usize, Answer)> = JoinSet::new();
    tokio::pin!(until);
    let whole = loop {
        // Who has no time asks nothing.
        tokio::select! {
            biased;
            () = &mut until => break false,
            () = std::future::ready(()) => {}
        }
        while flying.len() < IN_FLIGHT {
            match guarded(|| rounds.next(sight)) {
                Some(Some(next)) => {
                    let ticket = next.ticket;
                    let answer = ask(next);
                    flying.spawn(async move { (ticket, answer.await) });
                }
                Some(None) => break,
                None => return Said { measurements: Vec::new(), usage: spent, whole: true },
            }
        }
        let answered = tokio::select! {
            answered = flying.join_next() => answered,
            () = &mut until => break false,
        };
        match answered {
            Some(Ok((ticket, answer))) => {
                spent += answer.usage;
                if guarded(|| rounds.answer(ticket, answer, sight)).is_none() {
                    return Said { measurements: Vec::new(), usage: spent, whole: true };
                }
            }
            Some(Err(error)) => {
                // Its metric waits for it in vain and is unmeasured when the others are through.
                tracing::error!(%error, "asking a judge ended abnormally; this is a bug");
            }
            None => break true,
        }
    };
    let measured = guarded(|| rounds.finish(sight, Unmeasured::Timeout));
    Said { measurements: measured.unwrap_or_default(), usage: spent, whole }
}

/// Asks beforehand what can be asked of a trace that is still open; what comes back is in the
/// judges' cache then. Returns what it took.
pub(super) async fn ask_early<F>(engine: &Engine, weighed: &Weighed, ask: impl Fn(Ask) -> F) -> Usage
where
    F: Future<Output = Answer> + Send + 'static,
{
    let sight = engine.sight(weighed);
    let Some(mut rounds) = guarded(|| Rounds::early(sight)) else { return Usage::default() };
    let mut flying: JoinSet<Answer> = JoinSet::new();
    let mut usage = Usage::default();
    loop {
        while flying.len() < IN_FLIGHT {
            match guarded(|| rounds.next(sight)).flatten() {
                Some(next) => flying.spawn(ask(next)),
                None => break,
            };
        }
        match flying.join_next().await {
            Some(Ok(answer)) => usage += answer.usage,
            Some(Err(error)) => tracing::error!(%error, "asking a judge ended abnormally; this is a bug"),
            None => return usage,
        }
    }
}

/// `None` if the work panicked: it reads what a stranger wrote.
pub(super) fn guarded<T>(work: impl FnOnce() -> T) -> Option<T> {
    let done = catch_unwind(AssertUnwindSafe(work)).ok();
    if done.is_none() {
        tracing::error!("reading or writing for judges panicked; the rules' word stands. This is a bug");
    }
    done
}
