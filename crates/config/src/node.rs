//! Parses YAML to a tree with the position of each value, and merges trees.
//!
//! In: the text of one file. Out: a [`Node`], or the first syntax error. Scalars keep their text: the type
//! of the key determines the meaning of `1.10` or `on`, so that a password of digits remains a text.

use granit_parser::{Event, Options, Parser, ScalarStyle, Span};

use crate::issue::Issue;
use crate::place::{Mark, Step};

/// The notation of a scalar, which determines whether it may be read as a number, a boolean or null.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Style {
    /// Without quotes: may be a number, a boolean, or null.
    Plain,
    /// In quotes or a block: text.
    Quoted,
    /// The whole scalar is the value of a variable: typed as `Plain`, never shown in a message.
    Substituted,
    /// A part of the scalar is the value of a variable: text, never shown in a message.
    Mixed,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    pub value: Value,
    pub at: Mark,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    Scalar(String, Style),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

#[derive(Clone, PartialEq, Debug)]
pub struct Key {
    pub text: String,
    pub at: Mark,
}

/// Maximum number of nodes, more than any configuration has. Aliases can expand a small file to many nodes.
const MAX_NODES: usize = 100_000;
/// Largest depth, more than any configuration has.
const MAX_DEPTH: usize = 64;

impl Node {
    pub fn empty(at: Mark) -> Node {
        Node { value: Value::Map(Vec::new()), at }
    }

    /// Whether the value is absent or `null`.
    pub fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar(text, Style::Plain) if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    pub fn entries(&self) -> &[(Key, Node)] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entries().iter().find(|(k, _)| k.text == key).map(|(_, node)| node)
    }

    /// The node that `step` leads to, with the position of its key in a map, or its own in a list.
    fn child(&self, step: &Step) -> Option<(Mark, &Node)> {
        match (&self.value, step) {
            (Value::Map(entries), Step::Key(key)) => {
                entries.iter().find(|(k, _)| k.text == *key).map(|(k, node)| (k.at, node))
            }
            (Value::List(items), Step::Item(i)) => items.get(*i).map(|node| (node.at, node)),
            _ => None,
        }
    }

    /// The node at `path`, if it exists.
    pub fn node_at(&self, path: &[Step]) -> Option<&Node> {
        path.iter().try_fold(self, |node, step| node.child(step).map(|(_, node)| node))
    }

    /// The position of `path`, or of the longest part of it that exists.
    pub fn position(&self, path: &[Step]) -> Mark {
        let (mut at, mut node) = (self.at, self);
        for step in path {
            let Some(child) = node.child(step) else { break };
            (at, node) = child;
        }
        at
    }

    /// Removes the node at `path`; false if there is none.
    pub(crate) fn remove(&mut self, path: &[Step]) -> bool {
        let [step, rest @ ..] = path else { return false };
        match (&mut self.value, step) {
            (Value::Map(entries), Step::Key(key)) => match entries.iter().position(|(k, _)| k.text == *key) {
                Some(at) if rest.is_empty() => drop(entries.remove(at)),
                Some(at) => return entries[at].1.remove(rest),
                None => return false,
            },
            (Value::List(items), Step::Item(i)) if *i < items.len() => match rest {
                [] => drop(items.remove(*i)),
                _ => return items[*i].remove(rest),
            },
            _ => return false,
        }
        true
    }

    /// `message` without the text of this node if a variable is part of the text, since its value may be a secret.
    pub fn masked(&self, message: String) -> String {
        match &self.value {
            Value::Scalar(text, Style::Substituted | Style::Mixed) if !text.is_empty() => {
                message.replace(text.as_str(), "(from outside the file)")
            }
            _ => message,
        }
    }

    /// Merges `other` into this node: maps are merged key by key, any other value is replaced.
    pub fn merge(&mut self, other: Node) {
        match (&mut self.value, other.value) {
            (Value::Map(entries), Value::Map(new)) => {
                for (key, node) in new {
                    match entries.iter_mut().find(|(k, _)| k.text == key.text) {
                        Some((k, old)) => {
                            *k = key;
                            old.merge(node);
                        }
                        None => entries.push((key, node)),
                    }
                }
            }
            (value, new) => *value = new,
        }
        self.at = other.at;
    }

    /// Calls `f` on every scalar, with its position and path.
    pub fn visit_scalars(
        &mut self,
        path: &mut Vec<Step>,
        f: &mut impl FnMut(&mut String, &mut Style, Mark, &[Step]),
    ) {
        match &mut self.value {
            Value::Scalar(text, style) => f(text, style, self.at, path),
            Value::List(items) => {
                for (i, node) in items.iter_mut().enumerate() {
                    path.push(Step::Item(i));
                    node.visit_scalars(path, f);
                    path.pop();
                }
            }
            Value::Map(entries) => {
                for (key, node) in entries {
                    path.push(Step::Key(key.text.clone()));
                    node.visit_scalars(path, f);
                    path.pop();
                }
            }
        }
    }

    fn count(&self) -> usize {
        1 + match &self.value {
            Value::Scalar(..) => 0,
            Value::List(items) => items.iter().map(Node::count).sum(),
            Value::Map(entries) => entries.iter().map(|(_, node)| node.count()).sum(),
        }
    }
}

