//! Loads task files: converts YAML or JSON to [`Task`]s, or reports every problem with file, line and reason.
//!
//! In: texts with their names. Out: checked tasks, and warnings. Two formats are read: that of this
//! project (`task_file`), in which a `policy` can replace the states (`policy`), and the records of
//! the authors of paper 002 (`paper_task`). A file contains one task, a list of tasks, or `tasks:` with
//! a list. `limit_text` parses the rules of a policy that are text.

mod limit_text;
mod policy;
mod paper_task;
mod task_file;

use std::borrow::Cow;

use foldhash::HashMap;
use regex::Captures;
use verdict_config::{Invalid, Issue, Mark, Node, Source, Step, Value, dotted, parse_within};

use super::alphabet::{Alphabet, SymbolDefinition};
use super::draft::{TaskProblem, key};
use super::task::Task;

/// Maximum number of YAML nodes of one file: enough for hundreds of tasks.
const MAX_NODES: usize = 1_000_000;
/// Maximum number of overlapping definitions of one task that are reported.
const MAX_OVERLAPS: usize = 20;

/// Valid tasks with warnings.
#[derive(Debug, Default)]
pub struct LoadedTasks {
    /// In order of the files.
    pub tasks: Vec<Task>,
    /// One line each: `file:line:column: key: message`.
    pub warnings: Vec<String>,
}

/// The JSON schema of task files.
pub fn schema() -> schemars::Schema {
    task_file::schema()
}

/// Reads task files.
///
/// # Errors
/// Every problem of every text.
pub fn load(sources: &[Source]) -> Result<LoadedTasks, Invalid> {
    let mut reader = TaskReader::default();
    for (file, source) in sources.iter().enumerate() {
        match parse_within(file, &joined_surrogates(&source.text), MAX_NODES) {
            Ok(root) => reader.read_file(&root),
            Err(issue) => reader.issues.push(issue),
        }
    }
    let names: Vec<String> = sources.iter().map(|s| s.name.clone()).collect();
    if !reader.issues.is_empty() {
        return Err(Invalid::new(&names, reader.issues));
    }
    let warnings = Invalid::new(&names, reader.warnings).lines().to_vec();
    Ok(LoadedTasks { tasks: reader.tasks, warnings })
}

#[derive(Default)]
struct TaskReader {
    tasks: Vec<Task>,
    issues: Vec<Issue>,
    warnings: Vec<Issue>,
    /// The first location of each name.
    names: HashMap<String, Mark>,
}

impl TaskReader {
    /// Reads a file with one task or a list of tasks.
    fn read_file(&mut self, root: &Node) {
        let (prefix, list) = match (&root.value, root.get("tasks").map(|n| &n.value)) {
            (Value::List(items), _) => (Vec::new(), items),
            (_, Some(Value::List(items))) => (vec![Step::Key("tasks".into())], items),
            _ => return self.read_task_node(root, root, &[]),
        };
        if list.is_empty() {
            self.issues.push(Issue::new(root.at, dotted(&prefix), "the list has no task".to_owned()));
        }
        for (i, node) in list.iter().enumerate() {
            let mut location = prefix.clone();
            location.push(Step::Item(i));
            self.read_task_node(root, node, &location);
        }
    }

    /// Reads one task in either of the formats.
    fn read_task_node(&mut self, root: &Node, node: &Node, prefix: &[Step]) {
        let earlier_issue_count = self.issues.len();
        let result = match node.get("nodes").or_else(|| node.get("prompt_id")) {
            Some(_) => paper_task::read_record(node, prefix, &mut self.issues),
            None => task_file::read_task(node, prefix, &mut self.issues),
        };
        let issue = |problem: TaskProblem| {
            let location: Vec<Step> = prefix.iter().cloned().chain(problem.location).collect();
            Issue::new(root.position(&location), dotted(&location), problem.message)
        };
        // Problems that may follow from unreadable parts, which are issues already, are not reported.
        match result.filter(|_| self.issues.len() == earlier_issue_count) {
            None => {}
            Some(Err(problems)) => self.issues.extend(problems.into_iter().map(issue)),
            Some(Ok((task, warnings))) => {
                self.warnings.extend(warnings.into_iter().chain(overlap_warnings(&task.alphabet)).map(issue));
                self.add_task(task, node.at, prefix);
            }
        }
    }

    /// Adds a task, unless there is one with its name.
    fn add_task(&mut self, task: Task, mark: Mark, prefix: &[Step]) {
        if let Some(first) = self.names.get(&task.name) {
            let message = format!("a second task '{}'; first on line {}", task.name, first.line);
            self.issues.push(Issue::new(mark, dotted(prefix), message));
            return;
        }
        self.names.insert(task.name.clone(), mark);
        self.tasks.push(task);
    }
}

/// The warnings about symbols that may represent the same call.
fn overlap_warnings(alphabet: &Alphabet) -> Vec<TaskProblem> {
    let warning = |(first, second): (&SymbolDefinition, &SymbolDefinition)| {
        let message = format!(
            "a call of '{}' may match both '{}' and '{}'; the first one is used",
            first.function, first.symbol, second.symbol
        );
        TaskProblem::new(&[key("alphabet"), key(&second.symbol)], message)
    };
    alphabet.overlaps().take(MAX_OVERLAPS).map(warning).collect()
}

regex!(ESCAPE, r"(?s)\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|.)");

/// Replaces surrogate pairs, with which JSON escapes characters above U+FFFF and which YAML does not
/// support.
fn joined_surrogates(text: &str) -> Cow<'_, str> {
    ESCAPE.replace_all(text, |escape: &Captures<'_>| {
        let unit = |group| u16::from_str_radix(escape.get(group)?.as_str(), 16).ok();
        let pair = unit(1).zip(unit(2)).map(|(high, low)| String::from_utf16_lossy(&[high, low]));
        pair.unwrap_or_else(|| escape[0].to_owned())
    })
}

#[cfg(test)]
mod tests;
