//! All questions of a checklist for a captured run, as sent.

use std::collections::HashSet;

use super::*;
use crate::measure::testing::{captured, golden};

/// Small pieces and few of them, so that there is something to widen; a judge for every class.
const EVERYTHING: &str = "
judges: [main]
checklist:
  generate: true
  rerank: cross
  keep: 1
  chunk_tokens: 30
  by_class: { coding: [coder], factual: [scholar] }
  search: web
  summaries: true
  assets: [{ name: reference answer, text: 'Mount Elbrus is 836 metres taller than Mont Blanc.' }]";

/// Three questions, one per class: the first pieces are not sufficient for the first question, and the
/// second one needs the calculator.
fn recorded_reply(question: &Question) -> Json {
    let says = |piece: &str, quote: &str, class: &str| {
        json!({ "thought": "t", "class": class, "passages": [{ "piece": piece_with(question, piece), "quote": quote }],
                "final_answer": "yes", "sufficient": "yes" })
    };
    match question.key.as_str() {
        "criteria" => json!({ "thought": "t", "questions": [
            "Was the difference taken from the Alpine Almanac page?",
            "Is the difference named that of Mount Elbrus and Mont Blanc on the page?",
            "Is Mount Elbrus taller than Mont Blanc?" ] }),
        "filter" => json!({ "thought": "t", "drop": [] }),
        key if key.contains("summaries") => json!({ "summaries": [] }),
        key if key.ends_with("rerank") => {
            let texts: Vec<String> = serde_json::from_str(&question.prompt.user).unwrap();
            json!({ "scores": texts.iter().map(|t| if t.contains("4806 m") { 2.0 } else { -2.0 }).collect::<Vec<_>>() })
        }
        "q000.1-perceive" => json!({ "thought": "t", "class": "reasoning", "passages": [],
                                     "final_answer": "no", "sufficient": "no" }),
        "q000.2-wider" => says("4806 m", "Mount Elbrus: 5642 m. Mont Blanc: 4806 m.", "reasoning"),
        "q001.1-perceive" => says("4806 m", "Mount Elbrus: 5642 m. Mont Blanc: 4806 m.", "coding"),
        "q001.3-answer-0" => {
            json!({ "reason": "to be sure", "tool": "calculator", "input": "5642 - 4806", "answer": "unclear" })
        }
        "q001.3-answer-1" => check_answer("no"),
        "q002.1-perceive" => says("4806 m", "Mont Blanc: 4806 m", "factual"),
        "q002.3-source-0" => source_answer("unclear", &[]),
        "q002.4-search-0" => search_answer("yes", &[("https://peaks.example", "Elbrus is the higher one.")]),
        _ => check_answer("yes"),
    }
}

#[test]
fn questions_of_captured_run_match_golden_file() {
    let mut out = String::new();
    for trace in captured("vercelai-e") {
        let (measured, asked) = drive(&trace, &settings(EVERYTHING), |question| Ok(recorded_reply(question)));
        assert_eq!(measured[0].outcome.as_ref().map(|m| m.value.clone()), Ok(Value::Label("no")));
        let mut shown = HashSet::new();
        for question in &asked {
            let judges =
                if question.judges.is_empty() { "main".to_owned() } else { question.judges.join(", ") };
            out.push_str(&format!("==== {}, asked of {judges}\n", question.key));
            if shown.insert(question.prompt.system.clone()) {
                out.push_str(&format!("---- system\n{}\n---- user\n", question.prompt.system));
            }
            out.push_str(&format!("{}\n---- form\n{}\n", question.prompt.user, question.form.schema));
        }
        // The run's plan is in its first output, and in no question about items.
        let run_questions = asked.iter().filter(|q| q.key.starts_with('q'));
        assert!(
            run_questions.into_iter().all(|q| !q.prompt.user.contains("Search for the Alpine Almanac page"))
        );
    }
    golden("checklist-vercelai-e", &out);
}
