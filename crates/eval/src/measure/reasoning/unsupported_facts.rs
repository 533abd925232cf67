//! Compares the facts of a final answer with the evidence.
//!
//! In: an answer, its request, and the evidence that the model could have seen. Out: a finding for
//! each key fact without support. A single unsupported fact among many supported ones is no finding:
//! precision has priority, since a correct run must not fail.

use regex::Captures;

use super::answer::sentences;
use super::evidence::{Evidence, Support};
use super::numbers::{self, Number};
use super::statements::{is_advice, is_idle, without_wording};
use crate::measure::agent::request::{self, Demand, TaskDemands};
use crate::measure::defects::{Defect, clip_end};
use crate::measure::excerpt::{around, head};
use crate::measure::{Category, Finding};

/// Most facts of one kind in one answer that are checked.
const MAX_FACTS: usize = 64;
/// Most findings of one kind on one answer.
const MAX_NAMED: usize = 3;
/// Whole numbers up to this one are counts, ranks and days, which are too common to be checked.
const SMALL: f64 = 20.0;
/// Common figures: the hours of a day, a full percentage, the days of a year.
const COMMON: [f64; 7] = [24.0, 30.0, 60.0, 90.0, 100.0, 365.0, 360.0];
/// Fewest words of a quotation; fewer are a title or a term.
const QUOTE_WORDS: usize = 6;
/// Consecutive words of a quotation that are searched for.
const WINDOW: usize = 5;
/// Most bytes of an answer whose names are checked: longer ones have too many headings and terms.
const NAMES_WITHIN: usize = 1500;

regex!(
    HEDGE,
    r"(?i)(\b(about|approximately|approx\.?|around|roughly|some|nearly|almost|over|more than|less than|under|circa|ca\.?|estimated( at)?|up to|at least|close to|just (over|under))|[~≈<>])\s*\W{0,2}$"
);
regex!(
    MEMORY,
    r"(?i)\bfrom (my )?(own )?(memory|general knowledge|background knowledge|training( data)?)\b|\b(based on|relying on|using) (my |prior |general |background |internal |own |training )+(knowledge|memory|data|understanding)\b|\bas far as I (remember|recall|know)\b|\bI (seem to )?(recall|remember) that\b|\bto the best of my (knowledge|memory|recollection)\b|\b(as|is) (just |only )?(an?|my) (rough |educated |best )?(estimate|guess)\b|\b(answer|give|provide|offer) (with )?(an?|my) (rough |educated |best )?(estimate|guess)\b"
);
regex!(
    LABEL,
    r"(?i)(\b(step|section|chapter|page|pages|figure|fig\.|table|part|option|version|line|item|question|note|appendix|attempt|no\.|number|top|phase|level|day|round|task|id|room|model|type|route|highway|flight|article|rule|act|psalm|verse)s?\s*[#:.]?\s*|(^|\n)\W*)$"
);
regex!(LINK, r#"https?://[^\s<>()\[\]"'`*]+"#);
regex!(
    DATE,
    r"(?i)\b(?:(?P<m1>jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.? (?P<d1>\d{1,2})(?:st|nd|rd|th)?,? (?P<y1>\d{4})|(?P<d2>\d{1,2})(?:st|nd|rd|th)?\.? (?:of )?(?P<m2>jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?,? (?P<y2>\d{4})|(?P<y3>\d{4})-(?P<m3>\d{2})-(?P<d3>\d{2}))\b"
);

/// The calls before an answer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CallsBefore {
    /// A tool had been called.
    pub attempted: bool,
    /// One of those calls had succeeded.
    pub succeeded: bool,
}

/// The result of checking an answer.
#[derive(Debug, Default)]
pub(crate) struct FactCheck {
    /// Key facts without support.
    pub findings: Vec<Finding>,
    /// Numbers that must not count as evidence later.
    pub unsupported: Vec<f64>,
    /// The number of facts compared with the evidence.
    pub examined: usize,
}

