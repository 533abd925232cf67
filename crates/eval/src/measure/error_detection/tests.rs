//! Tests of `error_detection`.

use super::*;
use crate::measure::sample::{SampleTrace, llm, measure as run, sign, text_message, tool, with_tool_request};
use crate::measure::{Category, Severity, Unmeasured, Value};
use crate::recognise::{ErrorSource, Role};

fn label(measurements: &[Measurement]) -> Option<(&'static str, bool)> {
    let m = measurements.first()?.outcome.as_ref().ok()?;
    let Value::Label(label) = m.value else { return None };
    Some((label, m.passed))
}

fn finding(measurements: &[Measurement]) -> &Finding {
    &measurements[0].outcome.as_ref().unwrap().findings[0]
}

fn measure_alone(view: SpanView) -> Vec<Measurement> {
    let mut sample = SampleTrace::new();
    let span_index = sample.span(None, view);
    run("error_detection", &sample.trace(), span_index)
}

#[test]
fn returned_error_with_status_ok_fails() {
    let out =
        measure_alone(tool("visit_page", "{}", "Error: invalid url 'x': the scheme https:// is required"));
    assert_eq!(label(&out), Some((TOOL, false)));
    assert!(finding(&out).quote.starts_with("Error: invalid url"));
    assert_eq!(finding(&out).severity, Severity::High);
}

#[test]
fn error_status_fails_without_content() {
    let mut view = tool("visit_page", "{}", "");
    view.result = None;
    view.output_content = Content::Absent;
    view.errors = vec![sign(ErrorSource::Status, None, Some("PageNotFound: 404 for https://x.org"))];
    let out = measure_alone(view);
    assert_eq!(label(&out), Some((TOOL, false)));
    assert_eq!(finding(&out).category, Some(Category::ResourceNotFound));
}

#[test]
fn missing_content_without_error_is_unmeasured() {
    let mut view = tool("visit_page", "{}", "");
    view.result = None;
    view.output_content = Content::Redacted;
    assert_eq!(measure_alone(view)[0].outcome, Err(Unmeasured::Hidden));
    assert!(measure_alone(SpanView { kind: Kind::Chain, ..SpanView::default() }).is_empty());
}

#[test]
fn unavailable_model_endpoint_is_an_api_error_of_the_environment() {
    let mut view = llm(vec![], "");
    view.errors = vec![sign(
        ErrorSource::Exception,
        Some("openai.InternalServerError"),
        Some("Error code: 500 - upstream"),
    )];
    let out = measure_alone(view);
    assert_eq!(label(&out), Some((API, false)));
    assert!(finding(&out).rationale.contains("environment"));
}

#[test]
fn inherited_error_is_not_reported() {
    let mut sample = SampleTrace::new();
    let repeated =
        sign(ErrorSource::Exception, Some("InternalServerError"), Some("Error code: 500 - upstream"));
    let root = sample.span(
        None,
        SpanView { kind: Kind::Agent, inherited_errors: vec![repeated.clone()], ..SpanView::default() },
    );
    let leaf =
        sample.span(Some(root), SpanView { kind: Kind::Llm, errors: vec![repeated], ..SpanView::default() });
    let trace = sample.trace();
    assert!(run("error_detection", &trace, root).is_empty());
    assert!(label(&run("error_detection", &trace, leaf)).is_some());
}

#[test]
fn announced_retry_has_low_severity() {
    let mut view = tool("visit_page", "{}", "");
    view.errors = vec![
        sign(ErrorSource::Status, None, Some("ToolRetryError")),
        sign(ErrorSource::Retry, Some("ModelRetry"), Some("404: not found")),
    ];
    let out = measure_alone(view);
    assert_eq!(label(&out), Some((TOOL, false)));
    assert_eq!(finding(&out).severity, Severity::Low);
}

#[test]
fn answer_that_explains_an_error_is_valid() {
    let answer = "Error: 404 means that the page does not exist. {\"error\": 1}";
    assert_eq!(
        label(&measure_alone(llm(vec![text_message(Role::User, "What is a 404?")], answer))),
        Some((VALID, true))
    );
    let body = r#"{"error": {"message": "Rate limit reached", "code": 429}}"#;
    let out = measure_alone(llm(vec![], body));
    assert_eq!(label(&out), Some((API, false)));
    assert_eq!(finding(&out).category, Some(Category::RateLimiting));
}

#[test]
fn call_without_a_span_is_judged_on_the_model_call() {
    let mut sample = SampleTrace::new();
    let span_index = sample.span(None, with_tool_request(llm(vec![], ""), "search", "{}"));
    sample.call(Some(span_index), None, "search", "{}", Some("Error: the index is offline"));
    assert_eq!(label(&run("error_detection", &sample.trace(), span_index)), Some((API, false)));
}

