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

use std::ops::Range;

use foldhash::HashSet;

use super::placeholder::{self, Placeholder};
use super::schema::{Fault, Plan, PlanIssue, PlanStep};
use super::tools::{MIN_NAME_BYTES, MentionFinder, Toolbox, is_word_char};
use super::words::PromptWords;
use crate::measure::language::{Language, WordClass};
use crate::measure::vocabulary::{self, WordMeaning};

/// Maximum number of steps in one range: "steps 1-4".
const MAX_RANGE: usize = 20;

/// Verbs of steps that may be repeated after a change.
const REPEATABLE_VERBS: [&str; 14] = [
    "build", "check", "commit", "compile", "confirm", "deploy", "lint", "review", "run", "save", "test",
    "validate", "verify", "wait",
];

// The numbers after the word for steps: "3", "1, 2 and 4", "2-4".
regex!(NUMBERS, r"(?i)^\s*#?(\d{1,3}(?:\s*(?:,\s*and|[,、，]|and|[&和と]|or|to|-|–)\s*#?\d{1,3}\b)*)");
// Within a reference to steps: a number, or the sign of a range.
regex!(STEP_NUMBER, r"(?i)\d{1,3}|\bto\b|-|–");
/// Maximum words between the word for a result and that for its step: "the list of sold books from step 3".
const MAX_BETWEEN: usize = 4;
/// English prepositions between a result and its step, besides "of".
const FROM: [&str; 3] = ["from", "in", "by"];
/// Signs after which a word for the order of steps begins the next step.
const CLAUSE_ENDS: [char; 12] = ['.', ',', ';', ':', '!', '?', '\n', '。', '，', '；', '：', '、'];
/// English words for the speakers before a word for the order of steps: "I will first read", "let us then sort".
const SPEAKERS: [&str; 8] = ["i", "we", "i'll", "we'll", "let's", "let’s", "us", "me"];

/// A plan of steps in prose, with their references as dependencies.
pub(crate) fn from_steps(steps: Vec<String>) -> Plan {
    let step = |(n, prompt)| PlanStep { number: n + 1, prompt, ..PlanStep::default() };
    let mut plan = Plan { steps: steps.into_iter().enumerate().map(step).collect(), ..Plan::default() };
    resolve_references(&mut plan);
    plan
}

/// The steps of prose without a list: clauses after "first", "then" and similar words; at least two.
pub(crate) fn ordered_steps(text: &str) -> Vec<String> {
    let order = vocabulary::find(text, &[WordMeaning::StepOrder]);
    let language = if order.is_empty() { None } else { Language::for_instructions(text) };
    let marks = order.into_iter().filter_map(|(_, at)| Some(clause_start(text, at.start, language)?..at.end));
    let marks: Vec<Range<usize>> = marks.collect();
    let ends = marks.iter().skip(1).map(|next| next.start).chain([text.len()]);
    let clauses = marks.iter().zip(ends).filter_map(|(mark, end)| text.get(mark.end..end));
    let steps: Vec<String> = clauses
        .map(|step| step.trim_matches(|c: char| c.is_whitespace() || CLAUSE_ENDS.contains(&c)).to_owned())
        .filter(|step| !step.is_empty())
        .collect();
    if steps.len() < 2 { Vec::new() } else { steps }
}

/// The start of the clause that the word at `at` begins, with the conjunctions and pronouns before the word; `None` if
/// it begins no clause.
fn clause_start(text: &str, at: usize, language: Option<Language>) -> Option<usize> {
    let before = text.get(..at)?.trim_end_matches([' ', '*', '_']);
    let (mut start, mut is_linked) = (before.len(), before.is_empty() || before.ends_with(CLAUSE_ENDS));
    let words = before.rsplit(|c: char| c.is_whitespace() || CLAUSE_ENDS.contains(&c));
    for word in words.take_while(|word| !word.is_empty()) {
        let lower = word.to_lowercase();
        let is_conjunction = |language: Language| language.classes(&lower).has(WordClass::Conjunction);
        let is_link = SPEAKERS.contains(&lower.as_str()) || language.is_some_and(is_conjunction);
        if !is_link && lower != "will" && lower != "let" {
            break;
        }
        (start, is_linked) = (word.as_ptr().addr() - text.as_ptr().addr(), is_linked || is_link);
    }
    is_linked.then_some(start)
}

/// Sets the `depends_on` of each step to the earlier steps that it mentions.
pub(crate) fn resolve_references(plan: &mut Plan) {
    for step in &mut plan.steps {
        let mut numbers = referenced_steps(&step.prompt);
        numbers.extend(placeholder::all(&step.prompt).into_iter().filter_map(|p| match p {
            Placeholder::Output(number) => Some(number),
            _ => None,
        }));
        if mentions_previous_step(&step.prompt) {
            numbers.push(step.number.saturating_sub(1));
        }
        numbers.retain(|n| (1..step.number).contains(n));
        numbers.sort_unstable();
        numbers.dedup();
        step.depends_on = numbers;
    }
}

