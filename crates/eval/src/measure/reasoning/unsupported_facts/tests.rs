//! Tests of facts that no evidence supports.

use super::*;
use crate::measure::reasoning::evidence::TextSource;
use crate::recognise::Text;

const TASK: &str =
    "How many metres taller is Mount Elbrus than Mont Blanc, according to the Alpine Almanac page?";
const PAGE: &str = "Alpine Almanac. Mount Elbrus: 5642 m. Mont Blanc: 4806 m. Last revised 2025-03-02.";

fn checked(task: &str, results: &[&str], answer: &str) -> FactCheck {
    let texts: Vec<Text> = std::iter::once(task).chain(results.iter().copied()).map(Text::from).collect();
    let mut evidence = Evidence::default();
    for text in &texts {
        evidence.add(text, TextSource::Tool);
    }
    let calls = CallsBefore { attempted: true, succeeded: !results.is_empty() };
    let (memo, language) = (Memo::new(), Language::detected(answer, Some(task), &Memo::new()));
    check(answer, language.unwrap(), &TaskDemands::new(task, &memo), &mut evidence, calls, &memo)
}

#[test]
fn supported_answers_have_no_findings() {
    for answer in [
        "Mount Elbrus is 836 metres taller than Mont Blanc (5642 m - 4806 m, Alpine Almanac).",
        "836 m",
        "The difference is 836 m, i.e. about 840 m or 0.836 km.",
        "Elbrus is 5,642 m and Mont Blanc 4,806 m; as of March 2, 2025 that makes 836 m (17.4 % more).",
        "1. Elbrus: 5642 m\n2. Mont Blanc: 4806 m\n3. Difference: 836 m",
        "Step 25 of my method gives 836 m. Would you like the other 8848 m peak too?",
        "It is 836 m; see https://almanac.example/elbrus for more.",
    ] {
        let results = [PAGE, "https://almanac.example/elbrus"];
        let found = checked(TASK, &results, answer);
        assert!(found.findings.is_empty(), "{answer}: {:?}", found.findings);
        assert!(found.examined > 0, "{answer}");
    }
}

#[test]
fn underivable_number_is_found_and_quoted() {
    let found = checked(TASK, &[PAGE], "Yes. Mount Elbrus is 846 metres taller than Mont Blanc.");
    assert_eq!(found.findings.len(), 1);
    assert_eq!(found.findings[0].quote, "Mount Elbrus is 846 metres taller than Mont Blanc.");
    assert!(found.findings[0].rationale.contains("846"));
    assert_eq!(found.findings[0].category, Some(Category::LanguageOnly));
    assert_eq!(found.unsupported, vec![846.0]);
}

#[test]
fn estimate_from_memory_is_found_unless_requested() {
    let answer = "I could not open the page. From memory Mount Elbrus is roughly 800 metres taller.";
    let found = checked(TASK, &[], answer);
    assert!(found.findings[0].rationale.contains("memory"), "{:?}", found.findings);
    assert!(checked("Roughly how many metres taller is Elbrus?", &[], answer).findings.is_empty());
}

#[test]
fn facts_are_compared_in_all_languages() {
    let count = |task: &str, results: &[&str], answer: &str| checked(task, results, answer).findings.len();
    let read = r#"{"elbrus":5642,"montblanc":4806}"#;
    for (task, answer) in [
        ("Wie hoch sind die beiden Berge?", "Der Elbrus ist 5642 Meter hoch und der Montblanc 4806 Meter."),
        ("Wie hoch ist der Elbrus?", "Der Elbrus ist ungefähr 5600 Meter hoch, siehe Seite 112 der Quelle."),
        ("Quelle est la hauteur de l'Elbrouz ?", "La hauteur est de 5642 mètres, comme le dit la page 318."),
        ("¿Cuánto mide el Elbrus?", "El Elbrus mide unos 5600 metros, según la tabla 45."),
        ("Quanto è alto l'Elbrus?", "L'Elbrus è alto 5600 metri circa, e il Monte Bianco 4806."),
        ("厄尔布鲁士山有多高?", "厄尔布鲁士山高5642米,见第112页。"),
        ("エルブルス山の高さはどのくらいですか。", "エルブルス山の高さは約5600メートルです。"),
        ("Schätze bitte, wie hoch der Elbrus ist.", "Der Elbrus ist wohl 6100 Meter hoch."),
    ] {
        assert_eq!(
            count(task, &[read], answer),
            0,
            "{answer}: {:?}",
            checked(task, &[read], answer).findings
        );
    }
    for (task, answer) in [
        ("Wie hoch ist der Elbrus?", "Der Elbrus ist 5600 Meter hoch."),
        ("Quelle est la hauteur de l'Elbrouz ?", "L'Elbrouz a une hauteur de 5462 mètres."),
        (
            "¿Cuánto mide el Elbrus?",
            "El Elbrus mide 5642 metros, y la fuente es https://montes.example/elbrus.",
        ),
        ("厄尔布鲁士山有多高?", "厄尔布鲁士山高5462米。"),
    ] {
        assert_eq!(
            count(task, &[read], answer),
            1,
            "{answer}: {:?}",
            checked(task, &[read], answer).findings
        );
    }
    // After a failed lookup, the memory of the model is not a source.
    for (task, answer, expected) in [
        (
            "Wer hat die Brücke gebaut?",
            "Die Seite ging nicht auf. Meines Wissens war es der Baumeister Gerl.",
            1,
        ),
        (
            "Wer hat die Brücke gebaut?",
            "Die Seite ging nicht auf. Aus dem Gedächtnis nenne ich keinen Namen.",
            0,
        ),
        ("Qui a bâti le pont ?", "La page est fermée. De mémoire, c'est un architecte de Lyon.", 1),
        ("Qui a bâti le pont ?", "La page est fermée. Si vous voulez, je peux répondre de mémoire.", 0),
    ] {
        assert_eq!(count(task, &[], answer), expected, "{answer}");
    }
}

