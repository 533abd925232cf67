//! The explicit demands of a task.
//!
//! In: the text of a task, or the agent's instructions. Out: for each [`Demand`] the words that express it, and the
//! names in the text. Only explicit wording counts.

use std::cell::OnceCell;
use std::rc::Rc;

use regex::Regex;

use crate::measure::Memo;
use crate::measure::defects::{clip, clip_end};
use crate::measure::language::ReadText;
use crate::measure::numbers::{self, Number};
use crate::pattern::contains_ignoring_case;
use crate::recognise::Text;

/// Maximum bytes that are read at each end of a task: pasted text is usually in the middle.
const READ_BYTES: usize = 6 * 1024;
/// Maximum names of a text.
const MAX_NAMES: usize = 16;

/// A demand of a task that is expressed by English words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Demand {
    /// To find a fact, by words such as who, when, how many, which, find, look up.
    Fact,
    /// To use a source, a search or a tool.
    Source,
    /// A count, an amount or a year, by the words of a question.
    Number,
    /// A number, by other words: "find the number of", "up to what amount".
    Figure,
    /// A name: who, which, where, a title.
    Name,
    /// To compute a date (days after, today).
    Calendar,
}

impl Demand {
    const COUNT: usize = Demand::Calendar as usize + 1;

    /// The pattern of the words that express the demand.
    fn pattern(self) -> &'static Regex {
        match self {
            Demand::Fact => &FACT,
            Demand::Source => &SOURCE,
            Demand::Number => &NUMBER,
            Demand::Figure => &FIGURE,
            Demand::Name => &QUESTION_FOR_NAME,
            Demand::Calendar => &CALENDAR,
        }
    }
}

/// The demands of a task, each computed at its first use.
#[derive(Debug)]
pub(crate) struct TaskDemands {
    text: String,
    /// Whether the task asks to write or to transform a text, code or a plan, whose numbers need no source.
    pub asks_for_text: bool,
    /// Whether the task asks for an estimate or allows one.
    pub asks_for_estimate: bool,
    /// By demand, the words that express it.
    phrases: [OnceCell<Option<String>>; Demand::COUNT],
    names: OnceCell<Vec<String>>,
    /// All readings of the numbers in the text.
    numbers: OnceCell<Vec<f64>>,
}

