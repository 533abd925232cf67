//! Tests of `settings`: defaults, overrides, limits, judges and invalid values.

use super::*;
use crate::measure::testing::row;
use crate::recognise::{SpanView, Text};

fn read_settings(yaml: &str) -> Result<Settings, String> {
    serde_saphyr::from_str(yaml).map_err(|e| e.to_string())
}

fn one_llm_span(agent: &str, model: &str) -> AgentTrace {
    let view = SpanView {
        kind: Kind::Llm,
        agent: Some(Text::from(agent)),
        model: Some(Text::from(model)),
        ..SpanView::default()
    };
    AgentTrace { views: vec![view], owner: vec![None], ..AgentTrace::default() }
}

#[test]
fn empty_configuration_has_the_defaults() {
    let settings = read_settings("{}").unwrap();
    assert_eq!(*settings, MetricsConfig::default());
    let trace = one_llm_span("a", "m");
    assert!(settings.metric_settings(row("avoidance")).is_enabled_on(&trace, 0));
    assert_eq!(settings.threshold(row("completeness"), &trace, 0), 4.0);
    assert_eq!(settings.max_ms(&trace, 0), None);
    assert_eq!(settings.max_tokens(&trace, 0), None);
    assert!(
        settings.fails(row("avoidance"), "missing_knowledge")
            && !settings.fails(row("avoidance"), "policy_restriction")
    );
    assert!(settings.problems().is_empty());
}

#[test]
fn serialised_configuration_is_read_as_the_same() {
    let text = serde_json::to_string(&MetricsConfig::default()).unwrap();
    assert_eq!(*read_settings(&text).unwrap(), MetricsConfig::default());
}

#[test]
fn unknown_metric_or_key_is_an_error() {
    assert!(read_settings("helpfulness: { threshold: 3 }").is_err());
    assert!(read_settings("tool_abuse: { treshold: 3 }").is_err());
    assert!(read_settings("avoidance: { fail_labels: [rude] }").is_err());
}

#[test]
fn overrides_apply_where_all_their_keys_match() {
    let settings = read_settings(
        "tool_abuse:\n  overrides:\n  - { agent: planner, model: 'big-*', threshold: 2 }\n  - { kind: llm, enabled: false }\n",
    )
    .unwrap();
    let trace = one_llm_span("planner", "big-7");
    assert_eq!(settings.threshold(row("tool_abuse"), &trace, 0), 2.0);
    assert!(!settings.metric_settings(row("tool_abuse")).is_enabled_on(&trace, 0));
    assert_eq!(settings.threshold(row("tool_abuse"), &one_llm_span("planner", "small"), 0), 4.0);
}

#[test]
fn limits_prefer_agent_over_model_over_kind() {
    let settings = read_settings(
        "latency: { max_ms: { llm: 10 }, by_model: { 'big*': 20 }, by_agent: { slow: { llm: 30 } } }\n\
         tokens: { max: 1, by_model: { big: 2 } }\n",
    )
    .unwrap();
    assert_eq!(settings.max_ms(&one_llm_span("a", "m"), 0), Some(10.0));
    assert_eq!(settings.max_ms(&one_llm_span("a", "big-1"), 0), Some(20.0));
    assert_eq!(settings.max_ms(&one_llm_span("slow", "big-1"), 0), Some(30.0));
    assert_eq!(settings.max_tokens(&one_llm_span("a", "big"), 0), Some(2));
    assert_eq!(settings.max_tokens(&one_llm_span("a", "m"), 0), Some(1));
}

#[test]
fn invalid_values_are_reported_with_their_keys() {
    let settings = read_settings(
        "completeness: { threshold: 7 }\n\
         avoidance: { overrides: [ { threshold: 2 } ] }\n\
         latency: { max_ms: { tool: -1 } }\n",
    )
    .unwrap();
    let problems = settings.problems();
    let keys: Vec<&str> = problems.iter().map(|p| p.key.as_str()).collect();
    assert_eq!(keys, ["avoidance.overrides[0].threshold", "latency", "completeness.threshold"]);
}

#[test]
fn judges_are_those_of_the_metric_or_else_of_all_metrics() {
    let settings = read_settings(
        "judges: [rules, main]\ntool_abuse: { judges: [rules] }\navoidance: { judges: [big] }\n",
    )
    .unwrap();
    assert!(
        settings.is_measured_by_rules(row("completeness"))
            && settings.is_measured_by_rules(row("tool_abuse"))
            && settings.is_measured_by_rules(row("latency"))
    );
    assert!(!settings.is_measured_by_rules(row("avoidance")));
    assert_eq!(settings.judges(row("completeness")), ["main"]);
    assert!(settings.judges(row("tool_abuse")).is_empty());
    let named: Vec<(String, &str)> = settings.named_judges().collect();
    assert_eq!(named, [("judges".to_owned(), "main"), ("avoidance.judges".to_owned(), "big")]);
}
