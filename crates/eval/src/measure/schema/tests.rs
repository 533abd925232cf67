//! Tests of schemas: hostile schemas, a table of keywords by the specification, and properties of every schema.

use proptest::prelude::*;
use serde_json::json;

use super::problem::MAX_PROBLEMS;
use super::problem::{SHOWN_BYTES, shown};
use super::*;
use crate::measure::defects::Defect;
use crate::measure::excerpt::head;
use crate::measure::work_budget::DEFAULT_STEPS;

fn classified_problems(schema: Value, arguments: Value) -> Vec<(Defect, bool)> {
    let memo = Memo::new();
    problems(&memo, &Arc::new(schema), &arguments).into_iter().map(|p| (p.defect, p.is_coercible)).collect()
}

fn page_schema() -> Value {
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
fn matching_arguments_have_no_problems() {
    assert_eq!(
        classified_problems(page_schema(), json!({ "url": "x", "depth": 2.0, "mode": "fast", "tags": null })),
        []
    );
    assert_eq!(classified_problems(page_schema(), json!({ "url": "x", "tags": ["a"] })), []);
    let nullable = json!({ "properties": { "a": { "type": "string", "nullable": true } } });
    assert_eq!(classified_problems(nullable, json!({ "a": null })), []);
    assert_eq!(classified_problems(json!({}), json!({ "a": 1 })), []);
    assert_eq!(classified_problems(json!("nonsense"), json!({ "a": 1 })), []);
}

#[test]
fn problems_are_classified_as_missing_unknown_or_ill_typed() {
    assert_eq!(
        classified_problems(page_schema(), json!({ "link": "x" })),
        [(Defect::MissingParameter, false), (Defect::UnknownParameter, false)]
    );
    assert_eq!(
        classified_problems(page_schema(), json!({ "url": ["x"] })),
        [(Defect::IllTypedParameter, false)]
    );
    assert_eq!(
        classified_problems(page_schema(), json!({ "url": "x", "depth": "2" })),
        [(Defect::IllTypedParameter, true)]
    );
    assert_eq!(
        classified_problems(page_schema(), json!({ "url": "x", "mode": "odd" })),
        [(Defect::IllTypedParameter, false)]
    );
    assert_eq!(
        classified_problems(page_schema(), json!({ "url": "x", "tags": "a" })),
        [(Defect::IllTypedParameter, false)]
    );
    assert_eq!(classified_problems(page_schema(), json!("x")), [(Defect::IllTypedParameter, false)]);
}

#[test]
fn local_references_and_bounds_are_checked() {
    let schema = json!({
        "type": "object",
        "properties": { "at": { "$ref": "#/$defs/place" }, "n": { "type": "integer", "minimum": 1 } },
        "required": ["at"],
        "$defs": { "place": { "type": "string", "pattern": "^https://" } },
    });
    assert_eq!(classified_problems(schema.clone(), json!({ "at": "https://x", "n": 1 })), []);
    assert_eq!(
        classified_problems(schema.clone(), json!({ "at": "x" })),
        [(Defect::IllTypedParameter, false)]
    );
    assert_eq!(
        classified_problems(schema, json!({ "at": "https://x", "n": 0 })),
        [(Defect::IllTypedParameter, true)]
    );
}

#[test]
fn remote_reference_is_not_fetched() {
    let schema = json!({ "properties": { "a": { "$ref": "http://127.0.0.1:9/schema.json" } } });
    assert_eq!(classified_problems(schema, json!({ "a": 1 })), []);
}

#[test]
fn types_that_a_list_repeats_are_compared_once() {
    let mut types = vec!["null"; 110_000];
    types.extend(["Null", "integer", "INTEGER"]);
    let schema = Schema::compile(&json!({ "type": "array", "items": { "type": types } }));
    let before = verdict_otlp::work::counted();
    assert_eq!(schema.check(&json!(vec![1; 30_000])).validity, Validity::Valid);
    let work = verdict_otlp::work::counted() - before;
    assert!(work <= 8 * 30_000, "{work} comparisons and steps");
    let problem = schema.check(&json!(["x"])).problems;
    assert!(format!("{problem:?}").contains("null or integer"), "{problem:?}");
    assert_eq!(
        Schema::compile(&json!({ "type": ["null", "nothing"] })).check(&json!(1)).validity,
        Validity::Indeterminate
    );
}

#[test]
fn unlisted_names_are_reported_unless_additional_properties_are_allowed() {
    assert_eq!(unlisted(&json!({ "properties": { "a": {} } }), &json!({ "a": 1, "b": 2 })), ["b"]);
    let open = json!({ "properties": { "a": {} }, "additionalProperties": true });
    assert!(unlisted(&open, &json!({ "b": 2 })).is_empty());
    assert!(unlisted(&json!({}), &json!({ "b": 2 })).is_empty());
}

/// The rows are schemas with their valid and invalid values.
#[test]
fn keywords_follow_the_specification() {
    let node = json!({
        "$ref": "#/$defs/node",
        "$defs": { "node": { "properties": { "next": { "$ref": "#/$defs/node" } }, "required": ["v"] } },
    });
    let table = [
        (json!(true), json!([1, null]), json!([])),
        (json!(false), json!([]), json!([1, null, {}])),
        (json!({ "type": "integer" }), json!([1, 1.0, -3]), json!([1.5, "1", true, null])),
        (json!({ "type": ["string", "NULL"] }), json!(["", null]), json!([1, {}])),
        (json!({ "type": "any" }), json!([1, null, []]), json!([])),
        (
            json!({ "enum": [1, "a", [1], { "a": 1, "b": 2 }] }),
            json!([1.0, "a", [1.0], { "b": 2, "a": 1 }]),
            json!([2, [], {}, true]),
        ),
        (json!({ "const": null }), json!([null]), json!([0, false, ""])),
        (
            json!({ "const": 9007199254740993_u64 }),
            json!([9007199254740993_u64]),
            json!([9007199254740992_u64]),
        ),
        (json!({ "minimum": 1, "maximum": 2.5 }), json!([1, 2.5, "x", null]), json!([0.5, 3])),
        (json!({ "exclusiveMinimum": 1, "exclusiveMaximum": 3 }), json!([2, 1.1]), json!([1, 3])),
        (json!({ "minimum": 1, "exclusiveMinimum": true }), json!([2]), json!([1])),
        (json!({ "maximum": 1, "exclusiveMaximum": false }), json!([1]), json!([2])),
        (json!({ "multipleOf": 0.01 }), json!([4.02, 19.99, 3, "x"]), json!([0.005])),
        (json!({ "multipleOf": 3 }), json!([0, -9, 3.0]), json!([4, 1.5])),
        (json!({ "minLength": 2, "maxLength": 3 }), json!(["éé", "abc", 1]), json!(["é", "abcd"])),
        (
            json!({ "pattern": "^\\d{2}-\\w+$" }),
            json!(["12-a_b", 1]),
            json!(["1-a", "\u{661}\u{662}-a", "12-é"]),
        ),
        (json!({ "pattern": "b" }), json!(["abc"]), json!(["ac"])),
        (json!({ "items": { "type": "string" } }), json!([[], ["a"], "x"]), json!([["a", 1]])),
        (
            json!({ "prefixItems": [{ "type": "string" }], "items": false }),
            json!([[], ["a"]]),
            json!([[1], ["a", 1]]),
        ),
        (
            json!({ "items": [{ "type": "string" }], "additionalItems": { "type": "null" } }),
            json!([["a", null]]),
            json!([["a", 1]]),
        ),
        (json!({ "items": [{ "type": "string" }] }), json!([["a", 1]]), json!([[1]])),
        (
            json!({ "minItems": 1, "maxItems": 2, "uniqueItems": true }),
            json!([[1], [1, 2], {}]),
            json!([[], [1, 2, 3], [1, 1.0], [{ "a": 1 }, { "a": 1 }]]),
        ),
        (json!({ "contains": { "const": 1 } }), json!([[1, 2], "x"]), json!([[], [2]])),
        (
            json!({ "contains": { "const": 1 }, "minContains": 2, "maxContains": 3 }),
            json!([[1, 1], [1, 1, 1]]),
            json!([[1], [1, 1, 1, 1]]),
        ),
        (json!({ "contains": { "const": 1 }, "minContains": 0 }), json!([[], [2]]), json!([])),
        (json!({ "required": ["a"] }), json!([{ "a": null }, 1, []]), json!([{}, { "b": 1 }])),
        (
            json!({ "properties": { "a": { "type": "string" } } }),
            json!([{}, { "a": "", "b": 1 }, 1]),
            json!([{ "a": 1 }]),
        ),
        (json!({ "properties": { "a": false } }), json!([{}, { "b": 1 }]), json!([{ "a": 1 }])),
        (
            json!({ "patternProperties": { "^x-": { "type": "integer" } }, "additionalProperties": false }),
            json!([{ "x-a": 1 }]),
            json!([{ "x-a": "1" }, { "y": 1 }]),
        ),
        (
            json!({ "additionalProperties": { "type": "integer" }, "properties": { "a": {} } }),
            json!([{ "a": "x", "b": 1 }]),
            json!([{ "b": "x" }]),
        ),
        (
            json!({ "minProperties": 1, "maxProperties": 1 }),
            json!([{ "a": 1 }, []]),
            json!([{}, { "a": 1, "b": 1 }]),
        ),
        (
            json!({ "propertyNames": { "maxLength": 1 } }),
            json!([{}, { "a": 1, "b": 2 }, 5]),
            json!([{ "ab": 1 }]),
        ),
        (
            json!({ "dependentRequired": { "a": ["b"] } }),
            json!([{}, { "b": 1 }, { "a": 1, "b": 1 }]),
            json!([{ "a": 1 }]),
        ),
        (
            json!({ "dependentSchemas": { "a": { "required": ["b"] } } }),
            json!([{}, { "a": 1, "b": 1 }]),
            json!([{ "a": 1 }]),
        ),
        (
            json!({ "dependencies": { "a": ["b"], "c": { "minProperties": 2 } } }),
            json!([{}, { "c": 1, "d": 1 }]),
            json!([{ "a": 1 }, { "c": 1 }]),
        ),
        (json!({ "allOf": [{ "minimum": 1 }, { "maximum": 2 }] }), json!([1, 2]), json!([0, 3])),
        (json!({ "anyOf": [{ "type": "null" }, { "minimum": 2 }] }), json!([null, 2, "x"]), json!([1])),
        (json!({ "oneOf": [{ "minimum": 1 }, { "maximum": 2 }] }), json!([0, 3]), json!([1, 2, "x"])),
        (json!({ "not": { "type": "string" } }), json!([1]), json!(["x"])),
        (
            json!({ "if": { "type": "string" }, "then": { "minLength": 1 }, "else": { "minimum": 1 } }),
            json!(["x", 1, null]),
            json!(["", 0]),
        ),
        (
            json!({ "then": false, "else": false, "minContains": 5, "additionalItems": false }),
            json!([1, [], [1]]),
            json!([]),
        ),
        (
            node,
            json!([{ "v": 1, "next": { "v": 1 } }]),
            json!([{}, { "v": 1, "next": {} }, { "v": 1, "next": { "v": 1, "next": {} } }]),
        ),
        (
            json!({ "$ref": "#/$defs/a~1b%20c", "$defs": { "a/b c": { "type": "null" } } }),
            json!([null]),
            json!([1]),
        ),
        (
            json!({ "properties": { "a": { "$ref": "#" } }, "additionalProperties": false }),
            json!([{ "a": { "a": {} } }]),
            json!([{ "a": { "b": 1 } }]),
        ),
        (json!({ "$ref": "#/$defs/a", "minimum": 2, "$defs": { "a": {} } }), json!([2]), json!([1])),
        (
            json!({ "$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/a", "minimum": 2, "definitions": { "a": {} } }),
            json!([1]),
            json!([]),
        ),
        (
            json!({ "type": "string", "nullable": true, "format": "uuid", "x-odd": [{}] }),
            json!([null, "x"]),
            json!([1]),
        ),
    ];
    for (schema, fitting, others) in table {
        let compiled = Schema::compile(&schema);
        assert_eq!(compiled.problem(), None, "{schema}");
        for (values, outcome) in [(fitting, Validity::Valid), (others, Validity::Invalid)] {
            for value in values.as_array().unwrap() {
                let validation = compiled.check(value);
                assert_eq!(validation.validity, outcome, "{schema} of {value}");
                assert_eq!(validation.problems.is_empty(), outcome == Validity::Valid, "{schema} of {value}");
            }
        }
    }
}

#[test]
fn malformed_or_unsupported_schema_is_indeterminate() {
    for unclear in [
        json!("nonsense"),
        json!({ "type": "dict" }),
        json!({ "type": 1 }),
        json!({ "required": true }),
        json!({ "properties": ["a"], "additionalProperties": false }),
        json!({ "$ref": "other.json" }),
        json!({ "$ref": "#/nowhere" }),
        json!({ "$ref": "#" }),
        json!({ "anyOf": [] }),
        json!({ "pattern": "(?=a)" }),
        json!({ "pattern": "(a{900}){900}" }),
        json!({ "unevaluatedProperties": false }),
    ] {
        let outcome = |schema: &Value| Schema::compile(schema).check(&json!({ "a": "x" })).validity;
        let inside = json!({ "properties": { "a": unclear } });
        let value = if unclear.get("pattern").is_some() { &inside } else { &unclear };
        assert_eq!(outcome(value), Validity::Indeterminate, "{value}");
        assert_eq!(outcome(&json!({ "not": value })), Validity::Indeterminate, "{value}");
        // Other mismatches are still reported.
        assert_eq!(outcome(&json!({ "allOf": [value], "required": ["b"] })), Validity::Invalid, "{value}");
        assert_eq!(outcome(&json!({ "anyOf": [value, true] })), Validity::Valid, "{value}");
    }
}

#[test]
fn failed_any_of_reports_its_nearest_alternative() {
    let block = |name: &str| {
        json!({
            "type": "object",
            "properties": {
                "type": { "const": name },
                "text": { "type": "string" },
                "children": { "type": "array", "items": { "$ref": "#/$defs/block" } },
            },
            "required": ["type", "text"],
            "additionalProperties": false,
        })
    };
    let blocks: Vec<Value> = (0..30).map(|i| block(&format!("b{i}"))).collect();
    let schema = json!({
        "properties": { "blocks": { "type": "array", "items": { "$ref": "#/$defs/block" } } },
        "$defs": { "block": { "anyOf": blocks } },
    });
    let deep = json!({ "blocks": [{ "type": "b7", "text": "x", "children": [
        { "type": "b29", "text": "x", "children": [{ "type": "b3", "text": 5, "odd": 1 }, { "type": "b30", "text": "x" }] },
        { "type": "b0" },
    ]}]});
    let checked = Schema::compile(&schema).check(&deep);
    let rationales: Vec<&str> = checked.problems.iter().map(|p| p.rationale.as_str()).collect();
    assert_eq!(
        rationales,
        [
            "'blocks[0].children[0].children[0].text' was expected to be string; it is 5",
            "parameters of the tool's schema were expected; it has no 'blocks[0].children[0].children[0].odd' (here 1)",
            "'blocks[0].children[0].children[1]' was expected to be object; it is {\"type\":\"b30\",\"text\":\"x\"}",
            "the required parameter 'blocks[0].children[1].text' was expected; it is missing",
        ]
    );
    assert_eq!(
        checked.problems[0].fault,
        "at '/blocks/0/children/0/children/0/text', the value was expected to be string"
    );
    assert!(checked.steps < 10_000, "{}", checked.steps);
}

#[test]
fn deep_values_and_reference_chains_are_indeterminate() {
    let nested = |depth| (0..depth).fold(json!(1), |inner, _| json!({ "a": inner }));
    let schema = Schema::compile(&json!({ "properties": { "a": { "$ref": "#" } }, "type": "object" }));
    for (depth, outcome) in [(1, Validity::Invalid), (60, Validity::Invalid), (126, Validity::Indeterminate)]
    {
        let checked = schema.check(&nested(depth));
        assert_eq!(checked.validity, outcome, "{depth} {:?}", checked.problems);
    }
    // A chain of references that is deeper than any stack is indeterminate, without an overflow.
    let mut defs = serde_json::Map::new();
    for i in 0..30_000 {
        defs.insert(format!("d{i}"), json!({ "allOf": [{ "$ref": format!("#/$defs/d{}", i + 1) }] }));
    }
    defs.insert("d30000".to_owned(), json!(false));
    let chain = json!({ "$ref": "#/$defs/d0", "$defs": defs });
    assert_eq!(Schema::compile(&chain).check(&nested(1)).validity, Validity::Indeterminate);
}

#[test]
fn calls_of_one_trace_share_a_step_budget() {
    let memo = Memo::new();
    let mut branches = vec![json!({ "type": "null" }); 4_000];
    branches.push(json!({ "type": "integer" }));
    let expensive_schema = Arc::new(json!({ "properties": { "a": { "items": { "anyOf": branches } } } }));
    let ones = json!({ "a": vec![1; 10_000] });
    for _ in 0..40 {
        memo.budget.begin();
        assert_eq!(problems(&memo, &expensive_schema, &ones), []);
        assert!(memo.budget.is_exceeded());
    }
    let spent = DEFAULT_STEPS - memo.budget.left();
    assert!((40 * MAX_STEPS..41 * MAX_STEPS).contains(&spent), "{spent}");
    // A usual call is still checked after the costly ones.
    memo.budget.begin();
    assert_eq!(problems(&memo, &Arc::new(page_schema()), &json!({ "link": "x" })).len(), 2);
    assert!(!memo.budget.is_exceeded());
}

#[test]
fn long_value_is_shown_truncated() {
    for long in ["é".repeat(10_000), "word ".repeat(10_000), "\u{1}".repeat(100), "x".repeat(70)] {
        let value = json!({ "a": [long] });
        assert_eq!(shown(&value), head(&value.to_string(), SHOWN_BYTES), "{value}");
    }
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2..3i64).prop_map(Value::from),
        (-4..5i64).prop_map(|n| Value::from(n as f64 / 2.0)),
        "[ab]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[abc]", inner, 0..4)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

