//! `${env:NAME}`, `${env:NAME:-default}` and `$$`, as in the Collector.
//!
//! In: a scalar's text, already parsed out of the YAML, so that no value of a variable can add a
//! key or a list. Out: the text with variables put in. `${NAME}` is read as `${env:NAME}`, which
//! is the Collector's default scheme.

use super::node::Style;

/// Puts variables in. A scalar that is one variable and nothing else becomes
/// [`Style::Substituted`]: it may be read as a number or a truth value.
///
/// # Errors
/// One message a variable that is unset and has no default, or that is not written right.
pub(super) fn substitute(
    text: &mut String,
    style: &mut Style,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<(), Vec<String>> {
    if !text.contains('$') {
        return Ok(());
    }
    let mut out = String::with_capacity(text.len());
    let mut problems = Vec::new();
    let mut pieces = 0;
    let mut variables = 0;
    let mut rest = text.as_str();
    while let Some(at) = rest.find('$') {
        pieces += usize::from(at > 0);
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(escaped) = after.strip_prefix('$') {
            out.push('$');
            pieces += 1;
            rest = escaped;
        } else if let Some(inner) = after.strip_prefix('{') {
            let Some((expression, behind)) = inner.split_once('}') else {
                problems.push(format!("'${{{inner}' has no closing brace"));
                rest = "";
                break;
            };
            match resolve(expression, lookup) {
                Ok(value) => out.push_str(&value),
                Err(problem) => problems.push(problem),
            }
            variables += 1;
            rest = behind;
        } else {
            out.push('$');
            pieces += 1;
            rest = after;
        }
    }
    pieces += usize::from(!rest.is_empty());
    out.push_str(rest);
    if !problems.is_empty() {
        return Err(problems);
    }
    *style = match (variables, pieces) {
        (0, _) => *style,
        (1, 0) => Style::Substituted,
        // A mixture is text, whatever its parts look like.
        _ if *style == Style::Plain => Style::Quoted,
        _ => *style,
    };
    *text = out;
    Ok(())
}

fn resolve(expression: &str, lookup: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let (name, default) = match expression.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (expression, None),
    };
    let name = match name.split_once(':') {
        Some(("env", name)) => name,
        Some((scheme, _)) => return Err(format!("'${{{scheme}:...}}' is not available; use ${{env:NAME}}")),
        None => name,
    };
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(legal) {
        return Err(format!("'{name}' cannot be the name of an environment variable"));
    }
    match (lookup(name), default) {
        (Some(value), _) => Ok(value),
        (None, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err(format!(
            "environment variable {name} is not set; set it, or give a default: ${{env:{name}:-...}}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(text: &str) -> Result<(String, Style), Vec<String>> {
        let lookup = |name: &str| match name {
            "PORT" => Some("4317".to_owned()),
            "EMPTY" => Some(String::new()),
            "EVIL" => Some("a\nkey: [1]".to_owned()),
            _ => None,
        };
        let mut text = text.to_owned();
        let mut style = Style::Plain;
        substitute(&mut text, &mut style, &lookup).map(|()| (text, style))
    }

    #[test]
    fn variables_defaults_and_escapes() {
        assert_eq!(run("${env:PORT}").unwrap(), ("4317".into(), Style::Substituted));
        assert_eq!(run("${PORT}").unwrap(), ("4317".into(), Style::Substituted));
        assert_eq!(run("127.0.0.1:${env:PORT}").unwrap(), ("127.0.0.1:4317".into(), Style::Quoted));
        assert_eq!(run("${env:NONE:-a:-b}").unwrap().0, "a:-b");
        assert_eq!(run("${env:EMPTY:-x}").unwrap().0, "");
        assert_eq!(run("$${env:PORT} costs $5$").unwrap().0, "${env:PORT} costs $5$");
        assert_eq!(run("${env:EVIL}").unwrap().0, "a\nkey: [1]");
    }

    #[test]
    fn every_problem_of_a_scalar_is_told() {
        assert_eq!(run("${env:A}${env:B} ${env:C:-c}").unwrap_err().len(), 2);
        for bad in ["${file:/etc/passwd}", "${env:}", "${env:${env:X}}", "${env:1X}", "${env:OPEN"] {
            assert!(run(bad).is_err(), "{bad}");
        }
    }
}
