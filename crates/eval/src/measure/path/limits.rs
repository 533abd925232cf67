//! Rules on amounts and times, which no finite automaton can express: registers in addition to the automaton.
//!
//! In: the calls of a run in order, with the arguments and times of each. Out: whether a call breaks a rule.
//! Each rule has one register (a sum or a time), so the memory does not grow with the length of a run, and a
//! call is decided by the calls before it.

use std::mem::size_of;

use serde_json::Value;

use super::alphabet::ArgumentKey;
use super::automaton::Symbol;
use crate::measure::harm_reason::HarmReason;

/// Relative tolerance of sums: decimal amounts are not exact in binary, and 0.1 + 0.2 is above 0.3.
const ROUNDING: f64 = 1e-9;

/// A rule on amounts or times.
#[derive(Clone, Debug)]
pub struct PathLimit {
    pub(super) rule: LimitRule,
    /// The rule as the task file contains it, for explanations.
    pub(super) text: String,
}

/// The kind of a rule, with its parameters.
#[derive(Clone, Debug)]
pub(super) enum LimitRule {
    /// The sum of arguments over the calls of a run is at most `max_sum`; below it if `is_exclusive`.
    Sum { parts: Vec<(Symbol, ArgumentKey)>, max_sum: f64, is_exclusive: bool },
    /// `call` is allowed only within this time after the last call of `after`.
    OnlyWithin { call: Symbol, after: Symbol, nanos: u64 },
    /// Each call of `after` must be followed by `call` within this time.
    MustWithin { call: Symbol, after: Symbol, nanos: u64 },
    /// `call` is not allowed within this time after the last call of `after`.
    NoSooner { call: Symbol, after: Symbol, nanos: u64 },
}

/// The facts about a call that the rules use.
#[derive(Clone, Copy, Debug)]
pub(super) struct LimitedCall<'a> {
    pub symbol: Symbol,
    /// `None` if they were not recorded.
    pub arguments: Option<&'a Value>,
    /// In nanoseconds since 1970; 0 if unknown.
    pub start: u64,
    /// As `start`.
    pub end: u64,
}

/// The result of the rules for a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LimitCheck {
    /// The call breaks no rule.
    Kept,
    /// The rule at this index is broken.
    Broken(usize, HarmReason),
    /// The amount or the time is not recorded.
    Unknown,
}

/// One register per rule.
#[derive(Clone, PartialEq, Debug)]
enum Register {
    /// The sum of the amounts so far.
    Sum(f64),
    /// The end of the call from which the time is counted: the last one, for `MustWithin` the first unanswered one.
    Since(Option<u64>),
}

/// The registers of a run.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Registers(Vec<Register>);

impl PathLimit {
    /// Whether the rule compares the times of calls.
    pub(super) fn compares_times(&self) -> bool {
        !matches!(self.rule, LimitRule::Sum { .. })
    }

    /// Whether the rule reads an argument of a symbol.
    pub(super) fn reads(&self, symbol: Symbol) -> bool {
        matches!(&self.rule, LimitRule::Sum { parts, .. } if parts.iter().any(|(part_symbol, _)| *part_symbol == symbol))
    }

    /// The amount of a call that this rule counts; `None` if it is not a recorded number. A negative amount counts by
    /// its absolute value: the sum bounds the amounts that are moved, so a credit must not allow a further amount.
    fn amount(key: &ArgumentKey, arguments: Option<&Value>) -> Option<f64> {
        let number = match key.find(arguments?.as_object()?)? {
            Value::Number(number) => number.as_f64()?,
            // Some frameworks send decimals as text, so that they stay exact.
            Value::String(text) => text.trim().parse().ok()?,
            _ => return None,
        };
        number.is_finite().then_some(number.abs())
    }
}

impl Registers {
    pub(super) fn new(limits: &[PathLimit]) -> Registers {
        let register = |limit: &PathLimit| match limit.rule {
            LimitRule::Sum { .. } => Register::Sum(0.0),
            _ => Register::Since(None),
        };
        Registers(limits.iter().map(register).collect())
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.len() * size_of::<Register>()
    }

    /// Whether the rules allow `call` now.
    pub(super) fn check(&self, limits: &[PathLimit], call: LimitedCall<'_>) -> LimitCheck {
        let mut is_unknown = false;
        for (i, (limit, register)) in limits.iter().zip(&self.0).enumerate() {
            match check_rule(&limit.rule, register, call) {
                LimitCheck::Kept => {}
                LimitCheck::Unknown => is_unknown = true,
                LimitCheck::Broken(_, reason) => return LimitCheck::Broken(i, reason),
            }
        }
        if is_unknown { LimitCheck::Unknown } else { LimitCheck::Kept }
    }

