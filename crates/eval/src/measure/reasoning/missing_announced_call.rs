//! Calls that a model announces and does not make.
//!
//! Principle: a model that announces a call of a certain tool or agent makes a call before its next turn, or before the
//! run ends. A message that is only printed reaches no recipient.
//!
//! In: a model's output ("I will ask the billing_agent"), the tools and agents that its agent may call, and the calls
//! before its next turn. Out: one finding for each output after which nothing was called. Only outputs with code and
//! outputs that end the run are checked, since other outputs may announce later calls. At the end of a run without any
//! call, an output also announces a call if it only promises the action of an offered tool ("Let me check the state of
//! your order"), or if it is the call itself, written as text. After a call that was repeated with the same result, it
//! does so if it promises a lookup once more.

use verdict_otlp::trace::Idx;

use crate::measure::calls::attempts::CallAttempts;
use crate::measure::conversation::{Turns, plain_text, writes_code};
use crate::measure::defects::Defect;
use crate::measure::language::{
    Action, ActionClaim, ReadText, SentenceKind, Tense, WordClass, WordClasses, classes,
};
use crate::measure::numbers::has_digit;
use crate::measure::tool_index::OfferedTo;
use crate::measure::tool_purpose::{ToolPurpose, offered_tools};
use crate::measure::{Finding, Memo, agent_index};
use crate::recognise::{Agent, AgentTrace, Content, Role, SpanView, Text, json_keys};

/// Classes of words by which an announced call depends on something else, such as a later time.
const CONDITION: WordClasses = classes!(Condition Sequence Probability);
// An identifier that is not an ordinary word: it has an underscore or an inner capital.
regex!(NAME, r"\b[A-Za-z]\w*(?:_|[a-z][A-Z])\w+\b");
// A name in quotation marks or marks of code.
regex!(MARKED, r#"[`"'*]([A-Za-z][\w.-]*\w)[`"'*]"#);
/// Maximum words after an announcement in which a name without a mark is searched for: "the", and the name.
const MAX_WORDS_AFTER: usize = 2;
/// Maximum agents of a trace that are checked; the first are checked.
const MAX_AGENTS: usize = 512;
/// Maximum outputs of one agent that are checked.
const MAX_TURNS: usize = 200;
/// Maximum bytes of a text that only announces a call.
const MAX_PROMISE_BYTES: usize = 300;
/// Maximum bytes of a fence or a tag around a call.
const MAX_MARK_BYTES: usize = 24;
/// Minimum equal calls at the end of a run that make no progress.
const MIN_REPETITIONS: usize = 3;
/// Maximum words of a sentence without content: "Of course!", "One moment, please."
const MAX_FILLER_WORDS: usize = 3;

/// A call that a model announced and did not make.
pub(crate) struct MissingCall {
    pub agent: usize,
    /// The model span that announced the call.
    pub at: Idx,
    pub tool: String,
    pub finding: Finding,
}

/// The calls that were announced and not made.
pub(crate) fn find(trace: &AgentTrace, memo: &Memo) -> Vec<MissingCall> {
    let turns = Turns::cached(trace, memo);
    let mut out = Vec::new();
    for (i, agent) in trace.agents.iter().enumerate().take(MAX_AGENTS) {
        let mut earlier_announcements = 0;
        for &at in agent.llms.iter().take(MAX_TURNS) {
            let Some(view) = trace.views.get(at) else { continue };
            if let Some((name, sentence)) = uncalled_announcement(trace, memo, i, agent, at, view) {
                let mut finding = finding(&name, &sentence, earlier_announcements);
                // The finding also cites the next turn, which shows that no call was made.
                let after = turns.after(at).and_then(|next| trace.tree.spans.get(next));
                finding.cited.extend(after.map(|s| s.id));
                out.push(MissingCall { agent: i, at, tool: name, finding });
                earlier_announcements += 1;
            }
        }
    }
    out
}

/// The tool that an output announces and the sentence that does so, if no call follows.
fn uncalled_announcement(
    trace: &AgentTrace,
    memo: &Memo,
    i: usize,
    agent: &Agent,
    at: Idx,
    view: &SpanView,
) -> Option<(String, String)> {
    let is_recorded = view.output_content == Content::Present && view.input_content == Content::Present;
    if !is_recorded || trace.incomplete || view.requests().next().is_some() || !view.plans.is_empty() {
        return None;
    }
    let text = view.output_text();
    let next = Turns::cached(trace, memo).after(at);
    let has_code = writes_code(&text);
    if !has_code && (next.is_some() || agent.answer_at != Some(at)) {
        return None;
    }
    let is_last = next.is_none()
        && agent.answer_at == Some(at)
        && (agent.calls.is_empty() || ends_in_repetition(trace, memo, agent));
    if is_last && !is_followed_by_call(trace, memo, i, at, next) {
        let call =
            written_call(&text).filter(|name| agent.calls.is_empty() && is_offered(trace, memo, i, name));
        let announced =
            call.map(|name| (name, text.trim().to_owned())).or_else(|| promised_call(trace, memo, i, &text));
        if announced.is_some() {
            return announced;
        }
    }
    let task = agent_index::task(trace, i);
    let read_text = ReadText::new(&text, task.map(|task| &**task), memo);
    let (name, sentence) = read_text.announcements().into_iter().find_map(|(sentence, words_after)| {
        if !has_code && read_text.classes(sentence).has_any(CONDITION) {
            return None;
        }
        let is_known = |name: &&str| is_offered(trace, memo, i, name);
        let words = || sentence.split(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | '-' | '.'));
        let verbatim = |lower: &str| words().find(|word| word.eq_ignore_ascii_case(lower));
        let mut after = words_after.split(' ').take(MAX_WORDS_AFTER).filter_map(verbatim);
        let mut marked = MARKED.captures_iter(sentence).filter_map(|found| Some(found.get(1)?.as_str()));
        let mut names = NAME.find_iter(sentence).map(|found| found.as_str());
        let name = marked
            .find(is_known)
            .or_else(|| after.find(is_known))
            .or_else(|| names.find(|name| is_known(name) || instructions_mention(trace, view, name)))?;
        Some((name.to_owned(), sentence.to_owned()))
    })?;
    let called_in_code = text
        .match_indices(&name)
        .any(|(p, n)| text.get(p + n.len()..).is_some_and(|after| after.trim_start().starts_with('(')));
    (!called_in_code && !is_followed_by_call(trace, memo, i, at, next)).then_some((name, sentence))
}

