//! Amounts of calls that exceed a limit of the instructions: "refunds above 200 EUR need a manager" and a refund of
//! 249.90.
//!
//! Principle: a limit that the instructions set for an amount of something holds for the calls that are named for
//! it. In: the instructions and the successful calls of an agent that change something. Out: findings on the
//! model span that requested the call. The amount is an argument of the limit's unit, or else the amount that the
//! call's own result reports. A limit with a condition is not compared, the highest of several limits counts, and a
//! call that asks for approval lifts them.

use std::rc::Rc;

use verdict_otlp::trace::Idx;

use super::answer::sentences;
use super::numbers::{self, Number};
use super::records::Structure;
use crate::measure::agent::agent_index;
use crate::measure::agent::attempts::{CallAttempts, quoted};
use crate::measure::currency;
use crate::measure::defects::Defect;
use crate::measure::excerpt::lowercase;
use crate::measure::identifier::identifier_words;
use crate::measure::language::{Action, is_english};
use crate::measure::tool_purpose::{ToolPurpose, action_of, stems};
use crate::measure::{Finding, Memo};
use crate::recognise::{AgentTrace, Call, Text};

/// Most bytes of instructions that are read, and of one sentence.
const MAX_BYTES: usize = 64 << 10;
const MAX_SENTENCE: usize = 300;
/// Most limits of one text.
const MAX_LIMITS: usize = 64;
/// Most calls, the latest ones, and arguments of each.
const MAX_CALLS: usize = 64;
const MAX_ARGUMENTS: usize = 40;
/// Bytes before a number among which its comparison stands.
const BEFORE: usize = 32;

regex!(
    AT_MOST,
    r"(?i)\b(?:at most|up to|(?:no|not|never) more than|maximum(?: of)?|max\.?(?: of)?|limit(?:ed to| of| is)|(?:not|never|cannot|can't|don't) (?:exceed|go (?:above|over|beyond))|(?:never|not) (?:above|over))\W{0,3}$"
);
regex!(
    ABOVE,
    r"(?i)\b(?:above|over|exceed(?:ing|s)?|beyond|(?:more|greater|larger|higher) than|of more than)\W{0,3}$"
);
// What an amount above a limit is not allowed without.
regex!(
    DEMANDS,
    r"(?i)\b(?:needs?|requires?|must|only|not|never|no|cannot|can't|forbidden|prohibited|approv\w+|manager|supervisor|escalate|refuse|decline)\b"
);
// What has to be said or asked for such an amount, which is no prohibition, unless somebody else decides.
regex!(
    TELLS,
    r"(?i)\b(?:confirm\w*|ask\w*|includ\w*|mention\w*|inform\w*|tell|warn\w*|remind\w*|add(?:ed)?)\b"
);
regex!(
    FORBIDS,
    r"(?i)\b(?:only|not|never|no|cannot|can't|forbidden|prohibited|approv\w+|manager|supervisor|escalate|refuse|decline)\b"
);
regex!(
    CONDITION,
    r"(?i)\b(?:if|when|whenever|except|for (?:gold|silver|premium|new|vip|members?))\b|\bunless\b"
);
regex!(APPROVED, r"(?i)\bunless\b[^.]{0,40}\b(?:approv|manager|supervisor|confirm|authori[sz])");
/// Words of the names of tools that ask for a decision, and of others that make none.
const ASKS: [&str; 7] = ["approval", "approve", "request", "escalate", "manager", "supervisor", "ask"];
pub(super) const PREPARES: [&str; 7] =
    ["review", "draft", "propose", "quote", "estimate", "check", "simulate"];
/// Words of arguments that are amounts of money, and shares.
const AMOUNTS: [&str; 8] = ["amount", "sum", "total", "price", "value", "cost", "refund", "payment"];
const SHARES: [&str; 5] = ["percent", "percentage", "pct", "rate", "discount"];

#[derive(Clone, PartialEq, Debug)]
enum Unit {
    Money,
    Percent,
    /// The stem of the noun behind the number.
    Of(String),
}

#[derive(Debug)]
struct Limit {
    most: f64,
    unit: Unit,
    /// The stems of its sentence.
    about: Vec<String>,
    sentence: String,
}

/// The limits of instructions, read once per trace.
struct Limits(Vec<Limit>);

impl Limits {
    fn of(text: &Text, memo: &Memo) -> Rc<Limits> {
        memo.of(text, |text| {
            if !numbers::has_digit(text) {
                return Limits(Vec::new());
            }
            let sentences = sentences(text).into_iter().filter_map(|(start, end)| text.get(start..end));
            Limits(sentences.flat_map(of_sentence).take(MAX_LIMITS).collect())
        })
    }
}

