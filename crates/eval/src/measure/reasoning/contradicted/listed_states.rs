//! States that results give to other records: "delivered orders (W-4411)", and `status: processed` of W-4411.
//!
//! Principle: the values that a state has in the results are a closed set. A statement that names one record by its
//! identifier together with one of these values agrees with the latest result on that record.

use super::exchange::{Exchange, Outcome};
use super::sources::{Source, names_of};
use crate::measure::reasoning::records::Record;
use crate::measure::reasoning::statements::{contains_words, words_of};

/// Whether the values of such a key are states.
fn is_state_key(word: &str) -> bool {
    matches!(word, "status" | "state" | "stage" | "phase" | "availability" | "progress" | "condition")
}

/// Most records with a state that are compared.
const MAX_RECORDS: usize = 200;
/// Most words of a state.
const MAX_WORDS: usize = 3;

/// A record with an identifier and a state.
struct Stated<'a> {
    id: String,
    state: String,
    source: &'a Source<'a>,
    /// Its index in the source.
    at: usize,
}

pub(super) fn check(exchange: &Exchange<'_>, outcome: &mut Outcome) {
    let mut records: Vec<Stated<'_>> = Vec::new();
    for (source, at, record) in exchange.sources.records() {
        let Some(stated) = stated(source, at, record).filter(|_| records.len() < MAX_RECORDS) else {
            continue;
        };
        if !exchange.spends(1 + records.len() / 8) {
            return;
        }
        // The latest result counts.
        records.retain(|known| known.id != stated.id);
        records.push(stated);
    }
    let mut states: Vec<&str> = records.iter().map(|r| r.state.as_str()).collect();
    states.sort_unstable();
    states.dedup();
    if states.len() < 2 || !exchange.spends(exchange.clauses.len() * (states.len() + records.len())) {
        return;
    }
    for clause in exchange.clauses.iter().filter(|clause| !clause.negated && !clause.modal) {
        let mut said = states.iter().filter(|state| clause.has(state));
        let (Some(said), None) = (said.next(), said.next()) else { continue };
        let named: Vec<&Stated<'_>> = records.iter().filter(|r| clause.has(&r.id)).collect();
        outcome.examined |= !named.is_empty();
        let other =
            named.iter().find(|r| !contains_words(&words_of(&r.state), said) && r.source.is_current(r.at));
        // One record of several may be meant.
        if let Some(other) =
            other.filter(|_| named.iter().all(|r| !contains_words(&words_of(&r.state), said)))
        {
            let returned = format!("{} for {}", other.state, other.id);
            let call = other.source.call;
            outcome.contradicts(&returned, call.name.trim(), Some(call.at), clause.sentence);
            return;
        }
    }
}

fn stated<'a>(source: &'a Source<'a>, at: usize, record: &'a Record) -> Option<Stated<'a>> {
    let is_state = |name: &[String]| name.last().is_some_and(|word| is_state_key(word));
    let field = record.fields.iter().find(|field| is_state(&field.name) && field.text().is_some())?;
    let state = words_of(&field.text()?.replace(['_', '('], " "));
    let state = state.trim();
    let is_short = !state.is_empty() && state.split(' ').count() <= MAX_WORDS;
    let has_digits = |name: &String| name.bytes().filter(u8::is_ascii_digit).count() >= 3;
    let id = names_of(record).find(|name| has_digits(name) && !name.contains(' '))?;
    is_short.then(|| Stated { id, state: state.to_owned(), source, at })
}
