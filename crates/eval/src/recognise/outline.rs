//! A trace as text, to be read by people and compared by golden tests.

use std::fmt::Write;

use super::agent_trace::AgentTrace;
use super::message::{Message, Part};
use super::span_view::{Content, ErrorSign, SpanView};

/// Characters shown of a text.
const SHOWN: usize = 70;

impl AgentTrace {
    /// The trace in an indented outline: spans with what was read of them, then agents and calls.
    /// No ids and no times, so that two runs of one program read alike.
    pub fn outline(&self) -> String {
        let mut out = String::new();
        let mut depth = vec![0usize; self.tree.len()];
        for &at in self.tree.order() {
            let level = self.tree.parent(at).and_then(|up| depth.get(up)).map_or(0, |d| d + 1);
            if let Some(d) = depth.get_mut(at) {
                *d = level;
            }
            if let Some(view) = self.views.get(at) {
                write_span(&mut out, view, level.min(20));
            }
        }
        for agent in &self.agents {
            let task = agent.task.as_ref().map_or("-".into(), |t| short(t));
            let answer = agent.answer.as_ref().map_or("-".into(), |t| short(t));
            let name = agent.name.as_ref().map_or("-", |n| &**n);
            let _ = writeln!(
                out,
                "agent {name} parent={:?} llms={} calls={}",
                agent.parent,
                agent.llms.len(),
                agent.calls.len()
            );
            let _ = writeln!(out, "  task: {task}\n  answer ({}): {answer}", content(agent.answer_content));
            for (_, plan) in &agent.plans {
                let _ = writeln!(
                    out,
                    "  plan{}: {} steps",
                    if plan.replan { " (replan)" } else { "" },
                    plan.steps.len()
                );
            }
        }
        for call in &self.calls {
            let arguments = call.arguments.as_ref().map_or("-".into(), |a| short(a));
            let result = call.result.as_ref().map_or("-".into(), |r| short(r));
            let _ = write!(out, "call {}({arguments}) -> {result}", call.name);
            let virtual_ = if call.tool.is_none() { " virtual" } else { "" };
            let failed = if call.failed { " failed" } else { "" };
            let schema =
                if call.definition.as_ref().is_some_and(|d| d.parameters.is_some()) { " schema" } else { "" };
            let _ = writeln!(out, "{virtual_}{failed}{schema}");
        }
        out
    }
}

fn write_span(out: &mut String, view: &SpanView, level: usize) {
    let pad = "  ".repeat(level);
    let name = view.name.as_ref().map_or("", |n| &**n);
    let _ = write!(out, "{pad}{} {name:?}", view.kind.as_str());
    if view.wrapper {
        out.push_str(" wrapper");
    }
    let _ = write!(out, " in={} out={}", content(view.input_content), content(view.output_content));
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
        for ErrorSign { source, kind, message } in signs {
            let kind = kind.as_ref().map_or("", |k| &**k);
            let message = message.as_ref().map_or(String::new(), |m| short(m));
            let _ = writeln!(out, "{pad}  ! {word} {source:?} {kind} {message}");
        }
    }
}

fn write_message(out: &mut String, pad: &str, arrow: &str, message: &Message) {
    let _ = write!(out, "{pad}  {arrow} {:?}:", message.role);
    for part in &message.parts {
        let _ = match part {
            Part::Text(text) => write!(out, " {}", short(text)),
            Part::Reasoning(text) => write!(out, " ({})", short(text)),
            Part::Call(call) => {
                write!(
                    out,
                    " call {}({})",
                    &*call.name,
                    call.arguments.as_ref().map_or(String::new(), |a| short(a))
                )
            }
            Part::Result { content, failed, .. } => {
                write!(out, " result{} {}", if *failed { "!" } else { "" }, short(content))
            }
            Part::Media => write!(out, " [media]"),
        };
    }
    out.push('\n');
}

fn content(content: Content) -> &'static str {
    match content {
        Content::Present => "present",
        Content::Absent => "absent",
        Content::Redacted => "redacted",
    }
}

fn short(text: &str) -> String {
    let line = text.replace('\n', "\\n");
    match line.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}…", line.get(..at).unwrap_or("")),
        None => line,
    }
}
