//! Rules instead of states: forbidden, limited and required calls, compiled to an automaton.
//!
//! In: `never: X`, `never: X, before: Y`, `at_most: N, of: X`, `must: X`, `must_follow: Y, after:
//! X`. Out: the product of the rules' automata, as a draft. A state is the relevant history; calls
//! that do not change it are loops, and forbidden calls have no edge. Nothing is required unless a
//! rule says so, so a run without calls may be golden.

use std::collections::BTreeSet;

use foldhash::{HashMap, HashMapExt};
use serde::Deserialize;
use verdict_config::{Step, nearest};

use super::super::draft::{Draft, DraftEdge, DraftState, TaskFault, key};

/// Most states of the product, which is exponential in the number of rules.
const MAX_STATES: usize = 4096;

/// One rule as written; its keys determine its kind.
#[derive(Deserialize, Debug, Default, Clone)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RuleEntry {
    never: Option<String>,
    before: Option<String>,
    at_most: Option<u32>,
    of: Option<String>,
    must: Option<String>,
    must_follow: Option<String>,
    after: Option<String>,
}

/// A parsed rule.
enum PolicyRule {
    Never(usize),
    NeverBefore(usize, usize),
    AtMost(u32, usize),
    Must(usize),
    Follow { then: usize, after: usize },
}

const SHAPES: &str = "a rule is one of: never X; never X, before Y; at_most N, of X; must X; \
                      must_follow Y, after X";

/// The history that the rules depend on.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
struct PolicyState {
    /// Symbols of rules that occurred.
    seen: BTreeSet<usize>,
    /// Occurrences of limited symbols, by the rule's index.
    counts: Vec<u32>,
    /// Symbols that must follow.
    due: BTreeSet<usize>,
}

