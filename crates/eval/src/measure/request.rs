//! The explicit demands of a task.
//!
//! In: the text of a task, or the agent's instructions. Out: for each [`Demand`] whether the text has it, and the names
//! in the text. Only explicit wording counts, by the words of the language of the text (`language`).

use std::cell::OnceCell;
use std::rc::Rc;

use crate::measure::Memo;
use crate::measure::defects::{clip, clip_end};
use crate::measure::language::{ClassifiedWord, Language, ReadText, WordClass, classes};
use crate::measure::numbers::{self, Number};
use crate::pattern::contains_ignoring_case;
use crate::recognise::Text;

/// Maximum bytes that are read at each end of a task: pasted text is usually in the middle.
const READ_BYTES: usize = 6 * 1024;
/// Maximum names of a text.
const MAX_NAMES: usize = 16;
/// The value of words of [`WordClass::Inquiry`] that ask for a name.
const WHO: u8 = 1;
/// The value of the first unit of time from a day on, in [`WordClass::TimeUnit`].
const DAY: u8 = 4;

/// A demand of a task that is expressed by words of closed classes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Demand {
    /// To find a fact: who, when, how many, which, find.
    Fact,
    /// A name: who, which, where.
    Name,
    /// To compute a date: "days after", "today".
    Calendar,
}

/// The demands of a task, each computed at its first use.
#[derive(Debug)]
pub(crate) struct TaskDemands {
    text: String,
    /// The language by whose words demands are recognised; `None` for a language without data.
    language: Option<Language>,
    /// The analysis of `text`, see [`TaskDemands::read`].
    reading: ReadText<'static>,
    asks_for_text: OnceCell<bool>,
    asks_for_estimate: OnceCell<bool>,
    /// The words of a question for a number, and the words after them.
    number: OnceCell<Option<[String; 2]>>,
    /// The sentence that demands a source.
    source: OnceCell<Option<String>>,
    names: OnceCell<Vec<String>>,
    /// All readings of the numbers in the text.
    numbers: OnceCell<Vec<f64>>,
}

regex!(
    PROPER_NAME,
    r#"\b[\p{Lu}][\p{L}'’-]+(?: (?:of|de|du|la|van|von|der|the) [\p{Lu}][\p{L}'’-]+| [\p{Lu}][\p{L}'’-]+)+"#
);

impl TaskDemands {
    pub(crate) fn new(task: &str, memo: &Memo) -> TaskDemands {
        let text = read_part(task);
        TaskDemands {
            language: Language::detected(task, None, memo),
            reading: ReadText::new(&text, None, memo).without_text(),
            text,
            asks_for_text: OnceCell::new(),
            asks_for_estimate: OnceCell::new(),
            number: OnceCell::new(),
            source: OnceCell::new(),
            names: OnceCell::new(),
            numbers: OnceCell::new(),
        }
    }

    /// The demands of a task, computed once per trace.
    pub(crate) fn cached(task: &Text, memo: &Memo) -> Rc<TaskDemands> {
        memo.for_text(task, |task| TaskDemands::new(task, memo))
    }

    /// The text with its analysis.
    fn read(&self) -> ReadText<'_> {
        self.reading.with_text(&self.text)
    }

    /// Whether the task asks to write or to transform a text, code or a plan, whose numbers need no source.
    pub(crate) fn asks_for_text(&self) -> bool {
        *self.asks_for_text.get_or_init(|| self.read().asks_for_text())
    }

    /// Whether the task asks for an estimate or allows one.
    pub(crate) fn asks_for_estimate(&self) -> bool {
        *self.asks_for_estimate.get_or_init(|| self.read().asks_for_estimate())
    }

    /// Whether the task has the demand.
    pub(crate) fn asks(&self, demand: Demand, memo: &Memo) -> bool {
        let Some(language) = self.language else { return false };
        let places = language.places(&self.text, memo);
        let demanding = classes!(Inquiry RelativeDay TimeUnit Sequence);
        let mut words = places.iter().filter(|word| word.classes.has_any(demanding));
        match demand {
            Demand::Fact => words.any(|word| word.classes.has(WordClass::Inquiry)),
            Demand::Name => words.any(|word| word.classes.has(WordClass::Inquiry) && word.value == WHO),
            Demand::Calendar => {
                let is_day =
                    |word: &ClassifiedWord| word.classes.has(WordClass::TimeUnit) && word.value >= DAY;
                let gap = |from: usize, to: usize| self.text.get(from..to).unwrap_or_default();
                let words: Vec<&ClassifiedWord> = words.collect();
                words.iter().any(|word| word.classes.has(WordClass::RelativeDay))
                    || words.windows(2).any(|pair| {
                        matches!(pair, [unit, next] if is_day(unit) && next.classes.has(WordClass::Sequence)
                            && gap(unit.at.end, next.at.start).trim().is_empty())
                    })
            }
        }
    }

    /// The words of a question for a count, an amount or a year, and the words after them; `None` without such a
    /// question.
    pub(crate) fn question_for_number(&self) -> Option<&[String; 2]> {
        let read = || self.read().question_for_number();
        self.number.get_or_init(read).as_ref()
    }

    /// The sentence that demands a source, a search or a tool; `None` without such a demand.
    pub(crate) fn source(&self) -> Option<&str> {
        let read = || self.read().source_demand().map(str::to_owned);
        self.source.get_or_init(read).as_deref()
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
    pub(crate) fn asks_for_facts(&self, memo: &Memo) -> bool {
        self.asks(Demand::Fact, memo) && !self.asks_for_text()
    }
}

