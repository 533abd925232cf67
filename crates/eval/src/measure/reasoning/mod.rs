//! `reasoning_integrity` (001, table 1): compares facts and claims with the content that the model had read.
//!
//! In: an LLM span's output, and all messages and results before it in the trace. Out: 1-5. Defects:
//! facts of a final answer without support or contradicted by results, claims of work that was not
//! done, announced calls that are not made, flags that contradict the request, amounts above a limit
//! of the instructions, answers without the lookups of the plan, identifiers that the model composed,
//! patches to code that was never read, data that the model admits to have invented, guesses stated as
//! facts, executed placeholders, and unchanged repetitions of failed calls. Without recorded output:
//! no content. Without a fact, claim or call to check: not applicable.
//!
//! | file | content |
//! |---|---|
//! | `review` | one walk over a trace: all findings, by model span and by agent |
//! | `history`, `evidence` | the calls made and the content read before a point of a run; whether that supports a fact |
//! | `answer`, `answer_span` | the final answer in an output; the model span that wrote it |
//! | `statements` | the clauses of an answer that assert something |
//! | `conduct`, `conduct_rules` | the input of the rules on the conduct of one agent; the list of these rules |
//! | `recovery` | whether a run recovered from a failed call |
//! | `unsupported_facts`, `links_and_quotations` | facts, links and quotations of an answer without support |
//! | `contradicted` | answers that contradict structured results |
//! | `arithmetic`, `combined_amounts`, `time_arithmetic` | whether a number, a time or a duration follows from others |
//! | `dates`, `local_dates`, `dates_and_times` | dates and times in texts |
//! | `claims` | claims of work: "I verified" |
//! | `claimed_actions` | claims of actions without a call: "I have cancelled" |
//! | `undone_action`, `failed_outcome`, `reported_day` | actions reported as done although the last call reports that they were not; failures that the answer does not report; actions for another day than the answer reports |
//! | `empty_source` | facts about a thing whose lookup found nothing |
//! | `simulated_result` | figures of simulations and trial runs that are told as real |
//! | `uncalled_tool` | actions that are claimed as done, and that an offered tool is named for that was never called |
//! | `fewer_calls` | actions that are claimed as done on several things of a list, with calls for fewer of them |
//! | `unopened_source` | sources that an answer claims to have read, and that a lookup only listed |
//! | `missing_announced_call` | calls that are announced and not made |
//! | `unmet_confirmation` | actions that the user confirmed and that were not carried out |
//! | `omitted_action`, `omitted_item`, `omitted_list_item` | actions of a request without a call; things that the calls of an action omit; things of a list in the request that the run omits |
//! | `less_fitting_choice`, `excluded_row` | an item chosen from a list that fits the request less than another one, or that the request excludes |
//! | `skipped_step`, `skipped_lookups` | steps before an action, and lookups before an answer, that were skipped |
//! | `redundant_question` | questions for values that the user has already stated |
//! | `repeated_action` | payments, messages and orders that were made twice |
//! | `contradicted_flag`, `contradicted_number` | flags and numbers of calls that contradict the request |
//! | `changed_field` | bookings with another value in a field than the request and the lookup before them |
//! | `wrong_amount`, `wrong_code`, `wrong_date_time`, `wrong_identifier`, `wrong_row` | calls with another amount, code, date, identifier or row than the one requested |
//! | `linked_identifiers` | several identifiers of one thing, linked by a record |
//! | `swapped_source_target` | calls with source and target swapped |
//! | `exceeded_limit` | amounts above a limit of the instructions |
//! | `rates` | whether an amount is per unit |
//! | `executed_placeholder` | placeholders in arguments |
//! | `invented_address`, `invented_contact`, `invented_identifier`, `invented_data`, `invented_patch_context` | contact details, identifiers, data and lines of code that the model invented |
//! | `guess_as_fact` | guesses that are later stated as facts |

pub(crate) mod missing_announced_call;
mod changed_field;
mod wrong_identifier;
mod wrong_date_time;
mod wrong_row;
mod repeated_action;
mod omitted_action;
mod omitted_list_item;
mod reported_day;
mod uncalled_tool;
mod undone_action;
mod failed_outcome;
mod empty_source;
mod simulated_result;
pub(crate) mod answer;
mod answer_span;
pub(crate) mod claimed_actions;
pub(crate) mod claims;
mod conduct;
mod conduct_rules;
pub(crate) mod contradicted;
pub(crate) mod contradicted_number;
pub(crate) mod contradicted_flag;
pub(crate) mod evidence;
mod exceeded_limit;
mod rates;
mod executed_placeholder;
mod fewer_calls;
mod guess_as_fact;
mod unopened_source;
pub(crate) mod unsupported_facts;
pub(crate) mod history;
pub(crate) mod invented_data;
pub(crate) mod invented_patch_context;
pub(crate) mod recovery;
mod arithmetic;
mod combined_amounts;
mod dates;
mod omitted_item;
mod less_fitting_choice;
mod excluded_row;
mod local_dates;
mod time_arithmetic;
mod links_and_quotations;
mod invented_address;
mod invented_contact;
mod invented_identifier;
mod wrong_amount;
mod redundant_question;
mod review;
mod linked_identifiers;
pub(crate) mod unmet_confirmation;
pub(crate) mod skipped_lookups;
mod wrong_code;
mod skipped_step;
pub(super) mod statements;
mod swapped_source_target;
mod dates_and_times;

pub(crate) use review::{Review, SpanReview};
use verdict_otlp::trace::Kind;

use super::defects::Findings;
use super::language::is_english;
use super::{Context, Measurement, Unmeasured};
use crate::recognise::Content;

/// Measures one model span; `None` for other spans and wrappers.
pub(crate) fn measure(context: &Context<'_>) -> Option<Measurement> {
    let view = context.trace.views.get(context.at)?;
    if view.kind != Kind::Llm || view.wrapper {
        return None;
    }
    let review = Review::get(context.trace, context.memo);
    let entry = review.llm_reviews.get(&context.at);
    // Later prompts and tool spans can prove a defect of an output that is not recorded; a pass
    // requires the output itself.
    let has_output = view.output_content == Content::Present;
    let is_unread = review.unread.contains(&context.at);
    let is_measured =
        |entry: &&SpanReview| entry.examined > 0 && has_output && !is_unread || !entry.findings.is_empty();
    if let Some(entry) = entry.filter(is_measured) {
        let mut findings = Findings::new();
        findings.examine(entry.examined);
        findings.extend(entry.findings.iter().cloned());
        return Some(findings.scored(context, Unmeasured::NotApplicable));
    }
    let reason = match (view.content_gap(), context.trace.evidence(context.at)) {
        (Some(gap), _) => gap.into(),
        (None, Content::Present) if is_unread => Unmeasured::Language,
        (None, Content::Present) if !is_english(&view.output_text(), None, context.memo) => {
            Unmeasured::Language
        }
        (None, evidence) => evidence.into(),
    };
    Some(context.unmeasured(reason))
}

#[cfg(test)]
mod tests;
