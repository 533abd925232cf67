//! The merged YAML of all files, read section by section.

use serde::de::DeserializeOwned;
use verdict_config::{
    Issue, Node, Problem, REDACTED, Step, Style, Value, dotted, nearest, read, read_joined, undotted,
};

use super::verdict::VerdictConfig;

/// Parts of header names by which the value is a secret. Names that end in "key" mark a secret as well.
const SECRET_NAME_PARTS: [&str; 9] = [
    "authorization",
    "token",
    "secret",
    "password",
    "credential",
    "cookie",
    "apikey",
    "dsn",
    "x-honeycomb-team",
];

/// The sections of the configuration and the problems in them.
pub(super) struct Sections {
    root: Node,
    issues: Vec<Issue>,
    known_sections: Vec<&'static str>,
}

impl Sections {
    /// `issues` are the problems of the texts. A section adds no problem at a key that has one.
    pub(super) fn new(root: Node, issues: Vec<Issue>) -> Sections {
        Sections { root, issues, known_sections: Vec::new() }
    }

    /// Reads one top-level section; one that is absent has its defaults.
    pub(super) fn section<T: DeserializeOwned + Default>(&mut self, name: &'static str) -> T {
        self.section_or(name, T::default())
    }

    pub(super) fn section_or<T: DeserializeOwned>(&mut self, name: &'static str, default: T) -> T {
        self.known_sections.push(name);
        let node = self.root.get(name);
        node.and_then(|node| read(node, &[key(name)], &mut self.issues)).unwrap_or(default)
    }

    /// `verdict`, whose keys belong to the pipeline and to the evaluator.
    pub(super) fn verdict(&mut self) -> VerdictConfig {
        self.known_sections.push("verdict");
        let node = self.root.get("verdict");
        let read = node.and_then(|node| read_joined(node, &[key("verdict")], &mut self.issues));
        read.map(|(verdict, evaluation)| VerdictConfig { evaluation, ..verdict }).unwrap_or_default()
    }

    /// Whether a problem was found at or beneath `path`.
    pub(super) fn is_broken(&self, path: &[Step]) -> bool {
        let prefix = dotted(path);
        let beneath = |key: &str| {
            key.strip_prefix(&prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        self.issues.iter().any(|issue| beneath(&issue.key))
    }

    pub(super) fn problem(&mut self, path: &[Step], message: String, hint: Option<String>) {
        let at = self.root.position(path);
        let message = self.root.node_at(path).map_or(message.clone(), |node| node.masked(message));
        self.issues.push(Issue::new(at, dotted(path), message).with_hint(hint));
    }

    /// Adds the problems of a section.
    pub(super) fn problems(&mut self, section: &str, problems: Vec<Problem>) {
        for problem in problems {
            let Problem { key, message, hint } = problem.in_section(section);
            let path = undotted(&key);
            // A value that could not be read has its default here, which is not a problem.
            if !self.is_broken(&path) {
                self.problem(&path, message, hint);
            }
        }
    }

    /// Reports a secret that is written in the file.
    pub(super) fn must_come_from_outside(&mut self, path: &[Step]) {
        let value = self.root.node_at(path).filter(|node| !node.is_null()).map(|node| &node.value);
        // `print-config` writes REDACTED, and its output must be readable.
        let is_literal =
            matches!(value, Some(Value::Scalar(text, Style::Plain | Style::Quoted)) if text != REDACTED);
        // A variable that could not be substituted is still in the text and was reported.
        if is_literal && !self.is_broken(path) {
            let message = "a secret must not be written here: give it as ${env:NAME} or ${file:PATH}";
            self.problem(path, message.to_owned(), None);
        }
    }

    /// Like [`Sections::must_come_from_outside`], for headers with the name of a secret. Others, such as a
    /// tenant's name, may be written in the file.
    pub(super) fn headers_come_from_outside<'n>(
        &mut self,
        section: &[Step],
        names: impl Iterator<Item = &'n String>,
    ) {
        for name in names {
            let lower = name.to_ascii_lowercase();
            if lower.ends_with("key") || SECRET_NAME_PARTS.iter().any(|part| lower.contains(part)) {
                self.must_come_from_outside(&[section, &[key("headers"), key(name)]].concat());
            }
        }
    }

    /// Reports unknown sections, and returns all issues.
    pub(super) fn finish(mut self) -> Vec<Issue> {
        if !matches!(self.root.value, Value::Map(_)) {
            self.problem(&[], "a configuration is a map of sections".to_owned(), None);
        }
        let names: Vec<String> = self.root.entries().iter().map(|(k, _)| k.text.clone()).collect();
        let known_sections = std::mem::take(&mut self.known_sections);
        for name in names.iter().filter(|n| !known_sections.contains(&n.as_str())) {
            let hint = nearest(name, known_sections.iter().copied());
            self.problem(&[key(name)], "no such section".to_owned(), hint);
        }
        self.issues
    }
}

pub(super) fn key(name: &str) -> Step {
    Step::Key(name.to_owned())
}
