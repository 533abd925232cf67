//! The shipped example that runs code: without Docker nothing is measured, and with it each program gets a container
//! without network. Docker is replaced by a script that records its arguments.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::evaluators::Example;
use crate::model;

const RUNNER: &str = "examples/code_runner/runner.py";

/// A script named `docker` that writes its arguments to a file, and fails programs that raise.
fn fake_docker(folder: &Path) -> String {
    let script = format!(
        "#!/bin/sh\necho \"$*\" >> '{}/calls'\n[ \"$1\" = run ] || exit 0\ncode=$(cat)\n\
         case \"$code\" in\n*raise*) echo 'ValueError: no'; exit 1;;\n*sleep*) exec sleep 60;;\nesac\necho 836\n",
        folder.display()
    );
    let file = folder.join("docker");
    std::fs::write(&file, script).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:/usr/bin:/bin", folder.display())
}

/// A recording of an agent that was asked for code and answered with it.
fn recording(folder: &Path, code: &str) -> PathBuf {
    let message = |role: &str, text: &str| {
        json!([{ "role": role, "parts": [{ "type": "text", "content": text }] }]).to_string()
    };
    let task = message("user", "Write a program that prints the difference of 5642 and 4806.");
    let answer = message("assistant", &format!("Here it is.\n```python\n{code}\n```\n"));
    let attribute = |key: &str, value: &str| json!({ "key": key, "value": { "stringValue": value } });
    let span = |id: &str, parent: &str, name: &str, operation: &str| {
        json!({
            "traceId": "5b8efff798038103d269b633813fc60c", "spanId": id, "parentSpanId": parent, "name": name,
            "startTimeUnixNano": "1000000000", "endTimeUnixNano": "2000000000",
            "attributes": [
                attribute("gen_ai.operation.name", operation), attribute("gen_ai.agent.name", "coder"),
                attribute("gen_ai.input.messages", &task), attribute("gen_ai.output.messages", &answer),
            ],
        })
    };
    let spans = [
        span("00f067aa0ba902b7", "", "invoke_agent coder", "invoke_agent"),
        span("00f067aa0ba902b8", "00f067aa0ba902b7", "chat m", "chat"),
    ];
    let body = json!({ "resourceSpans": [{ "scopeSpans": [{ "spans": spans }] }] });
    let file = folder.join("trace.json");
    std::fs::write(&file, body.to_string()).unwrap();
    file
}

/// A judge that requests the run of a program before it answers, and answers yes if the output contains `expected`.
fn judge(expected: &'static str) -> String {
    model::serve(move |form, prompt| match form {
        "perceive" => {
            json!({ "thought": "t", "class": "coding", "passages": [], "final_answer": "yes", "sufficient": "yes" })
        }
        _ if prompt.contains("your tool: run_code") => {
            let answer = if prompt.contains(expected) { "yes" } else { "unclear" };
            json!({ "reason": "as it printed", "tool": "none", "input": "", "answer": answer })
        }
        _ => json!({ "reason": "", "tool": "run_code", "input": "print(5642 - 4806)", "answer": "unclear" }),
    })
}

/// The measurements of an agent that wrote `code`, with a runner that finds programs in `path`.
fn measure(folder: &Path, runner: &Example, code: &str, expected: &'static str) -> Vec<Value> {
    let config = json!({
        "judges": {
            "main": { "endpoint": judge(expected), "model": "m" },
            "runner": { "endpoint": runner.1, "dialect": "evaluator", "model": "code-runner/1", "timeout": "60s" },
        },
        "verdict": {
            "metrics": { "judges": ["rules"], "checklist": { "judges": ["main"], "run_code": "runner",
                "fixed": [{ "items": [{ "question": "Does the program print the difference?" }] }] } },
            "evaluators": { "answer.code_runs": { "judges": ["runner"], "subject": "agent",
                "labels": ["runs", "fails"], "fail_labels": ["fails"] } },
        },
    });
    let path = folder.join("config.yaml");
    std::fs::write(&path, config.to_string()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_otel-verdict"));
    let output = command.args(["eval", "--output", "json", "-c"]).args([&path, &recording(folder, code)]);
    let output = output.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let trace: Value = serde_json::from_slice(&output.stdout).unwrap();
    let spans = trace["spans"].as_array().unwrap().clone();
    spans.iter().flat_map(|span| span["measurements"].as_array().unwrap().clone()).collect()
}

fn measurement<'a>(measured: &'a [Value], metric: &str) -> &'a Value {
    measured.iter().find(|m| m["metric"] == metric).unwrap_or_else(|| panic!("{metric}: {measured:#?}"))
}

