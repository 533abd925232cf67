//! Back ends over HTTP, made from the definitions of their APIs: they refuse requests and ids that the real ones
//! refuse, and keep what the real ones would show.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use ::http::{Method, Request, Response};
use axum::body::Body;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use uuid::Uuid;

#[derive(Default)]
pub(super) struct BackEndState {
    /// Method and path of each request, with its body and the values of the headers with credentials.
    pub requests: Vec<(String, Value, String)>,
    /// The scores that the back end shows, by identity.
    pub scores: BTreeMap<String, Value>,
    /// Statuses of the next requests, instead of an answer.
    pub failures: VecDeque<u16>,
    /// The number of requests that are accepted before each one that is refused with 429.
    pub limit: Option<usize>,
    /// Requests since the last one that was refused.
    since: usize,
    /// Traces that MLflow does not have, as 32 hexadecimal characters.
    pub missing: BTreeSet<String>,
    /// The project that LangSmith has, by name and id: feedback without its id is refused.
    pub project: Option<(String, Uuid)>,
    /// Ids of events, which Langfuse takes once.
    events: BTreeSet<String>,
    created: usize,
}

type Answer = fn(&mut BackEndState, &Method, &str, &Value) -> (u16, Value);

pub(super) struct BackEnd {
    pub addr: SocketAddr,
    pub state: Arc<Mutex<BackEndState>>,
}

