//! The numbers of published tasks, automata that are rejected, and the properties of appendix C.

use proptest::prelude::*;

use super::automaton::{Automaton, Symbol, Transition};
use super::check::check;
use super::correctness::path_correctness;
use super::draft::{Draft, DraftEdge, DraftState, TaskProblem};
use super::order::ordered_correctness;
use super::refinement::refined_correctness;
use super::score::{Parameters, PathScores, PathWeights, efficiency, prefix_criticality};
use super::walk::{CondensedStep, PathToken, Walk};
use super::*;

/// An automaton over letters. States are separated by ';', final states begin with a star, and edges have the form
/// `AB>state`.
fn automaton(states: &str) -> Result<Automaton, Vec<TaskProblem>> {
    let mut draft = Draft::default();
    for state in states.split(';').map(str::trim).filter(|s| !s.is_empty()) {
        let mut words = state.split(' ');
        let name = words.next().unwrap();
        draft = draft.state(name.trim_start_matches('*'), name.starts_with('*'));
        for (symbols, to) in words.map(|edge| edge.split_once('>').unwrap()) {
            let symbols: Vec<String> = symbols.chars().map(String::from).collect();
            draft = draft.edge(&symbols.iter().map(String::as_str).collect::<Vec<_>>(), to);
            let new: Vec<String> = symbols.into_iter().filter(|s| !draft.symbols.contains(s)).collect();
            draft.symbols.extend(new);
        }
    }
    check(&draft).map(|checked| checked.automaton)
}

/// The automaton whose golden paths are these words, without loops: a tree of their prefixes.
fn tree_automaton(golden: &[&str]) -> Automaton {
    let mut prefixes: Vec<String> = vec![String::new()];
    for word in golden {
        for end in 1..=word.len() {
            let prefix = word[..end].to_owned();
            if !prefixes.contains(&prefix) {
                prefixes.push(prefix);
            }
        }
    }
    let mut draft = Draft::default();
    for prefix in &prefixes {
        draft = draft.state(&format!("<{prefix}>"), golden.contains(&prefix.as_str()));
        for next in prefixes.iter().filter(|n| n.len() == prefix.len() + 1 && n.starts_with(prefix.as_str()))
        {
            let symbol = &next[prefix.len()..];
            draft = draft.edge(&[symbol], &format!("<{next}>"));
            if !draft.symbols.iter().any(|s| s == symbol) {
                draft.symbols.push(symbol.to_owned());
            }
        }
    }
    check(&draft).unwrap().automaton
}

fn walk(automaton: &Automaton, word: &str) -> Walk {
    let mut walk = Walk::new(automaton);
    for letter in word.chars() {
        let symbol = automaton.symbol(&letter.to_string());
        walk.push(automaton, symbol.map_or(PathToken::Foreign(letter as u32), PathToken::Symbol));
    }
    walk
}

fn scores(automaton: &Automaton, word: &str, beta: f64) -> PathScores {
    PathScores::compute(automaton, &walk(automaton, word), Parameters { lambda: 0.5, beta })
}

fn assert_near(found: Option<f64>, expected: f64) {
    let found = found.expect("it is measured");
    assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
}

#[test]
fn running_example_has_its_published_scores() {
    // B is a read at the start; B and D are reads after AB.
    let rover = automaton("start A>one B>start; one B>two; two C>end BD>two; *end").unwrap();
    let walk = walk(&rover, "BBABXDC");
    let condensed: Vec<bool> = walk.condensed().iter().map(|k| k.is_harmful).collect();
    assert_eq!(condensed, [false, false, true, false]);
    let scores = scores(&rover, "BBABXDC", 0.5);
    assert_near(scores.correctness, 0.75);
    assert_near(scores.pc_ktc, 0.875);
    assert_near(Some(scores.prefix_criticality), 13.0 / 15.0);
    assert_near(Some(scores.harm_rate), 0.25);
    assert_near(Some(scores.harm_free()), 0.75);
    assert_near(scores.efficiency, 3.0 / 7.0);
    assert_near(scores.pc_hlr, 7.0 / 9.0);
    assert!(scores.is_accepting && scores.harmful_calls == 1);
}