/// Compares the facts of `answer` with `evidence`. The evidence must be complete, and the request
/// must ask for facts that had to be found.
pub(crate) fn check(
    answer: &str,
    request: &TaskDemands,
    evidence: &mut Evidence<'_>,
    calls: CallsBefore,
) -> FactCheck {
    let prose = without_wording(answer);
    let memory = MEMORY.find(&prose);
    let mut checker = FactChecker {
        answer,
        prose: &prose,
        sentences: sentences(&prose),
        request,
        evidence,
        calls,
        memory: memory.map(|found| found.as_str()),
        out: FactCheck::default(),
    };
    checker.check_numbers();
    if calls.attempted {
        checker.check_phrases();
    }
    let only_failed = calls.attempted && !calls.succeeded;
    if let Some(words) =
        memory.filter(|_| checker.out.findings.is_empty() && only_failed && !request.asks(Demand::Estimate))
    {
        let rationale = format!(
            "an answer with a source, or an admission that there is none, was expected; the answer says that it comes \
             \"{}\", after every call had failed",
            words.as_str()
        );
        let finding = Defect::UnsupportedFact.finding(rationale, checker.sentence_at(words.start()));
        checker.out.examined += 1;
        checker.out.findings.push(finding);
    }
    checker.out
}

/// A number that the answer states.
struct NumberFact {
    number: Number,
    hedged: bool,
    /// The index of its sentence.
    sentence: usize,
    support: Support,
}

/// A fact in words: it is supported if the evidence contains one of the phrases.
struct PhraseFact {
    phrases: Vec<String>,
    defect: Defect,
    kind: &'static str,
    shown: String,
    quote: String,
}

struct FactChecker<'a, 'e> {
    answer: &'a str,
    /// The answer with code, links and paths masked; byte positions are those of the answer.
    prose: &'a str,
    sentences: Vec<(usize, usize)>,
    request: &'a TaskDemands,
    evidence: &'a mut Evidence<'e>,
    calls: CallsBefore,
    /// Words that attribute the answer to the model's memory.
    memory: Option<&'a str>,
    out: FactCheck,
}

impl FactChecker<'_, '_> {
    fn sentence_at(&self, place: usize) -> &str {
        let found = self.sentences.iter().find(|(start, end)| (*start..*end).contains(&place));
        let text = found.and_then(|&(start, end)| self.answer.get(start..end)).map(str::trim);
        text.unwrap_or_else(|| around(self.answer, place, place, 80))
    }

    fn check_numbers(&mut self) {
        let mut facts = self.numbers();
        if facts.is_empty() || self.request.asks(Demand::Estimate) {
            return;
        }
        find_support(&mut facts, self.evidence);
        self.out.examined += facts.len();
        let unsupported: Vec<&NumberFact> = facts.iter().filter(|f| f.support == Support::None).collect();
        let headline = facts.first().map(|f| f.sentence);
        let are_most = unsupported.len() * 2 >= facts.len();
        for fact in unsupported {
            let is_asked_for = self.request.asks(Demand::Number) && Some(fact.sentence) == headline;
            if !are_most && !is_asked_for {
                continue;
            }
            self.out.unsupported.extend(fact.number.possible_values());
            if self.out.findings.len() < MAX_NAMED {
                let finding = self.number_finding(fact, &facts);
                self.out.findings.extend(finding);
            }
        }
    }

    /// The numbers of the answer that state a quantity.
    fn numbers(&self) -> Vec<NumberFact> {
        let mut out = Vec::new();
        for (index, &(start, end)) in self.sentences.iter().enumerate() {
            let Some(sentence) = self.prose.get(start..end).filter(|text| !is_idle(text) && !is_advice(text))
            else {
                continue;
            };
            numbers::scan(sentence, |number| {
                let before = clip_end(sentence.get(..number.start).unwrap_or_default(), 32);
                let small = number.value.fract() == 0.0 && number.value <= SMALL && !number.fractional;
                let common = COMMON.contains(&number.value);
                let label = LABEL.is_match(before) && is_label(sentence, &number, before);
                if !number.in_identifier && !small && !common && !label && out.len() < MAX_FACTS {
                    let hedged = HEDGE.is_match(before);
                    out.push(NumberFact { number, hedged, sentence: index, support: Support::None });
                }
            });
        }
        out
    }

