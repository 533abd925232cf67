//! The facts of a final answer held against the evidence.
//!
//! In: an answer, what was asked, and what the model could have known. Out: a finding for each key
//! fact that nothing supports. An answer with many good facts and one odd one in passing is left
//! alone; precision comes first, since a correct run must never fail.

use super::answer::{masked, sentences};
use super::evidence::{Evidence, Support};
use super::numbers::{self, Number};
use crate::measure::agent::request::{self, Ask, Request};
use crate::measure::defects::{Defect, clip_end};
use crate::measure::excerpt::{around, head};
use crate::measure::{Category, Finding};

/// Most numbers of one answer that are judged.
const MAX_FACTS: usize = 64;
/// Most findings of one kind on one answer: more say nothing new.
const MAX_NAMED: usize = 3;
/// Whole numbers up to here are counts, ranks and days: too common to prove anything.
const SMALL: f64 = 20.0;
/// Figures of speech: a day's hours, a full percentage, a year's days.
const COMMON: [f64; 7] = [24.0, 30.0, 60.0, 90.0, 100.0, 365.0, 360.0];
/// A quotation is that from so many words on; fewer are a title or a term.
const QUOTE_WORDS: usize = 6;
/// Words of a quotation looked for together.
const WINDOW: usize = 5;
/// In longer answers names are not judged: headings and terms are too many.
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
    IDLE,
    r"(?i)\?\s*$|\b(let me know|would you|feel free|for example|e\.g\.|for instance|I can|I could|you can|you could|you may|you might|if you|could be|try|next steps?)\b"
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

/// What is known of the situation in which an answer was given.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CallsBefore {
    /// A tool had been called before.
    pub attempted: bool,
    /// One of those calls had succeeded.
    pub succeeded: bool,
}

/// What the check of an answer brought.
#[derive(Debug, Default)]
pub(crate) struct FactCheck {
    /// Key facts without support.
    pub findings: Vec<Finding>,
    /// Numbers that are not to count as evidence later.
    pub unsupported: Vec<f64>,
    /// How many facts were held against the evidence.
    pub examined: usize,
}

/// Holds the facts of `answer` against `evidence`. The caller has made sure that the evidence is
/// all there and that the request wants facts that must be found.
pub(crate) fn check(
    answer: &str,
    request: &Request,
    evidence: &mut Evidence<'_>,
    at: CallsBefore,
) -> FactCheck {
    let prose = masked(answer);
    let mut out = FactCheck::default();
    let memory = MEMORY.find(&prose).map(|m| m.as_str().to_owned());
    check_numbers(answer, &prose, request, evidence, memory.as_deref(), at, &mut out);
    if at.attempted {
        phrases_of(answer, &prose, request, evidence, &mut out);
    }
    if let Some(words) = memory
        .filter(|_| out.findings.is_empty() && at.attempted && !at.succeeded && !request.asks(Ask::Estimate))
    {
        out.examined += 1;
        let place = prose.find(&words).unwrap_or(0);
        let rationale = format!(
            "a sourced answer, or an admission that there is none, was expected; the answer says that it comes \
             \"{words}\", after every call had failed"
        );
        out.findings.push(Defect::UnsupportedFact.finding(rationale, sentence_at(answer, &prose, place)));
    }
    out
}

fn sentence_at<'t>(answer: &'t str, prose: &str, place: usize) -> &'t str {
    let found = sentences(prose).into_iter().find(|(a, b)| (*a..*b).contains(&place));
    let text = found.and_then(|(a, b)| answer.get(a..b)).map(str::trim);
    text.unwrap_or_else(|| around(answer, place, place, 80))
}

struct Fact {
    number: Number,
    hedged: bool,
    sentence: usize,
    support: Support,
}

