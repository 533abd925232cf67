//! Checks limits on how much an agent reads, prints or requests at a time.
//!
//! Principle: an instruction that limits the amount of one step ("read the log 200 lines at a time", "request at most
//! 20 records per call") applies to every step of its kind: no call requests more, and no result contains more. A
//! result may contain twice the amount, since results have headings and wrappers.
//!
//! In: the system and user messages of a prompt, the calls or the code of the output, and their results.
//! Out: a finding on the model call that read more. A limit applies to the calls of a tool if its sentence contains a
//! word of the tool's name or a word for calls; it always applies to code that prints.

use serde_json::Value;

use super::prompt::sentence;
use crate::measure::calls::attempts::quoted;
use crate::measure::calls::call_index::CallIndex;
use crate::measure::conversation::{Turns, new_in_prompt, plain_text, writes_code};
use crate::measure::defects::{Defect, clip};
use crate::measure::excerpt::head;
use crate::measure::identifier::identifier_words;
use crate::measure::{Context, Finding};
use crate::recognise::{Call, Role, SpanView};

regex!(
    AMOUNT,
    r"(?i)\b(\d{1,3}(?:,\d{3})+|\d{1,7})\s+(?:[a-z]+\s+)?(characters?|chars?|bytes?|words?|lines?|rows?|records?|results?|items?|entries|hits?|files?|pages?|documents?|messages?)\b"
);
// Words after the amount that relate it to one step.
regex!(
    RATE,
    r"(?i)^\s*(?:[a-z]+\s+){0,3}?(?:at a time|at once|at one time|in one go|(?:per|in each|in every|in one|in a single|with each|with every) (?:step|read|call|request|query|page|batch|turn|print|time))\b"
);
// Words before the amount that limit reading or printing to it.
regex!(
    BOUND,
    r"(?i)\b(?:print|read|view|scan|display|show|load|open|fetch|retrieve|request|list|query|inspect|dump|download)\w*\b.*\b(?:only|at most|up ?to|(?:no|not|never) more than|maximum(?: of)?|limit(?:ed)? (?:to|of))\s+(?:the\s+)?(?:first\s+|last\s+)?$"
);
// Words of examples, and of sentences about the answer, whose length another rule checks.
regex!(EXCLUDED, r"(?i)\b(?:answer|respond|response|reply|summar\w+|example|e\.g)\b");
/// Words of parameters that set the number of requested items.
const COUNT_WORDS: [&str; 10] = ["limit", "max", "count", "size", "top", "num", "n", "k", "results", "items"];
/// The factor by which a result may exceed the limit, since results contain headings and wrappers.
const TOLERANCE: usize = 2;
/// Maximum texts of a prompt that are searched: limits are in the instructions and the task, which are the first ones.
const MAX_TEXTS: usize = 4;
/// Maximum bytes of a text that are searched.
const MAX_TEXT_BYTES: usize = 32 * 1024;
/// Maximum amounts of a text that are read.
const MAX_AMOUNTS: usize = 32;
/// Maximum calls of one output that are compared.
const MAX_CALLS: usize = 16;

/// A limit on the amount of one step.
#[derive(Clone, Debug, PartialEq)]
struct ReadingLimit {
    amount: usize,
    /// The unit as it is in the sentence, in lower case.
    unit: String,
    sentence: String,
}

struct CachedLimit(Option<ReadingLimit>);

/// Checks the reading limit of the prompt: `None` without a limit, or without a call or result to which it applies;
/// `Some(None)` if it is not exceeded.
pub(super) fn check_reading_limit(context: &Context<'_>, view: &SpanView) -> Option<Option<Finding>> {
    let limit = limit_of_prompt(context, view)?;
    let call_index = CallIndex::cached(context.trace, context.memo);
    let calls = call_index.by_llm.get(&context.at).map_or(&[][..], Vec::as_slice);
    let calls = calls.iter().take(MAX_CALLS).filter_map(|&i| context.trace.calls.get(i));
    let limited_calls: Vec<&Call> = calls.filter(|call| limit.applies_to(&call.name)).collect();
    if !limited_calls.is_empty() {
        return Some(limited_calls.into_iter().find_map(|call| limit.finding_on_call(context, call)));
    }
    if view.requests().next().is_some() || !writes_code(&view.output_text()) {
        return None;
    }
    let next = Turns::cached(context.trace, context.memo).after(context.at)?;
    let longest = new_in_prompt(context.trace.views.get(next)?).max_by_key(|text| text.len())?;
    Some(limit.finding_on_text(longest).map(|finding| finding.citing_at(context.trace, next)))
}

