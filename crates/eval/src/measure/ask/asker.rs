//! [`Asker`]: how questions are asked, resolved once from the configuration.
//!
//! In: `verdict.ask`, `verdict.rubrics`, `verdict.instructions`, `verdict.redact`. Out: cleaned texts,
//! which spans are withheld from judges, and the system prompt of a metric.

use std::collections::BTreeMap;
use std::sync::Arc;

use verdict_config::{admits, matches};
use verdict_otlp::trace::Idx;

use super::config::{AskConfig, Instruction};
use super::origins::withheld;
use super::{prompt_page, system};
use crate::measure::sections::agent_name;
use crate::measure::table::MetricSpec;
use crate::measure::{defects, sanitize};
use crate::recognise::{Agent, AgentTrace};
use crate::redact::{EmailAddresses, InvalidPattern, Redact, Redactor};

/// How questions are asked, resolved once from the configuration.
#[derive(Clone, Debug, Default)]
pub struct Asker {
    pub(crate) ask: AskConfig,
    redactor: Redactor,
    rubrics: BTreeMap<String, String>,
    instructions: Vec<Instruction>,
}

impl Asker {
    /// An asker from the sections of the configuration.
    ///
    /// # Errors
    /// A pattern of `redact` is not a regular expression.
    pub fn new(
        ask: AskConfig,
        rubrics: BTreeMap<String, String>,
        instructions: Vec<Instruction>,
        redact: &Redact,
    ) -> Result<Asker, InvalidPattern> {
        let redactor = Redactor::new(redact)?;
        Ok(Asker { ask, redactor, rubrics, instructions })
    }

    /// Untrusted text as a judge may read it: sanitized and redacted.
    pub fn clean(&self, text: &str) -> String {
        self.clean_with_addresses(text, &EmailAddresses::default())
    }

    /// The cleaned text, with the numbers of a trace's e-mail addresses.
    pub(super) fn clean_with_addresses(&self, text: &str, addresses: &EmailAddresses) -> String {
        let sanitized = sanitize::sanitize(text);
        match self.redactor.redact_numbering(&sanitized, addresses) {
            std::borrow::Cow::Borrowed(_) => sanitized.into_owned(),
            std::borrow::Cow::Owned(redacted) => redacted,
        }
    }

    /// An untrusted name as it may appear in a label.
    pub fn name(&self, text: &str) -> String {
        // Redacted before it is cut: a part of a secret would not match its pattern.
        sanitize::sanitize_name(&self.redactor.redact(defects::clip(text, 4 * sanitize::MAX_NAME_CHARS)))
    }

    /// The name of an agent as it may appear in a label; `None` if it is empty.
    pub(crate) fn agent_name(&self, agent: &Agent) -> Option<String> {
        agent.name.as_ref().map(|name| self.name(name)).filter(|name| !name.is_empty())
    }

    /// Whether content of any span is withheld.
    pub(crate) fn withholds_any(&self, trace: &AgentTrace) -> bool {
        !self.ask.withhold.is_empty() && withheld(&self.ask.withhold, trace).contains(&true)
    }

    /// The operator's instructions for questions of these names about `subject`, a span of a trace; without a
    /// subject, the instructions that are for every service and agent.
    fn instructions_for(&self, names: &[&str], subject: Option<(&AgentTrace, Idx)>) -> Vec<&Instruction> {
        let service = subject.and_then(|(trace, span_index)| trace.views.get(span_index)?.service.as_deref());
        let agent = subject.and_then(|(trace, span_index)| agent_name(trace, span_index));
        let is_for = |pattern: &String| names.iter().any(|name| matches(pattern, name));
        let for_names =
            self.instructions.iter().filter(|i| i.metrics.is_empty() || i.metrics.iter().any(is_for));
        for_names
            .filter(|i| admits(i.service.as_deref(), service) && admits(i.agent.as_deref(), agent))
            .collect()
    }

    /// The system prompt of a metric about the span `span_index`.
    pub fn system_prompt(&self, row: &MetricSpec, trace: &AgentTrace, span_index: Idx) -> Arc<str> {
        let instructions = self.instructions_for(&[row.name], Some((trace, span_index)));
        let rubric = self.rubrics.get(row.name).map(String::as_str);
        let AskConfig { categories, examples, .. } = self.ask;
        let parts = system::SystemParts {
            rubric,
            instructions: &instructions,
            with_categories: categories,
            with_examples: examples,
        };
        system::system_prompt(row, &parts).into()
    }

    /// The system prompt of a question that has no rubric of a table row: `rubric`, or the operator's text for
    /// `question` in place of the rubric, and the instructions for the question or its `metric`. Without a subject,
    /// only the instructions that are for every service and agent.
    pub fn question_system_prompt(
        &self,
        (metric, question): (&str, &str),
        rubric: &str,
        subject: Option<(&AgentTrace, Idx)>,
    ) -> Arc<str> {
        let instructions = self.instructions_for(&[question, metric], subject);
        let rubric = self.rubrics.get(question).map_or(rubric, String::as_str).trim();
        match instructions.is_empty() {
            true => rubric.into(),
            false => format!("{rubric}\n\n{}", system::render_instructions(&instructions).trim_end()).into(),
        }
    }

    /// Bytes of content that fit into a prompt with this system prompt.
    pub fn max_bytes(&self, system: &str) -> usize {
        /// Tokens of the fixed text around the content, and of the schema without its spans.
        const FIXED_TOKENS: usize = 1_200;
        /// Minimum tokens of content, even with a long rubric.
        const MIN_TOKENS: usize = 1_000;
        let tokens_left =
            self.ask.max_prompt_tokens.saturating_sub(prompt_page::tokens(system) + FIXED_TOKENS);
        tokens_left.max(MIN_TOKENS) * prompt_page::BYTES_PER_TOKEN
    }
}
