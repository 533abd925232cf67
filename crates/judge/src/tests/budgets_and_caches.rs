//! Budgets, caches, recordings, reload, and services whose content judges may not see.

use super::*;
use crate::JudgeError;
use crate::config::{BudgetConfig, CacheConfig, Limit, Price};

fn tokens(limit: u64) -> Limit {
    Limit { tokens: Some(limit), usd: None }
}

async fn requests(server: &MockServer) -> usize {
    server.received_requests().await.unwrap().len()
}

/// Answers are short, so that little is reserved for them.
fn frugal(endpoint: &str) -> JudgeConfig {
    JudgeConfig { max_tokens: 50, ..config(endpoint) }
}

#[tokio::test]
async fn no_question_is_sent_beyond_the_budget_of_a_trace() {
    let server = server(in_turn([good(4)])).await;
    let budget = BudgetConfig { per_trace: tokens(600), ..BudgetConfig::default() };
    let judging = JudgingConfig { budget, ..JudgingConfig::default() };
    let fixture = Fixture::new(&[("main", frugal(&server.uri()))], &judging);
    let mut answered = 0;
    for n in 0..10 {
        match scores(&fixture.ask(&format!("Q{n}")).await) {
            Ok(_) => answered += 1,
            Err(reason) => assert_eq!(reason, Unmeasured::Budget),
        }
    }
    // Each question takes 120 tokens; about 190 are reserved for a question and its answer.
    assert_eq!((answered, requests(&server).await), (4, 4));
    let other = fixture.judges.ask(trace(2), &ask("Q", &["main"])).await;
    assert_eq!(scores(&other), Ok(vec![4]), "another trace has its own");
    assert_eq!(fixture.count("judge_questions_total{judge=\"main\",outcome=\"budget\"}"), 6.0);
}

#[tokio::test]
async fn concurrency_does_not_change_the_number_of_questions_within_a_budget() {
    let server = server(in_turn([good(4).set_delay(Duration::from_millis(20))])).await;
    let budget = BudgetConfig { per_trace: tokens(1000), ..BudgetConfig::default() };
    let judging = JudgingConfig { budget, ..JudgingConfig::default() };
    let fixture = Fixture::new(&[("main", frugal(&server.uri()))], &judging);
    let questions: Vec<String> = (0..30).map(|n| format!("Q{n}")).collect();
    let answers = futures_util::future::join_all(questions.iter().map(|q| fixture.ask(q))).await;
    let answered = answers.iter().filter(|a| a.opinions.is_ok()).count();
    let spent: u64 = answers.iter().map(|a| a.usage.tokens).sum();
    assert!((6..=7).contains(&answered) && spent <= 1000, "{answered} answered for {spent}");
}

#[tokio::test]
async fn spending_in_usd_is_bounded_and_counted() {
    let server = server(in_turn([good(4)])).await;
    let price = Price { input: 10.0, output: 100.0, cached: Some(1.0), cache_write: None };
    let per_day = Limit { tokens: None, usd: Some(0.010) };
    let judge_config = JudgeConfig {
        price,
        budget: BudgetConfig { per_day, ..BudgetConfig::default() },
        ..frugal(&server.uri())
    };
    let fixture = Fixture::new(&[("main", judge_config)], &JudgingConfig::default());
    // 60 x 10 + 40 x 1 + 20 x 100 = 2640 millionths a question; more than twice that is reserved.
    let mut spent = 0.0;
    while let answer = fixture.ask(&format!("Q{spent}")).await
        && answer.opinions.is_ok()
    {
        spent += answer.usage.cost_usd;
    }
    assert!((0.002..=0.010).contains(&spent), "{spent}");
    assert!((fixture.count("judge_cost_usd_total") - spent).abs() < 1e-9);
    assert_eq!(
        fixture.count("judge_tokens_total{judge=\"main\",kind=\"cached\"}") / 40.0,
        (spent / 0.00264).round()
    );
}

#[tokio::test]
async fn equal_questions_are_sent_once_and_runs_are_cached_separately() {
    let server = server(in_turn([good(4).set_delay(Duration::from_millis(100))])).await;
    let fixture = Fixture::one(config(&server.uri()));
    let at_once = futures_util::future::join_all((0..20).map(|_| fixture.ask("Same."))).await;
    assert!(at_once.iter().all(|a| scores(a) == Ok(vec![4])));
    assert_eq!(at_once.iter().map(|a| a.usage.tokens).sum::<u64>(), 120);
    assert_eq!(fixture.ask("Same.").await.usage.tokens, 0);
    assert_eq!(requests(&server).await, 1);
    for run in 1..3 {
        let answer = fixture.judges.for_run(run).ask(trace(1), &ask("Same.", &["main"])).await;
        assert_eq!(answer.usage.tokens, 120, "run {run} asks for itself");
    }
    fixture.ask("Other.").await;
    assert_eq!(requests(&server).await, 4);
    assert_eq!(fixture.count("judge_questions_total{judge=\"main\",outcome=\"shared\"}"), 19.0);
    assert_eq!(fixture.count("judge_questions_total{judge=\"main\",outcome=\"cached\"}"), 1.0);
}

