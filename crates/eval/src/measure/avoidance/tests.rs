//! Tests of `avoidance`.

use proptest::prelude::*;

use super::*;
use crate::measure::Value;
use crate::measure::sample::{SampleTrace, llm, measure as run, text_message, with_tool_request};
use crate::measure::testing::Script;
use crate::recognise::Role;

fn label(text: &str) -> &'static str {
    let check = check_text(&ReadText::new(text, None, &Memo::new()), text, TextRole::Step);
    check.avoidance.map_or(VALID, |(label, _)| label)
}

#[test]
fn refusals_and_give_ups_have_different_labels() {
    let cases = [
        ("I'm sorry, but I can't assist with that.", POLICY),
        ("I\u{2019}m sorry, but I can\u{2019}t help with this request.", POLICY),
        ("This request violates the content policy, and I must decline.", POLICY),
        ("I don't have access to real-time data. Please check a weather site.", KNOWLEDGE),
        ("I could not find the height of Mont Blanc in the almanac.", KNOWLEDGE),
        (
            "Unfortunately, I was unable to determine the answer. If you have more details, let me know!",
            KNOWLEDGE,
        ),
        ("Based on the pages that I visited, I cannot determine the year of construction.", KNOWLEDGE),
        ("I searched three sources. The pages did not load. The answer cannot be determined.", KNOWLEDGE),
        ("I do not know.", KNOWLEDGE),
        ("There is not enough information to answer the question.", KNOWLEDGE),
        ("Agent stopped due to max iterations.", OTHER),
        ("Sorry, need more steps to process this request.", OTHER),
    ];
    for (text, expected) in cases {
        assert_eq!(label(text), expected, "{text}");
    }
}

#[test]
fn answer_that_only_reports_an_error_of_its_run_avoids_an_answer() {
    let last_measurement = |script: Script| {
        let trace = script.build();
        let span_index = *trace.agents[0].llms.last().unwrap();
        let measured = run("avoidance", &trace, span_index).swap_remove(0).outcome.unwrap();
        (measured.value, measured.passed)
    };
    for (task, report) in [
        ("How high is the dam?", "Error: an internal error occurred while processing the request."),
        ("Wie hoch ist der Damm?", "Bei der Verarbeitung ist ein Fehler aufgetreten."),
        ("¿Qué altura tiene la presa?", "La conexión con el servidor ha fallado."),
    ] {
        assert_eq!(
            last_measurement(Script::new(task).answers(report)),
            (Value::Label(KNOWLEDGE), false),
            "{report}"
        );
        let failed = Script::new(task).calls("", &[("search", "{}")]).returns("Error: timed out");
        assert_eq!(last_measurement(failed.answers(report)), (Value::Label(KNOWLEDGE), true), "{report}");
        let worked = Script::new(task).calls("", &[("search", "{}")]).returns("The dam failed in 1889.");
        assert_eq!(last_measurement(worked.answers(report)), (Value::Label(VALID), true), "{report}");
    }
    let asked = Script::new("Which error occurred in the last deployment?");
    assert_eq!(
        last_measurement(asked.answers("The deployment failed with exit code 2.")),
        (Value::Label(VALID), true)
    );
}

#[test]
fn answer_with_a_reservation_is_valid() {
    let cases = [
        "Mount Elbrus is 836 metres taller than Mont Blanc.",
        "I could not find the almanac page, but the encyclopaedia says 836 m.",
        "I don't have access to the page; it is about 800 metres as far as I remember.",
        "I could not open the first link. The second says that it was built in 1889.",
        "No, the document does not mention any penalty.",
        "The shop cannot deliver on Sundays.",
        "The song is called 'I Don't Know' and was released in 1980.",
        "I can help with that: press the red button.",
        "You cannot park here between 8 and 18 h.",
        "I am sorry for your loss. The form must be sent to the registry within 30 days.",
        "No results were significant at the 5 % level.",
        "unknown",
        "42",
    ];
    for text in cases {
        assert_eq!(label(text), VALID, "{text}");
    }
    assert!(avoids("Unknown.", &Memo::new()));
}

