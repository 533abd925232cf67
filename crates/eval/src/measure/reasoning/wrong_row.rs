//! Actions on another row of a lookup than the one that the request names: "Email Ana Ruiz", and a message to the
//! address of Andrea Novak.
//!
//! Principle: a request that names a row of a lookup (the named row) is about this row. An action that passes a value
//! which only another row (the passed row) has contradicts the request.
//!
//! A row is named in one of these ways: by a proper name that is the object of the request; by a value with a hyphen
//! or a digit (`shop-stg`), if neither the user nor the answer names the passed value; by a word that only this row
//! has, if the user and the answer both use it and no word of the passed row; or by a value that distinguishes it from
//! rows with the same name ("Anna from accounting").
//!
//! There is no finding if the request names a value of the passed row, if one of the two rows refers to the other, as a
//! manager does, or if another call passes a value of the named row. In a dialogue every message of the user counts. If
//! the agent offered the passed row, the user must have replied with the named row. A named row that differs in a flag,
//! a state or a count of 0 may be unavailable; an answer that names the passed row then explains the choice.
//!
//! In: the request, the results of lookups, and the actions after them. Out: one finding for each agent, on the model
//! span that requested the call; in an unsupported language only the span, since words of the request could exclude a
//! finding.

mod rows;

use std::cell::OnceCell;
use std::rc::Rc;

use foldhash::HashSet;
use serde_json::Value;
use verdict_otlp::trace::Idx;

use self::rows::{
    MAX_ROWS, MIN_NAME, identifies, is_code, is_date_of, is_state, may_be_unavailable, refers, with_children,
    words,
};
use super::conduct::Conduct;
use super::statements::{LowercaseWords, contains_words, words_of};
use crate::measure::calls::attempts::{CallAttempts, CallOutcome};
use crate::measure::defects::Defect;
use crate::measure::dialogue::Replies;
use crate::measure::identifier::identifier_words;
use crate::measure::language::{Language, WordClass, WordClasses, classes};
use crate::measure::records::{Record, RecordField, Structure};
use crate::measure::work_budget::BYTES_PER_STEP;
use crate::measure::{Finding, Memo};
use crate::pattern::contains_ignoring_case;
use crate::recognise::{AgentTrace, Call, Text};

/// Maximum bytes of a request: longer requests name several things.
const MAX_TASK: usize = 300;
/// Maximum calls of an agent that are compared.
const MAX_CALLS: usize = 40;
/// Maximum values of a call, and lists of a result, that are compared.
const MAX_VALUES: usize = 16;
/// Maximum replies of the user: a longer dialogue is about several things.
const MAX_REPLIES: usize = 3;
/// Maximum rows whose words are compared with each other.
const MAX_COMPARED_ROWS: usize = 40;
/// Characters between the words of addresses and keys.
const WORD_SEPARATORS: [char; 4] = ['@', '.', '_', '*'];
/// Maximum words before the name of the object of a request: "please cancel my order W-1001".
const MAX_BEFORE_OBJECT: usize = 4;
/// Characters before a negation that is a contrast: "Ana, not Andrea".
const BEFORE_CONTRAST: [char; 5] = [',', ';', '(', '–', '-'];
/// Maximum words from a negation to the name that it negates.
const MAX_TO_NEGATED: usize = 3;
/// Classes of words by which a request may be about another thing than the one that it names.
const OTHER_THING: WordClasses = classes!(
    Alternative Bound Comparison Condition Exception Neighbour Quantifier Sequence
);

/// Findings by model span; `None` for a finding if the request is in an unsupported language.
pub(crate) fn find(trace: &AgentTrace, memo: &Memo, attempts: &CallAttempts) -> Vec<(Idx, Option<Finding>)> {
    let agents = Conduct::for_agents(trace, memo, attempts);
    agents
        .filter(|conduct| conduct.agent.calls.len() > 1)
        .filter_map(|conduct| check_agent(&conduct))
        .collect()
}