/// Whether the last calls of the agent are equal and have equal results.
fn ends_in_repetition(trace: &AgentTrace, memo: &Memo, agent: &Agent) -> bool {
    let attempts = CallAttempts::get(trace, memo);
    let last = agent.calls.iter().rev().take(MIN_REPETITIONS);
    let mut last = last.map(|i| (attempts.at(*i).and_then(|a| a.key.as_ref()), trace.calls.get(*i)));
    let Some((Some(key), Some(call))) = last.next().filter(|_| agent.calls.len() >= MIN_REPETITIONS) else {
        return false;
    };
    last.all(|(other, earlier)| {
        other == Some(key) && earlier.is_some_and(|earlier| earlier.result == call.result)
    })
}

/// The tool that a text calls, if it consists of a call in JSON.
fn written_call(text: &str) -> Option<String> {
    let start = text.find('{')?;
    let end = text.rfind('}')?;
    // Only a fence or a tag may be around the call.
    let outer_parts = [text.get(..start)?, text.get(end + 1..)?];
    let is_mark = |part: &str| part.len() <= MAX_MARK_BYTES && !part.trim().contains([' ', '\n']);
    let call = json_keys::parse(text.get(start..=end)?).filter(|_| outer_parts.into_iter().all(is_mark))?;
    let get = |keys: &[&str]| keys.iter().find_map(|key| call.get(*key));
    get(&["arguments", "args", "parameters", "input", "action_input", "tool_input"])?;
    let name = get(&["name", "tool", "tool_name", "function", "action"])?;
    name.as_str().map(str::to_owned)
}

