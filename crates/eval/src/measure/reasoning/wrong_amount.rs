//! Actions with another amount or quantity than the user gave: "1150 a month", and a standing order of 1500.
//!
//! Principle: an amount is passed as the user gave it, or follows from known numbers. An action passes another amount
//! if its number is in no text before it and does not follow from their numbers, while the answer has the user's
//! number, which no action and no result of one has. A quantity of a thing ("two rooms", "a table for 4") is compared
//! with the argument, or the field of the result, whose key or description in the schema names the thing. There is no
//! finding for several calls, whose quantities may add up. All words for people name the same thing. In a dialogue,
//! a number that was mentioned later is not a finding.
//!
//! In: the messages of the user, the actions of an agent, and its answer. Out: one finding for each agent, on the model
//! span that requested the call.

mod unasked_quantity;

use std::rc::Rc;

use foldhash::{HashMap, HashMapExt};
use serde_json::Value;
use verdict_otlp::trace::Idx;
use verdict_otlp::work;

use super::combined_amounts::{combinable, combined, is_rounded, is_share};
use super::conduct::Conduct;
use super::evidence::{Evidence, Support, TextSource};
use super::missing_announced_call::instruction_texts;
use crate::measure::defects::Defect;
use crate::measure::identifier::identifier_words;
use crate::measure::language::{Action, Language, WordClass, WordClasses, classes, classes_in, names};
use crate::measure::numbers::{self, Number};
use crate::measure::provenance::{KnownTexts, Origin};
use crate::measure::records::{KeyFact, KeyName, KeyNames, Structure};
use crate::measure::tool_purpose::{Purpose, ToolPurpose, purpose, stems};
use crate::measure::work_budget::BYTES_PER_STEP;
use crate::measure::{Finding, Memo, currency, people, without_effect};
use crate::recognise::{Agent, AgentTrace, Call, Text};

/// Maximum bytes of the user's messages: longer texts name many things.
const MAX_USER_BYTES: usize = 1_500;
/// Maximum bytes of an answer: longer answers also name many things.
const MAX_ANSWER_BYTES: usize = 4_000;
/// Maximum calls of an agent that are compared.
const MAX_CALLS: usize = 40;
/// Maximum numbers of a call, a result or a request that are compared.
const MAX_NUMBERS: usize = 24;
/// The smallest amount that is compared: smaller numbers may be parts of dates, ranks and counts.
const MIN_AMOUNT: f64 = 20.0;
/// The largest quantity of a thing.
const MAX_QUANTITY: f64 = 100.0;
/// Ratios of two units of one quantity, such as cents of a euro, minutes of an hour and days of a year.
const UNIT_RATIOS: [f64; 12] =
    [7.0, 10.0, 12.0, 24.0, 30.0, 52.0, 60.0, 100.0, 365.0, 1000.0, 1024.0, 3600.0];
/// Words in keys of numbers that are not amounts, besides those of identifiers.
const CODE_WORDS: [&str; 12] = [
    "version",
    "port",
    "zip",
    "postcode",
    "phone",
    "pin",
    "seed",
    "lat",
    "latitude",
    "lon",
    "lng",
    "longitude",
];
/// Maximum number of parts into which an amount may have been divided.
const MAX_SHARES: u8 = 6;
/// Words in names of parameters that mean a count of something.
const COUNT_WORDS: [&str; 7] = ["number", "num", "of", "count", "size", "quantity", "qty"];
/// The stem that replaces every word for people, so that "guests" and "adults" are one thing.
const PERSON: &str = "person";
/// Classes of words that mean a change of a quantity, a limit, or one of several quantities.
const INDEFINITE_QUANTITY: WordClasses =
    classes!(Increment Bound Quantifier Alternative Exception Repetition Contrast);

