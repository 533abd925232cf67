//! Task files in the format of this project.
//!
//! In: a map with `task`, `match`, `alphabet` and either `states` or `policy`; see `docs/paths.md`
//! and `config/tasks`. Out: a checked task. An entry of the alphabet is the name of a function, which
//! then accepts any arguments, or a map with `function` and `arguments`. The condition on an argument
//! is a value, or a map of conditions.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use verdict_config::{Issue, Key, Node, Step, read};

use super::super::alphabet::{Alphabet, ArgumentKey, ArgumentPattern, SymbolDefinition};
use super::super::argument::ValuePattern;
use super::super::check::{CheckedAutomaton, check};
use super::super::draft::{Draft, DraftEdge, DraftState, TaskProblem, key};
use super::super::limits::PathLimit;
use super::super::prompt_pattern::PromptRegex;
use super::super::score::{Parameters, PathWeights};
use super::super::task::{AgentConditions, FailedCalls, PromptPattern, Scope, Task, Thresholds};
use super::policy::{self, RuleEntry, TaskPolicy};
use crate::measure::metric_names::PathMetric;
use crate::pattern::unicode_regex;

/// A task and its warnings, or its problems.
pub(super) type TaskResult = Result<(Task, Vec<TaskProblem>), Vec<TaskProblem>>;

/// A task: its calls, and the orders in which they may occur. See docs/paths.md.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a task: a map with 'task', 'alphabet', and 'states' or 'policy'")]
struct TaskFile {
    /// The name of the task.
    task: String,
    /// For readers.
    #[serde(default, rename = "description")]
    _description: Option<String>,
    /// The runs that the task applies to. Default: all.
    #[serde(default, rename = "match")]
    matching: MatchEntry,
    /// Default `agent`.
    #[serde(default)]
    scope: Scope,
    /// Default `stay`.
    #[serde(default)]
    failed_calls: FailedCalls,
    /// Default `harmful` with `states`, `ignore` with `policy`.
    unknown_calls: Option<UnknownCalls>,
    /// Functions that are no part of a path; a `*` at the end matches any rest.
    #[serde(default)]
    ignore: Vec<String>,
    /// The first state. Default: the first of `states`.
    initial: Option<String>,
    /// The states by name, and the calls that lead from one to another. Instead of `policy`.
    #[serde(default, rename = "states")]
    #[schemars(with = "BTreeMap<String, StateEntry>")]
    _states: Map<String, Value>,
    /// Rules about calls, as maps or as sentences. Instead of `states`.
    #[serde(default, rename = "policy")]
    #[schemars(with = "Vec<RuleSchema>")]
    _policy: Vec<Value>,
    /// The calls by symbol: the name of a function, or a function with conditions on its arguments.
    #[schemars(with = "BTreeMap<String, CallSchema>")]
    alphabet: Map<String, Value>,
    /// The weight of order in PC-KTC, from 0 to 1.
    lambda: Option<f64>,
    /// The decay of prefix criticality, above 0 and below 1.
    beta: Option<f64>,
    #[serde(default)]
    thresholds: Thresholds,
    /// The conditions that fail a run. Default `[harmful_call]`.
    fail_on: Option<Vec<PathMetric>>,
    weights: Option<PathWeights>,
}

// One task, a list of them, or a map with a list.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[allow(dead_code)] // Only its schema is used.
enum FileSchema {
    Task(Box<TaskFile>),
    List(Vec<TaskFile>),
    Tasks { tasks: Vec<TaskFile> },
}

/// The JSON schema of a task file, for editors. Reading a file checks more conditions than the schema.
pub(super) fn schema() -> Schema {
    let mut schema = schemars::schema_for!(FileSchema);
    schema.insert("title".to_owned(), "A task file of otel-verdict".into());
    schema
}

// As `TaskPolicy::read` reads it.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[allow(dead_code)] // Only its schema is used.
enum RuleSchema {
    Text(String),
    Rule(RuleEntry),
}

// As `AlphabetReader::definition` reads it.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[allow(dead_code)] // Only its schema is used.
enum CallSchema {
    /// A function, with any arguments.
    Function(String),
    Call(CallEntry),
}

