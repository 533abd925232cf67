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
        "{\"fehler\": \"Kein Tisch frei\"}",
        "{\"erreur\": \"aucune place\"}",
        "{\"错误\": \"没有库存\"}",
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
        "E_QUOTA_EXCEEDED: the quota of team B is used up; nothing was booked",
        "ENOENT: no such file or directory, open 'plan.txt'",
        "**Error:** file is locked",
    ];
    for text in cases {
        assert!(reported(text).is_some(), "{text}");
        let wrapped = serde_json::json!({ "output": text }).to_string();
        assert!(reported(&wrapped).is_some(), "{wrapped}");
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
        let is_reported = reported(start).is_some();
        let wrapped = serde_json::json!({ "result": start }).to_string();
        assert_eq!(reported(&wrapped).is_some(), is_reported, "{start}");
    }
}

#[test]
fn exit_status_takes_precedence_over_the_output_of_a_run() {
    let failed = [
        "exitcode: 1 (execution failed)\nCode output: compiling 3 files\nmake: nothing to do for that\n",
        "Reading ledger.csv ...\n412 rows\n\nProcess finished with exit code 1",
        "step 1\nstep 2\nstep 3\nCommand exited with code 127\nstep 4 was skipped\nend\nbye",
        "<returncode>2</returncode>\n<output>\nusage: crop [-h] image\n</output>",
        "**Exit code:** 137\n\nKilled",
        "$ cargo build\n   Compiling parcel v0.1.0\nexit status: 101",
        "Command '['terraform', 'plan']' returned non-zero exit status 1.",
        "Loading 20 patients\nexecution failed",
        "running 4 tests\n....\nBUILD FAILED",
        r#"{"output": "kubectl: no such context", "metadata": {"exit_code": 1}}"#,
        r#"{"returncode": 3, "stdout": "", "stderr": ""}"#,
        r#"{"result": {"exitCode": 1, "stdout": "2 passed, 1 failed", "stderr": ""}}"#,
        "{'stdout': '', 'stderr': 'rm: cannot remove', 'returncode': 1}",
    ];
    for text in failed {
        assert!(reported(text).is_some(), "{text}");
    }
    let succeeded = [
        "exitcode: 0 (execution succeeded)\nCode output: Error: Cannot open video file at /tmp/clip.mp4\n",
        "Error: 3 rows were skipped\n\nProcess finished with exit code 0",
        "exit code: 0\nTraceback (most recent call last):\n  File \"a.py\", line 1, in f\nValueError: caught and printed\n",
        r#"{"exit_code": 0, "stdout": "Error: none found in the log", "stderr": "error: deprecated flag"}"#,
        r#"{"output": "ERROR lines: 12", "metadata": {"exit_code": 0}}"#,
        r#"{"exit_code": 1, "stdout": "", "stderr": ""}"#,
        "exit code: 1",
        "Exit code 2 means that the disk is full, and 3 that it is missing.",
        "Exit codes\n\n0 means success.\nExit code 1\nGeneral error.\nExit code 2\nMisuse.\n\nSee also signals.\nReferences",
        "Leave at exit 14 and follow the road for 2 km.",
        "Return code: 200",
        "Our process returned 4 parcels.",
        "Name:  billing-7f\nContainers:\n  app:\n    Last State:  Terminated\n      Exit Code:  143\n    Ready:  True\nEvents:  none",
        "Job nightly\n  Started: 02:00\n  Last exit code: 2\n  Next run: 03:00\nEnabled: yes",
        "unit: backup.service\n  result: exit-code\n  exit status: 5",
    ];
    for text in succeeded {
        assert_eq!(reported(text), None, "{text}");
    }
    let text = "exitcode: 1 (execution failed)\nCode output: Traceback (most recent call last):\n  File \"a.py\", line 2\n\
                KeyError: 'tide'\nand much more output\nof other threads\nuntil\nthe\nend\n";
    assert!(reported(text).unwrap().starts_with("KeyError: 'tide'"));
}

