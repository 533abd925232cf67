//! Tests of the loader: problems, merging, variables.

use verdict_config::{Invalid, MemoryBudget, Period, Size, Source};

use super::*;
use crate::export::config::ExporterConfig;

fn load(text: &str) -> Result<Config, Invalid> {
    load_all(&[text])
}

fn load_all(texts: &[&str]) -> Result<Config, Invalid> {
    let sources: Vec<Source> = texts
        .iter()
        .enumerate()
        .map(|(i, text)| Source { name: format!("{i}.yaml"), text: (*text).to_owned() })
        .collect();
    let lookup = |name: &str| match name {
        "BUDGET" => Some("4096".to_owned()),
        "TOKEN" => Some("hunter2".to_owned()),
        _ => None,
    };
    from_sources(&sources, &lookup)
}

fn faults(text: &str) -> Vec<String> {
    load(text).expect_err("should be refused").lines().to_vec()
}

#[test]
fn empty_configuration_has_the_defaults() {
    let json = |c: Config| serde_json::to_value(c).unwrap();
    assert_eq!(json(load("").unwrap()), json(load_all(&[]).unwrap()));
}

#[test]
fn every_problem_is_reported_at_once_with_line_and_key() {
    let found_problems = faults(
        "verdict:\n  moed: annotate\n  max_wait: soon\n  close: { quiet: [1], idel: 5m }\n  emit: [attributs]\nservce: {}\nmemory: { budget: \"${env:UNSET}\" }\n",
    );
    let expected = [
        "0.yaml:2:3: verdict.moed: no such key; did you mean 'mode'?",
        "0.yaml:3:13: verdict.max_wait: 'soon' is not a duration",
        "0.yaml:4:19: verdict.close.quiet: expected a string, found a list",
        "0.yaml:4:24: verdict.close.idel: no such key; did you mean 'idle'?",
        "0.yaml:5:10: verdict.emit[0]: 'attributs' is not one of attributes, log_events, span_events, braintrust_scores; did you mean 'attributes'?",
        "0.yaml:6:1: servce: no such section; did you mean 'service'?",
        "0.yaml:7:19: memory.budget: environment variable UNSET is not set",
    ];
    for (line, expected) in found_problems.iter().zip(expected) {
        assert!(line.starts_with(expected), "{line}\n  expected {expected}");
    }
    assert_eq!(found_problems.len(), expected.len(), "{found_problems:#?}");
}

#[test]
fn problems_of_several_files_name_their_file() {
    let found_problems =
        load_all(&["verdict: { mode: x }", "verdict:\n  close: { max_spans: many }", "a: ["]);
    let found_problems = found_problems.unwrap_err().lines().to_vec();
    assert!(found_problems[0].starts_with("0.yaml:1:18: verdict.mode"), "{found_problems:?}");
    assert!(found_problems[1].starts_with("1.yaml:2:23: verdict.close.max_spans"), "{found_problems:?}");
    assert!(found_problems[2].starts_with("2.yaml:1:"), "{found_problems:?}");
}

#[test]
fn cache_and_journal_have_different_folders() {
    let text_with = |cache: &str| {
        format!("judging: {{ cache: {{ directory: {cache} }} }}\nstorage: {{ directory: data }}")
    };
    assert!(load(&text_with("cache")).is_ok());
    let found_problems = load(&text_with("data/")).unwrap_err().lines().to_vec();
    assert!(found_problems[0].contains("judging.cache.directory: name another folder"), "{found_problems:?}");
}

#[test]
fn later_files_override_key_by_key() {
    let config =
        load_all(&["verdict: { close: { quiet: 1s, idle: 2s } }", "verdict: { close: { idle: 3s } }"]);
    let close = config.unwrap().verdict.close;
    assert_eq!((close.quiet, close.idle), (Period::secs(1), Period::secs(3)));
}

#[test]
fn a_variable_may_be_a_number_and_its_value_is_not_shown_in_messages() {
    assert_eq!(
        load("memory: { budget: '${env:BUDGET}' }").unwrap().memory.budget,
        MemoryBudget::Bytes(Size(4096))
    );
    let found_problems = faults("memory: { budget: '${env:TOKEN}' }\nverdict: { mode: '${env:TOKEN}' }");
    assert_eq!(found_problems.len(), 2);
    assert!(found_problems.iter().all(|line| !line.contains("hunter2")), "{found_problems:?}");
}

