//! `receivers.otlp`, with the structure and key names of the Collector.
//!
//! As in the Collector, a protocol without settings (`grpc:`) listens with its defaults, and a protocol that
//! is missing in `protocols` does not listen. Without `protocols` both listen on loopback.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use verdict_config::{Period, Problem, Size, settings};

use super::auth::Auth;
use super::cors::Cors;
use super::tls::ServerTls;

/// A listen address, `host:port`. Port 0 selects a free port; an empty host means every interface.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(extend("pattern" = "^[^/]*:[0-9]{1,5}$"), description = "host:port; 127.0.0.1:4317")]
pub struct Endpoint(String);

/// The error for a text that is not of the form `host:port`. The message contains the text and the problem.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct InvalidEndpoint(String);

impl Endpoint {
    /// Checks the form only: no name is resolved and no socket is opened.
    ///
    /// # Errors
    /// `text` is not of the form `host:port`.
    pub fn new(text: &str) -> Result<Endpoint, InvalidEndpoint> {
        let problem = match text.rsplit_once(':') {
            _ if text.contains("://") => format!("{text:?}: give host:port without a scheme"),
            None => format!("{text:?} has no port: give host:port"),
            Some((_, port)) if port.parse::<u16>().is_err() => {
                format!("{text:?}: {port:?} is not a port (0 to 65535)")
            }
            Some((host, port)) if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) => {
                format!("{text:?}: write an IPv6 address in brackets, as in [::1]:{port}")
            }
            Some(_) => return Ok(Endpoint(text.to_owned())),
        };
        Err(InvalidEndpoint(problem))
    }

    /// The text in the configuration.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The address to bind. An empty host, as in `:4317`, is every interface, as in Go.
    pub(crate) fn bindable(&self) -> Cow<'_, str> {
        if self.0.starts_with(':') { format!("0.0.0.0{}", self.0).into() } else { self.0.as_str().into() }
    }

    /// Whether the text alone shows that only this machine can reach the address.
    pub(crate) fn is_loopback(&self) -> bool {
        let host = self.host();
        let address = host.parse::<IpAddr>();
        host == "localhost" || address.is_ok_and(|address| address.to_canonical().is_loopback())
    }

    /// The host, without the brackets of an IPv6 address; empty for every interface.
    pub(crate) fn host(&self) -> &str {
        let host = self.0.rsplit_once(':').map_or("", |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']')
    }

    /// An address that only this machine can reach.
    pub(crate) fn loopback(port: u16) -> Endpoint {
        Endpoint(format!("127.0.0.1:{port}"))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Endpoint {
    type Error = InvalidEndpoint;

    fn try_from(text: String) -> Result<Endpoint, InvalidEndpoint> {
        Endpoint::new(&text)
    }
}

settings! {
    /// The OTLP receiver.
    pub struct OtlpConfig {
        /// Default: both protocols, on loopback. The protocols and their addresses.
        protocols: Protocols,
        /// Limits on requests in flight, for both protocols together.
        admission: Admission,
    }

    /// Limits on requests in flight, over all connections of both protocols.
    pub struct Admission {
        /// Default 256. MiB of decompressed requests that are being received or wait for their acknowledgement.
        /// Above it requests are refused as retryable (UNAVAILABLE, 503), unless no other request is in flight. A small
        /// value refuses requests early in bursts; a large value takes more memory. The memory is in addition to
        /// `memory.budget`; the limit is at most a quarter of it.
        request_limit_mib: u64 = 256,
        /// Default 1000. Largest ratio of decompressed to received bytes of a request above 1 MiB. Batches of
        /// agents' spans are repetitive and reach ratios of about 100. A request above the limit is refused
        /// permanently.
        max_decompression_ratio: u32 = 1000,
    }

    /// OTLP over gRPC.
    pub struct GrpcConfig {
        /// Default 127.0.0.1:4317, which only this machine can reach. With 0.0.0.0:4317 every client that
        /// reaches the port can send, unless `auth` or mTLS is set.
        endpoint: Endpoint = Endpoint::loopback(4317),
        /// Default none: connections are not encrypted.
        #[serde(default, deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
        tls: Option<ServerTls>,
        /// Default none: senders are not authenticated.
        #[serde(default, deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
        auth: Option<Auth>,
        /// Default 64. Largest message in MiB, after decompression. A larger message is refused permanently
        /// (RESOURCE_EXHAUSTED), so that the sender drops or splits it.
        max_recv_msg_size_mib: u64 = 64,
        /// Default 128. Concurrent requests per connection; further requests wait at the sender.
        max_concurrent_streams: u32 = 128,
        /// Default 1024. Concurrent connections. A further connection replaces the connection that is idle for the
        /// longest time; if no connection is idle, it waits.
        max_connections: u32 = 1024,
        /// Default 64KiB. Largest list of request headers. A request with a larger list is refused.
        max_header_size: Size = Size(64 << 10),
        /// Pings and the maximum age of connections.
        keepalive: Keepalive,
    }

    /// Keepalive of gRPC connections.
    pub struct Keepalive {
        /// The parameters of the server, as in the Collector.
        server_parameters: ServerParameters,
    }

    /// Keepalive parameters of the server.
    pub struct ServerParameters {
        /// Default 1m. Interval of pings on a connection. They detect vanished peers, whose connections would
        /// otherwise count in `max_connections` forever.
        time: Period = Period::secs(60),
        /// Default 20s. Time without an answer to a ping after which the connection is closed.
        timeout: Period = Period::secs(20),
        /// Default none. Age at which a connection is shut down gracefully. Senders reconnect, which spreads
        /// them over the instances behind a load balancer. Varies by 10 %, so that connections opened together
        /// do not end together.
        #[serde(skip_serializing_if = "Option::is_none")]
        max_connection_age: Option<Period>,
        /// Default 30s. Time that requests in flight have to finish after `max_connection_age`.
        max_connection_age_grace: Period = Period::secs(30),
    }

    /// OTLP over HTTP.
    pub struct HttpConfig {
        /// Default 127.0.0.1:4318, which only this machine can reach. With 0.0.0.0:4318 every client that
        /// reaches the port can send, unless `auth` or mTLS is set.
        endpoint: Endpoint = Endpoint::loopback(4318),
        /// Default none: connections are not encrypted.
        #[serde(default, deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
        tls: Option<ServerTls>,
        /// Default none: senders are not authenticated.
        #[serde(default, deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
        auth: Option<Auth>,
        /// Default none: browsers do not let pages of other origins send requests.
        #[serde(default, deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
        cors: Option<Cors>,
        /// Default /v1/traces, the default of SDKs. Path of traces.
        traces_url_path: String = "/v1/traces".to_owned(),
        /// Default /v1/logs. Path of logs.
        logs_url_path: String = "/v1/logs".to_owned(),
        /// Default /v1/metrics. Path of metrics.
        metrics_url_path: String = "/v1/metrics".to_owned(),
        /// Default 64MiB. Largest body after decompression. A larger body is refused permanently (413).
        max_request_body_size: Size = Size(64 << 20),
        /// Default 1m. Timeout for the headers of a request and for idle connections. Senders that pause longer
        /// between requests have to reconnect. 0 disables it.
        read_header_timeout: Period = Period::secs(60),
        /// Default 1024. Concurrent connections. A further connection replaces the connection that is idle for the
        /// longest time; if no connection is idle, it waits.
        max_connections: u32 = 1024,
        /// Default 128. Concurrent requests per HTTP/2 connection.
        max_concurrent_streams: u32 = 128,
        /// Default 64KiB. Largest list of request headers. A request with a larger list is refused (431). Over
        /// HTTP/1.1, bodies are read in chunks of at most this size.
        max_header_size: Size = Size(64 << 10),
    }
}

/// The protocols that listen.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Protocols {
    /// OTLP/gRPC. Default 127.0.0.1:4317. Off if only `http` is given.
    #[serde(default, deserialize_with = "default_if_null", skip_serializing_if = "Option::is_none")]
    pub grpc: Option<GrpcConfig>,
    /// OTLP/HTTP. Default 127.0.0.1:4318. Off if only `grpc` is given.
    #[serde(default, deserialize_with = "default_if_null", skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpConfig>,
}

