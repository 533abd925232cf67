//! Authentication of senders by bearer tokens and basic authentication, for gRPC and HTTP.
//!
//! In: [`Auth`], and the `authorization` header of a request. Out: whether the request is accepted,
//! decided before its body is read. Credentials are compared in constant time and appear in no
//! message.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderValue, header};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use verdict_config::{Problem, Secret};
use verdict_telemetry::LogThrottle;

/// Interval between reloads of the token file: the longest time a removed token stays valid.
pub(crate) const TOKEN_RELOAD_INTERVAL: std::time::Duration = std::time::Duration::from_secs(10);

/// Maximum size of the token file in bytes, which usually has a few lines.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// `auth` of a protocol. Requests without one of these credentials are refused (UNAUTHENTICATED, 401).
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Auth {
    /// `authorization: Bearer TOKEN`. Must be given as `${env:NAME}` or `${file:PATH}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bearer_token: Option<Secret>,
    /// A file with one valid token per line. Two tokens allow senders to change from one to the other. Read
    /// again every ten seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bearer_token_file: Option<PathBuf>,
    /// `authorization: Basic ...`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub basic: Option<Basic>,
}

/// One user of basic authentication.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Basic {
    /// The user name, without a colon.
    pub username: String,
    /// The password. Must be given as `${env:NAME}` or `${file:PATH}`.
    pub password: Secret,
}

impl Auth {
    /// The problems of invalid values.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut add = |key, message| problems.push(Problem::new(key, message));
        if self.bearer_token.is_none() && self.bearer_token_file.is_none() && self.basic.is_none() {
            add("", "no sender could authenticate: set bearer_token, bearer_token_file or basic");
        }
        if self.bearer_token.as_ref().is_some_and(|token| !is_token(token.expose())) {
            add("bearer_token", "must be one or more printable ASCII characters without spaces");
        }
        if let Some(basic) = &self.basic {
            if basic.username.is_empty() || basic.username.contains(':') {
                add("basic.username", "must not be empty or contain a colon");
            }
            if basic.password.expose().is_empty() {
                add("basic.password", "must not be empty");
            }
        }
        problems
    }
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic())
}

/// The token file cannot be used. The message contains no token.
#[derive(Debug, thiserror::Error)]
#[error("auth.bearer_token_file: {path}: {reason}")]
pub(crate) struct TokenFileError {
    path: String,
    reason: String,
}

/// Checks the credentials of requests.
#[derive(Debug)]
pub(crate) struct Authenticator {
    token: Option<Secret>,
    file: Option<(PathBuf, ArcSwap<Vec<Secret>>)>,
    /// `user:password`.
    basic: Option<Secret>,
    challenges: Vec<HeaderValue>,
    /// The section of the configuration.
    key: &'static str,
    throttle: LogThrottle,
}

impl Authenticator {
    /// Reads the token file, if one is configured.
    pub(crate) fn load(key: &'static str, auth: &Auth) -> Result<Authenticator, TokenFileError> {
        let file = match &auth.bearer_token_file {
            Some(path) => Some((path.clone(), ArcSwap::from_pointee(read_tokens(path)?))),
            None => None,
        };
        let basic = auth.basic.as_ref();
        let basic = basic.map(|b| Secret::new(format!("{}:{}", b.username, b.password.expose())));
        let mut challenges = Vec::new();
        if auth.bearer_token.is_some() || file.is_some() {
            challenges.push(HeaderValue::from_static("Bearer realm=\"otel-verdict\""));
        }
        if basic.is_some() {
            challenges.push(HeaderValue::from_static("Basic realm=\"otel-verdict\", charset=\"UTF-8\""));
        }
        let (token, throttle) = (auth.bearer_token.clone(), LogThrottle::default());
        Ok(Authenticator { token, file, basic, challenges, key, throttle })
    }

    /// Whether the headers contain valid credentials. Logs credentials that are not valid.
    pub(crate) fn accepts(&self, headers: &HeaderMap) -> bool {
        let accepted = self.has_valid_credentials(headers);
        // A browser sends its first request without credentials.
        if !accepted
            && headers.contains_key(header::AUTHORIZATION)
            && let Some(suppressed) = self.throttle.allow("credentials")
        {
            tracing::warn!(listener = self.key, suppressed, "a request with unknown credentials was refused");
        }
        accepted
    }

    fn has_valid_credentials(&self, headers: &HeaderMap) -> bool {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        // Several values are ambiguous.
        let (Some(value), None) = (values.next(), values.next()) else { return false };
        let value = value.as_bytes();
        let Some(space) = value.iter().position(|b| *b == b' ') else { return false };
        let (scheme, credentials) = value.split_at(space);
        let credentials = credentials.trim_ascii();
        if scheme.eq_ignore_ascii_case(b"bearer") {
            self.is_known_token(credentials)
        } else if scheme.eq_ignore_ascii_case(b"basic") {
            let decoded = STANDARD.decode(credentials).unwrap_or_default();
            self.basic.as_ref().is_some_and(|expected| constant_time_eq(expected, &decoded))
        } else {
            false
        }
    }

    fn is_known_token(&self, candidate: &[u8]) -> bool {
        let mut is_known = self.token.as_ref().is_some_and(|token| constant_time_eq(token, candidate));
        if let Some((_, tokens)) = &self.file {
            for token in tokens.load().iter() {
                is_known |= constant_time_eq(token, candidate);
            }
        }
        is_known
    }

