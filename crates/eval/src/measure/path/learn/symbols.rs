//! From calls to symbols: which calls of a function are the same, and what their arguments have in
//! common.
//!
//! Calls of one function are apart where their arguments are few and come again in other runs
//! (`move_to` A, then `move_to` B); otherwise they are one symbol with patterns that cover all.

use foldhash::{HashMap, HashMapExt};
use serde_json::{Map, Value};

use super::Observed;

/// Sets of arguments of one function that are kept apart, at most.
const MOST_APART: usize = 6;
/// Values that a pattern lists, at most.
const MOST_LISTED: usize = 5;

/// A symbol that was inferred.
#[derive(Debug, Clone)]
pub(in super::super) struct Learnt {
    pub name: String,
    pub function: String,
    /// By argument; `None` where arguments were not recorded.
    pub arguments: Option<Vec<(String, Common)>>,
    /// Runs that have it.
    pub runs: usize,
}

/// What the values of an argument have in common.
#[derive(Debug, Clone)]
pub(in super::super) struct Common {
    pub optional: bool,
    pub what: What,
}

#[derive(Debug, Clone, PartialEq)]
pub(in super::super) enum What {
    Equal(Value),
    OneOf(Vec<Value>),
    Between(f64, f64),
    Any,
}

/// The symbols, and each run as a path of them.
pub(super) fn symbols(runs: &[Vec<&Observed>]) -> (Vec<Learnt>, Vec<Vec<usize>>) {
    let mut functions: Vec<&str> = Vec::new();
    let mut calls: HashMap<&str, Vec<(usize, &Observed)>> = HashMap::new();
    for (run, all) in runs.iter().enumerate() {
        for &call in all {
            let own = calls.entry(call.name.as_str()).or_default();
            if own.is_empty() {
                functions.push(&call.name);
            }
            own.push((run, call));
        }
    }
    let mut symbols = Vec::new();
    // By function, and by arguments where they tell symbols apart.
    let mut of: HashMap<(&str, Option<String>), usize> = HashMap::new();
    for function in functions {
        let own = calls.remove(function).unwrap_or_default();
        let groups = groups(&own, runs.len());
        let numbered = groups.len() > 1;
        for (n, (key, group)) in groups.into_iter().enumerate() {
            of.insert((function, key), symbols.len());
            let name = if numbered { format!("{function}_{}", n + 1) } else { function.to_owned() };
            symbols.push(learnt(name, function, &group));
        }
    }
    unique(&mut symbols);
    let find = |call: &&Observed| {
        let apart = of.get(&(call.name.as_str(), Some(key(call))));
        apart.or_else(|| of.get(&(call.name.as_str(), None))).copied()
    };
    let paths = runs.iter().map(|run| run.iter().filter_map(find).collect()).collect();
    (symbols, paths)
}

fn key(call: &Observed) -> String {
    let mut sorted: Vec<(&String, String)> =
        call.arguments.iter().flatten().map(|(name, value)| (name, value.to_string())).collect();
    sorted.sort();
    format!("{sorted:?}")
}

type Group<'a> = Vec<(usize, &'a Observed)>;

/// Calls that are the same symbol; the key is given where arguments tell them apart.
fn groups<'a>(calls: &[(usize, &'a Observed)], runs: usize) -> Vec<(Option<String>, Group<'a>)> {
    let mut order: Vec<String> = Vec::new();
    let mut by_key: HashMap<String, Group<'a>> = HashMap::new();
    for &(run, call) in calls {
        let own = by_key.entry(key(call)).or_default();
        if own.is_empty() {
            order.push(key(call));
        }
        own.push((run, call));
    }
    // One run cannot tell what comes again.
    let again = |group: &Group<'a>| runs < 2 || runs_of(group) >= 2;
    let recorded = calls.iter().all(|(_, call)| call.arguments.is_some());
    let apart = recorded && order.len() > 1 && order.len() <= MOST_APART && by_key.values().all(again);
    if !apart {
        return vec![(None, calls.to_vec())];
    }
    order.into_iter().filter_map(|key| by_key.remove(&key).map(|group| (Some(key), group))).collect()
}

fn runs_of(group: &Group<'_>) -> usize {
    let mut runs: Vec<usize> = group.iter().map(|(run, _)| *run).collect();
    runs.sort_unstable();
    runs.dedup();
    runs.len()
}

fn learnt(name: String, function: &str, group: &Group<'_>) -> Learnt {
    let recorded: Option<Vec<&Map<String, Value>>> =
        group.iter().map(|(_, call)| call.arguments.as_ref()).collect();
    let arguments = recorded.map(|all| {
        let mut names: Vec<&String> = Vec::new();
        all.iter().flat_map(|a| a.keys()).for_each(|name| {
            if !names.contains(&name) {
                names.push(name);
            }
        });
        names.into_iter().map(|name| (name.clone(), common(name, &all))).collect()
    });
    Learnt { name, function: function.to_owned(), arguments, runs: runs_of(group) }
}

fn common(name: &str, all: &[&Map<String, Value>]) -> Common {
    let values: Vec<&Value> = all.iter().filter_map(|a| a.get(name)).collect();
    let mut different: Vec<&Value> = Vec::new();
    for value in &values {
        if different.len() <= MOST_LISTED && !different.contains(value) {
            different.push(value);
        }
    }
    let numbers: Option<Vec<f64>> = values.iter().map(|v| v.as_f64()).collect();
    // Values that come only once each are samples of something larger.
    let listed = different.len() <= MOST_LISTED && different.len() * 2 <= values.len();
    let what = match (different.as_slice(), numbers) {
        ([only], _) => What::Equal((*only).clone()),
        (_, Some(numbers)) => What::Between(
            numbers.iter().copied().fold(f64::INFINITY, f64::min),
            numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        ),
        (several, None) if listed => What::OneOf(several.iter().map(|v| (*v).clone()).collect()),
        _ => What::Any,
    };
    Common { optional: values.len() < all.len(), what }
}

/// A function may be called what another one's numbered symbol is called.
fn unique(symbols: &mut [Learnt]) {
    for i in 0..symbols.len() {
        while symbols.iter().take(i).any(|before| before.name == symbols[i].name) {
            symbols[i].name.push('_');
        }
    }
}
