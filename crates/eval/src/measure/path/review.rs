//! Finds compensating calls and repeated writes, which the final state does not show (002, section 1).
//!
//! In: the calls of a run, by name and arguments. Out: pairs of indexes. The pairs are inferred
//! from names, so they are hints for a person and fail no metric. A run is read once, from its end.

use std::collections::VecDeque;

use foldhash::{HashMap, HashMapExt};
use serde_json::{Map, Value};

use super::argument::{members_key, same_value, value_key};
use crate::measure::identifier::identifier_words;

/// The parts of a call that are compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReviewedCall<'a> {
    pub name: &'a str,
    pub arguments: Option<&'a Map<String, Value>>,
    pub failed: bool,
}

/// Verbs that undo each other.
const OPPOSITES: [(&str, &str); 28] = [
    ("add", "remove"),
    ("add", "delete"),
    ("create", "delete"),
    ("create", "remove"),
    ("create", "destroy"),
    ("insert", "delete"),
    ("open", "close"),
    ("lock", "unlock"),
    ("start", "stop"),
    ("enable", "disable"),
    ("activate", "deactivate"),
    ("engage", "disengage"),
    ("book", "cancel"),
    ("schedule", "cancel"),
    ("place", "cancel"),
    ("reserve", "release"),
    ("acquire", "release"),
    ("deposit", "withdraw"),
    ("charge", "refund"),
    ("grant", "revoke"),
    ("attach", "detach"),
    ("connect", "disconnect"),
    ("subscribe", "unsubscribe"),
    ("mount", "unmount"),
    ("install", "uninstall"),
    ("increase", "decrease"),
    ("push", "pop"),
    ("on", "off"),
];

/// First words of the names of functions that only read.
const READ_VERBS: [&str; 22] = [
    "get", "list", "read", "fetch", "find", "search", "query", "lookup", "look", "show", "view", "describe",
    "check", "sense", "scan", "print", "count", "inspect", "browse", "visit", "load", "verify",
];

/// Maximum number of later calls with the same values that a call is compared with: the number of calls with different
/// orders of the values grows with the factorial of the number of arguments.
const MAX_EXCHANGES: usize = 32;

/// Whether the function only reads, by its name.
pub(crate) fn is_read(name: &str) -> bool {
    identifier_words(name).first().is_some_and(|word| READ_VERBS.contains(&word.as_str()))
}

/// For each call the first later call that undoes it: a call of a function whose name differs in an opposite word, with
/// a shared argument; or a call of the same function with two of its values exchanged.
pub(crate) fn compensating(run: &[ReviewedCall<'_>]) -> Vec<(usize, usize)> {
    let names = Names::new(run);
    let (mut shared, mut exchanges) = (SharedArguments::default(), Exchanges::default());
    let mut pairs = Vec::new();
    for (i, call) in successful_reversed(run) {
        let Some(arguments) = call.arguments else { continue };
        let undone = names.by_name.get(call.name).and_then(|&class| {
            let opposites = names.opposites.get(class)?;
            let later = opposites.iter().filter_map(|&other| shared.nearest(other, arguments)).min();
            if !opposites.is_empty() {
                shared.add(class, arguments, i);
            }
            later
        });
        pairs.extend(
            undone.into_iter().chain(exchanges.add(call, arguments, i)).min().map(|later| (i, later)),
        );
    }
    pairs.reverse();
    pairs
}

/// For each write the next one with the same arguments.
pub(crate) fn repeated(run: &[ReviewedCall<'_>]) -> Vec<(usize, usize)> {
    let mut reads: HashMap<&str, bool> = HashMap::new();
    let mut latest: HashMap<(&str, String), usize> = HashMap::new();
    let mut pairs = Vec::new();
    for (i, call) in successful_reversed(run) {
        let Some(arguments) = call.arguments else { continue };
        if !*reads.entry(call.name).or_insert_with(|| is_read(call.name)) {
            let key = (call.name, members_key(arguments));
            pairs.extend(latest.insert(key, i).map(|later| (i, later)));
        }
    }
    pairs.reverse();
    pairs
}

/// The calls that did not fail, in reverse order, so that the index of each contains the calls after it.
fn successful_reversed<'r, 'a>(
    run: &'r [ReviewedCall<'a>],
) -> impl Iterator<Item = (usize, &'r ReviewedCall<'a>)> {
    run.iter().enumerate().rev().filter(|(_, call)| !call.failed)
}

/// The names of a run by their words.
struct Names<'a> {
    /// By name: the class of names with the same words.
    by_name: HashMap<&'a str, usize>,
    /// By class: the classes that differ only in one word, which is replaced by an opposite.
    opposites: Vec<Vec<usize>>,
}

