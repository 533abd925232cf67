//! Rules in place of states: what must not, may and must happen, compiled to an automaton.
//!
//! In: `never: X`, `never: X, before: Y`, `at_most: N, of: X`, `must: X`, `must_follow: Y, after: X`.
//! Out: the product of the rules' own automata, as a draft. A state says what has happened so far;
//! calls that change nothing of it are loops, and what a rule forbids has no edge. Nothing has to
//! happen unless a rule says so, so a run without any call may well be golden.

use std::collections::BTreeSet;

use foldhash::{HashMap, HashMapExt};
use serde::Deserialize;

use super::super::draft::{Draft, DraftEdge, DraftState, Fault};
use super::key;
use verdict_config::{Step, nearest};

/// The product grows with the power of the rules; a person reviews what comes out.
const MAX_STATES: usize = 4096;

/// One rule; which keys are given says which.
#[derive(Deserialize, Debug, Default, Clone)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Rule {
    never: Option<String>,
    before: Option<String>,
    at_most: Option<u32>,
    of: Option<String>,
    must: Option<String>,
    must_follow: Option<String>,
    after: Option<String>,
}

/// A rule, read.
enum Demand {
    Never(usize),
    NeverBefore(usize, usize),
    AtMost(u32, usize),
    Must(usize),
    Follow { then: usize, after: usize },
}

const SHAPES: &str = "a rule is one of: never X; never X, before Y; at_most N, of X; must X; \
                      must_follow Y, after X";

/// What has happened so far, as far as the rules ask.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
struct History {
    /// Symbols seen that a rule asks for.
    seen: BTreeSet<usize>,
    /// How often, where that is limited; by the rule's place.
    counts: Vec<u32>,
    /// Symbols that have to follow.
    due: BTreeSet<usize>,
}

/// See the module. `symbols` is the alphabet, in its order.
pub(super) fn compile(rules: &[Rule], symbols: Vec<String>) -> Result<Draft, Vec<Fault>> {
    let mut faults = Vec::new();
    let demands: Vec<Demand> =
        rules.iter().enumerate().filter_map(|(i, rule)| demand(i, rule, &symbols, &mut faults)).collect();
    if faults.is_empty() {
        bounded(&demands, &symbols, &mut faults);
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    product(&Product { demands, symbols })
}

fn demand(i: usize, rule: &Rule, symbols: &[String], faults: &mut Vec<Fault>) -> Option<Demand> {
    let place = [key("policy"), Step::Item(i)];
    let mut find = |name: &Option<String>, of: &str| {
        let name = name.as_ref()?;
        let found = symbols.iter().position(|s| s == name);
        if found.is_none() {
            let hint = nearest(name, symbols.iter().map(String::as_str));
            let hint = hint.map(|h| format!("; did you mean '{h}'?")).unwrap_or_default();
            let place: Vec<Step> = place.iter().cloned().chain([key(of)]).collect();
            faults.push(Fault::new(&place, format!("'{name}' is not in the alphabet{hint}")));
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
        ((Some(x), None, None, None, None), 1) => x.map(Demand::Never),
        ((Some(x), Some(y), None, None, None), 2) => Some(Demand::NeverBefore(x?, y?)),
        ((None, None, Some((n, x)), None, None), 2) => Some(Demand::AtMost(n, x?)),
        ((None, None, None, Some(x), None), 1) => x.map(Demand::Must),
        ((None, None, None, None, Some((then, after))), 2) => {
            Some(Demand::Follow { then: then?, after: after? })
        }
        _ => {
            faults.push(Fault::new(&place, SHAPES));
            None
        }
    }
}

/// What must be followed each time can go on for ever, which is a circle of progress.
fn bounded(demands: &[Demand], symbols: &[String], faults: &mut Vec<Fault>) {
    for (i, demand) in demands.iter().enumerate() {
        let Demand::Follow { then, after } = demand else { continue };
        let place = [key("policy"), Step::Item(i)];
        let name = |symbol: &usize| symbols.get(*symbol).map_or("", String::as_str);
        if then == after {
            faults.push(Fault::new(&place, format!("'{}' cannot follow itself for ever", name(then))));
        } else if !demands.iter().any(|d| matches!(d, Demand::AtMost(_, x) if x == after)) {
            let message = format!(
                "'{0}' may happen without end, each time followed by '{1}'; say how often: \
                 {{ at_most: 3, of: {0} }}",
                name(after),
                name(then)
            );
            faults.push(Fault::new(&place, message));
        }
    }
}

struct Product {
    demands: Vec<Demand>,
    symbols: Vec<String>,
}

impl Product {
    fn begin(&self) -> History {
        History { counts: vec![0; self.demands.len()], ..History::default() }
    }

    fn accepts(&self, history: &History) -> bool {
        history.due.is_empty()
            && self.demands.iter().all(|d| !matches!(d, Demand::Must(x) if !history.seen.contains(x)))
    }

    /// What is known after `symbol`; `None` where a rule forbids it.
    fn after(&self, history: &History, symbol: usize) -> Option<History> {
        let mut next = history.clone();
        for (i, demand) in self.demands.iter().enumerate() {
            match demand {
                Demand::Never(x) if *x == symbol => return None,
                Demand::NeverBefore(x, y) if *x == symbol && !history.seen.contains(y) => return None,
                Demand::NeverBefore(_, y) if *y == symbol => {
                    next.seen.insert(symbol);
                }
                Demand::Must(x) if *x == symbol => {
                    next.seen.insert(symbol);
                }
                Demand::AtMost(most, x) if *x == symbol => {
                    let count = next.counts.get_mut(i)?;
                    if *count >= *most {
                        return None;
                    }
                    *count += 1;
                }
                Demand::Follow { then, after } if *after == symbol => {
                    next.due.insert(*then);
                }
                Demand::Follow { then, .. } if *then == symbol => {
                    next.due.remove(then);
                }
                _ => {}
            }
        }
        Some(next)
    }

    fn describe(&self, history: &History) -> String {
        let name = |symbol: &usize| self.symbols.get(*symbol).map_or("", String::as_str);
        let seen = history.seen.iter().map(|s| format!("{} done", name(s)));
        let counts = self.demands.iter().zip(&history.counts).filter_map(|(demand, count)| match demand {
            Demand::AtMost(most, x) if *count > 0 => Some(format!("{} {count} of {most}", name(x))),
            _ => None,
        });
        let due = history.due.iter().map(|then| format!("{} due", name(then)));
        let parts: Vec<String> = seen.chain(counts).chain(due).collect();
        if parts.is_empty() { "start".to_owned() } else { parts.join(", ") }
    }
}

fn product(product: &Product) -> Result<Draft, Vec<Fault>> {
    let mut known: HashMap<History, usize> = HashMap::new();
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
            return Err(vec![Fault::new(&[key("policy")], message)]);
        }
        edges.push(own);
    }
    let names: Vec<String> = histories.iter().map(|h| product.describe(h)).collect();
    for ((history, name), own) in histories.iter().zip(&names).zip(edges) {
        let edges = own.into_iter().map(|(symbol, to)| DraftEdge {
            symbols: vec![product.symbols[symbol].clone()],
            to: names[to].clone(),
            place: vec![key("policy")],
            ..DraftEdge::default()
        });
        states.push(DraftState {
            name: name.clone(),
            is_final: product.accepts(history),
            edges: edges.collect(),
            place: vec![key("policy")],
        });
    }
    Ok(Draft { states, symbols: product.symbols.clone(), place: vec![key("policy")] })
}
