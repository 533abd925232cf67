//! TLS, client certificates, credentials and cross-origin requests, with real clients.

use std::path::PathBuf;

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use reqwest::{Certificate, Client, Identity, StatusCode, header};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, ClientTlsConfig};
use tonic::{Code, Request, Status};
use verdict_config::{Period, Secret};

use super::*;
use crate::logging::testing::CapturedLog;

/// A certificate authority of a test.
struct Authority {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    pem: String,
}

/// Certificate and key.
struct Signed {
    cert: String,
    key: String,
}

impl Authority {
    fn new() -> Authority {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { issuer: rcgen::Issuer::new(params, key), pem }
    }

    fn sign(&self, name: &str) -> Signed {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap().pem();
        Signed { cert, key: key.serialize_pem() }
    }
}

/// A folder with the files of a server.
struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    fn new(server: &Signed) -> Files {
        let files = Files { folder: tempfile::tempdir().unwrap() };
        files.write(server);
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, server: &Signed) {
        std::fs::write(self.path("tls.key"), &server.key).unwrap();
        std::fs::write(self.path("tls.crt"), &server.cert).unwrap();
    }

    fn tls(&self) -> ServerTls {
        ServerTls {
            cert_file: self.path("tls.crt"),
            key_file: self.path("tls.key"),
            client_ca_file: None,
            min_version: TlsVersion::default(),
            reload_interval: Period::millis(50),
        }
    }

    fn mutual(&self, clients: &Authority) -> ServerTls {
        std::fs::write(self.path("clients.crt"), &clients.pem).unwrap();
        ServerTls { client_ca_file: Some(self.path("clients.crt")), ..self.tls() }
    }
}

fn config_with(tls: Option<ServerTls>, auth: Option<Auth>) -> OtlpConfig {
    let mut config = config();
    let Protocols { grpc: Some(grpc), http: Some(http) } = &mut config.protocols else {
        panic!("a protocol is not configured")
    };
    (grpc.tls, http.tls) = (tls.clone(), tls);
    (grpc.auth, http.auth) = (auth.clone(), auth);
    config
}

async fn serve(config: OtlpConfig) -> Server {
    Server::start_with(config, Duration::from_secs(1)).await
}

/// The trusted authority and the certificate of a client.
struct Peer<'a> {
    trusts: &'a Authority,
    shows: Option<&'a Signed>,
}

impl Peer<'_> {
    async fn grpc(&self, server: &Server) -> Result<(), String> {
        let mut tls = ClientTlsConfig::new()
            .ca_certificate(tonic::transport::Certificate::from_pem(&self.trusts.pem))
            .domain_name("localhost");
        if let Some(identity) = self.shows {
            tls = tls.identity(tonic::transport::Identity::from_pem(&identity.cert, &identity.key));
        }
        let url = format!("https://{}", server.grpc);
        let channel = Channel::from_shared(url).unwrap().tls_config(tls).unwrap().connect().await;
        let channel = channel.map_err(|e| format!("{e:?}"))?;
        let sent = TraceServiceClient::new(channel).export(request(1000)).await;
        sent.map(|_| ()).map_err(|e| format!("{e:?}"))
    }

    fn client(&self) -> Client {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let trusted = Certificate::from_pem(self.trusts.pem.as_bytes()).unwrap();
        let mut builder = Client::builder().no_proxy().tls_certs_only([trusted]);
        if let Some(identity) = self.shows {
            let pem = format!("{}{}", identity.cert, identity.key);
            builder = builder.identity(Identity::from_pem(pem.as_bytes()).unwrap());
        }
        builder.build().unwrap()
    }

    async fn http(&self, server: &Server) -> Result<reqwest::Version, String> {
        let url = format!("https://localhost:{}/v1/traces", server.http.port());
        let request = self.client().post(url).header("content-type", "application/x-protobuf").body("");
        let answer = request.send().await.map_err(|e| format!("{e:?}"))?;
        assert_eq!(answer.status(), StatusCode::OK);
        Ok(answer.version())
    }
}