/// The finding on an agent.
pub(super) fn check(conduct: &Conduct<'_>) -> Option<(Idx, Finding)> {
    let Conduct { trace, memo, agent, .. } = *conduct;
    let answer = agent.answer.as_deref().filter(|text| text.len() <= MAX_ANSWER_BYTES)?;
    if agent.calls.len() > MAX_CALLS {
        return None;
    }
    let keys = memo.shared::<KeyNames>();
    let succeeded_calls = || conduct.succeeded(MAX_CALLS).map(|(_, call)| call);
    let is_action = |call: &&Call| call.llm.is_some() && purpose(trace, memo, call) != Purpose::Query;
    // Most calls pass no number, or change nothing.
    let passes_number = |call: &Call| passed_numbers(call, &keys).next().is_some();
    if !succeeded_calls().filter(|call| passes_number(call)).any(|call| is_action(&call)) {
        return None;
    }
    let actions: Vec<&Call> = succeeded_calls()
        .filter(is_action)
        .filter(|call| !without_effect::reports_no_effect(call, memo))
        .collect();
    actions.iter().any(|call| passes_number(call)).then_some(())?;
    let user_texts = conduct.user_messages();
    let bytes: usize = user_texts.iter().map(|text| text.len()).sum();
    if bytes > MAX_USER_BYTES || !memo.budget.spend((bytes + answer.len()) / 4) {
        return None;
    }
    let amount_check = AmountCheck { trace, memo, agent, answer, user_texts, actions, keys };
    let (call, expected, shown) = amount_check
        .other_amount()
        .or_else(|| amount_check.other_money())
        .or_else(|| amount_check.other_quantity())
        .or_else(|| amount_check.unasked_quantity())?;
    let rationale = format!("{expected} was expected, as the user said; {} has {shown}", call.name.trim());
    conduct.finding(Defect::ContradictsRequest, rationale, call)
}

/// An action, the intended amount, and the passed one.
type Mismatch<'a> = (&'a Call, String, String);

/// The texts and actions of an agent whose numbers are compared.
struct AmountCheck<'a> {
    trace: &'a AgentTrace,
    memo: &'a Memo,
    agent: &'a Agent,
    answer: &'a str,
    user_texts: Vec<Text>,
    /// The calls that had an effect.
    actions: Vec<&'a Call>,
    keys: Rc<KeyNames>,
}

/// The positive numbers among the arguments of a call that may be amounts or quantities, with the words of their keys.
fn passed_numbers<'c>(call: &'c Call, keys: &'c KeyNames) -> impl Iterator<Item = (KeyName, f64)> + 'c {
    let arguments = call.parsed.as_deref().and_then(Value::as_object).into_iter().flatten();
    let nested = arguments.flat_map(|(key, value)| {
        std::iter::once((key, value)).chain(value.as_object().into_iter().flatten())
    });
    let numbers = nested.filter_map(|(key, value)| {
        let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())?;
        let name = keys.name_for(key);
        let is_code = name.has_fact(KeyFact::Code, |words| {
            let counts = matches!(words, [a, b, ..] if a == "number" && b == "of");
            words.iter().any(|word| names::names_identifier(word)) && !counts
                || words.iter().any(|word| word == "year" || CODE_WORDS.contains(&word.as_str()))
        });
        (number > 0.0 && number.is_finite() && !is_code).then_some((name, number))
    });
    numbers.take(MAX_NUMBERS)
}

/// Whether two numbers are equal up to rounding errors.
fn is_near(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-6 * one.abs().max(other.abs())
}

/// Whether two numbers may be one quantity in two units. Also true for a ratio above every ratio of units, since such
/// numbers are of different things.
fn may_be_converted(one: f64, other: f64) -> bool {
    let ratio = (one / other).max(other / one);
    UNIT_RATIOS.iter().any(|unit| is_near(*unit, ratio))
        || ratio > UNIT_RATIOS.iter().copied().fold(0.0, f64::max)
}

/// The numbers of a text that may be amounts.
fn amounts(text: &str) -> impl Iterator<Item = Number> {
    numbers::all(text).into_iter().filter(|n| !n.in_identifier && n.value >= MIN_AMOUNT)
}

impl<'a> AmountCheck<'a> {
    fn passed<'c>(&'c self, call: &'c Call) -> impl Iterator<Item = (KeyName, f64)> + 'c {
        passed_numbers(call, &self.keys)
    }

