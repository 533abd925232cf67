//! Answers that do not report a failure: a build whose output ends with `[exit 2]`, and "all workspaces are built"; a
//! job that was started, whose last status is `failed`, and "the invoice is posted".
//!
//! Principle: the end of a run, and the state that an action or its last status has, are reported to the reader. There
//! is a finding if a failure was not repaired by a later call, and no text for the reader after it may tell of it:
//! see [`acknowledgement`]. A failed command is a finding only if the answer states something about it, since a run
//! may try commands without need. A status is one only if the run acted on its object, which had not failed before.
//!
//! In: the calls of an agent and its answers in any language that rules read. Out: one finding for each agent, on the
//! model span that wrote the answer.

mod acknowledgement;
mod operation;

use verdict_otlp::trace::Idx;

use self::operation::CallWords;
use super::answer::sentences;
use super::answer_span::answered_by;
use super::conduct::Conduct;
use super::executed_placeholder::writes_text;
use super::recovery::reports_refusal_to_user;
use super::undone_action::{FAILURE_STATES, has_failed};
use crate::measure::calls::attempts::CallOutcome;
use crate::measure::calls::failed_ending::failed_ending;
use crate::measure::defects::Defect;
use crate::measure::dialogue::Replies;
use crate::measure::excerpt::head;
use crate::measure::identifier::NameWords;
use crate::measure::provenance::values;
use crate::measure::records::{RecordField, Structure};
use crate::measure::tool_purpose::{Purpose, purpose};
use crate::measure::vocabulary::{self, WordMeaning};
use crate::measure::{Finding, Memo};
use crate::pattern::contains_ignoring_case;
use crate::recognise::Call;

/// Maximum calls of an agent that are compared, the latest ones.
const MAX_CALLS: usize = 64;
/// Maximum bytes of a result, and of an answer: longer texts are about several things.
const MAX_RESULT_BYTES: usize = 4_000;
const MAX_ANSWER_BYTES: usize = 3_000;
/// Maximum bytes of a result that is a single message.
const MAX_SHORT_BYTES: usize = 300;
/// Minimum characters of a word of an explanation: shorter words have no content.
const MIN_WORD_CHARS: usize = 4;
/// Minimum bytes of an argument that identifies the object of a status.
const MIN_IDENTIFIER_BYTES: usize = 4;

/// First words of keys for the parts of an action that failed.
const FAILED_PARTS: [&str; 3] = ["failed", "failures", "failure"];

// A counter of a report.
regex!(COUNTER, r"\b\w+[=:] ?\d+");
// A report that the wanted state existed before the call.
regex!(
    EXISTING,
    r"(?im)\balready\b|\bexists?\b(?: in|$)|\bnothing to (?:do|commit|update)\b|\bno changes\b|\bup.to.date\b"
);

/// A call that failed.
struct Failure<'a> {
    /// The position of the call among the compared ones.
    at: usize,
    call: &'a Call,
    purpose: Purpose,
    /// Whether the result has the state of a failure.
    is_state: bool,
    /// Whether the call exceeded a time limit, as one that starts a server does.
    has_timed_out: bool,
    /// The text that reports the failure.
    report: String,
}

/// The finding on an agent.
pub(super) fn check(conduct: &Conduct<'_>) -> Option<(Idx, Finding)> {
    let Conduct { trace, agent, .. } = *conduct;
    let answer =
        agent.answer.as_deref().filter(|text| text.len() <= MAX_ANSWER_BYTES && !text.trim().is_empty())?;
    let first = agent.calls.len().saturating_sub(MAX_CALLS);
    let calls = agent.calls.get(first..)?.iter().filter_map(|i| Some((*i, trace.calls.get(*i)?)));
    let calls: Vec<(usize, &Call)> = calls.collect();
    // Most runs have no failure.
    let failures: Vec<Failure<'_>> =
        (0..calls.len()).filter_map(|at| Failure::find(conduct, &calls, at)).collect();
    let run = Run { conduct, calls: &calls, failures: &failures };
    failures.iter().rev().find_map(|failure| run.unreported(failure, answer))
}

