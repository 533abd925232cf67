//! Rows that a call chooses from a list although another row fits the request better.
//!
//! Principle: a call names a row of a list that a result returned. If another row of that list has every value of the
//! chosen one that the request names, and one more, the request means the other row: of two customers with the same
//! name, the request names the town of the second, and the first one is changed. Of several chosen rows, as those of a
//! transfer, one must have no value that the request names. There is no finding if a word that excludes or compares
//! precedes the value, the user answered a text that names the chosen row and not the other one, or the answer states
//! the value of the chosen row. A lookup of the chosen row counts if the answer names the value of the other one.
//!
//! In: the messages of the user, the results of an agent's calls, and its successful actions. Out: one finding for each
//! agent, on the model span that requested the call.

use serde_json::Value;
use verdict_otlp::trace::Idx;

use super::conduct::Conduct;
use super::statements::{contains_words, words_of};
use crate::measure::Finding;
use crate::measure::defects::Defect;
use crate::measure::language::{Language, WordClass, WordClasses, classes};
use crate::measure::numbers::has_digit;
use crate::measure::provenance::{KnownTexts, Origin, have_wording};
use crate::measure::records::{Record, RecordField, Records, Structure};
use crate::measure::tool_purpose::{Purpose, purpose};
use crate::measure::work_budget::BYTES_PER_STEP;
use crate::pattern::contains_ignoring_case;
use crate::recognise::Call;

/// Maximum bytes of the user's messages.
const MAX_USER_BYTES: usize = 4_000;
/// Maximum calls of an agent that are compared.
const MAX_CALLS: usize = 64;
/// Maximum arguments of a call that are compared.
const MAX_ARGUMENTS: usize = 32;
/// Minimum rows of a list that a text shows without a proposal.
const MIN_LISTED: usize = 3;
/// Maximum rows of a list that calls choose.
const MAX_CHOSEN: usize = 3;
/// Maximum rows of a list that is compared.
const MAX_ROWS: usize = 100;
/// Minimum characters of a value that names something.
const MIN_NAME_CHARS: usize = 4;
/// Minimum characters of such a value with a digit, or in a language without spaces.
const MIN_SHORT_NAME_CHARS: usize = 2;
/// Maximum characters of a value that names something.
const MAX_NAME_CHARS: usize = 60;
/// Characters that end a clause.
pub(super) const CLAUSE_ENDS: [char; 11] = ['.', '!', '?', ';', '\n', ',', '、', '。', '，', '！', '？'];
/// Classes of words before a value by which the request does not ask for it.
const EXCLUSION: WordClasses =
    classes!(Negation Exception Contrast Comparison Alternative Condition Already Reversal);

/// The joined messages of the user.
struct RequestText {
    words: String,
    text: String,
    language: Option<Language>,
}

impl RequestText {
    /// Whether the request asks for a value: it contains the value, and no word before it excludes the value.
    fn names(&self, value: &str) -> bool {
        let is_spaced = value.is_ascii() || value.chars().all(|c| !is_unspaced(c));
        let is_whole = || contains_words(&self.words, words_of(value).trim());
        let is_named = if is_spaced { is_whole() } else { contains_ignoring_case(&self.text, value) };
        is_named && !self.excludes(value)
    }

    /// Whether the messages have a part of a text of a row that the other row does not have, so that the row may be
    /// meant: the user chose "the large print".
    fn has_part_of(&self, row: &Record, other: &Record) -> bool {
        let other: Vec<&str> = other.fields.iter().filter_map(RecordField::text).collect();
        let parts = row
            .fields
            .iter()
            .filter_map(RecordField::text)
            .flat_map(|text| text.split(|c: char| !c.is_alphanumeric()));
        let is_distinct = |part: &&str| {
            let min = if part.chars().any(is_unspaced) { MIN_SHORT_NAME_CHARS } else { MIN_NAME_CHARS };
            part.chars().count() >= min && !other.iter().any(|text| text.contains(part))
        };
        let is_in_messages = |part: &str| match part.chars().any(is_unspaced) {
            true => contains_ignoring_case(&self.text, part),
            false => contains_words(&self.words, part),
        };
        parts.filter(is_distinct).any(is_in_messages)
    }

