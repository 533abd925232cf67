//! A patch to code that nobody has read.
//!
//! In: an agent's answer that is a patch, and its model calls in order. Out: one finding, on the
//! model call that first wrote the lines which the patch takes for the file's own (context and
//! removed ones), where most of those the model wrote had stood in nothing it was shown: they are
//! made up, and the patch fits no file. Lines that no model call wrote (a diff that a tool made), or
//! that it had handed to a tool before (a file of its own), prove nothing.
//!
//! Compared are letters and digits alone: escapes, quotes and indentation differ between a file,
//! its printout and a patch.

use foldhash::{HashSet, HashSetExt};
use std::rc::Rc;

use verdict_otlp::trace::Idx;

use super::no_progress::is_patch;
use crate::measure::defects::Defect;
use crate::measure::{Finding, Memo};
use crate::recognise::{Agent, AgentTrace, Content, ControlTools, Part, SpanView, Text};

/// Letters and digits that a line must have to be told from others: a brace stands in every file.
const LEAST_LETTERS: usize = 10;
/// So many old lines are needed to tell a patch that was made up from one that rounds off a line.
const LEAST_LINES: usize = 3;
/// Old lines of one patch that are looked at.
const MAX_LINES: usize = 200;
/// Outputs of one agent that are looked at.
const MAX_TURNS: usize = 200;
/// Bytes that one agent's lines are looked for in.
const MAX_SEARCHED: usize = 64 << 20;

/// Findings by agent, with the model span that each is written on.
pub(crate) fn find(trace: &AgentTrace, memo: &Memo) -> Vec<(usize, Idx, Finding)> {
    let agents = trace.agents.iter().enumerate();
    agents.filter_map(|(i, agent)| invented_lines(trace, memo, agent).map(|(at, f)| (i, at, f))).collect()
}

fn invented_lines(trace: &AgentTrace, memo: &Memo, agent: &Agent) -> Option<(Idx, Finding)> {
    let answer = agent.answer.as_deref().filter(|answer| is_patch(answer))?;
    let old = old_lines(answer);
    if old.len() < LEAST_LINES {
        return None;
    }
    let turns: Vec<(Idx, &SpanView)> =
        agent.llms.iter().take(MAX_TURNS).filter_map(|&at| Some((at, trace.views.get(at)?))).collect();
    if !turns.iter().all(|(_, r)| all_shown(r)) {
        return None;
    }
    let mut history = PromptHistory { memo, read: HashSet::new(), shown: Vec::new() };
    let mut searched = 0;
    let mut open = old;
    let mut known = 0;
    let mut invented: Vec<(Idx, &str)> = Vec::new();
    let tools = &trace.control_tools;
    for (at, view) in turns {
        let new_texts = history.new_texts(view);
        let said = letters_only(&model_text(tools, view));
        let handed = letters_only(&arguments(tools, view, false));
        searched +=
            open.len() * (said.len() + handed.len() + new_texts.iter().map(|t| t.len()).sum::<usize>());
        if searched > MAX_SEARCHED {
            return None;
        }
        open.retain(|(line, letters)| {
            if new_texts.iter().any(|t| t.contains(letters.as_str())) {
                known += 1;
                return false;
            }
            let made = handed.contains(letters.as_str());
            let written = said.contains(letters.as_str());
            if written && !made {
                invented.push((at, line));
            }
            !written && !made
        });
    }
    let &(at, _) = invented.first()?;
    // Of what that call made up, the longest line says most.
    let own = invented.iter().filter(|(by, _)| *by == at).map(|(_, line)| line.trim());
    let line = own.max_by_key(|line| line.len())?;
    if invented.len() < LEAST_LINES || invented.len() <= known {
        return None;
    }
    let rationale = format!(
        "a patch to lines that had been read was expected; {} of {} old lines in it, this one among them, had stood \
         in nothing that the model was shown",
        invented.len(),
        invented.len() + known
    );
    Some((at, Defect::InventedContext.finding(rationale, line)))
}

/// Nothing is missing of what went in and came out.
fn all_shown(view: &SpanView) -> bool {
    let media = || view.input.iter().flat_map(|m| &m.parts).any(|p| matches!(p, Part::Media));
    view.input_content == Content::Present && view.output_content == Content::Present && !media()
}

