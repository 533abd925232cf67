//! Tests of `error_text`.

use proptest::prelude::*;

use super::*;
use crate::measure::defects::QUOTE_BYTES;

#[test]
fn error_reports_are_recognised() {
    let cases = [
        "Error: invalid url 'almanac.example/elbrus': the scheme https:// is required",
        "Observation:\nError: invalid url 'almanac.example/elbrus': the scheme https:// is required",
        "\"Error: boom\"",
        "404 Client Error: Not Found for url: https://almanac.example/elbrus-2019",
        "Error 404: page not found",
        "HTTP 503",
        "HTTP/1.1 500 Internal Server Error\n\n...",
        "Traceback (most recent call last):\n  File \"x.py\", line 1\nValueError: no",
        "step 1 done\nTraceback (most recent call last):\n  File \"x.py\", line 1, in <module>\n    f()\nValueError: no\n",
        "Error when executing tool web_search with arguments {'query': 'x'}: Exception: No results found",
        "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='x')",
        "PageNotFound: 404 for https://almanac.example/elbrus-2019",
        "An error occurred while calling the tool",
        "Failed to fetch https://example.org: connection refused",
        "Page not found: https://example.org/x",
        "bash: ffmpeg: command not found",
        "<html><head><title>404 Not Found</title></head><body>nginx</body></html>",
        "{\"error\": \"no such city\"}",
        "{\"error\": {\"message\": \"Rate limit reached\", \"type\": \"requests\", \"code\": 429}}",
        "{\"content\":[{\"type\":\"text\",\"text\":\"it broke\"}],\"isError\":true}",
        "{\"result\": \"Error: invalid url\"}",
        "{\"status\": \"error\", \"message\": \"bad id\"}",
        "{\"status_code\": 404, \"message\": \"nope\"}",
        "{\"detail\": \"Not authorized\"}",
        "{\"exit_code\": 2, \"stdout\": \"\", \"stderr\": \"ls: cannot access\"}",
        "[{\"type\": \"text\", \"text\": \"Error: boom\"}]",
        "{'error': 'no such city'}",
        "Tool error: the tool crashed",
        "❌ Error: nothing works",
        "Unknown tool: teleport",
        "**Error:** file is locked",
    ];
    for text in cases {
        assert!(reported(text).is_some(), "{text}");
        // The prefilter must accept the text within a wrapper as well.
        let wrapped = serde_json::json!({ "output": text }).to_string();
        assert!(might_be_error_json(&wrapped), "{wrapped}");
    }
    for start in [
        "429 Too Many Requests",
        "401: Unauthorized",
        "400 - Bad Request",
        "Status code: 502",
        "410 gone",
        "422 Unprocessable Entity",
        "402 payment required",
        "405 Method Not Allowed",
        "http 500",
        "HTTP status 403",
        "Couldn't open the file",
        "Can't connect to it",
        "can not read it",
        "The file does not exist",
        "undefined function f",
        "missing required parameter",
        "Request timed out",
        "Time out",
        "Rate limited",
        "Quota exceeded",
        "Access denied",
        "forbidden",
        "not authorized",
        "Service unavailable",
        "bad gateway",
        "exit code 3",
        "connection was reset",
        "SegmentationFault: core",
        "<title>503 ser</title>",
    ] {
        let found = reported(start).is_some();
        let wrapped = serde_json::json!({ "result": start }).to_string();
        assert_eq!(reported(&wrapped).is_some(), found, "{start}");
    }
}

#[test]
fn results_that_mention_errors_are_not_error_reports() {
    let cases = [
        "",
        "836",
        "Errors and exceptions are two kinds of problems a program may meet.",
        "Error handling in Rust uses Result. An error: a value that says what went wrong.",
        "The error: margin is 3 %.",
        "def f(x):\n    if x < 0:\n        raise ValueError('negative')\n    return x",
        "1. How to fix Error: ENOENT\n2. Traceback (most recent call last): what it means\n3. Common exceptions",
        "Mount Elbrus (5642 m) could not be climbed until 1874.",
        "{\"error\": null, \"data\": [1, 2]}",
        "{\"results\": [{\"title\": \"Error 404 explained\", \"snippet\": \"Not found means ...\"}]}",
        "{\"status\": 200, \"message\": \"ok\"}",
        "{\"status\": \"ok\", \"errors\": []}",
        "{\"errors\": [\"row 7 skipped\"], \"data\": [1, 2, 3]}",
        "{\"code\": 404, \"room\": \"east wing\"}",
        "{\"exit_code\": 1, \"stdout\": \"\", \"stderr\": \"\"}",
        "Failed states are countries whose government has lost control.",
        "500 people attended the opening.",
        "404 metres above the sea, the village of X ...",
        "ValueError\n\nRaised when an operation receives an argument of the right type but an inappropriate value. \
         See also the section on exceptions, which explains when to raise it and how to handle it in calling code. \
         The exception is often confused with TypeError, raised for arguments of the wrong type altogether.",
        "The log holds:\nTraceback (most recent call last):\n  File \"x\"\nValueError: no\nThen the service came up.\n\
         It ran.\nIt ran on.\nAll was well.\nNothing else was seen.\n",
        "2024-01-01 INFO started\n2024-01-01 ERROR lost connection\n2024-01-01 INFO reconnected",
        "Cannot be combined with other offers. Price: 30 EUR.",
        "Timeouts are configured per route.",
        "class ParseError(Exception):\n    pass",
    ];
    for text in cases {
        assert_eq!(reported(text), None, "{text}");
    }
}

#[test]
fn text_that_resembles_an_object_may_end_in_a_traceback() {
    for text in [
        "{\"query\": \"peaks\"}\nTraceback (most recent call last):\n  File \"a.py\", line 2, in <module>\n    ask()\n\
         openai.BadRequestError: Error code: 400 - {'error': {'param': None}}",
        "{\"stdout\": \"Traceback (most recent call last):\n  File a.py, line 2\nValueError: bad\"}",
    ] {
        assert!(reported(text).is_some(), "{text}");
    }
}

#[test]
fn long_report_is_clipped() {
    let text = format!("Error: {}", "é".repeat(5000));
    let passage = reported(&text).unwrap();
    assert!(passage.len() <= QUOTE_BYTES && text.starts_with(&passage));
}

proptest! {
    #[test]
    fn any_text_is_accepted(text in "\\PC{0,200}", json in "[\\[\\]{}\":,a-z 0-9]{0,80}") {
        let _ = reported(&text);
        let _ = reported(&json);
    }
}
