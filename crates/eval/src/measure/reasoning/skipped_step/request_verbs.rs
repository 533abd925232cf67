//! The actions that the verbs of a request or of an instruction ask for, in any of their forms.
//!
//! In: a text and its language. Out: the actions.

use crate::measure::language::{Action, Language};
use crate::measure::tool_purpose::{action_of, stems};

/// The actions of the verbs of a text, and of their nouns: "cancellation".
pub(in super::super) fn actions_of_verbs(text: &str, language: Language) -> Vec<Action> {
    if language.is_spaced() {
        return stems(text).filter_map(|word| action_of_verb(&word, language)).collect();
    }
    let chars: Vec<char> = text.chars().collect();
    let words = (2..=3).flat_map(|length| chars.windows(length));
    words.filter_map(|word| language.action_of(&String::from_iter(word))).collect()
}

/// The action of a word as a verb, or as a noun or another form of one; `None` for other words.
pub(super) fn action_of_verb(word: &str, language: Language) -> Option<Action> {
    let foreign_action = |word: &str| language.action_of(word).filter(|_| language != Language::English);
    let known_action = |word: &str| action_of(word).or_else(|| foreign_action(word));
    known_action(word).or_else(|| language.possible_verbs(word).find_map(|verb| known_action(&verb)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every language has 20 forms of verbs with their actions, and 20 similar words without one.
    #[test]
    fn forms_of_verbs_have_the_actions_of_their_verbs() {
        let mut wrong = Vec::new();
        let mut counts = std::collections::BTreeMap::new();
        for line in include_str!("../../language/sentences/verb_forms.txt").lines() {
            let (head, words) = line.split_once(": ").expect("a language, an action and words");
            let (language, action) = head.split_once(' ').expect("a language and an action");
            let language = Language::ALL.into_iter().find(|known| known.as_str() == language).unwrap();
            for word in words.split(' ') {
                let found = action_of_verb(word, language).map_or("none", Action::as_str);
                if found != action {
                    wrong.push(format!("{head}: {word}: {found}"));
                }
                *counts.entry((language.as_str(), action == "none")).or_insert(0) += 1;
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        for language in Language::ALL.into_iter().filter(|language| language.is_spaced()) {
            for is_none in [true, false] {
                let count = counts.get(&(language.as_str(), is_none)).copied().unwrap_or_default();
                assert!(count >= 20, "{language:?}: {count}");
            }
        }
    }
}