#[test]
fn judges_are_checked_and_metrics_name_defined_ones() {
    let found_problems = faults(
        "judges:\n  main: { endpoint: 'http://h/v1', model: m, api_key: hunter2, samples: 2, temperature: 0 }\n  rules: { model: m }\n\
         verdict: { metrics: { judges: [rules, mian], avoidance: { judges: [main, other] } } }\n\
         judging: { budget: { per_day: { usd: -1 } }, cahe: {} }",
    );
    let keys: Vec<&str> = found_problems.iter().filter_map(|line| line.split(": ").nth(1)).collect();
    let expected = [
        "judges.main.api_key",
        "judges.main.temperature",
        "judges.rules",
        "judges.rules.endpoint",
        "verdict.metrics.avoidance.judges",
        "verdict.metrics.judges",
        "judging.budget.per_day.usd",
        "judging.cahe",
    ];
    let mut sorted = keys.clone();
    sorted.sort_unstable();
    let mut expected_keys = expected.to_vec();
    expected_keys.sort_unstable();
    assert_eq!(sorted, expected_keys, "{found_problems:#?}");
    assert!(found_problems.iter().all(|line| !line.contains("hunter2")), "{found_problems:?}");
    assert!(found_problems.iter().any(|line| line.contains("did you mean 'main'")), "{found_problems:?}");
}

#[test]
fn a_judge_that_only_replays_needs_no_endpoint_and_files_are_not_shared() {
    load("judges: { main: { replay: run.jsonl } }\nverdict: { metrics: { judges: [main] } }").unwrap();
    let found_problems = faults("judges: { a: { replay: run.jsonl }, b: { replay: run.jsonl } }");
    assert!(found_problems.len() == 1 && found_problems[0].contains("judges.b.replay"), "{found_problems:?}");
    let printed = load(
        "judges: { a: { endpoint: 'http://h', model: m, api_key: '${env:TOKEN}', headers: { x: '${env:TOKEN}' } } }",
    );
    let printed = printed.unwrap().to_yaml().unwrap();
    assert!(!printed.contains("hunter2") && printed.contains("[redacted]"), "{printed}");
}

#[test]
fn contradictory_values_are_problems() {
    let found_problems =
        faults("verdict:\n  emit: []\n  prefix: Verdict\n  metrics:\n    completeness: { threshold: 9 }");
    assert_eq!(found_problems.len(), 3, "{found_problems:#?}");
    assert!(
        found_problems[2].starts_with("0.yaml:5:21: verdict.metrics.completeness.threshold"),
        "{found_problems:?}"
    );
    assert_eq!(faults("- a list").len(), 1);
}

#[test]
fn an_exporter_that_is_named_must_be_defined() {
    let found_problems = faults(
        "exporters: { console: {}, otlp_grpc/b: { endpoint: 'a:1' } }\nservice: { exporters: [consol, otlp_grpc, console, console] }",
    );
    assert_eq!(found_problems.len(), 3, "{found_problems:#?}");
    assert!(
        found_problems[0].contains("service.exporters[0]: 'consol' is not defined")
            && found_problems[0].contains("console")
    );
    assert!(
        found_problems[2].starts_with("0.yaml:2:") && found_problems[2].contains("named twice"),
        "{found_problems:?}"
    );
    let config = load("exporters: { console: {}, file/a: { path: x } }").unwrap();
    assert_eq!(config.service.exporters, ["console", "file/a"]);
    assert_eq!(load("").unwrap().service.exporters, ["otlp_grpc"]);
}

