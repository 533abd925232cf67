//! Lexical similarity of texts: cosine of TF-IDF vectors.
//!
//! In: texts. Out: one vector per text, and the cosine of two vectors, from 0 (no common word) to 1 (equal
//! words in equal proportions). It is lexical: synonyms are different words. Paper 000's semantic consistency
//! index compares embeddings, so the figures of the two are not comparable.
//!
//! The weight of a word is its count times `ln((1 + n) / (1 + d)) + 1` for n texts, d of which contain it. It
//! is smoothed, so that a word that occurs in every text still counts.

use std::collections::{BTreeMap, HashMap};

/// Normalized weights of a text's words, in order of word; empty for a text without words.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Vector(Vec<(usize, f64)>);

/// Vectors of `texts`, weighted by their word frequencies.
pub fn vectors<'a>(texts: impl IntoIterator<Item = &'a str>) -> Vec<Vector> {
    let mut vocabulary: HashMap<String, usize> = HashMap::new();
    let mut texts_with_word: Vec<usize> = Vec::new();
    let word_counts: Vec<BTreeMap<usize, f64>> = texts
        .into_iter()
        .map(|text| {
            let mut counts: BTreeMap<usize, f64> = BTreeMap::new();
            for word in words(text) {
                let next = vocabulary.len();
                let id = *vocabulary.entry(word).or_insert(next);
                *counts.entry(id).or_default() += 1.0;
            }
            texts_with_word.resize(vocabulary.len(), 0);
            counts.keys().for_each(|&id| texts_with_word[id] += 1);
            counts
        })
        .collect();
    let n = word_counts.len() as f64;
    let inverse_frequency = |id: usize| ((1.0 + n) / (1.0 + texts_with_word[id] as f64)).ln() + 1.0;
    word_counts
        .into_iter()
        .map(|counts| {
            let weighted: Vec<(usize, f64)> =
                counts.into_iter().map(|(id, count)| (id, count * inverse_frequency(id))).collect();
            let length = weighted.iter().map(|(_, w)| w * w).sum::<f64>().sqrt();
            Vector(weighted.into_iter().map(|(id, w)| (id, w / length)).collect())
        })
        .collect()
}

fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()).map(str::to_lowercase)
}

/// The cosine; `None` if a text has no words.
pub fn cosine(a: &Vector, b: &Vector) -> Option<f64> {
    if a.0.is_empty() || b.0.is_empty() {
        return None;
    }
    let (mut sum, mut remaining) = (0.0, b.0.as_slice());
    for (id, weight) in &a.0 {
        remaining = &remaining[remaining.partition_point(|(other, _)| other < id)..];
        match remaining.first() {
            Some((other, other_weight)) if other == id => sum += weight * other_weight,
            Some(_) => {}
            None => break,
        }
    }
    Some(sum.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cosine_is_1_for_equal_words_and_0_for_disjoint_words() {
        let v = vectors(["The page was not found.", "the PAGE: was not found", "rate limit reached", ""]);
        assert!((cosine(&v[0], &v[1]).unwrap() - 1.0).abs() < 1e-12);
        assert_eq!(cosine(&v[0], &v[2]), Some(0.0));
        assert_eq!(cosine(&v[0], &v[3]), None);
    }

    #[test]
    fn cosine_of_a_small_case() {
        // "a" is in both texts (inverse_frequency 1), "b" and "c" in one each: ln(3/2) + 1.
        let v = vectors(["a b", "a c"]);
        let rare = 1.5f64.ln() + 1.0;
        assert!((cosine(&v[0], &v[1]).unwrap() - 1.0 / (1.0 + rare * rare)).abs() < 1e-12);
    }

    #[test]
    fn cosine_is_symmetric() {
        let v = vectors(["x y y z", "z x", "q", "y"]);
        for a in &v {
            for b in &v {
                assert_eq!(cosine(a, b), cosine(b, a));
            }
        }
    }
}
