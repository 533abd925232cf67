//! The export of requests in every mode, and their refusal at shutdown.

use std::sync::Arc;

use verdict_config::Source;
use verdict_otlp::write;

#[cfg(feature = "kafka")]
mod kafka;

use super::*;
use crate::config::{Config, from_sources};
use crate::export::{ExportClient, ExportClients, ExportFuture, ExportRequest, ExportResult, Exporters};
use crate::extensions::Extensions;
use crate::outcome::Outcome;
use crate::pipeline::runtime_config::RuntimeConfig;
use crate::pipeline::shared::{Shared, testing};
use crate::telemetry::ExporterState as _;

fn config(path: &std::path::Path, verdict: &str) -> Config {
    let text = format!(
        "verdict: {{ {verdict} }}\nexporters: {{ file: {{ path: {path:?} }} }}\nservice: {{ exporters: [file] }}"
    );
    from_sources(&[Source { name: "test".to_owned(), text }], &|_| None).unwrap()
}

fn pipeline(config: &Config) -> (Arc<Pipeline>, Arc<Exporters>) {
    pipeline_with(config, ExportClients::new())
}

fn pipeline_with(config: &Config, clients: ExportClients) -> (Arc<Pipeline>, Arc<Exporters>) {
    pipeline_changed_by(config, clients, |_| ())
}

fn pipeline_changed_by(
    config: &Config,
    clients: ExportClients,
    change: impl FnOnce(&mut Shared),
) -> (Arc<Pipeline>, Arc<Exporters>) {
    let exporters = testing::exporters(config, clients);
    let mut shared = testing::shared(config, &exporters, None);
    change(&mut shared);
    (Pipeline::start(shared, "verdict."), exporters)
}

/// A request of one span for each trace, under scopes of these names.
fn request(scopes: &[&str]) -> Bytes {
    let mut request = Vec::new();
    for (n, name) in scopes.iter().enumerate() {
        let (mut scope, mut span, mut scope_spans, mut resource_spans) = (vec![], vec![], vec![], vec![]);
        write::bytes(&mut scope, 1, name.as_bytes());
        write::bytes(&mut span, 1, &[n as u8 + 1; 16]);
        write::bytes(&mut span, 2, &[1; 8]);
        write::fixed64(&mut span, 7, 1);
        write::fixed64(&mut span, 8, 2);
        write::bytes(&mut scope_spans, 1, &scope);
        write::bytes(&mut scope_spans, 2, &span);
        write::bytes(&mut resource_spans, 2, &scope_spans);
        write::bytes(&mut request, 1, &resource_spans);
    }
    request.into()
}

/// Offers a request after `before` has run. Returns the response and the exported lines of JSON.
async fn exported(
    verdict: &str,
    scopes: &[&str],
    before: impl AsyncFnOnce(&Pipeline),
) -> (Result<Accepted, Refused>, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.jsonl");
    let (pipeline, exporters) = pipeline(&config(&path, verdict));
    before(&pipeline).await;
    let answer = pipeline.offer(Offer { signal: Signal::Traces, body: request(scopes) }).await;
    assert!(pipeline.shutdown(Duration::from_secs(180)).await);
    exporters.drain(tokio::time::Instant::now() + Duration::from_secs(180)).await;
    (answer, std::fs::read_to_string(path).unwrap())
}

const SHADOW: &str = "mode: shadow, emit: [log_events]";

#[tokio::test]
async fn refused_request_is_not_forwarded() {
    let stop = async |pipeline: &Pipeline| assert!(pipeline.shutdown(Duration::from_secs(180)).await);
    let select = "select: { scope: [agent] }";
    for verdict in [SHADOW.to_owned(), select.to_owned(), format!("{SHADOW}, {select}")] {
        let (answer, out) = exported(&verdict, &["agent", "web"], stop).await;
        assert_eq!(answer, Err(Refused::ShuttingDown), "{verdict}");
        assert_eq!(out, "", "{verdict}");
    }
}

#[tokio::test]
async fn every_span_is_exported_once_in_every_mode() {
    let select = "select: { scope: [agent] }";
    for verdict in ["", SHADOW, select, &format!("{SHADOW}, {select}")] {
        let (answer, out) = exported(verdict, &["agent", "web"], async |_| ()).await;
        assert_eq!(answer, Ok(Accepted::default()), "{verdict}");
        assert_eq!(out.matches("\"startTimeUnixNano\"").count(), 2, "{verdict}: {out}");
    }
}

