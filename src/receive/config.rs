//! `receivers.otlp`: shape and key names are the Collector's.
//!
//! As there, a protocol that is named without settings (`grpc:`) listens with its defaults, and
//! one that is left out of a given `protocols` does not listen. Where `protocols` itself is left
//! out, both listen on loopback.

use std::borrow::Cow;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use verdict_config::{Period, Problem, Size};

use super::auth::Auth;
use super::cors::Cors;
use super::tls::ServerTls;

/// Where to listen: `host:port`. Port 0 takes a free one; an empty host means every interface.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(extend("pattern" = "^[^/]*:[0-9]{1,5}$"), description = "host:port; 127.0.0.1:4317")]
pub struct Endpoint(String);

/// Not of the form `host:port`; the message names the value and the fault.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct InvalidEndpoint(String);

impl Endpoint {
    /// Checks the form only: no name is resolved and no socket opened.
    ///
    /// # Errors
    /// Says what is wrong with `text`.
    pub fn new(text: &str) -> Result<Endpoint, InvalidEndpoint> {
        let fault = match text.rsplit_once(':') {
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
        Err(InvalidEndpoint(fault))
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What to bind: Go's `:4317` means every interface.
    pub(crate) fn bindable(&self) -> Cow<'_, str> {
        if self.0.starts_with(':') { format!("0.0.0.0{}", self.0).into() } else { self.0.as_str().into() }
    }

    /// Loopback: only this machine can send.
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

/// The OTLP receiver.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OtlpConfig {
    /// Which protocols listen, and where. Default: both, on loopback.
    pub protocols: Protocols,
    /// How much may be in flight over both protocols together.
    pub admission: Admission,
}

/// Which protocols listen.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Protocols {
    /// OTLP/gRPC. Default 127.0.0.1:4317. Left out (while `http` is given), nothing listens there.
    #[serde(default, deserialize_with = "named", skip_serializing_if = "Option::is_none")]
    pub grpc: Option<GrpcConfig>,
    /// OTLP/HTTP. Default 127.0.0.1:4318. Left out (while `grpc` is given), nothing listens there.
    #[serde(default, deserialize_with = "named", skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpConfig>,
}

/// A key that is there switches the protocol on, even with nothing after it.
fn named<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(d: D) -> Result<Option<T>, D::Error> {
    Ok(Some(Option::<T>::deserialize(d)?.unwrap_or_default()))
}

/// A door that is named with nothing after it is not silently left open: its keys are missing.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(d: D) -> Result<Option<T>, D::Error> {
    T::deserialize(d).map(Some)
}

/// Bounds on requests in flight, over all connections of both protocols.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Admission {
    /// MiB of requests, unpacked, that are being received or wait for their acknowledgement.
    /// Default 256. Beyond it requests are refused with "try again" (UNAVAILABLE, 503), but for
    /// one that is alone. A small value refuses early in bursts; a large one is memory on top of
    /// `memory.budget`, of which it is never more than a quarter.
    pub request_limit_mib: u64,
    /// How many times larger than it was sent a request may become when it is unpacked, once it
    /// is above 1 MiB. Default 1000. Agents repeat themselves, and batches that shrink a
    /// hundredfold are real; beyond a thousand there is nothing in them. Refused for good.
    pub max_decompression_ratio: u32,
}

/// OTLP over gRPC.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GrpcConfig {
    /// Where to listen. Default 127.0.0.1:4317: only this machine can send. 0.0.0.0:4317 opens it
    /// to the network, where without `auth` or mTLS anybody who reaches the port can send.
    pub endpoint: Endpoint,
    /// Default none: not encrypted.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub tls: Option<ServerTls>,
    /// Default none: whoever can connect can send.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    /// Largest message in MiB, after decompression. Default 64. Larger ones are refused for good
    /// (RESOURCE_EXHAUSTED), so that senders drop or split them.
    pub max_recv_msg_size_mib: u64,
    /// Requests that one connection may have open at once. Default 128. More wait at the sender.
    pub max_concurrent_streams: u32,
    /// Connections served at once. Default 1024. More wait to be accepted.
    pub max_connections: u32,
    /// Largest list of request headers. Default 64KiB. A request with more is refused unread.
    pub max_header_size: Size,
    /// Pings, and the age at which connections are renewed.
    pub keepalive: Keepalive,
}

/// How long gRPC connections live.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Keepalive {
    /// As in the Collector, the server's side of it.
    pub server_parameters: ServerParameters,
}

/// The server's side of keepalive.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServerParameters {
    /// Time between pings on a connection. Default 1m. They find peers that went away without a
    /// word, whose connections would otherwise count against `max_connections` for ever.
    pub time: Period,
    /// How long a ping may stay unanswered before the connection is closed. Default 20s.
    pub timeout: Period,
    /// Age at which a connection is asked to end (senders reconnect, which spreads them over
    /// instances behind a balancer). Default: none. Spread by a tenth, so that connections made
    /// together do not end together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_connection_age: Option<Period>,
    /// How long after that requests in flight may still take. Default 30s.
    pub max_connection_age_grace: Period,
}

