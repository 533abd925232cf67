//! One of two things that a request joins, and that only the other one of was acted on: "assign Kato and Lindgren", and
//! one call, for Kato.
//!
//! Principle: where the last message of the user joins two things by a comma or a conjunction, and a call of the
//! requested action passes one of them alone, the other one needs a call as well. The things are rows of lookups, which
//! calls name by a key, or values that calls pass as the user wrote them. A thing is done if another call of the tool
//! has it, or any other action has it without the first thing. An answer with a negation, a condition or a question may
//! explain the omission.
//!
//! In: the last message of the user, all calls, and the answer. Out: the tool, and the thing without a call.

use std::collections::BTreeMap;

use super::listed::{MAX_CALLS, MAX_TASK_BYTES, listed_thing, words_with_signs};
use crate::measure::calls::attempts::CallOutcome;
use crate::measure::dialogue::Replies;
use crate::measure::excerpt::lowercase;
use crate::measure::language::names::is_of_class;
use crate::measure::language::{Language, ReadText, WordClass, WordClasses, classes};
use crate::measure::provenance::values;
use crate::measure::reasoning::answer::sentences;
use crate::measure::reasoning::claimed_actions::is_form_of;
use crate::measure::reasoning::conduct::Conduct;
use crate::measure::reasoning::history::end_of;
use crate::measure::reasoning::skipped_step::actions_of_verbs;
use crate::measure::records::{FieldValue, Record, Structure};
use crate::measure::tool_purpose::{Purpose, ToolPurpose, are_alike, purpose, stems};
use crate::pattern::contains_ignoring_case;
use crate::recognise::Call;

/// Maximum words between two joined things, besides the conjunction: articles, prepositions and titles.
const MAX_GAP_WORDS: usize = 3;
/// Minimum characters of a word or a value that names a thing.
const MIN_NAME_CHARS: usize = 3;
/// Maximum rows of all lookups.
const MAX_ROWS: usize = 60;
/// Maximum words of a name.
const MAX_NAME_WORDS: usize = 3;
/// Maximum mentions of one value.
const MAX_MENTIONS: usize = 4;
/// Maximum pairs that are compared.
const MAX_PAIRS: usize = 32;
/// Classes of words of a message in which joined things need not all be acted on.
const CHOICE: WordClasses = classes!(Negation Exception Alternative Condition Already Comparison Which);
/// Classes of words of an answer that may explain an omission.
const EXPLANATION: WordClasses = classes!(Negation Condition Already Exception Contrast);

/// A thing that a request names.
#[derive(Clone)]
struct Thing {
    /// The name in the request, in lower case.
    name: String,
    /// The values by which calls name the thing alone, in lower case.
    keys: Vec<String>,
}

impl Thing {
    /// Whether a call passes the thing as a value of its own.
    fn is_passed_by(&self, call: &Call) -> bool {
        values(call).any(|(_, value)| self.keys.contains(&lowercase(&value)))
    }

    /// Whether a text has the name or a key of the thing.
    fn is_in(&self, text: Option<&str>) -> bool {
        let is_long = |key: &&String| key.chars().count() >= MIN_NAME_CHARS;
        let has = |text: &str| {
            self.keys.iter().chain([&self.name]).filter(is_long).any(|key| contains_ignoring_case(text, key))
        };
        text.is_some_and(has)
    }
}

/// Two things that a request joins, the first of them done, and the part of the request that names them.
type Pair<'r> = (Thing, Thing, &'r str);

