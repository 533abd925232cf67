//! Retrieval of the chunks of the log that may prove a question's answer: BM25 (k1 = 1.2, b = 0.75).
//!
//! In: chunks and a question. Out: the best chunks, in the log's order. By default at most five, each
//! with more than half of the best score; the wider selection has twice as many and their neighbours. The
//! paper's cross-encoder can be configured as a judge (`rerank`).
//!
//! A log has some hundreds of chunks and is searched for a few questions, so all chunks are scored in memory, in a
//! few lines. The crate `bm25` would add an index and, for tokens, stop words and stemmers of a language that is not
//! known here.

use std::collections::{BTreeSet, HashMap};

use crate::measure::language::RequestWords;

/// Saturation of repeated words and weight of length: the usual parameters of BM25.
const K1: f64 = 1.2;
const B: f64 = 0.75;
/// The subject of most questions, which says nothing about the chunk that answers them.
const SUBJECT: &str = "agent";

/// The word statistics of a log.
#[derive(Default)]
pub(crate) struct Bm25Index {
    /// The word counts of each chunk, and their sum.
    chunks: Vec<(HashMap<String, usize>, usize)>,
    /// The mean length of a chunk.
    mean_length: f64,
    /// The number of chunks that contain a word.
    chunk_counts: HashMap<String, usize>,
}

impl Bm25Index {
    /// An index of texts, in order.
    pub(crate) fn new<'a>(texts: impl Iterator<Item = &'a str>) -> Bm25Index {
        let count = |text: &str| {
            let mut counts: HashMap<String, usize> = HashMap::new();
            lower_words(text).map(stem).for_each(|word| *counts.entry(word).or_default() += 1);
            let length = counts.values().sum();
            (counts, length)
        };
        let chunks: Vec<(HashMap<String, usize>, usize)> = texts.map(count).collect();
        let mut chunk_counts: HashMap<String, usize> = HashMap::new();
        for word in chunks.iter().flat_map(|(counts, _)| counts.keys()) {
            *chunk_counts.entry(word.clone()).or_default() += 1;
        }
        let total: usize = chunks.iter().map(|(_, length)| length).sum();
        Bm25Index { mean_length: total as f64 / chunks.len().max(1) as f64, chunks, chunk_counts }
    }

    /// The score of every chunk for a question; 0 without a common word.
    pub(crate) fn scores(&self, question: &str) -> Vec<f64> {
        let lists = RequestWords::for_text(question);
        let has_content =
            |word: &String| word != SUBJECT && lists.is_none_or(|lists| lists.has_content(word));
        let question_words: BTreeSet<String> = lower_words(question).filter(has_content).map(stem).collect();
        let n = self.chunks.len() as f64;
        let score = |(counts, length): &(HashMap<String, usize>, usize)| -> f64 {
            let norm = K1 * (1.0 - B + B * *length as f64 / self.mean_length.max(1.0));
            let word_score = |word: &String| {
                let Some(&count) = counts.get(word) else { return 0.0 };
                let chunk_count = self.chunk_counts.get(word).copied().unwrap_or(0) as f64;
                let rarity = ((n - chunk_count + 0.5) / (chunk_count + 0.5) + 1.0).ln();
                rarity * count as f64 * (K1 + 1.0) / (count as f64 + norm)
            };
            question_words.iter().map(word_score).sum()
        };
        self.chunks.iter().map(score).collect()
    }
}

/// The chunks to search for proofs: at most `max_chunks`, above `share` of the best score, in order.
pub(crate) fn select(scores: &[f64], max_chunks: usize, share: f64) -> Vec<usize> {
    let top = scores.iter().copied().fold(0.0, f64::max);
    let mut selected: Vec<usize> = (0..scores.len())
        .filter(|&i| scores[i] > 0.0 && (scores[i] > top * share || scores[i] == top))
        .collect();
    selected.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(a.cmp(&b)));
    selected.truncate(max_chunks);
    selected.sort_unstable();
    selected
}

/// A wider selection: twice as many without a lower bound, with their neighbours.
pub(crate) fn widen(scores: &[f64], max_chunks: usize) -> Vec<usize> {
    let neighbours = |i: usize| [i.saturating_sub(1), i, (i + 1).min(scores.len().saturating_sub(1))];
    let all: BTreeSet<usize> = select(scores, max_chunks * 2, 0.0).into_iter().flat_map(neighbours).collect();
    all.into_iter().collect()
}

/// The words of a text in lower case.
fn lower_words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase)
}

/// A word without a plural's `s`.
fn stem(word: String) -> String {
    match word.strip_suffix('s') {
        Some(stem) if stem.len() > 3 && !stem.ends_with('s') => stem.to_owned(),
        _ => word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn chunk_with_the_questions_words_is_selected() {
        let texts = ["Mont Blanc is 4806 metres high.", "The weather is fine.", "Elbrus: 5642 metres."];
        let index = Bm25Index::new(texts.iter().copied());
        let scores = index.scores("Did the agent find how many metres high Mont Blanc is?");
        assert_eq!(select(&scores, 5, 0.5), [0]);
        assert_eq!(scores[1], 0.0);
        assert_eq!(widen(&scores, 5), [0, 1, 2]);
    }

    #[test]
    fn question_without_content_selects_nothing() {
        let index = Bm25Index::new(["Mont Blanc", "Elbrus"].into_iter());
        assert!(select(&index.scores("Did the agent do this?"), 5, 0.5).is_empty());
        assert!(select(&Bm25Index::new(std::iter::empty()).scores("Elbrus"), 5, 0.5).is_empty());
    }

    proptest! {
        #[test]
        fn selected_chunks_exceed_the_share_and_are_the_best(scores in proptest::collection::vec(0.0..10.0f64, 0..40)) {
            let selected = select(&scores, 5, 0.5);
            let top = scores.iter().copied().fold(0.0, f64::max);
            prop_assert!(selected.len() <= 5 && selected.is_sorted());
            prop_assert!(selected.iter().all(|&i| scores[i] > 0.0 && scores[i] >= top * 0.5));
            if let Some(worst) = selected.iter().map(|&i| scores[i]).reduce(f64::min) {
                prop_assert!((0..scores.len()).all(|i| selected.contains(&i) || selected.len() == 5 || scores[i] <= worst));
            }
        }
    }
}
