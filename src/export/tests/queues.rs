//! Tests queues: backpressure, cancelled senders, optional exporters, draining at shutdown, and exactly one
//! outcome per span and exporter under load.

use std::collections::BTreeSet;

use super::*;

#[tokio::test]
async fn full_queue_causes_back_pressure_until_there_is_space() {
    let sink = Sink::start(|_, _| TestResponse::Ok(vec![])).await;
    sink.gate.forget_permits(1_000_000);
    let exporters = Arc::new(start_one(
        "otlp_grpc",
        &sink,
        "sending_queue: { queue_size: 10000, num_consumers: 1 }, timeout: 60s",
    ));
    assert_eq!(exporters.pressure(), None);
    for _ in 0..3 {
        exporters.send_record(padded_parcel(&["a"], 3000), None).await;
    }
    let waiting = tokio::spawn({
        let exporters = Arc::clone(&exporters);
        async move { exporters.send_record(padded_parcel(&["b"], 3000), None).await }
    });
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!waiting.is_finished());
    assert!(exporters.pressure().is_some());
    assert!(only(&exporters).queued_bytes() > 9000);
    assert_eq!(only(&exporters).queue_capacity(), 10_000);
    sink.gate.add_permits(1_000_000);
    assert_eq!(waiting.await.unwrap(), 1);
    drain(&exporters).await;
    assert_eq!(exported_and_dropped(only(&exporters)), (4, 0));
    assert_eq!(exporters.pressure(), None);
}

#[tokio::test]
async fn cancelled_send_loses_nothing() {
    let sink = Sink::start(|_, _| TestResponse::Ok(vec![])).await;
    sink.gate.forget_permits(1_000_000);
    let exporters =
        start_one("otlp_grpc", &sink, "sending_queue: { enabled: false, num_consumers: 1 }, timeout: 60s");
    exporters.send_record(parcel(&["a"]), None).await;
    let cancelled =
        tokio::time::timeout(Duration::from_millis(20), exporters.send_record(parcel(&["b"]), None)).await;
    assert!(cancelled.is_err());
    sink.gate.add_permits(1_000_000);
    while sink.requests().len() < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drain(&exporters).await;
    assert_eq!(exported_and_dropped(only(&exporters)), (2, 0));
}

#[tokio::test]
async fn failed_optional_exporter_does_not_block_others() {
    let sink = Sink::start(|_, _| TestResponse::Ok(vec![])).await;
    let unresponsive = Sink::start(|_, _| TestResponse::Hang).await;
    let exporters = start(&format!(
        "{}{}",
        yaml("otlp_grpc", "http", &sink.addr.to_string(), ""),
        yaml(
            "otlp_http/archive",
            "http",
            &unresponsive.addr.to_string(),
            "required: false, sending_queue: { queue_size: 2000, num_consumers: 1 }"
        ),
    ));
    for _ in 0..50 {
        assert_eq!(exporters.send_record(padded_parcel(&["a"], 500), None).await, 2);
        assert_eq!(exporters.pressure(), None);
    }
    let all: Vec<_> = exporters.iter().collect();
    while all[0].ledger().count(Outcome::Exported) < 50 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    exporters.drain(Instant::now() + Duration::from_millis(300)).await;
    assert_eq!(exported_and_dropped(all[0]), (50, 0));
    assert_eq!(exported_and_dropped(all[1]), (0, 50));
    assert!(all[1].dropped(DropReason::QueueFull) >= 45, "{}", all[1].dropped(DropReason::QueueFull));
    assert!(all[1].dropped(DropReason::Shutdown) > 0);
}

#[tokio::test]
async fn drain_sends_until_the_deadline_and_drops_the_rest() {
    for protocol in PROTOCOLS {
        let sink =
            Sink::start(|nth, _| if nth < 2 { TestResponse::Ok(vec![]) } else { TestResponse::Hang }).await;
        let exporters = start_one(protocol, &sink, "max_request_size: 1KiB");
        for _ in 0..20 {
            exporters.send_record(padded_parcel(&["a"], 900), None).await;
        }
        while only(&exporters).ledger().count(Outcome::Exported) < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let drained = exporters.drain(Instant::now() + Duration::from_millis(300));
        tokio::time::timeout(Duration::from_secs(180), drained).await.expect("the destination never answers");
        assert_eq!(exported_and_dropped(only(&exporters)), (2, 18), "{protocol}");
        assert_eq!(only(&exporters).dropped(DropReason::Shutdown), 18);
        exporters.send_record(parcel(&["late"]), None).await;
        assert_eq!(
            exported_and_dropped(only(&exporters)),
            (2, 19),
            "parcels after the drain are dropped and counted"
        );
    }
}

/// With many senders on several threads, and a destination that fails in several ways, each span has exactly one
/// outcome per exporter, and every accepted span arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_span_has_one_outcome_per_exporter_under_load_and_failures() {
    const SENDERS: usize = 8;
    const REQUESTS_PER_SENDER: usize = 150;
    let unreliable = |nth: usize, seen: &sink::ReceivedRequest| match nth % 7 {
        0 => TestResponse::code(Code::Unavailable),
        1 => TestResponse::Cut,
        2 if seen.message.len() > 2_000 => TestResponse::too_large(),
        3 => TestResponse::code(Code::InvalidArgument),
        _ => TestResponse::Ok(vec![]),
    };
    let (first, second) = (Sink::start(unreliable).await, Sink::start(|_, _| TestResponse::Ok(vec![])).await);
    let queue = "sending_queue: { queue_size: 20000, num_consumers: 3 }, max_request_size: 4KiB";
    let exporters = Arc::new(start(&format!(
        "{}{}",
        yaml("otlp_grpc", "http", &first.addr.to_string(), queue),
        yaml("otlp_http", "http", &second.addr.to_string(), queue),
    )));
    let senders: Vec<_> = (0..SENDERS)
        .map(|s| {
            let exporters = Arc::clone(&exporters);
            tokio::spawn(async move {
                for i in 0..REQUESTS_PER_SENDER {
                    let name = format!("{s}/{i}");
                    exporters
                        .send_record(padded_parcel(&[&name, &format!("{name}+")], (i * 37) % 3000), None)
                        .await;
                }
            })
        })
        .collect();
    for sender in senders {
        sender.await.unwrap();
    }
    drain(&exporters).await;
    let all: Vec<_> = exporters.iter().collect();
    let sent = (SENDERS * REQUESTS_PER_SENDER * 2) as u64;
    let (exported, dropped) = exported_and_dropped(all[0]);
    assert_eq!(exported + dropped, sent);
    assert!(exported > 0 && dropped > 0, "{exported} {dropped}");
    assert_eq!(exported_and_dropped(all[1]), (sent, 0));
    let names = second.names();
    assert_eq!(names.len() as u64, sent, "sent once each");
    assert_eq!(names.into_iter().collect::<BTreeSet<_>>().len() as u64, sent);
}
