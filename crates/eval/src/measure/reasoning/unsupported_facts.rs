//! Compares the facts of a final answer with the evidence.
//!
//! Principle: a fact of an answer that had to be looked up is in the content that the model read, or follows from it.
//! Whether other facts are false is not examined. Common knowledge and tasks without results are not compared.
//!
//! In: an answer, its request, and the evidence that the model could have read. Out: a finding for each key fact
//! without support. A single unsupported fact among many supported ones is not a finding: precision has priority,
//! since a correct run must not fail.

mod memory;
mod operands;
mod phrases;
mod words_around;

use std::ops::Range;

use super::answer::sentences;
use super::dates;
use super::evidence::{Evidence, Support};
use super::statements::{Prose, asserts_nothing_by_classes};
use crate::measure::defects::Defect;
use crate::measure::excerpt::{around, head};
use crate::measure::language::{Language, ReadText, classes_of};
use crate::measure::numbers::{self, Number};
use crate::measure::request::TaskDemands;
use crate::measure::{Category, Finding, Memo};
use words_around::{WordsAround, is_list_label};

/// Maximum numbers, or phrases of one kind, of an answer that are checked.
const MAX_FACTS: usize = 64;
/// Maximum findings of one kind on one answer.
const MAX_FINDINGS: usize = 3;
/// Whole numbers up to this one are not checked, since they may be counts, ranks and days.
const MAX_UNCHECKED_NUMBER: f64 = 20.0;
/// Numbers that need no source, such as the hours of a day, a full percentage and the days of a year.
const COMMON_NUMBERS: [f64; 7] = [24.0, 30.0, 60.0, 90.0, 100.0, 365.0, 360.0];

/// Whether tools were called before an answer, and whether a call succeeded.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CallsBefore {
    /// Whether a tool had been called.
    pub attempted: bool,
    /// Whether a call had succeeded.
    pub succeeded: bool,
}

/// The result of checking an answer.
#[derive(Debug, Default)]
pub(crate) struct FactCheck {
    /// The findings on key facts without support.
    pub findings: Vec<Finding>,
    /// Numbers that must not count as evidence later.
    pub unsupported: Vec<f64>,
    /// The number of facts compared with the evidence.
    pub examined: usize,
    /// The number of these facts that the request does not state.
    pub beyond_request: usize,
}

/// Compares the facts of `answer` with `evidence`, which is complete. The request asks for facts that need a lookup. In
/// other languages than English, names and dates are not compared, since they have several forms, nor quotations, which
/// may be translated.
pub(crate) fn check(
    answer: &str,
    language: Language,
    request: &TaskDemands,
    evidence: &mut Evidence<'_>,
    calls: CallsBefore,
    memo: &Memo,
) -> FactCheck {
    let prose = Prose::cached(answer, memo);
    let is_english = language == Language::English;
    let result = match is_english || request.asks_for_estimate() {
        true => FactCheck::default(),
        false => check_numbers_in_other_language(answer, &prose, language, request, evidence, calls, memo),
    };
    let mut checker = FactChecker {
        answer,
        prose: &prose,
        sentences: sentences(&prose),
        request,
        evidence,
        calls,
        memo,
        knows_units: is_english && ReadText::new(answer, None, memo).is_known(),
        language,
        result,
    };
    if is_english {
        checker.check_numbers();
    }
    if calls.attempted {
        checker.check_phrases();
    }
    let only_failed = calls.attempted && !calls.succeeded;
    let is_examined = only_failed && checker.result.findings.is_empty() && !request.asks_for_estimate();
    if let Some(sentence) = is_examined.then(|| memory::source(answer, memo)).flatten() {
        let rationale = "an answer with a source, or an admission that there is none, was expected; the answer says \
                         that it comes from memory, after every call had failed";
        let finding = Defect::UnsupportedFact.finding(rationale.to_owned(), sentence);
        checker.result.examined += 1;
        checker.result.beyond_request += 1;
        checker.result.findings.push(finding.by_rule("memory"));
    }
    checker.result
}

