//! Cascades over HTTP: when the second judge is asked, which answer applies, withheld content, counts and savings.

use serde_json::json;
use verdict_eval::questions::{PassCriterion, QuestionSubject};

use super::*;
use crate::config::{CascadeConfig, EscalationRule, Price};

fn stated(score: u8, percent: u8) -> ResponseTemplate {
    let text = json!({ "rationale": "r", "score": score, "judge_confidence": percent }).to_string();
    ResponseTemplate::new(200).set_body_json(completion(&text))
}

fn priced(server: &MockServer, output: f64) -> JudgeConfig {
    JudgeConfig {
        price: Price { input: 0.0, output, cached: None, cache_write: None },
        retries: 0,
        ..config(&server.uri())
    }
}

fn cascade(change: impl FnOnce(&mut CascadeConfig)) -> JudgingConfig {
    let mut pair = CascadeConfig { first: "small".into(), then: "strong".into(), ..CascadeConfig::default() };
    change(&mut pair);
    JudgingConfig { cascades: [("careful".to_owned(), pair)].into(), ..JudgingConfig::default() }
}

fn question_of(user: &str, context: QuestionContext) -> Ask {
    Ask { context, ..ask(user, &["careful"]) }
}

/// The context of a metric that passes from a score of 4.
fn span_context() -> QuestionContext {
    QuestionContext { criterion: Some(PassCriterion::Score(4.0)), ..QuestionContext::default() }
}

async fn asked(server: &MockServer) -> usize {
    server.received_requests().await.unwrap().len()
}

#[tokio::test]
async fn the_second_judge_is_asked_where_the_first_does_not_suffice() {
    let sure = QuestionContext { rules_passed: Some(true), ..span_context() };
    let against = QuestionContext { rules_passed: Some(false), ..span_context() };
    let trace_context = QuestionContext { subject: QuestionSubject::Trace, ..span_context() };
    let agent_context = QuestionContext { subject: QuestionSubject::Agent, ..span_context() };
    let severe = QuestionContext { has_severe_finding: true, ..span_context() };
    // Question, answer of the first (score and confidence), result, whether each is asked, the score that applies.
    let cases = [
        ("sure pass", (5, 90), sure, "kept", (true, false), 5),
        ("sure fail", (1, 90), span_context(), "kept", (true, false), 1),
        ("lowest pass", (4, 90), span_context(), "unsure", (true, true), 2),
        ("highest fail", (3, 90), span_context(), "unsure", (true, true), 2),
        ("low confidence", (5, 70), span_context(), "unsure", (true, true), 2),
        ("against the rules", (5, 90), against, "disagreement", (true, true), 2),
        ("about the trace", (5, 90), trace_context, "stakes", (false, true), 2),
        ("about an agent", (5, 90), agent_context, "kept", (true, false), 5),
        ("severe", (5, 90), severe, "stakes", (false, true), 2),
    ];
    for (name, (score, percent), context, result, (first, then), applies) in cases {
        let small = server(stated(score, percent)).await;
        let strong = server(good(2)).await;
        let judges = [("small", priced(&small, 1.0)), ("strong", priced(&strong, 100.0))];
        let fixture = Fixture::new(&judges, &cascade(|_| {}));
        let answer = fixture.judges.ask(trace(1), &question_of(name, context)).await;
        assert_eq!(scores(&answer), Ok(vec![applies]), "{name}");
        let opinion = &answer.opinions.as_ref().unwrap()[0];
        assert_eq!(
            opinion.value.as_object().unwrap().len(),
            2,
            "the form of the question: {}",
            opinion.value
        );
        assert_eq!((asked(&small).await == 1, asked(&strong).await == 1), (first, then), "{name}");
        // The costs of both judges count for the trace.
        let spent = f64::from(u8::from(first)) * 20e-6 + f64::from(u8::from(then)) * 20e-4;
        assert!((answer.usage.cost_usd - spent).abs() < 1e-12, "{name}: {:?}", answer.usage);
        let labels = format!("cascade=\"careful\",result=\"{result}\"}}");
        assert!(
            (fixture.count(&format!("judge_cascade_questions_total{{{labels}")) - 1.0).abs() < 1e-9,
            "{name}"
        );
    }
}

