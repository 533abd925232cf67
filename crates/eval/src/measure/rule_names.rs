//! The names of rules that share their defect with other rules. In tables such a rule is `Defect.name`.
//!
//! In: a defect. Out: the names of its rules. The name of a rule is the name of its file or, in a file with several
//! rules, a word for the values that it compares.

use super::defect::Defect;
use super::reasoning::contradicted;

/// Rules that compare calls with a request, and report [`Defect::ContradictsRequest`].
const REQUEST_RULES: [&str; 13] = [
    "changed_field",
    "contradicted_flag",
    "contradicted_number",
    "invented_contact",
    "invented_identifier",
    "less_fitting_choice",
    "excluded_row",
    "reported_day",
    "wrong_amount",
    "wrong_code",
    "wrong_date_time",
    "wrong_identifier",
    "wrong_row",
];
/// Rules about facts of an answer, which report [`Defect::UnsupportedFact`].
const FACT_RULES: [&str; 8] = [
    "number",
    "misread_number",
    "memory",
    "date",
    "name",
    "invented_address",
    "empty_source",
    "simulated_result",
];

impl Defect {
    /// The names of the rules that report the defect; empty if only one rule reports it.
    pub fn rules(self) -> Vec<&'static str> {
        match self {
            Defect::ContradictsResult => contradicted::rule_names().chain(["repeated_action"]).collect(),
            Defect::ContradictsRequest => REQUEST_RULES.to_vec(),
            Defect::UnsupportedFact => FACT_RULES.to_vec(),
            Defect::FalseClaim => vec![
                "claimed_actions",
                "work_claims",
                "omitted_item",
                "undone_action",
                "failed_outcome",
                "uncalled_tool",
                "fewer_calls",
                "unopened_source",
            ],
            Defect::PartUnanswered => {
                vec![
                    "count",
                    "field",
                    "part",
                    "redundant_question",
                    "omitted_action",
                    "omitted_item",
                    "omitted_list_item",
                ]
            }
            Defect::RepeatedCall => vec!["same_result", "repeated_action"],
            Defect::StepSkipped => vec!["plan", "skipped_step"],
            // `completeness` reports a defect of a statement under the name of its rule or, without one, of its defect.
            Defect::AnswerUnsupported => {
                let statement_defects = [Defect::UnsupportedFact, Defect::FalseClaim, Defect::PartUnanswered];
                let rules = statement_defects.into_iter().flat_map(Defect::rules);
                rules.chain(Defect::ALL.iter().map(|defect| defect.name())).collect()
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// The files in this folder whose names are not those of their rules, with the rules.
    const FILES: [(&str, &[&str]); 26] = [
        (
            "agent/completeness.rs",
            &["count", "field", "part", "MissingAnswer", "EmptyAnswer", "AnswerUnsupported"],
        ),
        ("agent/plan_efficiency.rs", &["plan", "StepsReordered", "StepRepeated", "NoReplan"]),
        (
            "agent/tool_abuse.rs",
            &["same_result", "RepeatedFailingCall", "NearIdenticalCalls", "CallLoop", "NoAdaptation"],
        ),
        ("agent/tool_coverage.rs", &["NothingCovered", "PartNotCovered", "PlannedCallMissing"]),
        ("avoidance.rs", &["Refusal", "Evasion"]),
        ("avoidance/untried_tool.rs", &["GiveUp"]),
        ("error_detection/cut_answer.rs", &["CutAnswer"]),
        (
            "instruction_following.rs",
            &[
                "MissingTag",
                "WrongFormat",
                "CodeBlockRule",
                "LengthLimit",
                "ForbiddenText",
                "RequiredToolUnused",
                "TooManyCalls",
            ],
        ),
        ("instruction_following/reading_limit.rs", &["ReadTooMuch"]),
        ("latency.rs", &["OverLimit"]),
        ("reasoning/contradicted/totals.rs", &["sentence_totals"]),
        ("reasoning/exceeded_limit.rs", &["ExceedsLimit"]),
        ("reasoning/executed_placeholder.rs", &["PlaceholderExecuted"]),
        ("reasoning/guess_as_fact.rs", &["GuessStated"]),
        ("reasoning/invented_data.rs", &["InventedData"]),
        ("reasoning/invented_patch_context.rs", &["InventedContext"]),
        ("reasoning/links_and_quotations.rs", &["UnsupportedQuote", "UnsupportedUrl"]),
        ("reasoning/missing_announced_call.rs", &["AnnouncedCallMissing"]),
        ("reasoning/skipped_lookups.rs", &["LookupsSkipped"]),
        ("reasoning/unmet_confirmation.rs", &["ConfirmedActionMissing"]),
        ("reasoning/unsupported_facts.rs", &["number", "misread_number", "date", "name"]),
        ("reasoning/unsupported_facts/memory.rs", &["memory"]),
        (
            "tool_completeness/arguments.rs",
            &["MissingParameter", "UnknownParameter", "IllTypedParameter", "UnknownTool"],
        ),
        ("tool_completeness/empty_lookup.rs", &["EmptyResult", "InventedIdentifier"]),
        ("tool_completeness/result.rs", &["TruncatedResult"]),
        ("tool_completeness/unexecuted.rs", &["MalformedArguments"]),
    ];
    /// Folders with files whose names are those of their rules.
    const FOLDERS: [&str; 3] = ["reasoning", "reasoning/contradicted", "reasoning/review"];

    #[test]
    fn file_of_each_rule_states_its_principle() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/measure");
        let file_by_table =
            |rule: &str| FILES.iter().find(|(_, rules)| rules.contains(&rule)).map(|(file, _)| *file);
        let file_by_name = |rule: &str| {
            let files = FOLDERS.iter().map(|sub| format!("{sub}/{rule}.rs"));
            files.into_iter().find(|file| folder.join(file).is_file())
        };
        let mut missing = Vec::new();
        for defect in Defect::ALL {
            let rules = match defect.rules() {
                rules if rules.is_empty() || *defect == Defect::AnswerUnsupported => vec![defect.name()],
                rules => rules,
            };
            for rule in rules {
                let file = match file_by_table(rule).map(str::to_owned).or_else(|| file_by_name(rule)) {
                    None if defect.is_error() => "error_detection.rs".to_owned(),
                    file => file.unwrap_or_else(|| panic!("no file of {}.{rule} is known", defect.name())),
                };
                let text = std::fs::read_to_string(folder.join(&file)).unwrap();
                let mut header = text.lines().take_while(|line| line.starts_with("//!"));
                if !header.any(|line| line.contains("Principle: ")) {
                    missing.push(format!("{}.{rule}: {file}", defect.name()));
                }
            }
        }
        assert!(missing.is_empty(), "{missing:#?}");
    }
}
