//! Closed classes of words: negations, conditions, numbers in words, names of days.
//!
//! In: the section `classes` of a language's data file, and a text. Out: the [`ClassifiedWords`] of the text: where
//! which classes are. One automaton per language finds all entries in one pass.
//!
//! A class is its entries between `|`; a list of them has a value by position, from 1. An entry is a word or several,
//! found as a whole where spaces separate words, in any case. `word*` is also found with letters after it, `word <n>`
//! only before a number, `^word` only at the beginning of a clause, and `=Word` only as it is written: at the beginning
//! of a sentence the entry in lower case, if there is one, counts instead. Of entries that overlap the longest
//! counts, so that "no later than" is no negation; those of `none` only hide shorter ones. No text is searched for
//! `+word`, which would be in most of them: a rule asks whether one of its words is such a word.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use foldhash::HashMap;
use serde::Deserialize;

use crate::measure::occurrences::{Occurrences, Within};

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
        /// "Only", "partly", "almost": what is said holds of a part.
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
        /// "At most", 1, "above", 2, and others, 3.
        Bound = "bound",
        /// A wording, or what begins an example.
        Example = "example",
        /// Data for tests, or that do not exist.
        MadeUp = "made_up",
        /// Consent and approval.
        Confirmation = "confirmation",
        Advice = "advice",
        Offer = "offer",
        /// From one to twelve, with its value.
        Number = "number",
        /// From Monday, 1, on.
        Weekday = "weekday",
        /// From January, 1, on.
        Month = "month",
        RelativeDay = "relative_day",
        /// "Before", with what comes later: after it where spaces separate words, else before it.
        Before = "before",
        /// "Immediately", "without asking", "yes".
        AtOnce = "at_once",
        Which = "which",
        /// "Than", "unlike", "between".
        Comparison = "comparison",
        /// "Next", "similar", "same": a thing by means of another one.
        Neighbour = "neighbour",
        /// Prepositions before what is no object: "about", "for", "with".
        Relation = "relation",
        /// "Action", "operation": words for any action, and words next to them without a meaning of their own.
        AnyAction = "any_action",
        /// "User", "customer".
        Client = "client",
        /// "Number", "code": what a thing is identified by.
        Identifier = "identifier",
        /// "New", "correct": another than the one that is known.
        New = "new",
        /// Second, minute, hour, day, week, month and year, from 1 on.
        TimeUnit = "time_unit",
        /// The source of a movement: "from", 1, and nouns, 2.
        Origin = "origin",
        /// The target of a movement: "to", 1, and nouns, 2.
        Target = "target",
        /// "Return", "undo".
        Reversal = "reversal",
        /// "Ending in", 1, and "the last four digits", 2.
        Ending = "ending",
        /// Amounts of money: 1, and those for one thing, 2.
        Amount = "amount",
        /// "Percent", "discount".
        Share = "share",
        /// A simulated, assumed or imagined thing.
        Unreal = "unreal",
        /// A prohibition, a refusal, or a required approval.
        Barrier = "barrier",
        /// A thing with a telephone number.
        Phone = "phone",
        /// The title before the name of a person, or in place of their first name.
        Title = "title",
        /// "Per", "each", "a": behind an amount, it is that of one of several things.
        Per = "per",
    }
}

/// A set of classes by their names, as a constant.
macro_rules! classes {
    ($($class:ident)+) => {
        $crate::measure::language::WordClasses::new(&[$($crate::measure::language::WordClass::$class),+])
    };
}
pub(crate) use classes;

/// Classes of words that carry no content: those before the first one that has nouns.
pub(super) const FUNCTION: WordClasses = WordClasses((1 << WordClass::AnyAction as u64) - 1);

/// A set of classes.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct WordClasses(u64);

