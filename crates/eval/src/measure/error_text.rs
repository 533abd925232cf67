//! Errors that tools return as text while the status of their span is not an error.
//!
//! Messages of programs are English for users of any language. The words in these modules are those of protocols and
//! libraries, so that they are in the code and not in `language/data`.
//!
//! In: a tool's result. Out: the passage that reports an error, if the result *is* an error
//! report. Position and structure decide, not the presence of a word: a page about errors, source code that raises
//! one, and a log that contains one are valid results. The exit status that an executor reports takes precedence over
//! the output of the program (`headline`), structured results are unwrapped (`object`, `repr`), and plain texts are
//! matched at their beginning and end (`plain`, `uncaught`), unless they are documents (`document`).

mod document;
mod headline;
mod object;
mod plain;
mod repr;
mod uncaught;

/// The passage of `result` that reports an error, if `result` is an error report.
///
/// The passage is unescaped if it was within JSON, and clipped to the length of a quote.
pub(crate) fn reported(result: &str) -> Option<String> {
    object::reported(result.trim())
}

/// Whether the error in the result of a tool is a part of the document that the tool returned: its title, or the end
/// of its text.
pub(crate) fn is_in_document(result: &str) -> bool {
    document::contains_error(result.trim())
}

/// The output of a program in `result`, without what its executor wrote around it.
pub(crate) fn program_output(result: &str) -> &str {
    headline::strip_headline(result)
}

#[cfg(test)]
mod tests;
