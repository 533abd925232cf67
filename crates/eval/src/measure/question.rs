//! Questions to judges and their answers.
//!
//! A metric renders a [`Question`]: two texts and the [`AnswerForm`] of the answer. The judge client sends it,
//! validates and repairs the answer by the form, retries, caches answers, and accounts for the cost. The client returns
//! [`Opinion`]s that fit the form, or an [`Unmeasured`] reason.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use verdict_otlp::trace::Idx;

use super::measurement::Unmeasured;
use crate::recognise::{AgentTrace, Text};

/// The texts for a judge, in which content must be redacted by
/// [`Context::cleaned`](crate::metrics::Context::cleaned) and marked as content.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Prompt {
    /// The role and the rubric of the judge. The text is the same for all spans of a metric, so that servers can cache
    /// it.
    pub system: Arc<str>,
    /// The content of the trace, fenced as data.
    pub user: Arc<str>,
    shows: Shows,
}

impl Prompt {
    /// A prompt that may contain content of any span of the trace.
    pub fn new(system: impl Into<Arc<str>>, user: impl Into<Arc<str>>) -> Prompt {
        Prompt { system: system.into(), user: user.into(), shows: Shows::default() }
    }

    /// Sets the spans whose content the prompt shows.
    pub(super) fn showing(self, shows: Shows) -> Prompt {
        Prompt { shows, ..self }
    }

    /// The shown spans.
    pub(super) fn shows(&self) -> &Shows {
        &self.shows
    }
}

/// The spans whose content a text shows; `None` for any span of the trace, which is the default: text of unknown origin
/// counts as content of every service.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Shows(Option<BTreeSet<Idx>>);

impl Shows {
    /// No span.
    pub(super) fn nothing() -> Shows {
        Shows(Some(BTreeSet::new()))
    }

    /// The span `span_index`.
    pub(super) fn only(span_index: Idx) -> Shows {
        Shows(Some([span_index].into()))
    }

    /// The span `span_index`, and its agent, whose name may be in the title.
    pub(super) fn span(trace: &AgentTrace, span_index: Idx) -> Shows {
        let agent = trace.owner.get(span_index).copied().flatten().and_then(|i| trace.agents.get(i));
        let titled = agent.filter(|_| trace.agents.len() > 1).map(|agent| agent.at);
        Shows(Some(titled.into_iter().chain([span_index]).collect()))
    }

    /// Adds the span `span_index`, unless a span of its service is in the set. With too many services, the set becomes
    /// any span.
    pub(super) fn add(&mut self, trace: &AgentTrace, span_index: Idx) {
        const MAX_SERVICES: usize = 16;
        let service = |span_index: Idx| trace.views.get(span_index).and_then(|view| view.service.as_ref());
        if let Some(spans) = &mut self.0
            && spans.iter().all(|shown| service(*shown) != service(span_index))
        {
            spans.insert(span_index);
            self.0.take_if(|spans| spans.len() > MAX_SERVICES);
        }
    }

    /// Whether the predicate is true for a shown span, or any span may be shown.
    pub(super) fn may_show(&self, predicate: impl Fn(Idx) -> bool) -> bool {
        self.0.as_ref().is_none_or(|spans| spans.iter().any(|span_index| predicate(*span_index)))
    }

    /// The union of both sets.
    pub(super) fn union(self, other: &Shows) -> Shows {
        Shows(self.0.zip(other.0.as_ref()).map(|(spans, other)| &spans | other))
    }

    /// The services of the shown spans; `all` if any span may be shown, or if a shown span has no service.
    pub(super) fn services(&self, trace: &AgentTrace, all: &Arc<[Text]>) -> Arc<[Text]> {
        let service = |span_index: &Idx| trace.views.get(*span_index)?.service.clone();
        let shown_services = self.0.as_ref().and_then(|spans| spans.iter().map(service).collect());
        shown_services
            .map_or_else(|| Arc::clone(all), |services: BTreeSet<Text>| services.into_iter().collect())
    }
}

