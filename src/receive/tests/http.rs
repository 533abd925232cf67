//! OTLP/HTTP: requests and responses in protobuf and JSON; rejections in the type of the request.

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message as _;
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::rpc;

const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";

fn client() -> Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().no_proxy().build().unwrap()
}

struct HttpReply {
    status: StatusCode,
    headers: reqwest::header::HeaderMap,
    body: Bytes,
}

impl HttpReply {
    fn json(&self) -> Value {
        assert_eq!(self.headers["content-type"], JSON);
        serde_json::from_slice(&self.body).unwrap()
    }

    fn error(&self) -> rpc::RpcStatus {
        assert_eq!(self.headers["content-type"], PROTOBUF);
        rpc::RpcStatus::decode(self.body.clone()).unwrap()
    }
}

async fn post(server: &Server, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> HttpReply {
    let mut request = client().post(format!("http://{}{path}", server.http)).body(body);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = request.send().await.unwrap();
    let (status, headers) = (answer.status(), answer.headers().clone());
    HttpReply { status, headers, body: answer.bytes().await.unwrap() }
}

fn as_protobuf() -> [(&'static str, &'static str); 1] {
    [("content-type", PROTOBUF)]
}

#[tokio::test]
async fn protobuf_is_accepted_and_returned_on_each_path() {
    let server = Server::start().await;
    let message = request(300_000).encode_to_vec();
    for (path, signal) in
        [("/v1/traces", Signal::Traces), ("/v1/logs", Signal::Logs), ("/v1/metrics", Signal::Metrics)]
    {
        let reply = post(&server, path, &as_protobuf(), message.clone()).await;
        assert_eq!((reply.status, reply.body.len()), (StatusCode::OK, 0));
        assert_eq!(reply.headers["content-type"], PROTOBUF);
        let offer = server.offers().pop().unwrap();
        assert!(offer.signal == signal && offer.body == message);
        assert_eq!(server.request_count("http", signal.as_str(), "accepted"), 1);
    }
    server.wait_until_no_bytes_are_held().await;
}

#[tokio::test]
async fn an_empty_protobuf_body_is_an_empty_request() {
    let server = Server::start().await;
    let reply = post(&server, "/v1/traces", &as_protobuf(), Vec::new()).await;
    assert_eq!(reply.status, StatusCode::OK);
    assert!(server.offers()[0].body.is_empty());
}

#[tokio::test]
async fn http2_with_prior_knowledge_is_served_on_the_same_port() {
    let server = Server::start().await;
    let _ = client();
    let client = Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    let request = client.post(format!("http://{}/v1/traces", server.http)).header("content-type", PROTOBUF);
    let answer = request.body(super::request(1000).encode_to_vec()).send().await.unwrap();
    assert_eq!((answer.status(), answer.version()), (StatusCode::OK, reqwest::Version::HTTP_2));
}

#[tokio::test]
async fn gzip_zstd_and_deflate_are_decompressed() {
    let server = Server::start().await;
    let message = request(100_000).encode_to_vec();
    let mut deflate = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut deflate, &message).unwrap();
    for (name, body) in [
        ("gzip", gzip(&message)),
        ("zstd", zstd::encode_all(&message[..], 1).unwrap()),
        ("deflate", deflate.finish().unwrap()),
        ("identity", message.clone()),
    ] {
        let headers = [("content-type", PROTOBUF), ("content-encoding", name)];
        let reply = post(&server, "/v1/traces", &headers, body).await;
        assert_eq!(reply.status, StatusCode::OK, "{name}");
        assert!(server.offers().pop().unwrap().body == message, "{name}");
    }
}

