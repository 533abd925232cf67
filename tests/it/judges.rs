//! Judges that fail, as the commands show them: the report, its JSON, the exit code; waiting, resuming, dry runs.

use std::path::PathBuf;
use std::process::Output;

use serde_json::{Value, json};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use crate::binary::{run, text};

const METRICS: &str = "verdict: { metrics: { judges: [rules], instruction_following: { judges: [main] }, completeness: { judges: [rules, main] } } }";

/// A recorded run of an agent with two model calls.
fn recording() -> String {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("demo/strands-c").display().to_string()
}

/// A folder with a configuration for a judge at `endpoint`.
struct Setup {
    folder: tempfile::TempDir,
    config: String,
}

impl Setup {
    fn new(endpoint: &str, more_settings: &str) -> Setup {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("judges.yaml");
        let judge = format!(
            "judges: {{ main: {{ endpoint: '{endpoint}/v1', model: m, retries: 0{more_settings} }} }}"
        );
        std::fs::write(&config, format!("{METRICS}\n{judge}\n")).unwrap();
        Setup { config: config.display().to_string(), folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn eval(&self, more_arguments: &[&str]) -> Output {
        let recording = recording();
        run(&[&["eval", &recording, "-c", &self.config, "--output", "json"], more_arguments].concat())
    }
}

/// A judge that passes everything.
struct Approves;

impl Respond for Approves {
    fn respond(&self, _: &Request) -> ResponseTemplate {
        let content = json!({ "rationale": "fine", "score": 5, "findings": [] }).to_string();
        let message = json!({ "role": "assistant", "content": content });
        ResponseTemplate::new(200).set_body_json(json!({
            "choices": [{ "message": message, "finish_reason": "stop" }],
            "usage": { "prompt_tokens": 1000, "completion_tokens": 10 },
        }))
    }
}

/// A judge that fails everything, with a quote that is not in the trace.
struct Unfounded;

impl Respond for Unfounded {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let request_json: Value = serde_json::from_slice(&request.body).unwrap();
        let schema =
            &request_json["response_format"]["json_schema"]["schema"]["properties"]["findings"]["items"];
        let span = schema["properties"]["span_id"]["enum"][0].clone();
        let category = schema["properties"]["category"]["enum"][0].clone();
        let finding = json!({ "problem": "p", "span_id": span, "quote": "never written anywhere",
            "category": category, "severity": "high" });
        let content = json!({ "rationale": "bad", "score": 1, "findings": [finding] }).to_string();
        let message = json!({ "role": "assistant", "content": content });
        let body = json!({ "choices": [{ "message": message, "finish_reason": "stop" }] });
        ResponseTemplate::new(200).set_body_json(body)
    }
}

async fn server(respond: impl Respond + 'static) -> MockServer {
    let server = MockServer::start().await;
    Mock::given(any()).respond_with(respond).mount(&server).await;
    server
}

async fn requests(server: &MockServer) -> usize {
    server.received_requests().await.unwrap().len()
}

#[tokio::test]
async fn a_judge_that_answers_is_reported_and_nothing_fails() {
    let server = server(Approves).await;
    let setup = Setup::new(&server.uri(), ", price: { input: 1, output: 10 }");
    let report = setup.path("report.json");
    let output = setup.eval(&["--require-judged", "1", "--judge-report", &report]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let judge_requests = requests(&server).await;
    assert!(
        judge_requests >= 2
            && stderr.contains(&format!("main (m): {judge_requests} asked, {judge_requests} answered\n")),
        "{stderr}"
    );
    let report: Value = serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
    let judge = &report["judges"][0];
    assert_eq!((&judge["asked"], &judge["failed"]), (&json!(judge_requests), &json!({})), "{report}");
    assert_eq!(
        (&report["judged_share"], &judge["tokens"]["input"]),
        (&json!(1.0), &json!(1000 * judge_requests))
    );
    let usd = judge["cost_usd"].as_f64().unwrap();
    assert!((usd - judge_requests as f64 * 0.0011).abs() < 1e-9, "{report}");
    assert_eq!(
        report["metrics"]["instruction_following"]["asked"],
        report["metrics"]["instruction_following"]["by_judge"]
    );
}

#[tokio::test]
async fn a_judge_that_refuses_or_quotes_nothing_is_visible_in_the_report_and_the_exit_code() {
    let key = "it refuses sk-abcdefghijklmnopqrstuvwx";
    let refusal = ResponseTemplate::new(401)
        .set_body_json(json!({ "error": { "message": key, "code": "invalid_api_key" } }));
    let refusing = server(refusal).await;
    let setup = Setup::new(&refusing.uri(), "");
    let output = setup.eval(&[]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    for part in
        ["failed (http_401", "message of the server: it refuses", "instruction_following", "judge_error"]
    {
        assert!(stderr.contains(part), "{part}\n{stderr}");
    }
    assert!(!stderr.contains("abcdefghijklmnop"), "{stderr}");
    let output = setup.eval(&["--require-judged", "0.95"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("error: judges measured 0.0 %"), "{}", text(&output.stderr));

    let unfounded = server(Unfounded).await;
    let output = Setup::new(&unfounded.uri(), "").eval(&["--require-judged", "0.95"]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("error: judges measured 0.0 %") && !stderr.contains("failed ("), "{stderr}");
}

#[tokio::test]
async fn an_interrupted_command_resumes_where_it_was() {
    let server = server(Approves).await;
    let setup = Setup::new(&server.uri(), "");
    let answers = setup.path("answers");
    let first = setup.eval(&["--resume", &answers]);
    let judge_requests = requests(&server).await;
    let second = setup.eval(&["--resume", &answers]);
    assert_eq!(requests(&server).await, judge_requests, "{}", text(&second.stderr));
    assert!(
        text(&second.stderr)
            .contains(&format!("{judge_requests} asked, 0 answered, {judge_requests} from cache"))
    );
    assert_eq!(text(&first.stdout), text(&second.stdout));
    let dry = setup.eval(&["--resume", &answers, "--dry-run"]);
    assert!(text(&dry.stdout).contains("main"), "{}", text(&dry.stdout));
}

#[tokio::test]
async fn a_dry_run_asks_nothing_and_counts_what_would_be_asked() {
    let server = server(Approves).await;
    let setup = Setup::new(&server.uri(), ", price: { input: 1, output: 10 }");
    let report = setup.path("plan.json");
    let output = setup.eval(&["--dry-run", "--judge-report", &report]);
    assert_eq!((output.status.code(), requests(&server).await), (Some(0), 0), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
    let planned = &report["judges"][0]["planned"];
    assert!(text(&output.stdout).contains(&planned["input_tokens"].to_string()), "{planned}");
    setup.eval(&[]);
    assert_eq!(json!(requests(&server).await), planned["questions"]);
}

#[tokio::test]
async fn a_judge_that_is_unavailable_is_waited_for() {
    struct UnavailableAtFirst(std::sync::atomic::AtomicUsize);
    impl Respond for UnavailableAtFirst {
        fn respond(&self, request: &Request) -> ResponseTemplate {
            match self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
                0..2 => ResponseTemplate::new(503),
                _ => Approves.respond(request),
            }
        }
    }
    let server = server(UnavailableAtFirst(std::sync::atomic::AtomicUsize::new(0))).await;
    let setup = Setup::new(&server.uri(), "");
    let impatient = setup.eval(&["--patience", "0s", "--require-judged", "1"]);
    assert_eq!(impatient.status.code(), Some(1), "{}", text(&impatient.stderr));
    let server = self::server(UnavailableAtFirst(std::sync::atomic::AtomicUsize::new(0))).await;
    let patient = Setup::new(&server.uri(), "").eval(&["--require-judged", "1"]);
    let stderr = text(&patient.stderr);
    assert_eq!(patient.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("does not respond") && stderr.contains("answers again"), "{stderr}");
}

#[tokio::test]
async fn judge_check_asks_each_judge_one_question() {
    let server = server(Approves).await;
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("c.yaml");
    let judges = format!(
        "judges:\n  good: {{ endpoint: '{}/v1', model: m, price: {{ input: 1 }} }}\n  bad: {{ endpoint: 'http://127.0.0.1:9/v1', model: m }}\n",
        server.uri()
    );
    std::fs::write(&config, judges).unwrap();
    let config = config.to_str().unwrap();
    let good = run(&["judge", "check", "good", "-c", config, "--output", "json"]);
    let checked: Value = serde_json::from_slice(&good.stdout).unwrap();
    assert_eq!(good.status.code(), Some(1), "its answer has one key too many: {checked}");
    let both = run(&["judge", "check", "-c", config]);
    assert_eq!(both.status.code(), Some(1));
    assert!(text(&both.stdout).contains("connection"), "{}", text(&both.stdout));
    assert!(text(&both.stderr).contains("no answer: bad, good"), "{}", text(&both.stderr));
}

#[tokio::test]
async fn judge_check_prints_what_the_server_accepts() {
    struct OldServer;
    impl Respond for OldServer {
        fn respond(&self, request: &Request) -> ResponseTemplate {
            let request_json: Value = serde_json::from_slice(&request.body).unwrap();
            if request_json["response_format"]["type"] == "json_schema" {
                let error = json!({ "error": { "message": "This response_format type is unavailable now" } });
                return ResponseTemplate::new(400).set_body_json(error);
            }
            let message = json!({ "role": "assistant", "content": r#"{"rationale":"r","score":5}"# });
            let usage = json!({ "prompt_tokens": 100, "completion_tokens": 10 });
            let body =
                json!({ "choices": [{ "message": message, "finish_reason": "stop" }], "usage": usage });
            ResponseTemplate::new(200).set_body_json(body)
        }
    }
    let server = server(OldServer).await;
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("c.yaml");
    let judges = format!(
        "judges: {{ main: {{ endpoint: '{}/v1', model: m, price: {{ input: 1, output: 10 }} }} }}\n",
        server.uri()
    );
    std::fs::write(&config, judges).unwrap();
    let config = config.to_str().unwrap();
    let output = run(&["judge", "check", "-c", config, "--output", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let checked: Value = serde_json::from_slice(&output.stdout).unwrap();
    let one = &checked[0];
    assert_eq!(
        (&one["ok"], &one["schema"], &one["logprobs"]),
        (&json!(true), &json!("JSON object"), &json!(false))
    );
    assert!((one["cost_usd"].as_f64().unwrap() - 0.0002).abs() < 1e-12, "{one}");
    assert_eq!(requests(&server).await, 2);
    let table = run(&["judge", "check", "-c", config]);
    assert!(text(&table.stdout).contains("request adapted to the server: the schema in the prompt"));
}

/// A judge that passes everything, with a confidence of 90 % as model `sure` and of 40 % as any other model.
struct WithConfidence;

impl Respond for WithConfidence {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let request_json: Value = serde_json::from_slice(&request.body).unwrap();
        let fields = &request_json["response_format"]["json_schema"]["schema"]["properties"];
        if !fields["judge_confidence"].is_object() {
            return Approves.respond(request);
        }
        let percent = if request_json["model"] == "sure" { 90 } else { 40 };
        let content = json!({ "rationale": "fine", "score": 5, "findings": [], "judge_confidence": percent });
        let message = json!({ "role": "assistant", "content": content.to_string() });
        let usage = json!({ "prompt_tokens": 1000, "completion_tokens": 10 });
        ResponseTemplate::new(200).set_body_json(
            json!({ "choices": [{ "message": message, "finish_reason": "stop" }], "usage": usage }),
        )
    }
}

#[tokio::test]
async fn a_cascade_is_used_like_a_judge_and_its_savings_are_reported() {
    let (small, strong) = (server(WithConfidence).await, server(Approves).await);
    let folder = tempfile::tempdir().unwrap();
    let write_config = |model: &str| {
        let path = folder.path().join(format!("{model}.yaml"));
        let config = json!({
            "judges": {
                "small": { "endpoint": format!("{}/v1", small.uri()), "model": model },
                "strong": { "endpoint": format!("{}/v1", strong.uri()), "model": "strong",
                            "price": { "input": 10, "output": 10 } },
            },
            "judging": { "cascades": { "careful": { "first": "small", "then": "strong", "stakes": ["trace"], "disagreement": false } } },
            "verdict": { "metrics": {
                "judges": ["rules"], "instruction_following": { "judges": ["careful"] }, "outcome": { "enabled": false },
            } },
        });
        std::fs::write(&path, config.to_string()).unwrap();
        path.display().to_string()
    };
    let report = folder.path().join("report.json").display().to_string();
    let eval = |model: &str| {
        let args =
            ["eval", &recording(), "-c", &write_config(model), "--output", "json", "--judge-report", &report];
        let output = run(&args);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let counted: Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
        (text(&output.stdout), text(&output.stderr), counted["cascades"][0].clone())
    };
    let (verdicts, stderr, counted) = eval("sure");
    let judge_requests = requests(&small).await;
    assert!(judge_requests >= 2 && requests(&strong).await == 0, "{stderr}");
    assert!(verdicts.contains("\"sure/"), "the judge that answered: {verdicts}");
    assert_eq!(counted["questions"], json!({ "kept": judge_requests }));
    assert!(counted["avoided"]["cost_usd"].as_f64().unwrap() > 0.004 * judge_requests as f64, "{counted}");
    assert!(
        stderr.contains(&format!(
            "careful (small, then strong): {judge_requests} questions, {judge_requests} without strong"
        )),
        "{stderr}"
    );

    let (verdicts, stderr, counted) = eval("unsure");
    assert_eq!(requests(&strong).await, judge_requests, "{stderr}");
    assert!(verdicts.contains("\"strong/"), "{verdicts}");
    assert_eq!((&counted["compared"], &counted["agreed"]), (&json!(judge_requests), &json!(judge_requests)));
    assert_eq!(counted["questions"], json!({ "unsure": judge_requests }));

    let dry = run(&["eval", &recording(), "-c", &write_config("sure"), "--dry-run"]);
    let plan = text(&dry.stdout);
    let planned = |judge: &str| -> Vec<String> {
        let line = plan.lines().find(|line| line.starts_with(judge)).unwrap_or_else(|| panic!("{plan}"));
        line.split_whitespace().map(str::to_owned).collect()
    };
    assert!(plan.contains("second judge of a cascade"), "{plan}");
    assert_eq!(
        (&planned("small")[1], &planned("strong")[1]),
        (&judge_requests.to_string(), &"0".to_owned()),
        "{plan}"
    );
    assert!(planned("strong").last().unwrap().parse::<f64>().unwrap() > 0.0, "at most: {plan}");
    let checked = run(&["judge", "check", "careful", "-c", &write_config("sure"), "--output", "json"]);
    let checked: Value = serde_json::from_slice(&checked.stdout).unwrap();
    let names: Vec<&Value> = checked.as_array().unwrap().iter().map(|one| &one["judge"]).collect();
    assert_eq!(names, ["small", "strong"]);
}
