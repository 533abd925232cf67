//! Decides whether two instructions ask for the same (004, table 33: "semantically similar and ... the same intent").
//!
//! In: two prompts, and the words of their language. Out: the same, different, or unsure. The clear cases are
//! decided here: prompts are the same if they have the same content words in any inflection, and different if
//! they contradict each other in a negation, a number, a comparison or a name, even if all other words are equal.
//! In other cases a rule cannot distinguish a synonym from another condition ("calls" and "interactions", "refunds" and
//! "sales"): the pair is unsure, and a judge or an embedding decides if one is configured. In a language without
//! data only equal texts are the same, and only numbers contradict each other.

use std::collections::{BTreeMap, BTreeSet};

use super::placeholder;
use super::schema::{Plan, PlanStep, StepNotation};
use crate::measure::defects::clip;
use crate::measure::language::RequestWords;

/// Maximum number of bytes of a prompt that are compared.
const MAX_BYTES: usize = 2 << 10;
/// Share of common content words below which two prompts are different: one word of five in common. A plan and its
/// reference have few pairs of steps above it, so that few questions are asked.
const DIFFERENT_BELOW: f64 = 0.2;

/// Whether two prompts ask for the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Likeness {
    Same,
    Different,
    /// Rules cannot decide.
    Unsure,
}

/// A content word, or a number.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct ContentWord {
    stem: String,
    /// Whether a negation precedes the word.
    is_negated: bool,
}

/// The parts of a prompt that are compared.
#[derive(Clone, Debug, Default)]
pub(crate) struct Intent {
    /// All words in lower case, in order.
    lower_words: Vec<String>,
    /// Content words in order.
    words: Vec<ContentWord>,
    /// The first content word with each stem, unstemmed in lower case: negating prefixes are looked up in it.
    unstemmed: BTreeMap<String, String>,
    /// Numbers, each with the stem of the word that it counts, if one follows.
    numbers: BTreeSet<(String, Option<String>)>,
    /// Words of pairs of opposites, such as "longer" and "shorter": the pair, the side, whether it is negated.
    sides: Vec<(usize, bool, bool)>,
    /// Names, quotations and dates, each as lower-case words.
    names: Vec<Vec<String>>,
    /// Whether a word such as "from" or "to" occurs, so that the order of the words matters.
    is_directed: bool,
}

/// The prompts of two plans in one language.
pub(crate) struct Intents {
    words: Option<&'static RequestWords>,
    pub plan_intents: Vec<Intent>,
    pub reference_intents: Vec<Intent>,
}

impl Intents {
    pub(crate) fn new(plan: &Plan, reference: &Plan) -> Intents {
        let prompts = || plan.steps.iter().chain(&reference.steps).map(|step| step.prompt.as_str());
        let words = RequestWords::for_text(&prompts().collect::<Vec<_>>().join("\n"));
        let read = |plan: &Plan| plan.steps.iter().map(|step| Intent::from_step(step, words)).collect();
        Intents { words, plan_intents: read(plan), reference_intents: read(reference) }
    }

    /// Step `i` of the plan compared with step `j` of the reference.
    pub(crate) fn likeness(&self, i: usize, j: usize) -> Likeness {
        self.plan_intents[i].likeness(&self.reference_intents[j], self.words)
    }

    /// Steps `i` and `j` of the reference compared with each other.
    pub(crate) fn reference_likeness(&self, i: usize, j: usize) -> Likeness {
        self.reference_intents[i].likeness(&self.reference_intents[j], self.words)
    }

    /// The similarity of step `i` of the plan and step `j` of the reference, from 0 to 1.
    pub(crate) fn similarity(&self, i: usize, j: usize) -> f64 {
        self.plan_intents[i].similarity(&self.reference_intents[j], self.words)
    }
}

impl Intent {
    /// The intent of a step. In prose, the name of its tool is no part of the prompt.
    fn from_step(step: &PlanStep, words: Option<&RequestWords>) -> Intent {
        let tool = step.tool.as_deref().filter(|_| step.notation == StepNotation::Prose);
        Intent::parse(&step.prompt, tool, words)
    }

    pub(crate) fn from_prompt(prompt: &str, words: Option<&RequestWords>) -> Intent {
        Intent::parse(prompt, None, words)
    }

