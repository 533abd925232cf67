//! The papers' tables by one command: the shipped configurations with judges that answer by the annotations, or noise.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json as object};

use crate::model;
use crate::score::text;

/// Annotated errors by span: category and impact.
type Gold = BTreeMap<String, Vec<(String, String)>>;

/// Categories of model calls, and those that annotators mark at tool calls.
const MODEL_CATEGORIES: [&str; 5] = [
    "Language-only",
    "Goal Deviation",
    "Instruction Non-compliance",
    "Context Handling Failures",
    "Tool Output Misinterpretation",
];
const TOOL_CATEGORIES: [&str; 2] = ["Poor Information Retrieval", "Resource Not Found"];
/// The categories of the taxonomy.
const CATEGORIES: usize = 20;

/// A hash that is equal on every machine (FNV-1a).
fn hash(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// A hash from 0 to 1.
fn unit_hash(text: &str) -> f64 {
    (hash(text) >> 11) as f64 / (1u64 << 53) as f64
}

fn span(
    trace: &str,
    id: &str,
    parent: &str,
    times: [usize; 2],
    kind: &str,
    more_attributes: &[(&str, &str)],
) -> Value {
    let all = [("openinference.span.kind", kind)].into_iter().chain(more_attributes.iter().copied());
    let attributes: Vec<Value> =
        all.map(|(key, value)| object!({ "key": key, "value": { "stringValue": value } })).collect();
    let [start, end] =
        times.map(|second| format!("{}", 1_700_000_000_000_000_000 + second as u64 * 1_000_000_000));
    object!({
        "traceId": trace, "spanId": id, "parentSpanId": parent, "name": kind, "kind": 1, "attributes": attributes,
        "startTimeUnixNano": start, "endTimeUnixNano": end,
    })
}

/// Writes runs of one agent, each of `steps` model calls with a tool call, and annotations of a third of the calls.
fn write_runs(folder: &Path, runs: usize, steps: usize) -> Gold {
    let mut gold = Gold::new();
    for part in ["traces", "gold"] {
        std::fs::create_dir(folder.join(part)).unwrap();
    }
    for run in 0..runs {
        let trace = format!("{:032x}", run + 1);
        let id = |n: usize| format!("{:08x}{:08x}", run + 1, n + 1);
        let task = format!("Describe the items of shelf {run}.");
        let run_attributes = [("input.value", task.as_str()), ("output.value", "All items are described.")];
        let mut spans = vec![span(&trace, &id(0), "", [0, 4 * steps + 1], "AGENT", &run_attributes)];
        for step in 0..steps {
            let (model, tool) = (id(2 * step + 1), id(2 * step + 2));
            let output_text = format!("Step {step}: item {step} of shelf {run} comes next.");
            let arguments = format!(r#"{{"shelf":{run},"item":{step}}}"#);
            let found = format!("Shelf {run}, item {step}: a box of {} screws.", 7 * step + run);
            let model_attributes = [
                ("llm.input_messages.0.message.role", "user"),
                ("llm.input_messages.0.message.content", task.as_str()),
                ("llm.output_messages.0.message.role", "assistant"),
                ("llm.output_messages.0.message.content", output_text.as_str()),
                ("llm.output_messages.0.message.tool_calls.0.tool_call.function.name", "look"),
                (
                    "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments",
                    arguments.as_str(),
                ),
            ];
            let tool_attributes = [
                ("tool.name", "look"),
                ("input.value", arguments.as_str()),
                ("output.value", found.as_str()),
            ];
            let at = 4 * step + 1;
            spans.push(span(&trace, &model, &id(0), [at, at + 1], "LLM", &model_attributes));
            spans.push(span(&trace, &tool, &id(0), [at + 2, at + 3], "TOOL", &tool_attributes));
            for (id, categories) in [(model, &MODEL_CATEGORIES[..]), (tool, &TOOL_CATEGORIES[..])] {
                if unit_hash(&id) < 1.0 / 3.0 {
                    let category = categories[hash(&format!("category {id}")) as usize % categories.len()];
                    gold.entry(id).or_default().push((category.to_owned(), "MEDIUM".to_owned()));
                }
            }
        }
        let traces = object!({ "resourceSpans": [{ "scopeSpans": [{ "scope": {}, "spans": spans }] }] });
        std::fs::write(folder.join(format!("traces/{trace}.json")), traces.to_string()).unwrap();
        let trace_gold = gold.iter().filter(|(span, _)| span.starts_with(&id(0)[..8]));
        write_gold(&folder.join(format!("gold/{trace}.json")), &trace, trace_gold);
    }
    gold
}

fn write_gold<'g>(
    path: &Path,
    trace: &str,
    errors: impl Iterator<Item = (&'g String, &'g Vec<(String, String)>)>,
) {
    let errors: Vec<Value> = errors
        .flat_map(|(span, span_errors)| span_errors.iter().map(move |error| (span, error)))
        .map(|(span, (category, impact))| {
            object!({ "category": category, "location": span, "evidence": "", "description": "", "impact": impact })
        })
        .collect();
    let file = object!({ "trace_id": trace, "errors": errors, "scores": [{ "overall": 3.0 }] });
    std::fs::write(path, file.to_string()).unwrap();
}

/// A line of a span's content in a prompt, long enough to be quoted.
fn quotable<'p>(page: &'p str, span: &str) -> Option<&'p str> {
    let mark = page.split("\n<data ").nth(1)?.get(..8)?;
    let heading = format!("[{mark} span {span} | ");
    let mut is_own = false;
    for line in page.lines() {
        if line.starts_with(&format!("[{mark} ")) {
            is_own = line.starts_with(&heading);
        } else if is_own && line.chars().filter(|c| c.is_alphanumeric()).count() >= 8 {
            let end = line.char_indices().nth(80).map_or(line.len(), |(at, _)| at);
            return line.get(..end);
        }
    }
    None
}

