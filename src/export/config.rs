//! The `exporters` section, with the structure and key names of the Collector. An exporter's id is its type, or
//! `type/name` if there are several; `otlp` and `otlphttp` are accepted for `otlp_grpc` and `otlp_http`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use verdict_client::Tls;
use verdict_config::{Period, Secret, Size, settings};
use verdict_otlp::Signal;

pub use super::kafka_config::{KafkaCompression, KafkaConfig, KafkaTopic, Producer};
pub use super::queue_config::{RetryOnFailure, SendingQueue, Sizer};
pub use crate::export::webhook_config::{Template, WebhookConfig};

/// Settings of one exporter, by the type that its id names.
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
    /// `scores`
    Scores(ScoresConfig),
    /// `webhook`
    Webhook(WebhookConfig),
    /// `kafka`
    Kafka(KafkaConfig),
    /// `custom`
    Custom(CustomConfig),
}

/// The `exporters` section, in the order of ids.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ExporterConfigs(pub BTreeMap<String, ExporterConfig>);

impl ExporterConfig {
    /// Names of the configured headers.
    pub fn headers(&self) -> impl Iterator<Item = &String> {
        self.connection().into_iter().flat_map(|(_, headers, _)| headers.keys())
    }

    /// Copies the headers, keys and passwords of another configuration of the same exporter, which a reload can apply.
    pub fn copy_credentials(&mut self, new: &ExporterConfig) {
        if let (ExporterConfig::Scores(current), ExporterConfig::Scores(new)) = (&mut *self, new) {
            current.headers.clone_from(&new.headers);
            current.api_key.clone_from(&new.api_key);
        } else if let (ExporterConfig::Webhook(current), ExporterConfig::Webhook(new)) = (&mut *self, new) {
            current.headers.clone_from(&new.headers);
            current.endpoint.clone_from(&new.endpoint);
            current.secret.clone_from(&new.secret);
        } else if let (ExporterConfig::Kafka(current), ExporterConfig::Kafka(new)) = (&mut *self, new) {
            current.auth.clone_from(&new.auth);
        } else if let ExporterConfig::Grpc(OtlpGrpc { headers, .. })
        | ExporterConfig::Http(OtlpHttp { headers, .. }) = self
            && let Some((_, new, _)) = new.connection()
        {
            headers.clone_from(new);
        }
    }

    /// The files of certificates and keys.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let kafka_tls = match self {
            ExporterConfig::Kafka(config) => config.tls.as_ref(),
            _ => None,
        };
        let tls = self.connection().map(|(tls, ..)| tls).or(kafka_tls);
        let files = tls.map(|tls| [&tls.ca_file, &tls.cert_file, &tls.key_file]);
        files.into_iter().flatten().flatten()
    }

    /// TLS, headers and compression of an exporter that sends to a server.
    pub(super) fn connection(&self) -> Option<(&Tls, &BTreeMap<String, Secret>, Packing)> {
        if let ExporterConfig::Scores(ScoresConfig { tls, headers, .. })
        | ExporterConfig::Webhook(WebhookConfig { tls, headers, .. }) = self
        {
            return Some((tls, headers, Packing::UNCOMPRESSED));
        }
        let (ExporterConfig::Grpc(OtlpGrpc { tls, headers, compression, compression_params, .. })
        | ExporterConfig::Http(OtlpHttp { tls, headers, compression, compression_params, .. })) = self
        else {
            return None;
        };
        Some((tls, headers, Packing { compression: *compression, level: compression_params.level }))
    }

    /// The timeout and maximum size of a request of an exporter that sends to a server.
    pub(super) fn limits(&self) -> Option<(Period, Size)> {
        let (ExporterConfig::Grpc(OtlpGrpc { timeout, max_request_size, .. })
        | ExporterConfig::Http(OtlpHttp { timeout, max_request_size, .. })
        | ExporterConfig::Scores(ScoresConfig { timeout, max_request_size, .. })
        | ExporterConfig::Webhook(WebhookConfig { timeout, max_request_size, .. })
        | ExporterConfig::Custom(CustomConfig { timeout, max_request_size, .. })) = self
        else {
            return None;
        };
        Some((*timeout, *max_request_size))
    }

    /// Signals and retries; `None` for `console`, which prints traces and does not retry.
    pub(super) fn sending(&self) -> Option<(&[Signal], &RetryOnFailure)> {
        if let ExporterConfig::Scores(ScoresConfig { retry_on_failure, .. })
        | ExporterConfig::Webhook(WebhookConfig { retry_on_failure, .. }) = self
        {
            return Some((&[Signal::Logs], retry_on_failure));
        }
        let (ExporterConfig::Grpc(OtlpGrpc { signals, retry_on_failure, .. })
        | ExporterConfig::Http(OtlpHttp { signals, retry_on_failure, .. })
        | ExporterConfig::File(FileConfig { signals, retry_on_failure, .. })
        | ExporterConfig::Kafka(KafkaConfig { signals, retry_on_failure, .. })
        | ExporterConfig::Custom(CustomConfig { signals, retry_on_failure, .. })) = self
        else {
            return None;
        };
        Some((signals, retry_on_failure))
    }

    /// Whether the exporter is required, and its queue.
    pub(super) fn queue(&self) -> (bool, &SendingQueue) {
        let (ExporterConfig::Grpc(OtlpGrpc { required, sending_queue, .. })
        | ExporterConfig::Http(OtlpHttp { required, sending_queue, .. })
        | ExporterConfig::File(FileConfig { required, sending_queue, .. })
        | ExporterConfig::Console(ConsoleConfig { required, sending_queue, .. })
        | ExporterConfig::Scores(ScoresConfig { required, sending_queue, .. })
        | ExporterConfig::Webhook(WebhookConfig { required, sending_queue, .. })
        | ExporterConfig::Kafka(KafkaConfig { required, sending_queue, .. })
        | ExporterConfig::Custom(CustomConfig { required, sending_queue, .. })) = self;
        (*required, sending_queue)
    }
}