/// OTLP over HTTP.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HttpConfig {
    /// Where to listen. Default 127.0.0.1:4318: only this machine can send. 0.0.0.0:4318 opens it
    /// to the network, where without `auth` or mTLS anybody who reaches the port can send.
    pub endpoint: Endpoint,
    /// Default none: not encrypted.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub tls: Option<ServerTls>,
    /// Default none: whoever can connect can send.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    /// Default none: no page of another origin can send from a browser.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub cors: Option<Cors>,
    /// Path that takes traces. Default /v1/traces, where SDKs send them.
    pub traces_url_path: String,
    /// Path that takes logs. Default /v1/logs.
    pub logs_url_path: String,
    /// Path that takes metrics. Default /v1/metrics.
    pub metrics_url_path: String,
    /// Largest body after decompression. Default 64MiB. Larger ones are refused for good (413).
    pub max_request_body_size: Size,
    /// How long a sender may take to send the headers; an idle connection is closed after it as
    /// well. Default 1m. Senders that pause longer between requests reconnect. 0 waits for ever.
    pub read_header_timeout: Period,
    /// Connections served at once. Default 1024. More wait to be accepted.
    pub max_connections: u32,
    /// Requests that one HTTP/2 connection may have open at once. Default 128.
    pub max_concurrent_streams: u32,
    /// Largest list of request headers. Default 64KiB. A request with more is refused (431). Over
    /// HTTP/1.1 bodies are read in steps of this size too.
    pub max_header_size: Size,
}

impl OtlpConfig {
    /// What is wrong with the values.
    pub fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut positive = |key: &str, value: u64| {
            if value == 0 {
                problems.push(Problem::new(key, "must be at least 1: nothing could be received"));
            }
        };
        positive("admission.request_limit_mib", self.admission.request_limit_mib);
        positive("admission.max_decompression_ratio", self.admission.max_decompression_ratio.into());
        if let Some(grpc) = &self.protocols.grpc {
            positive("protocols.grpc.max_recv_msg_size_mib", grpc.max_recv_msg_size_mib);
            positive("protocols.grpc.max_concurrent_streams", grpc.max_concurrent_streams.into());
            positive("protocols.grpc.max_connections", grpc.max_connections.into());
            positive("protocols.grpc.max_header_size", grpc.max_header_size.0);
        }
        if let Some(http) = &self.protocols.http {
            positive("protocols.http.max_request_body_size", http.max_request_body_size.0);
            positive("protocols.http.max_concurrent_streams", http.max_concurrent_streams.into());
            positive("protocols.http.max_connections", http.max_connections.into());
            positive("protocols.http.max_header_size", http.max_header_size.0);
            problems.extend(http.path_problems());
            let cors = http.cors.iter().flat_map(Cors::problems);
            problems.extend(cors.map(|problem| problem.below("protocols.http.cors")));
        }
        for (protocol, auth) in self.protocols.guarded() {
            let section = format!("protocols.{protocol}.auth");
            problems.extend(auth.problems().into_iter().map(|problem| problem.below(&section)));
        }
        problems
    }
}

impl Protocols {
    /// The protocols that ask for credentials, by key.
    pub(crate) fn guarded(&self) -> impl Iterator<Item = (&'static str, &Auth)> {
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
            } else if let Some((other, _)) = paths.iter().take(i).find(|(_, taken)| *taken == path) {
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

impl Default for Admission {
    fn default() -> Admission {
        Admission { request_limit_mib: 256, max_decompression_ratio: 1000 }
    }
}

impl Default for GrpcConfig {
    fn default() -> GrpcConfig {
        GrpcConfig {
            endpoint: Endpoint::loopback(4317),
            tls: None,
            auth: None,
            max_recv_msg_size_mib: 64,
            max_concurrent_streams: 128,
            max_connections: 1024,
            max_header_size: Size(64 << 10),
            keepalive: Keepalive::default(),
        }
    }
}

impl Default for ServerParameters {
    fn default() -> ServerParameters {
        ServerParameters {
            time: Period::secs(60),
            timeout: Period::secs(20),
            max_connection_age: None,
            max_connection_age_grace: Period::secs(30),
        }
    }
}

impl Default for HttpConfig {
    fn default() -> HttpConfig {
        HttpConfig {
            endpoint: Endpoint::loopback(4318),
            tls: None,
            auth: None,
            cors: None,
            traces_url_path: "/v1/traces".to_owned(),
            logs_url_path: "/v1/logs".to_owned(),
            metrics_url_path: "/v1/metrics".to_owned(),
            max_request_body_size: Size(64 << 20),
            read_header_timeout: Period::secs(60),
            max_connections: 1024,
            max_concurrent_streams: 128,
            max_header_size: Size(64 << 10),
        }
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
        let wanted = [
            "admission.request_limit_mib",
            "protocols.http.max_connections",
            "protocols.http.logs_url_path",
            "protocols.http.metrics_url_path",
        ];
        assert_eq!(keys, wanted, "{problems:?}");
    }

    #[test]
    fn unknown_keys_and_invalid_endpoints_are_errors() {
        assert!(read("protocols: { grpc: { endpont: a:1 } }").unwrap_err().contains("endpont"));
        for bad in ["localhost", "http://localhost:4317", "::1:4317", "localhost:99999"] {
            assert!(read(&format!("protocols: {{ grpc: {{ endpoint: \"{bad}\" }} }}")).is_err(), "{bad}");
        }
        for good in ["localhost:4317", "[::1]:4317", ":4317", "0.0.0.0:0"] {
            assert!(Endpoint::new(good).is_ok(), "{good}");
        }
        assert_eq!(Endpoint::new(":4317").unwrap().bindable(), "0.0.0.0:4317");
    }
}
