//! Every finding about recorded traces states an expectation, and quotes its evidence from a span that it
//! names.
//!
//! Over the captures that are shipped, and over all cases where `OTEL_VERDICT_CASES` names them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use otel_verdict::config::{Config, from_sources};
use otel_verdict::pipeline::offline::{EvaluatedRecording, RecordingEvaluation};
use otel_verdict::receive::Offer;
use verdict_config::Source;
use verdict_eval::metrics::{Finding, Measurement};
use verdict_eval::trace::{AgentTrace, Message, Part, SpanView, ToolRequest};
use verdict_otlp::trace::Status;
use verdict_otlp::{Signal, json};

use crate::frameworks;

/// Longest sequence of letters that counts as a word. Longer ones are data, and may be cut anywhere.
const MAX_WORD_CHARS: usize = 32;

/// All texts of a span, as they were recognised.
fn texts(view: &SpanView) -> Vec<String> {
    fn request(out: &mut Vec<String>, request: &ToolRequest) {
        out.push(request.name.to_string());
        out.extend(request.arguments.as_ref().map(ToString::to_string));
    }
    fn messages(out: &mut Vec<String>, messages: &[Message]) {
        for part in messages.iter().flat_map(|m| &m.parts) {
            match part {
                Part::Text(text) | Part::Reasoning(text) => out.push(text.to_string()),
                Part::Call(call) => request(out, call),
                Part::Result { content, .. } => out.push(content.to_string()),
                Part::Media => {}
            }
        }
    }
    let mut out = vec![view.output_text().into_owned()];
    messages(&mut out, &view.output);
    messages(&mut out, &view.input);
    view.call.iter().for_each(|call| request(&mut out, call));
    let words = [&view.result, &view.name, &view.agent].into_iter().flatten();
    let errors = view.errors.iter().chain(&view.inherited_errors);
    let signs = errors.flat_map(|e| [&e.error_type, &e.message]).flatten();
    out.extend(words.chain(signs).chain(&view.finish).map(ToString::to_string));
    out.extend(view.plans.iter().map(|p| p.text.to_string()));
    out
}

/// The quote as it is, and as it is written within JSON or code.
fn spellings(quote: &str) -> Vec<String> {
    let escaped = serde_json::to_string(quote).unwrap();
    let escaped = escaped[1..escaped.len() - 1].to_owned();
    let plain = |c: char| match c.is_ascii() {
        true => c.to_string(),
        false => c.encode_utf16(&mut [0; 2]).iter().map(|u| format!("\\u{u:04x}")).collect(),
    };
    let ascii = escaped.chars().map(plain).collect();
    vec![quote.to_owned(), escaped, ascii]
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether neither end of `text[start..end]` is within a word.
fn is_at_word_boundaries(text: &str, start: usize, end: usize) -> bool {
    // A line break within JSON or code is written with a letter.
    let text = text.replace("\\n", "  ");
    let is_within_word = |at: usize| {
        let before = text[..at].chars().rev().take_while(|c| is_word_char(*c)).count();
        let after = text[at..].chars().take_while(|c| is_word_char(*c)).count();
        before > 0 && after > 0 && before + after <= MAX_WORD_CHARS
    };
    !is_within_word(start) && !is_within_word(end)
}

/// The fault of an explanation; `None` if it is valid.
fn fault(trace: &AgentTrace, m: &Measurement, finding: &Finding) -> Option<&'static str> {
    let Finding { rationale, quote, seen_in, .. } = finding;
    if !rationale.contains("expected") {
        return Some("names no expectation");
    }
    if quote.trim().is_empty() {
        return Some("quotes nothing");
    }
    // Evidence that is not text: a status without a message, a quantity.
    let status = trace.tree.spans[m.at].status == Status::Error && quote == "status ERROR";
    if status || matches!(m.metric, "latency" | "tokens") {
        return None;
    }
    let at = match seen_in {
        None => m.at,
        Some(id) => match trace.tree.spans.iter().position(|span| span.id == *id) {
            Some(at) => at,
            None => return Some("names a span that is not in the trace"),
        },
    };
    let texts = texts(&trace.views[at]);
    let occurrences: Vec<(&str, usize, usize)> = spellings(quote)
        .iter()
        .flat_map(|s| {
            texts
                .iter()
                .flat_map(|t| t.match_indices(s.as_str()).map(|(i, m)| (t.as_str(), i, i + m.len())))
                .collect::<Vec<_>>()
        })
        .collect();
    if occurrences.is_empty() {
        return Some("the named span does not contain the quote");
    }
    let is_whole = occurrences.iter().any(|(text, start, end)| is_at_word_boundaries(text, *start, *end));
    (!is_whole).then_some("the quote begins or ends within a word")
}

