//! The actions that the verbs of a request or of an instruction ask for, in any of their forms.
//!
//! In: a text and its language. Out: the actions.

use crate::measure::language::{Action, Language};
use crate::measure::tool_purpose::{action_of, stems};

/// The actions of the verbs of a text, and of their nouns: "cancellation".
pub(in super::super) fn verbs(text: &str, language: Language) -> Vec<Action> {
    if language.is_spaced() {
        return stems(text).filter_map(|word| verb(&word, language)).collect();
    }
    let chars: Vec<char> = text.chars().collect();
    let words = (2..=3).flat_map(|length| chars.windows(length));
    words.filter_map(|word| language.action_of(&String::from_iter(word))).collect()
}

/// The action of a word as a verb, or as a noun or another form of one; `None` for other words.
pub(super) fn verb(word: &str, language: Language) -> Option<Action> {
    // Endings of nouns and participles, with those of the verb: "removal", "stopping", "started", "Änderungen".
    const ENDINGS: [(&str, &[&str]); 9] = [
        ("lation", &["", "e", "te"]),
        ("ation", &["", "e", "te"]),
        ("tion", &["", "e", "te"]),
        ("ment", &["", "e", "te"]),
        ("al", &["", "e", "te"]),
        ("ing", &["", "e"]),
        ("ed", &["", "e"]),
        ("ungen", &["n", "en"]),
        ("ung", &["n", "en"]),
    ];
    let foreign_action = |word: &str| language.action_of(word).filter(|_| language != Language::English);
    let known_action = |word: &str| action_of(word).or_else(|| foreign_action(word));
    let action_for_root = |(ending, more): &(&str, &[&str])| {
        let root = word.strip_suffix(ending)?;
        let doubled = root.strip_suffix(|c| root.strip_suffix(c).is_some_and(|rest| rest.ends_with(c)));
        more.iter().find_map(|end| known_action(&format!("{root}{end}"))).or(doubled.and_then(known_action))
    };
    // Endings of imperatives, with those of the infinitive by which the verb is listed: "avisa", "commandez",
    // "prenoti", "storniere".
    const IMPERATIVES: [(&str, &[&str]); 6] = [
        ("", &["r", "re", "n", "en"]),
        ("ez", &["er"]),
        ("e", &["ar", "er", "ir"]),
        ("i", &["are", "ire"]),
        ("a", &["ire", "er"]),
        ("es", &["er"]),
    ];
    let action_for_imperative = |(ending, more): &(&str, &[&str])| {
        let root = word.strip_suffix(ending).filter(|root| root.len() > 3)?;
        more.iter().find_map(|end| foreign_action(&format!("{root}{end}")))
    };
    known_action(word)
        .or_else(|| ENDINGS.iter().find_map(action_for_root))
        .or_else(|| IMPERATIVES.iter().find_map(action_for_imperative))
}