/// Context and removed lines of a patch, each once, with their letters and digits.
fn old_lines(patch: &str) -> Vec<(&str, String)> {
    let mut out: Vec<(&str, String)> = Vec::new();
    let mut in_hunk = false;
    for line in patch.lines() {
        if line.starts_with("@@ ") {
            in_hunk = true;
        } else if line.starts_with("--- ") || line.starts_with("diff ") {
            in_hunk = false;
        } else if let Some(old) = line.strip_prefix([' ', '-']).filter(|_| in_hunk) {
            let letters = letters_only(old);
            let tells = letters.len() >= LEAST_LETTERS && !out.iter().any(|(_, known)| *known == letters);
            if tells && out.len() < MAX_LINES {
                out.push((old, letters));
            }
        }
    }
    out
}

struct LettersOnly(String);

/// What the prompts have shown so far.
struct PromptHistory<'m> {
    memo: &'m Memo,
    /// Texts that were there before, by address: prompts repeat their history.
    read: HashSet<(usize, usize)>,
    shown: Vec<Rc<LettersOnly>>,
}

impl PromptHistory<'_> {
    /// The texts that are new in this prompt, squeezed.
    fn new_texts(&mut self, view: &SpanView) -> Vec<&str> {
        let from = self.shown.len();
        for text in view.input.iter().flat_map(|m| &m.parts).filter_map(text_of) {
            if self.read.insert((text.as_ptr() as usize, text.len())) {
                self.shown.push(self.memo.of(text, |t| LettersOnly(letters_only(t))));
            }
        }
        self.shown.iter().skip(from).map(|s| s.0.as_str()).collect()
    }
}

fn text_of(part: &Part) -> Option<&Text> {
    match part {
        Part::Text(text) => Some(text),
        Part::Result { content, .. } => Some(content),
        _ => None,
    }
}

/// What a model call said, and handed over as its answer.
fn model_text(tools: &ControlTools, view: &SpanView) -> String {
    view.output_text().into_owned() + "\n" + &arguments(tools, view, true)
}

/// The arguments of its calls: of those that hand over the answer, or of all others.
fn arguments(tools: &ControlTools, view: &SpanView, of_answer: bool) -> String {
    let requests = view.requests().filter(|r| tools.is_final_answer(&r.name) == of_answer);
    requests.filter_map(|r| r.arguments.as_deref()).collect::<Vec<_>>().join("\n")
}

fn letters_only(text: &str) -> String {
    text.chars().filter(|c| c.is_alphanumeric()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::Script;

    const FILE: &str =
        "def area(width, height):\n    # both in metres\n    result = width + height\n    return result\n";
    const PATCH: &str = "--- a/area.py\n+++ b/area.py\n@@ -1,4 +1,4 @@\n def area(width, height):\n     # both in metres\n-    result = width + height\n+    result = width * height\n     return result\n";

    fn fix() -> Script {
        Script::new("Fix area() and hand over a patch.").tools(&["read_file"])
    }

    fn found(script: Script) -> Vec<(usize, Idx, Finding)> {
        find(&script.build(), &Memo::new())
    }

    #[test]
    fn patch_of_shown_lines_is_not_a_finding() {
        let escaped = serde_json::to_string(FILE).unwrap();
        for shown in [FILE, escaped.as_str()] {
            let run =
                fix().calls("", &[("read_file", r#"{"path":"area.py"}"#)]).returns(shown).answers(PATCH);
            assert!(found(run).is_empty(), "{shown}");
        }
    }

    #[test]
    fn patch_of_unseen_lines_is_found() {
        let run =
            fix().calls("", &[("read_file", r#"{"path":"area.py"}"#)]).raises("no such file").answers(PATCH);
        let trace = run.build();
        let found = find(&trace, &Memo::new());
        let [(0, at, finding)] = &found[..] else { panic!("one finding: {found:?}") };
        assert_eq!(
            (Some(*at), finding.quote.as_str()),
            (trace.agents[0].answer_at, "def area(width, height):")
        );
        assert!(finding.rationale.contains("4 of 4"), "{}", finding.rationale);
    }

    #[test]
    fn tool_diffs_own_files_and_short_patches_are_not_findings() {
        let diff = fix().calls("", &[("git_diff", "{}")]).returns(PATCH).answers(PATCH);
        assert!(found(diff).is_empty());
        let own = serde_json::json!({ "path": "area.py", "text": FILE }).to_string();
        let written = fix().calls("", &[("write_file", &own)]).returns("ok").answers(PATCH);
        assert!(found(written).is_empty());
        let few = "--- a/x\n+++ b/x\n@@ -1,1 +1,1 @@\n-result = width + height\n+result = 0\n";
        assert!(found(fix().answers(few)).is_empty());
        let hidden = fix().answers(PATCH).build_without_content();
        assert!(find(&hidden, &Memo::new()).is_empty());
    }
}
