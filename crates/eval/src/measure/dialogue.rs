//! The turns of a conversation with a user: the texts of a model to which the user replied.
//!
//! In: a trace. Out: the user's reply to the text of each model call; and, for the prompt of a model call, the request
//! of the user that is still open. A text with a reply is no final answer. An observation that a framework sends as a
//! message of the user follows an action, and is no reply.

use std::rc::Rc;

use foldhash::HashMap;
use verdict_otlp::trace::Idx;

use super::conversation::{Turns, plain_text, writes_code};
use super::excerpt::is_blank;
use super::language::ReadText;
use super::memo::Memo;
use crate::measure::agent_index;
use crate::recognise::{Agent, AgentTrace, Message, Part, Role, SpanView, Text};

/// The user's replies by the model call that they answer.
#[derive(Debug, Default)]
pub(crate) struct Replies(HashMap<Idx, Text>);

impl Replies {
    /// The replies of the trace, computed once.
    pub(crate) fn cached(trace: &AgentTrace, memo: &Memo) -> Rc<Replies> {
        memo.trace(|| {
            let turns = Turns::cached(trace, memo);
            let llms = trace.agents.iter().flat_map(|agent| &agent.llms);
            Replies(
                llms.filter_map(|&span_index| Some((span_index, reply(trace, &turns, span_index)?)))
                    .collect(),
            )
        })
    }

    /// The user's reply to the text of the model call on the span `span_index`; `None` if the user did not reply.
    pub(crate) fn to(&self, span_index: Idx) -> Option<&Text> {
        self.0.get(&span_index)
    }

    /// Whether the user replied to any text of the agent.
    pub(crate) fn has_to(&self, agent: &Agent) -> bool {
        agent.llms.iter().any(|span_index| self.to(*span_index).is_some())
    }
}

/// The user's messages to an agent, in order: the request, and the replies to the agent's texts. If the recorded
/// request is one of the replies, the dialogue began with the last message of the first prompt.
pub(crate) fn said_by_user(trace: &AgentTrace, memo: &Memo, agent: usize) -> Vec<Text> {
    let replies = Replies::cached(trace, memo);
    let llms = || trace.agents.get(agent).into_iter().flat_map(|agent| &agent.llms);
    let replied: Vec<Text> = llms().filter_map(|span_index| replies.to(*span_index)).cloned().collect();
    let task = agent_index::task(trace, agent);
    let first = || {
        let prompt = &trace.views.get(*llms().next()?)?.input;
        prompt.iter().rev().filter(|message| message.role == Role::User).find_map(agent_index::first_text)
    };
    let is_reply = task.is_some_and(|task| replied.iter().any(|reply| **reply == **task));
    let request = if is_reply { first().or(task) } else { task };
    request.cloned().into_iter().chain(replied).collect()
}

/// The last message of the user between the text of the model call on this span and the next model call of the agent.
fn reply(trace: &AgentTrace, turns: &Turns, span_index: Idx) -> Option<Text> {
    if !is_for_reader(trace.views.get(span_index)?.output.iter()) {
        return None;
    }
    let next = trace.views.get(turns.after(span_index)?)?;
    // Only messages of the user may follow the text of the model: a result of a tool is no reply.
    let newer_messages = next.input.iter().rev().take_while(|message| message.role != Role::Assistant);
    let mut message_text = None;
    for message in newer_messages {
        match message.role {
            Role::User => message_text = message.parts.iter().rev().find_map(plain_text).or(message_text),
            Role::System => {}
            _ => return None,
        }
    }
    message_text.filter(|text| !is_blank(text)).cloned()
}

/// Whether the prompt of a model call contains a text of the model with a reply of the user, so that the run is a
/// dialogue.
pub(crate) fn is_in_dialogue(view: &SpanView) -> bool {
    let mut pairs = view.input.iter().zip(view.input.iter().skip(1));
    pairs.any(|(text, reply)| {
        text.role == Role::Assistant && reply.role == Role::User && is_for_reader(std::iter::once(text))
    })
}

/// Maximum messages of a prompt in which the open request is searched; the latest ones are.
const MAX_MESSAGES: usize = 24;

