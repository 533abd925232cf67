//! Compensating calls and repeated writes, which the final state does not show (002, section 1).
//!
//! In: the calls of a run, by name and arguments. Out: pairs of indexes. The pairs are inferred
//! from names, so they are hints for a person and fail nothing.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::argument::{same, same_members};
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

/// Most calls of one run that are compared pairwise.
const MOST_CALLS: usize = 400;

/// Whether the function only reads, by its name.
pub(crate) fn is_read(name: &str) -> bool {
    identifier_words(name).first().is_some_and(|word| READ_VERBS.contains(&word.as_str()))
}

/// Pairs (before, after) whose second call undoes the first: opposite words in otherwise equal
/// names with a shared argument; or one function with two of its values exchanged.
pub(crate) fn compensating(run: &[ReviewedCall<'_>]) -> Vec<(usize, usize)> {
    let words: HashMap<&str, Vec<String>> =
        run.iter().map(|call| (call.name, identifier_words(call.name))).collect();
    pairs(run, |a, b| match a.name == b.name {
        true => exchanged(a, b),
        false => opposite(&words[a.name], &words[b.name]) && shares_argument(a, b),
    })
}

/// Pairs (before, after) of the same write with the same arguments.
pub(crate) fn repeated(run: &[ReviewedCall<'_>]) -> Vec<(usize, usize)> {
    pairs(run, |a, b| {
        let recorded = a.arguments.zip(b.arguments);
        a.name == b.name && !is_read(a.name) && recorded.is_some_and(|(a, b)| same_members(a, b))
    })
}

/// For each call the first later one that matches.
fn pairs(
    run: &[ReviewedCall<'_>],
    fits: impl Fn(&ReviewedCall<'_>, &ReviewedCall<'_>) -> bool,
) -> Vec<(usize, usize)> {
    let made: Vec<(usize, &ReviewedCall<'_>)> =
        run.iter().enumerate().filter(|(_, call)| !call.failed).take(MOST_CALLS).collect();
    let of = |(n, (i, a)): (usize, &(usize, &ReviewedCall<'_>))| {
        made.iter().skip(n + 1).find(|(_, b)| fits(a, b)).map(|(j, _)| (*i, *j))
    };
    made.iter().enumerate().filter_map(of).collect()
}

/// Whether two names differ in one word, of which the one is the opposite of the other.
fn opposite(a: &[String], b: &[String]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut different = a.iter().zip(b).filter(|(a, b)| a != b);
    let (Some((a, b)), None) = (different.next(), different.next()) else { return false };
    OPPOSITES.iter().any(|(one, other)| (one == a && other == b) || (one == b && other == a))
}

/// Whether the calls have an equal argument, or both have none.
fn shares_argument(a: &ReviewedCall<'_>, b: &ReviewedCall<'_>) -> bool {
    let (Some(a), Some(b)) = (a.arguments, b.arguments) else { return false };
    (a.is_empty() && b.is_empty()) || a.iter().any(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
}

/// Whether two values are exchanged and all others are equal: a transfer and its reverse.
fn exchanged(a: &ReviewedCall<'_>, b: &ReviewedCall<'_>) -> bool {
    let (Some(a), Some(b)) = (a.arguments, b.arguments) else { return false };
    if a.len() != b.len() {
        return false;
    }
    let mut moved = a.iter().filter(|(key, value)| b.get(*key).is_none_or(|other| !same(value, other)));
    let (Some((k, x)), Some((l, y)), None) = (moved.next(), moved.next(), moved.next()) else { return false };
    b.get(k).is_some_and(|v| same(v, y)) && b.get(l).is_some_and(|v| same(v, x))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(
        calls: &[(&str, Value)],
        look: fn(&[ReviewedCall<'_>]) -> Vec<(usize, usize)>,
    ) -> Vec<(usize, usize)> {
        let made: Vec<ReviewedCall<'_>> = calls
            .iter()
            .map(|(name, arguments)| ReviewedCall { name, arguments: arguments.as_object(), failed: false })
            .collect();
        look(&made)
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
        assert_eq!(found(&calls, compensating), [(0, 3), (1, 4)]);
        assert!(found(&[("lockDoor", json!({})), ("unlockDoor", json!({}))], compensating).len() == 1);
        assert!(
            found(
                &[
                    ("transfer", json!({"from": "a", "to": "b"})),
                    ("transfer", json!({"from": "b", "to": "c"}))
                ],
                compensating
            )
            .is_empty()
        );
        assert!(
            found(&[("add_user", json!({"id": 1})), ("remove_role", json!({"id": 1}))], compensating)
                .is_empty()
        );
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
        assert_eq!(found(&calls, repeated), [(0, 2)]);
        let failed = ReviewedCall { name: "send", arguments: None, failed: true };
        assert!(repeated(&[failed, failed]).is_empty());
    }
}