/// Reads one YAML document; an empty one is an empty map.
pub fn parse(file: usize, text: &str) -> Result<Node, Issue> {
    parse_within(file, text, MAX_NODES)
}

/// Like [`parse`], with another limit on the number of nodes.
pub fn parse_within(file: usize, text: &str, max_nodes: usize) -> Result<Node, Issue> {
    // The parser buffers comments up to a limit, which a file with many comments exceeds.
    let mut options = Options::default();
    options.set_emit_comments(false);
    let mut builder =
        NodeBuilder { file, max_nodes, nodes: 0, anchors: Vec::new(), open: Vec::new(), root: None };
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.map_err(|e| {
            let line = e.marker().line().max(1);
            // The most frequent cause: within a flow map `{ ... }`, braces must be quoted.
            let variable = text.lines().nth(line - 1).is_some_and(|l| l.contains("${"));
            let hint = if variable { "; within braces, put variables in quotes: \"${...}\"" } else { "" };
            let at = Mark { file, line, column: e.marker().col() + 1 };
            problem(at, &format!("not YAML: {}{hint}", e.info()))
        })?;
        builder.handle(event, span)?;
    }
    let root = builder.root.unwrap_or_else(|| Node::empty(Mark { file, line: 1, column: 1 }));
    Ok(if root.is_null() { Node::empty(root.at) } else { root })
}

/// A list or map whose end has not been read yet.
struct OpenCollection {
    node: Node,
    key: Option<Key>,
    anchor: usize,
}

struct NodeBuilder {
    file: usize,
    max_nodes: usize,
    nodes: usize,
    anchors: Vec<(usize, Node)>,
    open: Vec<OpenCollection>,
    root: Option<Node>,
}

