//! `POST /v1/paths/next`: whether a call that an agent is about to make is allowed, for gateways that ask
//! before a tool runs.
//!
//! In: HTTP requests with a [`PathQuestion`] as JSON. Out: a [`PathReply`] as JSON, or an error. The listener has its
//! own port, and the accept loop, TLS, authentication and limits of the receivers. It answers only authenticated
//! callers, except on loopback, since the answers describe the calls of a run.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use http::request::Parts;
use http::{Method, StatusCode, header};
use http_body::Body as _;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use verdict_config::{Problem, settings};
use verdict_eval::path::{PathAnswer, PathDecision, ProposedCall, RunHints, TaskDecision, json_values};
use verdict_otlp::trace::TraceId;

use super::auth::{Auth, Authenticator};
use super::body::{BodyDecoder, BodyError, malformed};
use super::config::{Endpoint, non_null};
use super::connections::OpenConnection;
use super::http::coding;
use super::intake::Refused;
use super::listen::BindError;
use super::rejection::RequestRejection;
use super::request_handler::{body_deadline, next_chunk};
use super::restricted_listener::{self, RestrictedListener};
use super::tls::ServerTls;
use crate::clock::unix_nanos;
use crate::reservation::ByteLimit;

const PATH: &str = "/v1/paths/next";
/// Maximum bytes of a question: a call with its arguments.
const MAX_BODY_BYTES: usize = 256 << 10;
/// Largest ratio of decompressed to received bytes.
const MAX_RATIO: u32 = 100;
/// Maximum bytes of all questions that are being read or answered.
const MAX_IN_FLIGHT_BYTES: u64 = 32 << 20;
/// Limit on connections: few gateways send questions.
const MAX_CONNECTIONS: u32 = 256;
/// Maximum bytes of a name or id.
pub(crate) const MAX_NAME_BYTES: usize = 1024;
/// Maximum number of JSON values in a question: parsed, they take more memory than their text.
const MAX_VALUES: usize = 4096;
/// Maximum memory of one value in addition to its text: with its key and hash in an object.
const VALUE_OVERHEAD_BYTES: usize = 150;

settings! {
    /// The listener of questions before a call.
    pub struct PathsApi {
        /// Default 127.0.0.1:4320, which only this machine can reach. Any other address needs `auth`, or `tls`
        /// with `client_ca_file`.
        endpoint: Endpoint = Endpoint::loopback(4320),
        /// Default none: connections are not encrypted.
        #[serde(default, deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
        tls: Option<ServerTls>,
        /// Default none: on loopback callers are not authenticated.
        #[serde(default, deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
        auth: Option<Auth>,
    }
}

impl PathsApi {
    /// The problems of invalid values.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        restricted_listener::problems(&self.endpoint, self.tls.as_ref(), self.auth.as_ref())
    }
}

/// A call that an agent is about to make.
#[derive(Clone, Debug)]
pub(crate) struct PathQuestion {
    pub run: RunId,
    /// The caller's statements about the run.
    pub hints: RunHints,
    pub call: ProposedCall,
}

/// The identification of a run.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum RunId {
    Trace(TraceId),
    /// The open trace of this session that received spans last.
    Session(String),
}

/// The response to a question.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PathReply {
    pub decision: PathDecision,
    /// The reason why there is no decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// The trace that the run is in, if any of its spans has arrived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// Calls that were allowed and whose spans have not arrived, this one included.
    pub pending: usize,
    pub tasks: Vec<TaskDecision>,
}

impl PathReply {
    /// The answer of the tasks that apply to the run; `reason` is `no_task` if there are none.
    pub(crate) fn new(answer: PathAnswer, trace: Option<TraceId>, pending: usize) -> PathReply {
        let reason = answer.tasks.is_empty().then_some("no_task");
        let PathAnswer { decision, tasks } = answer;
        PathReply { decision, reason, trace_id: trace.map(|id| id.to_string()), pending, tasks }
    }

    /// No decision, for this reason.
    pub(crate) fn unknown(reason: &'static str, trace: Option<TraceId>) -> PathReply {
        let answer = PathAnswer { decision: PathDecision::Unknown, tasks: Vec::new() };
        PathReply { reason: Some(reason), ..PathReply::new(answer, trace, 0) }
    }
}

/// Boxed, so that the listener is not generic over the pipeline.
pub(crate) type PathReplyFuture<'a> = Pin<Box<dyn Future<Output = Result<PathReply, Refused>> + Send + 'a>>;

/// Answers questions. Implemented by `pipeline`.
pub(crate) trait PathDecider: Send + Sync + 'static {
    /// The decision about a call. An allowed call counts as made until its span arrives.
    fn decide(&self, question: PathQuestion) -> PathReplyFuture<'_>;
}

/// A question in its JSON form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuestionJson {
    trace_id: Option<String>,
    session_id: Option<String>,
    agent: Option<String>,
    service: Option<String>,
    prompt: Option<String>,
    task: Option<String>,
    call: CallJson,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallJson {
    name: String,
    #[serde(default)]
    arguments: Value,
    id: Option<String>,
}

