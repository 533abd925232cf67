//! Removes secrets and personal data from texts before a judge reads them and before an explanation
//! quotes them.
//!
//! In: any text. Out: the same text with each secret replaced by `[redacted: <type>]`. In texts for judges, equal
//! e-mail addresses of a trace have the same number. Patterns are linear in their input and match only unambiguous
//! secrets: keys with a vendor's prefix, tokens after their scheme, values after their name, numbers with a valid check
//! digit. Text that is merely unusual stays, since a judge needs it to understand the step.

use std::borrow::Cow;

use foldhash::HashMap;
use regex::{Captures, Regex, RegexSet};

use crate::pattern::unicode_regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict_config::Problem;

/// `verdict.redact`: what is removed from texts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Redact {
    /// Default `known`. `off` sends content to judges unchanged.
    pub mode: Mode,
    /// Default none. Regular expressions whose matches are removed as well.
    pub patterns: Vec<String>,
    /// Default none. Regular expressions whose matches stay: exceptions in mode `known`; in mode
    /// `allow_list` everything else is removed.
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
    /// Nothing is removed.
    Off,
    /// Keys, tokens, passwords, private keys, e-mail addresses, card numbers and `patterns`.
    #[default]
    Known,
    /// Everything except matches of `allow`, for content of which only known words may be sent.
    AllowList,
}

impl Redact {
    /// The invalid values.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let mut out = Vec::new();
        for (key, patterns) in [("patterns", &self.patterns), ("allow", &self.allow)] {
            for (i, pattern) in patterns.iter().enumerate() {
                let problem = match compile(pattern) {
                    Err(error) => error.to_string(),
                    Ok(regex) if regex.is_match("") => format!("'{pattern}' matches the empty text"),
                    Ok(_) => continue,
                };
                out.push(Problem::new(format!("{key}[{i}]"), problem));
            }
        }
        if self.mode == Mode::AllowList && self.allow.is_empty() {
            out.push(Problem::new(
                "allow",
                "mode allow_list needs a pattern; without one it removes all text",
            ));
        }
        out
    }
}

/// Maximum size of a compiled pattern of the configuration.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// A pattern of `redact` that is no regular expression, or is too large.
#[derive(Debug, thiserror::Error)]
#[error("'{pattern}' is not a regular expression: {source}")]
pub struct InvalidPattern {
    pattern: String,
    source: regex::Error,
}

#[allow(clippy::disallowed_methods, reason = "a pattern of the configuration, of bounded size")]
fn compile(pattern: &str) -> Result<Regex, InvalidPattern> {
    let mut builder = regex::RegexBuilder::new(pattern);
    let built = builder.size_limit(MAX_PATTERN_BYTES).dfa_size_limit(MAX_PATTERN_BYTES).build();
    built.map_err(|source| InvalidPattern { pattern: pattern.to_owned(), source })
}

/// A pattern and the type of its matches. The groups `keep` and `end` of a match stay.
struct RedactionRule {
    regex: Regex,
    secret_type: &'static str,
    is_secret: SecretCheck,
}

/// Whether a match of a pattern is a secret.
type SecretCheck = fn(&str) -> bool;

/// Every match is a secret.
fn always(_: &str) -> bool {
    true
}

checked_static!(KNOWN: Vec<RedactionRule> = known_rules());

