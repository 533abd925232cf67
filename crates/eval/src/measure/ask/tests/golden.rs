//! Golden prompts for runs of real frameworks, and prompts of the longest runs.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;
use crate::measure::testing::{captured, golden, traces_of};

/// The first question, without findings of the rules, so that their wording does not change it.
fn first_question(trace: &AgentTrace, settings: &Settings) -> Option<Ask> {
    let inputs = JudgeInputs { trace, settings, rule_measurements: &[] };
    Questions::new(inputs, &[]).next_question()
}

/// The metrics with golden prompts: one of each kind.
const GOLDEN_METRICS: [&str; 5] = [
    "reasoning_integrity",
    "tool_completeness",
    "tool_coverage",
    "gpa.logical_consistency",
    "gpa.plan_adherence",
];

#[test]
fn prompts_of_recorded_runs_match_golden_files() {
    for name in ["strands-c", "langgraph-openllmetry-x", "openaiagents-openinference-responses-b"] {
        let mut out = String::new();
        for trace in captured(name) {
            for metric in GOLDEN_METRICS {
                // The questions of one metric are similar.
                if let Some(ask) = first_question(&trace, &settings(&[metric])) {
                    out.push_str(&format!(
                        "==== {metric}, {}\n{}\n",
                        ask.question.key, ask.question.prompt.user
                    ));
                }
            }
        }
        golden(&format!("ask-{name}"), &out);
    }
}

#[test]
fn system_prompts_match_golden_files() {
    let mut out = String::new();
    for metric in ["error_detection", "gpa.plan_quality"] {
        let row = crate::measure::table::spec(metric).unwrap();
        out.push_str(&format!(
            "==== {metric}\n{}\n",
            Asker::default().system_prompt(row, &AgentTrace::default(), 0)
        ));
    }
    golden("ask-system", &out);
}

/// Traces of the benchmark in OTLP/JSON, if they are unpacked.
fn benchmark() -> Vec<(u64, PathBuf)> {
    let Some(cases) = std::env::var_os("OTEL_VERDICT_CASES") else {
        println!("skipped: OTEL_VERDICT_CASES is not set");
        return Vec::new();
    };
    let mut out = Vec::new();
    let mut folders = vec![PathBuf::from(cases).join("trail")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().map(|e| e.unwrap()) {
            let size = entry.metadata().unwrap().len();
            match entry.path() {
                path if path.is_dir() => folders.push(path),
                path if path.extension().is_some_and(|e| e == "json") => out.push((size, path)),
                _ => {}
            }
        }
    }
    out.sort();
    out
}

fn traces_in(path: &Path) -> Vec<AgentTrace> {
    let json = fs::read(path).unwrap();
    match verdict_otlp::json::decode(verdict_otlp::Signal::Traces, &json) {
        Ok(body) => traces_of(&body),
        Err(_) => Vec::new(),
    }
}

/// Asserts that the questions together contain every text of every span.
fn assert_everything_is_shown(trace: &AgentTrace, settings: &Settings) -> usize {
    let asked = questions(trace, settings);
    let shown = quote::QuotableText::from_texts(asked.iter().map(|ask| &*ask.question.prompt.user));
    for ask in &asked {
        assert!(tokens_of(ask) <= 24_000, "{} tokens", tokens_of(ask));
    }
    let judged = crate::measure::evaluated_spans::evaluated_spans(trace);
    for (span_index, view) in trace.views.iter().enumerate().filter(|(span_index, _)| judged[*span_index]) {
        for piece in content::input_pieces(view).into_iter().chain(content::output_pieces(view)) {
            let cleaned = settings.asker.clean_with_addresses(&piece.text, trace.addresses());
            // A text that is longer than a part is split into overlapping pieces.
            let letters: Vec<char> = cleaned.chars().filter(|c| !c.is_whitespace()).collect();
            for window in letters.chunks(200) {
                let window: String = window.iter().collect();
                let is_shown = window.chars().count() < 3 || shown.contains_quote(&window);
                assert!(is_shown, "span {span_index}, {:?}: {window}", piece.kind);
            }
        }
    }
    asked.len()
}

#[test]
fn questions_contain_every_text_of_the_longest_benchmark_runs() {
    let all = benchmark();
    for (size, path) in all.iter().rev().take(3) {
        for trace in traces_in(path) {
            let parts = assert_everything_is_shown(&trace, &settings(&["gpa.logical_consistency"]));
            println!("{}: {size} bytes, {} spans, {parts} questions", path.display(), trace.tree.len());
            assert!(parts > 1);
        }
    }
}