/// The numbers of the answer that state something.
fn facts(prose: &str) -> Vec<Fact> {
    let mut out = Vec::new();
    for (index, (start, end)) in sentences(prose).into_iter().enumerate() {
        let Some(sentence) = prose.get(start..end) else { continue };
        if IDLE.is_match(sentence) {
            continue;
        }
        numbers::scan(sentence, |n| {
            let before = sentence.get(..n.start).unwrap_or_default();
            let before = clip_end(before, 32);
            let small = n.value.fract() == 0.0 && n.value <= SMALL && !n.fractional;
            let common = COMMON.contains(&n.value);
            let label = LABEL.is_match(before) && is_label(sentence, &n, before);
            if n.in_identifier || small || common || label || out.len() >= MAX_FACTS {
                return;
            }
            let hedged = HEDGE.is_match(before);
            out.push(Fact { number: n, hedged, sentence: index, support: Support::None });
        });
    }
    out
}

/// At a line's start only "12." and "12)" are labels; after a word such as "page" any number is.
fn is_label(sentence: &str, n: &Number, before: &str) -> bool {
    if before.chars().any(char::is_alphabetic) {
        return true;
    }
    n.value < 100.0 && sentence.get(n.end..).is_some_and(|s| s.starts_with(['.', ')', ':']))
}

fn check_numbers(
    answer: &str,
    prose: &str,
    request: &Request,
    evidence: &mut Evidence<'_>,
    memory: Option<&str>,
    at: CallsBefore,
    out: &mut FactCheck,
) {
    let mut facts = facts(prose);
    if facts.is_empty() || request.asks(Ask::Estimate) {
        return;
    }
    find_support(&mut facts, evidence);
    out.examined += facts.len();
    let bad: Vec<&Fact> = facts.iter().filter(|f| f.support == Support::None).collect();
    let headline = facts.first().map(|f| f.sentence);
    let mostly = bad.len() * 2 >= facts.len();
    let key = |f: &&&Fact| mostly || (request.asks(Ask::Number) && Some(f.sentence) == headline);
    let list = sentences(prose);
    for fact in bad.iter().filter(key) {
        out.unsupported.extend(fact.number.possible_values());
        if out.findings.len() >= MAX_NAMED {
            continue;
        }
        let Some(&(start, end)) = list.get(fact.sentence) else { continue };
        let Some(quote) = answer.get(start..end) else { continue };
        let shown = quote.get(fact.number.start..fact.number.end).unwrap_or_default();
        out.findings.push(number_finding(shown, quote.trim(), fact, &facts, evidence, memory, at));
    }
}

/// Support may rest on other numbers of the answer that are supported themselves ("5642 - 4806,
/// so 836, which is 15 %"): rounds until nothing changes.
fn find_support(facts: &mut [Fact], evidence: &mut Evidence<'_>) {
    let mut in_play: Vec<f64> = Vec::new();
    for _ in 0..3 {
        let mut changed = false;
        for fact in facts.iter_mut().filter(|f| f.support == Support::None) {
            fact.support = evidence.supports(&fact.number, fact.hedged, &in_play);
            if fact.support != Support::None {
                in_play.push(fact.number.value);
                changed = true;
            }
        }
        if !changed {
            return;
        }
    }
}

fn number_finding(
    shown: &str,
    quote: &str,
    fact: &Fact,
    facts: &[Fact],
    evidence: &Evidence<'_>,
    memory: Option<&str>,
    at: CallsBefore,
) -> Finding {
    let taken = |v: f64| facts.iter().any(|f| (f.number.value - v).abs() <= f.number.tolerance);
    let misread = evidence
        .lone_numbers()
        .iter()
        .rev()
        .find(|(v, _)| !taken(*v) && similar_digits(*v, fact.number.value));
    if let Some((_, said)) = misread {
        let rationale = format!(
            "the tool's number was expected; the answer says {shown}, where the tool returned \"{}\"",
            head(said.trim(), 60)
        );
        return Defect::UnsupportedFact
            .finding(rationale, quote)
            .under(Category::ToolOutputMisinterpretation);
    }
    let whence = match (memory, at.attempted, at.succeeded) {
        (Some(words), ..) => format!("; by its own words it is \"{words}\""),
        (None, false, _) => "; no tool was called at all".to_owned(),
        (None, true, false) => "; every call before it had failed".to_owned(),
        _ => String::new(),
    };
    let rationale = format!(
        "a figure from an earlier message or tool result was expected; the answer states {shown}, which none of them \
         contains and which does not follow from their values by simple arithmetic{whence}"
    );
    Defect::UnsupportedFact.finding(rationale, quote)
}

