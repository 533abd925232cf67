//! Any text as a judge's answer: no panic, and what is taken fits the form and is taken again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use otel_verdict::judge::Mould;
use otel_verdict::measure::{Form, ScoreField};
use serde_json::json;

fuzz_target!(|text: &str| {
    let form = Form {
        name: "verdict",
        schema: json!({
            "type": "object",
            "properties": {
                "rationale": { "type": "string" },
                "score": { "type": "integer", "enum": [1, 2, 3, 4, 5] },
            },
            "required": ["rationale", "score"],
            "additionalProperties": false,
        }),
        score: Some(ScoreField { key: "score", values: vec![1, 2, 3, 4, 5] }),
    };
    let mould = Mould::new(&form).expect("the schema is one");
    if let Ok(value) = mould.read(text) {
        assert!((1..=5).contains(&value["score"].as_u64().expect("a whole number")));
        assert_eq!(mould.read(&value.to_string()).as_ref(), Ok(&value));
    }
});
