//! The wording with which frameworks of agents report their own errors: code of the model that could not be run, and
//! limits of a run that were reached.
//!
//! The wording of all frameworks is in this module, in lower case. The phrases of programs, databases and services are
//! in `measure/error_kind/phrases.rs`.

/// Phrases of an interpreter that cannot parse the model's code.
pub(crate) const CODE_NOT_PARSED: &[&str] = &["code parsing", "parsing code", "parse the code"];
/// Pairs of words that an error contains together if an interpreter refused the model's code: the code cannot be
/// parsed, or imports a module that is not allowed.
pub(crate) const CODE_REFUSED: [(&str, &str); 3] =
    [("code", "parsed"), ("import", "not allowed"), ("import", "forbidden")];

/// Words before the unit in the phrase for a limit of a run.
const LIMIT_WORDS: [&str; 5] = ["max", "maximum", "max number of", "maximum number of", "limit of"];
/// The units that limits of a run count.
const LIMIT_UNITS: [&str; 9] =
    ["iterations", "steps", "turns", "operations", "calls", "rounds", "loops", "tokens", "recursion"];

/// The text between the code that failed and the error that it raised.
const CAUSE_LABEL: &str = " due to: ";

/// Phrases for a limit of a run, such as `maximum number of steps`.
pub(crate) fn run_limits() -> impl Iterator<Item = String> {
    LIMIT_UNITS.iter().flat_map(|noun| LIMIT_WORDS.iter().map(move |words| format!("{words} {noun}")))
}

/// The error in `... failed at line '<code>' due to: <error>`, and its offset in `text`: the quoted code does not state
/// the cause. The whole text if it has another form.
pub(crate) fn after_failed_code(text: &str) -> (&str, usize) {
    let label = memchr::memmem::rfind(text.as_bytes(), CAUSE_LABEL.as_bytes());
    let start = label.map_or(0, |start| start + CAUSE_LABEL.len());
    (text.get(start..).unwrap_or(text), start)
}

/// Whether the first line, before the code that it quotes, reports that code failed.
pub(crate) fn reports_failed_code(text: &str) -> bool {
    let line = text.split(['\n', '\'', '"', '`']).next().unwrap_or_default().to_ascii_lowercase();
    let is_code = |word: &str| matches!(word, "code" | "script" | "cell" | "snippet" | "program");
    line.split(|c: char| !c.is_alphanumeric()).any(is_code) && line.contains("fail")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_is_separated_from_the_code_that_raised_it() {
        let failed = "Code execution failed at line 'x = 1 / 0' due to: ZeroDivisionError";
        assert_eq!(
            after_failed_code(failed),
            ("ZeroDivisionError", failed.len() - "ZeroDivisionError".len())
        );
        assert!(reports_failed_code(failed));
        let other = "The request failed: 'code' is no field";
        assert_eq!(after_failed_code(other), (other, 0));
        assert!(!reports_failed_code(other));
    }

    #[test]
    fn limits_of_a_run_are_named_by_what_they_count() {
        let limits: Vec<String> = run_limits().collect();
        assert!(limits.iter().any(|limit| limit == "max number of operations"));
        assert!(limits.iter().any(|limit| limit == "maximum iterations"));
    }
}
