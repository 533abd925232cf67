//! Listeners: shutdown, connection limits, silent peers, the limit on bytes in flight.

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::Code;

use super::*;

async fn wait_for(count: &AtomicUsize, expected: usize) {
    for _ in 0..18_000 {
        if count.load(Ordering::SeqCst) >= expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{} of {expected} requests came in", count.load(Ordering::SeqCst));
}

/// Stops the clock until `advance` is called. The blocking task keeps a stopped clock from advancing by itself
/// while all tasks wait for the network.
fn stop_clock() -> std::sync::mpsc::Sender<()> {
    let (sender, receiver) = std::sync::mpsc::channel();
    tokio::task::spawn_blocking(move || receiver.recv());
    tokio::time::pause();
    sender
}

/// Makes all further requests wait at the gate.
fn close_gate(gate: &Semaphore) {
    gate.forget_permits(1000);
}

#[tokio::test]
async fn shutdown_finishes_requests_in_flight_and_accepts_no_new_ones() {
    let server = Server::start().await;
    close_gate(&server.intake.gate);
    let mut client = TraceServiceClient::connect(format!("http://{}", server.grpc)).await.unwrap();
    let in_flight = tokio::spawn(async move { client.export(request(1000)).await });
    wait_for(&server.intake.arrived, 1).await;

    server.stop.cancel();
    for address in [server.grpc, server.http] {
        // The listener closes in a task of its own.
        while TcpStream::connect(address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    assert!(!server.serving.is_finished(), "serving ended with a request in flight");

    server.intake.gate.add_permits(1000);
    in_flight.await.unwrap().unwrap();
    timeout(PATIENCE, server.serving).await.unwrap().unwrap();
}

#[tokio::test]
async fn requests_longer_than_the_grace_time_are_aborted() {
    let server = Server::start_with(config(), Duration::from_millis(200)).await;
    close_gate(&server.intake.gate);
    let mut client = TraceServiceClient::connect(format!("http://{}", server.grpc)).await.unwrap();
    let in_flight = tokio::spawn(async move { client.export(request(1000)).await });
    wait_for(&server.intake.arrived, 1).await;
    server.stop.cancel();
    timeout(PATIENCE, server.serving).await.unwrap().unwrap();
    assert!(in_flight.await.unwrap().is_err());
}

#[tokio::test]
async fn connection_above_the_limit_waits_for_the_requests_of_the_others() {
    let mut config = config();
    config.protocols.http.as_mut().unwrap().max_connections = 1;
    let server = Server::start_with(config, Duration::from_secs(1)).await;
    let post = b"POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";
    close_gate(&server.intake.gate);
    let mut first = TcpStream::connect(server.http).await.unwrap();
    first.write_all(post).await.unwrap();
    wait_for(&server.intake.arrived, 1).await;

    let mut answer = [0; 12];
    let mut second = TcpStream::connect(server.http).await.unwrap();
    second.write_all(post).await.unwrap();
    assert!(timeout(Duration::from_millis(200), second.read_exact(&mut answer)).await.is_err());
    server.intake.gate.add_permits(1000);
    for client in [&mut first, &mut second] {
        timeout(PATIENCE, client.read_exact(&mut answer)).await.unwrap().unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
    }
}

#[tokio::test]
async fn longest_idle_connection_is_closed_for_a_new_one() {
    let mut config = config();
    config.protocols.grpc.as_mut().unwrap().max_connections = 4;
    let server = Server::start_with(config, Duration::from_secs(1)).await;
    let mut idle = Vec::new();
    for opened in 1..=4 {
        let mut peer = TcpStream::connect(server.grpc).await.unwrap();
        // HTTP/2's preface and empty SETTINGS. The peer answers no ping and no GOAWAY.
        peer.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
        idle.push(peer);
        while server.telemetry.receive.connections(Transport::Grpc).get() < opened {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    let mut client = TraceServiceClient::connect(format!("http://{}", server.grpc)).await.unwrap();
    let exported = timeout(PATIENCE, client.export(request(10))).await;
    exported.expect("idle connections hold every permit").unwrap();
    assert_eq!(server.telemetry.receive.connections(Transport::Grpc).get(), 4);
    let mut open = Vec::new();
    for (n, mut peer) in idle.into_iter().enumerate() {
        let mut received = Vec::new();
        let limit = if n == 0 { PATIENCE } else { Duration::from_millis(50) };
        open.push(timeout(limit, peer.read_to_end(&mut received)).await.is_err());
    }
    assert_eq!(open, [false, true, true, true], "the longest idle one is closed, and no other");
}

#[tokio::test]
async fn silent_connections_are_closed_after_the_header_timeout() {
    let mut config = config();
    config.protocols.http.as_mut().unwrap().read_header_timeout = verdict_config::Period::millis(150);
    let server = Server::start_with(config, Duration::from_secs(1)).await;
    // Silence, a preface that stops, headers that stop, and a request followed by silence.
    for payload in ["", "PRI * HT", "POST /v1/traces HTTP/1.1\r\nhost:", "GET / HTTP/1.1\r\nhost: x\r\n\r\n"]
    {
        let mut peer = TcpStream::connect(server.http).await.unwrap();
        peer.write_all(payload.as_bytes()).await.unwrap();
        let mut received = Vec::new();
        let closed = timeout(PATIENCE, peer.read_to_end(&mut received)).await;
        assert!(closed.is_ok(), "still open after {payload:?}");
    }
}

#[tokio::test]
async fn too_large_headers_are_rejected_over_http() {
    let server = Server::start().await;
    let mut peer = TcpStream::connect(server.http).await.unwrap();
    let head = format!("POST /v1/traces HTTP/1.1\r\nhost: x\r\nx-long: {}\r\n\r\n", "a".repeat(64 << 10));
    let _ = peer.write_all(head.as_bytes()).await;
    let mut answer = vec![0; 12];
    peer.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 431");
    let mut client = TraceServiceClient::connect(format!("http://{}", server.grpc)).await.unwrap();
    client.export(request(10)).await.unwrap();
}

#[tokio::test]
async fn requests_above_the_in_flight_limit_are_retryable() {
    let mut tight_config = config();
    tight_config.admission.request_limit_mib = 1;
    refuses_a_second_large_request(Server::start_with(tight_config, Duration::from_secs(1)).await).await;
    // A limit that follows from the memory budget has the same effect.
    let bound = bind(&config()).await.unwrap().with_in_flight_limit(1 << 20);
    refuses_a_second_large_request(Server::over(bound, Duration::from_secs(1))).await;
}

async fn refuses_a_second_large_request(server: Server) {
    close_gate(&server.intake.gate);
    let mut first = TraceServiceClient::connect(format!("http://{}", server.grpc)).await.unwrap();
    let in_flight = tokio::spawn(async move { first.export(request(900_000)).await });
    wait_for(&server.intake.arrived, 1).await;
    let mut second = TraceServiceClient::connect(format!("http://{}", server.grpc)).await.unwrap();
    // The accepted request waits at the gate.
    let refused = tokio::time::timeout(PATIENCE, second.export(request(900_000))).await;
    let status = refused.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(!status.details().is_empty(), "no time to retry");

    server.intake.gate.add_permits(1000);
    in_flight.await.unwrap().unwrap();
    server.wait_until_no_bytes_are_held().await;
    second.export(request(900_000)).await.unwrap();
}

/// The head of an HTTP/1.1 request that declares a body of 1 MiB.
const HEAD: &str = "POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\ncontent-length: 1048576\r\n\r\n";

async fn wait_until_bytes_are_held(server: &Server, bytes: i64) {
    for _ in 0..18_000 {
        if server.telemetry.receive.held_bytes.get() >= bytes {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{} of {bytes} bytes are held", server.telemetry.receive.held_bytes.get());
}

#[tokio::test]
async fn many_bodies_that_drip_leave_memory_to_others_and_are_rejected_for_their_rate() {
    let bound = bind(&config()).await.unwrap().with_in_flight_limit(1 << 20);
    let server = Server::over(bound, Duration::from_secs(1));
    let mut dripping = Vec::new();
    for _ in 0..128 {
        let mut socket = TcpStream::connect(server.http).await.unwrap();
        socket.write_all(format!("{HEAD}x").as_bytes()).await.unwrap();
        dripping.push(socket);
    }
    // Each request holds two bytes for the one that arrived, and its headers.
    wait_until_bytes_are_held(&server, 128 * 50).await;
    let mut client = TraceServiceClient::connect(format!("http://{}", server.grpc)).await.unwrap();
    client.export(request(100_000)).await.unwrap();

    tokio::time::pause();
    let start = tokio::time::Instant::now();
    let mut rejected = 0;
    for mut socket in dripping {
        // One more byte each second avoids the pause timeout, but is too slow.
        let (mut reader, mut writer) = socket.split();
        let dripping = async {
            while writer.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        let mut answer = [0; 12];
        tokio::select! {
            _ = reader.read_exact(&mut answer) => {}
            () = dripping => panic!("closed without a response"),
        }
        assert_eq!(&answer, b"HTTP/1.1 503");
        rejected += 1;
    }
    assert_eq!((rejected, server.request_count("http", "traces", "cut_off")), (128, 128));
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn peer_with_many_large_bodies_leaves_a_share_to_others() {
    let bound = bind(&config()).await.unwrap().with_in_flight_limit(1 << 20);
    let server = Server::over(bound, Duration::from_secs(1));
    // Each request holds twice its 64 KiB. All of them would hold twice the limit.
    let mut sending = Vec::new();
    for _ in 0..16 {
        let mut socket = TcpStream::connect(server.http).await.unwrap();
        socket.write_all(format!("{HEAD}{}", "x".repeat(64 << 10)).as_bytes()).await.unwrap();
        sending.push(socket);
    }
    // Five of them hold most of the three quarters that one peer can have.
    while server.request_count("http", "traces", "overloaded") < 11 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    wait_until_bytes_are_held(&server, 5 * (128 << 10)).await;
    // The other client has another address of this machine.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = socket.connect(server.http).await.unwrap();
    let body = request(80_000).encode_to_vec();
    let head = HEAD.replace("1048576", &body.len().to_string());
    other.write_all(&[head.as_bytes(), &body].concat()).await.unwrap();
    let mut answer = [0; 12];
    timeout(PATIENCE, other.read_exact(&mut answer)).await.unwrap().unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
}

#[tokio::test]
async fn connection_of_max_age_shuts_down_gracefully() {
    let mut config = config();
    let keepalive = &mut config.protocols.grpc.as_mut().unwrap().keepalive.server_parameters;
    keepalive.max_connection_age = Some(verdict_config::Period::secs(3600));
    let server = Server::start_with(config, Duration::from_secs(1)).await;
    let mut client = TraceServiceClient::connect(format!("http://{}", server.grpc)).await.unwrap();
    let open = server.telemetry.receive.connections(Transport::Grpc).clone();
    client.export(request(10)).await.unwrap();
    assert_eq!(open.get(), 1);
    let _clock = stop_clock();
    tokio::time::advance(Duration::from_secs(3000)).await;
    client.export(request(10)).await.unwrap();
    assert_eq!(open.get(), 1, "younger than its age");
    // The age varies by up to a tenth, depending on the port of the client.
    tokio::time::advance(Duration::from_secs(1000)).await;
    while open.get() > 0 {
        tokio::task::yield_now().await;
    }
    client.export(request(10)).await.unwrap();
}

#[tokio::test]
async fn bind_error_names_the_address_in_use() {
    let address = TcpStream::connect(Server::start().await.grpc).await.unwrap().peer_addr().unwrap();
    let mut config = config();
    config.protocols.grpc.as_mut().unwrap().endpoint = Endpoint::new(&address.to_string()).unwrap();
    let error = bind(&config).await.unwrap_err().to_string();
    assert!(error.contains(&address.to_string()), "{error}");
}

#[tokio::test]
async fn streams_above_the_limit_wait_at_the_sender() {
    let mut config = config();
    config.protocols.grpc.as_mut().unwrap().max_concurrent_streams = 2;
    let server = Server::start_with(config, Duration::from_secs(1)).await;
    close_gate(&server.intake.gate);
    let client = TraceServiceClient::connect(format!("http://{}", server.grpc)).await.unwrap();
    // With the first request the client learns the limit; before, it could open more streams, which are reset.
    let mut calls = Vec::new();
    for sent in 1..=5 {
        let mut client = client.clone();
        calls.push(tokio::spawn(async move { client.export(request(100)).await }));
        wait_for(&server.intake.arrived, sent.min(2)).await;
    }
    server.intake.gate.add_permits(1000);
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(server.intake.max_waiting.load(Ordering::SeqCst), 2, "at once");
}

#[tokio::test]
async fn too_large_headers_are_rejected_over_grpc() {
    let mut config = config();
    config.protocols.grpc.as_mut().unwrap().max_header_size = verdict_config::Size(8 << 10);
    let server = Server::start_with(config, Duration::from_secs(1)).await;
    let mut client = TraceServiceClient::connect(format!("http://{}", server.grpc)).await.unwrap();
    for (length, is_accepted) in [(1 << 10, true), (10 << 10, false), (1 << 10, true)] {
        let mut request = tonic::Request::new(request(10));
        request.metadata_mut().insert("x-long", "a".repeat(length).parse().unwrap());
        assert_eq!(client.export(request).await.is_ok(), is_accepted, "{length} bytes of headers");
    }
    assert_eq!(server.offers().len(), 2);
}
