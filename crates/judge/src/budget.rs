//! What may be spent on judges: reserved before a request is sent, settled when it is answered.
//!
//! In: limits, an estimate of a request, what time it is. Out: a [`Reservation`], or that there is
//! nothing left. Two accounts are asked, that of all judges and that of the one: a request must fit
//! into both. Where only what others have reserved is in the way, it waits until they settle, so
//! that what is asked does not depend on how many ask at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::config::{BudgetConfig, Limit, Price};
use super::dialect::Tokens;
use verdict_otlp::trace::TraceId;

/// Traces whose spending is remembered, some 150 bytes each. The longest unspent-on go first.
const MAX_TRACES: u64 = 100_000;
/// Parts of a window that pass out of it one by one. One more is kept, so that a window never
/// holds less than its time.
const SLOTS: usize = 60;

/// Tokens, and billionths of a USD: sums of whole numbers do not drift.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Amount {
    pub tokens: u64,
    pub nanos: u64,
}

impl Amount {
    /// What `tokens` cost.
    pub fn of(tokens: Tokens, price: &Price) -> Amount {
        let cost = |tokens: u64, per_million: f64| tokens as f64 * per_million * 1e3;
        let cached = price.cached.unwrap_or(price.input);
        let nanos =
            cost(tokens.input, price.input) + cost(tokens.cached, cached) + cost(tokens.output, price.output);
        Amount { tokens: tokens.total(), nanos: whole(nanos) }
    }

    /// In USD.
    pub fn usd(self) -> f64 {
        self.nanos as f64 / 1e9
    }

    pub fn plus(self, more: Amount) -> Amount {
        Amount {
            tokens: self.tokens.saturating_add(more.tokens),
            nanos: self.nanos.saturating_add(more.nanos),
        }
    }

    fn less(self, part: Amount) -> Amount {
        Amount {
            tokens: self.tokens.saturating_sub(part.tokens),
            nanos: self.nanos.saturating_sub(part.nanos),
        }
    }

    fn within(self, limit: &Limit) -> bool {
        limit.tokens.is_none_or(|most| self.tokens <= most)
            && limit.usd.is_none_or(|most| self.nanos <= whole(most * 1e9))
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn whole(number: f64) -> u64 {
    // The cast saturates, and no configured number is negative.
    number.round() as u64
}

/// What was spent in the last so long.
#[derive(Debug)]
struct Window {
    slot: Duration,
    origin: Instant,
    slots: [Amount; SLOTS + 1],
    /// The slot that is being filled, counted from the origin.
    newest: u64,
    total: Amount,
}

impl Window {
    fn new(length: Duration, now: Instant) -> Window {
        let slots = [Amount::default(); SLOTS + 1];
        Window { slot: length / SLOTS as u32, origin: now, slots, newest: 0, total: Amount::default() }
    }

    fn pass(&mut self, now: Instant) {
        let at = now.saturating_duration_since(self.origin).as_nanos() / self.slot.as_nanos().max(1);
        let at = u64::try_from(at).unwrap_or(u64::MAX);
        let passed = at.saturating_sub(self.newest);
        for step in 1..=passed.min(self.slots.len() as u64) {
            let slot = ((self.newest + step) % self.slots.len() as u64) as usize;
            self.total = self.total.less(std::mem::take(&mut self.slots[slot]));
        }
        self.newest = self.newest.max(at);
    }

    fn spend(&mut self, amount: Amount, now: Instant) {
        self.pass(now);
        let slot = (self.newest % self.slots.len() as u64) as usize;
        self.slots[slot] = self.slots[slot].plus(amount);
        self.total = self.total.plus(amount);
    }
}

/// What was spent and what may still be, of one trace.
#[derive(Clone, Copy, Debug, Default)]
struct OfTrace {
    spent: Amount,
    reserved: Amount,
}

/// One account: of all judges, or of one.
#[derive(Debug)]
struct Account {
    limits: BudgetConfig,
    hour: Window,
    day: Window,
    reserved: Amount,
    traces: Cache<TraceId, Arc<Mutex<OfTrace>>>,
}

/// Whether there is room.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Room {
    Free,
    /// Unless others spend what they have reserved.
    Taken,
    None,
}

impl Account {
    fn new(now: Instant) -> Account {
        Account {
            limits: BudgetConfig::default(),
            hour: Window::new(Duration::from_secs(3600), now),
            day: Window::new(Duration::from_secs(86_400), now),
            reserved: Amount::default(),
            // Not by frequency: the newest trace must not be forgotten for an older one.
            traces: Cache::builder().max_capacity(MAX_TRACES).eviction_policy(EvictionPolicy::lru()).build(),
        }
    }

