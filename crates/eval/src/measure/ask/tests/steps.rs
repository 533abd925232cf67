//! Questions about single steps, and measurements from their answers.

use super::*;

const FOLLOWING: &str = "instruction_following";

fn only_measurement(measurements: Vec<Measurement>) -> Measurement {
    assert_eq!(measurements.len(), 1, "{measurements:?}");
    measurements.into_iter().next().unwrap()
}

/// The measurement from these opinions on span 3, the answer of [`bridge`].
fn about_the_answer(metric: &'static str, opinions: Vec<Json>) -> Measurement {
    let trace = bridge();
    let (all, _) = judged(&trace, &settings(&[metric]), |ask| match ask.at {
        3 => Ok(opinions.clone()),
        _ => Err(Unmeasured::JudgeError),
    });
    only_measurement(all.into_iter().filter(|m| m.at == 3 && m.metric == metric).collect())
}

#[test]
fn metrics_ask_about_spans_of_their_kind() {
    let trace = bridge();
    let asked_spans =
        |metric| questions(&trace, &settings(&[metric])).iter().map(|a| a.at).collect::<Vec<_>>();
    assert_eq!(asked_spans(FOLLOWING), [1, 3]);
    assert_eq!(asked_spans("reasoning_integrity"), [1, 3]);
    assert_eq!(asked_spans("avoidance"), [1, 3]);
    assert_eq!(asked_spans("error_detection"), [1, 2, 3]);
    assert_eq!(asked_spans("tool_completeness"), [2]);
}

#[test]
fn failing_score_with_a_verified_quotation_fails() {
    let trace = bridge();
    let m = about_the_answer(
        FOLLOWING,
        vec![reply_with(2, &[finding(&trace, 3, "in  1884,\nI think", "medium")])],
    );
    let measured = m.outcome.as_ref().unwrap();
    assert_eq!((score(&m), measured.passed, &*m.judge), (Some(2.0), false, "m/0"));
    assert_eq!(
        (measured.findings[0].quote.as_str(), measured.findings[0].fact),
        ("in  1884,\nI think", false)
    );
    assert_eq!(m.rationale.as_deref(), Some("because"));
}

#[test]
fn finding_with_an_unverified_quotation_is_dropped_and_noted() {
    let trace = bridge();
    let findings = [finding(&trace, 3, "in 1884", "low"), finding(&trace, 3, "in 1885", "high")];
    let m = about_the_answer(FOLLOWING, vec![reply_with(3, &findings)]);
    assert_eq!(m.outcome.as_ref().unwrap().findings.len(), 1);
    assert!(m.rationale.unwrap().contains("1 findings dropped"));
}

#[test]
fn findings_beyond_the_limit_are_counted() {
    let words: Vec<String> = (0..300).map(|i| format!("w{i:03}")).collect();
    let trace = Script::new("Count.").answers(&words.join(" ")).build();
    let findings = words.iter().map(|word| {
        let mut finding = finding(&trace, 1, word, "low");
        finding["problem"] = json!(format!("{word} is wrong"));
        finding
    });
    let findings: Vec<Json> = findings.collect();
    for (count, listed, note) in [(17, 17, None), (80, 64, Some("16 more")), (300, 64, Some("236 more"))] {
        let (all, _) =
            judged(&trace, &settings(&[FOLLOWING]), |_| Ok(vec![reply_with(2, &findings[..count])]));
        let m = only_measurement(all);
        assert_eq!(m.outcome.unwrap().findings.len(), listed);
        let rationale = m.rationale.unwrap();
        assert_eq!(rationale.contains("more findings are not listed"), note.is_some(), "{rationale}");
        assert!(note.is_none_or(|note| rationale.contains(note)), "{rationale}");
    }
}

#[test]
fn one_quotation_may_prove_problems_of_two_categories() {
    let trace = bridge();
    let finding_of = |category: &str| {
        let mut finding = finding(&trace, 3, "in 1884", "medium");
        finding["category"] = json!(category);
        finding
    };
    let both = [finding_of("Goal Deviation"), finding_of("Language-only"), finding_of("Goal Deviation")];
    let findings_from = |opinions: Vec<Json>| {
        let measured = about_the_answer(FOLLOWING, opinions).outcome.unwrap();
        measured.findings.iter().map(|f| f.category.unwrap().as_str()).collect::<Vec<_>>()
    };
    assert_eq!(findings_from(vec![reply_with(2, &both)]), ["Goal Deviation", "Language-only"]);
    // Two judges that assign different categories to the same quotation report one problem.
    assert_eq!(
        findings_from(vec![reply_with(2, &both[..1]), reply_with(2, &both[1..2])]),
        ["Goal Deviation"]
    );
}