    /// An action whose number has no source, if the answer has exactly one number of the user that no action has.
    fn other_amount(&self) -> Option<Mismatch<'a>> {
        let answer_numbers: Vec<Number> = amounts(self.answer).collect();
        let is_told = |value: f64| answer_numbers.iter().any(|number| is_near(number.value, value));
        let repeated_numbers = self.user_texts.iter().flat_map(|text| amounts(text).collect::<Vec<_>>());
        let repeated_numbers: Vec<Number> =
            repeated_numbers.filter(|n| is_told(n.value)).take(MAX_NUMBERS).collect();
        if repeated_numbers.is_empty() {
            return None;
        }
        let action_numbers: Vec<f64> = self.actions.iter().flat_map(|call| self.numbers_of(call)).collect();
        let is_passed = |n: &Number| {
            n.possible_values().any(|value| action_numbers.iter().any(|other| is_near(*other, value)))
        };
        let mut unpassed: Vec<f64> =
            repeated_numbers.iter().filter(|n| !is_passed(n)).map(|n| n.value).collect();
        unpassed.dedup();
        let [expected] = unpassed.as_slice() else { return None };
        // An answer with both numbers reports the change.
        let is_other =
            |number: f64| number >= MIN_AMOUNT && !may_be_converted(number, *expected) && !is_told(number);
        self.first_without_source(*expected, |call| {
            self.passed(call).filter(|(_, number)| is_other(*number)).collect()
        })
    }

    /// The first of the `candidates` of the actions that no text before the action contains and that does not follow
    /// from the numbers of these texts. `None` beyond the work budget.
    fn first_without_source(
        &self,
        expected: f64,
        candidates: impl Fn(&'a Call) -> Vec<(KeyName, f64)>,
    ) -> Option<Mismatch<'a>> {
        let known = KnownTexts::cached(self.trace, self.memo);
        let mut earlier_numbers = EarlierNumbers::new(self, &known);
        let mut derived = None;
        for &call in &self.actions {
            // The passed number may be net of a tax whose rate the call passes.
            let rates: Vec<f64> =
                self.passed(call).map(|(_, rate)| rate).filter(|rate| *rate < 100.0).collect();
            let is_net =
                |number: f64| rates.iter().any(|rate| is_rounded(number * (1.0 + rate / 100.0), expected));
            for (key, number) in candidates(call).into_iter().filter(|(_, number)| !is_net(*number)) {
                earlier_numbers.read_before(call)?;
                let has_source = earlier_numbers.support(number);
                if self.memo.budget.is_exceeded() {
                    return None;
                }
                let mut is_derived = || {
                    let all = derived.get_or_insert_with(|| self.derived());
                    all.as_ref().is_none_or(|all| all.iter().any(|value| is_rounded(*value, number)))
                };
                if !has_source && !is_derived() {
                    return Some((call, expected.to_string(), format!("{}: {number}", key.join("_"))));
                }
            }
        }
        None
    }

    /// The values that follow from several numbers of the request and of the instructions: 412 km at 0.30 and 24 more,
    /// 17.5 hours at 85 with 19 %; `None` beyond the work budget or if there are too many numbers.
    fn derived(&self) -> Option<Vec<f64>> {
        let request_numbers = combinable(&self.user_texts, MAX_NUMBERS);
        let view = self.agent.llms.first().and_then(|at| self.trace.views.get(*at)).into_iter();
        let rules = combinable(view.flat_map(instruction_texts), MAX_NUMBERS);
        let (request_count, all) = (request_numbers.len(), request_numbers.len() + rules.len());
        let is_within_limits =
            all <= MAX_NUMBERS && self.memo.budget.spend(request_count * all * (request_count + 1));
        is_within_limits.then(|| combined(&request_numbers, &rules))
    }

    /// An action whose amount has no source, where the user gives only one amount of money: 340 for "3,400 euros".
    fn other_money(&self) -> Option<Mismatch<'a>> {
        let is_amount = |n: &Number| !n.in_identifier && n.possible_values().any(|value| value >= MIN_AMOUNT);
        let amounts_in_text = |text: &Text| -> Vec<Number> {
            numbers::all(text)
                .into_iter()
                .filter(|n| is_amount(n) && currency::is_beside(text, n.start..n.end))
                .collect()
        };
        let user_amounts: Vec<Number> = self.user_texts.iter().flat_map(amounts_in_text).collect();
        let [expected] = user_amounts.as_slice() else { return None };
        let is_expected = |number: f64| {
            // The amount may be in cents, a fraction, or divided among a few.
            let is_divided = |total: f64| (1..=MAX_SHARES).any(|n| is_near(total, number * f64::from(n)));
            expected
                .possible_values()
                .any(|value| is_divided(value) || is_near(value * 100.0, number) || is_share(number, value))
        };
        let passed_amounts = |call: &'a Call| {
            self.passed(call).filter(|(key, _)| names::has_word_of_class(key, WordClass::Amount))
        };
        if self.actions.iter().any(|call| passed_amounts(call).any(|(_, number)| is_expected(number))) {
            return None;
        }
        // "About 10 % more" leaves the amount to the agent.
        let is_rough = |text: &Text| {
            classes_in(text, None, self.memo).is_none_or(|classes| classes.has(WordClass::Approximation))
        };
        if self.user_texts.iter().any(is_rough) {
            return None;
        }
        self.first_without_source(expected.value, |call| {
            passed_amounts(call).filter(|(_, number)| *number >= MIN_AMOUNT).collect()
        })
    }

    /// The numbers in the arguments and in the result of an action.
    fn numbers_of(&self, call: &Call) -> Vec<f64> {
        let texts = [&call.arguments, &call.result].into_iter().flatten();
        let mut values = Vec::new();
        for text in texts.filter(|text| self.memo.budget.spend(1 + text.len() / 4)) {
            numbers::scan(text, |n| values.extend(n.possible_values()));
        }
        values
    }

    /// An action with another quantity of a thing than the only one that the user gives for the thing.
    fn other_quantity(&self) -> Option<Mismatch<'a>> {
        let is_booking = |call: &&&Call| {
            let purpose = ToolPurpose::for_call(self.trace, self.memo, call);
            matches!(purpose.actions.first(), Some(Action::Book | Action::Order | Action::Create))
        };
        let bookings: Vec<&&Call> = self.actions.iter().filter(is_booking).collect();
        let changes = |classes: WordClasses| classes.has_any(INDEFINITE_QUANTITY);
        let may_change = |text: &Text| classes_in(text, None, self.memo).is_none_or(changes);
        if bookings.is_empty() || self.user_texts.iter().any(may_change) {
            return None;
        }
        let requested = self.quantities();
        bookings.iter().find_map(|call| {
            let passed_numbers: Vec<(KeyName, f64)> = self.passed(call).collect();
            let result_numbers = self.result_numbers(call);
            // Numbers of the result that repeat the arguments are the effect; others may be a remainder.
            let confirmed = result_numbers
                .iter()
                .filter(|(_, n)| passed_numbers.iter().any(|(_, value)| is_near(*value, *n)));
            let mut fields = passed_numbers.iter().chain(confirmed);
            let (field, name, number, expected) = fields.find_map(|(field, number)| {
                let noun = counted_by(call, field)?;
                // "day: 12" is a point in time.
                if names::is_of_class(&noun, WordClass::TimeUnit) {
                    return None;
                }
                let expected = requested.get(&thing(&noun)?).copied().flatten()?;
                (*number != expected && number.fract() == 0.0 && *number <= MAX_QUANTITY)
                    .then_some((field, noun, *number, expected))
            })?;
            let counts_people = thing(&name).is_some_and(|thing| thing == PERSON);
            // Several calls may add up, and another field may have the expected number.
            let call_count = bookings.iter().filter(|other| other.name == call.name).count();
            let has_expected = passed_numbers
                .iter()
                .chain(&result_numbers)
                .any(|(key, value)| *value == expected && (counts_people || key.contains(&name)));
            // Guests may be split into adults and children, and "a table for 8" may mean the hour.
            let is_small_count =
                |(key, value): &(KeyName, f64)| key != field && key.len() == 1 && *value <= MIN_AMOUNT;
            let is_split =
                counts_people && (passed_numbers.iter().any(is_small_count) || has_hour(call, expected));
            // A product of two arguments: two rooms for two guests each.
            let is_each =
                passed_numbers.iter().any(|(key, value)| key != field && is_near(value * number, expected));
            // A product of two quantities: 15 reams in 3 boxes of 5.
            let is_pack = requested.values().flatten().any(|count| is_near(count * expected, number));
            let is_other_unit = is_each || is_pack || may_be_converted(number, expected);
            let is_told = self.states_number(self.answer, &name, number) || self.is_discussed(&name, number);
            (call_count == 1 && !has_expected && !is_told && !is_other_unit && !is_split)
                .then(|| (**call, format!("{expected} {name}"), format!("{name}: {number}")))
        })
    }

    /// The numbers in the outermost record of a result, with the words of their keys.
    fn result_numbers(&self, call: &Call) -> Vec<(KeyName, f64)> {
        let Some(structure) = call.result.as_ref().and_then(|result| Structure::cached(result, self.memo))
        else {
            return Vec::new();
        };
        let records = structure.0.iter().flat_map(|parsed| parsed.records.first());
        let fields = records.filter(|record| record.list.is_none()).flat_map(|record| &record.fields);
        let numbers = fields.filter_map(|field| Some((field.name.clone(), field.number()?)));
        numbers.take(MAX_NUMBERS).collect()
    }

    /// By the stem of a thing, its only quantity that the user gives; `None` for several.
    fn quantities(&self) -> HashMap<String, Option<f64>> {
        let mut requested: HashMap<String, Option<f64>> = HashMap::new();
        for (number, noun) in self.user_texts.iter().flat_map(|text| counted_things(text, self.memo)) {
            let quantity = requested.entry(noun).or_insert(Some(number));
            *quantity = quantity.filter(|first| *first == number);
        }
        requested
    }

    /// Whether a text has this quantity of a thing.
    fn states_number(&self, text: &str, noun: &str, number: f64) -> bool {
        let Some(named_thing) = thing(noun) else { return true };
        counted_things(text, self.memo).any(|(count, thing)| count == number && thing == named_thing)
    }

    /// Whether a later turn of the dialogue mentions this number, since the user may have changed or accepted it.
    fn is_discussed(&self, noun: &str, number: f64) -> bool {
        let later = self.user_texts.get(1..).unwrap_or_default();
        let is_in = |text: &Text| values(text, self.memo).any(|value| value == number);
        let views = || self.agent.llms.iter().filter_map(|at| self.trace.views.get(*at)).take(MAX_CALLS);
        later.iter().any(is_in)
            || !later.is_empty() && views().any(|view| self.states_number(&view.output_text(), noun, number))
    }
}