    fn room(&mut self, trace: &OfTrace, amount: Amount, now: Instant) -> Room {
        self.hour.pass(now);
        self.day.pass(now);
        let limits = &self.limits;
        let of = |spent: Amount, reserved: Amount, limit: &Limit| match spent.plus(amount) {
            over if !over.within(limit) => Room::None,
            fits if fits.plus(reserved).within(limit) => Room::Free,
            _ => Room::Taken,
        };
        of(self.hour.total, self.reserved, &limits.per_hour)
            .max(of(self.day.total, self.reserved, &limits.per_day))
            .max(of(trace.spent, trace.reserved, &limits.per_trace))
    }
}

/// The accounts. Outlive a change of the configuration, limits aside.
#[derive(Debug, Default)]
pub(super) struct Spending {
    accounts: Mutex<HashMap<String, Arc<Mutex<Account>>>>,
    settled: Notify,
}

/// The name of the account of all judges: no judge is called so.
pub(super) const ALL: &str = "";

impl Spending {
    /// Sets the limits of the account `name`; what was spent stays spent.
    pub fn limit(&self, name: &str, limits: BudgetConfig) {
        lock(&self.account(name)).limits = limits;
    }

    fn account(&self, name: &str) -> Arc<Mutex<Account>> {
        let mut accounts = lock(&self.accounts);
        let new = || Arc::new(Mutex::new(Account::new(Instant::now())));
        Arc::clone(accounts.entry(name.to_owned()).or_insert_with(new))
    }

    /// Sets `amount` aside for a request to `judge` about `trace`. `None`: there is nothing left.
    pub async fn reserve(&self, judge: &str, trace: TraceId, amount: Amount) -> Option<Reservation<'_>> {
        let accounts = [self.account(ALL), self.account(judge)];
        let of_traces = accounts.each_ref().map(|account| of_trace(account, trace));
        loop {
            // Before looking: what settles in between must not be missed.
            let settled = self.settled.notified();
            match try_reserve(&accounts, &of_traces, amount) {
                Room::Free => {
                    let spending = self;
                    return Some(Reservation {
                        spending,
                        accounts,
                        of_traces,
                        amount,
                        floor: Amount::default(),
                    });
                }
                Room::Taken => settled.await,
                Room::None => return None,
            }
        }
    }
}

fn of_trace(account: &Mutex<Account>, trace: TraceId) -> Arc<Mutex<OfTrace>> {
    let traces = lock(account).traces.clone();
    traces.get_with(trace, Arc::default)
}

/// All or nothing.
fn try_reserve(
    accounts: &[Arc<Mutex<Account>>; 2],
    of_traces: &[Arc<Mutex<OfTrace>>; 2],
    amount: Amount,
) -> Room {
    let now = Instant::now();
    // Always in this order, and each trace's within its account's.
    let [mut all, mut one] = accounts.each_ref().map(|account| lock(account));
    let [mut of_all, mut of_one] = of_traces.each_ref().map(|of_trace| lock(of_trace));
    let room = all.room(&of_all, amount, now).max(one.room(&of_one, amount, now));
    if room == Room::Free {
        all.reserved = all.reserved.plus(amount);
        one.reserved = one.reserved.plus(amount);
        of_all.reserved = of_all.reserved.plus(amount);
        of_one.reserved = of_one.reserved.plus(amount);
    }
    room
}

/// Set aside. Dropped, it is given back, but for what a request that was sent has cost at least.
#[derive(Debug)]
pub(super) struct Reservation<'a> {
    spending: &'a Spending,
    accounts: [Arc<Mutex<Account>>; 2],
    of_traces: [Arc<Mutex<OfTrace>>; 2],
    amount: Amount,
    floor: Amount,
}

