//! Problems of a configuration, with position, key and suggestion.

use std::fmt;

use crate::place::Mark;

/// A problem of a configuration, reported by its key; [`Issue`] adds the position.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// Dotted; empty for the section as a whole.
    pub key: String,
    pub message: String,
    /// The word that was probably meant.
    pub hint: Option<String>,
}

impl Problem {
    pub fn new(key: impl Into<String>, message: impl Into<String>) -> Problem {
        Problem { key: key.into(), message: message.into(), hint: None }
    }

    #[must_use]
    pub fn with_hint(self, hint: Option<String>) -> Problem {
        Problem { hint, ..self }
    }

    /// The same problem, with a key that is relative to the parent of `section` instead of to `section`.
    #[must_use]
    pub fn in_section(self, section: &str) -> Problem {
        let dot = if self.key.is_empty() || self.key.starts_with('[') { "" } else { "." };
        Problem { key: format!("{section}{dot}{}", self.key), ..self }
    }
}

/// A [`Problem`] with its position.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Issue {
    pub at: Mark,
    /// Dotted; empty for the file as a whole.
    pub key: String,
    pub message: String,
    pub hint: Option<String>,
}

impl Issue {
    pub fn new(at: Mark, key: String, message: String) -> Issue {
        Issue { at, key, message, hint: None }
    }

    pub fn with_hint(self, hint: Option<String>) -> Issue {
        Issue { hint, ..self }
    }
}

/// The configuration cannot be used. Displays one line per problem: `file:line:column: key: message`.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", lines.join("\n"))]
pub struct Invalid {
    lines: Vec<String>,
}

impl Invalid {
    pub fn new(files: &[String], mut issues: Vec<Issue>) -> Invalid {
        issues.sort_by(|a, b| (a.at, &a.key).cmp(&(b.at, &b.key)));
        issues.dedup();
        let lines = issues.iter().map(|issue| line(files, issue)).collect();
        Invalid { lines }
    }

    /// The error for a file that cannot be read.
    pub fn unreadable(file: &str, reason: &str) -> Invalid {
        Invalid { lines: vec![format!("{file}: {reason}")] }
    }

    /// An error with the problems of both.
    #[must_use]
    pub fn and(mut self, mut other: Invalid) -> Invalid {
        self.lines.append(&mut other.lines);
        self
    }

    /// One line per problem, in order of files and lines.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }
}

impl fmt::Debug for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn line(files: &[String], issue: &Issue) -> String {
    let file = files.get(issue.at.file).map_or("defaults", String::as_str);
    let Issue { at, key, message, hint } = issue;
    let key = if key.is_empty() { String::new() } else { format!("{key}: ") };
    let hint = hint.as_ref().map(|hint| format!("; did you mean '{hint}'?")).unwrap_or_default();
    format!("{file}:{}:{}: {key}{message}{hint}", at.line, at.column)
}

/// The word among `candidates` that was probably meant, if one is similar to `word`.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    // The comparison is quadratic, and keys may be a megabyte long.
    if word.len() > 64 {
        return None;
    }
    let normalize = |s: &str| s.to_ascii_lowercase().replace(['-', '_'], "");
    let normalized_word = normalize(word);
    candidates
        .into_iter()
        .map(|k| (strsim::damerau_levenshtein(&normalized_word, &normalize(k)), k))
        // A word that differs in more than a third of its letters was not meant.
        .filter(|(distance, k)| *distance * 3 <= k.len().max(word.len()))
        .min()
        .map(|(_, k)| k.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_words_are_suggested_and_others_are_not() {
        let candidates = ["endpoint", "compression", "headers"];
        assert_eq!(nearest("endpont", candidates).as_deref(), Some("endpoint"));
        assert_eq!(nearest("Compression", candidates).as_deref(), Some("compression"));
        assert_eq!(nearest("zebra", candidates), None);
    }
}
