//! Dashboards and alerts in `deploy/`: every query names metrics and labels that exist, and a Prometheus that
//! scrapes a running process answers each of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::trace::v1::Span;
use regex::Regex;
use reqwest::Url;
use serde_json::Value;
use verdict_client::Tls;
use verdict_telemetry::declared::{ALL, MetricKind};

use crate::model;
use crate::scrape::{http, span};
use crate::support::Process;

fn deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(name)
}

/// A query and its location.
struct Query {
    location: String,
    expr: String,
}

/// Every query of the dashboards, with variables replaced by what Grafana would insert.
fn dashboards() -> Vec<Query> {
    let mut queries = Vec::new();
    for name in ["grafana/agents.json", "grafana/pipeline.json"] {
        let board: Value = serde_json::from_str(&std::fs::read_to_string(deploy(name)).unwrap()).unwrap();
        for panel in board["panels"].as_array().unwrap() {
            let title = panel["title"].as_str().unwrap();
            assert!(panel["description"].as_str().is_some_and(|text| !text.is_empty()), "{name}: {title}");
            for target in panel["targets"].as_array().unwrap() {
                let expr = target["expr"].as_str().unwrap();
                let expr = expr.replace("$__rate_interval", "1m").replace("$__range", "1h");
                let expr = ["$service", "$agent", "$model", "$instance"]
                    .iter()
                    .fold(expr, |expr, variable| expr.replace(variable, ".*"));
                assert!(!expr.contains('$'), "{name}: {title}: a variable without a value: {expr}");
                queries.push(Query { location: format!("{name}: {title}"), expr });
            }
        }
    }
    queries
}

/// Every query of the rules.
fn rules() -> Vec<Query> {
    let text = std::fs::read_to_string(deploy("prometheus/alerts.yaml")).unwrap();
    let file: Value = serde_saphyr::from_str(&text).unwrap();
    let rules =
        file["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap());
    rules
        .map(|rule| {
            let name = rule["alert"].as_str().or(rule["record"].as_str()).unwrap();
            Query {
                location: format!("alerts.yaml: {name}"),
                expr: rule["expr"].as_str().unwrap().to_owned(),
            }
        })
        .collect()
}

#[test]
fn every_alert_has_a_case_in_which_it_fires() {
    let read =
        |path: PathBuf| -> Value { serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap() };
    let cases = read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/alerts.test.yaml"));
    let array = |value: &Value, key: &str| value[key].as_array().unwrap().clone();
    let fired: BTreeSet<String> = array(&cases, "tests")
        .iter()
        .flat_map(|test| test["alert_rule_test"].as_array().cloned().unwrap_or_default())
        .filter(|case| !array(case, "exp_alerts").is_empty())
        .map(|case| case["alertname"].as_str().unwrap().to_owned())
        .collect();
    let rules = read(deploy("prometheus/alerts.yaml"));
    let alerts = array(&rules, "groups").into_iter().flat_map(|group| array(&group, "rules"));
    let alerts: BTreeSet<String> =
        alerts.filter_map(|rule| Some(rule["alert"].as_str()?.to_owned())).collect();
    assert_eq!(alerts, fired);
}

/// The names in `{{...}}`.
fn template_names(text: &str) -> Vec<&str> {
    text.split("{{").skip(1).filter_map(|rest| rest.split("}}").next()).map(str::trim).collect()
}

/// The labels of each exposed metric.
fn exposed() -> BTreeMap<String, BTreeSet<&'static str>> {
    let mut all = BTreeMap::new();
    for metric in ALL {
        let labels: BTreeSet<&str> = metric.labels.iter().copied().collect();
        let name = metric.exposed();
        if metric.kind == MetricKind::Histogram {
            let buckets = labels.iter().copied().chain(["le"]).collect();
            all.insert(format!("{name}_bucket"), buckets);
            all.insert(format!("{name}_sum"), labels.clone());
            all.insert(format!("{name}_count"), labels);
        } else {
            all.insert(name, labels);
        }
    }
    all
}

/// The variables of the dashboards: the location, the series whose labels they list, and the label.
fn variables() -> Vec<(String, String, String)> {
    static VALUES: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^label_values\((.+), (\w+)\)$").unwrap());
    let mut all = Vec::new();
    for name in ["grafana/agents.json", "grafana/pipeline.json"] {
        let board: Value = serde_json::from_str(&std::fs::read_to_string(deploy(name)).unwrap()).unwrap();
        for variable in board["templating"]["list"].as_array().unwrap() {
            let Some(query) = variable["query"]["query"].as_str() else { continue };
            let found = VALUES.captures(query).unwrap_or_else(|| panic!("{name}: {query}"));
            let selector = ["$service", "$agent", "$model", "$instance"]
                .iter()
                .fold(found[1].to_owned(), |selector, variable| selector.replace(variable, ".*"));
            all.push((format!("{name}: {query}"), selector, found[2].to_owned()));
        }
    }
    assert!(all.len() >= 4, "{all:?}");
    all
}