#[test]
fn source_that_does_not_parse_is_an_error_without_a_traceback() {
    for text in [
        "SyntaxError: invalid decimal literal",
        "  File \"/tmp/job.py\", line 1\n    import pandas as pd\nIndentationError: unexpected indent\n",
        "Installed 3 packages\n  File \"<stdin>\", line 4\n    print('a\n          ^\nSyntaxError: unterminated string literal (detected at line 4)",
        "unterminated string literal (line 3)",
        "invalid syntax (<unknown>, line 12)",
        "Expecting ',' delimiter: line 1 column 52 (char 51)",
        "Unexpected token '<' in JSON at position 0",
        "'(' was never closed (<string>, line 7)",
        "loaded\nReferenceError: rows is not defined\n    at main (/srv/report.js:12:9)\n    at node:internal/main:28:49\n\nNode.js v20.1.0",
        "start\npanic: runtime error: index out of range [3] with length 2\n\ngoroutine 1 [running]:\nmain.main()\n\t/app/main.go:7 +0x1d",
        "Exception in thread \"main\" java.lang.ArithmeticException: / by zero\n\tat Tax.main(Tax.java:4)",
        "thread 'main' panicked at src/main.rs:4:10:\ncalled `Option::unwrap()` on a `None` value",
    ] {
        assert!(reported(text).is_some(), "{text}");
    }
    for text in [
        "Missing items: 3 parcels of order 12 were not scanned at line 4 of the depot",
        "Expected arrival: platform 4, line 7",
        "Unexpected rain is forecast for column 3 of the table.",
        "Chapter 3: syntax errors\n  File \"x.py\", line 1\n    a b\nSyntaxError: invalid syntax\n\nThe interpreter shows the place.\nThe caret marks it.\n\
         Then read the message.\nMost are typing mistakes.\nSee chapter 4.\nAnd chapter 5.",
    ] {
        assert_eq!(reported(text), None, "{text}");
    }
}