/// The user's message that the next text of the model has to answer in a dialogue: the latest one, or, if that one
/// only answers a question of the model, the one before that question. `None` outside of a dialogue.
pub(crate) fn open_request<'v>(view: &'v SpanView, memo: &Memo) -> Option<&'v Text> {
    if !is_in_dialogue(view) {
        return None;
    }
    let mut answers_question = false;
    let mut request = None;
    for message in view.input.iter().rev().take(MAX_MESSAGES) {
        match message.role {
            Role::User => {
                let Some(text) = message.parts.iter().rev().find_map(plain_text) else { continue };
                if request.is_none() || answers_question {
                    request = Some(text);
                    answers_question = false;
                    if contains_question(text) {
                        return request;
                    }
                }
            }
            Role::Assistant if is_for_reader(std::iter::once(message)) => {
                let text = message.parts.iter().rev().find_map(plain_text);
                answers_question =
                    text.is_some_and(|text| ReadText::new(text, None, memo).ends_with_question());
                // The text of the model answered the earlier requests.
                if request.is_some() && !answers_question {
                    return request;
                }
            }
            _ => {}
        }
    }
    request
}

/// Whether a message of the user contains a question.
fn contains_question(text: &str) -> bool {
    text.contains(['?', '\u{ff1f}'])
}

/// Whether these messages of a model are text for a reader: neither a call nor code to run.
pub(crate) fn is_for_reader<'m>(messages: impl Iterator<Item = &'m Message>) -> bool {
    let mut has_text = false;
    for part in messages.flat_map(|message| &message.parts) {
        match part {
            Part::Call(_) => return false,
            Part::Text(text) if writes_code(text) => return false,
            Part::Text(text) => has_text |= !is_blank(text),
            _ => {}
        }
    }
    has_text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::Script;

    #[test]
    fn texts_that_the_user_answers_have_a_reply() {
        let trace = Script::new("I want to move my check-up.")
            .says("Which day suits you?")
            .user("Monday.")
            .calls("", &[("find_slot", "{}")])
            .returns("9:00")
            .answers("Monday at nine is free.")
            .build();
        let memo = Memo::new();
        let replies = Replies::cached(&trace, &memo);
        let to: Vec<Option<&str>> =
            trace.agents[0].llms.iter().map(|span_index| replies.to(*span_index).map(|t| &**t)).collect();
        assert_eq!(to, [Some("Monday."), None, None]);
        let in_dialogue: Vec<bool> =
            trace.agents[0].llms.iter().map(|span_index| is_in_dialogue(&trace.views[*span_index])).collect();
        assert_eq!(in_dialogue, [false, true, true]);
    }

    #[test]
    fn open_request_is_the_question_that_no_turn_answered() {
        let open_request_of = |script: Script| {
            let trace = script.answers("Done.").build();
            let last = *trace.agents[0].llms.last().unwrap();
            open_request(&trace.views[last], &Memo::new()).map(|text| text.to_string())
        };
        let first = "When is my check-up?";
        let asked_back = Script::new(first).says("What is your date of birth?").user("3 May 1990.");
        assert_eq!(open_request_of(asked_back).as_deref(), Some(first));
        let twice = Script::new(first).says("What is your name?").user("Ana Ruiz.");
        let twice = twice.says("And which clinic is it?").user("The one in Mill Lane.");
        assert_eq!(open_request_of(twice).as_deref(), Some(first));
        let next = Script::new(first).says("It is on 4 June at nine.").user("How long does it take?");
        assert_eq!(open_request_of(next).as_deref(), Some("How long does it take?"));
        let requested = Script::new(first).says("It is on 4 June at nine.").user("Please move it to July.");
        assert_eq!(open_request_of(requested).as_deref(), Some("Please move it to July."));
        assert_eq!(open_request_of(Script::new(first)), None);
    }

    #[test]
    fn observations_are_no_replies() {
        let trace = Script::new("How many lines has the file?")
            .says("Thought: count.\n```\nprint(len(open('a').readlines()))\n```")
            .user("Observation: 12")
            .answers("12")
            .build();
        let memo = Memo::new();
        assert!(Replies::cached(&trace, &memo).to(trace.agents[0].llms[0]).is_none());
        assert!(!is_in_dialogue(&trace.views[trace.agents[0].llms[1]]));
    }
}