/// Declares the settings of an OTLP exporter: its own keys, and the keys that both protocols have.
macro_rules! otlp_settings {
    (
        $(#[$meta:meta])* pub struct $name:ident { $($own_fields:tt)* }
        $(#[$timeout_doc:meta])* timeout = $timeout:expr
    ) => {
        settings! {
            $(#[$meta])*
            pub struct $name {
                $($own_fields)*
                /// TLS. On by default, as in the Collector: a gRPC destination without it needs
                /// `insecure: true`; for HTTP the URL decides.
                tls: Tls,
                /// Headers of every request; values are secrets. Default: none.
                headers: BTreeMap<String, Secret>,
                /// `none` (default), `gzip` or `zstd`. Compression costs more CPU than all other work
                /// together.
                compression: Compression = Compression::None,
                compression_params: CompressionParams,
                /// The signals that are sent. Default: traces, logs and metrics.
                signals: Vec<Signal> = Signal::ALL.to_vec(),
                /// The bounded queue of this exporter.
                sending_queue: SendingQueue,
                /// Retries while the destination is unavailable or overloaded.
                retry_on_failure: RetryOnFailure,
                $(#[$timeout_doc])*
                timeout: Period = $timeout,
                /// Maximum size of a request before compression: smaller requests are joined, larger requests split.
                /// Default 4MiB: unless configured otherwise, gRPC servers refuse larger requests; many HTTP
                /// servers accept up to 20 MiB.
                max_request_size: Size = MAX_REQUEST_SIZE,
                /// With `true` (default) a full queue makes the whole pipeline refuse requests until there
                /// is space; with `false` requests that do not fit into the queue are dropped, counted and logged.
                required: bool = true,
            }
        }
    };
}

otlp_settings! {
    /// OTLP over gRPC.
    pub struct OtlpGrpc {
        /// `host:port`, or `http://host:port` (without TLS) or `https://host:port`. No default:
        /// spans must not go somewhere by accident. Proxy variables of the environment are not used.
        endpoint: String,
    }
    /// Timeout of one request. Default 5s: after that it counts as failed and is retried, and the destination may
    /// receive it twice.
    timeout = Period::secs(5)
}

otlp_settings! {
    /// OTLP over HTTP, protobuf encoded.
    pub struct OtlpHttp {
        /// Base URL; `/v1/traces`, `/v1/logs` and `/v1/metrics` are appended. No default. Proxies are
        /// taken from the environment (`HTTPS_PROXY`, `NO_PROXY`) as in the Collector, except for a
        /// loopback address; redirects are not followed.
        endpoint: String,
        /// Full URL for traces, instead of `endpoint`. Default: empty, from `endpoint`.
        traces_endpoint: String,
        /// Full URL for logs, instead of `endpoint`. Default: empty, from `endpoint`.
        logs_endpoint: String,
        /// Full URL for metrics, instead of `endpoint`. Default: empty, from `endpoint`.
        metrics_endpoint: String,
    }
    /// Timeout of one request. Default 30s: after that it counts as failed and is retried, and the destination may
    /// receive it twice.
    timeout = Period::secs(30)
}

settings! {
    /// OTLP as JSON lines, appended to a file.
    pub struct FileConfig {
        /// The file; created if it does not exist, readable by its owner only, also after it was renamed or
        /// removed. Its folder must exist. No default.
        path: PathBuf,
        /// When the file is replaced by a new one. Default: never.
        rotation: Option<Rotation>,
        /// The signals that are written, one request per line. Default: traces, logs and metrics.
        signals: Vec<Signal> = Signal::ALL.to_vec(),
        /// The bounded queue of this exporter.
        sending_queue: SendingQueue,
        /// Retries while writing fails, for example because the disk is full.
        retry_on_failure: RetryOnFailure,
        /// With `true` (default) a full queue makes the whole pipeline refuse requests until there is space; with
        /// `false` requests that do not fit into the queue are dropped, counted and logged.
        required: bool = true,
    }

    /// Rotation of a file: `out.jsonl` becomes `out.jsonl.1`, and so on.
    pub struct Rotation {
        /// Maximum size of the file in MiB, unless a single batch is larger. Default 100.
        max_megabytes: u64 = 100,
        /// Maximum number of files in addition to the current one; the oldest file is deleted. Default 100.
        max_backups: u32 = 100,
    }

    /// Annotated trees on standard output, for people.
    pub struct ConsoleConfig {
        /// `auto` (default: on a terminal, unless `NO_COLOR` is set), `always` or `never`.
        color: Color = Color::Auto,
        /// Print only traces with these results: `pass`, `fail`, `unmeasured`. Default all.
        only: Vec<TraceResult>,
        /// The bounded queue of this exporter.
        sending_queue: SendingQueue,
        /// With `true` (default) a full queue makes the whole pipeline refuse requests until there is space; with
        /// `false` requests that do not fit into the queue are dropped, counted and logged.
        required: bool = true,
    }

    /// Verdicts as scores of an observability back end, through its own API. Content of spans is not sent.
    pub struct ScoresConfig {
        /// The back end: `phoenix`, `langfuse`, `mlflow`, `datadog` or `langsmith`. No default.
        flavor: Option<Flavor>,
        /// Base URL of the back end, for example `http://127.0.0.1:6006`; the path of its API is appended. No
        /// default. Proxies are taken from the environment, except for a loopback address; redirects are not
        /// followed.
        endpoint: String,
        /// Id of the exporter that delivers the spans to the back end. Scores are sent after it has delivered the
        /// spans. Default: empty, the only exporter in use that sends traces to a server.
        after: String,
        /// Time from the delivery of the spans until their scores are sent. Default 5s. Shutdown ends it.
        delay: Period = Period::secs(5),
        /// `all` (default), `failed` or `trace`: all measurements, those that fail, or none besides the verdict
        /// of the trace, which is always sent.
        include: Include = Include::All,
        /// The key of the back end's API, in the header that it expects. Default: none.
        api_key: Option<Secret>,
        /// Langfuse: the public key; `api_key` is the secret key. Default: empty.
        public_key: String,
        /// LangSmith: the id of the project of the runs, or its name, whose id is then requested. LangSmith requires it
        /// on some deployments, and has announced to require it on all. Default: empty, feedback names no project.
        project: String,
        /// TLS; the URL decides whether it is used.
        tls: Tls,
        /// Headers of every request; values are secrets. Default: none.
        headers: BTreeMap<String, Secret>,
        /// The bounded queue of this exporter, which includes scores that wait for `delay`.
        sending_queue: SendingQueue,
        /// Retries while the destination is unavailable or overloaded.
        retry_on_failure: RetryOnFailure,
        /// Timeout of one request. Default 30s: after that it counts as failed and is retried, which updates the
        /// scores that the back end has received.
        timeout: Period = Period::secs(30),
        /// Maximum size of the verdicts that are sent together, in bytes of their events. Default 256KiB, some 600
        /// measurements.
        max_request_size: Size = Size(256 << 10),
        /// With `false` (default) verdicts that do not fit into the queue are dropped, counted and logged; with `true`
        /// a full queue makes the whole pipeline refuse requests until there is space.
        required: bool = false,
    }

    /// A client that the program registers under this id. The `otel-verdict` binary registers none.
    pub struct CustomConfig {
        /// The signals that are sent. Default: traces, logs and metrics.
        signals: Vec<Signal> = Signal::ALL.to_vec(),
        /// The bounded queue of this exporter.
        sending_queue: SendingQueue,
        /// Retries while the destination is unavailable or overloaded.
        retry_on_failure: RetryOnFailure,
        /// Timeout of one request. Default 30s: after that it counts as failed and is retried.
        timeout: Period = Period::secs(30),
        /// Maximum size of a request: smaller requests are joined, larger requests split. Default 4MiB.
        max_request_size: Size = MAX_REQUEST_SIZE,
        /// With `true` (default) a full queue makes the whole pipeline refuse requests until there is space; with
        /// `false` requests that do not fit into the queue are dropped, counted and logged.
        required: bool = true,
    }

    /// The compression level.
    pub struct CompressionParams {
        /// gzip 0-9, zstd 1-22. Default 1: gzip at 6 costs six times the CPU of 1 for some 20 % less
        /// on the wire.
        level: u32 = 1,
    }
}

/// The default limit of gRPC servers on a request.
const MAX_REQUEST_SIZE: Size = Size(verdict_eval::MAX_REQUEST as u64);

/// The back end, which decides on requests, ids and authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Flavor {
    /// Arize Phoenix: annotations of spans, traces and sessions.
    Phoenix,
    /// Langfuse: scores.
    Langfuse,
    /// MLflow: assessments.
    Mlflow,
    /// Datadog LLM Observability: external evaluations.
    Datadog,
    /// LangSmith: feedback.
    Langsmith,
}

/// The verdicts that are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Include {
    /// Verdicts of traces, and every measurement that has an evaluation event.
    #[default]
    All,
    /// Verdicts of traces, and the measurements that fail.
    Failed,
    /// Verdicts of traces.
    Trace,
}

/// When to use colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Color {
    /// On a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    Always,
    Never,
}

/// The result of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TraceResult {
    Pass,
    Fail,
    /// Nothing was measured.
    Unmeasured,
}

