//! Compiles rules instead of states, about forbidden, limited and required calls, to an automaton.
//!
//! In: `never: X`, `never: X, before: Y`, `at_most: N, of: X`, `must: X`, `must_follow: Y, after:
//! X`. Out: the product of the rules' automata, as a draft. A state is the relevant history; calls
//! that do not change it are loops, and forbidden calls have no edge. Only `must` and `must_follow`
//! require calls, so a run without calls may be golden. Rules that are texts are about amounts and times, and are
//! checked in addition to the automaton (`limit_text`).

use std::collections::BTreeSet;

use foldhash::{HashMap, HashMapExt};
use serde::Deserialize;
use verdict_config::{Issue, Node, Step, Value, read};

use super::super::draft::{Draft, DraftEdge, DraftState, TaskProblem, key};
use super::super::limits::PathLimit;
use super::limit_text::{MAX_LIMITS, read_limit};

/// Maximum number of states of the product, which grows exponentially with the number of rules.
const MAX_STATES: usize = 4096;

/// One rule as written; its keys determine its kind.
#[derive(Deserialize, schemars::JsonSchema, Debug, Default, Clone)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RuleEntry {
    never: Option<String>,
    before: Option<String>,
    at_most: Option<u32>,
    #[serde(rename = "of")]
    limited_symbol: Option<String>,
    must: Option<String>,
    must_follow: Option<String>,
    after: Option<String>,
}

/// The rules of a task, each with its index in the list.
#[derive(Debug, Default)]
pub(super) struct TaskPolicy {
    /// Rules about calls.
    rules: Vec<(usize, RuleEntry)>,
    /// Rules on amounts and times.
    limit_texts: Vec<(usize, String)>,
}

impl TaskPolicy {
    /// Reads the rules of a task.
    pub(super) fn read(task: &Node, prefix: &[Step], issues: &mut Vec<Issue>) -> TaskPolicy {
        let mut policy = TaskPolicy::default();
        let Some(Value::List(items)) = task.get("policy").map(|node| &node.value) else { return policy };
        for (i, node) in items.iter().enumerate() {
            if let Value::Scalar(text, _) = &node.value {
                policy.limit_texts.push((i, text.clone()));
                continue;
            }
            let location = [prefix, &[key("policy"), Step::Item(i)]].concat();
            if let Some(rule) = read(node, &location, issues) {
                policy.rules.push((i, rule));
            }
        }
        policy
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.limit_texts.is_empty()
    }

    pub(super) fn rules(&self) -> &[(usize, RuleEntry)] {
        &self.rules
    }

    /// The rules on amounts and times.
    pub(super) fn limits(&self, symbols: &[String], problems: &mut Vec<TaskProblem>) -> Vec<PathLimit> {
        if self.limit_texts.len() > MAX_LIMITS {
            let message = format!("more than {MAX_LIMITS} rules on amounts and times; split them into tasks");
            problems.push(TaskProblem::new(&[key("policy")], message));
            return Vec::new();
        }
        let limit = |(i, text): &(usize, String)| read_limit(*i, text, symbols);
        self.limit_texts
            .iter()
            .filter_map(|rule| limit(rule).map_err(|problem| problems.push(problem)).ok())
            .collect()
    }
}

/// A rule about calls, with the indexes of its symbols.
enum PolicyRule {
    Never(usize),
    NeverBefore(usize, usize),
    AtMost(u32, usize),
    Must(usize),
    /// Each call of `after` must be followed by `then`.
    Follow {
        then: usize,
        after: usize,
    },
}

const RULE_FORMS: &str = "a rule is one of: never X; never X, before Y; at_most N, of X; must X; \
                      must_follow Y, after X";

/// The history that the rules depend on.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
struct PolicyState {
    /// The symbols of rules that have occurred.
    occurred: BTreeSet<usize>,
    /// Occurrences of limited symbols, by the rule's index.
    counts: Vec<u32>,
    /// The symbols that must still follow.
    due: BTreeSet<usize>,
}

/// Compiles `rules` over the alphabet `symbols`.
pub(super) fn compile(rules: &[(usize, RuleEntry)], symbols: Vec<String>) -> Result<Draft, Vec<TaskProblem>> {
    let mut problems = Vec::new();
    let mut policy_rules = Vec::new();
    for (i, rule) in rules {
        policy_rules.extend(read_rule(*i, rule, &symbols, &mut problems).map(|rule| (*i, rule)));
    }
    if problems.is_empty() {
        check_bounded(&policy_rules, &symbols, &mut problems);
    }
    let rules = policy_rules.into_iter().map(|(_, rule)| rule).collect();
    if !problems.is_empty() {
        return Err(problems);
    }
    build_draft(&Product { rules, symbols })
}