#[test]
fn without_docker_nothing_is_run_and_nothing_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let Some(runner) = Example::spawn(RUNNER, &[], Some(&empty.display().to_string())) else { return };
    let all = measure(folder.path(), &runner, "print(836)", "836\n");
    let code = measurement(&all, "answer.code_runs");
    assert_eq!(
        (&code["result"], &code["reason"]),
        (&json!("unmeasured"), &json!("not_applicable")),
        "{code:#}"
    );
    // The judge knows that its program was not run, and cannot decide.
    let checklist = measurement(&all, "checklist.verdict");
    assert_eq!(checklist["result"], "unmeasured", "{checklist:#}");
    let message = "error: it was not run: Docker is not installed where the runner is.";
    assert_eq!(
        measurement(&measure(folder.path(), &runner, "print(836)", message), "checklist.verdict")["label"],
        "yes"
    );
}

#[test]
fn programs_run_in_a_container_without_network() {
    let folder = tempfile::tempdir().unwrap();
    let path = fake_docker(folder.path());
    let Some(runner) = Example::spawn(RUNNER, &["--image", "python:test", "--seconds", "5"], Some(&path))
    else {
        return;
    };
    let all = measure(folder.path(), &runner, "print(5642 - 4806)", "\n836\n");
    assert_eq!(measurement(&all, "answer.code_runs")["label"], "runs");
    let checklist = measurement(&all, "checklist.verdict");
    assert_eq!(checklist["label"], "yes", "{checklist:#}");
    assert!(
        checklist["details"]["checklist.items"].as_str().unwrap().contains("\"run_code\""),
        "{checklist:#}"
    );
    let calls = std::fs::read_to_string(folder.path().join("calls")).unwrap();
    assert_eq!(calls.lines().count(), 2, "one container each: {calls}");
    for call in calls.lines() {
        let (before, after) = call.split_once(" --name verdict-run-").unwrap();
        assert_eq!(before, "run --rm --interactive");
        let (name, options) = after.split_once(' ').unwrap();
        assert!(name.len() == 16 && name.chars().all(|c| c.is_ascii_hexdigit()), "{name}");
        let expected = "--pull never --network none --read-only --tmpfs /tmp:rw,noexec,size=16m --memory 256m \
                        --memory-swap 256m --cpus 1 --pids-limit 64 --cap-drop ALL --security-opt no-new-privileges \
                        --user 65534:65534 python:test python3 -I -";
        assert_eq!(options, expected);
    }
    // An error is a finding at the model call that wrote the code.
    let all = measure(folder.path(), &runner, "raise ValueError('no')", "never");
    let code = measurement(&all, "answer.code_runs");
    assert_eq!((&code["label"], &code["result"]), (&json!("fails"), &json!("fail")), "{code:#}");
    assert!(code["findings"][0]["rationale"].as_str().unwrap().contains("ValueError: no"), "{code:#}");
    // A program that does not end is stopped together with its container.
    let all = measure(folder.path(), &runner, "sleep()", "never");
    assert_eq!(measurement(&all, "answer.code_runs")["label"], "fails");
    let calls = std::fs::read_to_string(folder.path().join("calls")).unwrap();
    assert!(calls.lines().any(|call| call.starts_with("kill verdict-run-")), "{calls}");
}