    /// Whether a word before a value in its clause excludes the value.
    fn excludes(&self, value: &str) -> bool {
        let at = self.text.find(value).or_else(|| self.text.to_lowercase().find(value));
        let before = at.and_then(|at| self.text.get(..at)).unwrap_or_default();
        let clause = before.rsplit(CLAUSE_ENDS).next().unwrap_or(before);
        match self.language {
            Some(language) => {
                let classes = language.classes(clause);
                // The origin of a movement has a target: "from Porto to Braga".
                let is_origin = || language.classes(&self.text).has(WordClass::Target);
                classes.has_any(EXCLUSION) || classes.has(WordClass::Origin) && is_origin()
            }
            // In an unknown language, only a value with a digit is taken as requested.
            None => !has_digit(value),
        }
    }
}

/// Whether a character belongs to a script without spaces between words.
pub(super) fn is_unspaced(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}')
}

/// The finding on an agent.
pub(super) fn check(conduct: &Conduct<'_>) -> Option<(Idx, Finding)> {
    let memo = conduct.memo;
    let results = || conduct.calls(MAX_CALLS).map(|(_, call)| call).filter(|call| call.result.is_some());
    let actions: Vec<&Call> = conduct.succeeded(MAX_CALLS).map(|(_, call)| call).skip(1).collect();
    // An action follows the list that it chooses from.
    let last = actions.iter().map(|call| call.start).max()?;
    let mut lists = results().filter(|call| call.start < last).peekable();
    lists.peek()?;
    let user_texts = conduct.user_messages();
    let bytes: usize = user_texts.iter().map(|text| text.len()).sum();
    let answer = conduct.agent.answer.as_deref().unwrap_or_default();
    if bytes > MAX_USER_BYTES || !memo.budget.spend(1 + (bytes + answer.len()) / BYTES_PER_STEP) {
        return None;
    }
    let passed_values: Vec<(&Call, Vec<String>)> =
        actions.iter().map(|call| (*call, argument_values(call))).collect();
    let mut request = None;
    lists.find_map(|list| {
        let result = list.result.as_ref()?;
        let structure = Structure::cached(result, memo)?;
        let Structure(Some(parsed)) = &*structure else { return None };
        (0..parsed.lists.len()).find_map(|list_index| {
            let choice = chosen_rows(conduct, parsed, list_index, list, &passed_values)?;
            let rows = &choice.rows;
            let request = request.get_or_insert_with(|| {
                let text = user_texts.iter().map(|text| &**text).collect::<Vec<&str>>().join("\n");
                let language = Language::detected(&text, None, memo);
                RequestText { words: words_of(&text), text, language }
            });
            let fields: usize = rows.iter().map(|row| row.fields.len()).sum();
            if !memo.budget.spend(fields * (1 + bytes / BYTES_PER_STEP)) {
                return None;
            }
            let (wanted_row, wanted, chosen) = choice.better_row(request)?;
            let (call, row) = (chosen.call, chosen.row);
            let chosen_field = row.fields.iter().find(|field| field.name == wanted.name);
            let is_in_answer = |field: &RecordField| contains_ignoring_case(answer, field.shown());
            // A lookup of another row is wrong if the answer is about the requested one.
            let is_reported = || purpose(conduct.trace, memo, call) != Purpose::Query || names_of(wanted).any(|name| contains_ignoring_case(answer, name));
            if chosen_field.is_some_and(is_in_answer)
                || !is_reported()
                || request.has_part_of(row, wanted_row)
                || is_proposed(conduct, chosen, rows)? {
                return None;
            }
            let instead = chosen_field.map_or_else(|| "no such value".to_owned(), |field| field.shown().to_owned());
            let rationale = format!(
                "the item of {} with {} {} was expected, since the request names it; {} was called for one with {instead}",
                list.name.trim(),
                wanted.name.join(" "),
                wanted.shown(),
                call.name.trim(),
            );
            conduct.finding(Defect::ContradictsRequest, rationale, call)
        })
    })
}

/// The texts and numbers that a call passes.
pub(super) fn argument_values(call: &Call) -> Vec<String> {
    fn add(out: &mut Vec<String>, value: &Value) {
        if out.len() >= MAX_ARGUMENTS {
            return;
        }
        match value {
            Value::String(text) => out.push(text.trim().to_owned()),
            Value::Number(number) => out.push(number.to_string()),
            Value::Array(items) => items.iter().take(MAX_ARGUMENTS).for_each(|item| add(out, item)),
            Value::Object(members) => members.values().take(MAX_ARGUMENTS).for_each(|item| add(out, item)),
            Value::Null | Value::Bool(_) => {}
        }
    }
    let mut out = Vec::new();
    if let Some(arguments) = call.parsed.as_deref() {
        add(&mut out, arguments);
    }
    out
}