    /// Updates the registers by a call that was made.
    pub(super) fn push(&mut self, limits: &[PathLimit], call: LimitedCall<'_>) {
        for (limit, register) in limits.iter().zip(&mut self.0) {
            match (&limit.rule, register) {
                (LimitRule::Sum { parts, .. }, Register::Sum(sum)) => {
                    for (_, key) in parts.iter().filter(|(symbol, _)| *symbol == call.symbol) {
                        *sum += PathLimit::amount(key, call.arguments).unwrap_or(0.0);
                    }
                }
                (LimitRule::MustWithin { call: awaited, after, .. }, Register::Since(since)) => {
                    if *awaited == call.symbol {
                        *since = None;
                    }
                    if *after == call.symbol {
                        since.get_or_insert(call.end);
                    }
                }
                (
                    LimitRule::OnlyWithin { after, .. } | LimitRule::NoSooner { after, .. },
                    Register::Since(since),
                ) if *after == call.symbol => *since = Some(call.end),
                _ => {}
            }
        }
    }

    /// The first rule that requires a call which has not been made yet.
    pub(super) fn unanswered<'l>(&self, limits: &'l [PathLimit]) -> Option<&'l PathLimit> {
        let is_open = |(limit, register): &(&PathLimit, &Register)| {
            matches!((&limit.rule, register), (LimitRule::MustWithin { .. }, Register::Since(Some(_))))
        };
        limits.iter().zip(&self.0).find(is_open).map(|(limit, _)| limit)
    }

    /// The remaining amount of each sum that counts `symbol`, with the key of the argument.
    pub(super) fn remaining_amounts(&self, limits: &[PathLimit], symbol: Symbol) -> Vec<(String, f64)> {
        let remaining = |(limit, register): (&PathLimit, &Register)| match (&limit.rule, register) {
            (LimitRule::Sum { parts, max_sum, .. }, Register::Sum(sum)) => {
                let (_, key) = parts.iter().find(|(part_symbol, _)| *part_symbol == symbol)?;
                Some((key.to_string(), max_sum - sum))
            }
            _ => None,
        };
        limits.iter().zip(&self.0).filter_map(remaining).collect()
    }
}

/// Whether the rule with this register allows the call.
fn check_rule(rule: &LimitRule, register: &Register, new_call: LimitedCall<'_>) -> LimitCheck {
    let broken = |reason| LimitCheck::Broken(0, reason);
    match (rule, register) {
        (LimitRule::Sum { parts, max_sum, is_exclusive }, Register::Sum(sum)) => {
            let mut total = *sum;
            for (_, key) in parts.iter().filter(|(symbol, _)| *symbol == new_call.symbol) {
                match PathLimit::amount(key, new_call.arguments) {
                    Some(amount) => total += amount,
                    None => return LimitCheck::Unknown,
                }
            }
            if parts.iter().all(|(symbol, _)| *symbol != new_call.symbol) {
                return LimitCheck::Kept;
            }
            let margin = ROUNDING * max_sum.abs().max(1.0);
            let is_within = if *is_exclusive { total < max_sum - margin } else { total <= max_sum + margin };
            if is_within { LimitCheck::Kept } else { broken(HarmReason::OverLimit) }
        }
        (LimitRule::OnlyWithin { call, nanos, .. }, Register::Since(since)) if *call == new_call.symbol => {
            match since {
                None => broken(HarmReason::NotAllowedHere),
                Some(since) => match elapsed(*since, new_call.start) {
                    None => LimitCheck::Unknown,
                    Some(time) if time > *nanos => broken(HarmReason::TooLate),
                    Some(_) => LimitCheck::Kept,
                },
            }
        }
        (LimitRule::MustWithin { call, nanos, .. }, Register::Since(Some(since)))
            if *call == new_call.symbol =>
        {
            match elapsed(*since, new_call.start) {
                None => LimitCheck::Unknown,
                Some(time) if time > *nanos => broken(HarmReason::TooLate),
                Some(_) => LimitCheck::Kept,
            }
        }
        (LimitRule::NoSooner { call, nanos, .. }, Register::Since(Some(since)))
            if *call == new_call.symbol =>
        {
            match elapsed(*since, new_call.start) {
                None => LimitCheck::Unknown,
                Some(time) if time < *nanos => broken(HarmReason::TooSoon),
                Some(_) => LimitCheck::Kept,
            }
        }
        _ => LimitCheck::Kept,
    }
}

