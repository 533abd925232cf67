//! Checks by which rules answer questions.
//!
//! In: a [`Check`] and an agent's run. Out: yes or no with a quote, or `None` if the trace has no
//! content to check.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use verdict_config::matches;
use verdict_otlp::trace::{Idx, Kind};

use super::compiled::CompiledPattern;
use super::log::{LogSource, LogText, calls_within};
use crate::measure::Memo;
use crate::measure::calls::error_signs::call_error;
use crate::measure::defects::{QUOTE_BYTES, clip};
use crate::measure::excerpt::around;
use crate::measure::language::Language;
use crate::measure::language::names::month_pattern;
use crate::measure::path::argument::same_value;
use crate::measure::schema::{Schema, Validity};
use crate::measure::work_budget::BYTES_PER_STEP;
use crate::pattern::unicode_regex;
use crate::recognise::{Agent, AgentTrace, Call, Content};

/// How the rules answer a question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Check {
    /// The text occurs, in any case.
    Contains(Lookup),
    /// The searched text equals this one, except for surrounding white space and case; numbers are
    /// compared by value.
    Equals(Lookup),
    /// The regular expression matches anywhere.
    Matches(Lookup),
    /// A tool was called without failing; a result that is an error report is a failure.
    Called(Called),
    /// The final answer has this form.
    Answer(TextForm),
}

/// A text and where it is searched.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Lookup {
    /// The text or pattern.
    pub text: String,
    /// Default `answer`. Where to search.
    #[serde(rename = "in")]
    pub search_in: SearchIn,
    /// No key of the configuration; compiled at its first use.
    #[serde(skip)]
    #[schemars(skip)]
    pub compiled: CompiledPattern,
}

/// Where a text is searched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SearchIn {
    /// The agent's final answer.
    #[default]
    Answer,
    /// The outputs of models in its run.
    Outputs,
    /// The results of tools in its run.
    Results,
}

/// An expected call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Called {
    /// The tool's name; `*` at the end matches any rest.
    pub tool: String,
    /// Default any. Arguments that the call must have, by name.
    pub arguments: BTreeMap<String, Value>,
}

/// The form of a final answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[schemars(rename = "Form")]
pub enum TextForm {
    /// One number, with or without a unit.
    Number,
    /// A date, as 2026-11-21, 21 November 2026 or November 21, 2026.
    Date,
    /// JSON that is valid against this schema.
    Json(Value),
}

/// The result of a check.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct CheckResult {
    pub passed: bool,
    pub rationale: String,
    /// The evidence, verbatim.
    pub quote: String,
    /// The span of the evidence.
    pub at: Idx,
    /// Whether the final answer was checked.
    pub uses_answer: bool,
}

impl Check {
    /// The problem of the check's configuration, if it has one.
    pub(crate) fn problem(&self) -> Option<String> {
        match self {
            Check::Contains(Lookup { text, .. }) if text.is_empty() => Some("text is missing".to_owned()),
            Check::Matches(Lookup { text, .. }) => {
                unicode_regex(text).err().map(|error| format!("text is not a regular expression: {error}"))
            }
            Check::Called(Called { tool, .. }) if tool.is_empty() => Some("tool is missing".to_owned()),
            Check::Answer(TextForm::Json(schema)) => {
                let problem = Schema::compile(schema).problem()?;
                Some(format!("is not a supported JSON schema: {problem}"))
            }
            _ => None,
        }
    }

    /// The result of the check; `None` if the record contains nothing to check.
    pub(crate) fn evaluate(
        &self,
        trace: &AgentTrace,
        memo: &Memo,
        agent: &Agent,
        log: &[LogText],
    ) -> Option<CheckResult> {
        match self {
            Check::Called(called) => called.evaluate(trace, memo, agent),
            Check::Answer(form) => {
                let (text, span_index) = final_answer(agent)?;
                let passed = form.fits(text)?;
                let rationale =
                    format!("the final answer is {}{}", if passed { "" } else { "not " }, form.description());
                let quote = clip(text, QUOTE_BYTES).to_owned();
                Some(CheckResult { passed, rationale, quote, at: span_index, uses_answer: true })
            }
            Check::Contains(lookup) | Check::Equals(lookup) | Check::Matches(lookup) => {
                self.evaluate_lookup(lookup, memo, agent, log)
            }
        }
    }

