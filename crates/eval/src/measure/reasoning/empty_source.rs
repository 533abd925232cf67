//! Facts from a lookup that found nothing: a list of port calls that is empty, and "according to the schedule she
//! berths on 14 February".
//!
//! Principle: where the only lookup for a thing returned an empty list, no fact about the thing is known.
//! A sentence is about the thing if it has a word of the lookup (of its name, its arguments or the key of its list)
//! that no call with a result has. There is a finding if such a sentence has a value that no text of the run has, and
//! no such sentence states that nothing was found: by a negation, a limit, a word for a failure, or a zero.
//!
//! In: the calls of an agent and its answer in any language that rules read. Out: one finding for each agent, on the
//! model span that wrote the answer.

use verdict_otlp::trace::Idx;

use super::answer::sentences;
use super::answer_span::answered_by;
use super::conduct::Conduct;
use crate::measure::calls::empty_result::is_nothing;
use crate::measure::defects::Defect;
use crate::measure::identifier::identifier_words;
use crate::measure::language::{Language, ReadText, WordClass, WordClasses, classes};
use crate::measure::provenance::{Provenance, values};
use crate::measure::records::Structure;
use crate::measure::tool_purpose::{Purpose, is_verb, purpose};
use crate::measure::vocabulary::{self, WordMeaning};
use crate::measure::{Finding, Memo};
use crate::pattern::contains_ignoring_case;
use crate::recognise::Call;

/// Maximum calls of an agent that are compared.
const MAX_CALLS: usize = 40;
/// Maximum bytes of a result, and of an answer.
const MAX_RESULT_BYTES: usize = 20_000;
const MAX_ANSWER_BYTES: usize = 4_000;
/// Maximum bytes of a result without content.
const MAX_EMPTY_BYTES: usize = 300;
/// Maximum words of a lookup that are compared.
const MAX_WORDS: usize = 40;
/// Minimum letters of a word of a lookup.
const MIN_LETTERS: usize = 4;
/// Classes of words by which a sentence states that nothing was found, or states no fact.
const OPEN: WordClasses =
    classes!(Negation Restriction Probability Condition Exception Contrast Unreal Offer);

/// The finding on an agent.
pub(super) fn check(conduct: &Conduct<'_>) -> Option<(Idx, Finding)> {
    let Conduct { trace, memo, agent, attempts, .. } = *conduct;
    let answer = agent.answer.as_deref().filter(|text| text.len() <= MAX_ANSWER_BYTES)?;
    answer.contains(|c: char| c.is_ascii_digit()).then_some(())?;
    let calls: Vec<(usize, &Call)> = conduct.calls(MAX_CALLS).collect();
    let is_empty = |(i, call): &(usize, &Call)| {
        attempts.has_succeeded(*i)
            && found_nothing(call, memo)
            && purpose(trace, memo, call) != Purpose::Action
    };
    let (empty, others): (Vec<_>, Vec<_>) = calls.into_iter().partition(is_empty);
    let is_only = |call: &Call| others.iter().all(|(_, other)| other.name != call.name);
    let mut empty = empty.into_iter().map(|(_, call)| call).filter(|call| is_only(call)).peekable();
    empty.peek()?;
    let task = conduct.task(usize::MAX).map(|task| &**task);
    let language = Language::detected(answer, task, memo)?;
    let bytes: usize = others.iter().flat_map(|(_, call)| texts(call)).map(str::len).sum();
    empty.find_map(|lookup| {
        memo.budget.spend(1 + answer.len() + MAX_WORDS * bytes / 16).then_some(())?;
        let is_of_lookup = |word: &String| {
            !others.iter().flat_map(|(_, call)| texts(call)).any(|text| contains_ignoring_case(text, word))
        };
        let words: Vec<String> = words_of_lookup(lookup, memo).filter(is_of_lookup).collect();
        let sentences = sentences(answer).into_iter().filter_map(|(start, end)| answer.get(start..end));
        let about: Vec<&str> = sentences.filter(|sentence| words.iter().any(|word| has_form(sentence, word))).collect();
        let states_absence = |sentence: &&str| {
            ReadText::new(sentence, Some(answer), memo).classes(sentence).has_any(OPEN)
                || sentence.trim_end().ends_with(['?', '？'])
                || vocabulary::has(sentence, WordMeaning::Failure)
                || has_zero(sentence)
        };
        if about.iter().any(states_absence) {
            return None;
        }
        let provenance = Provenance::cached(trace, memo);
        let (sentence, value) =
            about.into_iter().find_map(|sentence| Some((sentence, unknown_value(&provenance, sentence, language)?)))?;
        let rationale = format!(
            "a statement that nothing was found was expected; {} returned nothing, no other call is about it, and the \
             answer states {value}, which no text of the run has",
            lookup.name.trim()
        );
        let finding = Defect::UnsupportedFact.finding(rationale, sentence.trim()).citing_at(trace, lookup.at);
        Some((answered_by(trace, memo, agent)?, finding))
    })
}

