//! Answers that contradict the structured results of tools.
//!
//! In: an agent's request, the results before its answer, read as [`Records`](crate::measure::records::Records), and
//! the answer. Out: findings on the model span that wrote the answer. A statement is compared with the field, list or
//! identifier that it names, a weekday with the calendar, and written arithmetic with its terms. It is a contradiction
//! if a result refutes it and no text that the model read supports it. A text to the user in a turn of a dialogue is
//! compared in the same way, with the results before it.
//!
//! | file | content |
//! |---|---|
//! | `exchange`, `sources` | an answer with the request and the results; the results before an answer |
//! | `clause_subject`, `predicates` | the subject of a clause; the assertions of flags and states |
//! | `states`, `denied_flags`, `labels` | flags and states; flags in other languages; values of a closed set |
//! | `universal_claims`, `nothing_found` | statements about all things of a list; "nothing was found" |
//! | `counts`, `subset_counts`, `value_counts` | counts of things, of a part of them, and of those with each value of a column |
//! | `totals`, `totals_below` | totals of listed parts, under a label or in a sentence below the parts |
//! | `sentence_totals` | totals in the sentence with their parts |
//! | `partial_totals`, `sums` | totals of one page of a list, of the rows of a list |
//! | `extremes`, `stated_extremes` | the cheapest or largest item by the name of a field, or by the stated value |
//! | `extreme_rows`, `ranked_tables` | superlatives about a row that no column of a table bears out; these tables |
//! | `extreme_field`, `ranking` | the highest value of an object; the best rows by the requested field |
//! | `request_bound`, `series_bound` | bounds of the request; bounds of a series |
//! | `identifiers`, `last_digits`, `identifier_owner` | altered identifiers; their last digits; identifiers of another thing |
//! | `altered_names` | names that differ by one word |
//! | `weekdays`, `time_zones`, `times_of_day` | weekdays of dates; times with a zone; times that no text has |
//! | `confirmed_moments` | a day or time other than the one that an action had |
//! | `equations`, `changes` | arithmetic that an answer writes out; changes in percent |
//! | `table_columns`, `row_calculations` | calculated columns of an answer's tables; values calculated from columns of a result |
//! | `test_runs` | results of test runs |
//! | `field_numbers`, `decimal_shift` | numbers named like a field; a shifted decimal point |
//! | `other_unit`, `conversions`, `temperatures` | another unit; units converted by a wrong power of ten; converted degrees |
//! | `refunds`, `journeys` | amounts of refunds; departures given as arrivals |
//! | `named_rows`, `row_scope`, `row_values` | tables whose rows a text names; the row that a clause is about; its cells |
//! | `parallel_lines` | lists and tables of an answer, one line of which has another value than its row |
//! | `misattributed_values`, `asked_row` | values of another row than the named one, or than the requested one |
//! | `siblings`, `field_roles` | values of a sibling object, or of another year; names in the role of another field |

mod universal_claims;
mod value_counts;
mod temperatures;
mod extreme_rows;
mod confirmed_moments;
mod parallel_lines;
mod asked_row;
mod changes;
mod conversions;
mod request_bound;
mod time_zones;
mod counts;
mod last_digits;
mod equations;
mod exchange;
mod denied_flags;
mod extreme_field;
mod extremes;
mod identifiers;
mod field_numbers;
mod field_roles;
mod journeys;
mod labels;
mod named_rows;
mod nothing_found;
mod identifier_owner;
mod other_unit;
mod partial_totals;
mod predicates;
mod altered_names;
mod ranked_tables;
mod ranking;
mod refunds;
mod row_calculations;
mod row_scope;
mod row_values;
mod sentence_totals;
mod misattributed_values;
mod series_bound;
mod subset_counts;
mod decimal_shift;
mod siblings;
mod sources;
mod stated_extremes;
mod states;
mod clause_subject;
mod sums;
mod table_columns;
mod test_runs;
mod times_of_day;
mod totals;
mod totals_below;
mod weekdays;

use std::cell::OnceCell;