/// Whether a text refers to the step before it: "the previous step", "the list of the last step".
fn mentions_previous_step(text: &str) -> bool {
    let words = vocabulary::find(text, &[WordMeaning::Previous, WordMeaning::Step]);
    let places_with = |meaning| words.iter().filter(move |(found, _)| *found == meaning).map(|(_, at)| at);
    // The found word may be only the beginning of the word: "vorig" of "vorigen".
    let is_gap = |from: usize, to: usize| {
        let gap = text.get(from..to).map(|gap| gap.trim_start_matches(char::is_alphabetic));
        gap.is_some_and(|gap| gap.trim().is_empty())
    };
    places_with(WordMeaning::Previous).any(|previous| {
        places_with(WordMeaning::Step).any(|step| {
            let is_part = previous.start <= step.start && step.end <= previous.end;
            is_part || is_gap(previous.end, step.start) || is_gap(step.end, previous.start)
        })
    })
}

/// The numbers after each word for a step, with the byte position of the word.
fn step_numbers(text: &str) -> impl Iterator<Item = (usize, &str)> {
    vocabulary::find(text, &[WordMeaning::Step])
        .into_iter()
        .filter_map(move |(_, at)| Some((at.start, NUMBERS.captures(text.get(at.end..)?)?.get(1)?.as_str())))
}

/// The numbers of the steps that `text` mentions.
fn referenced_steps(text: &str) -> Vec<usize> {
    let mut out = Vec::new();
    for (_, numbers) in step_numbers(text) {
        let (mut last, mut is_range) = (None, false);
        for part in STEP_NUMBER.find_iter(numbers) {
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

/// The first number of each step of which `text` uses a result: "the list from step 3", "步骤3的结果".
fn used_results(text: &str) -> impl Iterator<Item = usize> {
    let results = vocabulary::find(text, &[WordMeaning::StepResult]);
    let is_used = move |start: usize, numbers: &str| {
        let end = numbers.as_ptr().addr() + numbers.len() - text.as_ptr().addr();
        let follows = text
            .get(end..)
            .and_then(|rest| rest.strip_prefix(['的', 'の']))
            .map(|rest| text.len() - rest.len());
        results.iter().any(|(_, result)| {
            let between = text.get(result.end..start).unwrap_or_default();
            let mut words = between.split_whitespace();
            let preposition = words.next_back().map(str::to_lowercase).unwrap_or_default();
            let is_of = FROM.contains(&preposition.as_str())
                || vocabulary::has_meaning(&preposition, WordMeaning::Of);
            let is_near = words.count() < MAX_BETWEEN && !between.contains(CLAUSE_ENDS);
            is_of && is_near || follows == Some(result.start)
        })
    };
    let used = step_numbers(text).filter(move |(start, numbers)| is_used(*start, numbers));
    used.filter_map(|(_, numbers)| STEP_NUMBER.find(numbers)?.as_str().parse().ok())
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
        for number in used_results(&step.prompt) {
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
        for (text, steps) in [
            (
                "Zuerst lese ich beide Listen, danach vergleiche ich sie.",
                ["lese ich beide Listen", "vergleiche ich sie"],
            ),
            (
                "D'abord, chercher le vol. Ensuite, réserver la place.",
                ["chercher le vol", "réserver la place"],
            ),
            ("Primero busco el tren y luego reservo el asiento.", ["busco el tren", "reservo el asiento"]),
            ("首先查询订单，然后申请退款。", ["查询订单", "申请退款"]),
            ("まず注文を調べます。次に返金します。", ["注文を調べます", "返金します"]),
        ] {
            assert_eq!(ordered_steps(text), steps, "{text}");
        }
        for text in [
            "Wir prüfen das dann gemeinsam und schließlich noch einmal.",
            "Elle a réservé puis annulé le vol.",
        ] {
            assert!(ordered_steps(text).is_empty(), "{text}: {:?}", ordered_steps(text));
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
        for text in [
            "nach Schritt 2",
            "avec la liste de l'étape 2",
            "el resultado del paso 2",
            "步骤2",
            "ステップ2の一覧",
        ] {
            assert_eq!(referenced_steps(text), [2], "{text}");
        }
        for text in ["das Ergebnis des vorigen Schritts", "le résultat de l'étape précédente", "上一步的结果"]
        {
            assert!(mentions_previous_step(text), "{text}");
        }
        for text in [
            "the previous owner of step ladders",
            "der vorige Mieter und drei Schritte",
            "le précédent maire",
        ] {
            assert!(!mentions_previous_step(text), "{text}");
        }
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
        for text in ["Sortiere die Liste von Schritt 4", "Suma los resultados del paso 4", "合计步骤4的数据"]
        {
            assert_eq!(faults(&[text]), [(Some(1), Fault::UnknownStep)], "{text}");
        }
        for text in
            ["Lies die Liste vor Schritt 4", "Prépare les données avant l'étape 4", "准备好数据再做步骤4"]
        {
            assert_eq!(faults(&[text]), [], "{text}");
        }
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