#[tokio::test]
async fn agreement_and_savings_are_counted() {
    let answers = [stated(5, 90), stated(4, 90), stated(3, 90)];
    let (small, strong) = (server(in_turn(answers)).await, server(in_turn([good(5), good(4)])).await);
    let judges = [("small", priced(&small, 1.0)), ("strong", priced(&strong, 100.0))];
    let fixture = Fixture::new(&judges, &cascade(|_| {}));
    for user in ["sure", "unsure and confirmed", "unsure and refuted"] {
        fixture.judges.ask(trace(1), &question_of(user, span_context())).await;
    }
    // A cached answer saves nothing more.
    fixture.judges.ask(trace(1), &question_of("sure", span_context())).await;
    let report = fixture.judges.cascades().remove(0);
    assert_eq!(report.questions, [("kept", 2), ("unsure", 2)].into());
    assert_eq!((report.compared, report.agreed), (2, 1));
    let spent = 3.0 * 20.0 * 1e-6;
    assert!((report.spent.cost_usd - spent).abs() < 1e-12, "{report:?}");
    // An answer of usual length, 400 tokens, at 100 USD a million.
    assert!((report.avoided.cost_usd - 0.04).abs() < 1e-12, "{report:?}");
    assert!(report.avoided.tokens > 400 && report.spent.tokens == 360, "{report:?}");
    let counted = fixture.count("judge_cascade_comparisons_total{cascade=\"careful\",result=\"agreed\"}");
    assert!((counted - 1.0).abs() < 1e-9);
    assert!(
        (fixture.count("judge_cascade_avoided_cost_usd_total{cascade=\"careful\"}") - 0.04).abs() < 1e-12
    );
}

#[tokio::test]
async fn either_judge_answers_for_one_that_does_not() {
    let down = || ResponseTemplate::new(500);
    for (first, then, expected) in [
        (down(), good(5), Ok(vec![5])),
        (stated(4, 90), down(), Ok(vec![4])),
        (down(), down(), Err(Unmeasured::JudgeError)),
    ] {
        let (small, strong) = (server(first).await, server(then).await);
        let judges = [("small", priced(&small, 0.0)), ("strong", priced(&strong, 0.0))];
        let fixture = Fixture::new(&judges, &cascade(|_| {}));
        let answer = fixture.judges.ask(trace(1), &question_of("Q", span_context())).await;
        assert_eq!(scores(&answer), expected);
        assert_eq!(asked(&strong).await, 1);
    }
}

#[tokio::test]
async fn content_reaches_no_member_that_must_not_see_it() {
    let (small, strong) = (server(stated(4, 10)).await, server(good(2)).await);
    let external_judge = |server: &MockServer| JudgeConfig { external: Some(true), ..priced(server, 0.0) };
    let picky =
        |server: &MockServer| JudgeConfig { exclude_services: vec!["sh*".into()], ..priced(server, 0.0) };
    let internal = |mut judging: JudgingConfig| {
        judging.keep_internal = vec!["shop".to_owned()];
        judging
    };
    for (judges, judging, seen, expected) in [
        (
            [("small", external_judge(&small)), ("strong", priced(&strong, 0.0))],
            internal(cascade(|_| {})),
            (0, 1),
            Ok(vec![2]),
        ),
        (
            [("small", priced(&small, 0.0)), ("strong", external_judge(&strong))],
            internal(cascade(|_| {})),
            (1, 0),
            Ok(vec![4]),
        ),
        ([("small", priced(&small, 0.0)), ("strong", picky(&strong))], cascade(|_| {}), (1, 0), Ok(vec![4])),
        (
            [("small", external_judge(&small)), ("strong", external_judge(&strong))],
            internal(cascade(|_| {})),
            (0, 0),
            Err(Unmeasured::NotApplicable),
        ),
    ] {
        let before = (asked(&small).await, asked(&strong).await);
        let fixture = Fixture::new(&judges, &judging);
        let answer = fixture.judges.ask(trace(1), &question_of("of the shop", span_context())).await;
        assert_eq!(scores(&answer), expected);
        let after = (asked(&small).await, asked(&strong).await);
        assert_eq!((after.0 - before.0, after.1 - before.1), seen);
    }
}

#[tokio::test]
async fn a_spent_budget_stops_the_second_judge_too() {
    let (small, strong) = (server(stated(4, 90)).await, server(good(2)).await);
    let judges = [("small", priced(&small, 0.0)), ("strong", priced(&strong, 100.0))];
    let mut judging = cascade(|_| {});
    judging.budget.per_trace.usd = Some(0.001);
    let fixture = Fixture::new(&judges, &judging);
    let answer = fixture.judges.ask(trace(1), &question_of("Q", span_context())).await;
    assert_eq!((scores(&answer), asked(&strong).await), (Ok(vec![4]), 0), "the first judge's answer remains");
}