/// The time from the end of one call to the start of another, in nanoseconds; `None` without both.
fn elapsed(since: u64, start: u64) -> Option<u64> {
    (since > 0 && start > 0).then(|| start.saturating_sub(since))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn limit(rule: LimitRule) -> Vec<PathLimit> {
        vec![PathLimit { rule, text: "rule".into() }]
    }

    fn call_at(symbol: u32, arguments: &Value, seconds: u64) -> LimitedCall<'_> {
        let time = seconds * SECOND;
        LimitedCall { symbol: Symbol(symbol), arguments: Some(arguments), start: time, end: time }
    }

    fn sum(max_sum: f64, is_exclusive: bool) -> Vec<PathLimit> {
        let parts =
            vec![(Symbol(0), ArgumentKey::new("amount")), (Symbol(1), ArgumentKey::new("/order/sum"))];
        limit(LimitRule::Sum { parts, max_sum, is_exclusive })
    }

    #[test]
    fn sum_counts_all_its_symbols_and_stops_at_the_limit() {
        let rules = sum(0.3, false);
        let mut registers = Registers::new(&rules);
        let (tenth, two_tenths) = (json!({"amount": 0.1}), json!({"order": {"sum": "0.2"}}));
        for call in [call_at(0, &tenth, 1), call_at(1, &two_tenths, 2)] {
            assert_eq!(registers.check(&rules, call), LimitCheck::Kept);
            registers.push(&rules, call);
        }
        assert_eq!(
            registers.check(&rules, call_at(0, &tenth, 3)),
            LimitCheck::Broken(0, HarmReason::OverLimit),
            "0.1 + 0.2 reaches 0.3 exactly; more is above it"
        );
        assert_eq!(registers.check(&rules, call_at(2, &tenth, 3)), LimitCheck::Kept, "another symbol");
        assert_eq!(registers.remaining_amounts(&rules, Symbol(0)).len(), 1);
        for unknown in [json!({}), json!({"amount": "much"}), json!({"amount": null})] {
            assert_eq!(registers.check(&rules, call_at(0, &unknown, 3)), LimitCheck::Unknown, "{unknown}");
        }
        let (credit, amount) = (json!({"amount": -0.2}), json!({"amount": 0.2}));
        let mut registers = Registers::new(&rules);
        registers.push(&rules, call_at(0, &credit, 1));
        let over = LimitCheck::Broken(0, HarmReason::OverLimit);
        assert_eq!(registers.check(&rules, call_at(0, &amount, 2)), over, "a credit makes no room");
        assert_eq!(registers.check(&rules, call_at(0, &credit, 2)), over, "it counts as an amount itself");
        let rules = sum(0.1, true);
        let below = Registers::new(&rules);
        assert_eq!(
            below.check(&rules, call_at(0, &tenth, 1)),
            LimitCheck::Broken(0, HarmReason::OverLimit),
            "the limit itself is excluded"
        );
    }

    #[test]
    fn times_are_counted_from_the_end_of_the_call_before() {
        let (call, after, no_arguments) = (Symbol(0), Symbol(1), json!({}));
        let nanos = 300 * SECOND;
        let reason = |rule: LimitRule, wait: u64| {
            let rules = limit(rule);
            let mut registers = Registers::new(&rules);
            registers.push(&rules, call_at(1, &no_arguments, 1000));
            match registers.check(&rules, call_at(0, &no_arguments, 1000 + wait)) {
                LimitCheck::Broken(_, reason) => Some(reason),
                other => {
                    assert_eq!(other, LimitCheck::Kept);
                    None
                }
            }
        };
        let (only, must, sooner) = (
            LimitRule::OnlyWithin { call, after, nanos },
            LimitRule::MustWithin { call, after, nanos },
            LimitRule::NoSooner { call, after, nanos },
        );
        assert_eq!((reason(only.clone(), 300), reason(only.clone(), 301)), (None, Some(HarmReason::TooLate)));
        assert_eq!((reason(must.clone(), 300), reason(must.clone(), 301)), (None, Some(HarmReason::TooLate)));
        assert_eq!(
            (reason(sooner.clone(), 300), reason(sooner.clone(), 299)),
            (None, Some(HarmReason::TooSoon))
        );
        let rules = limit(only);
        let first = Registers::new(&rules).check(&rules, call_at(0, &no_arguments, 5));
        assert_eq!(first, LimitCheck::Broken(0, HarmReason::NotAllowedHere), "nothing came before");
        let rules = limit(sooner);
        assert_eq!(Registers::new(&rules).check(&rules, call_at(0, &no_arguments, 5)), LimitCheck::Kept);
        let rules = limit(must);
        let mut registers = Registers::new(&rules);
        assert!(registers.unanswered(&rules).is_none());
        registers.push(&rules, call_at(1, &no_arguments, 10));
        registers.push(&rules, call_at(1, &no_arguments, 200));
        assert!(registers.unanswered(&rules).is_some());
        assert_eq!(
            registers.check(&rules, call_at(0, &no_arguments, 311)),
            LimitCheck::Broken(0, HarmReason::TooLate),
            "the first unanswered call counts"
        );
        registers.push(&rules, call_at(0, &no_arguments, 310));
        assert!(registers.unanswered(&rules).is_none());
        assert_eq!(registers.check(&rules, call_at(0, &no_arguments, 0)), LimitCheck::Kept);
        registers.push(&rules, call_at(1, &no_arguments, 0));
        assert_eq!(
            registers.check(&rules, call_at(0, &no_arguments, 5)),
            LimitCheck::Unknown,
            "no time was recorded"
        );
    }
}
