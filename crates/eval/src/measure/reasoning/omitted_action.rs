//! Parts of a request that the run drops without a word: "Cancel W-4411 and email me a confirmation", and no e-mail.
//!
//! Principle: what a request asks for as an action of its own, which an offered tool does, is done, or the answer says
//! why not. It is dropped if the run carried out another action, all calls succeeded, none may be the one that is
//! missing, and neither the answer nor the result of an action mentions it, nor a lookup that it was done. Where a part
//! names the action and the thing of an offered tool ("update my emergency contact", `update_emergency_contact`), calls
//! of the same action on other things are not it; a call whose arguments name the thing may be. In a dialogue the user
//! may only have agreed, and what the agent said to them is read as well. Of things of one kind that the request lists
//! by their identifiers, each has to be in a call, a result or the answer, if another one was acted on.
//!
//! In: the request of an outermost agent, its tools, all calls and the answer. Out: one finding, on the model span that
//! gave the answer.

use verdict_otlp::trace::Idx;

use super::answer::sentences;
use super::claimed_actions::is_form_of;
use super::conduct::Conduct;
use super::linked_identifiers::{identifiers, shape};
use crate::measure::calls::attempts::CallOutcome;
use crate::measure::defects::Defect;
use crate::measure::dialogue::Replies;
use crate::measure::identifier::identifier_words;
use crate::measure::language::{Action, ReadText, WordClasses, classes, classes_in, is_english};
use crate::measure::tool_purpose::{Purpose, ToolPurpose, action_of, offered, purpose, stems};
use crate::measure::{Finding, Memo};
use crate::pattern::contains_ignoring_case;
use crate::recognise::{AgentTrace, Call, Content};

/// Most bytes of a request: a longer one names several things.
const MAX_TASK: usize = 400;
/// Most calls of a trace, and bytes of their results and of an answer, that are read.
const MAX_CALLS: usize = 64;
const MAX_BYTES: usize = 8_000;
/// Most identifiers of a list.
const MAX_LISTED: usize = 8;
/// Most bytes between two identifiers of a list.
const MAX_GAP: usize = 12;
/// Shortest word of a part that mentions it.
const MIN_WORD: usize = 5;

// Words by which a part depends on something, or is no request.
regex!(
    DEPENDS,
    r"(?i)\b(?:if|unless|when|whenever|once|in case|otherwise|or|could|would|should|is|are|was|were|has|have|had|did|does|do not|don't|not|never|until|before|after|later|tomorrow|next)\b"
);
// A time, on which nothing depends: "to next Monday".
regex!(NEXT, r"(?i)\bnext (?:\w+day|week|weekend|month|quarter|year)\b");
/// Words that exclude some of the listed things.
const EXCEPTS: WordClasses = classes!(Negation Exception Alternative Condition Already);
// Words of a question that only offers further help.
regex!(OFFERS, r"(?i)\b(?:else|anything|help|assist)\b");
/// Words before the verb of a part.
const FILLERS: [&str; 5] = ["please", "also", "then", "kindly", "afterwards"];
/// Words after the verb of a part with which its object begins.
const OBJECTS: [&str; 21] = [
    "me", "us", "him", "her", "them", "it", "the", "a", "an", "my", "our", "his", "their", "this", "that",
    "these", "both", "all", "one", "another", "everyone",
];

/// Whether a request does not mean all that it names.
pub(super) fn excepts(task: &str, memo: &Memo) -> bool {
    classes_in(task, None, memo).is_none_or(|classes| classes.has_any(EXCEPTS))
}