#[test]
fn model_call_that_was_shown_an_error_is_valid_without_a_finding() {
    let error = "TypeError: visit_page() got an unexpected keyword argument 'x'";
    let script = crate::measure::testing::Script::new("task").calls("", &[("visit_page", r#"{"x":1}"#)]);
    let trace = script.raises(error).answers("836").build();
    let out = run("error_detection", &trace, trace.agents[0].llms[1]);
    assert_eq!(label(&out), Some((VALID, true)));
    assert!(out[0].outcome.as_ref().unwrap().findings.is_empty());
}

#[test]
fn last_answer_of_a_run_that_is_cut_off_at_a_limit_fails() {
    use crate::measure::testing::Script;
    let result_with_finish_reason = |mut trace: crate::recognise::AgentTrace, nth: usize, reason: &str| {
        let span_index = trace.agents[0].llms[nth];
        trace.views[span_index].finish = vec![reason.into()];
        let out = run("error_detection", &trace, span_index);
        let measured = out[0].outcome.as_ref().unwrap().clone();
        (measured.passed, measured.findings.first().and_then(|f| f.defect))
    };
    let answered =
        || Script::new("Summarise the lease.").answers("The lease begins on 1 May and the tenant").build();
    for reason in ["length", "max_tokens", "MAX_TOKENS", "max-output-tokens"] {
        assert_eq!(
            result_with_finish_reason(answered(), 0, reason),
            (false, Some(Defect::CutAnswer)),
            "{reason}"
        );
    }
    assert_eq!(result_with_finish_reason(answered(), 0, "stop"), (true, None));
    let continued = Script::new("Summarise the lease.").says("The lease begins").answers("on 1 May.").build();
    assert_eq!(result_with_finish_reason(continued, 0, "length"), (true, None));
}

#[test]
fn answer_that_ends_within_a_sentence_of_a_result_is_cut_off() {
    use crate::measure::testing::Script;
    const GUIDE: &str = r#"{"text":"1. Loosen both screws. 2. Lift the lid off. 3. Push the filter down until it meets the seal ring. 4. Close it."}"#;
    const LEASE: &str = "Die Miete ist am Ersten fällig. Der Mieter trägt die Kosten bis zu einem Betrag von 80 Euro im Jahr.";
    let is_cut = |result: &str, answer: &str| {
        let asked = Script::new("How?").calls("", &[("open_text", "{}")]).returns(result);
        let trace = asked.answers(answer).build();
        let out = run("error_detection", &trace, *trace.agents[0].llms.last().unwrap());
        out[0].outcome.as_ref().unwrap().findings.first().and_then(|f| f.defect) == Some(Defect::CutAnswer)
    };
    let steps = "1. Loosen both screws.\n2. Take the lid off.\n";
    assert!(is_cut(GUIDE, &format!("{steps}3. Push the filter down until it meets the")));
    assert!(is_cut(GUIDE, &format!("{steps}3. Then push the filter down until it")));
    let terms = "Es gilt:\n\n- Die Miete ist am Ersten fällig.\n- Das Haus ist versichert.\n";
    assert!(is_cut(LEASE, &format!("{terms}- Der Mieter trägt die Kosten bis zu")));
    for answer in [
        format!("{steps}3. Push the filter down until it meets the seal ring"),
        format!("{steps}3. Push the filter down until it meets the seal"),
        format!("{steps}3. Push the filter down"),
        format!("{steps}3. Push it down until it is in"),
        format!("{steps}3. Push the filter down until it meets the seal ring.\n4. Close it"),
        "1. Loosen both screws\n2. Lift the lid off\n3. Push the filter down until it".to_owned(),
        format!("{steps}3. Push the filter down until it meets the seal ring, then have a look at it"),
    ] {
        assert!(!is_cut(GUIDE, &answer), "{answer}");
    }
}

#[test]
fn answer_that_ends_within_a_row_a_sentence_or_code_is_cut_off() {
    use crate::measure::testing::Script;
    let is_cut = |answer: &str| {
        let asked = Script::new("How?").calls("", &[("open_text", "{}")]).returns("2 rows");
        let trace = asked.answers(answer).build();
        let out = run("error_detection", &trace, *trace.agents[0].llms.last().unwrap());
        out[0].outcome.as_ref().unwrap().findings.first().and_then(|f| f.defect) == Some(Defect::CutAnswer)
    };
    const TABLE: &str = "| Barrel | Litres | Year |\n|---|---|---|\n| F-1 | 225 | 2022 |\n";
    for answer in [
        format!("{TABLE}| F-2 | 300"),
        format!("{TABLE}| F-"),
        "Both pumps run. The third one starts as soon as the".to_owned(),
        "I have checked the list. The two missing ones will".to_owned(),
        "Beide Pumpen laufen. Die dritte startet erst, wenn".to_owned(),
        "Les deux pompes tournent. La troisième démarre et".to_owned(),
        "The hall is free on Monday. It costs 80 euros, heating included,".to_owned(),
        "Use this:\n\n```sh\nmake all\nmake".to_owned(),
    ] {
        assert!(is_cut(&answer), "{answer}");
    }
    for answer in [
        TABLE.trim_end().to_owned(),
        "Barrel | Litres\n---|---\nF-1 | 225\nF-2 | 300".to_owned(),
        format!("{TABLE}\nThat is all I have"),
        "It is booked. See you then".to_owned(),
        "It is booked. Here is the list you asked for".to_owned(),
        "Done! Let me know if you need anything else".to_owned(),
        "Alles ist gebucht. Bei Fragen ruf mich bitte an".to_owned(),
        "Dear Mr Hale,\n\nthe barrels are ready. Please collect them.\n\nKind regards,".to_owned(),
        "no full stop at all and so".to_owned(),
        "Use this:\n\n```sh\nmake all\n```".to_owned(),
        "The order is 225 l. Each barrel costs 5 € each".to_owned(),
    ] {
        assert!(!is_cut(&answer), "{answer}");
    }
}

#[test]
fn answer_without_the_mark_of_its_other_sentences_is_cut_off() {
    use crate::measure::testing::Script;
    let is_cut = |answer: &str| {
        let asked = Script::new("How?").calls("", &[("open_text", "{}")]).returns("2 rows");
        let trace = asked.answers(answer).build();
        let out = run("error_detection", &trace, *trace.agents[0].llms.last().unwrap());
        out[0].outcome.as_ref().unwrap().findings.first().and_then(|f| f.defect) == Some(Defect::CutAnswer)
    };
    const FERRY: &str = "The ferry leaves at nine. It takes two hours. Cars have to be there early.";
    const OFEN: &str =
        "- Den Ofen auf 200 Grad heizen.\n- Den Teig eine Stunde ruhen lassen.\n- Die Form einfetten.\n";
    for answer in [
        format!("{FERRY} Foot passengers need not come before half past eight if they have"),
        format!("{FERRY}\n\nThe crossing back starts at the other pier and takes somewhat longer when"),
        format!("{OFEN}- Dann den Teig vorsichtig in die"),
        "Le train part à neuf heures. Il arrive à midi. Le retour est libre. La réservation du retour commence le jour où".to_owned(),
        "在庫を確認しました。三点あります。明日発送できます。お届け先の住所を確認したところ、番地がまだ登録されていない".to_owned(),
        "The parts that are missing:\n\n1. The left hinge\n2.".to_owned(),
    ] {
        assert!(is_cut(&answer), "{answer}");
    }
    for answer in [
        format!("{FERRY} Let me know if you need anything else"),
        format!("{FERRY} Kind regards, Harbour Office"),
        format!("{FERRY}\n\nThe timetable of all lines: https://ferry.example/timetable"),
        format!("{FERRY} The booking has the number FX-2201"),
        format!("{FERRY} Price: 40 euros"),
        "The ferry leaves at nine\n\nIt takes two hours and a half\n\nCars have to be there rather early"
            .to_owned(),
        format!("{OFEN}\nGuten Appetit"),
        "- The ferry leaves at nine\n- It takes two hours\n- Cars have to be there early".to_owned(),
        "The ferry leaves at nine. Cars have to be there early, foot passengers a bit later".to_owned(),
        "在庫を確認しました。三点あります。明日発送できます。何かありましたらお知らせください".to_owned(),
        "Options:\n- a\n- b\n- c".to_owned(),
    ] {
        assert!(!is_cut(&answer), "{answer}");
    }
}

#[test]
fn list_that_ends_within_a_word_of_a_result_is_cut_off() {
    use crate::measure::testing::Script;
    const ROOMS: &str = r#"{"rooms":[{"name":"Library","seats":12},{"name":"Atelier","seats":8},{"name":"Conservatory","seats":20},{"name":"Gardens"}]}"#;
    const CAKES: &str = "Apfelkuchen;3,20\nMohnstrudel;2,90\nZwetschgendatschi;3,40\nRohrnudel mit Zimt;2,50";
    const STOPS: &str =
        r#"[{"stop":"Leipzig","at":"14:05"},{"stop":"Halle","at":"15:40"},{"stop":"Nuremberg"}]"#;
    let defect = |result: &str, answer: &str| {
        let asked = Script::new("List them all.").calls("", &[("get_list", "{}")]).returns(result);
        let trace = asked.answers(answer).build();
        let out = run("error_detection", &trace, *trace.agents[0].llms.last().unwrap());
        out[0].outcome.as_ref().unwrap().findings.first().and_then(|f| f.defect)
    };
    for (result, answer) in [
        (ROOMS, "The rooms:\n- Library: 12 seats\n- Atelier: 8 seats\n- Conserv"),
        (CAKES, "Im Angebot:\n* Apfelkuchen – 3,20 €\n* Mohnstrudel – 2,90 €\n* Zwetschg"),
        (STOPS, "It stops in\n• Leipzig 14:05\n• Halle 15:40\n• Nurem"),
        (ROOMS, "Seats:\n- Library — twelve\n- Atelier — eight\n\nLarger:\n- Conserva"),
    ] {
        assert_eq!(defect(result, answer), Some(Defect::CutAnswer), "{answer}");
    }
    for (result, answer) in [
        // The name is whole.
        (ROOMS, "The rooms:\n- Library: 12 seats\n- Atelier: 8 seats\n- Conservatory"),
        // The word is another form of the word in the result.
        (ROOMS, "The rooms:\n- Library: 12 seats\n- Atelier: 8 seats\n- Garden"),
        // No result contains the word.
        (ROOMS, "The rooms:\n- Library: 12 seats\n- Atelier: 8 seats\n- Terrace"),
        // No item has a description.
        (ROOMS, "The rooms:\n- Library\n- Atelier\n- Conserv"),
        // The short name has a description.
        (CAKES, "Im Angebot:\n* Apfelkuchen – 3,20 €\n* Mohnstrudel – 2,90 €\n* Zwetschg – 3,40 €"),
        // The text is no list.
        (STOPS, "It stops in Leipzig at 14:05, in Halle at 15:40 and in Nurem"),
        // One item before the last one is not enough.
        (STOPS, "It stops in\n• Leipzig 14:05\n• Nurem"),
    ] {
        assert_eq!(defect(result, answer), None, "{answer}");
    }
}

#[test]
fn lookup_that_finds_nothing_is_no_error_and_a_refused_action_is() {
    use crate::measure::testing::Script;
    let label_for = |tool: &str, result: &str| {
        let trace =
            Script::new("Member 4417?").calls("", &[(tool, r#"{"member_id":"4417"}"#)]).returns(result);
        let trace = trace.answers("Nothing.").build();
        label(&run("error_detection", &trace, trace.calls[0].tool.unwrap()))
    };
    assert_eq!(label_for("find_member", "Error: member not found"), Some((VALID, true)));
    assert_eq!(label_for("delete_member", "Error: member not found"), Some((TOOL, false)));
    assert_eq!(label_for("find_member", "Error: the index is offline"), Some((API, false)));
    let trace = Script::new("Members?").calls("", &[("query_db", r#"{"sql":"SELECT name FROM members"}"#)]);
    let trace = trace.returns("Error: relation \"members\" does not exist").answers("None.").build();
    assert_eq!(label(&run("error_detection", &trace, trace.calls[0].tool.unwrap())), Some((TOOL, false)));
}

#[test]
fn error_in_a_document_that_a_tool_reads_is_its_content() {
    use crate::measure::testing::Script;
    let label_for = |tool: &str, arguments: &str, result: &str| {
        let trace = Script::new("What does the run say?").calls("", &[(tool, arguments)]).returns(result);
        let trace = trace.answers("It ended early.").build();
        label(&run("error_detection", &trace, trace.calls[0].tool.unwrap()))
    };
    let log = "10:02 start\n10:03 load depots\nTraceback (most recent call last):\n  File \"a.py\", line 2\nKeyError: 'depot'";
    let raised = "Traceback (most recent call last):\n  File \"tool.py\", line 2\nOSError: bad sector";
    assert_eq!(label_for("read_file", r#"{"path":"run.txt"}"#, log), Some((VALID, true)));
    assert_eq!(label_for("fetch", r#"{"url":"https://ci.example/run/8"}"#, log), Some((VALID, true)));
    assert_eq!(label_for("read_file", r#"{"path":"run.txt"}"#, raised), Some((TOOL, false)));
    assert_eq!(label_for("read_file", r#"{"path":"run.txt"}"#, "Error: bad sector"), Some((TOOL, false)));
    // A tool that runs a program, and a tool that reads no document, returned an error of their own.
    assert_eq!(label_for("run_file", r#"{"path":"run.py"}"#, log), Some((TOOL, false)));
    assert_eq!(label_for("get_depots", r#"{"city":"Ulm"}"#, log), Some((TOOL, false)));
}
