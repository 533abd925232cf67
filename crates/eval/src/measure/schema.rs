//! A call's arguments held against the tool's JSON schema.
//!
//! In: arguments as JSON, and the schema that the trace shows. Out: where they disagree. Schemas
//! of the plain shape that tools have (types, properties, required, enum) are checked in place,
//! which costs next to nothing; any other goes to a full validator that never resolves remote
//! references, built once per scene and schema.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, Validator};
use serde_json::{Map, Value};

use super::anchors::{Defect, QUOTE_BYTES, clip};
use super::excerpt::head;
use super::memo::Memo;

/// Disagreements reported for one call.
const MAX_PROBLEMS: usize = 8;
/// A schema of more values than this is not compiled: it comes with the trace and is untrusted.
const MAX_SCHEMA_VALUES: usize = 4096;
/// Nested schemas are followed so deep in place.
const MAX_DEPTH: usize = 16;
/// Bytes of a value that are shown.
const SHOWN_BYTES: usize = 80;
/// Bytes that one compiled `pattern` may take.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// One disagreement.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// Missing, unknown, or ill-typed.
    pub defect: Defect,
    /// What was expected and what was seen.
    pub rationale: String,
    /// The parameter in question, without the path to it.
    pub name: String,
    /// The value says the same in another type (`"5"` for 5), as many frameworks accept.
    pub coercible: bool,
}

/// Where `arguments` and `schema` disagree. A schema that is none has no say.
pub fn problems(memo: &Memo, schema: &Arc<Value>, arguments: &Value) -> Vec<Problem> {
    let mut found = Vec::new();
    match check(schema, arguments, "", 0, &mut found) {
        Some(()) => {}
        None => {
            found.clear();
            validate(memo, schema, arguments, &mut found);
        }
    }
    found.truncate(MAX_PROBLEMS);
    found
}

/// Names in `arguments` that the schema does not list, where it lists any and does not forbid
/// others outright.
pub fn unlisted<'a>(schema: &Value, arguments: &'a Value) -> Vec<&'a str> {
    let listed = schema.get("properties").and_then(Value::as_object);
    let open = !matches!(schema.get("additionalProperties"), None | Some(Value::Bool(false)));
    match (listed, arguments.as_object()) {
        (Some(listed), Some(given)) if !listed.is_empty() && !open => {
            given.keys().filter(|name| !listed.contains_key(*name)).map(String::as_str).collect()
        }
        _ => Vec::new(),
    }
}

/// Keywords that say nothing about validity.
const SILENT: [&str; 9] =
    ["title", "description", "default", "$schema", "examples", "example", "$id", "deprecated", "strict"];

/// Checks in place; `None` as soon as the schema has a keyword that needs the full validator.
fn check(schema: &Value, value: &Value, path: &str, depth: usize, found: &mut Vec<Problem>) -> Option<()> {
    let schema = match schema {
        Value::Bool(true) => return Some(()),
        Value::Object(map) => map,
        _ => return None,
    };
    if depth > MAX_DEPTH {
        return None;
    }
    let keywords = Keywords::read(schema);
    if value.is_null() && keywords.nullable {
        return Some(());
    }
    if keywords.foreign {
        return None;
    }
    if let Some(wanted) = keywords.of_type
        && !of_type(wanted, value)?
    {
        found.push(ill_typed(path, &names(wanted), value));
        return Some(());
    }
    if let Some(options) = keywords.options {
        let options = options.as_array()?;
        if !options.contains(value) {
            let listed = clip(&Value::Array(options.clone()).to_string(), QUOTE_BYTES / 2).to_owned();
            found.push(ill_typed(path, &format!("one of {listed}"), value));
        }
    }
    if let Some(branches) = keywords.branches {
        check_any(branches.as_array()?, value, path, depth, found)?;
    }
    match value {
        Value::Object(given) => check_object(&keywords, given, path, depth, found)?,
        Value::Array(items) => {
            if let Some(of_items) = keywords.items {
                for (i, item) in items.iter().enumerate() {
                    if found.len() >= MAX_PROBLEMS {
                        break;
                    }
                    check(of_items, item, &format!("{path}[{i}]"), depth + 1, found)?;
                }
            }
        }
        _ => {}
    }
    Some(())
}

