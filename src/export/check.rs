//! Validates the settings of exporters and reports all problems by key, without opening files or
//! sockets.

use std::collections::BTreeMap;
use std::path::Path;

use verdict_client::Tls;
use verdict_config::{Period, Problem, Secret, Size};

use super::config::{
    Compression, ExporterConfig, ExporterConfigs, Packing, RetryOnFailure, Rotation, SendingQueue,
};
use super::{grpc, http};
use crate::kafka::config::topic_problem;

/// Minimum of `max_request_size` in bytes: smaller requests would mostly consist of resources and scopes, which every
/// request repeats.
const MIN_REQUEST_SIZE: u64 = 1 << 10;

/// Maximum of `num_consumers`: each is a task and a concurrent request.
const MAX_CONSUMERS: usize = 1_000;

/// Maximum of `rotation.max_backups`: all of them are renamed at each rotation.
const MAX_BACKUPS: u32 = 1_000;

impl ExporterConfigs {
    /// The problems of invalid values.
    pub fn problems(&self) -> Vec<Problem> {
        let mut problems = Problems { id: String::new(), all: Vec::new() };
        for (id, config) in &self.0 {
            problems.id.clone_from(id);
            if id.ends_with('/') {
                problems.add("", "a name must follow the '/'");
            }
            match config {
                ExporterConfig::Grpc(c) => {
                    if let Err(error) = grpc::GrpcEndpoint::parse(&c.endpoint, c.tls.insecure) {
                        problems.add("endpoint", error.to_string());
                    }
                }
                ExporterConfig::Http(c) => {
                    for http::UrlError { key, message } in
                        c.signals.iter().filter_map(|&signal| http::url(c, signal).err())
                    {
                        problems.add(key, message);
                    }
                    problems.all.dedup();
                }
                ExporterConfig::File(c) => {
                    if c.path.as_os_str().is_empty() {
                        problems.add("path", "required");
                    }
                    let is_invalid =
                        |r: &Rotation| r.max_megabytes == 0 || !(1..=MAX_BACKUPS).contains(&r.max_backups);
                    if c.rotation.as_ref().is_some_and(is_invalid) {
                        problems.add("rotation", "max_megabytes must be above 0, max_backups 1 to 1000");
                    }
                }
                ExporterConfig::Scores(c) => {
                    problems.all.extend(c.problems().into_iter().map(|problem| problem.in_section(id)));
                }
                ExporterConfig::Kafka(c) => {
                    let topics =
                        c.topics().into_iter().filter_map(|(_, key, topic)| topic_problem(key, topic));
                    let connection_problems = c.connection().problems().into_iter().chain(topics);
                    problems.all.extend(connection_problems.map(|problem| problem.in_section(id)));
                    if !(1 << 10..=1_000_000_000).contains(&c.producer.max_message_bytes.0) {
                        problems.add("producer.max_message_bytes", "must be from 1KiB to 1GB");
                    }
                    if !(1..=3600).contains(&c.timeout.0.as_secs()) {
                        problems.add("timeout", "must be from 1s to 1h");
                    }
                    if c.producer.linger.0 >= c.timeout.0 {
                        problems.add("producer.linger", "must be below timeout");
                    }
                }
                ExporterConfig::Webhook(c) => {
                    problems.all.extend(c.problems().into_iter().map(|problem| problem.in_section(id)));
                }
                ExporterConfig::Console(_) | ExporterConfig::Custom(_) => {}
            }
            let connection = config.connection();
            if let Some((tls, headers, _)) = connection {
                check_connection(tls, headers, &mut problems);
            }
            if let Some((timeout, max_request)) = config.limits() {
                check_limits(timeout, max_request, &mut problems);
            }
            if let Some((.., packing)) = connection {
                check_compression(packing, &mut problems);
            }
            check_queue(config.queue().1, &mut problems);
            if let Some((_, policy)) = config.sending() {
                check_retry(policy, &mut problems);
            }
        }
        problems.all
    }
}

/// Collects problems, each with the id of its exporter.
struct Problems {
    /// The id of the exporter that is checked.
    id: String,
    all: Vec<Problem>,
}

impl Problems {
    fn add(&mut self, key: &str, message: impl Into<String>) {
        self.all.push(Problem::new(key, message).in_section(&self.id));
    }
}

fn check_connection(tls: &Tls, headers: &BTreeMap<String, Secret>, problems: &mut Problems) {
    let is_set = |file: &Option<_>| file.as_deref().is_some_and(|f: &Path| !f.as_os_str().is_empty());
    if is_set(&tls.cert_file) != is_set(&tls.key_file) {
        problems.add("tls", "set both cert_file and key_file, or neither");
    }
    for (name, value) in headers {
        if verdict_client::header(name, value).is_err() {
            problems.add(&format!("headers.{name}"), "not a valid HTTP header");
        }
    }
}

fn check_limits(timeout: Period, max_request: Size, problems: &mut Problems) {
    if timeout.is_zero() {
        problems.add("timeout", "must be above 0");
    }
    if max_request.0 < MIN_REQUEST_SIZE || max_request.0 > u64::from(u32::MAX) {
        problems.add("max_request_size", "must be between 1KiB and 4GiB");
    }
}

