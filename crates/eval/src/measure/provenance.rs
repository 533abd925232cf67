//! The origins of argument values of calls: the user, the instructions, a result, or the model itself.
//!
//! In: a trace. Out: for each call, its values with their origins; for an answer, a word that no text of the run
//! contains. The result is computed once per trace, and each distinct text is read once. A value is compared by its
//! words, so that spelling, order and punctuation have no effect. Beyond the limits no value counts as invented. Rules
//! about values of one kind, such as amounts or days, use [`KnownTexts`] directly.

mod known_texts;

use std::hash::BuildHasher;
use std::rc::Rc;

use foldhash::fast::FixedState;
use foldhash::{HashMap, HashSet};
use serde_json::Value;
use verdict_otlp::work;

use self::known_texts::index_of;
pub(crate) use self::known_texts::{KnownText, KnownTexts, Origin, have_value, have_wording};
use super::identifier::{identifier_words, is_email_address};
use super::language::RequestWords;
use super::memo::Memo;
use crate::recognise::{AgentTrace, Call, Text};

/// Maximum distinct words of a trace.
const MAX_WORDS: usize = 400_000;
/// Maximum values of one call that are examined.
const MAX_VALUES: usize = 32;
/// Maximum depth of arguments.
const MAX_DEPTH: usize = 6;
/// Maximum bytes of a value that may be an identifier.
const MAX_IDENTIFIER_BYTES: usize = 200;
/// Minimum words of a sentence, whose first word has a capital letter whether or not it is a name.
const MIN_SENTENCE_WORDS: usize = 3;
/// Bytes of text that are read per step of the work budget.
const BYTES_PER_STEP: usize = 16;

/// One value of a call's arguments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ArgumentValue {
    pub(crate) name: Box<str>,
    pub(crate) value: Box<str>,
    pub(crate) origin: Origin,
    /// Whether the value identifies one thing, such as an account, an order or an address, and cannot be derived.
    pub(crate) is_identifier: bool,
}

/// The origins of all argument values of a trace.
#[derive(Default)]
pub(crate) struct Provenance {
    /// `argument_values[i]` belongs to `trace.calls[i]`.
    argument_values: Vec<Vec<ArgumentValue>>,
    words: KnownWords,
}

impl Provenance {
    /// The provenance of the trace's arguments, computed once.
    pub(crate) fn cached(trace: &AgentTrace, memo: &Memo) -> Rc<Provenance> {
        memo.trace(|| Provenance::from_trace(trace, memo))
    }

    fn from_trace(trace: &AgentTrace, memo: &Memo) -> Provenance {
        let known = KnownTexts::cached(trace, memo);
        let (mut words, mut listed) = (KnownWords::default(), ListedValues::default());
        let argument_values = trace.calls.iter().enumerate().map(|(i, call)| {
            words.read(memo, &known, i);
            let origin = |(name, value)| words.origin(memo, call, name, value, &mut listed);
            values(call).map(origin).collect()
        });
        let argument_values = argument_values.collect();
        // Answers follow all calls, and are compared with all texts.
        words.read(memo, &known, trace.calls.len());
        Provenance { argument_values, words }
    }

    /// The values of a call's arguments.
    pub(crate) fn arguments(&self, trace: &AgentTrace, call: &Call) -> &[ArgumentValue] {
        index_of(trace, call).and_then(|i| self.argument_values.get(i)).map_or(&[], Vec::as_slice)
    }

    /// The first identifier among the arguments of the call that the model invented.
    pub(crate) fn invented(&self, trace: &AgentTrace, call: &Call) -> Option<&ArgumentValue> {
        self.arguments(trace, call).iter().find(|v| v.is_identifier && v.origin == Origin::Model)
    }