    fn number_finding(&self, fact: &NumberFact, facts: &[NumberFact]) -> Option<Finding> {
        let &(start, end) = self.sentences.get(fact.sentence)?;
        let sentence = self.answer.get(start..end)?;
        let shown = sentence.get(fact.number.start..fact.number.end).unwrap_or_default();
        let is_stated = |v: f64| facts.iter().any(|f| (f.number.value - v).abs() <= f.number.tolerance);
        let mut results = self.evidence.single_numbers().iter().rev();
        let misread = results.find(|(v, _)| !is_stated(*v) && similar_digits(*v, fact.number.value));
        if let Some((_, result)) = misread {
            let rationale = format!(
                "the tool's number was expected; the answer states {shown}, but the tool returned \"{}\"",
                head(result.trim(), 60)
            );
            let finding = Defect::UnsupportedFact.finding(rationale, sentence.trim());
            return Some(finding.under(Category::ToolOutputMisinterpretation));
        }
        let circumstances = match (self.memory, self.calls.attempted, self.calls.succeeded) {
            (Some(words), ..) => format!("; the answer itself says that it is \"{words}\""),
            (None, false, _) => "; no tool was called at all".to_owned(),
            (None, true, false) => "; every call before it had failed".to_owned(),
            _ => String::new(),
        };
        let rationale = format!(
            "a figure from an earlier message or tool result was expected; the answer states {shown}, which none of \
             them contains and which does not follow from their values by simple arithmetic{circumstances}"
        );
        Some(Defect::UnsupportedFact.finding(rationale, sentence.trim()))
    }

    fn check_phrases(&mut self) {
        let is_stated = |fact: &PhraseFact| !is_idle(&fact.quote) && !is_advice(&fact.quote);
        let mut facts: Vec<PhraseFact> = links(self.answer).into_iter().filter(is_stated).collect();
        facts.extend(quotations(self.answer).into_iter().filter(is_stated));
        if !self.request.asks(Demand::Calendar) {
            facts.extend(self.dates());
        }
        if self.answer.len() <= NAMES_WITHIN && self.request.asks(Demand::Name) {
            facts.extend(self.names());
        }
        facts.retain(|fact| !fact.phrases.is_empty());
        facts.truncate(MAX_FACTS);
        if facts.is_empty() {
            return;
        }
        self.out.examined += facts.len();
        let phrases: Vec<&str> = facts.iter().flat_map(|f| f.phrases.iter().map(String::as_str)).collect();
        let mut found = self.evidence.mentions(&phrases).into_iter();
        let mut is_supported =
            |fact: &PhraseFact| found.by_ref().take(fact.phrases.len()).fold(false, |any, one| any | one);
        let checked: Vec<(&PhraseFact, bool)> = facts.iter().map(|f| (f, is_supported(f))).collect();
        for defect in [Defect::UnsupportedUrl, Defect::UnsupportedQuote, Defect::UnsupportedFact] {
            let of_kind = || checked.iter().filter(|(fact, _)| fact.defect == defect);
            let unsupported = || of_kind().filter(|(_, supported)| !supported);
            if unsupported().count() * 2 < of_kind().count() {
                continue;
            }
            for (fact, _) in unsupported().take(MAX_NAMED) {
                let rationale = format!(
                    "a {0} from an earlier message or tool result was expected; the answer gives the {0} \"{1}\", \
                     which none of them contains",
                    fact.kind,
                    head(&fact.shown, 120)
                );
                self.out.findings.push(defect.finding(rationale, &fact.quote));
            }
        }
    }

    fn dates(&self) -> Vec<PhraseFact> {
        let found = DATE.captures_iter(self.prose).take(MAX_FACTS);
        found.filter_map(|date| self.date(&date)).collect()
    }

