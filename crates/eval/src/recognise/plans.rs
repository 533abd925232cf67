//! Finds plans and splits them into steps.

use std::borrow::Cow;

use verdict_otlp::trace::Kind;

use super::message::{Part, Text};
use super::node::ContentNode;
use super::overrides::Field;
use super::scan::SpanScan;
use super::span_view::{RecordedPlan, SpanView};
use super::table::ConventionTable;
use super::texts::TextInterner;

/// Maximum number of steps of one plan.
const MAX_STEPS: usize = 200;
/// Maximum length of a heading. A longer line that begins with "plan" is prose.
const MAX_HEADING: usize = 80;
/// Minimum number of steps of a text that is not recorded as a plan, to be read as one.
const MIN_STEPS: usize = 2;

/// Keys of the list of steps in a JSON plan.
const STEP_LIST_KEYS: [&str; 9] = [
    "steps",
    "plan",
    "todos",
    "tasks",
    "list_of_plans_per_task",
    "execution_plan",
    "actions",
    "items",
    "subtasks",
];
/// Keys of the text of a JSON step.
const STEP_TEXT_KEYS: [&str; 13] = [
    "step",
    "content",
    "description",
    "task",
    "title",
    "prompt",
    "action",
    "text",
    "name",
    "instruction",
    "goal",
    "plan",
    "activeForm",
];
/// Keys of a plan in an agent's input, output or state.
const PLAN_KEYS: [&str; 5] = ["plan", "execution_plan", "agent_plan", "workflow_plan", "planning"];

/// Reads the whole of `text` as a plan. `None` for an empty text.
pub(crate) fn read_plan(text: &str, replan: bool, texts: &mut TextInterner) -> Option<RecordedPlan> {
    let text = text.trim();
    if text.is_empty() {
        return None;
    }
    let steps = steps(text).into_iter().take(MAX_STEPS).map(|s| texts.intern(&s)).collect();
    Some(RecordedPlan { text: texts.intern(text), replan, steps })
}

/// Reads plans and declared graphs in attributes.
pub(crate) fn read_attributes(scan: &SpanScan<'_>, texts: &mut TextInterner, view: &mut SpanView) {
    let value = |field| {
        scan.candidates(field).iter().map(|(_, _, v)| ContentNode::from_value(*v)).find(|n| !n.is_empty())
    };
    if let Some(node) = value(Field::Plan) {
        view.plans.extend(read_plan(&node.text(), false, texts));
    } else if matches!(view.kind, Kind::Agent | Kind::Chain | Kind::Plan) {
        // The plan may be a member of the agent's output or state.
        for field in [Field::Output, Field::Input] {
            let Some((_, _, value)) = scan.candidates(field).first() else { continue };
            if value.as_str().is_some_and(|s| !s.contains("plan")) {
                continue;
            }
            let node = ContentNode::decoded(*value);
            let inner = node.first_of(&["outputs", "inputs", "update"]).unwrap_or(&node);
            let member = node.first_of(&PLAN_KEYS).or_else(|| inner.first_of(&PLAN_KEYS));
            if let Some(value) = member.filter(|member| !member.is_empty()) {
                let plan = read_plan(&value.text(), false, texts);
                view.plans.extend(plan.filter(|plan| plan.steps.len() >= MIN_STEPS));
                break;
            }
        }
    }
    if let Some(node) = value(Field::PlanGraph) {
        view.graph = read_plan(&node.text(), false, texts);
    }
}

/// Reads the plans in a model's output: arguments of planning tools, and plans in its text.
pub(crate) fn read_output(table: &ConventionTable, texts: &mut TextInterner, view: &mut SpanView) {
    let mut plans = Vec::new();
    let prompt_phrase = plan_prompt(table, view);
    for part in view.output.iter().flat_map(|m| &m.parts) {
        match part {
            Part::Call(call) if table.control_tools.is_planning(&call.name) => {
                plans.extend(call.arguments.as_ref().and_then(|a| read_plan(a, false, texts)));
            }
            Part::Text(text) if is_structured(text) => plans.extend(read_plan(unfenced(text), false, texts)),
            Part::Text(text) => {
                let whole_output = prompt_phrase
                    .and_then(|phrase| unmarked_plan(text.split(phrase).next().unwrap_or(""), texts));
                plans.extend(marked_plan(table, text, texts).or(whole_output));
            }
            _ => {}
        }
    }
    view.plans.extend(plans);
}