/// The finding on an agent.
pub(super) fn check(conduct: &Conduct<'_>) -> Option<(Idx, Finding)> {
    let Conduct { trace, memo, attempts, i, agent } = *conduct;
    let is_whole = agent.parent.is_none() && !agent.tools.is_empty() && !trace.incomplete;
    let task = conduct.task(MAX_TASK).filter(|_| is_whole)?;
    let answer = agent.answer.as_deref().filter(|_| agent.answer_content == Content::Present)?;
    let replies = Replies::of(trace, memo);
    let has_failed =
        |i: usize| attempts.at(i).is_some_and(|a| a.outcome != CallOutcome::Succeeded && !a.is_control);
    if trace.calls.is_empty()
        || trace.calls.len() > MAX_CALLS
        || (0..trace.calls.len()).any(has_failed)
        || !trace.calls.iter().any(|call| conduct.is_action(call))
    {
        return None;
    }
    let turns: Vec<String> = agent
        .llms
        .iter()
        .filter(|at| replies.to(**at).is_some())
        .filter_map(|at| Some(trace.views.get(*at)?.output_text().into_owned()))
        .collect();
    let only_agrees = |at: &Idx| {
        let (turn, reply) = (trace.views.get(*at)?.output_text(), replies.to(*at)?);
        Some(ReadText::new(&turn, Some(task), memo).answered_by(reply, memo).agrees())
    };
    if !agent.llms.iter().filter_map(only_agrees).all(|agrees| agrees) {
        return None;
    }
    // The result of a lookup shows that a thing exists, and the form of a verb in it what was done with it.
    let (made, looked_up): (Vec<&Call>, Vec<&Call>) =
        trace.calls.iter().partition(|call| purpose(trace, memo, call) != Purpose::Query);
    let looked_up = || looked_up.iter().filter_map(|call| call.result.as_deref());
    let results = made.iter().filter_map(|call| call.result.as_deref());
    let texts: Vec<&str> = results.chain([answer]).chain(turns.iter().map(String::as_str)).collect();
    let bytes: usize = looked_up().chain(texts.iter().copied()).map(str::len).sum();
    if bytes > MAX_BYTES || !memo.budget.spend(bytes / 2 + task.len()) {
        return None;
    }
    let all: Vec<&str> = looked_up().chain(texts.iter().copied()).collect();
    if let Some(id) = of_list(trace, memo, task, &all) {
        let rationale = format!(
            "a call for {id}, or the reason why there is none, was expected, since the request lists it"
        );
        return Some((agent.answer_at?, Defect::PartUnanswered.finding(rationale, answer)));
    }
    // Most requests ask for nothing that is looked for below.
    let asks = || split(task, |_| true).iter().any(|part| asked(part).is_some());
    if offered(trace, i).all(|tool| is_called(trace, &tool.name)) && !asks() {
        return None;
    }
    let parts = split(task, is_independent);
    if parts.len() < 2 || !is_english(task, None, memo) {
        return None;
    }
    let said = ReadText::new(answer, Some(task), memo);
    if let Some((part, tool)) = of_tool(
        trace,
        i,
        &parts,
        &Mentions { made: &made, texts: &texts, answer, looked_up: looked_up().collect() },
    )
    .filter(|_| !explains(answer, &said))
    {
        let rationale = format!(
            "a call of {tool}, or the reason why there is none, was expected, since the request asks for it: \"{}\"; \
             nothing mentions it",
            part.trim()
        );
        return Some((agent.answer_at?, Defect::PartUnanswered.finding(rationale, answer)));
    }
    let (part, action) = parts.iter().find_map(|part| {
        let action = asked(part)?;
        let mut tools =
            offered(trace, i).map(|tool| ToolPurpose::of(&tool.name, tool.description.as_deref()));
        let does = tools.any(|tool| !tool.is_query() && tool.actions.first() == Some(&action));
        let made = trace.calls.iter().any(|call| ToolPurpose::of_call(trace, memo, call).may_do(action));
        (does && !made).then_some((part, action))
    })?;
    let others = || parts.iter().filter(|other| *other != part);
    let nouns: Vec<String> =
        stems(part).filter(|stem| stem.len() >= MIN_WORD && action_of(stem).is_none()).collect();
    let is_own =
        |stem: &String| nouns.contains(stem) && !others().any(|other| stems(other).any(|of| of == *stem));
    let mentions = |text: &&str| says_done(text, action);
    let names = |text: &&str| stems(text).any(|stem| is_own(&stem));
    if all.iter().any(mentions) || texts.iter().any(names) || explains(answer, &said) {
        return None;
    }
    let rationale = format!(
        "a call to {}, or the reason why there is none, was expected, since the request asks for it: \"{}\"; nothing \
         mentions it",
        action.as_str(),
        part.trim()
    );
    Some((agent.answer_at?, Defect::PartUnanswered.finding(rationale, answer)))
}

