//! Writes a learnt automaton as a task file for review.

use std::fmt::Write as _;

use super::merge::MergedAutomaton;
use super::symbols::{CommonValues, LearntSymbol, ValueShape};

/// The name of a task, and the runs that it applies to.
#[derive(Clone, Debug, Default)]
pub struct TaskIdentity {
    pub task: String,
    /// The agent's name, if all runs have the same.
    pub agent: Option<String>,
    /// The service, if all runs have the same.
    pub service: Option<String>,
}

/// The symbols and states learnt from runs.
pub(super) struct LearntAutomaton {
    pub symbols: Vec<LearntSymbol>,
    pub automaton: MergedAutomaton,
    pub runs: usize,
}

/// The task file. Texts are written as JSON, which YAML reads.
pub(super) fn yaml(learnt: &LearntAutomaton, identity: &TaskIdentity) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write_task(&mut out, learnt, identity);
    out
}

/// Writes the task file.
fn write_task(out: &mut String, learnt: &LearntAutomaton, identity: &TaskIdentity) -> std::fmt::Result {
    writeln!(
        out,
        "# Learnt from {} runs that passed. A draft: it allows only the calls and orders of these runs.",
        learnt.runs
    )?;
    writeln!(out, "# Check patterns, reads and final states, then 'otel-verdict path check' it.")?;
    writeln!(out, "task: {}", text(&identity.task))?;
    let names = [("agent", &identity.agent), ("service", &identity.service)];
    let conditions: Vec<String> =
        names.iter().filter_map(|(key, name)| Some(format!("{key}: {}", text(name.as_ref()?)))).collect();
    if conditions.is_empty() {
        writeln!(out, "# match: {{ agent: ..., prompt: ... }}")?;
    } else {
        writeln!(out, "match: {{ {} }}", conditions.join(", "))?;
    }
    writeln!(out, "\nalphabet:")?;
    for symbol in &learnt.symbols {
        write_definition(out, symbol, learnt.runs)?;
    }
    writeln!(out, "\nstates:")?;
    let states = &learnt.automaton.states;
    let name = |i: usize| if i == 0 { "begin".to_owned() } else { format!("s{i}") };
    let symbol = |i: &usize| learnt.symbols.get(*i).map_or_else(String::new, |s| text(&s.name));
    for (i, state) in states.iter().enumerate() {
        let transitions: Vec<String> =
            state.edges.iter().map(|(s, to)| format!("{}: {}", symbol(s), name(*to))).collect();
        let reads: Vec<String> = state.loops.iter().map(symbol).collect();
        let mut parts = Vec::new();
        if state.is_final {
            parts.push("final: true".to_owned());
        }
        if !transitions.is_empty() {
            parts.push(format!("on: {{ {} }}", transitions.join(", ")));
        }
        if !reads.is_empty() {
            parts.push(format!("reads: [{}]", reads.join(", ")));
        }
        writeln!(out, "  {}: {{ {} }}", name(i), parts.join(", "))?;
    }
    Ok(())
}

/// Writes the entry of a symbol in the alphabet.
fn write_definition(out: &mut String, symbol: &LearntSymbol, runs: usize) -> std::fmt::Result {
    let (name, function) = (text(&symbol.name), text(&symbol.function));
    let evidence = format!("# in {} of {runs} runs", symbol.runs);
    let Some(arguments) = &symbol.arguments else {
        return writeln!(out, "  {name}: {function}    {evidence}, its arguments not always recorded");
    };
    writeln!(out, "  {name}:    {evidence}")?;
    writeln!(out, "    function: {function}")?;
    if arguments.is_empty() {
        return writeln!(out, "    arguments: {{}}");
    }
    writeln!(out, "    arguments:")?;
    for (name, common) in arguments {
        // A name that begins with a slash is written as a JSON pointer, since the slash marks one.
        let key = match name.starts_with('/') {
            true => format!("/{}", name.replace('~', "~0").replace('/', "~1")),
            false => name.clone(),
        };
        writeln!(out, "      {}: {}", text(&key), pattern(common))?;
    }
    Ok(())
}

/// The condition on an argument.
fn pattern(common: &CommonValues) -> String {
    let shape = match &common.shape {
        ValueShape::Equal(value) => format!("one_of: [{value}]"),
        ValueShape::OneOf(values) => {
            let values: Vec<String> = values.iter().map(ToString::to_string).collect();
            format!("one_of: [{}]", values.join(", "))
        }
        ValueShape::Between(min, max) => format!("min: {min}, max: {max}"),
        ValueShape::Any => "any: true".to_owned(),
    };
    let optional = if common.is_optional { ", optional: true" } else { "" };
    format!("{{ {shape}{optional} }}")
}

fn text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