    /// A word of the text with a digit that neither a text of the run nor an argument of a call contains.
    pub(crate) fn unknown_specific<'t>(&self, text: &'t str) -> Option<&'t str> {
        if self.words.is_full {
            return None;
        }
        let is_specific = |word: &&str| word.len() >= 2 && word.bytes().any(|b| b.is_ascii_digit());
        self.first_unknown(split(text).filter(is_specific))
    }

    /// A word as in [`Self::unknown_specific`], or a name: a word with a capital letter within a sentence.
    pub(crate) fn unknown_specific_or_name<'t>(&self, text: &'t str) -> Option<&'t str> {
        if self.words.is_full {
            return None;
        }
        let words = RequestWords::for_text(text);
        let is_name = |word: &str| {
            let lower = word.to_lowercase();
            word.starts_with(char::is_uppercase)
                && word.chars().count() > 2
                && words.is_some_and(|request_words| {
                    !request_words.nouns_in_capitals
                        && request_words.has_content(&lower)
                        && !request_words.is_date(&lower)
                })
        };
        let mut is_sentence_start =
            text.split_whitespace().take(MIN_SENTENCE_WORDS).count() == MIN_SENTENCE_WORDS;
        let names = text.split_whitespace().filter_map(|token| {
            let is_within = !std::mem::replace(&mut is_sentence_start, token.ends_with(['.', '!', '?', ':']));
            split(token).next().filter(|word| is_within && is_name(word))
        });
        self.unknown_specific(text).or_else(|| self.first_unknown(names))
    }

    /// Whether no text of the run contains any word of the value.
    pub(crate) fn is_unknown(&self, value: &str) -> bool {
        split(value).all(|word| self.words.origin_of(word).is_none())
    }

    /// The first of the words that neither a text of the run nor an argument of a call contains.
    fn first_unknown<'t>(&self, words: impl Iterator<Item = &'t str>) -> Option<&'t str> {
        let is_argument = |word: &str| {
            let mut values = self.argument_values.iter().flatten();
            values.any(|value| split(&value.value).any(|part| part.eq_ignore_ascii_case(word)))
        };
        words
            .filter(|word| self.words.origin_of(word).is_none())
            .take(MAX_VALUES)
            .find(|word| !is_argument(word))
    }
}

/// Whether a negation precedes `part` in the text, so that the text states a lack before it ("there is no ferry; ask
/// at ...").
pub(crate) fn follows_negation(text: &str, part: &str) -> bool {
    let start = part.as_ptr().addr().saturating_sub(text.as_ptr().addr());
    let before = text.get(..start).unwrap_or_default();
    RequestWords::for_text(text)
        .is_some_and(|words| split(before).any(|word| words.negates(&word.to_lowercase())))
}

/// The words of all texts so far, each with its first origin in the order of [`Origin`].
#[derive(Default)]
struct KnownWords {
    /// By the hash of a word.
    origins: HashMap<u64, Origin>,
    /// The number of known texts that were read.
    read_count: usize,
    /// The addresses and lengths of the texts that were read.
    texts: HashSet<(usize, usize)>,
    /// Whether some text could not be read, so that it may contain an unknown word.
    is_full: bool,
}

impl KnownWords {
    /// Reads the texts before the call of this index that were not read before.
    fn read(&mut self, memo: &Memo, known: &KnownTexts, call: usize) {
        self.is_full |= known.may_hide_value(call);
        let texts = known.until(call);
        let new = texts.get(self.read_count..).unwrap_or_default();
        self.read_count = texts.len();
        // The model's own text is no source of a value.
        let sources = new.iter().filter(|known| known.origin != Origin::Model);
        sources.for_each(|known| self.add(memo, &known.text, known.origin));
    }

    fn add(&mut self, memo: &Memo, text: &Text, origin: Origin) {
        let address = (text.as_ptr() as usize, text.len());
        if self.is_full || !self.texts.insert(address) {
            return;
        }
        if self.origins.len() > MAX_WORDS || !memo.budget.spend(text.len() / BYTES_PER_STEP) {
            self.is_full = true;
            return;
        }
        for word in split(text) {
            self.add_word(word, origin);
            if let Some(digits) = digits(word).filter(|digits| digits.len() < word.len()) {
                self.add_word(digits, origin);
            }
        }
    }

    fn add_word(&mut self, word: &str, origin: Origin) {
        let best = self.origins.entry(hash(word)).or_insert(origin);
        *best = origin.min(*best);
    }