/// The offered tool for a promised action and the sentence that promises it, if the text consists of promises.
fn promised_call(trace: &AgentTrace, memo: &Memo, i: usize, text: &str) -> Option<(String, String)> {
    let task = agent_index::task(trace, i);
    // A number is information for the user unless the request has it, such as the number of an order.
    let is_repeated = |word: &str| {
        let word = word.trim_matches(|c: char| !c.is_alphanumeric());
        task.is_some_and(|task| task.contains(word))
    };
    let mut figures = text.split_whitespace().filter(|word| has_digit(word));
    if text.len() > MAX_PROMISE_BYTES
        || text.contains(['?', '？'])
        || !figures.all(is_repeated)
        || !memo.budget.spend(text.len() / 4)
    {
        return None;
    }
    let analysed = ReadText::new(text, task.map(|task| &**task), memo);
    let promises: Vec<ActionClaim<'_>> =
        analysed.claims_of_action().into_iter().filter(|claim| claim.tense == Tense::Promised).collect();
    let language = analysed.languages().next().filter(|_| analysed.is_known() && !promises.is_empty())?;
    let depends = |classes: WordClasses| classes.has_any(CONDITION) || classes.has(WordClass::RelativeDay);
    if depends(language.places(text, memo).all()) {
        return None;
    }
    let is_promise = |sentence: &str| promises.iter().any(|claim| claim.sentence == sentence);
    let is_filler = |sentence: &str| sentence.split_whitespace().count() <= MAX_FILLER_WORDS;
    let mut sentences = analysed.classified(language, [SentenceKind::Padding]);
    let asks = |sentence: &str| analysed.part(sentence).ends_with_question();
    let only_promises = sentences.all(|(sentence, padding)| {
        !asks(sentence.text) && (padding.is_some() || is_promise(sentence.text) || is_filler(sentence.text))
    });
    let carries_out = |tool: &ToolPurpose, action: Action| match action.is_work() {
        true => tool.is_query(),
        false => tool.actions.first() == Some(&action),
    };
    let tools =
        offered_tools(trace, i).map(|tool| (tool, ToolPurpose::new(&tool.name, tool.description.as_deref())));
    let tools: Vec<_> = tools.filter(|_| only_promises).collect();
    // After calls, the promise of an action may be about another action than theirs.
    let has_called = trace.agents.get(i).is_some_and(|agent| !agent.calls.is_empty());
    promises.iter().filter(|claim| !has_called || claim.action.is_work()).find_map(|claim| {
        let (tool, _) = tools.iter().find(|(_, purpose)| carries_out(purpose, claim.action))?;
        Some((tool.name.to_string(), claim.sentence.to_owned()))
    })
}

/// Whether `name` is a tool of agent `i`, or an agent of the trace.
fn is_offered(trace: &AgentTrace, memo: &Memo, i: usize, name: &str) -> bool {
    !trace.control_tools.is_control(name)
        && (OfferedTo::Agent(i).find(trace, memo, name).is_some()
            || agent_index::is_agent_name(trace, memo, name))
}

/// Whether the instructions contain `name`, since not every instrumentation lists the tools.
fn instructions_mention(trace: &AgentTrace, view: &SpanView, name: &str) -> bool {
    !trace.control_tools.is_control(name) && instructions(view).any(|t| t.contains(name))
}

/// The instructions in a model call's prompt.
pub(super) fn instructions(view: &SpanView) -> impl Iterator<Item = &str> {
    instruction_texts(view).map(|text| &**text)
}

/// The texts of the system messages in a model call's prompt.
pub(super) fn instruction_texts(view: &SpanView) -> impl Iterator<Item = &Text> {
    let system = view.input.iter().filter(|m| m.role == Role::System);
    system.flat_map(|m| &m.parts).filter_map(plain_text)
}

/// Whether a call was made, or a sub-agent started, between the turns `at` and `next`. True beyond the work budget.
fn is_followed_by_call(trace: &AgentTrace, memo: &Memo, i: usize, at: Idx, next: Option<Idx>) -> bool {
    let start = |at: Idx| trace.tree.spans.get(at).map_or(0, |s| s.start);
    let (from, to) = (start(at), next.map_or(u64::MAX, start));
    let first_later = trace.calls.partition_point(|call| call.start < from);
    let mut calls = trace.calls.iter().skip(first_later).take_while(|call| call.start < to);
    calls.any(|call| !memo.budget.spend(1) || !trace.control_tools.is_final_answer(&call.name))
        || agent_index::starts_agent_within(trace, memo, i, from..to)
}

