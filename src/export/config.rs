//! The `exporters` section: the Collector's shape and key names. An exporter's id is its type,
//! or `type/name` where there are several; `otlp` and `otlphttp` are accepted for `otlp_grpc`
//! and `otlp_http`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use verdict_client::Tls;
use verdict_config::{Period, Secret, Size};
use verdict_otlp::Signal;

/// One exporter's settings, by the type that its id names.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ExporterConfig {
    /// `otlp_grpc`
    Grpc(OtlpGrpc),
    /// `otlp_http`
    Http(OtlpHttp),
    /// `file`
    File(FileConfig),
    /// `console`
    Console(ConsoleConfig),
}

impl ExporterConfig {
    /// Names of the configured headers.
    pub fn headers(&self) -> impl Iterator<Item = &String> {
        let all = match self {
            ExporterConfig::Grpc(config) => Some(&config.headers),
            ExporterConfig::Http(config) => Some(&config.headers),
            ExporterConfig::File(_) | ExporterConfig::Console(_) => None,
        };
        all.into_iter().flat_map(BTreeMap::keys)
    }
}

/// The `exporters` section, by id, in the order of ids.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExporterConfigs(pub BTreeMap<String, ExporterConfig>);

impl ExporterConfigs {
    /// These settings with the queues of exporters that are not required limited to `most` bytes.
    pub fn with_best_effort_within(&self, most: u64) -> ExporterConfigs {
        let mut all = self.clone();
        for (exporter, config) in &mut all.0 {
            let (required, queue) = match config {
                ExporterConfig::Grpc(c) => (c.required, &mut c.sending_queue),
                ExporterConfig::Http(c) => (c.required, &mut c.sending_queue),
                ExporterConfig::File(c) => (c.required, &mut c.sending_queue),
                ExporterConfig::Console(c) => (c.required, &mut c.sending_queue),
            };
            if !required && queue.queue_size.0 > most {
                tracing::info!(
                    exporter,
                    bytes = most,
                    "sending_queue is limited to an eighth of memory.budget, since the exporter is not required"
                );
                queue.queue_size.0 = most;
            }
        }
        all
    }
}

/// OTLP over gRPC.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OtlpGrpc {
    /// `host:port`, or `http://host:port` (without TLS) or `https://host:port`. No default:
    /// spans must not go somewhere by accident. Proxy variables of the environment are not used.
    pub endpoint: String,
    /// TLS. On by default, as in the Collector: a destination without it needs `insecure: true`.
    pub tls: Tls,
    /// Sent with every request; values are secrets. Default: none.
    pub headers: BTreeMap<String, Secret>,
    /// `none` (default), `gzip` or `zstd`. Compressing costs more than all other work together.
    pub compression: Compression,
    /// How hard to compress.
    pub compression_params: CompressionParams,
    /// What to send here. Default: traces, logs and metrics.
    pub signals: Vec<Signal>,
    /// The buffer before this exporter.
    pub sending_queue: SendingQueue,
    /// What happens when the destination is away or overloaded.
    pub retry_on_failure: RetryOnFailure,
    /// How long one request may take. Default 5s: after that it counts as failed and is retried,
    /// and the destination may see it twice.
    pub timeout: Period,
    /// Requests are joined up to this size, and larger ones split, before compression. Default
    /// 4MiB, which is what gRPC servers accept unless told otherwise; a larger one is refused there.
    pub max_request_size: Size,
    /// With `true` (default) a full queue makes the whole pipeline refuse data until there is
    /// room; with `false` this exporter then drops what it cannot take, counted and logged.
    pub required: bool,
}

/// OTLP over HTTP, protobuf encoded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OtlpHttp {
    /// Base URL; `/v1/traces`, `/v1/logs` and `/v1/metrics` are appended. No default. Proxies are
    /// taken from the environment (`HTTPS_PROXY`, `NO_PROXY`) as in the Collector, except for a
    /// loopback address; redirects are not followed.
    pub endpoint: String,
    /// Full URL for traces, instead of `endpoint`. Default: empty, from `endpoint`.
    pub traces_endpoint: String,
    /// Full URL for logs, instead of `endpoint`. Default: empty, from `endpoint`.
    pub logs_endpoint: String,
    /// Full URL for metrics, instead of `endpoint`. Default: empty, from `endpoint`.
    pub metrics_endpoint: String,
    /// TLS, where the URL says `https`.
    pub tls: Tls,
    /// Sent with every request; values are secrets. Default: none.
    pub headers: BTreeMap<String, Secret>,
    /// `none` (default), `gzip` or `zstd`. Compressing costs more than all other work together.
    pub compression: Compression,
    /// How hard to compress.
    pub compression_params: CompressionParams,
    /// What to send here. Default: traces, logs and metrics.
    pub signals: Vec<Signal>,
    /// The buffer before this exporter.
    pub sending_queue: SendingQueue,
    /// What happens when the destination is away or overloaded.
    pub retry_on_failure: RetryOnFailure,
    /// How long one request may take. Default 30s: after that it counts as failed and is retried,
    /// and the destination may see it twice.
    pub timeout: Period,
    /// Requests are joined up to this size, and larger ones split, before compression. Default
    /// 4MiB; many servers refuse more than 20 MiB.
    pub max_request_size: Size,
    /// With `true` (default) a full queue makes the whole pipeline refuse data until there is
    /// room; with `false` this exporter then drops what it cannot take, counted and logged.
    pub required: bool,
}

