//! A test destination for OTLP over gRPC and HTTP, on one port, with configurable responses. It records its requests.

use std::io::Read;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::http::{HeaderMap, Request, Response, StatusCode};
use axum::body::Body;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message;
use tonic::transport::{Identity, Server, ServerTlsConfig};
use tonic::{Code, Status};

/// A recorded request.
#[derive(Clone, Debug)]
pub(super) struct ReceivedRequest {
    pub path: String,
    pub headers: HeaderMap,
    /// The size of the compressed message, without the prefix of gRPC.
    pub wire_bytes: usize,
    /// The decompressed message.
    pub message: Vec<u8>,
}

impl ReceivedRequest {
    /// The names of the spans in the request.
    pub(super) fn names(&self) -> Vec<String> {
        let request = ExportTraceServiceRequest::decode(&self.message[..]).unwrap();
        let scopes = request.resource_spans.into_iter().flat_map(|r| r.scope_spans);
        scopes.flat_map(|s| s.spans).map(|s| s.name).collect()
    }
}

/// The response to a request.
#[derive(Clone, Debug)]
pub(super) enum TestResponse {
    /// Success, with this message.
    Ok(Vec<u8>),
    /// A gRPC status.
    Grpc(Status),
    /// An HTTP status, with a `Retry-After`.
    Http(u16, Option<&'static str>),
    /// gRPC: the response ends without a status. HTTP: the connection is closed without a response.
    Cut,
    /// No response while the test runs.
    Hang,
}

impl TestResponse {
    pub(super) fn code(code: Code) -> TestResponse {
        TestResponse::Grpc(Status::new(code, "configured response"))
    }

    /// A gRPC server's response to a message above its limit.
    pub(super) fn too_large() -> TestResponse {
        TestResponse::Grpc(Status::new(Code::ResourceExhausted, "grpc: received message larger than max"))
    }
}

/// Returns the response, given the index of the request and the request.
type ResponseFn = Arc<dyn Fn(usize, &ReceivedRequest) -> TestResponse + Send + Sync>;

/// A running destination. It stops with the runtime of the test.
pub(super) struct Sink {
    pub addr: SocketAddr,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
    /// Each response takes a permit. A test delays responses by removing the permits.
    pub gate: Arc<tokio::sync::Semaphore>,
}

impl Sink {
    /// Starts a destination that responds to each request with the result of `response_fn`.
    pub(super) async fn start(
        response_fn: impl Fn(usize, &ReceivedRequest) -> TestResponse + Send + Sync + 'static,
    ) -> Sink {
        Sink::start_tls(response_fn, None).await
    }

    pub(super) async fn start_tls(
        response_fn: impl Fn(usize, &ReceivedRequest) -> TestResponse + Send + Sync + 'static,
        tls: Option<ServerTlsConfig>,
    ) -> Sink {
        let requests: Arc<Mutex<Vec<ReceivedRequest>>> = Arc::default();
        let gate = Arc::new(tokio::sync::Semaphore::new(1_000_000));
        let (response_fn, received, permits): (ResponseFn, _, _) =
            (Arc::new(response_fn), Arc::clone(&requests), Arc::clone(&gate));
        let router = axum::Router::new().fallback(move |request: Request<Body>| {
            let (response_fn, received, permits) =
                (Arc::clone(&response_fn), Arc::clone(&received), Arc::clone(&permits));
            async move {
                let request = read(request).await;
                let index = {
                    let mut received = received.lock().unwrap();
                    received.push(request.clone());
                    received.len() - 1
                };
                permits.acquire().await.unwrap().forget();
                into_http(response_fn(index, &request), request.path.starts_with("/opentelemetry")).await
            }
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        match tls {
            None => {
                tokio::spawn(async move { axum::serve(listener, router).await });
            }
            Some(tls) => {
                let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
                let routes = tonic::service::Routes::from(router);
                let server = Server::builder().tls_config(tls).unwrap().add_routes(routes);
                tokio::spawn(server.serve_with_incoming(incoming));
            }
        }
        Sink { addr, requests, gate }
    }

    pub(super) fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().unwrap().clone()
    }

    /// The names of all received spans, in the order of the requests.
    pub(super) fn names(&self) -> Vec<String> {
        self.requests().iter().flat_map(ReceivedRequest::names).collect()
    }
}

async fn read(request: Request<Body>) -> ReceivedRequest {
    let (head, body) = request.into_parts();
    let mut bytes = body.collect().await.map(|b| b.to_bytes()).unwrap_or_default();
    let encoding = |name: &str| head.headers.get(name).map(|v| v.to_str().unwrap().to_owned());
    let is_grpc = head.uri.path().starts_with("/opentelemetry");
    let encoding = if is_grpc {
        let prefix = bytes.split_to(5);
        let len = u32::from_be_bytes(prefix[1..].try_into().unwrap()) as usize;
        assert_eq!(len, bytes.len(), "one message, of the length in its prefix");
        let encoding = encoding("grpc-encoding");
        assert_eq!(prefix[0] == 1, encoding.is_some(), "the flag is set if the message is compressed");
        encoding
    } else {
        encoding("content-encoding")
    };
    let mut message = Vec::new();
    match encoding.as_deref() {
        None => message.extend_from_slice(&bytes),
        Some("gzip") => {
            flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut message).unwrap();
        }
        Some("zstd") => message = zstd::decode_all(&bytes[..]).unwrap(),
        Some(other) => panic!("unexpected encoding {other}"),
    }
    ReceivedRequest {
        path: head.uri.path().to_owned(),
        headers: head.headers,
        wire_bytes: bytes.len(),
        message,
    }
}

async fn into_http(response: TestResponse, is_grpc: bool) -> Response<Body> {
    match response {
        TestResponse::Ok(message) if is_grpc => {
            let mut framed = vec![0];
            framed.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
            framed.extend(message);
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", "0".parse().unwrap());
            let body = Full::new(Bytes::from(framed)).with_trailers(std::future::ready(Some(Ok(trailers))));
            Response::builder().header("content-type", "application/grpc").body(Body::new(body)).unwrap()
        }
        TestResponse::Ok(message) => {
            Response::builder().header("content-type", "application/x-protobuf").body(message.into()).unwrap()
        }
        TestResponse::Grpc(status) => status.into_http(),
        TestResponse::Http(status, retry_after) => {
            let mut response = Response::new(Body::from("configured response"));
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            if let Some(retry_after) = retry_after {
                response.headers_mut().insert("retry-after", retry_after.parse().unwrap());
            }
            response
        }
        TestResponse::Cut if is_grpc => Response::new(Body::empty()),
        TestResponse::Cut => panic!("the configured response breaks the connection"),
        TestResponse::Hang => {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            Response::new(Body::empty())
        }
    }
}

/// A self-signed certificate for `name`, and the settings of a server with it.
pub(super) fn self_signed(name: &str) -> (String, ServerTlsConfig) {
    let certified_key = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let (cert, key) = (certified_key.cert.pem(), certified_key.signing_key.serialize_pem());
    (cert.clone(), ServerTlsConfig::new().identity(Identity::from_pem(cert, key)))
}

/// The certificate of an authority, a client certificate that it signed, and the key of the client, as PEM.
pub(super) fn client_certificate() -> (String, String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).unwrap();
    let issuer = rcgen::Issuer::new(params, key);
    let client_key = rcgen::KeyPair::generate().unwrap();
    let leaf = rcgen::CertificateParams::new(["client".to_owned()])
        .unwrap()
        .signed_by(&client_key, &issuer)
        .unwrap();
    (authority.pem(), leaf.pem(), client_key.serialize_pem())
}
