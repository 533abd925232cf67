//! Budgets of judges: an amount is reserved before a request is sent, and replaced by the cost when it has ended.
//!
//! In: limits, the estimated cost of a request, the time. Out: a [`BudgetReservation`], or `None` when the
//! budget is spent. A request must fit into two accounts, that of all judges and that of its judge. If it
//! would fit but for the reservations of other requests, it waits until those are released, so that
//! concurrency has no effect on which questions are asked.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use tokio::sync::Notify;
use tokio::time::Instant;
use verdict_otlp::trace::TraceId;

use crate::config::{BudgetConfig, Limit, Price};
use crate::lock::lock;
use crate::provider::TokenCount;
use crate::spending::{self, Spending, Spent};

/// Number of traces whose spending each account remembers, about 150 bytes each. The least recently used are
/// forgotten first.
const MAX_TRACES: u64 = 100_000;
/// Maximum number of traces whose spending each account writes to the file of spending, the latest ones: among them are
/// the traces that are judged when the process ends, and that a journal delivers again after a restart.
const MAX_SAVED_TRACES: usize = 4_096;
/// Number of slots of a window, which expire one by one. A window has one slot more, so that it never covers less
/// than its length.
const SLOTS: usize = 60;

/// Tokens, and billionths of a USD, as integers: their sums have no rounding errors.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Amount {
    pub(crate) tokens: u64,
    pub(crate) nanos: u64,
}

impl Amount {
    pub(crate) fn new(tokens: TokenCount, price: &Price) -> Amount {
        let cost = |tokens: u64, per_million: f64| tokens as f64 * per_million * 1e3;
        let cached = price.cached.unwrap_or(price.input);
        let nanos = cost(tokens.input, price.input)
            + cost(tokens.cached, cached)
            + cost(tokens.cache_write, price.cache_write.unwrap_or(price.input))
            + cost(tokens.output, price.output);
        Amount { tokens: tokens.total(), nanos: whole_number(nanos) }
    }

    pub(crate) fn usd(self) -> f64 {
        self.nanos as f64 / 1e9
    }

    pub(crate) fn plus(self, more: Amount) -> Amount {
        Amount {
            tokens: self.tokens.saturating_add(more.tokens),
            nanos: self.nanos.saturating_add(more.nanos),
        }
    }

    fn minus(self, part: Amount) -> Amount {
        Amount {
            tokens: self.tokens.saturating_sub(part.tokens),
            nanos: self.nanos.saturating_sub(part.nanos),
        }
    }

