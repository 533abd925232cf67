//! A regular expression of the configuration, compiled at its first use.

use std::sync::OnceLock;

use crate::pattern::{Regex, unicode_regex};

/// The compiled form of a pattern of the configuration, stored next to the pattern. It is not a value of the
/// configuration, so that all compiled patterns compare equal.
#[derive(Clone, Debug, Default)]
pub struct CompiledPattern(OnceLock<Option<Regex>>);

impl CompiledPattern {
    /// The compiled expression `source`; `None` if it does not compile, which the validation of the configuration
    /// prevents.
    pub(super) fn get(&self, source: &str) -> Option<&Regex> {
        self.0.get_or_init(|| unicode_regex(source).ok()).as_ref()
    }
}

impl PartialEq for CompiledPattern {
    fn eq(&self, _: &CompiledPattern) -> bool {
        true
    }
}