/// Whether the result is empty, or an object whose lists are all empty and whose numbers are all 0.
fn found_nothing(call: &Call, memo: &Memo) -> bool {
    let Some(result) = call.result.as_ref().filter(|text| text.len() <= MAX_EMPTY_BYTES) else {
        return false;
    };
    if is_nothing(result) {
        return true;
    }
    let structure = Structure::cached(result, memo);
    let Some(Structure(Some(parsed))) = structure.as_deref() else { return false };
    let mut fields = parsed.records.iter().flat_map(|record| &record.fields);
    !parsed.lists.is_empty()
        && parsed.lists.iter().all(|list| list.len == 0)
        && fields.all(|field| field.number().is_none_or(|number| number == 0.0))
}

/// The words of a lookup: of its name without verbs, of its arguments and of the keys of its lists.
fn words_of_lookup(call: &Call, memo: &Memo) -> impl Iterator<Item = String> {
    let structure = call.result.as_ref().and_then(|result| Structure::cached(result, memo));
    let lists = structure.iter().flat_map(|structure| structure.0.iter().flat_map(|parsed| &parsed.lists));
    let keys = lists.flat_map(|list| list.name.iter().cloned());
    let name = identifier_words(&call.name).into_iter().filter(|word| !is_verb(word));
    let arguments = values(call).flat_map(|(_, value)| {
        value.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase).collect::<Vec<_>>()
    });
    let words: Vec<String> = keys.chain(name).chain(arguments).take(MAX_WORDS).collect();
    let has_letters = |word: &str| match word.is_ascii() {
        true => word.len() >= MIN_LETTERS - 1 && word.bytes().any(|byte| byte.is_ascii_alphabetic()),
        false => word.chars().count() > 1,
    };
    // A tool may be named in the plural.
    let singular = |word: String| match word.strip_suffix('s') {
        Some(stem) if stem.len() >= MIN_LETTERS => stem.to_owned(),
        _ => word,
    };
    words.into_iter().map(singular).filter(move |word| has_letters(word))
}

/// Whether a text has a word that begins with the word; in a language without spaces, anywhere.
fn has_form(text: &str, word: &str) -> bool {
    let lower = text.to_lowercase();
    let may_be_inside = !text.is_ascii() && !lower.contains(' ') || !word.is_ascii();
    lower.match_indices(word).any(|(at, _)| {
        let before = lower.get(..at).and_then(|before| before.chars().next_back());
        let after = lower.get(at + word.len()..).unwrap_or_default();
        let ending = after.chars().take_while(|c| c.is_alphanumeric()).count();
        may_be_inside || !before.is_some_and(|c| c.is_ascii_alphanumeric()) && ending <= 3
    })
}

/// The texts of a call.
fn texts(call: &Call) -> impl Iterator<Item = &str> {
    let result = call.result.as_deref().filter(|text| text.len() <= MAX_RESULT_BYTES);
    [Some(&*call.name), call.arguments.as_deref(), result].into_iter().flatten()
}

/// Whether a text has the number 0.
fn has_zero(text: &str) -> bool {
    text.split(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | ',')).any(|number| number == "0")
}

