//! An answer with what it is compared with, and the result of a comparison.

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
    pub(super) task: &'a str,
    pub(super) answer: &'a str,
    /// The language of the answer; `None` if it cannot be told or rules do not read it. There are no clauses then, and
    /// no comparison that rests on words applies.
    pub(super) language: Option<Language>,
    /// The answer without code and quoted wording.
    pub(super) prose: Rc<Prose>,
    /// The prose has a digit; without one, no check of numbers, dates and identifiers applies.
    pub(super) has_digits: bool,
    /// The words of the request, see [`Exchange::asked`].
    pub(super) asked: OnceCell<Rc<LowercaseWords>>,
    pub(super) clauses: Vec<Clause<'a>>,
    pub(super) sources: ResultSources<'a>,
    /// The year in which the answer was given, if the clock of the sender was set.
    pub(super) year: Option<i64>,
    /// Results of calls after the answer.
    pub(super) later: Vec<&'a Text>,
    /// The bytes of everything that the model had seen.
    pub(super) seen_bytes: usize,
    pub(super) memo: &'a Memo,
    pub(super) budget: &'a WorkBudget,
}

impl<'a> Exchange<'a> {
    /// The words of the request.
    pub(super) fn asked(&self) -> &str {
        self.asked.get_or_init(|| LowercaseWords::cached(self.task, self.memo))
    }

    pub(super) fn is_english(&self) -> bool {
        self.language == Some(Language::English)
    }

    /// The prose with "1 284,00" as one number, at the same bytes. In English a space separates numbers.
    pub(super) fn grouped(&self) -> Cow<'_, str> {
        match self.is_english() {
            true => Cow::Borrowed(&self.prose),
            false => Cow::Owned(with_joined_groups(&self.prose)),
        }
    }

    /// Counts steps before they are taken; false if the work budget is exceeded, and the check ends.
    pub(super) fn spends(&self, steps: usize) -> bool {
        self.budget.spend(steps)
    }

    /// Counts a search of everything that the model had seen for a text.
    pub(super) fn spends_search(&self) -> bool {
        self.spends(1 + self.seen_bytes / (4 * BYTES_PER_STEP))
    }

    /// Counts reading all numbers in everything that the model had seen.
    pub(super) fn spends_numbers(&self) -> bool {
        self.spends(1 + self.seen_bytes / BYTES_PER_STEP)
    }

    /// The sentence of the answer at this byte.
    pub(super) fn sentence_at(&self, place: usize) -> &'a str {
        let found = sentences(&self.prose).into_iter().find(|(start, end)| (*start..*end).contains(&place));
        found.and_then(|(start, end)| self.answer.get(start..end)).unwrap_or(self.answer).trim()
    }

    /// The "yes" or "no" that the answer begins with, if the request is one question that asks for it.
    pub(super) fn yes_or_no(&self) -> Option<(bool, &'a str)> {
        let first = self.clauses.first().filter(|clause| clause.first)?;
        let is_affirmative = match first.words.trim() {
            "yes" | "yes it is" | "yes it does" | "yes it has" => true,
            "no" => false,
            _ => return None,
        };
        let question = self.task.trim();
        let verb = question.split_whitespace().next()?.to_lowercase();
        let asks = ["is", "are", "was", "were", "has", "have", "did", "does", "do"].contains(&verb.as_str());
        let single = question.ends_with('?') && question.matches(['?', '.']).count() == 1;
        let plain = !contains_words(self.asked(), "not") && !self.asked().contains("n't");
        (asks && single && plain).then_some((is_affirmative, first.sentence))
    }
}

/// The result of one check.
#[derive(Default)]
pub(super) struct ExchangeFindings {
    /// With the span of the call that returned what the answer contradicts.
    pub(super) entries: Vec<(Finding, Option<Idx>)>,
    /// The answer states something that a result also states.
    pub(super) examined: bool,
}

impl ExchangeFindings {
    /// Notes that a sentence contradicts what a call has `returned`.
    pub(super) fn contradicts(&mut self, returned: &str, call: &Call, sentence: &str) {
        let tool = call.name.trim();
        let rationale =
            format!("an answer that agrees with the result of {tool} was expected; it returned {returned}");
        self.entries.push((Defect::ContradictsResult.finding(rationale, sentence), Some(call.at)));
    }
}