#[test]
fn problems_of_exporters_name_the_exporter() {
    let found_problems = faults(
        "exporters:\n  nats: {}\n  otlp_htp/a: { endpoint: x }\n  otlp_grpc:\n    endpiont: a:1\n    tls: { insecure: perhaps }\n  file: {}\nservice: { exporters: [nats, otlp_grpc] }",
    );
    let keys: Vec<&str> = found_problems.iter().filter_map(|line| line.split(": ").nth(1)).collect();
    let expected = [
        "exporters.nats",
        "exporters.otlp_htp/a",
        "exporters.otlp_grpc.endpoint",
        "exporters.otlp_grpc.endpiont",
        "exporters.otlp_grpc.tls.insecure",
        "exporters.file.path",
    ];
    assert_eq!(keys, expected, "{found_problems:#?}");
}

#[test]
fn header_of_digits_is_read_as_text() {
    let yaml = "exporters: { otlp_http: { endpoint: 'http://a:1', headers: { x-pin: 0123, x-other: \"${env:BUDGET}\" } } }";
    let config = load(yaml).unwrap();
    let ExporterConfig::Http(http) = &config.exporters.0["otlp_http"] else { panic!("not http") };
    assert_eq!(http.headers["x-pin"].expose(), "0123");
    assert_eq!(http.headers["x-other"].expose(), "4096");
    let printed = config.to_yaml().unwrap();
    assert!(
        !printed.contains("0123") && !printed.contains("4096") && printed.contains("[redacted]"),
        "{printed}"
    );
}

#[test]
fn value_from_a_file_is_valid_if_files_are_not_opened() {
    let yaml = "memory: { budget: '${file:/run/budget}' }\nverdict: { prefix: '${file:/run/prefix}' }\n\
         receivers: { otlp: { protocols: { grpc: { auth: { bearer_token: '${file:/run/token}' } } } } }";
    load(yaml).unwrap();
    // The same keys of a later file are checked.
    let found_problems = load_all(&[yaml, "verdict: { prefix: Bad }"]).unwrap_err().lines().to_vec();
    assert!(
        found_problems.len() == 1 && found_problems[0].starts_with("1.yaml:1:12: verdict.prefix"),
        "{found_problems:?}"
    );
}

#[test]
fn the_content_of_a_file_is_used_and_a_missing_file_is_a_problem() {
    let folder = tempfile::tempdir().unwrap();
    let (budget, config) = (folder.path().join("budget"), folder.path().join("config.yaml"));
    std::fs::write(&config, format!("memory: {{ budget: '${{file:{}}}' }}", budget.display())).unwrap();
    let found_problems = super::load(&[&config]).unwrap_err().lines().to_vec();
    assert!(
        found_problems.len() == 1 && found_problems[0].contains("memory.budget: cannot read"),
        "{found_problems:?}"
    );
    assert!(super::check(&[&config]).is_ok());
    std::fs::write(&budget, "64MiB\n").unwrap();
    assert_eq!(super::load(&[&config]).unwrap().memory.budget, MemoryBudget::Bytes(Size(64 << 20)));
    std::fs::write(&budget, "hunter2").unwrap();
    let found_problems = super::load(&[&config]).unwrap_err().lines().to_vec();
    assert!(found_problems.len() == 1 && !found_problems[0].contains("hunter2"), "{found_problems:?}");
}

#[test]
fn credentials_of_senders_come_from_outside_and_empty_ones_are_problems() {
    let found_problems = faults(
        "receivers:\n  otlp:\n    protocols:\n      grpc:\n        auth: { bearer_token: hunter2 }\n        tls:\n\
         \x20     http:\n        auth: { basic: { username: a, password: x } }\n        cors: { allowed_origins: [a.test] }\n",
    );
    assert!(found_problems.iter().all(|line| !line.contains("hunter2")), "{found_problems:?}");
    let keys: Vec<&str> = found_problems.iter().filter_map(|line| line.split(": ").nth(1)).collect();
    let expected_keys = [
        "grpc.auth.bearer_token",
        "grpc.tls",
        "grpc.tls",
        "http.auth.basic.password",
        "http.cors.allowed_origins[0]",
    ];
    assert!(keys.len() >= 4, "{found_problems:#?}");
    for key in expected_keys {
        let whole = format!("receivers.otlp.protocols.{key}");
        assert!(
            keys.iter().any(|k| *k == whole || k.starts_with(&format!("{whole}."))),
            "{key}: {found_problems:#?}"
        );
    }
    let found_problems =
        faults("receivers: { otlp: { protocols: { grpc: { auth: { bearer_token: '${env:UNSET}' } } } } }");
    assert!(
        found_problems.len() == 1 && found_problems[0].contains("UNSET is not set"),
        "{found_problems:?}"
    );
    let found_problems = faults("receivers: { otlp: { protocols: { grpc: { auth: } } } }");
    assert!(found_problems[0].contains("grpc.auth: no sender could authenticate"), "{found_problems:?}");
    let good = "receivers: { otlp: { protocols: { http: { auth: { basic: { username: a, password: '${env:TOKEN}' } }, \
         tls: { cert_file: c, key_file: k, min_version: 1.3, reload_interval: 0 } } } } }";
    let printed = load(good).unwrap().to_yaml().unwrap();
    assert!(!printed.contains("hunter2") && printed.contains("[redacted]"), "{printed}");
}

