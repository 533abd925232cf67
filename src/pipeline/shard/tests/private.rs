//! Traces of several services, some of whose content no external judge may receive: the requests to judges over HTTP,
//! for several orders of arrival, and with spans that repeat content of another service.

use std::sync::Mutex;

use serde_json::{Value, json};
use verdict_judge::{JudgeExtensions, Judges};
use verdict_otlp::value::{RESOURCE_ATTRIBUTES, SPAN_ATTRIBUTES};
use verdict_otlp::write::Scalar;
use wiremock::matchers::method;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use super::judges::{fill, send, with_answerer};
use super::*;
use crate::pipeline::ask_judges::QuestionAnswerer;

/// Part of every text of the service `payroll`, including names.
const SECRET: &str = "PAYROLL";
/// Part of every text of the service `shop`.
const SHOP: &str = "Shop";
/// Part of every text of spans without a service.
const NAMELESS: &str = "Nameless";

/// A judge that answers every question with the first value of each field, and every rerank request.
/// Its texts quote content of `payroll`.
#[derive(Clone, Default)]
struct JudgeServer(Arc<Mutex<Vec<String>>>);

impl JudgeServer {
    async fn start(&self) -> MockServer {
        let server = MockServer::start().await;
        Mock::given(method("POST")).respond_with(self.clone()).mount(&server).await;
        server
    }

    fn count_containing(&self, text: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|body| body.contains(text)).count()
    }
}

impl Respond for JudgeServer {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        self.0.lock().unwrap().push(body.to_string());
        let response = match body["documents"].as_array() {
            Some(texts) => {
                let rerank_result = |(i, _)| json!({ "index": i, "relevance_score": 1.0 });
                json!({ "results": texts.iter().enumerate().map(rerank_result).collect::<Vec<Value>>() })
            }
            None => {
                let answer = fill(&body["response_format"]["json_schema"]["schema"], "PAYROLL pays 9000");
                let message = json!({ "role": "assistant", "content": answer.to_string() });
                json!({ "choices": [{ "index": 0, "finish_reason": "stop", "message": message }] })
            }
        };
        ResponseTemplate::new(200).set_body_json(response)
    }
}

/// A span of a trace.
struct TestSpan {
    service: Option<&'static str>,
    id: u8,
    parent: u8,
    attributes: Vec<(&'static str, String)>,
}

impl TestSpan {
    fn new(service: Option<&'static str>, id: u8, parent: u8, operation: &str) -> TestSpan {
        let attributes = vec![("gen_ai.operation.name", operation.to_owned())];
        TestSpan { service, id, parent, attributes }
    }

    fn with_attribute(mut self, key: &'static str, value: &str) -> TestSpan {
        self.attributes.push((key, value.to_owned()));
        self
    }

    /// Adds input and output messages.
    fn messages(self, input: &str, output: &str) -> TestSpan {
        let message = |role: &str, text: &str| {
            json!([{ "role": role, "parts": [{ "type": "text", "content": text }] }]).to_string()
        };
        self.with_attribute("gen_ai.input.messages", &message("user", input))
            .with_attribute("gen_ai.output.messages", &message("assistant", output))
    }