impl<'a> Failure<'a> {
    /// The failure of the call at this position, if it failed.
    fn find(conduct: &Conduct<'a>, calls: &[(usize, &'a Call)], at: usize) -> Option<Failure<'a>> {
        let Conduct { trace, memo, attempts, .. } = *conduct;
        let (i, call) = *calls.get(at)?;
        let attempt = attempts.at(i).filter(|attempt| !attempt.is_control)?;
        let purpose = || purpose(trace, memo, call);
        let is_state = !attempt.failed() && has_failed(call, memo);
        let report = match &attempt.outcome {
            CallOutcome::Failed { error_text, .. } => Some(error_text.clone()),
            _ if is_state => explanation(call, memo),
            _ => failed_ending(call, memo).or_else(|| failed_part(call, purpose(), memo)),
        };
        // The wanted state existed before the call.
        let is_short = |text: &&str| text.len() <= MAX_SHORT_BYTES;
        let texts = [report.as_deref(), call.result.as_deref().filter(is_short)];
        let report =
            report.as_ref().filter(|_| !texts.into_iter().flatten().any(|text| EXISTING.is_match(text)))?;
        Some(Failure {
            at,
            call,
            purpose: purpose(),
            is_state,
            has_timed_out: vocabulary::has(report, WordMeaning::TimedOut),
            report: report.clone(),
        })
    }
}

/// The calls of an agent, with those that failed.
struct Run<'r, 'a> {
    conduct: &'r Conduct<'a>,
    calls: &'r [(usize, &'a Call)],
    failures: &'r [Failure<'a>],
}