/// The finding on an agent, with the model span that requested the call.
fn check_agent(conduct: &Conduct<'_>) -> Option<(Idx, Option<Finding>)> {
    let memo = conduct.memo;
    let task = conduct.task(MAX_TASK)?;
    let calls: Vec<&Call> = conduct.calls(MAX_CALLS).map(|(_, call)| call).collect();
    let has_succeeded =
        |i: usize| conduct.attempts.at(i).is_some_and(|a| a.outcome == CallOutcome::Succeeded);
    let actions = conduct.calls(MAX_CALLS).filter(|(i, _)| has_succeeded(*i)).map(|(_, call)| call).skip(1);
    let mut actions = actions.filter(|call| conduct.is_action(call)).peekable();
    actions.peek()?;
    // The request is read only if an action passes a value of a row.
    let request = OnceCell::new();
    let request = || request.get_or_init(|| RowRequest::read(conduct, task, &calls)).as_ref();
    actions.find_map(|call| {
        let (expected, passed) = other_row(&calls, call, memo, request)?;
        if Language::detected(task, None, memo).is_none_or(|language| !language.is_spaced()) {
            return Some((call.llm?, None));
        }
        let rationale = format!(
            "a call about {expected} was expected, which the request names; {} has {passed} of another item",
            call.name.trim()
        );
        conduct.finding(Defect::ContradictsRequest, rationale, call).map(|(at, finding)| (at, Some(finding)))
    })
}

/// Whether a request may be about another thing than the one that it names, or excludes a thing: "Ana, not Andrea",
/// "don't email Ana". A negation without a name, as in "is not well", does neither.
fn may_mean_another(task: &str, language: Language, memo: &Memo) -> bool {
    let is_name = |word: &str| word.contains(|c: char| c.is_uppercase() || c.is_ascii_digit());
    language.places(task, memo).iter().any(|place| {
        let (before, after) = task.split_at_checked(place.at.end).unwrap_or_default();
        let is_after_mark =
            || before.trim_end_matches(char::is_alphabetic).trim_end().ends_with(BEFORE_CONTRAST);
        let is_contrast = || is_after_mark() || after.split_whitespace().take(MAX_TO_NEGATED).any(is_name);
        // A word before a question mark has another meaning: "Since when?"
        place.classes.has(WordClass::Negation) && is_contrast()
            || place.classes.has_any(OTHER_THING) && !after.starts_with('?')
    })
}

/// A request with the texts that rows are compared with. All words are as by [`words_of`].
struct RowRequest<'a> {
    task: &'a str,
    language: Language,
    /// The words of the task and of the user's replies.
    user_words: String,
    /// The words of each reply of the user.
    replies: Vec<String>,
    /// The words of the outputs that the user replied to.
    outputs: Vec<String>,
    /// The words of the answer.
    answer: Rc<LowercaseWords>,
    calls: &'a [&'a Call],
    memo: &'a Memo,
}

/// The name of the row that the request is about, and the value of another row that the call passes; `None` if the
/// call is about the named row, or no row is named.
fn other_row<'r>(
    calls: &[&Call],
    call: &Call,
    memo: &Memo,
    request: impl Fn() -> Option<&'r RowRequest<'r>>,
) -> Option<(String, String)> {
    let passed = values(call);
    let earlier = calls.iter().filter(|other| other.start < call.start && other.result.is_some());
    for lookup in earlier {
        let structure = Structure::cached(lookup.result.as_ref()?, memo)?;
        let Structure(Some(parsed)) = &*structure else { continue };
        for list in 0..parsed.lists.len().min(MAX_VALUES) {
            let rows = parsed.records.iter().filter(|record| record.list == Some(list)).take(MAX_ROWS);
            let rows: Vec<&Record> = rows.collect();
            let merged_rows: Vec<Record> = with_children(parsed, list);
            let rows = if merged_rows.is_empty() { rows } else { merged_rows.iter().collect() };
            if rows.len() < 2 || !memo.budget.spend(parsed.records.len() / 8 + rows.len() * passed.len()) {
                continue;
            }
            let mismatch = passed.iter().find_map(|value| {
                let passed_row = only_row(&rows, value)?;
                request()?.mismatch(&rows, passed_row, value, (call, lookup))
            });
            if mismatch.is_some() {
                return mismatch;
            }
        }
    }
    None
}

