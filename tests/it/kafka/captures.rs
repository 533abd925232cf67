//! The captures as messages, and the verdicts that one process gives on them.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::LazyLock;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::trace::v1::Span;
use otel_verdict::config::Config;
use otel_verdict::pipeline::offline::RecordingEvaluation;
use otel_verdict::receive::Offer;
use prost::Message as _;
use regex::Regex;
use verdict_otlp::Signal;

use crate::frameworks::{hex, spans_of};
use crate::order::single_item_requests;
use crate::support::finish;

/// Messages of one run of the captures: signal, key, body.
pub type Messages = Vec<(Signal, String, Bytes)>;
/// The subject of a verdict: trace, span, and the metric of an evaluation event; without a metric the span itself.
pub type VerdictSubject = (String, String, String);
/// Attributes of a verdict by key.
pub type Verdict = BTreeMap<String, String>;
pub type Verdicts = BTreeMap<VerdictSubject, Verdict>;

/// The captures, each span and record a message of its own.
pub struct Captures {
    offers: Vec<Offer>,
    /// The offsets of trace ids, by offer.
    trace_id_offsets: Vec<Vec<(usize, [u8; 16])>>,
    /// All trace ids in the captures.
    traces: BTreeSet<[u8; 16]>,
    /// The verdicts that one process writes on spans.
    pub verdicts: Verdicts,
    /// The verdicts that it writes as events.
    pub events: Verdicts,
    pub spans: usize,
}

/// The attributes that are equal whether a process evaluates a recording or receives it.
fn comparable_attributes<'a>(attributes: impl Iterator<Item = &'a KeyValue>) -> Verdict {
    // Offline traces close for another reason.
    let compared = attributes.filter(|kv| kv.key != "verdict.trace.close_reason");
    // Ids of findings depend on the id of the trace.
    static ID: LazyLock<Regex> = LazyLock::new(|| Regex::new(r#"\\"id\\":\\"[0-9a-f]{16}\\""#).unwrap());
    compared.map(|kv| (kv.key.clone(), ID.replace_all(&format!("{:?}", kv.value), "").into_owned())).collect()
}

pub fn span_verdict(span: &Span) -> (VerdictSubject, Verdict) {
    let ours = span.attributes.iter().filter(|kv| kv.key.starts_with("verdict."));
    ((hex(&span.trace_id), hex(&span.span_id), String::new()), comparable_attributes(ours))
}

/// The verdict of an evaluation event; `None` for a log record that was received.
pub fn event_verdict(record: &LogRecord) -> Option<(VerdictSubject, Verdict)> {
    if record.event_name != "gen_ai.evaluation.result" {
        return None;
    }
    let name = record.attributes.iter().find(|kv| kv.key == "gen_ai.evaluation.name").unwrap();
    let Some(AnyValue { value: Some(Value::StringValue(metric)) }) = &name.value else { panic!("{name:?}") };
    let mut verdict = comparable_attributes(record.attributes.iter());
    verdict.insert("severity".to_owned(), record.severity_number.to_string());
    Some(((hex(&record.trace_id), hex(&record.span_id), metric.clone()), verdict))
}

pub fn records_of(body: &Bytes) -> Vec<LogRecord> {
    let request = ExportLogsServiceRequest::decode(body.clone()).unwrap();
    let scopes = request.resource_logs.into_iter().flat_map(|resource| resource.scope_logs);
    scopes.flat_map(|scope| scope.log_records).collect()
}

pub fn record_hash(record: &LogRecord) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(record.encode_to_vec())
}

impl Captures {
    /// Evaluates the captures on a thread without a runtime, because the evaluation has its own.
    pub fn read() -> Captures {
        std::thread::spawn(|| Captures::evaluate(single_item_requests())).join().unwrap()
    }

    /// Like [`Captures::read`], without log records.
    pub fn without_logs() -> Captures {
        let spans = || single_item_requests().into_iter().filter(|offer| offer.signal == Signal::Traces);
        std::thread::spawn(move || Captures::evaluate(spans().collect())).join().unwrap()
    }

    fn evaluate(offers: Vec<Offer>) -> Captures {
        let of_traces = |offer: &&Offer| offer.signal == Signal::Traces;
        let bodies: Vec<Bytes> = offers.iter().filter(of_traces).map(|offer| offer.body.clone()).collect();
        let spans = spans_of(&bodies);
        let traces: BTreeSet<[u8; 16]> =
            spans.iter().map(|span| span.trace_id[..].try_into().unwrap()).collect();
        let in_body = |offer: &Offer| {
            let windows = offer.body.windows(16).enumerate();
            windows.filter_map(|(at, id)| Some((at, *traces.get(id)?))).collect()
        };
        let trace_id_offsets = offers.iter().map(in_body).collect();
        let mut evaluation = RecordingEvaluation::new(&Config::default(), 1).unwrap();
        for offer in &offers {
            evaluation.add(offer).unwrap();
        }
        let (mut verdicts, mut events) = (Verdicts::new(), Verdicts::new());
        finish(&mut evaluation, |done| {
            for piece in done.annotated.spans {
                verdicts.extend(spans_of(&[piece.bytes]).iter().map(span_verdict));
            }
            let records = done.annotated.events.iter().flat_map(|piece| records_of(&piece.bytes));
            for (subject, verdict) in records.filter_map(|record| event_verdict(&record)) {
                assert!(events.insert(subject.clone(), verdict).is_none(), "two events about {subject:?}");
            }
        });
        assert_eq!(verdicts.len(), spans.len());
        assert!(!events.is_empty());
        Captures { offers, trace_id_offsets, traces, verdicts, events, spans: spans.len() }
    }

    /// The id of a trace in a run: another trace is in another partition.
    fn id(trace: &[u8; 16], run: u32) -> [u8; 16] {
        let mut id = *trace;
        for (byte, other) in id.iter_mut().zip(run.wrapping_mul(0x9e37_79b1).to_be_bytes().repeat(4)) {
            *byte ^= other;
        }
        id
    }

    /// The messages of a run, with ids of its own.
    pub fn messages(&self, run: u32) -> Messages {
        let message = |(Offer { signal, body }, trace_id_offsets): (&Offer, &Vec<(usize, [u8; 16])>)| {
            let mut body = body.to_vec();
            for (at, trace) in trace_id_offsets {
                body[*at..at + 16].copy_from_slice(&Captures::id(trace, run));
            }
            let (_, first) = trace_id_offsets.first()?;
            Some((*signal, hex(&Captures::id(first, run)), body.into()))
        };
        self.offers.iter().zip(&self.trace_id_offsets).filter_map(message).collect()
    }

    /// The run and the trace of the captures of each trace of `runs`, by id.
    pub fn capture_traces(&self, runs: u32) -> BTreeMap<String, (u32, String)> {
        let in_run = |run| {
            let entry = move |trace: &[u8; 16]| (hex(&Captures::id(trace, run)), (run, hex(trace)));
            self.traces.iter().map(entry)
        };
        (0..runs).flat_map(in_run).collect()
    }

    /// The log records of `runs`, as they are sent.
    pub fn records(&self, runs: u32) -> BTreeSet<u64> {
        let messages = (0..runs).flat_map(|run| self.messages(run));
        let logs = messages.filter(|(signal, ..)| *signal == Signal::Logs);
        logs.flat_map(|(_, _, body)| records_of(&body)).map(|record| record_hash(&record)).collect()
    }
}