    /// The result of a search for a text in the record; `None` if the record contains no text to search.
    fn evaluate_lookup(
        &self,
        lookup: &Lookup,
        memo: &Memo,
        agent: &Agent,
        log: &[LogText],
    ) -> Option<CheckResult> {
        let texts_from = |source| {
            let chunks = log.iter().filter(|chunk| chunk.source == source);
            chunks.map(|chunk| (chunk.text.as_str(), chunk.at)).collect()
        };
        let texts: Vec<(&str, Idx)> = match lookup.search_in {
            SearchIn::Answer => vec![final_answer(agent)?],
            SearchIn::Outputs => texts_from(LogSource::Output),
            SearchIn::Results => texts_from(LogSource::Result),
        };
        let last = *texts.last()?;
        let bytes: usize = texts.iter().map(|(text, _)| text.len()).sum();
        memo.budget.spend(texts.len() + bytes / BYTES_PER_STEP).then_some(())?;
        let first_match =
            texts.iter().find_map(|&(text, span_index)| Some((self.find_match(lookup, text)?, span_index)));
        let passed = first_match.is_some();
        let negation = if passed { "" } else { "nothing in " };
        let (searched_text, text) = (lookup.search_in.description(), clip(&lookup.text, QUOTE_BYTES));
        let rationale = format!("{negation}{searched_text} {} \"{text}\"", self.verb());
        let (quote, span_index) =
            first_match.unwrap_or_else(|| (clip(last.0, QUOTE_BYTES).to_owned(), last.1));
        Some(CheckResult {
            passed,
            rationale,
            quote,
            at: span_index,
            uses_answer: lookup.search_in == SearchIn::Answer,
        })
    }

    /// The verb between the searched texts and the text of the check.
    fn verb(&self) -> &'static str {
        match self {
            Check::Equals(_) => "equals",
            Check::Matches(_) => "matches",
            _ => "contains",
        }
    }

    /// The passage of `text` that has the text of the check.
    fn find_match(&self, lookup: &Lookup, text: &str) -> Option<String> {
        match self {
            Check::Equals(_) => is_equal(&lookup.text, text).then(|| clip(text, QUOTE_BYTES).to_owned()),
            Check::Matches(_) => {
                let range = lookup.compiled.get(&lookup.text)?.find(text)?;
                Some(around(text, range.start(), range.end().min(range.start() + QUOTE_BYTES), 0).to_owned())
            }
            _ => {
                let (lower, searched) = (text.to_lowercase(), lookup.text.to_lowercase());
                let start = lower.find(&searched)?;
                // If lower case changes the length, the quote is taken from the lower-case text.
                let text = if lower.len() == text.len() { text } else { lower.as_str() };
                Some(clip(text.get(start..)?, searched.len().min(QUOTE_BYTES)).to_owned())
            }
        }
    }
}

impl SearchIn {
    fn description(self) -> &'static str {
        match self {
            SearchIn::Answer => "the final answer",
            SearchIn::Outputs => "the outputs of models",
            SearchIn::Results => "the results of tools",
        }
    }
}