    fn parse(prompt: &str, tool: Option<&str>, words: Option<&RequestWords>) -> Intent {
        let prompt = placeholder::without(clip(prompt, MAX_BYTES)).replace('’', "'");
        let mut out = Intent { names: quotations(&prompt), ..Intent::default() };
        let tool_words: Vec<String> = tool
            .map(|tool| tokens(tool, words))
            .into_iter()
            .flatten()
            .map(|t| t.text.to_lowercase())
            .collect();
        let mut tokens = tokens(&prompt, words);
        tokens.retain(|token| !tool_words.contains(&token.text.to_lowercase()));
        let capitals_mark_names = words.is_some_and(|w| !w.nouns_in_capitals) && !is_title(&tokens, words);
        // A negation applies to the next content word.
        let mut is_negated = false;
        for (i, token) in tokens.iter().enumerate() {
            let lower = token.text.to_lowercase();
            out.lower_words.push(lower.clone());
            let Some(words) = words else {
                out.push_number(token, &tokens, i, None);
                out.push_word(&lower, lower.clone(), false);
                continue;
            };
            out.is_directed |= words.is_directed(&lower);
            if words.negates(&lower) {
                is_negated = true;
                continue;
            }
            if let Some((pair, side)) = words.side(&lower) {
                out.sides.push((pair, side, is_negated));
            }
            if let Some(number) = words.number(&lower) {
                let number = PromptToken { number: Some(number.to_string()), ..token.clone() };
                out.push_number(&number, &tokens, i, Some(words));
                out.push_word(&lower, number.number.unwrap_or_default(), std::mem::take(&mut is_negated));
                continue;
            }
            if token.number.is_some() {
                out.push_number(token, &tokens, i, Some(words));
            }
            if !words.has_content(&lower) {
                continue;
            }
            let is_name = words.is_date(&lower)
                || token.number.is_none() && lower.chars().any(|c| c.is_ascii_digit())
                || token.is_in_capitals()
                || capitals_mark_names && token.is_capitalised() && !token.begins_sentence;
            if is_name {
                out.names.push(vec![lower.clone()]);
            }
            let stem = token.number.clone().unwrap_or_else(|| words.stem(&lower).to_owned());
            out.push_word(&lower, stem, std::mem::take(&mut is_negated));
        }
        out
    }

    fn push_word(&mut self, unstemmed: &str, stem: String, is_negated: bool) {
        self.unstemmed.entry(stem.clone()).or_insert_with(|| unstemmed.to_owned());
        self.words.push(ContentWord { stem, is_negated });
    }

    /// Adds the number of `token`, the token at `index`, with its sign or the word after it as the unit.
    fn push_number(
        &mut self,
        token: &PromptToken,
        tokens: &[PromptToken],
        index: usize,
        words: Option<&RequestWords>,
    ) {
        let Some(number) = &token.number else { return };
        let unit = token.unit.clone().or_else(|| {
            let next = tokens.get(index + 1).filter(|next| next.number.is_none() && !next.begins_sentence)?;
            let lower = next.text.to_lowercase();
            match words {
                Some(words) => words.has_content(&lower).then(|| words.stem(&lower).to_owned()),
                None => Some(lower),
            }
        });
        self.numbers.insert((number.clone(), unit));
    }

    /// Dice's coefficient over the content words, from 0 to 1.
    fn similarity(&self, other: &Intent, words: Option<&RequestWords>) -> f64 {
        let stems =
            |all: Vec<ContentWord>| all.into_iter().map(|word| word.stem).collect::<BTreeSet<String>>();
        let (a, b) = (stems(self.aligned(other, words)), stems(other.aligned(self, words)));
        if a.is_empty() && b.is_empty() {
            return f64::from(self.lower_words == other.lower_words);
        }
        2.0 * a.intersection(&b).count() as f64 / (a.len() + b.len()) as f64
    }

    /// The content words. A negating prefix is converted to a negation if the other prompt has the word without it:
    /// "unresolved" is "not resolved".
    fn aligned(&self, other: &Intent, words: Option<&RequestWords>) -> Vec<ContentWord> {
        let Some(lists) = words else { return self.words.clone() };
        let aligned_word = |word: &ContentWord| {
            if other.unstemmed.contains_key(&word.stem) {
                return word.clone();
            }
            let unstemmed = self.unstemmed.get(&word.stem).unwrap_or(&word.stem);
            let rest = lists.without_prefix(unstemmed).map(|rest| lists.stem(rest));
            match rest.into_iter().find(|rest| other.unstemmed.contains_key(*rest)) {
                Some(rest) => ContentWord { stem: rest.to_owned(), is_negated: !word.is_negated },
                None => word.clone(),
            }
        };
        self.words.iter().map(aligned_word).collect()
    }

