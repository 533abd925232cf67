//! The rules compared with annotations: half of TRAIL, and MAS-SIM's scripted faults.
//!
//! Both run where `OTEL_VERDICT_CASES` names the unpacked cases and skip otherwise. The table of
//! what each rule adds is printed by
//! `cargo test --test it -- --ignored what_each_rule_adds --nocapture`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use otel_verdict::config::Config;
use otel_verdict::pipeline::offline::{EvaluatedRecording, RecordingEvaluation};
use otel_verdict::receive::Offer;
use otel_verdict::score::trail::placement::{self, Predicted};
use otel_verdict::score::trail::{Annotations, Benchmark, TraceErrors};
use serde_json::Value as Json;
use verdict_eval::metrics::Measurement;
use verdict_eval::propagation::Verdict;
use verdict_eval::trace::AgentTrace;
use verdict_otlp::{Signal, json};

/// An evaluated trace and the errors that annotators marked in it.
struct AnnotatedTrace {
    trace: AgentTrace,
    measurements: Vec<Measurement>,
    gold: Annotations,
}

impl AnnotatedTrace {
    /// The annotated and the predicted errors, without the findings of one rule.
    fn case(&self, without: Option<&str>) -> TraceErrors {
        let mut measurements = self.measurements.clone();
        for outcome in measurements.iter_mut().filter_map(|m| m.outcome.as_mut().ok()) {
            outcome.findings.retain(|f| without.is_none() || f.rule_name().as_deref() != without);
        }
        let found = placement::located_findings(&self.trace, &measurements, Predicted::ALL);
        let predicted: Vec<_> = found.iter().map(|f| f.annotation(&self.trace)).collect();
        TraceErrors::new(&self.gold.errors, &predicted)
    }
}

fn folder(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("OTEL_VERDICT_CASES").map(|cases| Path::new(&cases).join(name));
    if folder.is_none() {
        println!("skipped: OTEL_VERDICT_CASES is not set");
    }
    folder
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "json"))
        .collect();
    files.sort();
    files
}

/// The only trace of a file, evaluated by the rules.
fn evaluate(file: &Path, config: &Config) -> EvaluatedRecording {
    let mut evaluation = RecordingEvaluation::new(config, 0).unwrap();
    let body = json::decode(Signal::Traces, &std::fs::read(file).unwrap()).unwrap();
    evaluation.add(&Offer { signal: Signal::Traces, body }).unwrap();
    let mut out = Vec::new();
    crate::support::finish(&mut evaluation, |evaluated| out.push(evaluated));
    out.pop().unwrap()
}

fn annotated_traces(folder: &Path) -> Vec<AnnotatedTrace> {
    let gold = files(&folder.join("gold")).into_iter().map(|file| {
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        (name, Annotations::read(&std::fs::read(file).unwrap()).unwrap())
    });
    let mut gold: BTreeMap<String, Annotations> = gold.collect();
    let all = files(&folder.join("traces")).into_iter().filter_map(|file| {
        let evaluated = evaluate(&file, &Config::default());
        let gold = gold.remove(&evaluated.trace.trace.tree.id.to_string())?;
        Some(AnnotatedTrace {
            trace: evaluated.trace.trace,
            measurements: evaluated.trace.measurements,
            gold,
        })
    });
    all.collect()
}

fn figures(traces: &[AnnotatedTrace], without: Option<&str>) -> Benchmark {
    let cases: Vec<TraceErrors> = traces.iter().map(|t| t.case(without)).collect();
    Benchmark::from_cases(&cases)
}

#[test]
fn annotated_errors_are_found() {
    let Some(folder) = folder("trail") else { return };
    // Precision and F1 of locations, F1 of locations with category, weighted F1 of categories. On SWE the joint F1 is
    // below the aim of 0.30 since rules that guess were removed (tests/bench/rules.md, what is a rule).
    for (set, minimums) in [("gaia", [0.50, 0.52, 0.28, 0.35]), ("swe", [0.42, 0.50, 0.24, 0.30])] {
        let all = figures(&annotated_traces(&folder.join(set)), None);
        let measured = [all.location.precision(), all.location.f1(), all.joint.f1(), all.category_f1];
        println!("{set} {measured:.3?}");
        assert!(
            measured.iter().zip(minimums).all(|(figure, minimum)| *figure >= minimum),
            "{set} {measured:?}"
        );
    }
}

#[test]
fn scripted_faults_are_among_the_failing_spans() {
    let Some(folder) = folder("mas-sim") else { return };
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/examples/mas-sim.yaml");
    let config = otel_verdict::config::load(&[example]).unwrap();
    let (mut traces, mut found, mut failing) = (0, 0, 0);
    for file in files(&folder.join("traces")) {
        let gold: Json = serde_json::from_slice(
            &std::fs::read(folder.join("gold").join(file.file_name().unwrap())).unwrap(),
        )
        .unwrap();
        let evaluated = evaluate(&file, &config);
        let trace = &evaluated.trace.trace;
        let fails_itself = |i: &usize| {
            let verdict = evaluated.trace.verdicts.by_span.get(*i).copied().flatten();
            let by_itself = matches!(verdict, Some(Verdict::Fail(cause)) if cause.as_str() != "children");
            by_itself && trace.tree.parent(*i).is_some()
        };
        let failed: Vec<usize> = (0..trace.tree.len()).filter(fails_itself).collect();
        // Steps are the spans in order of time, without the root.
        let step = usize::try_from(gold["critical_failure_step"].as_u64().unwrap()).unwrap();
        let mut steps: Vec<usize> =
            (0..trace.tree.len()).filter(|i| trace.tree.parent(*i).is_some()).collect();
        steps.sort_by_key(|i| trace.tree.spans[*i].start);
        traces += 1;
        found += usize::from(failed.contains(&steps[step - 1]));
        failing += failed.len();
    }
    println!("{found} of {traces}, {failing} failing spans");
    assert!(found * 15 >= traces * 14, "{found} of {traces}");
    assert!(failing * 2 <= traces * 3, "{failing} failing spans in {traces} traces");
}

#[test]
#[ignore = "prints a table; see the module"]
fn what_each_rule_adds() {
    let Some(folder) = folder("trail") else { return };
    for set in ["gaia", "swe"] {
        let traces = annotated_traces(&folder.join(set));
        let all = figures(&traces, None);
        let row = |name: &str, n: usize, b: &Benchmark| {
            println!(
                "| {name} | {n} | {:+.3} | {:+.3} | {:+.3} | {:+.3} |",
                all.location.precision() - b.location.precision(),
                all.location.f1() - b.location.f1(),
                all.joint.f1() - b.joint.f1(),
                all.category_f1 - b.category_f1
            );
        };
        println!(
            "\n{set}: location precision {:.3}, F1 {:.3}; joint F1 {:.3}; category F1 {:.3}\n",
            all.location.precision(),
            all.location.f1(),
            all.joint.f1(),
            all.category_f1
        );
        println!(
            "| rule | findings | location P | location F1 | joint F1 | category F1 |\n|---|---|---|---|---|---|"
        );
        let findings = || {
            let measured =
                traces.iter().flat_map(|t| &t.measurements).filter_map(|m| m.outcome.as_ref().ok());
            let predicting = measured.flat_map(|m| &m.findings).filter(|f| f.category.is_some());
            predicting.filter_map(|f| f.rule_name())
        };
        for rule in findings().collect::<BTreeSet<String>>() {
            let n = findings().filter(|name| *name == rule).count();
            row(&rule, n, &figures(&traces, Some(&rule)));
        }
    }
}
