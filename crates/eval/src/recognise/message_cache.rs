//! Messages of earlier prompts and outputs, by their JSON text. Every model call repeats its history, so each
//! element of a message list is parsed once per trace.
//!
//! In: a message list as JSON. Out: its messages, exactly as [`MessageReader`] would read them one by
//! one; `None` if an element is not a map that names its role.

use std::hash::BuildHasher;

use foldhash::HashMap;

use super::genai_message;
use super::message::{Message, Text};
use super::message_reader::{MAX_MESSAGES, MessageReader};
use super::node::{ContentNode, MAX_ELEMENT_DEPTH, MAX_NODES};

/// Maximum length of a list. Each node takes at least two bytes (itself and a comma or its second
/// bracket), so a list of this length has at most [`MAX_NODES`] nodes.
const MAX_BYTES: usize = 2 * MAX_NODES - 1;
/// Maximum number of bytes at the beginning of an element by which it is looked up.
const HEAD: usize = 256;

/// The elements of the prompts of one trace.
#[derive(Debug, Default)]
pub(crate) struct MessageCache {
    elements: Vec<CachedMessage>,
    /// The last element that begins with a text of this hash, see [`head`].
    by_head: HashMap<u64, usize>,
    /// The elements of the previous list, in order. The next list usually begins with them.
    last: Vec<usize>,
}

#[derive(Debug)]
struct CachedMessage {
    text: Box<str>,
    message: Message,
    finish: Vec<Text>,
    /// A block of the message was recorded without its content.
    withheld: bool,
}

impl MessageCache {
    /// The element at the beginning of `text`, and the text after it. `nth` is its index, if the list is a prompt.
    /// `read` reads an element that is not cached.
    fn element<'t>(
        &mut self,
        nth: Option<usize>,
        text: &'t str,
        read: impl FnOnce(&str) -> Option<CachedMessage>,
    ) -> Option<(&CachedMessage, &'t str)> {
        // A map ends at its closing bracket, so a text that begins with a known element contains
        // exactly this element first.
        let begins =
            |index: &usize| self.elements.get(*index).is_some_and(|element| text.starts_with(&*element.text));
        let in_last_list = nth.and_then(|nth| self.last.get(nth)).copied().filter(begins);
        let index = match in_last_list {
            Some(index) => index,
            None => {
                let head_hash = self.by_head.hasher().hash_one(head(text));
                let index = match self.by_head.get(&head_hash).copied().filter(begins) {
                    Some(cached) => cached,
                    None => {
                        self.elements.push(read(text)?);
                        self.elements.len() - 1
                    }
                };
                self.by_head.insert(head_hash, index);
                if let Some(nth) = nth {
                    self.last.truncate(nth);
                    if self.last.len() == nth {
                        self.last.push(index);
                    }
                }
                index
            }
        };
        let element = self.elements.get(index)?;
        Some((element, text.get(element.text.len()..)?))
    }
}

/// The beginning of `text` up to the first closing bracket of a map, which is part of every element that begins there.
fn head(text: &str) -> &[u8] {
    let head = text.as_bytes().get(..HEAD).unwrap_or(text.as_bytes());
    memchr::memchr(b'}', head).and_then(|end| head.get(..=end)).unwrap_or(head)
}

/// The messages of `list`, which is a prompt or an output; `None` if it must be read as a whole.
pub(crate) fn messages(
    list: &str,
    is_prompt: bool,
    cache: &mut MessageCache,
    reader: &mut MessageReader<'_>,
) -> Option<Vec<Message>> {
    // With room for the instructions, which are inserted before the messages.
    let mut out = Vec::with_capacity(if is_prompt { cache.last.len() + 3 } else { 1 });
    let mut rest = without_space(list).strip_prefix('[').filter(|_| list.len() <= MAX_BYTES)?;
    loop {
        rest = without_space(rest);
        let nth = is_prompt.then_some(out.len());
        let (element, after) = cache.element(nth, rest, |text| {
            let mut element_reader = MessageReader::new(reader.texts);
            let (message, len) = genai_message::read(text, &mut element_reader).or_else(|| {
                // An element that is no map has no role.
                let (node, len) =
                    text.starts_with('{').then(|| ContentNode::first_json(text, MAX_ELEMENT_DEPTH))??;
                Some((element_reader.single(&node)?, len))
            })?;
            let MessageReader { finish, withheld, .. } = element_reader;
            Some(CachedMessage { text: text.get(..len)?.into(), message, finish, withheld })
        })?;
        reader.withheld |= element.withheld;
        reader.finish.extend_from_slice(&element.finish);
        out.push(element.message.clone());
        let after = without_space(after);
        match after.strip_prefix(',') {
            Some(more) if out.len() < MAX_MESSAGES => rest = more,
            Some(_) => return None,
            None => return without_space(after.strip_prefix(']')?).is_empty().then_some(out),
        }
    }
}