    fn origin_of(&self, word: &str) -> Option<Origin> {
        self.origins.get(&hash(word)).copied()
    }

    /// A value of an argument with its origin, which is the last origin of its words in the order of [`Origin`]. Only
    /// the words with digits of a code count, since prefixes have several spellings, and all words of an address except
    /// its scheme.
    fn origin<'t>(
        &self,
        memo: &Memo,
        call: &'t Call,
        name: &str,
        value: String,
        listed: &mut ListedValues<'t>,
    ) -> ArgumentValue {
        let kind = IdentifierKind::detect(name, &value);
        let is_code = kind == Some(IdentifierKind::Code);
        let is_compared = |word: &&str| match kind {
            Some(IdentifierKind::Code) => digits(word).is_some(),
            Some(IdentifierKind::Address) => !matches!(*word, "http" | "https" | "www" | "mailto"),
            None => true,
        };
        let word_origin = |word: &str| {
            let known_origin =
                self.origin_of(word).or_else(|| self.origin_of(digits(word).filter(|_| is_code)?));
            known_origin.unwrap_or(Origin::Model)
        };
        let mut origin = split(&value).filter(is_compared).map(word_origin).max().unwrap_or(Origin::User);
        let mut is_listed = || {
            let schema = call.definition.as_ref().and_then(|d| d.parameters.as_deref());
            schema.is_some_and(|schema| listed.has(memo, schema, &value))
        };
        if origin == Origin::Model && (self.is_full || is_listed()) {
            origin = Origin::System;
        }
        ArgumentValue { name: name.into(), value: value.into(), origin, is_identifier: kind.is_some() }
    }
}

/// The first run of three or more digits.
fn digits(word: &str) -> Option<&str> {
    word.split(|c: char| !c.is_ascii_digit()).find(|run| run.len() >= 3)
}

/// The words of a text: runs of letters and digits of any script.
fn split(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty())
}

/// The hash of a word in lower case.
fn hash(word: &str) -> u64 {
    let state = FixedState::with_seed(0);
    if word.bytes().any(|b| b.is_ascii_uppercase() || !b.is_ascii()) {
        state.hash_one(word.to_lowercase().as_str())
    } else {
        state.hash_one(word)
    }
}

/// The texts in schemas of tools (an enumeration, a default), by the address of the schema; `None` if the work budget
/// was not sufficient to read it. Each schema is read once for all values of all calls.
#[derive(Default)]
struct ListedValues<'t>(HashMap<*const Value, Option<HashSet<&'t str>>>);

impl<'t> ListedValues<'t> {
    /// Whether the schema lists the value; true if the schema could not be read.
    fn has(&mut self, memo: &Memo, schema: &'t Value, value: &str) -> bool {
        let read = || {
            let mut texts = HashSet::default();
            let steps = add_texts(schema, MAX_DEPTH, &mut texts);
            memo.budget.spend_if_left(steps).then_some(texts)
        };
        let texts = self.0.entry(std::ptr::from_ref(schema)).or_insert_with(read);
        texts.as_ref().is_none_or(|texts| texts.contains(value))
    }
}

/// Adds the texts of a schema; returns the number of values that were read.
fn add_texts<'t>(schema: &'t Value, depth: usize, texts: &mut HashSet<&'t str>) -> usize {
    let Some(depth) = depth.checked_sub(1) else { return 1 };
    work::count(1);
    let mut add = |item| add_texts(item, depth, texts);
    1 + match schema {
        Value::String(text) => {
            texts.insert(text);
            0
        }
        Value::Array(items) => items.iter().take(MAX_VALUES).map(&mut add).sum(),
        Value::Object(map) => map.values().take(MAX_VALUES).map(&mut add).sum(),
        _ => 0,
    }
}

/// The kind of an identifier.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IdentifierKind {
    /// A number, or letters and digits.
    Code,
    /// A URL, an e-mail address or a path.
    Address,
}

