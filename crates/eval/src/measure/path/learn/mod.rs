//! An automaton inferred from good runs, for a person to review.
//!
//! In: the calls of runs that passed. Out: a task file in YAML with the evidence for each part in
//! comments, and notes for the reviewer. `symbols` derives patterns from calls, reads are separated
//! from progress, `merge` builds a prefix tree and merges equivalent states, `write` writes the
//! file. The result accepts every run that it was learnt from and refuses other orders.

mod merge;
mod symbols;
mod write;

use std::collections::{BTreeMap, BTreeSet};

use foldhash::{HashMap, HashMapExt};
use merge::SymbolRole;
pub use symbols::RecordedCall;
use write::LearntAutomaton;
pub use write::TaskIdentity;

use super::review::{ReviewedCall, compensating, is_read, repeated};

/// A learnt task.
#[derive(Debug)]
pub struct LearntTask {
    pub yaml: String,
    /// Notes for the reviewer.
    pub notes: Vec<String>,
}

/// Maximum number of runs that are read.
pub const MAX_RUNS: usize = 1_000;
/// Maximum number of calls of one run that are read.
pub(crate) const MAX_CALLS: usize = 1_000;

/// Learns a task from good runs; `None` if they contain no call.
pub fn learn(runs: &[Vec<RecordedCall>], identity: &TaskIdentity) -> Option<LearntTask> {
    let runs: Vec<Vec<&RecordedCall>> = runs
        .iter()
        .take(MAX_RUNS)
        .map(|run| run.iter().filter(|call| !call.failed).take(MAX_CALLS).collect())
        .collect();
    if runs.iter().all(Vec::is_empty) {
        return None;
    }
    let (symbols, paths) = symbols::symbols(&runs);
    let roles = roles(&symbols, &paths);
    let automaton = merge::merge(&paths, &roles);
    let notes = notes(&runs, &symbols, &roles);
    let learnt = LearntAutomaton { symbols, automaton, runs: runs.len() };
    Some(LearntTask { yaml: write::yaml(&learnt, identity), notes })
}

/// The role of each symbol: reads are recognised by the names of functions.
fn roles(symbols: &[symbols::LearntSymbol], paths: &[Vec<usize>]) -> Vec<SymbolRole> {
    let mut run_counts: HashMap<usize, usize> = HashMap::new();
    for path in paths {
        let distinct: BTreeSet<usize> = path.iter().copied().collect();
        distinct.into_iter().for_each(|symbol| *run_counts.entry(symbol).or_default() += 1);
    }
    let role = |(i, symbol): (usize, &symbols::LearntSymbol)| match is_read(&symbol.function) {
        false => SymbolRole::Progress,
        true if run_counts.get(&i) == Some(&paths.len()) => SymbolRole::RequiredRead,
        true => SymbolRole::Read,
    };
    symbols.iter().enumerate().map(role).collect()
}

/// The notes for the reviewer: few runs, reads that were recognised by their names, and compensating and repeated
/// calls.
fn notes<'r>(
    runs: &[Vec<&'r RecordedCall>],
    symbols: &[symbols::LearntSymbol],
    roles: &[SymbolRole],
) -> Vec<String> {
    let mut notes = Vec::new();
    if runs.len() < 3 {
        notes.push(format!("only {} runs: their common calls may be accidental", runs.len()));
    }
    for (symbol, role) in symbols.iter().zip(roles) {
        match role {
            SymbolRole::Read => notes.push(format!("'{}' is taken for a read, by its name", symbol.name)),
            SymbolRole::RequiredRead => {
                notes.push(format!("'{}' reads and is in every run: it is required once", symbol.name))
            }
            SymbolRole::Progress => {}
        }
    }
    let mut pairs: BTreeMap<(&str, &str, bool), usize> = BTreeMap::new();
    for run in runs {
        let reviewed_call = |RecordedCall { name, arguments, failed }: &'r RecordedCall| ReviewedCall {
            name,
            arguments: arguments.as_ref(),
            failed: *failed,
        };
        let reviewed_calls: Vec<ReviewedCall<'_>> = run.iter().copied().map(reviewed_call).collect();
        let undone = compensating(&reviewed_calls).into_iter().map(|pair| (pair, true));
        let repeats = repeated(&reviewed_calls).into_iter().map(|pair| (pair, false));
        let run_pairs: BTreeSet<_> = undone
            .chain(repeats)
            .map(|((a, b), is_undone)| (reviewed_calls[a].name, reviewed_calls[b].name, is_undone))
            .collect();
        run_pairs.into_iter().for_each(|pair| *pairs.entry(pair).or_default() += 1);
    }
    notes.extend(pairs.into_iter().map(|((a, b, undone), count)| match undone {
        true => format!("in {count} runs '{b}' undoes '{a}': a failure between the two leaves '{a}' done"),
        false => format!("in {count} runs '{a}' is called twice with the same arguments"),
    }));
    notes
}

#[cfg(test)]
mod tests;
