//! Task records in the format of the authors of paper 002.
//!
//! In: `{prompt_id, prompt, nodes: [{name, is_final, transitions: [{symbols, from, to}]}],
//! alphabet: {symbol: {name, arguments: {arg: {value, excluded_values, type}}}}}`; the first node
//! is the initial state. Out: a task for agents with exactly this prompt. Other keys are ignored.
//! An argument with a value must equal it, and one with excluded values must differ from them. Any
//! other argument accepts all values, and may be missing if its type is optional.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};
use verdict_config::{Issue, Node, Step};

use super::super::alphabet::{Alphabet, ArgumentKey, ArgumentPattern, SymbolDefinition};
use super::super::argument::ValuePattern;
use super::super::check::{CheckedAutomaton, check};
use super::super::draft::{Draft, DraftEdge, DraftState, TaskProblem, key};
use super::super::score::Parameters;
use super::super::task::{AgentConditions, FailedCalls, PromptPattern, Scope, Task, Thresholds};
use super::task_file::{TaskResult, entries};

#[derive(Deserialize)]
struct PaperTask {
    prompt_id: String,
    prompt: Option<String>,
    nodes: Vec<PaperState>,
    #[serde(rename = "alphabet")]
    _alphabet: Map<String, Value>,
}

#[derive(Deserialize)]
struct PaperState {
    name: String,
    is_final: bool,
    transitions: Vec<PaperTransition>,
}

#[derive(Deserialize)]
struct PaperTransition {
    symbols: Vec<String>,
    from: Option<String>,
    to: String,
}

#[derive(Deserialize)]
struct PaperSymbol {
    name: String,
    #[serde(default)]
    arguments: BTreeMap<String, PaperArgument>,
}

#[derive(Deserialize)]
struct PaperArgument {
    name: Option<String>,
    value: Option<Value>,
    excluded_values: Option<Vec<Value>>,
    r#type: Option<String>,
}

/// Reads a record; `None` if it is unreadable, with the reasons in `issues`.
pub(super) fn read_record(node: &Node, prefix: &[Step], issues: &mut Vec<Issue>) -> Option<TaskResult> {
    let record: PaperTask = verdict_config::read(node, prefix, issues)?;
    Some(task_from_record(record, entries(node, "alphabet", prefix, issues)))
}

/// The checked task of a record.
fn task_from_record(record: PaperTask, alphabet: Vec<(String, PaperSymbol)>) -> TaskResult {
    let mut warnings = Vec::new();
    let symbols = alphabet.iter().map(|(symbol, _)| symbol.clone()).collect();
    let definitions =
        alphabet.into_iter().map(|(symbol, call)| definition(symbol, call, &mut warnings)).collect();
    let states = record.nodes.into_iter().enumerate().map(|(i, state)| draft_state(i, state)).collect();
    let draft = Draft { states, symbols, location: vec![key("nodes")] };
    let CheckedAutomaton { automaton, warnings: automaton_warnings } = check(&draft)?;
    warnings.extend(automaton_warnings);
    let task = Task {
        name: record.prompt_id,
        matching: AgentConditions {
            prompt: record.prompt.map(PromptPattern::Exactly),
            ..AgentConditions::default()
        },
        scope: Scope::default(),
        alphabet: Alphabet::new(definitions, Vec::new(), false),
        automaton,
        limits: Vec::new(),
        failed_calls: FailedCalls::default(),
        parameters: Parameters::default(),
        thresholds: Thresholds::default(),
        fail_on: None,
        weights: None,
    };
    Ok((task, warnings))
}

/// A state of the draft, with its edges.
fn draft_state(i: usize, state: PaperState) -> DraftState {
    let location = vec![key("nodes"), Step::Item(i)];
    let location_of = |steps: &[Step]| location.iter().chain(steps).cloned().collect::<Vec<_>>();
    let edges = state.transitions.into_iter().enumerate().map(|(n, transition)| {
        let PaperTransition { symbols, from, to } = transition;
        let steps = [key("transitions"), Step::Item(n)];
        let symbol_locations = (0..symbols.len())
            .map(|s| location_of(&[steps[0].clone(), steps[1].clone(), key("symbols"), Step::Item(s)]))
            .collect();
        DraftEdge { symbols, from, to, location: location_of(&steps), symbol_locations }
    });
    DraftState {
        name: state.name,
        is_final: state.is_final,
        edges: edges.collect(),
        location: location.clone(),
    }
}

/// The definition of a symbol.
fn definition(symbol: String, call: PaperSymbol, warnings: &mut Vec<TaskProblem>) -> SymbolDefinition {
    let arguments = call.arguments.into_iter().map(|(name, argument)| {
        if argument.name.as_ref().is_some_and(|entry_name| *entry_name != name) {
            let location = [key("alphabet"), key(&symbol), key("arguments"), key(&name)];
            let message = format!("the argument is read as '{name}', its key; its 'name' is ignored");
            warnings.push(TaskProblem::new(&location, message));
        }
        let value = argument.value.filter(|value| !value.is_null());
        ArgumentPattern {
            key: ArgumentKey::name(&name),
            is_optional: value.is_none() && argument.r#type.is_some_and(|t| t.starts_with("Optional")),
            pattern: ValuePattern {
                one_of: value.map(|value| vec![value]),
                not: argument.excluded_values.unwrap_or_default(),
                ..ValuePattern::default()
            },
        }
    });
    let arguments = Some(arguments.collect());
    SymbolDefinition { symbol, function: call.name, arguments, accepts_others: false }
}
