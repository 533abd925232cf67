//! The rules on the conduct of an agent, each in a file of its own.

use super::conduct::ConductRule;
use super::{
    invented_address, invented_contact, less_fitting_choice, omitted_action, omitted_item, omitted_list_item,
    redundant_question, repeated_action, reported_day, skipped_step, undone_action, wrong_amount, wrong_code,
    wrong_date_time,
};

/// Rules on the conduct of an agent, in the order in which findings on one span are reported.
pub(super) const ON_CONDUCT: [ConductRule; 14] = [
    wrong_date_time::check,
    wrong_code::check,
    less_fitting_choice::check,
    repeated_action::check,
    invented_contact::check,
    invented_address::check,
    wrong_amount::check,
    redundant_question::check,
    skipped_step::check,
    omitted_action::check,
    omitted_list_item::check,
    omitted_item::check,
    undone_action::check,
    reported_day::check,
];
