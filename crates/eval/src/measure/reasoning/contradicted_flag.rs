//! Flags of a call that contradict the request.
//!
//! Principle: where the request states or excludes a property ("pet-friendly hotels", "without breakfast") and a
//! call has a flag that is named for this property, the flag has the same value. Another call of the same tool with
//! the requested value corrects it. A tool that sets a property may set it to either value.
//!
//! The same applies to the flags of a thing that an action chooses by its identifier from a list of a result, if
//! another thing in the list has the other value: "a non-smoking room", and the booked room has `smoking: true`.
//!
//! In: a request, and the calls and plans of its agent. Out: one finding, on the model span that wrote the first call
//! or plan with such a flag. A request states a property before a noun or after a word such as "with" or "only". A
//! question about a property ("is it available?") states nothing, and a property of an existing thing ("my express
//! order") is not requested.

use std::cell::OnceCell;
use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde_json::Value;
use verdict_otlp::trace::Idx;

use crate::measure::calls::attempts::quoted;
use crate::measure::defects::Defect;
use crate::measure::identifier::identifier_words;
use crate::measure::language::{Action, GrammarGroup, Language, WordClasses, classes};
use crate::measure::numbers::has_digit;
use crate::measure::records::{FieldValue, Record, Structure};
use crate::measure::tool_purpose::{Purpose, ToolPurpose, action_of, purpose};
use crate::measure::work_budget::BYTES_PER_STEP;
use crate::measure::{Finding, Memo, agent_index};
use crate::recognise::{Agent, AgentTrace, Call, Text, json_keys};

static TRUE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("true"));
static FALSE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("false"));

// The names of flags are identifiers in code, which are English for users of any language.

/// Words in the name of a flag that are not part of its property.
const FILLERS: [&str; 16] = [
    "only",
    "is",
    "are",
    "has",
    "have",
    "with",
    "include",
    "includes",
    "including",
    "show",
    "filter",
    "by",
    "must",
    "be",
    "require",
    "required",
];
/// Words in the name of a flag, or before a property in a request, that negate or exclude the property.
const NEGATIVE_WORDS: [&str; 10] =
    ["no", "not", "non", "without", "exclude", "excluding", "hide", "skip", "avoid", "omit"];
/// Classes of words before a property that exclude it.
const EXCLUSION: WordClasses = classes!(Negation Exception);
/// Classes of words that are not nouns, so that a property before such a word is not an attribute. Other function words
/// are not nouns either.
const NO_NOUN: WordClasses = classes!(Negation Modal Condition Sequence Alternative RelativeDay AtOnce);
/// Maximum bytes of a request: a longer one contains other texts.
const MAX_TASK_BYTES: usize = 4000;
/// Maximum calls and plans of an agent that are compared.
const MAX_STEPS: usize = 200;
/// Maximum flags of each call or plan.
const MAX_FLAGS: usize = 32;

/// Findings by model span.
pub(crate) fn find(trace: &AgentTrace, memo: &Memo) -> Vec<(Idx, Finding)> {
    let agents = trace.agents.iter().enumerate();
    agents.filter_map(|(i, agent)| first_finding(trace, memo, i, agent)).collect()
}

/// A call, or a plan in the form of the arguments of a call, with its flags.
struct FlaggedStep<'a> {
    /// The model span that wrote the call or plan.
    author: Option<Idx>,
    at: Idx,
    name: &'a str,
    text: &'a str,
    flags: Vec<(String, bool)>,
}