/// Whether a whole text is a plan whose steps name their dependencies: a list, or an object with
/// numbers as keys. An object with other keys (`"db": {"depends_on": ...}`) is no plan.
/// A plan that is invalid JSON counts as well, so that `measure` can report it.
fn is_structured(text: &str) -> bool {
    if !text.contains(DEPENDS_ON) {
        return false;
    }
    let text = unfenced(text);
    let inner = text.trim_start_matches(['{', '[']);
    if inner.len() == text.len() {
        return false;
    }
    let node = ContentNode::Str(Cow::Borrowed(text)).unfold();
    if let ContentNode::Str(_) = node {
        let digits = inner.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, '"' | '\''));
        return digits.starts_with('1');
    }
    let list = STEP_LIST_KEYS.iter().find_map(|key| node.get(key)).unwrap_or(&node);
    let has_dependencies = |step: &ContentNode<'_>| step.has_key(DEPENDS_ON);
    is_numbered(list) && list.entries().iter().any(|(_, step)| has_dependencies(step))
        || list.items().iter().any(has_dependencies)
}

const DEPENDS_ON: &str = "depends_on";

/// The text inside a code fence that encloses all of `text`, or `text` itself.
fn unfenced(text: &str) -> &str {
    let text = text.trim();
    let fenced = text.strip_prefix("```").and_then(|t| t.strip_suffix("```"));
    fenced.and_then(|t| t.split_once('\n')).map_or(text, |(_, inner)| inner.trim())
}

/// Whether all keys of an object are step numbers.
fn is_numbered(node: &ContentNode<'_>) -> bool {
    let number = |key: &str| !key.is_empty() && key.len() < 4 && key.bytes().all(|b| b.is_ascii_digit());
    let entries = node.entries();
    !entries.is_empty() && entries.iter().all(|(key, _)| number(key))
}

/// The phrase in the last message of the prompt that asks for a plan.
fn plan_prompt<'t>(table: &'t ConventionTable, view: &SpanView) -> Option<&'t str> {
    let last = view.input.last()?;
    let asks = |phrase: &&String| {
        last.parts.iter().any(|p| matches!(p, Part::Text(t) if t.contains(phrase.as_str())))
    };
    table.plan_prompts.iter().find(asks).map(String::as_str)
}

/// The plan after the first marker in `text` that is followed by steps.
fn marked_plan(table: &ConventionTable, text: &Text, texts: &mut TextInterner) -> Option<RecordedPlan> {
    if !table.may_contain_plan(text) {
        return None;
    }
    // Only ASCII is folded: other characters may change their length in bytes.
    let lower = text.to_ascii_lowercase();
    for marker in &table.plan_markers {
        let after = if marker.line {
            after_heading(&lower, &marker.begins)
        } else {
            lower.find(&marker.begins).map(|start| start + marker.begins.len())
        };
        let Some(body) = after.and_then(|start| text.get(start..)) else { continue };
        let lower_body = body.to_ascii_lowercase();
        let end = marker.ends.iter().filter_map(|e| lower_body.find(&e.to_ascii_lowercase())).min();
        let body = end.and_then(|end| body.get(..end)).unwrap_or(body);
        let plan = read_plan(body.trim_start_matches([':', '*', ' ', '`']), marker.replan, texts)?;
        if plan.steps.len() >= MIN_STEPS {
            return Some(plan);
        }
    }
    None
}

