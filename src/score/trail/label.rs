//! Spellings of categories by annotators and models.
//!
//! In: a category's text. Out: the category, by the rule of the reference script (`norm`): case and spaces are
//! ignored, and a text that is a part of a category's name means the first such category. Any other text
//! matches only itself.

use verdict_eval::metrics::Category;

/// A category of the taxonomy, or another text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CategoryLabel {
    Known(Category),
    /// In lower case.
    Other(String),
}

impl CategoryLabel {
    /// Reads a category's text.
    pub fn read(text: &str) -> CategoryLabel {
        let text = text.trim().to_lowercase();
        let squeezed = text.replace(' ', "");
        let names = || Category::ALL.into_iter().map(|c| (c, c.as_str().to_lowercase()));
        let exact = names().find(|(_, name)| *name == text || name.replace(' ', "") == squeezed);
        let part = || names().find(|(_, name)| !text.is_empty() && name.contains(&text));
        match exact.or_else(part) {
            Some((category, _)) => CategoryLabel::Known(category),
            None => CategoryLabel::Other(text),
        }
    }

    pub fn category(&self) -> Option<Category> {
        match self {
            CategoryLabel::Known(category) => Some(*category),
            CategoryLabel::Other(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_a_category_give_the_same_label() {
        for (text, category) in [
            ("Formatting Errors", Category::FormattingErrors),
            ("  formattingerrors ", Category::FormattingErrors),
            ("formatting", Category::FormattingErrors),
            ("Resource", Category::ResourceNotFound),
            ("Tool Selection", Category::ToolSelectionErrors),
            ("Instruction Non-Compliance", Category::InstructionNonCompliance),
        ] {
            assert_eq!(CategoryLabel::read(text), CategoryLabel::Known(category), "{text}");
        }
    }

    #[test]
    fn other_texts_are_preserved_in_lower_case() {
        assert_eq!(CategoryLabel::read("Hallucination"), CategoryLabel::Other("hallucination".to_owned()));
        assert_eq!(CategoryLabel::read(" "), CategoryLabel::Other(String::new()));
    }

    #[test]
    fn every_category_is_read_from_its_name() {
        for category in Category::ALL {
            assert_eq!(CategoryLabel::read(category.as_str()).category(), Some(category));
        }
    }
}
