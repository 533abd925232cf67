//! Whole checklists, with fixed answers of judges.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::*;
use crate::measure::schema::{Schema, Validity};
use crate::measure::testing::{Script, row};
use crate::measure::{Memo, Opinion, Question, Usage};

mod golden;
mod papers;
mod rules;
mod sources;

fn settings(yaml: &str) -> crate::measure::Settings {
    serde_saphyr::from_str(yaml).unwrap()
}

/// A run like the paper's: a catalogue is found, and the answer is a city.
fn specimens_run(answer: &str) -> AgentTrace {
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
    drive_judges(trace, settings, |question| judge(question).map(|value| vec![value]))
}

/// As [`drive`], with one answer of each judge.
fn drive_judges(
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
                assert!(asked.len() < 100, "the questions come to an end");
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
    let text_start = pieces + page[pieces..].find(text).unwrap_or_else(shown);
    let label = page[..text_start].rfind("| piece ").unwrap();
    page[label + 8..].split(',').next().unwrap().to_owned()
}

/// An answer to the question for proofs, with one passage.
fn perceive_answer(piece: String, quote: &str, sufficient: &str) -> Json {
    json!({ "thought": "t", "class": "reasoning", "passages": [{ "piece": piece, "quote": quote }],
            "final_answer": "yes", "sufficient": sufficient })
}

/// An answer to the question whether the proofs support an item.
fn check_answer(answer: &str) -> Json {
    json!({ "reason": "as the passage says", "tool": "none", "input": "", "answer": answer })
}

const GENERATED: &str = "judges: [rules, main]\nchecklist: { generate: true }";