/// The stem of the thing that a word names, or [`PERSON`].
fn thing(word: &str) -> Option<String> {
    match people::names_people(&word.to_lowercase()) {
        true => Some(PERSON.to_owned()),
        false => stems(word).next(),
    }
}

/// The only thing that an argument counts: the noun in its name, or else the people in its description in the schema.
fn counted_by(call: &Call, name: &[String]) -> Option<String> {
    let mut nouns = name.iter().filter(|word| !COUNT_WORDS.contains(&word.as_str()));
    match (nouns.next(), nouns.next()) {
        (Some(noun), None) => Some(noun.clone()),
        (None, _) => {
            let properties = call.definition.as_ref()?.parameters.as_ref()?.get("properties")?.as_object()?;
            let (_, schema) = properties.iter().find(|(key, _)| identifier_words(key) == name)?;
            let text = schema.get("description")?.as_str()?.to_lowercase();
            let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric()).take(MAX_NUMBERS).collect();
            let counted_things = words.windows(2).filter_map(|pair| Some((pair.first()?, pair.get(1)?)));
            let mut people = counted_things.filter(|(quantifier, thing)| {
                matches!(**quantifier, "of" | "many") && people::names_people(thing)
            });
            people.next().map(|(_, thing)| (*thing).to_owned())
        }
        _ => None,
    }
}

