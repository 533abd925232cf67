//! `${env:NAME}`, `${file:PATH}`, defaults (`:-`) and `$$`, as in the Collector.
//!
//! In: the text of a scalar, after YAML parsing, so that the value of a variable cannot add a key or a
//! list. Out: the text with variables substituted. `${NAME}` is `${env:NAME}`, as in the Collector. If
//! files may not be opened, as during validation, they are assumed to exist.

use std::path::Path;

use verdict_config::Style;

use crate::bounded_file::read_bounded;

/// Largest size of a file in bytes; secrets and other values are smaller.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// Access to variables and files.
pub(super) struct ExternalValues<'a> {
    pub(super) env: &'a dyn Fn(&str) -> Option<String>,
    /// Whether `${file:PATH}` is opened.
    pub(super) open_files: bool,
}

/// Whether the text of a scalar is complete after substitution.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Completeness {
    Whole,
    /// The text refers to a file that was not opened, so its value cannot be checked.
    Unopened,
}

/// Substitutes the variables of a scalar. If the whole scalar is one variable, its style becomes
/// [`Style::Substituted`]: it may then be read as a number or a boolean. Fails with one message per variable
/// that is malformed, or unset without a default.
pub(super) fn substitute(
    text: &mut String,
    style: &mut Style,
    external: &ExternalValues<'_>,
) -> Result<Completeness, Vec<String>> {
    let mut completeness = Completeness::Whole;
    if !text.contains('$') {
        return Ok(completeness);
    }
    let mut out = String::with_capacity(text.len());
    let mut problems = Vec::new();
    let mut new_style = *style;
    let mut remaining = text.as_str();
    while let Some((before, after)) = remaining.split_once('$') {
        out.push_str(before);
        if let Some(escaped) = after.strip_prefix('$') {
            out.push('$');
            remaining = escaped;
        } else if let Some(inner) = after.strip_prefix('{') {
            let Some((expression, remainder)) = inner.split_once('}') else {
                problems.push(format!("'${{{inner}' has no closing brace"));
                remaining = "";
                break;
            };
            match resolve(expression, external) {
                Ok(Some(value)) => out.push_str(&value),
                Ok(None) => {
                    completeness = Completeness::Unopened;
                    out.push_str(&format!("${{{expression}}}"));
                }
                Err(problem) => problems.push(problem),
            }
            let is_whole_scalar = before.is_empty() && remaining.len() == text.len() && remainder.is_empty();
            // Other content next to a variable makes the scalar a text, even if it looks like a number.
            new_style = if is_whole_scalar { Style::Substituted } else { Style::Mixed };
            remaining = remainder;
        } else {
            out.push('$');
            remaining = after;
        }
    }
    out.push_str(remaining);
    if !problems.is_empty() {
        return Err(problems);
    }
    (*text, *style) = (out, new_style);
    Ok(completeness)
}

/// The value of `env:NAME`, `file:PATH` or `NAME`; `None` for a file that may not be opened.
fn resolve(expression: &str, external: &ExternalValues<'_>) -> Result<Option<String>, String> {
    let (name, default) = match expression.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (expression, None),
    };
    let name = match name.split_once(':') {
        Some(("env", name)) => name,
        Some(("file", path)) => return resolve_file(path, default, external),
        Some((scheme, _)) => {
            return Err(format!("'${{{scheme}:...}}' is not available; use ${{env:NAME}} or ${{file:PATH}}"));
        }
        None => name,
    };
    let is_name_char = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(is_name_char) {
        return Err(format!("'{name}' cannot be the name of an environment variable"));
    }
    match ((external.env)(name), default) {
        (Some(value), _) => Ok(Some(value)),
        (None, Some(default)) => Ok(Some(default.to_owned())),
        (None, None) => Err(format!(
            "environment variable {name} is not set; set it, or give a default: ${{env:{name}:-...}}"
        )),
    }
}

fn resolve_file(
    path: &str,
    default: Option<&str>,
    external: &ExternalValues<'_>,
) -> Result<Option<String>, String> {
    if path.is_empty() {
        return Err("'${file:}' contains no path".to_owned());
    }
    if !external.open_files {
        return Ok(None);
    }
    match (read_bounded(Path::new(path), MAX_FILE_BYTES), default) {
        // Editors and `echo` append a line break that is not part of the secret.
        (Ok(text), _) => Ok(Some(text.trim_end_matches(['\n', '\r']).to_owned())),
        (Err(error), Some(default)) if error.kind() == std::io::ErrorKind::NotFound => {
            Ok(Some(default.to_owned()))
        }
        (Err(error), _) => Err(format!("cannot read {path}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(text: &str) -> Result<(String, Style), Vec<String>> {
        run_with(text, true).map(|(text, style, _)| (text, style))
    }

    fn run_with(text: &str, files: bool) -> Result<(String, Style, Completeness), Vec<String>> {
        let lookup = |name: &str| match name {
            "PORT" => Some("4317".to_owned()),
            "EMPTY" => Some(String::new()),
            "EVIL" => Some("a\nkey: [1]".to_owned()),
            _ => None,
        };
        let mut text = text.to_owned();
        let mut style = Style::Plain;
        let external = ExternalValues { env: &lookup, open_files: files };
        substitute(&mut text, &mut style, &external).map(|completeness| (text, style, completeness))
    }

    #[test]
    fn variables_defaults_and_escapes_are_substituted() {
        assert_eq!(run("${env:PORT}").unwrap(), ("4317".into(), Style::Substituted));
        assert_eq!(run("${PORT}").unwrap(), ("4317".into(), Style::Substituted));
        assert_eq!(run("127.0.0.1:${env:PORT}").unwrap(), ("127.0.0.1:4317".into(), Style::Mixed));
        assert_eq!(run("${env:NONE:-a:-b}").unwrap().0, "a:-b");
        assert_eq!(run("${env:EMPTY:-x}").unwrap().0, "");
        assert_eq!(run("$${env:PORT} costs $5$").unwrap().0, "${env:PORT} costs $5$");
        assert_eq!(run("${env:EVIL}").unwrap().0, "a\nkey: [1]");
    }

    #[test]
    fn a_file_is_read_without_its_last_line_break_and_only_where_allowed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "hunter2\r\n").unwrap();
        let named = format!("${{file:{}}}", path.display());
        assert_eq!(run(&named).unwrap(), ("hunter2".into(), Style::Substituted));
        assert_eq!(run(&format!("Bearer {named}")).unwrap().0, "Bearer hunter2");
        assert_eq!(run_with(&named, false).unwrap(), (named, Style::Substituted, Completeness::Unopened));
        let missing = folder.path().join("missing").display().to_string();
        assert_eq!(run(&format!("${{file:{missing}:-none}}")).unwrap().0, "none");
        assert!(run(&format!("${{file:{missing}}}")).unwrap_err()[0].contains(&missing));
        std::fs::write(&path, vec![b'x'; 100_000]).unwrap();
        let error = run(&format!("${{file:{}:-default}}", path.display())).unwrap_err();
        assert!(error[0].contains("larger than"), "{error:?}");
    }

    #[test]
    fn every_problem_of_a_scalar_is_reported() {
        assert_eq!(run("${env:A}${env:B} ${env:C:-c}").unwrap_err().len(), 2);
        for bad in [
            "${http:x}",
            "${file:}",
            "${file:/nowhere/at/all}",
            "${env:}",
            "${env:${env:X}}",
            "${env:1X}",
            "${env:OPEN",
        ] {
            assert!(run(bad).is_err(), "{bad}");
        }
    }
}
