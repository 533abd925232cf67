//! `completeness` (001, table 2): whether the final answer contains what its request asks for.
//!
//! Principle: an answer contains what its request asks for: a number, the listed fields, a reply to each question.
//! The rule does not judge whether the content is correct or good.
//!
//! In: an agent's task and answer, and the findings of `reasoning_integrity` about that answer. Out:
//! 1-5 on the agent's span. Unmeasured if there is no answer because the trace is incomplete, the run was
//! cancelled, or the answer was not recorded.
//!
//! A turn of an agent in a group chat is not measured; the answer of the group is.
//! In a dialogue the last turn is compared with the request that is still open, not with the first one.
//! The rule examines the parts of the request that can be compared with the answer (a requested number, listed
//! fields, questions about different names) and the facts and claims of the answer that were compared with results
//! and calls of the run. If there are none, the metric is unmeasured: a text that is not empty, repeats a fact of the
//! request, or contains a word that may be a number ("no", "the same") may still not answer the request.

use foldhash::HashSet;

use verdict_otlp::trace::{Idx, Kind, Status};

use crate::measure::defects::{Defect, Findings};
use crate::measure::dialogue::open_request;
use crate::measure::excerpt::head;
use crate::measure::language::{Action, is_english};
use crate::measure::reasoning::Review;
use crate::measure::records::{RecordField, Structure};
use crate::measure::request::{self, TaskDemands};
use crate::measure::tool_purpose::ToolPurpose;
use crate::measure::{Context, Finding, Measurement, Memo, Unmeasured, agent_index, avoidance, numbers};
use crate::recognise::{Agent, Call, Content, Part, Text};

/// Maximum bytes of a task whose questions are compared with the answer; a longer one is ambiguous.
const MAX_TASK_BYTES: usize = 600;
/// Minimum bytes of an answer that is expected to repeat names; a shorter one often does not ("836 m; 1786").
const MIN_NAMING_ANSWER_BYTES: usize = 80;
/// Maximum calls whose results are searched for a number; the latest ones are.
const MAX_CALLS: usize = 64;
/// Maximum requested fields that are searched in the answer.
const MAX_FIELDS: usize = 12;

/// Maximum words between a counting word and the noun that it counts: "no free rooms".
const MAX_WORDS_BETWEEN: usize = 1;
/// Minimum letters of a word that is taken for the counted noun.
const MIN_NOUN_LETTERS: usize = 4;

regex!(
    CARDINALS,
    r"(?i)\b(none|zero|nil|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand|million|billion|dozen|twice)\b"
);
// Words that may state a number, and digits, which may also belong to a name.
regex!(MAY_BE_NUMBER, r"(?i)\d|\b(no|one|half|once|both|equal(ly)?|same|[IVXLC]{2,})\b");
regex!(
    FIELDS,
    r#"(?i)\b(?:keys|fields)\b[^.\n]{0,20}?((?:[`"'][A-Za-z_][A-Za-z0-9_]{1,30}[`"'](?:\s*,\s*(?:and\s+)?|\s+and\s+)?){2,12})"#
);

pub(crate) fn measure(context: &Context<'_>, i: usize, agent: &Agent) -> Measurement {
    let mut findings = Findings::new();
    if agent_index::is_group_chat_turn(context.trace, context.memo, agent) {
        return context.unmeasured(Unmeasured::NotApplicable);
    }
    let Some(answer) = agent.answer.as_ref().filter(|a| !a.trim().is_empty()) else {
        match missing_answer(context, agent) {
            Ok(finding) => findings.push(finding),
            Err(reason) => return context.unmeasured(reason),
        }
        return findings.scored(context, Unmeasured::NotApplicable);
    };
    let review = Review::get(context.trace, context.memo);
    let unsupported = review.answer_findings.get(&i).into_iter().flatten();
    findings.examine(review.examined_in_answer.get(&i).copied().unwrap_or(0));
    findings.extend(unsupported.map(|finding| unsupported_answer(context, agent, finding)));
    let task = agent_index::task(context.trace, i);
    // In a dialogue the last turn answers the latest request, not the first one.
    let answering_view = agent.answer_at.and_then(|span_index| context.trace.views.get(span_index));
    if let Some(task) = answering_view.and_then(|view| open_request(view, context.memo)).or(task) {
        check_number(context, i, task, answer, &mut findings);
        check_fields(task, answer, &mut findings);
        check_parts(task, context.memo, answer, &mut findings);
    }
    let unmeasured_reason = match task {
        Some(task)
            if !is_english(answer, Some(task), context.memo) || !is_english(task, None, context.memo) =>
        {
            Unmeasured::Language
        }
        Some(_) => Unmeasured::NotApplicable,
        None => agent_index::missing_task(agent),
    };
    findings.scored(context, unmeasured_reason)
}

