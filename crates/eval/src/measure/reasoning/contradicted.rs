//! Answers that contradict the results of tools.
//!
//! In: a request, the only result of its agent (a JSON object or list of items), and the answer. Out:
//! findings on the model span that gave the answer: "none match" though items were returned, a wrong
//! "cheapest" item, a wrong count, "no" to a property that the item has, and an identifier that occurs
//! nowhere. Each requires explicit statements on both sides; ambiguous data is no finding.

use serde_json::{Map, Value};
use verdict_otlp::trace::Idx;

use super::answer::final_answer;
use super::answer_span::answered_by;
use crate::measure::agent::agent_index;
use crate::measure::agent::attempts::{CallAttempts, CallOutcome};
use crate::measure::conversation::prompt_texts;
use crate::measure::defects::Defect;
use crate::measure::excerpt::head;
use crate::measure::{Finding, Memo};
use crate::recognise::{Agent, AgentTrace, Call, Content, json_keys};

/// Most bytes of a result; larger results are usually filtered before the answer.
const MAX_RESULT: usize = 256 * 1024;
/// Most items of a result that are compared.
const MAX_ITEMS: usize = 500;
/// Most bytes of an answer; a longer one makes more than one statement.
const MAX_ANSWER: usize = 1200;

regex!(
    NONE,
    r"(?i)^\W*(?:there (?:are|is|were|was) )?(?:no|none|zero)\b[^.]{0,60}\b(?:match(?:es|ed|ing)?|found|available|meets?|satisf(?:y|ies)|items?|results?|options?|products?|records?|entries)\b"
);
regex!(
    LEAST,
    r"(?i)\b(cheapest|lowest|least expensive|smallest|fewest|minimum|shortest|lightest|earliest|youngest)\b"
);
regex!(
    MOST,
    r"(?i)\b(most expensive|highest|largest|biggest|greatest|maximum|longest|heaviest|priciest|dearest|oldest)\b"
);
regex!(COUNTED, r"(?i)\bthere (?:are|is|were|was) (?:exactly |only )?(\d{1,9})\b");
regex!(HOW_MANY, r"(?i)\bhow many\b");
regex!(
    IDENTIFIER,
    r#"(?i)\b(?:id|item|record|order|ticket|invoice|reference|ref|case|account|product|sku|customer|user|booking)s?(?:[\s_\\]*(?:id|no|number))?[\s#:=*"'`.\\(]{1,4}([0-9]{6,})\b"#
);
regex!(NO, r"(?i)^\W*no\b[\s,.!]");
regex!(YES, r"(?i)^\W*yes\b[\s,.!]");

/// Findings by the model span that gave each agent's answer.
pub(crate) fn find(trace: &AgentTrace, memo: &Memo, attempts: &CallAttempts) -> Vec<(Idx, Finding)> {
    let mut out = Vec::new();
    for (i, agent) in trace.agents.iter().enumerate() {
        let Some(at) = answered_by(trace, memo, agent) else { continue };
        if let Some((call, findings)) = of_agent(trace, memo, attempts, i, agent, at) {
            out.extend(findings.into_iter().map(|finding| (at, finding.citing_at(trace, call.at))));
        }
    }
    out
}

/// Compares the answer of an agent, given in the span `at`, with the result that it follows from.
fn of_agent<'a>(
    trace: &'a AgentTrace,
    memo: &Memo,
    attempts: &CallAttempts,
    i: usize,
    agent: &'a Agent,
    at: Idx,
) -> Option<(&'a Call, Vec<Finding>)> {
    let view = trace.views.get(at).filter(|r| r.output_content == Content::Present)?;
    let answer =
        final_answer(&trace.control_tools, view).or_else(|| agent.answer.as_deref().map(str::to_owned));
    let answer = answer.filter(|answer| answer.len() <= MAX_ANSWER)?;
    let task = agent_index::task(trace, i)?;
    let call = only_successful_call(trace, attempts, agent, at)?;
    let result = call.result.as_ref().filter(|r| r.len() <= MAX_RESULT)?;
    let parsed = memo.of(result, |text| ParsedResult(parse_result(text)));
    let value = parsed.0.as_ref()?;
    let exchange = Exchange { task, answer: &answer, result, items: items(value), value, call };
    let mut findings = exchange.findings();
    findings.extend(unknown_identifier(trace, agent, at, task, &answer));
    Some((call, findings))
}