#[tokio::test]
async fn reload_while_a_request_waits_does_not_apply_to_that_request() {
    for mode in ["", SHADOW] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.jsonl");
        let (pipeline, exporters) =
            pipeline(&config(&path, &format!("select: {{ scope: [agent] }}, {mode}")));
        let inboxes = pipeline.inboxes();
        let mut permits = Vec::new();
        for inbox in &inboxes {
            permits.push(inbox.reserve_many(inbox.max_capacity()).await.unwrap());
        }
        // The request waits for a part of a second, which a busy machine may spend on the new configuration.
        tokio::time::pause();
        let mut answer = pipeline.offer(Offer { signal: Signal::Traces, body: request(&["agent", "web"]) });
        let waiting = tokio::time::timeout(Duration::from_millis(20), &mut answer).await;
        assert!(waiting.is_err(), "the inboxes have no room");
        let without_select = RuntimeConfig::new(&config(&path, mode).verdict, &Extensions::default(), None);
        pipeline.shared.config.store(Arc::new(without_select.unwrap()));
        drop(permits);
        assert_eq!(answer.await, Ok(Accepted::default()), "{mode}");
        tokio::time::resume();
        drop(inboxes);
        assert_eq!(pipeline.shared.meter.telemetry.traces.passed_through.get(), 1, "{mode}");
        assert!(pipeline.shutdown(Duration::from_secs(180)).await);
        exporters.drain(tokio::time::Instant::now() + Duration::from_secs(180)).await;
        let out = std::fs::read_to_string(path).unwrap();
        assert_eq!(out.matches("\"startTimeUnixNano\"").count(), 2, "{mode}: {out}");
        let annotated = usize::from(mode.is_empty());
        assert_eq!(out.matches("\"verdict.trace.result\"").count(), annotated, "{mode}: {out}");
    }
}

#[tokio::test]
async fn full_shard_refuses_only_requests_with_its_own_traces() {
    let folder = tempfile::tempdir().unwrap();
    let (pipeline, exporters) = pipeline(&config(&folder.path().join("out.jsonl"), ""));
    let inboxes = pipeline.inboxes();
    if inboxes.len() < 2 {
        println!("skipped: needs two shards, so two cores");
        return;
    }
    // The inbox of the first shard is full, as while it waits for an exporter or a large trace.
    let full = inboxes[0].reserve_many(inboxes[0].max_capacity()).await.unwrap();
    assert_eq!(pipeline.pressure(), None, "senders of the other shards are asked to wait");
    let scopes = vec!["agent"; 255];
    let all = request::split(&request(&scopes), "verdict.", &pipeline.envelopes).unwrap().groups;
    let (mut accepted, mut refused) = (0, 0);
    for group in &all {
        let is_first_shard = (pipeline.hasher.hash_one(group.trace) as usize).is_multiple_of(inboxes.len());
        if is_first_shard && refused > 3 {
            continue;
        }
        let mut body = Vec::new();
        for piece in encode(std::iter::once(group), usize::MAX) {
            body.extend_from_slice(&piece.bytes);
        }
        let answer = pipeline.offer(Offer { signal: Signal::Traces, body: body.into() }).await;
        let expected = if is_first_shard {
            Err(Refused::Overloaded { retry: RETRY_DELAY })
        } else {
            Ok(Accepted::default())
        };
        assert_eq!(answer, expected);
        (accepted, refused) =
            (accepted + usize::from(!is_first_shard), refused + usize::from(is_first_shard));
    }
    assert!(accepted > 0 && refused > 0, "{accepted} accepted, {refused} refused");
    // A request with traces of several shards waits without reserving space in the shards that have some.
    tokio::time::pause();
    let both = pipeline.offer(Offer { signal: Signal::Traces, body: request(&scopes) });
    tokio::pin!(both);
    assert!(timeout(INBOX_TIMEOUT / 4, &mut both).await.is_err());
    assert!(inboxes[1..].iter().all(|inbox| inbox.capacity() > 0));
    let others: Vec<_> = inboxes[1..].iter().map(|i| i.try_reserve_many(i.max_capacity()).is_ok()).collect();
    assert!(others.iter().all(|&free| free), "{others:?}");
    assert_eq!(both.await, Err(Refused::Overloaded { retry: RETRY_DELAY }));
    tokio::time::resume();
    drop(full);
    drop(inboxes);
    assert!(pipeline.shutdown(Duration::from_secs(180)).await);
    exporters.drain(tokio::time::Instant::now() + Duration::from_secs(180)).await;
}