/// The answers that generate three questions, of which the filter drops one.
fn criteria_answer(question: &Question) -> Option<Json> {
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
    let trace = specimens_run("St. Petersburg");
    let (measured, asked) = drive(&trace, &settings(GENERATED), |question| {
        Ok(criteria_answer(question).unwrap_or_else(|| match question.key.as_str() {
            key if key.ends_with("perceive") => perceive_answer(
                piece_with(question, "A catalogue of type"),
                "Zoological Institute, St. Petersburg",
                "yes",
            ),
            "q000.3-answer-0" => check_answer("yes"),
            _ => check_answer("no"),
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
    let trace = specimens_run("Saint Petersburg");
    let (_, asked) = drive(&trace, &settings(GENERATED), |question| {
        Ok(criteria_answer(question).unwrap_or_else(|| match question.key.contains("answer") {
            true => check_answer("yes"),
            false => {
                perceive_answer(piece_with(question, "A catalogue of type"), "Zoological Institute", "yes")
            }
        }))
    });
    let shown = asked.iter().filter(|q| q.key.starts_with('q'));
    assert!(shown.into_iter().all(|q| !q.prompt.user.contains("email the curator")));
}

#[test]
fn votes_without_majority_are_a_judge_error_that_lists_them() {
    let trace = specimens_run("Saint Petersburg");
    let one = "judges: [main]\nchecklist: { keep: 1, fixed: [{ items: [{ question: 'Was the Zoological Institute found?' }] }] }";
    let answered = |votes: &[&str]| {
        let (measured, _) = drive_judges(&trace, &settings(one), |question| {
            Ok(match question.key.contains("answer") {
                true => votes.iter().map(|vote| check_answer(vote)).collect(),
                false => {
                    let piece = piece_with(question, "A catalogue of type");
                    vec![perceive_answer(piece, "Zoological Institute", "yes")]
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
    let trace = specimens_run("Saint Petersburg");
    let one = "judges: [main]\nchecklist: { keep: 1, fixed: [{ items: [{ question: 'Was the Zoological Institute found?' }] }] }";
    let (measured, asked) = drive(&trace, &settings(one), |question| {
        let mut answer =
            perceive_answer(piece_with(question, "A catalogue of type"), "deposited on the Moon", "no");
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
                perceive_answer(piece_with(question, "nothing in stock"), "nothing in stock", "no")
            }
            "q000.2-wider" => {
                perceive_answer(piece_with(question, "Box 7"), "Box 7 holds all eleven of them.", "yes")
            }
            _ => check_answer("yes"),
        })
    });
    assert!(measured[0].outcome.as_ref().unwrap().passed);
    let keys: Vec<&str> = asked.iter().map(|q| q.key.as_str()).collect();
    assert_eq!(keys, ["q000.1-perceive", "q000.2-wider", "q000.3-answer-0"]);
    assert!(asked[2].prompt.user.contains("Box 7 holds all eleven of them."));
}

/// An answer from sources, with the passages that it cites.
fn source_answer(answer: &str, cited: &[(&str, &str)]) -> Json {
    let cited: Vec<Json> =
        cited.iter().map(|(source, quote)| json!({ "source": source, "quote": quote })).collect();
    json!({ "reason": "r", "cited": cited, "tool": "none", "input": "", "answer": answer })
}

/// An answer from a search, which offers no tools.
fn search_answer(answer: &str, cited: &[(&str, &str)]) -> Json {
    let mut value = source_answer(answer, cited);
    value.as_object_mut().unwrap().retain(|key, _| key != "tool" && key != "input");
    value
}

/// The first item in the details of the first measurement.
fn only_item(measured: &[Measurement]) -> Json {
    let DetailValue::Text(items) = &measured[0].details[0].value else { panic!("items are a text") };
    serde_json::from_str::<Json>(items).unwrap()["eval"][0].clone()
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
            key if key.contains("answer") => check_answer("yes"),
            _ => {
                assert!(question.prompt.user.contains("code: print(sum(x))"), "{}", question.prompt.user);
                assert!(!question.prompt.user.contains("difference of two heights"), "a summary is no proof");
                perceive_answer(piece_with(question, "code: print"), "print(sum(x))", "yes")
            }
        })
    });
    let keys: Vec<&str> = asked.iter().map(|q| q.key.as_str()).collect();
    assert_eq!(keys, ["0-summaries-00", "q000.1-perceive", "q000.3-answer-0"]);
}

#[test]
fn tool_output_is_in_the_next_prompt() {
    let trace = specimens_run("836");
    let one = settings(
        "judges: [main]\nchecklist: { fixed: [{ items: [{ question: 'Is the answer the Institute difference?' }] }] }",
    );
    let (measured, asked) = drive(&trace, &one, |question| {
        Ok(match question.key.as_str() {
            "q000.3-answer-0" => {
                json!({ "reason": "", "tool": "calculator", "input": "5642-4806", "answer": "unclear" })
            }
            "q000.3-answer-1" => check_answer("yes"),
            _ => perceive_answer(piece_with(question, "A catalogue of type"), "Zoological Institute", "yes"),
        })
    });
    assert!(measured[0].outcome.as_ref().unwrap().passed);
    assert!(asked.last().unwrap().prompt.user.contains("calculator 5642-4806]\n836\n"));
}

/// An answer to the question for proofs, with the class of questions that a program may answer.
fn with_class_coding(mut answer: Json) -> Json {
    answer["class"] = json!("coding");
    answer
}

#[test]
fn program_of_a_judge_is_run_by_the_runner_alone_and_only_for_questions_of_code() {
    let trace = specimens_run("836");
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
                "q000.3-answer-1" => check_answer("yes"),
                _ => with_class_coding(perceive_answer(
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
            "q000.3-answer-0" => check_answer("yes"),
            _ => perceive_answer(piece_with(question, "A catalogue of type"), "Zoological Institute", "yes"),
        })
    });
    assert!(reasoning.1.iter().all(|q| !q.form.schema.to_string().contains("run_code")));
}

#[test]
fn criteria_question_depends_only_on_the_task() {
    let first =
        |trace: &AgentTrace| drive(trace, &settings(GENERATED), |_| Err(Unmeasured::Budget)).1.remove(0);
    let (one, other) = (first(&specimens_run("Saint Petersburg")), first(&specimens_run("Hanoi")));
    assert_eq!((one.key.as_str(), &one), ("criteria", &other), "equal questions hit the answer cache");
}

#[test]
fn longest_sequence_of_questions_fits_the_maximum_of_rounds() {
    let trace = specimens_run("Saint Petersburg");
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
            "q000.1-perceive" => perceive_answer(piece_with(question, "A catalogue"), "A catalogue", "no"),
            "q000.2-wider" => {
                with_class_coding(perceive_answer(piece_with(question, "A catalogue"), "A catalogue", "yes"))
            }
            "q000.3-answer-2" => check_answer("yes"),
            _ => json!({ "reason": "", "tool": "run_code", "input": "print(1+1)", "answer": "unclear" }),
        })
    });
    assert!(measured[0].outcome.as_ref().unwrap().passed);
    // One question a round here.
    assert_eq!(asked.len(), crate::measure::question_rounds::MAX_ROUNDS);
}

#[test]
fn failed_judge_leaves_the_checklist_unmeasured() {
    let trace = specimens_run("Saint Petersburg");
    let (measured, _) = drive(&trace, &settings(GENERATED), |_| Err(Unmeasured::Budget));
    assert_eq!(measured[0].outcome, Err(Unmeasured::Budget));
    let (measured, _) =
        drive(&trace, &settings(GENERATED), |question| criteria_answer(question).ok_or(Unmeasured::Timeout));
    assert_eq!(measured[0].outcome, Err(Unmeasured::Timeout));
}

#[test]
fn rerank_orders_pieces_and_its_failure_keeps_bm25() {
    let trace = specimens_run("Saint Petersburg");
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
            key if key.contains("answer") => Ok(check_answer("yes")),
            _ => Ok(perceive_answer(
                piece_with(question, "A catalogue of type"),
                "Zoological Institute",
                "yes",
            )),
        }
    };
    for down in [false, true] {
        let (measured, _) = drive(&trace, &settings(one), judge(down));
        assert!(measured[0].outcome.as_ref().unwrap().passed, "down: {down}");
    }
}
