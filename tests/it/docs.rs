//! Compares the documents with the program: configurations, commands, output, links, keys, attributes and
//! self-metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use otel_verdict::config::from_sources;
use regex::Regex;
use serde_json::Value;
use verdict_config::Source;

use crate::binary::run;

/// A fenced block of a document.
struct Block {
    location: String,
    info: String,
    text: String,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every document, by its path from the root.
fn documents() -> Vec<(String, String)> {
    let mut all = Vec::new();
    for folder in
        ["", "docs", "deploy", "demo", "tests/bench", "examples/remote_evaluator", "examples/code_runner"]
    {
        for entry in std::fs::read_dir(root().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|e| e == "md") {
                let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
                all.push((name, std::fs::read_to_string(path).unwrap()));
            }
        }
    }
    all.sort();
    assert!(all.len() >= 20, "{} documents", all.len());
    all
}

/// The fenced blocks of a document, and the text outside them.
fn split_blocks(name: &str, text: &str) -> (Vec<Block>, String) {
    let (mut blocks, mut prose) = (Vec::new(), String::new());
    let mut open: Option<Block> = None;
    for (n, line) in text.lines().enumerate() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(info)) => {
                let location = format!("{name}:{}", n + 1);
                open = Some(Block { location, info: info.to_owned(), text: String::new() });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => block.text += &format!("{line}\n"),
            (None, None) => prose += &format!("{line}\n"),
        }
    }
    assert!(open.is_none(), "{name}: a block is not closed");
    (blocks, prose)
}

fn blocks(info: &str) -> Vec<Block> {
    let all = documents().into_iter().flat_map(|(name, text)| split_blocks(&name, &text).0);
    all.filter(|block| block.info == info).collect()
}

