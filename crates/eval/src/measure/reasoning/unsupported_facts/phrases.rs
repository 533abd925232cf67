//! The facts of an answer that are compared as phrases: links, quotations, dates and names.
//!
//! In: an answer and the evidence. Out: findings on phrases that the evidence does not contain, and that do not follow
//! from it, if they are at least half of their kind.

use super::{FactChecker, MAX_FACTS, MAX_FINDINGS};
use crate::measure::defects::Defect;
use crate::measure::excerpt::head;
use crate::measure::language::{Language, names};
use crate::measure::reasoning::dates;
use crate::measure::reasoning::links_and_quotations::{PhraseFact, links, quotations};
use crate::measure::reasoning::statements::asserts_nothing;
use crate::measure::request::{self, Demand};

/// Maximum bytes of an answer whose names are checked: longer answers have many headings and terms.
const MAX_ANSWER_WITH_NAMES: usize = 1500;

/// The kind of a fact that is a name.
const NAME: &str = "name";

impl FactChecker<'_, '_> {
    /// Adds findings on phrases without support.
    pub(super) fn check_phrases(&mut self) {
        let language = self.language;
        let is_stated = |fact: &PhraseFact| !asserts_nothing(&fact.quote, language);
        let mut facts: Vec<PhraseFact> = links(self.answer, language).into_iter().filter(is_stated).collect();
        let is_english = language == Language::English;
        if is_english {
            facts.extend(quotations(self.answer).into_iter().filter(is_stated));
        }
        if is_english && !self.request.asks(Demand::Calendar, self.memo) {
            facts.extend(self.dates());
        }
        if is_english
            && self.answer.len() <= MAX_ANSWER_WITH_NAMES
            && self.request.asks(Demand::Name, self.memo)
        {
            facts.extend(self.names());
        }
        facts.retain(|fact| !fact.phrases.is_empty());
        facts.truncate(MAX_FACTS);
        if facts.is_empty() {
            return;
        }
        self.result.examined += facts.len();
        let is_in_request =
            |fact: &&PhraseFact| fact.phrases.iter().any(|phrase| self.request.has_phrase(phrase));
        self.result.beyond_request += facts.len() - facts.iter().filter(is_in_request).count();
        let phrases: Vec<&str> = facts.iter().flat_map(|f| f.phrases.iter().map(String::as_str)).collect();
        let mut are_mentioned = self.evidence.mentions(&phrases).into_iter();
        let mut is_supported = |fact: &PhraseFact| {
            are_mentioned.by_ref().take(fact.phrases.len()).fold(false, |any, one| any | one)
        };
        let mut checked: Vec<(&PhraseFact, bool)> = facts.iter().map(|f| (f, is_supported(f))).collect();
        let mut names = checked.iter().filter(|(fact, supported)| fact.kind == NAME && !supported);
        // An unsupported name may be spelled out from a code in a result.
        let may_be_from_codes = names.next().is_some() && self.evidence.has_codes(self.answer);
        for (fact, supported) in &mut checked {
            let parts: Vec<&str> = fact.parts.iter().map(String::as_str).collect();
            *supported = *supported
                || fact.kind == NAME && may_be_from_codes
                || fact.defect == Defect::UnsupportedQuote && self.evidence.was_passed(&fact.phrases)
                || fact.date.as_ref().is_some_and(|date| {
                    self.evidence.derives_date(date) || self.evidence.was_day_passed(|day| day == date.day)
                })
                || !parts.is_empty()
                    && self.evidence.mentions(&parts).into_iter().all(|is_mentioned| is_mentioned);
        }
        for defect in [Defect::UnsupportedUrl, Defect::UnsupportedQuote, Defect::UnsupportedFact] {
            let facts_of_kind = || checked.iter().filter(|(fact, _)| fact.defect == defect);
            let unsupported = || facts_of_kind().filter(|(_, supported)| !supported);
            if unsupported().count() * 2 < facts_of_kind().count() {
                continue;
            }
            for (fact, _) in unsupported().take(MAX_FINDINGS) {
                let rationale = format!(
                    "a {0} from an earlier message or tool result was expected; the answer gives the {0} \"{1}\", \
                     which none of them contains",
                    fact.kind,
                    head(&fact.shown, 120)
                );
                let finding = defect.finding(rationale, &fact.quote);
                self.result.findings.push(match defect {
                    Defect::UnsupportedFact => finding.by_rule(fact.kind),
                    _ => finding,
                });
            }
        }
    }

    /// The dates of the answer, as facts.
    fn dates(&self) -> Vec<PhraseFact> {
        let fact = |date: dates::Date| PhraseFact {
            phrases: date.forms_without_year(),
            parts: date.parts().into(),
            date: Some(date.clone()),
            defect: Defect::UnsupportedFact,
            kind: "date",
            shown: self.answer.get(date.at.clone()).unwrap_or_default().to_owned(),
            quote: self.sentence_at(date.at.start).to_owned(),
        };
        dates::all(self.prose).take(MAX_FACTS).map(fact).collect()
    }

    /// The names of persons and things in the answer.
    fn names(&self) -> Vec<PhraseFact> {
        let mut facts = Vec::new();
        for &(start, end) in &self.sentences {
            let Some(sentence) = self.prose.get(start..end) else { continue };
            let lowercase_words = sentence.split_whitespace().filter(|w| w.starts_with(char::is_lowercase));
            let is_heading =
                sentence.trim_start().starts_with(['#', '*', '-', '|']) || sentence.trim_end().ends_with(':');
            if is_heading
                || (lowercase_words.take(2).count() < 2 && sentence.trim().len() != self.prose.trim().len())
            {
                continue;
            }
            for name in request::names(sentence) {
                let words = || name.split([' ', '-', '’', '\'']).filter(|word| !is_calendar_name(word));
                // The first word of a sentence has a capital even if it is not a name: "Avoid Tuesday's dish".
                if sentence.trim_start().starts_with(&name)
                    && words().filter(|word| word.len() > 1).count() < 2
                {
                    continue;
                }
                let tokens: Vec<String> =
                    words().filter(|t| t.chars().count() >= 4).map(str::to_ascii_lowercase).collect();
                // Names in other alphabets or with accents have several spellings and are not compared.
                if tokens.iter().all(|t| t.is_ascii()) {
                    facts.push(PhraseFact {
                        phrases: tokens,
                        parts: Vec::new(),
                        date: None,
                        defect: Defect::UnsupportedFact,
                        kind: NAME,
                        shown: name,
                        quote: self.answer.get(start..end).unwrap_or_default().trim().to_owned(),
                    });
                }
            }
        }
        facts
    }
}

/// Whether a word is the name of a weekday or a month.
fn is_calendar_name(word: &str) -> bool {
    let word = word.to_lowercase();
    names::weekday_of(&word).or(names::month_of(&word)).is_some()
}