    fn is_within(self, limit: &Limit) -> bool {
        limit.tokens.is_none_or(|max| self.tokens <= max)
            && limit.usd.is_none_or(|max| self.nanos <= whole_number(max * 1e9))
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn whole_number(number: f64) -> u64 {
    // The cast saturates, and no configured number is negative.
    number.round() as u64
}

/// Spending in a sliding window of time.
#[derive(Debug)]
struct Window {
    slot: Duration,
    origin: Instant,
    /// The wall clock at the origin. Later steps of the wall clock have no effect.
    since_epoch: Duration,
    slots: [Amount; SLOTS + 1],
    /// The current slot, counted from the Unix epoch, so that its number is the same after a restart.
    newest: u64,
    total: Amount,
}

impl Window {
    fn new(length: Duration, now: Instant) -> Window {
        let slots = [Amount::default(); SLOTS + 1];
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (slot, total) = (length / SLOTS as u32, Amount::default());
        let mut window = Window { slot, origin: now, since_epoch, slots, newest: 0, total };
        window.advance(now);
        window
    }

    fn advance(&mut self, now: Instant) {
        let since_epoch = self.since_epoch + now.saturating_duration_since(self.origin);
        let current_slot = since_epoch.as_nanos() / self.slot.as_nanos().max(1);
        let current_slot = u64::try_from(current_slot).unwrap_or(u64::MAX);
        let expired = current_slot.saturating_sub(self.newest);
        for step in 1..=expired.min(self.slots.len() as u64) {
            let slot = ((self.newest + step) % self.slots.len() as u64) as usize;
            self.total = self.total.minus(std::mem::take(&mut self.slots[slot]));
        }
        self.newest = self.newest.max(current_slot);
    }

    fn spend(&mut self, amount: Amount, now: Instant) {
        self.advance(now);
        self.add(amount, self.newest);
    }

    fn add(&mut self, amount: Amount, slot: u64) {
        let slot = (slot % self.slots.len() as u64) as usize;
        self.slots[slot] = self.slots[slot].plus(amount);
        self.total = self.total.plus(amount);
    }

    /// The slots in which something was spent: number, tokens, billionths of a USD.
    fn spent(&mut self, now: Instant) -> Vec<(u64, u64, u64)> {
        self.advance(now);
        let all = (self.newest.saturating_sub(SLOTS as u64)..=self.newest).map(|slot| {
            let Amount { tokens, nanos } = self.slots[(slot % self.slots.len() as u64) as usize];
            (slot, tokens, nanos)
        });
        all.filter(|&(_, tokens, nanos)| tokens > 0 || nanos > 0).collect()
    }

    /// Adds the spending of an earlier process. If the wall clock was set back since, it counts as spent now.
    fn restore(&mut self, spent: Vec<(u64, u64, u64)>, now: Instant) {
        self.advance(now);
        for (slot, tokens, nanos) in spent {
            if self.newest.saturating_sub(slot) <= SLOTS as u64 {
                self.add(Amount { tokens, nanos }, slot.min(self.newest));
            }
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct TraceAccount {
    spent: Amount,
    reserved: Amount,
}

/// The spending of all judges, or of one.
#[derive(Debug)]
struct Account {
    limits: BudgetConfig,
    hour: Window,
    day: Window,
    reserved: Amount,
    traces: Cache<TraceId, TraceAccount>,
    /// The latest traces on which something was spent; a trace may be listed several times.
    latest: VecDeque<TraceId>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Availability {
    Free,
    /// Free only if other requests cost less than they have reserved.
    Reserved,
    Spent,
}

impl Account {
    fn new(now: Instant) -> Account {
        Account {
            limits: BudgetConfig::default(),
            hour: Window::new(Duration::from_secs(3600), now),
            day: Window::new(Duration::from_secs(86_400), now),
            reserved: Amount::default(),
            // LRU, since eviction by frequency could remove the newest trace before an older one.
            traces: Cache::builder().max_capacity(MAX_TRACES).eviction_policy(EvictionPolicy::lru()).build(),
            latest: VecDeque::new(),
        }
    }

    fn availability(&mut self, trace: TraceId, amount: Amount, now: Instant) -> Availability {
        self.hour.advance(now);
        self.day.advance(now);
        let trace = self.traces.get(&trace).unwrap_or_default();
        let limits = &self.limits;
        let check_limit = |spent: Amount, reserved: Amount, limit: &Limit| match spent.plus(amount) {
            total if !total.is_within(limit) => Availability::Spent,
            total if total.plus(reserved).is_within(limit) => Availability::Free,
            _ => Availability::Reserved,
        };
        check_limit(self.hour.total, self.reserved, &limits.per_hour)
            .max(check_limit(self.day.total, self.reserved, &limits.per_day))
            .max(check_limit(trace.spent, trace.reserved, &limits.per_trace))
    }

    fn reserve(&mut self, trace: TraceId, amount: Amount) {
        self.reserved = self.reserved.plus(amount);
        let TraceAccount { spent, reserved } = self.traces.get(&trace).unwrap_or_default();
        self.traces.insert(trace, TraceAccount { spent, reserved: reserved.plus(amount) });
    }

    /// Replaces a reservation of `amount` by the actual cost.
    fn commit_cost(&mut self, trace: TraceId, amount: Amount, cost: Amount, now: Instant) {
        self.reserved = self.reserved.minus(amount);
        self.hour.spend(cost, now);
        self.day.spend(cost, now);
        let TraceAccount { spent, reserved } = self.traces.get(&trace).unwrap_or_default();
        self.traces.insert(trace, TraceAccount { spent: spent.plus(cost), reserved: reserved.minus(amount) });
        self.note_latest(trace, cost);
    }

    fn note_latest(&mut self, trace: TraceId, cost: Amount) {
        if cost != Amount::default() && self.latest.back() != Some(&trace) {
            self.latest.push_back(trace);
            if self.latest.len() > MAX_SAVED_TRACES {
                self.latest.pop_front();
            }
        }
    }

    /// Spending on the latest traces, if that is limited.
    fn spent_by_trace(&self) -> Vec<(String, u64, u64)> {
        if self.limits.per_trace == Limit::default() {
            return Vec::new();
        }
        let mut listed = HashSet::new();
        // The position of a trace is where something was last spent on it.
        let latest = self.latest.iter().rev().filter(|trace| listed.insert(**trace));
        let spent = |trace: &TraceId| {
            let Amount { tokens, nanos } = self.traces.get(trace)?.spent;
            Some((trace.to_string(), tokens, nanos))
        };
        let mut all: Vec<_> = latest.filter_map(spent).collect();
        all.reverse();
        all
    }

    fn restore(&mut self, spent: Spent, now: Instant) {
        let Spent(hour, day, traces) = spent;
        self.hour.restore(hour, now);
        self.day.restore(day, now);
        for (id, tokens, nanos) in traces.into_iter().take(MAX_SAVED_TRACES) {
            let Some(trace) = u128::from_str_radix(&id, 16).ok().map(|id| TraceId(id.to_be_bytes())) else {
                continue;
            };
            let trace_account = self.traces.get(&trace).unwrap_or_default();
            let amount = Amount { tokens, nanos };
            self.traces
                .insert(trace, TraceAccount { spent: trace_account.spent.plus(amount), ..trace_account });
            self.note_latest(trace, amount);
        }
    }
}

/// All accounts, by the name of their judge. They are kept across reloads of the configuration.
#[derive(Debug, Default)]
pub(crate) struct BudgetTracker {
    accounts: Mutex<HashMap<String, Account>>,
    released: Notify,
    /// The spending as last written to a file.
    saved: Mutex<Spending>,
}

/// The name of the account of all judges; no judge may have it.
pub(crate) const ALL_JUDGES: &str = "";

impl BudgetTracker {
    /// Sets the limits of the account `name`; its spending is kept.
    pub(crate) fn set_limits(&self, name: &str, limits: BudgetConfig) {
        account(&mut lock(&self.accounts), name).limits = limits;
    }

    /// Reserves `amount` for a request to `judge` about `trace`, in both accounts or in none. `None` if the
    /// budget is spent.
    pub(crate) async fn reserve<'a>(
        &'a self,
        judge: &'a str,
        trace: TraceId,
        amount: Amount,
    ) -> Option<BudgetReservation<'a>> {
        loop {
            // Registered before the check, so that a release in between is not missed.
            let released = self.released.notified();
            match self.try_reserve([ALL_JUDGES, judge], trace, amount) {
                Availability::Free => {
                    return Some(BudgetReservation {
                        tracker: self,
                        judge,
                        trace,
                        amount,
                        cost: Amount::default(),
                    });
                }
                Availability::Reserved => released.await,
                Availability::Spent => return None,
            }
        }
    }

    /// Writes the spending that counts against the limits, if it has changed since the last call.
    pub(crate) fn save(&self, file: &Path) -> io::Result<()> {
        let spending = self.spending();
        let mut saved = lock(&self.saved);
        if *saved != spending {
            spending::write(file, &spending)?;
            *saved = spending;
        }
        Ok(())
    }

    fn spending(&self) -> Spending {
        let now = Instant::now();
        let mut accounts = lock(&self.accounts);
        let all = accounts.iter_mut().map(|(name, account)| {
            let (hour, day) = (account.hour.spent(now), account.day.spent(now));
            (name.clone(), Spent(hour, day, account.spent_by_trace()))
        });
        all.filter(|(_, spent)| *spent != Spent::default()).collect()
    }

    /// Adds the spending of an earlier process.
    pub(crate) fn restore(&self, spending: Spending) {
        let now = Instant::now();
        let mut accounts = lock(&self.accounts);
        for (name, spent) in spending {
            account(&mut accounts, &name).restore(spent, now);
        }
    }

    fn try_reserve(&self, names: [&str; 2], trace: TraceId, amount: Amount) -> Availability {
        let now = Instant::now();
        let mut accounts = lock(&self.accounts);
        let [all, judge_availability] =
            names.map(|name| account(&mut accounts, name).availability(trace, amount, now));
        if all.max(judge_availability) == Availability::Free {
            names.into_iter().for_each(|name| account(&mut accounts, name).reserve(trace, amount));
        }
        all.max(judge_availability)
    }
}

fn account<'a>(accounts: &'a mut HashMap<String, Account>, name: &str) -> &'a mut Account {
    accounts.entry(name.to_owned()).or_insert_with(|| Account::new(Instant::now()))
}

/// A reserved amount. Dropping it commits its cost.
#[derive(Debug)]
pub(crate) struct BudgetReservation<'a> {
    tracker: &'a BudgetTracker,
    judge: &'a str,
    trace: TraceId,
    amount: Amount,
    cost: Amount,
}

impl BudgetReservation<'_> {
    /// Notes that the request is sent: from now on it costs at least `cost`.
    pub(crate) fn sent(&mut self, cost: Amount) {
        self.cost = cost;
    }