/// The finding about a missing or empty answer, or the reason why the metric is unmeasured.
fn missing_answer(context: &Context<'_>, agent: &Agent) -> Result<Finding, Unmeasured> {
    let view = context.trace.views.get(agent.at);
    // A run that ended in an error has no answer, even if the instrumentation records none.
    if agent.answer_content.is_partial() {
        return Err(agent.answer_content.into());
    }
    let failed = agent.task.is_some()
        && context.trace.tree.spans.get(agent.at).is_some_and(|s| s.status == Status::Error);
    if agent.answer_content != Content::Present && !failed {
        return Err(Unmeasured::NoContent);
    }
    let has_media_output = |span_index: &Idx| {
        let output = context.trace.views.get(*span_index).map(|view| &view.output).into_iter().flatten();
        output.flat_map(|message| &message.parts).any(|part| matches!(part, Part::Media))
    };
    // The answer may be an image or a recording, which the rule cannot read.
    if agent.llms.last().into_iter().chain([&agent.at]).any(has_media_output) && !failed {
        return Err(Unmeasured::NoContent);
    }
    let is_unfinished = context.trace.tree.spans.get(agent.at).is_none_or(|s| s.end == 0);
    let has_no_calls = agent.llms.is_empty() && agent.calls.is_empty();
    if context.trace.incomplete
        || is_unfinished
        || has_no_calls
        || view.is_none_or(|r| r.cancelled || r.wrapper)
    {
        return Err(Unmeasured::NotApplicable);
    }
    let last_call = agent.calls.last().and_then(|i| context.trace.calls.get(*i));
    let is_handover = |call: &Call| {
        ToolPurpose::for_call(context.trace, context.memo, call).actions.first() == Some(&Action::Transfer)
    };
    let is_handed_over = last_call.is_some_and(is_handover);
    if is_handed_over {
        return Err(Unmeasured::NotApplicable);
    }
    let request = agent.task.as_deref().map(str::trim).filter(|t| !t.is_empty()).unwrap_or("no answer");
    let (defect, observation) = match &agent.answer {
        Some(_) => (Defect::EmptyAnswer, "it is empty"),
        None => (Defect::MissingAnswer, "the run ended without one"),
    };
    Ok(defect.finding(format!("a final answer to this request was expected; {observation}"), request))
}

/// A finding of `reasoning_integrity` about the answer, as a defect of the answer.
fn unsupported_answer(context: &Context<'_>, agent: &Agent, answer_finding: &Finding) -> Finding {
    let (defect, reason) = match answer_finding.defect {
        Some(defect @ Defect::ContradictsResult) => {
            (defect, "the final answer contradicts what the run found")
        }
        Some(defect @ Defect::ContradictsRequest) => (defect, "the run did other than the user asked for"),
        Some(defect @ Defect::ExceedsLimit) => (defect, "the run did more than its instructions allow"),
        _ => (Defect::AnswerUnsupported, "the final answer rests on nothing that the run found"),
    };
    let finding = defect.finding(format!("{reason}: {}", answer_finding.rationale), &answer_finding.quote);
    let rule = answer_finding
        .rule
        .or(answer_finding.defect.filter(|answer_defect| *answer_defect != defect).map(Defect::name));
    let finding = rule.into_iter().fold(finding, Finding::by_rule);
    let finding = Finding { category: answer_finding.category, seen_in: answer_finding.seen_in, ..finding };
    // The model call that wrote the answer fails for the same reason; it is the origin of this failure.
    let origin = agent.answer_at.filter(|span_index| *span_index != agent.at && is_llm(context, *span_index));
    let finding = Finding { origin, ..finding };
    let answer_span_id =
        agent.answer_at.and_then(|span_index| context.trace.tree.spans.get(span_index)).map(|s| s.id);
    answer_span_id.into_iter().chain(answer_finding.cited.iter().copied()).fold(finding, Finding::citing)
}

fn is_llm(context: &Context<'_>, span_index: Idx) -> bool {
    context.trace.views.get(span_index).is_some_and(|view| view.kind == Kind::Llm)
}