#[test]
fn queries_name_metrics_and_labels_that_exist() {
    static NAME: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\b(otel_verdict_\w+)(?:\{([^}]*)\})?").unwrap());
    static LABEL: LazyLock<Regex> = LazyLock::new(|| Regex::new(r#"(\w+)\s*(?:=~|!~|!=|=)\s*""#).unwrap());
    let exposed = exposed();
    let queries: Vec<Query> = dashboards().into_iter().chain(rules()).collect();
    assert!(queries.len() > 40, "{}", queries.len());
    for Query { location, expr } in &queries {
        let mut names_metric = expr.contains("process_");
        for found in NAME.captures_iter(expr) {
            // The name of a recorded series has colons.
            if expr[..found.get(0).unwrap().start()].ends_with(':') {
                names_metric = true;
                continue;
            }
            names_metric = true;
            let labels =
                exposed.get(&found[1]).unwrap_or_else(|| panic!("{location}: no metric {}", &found[1]));
            let selected = found.get(2).map_or("", |labels| labels.as_str());
            for label in LABEL.captures_iter(selected) {
                let is_known = labels.contains(&label[1]) || &label[1] == "instance";
                assert!(is_known, "{location}: {} has no label {}", &found[1], &label[1]);
            }
        }
        assert!(names_metric, "{location}: names no metric: {expr}");
    }
}

#[test]
fn groups_legends_and_variables_name_labels_that_exist() {
    static NAME: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\botel_verdict_\w+").unwrap());
    static BY: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)").unwrap());
    static VALUES: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"^label_values\((\w+)(?:\{.*\})?, (\w+)\)$").unwrap());
    let exposed = exposed();
    let check = |location: &str, expr: &str, label: &str| {
        let has_label =
            |found: regex::Match<'_>| exposed.get(found.as_str()).is_some_and(|l| l.contains(label));
        // The labels of a recorded series are not declared.
        let recorded = expr.contains(":otel_verdict_");
        let is_known = recorded || label == "instance" || NAME.find_iter(expr).any(has_label);
        assert!(is_known, "{location}: no metric of {expr} has the label {label}");
    };
    for Query { location, expr } in dashboards().into_iter().chain(rules()) {
        for group in BY.captures_iter(&expr) {
            group[1].split(',').map(str::trim).for_each(|label| check(&location, &expr, label));
        }
    }
    for name in ["grafana/agents.json", "grafana/pipeline.json"] {
        let board: Value = serde_json::from_str(&std::fs::read_to_string(deploy(name)).unwrap()).unwrap();
        for target in
            board["panels"].as_array().unwrap().iter().flat_map(|p| p["targets"].as_array().unwrap())
        {
            let (expr, legend) = (target["expr"].as_str().unwrap(), target["legendFormat"].as_str().unwrap());
            template_names(legend).into_iter().for_each(|label| check(name, expr, label));
        }
        for variable in board["templating"]["list"].as_array().unwrap() {
            let Some(query) = variable["query"]["query"].as_str() else { continue };
            let found = VALUES.captures(query).unwrap_or_else(|| panic!("{name}: {query}"));
            check(name, &found[1], &found[2]);
        }
    }
    let file: Value =
        serde_saphyr::from_str(&std::fs::read_to_string(deploy("prometheus/alerts.yaml")).unwrap()).unwrap();
    for rule in file["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap())
    {
        let Some(summary) = rule["annotations"]["summary"].as_str() else { continue };
        for label in template_names(summary).into_iter().filter_map(|name| name.strip_prefix("$labels.")) {
            check(summary, rule["expr"].as_str().unwrap(), label);
        }
    }
}

