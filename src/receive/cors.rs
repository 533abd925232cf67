//! Which web pages may send: cross-origin requests over OTLP/HTTP.
//!
//! In: [`Cors`], and the headers of a request. Out: the headers that let a browser send, or read
//! the answer. Nothing else depends on it: who is not a browser may send without asking, so it is
//! no substitute for `auth`.

use http::{HeaderMap, HeaderValue, Method, header};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What OTLP in a browser needs beyond what browsers always allow.
const ALWAYS: &str = "accept, content-type, content-encoding, x-requested-with";

/// `cors` of OTLP/HTTP. Left out, browsers let no page of another origin send.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Cors {
    /// Origins whose pages may send: `https://app.example`, `https://*.app.example`, or `*` for
    /// every page on the web.
    pub allowed_origins: Vec<String>,
    /// Headers that such pages may set, such as `authorization`, beside `accept`, `content-type`,
    /// `content-encoding` and `x-requested-with`. `*`: any.
    pub allowed_headers: Vec<String>,
    /// Seconds for which a browser may remember the answer to its question. Default 0: what
    /// browsers take by themselves, some five seconds.
    pub max_age: u32,
}

impl Cors {
    /// What is wrong with the values, as (key below `cors`, message).
    pub(crate) fn problems(&self) -> Vec<(String, String)> {
        let mut problems = Vec::new();
        if self.allowed_origins.is_empty() {
            problems.push(("allowed_origins".to_owned(), "no page could send: name an origin".to_owned()));
        }
        for (i, origin) in self.allowed_origins.iter().enumerate() {
            let whole = origin.split_once("://").is_some_and(|(_, host)| {
                !host.is_empty() && !host.contains('/') && origin.matches('*').count() <= 1
            });
            if origin != "*" && !whole {
                let message = format!("{origin:?} is not like https://app.example or https://*.app.example");
                problems.push((format!("allowed_origins[{i}]"), message));
            }
        }
        for (i, name) in self.allowed_headers.iter().enumerate() {
            if name != "*" && http::HeaderName::try_from(name.as_str()).is_err() {
                problems.push((format!("allowed_headers[{i}]"), format!("{name:?} is no header")));
            }
        }
        problems
    }

    /// The answer to a browser's question whether it may send, if that is what this request is.
    pub(crate) fn preflight(&self, method: &Method, asked: &HeaderMap) -> Option<HeaderMap> {
        if method != Method::OPTIONS || !asked.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD) {
            return None;
        }
        let mut answer = HeaderMap::new();
        answer.insert(
            header::VARY,
            HeaderValue::from_static("Origin, Access-Control-Request-Method, Access-Control-Request-Headers"),
        );
        if !self.name_origin(asked, &mut answer) {
            return Some(answer);
        }
        answer.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("POST"));
        if let Some(names) = self.headers(asked) {
            answer.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names);
        }
        if self.max_age > 0 {
            answer.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from(self.max_age));
        }
        Some(answer)
    }

    /// What lets a page of an allowed origin read an answer.
    pub(crate) fn mark(&self, asked: &HeaderMap, answer: &mut HeaderMap) {
        answer.append(header::VARY, HeaderValue::from_static("Origin"));
        if self.name_origin(asked, answer) {
            let readable = HeaderValue::from_static("Retry-After");
            answer.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, readable);
        }
    }

    fn name_origin(&self, asked: &HeaderMap, answer: &mut HeaderMap) -> bool {
        let Some(origin) = asked.get(header::ORIGIN) else { return false };
        let Ok(text) = origin.to_str() else { return false };
        if self.allowed_origins.iter().any(|allowed| allowed != "*" && matches(allowed, text)) {
            answer.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            // sendBeacon, with which pages send as they close, always asks for it.
            answer.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
            return true;
        }
        let any = self.allowed_origins.iter().any(|allowed| allowed == "*");
        if any {
            answer.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        }
        any
    }

    fn headers(&self, asked: &HeaderMap) -> Option<HeaderValue> {
        if self.allowed_headers.iter().any(|name| name == "*") {
            return asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned();
        }
        let mut names = ALWAYS.to_owned();
        for name in &self.allowed_headers {
            names.push_str(", ");
            names.push_str(&name.to_ascii_lowercase());
        }
        HeaderValue::from_str(&names).ok()
    }
}

/// `*` stands for one or more characters of a host name.
fn matches(allowed: &str, origin: &str) -> bool {
    match allowed.split_once('*') {
        None => allowed.eq_ignore_ascii_case(origin),
        Some((before, after)) => {
            let (allowed_before, allowed_after) = (before.to_ascii_lowercase(), after.to_ascii_lowercase());
            let origin = origin.to_ascii_lowercase();
            origin
                .strip_prefix(&allowed_before)
                .and_then(|rest| rest.strip_suffix(&allowed_after))
                .is_some_and(|name| !name.is_empty() && !name.contains(['/', ':', '@']))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_match_whole_and_a_star_stands_for_a_part_of_a_host() {
        assert!(matches("https://a.test", "https://A.test"));
        assert!(matches("https://*.a.test", "https://x.y.a.test"));
        for (allowed, origin) in [
            ("https://a.test", "https://a.test.evil"),
            ("https://a.test", "http://a.test"),
            ("https://*.a.test", "https://a.test"),
            ("https://*.a.test", "https://.a.test"),
            ("https://*.a.test", "https://evil:1@.a.test"),
            ("https://*.a.test", "https://evil/.a.test"),
        ] {
            assert!(!matches(allowed, origin), "{allowed} {origin}");
        }
    }

    #[test]
    fn origins_that_match_nothing_are_problems() {
        let cors = |origins: &[&str]| Cors {
            allowed_origins: origins.iter().map(|o| (*o).to_owned()).collect(),
            ..Cors::default()
        };
        assert_eq!(cors(&[]).problems()[0].0, "allowed_origins");
        assert!(cors(&["*", "https://a.test", "http://*.a.test:8080"]).problems().is_empty());
        let bad = cors(&["a.test", "https://a.test/", "https://*.*.test", "https://"]);
        assert_eq!(bad.problems().len(), 4);
    }
}