/// The tool and the thing that a call of it was expected for.
pub(super) fn omitted<'t>(conduct: &Conduct<'t>, answer: &str) -> Option<(&'t str, String)> {
    let Conduct { trace, memo, attempts, agent, .. } = *conduct;
    let replies = Replies::cached(trace, memo);
    let last_reply = agent.llms.iter().rev().find_map(|at| Some((*at, replies.to(*at)?)));
    let request = last_reply.map(|(_, reply)| reply).or(conduct.task(MAX_TASK_BYTES))?;
    let start = last_reply.map_or(0, |(at, _)| end_of(trace, at));
    let turn: Vec<(usize, &Call)> =
        trace.calls.iter().enumerate().filter(|(_, call)| call.start >= start).collect();
    let has_succeeded = |i: usize| attempts.at(i).is_some_and(|a| a.outcome == CallOutcome::Succeeded);
    // A failed call may be the reason of an omission.
    let is_examined = request.len() <= MAX_TASK_BYTES
        && turn.iter().all(|(i, call)| has_succeeded(*i) && call.arguments.is_some())
        && turn.iter().any(|(_, call)| purpose(trace, memo, call) != Purpose::Query);
    let language = Language::detected(request, Some(answer), memo)
        .filter(|language| is_examined && language.is_spaced())?;
    let joined = Joined { request, lower: lowercase(request), language };
    let is_joint = |word: &str| joined.is_joint(word);
    if joined.lower.len() != request.len() || !words_with_signs(request).split(' ').any(is_joint) {
        return None;
    }
    let changes: Vec<&Call> = turn
        .iter()
        .map(|(_, call)| *call)
        .filter(|call| purpose(trace, memo, call) != Purpose::Query)
        .collect();
    let omits = |(one, other, part): &Pair<'_>| {
        let requested = actions_of_verbs(part, language);
        let is_requested = |call: &Call| {
            let purpose = ToolPurpose::for_call(trace, memo, call);
            let mut name = stems(&call.name);
            purpose
                .actions
                .first()
                .is_some_and(|action| requested.iter().any(|verb| are_alike(*action, *verb)))
                || name.any(|stem| stems(part).any(|word| word == stem))
        };
        let arguments = |call: &'t Call| call.arguments.as_deref();
        let done = changes
            .iter()
            .find(|call| one.is_passed_by(call) && !other.is_in(arguments(call)) && is_requested(call))?;
        let may_be_done = changes.iter().any(|call| {
            let has =
                other.is_in(arguments(call)) || call.name != done.name && other.is_in(call.result.as_deref());
            has && (call.name == done.name || !one.is_in(arguments(call)))
        });
        let is_all = changes
            .iter()
            .any(|call| values(call).any(|(_, value)| is_of_class(&value, WordClass::Quantifier)));
        // A lookup may show that the thing was in that state before.
        let action = ToolPurpose::for_call(trace, memo, done).actions.first().copied();
        let had_state = || {
            trace
                .calls
                .iter()
                .filter_map(|call| call.result.as_deref())
                .filter(|text| other.is_in(Some(text)))
                .any(|text| {
                    let mut words = text.split(|c: char| !c.is_alphabetic());
                    action.is_some_and(|action| {
                        words.any(|word| word.ends_with("ed") && is_form_of(&lowercase(word), action))
                    })
                })
        };
        (!may_be_done && !is_all && !language.classes(part).has_any(CHOICE) && !had_state())
            .then(|| (done.name.trim(), other.clone()))
    };
    let pairs = joined.pairs_of_rows(conduct).into_iter().chain(joined.pairs_of_values(&changes));
    let found = pairs.take(MAX_PAIRS).find_map(|pair| omits(&pair))?;
    let analysed = ReadText::new(answer, Some(request), memo);
    let may_explain = analysed.classes(answer).has_any(EXPLANATION)
        || language.classes(answer).has_any(EXPLANATION)
        || answer.contains(['?', '\u{ff1f}'])
        || !analysed.refusals().is_empty()
        || !analysed.inability().is_empty();
    // A sentence about the thing may explain its omission, other than one with the values of its row.
    let (tool, thing) = found;
    let states_reason = |sentence: &str| {
        let lower = lowercase(sentence);
        let has_value =
            |key: &String| key.len() >= MIN_NAME_CHARS && *key != thing.name && lower.contains(key.as_str());
        lower.contains(&thing.name) && !thing.keys.iter().any(has_value)
    };
    let statements = sentences(answer).into_iter().filter_map(|(start, end)| answer.get(start..end));
    let mut statements = statements.flat_map(str::lines).filter(|line| listed_thing(line.trim()).is_none());
    (!may_explain && !statements.any(states_reason)).then_some((tool, thing.name))
}

/// A request in which joined things are searched.
struct Joined<'r> {
    request: &'r str,
    lower: String,
    language: Language,
}

impl<'r> Joined<'r> {
    fn is_joint(&self, word: &str) -> bool {
        matches!(word, "," | "&") || self.language.classes(word).has(WordClass::Conjunction)
    }