regex!(
    FACT,
    r"(?i)\b(how (many|much|tall|high|far|long|old|big|large|deep|heavy|fast|wide|often)|what(['’]s| is| was| are| were| year| date| time| number| percentage)?|who|whom|whose|when|where|which|find( out)?|look up|determine|calculate|compute|according to|tell me the|give me the|report the|name the)\b"
);
regex!(
    SOURCE,
    r"(?i)\b(according to (the|an?|its|their|this|that)? ?[^.?!,\n]{2,60}?\b(page|article|website|site|report|paper|document|file|database|dataset|table|\w*pa?edia|wiki|dictionary|handbook|manual|docs|documentation|record|records|book|video|census|list)\b|(numbers?|figures?|values?|amounts?|rates?|totals?|dates?|prices?|facts?|claims?|statements?|answers?|information|data)\b[^.?!\n]{0,40}? (must|have to|has to|should|may) (only )?(come|originate|stem|be (taken|read|quoted|copied|drawn)) (only )?from\b|(search|look up|look it up|browse) (for|the web|online|on the|the internet|in the|the [\w ]{2,30}? (database|archive|site|website|catalogue?))\b|(use|using) (the |your )?(web|search|internet|browser)\b|cite (your|the|its|all) sources?|with (a )?(source|citation)s?|visit the (page|website|site)|do not (guess|answer from memory)|verify (it|this|your answer|that))"
);
regex!(USE_OF_TOOLS, r"(?i)\b(use|using) (the|your|these|following) (\w+ )?tools?\b");
regex!(
    NUMBER,
    r"(?i)\b(how (many|much|tall|high|far|old|deep|heavy|wide|fast)|what (is |was )?(the )?(number|percentage|year|total|sum|difference|population|price|cost|height|distance|age) (of|in|between|did|was|is|were)|in (what|which) year|answer with a number)\b"
);
regex!(
    FIGURE,
    r"(?i)\b(?:(?:find|get|tell me|give me|report|look up|need|want|show me|check)(?: out)? (?:me )?(?:the )?(?:current |exact |latest |total |average )?(?:number|percentage|share|sum|amount|price|cost|population|size|limit|rate|distance|weight|height|length|speed) (?:of|for|in|to|that)|(?:to|at|for|by|until|with|and|or) (?:what|which) (?:maximum |minimum |total )?(?:amount|price|rate|sum|limit|percentage|share|number|cost|age|weight|height|distance)|(?:what|which) (?:amount|price|percentage|share|sum)|what(?:['’]s| is| was) the (?:\w+ )?(?:amount|limit|rate|maximum|minimum|threshold|size|share|capacity|weight|length|speed|fee|fine|deductible|allowance))\b"
);
regex!(
    QUESTION_FOR_NAME,
    r"(?i)\b(who|whom|whose|which|where|named?|names|surname|author|title|called|city|country)\b"
);
regex!(
    CALENDAR,
    r"(?i)\b(days?|weeks?|months?) (after|before|from|until|between|later|ago)|today|tomorrow|yesterday|current date|next (week|month|year)|schedule|calendar|deadline\b"
);
regex!(
    PROPER_NAME,
    r#"\b[\p{Lu}][\p{L}'’-]+(?: (?:of|de|du|la|van|von|der|the) [\p{Lu}][\p{L}'’-]+| [\p{Lu}][\p{L}'’-]+)+"#
);
/// Capitalised words at the beginning of a sentence that are not part of a name.
pub(crate) const SENTENCE_OPENERS: [&str; 52] = [
    "The",
    "A",
    "An",
    "In",
    "On",
    "At",
    "Of",
    "For",
    "From",
    "By",
    "To",
    "According",
    "After",
    "Before",
    "Since",
    "When",
    "While",
    "What",
    "Which",
    "Who",
    "Where",
    "How",
    "Why",
    "If",
    "As",
    "It",
    "Its",
    "This",
    "That",
    "These",
    "Those",
    "Their",
    "There",
    "He",
    "She",
    "They",
    "We",
    "I",
    "You",
    "Your",
    "My",
    "Our",
    "And",
    "But",
    "Or",
    "So",
    "Is",
    "Are",
    "Was",
    "Were",
    "Please",
    "Find",
];

/// The first words that match the pattern.
fn first_match(pattern: &Regex, text: &str) -> Option<String> {
    Some(pattern.find(text)?.as_str().trim().to_owned())
}

impl TaskDemands {
    pub(crate) fn new(task: &str, memo: &Memo) -> TaskDemands {
        let read_task = ReadText::new(task, None, memo);
        TaskDemands {
            text: read_part(task),
            asks_for_text: read_task.asks_for_text(),
            asks_for_estimate: read_task.asks_for_estimate(),
            phrases: Default::default(),
            names: OnceCell::new(),
            numbers: OnceCell::new(),
        }
    }

    /// The demands of a task, computed once per trace.
    pub(crate) fn cached(task: &Text, memo: &Memo) -> Rc<TaskDemands> {
        memo.for_text(task, |task| TaskDemands::new(task, memo))
    }

    /// The first words that express the demand; `None` if the task does not have it.
    pub(crate) fn words(&self, demand: Demand) -> Option<&str> {
        let cell = self.phrases.get(demand as usize)?;
        cell.get_or_init(|| first_match(demand.pattern(), &self.text)).as_deref()
    }

    /// Whether the task has the demand.
    pub(crate) fn asks(&self, demand: Demand) -> bool {
        self.words(demand).is_some()
    }

    /// Names of two or more capitalised words.
    pub(crate) fn names(&self) -> &[String] {
        self.names.get_or_init(|| names(&self.text))
    }

    /// Whether the task contains the number, in any reading.
    pub(crate) fn has_number(&self, number: &Number) -> bool {
        let read_numbers = || numbers::all(&self.text).iter().flat_map(Number::possible_values).collect();
        let all = self.numbers.get_or_init(read_numbers);
        number.possible_values().any(|value| all.contains(&value))
    }

