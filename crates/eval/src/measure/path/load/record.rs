//! Tasks as the authors of paper 002 wrote them down.
//!
//! In: `{prompt_id, prompt, nodes: [{name, is_final, transitions: [{symbols, from, to}]}], alphabet:
//! {symbol: {name, arguments: {arg: {value, excluded_values, type}}}}}`; the first node is the
//! initial state. Out: a task for agents that were asked just this prompt. Keys beside these are
//! passed over. An argument with a value must equal it, one with excluded values must be none of
//! them, any other is free and may be left out if its type says that it is optional.

use serde::Deserialize;

use super::super::alphabet::{Alphabet, Argument, Definition, Key};
use super::super::argument::Pattern;
use super::super::check::{Checked, check};
use super::super::draft::{Draft, DraftEdge, DraftState, Fault};
use super::super::score::Parameters;
use super::super::task::{FailedCalls, Matching, Prompt, Scope, Task, Thresholds};
use super::written::Ordered;
use super::{Read, key};
use verdict_config::{Issue, Node, Step};

#[derive(Deserialize)]
struct Record {
    prompt_id: String,
    prompt: Option<String>,
    nodes: Vec<State>,
    alphabet: Ordered<Function>,
}

#[derive(Deserialize)]
struct State {
    name: String,
    is_final: bool,
    transitions: Vec<Transition>,
}

#[derive(Deserialize)]
struct Transition {
    symbols: Vec<String>,
    from: Option<String>,
    to: String,
}

#[derive(Deserialize)]
struct Function {
    name: String,
    #[serde(default)]
    arguments: Ordered<Wanted>,
}

#[derive(Deserialize)]
struct Wanted {
    name: Option<String>,
    value: Option<serde_json::Value>,
    excluded_values: Option<Vec<serde_json::Value>>,
    r#type: Option<String>,
}

/// `None` where the record as a whole is not readable; the issues then say why.
pub(super) fn read(node: &Node, prefix: &[Step], issues: &mut Vec<Issue>) -> Option<Read> {
    let record: Record = verdict_config::read(node, prefix, issues)?;
    Some(checked(record))
}

fn checked(record: Record) -> Read {
    let mut warnings = Vec::new();
    let definitions = record.alphabet.0.iter().map(|(symbol, f)| definition(symbol, f, &mut warnings));
    let definitions: Vec<Definition> = definitions.collect();
    let symbols = record.alphabet.0.iter().map(|(symbol, _)| symbol.clone()).collect();
    let states = record.nodes.into_iter().enumerate().map(|(i, state)| draft_state(i, state)).collect();
    let draft = Draft { states, symbols, place: vec![key("nodes")] };
    let Checked { automaton, warnings: odd } = check(&draft)?;
    warnings.extend(odd);
    let task = Task {
        name: record.prompt_id,
        matching: Matching { prompt: record.prompt.map(Prompt::Exactly), ..Matching::default() },
        scope: Scope::default(),
        alphabet: Alphabet::new(definitions, Vec::new(), false),
        automaton,
        failed_calls: FailedCalls::default(),
        parameters: Parameters::default(),
        thresholds: Thresholds::default(),
        fail_on: None,
        weights: None,
    };
    Ok((task, warnings))
}

fn draft_state(i: usize, state: State) -> DraftState {
    let place = vec![key("nodes"), Step::Item(i)];
    let inside = |steps: &[Step]| place.iter().chain(steps).cloned().collect::<Vec<_>>();
    let edges = state.transitions.into_iter().enumerate().map(|(n, t)| {
        let at = [key("transitions"), Step::Item(n)];
        let each = (0..t.symbols.len())
            .map(|s| inside(&[at[0].clone(), at[1].clone(), key("symbols"), Step::Item(s)]))
            .collect();
        DraftEdge { symbols: t.symbols, from: t.from, to: t.to, place: inside(&at), each }
    });
    DraftState { name: state.name, is_final: state.is_final, edges: edges.collect(), place: place.clone() }
}

fn definition(symbol: &str, function: &Function, warnings: &mut Vec<Fault>) -> Definition {
    let arguments = function.arguments.0.iter().map(|(name, wanted)| {
        if wanted.name.as_ref().is_some_and(|own| own != name) {
            let place = [key("alphabet"), key(symbol), key("arguments"), key(name)];
            let message = format!("'{name}' stands here under its key; its own name is passed over");
            warnings.push(Fault::new(&place, message));
        }
        let free = wanted.value.as_ref().is_none_or(serde_json::Value::is_null);
        Argument {
            key: Key::Name(name.clone()),
            optional: free && wanted.r#type.as_ref().is_some_and(|t| t.starts_with("Optional")),
            pattern: Pattern {
                one_of: wanted.value.clone().filter(|v| !v.is_null()).map(|v| vec![v]),
                not: wanted.excluded_values.clone().unwrap_or_default(),
                ..Pattern::default()
            },
        }
    });
    Definition {
        symbol: symbol.to_owned(),
        function: function.name.clone(),
        arguments: Some(arguments.collect()),
        others: false,
    }
}
