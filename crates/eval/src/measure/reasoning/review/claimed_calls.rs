//! Missing calls that the agent claims to have made: one failure, of which the false claim says most.
//!
//! In: findings on planned or announced calls that are missing, and the tools of false claims. Out: the findings, as
//! notes where a claim is the failure.

use verdict_otlp::trace::Idx;

use super::Review;
use crate::measure::reasoning::missing_announced_call;
use crate::measure::{Finding, Memo};
use crate::recognise::AgentTrace;

impl Review {
    /// Records that the agent claims to have called a tool that was never called.
    pub(super) fn add_claimed(&mut self, agent: usize, tool: &str) {
        self.claimed.insert((agent, tool.trim().to_ascii_lowercase()));
    }

    /// Notes the finding on a missing call of these tools if the agent claims to have called them.
    pub(crate) fn note_if_claimed(&self, agent: usize, tools: &[&str], finding: Finding) -> Finding {
        let is_claimed = |tool: &&str| self.claimed.contains(&(agent, tool.trim().to_ascii_lowercase()));
        if self.claimed.is_empty() || !tools.iter().all(is_claimed) {
            return finding;
        }
        let rationale = finding.rationale + "; a claim that it was called is the failure";
        Finding { rationale, ..finding }.noted()
    }

    /// The findings on calls that were announced and not made.
    pub(super) fn announced(&self, trace: &AgentTrace, memo: &Memo) -> Vec<(Idx, Finding)> {
        let missing = missing_announced_call::find(trace, memo).into_iter();
        let noted = missing.map(|missing| {
            (missing.at, self.note_if_claimed(missing.agent, &[&missing.tool], missing.finding))
        });
        noted.collect()
    }
}
