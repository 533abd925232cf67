//! The system prompt: role of the judge, rubric, requirements on findings. It is the same for all
//! spans of a metric, except for instructions of the operator for some agents.

use std::fmt::Write;

use super::config::{Example, Instruction};
use crate::measure::Category;
use crate::measure::table::{About, MetricSpec, Scale};

/// How content is shown.
pub(super) const RECORD: &str = include_str!("rubric/record.md");
/// How findings are given: the fields up to the quotation, the categories, and the severity.
const FINDINGS: &str = include_str!("rubric/findings.md");
pub(super) const CATEGORIES: &str = include_str!("rubric/categories.md");
const SEVERITY: &str = include_str!("rubric/severity.md");
/// The text before graded examples.
const EXAMPLES: &str = "\
# Examples

From invented runs, shortened, to show how the scale is applied. Nothing of them is part of the record: never quote \
them.";

/// The parts of a system prompt in addition to the built-in rubric.
pub(crate) struct SystemParts<'a> {
    /// Replaces the built-in rubric and its examples.
    pub rubric: Option<&'a str>,
    pub instructions: &'a [&'a Instruction],
    /// Whether the prompt contains the taxonomy.
    pub with_categories: bool,
    /// Whether the prompt contains the graded examples of the built-in rubric.
    pub with_examples: bool,
}

/// The system prompt of a metric.
pub(crate) fn system_prompt(row: &MetricSpec, parts: &SystemParts<'_>) -> String {
    let SystemParts { rubric, instructions, with_categories, with_examples } = *parts;
    let subject = match row.about {
        About::Model => "one call of a language model, a step of an AI agent's run",
        About::Tool => "one call of a tool, a step of an AI agent's run",
        About::Call => "one call of a language model or a tool, a step of an AI agent's run",
        About::Agent => "the run of one AI agent",
        _ => "the run of one AI agent, or of several together",
    };
    let mut out = format!(
        "You judge {subject}, from its recorded trace, by one criterion: {}. You are exact and sceptical, \
         and you give no credit for what the record does not show.\n\n",
        row.name
    );
    // The version comment is not part of the prompt.
    let built_in = row.rubric.map_or("", |rubric| rubric.text);
    let built_in = built_in.split_once("-->").map_or(built_in, |(_, text)| text);
    let built_in = if with_categories { built_in.to_owned() } else { without_categories(built_in) };
    let _ = writeln!(out, "{}\n", rubric.unwrap_or(&built_in).trim());
    let categories = if with_categories { CATEGORIES } else { "" };
    let _ = writeln!(out, "{}\n", [RECORD, FINDINGS, categories, SEVERITY].concat().trim());
    let built_in = row.rubric.and_then(|built_in| built_in.examples);
    if let Some(examples) = built_in.filter(|_| with_examples && rubric.is_none()) {
        let _ = writeln!(out, "{EXAMPLES}\n\n{}\n", examples.trim());
    }
    if !instructions.is_empty() {
        out.push_str(&render_instructions(instructions));
    }
    out.push_str(&answer_instructions(row.scale));
    out
}

/// The operator's instructions about an agent, with examples.
pub(super) fn render_instructions(instructions: &[&Instruction]) -> String {
    let mut out = String::from("# What to know about this agent\n\n");
    for instruction in instructions {
        if !instruction.text.trim().is_empty() {
            let _ = writeln!(out, "{}\n", instruction.text.trim());
        }
        for example in &instruction.examples {
            out.push_str(&render_example(example));
        }
    }
    out
}

/// The rubric without the sentences of its section "Findings" that name a category.
fn without_categories(rubric: &str) -> String {
    let heading = "## Findings\n";
    let Some((before, findings)) = rubric.split_once(heading) else { return rubric.to_owned() };
    let names_category =
        |sentence: &&str| Category::ALL.iter().any(|category| sentence.contains(category.as_str()));
    let remaining: String =
        findings.trim().split_inclusive(". ").filter(|sentence| !names_category(sentence)).collect();
    format!("{before}{heading}\n{remaining}")
}

