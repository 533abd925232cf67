//! Whole scenes: recorded runs of real frameworks, and spans written for one rule each.

mod recorded;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde_json::Value;

use super::*;
use crate::trace::{SpanId, TraceId};
use crate::wire::Payload;
use crate::wire::request::{Interner, split};

/// One recorded run: its traces as scenes, and what is known of it.
struct Case {
    name: String,
    truth: Value,
    scenes: Vec<Scene>,
}

impl Case {
    fn truth(&self, key: &str) -> &Value {
        &self.truth[key]
    }

    fn readings(&self) -> impl Iterator<Item = &Reading> {
        self.scenes.iter().flat_map(|s| &s.readings)
    }

    fn count(&self, kind: Kind) -> usize {
        self.readings().filter(|r| r.kind == kind && !r.wrapper).count()
    }

    fn agents(&self) -> impl Iterator<Item = (&Scene, &Agent)> {
        self.scenes.iter().flat_map(|s| s.agents.iter().map(move |a| (s, a)))
    }

    fn calls(&self) -> impl Iterator<Item = &Call> {
        self.scenes.iter().flat_map(|s| &s.calls)
    }

    fn outline(&self) -> String {
        self.scenes.iter().map(Scene::outline).collect()
    }
}

fn recogniser() -> Recogniser {
    Recogniser::new(&Overrides::default()).expect("the built-in conventions compile")
}

fn read_case(folder: &Path) -> Case {
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    let envelopes = Interner::default();
    let mut traces: BTreeMap<TraceId, Vec<crate::trace::Span>> = BTreeMap::new();
    let mut logs = Vec::new();
    for file in files.iter().filter(|f| f.extension().is_some_and(|e| e == "pb")) {
        let body = fs::read(file).unwrap();
        if file.file_name().is_some_and(|n| n.to_string_lossy().starts_with("logs-")) {
            logs.extend(records(&body));
        } else {
            for group in split(&body, "verdict.", &envelopes).unwrap().groups {
                traces.entry(group.trace).or_default().extend(group.spans);
            }
        }
    }
    let recogniser = recogniser();
    let scenes =
        traces.into_iter().map(|(id, spans)| recogniser.scene(Tree::new(id, spans), &logs, false)).collect();
    Case {
        name: folder.file_name().unwrap().to_string_lossy().into_owned(),
        truth: serde_json::from_slice(&fs::read(folder.join("truth.json")).unwrap()).unwrap(),
        scenes,
    }
}

/// The log records of an encoded logs request.
fn records(body: &[u8]) -> Vec<Attached> {
    fn inner(message: &[u8], number: u32) -> impl Iterator<Item = &[u8]> {
        crate::wire::Fields::new(message).map_while(Result::ok).filter_map(move |f| match f.payload {
            Payload::Bytes(b) if f.number == number => Some(b),
            _ => None,
        })
    }
    let scopes = inner(body, 1).flat_map(|r| inner(r, 2));
    scopes
        .flat_map(|s| inner(s, 2))
        .filter_map(|record| {
            let span = SpanId(inner(record, 10).next()?.try_into().ok()?);
            Some(Attached { span, record: Bytes::copy_from_slice(record) })
        })
        .collect()
}
