//! Whole runs with one mark each: the reward of tau-bench, the decisive step of Who&When, and the labels of the small
//! runs. Minimum figures, and what each rule contributes to the verdicts.
//!
//! Tests run where `OTEL_VERDICT_CASES` names the unpacked cases and skip otherwise. The table of what each rule
//! contributes is printed by `cargo test --test it -- --ignored what_each_rule_decides --nocapture`.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};

use otel_verdict::config::Config;
use otel_verdict::pipeline::offline::RecordingEvaluation;
use otel_verdict::receive::Offer;
use otel_verdict::score::fit::{LabelledRun, OutcomeFit, RunSet};
use serde_json::Value as Json;
use verdict_eval::metrics::Measurement;
use verdict_eval::propagation::{OutcomeEvidence, Policies, Verdict, propagate};
use verdict_eval::trace::AgentTrace;
use verdict_otlp::{Signal, json};

/// A labelled run.
struct Run {
    trace: AgentTrace,
    measurements: Vec<Measurement>,
    failed: bool,
    /// The spans of the decisive step, where one is marked.
    decisive: BTreeSet<String>,
}

impl Run {
    /// The measurements without the findings of one rule; one that fails by that rule alone passes.
    fn without(&self, rule: Option<&str>) -> Vec<Measurement> {
        let mut measurements = self.measurements.clone();
        for measured in measurements.iter_mut().filter_map(|m| m.outcome.as_mut().ok()) {
            let before = measured.findings.len();
            measured.findings.retain(|finding| rule.is_none() || finding.rule_name().as_deref() != rule);
            let decides = measured.findings.iter().any(|finding| !finding.is_note());
            measured.passed |= measured.findings.len() < before && !decides;
        }
        measurements
    }

    /// Whether the run fails under `outcome_relevant`.
    fn fails(&self, rule: Option<&str>) -> bool {
        propagate(&self.trace, &self.without(rule), &outcome_relevant()).trace.passed == Some(false)
    }

    /// The spans that fail by their own metrics, in the order of their start.
    fn failing_spans(&self, rule: Option<&str>) -> Vec<String> {
        let verdicts = propagate(&self.trace, &self.without(rule), &Policies::default());
        let tree = &self.trace.tree;
        let by_itself = |i: &usize| {
            let verdict = verdicts.by_span.get(*i).copied().flatten();
            matches!(verdict, Some(Verdict::Fail(cause)) if cause.as_str() != "children")
        };
        let mut failing: Vec<usize> = (0..tree.len()).filter(by_itself).collect();
        failing.sort_by_key(|i| tree.spans[*i].start);
        failing.into_iter().map(|i| tree.spans[i].id.to_string()).collect()
    }

    fn step_is_right(&self, rule: Option<&str>) -> bool {
        self.failing_spans(rule).first().is_some_and(|first| self.decisive.contains(first))
    }
}

fn outcome_relevant() -> Policies {
    serde_json::from_value(serde_json::json!({ "default": "outcome_relevant" })).unwrap()
}

/// The traces of a file of OTLP/JSON lines, evaluated by rules.
fn evaluated(lines: &str) -> Vec<(AgentTrace, Vec<Measurement>)> {
    let mut evaluation = RecordingEvaluation::new(&Config::default(), 0).unwrap();
    for line in lines.lines() {
        let body = json::decode(Signal::Traces, line.as_bytes()).unwrap();
        evaluation.add(&Offer { signal: Signal::Traces, body }).unwrap();
    }
    let mut traces = Vec::new();
    crate::support::finish(&mut evaluation, |evaluated| {
        traces.push((evaluated.trace.trace, evaluated.trace.measurements));
    });
    traces
}

fn parse(file: &Path) -> Json {
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

fn labelled_runs(set: &str) -> Option<Vec<Run>> {
    let Some(cases) = std::env::var_os("OTEL_VERDICT_CASES") else {
        println!("skipped: OTEL_VERDICT_CASES is not set");
        return None;
    };
    let folder = PathBuf::from(cases).join("attribution").join(set);
    let [gold, map] = ["gold.json", "map.json"].map(|name| parse(&folder.join(name)));
    let lines = std::fs::read_to_string(folder.join("traces.jsonl")).unwrap();
    let runs = evaluated(&lines).into_iter().map(|(trace, measurements)| {
        let positions = &map[trace.tree.id.to_string()];
        let marks = &gold[positions["log"].as_str().unwrap()];
        let step = &marks["marks"]["whowhen"]["step"];
        let spans = positions["spans"].as_object().unwrap().iter();
        let decisive = spans.filter(|(_, position)| step.is_number() && position["step"] == *step);
        Run {
            trace,
            measurements,
            failed: marks["outcome"] == "fail",
            decisive: decisive.map(|(id, _)| id.clone()).collect(),
        }
    });
    Some(runs.collect())
}

/// The small runs of this repository.
fn small_runs() -> Vec<Run> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/small");
    let mut all = Vec::new();
    for set in ["first", "second", "third"] {
        let file = std::fs::File::open(folder.join(format!("{set}.jsonl.gz"))).unwrap();
        let mut lines = String::new();
        flate2::read::MultiGzDecoder::new(file).read_to_string(&mut lines).unwrap();
        let labels = parse(&folder.join(format!("{set}.labels.json")));
        for (trace, measurements) in evaluated(&lines) {
            let id = trace.tree.id.to_string();
            let label = labels["traces"].as_array().unwrap().iter().find(|label| label["trace_id"] == *id);
            let failed = label.unwrap()["expected"] == "fail";
            all.push(Run { trace, measurements, failed, decisive: BTreeSet::new() });
        }
    }
    all
}

