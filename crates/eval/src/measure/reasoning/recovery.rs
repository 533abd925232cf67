//! Whether the run recovered from a failed call.
//!
//! In: a trace. Out: for each failed call, whether the run recovered from it. It does so in one of these ways:
//!
//! - by a later success: of the same tool (a retry, a changed argument), of another tool that returns information
//!   after a failed lookup, or of another action on the same kind of thing or with the same
//!   arguments (a place on the waiting list of a class that is full);
//! - by a reply of the user after the failure, which continues with something else, but not by the closing question of
//!   a test harness;
//! - by a final answer that reports the failure, if the run did not cause the failure, since no better answer was
//!   possible; a failed lookup may also be reported by the first text after it to which the user replies;
//! - by a final answer that reports the refusal of an action to the user: it contains a value or a field that the
//!   refusal names and the call did not have, and leaves the next step to the user.
//!
//! A later sentence of the model alone is not a recovery. The turns of an agent in a group chat, which are spans of one
//! name beneath one span, are one agent. If the run replaced the missing result by invented data, the invention has the
//! high severity, and the failed call a low one.

use std::rc::Rc;

use foldhash::{HashMap, HashSet};
use serde_json::Value;
use verdict_otlp::trace::Idx;
use verdict_otlp::work;

use crate::measure::calls::attempts::{Attempt, CallAttempts, CallOutcome};
use crate::measure::calls::error_signs::call_error;
use crate::measure::conversation::runs_code;
use crate::measure::dialogue::{Replies, is_for_reader};
use crate::measure::excerpt::clip;
use crate::measure::failure_origin::is_external_failure;
use crate::measure::identifier::identifier_words;
use crate::measure::language::{ReadText, Readable, readable};
use crate::measure::memo::Memo;
use crate::measure::reasoning::invented_data::Invented;
use crate::measure::tool_purpose::{Purpose, is_verb, purpose};
use crate::measure::{Context, Finding, Severity, avoidance, numbers};
use crate::recognise::{Agent, AgentTrace, Call, Part, Role, SpanView};

/// Minimum replies of the user to texts of the model in a dialogue: a single reply may be the closing question of a
/// harness.
const MIN_REPLIES: usize = 2;

/// Maximum bytes of an answer and of an output that are compared.
const MAX_BYTES: usize = 16 << 10;
/// Maximum bytes of a refusal that an answer is compared with.
const MAX_REFUSAL_BYTES: usize = 1_000;
/// Minimum words that the answer shares with the refusal.
const MIN_SHARED_WORDS: usize = 2;
/// Digits of a status such as 403.
const STATUS_DIGITS: usize = 3;
/// Minimum characters of a word of an error that is compared: a status is the shortest one.
const MIN_ERROR_WORD_CHARS: usize = STATUS_DIGITS;
/// Minimum length of a specific word.
const MIN_SPECIFIC_LENGTH: usize = 4;

/// Marks of items that failed, in lists of several.
pub(super) const FAILURE_MARKS: [char; 4] = ['✘', '✗', '❌', '✖'];

/// The failed calls that were recovered.
#[derive(Default)]
pub(crate) struct Recoveries {
    /// The recovered calls, by [`key`].
    recovered: HashSet<usize>,
}

impl Recoveries {
    /// The recoveries of the trace, computed once.
    pub(crate) fn cached(trace: &AgentTrace, memo: &Memo) -> Rc<Recoveries> {
        memo.trace(|| {
            let attempts = CallAttempts::get(trace, memo);
            let mut recoveries = Recoveries::default();
            turns_of_agents(trace).iter().for_each(|turns| recoveries.add(trace, memo, &attempts, turns));
            recoveries
        })
    }

    /// Whether the call failed and the run recovered from it.
    pub(crate) fn has(&self, call: &Call) -> bool {
        self.recovered.contains(&key(call))
    }

