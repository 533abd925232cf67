//! OTLP/gRPC, with the generated client and with hand-made HTTP/2 requests.

use ::http::{HeaderMap, Method, Request, StatusCode, header};
use bytes::Bytes;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_client::LogsServiceClient;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use prost::Message as _;
use tonic::Code;
use tonic::transport::Channel;
use tower::{Service as _, ServiceExt as _};

use super::*;
use crate::rpc;

const TRACES: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

async fn channel(addr: SocketAddr) -> Channel {
    Channel::from_shared(format!("http://{addr}")).unwrap().connect().await.unwrap()
}

/// A call with arbitrary headers, and a body in arbitrary chunks.
struct Call {
    method: Method,
    path: &'static str,
    headers: Vec<(&'static str, &'static str)>,
    pieces: Vec<Vec<u8>>,
}

struct GrpcReply {
    http: StatusCode,
    headers: HeaderMap,
    body: Bytes,
    code: Option<Code>,
    message: String,
    details: Vec<u8>,
}

impl Call {
    fn new(body: Vec<u8>) -> Call {
        Call {
            method: Method::POST,
            path: TRACES,
            headers: vec![("content-type", "application/grpc"), ("te", "trailers")],
            pieces: vec![body],
        }
    }

    fn encoding(mut self, name: &'static str) -> Call {
        self.headers.push(("grpc-encoding", name));
        self
    }

    async fn send(self, server: &Server) -> GrpcReply {
        let mut request =
            Request::builder().method(self.method).uri(format!("http://{}{}", server.grpc, self.path));
        for (name, value) in self.headers {
            request = request.header(name, value);
        }
        let frames = self.pieces.into_iter().map(|p| Ok::<_, tonic::Status>(Frame::data(Bytes::from(p))));
        let body = tonic::body::Body::new(StreamBody::new(tokio_stream::iter(frames)));
        let mut channel = channel(server.grpc).await;
        let answer = channel.ready().await.unwrap().call(request.body(body).unwrap()).await.unwrap();
        let (parts, body) = answer.into_parts();
        let body = body.collect().await.unwrap();
        let trailers = body.trailers().cloned().unwrap_or_else(|| parts.headers.clone());
        let status = tonic::Status::from_header_map(&trailers);
        GrpcReply {
            http: parts.status,
            headers: parts.headers,
            body: body.to_bytes(),
            code: status.as_ref().map(tonic::Status::code),
            message: status.as_ref().map(|s| s.message().to_owned()).unwrap_or_default(),
            details: status.map(|s| s.details().to_vec()).unwrap_or_default(),
        }
    }
}

fn framed(flag: u8, message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[flag][..], &length, message].concat()
}

#[tokio::test]
async fn all_three_services_forward_messages_unchanged() {
    let server = Server::start().await;
    let channel = channel(server.grpc).await;
    let traces = request(300_000);
    let answer = TraceServiceClient::new(channel.clone()).export(traces.clone()).await.unwrap();
    assert_eq!(answer.into_inner().partial_success, None);
    LogsServiceClient::new(channel.clone()).export(ExportLogsServiceRequest::default()).await.unwrap();
    MetricsServiceClient::new(channel).export(ExportMetricsServiceRequest::default()).await.unwrap();

    let offers = server.offers();
    let signals: Vec<Signal> = offers.iter().map(|o| o.signal).collect();
    assert_eq!(signals, Signal::ALL);
    assert!(offers[0].body == traces.encode_to_vec());
    assert!(offers[1].body.is_empty() && offers[2].body.is_empty());
    for signal in ["traces", "logs", "metrics"] {
        assert_eq!(server.request_count("grpc", signal, "accepted"), 1, "{signal}");
    }
    server.wait_until_no_bytes_are_held().await;
}

#[tokio::test]
async fn partial_success_names_rejected_items() {
    let server = Server::start().await;
    server.set_answer(Ok(Accepted { rejected: 3, message: "3 spans without an id".to_owned() }));
    let answer = TraceServiceClient::new(channel(server.grpc).await).export(request(10)).await.unwrap();
    let partial = answer.into_inner().partial_success.unwrap();
    assert_eq!((partial.rejected_spans, partial.error_message.as_str()), (3, "3 spans without an id"));
    assert_eq!(server.request_count("grpc", "traces", "partial"), 1);
}

