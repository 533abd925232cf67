//! The live page in Chromium, through its debugging protocol: display and operation, hostile texts, contrast.
//!
//! `.ci/neighbours chromium` installs `chromium` (or `OTEL_VERDICT_CHROMIUM` names it) and runs these tests, which are
//! ignored otherwise. With `OTEL_VERDICT_SCREENSHOTS` set to a folder,
//! pictures of the views are written there.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use base64::Engine as _;
use prost::Message as _;
use serde_json::{Value, json};

use crate::page::hostile::{MARKUP, hostile_captures};
use crate::page::{failing_run, listed};
use crate::support::{MAX_TIME_WITHOUT_PROGRESS, Process};

struct Browser {
    child: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    session: Value,
    last: u64,
    /// Errors of the page: exceptions, and violations of its content security policy.
    faults: Vec<String>,
    _profile: tempfile::TempDir,
}

impl Browser {
    fn start() -> Browser {
        let program = std::env::var("OTEL_VERDICT_CHROMIUM").unwrap_or_else(|_| "chromium".to_owned());
        let profile = tempfile::tempdir().unwrap();
        // The protocol is on the descriptors 3 and 4.
        let script = "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1";
        let mut child = Command::new("sh")
            .args(["-c", script, &program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"])
            .args(["--no-first-run", "--disable-background-networking", "--disable-component-update"])
            .args(["--disable-sync", "--hide-scrollbars", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, messages) = channel();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while output.read_until(0, &mut message).is_ok_and(|read| read > 0) {
                message.pop();
                if sender.send(serde_json::from_slice(&message).unwrap()).is_err() {
                    return;
                }
                message.clear();
            }
        });
        let commands = child.stdin.take().unwrap();
        let (session, faults) = (Value::Null, Vec::new());
        let mut browser = Browser { child, commands, messages, session, last: 0, faults, _profile: profile };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let target = json!({ "targetId": target["targetId"], "flatten": true });
        browser.session = browser.call("Target.attachToTarget", target)["sessionId"].clone();
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            browser.call(domain, json!({}));
        }
        browser
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let mut command = json!({ "id": self.last, "method": method, "params": params });
        if !self.session.is_null() {
            command["sessionId"] = self.session.clone();
        }
        self.commands.write_all(format!("{command}\0").as_bytes()).unwrap();
        loop {
            let message = match self.messages.recv_timeout(MAX_TIME_WITHOUT_PROGRESS) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) => panic!("no answer to {method}"),
                Err(RecvTimeoutError::Disconnected) => panic!("the browser has ended at {method}"),
            };
            match message["method"].as_str() {
                Some("Runtime.exceptionThrown") => self.faults.push(message.to_string()),
                Some("Log.entryAdded") if message["params"]["entry"]["level"] == "error" => {
                    self.faults.push(message.to_string());
                }
                Some("Page.javascriptDialogOpening") => panic!("a text ran as a script: {message}"),
                _ => {}
            }
            if message["id"] == self.last {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
        }
    }

    /// The value of an expression in the page.
    fn eval(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let found = self.call("Runtime.evaluate", params);
        assert!(found["exceptionDetails"].is_null(), "{expression}: {found}");
        found["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    fn until(&mut self, expression: &str) {
        let begin = Instant::now();
        while self.eval(expression) != true {
            let shown = self.eval("(document.body?.innerText ?? '').slice(0, 2000)");
            assert!(
                begin.elapsed() < MAX_TIME_WITHOUT_PROGRESS,
                "not reached: {expression}\n{shown}\n{:?}",
                self.faults
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn open(&mut self, url: &str, scheme: &str) {
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", media);
        self.call("Page.navigate", json!({ "url": "about:blank" }));
        self.call("Page.navigate", json!({ "url": url }));
        self.until("document.querySelector('main')?.children.length > 0");
    }

    fn press(&mut self, key: &str) {
        let text = if key.chars().count() == 1 { key } else { "" };
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { text } else { "" };
            self.call("Input.dispatchKeyEvent", json!({ "type": kind, "key": key, "text": text }));
        }
    }

    /// Asserts that the first link moves the focus to the content without a change of the view.
    fn assert_skip_link(&mut self) {
        // The selected span follows in the address a moment later.
        let shown =
            "location.hash.split('/').slice(0, 3).join('/') + document.querySelectorAll('main *').length";
        let before = self.eval(shown);
        self.eval("document.querySelector('.skip').click()");
        // A change of the address is noted later.
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(self.eval("document.activeElement.id"), "main");
        assert_eq!(self.eval(shown), before);
    }

    fn picture(&mut self, name: &str, width: u32, height: u32) {
        let Ok(folder) = std::env::var("OTEL_VERDICT_SCREENSHOTS") else { return };
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size);
        std::thread::sleep(Duration::from_millis(300));
        let shot = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        let png = base64::engine::general_purpose::STANDARD.decode(shot["data"].as_str().unwrap()).unwrap();
        std::fs::write(PathBuf::from(folder).join(format!("{name}.png")), png).unwrap();
    }

    /// Texts whose contrast with their background is below 4.5 (WCAG 2.2, 1.4.3).
    fn low_contrast_texts(&mut self) -> Value {
        self.eval(
            "(() => {
              const parse = (text) => { const n = text.match(/[\\d.]+/g).map(Number); return text.startsWith('color(') ? n.slice(0, 3).map((v) => v * 255).concat(n[3] ?? 1) : n; };
              const light = (c) => { const [r, g, b] = c.map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
              const ground = (node) => { for (let at = node; at; at = at.parentElement) { const c = parse(getComputedStyle(at).backgroundColor); if ((c[3] ?? 1) > 0.99) return c; } return [255, 255, 255]; };
              const out = new Set();
              for (const node of document.querySelectorAll('body *')) {
                const text = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
                if (!text || node.closest('.visually-hidden, script, noscript, [aria-hidden=true], option') || !node.getClientRects().length) continue;
                const [a, b] = [light(parse(getComputedStyle(node).color).slice(0, 3)), light(ground(node).slice(0, 3))];
                const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
                if (ratio < 4.5) out.add(`${node.tagName}.${node.className} ${ratio.toFixed(2)} ${node.textContent.slice(0, 30)}`);
              }
              return [...out];
            })()",
        )
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The process may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Chromium; .ci/neighbours chromium installs it"]
async fn page_shows_follows_and_searches_traces_and_no_text_runs() {
    let mut browser = tokio::task::block_in_place(Browser::start);
    let text = "verdict: { close: { quiet: 50ms, idle: 1h } }\npage: { endpoint: '127.0.0.1:0' }";
    let process = Process::start(text).await;
    let at = process.service.page.unwrap();
    let mut client = process.client();
    client.spans(failing_run(1, "shop", MARKUP)).await;
    listed(at, 1).await;
    let base = format!("http://{at}/");
    tokio::task::block_in_place(|| {
        browser.open(&base, "light");
        browser.until("document.querySelectorAll('.traces tbody tr').length === 1");
        let shown = browser.eval("document.querySelector('main').textContent");
        assert!(shown.as_str().unwrap().contains("<script>alert(1)"), "the text is shown as it is: {shown}");
        assert_eq!(
            browser.eval("document.querySelectorAll('img, script:not([src]), iframe, [onerror]').length"),
            0
        );
        browser.until("document.querySelector('#connection').className === 'live'");
        // Two hours later the last hour is empty, and the last six hours are not.
        let pressed =
            |n: usize| format!("document.querySelectorAll('[aria-label=Range] button')[{n}].click()");
        let categories = "document.querySelectorAll('[aria-label=\"Failure categories\"] a').length";
        assert_ne!(browser.eval(categories), 0);
        browser.eval("window.realNow = Date.now; Date.now = () => realNow.call(Date) + 7200000");
        browser.eval(&pressed(0));
        browser.until("document.querySelector('.rate').textContent === '–'");
        assert_eq!(browser.eval(categories), 0);
        browser.eval(&pressed(1));
        browser.until("document.querySelector('.rate').textContent === '0 %'");
        assert_ne!(browser.eval(categories), 0);
        assert_ne!(browser.eval("document.querySelectorAll('.sparkline rect').length"), 0);
        browser.eval("Date.now = realNow");
        // A page in the background closes its connection.
        let clients = process.service.telemetry().page.clients.clone();
        let hide = |hidden: bool| {
            format!(
                "Object.defineProperty(document, 'hidden', {{ value: {hidden}, configurable: true }}); document.dispatchEvent(new Event('visibilitychange'))"
            )
        };
        for (hidden, open) in [(true, 0), (false, 1)] {
            browser.eval(&hide(hidden));
            let begin = Instant::now();
            while clients.get() != open {
                assert!(
                    begin.elapsed() < MAX_TIME_WITHOUT_PROGRESS,
                    "hidden: {hidden}, {} streams",
                    clients.get()
                );
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    });
    // A trace that is judged appears by itself.
    client.spans(failing_run(2, "bank", "plain")).await;
    tokio::task::block_in_place(|| {
        browser.until("document.querySelectorAll('.traces tbody tr').length === 2");
        browser.eval("location.hash = '#/traces?service=bank'");
        browser.until("document.querySelectorAll('.traces tbody tr').length === 1");
        assert_eq!(browser.eval("document.querySelector('.traces .trace-link').textContent"), "Visit plain");
        browser.press("/");
        assert_eq!(browser.eval("document.activeElement.id"), "q");
        // The focused element is drawn again by its own click, and every 5 s.
        browser.eval("const six = [...document.querySelectorAll('button')].find((b) => b.textContent === '6 h'); six.focus(); six.click()");
        browser.until(
            "document.activeElement.textContent === '6 h' && document.activeElement.ariaPressed === 'true'",
        );

        browser.assert_skip_link();
        assert_eq!(browser.eval("document.querySelectorAll('.traces tbody tr').length"), 1);

        // Of a trace the worst failure is shown first; the tree follows the keyboard and the address follows it.
        browser
            .eval("const link = document.querySelector('.traces .trace-link'); link.focus(); link.click()");
        browser.until("document.querySelector('[role=tree]') !== null");
        browser.until("document.activeElement.id === 'main'");
        let tree = "[...document.querySelectorAll('[role=treeitem]')].map((item) => [item.ariaLevel, item.ariaExpanded, item.ariaSelected])";
        assert_eq!(browser.eval(tree), json!([["1", "true", "false"], ["2", null, "true"]]));
        assert_eq!(
            browser.eval("document.querySelector('.span-panel').textContent.includes('root cause')"),
            true
        );
        assert!(
            !browser
                .eval("document.querySelector('.span-panel blockquote').textContent")
                .as_str()
                .unwrap()
                .is_empty()
        );
        assert_eq!(browser.eval("document.querySelectorAll('.chain li').length"), 2);
        browser.eval("document.querySelector('[role=treeitem][tabindex=\"0\"]').focus()");
        browser.press("ArrowUp");
        assert_eq!(browser.eval("document.activeElement.getAttribute('aria-level')"), "1");
        browser.until(&format!("location.hash.endsWith('{}')", "01".repeat(8)));
        browser.press("ArrowLeft");
        assert_eq!(browser.eval(tree), json!([["1", "false", "true"]]));
        browser.press("ArrowRight");
        browser.press("n");
        assert_eq!(browser.eval("document.activeElement.getAttribute('aria-level')"), "2");

        // The link of alerts, as documented, leads to the span.
        let alerts = include_str!("../../docs/alerts.md").split("link: \"http://127.0.0.1:4321/").nth(1);
        let link = alerts.and_then(|rest| rest.split('"').next()).unwrap();
        let link = link.replace("{trace_id}", &"01".repeat(16)).replace("{span_id}", &"01".repeat(8));
        let link = format!("{base}{link}");
        browser.open(&link, "dark");
        browser.until("document.querySelector('.span-panel h2') !== null");
        assert!(
            browser
                .eval("document.querySelector('.span-panel h2').textContent")
                .as_str()
                .unwrap()
                .starts_with("invoke_agent")
        );
        assert_eq!(
            browser.eval("document.querySelectorAll('img, script:not([src]), iframe, [onerror]').length"),
            0
        );
        for (view, shows) in [("open", "No trace is open"), ("health", "otlp_grpc"), ("traces", "bank")] {
            browser.open(&format!("{base}#/{view}"), "light");
            browser.until(&format!("document.querySelector('main').innerText.includes('{shows}')"));
        }
    });
    // An open trace that grows is drawn again, with what was closed and with the focus.
    let mut open = failing_run(3, "till", "plain");
    open.resource_spans[0].scope_spans[0].spans[0].parent_span_id = vec![9; 8];
    client.spans(open.clone()).await;
    tokio::task::block_in_place(|| {
        browser.open(&format!("{base}#/trace/{}/{}", "03".repeat(16), "01".repeat(8)), "light");
        browser.until("document.querySelectorAll('[role=treeitem]').length === 2");
        browser.eval("document.querySelector('[role=treeitem][tabindex=\"0\"]').focus()");
        browser.press("ArrowLeft");
        browser.until("document.querySelectorAll('[role=treeitem]').length === 1");
        browser.eval("document.querySelector('[role=tree]').dataset.before = 'drawn'");
    });
    open.resource_spans[0].scope_spans[0].spans.remove(0);
    open.resource_spans[0].scope_spans[0].spans[0].span_id = vec![3; 8];
    client.spans(open).await;
    tokio::task::block_in_place(|| {
        browser.until("document.querySelector('[role=tree]:not([data-before])') !== null");
        assert_eq!(browser.eval("document.querySelectorAll('[role=treeitem]').length"), 1);
        assert_eq!(browser.eval("document.activeElement.getAttribute('role')"), "treeitem");
        assert_eq!(browser.faults, [""; 0], "no exception, and nothing that the policy had to stop");
    });
    drop(browser);
    Box::pin(process.stop()).await;
}

#[test]
#[ignore = "needs Chromium; .ci/neighbours chromium installs it"]
fn file_shows_the_same_and_every_text_can_be_read_in_both_themes() {
    let mut browser = Browser::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("verdicts.html");
    let output = Command::new(env!("CARGO_BIN_EXE_otel-verdict"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["eval", "demo", "--output", "html"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::write(&file, &output.stdout).unwrap();
    let url = format!("file://{}", file.display());
    for scheme in ["light", "dark"] {
        browser.open(&url, scheme);
        browser.until("document.querySelectorAll('.traces tbody tr').length === 8");
        assert_eq!(browser.eval("document.documentElement.dataset.theme"), scheme);
        // The pass rate is a line with a scale, in words, and a column of the table for screen readers.
        assert_eq!(
            browser.eval("[document.querySelectorAll('.passrate .dot').length > 1, document.querySelectorAll('.passrate polyline').length, document.querySelector('.ticks').innerText.replace(/\\s+/g, ' ').trim()]"),
            json!([true, 1, "100 % 0 %"])
        );
        let label = browser.eval("document.querySelector('svg.passrate').getAttribute('aria-label')");
        assert!(label.as_str().unwrap().starts_with("Pass rate over time: "), "{label}");
        assert!(label.as_str().unwrap().contains("% in total"), "{label}");
        assert_eq!(
            browser.eval("document.querySelectorAll('.timeline table th')[1].textContent"),
            "Pass rate"
        );
        assert_eq!(browser.low_contrast_texts(), json!([]), "{scheme}");
        browser.picture(&format!("list-{scheme}"), 1400, 960);
        browser.open(&format!("{url}#/traces?result=fail&q=strands"), scheme);
        browser.until("document.querySelectorAll('.traces tbody tr').length === 1");
        browser.eval("document.querySelector('.traces .trace-link').click()");
        browser.until("document.querySelectorAll('[role=treeitem]').length > 10");
        assert_eq!(browser.low_contrast_texts(), json!([]), "{scheme}");
        browser.assert_skip_link();
        browser.picture(&format!("trace-{scheme}"), 1400, 960);
        // A selected span that does not fail gives way to one that does.
        browser.eval("document.querySelector('[role=treeitem]:not(.fail)').click()");
        browser.eval("document.querySelector('.tree button').click()");
        assert_eq!(
            browser.eval("[document.querySelector('.tree button').getAttribute('aria-pressed'), document.querySelectorAll('[role=treeitem]:not(.fail)').length, document.querySelectorAll('[role=treeitem].fail[aria-selected=true]').length]"),
            json!(["true", 0, 1])
        );
        browser.picture(&format!("trace-narrow-{scheme}"), 600, 1200);
        // A file has no state of a process: its address shows the list.
        browser.open(&format!("{url}#/health"), scheme);
        browser.until("document.querySelectorAll('.traces tbody tr').length === 8");
    }
    assert_eq!(browser.faults, [""; 0]);
}

#[test]
#[ignore = "needs Chromium; .ci/neighbours chromium installs it"]
fn no_text_of_hostile_captures_runs_in_the_file() {
    let mut browser = Browser::start();
    let folder = tempfile::tempdir().unwrap();
    let captures = hostile_captures();
    for (n, capture) in captures.iter().enumerate() {
        std::fs::write(folder.path().join(format!("{n}.pb")), capture.encode_to_vec()).unwrap();
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_otel-verdict"));
    let output =
        command.args(["eval", folder.path().to_str().unwrap(), "--output", "html"]).output().unwrap();
    let file = folder.path().join("verdicts.html");
    std::fs::write(&file, &output.stdout).unwrap();
    let url = format!("file://{}", file.display());
    browser.open(&url, "light");
    browser.until(&format!("document.querySelectorAll('.traces tbody tr').length === {}", captures.len()));
    let links = browser.eval(
        "[...document.querySelectorAll('.traces .trace-link')].map((link) => link.getAttribute('href'))",
    );
    for link in links.as_array().unwrap() {
        browser.open(&format!("{url}{}", link.as_str().unwrap()), "light");
        browser.until("document.querySelector('[role=tree]') !== null");
        let foreign = "document.querySelectorAll('img, iframe, main svg[onload], [onerror], [onmouseover], main style').length";
        assert_eq!(browser.eval(foreign), 0, "{link}");
    }
    assert_eq!(browser.faults, [""; 0], "no exception, and nothing that the policy had to stop");
}