/// What a schema says, read in one pass: looking each keyword up would hash it each time.
#[derive(Default)]
struct Keywords<'s> {
    of_type: Option<&'s Value>,
    options: Option<&'s Value>,
    branches: Option<&'s Value>,
    items: Option<&'s Value>,
    properties: Option<&'s Value>,
    required: Option<&'s Value>,
    additional: Option<&'s Value>,
    /// OpenAPI's way to say "or null", in use where schemas are made from signatures.
    nullable: bool,
    /// There is a keyword that only the full validator knows.
    foreign: bool,
}

impl<'s> Keywords<'s> {
    fn read(schema: &'s Map<String, Value>) -> Keywords<'s> {
        let mut all = Keywords::default();
        for (key, says) in schema {
            match key.as_str() {
                "type" => all.of_type = Some(says),
                "enum" => all.options = Some(says),
                "anyOf" => all.branches = Some(says),
                "items" => all.items = Some(says),
                "properties" => all.properties = Some(says),
                "required" => all.required = Some(says),
                "additionalProperties" => all.additional = Some(says),
                "nullable" => all.nullable = says == &Value::Bool(true),
                silent => all.foreign |= !SILENT.contains(&silent),
            }
        }
        all
    }
}

fn check_any(
    branches: &[Value],
    value: &Value,
    path: &str,
    depth: usize,
    found: &mut Vec<Problem>,
) -> Option<()> {
    let mut types = Vec::new();
    for branch in branches {
        let mut below = Vec::new();
        check(branch, value, path, depth + 1, &mut below)?;
        if below.is_empty() {
            return Some(());
        }
        types.push(branch.get("type").map_or_else(|| "another shape".to_owned(), names));
    }
    if !types.is_empty() {
        found.push(ill_typed(path, &types.join(" or "), value));
    }
    Some(())
}

fn check_object(
    keywords: &Keywords<'_>,
    given: &Map<String, Value>,
    path: &str,
    depth: usize,
    found: &mut Vec<Problem>,
) -> Option<()> {
    if let Some(required) = keywords.required {
        for name in required.as_array()?.iter().filter_map(Value::as_str) {
            if !given.contains_key(name) {
                found.push(missing(&join(path, name)));
            }
        }
    }
    let properties = keywords.properties.map(|p| p.as_object());
    let closed = match keywords.additional {
        None | Some(Value::Bool(true)) => false,
        Some(Value::Bool(false)) => true,
        Some(_) => return None,
    };
    for (name, value) in given {
        if found.len() >= MAX_PROBLEMS {
            break;
        }
        match properties {
            Some(properties) => match properties?.get(name) {
                Some(of_property) => check(of_property, value, &join(path, name), depth + 1, found)?,
                None if closed => found.push(unknown(&join(path, name), value)),
                None => {}
            },
            None if closed => found.push(unknown(&join(path, name), value)),
            None => {}
        }
    }
    Some(())
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn names(wanted: &Value) -> String {
    match wanted {
        Value::String(name) => name.clone(),
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
        _ => String::new(),
    }
}

fn of_type(wanted: &Value, value: &Value) -> Option<bool> {
    match wanted {
        Value::String(name) => is_a(name, value),
        Value::Array(names) => {
            let mut any = false;
            for name in names {
                any |= is_a(name.as_str()?, value)?;
            }
            Some(any)
        }
        _ => None,
    }
}

/// Google writes types in capitals; Python tools say `any`.
fn is_a(name: &str, value: &Value) -> Option<bool> {
    let lower;
    let name = match name.bytes().any(|b| b.is_ascii_uppercase()) {
        true => {
            lower = name.to_ascii_lowercase();
            lower.as_str()
        }
        false => name,
    };
    Some(match name {
        "string" => value.is_string(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|f| f.fract() == 0.0),
        "any" => true,
        _ => return None,
    })
}

fn missing(name: &str) -> Problem {
    Problem {
        defect: Defect::MissingParameter,
        rationale: format!(
            "the required parameter '{}' was expected; it is missing",
            clip(name, QUOTE_BYTES)
        ),
        name: last(name),
        coercible: false,
    }
}

fn unknown(name: &str, value: &Value) -> Problem {
    Problem {
        defect: Defect::UnknownParameter,
        rationale: format!(
            "parameters of the tool's schema were expected; it has no '{}' (here {})",
            clip(name, QUOTE_BYTES),
            head(&value.to_string(), SHOWN_BYTES)
        ),
        name: last(name),
        coercible: false,
    }
}

fn ill_typed(path: &str, wanted: &str, value: &Value) -> Problem {
    let place =
        if path.is_empty() { "the arguments".to_owned() } else { format!("'{}'", clip(path, QUOTE_BYTES)) };
    Problem {
        defect: Defect::IllTypedParameter,
        rationale: format!(
            "{place} was expected to be {wanted}; it is {}",
            head(&value.to_string(), SHOWN_BYTES)
        ),
        name: last(path),
        coercible: coercible(value),
    }
}

/// The name at the end of a path.
fn last(path: &str) -> String {
    let name = path.rsplit('.').next().unwrap_or(path);
    clip(name.split('[').next().unwrap_or(name), QUOTE_BYTES).to_owned()
}

/// `null` for an optional value, or a scalar written as a string or the other way round.
fn coercible(value: &Value) -> bool {
    match value {
        Value::Null | Value::Number(_) | Value::Bool(_) => true,
        Value::String(text) => serde_json::from_str::<Value>(text.trim()).is_ok_and(|v| !v.is_string()),
        _ => false,
    }
}

#[derive(Default)]
struct Compiled(std::cell::RefCell<HashMap<usize, Rc<Option<Validator>>>>);

fn validate(memo: &Memo, schema: &Arc<Value>, arguments: &Value, found: &mut Vec<Problem>) {
    let compiled = memo.scene(Compiled::default);
    let key = Arc::as_ptr(schema) as usize;
    let known = compiled.0.borrow().get(&key).cloned();
    let validator = known.unwrap_or_else(|| {
        let made = Rc::new(compile(schema));
        compiled.0.borrow_mut().insert(key, made.clone());
        made
    });
    let Some(validator) = validator.as_ref() else { return };
    for error in validator.iter_errors(arguments).take(MAX_PROBLEMS) {
        let path = error.instance_path().to_string().trim_start_matches('/').replace('/', ".");
        match error.kind() {
            ValidationErrorKind::Required { property } => {
                found.push(missing(&join(&path, property.as_str().unwrap_or_default())));
            }
            ValidationErrorKind::AdditionalProperties { unexpected }
            | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
                for name in unexpected {
                    let value = error.instance().get(name).cloned().unwrap_or_default();
                    found.push(unknown(&join(&path, name), &value));
                }
            }
            // What the schema itself gets wrong is no fault of the call.
            ValidationErrorKind::Referencing(_)
            | ValidationErrorKind::RegexEngineFailure { .. }
            | ValidationErrorKind::BacktrackLimitExceeded { .. } => {}
            kind => {
                let wanted = format!("valid by '{}' of the tool's schema", kind.keyword());
                found.push(ill_typed(&path, &wanted, error.instance()));
            }
        }
    }
}

/// The schema, ready to hold values against; `None` where it is none, or too large to be trusted.
pub fn compile(schema: &Value) -> Option<Validator> {
    if count(schema) > MAX_SCHEMA_VALUES {
        return None;
    }
    jsonschema::options()
        .offline()
        .should_validate_formats(false)
        .with_pattern_options(PatternOptions::regex().size_limit(MAX_PATTERN_BYTES))
        .build(schema)
        .ok()
}

/// Values in a schema, counted no further than needed.
fn count(schema: &Value) -> usize {
    let mut stack = vec![schema];
    let mut seen = 0;
    while let Some(value) = stack.pop() {
        seen += 1;
        if seen > MAX_SCHEMA_VALUES {
            break;
        }
        match value {
            Value::Array(items) => stack.extend(items),
            Value::Object(map) => stack.extend(map.values()),
            _ => {}
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(schema: Value, arguments: Value) -> Vec<(Defect, bool)> {
        let memo = Memo::new();
        problems(&memo, &Arc::new(schema), &arguments).into_iter().map(|p| (p.defect, p.coercible)).collect()
    }

    fn plain() -> Value {
        json!({
            "type": "object",
            "properties": {
                "url": { "type": "string", "description": "where" },
                "depth": { "type": "integer", "default": 1 },
                "mode": { "enum": ["fast", "slow"] },
                "tags": { "anyOf": [{ "type": "array", "items": { "type": "string" } }, { "type": "null" }] },
            },
            "required": ["url"],
            "additionalProperties": false,
        })
    }

    #[test]
    fn arguments_that_fit_have_no_problems() {
        assert_eq!(found(plain(), json!({ "url": "x", "depth": 2.0, "mode": "fast", "tags": null })), []);
        assert_eq!(found(plain(), json!({ "url": "x", "tags": ["a"] })), []);
        let nullable = json!({ "properties": { "a": { "type": "string", "nullable": true } } });
        assert_eq!(found(nullable, json!({ "a": null })), []);
        assert_eq!(found(json!({}), json!({ "a": 1 })), []);
        assert_eq!(found(json!("nonsense"), json!({ "a": 1 })), []);
    }

    #[test]
    fn missing_unknown_and_ill_typed_are_told_apart() {
        assert_eq!(
            found(plain(), json!({ "link": "x" })),
            [(Defect::MissingParameter, false), (Defect::UnknownParameter, false)]
        );
        assert_eq!(found(plain(), json!({ "url": ["x"] })), [(Defect::IllTypedParameter, false)]);
        assert_eq!(found(plain(), json!({ "url": "x", "depth": "2" })), [(Defect::IllTypedParameter, true)]);
        assert_eq!(
            found(plain(), json!({ "url": "x", "mode": "odd" })),
            [(Defect::IllTypedParameter, false)]
        );
        assert_eq!(found(plain(), json!({ "url": "x", "tags": "a" })), [(Defect::IllTypedParameter, false)]);
        assert_eq!(found(plain(), json!("x")), [(Defect::IllTypedParameter, false)]);
    }

    #[test]
    fn other_keywords_go_to_the_full_validator() {
        let schema = json!({
            "type": "object",
            "properties": { "at": { "$ref": "#/$defs/place" }, "n": { "type": "integer", "minimum": 1 } },
            "required": ["at"],
            "$defs": { "place": { "type": "string", "pattern": "^https://" } },
        });
        assert_eq!(found(schema.clone(), json!({ "at": "https://x", "n": 1 })), []);
        assert_eq!(found(schema.clone(), json!({ "at": "x" })), [(Defect::IllTypedParameter, false)]);
        assert_eq!(found(schema, json!({ "at": "https://x", "n": 0 })), [(Defect::IllTypedParameter, true)]);
    }

    #[test]
    fn a_remote_reference_is_never_fetched() {
        let schema = json!({ "properties": { "a": { "$ref": "http://127.0.0.1:9/schema.json" } } });
        assert_eq!(found(schema, json!({ "a": 1 })), []);
    }

    #[test]
    fn unlisted_names_show_where_others_are_not_allowed() {
        assert_eq!(unlisted(&json!({ "properties": { "a": {} } }), &json!({ "a": 1, "b": 2 })), ["b"]);
        let open = json!({ "properties": { "a": {} }, "additionalProperties": true });
        assert!(unlisted(&open, &json!({ "b": 2 })).is_empty());
        assert!(unlisted(&json!({}), &json!({ "b": 2 })).is_empty());
    }
}
