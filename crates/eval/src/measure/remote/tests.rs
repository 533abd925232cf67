//! Evaluators with scripted answers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::config::EvaluatorConfig;
use super::protocol::*;
use crate::measure::ask::Asker;
use crate::measure::ask::config::AskConfig;
use crate::measure::question_rounds::{Ask, JudgeInputs, Questions};
use crate::measure::schema::{Schema, Validity};
use crate::measure::settings::CustomSettings;
use crate::measure::testing::{Script, captured, tests};
use crate::measure::{Answer, Measurement, Opinion, Settings, Unmeasured, Usage, Value};
use crate::recognise::AgentTrace;
use crate::redact::Redact;

/// The configuration of an evaluator with further keys.
fn config(yaml: &str) -> EvaluatorConfig {
    serde_saphyr::from_str(&format!("judges: [remote]\n{yaml}")).unwrap()
}

fn problems(name: &str, yaml: &str) -> Vec<String> {
    let config = serde_saphyr::from_str(yaml).unwrap();
    let found = super::config::problems(&[(name.to_owned(), config)].into());
    found.into_iter().map(|problem| format!("{}: {}", problem.key, problem.message)).collect()
}

/// Settings with a changed `verdict.ask`, which redact by the defaults.
fn settings(change: impl FnOnce(&mut AskConfig)) -> Settings {
    let mut ask = AskConfig::default();
    change(&mut ask);
    let asker = Asker::new(ask, BTreeMap::new(), Vec::new(), &Redact::default()).unwrap();
    Settings { asker: Arc::new(asker), ..Settings::default() }
}

/// The measurements and questions of one evaluator.
fn evaluated(
    trace: &AgentTrace,
    config: &EvaluatorConfig,
    mut settings: Settings,
    answer: impl Fn(&EvaluationRequest) -> Result<Json, Unmeasured>,
) -> (Vec<Measurement>, Vec<Ask>) {
    let metric = config.metric("style.tone");
    settings.custom = vec![CustomSettings { row: metric.row, settings: metric.settings.clone() }];
    let inputs = JudgeInputs { trace, settings: &settings, rule_measurements: &[] };
    let custom = [metric];
    let mut rounds = Questions::new(inputs, &custom);
    let mut asked = Vec::new();
    while let Some(ask) = rounds.next_question() {
        let schema = Schema::compile(&ask.question.form.schema);
        assert_eq!(schema.problem(), None);
        let opinions = answer(&request(&ask)).map(|value| {
            assert_eq!(schema.check(&value).validity, Validity::Valid, "{value}");
            vec![Opinion { value, weighted: None, judge: "tone/1".into() }]
        });
        let key = ask.question.key.clone();
        rounds.answer(ask.id, Answer { key, opinions, usage: Usage::default() });
        asked.push(ask);
    }
    (rounds.finish(Unmeasured::Timeout), asked)
}

fn request(ask: &Ask) -> EvaluationRequest {
    serde_json::from_str(&ask.question.prompt.user).unwrap()
}

fn requests(trace: &AgentTrace, config: &EvaluatorConfig, settings: Settings) -> Vec<EvaluationRequest> {
    let (_, asked) = evaluated(trace, config, settings, |_| Err(Unmeasured::JudgeError));
    asked.iter().map(request).collect()
}