impl Called {
    /// The result of the check; `None` if the record cannot show that the call was not made: no calls are recorded, or
    /// a call that may be the expected one is recorded without its arguments.
    fn evaluate(&self, trace: &AgentTrace, memo: &Memo, agent: &Agent) -> Option<CheckResult> {
        let run_calls = calls_within(trace, memo, agent.at);
        let calls = || run_calls.iter().filter_map(|&i| trace.calls.get(i));
        let calls_of_tool: Vec<&Call> = calls().filter(|call| matches(&self.tool, &call.name)).collect();
        let has_arguments = |call: &&&Call| {
            let parsed = call.parsed.as_deref();
            self.arguments.iter().all(|(key, value)| {
                parsed.and_then(|parsed| parsed.get(key)).is_some_and(|actual| same_value(actual, value))
            })
        };
        let matching =
            calls_of_tool.iter().find(|call| has_arguments(call) && call_error(trace, memo, call).is_none());
        if matching.is_none() {
            let may_fit = |call: &&Call| !self.arguments.is_empty() && !is_readable(call);
            if calls_of_tool.iter().any(may_fit)
                || calls_of_tool.is_empty() && !shows_calls(trace, agent.at, calls().next())
            {
                return None;
            }
        }
        let call = matching.or(calls_of_tool.last());
        let outcome = match (matching, call) {
            (Some(_), _) => "was called as expected",
            (None, None) => "was never called",
            _ if calls_of_tool.iter().any(|call| has_arguments(&call)) => "was called and failed",
            _ => "was called only with other arguments",
        };
        let arguments = call.and_then(|call| call.arguments.as_deref()).unwrap_or_default();
        Some(CheckResult {
            passed: matching.is_some(),
            rationale: format!("{} {outcome}", self.tool),
            quote: clip(arguments, QUOTE_BYTES).to_owned(),
            at: call.map_or(agent.at, |call| call.at),
            uses_answer: false,
        })
    }
}

/// Whether the arguments of a call can be compared.
fn is_readable(call: &Call) -> bool {
    call.arguments_content == Content::Present && !call.too_large
}

/// Whether a call of the run would have been recorded: because another call is recorded, or all outputs of its models
/// are.
fn shows_calls(trace: &AgentTrace, agent_span: Idx, other: Option<&Call>) -> bool {
    let views = || trace.tree.subtree(agent_span).filter_map(|span| trace.views.get(span));
    let mut models = views().filter(|view| view.kind == Kind::Llm && !view.wrapper).peekable();
    other.is_some() || models.peek().is_some() && models.all(|view| view.output_content == Content::Present)
}

impl TextForm {
    fn description(&self) -> &'static str {
        match self {
            TextForm::Number => "a number",
            TextForm::Date => "a date",
            TextForm::Json(_) => "JSON of the schema",
        }
    }

    /// Whether the text has this form; `None` if the schema cannot be checked completely.
    fn fits(&self, text: &str) -> Option<bool> {
        let text = text.trim().trim_end_matches('.');
        Some(match self {
            TextForm::Number => is_one_number(text),
            TextForm::Date => DATE.is_match(text),
            TextForm::Json(schema) => {
                let Ok(value) = serde_json::from_str(text) else { return Some(false) };
                let validity = Schema::compile(schema).check(&value).validity;
                return (validity != Validity::Indeterminate).then_some(validity == Validity::Valid);
            }
        })
    }
}

/// The final answer and its span, if it was recorded.
pub(crate) fn final_answer(agent: &Agent) -> Option<(&str, Idx)> {
    let text = agent.answer.as_deref().filter(|_| agent.answer_content == Content::Present)?;
    Some((text, agent.answer_at.unwrap_or(agent.at)))
}

/// Whether two texts are equal, except for surrounding white space, a final full stop and case; numbers by value.
fn is_equal(a: &str, b: &str) -> bool {
    let (a, b) = (a.trim().trim_end_matches('.'), b.trim().trim_end_matches('.'));
    match (number(a), number(b)) {
        (Some(a), Some(b)) => a == b,
        _ => a.to_lowercase() == b.to_lowercase(),
    }
}

/// A number with optional separators of thousands: `1,234.5`.
fn number(text: &str) -> Option<f64> {
    let plain: String =
        text.chars().filter(|c| !matches!(c, ',' | '_' | ' ' | '\u{a0}' | '\u{202f}')).collect();
    plain.parse::<f64>().ok().filter(|n| n.is_finite())
}

/// Whether the text is one number with at most three words around it, as a currency or a unit.
fn is_one_number(text: &str) -> bool {
    let is_digit = |c: char| c.is_ascii_digit();
    let (Some(first), Some(last)) = (text.find(is_digit), text.rfind(is_digit)) else { return false };
    let middle = text.get(first..=last).unwrap_or_default();
    let sides = [text.get(..first).unwrap_or_default(), text.get(last + 1..).unwrap_or_default()];
    let words: usize = sides.iter().map(|side| side.split_whitespace().count()).sum();
    number(middle).is_some() && words <= 3
}

regex!(DATE, &date());