    fn date(&self, date: &Captures<'_>) -> Option<PhraseFact> {
        let group = |names: [&str; 3]| names.iter().find_map(|n| date.name(n)).map(|m| m.as_str());
        let (month, day) = (group(["m1", "m2", "m3"])?.to_ascii_lowercase(), group(["d1", "d2", "d3"])?);
        let by_name = || MONTHS.iter().position(|name| name.starts_with(&month)).map(|i| i + 1);
        let month = month.parse::<usize>().ok().or_else(by_name)?;
        let day = day.parse::<usize>().ok()?;
        let name = *MONTHS.get(month.checked_sub(1)?)?;
        let short = name.get(..3).unwrap_or(name);
        let write = |form: &str, name: &str| {
            let form = form.replace("MM", &format!("{month:02}")).replace("DD", &format!("{day:02}"));
            form.replace('M', &month.to_string()).replace('D', &day.to_string()).replace('N', name)
        };
        let named = [name, short].map(|name| DATES_WITH_NAMES.map(|form| write(form, name)));
        let whole = date.get(0)?.range();
        Some(PhraseFact {
            phrases: DATES
                .map(|form| write(form, short))
                .into_iter()
                .chain(named.into_iter().flatten())
                .collect(),
            defect: Defect::UnsupportedFact,
            kind: "date",
            shown: self.answer.get(whole.clone()).unwrap_or_default().to_owned(),
            quote: self.sentence_at(whole.start).to_owned(),
        })
    }

    fn names(&self) -> Vec<PhraseFact> {
        let mut facts = Vec::new();
        for &(start, end) in &self.sentences {
            let Some(sentence) = self.prose.get(start..end) else { continue };
            let lower = sentence.split_whitespace().filter(|w| w.starts_with(char::is_lowercase)).count();
            let is_heading =
                sentence.trim_start().starts_with(['#', '*', '-', '|']) || sentence.trim_end().ends_with(':');
            if is_heading || (lower < 2 && sentence.trim().len() != self.prose.trim().len()) {
                continue;
            }
            for name in request::names(sentence) {
                let tokens: Vec<String> = name
                    .split([' ', '-', '’', '\''])
                    .filter(|t| t.chars().count() >= 4)
                    .map(str::to_ascii_lowercase)
                    .collect();
                // Other alphabets and accents have more than one spelling.
                if tokens.iter().all(|t| t.is_ascii()) {
                    facts.push(PhraseFact {
                        phrases: tokens,
                        defect: Defect::UnsupportedFact,
                        kind: "name",
                        shown: name,
                        quote: self.answer.get(start..end).unwrap_or_default().trim().to_owned(),
                    });
                }
            }
        }
        facts
    }
}

/// At the start of a line only "12." and "12)" are labels; after a word such as "page" any number is.
fn is_label(sentence: &str, n: &Number, before: &str) -> bool {
    before.chars().any(char::is_alphabetic)
        || n.value < 100.0 && sentence.get(n.end..).is_some_and(|s| s.starts_with(['.', ')', ':']))
}

/// A number may follow from other supported numbers of the answer ("5642 - 4806, so 836, which is
/// 15 %"), so the search is repeated while it finds support.
fn find_support(facts: &mut [NumberFact], evidence: &mut Evidence<'_>) {
    let mut stated: Vec<f64> = Vec::new();
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

/// Whether one digit differs, or the same digits are in another order.
fn similar_digits(a: f64, b: f64) -> bool {
    let digits = |v: f64| format!("{v}").replace('.', "");
    let (a, b) = (digits(a), digits(b));
    if a == b || a.len() != b.len() || a.len() < 3 {
        return false;
    }
    let differ = a.bytes().zip(b.bytes()).filter(|(x, y)| x != y).count();
    let sorted = |s: &str| {
        let mut v: Vec<u8> = s.bytes().collect();
        v.sort_unstable();
        v
    };
    differ == 1 || sorted(&a) == sorted(&b)
}

fn links(answer: &str) -> Vec<PhraseFact> {
    let fact = |found: regex::Match<'_>| {
        let url = found.as_str().trim_end_matches(['.', ',', ';', ':', '!', '?']);
        let bare = url.split_once("://").map_or(url, |(_, rest)| rest);
        let bare = bare.strip_prefix("www.").unwrap_or(bare);
        let bare = bare.split(['#', '?']).next().unwrap_or(bare).trim_end_matches('/');
        // A bare host is common knowledge; escaped and non-ASCII paths have more than one spelling.
        (bare.contains('/') && bare.is_ascii() && !bare.contains('%')).then(|| PhraseFact {
            phrases: vec![bare.to_ascii_lowercase()],
            defect: Defect::UnsupportedUrl,
            kind: "address",
            shown: url.to_owned(),
            quote: around(answer, found.start(), found.end(), 60).to_owned(),
        })
    };
    LINK.find_iter(answer).take(MAX_FACTS).filter_map(fact).collect()
}

