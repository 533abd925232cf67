//! Sends a trace's questions to judges and collects the answers, until all are answered or its time is
//! up.
//!
//! In: an assessed trace and what answers a question. Out: what the judges measured. Rendering questions
//! and reading answers work on untrusted content: should they panic, the rules' measurements remain.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;

use tokio::task::JoinSet;
use verdict_eval::{Answer, Ask, Assessment, Evaluator, Measurement, Unmeasured, Usage};
use verdict_judge::Judges;
use verdict_otlp::trace::TraceId;

/// Questions of one trace on their way at once. More than any judge's default concurrency, so that
/// one trace alone can keep it busy; few enough that their prompts stay a few megabytes.
const IN_FLIGHT: usize = 64;

/// What answers questions: the configured judges, or a test's.
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
pub(super) struct Judgements {
    pub measurements: Vec<Measurement>,
    pub usage: Usage,
    /// Every question was answered, if only with a reason.
    pub complete: bool,
}

/// Asks everything that is to be asked of a trace, until `until`; what is not answered then is
/// unmeasured: timeout. Dropping the future ends what is on its way.
pub(super) async fn ask_all<F>(
    evaluator: &Evaluator,
    assessment: &Assessment,
    ask: impl Fn(Ask) -> F,
    until: impl Future<Output = ()>,
) -> Judgements
where
    F: Future<Output = Answer> + Send + 'static,
{
    let mut spent = Usage::default();
    let Some(mut questions) = guarded(|| evaluator.questions(assessment)) else {
        return Judgements { measurements: Vec::new(), usage: spent, complete: true };
    };
    let mut flying: JoinSet<(usize, Answer)> = JoinSet::new();
    tokio::pin!(until);
    let complete = loop {
        // Without time nothing is asked.
        tokio::select! {
            biased;
            () = &mut until => break false,
            () = std::future::ready(()) => {}
        }
        while flying.len() < IN_FLIGHT {
            match guarded(|| questions.next_question()) {
                Some(Some(next)) => {
                    let id = next.id;
                    let answer = ask(next);
                    flying.spawn(async move { (id, answer.await) });
                }
                Some(None) => break,
                None => return Judgements { measurements: Vec::new(), usage: spent, complete: true },
            }
        }
        let answered = tokio::select! {
            answered = flying.join_next() => answered,
            () = &mut until => break false,
        };
        match answered {
            Some(Ok((id, answer))) => {
                spent += answer.usage;
                if guarded(|| questions.answer(id, answer)).is_none() {
                    return Judgements { measurements: Vec::new(), usage: spent, complete: true };
                }
            }
            Some(Err(error)) => {
                // Its metric is unmeasured when the others are answered.
                tracing::error!(%error, "asking a judge ended abnormally; this is a bug");
            }
            None => break true,
        }
    };
    let measured = guarded(|| questions.finish(Unmeasured::Timeout));
    Judgements { measurements: measured.unwrap_or_default(), usage: spent, complete }
}

/// Asks what can be asked about a trace that is still open, so that the answers are in the judges' cache
/// when it closes. Returns what it took.
pub(super) async fn ask_early<F>(
    evaluator: &Evaluator,
    assessment: &Assessment,
    ask: impl Fn(Ask) -> F,
) -> Usage
where
    F: Future<Output = Answer> + Send + 'static,
{
    let Some(mut questions) = guarded(|| evaluator.early_questions(assessment)) else {
        return Usage::default();
    };
    let mut flying: JoinSet<Answer> = JoinSet::new();
    let mut usage = Usage::default();
    loop {
        while flying.len() < IN_FLIGHT {
            match guarded(|| questions.next_question()).flatten() {
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

/// `None` if the work panicked: it reads untrusted content.
pub(super) fn guarded<T>(work: impl FnOnce() -> T) -> Option<T> {
    let done = catch_unwind(AssertUnwindSafe(work)).ok();
    if done.is_none() {
        tracing::error!(
            "preparing a question or reading an answer panicked; the rules' measurements remain. This is a bug"
        );
    }
    done
}
