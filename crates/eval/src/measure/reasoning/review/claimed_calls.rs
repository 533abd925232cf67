//! Missing calls that the agent claims to have made. The missing call and the false claim are one failure, which the
//! finding on the claim describes best.
//!
//! In: findings on planned or announced calls that are missing, and the tools of false claims. Out: the findings, as
//! notes where a false claim about the tool has a finding of its own.

use verdict_otlp::trace::Idx;

use super::Review;
use crate::measure::reasoning::missing_announced_call;
use crate::measure::{Finding, Memo};
use crate::recognise::AgentTrace;

impl Review {
    /// Records that an agent claims to have called a tool that was never called.
    pub(super) fn add_falsely_claimed_tool(&mut self, agent: usize, tool: &str) {
        self.falsely_claimed_tools.insert((agent, tool.trim().to_ascii_lowercase()));
    }

    /// Turns the finding on a missing call of these tools into a note, if the agent falsely claims to have called them.
    pub(crate) fn note_if_claimed(&self, agent: usize, tools: &[&str], finding: Finding) -> Finding {
        let is_claimed =
            |tool: &&str| self.falsely_claimed_tools.contains(&(agent, tool.trim().to_ascii_lowercase()));
        if self.falsely_claimed_tools.is_empty() || !tools.iter().all(is_claimed) {
            return finding;
        }
        let rationale = finding.rationale + "; a claim that it was called is the failure";
        Finding { rationale, ..finding }.noted()
    }

    /// The findings on calls that were announced and not made, by model span.
    pub(super) fn missing_announced_calls(&self, trace: &AgentTrace, memo: &Memo) -> Vec<(Idx, Finding)> {
        let missing = missing_announced_call::find(trace, memo).into_iter();
        let noted = missing.map(|missing| {
            (missing.at, self.note_if_claimed(missing.agent, &[&missing.tool], missing.finding))
        });
        noted.collect()
    }
}
