//! Similarity of two texts by their words.
//!
//! In: two texts. Out: a number from 0 to 1, and the longest run of words that both have. [`super::intent`] decides
//! whether two prompts ask for the same.

use std::ops::Range;

use super::placeholder;
use super::schema::Plan;
use crate::measure::defects::clip;
use crate::measure::language::RequestWords;

/// Maximum number of bytes of a prompt that are compared.
const MAX_BYTES: usize = 2 << 10;

/// A prompt's words in lower case, without placeholders.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct PromptWords {
    all: Vec<String>,
    /// The stems of the content words, sorted, each once.
    content_stems: Vec<String>,
}

impl PromptWords {
    pub(crate) fn for_steps(plan: &Plan) -> Vec<PromptWords> {
        let prompts: Vec<&str> = plan.steps.iter().map(|step| step.prompt.as_str()).collect();
        let lists = RequestWords::for_text(&prompts.join("\n"));
        prompts.into_iter().map(|prompt| PromptWords::from_prompt(prompt, lists)).collect()
    }

    /// The words of a prompt without its placeholders. `lists` are the words of its language; without them, all words
    /// are content words.
    pub(crate) fn from_prompt(prompt: &str, lists: Option<&RequestWords>) -> PromptWords {
        let prompt = placeholder::without(clip(prompt, MAX_BYTES));
        let all: Vec<String> = prompt
            .split(|c: char| !(c.is_alphanumeric() || c == '_'))
            .filter(|w| !w.is_empty())
            .map(str::to_lowercase)
            .collect();
        let has_content = |word: &&String| lists.is_none_or(|lists| !lists.is_function_word(word));
        let stem = |word| lists.map_or(word, |lists| lists.stem(word)).to_owned();
        let mut content_stems: Vec<String> =
            all.iter().filter(has_content).map(|word| stem(word.as_str())).collect();
        content_stems.sort_unstable();
        content_stems.dedup();
        PromptWords { all, content_stems }
    }

    /// Dice's coefficient over the content words: 2 |A and B| / (|A| + |B|). For two prompts without content words, 1
    /// if their words are equal and 0 otherwise.
    pub(crate) fn similarity(&self, other: &PromptWords) -> f64 {
        if self.content_stems.is_empty() && other.content_stems.is_empty() {
            return f64::from(self.all == other.all);
        }
        2.0 * self.common_count(other) / (self.content_stems.len() + other.content_stems.len()) as f64
    }

    /// The number of content words that both have.
    fn common_count(&self, other: &PromptWords) -> f64 {
        self.content_stems.iter().filter(|w| other.content_stems.binary_search(w).is_ok()).count() as f64
    }

    /// The share of this prompt's content words that `other` contains, from 0 to 1.
    pub(crate) fn covered_by(&self, other: &PromptWords) -> f64 {
        self.common_count(other) / self.content_stems.len().max(1) as f64
    }

    /// The words in order.
    pub(crate) fn all(&self) -> &[String] {
        &self.all
    }

    /// The longest run of words that both have, as a range of the words of `self`.
    pub(crate) fn shared_run(&self, other: &PromptWords) -> Range<usize> {
        let (mut best, mut end) = (0, 0);
        // For each position in `other`, the length of the common run that ends before it and before the current word.
        let mut lengths = vec![0usize; other.all.len() + 1];
        for (i, word) in self.all.iter().enumerate() {
            let mut next = vec![0usize; other.all.len() + 1];
            for (j, _) in other.all.iter().enumerate().filter(|(_, o)| *o == word) {
                next[j + 1] = lengths[j] + 1;
                if next[j + 1] > best {
                    (best, end) = (next[j + 1], i + 1);
                }
            }
            lengths = next;
        }
        end - best..end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn similarity(a: &str, b: &str) -> f64 {
        let words = |prompt| PromptWords::from_prompt(prompt, RequestWords::for_text(""));
        words(a).similarity(&words(b))
    }

    #[test]
    fn function_words_do_not_count() {
        assert_eq!(similarity("Find the height of Elbrus", "find heights, Elbrus"), 1.0);
        assert_eq!(similarity("the of", "of the"), 0.0);
    }

    #[test]
    fn longest_common_run_is_returned() {
        let run = |a, b| {
            let words = PromptWords::from_prompt(a, None);
            words.all()[words.shared_run(&PromptWords::from_prompt(b, None))].join(" ")
        };
        let found =
            run("the tone of calls longer than 30 minutes, by week", "ids of calls longer than 30 minutes");
        assert_eq!(found, "of calls longer than 30 minutes");
        assert_eq!(run("a b", "c d"), "");
    }

    proptest! {
        #[test]
        fn similarity_is_symmetric_and_bounded(a in "[a-e ]{0,30}", b in "[a-e ]{0,30}") {
            let value = similarity(&a, &b);
            prop_assert!((0.0..=1.0).contains(&value));
            prop_assert_eq!(value, similarity(&b, &a));
            prop_assert_eq!(similarity(&a, &a), 1.0);
        }
    }
}