impl BackEnd {
    pub(super) async fn start(flavor: &str) -> BackEnd {
        let answer: Answer = match flavor {
            "phoenix" => phoenix,
            "langfuse" => langfuse,
            "mlflow" => mlflow,
            "datadog" => datadog,
            "langsmith" => langsmith,
            _ => panic!("no such back end"),
        };
        let state: Arc<Mutex<BackEndState>> = Arc::default();
        let shared = Arc::clone(&state);
        let router = axum::Router::new().fallback(move |request: Request<Body>| {
            let state = Arc::clone(&shared);
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let body: Value = serde_json::from_slice(&body).unwrap_or_default();
                let path = head.uri.path_and_query().unwrap().as_str().to_owned();
                let key = ["authorization", "dd-api-key", "x-api-key"];
                let key = key.iter().find_map(|name| Some((name, head.headers.get(*name)?)));
                let key = key.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
                let mut state = state.lock().unwrap();
                let request = format!("{} {path}", head.method);
                state.requests.push((request, body.clone(), key.unwrap_or_default()));
                let limited = state.limit.is_some_and(|limit| state.since >= limit);
                state.since = if limited { 0 } else { state.since + 1 };
                let failure = if limited { Some(429) } else { state.failures.pop_front() };
                let (status, body) = match failure {
                    Some(status) => (status, json!({ "detail": "configured failure" })),
                    None => answer(&mut state, &head.method, &path, &body),
                };
                let response = Response::builder().status(status).header("content-type", "application/json");
                response.body(Body::from(body.to_string())).unwrap()
            }
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        BackEnd { addr, state }
    }

    pub(super) fn requests(&self) -> Vec<(String, Value, String)> {
        self.state.lock().unwrap().requests.clone()
    }

    pub(super) fn scores(&self) -> BTreeMap<String, Value> {
        self.state.lock().unwrap().scores.clone()
    }

    pub(super) fn fail(&self, statuses: &[u16]) {
        self.state.lock().unwrap().failures.extend(statuses);
    }
}

fn hex(value: &Value, digits: usize) -> Option<&str> {
    let lower = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    value.as_str().filter(|text| text.len() == digits && text.chars().all(lower))
}

fn only(value: &Value, keys: &[&str]) -> bool {
    value.as_object().is_some_and(|all| all.keys().all(|key| keys.contains(&key.as_str())))
}

fn is_unit(value: &Value) -> bool {
    value.as_f64().is_some_and(|number| (0.0..=1.0).contains(&number))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn phoenix(state: &mut BackEndState, method: &Method, path: &str, body: &Value) -> (u16, Value) {
    let (key, digits) = match path {
        "/v1/span_annotations?sync=false" => ("span_id", 16),
        "/v1/trace_annotations?sync=false" => ("trace_id", 32),
        "/v1/session_annotations?sync=false" => ("session_id", 0),
        _ => return (404, json!("no such path")),
    };
    let Some(all) = body["data"].as_array().filter(|_| method == Method::POST && only(body, &["data"]))
    else {
        return (422, json!("data: expected a list"));
    };
    for one in all {
        let valid = only(one, &[key, "name", "annotator_kind", "result", "metadata", "identifier"])
            && (digits == 0 && one[key].is_string() || hex(&one[key], digits).is_some())
            && one["name"].is_string()
            && ["LLM", "CODE", "HUMAN"].contains(&text(&one["annotator_kind"]).as_str())
            && only(&one["result"], &["label", "score", "explanation"])
            && (one["result"]["score"].is_null() || is_unit(&one["result"]["score"]))
            && one["metadata"].is_object();
        if !valid {
            return (422, json!({ "detail": one }));
        }
        if one["name"] == "note" {
            return (400, json!("The name is reserved"));
        }
    }
    for one in all {
        let id = [&one[key], &one["name"], &one["identifier"]].map(text).join(" ");
        state.scores.insert(format!("{key} {id}"), one.clone());
    }
    (200, json!({ "data": [] }))
}

fn langfuse(state: &mut BackEndState, method: &Method, path: &str, body: &Value) -> (u16, Value) {
    let Some(batch) = body["batch"].as_array().filter(|_| method == Method::POST) else {
        return (400, json!("batch is required"));
    };
    if path != "/api/public/ingestion" || batch.len() > 100 {
        return (404, json!("no such path, or too many events"));
    }
    let (mut successes, mut errors) = (Vec::new(), Vec::new());
    for event in batch {
        let score = &event["body"];
        let uuid = |value: &Value| Uuid::parse_str(&text(value)).is_ok_and(|id| id.get_version_num() == 5);
        let valid = only(event, &["id", "type", "timestamp", "body"])
            && event["type"] == "score-create"
            && humantime::parse_rfc3339(&text(&event["timestamp"])).is_ok()
            && uuid(&event["id"])
            && uuid(&score["id"])
            && hex(&score["traceId"], 32).is_some()
            && (score["observationId"].is_null() || hex(&score["observationId"], 16).is_some())
            && score["dataType"] == "NUMERIC"
            && is_unit(&score["value"])
            && score["name"] != "refused";
        if !valid {
            errors.push(json!({ "id": event["id"], "status": 400, "message": "invalid", "error": "x" }));
            continue;
        }
        if state.events.insert(text(&event["id"])) {
            state.scores.insert(text(&score["id"]), score.clone());
        }
        successes.push(json!({ "id": event["id"], "status": 201 }));
    }
    (207, json!({ "successes": successes, "errors": errors }))
}

fn mlflow(state: &mut BackEndState, method: &Method, path: &str, body: &Value) -> (u16, Value) {
    let Some(rest) = path.strip_prefix("/api/3.0/mlflow/traces/tr-") else { return (404, json!("path")) };
    let (trace, rest) = rest.split_at(32);
    assert!(hex(&trace.into(), 32).is_some(), "{path}");
    let one = &body["assessment"];
    let valid = || {
        let keys = [
            "assessment_name",
            "trace_id",
            "span_id",
            "source",
            "create_time",
            "feedback",
            "rationale",
            "metadata",
        ];
        only(one, &keys)
            && one["trace_id"] == format!("tr-{trace}")
            && (one["span_id"].is_null() || hex(&one["span_id"], 16).is_some())
            && !text(&one["assessment_name"]).contains('.')
            && ["CODE", "LLM_JUDGE"].contains(&text(&one["source"]["source_type"]).as_str())
            && one["source"]["source_id"].is_string()
            && (is_unit(&one["feedback"]["value"]) || one["feedback"]["error"]["error_code"].is_string())
            && one["metadata"].as_object().is_some_and(|all| all.values().all(Value::is_string))
    };
    match (method.as_str(), rest) {
        ("GET", "") if state.missing.contains(trace) => (404, json!({ "error_code": "NOT_FOUND" })),
        ("GET", "") => {
            let trace_scores = state.scores.values().filter(|one| one["trace_id"] == format!("tr-{trace}"));
            let info = json!({ "assessments": trace_scores.collect::<Vec<_>>() });
            (200, json!({ "trace": { "trace_info": info } }))
        }
        ("POST", "/assessments") if valid() => {
            state.created += 1;
            let id = format!("a-{}", state.created);
            let mut created = one.clone();
            created["assessment_id"] = id.as_str().into();
            state.scores.insert(id, created.clone());
            (200, json!({ "assessment": created }))
        }
        ("PATCH", _) if valid() => {
            let id = rest.strip_prefix("/assessments/").unwrap_or_default().to_owned();
            let Some(score) = state.scores.get_mut(&id) else { return (404, json!("no such assessment")) };
            for part in text(&body["update_mask"]).split(',') {
                score[part] = one[part].clone();
            }
            (200, json!({ "assessment": score }))
        }
        _ => (400, json!({ "error_code": "INVALID_PARAMETER_VALUE" })),
    }
}

fn datadog(state: &mut BackEndState, method: &Method, path: &str, body: &Value) -> (u16, Value) {
    let data = &body["data"];
    let metrics = data["attributes"]["metrics"].as_array().filter(|_| method == Method::POST);
    let Some(metrics) = metrics.filter(|_| data["type"] == "evaluation_metric") else {
        return (400, json!("data"));
    };
    if path != "/api/intake/llm-obs/v2/eval-metric" {
        return (404, json!("path"));
    }
    for one in metrics {
        let span = &one["join_on"]["span"];
        let label = text(&one["label"]);
        let valid = text(&span["span_id"]).parse::<u64>().is_ok()
            && text(&span["trace_id"]).parse::<u128>().is_ok()
            && one["ml_app"].is_string()
            && one["timestamp_ms"].is_u64()
            && one["metric_type"] == "score"
            && label.starts_with(|c: char| c.is_ascii_alphabetic())
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && is_unit(&one["score_value"])
            && ["pass", "fail"].contains(&text(&one["assessment"]).as_str())
            && ["span", "trace"].contains(&text(&one["eval_scope"]).as_str())
            && one["tags"].as_array().is_some_and(|tags| tags.contains(&"source:otel".into()));
        if !valid {
            return (400, json!({ "detail": one }));
        }
    }
    for one in metrics {
        // Two evaluations with these values are equal: the definition has no id.
        let id = [&one["join_on"], &one["label"], &one["timestamp_ms"], &one["eval_scope"]];
        state.scores.insert(id.map(Value::to_string).join(" "), one.clone());
    }
    (202, json!({ "data": { "attributes": { "metrics": metrics } } }))
}

fn langsmith(state: &mut BackEndState, method: &Method, path: &str, body: &Value) -> (u16, Value) {
    let feedback_path = path.strip_prefix("/api/v1/feedback");
    let session = state.project.as_ref().map(|(_, id)| id.to_string());
    match (method.as_str(), feedback_path) {
        ("GET", None) if path.starts_with("/api/v1/sessions?") => {
            let url = reqwest::Url::parse(&format!("http://h{path}")).unwrap();
            let asked: BTreeMap<_, _> = url.query_pairs().into_owned().collect();
            assert_eq!((&*asked["limit"], &*asked["include_stats"]), ("1", "false"));
            let found = state.project.iter().filter(|(name, _)| *name == asked["name"]);
            (200, found.map(|(name, id)| json!({ "id": id.to_string(), "name": name })).collect())
        }
        ("POST", Some("")) if session.is_some() && body["session_id"].is_null() => {
            (501, json!({ "detail": "session_id is required" }))
        }
        ("POST", Some("")) if session.is_some_and(|id| body["session_id"] != id) => {
            (404, json!({ "detail": "Run not found" }))
        }
        ("POST", Some("")) => {
            let run = Uuid::parse_str(&text(&body["run_id"])).map(Uuid::into_bytes).unwrap_or([1; 16]);
            let id = Uuid::parse_str(&text(&body["id"]));
            let keys = [
                "id",
                "run_id",
                "trace_id",
                "session_id",
                "key",
                "score",
                "value",
                "comment",
                "feedback_source",
            ];
            let places = |score: f64| (score * 1e4 - (score * 1e4).round()).abs() < 1e-9;
            let valid = only(body, &keys)
                && run[..8] == [0; 8]
                && id.is_ok()
                && body["key"].is_string()
                && body["score"].as_f64().is_none_or(places);
            if !valid {
                return (422, json!({ "detail": body }));
            }
            let id = text(&body["id"]);
            if state.scores.contains_key(&id) {
                return (409, json!({ "detail": "Feedback already exists" }));
            }
            state.scores.insert(id, body.clone());
            (200, body.clone())
        }
        ("DELETE", Some(id)) => match state.scores.remove(id.trim_start_matches('/')) {
            Some(_) => (204, Value::Null),
            None => (404, json!("no such feedback")),
        },
        ("PATCH", Some(id)) if only(body, &["score", "value", "comment"]) => {
            let Some(score) = state.scores.get_mut(id.trim_start_matches('/')) else {
                return (404, json!("no such feedback"));
            };
            for (key, value) in body.as_object().unwrap() {
                score[key] = value.clone();
            }
            (200, score.clone())
        }
        _ => (404, json!("path")),
    }
}