fn render_example(example: &Example) -> String {
    let severity = example.severity.as_deref().unwrap_or("unknown");
    format!(
        "Example of a finding, from another run:\n- quote: {}\n- problem: {}\n- severity: {severity}\n\n",
        example.evidence.trim(),
        example.problem.trim()
    )
}

/// The instructions about the fields of an answer with a grade on this scale.
fn answer_instructions(scale: Scale) -> String {
    let grade = match scale {
        Scale::FIVE => "`score`: 1, 2, 3, 4 or 5, by the scale above",
        Scale::THREE => "`score`: 0, 1, 2 or 3, by the scale above",
        Scale::Scores(..) | Scale::Quantity(_) => "`score`: a number of the scale above",
        Scale::Labels(_) => "`label`: one of the labels above",
    };
    format!(
        "# Answer\n\nAnswer with one JSON object and nothing else, its keys in this order:\n\
         - `rationale`: two to five sentences that weigh what speaks for and against, before you decide;\n\
         - {grade};\n\
         - `findings`: every problem that you found, worst first; an empty list where there is none.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::table::rows_with_rubric;

    #[test]
    fn prompt_without_categories_names_none() {
        for row in rows_with_rubric() {
            let prompt = |with_categories| {
                let parts =
                    SystemParts { rubric: None, instructions: &[], with_categories, with_examples: true };
                system_prompt(row, &parts)
            };
            let (complete_prompt, reduced_prompt) = (prompt(true), prompt(false));
            let named_categories = |prompt: &str| {
                Category::ALL.into_iter().filter(|c| prompt.contains(c.as_str())).collect::<Vec<_>>()
            };
            assert_eq!(named_categories(&complete_prompt).len(), Category::ALL.len(), "{}", row.name);
            assert_eq!(named_categories(&reduced_prompt), [], "{}", row.name);
            assert!(
                !reduced_prompt.contains("`category`") && reduced_prompt.contains("`severity`"),
                "{reduced_prompt}"
            );
            let findings =
                reduced_prompt.split("## Findings").nth(1).unwrap().split("# The record").next().unwrap();
            assert!(findings.trim().len() > 20, "advice on quotations remains: {findings}");
        }
    }

    #[test]
    fn judges_of_gpa_are_shown_examples_of_a_low_and_the_best_score() {
        let mut example_count = 0;
        for row in rows_with_rubric() {
            let prompt = |with_examples, rubric| {
                system_prompt(
                    row,
                    &SystemParts { rubric, instructions: &[], with_categories: true, with_examples },
                )
            };
            let (prompt_with, prompt_without) = (prompt(true, None), prompt(false, None));
            assert_eq!(prompt_with == prompt_without, !row.name.starts_with("gpa."), "{}", row.name);
            assert_eq!(prompt(true, Some("# Ours")), prompt(false, Some("# Ours")), "{}", row.name);
            let Some((_, shown)) = prompt_with.split_once("# Examples") else { continue };
            let shown = shown.split("# Answer").next().unwrap();
            let scores: Vec<&str> = shown.lines().filter_map(|line| line.strip_prefix("- score: ")).collect();
            assert!(matches!(scores[..], ["0" | "1", "3"]), "{}: {scores:?}", row.name);
            // A score that is not the best has a finding with a quotation that the example contains.
            let quotes: Vec<&str> = shown.lines().filter_map(|line| line.strip_prefix("  quote: ")).collect();
            assert!(!quotes.is_empty());
            for quote in quotes {
                let is_shown =
                    shown.lines().any(|line| !line.starts_with(['-', ' ']) && line.contains(quote));
                assert!(is_shown, "{}: {quote}", row.name);
            }
            example_count += 1;
        }
        assert_eq!(example_count, 7);
    }
}
