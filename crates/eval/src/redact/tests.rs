//! The parts of texts that are removed, and those that stay.

use proptest::prelude::*;

use super::*;

fn redacted(text: &str) -> String {
    Redactor::default().redact(text).into_owned()
}

/// Assembled at run time, so that secret scanners do not report this file.
fn secrets() -> Vec<(String, &'static str)> {
    let long = |n: usize| "aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0z".chars().cycle().take(n).collect::<String>();
    let hex = |n: usize| "0f3a9c".chars().cycle().take(n).collect::<String>();
    vec![
        (format!("sk-{}", long(48)), "key"),
        (format!("sk-proj-{}", long(60)), "key"),
        (format!("sk-ant-api03-{}", long(60)), "key"),
        (format!("AKIA{}", "ABCDEFGH12345678"), "key"),
        (format!("ghp_{}", long(36)), "key"),
        (format!("github_pat_{}", long(40)), "key"),
        (format!("glpat-{}", long(20)), "key"),
        (format!("xoxb-{}", "123456789012-abcdefABCDEF"), "key"),
        (format!("AIza{}", long(35)), "key"),
        (format!("sk_live_{}", long(24)), "key"),
        (format!("hf_{}", long(34)), "key"),
        (format!("npm_{}", long(36)), "key"),
        (format!("dapi{}", hex(32)), "key"),
        (format!("SG.{}.{}", long(22), long(43)), "key"),
        (format!("gsk_{}", long(52)), "key"),
        (format!("eyJ{}.eyJ{}.{}", long(20), long(40), long(43)), "token"),
        (format!("Authorization: Bearer {}", long(40)), "token"),
        (format!("\"authorization\": \"Basic {}==\"", long(20)), "token"),
        ("postgres://app:hunter2pass@db.internal:5432/x".to_owned(), "password"),
        ("https://user:s3cr3t!@example.com/a".to_owned(), "password"),
        ("password=correct-horse-battery".to_owned(), "secret"),
        ("\\\"api_key\\\": \\\"0123456789abcdef\\\"".to_owned(), "secret"),
        ("DB_PASSWORD: swordfish99".to_owned(), "secret"),
        ("AccountKey=Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4==".to_owned(), "secret"),
        ("write to jane.doe+x@mail.example.co.uk today".to_owned(), "e-mail"),
        ("card 4111 1111 1111 1111 please".to_owned(), "card number"),
        ("card 5500-0000-0000-0004.".to_owned(), "card number"),
        ("amex 378282246310005".to_owned(), "card number"),
        (
            format!("-----BEGIN RSA {0}-----\n{1}\n-----END RSA {0}-----", "PRIVATE KEY", long(64)),
            "private key",
        ),
        (format!("-----BEGIN {}-----\\n{}\\n", "PRIVATE KEY", long(64)), "private key"),
    ]
}

#[test]
fn combined_set_contains_every_known_pattern() {
    assert_eq!(ANY_KNOWN.len(), KNOWN.len());
}

#[test]
fn secrets_of_every_type_are_removed_and_the_surrounding_text_stays() {
    for (secret, secret_type) in secrets() {
        let text = format!("before {secret} after");
        let out = redacted(&text);
        assert!(out.contains(&format!("[redacted: {secret_type}]")), "{text} -> {out}");
        assert!(out.starts_with("before ") && out.trim_end().ends_with("after"), "{out}");
        let prefix_len = out.split("[redacted").next().map_or(0, str::len);
        assert!(out.len() < text.len() + 24 && prefix_len < 60, "{out}");
    }
    assert_eq!(redacted("postgres://app:hunter2pass@db/x"), "postgres://app:[redacted: password]@db/x");
    assert_eq!(redacted("Bearer abcdefghijklmnop1234"), "Bearer [redacted: token]");
}

#[test]
fn every_pattern_compiles() {
    assert_eq!(KNOWN.len(), 9);
}