/// OTLP as JSON lines, appended to a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FileConfig {
    /// The file; created where it is not there, its folder is not. No default.
    pub path: PathBuf,
    /// What to write. Default: traces, logs and metrics, one request a line, in one file.
    pub signals: Vec<Signal>,
    /// The buffer before this exporter.
    pub sending_queue: SendingQueue,
    /// What happens when writing fails (a full disk).
    pub retry_on_failure: RetryOnFailure,
    /// With `true` (default) a full queue makes the whole pipeline refuse data until there is
    /// room; with `false` this exporter then drops what it cannot take, counted and logged.
    pub required: bool,
}

/// Annotated trees on standard output, for people.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ConsoleConfig {
    /// `auto` (default: on a terminal, unless `NO_COLOR` is set), `always` or `never`.
    pub color: Color,
    /// The buffer before this exporter.
    pub sending_queue: SendingQueue,
    /// With `true` (default) a full queue makes the whole pipeline refuse data until there is
    /// room; with `false` this exporter then drops what it cannot take, counted and logged.
    pub required: bool,
}

/// When to colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Color {
    /// On a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// How requests are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// As they are.
    #[default]
    None,
    /// gzip: every OTLP server reads it.
    Gzip,
    /// zstd: less CPU for the same size; the Collector reads it, not everything does.
    Zstd,
}

/// How hard to compress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CompressionParams {
    /// gzip 0-9, zstd 1-22. Default 1: gzip at 6 costs six times the CPU of 1 for some 20 % less
    /// on the wire.
    pub level: u32,
}

/// The bounded buffer before an exporter. It holds what waits and what is being sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SendingQueue {
    /// With `false` only what is being sent is held: each trace waits for the one before it.
    /// Default true.
    pub enabled: bool,
    /// What `queue_size` counts. Only `bytes`: numbers of traces say nothing of memory.
    pub sizer: Sizer,
    /// How much may wait for this exporter. Default 256MiB. When it is full, `required` decides. For
    /// a required exporter it counts against `memory.budget`, for another it is at most an eighth of
    /// that.
    pub queue_size: Size,
    /// Requests in flight at the same time. Default 4. A request that is being retried holds one.
    pub num_consumers: usize,
}

/// Unit of a queue's size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Sizer {
    /// Bytes of encoded spans.
    #[default]
    Bytes,
}

/// Exponential backoff, with jitter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RetryOnFailure {
    /// Default true. With `false` the first failure drops the spans, counted and logged.
    pub enabled: bool,
    /// The first wait. Default 5s.
    pub initial_interval: Period,
    /// Each wait is changed at random by up to this part of it (0-1). Default 0.5.
    pub randomization_factor: f64,
    /// Each wait is this many times the one before. Default 1.5.
    pub multiplier: f64,
    /// The longest wait. Default 30s. A wait that the destination asks for may be longer.
    pub max_interval: Period,
    /// When to give up and drop the spans, counted and logged. Default 300s; 0 means never, so
    /// that a destination that is away for long fills the queue instead.
    pub max_elapsed_time: Period,
}

impl Default for OtlpGrpc {
    fn default() -> OtlpGrpc {
        OtlpGrpc {
            endpoint: String::new(),
            tls: Tls::default(),
            headers: BTreeMap::new(),
            compression: Compression::None,
            compression_params: CompressionParams::default(),
            signals: all_signals(),
            sending_queue: SendingQueue::default(),
            retry_on_failure: RetryOnFailure::default(),
            timeout: Period::secs(5),
            max_request_size: MAX_REQUEST,
            required: true,
        }
    }
}

