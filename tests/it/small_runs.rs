//! Small runs of invented agents in five conventions, each labelled before it was evaluated: how many correct runs
//! fail, and how many faulty runs pass.
//!
//! Rules were extended after the first and the second set were read; tests/bench/rules.md has the figures before.

use std::path::Path;
use std::process::Command;

use serde_json::Value as Json;

const CONFIG: &str = "receivers: { otlp: { protocols: { http: {} } } }\nexporters: { console: {} }\n\
                      verdict: { propagation: { default: outcome_relevant } }\nservice: { exporters: [console] }\n";

#[test]
fn small_runs_keep_their_figures() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.yaml");
    std::fs::write(&config, CONFIG).unwrap();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/small");
    // The most right runs that fail, and the most wrong runs that pass.
    for (set, alarms, misses) in [("first", 0, 10), ("second", 1, 6), ("third", 0, 9)] {
        let labels = std::fs::read(data.join(format!("{set}.labels.json"))).unwrap();
        let labels: Json = serde_json::from_slice(&labels).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_otel-verdict"))
            .args(["eval", "--output", "json", "--config"])
            .args([&config, &data.join(format!("{set}.jsonl.gz"))])
            .output()
            .unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        let runs: Vec<Json> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let labelled = labels["traces"].as_array().unwrap();
        assert_eq!(runs.len(), labelled.len());
        let count = |expected: &str, result: &str| {
            let expected = labelled.iter().filter(|label| label["expected"] == expected);
            let find_run =
                |label: &&Json| runs.iter().find(|run| run["trace_id"] == label["trace_id"]).unwrap();
            expected.filter(|label| find_run(label)["result"] == result).count()
        };
        let counts = (count("pass", "fail"), count("fail", "pass"));
        assert!(counts.0 <= alarms && counts.1 <= misses, "{set}: {counts:?}");
    }
}