fn of_sentence(sentence: &str) -> Vec<Limit> {
    let is_plain = |text: &str| !CONDITION.is_match(text) || APPROVED.is_match(text);
    if sentence.len() > MAX_SENTENCE || !numbers::has_digit(sentence) || !is_plain(sentence) {
        return Vec::new();
    }
    let about: Vec<String> = stems(sentence).collect();
    let limit = |n: Number| {
        let before = sentence.get(..n.start)?.trim_end_matches(['€', '$', '£', '¥', ' ']);
        // "above EUR 200"
        let before = match before.rsplit_once(' ') {
            Some((before, word)) if currency::of(&lowercase(word)).is_some() => before,
            _ => before,
        };
        let before = crate::measure::defects::clip_end(before, BEFORE);
        // A demand to tell or to ask is none, unless the sentence forbids something as well.
        let is_demand =
            DEMANDS.is_match(sentence) && (FORBIDS.is_match(sentence) || !TELLS.is_match(sentence));
        let is_limit = AT_MOST.is_match(before) || ABOVE.is_match(before) && is_demand;
        let unit = unit_of(sentence, &n).filter(|_| is_limit && !n.in_identifier)?;
        Some(Limit { most: n.value, unit, about: about.clone(), sentence: sentence.trim().to_owned() })
    };
    numbers::all(sentence).into_iter().filter_map(limit).collect()
}

fn unit_of(sentence: &str, n: &Number) -> Option<Unit> {
    let before = sentence.get(..n.start)?.trim_end();
    let after = sentence.get(n.end..)?.trim_start();
    let is_money = |word: &str| currency::of(&lowercase(word)).is_some();
    let sign_before = before.chars().next_back().is_some_and(|c| is_money(&c.to_string()));
    let word_before = before.rsplit(' ').next().is_some_and(is_money);
    let word = after.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
    let sign = after.chars().next().filter(|c| !c.is_alphanumeric());
    if sign_before || word_before || is_money(word) || sign.is_some_and(|c| is_money(&c.to_string())) {
        return Some(Unit::Money);
    }
    if sign == Some('%') || word.eq_ignore_ascii_case("percent") || after.starts_with("per cent") {
        return Some(Unit::Percent);
    }
    (!word.is_empty()).then(|| Unit::Of(stems(word).next().unwrap_or_else(|| lowercase(word))))
}

/// Findings by agent and by the model span that requested the call.
pub(crate) fn find(trace: &AgentTrace, memo: &Memo, attempts: &CallAttempts) -> Vec<(usize, Idx, Finding)> {
    let mut out = Vec::new();
    for (i, agent) in trace.agents.iter().enumerate() {
        let Some(instructions) = agent_index::instructions(trace, i).filter(|text| text.len() <= MAX_BYTES)
        else {
            continue;
        };
        if !memo.budget.spend(instructions.len() / 16) {
            continue;
        }
        let limits = Limits::of(instructions, memo);
        if limits.0.is_empty() || !is_english(instructions, None, memo) {
            continue;
        }
        let made = agent
            .calls
            .iter()
            .filter(|call| attempts.has_succeeded(**call))
            .filter_map(|call| trace.calls.get(*call));
        let made: Vec<&Call> = made.collect();
        // What follows a request for approval may have been approved.
        let asked = made.iter().position(|call| is_named(call, &ASKS)).unwrap_or(made.len());
        for call in made.iter().take(asked).rev().take(MAX_CALLS) {
            let Some(llm) = call.llm else { continue };
            if let Some(finding) = exceeds(trace, memo, call, &limits.0) {
                out.push((i, llm, finding.citing_at(trace, call.at)));
            }
        }
    }
    out
}

fn is_named(call: &Call, words: &[&str]) -> bool {
    identifier_words(&call.name).iter().any(|word| words.contains(&word.as_str()))
}

/// The finding on a call whose amount is above every limit that is about it.
fn exceeds(trace: &AgentTrace, memo: &Memo, call: &Call, limits: &[Limit]) -> Option<Finding> {
    let purpose = ToolPurpose::of_call(trace, memo, call);
    if purpose.is_query() || is_named(call, &PREPARES) {
        return None;
    }
    let words = identifier_words(&call.name);
    let about = limits.iter().filter(|limit| is_about(&words, limit));
    let highest = about.filter_map(|limit| Some((limit, amount(call, memo, &limit.unit)?)));
    let (limit, (shown, amount)) = highest.max_by(|(a, _), (b, _)| a.most.total_cmp(&b.most))?;
    (amount > limit.most * (1.0 + 1e-9)).then(|| {
        let rationale = format!(
            "a call within the limit of the instructions was expected, \"{}\"; {} was called with {shown}",
            limit.sentence,
            call.name.trim()
        );
        Defect::ExceedsLimit.finding(rationale, quoted(call))
    })
}

/// Whether a limit is about what a tool does: its sentence has the action, where that is one of its own, or else
/// what it is done to.
fn is_about(words: &[String], limit: &Limit) -> bool {
    use Action::{Cancel, Delete, Pay, Refund, Return, Send, Transfer};
    let has = |word: &str| {
        let alike = |known: &String| {
            let stem = word.get(..word.len().min(5)).unwrap_or(word);
            known == word || stem.len() >= 4 && known.starts_with(stem)
        };
        limit.about.iter().any(alike)
    };
    let own = |word: &&String| {
        matches!(action_of(word), Some(Cancel | Delete | Pay | Refund | Return | Send | Transfer))
    };
    match words.iter().find(own) {
        Some(verb) => has(verb),
        None => words
            .iter()
            .filter(|word| action_of(word).is_none())
            .flat_map(|word| stems(word))
            .any(|w| has(&w)),
    }
}

