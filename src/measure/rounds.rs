//! Metrics that ask, driven to their end: questions out, answers in, round by round.
//!
//! In: a scene and what the rules found in it. Out: [`Ask`]s for whoever carries them to judges,
//! and, when they are answered or there is no more time, [`Measurement`]s. No metric waits for
//! another. Pure: `pipeline` brings time and network.

use super::question::{Answer, Question, Usage};
use super::{Measurement, Memo, Metric, Need, Reason, Settings, Step, View, anchors, catalog};
use crate::recognise::Scene;
use crate::trace::Idx;

/// Rounds of questions that one metric may ask on one span. The longest, the checklist, takes
/// five (criteria, filter, class, proof, answer) and a widening; more is a metric gone astray.
const MAX_ROUNDS: usize = 8;

/// A question on its way.
#[derive(Clone, Debug)]
pub struct Ask {
    /// To hand back with the answer.
    pub ticket: usize,
    /// The span that it is about.
    pub at: Idx,
    /// The metric that asks.
    pub metric: &'static str,
    /// What it asks.
    pub question: Question,
    /// Who is to answer, by the names of the configuration.
    pub judges: Vec<String>,
}

/// One metric on one span.
struct Open {
    metric: usize,
    at: Idx,
    round: usize,
    /// Asked in this round and not answered yet.
    waiting: usize,
    answers: Vec<Answer>,
}

/// The asking metrics of one trace.
pub struct Rounds {
    metrics: Vec<Box<dyn Metric>>,
    open: Vec<Option<Open>>,
    done: Vec<Measurement>,
    usage: Usage,
}

/// What a round looks at. The scene is not changed between rounds.
#[derive(Clone, Copy)]
pub struct Sight<'a> {
    /// The whole trace (or what is there of it).
    pub scene: &'a Scene,
    /// Thresholds, switches, judges.
    pub settings: &'a Settings,
    /// What the rules measured, by span.
    pub rules: &'a [Measurement],
}

impl Rounds {
    /// Asks whatever is to be asked of a trace that has closed.
    pub fn begin(sight: Sight<'_>) -> (Rounds, Vec<Ask>) {
        Rounds::over(sight, |_, _| true)
    }

    /// Asks what can be asked of a trace that is still open: where the span's parent has come, and
    /// the metric looks no further. The answers of the closed trace's same questions are then
    /// known, or on their way.
    pub fn early(sight: Sight<'_>) -> Vec<Ask> {
        let known = |need: Need, at: Idx| {
            need <= Need::Parent
                && (sight.scene.tree.parent(at).is_some() || sight.scene.tree.root() == Some(at))
        };
        Rounds::over(sight, known).1
    }

    fn over(sight: Sight<'_>, ready: impl Fn(Need, Idx) -> bool) -> (Rounds, Vec<Ask>) {
        let metrics = catalog::asking(sight.settings);
        let mut rounds = Rounds { metrics, open: Vec::new(), done: Vec::new(), usage: Usage::default() };
        let mut asks = Vec::new();
        let memo = Memo::new();
        let judged = catalog::judged(sight.scene);
        for metric in 0..rounds.metrics.len() {
            let (name, need) = (rounds.metrics[metric].name(), rounds.metrics[metric].need());
            for at in 0..sight.scene.readings.len() {
                let applies = judged.get(at).copied().unwrap_or(false)
                    && !sight.scene.readings[at].wrapper
                    && ready(need, at)
                    && sight.settings.enabled(name, sight.scene, at);
                if applies {
                    let open = Open { metric, at, round: 0, waiting: 0, answers: Vec::new() };
                    rounds.open.push(Some(open));
                    rounds.step(rounds.open.len() - 1, sight, &memo, &mut asks);
                }
            }
        }
        (rounds, asks)
    }

    /// Takes an answer; returns what is asked next because of it.
    pub fn answer(&mut self, ticket: usize, answer: Answer, sight: Sight<'_>) -> Vec<Ask> {
        self.usage += answer.usage;
        let mut asks = Vec::new();
        if let Some(Some(open)) = self.open.get_mut(ticket) {
            open.answers.push(answer);
            open.waiting = open.waiting.saturating_sub(1);
            if open.waiting == 0 {
                self.step(ticket, sight, &Memo::new(), &mut asks);
            }
        }
        asks
    }

    fn step(&mut self, ticket: usize, sight: Sight<'_>, memo: &Memo, asks: &mut Vec<Ask>) {
        let Some(open) = self.open.get_mut(ticket).and_then(Option::as_mut) else { return };
        // Answers come in any order; which way they came must not show.
        open.answers.sort_by(|a, b| a.key.cmp(&b.key));
        let Sight { scene, settings, rules } = sight;
        let view = View { scene, at: open.at, settings, memo, rules };
        let metric = &self.metrics[open.metric];
        let ended = match metric.step(&view, &open.answers) {
            Step::Done(measurements) => measurements,
            Step::Ask(questions) if open.round < MAX_ROUNDS && !questions.is_empty() => {
                open.round += 1;
                open.waiting = questions.len();
                let judges = settings.judges(metric.name());
                let (at, metric) = (open.at, metric.name());
                asks.extend(questions.into_iter().map(|question| Ask {
                    ticket,
                    at,
                    metric,
                    question,
                    judges: judges.clone(),
                }));
                return;
            }
            Step::Ask(_) => vec![anchors::unmeasured(open.at, metric.name(), Reason::JudgeError)],
        };
        self.done.extend(ended);
        self.open[ticket] = None;
    }

    /// Nothing is waited for.
    pub fn is_done(&self) -> bool {
        self.open.iter().all(Option::is_none)
    }

    /// What was measured; what has no answer yet is unmeasured for the reason `why`.
    pub fn finish(self, why: Reason) -> (Vec<Measurement>, Usage) {
        let Rounds { metrics, open, mut done, usage } = self;
        let late = open.into_iter().flatten();
        done.extend(late.map(|open| anchors::unmeasured(open.at, metrics[open.metric].name(), why)));
        (done, usage)
    }
}