/// A row of a list that a call names, and the value by which the call names it.
#[derive(Clone, Copy)]
struct ChosenRow<'c, 'r> {
    call: &'c Call,
    row: &'r Record,
    value: &'c str,
}

/// The rows of a list that calls after it name.
struct Choice<'c, 'r> {
    chosen: Vec<ChosenRow<'c, 'r>>,
    rows: Vec<&'r Record>,
}

/// The rows of a list that calls after it name by values that no other row has; `None` if there are none, or if most of
/// the rows are chosen.
fn chosen_rows<'c, 'r>(
    conduct: &Conduct<'_>,
    parsed: &'r Records,
    list_index: usize,
    list: &Call,
    passed_values: &'c [(&'c Call, Vec<String>)],
) -> Option<Choice<'c, 'r>> {
    let rows: Vec<&Record> = parsed.records.iter().filter(|row| row.list == Some(list_index)).collect();
    let values: usize = passed_values.iter().map(|(_, values)| values.len()).sum();
    let fields: usize = rows.iter().map(|row| row.fields.len()).sum();
    if !(2..=MAX_ROWS).contains(&rows.len()) || !conduct.memo.budget.spend(values * fields / 4) {
        return None;
    }
    let after = || passed_values.iter().filter(|(call, _)| call.start > list.start);
    // Where a call has values of several rows, an identifier takes precedence over other values.
    let is_id = |value: &&String| has_digit(value) || value.contains('@');
    let by_identifier = named_rows(after(), &rows, is_id);
    let chosen = if by_identifier.is_empty() { named_rows(after(), &rows, |_| true) } else { by_identifier };
    (!chosen.is_empty() && chosen.len() <= MAX_CHOSEN && chosen.len() < rows.len())
        .then_some(Choice { chosen, rows })
}

/// The rows that values of these calls name, where a value names a row if no other row has it.
fn named_rows<'c, 'r>(
    calls: impl Iterator<Item = &'c (&'c Call, Vec<String>)>,
    rows: &[&'r Record],
    is_wanted: impl Fn(&&String) -> bool,
) -> Vec<ChosenRow<'c, 'r>> {
    let mut chosen: Vec<ChosenRow<'c, 'r>> = Vec::new();
    for (call, values) in calls {
        for value in values.iter().filter(&is_wanted) {
            let value_as_number: Option<f64> = value.parse().ok();
            let is_value =
                |field: &RecordField| field.may_be_shown_as(value_as_number) && field.shown() == value;
            let has = |row: &&&Record| row.fields.iter().any(is_value);
            let mut matching = rows.iter().filter(has);
            let (Some(row), None) = (matching.next(), matching.next()) else { continue };
            if !chosen.iter().any(|other| std::ptr::eq(other.row, *row)) {
                chosen.push(ChosenRow { call, row, value });
            }
        }
    }
    chosen
}

/// Whether the user agreed to a row that a model proposed. A text that lists all rows proposes none of them. `None` if
/// a text may be unknown.
fn is_proposed(conduct: &Conduct<'_>, chosen: ChosenRow<'_, '_>, rows: &[&Record]) -> Option<bool> {
    let known = KnownTexts::cached(conduct.trace, conduct.memo);
    let proposals =
        known.before(conduct.trace, chosen.call)?.iter().filter(|known| known.origin == Origin::Model);
    let column = chosen.row.fields.iter().find(|field| field.shown() == chosen.value);
    let value = |row: &Record| {
        let column = column?;
        Some(row.fields.iter().find(|field| field.name == column.name)?.shown().to_owned())
    };
    let values: Vec<String> = rows.iter().filter_map(|row| value(row)).collect();
    Some(have_wording(proposals, conduct.memo, |text| {
        let lists_all =
            || values.len() >= MIN_LISTED && values.iter().all(|value| contains_ignoring_case(text, value));
        contains_ignoring_case(text, chosen.value) && !lists_all()
    }))
}

/// The values of a field that a request may name: the whole value, and the part with a digit before a comma.
fn names_of(field: &RecordField) -> impl Iterator<Item = &str> {
    let shown = field.shown();
    let first_part = shown.split_once(',').map(|(first, _)| first).filter(|first| has_digit(first));
    std::iter::once(shown).chain(first_part).filter(|name| is_name(name))
}