/// The position after the first line that is the heading `word`, or begins with it, with or without markup.
fn after_heading(lower: &str, word: &str) -> Option<usize> {
    let mut position = 0;
    for line in lower.split_inclusive('\n') {
        let unmarked = line.trim().trim_start_matches(['#', '*', ' ', '_']);
        let is_whole_line = unmarked.trim_end_matches(['*', ':', ' ', '_', '`']) == word;
        let has_inline_text = unmarked.len() <= MAX_HEADING
            && unmarked
                .strip_prefix(word)
                .is_some_and(|rest| rest.trim_start().starts_with([':', '*', '.', '-']));
        if is_whole_line || has_inline_text {
            return Some(position + line.len());
        }
        position += line.len();
    }
    None
}

/// Reads a text without a marker as a plan; `None` if it has no list of steps (`plan_heuristic`).
pub(crate) fn unmarked_plan(text: &str, texts: &mut TextInterner) -> Option<RecordedPlan> {
    read_plan(text, false, texts).filter(|plan| plan.steps.len() >= MIN_STEPS)
}

/// The steps of a plan in JSON, else of the list in a text.
fn steps(text: &str) -> Vec<String> {
    let node = ContentNode::Str(Cow::Borrowed(text)).unfold();
    if let ContentNode::Str(_) = node {
        return list_items(text);
    }
    let steps = json_steps(&node, MAX_LIST_DEPTH);
    if !steps.is_empty() {
        return steps;
    }
    // The only argument of a planning tool may be the plan as text.
    let text =
        node.first_of(&PLAN_KEYS).or_else(|| node.first_of(&STEP_TEXT_KEYS)).and_then(ContentNode::as_str);
    text.map(list_items).unwrap_or_default()
}

/// Maximum number of maps around the list of steps in a JSON plan.
const MAX_LIST_DEPTH: usize = 4;

fn json_steps(node: &ContentNode<'_>, depth: usize) -> Vec<String> {
    let Some(depth) = depth.checked_sub(1) else { return Vec::new() };
    match node {
        ContentNode::List(items) => step_texts(items.iter(), None),
        // In plans of this form the instruction may be called a query.
        ContentNode::Map(steps) if is_numbered(node) => {
            step_texts(steps.iter().map(|(_, step)| step), Some("query"))
        }
        ContentNode::Map(_) => STEP_LIST_KEYS
            .iter()
            .filter_map(|key| node.get(key))
            .map(|inner| match inner {
                ContentNode::Str(s) => list_items(s),
                inner => json_steps(inner, depth),
            })
            .find(|s| !s.is_empty())
            .unwrap_or_default(),
        _ => Vec::new(),
    }
}

/// The texts of the steps that have one. `other_key` may contain it too.
fn step_texts<'n, 'a: 'n>(
    steps: impl Iterator<Item = &'n ContentNode<'a>>,
    other_key: Option<&str>,
) -> Vec<String> {
    let text = |step: &'n ContentNode<'a>| match step {
        ContentNode::Map(_) => {
            step.first_of(&STEP_TEXT_KEYS).or_else(|| step.get(other_key?)).map(ContentNode::text)
        }
        _ => step.as_str().map(Cow::Borrowed),
    };
    let texts = steps.take(MAX_STEPS).filter_map(text).map(|text| text.trim().to_owned());
    texts.filter(|text| !text.is_empty()).collect()
}

/// The items of a list in a text without numbers and bullets: the numbered items if there are any,
/// else the bulleted ones.
pub(crate) fn list_items(text: &str) -> Vec<String> {
    let mut numbered = Vec::new();
    let mut bulleted = Vec::new();
    let mut least_indent = usize::MAX;
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        let trimmed = line.trim();
        let line = trimmed.trim_start_matches(['#', '*', ' ']);
        if let Some(step) = after_number(line) {
            // Items with deeper indentation belong to the step above.
            least_indent = least_indent.min(indent);
            if indent <= least_indent {
                numbered.push(without_emphasis(step));
            }
        } else if let Some(step) = after_bullet(trimmed) {
            bulleted.push(without_emphasis(step));
        }
    }
    if numbered.len() >= MIN_STEPS || bulleted.is_empty() { numbered } else { bulleted }
}

fn without_emphasis(step: &str) -> String {
    step.trim().trim_matches(['*', '_', ' ']).to_owned()
}

