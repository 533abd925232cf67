//! Recorded runs with cut off or hidden attributes, on which no rule reports new defects, and none passes content that
//! it could not read.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use prost::Message;

use crate::measure::defects::Defect;
use crate::measure::{Finding, Settings, Unmeasured, catalog};
use crate::recognise::recorded_cases::{RecordedCase, case_folders, read_case, read_edited_case};

/// A function that edits the text of an attribute, by its key.
type Edit<'e> = &'e dyn Fn(&str, &mut String);

fn edit_any(key: &str, value: &mut AnyValue, edit: Edit<'_>) {
    match value.value.as_mut() {
        Some(Value::StringValue(text)) => edit(key, text),
        Some(Value::ArrayValue(list)) => {
            list.values.iter_mut().for_each(|item| edit_any(key, item, edit));
        }
        _ => {}
    }
}

fn edit_attributes(attributes: &mut [KeyValue], edit: Edit<'_>) {
    for pair in attributes {
        pair.value.iter_mut().for_each(|value| edit_any(&pair.key, value, edit));
    }
}

fn edited(folder: &std::path::Path, edit: Edit<'_>) -> RecordedCase {
    let edit_request = |body: Vec<u8>| {
        let mut request = ExportTraceServiceRequest::decode(&*body).unwrap();
        let scopes = request.resource_spans.iter_mut().flat_map(|resource| &mut resource.scope_spans);
        for span in scopes.flat_map(|scope| &mut scope.spans) {
            edit_attributes(&mut span.attributes, edit);
            span.events.iter_mut().for_each(|event| edit_attributes(&mut event.attributes, edit));
        }
        request.encode_to_vec()
    };
    let edit_record = |record: Bytes| {
        let mut record = LogRecord::decode(record).unwrap();
        edit_attributes(&mut record.attributes, edit);
        Bytes::from(record.encode_to_vec())
    };
    read_edited_case(folder, &edit_request, &edit_record)
}

/// The result of each metric on each span: passed, failed, or the unmeasured reason. A missing call that is noted,
/// since its agent falsely claims to have made it, counts as failed: where the claim is cut off, the call itself fails.
fn results(run: &RecordedCase) -> BTreeMap<(String, &'static str), Result<bool, Unmeasured>> {
    let mut out = BTreeMap::new();
    for trace in &run.traces {
        for m in catalog::run(trace, &Settings::default()) {
            let key = (trace.tree.spans[m.at].id.to_string(), m.metric);
            let is_claimed = |finding: &Finding| {
                let is_missing = [Some(Defect::StepSkipped), Some(Defect::PlannedCallMissing)];
                finding.is_note() && is_missing.contains(&finding.defect)
            };
            let result =
                m.outcome.map(|measured| measured.passed && !measured.findings.iter().any(is_claimed));
            out.insert(key, result);
        }
    }
    out
}

/// The content of each span: its output, its input, the answer of its agent, and the result of its call, which may come
/// from a prompt.
fn contents(run: &RecordedCase) -> BTreeMap<String, [String; 4]> {
    let mut out: BTreeMap<String, [String; 4]> = BTreeMap::new();
    for trace in &run.traces {
        let id = |span_index: usize| trace.tree.spans[span_index].id.to_string();
        for (span_index, view) in trace.views.iter().enumerate() {
            let [output, input] = [&view.output, &view.input].map(|messages| format!("{messages:?}"));
            out.insert(id(span_index), [output, input, String::new(), String::new()]);
        }
        for agent in &trace.agents {
            out.entry(id(agent.at)).or_default()[2] = format!("{:?}", agent.answer);
        }
        for (call, tool) in trace.calls.iter().filter_map(|call| Some((call, call.tool?))) {
            out.entry(id(tool)).or_default()[3] = format!("{:?}", call.result);
        }
    }
    out
}

/// The metrics that must not pass if the output, the input, the answer or the result was changed.
const DEPENDENT_METRICS: [&[&str]; 4] = [
    &["avoidance", "instruction_following", "reasoning_integrity", "error_detection"],
    &["instruction_following"],
    &["completeness"],
    &["tool_completeness", "error_detection"],
];

/// Compares a run with its edited copy; returns the number of measurements that became unmeasured.
fn compare(name: &str, whole: &RecordedCase, partial: &RecordedCase, wrong: &mut BTreeSet<String>) -> usize {
    let (before, after) = (results(whole), results(partial));
    let (old_contents, new_contents) = (contents(whole), contents(partial));
    for ((span, metric), result) in &after {
        let previous = before.get(&(span.clone(), *metric));
        if *result == Ok(false) && previous != Some(&Ok(false)) {
            wrong.insert(format!("{name}: {metric} on {span} fails, and was {previous:?}"));
        }
        let changed = old_contents[span]
            .iter()
            .zip(&new_contents[span])
            .zip(DEPENDENT_METRICS)
            .filter(|((old, new), _)| old != new);
        if *result == Ok(true) && changed.into_iter().any(|(_, metrics)| metrics.contains(metric)) {
            wrong.insert(format!(
                "{name}: {metric} on {span} passes: {:?}, was {:?}",
                new_contents[span], old_contents[span]
            ));
        }
    }
    before.iter().filter(|(key, result)| result.is_ok() && after.get(key).is_none_or(Result::is_err)).count()
}

#[test]
fn cut_content_leads_to_no_new_failure_and_no_pass() {
    let (mut wrong, mut lost, mut reasons) = (BTreeSet::new(), 0, 0);
    for folder in case_folders() {
        let whole = read_case(&folder);
        for limit in [256, 1024, 4096] {
            let cut = edited(&folder, &|_, text| text.truncate(text.floor_char_boundary(limit)));
            lost += compare(&format!("{} at {limit}", whole.name), &whole, &cut, &mut wrong);
            reasons += results(&cut).values().filter(|r| **r == Err(Unmeasured::Truncated)).count();
        }
    }
    println!("{lost} measurements lost, {reasons} unmeasured as truncated");
    assert!(wrong.is_empty(), "\n{}", wrong.into_iter().collect::<Vec<_>>().join("\n"));
    assert!(lost > 0 && reasons > 0);
}

/// Whether an attribute contains content, by its key.
fn is_content(key: &str) -> bool {
    const CONTENT: [&str; 9] =
        ["message", "content", "input", "output", "prompt", "completion", "arguments", "result", "response"];
    const METADATA: [&str; 9] =
        ["role", "name", "id", "model", "type", "tokens", "reason", "reasons", "kind"];
    let last = key.rsplit(['.', '_']).next().unwrap_or(key);
    CONTENT.iter().any(|word| key.contains(word)) && !METADATA.contains(&last)
}

#[test]
fn hidden_content_leads_to_no_new_failure_and_no_pass() {
    let (mut wrong, mut lost, mut reasons) = (BTreeSet::new(), 0, 0);
    let hash = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    for folder in case_folders() {
        let whole = read_case(&folder);
        for marker in ["[REDACTED]", "****", hash] {
            let hide = |key: &str, text: &mut String| {
                if is_content(key) && !text.is_empty() {
                    *text = marker.to_owned();
                }
            };
            let hidden = edited(&folder, &hide);
            lost += compare(&format!("{} with {marker}", whole.name), &whole, &hidden, &mut wrong);
            reasons += results(&hidden).values().filter(|r| **r == Err(Unmeasured::Hidden)).count();
        }
    }
    println!("{lost} measurements lost, {reasons} unmeasured as hidden");
    assert!(wrong.is_empty(), "\n{}", wrong.into_iter().collect::<Vec<_>>().join("\n"));
    assert!(lost > 0 && reasons > 0);
}
