//! What must hold of any bytes, for every reader of what strangers, disks or people wrote: one
//! function each, called by the targets beside this file, which a coverage-guided fuzzer drives, and
//! by `tests/it/fuzz.rs`, which is part of every test run and needs nothing but a stable compiler.

use std::path::Path;

use otel_verdict::config::{Config, from_sources};
use otel_verdict::telemetry::Telemetry;
use verdict_config::{Size, Source};
use verdict_eval::{Form, ScoreField};
use verdict_journal::{Journal, Recovered, Storage};
use verdict_judge::AnswerValidator;
use verdict_otlp::trace::Span;
use verdict_otlp::write::{Item, requests, strip_attributes};
use verdict_otlp::{Interner, Signal, json, logs, metrics, split};

/// As a trace request: no panic; what is accepted is written again byte for byte, and splitting
/// what was written gives the same spans.
pub fn wire_split(data: &[u8]) {
    let _ = logs::find(data);
    let _ = metrics::count(data);
    let _ = strip_attributes(data, "verdict.");
    let interner = Interner::default();
    let Ok(first) = split(data, "verdict.", &interner) else { return };
    for group in &first.groups {
        let items: Vec<Item<'_>> = group
            .spans
            .iter()
            .map(|span| Item { envelope: &span.envelope, bytes: &span.bytes, appended: &[] })
            .collect();
        let written: Vec<u8> = requests(&items, 4096).iter().flat_map(|piece| piece.bytes.to_vec()).collect();
        let again = split(&written, "verdict.", &interner).expect("what we write is a request");
        assert_eq!(again.rejected.count, 0);
        let [again] = &again.groups[..] else { panic!("one trace became several") };
        let sorted = |spans: &[Span]| {
            let place = |s: &Span| (s.envelope.resource.clone(), s.envelope.scope.clone(), s.bytes.clone());
            let mut all: Vec<_> = spans.iter().map(place).collect();
            all.sort();
            all
        };
        assert_eq!(sorted(&again.spans), sorted(&group.spans));
    }
}

/// As JSON and as protobuf of every signal: no panic; what one direction writes, the other reads,
/// and then changes no more.
pub fn json(data: &[u8]) {
    for signal in [Signal::Traces, Signal::Logs, Signal::Metrics] {
        if let Ok(bytes) = json::decode(signal, data) {
            let text = json::encode(signal, &bytes).expect("what we write is a request");
            let again = json::decode(signal, &text).expect("what we write is JSON");
            assert_eq!(json::encode(signal, &again).as_ref(), Ok(&text));
        }
        let _ = json::encode(signal, data);
    }
}

/// As a configuration: read, or refused with a message; what is read and shown is read again.
pub fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let load = |text: &str| -> Result<Config, String> {
        let source = Source { name: "fuzz".to_owned(), text: text.to_owned() };
        from_sources(&[source], &|_| None).map_err(|invalid| {
            assert!(!invalid.lines().is_empty(), "refused without a word");
            invalid.to_string()
        })
    };
    let Ok(config) = load(text) else { return };
    let shown = config.to_yaml().expect("what was read can be shown");
    // A secret is not shown, and a value that looks like a variable would be taken for one.
    if !shown.contains("[redacted]") && !shown.contains('$') {
        let again = load(&shown).unwrap_or_else(|faults| panic!("{faults}\n{shown}"));
        assert_eq!(config.differences(&again), [""; 0], "{shown}");
    }
}

/// As a judge's answer: no panic, and what is taken fits the form and is taken again.
pub fn judge_answer(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let form = Form {
        name: "verdict",
        schema: serde_json::json!({
            "type": "object",
            "properties": {
                "rationale": { "type": "string" },
                "score": { "type": "integer", "enum": [1, 2, 3, 4, 5] },
            },
            "required": ["rationale", "score"],
            "additionalProperties": false,
        }),
        score: Some(ScoreField { key: "score", values: vec![1, 2, 3, 4, 5] }),
    };
    let validator = AnswerValidator::new(&form).expect("the schema is one");
    if let Ok(value) = validator.read(text) {
        assert!((1..=5).contains(&value["score"].as_u64().expect("a whole number")));
        assert_eq!(validator.read(&value.to_string()).as_ref(), Ok(&value));
    }
}

/// As a segment of the journal: the start is not refused, whatever is found can be asked for, and
/// the next start finds the same. An odd first byte says that the rest stands in the file as it is;
/// an even one that it is kinds, names, lengths and payloads of frames whose checksums are right.
pub fn journal(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let segment = if first % 2 == 1 { rest.to_vec() } else { framed(rest) };
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("0000000000000001.log"), segment).expect("a file");
    let (found, again) = (start(folder.path()), start(folder.path()));
    assert_eq!((&found.open, &found.verdicts), (&again.open, &again.verdicts));
    assert_eq!((&found.passes, &found.closed), (&again.passes, &again.closed));
}

fn start(folder: &Path) -> Recovered {
    let storage = Storage { max_bytes: Size(1 << 30), ..Storage::default() };
    let opened = Journal::open(folder, &storage, 100, &Telemetry::new().journal);
    let (journal, recovered) = opened.expect("damage keeps nobody from starting");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let records = recovered.open.keys().chain(recovered.verdicts.keys()).chain(recovered.passes.keys());
        for &seq in records {
            assert!(journal.read(seq).await.is_some(), "{seq} was found and cannot be read");
        }
        journal.close().await;
    });
    recovered
}

/// A segment in the layout of the journal.
fn framed(mut rest: &[u8]) -> Vec<u8> {
    const MARKER: &[u8; 4] = b"mark";
    let mut out = b"otvjrnl\n\x02\0\0\0".to_vec();
    out.extend_from_slice(MARKER);
    out.extend_from_slice(&crc32fast::hash(&out).to_le_bytes());
    while let Some((&[kind, seq, len], behind)) = rest.split_first_chunk::<3>() {
        let (payload, behind) = behind.split_at(behind.len().min(usize::from(len)));
        out.extend_from_slice(MARKER);
        let from = out.len();
        out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        out.push(kind);
        out.extend_from_slice(&u64::from(seq).to_le_bytes());
        out.extend_from_slice(&crc32fast::hash(payload).to_le_bytes());
        let check = crc32fast::hash(&out[from..]);
        out.extend_from_slice(&check.to_le_bytes());
        out.extend_from_slice(payload);
        rest = behind;
    }
    out
}