impl<'c, 'r> Choice<'c, 'r> {
    /// A row that is not chosen, its value that the request names, and the only chosen row that does not have what the
    /// request names. The better row also has all values of this row that the request names.
    fn better_row(&self, request: &RequestText) -> Option<(&'r Record, &'r RecordField, ChosenRow<'c, 'r>)> {
        // A request that names a state reports the state and does not ask for it: "it says delivered".
        let is_state =
            |field: &RecordField| field.name.iter().any(|word| matches!(word.as_str(), "status" | "state"));
        let is_requested = |field: &&RecordField| {
            !is_state(field) && field.is_text() && names_of(field).any(|name| request.names(name))
        };
        let matching_field = |row: &'r Record, field: &RecordField| {
            row.fields.iter().find(|candidate| candidate.name == field.name)
        };
        let is_unrequested = |chosen: &&ChosenRow<'_, '_>| {
            self.chosen.len() == 1 || !chosen.row.fields.iter().any(|field| is_requested(&field))
        };
        let mut unrequested = self.chosen.iter().filter(is_unrequested);
        let (Some(chosen), None) = (unrequested.next(), unrequested.next()) else { return None };
        let requested_fields: Vec<&RecordField> = chosen.row.fields.iter().filter(is_requested).collect();
        let is_chosen = |row: &Record| self.chosen.iter().any(|chosen| std::ptr::eq(chosen.row, row));
        let others = self.rows.iter().filter(|row| !is_chosen(row));
        let mut fitting = others.filter_map(|row| {
            let has_all = requested_fields.iter().all(|field| {
                matching_field(row, field)
                    .is_some_and(|other| other.value == field.value || is_requested(&other))
            });
            let is_better = |field: &&RecordField| {
                let counterpart = matching_field(chosen.row, field);
                is_requested(field)
                    && counterpart.is_none_or(|other| {
                        other.value != field.value && !is_requested(&other) && other.is_text()
                    })
            };
            let wanted = row.fields.iter().find(|field| is_better(field)).filter(|_| has_all)?;
            Some((*row, wanted, *chosen))
        });
        fitting.next()
    }
}

