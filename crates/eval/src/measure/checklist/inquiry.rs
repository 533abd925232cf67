//! The question to judges for one item of a checklist: its prompt, form, judges and sources.

use std::sync::Arc;

use super::settings::Asset;
use crate::measure::AnswerForm;
use crate::measure::table::{CHECKLIST_ANSWER, CHECKLIST_SEARCH, CHECKLIST_SOURCE};

pub(super) const ANSWER: &str = include_str!("prompts/answer.md");
pub(super) const SOURCE: &str = include_str!("prompts/source.md");
pub(super) const SEARCH: &str = include_str!("prompts/search.md");

/// The parameters of a question to judges for an answer.
pub(super) struct Inquiry<'a> {
    /// The built-in rubric: [`ANSWER`], [`SOURCE`] or [`SEARCH`].
    pub system: &'static str,
    pub form: Arc<AnswerForm>,
    /// The judges that are asked; if empty, those of the metric.
    pub judges: Vec<String>,
    /// The assets that are shown.
    pub assets: &'a [&'a Asset],
    /// The judge that runs programs, if the tool may be used.
    pub runner: Option<&'a str>,
}

impl Inquiry<'_> {
    /// The name of the rubric in `verdict.rubrics`.
    pub(super) fn name(&self) -> &'static str {
        match self.system {
            SOURCE => CHECKLIST_SOURCE,
            SEARCH => CHECKLIST_SEARCH,
            _ => CHECKLIST_ANSWER,
        }
    }
}