    fn tool(self, name: &str, result: &str) -> TestSpan {
        self.with_attribute("gen_ai.tool.name", name)
            .with_attribute("gen_ai.tool.call.arguments", &format!(r#"{{"of":"{name}"}}"#))
            .with_attribute("gen_ai.tool.call.result", result)
    }

    fn request(&self, trace: u8) -> Bytes {
        let mut span = Vec::new();
        write::bytes(&mut span, 1, &[trace; 16]);
        write::bytes(&mut span, 2, &[self.id; 8]);
        if self.parent > 0 {
            write::bytes(&mut span, 4, &[self.parent; 8]);
        }
        // Each span begins after the previous one has ended, but within its parent.
        write::fixed64(&mut span, 7, u64::from(self.id) * 10);
        write::fixed64(&mut span, 8, u64::from(self.id) * 10 + 5);
        for (key, value) in &self.attributes {
            write::attribute(&mut span, SPAN_ATTRIBUTES, key, Scalar::Str(value));
        }
        let (mut spans, mut resource) = (Vec::new(), Vec::new());
        write::bytes(&mut spans, 2, &span);
        if let Some(service) = self.service {
            write::attribute(&mut resource, RESOURCE_ATTRIBUTES, "service.name", Scalar::Str(service));
        }
        encode_request_with(&resource, &spans)
    }
}

/// An agent of `shop` that calls one of `payroll`.
fn trace() -> Vec<TestSpan> {
    let (shop, payroll) = (Some("shop"), Some("payroll"));
    vec![
        TestSpan::new(shop, 1, 0, "invoke_agent")
            .with_attribute("gen_ai.agent.name", "Shop clerk")
            .messages("Shop: what does Ann earn?", "Shop: enough."),
        TestSpan::new(shop, 2, 1, "chat").messages("Shop: what does Ann earn?", "Shop: I ask."),
        TestSpan::new(shop, 3, 1, "execute_tool").tool("Shop_lookup", "Shop: employee 7"),
        TestSpan::new(payroll, 4, 1, "invoke_agent")
            .with_attribute("gen_ai.agent.name", "PAYROLL officer")
            .messages("PAYROLL: employee 7?", "PAYROLL pays 9000."),
        TestSpan::new(payroll, 5, 4, "chat")
            .with_attribute("plan", "1. Read the PAYROLL ledger\n2. Name the PAYROLL sum")
            .messages("PAYROLL: employee 7?", "PAYROLL: I look it up."),
        TestSpan::new(payroll, 6, 4, "execute_tool").tool("PAYROLL_ledger", "PAYROLL pays 9000"),
        TestSpan::new(shop, 7, 1, "chat").messages("Shop: what does Ann earn?", "Shop: enough."),
    ]
}

/// [`trace`], with further spans of `shop` that repeat content of `payroll`: a tool that returns its answer, and, after
/// nine further steps, a model call. Its prompt contains the result of the tool in another form than the span of the
/// tool, and the result of a failed call without a span.
fn repeating_trace() -> Vec<TestSpan> {
    let shop = Some("shop");
    let part = |role: &str, part: Value| json!({ "role": role, "parts": [part] });
    let text = |text: &str| json!({ "type": "text", "content": text });
    let request = |id: &str, name: &str| json!({ "type": "tool_call", "id": id, "name": name, "arguments": { "of": 7 } });
    let result = |id: &str, text: &str| json!({ "type": "tool_call_response", "id": id, "result": text });
    let calling_message = json!([part("assistant", request("c2", "Shop_remote"))]).to_string();
    let prompt = json!([
        part("user", text("Shop: what does Ann earn?")),
        part("assistant", request("c1", "Shop_ask")),
        part("tool", result("c1", "{\"said\": \"PAYROLL pays 9000\"}")),
        part("assistant", request("c2", "Shop_remote")),
        part("tool", result("c2", "Error: PAYROLL pays 9000, says the server")),
        part("user", text("Observation: PAYROLL pays 9000")),
    ]);
    let mut spans = trace();
    spans.push(TestSpan::new(shop, 8, 1, "execute_tool").tool("Shop_ask", "PAYROLL pays 9000."));
    spans.push(
        TestSpan::new(shop, 9, 1, "chat")
            .with_attribute(
                "gen_ai.input.messages",
                &json!([part("user", text("Shop: what does Ann earn?"))]).to_string(),
            )
            .with_attribute("gen_ai.output.messages", &calling_message),
    );
    for id in 10..19 {
        spans
            .push(TestSpan::new(shop, id, 1, "execute_tool").tool("Shop_lookup", &format!("Shop: row {id}")));
    }
    let output = json!([part("assistant", text("Shop: I have it."))]).to_string();
    spans.push(
        TestSpan::new(shop, 19, 1, "chat")
            .with_attribute("gen_ai.input.messages", &prompt.to_string())
            .with_attribute("gen_ai.output.messages", &output),
    );
    spans
}

/// The requests to an internal and an external judge about a trace whose spans arrive in this order.
async fn requests(config: &str, spans: Vec<TestSpan>) -> [JudgeServer; 2] {
    requests_in_two_parts(config, spans, Vec::new()).await
}

/// Like [`requests`]; the trace is still open when the judges are asked about the first spans, and the others follow.
async fn requests_in_two_parts(
    extra_config: &str,
    first: Vec<TestSpan>,
    others: Vec<TestSpan>,
) -> [JudgeServer; 2] {
    let (near, far) = (JudgeServer::default(), JudgeServer::default());
    let (near_server, far_server) = (near.start().await, far.start().await);
    let config = format!(
        "verdict:
  max_wait: 30s
  close: {{ quiet: {quiet} }}
  metrics:
    judges: [rules, near, far]
    plan: {{ enabled: true, judges: [rules, near, far] }}
    checklist:
      judges: [near, far]
      fixed: [{{ match: {{}}, items: [{{ question: Was the PAY looked up? }}] }}]
      assets: [{{ name: note, match: {{}}, text: Known. }}]
      rerank: order
{extra_config}
judges:
  near: {{ endpoint: '{near}/v1', model: near }}
  far: {{ endpoint: '{far}/v1', model: far, external: true{excludes} }}
  order: {{ endpoint: '{far}/v1', model: order, external: true, dialect: rerank{excludes} }}",
        quiet = if others.is_empty() { "0s" } else { "1h" },
        near = near_server.uri(),
        far = far_server.uri(),
        excludes = if extra_config.is_empty() { ", exclude_services: [payroll]" } else { "" },
    );
    let answerer = |config: &crate::config::Config| -> Arc<dyn QuestionAnswerer> {
        Arc::new(
            Judges::new(
                &config.judges,
                &config.judging,
                &Telemetry::new().judge,
                &JudgeExtensions::default(),
            )
            .unwrap(),
        )
    };
    let request = |spans: &[TestSpan]| -> Vec<u8> { spans.iter().flat_map(|span| span.request(1)).collect() };
    with_answerer(&config, answerer, |inbox, shared| {
        let near = near.clone();
        async move {
            send(&inbox, &shared, &request(&first).into()).await;
            while !others.is_empty() && near.count_containing("") == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            send(&inbox, &shared, &request(&others).into()).await;
        }
    })
    .await;
    [near, far]
}

/// The configuration with internal services.
fn internal(services: &str) -> String {
    format!("judging: {{ keep_internal: [{services}] }}")
}

/// The trace in order, with payroll first, and in reverse order.
fn arrivals() -> [Vec<TestSpan>; 3] {
    let mut payroll_first = trace();
    payroll_first.sort_by_key(|span| span.service != Some("payroll"));
    [trace(), payroll_first, trace().into_iter().rev().collect()]
}

#[tokio::test]
async fn content_of_an_internal_service_reaches_no_external_judge_in_any_order_of_arrival() {
    for spans in arrivals() {
        let [near, far] = requests(&internal("payroll"), spans).await;
        assert_eq!(far.count_containing(SECRET), 0, "{:#?}", far.0.lock().unwrap());
        // Only the first of the two model calls has no earlier span of payroll.
        for (form, spans) in [
            ("error_detection", 3),
            ("instruction_following", 2),
            ("reasoning_integrity", 1),
            ("tool_completeness", 1),
            ("completeness", 0),
        ] {
            assert_eq!(far.count_containing(&format!("\"name\":\"{form}\"")), spans, "{form}");
        }
        assert!(
            near.count_containing(SECRET) > 10,
            "requests to the internal judge contain it: {}",
            near.count_containing(SECRET)
        );
    }
}

#[tokio::test]
async fn judges_and_rerankers_receive_no_content_of_excluded_services_in_any_order_of_arrival() {
    for spans in arrivals() {
        let [near, far] = requests("", spans).await;
        // The content is neither in a question nor in a rerank request.
        assert_eq!(far.count_containing(SECRET), 0);
        assert!(far.count_containing(SHOP) >= 2 && near.count_containing(SECRET) > 10);
    }
}

#[tokio::test]
async fn without_internal_services_every_kind_of_question_is_sent() {
    let [_, far] = requests(&internal("bank"), trace()).await;
    let bodies = far.0.lock().unwrap().clone();
    for kind in [
        "error_detection",
        "reasoning_integrity",
        "tool_abuse",
        "gpa_plan_quality",
        "perceive",
        "plan_adherence",
    ] {
        let form = format!("\"name\":\"{kind}\"");
        assert!(bodies.iter().any(|body| body.contains(&form) && body.contains(SECRET)), "{kind}");
    }
    assert!(bodies.iter().any(|body| body.contains("\"documents\"") && body.contains(SECRET)));
}

#[tokio::test]
async fn span_without_a_service_does_not_permit_others_and_matches_only_the_star() {
    let mut spans = trace();
    spans.insert(0, TestSpan::new(None, 9, 1, "chat").messages("Nameless: hello", "Nameless: hello"));
    let [near, far] = requests(&internal("payroll"), spans).await;
    assert_eq!((far.count_containing(SECRET), far.count_containing(NAMELESS)), (0, 0));
    assert!(far.count_containing(SHOP) >= 2 && near.count_containing(NAMELESS) > 0);
    let nameless = || vec![TestSpan::new(None, 9, 0, "chat").messages("Nameless: hello", "Nameless: hello")];
    let [_, far] = requests(&internal("payroll"), nameless()).await;
    assert!(far.count_containing(NAMELESS) > 0, "no service of this trace is internal");
    let [near, far] = requests(&internal("'*'"), nameless()).await;
    assert!(
        far.count_containing(NAMELESS) == 0 && near.count_containing(NAMELESS) > 0,
        "every service is internal"
    );
}

#[tokio::test]
async fn withheld_content_is_in_no_question_to_any_judge() {
    for spans in arrivals() {
        let withhold = "  ask: { withhold: [payroll] }";
        let [near, far] = requests(&format!("{withhold}\n{}", internal("bank")), spans).await;
        for text in ["pays 9000", "employee 7?", "I look it up", "PAYROLL sum"] {
            assert_eq!((near.count_containing(text), far.count_containing(text)), (0, 0), "{text}");
        }
        assert!(near.count_containing(SHOP) > 10 && near.count_containing("(withheld)") > 0);
    }
}

#[tokio::test]
async fn repeated_content_of_an_internal_service_reaches_no_external_judge() {
    for reversed in [false, true] {
        let mut spans = repeating_trace();
        if reversed {
            spans.reverse();
        }
        let [near, far] = requests(&internal("payroll"), spans).await;
        assert_eq!(far.count_containing(SECRET), 0, "{:#?}", far.0.lock().unwrap());
        assert!(far.count_containing(SHOP) > 10, "content of shop is sent: {}", far.count_containing(SHOP));
        assert!(
            near.count_containing("Observation: PAYROLL pays 9000") > 0
                && near.count_containing("says the server") > 0
        );
    }
    let [_, far] = requests("", repeating_trace()).await;
    assert_eq!(far.count_containing(SECRET), 0);
}

#[tokio::test]
async fn repeated_withheld_content_is_in_no_question() {
    let withhold = "  ask: { withhold: [payroll] }";
    let [near, far] = requests(&format!("{withhold}\n{}", internal("bank")), repeating_trace()).await;
    for text in ["pays 9000", "says the server"] {
        assert_eq!((near.count_containing(text), far.count_containing(text)), (0, 0), "{text}");
    }
    assert!(
        near.count_containing("Shop: row 12") > 0
            && near.count_containing("call of Shop_remote, it failed") > 0
    );
}

/// A span without a service, or one that repeats a result, may belong to a service whose spans have not arrived.
#[tokio::test]
async fn judges_from_which_services_are_withheld_are_asked_when_the_trace_has_closed() {
    for extra_config in [internal("payroll"), String::new()] {
        let is_payroll = |span: &TestSpan| span.service == Some("payroll");
        let (late, mut first): (Vec<_>, Vec<_>) = repeating_trace().into_iter().partition(is_payroll);
        first.push(TestSpan::new(None, 30, 1, "chat").messages("Nameless: hello", "Nameless: hello"));
        let [near, far] = requests_in_two_parts(&extra_config, first, late).await;
        assert_eq!(
            (far.count_containing(SECRET), far.count_containing(NAMELESS)),
            (0, 0),
            "{:#?}",
            far.0.lock().unwrap()
        );
        assert!(far.count_containing(SHOP) > 5 && near.count_containing(NAMELESS) > 0);
    }
}
