//! Who may send: bearer tokens and basic authentication, the same over gRPC and HTTP.
//!
//! In: [`Auth`], and the `authorization` header of a request. Out: let in or not, before anything
//! of the body is read. Credentials are compared in constant time and appear in no message.

use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderValue, header};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;

use verdict_config::Secret;

/// How often a file of tokens is looked at: a token that was withdrawn holds no longer than that.
pub(crate) const TOKENS_INTERVAL: std::time::Duration = std::time::Duration::from_secs(10);

/// A file of tokens is some lines; more is a wrong file.
const MAX_FILE: u64 = 1 << 20;

/// `auth` of a protocol. Present, a request without one of the credentials is refused
/// (UNAUTHENTICATED, 401).
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Auth {
    /// `authorization: Bearer TOKEN`. Give it as `${env:NAME}` or `${file:PATH}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bearer_token: Option<Secret>,
    /// A file of tokens, one a line, each of which is let in: with two, senders can change from
    /// one to the next. Looked at every ten seconds.
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
    /// The name; no colon.
    pub username: String,
    /// The password. Give it as `${env:NAME}` or `${file:PATH}`.
    pub password: Secret,
}

impl Auth {
    /// What is wrong with the values, as (key below `auth`, message); an empty key is `auth` itself.
    pub(crate) fn problems(&self) -> Vec<(&'static str, &'static str)> {
        let mut problems = Vec::new();
        if self.bearer_token.is_none() && self.bearer_token_file.is_none() && self.basic.is_none() {
            problems.push(("", "nobody could send: give bearer_token, bearer_token_file or basic"));
        }
        if self.bearer_token.as_ref().is_some_and(|token| !is_token(token.expose())) {
            problems.push(("bearer_token", "a token is one or more printable characters without spaces"));
        }
        if let Some(basic) = &self.basic {
            if basic.username.is_empty() || basic.username.contains(':') {
                problems.push(("basic.username", "a user name is not empty and has no colon"));
            }
            if basic.password.expose().is_empty() {
                problems.push(("basic.password", "an empty password lets anybody in"));
            }
        }
        problems
    }
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic())
}

/// Looks at credentials.
#[derive(Debug)]
pub(crate) struct Guard {
    token: Option<Secret>,
    file: Option<(PathBuf, RwLock<Vec<Secret>>)>,
    /// `user:password`.
    basic: Option<Secret>,
    challenges: Vec<HeaderValue>,
}