struct ParsedResult(Option<Value>);

fn parse_result(text: &str) -> Option<Value> {
    Some(text.trim()).filter(|t| t.starts_with(['{', '['])).and_then(json_keys::parse)
}

/// The only successful call before the span `at`; `None` if there are several.
fn only_successful_call<'a>(
    trace: &'a AgentTrace,
    attempts: &CallAttempts,
    agent: &Agent,
    at: Idx,
) -> Option<&'a Call> {
    let end = trace.tree.spans.get(at).map_or(0, |s| s.start);
    let succeeded =
        |i: usize| attempts.at(i).is_some_and(|a| !a.is_control && a.outcome == CallOutcome::Succeeded);
    let successful = agent.calls.iter().filter(|i| succeeded(**i)).filter_map(|i| trace.calls.get(*i));
    let mut before = successful.filter(|call| call.start <= end);
    before.next().filter(|_| before.next().is_none())
}

/// The items of a result: its list, or the only list of objects in it.
fn items(value: &Value) -> Vec<&Map<String, Value>> {
    let objects = |list: &'_ Vec<Value>| list.iter().take(MAX_ITEMS).all(Value::is_object);
    let list = match value {
        Value::Array(list) if objects(list) => Some(list),
        Value::Object(map) => {
            let mut lists = map.values().filter_map(Value::as_array).filter(|l| objects(l));
            let first = lists.next();
            first.filter(|_| lists.next().is_none())
        }
        _ => None,
    };
    list.into_iter().flatten().take(MAX_ITEMS).filter_map(Value::as_object).collect()
}

/// A request, the result, and the answer.
struct Exchange<'a> {
    task: &'a str,
    answer: &'a str,
    result: &'a str,
    value: &'a Value,
    items: Vec<&'a Map<String, Value>>,
    call: &'a Call,
}