/// The distinct services of a trace. Spans without `service.name` belong to the service `""`, which only the pattern
/// `*` matches.
pub fn services(trace: &AgentTrace) -> Arc<[Text]> {
    let all = trace.views.iter().map(|view| view.service.clone().unwrap_or_else(|| Text::from("")));
    all.collect::<BTreeSet<Text>>().into_iter().collect()
}

/// The form that an answer must have.
#[derive(Clone, PartialEq, Debug)]
pub struct AnswerForm {
    /// The name of the schema; letters, digits and underscores.
    pub name: &'static str,
    /// A strict JSON schema of an object: rationale first, then score, then findings.
    pub schema: Value,
    /// The enumerated score, if there is one. It is weighted if the server returns token probabilities.
    pub score: Option<ScoreField>,
}

impl AnswerForm {
    /// A form without a score: an object of exactly these fields, each with its JSON schema.
    pub fn object(name: &'static str, fields: Value) -> Arc<AnswerForm> {
        Arc::new(AnswerForm { name, schema: object_schema(fields), score: None })
    }

    /// Whether the form has a field `answer` whose values include "yes" and "no".
    pub(super) fn answers_yes_or_no(&self) -> bool {
        let words = self.schema.pointer("/properties/answer/enum").and_then(Value::as_array);
        words.is_some_and(|words| ["yes", "no"].iter().all(|word| words.iter().any(|value| value == word)))
    }
}

/// The schema of an object of exactly these fields.
pub(crate) fn object_schema(fields: Value) -> Value {
    let required: Vec<&String> = fields.as_object().map(|map| map.keys().collect()).unwrap_or_default();
    json!({ "type": "object", "properties": fields, "required": required, "additionalProperties": false })
}

/// The field of the score in an answer and its values.
#[derive(Clone, PartialEq, Debug)]
pub struct ScoreField {
    /// The key at the top of the object.
    pub key: &'static str,
    /// Small integers, each of which is one token in common vocabularies.
    pub values: Vec<u8>,
}

/// A question of a metric to its judges.
#[derive(Clone, PartialEq, Debug)]
pub struct Question {
    /// The key, which is unique among the questions of the same metric on the same span.
    pub key: String,
    pub prompt: Prompt,
    pub form: Arc<AnswerForm>,
    /// The names of the judges; if empty, the judges of the metric answer.
    pub judges: Vec<String>,
}

impl Question {
    /// A question to the judges of the metric.
    pub fn new(key: impl Into<String>, prompt: Prompt, form: Arc<AnswerForm>) -> Question {
        Question { key: key.into(), prompt, form, judges: Vec::new() }
    }
}

/// The answer of one judge in one sample.
#[derive(Clone, PartialEq, Debug)]
pub struct Opinion {
    /// The answer, valid against the question's form.
    pub value: Value,
    /// The score weighted by token probabilities, if the server returned them.
    pub weighted: Option<f64>,
    /// The value of `verdict.<metric>.judge`: the model, a slash, and the hash of rubric and form.
    pub judge: Arc<str>,
}

/// Tokens and cost of answers.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Usage {
    /// Prompt and completion tokens; 0 for cached answers.
    pub tokens: u64,
    /// Cost in USD, by the judge's configured price per token.
    pub cost_usd: f64,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, more: Usage) {
        self.tokens = self.tokens.saturating_add(more.tokens);
        self.cost_usd += more.cost_usd;
    }
}

/// The answer to a question: an opinion of each judge and sample that answered, or the reason why there is none.
#[derive(Clone, PartialEq, Debug)]
pub struct Answer {
    pub key: String,
    /// At least one opinion, ordered by judge as configured, then by sample.
    pub opinions: Result<Vec<Opinion>, Unmeasured>,
    /// The usage, including failed attempts.
    pub usage: Usage,
}
