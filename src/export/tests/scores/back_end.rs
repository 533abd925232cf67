//! Fakes of back ends over HTTP, written from the definitions of their APIs: they refuse the requests and ids that the
//! real back ends refuse, and store the scores that those would show.

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
    /// Method and path, body, and the header with credentials of each request.
    pub requests: Vec<(String, Value, String)>,
    /// The stored scores, by the values that identify a score in this back end.
    pub scores: BTreeMap<String, Value>,
    /// Statuses of the responses to the next requests, which are not processed.
    pub failures: VecDeque<u16>,
    /// The number of requests that are accepted between two that are refused with 429.
    pub rate_limit: Option<usize>,
    /// The number of requests since the last 429.
    requests_since_429: usize,
    /// Traces that MLflow has not stored, as 32 hexadecimal characters.
    pub missing_traces: BTreeSet<String>,
    /// The project that LangSmith has, by name and id: feedback without its id is refused.
    pub project: Option<(String, Uuid)>,
    /// The ids of received events: Langfuse ignores repeated ones.
    event_ids: BTreeSet<String>,
    /// The number of assessments that MLflow has created, for their ids.
    created: usize,
}

/// Processes a request, and returns the status and the body of the response.
type Handler = fn(&mut BackEndState, &Method, &str, &Value) -> (u16, Value);

pub(super) struct BackEnd {
    pub addr: SocketAddr,
    pub state: Arc<Mutex<BackEndState>>,
}