    /// Adds the recovered calls of one agent. The calls are read backwards, so that later successes are known.
    fn add(&mut self, trace: &AgentTrace, memo: &Memo, attempts: &CallAttempts, turns: &[&Agent]) {
        let calls = || turns.iter().flat_map(|agent| agent.calls.iter().copied());
        if !calls().any(|i| attempts.at(i).is_some_and(Attempt::failed)) {
            return;
        }
        let mut calls: Vec<usize> = calls().collect();
        // Calls are sorted by their start.
        calls.sort_unstable();
        let last = turns.iter().rev().find_map(|agent| agent.llms.last().copied());
        let mut later = LaterSuccesses::default();
        let (mut replied_results, mut reports) = (None, None);
        for &i in calls.iter().rev() {
            let (Some(attempt), Some(call)) = (attempts.at(i), trace.calls.get(i)) else { continue };
            if attempt.is_control {
                continue;
            }
            if !attempt.failed() {
                later.add(purpose(trace, memo, call), call, attempt.outcome == CallOutcome::Succeeded);
                continue;
            }
            let recovers = later.recovers(trace, call, purpose(trace, memo, call));
            let mut is_continued = || {
                replied_results.get_or_insert_with(|| RepliedResults::new(trace, last)).continues_after(call)
            };
            let mut reported = || *reports.get_or_insert_with(|| reports_failure(trace, memo));
            let mut is_reported =
                || reported() || repeats_output(trace, memo, call) || is_reported_in_turn(trace, memo, call);
            if recovers
                || is_continued()
                || is_external_failure(trace, memo, attempt, call) && is_reported()
                || reports_refusal_to_user(trace, memo, call)
            {
                self.recovered.insert(key(call));
            }
        }
    }
}

/// Whether the answer of the run reports that something failed or is missing: by words for it, by a mark next to an
/// item of a list, or by any negative statement ("only the lamp in the hall does not answer"). Claims of success are
/// compared with the calls by other rules. True for an unsupported language.
pub(super) fn reports_failure(trace: &AgentTrace, memo: &Memo) -> bool {
    final_answer(trace).is_some_and(|answer| states_failure(answer, memo))
}

/// Whether an answer states that something failed or is missing; true for an unsupported language.
fn states_failure(answer: &str, memo: &Memo) -> bool {
    avoidance::mentions_lack(answer, memo)
        || answer.contains(FAILURE_MARKS)
        || ReadText::new(answer, None, memo).denies_something(memo)
        || readable(answer, None, memo) == Readable::No
}

/// Whether the first text after a failed lookup to which the user replied reports that something failed or is missing:
/// the answer of a later turn is about something else. False for a failed action, which a later turn may claim as done.
fn is_reported_in_turn(trace: &AgentTrace, memo: &Memo, call: &Call) -> bool {
    let Some(agent) = call.agent.and_then(|i| trace.agents.get(i)) else { return false };
    if purpose(trace, memo, call) == Purpose::Action || !memo.budget.spend(1 + agent.llms.len() / 8) {
        return false;
    }
    let replies = Replies::cached(trace, memo);
    let is_later = |at: &&Idx| trace.tree.spans.get(**at).is_some_and(|span| span.start >= call.start);
    let replied = agent.llms.iter().filter(is_later).find(|at| replies.to(**at).is_some());
    let text = replied.and_then(|at| trace.views.get(*at)).map(SpanView::output_text);
    text.is_some_and(|text| {
        let text = clip(&text, MAX_BYTES);
        states_failure(text, memo) || repeats_error(trace, memo, call, text)
    })
}

/// Whether a text has a status of the call's error, or several of its words, that the arguments do not have: "blocked
/// (403)".
fn repeats_error(trace: &AgentTrace, memo: &Memo, call: &Call, text: &str) -> bool {
    let Some(error) = call_error(trace, memo, call) else { return false };
    let quote = clip(&error.quote, MAX_REFUSAL_BYTES);
    let arguments = call.arguments.as_deref().unwrap_or_default();
    if !memo.budget.spend((text.len() + quote.len() + arguments.len()) / 4) {
        return false;
    }
    let (text_words, passed) =
        (words(text, MIN_ERROR_WORD_CHARS), words(clip(arguments, MAX_BYTES), MIN_ERROR_WORD_CHARS));
    let is_status =
        |word: &str| word.len() == STATUS_DIGITS && word.bytes().all(|byte| byte.is_ascii_digit());
    let mut specific_count = 0;
    words(quote, MIN_ERROR_WORD_CHARS).iter().any(|word| {
        let is_shared = text_words.contains(word) && !passed.contains(word);
        specific_count += usize::from(is_shared && word.chars().count() >= MIN_SPECIFIC_LENGTH);
        is_shared && is_status(word) || specific_count >= MIN_SHARED_WORDS
    })
}