/// Same number of digits, most of them in place, or the same digits in another order.
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

/// One thing to look for: the phrases of which one suffices, and what to say when none is there.
struct PhraseFact {
    phrases: Vec<String>,
    defect: Defect,
    what: &'static str,
    shown: String,
    quote: String,
}

fn phrases_of(
    answer: &str,
    prose: &str,
    request: &Request,
    evidence: &mut Evidence<'_>,
    out: &mut FactCheck,
) {
    let mut facts = Vec::new();
    links(answer, &mut facts);
    quotes(answer, &mut facts);
    if !request.asks(Ask::Calendar) {
        dates(answer, prose, &mut facts);
    }
    if answer.len() <= NAMES_WITHIN && request.asks(Ask::Name) {
        names(answer, prose, &mut facts);
    }
    facts.retain(|w| !w.phrases.is_empty());
    facts.truncate(MAX_FACTS);
    if facts.is_empty() {
        return;
    }
    let phrases: Vec<&str> = facts.iter().flat_map(|w| w.phrases.iter().map(String::as_str)).collect();
    let found = evidence.mentions(&phrases);
    out.examined += facts.len();
    let mut at = 0;
    let supported: Vec<bool> = facts
        .iter()
        .map(|w| {
            let mine = found.get(at..at + w.phrases.len()).unwrap_or_default();
            at += w.phrases.len();
            mine.iter().any(|f| *f)
        })
        .collect();
    for kind in [Defect::UnsupportedUrl, Defect::UnsupportedQuote, Defect::UnsupportedFact] {
        let of_kind: Vec<(&PhraseFact, bool)> =
            facts.iter().zip(&supported).filter(|(w, _)| w.defect == kind).map(|(w, s)| (w, *s)).collect();
        let bad = of_kind.iter().filter(|(_, s)| !s).count();
        if bad * 2 < of_kind.len() || bad == 0 {
            continue;
        }
        for (w, _) in of_kind.iter().filter(|(_, s)| !s).take(MAX_NAMED) {
            let rationale = format!(
                "a {0} that was read before was expected; the answer gives the {0} \"{1}\", which nothing that was read \
                 contains",
                w.what,
                head(&w.shown, 120)
            );
            out.findings.push(w.defect.finding(rationale, &w.quote));
        }
    }
}

fn links(answer: &str, facts: &mut Vec<PhraseFact>) {
    for found in LINK.find_iter(answer).take(MAX_FACTS) {
        let url = found.as_str().trim_end_matches(['.', ',', ';', ':', '!', '?']);
        let bare = url.split_once("://").map_or(url, |(_, rest)| rest);
        let bare = bare.strip_prefix("www.").unwrap_or(bare);
        let bare = bare.split(['#', '?']).next().unwrap_or(bare).trim_end_matches('/');
        // A bare host is common knowledge; escaped or foreign paths may be spelt differently.
        if bare.contains('/') && bare.is_ascii() && !bare.contains('%') {
            facts.push(PhraseFact {
                phrases: vec![bare.to_ascii_lowercase()],
                defect: Defect::UnsupportedUrl,
                what: "address",
                shown: url.to_owned(),
                quote: around(answer, found.start(), found.end(), 60).to_owned(),
            });
        }
    }
}

fn quotes(answer: &str, facts: &mut Vec<PhraseFact>) {
    for (start, end) in quoted_ranges(answer).into_iter().take(MAX_FACTS) {
        let Some(inner) = answer.get(start..end) else { continue };
        let words: Vec<&str> = inner.split(' ').filter(|w| !w.is_empty()).collect();
        let small = words.iter().filter(|w| w.starts_with(char::is_lowercase)).count();
        // Mostly capitals: a title or an attribution, not somebody's words.
        if words.len() < QUOTE_WORDS || small * 2 <= words.len() {
            continue;
        }
        // Any run of words suffices: quotations are shortened and re-punctuated.
        let phrases = words
            .windows(WINDOW)
            .map(|w| w.join(" ").to_ascii_lowercase())
            .map(|p| p.trim_matches(|c: char| !c.is_alphanumeric()).to_owned())
            .filter(|p| p.is_ascii() && !p.is_empty());
        facts.push(PhraseFact {
            phrases: phrases.take(MAX_FACTS).collect(),
            defect: Defect::UnsupportedQuote,
            what: "quotation",
            shown: inner.to_owned(),
            quote: around(answer, start, end, 40).to_owned(),
        });
    }
}

