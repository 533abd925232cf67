//! `tool_abuse` (001, table 2): repeated failing calls, errors without adaptation, loops.
//!
//! Principle: a call is repeated only if the call, the state that it reads or the error has changed: otherwise its
//! outcome is known. A result that differs is progress, however small.
//!
//! In: an agent's own calls in order. Out: 1-5 on the agent's span, with the calls cited. The metric is unmeasured as
//! `not_applicable` without calls, and as `no_content` without any recorded arguments or outcomes. Paging, polling
//! and retries whose results change are not reported.

use std::collections::BTreeMap;

use foldhash::{HashMap, HashMapExt};

use crate::measure::calls::attempts::{Attempt, CallAttempts, CallOutcome, MIN_REPEATED_FAILURES, quoted};
use crate::measure::defects::{Defect, Findings};
use crate::measure::reasoning::recovery;
use crate::measure::tool_purpose::{Purpose, purpose, varies};
use crate::measure::{Context, Measurement, Memo, Unmeasured};
use crate::recognise::{Agent, AgentTrace};

/// From this number of calls with the same arguments and the same result, they are a defect. Reading a page twice is
/// common and cheap.
const MIN_SAME_RESULTS: usize = 3;
/// From this number of consecutive calls with nearly equal arguments and the same error, they are a defect.
const MIN_NEAR_MISSES: usize = 3;
/// From this normalised Levenshtein similarity (1 is equal), two texts are nearly equal.
const MIN_SIMILARITY: f64 = 0.9;
/// Maximum bytes of arguments that are compared, since the edit distance takes quadratic time.
const COMPARED_BYTES: usize = 160;
/// From this number of consecutive calls with the same error about the call itself, they are a defect, no matter how
/// their arguments differ.
const MIN_UNADAPTED_CALLS: usize = 4;
/// From this number of rounds with equal results, a cycle of calls is a defect.
const MIN_ROUNDS: usize = 3;
/// Maximum calls of a cycle.
const MAX_PERIOD: usize = 4;
/// Maximum calls of one agent that are examined; the first ones are.
const MAX_CALLS: usize = 5_000;

pub(crate) fn measure(context: &Context<'_>, _: usize, agent: &Agent) -> Measurement {
    let attempts = CallAttempts::get(context.trace, context.memo);
    let calls: Vec<usize> = agent
        .calls
        .iter()
        .copied()
        .filter(|i| attempts.at(*i).is_some_and(|a| !a.is_control))
        .take(MAX_CALLS)
        .collect();
    if calls.is_empty() {
        return context.unmeasured(Unmeasured::NotApplicable);
    }
    let is_recorded =
        |i: &usize| attempts.at(*i).is_some_and(|a| a.key.is_some() || a.outcome != CallOutcome::Unknown);
    let sequence =
        CallSequence { trace: context.trace, memo: context.memo, attempts: &attempts, calls: &calls };
    let mut findings = Findings::new();
    findings.examine(calls.iter().filter(|i| is_recorded(i)).count());
    sequence.report_failing_repeats(agent, &mut findings);
    sequence.report_same_results(&mut findings);
    sequence.report_near_misses(&mut findings);
    sequence.report_unadapted_calls(&mut findings);
    sequence.report_loop(&mut findings);
    findings.scored(context, Unmeasured::NoContent)
}

struct CallSequence<'a> {
    trace: &'a AgentTrace,
    memo: &'a Memo,
    attempts: &'a CallAttempts,
    calls: &'a [usize],
}