/// A bound socket that does not answer yet.
#[derive(Debug)]
pub(crate) struct BoundPaths(RestrictedListener);

impl BoundPaths {
    /// Opens the socket, and reads certificates and tokens.
    pub(crate) async fn bind(config: &PathsApi) -> Result<BoundPaths, BindError> {
        let PathsApi { endpoint, tls, auth } = config;
        let key = "verdict.paths_api";
        Ok(BoundPaths(RestrictedListener::bind(key, endpoint, tls.as_ref(), auth.as_ref()).await?))
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.0.addr()
    }

    /// Answers until `stop` is cancelled, then lets requests in flight finish for at most `grace`.
    pub(crate) async fn serve(self, decider: Arc<dyn PathDecider>, stop: CancellationToken, grace: Duration) {
        let in_flight = ByteLimit::new(MAX_IN_FLIGHT_BYTES);
        let state = Arc::new(PathsState { decider, authenticator: self.0.authenticator(), in_flight });
        let router = Router::new().fallback(move |request: Request| {
            let state = Arc::clone(&state);
            async move { state.respond(request).await }
        });
        self.0.serve(router, MAX_CONNECTIONS, PATH, stop, grace).await;
    }
}

struct PathsState {
    decider: Arc<dyn PathDecider>,
    authenticator: Option<Arc<Authenticator>>,
    in_flight: ByteLimit,
}

impl PathsState {
    async fn respond(&self, request: Request) -> Response {
        let (parts, mut body) = request.into_parts();
        if parts.uri.path() != PATH {
            return error_response(StatusCode::NOT_FOUND, "no such path");
        }
        if let Some(challenges) = restricted_listener::refusal(self.authenticator.as_deref(), &parts.headers)
        {
            let mut response = rejection_response(&RequestRejection::Unauthenticated);
            response.headers_mut().extend(challenges);
            return response;
        }
        if parts.method != Method::POST {
            let allow = [(header::ALLOW, "POST")];
            return (allow, error_response(StatusCode::METHOD_NOT_ALLOWED, "send questions with POST"))
                .into_response();
        }
        match self.answer(&parts, &mut body).await {
            Ok(reply) => json_response(StatusCode::OK, &json!(reply)),
            Err(rejection) => rejection_response(&rejection),
        }
    }

    async fn answer(&self, parts: &Parts, body: &mut Body) -> Result<PathReply, RequestRejection> {
        let content_type = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let media_type = content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
        if !media_type.eq_ignore_ascii_case("application/json") {
            return Err(RequestRejection::ContentType);
        }
        let coding = coding(&parts.headers)?;
        let length = body.size_hint().exact().map(|length| usize::try_from(length).unwrap_or(usize::MAX));
        let reservation = self.in_flight.reserve_for(&OpenConnection::limit_of(&parts.extensions));
        let mut decoder = BodyDecoder::new(coding, length, MAX_BODY_BYTES, MAX_RATIO, (0, reservation))?;
        let mut deadline = body_deadline();
        while let Some(chunk) = next_chunk(body, &mut deadline).await? {
            decoder.push(&chunk)?;
        }
        let (text, mut reservation) = decoder.finish()?;
        let text = std::str::from_utf8(&text).map_err(|error| malformed(error.to_string()))?;
        // The values are counted and charged before the text is parsed.
        let values = json_values(text);
        if values > MAX_VALUES {
            return Err(malformed(format!("more than {MAX_VALUES} JSON values")).into());
        }
        if !reservation.resize(2 * text.len() + values * VALUE_OVERHEAD_BYTES) {
            return Err(BodyError::InFlightLimit.into());
        }
        let question: QuestionJson =
            serde_json::from_str(text).map_err(|error| malformed(error.to_string()))?;
        let question = question.into_question().map_err(malformed)?;
        self.decider.decide(question).await.map_err(RequestRejection::Refused)
    }
}

impl QuestionJson {
    fn into_question(self) -> Result<PathQuestion, String> {
        let QuestionJson { trace_id, session_id, agent, service, prompt, task, call } = self;
        let run = match (trace_id, session_id) {
            (Some(id), None) => {
                let id =
                    id.parse().map_err(|_| "trace_id: give 32 hexadecimal digits that are not all zero")?;
                RunId::Trace(id)
            }
            (None, Some(id)) if id.is_empty() || id.len() > MAX_NAME_BYTES => {
                return Err(format!("session_id: give 1 to {MAX_NAME_BYTES} bytes"));
            }
            (None, Some(id)) => RunId::Session(id),
            _ => return Err("give either trace_id or session_id".to_owned()),
        };
        if call.name.is_empty() || call.name.len() > MAX_NAME_BYTES {
            return Err(format!("call.name: give 1 to {MAX_NAME_BYTES} bytes"));
        }
        let hints = [&agent, &service, &task, &call.id];
        if hints.into_iter().flatten().any(|hint| hint.len() > MAX_NAME_BYTES) {
            return Err(format!("agent, service, task and call.id have at most {MAX_NAME_BYTES} bytes"));
        }
        let call = ProposedCall::new(call.name, call.arguments, call.id, unix_nanos());
        Ok(PathQuestion { run, hints: RunHints { agent, service, prompt, task }, call })
    }
}