impl Guard {
    /// Reads the file of tokens, where there is one.
    pub(crate) fn open(auth: &Auth) -> Result<Guard, String> {
        let file = match &auth.bearer_token_file {
            Some(path) => Some((path.clone(), RwLock::new(tokens(path)?))),
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
        Ok(Guard { token: auth.bearer_token.clone(), file, basic, challenges })
    }

    /// Whether these headers carry a credential that is let in.
    pub(crate) fn admits(&self, headers: &HeaderMap) -> bool {
        let mut given = headers.get_all(header::AUTHORIZATION).iter();
        // Two that contradict each other are none.
        let (Some(only), None) = (given.next(), given.next()) else { return false };
        let only = only.as_bytes();
        let Some(space) = only.iter().position(|b| *b == b' ') else { return false };
        let (scheme, rest) = only.split_at(space);
        let rest = rest.trim_ascii();
        if scheme.eq_ignore_ascii_case(b"bearer") {
            self.knows_token(rest)
        } else if scheme.eq_ignore_ascii_case(b"basic") {
            let decoded = STANDARD.decode(rest).unwrap_or_default();
            self.basic.as_ref().is_some_and(|known| same(known, &decoded))
        } else {
            false
        }
    }

    fn knows_token(&self, given: &[u8]) -> bool {
        let mut known = self.token.as_ref().is_some_and(|token| same(token, given));
        if let Some((_, tokens)) = &self.file {
            for token in tokens.read().unwrap_or_else(PoisonError::into_inner).iter() {
                known |= same(token, given);
            }
        }
        known
    }

    /// What a refusal says would help.
    pub(crate) fn challenge(&self, headers: &mut HeaderMap) {
        for challenge in &self.challenges {
            headers.append(header::WWW_AUTHENTICATE, challenge.clone());
        }
    }

    /// Whether there is a file to look at again.
    pub(crate) fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Takes the tokens that the file holds now; says whether they have changed. A file without
    /// any changes nothing.
    pub(crate) fn refresh(&self) -> Result<bool, String> {
        let Some((path, current)) = &self.file else { return Ok(false) };
        let fresh = tokens(path)?;
        let mut current = current.write().unwrap_or_else(PoisonError::into_inner);
        let changed = *current != fresh;
        *current = fresh;
        Ok(changed)
    }
}

fn same(known: &Secret, given: &[u8]) -> bool {
    known.expose().as_bytes().ct_eq(given).into()
}

fn tokens(path: &std::path::Path) -> Result<Vec<Secret>, String> {
    let name = path.display();
    let text = verdict_config::read_bounded(path, MAX_FILE)
        .map_err(|why| format!("auth.bearer_token_file: cannot read {name}: {why}"))?;
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.is_empty() {
        return Err(format!("auth.bearer_token_file: {name} holds no token"));
    }
    match lines.iter().position(|line| !is_token(line)) {
        Some(at) => Err(format!("auth.bearer_token_file: {name}: entry {} is no token", at + 1)),
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

    fn guard(yaml: &str) -> Guard {
        Guard::open(&serde_saphyr::from_str::<Auth>(yaml).unwrap()).unwrap()
    }

    #[test]
    fn the_right_token_is_let_in_and_nothing_that_is_like_it() {
        let guard = guard("bearer_token: s3cret");
        assert!(guard.admits(&headers(&["Bearer s3cret"])) && guard.admits(&headers(&["bearer  s3cret"])));
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
            assert!(!guard.admits(&headers(values)), "{values:?}");
        }
    }

    #[test]
    fn basic_needs_name_and_password_both() {
        let guard = guard("basic: { username: agent, password: 'pa:ss' }");
        let encoded = |text: &str| format!("Basic {}", STANDARD.encode(text));
        assert!(guard.admits(&headers(&[&encoded("agent:pa:ss")])));
        for wrong in ["agent:pa", "agent:", ":pa:ss", "other:pa:ss", ""] {
            assert!(!guard.admits(&headers(&[&encoded(wrong)])), "{wrong}");
        }
        assert!(
            !guard.admits(&headers(&["Basic agent:pa:ss"])) && !guard.admits(&headers(&["Bearer agent"]))
        );
    }

    #[test]
    fn tokens_of_a_file_change_with_it_and_an_empty_file_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        std::fs::write(&path, "one\n\ntwo\r\n").unwrap();
        let guard = Guard::open(&Auth { bearer_token_file: Some(path.clone()), ..Auth::default() }).unwrap();
        let lets_in = |token: &str| guard.admits(&headers(&[&format!("Bearer {token}")]));
        assert!(lets_in("one") && lets_in("two") && !lets_in("three"));
        std::fs::write(&path, "two\nthree").unwrap();
        assert!(guard.refresh().unwrap() && !guard.refresh().unwrap());
        assert!(!lets_in("one") && lets_in("two") && lets_in("three"));
        std::fs::write(&path, "\n").unwrap();
        assert!(guard.refresh().unwrap_err().contains("holds no token"));
        std::fs::write(&path, "good\nhunter 2").unwrap();
        assert!(!guard.refresh().unwrap_err().contains("hunter"), "a token is in a message");
        assert!(lets_in("three"));
        assert!(!format!("{guard:?}").contains("three"));
    }

    #[test]
    fn settings_that_let_nobody_or_anybody_in_are_problems() {
        let problems = |yaml: &str| serde_saphyr::from_str::<Auth>(yaml).unwrap().problems();
        assert_eq!(problems("{}")[0].0, "");
        assert_eq!(problems("bearer_token: ''")[0].0, "bearer_token");
        let keys: Vec<_> = problems("basic: { username: 'a:b', password: '' }").iter().map(|p| p.0).collect();
        assert_eq!(keys, ["basic.username", "basic.password"]);
        assert!(problems("bearer_token: x").is_empty());
    }
}