/// Whether an answer states what is missing, or asks for it. An offer of further help is no question.
fn explains(answer: &str, said: &ReadText<'_>) -> bool {
    let last = answer.trim_end().rsplit(['.', '!', '\n']).find(|part| !part.trim().is_empty());
    let asks = said.ends_with_question() && !last.is_some_and(|last| OFFERS.is_match(last));
    !said.refusals().is_empty() || !said.inability().is_empty() || asks
}

/// An identifier among those of one form that a request lists, which neither a call nor a text names, though an action
/// names another one of them.
fn of_list(trace: &AgentTrace, memo: &Memo, task: &str, texts: &[&str]) -> Option<String> {
    let mut listed: Vec<String> = identifiers(task).take(MAX_LISTED + 1).collect();
    listed.dedup();
    let first = listed.first()?;
    let is_list =
        (2..=MAX_LISTED).contains(&listed.len()) && listed.iter().all(|id| shape(id) == shape(first));
    if !is_list || !is_enumerated(task, &listed) || excepts(task, memo) {
        return None;
    }
    let acts = |call: &&Call| purpose(trace, memo, call) == Purpose::Action;
    let has =
        |call: &Call, id: &str| call.arguments.as_deref().is_none_or(|text| contains_ignoring_case(text, id));
    let is_named = |id: &&String| {
        trace.calls.iter().any(|call| has(call, id))
            || texts.iter().any(|text| contains_ignoring_case(text, id))
    };
    let (named, dropped): (Vec<&String>, Vec<&String>) = listed.iter().partition(is_named);
    let is_acted = named.iter().any(|id| trace.calls.iter().filter(acts).any(|call| has(call, id)));
    dropped.first().filter(|_| is_acted).map(|id| (*id).clone())
}

/// Whether a text has a form of a verb of the action.
fn says_done(text: &str, action: Action) -> bool {
    let mut words = text.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase);
    words.any(|word| is_form_of(&word, action))
}

/// The texts that may mention a part: the calls of actions, their results with all texts of the agent, the answer, and
/// what lookups returned.
struct Mentions<'t> {
    made: &'t [&'t Call],
    texts: &'t [&'t str],
    answer: &'t str,
    looked_up: Vec<&'t str>,
}

/// Whether only commas and conjunctions are between identifiers: others are compared.
fn is_enumerated(task: &str, ids: &[String]) -> bool {
    let lower = task.to_ascii_lowercase();
    let mut from = 0;
    let mut gaps = ids.iter().enumerate().map(|(nth, id)| {
        let at = lower.get(from..)?.find(id.as_str())? + from;
        let gap = lower.get(from..at)?;
        from = at + id.len();
        Some(
            nth == 0
                || gap.len() <= MAX_GAP
                    && gap.split_whitespace().filter(|w| w.contains(char::is_alphanumeric)).count() <= 1,
        )
    });
    gaps.all(|near| near == Some(true))
}

