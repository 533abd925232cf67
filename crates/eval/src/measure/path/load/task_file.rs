//! Task files in the format of this project.
//!
//! In: a map with `task`, `match`, `alphabet` and either `draft_states` or `policy`; see
//! `docs/paths.md` and `config/tasks`. Out: a checked task. An alphabet's entry is a function's
//! name, which then takes any arguments, or a map with `function` and `arguments`. The condition on
//! an argument is a value, or a map of conditions that must all hold.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use regex::Regex;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use verdict_config::{Issue, Node, Step, nearest, read};

use super::super::alphabet::{Alphabet, ArgumentKey, ArgumentPattern, SymbolDefinition};
use super::super::argument::ValuePattern;
use super::super::check::{CheckedAutomaton, check};
use super::super::draft::{Draft, DraftEdge, DraftState, TaskFault, key};
use super::super::score::{Parameters, Weights};
use super::super::task::{FailedCalls, Gate, Matching, PromptPattern, Scope, Task, Thresholds};
use super::policy::{self, RuleEntry};

/// A map in the order in which it was written.
#[derive(Debug, Clone)]
pub(super) struct Ordered<V>(pub Vec<(String, V)>);

impl<V> Default for Ordered<V> {
    fn default() -> Self {
        Ordered(Vec::new())
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Ordered<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<V>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for Entries<V> {
            type Value = Ordered<V>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Ordered<V>, A::Error> {
                let mut all = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    all.push(entry);
                }
                Ok(Ordered(all))
            }
        }
        deserializer.deserialize_map(Entries(PhantomData))
    }
}