impl BackEnd {
    pub(super) async fn start(flavor: &str) -> BackEnd {
        let handler: Handler = match flavor {
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
                let credential_headers = ["authorization", "dd-api-key", "x-api-key"];
                let key = credential_headers.iter().find_map(|name| Some((name, head.headers.get(*name)?)));
                let key = key.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
                let mut state = state.lock().unwrap();
                let request = format!("{} {path}", head.method);
                state.requests.push((request, body.clone(), key.unwrap_or_default()));
                let is_limited = state.rate_limit.is_some_and(|limit| state.requests_since_429 >= limit);
                state.requests_since_429 = if is_limited { 0 } else { state.requests_since_429 + 1 };
                let failure = if is_limited { Some(429) } else { state.failures.pop_front() };
                let (status, body) = match failure {
                    Some(status) => (status, json!({ "detail": "configured failure" })),
                    None => handler(&mut state, &head.method, &path, &body),
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

    /// Responds to the next requests with these statuses.
    pub(super) fn fail(&self, statuses: &[u16]) {
        self.state.lock().unwrap().failures.extend(statuses);
    }
}

/// The text of `value` if it consists of `digits` lower-case hexadecimal digits.
fn hex(value: &Value, digits: usize) -> Option<&str> {
    let is_digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    value.as_str().filter(|text| text.len() == digits && text.chars().all(is_digit))
}

/// Whether `value` is an object without other keys than these.
fn has_only_keys(value: &Value, keys: &[&str]) -> bool {
    value.as_object().is_some_and(|all| all.keys().all(|key| keys.contains(&key.as_str())))
}

fn is_from_0_to_1(value: &Value) -> bool {
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
    let Some(all) =
        body["data"].as_array().filter(|_| method == Method::POST && has_only_keys(body, &["data"]))
    else {
        return (422, json!("data: expected a list"));
    };
    for annotation in all {
        let valid =
            has_only_keys(annotation, &[key, "name", "annotator_kind", "result", "metadata", "identifier"])
                && (digits == 0 && annotation[key].is_string() || hex(&annotation[key], digits).is_some())
                && annotation["name"].is_string()
                && ["LLM", "CODE", "HUMAN"].contains(&text(&annotation["annotator_kind"]).as_str())
                && has_only_keys(&annotation["result"], &["label", "score", "explanation"])
                && (annotation["result"]["score"].is_null()
                    || is_from_0_to_1(&annotation["result"]["score"]))
                && annotation["metadata"].is_object();
        if !valid {
            return (422, json!({ "detail": annotation }));
        }
        if annotation["name"] == "note" {
            return (400, json!("The name is reserved"));
        }
    }
    for annotation in all {
        let id = [&annotation[key], &annotation["name"], &annotation["identifier"]].map(text).join(" ");
        state.scores.insert(format!("{key} {id}"), annotation.clone());
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
        let valid = has_only_keys(event, &["id", "type", "timestamp", "body"])
            && event["type"] == "score-create"
            && humantime::parse_rfc3339(&text(&event["timestamp"])).is_ok()
            && uuid(&event["id"])
            && uuid(&score["id"])
            && hex(&score["traceId"], 32).is_some()
            && (score["observationId"].is_null() || hex(&score["observationId"], 16).is_some())
            && score["dataType"] == "NUMERIC"
            && is_from_0_to_1(&score["value"])
            && score["name"] != "refused";
        if !valid {
            errors.push(json!({ "id": event["id"], "status": 400, "message": "invalid", "error": "x" }));
            continue;
        }
        if state.event_ids.insert(text(&event["id"])) {
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
    let assessment = &body["assessment"];
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
        has_only_keys(assessment, &keys)
            && assessment["trace_id"] == format!("tr-{trace}")
            && (assessment["span_id"].is_null() || hex(&assessment["span_id"], 16).is_some())
            && !text(&assessment["assessment_name"]).contains('.')
            && ["CODE", "LLM_JUDGE"].contains(&text(&assessment["source"]["source_type"]).as_str())
            && assessment["source"]["source_id"].is_string()
            && (is_from_0_to_1(&assessment["feedback"]["value"])
                || assessment["feedback"]["error"]["error_code"].is_string())
            && assessment["metadata"].as_object().is_some_and(|all| all.values().all(Value::is_string))
    };
    match (method.as_str(), rest) {
        ("GET", "") if state.missing_traces.contains(trace) => (404, json!({ "error_code": "NOT_FOUND" })),
        ("GET", "") => {
            let trace_scores =
                state.scores.values().filter(|score| score["trace_id"] == format!("tr-{trace}"));
            let info = json!({ "assessments": trace_scores.collect::<Vec<_>>() });
            (200, json!({ "trace": { "trace_info": info } }))
        }
        ("POST", "/assessments") if valid() => {
            state.created += 1;
            let id = format!("a-{}", state.created);
            let mut created = assessment.clone();
            created["assessment_id"] = id.as_str().into();
            state.scores.insert(id, created.clone());
            (200, json!({ "assessment": created }))
        }
        ("PATCH", _) if valid() => {
            let id = rest.strip_prefix("/assessments/").unwrap_or_default().to_owned();
            let Some(score) = state.scores.get_mut(&id) else { return (404, json!("no such assessment")) };
            for part in text(&body["update_mask"]).split(',') {
                score[part] = assessment[part].clone();
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
    for metric in metrics {
        let span = &metric["join_on"]["span"];
        let label = text(&metric["label"]);
        let valid = text(&span["span_id"]).parse::<u64>().is_ok()
            && text(&span["trace_id"]).parse::<u128>().is_ok()
            && metric["ml_app"].is_string()
            && metric["timestamp_ms"].is_u64()
            && metric["metric_type"] == "score"
            && label.starts_with(|c: char| c.is_ascii_alphabetic())
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && is_from_0_to_1(&metric["score_value"])
            && ["pass", "fail"].contains(&text(&metric["assessment"]).as_str())
            && ["span", "trace"].contains(&text(&metric["eval_scope"]).as_str())
            && metric["tags"].as_array().is_some_and(|tags| tags.contains(&"source:otel".into()));
        if !valid {
            return (400, json!({ "detail": metric }));
        }
    }
    for metric in metrics {
        // The API has no ids: evaluations with the same values of these fields are the same.
        let id = [&metric["join_on"], &metric["label"], &metric["timestamp_ms"], &metric["eval_scope"]];
        state.scores.insert(id.map(Value::to_string).join(" "), metric.clone());
    }
    (202, json!({ "data": { "attributes": { "metrics": metrics } } }))
}

fn langsmith(state: &mut BackEndState, method: &Method, path: &str, body: &Value) -> (u16, Value) {
    let feedback_path = path.strip_prefix("/api/v1/feedback");
    let session = state.project.as_ref().map(|(_, id)| id.to_string());
    match (method.as_str(), feedback_path) {
        ("GET", None) if path.starts_with("/api/v1/sessions?") => {
            let url = reqwest::Url::parse(&format!("http://h{path}")).unwrap();
            let query: BTreeMap<_, _> = url.query_pairs().into_owned().collect();
            assert_eq!((&*query["limit"], &*query["include_stats"]), ("1", "false"));
            let projects = state.project.iter().filter(|(name, _)| *name == query["name"]);
            (200, projects.map(|(name, id)| json!({ "id": id.to_string(), "name": name })).collect())
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
            let has_four_decimal_places = |score: f64| (score * 1e4 - (score * 1e4).round()).abs() < 1e-9;
            let valid = has_only_keys(body, &keys)
                && run[..8] == [0; 8]
                && id.is_ok()
                && body["key"].is_string()
                && body["score"].as_f64().is_none_or(has_four_decimal_places);
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
        ("PATCH", Some(id)) if has_only_keys(body, &["score", "value", "comment"]) => {
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