/// The finding on the first step of an agent with a flag against the request.
fn first_finding(trace: &AgentTrace, memo: &Memo, i: usize, agent: &Agent) -> Option<(Idx, Finding)> {
    let task = agent_index::task(trace, i).filter(|task| task.len() <= MAX_TASK_BYTES)?;
    let planned = agent.plans.iter().take(MAX_STEPS).filter(|(_, plan)| plan.text.starts_with('{'));
    let planned = planned.filter_map(|(at, plan)| {
        let flags = flags(&json_keys::parse(&plan.text)?);
        Some(FlaggedStep { author: Some(*at), at: *at, name: "the plan", text: &plan.text, flags })
    });
    let results = OnceCell::new();
    let called = agent.calls.iter().take(MAX_STEPS).filter_map(|&c| {
        let call = trace.calls.get(c)?;
        let mut flags = flags(call.parsed.as_ref()?);
        let results = results.get_or_init(|| results_with_flags(trace, memo, agent));
        flags.extend(flags_of_chosen_record(trace, memo, results, call));
        // Not for tools that set a property, since the verb of the request may imply either value: "stop all marketing
        // mails".
        if !flags.is_empty()
            && ToolPurpose::for_call(trace, memo, call).actions.first() == Some(&Action::Update)
        {
            return None;
        }
        Some(FlaggedStep { author: call.llm, at: call.at, name: call.name.trim(), text: quoted(call), flags })
    });
    let steps: Vec<FlaggedStep<'_>> = planned.chain(called).filter(|step| !step.flags.is_empty()).collect();
    // The words around a property are known in English only.
    if steps.is_empty() || Language::detected(task, None, memo) != Some(Language::English) {
        return None;
    }
    let request = RequestTokens::from_task(task);
    let flags: usize = steps.iter().map(|step| step.flags.len()).sum();
    if !memo.budget.spend(request.0.len() * flags) {
        return None;
    }
    let (step, key, value) = steps.iter().find_map(|step| {
        let contradicts =
            |(key, value): &&(String, bool)| request.demanded_value(key).is_some_and(|w| w != *value);
        let (key, value) = step.flags.iter().find(contradicts)?;
        Some((step, key, *value))
    })?;
    let corrects = |other: &FlaggedStep<'_>| {
        other.name == step.name && other.flags.iter().any(|(k, v)| k == key && *v != value)
    };
    if steps.iter().any(corrects) {
        return None;
    }
    let rationale = format!(
        "{key} = {} was expected, since the request says so; {} has {key} = {value}",
        !value, step.name
    );
    let finding = Defect::ContradictsRequest.finding(rationale, step.text).citing_at(trace, step.at);
    Some((step.author?, finding))
}

/// The boolean members of arguments and of the objects in them.
fn flags(arguments: &Value) -> Vec<(String, bool)> {
    let Some(arguments) = arguments.as_object() else { return Vec::new() };
    let nested = arguments.values().filter_map(Value::as_object).flatten();
    let flag = |(key, value): (&String, &Value)| value.as_bool().map(|is_set| (key.clone(), is_set));
    arguments.iter().chain(nested).filter_map(flag).take(MAX_FLAGS).collect()
}

/// The results of an agent's calls that may have flags of both values, read once; none beyond the work budget.
fn results_with_flags<'t>(trace: &'t AgentTrace, memo: &Memo, agent: &Agent) -> Vec<(u64, &'t Text)> {
    let calls = agent.calls.iter().take(MAX_STEPS).filter_map(|at| trace.calls.get(*at));
    let results = calls.filter_map(|call| Some((call.start, call.result.as_ref()?)));
    let within = results.take_while(|(_, result)| memo.budget.spend(1 + result.len() / BYTES_PER_STEP));
    let has = |text: &Text, value: &Finder<'_>| value.find(text.as_bytes()).is_some();
    within.filter(|(_, result)| has(result, &TRUE) && has(result, &FALSE)).collect()
}

/// The flags of the record in a list of an earlier result that an action names by its identifier, if another record of
/// the list has the other value. Empty beyond the work budget.
fn flags_of_chosen_record(
    trace: &AgentTrace,
    memo: &Memo,
    results: &[(u64, &Text)],
    call: &Call,
) -> Vec<(String, bool)> {
    let mut flags = Vec::new();
    let arguments = call.parsed.as_deref().and_then(Value::as_object).into_iter().flatten();
    let named: Vec<&str> =
        arguments.filter_map(|(_, value)| value.as_str()).filter(|id| has_digit(id)).collect();
    if named.is_empty() || purpose(trace, memo, call) != Purpose::Action {
        return flags;
    }
    for (_, result) in results.iter().take_while(|(start, _)| *start < call.start) {
        if !memo.budget.spend((1 + result.len() / BYTES_PER_STEP) * named.len()) {
            return Vec::new();
        }
        let Some(structure) = Structure::cached(result, memo) else { return Vec::new() };
        let Structure(Some(parsed)) = &*structure else { continue };
        let is_named = |record: &&Record| {
            record.list.is_some() && record.fields.iter().any(|field| named.contains(&field.shown()))
        };
        let Some(record) = parsed.records.iter().find(is_named) else { continue };
        let rows = || parsed.records.iter().filter(|row| row.list == record.list).take(MAX_STEPS);
        for field in record.fields.iter().take(MAX_FLAGS) {
            let FieldValue::Bool(value) = field.value else { continue };
            if !memo.budget.spend(1 + result.len() / BYTES_PER_STEP) {
                return Vec::new();
            }
            let differs = |row: &Record| {
                row.fields
                    .iter()
                    .any(|other| other.name == field.name && other.value == FieldValue::Bool(!value))
            };
            if rows().any(differs) {
                flags.push((field.name.join("_"), value));
            }
        }
    }
    flags
}

