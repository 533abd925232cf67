//! The plans that are measured in traces.

use otel_verdict::receive::Offer;
use serde_json::{Value, json};
use verdict_otlp::Signal;

use super::{QUERY, REFUND, stdout_text};
use crate::binary::{run, write_file};
use crate::scrape::http;
use crate::support::Process;

/// A planner's run as an SDK would send it: an agent, and the model call that wrote `plan`.
fn recording(plan: &str) -> String {
    let attribute = |key: &str, value: &str| json!({ "key": key, "value": { "stringValue": value } });
    let message = |role: &str, text: &str| {
        json!([{ "role": role, "parts": [{ "type": "text", "content": text }] }]).to_string()
    };
    let span = |id: &str, parent: &str, name: &str, attributes: Vec<Value>| {
        json!({
            "traceId": "5b8efff798038103d269b633813fc60c", "spanId": id, "parentSpanId": parent, "name": name,
            "startTimeUnixNano": "1000000000", "endTimeUnixNano": "2000000000", "attributes": attributes,
        })
    };
    let agent =
        vec![attribute("gen_ai.operation.name", "invoke_agent"), attribute("gen_ai.agent.name", "planner")];
    let model = vec![
        attribute("gen_ai.operation.name", "chat"),
        attribute("gen_ai.request.model", "m"),
        attribute("gen_ai.input.messages", &message("user", QUERY)),
        attribute("gen_ai.output.messages", &message("assistant", plan)),
    ];
    let spans = json!([
        span("00f067aa0ba902b7", "", "invoke_agent planner", agent),
        span("00f067aa0ba902b8", "00f067aa0ba902b7", "chat m", model),
    ]);
    json!({ "resourceSpans": [{ "scopeSpans": [{ "spans": spans }] }] }).to_string()
}

/// Results of the plan metrics in a judged recording, by name.
fn plan_measurements(folder: &tempfile::TempDir, plan: &str, config: &str) -> Vec<(String, Value)> {
    let trace = write_file(folder, "trace.json", &recording(plan));
    let output = run(&["eval", &trace, "--output", "json", "--config", config]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let report_json: Value = serde_json::from_str(stdout_text(&output)).unwrap();
    let spans = report_json["spans"].as_array().unwrap().iter();
    let all = spans.flat_map(|s| s["measurements"].as_array().unwrap().clone());
    all.filter_map(|m| Some((m["metric"].as_str()?.to_owned(), m.clone())))
        .filter(|(name, _)| name.starts_with("plan."))
        .collect()
}

#[test]
fn a_plan_in_a_trace_is_measured_if_enabled() {
    let folder = tempfile::tempdir().unwrap();
    let enabled = write_file(&folder, "on.yaml", "verdict: { metrics: { plan: { enabled: true } } }\n");
    let disabled = write_file(&folder, "off.yaml", "{}\n");
    assert_eq!(plan_measurements(&folder, REFUND, &disabled), []);
    assert_eq!(
        plan_measurements(&folder, "1. Search\n2. Answer", &enabled),
        [],
        "a list is not always a plan"
    );
    let measurement =
        |all: &[(String, Value)], name: &str| all.iter().find(|(n, _)| n == name).unwrap().1.clone();
    let good = plan_measurements(&folder, REFUND, &enabled);
    assert_eq!((good.len(), &measurement(&good, "plan.format")["score"]), (9, &json!(1.0)));
    assert_eq!(measurement(&good, "plan.score")["details"]["plan.hops"], 1);
    assert_eq!(measurement(&good, "plan.query_adherence")["reason"], "not_applicable");
    let broken = plan_measurements(&folder, &REFUND.replace("[1]}\n}", "[1"), &enabled);
    assert_eq!(
        (&measurement(&broken, "plan.format")["score"], &measurement(&broken, "plan.format")["result"]),
        (&json!(0.5), &json!("fail"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_measured_plan_metric_is_in_the_self_metrics() {
    let config = "verdict: { close: { quiet: 50ms }, metrics: { plan: { enabled: true } } }";
    let process = Process::start(config).await;
    let body = verdict_otlp::json::decode(Signal::Traces, recording(REFUND).as_bytes()).unwrap();
    process.client().send(&Offer { signal: Signal::Traces, body }).await;
    process.until("the trace", |destination| destination.spans().len() == 2).await;
    let page = http(process.service.admin.unwrap(), "GET /metrics", b"").await;
    for line in [
        "{metric=\"plan.format\",result=\"pass\"} 1",
        "{metric=\"plan.dependencies\",result=\"pass\"} 1",
        "{metric=\"plan.redundancy\",result=\"pass\"} 1",
        "{metric=\"plan.score\",result=\"pass\"} 1",
        "{metric=\"plan.rating\",result=\"unmeasured\"} 1",
    ] {
        assert!(page.contains(line), "no {line} in\n{page}");
    }
    process.stop().await;
}

#[test]
fn a_prose_plan_in_a_trace_is_measured_in_part() {
    let folder = tempfile::tempdir().unwrap();
    let config = write_file(&folder, "on.yaml", "verdict: { metrics: { plan: { enabled: true } } }\n");
    let all =
        plan_measurements(&folder, "Plan:\n1. Find both heights\n2. Subtract what step 1 gives", &config);
    let measurement = |name: &str| &all.iter().find(|(n, _)| n == name).unwrap().1;
    assert_eq!((all.len(), &measurement("plan.redundancy")["score"]), (9, &json!(1.0)));
    assert_eq!(measurement("plan.dependencies")["result"], "pass");
    assert_eq!(measurement("plan.score")["details"]["plan.hops"], 1);
    for name in ["plan.format", "plan.tool_prompt_alignment", "plan.score", "plan.rating"] {
        assert_eq!(
            (&measurement(name)["result"], &measurement(name)["reason"]),
            (&json!("unmeasured"), &json!("not_applicable")),
            "{name}"
        );
    }
}
