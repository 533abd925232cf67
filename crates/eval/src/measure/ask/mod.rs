//! What judges are asked, and what their answers come to (001, tables 1 and 2; 000, section 3).
//!
//! In: a trace, a span, what the rules found. Out: prompts and forms; and from the answers,
//! measurements whose every finding quotes what is there. Pure: it knows neither who answers nor
//! when.
//!
//! | file | what it does |
//! |---|---|
//! | `rubric/` | how each metric is judged |
//! | `config` | `verdict.ask`, `verdict.rubrics`, `verdict.instructions` |
//! | `filter` | which questions are asked at all: samples, spans, doubts |
//! | `step` | a metric of one model or tool call |
//! | `run` | a metric of an agent or a trace, in as many parts as it takes |
//! | `story`, `parts` | a run told once, without repetition, cut to size |
//! | `plans` | plans with what led to them, and what followed from them |
//! | `topology` | who calls whom, from what was observed |
//! | `content`, `harmless`, `prompt_page` | a stranger's content, cleaned and fenced |
//! | `system`, `form` | the judge's instructions, and the form of its answer |
//! | `opinion`, `quote`, `verdict` | answers read, held against the content, and joined |
//!
//! # How it is kept safe
//!
//! Content comes from strangers: it is redacted, stripped of what cannot be seen and of control
//! tokens, and fenced by a mark that it does not hold. Whatever a judge says is held against what it
//! was shown: other spans than those shown, and quotations that are nowhere, are dropped.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::defects::unmeasured;
use super::{Answer, Context, Metric, Settings, Step, Unmeasured};
use crate::recognise::{Agent, AgentTrace};
use crate::redact::{Redact, Redactor};
use verdict_config::{admits, matches};
use verdict_otlp::trace::{Idx, Kind};

pub mod config;
pub mod content;
pub mod stable_hash;
pub mod filter;
pub mod form;
pub mod sanitize;
pub mod opinion;
pub mod parts;
pub mod plans;
pub mod quote;
pub mod run;
pub mod prompt_page;
pub mod step;
pub mod transcript;
pub mod system;
pub mod topology;
pub mod verdict;

use super::table::{About, MetricSpec};
pub use config::{Ask, Instruction, When};

/// How questions are asked, resolved once from the configuration.
#[derive(Clone, Debug, Default)]
pub struct Asker {
    ask: Ask,
    redactor: Redactor,
    rubrics: BTreeMap<String, String>,
    instructions: Vec<Instruction>,
    redact: Redact,
}

/// By what was written: the rest follows from it.
impl PartialEq for Asker {
    fn eq(&self, other: &Asker) -> bool {
        (&self.ask, &self.rubrics, &self.instructions, &self.redact)
            == (&other.ask, &other.rubrics, &other.instructions, &other.redact)
    }
}

impl Asker {
    /// From the sections of the configuration.
    ///
    /// # Errors
    /// A pattern of `verdict.redact` is no regular expression; says which.
    pub fn new(
        ask: Ask,
        rubrics: BTreeMap<String, String>,
        instructions: Vec<Instruction>,
        redact: Redact,
    ) -> Result<Asker, String> {
        let redactor = Redactor::new(&redact)?;
        Ok(Asker { ask, redactor, rubrics, instructions, redact })
    }

    /// A stranger's text as a judge may read it.
    pub fn clean(&self, text: &str) -> String {
        let harmless = sanitize::sanitize(text);
        match self.redactor.redact(&harmless) {
            std::borrow::Cow::Borrowed(_) => harmless.into_owned(),
            std::borrow::Cow::Owned(redacted) => redacted,
        }
    }

    /// A stranger's name for something, as part of a line of ours.
    pub fn name(&self, text: &str) -> String {
        // Redacted before it is cut: half a secret is not known as one.
        sanitize::name(&self.redactor.redact(super::defects::clip(text, 4 * sanitize::MOST_NAME)))
    }

