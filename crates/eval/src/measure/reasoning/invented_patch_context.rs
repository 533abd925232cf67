//! Patches to lines of code that the model has not read.
//!
//! Principle: the old lines of a patch (context and removed lines) are lines of a file that its author has read or has
//! written before. A patch with invented old lines applies to no file.
//!
//! In: an agent's answer that is a patch, and its model calls in order. Out: one finding, on the model call that first
//! wrote invented old lines, if most of the old lines that the model wrote are in no text that it read. Lines that no
//! model call wrote (a diff by a tool), or that were arguments of an earlier call (a file of the agent itself), do not
//! count.
//!
//! Only letters and digits are compared, since escapes, quotes and indentation differ between a file, its printout and
//! a patch.

use foldhash::{HashSet, HashSetExt};
use std::rc::Rc;

use verdict_otlp::trace::Idx;

use crate::measure::conversation::prompt_texts;
use crate::measure::defects::Defect;
use crate::measure::{Finding, Memo};
use crate::recognise::{Agent, AgentTrace, Content, ControlTools, Part, SpanView};

regex!(PATCH, r"(?m)^@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@|^diff --git ");
/// Minimum letters and digits of a line that is compared: shorter lines occur in every file.
const MIN_LINE_LETTERS: usize = 10;
/// Minimum invented lines of a finding: fewer lines may be abbreviated rather than invented.
const MIN_INVENTED_LINES: usize = 3;
/// Maximum old lines of one patch that are compared.
const MAX_OLD_LINES: usize = 200;
/// Maximum outputs of one agent that are read.
const MAX_TURNS: usize = 200;
/// Maximum bytes that are searched for the lines of one agent's patch.
const MAX_SEARCHED_BYTES: usize = 64 << 20;

/// Findings by agent and model span.
pub(crate) fn find(trace: &AgentTrace, memo: &Memo) -> Vec<(usize, Idx, Finding)> {
    let agents = trace.agents.iter().enumerate();
    agents.filter_map(|(i, agent)| invented_lines(trace, memo, agent).map(|(at, f)| (i, at, f))).collect()
}

/// The finding on an agent's patch, with its model span.
fn invented_lines(trace: &AgentTrace, memo: &Memo, agent: &Agent) -> Option<(Idx, Finding)> {
    let answer = agent.answer.as_deref().filter(|answer| PATCH.is_match(answer))?;
    let mut unseen_lines = old_lines(answer);
    if unseen_lines.len() < MIN_INVENTED_LINES {
        return None;
    }
    let turns: Vec<(Idx, &SpanView)> =
        agent.llms.iter().take(MAX_TURNS).filter_map(|&at| Some((at, trace.views.get(at)?))).collect();
    if !turns.iter().all(|(_, view)| is_complete(view)) {
        return None;
    }
    let mut history = PromptHistory { memo, read: HashSet::new(), shown: Vec::new() };
    let mut searched_bytes = 0;
    let mut known_lines = 0;
    let mut invented: Vec<(Idx, &str)> = Vec::new();
    let tools = &trace.control_tools;
    for (at, view) in turns {
        let new_texts = history.new_texts(view);
        let output = letters_only(&model_text(tools, view));
        let calls = letters_only(&arguments(tools, view, false));
        let new_bytes: usize = new_texts.iter().map(|t| t.len()).sum();
        searched_bytes += unseen_lines.len() * (output.len() + calls.len() + new_bytes);
        if searched_bytes > MAX_SEARCHED_BYTES {
            return None;
        }
        unseen_lines.retain(|(line, letters)| {
            if new_texts.iter().any(|t| t.contains(letters.as_str())) {
                known_lines += 1;
                return false;
            }
            let in_call = calls.contains(letters.as_str());
            let in_output = output.contains(letters.as_str());
            if in_output && !in_call {
                invented.push((at, line));
            }
            !in_output && !in_call
        });
    }
    let &(at, _) = invented.first()?;
    // The finding quotes the longest invented line of the model call.
    let call_lines = invented.iter().filter(|(llm, _)| *llm == at).map(|(_, line)| line.trim());
    let line = call_lines.max_by_key(|line| line.len())?;
    if invented.len() < MIN_INVENTED_LINES || invented.len() <= known_lines {
        return None;
    }
    let rationale = format!(
        "a patch to lines that had been read was expected; {} of {} old lines, including this one, are in \
         nothing that the model was shown",
        invented.len(),
        invented.len() + known_lines
    );
    Some((at, Defect::InventedContext.finding(rationale, line)))
}

