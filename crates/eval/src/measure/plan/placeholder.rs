//! Placeholders in a plan (004, table 33): `(k)` the output of step k, `(query)` the user's query,
//! `(tool k)` and `(sub-query k)` the tool and the prompt of step k.
//!
//! In: a piece of an instruction. Out: the placeholders in it, and malformed ones.

/// Maximum number of placeholders that are read from one text.
const MAX_PLACEHOLDERS: usize = 200;

/// A placeholder: a reference in brackets.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Placeholder {
    /// `(k)`
    Output(usize),
    /// `(query)`
    Query,
    /// `(tool k)`
    Tool(usize),
    /// `(sub-query k)`
    Prompt(usize),
    /// Several steps in one pair of brackets, or a wrong word before the number; the text, and the numbers.
    Malformed(String, Vec<usize>),
}

regex!(
    BRACKET,
    r"(?i)\(\s*(?:(query)|(?:(tool|sub-?\s?query|sub_query|step|output|result)\s*#?)?(\d{1,3}(?:\s*(?:,|&|and|;)\s*\d{1,3})*))\s*\)"
);

/// All placeholders in `text`, in order.
pub(crate) fn all(text: &str) -> Vec<Placeholder> {
    let placeholder = |captures: regex::Captures<'_>| {
        if captures.get(1).is_some() {
            return Some(Placeholder::Query);
        }
        let numbers: Vec<usize> = captures
            .get(3)?
            .as_str()
            .split(|c: char| !c.is_ascii_digit())
            .filter_map(|digits| digits.parse().ok())
            .collect();
        let word = captures.get(2).map(|w| w.as_str().to_ascii_lowercase());
        Some(match (word.as_deref(), numbers.as_slice()) {
            (None, [one]) => Placeholder::Output(*one),
            (Some("tool"), [one]) => Placeholder::Tool(*one),
            (Some(word), [one]) if word.starts_with("sub") => Placeholder::Prompt(*one),
            _ => Placeholder::Malformed(captures.get(0)?.as_str().to_owned(), numbers),
        })
    };
    BRACKET.captures_iter(text).filter_map(placeholder).take(MAX_PLACEHOLDERS).collect()
}

/// `text` without its placeholders.
pub(crate) fn without(text: &str) -> std::borrow::Cow<'_, str> {
    BRACKET.replace_all(text, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_four_kinds_are_distinguished() {
        let text = "Answer (query) with (sub-query 2) by (tool 2): ( 2 ), not (30 minutes) nor (1999)";
        let expected =
            [Placeholder::Query, Placeholder::Prompt(2), Placeholder::Tool(2), Placeholder::Output(2)];
        assert_eq!(all(text), expected);
        assert_eq!(without("of (1)."), "of  .");
    }

    #[test]
    fn several_steps_in_one_bracket_are_malformed() {
        let assert_malformed = |text: &str, numbers: &[usize]| {
            assert_eq!(all(text), [Placeholder::Malformed(text.to_owned(), numbers.to_vec())], "{text}");
        };
        assert_malformed("(1, 2)", &[1, 2]);
        assert_malformed("(1 and 2)", &[1, 2]);
        assert_malformed("(step 1)", &[1]);
        assert_malformed("(tool 1, 2)", &[1, 2]);
    }
}
