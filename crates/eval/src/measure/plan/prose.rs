//! Plans in words: todo lists, numbered or bulleted prose, and prose that only says "first" and
//! "then" (004, section 2; conventions, section 4).
//!
//! In: a text, or a plan that `recognise` found. Out: its steps in the one schema, what they say of
//! each other, the tools that they name, and what can be found wrong with that.
//!
//! A list of words is measured by what it has, and nothing is read into it:
//! - no format: nothing prescribes how words are to be laid out, so that none can break it;
//! - dependencies, hops and width where a step speaks of another one ("with the list of step 2").
//!   That no step does, says nothing: who writes words leaves to their order what hangs on what;
//! - redundancy as far as a step says again what one before has said. Steps that nothing rests on
//!   cannot be told without dependencies, and details repeated at a tool's cost not without calls;
//! - alignment and executability (by a judge or the tools' limits) over the steps that name a tool,
//!   tool-usage completeness and rating beside a reference, the rating only if that is words too;
//! - adherence to the query, which a judge tells of words as well as of calls.

use super::execution::names_tool;
use super::placeholder::{self, Placeholder};
use super::read;
use super::schema::{Fault, Issue, Plan, Step};
use super::tools::Toolbox;
use super::words::Words;
use crate::recognise;

/// Names shorter than this are common words ("ask", "read") unless they are written as names are.
const COMMON_LENGTH: usize = 5;
/// Steps that one mention may stand for: "steps 1-4".
const MAX_RANGE: usize = 20;

/// What is done again after a change, for the same reason as before.
const CHECKS: [&str; 14] = [
    "build", "check", "commit", "compile", "confirm", "deploy", "lint", "review", "run", "save", "test",
    "validate", "verify", "wait",
];

// "step 3", "steps 1, 2 and 4", "steps 2-4".
regex!(SPOKEN, r"(?i)\bsteps?\s+#?(\d{1,3}(?:\s*(?:,\s*and|,|and|&|or|to|-|–)\s*(?:step\s+)?#?\d{1,3}\b)*)");
// Within these: a number, or a word for all between two.
regex!(NUMBERS, r"(?i)\d{1,3}|\bto\b|-|–");
regex!(PREVIOUS, r"(?i)\b(previous|preceding|prior|last)\s+step('s)?\b");
// What a step takes from another one, by that one's number.
regex!(
    RESULT_OF,
    r"(?i)\b(?:results?|outputs?|findings|answers?|data|information|lists?|values?)\s+(?:\w+\s+){0,3}?(?:of|from|in|by)\s+step\s+#?(\d{1,3})\b"
);
// Where a text of several clauses goes on to its next step.
regex!(
    ORDER,
    r"(?i)(?:^|[.;:!?\n]\s*|,\s*|\band\s+|\b(?:i|we)(?:['’]ll|\s+will)\s+|\blet(?:['’]s|\s+(?:me|us))\s+)(?:and\s+)?(?:(?:i|we)(?:['’]ll|\s+will)\s+)?(?:first(?:ly)?|second(?:ly)?|third(?:ly)?|then|next|after\s+that|afterwards|finally|lastly)\b[,:]?\s+"
);

/// A plan that `recognise` found, in the one schema. Where no steps can be told apart, the plan is
/// one step: what it says, whole.
pub fn recognised(written: &recognise::Plan) -> Plan {
    let plan = read::read(&written.text);
    // Text that only looks structured and cannot be followed is a broken plan, and stays one.
    if !plan.is_unreadable() || written.text.contains("depends_on") {
        return plan;
    }
    // `recognise` knows the words of more todo tools than the reader of files does.
    let steps = written.steps.iter().map(|step| step.to_string()).collect::<Vec<_>>();
    let steps = if steps.is_empty() { vec![written.text.to_string()] } else { steps };
    of_steps(steps)
}

/// Steps in words, in order, with what they say of each other.
pub fn of_steps(steps: Vec<String>) -> Plan {
    let step = |(n, prompt)| Step { number: n + 1, prompt, ..Step::default() };
    let mut plan = Plan { steps: steps.into_iter().enumerate().map(step).collect(), ..Plan::default() };
    refer(&mut plan);
    plan
}

/// The steps of prose without a list: what follows "first", "then" and the like, two at least.
pub fn in_order(text: &str) -> Vec<String> {
    let marks: Vec<regex::Match<'_>> = ORDER.find_iter(text).collect();
    let ends = marks.iter().skip(1).map(|next| next.start()).chain([text.len()]);
    let between = marks.iter().zip(ends).filter_map(|(mark, end)| text.get(mark.end()..end));
    let steps: Vec<String> = between
        .map(|step| step.trim().trim_end_matches(['.', ',', ';', ' ']).to_owned())
        .filter(|step| !step.is_empty())
        .collect();
    if steps.len() < 2 { Vec::new() } else { steps }
}

