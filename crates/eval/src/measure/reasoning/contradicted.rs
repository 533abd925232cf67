//! Answers that say the opposite of what the tools returned.
//!
//! In: a request, the last result that its agent got (a JSON object or list of items), and the
//! answer. Out: findings on the model span that gave the answer: "none match" where items came
//! back, "the cheapest" that is not, a count that is another, "no" to a property that the item
//! has, and an identifier that nothing contains. Each needs both sides in so many words; where the
//! data can be read in two ways nothing is said.

use serde_json::{Map, Value};
use verdict_otlp::trace::Idx;

use super::answer::final_answer;
use super::answer_span::answered_by;
use crate::measure::agent::agent_index;
use crate::measure::agent::attempts::{Attempts, CallOutcome};
use crate::measure::defects::Defect;
use crate::measure::excerpt::head;
use crate::measure::{Finding, Memo};
use crate::recognise::{Agent, AgentTrace, Call, Content, Part};

/// Larger results are lists to be searched, not to be answered from at a glance.
const MAX_RESULT: usize = 256 * 1024;
/// Items of a result that are looked at.
const MAX_ITEMS: usize = 500;
/// A longer answer says more than the one thing that is checked here.
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
pub(crate) fn find(trace: &AgentTrace, memo: &Memo, attempts: &Attempts) -> Vec<(Idx, Finding)> {
    let mut out = Vec::new();
    for (i, agent) in trace.agents.iter().enumerate() {
        let Some(at) = answered_by(trace, memo, agent) else { continue };
        let Some(view) = trace.views.get(at).filter(|r| r.output_content == Content::Present) else {
            continue;
        };
        let Some(answer) =
            final_answer(&trace.control_tools, view).or_else(|| agent.answer.as_deref().map(str::to_owned))
        else {
            continue;
        };
        if answer.len() > MAX_ANSWER {
            continue;
        }
        let Some(task) = agent_index::task(trace, i) else { continue };
        let Some(call) = only_result(trace, attempts, agent, at) else { continue };
        let Some(text) = call.result.as_ref().filter(|r| r.len() <= MAX_RESULT) else { continue };
        let Some(value) = parse_result(memo, text) else { continue };
        let exchange =
            Exchange { task, answer: &answer, result: text, items: items(&value), value: &value, call };
        let mut found = exchange.findings();
        found.extend(unknown_identifier(trace, agent, at, task, &answer));
        out.extend(found.into_iter().map(|f| (at, f.citing_at(trace, call.at))));
    }
    out
}

struct ParsedResult(Option<Value>);

fn parse_result(memo: &Memo, text: &crate::recognise::Text) -> Option<Value> {
    memo.of(text, |t| {
        ParsedResult(
            Some(t.trim()).filter(|t| t.starts_with(['{', '['])).and_then(|t| serde_json::from_str(t).ok()),
        )
    })
    .0
    .clone()
}

/// The only successful call, or the last of several to one tool: what the answer was made from.
fn only_result<'a>(
    trace: &'a AgentTrace,
    attempts: &Attempts,
    agent: &'a Agent,
    at: Idx,
) -> Option<&'a Call> {
    let end = trace.tree.spans.get(at).map_or(0, |s| s.start);
    let succeeded = |c: &&usize| {
        attempts.at(**c).is_some_and(|a| !a.is_control && a.outcome == CallOutcome::Succeeded)
            && trace.calls.get(**c).is_some_and(|call| call.start <= end)
    };
    let mut good = agent.calls.iter().filter(succeeded);
    let only = good.next()?;
    match good.next() {
        None => trace.calls.get(*only),
        Some(_) => None,
    }
}

/// The items of a result: its list, or the one list of objects in it.
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

/// A request, what came back, and what was answered.
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
            "an answer that agrees with {} was expected; it returned {expected}",
            self.call.name.trim()
        );
        Defect::ContradictsResult.finding(rationale, self.answer.trim())
    }

    /// "None match", though the query that carried the request's conditions brought items.
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
        let best = match least {
            true => values.fold(f64::INFINITY, f64::min),
            false => values.fold(f64::NEG_INFINITY, f64::max),
        };
        let mut named = eligible.iter().filter(|i| self.names(i));
        let value = number(named.next().filter(|_| named.next().is_none())?)?;
        let off = (value - best).abs() > 1e-9 && best.is_finite();
        off.then(|| self.finding(format!("an item with {field} {best}, where the one named has {value}")))
    }

    /// The number that is compared: a price where the request is about one, else the only one.
    fn field(&self) -> Option<&str> {
        let first = self.items.first()?;
        let everywhere = |key: &&String| self.items.iter().all(|i| i.get(*key).is_some_and(Value::is_number));
        let mut keys = first.keys().filter(everywhere);
        let price = |k: &String| ["price", "cost", "amount", "fare"].iter().any(|w| k.contains(w));
        match first.keys().filter(everywhere).find(|k| price(k)) {
            Some(key) => Some(key),
            None => keys.next().filter(|_| keys.next().is_none()).map(String::as_str),
        }
    }

    /// Flags of the item that the request speaks of are set.
    fn eligible(&self, item: &Map<String, Value>) -> bool {
        let task = self.task.to_lowercase();
        item.iter().all(|(key, value)| value != &Value::Bool(false) || !task.contains(&key.to_lowercase()))
    }

    /// The answer speaks of this item and of no other: an identifier of it is there.
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

    /// A count that is another than the result's.
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

    /// "No" to a property that the item has in so many words, or "yes" to one that it has not.
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

/// An identifier in the answer that neither the request nor anything that came back contains.
fn unknown_identifier(
    trace: &AgentTrace,
    agent: &Agent,
    at: Idx,
    task: &str,
    answer: &str,
) -> Option<Finding> {
    let results = agent.calls.iter().filter_map(|c| trace.calls.get(*c)).filter_map(|c| c.result.as_deref());
    let prompt = trace.views.get(at).into_iter().flat_map(|r| &r.input).flat_map(|m| &m.parts);
    let stated_by_result = prompt.filter_map(|p| match p {
        Part::Text(t) => Some(&**t),
        Part::Result { content, .. } => Some(&**content),
        _ => None,
    });
    let seen: Vec<&str> = results.chain(stated_by_result).chain([task]).collect();
    let mut named = IDENTIFIER.captures_iter(answer).filter_map(|c| Some(c.get(1)?.as_str()));
    let unknown = named.find(|id| !seen.iter().any(|text| text.contains(id)))?;
    let rationale = format!(
        "an identifier of the request or of a result was expected; the answer names {unknown}, which is in neither"
    );
    Some(Defect::UnsupportedFact.finding(rationale, answer.trim()))
}
