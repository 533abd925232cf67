//! Reads a message in the form of the GenAI semantic conventions, which most messages have, without a tree of nodes.
//!
//! In: JSON. Out: exactly what [`MessageReader::single`] reads from the same text, if the message consists of a role, a
//! finish reason, and parts that are texts, reasoning, calls, and results that are texts; `None` for any other message.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::message::{Message, Part, Role, ToolRequest};
use super::message_reader::{MessageReader, message_of, role_named};
use super::node::{ContentNode, JsonStr, MAX_ELEMENT_DEPTH};
use super::texts::TextInterner;

/// Number of bytes at the beginning of a message in which its key `parts` must begin.
const HEAD: usize = 64;
/// Levels of maps and lists around the arguments of a call: message, parts, part.
const LEVELS: usize = 3;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GenAiMessage<'a> {
    #[serde(borrow)]
    role: JsonStr<'a>,
    #[serde(borrow)]
    parts: Vec<MapOf<GenAiPart<'a>>>,
    #[serde(borrow)]
    finish_reason: Option<JsonStr<'a>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GenAiPart<'a> {
    #[serde(borrow, rename = "type")]
    kind: JsonStr<'a>,
    #[serde(borrow)]
    content: Option<JsonStr<'a>>,
    #[serde(borrow)]
    id: Option<JsonStr<'a>>,
    #[serde(borrow)]
    name: Option<JsonStr<'a>>,
    #[serde(borrow)]
    arguments: Option<Arguments<'a>>,
    #[serde(borrow)]
    response: Option<JsonStr<'a>>,
}

/// A structure that is recorded as a map; `serde` would also accept a list of its members.
struct MapOf<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for MapOf<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MapVisitor(PhantomData)).map(MapOf)
    }
}

struct MapVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for MapVisitor<T> {
    type Value = T;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}

/// The arguments of a call.
struct Arguments<'a>(ContentNode<'a>);

impl<'de: 'a, 'a> Deserialize<'de> for Arguments<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        ContentNode::deserialize(deserializer, MAX_ELEMENT_DEPTH - LEVELS).map(Arguments)
    }
}

/// The message at the beginning of `json`, and its length.
pub(super) fn read(json: &str, reader: &mut MessageReader<'_>) -> Option<(Message, usize)> {
    // The parser would reject a message without `parts` only after parsing it.
    let head = json.get(..json.floor_char_boundary(HEAD))?;
    let mut de = head.contains("\"parts\"").then(|| serde_json::Deserializer::from_str(json))?;
    let MapOf(GenAiMessage { role, parts: recorded, finish_reason }) = MapOf::deserialize(&mut de).ok()?;
    let role = role_named(&role.0);
    if role == Role::Tool && !recorded.iter().any(|MapOf(part)| part.kind.0 == RESULT) {
        return None;
    }
    let mut parts = Vec::with_capacity(recorded.len());
    for MapOf(part) in &recorded {
        parts.push(part.read(reader.texts)?);
    }
    reader.finish.extend(reader.texts.option(text(&finish_reason)));
    Some((message_of(role, parts), de.into_iter::<IgnoredAny>().byte_offset()))
}

/// The type of a part that is the result of a call.
const RESULT: &str = "tool_call_response";

impl GenAiPart<'_> {
    fn read(&self, texts: &mut TextInterner) -> Option<Part> {
        Some(match &*self.kind.0 {
            "text" => Part::Text(texts.intern(&self.content.as_ref()?.0)),
            "reasoning" => Part::Reasoning(texts.intern(&self.content.as_ref()?.0)),
            "tool_call" => {
                let (name, arguments) = (self.name.as_ref()?, self.arguments.as_ref()?);
                Part::Call(ToolRequest {
                    id: texts.option(text(&self.id)),
                    name: texts.intern(&name.0),
                    arguments: texts.non_empty(&arguments.0.text()),
                })
            }
            RESULT => Part::Result {
                id: texts.option(text(&self.id)),
                name: texts.option(text(&self.name)),
                content: texts.intern(&self.response.as_ref()?.0),
                failed: false,
            },
            _ => return None,
        })
    }
}

