//! Access to the page: hosts, methods and credentials.

use super::{get, page, request};
use crate::support::config;

#[tokio::test(flavor = "multi_thread")]
async fn only_own_hosts_and_get_requests_are_answered_and_every_answer_has_the_headers() {
    let (process, address) = page(", hosts: [traces.example.com]", "").await;
    let paths = ["/", "/page.css", "/page.js", "/api/overview", "/api/traces", "/api/open"];
    for path in paths {
        let reply = get(address, path).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.body);
    }
    for host in [
        "localhost",
        "localhost:1",
        "127.0.0.1",
        "[::1]:9",
        "traces.example.com",
        "TRACES.example.com:4321",
        "a.localhost",
    ] {
        let reply = request(address, &format!("GET /api/traces HTTP/1.1\r\nhost: {host}\r\n")).await;
        assert_eq!(reply.status, 200, "{host}");
    }
    for host in ["attacker.example", "localhost.attacker.example", "127.0.0.1.attacker.example:4321", ""] {
        for path in paths {
            let reply = request(address, &format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n")).await;
            assert_eq!(reply.status, 421, "{host} {path}");
            assert!(!reply.body.contains("traces\""), "{}", reply.body);
        }
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "HEAD"] {
        let reply = request(address, &format!("{method} /api/traces HTTP/1.1\r\nhost: {address}\r\n")).await;
        assert_eq!(reply.status, 405, "{method}");
        assert!(reply.head.contains("allow: get"), "{}", reply.head);
    }
    let unknown =
        ["/nowhere", "/../Cargo.toml", "/page.js.map", "/api/traces/", "/api/traces/zz", "/api/traces?x=1"];
    for path in unknown {
        assert!([400, 404].contains(&get(address, path).await.status), "{path}");
    }
    let absent = format!("/api/traces/{}", "ab".repeat(16));
    assert_eq!(get(address, &absent).await.status, 404);
    for reply in [
        get(address, "/").await,
        get(address, "/nowhere").await,
        request(address, "GET / HTTP/1.1\r\nhost: x\r\n").await,
    ] {
        let policy = reply.head.lines().find(|line| line.starts_with("content-security-policy:")).unwrap();
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "require-trusted-types-for 'script'",
        ] {
            assert!(policy.contains(part), "{policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        for header in [
            "x-content-type-options: nosniff",
            "x-frame-options: deny",
            "referrer-policy: no-referrer",
            "cache-control: no-store",
        ] {
            assert!(reply.head.contains(header), "{header}: {}", reply.head);
        }
        assert!(!reply.head.contains("access-control"), "{}", reply.head);
    }
    Box::pin(process.stop()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_auth_nothing_is_answered_without_credentials() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens");
    std::fs::write(&tokens, "page-token\n").unwrap();
    let (process, address) = page(&format!(", auth: {{ bearer_token_file: {tokens:?} }}"), "").await;
    for path in ["/", "/page.js", "/api/traces", "/api/events", "/nowhere"] {
        let reply = get(address, path).await;
        assert_eq!(reply.status, 401, "{path}");
        assert!(reply.head.contains("www-authenticate: bearer"), "{}", reply.head);
    }
    let head = format!("GET /api/traces HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer page-token\r\n");
    assert_eq!(request(address, &head).await.status, 200);
    // Credentials do not replace the check of the host.
    let rebound = head.replace(&address.to_string(), "attacker.example");
    assert_eq!(request(address, &rebound).await.status, 421);
    let wrong = head.replace("page-token", "guess");
    assert_eq!(request(address, &wrong).await.status, 401);
    let refused = process.service.telemetry().page.refused.clone().map(|count| count.get());
    assert_eq!(refused, [6, 1, 0], "credentials, host, clients");
    Box::pin(process.stop()).await;
}

#[test]
fn an_address_on_the_network_is_refused_without_auth() {
    let refused = std::panic::catch_unwind(|| config(1, "page: { endpoint: '0.0.0.0:0' }"));
    let message = *refused.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("page.endpoint") && message.contains("set auth"), "{message}");
    config(1, "page: { endpoint: '0.0.0.0:0', auth: { bearer_token_file: /tokens } }");
}