use foldhash::HashMap;
use verdict_otlp::trace::{Idx, Kind};

use super::answer::{MAX_ANSWER, final_answer};
use super::answer_span::answered_by;
use super::dates::year_of;
use super::history::end_of;
use super::statements::{Prose, clauses};
use crate::measure::calls::attempts::CallAttempts;
use crate::measure::defects::clip;
use crate::measure::dialogue::{Replies, open_request};
use crate::measure::language::Language;
use crate::measure::numbers::has_digit;
use crate::measure::request::TaskDemands;
use crate::measure::{Finding, Memo, agent_index};
use crate::recognise::{AgentTrace, Content, Role};
use exchange::{Exchange, ExchangeFindings};
use sources::ResultSources;

pub(super) use predicates::has_state_key;

/// Maximum findings on one answer.
const MAX_FINDINGS: usize = 4;
/// Number of comparisons at the start of [`COMPARISONS`] whose findings are all kept. A finding of a later comparison
/// is dropped if an earlier one has the same quote.
const DISTINCT_COMPARISONS: usize = 27;

/// Compares an answer with its results in one respect.
type ExchangeCheck = fn(&Exchange<'_>, &mut ExchangeFindings);

/// A rule of this module.
struct Comparison {
    /// The name of the rule, which is that of its file.
    name: &'static str,
    check: ExchangeCheck,
    /// Whether the comparison applies only to answers in English.
    is_english: bool,
    /// Whether the comparison applies only to answers with a digit.
    needs_digit: bool,
}

/// A comparison that applies to all answers.
const fn comparison(name: &'static str, check: ExchangeCheck) -> Comparison {
    Comparison { name, check, is_english: false, needs_digit: false }
}

impl Comparison {
    /// The comparison, only for answers in English.
    const fn english(self) -> Comparison {
        Comparison { is_english: true, ..self }
    }

    /// The comparison, only for answers with a digit.
    const fn digits_only(self) -> Comparison {
        Comparison { needs_digit: true, ..self }
    }
}

/// The only comparison for texts that were written on request.
const TEST_RUNS: Comparison = comparison("test_runs", test_runs::check).english();

/// All comparisons, in the order of their findings.
const COMPARISONS: [Comparison; 45] = [
    comparison("states", states::check),
    comparison("labels", labels::check).english(),
    comparison("identifier_owner", identifier_owner::check).english().digits_only(),
    comparison("counts", counts::check),
    comparison("totals", totals::check),
    comparison("extremes", extremes::check).english(),
    comparison("extreme_field", extreme_field::check).digits_only(),
    comparison("denied_flags", denied_flags::check),
    comparison("nothing_found", nothing_found::check).english(),
    comparison("identifiers", identifiers::check).digits_only(),
    comparison("last_digits", last_digits::check).digits_only(),
    comparison("altered_names", altered_names::check).english(),
    comparison("weekdays", weekdays::check).digits_only(),
    comparison("time_zones", time_zones::check).digits_only(),
    comparison("equations", equations::check).digits_only(),
    comparison("changes", changes::check).digits_only(),
    comparison("conversions", conversions::check).digits_only(),
    comparison("table_columns", table_columns::check).digits_only(),
    comparison("siblings", siblings::check),
    comparison("journeys", journeys::check).digits_only(),
    comparison("refunds", refunds::check),
    comparison("ranking", ranking::check).english(),
    TEST_RUNS,
    comparison("partial_totals", partial_totals::check).digits_only(),
    comparison("other_unit", other_unit::check).digits_only(),
    comparison("sums", sums::check).digits_only(),
    comparison("subset_counts", subset_counts::check).english(),
    // The comparisons from here on may have the same findings as those above, see [`DISTINCT_COMPARISONS`].
    comparison("sentence_totals", sentence_totals::check).digits_only(),
    comparison("universal_claims", universal_claims::check).english(),
    comparison("misattributed_values", misattributed_values::check),
    comparison("asked_row", asked_row::check).english().digits_only(),
    comparison("confirmed_moments", confirmed_moments::check).digits_only(),
    comparison("extreme_rows", extreme_rows::check),
    comparison("value_counts", value_counts::check),
    comparison("temperatures", temperatures::check).digits_only(),
    comparison("parallel_lines", parallel_lines::check),
    comparison("field_numbers", field_numbers::check).digits_only(),
    comparison("request_bound", request_bound::check).english().digits_only(),
    comparison("series_bound", series_bound::check).english(),
    comparison("times_of_day", times_of_day::check).digits_only(),
    comparison("decimal_shift", decimal_shift::check).digits_only(),
    comparison("totals_below", totals_below::check).digits_only(),
    comparison("stated_extremes", stated_extremes::check).english().digits_only(),
    comparison("row_calculations", row_calculations::check).digits_only(),
    comparison("field_roles", field_roles::check).english(),
];

/// The names of the rules, whose findings have [`ContradictsResult`](crate::measure::defects::Defect).
pub(crate) fn rule_names() -> impl Iterator<Item = &'static str> {
    COMPARISONS.iter().map(|comparison| comparison.name)
}

