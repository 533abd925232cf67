//! Texts that a configuration is read from.

/// The name (for messages) and the text of one file.
#[derive(Clone, Debug)]
pub struct Source {
    pub name: String,
    pub text: String,
}
