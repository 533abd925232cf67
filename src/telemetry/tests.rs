//! A scrape and docs/self-metrics.md contain exactly the declared metrics.

use std::collections::BTreeSet;
use std::time::Duration;

use verdict_otlp::trace::CloseReason;
use verdict_otlp::{Piece, Signal, Transport};

use super::*;
use crate::export::config::ExporterConfigs;
use crate::export::{ExportContext, Exporters, Parcel};

fn line(page: &str, start: &str) -> String {
    page.lines().find(|l| l.starts_with(start)).unwrap_or_else(|| panic!("no {start} in\n{page}")).to_owned()
}

#[tokio::test]
async fn scrape_exposes_exactly_the_declared_metrics() {
    let telemetry = Telemetry::new();
    // A family without metrics is not exposed, so each gets one.
    telemetry.receive.count_refused("zero_id", 1);
    telemetry.verdicts.metric("latency").count(ResultLabel::Pass);
    telemetry.agents.set_limit(10);
    let run = telemetry.agents.run("shop", "clerk", "m");
    telemetry.agents.count_measurements(&run, "latency", [1, 0, 0]);
    telemetry.agents.count_score(&run, "completeness", 0.5);
    telemetry.agents.count_finding(&run, "latency", "Resource Exhaustion", "low");
    telemetry.agents.count_tool_call("shop", "clerk", "search", ResultLabel::Pass);
    telemetry.agents.count_version("shop", "clerk", "1.0", ResultLabel::Pass);
    telemetry.agents.count_failure("shop", "clerk", "0123456789abcdef");
    let _cascade = telemetry.judge.cascade_cells("both");
    let judge = telemetry.judge.cells_for("main");
    judge.count_request("ok", Duration::from_millis(200));
    judge.count_unusable("cut");
    let (exporters, _folder) = file_exporter();
    telemetry.export.register_exporters(exporters.states());
    let piece = Piece { bytes: bytes::Bytes::new(), items: 1 };
    exporters
        .send_record(
            Parcel {
                signal: Signal::Traces,
                pieces: vec![piece],
                source: crate::export::ParcelSource::Sender,
            },
            None,
        )
        .await;
    exporters.drain(tokio::time::Instant::now() + Duration::from_secs(10)).await;
    let page = telemetry.render(TextFormat::OpenMetrics);
    let exposed: BTreeSet<String> = page
        .lines()
        .filter_map(|l| l.strip_prefix("# TYPE "))
        .filter_map(|l| l.split_once(' '))
        .map(|(name, kind)| if kind == "counter" { format!("{name}_total") } else { name.to_owned() })
        .collect();
    // Standard metrics of the process are those of every client library.
    let (standard, exposed): (BTreeSet<String>, BTreeSet<String>) =
        exposed.into_iter().partition(|name| !name.starts_with(declared::PREFIX));
    let standard: Vec<&str> = standard.iter().map(String::as_str).collect();
    let expected = [
        "process_cpu_seconds_total",
        "process_open_fds",
        "process_resident_memory_bytes",
        "process_virtual_memory_bytes",
    ];
    assert_eq!(standard, if cfg!(target_os = "linux") { &expected[..] } else { &[] });
    let declared: BTreeSet<String> = declared::ALL.iter().map(declared::Declared::exposed).collect();
    assert_eq!(exposed, declared);
    assert!(page.ends_with("# EOF\n"), "a scrape must end as OpenMetrics asks");
}

#[test]
fn documentation_lists_exactly_the_declared_metrics() {
    let table: Vec<String> = declared::ALL
        .iter()
        .map(|d| {
            let labels: Vec<String> = d.labels.iter().map(|l| format!("`{l}`")).collect();
            format!("| `{}` | {} | {} | {} |", d.exposed(), d.kind.as_str(), labels.join(", "), d.help)
        })
        .collect();
    let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/self-metrics.md"));
    let documented: Vec<&str> = page.lines().filter(|l| l.starts_with("| `otel_verdict_")).collect();
    assert!(documented == table, "the table in docs/self-metrics.md should read:\n{}", table.join("\n"));
}

