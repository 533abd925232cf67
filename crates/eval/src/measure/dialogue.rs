//! The turns of a conversation with a user: the texts of a model that the user answered.
//!
//! In: a trace. Out: for each model call whose text a message of the user follows, that message. Such a text is
//! no final answer. Observations that a harness hands to a model as messages of the user follow actions, and
//! are no replies.

use std::rc::Rc;

use foldhash::HashMap;
use verdict_otlp::trace::Idx;

use super::conversation::{Turns, plain_text, writes_code};
use super::memo::Memo;
use crate::recognise::{AgentTrace, Message, Part, Role, SpanView, Text};

/// The user's replies by the model call that they answer.
#[derive(Debug, Default)]
pub(crate) struct Replies(HashMap<Idx, Text>);

impl Replies {
    /// The replies of the trace, computed once.
    pub(crate) fn of(trace: &AgentTrace, memo: &Memo) -> Rc<Replies> {
        memo.trace(|| {
            let turns = Turns::of(trace, memo);
            let llms = trace.agents.iter().flat_map(|agent| &agent.llms);
            Replies(llms.filter_map(|&at| Some((at, reply(trace, &turns, at)?))).collect())
        })
    }

    /// What the user replied to the text of the model call at `at`.
    pub(crate) fn to(&self, at: Idx) -> Option<&Text> {
        self.0.get(&at)
    }
}

fn reply(trace: &AgentTrace, turns: &Turns, at: Idx) -> Option<Text> {
    if !is_for_reader(trace.views.get(at)?.output.iter()) {
        return None;
    }
    let next = trace.views.get(turns.after(at)?)?;
    // After the text of the model, only the user has spoken.
    let newer = next.input.iter().rev().take_while(|message| message.role != Role::Assistant);
    let mut said = None;
    for message in newer {
        match message.role {
            Role::User => said = message.parts.iter().rev().find_map(plain_text).or(said),
            Role::System => {}
            _ => return None,
        }
    }
    said.filter(|text| !text.trim().is_empty()).cloned()
}

/// Whether the prompt of a model call has a text of the model that the user answered: the run is a dialogue.
pub(crate) fn is_in_dialogue(view: &SpanView) -> bool {
    let mut pairs = view.input.iter().zip(view.input.iter().skip(1));
    pairs.any(|(text, reply)| {
        text.role == Role::Assistant && reply.role == Role::User && is_for_reader(std::iter::once(text))
    })
}

/// Whether these messages of a model are text for a reader: neither a call nor code to run.
pub(crate) fn is_for_reader<'m>(messages: impl Iterator<Item = &'m Message>) -> bool {
    let mut has_text = false;
    for part in messages.flat_map(|message| &message.parts) {
        match part {
            Part::Call(_) => return false,
            Part::Text(text) if writes_code(text) => return false,
            Part::Text(text) => has_text |= !text.trim().is_empty(),
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
        let replies = Replies::of(&trace, &memo);
        let to: Vec<Option<&str>> =
            trace.agents[0].llms.iter().map(|at| replies.to(*at).map(|t| &**t)).collect();
        assert_eq!(to, [Some("Monday."), None, None]);
        let in_dialogue: Vec<bool> =
            trace.agents[0].llms.iter().map(|at| is_in_dialogue(&trace.views[*at])).collect();
        assert_eq!(in_dialogue, [false, true, true]);
    }

    #[test]
    fn observations_are_no_replies() {
        let trace = Script::new("How many lines has the file?")
            .says("Thought: count.\n```\nprint(len(open('a').readlines()))\n```")
            .user("Observation: 12")
            .answers("12")
            .build();
        let memo = Memo::new();
        assert!(Replies::of(&trace, &memo).to(trace.agents[0].llms[0]).is_none());
        assert!(!is_in_dialogue(&trace.views[trace.agents[0].llms[1]]));
    }
}