/// The best answer to a form, without findings.
fn best_answer(schema: &Value) -> Value {
    let fields = &schema["properties"];
    let mut answer = object!({ "rationale": "sound", "findings": [] });
    if let Some(scores) = fields["score"]["enum"].as_array() {
        answer["score"] = scores.last().unwrap().clone();
    }
    if let Some(labels) = fields["label"]["enum"].as_array() {
        answer["label"] = labels[0].clone();
    }
    if fields.get("plan").is_some() {
        answer["plan"] = object!("stated");
    }
    answer
}

/// The answer to `request` with `errors` as findings, which are the span ids with a category and a severity.
fn grade(request: &Value, errors: &[(String, String, String)]) -> Value {
    let schema = &request["response_format"]["json_schema"]["schema"];
    // The findings of several parts are graded together.
    if schema["properties"].get("findings").is_none() {
        return object!({ "rationale": "all together", "score": schema["properties"]["score"]["enum"][0] });
    }
    let mut answer = best_answer(schema);
    let (Some(worst), false) = (schema["properties"]["score"]["enum"].get(0), errors.is_empty()) else {
        return answer;
    };
    let page = request["messages"][1]["content"].as_str().unwrap();
    let has_category = schema["properties"]["findings"]["items"]["properties"].get("category").is_some();
    let findings: Vec<Value> = errors
        .iter()
        .filter_map(|(span, category, severity)| {
            let problem = format!("span {span} is to be filed under {category}");
            let quote = quotable(page, span)?;
            let mut finding =
                object!({ "problem": problem, "span_id": span, "quote": quote, "severity": severity });
            if has_category {
                finding["category"] = object!(category);
            }
            Some(finding)
        })
        .collect();
    if !findings.is_empty() {
        (answer["score"], answer["findings"]) = (worst.clone(), object!(findings));
    }
    answer
}

/// The answer of a judge that sees only a finding of [`grade`]: the category that the finding names.
fn file_category(request: &Value) -> Value {
    let user = request["messages"][1]["content"].as_str().unwrap();
    let named = user.split("to be filed under ").nth(1).and_then(|rest| rest.lines().next());
    object!({ "rationale": "as it says", "category": named.unwrap_or("none") })
}