    /// Whether the service of the span keeps its content from judges, or that of a span beneath a plan
    /// span, whose text may be the plan.
    pub fn withholds(&self, trace: &AgentTrace, at: Idx) -> bool {
        if self.ask.withhold.is_empty() {
            return false;
        }
        let listed = |at: Idx| {
            let service = trace.views.get(at).and_then(|view| view.service.as_deref());
            service.is_some_and(|service| self.ask.withhold.iter().any(|pattern| matches(pattern, service)))
        };
        let plans = trace.views.get(at).is_some_and(|view| view.kind == Kind::Plan);
        listed(at) || plans && trace.tree.subtree(at).any(listed)
    }

    /// Whether it withholds content of any span.
    pub fn withholds_any(&self, trace: &AgentTrace) -> bool {
        !self.ask.withhold.is_empty() && (0..trace.views.len()).any(|at| self.withholds(trace, at))
    }

    /// Whether content of an agent's own span or model calls is withheld, of which its tools are.
    pub fn withholds_of(&self, trace: &AgentTrace, agent: &Agent) -> bool {
        agent.llms.iter().chain([&agent.at]).any(|&at| self.withholds(trace, at))
    }

    /// Whether an agent's final answer is withheld. One that stands on a tool's span may be made of the
    /// arguments that a model's span holds.
    pub fn withholds_answer(&self, trace: &AgentTrace, agent: &Agent) -> bool {
        let at = agent.answer_at.unwrap_or(agent.at);
        let handed = at != agent.at && !agent.llms.contains(&at);
        self.withholds(trace, at) || handed && self.withholds_of(trace, agent)
    }

    /// The first half of the prompts of a topic about the span `at`.
    pub fn system(&self, topic: &MetricSpec, trace: &AgentTrace, at: Idx) -> Arc<str> {
        let view = trace.views.get(at);
        let service = view.and_then(|view| view.service.as_deref());
        let agent = super::settings::agent_name(trace, at);
        let instructions: Vec<&Instruction> = self
            .instructions
            .iter()
            .filter(|i| i.metrics.is_empty() || i.metrics.iter().any(|p| matches(p, topic.name)))
            .filter(|i| admits(i.service.as_deref(), service) && admits(i.agent.as_deref(), agent))
            .collect();
        system::system(topic, self.rubrics.get(topic.name).map(String::as_str), &instructions).into()
    }

    /// Bytes of content that a prompt with this first half has room for.
    pub fn room(&self, system: &str) -> usize {
        /// Our own words around the content, and the schema without its spans.
        const AROUND: usize = 1_200;
        /// However long the rubric is, something must be shown.
        const LEAST: usize = 1_000;
        let left = self.ask.max_prompt_tokens.saturating_sub(prompt_page::tokens(system) + AROUND);
        left.max(LEAST) * prompt_page::BYTES_A_TOKEN
    }
}

/// A metric that judges answer.
pub struct Asked(pub &'static MetricSpec);

impl Metric for Asked {
    fn step(&self, context: &Context<'_>, answers: &[Answer]) -> Step {
        match stands(self.0, context) {
            Err(None) => return Step::Done(Vec::new()),
            Err(Some(reason)) => return Step::Done(vec![unmeasured(context.at, self.0.name, reason)]),
            Ok(()) => {}
        }
        match self.0.about {
            About::Model | About::Tool | About::Step => step::step(self.0, context, answers),
            _ => run::step(self.0, context, answers),
        }
    }
}

/// Whether there is anything to ask about the span of `view`; why not, where that is to be said.
/// Cheap: it is asked of every span, before anything is rendered.
fn stands(topic: &MetricSpec, context: &Context<'_>) -> Result<(), Option<Unmeasured>> {
    match topic.about {
        About::Model | About::Tool | About::Step => step::stands(topic, context),
        _ => run::stands(topic, context).map(|_| ()),
    }
}

/// The asker in force.
fn asker(settings: &Settings) -> &Asker {
    &settings.asker
}

#[cfg(test)]
mod tests;
