//! Runs of real frameworks, read whole: those in `demo` and `tests/data/frameworks` always, all
//! others where `OTEL_VERDICT_CASES` names their folder.

use super::*;

const QUESTION: &str = "How many metres taller is Mount Elbrus than Mont Blanc";

fn all_cases() -> Vec<Case> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut folders = vec![root.join("demo"), root.join("tests/data/frameworks")];
    match std::env::var_os("OTEL_VERDICT_CASES") {
        Some(cases) => folders.push(PathBuf::from(cases).join("frameworks")),
        None => println!("OTEL_VERDICT_CASES is not set: only the shipped runs are read"),
    }
    let mut cases: Vec<PathBuf> = folders
        .iter()
        .filter(|f| f.is_dir())
        .flat_map(|f| fs::read_dir(f).unwrap().map(|e| e.unwrap().path()))
        .filter(|p| p.join("truth.json").is_file())
        .collect();
    cases.sort();
    cases.iter().map(|p| read_case(p)).collect()
}

/// Runs `check` on every case and reports all failures at once.
fn each(check: impl Fn(&Case) -> Result<(), String>) {
    let mut wrong = Vec::new();
    let cases = all_cases();
    assert!(cases.len() >= 10, "the shipped runs are there");
    for case in cases {
        if let Err(why) = check(&case) {
            wrong.push(format!("{}: {why}", case.name));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn model_and_tool_spans_are_counted_once() {
    each(|case| {
        let (llms, tools) = (case.count(Kind::Llm), case.count(Kind::Tool));
        let (want_llms, want_tools) = (case.truth("llm_spans").as_u64(), case.truth("tool_spans").as_u64());
        if (Some(llms as u64), Some(tools as u64)) != (want_llms, want_tools) {
            return Err(format!("{llms} llm, {tools} tool; expected {want_llms:?}, {want_tools:?}"));
        }
        Ok(())
    });
}

#[test]
fn every_run_has_an_agent_that_was_asked_the_question() {
    each(|case| {
        let Some((_, agent)) = case.agents().next() else { return Err("no agent".into()) };
        let content = case.truth("evidence_in_spans") == &Value::Bool(true) && case.count(Kind::Llm) > 0;
        match &agent.task {
            Some(task) if task.contains(QUESTION) => Ok(()),
            // The agent that was asked never arrived; the one that is there was asked by it.
            Some(_) if case.truth("scenario") == "killed" => Ok(()),
            Some(task) => Err(format!("task is {task}")),
            None if content => Err("no task".into()),
            None => Ok(()),
        }
    });
}

#[test]
fn correct_runs_have_their_answer() {
    each(|case| {
        if case.truth("scenario") != "a" {
            return Ok(());
        }
        let answers: Vec<_> = case.agents().map(|(_, a)| (a.answer.clone(), a.answer_content)).collect();
        // With content in log records there is evidence, though not in spans.
        let logged = case.truth("logs_requests").as_u64() > Some(0);
        if case.truth("evidence_in_spans") == &Value::Bool(true) || logged {
            match answers.first() {
                Some((Some(answer), _)) if answer.contains("836") => Ok(()),
                other => Err(format!("answer is {other:?}")),
            }
        } else if answers.iter().all(|(a, c)| a.is_none() && *c == Content::Absent) {
            Ok(())
        } else {
            Err(format!("answer out of nothing: {answers:?}"))
        }
    });
}

#[test]
fn tools_are_named_and_their_arguments_read() {
    const TOOLS: [&str; 5] = ["web_search", "visit_page", "calculator", "final_answer", "search_agent"];
    each(|case| {
        let content = case.truth("evidence_in_spans") == &Value::Bool(true) && case.truth("scenario") != "b"
            || case.count(Kind::Llm) > 0 && case.truth("evidence_in_spans") == &Value::Bool(true);
        for call in case.calls() {
            if !TOOLS.contains(&&*call.name)
                && case.truth("scenario") != "u"
                && &*call.name != "python_interpreter"
            {
                return Err(format!("a tool called {}", call.name));
            }
            let object = call.parsed.as_ref().is_some_and(|p| p.is_object());
            if content && !object && case.truth("scenario") != "m" {
                return Err(format!("{} with arguments {:?}", call.name, call.arguments));
            }
        }
        Ok(())
    });
}

#[test]
fn named_failures_of_tools_stand_on_their_calls() {
    each(|case| {
        for expected in case.truth("expected").as_array().into_iter().flatten() {
            if expected["defect"] != "tool_error_recovered" {
                continue;
            }
            let id = expected["span_id"].as_str().unwrap_or("");
            let failed = case.traces.iter().any(|s| {
                s.calls
                    .iter()
                    .any(|c| c.failed && c.tool.is_some_and(|t| s.tree.spans[t].id.to_string() == id))
            });
            if !failed {
                return Err(format!("the failed call of {id} is not seen"));
            }
        }
        Ok(())
    });
}

#[test]
fn outlines_of_three_runs_stay_as_they_are() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (folder, name) in
        [("demo", "strands-c"), ("demo", "vercelai-e"), ("tests/data/frameworks", "msagentframework-b")]
    {
        let outline = read_case(&root.join(folder).join(name)).outline();
        let golden = root.join(format!("tests/golden/outline-{name}.txt"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::create_dir_all(golden.parent().unwrap()).unwrap();
            fs::write(&golden, &outline).unwrap();
        }
        let known = fs::read_to_string(&golden).unwrap();
        assert!(outline == known, "{name} reads differently; UPDATE_GOLDEN=1 accepts it:\n{outline}");
    }
}

/// Traces in OTLP/JSON under `folder` of the cases.
fn json_traces(folder: &str) -> Vec<(String, AgentTrace)> {
    let Some(cases) = std::env::var_os("OTEL_VERDICT_CASES") else {
        println!("skipped: OTEL_VERDICT_CASES is not set");
        return Vec::new();
    };
    let recogniser = recogniser();
    let mut files: Vec<PathBuf> =
        fs::read_dir(PathBuf::from(cases).join(folder)).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    let mut out = Vec::new();
    for file in files {
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
fn trail_runs_read_with_agents_tasks_tools_and_answers() {
    for (name, trace) in ["trail/gaia/traces", "trail/swe/traces"].iter().flat_map(|f| json_traces(f)) {
        assert!(!trace.agents.is_empty(), "{name}: no agent");
        let manager = &trace.agents[0];
        assert!(manager.task.as_ref().is_some_and(|t| t.len() > 20), "{name}: task {:?}", manager.task);
        for (at, view) in trace.views.iter().enumerate() {
            if view.kind == Kind::Llm && view.errors.is_empty() {
                assert_eq!(view.input_content, Content::Present, "{name}: span {at}");
                assert!(view.tokens.total.is_some(), "{name}: span {at}");
            }
        }
        for call in &trace.calls {
            assert!(
                !call.name.is_empty() && call.llm.is_some(),
                "{name}: {} {:?}",
                call.name,
                call.arguments
            );
            let object = call.parsed.as_ref().is_some_and(|p| p.is_object());
            assert!(object || call.tool.is_none(), "{name}: {} {:?}", call.name, call.arguments);
        }
    }
}

#[test]
fn a_hand_instrumented_graph_reads_without_being_taught() {
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