/// The spans that an answer may name, by the schema of the request.
fn spans_in_schema(request: &Value) -> Vec<String> {
    let schema = &request["response_format"]["json_schema"]["schema"]["properties"]["findings"]["items"];
    let ids = schema["properties"]["span_id"]["enum"].as_array();
    ids.into_iter().flatten().map(|id| id.as_str().unwrap().to_owned()).collect()
}

/// A judge that answers by the annotations: about one call with those of the call, about a run with those of every span
/// in the prompt. The errors for which the prompt contains evidence are added to `proved`.
fn by_annotations(gold: Gold, proved: Arc<Mutex<BTreeSet<(String, String)>>>) -> String {
    model::serve_requests(move |form, request| {
        if form == "failure_category" {
            return file_category(request);
        }
        let page = request["messages"][1]["content"].as_str().unwrap();
        let first_line = page.lines().next().unwrap();
        let about_one = first_line.contains("What stands beside it is context");
        let is_about_agent = !about_one && !form.starts_with("gpa");
        let spans = spans_in_schema(request)
            .into_iter()
            .filter(|id| !is_about_agent && (!about_one || first_line.contains(&**id)));
        let errors: Vec<(String, String, String)> = spans
            .flat_map(|id| {
                let span_errors = gold.get(&id).cloned().unwrap_or_default();
                span_errors
                    .into_iter()
                    .map(move |(category, impact)| (id.clone(), category, impact.to_lowercase()))
            })
            .collect();
        let answer = grade(request, &errors);
        let mut proved = proved.lock().unwrap();
        for finding in answer["findings"].as_array().into_iter().flatten() {
            let named = finding["problem"].as_str().unwrap().split("to be filed under ").nth(1).unwrap();
            proved.insert((finding["span_id"].as_str().unwrap().to_owned(), named.to_owned()));
        }
        answer
    })
}

