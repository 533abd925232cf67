//! Dialects: how requests and replies are written in the JSON of one HTTP API.

use std::fmt;

use serde_json::{Map, Value};
use verdict_config::Secret;

use crate::provider::{JudgeRequest, Reply};

/// The JSON of one HTTP API. Chosen by `judges.<name>.dialect`; registered with
/// [`JudgesBuilder::dialect`](crate::JudgesBuilder::dialect) where it is not built in.
pub trait Dialect: fmt::Debug + Send + Sync {
    /// The value of `dialect` that selects it.
    fn name(&self) -> &str;

    /// Appended to the path of the endpoint, such as `/chat/completions`.
    fn path(&self) -> &str;

    /// Headers of every request in addition to the content type, such as the version of the API.
    fn headers(&self) -> &[(&str, &str)] {
        &[]
    }

    /// The header that carries the API key.
    fn auth(&self, key: &Secret) -> (String, Secret) {
        ("authorization".to_owned(), Secret::new(format!("Bearer {}", key.expose())))
    }

    /// The body of a request. The same request gives the same body, byte for byte: cached answers are
    /// found by it. `judges.<name>.body` is laid over it afterwards.
    fn write(&self, request: &JudgeRequest<'_>) -> Map<String, Value>;

    /// The reply in the body of a 200 that states no `error`. `None` if it has another shape.
    fn read(&self, body: &Value) -> Option<Reply>;
}