fn stdout(args: &[&str]) -> String {
    let output = run(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Texts in backticks outside of code blocks.
fn quoted_texts(text: &str) -> Vec<String> {
    let quoted = Regex::new("`([^`\n]+)`").unwrap();
    quoted.captures_iter(text).map(|found| found[1].to_owned()).collect()
}

#[test]
fn every_configuration_is_valid() {
    let all = blocks("yaml");
    assert!(all.len() >= 20, "{} configurations", all.len());
    for Block { location, text, .. } in all {
        let source = Source { name: location.clone(), text };
        let variable = |name: &str| match name {
            _ if name.ends_with("_URL") => "http://127.0.0.1:1/".to_owned(),
            _ if name.ends_with("_SECRET") => "1".repeat(32),
            _ => "1".to_owned(),
        };
        let read = from_sources(&[source], &|name| Some(variable(name)));
        assert!(read.is_ok(), "{location}: {read:?}");
    }
}

#[test]
fn every_task_file_is_valid() {
    let folder = tempfile::tempdir().unwrap();
    for (n, Block { location, text, .. }) in blocks("yaml,task").into_iter().enumerate() {
        let file = folder.path().join(format!("{n}.yaml"));
        std::fs::write(&file, text).unwrap();
        let output = run(&["path", "check", file.to_str().unwrap()]);
        assert!(output.status.success(), "{location}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Blocks whose first line is a command show lines of its output, in order.
#[test]
fn transcripts_match_the_output_of_the_program() {
    let mut transcripts = 0;
    for Block { location, text, .. } in blocks("text") {
        let Some((command, shown)) = text.strip_prefix("$ otel-verdict ").and_then(|t| t.split_once('\n'))
        else {
            continue;
        };
        transcripts += 1;
        let printed = stdout(&command.split_whitespace().collect::<Vec<_>>());
        let mut lines = printed.lines().map(str::trim_end);
        for line in shown.lines() {
            assert!(lines.any(|printed| printed == line), "{location}: not printed: {line}\nin:\n{printed}");
        }
    }
    assert!(transcripts >= 2, "{transcripts} transcripts");
}

/// The spans of `eval --output otlp`: id, name, and `verdict.*` attributes as JSON with the type of the value.
type Annotated = Vec<(String, String, BTreeMap<String, (Value, String)>)>;

fn annotated_spans(args: &[&str]) -> Annotated {
    let printed = stdout(&[&["eval", "--output", "otlp"], args].concat());
    let requests = printed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let resources = requests.flat_map(|r| r["resourceSpans"].as_array().unwrap().clone());
    let scopes = resources.flat_map(|r| r["scopeSpans"].as_array().unwrap().clone());
    let spans = scopes.flat_map(|s| s["spans"].as_array().unwrap().clone());
    spans.map(|span| (text(&span["spanId"]), text(&span["name"]), attributes(&span))).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn attributes(span: &Value) -> BTreeMap<String, (Value, String)> {
    let all = span["attributes"].as_array().unwrap().iter();
    let ours = all.map(|a| (text(&a["key"]), &a["value"])).filter(|(key, _)| key.starts_with("verdict."));
    ours.map(|(key, value)| {
        let (kind, plain) = value.as_object().unwrap().iter().next().unwrap();
        let plain = match kind.as_str() {
            "arrayValue" => {
                let values = plain["values"].as_array().unwrap().iter();
                values.map(|v| v["stringValue"].clone()).collect()
            }
            // OTLP/JSON writes 64-bit integers as strings.
            "intValue" => text(plain).parse::<i64>().unwrap().into(),
            _ => plain.clone(),
        };
        (key, (plain, kind.clone()))
    })
    .collect()
}

#[test]
fn attributes_shown_are_written_by_the_program() {
    let all = blocks("text,attributes");
    assert!(!all.is_empty());
    for Block { location, text, .. } in all {
        let (head, shown) = text.split_once('\n').unwrap();
        let head = head.strip_prefix("# otel-verdict eval ").unwrap();
        let (args, span) = head.split_once(", span ").unwrap();
        let spans = annotated_spans(&args.split_whitespace().collect::<Vec<_>>());
        let (_, _, written) = spans.iter().find(|(id, name, _)| id == span || name == span).unwrap();
        for line in shown.lines() {
            let (key, value) = line.split_once('=').unwrap();
            let value: Value = serde_json::from_str(value.trim()).unwrap();
            let found = written.get(key.trim()).map(|(value, _)| value.clone()).unwrap_or_default();
            // A text that ends in `...` is compared by its beginning.
            let is_equal = match value.as_str().and_then(|value| value.strip_suffix("...")) {
                Some(start) => found.as_str().is_some_and(|found| found.starts_with(start)),
                None => found == value,
            };
            assert!(is_equal, "{location}: {line}\nthe program writes {found}");
        }
    }
}

/// For the commands of shell blocks: the subcommand exists and has the flags.
#[test]
fn commands_shown_exist() {
    let mut commands = 0;
    let at_start = Regex::new(r"(?m)^(?:.*\| |.*\$\(|target/release/)?otel-verdict ([^#|>\n]+)").unwrap();
    for Block { location, text, .. } in blocks("sh") {
        for found in at_start.captures_iter(&text) {
            commands += 1;
            let words: Vec<&str> = found[1].split_whitespace().collect();
            let nested = run(&["help", words[0], words.get(1).copied().unwrap_or_default()]);
            let help = match nested.status.success() && words[0] != "help" {
                true => String::from_utf8(nested.stdout).unwrap(),
                false => stdout(&["help", words[0]]),
            };
            for flag in words.iter().filter(|word| word.starts_with('-') && **word != "-") {
                let is_known = help.split([' ', ',', '\n']).any(|word| word == *flag);
                assert!(is_known, "{location}: {flag} is not an option of otel-verdict {}", words[0]);
            }
        }
    }
    assert!(commands >= 20, "{commands} commands");
}

/// The anchor of a heading on GitHub and in mdBook.
fn anchor(heading: &str) -> String {
    let title = heading.trim_start_matches('#').trim().to_lowercase();
    title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).collect::<String>().replace(' ', "-")
}

#[test]
fn links_between_documents_resolve() {
    let link = Regex::new(r"\]\(([^)\s]+)\)").unwrap();
    for (name, text) in documents() {
        let (_, prose) = split_blocks(&name, &text);
        for found in link.captures_iter(&prose).filter(|found| !found[1].contains("://")) {
            let (path, section) = found[1].split_once('#').unwrap_or((&found[1], ""));
            let from = root().join(&name);
            let target = if path.is_empty() { from } else { from.parent().unwrap().join(path) };
            assert!(target.exists(), "{name}: {} does not exist", &found[1]);
            if !section.is_empty() {
                let target = std::fs::read_to_string(&target).unwrap();
                let (_, prose) = split_blocks(&name, &target);
                let found = prose.lines().filter(|l| l.starts_with('#')).any(|l| anchor(l) == section);
                assert!(found, "{name}: no section {section} in {path}");
            }
        }
    }
}

#[test]
fn the_book_lists_its_chapters() {
    let read = |name: &str| std::fs::read_to_string(root().join("docs").join(name)).unwrap();
    let (contents, summary) = (read("README.md"), read("SUMMARY.md"));
    for (name, _) in documents().iter().filter(|(name, _)| name.starts_with("docs/")) {
        let link = format!("({})", name.trim_start_matches("docs/"));
        if !["(README.md)", "(SUMMARY.md)"].contains(&link.as_str()) {
            assert!(contents.contains(&link) && summary.contains(&link), "{name} is in no table of contents");
        }
    }
}

/// Whether `path` exists in a JSON schema; `<name>` matches any key.
fn path_exists(schema: &Value, at: &Value, path: &[&str]) -> bool {
    let Some((first, rest)) = path.split_first() else { return true };
    let reference = at["$ref"].as_str().and_then(|path| schema.pointer(path.trim_start_matches('#')));
    let choices = ["anyOf", "oneOf", "allOf"].iter().filter_map(|key| at[*key].as_array()).flatten();
    let is_placeholder = first.starts_with('<');
    let mut named = at["properties"].as_object().into_iter().flatten();
    // Keys of a map.
    let other = &at["additionalProperties"];
    reference.into_iter().chain(choices).any(|choice| path_exists(schema, choice, path))
        || named.any(|(key, value)| (is_placeholder || key == first) && path_exists(schema, value, rest))
        || (other.is_object() && path_exists(schema, other, rest))
}

/// The documented attributes with their types, as in the tables of docs/attributes.md.
fn documented() -> BTreeMap<String, String> {
    let page = std::fs::read_to_string(root().join("docs/attributes.md")).unwrap();
    let mut out = BTreeMap::new();
    for row in page.lines().filter(|line| line.starts_with("| `verdict.")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        out.extend(quoted_texts(cells[1]).into_iter().map(|key| (key, cells[2].to_owned())));
    }
    assert!(out.len() >= 30, "{} attributes", out.len());
    out
}

/// Names of metrics, from the first column of the tables.
fn metrics() -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    for page in ["metrics", "plans", "paths", "judges"] {
        let page = std::fs::read_to_string(root().join(format!("docs/{page}.md"))).unwrap();
        for row in page.lines().filter(|line| line.starts_with("| ")) {
            let cells: Vec<&str> = row.split('|').collect();
            out.extend(quoted_texts(cells[1]));
            out.extend(quoted_texts(cells[2]).into_iter().filter(|name| name.starts_with("gpa.")));
        }
    }
    out
}

/// The key of the row that documents an attribute.
fn documented_key(
    key: &str,
    documented: &BTreeMap<String, String>,
    metrics: &BTreeSet<String>,
) -> Option<String> {
    if documented.contains_key(key) {
        return Some(key.to_owned());
    }
    let (metric, field) = key.strip_prefix("verdict.")?.rsplit_once('.')?;
    let general = format!("verdict.<metric>.{field}");
    (metrics.contains(metric) && documented.contains_key(&general)).then_some(general)
}

/// Enables all metrics that need no judge; the recordings then lead to most attributes.
const ALL_METRICS: &str = r#"
verdict:
  explanations: all
  detail: full
  propagation: { root: expected_outcome }
  metrics:
    latency: { max_ms: { llm: 30000 } }
    tokens: { max: 100 }
    plan: { enabled: true }
    path: { tasks: [config/tasks/rover.yaml, config/tasks/refund.yaml] }
    checklist: { fixed: [{ items: [{ question: "Is it a number?", check: { answer: number } }] }] }
"#;

/// Attributes that need judges, late spans, an open trace, a plan with dependencies and a reference, or a crash.
const WRITTEN_IN_OTHER_RUNS: [&str; 12] = [
    "verdict.trace.reason",
    "verdict.late",
    "verdict.trace.score",
    "verdict.trace.judge_tokens",
    "verdict.trace.judge_cost_usd",
    "verdict.path.undone",
    "verdict.path.alarm",
    "verdict.plan.hops",
    "verdict.plan.width",
    "verdict.plan.rating.f1",
    "verdict.plan.rating.f1_at_most",
    "verdict.plan.rating.unsure",
];

#[test]
fn the_documented_attributes_are_those_that_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.yaml");
    std::fs::write(&config, ALL_METRICS).unwrap();
    let runs = ["config/tasks/rover-run.json", "config/tasks/refund-run.json"];
    let args = [&["-c", config.to_str().unwrap(), "demo", "tests/data/frameworks"][..], &runs].concat();
    let (documented, metrics) = (documented(), metrics());
    let mut written: BTreeSet<String> = WRITTEN_IN_OTHER_RUNS.iter().map(|&key| key.to_owned()).collect();
    for (key, (_, kind)) in annotated_spans(&args).into_iter().flat_map(|(_, _, attributes)| attributes) {
        let row =
            documented_key(&key, &documented, &metrics).unwrap_or_else(|| panic!("{key} is not documented"));
        let kind = match kind.as_str() {
            "arrayValue" => "string[]",
            kind => kind.trim_end_matches("Value"),
        };
        assert_eq!(documented[&row], kind, "type of {key}");
        written.insert(row);
    }
    let missing: Vec<_> = documented.keys().filter(|key| !written.contains(*key)).collect();
    assert!(missing.is_empty(), "documented and not written: {missing:?}");
}

#[test]
fn keys_attributes_and_self_metrics_named_exist() {
    let schema: Value = serde_json::from_str(&stdout(&["print-config", "--schema"])).unwrap();
    let (documented, metrics) = (documented(), metrics());
    let self_metrics = std::fs::read_to_string(root().join("docs/self-metrics.md")).unwrap();
    let sections = "verdict|receivers|judges|judging|storage|memory|exporters|admin|service";
    let key = Regex::new(&format!(r"^((?:{sections})(?:\.[a-z_0-9]+|\.<[a-z]+>)+)(?:: .*)?$")).unwrap();
    let (mut named, mut missing) = (0, Vec::new());
    for (name, text) in documents() {
        let (_, prose) = split_blocks(&name, &text);
        for quoted in quoted_texts(&prose) {
            let metric = quoted.split('{').next().filter(|word| word.starts_with("otel_verdict_"));
            if metric.is_some_and(|metric| !self_metrics.contains(&format!("| `{metric}` |"))) {
                missing.push(format!("{name}: {quoted}"));
            }
            // An attribute of OpenTelemetry.
            let Some(found) = key.captures(&quoted).filter(|found| &found[1] != "service.name") else {
                continue;
            };
            named += 1;
            let path: Vec<&str> = found[1].split('.').collect();
            let attribute = found[1].starts_with("verdict.<metric>.")
                || documented_key(&found[1], &documented, &metrics).is_some();
            if !attribute && !path_exists(&schema, &schema, &path) {
                missing.push(format!("{name}: {quoted}"));
            }
        }
    }
    assert!(missing.is_empty(), "these do not exist:\n{}", missing.join("\n"));
    assert!(named >= 100, "{named} keys");
}

#[test]
fn the_readme_has_at_most_200_lines() {
    let lines = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    assert!(lines.lines().count() <= 200);
}

#[test]
fn set_up_of_every_framework_imports_what_it_uses_and_is_run() {
    let text = std::fs::read_to_string(root().join("docs/frameworks.md")).unwrap();
    let scripts = root().join("tests/neighbours/frameworks");
    let scripts: BTreeMap<String, String> = std::fs::read_dir(scripts)
        .unwrap()
        .filter_map(|entry| std::fs::read_to_string(entry.unwrap().path()).ok())
        .filter_map(|script| Some((script.lines().next()?.strip_prefix("# ")?.to_owned(), script.clone())))
        .collect();
    let import = Regex::new(r"^import (\w+)$|^from [\w.]+ import (\w+)$").unwrap();
    let call = Regex::new(r"^(\w+)(?:\.\w+|\([\w=]*\))+$").unwrap();
    let rows = text.lines().skip_while(|line| !line.starts_with("| framework |")).skip(2);
    let rows: Vec<&str> = rows.take_while(|line| line.starts_with("| ")).collect();
    assert!(rows.len() >= 10, "{} frameworks", rows.len());
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [framework, _, _, lines] = cells[..] else { panic!("{row}") };
        let (mut imported, mut used) = (BTreeSet::new(), BTreeSet::new());
        for line in quoted_texts(lines) {
            if let Some(found) = import.captures(&line) {
                assert!(used.is_empty(), "{framework}: an import after a use");
                imported.insert(found.get(1).or(found.get(2)).unwrap().as_str().to_owned());
            } else {
                let found = call.captures(&line).unwrap_or_else(|| panic!("{framework}: {line}"));
                assert!(imported.contains(&found[1]), "{framework}: {} is not imported", &found[1]);
                used.insert(found[1].to_owned());
            }
        }
        // Without a provider there are no spans.
        let sets_up = quoted_texts(lines).first().is_some_and(|line| line == "import otel");
        assert!(sets_up || lines.contains("setup_otlp_exporter"), "{framework}: no SDK is set up");
        imported.remove("otel");
        assert_eq!(imported, used, "{framework}");
        assert!(scripts.contains_key(framework), "{framework}: no program in tests/neighbours/frameworks");
    }
}

#[test]
fn proposals_are_read_or_not_as_documented() {
    let page = std::fs::read_to_string(root().join("docs/frameworks.md")).unwrap();
    let folder = root().join("crates/eval/src/recognise");
    let files = [folder.join("convention"), folder].into_iter().flat_map(|f| std::fs::read_dir(f).unwrap());
    let files =
        files.map(|file| file.unwrap().path()).filter(|path| path.is_file() && !path.ends_with("tests.rs"));
    let readers: String = files.map(|path| std::fs::read_to_string(path).unwrap()).collect();
    for (heading, read) in [("| proposed |", true), ("| not read |", false)] {
        let rows = page.lines().skip_while(|line| !line.starts_with(heading)).skip(2);
        let first = rows.take_while(|line| line.starts_with("| ")).map(|row| row.split('|').nth(1).unwrap());
        let names: Vec<String> = first.flat_map(quoted_texts).collect();
        assert!(names.len() >= 15, "{heading} {} names", names.len());
        let wrong: Vec<&String> = names.iter().filter(|name| readers.contains(*name) != read).collect();
        assert!(wrong.is_empty(), "{heading} {wrong:?}");
    }
}
