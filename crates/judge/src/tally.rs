//! Results of the questions to each judge, for the report at the end of a command.
//!
//! In: the result of each question and request. Out: [`JudgeReport`]. The self-metrics count the same for a process
//! that is scraped; a command needs the reasons, the server's messages, and one summary per judge.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use serde::Serialize;

use crate::lock::lock;
use crate::provider::TokenCount;

/// Maximum number of different messages of one server that are kept.
const MAX_MESSAGES: usize = 8;

/// Results of the questions to one judge. A question with several samples counts once for each.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct JudgeReport {
    pub judge: String,
    pub model: String,
    /// Questions, without those whose content is withheld from the judge.
    pub asked: u64,
    /// Questions answered by the judge.
    pub answered: u64,
    /// Questions answered from the cache, or together with the same question of another span.
    pub cached: u64,
    /// Questions answered from a recording.
    pub replayed: u64,
    /// Questions whose first answer could not be used and whose second one could.
    pub repaired: u64,
    /// Questions without an answer, by the reason.
    pub failed: BTreeMap<String, u64>,
    /// Questions whose content is withheld from the judge.
    pub withheld: u64,
    /// HTTP requests or calls of a provider.
    pub requests: u64,
    /// Mean and largest seconds of a request that was answered.
    pub seconds_mean: f64,
    pub seconds_max: f64,
    pub tokens: ReportedTokens,
    pub cost_usd: f64,
    /// Whether a price is configured, without which every cost is 0.
    pub priced: bool,
    /// Parameters that the server refused, with their replacements.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub adapted: BTreeSet<&'static str>,
    /// The server's messages about refused or failed requests, without secrets and judged content.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub messages: BTreeSet<String>,
    /// The planned questions of a dry run; `None` otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub planned: Option<PlannedQuestions>,
}

/// Tokens that the server counted.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct ReportedTokens {
    pub input: u64,
    pub cached: u64,
    pub output: u64,
}

/// The questions that a dry run did not ask. Questions that depend on answers are not among them.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct PlannedQuestions {
    /// Different questions that would be sent.
    pub questions: u64,
    /// Estimated tokens of their prompts.
    pub input_tokens: u64,
    /// Tokens of their answers, if each has a usual length.
    pub output_tokens: u64,
    /// Maximum number of tokens of their answers.
    pub output_tokens_at_most: u64,
    pub cost_usd: f64,
    pub cost_usd_at_most: f64,
}

impl PlannedQuestions {
    /// The plan of a question that is asked `n` times.
    pub(crate) fn times(self, n: u64) -> PlannedQuestions {
        let factor = n as f64;
        PlannedQuestions {
            questions: self.questions * n,
            input_tokens: self.input_tokens * n,
            output_tokens: self.output_tokens * n,
            output_tokens_at_most: self.output_tokens_at_most * n,
            cost_usd: self.cost_usd * factor,
            cost_usd_at_most: self.cost_usd_at_most * factor,
        }
    }

    /// The plan of a question that is asked depending on another answer: only its maximum counts.
    pub(crate) fn upper_bound(self) -> PlannedQuestions {
        let PlannedQuestions { output_tokens_at_most, cost_usd_at_most, .. } = self;
        PlannedQuestions { output_tokens_at_most, cost_usd_at_most, ..PlannedQuestions::default() }
    }
}

impl JudgeReport {
    /// Questions with an answer, wherever it came from.
    pub fn with_answer(&self) -> u64 {
        self.answered + self.cached + self.replayed
    }

    /// The share of questions with an answer; `None` without questions.
    #[allow(clippy::cast_precision_loss)]
    pub fn answered_share(&self) -> Option<f64> {
        (self.asked > 0).then(|| self.with_answer() as f64 / self.asked as f64)
    }
}

/// The result of one question for the tally.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TallyEntry {
    Answered,
    Cached,
    Replayed,
    Withheld,
    Failed(&'static str),
}

#[derive(Debug, Default)]
pub(crate) struct QuestionTally(Mutex<Totals>);

#[derive(Debug, Default)]
struct Totals {
    report: JudgeReport,
    /// The sum over `answered_requests`.
    total_latency: Duration,
    answered_requests: u64,
}

impl QuestionTally {
    pub(crate) fn count_question(&self, entry: TallyEntry) {
        let report = &mut lock(&self.0).report;
        report.asked += u64::from(entry != TallyEntry::Withheld);
        match entry {
            TallyEntry::Answered => report.answered += 1,
            TallyEntry::Cached => report.cached += 1,
            TallyEntry::Replayed => report.replayed += 1,
            TallyEntry::Withheld => report.withheld += 1,
            TallyEntry::Failed(cause) => *report.failed.entry(cause.to_owned()).or_default() += 1,
        }
    }

    pub(crate) fn count_repaired(&self) {
        lock(&self.0).report.repaired += 1;
    }

    /// Counts a request; `duration` if it was answered.
    pub(crate) fn count_request(&self, duration: Option<Duration>) {
        let totals = &mut *lock(&self.0);
        totals.report.requests += 1;
        if let Some(duration) = duration {
            totals.total_latency += duration;
            totals.answered_requests += 1;
            totals.report.seconds_max = totals.report.seconds_max.max(duration.as_secs_f64());
        }
    }

    pub(crate) fn add_usage(&self, tokens: TokenCount, usd: f64) {
        let report = &mut lock(&self.0).report;
        report.tokens.input += tokens.input + tokens.cache_write;
        report.tokens.cached += tokens.cached;
        report.tokens.output += tokens.output;
        report.cost_usd += usd;
    }

    pub(crate) fn add_adaptation(&self, change: &'static str) {
        lock(&self.0).report.adapted.insert(change);
    }

    /// True if the message is new.
    pub(crate) fn add_message(&self, message: String) -> bool {
        let report = &mut lock(&self.0).report;
        !message.is_empty() && report.messages.len() < MAX_MESSAGES && report.messages.insert(message)
    }

    pub(crate) fn add_planned(&self, question: PlannedQuestions) {
        let report = &mut lock(&self.0).report;
        let sum = report.planned.get_or_insert_default();
        sum.questions += question.questions;
        sum.input_tokens += question.input_tokens;
        sum.output_tokens += question.output_tokens;
        sum.output_tokens_at_most += question.output_tokens_at_most;
        sum.cost_usd += question.cost_usd;
        sum.cost_usd_at_most += question.cost_usd_at_most;
    }

    pub(crate) fn report(&self, judge: &str, model: &str) -> JudgeReport {
        let Totals { report, total_latency, answered_requests } = &*lock(&self.0);
        let seconds_mean = total_latency.as_secs_f64() / (*answered_requests).max(1) as f64;
        JudgeReport { judge: judge.to_owned(), model: model.to_owned(), seconds_mean, ..report.clone() }
    }
}
