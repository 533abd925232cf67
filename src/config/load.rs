//! From files to a [`Config`], or to every fault in them.
//!
//! In: YAML files in order, and the environment. Out: a configuration that has been checked as far
//! as text can be: no socket, folder or other file is opened, but for what `${file:PATH}` names
//! where a configuration is to be used and not only checked. The steps: parse each file,
//! put variables in, lay the files over one another, read each section by itself, then check what
//! spans sections.

use std::path::Path;

use serde::de::DeserializeOwned;

use verdict_config::env::{Known, Outside, substitute};
use verdict_config::{
    Invalid, Issue, Mark, Node, Problem, REDACTED, Source, Step, Style, Value, dotted, nearest, parse, read,
    read_bounded, read_joined,
};

use super::{Config, Verdict};

/// What the names of headers that hold a secret have in them; those that end in "key" hold one too.
const SECRETS: [&str; 9] = [
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

/// Looks an environment variable up.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A configuration is text that people wrote; more is a wrong file.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// Reads `files`, later ones over earlier ones; without any, the defaults hold.
///
/// # Errors
/// Every fault of every file.
pub fn load<P: AsRef<Path>>(files: &[P]) -> Result<Config, Invalid> {
    read_all(files, true)
}

/// As [`load`], but only to see whether there are faults: what `${file:PATH}` names is not opened
/// and taken to be there. A value that comes from one stands as it was written.
///
/// # Errors
/// Every fault of every file.
pub fn check<P: AsRef<Path>>(files: &[P]) -> Result<Config, Invalid> {
    read_all(files, false)
}

fn read_all<P: AsRef<Path>>(files: &[P], open: bool) -> Result<Config, Invalid> {
    let mut sources = Vec::new();
    let mut unreadable: Option<Invalid> = None;
    for file in files {
        let name = file.as_ref().display().to_string();
        match read_text(file.as_ref()) {
            Ok(text) => sources.push(Source { name, text }),
            Err(why) => {
                let found = Invalid::unreadable(&name, &why);
                unreadable = Some(match unreadable {
                    Some(before) => before.and(found),
                    None => found,
                });
            }
        }
    }
    let outside = Outside { env: &|name| std::env::var(name).ok(), files: open };
    let loaded = assemble(&sources, &outside);
    match (unreadable, loaded) {
        (None, loaded) => loaded,
        (Some(faults), Ok(_)) => Err(faults),
        (Some(faults), Err(more)) => Err(faults.and(more)),
    }
}

fn read_text(file: &Path) -> Result<String, String> {
    read_bounded(file, MAX_FILE_BYTES).map_err(|e| e.to_string())
}

/// As [`check`], from texts at hand.
///
/// # Errors
/// Every fault of every text.
pub fn from_sources(sources: &[Source], lookup: Lookup<'_>) -> Result<Config, Invalid> {
    assemble(sources, &Outside { env: lookup, files: false })
}

fn assemble(sources: &[Source], outside: &Outside<'_>) -> Result<Config, Invalid> {
    let mut issues = Vec::new();
    let mut root = Node::empty(Mark::default());
    let mut unopened = Vec::new();
    for (file, source) in sources.iter().enumerate() {
        match parse(file, &source.text) {
            Ok(mut node) => {
                put_variables_in(&mut node, outside, &mut issues, &mut unopened);
                root.merge(node);
            }
            Err(fault) => issues.push(Issue::new(fault.at, String::new(), fault.message)),
        }
    }
    // A value whose variable is missing cannot be right: one fault, not two.
    // One whose file was not opened may be right: no fault at all.
    let missing: Vec<Mark> = issues.iter().map(|issue| issue.at).collect();
    unopened.retain(|(at, path)| root.at(path).is_some_and(|node| node.at == *at));
    let silent = |issue: &Issue| {
        let unknown = |(at, path): &(Mark, Vec<Step>)| issue.at == *at || issue.key == dotted(path);
        missing.contains(&issue.at) || unopened.iter().any(unknown)
    };
    let faults_of_text = issues.len();
    let mut sections = Sections { root, issues, seen: Vec::new() };
    let config = Config::read(&mut sections);
    sections.refuse_the_rest();
    let mut issues = sections.issues;
    let of_sections = issues.split_off(faults_of_text);
    issues.extend(of_sections.into_iter().filter(|issue| !silent(issue)));
    if issues.is_empty() {
        return Ok(config);
    }
    let names: Vec<String> = sources.iter().map(|s| s.name.clone()).collect();
    Err(Invalid::new(&names, issues))
}

fn put_variables_in(
    node: &mut Node,
    outside: &Outside<'_>,
    issues: &mut Vec<Issue>,
    unopened: &mut Vec<(Mark, Vec<Step>)>,
) {
    node.scalars(&mut Vec::new(), &mut |text, style, place| match substitute(text, style, outside) {
        Ok(Known::Whole) => {}
        Ok(Known::Unopened) => unopened.push((place.at, place.path.to_vec())),
        Err(problems) => {
            issues.extend(problems.into_iter().map(|p| Issue::new(place.at, dotted(place.path), p)));
        }
    });
}

/// The merged tree, read section by section.
pub(super) struct Sections {
    root: Node,
    issues: Vec<Issue>,
    seen: Vec<&'static str>,
}

impl Sections {
    /// Reads one top-level section; absent means its defaults.
    pub fn section<T: DeserializeOwned + Default>(&mut self, name: &'static str) -> T {
        self.entry(name).and_then(|node| self.value(&node, &[key(name)])).unwrap_or_default()
    }

    /// `verdict`, whose keys belong to the pipeline and to the evaluator.
    pub fn verdict(&mut self) -> Verdict {
        let Some(node) = self.entry("verdict") else { return Verdict::default() };
        let read = read_joined(&node, &[key("verdict")], &mut self.issues);
        read.map(|(verdict, evaluation)| Verdict { evaluation, ..verdict }).unwrap_or_default()
    }

    /// As [`Sections::section`], with another default.
    pub fn section_or<T: DeserializeOwned>(&mut self, name: &'static str, default: T) -> T {
        match self.entry(name) {
            Some(node) => self.value(&node, &[key(name)]).unwrap_or(default),
            None => default,
        }
    }

    /// The node of a top-level section, if it was written.
    pub fn entry(&mut self, name: &'static str) -> Option<Node> {
        self.seen.push(name);
        self.root.get(name).cloned()
    }

    /// Reads `node`, which stands at `path`.
    pub fn value<T: DeserializeOwned>(&mut self, node: &Node, path: &[Step]) -> Option<T> {
        read(node, path, &mut self.issues)
    }

    /// Whether something at or beneath `path` has been found faulty already.
    pub fn is_broken(&self, path: &[Step]) -> bool {
        let prefix = dotted(path);
        let beneath = |key: &str| {
            key.strip_prefix(&prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        self.issues.iter().any(|issue| beneath(&issue.key))
    }

    /// Notes a fault at `path`.
    pub fn fault(&mut self, path: &[Step], message: String, hint: Option<String>) {
        let at = self.root.place(path);
        self.issues.push(Issue::new(at, dotted(path), message).with_hint(hint));
    }

    /// Notes a fault where a secret stands in the file itself instead of coming from outside.
    pub fn must_come_from_outside(&mut self, path: &[Step]) {
        let value = self.root.at(path).filter(|node| !node.is_null()).map(|node| &node.value);
        // What `print-config` shows in place of one is none.
        let literal =
            matches!(value, Some(Value::Scalar(text, Style::Plain | Style::Quoted)) if text != REDACTED);
        // What could not be put in stands as it was written; that was told.
        if literal && !self.is_broken(path) {
            let message =
                "a secret does not stand in a configuration: give it as ${env:NAME} or ${file:PATH}";
            self.fault(path, message.to_owned(), None);
        }
    }

    /// As [`Sections::must_come_from_outside`], of those headers of a destination whose names say that
    /// they hold a secret; others, such as a tenant's name, may stand there.
    pub fn headers_come_from_outside<'n>(&mut self, of: &[Step], names: impl Iterator<Item = &'n String>) {
        for name in names {
            let lower = name.to_ascii_lowercase();
            if lower.ends_with("key") || SECRETS.iter().any(|word| lower.contains(word)) {
                self.must_come_from_outside(&[of, &[key("headers"), key(name)]].concat());
            }
        }
    }

    /// Notes what a section found wrong with itself.
    pub fn problems(&mut self, section: &str, found: Vec<Problem>) {
        for problem in found {
            let Problem { key, message, hint } = problem.below(section);
            let path = undotted(&key);
            // A value that was not readable was taken out: what its absence causes is no news.
            if !self.is_broken(&path) {
                self.fault(&path, message, hint);
            }
        }
    }

    fn refuse_the_rest(&mut self) {
        if self.root.entries().is_empty() && !matches!(self.root.value, Value::Map(_)) {
            self.fault(&[], "a configuration is a map of sections".to_owned(), None);
        }
        let names: Vec<String> = self.root.entries().iter().map(|(k, _)| k.text.clone()).collect();
        let seen = std::mem::take(&mut self.seen);
        for name in names.iter().filter(|n| !seen.contains(&n.as_str())) {
            let path = [key(name)];
            let hint = nearest(name, seen.iter().copied());
            self.fault(&path, "no such section".to_owned(), hint);
        }
    }
}

pub(super) fn key(name: &str) -> Step {
    Step::Key(name.to_owned())
}

/// `a.b[2].c` to steps. Only for keys that our own checks name.
pub(super) fn undotted(text: &str) -> Vec<Step> {
    let mut path = Vec::new();
    for part in text.split('.').filter(|p| !p.is_empty()) {
        let mut pieces = part.split('[');
        path.extend(pieces.next().filter(|p| !p.is_empty()).map(key));
        path.extend(pieces.filter_map(|p| p.strip_suffix(']')?.parse().ok()).map(Step::Item));
    }
    path
}
