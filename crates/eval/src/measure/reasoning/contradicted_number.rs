//! Arguments that contradict numbers of the user: "3 nights" and a call with `nights: 2`.
//!
//! Principle: a number that the user gives for a thing is passed unchanged, or the call does something else than the
//! user requested. A number that follows from known numbers, or that a text before the call has, is not a finding.
//!
//! In: the user's messages and the calls of an agent. Out: findings on the model span that requested the call. The
//! correspondence must be unambiguous: the user gives one number for the noun of the parameter's name, or one amount of
//! money for the only amount of the call, and the number of the call is in no message and no result before it. A later
//! call with the user's number removes the finding.

use verdict_otlp::trace::Idx;

use super::arithmetic::{near, pair_gives};
use super::combined_amounts::{combinable, combined, is_rounded, is_share};
use crate::measure::calls::attempts::CallAttempts;
use crate::measure::conversation::plain_text;
use crate::measure::defects::Defect;
use crate::measure::excerpt::around;
use crate::measure::language::{WordClass, classes_in, names};
use crate::measure::numbers::{self, Number};
use crate::measure::provenance::{KnownText, KnownTexts, Origin};
use crate::measure::records::KeyNames;
use crate::measure::{Finding, Memo, currency};
use crate::recognise::{AgentTrace, Call, Role, Text};

/// Maximum calls of one agent that are compared; the latest are compared.
const MAX_CALLS: usize = 64;
/// Maximum bytes of a message that is read: longer messages contain pasted text, whose numbers are not the user's.
const MAX_MESSAGE_BYTES: usize = 1000;
/// Maximum texts whose numbers an amount may follow from.
const MAX_TEXTS: usize = 64;
/// Maximum numbers that an amount may follow from; any two are combined.
const MAX_NUMBERS: usize = 40;
/// Maximum arguments of a call.
const MAX_ARGUMENTS: usize = 40;
/// Words in names of parameters that are not part of the noun. Names of parameters are identifiers in code.
const FILLERS: [&str; 8] = ["number", "num", "no", "count", "of", "n", "total", "requested"];

/// Findings by agent and by the model span that requested the call.
pub(crate) fn find(trace: &AgentTrace, memo: &Memo, attempts: &CallAttempts) -> Vec<(usize, Idx, Finding)> {
    let mut out = Vec::new();
    for (i, agent) in trace.agents.iter().enumerate() {
        let latest = agent.calls.iter().rev().take(MAX_CALLS);
        let mut corrected: Vec<(&str, Vec<String>)> = Vec::new();
        for &call in latest {
            let Some(call_record) = trace.calls.get(call) else { continue };
            let Some(llm) = call_record.llm.filter(|_| attempts.has_succeeded(call)) else { continue };
            for (name, finding) in check_call(trace, memo, call_record).unwrap_or_default() {
                let is_repeated =
                    corrected.iter().any(|(tool, argument)| *tool == &*call_record.name && *argument == name);
                corrected.push((&call_record.name, name));
                out.extend(
                    finding.filter(|_| !is_repeated).map(|f| (i, llm, f.citing_at(trace, call_record.at))),
                );
            }
        }
    }
    out
}