#[tokio::test]
async fn confidence_is_not_asked_where_it_is_off_or_probabilities_say_more() {
    for (confidence, logprobs, is_asked) in [(0.75, false, true), (0.0, false, false), (0.75, true, false)] {
        let (small, strong) =
            (server(if is_asked { stated(5, 90) } else { good(5) }).await, server(good(2)).await);
        let first = JudgeConfig { logprobs, ..priced(&small, 0.0) };
        let judges = [("small", first), ("strong", priced(&strong, 0.0))];
        let fixture = Fixture::new(&judges, &cascade(|pair| pair.confidence = confidence));
        assert_eq!(
            scores(&fixture.judges.ask(trace(1), &question_of("Q", span_context())).await),
            Ok(vec![5])
        );
        let request = &small.received_requests().await.unwrap()[0];
        let body = String::from_utf8_lossy(&request.body).into_owned();
        assert_eq!(body.contains("judge_confidence"), is_asked);
    }
}

#[tokio::test]
async fn a_cascade_may_be_the_second_member_of_another() {
    let (small, middle, strong) =
        (server(stated(4, 90)).await, server(stated(3, 90)).await, server(good(5)).await);
    let judges =
        [("small", priced(&small, 0.0)), ("middle", priced(&middle, 0.0)), ("strong", priced(&strong, 0.0))];
    let mut judging = cascade(|pair| pair.then = "rest".into());
    let rest = CascadeConfig { first: "middle".into(), then: "strong".into(), ..CascadeConfig::default() };
    judging.cascades.insert("rest".to_owned(), rest);
    let fixture = Fixture::new(&judges, &judging);
    let answer = fixture.judges.ask(trace(1), &question_of("Q", span_context())).await;
    assert_eq!(scores(&answer), Ok(vec![5]));
    assert_eq!((asked(&small).await, asked(&middle).await, asked(&strong).await), (1, 1, 1));
}

#[test]
fn a_cascade_that_cannot_work_is_a_problem() {
    let judge =
        || JudgeConfig { endpoint: "http://h/v1".into(), model: "m".into(), ..JudgeConfig::default() };
    let rerank = || JudgeConfig { dialect: "rerank".into(), ..judge() };
    let configs: JudgeConfigs =
        [("small".to_owned(), judge()), ("strong".to_owned(), judge()), ("cross".to_owned(), rerank())]
            .into();
    let problems = |cascades: &[(&str, &str, &str)]| {
        let pair = |first: &str, then: &str| CascadeConfig {
            first: first.into(),
            then: then.into(),
            stakes: vec![EscalationRule::Agent],
            ..CascadeConfig::default()
        };
        let cascades = cascades.iter().map(|(name, first, then)| ((*name).to_owned(), pair(first, then)));
        let judging = JudgingConfig { cascades: cascades.collect(), ..JudgingConfig::default() };
        let (_, found) = crate::problems(&configs, &judging, &JudgeExtensions::default());
        found.into_iter().map(|p| format!("{}: {}", p.key, p.message)).collect::<Vec<_>>()
    };
    assert_eq!(problems(&[("a", "small", "strong"), ("b", "cross2", "a")]).len(), 1);
    assert!(problems(&[("a", "small", "strong")]).is_empty());
    for (cascades, expected) in [
        (
            &[("a", "smal", "strong")][..],
            "cascades.a.first: 'smal' is not defined under judges or judging.cascades",
        ),
        (&[("a", "small", "")], "cascades.a.then: is required"),
        (&[("a", "small", "small")], "cascades.a: asks 'small' twice"),
        (&[("a", "small", "a")], "cascades.a: contains itself"),
        (&[("a", "small", "b"), ("b", "a", "strong")], "cascades.a: contains itself"),
        (&[("a", "b", "small"), ("b", "small", "strong")], "cascades.a: asks 'small' twice"),
        (&[("a", "cross", "small")], "cascades.a.first: 'cross' is of dialect 'rerank'"),
        (&[("small", "small", "strong")], "cascades.small: is the name of a judge too"),
        (&[("rules", "small", "strong")], "cascades.rules: a judge's name consists of"),
    ] {
        let found = problems(cascades);
        assert!(found.first().is_some_and(|first| first.starts_with(expected)), "{expected}: {found:?}");
    }
}
