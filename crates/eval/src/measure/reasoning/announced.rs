//! Calls that a model announces and does not make.
//!
//! In: a model's words ("I will ask the search_agent"), the tools and helpers that its prompt
//! names, and what was called before its next turn. Out: a finding where nothing of the name was
//! called: the model takes a message that it printed for one that it sent. Only outputs that act
//! count (they hold code) or that end the run; a plan may well speak of what comes later.

use super::answer::{masked, sentences};
use crate::measure::agent::attempts::is_finishing;
use crate::measure::anchors::Defect;
use crate::measure::turns::{Turns, handed_back, writes_code};
use crate::measure::{Finding, Memo};
use crate::recognise::{Agent, Content, Part, Reading, Role, Scene};
use verdict_otlp::trace::Idx;

// The speaker's own intention to call somebody or something.
regex!(
    INTENT,
    r"(?i)\b(I|we)(['’]ll| will| am going to| need to| shall| now)?( now| then| first| next| also)* (call|ask|use|invoke|instruct|query|request|consult|delegate|send|issue|compose|employ)(ing)?\b|\b(let me|let's|let us)( now| first)? (call|ask|use|invoke|query|consult|delegate)\b|\b(I am|I'm|we are) (now )?(calling|asking|sending|instructing|requesting)\b"
);
// A name as programs have them.
regex!(NAME, r"\b[A-Za-z]\w*_\w+\b");
/// Agents of a trace that are looked at, outermost first.
const MAX_AGENTS: usize = 512;
/// Outputs of one agent that are looked at.
const MAX_TURNS: usize = 200;

/// Findings by model span.
pub fn find(scene: &Scene, memo: &Memo) -> Vec<(Idx, Finding)> {
    let turns = Turns::of(scene, memo);
    let mut out = Vec::new();
    for (i, agent) in scene.agents.iter().enumerate().take(MAX_AGENTS) {
        let mut before = 0;
        for &at in agent.llms.iter().take(MAX_TURNS) {
            let Some(reading) = scene.readings.get(at) else { continue };
            if let Some((name, sentence)) = broken_promise(scene, &turns, i, agent, at, reading) {
                let next = turns.after(at).and_then(|next| scene.readings.get(next));
                let told = findings(reading, next, &name, &sentence, before);
                out.extend(told.into_iter().map(|finding| (at, finding)));
                before += 1;
            }
        }
    }
    for (at, finding) in &mut out {
        // What the finding rests on: the turn itself, and the one that shows what came of it.
        let after = turns.after(*at).and_then(|next| scene.tree.spans.get(next));
        finding.cited.extend(after.map(|s| s.id));
    }
    out
}

fn broken_promise(
    scene: &Scene,
    turns: &Turns,
    i: usize,
    agent: &Agent,
    at: Idx,
    reading: &Reading,
) -> Option<(String, String)> {
    let present = reading.output_content == Content::Present && reading.input_content == Content::Present;
    if !present || scene.incomplete || reading.requests().next().is_some() || !reading.plans.is_empty() {
        return None;
    }
    let text = reading.output_text();
    let next = turns.after(at);
    if !writes_code(&text) && (next.is_some() || agent.answer_at != Some(at)) {
        return None;
    }
    let prose = masked(&text);
    let mut promised = None;
    for (start, end) in sentences(&prose) {
        let sentence = prose.get(start..end)?;
        if !INTENT.is_match(sentence) {
            continue;
        }
        let meant = NAME.find_iter(sentence).map(|m| m.as_str()).find(|n| is_known(scene, reading, agent, n));
        if let Some(meant) = meant {
            promised = Some((meant.to_owned(), text.get(start..end)?.trim().to_owned()));
            break;
        }
    }
    let (meant, sentence) = promised?;
    let called_in_code = text
        .match_indices(&meant)
        .any(|(p, n)| text.get(p + n.len()..).is_some_and(|rest| rest.trim_start().starts_with('(')));
    (!called_in_code && !was_called(scene, i, at, next)).then_some((meant, sentence))
}

/// A tool or helper that the agent was shown, or that its prompt speaks of.
fn is_known(scene: &Scene, reading: &Reading, agent: &Agent, name: &str) -> bool {
    !is_finishing(name)
        && (agent.tools.iter().any(|t| t.name.trim() == name)
            || scene.agents.iter().any(|a| a.name.as_deref() == Some(name))
            || instructed(reading).any(|t| t.contains(name)))
}

/// The instructions in a model call's prompt.
pub(super) fn instructed(reading: &Reading) -> impl Iterator<Item = &str> {
    let system = reading.input.iter().filter(|m| m.role == Role::System);
    system.flat_map(|m| &m.parts).filter_map(|p| match p {
        Part::Text(text) => Some(&**text),
        _ => None,
    })
}

/// Anything at all was called, by this agent or one beneath it, before its next turn.
fn was_called(scene: &Scene, i: usize, at: Idx, next: Option<Idx>) -> bool {
    let start = |at: Idx| scene.tree.spans.get(at).map_or(0, |s| s.start);
    let (from, to) = (start(at), next.map_or(u64::MAX, start));
    let within = |time: u64| time >= from && time < to;
    let finishes = |name: &str| is_finishing(name);
    scene.calls.iter().any(|c| within(c.start) && !finishes(&c.name))
        || scene.agents.iter().any(|a| a.parent == Some(i) && within(start(a.at)))
}

fn findings(
    reading: &Reading,
    next: Option<&Reading>,
    name: &str,
    sentence: &str,
    before: usize,
) -> Vec<Finding> {
    let again = match before {
        0 => String::new(),
        n => format!(" ({n} times before, too)"),
    };
    let rationale = format!(
        "a call to {name} was expected, since it is announced here; none was made before the next turn{again}"
    );
    let mut out = vec![Defect::AnnouncedCallMissing.found(rationale, sentence)];
    // The first time, what was done in its place is a choice of its own.
    let shown = next.and_then(|r| handed_back(r).next()).filter(|_| before == 0);
    if let Some(shown) = shown.filter(|_| writes_code(&reading.output_text())) {
        let rationale = format!(
            "the request to {name} was written into code that only shows it; {name} itself was expected to be \
             called"
        );
        out.push(Defect::ToolLeftUnused.found(rationale, shown.trim()));
    }
    out
}
