//! The results that the model had read before it answered.
//!
//! In: the calls of an agent, and the model span of its answer. Out: the structured results and all texts before the
//! answer.

use std::cell::OnceCell;
use std::hash::BuildHasher;
use std::rc::Rc;

use foldhash::HashMap;
use verdict_otlp::trace::Idx;
use verdict_otlp::work;

use super::predicates::assertion;
use crate::measure::calls::attempts::CallAttempts;
use crate::measure::conversation::prompt_texts;
use crate::measure::identifier::identifier_words;
use crate::measure::reasoning::history::end_of;
use crate::measure::reasoning::statements::words_of;
use crate::measure::records::{FieldValue, KeyName, Record, RecordField, Structure};
use crate::measure::tool_purpose::ToolPurpose;
use crate::measure::work_budget::BYTES_PER_STEP;
use crate::measure::{Memo, agent_index};
use crate::pattern::contains_ignoring_case;
use crate::recognise::{AgentTrace, Call, Role, Text};

/// Maximum results that an answer is compared with, the latest ones.
const MAX_RESULTS: usize = 64;
/// Maximum arguments of a call whose names are compared with a field's.
const MAX_KEYS: usize = 40;
/// Maximum levels of nested records whose names are compared with arguments.
const MAX_LEVELS: usize = 8;
/// Minimum bytes of a value that identifies a record.
const MIN_NAME: usize = 3;

/// A structured result.
pub(super) struct ResultSource<'a> {
    pub call: &'a Call,
    pub parsed: Rc<Structure>,
    /// The calls before the answer.
    earlier_calls: Rc<[&'a Call]>,
    /// By record, whether a later call passed a value of the record, so that its state may have changed. Computed when
    /// it is needed, which is seldom.
    stale: OnceCell<Vec<bool>>,
}

impl ResultSource<'_> {
    /// The records of the result, each with its index.
    pub(super) fn records(&self) -> impl Iterator<Item = (usize, &Record)> {
        self.parsed.0.iter().flat_map(|parsed| &parsed.records).enumerate()
    }

    /// Whether a field of the result may have a key that satisfies a predicate.
    pub(super) fn may_have_key(&self, predicate: impl FnMut(&KeyName) -> bool) -> bool {
        self.parsed.0.as_ref().is_some_and(|parsed| parsed.may_have_key(predicate))
    }

    /// Whether no later call passed a value of a record, so that the record has not changed.
    pub(super) fn is_current(&self, record: usize) -> bool {
        !self.stale.get_or_init(|| self.stale_records()).get(record).copied().unwrap_or_default()
    }

    /// Whether all later calls that passed a name of a record are queries, and their results have none of these words,
    /// so that the facts with these words have not changed.
    pub(super) fn is_only_queried(&self, record: usize, words: &[String]) -> bool {
        let records = self.parsed.0.as_ref().map_or(&[][..], |parsed| parsed.records.as_slice());
        let with_ancestors = std::iter::successors(records.get(record), |ancestor| {
            ancestor.parent.and_then(|parent| records.get(parent))
        });
        let names: Vec<String> = with_ancestors.take(MAX_LEVELS).flat_map(names_of).collect();
        let later = self.earlier_calls.iter().filter(|call| call.start > self.call.start);
        let mut calls_with_name = later.filter(|call| {
            let arguments = call.arguments.as_deref().map(str::to_lowercase).unwrap_or_default();
            names.iter().any(|name| contains(&arguments, name))
        });
        calls_with_name.all(|call| {
            let has = |word: &String| {
                call.result.as_deref().is_none_or(|result| contains_ignoring_case(result, word))
            };
            ToolPurpose::new(&call.name, None).is_query() && !words.iter().any(has)
        })
    }

    /// Whether a later call has an argument with the name of this field, and thus may have set it.
    pub(super) fn may_be_set_later(&self, field: &RecordField) -> bool {
        let later = self.earlier_calls.iter().filter(|call| call.start > self.call.start);
        let mut arguments = later.filter_map(|call| call.parsed.as_deref()?.as_object());
        arguments.any(|map| map.keys().take(MAX_KEYS).any(|key| *identifier_words(key) == **field.name))
    }

    /// By record, whether a later call passed one of its names or one of a record that contains it.
    fn stale_records(&self) -> Vec<bool> {
        let later = self.earlier_calls.iter().filter(|call| call.start > self.call.start);
        let arguments: Vec<String> =
            later.filter_map(|call| call.arguments.as_deref()).map(str::to_lowercase).collect();
        let Some(records) = self.parsed.0.as_ref().filter(|_| !arguments.is_empty()) else {
            return Vec::new();
        };
        let is_passed = |name: String| arguments.iter().any(|text| contains(text, &name));
        let mut stale: Vec<bool> = Vec::with_capacity(records.records.len());
        for record in &records.records {
            // A record is after the record that contains it.
            let is_parent_stale = record.parent.and_then(|parent| stale.get(parent)).copied();
            stale.push(is_parent_stale.unwrap_or_default() || names_of(record).any(is_passed));
        }
        stale
    }
}