/// A part that names the action and the thing of an offered tool, which was never called, and the tool; if no call, no
/// result and no answer names what is its own of the thing.
fn of_tool<'p, 't>(
    trace: &'t AgentTrace,
    agent: usize,
    parts: &'p [String],
    mentions: &Mentions<'_>,
) -> Option<(&'p str, &'t str)> {
    offered(trace, agent).filter(|tool| !is_called(trace, &tool.name)).find_map(|tool| {
        let purpose = ToolPurpose::of(&tool.name, tool.description.as_deref());
        let words = identifier_words(&tool.name);
        // `update_emergency_contact`: the verb comes first, and the thing is after it.
        let (verb, things) = words.split_first()?;
        let action = action_of(verb).filter(|action| !purpose.is_query() && !action.is_work())?;
        let things: Vec<String> =
            things.iter().filter(|word| action_of(word).is_none()).flat_map(|word| stems(word)).collect();
        let is_named = |part: &&String| {
            let said: Vec<String> = stems(part).collect();
            let mut actions = said.iter().filter_map(|word| action_of(word));
            things.iter().all(|thing| said.contains(thing)) && actions.any(|of| of == action)
        };
        let part =
            parts.iter().filter(|_| things.iter().any(|thing| thing.len() >= MIN_WORD)).find(is_named)?;
        let others = || parts.iter().filter(|other| !std::ptr::eq(*other, part));
        let is_own = |thing: &&String| {
            thing.len() >= MIN_WORD && !others().any(|other| stems(other).any(|of| of == **thing))
        };
        let own: Vec<&String> = things.iter().filter(is_own).collect();
        let of_part: Vec<String> = stems(part).filter(|stem| action_of(stem).is_none()).collect();
        let arguments = mentions.made.iter().filter_map(|call| call.arguments.as_deref());
        let tools = mentions.made.iter().map(|call| &*call.name);
        let mut all = mentions.texts.iter().copied().chain(arguments).chain(tools);
        let names = |text: &str| own.iter().any(|thing| contains_ignoring_case(text, thing));
        let tells =
            || of_part.iter().filter(is_own).any(|word| contains_ignoring_case(mentions.answer, word));
        let is_done = || mentions.looked_up.iter().any(|text| says_done(text, action));
        (!own.is_empty() && !all.any(names) && !tells() && !is_done()).then_some((part.as_str(), &*tool.name))
    })
}

fn is_called(trace: &AgentTrace, tool: &str) -> bool {
    trace.calls.iter().any(|call| call.name.trim().eq_ignore_ascii_case(tool.trim()))
}

/// Whether a sentence depends on nothing and asks nothing.
fn is_independent(sentence: &str) -> bool {
    !sentence.contains('?') && !DEPENDS.is_match(&NEXT.replace_all(sentence, ""))
}

/// The parts of some sentences of a request.
fn split(task: &str, wanted: fn(&str) -> bool) -> Vec<String> {
    let sentences = sentences(task).into_iter().filter_map(|(start, end)| task.get(start..end));
    let split = |sentence: &str| {
        let marked = sentence
            .replace(" and then ", "\n")
            .replace(" and ", "\n")
            .replace(", ", "\n")
            .replace("; ", "\n");
        marked.lines().map(str::to_owned).collect::<Vec<String>>()
    };
    sentences.filter(|sentence| wanted(sentence)).flat_map(split).collect()
}