fn json_response(status: StatusCode, body: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

fn error_response(status: StatusCode, message: &str) -> Response {
    json_response(status, &json!({ "error": message }))
}

fn rejection_response(rejection: &RequestRejection) -> Response {
    let (_, status, _) = rejection.codes();
    let message = match rejection {
        RequestRejection::ContentType => "send application/json".to_owned(),
        other => other.message(),
    };
    let mut response = error_response(status, &message);
    if let Some(seconds) = rejection.retry_after() {
        response.headers_mut().insert(header::RETRY_AFTER, seconds);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(yaml: &str) -> Vec<String> {
        let config: PathsApi = serde_saphyr::from_str(yaml).unwrap();
        config.problems().into_iter().map(|problem| problem.key).collect()
    }

    #[test]
    fn address_on_the_network_needs_authentication() {
        for valid in
            ["{}", "{ endpoint: '[::1]:1' }", "{ endpoint: 'localhost:1' }", "{ endpoint: '127.9.9.9:1' }"]
        {
            assert!(problems(valid).is_empty(), "{valid}");
        }
        for public in ["0.0.0.0:1", ":1", "[::]:1", "gateway.local:1"] {
            assert_eq!(problems(&format!("{{ endpoint: '{public}' }}")), ["endpoint"], "{public}");
            let yaml = format!("{{ endpoint: '{public}', auth: {{ bearer_token_file: /tokens }} }}");
            assert!(problems(&yaml).is_empty(), "{public}");
        }
        let mutual = "{ endpoint: '0.0.0.0:1', tls: { cert_file: c, key_file: k, client_ca_file: a } }";
        assert!(problems(mutual).is_empty());
        assert_eq!(problems("{ auth: {} }"), ["auth"]);
    }

    #[test]
    fn question_names_one_run_and_one_call() {
        let read = |text: &str| {
            let question: QuestionJson = serde_json::from_str(text).map_err(|error| error.to_string())?;
            question.into_question()
        };
        let trace = "0af7651916cd43dd8448eb211c80319c";
        let question =
            read(&format!(r#"{{"trace_id": "{trace}", "task": "t", "call": {{"name": "f"}}}}"#)).unwrap();
        assert_eq!(question.run, RunId::Trace(trace.parse().unwrap()));
        assert_eq!(question.hints.task.as_deref(), Some("t"));
        for (invalid, expected) in [
            (r#"{"call": {"name": "f"}}"#.to_owned(), "either trace_id or session_id"),
            (format!(r#"{{"trace_id": "{trace}", "session_id": "s", "call": {{"name": "f"}}}}"#), "either"),
            (r#"{"trace_id": "xyz", "call": {"name": "f"}}"#.to_owned(), "32 hexadecimal digits"),
            (r#"{"session_id": "", "call": {"name": "f"}}"#.to_owned(), "session_id"),
            (r#"{"session_id": "s", "call": {"name": ""}}"#.to_owned(), "call.name"),
            (r#"{"session_id": "s", "call": {}}"#.to_owned(), "missing field `name`"),
            (r#"{"session_id": "s", "cal": {}}"#.to_owned(), "unknown field `cal`"),
        ] {
            let error = read(&invalid).unwrap_err();
            assert!(error.contains(expected), "{invalid}: {error}");
        }
    }

    /// Allows every call.
    struct Allow;

    impl PathDecider for Allow {
        fn decide(&self, _: PathQuestion) -> PathReplyFuture<'_> {
            let answer = PathAnswer { decision: PathDecision::Allowed, tasks: Vec::new() };
            Box::pin(async { Ok(PathReply::new(answer, None, 0)) })
        }
    }

    #[tokio::test]
    async fn values_are_counted_and_charged_before_they_are_parsed() {
        let in_flight = ByteLimit::new(300_000);
        let state =
            PathsState { decider: Arc::new(Allow), authenticator: None, in_flight: in_flight.clone() };
        let ask = async |arguments: String| {
            let text = format!(r#"{{"session_id": "s", "call": {{"name": "f", "arguments": {arguments}}}}}"#);
            let request = http::Request::post(PATH).header(header::CONTENT_TYPE, "application/json");
            state.respond(request.body(Body::from(text)).unwrap()).await.status()
        };
        let list = |values: usize| format!("[1{}]", ",1".repeat(values - 1));
        // Another question reserves a byte, since a single reservation may have any size.
        let other = in_flight.reserve(1);
        assert_eq!(ask(list(1000)).await, StatusCode::OK);
        assert_eq!(ask(list(3000)).await, StatusCode::SERVICE_UNAVAILABLE, "450,000 bytes");
        drop(other);
        assert_eq!(ask(list(3000)).await, StatusCode::OK);
        assert_eq!(ask(list(MAX_VALUES)).await, StatusCode::BAD_REQUEST);
        assert_eq!(ask(format!("\"{}\"", "[,".repeat(50_000))).await, StatusCode::OK, "no values");
        assert_eq!(in_flight.reserved(), 0);
    }
}
