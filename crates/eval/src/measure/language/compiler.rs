//! Compiles the patterns of a language's data file.
//!
//! In: a pattern and the classes of words of its file. Out: a regular expression over the words of a sentence. The
//! syntax of patterns is described in `lists.rs`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::OnceLock;

use regex::bytes::{Captures, Regex, RegexBuilder};

use crate::pattern::unwrap_static;

/// Maximum depth to which classes of words may contain each other.
const MAX_DEPTH: usize = 6;
/// Maximum bytes of the lazily built automaton of a pattern; each thread has its own.
const MAX_AUTOMATON_BYTES: usize = 1 << 19;

/// Whether a condition begins in the clause of `words` before the match at `start`. The words that begin the condition
/// may extend into the match: "once i".
pub(super) fn is_hypothetical(hypothetical: &Pattern, words: &str, start: usize) -> bool {
    let from = clause_start(words, start);
    let condition = || hypothetical.find(words.get(from..).unwrap_or_default());
    start > from && condition().is_some_and(|condition| from + condition.start < start)
}

/// The clause of `words` around a match, which commas, colons and parentheses delimit.
pub(super) fn clause(words: &str, start: usize, end: usize) -> &str {
    let end_of_clause =
        words.get(end..).and_then(|rest| rest.find(CLAUSE_DELIMITERS)).map_or(words.len(), |at| end + at);
    words.get(clause_start(words, start)..end_of_clause).unwrap_or(words)
}

/// The signs that delimit clauses in the words of a sentence, where "(" is any parenthesis.
const CLAUSE_DELIMITERS: [char; 3] = [',', ':', '('];

fn clause_start(words: &str, start: usize) -> usize {
    words.get(..start).and_then(|before| before.rfind(CLAUSE_DELIMITERS)).map_or(0, |at| at + 1)
}

/// Compiles the patterns of one file.
pub(super) struct PatternCompiler<'f> {
    /// The classes of words of the file, by name.
    pub words: &'f BTreeMap<String, String>,
    /// Whether spaces separate words in the language.
    pub has_spaces: bool,
}

impl PatternCompiler<'_> {
    /// A pattern that matches where any of `sources` matches.
    pub(super) fn any(&self, sources: &[String]) -> Result<Pattern, String> {
        let sources: Vec<String> =
            sources.iter().map(|s| self.expand(without_outer_gaps(s), 0)).collect::<Result<_, _>>()?;
        Ok(Pattern::new(&self.within_words(&sources.join("|"))))
    }

    /// A pattern that matches where any of `sources` matches, and where one of `first` begins the text.
    pub(super) fn any_or_first(&self, sources: &[String], first: &[String]) -> Result<Pattern, String> {
        let union = |sources: &[String]| {
            let sources = sources.iter().map(|source| self.expand(source, 0));
            Ok::<_, String>(self.within_words(&sources.collect::<Result<Vec<_>, _>>()?.join("|")))
        };
        let anywhere = union(sources)?;
        Ok(Pattern::new(&match first {
            [] => anywhere,
            _ => format!("{anywhere}|^ ?{}", union(first)?),
        }))
    }

    /// `source` between word borders.
    pub(super) fn within_words(&self, source: &str) -> String {
        if self.has_spaces { format!(" (?:{source}) ") } else { format!("(?:{source})") }
    }

    /// The regular expression of a pattern. `depth` is the number of classes of words that contain the pattern.
    pub(super) fn expand(&self, source: &str, depth: usize) -> Result<String, String> {
        let source = without_final_gaps(source);
        let mut out = String::with_capacity(source.len() * 2);
        let mut rest = source.as_str();
        while let Some(at) = rest.find(['{', '~', '\'']) {
            let (before, from) = rest.split_at(at);
            out.push_str(before);
            let class = from.strip_prefix('{').and_then(|f| f.split_once('}'));
            rest = match class {
                // Braces with a digit are a number of repetitions.
                Some((count, _)) if count.starts_with(|c: char| c.is_ascii_digit()) => {
                    out.push('{');
                    from.get(1..).unwrap_or_default()
                }
                Some((name, after)) => {
                    out.push_str(&self.class(name, depth)?);
                    after
                }
                None if from.starts_with('~') => {
                    out.push_str("[^ ]*");
                    from.get(1..).unwrap_or_default()
                }
                None => {
                    // An apostrophe ends a word, so that a space follows it in the words of a sentence.
                    let after = from.get(1..).unwrap_or_default();
                    out.push('\'');
                    if after.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '{' | '(' | '<')) {
                        out.push(' ');
                    }
                    after
                }
            };
        }
        out.push_str(rest);
        Ok(out)
    }

    /// The regular expression of a class of words.
    fn class(&self, name: &str, depth: usize) -> Result<String, String> {
        match (name, self.has_spaces) {
            ("gap", true) => return Ok("(?:[^ ,:(]+ ){0,8}".to_owned()),
            ("near", true) => return Ok("(?:[^ ,:(]+ ){0,3}".to_owned()),
            ("gap", false) => return Ok("[^,:(]{0,16}".to_owned()),
            ("near", false) => return Ok("[^,:(]{0,6}".to_owned()),
            _ => {}
        }
        let source = self.words.get(name).filter(|_| depth < MAX_DEPTH);
        let source = source.ok_or_else(|| format!("no class of words {name:?}"))?;
        Ok(format!("(?:{})", self.expand(source, depth + 1)?))
    }
}