// As `AlphabetReader::argument` reads it.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[allow(dead_code)] // Only its schema is used.
enum ArgumentSchema {
    Conditions(Conditions),
    Text(String),
    Number(f64),
    Flag(bool),
    List(Vec<Value>),
}

#[derive(Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, default)]
struct MatchEntry {
    service: Option<String>,
    agent: Option<String>,
    attribute: BTreeMap<String, String>,
    prompt: Option<String>,
}

/// How calls of functions outside the alphabet are classified.
#[derive(Deserialize, Serialize, JsonSchema, Clone, Copy, PartialEq)]
#[serde(rename_all = "snake_case")]
enum UnknownCalls {
    Harmful,
    Ignore,
}

#[derive(Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, default)]
struct StateEntry {
    r#final: bool,
    on: BTreeMap<String, String>,
    reads: Vec<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CallEntry {
    function: String,
    #[schemars(with = "Option<BTreeMap<String, ArgumentSchema>>")]
    arguments: Option<Map<String, Value>>,
    #[serde(default)]
    other_arguments: bool,
}

#[derive(Deserialize, JsonSchema, Default)]
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

/// The entries of the map `name` of a task, in the order of the file.
pub(super) fn entries<T: DeserializeOwned>(
    task: &Node,
    name: &str,
    prefix: &[Step],
    issues: &mut Vec<Issue>,
) -> Vec<(String, T)> {
    let map = task.get(name).map_or(&[][..], Node::entries);
    let mut entry = |(entry, node): &(Key, Node)| {
        let location = [prefix, &[key(name), key(&entry.text)]].concat();
        Some((entry.text.clone(), read(node, &location, issues)?))
    };
    map.iter().filter_map(&mut entry).collect()
}

/// Reads a task; `None` if it is unreadable, with the reasons in `issues`.
pub(super) fn read_task(node: &Node, prefix: &[Step], issues: &mut Vec<Issue>) -> Option<TaskResult> {
    let mut file: TaskFile = read(node, prefix, issues)?;
    let mut problems = Vec::new();
    let matching = matching(std::mem::take(&mut file.matching), &mut problems);
    let prompt = matching.prompt.as_ref();
    let mut reader = AlphabetReader { task: node, prefix, prompt, issues, problems: &mut problems };
    let definitions = file.alphabet.iter().filter_map(|(symbol, entry)| reader.definition(symbol, entry));
    let definitions = definitions.collect();
    let states = entries(node, "states", prefix, issues);
    let policy = TaskPolicy::read(node, prefix, issues);
    Some(task_from_file(file, matching, definitions, &states, &policy, problems))
}

/// The checked task of a file whose parts were read.
fn task_from_file(
    file: TaskFile,
    matching: AgentConditions,
    definitions: Vec<SymbolDefinition>,
    states: &[(String, StateEntry)],
    policy: &TaskPolicy,
    mut problems: Vec<TaskProblem>,
) -> TaskResult {
    let symbols: Vec<String> = file.alphabet.keys().cloned().collect();
    let limits: Vec<PathLimit> = policy.limits(&symbols, &mut problems);
    let draft = match (policy.is_empty(), states.is_empty()) {
        (true, true) => Err(vec![TaskProblem::new(&[], "neither 'states' nor 'policy' is given")]),
        (false, false) => Err(vec![TaskProblem::new(&[key("policy")], "'policy' excludes 'states'")]),
        (false, true) => policy::compile(policy.rules(), symbols),
        (true, false) => Ok(draft_states(file.initial.as_deref(), states, symbols, &mut problems)),
    };
    let parameters = parameters(&file, &mut problems);
    let checked =
        draft.and_then(|draft| check(&draft)).map_err(|draft_problems| problems.extend(draft_problems)).ok();
    let Some(CheckedAutomaton { automaton, mut warnings }) = checked.filter(|_| problems.is_empty()) else {
        return Err(problems);
    };
    if matching.is_everything() {
        warnings.push(TaskProblem::new(&[], "without 'match' this task applies to every agent"));
    }
    // A policy is about some calls, so that others are ignored by default.
    let default = if policy.is_empty() { UnknownCalls::Harmful } else { UnknownCalls::Ignore };
    let ignores_unknown = file.unknown_calls.unwrap_or(default) == UnknownCalls::Ignore;
    let task = Task {
        name: file.task,
        matching,
        scope: file.scope,
        alphabet: Alphabet::new(definitions, file.ignore, ignores_unknown),
        automaton,
        limits,
        failed_calls: file.failed_calls,
        parameters,
        thresholds: file.thresholds,
        fail_on: file.fail_on,
        weights: file.weights,
    };
    Ok((task, warnings))
}

/// The conditions on agents, from `match`.
fn matching(file: MatchEntry, problems: &mut Vec<TaskProblem>) -> AgentConditions {
    let MatchEntry { service, agent, attribute, prompt } = file;
    let regex = prompt.map(|text| PromptRegex::new(&text)).transpose().unwrap_or_else(|error| {
        problems.push(TaskProblem::new(&[key("match"), key("prompt")], not_a_regex(&error)));
        None
    });
    AgentConditions { service, agent, attribute, prompt: regex.map(PromptPattern::Matches) }
}

fn not_a_regex(error: &regex::Error) -> String {
    // The last line of the error is the reason; the lines before it show the position.
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
    format!("not a regular expression: {last}")
}

/// The draft of an automaton whose first state is the initial one.
fn draft_states(
    initial: Option<&str>,
    states: &[(String, StateEntry)],
    symbols: Vec<String>,
    problems: &mut Vec<TaskProblem>,
) -> Draft {
    let mut states: Vec<DraftState> = states.iter().map(|(name, s)| draft_state(name, s)).collect();
    if let Some(initial) = initial {
        match states.iter().position(|s| s.name == initial) {
            Some(index) => states[..=index].rotate_right(1),
            None => {
                let message = format!("no state is named '{initial}'");
                let known = states.iter().map(|s| s.name.as_str());
                problems.push(TaskProblem::unknown(&[key("initial")], message, initial, known));
            }
        }
    }
    Draft { states, symbols, location: vec![key("states")] }
}

/// A state of the draft, with its edges.
fn draft_state(name: &str, file: &StateEntry) -> DraftState {
    let location = vec![key("states"), key(name)];
    let edge = |symbol: &String, to: &str, steps: [Step; 2]| DraftEdge {
        symbols: vec![symbol.clone()],
        to: to.to_owned(),
        location: [&location[..], &steps].concat(),
        ..DraftEdge::default()
    };
    let transitions = file.on.iter().map(|(symbol, to)| edge(symbol, to, [key("on"), key(symbol)]));
    let reads = file.reads.iter().enumerate();
    let reads = reads.map(|(i, symbol)| edge(symbol, name, [key("reads"), Step::Item(i)]));
    let edges = transitions.chain(reads).collect();
    DraftState { name: name.to_owned(), is_final: file.r#final, edges, location }
}

/// The parameters of the scores; adds a problem for each invalid value.
fn parameters(file: &TaskFile, problems: &mut Vec<TaskProblem>) -> Parameters {
    let defaults = Parameters::default();
    let lambda = file.lambda.unwrap_or(defaults.lambda);
    let beta = file.beta.unwrap_or(defaults.beta);
    if !(0.0..=1.0).contains(&lambda) {
        problems.push(TaskProblem::new(&[key("lambda")], format!("{lambda} is not between 0 and 1")));
    }
    if !(beta > 0.0 && beta < 1.0) {
        problems.push(TaskProblem::new(&[key("beta")], format!("{beta} is not above 0 and below 1")));
    }
    for name in file.thresholds.problems() {
        problems.push(TaskProblem::new(&[key("thresholds"), key(name)], "not between 0 and 1"));
    }
    if let Some(problem) = file.weights.and_then(|w| w.problem()) {
        problems.push(TaskProblem::new(&[key("weights")], problem));
    }
    if file.weights.is_none() && file.fail_on.iter().flatten().any(|metric| *metric == PathMetric::Weighted) {
        problems.push(TaskProblem::new(&[key("fail_on")], "'weighted' needs 'weights'"));
    }
    Parameters { lambda, beta }
}

/// Reads the definitions of symbols. Unreadable parts are added to `issues`, other errors to `problems`.
struct AlphabetReader<'a> {
    task: &'a Node,
    prefix: &'a [Step],
    prompt: Option<&'a PromptPattern>,
    issues: &'a mut Vec<Issue>,
    problems: &'a mut Vec<TaskProblem>,
}

impl AlphabetReader<'_> {
    /// Reads the value at `location` in the task.
    fn read<T: DeserializeOwned>(&mut self, location: &[Step]) -> Option<T> {
        read(self.task.node_at(location)?, &[self.prefix, location].concat(), self.issues)
    }