#[tokio::test]
async fn tls_serves_both_protocols_to_clients_that_trust_the_certificate() {
    let (ours, other) = (Authority::new(), Authority::new());
    let files = Files::new(&ours.sign("localhost"));
    let server = serve(config_with(Some(files.tls()), None)).await;
    let peer = Peer { trusts: &ours, shows: None };
    peer.grpc(&server).await.unwrap();
    assert_eq!(peer.http(&server).await.unwrap(), reqwest::Version::HTTP_2, "ALPN");
    assert_eq!(server.offers().len(), 2);

    let stranger = Peer { trusts: &other, shows: None };
    stranger.grpc(&server).await.unwrap_err();
    stranger.http(&server).await.unwrap_err();
    // Plain-text clients receive no HTTP response.
    export(&server, None).await.unwrap_err();
    let mut plain = TcpStream::connect(server.http).await.unwrap();
    plain.write_all(b"POST /v1/traces HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = timeout(PATIENCE, plain.read_to_end(&mut answer)).await.unwrap();
    assert!(!answer.starts_with(b"HTTP"));
    assert_eq!(server.offers().len(), 2);
}

#[tokio::test]
async fn tls_serves_http_1_if_the_client_negotiates_it() {
    let ours = Authority::new();
    let files = Files::new(&ours.sign("localhost"));
    let server = serve(config_with(Some(files.tls()), None)).await;
    let trusted = Certificate::from_pem(ours.pem.as_bytes()).unwrap();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::builder().no_proxy().http1_only().tls_certs_only([trusted]).build().unwrap();
    let url = format!("https://localhost:{}/v1/traces", server.http.port());
    let answer = client.post(url).header("content-type", "application/json").body("{}").send().await.unwrap();
    assert_eq!((answer.status(), answer.version()), (StatusCode::OK, reqwest::Version::HTTP_11));
}

#[tokio::test]
async fn mtls_requires_a_certificate_of_a_configured_authority() {
    let (ours, clients, other) = (Authority::new(), Authority::new(), Authority::new());
    let files = Files::new(&ours.sign("localhost"));
    let server = serve(config_with(Some(files.mutual(&clients)), None)).await;
    let (known_client, unknown_client) = (clients.sign("agent"), other.sign("agent"));
    let peer = |shows| Peer { trusts: &ours, shows };
    peer(Some(&known_client)).grpc(&server).await.unwrap();
    peer(Some(&known_client)).http(&server).await.unwrap();
    for shows in [None, Some(&unknown_client)] {
        assert!(peer(shows).grpc(&server).await.is_err());
        assert!(peer(shows).http(&server).await.is_err());
    }
    // In TLS 1.3 the client's handshake ends first, so that the server's may fail a little later.
    for transport in Transport::ALL {
        let failed = server.telemetry.receive.handshakes_failed(transport);
        for _ in 0..18_000 {
            if failed.get() >= 2 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(failed.get() >= 2, "{transport:?}");
    }
    assert_eq!(server.offers().len(), 2);
}

#[tokio::test]
async fn changed_certificate_is_reloaded_and_an_unusable_one_is_not() {
    let (before, after) = (Authority::new(), Authority::new());
    let files = Files::new(&before.sign("localhost"));
    let server = serve(config_with(Some(files.tls()), None)).await;
    let (old, new) = (Peer { trusts: &before, shows: None }, Peer { trusts: &after, shows: None });
    old.http(&server).await.unwrap();

    // Both listeners log each fault once.
    let log = CapturedLog::begin();
    let logged = async |text: &str| {
        while log.text().matches(text).count() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    // A key that does not belong to the certificate, then no certificate at all, then no file.
    std::fs::write(files.path("tls.key"), &after.sign("localhost").key).unwrap();
    logged("cannot reload certificates").await;
    old.http(&server).await.unwrap();
    std::fs::write(files.path("tls.crt"), "no certificate").unwrap();
    logged("contains no certificate").await;
    old.grpc(&server).await.unwrap();
    std::fs::remove_file(files.path("tls.crt")).unwrap();
    logged("os error 2").await;
    old.grpc(&server).await.unwrap();

    files.write(&after.sign("localhost"));
    logged("certificates reloaded").await;
    new.http(&server).await.unwrap();
    new.grpc(&server).await.unwrap();
    assert!(old.http(&server).await.is_err());
}

#[tokio::test]
async fn bind_error_names_an_unusable_tls_file() {
    let files = Files::new(&Authority::new().sign("localhost"));
    let message = |tls: ServerTls| async {
        bind(&config_with(Some(tls), None)).await.map(|_| ()).unwrap_err().to_string()
    };
    let missing = ServerTls { cert_file: files.path("missing"), ..files.tls() };
    assert!(message(missing).await.contains("missing"));
    let swapped = ServerTls { cert_file: files.path("tls.key"), ..files.tls() };
    assert!(message(swapped).await.contains("contains no certificate"));
    std::fs::write(files.path("tls.key"), rcgen::KeyPair::generate().unwrap().serialize_pem()).unwrap();
    assert!(message(files.tls()).await.contains("127.0.0.1:0: tls: "));
}

#[tokio::test]
async fn tls_version_below_min_version_is_rejected() {
    let ours = Authority::new();
    let files = Files::new(&ours.sign("localhost"));
    let server =
        serve(config_with(Some(ServerTls { min_version: TlsVersion::V13, ..files.tls() }), None)).await;
    let attempt = |version: &'static rustls::SupportedProtocolVersion| {
        let mut roots = rustls::RootCertStore::empty();
        let pem = ours.pem.as_bytes();
        roots.add(rustls::pki_types::pem::PemObject::from_pem_slice(pem).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(client));
        async move {
            let socket = TcpStream::connect(server.http).await.unwrap();
            connector.connect("localhost".try_into().unwrap(), socket).await.map(|_| ())
        }
    };
    attempt(&rustls::version::TLS13).await.unwrap();
    attempt(&rustls::version::TLS12).await.unwrap_err();
}

#[tokio::test]
async fn unfinished_handshake_times_out_and_frees_the_connection() {
    let ours = Authority::new();
    let files = Files::new(&ours.sign("localhost"));
    let mut hasty = config_with(Some(files.tls()), None);
    let http = hasty.protocols.http.as_mut().unwrap();
    (http.read_header_timeout, http.max_connections) = (Period::secs(2), 1);
    let server = serve(hasty).await;
    let hello = [0x16, 0x03, 0x01, 0x02, 0x00, 0x01];
    for payload in [&[][..], &hello[..]] {
        let mut stalled = TcpStream::connect(server.http).await.unwrap();
        stalled.write_all(payload).await.unwrap();
        // The only connection slot is taken, and is released without an action of the peer.
        let peer = Peer { trusts: &ours, shows: None };
        timeout(PATIENCE, peer.http(&server)).await.unwrap().unwrap();
        drop(stalled);
    }
}

fn tokens() -> Auth {
    Auth { bearer_token: Some(Secret::new("right")), ..Auth::default() }
}

async fn export(server: &Server, authorization: Option<&'static str>) -> Result<(), Status> {
    let channel = Channel::from_shared(format!("http://{}", server.grpc)).unwrap().connect().await;
    let channel = channel.map_err(|e| Status::unavailable(e.to_string()))?;
    let mut request = Request::new(request(1000));
    if let Some(value) = authorization {
        request.metadata_mut().insert("authorization", MetadataValue::from_static(value));
    }
    TraceServiceClient::new(channel).export(request).await.map(|_| ())
}

fn post(server: &Server, path: &str) -> reqwest::RequestBuilder {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::builder().no_proxy().build().unwrap();
    client.post(format!("http://{}{path}", server.http)).header("content-type", "application/json").body("{}")
}

#[tokio::test]
async fn requests_without_valid_token_are_rejected_with_a_challenge() {
    let server = serve(config_with(None, Some(tokens()))).await;
    for wrong in [None, Some("Bearer wrong"), Some("Basic cmlnaHQ6cmlnaHQ="), Some("right")] {
        let status = export(&server, wrong).await.unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated, "{wrong:?}");
        assert!(status.metadata().get("www-authenticate").unwrap().to_str().unwrap().starts_with("Bearer"));
        let mut request = post(&server, "/v1/traces");
        if let Some(wrong) = wrong {
            request = request.header("authorization", wrong);
        }
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED, "{wrong:?}");
        assert!(answer.headers()[header::WWW_AUTHENTICATE].to_str().unwrap().starts_with("Bearer"));
        let body = answer.text().await.unwrap();
        assert!(body.contains("\"code\":16") && !body.contains("right"), "{body}");
    }
    assert!(server.offers().is_empty());
    assert_eq!(server.request_count("grpc", "traces", "unauthenticated"), 4);
    assert_eq!(server.request_count("http", "traces", "unauthenticated"), 4);

    export(&server, Some("Bearer right")).await.unwrap();
    let answer = post(&server, "/v1/traces").header("authorization", "Bearer right").send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(server.offers().len(), 2);
}