/// The arguments that correspond to a number of the user, each with a finding if they differ.
fn check_call(trace: &AgentTrace, memo: &Memo, call: &Call) -> Option<Vec<(Vec<String>, Option<Finding>)>> {
    let arguments = call.parsed.as_deref()?.as_object()?;
    let keys = memo.shared::<KeyNames>();
    let is_money = |key: &str| names::has_word_of_class(&keys.name_for(key), WordClass::Amount);
    let counts = arguments.iter().take(MAX_ARGUMENTS).filter_map(|(key, value)| {
        let passed = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())?;
        let name = keys.name_for(key);
        let words = name.iter().filter(|word| !FILLERS.contains(&word.as_str()));
        let name: Vec<String> = words.cloned().collect();
        // "month: 6" is a point in time, and "12 months" is a duration.
        let is_count = matches!(name.as_slice(), [noun] if !names::is_of_class(noun, WordClass::TimeUnit));
        is_count.then_some((key, passed, name))
    });
    let is_only_amount = || arguments.keys().filter(|key| is_money(key)).nth(1).is_none();
    let counts: Vec<(&String, f64, Vec<String>, Vec<String>)> = counts
        .map(|(key, passed, name)| {
            let nouns = match is_money(key) {
                true if is_only_amount() => currency::all().map(str::to_owned).collect(),
                true => Vec::new(),
                false => name.clone(),
            };
            (key, passed, name, nouns)
        })
        .collect();
    // The texts before most calls need not be listed, since the prompt has no number for a noun of an argument.
    let may_be_counted = || {
        let prompt = call.llm.and_then(|at| trace.views.get(at)).map_or(&[][..], |view| &view.input);
        let from_user = prompt.iter().filter(|message| message.role == Role::User);
        let texts = from_user.flat_map(|message| &message.parts).filter_map(plain_text);
        let task = call.agent.and_then(|agent| trace.agents.get(agent)?.task.as_ref());
        // The task is usually one of these texts.
        let is_other = |text: &&Text| task.is_none_or(|task| task.as_ptr() != text.as_ptr());
        let mut texts = texts.filter(is_other).chain(task);
        texts.any(|text| {
            text.len() <= MAX_MESSAGE_BYTES
                && counts.iter().any(|(.., nouns)| !numbers_with_noun(memo, text, nouns).is_empty())
        })
    };
    if counts.is_empty() || !may_be_counted() {
        return None;
    }
    let known = KnownTexts::cached(trace, memo);
    let before = known.before(trace, call)?;
    let written_by = |origin: Origin| {
        let is_short = |known: &&KnownText| known.text.len() <= MAX_MESSAGE_BYTES;
        before.iter().filter(move |known| known.origin == origin).filter(is_short)
    };
    let from_user = written_by(Origin::User).filter(|known| known.agent == call.agent);
    let from_user: Vec<&Text> = from_user.map(|known| &known.text).collect();
    memo.budget.spend(from_user.iter().map(|text| text.len()).sum::<usize>() / 16).then_some(())?;
    let mut out = Vec::new();
    let (mut given_numbers, mut derived) = (None, None);
    for (key, passed, name, nouns) in &counts {
        let passed = *passed;
        let stated: Vec<(f64, &Text, Number)> =
            from_user.iter().flat_map(|text| numbers_with_noun(memo, text, nouns)).collect();
        let Some((number, text, position)) =
            stated.first().filter(|(n, ..)| stated.iter().all(|(other, ..)| other == n))
        else {
            continue;
        };
        // The number may be the same amount in another unit.
        let is_scaled =
            [100.0, 1000.0].iter().any(|factor| passed == number * factor || *number == passed * factor);
        let is_part = || is_money(key) && (follows_from_known(before, passed) || is_share(passed, *number));
        let instruction_texts =
            || written_by(Origin::System).map(|known| &known.text).collect::<Vec<&Text>>();
        let given_numbers = given_numbers.get_or_insert_with(|| numbers_of(&from_user));
        // The number may be a product of two: 15 reams in 3 boxes of 5.
        let is_pack = given_numbers.iter().any(|count| count * number == passed);
        let mut is_derived = || {
            derived
                .get_or_insert_with(|| derived_from(memo, given_numbers, &instruction_texts()))
                .iter()
                .any(|candidate| is_rounded(*candidate, passed))
        };
        let is_known = || known.has_number(trace, memo, call, passed);
        let is_given = is_scaled || is_pack || is_known() || is_part() || is_derived();
        let differs = passed != *number && !is_given && !has_approximation(memo, &from_user);
        let finding = differs.then(|| {
            let quote = around(text, position.start, position.end, 40);
            let rationale = format!(
                "the number that the user gave was expected, \"{quote}\"; {} was called with {key}: {passed}",
                call.name.trim()
            );
            Defect::ContradictsRequest
                .finding(rationale, crate::measure::calls::attempts::quoted(call))
                .by_rule("contradicted_number")
        });
        out.push((name.clone(), finding));
    }
    Some(out)
}

/// At most [`MAX_NUMBERS`] numbers of messages.
fn numbers_of(texts: &[&Text]) -> Vec<f64> {
    let mut numbers = combinable(texts.iter().copied(), MAX_NUMBERS);
    numbers.truncate(MAX_NUMBERS);
    numbers
}

/// The values that follow from several of these numbers and from rates of the instructions; none beyond the work
/// budget.
fn derived_from(memo: &Memo, given_numbers: &[f64], instruction_texts: &[&Text]) -> Vec<f64> {
    let bytes: usize = instruction_texts.iter().map(|text| text.len()).sum();
    let rates = if memo.budget.spend(1 + bytes / 16) { numbers_of(instruction_texts) } else { Vec::new() };
    let is_read = memo
        .budget
        .spend(given_numbers.len() * (given_numbers.len() + rates.len()) * (1 + given_numbers.len()));
    if is_read { combined(given_numbers, &rates) } else { Vec::new() }
}

/// Whether a message has a word for an approximation, by which the user leaves the number to the agent: "about 10 %
/// more".
fn has_approximation(memo: &Memo, texts: &[&Text]) -> bool {
    let is_approximate = |text: &&Text| {
        classes_in(text, None, memo).is_some_and(|classes| classes.has(WordClass::Approximation))
    };
    texts.iter().any(is_approximate)
}

