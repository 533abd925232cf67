//! The question to judges for one item of a checklist: its prompt, form, judges and sources.

use std::sync::Arc;

use super::settings::Asset;
use crate::measure::AnswerForm;
use crate::measure::table::{CHECKLIST_ANSWER, CHECKLIST_SEARCH, CHECKLIST_SOURCE};

pub(super) const ANSWER: &str = include_str!("prompts/answer.md");
pub(super) const SOURCE: &str = include_str!("prompts/source.md");
pub(super) const SEARCH: &str = include_str!("prompts/search.md");

/// How an answer is asked for.
pub(super) struct Inquiry<'a> {
    pub system: &'static str,
    pub form: Arc<AnswerForm>,
    /// The judges of the metric if empty.
    pub judges: Vec<String>,
    /// The texts known beforehand that are shown.
    pub assets: &'a [&'a Asset],
    /// The judge that runs programs, if the tool may be used.
    pub runner: Option<&'a str>,
}

impl Inquiry<'_> {
    /// The name of its text in `verdict.rubrics`.
    pub(super) fn name(&self) -> &'static str {
        match self.system {
            SOURCE => CHECKLIST_SOURCE,
            SEARCH => CHECKLIST_SEARCH,
            _ => CHECKLIST_ANSWER,
        }
    }
}