fn check_compression(packing: Packing, problems: &mut Problems) {
    let levels = match packing.compression {
        Compression::None => return,
        Compression::Gzip => 0..=9,
        Compression::Zstd => 1..=22,
    };
    if !levels.contains(&packing.level) {
        let (low, high) = (levels.start(), levels.end());
        problems.add("compression_params.level", format!("must be between {low} and {high}"));
    }
}

fn check_queue(queue: &SendingQueue, problems: &mut Problems) {
    if queue.queue_size.0 == 0 {
        problems.add("sending_queue.queue_size", "must be above 0; set enabled: false to disable the queue");
    }
    if !(1..=MAX_CONSUMERS).contains(&queue.num_consumers) {
        problems.add("sending_queue.num_consumers", format!("must be between 1 and {MAX_CONSUMERS}"));
    }
}

fn check_retry(retry: &RetryOnFailure, problems: &mut Problems) {
    if !(0.0..=1.0).contains(&retry.randomization_factor) {
        problems.add("retry_on_failure.randomization_factor", "must be between 0 and 1");
    }
    if !retry.multiplier.is_finite() || retry.multiplier < 1.0 {
        problems.add("retry_on_failure.multiplier", "must be at least 1");
    }
    if retry.initial_interval.is_zero() {
        problems.add("retry_on_failure.initial_interval", "must be above 0");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::config::OtlpGrpc;

    fn read(yaml: &str) -> Result<ExporterConfigs, String> {
        serde_saphyr::from_str(yaml).map_err(|e| e.to_string())
    }

    #[test]
    fn example_of_all_exporter_types_is_valid() {
        let all = read(
            r#"
otlp_grpc: { endpoint: "127.0.0.1:14317", tls: { insecure: true }, compression: none, signals: [traces, logs, metrics], sending_queue: { sizer: bytes, queue_size: 268435456 }, retry_on_failure: { initial_interval: 5s, max_interval: 30s, max_elapsed_time: 300s } }
otlp_http/archive: { endpoint: "http://127.0.0.1:14318", required: false }
otlp: { endpoint: "https://collector:4317" }
otlphttp/x: { traces_endpoint: "http://h/custom", signals: [traces] }
file: { path: out.jsonl }
console:
custom/queue: { signals: [traces], max_request_size: 1MiB }
"#,
        )
        .unwrap();
        assert_eq!(all.problems(), []);
        assert_eq!(all.0.len(), 7);
        let ExporterConfig::Grpc(grpc) = &all.0["otlp_grpc"] else { panic!("wrong type") };
        assert_eq!(
            grpc,
            &OtlpGrpc {
                endpoint: "127.0.0.1:14317".into(),
                tls: Tls { insecure: true, ..Tls::default() },
                ..OtlpGrpc::default()
            }
        );
        assert!(
            matches!(&all.0["otlp_http/archive"], ExporterConfig::Http(c) if !c.required && c.timeout == Period::secs(30))
        );
        assert!(matches!(&all.0["console"], ExporterConfig::Console(c) if c.required));
    }

    #[test]
    fn unknown_keys_and_types_are_errors() {
        assert!(read("otlp_grpc: { endpont: x }").unwrap_err().contains("endpont"));
        assert!(read("pulsar: { brokers: x }").unwrap_err().contains("otlp_grpc"));
        assert!(read("otlp_grpc: { sending_queue: { sizer: items } }").is_err());
    }

    #[test]
    fn every_problem_is_reported_at_once_by_key() {
        let all = read(
            r#"
otlp_grpc: { tls: { cert_file: a.pem }, headers: { "bad header": x }, timeout: 0, max_request_size: 1, compression: gzip, compression_params: { level: 11 }, sending_queue: { num_consumers: 0, queue_size: 0 }, retry_on_failure: { multiplier: 0.5, randomization_factor: 2, initial_interval: 0 } }
otlp_http: { endpoint: "not a url" }
file: { rotation: { max_backups: 0 } }
"#,
        )
        .unwrap();
        let keys: Vec<String> = all.problems().into_iter().map(|p| p.key).collect();
        assert_eq!(
            keys,
            [
                "file.path",
                "file.rotation",
                "otlp_grpc.endpoint",
                "otlp_grpc.tls",
                "otlp_grpc.headers.bad header",
                "otlp_grpc.timeout",
                "otlp_grpc.max_request_size",
                "otlp_grpc.compression_params.level",
                "otlp_grpc.sending_queue.queue_size",
                "otlp_grpc.sending_queue.num_consumers",
                "otlp_grpc.retry_on_failure.randomization_factor",
                "otlp_grpc.retry_on_failure.multiplier",
                "otlp_grpc.retry_on_failure.initial_interval",
                "otlp_http.endpoint",
            ]
        );
    }

    #[test]
    fn printed_configuration_parses_again_and_hides_secrets() {
        let all = read(
            "otlp_http: { endpoint: 'http://h', headers: { authorization: hunter2 } }\nfile: { path: x }",
        )
        .unwrap();
        let text = serde_saphyr::to_string(&all).unwrap();
        assert!(!text.contains("hunter2") && text.contains("[redacted]"), "{text}");
        assert_eq!(read(&text).unwrap().0.len(), 2);
        assert!(
            serde_json::to_string(&schemars::schema_for!(ExporterConfigs)).unwrap().contains("otlp_grpc")
        );
    }
}
