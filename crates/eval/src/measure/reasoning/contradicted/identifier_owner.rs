//! Identifiers that belong to another thing: "the tracking number of the tablet is 1944", from the result on an order
//! of shoes.
//!
//! Principle: an identifier that an answer states for a named thing comes from a result that names the thing. It
//! belongs to another thing if the only result with the identifier does not name the thing, and another result of the
//! run does. A record that names the thing together with an identifier of that call, such as its order, links both.

use super::exchange::{Exchange, ExchangeFindings};
use crate::measure::reasoning::linked_identifiers::identifiers;
use crate::measure::reasoning::statements::words_of;
use crate::measure::records::{Record, RecordField};
use crate::measure::work_budget::BYTES_PER_STEP;
use crate::pattern::contains_ignoring_case;

// An identifier that is stated for a named thing: "the tracking number of the tablet is".
regex!(
    STATED,
    r" (?:number|numbers|id|code|reference) (?:for|of) (?:the|your) ([a-z][a-z -]{2,40}?) (?:(?:that |which |you |from |in |with )[a-z' -]{2,40}? )?(?:is|are|was) "
);
/// Minimum digits of an identifier.
const MIN_DIGITS: usize = 4;
/// Maximum identifiers of a call that may link another record.
const MAX_LINKS: usize = 16;

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let mut previous = "";
    for clause in exchange.clauses.iter().filter(|clause| !clause.negated && !clause.modal) {
        // Each sentence is read once for all its clauses, which follow each other.
        let last: &str = std::mem::replace(&mut previous, clause.sentence);
        if std::ptr::eq(last, clause.sentence) {
            continue;
        }
        let words = words_of(clause.sentence);
        let Some(statement) = STATED.captures(&words) else { continue };
        let (Some(whole), Some(thing)) = (statement.get(0), statement.get(1)) else { continue };
        let Some(noun) = thing.as_str().split(' ').next_back().filter(|noun| noun.len() >= 4) else {
            continue;
        };
        let noun = noun.trim_end_matches('s');
        let after = words.get(whole.end()..).unwrap_or_default();
        let is_id = |word: &&str| word.bytes().filter(u8::is_ascii_digit).count() >= MIN_DIGITS;
        let Some(id) = after.split(' ').find(is_id) else { continue };
        let later_bytes: usize = exchange.later_results.iter().map(|text| text.len()).sum();
        if !exchange.spends_search() || !exchange.spends(later_bytes / (4 * BYTES_PER_STEP)) {
            return;
        }
        let names_thing = |text: &str| contains_ignoring_case(text, noun);
        let mut candidates = exchange.sources.structured.iter().filter(|source| {
            source.call.result.as_deref().is_some_and(|result| contains_ignoring_case(result, id))
        });
        let (Some(source), None) = (candidates.next(), candidates.next()) else { continue };
        findings.examined = true;
        let call = source.call;
        let call_texts = [&call.arguments, &call.result];
        let is_named = call_texts.into_iter().flatten().any(|text| names_thing(text));
        // Another result may show that an identifier of the call belongs to the thing.
        let mut ids = call_texts.into_iter().flatten().flat_map(|text| identifiers(text)).take(MAX_LINKS);
        let is_linked = ids.any(|linked| {
            let has_both = |record: &Record| {
                let is_id = |field: &RecordField| field.shown().eq_ignore_ascii_case(&linked);
                record.fields.iter().any(is_id)
                    && record.fields.iter().any(|field| names_thing(field.shown()))
            };
            exchange.spends(exchange.sources.field_count())
                && exchange.sources.records().any(|(.., r)| has_both(r))
        });
        let results = exchange.sources.structured.iter().filter_map(|other| other.call.result.as_ref());
        let is_named_elsewhere =
            results.chain(exchange.later_results.iter().copied()).any(|text| names_thing(text));
        if !is_named && !is_linked && is_named_elsewhere {
            let returned = format!("{id}, and names no {}", thing.as_str());
            findings.contradicts(&returned, call, clause.sentence);
            return;
        }
    }
}