impl NodeBuilder {
    fn handle(&mut self, event: Event<'_>, span: Span) -> Result<(), Issue> {
        let at = Mark { file: self.file, line: span.start.line(), column: span.start.col() + 1 };
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let style = if style == ScalarStyle::Plain { Style::Plain } else { Style::Quoted };
                self.add_node(Node { value: Value::Scalar(text.into_owned(), style), at }, anchor)
            }
            Event::SequenceStart(_, anchor, _) => self.start(Value::List(Vec::new()), at, anchor),
            Event::MappingStart(_, anchor, _) => self.start(Value::Map(Vec::new()), at, anchor),
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(closed) => self.add_node(closed.node, closed.anchor),
                None => Ok(()),
            },
            Event::Alias(id) => {
                let node =
                    self.anchors.iter().rev().find(|(anchor, _)| *anchor == id).map(|(_, n)| n.clone());
                let node = node.ok_or_else(|| {
                    problem(at, "an alias refers to an anchor that is not complete or not defined")
                })?;
                self.nodes += node.count();
                self.add_node(node, 0)
            }
            Event::DocumentStart(..) if self.root.is_some() => {
                Err(problem(at, "a second document; pass --config once per file instead"))
            }
            _ => Ok(()),
        }
    }

    fn start(&mut self, value: Value, at: Mark, anchor: usize) -> Result<(), Issue> {
        if self.open.len() >= MAX_DEPTH {
            return Err(problem(at, "nested too deep"));
        }
        if matches!(
            self.open.last(),
            Some(OpenCollection { node: Node { value: Value::Map(_), .. }, key: None, .. })
        ) {
            return Err(problem(at, "a key must be a plain word"));
        }
        self.open.push(OpenCollection { node: Node { value, at }, key: None, anchor });
        Ok(())
    }

    fn add_node(&mut self, node: Node, anchor: usize) -> Result<(), Issue> {
        self.nodes += 1;
        if self.nodes > self.max_nodes {
            return Err(problem(node.at, "too many values"));
        }
        if anchor > 0 {
            self.anchors.push((anchor, node.clone()));
        }
        let Some(OpenCollection { node: parent, key, .. }) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        match (&mut parent.value, key.take()) {
            (Value::List(items), _) => items.push(node),
            (Value::Map(entries), Some(key)) => entries.push((key, node)),
            (Value::Map(entries), None) => {
                let Node { value: Value::Scalar(text, _), at } = node else {
                    return Err(problem(node.at, "a key must be a plain word"));
                };
                if let Some((first, _)) = entries.iter().find(|(k, _)| k.text == text) {
                    let line = first.at.line;
                    return Err(problem(at, &format!("'{text}' is written twice; first on line {line}")));
                }
                *key = Some(Key { text, at });
            }
            (Value::Scalar(..), _) => {}
        }
        Ok(())
    }
}

fn problem(at: Mark, message: &str) -> Issue {
    Issue::new(at, String::new(), message.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_the_positions_of_the_text() {
        let node = parse(3, "a: 1\nb:\n  c: [x, 'y']\n").unwrap();
        let path = [Step::Key("b".into()), Step::Key("c".into()), Step::Item(1)];
        assert_eq!(node.position(&path), Mark { file: 3, line: 3, column: 10 });
        assert_eq!(node.position(&path[..2]), Mark { file: 3, line: 3, column: 3 });
    }

    #[test]
    fn a_later_file_merges_maps_and_replaces_lists_and_scalars() {
        let mut node = parse(0, "a: {x: 1, y: [1, 2]}\nb: 1").unwrap();
        node.merge(parse(1, "a: {y: [3], z: 4}").unwrap());
        let texts = |n: &Node| {
            let mut out = Vec::new();
            n.clone().visit_scalars(&mut Vec::new(), &mut |t, _, _, _| out.push(t.clone()));
            out
        };
        assert_eq!(texts(&node), ["1", "3", "4", "1"]);
    }

    #[test]
    fn duplicate_keys_second_documents_and_exponential_aliases_are_errors() {
        assert!(parse(0, "a: 1\na: 2").unwrap_err().message.contains("twice"));
        assert!(parse(0, "a: 1\n---\nb: 2").unwrap_err().message.contains("second document"));
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for i in 1..9 {
            let prior = format!("*a{}", i - 1);
            bomb += &format!("a{i}: &a{i} [{}]\n", vec![prior; 10].join(", "));
        }
        assert_eq!(parse(0, &bomb).unwrap_err().message, "too many values");
        assert!(parse(0, &"[".repeat(200)).is_err());
        assert!(parse(0, "a: { b: ${env:X} }").unwrap_err().message.contains("quotes"));
        assert!(parse(0, "a: *nowhere").is_err());
        assert!(parse(0, "a: &x [*x]").is_err());
    }

    #[test]
    fn an_empty_document_is_an_empty_map() {
        for text in ["", "# only a comment\n", "---\n", "~"] {
            assert!(matches!(parse(0, text).unwrap().value, Value::Map(m) if m.is_empty()), "{text:?}");
        }
    }
}
