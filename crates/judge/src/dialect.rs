//! Dialects: requests and replies in the JSON of one HTTP API.

use std::fmt;

use serde_json::{Map, Value};
use verdict_config::Secret;

use crate::provider::{JudgeRequest, Reply};

/// The JSON of one HTTP API. Selected by `judges.<name>.dialect`; registered with
/// [`JudgeExtensions::dialect`](crate::JudgeExtensions::dialect) where it is not built in.
pub trait Dialect: fmt::Debug + Send + Sync {
    /// The value of `dialect` that selects it.
    fn name(&self) -> &str;

    /// Appended to the path of the endpoint, such as `/chat/completions`.
    fn path(&self) -> &str;

    /// Headers of every request in addition to the content type, such as the version of the API.
    fn headers(&self) -> &[(&str, &str)] {
        &[]
    }

    /// Name and value of the header with the API key.
    fn auth(&self, key: &Secret) -> (String, Secret) {
        ("authorization".to_owned(), Secret::new(format!("Bearer {}", key.expose())))
    }

    /// The body of a request, into which `judges.<name>.body` is merged afterwards. The same request must
    /// always give the same bytes, since they are part of the cache key.
    fn write(&self, request: &JudgeRequest<'_>) -> Map<String, Value>;

    /// The reply in the body of a 200 response without `error`. `None` if the body has another structure.
    fn read(&self, body: &Value) -> Option<Reply>;
}
