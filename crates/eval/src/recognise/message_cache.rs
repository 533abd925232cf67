//! Messages of a JSON list that stood in an earlier prompt: every model call repeats its history,
//! so an element is parsed once a trace and known by its text from then on.
//!
//! In: a list as JSON. Out: its messages, exactly as [`MessageReader`] would read them one by one, or
//! nothing where the list is anything but maps that each name a role.

use std::collections::HashMap;
use std::sync::Arc;

use super::message::Message;
use super::message_reader::{MAX_MESSAGES, MessageReader};
use super::node::{MAX_NODES, Node};

/// How deep an element may nest: safely less than what the JSON parser takes of a whole list.
const MAX_DEPTH: usize = 100;
/// No shorter list has more nodes than are accepted: each has at least a byte, and a comma or its
/// second bracket beside it.
const MAX_BYTES: usize = 2 * MAX_NODES - 1;

/// What the prompts of a trace were made of so far.
#[derive(Debug, Default)]
pub(crate) struct MessageCache {
    elements: Vec<Element>,
    by_text: HashMap<Arc<str>, usize, foldhash::fast::RandomState>,
    /// Those of the list before, in order: mostly the next one begins with them.
    last: Vec<usize>,
}

#[derive(Debug)]
struct Element {
    text: Arc<str>,
    message: Message,
    /// A block of it was withheld.
    withheld: bool,
}

impl MessageCache {
    /// The element that `text` begins with, its message read by `read` where it is new; and the
    /// rest of `text`.
    fn element<'t>(
        &mut self,
        nth: usize,
        text: &'t str,
        read: impl FnOnce(&str) -> Option<(Message, bool)>,
    ) -> Option<(&Element, &'t str)> {
        // A map ends where its brackets do, so that what stood here before is what stands here now.
        let before = self.last.get(nth).and_then(|&at| Some((at, self.elements.get(at)?)));
        if let Some((at, rest)) = before.and_then(|(at, e)| Some((at, text.strip_prefix(&*e.text)?))) {
            return Some((self.elements.get(at)?, rest));
        }
        let (element, rest) = text.split_at_checked(object_end(text)?)?;
        let at = match self.by_text.get(element) {
            Some(&known) => known,
            None => {
                let (message, withheld) = read(element)?;
                let text: Arc<str> = element.into();
                self.by_text.insert(Arc::clone(&text), self.elements.len());
                self.elements.push(Element { text, message, withheld });
                self.elements.len() - 1
            }
        };
        self.last.truncate(nth);
        if self.last.len() == nth {
            self.last.push(at);
        }
        Some((self.elements.get(at)?, rest))
    }
}

/// The messages of `list`; nothing where it has to be read as a whole.
pub(crate) fn messages(
    list: &str,
    cache: &mut MessageCache,
    reader: &mut MessageReader<'_>,
) -> Option<Vec<Message>> {
    let mut out = Vec::new();
    let mut rest = list.trim_start_matches(BLANK).strip_prefix('[').filter(|_| list.len() <= MAX_BYTES)?;
    loop {
        rest = rest.trim_start_matches(BLANK);
        let (element, after) = cache.element(out.len(), rest, |element| {
            let mut alone = MessageReader::new(reader.texts);
            Some((alone.single(&Node::json(element)?)?, alone.withheld))
        })?;
        reader.withheld |= element.withheld;
        out.push(element.message.clone());
        let after = after.trim_start_matches(BLANK);
        match after.strip_prefix(',') {
            Some(more) if out.len() < MAX_MESSAGES => rest = more,
            Some(_) => return None,
            None => return after.strip_prefix(']')?.trim_start_matches(BLANK).is_empty().then_some(out),
        }
    }
}

/// What JSON calls blank.
const BLANK: [char; 4] = [' ', '\t', '\r', '\n'];

/// Where the map ends that `text` begins with, if its brackets and strings are sound. Whether it
/// is JSON in between is for the parser to say.
fn object_end(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let (mut at, mut depth) = (0, 0usize);
    if bytes.first() != Some(&b'{') {
        return None;
    }
    loop {
        match bytes.get(at)? {
            b'{' | b'[' if depth == MAX_DEPTH => return None,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            b'"' => at = string_end(bytes, at + 1)?,
            _ => {}
        }
        at += 1;
    }
}

/// Where the quote stands that closes the string whose text begins at `at`.
fn string_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at += memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
        match bytes.get(at) {
            Some(b'"') => return Some(at),
            _ => at += 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::recognise::message::Role;
    use crate::recognise::texts::Texts;

    /// By way of what was seen, and as a whole.
    fn both(list: &str, cache: &mut MessageCache, texts: &mut Texts) -> (Option<Vec<Message>>, Vec<Message>) {
        let mut reader = MessageReader::new(texts);
        let fast = messages(list, cache, &mut reader);
        let withheld = std::mem::take(&mut reader.withheld);
        let whole = reader.messages(&Node::Str(list.into()), Role::User);
        assert!(fast.is_none() || withheld == reader.withheld, "{list}");
        (fast, whole)
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
    fn a_history_that_grows_is_read_as_it_is_alone() {
        let (mut cache, mut texts) = (MessageCache::default(), Texts::new());
        for n in 1..=6 {
            let list = format!(" [{}] ", ELEMENTS[..n].join(" ,\n"));
            let (fast, whole) = both(&list, &mut cache, &mut texts);
            assert_eq!(fast.as_ref(), Some(&whole));
            assert_eq!((whole.len(), cache.elements.len()), (n, n));
        }
    }

    #[test]
    fn lists_of_anything_else_are_left_to_the_whole_reading() {
        let (mut cache, mut texts) = (MessageCache::default(), Texts::new());
        for element in &ELEMENTS[6..] {
            let list = format!("[{},{element}]", ELEMENTS[0]);
            assert_eq!(both(&list, &mut cache, &mut texts).0, None, "{list}");
        }
        let deep = format!(r#"[{{"role":"user","content":{}{}}}]"#, "[".repeat(126), "]".repeat(126));
        assert_eq!(both(&deep, &mut cache, &mut texts).0, None);
    }

    proptest! {
        #[test]
        fn both_ways_agree_on_any_list(
            picks in prop::collection::vec((0usize..12, 0usize..6), 0..8),
            cut in 0usize..400,
            end in "[\\]}, \"]{0,3}",
        ) {
            let (mut cache, mut texts) = (MessageCache::default(), Texts::new());
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
