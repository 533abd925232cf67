//! The bounds of the traces that the page keeps, and late spans in them.

use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::Value;

use super::{failing_run, get, get_when, listed, page};
use crate::support::text_attribute;

#[tokio::test(flavor = "multi_thread")]
async fn history_forgets_the_oldest_by_number_and_by_bytes() {
    let (process, address) = page(", max_traces: 3", "").await;
    let mut client = process.client();
    for trace in 1..=5 {
        client.spans(failing_run(trace, "shop", "x")).await;
        let latest = format!("{trace:02x}").repeat(16);
        get_when(address, "/api/traces", |page| page["traces"][0]["trace_id"] == latest.as_str()).await;
    }
    let list = listed(address, 3).await;
    let ids: Vec<&str> = list["traces"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| &row["trace_id"].as_str().unwrap()[..2])
        .collect();
    assert_eq!(ids, ["05", "04", "03"]);
    assert_eq!(get(address, &format!("/api/traces/{}", "01".repeat(16))).await.status, 404);
    let metrics = &process.service.telemetry().page;
    assert_eq!(metrics.traces.get(), 3);
    // Judged traces are still counted.
    let sums = get(address, "/api/overview").await.json();
    let counted: u64 = sums["overview"]["timeline"]
        .as_array()
        .unwrap()
        .iter()
        .map(|bar| bar["fail"].as_u64().unwrap())
        .sum();
    assert_eq!(counted, 5);
    Box::pin(process.stop()).await;

    let (process, _) = page(", max_memory: 1MiB", "").await;
    let mut client = process.client();
    for trace in 1..=100 {
        client.spans(failing_run(trace, "shop", &format!("{trace} {}", "text ".repeat(2_000)))).await;
    }
    process.until("every trace", |d| d.spans().len() == 200).await;
    let metrics = &process.service.telemetry().page;
    let (traces, bytes) = (metrics.traces.get(), metrics.bytes.get());
    assert!((1..100).contains(&traces) && bytes <= 1 << 20, "{traces} traces, {bytes} bytes");
    Box::pin(process.stop()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_large_trace_does_not_end_the_history() {
    let (process, address) = page(", max_memory: 1MiB", "").await;
    let mut client = process.client();
    for trace in 1..=3 {
        client.spans(failing_run(trace, "shop", "small")).await;
    }
    listed(address, 3).await;
    let mut large = failing_run(4, "shop", "large");
    let spans = &mut large.resource_spans[0].scope_spans[0].spans;
    let call = spans.pop().unwrap();
    let numbered = |n: u64| {
        let failed = text_attribute("gen_ai.tool.call.result", &format!("Error: {}", "text ".repeat(500)));
        let mut span = Span { span_id: (n + 0x1_0000).to_be_bytes().to_vec(), ..call.clone() };
        span.attributes.retain(|attribute| attribute.key != "gen_ai.tool.call.result");
        span.attributes.push(failed);
        span
    };
    spans.extend((0..1_900).map(numbered));
    client.spans(large.clone()).await;
    let list = listed(address, 4).await;
    assert_eq!(list["traces"][0]["spans"], 1_901, "{list}");
    let path = format!("/api/traces/{}", "04".repeat(16));
    let omitted = |page: &Value| page["detail"]["omitted"].as_u64().unwrap();
    let shown_spans = |page: &Value| page["detail"]["spans"].as_array().unwrap().len() as u64;
    let first = get(address, &path).await.json();
    assert!(omitted(&first) > 0 && shown_spans(&first) > 0, "{} spans", shown_spans(&first));
    assert_eq!(omitted(&first) + shown_spans(&first), 1_901);
    assert_eq!(first["detail"]["spans"][0]["up"], Value::Null);
    let is_failing = |span: &Value| span["result"] == "fail";
    assert!(first["detail"]["spans"].as_array().unwrap().iter().any(is_failing), "failures come first");
    // Late spans do not make it larger either.
    large.resource_spans[0].scope_spans[0].spans = (2_000..2_900).map(numbered).collect();
    client.spans(large).await;
    let second = get_when(address, &path, |page| page["trace"]["spans"] == 2_801).await;
    assert_eq!(omitted(&second) + shown_spans(&second), 2_801);
    let metrics = &process.service.telemetry().page;
    assert!(metrics.bytes.get() <= 1 << 19, "{} bytes", metrics.bytes.get());
    assert_eq!((metrics.traces.get(), metrics.skipped.get()), (4, 0));
    Box::pin(process.stop()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn late_spans_join_their_trace() {
    let (process, address) = page("", "").await;
    let mut client = process.client();
    let mut run = failing_run(1, "shop", "x");
    let spans = &mut run.resource_spans[0].scope_spans[0].spans;
    let late = spans.pop().unwrap();
    client.spans(run.clone()).await;
    assert_ne!(listed(address, 1).await["traces"][0]["result"], "fail");
    run.resource_spans[0].scope_spans[0].spans = vec![late];
    client.spans(run).await;
    let path = format!("/api/traces/{}", "01".repeat(16));
    let trace_json = get_when(address, &path, |page| page["trace"]["result"] == "fail").await;
    assert_eq!(
        (&trace_json["trace"]["spans"], &trace_json["trace"]["revision"]),
        (&2.into(), &2.into()),
        "{trace_json}"
    );
    let spans = trace_json["detail"]["spans"].as_array().unwrap();
    assert_eq!(
        (spans.len(), &spans[1]["up"], &spans[1]["late"]),
        (2, &0.into(), &true.into()),
        "{trace_json}"
    );
    assert_eq!(get(address, "/api/traces").await.json()["all"], 1);
    Box::pin(process.stop()).await;
}