#[test]
fn section_5_examples_follow_the_equations() {
    // A: the mandatory check is skipped. The paper prints PC-KTC .25 and efficiency 0.
    let check = tree_automaton(&["CE"]);
    let a = scores(&check, "E", 0.5);
    assert_near(a.correctness, 0.5);
    assert_near(a.pc_ktc, 0.5);
    assert_eq!((a.harmful_calls, a.efficiency, a.is_accepting), (1, None, false));
    // B: three sends. The paper prints PC .50.
    let send = tree_automaton(&["S"]);
    let b = scores(&send, "SSS", 0.5);
    assert_near(b.correctness, 1.0 / 3.0);
    assert_near(b.efficiency, 1.0 / 3.0);
    assert_near(Some(b.prefix_criticality), 4.0 / 7.0);
    assert_eq!(b.harmful_calls, 2);
    // C: a step is left out, so that the later steps are not allowed either. c is C' here.
    let arm = tree_automaton(&["ACEGcH"]);
    let c = scores(&arm, "ACGcH", 0.25);
    assert_near(c.correctness, 5.0 / 6.0);
    assert_near(c.pc_ktc, 11.0 / 12.0);
    assert_near(Some(c.prefix_criticality), 320.0 / 341.0);
    assert_eq!(c.harmful_calls, 3);
}

#[test]
fn refinement_candidates_are_repaired_paths_only() {
    let two = tree_automaton(&["ABCDE", "F"]);
    let run = scores(&two, "A", 0.5);
    assert_near(run.correctness, 1.0 / 3.0);
    assert_near(run.pc_hlr, 0.2);
}

#[test]
fn run_without_calls_has_the_best_harm_scores() {
    let idle = scores(&tree_automaton(&["ABC"]), "", 0.5);
    assert_near(idle.correctness, 0.0);
    assert_near(idle.pc_ktc, 0.25);
    assert_eq!((idle.prefix_criticality, idle.harm_rate, idle.efficiency), (1.0, 0.0, None));
    assert!(!idle.is_accepting && idle.harmful_calls == 0);
    // If no call is required, the empty run is golden.
    let nothing = automaton("*start A>start").unwrap();
    let idle = scores(&nothing, "", 0.5);
    assert_eq!((idle.correctness, idle.efficiency, idle.pc_hlr), (Some(1.0), None, Some(1.0)));
}

#[test]
fn failed_call_does_not_advance_the_state() {
    let steps = automaton("start A>one R>start; *one").unwrap();
    let [a, r] = ["A", "R"].map(|s| PathToken::Symbol(steps.symbol(s).unwrap()));
    let mut walk = Walk::new(&steps);
    assert_eq!(walk.push_failed(&steps, a), Transition::Loop);
    assert_eq!(walk.push_failed(&steps, r), Transition::Loop);
    assert_eq!(walk.push_failed(&steps, PathToken::Foreign(0)), Transition::Harmful);
    assert_eq!((walk.calls(), walk.condensed().len(), walk.state()), (3, 1, steps.initial()));
    assert!(matches!(walk.push(&steps, a), Transition::Progress(_)));
    assert_eq!(efficiency(&steps, walk.calls()), Some(0.25));
}

fn problem_messages(states: &str) -> String {
    let problems = automaton(states).unwrap_err();
    problems.iter().map(|f| f.message.as_str()).collect::<Vec<_>>().join("; ")
}