impl<'a> Names<'a> {
    fn new(run: &[ReviewedCall<'a>]) -> Names<'a> {
        let mut classes: HashMap<Vec<String>, usize> = HashMap::new();
        let mut by_name = HashMap::new();
        for call in run {
            by_name.entry(call.name).or_insert_with(|| {
                let next = classes.len();
                *classes.entry(identifier_words(call.name)).or_insert(next)
            });
        }
        let mut opposites = vec![Vec::new(); classes.len()];
        for (words, &class) in &classes {
            let mut other = words.clone();
            for (i, word) in words.iter().enumerate() {
                for opposite in opposites_of(word) {
                    other[i] = opposite.to_owned();
                    opposites[class].extend(classes.get(&other).copied());
                }
                other[i].clone_from(word);
            }
        }
        Names { by_name, opposites }
    }
}

/// The words of the opposite meaning.
fn opposites_of(word: &str) -> impl Iterator<Item = &'static str> {
    OPPOSITES.iter().filter_map(move |&(one, other)| match () {
        () if one == word => Some(other),
        () if other == word => Some(one),
        () => None,
    })
}

/// The nearest later call by its function and each of its arguments; without arguments, by its function alone.
#[derive(Default)]
struct SharedArguments(HashMap<(usize, String), usize>);

impl SharedArguments {
    fn add(&mut self, class: usize, arguments: &Map<String, Value>, i: usize) {
        self.0.extend(argument_keys(arguments).map(|key| ((class, key), i)));
    }

    /// The nearest later call of a function of this class that shares an argument.
    fn nearest(&self, class: usize, arguments: &Map<String, Value>) -> Option<usize> {
        argument_keys(arguments).filter_map(|key| self.0.get(&(class, key)).copied()).min()
    }
}

/// A key for each argument; one empty key if there are no arguments.
fn argument_keys(arguments: &Map<String, Value>) -> impl Iterator<Item = String> {
    let empty_key = arguments.is_empty().then(String::new);
    let argument_key = |(key, value): (&String, &Value)| format!("{key:?}{}", value_key(value));
    arguments.iter().map(argument_key).chain(empty_key)
}

/// The nearest later call by its function, the names of its arguments and their values in any order: only these
/// can be the same call with two values exchanged.
#[derive(Default)]
struct Exchanges<'a>(HashMap<(&'a str, String), VecDeque<LaterCall<'a>>>);

/// The key of the arguments of a call, the index of the call, and its arguments.
type LaterCall<'a> = (String, usize, &'a Map<String, Value>);

impl<'a> Exchanges<'a> {
    /// Adds a call, and returns the nearest later call with two of its values exchanged.
    fn add(&mut self, call: &ReviewedCall<'a>, arguments: &'a Map<String, Value>, i: usize) -> Option<usize> {
        if arguments.len() < 2 {
            return None;
        }
        let mut keys: Vec<&str> = arguments.keys().map(String::as_str).collect();
        let mut values: Vec<String> = arguments.values().map(value_key).collect();
        keys.sort_unstable();
        values.sort_unstable();
        let later_calls = self.0.entry((call.name, format!("{keys:?}{}", values.concat()))).or_default();
        let later = later_calls
            .iter()
            .filter(|(_, _, later)| has_exchanged_values(arguments, later))
            .map(|(_, i, _)| *i)
            .min();
        let members = members_key(arguments);
        later_calls.retain(|(key, ..)| *key != members);
        if later_calls.len() >= MAX_EXCHANGES {
            later_calls.pop_front();
        }
        later_calls.push_back((members, i, arguments));
        later
    }
}