#[tokio::test]
async fn gzip_and_zstd_messages_and_uncompressed_ones_are_accepted() {
    let server = Server::start().await;
    let message = request(200_000).encode_to_vec();
    let calls = [
        Call::new(framed(1, &gzip(&message))).encoding("gzip"),
        Call::new(framed(1, &zstd::encode_all(&message[..], 1).unwrap())).encoding("zstd"),
        Call::new(framed(0, &message)).encoding("gzip"),
        Call::new(framed(0, &message)).encoding("identity"),
    ];
    for call in calls {
        let reply = call.send(&server).await;
        assert_eq!((reply.code, &reply.body[..]), (Some(Code::Ok), &[0; 5][..]), "{}", reply.message);
    }
    let offers = server.offers();
    assert_eq!(offers.len(), 4);
    assert!(offers.iter().all(|o| o.body == message));
}

#[tokio::test]
async fn message_may_arrive_in_chunks_of_any_size() {
    let server = Server::start().await;
    let message = request(600).encode_to_vec();
    let mut call = Call::new(Vec::new());
    call.pieces = framed(0, &message).into_iter().map(|byte| vec![byte]).collect();
    assert_eq!(call.send(&server).await.code, Some(Code::Ok));
    assert_eq!(server.offers()[0].body, message);
}

#[tokio::test]
async fn pressure_rejects_before_the_body_with_a_retry_delay() {
    let server = Server::start().await;
    *server.intake.pressure.lock().unwrap() = Some(Duration::from_millis(2500));
    // The request is larger than the connection's window, so that a part of the body stays at the sender.
    let status =
        TraceServiceClient::new(channel(server.grpc).await).export(request(8 << 20)).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    let details = rpc::RpcStatus::decode(status.details()).unwrap();
    assert_eq!(details.code, Code::Unavailable as i32);
    assert_eq!(details.details[0].type_url, "type.googleapis.com/google.rpc.RetryInfo");
    let retry = rpc::RetryInfo::decode(details.details[0].value.clone()).unwrap().retry_delay.unwrap();
    assert_eq!((retry.seconds, retry.nanos), (2, 500_000_000));
    assert!(server.offers().is_empty());
    assert_eq!(server.request_count("grpc", "traces", "overloaded"), 1);
}

#[tokio::test]
async fn intake_refusals_map_to_grpc_codes() {
    let server = Server::start().await;
    let mut client = TraceServiceClient::new(channel(server.grpc).await);
    for (refused, code, retries) in [
        (Refused::Malformed("field is cut off".to_owned()), Code::InvalidArgument, false),
        (Refused::Overloaded { retry: Duration::from_secs(1) }, Code::Unavailable, true),
        (Refused::ShuttingDown, Code::Unavailable, true),
        (Refused::Unsupported(Signal::Traces), Code::Unimplemented, false),
        (Refused::Undeliverable(Signal::Traces), Code::Unavailable, true),
    ] {
        server.set_answer(Err(refused));
        let status = client.export(request(10)).await.unwrap_err();
        assert_eq!((status.code(), !status.details().is_empty()), (code, retries), "{status:?}");
    }
}

#[tokio::test]
async fn too_large_messages_are_resource_exhausted_without_retry_info() {
    let server = Server::start().await;
    let large = request(LIMIT + 1000).encode_to_vec();
    let claimed_length = [&[0u8][..], &u32::MAX.to_be_bytes(), b"little"].concat();
    let bomb = gzip(&vec![0u8; 20 << 20]);
    assert!(bomb.len() < LIMIT);
    let zstd_bomb = zstd::encode_all(&vec![0u8; 20 << 20][..], 1).unwrap();
    for call in [
        Call::new(framed(0, &large)),
        Call::new(claimed_length),
        Call::new(framed(1, &bomb)).encoding("gzip"),
        Call::new(framed(1, &zstd_bomb)).encoding("zstd"),
    ] {
        let reply = call.send(&server).await;
        assert_eq!(reply.code, Some(Code::ResourceExhausted), "{}", reply.message);
        assert!(reply.details.is_empty());
    }
    assert!(server.offers().is_empty());
    assert_eq!(server.request_count("grpc", "traces", "too_large"), 4);
    server.wait_until_no_bytes_are_held().await;
}