#[test]
fn headers_with_secrets_come_from_outside_and_others_need_not() {
    let found_problems = faults(
        "exporters:\n  otlp_http/a.b: { endpoint: 'http://a:1', headers: { X-Api-Key: hunter2, x-tenant: me } }\n\
         judges:\n  main: { endpoint: 'http://h', model: m, headers: { Proxy-Authorization: hunter2 } }\n",
    );
    let keys: Vec<&str> = found_problems.iter().filter_map(|line| line.split(": ").nth(1)).collect();
    assert_eq!(
        keys,
        ["exporters.otlp_http/a.b.headers.X-Api-Key", "judges.main.headers.Proxy-Authorization"]
    );
    assert!(
        found_problems.iter().all(|line| !line.contains("hunter2") && line.contains("${env:NAME}")),
        "{found_problems:?}"
    );
    load("exporters: { otlp_http: { endpoint: 'http://a:1', headers: { authorization: 'Bearer ${env:TOKEN}' } } }")
        .unwrap();
}

fn shipped(name: &str) -> String {
    std::fs::read_to_string(format!("{}/config/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

#[test]
fn the_reference_equals_the_defaults() {
    let reference = load(&shipped("reference.yaml")).unwrap().to_yaml().unwrap();
    let default = Config::default().to_yaml().unwrap();
    for (reference, default) in reference.lines().zip(default.lines()) {
        assert_eq!(reference, default, "config/reference.yaml (left) is not the defaults (right)");
    }
    assert_eq!(reference.len(), default.len());
    load(&shipped("quickstart.yaml")).unwrap();
}

#[test]
fn the_reference_still_validates_with_its_optional_sections() {
    // Lines such as `#  endpoint: ...`: a comment sign right before a key.
    let text: String = shipped("reference.yaml")
        .lines()
        .map(|line| {
            let indent = line.len() - line.trim_start().len();
            let rest = line.trim_start();
            let key = rest.strip_prefix('#').filter(|r| {
                let spaces = r.len() - r.trim_start().len();
                indent > 0 && (spaces == 0 || spaces == 2) && r.contains(':')
            });
            key.map_or(format!("{line}\n"), |key| format!("{}{key}\n", &line[..indent]))
        })
        .collect();
    let config = load(&text).unwrap_or_else(|e| panic!("{e}"));
    assert!(config.exporters.0.len() == 8, "the optional exporters were not uncommented");
    let judge = &config.judges["main"];
    let plain = verdict_judge::JudgeConfig {
        endpoint: judge.endpoint.clone(),
        model: judge.model.clone(),
        api_key: judge.api_key.clone(),
        ..Default::default()
    };
    assert_eq!(*judge, plain, "the reference shows the defaults of judges");
}

#[test]
fn the_reference_names_every_key_of_the_schema() {
    let reference = shipped("reference.yaml");
    let schema = Config::schema();
    let mut keys = Vec::new();
    properties(&schema, &mut keys);
    keys.sort_unstable();
    keys.dedup();
    assert!(keys.len() > 80, "the schema was not walked: {keys:?}");
    let missing: Vec<&&str> = keys.iter().filter(|key| !reference.contains(&format!("{key}:"))).collect();
    assert!(missing.is_empty(), "config/reference.yaml does not name {missing:?}");
}

#[test]
fn the_schema_accepts_a_section_whose_entries_are_comments() {
    assert!(shipped("reference.yaml").contains("\njudges:\n  #"), "the reference has such a section");
    let schema = Config::schema();
    assert_eq!(schema["properties"]["judges"]["type"], serde_json::json!(["object", "null"]));
}

#[test]
fn the_schema_accepts_the_shipped_files_and_refuses_a_wrong_key() {
    let schema = verdict_eval::schema::Schema::compile(&Config::schema());
    assert_eq!(schema.problem(), None);
    let check = |text: &str| {
        // The parser limits comments in a row.
        let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
        let text = lines.collect::<Vec<_>>().join("\n");
        let value: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
        let checked = schema.check_within(&value, u64::MAX);
        let problems: Vec<String> = checked.problems.iter().map(|problem| format!("{problem:?}")).collect();
        (checked.validity, problems)
    };
    for name in ["reference.yaml", "quickstart.yaml"] {
        let (validity, problems) = check(&shipped(name));
        assert!(validity == verdict_eval::schema::Validity::Valid, "{name}: {validity:?} {problems:?}");
    }
    let (validity, problems) = check("verdict: { mode: anotate }");
    assert!(validity == verdict_eval::schema::Validity::Invalid, "{problems:?}");
}

/// Every property name anywhere in a schema.
fn properties<'a>(schema: &'a serde_json::Value, keys: &mut Vec<&'a str>) {
    match schema {
        serde_json::Value::Object(entries) => {
            for (name, inner) in entries {
                if let (true, Some(named)) = (name == "properties", inner.as_object()) {
                    keys.extend(named.keys().map(String::as_str));
                }
                properties(inner, keys);
            }
        }
        serde_json::Value::Array(items) => items.iter().for_each(|item| properties(item, keys)),
        _ => {}
    }
}

proptest::proptest! {
    /// Any text is read or refused, without a panic.
    #[test]
    fn any_change_of_a_good_file_is_read_or_refused(
        at in 0usize..12_000, cut in 0usize..40, inserted in "[\\PC\n ]{0,12}"
    ) {
        let text: Vec<char> = shipped("reference.yaml").chars().collect();
        let at = at.min(text.len());
        let rest = text.iter().skip(at + cut);
        let changed: String = text.iter().take(at).copied().chain(inserted.chars()).chain(rest.copied()).collect();
        if let Err(invalid) = load(&changed) {
            proptest::prop_assert!(!invalid.lines().is_empty());
        }
    }
}

#[test]
fn a_cascade_is_named_like_a_judge_and_never_with_its_members() {
    let judges = "judges: { small: { endpoint: 'http://h/v1', model: s }, strong: { endpoint: 'http://h/v1', model: m } }\n\
                  judging: { cascades: { careful: { first: small, then: strong } } }\n";
    let load_with = |metrics: &str| load(&format!("{judges}verdict: {{ metrics: {{ {metrics} }} }}"));
    let config =
        load_with("judges: [rules, careful], checklist: { by_class: { coding: [careful] } }").unwrap();
    assert_eq!(config.asked_judges().into_iter().collect::<Vec<_>>(), ["small", "strong"]);
    let fault = |metrics: &str| load_with(metrics).expect_err("should be refused").lines().join("; ");
    let twice = fault("judges: [careful, small]");
    assert!(twice.contains("asks 'small' twice: it is in cascade 'careful'"), "{twice}");
    let unknown = fault("judges: [carefull]");
    assert!(
        unknown.contains("'carefull' is not defined under judges") && unknown.contains("careful"),
        "{unknown}"
    );
    let runner = fault("checklist: { judges: [careful], run_code: careful }");
    assert!(runner.contains("'careful' is a cascade; a judge of dialect 'evaluator' is needed"), "{runner}");
    let runner = fault("checklist: { judges: [careful], run_code: small }");
    assert!(runner.contains("'small' is a judge of dialect 'openai'; 'evaluator' is needed"), "{runner}");
    let faults = faults("judging: { cascades: { careful: { first: small, then: careful } } }");
    assert!(faults[0].contains("judging.cascades.careful"), "{faults:?}");
}