/// The words of a text with at least `min` characters, in lower case.
fn words(text: &str, min: usize) -> HashSet<String> {
    let words = text.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase);
    words.filter(|word| word.chars().count() >= min).collect()
}

fn final_answer(trace: &AgentTrace) -> Option<&str> {
    let mut runs = trace.agents.iter().filter(|agent| agent.parent.is_none());
    runs.next_back().and_then(|agent| agent.answer.as_deref())
}

/// Whether the answer of the run repeats the output of a failed lookup or command: a specific word of the output that
/// is not in the arguments ("src/app.py" of a linter that found problems).
pub(crate) fn repeats_output(trace: &AgentTrace, memo: &Memo, call: &Call) -> bool {
    let (Some(answer), Some(output)) = (final_answer(trace), call.result.as_deref()) else { return false };
    if !runs_code(&call.name) && purpose(trace, memo, call) != Purpose::Query {
        return false;
    }
    let (answer, output) = (clip(answer, MAX_BYTES), clip(output, MAX_BYTES));
    let arguments = call.arguments.as_deref().unwrap_or_default();
    if !memo.budget.spend((answer.len() + output.len() + arguments.len()) / 8) {
        return false;
    }
    let (answer_words, passed) = (specific_words(answer), specific_words(arguments));
    specific_words(output).iter().any(|word| answer_words.contains(word) && !passed.contains(word))
}

/// Whether the answer reports the refusal of an action to the user: it contains a number or several words of the result
/// that are not in the arguments, and it asks the user, or it is part of a dialogue and claims no action as done.
pub(crate) fn reports_refusal_to_user(trace: &AgentTrace, memo: &Memo, call: &Call) -> bool {
    let (Some(answer), Some(result)) = (final_answer(trace), call.result.as_deref()) else { return false };
    let is_dialogue = || {
        call.agent
            .and_then(|i| trace.agents.get(i))
            .is_some_and(|agent| Replies::cached(trace, memo).has_to(agent))
    };
    if purpose(trace, memo, call) != Purpose::Action || result.len() > MAX_REFUSAL_BYTES {
        return false;
    }
    let answer = clip(answer, MAX_BYTES);
    let arguments = call.arguments.as_deref().unwrap_or_default();
    // Each word of the result is compared with those of the answer, and searched for in the arguments.
    let words_of_result = result.len() / MIN_SPECIFIC_LENGTH;
    let compared = words_of_result * (answer.len() / MIN_SPECIFIC_LENGTH + arguments.len() / 8);
    if !memo.budget.spend((answer.len() + result.len() + arguments.len() + compared) / 4) {
        return false;
    }
    let analysed_answer = ReadText::new(answer, None, memo);
    let claims = || analysed_answer.claims_of_done_action().iter().any(|claim| !claim.action.is_work());
    let asks = analysed_answer.ends_with_question() || is_dialogue() && !claims();
    if !asks {
        return false;
    }
    let passed = arguments.to_lowercase();
    let numbers = |text: &str| {
        let numbers = numbers::all(text).into_iter().filter(|n| !n.in_identifier);
        numbers.map(|n| n.value).collect::<Vec<f64>>()
    };
    let (answer_numbers, passed_numbers) = (numbers(answer), numbers(&passed));
    let shares_number =
        numbers(result).iter().any(|n| answer_numbers.contains(n) && !passed_numbers.contains(n));
    let answer_words = words(answer, MIN_SPECIFIC_LENGTH);
    // Endings may differ: "Namen" for the field "name".
    let is_in_answer = |word: &String| {
        answer_words.iter().any(|other| other.starts_with(word.as_str()) && other.len() <= word.len() + 2)
    };
    let shared = words(result, MIN_SPECIFIC_LENGTH)
        .iter()
        .filter(|word| is_in_answer(word) && !passed.contains(word.as_str()))
        .count();
    shares_number || shared >= MIN_SHARED_WORDS
}

