//! The stages that judge know no runtime, network, disk or clock: their results depend on the
//! trace and the settings alone. Held by reading their sources.

use std::fs;
use std::path::{Path, PathBuf};

const PURE: [&str; 6] = ["trace", "recognise", "measure", "propagate", "annotate", "score"];

/// What such a stage must not name. `assemble` takes time as a parameter and may know `Instant`.
const FORBIDDEN: [&str; 12] = [
    "tokio",
    "std::fs",
    "std::net",
    "std::io",
    "std::env",
    "std::process",
    "std::thread",
    "std::time::Instant",
    "SystemTime",
    "tracing::",
    "reqwest",
    "tonic",
];

fn sources(path: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(path).unwrap().map(|e| e.unwrap().path()) {
        if entry.is_dir() {
            sources(&entry, found);
        } else if entry.extension().is_some_and(|e| e == "rs") {
            found.push(entry);
        }
    }
}

#[test]
fn judging_knows_no_runtime_network_disk_or_clock() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    PURE.iter().for_each(|stage| sources(&src.join(stage), &mut files));
    assert!(files.len() > 20, "the stages were found");
    let mut faults = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let is_test = file
            .strip_prefix(&src)
            .unwrap()
            .components()
            .any(|part| ["tests.rs", "testing.rs", "tests"].iter().any(|name| part.as_os_str() == *name));
        // Tests beside the code may read files.
        let code =
            if is_test { "" } else { text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default() };
        for (number, line) in code.lines().enumerate() {
            let statement = line.split("//").next().unwrap_or_default();
            for word in FORBIDDEN.iter().filter(|word| statement.contains(*word)) {
                faults.push(format!("{}:{}: {word}", file.display(), number + 1));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