/// Compares the numbers of an answer in another language than English. At least half of them have to be without
/// support, in each reading of groups of digits.
fn check_numbers_in_other_language(
    answer: &str,
    prose: &str,
    language: Language,
    request: &TaskDemands,
    evidence: &mut Evidence<'_>,
    calls: CallsBefore,
    memo: &Memo,
) -> FactCheck {
    let joined = numbers::with_joined_groups(prose);
    // Where no spaces separate words, the words for units are not read.
    evidence.restrict_units(Some(answer).filter(|_| language.is_spaced()));
    let readings = [Some(&*joined), Some(prose).filter(|plain| *plain != joined)];
    let mut best: Option<FactCheck> = None;
    for text in readings.into_iter().flatten() {
        let mut checker = FactChecker {
            answer,
            prose: text,
            sentences: sentences(text),
            request,
            evidence: &mut *evidence,
            calls,
            memo,
            knows_units: false,
            language,
            result: FactCheck::default(),
        };
        checker.check_majority_of_numbers();
        if best.as_ref().is_none_or(|previous| checker.result.findings.len() < previous.findings.len()) {
            best = Some(checker.result);
        }
    }
    best.unwrap_or_default()
}

/// A number that the answer states.
struct NumberFact {
    number: Number,
    /// Whether the answer states it as an approximation.
    hedged: bool,
    /// The values of which a limit in words is true.
    limited: Option<Range<f64>>,
    /// The index of its sentence.
    sentence: usize,
    support: Support,
}

struct FactChecker<'a, 'e> {
    answer: &'a str,
    /// The answer with code, links and paths masked; byte positions are those of the answer.
    prose: &'a str,
    sentences: Vec<(usize, usize)>,
    request: &'a TaskDemands,
    evidence: &'a mut Evidence<'e>,
    calls: CallsBefore,
    memo: &'a Memo,
    /// Whether the answer is certainly in a language whose units are known.
    knows_units: bool,
    /// The language of the answer, by whose words questions, conditions and examples are recognised.
    language: Language,
    result: FactCheck,
}

impl FactChecker<'_, '_> {
    /// The sentence of the answer at a byte position, or else the text around it.
    fn sentence_at(&self, position: usize) -> &str {
        let range = self.sentences.iter().find(|(start, end)| (*start..*end).contains(&position));
        let text = range.and_then(|&(start, end)| self.answer.get(start..end)).map(str::trim);
        text.unwrap_or_else(|| around(self.answer, position, position, 80))
    }

    /// Adds findings on the unsupported numbers of an answer in English: if they are at least half of its numbers, or
    /// in the first sentence with a number if the request asks for a number.
    fn check_numbers(&mut self) {
        let mut facts = self.numbers();
        if facts.is_empty() || self.request.asks_for_estimate() {
            return;
        }
        self.evidence.restrict_units(Some(self.answer));
        self.find_support(&mut facts);
        self.count_examined(&facts);
        let unsupported: Vec<&NumberFact> = facts.iter().filter(|f| f.support == Support::None).collect();
        let first_sentence = facts.first().map(|f| f.sentence);
        let is_majority = unsupported.len() * 2 >= facts.len();
        let is_number_requested = !is_majority && self.request.question_for_number().is_some();
        let is_asked_for = |fact: &&NumberFact| is_number_requested && Some(fact.sentence) == first_sentence;
        self.report(unsupported.into_iter().filter(|fact| is_majority || is_asked_for(fact)), &facts);
    }

    /// Counts numbers as examined.
    fn count_examined(&mut self, facts: &[NumberFact]) {
        self.result.examined += facts.len();
        self.result.beyond_request +=
            facts.iter().filter(|fact| !self.request.has_number(&fact.number)).count();
    }