/// The words of a text that are a path, a name in code, or an identifier with digits.
fn specific_words(text: &str) -> HashSet<&str> {
    let is_separator = |c: char| c.is_whitespace() || "\"'`()[]{}<>,;:=\\".contains(c);
    text.split(is_separator).map(|word| word.trim_matches('.')).filter(|word| is_specific(word)).collect()
}

fn is_specific(word: &str) -> bool {
    word.len() >= MIN_SPECIFIC_LENGTH
        && word.bytes().any(|b| b.is_ascii_alphabetic())
        && word.bytes().any(|b| b.is_ascii_digit() || matches!(b, b'/' | b'_' | b'.'))
}

/// The finding on a failed call, with low severity if the run recovered from the failure or replaced it by invented
/// data.
pub(crate) fn graded(context: &Context<'_>, call: &Call, finding: Finding) -> Finding {
    graded_in(context.trace, context.memo, call, finding)
}

/// [`graded`] for a caller without a [`Context`].
pub(crate) fn graded_in(trace: &AgentTrace, memo: &Memo, call: &Call, finding: Finding) -> Finding {
    let severity = match Recoveries::cached(trace, memo).has(call) {
        true => Severity::Low,
        false if Invented::cached(trace, memo).follows(call) => Severity::Low,
        false => finding.severity,
    };
    Finding { severity: severity.min(finding.severity), ..finding }
}

/// By agent, its turns in order of time.
fn turns_of_agents(trace: &AgentTrace) -> Vec<Vec<&Agent>> {
    let mut turns_by_agent: Vec<Vec<&Agent>> = Vec::new();
    let mut positions: HashMap<(usize, &str), usize> = HashMap::default();
    for agent in &trace.agents {
        let member = agent.parent.zip(agent.name.as_deref());
        match member.and_then(|member| positions.get(&member)).and_then(|at| turns_by_agent.get_mut(*at)) {
            Some(turns) => turns.push(agent),
            None => {
                member.into_iter().for_each(|member| _ = positions.insert(member, turns_by_agent.len()));
                turns_by_agent.push(vec![agent]);
            }
        }
    }
    for turns in &mut turns_by_agent {
        turns.sort_by_key(|agent| trace.tree.spans.get(agent.at).map_or(0, |span| span.start));
    }
    turns_by_agent
}

/// The address of a call, which identifies the call since the list of calls does not move.
fn key(call: &Call) -> usize {
    std::ptr::from_ref(call).addr()
}

/// The first successes after a call.
#[derive(Default)]
struct LaterSuccesses<'t> {
    /// By tool name.
    tools: HashMap<String, &'t Call>,
    /// The first success of a tool that may return information.
    lookup: Option<&'t Call>,
    /// The successes of tools that may change something, by the nouns of their names.
    actions: HashMap<String, &'t Call>,
}

impl<'t> LaterSuccesses<'t> {
    /// Adds a success. Without a recorded result, it counts only for the same tool.
    fn add(&mut self, purpose: Purpose, call: &'t Call, is_recorded: bool) {
        self.tools.entry(tool_key(call)).or_insert(call);
        if !is_recorded {
            return;
        }
        if purpose != Purpose::Action {
            self.lookup.get_or_insert(call);
        }
        if purpose != Purpose::Query {
            for noun in nouns(call) {
                self.actions.entry(noun).or_insert(call);
            }
        }
    }

    /// Whether one of the successes recovers a failed call. Successes of calls in the same message do not, since their
    /// arguments were written before the failure was known.
    fn recovers(&self, trace: &AgentTrace, failed: &Call, purpose: Purpose) -> bool {
        let is_reaction = |call: &&Call| !is_of_same_message(trace, failed, call);
        if self.tools.get(&tool_key(failed)).is_some_and(is_reaction) {
            return true;
        }
        match purpose {
            Purpose::Query => self.lookup.as_ref().is_some_and(is_reaction),
            Purpose::Action | Purpose::Unknown => {
                let arguments = failed.parsed.as_ref().filter(|arguments| has_identifier(arguments));
                let has_same_arguments =
                    |later: &&&Call| later.parsed.as_ref() == arguments && is_reaction(later);
                nouns(failed).any(|noun| self.actions.get(&noun).is_some_and(is_reaction))
                    || arguments.is_some() && self.actions.values().any(|later| has_same_arguments(&later))
            }
        }
    }
}

