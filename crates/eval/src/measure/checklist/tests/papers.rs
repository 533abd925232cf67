//! The paper's two worked examples (003, sections 8.3 and 8.4): questions and answers, and the verdicts
//! in the appendix's format. Tasks, code and questions are paraphrased. The coding
//! questions go to the judge of their class, as in the paper's figure 6; its printed paths have
//! "logical", "reasoning" on questions about code.

use super::*;
use crate::measure::testing::golden;

/// A checklist's items, as they are written and as people read them.
fn items(measured: &[Measurement]) -> (Json, String) {
    let [Measurement { details, .. }] = measured else { panic!("one verdict: {measured:?}") };
    let DetailValue::Text(text) = &details[0].value else { panic!("items are a text") };
    let value: Json = serde_json::from_str(text).unwrap();
    let shown = format!("{value:#}\n");
    (value, shown)
}

/// A judge's perception of a question: pieces, given by words in them, and passages.
fn perception_reply(question: &Question, class: &str, passages: &[(&str, &str)], by_answer: bool) -> Json {
    let passages: Vec<Json> = passages
        .iter()
        .map(|(piece, quote)| json!({ "piece": piece_with(question, piece), "quote": quote }))
        .collect();
    let by_answer = if by_answer { "yes" } else { "no" };
    json!({ "thought": "t", "class": class, "passages": passages, "final_answer": by_answer, "sufficient": "yes" })
}

fn answer_reply(answer: &str, reason: &str) -> Json {
    json!({ "reason": reason, "tool": "none", "input": "", "answer": answer })
}

