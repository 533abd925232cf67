//! The names of the rules that share their defect with others: in tables a rule is `Defect.name`.
//!
//! A rule is named for its file, or for what it compares where one file has several. In: a defect. Out: the names.

use super::defect::Defect;
use super::reasoning::contradicted;

/// Rules on what a request gives, that report [`Defect::ContradictsRequest`].
const ON_REQUEST: [&str; 10] = [
    "contradicted_flag",
    "contradicted_number",
    "invented_contact",
    "less_fitting_choice",
    "reported_day",
    "wrong_amount",
    "wrong_code",
    "wrong_date_time",
    "wrong_identifier",
    "wrong_row",
];
/// Rules on facts of an answer.
const ON_FACTS: [&str; 6] = ["number", "misread_number", "memory", "date", "name", "invented_address"];

impl Defect {
    /// The rules that report the defect, where there are several.
    pub fn rules(self) -> Vec<&'static str> {
        match self {
            Defect::ContradictsResult => contradicted::rule_names().chain(["repeated_action"]).collect(),
            Defect::ContradictsRequest => ON_REQUEST.to_vec(),
            Defect::UnsupportedFact => ON_FACTS.to_vec(),
            Defect::FalseClaim => vec!["claimed_actions", "work_claims", "omitted_item", "undone_action"],
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
            // A defect of a statement makes the answer unsupported: by its rule, or by the defect itself.
            Defect::AnswerUnsupported => {
                let statement_defects = [Defect::UnsupportedFact, Defect::FalseClaim, Defect::PartUnanswered];
                let rules = statement_defects.into_iter().flat_map(Defect::rules);
                rules.chain(Defect::ALL.iter().map(|defect| defect.name())).collect()
            }
            _ => Vec::new(),
        }
    }
}
