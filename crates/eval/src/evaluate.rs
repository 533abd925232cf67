//! One closed trace, judged and annotated. Pure work: no waiting, no runtime.

use crate::annotate;
use crate::annotate::{Annotated, Emission, Marks, Note};
use crate::config::Config;
use crate::measure;
use crate::measure::merge_judgements::merge_judgements;
use crate::measure::path::settings::TaskSet;
use crate::measure::question_rounds::Sight;
use crate::measure::{Measurement, Settings, Usage};
use crate::propagate;
use crate::propagate::{Policies, Verdicts};
use crate::recognise::{AgentTrace, Recogniser};
use verdict_otlp::Piece;
use verdict_otlp::logs::LogView;
#[cfg(any(test, feature = "testing"))]
use verdict_otlp::trace::TraceId;
use verdict_otlp::trace::{Attached, SpanId, Tree};
use verdict_otlp::trace::{CloseReason, ClosedTrace, PriorVerdict};

/// Largest request made for one trace. Servers accept 4 MiB unless told otherwise, and exporters
/// join and split further by their own limits.
const MAX_REQUEST: usize = 4 << 20;

/// What judging needs, resolved once from the configuration.
#[derive(Debug)]
pub struct Engine {
    recogniser: Recogniser,
    settings: Settings,
    policies: Policies,
    emission: Emission,
    annotates: bool,
    /// Some metric is switched on.
    measures: bool,
    /// Some metric names a judge beside the rules.
    asks: bool,
    /// What tests do before a trace is judged: panic, or take their time.
    #[cfg(any(test, feature = "testing"))]
    pub before: Option<fn(TraceId)>,
}

/// How far the rules have come in a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// The first metric is about to run.
    Begun,
    /// This metric has run over the whole trace.
    Ran(&'static str),
}

/// A trace with what the rules found in it.
#[derive(Debug)]
pub struct Weighed {
    /// The trace in the one vocabulary.
    pub trace: AgentTrace,
    /// What the rules measured.
    pub rules: Vec<Measurement>,
    before: Option<PriorVerdict>,
    reason: CloseReason,
}

/// A trace, judged.
#[derive(Debug)]
pub struct Judged {
    /// The trace in the one vocabulary.
    pub trace: AgentTrace,
    /// What was measured.
    pub measurements: Vec<Measurement>,
    /// What follows for spans and trace.
    pub verdicts: Verdicts,
    /// What is said of the trace beside them.
    pub note: Note,
}

impl Engine {
    /// From the `verdict` section and the tasks of the files that it names.
    ///
    /// # Errors
    /// The user's additions to the map of conventions do not fit together; says where.
    pub fn new(config: &Config, tasks: TaskSet, annotates: bool) -> Result<Engine, String> {
        let mut settings = config.settings()?;
        settings.path.loaded = tasks;
        Ok(Engine {
            recogniser: Recogniser::new(&config.recognise).map_err(|e| format!("recognise: {e}"))?,
            settings,
            policies: config.propagation.clone(),
            emission: config.emission(),
            annotates,
            measures: config.metrics.any(),
            asks: config.metrics.named_judges().next().is_some(),
            #[cfg(any(test, feature = "testing"))]
            before: None,
        })
    }

    /// What tells a span's kind; for rendering.
    pub fn recogniser(&self) -> &Recogniser {
        &self.recogniser
    }

    /// Judges a closed trace. `now` is in nanoseconds since 1970; `progress` is called as in
    /// [`Engine::weigh`].
    pub fn judge(&self, closing: ClosedTrace, now: u64, progress: &mut dyn FnMut(Progress)) -> Judged {
        if !self.measures {
            return self.unjudged(closing, now);
        }
        let weighed = self.weigh(closing, progress);
        self.conclude(weighed, Vec::new(), None, now)
    }

    /// Whether judges are to be asked of a trace that closed for this reason. Late spans go on at
    /// once.
    pub fn asks(&self, reason: CloseReason) -> bool {
        self.asks && reason != CloseReason::Late
    }

    /// Reads a closed trace and runs the rules over it. `progress` is called before the first rule
    /// and after each, for those who measure time: there is no clock here.
    pub fn weigh(&self, closing: ClosedTrace, progress: &mut dyn FnMut(Progress)) -> Weighed {
        #[cfg(any(test, feature = "testing"))]
        if let Some(before) = self.before {
            before(closing.trace);
        }
        let tree = Tree::new(closing.trace, closing.spans);
        let trace = self.recogniser.trace(tree, &in_order(closing.logs), closing.incomplete);
        progress(Progress::Begun);
        let rules =
            measure::catalog::run_each(&trace, &self.settings, &mut |metric| progress(Progress::Ran(metric)));
        Weighed { trace, rules, before: closing.before, reason: closing.reason }
    }

    /// Whether there are tasks whose paths calls are held against.
    pub fn has_tasks(&self) -> bool {
        !self.settings.path.loaded.tasks().is_empty()
    }

