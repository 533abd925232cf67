//! The message of a server's error.
//!
//! In: the body of an error response. Out: its message with secrets and judged content removed, for people; and all
//! its words, by which a refused parameter is recognised. Servers quote keys and parts of prompts in errors, so the
//! message itself is never logged.

use std::fmt;

use serde_json::Value;
use verdict_config::Secret;
use verdict_eval::Asker;

use crate::config::JudgeConfig;

/// Largest size of a message in bytes.
const MAX_MESSAGE_BYTES: usize = 2 << 10;
/// Largest size in bytes of a message as it is shown.
const MAX_SHOWN_BYTES: usize = 300;
/// Largest depth at which messages and names of parameters are looked for.
const MAX_DEPTH: usize = 6;
/// Smallest number of bytes of a part of a message that counts as judged content if the prompt contains it.
const MIN_SHARED_BYTES: usize = 12;
/// The same for a part in quotation marks; shorter ones are names of parameters or numbers.
const MIN_QUOTED_BYTES: usize = 3;
const REMOVED: &str = "[...]";

/// The message of a server's error as received. It is shown only after secrets and content are removed.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct ServerMessage {
    message: String,
    /// The message, and the names and codes around it, in lower case.
    words: String,
}

impl fmt::Debug for ServerMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

impl ServerMessage {
    pub(crate) fn from_body(body: &Value) -> ServerMessage {
        let (mut message, mut words) = (String::new(), String::new());
        match body {
            Value::String(text) if !text.trim_start().starts_with('<') => push(&mut message, text),
            // An error page.
            Value::String(_) => {}
            other => collect(other, "", 0, &mut message, &mut words),
        }
        let words = format!("{message} {words}").to_lowercase();
        ServerMessage { message, words }
    }

    /// The words by which a refused part of a request is recognised.
    pub(crate) fn words(&self) -> &str {
        &self.words
    }

    /// The message without the judge's credentials, other secrets, and parts that `prompt` contains.
    pub(crate) fn shown(&self, config: &JudgeConfig, prompt: &str) -> String {
        let mut text = self.message.clone();
        for secret in config.api_key.iter().chain(config.headers.values()).map(Secret::expose) {
            if !secret.is_empty() {
                text = text.replace(secret, REMOVED);
            }
        }
        let text = Asker::default().clean(&without_content(&text, prompt));
        let mut line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if line.len() > MAX_SHOWN_BYTES {
            line.truncate(line.floor_char_boundary(MAX_SHOWN_BYTES));
            line.push_str("...");
        }
        line
    }
}

/// Texts under the keys that servers use for messages go to `message`, names and codes to `words`; other values, such
/// as the `input` that validators repeat, are left out.
fn collect(value: &Value, key: &str, depth: usize, message: &mut String, words: &mut String) {
    if depth > MAX_DEPTH {
        return;
    }
    match value {
        Value::String(text) => match key {
            "message" | "msg" | "detail" | "error" | "error_description" => push(message, text),
            "param" | "loc" | "code" | "type" | "status" | "reason" | "field" => push(words, text),
            _ => {}
        },
        Value::Array(items) => {
            items.iter().take(8).for_each(|item| collect(item, key, depth + 1, message, words))
        }
        Value::Object(entries) => {
            entries.iter().for_each(|(key, value)| collect(value, key, depth + 1, message, words));
        }
        _ => {}
    }
}

fn push(out: &mut String, text: &str) {
    if !out.is_empty() {
        out.push_str("; ");
    }
    let space = MAX_MESSAGE_BYTES.saturating_sub(out.len());
    out.push_str(&text[..text.floor_char_boundary(space)]);
}

/// `text` without the quoted parts and the long parts that `prompt` contains.
fn without_content(text: &str, prompt: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let quoted = quoted(rest).filter(|inner| inner.len() >= MIN_QUOTED_BYTES && prompt.contains(inner));
        let shared_length = quoted.map_or_else(|| shared_length(rest, prompt), |inner| inner.len() + 2);
        if shared_length > 0 {
            out.push_str(REMOVED);
            rest = rest.get(shared_length..).unwrap_or_default();
        } else {
            out.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    out
}

/// The text between a quotation mark at the beginning and the next one.
fn quoted(text: &str) -> Option<&str> {
    let mark = text.chars().next().filter(|c| matches!(c, '\'' | '"' | '`'))?;
    text[1..].split_once(mark).map(|(inner, _)| inner)
}

/// The length of the longest beginning of `text` that `prompt` contains; 0 if it is shorter than [`MIN_SHARED_BYTES`].
fn shared_length(text: &str, prompt: &str) -> usize {
    let mut length = text.ceil_char_boundary(MIN_SHARED_BYTES);
    if length < MIN_SHARED_BYTES || !prompt.contains(&text[..length]) {
        return 0;
    }
    while length < text.len() {
        let next = text.ceil_char_boundary(length + 1);
        if !prompt.contains(&text[..next]) {
            break;
        }
        length = next;
    }
    length
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown(body: &Value, prompt: &str) -> String {
        let config = JudgeConfig { api_key: Some(Secret::new("hunter2-key")), ..JudgeConfig::default() };
        ServerMessage::from_body(body).shown(&config, prompt)
    }

    #[test]
    fn messages_of_every_shape_are_found() {
        for body in [
            json!({ "error": { "message": "no such model", "type": "invalid_request_error" } }),
            json!({ "type": "error", "error": { "type": "not_found_error", "message": "no such model" } }),
            json!({ "object": "error", "message": "no such model", "code": 400 }),
            json!({ "detail": [{ "type": "extra_forbidden", "loc": ["body", "x"], "msg": "no such model", "input": "private" }] }),
            json!({ "error": "no such model" }),
            json!("no such model"),
        ] {
            assert_eq!(shown(&body, ""), "no such model", "{body}");
        }
        assert_eq!(shown(&json!("<html>502</html>"), ""), "");
        let words = ServerMessage::from_body(
            &json!({ "detail": [{ "loc": ["body", "Max_Tokens"], "input": "temperature" }] }),
        );
        assert!(words.words().contains("max_tokens") && !words.words().contains("temperature"));
    }

    #[test]
    fn keys_and_content_are_removed() {
        let body = json!({ "error": { "message":
            "wrong key hunter2-key (sk-abcdefghijklmnopqrstuvwx) for 'Jane Roe': cannot read her private diary of May" } });
        let text = shown(&body, "Dear Jane Roe, this is her private diary of May 3.");
        assert!(text.starts_with("wrong key [...]"), "{text}");
        for secret in ["hunter2", "sk-abc", "Jane", "diary"] {
            assert!(!text.contains(secret), "{text}");
        }
        assert!(text.contains("cannot read"), "{text}");
    }

    #[test]
    fn a_long_message_is_cut() {
        let text = shown(&json!({ "message": "größere Werte ".repeat(500) }), "");
        assert!(text.len() <= MAX_SHOWN_BYTES + 3 && text.ends_with("..."));
    }
}