/// The text after the number of a list item: `1. x`, `1) x`, `1: x`, `(1) x`, `Step 1: x`, `[1] x`.
fn after_number(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("Step ").or_else(|| line.strip_prefix("step ")).unwrap_or(line);
    let rest = rest.trim_start_matches(['(', '[']);
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 || digits > 3 {
        return None;
    }
    let rest = rest.get(digits..)?;
    let after = rest.trim_start_matches(['.', ')', ':', ']', '-', '*']);
    (after.len() < rest.len() && after.starts_with(' ') && !after.trim().is_empty()).then_some(after)
}

/// The text after the bullet of a list item: `- x`, `* x`, `• x`, `- [ ] x`.
fn after_bullet(line: &str) -> Option<&str> {
    let rest = line.strip_prefix(['-', '•', '*'])?.strip_prefix(' ')?;
    let check_boxes = ["[ ] ", "[x] ", "[X] "];
    let rest = check_boxes.iter().find_map(|d| rest.strip_prefix(d)).unwrap_or(rest);
    (!rest.trim().is_empty()).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_read_from_lists_of_every_form() {
        for text in [
            "1. Search\n2. Open the page\n   2.1. scroll\n10. Compute",
            "Step 1: Search\nsome words\nStep 2: Open the page\nStep 3: Compute",
            "- [ ] Search\n- [x] Open the page\n- Compute",
            r#"{"steps": ["Search", {"description": "Open the page"}, {"task": "Compute"}]}"#,
            r#"[{"id": 1, "tool": "s", "prompt": "Search", "depends_on": []}, {"prompt": "Open the page"}, {"prompt": "Compute"}]"#,
            r#"{"todos": [{"content": "Search", "status": "pending"}, {"content": "Open the page"}, {"content": "Compute"}]}"#,
            "**1)** Search\n**2)** Open the page\n**3)** Compute",
            r#"{"1": {"step": "Search", "depends_on": []}, "2": {"query": "Open the page", "depends_on": [1]}, "3": "Compute"}"#,
        ] {
            assert_eq!(steps(text), ["Search", "Open the page", "Compute"], "{text}");
        }
        assert!(steps("The year 1999 was warm.\n5642 metres").is_empty());
    }

    #[test]
    fn structured_plan_is_recognised_even_if_it_is_invalid_json() {
        for text in [
            r#"{"1": {"step": "T2S([], 'ids')", "depends_on": []}}"#,
            "```json\n{\"plan\": [{\"tool\": \"s\", \"prompt\": \"x\", \"depends_on\": []}]}\n```",
            r#"{1: {"step": T2S([], "ids"), "depends_on": []}}"#,
            r#"{"1": {"step": "T2S([], "ids")", "depends_on": [}"#,
        ] {
            assert!(is_structured(text), "{text}");
        }
        for text in [
            r#"{"services": {"web": {"depends_on": ["db"]}}}"#,
            r#"{"web": {"depends_on": ["db"]}}"#,
            "services:\n  web:\n    depends_on: [db]",
            "The plan has depends_on in it.",
            "{\"web\": {\"depends_on\": [}",
            "{}",
        ] {
            assert!(!is_structured(text), "{text}");
        }
    }

    #[test]
    fn plan_follows_a_heading_but_not_prose_about_plans() {
        let table = ConventionTable::new(&Default::default()).unwrap();
        let mut texts = TextInterner::new();
        let headed_text = Text::from("I will help.\n## Plan:\n1. Search\n2. Read\n");
        let plan = marked_plan(&table, &headed_text, &mut texts).unwrap();
        assert_eq!(plan.steps.len(), 2);
        let prose = Text::from("The plan is simple and short.\n1. Search\n2. Read");
        assert_eq!(marked_plan(&table, &prose, &mut texts), None);
        let replan_text = Text::from("/*REPLANNING*/\n1. Search\n2. Read\n/*ACTION*/\n3. nothing");
        let plan = marked_plan(&table, &replan_text, &mut texts).unwrap();
        assert!(plan.replan && plan.steps.len() == 2);
    }
}
