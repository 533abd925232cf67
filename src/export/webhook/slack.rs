//! Messages of Slack webhooks: a line of ours as mrkdwn, content of traces as plain text, which Slack does not parse.

use serde_json::{Value, json};

use super::alert::Alert;
use super::recent::LeftOut;
use crate::export::webhook_config::Occasion;
use crate::plain_text::is_hidden;

/// Longest plain text of content in characters; Slack refuses blocks above 3,000.
const MAX_TEXT: usize = 1500;
/// Longest name of an agent, service or metric.
const MAX_NAME: usize = 80;

/// Text that means nothing in mrkdwn: `&`, `<` and `>` as Slack requires, and a zero-width space after characters
/// that format, so that no pair of them is found. Inside of a word `_` does not format, so that names can be copied.
pub(super) fn escaped(text: &str, max: usize) -> String {
    let mut out = String::new();
    let mut chars = text.chars().take(max).peekable();
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

fn plain(text: &str) -> Value {
    let shown = |c: char| if is_hidden(c) && c != '\n' { ' ' } else { c };
    let text: String = text.chars().take(MAX_TEXT).map(shown).collect();
    json!({ "type": "section", "text": { "type": "plain_text", "text": text, "emoji": false } })
}

/// The message of an alert.
pub(super) fn message(alert: &Alert, left_out: LeftOut, link: Option<&str>) -> Value {
    let headline = headline(alert);
    let mut blocks = vec![json!({ "type": "section", "text": { "type": "mrkdwn", "text": headline } })];
    let explained: Vec<String> = alert
        .failures
        .iter()
        .filter_map(|f| Some(format!("{}: {}", f.metric, f.explanation.as_deref()?)))
        .collect();
    let text = match explained.is_empty() {
        false => Some(explained.join("\n")),
        true => alert.explanation.clone(),
    };
    blocks.extend(text.filter(|text| !text.trim().is_empty()).map(|text| plain(&text)));
    blocks.push(json!({ "type": "context", "elements": [{ "type": "mrkdwn", "text": context(alert, left_out, link) }] }));
    json!({ "text": headline, "blocks": blocks, "unfurl_links": false, "unfurl_media": false })
}

fn headline(alert: &Alert) -> String {
    let name = |value: &Option<String>| value.as_deref().map(|name| escaped(name, MAX_NAME));
    let who = name(&alert.agent).or_else(|| name(&alert.service)).unwrap_or_else(|| "a trace".to_owned());
    match alert.occasion {
        Occasion::Fail => {
            let metrics: Vec<String> =
                alert.failed_metrics.iter().take(5).map(|metric| escaped(metric, MAX_NAME)).collect();
            let severity = alert.severity.map(|s| format!(", severity {}", s.as_str())).unwrap_or_default();
            format!("*Failed*: {who}{severity}: {}", metrics.join(", "))
        }
        Occasion::Unmeasured => format!("*Unmeasured*: {who}"),
        Occasion::Pass => format!("*Passed*: {who}"),
        Occasion::Budget => format!("*Judges' budget spent*: {who}"),
        Occasion::Alarm => {
            let cause = name(&alert.cause).unwrap_or_default();
            let verb = if alert.state.as_deref() == Some("retracted") { "retracted" } else { "raised" };
            format!("*Alarm {verb}* in an open trace: {who}: {cause}")
        }
    }
}

fn context(alert: &Alert, LeftOut { repeated, limited }: LeftOut, link: Option<&str>) -> String {
    let mut parts = vec![match link {
        // A URL of the configuration with hex digits in it.
        Some(link) => format!("<{}|trace {}>", escaped_url(link), alert.trace_id),
        None => format!("trace {}", alert.trace_id),
    }];
    parts.extend(alert.service.as_deref().map(|service| format!("service {}", escaped(service, MAX_NAME))));
    parts.extend(
        alert.signature.as_deref().map(|signature| format!("signature {}", escaped(signature, MAX_NAME))),
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
