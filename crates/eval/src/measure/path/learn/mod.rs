//! An automaton inferred from good runs, for a person to review.
//!
//! In: the calls of runs that passed. Out: a task file in YAML, with what each part rests on said in
//! comments, and notes on what a reviewer should look at. The steps: `symbols` makes patterns of
//! calls, reads are told from progress, `merge` makes a tree of what is left and merges states from
//! which the same can follow, `write` says it. The result accepts every run that it was made of; a
//! run in another order is beyond what was seen, and refused until somebody allows it.

mod merge;
mod symbols;
mod write;

use foldhash::{HashMap, HashMapExt};
use serde_json::{Map, Value};

use super::review::{Made, compensating, reads, repeated};

/// A call of a run.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The function.
    pub name: String,
    /// Its arguments, where they were recorded.
    pub arguments: Option<Map<String, Value>>,
    /// It failed: it has no part in the path.
    pub failed: bool,
}

/// What came out.
#[derive(Debug)]
pub struct Learnt {
    /// A task file.
    pub yaml: String,
    /// What to look at in it.
    pub notes: Vec<String>,
}

/// For the file's head.
#[derive(Clone, Debug, Default)]
pub struct Whose {
    /// The task's name.
    pub task: String,
    /// The agent's name, if all runs have the same.
    pub agent: Option<String>,
    /// The service, if all runs have the same.
    pub service: Option<String>,
}

/// Runs that are looked at: more tell nothing new that a person could still review.
pub const MAX_RUNS: usize = 1_000;
/// Calls of one run that are looked at.
pub const MAX_CALLS: usize = 1_000;

/// What is learnt of runs.
pub(super) struct Seen {
    pub symbols: Vec<symbols::Learnt>,
    pub automaton: merge::Merged,
    pub runs: usize,
}

/// See the module. `None` without any call.
pub fn learn(runs: &[Vec<Observed>], whose: &Whose) -> Option<Learnt> {
    let runs: Vec<Vec<&Observed>> = runs
        .iter()
        .take(MAX_RUNS)
        .map(|run| run.iter().filter(|call| !call.failed).take(MAX_CALLS).collect())
        .collect();
    if runs.iter().all(Vec::is_empty) {
        return None;
    }
    let (symbols, paths) = symbols::symbols(&runs);
    let kinds = kinds(&symbols, &paths);
    let automaton = merge::merge(&paths, &kinds);
    let notes = notes(&runs, &symbols, &kinds);
    let seen = Seen { symbols, automaton, runs: runs.len() };
    Some(Learnt { yaml: write::yaml(&seen, whose), notes })
}

/// What a symbol is to a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Every time.
    Progress,
    /// The first time, since every good run has it: a mandatory look. A loop after that.
    Once,
    /// Never: a read.
    Read,
}

fn kinds(symbols: &[symbols::Learnt], paths: &[Vec<usize>]) -> Vec<Kind> {
    let mut runs_with: HashMap<usize, usize> = HashMap::new();
    for path in paths {
        let mut own = path.clone();
        own.sort_unstable();
        own.dedup();
        own.into_iter().for_each(|symbol| *runs_with.entry(symbol).or_default() += 1);
    }
    let kind = |(i, symbol): (usize, &symbols::Learnt)| match reads(&symbol.function) {
        false => Kind::Progress,
        true if runs_with.get(&i) == Some(&paths.len()) => Kind::Once,
        true => Kind::Read,
    };
    symbols.iter().enumerate().map(kind).collect()
}

fn notes(runs: &[Vec<&Observed>], symbols: &[symbols::Learnt], kinds: &[Kind]) -> Vec<String> {
    let mut notes = Vec::new();
    if runs.len() < 3 {
        notes.push(format!("only {} runs: what they have in common may be chance", runs.len()));
    }
    for (symbol, kind) in symbols.iter().zip(kinds) {
        match kind {
            Kind::Read => notes.push(format!("'{}' is taken for a read, by its name", symbol.name)),
            Kind::Once => {
                notes.push(format!("'{}' reads, and every run has it: it must happen once", symbol.name))
            }
            Kind::Progress => {}
        }
    }
    let mut pairs: HashMap<(&str, &str, bool), usize> = HashMap::new();
    for run in runs {
        let made: Vec<Made<'_>> = run
            .iter()
            .map(|call| Made { name: &call.name, arguments: call.arguments.as_ref(), failed: call.failed })
            .collect();
        let undone = compensating(&made).into_iter().map(|pair| (pair, true));
        let again = repeated(&made).into_iter().map(|pair| (pair, false));
        let mut own: Vec<_> =
            undone.chain(again).map(|((a, b), is)| (made[a].name, made[b].name, is)).collect();
        own.sort_unstable();
        own.dedup();
        own.into_iter().for_each(|pair| *pairs.entry(pair).or_default() += 1);
    }
    let mut pairs: Vec<_> = pairs.into_iter().collect();
    pairs.sort_unstable();
    notes.extend(pairs.into_iter().map(|((a, b, undone), count)| match undone {
        true => format!("in {count} runs '{b}' undoes '{a}': between the two anything may fail"),
        false => format!("in {count} runs '{a}' is written twice with the same arguments"),
    }));
    notes
}

#[cfg(test)]
mod tests;
