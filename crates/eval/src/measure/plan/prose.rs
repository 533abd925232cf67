//! Plans in prose: todo lists, numbered or bulleted prose, and prose in which "first" and "then" give
//! the order (004, section 2).
//!
//! In: steps in prose. Out: a [`Plan`] with the references between its steps and the tools that
//! they name, and the issues of both.
//!
//! A plan in prose is measured as follows:
//! - format is not measured, since prose has no prescribed format;
//! - dependencies, hops and width are measured if a step refers to another one ("with the list of step 2").
//!   Without references the dependencies are unknown: only the order of the steps is given;
//! - redundancy is measured only by steps that repeat an earlier one: detecting unused steps requires dependencies, and
//!   detecting repeated details requires calls;
//! - alignment and executability (by a judge or the tools' limits) are measured over the steps that name a tool;
//!   tool-usage completeness and rating against a reference, the rating only if the reference is prose, too;
//! - adherence to the query is measured by a judge, as for structured plans.

use foldhash::HashSet;

use super::placeholder::{self, Placeholder};
use super::schema::{Fault, Plan, PlanIssue, PlanStep};
use super::tools::{MIN_NAME_BYTES, MentionFinder, Toolbox, is_word_char};
use super::words::PromptWords;

/// Maximum number of steps in one range: "steps 1-4".
const MAX_RANGE: usize = 20;

/// Verbs of steps that may be repeated after a change.
const REPEATABLE_VERBS: [&str; 14] = [
    "build", "check", "commit", "compile", "confirm", "deploy", "lint", "review", "run", "save", "test",
    "validate", "verify", "wait",
];

// "step 3", "steps 1, 2 and 4", "steps 2-4".
regex!(
    STEP_REFERENCE,
    r"(?i)\bsteps?\s+#?(\d{1,3}(?:\s*(?:,\s*and|,|and|&|or|to|-|–)\s*(?:step\s+)?#?\d{1,3}\b)*)"
);
// Within a reference to steps: a number, or the sign of a range.
regex!(STEP_NUMBER, r"(?i)\d{1,3}|\bto\b|-|–");
regex!(PREVIOUS_STEP, r"(?i)\b(previous|preceding|prior|last)\s+step('s)?\b");
// A result of another step, by its number.
regex!(
    RESULT_OF,
    r"(?i)\b(?:results?|outputs?|findings|answers?|data|information|lists?|values?)\s+(?:\w+\s+){0,3}?(?:of|from|in|by)\s+step\s+#?(\d{1,3})\b"
);
// Words that begin the next step in a text of several clauses.
regex!(
    SEQUENCE_WORD,
    r"(?i)(?:^|[.;:!?\n]\s*|,\s*|\band\s+|\b(?:i|we)(?:['’]ll|\s+will)\s+|\blet(?:['’]s|\s+(?:me|us))\s+)(?:and\s+)?(?:(?:i|we)(?:['’]ll|\s+will)\s+)?(?:first(?:ly)?|second(?:ly)?|third(?:ly)?|then|next|after\s+that|afterwards|finally|lastly)\b[,:]?\s+"
);

/// A plan of steps in prose, with their references as dependencies.
pub(crate) fn from_steps(steps: Vec<String>) -> Plan {
    let step = |(n, prompt)| PlanStep { number: n + 1, prompt, ..PlanStep::default() };
    let mut plan = Plan { steps: steps.into_iter().enumerate().map(step).collect(), ..Plan::default() };
    resolve_references(&mut plan);
    plan
}

/// The steps of prose without a list: clauses after "first", "then" and similar words; at least two.
pub(crate) fn ordered_steps(text: &str) -> Vec<String> {
    let marks: Vec<regex::Match<'_>> = SEQUENCE_WORD.find_iter(text).collect();
    let ends = marks.iter().skip(1).map(|next| next.start()).chain([text.len()]);
    let clauses = marks.iter().zip(ends).filter_map(|(mark, end)| text.get(mark.end()..end));
    let steps: Vec<String> = clauses
        .map(|step| step.trim().trim_end_matches(['.', ',', ';', ' ']).to_owned())
        .filter(|step| !step.is_empty())
        .collect();
    if steps.len() < 2 { Vec::new() } else { steps }
}

/// Sets the `depends_on` of each step to the earlier steps that it mentions.
pub(crate) fn resolve_references(plan: &mut Plan) {
    for step in &mut plan.steps {
        let mut numbers = referenced_steps(&step.prompt);
        numbers.extend(placeholder::all(&step.prompt).into_iter().filter_map(|p| match p {
            Placeholder::Output(number) => Some(number),
            _ => None,
        }));
        if PREVIOUS_STEP.is_match(&step.prompt) {
            numbers.push(step.number.saturating_sub(1));
        }
        numbers.retain(|n| (1..step.number).contains(n));
        numbers.sort_unstable();
        numbers.dedup();
        step.depends_on = numbers;
    }
}