/// The only row that has a value; `None` if there are several.
fn only_row<'r>(rows: &[&'r Record], value: &str) -> Option<&'r Record> {
    // A short number is compared only with fields that are named as identifiers.
    let is_number = value.len() < MIN_NAME && value.bytes().all(|b| b.is_ascii_digit());
    let value_as_number: Option<f64> = value.parse().ok();
    let is_value = |field: &RecordField| {
        field.may_be_shown_as(value_as_number)
            && field.shown().eq_ignore_ascii_case(value)
            && (!is_number || field.name.last().is_some_and(|word| word == "id"))
    };
    let mut matching = rows.iter().filter(|row| row.fields.iter().any(is_value));
    matching.next().filter(|_| matching.next().is_none()).copied()
}

impl<'a> RowRequest<'a> {
    /// Reads the texts of the user; `None` if the request may be about another thing, the dialogue is too long, or
    /// beyond the work budget.
    fn read(conduct: &Conduct<'a>, task: &'a str, calls: &'a [&'a Call]) -> Option<RowRequest<'a>> {
        let Conduct { trace, memo, agent, .. } = *conduct;
        let replies = Replies::cached(trace, memo);
        let replies_by_call: Vec<(Idx, &Text)> =
            agent.llms.iter().filter_map(|at| Some((*at, replies.to(*at)?))).collect();
        let reply_words: Vec<String> = replies_by_call.iter().map(|(_, text)| words_of(text)).collect();
        let user_words = LowercaseWords::cached(task, memo).to_string() + &reply_words.concat();
        let language = Language::detected(task, None, memo).unwrap_or(Language::English);
        let is_ambiguous = may_mean_another(task, language, memo)
            || reply_words.iter().any(|reply| language.classes(reply).has_any(OTHER_THING));
        if is_ambiguous || replies_by_call.len() > MAX_REPLIES || user_words.len() > 2 * MAX_TASK {
            return None;
        }
        let output_words =
            |at: Idx| Some(words_of(&trace.views.get(at)?.output_text().replace(WORD_SEPARATORS, " ")));
        let outputs: Vec<String> = replies_by_call.iter().filter_map(|(at, _)| output_words(*at)).collect();
        memo.budget.spend(outputs.iter().map(String::len).sum::<usize>() / 4).then_some(())?;
        let answer = LowercaseWords::cached(agent.answer.as_deref().unwrap_or_default(), memo);
        Some(RowRequest { task, language, user_words, replies: reply_words, outputs, answer, calls, memo })
    }

    /// The name of the row that the request names, and the passed value; `None` if the call may be right. `passed_row`
    /// is the row of the lookup that has the passed value.
    fn mismatch(
        &self,
        rows: &[&Record],
        passed_row: &Record,
        value: &str,
        (call, lookup): (&Call, &Call),
    ) -> Option<(String, String)> {
        let other_rows = || rows.iter().filter(|row| !std::ptr::eq(**row, passed_row));
        let mut named_rows = other_rows().filter_map(|row| Some((*row, self.object_name(row, passed_row)?)));
        let first = named_rows.next();
        let by_code = || self.named_by_code(other_rows(), passed_row, value);
        let by_answer = || self.named_by_answer(rows, passed_row).filter(|_| identifies(passed_row, value));
        let by_value = || self.named_by_value(other_rows(), passed_row);
        let indirectly_named =
            first.is_none().then(|| by_code().or_else(by_answer).or_else(by_value)).flatten();
        let is_indirectly_named = indirectly_named.is_some();
        let ((row, name), None) = (first.or(indirectly_named)?, named_rows.next()) else { return None };
        let (row_words, passed_words) = (words(row), words(passed_row));
        let is_requested =
            |word: &&String| !row_words.contains(*word) && contains_words(&self.user_words, word);
        let may_mean_passed =
            || passed_words.iter().any(|word| is_requested(&word)) || refers(row, passed_row);
        if !is_indirectly_named && may_mean_passed()
            || refers(passed_row, row)
            || may_be_unavailable(row, passed_row) && self.answer_names(passed_row, row)
        {
            return None;
        }
        // The agent may have offered the passed row, and the user may have chosen it.
        let has_only_words_of = |included: &HashSet<String>, excluded: &HashSet<String>, text: &String| {
            included.iter().any(|word| !excluded.contains(word) && contains_words(text, word))
        };
        let is_proposed = self.outputs.iter().any(|text| has_only_words_of(&passed_words, &row_words, text));
        if is_proposed && !self.replies.iter().any(|text| has_only_words_of(&row_words, &passed_words, text))
        {
            return None;
        }
        // Another text with the passed value may explain it, and another call may be about the named row.
        let bytes: usize =
            self.calls.iter().filter_map(|call| call.result.as_ref()).map(|text| text.len()).sum();
        if !self.memo.budget.spend(1 + (1 + row.fields.len()) * bytes / BYTES_PER_STEP) {
            return None;
        }
        let in_text = |text: &str| match is_indirectly_named {
            true => contains_words(&words_of(text), &value.to_lowercase()),
            false => contains_ignoring_case(text, &value.to_lowercase()),
        };
        let texts =
            self.calls.iter().filter(|other| !std::ptr::eq(**other, lookup) && other.start < call.start);
        let is_explained =
            texts.filter_map(|other| other.result.as_deref()).any(in_text) || in_text(self.task);
        let is_distinct = |field: &&RecordField| !passed_row.fields.iter().any(|f| f.value == field.value);
        let passes = |call: &&Call| {
            let (passed, arguments) = (values(call), call.arguments.as_deref().unwrap_or_default());
            let is_passed = |field: &RecordField| {
                let shown = field.shown();
                let contains_value =
                    || shown.len() >= MIN_NAME && contains_ignoring_case(arguments, &shown.to_lowercase());
                passed.iter().any(|value| value.eq_ignore_ascii_case(shown)) || contains_value()
            };
            call.start > lookup.start && row.fields.iter().filter(is_distinct).any(is_passed)
        };
        let is_row_used = self.calls.iter().any(passes);
        (!is_explained && !is_row_used).then(|| (name, value.to_owned()))
    }

    /// The only row whose value in the column of the passed value is a code that the user names, if neither the user
    /// nor the answer names the passed value.
    fn named_by_code<'r>(
        &self,
        rows: impl Iterator<Item = &'r &'r Record>,
        passed_row: &Record,
        passed: &str,
    ) -> Option<(&'r Record, String)> {
        let column = passed_row.fields.iter().find(|field| field.shown().eq_ignore_ascii_case(passed))?;
        let lower = passed.to_lowercase();
        if contains_words(&self.user_words, &lower) || contains_words(&self.answer, &lower) {
            return None;
        }
        let mut named_rows = rows.filter_map(|row| {
            let field = row.fields.iter().find(|field| field.name == column.name)?;
            let is_named =
                is_code(field.shown()) && contains_words(&self.user_words, &field.shown().to_lowercase());
            is_named.then(|| (*row, field.shown().to_owned()))
        });
        let (first, None) = (named_rows.next()?, named_rows.next()) else { return None };
        Some(first)
    }

    /// The only row with a value that the user names to distinguish the row: a code (`deploy-staging`), a date, or a
    /// word next to one that `passed_row` has ("Anna from accounting"). Neither the user nor the answer may name the
    /// value of `passed_row` in that column.
    fn named_by_value<'r>(
        &self,
        rows: impl Iterator<Item = &'r &'r Record>,
        passed_row: &Record,
    ) -> Option<(&'r Record, String)> {
        let passed_words = words(passed_row);
        let mut named_rows = rows.filter_map(|row| {
            let mut texts = row.fields.iter().filter(|f| f.is_text() && !is_state(f));
            let field = texts.find(|field| {
                let mut fields_of_name =
                    passed_row.fields.iter().filter(|other_field| other_field.name == field.name);
                let Some(other_field) = fields_of_name.next().filter(|other_field| other_field.is_text())
                else {
                    return false;
                };
                let (value, other_value) = (words_of(field.shown()), words_of(other_field.shown()));
                let is_mentioned = |words: &str| {
                    contains_words(&self.user_words, words.trim())
                        || contains_words(&self.answer, words.trim())
                };
                let is_distinct =
                    value != other_value && field.shown().len() >= MIN_NAME && !is_mentioned(&other_value);
                let is_named = || {
                    contains_words(&self.user_words, value.trim())
                        && (is_code(field.shown()) || self.is_beside(value.trim(), &passed_words))
                };
                is_distinct && (is_named() || is_date_of(field.shown(), self.task))
            })?;
            Some((*row, field.shown().to_owned()))
        });
        let (first, None) = (named_rows.next()?, named_rows.next()) else { return None };
        Some(first)
    }

    /// Whether the user wrote one of these words next to a value: up to two words before it ("Anna from accounting"),
    /// or directly after it ("the accounting Anna").
    fn is_beside(&self, value: &str, words: &HashSet<String>) -> bool {
        let Some((before, after)) = self.user_words.split_once(&format!(" {value} ")) else { return false };
        let before = before.split_whitespace().rev().take(2);
        before.chain(after.split_whitespace().take(1)).any(|word| words.contains(word))
    }

    /// Whether the answer has a text of the passed row that the named row does not have.
    fn answer_names(&self, passed_row: &Record, row: &Record) -> bool {
        let is_distinct =
            |field: &&RecordField| !row.fields.iter().any(|row_field| row_field.value == field.value);
        let names = passed_row
            .fields
            .iter()
            .filter(|field| !is_state(field) && field.text().is_some_and(|text| text.len() >= MIN_NAME));
        names.filter(is_distinct).any(|field| contains_words(&self.answer, words_of(field.shown()).trim()))
    }

    /// The only row that both the user and the answer name by a word that no other row has, if neither names
    /// `passed_row`.
    fn named_by_answer<'r>(&self, rows: &[&'r Record], passed_row: &Record) -> Option<(&'r Record, String)> {
        let is_named =
            |word: &str| contains_words(&self.user_words, word) && contains_words(&self.answer, word);
        let words_by_row: Vec<HashSet<String>> = rows.iter().map(|row| words(row)).collect();
        let is_in_no_other = |nth: usize, word: &str| {
            word.contains(char::is_alphabetic)
                && !words_by_row.iter().enumerate().any(|(n, words)| n != nth && words.contains(word))
        };
        if rows.len() > MAX_COMPARED_ROWS || !self.memo.budget.spend(rows.len() * rows.len()) {
            return None;
        }
        let mut named_rows = rows.iter().enumerate().filter_map(|(nth, row)| {
            let row_words = words_by_row.get(nth)?;
            if std::ptr::eq(*row, passed_row) {
                // `Some(None)` ends the search if the user or the answer names the row of the passed value.
                return row_words
                    .iter()
                    .any(|word| is_in_no_other(nth, word) && self.mentions(word, passed_row))
                    .then_some(None);
            }
            let word = row_words
                .iter()
                .filter(|word| word.len() > MIN_NAME && is_in_no_other(nth, word))
                .find(|word| is_named(word))?;
            Some(Some((*row, word.clone())))
        });
        let (first, None) = (named_rows.next()??, named_rows.next()) else { return None };
        Some(first)
    }

    /// Whether the user or the answer mentions a word of a row. A state in the answer does not count, since the action
    /// may have caused that state in the passed row: "frozen".
    fn mentions(&self, word: &str, row: &Record) -> bool {
        let is_state = || {
            let states = row.fields.iter().filter(|field| is_state(field)).filter_map(RecordField::text);
            states.flat_map(|text| text.split([' ', '_', '-'])).any(|state| state == word)
        };
        contains_words(&self.user_words, word) || contains_words(&self.answer, word) && !is_state()
    }

    /// The name of a row that is the object of the request and that `passed_row` does not have.
    fn object_name(&self, row: &Record, passed_row: &Record) -> Option<String> {
        let is_name = |field: &&RecordField| {
            let shown = field.shown();
            let is_proper =
                shown.contains(char::is_uppercase) || shown.contains(|c: char| c.is_ascii_digit());
            let is_written = is_proper && self.task.contains(shown)
                || shown.contains(' ') && contains_words(&self.user_words, words_of(shown).trim());
            shown.len() >= MIN_NAME
                && is_written
                && field.is_text()
                && !passed_row.fields.iter().any(|f| f.shown().contains(shown))
        };
        let is_object = |name: &str| {
            let words = words_of(name);
            let Some(at) = self.user_words.find(words.as_str()) else { return false };
            let before: Vec<&str> =
                self.user_words.get(..at).unwrap_or_default().split_whitespace().collect();
            let has_class = |word: &&str, class| self.language.table().name(word).0.has(class);
            let is_related = before.iter().any(|word| has_class(word, WordClass::Relation));
            !is_related && (1..=MAX_BEFORE_OBJECT).contains(&before.len())
                || before.last().is_some_and(|word| has_class(word, WordClass::Target))
        };
        let mut names = row.fields.iter().filter(is_name).map(RecordField::shown);
        names.find(|name| is_object(name)).map(str::to_owned)
    }
}