fn evaluate(offers: &[Offer], config: &Config) -> Vec<EvaluatedRecording> {
    let mut evaluation = RecordingEvaluation::new(config, 0).unwrap();
    for offer in offers {
        evaluation.add(offer).unwrap();
    }
    let mut out = Vec::new();
    crate::support::finish(&mut evaluation, |evaluated| out.push(evaluated));
    out
}

/// A configuration with limits that every span exceeds, so that these explanations are checked as well, and with a
/// mapping for conventions that are not built in.
fn config() -> Config {
    let limits =
        "verdict: { metrics: { latency: { max_ms: { llm: 0.001, tool: 0.001 } }, tokens: { max: 1 } } }";
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/examples/mas-sim.yaml");
    let source = |name: &str, text: String| Source { name: name.to_owned(), text };
    let sources =
        [source("mapping", std::fs::read_to_string(example).unwrap()), source("limits", limits.to_owned())];
    from_sources(&sources, &|_| None).unwrap_or_else(|e| panic!("{e:?}"))
}

/// Every recording: folders of captures, and traces as OTLP/JSON.
fn recordings(shipped: &Path) -> Vec<(String, Vec<Offer>)> {
    let demo = frameworks::cases(&shipped.join("../../demo"));
    let mut out: Vec<_> = demo.into_iter().map(|case| (case.name, case.requests)).collect();
    let mut roots = vec![shipped.to_owned()];
    roots.extend(std::env::var_os("OTEL_VERDICT_CASES").map(PathBuf::from));
    for root in roots {
        for case in frameworks::cases(&root.join("frameworks")) {
            out.push((case.name, case.requests));
        }
        for folder in ["score/traces", "trail/gaia/traces", "trail/swe/traces", "mas-sim/traces"] {
            let Ok(files) = std::fs::read_dir(root.join(folder)) else { continue };
            for file in files.map(|f| f.unwrap().path()) {
                let body = json::decode(Signal::Traces, &std::fs::read(&file).unwrap()).unwrap();
                out.push((file.display().to_string(), vec![Offer { signal: Signal::Traces, body }]));
            }
        }
    }
    out
}

#[test]
fn every_finding_names_an_expectation_and_quotes_its_span() {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut finding_counts: BTreeMap<&str, usize> = BTreeMap::new();
    let (config, mut faults) = (config(), Vec::new());
    for (name, offers) in recordings(&shipped) {
        for EvaluatedRecording { trace: judged, .. } in &evaluate(&offers, &config) {
            for m in &judged.measurements {
                let Ok(measured) = &m.outcome else { continue };
                if !measured.passed && measured.findings.is_empty() {
                    faults.push(format!("{name}: {} fails without a finding", m.metric));
                }
                for finding in &measured.findings {
                    *finding_counts.entry(m.metric).or_default() += 1;
                    if let Some(problem) = fault(&judged.trace, m, finding) {
                        let Finding { rationale, quote, .. } = finding;
                        faults.push(format!("{name}: {}: {problem}: {rationale} | {quote}", m.metric));
                    }
                }
            }
        }
    }
    println!("{finding_counts:?}");
    assert!(faults.is_empty(), "{} of {finding_counts:?}\n{}", faults.len(), faults.join("\n"));
    // The shipped captures alone have findings of these.
    for metric in ["error_detection", "tool_completeness", "reasoning_integrity", "completeness", "latency"] {
        assert!(finding_counts.contains_key(metric), "no finding of {metric}: {finding_counts:?}");
    }
}