/// Whether a value of the arguments is a text with a digit, which identifies a thing: two actions with equal arguments
/// are then about the same thing.
fn has_identifier(arguments: &Value) -> bool {
    let has_digit =
        |value: &Value| value.as_str().is_some_and(|text| text.bytes().any(|b| b.is_ascii_digit()));
    arguments.as_object().is_some_and(|map| map.values().any(has_digit))
}

/// Whether one message requested both calls. If the model call has no recorded requests, calls are assigned to model
/// calls by time, which depends on the senders' clocks; then only overlapping calls count as requested by one message.
fn is_of_same_message(trace: &AgentTrace, failed: &Call, later: &Call) -> bool {
    let Some(llm) = failed.llm.filter(|_| failed.llm == later.llm) else { return false };
    let has_requests = |view: &SpanView| {
        let mut parts = view.output.iter().flat_map(|message| &message.parts);
        parts.any(|part| matches!(part, Part::Call(_)))
    };
    let spans = &trace.tree.spans;
    let overlap = || match (spans.get(failed.at), spans.get(later.at)) {
        (Some(failed), Some(later)) => later.start < failed.end,
        _ => true,
    };
    trace.views.get(llm).is_some_and(has_requests) || overlap()
}

fn tool_key(call: &Call) -> String {
    call.name.trim().to_ascii_lowercase()
}

/// The words of a tool's name that are not verbs.
fn nouns(call: &Call) -> impl Iterator<Item = String> {
    identifier_words(&call.name).into_iter().filter(|word| word.len() > 2 && !is_verb(word))
}

/// The results in the prompt of an agent's last model call after which the user replied.
#[derive(Default)]
struct RepliedResults<'t> {
    /// The ids of the results.
    ids: HashSet<&'t str>,
    /// The addresses of results without an id.
    results: HashSet<*const u8>,
}