impl Reservation<'_> {
    /// The request is on its way: even if nobody waits for its answer, it costs this.
    pub fn sent(&mut self, floor: Amount) {
        self.floor = floor;
    }

    /// The request has cost `amount`.
    pub fn settle(mut self, amount: Amount) {
        self.floor = amount;
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let now = Instant::now();
        for (account, of_trace) in self.accounts.iter().zip(&self.of_traces) {
            let mut account = lock(account);
            account.reserved = account.reserved.less(self.amount);
            account.hour.spend(self.floor, now);
            account.day.spend(self.floor, now);
            let mut of_trace = lock(of_trace);
            of_trace.reserved = of_trace.reserved.less(self.amount);
            of_trace.spent = of_trace.spent.plus(self.floor);
        }
        self.spending.settled.notify_waiters();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
        let of = |tokens| Limit { tokens, usd: None };
        BudgetConfig { per_trace: of(per_trace), per_hour: of(per_hour), per_day: Limit::default() }
    }

    async fn spend(spending: &Spending, judge: &str, trace: TraceId, amount: u64) -> bool {
        match spending.reserve(judge, trace, tokens(amount)).await {
            Some(reserved) => {
                reserved.settle(tokens(amount));
                true
            }
            None => false,
        }
    }

    #[test]
    fn money_is_counted_by_kind_of_token() {
        let price = Price { input: 2.5, output: 10.0, cached: Some(1.25) };
        let amount = Amount::of(Tokens { input: 1000, cached: 2000, output: 300 }, &price);
        assert_eq!(amount, Amount { tokens: 3300, nanos: 8_000_000 });
        assert!((amount.usd() - 0.008).abs() < 1e-12);
        let plain = Price { cached: None, ..price };
        assert_eq!(Amount::of(Tokens { input: 0, cached: 1000, output: 0 }, &plain).nanos, 2_500_000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_trace_may_spend_its_own_and_no_more() {
        let spending = Spending::default();
        spending.limit(ALL, limits(Some(100), None));
        assert!(spend(&spending, "a", TRACE, 60).await);
        assert!(!spend(&spending, "b", TRACE, 50).await, "over all judges");
        assert!(spend(&spending, "b", OTHER, 50).await, "another trace has its own");
        assert!(spend(&spending, "b", TRACE, 40).await, "what is left");
    }

    #[tokio::test(start_paused = true)]
    async fn a_judge_has_an_account_beside_that_of_all() {
        let spending = Spending::default();
        spending.limit(ALL, limits(None, Some(100)));
        spending.limit("dear", limits(None, Some(30)));
        assert!(spend(&spending, "dear", TRACE, 30).await);
        assert!(!spend(&spending, "dear", TRACE, 1).await);
        assert!(spend(&spending, "cheap", TRACE, 70).await);
        assert!(!spend(&spending, "cheap", TRACE, 1).await, "all together");
    }

    #[tokio::test(start_paused = true)]
    async fn an_hour_never_holds_more_and_what_it_held_comes_back() {
        let spending = Spending::default();
        spending.limit(ALL, limits(None, Some(100)));
        let mut spent = Vec::new();
        for minute in 0..200u64 {
            while spend(&spending, "a", TRACE, 10).await {
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
    async fn what_others_reserve_is_waited_for_and_what_is_spent_is_not() {
        let spending = Spending::default();
        spending.limit(ALL, limits(Some(100), None));
        let first = spending.reserve("a", TRACE, tokens(80)).await.unwrap();
        let second = spending.reserve("a", TRACE, tokens(80));
        tokio::pin!(second);
        assert!(tokio::time::timeout(Duration::from_secs(1), &mut second).await.is_err(), "waits");
        first.settle(tokens(10));
        let second = second.await.expect("there is room now");
        let third = spending.reserve("a", TRACE, tokens(80));
        tokio::pin!(third);
        assert!(tokio::time::timeout(Duration::from_secs(1), &mut third).await.is_err());
        second.settle(tokens(80));
        assert!(third.await.is_none(), "never again");
    }

    #[tokio::test(start_paused = true)]
    async fn dropped_before_it_is_sent_it_costs_nothing_and_after_that_the_prompt() {
        let spending = Spending::default();
        spending.limit(ALL, limits(Some(100), None));
        drop(spending.reserve("a", TRACE, tokens(100)).await.unwrap());
        let mut sent = spending.reserve("a", TRACE, tokens(100)).await.unwrap();
        sent.sent(tokens(30));
        drop(sent);
        assert!(!spend(&spending, "a", TRACE, 71).await);
        assert!(spend(&spending, "a", TRACE, 70).await);
    }

    #[tokio::test(start_paused = true)]
    async fn new_limits_hold_for_what_was_spent_before() {
        let spending = Spending::default();
        spending.limit(ALL, limits(None, Some(100)));
        assert!(spend(&spending, "a", TRACE, 90).await);
        spending.limit(ALL, limits(None, Some(95)));
        assert!(!spend(&spending, "a", TRACE, 6).await);
        assert!(spend(&spending, "a", TRACE, 5).await);
    }
}