fn quotations(answer: &str) -> Vec<PhraseFact> {
    let fact = |(start, end): (usize, usize)| {
        let inner = answer.get(start..end)?;
        let words: Vec<&str> = inner.split(' ').filter(|w| !w.is_empty()).collect();
        let small = words.iter().filter(|w| w.starts_with(char::is_lowercase)).count();
        // Mostly capitals: a title or an attribution.
        if words.len() < QUOTE_WORDS || small * 2 <= words.len() {
            return None;
        }
        // One sequence of words is enough: quotations are shortened and their punctuation changed.
        let phrases = words
            .windows(WINDOW)
            .map(|w| w.join(" ").to_ascii_lowercase())
            .map(|p| p.trim_matches(|c: char| !c.is_alphanumeric()).to_owned())
            .filter(|p| p.is_ascii() && !p.is_empty());
        Some(PhraseFact {
            phrases: phrases.take(MAX_FACTS).collect(),
            defect: Defect::UnsupportedQuote,
            kind: "quotation",
            shown: inner.to_owned(),
            quote: around(answer, start, end, 40).to_owned(),
        })
    };
    quoted_ranges(answer).into_iter().take(MAX_FACTS).filter_map(fact).collect()
}

/// The byte ranges between quotation marks. Straight marks are paired within a line; a line with an
/// odd number of them is ignored.
fn quoted_ranges(answer: &str) -> Vec<(usize, usize)> {
    let mut out = Vec::new();
    let mut from = 0;
    for line in answer.split_inclusive('\n') {
        let straight: Vec<usize> = line.match_indices('"').map(|(at, _)| from + at).collect();
        if straight.len().is_multiple_of(2) {
            out.extend(straight.chunks_exact(2).filter_map(|pair| Some((pair.first()? + 1, *pair.get(1)?))));
        }
        let mut open = None;
        for (at, c) in line.char_indices() {
            match (c, open) {
                ('“', _) => open = Some(from + at + c.len_utf8()),
                ('”', Some(start)) => {
                    out.push((start, from + at));
                    open = None;
                }
                _ => {}
            }
        }
        from += line.len();
    }
    out
}

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

/// The ways to write a date: `M` and `D` are the month's and the day's number, doubled with two
/// digits, and `N` is the month's short name.
const DATES: [&str; 12] =
    ["MM-DD", "M/D", "D/M", "MM/DD", "DD/MM", "D.M.", "DD.MM.", "MMDD", "D-M-", "DD-MM-", "DD-N", "D-N"];
