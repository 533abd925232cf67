//! Closed classes of words: negations, conditions, numbers in words, names of days.
//!
//! In: the section `classes` of a language's data file, and a text. Out: the [`ClassifiedWords`] of the text: the
//! positions of words of the classes. One automaton per language finds all entries in one pass.
//!
//! The entries of a class are separated by `|`; in a list of such strings, the position from 1 is the value of the
//! entries. An entry is one or more words, which match in any case and, where spaces separate words, as whole words.
//! `word*` also matches with letters after it, `word <n>` only before a number, `^word` only at the beginning of a
//! clause, and `=Word` only in this case; at the beginning of a sentence, the entry in lower case, if there is one,
//! matches instead. Of overlapping entries the longest one counts, so that "no later than" is no negation; entries of
//! `none` only hide shorter entries. `+word` is not searched in texts, since most texts contain it: rules look up
//! a single word by [`WordClassTable::name`].

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use foldhash::HashMap;
use serde::Deserialize;

use crate::measure::occurrences::{Occurrences, SearchAt};

verdict_otlp::labelled_enum! {
    /// A closed class of words.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(crate) enum WordClass {
        Negation = "negation",
        Condition = "condition",
        /// A possibility or the future: "may", "will".
        Modal = "modal",
        /// A duty or a prohibition: "must", "must not".
        Obligation = "obligation",
        Probability = "probability",
        Approximation = "approximation",
        /// "Only", "partly", "almost": the statement is about a part.
        Restriction = "restriction",
        /// "Before", "after", "until".
        Sequence = "sequence",
        Conjunction = "conjunction",
        Contrast = "contrast",
        Reason = "reason",
        Alternative = "alternative",
        /// "Except", "instead", "other".
        Exception = "exception",
        Quantifier = "quantifier",
        /// "Another", "more", "reduce".
        Increment = "increment",
        /// "Again", "twice".
        Repetition = "repetition",
        /// "Already", "existing".
        Already = "already",
        /// An upper bound ("at most"), 1; "above", 2; others, 3.
        Bound = "bound",
        /// A word for a text that is quoted or drafted, or the beginning of an example.
        Example = "example",
        /// Words for test data or data that does not exist.
        MadeUp = "made_up",
        /// Consent and approval.
        Confirmation = "confirmation",
        Advice = "advice",
        Offer = "offer",
        /// Numbers from one to twelve, with their values.
        Number = "number",
        /// Weekdays; Monday is 1.
        Weekday = "weekday",
        /// Months; January is 1.
        Month = "month",
        RelativeDay = "relative_day",
        /// "Before". The later event follows it where spaces separate words, and precedes it elsewhere.
        Before = "before",
        /// "Immediately", "without asking", "yes".
        AtOnce = "at_once",
        Which = "which",
        /// "Than", "unlike", "between".
        Comparison = "comparison",
        /// "Next", "similar", "same": a thing is described by its relation to another one.
        Neighbour = "neighbour",
        /// Prepositions before words that are no object of the verb: "about", "for", "with".
        Relation = "relation",
        /// "Action", "operation": words for any action, and words next to them without their own meaning.
        AnyAction = "any_action",
        /// "User", "customer".
        Client = "client",
        /// "Number", "code": words for an identifier.
        Identifier = "identifier",
        /// "New", "correct": a thing that replaces the known one.
        New = "new",
        /// Second, 1, minute, 2, hour, day, week, month and year, 7.
        TimeUnit = "time_unit",
        /// The source of a movement: "from", 1, and nouns, 2.
        Origin = "origin",
        /// The target of a movement: "to", 1, and nouns, 2.
        Target = "target",
        /// "Return", "undo".
        Reversal = "reversal",
        /// Words for the end of a number: "ending in", 1, and "the last four digits", 2.
        Ending = "ending",
        /// Words for amounts of money, 1, and for prices of one item, 2.
        Amount = "amount",
        /// Words for a part of an amount: "percent", "discount".
        Share = "share",
        /// Words for a simulated, assumed or imagined thing.
        Unreal = "unreal",
        /// Words for a prohibition, a refusal, or a required approval.
        Barrier = "barrier",
        /// Words for a thing with a telephone number.
        Phone = "phone",
        /// Titles before the name of a person, or in place of a first name.
        Title = "title",
        /// Words by which a text asks for a fact: "who", 1; other words of questions, and "find out", 2.
        Inquiry = "inquiry",
        /// Words before a number that is a name and no quantity: "page", "step".
        Label = "label",
        /// "Dry run", "preview": an action is only tried.
        Trial = "trial",
        /// Words for an action that happens by itself or together with another one.
        Automatic = "automatic",
        /// Words by which the reader or the writer goes to a page: "visit", "let me".
        Visit = "visit",
        /// The tools of an agent.
        Tool = "tool",
        /// "Per", "each", "a": after an amount, the amount is the one of a single item.
        Per = "per",
        /// The extreme of a column: price, lowest 1, highest 2; duration, 3 and 4; weight, highest 5, lowest 6;
        /// rating, 7 and 8; temperature, 9 and 10; date, 11 and 12; of any column, lowest 13, highest 14, either 15.
        Superlative = "superlative",
    }
}