#[test]
fn unsound_automaton_is_rejected_with_a_reason() {
    for (states, reason) in [
        ("*a A>b", "no state is named 'b'"),
        ("a A>a A>b; *b", "must be deterministic"),
        ("*a; a", "a second state 'a'"),
        ("*a; *b", "'b' cannot be reached"),
        ("a A>b B>c; *b; c A>c", "'c' is dead"),
        ("a A>b; b", "no golden path: no state is final"),
        ("a A>a; *b", "no golden path: no final state can be reached"),
        ("", "no golden path: there are no states"),
        ("a A>b; b A>c B>a; *c", "progress edges form a cycle: 'a' -> 'b' -> 'a'"),
    ] {
        let message = problem_messages(states);
        assert!(message.contains(reason), "{message:?} does not contain {reason:?}");
    }
    let misplaced_edge = Draft {
        states: vec![
            DraftState {
                name: "a".into(),
                edges: vec![DraftEdge {
                    symbols: vec!["A".into()],
                    from: Some("b".into()),
                    to: "b".into(),
                    ..DraftEdge::default()
                }],
                ..DraftState::default()
            },
            DraftState { name: "b".into(), is_final: true, ..DraftState::default() },
        ],
        symbols: vec!["A".into()],
        ..Draft::default()
    };
    let problems = check(&misplaced_edge).unwrap_err();
    assert_eq!(problems[0].message, "this edge is listed under state 'a' but leaves 'b'");
    let repeated_edge =
        Draft::new(["A"]).state("a", false).edge(&["A"], "b").edge(&["A"], "b").state("b", true);
    assert_eq!(check(&repeated_edge).unwrap().warnings.len(), 1);
    let unknown_symbol = Draft::new(["A"]).state("a", true).edge(&["B"], "a");
    assert!(check(&unknown_symbol).unwrap_err()[0].message.contains("'B' is not in the alphabet"));
}

#[test]
fn progress_cycle_is_found_when_later_states_follow_it() {
    let message = problem_messages("s A>a; a A>b; b A>a B>c; c A>d; *d");
    assert!(message.contains("'a' -> 'b' -> 'a'") || message.contains("'b' -> 'a' -> 'b'"), "{message}");
}

/// Every golden path, by brute force.
fn golden_paths(automaton: &Automaton) -> Vec<Vec<Symbol>> {
    let mut found = Vec::new();
    let mut pending = vec![(automaton.initial(), Vec::new())];
    while let Some((state, word)) = pending.pop() {
        if automaton.is_final(state) {
            found.push(word.clone());
        }
        for (symbol, to) in automaton.progress(state) {
            let mut longer: Vec<Symbol> = word.clone();
            longer.push(symbol);
            pending.push((to, longer));
        }
    }
    found
}

/// Every HLR candidate, by brute force.
fn hlr_candidates(automaton: &Automaton, walk: &Walk) -> Vec<Vec<Symbol>> {
    let mut prefixes: Vec<Vec<Symbol>> = vec![Vec::new()];
    for step in walk.condensed() {
        let mut next = Vec::new();
        for prefix in prefixes {
            match step.token {
                PathToken::Symbol(symbol) if !step.is_harmful => next.push([prefix, vec![symbol]].concat()),
                _ => {
                    for read in automaton.loops(step.before) {
                        next.push([prefix.clone(), vec![read]].concat());
                    }
                    next.push(prefix);
                }
            }
        }
        prefixes = next;
    }
    let mut suffixes = Vec::new();
    let mut pending = vec![(walk.state(), Vec::new())];
    while let Some((state, word)) = pending.pop() {
        if automaton.is_final(state) {
            suffixes.push(word.clone());
        }
        for (symbol, to) in automaton.progress(state) {
            pending.push((to, [word.clone(), vec![symbol]].concat()));
        }
    }
    let all = prefixes.iter().flat_map(|p| suffixes.iter().map(move |s| [p.clone(), s.clone()].concat()));
    all.collect()
}

fn word_codes(word: &[Symbol]) -> Vec<distance::Code> {
    word.iter().map(|s| s.index() as distance::Code).collect()
}

fn best_similarity(path: &[distance::Code], references: &[Vec<Symbol>]) -> f64 {
    let similarity = |reference: &Vec<Symbol>| {
        let reference = word_codes(reference);
        let distance = distance::levenshtein(path, &reference);
        1.0 - distance::normalized(distance, path.len(), reference.len())
    };
    references.iter().map(similarity).fold(f64::NEG_INFINITY, f64::max)
}

const LETTERS: [&str; 5] = ["A", "B", "C", "D", "E"];

