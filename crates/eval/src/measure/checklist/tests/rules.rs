//! Checklists whose checks are answered by rules.

use super::*;

#[test]
fn checklist_without_a_judge_is_undecided_and_a_failed_check_is_a_no() {
    let trace = specimens_run("St. Petersburg");
    let ruled = |yaml: &str| {
        let (settings, memo) = (settings(yaml), Memo::new());
        let context = Context {
            row: row("checklist.verdict"),
            trace: &trace,
            at: trace.agents[0].at,
            settings: &settings,
            memo: &memo,
            rule_measurements: &[],
        };
        let MetricProgress::Done(all) = (Checklist { asks: false }).step(&context, &[]) else {
            panic!("rules never ask")
        };
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
        let at = |agent: &Agent| {
            let memo = Memo::new();
            let context = Context {
                row: row("checklist.verdict"),
                trace: &trace,
                at: agent.at,
                settings: &one,
                memo: &memo,
                rule_measurements: &[],
            };
            match (Checklist { asks: false }).step(&context, &[]) {
                MetricProgress::Done(all) => all.into_iter().map(|m| m.at).collect::<Vec<_>>(),
                MetricProgress::Ask(_) => panic!("rules never ask"),
            }
        };
        trace.agents.iter().flat_map(at).collect()
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
    let memo = Memo::new();
    let context = Context {
        row: row("checklist.verdict"),
        trace: &trace,
        at: trace.agents[0].at,
        settings: &rules,
        memo: &memo,
        rule_measurements: &[],
    };
    let MetricProgress::Done(measured) = (Checklist { asks: false }).step(&context, &[]) else {
        panic!("rules never ask")
    };
    let value = measured[0].outcome.as_ref().unwrap();
    assert_eq!((value.passed, value.findings.len()), (false, 1));
    assert_eq!(value.findings[0].quote, "St. Petersburg");
    assert_eq!(measured[0].judge, "rules/1");
    assert_eq!((Checklist { asks: true }).step(&context, &[]), MetricProgress::Done(Vec::new()));
}
