//! Renders a trace as text for people and golden tests.

use std::fmt::Write;

use super::agent_trace::AgentTrace;
use super::message::{Message, Part, Text};
use super::span_view::{ErrorSign, SpanView};

/// Maximum number of characters of a text.
const MAX_TEXT_CHARS: usize = 70;

impl AgentTrace {
    /// An indented outline of the trace: spans with their fields, then agents and calls. It contains no
    /// ids and no times, so that two runs of a program have the same outline.
    pub fn outline(&self) -> String {
        let mut out = String::new();
        let mut depth = vec![0usize; self.tree.len()];
        for &index in self.tree.order() {
            depth[index] = self.tree.parent(index).map_or(0, |parent| depth[parent] + 1);
            write_span(&mut out, &self.views[index], depth[index].min(20));
        }
        for agent in &self.agents {
            let (task, answer) = (short_or(&agent.task, "-"), short_or(&agent.answer, "-"));
            let name = agent.name.as_deref().unwrap_or("-");
            let (parent, llms, calls) = (agent.parent, agent.llms.len(), agent.calls.len());
            let _ = writeln!(out, "agent {name} parent={parent:?} llms={llms} calls={calls}");
            let content = agent.answer_content.as_str();
            let _ = writeln!(out, "  task: {task}\n  answer ({content}): {answer}");
            for (_, plan) in &agent.plans {
                let replan = if plan.replan { " (replan)" } else { "" };
                let _ = writeln!(out, "  plan{replan}: {} steps", plan.steps.len());
            }
        }
        for call in &self.calls {
            let (arguments, result) = (short_or(&call.arguments, "-"), short_or(&call.result, "-"));
            let _ = write!(out, "call {}({arguments}) -> {result}", call.name);
            let without_span = if call.tool.is_none() { " virtual" } else { "" };
            let failed = if call.failed { " failed" } else { "" };
            let schema =
                if call.definition.as_ref().is_some_and(|d| d.parameters.is_some()) { " schema" } else { "" };
            let _ = writeln!(out, "{without_span}{failed}{schema}");
        }
        out
    }
}

fn write_span(out: &mut String, view: &SpanView, level: usize) {
    let pad = "  ".repeat(level);
    let _ = write!(out, "{pad}{} {:?}", view.kind.as_str(), view.name.as_deref().unwrap_or_default());
    if view.wrapper {
        out.push_str(" wrapper");
    }
    let _ = write!(out, " in={} out={}", view.input_content.as_str(), view.output_content.as_str());
    if let Some(total) = view.tokens.total {
        let _ = write!(out, " tokens={total}");
    }
    if let Some(model) = &view.model {
        let _ = write!(out, " model={}", &**model);
    }
    out.push('\n');
    for (arrow, messages) in [("<", &view.input), (">", &view.output)] {
        for message in messages {
            write_message(out, &pad, arrow, message);
        }
    }
    for (word, signs) in [("error", &view.errors), ("inherited", &view.inherited_errors)] {
        for ErrorSign { source, error_type, message } in signs {
            let (error_type, message) = (error_type.as_deref().unwrap_or_default(), short_or(message, ""));
            let _ = writeln!(out, "{pad}  ! {word} {source:?} {error_type} {message}");
        }
    }
}

fn write_message(out: &mut String, pad: &str, arrow: &str, message: &Message) {
    let _ = write!(out, "{pad}  {arrow} {:?}:", message.role);
    for part in &message.parts {
        let _ = match part {
            Part::Text(text) => write!(out, " {}", short(text)),
            Part::Reasoning(text) => write!(out, " ({})", short(text)),
            Part::Call(call) => write!(out, " call {}({})", call.name, short_or(&call.arguments, "")),
            Part::Result { content, failed, .. } => {
                write!(out, " result{} {}", if *failed { "!" } else { "" }, short(content))
            }
            Part::Media => write!(out, " [media]"),
        };
    }
    out.push('\n');
}

fn short_or(text: &Option<Text>, missing: &str) -> String {
    text.as_ref().map_or_else(|| missing.to_owned(), |text| short(text))
}

fn short(text: &str) -> String {
    let line = text.replace('\n', "\\n");
    match line.char_indices().nth(MAX_TEXT_CHARS) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or("")),
        None => line,
    }
}
