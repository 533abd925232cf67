//! The verdicts on the framework captures, compared with the expected ones.
//!
//! Runs where `OTEL_VERDICT_CASES` names the unpacked cases; the captures shipped under `demo` and
//! `tests/data/frameworks` are compared by `end_to_end`. Every expectation comes from
//! the `truth.json` of a capture, which rules never read.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use otel_verdict::config::Config;
use otel_verdict::pipeline::offline::RecordingEvaluation;
use otel_verdict::receive::Offer;
use prost::Message;
use serde_json::Value as Json;
use verdict_eval::propagation::Policy;
use verdict_otlp::Signal;

/// One capture: its requests in order of arrival, and its expected verdicts and defects (`truth.json`).
pub struct Case {
    pub name: String,
    pub requests: Vec<Offer>,
    pub truth: Json,
}

/// An exported span.
pub struct ExportedSpan {
    pub trace: Vec<u8>,
    pub parent: Vec<u8>,
    pub name: String,
    pub attributes: HashMap<String, String>,
}

impl ExportedSpan {
    fn get(&self, key: &str) -> &str {
        self.attributes.get(key).map_or("", String::as_str)
    }

    fn fails_itself(&self) -> bool {
        self.get("verdict.result") == "fail" && self.get("verdict.cause") != "children"
    }
}

pub type Spans = BTreeMap<String, ExportedSpan>;

pub fn cases(folder: &Path) -> Vec<Case> {
    let mut names: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).filter(|p| p.is_dir()).collect();
    names.sort();
    names.iter().map(|path| case(path)).collect()
}

pub fn case(path: &Path) -> Case {
    let mut files: Vec<PathBuf> = std::fs::read_dir(path).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort_by_key(|f| f.file_name().unwrap().to_string_lossy().trim_start_matches("logs-").to_owned());
    let requests = files.iter().filter(|f| f.extension().is_some_and(|e| e == "pb")).map(|f| {
        let logs = f.file_name().unwrap().to_string_lossy().starts_with("logs-");
        Offer {
            signal: if logs { Signal::Logs } else { Signal::Traces },
            body: Bytes::from(std::fs::read(f).unwrap()),
        }
    });
    Case {
        name: path.file_name().unwrap().to_string_lossy().into_owned(),
        requests: requests.collect(),
        truth: serde_json::from_slice(&std::fs::read(path.join("truth.json")).unwrap()).unwrap(),
    }
}