/// The results and other texts before an answer.
pub(super) struct ResultSources<'a> {
    /// The structured results, in order of time.
    pub structured: Vec<ResultSource<'a>>,
    /// Results that are prose, in lower case.
    pub prose: Vec<String>,
    /// The successful calls before the answer.
    pub calls: Rc<[&'a Call]>,
    /// All texts that the model had read or written: the prompt, and the arguments and results of calls.
    pub seen: Vec<&'a Text>,
    /// See [`ResultSources::unstructured`].
    unstructured: OnceCell<Vec<&'a Text>>,
    /// See [`ResultSources::field_count`].
    field_count: OnceCell<usize>,
    /// The messages of the user.
    pub from_user: Vec<&'a Text>,
    /// The arguments of the calls.
    pub passed: Vec<&'a Text>,
}

impl<'a> ResultSources<'a> {
    /// The results of `calls`, those of agent `i` and of agents beneath it, before the span `at`; `None` if no call
    /// succeeded, or beyond the work budget.
    pub(super) fn before(
        trace: &'a AgentTrace,
        memo: &Memo,
        attempts: &CallAttempts,
        i: usize,
        calls: &[usize],
        at: Option<Idx>,
    ) -> Option<ResultSources<'a>> {
        let end = at.map_or(u64::MAX, |at| end_of(trace, at));
        memo.budget.spend(calls.len()).then_some(())?;
        let succeeded =
            calls.iter().rev().filter(|i| attempts.has_succeeded(**i)).filter_map(|i| trace.calls.get(*i));
        let mut earlier_calls: Vec<&Call> =
            succeeded.filter(|call| call.start <= end).take(MAX_RESULTS).collect();
        earlier_calls.reverse();
        let earlier_calls: Rc<[&Call]> = earlier_calls.into();
        let prompt = || at.and_then(|at| trace.views.get(at)).into_iter();
        let users = prompt().flat_map(|view| &view.input).filter(|message| message.role == Role::User);
        let from_user = users.flat_map(|m| &m.parts).filter_map(crate::measure::conversation::plain_text);
        let task = agent_index::task(trace, i);
        let mut sources = ResultSources {
            structured: Vec::new(),
            prose: Vec::new(),
            calls: earlier_calls.clone(),
            unstructured: OnceCell::new(),
            field_count: OnceCell::new(),
            seen: prompt().flat_map(prompt_texts).chain(task).collect(),
            from_user: from_user.chain(task).collect(),
            passed: earlier_calls.iter().filter_map(|call| call.arguments.as_ref()).collect(),
        };
        for &call in &*earlier_calls {
            sources.seen.extend(call.arguments.iter().chain(&call.result));
            let Some(result) = &call.result else { continue };
            let parsed = Structure::cached(result, memo)?;
            match &parsed.0 {
                Some(_) => {
                    let (earlier_calls, stale) = (Rc::clone(&earlier_calls), OnceCell::new());
                    sources.structured.push(ResultSource { call, parsed, earlier_calls, stale });
                }
                None => sources.prose.push(words_of(result)),
            }
        }
        let records: usize =
            sources.structured.iter().filter_map(|s| Some(s.parsed.0.as_ref()?.records.len())).sum();
        let passed: usize = sources.passed.iter().map(|text| text.len()).sum();
        // The names of each record are searched for in the arguments of each later call.
        memo.budget
            .spend(records * (1 + earlier_calls.len() / 4 + passed / (4 * BYTES_PER_STEP)))
            .then_some(())?;
        (!earlier_calls.is_empty()).then_some(sources)
    }

    /// The number of fields of all records.
    pub(super) fn field_count(&self) -> usize {
        *self.field_count.get_or_init(|| self.records().map(|(_, _, record)| record.fields.len()).sum())
    }

    /// All records, each with its source and its index in the source.
    pub(super) fn records(&self) -> impl Iterator<Item = (&ResultSource<'a>, usize, &Record)> {
        self.structured
            .iter()
            .flat_map(|source| source.records().map(move |(at, record)| (source, at, record)))
    }

    /// The texts that the model had read without the structured results: messages, instructions, arguments, prose. A
    /// result that a prompt repeats with other white space is left out as well.
    pub(super) fn unstructured(&self) -> &[&'a Text] {
        self.unstructured.get_or_init(|| {
            let results = self.structured.iter().filter_map(|source| source.call.result.as_ref());
            // By a hash of the text without white space, the lengths of the results with that hash.
            let mut result_lengths: HashMap<u64, Vec<usize>> = HashMap::default();
            let (hasher, mut without_whitespace) = (result_lengths.hasher().clone(), Vec::new());
            let mut hash = |text: &str| {
                work::count(text.len());
                without_whitespace.clear();
                without_whitespace.extend(text.bytes().filter(|byte| !byte.is_ascii_whitespace()));
                hasher.hash_one(&without_whitespace)
            };
            results.for_each(|result| result_lengths.entry(hash(result)).or_default().push(result.len()));
            let mut is_result = |text: &Text| {
                let is_near = |length: &usize| text.len().abs_diff(*length) <= text.len() / 2;
                result_lengths.get(&hash(text)).is_some_and(|lengths| lengths.iter().any(is_near))
            };
            self.seen.iter().copied().filter(|text| !is_result(text)).collect()
        })
    }

    /// Whether any text that the model had read contains this text, ignoring case.
    pub(super) fn any_contains(&self, substring: &str) -> bool {
        let substring = substring.to_ascii_lowercase();
        self.seen.iter().any(|text| contains_ignoring_case(text, &substring))
    }
}

