//! Scores weighted by the probabilities of their tokens.
//!
//! In: a reply's text, its tokens with their alternatives, and the field of the score. Out: the expected
//! value of the score over all values that it may have.

use verdict_eval::questions::ScoreField;

use crate::provider::Token;

/// Smallest total probability of the score's values among the alternatives of a token; below it, the token is not
/// taken for the score.
const MIN_TOTAL_PROBABILITY: f64 = 0.5;

/// The expected score, if `text` is a JSON object without other text and `tokens` are its tokens.
pub(crate) fn weighted(text: &str, tokens: &[Token], field: &ScoreField) -> Option<f64> {
    if !text.trim_start().starts_with('{') {
        return None;
    }
    // llama.cpp removes a code fence from the text but not from the tokens.
    let bytes: Vec<u8> = tokens.iter().flat_map(|token| &token.bytes).copied().collect();
    let offset = memchr::memmem::find(&bytes, text.as_bytes())? + value_offset(text, field.key)?;
    let mut end = 0;
    let token = tokens.iter().find(|token| {
        end += token.bytes.len();
        end > offset
    })?;
    let mut total = 0.0;
    let mut sum = 0.0;
    for (text, logprob) in &token.alternatives {
        let Some(value) = number(text).filter(|value| field.values.contains(value)) else { continue };
        let probability = logprob.exp();
        if probability.is_finite() {
            total += probability;
            sum += probability * f64::from(value);
        }
    }
    (total >= MIN_TOTAL_PROBABILITY).then(|| sum / total)
}

/// The number in a token, such as `4`, ` 4`, `:4` or `4,`.
fn number(token: &str) -> Option<u8> {
    let token = token.trim_matches(|c: char| c.is_whitespace() || matches!(c, ':' | '"' | ',' | '}'));
    token.parse().ok()
}

/// The offset of the value of `key` at the top level of an object; of duplicate keys that of the last, as parsers do.
fn value_offset(text: &str, key: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let (mut depth, mut offset, mut found) = (0usize, 0, None);
    while let Some(&byte) = bytes.get(offset) {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                let end = string_end(bytes, offset)?;
                let after_key = skip_space(bytes, end);
                let is_key = depth == 1 && bytes.get(after_key) == Some(&b':');
                if is_key && bytes.get(offset + 1..end - 1) == Some(key.as_bytes()) {
                    found = Some(skip_space(bytes, after_key + 1));
                }
                offset = end;
                continue;
            }
            _ => {}
        }
        offset += 1;
    }
    found
}

/// The offset after the closing quote of the string that begins at `offset`.
fn string_end(bytes: &[u8], offset: usize) -> Option<usize> {
    let mut offset = offset + 1;
    loop {
        match bytes.get(offset)? {
            b'\\' => offset += 2,
            b'"' => return Some(offset + 1),
            _ => offset += 1,
        }
    }
}

fn skip_space(bytes: &[u8], mut offset: usize) -> usize {
    while bytes.get(offset).is_some_and(u8::is_ascii_whitespace) {
        offset += 1;
    }
    offset
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field() -> ScoreField {
        ScoreField { key: "score", values: vec![1, 2, 3, 4, 5] }
    }

    fn tokens(texts: &[&str], offset: &str, choices: &[(&str, f64)]) -> Vec<Token> {
        let token = |text: &&str| Token {
            bytes: text.as_bytes().to_vec(),
            alternatives: match *text == offset {
                true => choices.iter().map(|(t, p)| ((*t).to_owned(), p.ln())).collect(),
                false => vec![((*text).to_owned(), 0.0)],
            },
        };
        texts.iter().map(token).collect()
    }

    #[test]
    fn the_expectation_is_over_the_alternatives_of_the_scores_token() {
        let parts = ["{\"", "rationale", "\": \"the \\\"score\\\": 1\", \"score\":", " 4", "}"];
        let tokens = tokens(&parts, " 4", &[(" 4", 0.6), ("5", 0.3), (" 3", 0.05), ("null", 0.05)]);
        let found = weighted(&parts.concat(), &tokens, &field()).unwrap();
        let expected = (4.0 * 0.6 + 5.0 * 0.3 + 3.0 * 0.05) / 0.95;
        assert!((found - expected).abs() < 1e-9, "{found}");
    }

    #[test]
    fn tokens_around_the_text_are_ignored() {
        let parts = ["```", "json\n", "{\"score\": ", "2", "}", "\n```", ""];
        let tokens = tokens(&parts, "2", &[("2", 0.75), ("4", 0.25)]);
        assert_eq!(weighted("{\"score\": 2}", &tokens, &field()), Some(2.5));
        assert_eq!(weighted("{\"score\": 3}", &tokens, &field()), None, "not these tokens");
    }

    #[test]
    fn without_the_scores_token_there_is_no_weighted_score() {
        let text = "{\"score\":4}";
        let right = ["{\"score\":", "4", "}"];
        let few = tokens(&right, "4", &[("4", 0.2), ("x", 0.8)]);
        assert_eq!(weighted(text, &few, &field()), None, "too little probability");
        assert_eq!(weighted(text, &[], &field()), None, "no tokens");
        let good = tokens(&right, "4", &[("4", 1.0)]);
        assert_eq!(weighted(text, &good, &field()), Some(4.0));
        assert_eq!(weighted("```{\"score\":4}", &good, &field()), None, "not the bare object");
        assert_eq!(weighted("{\"a\":{\"score\":4}}", &good, &field()), None, "not at the top");
        assert_eq!(weighted("{\"score", &good, &field()), None, "cut");
    }
}