/// In a plan without `depends_on`: which earlier steps a step speaks of.
pub fn refer(plan: &mut Plan) {
    for step in &mut plan.steps {
        let mut numbers = spoken(&step.prompt);
        numbers.extend(placeholder::all(&step.prompt).into_iter().filter_map(|p| match p {
            Placeholder::Output(number) => Some(number),
            _ => None,
        }));
        if PREVIOUS.is_match(&step.prompt) {
            numbers.push(step.number.saturating_sub(1));
        }
        numbers.retain(|n| (1..step.number).contains(n));
        numbers.sort_unstable();
        numbers.dedup();
        step.depends_on = numbers;
    }
}

/// The numbers of steps that are spoken of.
fn spoken(text: &str) -> Vec<usize> {
    let mut out = Vec::new();
    for found in SPOKEN.captures_iter(text).filter_map(|c| c.get(1)) {
        let (mut last, mut to) = (None, false);
        for part in NUMBERS.find_iter(found.as_str()) {
            let Ok(number) = part.as_str().parse::<usize>() else {
                to = true;
                continue;
            };
            if let Some(from) = last.filter(|_| to) {
                out.extend((from + 1..number).take(MAX_RANGE));
            }
            out.push(number);
            (last, to) = (Some(number), false);
        }
    }
    out
}

/// Whether any step speaks of another one.
pub fn is_wired(plan: &Plan) -> bool {
    plan.steps.iter().any(|step| !step.depends_on.is_empty()) || !wiring(plan).is_empty()
}

/// Writes down which tool each step names, where it is one: the longest of those whose names are
/// part of one another.
pub fn name_tools(plan: &mut Plan, tools: &Toolbox) {
    for step in plan.steps.iter_mut().filter(|step| step.tool.is_none()) {
        let mut named: Vec<&str> =
            tools.iter().map(|(name, _)| name).filter(|name| names(&step.prompt, name)).collect();
        named.sort_by_key(|name| std::cmp::Reverse(name.len()));
        if let Some((longest, others)) = named.split_first()
            && others.iter().all(|name| longest.to_lowercase().contains(&name.to_lowercase()))
        {
            step.tool = Some((*longest).to_owned());
        }
    }
}

fn names(step: &str, tool: &str) -> bool {
    if tool.len() >= COMMON_LENGTH {
        return names_tool(step, tool);
    }
    // "SQL" and "T2S" as they are written; "read" is a verb.
    tool.contains(|c: char| c.is_uppercase() || c.is_ascii_digit())
        && step.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|word| word == tool)
}

/// What is wrong with a plan in words.
pub fn issues(plan: &Plan) -> Vec<Issue> {
    let mut out = wiring(plan);
    out.extend(repeated(plan));
    out
}

/// Results that are not there yet when a step takes them.
fn wiring(plan: &Plan) -> Vec<Issue> {
    let mut out = Vec::new();
    for step in &plan.steps {
        let taken = RESULT_OF.captures_iter(&step.prompt).filter_map(|c| c.get(1));
        for number in taken.filter_map(|number| number.as_str().parse::<usize>().ok()) {
            let (fault, said) = match plan.position(number) {
                None => (Fault::UnknownStep, format!("takes what step {number} gives, which there is not")),
                Some(_) if number == step.number => {
                    (Fault::NotBackwards, "takes what it gives itself".into())
                }
                Some(_) if number > step.number => {
                    (Fault::NotBackwards, format!("takes what the later step {number} gives"))
                }
                Some(_) => continue,
            };
            out.push(Issue::of(step.number, fault, said));
        }
    }
    out
}