/// A pattern of dates in usual forms.
fn date() -> String {
    let (english, any) = (month_pattern(&[Language::English]), month_pattern(&Language::ALL));
    let day = "(?:0?[1-9]|[12][0-9]|3[01])";
    let forms = [
        format!("[0-9]{{4}}-(?:0[1-9]|1[0-2])-{day}(?:[T ][0-9:.+Z-]{{4,30}})?"),
        format!(
            "{day}(?:st|nd|rd|th|er|º)?\\.? (?:of |de |d[ei]l? )?(?:{any})\\.?,? (?:de |del )?[0-9]{{4}}"
        ),
        format!("(?:{english})\\.? {day}(?:st|nd|rd|th)?,? [0-9]{{4}}"),
        format!("{day}[./]{day}[./][0-9]{{4}}"),
    ];
    format!("(?i)^(?:{})$", forms.join("|"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::log::texts;
    use super::*;
    use crate::measure::testing::Script;

    fn run() -> AgentTrace {
        Script::new("What does order 7 cost?")
            .calls("", &[("get_order", r#"{"id": 7, "full": true}"#)])
            .returns("Order 7: 12.50 EUR")
            .answers("12.50 EUR")
            .build()
    }

    fn evaluate(yaml: &str) -> Option<CheckResult> {
        let check: Check = serde_saphyr::from_str(yaml).unwrap();
        assert_eq!(check.problem(), None);
        let trace = run();
        check.evaluate(
            &trace,
            &Memo::new(),
            &trace.agents[0],
            &texts(&trace, &Memo::new(), &trace.agents[0], None),
        )
    }

    #[test]
    fn lookup_searches_the_configured_place() {
        assert!(evaluate("contains: { text: eur }").unwrap().passed);
        assert!(!evaluate("contains: { text: Order }").unwrap().passed);
        let found = evaluate("contains: { text: order 7, in: results }").unwrap();
        assert_eq!((found.passed, found.quote.as_str()), (true, "Order 7"));
        assert!(evaluate("matches: { text: '^[0-9.]+ EUR$' }").unwrap().passed);
        assert!(!evaluate("equals: { text: '12.5' }").unwrap().passed);
        assert!(evaluate("equals: { text: ' 12.50 eur ' }").unwrap().passed);
    }

    #[test]
    fn call_matches_by_name_and_arguments() {
        assert!(evaluate("called: { tool: 'get_*', arguments: { id: 7.0 } }").unwrap().passed);
        let other = evaluate("called: { tool: get_order, arguments: { id: 8 } }").unwrap();
        assert_eq!(
            (other.passed, other.rationale.as_str()),
            (false, "get_order was called only with other arguments")
        );
        let never = evaluate("called: { tool: refund }").unwrap();
        assert_eq!((never.passed, never.rationale.as_str()), (false, "refund was never called"));
    }

    #[test]
    fn call_is_not_denied_without_evidence() {
        let check = |yaml: &str, trace: &AgentTrace| {
            let check: Check = serde_saphyr::from_str(yaml).unwrap();
            check.evaluate(trace, &Memo::new(), &trace.agents[0], &[]).map(|found| found.passed)
        };
        let with_arguments = "called: { tool: get_order, arguments: { id: 8 } }";
        let mut hidden = run();
        hidden.calls[0].arguments_content = Content::Absent;
        (hidden.calls[0].arguments, hidden.calls[0].parsed) = (None, None);
        assert_eq!(check(with_arguments, &hidden), None, "its arguments may be these");
        assert_eq!(check("called: { tool: get_order }", &hidden), Some(true));
        assert_eq!(check("called: { tool: refund }", &hidden), Some(false), "calls are recorded");
        let without_content = Script::new("What?").says("").build_without_content();
        assert_eq!(check("called: { tool: refund }", &without_content), None, "no calls are recorded");
        let without_calls = Script::new("What?").answers("Nothing.").build();
        assert_eq!(check("called: { tool: refund }", &without_calls), Some(false));
    }

    #[test]
    fn long_results_are_searched_whole() {
        let result = format!("{}end of the list", "An entry of the list.\n".repeat(200));
        let trace =
            Script::new("List.").calls("", &[("list", "{}")]).returns(&result).answers("Done.").build();
        let evaluate = |check: Check| {
            let log = texts(&trace, &Memo::new(), &trace.agents[0], None);
            check.evaluate(&trace, &Memo::new(), &trace.agents[0], &log).unwrap().passed
        };
        let lookup = |text: &str| Lookup {
            text: text.to_owned(),
            search_in: SearchIn::Results,
            compiled: CompiledPattern::default(),
        };
        assert!(evaluate(Check::Equals(lookup(&result))));
        assert!(evaluate(Check::Matches(lookup("(?s)^An entry.*end of the list$"))));
    }

    #[test]
    fn nested_numbers_are_compared_by_value() {
        let trace = Script::new("Buy.")
            .calls("", &[("buy", r#"{"items": [{"n": 2}]}"#)])
            .returns("ok")
            .answers("Done.")
            .build();
        let check: Check =
            serde_saphyr::from_str("called: { tool: buy, arguments: { items: [{ n: 2.0 }] } }").unwrap();
        assert!(check.evaluate(&trace, &Memo::new(), &trace.agents[0], &[]).unwrap().passed);
    }

    #[test]
    fn call_with_an_error_as_its_result_does_not_count_as_made() {
        let trace = Script::new("Refund order 7.")
            .calls("", &[("refund", r#"{"id": 7}"#)])
            .returns("Error: customer not found")
            .answers("Done.")
            .build();
        let check: Check = serde_saphyr::from_str("called: { tool: refund }").unwrap();
        let found = check.evaluate(&trace, &Memo::new(), &trace.agents[0], &[]).unwrap();
        assert_eq!((found.passed, found.rationale.as_str()), (false, "refund was called and failed"));
    }

    #[test]
    fn answer_is_checked_against_its_form() {
        assert!(evaluate("answer: number").unwrap().passed);
        assert!(!evaluate("answer: date").unwrap().passed);
        for number in ["836", "-3.5", "1,234 metres", "about 12 km", "$ 5"] {
            assert!(TextForm::Number.fits(number) == Some(true), "{number}");
        }
        for other in ["between 3 and 5", "none", "The order from 2024 has 3 items in it", "3rd of May 4"] {
            assert!(TextForm::Number.fits(other) == Some(false), "{other}");
        }
        for date in
            ["2026-11-21", "21 November 2026", "November 21, 2026.", "2026-11-21T10:00:00Z", "21.11.2026"]
        {
            assert!(TextForm::Date.fits(date) == Some(true), "{date}");
        }
        assert!(TextForm::Date.fits("2026-13-41") == Some(false));
        let form = TextForm::Json(json!({"type": "object", "required": ["total"]}));
        assert!(
            form.fits(r#"{"total": 3}"#) == Some(true)
                && form.fits(r#"{"sum": 3}"#) == Some(false)
                && form.fits("3") == Some(false)
        );
    }

    #[test]
    fn pattern_is_compiled_once() {
        let check: Check = serde_saphyr::from_str("matches: { text: '^[0-9.]+ EUR$' }").unwrap();
        let Check::Matches(lookup) = &check else { panic!("another check") };
        let trace = run();
        let first = std::ptr::from_ref(lookup.compiled.get(&lookup.text).unwrap());
        assert!(check.evaluate(&trace, &Memo::new(), &trace.agents[0], &[]).unwrap().passed);
        assert!(std::ptr::eq(first, lookup.compiled.get("(").unwrap()), "the pattern is not read again");
    }

    #[test]
    fn missing_answer_gives_no_result() {
        let trace = Script::new("What?").says("").build_without_content();
        let check = Check::Answer(TextForm::Number);
        assert_eq!(check.evaluate(&trace, &Memo::new(), &trace.agents[0], &[]), None);
    }

    #[test]
    fn invalid_checks_are_problems() {
        let problem = |yaml: &str| serde_saphyr::from_str::<Check>(yaml).unwrap().problem();
        assert!(problem("matches: { text: '(' }").unwrap().contains("not a regular expression"));
        assert!(problem("called: {}").is_some() && problem("contains: {}").is_some());
        assert!(problem("answer: { json: { type: 12 } }").is_some());
    }
}