/// Reports an answer without a number where the task asks for one and a result of the run contains one. A value of 0
/// may be expressed in words ("it is free"), and an answer may state that the number was not found.
fn check_number(context: &Context<'_>, i: usize, task: &Text, answer: &str, findings: &mut Findings) {
    let memo = context.memo;
    if task.len() > MAX_TASK_BYTES || answer.contains('?') {
        return;
    }
    let request = TaskDemands::cached(task, memo);
    let number = request.question_for_number().filter(|_| request.asks_for_facts(memo));
    let Some([asked_words, words_after]) = number else { return };
    // Numbers that are written as words are recognised in English only.
    if !is_english(answer, Some(task), memo) {
        return;
    }
    if gives_number(task, &request, words_after, answer) {
        return findings.examine(1);
    }
    let may_contain_number = CARDINALS.is_match(answer) || MAY_BE_NUMBER.is_match(answer);
    if may_contain_number || !may_know_number(context, i) || avoidance::mentions_lack(answer, memo) {
        return;
    }
    findings.examine(1);
    let rationale =
        format!("a number was expected, since the request asks \"{asked_words}\"; the answer gives none");
    findings.push(Defect::PartUnanswered.finding(rationale, answer).by_rule("count"));
}

/// Whether the answer contains a number that the request does not contain: digits outside a name, a number word, or
/// a counting word before the requested noun ("no rooms").
fn gives_number(task: &str, request: &TaskDemands, words_after: &str, answer: &str) -> bool {
    let is_new_number = |n: &numbers::Number| !n.in_identifier && !request.has_number(n);
    let words = |text: &str| {
        let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        words.map(str::to_lowercase).collect::<Vec<String>>()
    };
    let task_words = words(task);
    let is_new_word = |word: &str| !task_words.iter().any(|other| other.eq_ignore_ascii_case(word));
    if numbers::all(answer).iter().any(is_new_number)
        || CARDINALS.find_iter(answer).any(|word| is_new_word(word.as_str()))
    {
        return true;
    }
    // "How many rooms": the noun follows the words of the question.
    let Some(noun) = words(words_after).into_iter().find(|word| word.chars().count() >= MIN_NOUN_LETTERS)
    else {
        return false;
    };
    let is_noun = |word: &String| word.trim_end_matches('s') == noun.trim_end_matches('s');
    let is_counting_word = |word: &String| matches!(word.as_str(), "no" | "one" | "both");
    let answer_words = words(answer);
    let mut counting_words = answer_words.iter().enumerate().filter(|(_, word)| is_counting_word(word));
    counting_words.any(|(i, _)| answer_words.iter().skip(i + 1).take(MAX_WORDS_BETWEEN + 1).any(is_noun))
}

/// Whether the agent may know a number other than 0: its results contain one and none that is 0, or it made no calls.
fn may_know_number(context: &Context<'_>, i: usize) -> bool {
    let trace = context.trace;
    let mut call_count = 0;
    let mut has_number = false;
    for call in agent_index::subtree_calls(trace, context.memo, i).into_iter().rev().take(MAX_CALLS) {
        let Some(call) = trace.calls.get(call) else { continue };
        call_count += usize::from(!trace.control_tools.is_control(&call.name));
        let Some(result) = &call.result else { continue };
        if !context.memo.budget.spend(1 + result.len() / 8) {
            return false;
        }
        match Structure::cached(result, context.memo).as_deref() {
            Some(Structure(Some(records))) => {
                let fields = records.records.iter().flat_map(|record| &record.fields);
                for number in fields.filter_map(RecordField::number) {
                    if number == 0.0 {
                        return false;
                    }
                    has_number = true;
                }
            }
            _ => has_number |= numbers::all(result).iter().any(|n| !n.in_identifier && n.value != 0.0),
        }
    }
    has_number || call_count == 0
}

/// Reports fields that the task lists and the answer does not contain.
fn check_fields(task: &str, answer: &str, findings: &mut Findings) {
    let Some(list) = FIELDS.captures(task).and_then(|c| c.get(1)) else { return };
    let names = list.as_str().split([',', ' ', '\n']).map(|n| n.trim_matches(['`', '"', '\'']));
    for name in names.filter(|n| n.len() > 1 && *n != "and").take(MAX_FIELDS) {
        findings.examine(1);
        if !answer.contains(name) {
            let rationale = format!(
                "the field \"{name}\" was expected, since the request lists it; the answer does not have it"
            );
            findings.push(Defect::PartUnanswered.finding(rationale, list.as_str()).by_rule("field"));
        }
    }
}