/// Whether a value may name something that a request asks for.
fn is_name(value: &str) -> bool {
    let chars = value.chars().count();
    let is_unspaced = value.chars().any(is_unspaced);
    let has_digit = value.contains(|c: char| c.is_ascii_digit());
    chars <= MAX_NAME_CHARS
        && (chars >= MIN_NAME_CHARS || (is_unspaced || has_digit) && chars >= MIN_SHORT_NAME_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::reasoning::conduct::findings_of;
    use crate::measure::testing::Script;

    fn run(task: &str, list: &str, arguments: &[&str], answer: &str) -> usize {
        let script = Script::new(task).tools(&["search_people", "update_address"]);
        let script = script.calls("", &[("search_people", "{}")]).returns(list);
        let call = |script: Script, arguments: &&str| {
            script.calls("", &[("update_address", arguments)]).returns(r#"{"ok":true}"#)
        };
        findings_of(check, &arguments.iter().fold(script, call).answers(answer).build()).len()
    }

    const PEOPLE: &str =
        r#"[{"id":"C-1","name":"Ana Ruiz","city":"Porto"},{"id":"C-2","name":"Ana Ruiz","city":"Braga"}]"#;

    #[test]
    fn thing_that_has_less_of_what_the_request_names_is_found() {
        let task = "Change the street of Ana Ruiz in Braga to Rua Nova 4.";
        assert_eq!(run(task, PEOPLE, &[r#"{"id":"C-1","street":"Rua Nova 4"}"#], "It is changed."), 1);
        assert_eq!(run(task, PEOPLE, &[r#"{"id":"C-1","city":"Braga"}"#], "It is changed."), 1);
        assert_eq!(run(task, PEOPLE, &[r#"{"id":"C-2","street":"Rua Nova 4"}"#], "It is changed."), 0);
        let german = "Bitte die Lampe in Halle Nord ausschalten.";
        let lamps = r#"{"lamps":[{"lamp":"L-7","hall":"Halle Süd"},{"lamp":"L-9","hall":"Halle Nord"}]}"#;
        assert_eq!(run(german, lamps, &[r#"{"lamp":"L-7","on":false}"#], "Die Lampe ist aus."), 1);
        let japanese = "禁煙の部屋を予約してください。";
        let rooms = r#"{"rooms":[{"room":"R-1","type":"喫煙"},{"room":"R-2","type":"禁煙"}]}"#;
        assert_eq!(run(japanese, rooms, &[r#"{"room":"R-1"}"#], "予約しました。"), 1);
        let numbers = r#"[{"zone":"Z-3","room":"2.14"},{"zone":"Z-8","room":"2.41"}]"#;
        assert_eq!(run("Heat room 2.14 please.", numbers, &[r#"{"zone":"Z-8","degrees":19}"#], "Done."), 1);
        // The other row has a value that the chosen row does not have.
        let mails = r#"[{"mail":"ana@lex.example","firm":"Lex"},{"mail":"ana@us.example","unit":"Finance"}]"#;
        assert_eq!(run("Send it to Ana in finance.", mails, &[r#"{"to":["ana@lex.example"]}"#], "Sent."), 1);
    }

    #[test]
    fn thing_that_the_request_or_the_answer_accounts_for_is_none() {
        let one = &[r#"{"id":"C-1"}"#][..];
        for (task, arguments, answer) in [
            ("Move Ana Ruiz from Porto to Braga.", one, "She has moved."),
            ("Change Ana Ruiz, not the one in Braga.", one, "It is changed."),
            ("Change the address of Ana Ruiz.", one, "It is changed."),
            ("Change Ana Ruiz in Braga.", one, "There is only one in Porto, whom I have changed."),
            ("Change Ana Ruiz in Braga.", &[r#"{"id":"C-1"}"#, r#"{"id":"C-2"}"#], "It is changed."),
            ("Change Ana Ruiz (C-1); the invoice goes to Braga.", one, "It is changed."),
        ] {
            assert_eq!(run(task, PEOPLE, arguments, answer), 0, "{task}");
        }
    }

    #[test]
    fn lookup_or_transfer_of_another_row_than_the_named_one_is_found() {
        let tenants = r#"[{"id":"M-11","tenant":"Roth, Uwe","flat":"Lindenweg 7, left"},{"id":"M-34","tenant":"Roth, Anja","flat":"Ulmenweg 44, right"}]"#;
        let look_up = |answer: &str| {
            let script =
                Script::new("How much does Roth in Ulmenweg 44 owe?").tools(&["find_tenants", "get_account"]);
            let script = script.calls("", &[("find_tenants", "{}")]).returns(tenants);
            let script =
                script.calls("", &[("get_account", r#"{"id":"M-11"}"#)]).returns(r#"{"balance":-40.5}"#);
            findings_of(check, &script.answers(answer).build()).len()
        };
        assert_eq!(look_up("Roth (Ulmenweg 44) owes 40.50."), 1);
        assert_eq!(look_up("The account M-11 has a balance of -40.50."), 0, "not about the requested one");
        let accounts =
            r#"[{"id":"A-1","kind":"current"},{"id":"A-2","kind":"savings"},{"id":"A-3","kind":"joint"}]"#;
        let task = "Move 850 from my savings to the joint account.";
        assert_eq!(run(task, accounts, &[r#"{"source":"A-1","to":"A-3"}"#], "It is moved."), 1);
        assert_eq!(run(task, accounts, &[r#"{"source":"A-2","to":"A-3"}"#], "It is moved."), 0);
        assert_eq!(
            run(task, accounts, &[r#"{"source":"A-1","to":"A-3"}"#], "It is moved from the current one."),
            0
        );
    }

    #[test]
    fn row_that_the_user_agreed_to_is_none() {
        let seats = r#"[{"seat":"12B","type":"middle"},{"seat":"14A","type":"window"},{"seat":"15C","type":"aisle"}]"#;
        let chosen = |says: &str, reply: &str| {
            let script = Script::new("Which seats are free?").tools(&["list_seats", "assign_seat"]);
            let script = script.calls("", &[("list_seats", "{}")]).returns(seats).says(says).user(reply);
            let script = script.calls("", &[("assign_seat", r#"{"seat":"14A"}"#)]).returns(r#"{"ok":true}"#);
            findings_of(check, &script.answers("You have a seat now.").build()).len()
        };
        let all = "12B (middle), 14A (window) and 15C (aisle) are free. Which one?";
        assert_eq!(chosen(all, "An aisle seat please."), 1);
        assert_eq!(chosen(all, "The window please, no aisle."), 0);
        assert_eq!(
            chosen("No aisle seat fits your fare. Is 14A fine?", "I like an aisle seat, but fine."),
            0
        );
    }
}
