//! What is wrong with an exporter's settings, all at once, told by key. Reads text only: no
//! socket, file or folder is touched.

use std::collections::BTreeMap;
use std::path::Path;

use super::config::{
    Compression, CompressionParams, ExporterConfig, ExporterConfigs, OtlpGrpc, OtlpHttp, RetryOnFailure,
    SendingQueue,
};
use super::{grpc, http};
use verdict_client::Tls;
use verdict_config::{Period, Secret, Size};

/// One thing wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Key below `exporters`, dotted: `otlp_grpc.sending_queue.num_consumers`.
    pub key: String,
    /// What is wrong and what would be right.
    pub message: String,
}

/// Requests below this size would be mostly resources and scopes: every part repeats them.
const MIN_REQUEST: u64 = 1 << 10;

/// More would only crowd the destination, and each costs a task.
const MAX_CONSUMERS: usize = 1_000;

impl ExporterConfigs {
    /// Every problem of every exporter.
    pub fn problems(&self) -> Vec<Problem> {
        let mut found = Found { id: String::new(), problems: Vec::new() };
        for (id, config) in &self.0 {
            found.id.clone_from(id);
            if id.ends_with('/') {
                found.add("", "a name must follow the '/'");
            }
            match config {
                ExporterConfig::Grpc(c) => grpc_problems(c, &mut found),
                ExporterConfig::Http(c) => http_problems(c, &mut found),
                ExporterConfig::File(c) => {
                    if c.path.as_os_str().is_empty() {
                        found.add("path", "the file to write to is needed");
                    }
                    queue(&c.sending_queue, &mut found);
                    retry(&c.retry_on_failure, &mut found);
                }
                ExporterConfig::Console(c) => queue(&c.sending_queue, &mut found),
            }
        }
        found.problems
    }
}

struct Found {
    id: String,
    problems: Vec<Problem>,
}

impl Found {
    fn add(&mut self, key: &str, message: impl Into<String>) {
        let dot = if key.is_empty() { "" } else { "." };
        self.problems.push(Problem { key: format!("{}{dot}{key}", self.id), message: message.into() });
    }
}

fn grpc_problems(c: &OtlpGrpc, found: &mut Found) {
    if let Err(why) = grpc::Target::read(&c.endpoint, c.tls.insecure) {
        found.add("endpoint", why);
    }
    shared(&c.tls, &c.headers, c.timeout, c.max_request_size, found);
    compression(c.compression, &c.compression_params, found);
    queue(&c.sending_queue, found);
    retry(&c.retry_on_failure, found);
}

fn http_problems(c: &OtlpHttp, found: &mut Found) {
    for &signal in &c.signals {
        if let Err((key, why)) = http::url(c, signal) {
            found.add(key, why);
        }
    }
    found.problems.dedup();
    shared(&c.tls, &c.headers, c.timeout, c.max_request_size, found);
    compression(c.compression, &c.compression_params, found);
    queue(&c.sending_queue, found);
    retry(&c.retry_on_failure, found);
}

fn shared(
    tls: &Tls,
    headers: &BTreeMap<String, Secret>,
    timeout: Period,
    max_request: Size,
    found: &mut Found,
) {
    let named = |file: &Option<_>| file.as_deref().is_some_and(|f: &Path| !f.as_os_str().is_empty());
    if named(&tls.cert_file) != named(&tls.key_file) {
        found.add("tls", "cert_file and key_file need each other");
    }
    for (name, value) in headers {
        if verdict_client::header(name, value).is_err() {
            found.add(&format!("headers.{name}"), "not a header that can be sent");
        }
    }
    if timeout.is_zero() {
        found.add("timeout", "must be above 0");
    }
    if max_request.0 < MIN_REQUEST || max_request.0 > u64::from(u32::MAX) {
        found.add("max_request_size", "must lie between 1KiB and 4GiB");
    }
}

fn compression(kind: Compression, params: &CompressionParams, found: &mut Found) {
    let levels = match kind {
        Compression::None => return,
        Compression::Gzip => 0..=9,
        Compression::Zstd => 1..=22,
    };
    if !levels.contains(&params.level) {
        let (low, high) = (levels.start(), levels.end());
        found.add("compression_params.level", format!("must lie between {low} and {high}"));
    }
}

fn queue(queue: &SendingQueue, found: &mut Found) {
    if queue.queue_size.0 == 0 {
        found.add("sending_queue.queue_size", "must be above 0; to do without a queue, say enabled: false");
    }
    if !(1..=MAX_CONSUMERS).contains(&queue.num_consumers) {
        found.add("sending_queue.num_consumers", format!("must lie between 1 and {MAX_CONSUMERS}"));
    }
}

fn retry(retry: &RetryOnFailure, found: &mut Found) {
    if !(0.0..=1.0).contains(&retry.randomization_factor) {
        found.add("retry_on_failure.randomization_factor", "must lie between 0 and 1");
    }
    if !retry.multiplier.is_finite() || retry.multiplier < 1.0 {
        found.add("retry_on_failure.multiplier", "must be at least 1");
    }
    if retry.initial_interval.is_zero() {
        found.add("retry_on_failure.initial_interval", "must be above 0");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(yaml: &str) -> Result<ExporterConfigs, String> {
        serde_saphyr::from_str(yaml).map_err(|e| e.to_string())
    }

    #[test]
    fn the_designs_own_example_reads_and_has_no_problem() {
        let all = read(
            r#"
otlp_grpc: { endpoint: "127.0.0.1:14317", tls: { insecure: true }, compression: none, signals: [traces, logs, metrics], sending_queue: { sizer: bytes, queue_size: 268435456 }, retry_on_failure: { initial_interval: 5s, max_interval: 30s, max_elapsed_time: 300s } }
otlp_http/archive: { endpoint: "http://127.0.0.1:14318", required: false }
otlp: { endpoint: "https://collector:4317" }
otlphttp/x: { traces_endpoint: "http://h/custom", signals: [traces] }
file: { path: out.jsonl }
console:
"#,
        )
        .unwrap();
        assert_eq!(all.problems(), []);
        assert_eq!(all.0.len(), 6);
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
        assert!(read("kafka: { brokers: x }").unwrap_err().contains("otlp_grpc"));
        assert!(read("otlp_grpc: { sending_queue: { sizer: items } }").is_err());
    }

    #[test]
    fn every_problem_is_reported_at_once_by_key() {
        let all = read(
            r#"
otlp_grpc: { tls: { cert_file: a.pem }, headers: { "bad header": x }, timeout: 0, max_request_size: 1, compression: gzip, compression_params: { level: 11 }, sending_queue: { num_consumers: 0, queue_size: 0 }, retry_on_failure: { multiplier: 0.5, randomization_factor: 2, initial_interval: 0 } }
otlp_http: { endpoint: "not a url" }
file: {}
"#,
        )
        .unwrap();
        let keys: Vec<String> = all.problems().into_iter().map(|p| p.key).collect();
        assert_eq!(
            keys,
            [
                "file.path",
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
    fn what_is_printed_reads_back_and_hides_secrets() {
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
