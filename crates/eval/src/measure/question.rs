//! What a metric asks a judge, and what comes back.
//!
//! A metric renders a [`Question`]: two texts and the [`Form`] that an answer must have. It knows
//! neither who answers nor how: `judge` sends it, holds the answer against the form, repairs, asks
//! again, caches and pays. What comes back are [`Opinion`]s that fit the form, or a [`Unmeasured`].

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::Unmeasured;
use crate::recognise::{AgentTrace, Text};
use verdict_otlp::trace::Idx;

/// What a judge reads. Redacted and fenced before it stands here.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Prompt {
    /// Who the judge is and by which rubric it judges. The same for all spans of a metric, so that
    /// servers can cache it.
    pub system: Arc<str>,
    /// What is judged: content of the trace, fenced as data.
    pub user: Arc<str>,
    shows: Shows,
}

impl Prompt {
    /// Shows any span of the trace, as far as is known.
    pub fn new(system: impl Into<Arc<str>>, user: impl Into<Arc<str>>) -> Prompt {
        Prompt { system: system.into(), user: user.into(), shows: Shows::default() }
    }

    /// Shows these spans and no other.
    pub(super) fn showing(self, shows: Shows) -> Prompt {
        Prompt { shows, ..self }
    }

    /// The spans whose content it shows.
    pub(super) fn shows(&self) -> &Shows {
        &self.shows
    }
}

/// The spans whose content a text shows. By default any span of the trace, so that text of unknown
/// origin counts as content of every service.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Shows(Option<BTreeSet<Idx>>);

impl Shows {
    /// Our words alone.
    pub(super) fn nothing() -> Shows {
        Shows(Some(BTreeSet::new()))
    }

    /// Content of the span `at`, and its title, in which the name of its agent may stand.
    pub(super) fn span(trace: &AgentTrace, at: Idx) -> Shows {
        let agent = trace.owner.get(at).copied().flatten().and_then(|i| trace.agents.get(i));
        let titled = agent.filter(|_| trace.agents.len() > 1).map(|agent| agent.at);
        Shows(Some(titled.into_iter().chain([at]).collect()))
    }

    /// What either shows.
    pub(super) fn and(self, other: &Shows) -> Shows {
        Shows(self.0.zip(other.0.as_ref()).map(|(own, other)| &own | other))
    }

    /// The services that recorded it; of spans without a service, every one of `all`.
    pub(super) fn services(&self, trace: &AgentTrace, all: &Arc<[Text]>) -> Arc<[Text]> {
        let service = |at: &Idx| trace.views.get(*at)?.service.clone();
        let named = self.0.as_ref().and_then(|spans| spans.iter().map(service).collect());
        named.map_or_else(|| Arc::clone(all), |named: BTreeSet<Text>| named.into_iter().collect())
    }
}

/// Every service of a trace, once. Spans without `service.name` are of the service `""`, which only
/// the pattern `*` matches.
pub(super) fn services(trace: &AgentTrace) -> Arc<[Text]> {
    let all = trace.views.iter().map(|view| view.service.clone().unwrap_or_else(|| Text::from("")));
    all.collect::<BTreeSet<Text>>().into_iter().collect()
}

/// The shape of an answer.
#[derive(Clone, PartialEq, Debug)]
pub struct Form {
    /// Names the schema to the server; letters, digits and underscores.
    pub name: &'static str,
    /// A strict JSON schema of an object: rationale first, then score, then findings.
    pub schema: Value,
    /// The enumerated score in it, where there is one. Servers that give the probabilities of
    /// tokens can weigh it.
    pub score: Option<ScoreField>,
}

/// Where the score stands in an answer, and what it may be.
#[derive(Clone, PartialEq, Debug)]
pub struct ScoreField {
    /// The key at the top of the object.
    pub key: &'static str,
    /// Each is one token in every vocabulary in use: small integers.
    pub values: Vec<u8>,
}

/// A question to a judge.
#[derive(Clone, PartialEq, Debug)]
pub struct Question {
    /// Tells it from the other questions of the same metric on the same span.
    pub key: String,
    /// The two texts.
    pub prompt: Prompt,
    /// The shape that an answer must have.
    pub form: Arc<Form>,
    /// Who is to answer, by name; where empty, the judges of the metric.
    pub judges: Vec<String>,
}

/// What one judge said, in one sample.
#[derive(Clone, PartialEq, Debug)]
pub struct Opinion {
    /// Fits the question's form.
    pub value: Value,
    /// The score weighted by the probabilities of its tokens, where the server gave them.
    pub weighted: Option<f64>,
    /// As in `verdict.<metric>.judge`: the model, a slash, the hash of rubric and form.
    pub judge: Arc<str>,
}

/// What answers have cost.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Usage {
    /// Prompt and completion tokens; none for answers out of a cache.
    pub tokens: u64,
    /// Price in USD, by the judge's configured price a token.
    pub cost_usd: f64,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, more: Usage) {
        self.tokens = self.tokens.saturating_add(more.tokens);
        self.cost_usd += more.cost_usd;
    }
}

/// What came of a question: an opinion of each judge and sample that answered, at least one; or
/// why there is none.
#[derive(Clone, PartialEq, Debug)]
pub struct Answer {
    /// The question's key.
    pub key: String,
    /// In order of the judges as configured, then of samples.
    pub opinions: Result<Vec<Opinion>, Unmeasured>,
    /// What it took, failed attempts included.
    pub usage: Usage,
}
