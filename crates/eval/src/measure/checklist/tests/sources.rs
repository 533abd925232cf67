//! Questions of fact, which assets or a search answer.

use super::*;

/// The answer of a correct judge: the run does not contain the fact, so its proofs do not suffice.
fn factual_answer(question: &Question) -> Json {
    let mut answer =
        perceive_answer(piece_with(question, "A catalogue of type"), "Zoological Institute", "no");
    answer["class"] = json!("factual");
    answer
}

const IN_CITY: &str = "fixed: [{ items: [{ question: 'Is the Zoological Institute in that city?' }] }]";
const REFERENCE: &str =
    "assets: [{ name: reference, match: { task: specimens }, text: 'It is in Saint Petersburg.' }]";

#[test]
fn question_of_fact_without_a_source_is_unmeasured() {
    let trace = specimens_run("Saint Petersburg");
    let without_source = settings(&format!("judges: [main]\nchecklist: {{ {IN_CITY} }}"));
    let (measured, asked) = drive(&trace, &without_source, |question| Ok(factual_answer(question)));
    assert_eq!(measured[0].outcome, Err(Unmeasured::NotApplicable));
    assert_eq!(only_item(&measured)["c3_response"]["reason"], "there is no source for this fact");
    assert!(asked.iter().all(|q| !q.key.contains("answer")), "judges are not asked to answer from memory");
}

#[test]
fn assets_answer_a_question_of_fact_although_the_record_does_not_suffice() {
    let trace = specimens_run("Saint Petersburg");
    let with_assets = settings(&format!(
        "judges: [main]\nchecklist: {{ {IN_CITY}, {REFERENCE}, by_class: {{ factual: [big] }} }}"
    ));
    let asking = |source_answer: Json| {
        drive(&trace, &with_assets, |question| {
            Ok(if question.key == "q000.3-source-0" {
                source_answer.clone()
            } else {
                factual_answer(question)
            })
        })
    };
    let (measured, asked) = asking(source_answer("yes", &[("reference", "in Saint Petersburg")]));
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
        source_answer("no", &[]),
        source_answer("no", &[("reference", "in Moscow")]),
        source_answer("no", &[("memory", "in Saint Petersburg")]),
    ] {
        let (measured, _) = asking(from_memory);
        assert_eq!(measured[0].outcome, Err(Unmeasured::NotApplicable), "no passage of a source has it");
        let reason = only_item(&measured)["c3_response"]["reason"].clone();
        assert_eq!(reason, "an answer was given without a passage of a source that has it");
    }
}

#[test]
fn search_answers_where_assets_do_not_decide_and_must_cite() {
    let trace = specimens_run("Saint Petersburg");
    let with_search =
        settings(&format!("judges: [main]\nchecklist: {{ {IN_CITY}, {REFERENCE}, search: web }}"));
    let found = [("https://museum.example/about", "The institute is in Saint Petersburg.")];
    let asking = |found: &[(&str, &str)]| {
        drive(&trace, &with_search, |question| {
            Ok(match question.key.as_str() {
                "q000.3-source-0" => source_answer("unclear", &[]),
                "q000.4-search-0" => search_answer("yes", found),
                _ => factual_answer(question),
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