    /// Adds findings on unsupported numbers.
    fn report<'f>(&mut self, unsupported: impl Iterator<Item = &'f NumberFact>, facts: &[NumberFact]) {
        for fact in unsupported {
            self.result.unsupported.extend(fact.number.possible_values());
            if self.result.findings.len() < MAX_FINDINGS {
                let finding = self.number_finding(fact, facts);
                self.result.findings.extend(finding);
            }
        }
    }

    /// Adds findings on the numbers of an answer in another language than English, if at least half are unsupported.
    fn check_majority_of_numbers(&mut self) {
        // Characters that multiply the number before them: such numbers are not compared.
        const MAGNITUDES: [char; 5] = ['万', '萬', '億', '亿', '千'];
        let is_plain = |fact: &NumberFact| {
            let sentence =
                self.sentences.get(fact.sentence).and_then(|&(start, end)| self.prose.get(start..end));
            let after = sentence.and_then(|sentence| sentence.get(fact.number.end..)).unwrap_or_default();
            !after.trim_start().starts_with(MAGNITUDES)
        };
        let mut facts: Vec<NumberFact> = self.numbers().into_iter().filter(is_plain).collect();
        self.find_support(&mut facts);
        self.count_examined(&facts);
        let unsupported: Vec<&NumberFact> = facts.iter().filter(|f| f.support == Support::None).collect();
        if unsupported.is_empty() || unsupported.len() * 2 < facts.len() {
            return;
        }
        self.report(unsupported.into_iter(), &facts);
    }

    /// Finds support for the numbers by their values, and else as times and durations.
    fn find_support(&mut self, facts: &mut [NumberFact]) {
        let amounts = self.small_amounts();
        find_support(facts, self.evidence, amounts);
        if facts.iter().any(|fact| fact.support == Support::None) {
            let derived = self.derived_common_numbers();
            if !derived.is_empty() {
                find_support(facts, self.evidence, derived);
            }
        }
        for fact in facts.iter_mut().filter(|fact| fact.support == Support::None) {
            let sentence =
                self.sentences.get(fact.sentence).and_then(|&(start, end)| self.prose.get(start..end));
            let is_true_limit = fact
                .limited
                .as_ref()
                .is_some_and(|values| self.evidence.has_number_within(values.start, values.end));
            // Without known units, the number may be a difference in any unit of time.
            let gives = |sentence| {
                self.evidence.gives_time(sentence, &fact.number)
                    || !self.knows_units && self.evidence.gives_difference(sentence, &fact.number)
            };
            if is_true_limit || sentence.is_some_and(gives) {
                fact.support = Support::Derived;
            }
        }
        self.find_support_in_words(facts);
        self.find_support_in_passed_days(facts);
        self.except_hypothetical(facts);
    }

    /// The numbers of the answer that state a quantity.
    fn numbers(&self) -> Vec<NumberFact> {
        let mut out = Vec::new();
        if !numbers::has_digit(self.prose) {
            return out;
        }
        let words = self.language.places(self.prose, self.memo);
        for (index, &(start, end)) in self.sentences.iter().enumerate() {
            let states = |text: &&str| {
                numbers::has_digit(text)
                    && !asserts_nothing_by_classes(text, classes_of(words.within(start..end)))
            };
            let Some(sentence) = self.prose.get(start..end).filter(states) else { continue };
            numbers::scan(sentence, |number| {
                let small =
                    number.value.fract() == 0.0 && number.value <= MAX_UNCHECKED_NUMBER && !number.fractional;
                let common = COMMON_NUMBERS.contains(&number.value);
                let is_day = number.value <= 31.0 && dates::begins_with_month(sentence.get(number.end..));
                let is_quantity = !number.in_identifier && !is_numbered_by_year(sentence, &number);
                if !is_quantity || small || common || is_day || out.len() >= MAX_FACTS {
                    return;
                }
                let words = WordsAround {
                    text: self.prose,
                    words: &words,
                    at: start + number.start..start + number.end,
                };
                if !words.is_label() && !is_list_label(sentence, &number) {
                    out.push(NumberFact {
                        number,
                        hedged: words.is_hedged(),
                        limited: words.limited_values(number.value),
                        sentence: index,
                        support: Support::None,
                    });
                }
            });
        }
        out
    }

    /// The finding on an unsupported number. It has the category of a misread result if the only number of a result has
    /// similar digits.
    fn number_finding(&self, fact: &NumberFact, facts: &[NumberFact]) -> Option<Finding> {
        let &(start, end) = self.sentences.get(fact.sentence)?;
        let sentence = self.answer.get(start..end)?;
        let shown = sentence.get(fact.number.start..fact.number.end).unwrap_or_default();
        let is_stated = |v: f64| facts.iter().any(|f| (f.number.value - v).abs() <= f.number.tolerance);
        let mut results = self.evidence.single_numbers().iter().rev();
        let misread = results.find(|(v, _)| !is_stated(*v) && have_similar_digits(*v, fact.number.value));
        if let Some((_, result)) = misread {
            let rationale = format!(
                "the tool's number was expected; the answer states {shown}, but the tool returned \"{}\"",
                head(result.trim(), 60)
            );
            let finding = Defect::UnsupportedFact.finding(rationale, sentence.trim());
            return Some(finding.by_rule("misread_number").under(Category::ToolOutputMisinterpretation));
        }
        let circumstances =
            match (memory::source(self.answer, self.memo), self.calls.attempted, self.calls.succeeded) {
                (Some(sentence), ..) => {
                    format!("; the answer says that it comes from memory: \"{}\"", head(sentence, 80))
                }
                (None, false, _) => "; no tool was called at all".to_owned(),
                (None, true, false) => "; every call before it had failed".to_owned(),
                _ => String::new(),
            };
        let rationale = format!(
            "a figure from an earlier message or tool result was expected; the answer states {shown}, which none of \
             them contains and which does not follow from their values by simple arithmetic{circumstances}"
        );
        Some(Defect::UnsupportedFact.finding(rationale, sentence.trim()).by_rule("number"))
    }
}