/// The numbers of the steps that `text` mentions.
fn referenced_steps(text: &str) -> Vec<usize> {
    let mut out = Vec::new();
    for numbers in STEP_REFERENCE.captures_iter(text).filter_map(|c| c.get(1)) {
        let (mut last, mut is_range) = (None, false);
        for part in STEP_NUMBER.find_iter(numbers.as_str()) {
            let Ok(number) = part.as_str().parse::<usize>() else {
                is_range = true;
                continue;
            };
            if let Some(from) = last.filter(|_| is_range) {
                out.extend((from + 1..number).take(MAX_RANGE));
            }
            out.push(number);
            (last, is_range) = (Some(number), false);
        }
    }
    out
}

/// Whether any step refers to another one.
pub(crate) fn has_references(plan: &Plan) -> bool {
    plan.steps.iter().any(|step| !step.depends_on.is_empty()) || !reference_issues(plan).is_empty()
}

/// Sets the tool of each step that names exactly one tool; of names that contain each other, the longest one.
pub(crate) fn assign_tools(plan: &mut Plan, tools: &Toolbox) {
    let names: Vec<&str> = tools.iter().map(|(name, _)| name).collect();
    let finder = MentionFinder::new(names.iter().copied());
    let short_names: Vec<&str> = names.iter().copied().filter(|name| is_short_name(name)).collect();
    for step in plan.steps.iter_mut().filter(|step| step.tool.is_none()) {
        let mut named: Vec<&str> = finder.mentioned(&step.prompt).into_iter().map(|i| names[i]).collect();
        if !short_names.is_empty() {
            let words: HashSet<&str> = step.prompt.split(|c| !is_word_char(c)).collect();
            named.extend(short_names.iter().filter(|name| words.contains(*name)));
        }
        named.sort_by_key(|name| std::cmp::Reverse(name.len()));
        if let Some((longest, others)) = named.split_first()
            && others.iter().all(|name| longest.to_lowercase().contains(&name.to_lowercase()))
        {
            step.tool = Some((*longest).to_owned());
        }
    }
}

/// Whether a short name is recognised in prose: "read" may be a verb, whereas "SQL" and "T2S" are names.
fn is_short_name(name: &str) -> bool {
    name.len() < MIN_NAME_BYTES && name.contains(|c: char| c.is_uppercase() || c.is_ascii_digit())
}

/// The issues of a plan in prose.
pub(crate) fn issues(plan: &Plan) -> Vec<PlanIssue> {
    [reference_issues(plan), repeated_steps(plan)].concat()
}

/// References to results that do not exist yet when the step runs.
fn reference_issues(plan: &Plan) -> Vec<PlanIssue> {
    let mut out = Vec::new();
    for step in &plan.steps {
        let used = RESULT_OF.captures_iter(&step.prompt).filter_map(|c| c[1].parse::<usize>().ok());
        for number in used {
            let (fault, message) = if plan.position(number).is_none() {
                (Fault::UnknownStep, format!("uses the result of step {number}, which does not exist"))
            } else if number == step.number {
                (Fault::NotEarlier, "uses its own result".to_owned())
            } else if number > step.number {
                (Fault::NotEarlier, format!("uses the result of the later step {number}"))
            } else {
                continue;
            };
            out.push(PlanIssue::for_step(step.number, fault, message));
        }
    }
    out
}

