//! The same run has the same verdict whether its graph and its sub-agents are called agents or chains.
//!
//! Every recorded run is judged with each combination of these labels, which differ between frameworks for
//! the same program. The result of the trace, the measurements of the root and the failing metrics of leaf spans must
//! not depend on them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value};
use otel_verdict::config::{Config, from_sources};
use otel_verdict::pipeline::offline::{EvaluatedRecording, RecordingEvaluation};
use otel_verdict::receive::Offer;
use prost::Message;
use verdict_config::Source;
use verdict_eval::trace::AgentTrace;
use verdict_otlp::trace::{Idx, Kind};
use verdict_otlp::{Signal, json};

use crate::frameworks::{case, hex};

/// The attribute that the test's configuration reads the kind of a span from.
const KIND_KEY: &str = "test.kind";
const LABELS: [&str; 2] = ["agent", "chain"];

fn config() -> Config {
    let yaml = format!(
        "receivers: {{ otlp: {{ protocols: {{ http: {{}} }} }} }}\nexporters: {{ console: {{}} }}\n\
         verdict: {{ recognise: {{ kinds: [{{ key: {KIND_KEY}, values: {{ agent: agent, chain: chain }} }}] }} }}\n\
         service: {{ exporters: [console] }}\n"
    );
    let source = Source { name: "test".to_owned(), text: yaml };
    from_sources(&[source], &|_| None).unwrap()
}

/// The label of each span that has one, by its id.
type Labels = BTreeMap<String, &'static str>;

fn evaluate(config: &Config, run: &[Offer], labels: &Labels) -> Vec<EvaluatedRecording> {
    let mut evaluation = RecordingEvaluation::new(config, 0).unwrap();
    for offer in run {
        let body =
            if offer.signal == Signal::Traces { labelled(&offer.body, labels) } else { offer.body.clone() };
        evaluation.add(&Offer { signal: offer.signal, body }).unwrap();
    }
    let mut out = Vec::new();
    crate::support::finish(&mut evaluation, |evaluated| out.push(evaluated));
    out
}

fn labelled(body: &Bytes, labels: &Labels) -> Bytes {
    let mut request = ExportTraceServiceRequest::decode(body.clone()).unwrap();
    let scopes = request.resource_spans.iter_mut().flat_map(|resource| &mut resource.scope_spans);
    for span in scopes.flat_map(|scope| &mut scope.spans) {
        if let Some(label) = labels.get(&hex(&span.span_id)) {
            let value = Some(AnyValue { value: Some(Value::StringValue((*label).to_owned())) });
            span.attributes.push(KeyValue { key: KIND_KEY.to_owned(), value, ..KeyValue::default() });
        }
    }
    Bytes::from(request.encode_to_vec())
}

/// The spans that frame the work of the run: the root, and the agents beneath it.
struct Frames {
    root: String,
    agents: BTreeSet<String>,
}

impl Frames {
    fn from_trace(trace: &AgentTrace) -> Option<Frames> {
        let [top] = trace.tree.top() else { return None };
        let id = |at: Idx| trace.tree.spans[at].id.to_string();
        let frames = matches!(trace.views[*top].kind, Kind::Agent | Kind::Chain)
            && trace.tree.spans[*top].parent.is_zero();
        let agents = trace.agents.iter().filter(|agent| agent.at != *top).map(|agent| id(agent.at));
        frames.then(|| Frames { root: id(*top), agents: agents.collect() })
    }

    fn labels(&self, root: &'static str, agents: &'static str) -> Labels {
        let agents = self.agents.iter().map(|id| (id.clone(), agents));
        agents.chain([(self.root.clone(), root)]).collect()
    }
}

/// The results that must not depend on labels.
#[derive(PartialEq, Debug)]
struct Outcome {
    passed: Option<bool>,
    /// The measurements of the outermost agents, with their results. Which span frames the run depends on labels
    /// where one frame is in another.
    run: BTreeMap<String, BTreeSet<String>>,
    /// The failing metrics of spans without children.
    leaves: BTreeSet<(String, String)>,
}

