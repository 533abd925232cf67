//! Prompts as they are sent, for runs of real frameworks; and the longest runs, judged whole.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;
use crate::measure::testing::{captured, golden, traces_of};

/// The first question, without what the rules found: their words change without ours.
fn first(trace: &AgentTrace, settings: &Settings) -> Option<Asking> {
    let inputs = Inputs { trace, settings, rules: &[] };
    Questions::new(inputs, &[]).next_question()
}

/// The metrics whose prompts are written down: one of each kind.
const SHOWN: [&str; 5] = [
    "reasoning_integrity",
    "tool_completeness",
    "tool_coverage",
    "gpa.logical_consistency",
    "gpa.plan_adherence",
];

#[test]
fn prompts_for_real_runs_read_as_they_should() {
    for name in ["strands-c", "langgraph-openllmetry-x", "openaiagents-openinference-responses-b"] {
        let mut out = String::new();
        for trace in captured(name) {
            for metric in SHOWN {
                // The first of each metric shows what there is to see.
                if let Some(ask) = first(&trace, &settings(&[metric])) {
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
fn what_the_judge_is_told_about_itself_reads_as_it_should() {
    let mut out = String::new();
    for metric in ["error_detection", "gpa.plan_quality"] {
        let topic = crate::measure::table::spec(metric).unwrap();
        out.push_str(&format!(
            "==== {metric}\n{}\n",
            Asker::default().system(topic, &AgentTrace::default(), 0)
        ));
    }
    golden("ask-system", &out);
}

/// Traces in OTLP/JSON of the benchmark, where they are unpacked.
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

fn scenes_in(path: &Path) -> Vec<AgentTrace> {
    let json = fs::read(path).unwrap();
    match verdict_otlp::json::decode(verdict_otlp::Signal::Traces, &json) {
        Ok(body) => traces_of(&body),
        Err(_) => Vec::new(),
    }
}

/// Every text of every span, told by whichever part: nothing of a long run goes unjudged.
fn everything_is_shown(trace: &AgentTrace, settings: &Settings) -> usize {
    let asked = questions(trace, settings);
    let shown = quote::QuotableText::of(asked.iter().map(|ask| &*ask.question.prompt.user));
    for ask in &asked {
        assert!(tokens_of(ask) <= 24_000, "{} tokens", tokens_of(ask));
    }
    let judged = crate::measure::evaluated_spans::evaluated_spans(trace);
    for (at, view) in trace.views.iter().enumerate().filter(|(at, _)| judged[*at]) {
        for piece in content::input_pieces(view).into_iter().chain(content::output_pieces(view)) {
            let cleaned = settings.asker.clean(&piece.text);
            // A text that is longer than a part stands in pieces, which overlap.
            let letters: Vec<char> = cleaned.chars().filter(|c| !c.is_whitespace()).collect();
            for window in letters.chunks(200) {
                let window: String = window.iter().collect();
                let there = window.chars().count() < 3 || shown.contains_quote(&window);
                assert!(there, "span {at}, {:?}: {window}", piece.kind);
            }
        }
    }
    asked.len()
}

#[test]
fn the_longest_runs_of_the_benchmark_are_judged_whole() {
    let all = benchmark();
    for (size, path) in all.iter().rev().take(3) {
        for trace in scenes_in(path) {
            let parts = everything_is_shown(&trace, &settings(&["gpa.logical_consistency"]));
            println!("{}: {size} bytes, {} spans, {parts} questions", path.display(), trace.tree.len());
            assert!(parts > 1);
        }
    }
}