/// The amount of a call in this unit, as it is written and as a number.
fn amount(call: &Call, memo: &Memo, unit: &Unit) -> Option<(String, f64)> {
    let is_of = |words: &[String]| {
        let any = |of: &[&str]| words.iter().any(|word| of.contains(&word.as_str()));
        match unit {
            Unit::Money => {
                (any(&AMOUNTS) || words.iter().any(|word| currency::of(word).is_some())) && !any(&SHARES)
            }
            Unit::Percent => any(&SHARES),
            Unit::Of(noun) => words.iter().any(|word| word == noun || stems(word).any(|stem| stem == *noun)),
        }
    };
    let scale =
        |words: &[String]| if words.iter().any(|w| w == "cents" || w == "minor") { 0.01 } else { 1.0 };
    let arguments = call.parsed.as_deref()?.as_object()?;
    let passed = arguments.iter().take(MAX_ARGUMENTS).filter_map(|(key, value)| {
        let words = identifier_words(key);
        let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())?;
        is_of(&words).then(|| (format!("{key}: {value}"), number * scale(&words)))
    });
    let passed: Vec<(String, f64)> = passed.collect();
    if let [only] = passed.as_slice() {
        return Some(only.clone());
    }
    // Without an amount among its arguments, the result says what was moved.
    let result = call.result.as_ref().filter(|_| passed.is_empty() && *unit == Unit::Money)?;
    let parsed = Structure::of(result, memo)?;
    let fields = parsed.0.as_ref()?.records.iter().flat_map(|record| &record.fields);
    let mut amounts =
        fields.filter(|field| is_of(&field.name)).filter_map(|field| Some((field, field.number()?)));
    let (field, number) = amounts.next().filter(|_| amounts.next().is_none())?;
    Some((format!("the result {}: {}", field.name.join(" "), field.shown()), number * scale(&field.name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::Script;

    fn found(system: &str, calls: &[(&str, &str, &str)]) -> usize {
        let names: Vec<&str> = calls.iter().map(|(name, ..)| *name).collect();
        let script = Script::new("Please take care of it.").system(system).tools(&names);
        let call = |script: Script, (name, arguments, result): &(&str, &str, &str)| {
            script.calls("", &[(name, arguments)]).returns(result)
        };
        let trace = calls.iter().fold(script, call).answers("Done.").build();
        let memo = Memo::new();
        find(&trace, &memo, &CallAttempts::get(&trace, &memo)).len()
    }

    const OK: &str = "{\"ok\":true}";

    #[test]
    fn amount_above_a_limit_is_found() {
        for (system, tool, arguments, result) in [
            ("Refunds above 200 EUR need a manager.", "issue_refund", r#"{"order":"7","amount":249.9}"#, OK),
            (
                "Refunds above 200 EUR need a manager.",
                "refund_order",
                r#"{"order":"7"}"#,
                r#"{"amount":249.9}"#,
            ),
            ("You may grant a discount of at most 10 %.", "apply_discount", r#"{"percent":15}"#, OK),
            ("A stay is limited to 14 nights.", "book_stay", r#"{"nights":21}"#, OK),
            (
                "Never transfer more than $5,000 at once.",
                "create_transfer",
                r#"{"amount":"7500","to":"x"}"#,
                OK,
            ),
            ("Doses must not exceed 400 mg in one order.", "order_dose", r#"{"dose_mg":600}"#, OK),
        ] {
            assert_eq!(found(system, &[(tool, arguments, result)]), 1, "{system}");
        }
    }

    #[test]
    fn amount_within_limits_or_of_another_thing_is_not_found() {
        for (system, tool, arguments) in [
            ("Refunds above 200 EUR need a manager.", "issue_refund", r#"{"amount":200}"#),
            ("Refunds above 200 EUR need a manager.", "issue_refund", r#"{"amount_cents":19900}"#),
            ("Refunds above 200 EUR need a manager.", "charge_card", r#"{"amount":300}"#),
            ("Refunds above 200 EUR need a manager.", "get_refund", r#"{"amount":300}"#),
            ("Orders above 500 EUR ship for free.", "place_order", r#"{"amount":700}"#),
            ("If the customer is new, orders of at most 100 EUR.", "place_order", r#"{"amount":700}"#),
            ("Discounts of up to 10 %, managers up to 20 %.", "apply_discount", r#"{"percent":15}"#),
            ("Orders above 500 EUR need approval.", "cancel_order", r#"{"amount":700}"#),
        ] {
            assert_eq!(found(system, &[(tool, arguments, OK)]), 0, "{system} {arguments}");
        }
        let read = [("get_quote", "{}", OK), ("apply_discount", r#"{"percent":15}"#, OK)];
        assert_eq!(found("You may grant a discount of at most 10 %.", &read), 1);
        let approved = [("request_approval", "{}", OK), ("issue_refund", r#"{"amount":300}"#, OK)];
        assert_eq!(found("Refunds above 200 EUR need a manager.", &approved), 0);
    }
}