/// Whether the prompt and the output are recorded, and the prompt has no media.
fn is_complete(view: &SpanView) -> bool {
    let has_media = || view.input.iter().flat_map(|m| &m.parts).any(|p| matches!(p, Part::Media));
    view.input_content == Content::Present && view.output_content == Content::Present && !has_media()
}

/// The distinct context and removed lines of a patch, with their letters and digits.
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
            let is_new = !out.iter().any(|(_, existing)| *existing == letters);
            if letters.len() >= MIN_LINE_LETTERS && is_new && out.len() < MAX_OLD_LINES {
                out.push((old, letters));
            }
        }
    }
    out
}

/// The letters and digits of a text, as they are cached.
struct LettersOnly(String);

/// The texts of the prompts so far.
struct PromptHistory<'m> {
    memo: &'m Memo,
    /// The texts that were read, by address and length, since prompts repeat their history.
    read: HashSet<(usize, usize)>,
    shown: Vec<Rc<LettersOnly>>,
}

impl PromptHistory<'_> {
    /// The letters and digits of the texts that are new in this prompt.
    fn new_texts(&mut self, view: &SpanView) -> Vec<&str> {
        let from = self.shown.len();
        for text in prompt_texts(view) {
            if self.read.insert((text.as_ptr() as usize, text.len())) {
                self.shown.push(self.memo.for_text(text, |t| LettersOnly(letters_only(t))));
            }
        }
        self.shown.iter().skip(from).map(|s| s.0.as_str()).collect()
    }
}

/// The output of a model call and the arguments of its final answer.
fn model_text(tools: &ControlTools, view: &SpanView) -> String {
    view.output_text().into_owned() + "\n" + &arguments(tools, view, true)
}

/// The arguments of the calls that give the final answer (`in_answer`), or of all other calls.
fn arguments(tools: &ControlTools, view: &SpanView, in_answer: bool) -> String {
    let requests = view.requests().filter(|r| tools.is_final_answer(&r.name) == in_answer);
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

    fn findings(script: Script) -> Vec<(usize, Idx, Finding)> {
        find(&script.build(), &Memo::new())
    }

    #[test]
    fn patch_of_shown_lines_is_not_a_finding() {
        let escaped = serde_json::to_string(FILE).unwrap();
        for shown in [FILE, escaped.as_str()] {
            let run =
                fix().calls("", &[("read_file", r#"{"path":"area.py"}"#)]).returns(shown).answers(PATCH);
            assert!(findings(run).is_empty(), "{shown}");
        }
    }

    #[test]
    fn patch_of_unseen_lines_is_found() {
        let run =
            fix().calls("", &[("read_file", r#"{"path":"area.py"}"#)]).raises("no such file").answers(PATCH);
        let trace = run.build();
        let actual = find(&trace, &Memo::new());
        let [(0, at, finding)] = &actual[..] else { panic!("one finding: {actual:?}") };
        assert_eq!(
            (Some(*at), finding.quote.as_str()),
            (trace.agents[0].answer_at, "def area(width, height):")
        );
        assert!(finding.rationale.contains("4 of 4"), "{}", finding.rationale);
    }

    #[test]
    fn tool_diffs_own_files_and_short_patches_are_not_findings() {
        let diff = fix().calls("", &[("git_diff", "{}")]).returns(PATCH).answers(PATCH);
        assert!(findings(diff).is_empty());
        let write_arguments = serde_json::json!({ "path": "area.py", "text": FILE }).to_string();
        let written = fix().calls("", &[("write_file", &write_arguments)]).returns("ok").answers(PATCH);
        assert!(findings(written).is_empty());
        let few = "--- a/x\n+++ b/x\n@@ -1,1 +1,1 @@\n-result = width + height\n+result = 0\n";
        assert!(findings(fix().answers(few)).is_empty());
        let hidden = fix().answers(PATCH).build_without_content();
        assert!(find(&hidden, &Memo::new()).is_empty());
    }
}