impl From<Option<bool>> for TraceResult {
    fn from(passed: Option<bool>) -> TraceResult {
        match passed {
            Some(true) => TraceResult::Pass,
            Some(false) => TraceResult::Fail,
            None => TraceResult::Unmeasured,
        }
    }
}

/// Compression of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    #[default]
    None,
    /// gzip: every OTLP server decodes it.
    Gzip,
    /// zstd: less CPU for the same size; the Collector decodes it, not every server does.
    Zstd,
}

/// The compression of an exporter's requests, and its level.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packing {
    pub compression: Compression,
    pub level: u32,
}

/// The exporter types in ids, aliases included.
const EXPORTER_TYPES: [&str; 10] =
    ["otlp_grpc", "otlp", "otlp_http", "otlphttp", "file", "console", "scores", "webhook", "kafka", "custom"];

impl<'de> Deserialize<'de> for ExporterConfigs {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<ExporterConfigs, D::Error> {
        struct ExporterConfigsVisitor;
        impl<'de> Visitor<'de> for ExporterConfigsVisitor {
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
                        "otlp_grpc" | "otlp" => ExporterConfig::Grpc(value_or_default(&mut map)?),
                        "otlp_http" | "otlphttp" => ExporterConfig::Http(value_or_default(&mut map)?),
                        "file" => ExporterConfig::File(value_or_default(&mut map)?),
                        "console" => ExporterConfig::Console(value_or_default(&mut map)?),
                        "scores" => ExporterConfig::Scores(value_or_default(&mut map)?),
                        "webhook" => ExporterConfig::Webhook(value_or_default(&mut map)?),
                        "kafka" => ExporterConfig::Kafka(value_or_default(&mut map)?),
                        "custom" => ExporterConfig::Custom(value_or_default(&mut map)?),
                        // The types of the Collector that are similar to `console`.
                        "debug" | "logging" => {
                            let message = "this type does not exist; 'console' prints traces";
                            return Err(de::Error::custom(format_args!("{id}: {message}")));
                        }
                        other => return Err(de::Error::unknown_variant(other, &EXPORTER_TYPES)),
                    };
                    if all.insert(id.clone(), config).is_some() {
                        return Err(de::Error::custom(format_args!("exporter '{id}' is defined twice")));
                    }
                }
                Ok(ExporterConfigs(all))
            }
        }
        d.deserialize_map(ExporterConfigsVisitor)
    }
}