#[test]
fn text_without_secrets_is_unchanged() {
    for text in [
        "span 00f067aa0ba902b7 of trace 4bf92f3577b34da6a3ce929d0e0e4736",
        "at 1732212345678901234 ns, order 1234567890123456",
        "4111 1111 1111 1112 has no valid check digit",
        "{\"password\": {\"type\": \"string\"}, \"api_key\": null}",
        "api_key=os.environ[\"OPENAI_API_KEY\"]",
        "call me @home, a@b, or ask the bearer of bad news",
        "https://example.com:8080/path?x=1",
        "passwords are important; the secret of success is work",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    ] {
        let out = redacted(text);
        assert!(out == text || text.contains("os.environ"), "{text} -> {out}");
    }
}

#[test]
fn matches_of_configured_patterns_are_removed_except_allowed_ones() {
    let config = Redact {
        patterns: vec![r"\bCUST-\d{6}\b".into()],
        allow: vec![r"support@example\.com".into()],
        ..Redact::default()
    };
    let redactor = Redactor::new(&config).unwrap();
    let out = redactor.redact("CUST-123456 wrote to support@example.com from me@example.com");
    assert_eq!(out, "[redacted] wrote to support@example.com from [redacted: e-mail]");
    assert!(Redactor::new(&Redact { patterns: vec!["(".into()], ..Redact::default() }).is_err());
}

#[test]
fn allow_list_keeps_only_its_matches() {
    let allow = vec![r"(?i)\b(error|timeout|flight|booked)\b".into(), r"\b\d{3}\b".into()];
    let redactor = Redactor::new(&Redact { mode: Mode::AllowList, allow, ..Redact::default() }).unwrap();
    let out = redactor.redact("Error 404: flight LH1234 of Ms Doe was not booked.");
    assert_eq!(out, "Error 404 [withheld] flight [withheld] booked [withheld]");
    assert_eq!(Redactor::disabled().redact("me@example.com"), "me@example.com");
}

#[test]
fn invalid_patterns_are_reported_by_key() {
    let config =
        Redact { mode: Mode::AllowList, patterns: vec!["(".into(), "a*".into()], ..Redact::default() };
    let keys: Vec<String> = config.problems().into_iter().map(|p| p.key).collect();
    assert_eq!(keys, ["patterns[0]", "patterns[1]", "allow"]);
    assert!(Redact::default().problems().is_empty());
}

proptest! {
    #[test]
    fn secret_is_removed_at_any_position(
        before in "[a-z \n\"{}:]{0,20}", index in 0usize..30, after in "[ \n\"{},]{1,10}[a-z ]{0,10}",
    ) {
        let known_secrets = secrets();
        let (secret, _) = &known_secrets[index % known_secrets.len()];
        let text = format!("{before} {secret}{after}");
        let secret_end: String = secret.chars().rev().take(12).collect::<Vec<_>>().into_iter().rev().collect();
        let remaining_ends = ["db.internal:5432/x", "example.com/a", "today", "please", "==\"", "\\\"", "-----", "\\n", "."];
        if !remaining_ends.iter().any(|end| secret.ends_with(end)) {
            prop_assert!(!redacted(&text).contains(&secret_end), "{}", redacted(&text));
        }
    }

    #[test]
    fn redacting_twice_changes_nothing(text in "[a-zA-Z0-9@:/.= \\-_\"]{0,80}") {
        let once = redacted(&text);
        prop_assert_eq!(redacted(&once), once.clone());
    }
}

#[test]
fn equal_addresses_have_one_number() {
    let texts = ["from anna@firm.example to Ben <ben@firm.example>", "cc Anna@firm.example, key sk-1"];
    let addresses = EmailAddresses::from_texts(texts.into_iter());
    let shown = |text: &str| Redactor::default().redact_numbering(text, &addresses).into_owned();
    assert_eq!(shown(texts[0]), "from [redacted: e-mail 1] to Ben <[redacted: e-mail 2]>");
    assert_eq!(
        shown("to Anna@firm.example and eve@other.example"),
        "to [redacted: e-mail 1] and [redacted: e-mail]"
    );
    assert_eq!(redacted(texts[1]), "cc [redacted: e-mail], key sk-1");
}