impl<'a> CallSequence<'a> {
    fn attempt(&self, i: usize) -> Option<&'a Attempt> {
        self.attempts.at(i)
    }

    fn name(&self, i: usize) -> &'a str {
        self.trace.calls.get(i).map_or("", |c| c.name.trim())
    }

    /// The error of a call; empty if it did not fail.
    fn error_text(&self, i: usize) -> &'a str {
        match self.attempt(i).map(|a| &a.outcome) {
            Some(CallOutcome::Failed { error_text, .. }) => error_text.as_str(),
            _ => "",
        }
    }

    /// The text by which a finding quotes the call.
    fn quoted(&self, i: usize) -> &'a str {
        self.trace.calls.get(i).map(quoted).unwrap_or_default()
    }

    /// Reports calls that were repeated unchanged after a failure, with one finding for each failed call.
    fn report_failing_repeats(&self, agent: &Agent, findings: &mut Findings) {
        let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let repeats = &self.attempts.repeats;
        for call in &agent.calls {
            let repeat = repeats.binary_search_by_key(call, |repeat| repeat.call);
            if let Some(repeat) = repeat.ok().and_then(|index| repeats.get(index)) {
                groups.entry(repeat.first).or_default().push(repeat.call);
            }
        }
        for (first, repeated_calls) in groups {
            let times = repeated_calls.len() + 1;
            let Some(CallOutcome::Failed { error_text, .. }) = self.attempt(first).map(|a| &a.outcome) else {
                continue;
            };
            let defect = if times >= MIN_REPEATED_FAILURES {
                Defect::RepeatedFailingCall
            } else {
                Defect::RepeatedCall
            };
            let error_text = error_text.lines().next().unwrap_or_default();
            let rationale = format!(
                "a changed call, another tool or an admission was expected after {} failed (\"{error_text}\"); it was called \
                 again unchanged, {times} times in all, and met the same error",
                self.name(first)
            );
            let all: Vec<usize> = std::iter::once(first).chain(repeated_calls).collect();
            let mut finding = defect.finding(rationale, self.quoted(first)).citing_calls(self.trace, &all);
            // One more attempt harms no user to whom its failure is reported.
            if let Some(call) = self.trace.calls.get(first).filter(|_| times < MIN_REPEATED_FAILURES) {
                finding = recovery::graded_in(self.trace, self.memo, call, finding);
            }
            findings.push(finding);
        }
    }

    /// Reports equal calls with equal results between which no call changed anything.
    fn report_same_results(&self, findings: &mut Findings) {
        let mut calls_by_key: HashMap<&str, (usize, Vec<usize>)> = HashMap::new();
        let mut changes = 0;
        for &i in self.calls {
            let (Some(attempt), Some(call)) = (self.attempt(i), self.trace.calls.get(i)) else { continue };
            let is_changing = purpose(self.trace, self.memo, call) == Purpose::Action;
            if attempt.outcome == CallOutcome::Succeeded
                && !is_changing
                && !varies(self.memo, &call.name)
                && let Some(key) = &attempt.key
            {
                let (change_count, calls) = calls_by_key.entry(key.as_str()).or_default();
                let has_same_result =
                    calls.last().and_then(|j| self.trace.calls.get(*j)).is_some_and(|previous| {
                        *change_count == changes
                            && previous.result.as_deref().map(str::trim)
                                == call.result.as_deref().map(str::trim)
                    });
                if !has_same_result {
                    calls.clear();
                }
                *change_count = changes;
                calls.push(i);
            }
            changes += usize::from(is_changing);
        }
        let mut groups: Vec<Vec<usize>> = calls_by_key
            .into_values()
            .map(|(_, calls)| calls)
            .filter(|c| c.len() >= MIN_SAME_RESULTS)
            .collect();
        groups.sort();
        for calls in groups {
            let first = calls.first().copied().unwrap_or_default();
            let rationale = format!(
                "one call of {} was expected to do; it was called {} times with the same arguments and returned the \
                 same each time",
                self.name(first),
                calls.len()
            );
            let finding = Defect::RepeatedCall.finding(rationale, self.quoted(first)).by_rule("same_result");
            findings.push(finding.citing_calls(self.trace, &calls));
        }
    }

    /// Returns series of at least `min_calls` calls of one tool, in order, that failed with the same error and for
    /// which `is_similar` is true; calls of other tools may be between them. Series of identical calls are excluded,
    /// since `report_failing_repeats` reports them.
    fn failing_series(
        &self,
        min_calls: usize,
        is_similar: impl Fn(&Attempt, &Attempt) -> bool,
    ) -> impl Iterator<Item = Vec<usize>> {
        let has_failed = |i: &&usize| self.attempt(**i).is_some_and(Attempt::failed);
        // Without `min_calls` failures there is no series, and sorting is not needed.
        let is_possible = self.calls.iter().filter(has_failed).nth(min_calls.saturating_sub(1)).is_some();
        let mut by_tool = if is_possible { self.calls.to_vec() } else { Vec::new() };
        by_tool.sort_by_key(|&i| (self.name(i), i));
        let continues = move |&a: &usize, &b: &usize| {
            let (Some(one), Some(two)) = (self.attempt(a), self.attempt(b)) else { return false };
            self.name(a) == self.name(b) && have_similar_errors(one, two) && is_similar(one, two)
        };
        let key = |i: &usize| self.attempt(*i).and_then(|a| a.key.as_deref());
        let is_identical = move |calls: &[usize]| {
            let first = calls.first().and_then(key);
            first.is_some() && calls.iter().all(|i| key(i) == first)
        };
        let series = by_tool.chunk_by(continues).map(<[usize]>::to_vec).collect::<Vec<_>>();
        series.into_iter().filter(move |calls| calls.len() >= min_calls && !is_identical(calls))
    }

    /// Reports series of failing calls with nearly equal arguments.
    fn report_near_misses(&self, findings: &mut Findings) {
        let is_similar = |a: &Attempt, b: &Attempt| {
            a.key.as_ref().zip(b.key.as_ref()).is_some_and(|(a, b)| nearly_equal(a, b))
        };
        for calls in self.failing_series(MIN_NEAR_MISSES, is_similar) {
            let first = calls.first().copied().unwrap_or_default();
            let rationale = format!(
                "a change that acts on the error was expected; {} failed {} times in a row with the same error \
                 (\"{}\") on arguments that hardly differ",
                self.name(first),
                calls.len(),
                self.error_text(first).lines().next().unwrap_or_default()
            );
            let finding = Defect::NearIdenticalCalls.finding(rationale, self.quoted(first));
            findings.push(finding.citing_calls(self.trace, &calls));
        }
    }

    /// Reports repeated errors that state how the tool must be called.
    fn report_unadapted_calls(&self, findings: &mut Findings) {
        use Defect::{EnvironmentBroken, ToolMisdefined, Unauthenticated, WrongArguments};
        let is_about_call = |attempt: &Attempt| match attempt.outcome {
            CallOutcome::Failed { cause, .. } => {
                matches!(cause, ToolMisdefined | WrongArguments | Unauthenticated | EnvironmentBroken)
            }
            _ => false,
        };
        for calls in self.failing_series(MIN_UNADAPTED_CALLS, |a, b| is_about_call(a) && is_about_call(b)) {
            let first = calls.first().copied().unwrap_or_default();
            let rationale = format!(
                "a call as the error asks for was expected; {} met the same error {} times in a row, and nothing \
                 was learned from it",
                self.name(first),
                calls.len()
            );
            let finding = Defect::NoAdaptation.finding(rationale, self.error_text(first));
            findings.push(finding.citing_calls(self.trace, &calls));
        }
    }

    /// Reports the first cycle of calls (A, B, A, B, A, B) with the same results in each round.
    fn report_loop(&self, findings: &mut Findings) {
        let are_equal_calls = |a: usize, b: usize| {
            let (Some(one), Some(two)) = (self.attempt(a), self.attempt(b)) else { return false };
            let result = |i: usize| self.trace.calls.get(i).and_then(|c| c.result.as_deref()).map(str::trim);
            one.key.is_some() && one.key == two.key && result(a).is_some() && result(a) == result(b)
        };
        for period in 2..=MAX_PERIOD {
            let mut matched = 0;
            for (end, &i) in self.calls.iter().enumerate().skip(period) {
                let previous = self.calls.get(end - period).copied().unwrap_or_default();
                matched = if are_equal_calls(previous, i) { matched + 1 } else { 0 };
                if matched < period * (MIN_ROUNDS - 1) {
                    continue;
                }
                let round = self.calls.get(end + 1 - period..=end).unwrap_or_default();
                let first = round.first().copied().unwrap_or_default();
                if round.iter().all(|j| are_equal_calls(first, *j)) {
                    break; // One call repeated, which `report_same_results` reports.
                }
                let names: Vec<&str> = round.iter().map(|j| self.name(*j)).collect();
                let rationale = format!(
                    "progress was expected; the calls {} went round {MIN_ROUNDS} times with the same arguments and \
                     results: a loop",
                    names.join(", ")
                );
                let finding = Defect::CallLoop.finding(rationale, self.quoted(first));
                findings.push(finding.citing_calls(self.trace, round));
                return;
            }
        }
    }
}

/// Whether both calls failed with nearly equal errors, ignoring digits and case.
fn have_similar_errors(one: &Attempt, two: &Attempt) -> bool {
    let normalised = |error_text: &str| -> String {
        error_text.chars().filter(|c| !c.is_ascii_digit()).flat_map(char::to_lowercase).take(120).collect()
    };
    match (&one.outcome, &two.outcome) {
        (CallOutcome::Failed { error_text: a, .. }, CallOutcome::Failed { error_text: b, .. }) => {
            let (a, b) = (normalised(a), normalised(b));
            a == b || strsim::normalized_levenshtein(&a, &b) >= MIN_SIMILARITY
        }
        _ => false,
    }
}

/// Whether the first bytes of two texts are nearly equal. Texts whose lengths differ by more than a fifth are not.
fn nearly_equal(a: &str, b: &str) -> bool {
    let clipped = |s| crate::measure::defects::clip(s, COMPARED_BYTES);
    let longest = a.len().max(b.len());
    a.len().abs_diff(b.len()) * 5 <= longest
        && strsim::normalized_levenshtein(clipped(a), clipped(b)) >= MIN_SIMILARITY
}

#[cfg(test)]
mod tests;