/// Maximum bytes of a text that is searched byte by byte, which costs less than the preparation of a search.
const MAX_SHORT_TEXT: usize = 256;

/// Whether a text contains another text.
fn contains(text: &str, substring: &str) -> bool {
    let (text, substring) = (text.as_bytes(), substring.as_bytes());
    match substring.first() {
        Some(first) if text.len() <= MAX_SHORT_TEXT => {
            let mut starts = memchr::memchr_iter(*first, text);
            starts.any(|at| text.get(at..).is_some_and(|end| end.starts_with(substring)))
        }
        _ => memchr::memmem::find(text, substring).is_some(),
    }
}

/// The values of a record that may identify it, in lower case: texts that are not states, and long numbers.
pub(super) fn names_of(record: &Record) -> impl Iterator<Item = String> {
    record.fields.iter().filter_map(|field| match &field.value {
        // Signs at the ends are removed, as in the words of an answer: "#W-4411".
        FieldValue::Text(text) if text.len() >= MIN_NAME && assertion(text).is_none() => {
            Some(text.trim_matches(|c: char| !c.is_alphanumeric()).to_owned()).filter(|n| n.len() >= MIN_NAME)
        }
        FieldValue::Number(_) if field.shown().len() >= MIN_NAME => Some(field.shown().to_lowercase()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::misattributed_values::unstructured;
    use super::*;
    use crate::measure::testing::Script;

    #[test]
    fn texts_that_are_results_are_found_in_one_pass() {
        const RESULTS: usize = 50;
        let result = |n: usize| format!("{{\"order\": \"W-{n}\", \"note\": \"{}\"}}", "late ".repeat(40));
        let mut script = Script::new("Where is it?").system("You help customers.");
        for n in 0..RESULTS {
            script = script.calls("", &[("get_order", "{}")]).returns(&result(n));
        }
        // The same results with other white space, as a prompt may show them.
        let shown: String = (0..RESULTS).map(|n| result(n).replace(": ", ":  ") + "\u{1}").collect();
        for text in shown.split_terminator('\u{1}') {
            script = script.user(text);
        }
        let (trace, memo) = (script.user("And now?").answers("It is late.").build(), Memo::new());
        let attempts = CallAttempts::get(&trace, &memo);
        let calls: Vec<usize> = (0..RESULTS).collect();
        let at = trace.agents[0].answer_at;
        let sources = ResultSources::before(&trace, &memo, &attempts, 0, &calls, at).unwrap();
        let before = work::counted();
        let texts: Vec<&str> = unstructured(&sources).collect();
        assert!(texts.contains(&"And now?") && texts.contains(&"You help customers."), "{texts:?}");
        assert!(!texts.iter().any(|text| text.contains("late")), "{texts:?}");
        for _ in 0..10 {
            assert_eq!(unstructured(&sources).count(), texts.len());
        }
        let (work, bytes) = (work::counted() - before, sources.seen.iter().map(|t| t.len()).sum::<usize>());
        assert!(work <= 4 * bytes as u64, "{work} of {bytes} bytes");
    }
}