/// The words of a request in lower case, each with whether a punctuation mark follows it.
struct RequestTokens(Vec<(String, bool)>);

impl RequestTokens {
    fn from_task(task: &str) -> RequestTokens {
        let word = |piece: &str| {
            let bare = piece.trim_matches(|c: char| !c.is_alphanumeric());
            let marked = piece.trim_start_matches(|c: char| !c.is_alphanumeric()).len() > bare.len();
            (bare.replace('\u{2019}', "'"), marked)
        };
        let lower = task.to_lowercase();
        // "pet-friendly" and "non-stop" are two words of a name.
        RequestTokens(lower.split([' ', '\n', '\t', '-']).filter(|p| !p.is_empty()).map(word).collect())
    }

    /// The value that the request demands of the flag `key`; `None` if it demands none.
    fn demanded_value(&self, key: &str) -> Option<bool> {
        let words = identifier_words(key);
        let negated = words.iter().filter(|w| NEGATIVE_WORDS.contains(&w.as_str())).count() % 2 == 1;
        let property: Vec<&str> = words
            .iter()
            .map(String::as_str)
            .filter(|w| !FILLERS.contains(w) && !NEGATIVE_WORDS.contains(w))
            .collect();
        if property.is_empty() || property.iter().any(|w| w.len() < 3) || self.leaves_properties_open() {
            return None;
        }
        let places = self.0.windows(property.len()).enumerate();
        let mut mentions =
            places.filter(|(_, words)| words.iter().map(|(w, _)| w.as_str()).eq(property.iter().copied()));
        let (at, _) = mentions.next()?;
        // Two mentions may state different values.
        let stated = self.stated(at, property.len()).filter(|_| mentions.next().is_none())?;
        Some(stated != negated)
    }

    fn leaves_properties_open(&self) -> bool {
        self.0.iter().any(|(word, _)| Language::English.is_in_group(word, GrammarGroup::Open))
    }