    /// Whether both prompts ask for the same.
    pub(crate) fn likeness(&self, other: &Intent, words: Option<&RequestWords>) -> Likeness {
        if self.lower_words == other.lower_words && self.numbers == other.numbers {
            return Likeness::Same;
        }
        let (own_words, other_words) = (self.aligned(other, words), other.aligned(self, words));
        if differ_in_numbers(self, other) {
            return Likeness::Different;
        }
        if words.is_none() {
            return Likeness::Unsure;
        }
        if differ_in_negation(&own_words, &other_words)
            || differ_in_sides(self, other)
            || differ_in_names(self, other)
        {
            return Likeness::Different;
        }
        let has_order = self.is_directed || other.is_directed || self.sides.len() + other.sides.len() > 2;
        let sorted = |all: &[ContentWord]| all.iter().cloned().collect::<BTreeSet<ContentWord>>();
        let has_same_words =
            own_words == other_words || !has_order && sorted(&own_words) == sorted(&other_words);
        if has_same_words && self.numbers == other.numbers {
            return Likeness::Same;
        }
        if self.similarity(other, words) < DIFFERENT_BELOW { Likeness::Different } else { Likeness::Unsure }
    }

    /// The numbers that both prompts have, each with its unit; numbers without a unit are left out.
    pub(crate) fn common_numbers<'a>(
        &'a self,
        other: &'a Intent,
    ) -> impl Iterator<Item = (&'a str, &'a str)> + 'a {
        let counted =
            |(number, unit): &'a (String, Option<String>)| Some((number.as_str(), unit.as_deref()?));
        self.numbers.intersection(&other.numbers).filter_map(counted)
    }
}

/// Whether each prompt has a number that the other lacks, with the same unit.
fn differ_in_numbers(a: &Intent, b: &Intent) -> bool {
    let only = |one: &Intent, other: &Intent| -> BTreeSet<Option<String>> {
        one.numbers.difference(&other.numbers).map(|(_, counted)| counted.clone()).collect()
    };
    only(a, b).intersection(&only(b, a)).next().is_some()
}

/// Whether a word is only negated in one prompt, and only not negated in the other.
fn differ_in_negation(a: &[ContentWord], b: &[ContentWord]) -> bool {
    let flags = |all: &[ContentWord], stem: &str| {
        let has_stem = |negated| all.iter().any(|word| word.stem == stem && word.is_negated == negated);
        (has_stem(true), has_stem(false))
    };
    a.iter().any(|word| {
        matches!(
            (flags(a, &word.stem), flags(b, &word.stem)),
            ((true, false), (false, true)) | ((false, true), (true, false))
        )
    })
}

/// Whether one prompt has only one side of a pair of opposites, and the other prompt only the other side. A pair with a
/// negated side is ignored.
fn differ_in_sides(a: &Intent, b: &Intent) -> bool {
    let sides = |one: &Intent, pair: usize| {
        let has_side = |side| one.sides.iter().any(|&(p, s, negated)| p == pair && s == side && !negated);
        let is_negated = one.sides.iter().any(|&(p, _, negated)| p == pair && negated);
        (!is_negated).then(|| (has_side(true), has_side(false)))
    };
    a.sides.iter().any(|&(pair, ..)| {
        matches!(
            (sides(a, pair), sides(b, pair)),
            (Some((true, false)), Some((false, true))) | (Some((false, true)), Some((true, false)))
        )
    })
}

/// Whether each prompt has a name with a word that the other lacks.
fn differ_in_names(a: &Intent, b: &Intent) -> bool {
    let lacks = |one: &Intent, other: &Intent| {
        one.names.iter().any(|name| name.iter().any(|word| !other.lower_words.contains(word)))
    };
    lacks(a, b) && lacks(b, a)
}

/// A word or a number of a prompt.
#[derive(Clone, Debug, Default)]
struct PromptToken {
    text: String,
    /// The value of the number, as the same text for the same value.
    number: Option<String>,
    /// A sign next to a number: `%`, a currency.
    unit: Option<String>,
    /// Whether the token begins a sentence.
    begins_sentence: bool,
}

impl PromptToken {
    fn is_capitalised(&self) -> bool {
        self.text.chars().next().is_some_and(char::is_uppercase)
    }

    fn is_in_capitals(&self) -> bool {
        self.text.chars().count() > 1 && self.text.chars().all(char::is_uppercase)
    }
}

