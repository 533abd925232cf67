//! The list of the rules on the conduct of an agent. Each rule is in a file of its own.

use super::conduct::ConductRule;
use super::{
    changed_field, empty_source, excluded_row, failed_outcome, fewer_calls, invented_address,
    invented_contact, invented_identifier, less_fitting_choice, omitted_action, omitted_item,
    omitted_list_item, redundant_question, repeated_action, reported_day, simulated_result, skipped_step,
    uncalled_tool, undone_action, unopened_source, wrong_amount, wrong_code, wrong_date_time,
};

/// The rules on the conduct of an agent, each with the name of its file, in the order in which findings on one span are
/// reported.
pub(super) const CONDUCT_RULES: [(&str, ConductRule); 23] = [
    ("wrong_date_time", wrong_date_time::check),
    ("wrong_code", wrong_code::check),
    ("less_fitting_choice", less_fitting_choice::check),
    ("excluded_row", excluded_row::check),
    ("repeated_action", repeated_action::check),
    ("invented_contact", invented_contact::check),
    ("invented_address", invented_address::check),
    ("invented_identifier", invented_identifier::check),
    ("wrong_amount", wrong_amount::check),
    ("changed_field", changed_field::check),
    ("redundant_question", redundant_question::check),
    ("skipped_step", skipped_step::check),
    ("omitted_action", omitted_action::check),
    ("omitted_list_item", omitted_list_item::check),
    ("omitted_item", omitted_item::check),
    ("undone_action", undone_action::check),
    ("failed_outcome", failed_outcome::check),
    ("empty_source", empty_source::check),
    ("simulated_result", simulated_result::check),
    ("uncalled_tool", uncalled_tool::check),
    ("fewer_calls", fewer_calls::check),
    ("unopened_source", unopened_source::check),
    ("reported_day", reported_day::check),
];