#[test]
fn finding_may_quote_the_instruction() {
    let trace = bridge();
    let m = about_the_answer(
        FOLLOWING,
        vec![reply_with(3, &[finding(&trace, 3, "Answer with the year alone", "low")])],
    );
    assert_eq!(score(&m), Some(3.0));
}

#[test]
fn failing_score_without_evidence_is_unmeasured() {
    let trace = bridge();
    for findings in [vec![], vec![finding(&trace, 3, "made up", "high")]] {
        let m = about_the_answer(FOLLOWING, vec![reply_with(1, &findings)]);
        assert_eq!(m.outcome, Err(Unmeasured::JudgeError));
        assert!(m.rationale.unwrap().contains("1 of 1 opinions set aside"));
    }
}

#[test]
fn several_scores_give_the_median_and_a_note() {
    let trace = bridge();
    let low_reply = |score| reply_with(score, &[finding(&trace, 3, "in 1884", "medium")]);
    let m = about_the_answer(FOLLOWING, vec![low_reply(2), reply_with(5, &[]), low_reply(3)]);
    assert_eq!(score(&m), Some(3.0));
    assert!(m.rationale.unwrap().contains("opinions differ: 2, 5, 3; median 3"));
    let m = about_the_answer(FOLLOWING, vec![low_reply(3), reply_with(4, &[])]);
    assert_eq!((score(&m), m.outcome.unwrap().passed), (Some(3.5), false));
    // One of three opinions is set aside.
    let m = about_the_answer(FOLLOWING, vec![reply_with(1, &[]), reply_with(5, &[]), reply_with(4, &[])]);
    assert_eq!((score(&m), m.outcome.unwrap().passed), (Some(4.5), true));
    // The valid opinions are not more than half.
    let m = about_the_answer(FOLLOWING, vec![reply_with(1, &[]), reply_with(5, &[])]);
    assert_eq!(m.outcome, Err(Unmeasured::JudgeError));
}