impl WordClasses {
    pub(crate) const fn new(classes: &[WordClass]) -> WordClasses {
        let (mut bits, mut rest) = (0, classes);
        while let [first, others @ ..] = rest {
            bits |= 1 << *first as u32;
            rest = others;
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
    /// Bytes of the text.
    pub at: Range<usize>,
    pub classes: WordClasses,
    /// The number, weekday or month that the entry means; else 0.
    pub value: u8,
}

/// The words of closed classes in a text, in order.
#[derive(Debug)]
pub(crate) struct ClassifiedWords(Vec<ClassifiedWord>);

impl ClassifiedWords {
    /// The places within some bytes of the text.
    pub(crate) fn within(&self, bytes: Range<usize>) -> &[ClassifiedWord] {
        let from = self.0.partition_point(|place| place.at.start < bytes.start);
        let end = self.0.partition_point(|place| place.at.end <= bytes.end);
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

/// The classes of some words.
pub(crate) fn classes_of(places: &[ClassifiedWord]) -> WordClasses {
    places.iter().fold(WordClasses::default(), |all, place| all.union(place.classes))
}

/// The entries of the classes of a data file.
pub(super) type ClassesFile = BTreeMap<String, ClassEntries>;

#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum ClassEntries {
    Any(String),
    /// By value, from 1 on.
    Ordered(Vec<String>),
}

/// The surroundings that an entry must have in a text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct EntryForm {
    /// Without its signs.
    word: String,
    /// Letters may follow.
    open: bool,
    before_number: bool,
    begins_clause: bool,
    as_written: bool,
    /// No text is searched for it.
    is_name: bool,
}

#[derive(Debug)]
struct ClassEntry {
    form: EntryForm,
    classes: WordClasses,
    value: u8,
    /// The entry is also there in lower case.
    has_lower: bool,
}

/// The closed classes of a language.
#[derive(Debug)]
pub(crate) struct WordClassTable {
    entries: Vec<ClassEntry>,
    spellings: Occurrences,
    /// By spelling, its entry, which may have several.
    entry: Vec<usize>,
    /// By word in lower case, those with a value: "sept" is a number and an abbreviation.
    values: HashMap<String, Vec<(WordClasses, u8)>>,
    /// By word, those that no text is searched for.
    names: HashMap<String, (WordClasses, u8)>,
    spaced: bool,
}

impl WordClassTable {
    /// # Errors
    /// The file has an unknown class, or too many entries for an automaton.
    pub(super) fn new(file: &ClassesFile, spaced: bool) -> Result<WordClassTable, String> {
        let mut forms: BTreeMap<EntryForm, (WordClasses, u8)> = BTreeMap::new();
        for (name, entries) in file {
            let class = WordClass::ALL.iter().find(|class| class.as_str() == name);
            let classes = match class {
                Some(class) => WordClasses::new(&[*class]),
                None if name == "none" => WordClasses::default(),
                None => return Err(format!("no class of words {name:?}")),
            };
            let (lists, first) = match entries {
                ClassEntries::Any(list) => (std::slice::from_ref(list), 0),
                ClassEntries::Ordered(lists) => (lists.as_slice(), 1),
            };
            for (value, list) in (first..).zip(lists) {
                for entry in list.split('|') {
                    let (form_classes, form_value) = forms.entry(EntryForm::parse(entry)).or_default();
                    (*form_classes, *form_value) = (form_classes.union(classes), value.max(*form_value));
                }
            }
        }
        let (mut patterns, mut entry) = (Vec::new(), Vec::new());
        for (nth, form) in forms.keys().enumerate() {
            let spellings = form.spellings();
            entry.extend(spellings.iter().map(|_| nth));
            patterns.extend(spellings);
        }
        let is_plain = |word: &str| forms.keys().any(|form| !form.as_written && form.word == word);
        let has_lower: Vec<bool> =
            forms.keys().map(|form| form.as_written && is_plain(&form.word.to_lowercase())).collect();
        let entries = forms
            .into_iter()
            .zip(has_lower)
            .map(|((form, (classes, value)), has_lower)| ClassEntry { form, classes, value, has_lower });
        let entries: Vec<ClassEntry> = entries.collect();
        // Abbreviations of two letters are words as well: "So.", "Do.".
        let name = |entry: &ClassEntry| entry.form.word.trim_end_matches('.').to_lowercase();
        let is_short = |word: &str| word.ends_with('.') && word.chars().count() < 4;
        let valued = entries.iter().filter(|entry| entry.value > 0 && !is_short(&entry.form.word));
        let mut values: HashMap<String, Vec<(WordClasses, u8)>> = HashMap::default();
        valued.for_each(|entry| values.entry(name(entry)).or_default().push((entry.classes, entry.value)));
        let names = entries.iter().filter(|entry| entry.form.is_name);
        let names = names.map(|entry| (entry.form.word.clone(), (entry.classes, entry.value))).collect();
        let within = if spaced { Within::Beginnings } else { Within::Text };
        Ok(WordClassTable {
            entries,
            spellings: Occurrences::new(&patterns, true, within)?,
            entry,
            values,
            names,
            spaced,
        })
    }

    /// The words of closed classes in `text`.
    pub(crate) fn places(&self, text: &str) -> ClassifiedWords {
        let mut found: Vec<(Range<usize>, usize, &ClassEntry)> = Vec::new();
        self.spellings.find_each(text, |spelling, at| {
            let entry = self.entry.get(spelling).and_then(|nth| self.entries.get(*nth));
            let matched =
                entry.and_then(|entry| Some((entry, entry.form.end(text, at.clone(), self.spaced)?)));
            let matched = matched.filter(|(entry, end)| !entry.yields(text, at.start, *end));
            found.extend(matched.map(|(entry, end)| (at, end, entry)));
            true
        });
        found.sort_by_key(|(at, end, entry)| {
            (at.start, usize::MAX - at.end, usize::MAX - end, usize::MAX - entry.form.conditions())
        });
        let mut places: Vec<ClassifiedWord> = Vec::with_capacity(found.len());
        let mut until = 0;
        let mut last = None;
        for (at, end, entry) in found {
            let key = (at.start, at.end, end, entry.form.conditions());
            if at.start >= until {
                places.push(ClassifiedWord { at: at.start..end, classes: entry.classes, value: entry.value });
                (until, last) = (end, Some(key));
            } else if last == Some(key)
                && let Some(place) = places.last_mut()
            {
                place.classes = place.classes.union(entry.classes);
                place.value = place.value.max(entry.value);
            }
        }
        places.retain(|place| place.classes != WordClasses::default());
        ClassifiedWords(places)
    }

    /// The place of the first word of a class with this value in a text in lower case, its words between single spaces.
    pub(crate) fn first(&self, text: &str, class: WordClass, value: u8) -> Option<Range<usize>> {
        let is_it = |(classes, word_value): (WordClasses, u8)| classes.has(class) && word_value == value;
        if !self.spaced {
            return Some(
                self.places(text).0.into_iter().find(|place| is_it((place.classes, place.value)))?.at,
            );
        }
        let word = text.split(' ').find(|word| is_it(self.name(word)))?;
        let at = word.as_ptr().addr() - text.as_ptr().addr();
        Some(at..at + word.len())
    }

    /// The classes and the value of a word in lower case that no text is searched for.
    pub(crate) fn name(&self, word: &str) -> (WordClasses, u8) {
        self.names.get(word).copied().unwrap_or_default()
    }

    /// The single words of a class, with their values.
    pub(super) fn words(&self, class: WordClass) -> impl Iterator<Item = (&str, u8)> {
        let class_entries = self.entries.iter().filter(move |entry| entry.classes.has(class));
        class_entries.filter_map(|entry| Some((entry.single()?, entry.value)))
    }

    /// The value of a word in lower case, if it is of the class: the month of "februar".
    pub(crate) fn value(&self, class: WordClass, word: &str) -> Option<u8> {
        let mut readings = self.values.get(word)?.iter();
        readings.find(|(classes, _)| classes.has(class)).map(|(_, value)| *value)
    }
}

impl ClassEntry {
    /// The word of the entry, if it is a single one without a dot.
    fn single(&self) -> Option<&str> {
        Some(&*self.form.word).filter(|word| !word.contains([' ', '.']))
    }

    /// Whether the entry in lower case counts instead: at the beginning of a sentence every word has a capital.
    fn yields(&self, text: &str, start: usize, end: usize) -> bool {
        let before = text.get(..start).unwrap_or_default().trim_end_matches(' ').chars().next_back();
        let begins = before.is_none_or(|c| matches!(c, '.' | '!' | '?' | ':' | '\n' | '"' | '«' | '„' | '“'));
        self.has_lower && begins && !is_before_number(text, end)
    }
}

impl EntryForm {
    fn parse(entry: &str) -> EntryForm {
        let (word, is_name) = without(entry, str::strip_prefix, "+");
        let (word, begins_clause) = without(word, str::strip_prefix, "^");
        let (word, as_written) = without(word, str::strip_prefix, "=");
        let (word, before_number) = without(word, str::strip_suffix, " <n>");
        let (word, open) = without(word, str::strip_suffix, "*");
        let word = if as_written { word.to_owned() } else { word.to_lowercase() };
        EntryForm { word, open, before_number, begins_clause, as_written, is_name }
    }

    /// How many conditions it has in addition to its letters.
    fn conditions(&self) -> usize {
        [self.before_number, self.begins_clause, self.as_written].into_iter().filter(|is_set| *is_set).count()
    }

    /// The spellings that differ in more than the case of ASCII letters.
    fn spellings(&self) -> Vec<String> {
        if self.is_name {
            return Vec::new();
        }
        let mut out = vec![self.word.clone()];
        if !self.as_written && !self.word.is_ascii() {
            let (first, rest) = self.word.split_at(self.word.chars().next().map_or(0, char::len_utf8));
            out.extend([format!("{}{rest}", first.to_uppercase()), self.word.to_uppercase()]);
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

    /// The end of the entry where its letters are found at `at`, if its surroundings match.
    fn end(&self, text: &str, at: Range<usize>, spaced: bool) -> Option<usize> {
        let before = text.get(..at.start)?;
        let mut end = at.end;
        if spaced {
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
            if self.open {
                end += after.len() - after.trim_start_matches(char::is_alphabetic).len();
            } else if self.word.ends_with(char::is_alphanumeric) {
                let next = after.chars().next();
                (!is_letter(next) && !matches!(next, Some('/' | '@'))).then_some(())?;
            }
        }
        let before = before.trim_end_matches(' ').chars().next_back();
        let begins = || before.is_none_or(|c| !c.is_alphanumeric() && !matches!(c, '\'' | ')' | '-' | '%'));
        let holds = (!self.begins_clause || begins())
            && (!self.before_number || is_before_number(text, end))
            && (!self.as_written || text.get(at) == Some(&self.word));
        holds.then_some(end)
    }
}

/// `word` without a sign, and whether it had it.
fn without<'w>(
    word: &'w str,
    strip: impl Fn(&'w str, &'static str) -> Option<&'w str>,
    sign: &'static str,
) -> (&'w str, bool) {
    strip(word, sign).map_or((word, false), |rest| (rest, true))
}

/// Whether a number follows `end`, with at most a sign of a currency or a comma between.
fn is_before_number(text: &str, end: usize) -> bool {
    let mut after = text.get(end..).unwrap_or_default().chars().take(4);
    let between = |c: &char| matches!(c, ' ' | ',' | '.' | '(' | '$' | '€' | '£' | '¥');
    after.find(|c| !between(c)).is_some_and(|c| c.is_ascii_digit())
}