/// Whether an argument of the call has this hour of the day, or the one 12 hours later.
fn has_hour(call: &Call, hour: f64) -> bool {
    let text = call.arguments.as_deref().unwrap_or_default();
    let contains_hour =
        |hour: f64| text.contains(&format!("{hour:02}:")) || text.contains(&format!("\"{hour}:"));
    contains_hour(hour) || contains_hour(hour + 12.0)
}

/// The numbers of a text, in digits or as words.
fn values(text: &str, memo: &Memo) -> impl Iterator<Item = f64> {
    let language = Language::detected(text, None, memo);
    text.split(|c: char| !c.is_alphanumeric()).filter_map(move |word| value(word, language))
}

/// The number that a word is, in digits or spelled in the language.
fn value(word: &str, language: Option<Language>) -> Option<f64> {
    let word = word.to_lowercase();
    let spelled =
        language.and_then(|language| language.table().value(WordClass::Number, &word)).map(f64::from);
    spelled.or_else(|| word.parse().ok())
}

/// The numbers of the texts before a call. The texts of several calls are read in the order of the calls.
struct EarlierNumbers<'r> {
    check: &'r AmountCheck<'r>,
    known: &'r KnownTexts,
    evidence: Evidence<'r>,
    /// The number of texts that were read.
    read_count: usize,
}

impl<'r> EarlierNumbers<'r> {
    fn new(check: &'r AmountCheck<'_>, known: &'r KnownTexts) -> EarlierNumbers<'r> {
        EarlierNumbers { check, known, evidence: Evidence::within(&check.memo.budget), read_count: 0 }
    }

    /// Reads the texts before a call; `None` beyond the work budget, or if not all of these texts are known.
    fn read_before(&mut self, call: &Call) -> Option<()> {
        let texts = self.known.before(self.check.trace, call)?;
        for known in texts.get(self.read_count..).unwrap_or_default() {
            self.check.memo.budget.spend(1 + known.text.len() / BYTES_PER_STEP).then_some(())?;
            work::count(known.text.len());
            let is_result = known.origin == Origin::Result;
            self.evidence
                .add(&known.text, if is_result { TextSource::Tool } else { TextSource::Conversation });
        }
        self.read_count = texts.len();
        Some(())
    }

    /// Whether a number is in one of the texts, or follows from their numbers.
    fn support(&mut self, number: f64) -> bool {
        // The tolerance is that of the number as it is written, so that a rounded conversion follows as well.
        let Some(value) = numbers::all(&number.to_string()).first().copied() else { return true };
        self.evidence.supports(&value, false, &[]) != Support::None
    }
}

/// The whole numbers of a text, each with the stems of the two words after it, or with [`PERSON`].
fn counted_things<'t>(text: &'t str, memo: &Memo) -> impl Iterator<Item = (f64, String)> + use<'t> {
    counted_things_in(text, Language::detected(text, None, memo))
}

