//! Recorded runs of real frameworks: those in `demo` and `tests/data/frameworks`, and more if
//! `OTEL_VERDICT_CASES` names a folder of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use bytes::Bytes;
use serde_json::Value;
use verdict_otlp::request::{Interner, split};
use verdict_otlp::trace::{AttachedLog, Span, SpanId, TraceId, Tree};
use verdict_otlp::{Fields, Payload};

use super::{AgentTrace, Overrides, Recogniser};

/// One recorded run.
pub(crate) struct RecordedCase {
    pub(crate) name: String,
    /// The known facts about the run (`truth.json`).
    pub(crate) truth: Value,
    pub(crate) traces: Vec<AgentTrace>,
}

/// The built-in conventions, compiled once.
pub(crate) fn recogniser() -> &'static Recogniser {
    static BUILT_IN: LazyLock<Recogniser> =
        LazyLock::new(|| Recogniser::new(&Overrides::default()).expect("the built-in conventions compile"));
    &BUILT_IN
}

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every run, sorted by path.
pub(crate) fn recorded_cases() -> Vec<RecordedCase> {
    case_folders().iter().map(|case| read_case(case)).collect()
}

/// The folders of the runs, sorted.
pub(crate) fn case_folders() -> Vec<PathBuf> {
    let mut folders = vec![root().join("demo"), root().join("tests/data/frameworks")];
    match std::env::var_os("OTEL_VERDICT_CASES") {
        Some(cases) => folders.push(PathBuf::from(cases).join("frameworks")),
        None => println!("OTEL_VERDICT_CASES is not set: only the runs of the repository are read"),
    }
    let mut cases: Vec<PathBuf> = folders.iter().filter(|f| f.is_dir()).flat_map(|f| files(f)).collect();
    cases.retain(|case| case.join("truth.json").is_file());
    cases.sort();
    cases
}

/// The run in `folder`.
pub(crate) fn read_case(folder: &Path) -> RecordedCase {
    read_edited_case(folder, &|body| body, &|record| record)
}

/// The run in `folder`, with edited trace requests and log records.
pub(crate) fn read_edited_case(
    folder: &Path,
    edit: &dyn Fn(Vec<u8>) -> Vec<u8>,
    edit_record: &dyn Fn(Bytes) -> Bytes,
) -> RecordedCase {
    let truth: Value = serde_json::from_slice(&fs::read(folder.join("truth.json")).unwrap()).unwrap();
    let envelopes = Interner::default();
    let mut traces: BTreeMap<TraceId, Vec<Span>> = BTreeMap::new();
    let mut logs = Vec::new();
    for file in files(folder).into_iter().filter(|f| f.extension().is_some_and(|e| e == "pb")) {
        let body = fs::read(&file).unwrap();
        if file.file_name().is_some_and(|n| n.to_string_lossy().starts_with("logs-")) {
            logs.extend(
                records(&body).into_iter().map(|log| AttachedLog { record: edit_record(log.record), ..log }),
            );
        } else {
            for group in split(&edit(body), "verdict.", &envelopes).unwrap().groups {
                traces.entry(group.trace).or_default().extend(group.spans);
            }
        }
    }
    let incomplete = truth["scenario"] == "killed";
    let recognise = |(id, spans)| recogniser().trace(Tree::new(id, spans), &logs, incomplete);
    let name = folder.file_name().unwrap().to_string_lossy().into_owned();
    RecordedCase { name, traces: traces.into_iter().map(recognise).collect(), truth }
}

/// The files of a folder, sorted.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// The log records of an encoded logs request.
pub(crate) fn records(body: &[u8]) -> Vec<AttachedLog> {
    fn inner(message: &[u8], number: u32) -> impl Iterator<Item = &[u8]> {
        Fields::new(message).map_while(Result::ok).filter_map(move |f| match f.payload {
            Payload::Bytes(b) if f.number == number => Some(b),
            _ => None,
        })
    }
    let scopes = inner(body, 1).flat_map(|resource| inner(resource, 2));
    scopes
        .flat_map(|scope| inner(scope, 2))
        .filter_map(|record| {
            let span = SpanId(inner(record, 10).next()?.try_into().ok()?);
            Some(AttachedLog { span, record: Bytes::copy_from_slice(record) })
        })
        .collect()
}