impl Default for OtlpHttp {
    fn default() -> OtlpHttp {
        OtlpHttp {
            endpoint: String::new(),
            traces_endpoint: String::new(),
            logs_endpoint: String::new(),
            metrics_endpoint: String::new(),
            tls: Tls::default(),
            headers: BTreeMap::new(),
            compression: Compression::None,
            compression_params: CompressionParams::default(),
            signals: all_signals(),
            sending_queue: SendingQueue::default(),
            retry_on_failure: RetryOnFailure::default(),
            timeout: Period::secs(30),
            max_request_size: MAX_REQUEST,
            required: true,
        }
    }
}

impl Default for FileConfig {
    fn default() -> FileConfig {
        FileConfig {
            path: PathBuf::new(),
            signals: all_signals(),
            sending_queue: SendingQueue::default(),
            retry_on_failure: RetryOnFailure::default(),
            required: true,
        }
    }
}

impl Default for ConsoleConfig {
    fn default() -> ConsoleConfig {
        ConsoleConfig { color: Color::Auto, sending_queue: SendingQueue::default(), required: true }
    }
}

impl Default for CompressionParams {
    fn default() -> CompressionParams {
        CompressionParams { level: 1 }
    }
}

impl Default for SendingQueue {
    fn default() -> SendingQueue {
        SendingQueue { enabled: true, sizer: Sizer::Bytes, queue_size: Size(256 << 20), num_consumers: 4 }
    }
}

impl Default for RetryOnFailure {
    fn default() -> RetryOnFailure {
        RetryOnFailure {
            enabled: true,
            initial_interval: Period::secs(5),
            randomization_factor: 0.5,
            multiplier: 1.5,
            max_interval: Period::secs(30),
            max_elapsed_time: Period::secs(300),
        }
    }
}

/// The default limit of gRPC servers.
const MAX_REQUEST: Size = Size(4 << 20);

fn all_signals() -> Vec<Signal> {
    vec![Signal::Traces, Signal::Logs, Signal::Metrics]
}

/// The types, as ids name them, aliases included.
const TYPES: [&str; 6] = ["otlp_grpc", "otlp", "otlp_http", "otlphttp", "file", "console"];

impl<'de> Deserialize<'de> for ExporterConfigs {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<ExporterConfigs, D::Error> {
        struct ById;
        impl<'de> Visitor<'de> for ById {
            type Value = ExporterConfigs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("exporters by id, such as otlp_grpc or otlp_http/archive")
            }

            fn visit_unit<E: de::Error>(self) -> Result<ExporterConfigs, E> {
                Ok(ExporterConfigs::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ExporterConfigs, A::Error> {
                let mut all = BTreeMap::new();
                while let Some(id) = map.next_key::<String>()? {
                    let config = match id.split('/').next().unwrap_or_default() {
                        "otlp_grpc" | "otlp" => ExporterConfig::Grpc(or_default(&mut map)?),
                        "otlp_http" | "otlphttp" => ExporterConfig::Http(or_default(&mut map)?),
                        "file" => ExporterConfig::File(or_default(&mut map)?),
                        "console" => ExporterConfig::Console(or_default(&mut map)?),
                        other => return Err(de::Error::unknown_variant(other, &TYPES)),
                    };
                    if all.insert(id.clone(), config).is_some() {
                        return Err(de::Error::custom(format_args!("exporter '{id}' is defined twice")));
                    }
                }
                Ok(ExporterConfigs(all))
            }
        }
        d.deserialize_map(ById)
    }
}

/// `console:` without a value means its defaults.
fn or_default<'de, A: MapAccess<'de>, T: Deserialize<'de> + Default>(map: &mut A) -> Result<T, A::Error> {
    Ok(map.next_value::<Option<T>>()?.unwrap_or_default())
}

impl Serialize for ExporterConfigs {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_map(&self.0)
    }
}

impl JsonSchema for ExporterConfigs {
    fn schema_name() -> Cow<'static, str> {
        "Exporters".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let grpc = generator.subschema_for::<Option<OtlpGrpc>>();
        let http = generator.subschema_for::<Option<OtlpHttp>>();
        let file = generator.subschema_for::<Option<FileConfig>>();
        let console = generator.subschema_for::<Option<ConsoleConfig>>();
        json_schema!({
            "type": "object",
            "description": "Exporters by id: a type, or type/name.",
            "patternProperties": {
                "^(otlp_grpc|otlp)(/.+)?$": grpc,
                "^(otlp_http|otlphttp)(/.+)?$": http,
                "^file(/.+)?$": file,
                "^console(/.+)?$": console,
            },
            "additionalProperties": false,
        })
    }
}