/// Compiles `rules` over the alphabet `symbols`.
pub(super) fn compile(rules: &[RuleEntry], symbols: Vec<String>) -> Result<Draft, Vec<TaskFault>> {
    let mut faults = Vec::new();
    let rules: Vec<PolicyRule> =
        rules.iter().enumerate().filter_map(|(i, rule)| rule_of(i, rule, &symbols, &mut faults)).collect();
    if faults.is_empty() {
        check_bounded(&rules, &symbols, &mut faults);
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    product(&Product { rules, symbols })
}

fn rule_of(
    i: usize,
    rule: &RuleEntry,
    symbols: &[String],
    faults: &mut Vec<TaskFault>,
) -> Option<PolicyRule> {
    let location = [key("policy"), Step::Item(i)];
    let mut find = |name: &Option<String>, of: &str| {
        let name = name.as_ref()?;
        let found = symbols.iter().position(|s| s == name);
        if found.is_none() {
            let hint = nearest(name, symbols.iter().map(String::as_str));
            let hint = hint.map(|h| format!("; did you mean '{h}'?")).unwrap_or_default();
            let location: Vec<Step> = location.iter().cloned().chain([key(of)]).collect();
            faults.push(TaskFault::new(&location, format!("'{name}' is not in the alphabet{hint}")));
        }
        Some(found)
    };
    let names = (
        find(&rule.never, "never"),
        find(&rule.before, "before"),
        rule.at_most.zip(find(&rule.of, "of")),
        find(&rule.must, "must"),
        find(&rule.must_follow, "must_follow").zip(find(&rule.after, "after")),
    );
    let given = [
        rule.never.is_some(),
        rule.before.is_some(),
        rule.at_most.is_some(),
        rule.of.is_some(),
        rule.must.is_some(),
        rule.must_follow.is_some(),
        rule.after.is_some(),
    ];
    let count = given.iter().filter(|g| **g).count();
    match (names, count) {
        ((Some(x), None, None, None, None), 1) => x.map(PolicyRule::Never),
        ((Some(x), Some(y), None, None, None), 2) => Some(PolicyRule::NeverBefore(x?, y?)),
        ((None, None, Some((n, x)), None, None), 2) => Some(PolicyRule::AtMost(n, x?)),
        ((None, None, None, Some(x), None), 1) => x.map(PolicyRule::Must),
        ((None, None, None, None, Some((then, after))), 2) => {
            Some(PolicyRule::Follow { then: then?, after: after? })
        }
        _ => {
            faults.push(TaskFault::new(&location, SHAPES));
            None
        }
    }
}

/// An unlimited `must_follow` would be a cycle of progress.
fn check_bounded(rules: &[PolicyRule], symbols: &[String], faults: &mut Vec<TaskFault>) {
    for (i, rule_of) in rules.iter().enumerate() {
        let PolicyRule::Follow { then, after } = rule_of else { continue };
        let location = [key("policy"), Step::Item(i)];
        let name = |symbol: &usize| symbols.get(*symbol).map_or("", String::as_str);
        if then == after {
            faults.push(TaskFault::new(&location, format!("'{}' cannot follow itself for ever", name(then))));
        } else if !rules.iter().any(|d| matches!(d, PolicyRule::AtMost(_, x) if x == after)) {
            let message = format!(
                "'{0}' may happen without end, each time followed by '{1}'; say how often: \
                 {{ at_most: 3, of: {0} }}",
                name(after),
                name(then)
            );
            faults.push(TaskFault::new(&location, message));
        }
    }
}

struct Product {
    rules: Vec<PolicyRule>,
    symbols: Vec<String>,
}

impl Product {
    fn begin(&self) -> PolicyState {
        PolicyState { counts: vec![0; self.rules.len()], ..PolicyState::default() }
    }

    fn accepts(&self, history: &PolicyState) -> bool {
        history.due.is_empty()
            && self.rules.iter().all(|d| !matches!(d, PolicyRule::Must(x) if !history.seen.contains(x)))
    }

    /// The state after `symbol`; `None` if a rule forbids it.
    fn after(&self, history: &PolicyState, symbol: usize) -> Option<PolicyState> {
        let mut next = history.clone();
        for (i, rule_of) in self.rules.iter().enumerate() {
            match rule_of {
                PolicyRule::Never(x) if *x == symbol => return None,
                PolicyRule::NeverBefore(x, y) if *x == symbol && !history.seen.contains(y) => return None,
                PolicyRule::NeverBefore(_, y) if *y == symbol => {
                    next.seen.insert(symbol);
                }
                PolicyRule::Must(x) if *x == symbol => {
                    next.seen.insert(symbol);
                }
                PolicyRule::AtMost(most, x) if *x == symbol => {
                    let count = next.counts.get_mut(i)?;
                    if *count >= *most {
                        return None;
                    }
                    *count += 1;
                }
                PolicyRule::Follow { then, after } if *after == symbol => {
                    next.due.insert(*then);
                }
                PolicyRule::Follow { then, .. } if *then == symbol => {
                    next.due.remove(then);
                }
                _ => {}
            }
        }
        Some(next)
    }

    fn describe(&self, history: &PolicyState) -> String {
        let name = |symbol: &usize| self.symbols.get(*symbol).map_or("", String::as_str);
        let seen = history.seen.iter().map(|s| format!("{} done", name(s)));
        let counts = self.rules.iter().zip(&history.counts).filter_map(|(rule_of, count)| match rule_of {
            PolicyRule::AtMost(most, x) if *count > 0 => Some(format!("{} {count} of {most}", name(x))),
            _ => None,
        });
        let due = history.due.iter().map(|then| format!("{} due", name(then)));
        let parts: Vec<String> = seen.chain(counts).chain(due).collect();
        if parts.is_empty() { "start".to_owned() } else { parts.join(", ") }
    }
}

fn product(product: &Product) -> Result<Draft, Vec<TaskFault>> {
    let mut known: HashMap<PolicyState, usize> = HashMap::new();
    let mut histories = vec![product.begin()];
    known.insert(product.begin(), 0);
    let mut states: Vec<DraftState> = Vec::new();
    let mut edges: Vec<Vec<(usize, usize)>> = Vec::new();
    while let Some(history) = histories.get(edges.len()).cloned() {
        let mut own = Vec::new();
        for symbol in 0..product.symbols.len() {
            let Some(next) = product.after(&history, symbol) else { continue };
            let to = *known.entry(next).or_insert_with_key(|next| {
                histories.push(next.clone());
                histories.len() - 1
            });
            own.push((symbol, to));
        }
        if histories.len() > MAX_STATES {
            let message = format!("these rules make more than {MAX_STATES} states; split them into tasks");
            return Err(vec![TaskFault::new(&[key("policy")], message)]);
        }
        edges.push(own);
    }
    let names: Vec<String> = histories.iter().map(|h| product.describe(h)).collect();
    for ((history, name), own) in histories.iter().zip(&names).zip(edges) {
        let edges = own.into_iter().map(|(symbol, to)| DraftEdge {
            symbols: vec![product.symbols[symbol].clone()],
            to: names[to].clone(),
            location: vec![key("policy")],
            ..DraftEdge::default()
        });
        states.push(DraftState {
            name: name.clone(),
            is_final: product.accepts(history),
            edges: edges.collect(),
            location: vec![key("policy")],
        });
    }
    Ok(Draft { states, symbols: product.symbols.clone(), location: vec![key("policy")] })
}