impl Outcome {
    fn new(evaluated: &EvaluatedRecording) -> Outcome {
        let trace = &evaluated.trace.trace;
        let outermost: BTreeSet<Idx> =
            trace.agents.iter().filter(|agent| agent.parent.is_none()).map(|agent| agent.at).collect();
        let passed = evaluated.trace.summary.passed;
        let mut outcome = Outcome { passed, run: BTreeMap::new(), leaves: BTreeSet::new() };
        for m in &evaluated.trace.measurements {
            let result = match &m.outcome {
                Ok(measured) if measured.passed => "pass",
                Ok(_) => "fail",
                Err(reason) => reason.as_str(),
            };
            if outermost.contains(&m.at) {
                outcome.run.entry(m.metric.to_owned()).or_default().insert(result.to_owned());
            } else if result == "fail" && trace.tree.children(m.at).is_empty() {
                outcome.leaves.insert((trace.tree.spans[m.at].id.to_string(), m.metric.to_owned()));
            }
        }
        outcome
    }
}

/// The differences of a run's outcome by labels.
fn differences(config: &Config, name: &str, run: &[Offer]) -> (usize, Vec<String>) {
    let recorded = evaluate(config, run, &Labels::new());
    let [recorded] = recorded.as_slice() else { return (0, Vec::new()) };
    let Some(frames) = Frames::from_trace(&recorded.trace.trace) else { return (0, Vec::new()) };
    let expected = Outcome::new(recorded);
    let mut out = Vec::new();
    for (root, agents) in LABELS.iter().flat_map(|root| LABELS.iter().map(move |agents| (root, agents))) {
        let evaluated = evaluate(config, run, &frames.labels(root, agents));
        let outcome = Outcome::new(&evaluated[0]);
        if outcome != expected {
            let metrics: BTreeSet<_> = expected.run.keys().chain(outcome.run.keys()).collect();
            let differs = |metric: &&&String| expected.run.get(**metric) != outcome.run.get(**metric);
            let run_differences: Vec<String> = metrics
                .iter()
                .filter(differs)
                .map(|metric| {
                    format!("{metric}: {:?} -> {:?}", expected.run.get(*metric), outcome.run.get(*metric))
                })
                .collect();
            let leaves: Vec<_> = expected.leaves.symmetric_difference(&outcome.leaves).collect();
            out.push(format!(
                "{name}, root {root}, {} agents beneath {agents}: {:?} -> {:?}; {run_differences:?}, leaves {leaves:?}",
                frames.agents.len(),
                expected.passed,
                outcome.passed,
            ));
        }
    }
    (frames.agents.len(), out)
}

/// The recorded runs of the repository, and those that `OTEL_VERDICT_CASES` names.
fn runs() -> Vec<(String, Vec<Offer>)> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let others = std::env::var_os("OTEL_VERDICT_CASES").map(PathBuf::from);
    let mut folders = vec![repository.join("demo"), repository.join("tests/data/frameworks")];
    folders.extend(others.iter().map(|folder| folder.join("frameworks")));
    let entries = |folder: PathBuf| {
        let mut paths: Vec<PathBuf> =
            std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths
    };
    let cases = folders.into_iter().flat_map(entries).filter(|path| path.join("truth.json").is_file());
    let mut runs: Vec<(String, Vec<Offer>)> =
        cases.map(|path| case(&path)).map(|case| (case.name, case.requests)).collect();
    for set in ["mas-sim/traces", "trail/gaia/traces", "trail/swe/traces"] {
        let files = others.iter().flat_map(|folder| entries(folder.join(set)));
        runs.extend(files.filter(|file| file.extension().is_some_and(|e| e == "json")).take(30).map(
            |file| {
                let body = json::decode(Signal::Traces, &std::fs::read(&file).unwrap()).unwrap();
                (file.display().to_string(), vec![Offer { signal: Signal::Traces, body }])
            },
        ));
    }
    runs
}

#[test]
fn verdicts_do_not_depend_on_the_labels_of_graphs_and_agents() {
    let config = config();
    let (mut multiple, mut all_differences) = (0, Vec::new());
    let runs = runs();
    for (name, run) in &runs {
        let (agents, differences) = differences(&config, name, run);
        multiple += usize::from(agents > 0);
        all_differences.extend(differences);
    }
    println!("{} runs, {multiple} with agents beneath the root\n{}", runs.len(), all_differences.join("\n"));
    assert!(all_differences.is_empty());
}