    /// Ends the reservation with the cost of the request.
    pub(crate) fn commit_cost(mut self, cost: Amount) {
        self.cost = cost;
    }
}

impl Drop for BudgetReservation<'_> {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut accounts = lock(&self.tracker.accounts);
        for name in [ALL_JUDGES, self.judge] {
            account(&mut accounts, name).commit_cost(self.trace, self.amount, self.cost, now);
        }
        drop(accounts);
        self.tracker.released.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: TraceId = TraceId([1; 16]);
    const OTHER: TraceId = TraceId([2; 16]);

    fn tokens(tokens: u64) -> Amount {
        Amount { tokens, nanos: 0 }
    }

    fn limits(per_trace: Option<u64>, per_hour: Option<u64>) -> BudgetConfig {
        let token_limit = |tokens| Limit { tokens, usd: None };
        BudgetConfig {
            per_trace: token_limit(per_trace),
            per_hour: token_limit(per_hour),
            per_day: Limit::default(),
        }
    }

    async fn spend(tracker: &BudgetTracker, judge: &str, trace: TraceId, amount: u64) -> bool {
        match tracker.reserve(judge, trace, tokens(amount)).await {
            Some(reserved) => {
                reserved.commit_cost(tokens(amount));
                true
            }
            None => false,
        }
    }

    #[test]
    fn cost_depends_on_the_kind_of_token() {
        let price = Price { input: 2.5, output: 10.0, cached: Some(1.25), cache_write: None };
        let counted = TokenCount { input: 1000, cached: 2000, output: 300, ..TokenCount::default() };
        let amount = Amount::new(counted, &price);
        assert_eq!(amount, Amount { tokens: 3300, nanos: 8_000_000 });
        assert!((amount.usd() - 0.008).abs() < 1e-12);
        let plain = Price { cached: None, ..price };
        let cost_nanos = |cached, cache_write, price| {
            Amount::new(TokenCount { cached, cache_write, ..TokenCount::default() }, price).nanos
        };
        assert_eq!(cost_nanos(1000, 0, &plain), 2_500_000);
        assert_eq!(cost_nanos(0, 1000, &plain), 2_500_000);
        assert_eq!(cost_nanos(0, 1000, &Price { cache_write: Some(3.125), ..plain }), 3_125_000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_trace_spends_at_most_its_own_budget() {
        let tracker = BudgetTracker::default();
        tracker.set_limits(ALL_JUDGES, limits(Some(100), None));
        assert!(spend(&tracker, "a", TRACE, 60).await);
        assert!(!spend(&tracker, "b", TRACE, 50).await, "over all judges");
        assert!(spend(&tracker, "b", OTHER, 50).await, "another trace has its own");
        assert!(spend(&tracker, "b", TRACE, 40).await, "the remaining budget");
    }

    #[tokio::test(start_paused = true)]
    async fn a_judge_has_its_own_account_and_shares_that_of_all() {
        let tracker = BudgetTracker::default();
        tracker.set_limits(ALL_JUDGES, limits(None, Some(100)));
        tracker.set_limits("dear", limits(None, Some(30)));
        assert!(spend(&tracker, "dear", TRACE, 30).await);
        assert!(!spend(&tracker, "dear", TRACE, 1).await);
        assert!(spend(&tracker, "cheap", TRACE, 70).await);
        assert!(!spend(&tracker, "cheap", TRACE, 1).await, "all together");
    }

    #[tokio::test(start_paused = true)]
    async fn no_hour_exceeds_its_budget_and_spending_expires() {
        let tracker = BudgetTracker::default();
        tracker.set_limits(ALL_JUDGES, limits(None, Some(100)));
        let mut spent = Vec::new();
        for minute in 0..200u64 {
            while spend(&tracker, "a", TRACE, 10).await {
                spent.push(minute);
            }
            tokio::time::advance(Duration::from_secs(60)).await;
        }
        for (i, first) in spent.iter().enumerate() {
            assert!(spent[i..].iter().take_while(|m| *m - first < 60).count() <= 10, "after minute {first}");
        }
        assert_eq!(spent.len(), 40, "at the start and after each hour");
    }

    #[tokio::test(start_paused = true)]
    async fn restored_spending_counts_until_it_would_have_expired() {
        let tracker = BudgetTracker::default();
        tracker.set_limits("a", limits(None, Some(100)));
        assert!(spend(&tracker, "a", TRACE, 100).await);
        let spent = tracker.spending();
        assert_eq!(spent.len(), 2, "of all judges, and of this one");

        let restarted = BudgetTracker::default();
        restarted.set_limits("a", limits(None, Some(100)));
        restarted.set_limits("b", limits(None, Some(100)));
        restarted.restore(spent.clone());
        assert_eq!(restarted.spending(), spent, "restarts do not extend it");
        assert!(!spend(&restarted, "a", TRACE, 1).await);
        assert!(spend(&restarted, "b", TRACE, 100).await);
        tokio::time::advance(Duration::from_secs(59 * 60)).await;
        assert!(!spend(&restarted, "a", TRACE, 1).await);
        tokio::time::advance(Duration::from_secs(3 * 60)).await;
        assert!(spend(&restarted, "a", TRACE, 100).await);

        // Slots of long ago have expired, and those of the future count as the current one.
        let Spent(hour, day, _) = &spent["a"];
        let moved = |shift: i64| vec![(hour[0].0.saturating_add_signed(shift), 100, 0)];
        for (shift, free) in [(-62, true), (-58, false), (1_000_000, false)] {
            let tracker = BudgetTracker::default();
            tracker.set_limits("a", limits(None, Some(100)));
            tracker.restore([("a".to_owned(), Spent(moved(shift), day.clone(), Vec::new()))].into());
            assert_eq!(spend(&tracker, "a", TRACE, 1).await, free, "{shift} slots");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn restored_spending_counts_for_its_trace() {
        let tracker = BudgetTracker::default();
        tracker.set_limits(ALL_JUDGES, limits(Some(100), None));
        assert!(spend(&tracker, "a", TRACE, 60).await);
        assert!(spend(&tracker, "b", OTHER, 10).await);
        assert!(spend(&tracker, "b", TRACE, 30).await);
        let spent = tracker.spending();
        assert_eq!(spent[ALL_JUDGES].2, [(OTHER.to_string(), 10, 0), (TRACE.to_string(), 90, 0)]);
        assert!(spent["a"].2.is_empty(), "no limit, nothing to compare it with");

        let restarted = BudgetTracker::default();
        restarted.set_limits(ALL_JUDGES, limits(Some(100), None));
        restarted.restore(spent.clone());
        assert_eq!(restarted.spending(), spent, "also after a further restart");
        assert!(!spend(&restarted, "a", TRACE, 11).await);
        assert!(spend(&restarted, "a", TRACE, 10).await && spend(&restarted, "a", OTHER, 90).await);
        restarted.restore(
            [(ALL_JUDGES.to_owned(), Spent(vec![], vec![], vec![("no id".to_owned(), 1, 1)]))].into(),
        );
    }

    #[tokio::test(start_paused = true)]
    async fn spending_of_a_bounded_number_of_traces_is_saved_the_latest() {
        let tracker = BudgetTracker::default();
        tracker.set_limits(ALL_JUDGES, limits(Some(100), None));
        let trace = |n: usize| TraceId((n as u128 + 1).to_be_bytes());
        for n in 0..MAX_SAVED_TRACES + 10 {
            assert!(spend(&tracker, "a", trace(n), 1).await);
        }
        let saved = &tracker.spending()[ALL_JUDGES].2;
        assert_eq!((saved.len(), &saved[0].0), (MAX_SAVED_TRACES, &trace(10).to_string()));
    }

    #[tokio::test(start_paused = true)]
    async fn reservations_of_others_are_waited_for_and_a_spent_budget_is_not() {
        let tracker = BudgetTracker::default();
        tracker.set_limits(ALL_JUDGES, limits(Some(100), None));
        let first = tracker.reserve("a", TRACE, tokens(80)).await.unwrap();
        let second = tracker.reserve("a", TRACE, tokens(80));
        tokio::pin!(second);
        assert!(tokio::time::timeout(Duration::from_secs(1), &mut second).await.is_err(), "waits");
        first.commit_cost(tokens(10));
        let second = second.await.expect("it fits now");
        let third = tracker.reserve("a", TRACE, tokens(80));
        tokio::pin!(third);
        assert!(tokio::time::timeout(Duration::from_secs(1), &mut third).await.is_err());
        second.commit_cost(tokens(80));
        assert!(third.await.is_none(), "never again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_reservation_costs_the_prompt_only_if_the_request_was_sent() {
        let tracker = BudgetTracker::default();
        tracker.set_limits(ALL_JUDGES, limits(Some(100), None));
        drop(tracker.reserve("a", TRACE, tokens(100)).await.unwrap());
        let mut sent = tracker.reserve("a", TRACE, tokens(100)).await.unwrap();
        sent.sent(tokens(30));
        drop(sent);
        assert!(!spend(&tracker, "a", TRACE, 71).await);
        assert!(spend(&tracker, "a", TRACE, 70).await);
    }

    #[tokio::test(start_paused = true)]
    async fn new_limits_apply_to_earlier_spending() {
        let tracker = BudgetTracker::default();
        tracker.set_limits(ALL_JUDGES, limits(None, Some(100)));
        assert!(spend(&tracker, "a", TRACE, 90).await);
        tracker.set_limits(ALL_JUDGES, limits(None, Some(95)));
        assert!(!spend(&tracker, "a", TRACE, 6).await);
        assert!(spend(&tracker, "a", TRACE, 5).await);
    }
}