/// The rule of an entry; `None` if a symbol is unknown or the keys do not form a rule.
fn read_rule(
    i: usize,
    rule: &RuleEntry,
    symbols: &[String],
    problems: &mut Vec<TaskProblem>,
) -> Option<PolicyRule> {
    let names = [
        ("never", &rule.never),
        ("before", &rule.before),
        ("of", &rule.limited_symbol),
        ("must", &rule.must),
        ("must_follow", &rule.must_follow),
        ("after", &rule.after),
    ];
    let fields: Vec<(&str, &String)> =
        names.into_iter().filter_map(|(rule_key, name)| Some((rule_key, name.as_ref()?))).collect();
    let mut known_symbols = Vec::new();
    for (rule_key, name) in &fields {
        match symbols.iter().position(|symbol| symbol == *name) {
            Some(symbol) => known_symbols.push(symbol),
            None => {
                let location = [key("policy"), Step::Item(i), key(rule_key)];
                let message = format!("'{name}' is not in the alphabet");
                let known = symbols.iter().map(String::as_str);
                problems.push(TaskProblem::unknown(&location, message, name, known));
            }
        }
    }
    if known_symbols.len() < fields.len() {
        return None;
    }
    let keys: Vec<&str> = fields.into_iter().map(|(rule_key, _)| rule_key).collect();
    Some(match (keys.as_slice(), known_symbols.as_slice(), rule.at_most) {
        (["never"], [x], None) => PolicyRule::Never(*x),
        (["never", "before"], [x, y], None) => PolicyRule::NeverBefore(*x, *y),
        (["of"], [x], Some(n)) => PolicyRule::AtMost(n, *x),
        (["must"], [x], None) => PolicyRule::Must(*x),
        (["must_follow", "after"], [then, after], None) => PolicyRule::Follow { then: *then, after: *after },
        _ => {
            problems.push(TaskProblem::new(&[key("policy"), Step::Item(i)], RULE_FORMS));
            return None;
        }
    })
}

/// Checks that the calls after which another must follow are limited: without a limit they would be a cycle of
/// progress.
fn check_bounded(rules: &[(usize, PolicyRule)], symbols: &[String], problems: &mut Vec<TaskProblem>) {
    for (i, rule) in rules {
        let PolicyRule::Follow { then, after } = rule else { continue };
        let location = [key("policy"), Step::Item(*i)];
        let name = |symbol: &usize| symbols.get(*symbol).map_or("", String::as_str);
        if then == after {
            problems.push(TaskProblem::new(&location, format!("'{}' cannot follow itself", name(then))));
        } else if !rules.iter().any(|(_, rule)| matches!(rule, PolicyRule::AtMost(_, x) if x == after)) {
            let message = format!(
                "'{0}' is not limited, and each call must be followed by '{1}'; limit it: \
                 {{ at_most: 3, of: {0} }}",
                name(after),
                name(then)
            );
            problems.push(TaskProblem::new(&location, message));
        }
    }
}

/// The product of the automata of several rules.
struct Product {
    rules: Vec<PolicyRule>,
    symbols: Vec<String>,
}

impl Product {
    /// Whether a run may end after this history.
    fn accepts(&self, history: &PolicyState) -> bool {
        history.due.is_empty()
            && self
                .rules
                .iter()
                .all(|rule| !matches!(rule, PolicyRule::Must(x) if !history.occurred.contains(x)))
    }

    /// The state after `symbol`; `None` if a rule forbids it.
    fn after(&self, history: &PolicyState, symbol: usize) -> Option<PolicyState> {
        let mut next = history.clone();
        for (i, rule) in self.rules.iter().enumerate() {
            match rule {
                PolicyRule::Never(x) if *x == symbol => return None,
                PolicyRule::NeverBefore(x, y) if *x == symbol && !history.occurred.contains(y) => {
                    return None;
                }
                PolicyRule::NeverBefore(_, x) | PolicyRule::Must(x) if *x == symbol => {
                    next.occurred.insert(symbol);
                }
                PolicyRule::AtMost(limit, x) if *x == symbol => {
                    let count = next.counts.get_mut(i)?;
                    if *count >= *limit {
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

    /// The name of the state of a history.
    fn state_name(&self, history: &PolicyState) -> String {
        let name = |symbol: &usize| self.symbols.get(*symbol).map_or("", String::as_str);
        let occurred = history.occurred.iter().map(|s| format!("{} done", name(s)));
        let counts = self.rules.iter().zip(&history.counts).filter_map(|(rule, count)| match rule {
            PolicyRule::AtMost(limit, x) if *count > 0 => Some(format!("{} {count} of {limit}", name(x))),
            _ => None,
        });
        let due = history.due.iter().map(|then| format!("{} due", name(then)));
        let parts: Vec<String> = occurred.chain(counts).chain(due).collect();
        if parts.is_empty() { "start".to_owned() } else { parts.join(", ") }
    }
}

/// Builds the states of the product that can be reached, in breadth-first order.
fn build_draft(product: &Product) -> Result<Draft, Vec<TaskProblem>> {
    let mut indexes: HashMap<PolicyState, usize> = HashMap::new();
    let initial = PolicyState { counts: vec![0; product.rules.len()], ..PolicyState::default() };
    let mut histories = vec![initial.clone()];
    indexes.insert(initial, 0);
    let mut states: Vec<DraftState> = Vec::new();
    let mut edges: Vec<Vec<(usize, usize)>> = Vec::new();
    while let Some(history) = histories.get(edges.len()).cloned() {
        let mut transitions = Vec::new();
        for symbol in 0..product.symbols.len() {
            let Some(next) = product.after(&history, symbol) else { continue };
            let to = *indexes.entry(next).or_insert_with_key(|next| {
                histories.push(next.clone());
                histories.len() - 1
            });
            transitions.push((symbol, to));
        }
        if histories.len() > MAX_STATES {
            let message = format!("these rules make more than {MAX_STATES} states; split them into tasks");
            return Err(vec![TaskProblem::new(&[key("policy")], message)]);
        }
        edges.push(transitions);
    }
    let names: Vec<String> = histories.iter().map(|h| product.state_name(h)).collect();
    for ((history, name), transitions) in histories.iter().zip(&names).zip(edges) {
        let edges = transitions.into_iter().map(|(symbol, to)| DraftEdge {
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