/// Whether the instructions demand a source for every answer.
pub(crate) fn demands_source(instructions: &str, memo: &Memo) -> bool {
    ReadText::new(&read_part(instructions), None, memo).source_demand().is_some()
}

/// The part of a text that is read: all of it, or its beginning and end.
fn read_part(text: &str) -> String {
    if text.len() <= 2 * READ_BYTES {
        return text.to_owned();
    }
    format!("{}\n{}", clip(text, READ_BYTES), clip_end(text, READ_BYTES))
}

/// The distinct proper names of several words in `text`, in order. Names are recognised by their capitals, as in
/// English.
pub(crate) fn names(text: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let bytes = text.as_bytes();
    // A name has a space between a letter, an apostrophe or a hyphen, and a capital.
    let may_be_in_name = |space: usize| {
        let before = space.checked_sub(1).and_then(|before| bytes.get(before));
        let ends_word = matches!(before, Some(b'a'..=b'z' | b'A'..=b'Z' | b'\'' | b'-' | 0x80..));
        ends_word && matches!(bytes.get(space + 1), Some(b'A'..=b'Z' | 0x80..))
    };
    if !memchr::memchr_iter(b' ', bytes).any(may_be_in_name) {
        return out;
    }
    for found in PROPER_NAME.find_iter(text).take(8 * MAX_NAMES) {
        // A function word with a capital begins a sentence.
        let is_opener = |word: &&str| Language::English.is_sentence_opener(&word.to_lowercase());
        let words: Vec<&str> = found.as_str().split(' ').skip_while(is_opener).collect();
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
        assert!(
            request.asks_for_facts(&Memo::new())
                && !request.asks(Demand::Name, &Memo::new())
                && !request.asks_for_estimate()
        );
        assert_eq!(request.question_for_number().map(|[words, _]| words.as_str()), Some("how many"));
        assert!(request.source().is_some_and(|sentence| sentence.ends_with("Almanac page?")));
        assert_eq!(request.names(), ["Mount Elbrus", "Mont Blanc", "Alpine Almanac"]);
    }

    #[test]
    fn instructions_may_demand_sources() {
        let memo = &Memo::new();
        assert_eq!(demands("What is the population of Bern?").source(), None);
        for text in [
            "Every number must come from a visited page.",
            "All prices you quote have to be taken from the rate card.",
            "Facts may only come from what the archive returns.",
            "Exchange rates must come from the tool, never from memory.",
            "According to the Vogelpedia, how long is the wing of a swift?",
        ] {
            assert!(demands_source(text, memo), "{text}");
        }
        for text in [
            "Parcels must come from a registered depot.",
            "Use a calm tone, and use your calculator voice.",
            "According to taste, how much salt does it take?",
        ] {
            assert!(!demands_source(text, memo), "{text}");
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
            assert!(!demands(task).asks_for_facts(&Memo::new()), "{task}");
        }
        assert!(!demands("Say hello.").asks_for_facts(&Memo::new()));
    }

    #[test]
    fn riddles_ask_for_a_transformation_and_questions_about_riddles_for_facts() {
        for task in [
            "Solve the following number puzzle: which digit comes next?",
            "Here is a riddle. What has keys and no locks?",
            "Which animal is meant in this old riddle?",
            "Riddle: what is always coming and never arrives?",
        ] {
            assert!(!demands(task).asks_for_facts(&Memo::new()), "{task}");
        }
        for task in [
            "How many jigsaw puzzles with 500 pieces are in stock?",
            "Which shelf holds the book of riddles by Sam Loyd?",
            "When does the Puzzle Museum open?",
        ] {
            assert!(demands(task).asks_for_facts(&Memo::new()), "{task}");
        }
    }

    #[test]
    fn request_for_an_estimate_is_recognised() {
        assert!(demands("Roughly how many piano tuners are in Chicago?").asks_for_estimate());
    }
}