/// As [`counted`], of a text in a known language.
fn counted_things_in(text: &str, language: Option<Language>) -> impl Iterator<Item = (f64, String)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let counted_at = move |at: usize| {
        let is_punctuation = |c: char| !c.is_alphanumeric();
        let number = value(words.get(at)?.trim_matches(is_punctuation), language)?;
        let mut nouns = Vec::new();
        if people::is_people_count(language, &words, at) {
            nouns.push((number, PERSON.to_owned()));
        }
        for next in words.get(at + 1..)?.iter().take(2) {
            match people::names_people(&next.trim_matches(is_punctuation).to_lowercase()) {
                true => nouns.push((number, PERSON.to_owned())),
                false => nouns.extend(stems(next).map(|stem| (number, stem))),
            }
            if next.ends_with([',', '.', ';', ':', '!', '?']) {
                break;
            }
        }
        Some(nouns)
    };
    let count = text.split_whitespace().count();
    let people = language.map(|language| people::numbers_in(text, language)).unwrap_or_default();
    (0..count)
        .filter_map(counted_at)
        .flatten()
        .chain(people.into_iter().map(|number| (number, PERSON.to_owned())))
        .filter(|(number, _)| number.fract() == 0.0 && *number <= MAX_QUANTITY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::calls::attempts::CallAttempts;
    use crate::measure::reasoning::conduct::apply_rule;
    use crate::measure::reasoning::conduct::findings_of;
    use crate::measure::testing::Script;
    use crate::measure::work_budget::WorkBudget;
    use crate::recognise::ToolDefinition;

    fn rationales(task: &str, calls: &[(&str, &str, &str)], answer: &str) -> Vec<String> {
        let script = calls.iter().fold(Script::new(task).system("You help customers."), |script, call| {
            script.calls("", &[(call.0, call.1)]).returns(call.2)
        });
        let trace = script.answers(answer).build();
        let findings = findings_of(check, &trace);
        findings.into_iter().map(|(_, finding)| finding.rationale).collect()
    }

    #[test]
    fn people_are_counted_in_their_sentences() {
        let mut heading = "";
        let (mut count, mut wrong) = ([[0; 2]; Language::ALL.len()], Vec::new());
        for line in include_str!("../language/sentences/people.txt").lines() {
            if let Some(next) = line.strip_prefix("= ") {
                heading = next;
                continue;
            }
            let (language, sign) = heading.split_once(' ').expect("a language and a sign");
            let language = Language::ALL.into_iter().find(|known| known.as_str() == language).unwrap();
            let findings = counted_things_in(line, Some(language)).any(|(_, thing)| thing == PERSON);
            if findings != (sign == "+") {
                wrong.push(format!("{heading}: {line}"));
            }
            count[language as usize][usize::from(findings)] += 1;
        }
        assert!(wrong.is_empty(), "{} sentences:\n{}", wrong.len(), wrong.join("\n"));
        assert!(count.as_flattened().iter().all(|count| *count >= 20), "{count:?}");
    }

    #[test]
    fn unrequested_quantity_is_found_if_the_answer_has_the_quantity_of_the_user() {
        let task = "Order 24 cartons of A4 paper and 6 toner cartridges.";
        let run = |toner: u32, answer: &str| {
            let toner = format!(r#"{{"sku":"TONER-BK","qty":{toner}}}"#);
            let paper = ("add_line", r#"{"sku":"PAPER-A4","qty":24}"#, r#"{"ok":true}"#);
            rationales(task, &[paper, ("add_line", &toner, r#"{"ok":true}"#)], answer).len()
        };
        let answer = "Done: 24 cartons of paper and 6 toners are on the order.";
        assert_eq!(run(16, answer), 1);
        assert_eq!(run(6, answer), 0);
        assert_eq!(run(16, "Done: 24 cartons and 16 toners are on the order, as they come in packs."), 0);
    }

    #[test]
    fn number_in_place_of_one_of_the_request_is_found() {
        let stock = ("get_stock", "{}", r#"{"sku":"BX-4","on_hand":35,"pack":12}"#);
        let order = |task: &str, arguments: &str, answer: &str| {
            rationales(task, &[stock, ("create_order", arguments, r#"{"order":"PO-7719"}"#)], answer).len()
        };
        let task = "Reorder 240 of the blue boxes by 20 March.";
        let answer = "Order PO-7719 has gone out.";
        assert_eq!(order(task, r#"{"sku":"BX-4","pieces":204,"by":"2026-03-20"}"#, answer), 1);
        assert_eq!(order(task, r#"{"sku":"BX-4","pieces":240,"by":"2026-03-20"}"#, answer), 0);
        assert_eq!(
            order(task, r#"{"sku":"BX-4","pieces":205}"#, "240 less the 35 on hand."),
            0,
            "a difference"
        );
        assert_eq!(
            order(task, r#"{"sku":"BX-4","pieces":204}"#, "I ordered 204, the most there are."),
            0,
            "stated"
        );
        assert_eq!(order("Reorder 245 boxes.", r#"{"pieces":252}"#, answer), 0, "whole packs");
        assert_eq!(order("Order 250 or 300 boxes.", r#"{"pieces":520}"#, answer), 0, "an alternative");
        let hours = |arguments: &str| {
            order("Reduzieren Sie Frau Falk auf 80 % ab 1. August.", arguments, "Der Eintrag ist geändert.")
        };
        assert_eq!(hours(r#"{"changes":{"fte":0.8}}"#), 0);
        let share = |arguments: &str| {
            order("Set the part time of Ana to 80% from 1 August.", arguments, "It is set.")
        };
        assert_eq!(share(r#"{"changes":{"fte":0.6,"from":"2026-08-01"}}"#), 1);
        assert_eq!(share(r#"{"changes":{"fte":0.8,"from":"2026-08-01"}}"#), 0);
        assert_eq!(share(r#"{"percent":80,"confidence":0.6}"#), 0, "80 is passed");
    }

    #[test]
    fn amount_without_source_is_found_if_the_answer_has_the_amount_of_the_user() {
        let task = "Set up a standing order of 1150 a month from 1 September.";
        let run = |arguments: &str, result: &str, answer: &str| {
            rationales(task, &[("create_order", arguments, result)], answer).len()
        };
        let answer = "Done: £1,150 a month.";
        assert_eq!(run(r#"{"amount":1500,"start":"2025-09-01"}"#, r#"{"amount":"1500.00"}"#, answer), 1);
        assert_eq!(run(r#"{"amount":1150}"#, "{}", answer), 0);
        assert_eq!(run(r#"{"amount_cents":115000}"#, "{}", answer), 0, "cents");
        assert_eq!(run(r#"{"amount":1500}"#, r#"{"amount":1150}"#, answer), 0, "the effect is right");
        assert_eq!(run(r#"{"amount":1500}"#, "{}", "Done: £1,500 a month."), 0, "told");
        assert_eq!(run(r#"{"amount":1150,"order_id":4471}"#, "{}", answer), 0);
        let lower = [("get_limit", "{}", r#"{"most":900}"#), ("create_order", r#"{"amount":900}"#, "{}")];
        assert_eq!(rationales(task, &lower, "You asked for 1150, the most is allowed.").len(), 0, "known");
    }

    #[test]
    fn texts_before_the_calls_are_read_once_for_all_their_numbers() {
        let listed = |from: usize| (from..from + 20).map(|n| format!(r#""p{n}":{n}"#)).collect::<Vec<_>>();
        let calls: Vec<String> =
            (0..30).map(|i| format!("{{{}}}", listed(2_000 + 20 * i).join(","))).collect();
        let rates = (2_000..3_000).map(|n| format!("{n} ")).collect::<String>();
        let mut script = Script::new("Set up a standing order of 1150 a month.").system("You help.");
        script = script.calls("", &[("get_rates", "{}")]).returns(&rates);
        for arguments in &calls {
            script = script.calls("", &[("create_order", arguments)]).returns(&"It is set up. ".repeat(100));
        }
        let (trace, memo) = (script.answers("Done: 1150 a month.").build(), Memo::new());
        let attempts = CallAttempts::get(&trace, &memo);
        let bytes: usize = trace.calls.iter().filter_map(|call| call.result.as_ref()).map(|t| t.len()).sum();
        let before = work::counted();
        assert!(apply_rule(("tested", check), &trace, &memo, &attempts).is_empty());
        let work = work::counted() - before;
        assert!(work <= 2 * bytes as u64, "{work} of {bytes} bytes");
        // Beyond the budget there is no finding, and no more texts are read.
        let memo = Memo::within(WorkBudget::new(700, None));
        memo.budget.begin();
        let before = work::counted();
        assert!(
            apply_rule(("tested", check), &trace, &memo, &attempts).is_empty() && memo.budget.is_exceeded()
        );
        assert!(work::counted() - before <= bytes as u64 / 2);
    }

    #[test]
    fn quantity_that_differs_from_the_request_is_found() {
        let task = "I need two double rooms for 3 nights.";
        let run = |arguments: &str, result: &str, answer: &str| {
            rationales(task, &[("book_room", arguments, result)], answer).len()
        };
        assert_eq!(run(r#"{"rooms":1}"#, r#"{"code":"B-1"}"#, "2 rooms are booked."), 1);
        assert_eq!(run(r#"{"count":1}"#, r#"{"code":"B-1","rooms":1}"#, "Booked."), 1);
        assert_eq!(run(r#"{"rooms":2,"nights":3}"#, r#"{"rooms":2}"#, "Booked."), 0);
        assert_eq!(run(r#"{"count":2}"#, r#"{"rooms":9}"#, "Booked."), 0, "what is left");
        assert_eq!(run(r#"{"rooms":1}"#, "{}", "Only 1 room was free: I booked it."), 0, "told");
        let each = ("book_room", r#"{"rooms":1}"#, "{}");
        assert_eq!(rationales(task, &[each, each], "Booked.").len(), 0, "two calls");
        let more = "I need two more rooms.";
        assert_eq!(rationales(more, &[("book_room", r#"{"rooms":3}"#, "{}")], "Booked.").len(), 0);
    }
    #[test]
    fn people_of_the_request_are_compared_with_the_argument_that_counts_people() {
        let run = |task: &str, arguments: &str| {
            rationales(task, &[("book_table", arguments, "{}")], "It is booked.").len()
        };
        let table = "Please book a table for 4 at 19:30, in the garden.";
        assert_eq!(run(table, r#"{"guests":2,"time":"19:30"}"#), 1);
        assert_eq!(run(table, r#"{"party_size":2,"time":"19:30","duration":90}"#), 1);
        assert_eq!(run(table, r#"{"number_of_people":5,"time":"19:30"}"#), 1);
        assert_eq!(run("Reserviere bitte einen Tisch für 6 Personen.", r#"{"gäste":2}"#), 1);
        assert_eq!(run("Reserva una mesa para 6, por favor.", r#"{"personas":2}"#), 1);
        assert_eq!(run("Book the tour for two adults on Friday.", r#"{"adults":3}"#), 1);
        assert_eq!(run("Book the tour for two adults on Friday.", r#"{"num_adults":2}"#), 0);
        assert_eq!(run(table, r#"{"guests":4,"time":"19:30"}"#), 0);
        assert_eq!(run(table, r#"{"party_size":4,"table":2}"#), 0, "the number of the table");
        assert_eq!(run(table, r#"{"adults":2,"guests":2}"#), 0, "kinds of guests");
        assert_eq!(
            run("A table for 8 on Friday, we are two guests.", r#"{"guests":2,"time":"20:00"}"#),
            0,
            "an hour"
        );
        assert_eq!(run("A table for 8 on Friday.", r#"{"guests":2,"time":"20:00"}"#), 0, "an hour");
        assert_eq!(run("A table for 3 hours on Friday.", r#"{"guests":2}"#), 0);
        assert_eq!(run("A table for 4 on Friday, and lunch for 2 on Sunday.", r#"{"guests":2}"#), 0);
        // The thing that a parameter counts is in the schema if its name only means a count.
        let described = |description: &str| {
            let call = ("book_table", r#"{"count":2}"#);
            let mut trace =
                Script::new(table).calls("", &[call]).returns("{}").answers("It is booked.").build();
            let schema = serde_json::json!({"properties": {"count": {"description": description}}});
            let parameters = Some(std::sync::Arc::new(schema));
            let definition = ToolDefinition { name: "book_table".into(), description: None, parameters };
            trace.calls[0].definition = Some(definition);
            findings_of(check, &trace).len()
        };
        assert_eq!(described("The number of guests."), 1);
        assert_eq!(described("The number of tables for the guests."), 0);
        // A number that a turn of the dialogue mentions is not a finding.
        let later = |says: &str, user: &str| {
            let script = Script::new("Book a table for 4 on Friday.").says(says).user(user);
            let script = script.calls("", &[("book_table", r#"{"guests":2}"#)]).returns("{}");
            findings_of(check, &script.answers("It is booked.").build()).len()
        };
        assert_eq!(later("Inside or outside?", "Inside."), 1);
        assert_eq!(later("Inside or outside?", "Inside. We will be two."), 0);
        assert_eq!(later("I have room for 2 guests. Is that fine?", "Fine."), 0);
    }
}