/// A key without a value enables the protocol with its defaults, as in the Collector.
fn default_if_null<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    d: D,
) -> Result<Option<T>, D::Error> {
    Ok(Some(Option::<T>::deserialize(d)?.unwrap_or_default()))
}

/// A key without a value is an error, so that a listener is not silently left unprotected.
pub(crate) fn non_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(d: D) -> Result<Option<T>, D::Error> {
    T::deserialize(d).map(Some)
}

impl OtlpConfig {
    /// The problems of invalid values.
    pub fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut require_positive = |key: &str, value: u64| {
            if value == 0 {
                problems.push(Problem::new(key, "must be at least 1; with 0 nothing could be received"));
            }
        };
        require_positive("admission.request_limit_mib", self.admission.request_limit_mib);
        require_positive("admission.max_decompression_ratio", self.admission.max_decompression_ratio.into());
        if let Some(grpc) = &self.protocols.grpc {
            require_positive("protocols.grpc.max_recv_msg_size_mib", grpc.max_recv_msg_size_mib);
            require_positive("protocols.grpc.max_concurrent_streams", grpc.max_concurrent_streams.into());
            require_positive("protocols.grpc.max_connections", grpc.max_connections.into());
            require_positive("protocols.grpc.max_header_size", grpc.max_header_size.0);
        }
        if let Some(http) = &self.protocols.http {
            require_positive("protocols.http.max_request_body_size", http.max_request_body_size.0);
            require_positive("protocols.http.max_concurrent_streams", http.max_concurrent_streams.into());
            require_positive("protocols.http.max_connections", http.max_connections.into());
            require_positive("protocols.http.max_header_size", http.max_header_size.0);
            problems.extend(http.path_problems());
            let cors = http.cors.iter().flat_map(Cors::problems);
            problems.extend(cors.map(|problem| problem.in_section("protocols.http.cors")));
        }
        for (protocol, auth) in self.protocols.with_auth() {
            let section = format!("protocols.{protocol}.auth");
            problems.extend(auth.problems().into_iter().map(|problem| problem.in_section(&section)));
        }
        problems
    }
}

