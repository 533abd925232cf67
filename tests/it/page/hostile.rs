//! Texts of traces that mean something to a browser are only text on the page and in the file.

use std::process::Command;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use serde_json::Value;

use super::{failing_run, get, listed, page};

/// Text that would be markup without escapes.
pub const MARKUP: &str = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\u{202e}\u{0}";

/// Texts with a meaning in HTML, scripts, style sheets, addresses, templates or terminals.
const HOSTILE: [&str; 8] = [
    MARKUP,
    "--></style><style>*{background:url(//evil.example)}</style><svg onload=alert(1)>",
    "javascript:alert(1)//\"'`onmouseover=alert(1) ",
    "${alert(1)}{{constructor.constructor('alert(1)')()}}#{alert(1)}",
    "<![CDATA[<iframe srcdoc='<script>alert(1)</script>'>]]>&lt;script&gt;&#x3c;",
    "\u{2028}\u{2029}\u{feff}\u{200f}\u{2066}\u{1b}[2J\u{7}\\u003cscript>",
    "__proto__ constructor toString hasOwnProperty",
    "../../api/events?#/trace/%2e%2e%2f%00",
];

/// Runs with hostile texts and shapes: a deep chain, a cycle of parents, one id twice, and a name of a
/// megabyte.
pub fn hostile_captures() -> Vec<ExportTraceServiceRequest> {
    let mut all: Vec<_> = (1..).zip(HOSTILE).map(|(trace, text)| failing_run(trace, "shop", text)).collect();
    // Ids that are no text: `eval` detects the signal of a request by its bytes, and these would be names of metrics.
    let mut shaped = |trace: u8, change: &dyn Fn(&mut Vec<Span>)| {
        let mut run = failing_run(trace, "shop", "plain");
        change(&mut run.resource_spans[0].scope_spans[0].spans);
        all.push(run);
    };
    shaped(201, &|spans| {
        let id = |n: u16| [&[7; 6][..], &n.to_be_bytes()[..]].concat();
        let tool = spans[1].clone();
        spans.extend((1..5_000).map(|n| {
            let parent_span_id = if n == 1 { vec![1; 8] } else { id(n - 1) };
            Span { span_id: id(n), parent_span_id, ..tool.clone() }
        }));
    });
    shaped(202, &|spans| spans[0].parent_span_id = vec![2; 8]);
    shaped(203, &|spans| {
        let duplicate = Span { name: "again".to_owned(), ..spans[1].clone() };
        spans.push(duplicate);
    });
    shaped(204, &|spans| spans[0].name = "é".repeat(1 << 19));
    all
}

/// Every string in a value.
fn strings(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::String(text) => into.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| strings(item, into)),
        Value::Object(fields) => fields.values().for_each(|field| strings(field, into)),
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_texts_stay_texts() {
    let (process, address) = page("", "").await;
    process.client().spans(failing_run(1, "shop", MARKUP)).await;
    listed(address, 1).await;
    for path in ["/api/traces", "/api/overview", &format!("/api/traces/{}", "01".repeat(16))] {
        let reply = get(address, path).await;
        // JSON that no browser takes for a document, with any content.
        assert!(reply.head.contains("content-type: application/json"), "{}", reply.head);
        assert!(reply.head.contains("nosniff"), "{}", reply.head);
        let mut texts = Vec::new();
        strings(&reply.json(), &mut texts);
        assert!(texts.iter().any(|text| text.contains("<script>alert(1)")), "{path}: {texts:?}");
        for text in texts {
            assert!(
                !text.contains(['\u{202e}', '\0']),
                "a mark that turns text around, or a control: {text}"
            );
        }
    }
    // The document itself is the same for all traces.
    assert!(!get(address, "/").await.body.contains("alert(1)"), "no text is in the document");
    Box::pin(process.stop()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_captures_are_data_on_the_page_and_in_the_file() {
    let (process, address) = page("", "").await;
    let captures = hostile_captures();
    let mut client = process.client();
    for capture in &captures {
        client.spans(capture.clone()).await;
    }
    for row in listed(address, captures.len()).await["traces"].as_array().unwrap() {
        let reply = get(address, &format!("/api/traces/{}", row["trace_id"].as_str().unwrap())).await;
        assert!(reply.status == 200 && reply.body.len() < 4 << 20, "{row}: {} bytes", reply.body.len());
        let mut texts = Vec::new();
        strings(&reply.json(), &mut texts);
        for text in texts {
            let marks = ['\u{202e}', '\u{2066}', '\u{200f}', '\u{1b}', '\u{7}', '\0'];
            assert!(!text.contains(marks), "a mark that turns text around, or a control: {text:?}");
        }
    }
    Box::pin(process.stop()).await;
    let folder = tempfile::tempdir().unwrap();
    for (n, capture) in captures.iter().enumerate() {
        std::fs::write(folder.path().join(format!("{n}.pb")), capture.encode_to_vec()).unwrap();
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_otel-verdict"));
    let output =
        command.args(["eval", folder.path().to_str().unwrap(), "--output", "html"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let page = String::from_utf8(output.stdout).unwrap();
    let ids = captures.iter().map(|capture| capture.resource_spans[0].scope_spans[0].spans[0].trace_id[0]);
    let missing: Vec<u8> =
        ids.filter(|id| !page.contains(&format!("id=\"trace-{}", format!("{id:02x}").repeat(16)))).collect();
    assert_eq!(missing, [0; 0], "{}", String::from_utf8_lossy(&output.stderr));
    // There is one element for each trace, one for the list, one for the program and one for the style.
    let count = |text: &str| page.matches(text).count();
    assert_eq!((count("<script"), count("</script"), count("<style"), count("</style")), {
        let scripts = captures.len() + 2;
        (scripts, scripts, 1, 1)
    });
    assert_eq!(count("<svg onload") + count("<img") + count("<iframe") + count("<!--"), 0);
}

#[test]
fn no_text_of_a_recording_is_markup_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.pb");
    std::fs::write(&file, failing_run(1, "shop", MARKUP).encode_to_vec()).unwrap();
    let eval = |more_arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_otel-verdict"));
        command
            .args(["eval", file.to_str().unwrap(), "--output", "html"])
            .args(more_arguments)
            .output()
            .unwrap()
    };
    let output = eval(&[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let page = String::from_utf8(output.stdout).unwrap();
    // The trace, the list, and the program.
    assert_eq!(page.matches("<script").count(), 3);
    assert_eq!(page.matches("</script").count(), 3);
    assert!(!page.contains("<img") && page.contains(r"\u003cimg src=x"), "the text is data");
    let policy = page.lines().find(|line| line.contains("content-security-policy")).unwrap();
    assert!(policy.contains("default-src 'none'") && policy.contains("script-src 'sha256-"), "{policy}");
    assert!(!page.contains("src=\"") && !page.contains("href=\"page"), "nothing is loaded");
    assert_eq!(eval(&["--fail-on", "fail"]).status.code(), Some(1));
    // Without a selected trace it is still a page.
    let empty = String::from_utf8(eval(&["--only", "pass"]).stdout).unwrap();
    assert_eq!(empty.matches("<script").count(), 2);
    assert!(empty.ends_with("</html>\n"), "{empty}");
}
