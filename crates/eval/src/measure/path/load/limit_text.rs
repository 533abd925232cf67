//! Parses rules on amounts and times.
//!
//! ```text
//! sum of refund.amount <= 200 per run         of several calls: sum of small.amount + large.amount <= 200
//! notify within 5m after refund               the call is required, within this time
//! refund only within 5m after verify          the call is allowed only within this time
//! refund no sooner than 10m after verify      the call is not allowed within this time
//! ```
//!
//! In: a rule and the alphabet's symbols. Out: a [`PathLimit`], or the reason why the rule cannot be parsed, with the
//! correct form.

use verdict_config::{Period, Step};

use super::super::alphabet::ArgumentKey;
use super::super::automaton::Symbol;
use super::super::draft::{TaskProblem, key};
use super::super::limits::{LimitRule, PathLimit};

/// Maximum number of rules on amounts and times of one task: every call is checked by each.
pub(super) const MAX_LIMITS: usize = 64;

const RULE_FORMS: &str = "a rule of text is one of: sum of SYMBOL.ARGUMENT <= NUMBER per run; SYMBOL within TIME \
                      after SYMBOL; SYMBOL only within TIME after SYMBOL; SYMBOL no sooner than TIME after \
                      SYMBOL";

/// Reads the rule at index `i` of the policy.
pub(super) fn read_limit(i: usize, text: &str, symbols: &[String]) -> Result<PathLimit, TaskProblem> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let reader = LimitReader { location: vec![key("policy"), Step::Item(i)], symbols };
    let rule = match text.strip_prefix("sum of ") {
        Some(rest) => reader.read_sum(rest)?,
        None => reader.read_time_rule(&text)?,
    };
    Ok(PathLimit { rule, text })
}

/// Creates the rule for a call, the call before it, and a time in nanoseconds.
type MakeRule = fn(Symbol, Symbol, u64) -> LimitRule;

struct LimitReader<'a> {
    location: Vec<Step>,
    symbols: &'a [String],
}

impl LimitReader<'_> {
    fn problem(&self, message: impl Into<String>) -> TaskProblem {
        TaskProblem::new(&self.location, message)
    }

    /// The symbol with this name in the alphabet.
    fn symbol(&self, name: &str) -> Result<Symbol, TaskProblem> {
        let name = name.trim();
        let index = self.symbols.iter().position(|symbol| symbol == name);
        index.map(|i| Symbol(i as u32)).ok_or_else(|| {
            let message = format!("'{name}' is not in the alphabet");
            TaskProblem::unknown(&self.location, message, name, self.symbols.iter().map(String::as_str))
        })
    }

    /// Reads a limit on a sum of arguments.
    fn read_sum(&self, text: &str) -> Result<LimitRule, TaskProblem> {
        let text = text.strip_suffix(" per run").unwrap_or(text);
        let (left, max_text, is_exclusive) = match (text.split_once("<="), text.split_once('<')) {
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
        let parts = left.split(" + ").map(|part| self.read_summand(part.trim()));
        Ok(LimitRule::Sum { parts: parts.collect::<Result<_, _>>()?, max_sum: limit, is_exclusive })
    }

    /// Reads `symbol.argument`. Both may contain dots, so the longest known symbol is taken.
    fn read_summand(&self, part: &str) -> Result<(Symbol, ArgumentKey), TaskProblem> {
        let split_at_dot = |(dot, _): (usize, &str)| Some((part.get(..dot)?, part.get(dot + 1..)?));
        let mut splits = part.rmatch_indices('.').filter_map(split_at_dot);
        let known_split = splits.find(|(symbol, _)| self.symbols.iter().any(|name| name == symbol));
        let Some((symbol, argument)) = known_split.filter(|(_, argument)| !argument.is_empty()) else {
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

    /// Reads a rule about the time between two calls.
    fn read_time_rule(&self, text: &str) -> Result<LimitRule, TaskProblem> {
        let keywords: [(&str, MakeRule); 3] = [
            (" no sooner than ", |call, after, nanos| LimitRule::NoSooner { call, after, nanos }),
            (" only within ", |call, after, nanos| LimitRule::OnlyWithin { call, after, nanos }),
            (" within ", |call, after, nanos| LimitRule::MustWithin { call, after, nanos }),
        ];
        let mut parsed = keywords.into_iter();
        let parsed = parsed.find_map(|(keyword, make)| Some((text.split_once(keyword)?, keyword, make)));
        let Some(((call, rest), keyword, make)) = parsed else { return Err(self.problem(RULE_FORMS)) };
        let Some((time, after)) = rest.split_once(" after ") else {
            let message = format!("after which call? Write '{call}{keyword}{rest} after SYMBOL'");
            return Err(self.problem(message));
        };
        let period: Period = time.trim().parse().map_err(|error| self.problem(format!("{error}")))?;
        let nanos = u64::try_from(period.0.as_nanos()).unwrap_or(u64::MAX);
        let (call, after) = (self.symbol(call)?, self.symbol(after)?);
        if keyword == " within " && call == after {
            return Err(self.problem("a call cannot be required to follow itself"));
        }
        Ok(make(call, after, nanos))
    }
}
