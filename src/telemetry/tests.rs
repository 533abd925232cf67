//! What a scrape shows, and that the README lists exactly what is declared.

use std::collections::BTreeSet;
use std::time::Duration;

use super::*;
use crate::outcome::{Ledger, Outcome, Receipt};
use crate::receive::{Signal, Transport};

fn line(page: &str, start: &str) -> String {
    page.lines().find(|l| l.starts_with(start)).unwrap_or_else(|| panic!("no {start} in\n{page}")).to_owned()
}

#[test]
fn a_scrape_shows_every_declared_metric_and_no_other() {
    let telemetry = Telemetry::new();
    // Families without children are not shown: give each one.
    telemetry.receive.refused("zero_id", 1);
    telemetry.traces.closed("quiet");
    telemetry.verdicts.metric("latency").count(Judged::Pass);
    telemetry.export.exporter("otlp_grpc", Arc::default(), 1).request("ok", Duration::ZERO);
    let page = telemetry.render();
    let shown: BTreeSet<String> = page
        .lines()
        .filter_map(|l| l.strip_prefix("# TYPE "))
        .filter_map(|l| l.split_once(' '))
        .map(|(name, kind)| if kind == "counter" { format!("{name}_total") } else { name.to_owned() })
        .collect();
    let declared: BTreeSet<String> = declared::ALL.iter().map(declared::Declared::exposed).collect();
    assert_eq!(shown, declared);
    assert!(page.ends_with("# EOF\n"), "a scrape must end as OpenMetrics asks");
}

#[test]
fn the_readme_lists_exactly_what_is_declared() {
    let table: Vec<String> = declared::ALL
        .iter()
        .map(|d| {
            let labels: Vec<String> = d.labels.iter().map(|l| format!("`{l}`")).collect();
            format!("| `{}` | {} | {} | {} |", d.exposed(), d.kind.as_str(), labels.join(", "), d.help)
        })
        .collect();
    let written: Vec<&str> =
        include_str!("README.md").lines().filter(|l| l.starts_with("| `otel_verdict_")).collect();
    assert!(written == table, "the table in README.md should read:\n{}", table.join("\n"));
}

#[test]
fn requests_are_counted_by_transport_signal_and_outcome() {
    let telemetry = Telemetry::new();
    telemetry.receive.request(Transport::Http, Signal::Logs, RequestOutcome::TooLarge);
    telemetry.receive.body(Transport::Grpc, Signal::Traces, 1500);
    let page = telemetry.render();
    let too_large =
        "otel_verdict_receive_requests_total{transport=\"http\",signal=\"logs\",outcome=\"too_large\"}";
    assert_eq!(line(&page, too_large), format!("{too_large} 1"));
    let bytes = "otel_verdict_receive_body_bytes_total{transport=\"grpc\",signal=\"traces\"}";
    assert_eq!(line(&page, bytes), format!("{bytes} 1500"));
}

#[test]
fn outcomes_are_read_from_the_exporters_ledger() {
    let telemetry = Telemetry::new();
    let ledger = Arc::new(Ledger::default());
    let cells = telemetry.export.exporter("otlp_http/archive", ledger.clone(), 1 << 20);
    Receipt::new(7, ledger.clone()).resolve(Outcome::Exported);
    Receipt::new(2, ledger).resolve(Outcome::DeadLettered);
    cells.queue_bytes.set(42);
    cells.request("unavailable", Duration::from_millis(3));
    let page = telemetry.render();
    for (start, value) in [
        ("otel_verdict_exporter_items_total{exporter=\"otlp_http/archive\",outcome=\"exported\"}", "7"),
        ("otel_verdict_exporter_items_total{exporter=\"otlp_http/archive\",outcome=\"dead_lettered\"}", "2"),
        ("otel_verdict_exporter_items_total{exporter=\"otlp_http/archive\",outcome=\"lost\"}", "0"),
        ("otel_verdict_exporter_queue_bytes{exporter=\"otlp_http/archive\"}", "42"),
        ("otel_verdict_exporter_queue_capacity_bytes{exporter=\"otlp_http/archive\"}", "1048576"),
        ("otel_verdict_exporter_requests_total{exporter=\"otlp_http/archive\",status=\"unavailable\"}", "1"),
    ] {
        assert_eq!(line(&page, start), format!("{start} {value}"));
    }
}

#[test]
fn a_metric_resolved_twice_counts_into_the_same_cells() {
    let telemetry = Telemetry::new();
    telemetry.verdicts.metric("tool_abuse").count(Judged::Fail);
    let again = telemetry.verdicts.metric("tool_abuse");
    again.count(Judged::Fail);
    again.took(Duration::from_micros(30));
    let page = telemetry.render();
    let fails = "otel_verdict_measurements_total{metric=\"tool_abuse\",result=\"fail\"}";
    assert_eq!(line(&page, fails), format!("{fails} 2"));
    let count = "otel_verdict_metric_duration_seconds_count{metric=\"tool_abuse\"}";
    assert_eq!(line(&page, count), format!("{count} 1"));
}