/// A constant set of classes.
macro_rules! classes {
    ($($class:ident)+) => {
        $crate::measure::language::WordClasses::new(&[$($crate::measure::language::WordClass::$class),+])
    };
}
pub(crate) use classes;

/// Classes of function words: all classes before the first one with nouns.
pub(super) const FUNCTION_CLASSES: WordClasses = WordClasses((1 << WordClass::AnyAction as u64) - 1);

/// A set of classes.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct WordClasses(u64);

impl WordClasses {
    pub(crate) const fn new(classes: &[WordClass]) -> WordClasses {
        let (mut bits, mut remaining) = (0, classes);
        while let [first, others @ ..] = remaining {
            bits |= 1 << *first as u32;
            remaining = others;
        }
        WordClasses(bits)
    }

    pub(crate) fn has(self, class: WordClass) -> bool {
        self.0 >> class as u32 & 1 == 1
    }

    pub(crate) fn has_any(self, others: WordClasses) -> bool {
        self.0 & others.0 != 0
    }

    pub(super) fn union(self, others: WordClasses) -> WordClasses {
        WordClasses(self.0 | others.0)
    }
}

impl fmt::Debug for WordClasses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = WordClass::ALL.iter().filter(|class| self.has(**class)).map(|class| class.as_str());
        f.write_str(&names.collect::<Vec<_>>().join(" "))
    }
}

/// A word of closed classes in a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ClassifiedWord {
    /// The bytes of the word in the text.
    pub at: Range<usize>,
    pub classes: WordClasses,
    /// The value of the entry, for example the number of a weekday or month; 0 without a value.
    pub value: u8,
}

/// The words of closed classes in a text, in order.
#[derive(Debug)]
pub(crate) struct ClassifiedWords(Vec<ClassifiedWord>);

impl ClassifiedWords {
    /// The words within these bytes of the text.
    pub(crate) fn within(&self, bytes: Range<usize>) -> &[ClassifiedWord] {
        let from = self.0.partition_point(|word| word.at.start < bytes.start);
        let end = self.0.partition_point(|word| word.at.end <= bytes.end);
        self.0.get(from..end).unwrap_or_default()
    }

    /// The classes of all words.
    pub(crate) fn all(&self) -> WordClasses {
        classes_of(&self.0)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &ClassifiedWord> {
        self.0.iter()
    }
}

/// The union of the classes of the words.
pub(crate) fn classes_of(words: &[ClassifiedWord]) -> WordClasses {
    words.iter().fold(WordClasses::default(), |all, word| all.union(word.classes))
}

/// The entries of the classes of a data file.
pub(super) type ClassesFile = BTreeMap<String, ClassEntries>;

#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum ClassEntries {
    /// Entries without a value.
    Any(String),
    /// The entries by value, from 1 on.
    Ordered(Vec<String>),
}