#[test]
fn requests_are_counted_by_transport_signal_and_outcome() {
    let telemetry = Telemetry::new();
    telemetry.receive.count_request(Transport::Http, Signal::Logs, RequestOutcome::TooLarge);
    telemetry.receive.count_body(Transport::Grpc, Signal::Traces, 1500);
    let page = telemetry.render(TextFormat::OpenMetrics);
    let too_large =
        "otel_verdict_receive_requests_total{transport=\"http\",signal=\"logs\",outcome=\"too_large\"}";
    assert_eq!(line(&page, too_large), format!("{too_large} 1"));
    let bytes = "otel_verdict_receive_body_bytes_total{transport=\"grpc\",signal=\"traces\"}";
    assert_eq!(line(&page, bytes), format!("{bytes} 1500"));
}

/// An exporter that writes to a file, and the folder it writes to.
fn file_exporter() -> (Exporters, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.jsonl");
    let yaml = format!("file/archive: {{ path: {path:?}, sending_queue: {{ queue_size: 1MiB }} }}");
    let configs: ExporterConfigs = serde_saphyr::from_str(&yaml).unwrap();
    let context = ExportContext::for_test();
    (Exporters::start(&configs, &["file/archive".to_owned()], &context).unwrap(), folder)
}

#[tokio::test]
async fn scrape_reads_outcomes_from_exporters() {
    let telemetry = Telemetry::new();
    let (exporters, _folder) = file_exporter();
    telemetry.export.register_exporters(exporters.states());
    let piece = Piece { bytes: bytes::Bytes::new(), items: 7 };
    let parcel =
        Parcel { signal: Signal::Traces, pieces: vec![piece], source: crate::export::ParcelSource::Sender };
    exporters.send_record(parcel.clone(), None).await;
    exporters.drain(tokio::time::Instant::now() + Duration::from_secs(10)).await;
    exporters.send_record(parcel, None).await;
    let page = telemetry.render(TextFormat::OpenMetrics);
    for (start, value) in [
        ("otel_verdict_exporter_items_total{exporter=\"file/archive\",outcome=\"exported\"}", "7"),
        ("otel_verdict_exporter_items_total{exporter=\"file/archive\",outcome=\"dropped\"}", "7"),
        ("otel_verdict_exporter_items_total{exporter=\"file/archive\",outcome=\"lost\"}", "0"),
        ("otel_verdict_exporter_dropped_items_total{exporter=\"file/archive\",reason=\"shutdown\"}", "7"),
        ("otel_verdict_exporter_queue_bytes{exporter=\"file/archive\"}", "0"),
        ("otel_verdict_exporter_queue_capacity_bytes{exporter=\"file/archive\"}", "1048576"),
        ("otel_verdict_exporter_retries_total{exporter=\"file/archive\"}", "0"),
        ("otel_verdict_exporter_requests_total{exporter=\"file/archive\",status=\"ok\"}", "1"),
    ] {
        assert_eq!(line(&page, start), format!("{start} {value}"));
    }
}

#[test]
fn closed_traces_are_counted_by_close_reason() {
    let telemetry = Telemetry::new();
    for reason in CloseReason::ALL {
        telemetry.traces.count_closed(reason);
        let start = format!("otel_verdict_traces_closed_total{{reason=\"{}\"}}", reason.as_str());
        assert_eq!(line(&telemetry.render(TextFormat::OpenMetrics), &start), format!("{start} 1"));
    }
}

#[test]
fn metric_cells_are_shared_by_name() {
    let telemetry = Telemetry::new();
    telemetry.verdicts.metric("tool_abuse").count(ResultLabel::Fail);
    let cells = telemetry.verdicts.metric("tool_abuse");
    cells.count(ResultLabel::Fail);
    cells.record_duration(Duration::from_micros(30));
    let page = telemetry.render(TextFormat::OpenMetrics);
    let fails = "otel_verdict_measurements_total{metric=\"tool_abuse\",result=\"fail\"}";
    assert_eq!(line(&page, fails), format!("{fails} 2"));
    let count = "otel_verdict_metric_duration_seconds_count{metric=\"tool_abuse\"}";
    assert_eq!(line(&page, count), format!("{count} 1"));
}