/// A sound automaton: its edges lead to the same or a later state, and every state is reachable and
/// leads to the last one.
fn sound_automaton() -> impl Strategy<Value = Automaton> {
    let edges = prop::collection::vec((0usize..6, 0usize..5, 0usize..6), 5..24);
    (2usize..7, edges, prop::collection::vec(any::<bool>(), 6)).prop_filter_map(
        "deterministic and live",
        |(states, edges, finals)| {
            let mut table = vec![[None; 5]; states];
            // A path through all states, so that each can reach the last one.
            for state in 0..states - 1 {
                table[state][state % 5] = Some(state + 1);
            }
            for (from, symbol, to) in edges {
                if from < states && (from..states).contains(&to) && table[from][symbol].is_none() {
                    table[from][symbol] = Some(to);
                }
            }
            let mut draft = Draft::new(LETTERS);
            for (from, row) in table.iter().enumerate() {
                draft = draft.state(&from.to_string(), from + 1 == states || (finals[from] && from % 2 == 1));
                for (symbol, to) in row.iter().enumerate() {
                    if let Some(to) = to {
                        draft = draft.edge(&[LETTERS[symbol]], &to.to_string());
                    }
                }
            }
            check(&draft).ok().map(|checked| checked.automaton)
        },
    )
}

fn any_run(max_len: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(0u8..6, 0..=max_len)
}

fn walk_of(automaton: &Automaton, run: &[u8]) -> Walk {
    let mut walk = Walk::new(automaton);
    for &letter in run {
        let symbol = LETTERS.get(letter as usize).and_then(|l| automaton.symbol(l));
        walk.push(automaton, symbol.map_or(PathToken::Foreign(0), PathToken::Symbol));
    }
    walk
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn scores_equal_those_of_exhaustive_enumeration(automaton in sound_automaton(), run in any_run(7), lambda in 0.0f64..=1.0) {
        let walk = walk_of(&automaton, &run);
        let path = correctness::codes(&walk);
        let golden = golden_paths(&automaton);
        prop_assert_eq!(automaton.golden_path_count(), golden.len() as u64);
        let mut lengths: Vec<usize> = golden.iter().map(Vec::len).collect();
        lengths.sort_unstable();
        lengths.dedup();
        prop_assert_eq!(automaton.golden_path_lengths(), &lengths[..]);
        let pc = path_correctness(&automaton, &walk, &|_| true).unwrap();
        prop_assert_eq!(pc, best_similarity(&path, &golden));
        let hlr = refined_correctness(&automaton, &walk, &|_| true).unwrap();
        prop_assert_eq!(hlr, best_similarity(&path, &hlr_candidates(&automaton, &walk)));
        let ktc = |g: &Vec<Symbol>| {
            let g = word_codes(g);
            let similarity = 1.0 - distance::normalized(distance::levenshtein(&path, &g), path.len(), g.len());
            lambda * similarity + (1.0 - lambda) * order::tau_plus(&path, &g)
        };
        let expected = golden.iter().map(ktc).fold(f64::NEG_INFINITY, f64::max);
        let found = ordered_correctness(&automaton, &walk, pc, lambda, &|_| true).unwrap();
        prop_assert!((found - expected).abs() < 1e-12, "{} {}", found, expected);
    }

    /// Appendix C, except its "monotonicity", which is false as stated.
    #[test]
    fn scores_have_the_properties_of_appendix_c(automaton in sound_automaton(), run in any_run(12), beta in 0.01f64..0.99) {
        let walk = walk_of(&automaton, &run);
        let scores = PathScores::compute(&automaton, &walk, Parameters { lambda: 0.5, beta });
        let all = [scores.correctness, scores.pc_ktc, Some(scores.prefix_criticality), Some(scores.harm_rate),
            scores.efficiency, scores.pc_hlr];
        prop_assert!(all.iter().flatten().all(|s| (0.0..=1.0).contains(s)), "{:?}", scores);
        let path = correctness::codes(&walk);
        let is_among = |words: Vec<Vec<Symbol>>| words.iter().any(|w| word_codes(w) == path);
        prop_assert_eq!(scores.correctness == Some(1.0), is_among(golden_paths(&automaton)));
        prop_assert_eq!(scores.pc_hlr == Some(1.0), is_among(hlr_candidates(&automaton, &walk)));
        let harm_free = walk.harmful_count() == 0;
        prop_assert_eq!(scores.prefix_criticality == 1.0, harm_free);
        prop_assert_eq!(scores.harm_rate == 0.0, harm_free);
        prop_assert_eq!(scores.pc_hlr == Some(1.0), harm_free && scores.is_accepting);
        if !walk.condensed().is_empty() && walk.condensed().iter().all(|k| k.is_harmful) {
            prop_assert!(scores.prefix_criticality.abs() < 1e-12);
        }
        // An earlier harmful call has a higher weight.
        let harmful_at = |index: usize| -> Vec<CondensedStep> {
            let step = |i| CondensedStep { token: PathToken::Foreign(0), is_harmful: i == index, before: automaton.initial() };
            (0..6).map(step).collect()
        };
        prop_assert!(prefix_criticality(&harmful_at(1), beta) < prefix_criticality(&harmful_at(2), beta));
    }
}

