//! The set of reasons for which one record is retained: built once; reasons are removed one by one in any order.

use super::record::RetainReason;

/// The reasons, sorted. A removed reason is only marked, so that a removal moves no other reason. Most records have few
/// reasons, but a request has one for every trace in it.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct RetainReasons {
    /// Each reason, and whether it still applies.
    reasons: Vec<(RetainReason, bool)>,
    remaining: usize,
    /// The index after the reason that was removed last: traces that close together are released in order.
    next_index: usize,
}

impl RetainReasons {
    pub(crate) fn new(reasons: Vec<RetainReason>) -> RetainReasons {
        let mut sorted: Vec<(RetainReason, bool)> =
            reasons.into_iter().map(|reason| (reason, true)).collect();
        sorted.sort_unstable();
        sorted.dedup();
        RetainReasons { remaining: sorted.len(), reasons: sorted, next_index: 0 }
    }

    pub(crate) fn remove(&mut self, reason: &RetainReason) {
        let index = match self.reasons.get(self.next_index) {
            Some((next, _)) if next == reason => self.next_index,
            _ => self.reasons.binary_search_by_key(reason, |(reason, _)| *reason).unwrap_or(usize::MAX),
        };
        if let Some((_, applies)) = self.reasons.get_mut(index) {
            self.remaining -= usize::from(std::mem::take(applies));
            self.next_index = index + 1;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.remaining == 0
    }

    pub(crate) fn contains(&self, reason: &RetainReason) -> bool {
        let index = self.reasons.binary_search_by_key(reason, |(reason, _)| *reason);
        index.is_ok_and(|i| self.reasons.get(i).is_some_and(|(_, applies)| *applies))
    }

    /// The reasons that still apply, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = RetainReason> {
        self.reasons.iter().filter(|(_, applies)| *applies).map(|(reason, _)| *reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verdict_otlp::trace::TraceId;

    #[test]
    fn a_removed_reason_no_longer_applies_and_other_reasons_do() {
        let trace = |n| RetainReason::Trace(TraceId([n; 16]));
        let mut reasons = RetainReasons::new(vec![
            trace(3),
            RetainReason::Verdict,
            trace(1),
            RetainReason::Forwarded,
            trace(3),
        ]);
        assert_eq!(
            reasons.iter().collect::<Vec<_>>(),
            [RetainReason::Forwarded, trace(1), trace(3), RetainReason::Verdict]
        );
        for _ in 0..2 {
            reasons.remove(&trace(1));
            reasons.remove(&trace(2));
            assert!(!reasons.contains(&trace(1)) && reasons.contains(&trace(3)) && !reasons.is_empty());
        }
        [RetainReason::Forwarded, trace(3), RetainReason::Verdict]
            .iter()
            .for_each(|reason| reasons.remove(reason));
        assert!(reasons.is_empty() && reasons.iter().next().is_none());
    }
}