    /// The harmful calls of a trace as far as it has come: span, reason, and both in words.
    pub fn harmful(&self, glimpse: ClosedTrace) -> Vec<(SpanId, &'static str, String)> {
        let tree = Tree::new(glimpse.trace, glimpse.spans);
        let trace = self.recogniser.trace(tree, &in_order(glimpse.logs), true);
        let told = measure::path::metric::harmful_calls(&trace, &self.settings.path);
        let of = |m: Measurement| {
            let id = trace.tree.spans.get(m.at)?.id;
            let measured = m.outcome.ok()?;
            let measure::Value::Label(reason) = measured.value else { return None };
            Some((id, reason, measured.findings.into_iter().next()?.rationale))
        };
        told.into_iter().filter_map(of).collect()
    }

    /// What questions to judges rest on.
    pub fn sight<'a>(&'a self, weighed: &'a Weighed) -> Sight<'a> {
        Sight { trace: &weighed.trace, settings: &self.settings, rules: &weighed.rules }
    }

    /// The verdicts of a trace, with what judges measured in it. `usage` is what they took, where
    /// any was asked. `now` is in nanoseconds since 1970.
    pub fn conclude(
        &self,
        weighed: Weighed,
        judged: Vec<Measurement>,
        usage: Option<Usage>,
        now: u64,
    ) -> Judged {
        let Weighed { trace, rules, before, reason } = weighed;
        let measurements = if judged.is_empty() { rules } else { merge_judgements(rules, judged) };
        let verdicts = propagate::propagate(&trace, &measurements, &self.policies);
        let note = Note { usage, ..note(&before, reason, trace.incomplete, verdicts.trace.passed, now) };
        Judged { trace, measurements, verdicts, note }
    }

    /// A closed trace of which nothing is said but that it is unmeasured: for when there is no time
    /// left to judge it, or judging it went wrong.
    pub fn unjudged(&self, closing: ClosedTrace, now: u64) -> Judged {
        let tree = Tree::new(closing.trace, closing.spans);
        let trace = AgentTrace { tree, incomplete: closing.incomplete, ..AgentTrace::default() };
        let note = note(&closing.before, closing.reason, closing.incomplete, None, now);
        Judged { trace, measurements: Vec::new(), verdicts: Verdicts::default(), note }
    }

    /// Writes the verdicts: onto the spans, or, in shadow mode, into log events alone.
    pub fn annotate(&self, judged: &Judged) -> Annotated {
        let Judged { trace, measurements, verdicts, note } = judged;
        if self.annotates {
            annotate::annotate(trace, measurements, verdicts, note, &self.emission, MAX_REQUEST)
        } else {
            let events =
                annotate::log_events(trace, measurements, verdicts, note, &self.emission, MAX_REQUEST);
            Annotated { events, ..Annotated::default() }
        }
    }
}

/// Log records by time, each once: they come in any order, and again when a sender did not hear
/// that they were taken.
fn in_order(mut logs: Vec<Attached>) -> Vec<Attached> {
    logs.sort_by_cached_key(|log| (LogView::read(&log.record).time, log.span, log.record.clone()));
    logs.dedup();
    logs
}

/// [`Engine::annotate`] in two steps: what is said, which can be kept, and what goes out.
impl Engine {
    /// What there is to say of a judged trace.
    pub fn marks(&self, judged: &Judged) -> Marks {
        let Judged { trace, measurements, verdicts, note } = judged;
        if self.annotates {
            annotate::marks(trace, measurements, verdicts, note, &self.emission, MAX_REQUEST)
        } else {
            let events =
                annotate::log_events(trace, measurements, verdicts, note, &self.emission, MAX_REQUEST);
            Marks { events, ..Marks::default() }
        }
    }

    /// Requests of a trace's spans with what was said of them.
    pub fn join(&self, tree: &Tree, marks: &Marks) -> (Vec<Piece>, usize) {
        annotate::join(tree, marks, &self.emission, MAX_REQUEST)
    }
}

/// For late spans, what the trace comes to together with what was there before: failing if
/// either part fails. A recovery cannot be seen across the two; that is the price of not waiting.
fn note(
    before: &Option<PriorVerdict>,
    reason: CloseReason,
    incomplete: bool,
    passed: Option<bool>,
    now: u64,
) -> Note {
    let Some(before) = before else {
        return Note {
            reason,
            revision: 1,
            passed,
            changed: true,
            incomplete,
            now,
            unmeasured: None,
            usage: None,
        };
    };
    let together = match (before.passed, passed) {
        (Some(a), Some(b)) => Some(a && b),
        (a, b) => a.or(b),
    };
    let changed = together != before.passed;
    let revision = before.revision.max(1) + u32::from(changed);
    Note { reason, revision, passed: together, changed, incomplete, now, unmeasured: None, usage: None }
}