/// Maximum results after the compared text that are searched for the names of things.
const MAX_LATER_RESULTS: usize = 64;
/// Maximum turns of one dialogue that are compared, the latest ones.
const MAX_TURNS: usize = 32;

/// The comparison of one agent's answer, or of a turn of its dialogue, with its results.
pub(crate) struct ComparedAnswer {
    /// The index of the agent.
    pub agent: usize,
    /// The model span that wrote the answer.
    pub at: Option<Idx>,
    /// Whether the text is the agent's answer and not an earlier turn.
    pub is_answer: bool,
    pub findings: Vec<Finding>,
}

/// The comparisons of all answers and turns with a statement about something that a result also states.
pub(crate) fn find(trace: &AgentTrace, memo: &Memo, attempts: &CallAttempts) -> Vec<ComparedAnswer> {
    (0..trace.agents.len()).flat_map(|i| check_agent(trace, memo, attempts, i)).collect()
}

/// The comparisons of the turns and of the answer of the agent `i`.
fn check_agent(trace: &AgentTrace, memo: &Memo, attempts: &CallAttempts, i: usize) -> Vec<ComparedAnswer> {
    let Some(agent) = trace.agents.get(i) else { return Vec::new() };
    let is_llm = |at: &Idx| trace.views.get(*at).is_some_and(|view| view.kind == Kind::Llm);
    let last = answered_by(trace, memo, agent).filter(is_llm);
    let view = last.and_then(|at| trace.views.get(at)).filter(|view| view.output_content == Content::Present);
    let answer = view
        .and_then(|view| final_answer(&trace.control_tools, view))
        .or_else(|| agent.answer.as_deref().map(str::to_owned));
    let replies = Replies::cached(trace, memo);
    let turns = agent.llms.iter().rev().filter(|at| Some(**at) != last && replies.to(**at).is_some());
    let turns = turns.take(MAX_TURNS).filter_map(|at| {
        let text = trace.views.get(*at)?.output_text().into_owned();
        compare(trace, memo, attempts, WrittenTurn { agent: i, at: Some(*at), text, is_answer: false })
    });
    let mut compared: Vec<ComparedAnswer> = turns.collect();
    // A contradiction in several turns is reported only for the first turn. The turns are in reverse order.
    let mut first_turn: HashMap<String, usize> = HashMap::default();
    for (nth, turn) in compared.iter().enumerate().rev() {
        turn.findings.iter().for_each(|f| _ = first_turn.entry(f.rationale.clone()).or_insert(nth));
    }
    for (nth, turn) in compared.iter_mut().enumerate() {
        turn.findings.retain(|f| first_turn.get(&f.rationale) == Some(&nth));
    }
    let compared_answer = answer.and_then(|text| {
        compare(trace, memo, attempts, WrittenTurn { agent: i, at: last, text, is_answer: true })
    });
    compared.into_iter().chain(compared_answer).collect()
}

/// A text that a model wrote for its reader.
struct WrittenTurn {
    agent: usize,
    at: Option<Idx>,
    text: String,
    is_answer: bool,
}