#[test]
fn wrappers_are_removed() {
    for text in [
        r#"{"content":[{"type":"text","text":"Error: the ledger is locked"}]}"#,
        r#"{"result": {"content": [{"type": "text", "text": "Process exited with code 2"}]}}"#,
        r#"{"output": "", "stderr": "Traceback (most recent call last):\n  File \"a.py\", line 1\nOSError: disk"}"#,
        "content='Error: no such flight' name='find_flight' tool_call_id='c7' status='error'",
        "ToolMessage(content='the booking is closed', tool_call_id='c7', status='error')",
        "CallToolResult(meta=None, content=[TextContent(type='text', text='index offline')], isError=True)",
        "{'city': 'Ulm', 'success': False, 'message': 'no forecast'}",
        "[TextContent(type='text', text='Error: wrong scale')]",
        "<tool_result>Error: unknown patient</tool_result>",
        r#""{\"status\": \"failed\", \"reason\": \"card expired\"}""#,
    ] {
        assert!(reported(text).is_some(), "{text}");
    }
    for text in [
        r#"{"content":[{"type":"text","text":"Error handling is taught in unit 4"}],"isError":false}"#,
        r#"{"output": "12 files", "stderr": "error: the colour option is deprecated"}"#,
        "content='3 flights' name='find_flight' tool_call_id='c7' status='success'",
        "CallToolResult(content=[TextContent(type='text', text='Errors of measurement: 3 %')], isError=False)",
        "{'city': 'Ulm', 'errors': [], 'success': True}",
        "<output>The error rate fell.</output>",
    ] {
        assert_eq!(reported(text), None, "{text}");
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

#[test]
fn output_of_a_program_is_without_headline_and_label() {
    for (text, output) in [
        ("exitcode: 0 (execution succeeded)\nCode output: \n", ""),
        ("exitcode: 0 (execution succeeded)\nCode output: 41\n42\n", "41\n42"),
        ("7 rows\n\nProcess finished with exit code 0", "7 rows"),
        ("Output: done", "done"),
        ("exit code: 0", ""),
        ("7 rows", "7 rows"),
        ("", ""),
    ] {
        assert_eq!(program_output(text), output, "{text}");
    }
}

/// A document about `subject` with this title.
fn article(first: &str, subject: &str) -> String {
    let body = format!(
        "It is one of the answers that a server gives to a program which asks for a page. Most readers meet {subject} when \
         an address was written down wrongly or a page was moved to another place. The number goes back to the first drafts \
         of the protocol, which its authors discussed at a conference in the spring of 1991. Some sites show a joke or a \
         drawing in its place, and a few of these have become known far beyond the site that made them. Historians of the \
         web have collected several hundred examples of {subject} since then. "
    );
    format!("{first}\n\n{body}{body}")
}

#[test]
fn document_that_begins_like_an_error_is_content() {
    let documents = [
        article("HTTP 404", "404"),
        article("503 Service Unavailable (status code)", "503"),
        article("NullPointerException: causes and remedies", "NullPointerException"),
        article("Error processing in human speech", "the slip"),
        article("There was an error in the almanac of 1908", "the misprint"),
        "404 Not Found is a status code of HTTP, which says that there is no such page.".to_owned(),
        "HTTP 500 errors are the server's own.".to_owned(),
        "429 Too Many Requests (RFC 6585) means that a client has sent more than it may.".to_owned(),
        "Rate limit: 60 requests a minute for each key.".to_owned(),
        "Timeout values are given in seconds.".to_owned(),
        "Unauthorized absences fell to 3 % in May.".to_owned(),
        "Forbidden City: open from 8:30 to 17:00, closed on Mondays.".to_owned(),
        "Time Out London: the 20 best bakeries of the year.".to_owned(),
        "Missing required skills: welding, a licence for cranes.".to_owned(),
        "Document 7: the witness says that the ring was not found that night.".to_owned(),
        r#"[{"text": "Error: a history of the typing mistake", "source": "library", "score": 0.8}]"#
            .to_owned(),
    ];
    for text in &documents {
        assert_eq!(reported(text), None, "{text}");
    }
    let page = article("Error handling in Rust", "the result");
    assert_eq!(reported(&page), None);
    // A text about an event is a report, whatever its length.
    let trace = "    at Depot.load (depot.js:12:9)\n".repeat(40);
    let steps = "Use one of the depots that are listed below and call it again. ".repeat(20);
    for text in [
        format!("NullPointerException: depot is null\n{trace}"),
        format!("404 Not Found: no page at /depots/88\n{}", "<br>".repeat(300)),
        format!("Error when calling find_depot: no depot 88. {steps}"),
        format!("Error: no depot 88\n\n{steps}"),
        "404 Not Found".to_owned(),
        "HTTP 404: Not Found".to_owned(),
        "Error: is a directory".to_owned(),
        "Rate limit is exceeded, wait for 20 s".to_owned(),
        "Rate limit reached for this key".to_owned(),
        "Rate limit of 20 requests a minute was exceeded".to_owned(),
        "Timeout fetching https://depots.example".to_owned(),
        "Missing required args: depot".to_owned(),
        "Timeout after 30 s".to_owned(),
        "Timeout of 3000ms exceeded".to_owned(),
        "Forbidden: the key may not write".to_owned(),
        "Missing required argument 'depot'".to_owned(),
        "The page https://x.example/depots?id=8:9 was not found. Is the address right?".to_owned(),
        r#"[{"text": "Error: the index is offline"}]"#.to_owned(),
        r#"[{"text": "no index", "is_error": true}]"#.to_owned(),
    ] {
        assert!(reported(&text).is_some(), "{text}");
    }
}

#[test]
fn error_within_a_document_is_distinguished_from_the_error_of_a_tool() {
    let log = "10:02 start\n10:03 load depots\nTraceback (most recent call last):\n  File \"a.py\", line 2\nKeyError: 'depot'";
    let raised = "Traceback (most recent call last):\n  File \"a.py\", line 2\nKeyError: 'depot'";
    assert!(is_in_document(log) && reported(log).is_some());
    assert!(!is_in_document(raised) && reported(raised).is_some());
    let page = article("# Error: borrowed value does not live long enough", "the message");
    assert!(is_in_document(&page) && reported(&page).is_some());
    assert!(is_in_document(
        "10:02 start\n10:03 Process exited with code 3\nProcess exited with code 3\n10:04 next"
    ));
    assert!(!is_in_document("Process exited with code 3\n10:02 start\n10:03\n10:04"));
    assert!(!is_in_document("cat: run.txt: No such file or directory\nProcess exited with code 1"));
    assert!(!is_in_document("Error: no such file\nAllowed folders: /srv"));
}