impl<'a> Run<'_, 'a> {
    /// The finding on a failure that was not repaired, and that no text after it reports.
    fn unreported(&self, failure: &Failure<'a>, answer: &str) -> Option<(Idx, Finding)> {
        let Conduct { trace, memo, agent, .. } = *self.conduct;
        let words = CallWords::from_call(failure.call);
        let is_status = !words.is_command && self.is_of_action(failure);
        let is_run = failure.purpose != Purpose::Query || words.is_command;
        let is_relevant = is_status || is_run && !words.only_reads && !self.is_repaired(failure, &words);
        is_relevant.then_some(())?;
        let task = self.conduct.task(usize::MAX).map(|task| &**task);
        let texts = self.texts_after(failure.call, answer);
        let (written_by, first) = texts.first()?;
        let bytes: usize = texts.iter().map(|(_, text)| text.len()).sum();
        memo.budget.spend(1 + bytes).then_some(())?;
        // The answer may be silent about a command that was not needed.
        let is_action = failure.purpose == Purpose::Action || failure.is_state;
        let needs_claim = !is_status && (!is_action || words.is_command);
        let is_question = |sentence: &str| sentence.trim_end().ends_with(['?', '？']);
        let claim = sentences(first).into_iter().filter_map(|(start, end)| first.get(start..end));
        let claim = claim.into_iter().find(|sentence| !is_question(sentence) && words.are_in(sentence));
        if claim.is_none() && (needs_claim || acknowledgement::leaves_open(first, task, memo)) {
            return None;
        }
        let is_reported = |text: &str| {
            acknowledgement::is_in(text, task, &words, memo) || self.is_explained(text, failure, task)
        };
        if texts.iter().any(|(_, text)| is_reported(text))
            || reports_refusal_to_user(trace, memo, failure.call)
        {
            return None;
        }
        let rationale = format!(
            "a report of the failure was expected; {} failed (\"{}\"), no later call repaired the failure, and the \
             answer does not mention it",
            failure.call.name.trim(),
            head(failure.report.trim(), 100)
        );
        let quote = claim.unwrap_or_else(|| head(first.trim(), 200)).trim();
        let finding = Defect::FalseClaim.finding(rationale, quote).citing_at(trace, failure.call.at);
        Some((written_by.or_else(|| answered_by(trace, memo, agent))?, finding))
    }

    /// The texts for the reader after a call, each with its model span if it is not the answer: those that the user
    /// replied to, and the answer.
    fn texts_after(&self, call: &Call, answer: &str) -> Vec<(Option<Idx>, String)> {
        let Conduct { trace, memo, agent, .. } = *self.conduct;
        let replies = Replies::cached(trace, memo);
        let is_later = |at: &&Idx| trace.tree.spans.get(**at).is_some_and(|span| span.start >= call.start);
        let replied = agent.llms.iter().filter(is_later).filter(|at| replies.to(**at).is_some());
        let texts = replied.filter_map(|at| {
            let text = trace.views.get(*at)?.output_text().into_owned();
            (text.len() <= MAX_ANSWER_BYTES).then_some((Some(*at), text))
        });
        texts.chain([(None, answer.to_owned())]).collect()
    }

    fn has_failed(&self, at: usize) -> bool {
        self.failures.iter().any(|failure| failure.at == at)
    }

    /// Whether a later call repaired the failure, or may have changed what the call reads.
    fn is_repaired(&self, failure: &Failure<'_>, words: &CallWords) -> bool {
        let memo = self.conduct.memo;
        let later =
            self.calls.iter().enumerate().skip(failure.at + 1).filter(|(at, _)| !self.has_failed(*at));
        later.into_iter().any(|(_, (_, call))| {
            let is_same_tool = call.name.trim().eq_ignore_ascii_case(failure.call.name.trim());
            let later_words = CallWords::from_call(call);
            if failure.purpose == Purpose::Action && !words.is_command {
                return is_same_tool || self.conduct.is_action(call) && words.is_repeated_by(&later_words);
            }
            let is_comparable = is_same_tool || words.is_command && later_words.is_command;
            is_comparable && words.is_repeated_by(&later_words)
                || words.is_command && writes_text(&NameWords::cached(&call.name, memo))
                || failure.has_timed_out && words.may_start_server()
        })
    }

    /// Whether a status is the last one of an object that the run acted on, and that had not failed before.
    fn is_of_action(&self, failure: &Failure<'_>) -> bool {
        let Conduct { trace, memo, .. } = *self.conduct;
        let is_identifier = |(key, value): &(&str, String)| {
            let has = |predicate: fn(&u8) -> bool| value.bytes().any(|byte| predicate(&byte));
            value.len() >= MIN_IDENTIFIER_BYTES
                && has(u8::is_ascii_alphabetic)
                && (has(u8::is_ascii_digit) || key.ends_with("id") || key.ends_with("name"))
        };
        let queried_ids = values(failure.call).filter(is_identifier).map(|(_, id)| id.to_lowercase());
        let queried_ids: Vec<String> = queried_ids.take(MAX_CALLS).collect();
        let bytes: usize = self.calls.iter().map(|(_, call)| texts(call).map(str::len).sum::<usize>()).sum();
        if !memo.budget.spend(1 + (1 + queried_ids.len()) * bytes / 8) {
            return false;
        }
        let is_about = |call: &Call, id: &str| texts(call).any(|text| contains_ignoring_case(text, id));
        let is_action = |call: &Call| purpose(trace, memo, call) != Purpose::Query;
        queried_ids.iter().any(|id| {
            let about = self.calls.iter().enumerate().filter(|(_, (_, call))| is_about(call, id));
            let (mut has_acted, mut is_ended) = (false, true);
            for (at, (_, call)) in about {
                has_acted |= at < failure.at && is_action(call);
                // Another object that had failed before the action is not the outcome of the action.
                if !has_acted && at < failure.at && self.has_failed(at) {
                    return false;
                }
                // Details of the failure repair nothing.
                let tells_failure = || self.has_failed(at) || texts(call).any(tells_failure);
                let is_same_status = call.name == failure.call.name;
                is_ended &= at <= failure.at || !(is_action(call) || is_same_status) || tells_failure();
            }
            has_acted && is_ended
        })
    }

    /// Whether a text has the count of the report, or a word of it that the run knows from nowhere else.
    fn is_explained(&self, text: &str, failure: &Failure<'_>, task: Option<&str>) -> bool {
        if acknowledgement::repeats_count(text, &failure.report) {
            return true;
        }
        // Lines about errors belong to the report: `[exit 1]` explains nothing.
        let is_about_failure = |line: &&str| {
            failure.report.contains(line.trim())
                || ["error", "warn"].iter().any(|word| contains_ignoring_case(line, word))
        };
        let result = failure.call.result.as_deref().filter(|result| result.len() <= MAX_RESULT_BYTES);
        let result = result.unwrap_or_default();
        // A structured result has one line.
        let is_structured = result.trim_start().starts_with(['{', '[']);
        let (about, rest): (Vec<&str>, Vec<&str>) =
            result.lines().partition(|line| !is_structured && is_about_failure(line));
        let without_report = |rest: String, line: &str| rest.replace(line, " ");
        let rest =
            failure.report.lines().filter(|line| !line.is_empty()).fold(rest.join("\n"), without_report);
        let report = format!("{}\n{}", failure.report, about.join("\n"));
        // Counters explain nothing: `PASS=8 ERROR=1 TOTAL=11`.
        let report = COUNTER.replace_all(&report, " ");
        let others = self.calls.iter().filter(|(_, call)| !std::ptr::eq(*call, failure.call));
        let known = || {
            let others = others.clone().flat_map(|(_, call)| texts(call));
            others.chain(failure.call.arguments.as_deref()).chain([&*rest]).chain(task)
        };
        let words = report.split(|c: char| !c.is_alphanumeric());
        let mut words = words.filter(|word| word.chars().count() >= MIN_WORD_CHARS).map(str::to_lowercase);
        let is_explaining = |word: &str| !vocabulary::has_meaning(word, WordMeaning::Failure);
        words.any(|word| {
            is_explaining(&word)
                && contains_ignoring_case(text, &word)
                && !known().any(|text| contains_ignoring_case(text, &word))
        })
    }
}