/// `source` without gaps at the ends of alternatives. Such a gap does not change the result, and its final space would
/// conflict with the space of the word border.
fn without_final_gaps(source: &str) -> String {
    let mut source = source.to_owned();
    for gap in [" {gap}", " {near}"] {
        source = source.replace(&format!("{gap})"), ")").replace(&format!("{gap}|"), "|");
    }
    source
}

/// `source` without gaps at the beginning and at the end of a whole pattern. Such gaps also match no words at all, and
/// would move the start of a match, before which conditions are searched.
fn without_outer_gaps(source: &str) -> &str {
    let source = ["{gap}", "({gap})?", "{near}"]
        .iter()
        .fold(source, |source, gap| source.strip_prefix(gap).unwrap_or(source));
    let source = source.trim_end();
    source.strip_suffix(" {gap}").or(source.strip_suffix(" {near}")).unwrap_or(source)
}

/// A pattern, compiled at its first use: a trace in one language uses few patterns. It matches bytes: separators of
/// words are ASCII, so that a class of bytes matches the same words as a class of characters, with an automaton that
/// is many times smaller.
#[derive(Debug)]
pub(super) struct Pattern {
    source: String,
    regex: OnceLock<Regex>,
    /// The pattern after any bytes, to test for a match in one pass of the automaton. The search of `regex` for the
    /// first bytes of a match is slower, since words such as "i" are frequent.
    anywhere: OnceLock<Regex>,
}

impl Pattern {
    pub(super) fn new(source: &str) -> Pattern {
        let source = without_unnamed_captures(source)
            .replace("[^ ,:(]", "(?-u:[^ ,:(])")
            .replace("[^ ]", "(?-u:[^ ])");
        let pattern = Pattern { source, regex: OnceLock::new(), anywhere: OnceLock::new() };
        // Tests compile every pattern of each language.
        #[cfg(test)]
        {
            pattern.get();
            pattern.anywhere();
        }
        pattern
    }

    /// Whether the pattern matches at any position.
    pub(super) fn is_match(&self, words: &str) -> bool {
        self.anywhere().is_match(words.as_bytes())
    }

    /// As [`Pattern::is_match`], for a pattern that begins with an anchor.
    pub(super) fn is_anchored_match(&self, words: &str) -> bool {
        self.get().is_match(words.as_bytes())
    }

    /// The first match. Most words have none, which the test for a match shows at a lower cost.
    pub(super) fn find(&self, words: &str) -> Option<Range<usize>> {
        self.find_iter(words).next()
    }

    pub(super) fn find_iter(&self, words: &str) -> impl Iterator<Item = Range<usize>> {
        let matches = self.is_match(words).then(|| self.get().find_iter(words.as_bytes()));
        matches.into_iter().flatten().map(|found| found.range())
    }

    pub(super) fn captures_iter<'w>(&self, words: &'w str) -> impl Iterator<Item = Captures<'w>> {
        self.is_match(words).then(|| self.get().captures_iter(words.as_bytes())).into_iter().flatten()
    }

    fn get(&self) -> &Regex {
        self.regex.get_or_init(|| self.compile(""))
    }

    fn anywhere(&self) -> &Regex {
        self.anywhere.get_or_init(|| self.compile("\\A(?s-u:.)*?"))
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "patterns of bytes; a test compiles all patterns of the lists"
    )]
    fn compile(&self, prefix: &str) -> Regex {
        let mut builder = RegexBuilder::new(&format!("{prefix}(?:{})", self.source));
        let regex = builder.dfa_size_limit(MAX_AUTOMATON_BYTES).build();
        unwrap_static("a pattern of a language", regex.map_err(|e| format!("{e} in {}", self.source)))
    }
}

/// `source` with its unnamed groups as groups without capture.
fn without_unnamed_captures(source: &str) -> String {
    let mut out = String::with_capacity(source.len() * 2);
    let (mut in_class, mut is_escaped) = (false, false);
    let mut chars = source.chars().peekable();
    while let Some(c) = chars.next() {
        out.push(c);
        if c == '(' && !in_class && !is_escaped && chars.peek() != Some(&'?') {
            out.push_str("?:");
        }
        in_class = !is_escaped && (c == '[' || in_class && c != ']');
        is_escaped = c == '\\' && !is_escaped;
    }
    out
}