/// Schemas of most keywords, with references to `d0` to `d2`.
fn schemas() -> impl Strategy<Value = Value> {
    let types =
        prop::sample::select(vec!["string", "object", "array", "integer", "number", "null", "boolean"]);
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        types.prop_map(|t| json!({ "type": t })),
        values().prop_map(|v| json!({ "const": v })),
        (0..3u64).prop_map(|n| json!({ "minLength": n, "maxItems": n })),
        (0..3u64).prop_map(|n| json!({ "minProperties": n, "minimum": n })),
        "[abc]".prop_map(|name| json!({ "required": [name], "pattern": name })),
        (0..3).prop_map(|n| json!({ "$ref": format!("#/$defs/d{n}") })),
        Just(json!({ "uniqueItems": true, "multipleOf": 2 })),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let list = prop::collection::vec(inner.clone(), 1..4);
        let keyword = prop::sample::select(vec!["allOf", "anyOf", "oneOf", "prefixItems"]);
        let single =
            prop::sample::select(vec!["not", "items", "contains", "propertyNames", "additionalProperties"]);
        prop_oneof![
            (keyword, list).prop_map(|(key, list)| json!({ key: list })),
            (single, inner.clone()).prop_map(|(key, schema)| json!({ key: schema })),
            (prop::collection::btree_map("[abc]", inner.clone(), 1..4), any::<bool>())
                .prop_map(|(map, open)| json!({ "properties": map, "additionalProperties": open })),
            (inner.clone(), inner.clone(), inner)
                .prop_map(|(a, b, c)| json!({ "if": a, "then": b, "else": c })),
        ]
    })
}