    /// Adds `WWW-Authenticate` with the accepted schemes.
    pub(crate) fn challenge(&self, headers: &mut HeaderMap) {
        for challenge in &self.challenges {
            headers.append(header::WWW_AUTHENTICATE, challenge.clone());
        }
    }

    /// Whether a token file is configured, so that [`Authenticator::reload`] has an effect.
    pub(crate) fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Reads the token file again; returns whether its tokens have changed. On an error the current
    /// tokens stay valid.
    pub(crate) fn reload(&self) -> Result<bool, TokenFileError> {
        let Some((path, current)) = &self.file else { return Ok(false) };
        let fresh = Arc::new(read_tokens(path)?);
        Ok(current.swap(Arc::clone(&fresh)) != fresh)
    }
}

/// Compares digests, so that the time does not depend on the length of the expected secret either.
fn constant_time_eq(expected: &Secret, candidate: &[u8]) -> bool {
    Sha256::digest(expected.expose()).as_slice().ct_eq(Sha256::digest(candidate).as_slice()).into()
}

fn read_tokens(path: &std::path::Path) -> Result<Vec<Secret>, TokenFileError> {
    let error = |reason: String| TokenFileError { path: path.display().to_string(), reason };
    let text = crate::bounded_file::read_bounded(path, MAX_FILE_BYTES)
        .map_err(|e| error(format!("cannot read: {e}")))?;
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.is_empty() {
        return Err(error("contains no token".to_owned()));
    }
    match lines.iter().position(|line| !is_token(line)) {
        Some(index) => Err(error(format!("entry {} is not a valid token", index + 1))),
        None => Ok(lines.into_iter().map(Secret::new).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn authenticator(yaml: &str) -> Authenticator {
        Authenticator::load("test", &serde_saphyr::from_str::<Auth>(yaml).unwrap()).unwrap()
    }

    #[test]
    fn unknown_credentials_are_logged_without_them_and_missing_ones_are_not() {
        let authenticator = authenticator("bearer_token: right");
        let log = crate::logging::testing::logged(|| {
            for values in [&[][..], &["Bearer right"], &["Bearer hunter2"], &["Bearer hunter3"]] {
                authenticator.accepts(&headers(values));
            }
        });
        assert_eq!(log.matches("unknown credentials").count(), 1, "{log}");
        assert!(log.contains("listener=\"test\"") && !log.contains("hunter"), "{log}");
    }

    #[test]
    fn only_the_exact_bearer_token_is_accepted() {
        let authenticator = authenticator("bearer_token: s3cret");
        assert!(
            authenticator.accepts(&headers(&["Bearer s3cret"]))
                && authenticator.accepts(&headers(&["bearer  s3cret"]))
        );
        let wrong: [&[&str]; 9] = [
            &[],
            &[""],
            &["Bearer"],
            &["Bearer "],
            &["Bearer s3cre"],
            &["Bearer s3cret2"],
            &["s3cret"],
            &["Basic s3cret"],
            &["Bearer s3cret", "Bearer other"],
        ];
        for values in wrong {
            assert!(!authenticator.accepts(&headers(values)), "{values:?}");
        }
    }

    #[test]
    fn basic_authentication_requires_user_name_and_password() {
        let authenticator = authenticator("basic: { username: agent, password: 'pa:ss' }");
        let encoded = |text: &str| format!("Basic {}", STANDARD.encode(text));
        assert!(authenticator.accepts(&headers(&[&encoded("agent:pa:ss")])));
        for wrong in ["agent:pa", "agent:", ":pa:ss", "other:pa:ss", ""] {
            assert!(!authenticator.accepts(&headers(&[&encoded(wrong)])), "{wrong}");
        }
        assert!(
            !authenticator.accepts(&headers(&["Basic agent:pa:ss"]))
                && !authenticator.accepts(&headers(&["Bearer agent"]))
        );
    }

    #[test]
    fn tokens_are_reloaded_and_an_unusable_file_keeps_the_current_ones() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        std::fs::write(&path, "one\n\ntwo\r\n").unwrap();
        let authenticator =
            Authenticator::load("test", &Auth { bearer_token_file: Some(path.clone()), ..Auth::default() })
                .unwrap();
        let accepts = |token: &str| authenticator.accepts(&headers(&[&format!("Bearer {token}")]));
        assert!(accepts("one") && accepts("two") && !accepts("three"));
        std::fs::write(&path, "two\nthree").unwrap();
        assert!(authenticator.reload().unwrap() && !authenticator.reload().unwrap());
        assert!(!accepts("one") && accepts("two") && accepts("three"));
        std::fs::write(&path, "\n").unwrap();
        assert!(authenticator.reload().unwrap_err().to_string().contains("contains no token"));
        std::fs::write(&path, "good\nhunter 2").unwrap();
        assert!(
            !authenticator.reload().unwrap_err().to_string().contains("hunter"),
            "the message contains a token"
        );
        assert!(accepts("three"));
        assert!(!format!("{authenticator:?}").contains("three"));
    }

    #[test]
    fn settings_without_usable_credentials_are_problems() {
        let problems = |yaml: &str| serde_saphyr::from_str::<Auth>(yaml).unwrap().problems();
        assert_eq!(problems("{}")[0].key, "");
        assert_eq!(problems("bearer_token: ''")[0].key, "bearer_token");
        let keys: Vec<_> =
            problems("basic: { username: 'a:b', password: '' }").into_iter().map(|p| p.key).collect();
        assert_eq!(keys, ["basic.username", "basic.password"]);
        assert!(problems("bearer_token: x").is_empty());
    }
}