/// The texts and numbers among the arguments of a call that may name a row.
fn values(call: &Call) -> Vec<String> {
    let arguments = call.parsed.as_deref().and_then(Value::as_object);
    let texts = arguments.into_iter().flatten().filter_map(|(key, value)| match value {
        Value::String(text) => Some(text.trim().to_owned()).filter(|text| text.contains(char::is_alphabetic)),
        Value::Number(number) => {
            let is_id = identifier_words(key).last().is_some_and(|word| word == "id");
            Some(number.to_string()).filter(|number| is_id || number.len() >= MIN_NAME)
        }
        Value::Array(items) => Some(items.first()?.as_str()?.trim().to_owned()),
        _ => None,
    });
    texts.filter(|text| !text.is_empty()).take(MAX_VALUES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::Script;

    const PEOPLE: &str =
        r#"[{"name":"Ana Ruiz","email":"ana@x.example"},{"name":"Andrea Novak","email":"andrea@x.example"}]"#;
    const EVENTS: &str = r#"[{"id":"ev2","title":"Design review"},{"id":"ev31","title":"Planning"},{"id":"ev4","title":"Lunch"}]"#;

    fn finding_count(task: &str, lookup: &str, calls: &[(&str, &str)]) -> usize {
        let script = Script::new(task).calls("", &[("search_list", "{}")]).returns(lookup);
        let call = |script: Script, (tool, arguments): &(&str, &str)| {
            script.calls("", &[(*tool, *arguments)]).returns(r#"{"ok":true}"#)
        };
        let (trace, memo) = (calls.iter().fold(script, call).answers("Done.").build(), Memo::new());
        find(&trace, &memo, &CallAttempts::get(&trace, &memo)).iter().filter(|(_, f)| f.is_some()).count()
    }

    #[test]
    fn substitute_that_the_answer_names_is_not_reported() {
        let rooms = r#"[{"name":"Room Alpha","id":"rm-11","free":false},{"name":"Room Beta","id":"rm-12","free":true}]"#;
        let findings = |answer: &str| {
            let script = Script::new("Book Room Alpha.").calls("", &[("list_rooms", "{}")]).returns(rooms);
            let script = script.calls("", &[("book_room", r#"{"room":"rm-12"}"#)]).returns(r#"{"ok":true}"#);
            let (trace, memo) = (script.answers(answer).build(), Memo::new());
            find(&trace, &memo, &CallAttempts::get(&trace, &memo)).len()
        };
        assert_eq!(findings("Room Alpha is taken, so I booked Room Beta."), 0);
        assert_eq!(findings("I have booked Room Alpha."), 1);
    }

    #[test]
    fn requests_are_read_in_languages_with_spaces() {
        let finding = |task: &str| {
            let script = Script::new(task).calls("", &[("list_people", "{}")]).returns(PEOPLE);
            let script = script.calls("", &[("send_email", r#"{"to":"andrea@x.example"}"#)]).returns("{}");
            let (trace, memo) = (script.answers("Ok.").build(), Memo::new());
            let findings = find(&trace, &memo, &CallAttempts::get(&trace, &memo));
            findings.first().map(|(_, finding)| finding.is_some())
        };
        for (task, expected) in [
            ("Schreibe Ana Ruiz, dass wir uns verspäten.", Some(true)),
            ("Schreibe der Chefin von Ana Ruiz, dass wir uns verspäten.", None),
            ("Écris à Ana Ruiz que nous arrivons en retard pour le repas.", Some(true)),
            ("Escribe a Ana Ruiz que llegamos tarde, por favor.", Some(true)),
            ("No escribas a Ana Ruiz que llegamos tarde, por favor.", None),
            ("Scrivi ad Ana Ruiz che arriviamo tardi per la cena.", Some(true)),
            ("Escreva para Ana Ruiz que vamos chegar tarde ao jantar.", Some(true)),
            ("Schrijf aan Ana Ruiz dat we later komen dan we hadden gezegd.", Some(false)),
        ] {
            assert_eq!(finding(task), expected, "{task}");
        }
    }

    #[test]
    fn action_on_another_row_than_the_object_of_the_request_is_found() {
        let andrea = ("send_email", r#"{"to":"andrea@x.example"}"#);
        assert_eq!(finding_count("Email Ana Ruiz.", PEOPLE, &[andrea]), 1);
        assert_eq!(finding_count("Send the report to Ana Ruiz", PEOPLE, &[andrea]), 1);
        assert_eq!(
            finding_count(
                "Delete the design review on Monday.",
                EVENTS,
                &[("delete_event", r#"{"id":"ev31"}"#)]
            ),
            1
        );
        let orders = r#"{"orders":[{"order":"W-1001","total":20},{"order":"W-1002","total":40}]}"#;
        assert_eq!(
            finding_count(
                "Please cancel order W-1001.",
                orders,
                &[("cancel_order", r#"{"order":"W-1002"}"#)]
            ),
            1
        );
    }

    #[test]
    fn action_on_a_row_that_may_be_meant_is_not_reported() {
        let (ana, andrea) =
            (("send_email", r#"{"to":"ana@x.example"}"#), ("send_email", r#"{"to":"andrea@x.example"}"#));
        for (task, calls) in [
            ("Email Ana Ruiz.", &[ana][..]),
            ("Email Ana Ruiz.", &[andrea, ana]),
            ("Email Andrea.", &[andrea]),
            ("Email Ana Ruiz and Andrea.", &[ana, andrea]),
            ("Email everyone except Ana Ruiz.", &[andrea]),
            ("Email somebody about Ana Ruiz.", &[andrea]),
            ("Email Ana Ruiz's manager.", &[andrea]),
            ("Email Ana Ruiz or a colleague.", &[andrea]),
            ("Who is Ana Ruiz?", &[("get_contact", r#"{"email":"andrea@x.example"}"#)]),
        ] {
            assert_eq!(finding_count(task, PEOPLE, calls), 0, "{task}");
        }
        let boss = PEOPLE.replacen("}", r#","manager":"Andrea Novak"}"#, 1);
        assert_eq!(finding_count("Email Ana Ruiz", &boss, &[andrea]), 0, "the row refers to the other one");
        assert_eq!(
            finding_count(
                "Move the design review.",
                EVENTS,
                &[("move_event", r#"{"event":"ev2","behind":"ev31"}"#)]
            ),
            0
        );
    }
}
