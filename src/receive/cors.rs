//! Cross-origin resource sharing for OTLP/HTTP: which web pages may send.
//!
//! In: [`Cors`], and the headers of a request. Out: the headers by which a browser allows a page to send, or
//! to read the response. Other clients ignore CORS, so it is no substitute for `auth`.
//! `tower_http::cors` does not fit: it answers a refused origin with the allowed methods, responds
//! 200 to preflight requests, and treats every OPTIONS request as one.

use http::{HeaderMap, HeaderValue, Method, header};
use verdict_config::{Problem, settings};

/// Request headers that OTLP in a browser needs and that are allowed without configuration.
const DEFAULT_HEADERS: &str = "accept, content-type, content-encoding, x-requested-with";

settings! {
    /// `cors` of OTLP/HTTP. Without it browsers let no page of another origin send.
    pub struct Cors {
        /// Origins whose pages may send: `https://app.example`, `https://*.app.example`, or `*` for every page.
        allowed_origins: Vec<String>,
        /// Headers that pages of these origins may set, for example `authorization`, in addition to `accept`,
        /// `content-type`, `content-encoding` and `x-requested-with`. `*` allows every header.
        allowed_headers: Vec<String>,
        /// Default 0, which leaves it to the browser (about five seconds). Seconds for which a browser may cache
        /// the response to a preflight request.
        max_age: u32,
    }
}

impl Cors {
    /// The problems of invalid values; keys are relative to `cors`.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if self.allowed_origins.is_empty() {
            problems.push(Problem::new("allowed_origins", "must name at least one origin"));
        }
        for (i, origin) in self.allowed_origins.iter().enumerate() {
            let is_origin = origin.split_once("://").is_some_and(|(_, host)| {
                !host.is_empty() && !host.contains('/') && origin.matches('*').count() <= 1
            });
            if origin != "*" && !is_origin {
                let message = format!(
                    "{origin:?} is not an origin such as https://app.example or https://*.app.example"
                );
                problems.push(Problem::new(format!("allowed_origins[{i}]"), message));
            }
        }
        for (i, name) in self.allowed_headers.iter().enumerate() {
            if name != "*" && http::HeaderName::try_from(name.as_str()).is_err() {
                problems.push(Problem::new(
                    format!("allowed_headers[{i}]"),
                    format!("{name:?} is not a header name"),
                ));
            }
        }
        problems
    }

    /// The headers of the response to a preflight request; `None` if the request is none.
    pub(crate) fn preflight(&self, method: &Method, request: &HeaderMap) -> Option<HeaderMap> {
        if method != Method::OPTIONS || !request.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD) {
            return None;
        }
        let mut response = HeaderMap::new();
        response.insert(
            header::VARY,
            HeaderValue::from_static("Origin, Access-Control-Request-Method, Access-Control-Request-Headers"),
        );
        if !self.allow_origin(request, &mut response) {
            return Some(response);
        }
        response.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("POST"));
        if let Some(names) = self.allowed_headers(request) {
            response.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names);
        }
        if self.max_age > 0 {
            response.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from(self.max_age));
        }
        Some(response)
    }

    /// Adds the headers that allow a page of an allowed origin to read the response.
    pub(crate) fn add_headers(&self, request: &HeaderMap, response: &mut HeaderMap) {
        response.append(header::VARY, HeaderValue::from_static("Origin"));
        if self.allow_origin(request, response) {
            let readable = HeaderValue::from_static("Retry-After");
            response.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, readable);
        }
    }

    /// Adds the headers that allow the request's origin. Returns `false` if the origin is not allowed.
    fn allow_origin(&self, request: &HeaderMap, response: &mut HeaderMap) -> bool {
        let Some(origin) = request.get(header::ORIGIN) else { return false };
        let Ok(text) = origin.to_str() else { return false };
        if self.allowed_origins.iter().any(|allowed| allowed != "*" && origin_matches(allowed, text)) {
            response.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            // sendBeacon, which pages use on closing, always sends with credentials.
            response.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
            return true;
        }
        let allows_all = self.allowed_origins.iter().any(|allowed| allowed == "*");
        if allows_all {
            response.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        }
        allows_all
    }

    fn allowed_headers(&self, request: &HeaderMap) -> Option<HeaderValue> {
        if self.allowed_headers.iter().any(|name| name == "*") {
            return request.get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned();
        }
        let mut names = DEFAULT_HEADERS.to_owned();
        for name in &self.allowed_headers {
            names.push_str(", ");
            names.push_str(&name.to_ascii_lowercase());
        }
        HeaderValue::from_str(&names).ok()
    }
}

/// Whether an origin matches an allowed one; `*` matches one or more characters of a host name.
fn origin_matches(allowed: &str, origin: &str) -> bool {
    match allowed.split_once('*') {
        None => allowed.eq_ignore_ascii_case(origin),
        Some((before, after)) => {
            let (allowed_before, allowed_after) = (before.to_ascii_lowercase(), after.to_ascii_lowercase());
            let origin = origin.to_ascii_lowercase();
            origin
                .strip_prefix(&allowed_before)
                .and_then(|suffix| suffix.strip_suffix(&allowed_after))
                .is_some_and(|name| !name.is_empty() && !name.contains(['/', ':', '@']))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_match_exactly_or_with_one_wildcard_in_the_host() {
        assert!(origin_matches("https://a.test", "https://A.test"));
        assert!(origin_matches("https://*.a.test", "https://x.y.a.test"));
        for (allowed, origin) in [
            ("https://a.test", "https://a.test.evil"),
            ("https://a.test", "http://a.test"),
            ("https://*.a.test", "https://a.test"),
            ("https://*.a.test", "https://.a.test"),
            ("https://*.a.test", "https://evil:1@.a.test"),
            ("https://*.a.test", "https://evil/.a.test"),
        ] {
            assert!(!origin_matches(allowed, origin), "{allowed} {origin}");
        }
    }

    #[test]
    fn origins_that_cannot_match_are_problems() {
        let cors = |origins: &[&str]| Cors {
            allowed_origins: origins.iter().map(|o| (*o).to_owned()).collect(),
            ..Cors::default()
        };
        assert_eq!(cors(&[]).problems()[0].key, "allowed_origins");
        assert!(cors(&["*", "https://a.test", "http://*.a.test:8080"]).problems().is_empty());
        let bad = cors(&["a.test", "https://a.test/", "https://*.*.test", "https://"]);
        assert_eq!(bad.problems().len(), 4);
    }
}
