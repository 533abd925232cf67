//! The checks of `tests/fuzz` over their seeds and a bounded number of mutations of them, the same
//! on every run. `OTEL_VERDICT_FUZZ_RUNS` sets their number for each check; an input that fails is written to a
//! file that the message names.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;

use fastrand::Rng;
use otel_verdict::receive::Offer;
use verdict_otlp::json;

use crate::frameworks::case;

#[path = "../fuzz/checks.rs"]
mod checks;

/// Largest input in bytes: large inputs find faults more slowly.
const MAX_INPUT_BYTES: usize = 8 << 10;

/// Numbers for which readers of lengths and counts are often wrong.
const NUMBERS: [u32; 8] = [0, 1, 0x7f, 0xff, 0xffff, 0x7fff_ffff, 0x8000_0000, u32::MAX];

/// The seeds kept under a check's name.
fn seeds(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/seeds").join(name);
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "no seeds for {name}");
    files.into_iter().map(|file| std::fs::read(file).unwrap()).collect()
}

/// Requests that frameworks sent.
fn captured() -> Vec<Offer> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("demo");
    ["vercelai-e", "googleadk-logs-a"].iter().flat_map(|name| case(&folder.join(name)).requests).collect()
}

/// An input that is a mutation of one seed, with parts of others.
fn mutate(rng: &mut Rng, seeds: &[Vec<u8>], tokens: &[&str]) -> Vec<u8> {
    let pick = |rng: &mut Rng| &seeds[rng.usize(..seeds.len())];
    let mut input = pick(rng).clone();
    input.truncate(MAX_INPUT_BYTES);
    for _ in 0..rng.usize(1..6) {
        let len = input.len();
        let (from, to) = (rng.usize(..=len), rng.usize(..=len));
        let (from, to) = (from.min(to), from.max(to).min(from.min(to) + 64));
        let insertion: Vec<u8> = match rng.u8(..8) {
            0 => (0..rng.usize(1..9)).map(|_| rng.u8(..)).collect(),
            1 => NUMBERS[rng.usize(..NUMBERS.len())].to_le_bytes()[..rng.usize(1..5)].to_vec(),
            2 if !tokens.is_empty() => tokens[rng.usize(..tokens.len())].as_bytes().to_vec(),
            3 => input[from..to].repeat(rng.usize(2..5)),
            4 => {
                let other = pick(rng);
                let at = rng.usize(..=other.len());
                other[at..other.len().min(at + rng.usize(1..256))].to_vec()
            }
            5 if from < len => {
                input[from] ^= 1 << rng.u8(..8);
                continue;
            }
            6 => {
                input.truncate(to);
                continue;
            }
            _ => Vec::new(),
        };
        let replaced_end = if rng.bool() { to.min(from + insertion.len()) } else { to };
        let replaced_end = if rng.bool() { from } else { replaced_end };
        input.splice(from..replaced_end, insertion);
    }
    input.truncate(MAX_INPUT_BYTES);
    input
}

/// Tries the seeds, then mutations of them.
fn fuzz(name: &str, check: fn(&[u8]), runs: u64, seeds: &[Vec<u8>], tokens: &[&str]) {
    let configured_runs = std::env::var("OTEL_VERDICT_FUZZ_RUNS").ok().and_then(|runs| runs.parse().ok());
    let mut rng = Rng::with_seed(0x5eed);
    let mutations = std::iter::repeat_with(|| mutate(&mut rng, seeds, tokens));
    for input in seeds.iter().cloned().chain(mutations.take(configured_runs.unwrap_or(runs) as usize)) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(&input))) {
            let file = std::env::temp_dir().join(format!("otel-verdict-fuzz-{name}"));
            std::fs::write(&file, &input).unwrap();
            eprintln!("{name} fails on {}", file.display());
            resume_unwind(panic);
        }
    }
}

#[test]
fn any_bytes_as_a_request() {
    let mut all = seeds("wire_split");
    all.extend(captured().into_iter().map(|offer| offer.body.to_vec()));
    fuzz("wire_split", checks::wire_split, 10_000, &all, &["verdict.", "gen_ai."]);
}

#[test]
fn any_bytes_as_json() {
    let mut all = seeds("json");
    all.extend(captured().iter().map(|offer| json::encode(offer.signal, &offer.body).unwrap()));
    let tokens =
        ["\"resourceSpans\":", "\"traceId\":", "null", "1e999", "\\ud800", "[[[[", "{\"", "-0", "NaN"];
    fuzz("json", checks::json, 4_000, &all, &tokens);
}

#[test]
fn any_bytes_as_a_segment_of_the_journal() {
    fuzz("journal", checks::journal, 1_000, &seeds("journal"), &["mark", "otvjrnl\n"]);
}

#[test]
fn any_bytes_as_an_agent_run() {
    fuzz("evaluation", checks::evaluation, 400, &seeds("evaluation"), &[]);
}

/// Without these, the check of agent runs would pass although little is evaluated.
#[test]
fn agent_runs_of_the_seeds_have_alarms_plans_paths_and_checklists() {
    let measured: Vec<&str> = seeds("evaluation").iter().flat_map(|seed| checks::measured(seed)).collect();
    for metric in [
        "alarm",
        "path.harmful_call",
        "path.prefix_criticality",
        "plan.score",
        "checklist.verdict",
        "tool_abuse",
    ] {
        assert!(measured.contains(&metric), "{metric} is in none of the seeds: {measured:?}");
    }
}

#[test]
fn any_bytes_as_the_answer_of_a_judge() {
    let tokens =
        ["```json\n", "```", "{\"score\":", "<think>", "</think>", "\"rationale\":", "9e99", "\\u0000"];
    fuzz("judge_answer", checks::judge_answer, 4_000, &seeds("judge_answer"), &tokens);
}

#[test]
fn any_bytes_as_a_configuration() {
    let mut all = seeds("config");
    for name in ["reference", "quickstart"] {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("config/{name}.yaml"));
        // Most lines are comments, which are of no use to the check.
        let text = std::fs::read_to_string(file).unwrap();
        let lines = text.lines().filter(|line| !line.trim_start().starts_with('#') && !line.is_empty());
        all.push(lines.flat_map(|line| [line, "\n"]).collect::<String>().into_bytes());
    }
    let tokens =
        ["${env:X}", "${file:/x}", "\n  - ", ": ", "{ ", " }", "!!", "&a ", "*a", "|\n", "1e9s", "-1", "~"];
    fuzz("config", checks::config, 2_000, &all, &tokens);
}

/// The package of the fuzz targets is outside the workspace, so that no other test compiles it.
#[test]
fn the_fuzz_package_names_every_crate_that_the_checks_use() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz");
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap().replace('-', "_");
    let checks =
        ["checks.rs", "agent_runs.rs"].map(|name| std::fs::read_to_string(folder.join(name)).unwrap());
    let mut used: Vec<String> = checks
        .iter()
        .flat_map(|text| text.lines().filter_map(|line| line.strip_prefix("use ")))
        .map(|path| path.split(':').next().unwrap().to_owned())
        .collect();
    used.retain(|name| name != "std");
    assert!(used.len() > 5);
    for name in used {
        assert!(manifest.contains(&format!("\n{name} = ")), "{name} is not in the manifest");
    }
}

#[test]
fn a_failing_check_is_reported() {
    let fails = catch_unwind(|| fuzz("none", |data| assert!(data.len() < 40), 2_000, &[vec![0; 30]], &[]));
    assert!(fails.is_err());
}