/// A task and its warnings, or its faults.
pub(super) type TaskResult = Result<(Task, Vec<TaskFault>), Vec<TaskFault>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a task: a map with 'task', 'alphabet', and 'states' or 'policy'")]
struct TaskFile {
    task: String,
    #[serde(default, rename = "description")]
    _description: Option<String>,
    #[serde(default, rename = "match")]
    matching: MatchEntry,
    #[serde(default)]
    scope: Scope,
    #[serde(default)]
    failed_calls: FailedCalls,
    unknown_calls: Option<UnknownCalls>,
    #[serde(default)]
    ignore: Vec<String>,
    initial: Option<String>,
    #[serde(default)]
    states: Ordered<StateEntry>,
    #[serde(default)]
    policy: Vec<RuleEntry>,
    alphabet: Ordered<SymbolEntry>,
    lambda: Option<f64>,
    beta: Option<f64>,
    #[serde(default)]
    thresholds: Thresholds,
    fail_on: Option<Vec<Gate>>,
    weights: Option<Weights>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct MatchEntry {
    service: Option<String>,
    agent: Option<String>,
    attribute: BTreeMap<String, String>,
    prompt: Option<String>,
}

/// How calls of functions outside the alphabet are classified.
#[derive(Deserialize, Serialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "snake_case")]
enum UnknownCalls {
    Harmful,
    Ignore,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct StateEntry {
    r#final: bool,
    on: Ordered<String>,
    reads: Vec<String>,
}

#[derive(Clone)]
enum SymbolEntry {
    Function(String),
    CallEntry(CallEntry),
}

#[derive(Deserialize, Clone)]
#[serde(deny_unknown_fields)]
struct CallEntry {
    function: String,
    arguments: Option<Ordered<ArgumentEntry>>,
    #[serde(default)]
    other_arguments: bool,
}

#[derive(Clone)]
enum ArgumentEntry {
    Equal(Value),
    Conditions(Box<Conditions>),
}

#[derive(Deserialize, Default, Clone)]
#[serde(deny_unknown_fields, default)]
struct Conditions {
    any: bool,
    optional: bool,
    equals: Option<Value>,
    one_of: Option<Vec<Value>>,
    not: Vec<Value>,
    regex: Option<String>,
    min: Option<f64>,
    max: Option<f64>,
    captured: Option<String>,
}

impl<'de> Deserialize<'de> for SymbolEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = SymbolEntry;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a function's name, or a map with 'function' and 'arguments'")
            }
            fn visit_str<E: serde::de::Error>(self, function: &str) -> Result<SymbolEntry, E> {
                Ok(SymbolEntry::Function(function.to_owned()))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<SymbolEntry, A::Error> {
                CallEntry::deserialize(MapAccessDeserializer::new(map)).map(SymbolEntry::CallEntry)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl<'de> Deserialize<'de> for ArgumentEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = ArgumentEntry;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value, or a map of conditions")
            }
            fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<ArgumentEntry, E> {
                Ok(ArgumentEntry::Equal(value.into()))
            }
            fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<ArgumentEntry, E> {
                Ok(ArgumentEntry::Equal(value.into()))
            }
            fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<ArgumentEntry, E> {
                Ok(ArgumentEntry::Equal(value.into()))
            }
            fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<ArgumentEntry, E> {
                Ok(ArgumentEntry::Equal(value.into()))
            }
            fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<ArgumentEntry, E> {
                Ok(ArgumentEntry::Equal(value.into()))
            }
            fn visit_unit<E: serde::de::Error>(self) -> Result<ArgumentEntry, E> {
                Err(E::custom("nothing is asked of this argument; write { any: true }, or one_of: [null]"))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<ArgumentEntry, A::Error> {
                Vec::<Value>::deserialize(SeqAccessDeserializer::new(seq))
                    .map(|v| ArgumentEntry::Equal(v.into()))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ArgumentEntry, A::Error> {
                let conditions = Conditions::deserialize(MapAccessDeserializer::new(map))?;
                let asks = conditions.equals.is_some()
                    || conditions.one_of.is_some()
                    || !conditions.not.is_empty()
                    || conditions.regex.is_some()
                    || conditions.min.is_some()
                    || conditions.max.is_some()
                    || conditions.captured.is_some();
                match (asks, conditions.any) {
                    (true, true) => Err(A::Error::custom("'any' asks for nothing else")),
                    (false, false) => {
                        Err(A::Error::custom("no condition; write 'any: true' if every value will do"))
                    }
                    _ => Ok(ArgumentEntry::Conditions(Box::new(conditions))),
                }
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// `None` if the task is unreadable; `issues` say why.
pub(super) fn read_task(node: &Node, prefix: &[Step], issues: &mut Vec<Issue>) -> Option<TaskResult> {
    let file: TaskFile = read(node, prefix, issues)?;
    Some(task_from_file(file))
}

fn task_from_file(file: TaskFile) -> TaskResult {
    let mut faults = Vec::new();
    let matching = matching(&file.matching, &mut faults);
    let definitions: Vec<SymbolDefinition> = {
        let mut reader = Definitions { prompt: matching.prompt.as_ref(), faults: &mut faults };
        file.alphabet.0.iter().map(|(symbol, entry)| reader.definition(symbol, entry)).collect()
    };
    let draft = match (file.policy.is_empty(), file.states.0.is_empty()) {
        (true, true) => Err(vec![TaskFault::new(&[], "neither 'states' nor 'policy' says what is allowed")]),
        (false, false) => {
            Err(vec![TaskFault::new(&[key("policy")], "'policy' stands for 'states': give one of them")])
        }
        (false, true) => {
            let symbols = file.alphabet.0.iter().map(|(s, _)| s.clone()).collect();
            policy::compile(&file.policy, symbols)
        }
        (true, false) => draft_states(&file, &mut faults),
    };
    let parameters = parameters(&file, &mut faults);
    let checked = draft.and_then(|draft| check(&draft)).map_err(|found| faults.extend(found)).ok();
    let Some(CheckedAutomaton { automaton, mut warnings }) = checked.filter(|_| faults.is_empty()) else {
        return Err(faults);
    };
    if matching.is_everything() {
        warnings.push(TaskFault::new(&[], "without 'match' this task judges every agent"));
    }
    // A policy covers some calls and ignores others by default.
    let usual = if file.policy.is_empty() { UnknownCalls::Harmful } else { UnknownCalls::Ignore };
    let ignores = file.unknown_calls.unwrap_or(usual) == UnknownCalls::Ignore;
    let task = Task {
        name: file.task,
        matching,
        scope: file.scope,
        alphabet: Alphabet::new(definitions, file.ignore, ignores),
        automaton,
        failed_calls: file.failed_calls,
        parameters,
        thresholds: file.thresholds,
        fail_on: file.fail_on,
        weights: file.weights,
    };
    Ok((task, warnings))
}

fn matching(file: &MatchEntry, faults: &mut Vec<TaskFault>) -> Matching {
    let prompt = file.prompt.as_ref().and_then(|text| match Regex::new(text) {
        Ok(regex) => Some(PromptPattern::Matches(regex)),
        Err(why) => {
            faults.push(TaskFault::new(&[key("match"), key("prompt")], not_a_regex(&why)));
            None
        }
    });
    Matching {
        service: file.service.clone(),
        agent: file.agent.clone(),
        attribute: file.attribute.clone(),
        prompt,
    }
}

fn not_a_regex(why: &regex::Error) -> String {
    // The last line of the message of `regex` is the reason; those before show the position.
    let text = why.to_string();
    let last = text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
    format!("not a regular expression: {last}")
}

fn draft_states(file: &TaskFile, faults: &mut Vec<TaskFault>) -> Result<Draft, Vec<TaskFault>> {
    let mut states: Vec<DraftState> = file.states.0.iter().map(|(name, s)| draft_state(name, s)).collect();
    if let Some(initial) = &file.initial {
        match states.iter().position(|s| s.name == *initial) {
            Some(at) => states[..=at].rotate_right(1),
            None => {
                let hint = nearest(initial, states.iter().map(|s| s.name.as_str()));
                let hint = hint.map(|h| format!("; did you mean '{h}'?")).unwrap_or_default();
                faults
                    .push(TaskFault::new(&[key("initial")], format!("no state is named '{initial}'{hint}")));
            }
        }
    }
    let symbols = file.alphabet.0.iter().map(|(s, _)| s.clone()).collect();
    Ok(Draft { states, symbols, location: vec![key("states")] })
}

fn draft_state(name: &str, file: &StateEntry) -> DraftState {
    let location = vec![key("states"), key(name)];
    let inside = |steps: [Step; 2]| location.iter().cloned().chain(steps).collect::<Vec<_>>();
    let on = file.on.0.iter().map(|(symbol, to)| DraftEdge {
        symbols: vec![symbol.clone()],
        from: None,
        to: to.clone(),
        location: inside([key("on"), key(symbol)]),
        symbol_locations: Vec::new(),
    });
    let reads = file.reads.iter().enumerate().map(|(i, symbol)| DraftEdge {
        symbols: vec![symbol.clone()],
        from: None,
        to: name.to_owned(),
        location: inside([key("reads"), Step::Item(i)]),
        symbol_locations: Vec::new(),
    });
    let edges = on.chain(reads).collect();
    DraftState { name: name.to_owned(), is_final: file.r#final, edges, location: location.clone() }
}

fn parameters(file: &TaskFile, faults: &mut Vec<TaskFault>) -> Parameters {
    let usual = Parameters::default();
    let lambda = file.lambda.unwrap_or(usual.lambda);
    let beta = file.beta.unwrap_or(usual.beta);
    if !(0.0..=1.0).contains(&lambda) {
        faults.push(TaskFault::new(&[key("lambda")], format!("{lambda} is not between 0 and 1")));
    }
    if !(beta > 0.0 && beta < 1.0) {
        faults.push(TaskFault::new(&[key("beta")], format!("{beta} is not above 0 and below 1")));
    }
    for name in file.thresholds.problems() {
        faults.push(TaskFault::new(&[key("thresholds"), key(name)], "not between 0 and 1"));
    }
    if let Some(problem) = file.weights.and_then(|w| w.problem()) {
        faults.push(TaskFault::new(&[key("weights")], problem));
    }
    if file.weights.is_none() && file.fail_on.iter().flatten().any(|g| *g == Gate::Weighted) {
        faults.push(TaskFault::new(&[key("fail_on")], "'weighted' needs 'weights'"));
    }
    Parameters { lambda, beta }
}

struct Definitions<'a> {
    prompt: Option<&'a PromptPattern>,
    faults: &'a mut Vec<TaskFault>,
}

impl Definitions<'_> {
    fn definition(&mut self, symbol: &str, entry: &SymbolEntry) -> SymbolDefinition {
        let (function, arguments, others) = match entry {
            SymbolEntry::Function(function) => (function, None, true),
            SymbolEntry::CallEntry(call) => (&call.function, call.arguments.as_ref(), call.other_arguments),
        };
        let arguments = arguments
            .map(|entry| entry.0.iter().map(|(name, entry)| self.argument(symbol, name, entry)).collect());
        let others = others || arguments.is_none();
        SymbolDefinition { symbol: symbol.to_owned(), function: function.clone(), arguments, others }
    }

    fn argument(&mut self, symbol: &str, name: &str, entry: &ArgumentEntry) -> ArgumentPattern {
        let (optional, pattern) = match entry {
            ArgumentEntry::Equal(value) => (false, ValuePattern::equal(value.clone())),
            ArgumentEntry::Conditions(conditions) => {
                let location = [key("alphabet"), key(symbol), key("arguments"), key(name)];
                (conditions.optional, self.pattern(conditions, &location))
            }
        };
        ArgumentPattern { key: ArgumentKey::new(name), optional, pattern }
    }

    fn pattern(&mut self, entry: &Conditions, location: &[Step]) -> ValuePattern {
        let mut fault = |name: &str, message: String| {
            let location: Vec<Step> = location.iter().cloned().chain([key(name)]).collect();
            self.faults.push(TaskFault::new(&location, message));
        };
        let one_of = match (&entry.equals, &entry.one_of) {
            (Some(_), Some(_)) => {
                fault("one_of", "'equals' says it already".to_owned());
                None
            }
            (Some(value), None) => Some(vec![value.clone()]),
            (None, all) => all.clone(),
        };
        if one_of.as_ref().is_some_and(Vec::is_empty) {
            fault("one_of", "no value is one of none".to_owned());
        }
        if let Some((min, max)) = entry.min.zip(entry.max).filter(|(min, max)| min > max) {
            fault("max", format!("no number is at least {min} and at most {max}"));
        }
        let regex = entry
            .regex
            .as_ref()
            .and_then(|text| Regex::new(text).map_err(|why| fault("regex", not_a_regex(&why))).ok());
        if let Some(name) = &entry.captured {
            let known = match self.prompt {
                Some(PromptPattern::Matches(regex)) => regex.capture_names().flatten().any(|n| n == name),
                _ => false,
            };
            if !known {
                fault("captured", format!("match.prompt has no group (?P<{name}>...)"));
            }
        }
        ValuePattern {
            one_of,
            not: entry.not.clone(),
            regex,
            min: entry.min,
            max: entry.max,
            captured: entry.captured.clone(),
        }
    }
}