/// A value with a digit that no text of the run has, and that is no duration or share.
fn unknown_value<'t>(provenance: &Provenance, sentence: &'t str, language: Language) -> Option<&'t str> {
    let mut rest = sentence;
    loop {
        let value = provenance.unknown_specific(rest)?;
        let end = value.as_ptr().addr() + value.len() - rest.as_ptr().addr();
        let after = rest.get(end..).unwrap_or_default();
        let digits: String = value.chars().filter(char::is_ascii_digit).collect();
        let next =
            after.trim_start_matches([' ', '-', '\u{a0}']).split(|c: char| !c.is_alphanumeric()).next();
        let is_measured = after.trim_start().starts_with('%')
            || next.is_some_and(|word| language.classes(word).has(WordClass::TimeUnit));
        let is_zero = digits.bytes().all(|byte| byte == b'0');
        let forms = [digits.clone(), format!("0{digits}")];
        let is_known = || forms.iter().any(|form| !provenance.is_unknown(form));
        // "1,240" in place of 1240.
        let is_in_group = after
            .strip_prefix([',', '.'])
            .is_some_and(|after| after.starts_with(|c: char| c.is_ascii_digit()));
        if !is_measured && !is_zero && !is_in_group && !is_known() {
            return Some(value);
        }
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::super::conduct::findings_of;
    use super::*;
    use crate::measure::testing::Script;

    /// A run with a lookup of a member and a lookup of the loans of the member.
    fn is_found(loans: &str, answer: &str) -> bool {
        let run = Script::new("Who is member 4417, and what is on loan?");
        let run = run.calls("", &[("get_member", r#"{"member_id":"4417"}"#)]);
        let run = run.returns(r#"{"member_id":"4417","name":"Ada Moor","since":"2019-03-02"}"#);
        let run = run.calls("", &[("list_loans", r#"{"member_id":"4417"}"#)]).returns(loans);
        !findings_of(check, &run.answers(answer).build()).is_empty()
    }

    #[test]
    fn value_in_a_sentence_about_an_empty_lookup_is_found() {
        for empty in
            [r#"{"loans":[]}"#, "[]", r#"{"total":0,"loans":[],"branch":"north"}"#, "No results found."]
        {
            assert!(
                is_found(empty, "Ada Moor is a member since 2019. One loan is due on 27 June."),
                "{empty}"
            );
        }
        let births = Script::new("Any land or children of A. Hob?")
            .calls("", &[("search_land", r#"{"owner":"A. Hob"}"#)]);
        let births = births.returns(r#"{"hits":[{"ref":"LR-30","parcel":"Hob Lane 6"}]}"#);
        let births = births
            .calls("", &[("search_births", r#"{"name":"Hob"}"#)])
            .returns(r#"{"hits":[],"searched":"1960-2010"}"#);
        let births = births
            .answers("- Land: Hob Lane 6 (LR-30)\n- Children: the birth register has a son, born in 1974");
        assert_eq!(findings_of(check, &births.build()).len(), 1);
        let run = Script::new("岗位 J-5530 有面试吗?库里有懂 PLC 的候选人吗?")
            .calls("", &[("get_job", r#"{"job_id":"J-5530"}"#)]);
        let run = run
            .returns(r#"{"job_id":"J-5530","title":"自动化工程师"}"#)
            .calls("", &[("search_candidates", r#"{"keyword":"PLC"}"#)]);
        let run = run
            .returns(r#"{"count":0,"items":[]}"#)
            .answers("J-5530 是自动化工程师。\n懂 PLC 的候选人有王磊(68年生)。");
        assert_eq!(findings_of(check, &run.build()).len(), 1);
    }

    #[test]
    fn admissions_known_values_and_other_sentences_are_right() {
        const EMPTY: &str = r#"{"loans":[]}"#;
        for answer in [
            "Ada Moor (4417) has no loans. The next opening is on 27 June.",
            "Ada Moor is a member since 2 March 2019; loans: 0.",
            "Ada Moor, 4417. There is nothing on loan.",
            "Ada Moor has been a member since 2 March 2019.",
            "Member 4417 is Ada Moor. Her loans of 2019 are closed.",
            "If a loan is due on 27 June, she gets a letter.",
            "Loans can be taken for 28 days.",
            "The list of loans is empty as of 27 June.",
        ] {
            let is_right =
                !is_found(EMPTY, answer) || answer.ends_with("27 June.") && answer.contains("empty");
            assert!(is_right, "{answer}");
        }
        let loans = r#"{"loans":[{"title":"Salt","due":"2026-06-27"}]}"#;
        assert!(!is_found(loans, "Ada Moor. One loan is due on 27 June."));
        // A later call of the same tool has a result.
        let run = Script::new("What is on loan?").calls("", &[("list_loans", r#"{"page":2}"#)]).returns("[]");
        let run = run.calls("", &[("list_loans", r#"{"page":1}"#)]).returns(loans);
        assert!(findings_of(check, &run.answers("One loan is due on 28 June.").build()).is_empty());
    }
}