/// The number of values in a value, including itself.
fn count(value: &Value) -> u64 {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(map) => map.values().map(count).sum::<u64>(),
        _ => 0,
    }
}

proptest! {
    #[test]
    fn combinators_are_consistent_and_steps_are_bounded(schema in schemas(), defs in prop::collection::vec(schemas(), 3), value in values()) {
        let with_defs = |schema: Value| {
            let defs = json!({ "d0": defs[0], "d1": defs[1], "d2": defs[2] });
            json!({ "allOf": [schema], "$defs": defs })
        };
        let check = |schema: Value| Schema::compile(&with_defs(schema)).check(&value);
        let outcome = |schema: Value| check(schema).validity;
        let original = check(schema.clone());
        prop_assert!(original.problems.len() <= MAX_PROBLEMS);
        prop_assert_eq!(original.validity == Validity::Invalid, !original.problems.is_empty());
        let all = check(json!({ "allOf": [schema, true, schema] }));
        prop_assert_eq!((all.validity, all.problems), (original.validity, original.problems.clone()));
        prop_assert_eq!(outcome(json!({ "anyOf": [schema, schema] })), original.validity);
        prop_assert_eq!(outcome(json!({ "oneOf": [schema, false] })), original.validity);
        prop_assert_eq!(outcome(json!({ "not": { "not": schema } })), original.validity);
        prop_assert_eq!(outcome(json!({ "if": schema, "then": true, "else": false })), original.validity);
        if let Value::Object(mut more) = schema.clone() {
            more.insert("x-unknown".to_owned(), json!([{ "type": 5 }]));
            prop_assert_eq!(check(Value::Object(more)).problems, original.problems);
        }
        // Each part of the value is checked once, and reported once, by each part of the schema.
        let bound = 8 * count(&with_defs(schema)) * (count(&value) + 2);
        prop_assert!(original.steps <= bound, "{} steps, {bound}", original.steps);
    }
}