#[test]
fn gaia_abbreviated_city_fails() {
    let trace = Script::new(
        "In which city did the specimens from Vietnam that Kuznetsov described, by Nedoshivina's paper of 2010, end up? Only its name, without abbreviations.",
    )
    .plan(&["find the paper", "check what it says against a second source"])
    .calls("", &[("search", r#"{"q": "Nedoshivina 2010 Kuznetsov Vietnam specimens"}"#)])
    .returns("Catalogue of Kuznetsov's types from Vietnam, kept by the Zoological Institute in St. Petersburg (ZISP). All material that he collected is now in the ZISP collection.")
    .says("The specimens ended up in St. Petersburg.")
    .answers("St. Petersburg")
    .build();
    let quote = "kept by the Zoological Institute in St. Petersburg";
    let (measured, _) = drive(&trace, &settings(GENERATED), |question| {
        Ok(match question.key.as_str() {
            "criteria" => json!({ "thought": "t", "questions": [
                "Is the answer the name of a city?", "Is the city's name free of abbreviations?",
                "Was the city found in which Kuznetsov's specimens from Vietnam are?" ] }),
            "filter" => json!({ "thought": "t", "drop": [] }),
            "q000.1-perceive" => perception_reply(question, "reasoning", &[("Catalogue of", quote)], true),
            // Nothing of the record is about abbreviations: the wider selection contains the last output.
            "q001.1-perceive" => json!({ "thought": "t", "class": "reasoning", "passages": [],
                                         "final_answer": "no", "sufficient": "no" }),
            "q001.2-wider" => {
                let passage = ("The specimens ended", "The specimens ended up in St. Petersburg.");
                perception_reply(question, "reasoning", &[passage], false)
            }
            "q002.1-perceive" => perception_reply(
                question,
                "reasoning",
                &[("Catalogue of", "All material that he collected is now in the ZISP collection.")],
                true,
            ),
            "q000.3-answer-0" => answer_reply("yes", "St. Petersburg is a city."),
            "q001.3-answer-0" => answer_reply("no", "\"St.\" stands for Saint."),
            _ => answer_reply("yes", "ZISP is the institute in St. Petersburg."),
        })
    });
    let (value, shown) = items(&measured);
    golden("checklist-gaia", &shown);
    assert_eq!(value["verdict"], "no");
    let paths: Vec<&Json> =
        value["eval"].as_array().unwrap().iter().map(|e| &e["c3_response"]["decision_path"]).collect();
    let (both, proofs) =
        (json!(["proofs+final_answer", "logical", "reasoning"]), json!(["proofs", "logical", "reasoning"]));
    assert_eq!(paths, [&both, &proofs, &both]);
}

const CODE: &str = "\
import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from sklearn.preprocessing import StandardScaler

def standardised(df):
    whole = df.fillna(df.mean())
    scaled = pd.DataFrame(StandardScaler().fit_transform(whole), columns=whole.columns)
    axes = sns.heatmap(scaled.corr(), annot=True)
    plt.show()
    return scaled, axes";

/// A coder's run: written, run once, answered.
fn coder_run(printed: &str) -> AgentTrace {
    Script::new(
        "Write standardised(df) with scikit-learn's StandardScaler, seaborn and matplotlib.pyplot: gaps of a DataFrame are filled with their column's mean, its columns standardised, and the frame is returned together with the Axes of a heatmap of its correlations.",
    )
    .plan(&["write the function", "run it on three rows, one with a gap, and print the Axes"])
    .calls("Trying it on three rows.", &[("run_python", r#"{"file": "try.py"}"#)])
    .returns(printed)
    .answers(CODE)
    .build()
}

const CODING: &str = "
judges: [main]
checklist:
  by_class: { coding: [coder] }
  fixed:
    - items:
      - { question: 'Is StandardScaler used to standardise the columns?' }
      - { question: 'Are gaps filled with the mean of their column?' }
      - { question: 'Does seaborn draw a heatmap of the correlation matrix?' }
      - { question: 'Is matplotlib.pyplot used to show the heatmap?' }
      - { question: 'Does the function return both the frame and the Axes?' }";

/// The perception of each question, by its number.
fn perceived_code(question: &Question, returned: &str) -> Json {
    let code_perception =
        |quote: &str| perception_reply(question, "coding", &[("import matplotlib", quote)], true);
    match question.key.split('.').next().unwrap() {
        "q000" => code_perception("StandardScaler().fit_transform(whole)"),
        "q001" => perception_reply(
            question,
            "coding",
            &[("1.224745", FILLED), ("1.224745", "1  0.000000  0.000000  0.000000")],
            false,
        ),
        "q002" => code_perception("axes = sns.heatmap(scaled.corr(), annot=True)"),
        "q003" => code_perception("plt.show()"),
        _ => perception_reply(question, "coding", &[("returned:", returned)], false),
    }
}

const FILLED: &str = "gaps filled with their column's mean: 1 in c2";

/// As printed. The gap was in the second row of c2, which is 0 once filled with the mean of the others.
const TABLE: &str = "\
         c1        c2        c3
0 -1.224745 -1.224745 -1.224745
1  0.000000  0.000000  0.000000
2  1.224745  1.224745  1.224745
";

#[test]
fn bigcode_coding_questions_go_to_the_coding_judge() {
    let returned = "both returned: a frame of (3, 3) and Axes";
    let trace = coder_run(&format!("{FILLED}\n{TABLE}{returned}"));
    let (measured, asked) = drive(&trace, &settings(CODING), |question| {
        Ok(match question.key.contains("answer") {
            true => answer_reply("yes", "The passage shows it."),
            false => perceived_code(question, returned),
        })
    });
    let (value, shown) = items(&measured);
    golden("checklist-bigcode", &shown);
    assert_eq!((&value["verdict"], measured[0].outcome.as_ref().unwrap().passed), (&json!("yes"), true));
    let answers: Vec<&Question> = asked.iter().filter(|q| q.key.contains("answer")).collect();
    assert!(answers.len() == 5 && answers.iter().all(|q| q.judges == ["coder"]), "{answers:?}");
    let perceiving = asked.iter().filter(|q| q.key.contains("perceive"));
    assert!(perceiving.into_iter().all(|q| q.judges.is_empty()), "the class is not known yet");
    let tool = trace.tree.spans[trace.calls[0].at].id.to_string();
    for (n, path) in [(1, "proofs"), (4, "proofs"), (0, "proofs+final_answer")] {
        let one = &value["eval"][n];
        assert_eq!(one["c3_response"]["decision_path"], json!([path, "logical", "coding"]));
        let proof = one["proofs"]["proofs"].as_str().unwrap();
        assert_eq!(proof.starts_with(&format!("span {tool}: ")), path == "proofs", "{proof}");
    }
}

#[test]
fn bigcode_missing_axes_fails_with_the_printed_line_quoted() {
    let returned = "both returned: a frame of (3, 3) and None";
    let trace = coder_run(&format!("{FILLED}\n{TABLE}{returned}"));
    let (measured, _) = drive(&trace, &settings(CODING), |question| {
        Ok(match question.key.as_str() {
            "q004.3-answer-0" => answer_reply("no", "None was returned in the place of the Axes."),
            key if key.contains("answer") => answer_reply("yes", "The passage shows it."),
            _ => perceived_code(question, returned),
        })
    });
    let value = measured[0].outcome.as_ref().unwrap();
    assert_eq!((value.value.clone(), value.findings.len()), (Value::Label("no"), 1));
    let tool = trace.tree.spans[trace.calls[0].at].id;
    assert_eq!(
        (value.findings[0].quote.as_str(), value.findings[0].cited.as_slice()),
        (returned, &[tool][..])
    );
    assert!(
        value.findings[0]
            .rationale
            .starts_with("Does the function return both the frame and the Axes? Yes was expected. No:")
    );
}