fn shop_trace() -> AgentTrace {
    Script::new("Please refund order 7.")
        .system("Never refund twice.")
        .tools(&["get_order", "refund"])
        .calls("I look.", &[("get_order", r#"{"id":7}"#)])
        .returns(r#"{"id":7,"state":"refunded"}"#)
        .calls("I refund.", &[("refund", r#"{"id":7}"#)])
        .returns("ok")
        .answers("It is refunded.")
        .build()
}

fn finding(span: &str, quote: &str) -> Json {
    json!({ "problem": "refunded twice", "span_id": span, "quote": quote, "severity": "high" })
}

#[test]
fn tool_call_is_sent_with_its_texts_and_its_answer_is_a_measurement() {
    let config = config("subject: tool\nscores: [0, 1]\n");
    let answer = |request: &EvaluationRequest| {
        let is_refund = request.spans[0].name.as_deref() == Some("refund");
        let found =
            if is_refund { vec![finding(&request.subject.span_id, r#"{"id": 7}"#)] } else { Vec::new() };
        Ok(json!({ "rationale": "because", "score": if is_refund { 0.25 } else { 0.9 }, "findings": found }))
    };
    let (measured, asked) = evaluated(&shop_trace(), &config, Settings::default(), answer);
    let first = request(&asked[0]);
    assert_eq!(
        (first.version, first.metric.as_str(), first.subject.r#type),
        (1, "style.tone", SubjectType::Span)
    );
    assert_eq!(first.scale, RequestedScale::Score { min: 0, max: 1 });
    let texts: Vec<_> = first.spans[0].content.iter().map(|c| (c.r#type, c.text.as_str())).collect();
    assert_eq!(texts[0], (ContentType::Arguments, r#"{"id":7}"#));
    assert_eq!(texts[1], (ContentType::Result, r#"{"id":7,"state":"refunded"}"#));
    let values: Vec<_> = measured.iter().map(|m| m.outcome.as_ref().unwrap()).collect();
    assert_eq!((&values[0].value, values[0].passed), (&Value::Score(0.9), true));
    assert_eq!((&values[1].value, values[1].passed), (&Value::Score(0.25), false), "the threshold is 0.75");
    assert_eq!(values[1].findings[0].rationale, "refunded twice");
    assert_eq!((&*measured[1].judge, measured[1].rationale.as_deref()), ("tone/1", Some("because")));
    assert_eq!(measured.len(), 2);
}

#[test]
fn run_is_sent_with_its_agents_and_every_text_once() {
    for (subject, r#type) in [("agent", SubjectType::Agent), ("trace", SubjectType::Trace)] {
        let sent = requests(&shop_trace(), &config(&format!("subject: {subject}\n")), Settings::default());
        let [request] = sent.as_slice() else { panic!("{}", sent.len()) };
        assert_eq!(request.subject.r#type, r#type);
        assert_eq!(request.agents[0].task.as_deref(), Some("Please refund order 7."));
        assert_eq!(request.agents[0].answer.as_deref(), Some("It is refunded."));
        let texts: Vec<&str> =
            request.spans.iter().flat_map(|s| &s.content).map(|c| c.text.as_str()).collect();
        for expected in ["Never refund twice.", "I look.", r#"{"id":7,"state":"refunded"}"#] {
            let count = texts.iter().filter(|text| **text == expected).count();
            assert!((1..=2).contains(&count), "{expected}: {texts:?}");
        }
        assert_eq!(texts.iter().filter(|text| **text == "Never refund twice.").count(), 1);
        assert!(request.spans.iter().any(|span| span.repeated > 0) && request.omitted_spans == 0);
        let ids: BTreeSet<&str> = request.spans.iter().map(|span| span.span_id.as_str()).collect();
        let parents = request.spans.iter().filter_map(|span| span.parent_span_id.as_deref());
        assert!(parents.clone().count() > 0 && parents.into_iter().all(|parent| ids.contains(parent)));
    }
}

#[test]
fn labels_decide_by_the_configuration() {
    let config = config("subject: trace\nlabels: [polite, curt, rude]\nfail_labels: [rude]\n");
    for (label, passed) in [("polite", true), ("curt", true), ("rude", false)] {
        let answer = |request: &EvaluationRequest| {
            Ok(json!({ "label": label, "findings": [finding(&request.spans[1].span_id, "I look.")] }))
        };
        let (measured, _) = evaluated(&shop_trace(), &config, Settings::default(), answer);
        let outcome = measured[0].outcome.as_ref().unwrap();
        assert_eq!((&outcome.value, outcome.passed), (&Value::Label(label), passed));
    }
}

#[test]
fn cited_content_must_have_been_sent_and_a_failure_needs_evidence() {
    let config = config("subject: trace\n");
    let measured_with = |findings: Vec<Json>| {
        let answer =
            |_: &EvaluationRequest| Ok(json!({ "rationale": "r", "score": 1, "findings": findings }));
        evaluated(&shop_trace(), &config, Settings::default(), answer).0.remove(0)
    };
    let id = shop_trace().tree.spans[1].id.to_string();
    let unknown = finding("00000000000000ff", "I look.");
    let invented = finding(&id, "I never looked");
    let other_span = finding(&id, "It is refunded.");
    let without_evidence = measured_with(vec![unknown.clone(), invented, other_span]);
    assert_eq!(without_evidence.outcome, Err(Unmeasured::JudgeError));
    assert!(without_evidence.rationale.unwrap().contains("3 findings dropped"));
    let with_one_valid_finding = measured_with(vec![unknown, finding(&id.to_uppercase(), "I  look.")]);
    let measured = with_one_valid_finding.outcome.unwrap();
    assert_eq!((measured.value, measured.findings.len()), (Value::Score(1.0), 1));
    assert!(with_one_valid_finding.rationale.unwrap().contains("1 findings dropped"));
    let omission = measured_with(vec![finding(&id, "Never refund twice.")]);
    assert!(omission.outcome.is_ok(), "instructions may be quoted for any span");
}

#[test]
fn null_means_that_the_metric_does_not_apply() {
    let (measured, _) = evaluated(&shop_trace(), &config("subject: trace\n"), Settings::default(), |_| {
        Ok(json!({ "score": null }))
    });
    assert_eq!(measured[0].outcome, Err(Unmeasured::NotApplicable));
    assert_eq!(measured[0].judge, "tone/1");
    let (timed_out, _) = evaluated(&shop_trace(), &config("subject: trace\n"), Settings::default(), |_| {
        Err(Unmeasured::Timeout)
    });
    assert_eq!(timed_out[0].outcome, Err(Unmeasured::Timeout));
}

#[test]
fn hostile_answers_are_bounded() {
    let answer = |request: &EvaluationRequest| {
        let span = &request.spans[1].span_id;
        let mut long = finding(span, "I look.");
        long["problem"] = json!("p".repeat(100_000));
        let many: Vec<Json> = (0..5_000).map(|_| long.clone()).collect();
        Ok(json!({ "rationale": "r".repeat(200_000), "score": 2.5, "findings": many }))
    };
    let (measured, _) = evaluated(&shop_trace(), &config("subject: trace\n"), Settings::default(), answer);
    let outcome = measured[0].outcome.as_ref().unwrap();
    assert!(measured[0].rationale.as_ref().unwrap().len() <= 1_000);
    assert_eq!(outcome.findings.len(), 1);
    assert!(outcome.findings[0].rationale.len() <= 500);
}

#[test]
fn secrets_are_removed_and_withheld_services_are_not_sent() {
    let secret = "sk-proj-abcdefghijklmnopqrstuvwxyz012345";
    let mut trace = Script::new("Use the key.")
        .calls("I call.", &[("login", &format!(r#"{{"key":"{secret}"}}"#)), ("look", r#"{"q":"plain"}"#)])
        .returns("done")
        .returns("seen")
        .answers("It is done.")
        .build();
    for view in &mut trace.views {
        view.service = Some("open".into());
    }
    let sent = requests(&trace, &config("subject: trace\n"), settings(|_| ()));
    let text = json!(sent).to_string();
    assert!(!text.contains(secret) && text.contains("I call."), "{text}");
    let tool = trace.views.iter().position(|view| view.call.is_some()).unwrap();
    trace.views[tool].service = Some("inner".into());
    let withhold = || settings(|ask| ask.withhold.push("inner".to_owned()));
    let sent = requests(&trace, &config("subject: trace\n"), withhold());
    let id = trace.tree.spans[tool].id.to_string();
    let span = sent[0].spans.iter().find(|span| span.span_id == id).unwrap();
    assert!(span.content.iter().all(|text| text.text == "(withheld)"), "{span:?}");
    let (_, asked) = evaluated(&trace, &config("subject: step\n"), withhold(), |_| Err(Unmeasured::Budget));
    assert!(asked.iter().all(|ask| ask.at != tool), "a step of a withheld service is not asked about");
    let (_, asked) =
        evaluated(&trace, &config("subject: tool\n"), settings(|_| ()), |_| Err(Unmeasured::Budget));
    let services =
        |span_index: usize| asked.iter().find(|ask| ask.at == span_index).unwrap().services.clone();
    // The arguments on its span repeat those of the model's request.
    assert_eq!(services(tool).iter().map(|s| &**s).collect::<Vec<_>>(), ["inner", "open"]);
    assert_eq!(services(tool + 1).iter().map(|s| &**s).collect::<Vec<_>>(), ["open"]);
}

#[test]
fn repeated_content_of_another_service_counts_as_its_content_or_is_withheld() {
    let mut trace = Script::new("What does Ann earn?")
        .calls("I ask.", &[("pay", "{}")])
        .returns("9000 a month")
        .answers("Enough.")
        .build();
    trace.views.iter_mut().for_each(|view| view.service = Some("open".into()));
    trace.views[2].service = Some("inner".into());
    let config = config("subject: model\n");
    let (_, asked) = evaluated(&trace, &config, settings(|_| ()), |_| Err(Unmeasured::Budget));
    let services = |span_index: usize| -> Vec<String> {
        let ask = asked.iter().find(|ask| ask.at == span_index).unwrap();
        ask.services.iter().map(|service| service.to_string()).collect()
    };
    assert_eq!(
        (services(1), services(3)),
        (vec!["open".to_owned()], vec!["inner".to_owned(), "open".to_owned()])
    );
    for subject in ["step", "agent", "trace"] {
        let config = super::tests::config(&format!("subject: {subject}\n"));
        let sent = requests(&trace, &config, settings(|ask| ask.withhold.push("inner".to_owned())));
        let text = json!(sent).to_string();
        assert!(text.contains("(withheld)") && !text.contains("9000"), "{text}");
    }
}

#[test]
fn request_is_at_most_as_large_as_configured() {
    let long = (0..400).fold(Script::new("find it"), |script, i| {
        // Escaped, each of these bytes takes six.
        let text = format!("{i} {}", "\u{7}\"\\".repeat(300 + i));
        script.calls(&text, &[("look", &format!(r#"{{"n":{i}}}"#))]).returns(&text)
    });
    let trace = long.answers("it is 7").build();
    for (bytes, is_complete) in [("4KiB", false), ("64KiB", false), ("4MiB", true)] {
        let config = config(&format!("subject: trace\nmax_bytes: {bytes}\n"));
        let (_, asked) = evaluated(&trace, &config, Settings::default(), |_| Err(Unmeasured::JudgeError));
        let size = asked[0].question.prompt.user.len();
        let sent = request(&asked[0]);
        assert!(size as u64 <= config.max_bytes.0, "{size}");
        assert_eq!(sent.omitted_spans == 0, is_complete, "{bytes}");
        assert_eq!(sent.spans.len() as u64 + sent.omitted_spans, 802);
    }
}

#[test]
fn recorded_runs_fit_the_shipped_schema() {
    let schema = Schema::compile(&request_schema());
    assert_eq!(schema.problem(), None);
    for run in ["strands-c", "pydanticai-b", "langgraph-openinference-m"] {
        for subject in ["step", "agent", "trace"] {
            let config = config(&format!("subject: {subject}\n"));
            let traces = captured(run);
            let sent: Vec<_> =
                traces.iter().flat_map(|t| requests(t, &config, Settings::default())).collect();
            assert!(!sent.is_empty(), "{run} {subject}");
            for request in sent {
                assert_eq!(schema.check(&json!(request)).validity, Validity::Valid);
            }
        }
    }
    let example = json!({ "score": 2, "rationale": "r", "findings": [finding("00f067aa0ba902b7", "x")],
        "usage": { "input_tokens": 1, "output_tokens": 2 } });
    let answers = Schema::compile(&answer_schema());
    assert_eq!(answers.check(&example).validity, Validity::Valid);
    assert_ne!(answers.check(&json!({ "score": 2, "verdict": "x" })).validity, Validity::Valid);
}

#[test]
fn shipped_schemas_are_those_of_the_types() {
    for (name, schema) in [("request", request_schema()), ("answer", answer_schema())] {
        let path = tests().join(format!("../docs/schemas/evaluation-{name}.v{VERSION}.json"));
        let text = format!("{}\n", serde_json::to_string_pretty(&schema).unwrap());
        if std::env::var_os("UPDATE_GENERATED").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let shipped = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(shipped == text, "{} differs from the types; UPDATE_GENERATED=1 writes it", path.display());
    }
}

#[test]
fn invalid_evaluators_are_named() {
    assert_eq!(problems("tone", "judges: [a]"), [""; 0]);
    assert_eq!(problems("style.tone", "judges: [a]\nlabels: [x, y]\nfail_labels: [y]"), [""; 0]);
    for (name, yaml, expected) in [
        ("tone", "judges: []", "tone.judges: names no judge"),
        ("tone", "judges: [rules]", "tone.judges: the built-in rules"),
        ("tone", "judges: [a]\nscores: [5, 1]", "tone.scores: the lowest score, 5"),
        ("tone", "judges: [a]\nthreshold: 7", "tone: "),
        ("tone", "judges: [a]\nlabels: [x, y]", "tone.fail_labels: some labels must fail"),
        ("tone", "judges: [a]\nlabels: [x, y]\nfail_labels: [z]", "tone.fail_labels: 'z' is not"),
        ("tone", "judges: [a]\nlabels: [x, x, y]\nfail_labels: [y]", "tone.labels: 'x' is listed twice"),
        ("tone", "judges: [a]\nlabels: ['a b', y]\nfail_labels: [y]", "tone.labels: expected"),
        (
            "tone",
            "judges: [a]\nlabels: [x, y]\nfail_labels: [y]\nthreshold: 1",
            "tone.labels: a metric has either",
        ),
        ("tone", "judges: [a]\nmax_bytes: 1KiB", "tone.max_bytes: "),
        ("Tone", "judges: [a]", "Tone: a name is lower-case words"),
        ("completeness", "judges: [a]", "completeness: there is a metric of this name"),
    ] {
        let found = problems(name, yaml);
        assert!(found.iter().any(|problem| problem.starts_with(expected)), "{yaml}: {found:?}");
    }
}

#[test]
fn reloaded_configuration_has_the_same_row_unless_it_changes() {
    let row = |yaml: &str| config(yaml).metric("style.row").row;
    assert!(std::ptr::eq(row("scores: [0, 3]\n"), row("scores: [0, 3]\nmax_bytes: 8KiB\n")));
    assert!(!std::ptr::eq(row("scores: [0, 3]\n"), row("scores: [0, 4]\n")));
}