impl<'t> RepliedResults<'t> {
    /// Reads the prompt of the agent's last model call.
    fn new(trace: &'t AgentTrace, last: Option<Idx>) -> RepliedResults<'t> {
        let view = last.and_then(|llm| trace.views.get(llm));
        let messages = view.map_or(&[][..], |view| &view.input[..]);
        let mut replies = Vec::new();
        let mut answered = false;
        for (at, message) in messages.iter().enumerate() {
            match message.role {
                Role::Assistant => answered = is_for_reader(std::iter::once(message)),
                Role::User if answered => {
                    replies.push(at);
                    answered = false;
                }
                _ => answered = false,
            }
        }
        if replies.len() < MIN_REPLIES {
            replies.clear();
        }
        let before = replies.last().and_then(|last| messages.get(..*last)).unwrap_or_default();
        let mut replied_results = RepliedResults::default();
        for part in before.iter().flat_map(|message| &message.parts).inspect(|_| work::count(1)) {
            match part {
                Part::Result { id: Some(id), .. } => _ = replied_results.ids.insert(id),
                Part::Result { content, .. } => _ = replied_results.results.insert(content.as_ptr()),
                _ => {}
            }
        }
        replied_results
    }

    /// Whether the user replied after the result of the call.
    fn continues_after(&self, call: &Call) -> bool {
        call.id.as_ref().is_some_and(|id| self.ids.contains(&**id))
            || call.result.as_ref().is_some_and(|result| self.results.contains(&result.as_ptr()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::Script;

    const LOCKED_ERROR: &str = "Error: the record is locked";

    fn recovered(trace: &AgentTrace) -> Vec<bool> {
        let memo = Memo::new();
        let recoveries = Recoveries::cached(trace, &memo);
        trace.calls.iter().map(|call| recoveries.has(call)).collect()
    }

    fn failed(tool: &str, arguments: &str) -> Script {
        Script::new("task").tools(&["any"]).calls("", &[(tool, arguments)]).returns(LOCKED_ERROR)
    }

    #[test]
    fn changed_argument_and_other_tool_recover() {
        let retry =
            failed("get_rate", r#"{"day":"x"}"#).calls("", &[("get_rate", r#"{"day":"y"}"#)]).returns("1.08");
        assert_eq!(recovered(&retry.answers("1.08").build()), [true, false]);
        let other = failed("find_by_mail", "{}").calls("", &[("find_by_name", "{}")]).returns("user 7");
        assert_eq!(recovered(&other.answers("user 7").build()), [true, false]);
        let action =
            failed("exchange_order_items", "{}").calls("", &[("modify_order_items", "{}")]).returns("ok: 2");
        assert_eq!(recovered(&action.answers("done").build()), [true, false]);
    }

    #[test]
    fn later_sentence_and_unrelated_success_do_not_recover() {
        let sentence = failed("get_rate", "{}").says("Let me think.").answers("It is 1.08.");
        assert_eq!(recovered(&sentence.build()), [false]);
        let unrelated = failed("cancel_order", "{}").calls("", &[("send_mail", "{}")]).returns("sent");
        assert_eq!(recovered(&unrelated.answers("done").build()), [false, false]);
        let read = failed("cancel_order", "{}").calls("", &[("get_order", "{}")]).returns("open");
        assert_eq!(recovered(&read.answers("done").build()), [false, false]);
        let together = Script::new("task")
            .calls("", &[("get_rate", r#"{"day":"x"}"#), ("get_rate", r#"{"day":"y"}"#)])
            .returns(LOCKED_ERROR)
            .returns("1.08");
        assert_eq!(recovered(&together.answers("1.08").build()), [false, false]);
    }

    #[test]
    fn failure_of_a_service_that_the_answer_reports_is_none_of_the_run() {
        let recoveries = |result: &str, answer: &str| {
            let asked = Script::new("Please move the delivery D-4471 to Friday.").tools(&["move_delivery"]);
            let called = asked.calls("", &[("move_delivery", r#"{"delivery":"D-4471"}"#)]);
            recovered(&called.returns(result).answers(answer).build())
        };
        const DOWN: &str = "Error: 503 service unavailable";
        assert_eq!(recoveries(DOWN, "I could not move it: the delivery service is unavailable."), [true]);
        assert_eq!(recoveries(DOWN, "Leider konnte ich die Lieferung nicht finden."), [true]);
        assert_eq!(recoveries(DOWN, "I have moved delivery D-4471 to Friday."), [false]);
        for reported in [
            "Delivery D-4471 is not on Friday yet. Please do not hesitate to ask.",
            "The other parcels come on Friday, this one does not, so please don't wait for it.",
            "Die Lieferung ist noch nicht verschoben. Zögern Sie nicht, sich bei Fragen zu melden.",
            "La livraison n'est pas encore déplacée. N'hésitez pas à me contacter.",
            "La entrega todavía no está movida al viernes. No dude en escribirme.",
            "A entrega ainda não está na sexta-feira. Não hesite em me escrever.",
            "La consegna non è ancora spostata a venerdì. Non esiti a scrivermi.",
            "快递还没有改到星期五。请不要回复这条消息。",
            "配達はまだ金曜日になっていません。ご心配なく。",
        ] {
            assert_eq!(recoveries(DOWN, reported), [true], "{reported}");
        }
        for unreported in [
            "I have moved delivery D-4471 to Friday. Please do not hesitate to ask.",
            "I have moved delivery D-4471 to Friday. If it does not suit you, I will change it.",
            "I have moved delivery D-4471 to Friday. Don't share the code of the parcel with anyone.",
            "I have moved delivery D-4471 to Friday. Isn't there anything else that I can do for you?",
            "I have moved delivery D-4471 to Friday without delay.",
            "Ich habe die Lieferung auf Freitag verschoben. Zögern Sie nicht, sich bei Fragen zu melden.",
            "Ich habe die Lieferung auf Freitag verschoben. Bitte antworten Sie nicht auf diese Nachricht.",
            "J'ai déplacé la livraison à vendredi. N'hésitez pas à me contacter.",
            "J'ai déplacé la livraison à vendredi. Ne partagez pas le code avec d'autres personnes.",
            "He movido la entrega al viernes. No dude en escribirme.",
            "He movido la entrega al viernes. Por favor, no responda a este mensaje.",
            "Mudei a entrega para sexta-feira. Não hesite em me escrever.",
            "Ho spostato la consegna a venerdì. Non esiti a scrivermi.",
            "我已经把快递改到星期五了。请不要回复这条消息。",
            "配達を金曜日に変更しました。このメールには返信しないでください。",
        ] {
            assert_eq!(recoveries(DOWN, unreported), [false], "{unreported}");
        }
        // The run is at fault for arguments that the model wrote.
        const WRONG: &str = "TypeError: move_delivery() got an unexpected keyword argument 'delivery'";
        assert_eq!(recoveries(WRONG, "I could not move it: the delivery service is unavailable."), [false]);
        let invented = Script::new("Where is my delivery?").tools(&["get_delivery"]);
        let invented = invented.calls("", &[("get_delivery", r#"{"delivery_id":"D-9912"}"#)]);
        let invented = invented.returns("Error: 404 not found").answers("I could not find your delivery.");
        assert_eq!(recovered(&invented.build()), [false]);
    }

    #[test]
    fn prompt_is_searched_once_for_the_results_of_all_failed_calls() {
        const CALLS: usize = 300;
        let mut script = Script::new("task").tools(&["any"]);
        for n in 0..CALLS {
            script = script.calls("", &[(&format!("cancel_item_{n}"), "{}")]).returns(LOCKED_ERROR);
        }
        let dialogue = script.says("Nothing could be cancelled.").user("Leave it. When do you close?");
        let trace = dialogue.says("At ten.").user("Thanks.").answers("Bye.").build();
        let memo = Memo::new();
        let _ = CallAttempts::get(&trace, &memo);
        let before = work::counted();
        let recoveries = Recoveries::cached(&trace, &memo);
        let work = work::counted() - before;
        assert!(work <= 8 * CALLS as u64, "{work} parts of messages");
        assert!(trace.calls.iter().all(|call| recoveries.has(call)));
    }

    #[test]
    fn next_turn_of_the_same_agent_in_a_group_recovers() {
        let group = |second: &str| {
            Script::new("How many rows has the table?")
                .calls("", &[("executor", "{}")])
                .enter("Run the code.")
                .calls("", &[("python", r#"{"code":"prin(1)"}"#)])
                .returns(LOCKED_ERROR)
                .answers("It failed.")
                .leave()
                .calls("", &[(second, "{}")])
                .enter("Run the corrected code.")
                .calls("", &[("python", r#"{"code":"print(1)"}"#)])
                .returns("12")
                .answers("12")
                .leave()
                .answers("12")
                .build()
        };
        let failed = |trace: &AgentTrace| {
            let at =
                trace.calls.iter().position(|call| call.result.as_deref() == Some(LOCKED_ERROR)).unwrap();
            recovered(trace)[at]
        };
        assert!(failed(&group("executor")));
        assert!(!failed(&group("other_executor")));
    }

    #[test]
    fn user_who_reads_of_it_and_continues_recovers_and_a_closing_question_does_not() {
        let reported_failure = || failed("book_table", "{}").says("The table could not be booked.");
        let dialogue = reported_failure()
            .user("Then leave it. When do you close?")
            .says("At ten.")
            .user("Thanks.")
            .answers("Bye.");
        assert_eq!(recovered(&dialogue.build()), [true]);
        let closing = reported_failure().user("Now give the final answer.").answers("Booked.");
        assert_eq!(recovered(&closing.build()), [false]);
        // One reply may be a closing question, unless the model had reported the failure of a service.
        let reported = |text: &str| {
            let called =
                Script::new("Compare the two shops.").tools(&["open_page"]).calls("", &[("open_page", "{}")]);
            let answered = called.returns("Error: 503 service unavailable").says(text);
            recovered(
                &answered
                    .user("What does the first one cost with postage?")
                    .answers("With the postage that is 12.50 €, and you would have it on Friday.")
                    .build(),
            )
        };
        assert_eq!(reported("The first shop sells it. The second one could not be opened."), [true]);
        assert_eq!(reported("| first shop | 9.50 € |\n| second shop | blocked (503) |"), [true]);
        assert_eq!(reported("I have read both pages, and the shops sell it for the same price."), [false]);
        let observed = failed("book_table", "{}").user("Go on.").user("Go on.").answers("Booked.");
        assert_eq!(recovered(&observed.build()), [false]);
    }
}
