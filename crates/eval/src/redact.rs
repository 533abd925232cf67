//! Secrets and personal data out of texts, before a judge reads them and before an explanation
//! repeats them.
//!
//! In: any text. Out: the same text with what must not travel replaced by `[redacted: what]`.
//! Patterns are linear in their input and look for what is unmistakable: keys with a vendor's mark,
//! tokens after their scheme, values after their name, numbers with a check digit. What only looks
//! odd stays: a judge that cannot read the step cannot judge it.

use std::borrow::Cow;

use regex::{Captures, Regex, RegexSet};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict_config::Problem;

/// `verdict.redact`: what is taken out of texts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Redact {
    /// Default `known`. `off` sends content to judges as it stands.
    pub mode: Mode,
    /// Default none. Regular expressions of your own; what matches is taken out too.
    pub patterns: Vec<String>,
    /// Default none. Regular expressions of what stays: exceptions in mode `known`, and in mode
    /// `allow_list` all that is ever shown.
    pub allow: Vec<String>,
    /// Default true. Explanations on spans and in log events are redacted as well.
    pub explanations: bool,
}

impl Default for Redact {
    fn default() -> Redact {
        Redact { mode: Mode::Known, patterns: Vec::new(), allow: Vec::new(), explanations: true }
    }
}

/// How texts are redacted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Nothing is taken out.
    Off,
    /// Keys, tokens, passwords, private keys, e-mail addresses, card numbers and `patterns`.
    #[default]
    Known,
    /// Everything but what `allow` matches: for content of which only named words may leave.
    AllowList,
}

impl Redact {
    /// What is wrong with the values.
    pub fn problems(&self) -> Vec<Problem> {
        let mut out = Vec::new();
        for (key, patterns) in [("patterns", &self.patterns), ("allow", &self.allow)] {
            for (i, pattern) in patterns.iter().enumerate() {
                match compile(pattern) {
                    Err(why) => out.push(Problem::new(format!("{key}[{i}]"), why)),
                    Ok(regex) if regex.is_match("") => {
                        out.push(Problem::new(format!("{key}[{i}]"), "matches nothing at all, everywhere"));
                    }
                    Ok(_) => {}
                }
            }
        }
        if self.mode == Mode::AllowList && self.allow.is_empty() {
            let message = "mode allow_list without a pattern shows judges nothing";
            out.push(Problem::new("allow", message));
        }
        out
    }
}

/// Bytes that a compiled pattern of the user's may take.
const PATTERN_BYTES: usize = 1 << 20;

fn compile(pattern: &str) -> Result<Regex, String> {
    let mut builder = regex::RegexBuilder::new(pattern);
    let built = builder.size_limit(PATTERN_BYTES).dfa_size_limit(PATTERN_BYTES).build();
    built.map_err(|e| format!("'{pattern}' is not a regular expression: {e}"))
}

/// A pattern, and what stands in the place of its match: the groups `keep` and `end` stay.
struct Rule {
    regex: Regex,
    what: &'static str,
    holds: Holds,
}

/// Whether what a pattern matched is what it looks for.
type Holds = fn(&str) -> bool;

/// Any match counts.
fn always(_: &str) -> bool {
    true
}

regex!(KNOWN: Vec<Rule> = known());

