//! `eval` while it reads: the verdicts of `--whole` on every shipped recording, in every format and from a pipe.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use serde_json::Value;
use verdict_otlp::Signal;

use crate::binary::{otel_verdict, run, stderr};

/// The lines, sorted: traces are printed in the order in which they close.
fn sorted(output: &Output) -> Vec<String> {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    let mut lines: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn run_with_input(args: &[&str], input: &[u8]) -> Output {
    let mut child = otel_verdict()
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input).unwrap());
        child.wait_with_output().unwrap()
    })
}

/// Folders and files with recordings.
fn recordings() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all: Vec<PathBuf> = Vec::new();
    for folder in ["demo", "tests/data/frameworks"] {
        let entries = std::fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path());
        all.extend(entries.filter(|path| path.is_dir()));
    }
    all.extend(["tests/data/shop.json", "config/tasks/rover-run.json"].map(|file| root.join(file)));
    all.sort();
    all.into_iter().map(|path| path.display().to_string()).collect()
}

/// Every protobuf request of the shipped recordings, as lines of JSON.
fn json_lines() -> Vec<String> {
    let mut lines = Vec::new();
    for folder in recordings().iter().map(Path::new).filter(|path| path.is_dir()) {
        let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
        files.sort();
        for file in files.iter().filter(|file| file.extension().is_some_and(|e| e == "pb")) {
            let is_logs = file.file_name().unwrap().to_str().unwrap().starts_with("logs");
            let signal = if is_logs { Signal::Logs } else { Signal::Traces };
            let line = verdict_otlp::json::encode(signal, &std::fs::read(file).unwrap()).unwrap();
            lines.push(String::from_utf8(line).unwrap());
        }
    }
    assert!(lines.len() > 12);
    lines
}

#[test]
fn every_shipped_recording_has_the_verdicts_of_the_whole() {
    let all = recordings();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let each = all.chunks(1).map(|path| (path, "json"));
    for (paths, output) in each.chain([(&all[..], "json"), (&all[..], "otlp")]) {
        let evaluate = |more_arguments: &[&str]| {
            sorted(&run(&[&["eval", "--output", output], more_arguments, paths].concat()))
        };
        let whole = evaluate(&["--whole"]);
        assert!(!whole.is_empty());
        assert_eq!(evaluate(&[]), whole, "{paths:?} as {output}");
    }
}

/// The lines without the close reason.
fn without_close_reasons(lines: Vec<String>) -> Vec<String> {
    let without = |line: &String| {
        let mut trace: Value = serde_json::from_str(line).unwrap();
        trace.as_object_mut().unwrap().remove("close_reason").unwrap();
        trace.to_string()
    };
    lines.iter().map(without).collect()
}

#[test]
fn text_compressed_and_piped_recordings_have_the_verdicts_of_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let lines = json_lines();
    let text = lines.join("\n") + "\n";
    let pretty: String = lines
        .iter()
        .map(|line| serde_json::to_string_pretty(&serde_json::from_str::<Value>(line).unwrap()).unwrap())
        .collect();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(text.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    let zstd = zstd::encode_all(text.as_bytes(), 1).unwrap();
    let files: [(&str, &[u8]); 4] =
        [("a.jsonl", text.as_bytes()), ("b.json", pretty.as_bytes()), ("c.gz", &gzip), ("d.zst", &zstd)];
    let mut expected = None;
    for (name, content) in files {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        let path = path.to_str().unwrap();
        let whole = sorted(&run(&["eval", path, "--output", "json", "--whole"]));
        assert_eq!(sorted(&run(&["eval", path, "--output", "json"])), whole, "{name}");
        assert_eq!(expected.get_or_insert(whole.clone()), &whole, "{name}");
        let by_time = sorted(&run_with_input(&["eval", "-", "--output", "json"], content));
        assert_eq!(without_close_reasons(by_time), without_close_reasons(whole), "{name}, piped");
    }
}

/// A span of a tool call, in a request on a line.
fn line(trace: u32, span: u32, second: u64, failed: bool) -> String {
    let parent = if span == 1 { "" } else { "0000000000000001" };
    let status = if failed { r#","status":{"code":2,"message":"failed"}"# } else { "" };
    format!(
        r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{{"traceId":"{trace:032x}","spanId":"{span:016x}","parentSpanId":"{parent}","name":"execute_tool search","startTimeUnixNano":"{}","endTimeUnixNano":"{}","attributes":[{{"key":"gen_ai.operation.name","value":{{"stringValue":"execute_tool"}}}},{{"key":"gen_ai.tool.name","value":{{"stringValue":"search"}}}}]{status}}}]}}]}}]}}"#,
        second * 1_000_000_000 - 500_000_000,
        second * 1_000_000_000,
    ) + "\n"
}

#[test]
fn late_spans_from_a_pipe_revise_the_verdict_and_count_once() {
    // Trace 1 is complete, time passes, and a failed span of it follows.
    let mut input: String =
        (1..20).map(|trace| line(trace, 1, 1_000 + u64::from(trace) * 30, false)).collect();
    input += &line(1, 2, 5_000, true);
    let input = input.as_bytes();
    let json = run_with_input(&["eval", "-", "--output", "json"], input);
    let evaluations: Vec<Value> = String::from_utf8_lossy(&json.stdout)
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|trace| trace["trace_id"] == "00000000000000000000000000000001")
        .collect();
    let facts: Vec<_> = evaluations
        .iter()
        .map(|trace| [&trace["close_reason"], &trace["result"], &trace["revision"]].map(Value::to_string))
        .collect();
    assert_eq!(facts, [["\"complete\"", "\"unmeasured\"", "null"], ["\"late\"", "\"fail\"", "2"]]);
    assert!(stderr(&json).contains("19 traces: 0 pass, 1 fail, 18 unmeasured"), "{}", stderr(&json));
    let run_on_input = |args: &[&str]| run_with_input(&[&["eval", "-"], args].concat(), input);
    assert_eq!(run_on_input(&["--fail-on", "fail"]).status.code(), Some(1));
    let junit = String::from_utf8_lossy(&run_on_input(&["--output", "junit"]).stdout).into_owned();
    assert!(junit.contains(r#"tests="19" failures="1""#), "{junit}");
    assert_eq!(junit.matches("<testcase").count(), 19, "{junit}");
    let markdown = String::from_utf8_lossy(&run_on_input(&["--output", "markdown"]).stdout).into_owned();
    assert_eq!(markdown.matches("| `00").count(), 1, "{markdown}");
    let html = String::from_utf8_lossy(&run_on_input(&["--output", "html"]).stdout).into_owned();
    assert_eq!(html.matches("id=\"trace-00000000000000000000000000000001\"").count(), 1);
    // A file is read twice: the trace is whole.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recording.jsonl");
    std::fs::write(&path, input).unwrap();
    let evaluate = |more_arguments: &[&str]| {
        sorted(&run(&[&["eval", path.to_str().unwrap(), "--output", "json"], more_arguments].concat()))
    };
    assert_eq!(evaluate(&[]), evaluate(&["--whole"]));
    assert_eq!(evaluate(&[]).len(), 19);
}

#[test]
fn a_broken_end_is_an_error_after_the_verdicts_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("broken.jsonl");
    std::fs::write(&path, line(1, 1, 10, false) + &line(2, 1, 40, false) + "nonsense\n").unwrap();
    let output = run(&["eval", path.to_str().unwrap(), "--output", "json"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("broken.jsonl: line 3: not a JSON object"), "{}", stderr(&output));
}