#[tokio::test]
async fn cached_answers_survive_a_restart_and_are_not_used_for_another_schema() {
    let server = server(in_turn([good(4)])).await;
    let folder = tempfile::tempdir().unwrap();
    let cache = CacheConfig { directory: Some(folder.path().join("cache")), ..CacheConfig::default() };
    let judging = JudgingConfig { cache, ..JudgingConfig::default() };
    let configs = [("main", config(&server.uri()))];
    let fixture = Fixture::new(&configs, &judging);
    fixture.ask("Same.").await;
    // The answer is written in the background.
    for _ in 0..18_000 {
        let written = std::fs::read_dir(folder.path().join("cache"))
            .unwrap()
            .any(|e| e.unwrap().metadata().unwrap().len() > 0);
        if written {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let result = Judges::new(
        &JudgeConfigs::default(),
        &judging,
        &fixture.telemetry.judge,
        &JudgeExtensions::default(),
    );
    assert!(matches!(result, Err(JudgeError::Cache(_))), "one process per folder");
    drop(fixture);
    wait_until_unlocked(&judging).await;
    let fixture = Fixture::new(&configs, &judging);
    let answer = fixture.ask("Same.").await;
    assert_eq!((scores(&answer), answer.usage.tokens, requests(&server).await), (Ok(vec![4]), 0, 1));
    let mut other = ask("Same.", &["main"]);
    let mut form = (*other.question.form).clone();
    form.schema["properties"]["score"]["enum"] = json!([0, 1, 2, 3]);
    other.question.form = Arc::new(form);
    assert_eq!(
        scores(&fixture.judges.ask(trace(1), &other).await),
        Err(Unmeasured::JudgeError),
        "4 is none of them"
    );
}

#[tokio::test]
async fn a_recorded_run_is_replayed_without_a_server() {
    let server = server(in_turn([good(1), good(2), good(3), good(4), good(5)])).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.jsonl");
    let recording = JudgeConfig { record: Some(file.clone()), samples: 2, ..config(&server.uri()) };
    let fixture = Fixture::one(recording);
    let first = fixture.ask("A").await;
    let second = fixture.ask("B").await;
    assert_eq!(fixture.ask("B").await.usage.tokens, 0, "out of the cache, and recorded once");
    assert_eq!(std::fs::read_to_string(&file).unwrap().lines().count(), 4);
    drop(server);
    let replaying = JudgeConfig { replay: Some(file.clone()), samples: 2, ..config("http://127.0.0.1:9") };
    let fixture = Fixture::one(replaying);
    assert_eq!(fixture.ask("B").await, second);
    assert_eq!(fixture.ask("A").await, first, "opinions, names and cost alike");
    assert_eq!(scores(&fixture.ask("C").await), Err(Unmeasured::JudgeError), "what was not recorded");
    assert_eq!(fixture.count("judge_questions_total{judge=\"main\",outcome=\"replayed\"}"), 4.0);
    std::fs::write(&file, "nonsense").unwrap();
    let broken = JudgeConfig { replay: Some(file), ..config("http://127.0.0.1:9") };
    let error = Judges::new(
        &[("main".to_owned(), broken)].into(),
        &JudgingConfig::default(),
        &fixture.telemetry.judge,
        &JudgeExtensions::default(),
    );
    let error = error.unwrap_err().to_string();
    assert!(error.starts_with("judges.main.replay: ") && error.contains("line 1"), "{error}");
}

#[tokio::test]
async fn content_of_a_service_is_withheld_from_external_judges_or_from_one() {
    let server = server(in_turn([good(4)])).await;
    let judging = JudgingConfig { keep_internal: vec!["sh*".to_owned()], ..JudgingConfig::default() };
    let configs = [
        ("near", config(&server.uri())),
        ("far", JudgeConfig { external: Some(true), ..config(&server.uri()) }),
        ("picky", JudgeConfig { exclude_services: vec!["shop".to_owned()], ..config(&server.uri()) }),
    ];
    let fixture = Fixture::new(&configs, &judging);
    let all = &["near", "far", "picky"];
    assert_eq!(scores(&fixture.judges.ask(trace(1), &ask("Q", all)).await).unwrap().len(), 1);
    let withheld = fixture.judges.ask(trace(1), &ask("Q", &["far", "picky"])).await;
    assert_eq!(scores(&withheld), Err(Unmeasured::NotApplicable));
    // Which services an open trace has is not known.
    let mut early = ask("Q", &["far"]);
    (early.services, early.context.is_early) = ([Text::from("billing")].into(), true);
    scores(&fixture.judges.ask(trace(1), &early).await).unwrap_err();
    let ask_for_services = |services: &[&str]| Ask {
        services: services.iter().map(|name| Text::from(*name)).collect(),
        ..ask("Q", all)
    };
    assert_eq!(
        scores(&fixture.judges.ask(trace(1), &ask_for_services(&["billing"])).await).unwrap().len(),
        3
    );
    for mixed in [["billing", "shop"], ["shop", "billing"], ["", "shop"]] {
        assert_eq!(
            scores(&fixture.judges.ask(trace(1), &ask_for_services(&mixed)).await).unwrap().len(),
            1,
            "{mixed:?}"
        );
    }
}

#[tokio::test]
async fn a_reload_keeps_spending_and_cached_answers() {
    let server = server(in_turn([good(4).set_delay(Duration::from_millis(50))])).await;
    let budget = BudgetConfig { per_hour: tokens(350), ..BudgetConfig::default() };
    let judging = JudgingConfig { budget, ..JudgingConfig::default() };
    let configs: JudgeConfigs = [("main".to_owned(), frugal(&server.uri()))].into();
    let fixture = Fixture::new(&[("main", frugal(&server.uri()))], &judging);
    let under_way = fixture.ask("A");
    let renewed = async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let mut configs = configs.clone();
        configs.get_mut("main").unwrap().timeout = Period::secs(180);
        fixture.judges.renewed(&configs, &judging).unwrap()
    };
    let (under_way, renewed) = tokio::join!(under_way, renewed);
    assert_eq!(scores(&under_way), Ok(vec![4]), "questions under way are answered");
    let score_for = async |user: &str| scores(&renewed.ask(trace(9), &ask(user, &["main"])).await);
    assert_eq!(score_for("B").await, Ok(vec![4]));
    assert_eq!(score_for("C").await, Err(Unmeasured::Budget), "the hour's tokens are spent");
    let renewed_twice = renewed.renewed(&configs, &judging).unwrap();
    let cached = renewed_twice.ask(trace(9), &ask("B", &["main"])).await;
    assert_eq!((scores(&cached), cached.usage.tokens), (Ok(vec![4]), 0));
}

#[tokio::test]
async fn refused_reload_leaves_the_bound_of_the_disk_cache() {
    let server = server(in_turn([good(4)])).await;
    let folder = tempfile::tempdir().unwrap();
    let cache = |max_bytes| CacheConfig {
        directory: Some(folder.path().join("cache")),
        max_bytes: verdict_config::Size(max_bytes),
        ..CacheConfig::default()
    };
    let judging = JudgingConfig { cache: cache(1 << 20), ..JudgingConfig::default() };
    let fixture = Fixture::new(&[("main", config(&server.uri()))], &judging);
    let broken = JudgeConfig { dialect: "unknown".to_owned(), ..config(&server.uri()) };
    let smaller = JudgingConfig { cache: cache(1), ..JudgingConfig::default() };
    fixture.judges.renewed(&[("main".to_owned(), broken)].into(), &smaller).unwrap_err();
    for question in ["A", "B", "C"] {
        assert_eq!(scores(&fixture.ask(question).await), Ok(vec![4]));
    }
    // Answers are written in the background, and each takes a block.
    let files = || std::fs::read_dir(folder.path().join("cache")).unwrap().count();
    for _ in 0..18_000 {
        if files() == 4 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(files(), 4, "three answers and the lock");
}

#[tokio::test]
async fn a_dropped_question_releases_its_permit_and_its_budget() {
    let server = server(in_turn([good(4).set_delay(Duration::from_secs(300)), good(4)])).await;
    let budget = BudgetConfig { per_trace: tokens(700), ..BudgetConfig::default() };
    let judging = JudgingConfig { budget, ..JudgingConfig::default() };
    let fixture =
        Fixture::new(&[("main", JudgeConfig { max_concurrency: 1, ..frugal(&server.uri()) })], &judging);
    let received = async {
        while requests(&server).await == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        _ = fixture.ask("A") => panic!("the first answer comes after minutes"),
        () = received => {}
    }
    assert_eq!(fixture.count("judge_requests_in_flight"), 0.0);
    assert_eq!(fixture.count("judge_questions_waiting"), 0.0);
    // The prompt counts as spent, since it may have been read; the answer does not.
    assert_eq!(scores(&fixture.ask("B").await), Ok(vec![4]));
}