impl Protocols {
    /// The protocols with `auth`, by key.
    pub(crate) fn with_auth(&self) -> impl Iterator<Item = (&'static str, &Auth)> {
        let grpc = self.grpc.as_ref().and_then(|grpc| grpc.auth.as_ref()).map(|auth| ("grpc", auth));
        let http = self.http.as_ref().and_then(|http| http.auth.as_ref()).map(|auth| ("http", auth));
        grpc.into_iter().chain(http)
    }
}

impl HttpConfig {
    fn path_problems(&self) -> Vec<Problem> {
        let paths = [
            ("traces_url_path", &self.traces_url_path),
            ("logs_url_path", &self.logs_url_path),
            ("metrics_url_path", &self.metrics_url_path),
        ];
        let mut problems = Vec::new();
        for (i, (key, path)) in paths.into_iter().enumerate() {
            let key = format!("protocols.http.{key}");
            if !path.starts_with('/') {
                problems.push(Problem::new(key, format!("{path:?} must begin with a slash")));
            } else if let Some((other, _)) =
                paths.iter().take(i).find(|(_, earlier_path)| *earlier_path == path)
            {
                problems.push(Problem::new(key, format!("{path:?} is {other} already")));
            }
        }
        problems
    }
}

impl Default for Protocols {
    fn default() -> Protocols {
        Protocols { grpc: Some(GrpcConfig::default()), http: Some(HttpConfig::default()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(yaml: &str) -> Result<OtlpConfig, String> {
        serde_saphyr::from_str(yaml).map_err(|e| e.to_string())
    }

    #[test]
    fn both_protocols_listen_on_loopback_by_default() {
        let config = read("{}").unwrap();
        assert_eq!(config, OtlpConfig::default());
        assert_eq!(config.protocols.grpc.unwrap().endpoint.as_str(), "127.0.0.1:4317");
        assert_eq!(config.protocols.http.unwrap().endpoint.as_str(), "127.0.0.1:4318");
    }

    #[test]
    fn protocol_without_settings_uses_defaults_and_an_absent_one_is_off() {
        let config = read("protocols:\n  grpc:\n").unwrap();
        assert_eq!(config.protocols, Protocols { grpc: Some(GrpcConfig::default()), http: None });
    }

    #[test]
    fn printed_configuration_parses_to_the_same() {
        let mut config = OtlpConfig::default();
        config.protocols.grpc = None;
        let printed = serde_saphyr::to_string(&config).unwrap();
        assert_eq!(read(&printed).unwrap(), config, "{printed}");
    }

    #[test]
    fn zero_limits_and_invalid_paths_are_problems_named_by_key() {
        assert_eq!(OtlpConfig::default().problems(), []);
        let http = "http: { logs_url_path: /v1/traces, metrics_url_path: v1/metrics, max_connections: 0 }";
        let yaml = format!("admission: {{ request_limit_mib: 0 }}\nprotocols: {{ {http} }}");
        let problems = read(&yaml).unwrap().problems();
        let keys: Vec<&str> = problems.iter().map(|problem| problem.key.as_str()).collect();
        let expected = [
            "admission.request_limit_mib",
            "protocols.http.max_connections",
            "protocols.http.logs_url_path",
            "protocols.http.metrics_url_path",
        ];
        assert_eq!(keys, expected, "{problems:?}");
    }

    #[test]
    fn unknown_keys_and_invalid_endpoints_are_errors() {
        assert!(read("protocols: { grpc: { endpont: a:1 } }").unwrap_err().contains("endpont"));
        for invalid in ["localhost", "http://localhost:4317", "::1:4317", "localhost:99999"] {
            assert!(
                read(&format!("protocols: {{ grpc: {{ endpoint: \"{invalid}\" }} }}")).is_err(),
                "{invalid}"
            );
        }
        for valid in ["localhost:4317", "[::1]:4317", ":4317", "0.0.0.0:0"] {
            assert!(Endpoint::new(valid).is_ok(), "{valid}");
        }
        assert_eq!(Endpoint::new(":4317").unwrap().bindable(), "0.0.0.0:4317");
    }
}