/// A destination that does not accept metrics and log records at its first request.
#[derive(Debug, Default)]
struct UnsupportedAtFirst(std::sync::atomic::AtomicUsize);

impl ExportClient for UnsupportedAtFirst {
    fn export<'a>(&'a self, _: &'a ExportRequest) -> ExportFuture<'a> {
        let is_first = self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0;
        let result =
            if is_first { ExportResult::Unsupported("404".to_owned()) } else { ExportResult::ACCEPTED };
        Box::pin(std::future::ready(result.into()))
    }
}

#[tokio::test(start_paused = true)]
async fn senders_may_retry_a_signal_that_the_destination_does_not_accept_at_present() {
    // A gauge with one point, a log record without content, and a GenAI log record.
    let metrics = b"\x0a\x08\x12\x06\x12\x04\x2a\x02\x0a\x00".as_slice();
    let record = b"\x0a\x04\x12\x02\x12\x00".as_slice();
    let event = [b"\x4a\x10".as_slice(), &[1; 16], b"\x52\x08", &[1; 8], b"\x62\x08gen_ai.x"].concat();
    let nested = |inner: &[u8], tag: u8| [&[tag, inner.len() as u8], inner].concat();
    let gen_ai = nested(&nested(&nested(&event, 0x12), 0x12), 0x0a);
    for (signal, body) in [(Signal::Metrics, metrics), (Signal::Logs, record)] {
        let yaml = "exporters: { custom/x: { signals: [metrics, logs] } }".to_owned();
        let config = from_sources(&[Source { name: "test".to_owned(), text: yaml }], &|_| None).unwrap();
        let client = Arc::new(UnsupportedAtFirst::default());
        let clients = [("custom/x".to_owned(), Arc::clone(&client) as Arc<dyn ExportClient>)].into();
        let (pipeline, exporters) = pipeline_with(&config, clients);
        let offer = |body: &[u8]| pipeline.offer(Offer { signal, body: Bytes::copy_from_slice(body) });
        let wait_for = async |outcome, items| {
            while exporters.iter().all(|exporter| exporter.ledger().count(outcome) < items) {
                tokio::task::yield_now().await;
            }
        };
        assert_eq!(offer(body).await, Ok(Accepted::default()));
        wait_for(Outcome::Dropped, 1).await;
        assert_eq!(offer(body).await, Err(Refused::Undeliverable(signal)));
        if signal == Signal::Logs {
            assert_eq!(offer(&gen_ai).await, Ok(Accepted::default()));
            wait_for(Outcome::Dropped, 2).await;
        }
        tokio::time::advance(Duration::from_secs(30)).await;
        for exported in 1..=2 {
            assert_eq!(offer(body).await, Ok(Accepted::default()));
            wait_for(Outcome::Exported, exported).await;
        }
        assert_eq!(
            client.0.load(std::sync::atomic::Ordering::SeqCst),
            3,
            "one request refused, two accepted"
        );
        assert!(pipeline.shutdown(Duration::from_secs(180)).await);
        exporters.drain(tokio::time::Instant::now() + Duration::from_secs(180)).await;
    }
}

#[tokio::test]
async fn malformed_log_record_or_data_point_is_rejected_alone() {
    // Two records: event_name "valid", and a trace id of one byte.
    let records = b"\x0a\x10\x12\x0e\x12\x07\x62\x05valid\x12\x03\x4a\x01\x01".as_slice();
    rejects_one(Signal::Logs, records, "1 malformed log records were rejected").await;
    // A gauge named "valid" of two points, of which the second has a field of eight bytes with one.
    let points = b"\x0a\x14\x12\x12\x12\x10\x0a\x05valid\x2a\x07\x0a\x00\x0a\x03\x21\x01\x01".as_slice();
    rejects_one(Signal::Metrics, points, "1 malformed data points were rejected").await;
}

async fn rejects_one(signal: Signal, body: &'static [u8], message: &str) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.jsonl");
    let (pipeline, exporters) = pipeline(&config(&path, ""));
    let accepted = pipeline.offer(Offer { signal, body: body.into() }).await.unwrap();
    assert_eq!((accepted.rejected, &*accepted.message), (1, message));
    assert!(pipeline.shutdown(Duration::from_secs(180)).await);
    exporters.drain(tokio::time::Instant::now() + Duration::from_secs(180)).await;
    let ledger = exporters.iter().next().unwrap().ledger();
    assert_eq!((ledger.count(Outcome::Exported), ledger.count(Outcome::Dropped)), (1, 0));
    assert!(std::fs::read_to_string(path).unwrap().contains("valid"));
}