/// A parsed entry: its word and the conditions for a match.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct EntryForm {
    /// The word, without the signs of the data file.
    word: String,
    /// Whether letters may follow.
    has_open_end: bool,
    before_number: bool,
    begins_clause: bool,
    is_case_sensitive: bool,
    /// Whether the entry is only looked up as a single word, and texts are not searched for it.
    is_lookup_only: bool,
}

#[derive(Debug)]
struct ClassEntry {
    form: EntryForm,
    classes: WordClasses,
    value: u8,
    /// Whether the word is also an entry in lower case.
    has_lower: bool,
}

/// The closed classes of a language.
#[derive(Debug)]
pub(crate) struct WordClassTable {
    entries: Vec<ClassEntry>,
    spellings: Occurrences,
    /// By index of `spellings`, the index of its entry. An entry may have several spellings.
    entry_of_spelling: Vec<usize>,
    /// By word in lower case, its classes and values. A word may have several: "sept" is a number and an abbreviation.
    values: HashMap<String, Vec<(WordClasses, u8)>>,
    /// By word, the classes and values of entries that are not searched in texts.
    names: HashMap<String, (WordClasses, u8)>,
    has_spaces: bool,
}

impl WordClassTable {
    /// # Errors
    /// The file has an unknown class, or too many entries for an automaton.
    pub(super) fn new(file: &ClassesFile, has_spaces: bool) -> Result<WordClassTable, String> {
        let mut forms: BTreeMap<EntryForm, (WordClasses, u8)> = BTreeMap::new();
        for (name, entries) in file {
            let class = WordClass::ALL.iter().find(|class| class.as_str() == name);
            let classes = match class {
                Some(class) => WordClasses::new(&[*class]),
                None if name == "none" => WordClasses::default(),
                None => return Err(format!("no class of words {name:?}")),
            };
            let (lists, first_value) = match entries {
                ClassEntries::Any(list) => (std::slice::from_ref(list), 0),
                ClassEntries::Ordered(lists) => (lists.as_slice(), 1),
            };
            for (value, list) in (first_value..).zip(lists) {
                for entry in list.split('|') {
                    let (form_classes, form_value) = forms.entry(EntryForm::parse(entry)).or_default();
                    (*form_classes, *form_value) = (form_classes.union(classes), value.max(*form_value));
                }
            }
        }
        let (mut patterns, mut entry_of_spelling) = (Vec::new(), Vec::new());
        for (nth, form) in forms.keys().enumerate() {
            let spellings = form.spellings();
            entry_of_spelling.extend(spellings.iter().map(|_| nth));
            patterns.extend(spellings);
        }
        let is_entry = |word: &str| forms.keys().any(|form| !form.is_case_sensitive && form.word == word);
        let has_lower: Vec<bool> =
            forms.keys().map(|form| form.is_case_sensitive && is_entry(&form.word.to_lowercase())).collect();
        let entries = forms
            .into_iter()
            .zip(has_lower)
            .map(|((form, (classes, value)), has_lower)| ClassEntry { form, classes, value, has_lower });
        let entries: Vec<ClassEntry> = entries.collect();
        // Abbreviations of two letters are also other words: "So.", "Do.".
        let name = |entry: &ClassEntry| entry.form.word.trim_end_matches('.').to_lowercase();
        let is_short = |word: &str| word.ends_with('.') && word.chars().count() < 4;
        let valued = entries.iter().filter(|entry| entry.value > 0 && !is_short(&entry.form.word));
        let mut values: HashMap<String, Vec<(WordClasses, u8)>> = HashMap::default();
        valued.for_each(|entry| values.entry(name(entry)).or_default().push((entry.classes, entry.value)));
        let names = entries.iter().filter(|entry| entry.form.is_lookup_only);
        let names = names.map(|entry| (entry.form.word.clone(), (entry.classes, entry.value))).collect();
        let positions = if has_spaces { SearchAt::WordBeginnings } else { SearchAt::AllBytes };
        Ok(WordClassTable {
            entries,
            spellings: Occurrences::new(&patterns, true, positions)?,
            entry_of_spelling,
            values,
            names,
            has_spaces,
        })
    }