/// The numbers of successful runs and of failed runs whose verdict is a failure under `outcome_relevant`.
fn failing(runs: &[Run], rule: Option<&str>) -> [usize; 2] {
    [false, true].map(|failed| runs.iter().filter(|run| run.failed == failed && run.fails(rule)).count())
}

/// The area under the ROC curve of the probability of failure, by the shipped weights.
fn area(runs: &[Run], rule: Option<&str>) -> f64 {
    let labelled = runs.iter().map(|run| LabelledRun {
        terms: OutcomeEvidence::new(&run.trace, &run.without(rule)).terms,
        terms_without: Vec::new(),
        failed: run.failed,
    });
    let set = RunSet { name: "runs".to_owned(), runs: labelled.collect() };
    OutcomeFit::from_sets(&[set]).unwrap().sets[0].auc_shipped.unwrap()
}

fn tau() -> Option<Vec<Run>> {
    let mut runs = labelled_runs("tau-airline")?;
    runs.extend(labelled_runs("tau-retail")?);
    Some(runs)
}

#[test]
fn verdicts_distinguish_successful_runs_from_failed_ones() {
    let Some(runs) = tau() else { return };
    let failed = runs.iter().filter(|run| run.failed).count();
    let [alarms, found] = failing(&runs, None);
    let (alarm_rate, hit_rate) = (alarms as f64 / (runs.len() - failed) as f64, found as f64 / failed as f64);
    let area = area(&runs, None);
    println!("{alarms} of {} and {found} of {failed} fail, area {area:.3}", runs.len() - failed);
    // The aims of false alarms, of Youden's J and of the area.
    assert!(alarm_rate <= 3.0 / 71.0 && hit_rate - alarm_rate >= 0.20 && area >= 0.70);
}

#[test]
fn decisive_steps_are_the_first_failing_ones() {
    let Some(runs) = labelled_runs("whowhen-ag") else { return };
    let right = runs.iter().filter(|run| run.step_is_right(None)).count();
    let spans: usize = runs.iter().map(|run| run.failing_spans(None).len()).sum();
    println!("{right} of {}, {spans} failing spans", runs.len());
    assert!(right * 100 >= runs.len() * 27 && spans <= runs.len(), "{right} of {}, {spans}", runs.len());
}

#[test]
#[ignore = "prints a table; see the module"]
fn what_each_rule_decides() {
    let (Some(tau), Some(whowhen)) = (tau(), labelled_runs("whowhen-ag")) else { return };
    let small = small_runs();
    let findings = |run: &Run| {
        let measured = run.measurements.iter().filter_map(|m| m.outcome.as_ref().ok());
        let failing = measured.filter(|measured| !measured.passed);
        failing.flat_map(|measured| measured.findings.clone()).collect::<Vec<_>>()
    };
    let all = tau.iter().chain(&whowhen).chain(&small).flat_map(findings);
    let rules: BTreeSet<String> = all.filter(|f| !f.is_note()).filter_map(|f| f.rule_name()).collect();
    let figures = |rule: Option<&str>| {
        let steps = whowhen.iter().filter(|run| run.step_is_right(rule)).count();
        (failing(&tau, rule), area(&tau, rule), steps, failing(&small, rule))
    };
    let ([tau_right, tau_wrong], tau_area, steps, [small_right, small_wrong]) = figures(None);
    println!(
        "tau-bench: {tau_right} and {tau_wrong} fail, area {tau_area:.3}; Who&When: {steps} steps; small runs: \
         {small_right} and {small_wrong} fail\n"
    );
    println!(
        "| rule | tau: right fail | wrong fail | area | Who&When: steps | small: right fail | wrong fail |"
    );
    println!("|---|---|---|---|---|---|---|");
    for rule in rules {
        let (tau, area, steps_left, small) = figures(Some(&rule));
        let difference = |all: usize, left: usize| all as i64 - left as i64;
        println!(
            "| `{rule}` | {:+} | {:+} | {:+.3} | {:+} | {:+} | {:+} |",
            difference(tau_right, tau[0]),
            difference(tau_wrong, tau[1]),
            tau_area - area,
            difference(steps, steps_left),
            difference(small_right, small[0]),
            difference(small_wrong, small[1]),
        );
    }
}
