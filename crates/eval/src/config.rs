//! What the evaluator is configured with: the keys of `verdict:` that say what is measured, how
//! verdicts propagate, and what is written.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict_config::Problem;

use crate::annotate::{Emission, Emit, Existing, Explanations};
use crate::measure::Settings;
use crate::measure::ask::{self, Ask, Asker, Instruction};
use crate::propagate::Policies;
use crate::recognise::{Overrides, Recogniser};
use crate::redact::{Redact, Redactor};

/// The evaluator's part of the section `verdict`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Default `[attributes, log_events]`. Where verdicts are written. `attributes` alone suits
    /// destinations without logs; `span_events` repeats the measurements as events of the span.
    pub emit: Vec<Emit>,
    /// Default `fail`. Which measurements carry their rationale: longer spans, but reasons.
    pub explanations: Explanations,
    /// Default `replace`. What becomes of `verdict.*` attributes that a span brings along.
    /// `keep` trusts the sender, who could then write its own verdict.
    pub existing: Existing,
    /// Default `verdict.`. What every attribute key starts with.
    pub prefix: String,
    /// Default false. Also write a log event for what could not be measured, with the reason.
    pub log_unmeasured: bool,
    /// How verdicts travel from children to parents.
    pub propagation: Policies,
    /// What the user's own instrumentation writes, beside the conventions that are built in.
    pub recognise: Overrides,
    /// Thresholds and switches of the metrics.
    pub metrics: Settings,
    /// Which questions go to judges, and how long they may be.
    pub ask: Ask,
    /// Default the built-in ones. How a metric is judged, in your words, by its name: in the place
    /// of the built-in rubric. `${file:PATH}` reads it from a file.
    pub rubrics: BTreeMap<String, String>,
    /// Default none. What judges are told about some agents beside the rubric.
    pub instructions: Vec<Instruction>,
    /// What is taken out of content before a judge reads it, and out of explanations.
    pub redact: Redact,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            emit: vec![Emit::Attributes, Emit::LogEvents],
            explanations: Explanations::default(),
            existing: Existing::default(),
            prefix: "verdict.".to_owned(),
            log_unmeasured: false,
            propagation: Policies::default(),
            recognise: Overrides::default(),
            metrics: Settings::default(),
            ask: Ask::default(),
            rubrics: BTreeMap::new(),
            instructions: Vec::new(),
            redact: Redact::default(),
        }
    }
}

impl Config {
    /// How verdicts are written.
    pub fn emission(&self) -> Emission {
        Emission {
            prefix: self.prefix.clone(),
            emit: self.emit.clone(),
            explanations: self.explanations,
            existing: self.existing,
            log_unmeasured: self.log_unmeasured,
            // Patterns that do not compile were refused before.
            redactor: match self.redact.explanations {
                true => Redactor::new(&self.redact).unwrap_or_default(),
                false => Redactor::off(),
            },
            custom: Vec::new(),
        }
    }

    /// The metrics' settings, with how judges are asked.
    ///
    /// # Errors
    /// A pattern of `redact` is no regular expression; says which.
    pub fn settings(&self) -> Result<Settings, String> {
        let (rubrics, instructions) = (self.rubrics.clone(), self.instructions.clone());
        let asker = Asker::new(self.ask.clone(), rubrics, instructions, self.redact.clone())?;
        Ok(Settings { asker: Arc::new(asker), ..self.metrics.clone() })
    }

    /// What is wrong with the values.
    pub fn problems(&self) -> Vec<Problem> {
        let mut out = Vec::new();
        if self.emit.is_empty() {
            out.push(Problem::new("emit", "nothing would be written; name at least one place"));
        }
        let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '.';
        if !self.prefix.ends_with('.') || self.prefix.len() < 2 || !self.prefix.chars().all(legal) {
            let message =
                format!("'{}' is not like 'verdict.': lower-case words, each ended by a dot", self.prefix);
            out.push(Problem::new("prefix", message));
        }
        out.extend(self.metrics.problems().into_iter().map(|p| p.below("metrics")));
        out.extend(self.ask.problems().into_iter().map(|p| p.below("ask")));
        out.extend(ask::config::rubric_problems(&self.rubrics).into_iter().map(|p| p.below("rubrics")));
        out.extend(ask::config::instruction_problems(&self.instructions));
        out.extend(self.redact.problems().into_iter().map(|p| p.below("redact")));
        // The tables are compiled only where there is something of the user's to go wrong.
        if self.recognise != Overrides::default()
            && let Err(why) = Recogniser::new(&self.recognise)
        {
            out.push(Problem::new("recognise", why.to_string()));
        }
        out
    }
}