#[tokio::test]
async fn json_is_accepted_and_returned_and_the_intake_gets_protobuf() {
    let server = Server::start().await;
    let body = json!({ "resourceSpans": [{ "scopeSpans": [{ "spans": [{
        "traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174", "name": "chat",
    }] }] }] });
    let headers = [("content-type", "application/json; charset=utf-8")];
    let reply = post(&server, "/v1/traces", &headers, body.to_string().into_bytes()).await;
    assert_eq!((reply.status, reply.json()), (StatusCode::OK, json!({})));
    let offer = server.offers().pop().unwrap();
    let decoded = ExportTraceServiceRequest::decode(offer.body).unwrap();
    let span = &decoded.resource_spans[0].scope_spans[0].spans[0];
    assert_eq!((span.name.as_str(), &span.span_id[..2]), ("chat", &[0xee, 0xe1][..]));
}

#[tokio::test]
async fn json_is_charged_twice_while_it_is_converted() {
    let mut tight = config();
    tight.admission.request_limit_mib = 1;
    let server = Server::start_with(tight, Duration::from_secs(1)).await;
    server.intake.gate.forget_permits(1000);
    let wait_for_requests = async |requests: usize| {
        while server.intake.arrived.load(Ordering::SeqCst) < requests {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let headers = as_protobuf();
    let protobuf = |size: usize| post(&server, "/v1/traces", &headers, request(size).encode_to_vec());
    let others = async {
        wait_for_requests(1).await;
        // Charged once, the body would fit beside the request that waits, as its protobuf form does.
        let name = "x".repeat(400_000);
        let body = json!({ "resourceSpans": [{ "scopeSpans": [{ "spans": [{ "name": name }] }] }] });
        let body = body.to_string().into_bytes();
        let refused = post(&server, "/v1/traces", &[("content-type", JSON)], body).await;
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
        let release = async {
            wait_for_requests(2).await;
            server.intake.gate.add_permits(1000);
        };
        assert_eq!(tokio::join!(protobuf(400_000), release).0.status, StatusCode::OK);
    };
    assert_eq!(tokio::join!(protobuf(200_000), others).0.status, StatusCode::OK);
    server.wait_until_no_bytes_are_held().await;
}

#[tokio::test]
async fn large_json_is_accepted() {
    let server = Server::start().await;
    let spans: Vec<Value> = (1..4000u32)
        .map(|n| {
            json!({ "traceId": "5b8efff798038103d269b633813fc60c",
                "spanId": format!("{n:016x}"), "name": format!("step {n} of a long run") })
        })
        .collect();
    let body = json!({ "resourceSpans": [{ "scopeSpans": [{ "spans": spans }] }] }).to_string();
    assert!(body.len() > 256 << 10);
    let reply = post(&server, "/v1/traces", &[("content-type", JSON)], body.into_bytes()).await;
    assert_eq!(reply.status, StatusCode::OK);
    let offer = server.offers().pop().unwrap();
    let decoded = ExportTraceServiceRequest::decode(offer.body).unwrap();
    assert_eq!(decoded.resource_spans[0].scope_spans[0].spans.len(), 3999);
}

#[tokio::test]
async fn partial_success_uses_the_request_type_and_the_signals_field_name() {
    let server = Server::start().await;
    server.set_answer(Ok(Accepted { rejected: 2, message: "two without ids".to_owned() }));
    let reply = post(&server, "/v1/traces", &as_protobuf(), Vec::new()).await;
    let partial = ExportTraceServiceResponse::decode(reply.body).unwrap().partial_success.unwrap();
    assert_eq!((partial.rejected_spans, partial.error_message.as_str()), (2, "two without ids"));
    for (path, name) in [
        ("/v1/traces", "rejectedSpans"),
        ("/v1/logs", "rejectedLogRecords"),
        ("/v1/metrics", "rejectedDataPoints"),
    ] {
        let reply = post(&server, path, &[("content-type", JSON)], b"{}".to_vec()).await;
        let expected = json!({ "partialSuccess": { name: "2", "errorMessage": "two without ids" } });
        assert_eq!((reply.status, reply.json()), (StatusCode::OK, expected));
    }
}

#[tokio::test]
async fn malformed_requests_are_400_with_a_status_in_the_request_type() {
    let server = Server::start().await;
    server.set_answer(Err(Refused::Malformed("field is cut off".to_owned())));
    let reply = post(&server, "/v1/traces", &as_protobuf(), vec![1, 2, 3]).await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
    let error = reply.error();
    assert!(
        error.code == 3 && String::from_utf8_lossy(&error.message).contains("field is cut off"),
        "{error:?}"
    );
    assert!(!reply.headers.contains_key("retry-after"));

    for body in ["", "{", "[]", "{\"resourceSpans\": 7}"] {
        let reply = post(&server, "/v1/traces", &[("content-type", JSON)], body.into()).await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{body:?}");
        assert_eq!(reply.json()["code"], 3);
        assert!(reply.json()["message"].as_str().is_some_and(|m| !m.is_empty()));
    }
    let headers = [("content-type", PROTOBUF), ("content-encoding", "gzip")];
    let reply = post(&server, "/v1/traces", &headers, b"not gzip".to_vec()).await;
    assert_eq!((reply.status, reply.error().code), (StatusCode::BAD_REQUEST, 3));
    assert_eq!(server.offers().len(), 1, "only the protobuf reached the intake");
}

#[tokio::test]
async fn too_large_requests_are_413_and_the_response_is_delivered() {
    let server = Server::start().await;
    let large = request(20 * LIMIT).encode_to_vec();
    let reply = post(&server, "/v1/traces", &as_protobuf(), large.clone()).await;
    assert_eq!((reply.status, reply.error().code), (StatusCode::PAYLOAD_TOO_LARGE, 8));
    assert!(!reply.headers.contains_key("retry-after"));
    let zeros = vec![0u8; 20 << 20];
    for (name, bomb) in [("gzip", gzip(&zeros)), ("zstd", zstd::encode_all(&zeros[..], 1).unwrap())] {
        let headers = [("content-type", JSON), ("content-encoding", name)];
        let reply = post(&server, "/v1/traces", &headers, bomb).await;
        assert_eq!((reply.status, reply.json()["code"].clone()), (StatusCode::PAYLOAD_TOO_LARGE, json!(8)));
    }
    assert!(server.offers().is_empty());
    assert_eq!(server.request_count("http", "traces", "too_large"), 3);
    server.wait_until_no_bytes_are_held().await;
}

#[tokio::test]
async fn pressure_is_503_with_retry_after_rounded_up() {
    let server = Server::start().await;
    *server.intake.pressure.lock().unwrap() = Some(Duration::from_millis(1100));
    let reply = post(&server, "/v1/traces", &as_protobuf(), request(500_000).encode_to_vec()).await;
    assert_eq!((reply.status, reply.error().code), (StatusCode::SERVICE_UNAVAILABLE, 14));
    assert_eq!(reply.headers["retry-after"], "2");
    assert!(server.offers().is_empty());
    *server.intake.pressure.lock().unwrap() = None;
    server.set_answer(Err(Refused::ShuttingDown));
    let reply = post(&server, "/v1/traces", &[("content-type", JSON)], b"{}".to_vec()).await;
    assert_eq!((reply.status, reply.json()["code"].clone()), (StatusCode::SERVICE_UNAVAILABLE, json!(14)));
    assert_eq!(reply.headers["retry-after"], "1");
}

#[tokio::test]
async fn unsupported_types_methods_paths_and_encodings_have_their_own_status() {
    let server = Server::start().await;
    for kind in ["text/plain", "application/x-protobufs", "application/grpc"] {
        let reply = post(&server, "/v1/traces", &[("content-type", kind)], Vec::new()).await;
        assert_eq!(reply.status, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{kind}");
    }
    let reply = post(&server, "/v1/traces", &[], b"x".to_vec()).await;
    assert_eq!(reply.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert_eq!(server.request_count("http", "traces", "unsupported"), 4);

    let headers = [("content-type", PROTOBUF), ("content-encoding", "br")];
    let reply = post(&server, "/v1/traces", &headers, Vec::new()).await;
    assert_eq!((reply.status, reply.error().code), (StatusCode::UNSUPPORTED_MEDIA_TYPE, 12));

    let url = format!("http://{}/v1/traces", server.http);
    let answer = client().get(&url).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(answer.headers()["allow"], "POST");
    // The response reaches a client that is still sending a large body.
    let reply = post(&server, "/v1/profiles", &as_protobuf(), vec![0; 20 * LIMIT]).await;
    assert_eq!(reply.status, StatusCode::NOT_FOUND);
    assert!(server.offers().is_empty());
}

#[tokio::test]
async fn paths_are_configurable() {
    let mut config = config();
    config.protocols.http.as_mut().unwrap().traces_url_path = "/otlp/traces".to_owned();
    let server = Server::start_with(config, Duration::from_secs(1)).await;
    assert_eq!(post(&server, "/otlp/traces", &as_protobuf(), Vec::new()).await.status, StatusCode::OK);
    assert_eq!(post(&server, "/v1/traces", &as_protobuf(), Vec::new()).await.status, StatusCode::NOT_FOUND);
    assert_eq!(post(&server, "/v1/logs", &as_protobuf(), Vec::new()).await.status, StatusCode::OK);
}

#[tokio::test]
async fn chunked_body_of_unknown_length_is_accepted_within_the_limit() {
    let server = Server::start().await;
    for (size, expected) in [(200_000, "HTTP/1.1 200"), (2 * LIMIT, "HTTP/1.1 413")] {
        let message = request(size).encode_to_vec();
        let mut socket = tokio::net::TcpStream::connect(server.http).await.unwrap();
        let head = "POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\ntransfer-encoding: chunked\r\n\r\n";
        socket.write_all(head.as_bytes()).await.unwrap();
        for chunk in message.chunks(50_000) {
            socket.write_all(format!("{:x}\r\n", chunk.len()).as_bytes()).await.unwrap();
            socket.write_all(chunk).await.unwrap();
            socket.write_all(b"\r\n").await.unwrap();
        }
        socket.write_all(b"0\r\n\r\n").await.unwrap();
        let mut answer = [0; 12];
        socket.read_exact(&mut answer).await.unwrap();
        assert_eq!(std::str::from_utf8(&answer).unwrap(), expected);
    }
    assert_eq!(server.offers().len(), 1);
}

#[tokio::test]
async fn rejected_request_with_expect_continue_is_answered_without_its_body() {
    let server = Server::start().await;
    *server.intake.pressure.lock().unwrap() = Some(Duration::from_secs(1));
    let mut socket = tokio::net::TcpStream::connect(server.http).await.unwrap();
    let head = "POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\ncontent-length: 1000\r\nexpect: 100-continue\r\n\r\n";
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    let status_line = socket.read_exact(&mut answer);
    tokio::time::timeout(PATIENCE, status_line).await.unwrap().unwrap();
    assert_eq!(&answer, b"HTTP/1.1 503");
}

#[tokio::test]
async fn body_that_stalls_or_breaks_off_is_503_so_that_clients_retry() {
    for breaks_off in [false, true] {
        let server = Server::start().await;
        let mut socket = tokio::net::TcpStream::connect(server.http).await.unwrap();
        let head = "POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{";
        socket.write_all(head.as_bytes()).await.unwrap();
        // The server has read the head once it reserves memory for the body.
        while server.telemetry.receive.held_bytes.get() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if breaks_off {
            socket.shutdown().await.unwrap();
        }
        tokio::time::pause();
        let start = tokio::time::Instant::now();
        let mut response = String::new();
        socket.read_to_string(&mut response).await.unwrap();
        assert!(response.starts_with("HTTP/1.1 503"), "breaks off: {breaks_off}, {response}");
        // The remaining body is not awaited a second time.
        let limit = if breaks_off { Duration::from_secs(1) } else { Duration::from_secs(31) };
        assert!(start.elapsed() < limit, "{:?}", start.elapsed());
        tokio::time::resume();
        assert_eq!(server.request_count("http", "traces", "cut_off"), 1);
    }
}