impl ReadingLimit {
    /// Whether the limit applies to calls of this tool.
    fn applies_to(&self, tool: &str) -> bool {
        let sentence = self.sentence.to_lowercase();
        let words = identifier_words(tool);
        ["call", "request", "tool"].iter().any(|word| sentence.contains(word))
            || words.iter().any(|word| word.len() >= 4 && sentence.contains(word.as_str()))
    }

    /// The finding if the call requests or returns more than the limit.
    fn finding_on_call(&self, context: &Context<'_>, call: &Call) -> Option<Finding> {
        if let Some((key, number)) = self.requested_excess(call) {
            let observation = format!("{} was called with {key} {number}", call.name.trim());
            return Some(self.finding(&observation, quoted(call)));
        }
        Some(self.finding_on_text(call.result.as_deref()?)?.citing_at(context.trace, call.at))
    }

    /// The parameter that requests more than the limit, with its value.
    fn requested_excess<'c>(&self, call: &'c Call) -> Option<(&'c str, u64)> {
        let stem = self.unit.trim_end_matches('s');
        let arguments = call.parsed.as_ref()?.as_object()?;
        arguments.iter().find_map(|(key, value)| {
            let number = value.as_u64().filter(|n| *n > self.amount as u64)?;
            let words = identifier_words(key);
            let names_unit = words.iter().any(|word| word.trim_end_matches('s') == stem);
            let counts_items = self.has_item_unit()
                && !words.is_empty()
                && words.iter().all(|word| COUNT_WORDS.contains(&word.as_str()));
            (names_unit || counts_items).then_some((key.as_str(), number))
        })
    }

    /// The finding if the text contains more than the limit.
    fn finding_on_text(&self, text: &str) -> Option<Finding> {
        let count = self.count(text)?;
        let observation = format!("{count} came back");
        (count > self.amount.saturating_mul(TOLERANCE)).then(|| self.finding(&observation, text.trim()))
    }

    fn finding(&self, observation: &str, quote: &str) -> Finding {
        let ReadingLimit { amount, unit, sentence } = self;
        let rationale = format!(
            "expected at most {amount} {unit} at a time, as the prompt says: \"{sentence}\"; {observation}"
        );
        Defect::ReadTooMuch.finding(rationale, quote)
    }

    /// Whether the unit is an item of a list, not a part of a text.
    fn has_item_unit(&self) -> bool {
        !self.unit.starts_with("char") && !["byte", "word", "line"].iter().any(|u| self.unit.starts_with(u))
    }

    /// The amount of a text in the unit; `None` if the unit is an item and the text contains no list.
    fn count(&self, text: &str) -> Option<usize> {
        match self.unit.as_str() {
            unit if unit.starts_with("char") => Some(text.chars().count()),
            unit if unit.starts_with("byte") => Some(text.len()),
            unit if unit.starts_with("word") => Some(text.split_whitespace().count()),
            unit if unit.starts_with("line") => Some(text.lines().count()),
            _ => longest_list(&crate::recognise::json_keys::parse(text)?),
        }
    }
}

/// The length of a list, or of the longest one in an object.
fn longest_list(value: &Value) -> Option<usize> {
    match value {
        Value::Array(items) => Some(items.len()),
        Value::Object(map) => map.values().filter_map(Value::as_array).map(Vec::len).max(),
        _ => None,
    }
}

/// The first limit in the system or user messages.
fn limit_of_prompt(context: &Context<'_>, view: &SpanView) -> Option<ReadingLimit> {
    let messages = view.input.iter().filter(|m| matches!(m.role, Role::System | Role::User));
    let mut texts = messages.flat_map(|m| &m.parts).filter_map(plain_text).take(MAX_TEXTS);
    texts.find_map(|text| context.memo.for_text(text, |t| CachedLimit(read_limit(t))).0.clone())
}