#[test]
fn several_labels_give_the_majority_and_ties_the_worse() {
    let trace = bridge();
    let label = |label: &str| {
        let findings = if label == "valid" { vec![] } else { vec![finding(&trace, 3, "I think", "low")] };
        json!({ "rationale": "because", "label": label, "findings": findings })
    };
    let combined_label = |labels: &[&str]| {
        let m = about_the_answer("avoidance", labels.iter().map(|l| label(l)).collect());
        match m.outcome.unwrap().value {
            Value::Label(label) => label,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(combined_label(&["valid", "other", "valid"]), "valid");
    assert_eq!(combined_label(&["valid", "missing_knowledge"]), "missing_knowledge");
    assert_eq!(combined_label(&["policy_restriction", "valid"]), "policy_restriction");
    assert_eq!(combined_label(&["missing_knowledge", "other"]), "other");
}

#[test]
fn weighted_score_is_used_if_it_is_on_the_scale() {
    let trace = bridge();
    let settings = settings(&[FOLLOWING]);
    for (weighted, expected) in [(4.6, 4.6), (9.0, 5.0), (f64::NAN, 5.0)] {
        let inputs = JudgeInputs { trace: &trace, settings: &settings, rule_measurements: &[] };
        let mut rounds = Questions::new(inputs, &[]);
        while let Some(ask) = rounds.next_question() {
            let opinion =
                Opinion { value: reply_with(5, &[]), weighted: Some(weighted), judge: "m/0".into() };
            let answer =
                Answer { key: ask.question.key, opinions: Ok(vec![opinion]), usage: Usage::default() };
            rounds.answer(ask.id, answer);
        }
        let all = rounds.finish(Unmeasured::Timeout);
        assert_eq!(score(&all[0]), Some(expected));
    }
}

#[test]
fn answer_that_violates_the_form_is_unmeasured() {
    for value in [
        json!(null),
        json!("5"),
        json!([]),
        json!({ "rationale": "r", "score": "5", "findings": [] }),
        json!({ "rationale": "r", "score": 0, "findings": [] }),
        json!({ "rationale": "r", "score": 6, "findings": [] }),
        json!({ "rationale": "r", "score": 4.5, "findings": [] }),
        json!({ "rationale": "r", "findings": [] }),
    ] {
        let m = about_the_answer(FOLLOWING, vec![value.clone()]);
        assert_eq!(m.outcome, Err(Unmeasured::JudgeError), "{value}");
    }
    let odd = json!({ "rationale": 7, "score": 5, "findings": "none", "extra": 1 });
    assert_eq!(score(&about_the_answer(FOLLOWING, vec![odd])), Some(5.0));
}

#[test]
fn finding_on_a_span_that_was_not_shown_is_dropped() {
    let trace = bridge();
    let mut foreign = finding(&trace, 3, "in 1884", "high");
    foreign["span_id"] = json!("ffffffffffffffff");
    let m = about_the_answer(FOLLOWING, vec![reply_with(5, &[foreign])]);
    assert!(m.outcome.unwrap().findings.is_empty());
}

#[test]
fn spans_without_content_are_not_asked_about() {
    let trace = Script::new("x").calls("", &[("t", "{}")]).returns("r").answers("a").build_without_content();
    for metric in [FOLLOWING, "reasoning_integrity", "avoidance", "tool_completeness", "error_detection"] {
        let (all, asked) = judged(&trace, &settings(&[metric]), |_| panic!("no judge is asked"));
        assert!(asked.is_empty() && all.iter().all(|m| m.outcome == Err(Unmeasured::NoContent)), "{metric}");
        assert!(!all.is_empty());
    }
}

#[test]
fn form_lists_only_shown_spans() {
    let trace = bridge();
    for ask in questions(&trace, &settings(&["tool_completeness", "reasoning_integrity"])) {
        let ids =
            &ask.question.form.schema["properties"]["findings"]["items"]["properties"]["span_id"]["enum"];
        for id in ids.as_array().unwrap() {
            assert!(ask.question.prompt.user.contains(id.as_str().unwrap()));
        }
    }
}

#[test]
fn only_ended_steps_are_shown() {
    // The second search starts while the first is still running.
    let mut trace = Script::new("Compare A and B.")
        .calls("", &[("search", r#"{"q":"first"}"#), ("search", r#"{"q":"second"}"#)])
        .returns("result of the first")
        .returns("result of the second")
        .build();
    let is_shown = |trace: &AgentTrace| {
        let asked = questions(trace, &settings(&["tool_completeness"]));
        asked.iter().find(|a| a.at == 3).unwrap().question.prompt.user.contains("result of the first")
    };
    assert!(is_shown(&trace));
    trace.tree.spans[2].end = trace.tree.spans[3].start + 1;
    assert!(!is_shown(&trace));
}

#[test]
fn findings_of_rules_are_shown_and_the_judge_decides() {
    let trace = Script::new("Find it.")
        .system("End your answer with the tag <done>.")
        .answers("Here it is, all of it, in full.")
        .build();
    let settings = settings(&[FOLLOWING]);
    let (all, asked) = judged(&trace, &settings, |_| Ok(vec![reply_with(5, &[])]));
    assert!(asked[0].question.prompt.user.contains("what built-in rules found in it"));
    assert!(asked[0].question.prompt.user.contains("<done>"));
    assert_eq!(score(&all[0]), Some(5.0));
}

#[test]
fn long_conversation_is_shortened_to_the_limit_of_tokens() {
    let mut script = Script::new("The task stands first.").system("Keep the system prompt.");
    for i in 0..60 {
        script = script
            .calls("", &[("read", &format!(r#"{{"page":{i}}}"#))])
            .returns(&format!("page {i} ").repeat(400));
    }
    let trace = script.answers("done").build();
    let settings = asked_with(settings(&[FOLLOWING]), |ask| ask.max_prompt_tokens = 8_000);
    let last = questions(&trace, &settings).pop().unwrap();
    let user = &last.question.prompt.user;
    for part in ["The task stands first.", "Keep the system prompt.", "page 59", "earlier messages left out"]
    {
        assert!(user.contains(part), "{part}");
    }
    assert!(tokens_of(&last) <= 8_000, "{}", tokens_of(&last));
}

#[test]
fn configured_rubric_and_instructions_are_in_the_system_prompt() {
    let trace = bridge();
    let rubrics = BTreeMap::from([(FOLLOWING.to_owned(), "# Ours\nBe kind.".to_owned())]);
    let instruction = |agent: &str, text: &str| Instruction {
        agent: Some(agent.to_owned()),
        text: text.to_owned(),
        examples: vec![config::Example {
            evidence: "I recall".into(),
            problem: "not looked up".into(),
            severity: None,
        }],
        ..Instruction::default()
    };
    let instructions =
        vec![instruction("age*", "It asks a searcher."), instruction("other", "Not this one.")];
    let asker = Asker::new(AskConfig::default(), rubrics, instructions, &Redact::default()).unwrap();
    let settings = Settings { asker: Arc::new(asker), ..settings(&[FOLLOWING]) };
    let asked = questions(&trace, &settings);
    let system = &asked[0].question.prompt.system;
    assert!(
        system.contains("Be kind.") && system.contains("It asks a searcher.") && system.contains("I recall")
    );
    assert!(!system.contains("Not this one.") && !system.contains("Go through it in this order"));
    assert_eq!(asked[0].question.prompt.system, asked[1].question.prompt.system);
}