/// The action that a part asks for, with its object.
fn asked(part: &str) -> Option<Action> {
    use Action::{Book, Cancel, Delete, Notify, Order, Pay, Refund, Schedule, Send, Transfer};
    let words = part.split_whitespace().map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()));
    let mut words =
        words.filter(|word| !word.is_empty()).skip_while(|word| FILLERS.contains(&&*word.to_lowercase()));
    let action = action_of(&words.next()?.to_lowercase())?;
    let object = words.next()?;
    let is_object = OBJECTS.contains(&&*object.to_lowercase());
    let is_outside =
        matches!(action, Book | Cancel | Delete | Notify | Order | Pay | Refund | Schedule | Send | Transfer);
    (is_object && is_outside).then_some(action)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::reasoning::conduct::found as found_by;
    use crate::measure::testing::Script;

    fn found(task: &str, tools: &[&str], calls: &[(&str, &str)], answer: &str) -> usize {
        let script = calls.iter().fold(Script::new(task).tools(tools), |script, (tool, result)| {
            script.calls("", &[(*tool, "{}")]).returns(result)
        });
        let trace = script.answers(answer).build();
        found_by(check, &trace).len()
    }

    #[test]
    fn part_that_nothing_mentions_again_is_found() {
        let tools = &["cancel_order", "send_email"][..];
        let task = "Cancel W-4411 and email me a confirmation.";
        let cancelled = ("cancel_order", r#"{"state":"cancelled"}"#);
        assert_eq!(found(task, tools, &[cancelled], "Order W-4411 is cancelled."), 1);
        let desk = &["book_room", "notify_manager"][..];
        let booked = ("book_room", r#"{"room":"R-12","day":"Monday"}"#);
        assert_eq!(
            found("Book a room on Monday and notify my manager.", desk, &[booked], "R-12 is yours."),
            1
        );
    }

    #[test]
    fn lookup_that_shows_the_thing_does_not_mention_the_part() {
        let tools = &["get_account", "change_plan", "cancel_addon"][..];
        let task = "Change my plan to Max and cancel the insurance addon.";
        let changed = ("change_plan", r#"{"plan":"Max"}"#);
        let run =
            |account: &str, answer: &str| found(task, tools, &[("get_account", account), changed], answer);
        let account = r#"{"plan":"Mini","addons":["insurance"]}"#;
        assert_eq!(run(account, "Your plan is now Max."), 1);
        assert_eq!(run(account, "Your plan is now Max, and the insurance remains until June."), 0);
        assert_eq!(run(r#"{"addons":[],"insurance":"cancelled"}"#, "Your plan is now Max."), 0);
    }

    #[test]
    fn listed_thing_that_nothing_names_is_found() {
        let run = |task: &str, ids: &[&str], answer: &str| {
            let script = ids.iter().fold(Script::new(task).tools(&["cancel_order"]), |script, id| {
                script.calls("", &[("cancel_order", &format!(r#"{{"order":"{id}"}}"#))]).returns("ok")
            });
            let trace = script.answers(answer).build();
            found_by(check, &trace).len()
        };
        let task = "Cancel W-4411, W-4412 and W-4413.";
        assert_eq!(run(task, &["W-4411", "W-4412"], "The orders are cancelled."), 1);
        assert_eq!(run("Storniere W-4411 und W-4412.", &["W-4411"], "Die Bestellung ist storniert."), 1);
        assert_eq!(run(task, &["W-4411", "W-4412", "W-4413"], "The orders are cancelled."), 0);
        assert_eq!(run(task, &["W-4411", "W-4412"], "Done, but W-4413 has left."), 0);
        assert_eq!(run("Cancel W-4411, not W-4412.", &["W-4411"], "It is cancelled."), 0);
        assert_eq!(run(task, &[], "What is the reason?"), 0);
        assert_eq!(run("Refund W-4411, as you did for the order W-4412.", &["W-4411"], "It is refunded."), 0);
    }

    #[test]
    fn part_that_is_done_mentioned_or_depends_is_none() {
        let tools = &["cancel_order", "send_email"][..];
        let task = "Cancel W-4411 and email me a confirmation.";
        let cancelled = ("cancel_order", r#"{"state":"cancelled"}"#);
        let mailed = ("send_email", "ok");
        let done = "Order W-4411 is cancelled.";
        assert_eq!(found(task, tools, &[cancelled, mailed], done), 0);
        assert_eq!(found(task, &["cancel_order"], &[cancelled], done), 0, "no tool for it");
        assert_eq!(found(task, tools, &[("cancel_order", "cancelled, confirmation on its way")], done), 0);
        for answer in [
            "Order W-4411 is cancelled. The shop will send the confirmation itself.",
            "Order W-4411 is cancelled. I'm unable to reach your mailbox.",
            "Order W-4411 is cancelled. What is your address?",
        ] {
            assert_eq!(found(task, tools, &[cancelled], answer), 0, "{answer}");
        }
        for task in [
            "Cancel W-4411 and email me if it fails.",
            "Cancel W-4411. Email and phone are in my profile.",
            "Cancel W-4411 or email me the reason.",
            "Cancel W-4411. Did you email me a confirmation?",
        ] {
            assert_eq!(found(task, tools, &[cancelled], done), 0, "{task}");
        }
        let failed = ("cancel_order", "Error: it has been shipped");
        assert_eq!(found(task, tools, &[failed], "W-4411 has already left."), 0);
    }
}