fn known_rules() -> Result<Vec<RedactionRule>, regex::Error> {
    const SECRET_NAMES: &str = r"pass(?:word|wd|phrase)|pwd|secret(?:[_-]?key)?|api[_-]?key|access[_-]?key(?:[_-]?id)?|auth[_-]?token|access[_-]?token|refresh[_-]?token|session[_-]?token|client[_-]?secret|private[_-]?key|account[_-]?key|credentials?";
    let named = format!(
        r#"(?i)(?P<keep>(?:{SECRET_NAMES})\\?["']?[ \t]*(?:=|:)[ \t]*\\?["']?)[^\s"'\\,;&|{{}}()\[\]<>$`]{{4,}}"#
    );
    // No upper bounds: an automaton needs a state for each repetition.
    let table: [(&str, &'static str, SecretCheck); 9] = [
        (
            // A whole key, or the part of a truncated one that looks like a key.
            r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----(?:(?:[^-]|-[A-Za-z])*-----END [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----|(?:\\[nr]|\s|[A-Za-z0-9+/=]{16,})*)",
            "private key",
            always,
        ),
        (VENDOR_KEYS, "key", always),
        (r"(?-u:\b)eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*", "token", always),
        (r"(?i)(?P<keep>(?-u:\b)bearer[ \t]+)[A-Za-z0-9+/=._~-]{16,}", "token", always),
        (
            r#"(?i)(?P<keep>authorization\\?["']?[ \t]*[:=][ \t]*\\?["']?(?:basic|token|digest|apikey)[ \t]+)[A-Za-z0-9+/=._~:-]{6,}"#,
            "token",
            always,
        ),
        (r#"(?P<keep>://[^\s/:@"'<>]*:)[^\s/@"'<>]+(?P<end>@)"#, "password", always),
        (&named, "secret", is_secret_value),
        (E_MAIL_PATTERN, E_MAIL_TYPE, always),
        (r"(?-u:\b)[2-6][0-9](?:[ -]?[0-9]){11,17}(?-u:\b)", "card number", is_card_number),
    ];
    let rules = table.into_iter();
    rules
        .map(|(regex, secret_type, is_secret)| {
            Ok(RedactionRule { regex: unicode_regex(regex)?, secret_type, is_secret })
        })
        .collect()
}

// All patterns of `KNOWN` in one search: most texts match none of them.
checked_static!(ANY_KNOWN: RegexSet = any_known());

#[allow(clippy::disallowed_methods, reason = "the one set of patterns")]
fn any_known() -> Result<RegexSet, regex::Error> {
    RegexSet::new(KNOWN.iter().map(|rule| rule.regex.as_str()))
}

const E_MAIL_TYPE: &str = "e-mail";
const E_MAIL_PATTERN: &str = r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}";
regex!(E_MAIL_ADDRESS, E_MAIL_PATTERN);

/// Maximum number of addresses of a trace that get a number; a bound on memory.
const MAX_ADDRESSES: usize = 1_000;

/// The e-mail addresses of a trace, numbered from 1 in the order of their first occurrence.
#[derive(Debug, Default)]
pub(crate) struct EmailAddresses(HashMap<String, usize>);

impl EmailAddresses {
    /// The addresses of these texts.
    pub(crate) fn from_texts<'t>(texts: impl Iterator<Item = &'t str>) -> EmailAddresses {
        let mut numbers = HashMap::default();
        for address in texts.filter(|text| text.contains('@')).flat_map(|text| E_MAIL_ADDRESS.find_iter(text))
        {
            if numbers.len() == MAX_ADDRESSES {
                break;
            }
            let number = numbers.len() + 1;
            numbers.entry(address.as_str().to_ascii_lowercase()).or_insert(number);
        }
        EmailAddresses(numbers)
    }

    fn number(&self, address: &str) -> Option<usize> {
        self.0.get(&address.to_ascii_lowercase()).copied()
    }
}

/// Keys with a vendor's prefix. Lengths are lower bounds of the vendors' formats.
const VENDOR_KEYS: &str = concat!(
    r"(?-u:\b)(?:",
    // OpenAI, Anthropic, OpenRouter, DeepSeek and compatible vendors.
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

/// Whether the value after the name of a secret is a secret, and not a type or a placeholder.
fn is_secret_value(text: &str) -> bool {
    const NOT_SECRET: [&str; 10] = [
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
    !NOT_SECRET.iter().any(|none| value.eq_ignore_ascii_case(none))
}

/// Whether the text has thirteen to nineteen digits, not all equal, with a valid check digit (Luhn).
fn is_card_number(text: &str) -> bool {
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

/// Removes the secrets and personal data that `verdict.redact` selects. The patterns are compiled once.
#[derive(Clone, Debug, Default)]
pub struct Redactor {
    mode: Mode,
    patterns: Vec<Regex>,
    allow: Vec<Regex>,
}

/// By configuration: compiled patterns are compared by their source.
impl PartialEq for Redactor {
    fn eq(&self, other: &Redactor) -> bool {
        let equal_sources =
            |a: &[Regex], b: &[Regex]| a.iter().map(Regex::as_str).eq(b.iter().map(Regex::as_str));
        self.mode == other.mode
            && equal_sources(&self.patterns, &other.patterns)
            && equal_sources(&self.allow, &other.allow)
    }
}

impl Redactor {
    /// Compiles the patterns of the configuration.
    ///
    /// # Errors
    /// A pattern is no regular expression, or is too large.
    pub fn new(config: &Redact) -> Result<Redactor, InvalidPattern> {
        let compile_all =
            |patterns: &[String]| patterns.iter().map(|p| compile(p)).collect::<Result<Vec<_>, _>>();
        Ok(Redactor {
            mode: config.mode,
            patterns: compile_all(&config.patterns)?,
            allow: compile_all(&config.allow)?,
        })
    }

    /// Removes nothing.
    pub fn disabled() -> Redactor {
        Redactor { mode: Mode::Off, ..Redactor::default() }
    }

    /// The text without secrets and personal data.
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.redact_numbering(text, &EmailAddresses::default())
    }

    /// The redacted text, with the numbers of e-mail addresses: `[redacted: e-mail 2]`. With the numbers, a judge that
    /// sees no address can decide whether a message went to the intended person.
    pub(crate) fn redact_numbering<'t>(&self, text: &'t str, addresses: &EmailAddresses) -> Cow<'t, str> {
        match self.mode {
            Mode::Off => Cow::Borrowed(text),
            Mode::AllowList => Cow::Owned(self.only_allowed(text)),
            Mode::Known => self.without_known(text, addresses),
        }
    }

    fn without_known<'t>(&self, text: &'t str, addresses: &EmailAddresses) -> Cow<'t, str> {
        let mut out = Cow::Borrowed(text);
        let rules = if ANY_KNOWN.is_match(text) { &KNOWN[..] } else { &[] };
        for rule in rules {
            let is_secret = |text: &str| (rule.is_secret)(text) && !self.is_allowed(text);
            replace(&mut out, &rule.regex, is_secret, |captures| {
                let group = |name| captures.name(name).map_or("", |m| m.as_str());
                let number =
                    (rule.secret_type == E_MAIL_TYPE).then(|| addresses.number(&captures[0])).flatten();
                let number = number.map_or_else(String::new, |n| format!(" {n}"));
                format!("{}[redacted: {}{number}]{}", group("keep"), rule.secret_type, group("end"))
            });
        }
        for pattern in &self.patterns {
            replace(&mut out, pattern, |text| !self.is_allowed(text), |_| "[redacted]".to_owned());
        }
        out
    }

    fn is_allowed(&self, text: &str) -> bool {
        self.allow.iter().any(|allow| allow.find(text).is_some_and(|m| m.len() == text.len()))
    }

    /// The matches of the allowed patterns in order. Text between them is replaced by `[withheld]`.
    fn only_allowed(&self, text: &str) -> String {
        let matches = self.allow.iter().flat_map(|allow| allow.find_iter(text));
        let mut ranges: Vec<(usize, usize)> = matches.map(|m| (m.start(), m.end())).collect();
        ranges.sort_unstable();
        ranges.push((text.len(), text.len()));
        let mut out = String::new();
        let mut copied_end = 0;
        for (start, end) in ranges {
            let between = text.get(copied_end..start).unwrap_or_default();
            out.push_str(if between.trim().is_empty() { between } else { " [withheld] " });
            out.push_str(text.get(start.max(copied_end)..end).unwrap_or_default());
            copied_end = copied_end.max(end);
        }
        out.trim().to_owned()
    }
}

/// Replaces the matches of `regex` that are secrets.
fn replace(
    text: &mut Cow<'_, str>,
    regex: &Regex,
    is_secret: impl Fn(&str) -> bool,
    replacement: impl Fn(&Captures<'_>) -> String,
) {
    let replaced = regex.replace_all(text, |captures: &Captures<'_>| match is_secret(&captures[0]) {
        true => replacement(captures),
        false => captures[0].to_owned(),
    });
    if let Cow::Owned(replaced) = replaced {
        *text = Cow::Owned(replaced);
    }
}

#[cfg(test)]
mod tests;