/// Runs the command as a user with an API key does. Returns the figures as JSON.
fn run(folder: &Path, endpoint: &str, config: &str, more_arguments: &[&str]) -> Value {
    let [traces, gold] = ["traces", "gold"].map(|part| folder.join(part));
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/benchmarks").join(config);
    let page = folder.join("table.html");
    let args = ["score", "trail", "--traces", text(&traces), "--gold", text(&gold), "-c", text(&config)];
    let mut command = Command::new(env!("CARGO_BIN_EXE_otel-verdict"));
    command.env("JUDGE_ENDPOINT", endpoint).env("JUDGE_API_KEY", "a-key").env("JUDGE_DIALECT", "openai");
    command
        .args(args)
        .args(["--report", text(&page), "--require-judged", "0.95", "--output", "json"])
        .args(more_arguments);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(html.contains("Goal Deviation") && html.contains("joint"), "{html}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn figure(report: &Value, kind_of_figure: &str, share: &str) -> f64 {
    report[kind_of_figure][share].as_f64().unwrap_or_else(|| panic!("{kind_of_figure}.{share}: {report}"))
}

#[test]
fn judge_that_answers_by_the_annotations_fills_the_tables_with_ones() {
    let folder = tempfile::tempdir().unwrap();
    let gold = write_runs(folder.path(), 3, 8);
    let errors = gold.values().flatten().count();
    assert!(errors > 10, "{errors}");
    for config in ["trail-001.yaml", "trail-000.yaml"] {
        let proved = Arc::new(Mutex::new(BTreeSet::new()));
        let endpoint = by_annotations(gold.clone(), Arc::clone(&proved));
        for placement in ["first", "every"] {
            let report = run(folder.path(), &endpoint, config, &["--placement", placement]);
            assert_eq!(proved.lock().unwrap().len(), errors, "{config}");
            for kind_of_figure in ["location", "joint"] {
                assert_eq!(figure(&report, kind_of_figure, "f1"), 1.0, "{config}, {placement}: {report}");
            }
            assert_eq!(report["category_f1_weighted"], 1.0, "{config}, {placement}: {report}");
        }
    }
}

#[test]
fn judge_that_answers_noise_is_at_chance() {
    let folder = tempfile::tempdir().unwrap();
    let gold = write_runs(folder.path(), 4, 15);
    let calls = 4 * 15 * 2;
    let endpoint = model::serve_requests(|form, request| {
        let page = request["messages"][1]["content"].as_str().unwrap();
        let noise = |salt: &str| hash(&format!("{salt} {form} {page}")) >> 20;
        if form == "failure_category" {
            let schema = &request["response_format"]["json_schema"]["schema"];
            let names = schema["properties"]["category"]["enum"].as_array().unwrap();
            return object!({ "rationale": "noise", "category": names[noise("category") as usize % CATEGORIES] });
        }
        let first_line = page.lines().next().unwrap();
        let about_one = first_line.contains("What stands beside it is context");
        let spans: Vec<String> =
            spans_in_schema(request).into_iter().filter(|id| first_line.contains(&**id)).collect();
        let fails = about_one && noise("score").is_multiple_of(4);
        let errors: Vec<(String, String, String)> =
            spans.into_iter().map(|id| (id, "noise".to_owned(), "medium".to_owned())).collect();
        grade(request, if fails { &errors } else { &[] })
    });
    let report = run(folder.path(), &endpoint, "trail-001.yaml", &["--placement", "every"]);
    let predicted = figure(&report, "location", "predicted");
    assert!(predicted > 25.0, "{report}");
    // The share of annotated spans among the predicted ones is that among all calls; one in twenty of these has the
    // annotated category.
    let base = gold.len() as f64 / f64::from(calls);
    let precision = figure(&report, "location", "precision");
    assert!((precision - base).abs() < 0.15, "{precision} against {base}: {report}");
    assert!(figure(&report, "joint", "precision") < base / CATEGORIES as f64 + 0.06, "{report}");
}

/// Some annotated traces of the benchmark, if they are unpacked.
fn benchmark(part: &str, traces: usize, into: &Path) -> Option<Gold> {
    let cases = PathBuf::from(std::env::var_os("OTEL_VERDICT_CASES")?).join("trail").join(part);
    for part in ["traces", "gold"] {
        std::fs::create_dir(into.join(part)).unwrap();
    }
    let mut files: Vec<(u64, PathBuf)> = std::fs::read_dir(cases.join("traces"))
        .ok()?
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.metadata().unwrap().len(), entry.path()))
        .collect();
    files.sort();
    let mut gold = Gold::new();
    for (_, file) in files.into_iter().take(traces) {
        let name = file.file_name().unwrap();
        let annotated = std::fs::read(cases.join("gold").join(name)).unwrap();
        std::fs::copy(&file, into.join("traces").join(name)).unwrap();
        std::fs::write(into.join("gold").join(name), &annotated).unwrap();
        let annotated: Value = serde_json::from_slice(&annotated).unwrap();
        for error in annotated["errors"].as_array().unwrap() {
            let [span, category, impact] = ["location", "category", "impact"]
                .map(|key| error[key].as_str().unwrap_or_default().to_owned());
            gold.entry(span).or_default().push((category, impact));
        }
    }
    Some(gold)
}

#[test]
fn judge_that_answers_by_the_benchmarks_annotations_is_right_wherever_it_can_prove_them() {
    for part in ["gaia", "swe"] {
        let folder = tempfile::tempdir().unwrap();
        let Some(gold) = benchmark(part, 3, folder.path()) else {
            println!("skipped: OTEL_VERDICT_CASES is not set");
            return;
        };
        let proved = Arc::new(Mutex::new(BTreeSet::new()));
        let endpoint = by_annotations(gold, Arc::clone(&proved));
        let report = run(folder.path(), &endpoint, "trail-000.yaml", &["--placement", "every"]);
        let proved = proved.lock().unwrap().len();
        println!("{part}: {proved} proved; {} {}", report["location"], report["joint"]);
        assert_eq!(figure(&report, "joint", "precision"), 1.0, "{part}: {report}");
        assert_eq!(report["joint"]["hits"].as_u64(), Some(proved as u64), "{part}: {report}");
        assert!(figure(&report, "joint", "recall") > 0.8, "{part}: {report}");
    }
}