fn finding(name: &str, sentence: &str, earlier_announcements: usize) -> Finding {
    let repeat_note = match earlier_announcements {
        0 => String::new(),
        n => format!(" ({n} earlier announcements without a call)"),
    };
    let rationale = format!(
        "a call to {name} was expected, as announced here; none was made before the next turn{repeat_note}"
    );
    Defect::AnnouncedCallMissing.finding(rationale, sentence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::Script;

    fn finding_count(script: Script) -> usize {
        find(&script.build(), &Memo::new()).len()
    }

    #[test]
    fn run_that_ends_with_a_promise_is_found() {
        let run = |task: &str, tool: &str, text: &str| {
            finding_count(Script::new(task).tools(&[tool]).answers(text))
        };
        for (task, tool, text) in [
            ("Where is my order?", "get_order", "Sure! Let me check the status of your order."),
            ("Cancel my appointment.", "cancel_appointment", "I will cancel your appointment now."),
            (
                "Wie wird das Wetter morgen in Graz?",
                "get_weather",
                "Ich werde das Wetter in Graz für Sie nachschlagen.",
            ),
            ("Sum up the report.", "read_file", "One moment, please. I'll read the report."),
            ("Where is my order W-1001?", "get_order", "Let me check the status of order W-1001 for you."),
            ("Where is my parcel?", "get_order", "First I will call get_order to see the state."),
            ("Wo ist mein Paket?", "get_order", "Ich werde zuerst das Werkzeug get_order nutzen."),
            ("Où est mon colis ?", "get_order", "Je vais d'abord consulter get_order pour votre colis."),
            ("我的包裹在哪里?", "get_order", "接下来我将调用get_order查询您的包裹。"),
        ] {
            assert_eq!(run(task, tool, text), 1, "{text}");
        }
        for (task, tool, text) in [
            ("Where is my order?", "get_order", "Let me check: what is the number of your order?"),
            ("Where is my order?", "get_order", "Please tell me the number, then I will check it."),
            ("Where is my order?", "get_order", "I'll check the order once you have sent me its number."),
            ("Where is my order?", "cancel_order", "Let me check the status of your order."),
            ("Where is W-1001?", "get_order", "Let me check order W-1001: it left on 12 May."),
            ("How do you find my order?", "get_order", "I use get_order to look up the state of an order."),
            ("Wie finden Sie Pakete?", "get_order", "Ich nutze get_order, wenn ich ein Paket suche."),
            ("¿Cómo busca los pedidos?", "get_order", "Podría usar get_order, si me da el número."),
            ("荷物はどこですか。", "get_order", "必要な場合はget_orderを呼び出します。"),
            ("Check my order this afternoon.", "get_order", "I will check the order later today."),
            ("Thanks!", "get_order", "You're welcome. I'll be here."),
            (
                "How do I cook rice?",
                "search_recipes",
                "Let me look at this. Wash the rice, then cook it in twice the water.",
            ),
        ] {
            assert_eq!(run(task, tool, text), 0, "{text}");
        }
        let looked =
            Script::new("Where is my order?").tools(&["get_order"]).calls("", &[("get_order", "{}")]);
        assert_eq!(
            finding_count(looked.returns("unknown").answers("I will check the order again.")),
            0,
            "called"
        );
        let polled = |times: usize, state: fn(usize) -> String, text: &str| {
            let run = Script::new("Where is my order?").tools(&["get_order"]);
            let call =
                |run: Script, nth| run.calls("", &[("get_order", r#"{"id":"W-1"}"#)]).returns(&state(nth));
            finding_count((0..times).fold(run, call).answers(text))
        };
        let same: fn(usize) -> String = |_| "queued".to_owned();
        assert_eq!(polled(3, same, "Let me check the order once more."), 1);
        assert_eq!(polled(2, same, "Let me check the order once more."), 0);
        assert_eq!(polled(4, |nth| format!("step {nth}"), "Let me check the order once more."), 0);
        assert_eq!(polled(4, same, "Your order is still queued. I will check it again tomorrow."), 0);
    }

    #[test]
    fn call_that_is_written_as_text_is_found() {
        let run =
            |text: &str| finding_count(Script::new("Where is W-1?").tools(&["get_order"]).answers(text));
        for text in [
            r#"{"name":"get_order","arguments":{"id":"W-1"}}"#,
            "<tool_call>\n{\"name\": \"get_order\", \"arguments\": {\"id\": \"W-1\"}}\n</tool_call>",
            "```json\n{\"tool\": \"get_order\", \"parameters\": {\"id\": \"W-1\"}}\n```",
        ] {
            assert_eq!(run(text), 1, "{text}");
        }
        for text in [
            r#"{"name":"Ana Ruiz","arguments":[]}"#,
            r#"{"name":"get_order"}"#,
            r#"Send {"name":"get_order","arguments":{}} to the service for it."#,
        ] {
            assert_eq!(run(text), 0, "{text}");
        }
    }
}