    /// Whether the text between two things only joins them, as written by the user.
    fn joins(&self, gap: &str) -> bool {
        let words = gap.split_whitespace().map(|word| word.trim_end_matches('.'));
        let is_small = |word: &&str| {
            let lower = lowercase(word);
            self.language.is_function_word(&lower) || is_of_class(&lower, WordClass::Title)
        };
        let others: Vec<&str> = words
            .map(|word| word.trim_matches(','))
            .filter(|word| !word.is_empty() && !self.is_joint(word))
            .collect();
        let has_joint = gap.contains(',') || gap.split_whitespace().any(|word| self.is_joint(word));
        has_joint
            && others.len() <= MAX_GAP_WORDS
            && others.iter().all(|word| is_small(word) && actions_of_verbs(word, self.language).is_empty())
    }

    /// The part of the request around two things: of their sentence, up to the next comma.
    fn part(&self, from: usize, to: usize) -> &'r str {
        let sentence = sentences(self.request).into_iter().find(|(start, end)| *start <= from && to <= *end);
        let (start, end) = sentence.unwrap_or((0, self.request.len()));
        let after = self.request.get(to..end).unwrap_or_default();
        let end = to + after.find([',', ';', ':']).unwrap_or(after.len());
        self.request.get(start..end).unwrap_or_default()
    }

    /// The positions of a name as whole words.
    fn positions(&self, name: &str) -> impl Iterator<Item = (usize, usize)> {
        let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '-');
        self.lower.match_indices(name).map(|(at, name)| (at, at + name.len())).filter(move |(from, to)| {
            let (before, after) = (self.lower.get(..*from), self.lower.get(*to..));
            !is_word(before.and_then(|text| text.chars().next_back()))
                && !is_word(after.and_then(|text| text.chars().next()))
        })
    }

    /// The pairs of joined things that are rows of one list, or results of one tool, in both orders.
    fn pairs_of_rows(&self, conduct: &Conduct<'_>) -> Vec<Pair<'r>> {
        let Conduct { trace, memo, .. } = *conduct;
        let lookups = trace.calls.iter().filter(|call| purpose(trace, memo, call) == Purpose::Query);
        let mut rows_by_source: BTreeMap<(&str, usize), Vec<Vec<String>>> = BTreeMap::new();
        for call in lookups.take(MAX_CALLS) {
            let structure = call.result.as_ref().and_then(|result| Structure::cached(result, memo));
            let Some(structure) = structure else { continue };
            let Some(parsed) = &structure.0 else { continue };
            let texts = |record: &Record| {
                let fields = record.fields.iter().filter(|field| !matches!(field.value, FieldValue::Bool(_)));
                fields.map(|field| lowercase(field.shown())).collect::<Vec<String>>()
            };
            for record in parsed.records.iter().take(MAX_ROWS) {
                let source = (call.name.trim(), record.list.map_or(0, |list| list + 1));
                rows_by_source.entry(source).or_default().push(texts(record));
            }
        }
        let lists = rows_by_source.into_values().filter(|rows| (2..=MAX_ROWS).contains(&rows.len()));
        lists.flat_map(|rows| self.pairs_of_list(&rows)).collect()
    }

    /// The pairs of joined things that are rows of a list.
    fn pairs_of_list(&self, rows: &[Vec<String>]) -> Vec<Pair<'r>> {
        let is_unique = |value: &&String| rows.iter().filter(|row| row.contains(value)).count() == 1;
        let words = |row: &[String]| {
            let words = row.iter().flat_map(|value| value.split(|c: char| !c.is_alphanumeric()));
            let words = words.filter(|word| {
                word.chars().count() >= MIN_NAME_CHARS
                    && word.chars().all(char::is_alphabetic)
                    && !self.language.is_function_word(word)
            });
            words.map(str::to_owned).collect::<Vec<String>>()
        };
        let all_words: Vec<Vec<String>> = rows.iter().map(|row| words(row)).collect();
        let is_unique_word = |word: &&String| all_words.iter().filter(|row| row.contains(word)).count() == 1;
        let mut named: Vec<(usize, usize, Thing)> = Vec::new();
        for (row, words) in rows.iter().zip(&all_words) {
            let positions = words
                .iter()
                .filter(is_unique_word)
                .filter_map(|word| Some((word, self.positions(word).next()?)));
            if let Some((name, (from, to))) = positions.max_by_key(|(_, (_, to))| *to) {
                let keys = row.iter().filter(is_unique).cloned().collect();
                named.push((from, to, Thing { name: name.clone(), keys }));
            }
        }
        named.sort_by_key(|(from, ..)| *from);
        let adjacent = named.iter().zip(named.iter().skip(1));
        let joined = adjacent.filter(|((_, end, _), (start, ..))| {
            self.request.get(*end..*start).is_some_and(|gap| self.joins(gap))
        });
        let pairs = joined.flat_map(|((from, _, one), (_, to, other))| {
            let part = self.part(*from, *to);
            [(one.clone(), other.clone(), part), (other.clone(), one.clone(), part)]
        });
        pairs.collect()
    }

    /// The pairs of a value that a call passes as the user wrote it, and a name that the user joins to it.
    fn pairs_of_values(&self, calls: &[&Call]) -> Vec<Pair<'r>> {
        let passed = calls.iter().flat_map(|call| values(call)).map(|(_, value)| lowercase(&value));
        let passed = passed.filter(|value| value.chars().count() >= MIN_NAME_CHARS);
        let places = passed.flat_map(|value| {
            let positions: Vec<(usize, usize)> = self.positions(&value).take(MAX_MENTIONS).collect();
            positions.into_iter().map(move |at| (value.clone(), at))
        });
        let pairs = places.filter_map(|(value, (from, to))| {
            let one = Thing { name: value.clone(), keys: vec![value] };
            let is_name = |text: &str| text.starts_with(|c: char| c.is_uppercase() || c == '/');
            self.request.get(from..to).filter(|text| is_name(text))?;
            let after = self.name_after(self.request.get(to..)?).map(|(name, end)| (name, from, to + end));
            let before =
                || self.name_before(self.request.get(..from)?).map(|(name, start)| (name, start, to));
            let (name, start, end) = after.or_else(before)?;
            let name = lowercase(name);
            let other = Thing { keys: vec![name.clone()], name: name.split(' ').next_back()?.to_owned() };
            Some((one, other, self.part(start, end)))
        });
        pairs.collect()
    }

    /// The name that a text joins to what is before the text, with its end.
    fn name_after(&self, text: &'r str) -> Option<(&'r str, usize)> {
        let start = text.find(|c: char| c.is_uppercase() || c == '/')?;
        let gap =
            text.get(..start).filter(|gap| self.joins(gap) && !gap.contains(['.', ';', ':', '?', '!']))?;
        let name = self.name_at(text.get(gap.len()..)?)?;
        Some((name, start + name.len()))
    }

    /// The name to which a text joins what follows the text, with its start.
    fn name_before(&self, text: &'r str) -> Option<(&'r str, usize)> {
        let starts = text.char_indices().filter(|(at, c)| {
            let is_start = text.get(..*at).is_some_and(|before| before.ends_with([' ', '(']));
            is_start && (c.is_uppercase() || *c == '/')
        });
        let starts: Vec<usize> = starts.map(|(at, _)| at).collect();
        starts.iter().rev().take(MAX_NAME_WORDS).find_map(|start| {
            let name = self.name_at(text.get(*start..)?)?;
            let gap = text.get(start + name.len()..)?;
            self.joins(gap).then_some((name, *start))
        })
    }

    /// The name with which a text begins: words with capitals, or one word that is a path.
    fn name_at(&self, text: &'r str) -> Option<&'r str> {
        let ends =
            text.char_indices().filter(|(_, c)| c.is_whitespace() || matches!(c, ',' | ';' | '?' | '!'));
        let mut ends = ends.map(|(at, _)| at).chain([text.len()]);
        let mut end = ends.next()?;
        for next in ends.take(MAX_NAME_WORDS - 1) {
            let word = text.get(end..next).and_then(|word| word.strip_prefix(' '));
            if !word.is_some_and(|word| word.starts_with(char::is_uppercase)) {
                break;
            }
            end = next;
        }
        let name = text.get(..end)?.trim_end_matches(['.', ':']);
        let is_word = name.contains('\'') || self.language.is_function_word(&lowercase(name));
        (name.chars().count() >= MIN_NAME_CHARS && !is_word).then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::conduct::findings_of;
    use crate::measure::testing::Script;

    const TOOLS: [&str; 4] = ["list_members", "invite_member", "cancel_item", "send_note"];

    fn finding_count(task: &str, calls: &[(&str, &str, &str)], answer: &str) -> usize {
        let script = Script::new(task).tools(&TOOLS);
        let script = calls.iter().fold(script, |script, (tool, arguments, result)| {
            script.calls("", &[(*tool, arguments)]).returns(result)
        });
        findings_of(super::super::check, &script.answers(answer).build()).len()
    }

    const MEMBERS: (&str, &str, &str) = (
        "list_members",
        "{}",
        r#"{"members":[{"id":"m-3","name":"L. Amari"},{"id":"m-8","name":"T. Brandvold"},{"id":"m-9","name":"K. Osei"}]}"#,
    );
    const AMARI: (&str, &str, &str) = ("invite_member", r#"{"member":"m-3"}"#, r#"{"ok":true}"#);
    const BRANDVOLD: (&str, &str, &str) = ("invite_member", r#"{"member":"m-8"}"#, r#"{"ok":true}"#);

    #[test]
    fn one_of_two_joined_rows_without_a_call_is_found() {
        for task in [
            "Invite Amari and Brandvold to the talk.",
            "Please invite Mr Amari and Ms Brandvold.",
            "Invite Brandvold, Amari and book the hall.",
        ] {
            assert_eq!(finding_count(task, &[MEMBERS, AMARI], "L. Amari has been invited."), 1, "{task}");
            assert_eq!(finding_count(task, &[MEMBERS, AMARI, BRANDVOLD], "Both are invited."), 0, "{task}");
        }
        let items = (
            "list_items",
            "{}",
            r#"{"items":[{"item_id":"I-19","type":"lamp"},{"item_id":"I-20","type":"carpet"}]}"#,
        );
        let lamp = ("cancel_item", r#"{"item_id":"I-19"}"#, r#"{"state":"cancelled"}"#);
        let carpet = ("cancel_item", r#"{"item_id":"I-20"}"#, r#"{"state":"cancelled"}"#);
        let task = "Cancel the lamp and the carpet, keep the sofa.";
        assert_eq!(finding_count(task, &[items, lamp], "The lamp (I-19) is cancelled."), 1);
        assert_eq!(finding_count(task, &[items, lamp, carpet], "Both are cancelled."), 0);
    }

    #[test]
    fn one_of_two_joined_names_without_a_call_is_found() {
        let note = ("send_note", r#"{"to":"Amari","text":"The talk is on Friday."}"#, r#"{"ok":true}"#);
        for task in [
            "Send a note about Friday to Amari and Dean Brandvold.",
            "Send both Brandvold and Amari a note about Friday.",
        ] {
            assert_eq!(finding_count(task, &[note], "Amari has the note about Friday."), 1, "{task}");
        }
    }

    #[test]
    fn explained_omissions_and_things_that_belong_together_are_right() {
        let task = "Invite Amari and Brandvold to the talk.";
        for answer in [
            "L. Amari has been invited. I could not invite T. Brandvold, whose account is locked.",
            "L. Amari has been invited. T. Brandvold was already invited.",
            "L. Amari has been invited. Shall I invite T. Brandvold as well?",
        ] {
            assert_eq!(finding_count(task, &[MEMBERS, AMARI], answer), 0, "{answer}");
        }
        let done = "L. Amari has been invited.";
        for task in [
            "Compare the records of Amari and Brandvold.",
            "Invite Amari or Brandvold to the talk.",
            "Invite Amari and thank Brandvold.",
            "Invite Amari, unless Osei and Amari are busy.",
        ] {
            assert_eq!(finding_count(task, &[MEMBERS, AMARI], done), 0, "{task}");
        }
        let group = ("send_note", r#"{"to":["Amari","Brandvold"],"text":"Friday."}"#, r#"{"ok":true}"#);
        assert_eq!(finding_count("Send a note to Amari and Brandvold.", &[group], "They have the note."), 0);
        let by_address = ("send_note", r#"{"to":"t.brandvold@club.example"}"#, r#"{"ok":true}"#);
        let note = ("send_note", r#"{"to":"Amari"}"#, r#"{"ok":true}"#);
        assert_eq!(
            finding_count("Send a note to Amari and Brandvold.", &[note, by_address], "They have the note."),
            0
        );
        let other_tool = ("invite_guest", r#"{"guest":"m-8"}"#, r#"{"ok":true}"#);
        assert_eq!(finding_count(task, &[MEMBERS, AMARI, other_tool], "Both are invited."), 0);
        let booked = ("book_table", r#"{"name":"Amari","seats":2}"#, r#"{"ok":true}"#);
        assert_eq!(finding_count("Invite Amari and Brandvold.", &[booked], "The table is booked."), 0);
    }
}