/// The value of a key; the defaults for a key without a value, such as `console:`.
fn value_or_default<'de, A: MapAccess<'de>, T: Deserialize<'de> + Default>(
    map: &mut A,
) -> Result<T, A::Error> {
    Ok(map.next_value::<Option<T>>()?.unwrap_or_default())
}

impl JsonSchema for ExporterConfigs {
    fn schema_name() -> Cow<'static, str> {
        "Exporters".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "description": "Exporters by id: a type, or type/name.",
            "patternProperties": {
                "^(otlp_grpc|otlp)(/.+)?$": generator.subschema_for::<Option<OtlpGrpc>>(),
                "^(otlp_http|otlphttp)(/.+)?$": generator.subschema_for::<Option<OtlpHttp>>(),
                "^file(/.+)?$": generator.subschema_for::<Option<FileConfig>>(),
                "^console(/.+)?$": generator.subschema_for::<Option<ConsoleConfig>>(),
                "^scores(/.+)?$": generator.subschema_for::<Option<ScoresConfig>>(),
                "^webhook(/.+)?$": generator.subschema_for::<Option<WebhookConfig>>(),
                "^kafka(/.+)?$": generator.subschema_for::<Option<KafkaConfig>>(),
                "^custom(/.+)?$": generator.subschema_for::<Option<CustomConfig>>(),
            },
            "additionalProperties": false,
        })
    }
}