    /// Whether the task contains a phrase, in any case.
    pub(crate) fn has_phrase(&self, phrase: &str) -> bool {
        contains_ignoring_case(&self.text, phrase)
    }

    /// Whether the task asks for facts that must be found, and not for a text to be written or transformed.
    pub(crate) fn asks_for_facts(&self) -> bool {
        self.asks(Demand::Fact) && !self.asks_for_text
    }
}

/// The words of the instructions that demand a source for every answer; `None` if they demand none.
pub(crate) fn source_demand(instructions: &str) -> Option<String> {
    let text = read_part(instructions);
    first_match(&SOURCE, &text).or_else(|| first_match(&USE_OF_TOOLS, &text))
}

/// The part of a text that is read: all of it, or its beginning and end.
fn read_part(text: &str) -> String {
    if text.len() <= 2 * READ_BYTES {
        return text.to_owned();
    }
    format!("{}\n{}", clip(text, READ_BYTES), clip_end(text, READ_BYTES))
}

/// The distinct proper names of several words in `text`, in order.
pub(crate) fn names(text: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for found in PROPER_NAME.find_iter(text).take(8 * MAX_NAMES) {
        let words: Vec<&str> =
            found.as_str().split(' ').skip_while(|w| SENTENCE_OPENERS.contains(w)).collect();
        let name = words.join(" ");
        if words.len() >= 2 && !out.contains(&name) && out.len() < MAX_NAMES {
            out.push(name);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demands(task: &str) -> TaskDemands {
        TaskDemands::new(task, &Memo::new())
    }

    #[test]
    fn question_of_fact_with_a_source_is_recognised() {
        let request = demands(
            "How many metres taller is Mount Elbrus than Mont Blanc, according to the Alpine Almanac page?",
        );
        assert!(request.asks_for_facts() && request.asks(Demand::Number) && !request.asks_for_estimate);
        assert_eq!(request.words(Demand::Source), Some("according to the Alpine Almanac page"));
        assert_eq!(request.names(), ["Mount Elbrus", "Mont Blanc", "Alpine Almanac"]);
    }

    #[test]
    fn instructions_may_demand_sources() {
        assert!(!demands("What is the population of Bern?").asks(Demand::Source));
        let instructed = source_demand("Every number must come from a visited page.");
        assert_eq!(instructed.as_deref(), Some("number must come from"));
        for text in [
            "All prices you quote have to be taken from the rate card.",
            "Facts may only come from what the archive returns.",
            "Exchange rates must come from the tool, never from memory.",
            "According to the Vogelpedia, how long is the wing of a swift?",
        ] {
            assert!(source_demand(text).is_some(), "{text}");
        }
        for text in [
            "Parcels must come from a registered depot.",
            "Use a calm tone, and use your calculator voice.",
            "According to taste, how much salt does it take?",
        ] {
            assert_eq!(source_demand(text), None, "{text}");
        }
    }

    #[test]
    fn tasks_to_write_or_transform_ask_for_no_facts() {
        for task in [
            "Write a short story about 3000 sheep. Who are they?",
            "Please draft an email: what is our refund policy?",
            "Unscramble these letters: which word is it?",
            "Fix the bug in the repository: what is wrong?",
        ] {
            assert!(!demands(task).asks_for_facts(), "{task}");
        }
        assert!(!demands("Say hello.").asks_for_facts());
    }

    #[test]
    fn riddles_ask_for_a_transformation_and_questions_about_riddles_for_facts() {
        for task in [
            "Solve the following number puzzle: which digit comes next?",
            "Here is a riddle. What has keys and no locks?",
            "Which animal is meant in this old riddle?",
            "Riddle: what is always coming and never arrives?",
        ] {
            assert!(!demands(task).asks_for_facts(), "{task}");
        }
        for task in [
            "How many jigsaw puzzles with 500 pieces are in stock?",
            "Which shelf holds the book of riddles by Sam Loyd?",
            "When does the Puzzle Museum open?",
        ] {
            assert!(demands(task).asks_for_facts(), "{task}");
        }
    }

    #[test]
    fn request_for_an_estimate_is_recognised() {
        assert!(demands("Roughly how many piano tuners are in Chicago?").asks_for_estimate);
    }
}