/// As [`DATES`], where `N` is the month's short or full name.
const DATES_WITH_NAMES: [&str; 14] = [
    "N D", "N DD", "N. D", "D N", "DD N", "D. N", "Dst N", "Dnd N", "Drd N", "Dth N", "Dst of N", "Dnd of N",
    "Drd of N", "Dth of N",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::reasoning::evidence::Source;
    use crate::recognise::Text;

    const TASK: &str =
        "How many metres taller is Mount Elbrus than Mont Blanc, according to the Alpine Almanac page?";
    const PAGE: &str = "Alpine Almanac. Mount Elbrus: 5642 m. Mont Blanc: 4806 m. Last revised 2025-03-02.";

    fn checked(task: &str, read: &[&str], answer: &str) -> FactCheck {
        let texts: Vec<Text> = std::iter::once(task).chain(read.iter().copied()).map(Text::from).collect();
        let mut evidence = Evidence::default();
        for text in &texts {
            evidence.add(text, Source::Tool);
        }
        let at = CallsBefore { attempted: true, succeeded: !read.is_empty() };
        check(answer, &TaskDemands::new(task), &mut evidence, at)
    }

    #[test]
    fn supported_answers_have_no_findings() {
        for answer in [
            "Mount Elbrus is 836 metres taller than Mont Blanc (5642 m - 4806 m, Alpine Almanac).",
            "836 m",
            "The difference is 836 m, i.e. about 840 m or 0.836 km.",
            "Elbrus is 5,642 m and Mont Blanc 4,806 m; as of March 2, 2025 that makes 836 m (17.4 % more).",
            "1. Elbrus: 5642 m\n2. Mont Blanc: 4806 m\n3. Difference: 836 m",
            "Step 25 of my method gives 836 m. Would you like the other 8848 m peak too?",
            "It is 836 m; see https://almanac.example/elbrus for more.",
        ] {
            let seen = [PAGE, "https://almanac.example/elbrus"];
            let found = checked(TASK, &seen, answer);
            assert!(found.findings.is_empty(), "{answer}: {:?}", found.findings);
            assert!(found.examined > 0, "{answer}");
        }
    }

    #[test]
    fn underivable_number_is_found_and_quoted() {
        let found = checked(TASK, &[PAGE], "Yes. Mount Elbrus is 846 metres taller than Mont Blanc.");
        assert_eq!(found.findings.len(), 1);
        assert_eq!(found.findings[0].quote, "Mount Elbrus is 846 metres taller than Mont Blanc.");
        assert!(found.findings[0].rationale.contains("846"));
        assert_eq!(found.findings[0].category, Some(Category::LanguageOnly));
        assert_eq!(found.unsupported, vec![846.0]);
    }

    #[test]
    fn estimate_from_memory_is_found_unless_requested() {
        let answer = "I could not open the page. From memory Mount Elbrus is roughly 800 metres taller.";
        let found = checked(TASK, &[], answer);
        assert!(found.findings[0].rationale.contains("From memory"), "{:?}", found.findings);
        assert!(checked("Roughly how many metres taller is Elbrus?", &[], answer).findings.is_empty());
    }

    #[test]
    fn misread_tool_result_is_categorised_as_misinterpretation() {
        let found = checked("How many widgets are there?", &["863"], "There are 836 widgets.");
        assert_eq!(found.findings[0].category, Some(Category::ToolOutputMisinterpretation));
        assert!(found.findings[0].rationale.contains("863"));
    }

    #[test]
    fn single_unsupported_number_among_many_is_ignored() {
        let read = "A: 101, B: 202, C: 303, D: 404, E: 505.";
        let answer = "A is 101, B 202, C 303, D 404 and E 505. The first was built in 1889.";
        assert!(checked("What are the values?", &[read], answer).findings.is_empty());
    }

    #[test]
    fn unseen_names_quotes_links_and_dates_are_found() {
        let task = "Who wrote the report, when, and which words open it?";
        let read = "The Glacier Report by Maria Lindqvist, 3 May 2021: \"Ice remembers what we forget, slowly.\" \
                    https://ice.example/report/1";
        for good in [
            "It was written by Maria Lindqvist.",
            "Dr. Maria K. Lindqvist published it on May 3, 2021.",
            "It opens with \"Ice remembers what we forget, slowly\", see https://ice.example/report/1.",
            "It was published on 2021-05-03 by M. Lindqvist.",
        ] {
            let found = checked(task, &[read], good);
            assert!(found.findings.is_empty(), "{good}: {:?}", found.findings);
        }
        for (bad, defect) in [
            ("It was written by Johan Petersen of course.", Defect::UnsupportedFact),
            ("It was published on June 9, 2021.", Defect::UnsupportedFact),
            ("It opens with \"Water always finds its own way down the valley\".", Defect::UnsupportedQuote),
            ("It was written by her, see https://ice.example/other/2.", Defect::UnsupportedUrl),
        ] {
            let found = checked(task, &[read], bad);
            let kinds: Vec<_> = found.findings.iter().map(|f| f.score).collect();
            assert_eq!(kinds, vec![defect.score()], "{bad}: {:?}", found.findings);
        }
    }

    #[test]
    fn titles_and_text_between_quotations_are_not_quotations() {
        let answer = "The line \"isn't that hot\" is uttered, and soon after it the reply that is given is \"extremely\". \
                      It is called “Birds of Prey (and the Fantabulous Emancipation of One Harley Quinn)”.";
        let found = checked("What is the line?", &["hot, extremely"], answer);
        assert!(found.findings.is_empty(), "{:?}", found.findings);
    }

    #[test]
    fn numbers_in_code_and_questions_are_not_facts() {
        for text in ["```\nx = 777\n```", "Did you mean 777 metres?", "For example, 777 would be odd."] {
            assert!(checked(TASK, &[PAGE], text).findings.is_empty(), "{text}");
        }
    }
}