/// Whether the number is part of the name of a document that is numbered by year, such as a law: "Regulation (EC)
/// 261/2004".
fn is_numbered_by_year(sentence: &str, n: &Number) -> bool {
    let (before, after) = (sentence.get(..n.start), sentence.get(n.end..));
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let is_year = |value: f64| value.fract() == 0.0 && (1900.0..2100.0).contains(&value);
    let year_after = after.and_then(|text| text.strip_prefix('/')).filter(|text| digits(text) == 4);
    let number_before = before.and_then(|text| text.strip_suffix('/'));
    year_after.and_then(|text| text.get(..4)?.parse().ok()).is_some_and(is_year)
        || is_year(n.value) && number_before.is_some_and(|text| text.ends_with(|c: char| c.is_ascii_digit()))
}

/// Sets the support of each number. The search is repeated while it finds support, since a number may follow from other
/// supported numbers: "5642 - 4806, so 836, which is 15 %".
fn find_support(facts: &mut [NumberFact], evidence: &mut Evidence<'_>, mut stated: Vec<f64>) {
    let supported = facts.iter().filter(|fact| fact.support != Support::None);
    stated.extend(supported.map(|fact| fact.number.value));
    for _ in 0..3 {
        let mut changed = false;
        for fact in facts.iter_mut().filter(|f| f.support == Support::None) {
            fact.support = evidence.supports(&fact.number, fact.hedged, &stated);
            if fact.support != Support::None {
                stated.push(fact.number.value);
                changed = true;
            }
        }
        if !changed {
            return;
        }
    }
}

/// Whether two numbers differ in one digit or in the order of their digits.
fn have_similar_digits(a: f64, b: f64) -> bool {
    let digits = |v: f64| format!("{v}").replace('.', "");
    let (a, b) = (digits(a), digits(b));
    if a == b || a.len() != b.len() || a.len() < 3 {
        return false;
    }
    let difference_count = a.bytes().zip(b.bytes()).filter(|(x, y)| x != y).count();
    let sorted = |s: &str| {
        let mut v: Vec<u8> = s.bytes().collect();
        v.sort_unstable();
        v
    };
    difference_count == 1 || sorted(&a) == sorted(&b)
}

#[cfg(test)]
mod tests;
