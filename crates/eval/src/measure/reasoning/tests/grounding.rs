//! Answers compared with structured results in small invented runs of several domains, half of them right.
//!
//! The runs are in `runs.json`; `wrong` names what is wrong in a run. They were written before the rules, whose
//! words were not chosen by them: a miss is no fault of this test as long as the share of those found holds.

use serde_json::Value as Json;

use super::*;
use crate::measure::defects::Defect;

fn runs() -> Vec<Json> {
    serde_json::from_str(include_str!("runs.json")).unwrap()
}

fn script(run: &Json) -> AgentTrace {
    let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
    let calls = run["calls"].as_array().unwrap();
    let names: Vec<&str> = calls.iter().map(|call| call["name"].as_str().unwrap()).collect();
    let script = Script::new(&text(&run["task"])).tools(&names);
    let script = match run["system"].as_str() {
        Some(system) => script.system(system),
        None => script,
    };
    let script = calls.iter().fold(script, |script, call| {
        let arguments = call["arguments"].to_string();
        script.calls("", &[(call["name"].as_str().unwrap(), &arguments)]).returns(&text(&call["result"]))
    });
    script.answers(&text(&run["answer"])).build()
}

fn found(trace: &AgentTrace) -> Vec<(Defect, String)> {
    let llms = trace.agents.iter().flat_map(|agent| agent.llms.iter().copied());
    llms.filter_map(|at| outcome_at(trace, at).ok())
        .flat_map(|measured| measured.findings)
        .filter_map(|finding| Some((finding.defect?, finding.rationale)))
        .collect()
}

#[test]
fn right_runs_have_no_findings_and_wrong_ones_have() {
    let (mut alarms, mut missed, mut wrong) = (Vec::new(), Vec::new(), 0);
    for run in runs() {
        let found = found(&script(&run));
        let summary = format!("{}: {} -> {} {found:?}", run["domain"], run["task"], run["answer"]);
        match (run.get("wrong").is_some(), found.is_empty()) {
            (false, false) => alarms.push(summary),
            (true, true) => missed.push(summary),
            _ => {}
        }
        wrong += usize::from(run.get("wrong").is_some());
    }
    eprintln!("missed {} of {wrong}:\n{}", missed.len(), missed.join("\n"));
    assert!(alarms.is_empty(), "right runs with findings:\n{}", alarms.join("\n"));
    assert!(missed.len() * 5 <= wrong, "missed {} of {wrong}:\n{}", missed.len(), missed.join("\n"));
}