/// A run that recovers from an error must pass at its root under `outcome_relevant`.
pub fn config(case: &Case) -> Config {
    let mut config = Config::default();
    if case.truth["expected_overall"] == "pass (handled tool error)" {
        config.verdict.evaluation.propagation.default = Policy::OutcomeRelevant;
    }
    config
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn value_text(value: &Value) -> String {
    match value {
        Value::StringValue(s) => s.clone(),
        Value::ArrayValue(a) => {
            a.values.iter().flat_map(|v| &v.value).map(value_text).collect::<Vec<_>>().join(",")
        }
        Value::BoolValue(b) => b.to_string(),
        Value::IntValue(i) => i.to_string(),
        Value::DoubleValue(d) => d.to_string(),
        _ => String::new(),
    }
}

pub fn spans_of(requests: &[Bytes]) -> Vec<Span> {
    requests
        .iter()
        .flat_map(|body| ExportTraceServiceRequest::decode(body.clone()).unwrap().resource_spans)
        .flat_map(|r| r.scope_spans)
        .flat_map(|s| s.spans)
        .collect()
}

pub fn read(requests: &[Bytes]) -> Spans {
    let read = |span: Span| {
        let attributes = span.attributes.iter().map(|kv| {
            (
                kv.key.clone(),
                kv.value.as_ref().and_then(|v| v.value.as_ref()).map(value_text).unwrap_or_default(),
            )
        });
        let attributes = attributes.collect();
        (
            hex(&span.span_id),
            ExportedSpan { trace: span.trace_id, parent: span.parent_span_id, name: span.name, attributes },
        )
    };
    spans_of(requests).into_iter().map(read).collect()
}

fn evaluate(case: &Case) -> Spans {
    let mut evaluation = RecordingEvaluation::new(&config(case), 0).unwrap();
    for offer in &case.requests {
        evaluation.add(offer).unwrap();
    }
    let mut out = Vec::new();
    crate::support::finish(&mut evaluation, |trace| {
        out.extend(trace.annotated.spans.into_iter().map(|piece| piece.bytes))
    });
    read(&out)
}

/// The counts over the whole set.
#[derive(Default, Debug)]
pub struct Score {
    roots: (usize, usize),
    exact: (usize, usize),
    near: (usize, usize),
    correct_runs: (usize, usize),
    pub complaints: Vec<String>,
}

impl Score {
    pub fn add(&mut self, case: &Case, spans: &Spans) {
        let truth = &case.truth;
        let mut report = |text: String| self.complaints.push(format!("{}: {text}", case.name));
        let topmost_spans: Vec<&ExportedSpan> =
            spans.values().filter(|s| !spans.contains_key(&hex(&s.parent))).collect();
        let traces: HashSet<&[u8]> = spans.values().map(|s| s.trace.as_slice()).collect();
        for trace in &traces {
            if !topmost_spans.iter().any(|t| t.trace == *trace && !t.get("verdict.trace.result").is_empty()) {
                report(format!("HARD no verdict.trace.result on trace {}", hex(trace)));
            }
        }
        if truth["evidence_in_spans"] == Json::Bool(false) {
            // The content of these captures is in log records.
            if truth["logs_requests"] != 0 {
                return;
            }
            if topmost_spans.iter().any(|top| top.get("verdict.trace.result") == "pass") {
                report("HARD the trace passes without content".to_owned());
            }
            for (id, span) in spans {
                for metric in ["avoidance", "instruction_following", "reasoning_integrity", "completeness"] {
                    if span.get(&format!("verdict.{metric}.result")) == "pass" {
                        report(format!("HARD {metric} passes without content on {} {id}", span.name));
                    }
                }
            }
            return;
        }
        if truth["evidence_in_spans"] != Json::Bool(true) {
            return;
        }
        let failing = topmost_spans.iter().any(|t| t.get("verdict.trace.result") == "fail");
        let expected = truth["expected_overall"].as_str().unwrap();
        let right = match expected {
            e if e.starts_with("fail") => failing,
            e if e.starts_with("incomplete") => !failing,
            _ => !failing && topmost_spans.iter().any(|t| t.get("verdict.trace.result") == "pass"),
        };
        self.roots.1 += 1;
        self.roots.0 += usize::from(right);
        if !right {
            report(format!("root: expected {expected}"));
            for (id, span) in spans.iter().filter(|(_, s)| s.fails_itself()) {
                report(format!("   fails: {} {id} {}", span.name, explain(span)));
            }
        }
        if expected == "pass" {
            let clean = spans.values().all(|s| s.get("verdict.result") != "fail");
            self.correct_runs.1 += 1;
            self.correct_runs.0 += usize::from(clean);
            for (id, span) in spans.iter().filter(|(_, s)| s.fails_itself()) {
                report(format!("correct run: {} {id} {}", span.name, explain(span)));
            }
        }
        for defect in truth["expected"].as_array().unwrap() {
            let id = defect["span_id"].as_str().unwrap();
            let (exact, near) = (spans[id].fails_itself(), relatives(spans, id).any(|s| s.fails_itself()));
            self.exact.1 += 1;
            self.near.1 += 1;
            self.exact.0 += usize::from(exact);
            self.near.0 += usize::from(exact || near);
            if !exact {
                let near = if near { "(near) " } else { "" };
                report(format!("missed {near}{} on {} {id}", defect["defect"], defect["name"]));
            }
        }
    }

    fn share((n, total): (usize, usize)) -> f64 {
        if total == 0 { 1.0 } else { n as f64 / total as f64 }
    }

    /// Compares the counts with the shares that the project requires.
    pub fn check(&self) {
        println!("{}", self.complaints.join("\n"));
        println!(
            "roots {:?} exact {:?} near {:?} correct runs {:?}",
            self.roots, self.exact, self.near, self.correct_runs
        );
        assert!(!self.complaints.iter().any(|c| c.contains("HARD")));
        assert!(Self::share(self.roots) >= 0.95, "roots {:?}", self.roots);
        assert!(Self::share(self.near) >= 0.90, "near {:?}", self.near);
        assert!(Self::share(self.exact) >= 0.75, "exact {:?}", self.exact);
        assert!(self.correct_runs.0 + 1 >= self.correct_runs.1, "correct runs {:?}", self.correct_runs);
    }
}

fn explain(span: &ExportedSpan) -> String {
    let metrics = span.get("verdict.failed_metrics");
    let explanations =
        metrics.split(',').map(|m| span.get(&format!("verdict.{m}.explanation"))).collect::<Vec<_>>();
    format!("[{metrics}] {}", explanations.join(" | "))
}

fn relatives<'s>(spans: &'s Spans, id: &str) -> impl Iterator<Item = &'s ExportedSpan> {
    let parent = hex(&spans[id].parent);
    let id = id.to_owned();
    spans
        .iter()
        .filter(move |(other, s)| **other == parent || hex(&s.parent) == parent || hex(&s.parent) == id)
        .map(|(_, s)| s)
}

#[test]
fn framework_cases_get_the_expected_verdicts() {
    let Some(folder) = std::env::var_os("OTEL_VERDICT_CASES") else {
        println!("skipped: OTEL_VERDICT_CASES is not set");
        return;
    };
    let mut score = Score::default();
    for case in cases(&Path::new(&folder).join("frameworks")) {
        score.add(&case, &evaluate(&case));
    }
    score.check();
}