    /// The words of closed classes in `text`.
    pub(crate) fn places(&self, text: &str) -> ClassifiedWords {
        let mut matches: Vec<(Range<usize>, usize, &ClassEntry)> = Vec::new();
        self.spellings.find_each(text, |spelling, at| {
            let entry = self.entry_of_spelling.get(spelling).and_then(|nth| self.entries.get(*nth));
            let matched =
                entry.and_then(|entry| Some((entry, entry.form.end(text, at.clone(), self.has_spaces)?)));
            let matched = matched.filter(|(entry, end)| !entry.defers_to_lowercase(text, at.start, *end));
            matches.extend(matched.map(|(entry, end)| (at, end, entry)));
            true
        });
        matches.sort_by_key(|(at, end, entry)| {
            (at.start, usize::MAX - at.end, usize::MAX - end, usize::MAX - entry.form.condition_count())
        });
        let mut words: Vec<ClassifiedWord> = Vec::with_capacity(matches.len());
        let mut last_end = 0;
        let mut last_key = None;
        for (at, end, entry) in matches {
            let key = (at.start, at.end, end, entry.form.condition_count());
            if at.start >= last_end {
                words.push(ClassifiedWord { at: at.start..end, classes: entry.classes, value: entry.value });
                (last_end, last_key) = (end, Some(key));
            } else if last_key == Some(key)
                && let Some(word) = words.last_mut()
            {
                word.classes = word.classes.union(entry.classes);
                word.value = word.value.max(entry.value);
            }
        }
        words.retain(|word| word.classes != WordClasses::default());
        ClassifiedWords(words)
    }

    /// The bytes of the first word of a class with this value. `text` is in lower case, with single spaces between
    /// words.
    pub(crate) fn first(&self, text: &str, class: WordClass, value: u8) -> Option<Range<usize>> {
        let has_value = |(classes, word_value): (WordClasses, u8)| classes.has(class) && word_value == value;
        if !self.has_spaces {
            return Some(
                self.places(text).0.into_iter().find(|word| has_value((word.classes, word.value)))?.at,
            );
        }
        let word = text.split(' ').find(|word| has_value(self.name(word)))?;
        let at = word.as_ptr().addr() - text.as_ptr().addr();
        Some(at..at + word.len())
    }

    /// The classes and the value of a word in lower case, by the entries that are not searched in texts.
    pub(crate) fn name(&self, word: &str) -> (WordClasses, u8) {
        self.names.get(word).copied().unwrap_or_default()
    }

    /// The single words of a class, with their values.
    pub(super) fn words(&self, class: WordClass) -> impl Iterator<Item = (&str, u8)> {
        let class_entries = self.entries.iter().filter(move |entry| entry.classes.has(class));
        class_entries.filter_map(|entry| Some((entry.single_word()?, entry.value)))
    }

    /// The value of a word in lower case, if it is of the class, for example the number of a month's name.
    pub(crate) fn value(&self, class: WordClass, word: &str) -> Option<u8> {
        let mut meanings = self.values.get(word)?.iter();
        meanings.find(|(classes, _)| classes.has(class)).map(|(_, value)| *value)
    }
}

impl ClassEntry {
    /// The word of the entry, if it is a single word without a full stop.
    fn single_word(&self) -> Option<&str> {
        Some(&*self.form.word).filter(|word| !word.contains([' ', '.']))
    }

    /// Whether the entry in lower case matches instead: at the beginning of a sentence every word has a capital letter.
    fn defers_to_lowercase(&self, text: &str, start: usize, end: usize) -> bool {
        let before = text.get(..start).unwrap_or_default().trim_end_matches(' ').chars().next_back();
        let begins_sentence =
            before.is_none_or(|c| matches!(c, '.' | '!' | '?' | ':' | '\n' | '"' | '«' | '„' | '“'));
        self.has_lower && begins_sentence && !is_before_number(text, end)
    }
}

