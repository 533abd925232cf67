//! The marks of actions, code and answers that are written as text in a model's output, and the labels with which
//! frameworks show the model the output of its code and the results of its tools.
//!
//! All marks and labels of all frameworks are in this module; rules call its functions.

use std::ops::Range;

use super::control_tools::ControlTools;

/// Marks at which code to be run begins.
const CODE_MARKS: [&str; 3] = ["```", "<code>", "Code:"];
/// Marks of an action that is written as text. Fences are not among them, since an answer may contain a fence.
const ACTION_MARKS: [&str; 2] = ["<code>", "\nAction:"];
/// Labels at the beginning of an output that is an action.
const ACTION_LABELS: [&str; 1] = ["Action:"];
/// Labels of thoughts. An output that begins with one and contains a code fence is an action.
const THOUGHT_LABELS: [&str; 1] = ["Thought:"];
/// Labels of a final answer.
const ANSWER_LABELS: [&str; 1] = ["Final Answer:"];
/// Labels around the output of code, which frameworks add.
const CODE_OUTPUT_LABELS: [&str; 4] =
    ["Call id:", "Observation:", "Execution logs:", "Last output from code snippet:"];
/// Labels before the result of a tool, in lower case.
const RESULT_LABELS: [&str; 8] = [
    "observation:",
    "result:",
    "output:",
    "tool result:",
    "tool output:",
    "response:",
    "tool response:",
    "execution result:",
];
/// Maximum number of labels that are removed before one result.
const MAX_LABELS: usize = 4;
/// Marks of emphasis and failure before a result or its label.
const EMPHASIS_MARKS: &str = "*#>`\"'[(❌⚠🚫✗✘\u{fe0f}";
/// Labels before a final answer, or before a thought that is the answer, in the order in which they are removed.
const ANSWER_PREFIXES: [&str; 6] =
    ["Thought:", "FINAL ANSWER:", "Final Answer:", "Final answer:", "Answer:", "**Answer:**"];
/// Marks of code or an action anywhere in an output that may be a step of the run.
const STEP_MARKS: [&str; 3] = ["```", "<code>", "Action:"];
/// First characters of a call or of markup in place of prose.
const STEP_BEGINNINGS: [char; 3] = ['{', '[', '<'];
/// The marks that begin or end code in prose.
const FENCES: [&str; 3] = ["```", "<code>", "</code>"];
/// The fence that only begins code.
const OPENING_FENCE: &str = "<code>";
/// A pattern of code and thoughts within prose.
pub(crate) const NOT_PROSE: &str = r"```.*?(?:```|\z)|<code>.*?(?:</code>|\z)|<think>.*?</think>";

// A tag around the result of a tool.
regex!(
    RESULT_TAG,
    r"^<(?:(?:tool|function|command|execution)[_-])?(?:results?|output|response|observation|stdout|stderr)>"
);
// Statements that print, in the programming languages that models write.
regex!(
    PRINT_STATEMENT,
    r"(?:\bprint(?:ln|f)?!?\s*\(|\bconsole\.log\s*\(|\bSystem\.out\.|\bfmt\.Print|\bstd::cout\b|\bputs\s|\bWrite-Output\b|\bConsole\.Write)"
);
// A call's only argument, if it is a literal: a string or a number.
regex!(
    LITERAL_ARGUMENT,
    r#"^\(\s*(?:[A-Za-z_]\w*\s*=\s*)?(?:"""((?s:.*?))"""|"((?:[^"\\\n]|\\.)*)"|'((?:[^'\\\n]|\\.)*)'|(-?[\d.,]+))\s*\)"#
);
/// Maximum number of calls of one final-answer tool in one text that are read.
const MAX_ANSWER_CALLS: usize = 16;

/// Whether a model's output contains code that is to be run.
pub(crate) fn writes_code(text: &str) -> bool {
    let bytes = text.as_bytes();
    let begins = |start: usize| {
        text.get(start..).is_some_and(|rest| CODE_MARKS.iter().any(|mark| rest.starts_with(mark)))
    };
    memchr::memchr3_iter(b'`', b'<', b'C', bytes).any(begins)
}

/// Whether the text is an action: code to run, a step with a label, a call written as JSON.
pub(crate) fn is_action(text: &str) -> bool {
    let start = text.trim_start();
    let begins = |labels: &[&str]| labels.iter().any(|label| start.starts_with(label));
    ACTION_MARKS.iter().any(|mark| text.contains(mark))
        || begins(&ACTION_LABELS)
        || begins(&THOUGHT_LABELS) && text.contains("```")
        || (start.starts_with('{') && start.contains("\"arguments\"") && start.contains("\"name\""))
}

/// Whether the text may be a step of the run and not an answer to the user: it contains code or an action, or is a call
/// or markup. An answer may match, too: in contrast to [`is_action`], for rules that skip doubtful texts.
pub(crate) fn may_be_step(text: &str) -> bool {
    STEP_MARKS.iter().any(|mark| text.contains(mark)) || text.trim_start().starts_with(STEP_BEGINNINGS)
}

/// The text without the labels of a final answer at its beginning, which frameworks write in English.
pub(crate) fn without_answer_prefixes(text: &str) -> &str {
    ANSWER_PREFIXES.iter().fold(text, |text, prefix| text.strip_prefix(prefix).map_or(text, str::trim_start))
}

/// The first statement of a program that prints.
pub(crate) fn print_statement(code: &str) -> Option<Range<usize>> {
    PRINT_STATEMENT.find(code).map(|found| found.range())
}

/// Whether a text has a fence of code.
pub(crate) fn has_fence(text: &str) -> bool {
    FENCES.iter().any(|fence| memchr::memmem::find(text.as_bytes(), fence.as_bytes()).is_some())
}

