//! Groups calls into symbols with patterns of their common arguments.
//!
//! Calls of one function are separate symbols if their arguments are few and recur in other runs
//! (`move_to` A, then `move_to` B); otherwise they are one symbol with patterns that cover all.

use std::collections::BTreeSet;

use foldhash::{HashMap, HashMapExt};
use serde_json::{Map, Value};

/// Maximum number of separate symbols of one function.
const MAX_SEPARATE: usize = 6;
/// Maximum number of values that a pattern lists.
const MAX_LISTED: usize = 5;

/// A call of a run that a task is learnt from.
#[derive(Clone, Debug)]
pub struct RecordedCall {
    pub name: String,
    pub arguments: Option<Map<String, Value>>,
    /// Whether the call failed, so that it is ignored.
    pub failed: bool,
}

/// A symbol, with the patterns of its arguments.
#[derive(Debug, Clone)]
pub(in super::super) struct LearntSymbol {
    pub name: String,
    pub function: String,
    /// By argument; `None` where arguments were not recorded.
    pub arguments: Option<Vec<(String, CommonValues)>>,
    /// The number of runs with the symbol.
    pub runs: usize,
}

/// Common properties of the values of an argument.
#[derive(Debug, Clone)]
pub(in super::super) struct CommonValues {
    /// Whether some calls lack the argument.
    pub is_optional: bool,
    pub shape: ValueShape,
}

/// The pattern that covers all values of an argument.
#[derive(Debug, Clone, PartialEq)]
pub(in super::super) enum ValueShape {
    Equal(Value),
    OneOf(Vec<Value>),
    Between(f64, f64),
    Any,
}

/// The symbols, and each run as a path of them.
pub(super) fn symbols(runs: &[Vec<&RecordedCall>]) -> (Vec<LearntSymbol>, Vec<Vec<usize>>) {
    let mut functions: Vec<&str> = Vec::new();
    let mut calls: HashMap<&str, Vec<(usize, &RecordedCall)>> = HashMap::new();
    for (run, all) in runs.iter().enumerate() {
        for &call in all {
            let function_calls = calls.entry(call.name.as_str()).or_default();
            if function_calls.is_empty() {
                functions.push(&call.name);
            }
            function_calls.push((run, call));
        }
    }
    let mut symbols = Vec::new();
    // Key: function, and arguments if they separate symbols.
    let mut symbol_indexes: HashMap<(&str, Option<String>), usize> = HashMap::new();
    for function in functions {
        let function_calls = calls.remove(function).unwrap_or_default();
        let groups = groups(&function_calls, runs.len());
        let has_several = groups.len() > 1;
        for (n, (key, group)) in groups.into_iter().enumerate() {
            symbol_indexes.insert((function, key), symbols.len());
            let name = if has_several { format!("{function}_{}", n + 1) } else { function.to_owned() };
            symbols.push(learn_symbol(name, function, &group));
        }
    }
    make_names_unique(&mut symbols);
    let find = |call: &&RecordedCall| {
        let separate = symbol_indexes.get(&(call.name.as_str(), Some(arguments_key(call))));
        separate.or_else(|| symbol_indexes.get(&(call.name.as_str(), None))).copied()
    };
    let paths = runs.iter().map(|run| run.iter().filter_map(find).collect()).collect();
    (symbols, paths)
}

/// A text that is equal for equal arguments.
fn arguments_key(call: &RecordedCall) -> String {
    let mut sorted: Vec<(&String, String)> =
        call.arguments.iter().flatten().map(|(name, value)| (name, value.to_string())).collect();
    sorted.sort();
    format!("{sorted:?}")
}

/// Calls, each with the index of its run.
type CallGroup<'a> = Vec<(usize, &'a RecordedCall)>;

/// The calls of one function, grouped by symbol; with the key of their arguments if these separate the symbols.
fn groups<'a>(calls: &[(usize, &'a RecordedCall)], runs: usize) -> Vec<(Option<String>, CallGroup<'a>)> {
    let mut order: Vec<String> = Vec::new();
    let mut by_key: HashMap<String, CallGroup<'a>> = HashMap::new();
    for &(run, call) in calls {
        let group = by_key.entry(arguments_key(call)).or_default();
        if group.is_empty() {
            order.push(arguments_key(call));
        }
        group.push((run, call));
    }
    // A single run cannot show recurrence.
    let is_frequent = |group: &CallGroup<'a>| runs < 2 || run_count(group) >= 2;
    let are_recorded = calls.iter().all(|(_, call)| call.arguments.is_some());
    let is_separable =
        are_recorded && order.len() > 1 && order.len() <= MAX_SEPARATE && by_key.values().all(is_frequent);
    if !is_separable {
        return vec![(None, calls.to_vec())];
    }
    order.into_iter().filter_map(|key| by_key.remove(&key).map(|group| (Some(key), group))).collect()
}

/// The number of runs that calls of the group are in.
fn run_count(group: &CallGroup<'_>) -> usize {
    group.iter().map(|(run, _)| *run).collect::<BTreeSet<usize>>().len()
}

/// A symbol for the calls of a group, with the properties that their arguments have in common.
fn learn_symbol(name: String, function: &str, group: &CallGroup<'_>) -> LearntSymbol {
    let recorded: Option<Vec<&Map<String, Value>>> =
        group.iter().map(|(_, call)| call.arguments.as_ref()).collect();
    let arguments = recorded.map(|all| {
        let mut names: Vec<&String> = Vec::new();
        all.iter().flat_map(|a| a.keys()).for_each(|name| {
            if !names.contains(&name) {
                names.push(name);
            }
        });
        names.into_iter().map(|name| (name.clone(), common_values(name, &all))).collect()
    });
    LearntSymbol { name, function: function.to_owned(), arguments, runs: run_count(group) }
}

/// The common properties of the argument `name` in `all` arguments of a group.
fn common_values(name: &str, all: &[&Map<String, Value>]) -> CommonValues {
    let values: Vec<&Value> = all.iter().filter_map(|a| a.get(name)).collect();
    let mut distinct: Vec<&Value> = Vec::new();
    for value in &values {
        if distinct.len() <= MAX_LISTED && !distinct.contains(value) {
            distinct.push(value);
        }
    }
    let numbers: Option<Vec<f64>> = values.iter().map(|v| v.as_f64()).collect();
    // Values that occur once each are samples of a larger set.
    let is_listable = distinct.len() <= MAX_LISTED && distinct.len() * 2 <= values.len();
    let shape = match (distinct.as_slice(), numbers) {
        ([only], _) => ValueShape::Equal((*only).clone()),
        (_, Some(numbers)) => ValueShape::Between(
            numbers.iter().copied().fold(f64::INFINITY, f64::min),
            numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        ),
        (several, None) if is_listable => ValueShape::OneOf(several.iter().map(|v| (*v).clone()).collect()),
        _ => ValueShape::Any,
    };
    CommonValues { is_optional: values.len() < all.len(), shape }
}

/// Makes the names of symbols unique: a function may have the name of a numbered symbol of another function.
fn make_names_unique(symbols: &mut [LearntSymbol]) {
    for i in 0..symbols.len() {
        while symbols.iter().take(i).any(|earlier| earlier.name == symbols[i].name) {
            symbols[i].name.push('_');
        }
    }
}