#[test]
fn long_paths_have_the_exact_nearest_reference() {
    let letters: Vec<String> = (0..400).map(|i| format!("s{i}")).collect();
    let mut draft = Draft::new(letters.clone());
    for (i, letter) in letters.iter().enumerate() {
        draft = draft.state(&i.to_string(), false).edge(&[letter], &(i + 1).to_string());
    }
    let chain = check(&draft.state("400", true)).unwrap().automaton;
    let symbol = |i: usize| PathToken::Symbol(chain.symbol(&letters[i]).unwrap());
    for (skip, extra) in [(0, 0), (3, 5), (60, 10), (399, 1), (0, 300)] {
        let mut walk = Walk::new(&chain);
        (0..extra).for_each(|i| _ = walk.push(&chain, PathToken::Foreign(i)));
        (skip..400).for_each(|i| _ = walk.push(&chain, symbol(i)));
        let golden: Vec<distance::Code> = (0..400).collect();
        let path = correctness::codes(&walk);
        let expected =
            1.0 - distance::normalized(distance::levenshtein(&path, &golden), path.len(), golden.len());
        assert_eq!(path_correctness(&chain, &walk, &|_| true), Some(expected), "{skip} {extra}");
    }
}

#[test]
fn exponentially_many_golden_paths_are_not_enumerated() {
    // 2^60 golden paths: two ways at each of sixty steps.
    let mut draft = Draft::new((0..60).flat_map(|i| [format!("a{i}"), format!("b{i}")]));
    for i in 0..60 {
        let (a, b) = (format!("a{i}"), format!("b{i}"));
        draft = draft.state(&i.to_string(), false).edge(&[&a, &b], &(i + 1).to_string());
    }
    let automaton = check(&draft.state("60", true)).unwrap().automaton;
    assert_eq!(automaton.golden_path_count(), 1 << 60);
    let mut walk = Walk::new(&automaton);
    for i in 0..60 {
        let symbol = automaton.symbol(&format!("{}{i}", if i % 3 == 0 { "a" } else { "b" })).unwrap();
        walk.push(&automaton, PathToken::Symbol(symbol));
        walk.push(&automaton, PathToken::Foreign(i));
    }
    let scores = PathScores::compute(&automaton, &walk, Parameters::default());
    assert_near(scores.correctness, 1.0 - 120.0 / 240.0);
    // The golden path in the order of the run is visited first, and none can be better.
    assert_near(scores.pc_ktc, 0.75);
    assert_near(scores.pc_hlr, 1.0 - 120.0 / 240.0);
}

#[test]
fn weighted_mean_and_dominance_are_computed() {
    let task = tree_automaton(&["AB"]);
    let (good, poor, idle) = (scores(&task, "AB", 0.5), scores(&task, "XAB", 0.5), scores(&task, "", 0.5));
    assert!(good.dominates(&poor) && !poor.dominates(&good) && !good.dominates(&good));
    assert!(!idle.dominates(&poor) && !poor.dominates(&idle));
    let weights = PathWeights { correctness: 3.0, efficiency: 1.0, ..PathWeights::default() };
    assert_eq!(good.weighted(&weights), Some(1.0));
    assert_eq!(idle.weighted(&weights), Some(0.0));
    assert_eq!(idle.weighted(&PathWeights { efficiency: 1.0, ..PathWeights::default() }), None);
    assert!(PathWeights::default().problem().is_some() && weights.problem().is_none());
}