/// The first limit in a text.
fn read_limit(text: &str) -> Option<ReadingLimit> {
    let text = clip(text, MAX_TEXT_BYTES);
    AMOUNT.captures_iter(text).take(MAX_AMOUNTS).find_map(|captures| {
        let amount_match = captures.get(0)?;
        let amount = captures.get(1)?.as_str().replace(',', "").parse().ok().filter(|n| *n > 0)?;
        let sentence = sentence(text, amount_match.start(), amount_match.end());
        let amount_start = sentence.find(amount_match.as_str())?;
        let (before, after) =
            (sentence.get(..amount_start)?, sentence.get(amount_start + amount_match.len()..)?);
        let is_limit = RATE.is_match(after) || BOUND.is_match(before);
        (is_limit && !EXCLUDED.is_match(sentence)).then(|| ReadingLimit {
            amount,
            unit: captures.get(2).map_or("", |m| m.as_str()).to_lowercase(),
            sentence: head(sentence.trim(), 200).to_owned(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::{Script, row};
    use crate::measure::{Memo, Settings};
    use crate::recognise::AgentTrace;

    #[test]
    fn limits_of_one_step_are_read_in_every_unit() {
        for (text, amount, unit) in [
            ("Read files at most 500 characters at a time.", 500, "characters"),
            ("Page through the log 200 lines at a time.", 200, "lines"),
            ("When you inspect a table, print only the first 1,000 rows.", 1000, "rows"),
            ("Request no more than 20 records per call.", 20, "records"),
            ("Fetch up to 3 pages in one go!", 3, "pages"),
        ] {
            let limit = read_limit(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((limit.amount, limit.unit.as_str()), (amount, unit), "{text}");
        }
    }

    #[test]
    fn limits_of_answers_and_plain_amounts_are_not_read() {
        for text in [
            "Answer in at most 200 characters.",
            "Summarise the first 20 pages at once.",
            "The log has 500 lines.",
            "Read 3 files and compare them.",
            "For example, read 10 rows at a time.",
        ] {
            assert_eq!(read_limit(text), None, "{text}");
        }
    }

    fn outcome(trace: &AgentTrace) -> Option<Option<Finding>> {
        let (settings, memo, span_index) = (Settings::default(), Memo::new(), trace.agents[0].llms[0]);
        let context = Context {
            row: row("instruction_following"),
            trace,
            at: span_index,
            settings: &settings,
            memo: &memo,
            rule_measurements: &[],
        };
        check_reading_limit(&context, &trace.views[span_index])
    }

    fn outcome_of_call(rule: &str, arguments: &str, result: &str) -> Option<Option<Finding>> {
        let script = Script::new("Who is late?").system(rule).calls("", &[("list_orders", arguments)]);
        outcome(&script.returns(result).answers("Ada").build())
    }

    #[test]
    fn calls_are_compared_by_their_arguments_and_their_results() {
        let rule = "List orders 10 records at a time.";
        let found = outcome_of_call(rule, r#"{"limit":50}"#, "[]").unwrap().unwrap();
        assert!(found.rationale.contains("limit 50"), "{}", found.rationale);
        let thirty_items = format!("{:?}", [7; 30]);
        assert!(outcome_of_call(rule, "{}", &thirty_items).unwrap().is_some());
        assert!(outcome_of_call(rule, r#"{"limit":10}"#, "[1, 2]").unwrap().is_none());
        assert!(outcome_of_call(rule, r#"{"customer":5000}"#, "[1, 2]").unwrap().is_none());
        assert_eq!(outcome_of_call("Read mails 10 lines at a time.", r#"{"limit":50}"#, &thirty_items), None);
    }

    #[test]
    fn output_of_code_is_compared() {
        let run = |line_count: usize| {
            let script =
                Script::new("Fix it. Print at most 40 lines at a time.").says("```py\nprint(x)\n```");
            outcome(&script.user(&"row\n".repeat(line_count)).answers("done").build()).unwrap()
        };
        assert!(run(100).unwrap().rationale.contains("100 came back"));
        assert!(run(70).is_none());
    }
}
