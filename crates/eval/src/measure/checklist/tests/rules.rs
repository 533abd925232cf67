//! Checklists whose checks are answered by rules.

use super::*;

/// The checklist on the agent's span `at`, with `asks` with judges.
fn step_at(trace: &AgentTrace, settings: &crate::measure::Settings, at: Idx, asks: bool) -> MetricProgress {
    let memo = Memo::new();
    let row = row("checklist.verdict");
    Checklist { asks }.step(&Context { row, trace, at, settings, memo: &memo, rule_measurements: &[] }, &[])
}

fn measured_by_rules(trace: &AgentTrace, settings: &crate::measure::Settings, at: Idx) -> Vec<Measurement> {
    match step_at(trace, settings, at, false) {
        MetricProgress::Done(all) => all,
        MetricProgress::Ask(_) => panic!("rules never ask"),
    }
}

#[test]
fn checklist_without_a_judge_is_undecided_and_a_failed_check_is_a_no() {
    let trace = specimens_run("St. Petersburg");
    let ruled = |yaml: &str| {
        let all = measured_by_rules(&trace, &settings(yaml), trace.agents[0].at);
        all.into_iter().next().map(|m| m.outcome.map(|o| o.passed))
    };
    let list = |text: &str, judges: &str| {
        format!(
            "{judges}checklist: {{ fixed: [{{ items: [{{ question: 'Is it polite?' }},
               {{ question: 'Is it so?', check: {{ contains: {{ text: '{text}' }} }} }}] }}] }}"
        )
    };
    assert_eq!(ruled("checklist: { generate: true }"), Some(Err(Unmeasured::Undecided)));
    assert_eq!(ruled(&list("Petersburg", "")), Some(Err(Unmeasured::Undecided)));
    assert_eq!(ruled(&list("Moscow", "")), Some(Ok(false)), "a no is a no");
    assert_eq!(ruled(&list("Petersburg", "judges: [rules, main]\n")), None, "judges answer the rest");
    assert_eq!(ruled(&list("Moscow", "judges: [rules, main]\n")), Some(Ok(false)));
}

#[test]
fn checklist_of_agents_measures_every_agent() {
    let trace = Script::new("Find the height of Elbrus.")
        .calls("", &[("searcher", r#"{"task": "Look Elbrus up."}"#)])
        .enter("Look Elbrus up.")
        .answers("5642 m")
        .leave()
        .answers("Elbrus is 5642 m high.")
        .build();
    let measured_at = |judged_agents: &str| -> Vec<Idx> {
        let one = settings(&format!(
            "checklist: {{ of: {judged_agents}, fixed: [{{ items: [{{ question: 'Is it named?', check: {{ contains: {{ text: '5642' }} }} }}] }}] }}"
        ));
        let measured = trace.agents.iter().flat_map(|agent| measured_by_rules(&trace, &one, agent.at));
        measured.map(|m| m.at).collect()
    };
    assert_eq!(measured_at("root"), [trace.tree.root().unwrap()]);
    assert_eq!(measured_at("agents"), [trace.agents[0].at, trace.agents[1].at]);
}

#[test]
fn checklist_of_checks_is_answered_by_rules() {
    let trace = specimens_run("St. Petersburg");
    let rules = settings(
        "checklist: { fixed: [{ match: { task: specimens }, items: [
           { question: 'Was anything searched?', check: { called: { tool: search } } },
           { question: 'Is the city spelt out?', check: { matches: { text: '^[^.]+$' } } } ] }] }",
    );
    let at = trace.agents[0].at;
    let measured = measured_by_rules(&trace, &rules, at);
    let value = measured[0].outcome.as_ref().unwrap();
    assert_eq!((value.passed, value.findings.len()), (false, 1));
    assert_eq!(value.findings[0].quote, "St. Petersburg");
    assert_eq!(measured[0].judge, "rules/1");
    assert_eq!(step_at(&trace, &rules, at, true), MetricProgress::Done(Vec::new()));
}
