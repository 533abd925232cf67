//! Positions in files, and paths of keys.

/// The position of a value: file (an index into the loader's list), line and column, both from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Mark {
    pub file: usize,
    pub line: usize,
    pub column: usize,
}

/// One step of a path: the key of a map, or the index in a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    Key(String),
    Item(usize),
}

/// A path in the notation of messages: `exporters.otlp_grpc.endpoint`, `service.exporters[1]`.
pub fn dotted(path: &[Step]) -> String {
    let mut out = String::new();
    for step in path {
        match step {
            Step::Key(key) if out.is_empty() => out.push_str(key),
            Step::Key(key) => out.extend([".", key]),
            Step::Item(i) => out.push_str(&format!("[{i}]")),
        }
    }
    out
}

/// The inverse of [`dotted`], for keys without a dot or bracket.
pub fn undotted(text: &str) -> Vec<Step> {
    let mut path = Vec::new();
    for part in text.split('.').filter(|part| !part.is_empty()) {
        let mut pieces = part.split('[');
        path.extend(pieces.next().filter(|name| !name.is_empty()).map(|name| Step::Key(name.to_owned())));
        path.extend(pieces.filter_map(|piece| piece.strip_suffix(']')?.parse().ok()).map(Step::Item));
    }
    path
}
