//! Tests the conditions, the delays and the end of retries.

use std::collections::BTreeSet;

use super::*;

/// A status with details that contain an encoded `google.rpc.RetryInfo` of `millis`.
fn with_retry_info(code: Code, millis: u32) -> Status {
    let nanos = u64::from(millis) * 1_000_000;
    let mut duration = vec![0x10];
    prost::encoding::encode_varint(nanos, &mut duration);
    let mut any = vec![0x0a, 40];
    any.extend(b"type.googleapis.com/google.rpc.RetryInfo");
    any.extend([
        0x12,
        u8::try_from(duration.len() + 2).unwrap(),
        0x0a,
        u8::try_from(duration.len()).unwrap(),
    ]);
    any.extend(duration);
    let mut details = vec![0x1a, u8::try_from(any.len()).unwrap()];
    details.extend(any);
    Status::with_details(code, "wait", details.into())
}

#[tokio::test]
async fn grpc_codes_are_retried_per_specification() {
    let credential_codes = [Code::PermissionDenied, Code::Unauthenticated];
    for code in (1..=16).map(Code::from_i32).filter(|code| !credential_codes.contains(code)) {
        let sink = Sink::start(
            move |nth, _| if nth == 0 { TestResponse::code(code) } else { TestResponse::Ok(vec![]) },
        )
        .await;
        let exporters = start_one("otlp_grpc", &sink, "");
        exporters.send_record(parcel(&["a", "b"]), None).await;
        drain(&exporters).await;
        let exporter = only(&exporters);
        match code {
            Code::Cancelled
            | Code::DeadlineExceeded
            | Code::ResourceExhausted
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unavailable
            | Code::DataLoss => {
                assert_eq!(exported_and_dropped(exporter), (2, 0), "{code:?}");
                assert_eq!((sink.requests().len(), exporter.retries()), (2, 1), "{code:?}");
            }
            _ => {
                assert_eq!(exported_and_dropped(exporter), (0, 2), "{code:?}");
                assert_eq!(
                    (sink.requests().len(), exporter.dropped(DropReason::Refused)),
                    (1, 2),
                    "{code:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn http_statuses_are_retried_per_specification() {
    for status in [301, 400, 404, 408, 413, 429, 500, 501, 502, 503, 504] {
        let sink =
            Sink::start(
                move |nth, _| {
                    if nth == 0 { TestResponse::Http(status, None) } else { TestResponse::Ok(vec![]) }
                },
            )
            .await;
        let exporters = start_one("otlp_http", &sink, "");
        exporters.send_record(parcel(&["a", "b"]), None).await;
        drain(&exporters).await;
        let expected = match status {
            429 | 502 | 503 | 504 => (2, 0, 2),
            413 => (2, 0, 3),
            _ => (0, 2, 1),
        };
        let (exported, dropped) = exported_and_dropped(only(&exporters));
        assert_eq!((exported, dropped, sink.requests().len()), expected, "{status}");
    }
}

#[tokio::test]
async fn retry_after_of_the_destination_is_respected() {
    for code in [Code::Unavailable, Code::ResourceExhausted] {
        let busy = move |nth, _: &_| {
            if nth == 0 { TestResponse::Grpc(with_retry_info(code, 150)) } else { TestResponse::Ok(vec![]) }
        };
        let sink = Sink::start(busy).await;
        let exporters = start_one("otlp_grpc", &sink, "");
        let started = Instant::now();
        exporters.send_record(parcel(&["a"]), None).await;
        drain(&exporters).await;
        assert!(started.elapsed() >= Duration::from_millis(150), "{code:?}: {:?}", started.elapsed());
        assert_eq!((exported_and_dropped(only(&exporters)), sink.requests().len()), ((1, 0), 2));
    }
    let sink =
        Sink::start(
            |nth, _| if nth == 0 { TestResponse::Http(429, Some("1")) } else { TestResponse::Ok(vec![]) },
        )
        .await;
    let exporters = start_one("otlp_http", &sink, "");
    let started = Instant::now();
    exporters.send_record(parcel(&["a"]), None).await;
    drain(&exporters).await;
    assert!(started.elapsed() >= Duration::from_secs(1), "{:?}", started.elapsed());
    assert_eq!(exported_and_dropped(only(&exporters)), (1, 0));
}

#[tokio::test]
async fn retries_end_or_are_disabled_as_configured() {
    for (policy, requests) in [
        ("retry_on_failure: { initial_interval: 50ms, max_interval: 50ms, max_elapsed_time: 2s }", 2..80),
        ("retry_on_failure: { enabled: false }", 1..2),
    ] {
        let sink = Sink::start(|_, _| TestResponse::code(Code::Unavailable)).await;
        let exporters = start_one("otlp_grpc", &sink, policy);
        retry_until_dropped(&exporters, parcel(&["a", "b", "c"]), Duration::from_millis(80)).await;
        drain(&exporters).await;
        assert_eq!(exported_and_dropped(only(&exporters)), (0, 3));
        assert_eq!(only(&exporters).dropped(DropReason::RetriesEnded), 3);
        assert!(requests.contains(&sink.requests().len()), "{policy}: {}", sink.requests().len());
    }
}

#[tokio::test]
async fn request_that_a_rate_limit_refuses_is_not_multiplied() {
    let names: Vec<String> = (0..64).map(|i| format!("s{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for (retries, attempts) in
        [("enabled: false", 1..2), ("initial_interval: 20ms, max_elapsed_time: 2s", 2..16)]
    {
        let limited = Status::new(Code::ResourceExhausted, "rate limit exceeded");
        let sink = Sink::start(move |_, _| TestResponse::Grpc(limited.clone())).await;
        let exporters = start_one(
            "otlp_grpc",
            &sink,
            &format!("retry_on_failure: {{ {retries}, randomization_factor: 0 }}"),
        );
        retry_until_dropped(&exporters, padded_parcel(&names, 1000), Duration::from_millis(700)).await;
        drain(&exporters).await;
        assert_eq!(exported_and_dropped(only(&exporters)), (0, 64));
        assert_eq!(only(&exporters).dropped(DropReason::RetriesEnded), 64);
        assert!(attempts.contains(&sink.requests().len()), "{retries}: {} requests", sink.requests().len());
        assert!(sink.requests().iter().all(|seen| seen.names() == names), "{retries}: whole requests only");
    }
}

#[tokio::test]
async fn flapping_destination_receives_every_span() {
    for protocol in PROTOCOLS {
        let grpc = protocol == "otlp_grpc";
        let sink = Sink::start(move |nth, _| match nth % 4 {
            0 if grpc => TestResponse::code(Code::Unavailable),
            0 => TestResponse::Http(503, None),
            1 => TestResponse::Cut,
            _ => TestResponse::Ok(vec![]),
        })
        .await;
        let exporters = start_one(protocol, &sink, "sending_queue: { num_consumers: 3 }");
        for i in 0..60 {
            exporters.send_record(parcel(&[&format!("s{i}")]), None).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drain(&exporters).await;
        assert_eq!(exported_and_dropped(only(&exporters)), (60, 0), "{protocol}");
        let names: BTreeSet<String> = sink.names().into_iter().collect();
        assert_eq!(names.len(), 60, "{protocol}");
    }
}

#[tokio::test]
async fn destination_that_starts_late_receives_queued_spans() {
    // The socket is bound but does not listen: connections are refused, and no other test can use the port.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = socket.local_addr().unwrap();
    for protocol in PROTOCOLS {
        let exporters = start(&yaml(
            protocol,
            "http",
            &addr.to_string(),
            "retry_on_failure: { initial_interval: 1ms, max_interval: 20ms, max_elapsed_time: 2s }",
        ));
        retry_until_dropped(&exporters, parcel(&["a"]), Duration::from_millis(50)).await;
        drain(&exporters).await;
        assert_eq!(
            exported_and_dropped(only(&exporters)),
            (0, 1),
            "{protocol}: refused connections are retried, then dropped"
        );
        assert!(only(&exporters).retries() > 1, "{protocol}");
    }
}

#[tokio::test]
async fn hanging_destination_times_out_and_is_retried_on_a_new_connection() {
    for protocol in PROTOCOLS {
        let sink =
            Sink::start(|nth, _| if nth < 3 { TestResponse::Hang } else { TestResponse::Ok(vec![]) }).await;
        let exporters = start_one(protocol, &sink, "timeout: 100ms");
        exporters.send_record(parcel(&["a"]), None).await;
        drain(&exporters).await;
        assert_eq!(exported_and_dropped(only(&exporters)), (1, 0), "{protocol}");
        // On a busy machine, further responses may exceed the timeout.
        assert!(sink.requests().len() >= 4, "{protocol}: {} requests", sink.requests().len());
    }
}

/// Sends a parcel with an exporter of `old`, and reloads its settings from `new` after the first response. Returns the
/// numbers of exported and dropped items.
async fn send_across_renewal(old: &ExporterConfigs, new: &ExporterConfigs) -> (u64, u64) {
    #[derive(Default)]
    struct Answered(std::sync::atomic::AtomicBool);
    impl RequestObserver for Answered {
        fn request_ended(&self, _: &'static str, _: Duration) {
            self.0.store(true, std::sync::atomic::Ordering::SeqCst);
        }
    }
    let ids: Vec<String> = old.0.keys().cloned().collect();
    let exporters = Exporters::start(old, &ids, &context()).unwrap();
    let answered = Arc::new(Answered::default());
    only(&exporters).observe(Arc::clone(&answered) as Arc<dyn RequestObserver>);
    exporters.send_record(parcel(&["a", "b"]), None).await;
    while !answered.0.load(std::sync::atomic::Ordering::SeqCst) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // The consumer runs on this thread, so it now waits for its delay.
    exporters.renew(old, new);
    tokio::time::pause();
    tokio::time::advance(consumer::CREDENTIALS_WAIT).await;
    tokio::time::resume();
    drain(&exporters).await;
    exported_and_dropped(only(&exporters))
}

#[tokio::test]
async fn request_with_refused_credentials_is_sent_again_with_renewed_ones() {
    for protocol in PROTOCOLS {
        for status in [401, 403] {
            let sink = Sink::start(move |_, seen| match seen.headers["authorization"].to_str().unwrap() {
                "new" => TestResponse::Ok(vec![]),
                _ => TestResponse::Http(status, None),
            })
            .await;
            let config = |token: &str| {
                let more_settings = format!("headers: {{ authorization: {token} }}");
                parse_configs(&yaml(protocol, "http", &sink.addr.to_string(), &more_settings))
            };
            assert_eq!(
                send_across_renewal(&config("old"), &config("new")).await,
                (2, 0),
                "{protocol} {status}"
            );
            assert_eq!(sink.requests().len(), 2, "{protocol} {status}");
        }
    }
}

#[tokio::test]
async fn certificates_are_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    for protocol in PROTOCOLS {
        let (cert, server) = self_signed("localhost");
        let (other_cert, _) = self_signed("localhost");
        let sink = Sink::start_tls(|_, _| TestResponse::Ok(vec![]), Some(server)).await;
        let host = format!("localhost:{}", sink.addr.port());
        let config =
            parse_configs(&yaml(protocol, "https", &host, &format!("tls: {{ ca_file: {} }}", ca.display())));
        std::fs::write(&ca, other_cert).unwrap();
        let counts = async {
            let exporters = Exporters::start(&config, &[protocol.to_owned()], &context()).unwrap();
            exporters.send_record(parcel(&["a"]), None).await;
            while only(&exporters).retries() == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            std::fs::write(&ca, "no certificate").unwrap();
            exporters.renew(&config, &config);
            std::fs::write(&ca, &cert).unwrap();
            exporters.renew(&config, &config);
            drain(&exporters).await;
            exported_and_dropped(only(&exporters))
        };
        assert_eq!(counts.await, (1, 0), "{protocol}");
    }
}