/// Whether an amount follows from the numbers of messages and results: as a share of one, a sum or a difference of
/// two, or one with a rate.
fn follows_from_known(before: &[KnownText], amount: f64) -> bool {
    const SHARES: [f64; 5] = [2.0, 3.0, 4.0, 5.0, 10.0];
    let mut earlier_numbers: Vec<f64> = Vec::new();
    for known in before.iter().filter(|known| known.text.len() <= MAX_MESSAGE_BYTES).take(MAX_TEXTS) {
        numbers::scan(&known.text, |n| {
            if !n.in_identifier && earlier_numbers.len() < MAX_NUMBERS {
                earlier_numbers.push(n.value);
            }
        });
    }
    earlier_numbers.sort_by(f64::total_cmp);
    earlier_numbers.dedup();
    // One of the numbers may be a rate or a percentage.
    let gives = |a: &f64| {
        pair_gives(&earlier_numbers, *a, amount, 0.006, false)
            || SHARES.iter().any(|n| near(a / n, amount, 0.006))
    };
    let rates = |a: &f64| {
        earlier_numbers.iter().any(|b| {
            [a * b, a * b / 100.0, a * (1.0 + b / 100.0), a * (1.0 - b / 100.0), a / b]
                .iter()
                .any(|v| near(*v, amount, 0.006))
        })
    };
    earlier_numbers.iter().any(|a| gives(a) || rates(a))
}

/// The cached numbers of a message of the user.
struct Numbers(Vec<Number>);

/// The numbers of a text with one of the nouns after them, in the singular or plural, or with one of the nouns that is
/// a sign, such as "$", before or after them.
fn numbers_with_noun<'t>(memo: &Memo, text: &'t Text, nouns: &[String]) -> Vec<(f64, &'t Text, Number)> {
    let names_noun = |word: &str| {
        nouns.iter().any(|noun| {
            let (noun, word) = (noun.trim_end_matches('s'), word.trim_end_matches('s'));
            noun == word || matches!((noun, word), ("people", "person") | ("person", "people"))
        })
    };
    let follows = |n: &Number| {
        let after = text.get(n.end..).unwrap_or_default().trim_start();
        let sign = after.chars().next().is_some_and(|c| !c.is_alphanumeric() && names_noun(&c.to_string()));
        let word = after.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
        sign || !word.is_empty() && names_noun(&word.to_lowercase())
    };
    let precedes = |n: &Number| {
        let before = text.get(..n.start).unwrap_or_default().trim_end();
        before.chars().next_back().is_some_and(|c| !c.is_alphanumeric() && names_noun(&c.to_string()))
    };
    let all = memo.for_text(text, |text| Numbers(numbers::all(text)));
    let counting = all.0.iter().filter(|n| !n.in_identifier && (follows(n) || precedes(n)));
    counting.map(|n| (n.value, text, *n)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::Script;

    fn finding_count(task: &str, arguments: &[&str]) -> usize {
        let script = Script::new(task).tools(&["book"]);
        let script =
            arguments.iter().fold(script, |s, a| s.calls("", &[("book", a)]).returns("{\"ok\":true}"));
        let trace = script.answers("Done.").build();
        let memo = Memo::new();
        let attempts = CallAttempts::get(&trace, &memo);
        find(&trace, &memo, &attempts).len()
    }

    #[test]
    fn number_that_differs_from_the_users_is_found() {
        for (task, arguments) in [
            ("Book a room for 3 nights", r#"{"nights":2}"#),
            ("A table for 5 people please", r#"{"number_of_people":4}"#),
            ("Send $250 to Lena", r#"{"to":"Lena","amount":520}"#),
            ("Send 250 euros to Lena", r#"{"amount":"205","currency":"EUR"}"#),
            ("Order 12 boxes", r#"{"boxes":21}"#),
        ] {
            assert_eq!(finding_count(task, &[arguments]), 1, "{task} {arguments}");
        }
    }

    #[test]
    fn number_of_the_user_or_of_another_kind_is_not_found() {
        for (task, arguments) in [
            ("Book a room for 3 nights", r#"{"nights":3}"#),
            ("Book a room for 3 nights, or two if it is full", r#"{"nights":2}"#),
            ("Book 3 nights in May and 5 nights in June", r#"{"nights":8}"#),
            ("Send $250 to Lena", r#"{"amount":25000}"#),
            ("Send $250 to Lena", r#"{"amount":251,"value":1}"#),
            ("Two adults and 3 children", r#"{"adults":4}"#),
            ("Find 3 hotels", r#"{"limit":10}"#),
        ] {
            assert_eq!(finding_count(task, &[arguments]), 0, "{task} {arguments}");
        }
        assert_eq!(finding_count("Book 3 nights", &[r#"{"nights":2}"#, r#"{"nights":3}"#]), 0, "corrected");
    }
}
