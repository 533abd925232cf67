//! Runs in other languages, on which metrics with English words only are unmeasured: they neither report false defects,
//! nor pass texts that they cannot read.

use std::collections::BTreeMap;

use crate::measure::testing::Script;
use crate::measure::{Settings, Unmeasured, catalog};
use crate::recognise::AgentTrace;

/// By metric, the outcome on each span: passed, failed, or the unmeasured reason.
fn results(trace: &AgentTrace) -> BTreeMap<&'static str, Vec<Result<bool, Unmeasured>>> {
    let mut out: BTreeMap<&'static str, Vec<_>> = BTreeMap::new();
    for m in catalog::run(trace, &Settings::default()) {
        out.entry(m.metric).or_default().push(m.outcome.map(|measured| measured.passed));
    }
    out
}

/// The failed measurements, each with the rationales of its findings.
fn failures(trace: &AgentTrace) -> Vec<String> {
    let measured = catalog::run(trace, &Settings::default());
    let failed = measured.into_iter().filter_map(|m| Some((m.metric, m.outcome.ok().filter(|o| !o.passed)?)));
    failed
        .map(|(metric, outcome)| {
            let rationales: Vec<String> = outcome.findings.into_iter().map(|f| f.rationale).collect();
            format!("{metric}: {}", rationales.join("; "))
        })
        .collect()
}

/// A run of a question, a search, its result and the answer.
fn search(instructions: &str, task: &str, query: &str, result: &str, answer: &str) -> AgentTrace {
    let arguments = serde_json::json!({ "query": query }).to_string();
    Script::new(task)
        .system(instructions)
        .tools(&["web_search", "calculator"])
        .calls("", &[("web_search", &arguments)])
        .returns(result)
        .answers(answer)
        .build()
}

/// Metrics that examine only words in such runs.
const WORD_METRICS: [&str; 4] =
    ["completeness", "instruction_following", "reasoning_integrity", "tool_coverage"];

#[test]
fn run_in_another_language_is_unmeasured_by_rules_that_read_english() {
    for (instructions, task, query, result, answer) in [
        (
            "Du bist ein hilfreicher Assistent und antwortest immer kurz und freundlich.",
            "Wie hoch ist der Elbrus und wo liegt er?",
            "Elbrus Lage",
            "Der Elbrus liegt im Kaukasus und ist der höchste Berg von Russland.",
            "Der Elbrus liegt im Kaukasus. Wie hoch er ist, steht dort nicht, aber er ist der höchste Berg von Russland.",
        ),
        (
            "あなたは親切なアシスタントです。いつも短く答えてください。",
            "エルブルス山はどこにありますか。",
            "エルブルス山 場所",
            "エルブルス山はコーカサス山脈にあり、ロシアで最も高い山です。",
            "エルブルス山はコーカサス山脈にあります。ロシアで最も高い山です。",
        ),
        (
            "Je bent een behulpzame assistent en je geeft altijd een kort antwoord.",
            "Waar ligt de Elbroes, en is het een berg die ook voor beginners niet moeilijk is?",
            "Elbroes ligging",
            "De Elbroes ligt in de Kaukasus en is de hoogste berg van Rusland.",
            "De Elbroes ligt in de Kaukasus. Het is een berg die ook voor beginners niet moeilijk is, maar wel erg hoog.",
        ),
    ] {
        let trace = search(instructions, task, query, result, answer);
        assert_eq!(failures(&trace), Vec::<String>::new(), "{task}");
        let results = results(&trace);
        for metric in WORD_METRICS {
            let outcomes = &results[metric];
            assert!(outcomes.iter().all(Result::is_err), "{metric} on {task}: {outcomes:?}");
            assert!(outcomes.contains(&Err(Unmeasured::Language)), "{metric} on {task}: {outcomes:?}");
        }
    }
}

