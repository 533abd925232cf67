//! Rules on amounts and times as text.
//!
//! ```text
//! sum of refund.amount <= 200 per run         several: sum of small.amount + large.amount <= 200
//! notify within 5m after refund               it must come, and in time
//! refund only within 5m after verify          it is allowed only in this time
//! refund no sooner than 10m after verify      it is not allowed before
//! ```
//!
//! In: a rule and the alphabet's symbols. Out: a [`Limit`], or the reason why it cannot be read, with what to
//! write instead.

use verdict_config::{Period, Step};

use super::super::alphabet::ArgumentKey;
use super::super::automaton::Symbol;
use super::super::draft::{TaskProblem, key};
use super::super::limits::{LimitRule, PathLimit};

/// Most rules on amounts and times of one task: each is a register that every call is checked with.
pub(super) const MAX_LIMITS: usize = 64;

const SHAPES: &str = "a rule of text is one of: sum of SYMBOL.ARGUMENT <= NUMBER per run; SYMBOL within TIME \
                      after SYMBOL; SYMBOL only within TIME after SYMBOL; SYMBOL no sooner than TIME after \
                      SYMBOL";

/// Reads the rule at index `i` of the policy.
pub(super) fn read_limit(i: usize, text: &str, symbols: &[String]) -> Result<PathLimit, TaskProblem> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let reader = LimitReader { location: vec![key("policy"), Step::Item(i)], symbols };
    let rule = match text.strip_prefix("sum of ") {
        Some(rest) => reader.sum(rest)?,
        None => reader.timed(&text)?,
    };
    Ok(PathLimit { rule, text })
}

/// Makes the rule of a call, the call before it, and a time in nanoseconds.
type MakeRule = fn(Symbol, Symbol, u64) -> LimitRule;

struct LimitReader<'a> {
    location: Vec<Step>,
    symbols: &'a [String],
}

impl LimitReader<'_> {
    fn problem(&self, message: impl Into<String>) -> TaskProblem {
        TaskProblem::new(&self.location, message)
    }

    fn symbol(&self, name: &str) -> Result<Symbol, TaskProblem> {
        let name = name.trim();
        let found = self.symbols.iter().position(|symbol| symbol == name);
        found.map(|i| Symbol(i as u32)).ok_or_else(|| {
            let message = format!("'{name}' is not in the alphabet");
            TaskProblem::unknown(&self.location, message, name, self.symbols.iter().map(String::as_str))
        })
    }

    fn sum(&self, text: &str) -> Result<LimitRule, TaskProblem> {
        let text = text.strip_suffix(" per run").unwrap_or(text);
        let (left, max_text, exclusive) = match (text.split_once("<="), text.split_once('<')) {
            (Some((left, max_text)), _) => (left, max_text, false),
            (None, Some((left, max_text))) => (left, max_text, true),
            (None, None) => {
                return Err(self.problem(format!("no limit: write 'sum of {} <= 200 per run'", text.trim())));
            }
        };
        let max_text = max_text.trim();
        let number = max_text.parse::<f64>().ok().filter(|number| number.is_finite());
        let Some(limit) = number else {
            let hint = if max_text.contains(" per ") { "; a sum is counted 'per run'" } else { "" };
            return Err(self.problem(format!("'{max_text}' is not a number{hint}")));
        };
        let parts = left.split(" + ").map(|part| self.summand(part.trim()));
        Ok(LimitRule::Sum { parts: parts.collect::<Result<_, _>>()?, max_sum: limit, exclusive })
    }

    /// `symbol.argument`; both may contain dots, so the longest symbol is taken.
    fn summand(&self, part: &str) -> Result<(Symbol, ArgumentKey), TaskProblem> {
        let split = |(at, _): (usize, &str)| Some((part.get(..at)?, part.get(at + 1..)?));
        let mut splits = part.rmatch_indices('.').filter_map(split);
        let found = splits.find(|(symbol, _)| self.symbols.iter().any(|name| name == symbol));
        let Some((symbol, argument)) = found.filter(|(_, argument)| !argument.is_empty()) else {
            let Some((symbol, _)) = part.split_once('.') else {
                let message =
                    format!("'{part}' names no argument; write '{part}.amount', or '{part}./path/to/it'");
                return Err(self.problem(message));
            };
            self.symbol(symbol)?;
            return Err(self.problem(format!("'{part}' names no argument of '{symbol}'")));
        };
        Ok((self.symbol(symbol)?, ArgumentKey::new(argument)))
    }

    fn timed(&self, text: &str) -> Result<LimitRule, TaskProblem> {
        let words: [(&str, MakeRule); 3] = [
            (" no sooner than ", |call, after, nanos| LimitRule::NoSooner { call, after, nanos }),
            (" only within ", |call, after, nanos| LimitRule::OnlyWithin { call, after, nanos }),
            (" within ", |call, after, nanos| LimitRule::MustWithin { call, after, nanos }),
        ];
        let found = words.into_iter().find_map(|(words, make)| Some((text.split_once(words)?, words, make)));
        let Some(((call, rest), words, make)) = found else { return Err(self.problem(SHAPES)) };
        let Some((time, after)) = rest.split_once(" after ") else {
            let message = format!("after which call? Write '{call}{words}{rest} after SYMBOL'");
            return Err(self.problem(message));
        };
        let period: Period = time.trim().parse().map_err(|error| self.problem(format!("{error}")))?;
        let nanos = u64::try_from(period.0.as_nanos()).unwrap_or(u64::MAX);
        let (call, after) = (self.symbol(call)?, self.symbol(after)?);
        if words == " within " && call == after {
            return Err(self.problem("a call cannot be required to follow itself"));
        }
        Ok(make(call, after, nanos))
    }
}