#[test]
fn answer_without_a_refusal_is_valid_only_in_a_known_language() {
    let outcome = |task: &str, answer: &str| {
        let trace = Script::new(task).answers(answer).build();
        let span_index = trace.agents[0].answer_at.unwrap();
        run("avoidance", &trace, span_index)[0].outcome.clone().map(|measured| measured.value)
    };
    let question = "How tall is the mountain that you see from the station?";
    assert_eq!(
        outcome(question, "Mont Blanc"),
        Ok(Value::Label(VALID)),
        "a name, in the language of the task"
    );
    assert_eq!(outcome("?", "4808"), Ok(Value::Label(VALID)), "no words");
    assert_eq!(outcome("?", "Je ne sais pas."), Ok(Value::Label(KNOWLEDGE)));
    assert_eq!(
        outcome("Wie hoch ist der Berg?", "Das kann ich leider nicht sagen."),
        Ok(Value::Label(KNOWLEDGE))
    );
    assert_eq!(outcome("山有多高？", "抱歉，我无法确定这座山的高度。"), Ok(Value::Label(KNOWLEDGE)));
    let dutch = "De berg is 4808 meter hoog en dat is de hoogste top van de Alpen.";
    assert_eq!(outcome("Hoe hoog is de berg?", dutch), Err(Unmeasured::Language));
}

#[test]
fn long_text_avoids_an_answer_if_its_first_and_last_paragraph_do() {
    let report =
        "The first source lists peaks by country. The second one lists them by range.\n\n".repeat(30);
    let inability = "I was unable to determine the height.";
    assert_eq!(label(&format!("{inability}\n\n{report}{inability}")), KNOWLEDGE);
    assert_eq!(label(&format!("{inability}\n\n{report}The height is 836 m.")), VALID);
    assert_eq!(label(&format!("The height is 836 m.\n\n{report}{inability}")), VALID);
}

#[test]
fn step_with_a_tool_call_is_not_applicable() {
    let mut sample = SampleTrace::new();
    let span_index = sample
        .span(None, with_tool_request(llm(vec![], "I could not find it. Let me search."), "search", "{}"));
    let out = run("avoidance", &sample.trace(), span_index);
    assert_eq!(out[0].outcome, Err(Unmeasured::NotApplicable));
}

#[test]
fn content_filter_is_a_policy_restriction_and_passes_by_default() {
    let mut view = llm(vec![text_message(Role::User, "hello")], "");
    view.finish = vec!["content_filter".into()];
    let mut sample = SampleTrace::new();
    let span_index = sample.span(None, view);
    let out = run("avoidance", &sample.trace(), span_index);
    let measured = out[0].outcome.as_ref().unwrap();
    assert_eq!((&measured.value, measured.passed), (&Value::Label(POLICY), true));
}

#[test]
fn give_up_as_final_answer_fails_and_is_quoted() {
    let trace = Script::new("How tall is it?").answers("I was unable to find the height.").build();
    let span_index = trace.agents[0].answer_at.unwrap();
    let out = run("avoidance", &trace, span_index);
    let measured = out[0].outcome.as_ref().unwrap();
    assert!(!measured.passed);
    assert_eq!(measured.findings[0].quote, "I was unable to find the height.");
}

#[test]
fn missing_content_is_unmeasured() {
    let trace = Script::new("How tall is it?").answers("I was unable to find it.").build_without_content();
    assert_eq!(run("avoidance", &trace, 1)[0].outcome, Err(Unmeasured::NoContent));
}

#[test]
fn sentences_that_were_read_are_counted() {
    let trace = Script::new("How tall is it?").answers("It is 836 m tall. That is much.").build();
    let out = run("avoidance", &trace, trace.agents[0].answer_at.unwrap()).remove(0);
    assert_eq!((out.outcome.unwrap().passed, out.examined), (true, 2));
}

#[test]
fn text_of_signs_is_unmeasured_and_only_the_read_sentences_of_a_long_text_count() {
    let measurement_of_answer = |answer: &str| {
        let trace = Script::new("Is the ferry on time?").answers(answer).build();
        let out = run("avoidance", &trace, trace.agents[0].answer_at.unwrap()).remove(0);
        (out.outcome.map(|measurement_of_answer| measurement_of_answer.passed), out.examined)
    };
    for signs in ["…", "{}", "---", "👍"] {
        assert_eq!(measurement_of_answer(signs), (Err(Unmeasured::NotApplicable), 0), "{signs}");
    }
    assert_eq!(measurement_of_answer("07:45"), (Ok(true), 1), "a value is an answer");
    let middle = "The harbour has two piers. A third one is being built.\n\n".repeat(40);
    let begin = "It is on time.";
    assert_eq!(
        measurement_of_answer(&format!("{begin}\n\n{middle}It left at noon. The sea is calm.")),
        (Ok(true), 1)
    );
    let inability = "I was unable to find the timetable.";
    assert_eq!(
        measurement_of_answer(&format!("{inability}\n\n{middle}It left at noon. The sea is calm.")),
        (Ok(true), 3)
    );
}

proptest! {
    #[test]
    fn any_text_is_accepted(text in "\\PC{0,300}") {
        let _ = avoids(&text, &Memo::new());
    }
}