/// Whether a text has the state of a failure.
fn tells_failure(text: &str) -> bool {
    FAILURE_STATES.iter().any(|state| contains_ignoring_case(text, state))
}

/// The part of an action that failed, by a count or a list of its result: `{"delivered": 6, "failed": 1}`.
fn failed_part(call: &Call, purpose: Purpose, memo: &Memo) -> Option<String> {
    let result =
        call.result.as_ref().filter(|text| purpose == Purpose::Action && text.len() <= MAX_RESULT_BYTES)?;
    contains_ignoring_case(result, "fail").then_some(())?;
    let structure = Structure::cached(result, memo)?;
    let parsed = structure.0.as_ref()?;
    let is_failed = |name: &[String]| matches!(name, [word, ..] if FAILED_PARTS.contains(&word.as_str()));
    let counts = parsed.records.first().filter(|record| record.list.is_none()).into_iter();
    let mut counts = counts.flat_map(|record| &record.fields).filter(|field| is_failed(&field.name));
    let is_counted = counts.any(|field| field.number().is_some_and(|number| number > 0.0));
    let is_listed = parsed.lists.iter().any(|list| is_failed(&list.name) && list.len > 0);
    (is_counted || is_listed).then(|| result.to_string())
}

/// The texts of several words in a result with a failed state, which may explain it.
fn explanation(call: &Call, memo: &Memo) -> Option<String> {
    let structure = Structure::cached(call.result.as_ref()?, memo)?;
    let fields = structure.0.iter().flat_map(|parsed| &parsed.records).flat_map(|record| &record.fields);
    let texts: Vec<&str> = fields.filter_map(RecordField::text).filter(|text| text.contains(' ')).collect();
    Some(texts.join("\n"))
}

/// The texts of a call that are compared.
fn texts(call: &Call) -> impl Iterator<Item = &str> {
    let result = call.result.as_deref().filter(|text| text.len() <= MAX_RESULT_BYTES);
    call.arguments.as_deref().into_iter().chain(result)
}

#[cfg(test)]
mod tests;
