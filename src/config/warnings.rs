//! Settings that are valid and probably unintended.
//!
//! In: a configuration. Out: warnings, which `validate` prints and `run` logs.

use std::collections::BTreeSet;
use std::time::Duration;

use super::root::Config;
use crate::export::config::ExporterConfig;

impl Config {
    /// Whether `name` is a judge or a cascade of judges, either of which metrics may name.
    pub fn has_judge(&self, name: &str) -> bool {
        self.judges.contains_key(name) || self.judging.cascades.contains_key(name)
    }

    /// Every name for which [`Config::has_judge`] is true.
    pub fn judge_names(&self) -> impl Iterator<Item = &str> {
        self.judges.keys().chain(self.judging.cascades.keys()).map(String::as_str)
    }

    /// The judges that metrics name, by themselves or as members of a cascade.
    pub fn asked_judges(&self) -> BTreeSet<&str> {
        let named = self.verdict.evaluation.named_judges();
        named.flat_map(|(_, name)| self.judging.members(name)).collect()
    }

    /// Settings that are valid and probably unintended, one sentence each.
    pub fn warnings(&self) -> Vec<String> {
        let asked = self.asked_judges();
        let judges = self
            .judges
            .iter()
            .filter(|(name, judge)| asked.contains(name.as_str()) && judge.replay.is_none());
        let max_wait: Duration = *self.verdict.max_wait;
        let used = &self.service.exporters;
        let unused = self.exporters.0.keys().filter(|id| !used.contains(id));
        let mut out: Vec<String> = unused
            .map(|id| format!("exporters.{id} is not in service.exporters: it is not started"))
            .collect();
        for (name, judge) in judges {
            let has_price = judge.price.input > 0.0 || judge.price.output > 0.0;
            let budgets = [&self.judging.budget, &judge.budget];
            if has_price && !budgets.iter().any(|b| b.per_hour.is_limited() || b.per_day.is_limited()) {
                out.push(format!(
                    "neither judging.budget nor judges.{name}.budget has a limit per_hour or per_day: clients that send \
                     spans decide how much the judge costs"
                ));
            }
            let attempts = judge.timeout.saturating_mul(judge.retries.saturating_add(1));
            if max_wait < attempts {
                out.push(format!(
                    "verdict.max_wait ({}) is shorter than {} attempts of judges.{name} with its timeout ({}): what it \
                     answers later is unmeasured (timeout)",
                    humantime::format_duration(max_wait),
                    judge.retries.saturating_add(1),
                    humantime::format_duration(*judge.timeout),
                ));
            }
        }
        for (_, cascade) in self.verdict.evaluation.named_judges() {
            let cascade_judges =
                self.judging.members(cascade).into_iter().filter_map(|name| self.judges.get(name));
            let attempts =
                cascade_judges.map(|judge| judge.timeout.saturating_mul(judge.retries.saturating_add(1)));
            let sum = attempts.fold(Duration::ZERO, Duration::saturating_add);
            let message = format!(
                "verdict.max_wait ({}) is shorter than the attempts of all judges of judging.cascades.{cascade} ({}), \
                 which are asked one after the other",
                humantime::format_duration(max_wait),
                humantime::format_duration(sum),
            );
            if self.judging.cascades.contains_key(cascade) && max_wait < sum && !out.contains(&message) {
                out.push(message);
            }
        }
        if self.verdict.evaluation.metrics.has_checklist_without_judge() {
            out.push(
                "verdict.metrics.checklist has questions without a check, or generate, and no judge is named for them \
                 (checklist.judges or metrics.judges): they are unmeasured (undecided)"
                    .to_owned(),
            );
        }
        let exports_to_kafka =
            self.exporters.0.values().any(|exporter| matches!(exporter, ExporterConfig::Kafka(_)));
        if cfg!(not(feature = "kafka")) && (exports_to_kafka || self.receivers.kafka.is_some()) {
            out.push(format!(
                "receivers.kafka or an exporter of type kafka: {}",
                crate::kafka::FEATURE_MISSING
            ));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use verdict_config::Source;

    #[test]
    fn an_exporter_that_is_not_used_is_warned_of() {
        let warnings = |service: &str| {
            let text =
                format!("exporters: {{ console: {{}}, file: {{ path: x }} }}\nservice: {{ {service} }}");
            let sources = [Source { name: "test".to_owned(), text }];
            crate::config::from_sources(&sources, &|_| None).unwrap().warnings()
        };
        assert_eq!(warnings(""), [""; 0]);
        let found_warnings = warnings("exporters: [console]");
        assert!(
            found_warnings.len() == 1 && found_warnings[0].starts_with("exporters.file is not in"),
            "{found_warnings:?}"
        );
    }

    #[test]
    fn a_checklist_that_needs_a_judge_and_has_none_is_warned_of() {
        let warnings = |metrics: &str| {
            let text = format!(
                "verdict: {{ metrics: {{ {metrics} }} }}\njudges: {{ main: {{ endpoint: 'http://h/v1', model: m }} }}"
            );
            let sources = [Source { name: "test".to_owned(), text }];
            crate::config::from_sources(&sources, &|_| None).unwrap().warnings()
        };
        let unchecked = "checklist: { fixed: [{ items: [{ question: 'Is it polite?' }] }]";
        let found_warnings = warnings(&format!("{unchecked} }}"));
        assert!(
            found_warnings.len() == 1 && found_warnings[0].contains("no judge is named"),
            "{found_warnings:?}"
        );
        assert_eq!(warnings("checklist: { generate: true }").len(), 1);
        assert!(
            warnings(&format!("{unchecked}, judges: [main] }}")).iter().all(|w| !w.contains("checklist"))
        );
        assert!(
            warnings("checklist: { fixed: [{ items: [{ question: 'A?', check: { answer: date } }] }] }")
                .is_empty()
        );
        assert!(warnings("checklist: { enabled: false, generate: true }").is_empty());
    }

    #[test]
    fn a_wait_that_is_shorter_than_the_attempts_of_an_asked_judge_is_warned_of() {
        let warnings = |max_wait: &str, judges: &str| {
            let text = format!(
                "verdict: {{ max_wait: {max_wait}, metrics: {{ judges: [{judges}] }} }}\n\
                 judges: {{ main: {{ endpoint: 'http://h/v1', model: m, timeout: 10s, retries: 1 }} }}"
            );
            let sources = [Source { name: "test".to_owned(), text }];
            crate::config::from_sources(&sources, &|_| None).unwrap().warnings()
        };
        let found_warnings = warnings("19s", "rules, main");
        assert!(
            found_warnings.len() == 1
                && found_warnings[0].starts_with("verdict.max_wait (19s) is shorter than 2 attempts"),
            "{found_warnings:?}"
        );
        assert!(warnings("20s", "rules, main").is_empty());
        assert!(warnings("1s", "rules").is_empty());
    }

    #[test]
    fn a_wait_that_is_shorter_than_the_attempts_of_a_cascade_is_warned_of() {
        let warnings = |max_wait: &str| {
            let judge = "{ endpoint: 'http://h/v1', model: m, timeout: 10s, retries: 1 }";
            let text = format!(
                "verdict: {{ max_wait: {max_wait}, metrics: {{ judges: [careful] }} }}\n\
                 judges: {{ small: {judge}, strong: {judge} }}\n\
                 judging: {{ cascades: {{ careful: {{ first: small, then: strong }} }} }}"
            );
            let sources = [Source { name: "test".to_owned(), text }];
            crate::config::from_sources(&sources, &|_| None).unwrap().warnings()
        };
        let found_warnings = warnings("39s");
        assert!(
            found_warnings.len() == 1 && found_warnings[0].contains("judging.cascades.careful (40s)"),
            "{found_warnings:?}"
        );
        assert!(warnings("40s").is_empty());
        assert_eq!(warnings("19s").len(), 3, "each member by itself too");
    }

    #[test]
    fn a_judge_with_a_price_and_without_a_budget_is_warned_of() {
        let warnings = |judge: &str, judging: &str| {
            let text = format!(
                "verdict: {{ metrics: {{ judges: [main] }} }}\njudging: {{ {judging} }}\n\
                 judges: {{ main: {{ endpoint: 'http://h/v1', model: m, {judge} }} }}"
            );
            let sources = [Source { name: "test".to_owned(), text }];
            crate::config::from_sources(&sources, &|_| None).unwrap().warnings()
        };
        let found_warnings = warnings("price: { input: 1, output: 4 }", "");
        assert!(
            found_warnings.len() == 1 && found_warnings[0].contains("judges.main.budget has a limit"),
            "{found_warnings:?}"
        );
        let per_trace = "price: { input: 1, output: 4 }, budget: { per_trace: { usd: 1 } }";
        assert_eq!(warnings(per_trace, "").len(), 1, "the number of traces has no limit");
        let per_day = "price: { input: 1, output: 4 }, budget: { per_day: { tokens: 9000000 } }";
        assert!(warnings(per_day, "").is_empty());
        assert!(warnings("price: { input: 1, output: 4 }", "budget: { per_hour: { usd: 2 } }").is_empty());
        assert!(warnings("", "").is_empty(), "without a price it may be a model of one's own");
    }

    #[test]
    fn defaults_of_a_judge_and_of_the_wait_fit() {
        let text = "verdict: { metrics: { judges: [main] } }\njudges: { main: { endpoint: 'http://h/v1', model: m } }";
        let sources = [Source { name: "test".to_owned(), text: text.to_owned() }];
        let config = crate::config::from_sources(&sources, &|_| None).unwrap();
        assert!(config.warnings().is_empty(), "{:?}", config.warnings());
    }
}
