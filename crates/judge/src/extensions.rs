//! Custom dialects and providers.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::dialect::Dialect;
use crate::dialects;
use crate::provider::Provider;

/// Dialects, including the built-in ones, and providers by the name of their judge.
#[derive(Clone, Debug)]
pub struct JudgeExtensions {
    pub(crate) dialects: Vec<Arc<dyn Dialect>>,
    pub(crate) providers: BTreeMap<String, Arc<dyn Provider>>,
}

impl Default for JudgeExtensions {
    fn default() -> JudgeExtensions {
        JudgeExtensions { dialects: dialects::built_in().into(), providers: BTreeMap::new() }
    }
}

impl JudgeExtensions {
    /// Adds a dialect, which judges select by `dialect: name`. It replaces one of the same name.
    #[must_use]
    pub fn dialect(mut self, dialect: Arc<dyn Dialect>) -> JudgeExtensions {
        self.dialects.insert(0, dialect);
        self
    }

    /// Lets `provider` answer as the judge `name`. Without a configuration of that name the judge has the
    /// default limits; `endpoint`, `dialect` and other settings of HTTP do not apply.
    #[must_use]
    pub fn provider(mut self, name: impl Into<String>, provider: Arc<dyn Provider>) -> JudgeExtensions {
        self.providers.insert(name.into(), provider);
        self
    }

    /// Whether a provider answers as the judge `name`.
    pub fn provides(&self, name: &str) -> bool {
        self.providers.contains_key(name)
    }

    pub(crate) fn dialect_names(&self) -> Vec<&str> {
        self.dialects.iter().map(|dialect| dialect.name()).collect()
    }
}