    fn add_problem(&mut self, location: &[Step], message: impl Into<String>) {
        self.problems.push(TaskProblem::new(location, message));
    }

    /// The definition of a symbol; `None` if its entry is unreadable.
    fn definition(&mut self, symbol: &str, entry: &Value) -> Option<SymbolDefinition> {
        let location = [key("alphabet"), key(symbol)];
        let call: CallEntry = match entry {
            Value::String(name) => {
                CallEntry { function: name.clone(), arguments: None, other_arguments: true }
            }
            Value::Object(_) => self.read(&location)?,
            _ => {
                let message = "expected a function's name, or a map with 'function' and 'arguments'";
                self.add_problem(&location, message);
                return None;
            }
        };
        let mut argument = |(name, value): (String, Value)| {
            let location = [&location[..], &[key("arguments"), key(&name)]].concat();
            self.argument(&name, value, &location)
        };
        let arguments: Option<Vec<ArgumentPattern>> =
            call.arguments.map(|all| all.into_iter().filter_map(&mut argument).collect());
        let accepts_others = call.other_arguments || arguments.is_none();
        Some(SymbolDefinition {
            symbol: symbol.to_owned(),
            function: call.function,
            arguments,
            accepts_others,
        })
    }

    /// The condition on an argument; `None` if it is unreadable or missing.
    fn argument(&mut self, name: &str, value: Value, location: &[Step]) -> Option<ArgumentPattern> {
        let (is_optional, pattern) = match value {
            Value::Object(entries) => {
                let conditions: Conditions = self.read(location)?;
                self.check_any(&entries, conditions.any, location);
                (conditions.optional, self.pattern(conditions, location))
            }
            Value::Null => {
                let message = "nothing is asked of this argument; write { any: true }, or one_of: [null]";
                self.add_problem(location, message);
                return None;
            }
            value => (false, ValuePattern::equal(value)),
        };
        Some(ArgumentPattern { key: ArgumentKey::new(name), is_optional, pattern })
    }

