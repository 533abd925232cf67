//! The claims on one record: taken in at once, and given up one by one in any order.

use super::record::Claim;

/// Sorted, each with whether it still holds. Most records have a handful, and one request may have
/// as many as it has traces: what is given up stays in its place, so that nothing is moved.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Claims {
    all: Vec<(Claim, bool)>,
    left: usize,
    /// Behind the one that was given up last: what closes together is given up in order.
    next: usize,
}

impl Claims {
    pub fn new(claims: Vec<Claim>) -> Claims {
        let mut all: Vec<(Claim, bool)> = claims.into_iter().map(|claim| (claim, true)).collect();
        all.sort_unstable();
        all.dedup();
        Claims { left: all.len(), all, next: 0 }
    }

    /// Gives one up, if it holds.
    pub fn remove(&mut self, claim: &Claim) {
        let at = match self.all.get(self.next) {
            Some((next, _)) if next == claim => self.next,
            _ => self.all.binary_search_by_key(claim, |(claim, _)| *claim).unwrap_or(usize::MAX),
        };
        if let Some((_, holds)) = self.all.get_mut(at) {
            self.left -= usize::from(std::mem::take(holds));
            self.next = at + 1;
        }
    }

    /// None of them holds.
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// Whether one holds.
    pub fn contains(&self, claim: &Claim) -> bool {
        let found = self.all.binary_search_by_key(claim, |(claim, _)| *claim);
        found.is_ok_and(|at| self.all.get(at).is_some_and(|(_, holds)| *holds))
    }

    /// Those that hold, in order.
    pub fn iter(&self) -> impl Iterator<Item = Claim> {
        self.all.iter().filter(|(_, holds)| *holds).map(|(claim, _)| *claim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verdict_otlp::trace::TraceId;

    #[test]
    fn each_is_given_up_once_and_the_others_hold() {
        let trace = |n| Claim::Trace(TraceId([n; 16]));
        let mut claims = Claims::new(vec![trace(3), Claim::Verdict, trace(1), Claim::Pass, trace(3)]);
        assert_eq!(claims.iter().collect::<Vec<_>>(), [Claim::Pass, trace(1), trace(3), Claim::Verdict]);
        for _ in 0..2 {
            claims.remove(&trace(1));
            claims.remove(&trace(2));
            assert!(!claims.contains(&trace(1)) && claims.contains(&trace(3)) && !claims.is_empty());
        }
        [Claim::Pass, trace(3), Claim::Verdict].iter().for_each(|claim| claims.remove(claim));
        assert!(claims.is_empty() && claims.iter().next().is_none());
    }
}