/// Steps that say what an earlier one has said. A check is made again after a change; said twice in
/// a row it is said twice.
fn repeated(plan: &Plan) -> Vec<Issue> {
    let words: Vec<Words> = plan.steps.iter().map(|step| Words::of(&step.prompt)).collect();
    let mut out = Vec::new();
    for (at, (step, own)) in plan.steps.iter().zip(&words).enumerate() {
        let lower = step.prompt.to_lowercase();
        let is_check = lower.split(|c: char| !c.is_alphanumeric()).any(|word| {
            CHECKS.iter().any(|check| word.strip_prefix(check).is_some_and(|rest| rest.len() < 4))
        });
        let from = if is_check { at.saturating_sub(1) } else { 0 };
        let earlier = words.get(from..at).unwrap_or_default().iter();
        if let Some(n) = earlier.clone().position(|other| own.similarity(other) >= 1.0) {
            let number = plan.steps.get(from + n).map_or(0, |step| step.number);
            out.push(Issue::of(
                step.number,
                Fault::RepeatedDetail,
                format!("says again what step {number} says"),
            ));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::plan::tools::ToolSpec;
    use crate::recognise::Text;
    use proptest::prelude::*;

    fn plan(steps: &[&str]) -> Plan {
        of_steps(steps.iter().map(|step| (*step).to_owned()).collect())
    }

    fn faults(steps: &[&str]) -> Vec<(Option<usize>, Fault)> {
        issues(&plan(steps)).into_iter().map(|issue| (issue.step, issue.fault)).collect()
    }

    #[test]
    fn prose_without_a_list_has_steps_where_it_says_their_order() {
        for text in [
            "First, look up both heights. Then subtract them. Finally write the answer down.",
            "To answer this I will first look up both heights, then subtract them, and finally write the answer down.",
            "First look up both heights; next subtract them; lastly, write the answer down",
        ] {
            assert_eq!(
                in_order(text),
                ["look up both heights", "subtract them", "write the answer down"],
                "{text}"
            );
        }
        for text in ["I would rather not plan.", "Then it rained.", "Read the next page, first of all."] {
            assert!(in_order(text).is_empty(), "{text}: {:?}", in_order(text));
        }
    }

    #[test]
    fn steps_depend_on_those_that_they_speak_of() {
        let plan = plan(&[
            "Find Elbrus",
            "Find Mont Blanc",
            "Compare steps 1 and 2",
            "Check the result of the previous step",
            "Sum up steps 1-3, and step #4",
        ]);
        let depends: Vec<&[usize]> = plan.steps.iter().map(|s| s.depends_on.as_slice()).collect();
        assert_eq!(depends, [&[][..], &[], &[1, 2], &[3], &[1, 2, 3, 4]]);
        assert!(is_wired(&plan) && !is_wired(&super::tests::plan(&["Search", "Answer"])));
        assert_eq!(spoken("steps 2 to 4, step 7"), [2, 3, 4, 7]);
    }

    #[test]
    fn results_that_are_not_there_are_told_and_mere_mentions_are_not() {
        let found = faults(&[
            "Sort the list from step 2",
            "Fetch it; if empty, go to step 3",
            "Use results of step 9",
        ]);
        assert_eq!(found, [(Some(1), Fault::NotBackwards), (Some(3), Fault::UnknownStep)]);
        assert_eq!(
            faults(&[
                "Search",
                "Add the results from step 1",
                "Go back to step 2 until step 7 of the manual"
            ]),
            []
        );
        assert_eq!(faults(&["Take the output of step 1"]), [(Some(1), Fault::NotBackwards)]);
    }

    #[test]
    fn a_step_said_twice_is_told_unless_it_checks_a_change() {
        let twice = ["Look up France in 2020", "Look up France in 2021", "look up France, in 2020."];
        assert_eq!(faults(&twice), [(Some(3), Fault::RepeatedDetail)]);
        assert_eq!(faults(&["Run the tests", "Mend what fails", "Run the tests"]), []);
        assert_eq!(faults(&["Run the tests", "Run the tests"]), [(Some(2), Fault::RepeatedDetail)]);
    }

    #[test]
    fn tools_are_named_whole_and_alone() {
        let tools =
            ["web_search", "search", "read", "SQL"].map(|name| (name.to_owned(), ToolSpec::default()));
        let tools = Toolbox::new(&tools.into_iter().collect());
        let mut plan = plan(&[
            "Do a web search for it",
            "Use SQL to count",
            "Read what came back",
            "Search with SQL",
            "Answer",
        ]);
        name_tools(&mut plan, &tools);
        let named: Vec<Option<&str>> = plan.steps.iter().map(|s| s.tool.as_deref()).collect();
        assert_eq!(named, [Some("web_search"), Some("SQL"), None, None, None]);
        assert_eq!(plan.steps[1].instruction(), "Use SQL to count");
    }

    #[test]
    fn what_was_recognised_is_read_and_at_least_one_step() {
        let written = |text: &str, steps: &[&str]| recognise::Plan {
            text: text.into(),
            replan: false,
            steps: steps.iter().map(|step| Text::from(*step)).collect(),
        };
        let todo = written(
            r#"{"todos": [{"activeForm": "Searching"}, {"activeForm": "Reading"}]}"#,
            &["Searching", "Reading"],
        );
        assert_eq!(recognised(&todo).steps.len(), 2);
        let whole = recognised(&written("I shall look it up.", &[]));
        assert_eq!((whole.steps.len(), whole.structured), (1, false));
        let broken = r#"{"1": {"step": "T2S([], "depends_on": [}"#;
        assert!(recognised(&written(broken, &["T2S"])).is_unreadable());
    }

    proptest! {
        #[test]
        fn whatever_is_written_nothing_breaks(text in "([a-z ,.;:\\n–-]|step |steps |first |then |\\d){0,60}") {
            let mut plan = of_steps(in_order(&text));
            plan.steps.extend(of_steps(vec![text.clone(); 3]).steps);
            let _ = (issues(&plan), spoken(&text), recognised(&recognise::Plan { text: text.as_str().into(), replan: false, steps: Vec::new() }));
        }
    }
}