    /// Checks that an argument has either `any` or a condition.
    fn check_any(&mut self, entries: &Map<String, Value>, accepts_any: bool, location: &[Step]) {
        let is_empty = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
        let has_condition =
            entries.iter().any(|(name, value)| name != "any" && name != "optional" && !is_empty(value));
        if has_condition && accepts_any {
            self.add_problem(location, "'any' excludes other conditions");
        } else if !has_condition && !accepts_any {
            self.add_problem(location, "no condition; write 'any: true' to accept every value");
        }
    }

    /// The pattern of the values that meet the conditions; adds a problem for each contradiction.
    fn pattern(&mut self, conditions: Conditions, location: &[Step]) -> ValuePattern {
        let mut problem = |name: &str, message: String| {
            self.problems.push(TaskProblem::new(&[location, &[key(name)]].concat(), message));
        };
        let Conditions { equals, one_of, not, min, max, captured, .. } = conditions;
        if equals.is_some() && one_of.is_some() {
            problem("one_of", "'equals' is given too".to_owned());
        }
        let one_of = equals.map(|value| vec![value]).or(one_of);
        if one_of.as_ref().is_some_and(Vec::is_empty) {
            problem("one_of", "the list has no value".to_owned());
        }
        if let Some((min, max)) = min.zip(max).filter(|(min, max)| min > max) {
            problem("max", format!("no number is at least {min} and at most {max}"));
        }
        let regex = conditions.regex.and_then(|text| {
            unicode_regex(&text).map_err(|error| problem("regex", not_a_regex(&error))).ok()
        });
        if let Some(name) = &captured {
            let is_group = match self.prompt {
                Some(PromptPattern::Matches(pattern)) => pattern.has_group(name),
                _ => false,
            };
            if !is_group {
                problem("captured", format!("match.prompt has no group (?P<{name}>...)"));
            }
        }
        ValuePattern { one_of, not, regex, min, max, captured }
    }
}