/// The text without JSON's whitespace at its beginning.
fn without_space(text: &str) -> &str {
    match text.as_bytes().first() {
        Some(b' ' | b'\t' | b'\r' | b'\n') => text.trim_start_matches([' ', '\t', '\r', '\n']),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::recognise::message::Role;
    use crate::recognise::texts::TextInterner;

    /// Reads `list` through the cache and as a whole.
    fn both(
        list: &str,
        cache: &mut MessageCache,
        texts: &mut TextInterner,
    ) -> (Option<Vec<Message>>, Vec<Message>) {
        let mut reader = MessageReader::new(texts);
        let (nth, role) =
            if list.len().is_multiple_of(2) { (true, Role::User) } else { (false, Role::Assistant) };
        let fast = messages(list, nth, cache, &mut reader);
        let withheld = std::mem::take(&mut reader.withheld);
        let finish = std::mem::take(&mut reader.finish);
        let uncached = reader.messages(&ContentNode::Str(list.into()), role);
        assert!(fast.is_none() || withheld == reader.withheld && finish == reader.finish, "{list}");
        (fast, uncached)
    }

    const ELEMENTS: [&str; 12] = [
        r#"{"role":"user","content":"say \"}]\" and \\"}"#,
        r#"{"role":"assistant","parts":[{"type":"text","content":"é[{"}],"finish_reason":"stop"}"#,
        r#"{"role":"tool","parts":[{"type":"tool_call_response","id":"c","response":"{\"a\":[1]}"}]}"#,
        r#"{"role":"assistant","parts":[{"type":"text"}]}"#,
        r#"{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"f","arguments":"{}"}}]}"#,
        r#"{"role":"user","content":"again"}"#,
        r#"{"type":"text","text":"no role"}"#,
        r#"{"role":"user","content":"#,
        r#"{"role":"user",]"#,
        r#""user""#,
        "[1]",
        "{}",
    ];

    #[test]
    fn growing_history_reads_the_same_with_and_without_cache() {
        let (mut cache, mut texts) = (MessageCache::default(), TextInterner::new());
        for n in 1..=6 {
            let list = format!(" [{}] ", ELEMENTS[..n].join(" ,\n"));
            let (fast, whole) = both(&list, &mut cache, &mut texts);
            assert_eq!(fast.as_ref(), Some(&whole));
            assert_eq!((whole.len(), cache.elements.len()), (n, n));
        }
    }

    #[test]
    fn list_with_an_element_without_role_is_not_read_by_the_cache() {
        let (mut cache, mut texts) = (MessageCache::default(), TextInterner::new());
        for element in &ELEMENTS[6..] {
            let list = format!("[{},{element}]", ELEMENTS[0]);
            assert_eq!(both(&list, &mut cache, &mut texts).0, None, "{list}");
        }
        let deep = format!(r#"[{{"role":"user","content":{}{}}}]"#, "[".repeat(126), "]".repeat(126));
        assert_eq!(both(&deep, &mut cache, &mut texts).0, None);
    }

    proptest! {
        #[test]
        fn cache_and_reader_agree_on_any_list(
            picks in prop::collection::vec((0usize..12, 0usize..6), 0..8),
            cut in 0usize..400,
            end in "[\\]}, \"]{0,3}",
        ) {
            let (mut cache, mut texts) = (MessageCache::default(), TextInterner::new());
            let usual = picks.iter().map(|(any, good)| ELEMENTS[if cut % 4 == 0 { *any } else { *good }]);
            let mut list = format!("[{}]", usual.collect::<Vec<_>>().join(","));
            if cut % 3 == 0 && list.is_char_boundary(cut.min(list.len())) {
                list.truncate(cut);
            }
            list.push_str(&end);
            for _ in 0..2 {
                let (fast, whole) = both(&list, &mut cache, &mut texts);
                prop_assert!(fast.is_none_or(|fast| fast == whole), "{}", list);
            }
        }
    }
}