impl Exchange<'_> {
    fn findings(&self) -> Vec<Finding> {
        let found = [self.none(), self.extreme(), self.count(), self.property()];
        found.into_iter().flatten().collect()
    }

    fn finding(&self, expected: String) -> Finding {
        let rationale = format!(
            "an answer that agrees with the result of {} was expected; it returned {expected}",
            self.call.name.trim()
        );
        Defect::ContradictsResult.finding(rationale, self.answer.trim())
    }

    /// "None match", though the query with the request's conditions returned items.
    fn none(&self) -> Option<Finding> {
        let says_none = NONE.is_match(self.answer);
        let conditions = self.call.parsed.as_deref().and_then(Value::as_object).map_or(0, Map::len);
        if !says_none || conditions < 2 || self.items.is_empty() {
            return None;
        }
        let first = self.items.first().map(|i| Value::Object((*i).clone()).to_string()).unwrap_or_default();
        Some(self.finding(format!(
            "{} item(s) for the conditions, the first {}",
            self.items.len(),
            head(&first, 100)
        )))
    }

    /// "The cheapest is X", though another item of the list is cheaper.
    fn extreme(&self) -> Option<Finding> {
        let least = LEAST.is_match(self.task);
        if least == MOST.is_match(self.task) || self.items.len() < 2 {
            return None;
        }
        let field = self.field()?;
        let number = |item: &Map<String, Value>| item.get(field).and_then(Value::as_f64);
        let eligible: Vec<&&Map<String, Value>> = self.items.iter().filter(|i| self.eligible(i)).collect();
        let values = eligible.iter().filter_map(|i| number(i));
        let best = values.reduce(if least { f64::min } else { f64::max })?;
        let mut named = eligible.iter().filter(|i| self.names(i));
        let value = number(named.next().filter(|_| named.next().is_none())?)?;
        let differs = (value - best).abs() > 1e-9 && best.is_finite();
        differs.then(|| self.finding(format!("an item with {field} {best}; the named item has {value}")))
    }

    /// The number that is compared: a price if the items have one, else the only number.
    fn field(&self) -> Option<&str> {
        let is_number = |key: &str| self.items.iter().all(|item| item.get(key).is_some_and(Value::is_number));
        let is_price = |key: &str| ["price", "cost", "amount", "fare"].iter().any(|word| key.contains(word));
        let keys: Vec<&str> =
            self.items.first()?.keys().map(String::as_str).filter(|key| is_number(key)).collect();
        let price = keys.iter().find(|key| is_price(key)).copied();
        price.or(keys.first().copied().filter(|_| keys.len() == 1))
    }

    /// Whether the flags of the item that the request mentions are set.
    fn eligible(&self, item: &Map<String, Value>) -> bool {
        let task = self.task.to_lowercase();
        item.iter().all(|(key, value)| value != &Value::Bool(false) || !task.contains(&key.to_lowercase()))
    }

    /// Whether the answer contains an identifier of this item.
    fn names(&self, item: &Map<String, Value>) -> bool {
        item.iter().any(|(key, value)| match value {
            Value::String(s) => {
                s.len() >= 4
                    && key.to_lowercase().contains("id") | key.contains("name")
                    && self.answer.contains(s.as_str())
            }
            Value::Number(n) if key.ends_with("id") => self.answer.contains(&n.to_string()),
            _ => false,
        })
    }

    /// A count that differs from that of the result.
    fn count(&self) -> Option<Finding> {
        let stated = match COUNTED.captures(self.answer) {
            Some(found) => found.get(1)?.as_str().parse::<u64>().ok()?,
            None if HOW_MANY.is_match(self.task) => self.answer.trim().trim_end_matches('.').parse().ok()?,
            None => return None,
        };
        let stated_by_result = ["count", "total", "total_count", "num_results"]
            .iter()
            .find_map(|key| self.value.get(key).and_then(Value::as_u64));
        let counted = stated_by_result.or((!self.items.is_empty()).then_some(self.items.len() as u64))?;
        let elsewhere = self.result.split(|c: char| !c.is_ascii_digit()).any(|n| n.parse() == Ok(stated));
        (stated != counted && !elsewhere).then(|| self.finding(format!("a count of {counted}")))
    }

    /// "No" to a property that the item has literally, or "yes" to one that it has not.
    fn property(&self) -> Option<Finding> {
        let (no, yes) = (NO.is_match(self.answer), YES.is_match(self.answer));
        let [item] = self.items.as_slice() else { return None };
        if no == yes {
            return None;
        }
        let task = self.task.to_lowercase();
        let leaves = leaves(item);
        let asked = |key: &str, value: &str| {
            ["=", " = ", ": ", " is ", " of ", " set to "]
                .iter()
                .any(|join| task.contains(&format!("{key}{join}{value}").to_lowercase()))
        };
        let (key, value) = leaves.iter().find(|(k, v)| match no {
            true => asked(k, v),
            false => task.contains(&format!("{k}=").to_lowercase()) && !asked(k, v),
        })?;
        Some(self.finding(format!("an item with {key} \"{value}\"")))
    }
}

/// Keys and texts of an item, and of the objects in it.
fn leaves(item: &Map<String, Value>) -> Vec<(&str, &str)> {
    let inner = item.values().filter_map(Value::as_object).flatten();
    item.iter().chain(inner).filter_map(|(k, v)| Some((k.as_str(), v.as_str()?))).collect()
}

/// An identifier in the answer that neither the request nor a result contains.
fn unknown_identifier(
    trace: &AgentTrace,
    agent: &Agent,
    at: Idx,
    task: &str,
    answer: &str,
) -> Option<Finding> {
    let results = agent.calls.iter().filter_map(|c| trace.calls.get(*c)).filter_map(|c| c.result.as_deref());
    let prompt = trace.views.get(at).into_iter().flat_map(prompt_texts).map(|text| &**text);
    let seen: Vec<&str> = results.chain(prompt).chain([task]).collect();
    let mut named = IDENTIFIER.captures_iter(answer).filter_map(|c| Some(c.get(1)?.as_str()));
    let unknown = named.find(|id| !seen.iter().any(|text| text.contains(id)))?;
    let rationale = format!(
        "an identifier of the request or of a result was expected; the answer names {unknown}, which is in neither"
    );
    Some(Defect::UnsupportedFact.finding(rationale, answer.trim()))
}