impl IdentifierKind {
    /// The kind of an identifier by the form of the value and the name of the argument; `None` for words, amounts,
    /// dates and times, which may be derived from other values.
    fn detect(name: &str, value: &str) -> Option<IdentifierKind> {
        // Words of keys, which are identifiers in code.
        const CODES: [&str; 14] = [
            "id",
            "ids",
            "uuid",
            "key",
            "code",
            "sku",
            "number",
            "ref",
            "reference",
            "account",
            "isbn",
            "doi",
            "ticket",
            "order",
        ];
        const PATHS: [&str; 6] = ["path", "file", "filename", "directory", "folder", "dir"];
        if !(3..=MAX_IDENTIFIER_BYTES).contains(&value.len()) || value.contains(char::is_whitespace) {
            return None;
        }
        let words = identifier_words(name);
        let has_name_of = |candidates: &[&str]| words.iter().any(|word| candidates.contains(&word.as_str()));
        if value.contains("://") || is_email_address(value) {
            return Some(IdentifierKind::Address);
        }
        if value.contains(['/', '.', '\\']) && has_name_of(&PATHS) {
            return Some(IdentifierKind::Address);
        }
        let bytes = value.as_bytes();
        let is_date = bytes.get(..4).is_some_and(|year| year.iter().all(u8::is_ascii_digit))
            && bytes.get(4).is_some_and(|b| b"-/.".contains(b));
        if is_date || value.contains(':') {
            return None;
        }
        let has_letters = bytes.iter().any(u8::is_ascii_alphabetic);
        (digits(value).is_some() && (has_letters || has_name_of(&CODES))).then_some(IdentifierKind::Code)
    }
}

/// The scalar values of a call's arguments, each with the name of its field.
pub(crate) fn values(call: &Call) -> impl Iterator<Item = (&str, String)> {
    let mut out = Vec::new();
    if let Some(Value::Object(map)) = call.parsed.as_deref() {
        map.iter().for_each(|(name, value)| collect(name, value, MAX_DEPTH, &mut out));
    }
    out.into_iter()
}