fn text<'s>(member: &'s Option<JsonStr<'_>>) -> Option<&'s str> {
    member.as_ref().map(|text| &*text.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::recognise::message::Text;

    const MEMBERS: [&str; 24] = [
        r#""type":"text""#,
        r#""type":"tool_call""#,
        r#""type":"tool_call_response""#,
        r#""type":"reasoning""#,
        r#""type":"image""#,
        r#""type":1"#,
        r#""content":"said \"\u00e9\"""#,
        r#""content":"""#,
        r#""content":null"#,
        r#""content":[{"type":"text","text":"inner"}]"#,
        r#""id":"call_0""#,
        r#""id":null"#,
        r#""id":7"#,
        r#""name":"find""#,
        r#""name":null"#,
        r#""arguments":{"a":[1,2.50,"x"],"a":{}}"#,
        r#""arguments":"{\"a\": 1}""#,
        r#""arguments":null"#,
        r#""arguments":"""#,
        r#""response":"found \n it""#,
        r#""response":{"error":"none"}"#,
        r#""response":null"#,
        r#""is_error":true"#,
        r#""text":"other""#,
    ];

    /// A message, its length, the finish reasons, and whether a block was recorded without its content.
    type Outcome = (Message, usize, Vec<Text>, bool);

    /// Reads `json` as this module does and by its nodes.
    fn read_both_ways(json: &str, texts: &mut TextInterner) -> [Option<Outcome>; 2] {
        let mut reader = MessageReader::new(texts);
        let direct = read(json, &mut reader);
        let direct = direct.map(|(message, len)| (message, len, reader.finish, reader.withheld));
        let mut reader = MessageReader::new(texts);
        let by_nodes = ContentNode::first_json(json, MAX_ELEMENT_DEPTH)
            .and_then(|(node, len)| Some((reader.single(&node)?, len)));
        [direct, by_nodes.map(|(message, len)| (message, len, reader.finish, reader.withheld))]
    }

    #[test]
    fn usual_messages_are_read_and_maps_only() {
        let mut texts = TextInterner::new();
        for json in [
            r#"{"role":"user","parts":[{"type":"text","content":"hello"}]},"#,
            r#"{"parts":[{"type":"tool_call","id":"c","name":"f","arguments":{"a":1}}],"role":"assistant","finish_reason":"stop"} "#,
            r#"{"role":"tool","parts":[{"type":"tool_call_response","id":"c","response":"{\"a\":1}"}]}]"#,
        ] {
            let [direct, by_nodes] = read_both_ways(json, &mut texts);
            assert!(direct.is_some() && direct == by_nodes, "{json}");
        }
        let depth = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
        for levels in
            [MAX_ELEMENT_DEPTH - LEVELS - 1, MAX_ELEMENT_DEPTH - LEVELS, MAX_ELEMENT_DEPTH - LEVELS + 1]
        {
            let call = format!(r#"{{"type":"tool_call","name":"f","arguments":{}}}"#, depth(levels));
            let [direct, by_nodes] =
                read_both_ways(&format!(r#"{{"role":"user","parts":[{call}]}}"#), &mut texts);
            assert_eq!(direct, by_nodes, "{levels}");
            assert_eq!(direct.is_some(), levels <= MAX_ELEMENT_DEPTH - LEVELS, "{levels}");
        }
        for json in [
            r#"["user",[{"type":"text","content":"hello"}],null,"parts"]"#,
            r#"{"role":"user","parts":[["text","hello",null,null,null,null]]}"#,
            r#"{"role":"user","role":"tool","parts":[]}"#,
            r#"{"role":"user","content":"hello"}"#,
        ] {
            assert_eq!(read_both_ways(json, &mut texts)[0], None, "{json}");
        }
    }

    proptest! {
        #[test]
        fn messages_are_those_of_their_nodes(
            picks in prop::collection::vec(prop::collection::vec(0..MEMBERS.len(), 1..5), 0..4),
            role in prop::sample::select(vec!["user", "assistant", "tool", "system", "a.model", "other"]),
            end in prop::sample::select(vec!["", r#","finish_reason":"stop""#, r#","finish_reason":null"#, r#","x":1"#]),
        ) {
            let part = |members: &Vec<usize>| {
                format!("{{{}}}", members.iter().map(|index| MEMBERS[*index]).collect::<Vec<_>>().join(","))
            };
            let parts = picks.iter().map(part).collect::<Vec<_>>().join(", ");
            let [direct, by_nodes] = read_both_ways(&format!(r#"{{"role":"{role}","parts":[{parts}]{end}}},"#), &mut TextInterner::new());
            prop_assert!(direct.is_none() || direct == by_nodes, "{parts}");
        }
    }
}