#[test]
fn comparison_by_english_words_is_unmeasured_where_the_language_is_not_recognised() {
    let outcomes_and_failures = |answer: &str| {
        let trace = Script::new("What is the highest tide of the week?")
            .tools(&["get_tides"])
            .calls("", &[("get_tides", "{}")])
            .returns(r#"{"highest": 412, "lowest": 97, "station": "Hoek van Holland"}"#)
            .answers(answer)
            .build();
        (results(&trace)["reasoning_integrity"].clone(), failures(&trace))
    };
    for answer in [
        // Dutch and Polish.
        "Het hoogste water van deze week is 412 en dat is niet erg hoog voor de tijd van het jaar.",
        "Najwyższa woda w tym tygodniu to 412 i nie jest to dużo jak na tę porę roku, ale może być więcej.",
        // The value is wrong, but only English words could relate it to the question.
        "Najwyższa woda w tym tygodniu to 97 i nie jest to dużo jak na tę porę roku, ale może być więcej.",
    ] {
        let (outcomes, failures) = outcomes_and_failures(answer);
        assert_eq!(failures, Vec::<String>::new(), "{answer}");
        assert!(outcomes.iter().all(Result::is_err), "{answer}: {outcomes:?}");
    }
    let (outcomes, _) = outcomes_and_failures("The highest tide is 412.");
    assert!(outcomes.contains(&Ok(true)), "{outcomes:?}");
    let (outcomes, _) = outcomes_and_failures("The highest tide is 97.");
    assert!(outcomes.contains(&Ok(false)), "{outcomes:?}");
}

#[test]
fn identifiers_and_sums_are_compared_in_any_language() {
    let failures = |answer: &str| {
        let script = Script::new("R-5519?").tools(&["get_booking"]).calls("", &[("get_booking", "{}")]);
        let result = r#"{"booking": {"code": "KQ-5519-T", "berths": [{"price": 180.5}, {"price": 220.5}]}}"#;
        failures(&script.returns(result).answers(answer).build()).len()
    };
    // The answers are short, one of them probably not English and the other without words, or are Dutch.
    let dutch = "Uw reservering met het nummer KQ-9155-T is bij ons bekend en dat is niet gewijzigd.";
    for answer in ["KQ-9155-T, met ontbijt", "KQ-9155-T", dutch, "180.50 + 220.50 = 402.00"] {
        assert!(failures(answer) > 0, "{answer}");
    }
    let dutch = dutch.replace("9155", "5519");
    for answer in ["KQ-5519-T, met ontbijt", "KQ-5519-T", &dutch, "180.50 + 220.50 = 401.00"] {
        assert_eq!(failures(answer), 0, "{answer}");
    }
}

#[test]
fn english_run_is_not_unmeasured_for_its_language() {
    let trace = search(
        "You are a helpful assistant, and the answers that you give are short.",
        "How high is Mount Elbrus, and where is it?",
        "Mount Elbrus height",
        "Mount Elbrus is the highest mountain of the Caucasus: 5642 m.",
        "Mount Elbrus is in the Caucasus, and its height is 5642 m.",
    );
    let results = results(&trace);
    assert!(!results.values().flatten().any(|outcome| *outcome == Err(Unmeasured::Language)), "{results:?}");
    assert!(results["completeness"].contains(&Ok(true)), "{results:?}");
}

#[test]
fn statements_that_only_english_words_would_excuse_are_no_findings() {
    let story = Script::new("Schreibe eine kurze Geschichte über die Schafe auf dem Hof.")
        .tools(&["get_farm"])
        .calls("", &[("get_farm", "{}")])
        .returns(r#"{"farm": {"sheep": 312, "name": "Lindenhof"}}"#)
        .answers("Auf dem Lindenhof gab es 4711 Geschichten, und etwa 950 davon waren wahr.");
    let rounded = Script::new("Wie viele Einwohner hat der Ort, und wie groß ist er?")
        .tools(&["get_town"])
        .calls("", &[("get_town", "{}")])
        .returns(r#"{"inhabitants": 8361, "hectares": 1287}"#)
        .answers("Der Ort hat rund 8400 Einwohner und ist etwa 1300 Hektar groß; siehe auch Seite 412.");
    let lacking = Script::new("Wann wurde die Rechnung R-2291 bezahlt?")
        .tools(&["find_invoice"])
        .calls("", &[("find_invoice", r#"{"id": "R-2291"}"#)])
        .returns("[]")
        .answers(
            "Zu der Rechnung habe ich leider nichts gefunden. Sie können uns unter 0800 555123 erreichen.",
        );
    let unread = Script::new("Wanneer is de rekening R-2291 betaald?")
        .tools(&["find_invoice"])
        .calls("", &[("find_invoice", r#"{"id": "R-2291"}"#)])
        .returns("[]")
        .answers("Over deze rekening heb ik niets kunnen vinden. U kunt ons bellen op 0800 555123.");
    let parts = Script::new(
        "Welche Farbe hat die Flagge von Bern? Und wie heißt der Alte Turm in der Stadt?",
    )
    .tools(&["read_page"])
    .calls("", &[("read_page", r#"{"title": "Bern"}"#)])
    .returns("Bern: Wappen und Fahne sind rot und gelb. Der Zytglogge steht in der Kramgasse.")
    .answers(
        "Sie ist rot und gelb mit einem schwarzen Bären, und das Bauwerk in der Kramgasse heißt Zytglogge.",
    );
    let planned = Script::new("Wie hoch ist der Berg in Metern?")
        .tools(&["web_search", "calculator"])
        .says("Plan")
        .plan(&["Suche mit web_search nach der Höhe", "Falls sie in Fuß steht, rechne sie mit calculator um"])
        .calls("", &[("web_search", r#"{"query": "Berg Höhe"}"#)])
        .returns("Der Berg ist 2917 Meter hoch.")
        .answers("Der Berg ist 2917 Meter hoch.");
    for script in [story, rounded, lacking, unread, parts, planned] {
        let trace = script.build();
        let mut failures = failures(&trace);
        // `avoidance` fails in each language that it reads, since the answer states that nothing was found.
        failures.retain(|failure| !failure.starts_with("avoidance"));
        assert_eq!(failures, Vec::<String>::new(), "{:?}", trace.agents[0].task);
    }
}

#[test]
fn numbers_in_words_of_another_language_answer_an_english_question() {
    let trace = Script::new("How many moons has Mars? Answer in German.").answers("Der Mars hat zwei Monde.");
    assert_eq!(failures(&trace.build()), Vec::<String>::new());
    let trace = Script::new("How many moons has Mars?")
        .answers("The moons of Mars are named after the gods of fear.");
    assert_eq!(failures(&trace.build()).len(), 1);
}

#[test]
fn result_in_another_language_than_the_query_has_no_finding() {
    let result = "The capital is the seat of the government. ".repeat(20);
    let trace = search(
        "",
        "Wie viele Einwohner hat die Hauptstadt von Frankreich?",
        "Hauptstadt Frankreich Einwohner",
        &result,
        "Es sind etwas mehr als zwei Millionen.",
    );
    assert_eq!(failures(&trace), Vec::<String>::new());
}