/// Adds the scalar values in a value of an argument.
fn collect<'v>(name: &'v str, value: &'v Value, depth: usize, out: &mut Vec<(&'v str, String)>) {
    let Some(depth) = depth.checked_sub(1).filter(|_| out.len() < MAX_VALUES) else { return };
    match value {
        Value::String(text) if text.len() <= MAX_IDENTIFIER_BYTES => out.push((name, text.trim().to_owned())),
        Value::Number(number) => out.push((name, number.to_string())),
        Value::Array(items) => items.iter().take(MAX_VALUES).for_each(|item| collect(name, item, depth, out)),
        Value::Object(map) => {
            map.iter().take(MAX_VALUES).for_each(|(name, item)| collect(name, item, depth, out))
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::Script;

    fn origins(trace: &AgentTrace, call: usize) -> Vec<(String, Origin)> {
        let provenance = Provenance::cached(trace, &Memo::new());
        let values = provenance.arguments(trace, &trace.calls[call]);
        values.iter().map(|v| (v.value.to_string(), v.origin)).collect()
    }

    fn invented(trace: &AgentTrace, call: usize) -> Option<String> {
        let provenance = Provenance::cached(trace, &Memo::new());
        provenance.invented(trace, &trace.calls[call]).map(|v| v.value.to_string())
    }

    #[test]
    fn schema_is_read_once_for_the_identifiers_of_all_calls() {
        let listed: Vec<String> = (0..900).map(|n| format!("K-{n}00")).collect();
        let lists: Vec<_> = listed.chunks(30).map(|listed| serde_json::json!({ "enum": listed })).collect();
        let schema = std::sync::Arc::new(serde_json::json!({ "properties": lists }));
        let mut script = Script::new("task");
        for (n, id) in listed.iter().enumerate().take(200) {
            let arguments = format!(r#"{{"id":"{id}","a_id":"X-{n}77","b_id":"Y-{n}77"}}"#);
            script = script.calls("", &[("find", &arguments)]).returns("ok");
        }
        let mut trace = script.answers("done").build();
        for call in &mut trace.calls {
            let (name, parameters) = (call.name.clone(), Some(schema.clone()));
            call.definition = Some(crate::recognise::ToolDefinition { name, description: None, parameters });
        }
        let before = work::counted();
        let origins = origins(&trace, 199);
        let work = work::counted() - before;
        assert!(work <= 8 * 900, "{work} values of schemas and parts of prompts");
        let origin_of =
            |value: &str| origins.iter().find(|(text, _)| text == value).map(|(_, origin)| *origin);
        assert_eq!(
            (origin_of(&listed[199]), origin_of("X-19977")),
            (Some(Origin::System), Some(Origin::Model))
        );
    }

    #[test]
    fn values_come_from_the_user_the_instructions_a_result_or_the_model() {
        let trace = Script::new("Where is my parcel PX-4471? I am jo@mill.example.")
            .system("Depot codes: HAM07, MUC21.")
            .calls(
                "",
                &[("find_parcel", r#"{"parcel_id":"px4471","number":"PX-4471","mail":"jo@mill.example"}"#)],
            )
            .returns(r#"{"truck": "T-8802", "depot": "HAM07"}"#)
            .calls("", &[("find_truck", r#"{"truck":"T-8802","depot":"MUC21","driver_id":"D-1993"}"#)])
            .returns("[]")
            .answers("It is on its way.")
            .build();
        use Origin::{Model, Result, System, User};
        let first = origins(&trace, 0);
        assert!(
            first.contains(&("PX-4471".to_owned(), User))
                && first.contains(&("jo@mill.example".to_owned(), User))
        );
        let mut second = origins(&trace, 1);
        second.sort();
        let expected = [("D-1993", Model), ("MUC21", System), ("T-8802", Result)];
        assert_eq!(second, expected.map(|(v, o)| (v.to_owned(), o)));
        assert_eq!(invented(&trace, 1).as_deref(), Some("D-1993"));
    }

    #[test]
    fn words_dates_and_amounts_of_the_model_are_no_invented_identifiers() {
        let trace = Script::new("Any concerts in Graz next Friday for four?")
            .calls("", &[(
                "search_events",
                r#"{"query":"open air concerts","city":"Graz","date":"2025-06-13","from":"18:30","seats":4,"radius":2500,"currency":"EUR"}"#,
            )])
            .returns("[]")
            .answers("None.")
            .build();
        assert_eq!(invented(&trace, 0), None);
        // The user wrote the values in other spellings.
        let trace = Script::new("What about order 4417 and its page shop.example/orders, file notes.txt?")
            .calls("", &[(
                "find",
                r##"{"order_id":"#ORD-4417","url":"https://www.shop.example/orders","path":"notes.txt"}"##,
            )])
            .returns("[]")
            .build();
        assert_eq!(invented(&trace, 0), None);
        let trace =
            Script::new("Sum up my notes.").calls("", &[("read_file", r#"{"path":"/home/me/notes.md"}"#)]);
        assert_eq!(invented(&trace.returns("").build(), 0).as_deref(), Some("/home/me/notes.md"));
        let trace = Script::new("Any concerts in Graz?")
            .calls("", &[("open_page", r#"{"url":"https://graz-events.example/2025/summer"}"#)])
            .returns("[]")
            .answers("None.")
            .build();
        assert_eq!(invented(&trace, 0).as_deref(), Some("https://graz-events.example/2025/summer"));
    }

    #[test]
    fn value_of_a_later_result_counts_as_invented() {
        let trace = Script::new("Is the pump in stock?")
            .calls("", &[("get_stock", r#"{"sku":"PMP-310"}"#)])
            .returns("Error: not found")
            .calls("", &[("list_skus", "{}")])
            .returns("PMP-310, PMP-311")
            .answers("Yes.")
            .build();
        assert_eq!(invented(&trace, 0).as_deref(), Some("PMP-310"));
        let provenance = Provenance::cached(&trace, &Memo::new());
        assert_eq!(provenance.unknown_specific("PMP-310 costs 45 EUR"), Some("45"));
        assert_eq!(provenance.unknown_specific("PMP-310 it is"), None);
    }
}
