//! Reload: the part of a new configuration that a running process applies, and the part that needs a restart.
//!
//! In: the current and the new configuration. Out: the configuration after the reload, and the keys in which
//! two configurations differ. Listeners, that of `verdict.paths_api` included, exporters and storage have open
//! sockets, files and spans, and are not changed, except the headers and keys of exporters. Exporters read their
//! certificates again themselves.

use std::collections::BTreeSet;

use serde_json::Value;

use super::root::Config;

impl Config {
    /// This configuration with everything of `new` that can change while running: `verdict` without its
    /// mode (buffered spans would be sent twice, or never), its listener and its prefix (exporters use it too), the
    /// judges, the headers and keys of exporters, the log level, and the shutdown timeout.
    #[must_use]
    pub fn with_reloadable(&self, new: &Config) -> Config {
        let mut applicable = self.clone();
        applicable.verdict = new.verdict.clone();
        applicable.verdict.mode = self.verdict.mode;
        applicable.verdict.paths_api.clone_from(&self.verdict.paths_api);
        applicable.verdict.evaluation.prefix.clone_from(&self.verdict.evaluation.prefix);
        for (id, exporter) in &mut applicable.exporters.0 {
            if let Some(new) = new.exporters.0.get(id) {
                exporter.copy_credentials(new);
            }
        }
        applicable.judges.clone_from(&new.judges);
        applicable.judging.clone_from(&new.judging);
        applicable.service.log_level.clone_from(&new.service.log_level);
        applicable.service.shutdown_timeout = new.service.shutdown_timeout;
        applicable
    }

    /// The keys in which two configurations differ, in order; for a secret only its section.
    pub fn differences(&self, other: &Config) -> Vec<String> {
        let mut differing_keys = BTreeSet::new();
        // A configuration that was loaded can always be serialised.
        let to_json = |config: &Config| serde_json::to_value(config).unwrap_or_default();
        compare(&to_json(self), &to_json(other), "", &mut differing_keys);
        let secrets = [
            (
                "receivers",
                self.receivers.otlp != other.receivers.otlp || self.receivers.kafka != other.receivers.kafka,
            ),
            ("verdict.paths_api", self.verdict.paths_api != other.verdict.paths_api),
            ("page", self.page != other.page),
            ("service.telemetry", self.service.telemetry != other.service.telemetry),
            ("judges", self.judges != other.judges),
            ("exporters", self.exporters != other.exporters),
        ];
        for (section, differs) in secrets {
            if differs && !differing_keys.iter().any(|key| key.starts_with(section)) {
                differing_keys.insert(section.to_owned());
            }
        }
        differing_keys.into_iter().collect()
    }
}

/// Adds the paths of the values that differ. Recursion is bounded by the loader's limit on depth.
fn compare(a: &Value, b: &Value, path: &str, differing_keys: &mut BTreeSet<String>) {
    let (Value::Object(left), Value::Object(right)) = (a, b) else {
        if a != b {
            differing_keys.insert(path.to_owned());
        }
        return;
    };
    let keys: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
    for key in keys {
        let value_path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let value_in = |map: &serde_json::Map<String, Value>| map.get(key).cloned().unwrap_or_default();
        compare(&value_in(left), &value_in(right), &value_path, differing_keys);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::from_sources;
    use verdict_config::Source;

    fn config(text: &str) -> Config {
        let token = |name: &str| Some(name.to_owned());
        from_sources(&[Source { name: "c".to_owned(), text: text.to_owned() }], &token).unwrap()
    }

    #[test]
    fn reloadable_keys_are_applied_and_the_others_are_named() {
        let old = config("");
        let new = config(
            "verdict: { mode: shadow, prefix: v., close: { idle: 1s }, metrics: { latency: { max_ms: { llm: 1 } } } }\n\
             service: { log_level: debug, log_format: json }\nmemory: { budget: 1MiB }\n\
             receivers: { otlp: { protocols: { grpc: { endpoint: '127.0.0.1:1' } } } }",
        );
        let applicable = old.with_reloadable(&new);
        let changed = ["service.log_level", "verdict.close.idle", "verdict.metrics.latency.max_ms.llm"];
        assert_eq!(old.differences(&applicable), changed);
        let needs_restart = applicable.differences(&new);
        for key in ["memory.budget", "verdict.mode", "verdict.prefix", "service.log_format"] {
            assert!(needs_restart.iter().any(|k| k == key), "{key}: {needs_restart:?}");
        }
        assert!(
            needs_restart.iter().any(|k| k == "receivers.otlp.protocols.grpc.endpoint"),
            "{needs_restart:?}"
        );
        assert!(old.differences(&old).is_empty());
    }

    #[test]
    fn headers_of_exporters_are_applied() {
        let config_with = |rest: &str| {
            config(&format!(
                "exporters: {{ otlp_http: {{ {rest}, headers: {{ authorization: '${{env:TOKEN}}' }} }} }}"
            ))
        };
        let (old, mut new) = (config_with("endpoint: 'http://a'"), config_with("endpoint: 'http://b'"));
        let exporter = new.exporters.0.get_mut("otlp_http").unwrap();
        let renewed = serde_saphyr::from_str::<crate::export::config::ExporterConfigs>(
            "otlp_http: { headers: { authorization: renewed } }",
        );
        exporter.copy_credentials(&renewed.unwrap().0["otlp_http"]);
        let applicable = old.with_reloadable(&new);
        assert_eq!(old.differences(&applicable), ["exporters"]);
        assert_eq!(applicable.differences(&new), ["exporters.otlp_http.endpoint"]);
    }

    #[test]
    fn the_password_of_a_kafka_exporter_is_applied_and_its_certificates_are_watched() {
        let config_with = |name: &str| {
            config(&format!(
                "exporters: {{ kafka: {{ brokers: ['b:9092'], tls: {{ ca_file: /ca }}, \
                 auth: {{ sasl: {{ username: u, password: '${{env:{name}}}' }} }} }} }}"
            ))
        };
        let (old, new) = (config_with("OLD"), config_with("NEW"));
        assert!(old.exporters != new.exporters && old.with_reloadable(&new).exporters == new.exporters);
        assert_eq!(old.exporters.0["kafka"].files().collect::<Vec<_>>(), [std::path::Path::new("/ca")]);
    }

    #[test]
    fn a_changed_secret_is_reported_by_its_section_only() {
        let config_with = |name: &str| {
            config(&format!(
                "receivers: {{ otlp: {{ protocols: {{ grpc: {{ auth: {{ bearer_token: '${{env:{name}}}' }} }} }} }} }}"
            ))
        };
        assert_eq!(config_with("A").differences(&config_with("B")), ["receivers"]);
        assert!(config_with("A").differences(&config_with("A")).is_empty());
    }
}