/// Reports questions of the task whose names the answer does not mention, while it mentions names of other questions.
fn check_parts(task: &str, memo: &Memo, answer: &str, findings: &mut Findings) {
    if task.len() > MAX_TASK_BYTES || answer.len() < MIN_NAMING_ANSWER_BYTES {
        return;
    }
    let parts: Vec<&str> = task.split_inclusive('?').filter(|p| p.trim_end().ends_with('?')).collect();
    // Names are recognised by their capitals, and may have other forms in other languages.
    if parts.len() < 2 || !is_english(task, None, memo) || !is_english(answer, Some(task), memo) {
        return;
    }
    let lower = answer.to_lowercase();
    let words: HashSet<&str> = lower.split(|c: char| !c.is_alphanumeric()).collect();
    let is_mentioned = |name: &String| {
        let mut long_words = name.split([' ', '-', '’', '\'']).filter(|t| t.chars().count() >= 4);
        long_words.any(|t| words.contains(t.to_lowercase().as_str()))
    };
    let names: Vec<Vec<String>> = parts.iter().map(|p| request::names(p)).collect();
    let is_any_mentioned = names.iter().flatten().any(is_mentioned);
    for (i, (part, part_names)) in parts.iter().zip(&names).enumerate() {
        let is_in_other_part =
            |n: &String| names.iter().enumerate().any(|(j, other)| j != i && other.contains(n));
        let exclusive: Vec<&String> = part_names.iter().filter(|n| !is_in_other_part(n)).collect();
        if !is_any_mentioned || exclusive.is_empty() {
            continue;
        }
        findings.examine(1);
        if !exclusive.iter().any(|n| is_mentioned(n)) {
            let rationale = format!(
                "an answer to this part of the request was expected; the answer says nothing of {}",
                head(&exclusive.iter().map(|n| n.as_str()).collect::<Vec<_>>().join(", "), 120)
            );
            findings.push(Defect::PartUnanswered.finding(rationale, part.trim()).by_rule("part"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::{Script, row};
    use crate::measure::{Measured, Memo, Settings, Value};
    use crate::recognise::AgentTrace;

    const TASK: &str =
        "How many metres taller is Mount Elbrus than Mont Blanc, according to the Alpine Almanac page?";

    fn measure_trace(trace: &AgentTrace) -> Result<Measured, Unmeasured> {
        let (settings, memo) = (Settings::default(), Memo::new());
        let context = Context {
            row: row("completeness"),
            trace,
            at: trace.agents[0].at,
            settings: &settings,
            memo: &memo,
            rule_measurements: &[],
        };
        measure(&context, 0, &trace.agents[0]).outcome
    }

    fn measure_answer(task: &str, answer: &str) -> Measured {
        measure_trace(&Script::new(task).answers(answer).build()).unwrap()
    }

    #[test]
    fn answer_with_all_parts_passes() {
        for (task, answer) in [
            (TASK, "Mount Elbrus is 836 metres taller."),
            ("How many moons has Venus?", "None."),
            ("How many moons has Venus?", "Venus has no moons."),
            ("How many rooms are free on Friday?", "There are no free rooms then."),
            ("How many rooms are free on Friday?", "Just one room is free."),
            ("How many of the three rooms are free?", "Two of the three are."),
            ("How many of the 12 rooms are free?", "Of the 12 rooms 7 are free."),
            ("How high is Mont Blanc? And who first climbed Mount Elbrus?", "4806 m; Killar Khashirov"),
            ("Return JSON with keys \"name\" and \"height\".", "{\"name\": \"Elbrus\", \"height\": 5642}"),
        ] {
            let measured = measure_answer(task, answer);
            assert_eq!((measured.passed, measured.findings.len()), (true, 0), "{task}: {measured:?}");
        }
    }

    #[test]
    fn answer_that_is_compared_with_nothing_is_unmeasured() {
        for (task, answer) in [
            ("How many metres is it?", "Which mountain do you mean?"),
            ("Say hello.", "Hello!"),
            ("Write a poem about the sea.", "The sea is wide."),
            ("How many rooms are free on Friday?", "No, that cannot be booked online."),
            ("How many rooms are free on Friday?", "It is the same as with both of the other hotels."),
            ("How many rooms are free on floor B2?", "The desk on B2 says so once it opens."),
            ("How many of the 12 rooms are free?", "You wish to know it of the 12 rooms."),
            ("How many of the three rooms are free?", "The three rooms are on the upper floor."),
        ] {
            let trace = Script::new(task).answers(answer).build();
            assert_eq!(measure_trace(&trace), Err(Unmeasured::NotApplicable), "{task} {answer}");
        }
    }

    #[test]
    fn facts_of_the_answer_are_compared_with_results_and_not_with_the_request() {
        let measurement_of_answer = |answer: &str| {
            let asked = Script::new("What happened to parcel 88127?");
            let called = asked.calls("", &[("track_parcel", r#"{"parcel":88127}"#)]);
            let trace = called.returns("The parcel of 412 g was sorted in Lyon.").answers(answer).build();
            measure_trace(&trace)
        };
        assert_eq!(measurement_of_answer("Parcel 88127 was sorted."), Err(Unmeasured::NotApplicable));
        let compared = measurement_of_answer("Parcel 88127 was sorted, it weighs 412 g.").unwrap();
        assert_eq!((compared.value, compared.findings.len()), (Value::Score(5.0), 0));
        assert!(!measurement_of_answer("Parcel 88127 was sorted, it weighs 977 g.").unwrap().passed);
    }

    #[test]
    fn missing_number_field_or_part_is_found() {
        let long =
            "Mont Blanc, the highest mountain of the Alps, rises to 4806 metres above the level of the sea.";
        for (task, answer) in [
            (TASK, "Mount Elbrus is clearly the taller of these mountains."),
            ("Return JSON with keys \"name\" and \"height\".", "{\"name\": \"Elbrus\"}"),
            ("How high is Mont Blanc? And who first climbed Mount Elbrus?", long),
        ] {
            let measured = measure_answer(task, answer);
            assert_eq!(measured.value, Value::Score(3.0), "{task}: {measured:?}");
            assert!(!measured.passed && !measured.findings[0].quote.is_empty());
        }
    }

    #[test]
    fn last_turn_of_a_dialogue_is_compared_with_the_open_request() {
        let script_with_two_requests = || {
            Script::new("How many rooms are free?")
                .says("There are 12 of them.")
                .user("Which floor is the spa on?")
        };
        assert_eq!(
            measure_trace(&script_with_two_requests().answers("The spa is in the garden wing.").build()),
            Err(Unmeasured::NotApplicable)
        );
        let asked_back =
            Script::new("How many rooms are free?").says("For which night do you ask?").user("Friday night.");
        let measured =
            measure_trace(&asked_back.answers("We would be happy to welcome you then.").build()).unwrap();
        assert_eq!((measured.passed, measured.value), (false, Value::Score(3.0)));
    }

    #[test]
    fn missing_answer_fails_only_if_one_was_expected() {
        let mut ended = Script::new(TASK).says("").build();
        assert_eq!(measure_trace(&ended).unwrap().value, Value::Score(1.0));
        ended.agents[0].answer = Some("  ".into());
        assert_eq!(measure_trace(&ended).unwrap().value, Value::Score(1.0));
        ended.incomplete = true;
        assert_eq!(measure_trace(&ended), Err(Unmeasured::NotApplicable));
        let hidden = Script::new(TASK).says("").build_without_content();
        assert_eq!(measure_trace(&hidden), Err(Unmeasured::NoContent));
        let mut broken = Script::new(TASK).build();
        broken.agents[0].answer_content = Content::Absent;
        broken.agents[0].llms.push(0);
        assert_eq!(measure_trace(&broken), Err(Unmeasured::NoContent));
        broken.tree.spans[0].status = Status::Error;
        assert_eq!(measure_trace(&broken).unwrap().value, Value::Score(1.0));
        let mut drawn = Script::new(TASK).says("").build();
        let llm = drawn.agents[0].llms[0];
        drawn.views[llm].output[0].parts = vec![Part::Media].into();
        assert_eq!(measure_trace(&drawn), Err(Unmeasured::NoContent));
        let handed = Script::new(TASK).calls("", &[("transfer_to_billing", "{}")]).returns("ok").build();
        assert_eq!(measure_trace(&handed), Err(Unmeasured::NotApplicable));
    }

    #[test]
    fn unsupported_answer_fails() {
        let trace = Script::new(TASK)
            .tools(&["visit_page"])
            .calls("", &[("visit_page", r#"{"url":"almanac.example"}"#)])
            .returns("Error: invalid url: the scheme https:// is required")
            .answers("From memory it is roughly 800 metres.")
            .build();
        let measured = measure_trace(&trace).unwrap();
        assert_eq!((measured.passed, measured.value), (false, Value::Score(2.0)));
        assert_eq!(measured.findings[0].cited.len(), 2);
    }
}