fn known() -> Result<Vec<Rule>, regex::Error> {
    const SECRET_NAMES: &str = r"pass(?:word|wd|phrase)|pwd|secret(?:[_-]?key)?|api[_-]?key|access[_-]?key(?:[_-]?id)?|auth[_-]?token|access[_-]?token|refresh[_-]?token|session[_-]?token|client[_-]?secret|private[_-]?key|account[_-]?key|credentials?";
    let named = format!(
        r#"(?i)(?P<keep>(?:{SECRET_NAMES})\\?["']?[ \t]*(?:=|:)[ \t]*\\?["']?)[^\s"'\\,;&|{{}}()\[\]<>$`]{{4,}}"#
    );
    // No upper bounds: an automaton counts them state by state.
    let table: [(&str, &'static str, Holds); 9] = [
        (
            // Whole; or cut off, as far as it looks like one.
            r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----(?:(?:[^-]|-[A-Za-z])*-----END [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----|(?:\\[nr]|\s|[A-Za-z0-9+/=]{16,})*)",
            "private key",
            always,
        ),
        (VENDORS, "key", always),
        (r"(?-u:\b)eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*", "token", always),
        (r"(?i)(?P<keep>(?-u:\b)bearer[ \t]+)[A-Za-z0-9+/=._~-]{16,}", "token", always),
        (
            r#"(?i)(?P<keep>authorization\\?["']?[ \t]*[:=][ \t]*\\?["']?(?:basic|token|digest|apikey)[ \t]+)[A-Za-z0-9+/=._~:-]{6,}"#,
            "token",
            always,
        ),
        (r#"(?P<keep>://[^\s/:@"'<>]*:)[^\s/@"'<>]+(?P<end>@)"#, "password", always),
        (&named, "secret", is_value),
        (r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}", "e-mail", always),
        (r"(?-u:\b)[2-6][0-9](?:[ -]?[0-9]){11,17}(?-u:\b)", "card number", is_card),
    ];
    table
        .into_iter()
        .map(|(regex, what, holds)| Ok(Rule { regex: Regex::new(regex)?, what, holds }))
        .collect()
}

// All of `KNOWN` at once: most texts match none of them, which one search finds.
regex!(ANY_KNOWN: RegexSet = RegexSet::new(KNOWN.iter().map(|rule| rule.regex.as_str())));

/// Keys that carry their vendor's mark. Lengths are lower bounds of what the vendors give out.
const VENDORS: &str = concat!(
    r"(?-u:\b)(?:",
    // OpenAI, Anthropic, OpenRouter, DeepSeek and who copied them.
    r"sk-[A-Za-z0-9_-]{20,}",
    // Amazon.
    r"|(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{16}",
    // GitHub, GitLab.
    r"|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{22,}|glpat-[A-Za-z0-9_-]{20,}",
    // Slack, Telegram bots.
    r"|xox[abeoprs]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,}|[0-9]{8,10}:AA[A-Za-z0-9_-]{33}",
    // Google.
    r"|AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{20,}|GOCSPX-[A-Za-z0-9_-]{20,}",
    // Stripe, Square, Shopify.
    r"|[rsp]k_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9]{16,}|sq0[a-z]{3}-[A-Za-z0-9_-]{22,}|shp(?:at|ss|ca|pa)_[a-fA-F0-9]{32}",
    // Hugging Face, Groq, xAI, Perplexity, Replicate, Tavily, Langfuse, LangSmith, Databricks.
    r"|hf_[A-Za-z0-9]{30,}|gsk_[A-Za-z0-9]{40,}|xai-[A-Za-z0-9]{40,}|pplx-[A-Za-z0-9]{32,}|r8_[A-Za-z0-9]{30,}|tvly-[A-Za-z0-9_-]{20,}|[ps]k-lf-[a-f0-9-]{36}|lsv2_[a-z]{2}_[a-f0-9_]{32,}|dapi[a-f0-9]{32}",
    // npm, PyPI, DigitalOcean, SendGrid, Mailgun, Twilio, Linear, Notion, Atlassian, HashiCorp.
    r"|npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_-]{50,}|do[opr]_v1_[a-f0-9]{64}|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}|key-[a-f0-9]{32}|SK[a-f0-9]{32}|lin_api_[A-Za-z0-9]{32,}|(?:secret|ntn)_[A-Za-z0-9]{40,}|ATATT[A-Za-z0-9_=-]{50,}|hv[sb]\.[A-Za-z0-9_-]{24,}",
    r")",
);

/// What stands after the name of a secret is one, and not its type or its absence.
fn is_value(text: &str) -> bool {
    const NONE: [&str; 10] = [
        "null",
        "none",
        "true",
        "false",
        "string",
        "undefined",
        "optional",
        "required",
        "object",
        "redacted",
    ];
    let value = text.rsplit([':', '=']).next().unwrap_or_default();
    let value = value.trim_matches(|c: char| !c.is_alphanumeric());
    !NONE.iter().any(|none| value.eq_ignore_ascii_case(none))
}

/// Thirteen to nineteen digits with a valid check digit (Luhn).
fn is_card(text: &str) -> bool {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(10)).collect();
    if !(13..=19).contains(&digits.len()) || digits.iter().all(|d| d == &digits[0]) {
        return false;
    }
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(i, &d)| match i % 2 {
            0 => d,
            _ if d > 4 => 2 * d - 9,
            _ => 2 * d,
        })
        .sum();
    sum.is_multiple_of(10)
}

/// Takes out what `verdict.redact` says, resolved once.
#[derive(Clone, Debug, Default)]
pub struct Redactor {
    mode: Mode,
    patterns: Vec<Regex>,
    allow: Vec<Regex>,
}

/// By what they take out: compiled patterns of one text are alike.
impl PartialEq for Redactor {
    fn eq(&self, other: &Redactor) -> bool {
        let same = |a: &[Regex], b: &[Regex]| a.iter().map(Regex::as_str).eq(b.iter().map(Regex::as_str));
        self.mode == other.mode && same(&self.patterns, &other.patterns) && same(&self.allow, &other.allow)
    }
}

impl Redactor {
    /// Compiles the user's patterns.
    ///
    /// # Errors
    /// One of them is no regular expression, or too large; says which.
    pub fn new(config: &Redact) -> Result<Redactor, String> {
        let all = |patterns: &[String]| patterns.iter().map(|p| compile(p)).collect::<Result<Vec<_>, _>>();
        Ok(Redactor { mode: config.mode, patterns: all(&config.patterns)?, allow: all(&config.allow)? })
    }

    /// Takes nothing out.
    pub fn off() -> Redactor {
        Redactor { mode: Mode::Off, ..Redactor::default() }
    }

    /// The text without what must not travel.
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match self.mode {
            Mode::Off => Cow::Borrowed(text),
            Mode::AllowList => Cow::Owned(self.only_allowed(text)),
            Mode::Known => self.without_known(text),
        }
    }

    fn without_known<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut out = Cow::Borrowed(text);
        let any = ANY_KNOWN.is_match(text);
        for rule in KNOWN.iter().filter(|_| any) {
            let put = |found: &Captures<'_>| {
                let whole = &found[0];
                if !(rule.holds)(whole) || self.is_allowed(whole) {
                    return whole.to_owned();
                }
                let group = |name| found.name(name).map_or("", |m| m.as_str());
                format!("{}[redacted: {}]{}", group("keep"), rule.what, group("end"))
            };
            if let Cow::Owned(changed) = rule.regex.replace_all(&out, put) {
                out = Cow::Owned(changed);
            }
        }
        for pattern in &self.patterns {
            let put = |found: &Captures<'_>| match self.is_allowed(&found[0]) {
                true => found[0].to_owned(),
                false => "[redacted]".to_owned(),
            };
            if let Cow::Owned(changed) = pattern.replace_all(&out, put) {
                out = Cow::Owned(changed);
            }
        }
        out
    }

    fn is_allowed(&self, text: &str) -> bool {
        self.allow.iter().any(|allow| allow.find(text).is_some_and(|m| m.len() == text.len()))
    }

    /// The stretches that some pattern allows, in their order; what lies between is said to be gone.
    fn only_allowed(&self, text: &str) -> String {
        let mut spans: Vec<(usize, usize)> =
            self.allow.iter().flat_map(|allow| allow.find_iter(text)).map(|m| (m.start(), m.end())).collect();
        spans.sort_unstable();
        let mut out = String::new();
        let mut at = 0;
        let gap = |out: &mut String, between: &str| match between.trim().is_empty() {
            true => out.push_str(between),
            false => out.push_str(" [withheld] "),
        };
        for (start, end) in spans {
            if end <= at {
                continue;
            }
            let start = start.max(at);
            gap(&mut out, text.get(at..start).unwrap_or_default());
            out.push_str(text.get(start..end).unwrap_or_default());
            at = end;
        }
        gap(&mut out, text.get(at..).unwrap_or_default());
        out.trim().to_owned()
    }
}

#[cfg(test)]
mod tests;