/// Compares a text with the results before it; `None` if there is nothing to compare, or beyond the work budget.
fn compare(
    trace: &AgentTrace,
    memo: &Memo,
    attempts: &CallAttempts,
    turn: WrittenTurn,
) -> Option<ComparedAnswer> {
    let WrittenTurn { agent: i, at, text: answer, is_answer } = turn;
    let calls = agent_index::subtree_calls(trace, memo, i);
    if calls.is_empty() {
        return None;
    }
    let turn_request = at.and_then(|at| open_request(trace.views.get(at)?, memo));
    // The first turn has no earlier text, and the recorded task may be a later message.
    let prompt_request = || {
        let prompt = &trace.views.get(at.filter(|_| !is_answer)?)?.input;
        prompt.iter().rev().filter(|message| message.role == Role::User).find_map(agent_index::first_text)
    };
    let task = turn_request.or_else(prompt_request).or(agent_index::task(trace, i));
    let demands = task.map(|task| TaskDemands::cached(task, memo));
    let task = task.map(|task| &**task).unwrap_or_default();
    // A text or program that is written on request states nothing about results, except about test runs.
    let is_written_on_request = demands.is_some_and(|demands| demands.asks_for_text());
    let answer = clip(&answer, MAX_ANSWER);
    let prose = Prose::cached(answer, memo);
    // A date with slashes is masked as a path.
    let has_digits = has_digit(&prose) || answer.contains('/') && has_digit(answer);
    let language = Language::detected(answer, Some(task).filter(|task| !task.is_empty()), memo);
    let clauses = language.map(|language| clauses(answer, &prose, language, memo)).unwrap_or_default();
    // Each comparison needs a clause or a digit.
    if clauses.is_empty() && !has_digits || is_written_on_request && test_runs::claim(&clauses).is_none() {
        return None;
    }
    let sources = ResultSources::before(trace, memo, attempts, i, &calls, at)?;
    memo.budget.spend(answer.len() / 16 + sources.field_count()).then_some(())?;
    let end = at.map_or(u64::MAX, |at| end_of(trace, at));
    let calls = trace.agents.get(i).map_or(&[][..], |agent| agent.calls.as_slice());
    let later = calls.iter().filter_map(|c| trace.calls.get(*c)).filter(|call| call.start > end);
    let later = later.filter_map(|call| call.result.as_ref()).take(MAX_LATER_RESULTS).collect();
    let exchange = Exchange {
        task,
        answer,
        language,
        task_words: OnceCell::new(),
        clauses,
        has_digits,
        prose,
        seen_bytes: sources.seen.iter().map(|text| text.len()).sum(),
        sources,
        year: at.and_then(|at| trace.tree.spans.get(at)).and_then(|span| year_of(span.start)),
        later_results: later,
        memo,
        budget: &memo.budget,
    };
    let mut compared = ComparedAnswer { agent: i, at, is_answer, findings: Vec::new() };
    let comparisons = if is_written_on_request { &[TEST_RUNS][..] } else { &COMPARISONS };
    let mut examined = false;
    let is_applicable = |(_, comparison): &(usize, &Comparison)| {
        (!comparison.is_english || exchange.is_english()) && (!comparison.needs_digit || has_digits)
    };
    for (nth, comparison) in comparisons.iter().enumerate().filter(is_applicable) {
        if memo.budget.is_exceeded() {
            return None;
        }
        let mut findings = ExchangeFindings::default();
        (comparison.check)(&exchange, &mut findings);
        examined |= findings.examined;
        for (finding, source) in findings.entries {
            let has_same_quote = |other: &Finding| other.quote == finding.quote;
            if nth < DISTINCT_COMPARISONS || !compared.findings.iter().any(has_same_quote) {
                let finding = finding.by_rule(comparison.name);
                compared.findings.push(match source {
                    Some(call) => finding.citing_at(trace, call),
                    None => finding,
                });
            }
        }
    }
    compared.findings.truncate(MAX_FINDINGS);
    examined.then_some(compared)
}
