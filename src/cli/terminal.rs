//! Standard output and standard error of commands.

use std::io::{ErrorKind, Write};

use super::failure::Failure;

/// Writes a command's result to standard output.
pub(super) fn write_stdout(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|e| stdout_failure(&e))
}

/// The failure that an error of standard output is.
pub(super) fn stdout_failure(error: &std::io::Error) -> Failure {
    match error.kind() {
        ErrorKind::BrokenPipe => Failure::ClosedPipe,
        _ => Failure::Run(format!("standard output: {error}")),
    }
}

/// Writes a line to standard error; a closed one is no reason to stop.
pub(super) fn write_stderr(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
