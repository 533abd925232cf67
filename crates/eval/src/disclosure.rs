//! Which texts of a trace a rendering, such as the live page, may show.
//!
//! In: the settings of explanations and prompts: `explanations`, `redact`, `ask.withhold`. Out: the redacted text, or
//! nothing.

use std::borrow::Cow;
use std::sync::Arc;

use crate::annotate::{Emission, Explanations};
use crate::config::Config;
use crate::measure::Settings;
use crate::measure::ask::Asker;
use crate::recognise::AgentTrace;
use crate::redact::InvalidPattern;

/// Decides which texts of a trace are shown. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Disclosure {
    emission: Arc<Emission>,
    asker: Arc<Asker>,
}

impl Disclosure {
    /// # Errors
    /// A pattern of `redact` is no regular expression.
    pub fn new(config: &Config) -> Result<Disclosure, InvalidPattern> {
        let asker = Settings::new(config)?.asker;
        Ok(Disclosure { emission: Arc::new(Emission::new(config)), asker })
    }

    /// Whether texts of the trace are shown: not with `explanations: off`, and not if a service of the trace is in
    /// `ask.withhold`, since a text of one span can repeat that of another.
    pub fn shows_texts(&self, trace: &AgentTrace) -> bool {
        self.emission.explanations != Explanations::Off && !self.asker.withholds_any(trace)
    }

    /// Whether findings of measurements that passed are shown too.
    pub fn shows_passed(&self) -> bool {
        self.emission.explanations == Explanations::All
    }

    /// A text with secrets replaced.
    pub fn redacted<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.emission.redactor.redact(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::Script;

    fn disclosure(change: impl FnOnce(&mut Config)) -> Disclosure {
        let mut config = Config::default();
        change(&mut config);
        Disclosure::new(&config).unwrap()
    }

    #[test]
    fn texts_are_shown_unless_explanations_are_off_or_a_service_of_the_trace_is_withheld() {
        let mut trace =
            Script::new("How high?").calls("", &[("visit", "{}")]).returns("8").says("8.").build();
        let last = trace.views.len() - 1;
        trace.views[last].service = Some("payroll-eu".into());
        assert!(disclosure(|_| ()).shows_texts(&trace));
        assert!(!disclosure(|config| config.explanations = Explanations::Off).shows_texts(&trace));
        assert!(!disclosure(|config| config.ask.withhold = vec!["payroll*".to_owned()]).shows_texts(&trace));
        assert!(disclosure(|config| config.ask.withhold = vec!["billing".to_owned()]).shows_texts(&trace));
    }

    #[test]
    fn texts_are_redacted_like_explanations() {
        let text = "mail to someone@example.org";
        assert_eq!(disclosure(|_| ()).redacted(text), "mail to [redacted: e-mail]");
        assert_eq!(disclosure(|config| config.redact.explanations = false).redacted(text), text);
    }
}
