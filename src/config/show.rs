//! The configuration as YAML without secrets, and its JSON schema.

use schemars::Schema;
use schemars::transform::{RecursiveTransform, Transform as _};
use serde_json::{Value, json};
use verdict_config::REDACTED;

use super::root::Config;

impl Config {
    /// The effective configuration as YAML. Secrets are `[redacted]`, and so are credentials in URLs.
    ///
    /// # Errors
    /// The serialiser's; a configuration that was loaded causes none.
    pub fn to_yaml(&self) -> Result<String, serde_json::Error> {
        let mut value = serde_json::to_value(self)?;
        redact(&mut value);
        serde_saphyr::to_string(&value).map_err(serde::ser::Error::custom)
    }

    /// JSON schema of the configuration, for editors.
    pub fn schema() -> Value {
        let mut schema = schemars::schema_for!(Config);
        RecursiveTransform(allow_empty).transform(&mut schema);
        schema.to_value()
    }
}

/// Accepts null for objects and lists: a section of which every entry is a comment is null in YAML, and is read as
/// empty.
fn allow_empty(schema: &mut Schema) {
    let type_name =
        schema.get("type").and_then(Value::as_str).filter(|name| ["object", "array"].contains(name));
    if let Some(type_name) = type_name.map(str::to_owned) {
        schema.insert("type".to_owned(), json!([type_name, "null"]));
    }
}

fn redact(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Some(redacted) = without_userinfo(text) {
                *text = redacted;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(redact),
        Value::Object(entries) => entries.values_mut().for_each(redact),
        _ => {}
    }
}

/// Converts `http://user:password@host/path` to `http://[redacted]@host/path`; `None` for a text without credentials.
fn without_userinfo(text: &str) -> Option<String> {
    let (scheme, after_scheme) = text.split_once("://")?;
    let end = after_scheme.find(['/', '?', '#']).unwrap_or(after_scheme.len());
    let (authority, path) = after_scheme.split_at(end);
    let (_, host) = authority.rsplit_once('@')?;
    Some(format!("{scheme}://{REDACTED}@{host}{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_in_urls_are_not_shown() {
        let shown = |text| without_userinfo(text);
        assert_eq!(shown("https://me:pw@x.test/a@b").as_deref(), Some("https://[redacted]@x.test/a@b"));
        assert_eq!(shown("https://x.test/a@b"), None);
        assert_eq!(shown("127.0.0.1:4317"), None);
    }
}
