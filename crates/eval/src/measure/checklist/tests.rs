//! Whole checklists, with fixed answers of judges.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::*;
use crate::measure::schema::{Schema, Validity};
use crate::measure::testing::{Script, row};
use crate::measure::{Memo, Opinion, Question, Usage};

mod golden;
mod papers;

fn settings(yaml: &str) -> crate::measure::Settings {
    serde_saphyr::from_str(yaml).unwrap()
}

/// A run like the paper's: a catalogue is found, and the answer is a city.
fn specimens(answer: &str) -> AgentTrace {
    Script::new("Where were the specimens described by Kuznetsov eventually deposited? Just the city, without abbreviations.")
        .plan(&["find the paper", "email the curator to confirm the deposit"])
        .calls("Searching.", &[("search", r#"{"q": "Kuznetsov Nedoshivina 2010"}"#)])
        .returns("A catalogue of type specimens of the Tortricidae described by V. I. Kuznetsov from Vietnam and deposited in the Zoological Institute, St. Petersburg")
        .answers(answer)
        .build()
}

/// Drives the metric on the outermost agent; `judge` answers by the question's key.
fn drive(
    trace: &AgentTrace,
    settings: &crate::measure::Settings,
    judge: impl Fn(&Question) -> Result<Json, Unmeasured>,
) -> (Vec<Measurement>, Vec<Question>) {
    drive_panel(trace, settings, |question| judge(question).map(|value| vec![value]))
}

/// As [`drive`], with one answer of each judge.
fn drive_panel(
    trace: &AgentTrace,
    settings: &crate::measure::Settings,
    judges: impl Fn(&Question) -> Result<Vec<Json>, Unmeasured>,
) -> (Vec<Measurement>, Vec<Question>) {
    let mut answers: Vec<Answer> = Vec::new();
    let mut asked = Vec::new();
    loop {
        let memo = Memo::new();
        let at = trace.agents[0].at;
        let context = Context {
            row: row("checklist.verdict"),
            trace,
            at,
            settings,
            memo: &memo,
            rule_measurements: &[],
        };
        match (Checklist { asks: true }).step(&context, &answers) {
            MetricProgress::Done(measurements) => return (measurements, asked),
            MetricProgress::Ask(questions) => {
                assert!(asked.len() < 100, "it ends");
                for question in questions {
                    let opinion = |value: Json| {
                        let checked = Schema::compile(&question.form.schema).check(&value);
                        let is_valid = checked.validity == Validity::Valid;
                        assert!(is_valid, "{value} does not fit {}", question.form.schema);
                        Opinion { value, weighted: None, judge: Arc::from("m/1") }
                    };
                    let opinions = judges(&question).map(|values| values.into_iter().map(opinion).collect());
                    answers.push(Answer { key: question.key.clone(), opinions, usage: Usage::default() });
                    asked.push(question);
                }
            }
        }
    }
}

/// The id of the piece of the record that contains `text`.
fn piece_with(question: &Question, text: &str) -> String {
    let page = &question.prompt.user;
    // The final answer, which precedes the pieces, may contain the same text.
    let pieces = page.find("| piece ").expect("pieces are shown");
    let shown = || panic!("{}: {text:?} is not shown:\n{page}", question.key);
    let upto = pieces + page[pieces..].find(text).unwrap_or_else(shown);
    let label = page[..upto].rfind("| piece ").unwrap();
    page[label + 8..].split(',').next().unwrap().to_owned()
}

fn perceived(piece: String, quote: &str, sufficient: &str) -> Json {
    json!({ "thought": "t", "class": "reasoning", "passages": [{ "piece": piece, "quote": quote }],
            "final_answer": "yes", "sufficient": sufficient })
}

fn checked(answer: &str) -> Json {
    json!({ "reason": "as the passage says", "tool": "none", "input": "", "answer": answer })
}

const GENERATED: &str = "judges: [rules, main]\nchecklist: { generate: true }";

/// Two questions, one of which the filter drops.
fn criteria(question: &Question) -> Option<Json> {
    match question.key.as_str() {
        "criteria" => Some(json!({ "thought": "t", "questions": [
            "Did the agent answer with the name of a city?", "Did the agent try hard?",
            "Was the city given without any abbreviations?" ] })),
        "filter" => Some(json!({ "thought": "t", "drop": [2] })),
        _ => None,
    }
}

#[test]
fn generated_questions_are_answered_with_proofs_from_the_run() {
    let trace = specimens("St. Petersburg");
    let (measured, asked) = drive(&trace, &settings(GENERATED), |question| {
        Ok(criteria(question).unwrap_or_else(|| match question.key.as_str() {
            key if key.ends_with("perceive") => perceived(
                piece_with(question, "A catalogue of type"),
                "Zoological Institute, St. Petersburg",
                "yes",
            ),
            "q000.3-answer-0" => checked("yes"),
            _ => checked("no"),
        }))
    });
    let [m] = &measured[..] else { panic!("one verdict: {measured:?}") };
    assert_eq!(m.at, trace.tree.root().unwrap());
    let value = m.outcome.as_ref().unwrap();
    assert_eq!((value.value.clone(), value.passed), (Value::Label("no"), false));
    assert!(
        value.findings[0]
            .rationale
            .starts_with("Was the city given without any abbreviations? Yes was expected. No:")
    );
    assert_eq!(value.findings[0].quote, "Zoological Institute, St. Petersburg");
    assert_eq!(value.findings[0].cited.len(), 1, "the span that returned it");
    let DetailValue::Text(items) = &m.details[0].value else { panic!() };
    let items: Json = serde_json::from_str(items).unwrap();
    assert_eq!(items["verdict"], "no");
    assert_eq!(items["eval"].as_array().unwrap().len(), 2, "the filtered question is removed");
    assert_eq!(
        items["eval"][1]["c3_response"]["decision_path"],
        json!(["proofs+final_answer", "logical", "reasoning"])
    );
    assert_eq!(items["eval"][0]["proofs"]["final_answer"], "St. Petersburg");
    let keys: Vec<&str> = asked.iter().map(|q| q.key.as_str()).collect();
    assert_eq!(
        keys,
        ["criteria", "filter", "q000.1-perceive", "q001.1-perceive", "q000.3-answer-0", "q001.3-answer-0"]
    );
}

#[test]
fn plan_is_not_in_prompts_for_proofs() {
    let trace = specimens("Saint Petersburg");
    let (_, asked) = drive(&trace, &settings(GENERATED), |question| {
        Ok(criteria(question).unwrap_or_else(|| match question.key.contains("answer") {
            true => checked("yes"),
            false => perceived(piece_with(question, "A catalogue of type"), "Zoological Institute", "yes"),
        }))
    });
    let shown = asked.iter().filter(|q| q.key.starts_with('q'));
    assert!(shown.into_iter().all(|q| !q.prompt.user.contains("email the curator")));
}

#[test]
fn votes_without_majority_are_a_judge_error_that_lists_them() {
    let trace = specimens("Saint Petersburg");
    let one = "judges: [main]\nchecklist: { keep: 1, fixed: [{ items: [{ question: 'Was the Zoological Institute found?' }] }] }";
    let answered = |votes: &[&str]| {
        let (measured, _) = drive_panel(&trace, &settings(one), |question| {
            Ok(match question.key.contains("answer") {
                true => votes.iter().map(|vote| checked(vote)).collect(),
                false => {
                    let piece = piece_with(question, "A catalogue of type");
                    vec![perceived(piece, "Zoological Institute", "yes")]
                }
            })
        });
        let DetailValue::Text(items) = &measured[0].details[0].value else { panic!("items are a text") };
        let items: Json = serde_json::from_str(items).unwrap();
        let reason = items["eval"][0]["c3_response"]["reason"].as_str().unwrap().to_owned();
        (measured[0].outcome.as_ref().map(|o| o.passed).map_err(|cause| *cause), reason)
    };
    let split = "no majority: of 2 judges 1 answered yes, 1 no, 0 unclear".to_owned();
    assert_eq!(answered(&["yes", "no"]), (Err(Unmeasured::JudgeError), split));
    assert_eq!(answered(&["yes", "yes", "no"]).0, Ok(true));
    assert_eq!(answered(&["yes", "unclear", "unclear"]).0, Err(Unmeasured::NotApplicable));
}

#[test]
fn passage_not_in_its_piece_is_no_proof_and_selection_is_widened_once() {
    let trace = specimens("Saint Petersburg");
    let one = "judges: [main]\nchecklist: { keep: 1, fixed: [{ items: [{ question: 'Was the Zoological Institute found?' }] }] }";
    let (measured, asked) = drive(&trace, &settings(one), |question| {
        let mut answer =
            perceived(piece_with(question, "A catalogue of type"), "deposited on the Moon", "no");
        answer["final_answer"] = json!("no");
        Ok(answer)
    });
    assert_eq!(measured[0].outcome, Err(Unmeasured::NotApplicable));
    let keys: Vec<&str> = asked.iter().map(|q| q.key.as_str()).collect();
    assert_eq!(keys, ["q000.1-perceive", "q000.2-wider"]);
}

#[test]
fn wider_selection_supplies_a_missing_proof() {
    let trace = Script::new("Were the specimens found?")
        .calls("", &[("search", r#"{"q": "specimens"}"#)])
        .returns("Specimens, specimens and where specimens are found: nothing in stock.")
        .calls("", &[("open_box", r#"{"n": 7}"#)])
        .returns("Box 7 holds all eleven of them.")
        .answers("Yes.")
        .build();
    let one = settings(
        "judges: [main]\nchecklist: { keep: 1, fixed: [{ items: [{ question: 'Were the specimens found?' }] }] }",
    );
    let (measured, asked) = drive(&trace, &one, |question| {
        Ok(match question.key.as_str() {
            "q000.1-perceive" => {
                assert!(!question.prompt.user.contains("Box 7"), "only the piece with common words");
                perceived(piece_with(question, "nothing in stock"), "nothing in stock", "no")
            }
            "q000.2-wider" => {
                perceived(piece_with(question, "Box 7"), "Box 7 holds all eleven of them.", "yes")
            }
            _ => checked("yes"),
        })
    });
    assert!(measured[0].outcome.as_ref().unwrap().passed);
    let keys: Vec<&str> = asked.iter().map(|q| q.key.as_str()).collect();
    assert_eq!(keys, ["q000.1-perceive", "q000.2-wider", "q000.3-answer-0"]);
    assert!(asked[2].prompt.user.contains("Box 7 holds all eleven of them."));
}

fn sourced(answer: &str, cited: &[(&str, &str)]) -> Json {
    let cited: Vec<Json> =
        cited.iter().map(|(source, quote)| json!({ "source": source, "quote": quote })).collect();
    json!({ "reason": "r", "cited": cited, "tool": "none", "input": "", "answer": answer })
}

fn searched(answer: &str, cited: &[(&str, &str)]) -> Json {
    let mut value = sourced(answer, cited);
    value.as_object_mut().unwrap().retain(|key, _| key != "tool" && key != "input");
    value
}

fn only_item(measured: &[Measurement]) -> Json {
    let DetailValue::Text(items) = &measured[0].details[0].value else { panic!("items are a text") };
    serde_json::from_str::<Json>(items).unwrap()["eval"][0].clone()
}

/// A correct judge: the record does not contain a fact of the world, so that it cannot suffice.
fn factual(question: &Question) -> Json {
    let mut answer = perceived(piece_with(question, "A catalogue of type"), "Zoological Institute", "no");
    answer["class"] = json!("factual");
    answer
}

const IN_CITY: &str = "fixed: [{ items: [{ question: 'Is the Zoological Institute in that city?' }] }]";
const REFERENCE: &str =
    "assets: [{ name: reference, match: { task: specimens }, text: 'It is in Saint Petersburg.' }]";

#[test]
fn question_of_fact_without_a_source_is_unmeasured() {
    let trace = specimens("Saint Petersburg");
    let without = settings(&format!("judges: [main]\nchecklist: {{ {IN_CITY} }}"));
    let (measured, asked) = drive(&trace, &without, |question| Ok(factual(question)));
    assert_eq!(measured[0].outcome, Err(Unmeasured::NotApplicable));
    assert_eq!(only_item(&measured)["c3_response"]["reason"], "there is no source for this fact");
    assert!(asked.iter().all(|q| !q.key.contains("answer")), "no memory is asked");
}

#[test]
fn assets_answer_a_question_of_fact_although_the_record_does_not_suffice() {
    let trace = specimens("Saint Petersburg");
    let with_assets = settings(&format!(
        "judges: [main]\nchecklist: {{ {IN_CITY}, {REFERENCE}, by_class: {{ factual: [big] }} }}"
    ));
    let asking = |source_answer: Json| {
        drive(&trace, &with_assets, |question| {
            Ok(if question.key == "q000.3-source-0" { source_answer.clone() } else { factual(question) })
        })
    };
    let (measured, asked) = asking(sourced("yes", &[("reference", "in Saint Petersburg")]));
    assert!(measured[0].outcome.as_ref().unwrap().passed);
    let keys: Vec<&str> = asked.iter().map(|q| q.key.as_str()).collect();
    assert_eq!(keys, ["q000.1-perceive", "q000.3-source-0"], "the search for proofs is not widened");
    let last = asked.last().unwrap();
    assert!(
        last.prompt.user.contains("source: reference]\nIt is in Saint Petersburg."),
        "{}",
        last.prompt.user
    );
    assert_eq!(last.judges, ["big"]);
    let item = only_item(&measured);
    assert_eq!(item["c3_response"]["decision_path"], json!(["proofs+final_answer", "factual", "assets"]));
    let proofs = item["proofs"]["proofs"].as_str().unwrap();
    assert!(proofs.ends_with("source reference: in Saint Petersburg"), "{proofs}");

    for from_memory in [
        sourced("no", &[]),
        sourced("no", &[("reference", "in Moscow")]),
        sourced("no", &[("memory", "in Saint Petersburg")]),
    ] {
        let (measured, _) = asking(from_memory);
        assert_eq!(measured[0].outcome, Err(Unmeasured::NotApplicable), "no passage of a source has it");
        let reason = only_item(&measured)["c3_response"]["reason"].clone();
        assert_eq!(reason, "an answer was given without a passage of a source that has it");
    }
}

#[test]
fn search_answers_where_assets_do_not_decide_and_must_cite() {
    let trace = specimens("Saint Petersburg");
    let with_search =
        settings(&format!("judges: [main]\nchecklist: {{ {IN_CITY}, {REFERENCE}, search: web }}"));
    let found = [("https://museum.example/about", "The institute is in Saint Petersburg.")];
    let asking = |found: &[(&str, &str)]| {
        drive(&trace, &with_search, |question| {
            Ok(match question.key.as_str() {
                "q000.3-source-0" => sourced("unclear", &[]),
                "q000.4-search-0" => searched("yes", found),
                _ => factual(question),
            })
        })
    };
    let (measured, asked) = asking(&found);
    assert!(measured[0].outcome.as_ref().unwrap().passed);
    let last = asked.last().unwrap();
    assert_eq!(last.judges, ["web"]);
    assert!(last.prompt.system.contains("Search for the fact"), "{}", last.prompt.system);
    let item = only_item(&measured);
    assert_eq!(
        item["c3_response"]["decision_path"],
        json!(["proofs+final_answer", "factual", "assets", "search"])
    );
    assert!(item["proofs"]["proofs"].as_str().unwrap().contains("source https://museum.example/about: The"));
    let (measured, _) = asking(&[]);
    assert_eq!(measured[0].outcome, Err(Unmeasured::NotApplicable), "an answer without a source");
}

#[test]
fn checklist_without_a_judge_is_undecided_and_a_failed_check_is_a_no() {
    let trace = specimens("St. Petersburg");
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
fn pieces_are_found_by_their_summaries() {
    let trace = Script::new("Is the total right?")
        .calls("", &[("python", r#"{"code": "print(sum(x))"}"#)])
        .returns("836")
        .answers("836")
        .build();
    let yaml = "judges: [main]\nchecklist: { summaries: true, keep: 1, fixed: [{ items: [{ question: 'Was the difference of heights computed?' }] }] }";
    let (_, asked) = drive(&trace, &settings(yaml), |question| {
        Ok(match question.key.as_str() {
            "0-summaries-00" => {
                assert!(
                    question
                        .prompt
                        .user
                        .contains("| piece 1]\ncall of python, it returned a result\ncode: print(sum(x))"),
                    "{}",
                    question.prompt.user
                );
                let count = question.prompt.user.matches("| piece ").count();
                let text = |i: usize| {
                    if i == 0 { "The difference of two heights was computed." } else { "Nothing." }
                };
                json!({ "summaries": (0..count).map(text).collect::<Vec<_>>() })
            }
            key if key.contains("answer") => checked("yes"),
            _ => {
                assert!(question.prompt.user.contains("code: print(sum(x))"), "{}", question.prompt.user);
                assert!(!question.prompt.user.contains("difference of two heights"), "a summary is no proof");
                perceived(piece_with(question, "code: print"), "print(sum(x))", "yes")
            }
        })
    });
    let keys: Vec<&str> = asked.iter().map(|q| q.key.as_str()).collect();
    assert_eq!(keys, ["0-summaries-00", "q000.1-perceive", "q000.3-answer-0"]);
}

#[test]
fn tool_output_is_in_the_next_prompt() {
    let trace = specimens("836");
    let one = settings(
        "judges: [main]\nchecklist: { fixed: [{ items: [{ question: 'Is the answer the Institute difference?' }] }] }",
    );
    let (measured, asked) = drive(&trace, &one, |question| {
        Ok(match question.key.as_str() {
            "q000.3-answer-0" => {
                json!({ "reason": "", "tool": "calculator", "input": "5642-4806", "answer": "unclear" })
            }
            "q000.3-answer-1" => checked("yes"),
            _ => perceived(piece_with(question, "A catalogue of type"), "Zoological Institute", "yes"),
        })
    });
    assert!(measured[0].outcome.as_ref().unwrap().passed);
    assert!(asked.last().unwrap().prompt.user.contains("calculator 5642-4806]\n836\n"));
}

fn coding(mut perceived: Json) -> Json {
    perceived["class"] = json!("coding");
    perceived
}

#[test]
fn program_of_a_judge_is_run_by_the_runner_alone_and_only_for_questions_of_code() {
    let trace = specimens("836");
    let item = "fixed: [{ items: [{ question: 'Is the answer the Institute difference?' }] }]";
    let one = settings(&format!("judges: [main]\nchecklist: {{ {item}, run_code: runner }}"));
    let program =
        json!({ "reason": "", "tool": "run_code", "input": "print(5642 - 4806)", "answer": "unclear" });
    let runs = [
        (Ok(json!({ "label": "ok", "rationale": "836\n" })), "run_code print(5642 - 4806)]\n836\n"),
        (Ok(json!({ "label": "failed", "rationale": "NameError: x" })), "]\nfailed\nNameError: x\n"),
        (Ok(json!({ "label": null, "rationale": "no Docker" })), "]\nerror: it was not run: no Docker\n"),
        (Err(Unmeasured::Timeout), "]\nerror: it was not run: timeout\n"),
    ];
    for (run, shown) in runs {
        let (measured, asked) = drive(&trace, &one, |question| {
            Ok(match question.key.as_str() {
                "q000.3-answer-0" => program.clone(),
                "q000.3-answer-0-run" => return run.clone(),
                "q000.3-answer-1" => checked("yes"),
                _ => coding(perceived(
                    piece_with(question, "A catalogue of type"),
                    "Zoological Institute",
                    "yes",
                )),
            })
        });
        assert!(measured[0].outcome.as_ref().unwrap().passed);
        let [.., offered, sent, after] = &asked[..] else { panic!("{asked:?}") };
        assert!(offered.prompt.user.contains("`run_code`"), "{}", offered.prompt.user);
        assert_eq!(sent.judges, ["runner"]);
        let request: Json = serde_json::from_str(&sent.prompt.user).unwrap();
        assert_eq!(
            (&request["metric"], &request["code"]),
            (&json!("checklist.run_code"), &json!("print(5642 - 4806)"))
        );
        assert!(after.prompt.user.contains(shown), "{}", after.prompt.user);
        assert_eq!(
            only_item(&measured)["c3_response"]["decision_path"],
            json!(["proofs+final_answer", "logical", "coding", "run_code"])
        );
    }
    let reasoning = drive(&trace, &one, |question| {
        Ok(match question.key.as_str() {
            "q000.3-answer-0" => checked("yes"),
            _ => perceived(piece_with(question, "A catalogue of type"), "Zoological Institute", "yes"),
        })
    });
    assert!(reasoning.1.iter().all(|q| !q.form.schema.to_string().contains("run_code")));
}

#[test]
fn criteria_question_depends_only_on_the_task() {
    let first =
        |trace: &AgentTrace| drive(trace, &settings(GENERATED), |_| Err(Unmeasured::Budget)).1.remove(0);
    let (one, other) = (first(&specimens("Saint Petersburg")), first(&specimens("Hanoi")));
    assert_eq!((one.key.as_str(), &one), ("criteria", &other), "equal questions hit the answer cache");
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
fn longest_sequence_of_questions_fits_the_maximum_of_rounds() {
    let trace = specimens("Saint Petersburg");
    let all = settings(
        "judges: [main]\nchecklist: { generate: true, rerank: cross, keep: 1, summaries: true, run_code: runner }",
    );
    let (measured, asked) = drive(&trace, &all, |question| {
        Ok(match question.key.as_str() {
            "q000.3-answer-0-run" | "q000.3-answer-1-run" => json!({ "label": "ok", "rationale": "2" }),
            "0-summaries-00" => json!({ "summaries": [] }),
            "criteria" => json!({ "thought": "t", "questions": ["Was the Zoological catalogue found?"] }),
            "filter" => json!({ "thought": "t", "drop": [] }),
            "q000.0-rerank" => {
                let texts: Vec<String> = serde_json::from_str(&question.prompt.user).unwrap();
                json!({ "scores": vec![0.5; texts.len()] })
            }
            "q000.1-perceive" => perceived(piece_with(question, "A catalogue"), "A catalogue", "no"),
            "q000.2-wider" => coding(perceived(piece_with(question, "A catalogue"), "A catalogue", "yes")),
            "q000.3-answer-2" => checked("yes"),
            _ => json!({ "reason": "", "tool": "run_code", "input": "print(1+1)", "answer": "unclear" }),
        })
    });
    assert!(measured[0].outcome.as_ref().unwrap().passed);
    // One question a round here.
    assert_eq!(asked.len(), crate::measure::question_rounds::MAX_ROUNDS);
}

#[test]
fn failed_judge_leaves_the_checklist_unmeasured() {
    let trace = specimens("Saint Petersburg");
    let (measured, _) = drive(&trace, &settings(GENERATED), |_| Err(Unmeasured::Budget));
    assert_eq!(measured[0].outcome, Err(Unmeasured::Budget));
    let (measured, _) =
        drive(&trace, &settings(GENERATED), |question| criteria(question).ok_or(Unmeasured::Timeout));
    assert_eq!(measured[0].outcome, Err(Unmeasured::Timeout));
}

#[test]
fn checklist_of_checks_is_answered_by_rules() {
    let trace = specimens("St. Petersburg");
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

#[test]
fn rerank_orders_pieces_and_its_failure_keeps_bm25() {
    let trace = specimens("Saint Petersburg");
    let one = "judges: [main]\nchecklist: { rerank: cross, keep: 1, fixed: [{ items: [{ question: 'Was the Zoological catalogue found?' }] }] }";
    let judge = |down: bool| {
        move |question: &Question| match question.key.as_str() {
            "q000.0-rerank" if down => Err(Unmeasured::JudgeError),
            "q000.0-rerank" => {
                let texts: Vec<String> = serde_json::from_str(&question.prompt.user).unwrap();
                assert_eq!(question.judges, ["cross"]);
                Ok(
                    json!({ "scores": texts.iter().map(|t| if t.contains("A catalogue") { 5.0 } else { -5.0 }).collect::<Vec<_>>() }),
                )
            }
            key if key.contains("answer") => Ok(checked("yes")),
            _ => Ok(perceived(piece_with(question, "A catalogue of type"), "Zoological Institute", "yes")),
        }
    };
    for down in [false, true] {
        let (measured, _) = drive(&trace, &settings(one), judge(down));
        assert!(measured[0].outcome.as_ref().unwrap().passed, "down: {down}");
    }
}