    /// Whether the property at the word `at` is stated (`true`) or excluded (`false`); `None` if it is neither.
    fn stated(&self, at: usize, len: usize) -> Option<bool> {
        const ENGLISH: Language = Language::English;
        let before = |n: usize| {
            let token = at.checked_sub(n).and_then(|i| self.0.get(i)).filter(|(_, mark)| !mark);
            token.map(|(word, _)| word.as_str())
        };
        let is_exclusion = |word: &str| {
            NEGATIVE_WORDS.contains(&word)
                || ENGLISH.classes(word).has_any(EXCLUSION)
                || action_of(word) == Some(Action::Delete)
        };
        let is_before = |group| before(1).is_some_and(|word| ENGLISH.is_in_group(word, group));
        let is_article = || before(1).is_some_and(|word| ENGLISH.is_function_word(word));
        if before(1).is_some_and(is_exclusion) || is_article() && before(2).is_some_and(is_exclusion) {
            return Some(false);
        }
        let marked = self.0.get(at + len - 1).is_some_and(|(_, mark)| *mark);
        let next = self.0.get(at + len).filter(|_| !marked).map(|(word, _)| word.as_str());
        let is_noun = |word: &str| !ENGLISH.is_function_word(word) && !ENGLISH.classes(word).has_any(NO_NOUN);
        let is_wanted = next.is_some_and(is_noun) && !is_before(GrammarGroup::Definite);
        (is_wanted || is_before(GrammarGroup::Wanted)).then_some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::Script;
    use crate::recognise::RecordedPlan;

    fn demanded_value(task: &str, key: &str) -> Option<bool> {
        RequestTokens::from_task(task).demanded_value(key)
    }

    #[test]
    fn stated_and_excluded_properties_are_demands() {
        for (task, key) in [
            ("Find pet-friendly hotels in Lyon.", "pet_friendly"),
            ("Which available lamps cost less than 20?", "availableOnly"),
            ("A room with breakfast, please.", "include_breakfast"),
            ("The flight must be refundable.", "refundable"),
            ("Only verified sellers.", "verified_only"),
        ] {
            assert_eq!(demanded_value(task, key), Some(true), "{task}");
        }
        for (task, key) in [
            ("A room without breakfast, please.", "breakfast"),
            ("Non-smoking rooms in Porto.", "smoking"),
            ("List verified sellers.", "exclude_verified"),
        ] {
            assert_eq!(demanded_value(task, key), Some(false), "{task}");
        }
    }

    #[test]
    fn questions_open_requests_and_other_words_demand_nothing() {
        for (task, key) in [
            ("Is lamp 5 available?", "available_only"),
            ("Which lamps are available in red?", "available_only"),
            ("List unavailable lamps.", "available_only"),
            ("All verified sellers, including new ones.", "verified_only"),
            ("Verified sellers first, then not verified ones.", "verified"),
            ("Find hotels in Lyon.", "pet_friendly"),
            ("Find hotels in Lyon.", "only"),
            ("Create an invoice for our recurring customer Lindt.", "recurring"),
            ("Book a room for the visit of the remote team.", "remote"),
        ] {
            assert_eq!(demanded_value(task, key), None, "{task}");
        }
    }

    #[test]
    fn flag_of_the_thing_that_an_action_chooses_contradicts_the_request() {
        let rooms = r#"{"rooms":[{"id":"R-11","smoking":true},{"id":"R-17","smoking":false}]}"#;
        let run = |task: &str, rooms: &str, id: &str| {
            let script = Script::new(task).tools(&["search_rooms", "book_room"]);
            let script = script.calls("", &[("search_rooms", "{}")]).returns(rooms);
            let script =
                script.calls("", &[("book_room", &format!(r#"{{"room_id":"{id}"}}"#))]).returns("ok");
            find(&script.answers("It is booked.").build(), &Memo::new()).len()
        };
        let task = "Book a non-smoking room for 3 October.";
        assert_eq!(run(task, rooms, "R-11"), 1);
        assert_eq!(run(task, rooms, "R-17"), 0);
        assert_eq!(run("Book a room for 3 October.", rooms, "R-11"), 0);
        // No room has the requested value.
        let all = r#"{"rooms":[{"id":"R-11","smoking":true},{"id":"R-17","smoking":true}]}"#;
        assert_eq!(run(task, all, "R-11"), 0);
    }

    #[test]
    fn flag_against_the_request_is_found_unless_another_call_corrects_it() {
        let run = |calls: &[&str]| {
            let script = Script::new("Find pet-friendly hotels in Lyon.");
            let called = calls.iter().fold(script, |s, arguments| {
                s.calls("", &[("search_hotels", arguments)]).returns("[\"Hotel Rhone\"]")
            });
            let trace = called.answers("Hotel Rhone").build();
            find(&trace, &Memo::new())
                .into_iter()
                .map(|(at, f)| (at == trace.agents[0].llms[0], f))
                .collect::<Vec<_>>()
        };
        let findings = run(&[r#"{"city":"Lyon","filters":{"pet_friendly":false}}"#]);
        assert!(
            matches!(&findings[..], [(true, f)] if f.rationale.contains("pet_friendly = true")),
            "{findings:?}"
        );
        assert!(run(&[r#"{"pet_friendly":true}"#]).is_empty());
        assert!(run(&[r#"{"pet_friendly":false}"#, r#"{"pet_friendly":true}"#]).is_empty());
        assert!(run(&[r#"{"city":"Lyon"}"#]).is_empty());
        let mut planned = Script::new("Find pet-friendly hotels in Lyon.").answers("Hotel Rhone").build();
        let text = r#"{"pet_friendly":false}"#.into();
        let plan = RecordedPlan { text, replan: false, steps: Vec::new() };
        let at = planned.agents[0].llms[0];
        planned.agents[0].plans.push((at, plan));
        assert_eq!(find(&planned, &Memo::new()).len(), 1);
    }
}