regex!(
    TOKEN,
    r"(?x) (?P<before>[$€£¥]\s?)? (?P<number>\d+(?:[.,]\d+)*) \s?(?P<after>[%$€£¥°])?
    | (?P<word>[\p{L}\p{M}\d][\p{L}\p{M}\d]*(?:'[\p{L}]+)*)"
);

/// The words and numbers of a prompt, in order.
fn tokens(prompt: &str, words: Option<&RequestWords>) -> Vec<PromptToken> {
    let mut out: Vec<PromptToken> = Vec::new();
    let mut end = 0;
    for captures in TOKEN.captures_iter(prompt) {
        let Some(whole) = captures.get(0) else { continue };
        let between = prompt.get(end..whole.start()).unwrap_or_default();
        let begins_sentence = out.is_empty() || between.contains(['.', '?', '!', ':', '\n', '"']);
        end = whole.end();
        if let Some(number) = captures.name("number") {
            let sign = captures.name("before").or(captures.name("after"));
            let sign = sign.map(|sign| sign.as_str().trim().to_owned());
            let value = Some(value_of(number.as_str()));
            out.push(PromptToken {
                text: number.as_str().to_owned(),
                number: value,
                unit: sign,
                begins_sentence,
            });
            continue;
        }
        let Some(word) = captures.name("word").map(|word| word.as_str()) else { continue };
        let is_negation = words.is_some_and(|words| words.negates(&word.to_lowercase()));
        // "l'appel" is two words, "isn't" is one.
        for (i, part) in word.split('\'').filter(|_| !is_negation).enumerate() {
            out.push(PromptToken {
                text: part.to_owned(),
                begins_sentence: begins_sentence && i == 0,
                ..PromptToken::default()
            });
        }
        if is_negation {
            out.push(PromptToken { text: word.to_owned(), begins_sentence, ..PromptToken::default() });
        }
    }
    out
}

/// A number without separators of thousands and redundant zeros: `1,000` is `1000`, `0.50` is `0.5`.
fn value_of(number: &str) -> String {
    let parts: Vec<&str> = number.split([',', '.']).collect();
    let has_thousands = parts.len() > 1 && parts[1..].iter().all(|part| part.len() == 3) && parts[0] != "0";
    let plain = match (has_thousands, parts.split_last()) {
        (false, Some((last, first))) if !first.is_empty() => format!("{}.{last}", first.concat()),
        _ => parts.concat(),
    };
    let plain = if plain.contains('.') { plain.trim_end_matches('0').trim_end_matches('.') } else { &plain };
    let plain = plain.trim_start_matches('0');
    if plain.is_empty() || plain.starts_with('.') { format!("0{plain}") } else { plain.to_owned() }
}

/// Whether most content words begin with a capital letter, so that capital letters do not mark names.
fn is_title(tokens: &[PromptToken], words: Option<&RequestWords>) -> bool {
    let is_content = |token: &&PromptToken| {
        !token.begins_sentence && words.is_none_or(|words| words.has_content(&token.text.to_lowercase()))
    };
    let all = tokens.iter().filter(is_content).count();
    let capitals = tokens.iter().filter(is_content).filter(|token| token.is_capitalised()).count();
    capitals * 2 > all
}

regex!(QUOTED, r#""([^"]{1,200})"|“([^”]{1,200})”|«([^»]{1,200})»|(?:^|[\s(\[=:,])'([^']{1,200})'"#);

/// The quoted parts, in lower-case words.
fn quotations(prompt: &str) -> Vec<Vec<String>> {
    let words = |text: &str| {
        let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        words.map(str::to_lowercase).collect::<Vec<String>>()
    };
    let quoted_words =
        |captures: regex::Captures<'_>| (1..=4).find_map(|n| Some(words(captures.get(n)?.as_str())));
    QUOTED.captures_iter(prompt).filter_map(quoted_words).filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn likeness_of_prompts(a: &str, b: &str) -> Likeness {
        let words = RequestWords::for_text(&format!("{a}\n{b}"));
        let (one, other) = (Intent::from_prompt(a, words), Intent::from_prompt(b, words));
        assert_eq!(one.likeness(&other, words), other.likeness(&one, words), "{a} / {b}");
        one.likeness(&other, words)
    }

    #[test]
    fn contradictions_in_long_equal_prompts_are_different() {
        for (a, b) in [
            ("Fetch ids of the calls that were escalated", "Fetch ids of the calls that were not escalated"),
            ("Fetch ids of escalated calls", "Fetch ids of calls without escalated status"),
            ("Calls that are resolved by the agents", "Calls that are unresolved by the agents"),
            ("Fetch ids of calls longer than 30 minutes", "Fetch ids of calls shorter than 30 minutes"),
            ("Fetch ids of calls longer than 30 minutes", "Fetch ids of calls longer than 45 minutes"),
            (
                "What is the mean score of the calls in January?",
                "What is the mean score of the calls in February?",
            ),
            (
                "How many calls did the team of Anna Berg take?",
                "How many calls did the team of Carl Berg take?",
            ),
            ("Which calls have the status 'open'?", "Which calls have the status 'closed'?"),
            ("Calls with a share of at least 5%", "Calls with a share of at least 15%"),
            ("Sort the calls by score, ascending", "Sort the calls by score, descending"),
            ("List the top five reasons for the calls", "List the top three reasons for the calls"),
            (
                "Hole die Nummern der Anrufe, die eskaliert wurden",
                "Hole die Nummern der Anrufe, die nicht eskaliert wurden",
            ),
            (
                "Anrufe mit mehr als 30 Minuten Dauer für das Team",
                "Anrufe mit weniger als 30 Minuten Dauer für das Team",
            ),
            (
                "Trouve les appels qui ont été transférés par les agents",
                "Trouve les appels qui n'ont pas été transférés par les agents",
            ),
        ] {
            assert_eq!(likeness_of_prompts(a, b), Likeness::Different, "{a} / {b}");
        }
    }

    #[test]
    fn the_same_content_words_are_the_same_prompt() {
        for (a, b) in [
            ("Fetch ids of unresolved calls", "Retrieve the ids of the calls that were not resolved"),
            ("Fetch call_ids of refund calls", "List the call ids for calls on refund"),
            ("QA scores per week for the calls", "For the calls: QA scores, per week"),
            ("Calls of more than 1,000 seconds", "calls of more than 1000 seconds"),
            ("Hole die Nummern der offenen Anrufe", "Liste die Nummern der offenen Anrufe auf"),
        ] {
            assert_eq!(likeness_of_prompts(a, b), Likeness::Same, "{a} / {b}");
        }
    }

    #[test]
    fn words_that_may_be_synonyms_or_other_conditions_are_unsure() {
        for (a, b) in [
            (
                "What are customers most unhappy about in these calls?",
                "What are the main complaints of customers?",
            ),
            // Tables 35 and 36.
            (
                "Fetch interaction_ids of interactions where the call driver is related to refunds and duration is longer than 30 minutes.",
                "Fetch call_ids of calls where the call driver is related to refunds and duration is longer than 30 minutes.",
            ),
            ("Fetch ids of calls about refunds in the north", "Fetch ids of calls about sales in the north"),
            ("Fetch ids of calls about refunds", "Fetch ids of escalated calls about refunds"),
            ("Calls transferred from sales to support", "Calls transferred from support to sales"),
            ("Calls of half an hour that were refunded", "Calls of 30 minutes that were refunded"),
            // There are no word lists of the language.
            (
                "Geef de nummers van de gesprekken die niet zijn opgelost",
                "Geef alle nummers van gesprekken zonder oplossing",
            ),
        ] {
            assert_eq!(likeness_of_prompts(a, b), Likeness::Unsure, "{a} / {b}");
        }
    }

    #[test]
    fn pairs_of_the_paper_do_not_match() {
        let a = "Fetch interaction_ids categorized by 'Did We Resolve' (DWR) status and their corresponding call drivers";
        assert_eq!(
            likeness_of_prompts(a, "Fetch interaction_ids of calls marked as 'resolved'."),
            Likeness::Different
        );
        // Steps 4 and 5 of listing 1.
        let step_4 = "Retrieve QA scores for resolution procedures in these calls.";
        assert_ne!(
            likeness_of_prompts(step_4, "Retrieve QA scores for professionalism in these calls."),
            Likeness::Same
        );
    }

    #[test]
    fn numbers_are_compared_by_value() {
        for (number, value) in [
            ("1,000", "1000"),
            ("0.50", "0.5"),
            ("007", "7"),
            ("1.5", "1.5"),
            ("0", "0"),
            ("1,234.50", "1234.5"),
        ] {
            assert_eq!(value_of(number), value);
        }
    }

    proptest! {
        #[test]
        fn any_prompt_is_the_same_as_itself(a in "\\PC{0,80}", b in "\\PC{0,80}") {
            prop_assert_eq!(likeness_of_prompts(&a, &a), Likeness::Same);
            likeness_of_prompts(&a, &b);
        }
    }
}
