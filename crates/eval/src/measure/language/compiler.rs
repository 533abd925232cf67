//! Compiles the patterns of a language's data file.
//!
//! In: a pattern and the classes of words of its file. Out: a regular expression over the words of a
//! sentence. The form of patterns is described in `lists.rs`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::OnceLock;

use regex::bytes::{CaptureMatches, Regex, RegexBuilder};

use crate::pattern::unwrap_static;

/// Classes of words may contain each other to this depth.
const MAX_DEPTH: usize = 6;
/// The longest program of an automaton that is built while it runs, in bytes: one for each pattern and thread.
const MAX_AUTOMATON: usize = 1 << 19;

/// Whether a condition begins in the clause of `words` before the match at `start`. What it begins with may be the
/// first words of the match: "once i".
pub(super) fn is_hypothetical(hypothetical: &Pattern, words: &str, start: usize) -> bool {
    let from = clause_start(words, start);
    let begins = || hypothetical.find(words.get(from..).unwrap_or_default());
    start > from && begins().is_some_and(|found| from + found.start < start)
}

/// The clause of `words` around a match: between the commas, colons and parentheses.
pub(super) fn clause(words: &str, start: usize, end: usize) -> &str {
    let until = words.get(end..).and_then(|rest| rest.find(MARKS)).map_or(words.len(), |at| end + at);
    words.get(clause_start(words, start)..until).unwrap_or(words)
}

const MARKS: [char; 3] = [',', ':', '('];

fn clause_start(words: &str, start: usize) -> usize {
    words.get(..start).and_then(|before| before.rfind(MARKS)).map_or(0, |at| at + 1)
}

/// Compiles patterns of one file.
pub(super) struct PatternCompiler<'f> {
    pub words: &'f BTreeMap<String, String>,
    pub spaced: bool,
}

impl PatternCompiler<'_> {
    /// A pattern that matches where any of `sources` does.
    pub(super) fn any(&self, sources: &[String]) -> Result<Pattern, String> {
        let sources: Vec<String> =
            sources.iter().map(|s| self.expand(without_outer_gaps(s), 0)).collect::<Result<_, _>>()?;
        Ok(Pattern::new(&self.within_words(&sources.join("|"))))
    }

    /// A pattern that matches where any of `sources` does, and where one of `first` begins the text.
    pub(super) fn any_or_first(&self, sources: &[String], first: &[String]) -> Result<Pattern, String> {
        let all = |sources: &[String]| {
            let sources = sources.iter().map(|source| self.expand(source, 0));
            Ok::<_, String>(self.within_words(&sources.collect::<Result<Vec<_>, _>>()?.join("|")))
        };
        let anywhere = all(sources)?;
        Ok(Pattern::new(&match first {
            [] => anywhere,
            _ => format!("{anywhere}|^ ?{}", all(first)?),
        }))
    }

    /// `source` between the borders of words.
    pub(super) fn within_words(&self, source: &str) -> String {
        if self.spaced { format!(" (?:{source}) ") } else { format!("(?:{source})") }
    }

    /// The regular expression of a pattern.
    pub(super) fn expand(&self, source: &str, depth: usize) -> Result<String, String> {
        let source = without_final_gaps(source);
        let mut out = String::with_capacity(source.len() * 2);
        let mut rest = source.as_str();
        while let Some(at) = rest.find(['{', '~', '\'']) {
            let (before, from) = rest.split_at(at);
            out.push_str(before);
            let class = from.strip_prefix('{').and_then(|f| f.split_once('}'));
            rest = match class {
                // A number of repetitions, not a class.
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
                    // An apostrophe ends a word.
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

    fn class(&self, name: &str, depth: usize) -> Result<String, String> {
        match (name, self.spaced) {
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

/// `source` without gaps at the ends of alternatives: the words that they match change nothing, and they
/// end with the space that the border of the pattern requires.
fn without_final_gaps(source: &str) -> String {
    let mut source = source.to_owned();
    for gap in [" {gap}", " {near}"] {
        source = source.replace(&format!("{gap})"), ")").replace(&format!("{gap}|"), "|");
    }
    source
}

/// `source` without gaps at the beginning and at the end of a whole pattern, which match any words and none: where a
/// statement begins decides what is said before it.
fn without_outer_gaps(source: &str) -> &str {
    let source = ["{gap}", "({gap})?", "{near}"]
        .iter()
        .fold(source, |source, gap| source.strip_prefix(gap).unwrap_or(source));
    let source = source.trim_end();
    source.strip_suffix(" {gap}").or(source.strip_suffix(" {near}")).unwrap_or(source)
}

/// A pattern, compiled at its first use: a trace in one language uses few of them. It matches bytes: what is between
/// words is ASCII, so that a class of the bytes of a word finds the same as a class of its characters, with an
/// automaton that is many times smaller.
#[derive(Debug)]
pub(super) struct Pattern {
    source: String,
    regex: OnceLock<Regex>,
    /// With any bytes before it, to decide only whether it matches: in one pass of the automaton, without a search
    /// for the first bytes of matches, which are those of words as frequent as "i".
    anywhere: OnceLock<Regex>,
}

impl Pattern {
    pub(super) fn new(source: &str) -> Pattern {
        let source =
            without_captures(source).replace("[^ ,:(]", "(?-u:[^ ,:(])").replace("[^ ]", "(?-u:[^ ])");
        let pattern = Pattern { source, regex: OnceLock::new(), anywhere: OnceLock::new() };
        // A test of each language's lists compiles all of them.
        #[cfg(test)]
        {
            pattern.get();
            pattern.anywhere();
        }
        pattern
    }

    pub(super) fn is_match(&self, words: &str) -> bool {
        self.anywhere().is_match(words.as_bytes())
    }

    /// As [`Pattern::is_match`], of a pattern that begins with an anchor.
    pub(super) fn is_whole(&self, words: &str) -> bool {
        self.get().is_match(words.as_bytes())
    }

    /// The first match.
    pub(super) fn find(&self, words: &str) -> Option<Range<usize>> {
        self.get().find(words.as_bytes()).map(|found| found.range())
    }

    pub(super) fn find_iter(&self, words: &str) -> impl Iterator<Item = Range<usize>> {
        self.get().find_iter(words.as_bytes()).map(|found| found.range())
    }

    pub(super) fn captures_iter<'p, 'w>(&'p self, words: &'w str) -> CaptureMatches<'p, 'w> {
        self.get().captures_iter(words.as_bytes())
    }

    fn get(&self) -> &Regex {
        self.regex.get_or_init(|| self.compile(""))
    }

    fn anywhere(&self) -> &Regex {
        self.anywhere.get_or_init(|| self.compile("\\A(?s-u:.)*?"))
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "patterns of bytes; those of the lists are all compiled by a test"
    )]
    fn compile(&self, before: &str) -> Regex {
        let mut builder = RegexBuilder::new(&format!("{before}(?:{})", self.source));
        let regex = builder.dfa_size_limit(MAX_AUTOMATON).build();
        unwrap_static("a pattern of a language", regex.map_err(|e| format!("{e} in {}", self.source)))
    }
}

/// `source` with groups that capture nothing, unless they have a name.
fn without_captures(source: &str) -> String {
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
