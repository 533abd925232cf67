//! Which requests are retried, when, and until when.

use super::*;

/// google.rpc.Status with a RetryInfo of `millis`, encoded.
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
    for code in (1..=16).map(Code::from_i32) {
        let sink = Sink::start(
            move |nth, _| if nth == 0 { TestResponse::code(code) } else { TestResponse::Ok(vec![]) },
        )
        .await;
        let exporters = one("otlp_grpc", &sink, "");
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
                assert_eq!(ended(exporter), (2, 0), "{code:?}");
                assert_eq!((sink.seen().len(), exporter.retries()), (2, 1), "{code:?}");
            }
            _ => {
                assert_eq!(ended(exporter), (0, 2), "{code:?}");
                assert_eq!((sink.seen().len(), exporter.dropped(DropReason::Refused)), (1, 2), "{code:?}");
            }
        }
    }
}

#[tokio::test]
async fn http_statuses_are_retried_per_specification() {
    for status in [301, 400, 401, 403, 404, 408, 413, 429, 500, 501, 502, 503, 504] {
        let sink =
            Sink::start(
                move |nth, _| {
                    if nth == 0 { TestResponse::Http(status, None) } else { TestResponse::Ok(vec![]) }
                },
            )
            .await;
        let exporters = one("otlp_http", &sink, "");
        exporters.send_record(parcel(&["a", "b"]), None).await;
        drain(&exporters).await;
        let expected = match status {
            429 | 502 | 503 | 504 => (2, 0, 2),
            413 => (2, 0, 3),
            _ => (0, 2, 1),
        };
        let (exported, dropped) = ended(only(&exporters));
        assert_eq!((exported, dropped, sink.seen().len()), expected, "{status}");
    }
}

#[tokio::test]
async fn retry_after_of_the_destination_is_respected() {
    for code in [Code::Unavailable, Code::ResourceExhausted] {
        let busy = move |nth, _: &_| {
            if nth == 0 { TestResponse::Grpc(with_retry_info(code, 150)) } else { TestResponse::Ok(vec![]) }
        };
        let sink = Sink::start(busy).await;
        let exporters = one("otlp_grpc", &sink, "");
        let started = Instant::now();
        exporters.send_record(parcel(&["a"]), None).await;
        drain(&exporters).await;
        assert!(started.elapsed() >= Duration::from_millis(150), "{code:?}: {:?}", started.elapsed());
        assert_eq!((ended(only(&exporters)), sink.seen().len()), ((1, 0), 2));
    }
    let sink =
        Sink::start(
            |nth, _| if nth == 0 { TestResponse::Http(429, Some("1")) } else { TestResponse::Ok(vec![]) },
        )
        .await;
    let exporters = one("otlp_http", &sink, "");
    let started = Instant::now();
    exporters.send_record(parcel(&["a"]), None).await;
    drain(&exporters).await;
    assert!(started.elapsed() >= Duration::from_secs(1), "{:?}", started.elapsed());
    assert_eq!(ended(only(&exporters)), (1, 0));
}

#[tokio::test]
async fn retries_end_or_are_disabled_as_configured() {
    for (policy, requests) in [
        ("retry_on_failure: { initial_interval: 5ms, max_interval: 5ms, max_elapsed_time: 60ms }", 2..40),
        ("retry_on_failure: { enabled: false }", 1..2),
    ] {
        let sink = Sink::start(|_, _| TestResponse::code(Code::Unavailable)).await;
        let exporters = one("otlp_grpc", &sink, policy);
        exporters.send_record(parcel(&["a", "b", "c"]), None).await;
        drain(&exporters).await;
        assert_eq!(ended(only(&exporters)), (0, 3));
        assert_eq!(only(&exporters).dropped(DropReason::RetriesEnded), 3);
        assert!(requests.contains(&sink.seen().len()), "{policy}: {}", sink.seen().len());
    }
}

#[tokio::test]
async fn request_that_a_rate_limit_refuses_is_not_multiplied() {
    let names: Vec<String> = (0..64).map(|i| format!("s{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for (retries, attempts) in
        [("enabled: false", 1..2), ("initial_interval: 5ms, max_elapsed_time: 500ms", 2..16)]
    {
        let limited = Status::new(Code::ResourceExhausted, "rate limit exceeded");
        let sink = Sink::start(move |_, _| TestResponse::Grpc(limited.clone())).await;
        let exporters =
            one("otlp_grpc", &sink, &format!("retry_on_failure: {{ {retries}, randomization_factor: 0 }}"));
        exporters.send_record(padded(&names, 1000), None).await;
        drain(&exporters).await;
        assert_eq!(ended(only(&exporters)), (0, 64));
        assert_eq!(only(&exporters).dropped(DropReason::RetriesEnded), 64);
        assert!(attempts.contains(&sink.seen().len()), "{retries}: {} requests", sink.seen().len());
        assert!(sink.seen().iter().all(|seen| seen.names() == names), "{retries}: whole requests only");
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
        let exporters = one(protocol, &sink, "sending_queue: { num_consumers: 3 }");
        for i in 0..60 {
            exporters.send_record(parcel(&[&format!("s{i}")]), None).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drain(&exporters).await;
        assert_eq!(ended(only(&exporters)), (60, 0), "{protocol}");
        let names: BTreeSet<String> = sink.names().into_iter().collect();
        assert_eq!(names.len(), 60, "{protocol}");
    }
}

#[tokio::test]
async fn destination_that_starts_late_receives_queued_spans() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    drop(listener);
    for protocol in PROTOCOLS {
        let exporters = start(&yaml(
            protocol,
            "http",
            &addr.to_string(),
            "retry_on_failure: { initial_interval: 1ms, max_interval: 5ms, max_elapsed_time: 40ms }",
        ));
        exporters.send_record(parcel(&["a"]), None).await;
        drain(&exporters).await;
        assert_eq!(
            ended(only(&exporters)),
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
        let exporters = one(protocol, &sink, "timeout: 50ms");
        exporters.send_record(parcel(&["a"]), None).await;
        drain(&exporters).await;
        assert_eq!((ended(only(&exporters)), sink.seen().len()), ((1, 0), 4), "{protocol}");
    }
}