#[tokio::test]
async fn invalid_framing_and_compression_are_invalid_arguments() {
    let server = Server::start().await;
    let message = request(100).encode_to_vec();
    let packed = gzip(&message);
    for (name, call) in [
        ("no message", Call::new(Vec::new())),
        ("half a prefix", Call::new(vec![0, 0, 0])),
        ("cut off", Call::new(framed(0, &message)[..40].to_vec())),
        ("two messages", Call::new([framed(0, &message), framed(0, &message)].concat())),
        ("bad flag", Call::new(framed(2, &message)).encoding("gzip")),
        ("compressed without grpc-encoding", Call::new(framed(1, &packed))),
        ("not gzip", Call::new(framed(1, &message)).encoding("gzip")),
        ("gzip cut off", Call::new(framed(1, &packed[..packed.len() - 9])).encoding("gzip")),
        ("not zstd", Call::new(framed(1, &message)).encoding("zstd")),
    ] {
        let reply = call.send(&server).await;
        assert_eq!(reply.code, Some(Code::InvalidArgument), "{name}: {}", reply.message);
        assert!(reply.details.is_empty() && !reply.message.is_empty(), "{name}");
    }
    assert!(server.offers().is_empty());
    assert_eq!(server.request_count("grpc", "traces", "malformed"), 9);
}

#[tokio::test]
async fn unknown_methods_are_unimplemented_and_non_grpc_requests_get_http_errors() {
    let server = Server::start().await;
    let body = || framed(0, b"");
    let reply = Call::new(body()).encoding("snappy").send(&server).await;
    assert_eq!(reply.code, Some(Code::Unimplemented));
    assert_eq!(reply.headers["grpc-accept-encoding"], "identity,gzip,zstd");
    let mut unknown = Call::new(body());
    unknown.path = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";
    assert_eq!(unknown.send(&server).await.code, Some(Code::Unimplemented));
    let mut get = Call::new(Vec::new());
    get.method = Method::GET;
    assert_eq!(get.send(&server).await.http, StatusCode::METHOD_NOT_ALLOWED);
    let mut json = Call::new(body());
    json.headers[0] = (header::CONTENT_TYPE.as_str(), "application/grpc-web");
    assert_eq!(json.send(&server).await.http, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert!(server.offers().is_empty());
    // Other senders are not affected.
    assert_eq!(Call::new(body()).send(&server).await.code, Some(Code::Ok));
}

#[tokio::test]
async fn disconnect_within_a_message_releases_all_bytes() {
    let server = Server::start().await;
    let request =
        Request::post(format!("http://{}{TRACES}", server.grpc)).header("content-type", "application/grpc");
    let start = framed(0, &vec![0; 500_000])[..100_000].to_vec();
    let pieces = tokio_stream::StreamExt::chain(
        tokio_stream::iter([Ok::<_, tonic::Status>(Frame::data(Bytes::from(start)))]),
        tokio_stream::pending(),
    );
    let body = tonic::body::Body::new(StreamBody::new(pieces));
    let mut channel = channel(server.grpc).await;
    let call = channel.ready().await.unwrap().call(request.body(body).unwrap());
    assert!(tokio::time::timeout(Duration::from_millis(300), call).await.is_err());
    drop(channel);
    server.wait_until_no_bytes_are_held().await;
    assert!(server.offers().is_empty());
    assert_eq!(Call::new(framed(0, b"")).send(&server).await.code, Some(Code::Ok));
}

#[tokio::test]
async fn decompression_ratio_above_the_limit_is_rejected_permanently() {
    let mut limited = config();
    limited.protocols.grpc.as_mut().unwrap().max_recv_msg_size_mib = 64;
    limited.admission.max_decompression_ratio = 50;
    let server = Server::start_with(limited, Duration::from_secs(1)).await;
    let pack = |name: &str, size: usize| {
        let message = request(size).encode_to_vec();
        if name == "gzip" { gzip(&message) } else { zstd::encode_all(&message[..], 1).unwrap() }
    };
    for name in ["gzip", "zstd"] {
        let reply = Call::new(framed(1, &pack(name, 8 << 20))).encoding(name).send(&server).await;
        assert!(reply.code == Some(Code::ResourceExhausted) && reply.details.is_empty(), "{name}");
        assert!(reply.message.contains("50 times"), "{}", reply.message);
        // The ratio of small requests is not limited.
        let reply = Call::new(framed(1, &pack(name, 900_000))).encoding(name).send(&server).await;
        assert_eq!(reply.code, Some(Code::Ok), "{name}");
    }
    assert_eq!(server.request_count("grpc", "traces", "too_large"), 2);
    server.wait_until_no_bytes_are_held().await;
}
