//! Errors that tools return as text while the status of their span is not an error.
//!
//! Messages of programs are English in any language of their users: the words here and below are those of protocols and
//! libraries, which stay in the code.
//!
//! In: a tool's result. Out: the passage that reports an error, if the result *is* an error
//! report. Position and structure decide, not the presence of a word: a page about errors, source code
//! that raises one, or a log that contains one are valid results. What an executor reports of a run decides over
//! the output of the program (`headline`), envelopes are opened (`object`, `repr`), and plain texts are read
//! by their beginning and end (`plain`, `uncaught`), unless they are documents (`document`).

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

/// Whether the error that the result of a tool reports is a part of a document, which the tool returned: its title, or
/// the end of a text that it is in.
pub(crate) fn is_in_document(result: &str) -> bool {
    document::has_it_within(result.trim())
}

/// The output of a program in `result`, without what its executor wrote around it.
pub(crate) fn program_output(result: &str) -> &str {
    headline::without(result)
}

#[cfg(test)]
mod tests;
