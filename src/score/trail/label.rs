//! Categories as annotators and models spell them.
//!
//! In: a category's text. Out: the category that is meant, by the rule of the reference script
//! (`norm`): case and blanks do not count, and a text that is a part of a label's name means
//! the first such label. What is no category is kept as it is: it matches only itself.

use verdict_eval::Category;

/// A category of the taxonomy, or a text that names none.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Label {
    /// One of the 21.
    Known(Category),
    /// Anything else, in small letters.
    Other(String),
}

impl Label {
    /// Reads a category's text.
    pub fn read(text: &str) -> Label {
        let text = text.trim().to_lowercase();
        let squeezed = text.replace(' ', "");
        let names = || Category::ALL.into_iter().map(|c| (c, c.as_str().to_lowercase()));
        let exact = names().find(|(_, name)| *name == text || name.replace(' ', "") == squeezed);
        let part = || names().find(|(_, name)| !text.is_empty() && name.contains(&text));
        match exact.or_else(part) {
            Some((category, _)) => Label::Known(category),
            None => Label::Other(text),
        }
    }

    /// The category, where it is one.
    pub fn category(&self) -> Option<Category> {
        match self {
            Label::Known(category) => Some(*category),
            Label::Other(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_come_to_the_same_label() {
        for (text, category) in [
            ("Formatting Errors", Category::FormattingErrors),
            ("  formattingerrors ", Category::FormattingErrors),
            ("formatting", Category::FormattingErrors),
            ("Resource", Category::ResourceNotFound),
            ("Tool Selection", Category::ToolSelectionErrors),
            ("Instruction Non-Compliance", Category::InstructionNonCompliance),
        ] {
            assert_eq!(Label::read(text), Label::Known(category), "{text}");
        }
    }

    #[test]
    fn what_is_no_category_stays_itself() {
        assert_eq!(Label::read("Hallucination"), Label::Other("hallucination".to_owned()));
        assert_eq!(Label::read(" "), Label::Other(String::new()));
    }

    #[test]
    fn every_label_reads_as_itself() {
        for category in Category::ALL {
            assert_eq!(Label::read(category.as_str()).category(), Some(category));
        }
    }
}