/// Steps that repeat an earlier step. A check may be repeated, but not directly after itself.
fn repeated_steps(plan: &Plan) -> Vec<PlanIssue> {
    let words = PromptWords::for_steps(plan);
    let mut out = Vec::new();
    for (position, (step, step_words)) in plan.steps.iter().zip(&words).enumerate() {
        let lower = step.prompt.to_lowercase();
        let is_check = lower.split(|c: char| !c.is_alphanumeric()).any(|word| {
            REPEATABLE_VERBS.iter().any(|check| word.strip_prefix(check).is_some_and(|rest| rest.len() < 4))
        });
        let start = if is_check { position.saturating_sub(1) } else { 0 };
        if let Some(offset) =
            words[start..position].iter().position(|other| step_words.similarity(other) >= 1.0)
        {
            let number = plan.steps[start + offset].number;
            out.push(PlanIssue::for_step(
                step.number,
                Fault::RepeatedDetail,
                format!("repeats step {number}"),
            ));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::plan::parse::from_recognised;
    use crate::measure::plan::tools::ToolSpec;
    use crate::recognise::{self, Text};
    use proptest::prelude::*;

    fn plan(steps: &[&str]) -> Plan {
        from_steps(steps.iter().map(|step| (*step).to_owned()).collect())
    }

    fn faults(steps: &[&str]) -> Vec<(Option<usize>, Fault)> {
        issues(&plan(steps)).into_iter().map(|issue| (issue.step, issue.fault)).collect()
    }

    #[test]
    fn clauses_after_sequence_words_are_steps() {
        for text in [
            "First, look up both heights. Then subtract them. Finally write the answer down.",
            "To answer this I will first look up both heights, then subtract them, and finally write the answer down.",
            "First look up both heights; next subtract them; lastly, write the answer down",
        ] {
            assert_eq!(
                ordered_steps(text),
                ["look up both heights", "subtract them", "write the answer down"],
                "{text}"
            );
        }
        for text in ["I would rather not plan.", "Then it rained.", "Read the next page, first of all."] {
            assert!(ordered_steps(text).is_empty(), "{text}: {:?}", ordered_steps(text));
        }
    }

    #[test]
    fn steps_depend_on_the_steps_that_they_mention() {
        let plan = plan(&[
            "Find Elbrus",
            "Find Mont Blanc",
            "Compare steps 1 and 2",
            "Check the result of the previous step",
            "Sum up steps 1-3, and step #4",
        ]);
        let depends: Vec<&[usize]> = plan.steps.iter().map(|s| s.depends_on.as_slice()).collect();
        assert_eq!(depends, [&[][..], &[], &[1, 2], &[3], &[1, 2, 3, 4]]);
        assert!(has_references(&plan) && !has_references(&super::tests::plan(&["Search", "Answer"])));
        assert_eq!(referenced_steps("steps 2 to 4, step 7"), [2, 3, 4, 7]);
    }

    #[test]
    fn use_of_a_missing_result_is_an_issue_and_a_mention_is_not() {
        let found = faults(&[
            "Sort the list from step 2",
            "Fetch it; if empty, go to step 3",
            "Use results of step 9",
        ]);
        assert_eq!(found, [(Some(1), Fault::NotEarlier), (Some(3), Fault::UnknownStep)]);
        assert_eq!(
            faults(&[
                "Search",
                "Add the results from step 1",
                "Go back to step 2 until step 7 of the manual"
            ]),
            []
        );
        assert_eq!(faults(&["Take the output of step 1"]), [(Some(1), Fault::NotEarlier)]);
    }

    #[test]
    fn repeated_step_is_an_issue_unless_it_checks_a_change() {
        let twice = ["Look up France in 2020", "Look up France in 2021", "look up France, in 2020."];
        assert_eq!(faults(&twice), [(Some(3), Fault::RepeatedDetail)]);
        assert_eq!(faults(&["Run the tests", "Mend what fails", "Run the tests"]), []);
        assert_eq!(faults(&["Run the tests", "Run the tests"]), [(Some(2), Fault::RepeatedDetail)]);
    }

    #[test]
    fn step_gets_the_one_tool_that_it_names() {
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
        assign_tools(&mut plan, &tools);
        let named: Vec<Option<&str>> = plan.steps.iter().map(|s| s.tool.as_deref()).collect();
        assert_eq!(named, [Some("web_search"), Some("SQL"), None, None, None]);
        assert_eq!(plan.steps[1].instruction(), "Use SQL to count");
    }

    #[test]
    fn recognised_plan_has_at_least_one_step() {
        let recorded_plan = |text: &str, steps: &[&str]| recognise::RecordedPlan {
            text: text.into(),
            replan: false,
            steps: steps.iter().map(|step| Text::from(*step)).collect(),
        };
        let todo = recorded_plan(
            r#"{"todos": [{"activeForm": "Searching"}, {"activeForm": "Reading"}]}"#,
            &["Searching", "Reading"],
        );
        assert_eq!(from_recognised(&todo).steps.len(), 2);
        let whole = from_recognised(&recorded_plan("I shall look it up.", &[]));
        assert_eq!((whole.steps.len(), whole.is_structured), (1, false));
        let broken = r#"{"1": {"step": "T2S([], "depends_on": [}"#;
        assert!(from_recognised(&recorded_plan(broken, &["T2S"])).is_unreadable());
    }

    proptest! {
        #[test]
        fn any_prose_is_parsed_without_panic(text in "([a-z ,.;:\\n–-]|step |steps |first |then |\\d){0,60}") {
            let mut plan = from_steps(ordered_steps(&text));
            plan.steps.extend(from_steps(vec![text.clone(); 3]).steps);
            let _ = (issues(&plan), referenced_steps(&text), from_recognised(&recognise::RecordedPlan { text: text.as_str().into(), replan: false, steps: Vec::new() }));
        }
    }
}