impl EntryForm {
    fn parse(entry: &str) -> EntryForm {
        let (word, is_lookup_only) = strip_sign(entry, str::strip_prefix, "+");
        let (word, begins_clause) = strip_sign(word, str::strip_prefix, "^");
        let (word, is_case_sensitive) = strip_sign(word, str::strip_prefix, "=");
        let (word, before_number) = strip_sign(word, str::strip_suffix, " <n>");
        let (word, has_open_end) = strip_sign(word, str::strip_suffix, "*");
        let word = if is_case_sensitive { word.to_owned() } else { word.to_lowercase() };
        EntryForm { word, has_open_end, before_number, begins_clause, is_case_sensitive, is_lookup_only }
    }

    /// The number of conditions in addition to the letters.
    fn condition_count(&self) -> usize {
        [self.before_number, self.begins_clause, self.is_case_sensitive]
            .into_iter()
            .filter(|is_set| *is_set)
            .count()
    }

    /// The spellings that differ in more than the case of ASCII letters.
    fn spellings(&self) -> Vec<String> {
        if self.is_lookup_only {
            return Vec::new();
        }
        let mut out = vec![self.word.clone()];
        if !self.is_case_sensitive && !self.word.is_ascii() {
            let (first, remaining) = self.word.split_at(self.word.chars().next().map_or(0, char::len_utf8));
            out.extend([format!("{}{remaining}", first.to_uppercase()), self.word.to_uppercase()]);
        }
        out.sort();
        out.dedup();
        let curly: Vec<String> = out
            .iter()
            .filter(|word| word.contains('\''))
            .map(|word| word.replace('\'', "\u{2019}"))
            .collect();
        out.extend(curly);
        out
    }

    /// The end of a match of the entry whose letters are at `at`; `None` if a condition is not met.
    fn end(&self, text: &str, at: Range<usize>, has_spaces: bool) -> Option<usize> {
        let before = text.get(..at.start)?;
        let mut end = at.end;
        if has_spaces {
            let is_letter = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
            let mut preceding = before.chars().rev();
            let previous = preceding.next();
            let is_inside = is_letter(previous)
                || matches!(previous, Some('/' | '@' | '#'))
                || previous == Some('-') && is_letter(preceding.next());
            if is_inside && self.word.starts_with(char::is_alphanumeric) {
                return None;
            }
            let after = text.get(end..)?;
            if self.has_open_end {
                end += after.len() - after.trim_start_matches(char::is_alphabetic).len();
            } else if self.word.ends_with(char::is_alphanumeric) {
                let next = after.chars().next();
                // The word "can" of "can't" is not the modal verb alone.
                let is_negated = || {
                    let rest = after.strip_prefix(['\'', '\u{2019}']).and_then(|rest| rest.strip_prefix('t'));
                    rest.is_some_and(|rest| !is_letter(rest.chars().next()))
                };
                (!is_letter(next) && !matches!(next, Some('/' | '@')) && !is_negated()).then_some(())?;
            }
        }
        let before = before.trim_end_matches(' ').chars().next_back();
        let is_clause_start =
            || before.is_none_or(|c| !c.is_alphanumeric() && !matches!(c, '\'' | ')' | '-' | '%'));
        let is_match = (!self.begins_clause || is_clause_start())
            && (!self.before_number || is_before_number(text, end))
            && (!self.is_case_sensitive || text.get(at) == Some(&self.word));
        is_match.then_some(end)
    }
}

/// `word` without a sign of the data file, and whether it had the sign.
fn strip_sign<'w>(
    word: &'w str,
    strip: impl Fn(&'w str, &'static str) -> Option<&'w str>,
    sign: &'static str,
) -> (&'w str, bool) {
    strip(word, sign).map_or((word, false), |remaining| (remaining, true))
}

/// Whether a number follows `end`, with at most a currency sign, punctuation and spaces between.
fn is_before_number(text: &str, end: usize) -> bool {
    let mut after = text.get(end..).unwrap_or_default().chars().take(4);
    let may_precede = |c: &char| matches!(c, ' ' | ',' | '.' | '(' | '$' | '€' | '£' | '¥');
    after.find(|c| !may_precede(c)).is_some_and(|c| c.is_ascii_digit())
}