#[tokio::test]
async fn token_and_basic_authentication_can_be_combined() {
    let basic = Basic { username: "agent".to_owned(), password: Secret::new("pw") };
    let server = serve(config_with(None, Some(Auth { basic: Some(basic), ..tokens() }))).await;
    export(&server, Some("Bearer right")).await.unwrap();
    export(&server, Some("Basic YWdlbnQ6cHc=")).await.unwrap();
    let answer = post(&server, "/v1/logs").basic_auth("agent", Some("pw")).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let answer = post(&server, "/v1/logs").basic_auth("agent", Some("wrong")).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(answer.headers().get_all(header::WWW_AUTHENTICATE).iter().count(), 2);
}

fn config_with_cors(origins: &[&str]) -> OtlpConfig {
    let mut config = config_with(None, Some(tokens()));
    config.protocols.http.as_mut().unwrap().cors = Some(Cors {
        allowed_origins: origins.iter().map(|o| (*o).to_owned()).collect(),
        allowed_headers: vec!["Authorization".to_owned()],
        max_age: 600,
    });
    config
}

async fn preflight(server: &Server, origin: &str) -> reqwest::Response {
    let client = Client::builder().no_proxy().build().unwrap();
    client
        .request(reqwest::Method::OPTIONS, format!("http://{}/v1/traces", server.http))
        .header("origin", origin)
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "authorization,content-type")
        .send()
        .await
        .unwrap()
}

