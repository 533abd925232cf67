//! Tasks as people write them.
//!
//! In: a map with `task`, `match`, `alphabet` and either `states` or `policy`; `docs/paths.md` and
//! `config/tasks` show it. Out: a checked task. An alphabet's entry is a function's name, which
//! then takes any arguments, or a map with `function` and `arguments`. What is asked of an argument
//! is a value, or a map of conditions that must all hold.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use regex::Regex;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::alphabet::{Alphabet, Argument, Definition, Key};
use super::super::argument::Pattern;
use super::super::check::{Checked, check};
use super::super::draft::{Draft, DraftEdge, DraftState, Fault};
use super::super::score::{Parameters, Weights};
use super::super::task::{FailedCalls, Gate, Matching, Prompt, Scope, Task, Thresholds};
use super::policy::{self, Rule};
use super::{Read, key};
use verdict_config::{Issue, Node, Step, nearest, read};

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

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a task: a map with 'task', 'alphabet', and 'states' or 'policy'")]
struct Written {
    task: String,
    #[serde(default, rename = "description")]
    _description: Option<String>,
    #[serde(default, rename = "match")]
    matching: Match,
    #[serde(default)]
    scope: Scope,
    #[serde(default)]
    failed_calls: FailedCalls,
    unknown_calls: Option<UnknownCalls>,
    #[serde(default)]
    ignore: Vec<String>,
    initial: Option<String>,
    #[serde(default)]
    states: Ordered<State>,
    #[serde(default)]
    policy: Vec<Rule>,
    alphabet: Ordered<Meaning>,
    lambda: Option<f64>,
    beta: Option<f64>,
    #[serde(default)]
    thresholds: Thresholds,
    fail_on: Option<Vec<Gate>>,
    weights: Option<Weights>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Match {
    service: Option<String>,
    agent: Option<String>,
    attribute: BTreeMap<String, String>,
    prompt: Option<String>,
}

/// What becomes of calls whose function is not in the alphabet.
#[derive(Deserialize, Serialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "snake_case")]
enum UnknownCalls {
    Harmful,
    Ignore,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct State {
    r#final: bool,
    on: Ordered<String>,
    reads: Vec<String>,
}

#[derive(Clone)]
enum Meaning {
    Function(String),
    Call(Call),
}

#[derive(Deserialize, Clone)]
#[serde(deny_unknown_fields)]
struct Call {
    function: String,
    arguments: Option<Ordered<Asked>>,
    #[serde(default)]
    other_arguments: bool,
}

#[derive(Clone)]
enum Asked {
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

impl<'de> Deserialize<'de> for Meaning {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Meaning;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a function's name, or a map with 'function' and 'arguments'")
            }
            fn visit_str<E: serde::de::Error>(self, function: &str) -> Result<Meaning, E> {
                Ok(Meaning::Function(function.to_owned()))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Meaning, A::Error> {
                Call::deserialize(MapAccessDeserializer::new(map)).map(Meaning::Call)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl<'de> Deserialize<'de> for Asked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Asked;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value, or a map of conditions")
            }
            fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Asked, E> {
                Ok(Asked::Equal(value.into()))
            }
            fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Asked, E> {
                Ok(Asked::Equal(value.into()))
            }
            fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Asked, E> {
                Ok(Asked::Equal(value.into()))
            }
            fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Asked, E> {
                Ok(Asked::Equal(value.into()))
            }
            fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Asked, E> {
                Ok(Asked::Equal(value.into()))
            }
            fn visit_unit<E: serde::de::Error>(self) -> Result<Asked, E> {
                Err(E::custom("nothing is asked of this argument; write { any: true }, or one_of: [null]"))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Asked, A::Error> {
                Vec::<Value>::deserialize(SeqAccessDeserializer::new(seq)).map(|v| Asked::Equal(v.into()))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Asked, A::Error> {
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
                    _ => Ok(Asked::Conditions(Box::new(conditions))),
                }
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// `None` where the task as a whole is not readable; the issues then say why.
pub(super) fn read_task(node: &Node, prefix: &[Step], issues: &mut Vec<Issue>) -> Option<Read> {
    let written: Written = read(node, prefix, issues)?;
    Some(checked(written))
}

fn checked(written: Written) -> Read {
    let mut faults = Vec::new();
    let matching = matching(&written.matching, &mut faults);
    let definitions: Vec<Definition> = {
        let mut reader = Definitions { prompt: matching.prompt.as_ref(), faults: &mut faults };
        written.alphabet.0.iter().map(|(symbol, meaning)| reader.definition(symbol, meaning)).collect()
    };
    let draft = match (written.policy.is_empty(), written.states.0.is_empty()) {
        (true, true) => Err(vec![Fault::new(&[], "neither 'states' nor 'policy' says what is allowed")]),
        (false, false) => {
            Err(vec![Fault::new(&[key("policy")], "'policy' stands for 'states': give one of them")])
        }
        (false, true) => {
            let symbols = written.alphabet.0.iter().map(|(s, _)| s.clone()).collect();
            policy::compile(&written.policy, symbols)
        }
        (true, false) => states(&written, &mut faults),
    };
    let parameters = parameters(&written, &mut faults);
    let checked = draft.and_then(|draft| check(&draft)).map_err(|found| faults.extend(found)).ok();
    let Some(Checked { automaton, mut warnings }) = checked.filter(|_| faults.is_empty()) else {
        return Err(faults);
    };
    if matching.is_everything() {
        warnings.push(Fault::new(&[], "without 'match' this task judges every agent"));
    }
    // A policy speaks of some calls and lets others be.
    let usual = if written.policy.is_empty() { UnknownCalls::Harmful } else { UnknownCalls::Ignore };
    let ignores = written.unknown_calls.unwrap_or(usual) == UnknownCalls::Ignore;
    let task = Task {
        name: written.task,
        matching,
        scope: written.scope,
        alphabet: Alphabet::new(definitions, written.ignore, ignores),
        automaton,
        failed_calls: written.failed_calls,
        parameters,
        thresholds: written.thresholds,
        fail_on: written.fail_on,
        weights: written.weights,
    };
    Ok((task, warnings))
}

fn matching(written: &Match, faults: &mut Vec<Fault>) -> Matching {
    let prompt = written.prompt.as_ref().and_then(|text| match Regex::new(text) {
        Ok(regex) => Some(Prompt::Like(regex)),
        Err(why) => {
            faults.push(Fault::new(&[key("match"), key("prompt")], not_a_regex(&why)));
            None
        }
    });
    Matching {
        service: written.service.clone(),
        agent: written.agent.clone(),
        attribute: written.attribute.clone(),
        prompt,
    }
}

fn not_a_regex(why: &regex::Error) -> String {
    // The library points at the place on lines of their own; its last line says what it is.
    let text = why.to_string();
    let last = text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
    format!("not a regular expression: {last}")
}

fn states(written: &Written, faults: &mut Vec<Fault>) -> Result<Draft, Vec<Fault>> {
    let mut states: Vec<DraftState> = written.states.0.iter().map(|(name, s)| state(name, s)).collect();
    if let Some(initial) = &written.initial {
        match states.iter().position(|s| s.name == *initial) {
            Some(at) => states[..=at].rotate_right(1),
            None => {
                let hint = nearest(initial, states.iter().map(|s| s.name.as_str()));
                let hint = hint.map(|h| format!("; did you mean '{h}'?")).unwrap_or_default();
                faults.push(Fault::new(&[key("initial")], format!("no state is named '{initial}'{hint}")));
            }
        }
    }
    let symbols = written.alphabet.0.iter().map(|(s, _)| s.clone()).collect();
    Ok(Draft { states, symbols, place: vec![key("states")] })
}

fn state(name: &str, written: &State) -> DraftState {
    let place = vec![key("states"), key(name)];
    let inside = |steps: [Step; 2]| place.iter().cloned().chain(steps).collect::<Vec<_>>();
    let on = written.on.0.iter().map(|(symbol, to)| DraftEdge {
        symbols: vec![symbol.clone()],
        from: None,
        to: to.clone(),
        place: inside([key("on"), key(symbol)]),
        each: Vec::new(),
    });
    let reads = written.reads.iter().enumerate().map(|(i, symbol)| DraftEdge {
        symbols: vec![symbol.clone()],
        from: None,
        to: name.to_owned(),
        place: inside([key("reads"), Step::Item(i)]),
        each: Vec::new(),
    });
    let edges = on.chain(reads).collect();
    DraftState { name: name.to_owned(), is_final: written.r#final, edges, place: place.clone() }
}

fn parameters(written: &Written, faults: &mut Vec<Fault>) -> Parameters {
    let usual = Parameters::default();
    let lambda = written.lambda.unwrap_or(usual.lambda);
    let beta = written.beta.unwrap_or(usual.beta);
    if !(0.0..=1.0).contains(&lambda) {
        faults.push(Fault::new(&[key("lambda")], format!("{lambda} is not between 0 and 1")));
    }
    if !(beta > 0.0 && beta < 1.0) {
        faults.push(Fault::new(&[key("beta")], format!("{beta} is not above 0 and below 1")));
    }
    for name in written.thresholds.problems() {
        faults.push(Fault::new(&[key("thresholds"), key(name)], "not between 0 and 1"));
    }
    if let Some(problem) = written.weights.and_then(|w| w.problem()) {
        faults.push(Fault::new(&[key("weights")], problem));
    }
    if written.weights.is_none() && written.fail_on.iter().flatten().any(|g| *g == Gate::Weighted) {
        faults.push(Fault::new(&[key("fail_on")], "'weighted' needs 'weights'"));
    }
    Parameters { lambda, beta }
}

struct Definitions<'a> {
    prompt: Option<&'a Prompt>,
    faults: &'a mut Vec<Fault>,
}

impl Definitions<'_> {
    fn definition(&mut self, symbol: &str, meaning: &Meaning) -> Definition {
        let (function, arguments, others) = match meaning {
            Meaning::Function(function) => (function, None, true),
            Meaning::Call(call) => (&call.function, call.arguments.as_ref(), call.other_arguments),
        };
        let arguments = arguments
            .map(|asked| asked.0.iter().map(|(name, asked)| self.argument(symbol, name, asked)).collect());
        let others = others || arguments.is_none();
        Definition { symbol: symbol.to_owned(), function: function.clone(), arguments, others }
    }

    fn argument(&mut self, symbol: &str, name: &str, asked: &Asked) -> Argument {
        let (optional, pattern) = match asked {
            Asked::Equal(value) => (false, Pattern::equal(value.clone())),
            Asked::Conditions(conditions) => {
                let place = [key("alphabet"), key(symbol), key("arguments"), key(name)];
                (conditions.optional, self.pattern(conditions, &place))
            }
        };
        Argument { key: Key::new(name), optional, pattern }
    }

    fn pattern(&mut self, asked: &Conditions, place: &[Step]) -> Pattern {
        let mut fault = |name: &str, message: String| {
            let place: Vec<Step> = place.iter().cloned().chain([key(name)]).collect();
            self.faults.push(Fault::new(&place, message));
        };
        let one_of = match (&asked.equals, &asked.one_of) {
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
        if let Some((min, max)) = asked.min.zip(asked.max).filter(|(min, max)| min > max) {
            fault("max", format!("no number is at least {min} and at most {max}"));
        }
        let regex = asked
            .regex
            .as_ref()
            .and_then(|text| Regex::new(text).map_err(|why| fault("regex", not_a_regex(&why))).ok());
        if let Some(name) = &asked.captured {
            let known = match self.prompt {
                Some(Prompt::Like(regex)) => regex.capture_names().flatten().any(|n| n == name),
                _ => false,
            };
            if !known {
                fault("captured", format!("match.prompt has no group (?P<{name}>...)"));
            }
        }
        Pattern {
            one_of,
            not: asked.not.clone(),
            regex,
            min: asked.min,
            max: asked.max,
            captured: asked.captured.clone(),
        }
    }
}