/// Whether code follows `line`, if it is a fence; `None` if it is not. `is_code` is whether `line` follows code.
pub(crate) fn is_code_after_fence(line: &str, is_code: bool) -> Option<bool> {
    let is_fence = FENCES.iter().any(|fence| line.starts_with(fence));
    is_fence.then(|| !is_code || line.starts_with(OPENING_FENCE))
}

/// The text after the last label of a final answer.
pub(crate) fn labelled_answer(text: &str) -> Option<&str> {
    // Most texts have no label, which a search from the beginning finds out faster.
    let labels = ANSWER_LABELS.iter().filter(|label| text.contains(**label));
    let ends = labels.filter_map(|label| Some(text.rfind(label)? + label.len()));
    text.get(ends.max()?..)
}

/// The text without the labels around the output of code.
pub(crate) fn without_labels(text: &str) -> String {
    CODE_OUTPUT_LABELS.iter().fold(text.to_owned(), |text, label| text.replace(label, " "))
}

/// The result of a tool without the labels, tags and marks of emphasis before it.
pub(crate) fn without_result_labels(text: &str) -> &str {
    let mut text = text.trim();
    for _ in 0..MAX_LABELS {
        let unmarked = text.trim_start_matches(|c: char| c.is_whitespace() || EMPHASIS_MARKS.contains(c));
        let after_label = RESULT_LABELS.iter().find_map(|label| {
            let start = unmarked.get(..label.len())?;
            start.eq_ignore_ascii_case(label).then(|| unmarked.get(label.len()..))?
        });
        let after_tag = || RESULT_TAG.find(text).and_then(|tag| text.get(tag.end()..));
        match after_label.or_else(after_tag) {
            Some(rest) => text = rest.trim_start(),
            None => return unmarked,
        }
    }
    text
}

impl ControlTools {
    /// The argument with which code in the text calls a final-answer tool. `None` without such a call; `Some(None)` if
    /// the argument is a variable or a formatted string, whose value is not recorded.
    pub(crate) fn answer_in_code(&self, text: &str) -> Option<Option<String>> {
        // Most texts have no call in code.
        memchr::memchr(b'(', text.as_bytes())?;
        // Without a mark of code, only a name with an underscore is no word of prose.
        let has_code = writes_code(text);
        let may_be_called = |name: &&String| has_code || name.contains('_');
        let mut calls: Vec<usize> = Vec::new();
        for name in self.final_answer.iter().filter(may_be_called) {
            let is_whole_name = |start: &usize| {
                let before = text.get(..*start).and_then(|t| t.chars().next_back());
                before.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != '.')
            };
            let starts = memchr::memmem::find_iter(text.as_bytes(), name.as_bytes()).filter(is_whole_name);
            let ends = starts.map(|start| start + name.len());
            calls.extend(ends.filter(|end| text.as_bytes().get(*end) == Some(&b'(')).take(MAX_ANSWER_CALLS));
        }
        calls.sort_unstable();
        let literal = |end: &usize| {
            let captures = LITERAL_ARGUMENT.captures(text.get(*end..)?)?;
            let literal = captures.iter().skip(1).flatten().next()?.as_str();
            Some(literal.replace("\\n", "\n").replace("\\\"", "\"").replace("\\'", "'"))
        };
        (!calls.is_empty()).then(|| calls.iter().rev().find_map(literal))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools() -> ControlTools {
        ControlTools { final_answer: vec!["final_answer".into(), "submit".into()], ..ControlTools::default() }
    }

    #[test]
    fn answers_in_code_are_read_and_other_calls_are_not() {
        let read = |text: &str| tools().answer_in_code(text);
        assert_eq!(read("```py\nsubmit('42 crates')\n```"), Some(Some("42 crates".to_owned())));
        assert_eq!(read("final_answer(answer=\"a \\\"b\\\"\")"), Some(Some("a \"b\"".to_owned())));
        assert_eq!(read("<code>final_answer(total)</code>"), Some(None));
        assert_eq!(read("Please submit('the form') today."), None);
        assert_eq!(read("```py\nform.submit('x')\nresubmit(1)\n```"), None);
    }

    #[test]
    fn actions_answers_and_labels_are_recognised() {
        assert!(is_action("Thought: x\n```py\nprint(1)\n```") && is_action("Thought: x\nAction: search[x]"));
        assert!(!is_action("Use this:\n```py\nprint(1)\n```"));
        assert_eq!(labelled_answer("Thought: x\nFinal Answer: 836"), Some(" 836"));
        assert_eq!(without_labels("Observation:\nrow 1").trim(), "row 1");
        assert_eq!(without_result_labels("** Tool result: <stdout>\nrow 1"), "row 1");
        assert_eq!(without_result_labels("Results: row 1"), "Results: row 1");
    }

    #[test]
    fn steps_leads_and_fences_are_recognised() {
        assert!(may_be_step("I will look.\nAction: search[x]") && may_be_step(r#"{"name":"search"}"#));
        assert!(!may_be_step("The action was not found."));
        assert_eq!(without_answer_prefixes("Thought: Final Answer: 836"), "836");
        assert_eq!(without_answer_prefixes("Answers: 836"), "Answers: 836");
        assert!(has_fence("Run <code>x</code>") && !has_fence("Run the code"));
        assert_eq!(
            ["```py", "```", "<code>", "</code>"].map(|line| is_code_after_fence(line, true)),
            [Some(false), Some(false), Some(true), Some(false)]
        );
        assert_eq!(is_code_after_fence("```", false), Some(true));
        assert_eq!(is_code_after_fence("x = 1", true), None);
    }
}