/// Whether two values are exchanged and all others are equal: a transfer and its reverse.
fn has_exchanged_values(a: &Map<String, Value>, b: &Map<String, Value>) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut different =
        a.iter().filter(|(key, value)| b.get(*key).is_none_or(|other| !same_value(value, other)));
    let (Some((k, x)), Some((l, y)), None) = (different.next(), different.next(), different.next()) else {
        return false;
    };
    b.get(k).is_some_and(|v| same_value(v, y)) && b.get(l).is_some_and(|v| same_value(v, x))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::measure::path::argument::same_members;

    fn pairs_by(
        calls: &[(&str, Value)],
        find_pairs: fn(&[ReviewedCall<'_>]) -> Vec<(usize, usize)>,
    ) -> Vec<(usize, usize)> {
        let reviewed_calls: Vec<ReviewedCall<'_>> = calls
            .iter()
            .map(|(name, arguments)| ReviewedCall { name, arguments: arguments.as_object(), failed: false })
            .collect();
        find_pairs(&reviewed_calls)
    }

    #[test]
    fn compensating_calls_are_paired() {
        let calls = [
            ("transfer", json!({"from": "a", "to": "b", "amount": 5})),
            ("create_user", json!({"name": "x", "age": 3})),
            ("get_user", json!({"name": "x"})),
            ("transfer", json!({"from": "b", "to": "a", "amount": 5.0})),
            ("delete_user", json!({"name": "x"})),
            ("delete_user", json!({"name": "y"})),
        ];
        assert_eq!(pairs_by(&calls, compensating), [(0, 3), (1, 4)]);
        assert!(pairs_by(&[("lockDoor", json!({})), ("unlockDoor", json!({}))], compensating).len() == 1);
        assert!(
            pairs_by(
                &[
                    ("transfer", json!({"from": "a", "to": "b"})),
                    ("transfer", json!({"from": "b", "to": "c"}))
                ],
                compensating
            )
            .is_empty()
        );
        assert!(
            pairs_by(&[("add_user", json!({"id": 1})), ("remove_role", json!({"id": 1}))], compensating)
                .is_empty()
        );
    }

    /// The definition: each call with each later one.
    fn paired(
        run: &[ReviewedCall<'_>],
        fits: impl Fn(&ReviewedCall<'_>, &ReviewedCall<'_>) -> bool,
    ) -> Vec<(usize, usize)> {
        let all = 0..run.len();
        let first_later_match = |i: usize| {
            (i + 1..run.len())
                .find(|&j| !run[i].failed && !run[j].failed && fits(&run[i], &run[j]))
                .map(|j| (i, j))
        };
        all.filter_map(first_later_match).collect()
    }

    fn is_opposite(a: &str, b: &str) -> bool {
        let (a, b) = (identifier_words(a), identifier_words(b));
        let different: Vec<_> = a.iter().zip(&b).filter(|(a, b)| a != b).collect();
        a.len() == b.len()
            && different.len() == 1
            && opposites_of(different[0].0).any(|word| word == different[0].1)
    }

    fn shares_argument(a: &Map<String, Value>, b: &Map<String, Value>) -> bool {
        a.is_empty() && b.is_empty() || a.iter().any(|(key, a)| b.get(key).is_some_and(|b| same_value(a, b)))
    }

    proptest! {
        #[test]
        fn pairs_are_those_of_a_comparison_of_all_calls(
            calls in prop::collection::vec(
                (0usize..5, prop::option::of(prop::collection::btree_map("[abc]", 0i64..3, 0..4)), 0u8..8),
                0..24,
            ),
        ) {
            const NAMES: [&str; 5] = ["lock_door", "unlockDoor", "unlock_door", "get_door", "lockDoor"];
            let arguments: Vec<Option<Map<String, Value>>> = calls
                .iter()
                .map(|(_, members, _)| {
                    let members = members.as_ref()?.iter();
                    Some(members.map(|(key, value)| (key.clone(), json!(value))).collect())
                })
                .collect();
            let run: Vec<ReviewedCall<'_>> = calls
                .iter()
                .zip(&arguments)
                .map(|((name, _, failed), arguments)| ReviewedCall {
                    name: NAMES[*name],
                    arguments: arguments.as_ref(),
                    failed: *failed == 0,
                })
                .collect();
            let undo = paired(&run, |a, b| match a.arguments.zip(b.arguments) {
                Some((one, other)) if a.name == b.name => has_exchanged_values(one, other),
                Some((one, other)) => is_opposite(a.name, b.name) && shares_argument(one, other),
                None => false,
            });
            prop_assert_eq!(compensating(&run), undo);
            let repeats = paired(&run, |a, b| {
                let are_equal = a.arguments.zip(b.arguments).is_some_and(|(one, other)| same_members(one, other));
                a.name == b.name && !is_read(a.name) && are_equal
            });
            prop_assert_eq!(repeated(&run), repeats);
        }
    }

    #[test]
    fn repeated_writes_are_paired_and_repeated_reads_are_not() {
        let calls = [
            ("send", json!({"to": "b"})),
            ("list_inbox", json!({})),
            ("send", json!({"to": "b"})),
            ("list_inbox", json!({})),
            ("send", json!({"to": "c"})),
        ];
        assert_eq!(pairs_by(&calls, repeated), [(0, 2)]);
        let failed = ReviewedCall { name: "send", arguments: None, failed: true };
        assert!(repeated(&[failed, failed]).is_empty());
    }
}
