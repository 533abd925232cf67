//! Recorded runs of real frameworks.

use std::fs;
use std::path::PathBuf;

use super::*;
use crate::recognise::recorded_cases::{RecordedCase, files, read_case, recorded_cases, root};

const QUESTION: &str = "How many metres taller is Mount Elbrus than Mont Blanc";

impl RecordedCase {
    fn count(&self, kind: Kind) -> u64 {
        let views = self.traces.iter().flat_map(|trace| &trace.views);
        views.filter(|view| view.kind == kind && !view.wrapper).count() as u64
    }

    fn agents(&self) -> impl Iterator<Item = &Agent> {
        self.traces.iter().flat_map(|trace| &trace.agents)
    }

    fn calls(&self) -> impl Iterator<Item = &Call> {
        self.traces.iter().flat_map(|trace| &trace.calls)
    }
}

/// Runs `check` on every case and reports all failures at once.
fn check_all_cases(check: impl Fn(&RecordedCase) -> Result<(), String>) {
    let mut failures = Vec::new();
    let cases = recorded_cases();
    assert!(cases.len() >= 10, "the runs of the repository are missing");
    for case in cases {
        if let Err(reason) = check(&case) {
            failures.push(format!("{}: {reason}", case.name));
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

#[test]
fn number_of_model_and_tool_spans_is_as_recorded() {
    check_all_cases(|case| {
        let (llms, tools) = (case.count(Kind::Llm), case.count(Kind::Tool));
        let (expected_llms, expected_tools) =
            (case.truth["llm_spans"].as_u64(), case.truth["tool_spans"].as_u64());
        if (Some(llms), Some(tools)) != (expected_llms, expected_tools) {
            return Err(format!("{llms} llm, {tools} tool; expected {expected_llms:?}, {expected_tools:?}"));
        }
        Ok(())
    });
}

#[test]
fn every_run_has_an_agent_whose_task_is_the_question() {
    check_all_cases(|case| {
        let Some(agent) = case.agents().next() else { return Err("no agent".into()) };
        let has_content = case.truth["evidence_in_spans"] == true && case.count(Kind::Llm) > 0;
        match &agent.task {
            Some(task) if task.contains(QUESTION) => Ok(()),
            // The span of the agent that was asked is missing; this agent was called by it.
            Some(_) if case.truth["scenario"] == "killed" => Ok(()),
            Some(task) => Err(format!("task is {task}")),
            None if has_content => Err("no task".into()),
            None => Ok(()),
        }
    });
}

#[test]
fn agents_of_correct_runs_have_their_answer() {
    check_all_cases(|case| {
        if case.truth["scenario"] != "a" {
            return Ok(());
        }
        let answers: Vec<_> = case.agents().map(|a| (a.answer.clone(), a.answer_content)).collect();
        // The content may be in log records instead of spans.
        let has_logs = case.truth["logs_requests"].as_u64() > Some(0);
        if case.truth["evidence_in_spans"] == true || has_logs {
            match answers.first() {
                Some((Some(answer), _)) if answer.contains("836") => Ok(()),
                other => Err(format!("answer is {other:?}")),
            }
        } else if answers.iter().all(|(a, c)| a.is_none() && *c == Content::Absent) {
            Ok(())
        } else {
            Err(format!("expected no answer without content, found {answers:?}"))
        }
    });
}

#[test]
fn calls_have_the_name_and_arguments_of_their_tool() {
    const TOOLS: [&str; 5] = ["web_search", "visit_page", "calculator", "final_answer", "search_agent"];
    check_all_cases(|case| {
        let has_content = case.truth["evidence_in_spans"] == true
            && (case.truth["scenario"] != "b" || case.count(Kind::Llm) > 0);
        for call in case.calls() {
            if !TOOLS.contains(&&*call.name)
                && case.truth["scenario"] != "u"
                && &*call.name != "python_interpreter"
            {
                return Err(format!("unexpected tool {}", call.name));
            }
            let is_object = call.parsed.as_ref().is_some_and(|p| p.is_object());
            if has_content && !is_object && case.truth["scenario"] != "m" {
                return Err(format!("{} with arguments {:?}", call.name, call.arguments));
            }
        }
        Ok(())
    });
}

#[test]
fn known_failures_of_tools_are_marked_on_their_calls() {
    check_all_cases(|case| {
        for expected in case.truth["expected"].as_array().into_iter().flatten() {
            if expected["defect"] != "tool_error_recovered" {
                continue;
            }
            let id = expected["span_id"].as_str().unwrap_or("");
            let failed = case.traces.iter().any(|trace| {
                trace
                    .calls
                    .iter()
                    .any(|c| c.failed && c.tool.is_some_and(|t| trace.tree.spans[t].id.to_string() == id))
            });
            if !failed {
                return Err(format!("the call of {id} is not marked as failed"));
            }
        }
        Ok(())
    });
}

#[test]
fn outlines_of_three_runs_equal_their_golden_files() {
    for (folder, name) in
        [("demo", "strands-c"), ("demo", "vercelai-e"), ("tests/data/frameworks", "msagentframework-b")]
    {
        let case = read_case(&root().join(folder).join(name));
        let outline: String = case.traces.iter().map(AgentTrace::outline).collect();
        let golden = root().join(format!("tests/golden/outline-{name}.txt"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::create_dir_all(golden.parent().unwrap()).unwrap();
            fs::write(&golden, &outline).unwrap();
        }
        let expected = fs::read_to_string(&golden).unwrap();
        assert!(
            outline == expected,
            "{name} differs from its golden file; UPDATE_GOLDEN=1 accepts it:\n{outline}"
        );
    }
}

/// Runs of frameworks with the versions of docs/frameworks.md, one trace each, with the outline next to it.
#[test]
fn outlines_of_the_runs_of_other_frameworks_are_as_expected() {
    let folder = files(&root().join("tests/data/live"));
    let traces = folder.iter().filter(|file| file.extension().is_some_and(|end| end == "json"));
    let mut wrong = Vec::new();
    for file in traces {
        let body = decode(Signal::Traces, &fs::read(file).unwrap()).unwrap();
        let groups = split(&body, "verdict.", &Interner::default()).unwrap().groups;
        let trace = groups.first().unwrap().trace;
        let spans = groups.into_iter().flat_map(|group| group.spans).collect();
        let outline = recogniser().trace(Tree::new(trace, spans), &[], false).outline();
        let expected = file.with_extension("txt");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&expected, &outline).unwrap();
        }
        if fs::read_to_string(&expected).unwrap_or_default() != outline {
            wrong.push(format!("{}\n{outline}", file.display()));
        }
    }
    assert!(folder.len() >= 16 && wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The traces in OTLP/JSON in `folder` of `OTEL_VERDICT_CASES`.
fn json_traces(folder: &str) -> Vec<(String, AgentTrace)> {
    let Some(cases) = std::env::var_os("OTEL_VERDICT_CASES") else {
        println!("skipped: OTEL_VERDICT_CASES is not set");
        return Vec::new();
    };
    let recogniser = recogniser();
    let mut out = Vec::new();
    for file in files(&PathBuf::from(cases).join(folder)) {
        let json = fs::read(&file).unwrap();
        let body = verdict_otlp::json::decode(verdict_otlp::Signal::Traces, &json).unwrap();
        for group in split(&body, "verdict.", &Interner::default()).unwrap().groups {
            let name = file.file_stem().unwrap().to_string_lossy().into_owned();
            out.push((name, recogniser.trace(Tree::new(group.trace, group.spans), &[], false)));
        }
    }
    out
}

#[test]
fn trail_runs_have_agents_tasks_content_and_calls() {
    for (name, trace) in ["trail/gaia/traces", "trail/swe/traces"].iter().flat_map(|f| json_traces(f)) {
        assert!(!trace.agents.is_empty(), "{name}: no agent");
        let manager = &trace.agents[0];
        assert!(manager.task.as_ref().is_some_and(|t| t.len() > 20), "{name}: task {:?}", manager.task);
        for (index, view) in trace.views.iter().enumerate() {
            if view.kind == Kind::Llm && view.errors.is_empty() {
                assert_eq!(view.input_content, Content::Present, "{name}: span {index}");
                assert!(view.tokens.total.is_some(), "{name}: span {index}");
            }
        }
        for call in &trace.calls {
            assert!(
                !call.name.is_empty() && call.llm.is_some(),
                "{name}: {} {:?}",
                call.name,
                call.arguments
            );
            let is_object = call.parsed.as_ref().is_some_and(|p| p.is_object());
            assert!(is_object || call.tool.is_none(), "{name}: {} {:?}", call.name, call.arguments);
        }
    }
}

#[test]
fn manually_instrumented_graph_is_recognised_without_configuration() {
    for (name, trace) in json_traces("mas-sim/traces") {
        let count = |kind| trace.views.iter().filter(|r| r.kind == kind && !r.wrapper).count();
        assert_eq!((count(Kind::Llm), count(Kind::Tool)), (4, 1), "{name}");
        let agent = &trace.agents[0];
        assert!(agent.task.as_ref().is_some_and(|t| t.contains('?')), "{name}: {:?}", agent.task);
        assert!(agent.answer.is_some(), "{name}");
        let call = trace.calls.iter().find(|c| c.tool.is_some()).unwrap();
        assert_eq!(&*call.name, "ProductCatalogSearch", "{name}");
        assert!(call.parsed.is_some() && call.result.is_some(), "{name}");
    }
}
