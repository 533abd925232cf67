//! Messages for Slack webhooks: a generated headline as mrkdwn, and content of traces as plain text, which Slack does
//! not parse.

use serde_json::{Value, json};

use super::alert::Alert;
use super::recent::OmittedAlerts;
use crate::export::webhook_config::Occasion;
use crate::plain_text::is_hidden;

/// Maximum characters of plain text; Slack refuses blocks above 3,000.
const MAX_TEXT_CHARS: usize = 1500;
/// Maximum characters of the name of an agent, service or metric.
const MAX_NAME_CHARS: usize = 80;

/// Escapes text for mrkdwn: `&`, `<` and `>` as Slack requires, and a zero-width space after formatting characters, so
/// that they form no pair. Within a word `_` is no formatting character and is not escaped, so that names can be
/// copied.
pub(super) fn escaped(text: &str, max_chars: usize) -> String {
    let mut out = String::new();
    let mut chars = text.chars().take(max_chars).peekable();
    while let Some(c) = chars.next() {
        let in_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        match c {
            '_' if in_word(out.chars().last()) && in_word(chars.peek().copied()) => out.push(c),
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '*' | '_' | '~' | '`' | '@' | '#' | ':' => out.extend([c, '\u{200b}']),
            c if is_hidden(c) => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// A block of plain text without hidden characters.
fn plain_block(text: &str) -> Value {
    let without_hidden = |c: char| if is_hidden(c) && c != '\n' { ' ' } else { c };
    let text: String = text.chars().take(MAX_TEXT_CHARS).map(without_hidden).collect();
    json!({ "type": "section", "text": { "type": "plain_text", "text": text, "emoji": false } })
}

/// The message of an alert.
pub(super) fn message(alert: &Alert, omitted: OmittedAlerts, link: Option<&str>) -> Value {
    let headline = headline(alert);
    let mut blocks = vec![json!({ "type": "section", "text": { "type": "mrkdwn", "text": headline } })];
    let explanations: Vec<String> = alert
        .failures
        .iter()
        .filter_map(|f| Some(format!("{}: {}", f.metric, f.explanation.as_deref()?)))
        .collect();
    let text = match explanations.is_empty() {
        false => Some(explanations.join("\n")),
        true => alert.explanation.clone(),
    };
    blocks.extend(text.filter(|text| !text.trim().is_empty()).map(|text| plain_block(&text)));
    blocks.push(json!({ "type": "context", "elements": [{ "type": "mrkdwn", "text": context(alert, omitted, link) }] }));
    json!({ "text": headline, "blocks": blocks, "unfurl_links": false, "unfurl_media": false })
}

fn headline(alert: &Alert) -> String {
    let name = |value: &Option<String>| value.as_deref().map(|name| escaped(name, MAX_NAME_CHARS));
    let subject = name(&alert.agent).or_else(|| name(&alert.service)).unwrap_or_else(|| "a trace".to_owned());
    match alert.occasion {
        Occasion::Fail => {
            let metrics: Vec<String> =
                alert.failed_metrics.iter().take(5).map(|metric| escaped(metric, MAX_NAME_CHARS)).collect();
            let severity = alert.severity.map(|s| format!(", severity {}", s.as_str())).unwrap_or_default();
            format!("*Failed*: {subject}{severity}: {}", metrics.join(", "))
        }
        Occasion::Unmeasured => format!("*Unmeasured*: {subject}"),
        Occasion::Pass => format!("*Passed*: {subject}"),
        Occasion::Budget => format!("*Judges' budget spent*: {subject}"),
        Occasion::Alarm => {
            let cause = name(&alert.cause).unwrap_or_default();
            let verb = if alert.state.as_deref() == Some("retracted") { "retracted" } else { "raised" };
            format!("*Alarm {verb}* in an open trace: {subject}: {cause}")
        }
    }
}

/// The last line of a message: trace, service, signature, and the numbers of alerts that were left out.
fn context(alert: &Alert, OmittedAlerts { repeated, limited }: OmittedAlerts, link: Option<&str>) -> String {
    let mut parts = vec![match link {
        // The link is the configured URL with ids in hexadecimal digits.
        Some(link) => format!("<{}|trace {}>", escaped_url(link), alert.trace_id),
        None => format!("trace {}", alert.trace_id),
    }];
    parts.extend(
        alert.service.as_deref().map(|service| format!("service {}", escaped(service, MAX_NAME_CHARS))),
    );
    parts.extend(
        alert
            .signature
            .as_deref()
            .map(|signature| format!("signature {}", escaped(signature, MAX_NAME_CHARS))),
    );
    if repeated > 0 {
        parts.push(format!("{repeated} more of this kind since the last message"));
    }
    if limited > 0 {
        parts.push(format!("{limited} alerts were not sent, because of max_per_minute"));
    }
    parts.join(" · ")
}

fn escaped_url(url: &str) -> String {
    url.replace('&', "&amp;").replace('<', "%3C").replace('>', "%3E").replace('|', "%7C")
}
