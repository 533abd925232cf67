//! Questions about whole runs, in one part and in many.

use super::*;
use crate::measure::ask::config::AskCondition;

const GOAL: &str = "gpa.goal_fulfillment";

#[test]
fn run_is_asked_about_once_and_its_score_compared_with_the_threshold() {
    let trace = bridge();
    for (grade, passed) in [(3, true), (2, true), (1, false), (0, false)] {
        let (all, asked) = judged(&trace, &settings(&[GOAL]), |_| {
            Ok(vec![reply_with(grade, &[finding(&trace, 3, "in 1884", "high")])])
        });
        assert_eq!(asked.len(), 1);
        let m = all.iter().find(|m| m.metric == GOAL).unwrap();
        assert_eq!((m.at, score(m)), (0, Some(f64::from(grade))));
        let measured = m.outcome.as_ref().unwrap();
        assert_eq!(measured.passed, passed);
        assert_eq!(measured.findings[0].cited, [trace.tree.spans[3].id]);
    }
}

/// A manager with a helper that fails; the manager plans twice.
fn team() -> AgentTrace {
    Script::new("How long is the bridge, and who built it?")
        .system("You are the manager.")
        .tools(&["helper", "calculator"])
        .says("1. ask the helper\n2. compute the length")
        .plan(&["ask the helper", "compute the length"])
        .calls("I ask the helper.", &[("helper", r#"{"task":"find the bridge"}"#)])
        .enter("Find the bridge.")
        .system("You are the helper.")
        .tools(&["search"])
        .calls("", &[("search", r#"{"q":"bridge"}"#)])
        .raises("HTTP 503: search is down")
        .answers("I could not search.")
        .leave()
        .says("1. guess the length")
        .plan(&["guess the length"])
        .answers("It is 229 m long.")
        .build()
}

/// The measurements of one metric.
fn measurements_of<'m>(all: &'m [Measurement], metric: &str) -> Vec<&'m Measurement> {
    all.iter().filter(|m| m.metric == metric).collect()
}

#[test]
fn agents_are_judged_separately_and_the_trace_on_its_root() {
    let trace = team();
    let (all, asked) = judged(&trace, &settings(&[GOAL]), |_| Ok(vec![reply_with(3, &[])]));
    let spans: Vec<usize> = measurements_of(&all, GOAL).iter().map(|m| m.at).collect();
    assert_eq!(spans, [trace.agents[0].at, trace.agents[1].at]);
    assert!(asked[0].question.prompt.user.contains("the whole run, of all its agents"));
    let itself =
        |i: usize| format!("the agent of span {} by itself", trace.tree.spans[trace.agents[i].at].id);
    assert!(asked[1].question.prompt.user.contains(&itself(1)));
    assert!(asked[1].question.prompt.user.contains("the agent's name]\nhelper\n"));
    // Without the trace, the manager is judged by itself as well.
    let mut settings = settings(&[GOAL]);
    settings.gpa.per = vec![crate::measure::gpa::Per::Agents];
    let (_, asked) = judged(&trace, &settings, |_| Ok(vec![reply_with(3, &[])]));
    let manager = &asked[0].question.prompt.user;
    assert!(manager.contains(&itself(0)));
    assert!(manager.contains("I could not search.") && !manager.contains(r#"{"q":"bridge"}"#), "{manager}");
}

#[test]
fn trace_is_judged_on_a_root_that_only_wraps_an_agent() {
    // The manager's span is made a second span of the helper's run, which records nothing.
    let mut trace = team();
    let root = trace.tree.root().unwrap();
    trace.views[root].wrapper = true;
    let asked_spans = |trace: &AgentTrace, metric| {
        questions(trace, &settings(&[metric])).iter().map(|ask| ask.at).collect::<Vec<_>>()
    };
    assert_eq!(asked_spans(&trace, GOAL), [root, trace.agents[1].at]);
    assert_eq!(asked_spans(&trace, "tool_abuse"), [trace.agents[1].at]);
    // A wrapper elsewhere is judged with the span that it wraps.
    let inner = trace.agents[1].at;
    trace.views[inner].wrapper = true;
    assert_eq!(asked_spans(&trace, GOAL), [root]);
}

#[test]
fn finding_about_another_agent_names_it() {
    let trace = team();
    let wrong_call = finding(&trace, 5, "search", "low");
    let (all, _) = judged(&trace, &settings(&["gpa.tool_calling"]), |ask| match ask.at {
        0 => Ok(vec![reply_with(1, std::slice::from_ref(&wrong_call))]),
        _ => Ok(vec![reply_with(3, &[])]),
    });
    let measured = measurements_of(&all, "gpa.tool_calling")[0].outcome.as_ref().unwrap();
    assert_eq!(measured.findings[0].rationale, "helper: it is wrong");
}

#[test]
fn transcript_contains_every_text_once() {
    let trace = bridge();
    let (asker, memo) = (Asker::default(), crate::measure::Memo::new());
    let content = content::TraceContent { asker: &asker, trace: &trace, memo: &memo };
    let blocks = transcript::transcribe(content, transcript::RunScope::Trace, 60_000);
    let all: Vec<&str> = blocks.iter().map(|b| b.text.as_str()).collect();
    for text in ["Answer with the year alone.", "24 September 1883", "I look it up.", "opened in 1884"] {
        assert_eq!(all.iter().filter(|t| t.contains(text)).count(), 1, "{text}: {all:#?}");
    }
}

#[test]
fn plan_quality_shows_triggers_and_no_execution() {
    let trace = team();
    let asked = questions(&trace, &settings(&["gpa.plan_quality"]));
    assert_eq!(asked.len(), 1, "the helper neither has a plan nor says anything before its call");
    let user = &asked[0].question.prompt.user;
    assert!(user.contains("PLAN, the first") && user.contains("REPLAN 1"), "{user}");
    assert!(user.contains("I could not search.") && user.contains("tools that agent has"));
    assert!(!user.contains("229 m"), "what came of the plans is not shown");
    let first = user.find("PLAN, the first").unwrap();
    assert!(user.find("I could not search.").unwrap() > first, "nor is it before the first plan");
}

#[test]
fn metrics_of_plans_are_not_applicable_where_nothing_is_said_before_the_work() {
    let answers = Script::new("When was it opened?").answers("In 1883.").build();
    let without_plan = Script::new("When was it opened?")
        .calls("", &[("search", "{}")])
        .returns("1883")
        .answers("First I looked it up; it was in 1883.")
        .build();
    for (trace, metric) in [&answers, &without_plan]
        .into_iter()
        .flat_map(|t| ["gpa.plan_quality", "gpa.plan_adherence"].map(|m| (t, m)))
    {
        let (all, asked) = judged(trace, &settings(&[metric]), |_| panic!("no judge is asked"));
        assert_eq!(
            (asked.len(), measurements_of(&all, metric)[0].outcome.clone()),
            (0, Err(Unmeasured::NotApplicable))
        );
    }
}

#[test]
fn where_no_plan_is_marked_the_judge_decides_whether_the_first_words_are_one() {
    let trace = bridge();
    for metric in ["gpa.plan_quality", "gpa.plan_adherence"] {
        let answer = |plan: &str, score: u8| {
            let findings = [finding(&trace, 1, "I look it up.", "medium")];
            let mut reply = reply_with(score, if score == 3 { &[] } else { &findings });
            reply["plan"] = json!(plan);
            reply
        };
        let outcome = |answers: Vec<Json>| {
            let (all, asked) = judged(&trace, &settings(&[metric]), |_| Ok(answers.clone()));
            let [ask] = &asked[..] else { panic!("{} questions", asked.len()) };
            let user = &ask.question.prompt.user;
            assert!(
                user.contains("llm | output, its first words, not marked as a plan]\nI look it up."),
                "{user}"
            );
            assert!(user.contains("No plan is marked in this record"), "{user}");
            let fields = ask.question.form.schema["properties"].as_object().unwrap();
            assert_eq!(fields.keys().take(3).collect::<Vec<_>>(), ["rationale", "plan", "score"]);
            let required = ask.question.form.schema["required"].as_array().unwrap();
            assert!(required.contains(&json!("plan")));
            if metric == "gpa.plan_quality" {
                assert!(!user.contains("24 September 1883"), "no execution: {user}");
            }
            measurements_of(&all, metric)[0].clone()
        };
        let without_plan = outcome(vec![answer("none", 3)]);
        assert_eq!(
            (without_plan.outcome, without_plan.rationale.as_deref()),
            (Err(Unmeasured::NotApplicable), Some("because"))
        );
        let stated = outcome(vec![answer("stated", 1)]);
        assert_eq!(score(&stated), Some(1.0));
        // The majority decides; the grade is that of the opinions that found a plan.
        let majority = outcome(vec![answer("stated", 1), answer("none", 3), answer("stated", 1)]);
        assert_eq!(score(&majority), Some(1.0));
        let minority = outcome(vec![answer("none", 3), answer("none", 3), answer("stated", 1)]);
        assert_eq!(minority.outcome, Err(Unmeasured::NotApplicable));
    }
    // Reasoning is preferred to text.
    let mut thinking = bridge();
    thinking.views[1].output[0]
        .parts
        .push(crate::recognise::Part::Reasoning("First search, then answer.".into()));
    let asked = questions(&thinking, &settings(&["gpa.plan_quality"]));
    let user = &asked[0].question.prompt.user;
    assert!(
        user.contains("thinking, its first words, not marked as a plan]\nFirst search, then answer."),
        "{user}"
    );
    // A marked plan is the plan.
    let marked = questions(&team(), &settings(&["gpa.plan_quality"]));
    assert!(marked.iter().all(|ask| ask.question.form.schema["properties"].get("plan").is_none()));
}

#[test]
fn replan_is_shown_with_its_reason_and_its_triggers_are_counted() {
    let mut script = Script::new("Find it.").says("1. search").plan(&["search"]);
    for i in 0..9 {
        script = script.calls("", &[("search", "{}")]).returns(&format!("result {i}"));
    }
    let trace = script
        .says("Nothing was found so far.\nask a person\nThat is the last resort.")
        .plan(&["ask a person"])
        .answers("Nobody knows.")
        .build();
    let user = questions(&trace, &settings(&["gpa.plan_quality"]))[0].question.prompt.user.clone();
    let position = |text: &str| user.find(text).unwrap_or_else(|| panic!("{text}: {user}"));
    assert!(position("3 earlier results before the replan left out") < position("result 3"));
    assert!(position("result 8") < position("output, with the plan]\nNothing was found so far."));
    assert!(position("That is the last resort.") < position("REPLAN 1]\nask a person"));
    assert!(!user.contains("result 2") && !user.contains("Nobody knows."), "{user}");
}

#[test]
fn plan_adherence_of_a_long_run_is_asked_by_segment() {
    let long = "words ".repeat(3_000);
    let trace = Script::new("Do it.")
        .says("1. fetch")
        .plan(&["fetch"])
        .calls("", &[("fetch", "{}")])
        .returns(&format!("{long} one"))
        .says("1. write")
        .plan(&["write"])
        .calls("", &[("write", "{}")])
        .returns(&format!("{long} two"))
        .answers("done")
        .build();
    let whole = questions(&trace, &settings(&["gpa.plan_adherence"]));
    assert_eq!(whole.len(), 1);
    let page = &whole[0].question.prompt.user;
    assert!(page.contains("the plans' steps and the calls that seem to be theirs]"), "{page}");
    for (heading, call) in [("\nPlan of span", "call 1 fetch"), ("\nReplan of span", "call 2 write")] {
        let rest = page.split(heading).nth(1).unwrap_or_else(|| panic!("{page}"));
        assert_eq!(rest.lines().nth(1), Some(format!("step 1: carried out by {call}").as_str()), "{page}");
    }
    let small = asked_with(settings(&["gpa.plan_adherence"]), |ask| ask.max_prompt_tokens = 10_500);
    let parts = questions(&trace, &small);
    assert!(parts.len() >= 2);
    let keys_with = |text: &str| {
        let containing = parts.iter().filter(|a| a.question.prompt.user.contains(text));
        containing.map(|a| a.question.key.clone()).collect::<Vec<_>>()
    };
    assert!(!keys_with(", REPLAN]").is_empty());
    assert!(
        keys_with("words one").iter().all(|key| !keys_with(", REPLAN]").contains(key)),
        "each under its own plan"
    );
}

/// A run of `n` long steps.
fn long(n: usize) -> AgentTrace {
    let mut script = Script::new("Read all pages.").system("Be exact.");
    for i in 0..n {
        let page = format!("page {i:03} says {}. ", "blah".repeat(20)).repeat(60);
        script =
            script.calls(&format!("step {i:03}"), &[("read", &format!(r#"{{"page":{i}}}"#))]).returns(&page);
    }
    script.answers("I read everything.").build()
}

#[test]
fn long_run_is_judged_in_parts_and_scored_once() {
    let trace = long(40);
    let settings = settings(&["gpa.execution_efficiency"]);
    let (all, asked) = judged(&trace, &settings, |ask| {
        let user = &ask.question.prompt.user;
        assert!(tokens_of(ask) <= 24_000);
        Ok(vec![match ask.question.key.as_str() {
            "score" => {
                assert!(user.contains("finding 1: span") && user.contains("quote: step 017"));
                assert!(ask.question.form.schema["properties"].get("findings").is_none());
                json!({ "rationale": "taken together", "score": 1 })
            }
            _ if user.contains("step 017") => reply_with(0, &[finding(&trace, 35, "step 017", "high")]),
            _ => reply_with(3, &[]),
        }])
    });
    assert!(asked.len() > 4 && asked.last().unwrap().question.key == "score");
    let m = measurements_of(&all, "gpa.execution_efficiency")[0];
    let measured = m.outcome.as_ref().unwrap();
    assert_eq!((score(m), measured.findings.len(), measured.passed), (Some(1.0), 1, false));
    assert_eq!(m.rationale.as_deref(), Some("taken together"));
}

#[test]
fn long_run_without_findings_gets_the_score_of_its_worst_part() {
    let trace = long(40);
    let settings = settings(&["gpa.execution_efficiency"]);
    let (all, asked) = judged(&trace, &settings, |ask| {
        Ok(vec![reply_with(if ask.question.key == "part-0002" { 2 } else { 3 }, &[])])
    });
    assert!(asked.iter().all(|ask| ask.question.key != "score"));
    assert_eq!(score(measurements_of(&all, "gpa.execution_efficiency")[0]), Some(2.0));
}

#[test]
fn run_is_unmeasured_if_one_part_has_no_answer() {
    let trace = long(40);
    let (all, _) = judged(&trace, &settings(&[GOAL]), |ask| match ask.question.key.as_str() {
        "part-0003" => Err(Unmeasured::Budget),
        _ => Ok(vec![reply_with(3, &[])]),
    });
    assert_eq!(measurements_of(&all, GOAL)[0].outcome, Err(Unmeasured::Budget));
}

#[test]
fn incomplete_record_is_noted_and_metrics_of_the_answer_need_its_content() {
    let trace = Script::new("x").calls("", &[("t", "{}")]).returns("r").incomplete().build();
    let asked = questions(&trace, &settings(&["completeness"]));
    assert!(asked[0].question.prompt.user.contains("The record is incomplete"));
    let bare = Script::new("x").calls("", &[("t", "{}")]).returns("r").answers("a").build_without_content();
    let (all, asked) =
        judged(&bare, &settings(&["completeness", GOAL, "tool_abuse"]), |_| panic!("no judge is asked"));
    assert!(asked.is_empty());
    for metric in ["completeness", GOAL] {
        assert!(
            measurements_of(&all, metric).iter().any(|m| m.outcome == Err(Unmeasured::NoContent)),
            "{metric}"
        );
    }
}

#[test]
fn sampling_is_stable_by_trace_id() {
    let is_asked = |id: u8, rate: f64| {
        let mut trace = bridge();
        trace.tree.id = verdict_otlp::trace::TraceId([id; 16]);
        let settings = asked_with(settings(&["instruction_following"]), |ask| ask.sample.rate = rate);
        let (all, asked) = judged(&trace, &settings, |_| Ok(vec![reply_with(5, &[])]));
        let sampled_out_count = all.iter().filter(|m| m.outcome == Err(Unmeasured::SampledOut)).count();
        assert_eq!(sampled_out_count > 0, asked.is_empty());
        !asked.is_empty()
    };
    let asked_count = (0..200).filter(|id| is_asked(*id, 0.25)).count();
    assert!((25..75).contains(&asked_count), "{asked_count}");
    assert!((0..50).all(|id| !is_asked(id, 0.0) && is_asked(id, 1.0)));
    assert!((0..50).all(|id| !is_asked(id, 0.25) || is_asked(id, 0.5)), "more takes the same and more");
}

#[test]
fn conditions_restrict_questions_to_unsure_metrics_and_failing_traces() {
    let passing = Script::new("When was the bridge opened?")
        .tools(&["search"])
        .calls("", &[("search", r#"{"q":"bridge opened"}"#)])
        .returns("The bridge was opened in 1883.")
        .answers("The bridge was opened in 1883.")
        .build();
    let failing = team();
    let is_asked = |trace: &AgentTrace, metric: &'static str, condition: AskCondition| {
        let settings = asked_with(settings(&[metric]), |ask| {
            ask.when_by_metric.insert("gpa".to_owned(), AskCondition::Failing);
            ask.when = condition;
        });
        !questions(trace, &settings).is_empty()
    };
    assert!(
        !is_asked(&passing, GOAL, AskCondition::Always) && is_asked(&failing, GOAL, AskCondition::Always)
    );
    assert!(is_asked(&passing, "tool_completeness", AskCondition::Always));
    let measurements = catalog::run(&passing, &Settings::default());
    let is_sure = measurements.iter().any(|m| m.metric == "tool_completeness" && m.outcome.is_ok());
    assert_eq!(is_asked(&passing, "tool_completeness", AskCondition::Unsure), !is_sure);
}

#[test]
fn facts_of_rules_are_not_asked_about() {
    let trace = team();
    let asked = questions(&trace, &settings(&["error_detection"]));
    let failed = trace.calls.iter().find(|c| c.failed).unwrap().at;
    assert!(asked.iter().all(|ask| ask.at != failed) && !asked.is_empty());
}

#[test]
fn spans_are_selected_and_services_withheld() {
    let mut trace = bridge();
    trace.views[2].service = Some("vault".into());
    trace.views[2].name = Some("search".into());
    let asked_spans = |change: fn(&mut AskConfig)| {
        let settings = asked_with(settings(&["error_detection"]), change);
        questions(&trace, &settings).iter().map(|a| a.at).collect::<Vec<_>>()
    };
    assert_eq!(asked_spans(|ask| ask.spans.kind = vec![verdict_otlp::trace::Kind::Tool]), [2]);
    assert_eq!(asked_spans(|ask| ask.spans.name = vec!["sea*".into()]), [2]);
    assert_eq!(asked_spans(|ask| ask.spans.service = vec!["vault".into()]), [2]);
    let withheld = asked_with(settings(&["error_detection", GOAL]), |ask| ask.withhold = vec!["va*".into()]);
    let asked = questions(&trace, &withheld);
    assert!(asked.iter().all(|ask| ask.at != 2));
    let goal = asked.iter().find(|ask| ask.metric == GOAL).unwrap();
    assert!(goal.question.prompt.user.contains("result]\n(withheld)"), "{}", goal.question.prompt.user);
}

#[test]
fn early_questions_equal_those_of_the_closed_trace() {
    let trace = bridge();
    let metrics =
        ["instruction_following", "reasoning_integrity", "tool_completeness", "error_detection", GOAL];
    let settings = settings(&metrics);
    let rules = catalog::run(&trace, &settings);
    let inputs = JudgeInputs { trace: &trace, settings: &settings, rule_measurements: &rules };
    let all =
        |mut rounds: Questions<'_>| std::iter::from_fn(move || rounds.next_question()).collect::<Vec<_>>();
    let (early, late) = (all(Questions::early(inputs, &[])), all(Questions::new(inputs, &[])));
    assert!(!early.is_empty() && early.len() < late.len());
    for ask in &early {
        let is_asked_late =
            late.iter().any(|l| l.at == ask.at && l.metric == ask.metric && l.question == ask.question);
        let is_suspected =
            rules.iter().any(|m| m.at == ask.at && m.outcome.as_ref().is_ok_and(|o| !o.findings.is_empty()));
        assert!(is_asked_late || is_suspected, "{} on {}", ask.metric, ask.at);
    }
}