/// Text between quotation marks, by byte range: straight ones pair up within a line, and a
/// line with an odd number of them says nothing.
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

fn dates(answer: &str, prose: &str, facts: &mut Vec<PhraseFact>) {
    for found in DATE.captures_iter(prose).take(MAX_FACTS) {
        let group = |names: [&str; 3]| names.iter().find_map(|n| found.name(n)).map(|m| m.as_str());
        let (Some(month), Some(day)) = (group(["m1", "m2", "m3"]), group(["d1", "d2", "d3"])) else {
            continue;
        };
        let lower = month.to_ascii_lowercase();
        let number = month
            .parse::<usize>()
            .ok()
            .or_else(|| MONTHS.iter().position(|m| m.starts_with(&lower)).map(|i| i + 1));
        let (Some(m), Ok(d)) = (number, day.parse::<usize>()) else { continue };
        let Some(name) = m.checked_sub(1).and_then(|i| MONTHS.get(i)) else { continue };
        let short = name.get(..3).unwrap_or(name);
        let mut phrases = vec![
            format!("{m:02}-{d:02}"),
            format!("{m}/{d}"),
            format!("{d}/{m}"),
            format!("{m:02}/{d:02}"),
            format!("{d:02}/{m:02}"),
            format!("{d}.{m}."),
            format!("{d:02}.{m:02}."),
            format!("{m:02}{d:02}"),
            format!("{d}-{m}-"),
            format!("{d:02}-{m:02}-"),
            format!("{d:02}-{short}"),
            format!("{d}-{short}"),
        ];
        for name in [*name, short] {
            phrases.push(format!("{name} {d}"));
            phrases.push(format!("{name} {d:02}"));
            phrases.push(format!("{name}. {d}"));
            phrases.push(format!("{d} {name}"));
            phrases.push(format!("{d:02} {name}"));
            phrases.push(format!("{d}. {name}"));
            phrases.extend(["st", "nd", "rd", "th"].map(|s| format!("{d}{s} {name}")));
            phrases.extend(["st", "nd", "rd", "th"].map(|s| format!("{d}{s} of {name}")));
        }
        let whole = found.get(0).map_or(0..0, |f| f.range());
        facts.push(PhraseFact {
            phrases,
            defect: Defect::UnsupportedFact,
            what: "date",
            shown: answer.get(whole.clone()).unwrap_or_default().to_owned(),
            quote: sentence_at(answer, prose, whole.start).to_owned(),
        });
    }
}

fn names(answer: &str, prose: &str, facts: &mut Vec<PhraseFact>) {
    for (start, end) in sentences(prose) {
        let Some(sentence) = prose.get(start..end) else { continue };
        let lower = sentence.split_whitespace().filter(|w| w.starts_with(char::is_lowercase)).count();
        let heading =
            sentence.trim_start().starts_with(['#', '*', '-', '|']) || sentence.trim_end().ends_with(':');
        if heading || (lower < 2 && sentence.trim().len() != prose.trim().len()) {
            continue;
        }
        for name in request::names(sentence) {
            let tokens: Vec<String> = name
                .split([' ', '-', '’', '\''])
                .filter(|t| t.chars().count() >= 4)
                .map(str::to_ascii_lowercase)
                .collect();
            // Other alphabets and accents are spelt in more ways than one.
            if tokens.iter().all(|t| t.is_ascii()) {
                facts.push(PhraseFact {
                    phrases: tokens,
                    defect: Defect::UnsupportedFact,
                    what: "name",
                    shown: name,
                    quote: answer.get(start..end).unwrap_or_default().trim().to_owned(),
                });
            }
        }
    }
}

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
        check(answer, &Request::new(task), &mut evidence, at)
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
