//! Raw gRPC for the load harness: messages stay bytes. Generator and sink use it, and so do the relays that the
//! processor is compared with: relays forward each request unchanged or re-encoded and respond after the
//! destination has responded.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use http::uri::PathAndQuery;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};

/// `TraceService/Export`.
pub const TRACES: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
/// Limit on a message, above any request of the corpora and any request that contains their spans.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// A codec that does nothing.
#[derive(Clone, Copy)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

/// A connection to a server.
#[derive(Clone)]
pub struct Client(tonic::client::Grpc<Channel>);

impl Client {
    /// Connects, waiting for a server that is still starting.
    pub async fn connect(to: SocketAddr) -> Client {
        let endpoint = Endpoint::from_shared(format!("http://{to}")).expect("an address is a URI");
        for _ in 0..500 {
            if let Ok(channel) = endpoint.connect().await {
                return Client(
                    tonic::client::Grpc::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES),
                );
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("no server listens on {to}");
    }

    /// Sends one request, again while the server is unavailable.
    pub async fn export(&self, path: &'static str, message: Bytes) -> Bytes {
        let mut grpc = self.0.clone();
        loop {
            grpc.ready().await.expect("the server runs");
            let path = PathAndQuery::from_static(path);
            match grpc.unary(Request::new(message.clone()), path, Raw).await {
                Ok(response) => return response.into_inner(),
                Err(status) if status.code() == tonic::Code::Unavailable => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(status) => panic!("refused: {status}"),
            }
        }
    }

    /// Sends requests of spans, `max_in_flight` in flight; returns when all are answered.
    pub async fn send(&self, requests: &[Bytes], max_in_flight: usize) {
        let slots = Arc::new(Semaphore::new(max_in_flight));
        for request in requests {
            let slot = slots.clone().acquire_owned().await.expect("the semaphore is never closed");
            let (client, request) = (self.clone(), request.clone());
            tokio::spawn(async move {
                client.export(TRACES, request).await;
                drop(slot);
            });
        }
        let _all = slots.acquire_many(max_in_flight as u32).await.expect("the semaphore is never closed");
    }
}

/// CPU seconds that a process has used. Linux only.
pub fn cpu(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("the process runs");
    // Fields 14 and 15, utime and stime, in ticks of 10 ms; the name before them may contain spaces.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |n: usize| fields[n].parse::<f64>().expect("a number");
    (ticks(11) + ticks(12)) / 100.0
}

/// Serves every method of every service with `on_message`, which gets the path and the message.
pub async fn serve<F>(
    listener: TcpListener,
    on_message: impl Fn(String, Bytes) -> F + Clone + Send + Sync + 'static,
) where
    F: Future<Output = Bytes> + Send + 'static,
{
    let router = axum::Router::new().fallback(move |request: http::Request<axum::body::Body>| {
        let on_message = on_message.clone();
        async move {
            let path = request.uri().path().to_owned();
            let method = tower::service_fn(move |request: Request<Bytes>| {
                let answer = on_message(path.clone(), request.into_inner());
                async move { Ok::<_, Status>(Response::new(answer.await)) }
            });
            tonic::server::Grpc::new(Raw)
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .unary(method, request)
                .await
        }
    });
    let routes = tonic::service::Routes::from(router);
    // The option of the server applies to listeners of its own only.
    let connections = TcpIncoming::from(listener).with_nodelay(Some(true));
    let server = Server::builder().add_routes(routes);
    server.serve_with_incoming(connections).await.expect("the listener works");
}

/// Relays requests, as a process that the processor is compared with: receives them on `from`, applies `transform`, and
/// sends them to `to`.
pub async fn relay(from: SocketAddr, to: SocketAddr, transform: fn(Bytes) -> Bytes) {
    let client = Client::connect(to).await;
    let listener = TcpListener::bind(from).await.expect("the port is free");
    serve(listener, move |path, message| {
        let client = client.clone();
        async move {
            assert_eq!(path, TRACES);
            client.export(TRACES, transform(message)).await
        }
    })
    .await;
}