#[test]
fn misread_tool_result_is_categorised_as_misinterpretation() {
    let found = checked("How many widgets are there?", &["863"], "There are 836 widgets.");
    assert_eq!(found.findings[0].category, Some(Category::ToolOutputMisinterpretation));
    assert!(found.findings[0].rationale.contains("863"));
}

#[test]
fn single_unsupported_number_among_many_is_ignored() {
    let read = "A: 101, B: 202, C: 303, D: 404, E: 505.";
    let answer = "A is 101, B 202, C 303, D 404 and E 505. The first was built in 1889.";
    assert!(checked("What are the values?", &[read], answer).findings.is_empty());
}

#[test]
fn unseen_names_quotes_links_and_dates_are_found() {
    let task = "Who wrote the report, when, and which words open it?";
    let read = "The Glacier Report by Maria Lindqvist, 3 May 2021: \"Ice remembers what we forget, slowly.\" \
                https://ice.example/report/1";
    for good in [
        "It was written by Maria Lindqvist.",
        "Dr. Maria K. Lindqvist published it on May 3, 2021.",
        "It opens with \"Ice remembers what we forget, slowly\", see https://ice.example/report/1.",
        "It was published on 2021-05-03 by M. Lindqvist.",
    ] {
        let found = checked(task, &[read], good);
        assert!(found.findings.is_empty(), "{good}: {:?}", found.findings);
    }
    for (bad, defect) in [
        ("It was written by Johan Petersen of course.", Defect::UnsupportedFact),
        ("It was published on June 9, 2021.", Defect::UnsupportedFact),
        ("It opens with \"Water always finds its own way down the valley\".", Defect::UnsupportedQuote),
        ("It was written by her, see https://ice.example/other/2.", Defect::UnsupportedUrl),
    ] {
        let found = checked(task, &[read], bad);
        let kinds: Vec<_> = found.findings.iter().map(|f| f.score).collect();
        assert_eq!(kinds, vec![defect.score()], "{bad}: {:?}", found.findings);
    }
}

#[test]
fn date_of_an_ordinal_in_a_text_with_month_and_year_has_support() {
    let task = "When was the mill opened?";
    let read = "THE VALLEY COURIER, 17 October 1908. On the 2nd inst. the new mill at Thorpe was opened by the mayor.";
    let count = |answer: &str| checked(task, &[read], answer).findings.len();
    assert_eq!(count("It was opened on 2 October 1908."), 0);
    assert_eq!(count("It was opened on October 2, 1908, a Friday."), 0);
    for answer in [
        "It was opened on 5 October 1908.",
        "It was opened on 2 June 1908.",
        "It was opened on 2 October 1911.",
    ] {
        assert_ne!(count(answer), 0, "{answer}");
    }
}

#[test]
fn titles_and_text_between_quotations_are_not_quotations() {
    let answer = "The line \"isn't that hot\" is uttered, and soon after it the reply that is given is \"extremely\". \
                  It is called “Birds of Prey (and the Fantabulous Emancipation of One Harley Quinn)”.";
    let found = checked("What is the line?", &["hot, extremely"], answer);
    assert!(found.findings.is_empty(), "{:?}", found.findings);
}

#[test]
fn numbers_in_code_and_questions_are_not_facts() {
    for text in ["```\nx = 777\n```", "Did you mean 777 metres?", "For example, 777 would be odd."] {
        assert!(checked(TASK, &[PAGE], text).findings.is_empty(), "{text}");
    }
}

#[test]
fn date_after_a_duration_is_supported() {
    let read = "order 71: placed 2025-02-26, delivery takes 5 days";
    let task = "When is order 71 delivered?";
    for (answer, findings) in [("It arrives on March 3, 2025.", 0), ("It arrives on March 13, 2025.", 1)] {
        let found = checked(task, &[read], answer).findings;
        assert_eq!(found.len(), findings, "{answer}: {found:?}");
    }
}

#[test]
fn date_of_a_named_weekday_next_to_a_date_has_support() {
    let task = "When is the next tasting?";
    let read = "Sent: Tue, 12 May 2026. The tasting is on Friday at six.";
    let count = |answer: &str| checked(task, &[read], answer).findings.len();
    assert_eq!(count("It is on Friday, 15 May 2026."), 0);
    assert_eq!(count("It is on 22 May 2026, a Friday."), 0, "the one after next may be meant");
    assert_ne!(count("It is on Saturday, 23 May 2026."), 0, "no text names the weekday");
    assert_ne!(count("It is on Friday, 17 July 2026."), 0, "too far away");
}

#[test]
fn end_of_a_term_before_a_date_without_a_year_has_support() {
    let read = "Season 2026. The berth is let until 30 September. Notice is given three months before.";
    let count = |answer: &str| checked("Until when can I give notice?", &[read], answer).findings.len();
    assert_eq!(count("Until 30 June 2026."), 0);
    assert_ne!(count("Until 15 April 2026."), 0);
}
