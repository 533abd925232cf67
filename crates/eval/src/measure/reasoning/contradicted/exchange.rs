//! An answer with the request and the results that it is compared with, and the result of a comparison.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::rc::Rc;

use verdict_otlp::trace::Idx;

use super::sources::ResultSources;
use crate::measure::defects::Defect;
use crate::measure::language::Language;
use crate::measure::numbers::with_joined_groups;
use crate::measure::reasoning::answer::sentences;
use crate::measure::reasoning::statements::{Clause, LowercaseWords, Prose, contains_words};
use crate::measure::work_budget::{BYTES_PER_STEP, WorkBudget};
use crate::measure::{Finding, Memo};
use crate::recognise::{Call, Text};

/// A request, the results that follow it, and the answer.
pub(super) struct Exchange<'a> {
    /// The request.
    pub(super) task: &'a str,
    pub(super) answer: &'a str,
    /// The language of the answer; `None` if it is unknown or unsupported. There are no clauses then, and comparisons
    /// by words do not apply.
    pub(super) language: Option<Language>,
    /// The answer without code and quotations.
    pub(super) prose: Rc<Prose>,
    /// Whether the prose has a digit. Without one, comparisons of numbers, dates and identifiers do not apply.
    pub(super) has_digits: bool,
    /// The words of the request, see [`Exchange::task_words`].
    pub(super) task_words: OnceCell<Rc<LowercaseWords>>,
    pub(super) clauses: Vec<Clause<'a>>,
    pub(super) sources: ResultSources<'a>,
    /// The year in which the answer was written, if the clock of the sender was set.
    pub(super) year: Option<i64>,
    /// The results of calls after the answer.
    pub(super) later_results: Vec<&'a Text>,
    /// The bytes of all texts that the model had read.
    pub(super) seen_bytes: usize,
    pub(super) memo: &'a Memo,
    pub(super) budget: &'a WorkBudget,
}

impl<'a> Exchange<'a> {
    /// The words of the request.
    pub(super) fn task_words(&self) -> &str {
        self.task_words.get_or_init(|| LowercaseWords::cached(self.task, self.memo))
    }

    /// Whether the answer is in English.
    pub(super) fn is_english(&self) -> bool {
        self.language == Some(Language::English)
    }

    /// The prose with groups of digits joined, as in "1 284,00", at the same byte positions; unchanged in English,
    /// where a space separates numbers.
    pub(super) fn grouped(&self) -> Cow<'_, str> {
        match self.is_english() {
            true => Cow::Borrowed(&self.prose),
            false => Cow::Owned(with_joined_groups(&self.prose)),
        }
    }

    /// Counts work steps; false if the work budget is exceeded, after which the comparison must end.
    pub(super) fn spends(&self, steps: usize) -> bool {
        self.budget.spend(steps)
    }

    /// Counts the search for a text in all texts that the model had read.
    pub(super) fn spends_search(&self) -> bool {
        self.spends(1 + self.seen_bytes / (4 * BYTES_PER_STEP))
    }

    /// Counts the work of reading all numbers in all texts that the model had read; false if the work budget is
    /// exceeded.
    pub(super) fn spends_numbers(&self) -> bool {
        self.spends(1 + self.seen_bytes / BYTES_PER_STEP)
    }

    /// The sentence of the answer at this byte, or else the whole answer.
    pub(super) fn sentence_at(&self, position: usize) -> &'a str {
        let range =
            sentences(&self.prose).into_iter().find(|(start, end)| (*start..*end).contains(&position));
        range.and_then(|(start, end)| self.answer.get(start..end)).unwrap_or(self.answer).trim()
    }

    /// Whether the answer begins with "yes" or "no", with the sentence of that word; `None` if it begins otherwise, or
    /// if the request is not a single yes-or-no question.
    pub(super) fn yes_or_no(&self) -> Option<(bool, &'a str)> {
        let first = self.clauses.first().filter(|clause| clause.first)?;
        let is_affirmative = match first.words.trim() {
            "yes" | "yes it is" | "yes it does" | "yes it has" => true,
            "no" => false,
            _ => return None,
        };
        let question = self.task.trim();
        let verb = question.split_whitespace().next()?.to_lowercase();
        let is_question =
            ["is", "are", "was", "were", "has", "have", "did", "does", "do"].contains(&verb.as_str());
        let is_single = question.ends_with('?') && question.matches(['?', '.']).count() == 1;
        let is_positive = !contains_words(self.task_words(), "not") && !self.task_words().contains("n't");
        (is_question && is_single && is_positive).then_some((is_affirmative, first.sentence))
    }
}

/// The result of one check.
#[derive(Default)]
pub(super) struct ExchangeFindings {
    /// Each finding, with the span of the call whose result it contradicts.
    pub(super) entries: Vec<(Finding, Option<Idx>)>,
    /// Whether the answer states something that a result also states.
    pub(super) examined: bool,
}

impl ExchangeFindings {
    /// Adds a finding on a sentence that contradicts the result of a call, of which `returned` is the relevant part.
    pub(super) fn contradicts(&mut self, returned: &str, call: &Call, sentence: &str) {
        let tool = call.name.trim();
        let rationale =
            format!("an answer that agrees with the result of {tool} was expected; it returned {returned}");
        self.entries.push((Defect::ContradictsResult.finding(rationale, sentence), Some(call.at)));
    }
}