#[tokio::test]
async fn cors_preflight_needs_no_credentials_but_requests_do() {
    let server = serve(config_with_cors(&["https://*.app.test"])).await;
    let _ = post(&server, "/");
    let answer = preflight(&server, "https://a.app.test").await;
    assert_eq!(answer.status(), StatusCode::NO_CONTENT);
    let headers = answer.headers();
    assert_eq!(headers["access-control-allow-origin"], "https://a.app.test");
    assert_eq!(headers["access-control-allow-methods"], "POST");
    assert_eq!(headers["access-control-max-age"], "600");
    let allowed = headers["access-control-allow-headers"].to_str().unwrap();
    assert!(allowed.contains("authorization") && allowed.contains("content-type"), "{allowed}");
    assert!(headers["vary"].to_str().unwrap().contains("Origin"));

    let sent = post(&server, "/v1/traces").header("origin", "https://a.app.test");
    let answer = sent.header("authorization", "Bearer right").send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(answer.headers()["access-control-allow-origin"], "https://a.app.test");
    // The page must be able to read a rejection.
    let answer = post(&server, "/v1/traces").header("origin", "https://a.app.test").send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(answer.headers()["access-control-allow-origin"], "https://a.app.test");
}

#[tokio::test]
async fn cors_refuses_other_origins_and_a_wildcard_allows_all() {
    let server = serve(config_with_cors(&["https://*.app.test"])).await;
    let _ = post(&server, "/");
    for origin in ["https://evil.test", "https://a.app.test.evil.test", "null"] {
        let answer = preflight(&server, origin).await;
        assert!(!answer.headers().contains_key("access-control-allow-origin"), "{origin}");
        assert!(!answer.headers().contains_key("access-control-allow-methods"), "{origin}");
    }
    let server = serve(config_with_cors(&["*"])).await;
    let answer = preflight(&server, "https://evil.test").await;
    assert_eq!(answer.headers()["access-control-allow-origin"], "*");
    assert!(!answer.headers().contains_key("access-control-allow-credentials"));
    // Without cors a preflight request has an unsupported method.
    let server = Server::start().await;
    assert_eq!(preflight(&server, "https://a.app.test").await.status(), StatusCode::METHOD_NOT_ALLOWED);
}
