//! The pattern of a task's prompt, and the captures of its named groups.
//!
//! In: a regular expression and a prompt. Out: the text of each named group, and whether the pattern ignores
//! the case of the group: arguments are then compared without case, too.

use std::collections::BTreeMap;

use foldhash::HashMap;
use regex_syntax::ast::parse::Parser;
use regex_syntax::ast::{Ast, Flag, GroupKind};

use crate::pattern::{Regex, unicode_regex};

/// The text that a named group of the prompt's pattern captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedText {
    /// `None` if the group took no part in the match, so that any value is accepted.
    pub text: Option<String>,
    /// Whether the pattern ignores the case of all letters in the group.
    pub ignores_case: bool,
}

/// Captured texts by the name of their group.
pub(crate) type PromptCaptures = HashMap<String, CapturedText>;

impl CapturedText {
    /// Whether the text of an argument equals the captured text.
    pub(super) fn matches(&self, argument: &str) -> bool {
        let Some(text) = &self.text else { return true };
        argument == text || self.ignores_case && argument.to_lowercase() == text.to_lowercase()
    }
}

/// A regular expression for prompts.
#[derive(Clone, Debug)]
pub struct PromptRegex {
    regex: Regex,
    /// For each named group, whether it ignores case.
    ignores_case: BTreeMap<String, bool>,
}

impl PromptRegex {
    /// # Errors
    /// `pattern` is not a regular expression.
    pub(super) fn new(pattern: &str) -> Result<PromptRegex, regex::Error> {
        let regex = unicode_regex(pattern)?;
        let mut ignores_case = BTreeMap::new();
        if let Ok(ast) = Parser::new().parse(pattern) {
            read_case_flags(&ast, false, &mut ignores_case);
        }
        Ok(PromptRegex { regex, ignores_case })
    }

    pub(super) fn has_group(&self, name: &str) -> bool {
        self.regex.capture_names().flatten().any(|group| group == name)
    }

    /// Captures that accept any value.
    pub(super) fn any_captures(&self) -> PromptCaptures {
        let any_text = |name: &str| (name.to_owned(), CapturedText { text: None, ignores_case: false });
        self.regex.capture_names().flatten().map(any_text).collect()
    }

    /// The captures in `prompt`; `None` if the pattern does not match.
    pub(super) fn captures(&self, prompt: &str) -> Option<PromptCaptures> {
        let captures = self.regex.captures(prompt)?;
        let captured_value = |name: &str| {
            let text = captures.name(name).map(|group| group.as_str().to_owned());
            let ignores_case = self.ignores_case.get(name).copied().unwrap_or(false);
            (name.to_owned(), CapturedText { text, ignores_case })
        };
        Some(self.regex.capture_names().flatten().map(captured_value).collect())
    }
}

/// Records in `groups`, for each named group, whether it ignores case. `ignores` is the flag before `ast`. Returns
/// whether every literal in `ast` ignores case, and the flag after `ast`. The parser bounds the depth.
fn read_case_flags(ast: &Ast, ignores: bool, groups: &mut BTreeMap<String, bool>) -> (bool, bool) {
    match ast {
        Ast::Empty(_) | Ast::Dot(_) | Ast::Assertion(_) => (true, ignores),
        Ast::Flags(set) => (true, set.flags.flag_state(Flag::CaseInsensitive).unwrap_or(ignores)),
        Ast::Literal(_) | Ast::ClassUnicode(_) | Ast::ClassPerl(_) | Ast::ClassBracketed(_) => {
            (ignores, ignores)
        }
        Ast::Repetition(repetition) => read_case_flags(&repetition.ast, ignores, groups),
        Ast::Group(group) => {
            let ignores_inside = match &group.kind {
                GroupKind::NonCapturing(flags) => flags.flag_state(Flag::CaseInsensitive).unwrap_or(ignores),
                _ => ignores,
            };
            let (ignores_all, _) = read_case_flags(&group.ast, ignores_inside, groups);
            if let GroupKind::CaptureName { name, .. } = &group.kind {
                groups.insert(name.name.clone(), ignores_all);
            }
            (ignores_all, ignores)
        }
        // A flag applies to the rest of its group, including further alternatives.
        Ast::Alternation(alternation) => read_sequence(&alternation.asts, ignores, groups),
        Ast::Concat(concat) => read_sequence(&concat.asts, ignores, groups),
    }
}

/// As [`read_case_flags`], for several parts in order.
fn read_sequence(asts: &[Ast], mut ignores: bool, groups: &mut BTreeMap<String, bool>) -> (bool, bool) {
    let mut ignores_all = true;
    for ast in asts {
        let (ignores_case, after) = read_case_flags(ast, ignores, groups);
        ignores_all &= ignores_case;
        ignores = after;
    }
    (ignores_all, ignores)
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_ignore_case_where_the_flag_applies() {
        let cases = [
            ("(?i)plant (?P<x>[A-C])", true),
            ("plant (?P<x>[A-C])", false),
            ("(?i:plant) (?P<x>[A-C])", false),
            ("(?i:plant (?P<x>[A-C]))", true),
            ("plant (?P<x>(?i)[A-C])(?P<y>d)", true),
            ("(?i)plant (?-i)(?P<x>[A-C])", false),
            ("(?i)plant (?P<x>a(?-i:b))", false),
            ("(?i)a|(?P<x>b)+", true),
            ("(?P<x>.*)", true),
        ];
        for (pattern, ignores) in cases {
            let pattern = PromptRegex::new(pattern).unwrap();
            assert_eq!(pattern.ignores_case.get("x"), Some(&ignores), "{pattern:?}");
        }
        assert_eq!(PromptRegex::new("(?P<x>(?i)a)(?P<y>d)").unwrap().ignores_case.get("y"), Some(&false));
    }

    #[test]
    fn group_without_a_part_in_the_match_leaves_the_value_open() {
        let pattern =
            PromptRegex::new("(?i)water plant (?P<plant>[A-C])( with (?P<litres>[0-9.]+) l)?").unwrap();
        let captured = pattern.captures("Water plant c.").unwrap();
        assert!(
            captured["plant"].matches("C")
                && captured["plant"].matches("c")
                && !captured["plant"].matches("A")
        );
        assert_eq!(captured["litres"].text, None);
        assert!(captured["litres"].matches("4"));
        assert!(pattern.captures("Feed the cat.").is_none());
    }
}
