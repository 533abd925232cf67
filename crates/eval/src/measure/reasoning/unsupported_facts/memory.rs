//! Words by which an answer attributes itself to the model's memory: "from memory, the two can be given together".
//!
//! Principle: an answer that names the memory of the model as its source is supported by nothing in the run, however
//! exact it is.
//!
//! In: the prose of an answer. Out: the first such words that state a source. A question, an offer ("if you like, I can
//! answer from general knowledge") and a refusal ("I won't give one from memory") state none.

use regex::Match;

use crate::measure::reasoning::answer::sentences;

regex!(
    MEMORY,
    r"(?i)\bfrom (my )?(own )?(memory|general knowledge|background knowledge|training( data)?)\b|\b(based on|relying on|using) ((my |prior |general |background |internal |own |training )+(knowledge|memory|understanding)|(my |own )*training data)\b|\bas far as I (remember|recall|know)\b|\bI (seem to )?(recall|remember) that\b|\bto the best of my (knowledge|memory|recollection)\b|\b(as|is) (just |only )?(an?|my) (rough |educated |best )?(estimate|guess)\b|\b(answer|give|provide|offer) (with )?(an?|my) (rough |educated |best )?(estimate|guess)\b"
);
// Words before a match of MEMORY in its clause, by which the model refuses to answer from memory.
regex!(
    REFUSED,
    r"(?i)\b(?:I|we)(?:['’]m| am|['’]d| are| would| will| wo| should| must| do| ca| can| could| did| may)? ?(?:n['’]t|not|never|rather not|refuse|decline|avoid|hesitate)\b|\b(?:should|must)(?: not|n['’]t) (?:be )?(?:answer|give|state|quote)|\b(?:without|rather than|instead of) [a-z]+ing\b"
);
/// Characters that end the clause in which such a refusal applies.
const CLAUSE_ENDS: [char; 6] = [',', ';', ':', '(', '–', '—'];
regex!(NEW_CLAUSE, r"(?i) (?:but|so|and|however|because|since) ");
// Words before a match of MEMORY by which the answer is only offered.
regex!(
    OFFERED,
    r"(?i)\b(?:if you(?:'d| would)? (?:like|want|wish|prefer|need)|let me know|(?:happy|glad) to|I (?:can|could) (?:also |still |only |then )*(?:answer|give|try|offer|provide|make|write|help))\b"
);
// Words after a match of MEMORY by which the sentence is no statement: "Naming somebody from memory would be
// unreliable."
regex!(UNREAL, r"(?i)^ (?:alone )?(?:would|could|might|may|is not|isn't) ");

/// The first words that state memory as the source; `None` if there are none.
pub(super) fn source(prose: &str) -> Option<Match<'_>> {
    // The sentences of most answers, which have no such words, need not be split.
    MEMORY.find(prose)?;
    let sentences = sentences(prose);
    MEMORY.find_iter(prose).find(|words| {
        let sentence = sentences.iter().find(|(start, end)| (*start..*end).contains(&words.start()));
        let Some(&(start, end)) = sentence else { return true };
        let part = |from: usize, to: usize| prose.get(from..to).unwrap_or_default();
        let (before, after) = (part(start, words.start()), part(words.end(), end));
        let clause = before.rsplit(CLAUSE_ENDS).next().unwrap_or_default();
        let clause =
            NEW_CLAUSE.find_iter(clause).last().and_then(|and| clause.get(and.end()..)).unwrap_or(clause);
        // "The line takes no bicycles as far as I know": the negation is of the fact, and not of the source.
        let is_refused = REFUSED.is_match(clause) && !words.as_str().contains(" I ");
        let is_offered = OFFERED.is_match(before) && !after.contains(':') && !after.contains(" that ");
        !after.trim_end().ends_with('?') && !is_refused && !is_offered && !UNREAL.is_match(after)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_statement_has_memory_as_its_source() {
        for text in [
            "From memory, the two can be given together.",
            "As far as I remember, the line takes bicycles.",
            "It does not take bicycles as far as I know.",
            "I could not open the page, but from memory it is free.",
            "I can say from memory that it is free.",
            "Based on my general knowledge, it is free.",
            "Shall I look again? From memory, it is free.",
        ] {
            assert!(source(text).is_some(), "{text}");
        }
        for text in [
            "I won't give one from memory; please renew the key.",
            "I cannot answer this from general knowledge.",
            "Would you like me to answer from general knowledge instead?",
            "If you like, I can answer from memory.",
            "I would be happy to answer based on my general knowledge.",
            "Naming somebody from memory would be unreliable.",
            "It can only be answered using internal data.",
            "I looked instead of answering from memory.",
        ] {
            assert!(source(text).is_none(), "{text}");
        }
    }
}