/// A Prometheus that scrapes one target; ends with the test.
struct Prometheus {
    child: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Prometheus {
    fn start(program: &str, target: std::net::SocketAddr) -> Prometheus {
        let folder = tempfile::tempdir().unwrap();
        let port = crate::support::unused_port();
        let rules = deploy("prometheus/alerts.yaml");
        let config = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\n\
             rule_files: [{rules:?}]\n\
             scrape_configs: [{{ job_name: otel-verdict, static_configs: [{{ targets: ['{target}'] }}] }}]\n"
        );
        std::fs::write(folder.path().join("prometheus.yml"), config).unwrap();
        let child = Command::new(program)
            .arg(format!("--config.file={}", folder.path().join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Prometheus { child, port, _folder: folder }
    }

    /// The response of an API path; `None` until the server answers.
    async fn get(&self, path: &str) -> Option<Value> {
        let url = Url::parse(&format!("http://127.0.0.1:{}/api/v1/{path}", self.port)).unwrap();
        let client = verdict_client::client(&[&url], &Tls::default(), Duration::from_secs(10), 0).unwrap();
        let response = client.get(url).send().await.ok()?;
        serde_json::from_str(&response.text().await.ok()?).ok()
    }

    async fn query(&self, expr: &str) -> Value {
        let url = Url::parse_with_params("http://x/", [("query", expr)]).unwrap();
        self.get(&format!("query?{}", url.query().unwrap())).await.unwrap()
    }
}

/// `request` with another trace id.
fn with_trace_id(request: &[u8], from: &[u8; 16], to: &[u8; 16]) -> Vec<u8> {
    let mut request = request.to_vec();
    let places: Vec<usize> =
        request.windows(16).enumerate().filter(|(_, bytes)| bytes == from).map(|(at, _)| at).collect();
    assert!(!places.is_empty(), "the recording has another trace id");
    places.iter().for_each(|&at| request[at..at + 16].copy_from_slice(to));
    request
}

/// `OTEL_VERDICT_PROMETHEUS` names the program.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Prometheus; .ci/neighbours prometheus installs it"]
async fn a_real_prometheus_answers_every_query() {
    let program = std::env::var("OTEL_VERDICT_PROMETHEUS").unwrap_or_else(|_| "prometheus".to_owned());
    // The process has a judge and a journal.
    let judge = model::serve_for(
        1_000,
        |_, _| serde_json::json!({ "rationale": "nearly all of it", "score": 4, "findings": [] }),
    );
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(&format!(
        "verdict: {{ close: {{ quiet: 50ms }}, metrics: {{ judges: [rules], instruction_following: {{ judges: [main] }} }} }}\n\
         judges: {{ main: {{ endpoint: '{judge}', model: some-model, price: {{ input: 1, output: 1 }} }} }}\n\
         storage: {{ directory: '{}' }}",
        folder.path().display()
    ))
    .await;
    let (otlp, admin) = (process.service.http.unwrap(), process.service.admin.unwrap());
    let prometheus = Prometheus::start(&program, admin);
    let deadline = Instant::now() + Duration::from_secs(60);
    // Counters have to grow between two scrapes, so runs are sent until a query of agents has a value.
    // One records costs, the other one the version of its service.
    let recorded = [
        ("pydanticai-b", 0x9948_7798_d66b_9bd8_6893_231a_88ee_803c_u128),
        ("strands-c", 0xd505_07a6_2d0f_b2a8_d4ff_e5ed_f245_d8e2),
    ];
    let recorded = recorded.map(|(name, id)| {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("demo").join(name).join("001.pb");
        (std::fs::read(file).unwrap(), id.to_be_bytes())
    });
    let mut runs = 0u128;
    let has_data = |answer: &Value| answer["data"]["result"].as_array().is_some_and(|all| !all.is_empty());
    let answered = "sum(rate(otel_verdict_judge_cost_usd_total[1m])) > 0";
    let grown = "sum(increase(otel_verdict_agent_versions_total{result=\"fail\"}[1m])) > 0";
    // The judge's answers are cached, so its counters grow with the first runs alone, which follow the first scrape.
    while prometheus.get("status/buildinfo").await.is_none()
        || !has_data(&prometheus.query("sum(otel_verdict_judge_cost_usd_total)").await)
    {
        assert!(Instant::now() < deadline, "Prometheus has not scraped");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    loop {
        assert!(Instant::now() < deadline, "Prometheus has not scraped a growing counter");
        // Spans of a trace that has closed are late, and count for no further run.
        for (request, id) in &recorded {
            runs += 1;
            http(otlp, "POST /v1/traces", &with_trace_id(request, id, &runs.to_be_bytes())).await;
        }
        // A span without ids is refused.
        let nameless = Span { trace_id: Vec::new(), ..span(1, 1) };
        http(otlp, "POST /v1/traces", &crate::scrape::request(vec![nameless])).await;
        if has_data(&prometheus.query(grown).await) && has_data(&prometheus.query(answered).await) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let mut empty = Vec::new();
    for Query { location, expr } in dashboards() {
        let answer = prometheus.query(&expr).await;
        assert_eq!(answer["status"], "success", "{location}: {answer}");
        if answer["data"]["result"].as_array().unwrap().is_empty() {
            empty.push(location);
        }
    }
    assert!(empty.is_empty(), "without data: {empty:?}");
    // The values of the dashboards' variables.
    for (name, selector, label) in variables() {
        let query = Url::parse_with_params("http://x/", [("match[]", &selector)]).unwrap();
        let values =
            prometheus.get(&format!("label/{label}/values?{}", query.query().unwrap())).await.unwrap();
        let all = values["data"].as_array().unwrap_or_else(|| panic!("{name}: {values}"));
        assert!(!all.is_empty(), "{name}: no value of {label} in {selector}");
    }
    let loaded = prometheus.get("rules").await.unwrap();
    let groups = loaded["data"]["groups"].as_array().unwrap();
    let states = groups.iter().flat_map(|group| group["rules"].as_array().unwrap());
    let faults: Vec<&Value> = states.filter(|rule| rule["health"] == "err").collect();
    assert!(faults.is_empty() && !groups.is_empty(), "{faults:?}");
}
