//! Whole checklists, with fixed answers of judges.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::*;
use crate::measure::schema::{Schema, Validity};
use crate::measure::testing::Script;
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
        let context = Context { trace, at, settings, memo: &memo, rules: &[] };
        match (Checklist { asks: true }).step(&context, &answers) {
            Step::Done(measurements) => return (measurements, asked),
            Step::Ask(questions) => {
                assert!(asked.len() < 100, "it ends");
                for question in questions {
                    let opinion = |value: Json| {
                        let checked = Schema::compile(&question.form.schema).check(&value);
                        let fits = checked.validity == Validity::Valid;
                        assert!(fits, "{value} does not fit {}", question.form.schema);
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
        (measured[0].outcome.as_ref().map(|o| o.passed).map_err(|why| *why), reason)
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
        let mut said = perceived(piece_with(question, "A catalogue of type"), "deposited on the Moon", "no");
        said["final_answer"] = json!("no");
        Ok(said)
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

#[test]
fn factual_question_needs_an_asset_or_search() {
    let trace = specimens("Saint Petersburg");
    let fixed = "fixed: [{ items: [{ question: 'Is the Zoological Institute in that city?' }] }]";
    let factual = |question: &Question| {
        if question.key.contains("answer") {
            return Ok(checked("yes"));
        }
        let mut said = perceived(piece_with(question, "A catalogue of type"), "Zoological Institute", "yes");
        said["class"] = json!("factual");
        Ok(said)
    };
    let without = settings(&format!("judges: [main]\nchecklist: {{ {fixed} }}"));
    let (measured, _) = drive(&trace, &without, factual);
    assert_eq!(measured[0].outcome, Err(Unmeasured::NotApplicable));
    let DetailValue::Text(items) = &measured[0].details[0].value else { panic!("items are a text") };
    let items: Json = serde_json::from_str(items).unwrap();
    assert_eq!(items["eval"][0]["c3_response"]["reason"], "there is no source for this fact");

    let asset =
        "assets: [{ name: reference, match: { task: specimens }, text: 'It is in Saint Petersburg.' }]";
    let with = settings(&format!(
        "judges: [main]\nchecklist: {{ {fixed}, {asset}, by_class: {{ factual: [big] }} }}"
    ));
    let (measured, asked) = drive(&trace, &with, factual);
    assert!(measured[0].outcome.as_ref().unwrap().passed);
    let last = asked.last().unwrap();
    assert!(last.prompt.user.contains("It is in Saint Petersburg."));
    assert_eq!(last.judges, ["big"]);

    let search = settings(&format!("judges: [main]\nchecklist: {{ {fixed}, search: web }}"));
    let (_, asked) = drive(&trace, &search, factual);
    assert_eq!(asked.last().unwrap().judges, ["web"]);
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

#[test]
fn criteria_question_depends_only_on_the_task() {
    let first =
        |trace: &AgentTrace| drive(trace, &settings(GENERATED), |_| Err(Unmeasured::Budget)).1.remove(0);
    let (one, other) = (first(&specimens("Saint Petersburg")), first(&specimens("Hanoi")));
    assert_eq!((one.key.as_str(), &one), ("criteria", &other), "equal questions hit the answer cache");
}

#[test]
fn of_agents_measures_every_agent() {
    let trace = Script::new("Find the height of Elbrus.")
        .calls("", &[("searcher", r#"{"task": "Look Elbrus up."}"#)])
        .enter("Look Elbrus up.")
        .answers("5642 m")
        .leave()
        .answers("Elbrus is 5642 m high.")
        .build();
    let measured_at = |of: &str| -> Vec<Idx> {
        let one = settings(&format!(
            "checklist: {{ of: {of}, fixed: [{{ items: [{{ question: 'Is it named?', check: {{ contains: {{ text: '5642' }} }} }}] }}] }}"
        ));
        let at = |agent: &Agent| {
            let memo = Memo::new();
            let context = Context { trace: &trace, at: agent.at, settings: &one, memo: &memo, rules: &[] };
            match (Checklist { asks: false }).step(&context, &[]) {
                Step::Done(all) => all.into_iter().map(|m| m.at).collect::<Vec<_>>(),
                Step::Ask(_) => panic!("rules never ask"),
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
    let all = settings("judges: [main]\nchecklist: { generate: true, rerank: cross, keep: 1 }");
    let (measured, asked) = drive(&trace, &all, |question| {
        Ok(match question.key.as_str() {
            "criteria" => json!({ "thought": "t", "questions": ["Was the Zoological catalogue found?"] }),
            "filter" => json!({ "thought": "t", "drop": [] }),
            "q000.0-rerank" => {
                let texts: Vec<String> = serde_json::from_str(&question.prompt.user).unwrap();
                json!({ "scores": vec![0.5; texts.len()] })
            }
            "q000.1-perceive" => perceived(piece_with(question, "A catalogue"), "A catalogue", "no"),
            "q000.2-wider" => perceived(piece_with(question, "A catalogue"), "A catalogue", "yes"),
            "q000.3-answer-2" => checked("yes"),
            _ => json!({ "reason": "", "tool": "calculator", "input": "1+1", "answer": "unclear" }),
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
    let context =
        Context { trace: &trace, at: trace.agents[0].at, settings: &rules, memo: &memo, rules: &[] };
    let Step::Done(measured) = (Checklist { asks: false }).step(&context, &[]) else {
        panic!("rules never ask")
    };
    let value = measured[0].outcome.as_ref().unwrap();
    assert_eq!((value.passed, value.findings.len()), (false, 1));
    assert_eq!(value.findings[0].quote, "St. Petersburg");
    assert_eq!(measured[0].judge, "rules/1");
    assert_eq!((Checklist { asks: true }).step(&context, &[]), Step::Done(Vec::new()));
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
